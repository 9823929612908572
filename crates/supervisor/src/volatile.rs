//! `--volatile`: below which paths what is written is not waited for before output is shown.

use crate::event_loop::Supervisor;
use crate::requests::read_path;
use agent_abi::{hash_object, FdEntry, FdKind, Frame};
use procfs::{MagicLink, ThreadId};
use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use syscall_table::nr;

/// Why a path cannot be volatile.
#[derive(Debug, thiserror::Error)]
pub enum VolatileError {
    /// It is not there, or cannot be reached.
    #[error("cannot let {} be volatile: {}; name a directory or file that is there", path.display(), why(source))]
    Find {
        /// As it was given.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is a device, a FIFO or a socket.
    #[error("cannot let {} be volatile: it is neither a directory nor a file; name one", path.display())]
    Kind {
        /// As it was given.
        path: PathBuf,
    },
    /// A volume is mounted below it.
    #[error("cannot let {} be volatile: the volume at {} is mounted there; name a directory that contains no volume", path.display(), volume.display())]
    Volume {
        /// As it was given.
        path: PathBuf,
        /// Where the volume is.
        volume: PathBuf,
    },
}

fn why(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A directory or file below which nothing is waited for.
#[derive(Clone, Debug)]
pub struct VolatilePath {
    path: PathBuf,
    dev: u64,
}

impl VolatilePath {
    /// Looks at `path`; `volumes` are the directories on which the world's volumes are mounted.
    pub fn new<'v>(path: &Path, mut volumes: impl Iterator<Item = &'v Path>) -> Result<Self, VolatileError> {
        let found = |source| VolatileError::Find { path: path.to_owned(), source };
        let real = std::fs::canonicalize(path).map_err(found)?;
        let metadata = std::fs::metadata(&real).map_err(found)?;
        if !metadata.is_dir() && !metadata.is_file() {
            return Err(VolatileError::Kind { path: path.to_owned() });
        }
        if let Some(volume) = volumes.find(|volume| volume.starts_with(&real)) {
            return Err(VolatileError::Volume { path: path.to_owned(), volume: volume.to_owned() });
        }
        Ok(Self { path: real, dev: metadata.dev() })
    }

    /// Whether a file at `path` on the file system `dev` is there.
    fn contains(&self, path: &Path, dev: u64) -> bool {
        self.dev == dev && path.starts_with(&self.path)
    }
}

/// The paths of a world, and what was found there.
#[derive(Debug, Default)]
pub(crate) struct Volatile {
    paths: Vec<VolatilePath>,
    files: HashSet<(u64, u64)>,
}

impl Volatile {
    pub(crate) fn new(paths: Vec<VolatilePath>) -> Self {
        Self { paths, files: HashSet::new() }
    }

    /// How many files were opened there.
    pub(crate) fn files(&self) -> u64 {
        self.files.len() as u64
    }

    fn contains(&self, path: &Path, dev: u64) -> bool {
        self.paths.iter().any(|volatile| volatile.contains(path, dev))
    }

    /// Whether moving `from` to `to` takes something from where nothing is waited for to where it is.
    fn moves_out(&self, from: &Path, to: &Path) -> bool {
        self.paths.iter().any(|volatile| {
            let is_above = volatile.path.starts_with(from);
            is_above || from.starts_with(&volatile.path) != to.starts_with(&volatile.path)
        })
    }
}

impl Supervisor {
    /// Whether the file behind a descriptor, known by the slot of its clock, is where nothing is waited for. It
    /// must have one name only.
    pub(crate) fn is_volatile(&mut self, tid: ThreadId, fd: i32, slot: usize) -> Result<u64, i32> {
        let copy = self.copy_descriptor(tid, fd).map_err(|_| libc::EBADF)?;
        let stat = rustix::fs::fstat(&copy).map_err(|_| libc::EBADF)?;
        let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
        let entry = FdEntry::new(FdKind::DomainFile, 0, hash_object(stat.st_dev, stat.st_ino));
        if !is_file || stat.st_nlink != 1 || entry.slot() != slot {
            return Ok(0);
        }
        let path = procfs::own_name(&copy).map_err(|_| libc::ENOENT)?;
        let is_volatile = self.volatile.contains(&path, stat.st_dev);
        if is_volatile {
            self.volatile.files.insert((stat.st_dev, stat.st_ino));
        }
        Ok(u64::from(is_volatile))
    }

    /// Whether a call that gives a name may move something out of there: 0 only if it certainly does not.
    pub(crate) fn moves_out(&mut self, tid: ThreadId, frame_at: u64) -> Result<u64, i32> {
        let frame: Frame = tracee::read_value(tid, frame_at).map_err(|_| libc::EFAULT)?;
        let [a0, a1, a2, a3, flags, _] = frame.args;
        if frame.nr == nr::linkat && flags != 0 {
            // What is linked is not what the name says.
            return Ok(1);
        }
        const CWD: u64 = libc::AT_FDCWD as u64;
        let (from, to) = match frame.nr {
            nr::rename | nr::link => ((CWD, a0), (CWD, a1)),
            _ => ((a0, a1), (a2, a3)),
        };
        let place = |(dir, path)| place_of(tid, dir as i32, &read_path(tid, path)?);
        Ok(match (place(from), place(to)) {
            (Some(from), Some(to)) => u64::from(self.volatile.moves_out(&from, &to)),
            _ => 1,
        })
    }
}

/// The real path of a name, as a thread sees it; `None` if that cannot be told.
fn place_of(tid: ThreadId, dir: i32, path: &Path) -> Option<PathBuf> {
    let is_root_ours = MagicLink::Root.shown(tid).is_ok_and(|root| root == Path::new("/"));
    let base = match dir {
        _ if path.is_absolute() => "/".to_owned(),
        libc::AT_FDCWD => MagicLink::Cwd.path(tid),
        fd => MagicLink::Fd(fd).path(tid),
    };
    let parent = std::fs::canonicalize(Path::new(&base).join(path.parent()?)).ok()?;
    // A file can be moved by way of /proc/self/fd, which means our own here.
    (is_root_ours && !parent.starts_with("/proc")).then(|| path.file_name().map(|name| parent.join(name))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volatile() -> Volatile {
        Volatile::new(vec![VolatilePath { path: "/srv/log".into(), dev: 1 }])
    }

    #[test]
    fn what_is_below_a_path_on_its_file_system_is_there() {
        assert!(volatile().contains(Path::new("/srv/log/a/b"), 1));
        assert!(!volatile().contains(Path::new("/srv/log/a/b"), 2));
        assert!(!volatile().contains(Path::new("/srv/logs"), 1));
        assert!(!volatile().contains(Path::new("/srv/log (deleted)"), 1));
    }

    #[test]
    fn what_moves_out() {
        let moves_out = |from: &str, to: &str| volatile().moves_out(Path::new(from), Path::new(to));
        assert!(moves_out("/srv/log/a", "/srv/a"));
        assert!(moves_out("/srv/log", "/srv/old"));
        assert!(moves_out("/srv", "/old"));
        assert!(moves_out("/srv/a", "/srv/log/a"), "an exchange moves both");
        assert!(!moves_out("/srv/log/a", "/srv/log/b/a"));
        assert!(!moves_out("/srv/a", "/srv/b"));
    }
}
