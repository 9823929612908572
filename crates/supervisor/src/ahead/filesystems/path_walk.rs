//! Which file a path of a process means, and what has to be looked at to find it (path_resolution(7)).
//!
//! The kernel resolves the path again when the call is made. Nothing that is speculative can change it meanwhile:
//! whoever changes a directory that is looked through is held up until the look is over, and a rename waits for
//! everybody.

use crate::ahead::calls::rights;
use crate::ahead::filesystems::disk::names::{dir_of, path_text};
use crate::ahead::filesystems::walks::Asked;
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use procfs::{MagicLink, ProcessId, TaskId, ThreadId};
use rustix::fs::{FileType, Mode, OFlags, Stat, CWD};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// A file, by a descriptor that only names it.
#[derive(Clone, Debug)]
pub(in crate::ahead) struct Found {
    pub fd: Arc<OwnedFd>,
    pub stat: Stat,
}

/// A last name in its directory.
#[derive(Clone, Debug)]
pub(in crate::ahead) struct Entry {
    pub dir: Found,
    pub name: OsString,
    pub found: Option<Found>,
}

/// Where a path leads to.
#[derive(Clone, Debug)]
pub(in crate::ahead) enum End {
    /// To a name, which may be there or not.
    Entry(Entry),
    /// To a file, without a last name: `/`, `..`, or through a descriptor in /proc.
    File(Found),
    /// A directory on the way is missing, or the like.
    Nowhere(Errno),
    /// We cannot tell.
    Unknown,
}

/// A path, resolved.
#[derive(Clone, Debug)]
pub(in crate::ahead) struct Way {
    /// What was looked at in private memory on the way.
    pub through: Vec<Object>,
    /// It leads through /proc, which tells of more than was resolved here.
    pub through_proc: bool,
    /// It leads through what is not as the disk says: a name of which a change is held, or a directory that was moved.
    pub is_held: bool,
    /// It is not known where that leads to for those inside.
    pub is_open: bool,
    /// The directory where it begins, if that was found.
    pub start: (u64, u64),
    /// What was looked up, and in which directories.
    pub by: Vec<((u64, u64), Vec<u8>)>,
    /// A name of the path itself that is not there.
    pub missing: Option<Missing>,
    /// The first name of the path itself of which a change is held: what was looked up before it, and its directory.
    pub held_from: Option<(usize, Missing)>,
    /// The last name of the path itself was a link, which was followed.
    pub ends_with_link: bool,
    pub end: End,
}

/// Where a path ends early, or at its last name, or where a name of it is held.
#[derive(Clone, Debug)]
pub(in crate::ahead) struct Missing {
    pub dir: Stat,
    /// How many names of the path come behind it.
    pub behind: usize,
}

/// What a path of a call means to the thread that makes the call.
#[derive(Debug)]
pub(in crate::ahead) enum LookedUp {
    /// This file, after all links.
    File(Box<Stat>),
    /// Nothing: the kernel will find nothing either.
    Nothing,
    /// We cannot tell.
    Unknown,
}

impl LookedUp {
    /// The file, if it is known.
    pub fn known(&self) -> Option<&Stat> {
        match self {
            Self::File(stat) => Some(stat),
            Self::Nothing | Self::Unknown => None,
        }
    }

    /// Whether it is such a file, or may be.
    pub fn may_be(&self, is_such: impl FnOnce(&Stat) -> bool) -> bool {
        match self {
            Self::File(stat) => is_such(stat),
            Self::Nothing => false,
            Self::Unknown => true,
        }
    }
}

impl Way {
    /// What is at its end.
    fn looked_up(&self) -> LookedUp {
        match &self.end {
            End::Entry(Entry { found: Some(found), .. }) | End::File(found) => LookedUp::File(Box::new(found.stat)),
            End::Entry(_) | End::Nowhere(_) => LookedUp::Nothing,
            End::Unknown => LookedUp::Unknown,
        }
    }

    /// Whether its end is what those inside should see.
    pub fn is_known(&self) -> bool {
        !self.is_open
    }

    /// Whether its end is not what the disk says, and known.
    pub fn is_view(&self) -> bool {
        self.is_held && !self.is_open && !self.through_proc
    }

    /// The same, for whoever keeps it.
    pub fn into_found(self) -> Option<Found> {
        match self.end {
            End::Entry(entry) => entry.found,
            End::File(found) => Some(found),
            End::Nowhere(_) | End::Unknown => None,
        }
    }

    /// What is at its end.
    pub fn found(&self) -> Option<&Found> {
        match &self.end {
            End::Entry(entry) => entry.found.as_ref(),
            End::File(found) => Some(found),
            End::Nowhere(_) | End::Unknown => None,
        }
    }
}

impl Found {
    pub fn is_dir(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }

    pub fn is_symlink(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Symlink
    }

    pub fn is_regular(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }

    pub fn object(&self) -> Object {
        object_of(&self.stat)
    }

    /// Device and inode.
    pub fn inode(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    fn is(&self, other: &Found) -> bool {
        self.inode() == other.inode()
    }

    pub fn of(fd: OwnedFd) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self { fd: Arc::new(fd), stat })
    }

    pub(in crate::ahead) fn at(dir: &impl std::os::fd::AsFd, name: &[u8], flags: OFlags) -> rustix::io::Result<Self> {
        Self::of(rustix::fs::openat(dir, name, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// What a process has as its root, as its working directory, … `None`: it cannot be told.
    pub(in crate::ahead) fn behind(link: &MagicLink, task: impl Into<TaskId>) -> Option<Self> {
        Self::of(link.open(task, OFlags::PATH).ok()?).ok()
    }

    pub(in crate::ahead) fn of_path(path: &str) -> rustix::io::Result<Self> {
        Self::at(&CWD, path.as_bytes(), OFlags::empty())
    }
}

/// What a file or directory is to the core. A directory's attributes change with its entries.
pub(in crate::ahead) fn object_of(stat: &Stat) -> Object {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Object::Names(stat.st_dev, stat.st_ino),
        _ => Object::File(stat.st_dev, stat.st_ino),
    }
}

/// One path on its way.
struct Walk {
    tid: ThreadId,
    pid: ProcessId,
    /// Once it is needed.
    root: Option<Found>,
    here: Found,
    left: VecDeque<Vec<u8>>,
    /// How many of these are names of the path itself.
    own: usize,
    /// The last name must be a directory's, for something like a slash follows it.
    wants_dir: bool,
    links: usize,
}

/// What one name led to. It lives for one turn of a loop: no reason to put it on the heap.
#[allow(clippy::large_enum_variant)]
enum Step {
    On,
    End(End),
}

/// Where a walk begins. What cannot be opened there is unknown, unless it is not there.
fn start_of(link: &MagicLink, tid: ThreadId) -> Result<Found, Box<End>> {
    let fd = link.open(tid, OFlags::PATH).map_err(|error| match error {
        procfs::Error::Missing { .. } | procfs::Error::Gone(_) => Box::new(End::Nowhere(Errno::BADF)),
        _ => Box::new(End::Unknown),
    })?;
    Found::of(fd).map_err(|_| Box::new(End::Unknown))
}

impl Supervisor {
    /// What a path in the arguments of a call means to the thread that makes the call, all links followed.
    pub(in crate::ahead) fn look_up(&self, call: &Call, dir: u8, path: u8) -> LookedUp {
        // The kernel will not find the name in memory either.
        let Some(text) = path_text(call, path) else { return LookedUp::Nothing };
        self.walk(call.tid, call.pid, dir_of(call, dir), &text, true).looked_up()
    }

    /// Resolve `path` as the thread would. `dir`: of the descriptor; the working directory if there is none.
    pub(in crate::ahead) fn walk(
        &self,
        tid: ThreadId,
        pid: ProcessId,
        dir: Option<i32>,
        path: &[u8],
        follows: bool,
    ) -> Way {
        let asked = Asked { tid, dir, path, follows };
        if let Some(way) = self.ahead.walks.known(&asked) {
            return way;
        }
        // What is found is as it was at this time, or later.
        self.ahead.walks.since();
        let way = self.walk_anew(tid, pid, dir, path, follows);
        self.ahead.walks.learn(&asked, &way);
        way
    }

    fn walk_anew(&self, tid: ThreadId, pid: ProcessId, dir: Option<i32>, path: &[u8], follows: bool) -> Way {
        let mut way = Way {
            through: Vec::new(),
            through_proc: false,
            is_held: false,
            is_open: false,
            start: (0, 0),
            by: Vec::new(),
            missing: None,
            held_from: None,
            ends_with_link: false,
            end: End::Unknown,
        };
        let begin = || -> Result<_, Box<End>> {
            Ok(match (path.first(), dir) {
                (Some(b'/'), _) => {
                    let root = start_of(&MagicLink::Root, tid)?;
                    (Some(root.clone()), root)
                }
                (_, Some(fd)) => (None, start_of(&MagicLink::Fd(fd), tid)?),
                (_, None) => (None, start_of(&MagicLink::Cwd, tid)?),
            })
        };
        let (root, here) = match begin() {
            Ok(both) => both,
            Err(end) => {
                way.end = *end;
                return way;
            }
        };
        way.start = here.inode();
        if path.first() != Some(&b'/') && self.ahead.held_names.is_removed_dir(here.inode()) {
            // Nothing can be made there any more.
            (way.is_held, way.is_open) = (true, true);
        }
        let mut walk = Walk { tid, pid, root, here, left: VecDeque::new(), own: 0, wants_dir: false, links: 0 };
        walk.push(path, true);
        walk.own = walk.left.len();
        way.end = loop {
            match self.step(&mut walk, &mut way, follows) {
                Ok(Step::On) => {}
                Ok(Step::End(end)) => break end,
                Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)) => {
                    break End::Nowhere(error);
                }
                Err(_) => break End::Unknown,
            }
        };
        way
    }

    /// All directories from the working directory to the root.
    pub(in crate::ahead) fn walk_up(&self, tid: ThreadId) -> Vec<Object> {
        let mut through = Vec::new();
        let (root, here) = (Found::behind(&MagicLink::Root, tid), Found::behind(&MagicLink::Cwd, tid));
        let (Some(root), Some(mut here)) = (root, here) else { return through };
        const DEPTH_MAX: usize = 4096;
        for _ in 0..DEPTH_MAX {
            if self.is_private(here.stat.st_dev) {
                through.push(here.object());
            }
            match Found::at(&here.fd, b"..", OFlags::empty()) {
                Ok(above) if !here.is(&root) && !above.is(&here) => here = above,
                _ => break,
            }
        }
        through
    }

    fn step(&self, walk: &mut Walk, way: &mut Way, follows: bool) -> rustix::io::Result<Step> {
        let Some(name) = walk.left.pop_front() else {
            let here = Found::at(&walk.here.fd, b".", OFlags::empty());
            return match here {
                Ok(here) => Ok(Step::End(End::File(here))),
                Err(_) if walk.wants_dir && !walk.here.is_dir() => Err(Errno::NOTDIR),
                // No directory: it was a descriptor, or a link in /proc.
                Err(_) => Ok(Step::End(End::File(walk.here.clone()))),
            };
        };
        let is_last = walk.left.is_empty();
        let is_own = walk.left.len() < walk.own;
        walk.own = walk.own.min(walk.left.len());
        let (kind, _) = self.world().device(walk.here.stat.st_dev);
        if kind == DeviceKind::Outside {
            // Whoever serves it may be inside, and wait for us.
            return Ok(Step::End(End::Unknown));
        }
        way.by.push((walk.here.inode(), name.clone()));
        if name == b".." {
            let root = walk.root()?;
            if !walk.here.is(&root) {
                let (above, is_held) = self.above(&walk.here)?;
                way.is_held |= is_held;
                walk.here = above;
            }
            self.note(&walk.here, way);
            return Ok(Step::On);
        }
        if !walk.here.is_dir() {
            return Err(Errno::NOTDIR);
        }
        self.note(&walk.here, way);
        let view = self.ahead.held_names.view(walk.here.inode(), &name);
        if view.is_some() && is_own && !way.is_held {
            way.held_from = Some((way.by.len() - 1, Missing { dir: walk.here.stat, behind: walk.left.len() }));
        }
        way.is_held |= view.is_some();
        way.is_open |= matches!(view, Some(None));
        let is_proc = kind == DeviceKind::Pseudo && is_proc(&walk.here);
        way.through_proc |= is_proc;
        let found = match view.flatten() {
            Some(None) if !is_last => return Err(Errno::NOENT),
            Some(found) => found,
            None => match Found::at(&walk.here.fd, &name, OFlags::NOFOLLOW) {
                Err(Errno::NOENT) => {
                    let missing = || Missing { dir: walk.here.stat, behind: walk.left.len() };
                    way.missing = is_own.then(missing);
                    if !is_last {
                        return Err(Errno::NOENT);
                    }
                    None
                }
                Err(error) => return Err(error),
                Ok(found) => Some(found),
            },
        };
        match found {
            Some(found) if found.is_symlink() && (!is_last || follows || walk.wants_dir) => {
                way.ends_with_link |= is_own && is_last;
                walk.follow(&name, found, is_proc)?;
                Ok(Step::On)
            }
            Some(found) if is_last && walk.wants_dir && !found.is_dir() => Err(Errno::NOTDIR),
            found if is_last => {
                Ok(Step::End(End::Entry(Entry { dir: walk.here.clone(), name: OsString::from_vec(name), found })))
            }
            Some(found) => {
                walk.here = found;
                Ok(Step::On)
            }
            None => Err(Errno::NOENT),
        }
    }

    /// The directory above one, as those inside see it, and whether the disk says another one.
    pub(in crate::ahead) fn above(&self, dir: &Found) -> rustix::io::Result<(Found, bool)> {
        let Some((above, _)) = self.ahead.held_names.parent(dir.inode()) else {
            return Ok((Found::at(&dir.fd, b"..", OFlags::empty())?, false));
        };
        let fd = above.try_clone().map_err(|_| Errno::MFILE)?;
        Ok((Found::of(fd)?, true))
    }

    fn note(&self, dir: &Found, way: &mut Way) {
        if self.is_private(dir.stat.st_dev) && !way.through.contains(&dir.object()) {
            way.through.push(dir.object());
        }
    }
}

impl Walk {
    /// What the thread has as its root.
    fn root(&mut self) -> rustix::io::Result<Found> {
        if self.root.is_none() {
            self.root = Found::behind(&MagicLink::Root, self.tid);
        }
        self.root.clone().ok_or(Errno::IO)
    }

    /// The names of `path` come next.
    fn push(&mut self, path: &[u8], is_whole: bool) {
        let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
        let is_dir = matches!(names.last(), Some(&b"" | &b"."));
        if is_whole || self.left.is_empty() {
            self.wants_dir |= is_dir && !path.is_empty();
        }
        for name in names.into_iter().rev().filter(|name| !matches!(*name, b"" | b".")) {
            self.left.push_front(name.to_vec());
        }
    }

    fn follow(&mut self, name: &[u8], link: Found, is_proc: bool) -> rustix::io::Result<()> {
        const LINKS_MAX: usize = 40;
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        // `/proc/mounts` and `/proc/net` are links by their text, `self/…`.
        if is_proc && !matches!(name, b"mounts" | b"net") {
            if matches!(name, b"self" | b"thread-self") && !rights::has_our_numbers(self.pid.leader()) {
                // There it has another number.
                return Err(Errno::XDEV);
            }
            // The others do not lead where their text says, and `self` is whoever looks.
            let target = match name {
                b"self" => self.pid.to_string().into_bytes(),
                b"thread-self" => format!("{}/task/{}", self.pid, self.tid).into_bytes(),
                _ => name.to_vec(),
            };
            self.here = Found::at(&self.here.fd, &target, OFlags::empty())?;
            return Ok(());
        }
        let target = rustix::fs::readlinkat(&link.fd, "", Vec::new())?.into_bytes();
        if target.first() == Some(&b'/') {
            self.here = self.root()?;
        }
        self.push(&target, false);
        Ok(())
    }
}

fn is_proc(dir: &Found) -> bool {
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    rustix::fs::fstatfs(&dir.fd).is_ok_and(|found| found.f_type as u64 == PROC_SUPER_MAGIC)
}
