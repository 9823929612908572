//! What makes all of a file system durable, as a commit wants it.
//!
//! syncfs(2) alone is not enough everywhere (docs/decisions/0301). XFS flushes the disk's cache only if its log has
//! something to write, and data that was overwritten in place is not in the log. ext4 without a journal flushes first
//! and writes the rest of its metadata then. An overlay never tells of an error in writing data to its upper layer. And
//! a file system that has made itself read-only after an error commits nothing, and says that this went well.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatVfsMountFlags, CWD};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::journal::Probe;

/// What is flushed alone, behind syncfs(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    /// Nothing: syncfs(2) ends with a flush of the disk's cache.
    #[default]
    Nothing,
    /// The directory that syncfs(2) was called with.
    Directory,
    /// A regular file.
    File,
}

/// How a file system is flushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Behind syncfs(2).
    pub last: Last,
    /// An overlay's upper directory: what is flushed is the file system that it is on.
    pub upper: Option<PathBuf>,
}

/// A file system that can be flushed. It cannot be unmounted as long as this exists.
#[derive(Debug)]
pub struct Root {
    mounted: OwnedFd,
    upper: Option<OwnedFd>,
    last: Last,
    /// Of [`Last::File`].
    file: Option<OwnedFd>,
    probe: Option<Probe>,
    /// It was so when nothing was uncommitted.
    was_read_only: AtomicBool,
}

impl Root {
    /// By something on it that is open for reading.
    ///
    /// # Errors
    /// There is nothing that could be flushed in this way. A file of [`Last::File`] may be looked for later
    /// ([`Root::has_all`]).
    pub fn new(mounted: OwnedFd, way: &Way) -> io::Result<Root> {
        let upper = way.upper.as_deref().map(|upper| open_upper(upper, mounted.as_fd())).transpose()?;
        let flushed = upper.as_ref().unwrap_or(&mounted).as_fd();
        let last = match way.last {
            Last::Nothing if !syncfs_tells_of_errors() => Last::Directory,
            last => last,
        };
        let file = if last == Last::File { file_beside(flushed).ok() } else { None };
        let (probe, was_read_only) = (Probe::of(flushed), AtomicBool::new(is_read_only(flushed)?));
        Ok(Root { probe, was_read_only, upper, last, file, mounted })
    }

    /// Whether it can be flushed now, whatever is on it.
    pub fn has_all(&self) -> bool {
        self.last != Last::File || self.file.is_some()
    }

    fn flushed(&self) -> BorrowedFd<'_> {
        self.upper.as_ref().unwrap_or(&self.mounted).as_fd()
    }

    /// Commits everything.
    ///
    /// # Errors
    /// Not everything that was changed before is durable.
    pub fn commit_all(&self) -> io::Result<()> {
        self.write_all()?;
        self.check()
    }

    /// The same where nothing is known to be uncommitted: that a file system is read-only by now says nothing then.
    ///
    /// # Errors
    /// As of [`Root::commit_all`].
    pub fn write_all(&self) -> io::Result<()> {
        let flushed = self.flushed();
        rustix::fs::syncfs(flushed)?;
        match (self.last, &self.file) {
            (Last::Nothing, _) => {}
            (_, Some(file)) => rustix::fs::fsync(file)?,
            // What has been changed is there by now.
            (Last::File, None) => rustix::fs::fsync(file_beside(flushed)?)?,
            (Last::Directory, None) => rustix::fs::fsync(flushed)?,
        }
        Ok(())
    }

    /// Nothing is uncommitted: whoever has made the file system read-only has lost nothing by that.
    pub fn accept_read_only(&self) {
        let is_read_only = is_read_only(self.flushed()).unwrap_or(false);
        self.was_read_only.store(is_read_only, Ordering::Relaxed);
    }

    /// Commits the journal's running transaction, where all is in it that was changed (ext4, data=journal).
    ///
    /// # Errors
    /// As of [`Root::commit_all`].
    pub fn commit_journal(&self) -> io::Result<()> {
        rustix::fs::fsync(&self.mounted)?;
        self.check()
    }

    /// After a flush that went well: success says that nothing is left to commit, not that all that is gone from there
    /// was committed.
    ///
    /// # Errors
    /// The file system has given up.
    pub fn check(&self) -> io::Result<()> {
        if self.was_read_only.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.probe.map_or(Ok(()), |probe| probe.check(self.flushed()))?;
        match is_read_only(self.flushed())? {
            true => Err(Errno::ROFS.into()),
            false => Ok(()),
        }
    }
}

fn is_read_only(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Before Linux 5.17 syncfs(2) passes over what a file system says of its commit.
fn syncfs_tells_of_errors() -> bool {
    let release = rustix::system::uname();
    crate::doctor::parse_release(&release.release().to_string_lossy()).is_some_and(|version| version >= (5, 17))
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory, through a mount that nobody else has: it keeps nobody from unmounting the one that its path leads
/// through. (The overlay has such a mount as well; so the file system itself is there as long as it is.) Only root may
/// make one.
fn open_apart(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = rustix::mount::open_tree(CWD, path, flags)?;
    rustix::fs::openat(mount, c".", DIRECTORY, Mode::empty())
}

/// The directory that an overlay writes to. What its path leads to by now may be another one: an overlay says the sizes
/// of the file system below as its own.
fn open_upper(upper: &Path, overlay: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let upper = open_apart(upper).or_else(|_| rustix::fs::open(upper, DIRECTORY, Mode::empty()))?;
    let size = |file: BorrowedFd<'_>| rustix::fs::fstatvfs(file).map(|found| (found.f_blocks, found.f_bsize));
    match size(upper.as_fd())? == size(overlay)? {
        true => Ok(upper),
        false => Err(Errno::STALE.into()),
    }
}

/// A regular file on the same file system: one that can be read, or, where there is none, a new one without a name
/// (that keeps everybody from making the file system read-only).
fn file_beside(flushed: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let found = rustix::fs::fstat(flushed)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
        return flushed.try_clone_to_owned();
    }
    if let Some(file) = file_below(flushed, found.st_dev)? {
        return Ok(file);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(flushed, c".", flags, Mode::RUSR | Mode::WUSR)?)
}

/// So many names are looked at, and so many directories wait for their turn.
const NAMES_MAX: usize = 4096;
const DIRECTORIES_MAX: usize = 64;

fn file_below(root: BorrowedFd<'_>, dev: u64) -> io::Result<Option<OwnedFd>> {
    const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);
    let mut left = NAMES_MAX;
    let mut directories = VecDeque::from([root.try_clone_to_owned()?]);
    while let Some(directory) = directories.pop_front() {
        let Ok(entries) = Dir::read_from(&directory) else { continue };
        for entry in entries.flatten().filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")) {
            if left == 0 {
                return Ok(None);
            }
            left -= 1;
            let name = entry.file_name();
            // Before it is opened: to open a device could do anything.
            let Ok(found) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = FileType::from_raw_mode(found.st_mode);
            if found.st_dev != dev || !matches!(kind, FileType::RegularFile | FileType::Directory) {
                continue;
            }
            let Ok(opened) = rustix::fs::openat(&directory, name, FLAGS, Mode::empty()) else { continue };
            match kind {
                FileType::RegularFile => return Ok(Some(opened)),
                _ if directories.len() < DIRECTORIES_MAX => directories.push_back(opened),
                _ => {}
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn every_way_flushes_the_file_system_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        for last in [Last::Nothing, Last::Directory, Last::File] {
            let root = Root::new(open(dir.path()), &Way { last, upper: None }).unwrap();
            root.commit_all().unwrap();
            root.write_all().unwrap();
            assert_eq!(root.file.is_some(), last == Last::File);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn where_no_file_can_be_made_one_that_is_there_is_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let dev = rustix::fs::fstat(open(dir.path())).unwrap().st_dev;
        assert!(file_below(open(dir.path()).as_fd(), dev).unwrap().is_none());
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("a/link")).unwrap();
        std::fs::write(dir.path().join("a/b/file"), b"").unwrap();
        let found = file_below(open(dir.path()).as_fd(), dev).unwrap().unwrap();
        assert!(procfs::own_name(&found).unwrap().ends_with("a/b/file"));
        // A mount may be of one file.
        assert!(file_beside(open(&dir.path().join("a/b/file")).as_fd()).is_ok());
    }

    #[test]
    fn what_is_not_there_as_an_upper_layer_cannot_be_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let way = |upper: &str| Way { last: Last::Nothing, upper: Some(upper.into()) };
        assert!(Root::new(open(dir.path()), &way("/no/such/directory")).is_err());
        assert!(Root::new(open(dir.path()), &way("/proc")).is_err(), "another file system");
        assert!(Root::new(open(dir.path()), &way(dir.path().to_str().unwrap())).is_ok());
    }

    #[test]
    fn a_file_system_that_has_become_read_only_commits_nothing() {
        if !rustix::process::geteuid().is_root() {
            // Only root may mount.
            return;
        }
        // Of this thread, and of what it runs.
        let tried = std::thread::spawn(|| {
            let dir = tempfile::tempdir().unwrap();
            let run = |words: &[&str]| {
                let done = std::process::Command::new(words[0]).args(&words[1..]).arg(dir.path()).status();
                assert!(done.unwrap().success(), "{words:?}");
            };
            // What another test has forked has our descriptors until it executes something.
            let unmount = || {
                let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
                while rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::empty()).is_err() {
                    assert!(std::time::Instant::now() < end, "{:?} is still busy", dir.path());
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            };
            crate::sys::unshare_mounts().unwrap();
            let private = std::process::Command::new("mount").args(["--make-rprivate", "/"]).status();
            assert!(private.unwrap().success());
            run(&["mount", "-t", "tmpfs", "none"]);
            let root = Root::new(open(dir.path()), &Way::default()).unwrap();
            root.commit_all().unwrap();
            run(&["mount", "-o", "remount,ro"]);
            assert_eq!(root.commit_all().unwrap_err().raw_os_error(), Some(libc::EROFS));
            root.write_all().unwrap();
            root.accept_read_only();
            root.commit_all().unwrap();
            drop(root);
            let upper = Way { last: Last::Nothing, upper: Some(dir.path().into()) };
            let upper = open_upper(upper.upper.as_deref().unwrap(), open(dir.path()).as_fd()).unwrap();
            rustix::fs::syncfs(&upper).unwrap();
            unmount();
            rustix::fs::syncfs(&upper).unwrap();
            drop(upper);
            run(&["mount", "-t", "tmpfs", "-o", "ro", "none"]);
            // What was so before says nothing.
            let root = Root::new(open(dir.path()), &Way::default()).unwrap();
            root.commit_all().unwrap();
            drop(root);
            unmount();
        });
        tried.join().unwrap();
    }
}
