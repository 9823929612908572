//! The files of a cache on disk: a head, then records, one block of contents each.
//!
//! ```text
//!  head    magic 16 bytes, volume u64, salt u64, checksum u32, 4 bytes 0
//!  record  checksum of what follows to the contents u32, of the contents u32, length u32, 4 bytes 0,
//!          start u64, csn u64, ino u64, index u64, contents
//! ```
//!
//! A record stands for itself: it says of which block and of which state of which history it is, and its checksums
//! cover that. So whatever becomes of the others, a record that can be read is true. The salt is in each checksum, so
//! that what another file has left on the disk is no record of this one.

use bluefs::op::BLOCK_BYTES;
use bluefs::{Csn, Ino};

const MAGIC: &[u8; 16] = b"bluefs cache 1\n\0";
/// Bytes of a head, and of a record in front of its contents.
pub const HEAD_BYTES: usize = 40;
pub const HEADER_BYTES: usize = 48;

/// Of which file, and which block of it.
pub type At = (Ino, u64);

/// Which state of a volume something was seen in: the start of the server that has told it, and the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    pub start: u64,
    pub csn: Csn,
}

/// What a file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub volume: u64,
    pub salt: u64,
}

/// What a record says in front of its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub at: At,
    pub stamp: Stamp,
    /// Bytes of its contents.
    pub len: usize,
    sum: u32,
}

impl Head {
    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.volume.to_le_bytes());
        bytes.extend(self.salt.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.resize(HEAD_BYTES, 0);
        bytes
    }

    /// `None`: these are no head.
    pub fn of(bytes: &[u8]) -> Option<Head> {
        let head = Head { volume: number(bytes, 16)?, salt: number(bytes, 24)? };
        (head.bytes() == bytes).then_some(head)
    }
}

impl Header {
    /// `None`: here is no record of a file with this salt.
    pub fn of(salt: u64, bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
        if short(bytes, 0) != checksum(salt, &[&bytes[4..]]) {
            return None;
        }
        let (start, csn) = (number(bytes, 16)?, Csn(number(bytes, 24)?));
        let at = (Ino(number(bytes, 32)?), number(bytes, 40)?);
        let (len, sum) = (short(bytes, 8) as usize, short(bytes, 4));
        (len <= BLOCK_BYTES as usize).then_some(Header { at, stamp: Stamp { start, csn }, len, sum })
    }

    /// Whether these are its contents.
    pub fn is_of(&self, salt: u64, contents: &[u8]) -> bool {
        contents.len() == self.len && checksum(salt, &[contents]) == self.sum
    }
}

/// Appends a record.
pub fn append(out: &mut Vec<u8>, salt: u64, (ino, index): At, stamp: Stamp, contents: &[u8]) {
    let mut rest = checksum(salt, &[contents]).to_le_bytes().to_vec();
    rest.extend((contents.len() as u32).to_le_bytes());
    rest.extend([0; 4]);
    [stamp.start, stamp.csn.0, ino.0, index].iter().for_each(|number| rest.extend(number.to_le_bytes()));
    out.extend(checksum(salt, &[&rest]).to_le_bytes());
    out.extend(rest);
    out.extend(contents);
}

fn checksum(salt: u64, parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
