//! Requests of the kernel, each as questions to the server.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bluefs::op::{Content, Effect, Inode, RenameMode, SetAttr, XattrMode, BLOCK_BYTES};
use bluefs::query::{Answer, Query, NAMES_MAX};
use bluefs::tree::Space;
use bluefs::{Change, Cred, Errno, Ino, Kind, Name, Time};
use bluefs_client::{Client, Told};
use fuser::{
    BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::caller::Caller;
use crate::convert;
use crate::handles::{Handles, Listing};
use crate::kernel::{Kernel, Telling};
use crate::locks::Wanted;

/// What a change has made holds for no time: the kernel takes it without a version (see [`Kernel`]).
const TTL: Duration = Duration::ZERO;
/// Contents go around the page cache, and writes to one file do not wait for each other: the server orders them.
const FILE_FLAGS: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
/// How long it may be said how much space there is.
const SPACE_TTL: Duration = Duration::from_secs(5);
/// Bytes of one write: one step of an interval.
const WRITE_BYTES_MAX: u32 = bluefs::op::STEP_BYTES_MAX as u32;
/// `fallocate`, `open` and `setxattr` of Linux.
const PUNCH_HOLE_KEEP_SIZE: i32 = 3;
const O_APPEND: i32 = 0o2000;
const O_EXCL: i32 = 0o200;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
/// ERANGE.
const RANGE: Errno = Errno(34);
/// A volume without a quota says that it has a petabyte.
const BYTES_SHOWN_MAX: u64 = 1 << 50;

/// A volume.
pub struct Volume {
    pub(crate) client: Client,
    pub(crate) handles: Arc<Handles>,
    kernel: Arc<Kernel>,
    space: Mutex<KnownSpace>,
}

impl Volume {
    pub fn new(client: Client, kernel: Arc<Kernel>) -> Volume {
        client.set_front(kernel.clone());
        Volume { client, handles: Arc::default(), kernel, space: Mutex::default() }
    }

    fn ask(&self, caller: &Caller, query: Query) -> Result<Answer, Errno> {
        self.client.look(&caller.cred, query, &|| self.is_given_up(caller))
    }

    /// Whether nobody needs the answer: the caller is about to end, or would take a mount away whose server is gone.
    pub(crate) fn is_given_up(&self, caller: &Caller) -> bool {
        caller.is_killed() || (!self.client.is_connected() && caller.unmounts())
    }

    fn change(&self, caller: &Caller, change: Change) -> Result<Told, Errno> {
        let told = self.client.change_told(&caller.cred, change, &|| self.is_given_up(caller));
        // What was given up may be done nevertheless.
        self.space().changed();
        let told = told?;
        self.kernel.changed(told.changed());
        Ok(told)
    }

    fn space(&self) -> MutexGuard<'_, KnownSpace> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much space there is. What others take meanwhile shows a little later.
    fn ask_space(&self, caller: &Caller) -> Result<Space, Errno> {
        let (changes, known) = self.space().now();
        if let Some(known) = known {
            return Ok(known);
        }
        let Answer::Space(told) = self.ask(caller, Query::Space)? else { return Err(Errno::IO) };
        self.space().told(told, changes);
        Ok(told)
    }

    /// An inode that was changed: what was told of it, or what it is now.
    fn changed(&self, caller: &Caller, ino: Ino, mut told: Told) -> Result<(Ino, Inode), Errno> {
        match told.inode(ino) {
            Some(inode) => Ok((ino, inode)),
            None => self.inode(caller, Query::Inode(ino)),
        }
    }

    fn inode(&self, caller: &Caller, query: Query) -> Result<(Ino, Inode), Errno> {
        inode_of(self.ask(caller, query))
    }

    /// What a name means or an inode is, and for how long the kernel may say the same: `tell` gets it while nothing is
    /// told to be forgotten.
    fn tell_inode(&self, request: &Request, query: Query, tell: impl FnOnce(Telling, Found)) {
        // The kernel has checked rights: those of groups are looked at only if it is not enough to have none.
        let nobody = Cred { uid: request.uid(), gid: request.gid(), groups: Vec::new() };
        let telling = self.kernel.telling();
        if let Some((known @ (Ok(_) | Err(Errno::NOENT)), sure)) = self.client.known_for(&nobody, &query) {
            return tell(telling, Found { found: inode_of(known), sure });
        }
        drop(telling);
        let caller = Caller::of(request);
        let found = self.inode(&caller, query.clone());
        let telling = self.kernel.telling();
        match self.client.known_for(&caller.cred, &query) {
            Some((known, sure)) => tell(telling, Found { found: inode_of(known), sure }),
            None => tell(telling, Found { found, sure: Duration::ZERO }),
        }
    }

    fn bytes(&self, caller: &Caller, query: Query) -> Result<Vec<u8>, Errno> {
        match self.ask(caller, query)? {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::IO),
        }
    }

    fn create_inode(&self, caller: &Caller, create: Create) -> Result<(Ino, Inode), Errno> {
        let Create { dir, name, kind, mode, rdev, target } = create;
        let (dir, name, mode) = (convert::ino(dir), convert::name(name)?, (mode & 0o7777) as u16);
        let target = target.as_os_str().as_bytes().to_vec();
        let told = self.change(caller, Change::Create { dir, name, ino: None, kind, mode, rdev, target })?;
        match told.effect {
            Effect::Created(ino) => self.changed(caller, ino, told),
            _ => Err(Errno::IO),
        }
    }

    fn list(&self, caller: &Caller, dir: Ino) -> Result<Listing, Errno> {
        let (_, inode) = self.inode(caller, Query::Inode(dir))?;
        let mut all = vec![(b".".to_vec(), dir, Kind::Dir), (b"..".to_vec(), inode.parent, Kind::Dir)];
        let mut after: Option<Name> = None;
        loop {
            // Who may list a directory and not pass through it gets the names alone.
            let (dir, max) = (dir, NAMES_MAX as u32);
            let plus = Query::ListPlus { dir, after: after.clone(), max };
            let (names, end): (Vec<_>, bool) = match self.ask(caller, plus) {
                Ok(Answer::Entries { entries, end }) => {
                    (entries.into_iter().map(|(name, ino, inode)| (name, ino, inode.kind)).collect(), end)
                }
                Err(Errno::ACCES) => match self.ask(caller, Query::List { dir, after: after.take(), max })? {
                    Answer::Names { names, end } => (names, end),
                    _ => return Err(Errno::IO),
                },
                Ok(_) => return Err(Errno::IO),
                Err(errno) => return Err(errno),
            };
            after = names.last().map(|(name, ..)| name.clone());
            all.extend(names.into_iter().map(|(name, ino, kind)| (name.as_bytes().to_vec(), ino, kind)));
            if end || after.is_none() {
                return Ok(all);
            }
        }
    }

    fn xattr_of(&self, caller: &Caller, ino: INodeNo, name: &OsStr) -> Result<Vec<u8>, Errno> {
        self.bytes(caller, Query::Xattr { ino: convert::ino(ino), name: xattr_name(name)? })
    }

    fn xattrs_of(&self, caller: &Caller, ino: INodeNo) -> Result<Vec<u8>, Errno> {
        let Answer::Xattrs(names) = self.ask(caller, Query::Xattrs(convert::ino(ino)))? else { return Err(Errno::IO) };
        let shown = names.iter().filter(|name| caller.cred.uid == 0 || !name.as_bytes().starts_with(b"trusted."));
        Ok(shown.flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect())
    }
}

/// What the server has said of its space.
#[derive(Debug, Default)]
struct KnownSpace {
    told: Option<(Instant, Space)>,
    /// How often this mount has changed something.
    changes: u64,
}

impl KnownSpace {
    /// This mount has changed something: an answer that is on its way may not know of it.
    fn changed(&mut self) {
        (self.told, self.changes) = (None, self.changes + 1);
    }

    /// What is known, and what to say with an answer that is asked for instead.
    fn now(&self) -> (u64, Option<Space>) {
        let fresh = self.told.filter(|(told, _)| told.elapsed() < SPACE_TTL);
        (self.changes, fresh.map(|(_, space)| space))
    }

    /// The server has answered to who has asked after so many changes.
    fn told(&mut self, space: Space, changes: u64) {
        if changes == self.changes {
            self.told = Some((Instant::now(), space));
        }
    }
}

/// An inode, and for how long that is sure.
struct Found {
    found: Result<(Ino, Inode), Errno>,
    sure: Duration,
}

fn inode_of(answer: Result<Answer, Errno>) -> Result<(Ino, Inode), Errno> {
    match answer? {
        Answer::Inode(ino, inode) => Ok((ino, inode)),
        _ => Err(Errno::IO),
    }
}

/// A name that is not there, for so long: an entry without a number.
fn reply_absent(reply: ReplyEntry, sure: Duration) {
    let (nobody, never, size) = (0, Time(0), 0);
    let nothing = Inode {
        kind: Kind::File,
        mode: 0,
        uid: nobody,
        gid: nobody,
        nlink: 0,
        size,
        blocks: size,
        rdev: 0,
        atime: never,
        mtime: never,
        ctime: never,
        parent: Ino(0),
        target: Vec::new(),
    };
    reply.entry(&sure, &convert::attr(Ino(0), &nothing), Generation(0));
}

struct Create<'a> {
    dir: INodeNo,
    name: &'a OsStr,
    kind: Kind,
    mode: u32,
    rdev: u32,
    target: &'a Path,
}

/// Access control lists would have to be enforced, and capabilities to be taken away by writes: neither is there.
fn xattr_name(name: &OsStr) -> Result<Name, Errno> {
    let bytes = name.as_bytes();
    if bytes.starts_with(b"system.") || bytes.starts_with(b"security.") {
        return Err(Errno::OPNOTSUPP);
    }
    Name::new(bytes).ok_or(Errno::INVAL)
}

fn reply_xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(convert::errno(RANGE)),
        Ok(bytes) => reply.data(&bytes),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn reply_entry(reply: ReplyEntry, result: Result<(Ino, Inode), Errno>) {
    match result {
        Ok((ino, inode)) => reply.entry(&TTL, &convert::attr(ino, &inode), Generation(0)),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn reply_attr(reply: ReplyAttr, result: Result<(Ino, Inode), Errno>) {
    match result {
        Ok((ino, inode)) => reply.attr(&TTL, &convert::attr(ino, &inode)),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn reply_empty<T>(reply: ReplyEmpty, result: Result<T, Errno>) {
    match result {
        Ok(_) => reply.ok(),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

impl Filesystem for Volume {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The server takes set-user-id bits away; without this the kernel would ask for capabilities at each write.
        let locks = InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS;
        // Look-ups in one directory do not wait for each other's answers.
        for wanted in [locks, InitFlags::FUSE_HANDLE_KILLPRIV_V2, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(wanted & config.capabilities());
        }
        let version = config.kernel_abi();
        self.kernel.speaks((version.0, version.1));
        config.set_max_write(WRITE_BYTES_MAX).map_err(|_| io::Error::other("the kernel's writes are too large"))?;
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let query = match convert::name(name) {
            Ok(name) => Query::Lookup { dir: convert::ino(parent), name },
            Err(errno) => return reply.error(convert::errno(errno)),
        };
        self.tell_inode(request, query, |telling, Found { found, sure }| match found {
            Ok((ino, inode)) => {
                reply.entry(&telling.name(ino, sure), &convert::attr(ino, &inode), Generation(0));
            }
            Err(Errno::NOENT) if !telling.absent(sure).is_zero() => reply_absent(reply, sure),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, _lookups: u64) {
        self.kernel.forgets(convert::ino(ino));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let query = Query::Inode(convert::ino(ino));
        self.tell_inode(request, query, |telling, Found { found, sure }| match found {
            Ok((ino, inode)) => reply.attr(&telling.attributes(ino, sure), &convert::attr(ino, &inode)),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (caller, ino) = (Caller::of(request), convert::ino(ino));
        let (atime, mtime) = (atime.map(convert::set_time), mtime.map(convert::set_time));
        let set = SetAttr { mode: mode.map(|mode| (mode & 0o7777) as u16), uid, gid, size, atime, mtime };
        let changed = self.change(&caller, Change::SetAttr { ino, set });
        reply_attr(reply, changed.and_then(|told| self.changed(&caller, ino, told)));
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.inode(&Caller::of(request), Query::Inode(convert::ino(ino))) {
            Ok((_, inode)) if inode.kind == Kind::Symlink => reply.data(&inode.target),
            Ok(_) => reply.error(convert::errno(Errno::INVAL)),
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = convert::kind(mode).and_then(|kind| {
            let rdev = if matches!(kind, Kind::Char | Kind::Block) { rdev } else { 0 };
            let target = Path::new("");
            self.create_inode(&Caller::of(request), Create { dir, name, kind, mode, rdev, target })
        });
        reply_entry(reply, made);
    }

    fn mkdir(&self, request: &Request, dir: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let create = Create { dir, name, kind: Kind::Dir, mode, rdev: 0, target: Path::new("") };
        reply_entry(reply, self.create_inode(&Caller::of(request), create));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = convert::ino(parent);
        let done = convert::name(name).and_then(|name| self.change(&Caller::of(request), Change::Unlink { dir, name }));
        reply_empty(reply, done);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = convert::ino(parent);
        let done = convert::name(name).and_then(|name| self.change(&Caller::of(request), Change::Rmdir { dir, name }));
        reply_empty(reply, done);
    }

    fn symlink(&self, request: &Request, dir: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let create = Create { dir, name, kind: Kind::Symlink, mode: 0o777, rdev: 0, target };
        reply_entry(reply, self.create_inode(&Caller::of(request), create));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            flags if flags.is_empty() => Ok(RenameMode::Replace),
            RenameFlags::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
            RenameFlags::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
            _ => Err(Errno::INVAL),
        };
        let done = mode.and_then(|mode| {
            let (from_dir, to_dir) = (convert::ino(parent), convert::ino(newparent));
            let (from, to) = (convert::name(name)?, convert::name(newname)?);
            self.change(&Caller::of(request), Change::Rename { from_dir, from, to_dir, to, mode })
        });
        reply_empty(reply, done);
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (caller, ino, dir) = (Caller::of(request), convert::ino(ino), convert::ino(newparent));
        let linked = convert::name(newname).and_then(|name| {
            let told = self.change(&caller, Change::Link { ino, dir, name })?;
            self.changed(&caller, ino, told)
        });
        reply_entry(reply, linked);
    }

    fn open(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let (caller, ino) = (Caller::of(request), convert::ino(ino));
        let opening = self.client.opening();
        match self.inode(&caller, Query::Inode(ino)) {
            // It lost its last name since it was looked up, and nobody here keeps it.
            Ok((_, inode)) if inode.nlink == 0 && !self.client.is_open(ino) => {
                reply.error(convert::errno(Errno::STALE));
            }
            Ok(_) => {
                opening.opened(ino);
                reply.opened(FileHandle(self.handles.open()), FILE_FLAGS);
            }
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let caller = Caller::of(request);
        if self.client.has_lost_lock(convert::ino(ino)) {
            return reply.error(convert::errno(Errno::IO));
        }
        let mut all: Vec<u8> = Vec::new();
        while (all.len() as u32) < size {
            let (offset, len) = (offset + all.len() as u64, (size - all.len() as u32).min(WRITE_BYTES_MAX));
            let gives_up = || self.is_given_up(&caller);
            match self.client.read(&caller.cred, convert::ino(ino), offset, len, &gives_up) {
                Ok(bytes) => {
                    let end = (bytes.len() as u32) < len;
                    all.extend(bytes);
                    if end {
                        break;
                    }
                }
                Err(errno) => return reply.error(convert::errno(errno)),
            }
        }
        reply.data(&all);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (ino, content) = (convert::ino(ino), Content::Inline(data.to_vec()));
        if self.client.has_lost_lock(ino) {
            return reply.error(convert::errno(Errno::IO));
        }
        let change = match flags.0 & O_APPEND {
            0 => Change::Write { ino, offset, content },
            _ => Change::Append { ino, content },
        };
        match self.change(&Caller::of(request), change) {
            Ok(_) => reply.written(data.len() as u32),
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        // fcntl(2): whoever closes a file gives up all locks on it.
        let ino = convert::ino(ino);
        self.handles.may_close(ino, handle.0);
        let unlocked = if self.handles.unlock(ino, owner.0) { self.unlock(ino, owner.0) } else { Ok(()) };
        reply_empty(reply, unlocked);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        flock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let ino = convert::ino(ino);
        self.client.close(ino);
        // A file without a name is freed.
        self.space().changed();
        let mut left = if self.client.is_open(ino) { Vec::new() } else { self.handles.unlock_all(ino) };
        // flock(2): a lock goes with its open file.
        left.extend(flock_owner.map(|owner| owner.0).filter(|owner| self.handles.unlock(ino, *owner)));
        reply_empty(reply, left.into_iter().try_for_each(|owner| self.unlock(ino, owner)));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        // Each write was on the server's disk when it returned.
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.handles.open()), FopenFlags::empty());
    }

    fn readdir(&self, request: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if offset == 0 {
            match self.list(&Caller::of(request), convert::ino(ino)) {
                Ok(listing) => self.handles.set_listing(fh.0, listing),
                Err(errno) => return reply.error(convert::errno(errno)),
            }
        }
        self.handles.read_listing(fh.0, offset, |next, name, ino, kind| {
            reply.add(INodeNo(ino.0), next, convert::file_type(kind), OsStr::from_bytes(name))
        });
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.handles.close_dir(fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.ask_space(&Caller::of(request)) {
            Ok(space) => {
                let blocks = space.max_bytes.min(BYTES_SHOWN_MAX) / BLOCK_BYTES;
                let free = blocks.saturating_sub(space.used_bytes / BLOCK_BYTES);
                let files = space.max_inodes.min(BYTES_SHOWN_MAX);
                let unused = files.saturating_sub(space.used_inodes);
                let name_len = bluefs::key::NAME_BYTES_MAX as u32;
                reply.statfs(blocks, free, free, files, unused, BLOCK_BYTES as u32, name_len, BLOCK_BYTES as u32);
            }
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => Ok(XattrMode::Either),
            XATTR_CREATE => Ok(XattrMode::Create),
            XATTR_REPLACE => Ok(XattrMode::Replace),
            _ => Err(Errno::INVAL),
        };
        let done = mode.and_then(|mode| {
            let (ino, name, value) = (convert::ino(ino), xattr_name(name)?, value.to_vec());
            self.change(&Caller::of(request), Change::SetXattr { ino, name, value, mode })
        });
        reply_empty(reply, done);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.xattr_of(&Caller::of(request), ino, name));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.xattrs_of(&Caller::of(request), ino));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let ino = convert::ino(ino);
        let done =
            xattr_name(name).and_then(|name| self.change(&Caller::of(request), Change::RemoveXattr { ino, name }));
        reply_empty(reply, done);
    }

    fn create(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let opening = self.client.opening();
        let create = Create { dir, name, kind: Kind::File, mode, rdev: 0, target: Path::new("") };
        match self.create_inode(&Caller::of(request), create) {
            Ok((ino, inode)) => {
                opening.opened(ino);
                let attr = convert::attr(ino, &inode);
                let handle = FileHandle(self.handles.open());
                reply.created(&TTL, &attr, Generation(0), handle, FILE_FLAGS);
            }
            // Another has made it since the kernel looked. It looks again at ESTALE, and opens it as it opens others.
            Err(Errno::EXIST) if flags & O_EXCL == 0 => reply.error(convert::errno(Errno::STALE)),
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    fn getlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        let (caller, ino, owner, handle) = (Caller::of(request), convert::ino(ino), owner.0, handle.0);
        let wanted = Wanted { ino, owner, handle, start, end, typ };
        self.test_lock(&caller, &wanted, reply);
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (caller, ino, owner, handle) = (Caller::of(request), convert::ino(ino), owner.0, handle.0);
        let wanted = Wanted { ino, owner, handle, start, end, typ };
        self.set_lock(caller, wanted, sleep, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let ino = convert::ino(ino);
        let done = match mode {
            PUNCH_HOLE_KEEP_SIZE => self.change(&Caller::of(request), Change::Punch { ino, offset, len }),
            _ => Err(Errno::OPNOTSUPP),
        };
        reply_empty(reply, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_before_a_change_is_not_kept() {
        let mut known = KnownSpace::default();
        let (changes, _) = known.now();
        known.changed();
        known.told(Space::fresh(), changes);
        assert_eq!(known.now(), (1, None));
        known.told(Space::fresh(), 1);
        assert_eq!(known.now(), (1, Some(Space::fresh())));
        known.changed();
        assert_eq!(known.now(), (2, None));
    }
}
