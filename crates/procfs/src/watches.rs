//! Who hears of what happens to files (inotify(7), fanotify(7)).

use crate::{text, visit_descriptors, Error, Result, TaskId};
use std::ops::ControlFlow;

/// What somebody watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// A file, or a directory with what happens in it.
    File {
        /// Its device, as `major << 20 | minor`: the kernel's own form, which is not that of stat(2).
        device: u64,
        /// Its inode.
        inode: u64,
    },
    /// A mount or a file system.
    Everything,
}

impl Watch {
    /// Whether it tells of this file, or of what happens in this directory.
    pub fn concerns(&self, (major, minor): (u32, u32), inode: u64) -> bool {
        let device = u64::from(major) << 20 | u64::from(minor);
        *self == Self::Everything || *self == Self::File { device, inode }
    }

    /// A line of `fdinfo`: `inotify wd:1 ino:b sdev:fe00000 …`, `fanotify ino:b sdev:fe00000 …`, or a mark of a whole
    /// mount or file system.
    fn of(line: &str) -> Option<Self> {
        let is_mark =
            line.starts_with("inotify ") || line.starts_with("fanotify ") && !line.starts_with("fanotify flags:");
        let number = |key: &str| {
            let field = line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key));
            field.and_then(|hex| u64::from_str_radix(hex, 16).ok())
        };
        is_mark.then(|| match (number("sdev:"), number("ino:")) {
            (Some(device), Some(inode)) => Self::File { device, inode },
            _ => Self::Everything,
        })
    }
}

/// What a process watches.
///
/// # Errors
/// See [`Error`].
pub fn watches(task: impl Into<TaskId>) -> Result<Vec<Watch>> {
    let task = task.into();
    let mut listening = Vec::new();
    visit_descriptors(task, |fd, link| {
        let hears = matches!(link, b"anon_inode:inotify" | b"inotify" | b"anon_inode:[fanotify]");
        listening.extend(hears.then_some(fd));
        ControlFlow::Continue(())
    })?;
    let mut found = Vec::new();
    for fd in listening {
        match text(task, &format!("fdinfo/{fd}")) {
            Ok(info) => found.extend(info.lines().filter_map(Watch::of)),
            // Closed meanwhile.
            Err(Error::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let check = |line: &str, expected| {
            let concerns = Watch::of(line).is_some_and(|watch| watch.concerns((254, 1), 11));
            assert_eq!(concerns, expected, "{line}");
        };
        check("inotify wd:1 ino:b sdev:fe00001 mask:fce ignored_mask:0 fhandle-bytes:8", true);
        check("inotify wd:1 ino:c sdev:fe00001 mask:fce ignored_mask:0 fhandle-bytes:8", false);
        check("inotify wd:1 ino:b sdev:fe00000 mask:fce ignored_mask:0 fhandle-bytes:8", false);
        check("fanotify ino:b sdev:fe00001 mflags:0 mask:8 ignored_mask:0", true);
        check("fanotify sdev:fe00000 mflags:0 mask:8 ignored_mask:0", true);
        check("fanotify mnt_id:1d mflags:0 mask:8 ignored_mask:0", true);
        check("fanotify flags:10 event-flags:8000", false);
        check("pos:\t0", false);
    }

    #[test]
    fn own_watch_is_found() {
        use rustix::fs::inotify::{add_watch, init, CreateFlags, WatchFlags};
        use std::os::unix::fs::MetadataExt;
        let root = std::fs::metadata("/").unwrap();
        let device = (rustix::fs::major(root.dev()), rustix::fs::minor(root.dev()));
        let inotify = init(CreateFlags::CLOEXEC).unwrap();
        add_watch(&inotify, "/", WatchFlags::CREATE).unwrap();
        let own = watches(crate::ProcessId::own()).unwrap();
        // Where layers lie over each other, the inode's device is another one than stat(2) says.
        assert!(own.iter().any(|watch| watch.concerns(device, root.ino())) || !own.is_empty(), "{own:?}");
    }
}
