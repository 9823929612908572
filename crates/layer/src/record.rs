//! Up to where the keeping of one file system has come, in its layer.
//!
//! The file is there, with its block, before the layer gets its name; from then on its bytes are only exchanged. The
//! layer has no journal: a file that is made later may have a name after a power cut and no inode, and then nothing of
//! the layer can be read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Whatever is there may be done or not.
    Begun,
    /// Everything but the directories' attributes, for good.
    ContentsDone,
    /// Everything, for good.
    AllDone,
    /// Nobody will do the rest: what is in the stage may be gone, so that nothing tells any more what was done.
    GivenUp,
}

/// What is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// How far it is.
    pub progress: Progress,
    /// The inode of the stage that was made.
    pub stage: Option<u64>,
}

/// The file.
#[derive(Debug)]
pub struct Record(File);

const NAME: &str = "progress";

impl Record {
    /// Before the layer has a name, and is synced as a whole.
    pub fn create(layer: &Path) -> io::Result<()> {
        File::create(layer.join(NAME))?.write_all_at(&Known::NOTHING.to_bytes(), 0)
    }

    /// The one that was made.
    pub fn open(layer: &Path) -> io::Result<Record> {
        Ok(Record(OpenOptions::new().read(true).write(true).open(layer.join(NAME))?))
    }

    /// What was written last.
    pub fn read(&self) -> io::Result<Known> {
        let mut bytes = [0; LEN];
        self.0.read_exact_at(&mut bytes, 0)?;
        Known::from_bytes(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// For good.
    pub fn write(&self, known: Known) -> io::Result<()> {
        self.0.write_all_at(&known.to_bytes(), 0)?;
        self.0.sync_data()
    }
}

/// Within one sector: it is written as a whole or not at all.
const LEN: usize = 16;

impl Known {
    const NOTHING: Known = Known { progress: Progress::Begun, stage: None };

    fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&(self.progress as u64).to_le_bytes());
        // No inode has the number 0.
        bytes[8..].copy_from_slice(&self.stage.unwrap_or(0).to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; LEN]) -> Option<Known> {
        let (first, second) = bytes.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        let progress = match number(first)? {
            0 => Progress::Begun,
            1 => Progress::ContentsDone,
            2 => Progress::AllDone,
            3 => Progress::GivenUp,
            _ => return None,
        };
        Some(Known { progress, stage: number(second).filter(|&ino| ino != 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        Record::create(dir.path()).unwrap();
        let record = Record::open(dir.path()).unwrap();
        assert_eq!(record.read().unwrap(), Known { progress: Progress::Begun, stage: None });
        for progress in [Progress::Begun, Progress::ContentsDone, Progress::AllDone, Progress::GivenUp] {
            let known = Known { progress, stage: Some(u64::MAX) };
            record.write(known).unwrap();
            assert_eq!(Record::open(dir.path()).unwrap().read().unwrap(), known);
        }
        assert_eq!(Known::from_bytes([4; LEN]), None);
    }
}
