//! Blocks whose content follows from their number, as `programs/crash-workload.c` writes them.

use std::fs;
use std::io;
use std::path::Path;

use crate::crash::Violation;

const MAGIC: &[u8; 8] = b"SPECBLK\n";
const HEADER_LEN: usize = 16;

/// The block with this number.
pub fn block(number: u64, len: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(len);
    block.extend_from_slice(MAGIC);
    block.extend_from_slice(&number.to_le_bytes());
    let mut state = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // xorshift64*
    while block.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        block.push((state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8);
    }
    block
}

/// What a file of blocks shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BlockFile {
    /// The blocks that are there, complete and correct, up to the first garbage.
    pub numbers: Vec<u64>,
    /// The file ends within a block, all of which that is there is correct: its number, if it shows.
    pub partial: Option<Option<u64>>,
    /// What is wrong with the file.
    pub garbage: Option<Violation>,
}

/// Reads a file of blocks; a file that is missing has none.
pub fn read(path: &Path, len: usize) -> BlockFile {
    match fs::read(path) {
        Ok(content) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            parse(&name, &content, len)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => BlockFile::default(),
        Err(error) => BlockFile {
            garbage: Some(Violation::Corrupt(format!("{}: {error}", path.display()))),
            ..BlockFile::default()
        },
    }
}

fn parse(name: &str, content: &[u8], len: usize) -> BlockFile {
    let mut file = BlockFile::default();
    for (index, part) in content.chunks(len).enumerate() {
        let number = number_of(part);
        if let Some(wrong) = first_wrong(part, number, len) {
            file.garbage = Some(garbage(name, content, index * len + wrong));
            break;
        }
        match number {
            Some(number) if part.len() == len => file.numbers.push(number),
            number => file.partial = Some(number),
        }
    }
    file
}

/// The number in a block's header; `None` if it is cut off.
fn number_of(part: &[u8]) -> Option<u64> {
    let number = part.get(MAGIC.len()..HEADER_LEN)?;
    Some(u64::from_le_bytes(number.try_into().ok()?))
}

/// Where the first bytes of a block are not what they should be.
fn first_wrong(part: &[u8], number: Option<u64>, len: usize) -> Option<usize> {
    let wanted = match number {
        Some(number) => block(number, len),
        None => MAGIC.to_vec(),
    };
    let mut pairs = part.iter().zip(&wanted);
    pairs.position(|(found, wanted)| found != wanted)
}

/// Zeroes to the end: the file got its length before its data. Anything else was never written.
fn garbage(name: &str, content: &[u8], at: usize) -> Violation {
    let len = content.len();
    match content[at..].iter().all(|byte| *byte == 0) {
        true => Violation::OutOfOrder(format!("{name}: only zeroes from byte {at} of {len}")),
        false => Violation::Corrupt(format!("{name}: garbage at byte {at} of {len}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_a_partial_one_and_garbage() {
        let mut content = [block(0, 100), block(1, 100)].concat();
        assert_eq!(parse("f", &content, 100).numbers, [0, 1]);
        content.truncate(150);
        assert_eq!(parse("f", &content, 100).partial, Some(Some(1)));
        content.truncate(104);
        assert_eq!(parse("f", &content, 100).partial, Some(None));
        content.resize(200, 0);
        let zeroes = parse("f", &content, 100);
        assert_eq!(zeroes.numbers, [0]);
        assert!(matches!(zeroes.garbage, Some(Violation::OutOfOrder(_))));
        content[199] = 1;
        let other = parse("f", &content, 100);
        assert!(matches!(other.garbage, Some(Violation::Corrupt(_))));
    }
}
