//! The few fields of an ext4 superblock that tell whether an image can be a volume (kernel documentation,
//! filesystems/ext4/super.rst), read before the kernel is asked to mount it, because the kernel answers EINVAL to
//! everything.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The label by which a file system is known to be made for Speculator.
pub const LABEL: &str = "speculator";

const OFFSET: u64 = 1024;
const MAGIC: u16 = 0xef53;
const STATE_HAS_ERRORS: u16 = 2;
const COMPAT_HAS_JOURNAL: u32 = 4;
const INCOMPAT_NEEDS_RECOVERY: u32 = 4;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_ENCRYPT: u32 = 0x10000;

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Length of the file system in bytes.
    pub len: u64,
    /// It has a journal, without which `data=journal` means nothing.
    pub has_journal: bool,
    /// It may have encrypted files, whose data is never in the journal.
    pub may_encrypt: bool,
    /// It was not unmounted; the next mount replays the journal.
    pub needs_recovery: bool,
    /// The kernel found it damaged at some time.
    pub has_errors: bool,
    /// It carries [`LABEL`].
    pub is_volume: bool,
}

impl Superblock {
    /// Reads it; `None` when there is no ext4 superblock.
    pub fn read(image: &File) -> io::Result<Option<Superblock>> {
        let mut block = [0; 1024];
        match image.read_exact_at(&mut block, OFFSET) {
            Ok(()) => Ok(Superblock::parse(&block)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(block: &[u8; 1024]) -> Option<Superblock> {
        let u16_at = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let log_block_size = u32_at(0x18);
        if u16_at(0x38) != MAGIC || log_block_size > 6 {
            return None;
        }
        let incompat = u32_at(0x60);
        let high = if incompat & INCOMPAT_64BIT == 0 { 0 } else { u32_at(0x150) };
        let blocks = u64::from(u32_at(4)) | u64::from(high) << 32;
        Some(Superblock {
            len: blocks.checked_mul(1024 << log_block_size)?,
            has_journal: u32_at(0x5c) & COMPAT_HAS_JOURNAL != 0,
            may_encrypt: incompat & INCOMPAT_ENCRYPT != 0,
            needs_recovery: incompat & INCOMPAT_NEEDS_RECOVERY != 0,
            has_errors: u16_at(0x3a) & STATE_HAS_ERRORS != 0,
            is_volume: block[0x78..0x88].split(|&byte| byte == 0).next() == Some(LABEL.as_bytes()),
        })
    }
}
