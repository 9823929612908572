//! Which file system belongs to which domain of a world, by device number.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxFlags};

use super::{classify_all, Class, FileSystem};
use crate::flush::{Root, Way};
use procfs::mountinfo::{self, Mount};

/// The most domains that a world can have; what is beyond them counts as outside.
pub const DOMAINS_MAX: usize = commit_clock::DOMAINS_MAX;

/// Number of a domain in its world, below [`DOMAINS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u8);

/// A file system that can commit.
#[derive(Debug)]
pub struct Domain {
    /// Its number.
    pub id: DomainId,
    /// What is known of it.
    pub file_system: FileSystem,
}

impl Domain {
    /// Whether dropping an fsync is safe here.
    pub fn is_ordered(&self) -> bool {
        self.file_system.class == Class::Ordered
    }

    /// Whether it need not be open while nothing of it is uncommitted. Its device number is a block device's: whatever
    /// file system has the number next has a disk of its own. A number without a device may be that of anything next,
    /// and then stand for something else: such a one is closed only when it is unmounted from inside.
    pub fn can_be_closed(&self) -> bool {
        rustix::fs::major(self.file_system.dev) != 0
    }
}

/// What a file is to the world, by the file system that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a domain.
    Domain(DomainId),
    /// In memory.
    Memory,
    /// An interface to the kernel.
    Pseudo,
    /// Never changes.
    ReadOnly,
    /// Outside.
    Outside,
}

/// Device number → place, for one world.
#[derive(Debug, Default)]
pub struct DomainTable {
    domains: Vec<Domain>,
    places: HashMap<u64, Place>,
    /// What was mounted when it was last looked.
    found: Vec<FileSystem>,
    /// The very list of [`mountinfo::recent`] as of which [`DomainTable::refresh_if_mounted`] has published.
    published: Option<Rc<[Mount]>>,
}

impl DomainTable {
    /// Builds the table of this process's mounts. The domains are, in this order: `volumes` (device numbers), other
    /// ordered file systems, the one of `cwd`, the root's, the others as mounted; at most [`DOMAINS_MAX`].
    pub fn new(volumes: &[u64], cwd: &Path) -> io::Result<DomainTable> {
        let mut table = DomainTable::default();
        table.read(volumes, fs::metadata(cwd).ok().map(|found| found.dev()))?;
        Ok(table)
    }

    /// Reads the mounts again, after one was added or removed. A domain keeps its number, and a block device its
    /// domain, whatever is mounted from it.
    pub fn refresh(&mut self) -> io::Result<()> {
        self.published = None;
        self.places.clear();
        self.read(&[], None)
    }

    /// The same, and then `publish`, unless that was done and nothing has been mounted since. To classify all file
    /// systems takes some ten looks at `/sys` for each.
    pub fn refresh_if_mounted(&mut self, publish: impl FnOnce(&Self) -> io::Result<()>) -> io::Result<()> {
        let mounts = mountinfo::recent()?;
        if !self.published.as_ref().is_some_and(|seen| Rc::ptr_eq(seen, &mounts)) {
            self.refresh()?;
            publish(self)?;
            self.published = Some(mounts);
        }
        Ok(())
    }

    /// Opens something on a domain's file system, for reading: what fsync(2) and syncfs(2) want. While it is open, the
    /// file system cannot be unmounted.
    pub fn open(&self, id: DomainId) -> Option<OwnedFd> {
        open(self.domain(id).file_system.dev, &self.found)
    }

    /// The domains, in the order of their numbers.
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }

    /// A domain by number.
    pub fn domain(&self, id: DomainId) -> &Domain {
        &self.domains[usize::from(id.0)]
    }

    /// The domain that a mount shows, by the number of that.
    pub fn domain_of_mount(&self, id: u64) -> Option<DomainId> {
        let file_system = self.found.iter().find(|found| found.mount_id == id)?;
        match self.place(file_system.dev) {
            Some(Place::Domain(domain)) => Some(domain),
            _ => None,
        }
    }

    /// Whether it is mounted, and its number its own.
    pub fn is_mounted(&self, domain: &Domain) -> bool {
        self.place(domain.file_system.dev) == Some(Place::Domain(domain.id))
    }

    /// Where files with this `st_dev` are; `None` when no mount has this number (pipes, sockets and memfds; files on
    /// btrfs and overlayfs, for which [`DomainTable::learn`] is made).
    pub fn place(&self, dev: u64) -> Option<Place> {
        self.places.get(&dev).copied()
    }

    /// Every device number that is known, to fill a table in shared memory.
    pub fn places(&self) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.places.iter().map(|(&dev, &place)| (dev, place))
    }

    /// Where files with this `st_dev` are, by the mount through which one of them was opened (`mount`: its number), and
    /// remembers that. On btrfs a subvolume, on overlayfs a layer has device numbers that the mount table does not
    /// show. What has no mount is outside. The file itself is not looked at: whoever serves it may wait for us.
    pub fn learn(&mut self, dev: u64, mount: u64) -> Place {
        if let Some(place) = self.place(dev) {
            return place;
        }
        let Some(place) = mounted_dev(mount).and_then(|dev| self.place(dev)) else {
            return Place::Outside;
        };
        self.places.insert(dev, place);
        place
    }

    fn read(&mut self, volumes: &[u64], cwd: Option<u64>) -> io::Result<()> {
        self.found = classify_all(&mountinfo::recent()?);
        let root = fs::metadata("/").ok().map(|found| found.dev());
        for domain in &mut self.domains {
            // It may have been remounted with other options, or another file system stands in its place.
            if let Some(now) = self.found.iter().find(|found| found.dev == domain.file_system.dev) {
                domain.file_system = now.clone();
            }
        }
        let found = std::mem::take(&mut self.found);
        for file_system in in_order(&found, volumes, cwd, root) {
            let place = self.add(file_system, &found);
            self.places.insert(file_system.dev, place);
        }
        self.found = found;
        Ok(())
    }

    fn add(&mut self, file_system: &FileSystem, all: &[FileSystem]) -> Place {
        match file_system.class {
            Class::Memory => Place::Memory,
            Class::Pseudo => Place::Pseudo,
            Class::ReadOnly => Place::ReadOnly,
            Class::Outside => Place::Outside,
            Class::Ordered | Class::Durable => match self.domain_for(file_system, all) {
                Some(id) => Place::Domain(id),
                None => Place::Outside,
            },
        }
    }

    fn domain_for(&mut self, file_system: &FileSystem, all: &[FileSystem]) -> Option<DomainId> {
        if let Some(domain) = self.domains.iter().find(|domain| domain.file_system.dev == file_system.dev) {
            return Some(domain.id);
        }
        if self.domains.len() == DOMAINS_MAX {
            return None;
        }
        // What cannot be opened could not be flushed; nor could what has no file or upper layer that is flushed for it.
        let root = open(file_system.dev, all)?;
        if file_system.way != Way::default() {
            Root::new(root, &file_system.way).ok().filter(Root::has_all)?;
        }
        let id = DomainId(u8::try_from(self.domains.len()).ok()?);
        self.domains.push(Domain { id, file_system: file_system.clone() });
        Some(id)
    }
}

/// One entry for each device number, the most wanted domains first.
fn in_order<'a>(found: &'a [FileSystem], volumes: &[u64], cwd: Option<u64>, root: Option<u64>) -> Vec<&'a FileSystem> {
    let mut unique: Vec<&FileSystem> = Vec::new();
    for file_system in found {
        if !unique.iter().any(|known| known.dev == file_system.dev) {
            unique.push(file_system);
        }
    }
    unique.sort_by_key(|file_system| match file_system {
        _ if volumes.contains(&file_system.dev) => 0,
        _ if file_system.class == Class::Ordered => 1,
        _ if cwd == Some(file_system.dev) => 2,
        _ if root == Some(file_system.dev) => 3,
        _ => 4,
    });
    unique
}

/// Opens something on the file system: one of its mount points that is not hidden under another mount. A mount that is
/// read-only while others are not would hide that the file system has become so.
fn open(dev: u64, all: &[FileSystem]) -> Option<OwnedFd> {
    let mut opened =
        all.iter().filter(|file_system| file_system.dev == dev).filter_map(|file_system| open_mount(file_system).ok());
    let first = opened.next()?;
    let is_read_only =
        |file: &OwnedFd| rustix::fs::fstatvfs(file).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    match is_read_only(&first) {
        true => Some(opened.find(|other| !is_read_only(other)).unwrap_or(first)),
        false => Some(first),
    }
}

fn open_mount(file_system: &FileSystem) -> io::Result<OwnedFd> {
    let path: &PathBuf = &file_system.mount_point;
    // A single file may be mounted, even a device; opening a device could do anything.
    if !fs::metadata(path).is_ok_and(|found| found.is_dir() || found.is_file()) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let handle = rustix::fs::open(path, flags, Mode::empty())?;
    match mount_id(handle.as_fd()) {
        Some(id) if id == file_system.mount_id => Ok(handle),
        _ => Err(io::Error::from_raw_os_error(libc::ESTALE)),
    }
}

fn mount_id(file: BorrowedFd<'_>) -> Option<u64> {
    let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

/// The device number of a mount in the mount table.
fn mounted_dev(id: u64) -> Option<u64> {
    mountinfo::recent().ok()?.iter().find(|mount| mount.id == id).map(|mount| mount.dev)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_system(dev: u64, class: Class, mount_point: &str) -> FileSystem {
        FileSystem {
            dev,
            mount_id: dev,
            mount_point: mount_point.into(),
            fs_type: "ext4".to_owned(),
            source: "/dev/x".into(),
            class,
            reason: String::new(),
            way: Way::default(),
        }
    }

    #[test]
    fn a_mount_is_seen_at_once_whatever_was_read_a_moment_ago() {
        if !rustix::process::geteuid().is_root() {
            // Only root may mount.
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let run = |words: &[&str]| {
            let done = std::process::Command::new(words[0]).args(&words[1..]).arg(dir.path()).status();
            assert!(done.expect(words[0]).success(), "{words:?}");
        };
        let is_there = || mountinfo::recent().expect("mounts").iter().any(|mount| mount.mount_point == dir.path());
        // Of this thread, and of what it runs.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(!is_there());
                crate::sys::unshare_mounts().expect("a mount namespace");
                let private = std::process::Command::new("mount").args(["--make-rprivate", "/"]).status();
                assert!(private.expect("mount").success());
                for _ in 0..3 {
                    run(&["mount", "-t", "tmpfs", "none"]);
                    assert!(is_there());
                    run(&["umount"]);
                    assert!(!is_there());
                }
            });
        });
    }

    #[test]
    fn volumes_then_ordered_then_working_directory_then_root_then_the_rest() {
        let found = [
            file_system(1, Class::Durable, "/"),
            file_system(2, Class::Durable, "/a"),
            file_system(3, Class::Ordered, "/b"),
            file_system(4, Class::Durable, "/cwd"),
            file_system(5, Class::Ordered, "/volume"),
            file_system(2, Class::Durable, "/bind"),
        ];
        let devs: Vec<u64> = in_order(&found, &[5], Some(4), Some(1)).iter().map(|found| found.dev).collect();
        assert_eq!(devs, [5, 3, 4, 1, 2]);
    }

    #[test]
    fn the_table_of_this_machine() {
        let mut table = DomainTable::new(&[], Path::new("/")).unwrap();
        let dev_of = |path: &str| fs::metadata(path).unwrap().dev();
        assert_eq!(table.place(dev_of("/proc")), Some(Place::Pseudo));
        assert!(table.place(dev_of("/")).is_some());
        let before = table.place(dev_of("/"));
        table.refresh().unwrap();
        assert_eq!(table.place(dev_of("/")), before);
        for domain in table.domains() {
            assert!(table.open(domain.id).is_some(), "{domain:?}");
        }
    }

    #[test]
    fn the_table_is_published_again_if_that_failed_or_it_was_read_without() {
        let mut table = DomainTable::new(&[], Path::new("/")).unwrap();
        table.refresh_if_mounted(|_| Err(io::ErrorKind::OutOfMemory.into())).unwrap_err();
        let publishes = |table: &mut DomainTable| {
            let mut is_published = false;
            let publish = |_: &DomainTable| {
                is_published = true;
                Ok(())
            };
            table.refresh_if_mounted(publish).unwrap();
            is_published
        };
        assert!(publishes(&mut table));
        table.refresh().unwrap();
        assert!(publishes(&mut table));
        // What was read is recent for a moment, unless somebody mounts something just then.
        assert!((0..100).any(|_| !publishes(&mut table)));
    }

    #[test]
    fn an_open_file_is_where_its_mount_is_and_a_pipe_is_outside() {
        let mut table = DomainTable::new(&[], Path::new("/")).unwrap();
        let file = fs::File::open("/proc/self/stat").unwrap();
        let learned = |table: &mut DomainTable, file: BorrowedFd| table.learn(1, mount_id(file).unwrap());
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(learned(&mut table, reader.as_fd()), Place::Outside);
        assert_eq!(learned(&mut table, file.as_fd()), Place::Pseudo);
        assert_eq!(table.place(1), Some(Place::Pseudo));
    }
}
