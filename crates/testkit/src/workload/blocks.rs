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
    /// The blocks that are there, complete and correct.
    pub numbers: Vec<u64>,
    /// The file ends within a block, all of which that is there is correct: its number, if it shows.
    pub partial: Option<Option<u64>>,
}

/// Reads a file of blocks; a file that is missing has none. An error, or what is no block, is corrupt.
pub fn read(path: &Path, len: usize) -> Result<BlockFile, Violation> {
    let content = match fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BlockFile::default()),
        Err(error) => {
            let what = format!("{}: {error}", path.display());
            return Err(Violation::Corrupt(what));
        }
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    parse(&content, len).map_err(|at| {
        Violation::Corrupt(format!(
            "{name}: garbage at byte {at} of {}",
            content.len()
        ))
    })
}

/// The error is where the garbage begins.
fn parse(content: &[u8], len: usize) -> Result<BlockFile, usize> {
    let mut file = BlockFile::default();
    for (index, part) in content.chunks(len).enumerate() {
        let at = index * len;
        let Some(header) = part.first_chunk::<HEADER_LEN>() else {
            let shown = part.len().min(MAGIC.len());
            if part[..shown] != MAGIC[..shown] {
                return Err(at);
            }
            file.partial = Some(None);
            continue;
        };
        let mut number = [0; 8];
        number.copy_from_slice(&header[8..]);
        let number = u64::from_le_bytes(number);
        let wanted = block(number, len);
        if let Some(wrong) = part.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
            return Err(at + wrong);
        }
        match part.len() == len {
            true => file.numbers.push(number),
            false => file.partial = Some(Some(number)),
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_a_partial_one_and_garbage() {
        let mut content = [block(0, 100), block(1, 100)].concat();
        assert_eq!(parse(&content, 100).unwrap().numbers, [0, 1]);
        content.truncate(150);
        assert_eq!(parse(&content, 100).unwrap().partial, Some(Some(1)));
        content.truncate(104);
        assert_eq!(parse(&content, 100).unwrap().partial, Some(None));
        content.resize(200, 0);
        assert_eq!(parse(&content, 100), Err(104 - 104 % 100));
    }
}
