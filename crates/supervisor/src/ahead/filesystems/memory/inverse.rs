//! Files in memory that only the world sees: what undoes a change of one (000, 6.3: inverse operations).
//!
//! An inverse is a picture of what the call may change, taken before it is made: bytes and size, attributes, or what a
//! name means. Putting it back compares first, so that it does no harm where the call failed or was never made. The
//! core undoes in the opposite order, so that everything done later with the same name or bytes is undone already.
//!
//! A file whose last name goes gets another one in a directory that nobody inside can reach
//! ([`external_sync::volume::PrivateMemory`]), and keeps its inode, holes, attributes and open descriptors. That name
//! goes when the change cannot fail any more, or was taken back.

use crate::ahead::filesystems::path_walk::Found;
use external_sync::volume::{PrivateMemory, KEPT, WORLD};
use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
    XattrFlags, CWD,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes kept for one call at most; who would change more waits.
pub(in crate::ahead) const KEPT_LEN_MAX: u64 = 64 << 20;
const PAGE: u64 = 4096;

/// One tmpfs of the world's own.
#[derive(Debug)]
pub(crate) struct Memory {
    pub dev: u64,
    /// Where the world sees it.
    dir: PathBuf,
    /// The whole of it. Links and renames stay within this mount, as they must.
    root: OwnedFd,
    kept: OwnedFd,
    next_name: AtomicU64,
    /// Inodes that have a name more than the world knows of.
    hidden: Mutex<HashMap<u64, usize>>,
}

impl Memory {
    pub fn new(private: &PrivateMemory) -> io::Result<Self> {
        let root = private.root().try_clone_to_owned()?;
        let kept = rustix::fs::openat(&root, KEPT, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            dev: private.dev(),
            dir: private.dir().to_owned(),
            root,
            kept,
            next_name: AtomicU64::new(0),
            hidden: Mutex::default(),
        })
    }

    /// Whether a file's number of links is not what the world should see.
    pub fn is_hidden(&self, ino: u64) -> bool {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&ino)
    }

    /// Whether there is such a file.
    pub fn hides_any(&self) -> bool {
        !self.hidden.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// A directory that the world knows, as we reach it. `None` if it has no path any more, or another one.
    pub(in crate::ahead) fn own(&self, dir: &Found) -> Option<OwnedFd> {
        let path = rustix::fs::readlinkat(CWD, procfs::own_path(&dir.fd), Vec::new()).ok()?;
        let path = PathBuf::from(OsStr::from_bytes(path.as_bytes()));
        let path = std::path::Path::new(WORLD).join(path.strip_prefix(&self.dir).ok()?);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = rustix::fs::openat2(&self.root, &path, flags, Mode::empty(), resolve).ok()?;
        let stat = rustix::fs::fstat(&own).ok()?;
        ((stat.st_dev, stat.st_ino) == (dir.stat.st_dev, dir.stat.st_ino)).then_some(own)
    }
}

/// A name in a directory of ours.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub memory: Arc<Memory>,
    pub dir: Arc<OwnedFd>,
    pub name: OsString,
}

impl Place {
    fn stat(&self) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&*self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// What a call is about to change.
#[derive(Debug)]
pub(crate) enum Change {
    /// These bytes of a file, its size, and its attributes.
    Contents { file: OwnedFd, range: Range<u64> },
    /// Mode, owner, times, extended attributes.
    Attributes { file: OwnedFd },
    /// What a name means.
    Name(Place),
    /// The first name's meaning goes to the second, or they are exchanged.
    Names(Place, Place),
}

/// How it was before.
#[derive(Debug)]
pub(crate) enum Before {
    Contents { file: OwnedFd, size: u64, range: Range<u64>, pieces: Vec<Piece>, attributes: Attributes },
    Attributes { file: OwnedFd, attributes: Attributes },
    Name(Name),
    Names { from: Name, to: Name },
}

/// Bytes of a file.
pub(crate) struct Piece {
    at: u64,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {}", self.bytes.len(), self.at)
    }
}

#[derive(Debug)]
pub(crate) struct Attributes {
    mode: u32,
    uid: u32,
    gid: u32,
    times: Timestamps,
    extended: Vec<(CString, Vec<u8>)>,
}

/// What a name meant, and the times of its directory.
#[derive(Debug)]
pub(crate) struct Name {
    place: Place,
    was: Option<Pinned>,
    dir_times: Timestamps,
}

/// A file that stays though its name goes.
#[derive(Debug)]
struct Pinned {
    ino: u64,
    is_dir: bool,
    file: OwnedFd,
    hidden: Option<Hidden>,
}

/// A name that only we know; dropping it removes it.
#[derive(Debug)]
struct Hidden {
    memory: Arc<Memory>,
    ino: u64,
    name: String,
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // After a rollback it is a file of the world's again.
        let _ = rustix::fs::unlinkat(&self.memory.kept, &self.name, AtFlags::empty());
        let mut hidden = self.memory.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = hidden.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                hidden.remove(&self.ino);
            }
        }
    }
}

impl Change {
    /// Look at how it is.
    pub fn remember(self) -> io::Result<Before> {
        Ok(match self {
            Change::Contents { file, range } => remember_contents(file, range)?,
            Change::Attributes { file } => {
                let attributes = Attributes::of(&file)?;
                Before::Attributes { file, attributes }
            }
            Change::Name(place) => Before::Name(Name::of(place, true)?),
            // What moves keeps a name.
            Change::Names(from, to) => Before::Names { from: Name::of(from, false)?, to: Name::of(to, true)? },
        })
    }
}

impl Before {
    /// Bytes that it holds.
    pub fn len(&self) -> usize {
        match self {
            Before::Contents { pieces, .. } => pieces.iter().map(|piece| piece.bytes.len()).sum(),
            Before::Attributes { .. } | Before::Name(_) | Before::Names { .. } => 0,
        }
    }

    /// Make it so again.
    pub fn restore(&self) -> io::Result<()> {
        match self {
            Before::Contents { file, size, range, pieces, attributes } => {
                restore_contents(file, *size, range, pieces)?;
                attributes.restore(file)
            }
            Before::Attributes { file, attributes } => attributes.restore(file),
            Before::Name(name) => {
                name.restore()?;
                name.restore_times()
            }
            Before::Names { from, to } => {
                move_back(from, to)?;
                to.restore()?;
                to.restore_times()?;
                from.restore_times()
            }
        }
    }
}

fn reopen(file: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(procfs::own_path(file), flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?)
}

fn remember_contents(file: OwnedFd, range: Range<u64>) -> io::Result<Before> {
    let attributes = Attributes::of(&file)?;
    let size = rustix::fs::fstat(&file)?.st_size as u64;
    // Whole pages: what was a hole shall be one again.
    let range = range.start / PAGE * PAGE..range.end.saturating_add(PAGE - 1) / PAGE * PAGE;
    let end = range.end.min(size);
    let mut pieces = Vec::new();
    if range.start < end {
        let open = reopen(&file, OFlags::RDONLY)?;
        let mut at = range.start;
        while at < end {
            let start = match rustix::fs::seek(&open, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            if start >= end {
                break;
            }
            let stop = rustix::fs::seek(&open, SeekFrom::Hole(start))?.min(end);
            pieces.push(Piece { at: start, bytes: read_at(&open, start, (stop - start) as usize)? });
            at = stop;
        }
    }
    Ok(Before::Contents { file, size, range, pieces, attributes })
}

fn read_at(file: &OwnedFd, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut got = 0;
    while got < len {
        match rustix::io::pread(file, &mut bytes[got..], at + got as u64)? {
            0 => break,
            n => got += n,
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}

fn restore_contents(file: &OwnedFd, size: u64, range: &Range<u64>, pieces: &[Piece]) -> io::Result<()> {
    let open = reopen(file, OFlags::RDWR)?;
    let now = rustix::fs::fstat(&open)?.st_size as u64;
    if now != size {
        rustix::fs::ftruncate(&open, size)?;
    }
    let mut hole = range.start;
    let end = range.end.min(size.saturating_add(PAGE - 1) / PAGE * PAGE);
    for piece in pieces {
        dig(&open, hole..piece.at)?;
        let mut done = 0;
        while done < piece.bytes.len() {
            done += rustix::io::pwrite(&open, &piece.bytes[done..], piece.at + done as u64)?;
        }
        hole = (piece.at + piece.bytes.len() as u64).div_ceil(PAGE) * PAGE;
    }
    dig(&open, hole..end)
}

fn dig(file: &OwnedFd, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, range.start, range.end - range.start)?)
}

fn times_of(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as i64 },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as i64 },
    }
}

fn set_times(file: &impl AsFd, times: &Timestamps) -> io::Result<()> {
    Ok(rustix::fs::utimensat(file, "", times, AtFlags::EMPTY_PATH)?)
}

fn is_symlink(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFLNK
}

impl Attributes {
    fn of(file: &OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Self {
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            times: times_of(&stat),
            extended: if is_symlink(stat.st_mode) { Vec::new() } else { extended_of(file)? },
        })
    }

    fn restore(&self, file: &OwnedFd) -> io::Result<()> {
        let now = rustix::fs::fstat(file)?;
        if (now.st_uid, now.st_gid) != (self.uid, self.gid) {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            rustix::fs::chownat(file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        }
        if !is_symlink(self.mode) {
            self.restore_extended(file)?;
            // A change of the owner took bits away.
            if rustix::fs::fstat(file)?.st_mode != self.mode {
                rustix::fs::chmod(procfs::own_path(file), Mode::from_raw_mode(self.mode))?;
            }
        }
        set_times(file, &self.times)
    }

    fn restore_extended(&self, file: &OwnedFd) -> io::Result<()> {
        let path = procfs::own_path(file);
        let now = extended_of(file)?;
        for (name, _) in now.iter().filter(|(name, _)| !self.extended.iter().any(|(was, _)| was == name)) {
            rustix::fs::removexattr(&path, name)?;
        }
        for (name, value) in self.extended.iter().filter(|was| !now.contains(was)) {
            rustix::fs::setxattr(&path, name, value, XattrFlags::empty())?;
        }
        Ok(())
    }
}

pub(in crate::ahead) fn extended_of(file: &OwnedFd) -> io::Result<Vec<(CString, Vec<u8>)>> {
    const LEN_MAX: usize = 65536;
    let path = procfs::own_path(file);
    let mut list = vec![0u8; LEN_MAX];
    let len = match rustix::fs::listxattr(&path, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        len => len?,
    };
    let mut extended = Vec::new();
    for name in list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; LEN_MAX];
        // INVARIANT: split at zeros.
        let name = CString::new(name).expect("no zero in it");
        match rustix::fs::getxattr(&path, &name, &mut value[..]) {
            Ok(len) => value.truncate(len),
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(error.into()),
        }
        extended.push((name, value));
    }
    Ok(extended)
}

impl Name {
    fn of(place: Place, may_go: bool) -> io::Result<Self> {
        let dir_times = times_of(&rustix::fs::fstat(&*place.dir)?);
        let was = match place.stat()? {
            Some(_) => Some(Pinned::of(&place, may_go)?),
            None => None,
        };
        Ok(Self { place, was, dir_times })
    }

    /// The name means again what it meant.
    fn restore(&self) -> io::Result<()> {
        let now = self.place.stat()?;
        if now.as_ref().map(|stat| stat.st_ino) == self.was.as_ref().map(|was| was.ino) {
            return Ok(());
        }
        let Place { dir, name, .. } = &self.place;
        if let Some(now) = now {
            let is_dir = now.st_mode & libc::S_IFMT == libc::S_IFDIR;
            let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            rustix::fs::unlinkat(&**dir, name, flags)?;
        }
        match &self.was {
            None => Ok(()),
            Some(was) => was.link_to(&self.place),
        }
    }

    fn restore_times(&self) -> io::Result<()> {
        set_times(&*self.place.dir, &self.dir_times)
    }
}

impl Pinned {
    fn of(place: &Place, may_go: bool) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*place.dir, &place.name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let is_dir = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        let mut hidden = None;
        // As long as it has another name, it can be linked again by its descriptor.
        if may_go && !is_dir && stat.st_nlink == 1 {
            hidden = Some(Hidden::link(place, stat.st_ino)?);
        }
        Ok(Self { ino: stat.st_ino, is_dir, file, hidden })
    }

    fn link_to(&self, place: &Place) -> io::Result<()> {
        let Place { dir, name, .. } = place;
        match &self.hidden {
            Some(hidden) => Ok(rustix::fs::renameat(&hidden.memory.kept, &hidden.name, &**dir, name)?),
            None if self.is_dir => Err(io::Error::other("a directory was removed")),
            None => Ok(rustix::fs::linkat(&self.file, "", &**dir, name, AtFlags::EMPTY_PATH)?),
        }
    }
}

impl Hidden {
    fn link(place: &Place, ino: u64) -> io::Result<Self> {
        let memory = place.memory.clone();
        let name = memory.next_name.fetch_add(1, Ordering::Relaxed).to_string();
        rustix::fs::linkat(&*place.dir, &place.name, &memory.kept, &name, AtFlags::empty())?;
        *memory.hidden.lock().unwrap_or_else(PoisonError::into_inner).entry(ino).or_default() += 1;
        Ok(Self { memory, ino, name })
    }
}

/// Undo a rename, if it was made.
fn move_back(from: &Name, to: &Name) -> io::Result<()> {
    let Some(moved) = &from.was else { return Ok(()) };
    let (at_from, at_to) = (from.place.stat()?, to.place.stat()?);
    if at_to.is_none_or(|stat| stat.st_ino != moved.ino) {
        return Ok(());
    }
    let flags = match at_from {
        None => RenameFlags::NOREPLACE,
        Some(stat) if stat.st_ino != moved.ino => RenameFlags::EXCHANGE,
        // Two names of one file: nothing happened.
        Some(_) => return Ok(()),
    };
    let (a, b) = (&to.place, &from.place);
    Ok(rustix::fs::renameat_with(&*a.dir, &a.name, &*b.dir, &b.name, flags)?)
}
