//! Links in `/proc/PID` that lead to what they stand for, whatever that is called by now ("magic links", proc(5)).

use crate::{Error, Result, TaskId};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{ControlFlow, Range};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MagicLink {
    /// The working directory.
    Cwd,
    /// The program that runs.
    Exe,
    /// The root directory.
    Root,
    /// What a descriptor refers to.
    Fd(i32),
    /// The file that is mapped at exactly these addresses. Only root may follow it.
    MapFile(Range<u64>),
    /// A namespace, by its name in `/proc/PID/ns`: `mnt`, `pid`, `user`, …
    Namespace(&'static str),
}

/// The name below `/proc/PID`.
impl fmt::Display for MagicLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cwd => f.write_str("cwd"),
            Self::Exe => f.write_str("exe"),
            Self::Root => f.write_str("root"),
            Self::Fd(fd) => write!(f, "fd/{fd}"),
            Self::MapFile(addresses) => write!(f, "map_files/{:x}-{:x}", addresses.start, addresses.end),
            Self::Namespace(kind) => write!(f, "ns/{kind}"),
        }
    }
}

impl MagicLink {
    /// Its path, for a call that follows it.
    pub fn path(&self, task: impl Into<TaskId>) -> String {
        format!("/proc/{}/{self}", task.into())
    }

    /// A path that begins where it leads. An absolute one begins there as well.
    pub fn below(&self, task: impl Into<TaskId>, path: &Path) -> PathBuf {
        Path::new(&self.path(task)).join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What the kernel says that it leads to: a path, with ` (deleted)` behind it if the name is gone, or `pipe:[7]`
    /// and the like.
    ///
    /// # Errors
    /// See [`Error`]; the same holds for the others.
    pub fn shown(&self, task: impl Into<TaskId>) -> Result<PathBuf> {
        let task = task.into();
        std::fs::read_link(self.path(task)).map_err(|source| self.error(task, source))
    }

    /// Attributes of what it leads to.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn metadata(&self, task: impl Into<TaskId>) -> Result<Metadata> {
        let task = task.into();
        std::fs::metadata(self.path(task)).map_err(|source| self.error(task, source))
    }

    /// Open what it leads to, close-on-exec.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(&self, task: impl Into<TaskId>, flags: OFlags) -> Result<OwnedFd> {
        let task = task.into();
        let opened = rustix::fs::open(self.path(task), flags | OFlags::CLOEXEC, Mode::empty());
        opened.map_err(|source| self.error(task, source.into()))
    }

    fn error(&self, task: TaskId, source: io::Error) -> Error {
        Error::of(task, &self.to_string(), source)
    }
}

/// A path to what a descriptor of ours refers to, for calls of ours: to open it in another way, or to reach a file that
/// has no name or another one by now.
pub fn own_path(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The same for other processes, as long as we have the descriptor.
pub fn path_for_others(file: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// What a descriptor of ours is said to refer to, as [`MagicLink::shown`].
///
/// # Errors
/// As of readlink(2); `/proc` is not mounted.
pub fn own_name(file: &impl AsRawFd) -> io::Result<PathBuf> {
    std::fs::read_link(own_path(file))
}

/// Each descriptor of a process and what it is said to refer to, until `visit` breaks. Those whose link cannot be read
/// are left out: they were closed meanwhile, or the kernel lets us list them and not look at them, as it does to root
/// with the first process of some machines.
///
/// # Errors
/// See [`Error`].
pub fn visit_descriptors(task: impl Into<TaskId>, mut visit: impl FnMut(i32, &[u8]) -> ControlFlow<()>) -> Result<()> {
    let mut space = Vec::with_capacity(64);
    visit_numbers(task.into(), "fd", |directory, fd, name| {
        let Ok(link) = rustix::fs::readlinkat(directory, name, std::mem::take(&mut space)) else {
            return Ok(ControlFlow::Continue(()));
        };
        let goes_on = visit(fd, link.to_bytes());
        space = link.into_bytes();
        Ok(goes_on)
    })
}

/// Each file of a directory of a task, whose names are numbers, until `visit` breaks or fails. `visit` gets the
/// directory, the number and the name.
pub(crate) fn visit_numbers(
    task: TaskId,
    of: &str,
    mut visit: impl FnMut(&OwnedFd, i32, &CStr) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let fail = |source: Errno| Error::of(task, of, source.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(format!("/proc/{task}/{of}"), flags, Mode::empty()).map_err(fail)?;
    let mut room = [MaybeUninit::uninit(); 4 << 10];
    let mut entries = RawDir::new(&directory, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let number = name.to_str().ok().and_then(|name| name.parse().ok());
        let number = number.ok_or_else(|| Error::no_field(task, of, "number"))?;
        if visit(&directory, number, name)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Whether a descriptor of a process can be read from: the permissions of its link say so.
///
/// # Errors
/// See [`Error`].
pub fn is_open_for_reading(task: impl Into<TaskId>, fd: i32) -> Result<bool> {
    const READ_PERMISSION: u32 = 0o400;
    let (task, link) = (task.into(), MagicLink::Fd(fd));
    let found = std::fs::symlink_metadata(link.path(task)).map_err(|source| link.error(task, source))?;
    Ok(found.permissions().mode() & READ_PERMISSION != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessId;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    fn own() -> ProcessId {
        ProcessId::own()
    }

    #[test]
    fn names_below_the_process() {
        let path = |link: MagicLink| link.path(ProcessId::from_raw(7));
        assert_eq!(path(MagicLink::Cwd), "/proc/7/cwd");
        assert_eq!(path(MagicLink::Fd(3)), "/proc/7/fd/3");
        assert_eq!(path(MagicLink::MapFile(0x1000..0x2f000)), "/proc/7/map_files/1000-2f000");
        assert_eq!(path(MagicLink::Namespace("mnt")), "/proc/7/ns/mnt");
        let below = |path: &str| MagicLink::Root.below(ProcessId::from_raw(7), Path::new(path));
        assert_eq!((below("/a/b"), below("a/b")), ("/proc/7/root/a/b".into(), "/proc/7/root/a/b".into()));
    }

    #[test]
    fn a_descriptor_leads_to_its_file() {
        let file = File::open("/dev/null").unwrap();
        let link = MagicLink::Fd(file.as_raw_fd());
        let found = link.metadata(own()).unwrap();
        assert_eq!((found.dev(), found.ino()), (file.metadata().unwrap().dev(), file.metadata().unwrap().ino()));
        assert_eq!(link.shown(own()).unwrap(), Path::new("/dev/null"));
        assert_eq!(own_name(&file).unwrap(), Path::new("/dev/null"));
        assert_eq!(std::fs::metadata(path_for_others(&file)).unwrap().ino(), found.ino());
        let again = link.open(own(), OFlags::RDWR).unwrap();
        assert!(rustix::io::fcntl_getfd(&again).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(matches!(MagicLink::Fd(100_000).open(own(), OFlags::RDONLY), Err(Error::Missing { .. })));
        let nobody = ProcessId::from_raw(i32::MAX);
        assert!(matches!(MagicLink::Exe.metadata(nobody), Err(Error::Gone(_))));
        assert!(matches!(visit_descriptors(nobody, |_, _| ControlFlow::Continue(())), Err(Error::Gone(_))));
    }

    #[test]
    fn descriptors_are_visited_until_one_is_found() {
        let (reader, writer) = std::io::pipe().unwrap();
        let name = own_name(&reader).unwrap();
        let mut ends = Vec::new();
        visit_descriptors(own(), |fd, link| {
            if link == name.as_os_str().as_encoded_bytes() {
                ends.push((fd, is_open_for_reading(own(), fd).unwrap()));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        ends.sort_unstable();
        let mut expected = [(reader.as_raw_fd(), true), (writer.as_raw_fd(), false)];
        expected.sort_unstable();
        assert_eq!(ends, expected);
        let mut seen = 0;
        let all = visit_descriptors(own(), |_, _| {
            seen += 1;
            ControlFlow::Break(())
        });
        assert!(all.is_ok() && seen == 1);
    }
}
