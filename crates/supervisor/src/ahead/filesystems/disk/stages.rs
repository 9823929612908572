//! Where directories, links and FIFOs are that have no name yet
//! ([0120](../../../../../../docs/decisions/0120-directories-wait-for-their-names.md)).
//!
//! There are no directories without a name, and a file without a name cannot be renamed. So each world that needs it
//! has one directory below `lost+found`. What is made on a guess stands there under a number: at its commit it is moved
//! to its name, and a rollback removes it. A directory is empty as long as it stands there: what is made in it has no
//! name either. A new file that is executed stands there too, from then on, so that the kernel knows the program by its
//! name once it has one ([0123](../../../../../../docs/decisions/0123-programs-made-on-a-guess.md)). What a crash
//! leaves is removed by the next world that makes a directory on a guess on that file system; a lock says which of them
//! are in use.

use crate::ahead::filesystems::disk::{staging, watchers};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const PREFIX: &str = "speculator-";

/// The directory of one world on one mount. It goes with the last thing in it, so that the file system can be
/// unmounted.
#[derive(Debug)]
struct Stage {
    above: OwnedFd,
    name: String,
    /// Open and locked, which says that it is in use.
    dir: OwnedFd,
    next: AtomicU64,
}

/// The stages of a world, by the numbers of their mounts.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Stages(HashMap<u64, Weak<Stage>>);

/// Something that has no name but the number in its stage; dropping it removes what is still there.
#[derive(Debug)]
pub(crate) struct Staged {
    stage: Arc<Stage>,
    number: String,
    is_dir: bool,
}

/// What is made in a stage.
#[derive(Clone, Copy, Debug)]
pub(in crate::ahead) enum Kind<'a> {
    Directory,
    /// A link with this text.
    Link(&'a OsStr),
    Fifo,
}

impl Stages {
    /// Make something that will be in `dir`. `None` if it cannot be made unseen, or would not be like any other.
    pub fn make(&mut self, dir: &OwnedFd, kind: Kind, rights: staging::Rights) -> Option<(Staged, OwnedFd)> {
        if !staging::passes_nothing_on(dir) {
            return None;
        }
        let stage = self.stage_for(dir)?;
        let number = stage.next.fetch_add(1, Ordering::Relaxed).to_string();
        let staged = Staged { stage, number, is_dir: matches!(kind, Kind::Directory) };
        let file = staged.make(kind, rights)?;
        Some((staged, file))
    }

    /// Give a file that has no name one in the stage of files that will be in `dir`.
    pub fn link(&mut self, dir: &OwnedFd, file: &OwnedFd) -> Option<Staged> {
        let stage = self.stage_for(dir)?;
        let number = stage.next.fetch_add(1, Ordering::Relaxed).to_string();
        rustix::fs::linkat(file, "", &stage.dir, &number, AtFlags::EMPTY_PATH).ok()?;
        Some(Staged { stage, number, is_dir: false })
    }

    fn stage_for(&mut self, dir: &OwnedFd) -> Option<Arc<Stage>> {
        let mount = staging::mount_of(dir)?;
        if let Some(stage) = self.0.get(&mount).and_then(Weak::upgrade) {
            return Some(stage);
        }
        let above = staging::stage_for(dir)?;
        if watchers::is_watched(&rustix::fs::fstat(&above).ok()?) {
            return None;
        }
        let stage = Arc::new(Stage::new(above)?);
        self.0.insert(mount, Arc::downgrade(&stage));
        Some(stage)
    }
}

impl Stage {
    fn new(above: OwnedFd) -> Option<Self> {
        remove_left_over(&above);
        let own = std::process::id();
        let mut names = (0..).map(|number: u32| format!("{PREFIX}{own}-{number}"));
        const TRIES: usize = 100;
        let is_made = |name: &String| rustix::fs::mkdirat(&above, name, Mode::RWXU).is_ok();
        let name = names.by_ref().take(TRIES).find(is_made)?;
        let dir = open_dir(&above, name.as_bytes());
        let locked = dir.filter(|dir| rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive).is_ok());
        let Some(dir) = locked else {
            let _ = rustix::fs::unlinkat(&above, &name, AtFlags::REMOVEDIR);
            return None;
        };
        Some(Self { above, name, dir, next: AtomicU64::new(0) })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR);
    }
}

impl Staged {
    fn make(&self, kind: Kind, rights: staging::Rights) -> Option<OwnedFd> {
        let dir = &self.stage.dir;
        match kind {
            Kind::Directory => rustix::fs::mkdirat(dir, &self.number, rights.mode).ok()?,
            Kind::Link(text) => rustix::fs::symlinkat(text, dir, &self.number).ok()?,
            Kind::Fifo => rustix::fs::mknodat(dir, &self.number, FileType::Fifo, rights.mode, 0).ok()?,
        }
        let file = self.open()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_given = stat.st_gid != rights.group.as_raw();
        if is_given {
            rustix::fs::chownat(&file, "", None, Some(rights.group), AtFlags::EMPTY_PATH).ok()?;
        }
        if !matches!(kind, Kind::Link(_)) && (is_given || Mode::from_raw_mode(stat.st_mode) != rights.mode) {
            rustix::fs::chmod(procfs::own_path(&file), rights.mode).ok()?;
        }
        Some(file)
    }

    /// What stands there, by a descriptor that only names it.
    pub fn open(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.stage.dir, &self.number, flags, Mode::empty()).ok()
    }

    /// Whether a path as the kernel says it leads there, for a file that is known to be this one.
    pub fn is_called(&self, path: &[u8]) -> bool {
        let mut names = path.rsplit(|&byte| byte == b'/');
        names.next() == Some(self.number.as_bytes()) && names.next() == Some(self.stage.name.as_bytes())
    }

    /// It gets its name.
    pub fn place(&self, dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
        rustix::fs::renameat_with(&self.stage.dir, &self.number, dir, name, RenameFlags::NOREPLACE)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Nothing is there any more once it has its name.
        let flags = if self.is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let _ = rustix::fs::unlinkat(&self.stage.dir, &self.number, flags);
    }
}

/// What worlds left that did not come to their end.
fn remove_left_over(above: &OwnedFd) {
    for name in names_in(above).into_iter().filter(|name| name.starts_with(PREFIX.as_bytes())) {
        let Some(dir) = open_dir(above, &name) else { continue };
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        for number in names_in(&dir) {
            let is_link = rustix::fs::unlinkat(&dir, &number[..], AtFlags::empty()).is_ok();
            if !is_link {
                let _ = rustix::fs::unlinkat(&dir, &number[..], AtFlags::REMOVEDIR);
            }
        }
        let _ = rustix::fs::unlinkat(above, &name[..], AtFlags::REMOVEDIR);
    }
}

fn open_dir(above: &OwnedFd, name: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, OsStr::from_bytes(name), flags, Mode::empty()).ok()
}

/// The names in a directory, but for `.` and `..`.
fn names_in(dir: &OwnedFd) -> Vec<Vec<u8>> {
    // It may be a descriptor that only names it.
    let Some(Ok(entries)) = open_dir(dir, b".").map(rustix::fs::Dir::new) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter(|name| !matches!(&name[..], b"." | b"..")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn rights() -> staging::Rights {
        staging::Rights { mode: Mode::RWXU | Mode::RGRP, group: rustix::process::getegid() }
    }

    fn stage_a(stage: &Arc<Stage>, kind: Kind) -> (Staged, OwnedFd) {
        let number = stage.next.fetch_add(1, Ordering::Relaxed).to_string();
        let staged = Staged { stage: stage.clone(), number, is_dir: matches!(kind, Kind::Directory) };
        let file = staged.make(kind, rights()).unwrap();
        (staged, file)
    }

    #[test]
    fn a_file_without_a_name_gets_one_in_a_stage_and_then_its_own() {
        let above = tempfile::tempdir().unwrap();
        let stage = Arc::new(Stage::new(open(above.path())).unwrap());
        let mount = staging::mount_of(&open(above.path())).unwrap();
        let mut stages = Stages(HashMap::from([(mount, Arc::downgrade(&stage))]));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(above.path(), flags, Mode::RWXU) else { return };
        if rustix::fs::linkat(&file, "", &stage.dir, "tried", AtFlags::EMPTY_PATH).is_err() {
            // Ordinary users may not.
            return;
        }
        rustix::fs::unlinkat(&stage.dir, "tried", AtFlags::empty()).unwrap();
        drop(rustix::fs::open(above.path(), flags, Mode::RWXU).map(|file| stages.link(&open(above.path()), &file)));
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        let made = rustix::fs::open(above.path(), flags, Mode::RWXU).unwrap();
        let staged = stages.link(&open(above.path()), &made).unwrap();
        let program = staged.open().unwrap();
        assert_eq!(inode(&program), inode(&made));
        staged.place(&open(above.path()), OsStr::new("name")).unwrap();
        assert_eq!(procfs::own_name(&program).unwrap(), above.path().join("name"));
        drop((staged, stage));
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 1, "only the name");
    }

    #[test]
    fn what_gets_no_name_goes_and_so_does_the_stage() {
        let (above, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let stage = Arc::new(Stage::new(open(above.path())).unwrap());
        let (dir, file) = stage_a(&stage, Kind::Directory);
        let (link, _) = stage_a(&stage, Kind::Link(OsStr::new("to")));
        let (gone, _) = stage_a(&stage, Kind::Directory);
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_mode & 0o7777, 0o740);
        dir.place(&open(other.path()), OsStr::new("d")).unwrap();
        link.place(&open(other.path()), OsStr::new("l")).unwrap();
        assert!(dir.place(&open(other.path()), OsStr::new("d")).is_err());
        drop((dir, link, gone, stage));
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 0);
        assert!(other.path().join("d").is_dir());
        assert_eq!(std::fs::read_link(other.path().join("l")).unwrap().as_os_str(), "to");
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_is_in_use_is_not() {
        let above = tempfile::tempdir().unwrap();
        let left = above.path().join("speculator-1-0");
        std::fs::create_dir_all(left.join("0")).unwrap();
        std::os::unix::fs::symlink("text", left.join("1")).unwrap();
        std::fs::create_dir(above.path().join("#12")).unwrap();
        let one = Arc::new(Stage::new(open(above.path())).unwrap());
        let _kept = stage_a(&one, Kind::Directory);
        assert!(!left.exists());
        let other = Stage::new(open(above.path())).unwrap();
        assert_ne!(one.name, other.name);
        drop(other);
        assert!(above.path().join(&one.name).join("0").is_dir() && above.path().join("#12").is_dir());
    }
}
