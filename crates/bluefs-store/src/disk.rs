//! The few things that a store asks of a disk, so that a test can be the disk.

use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::is_no_room;

/// A directory of files.
pub trait Disk: Debug + Send + Sync {
    /// A file; `None` if it is not there and is not to be made.
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>>;
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Takes a file away.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Which files there are is on stable storage.
    fn sync_names(&self) -> io::Result<()>;
    /// How much room there is, and what this file takes up of it; `None`: as much as anybody wants.
    fn room(&self, _file: &str) -> io::Result<Option<Room>> {
        Ok(None)
    }
    /// Whether so many bytes can be had now: nobody else says how much of a quota is left.
    fn has(&self, _bytes: u64) -> bool {
        true
    }
}

/// Room on a disk, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// That can still be had.
    pub free: u64,
    /// All.
    pub size: u64,
    /// What the file takes up.
    pub file: u64,
}

/// A file.
#[allow(clippy::len_without_is_empty, reason = "nobody asks")]
pub trait DiskFile: Debug + Send + Sync {
    /// Its length, bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads exactly as much as `out` takes.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes all of it.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts it, or makes it longer by zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// What was written is on stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the file system. Only one process at a time has it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    _lock: File,
}

/// The file that says who has the directory.
pub(crate) const LOCK: &str = "lock";
/// A file that has no name as soon as it is made: whether there is room for it.
const TRIAL: &str = "trial";

impl Directory {
    /// Takes a directory; `None`: another process has it.
    pub fn take(path: &Path) -> io::Result<Option<Directory>> {
        let lock = private().open(path.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Directory { path: path.to_owned(), _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Nobody else reads what clients keep on a server.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

impl Disk for Directory {
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        match private().create(create).open(self.path.join(name)) {
            Ok(file) => Ok(Some(Arc::new(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !create => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| name.as_ref().map_or(true, |name| name != LOCK)).collect()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn room(&self, file: &str) -> io::Result<Option<Room>> {
        let disk = rustix::fs::statvfs(&self.path)?;
        // The rest is for who has CAP_SYS_RESOURCE, which root may not have.
        let blocks = disk.f_bavail;
        let (free, size) = (blocks.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize));
        let file = std::fs::metadata(self.path.join(file))?.blocks() * 512;
        // File systems without blocks say that they have none.
        Ok((size > 0).then_some(Room { free, size, file }))
    }

    fn has(&self, bytes: u64) -> bool {
        // What is taken for a moment is not the last that others could have.
        if self.room(LOCK).is_ok_and(|room| room.is_some_and(|room| room.free <= bytes)) {
            return false;
        }
        let path = self.path.join(TRIAL);
        let tried = private().open(&path).and_then(|file| {
            std::fs::remove_file(&path)?;
            Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
        });
        // A file system that cannot say so, or another failure, is none of the room.
        !tried.is_err_and(|error| is_no_room(&error))
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A file as redb wants it.
#[derive(Debug)]
pub(crate) struct Backend(pub Arc<dyn DiskFile>);

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
