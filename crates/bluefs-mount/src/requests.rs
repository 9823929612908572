//! Requests of the kernel, each carried out in the thread that has read it. If many threads wait for the server,
//! further requests have threads of their own. So a request that could be answered at once, or that ends with its
//! caller, never waits behind the others.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bluefs::op::{Inode, RenameMode, SetAttr, XattrMode, BLOCK_BYTES};
use bluefs::query::Query;
use bluefs::{Change, Errno, Ino, Kind, Time};
use fuser::{
    BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::caller::{Caller, Who};
use crate::convert;
use crate::filesystem::{xattr_name, xattr_name_to_set, Create, Found, Volume, WRITE_BYTES_MAX};
use crate::kernel::Telling;
use crate::locks::Wanted;
use crate::threads::Threads;

/// What a change has made holds for no time: the kernel takes it without a version (see [`crate::kernel`]).
const TTL: Duration = Duration::ZERO;
/// Reads and writes go around the page cache, which only mappings use: the kernel does not surely know how long a file
/// is (docs/decisions/0200). Writes to one file do not wait for each other: the server orders them. What the kernel has
/// of a file it drops with each open.
const FILE_FLAGS: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
/// `fallocate`, `open` and `setxattr` of Linux.
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;
const O_ACCMODE: i32 = 3;
const O_RDWR: i32 = 2;
const O_APPEND: i32 = 0o2000;
const O_EXCL: i32 = 0o200;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
/// ERANGE.
const RANGE: Errno = Errno(34);
/// A volume without a quota says that it has a petabyte.
const BYTES_SHOWN_MAX: u64 = 1 << 50;
/// READs ahead of who reads, at once.
const READS_MAX: u16 = 256;

/// The requests of a mount.
pub struct Requests {
    volume: Arc<Volume>,
    threads: Threads,
}

impl Requests {
    pub fn new(volume: Arc<Volume>, threads: Threads) -> Requests {
        Requests { volume, threads }
    }

    /// Carries a request out.
    fn serve(&self, request: &Request, work: impl FnOnce(&Volume, Who) + Send + 'static) {
        self.serve_then(request, work, |()| {});
    }

    /// Carries a request out, and then tells what has become of it.
    fn serve_then<T: 'static>(
        &self,
        request: &Request,
        work: impl FnOnce(&Volume, Who) -> T + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
    ) {
        let (caller, volume) = (Caller::of(Who::of(request)), self.volume.clone());
        let (work, tell) = self.parts(request, work, tell);
        self.threads.run(work, tell, move || volume.is_given_up(&caller));
    }

    /// The same of one for which others may wait: who closes a file gives its locks back, and a lease is given back
    /// behind what the kernel writes back.
    fn serve_first<T: 'static>(
        &self,
        request: &Request,
        work: impl FnOnce(&Volume, Who) -> T + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
    ) {
        let (work, tell) = self.parts(request, work, tell);
        self.threads.run_first(work, tell);
    }

    /// What a thread does to carry a request out, and to tell what has become of it.
    fn parts<T: 'static>(
        &self,
        request: &Request,
        work: impl FnOnce(&Volume, Who) -> T + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
    ) -> (impl FnOnce() -> T + Send + 'static, impl FnOnce(T) + Send + 'static) {
        let (who, volume, kernel) = (Who::of(request), self.volume.clone(), self.volume.kernel.clone());
        kernel.asks(who.thread);
        let work = move || {
            volume.kernel.serves(who.thread);
            work(&volume, who)
        };
        let tell = move |told| {
            tell(told);
            kernel.answered();
        };
        (work, tell)
    }

    /// Carries one out that may wait for as long as another program likes.
    fn serve_apart(&self, request: &Request, work: impl FnOnce(&Volume, Who) + Send + 'static) {
        let (who, volume) = (Who::of(request), self.volume.clone());
        volume.kernel.asks(who.thread);
        Threads::run_apart(move || work(&volume, who));
    }
}

impl Requests {
    fn make(&self, request: &Request, create: Create, reply: ReplyEntry) {
        let make = move |volume: &Volume, who| volume.create_inode(&Caller::of(who), create);
        self.serve_then(request, make, move |made| reply_entry(reply, made));
    }

    fn change(&self, request: &Request, change: Result<Change, Errno>, reply: ReplyEmpty) {
        let make = move |volume: &Volume, who| change.and_then(|change| volume.change(&Caller::of(who), change));
        self.serve_then(request, make, move |made| reply_empty(reply, made));
    }
}

impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The server takes set-user-id bits away; without this the kernel would ask for capabilities at each write.
        let locks = InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS;
        // Look-ups in one directory do not wait for each other's answers. Who reads a directory again from its
        // beginning looks first whether it has changed.
        let of_dirs = InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_AUTO_INVAL_DATA;
        let version = config.kernel_abi();
        self.volume.kernel.speaks((version.0, version.1));
        let mapped = match self.volume.kernel.has_pages() {
            true => InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            false => InitFlags::empty(),
        };
        let of_files = InitFlags::FUSE_HANDLE_KILLPRIV_V2 | mapped;
        for wanted in [locks, of_files, of_dirs, InitFlags::FUSE_NO_OPENDIR_SUPPORT] {
            let _ = config.add_capabilities(wanted & config.capabilities());
        }
        // READs that wait for a lease do not keep others from being sent.
        let _ = config.set_max_background(READS_MAX);
        config.set_max_write(WRITE_BYTES_MAX).map_err(|_| io::Error::other("the kernel's writes are too large"))?;
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (dir, name) = match convert::name(name) {
            Ok(name) => (convert::ino(parent), name),
            Err(errno) => return reply.error(convert::errno(errno)),
        };
        let (query, who) = (Query::Lookup { dir, name: name.clone() }, Who::of(request));
        self.volume.kernel.asks(who.thread);
        let tell = move |(telling, Found { found, sure }): (Telling<'_>, Found)| match found {
            Ok((ino, inode)) => {
                let has_others = inode.nlink > 1 && inode.kind != Kind::Dir;
                let (name_sure, sure) = telling.name(dir, &name, (ino, has_others), sure, who.thread);
                reply.entry_with_ttls(&sure, &name_sure, &convert::attr(ino, &inode), Generation(0));
            }
            Err(Errno::NOENT) if !telling.absent(dir, &name, sure, who.thread).is_zero() => reply_absent(reply, sure),
            Err(errno) => reply.error(convert::errno(errno)),
        };
        match self.volume.known_surely(who, &query) {
            Some(known) => tell(known),
            None => self.serve(request, move |volume, who| tell(volume.find(who, &query))),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, _lookups: u64) {
        self.volume.forgets(convert::ino(ino));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let (ino, who) = (convert::ino(ino), Who::of(request));
        let query = Query::Inode(ino);
        self.volume.kernel.asks(who.thread);
        let is_changing = self.volume.kernel.is_changing(ino);
        let known = if is_changing { None } else { self.volume.known_surely(who, &query) };
        if let Some((telling, Found { found: Ok((ino, inode)), sure })) = known {
            if let Some(sure) = telling.attributes(ino, sure) {
                return reply.attr(&sure, &convert::attr(ino, &inode));
            }
        }
        self.serve(request, move |volume, who| {
            // Who walks through a directory asks for its attributes, and then believes its names. Who has its lock
            // already asks, too, and would be waited for.
            let caller = Caller::of(who);
            volume.kernel.awaits_changes(ino, &|| !caller.walks() || volume.is_given_up(&caller));
            let (telling, Found { found, sure }) = volume.find(who, &query);
            match found {
                Ok((ino, inode)) => {
                    let Some(sure) = telling.attributes(ino, sure) else {
                        drop(telling);
                        volume.kernel.forget_listing(ino);
                        return reply.attr(&Duration::ZERO, &convert::attr(ino, &inode));
                    };
                    reply.attr(&sure, &convert::attr(ino, &inode));
                }
                Err(errno) => reply.error(convert::errno(errno)),
            }
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
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let ino = convert::ino(ino);
        let (atime, mtime) = (atime.map(convert::set_time), mtime.map(convert::set_time));
        let set = SetAttr { mode: mode.map(|mode| (mode & 0o7777) as u16), uid, gid, size, atime, mtime };
        self.serve(request, move |volume, who| {
            // ftruncate(2) says through which open file.
            let is_open = handle.is_some() && set == SetAttr { size: set.size, ..SetAttr::default() };
            reply_attr(reply, volume.set_attributes(&Caller::of(who), ino, set, is_open));
        });
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let query = Query::Inode(convert::ino(ino));
        self.serve(request, move |volume, who| match volume.inode(&Caller::of(who), query) {
            Ok((_, inode)) if inode.kind == Kind::Symlink => reply.data(&inode.target),
            Ok(_) => reply.error(convert::errno(Errno::INVAL)),
            Err(errno) => reply.error(convert::errno(errno)),
        });
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
        let kind = match convert::kind(mode) {
            Ok(kind) => kind,
            Err(errno) => return reply.error(convert::errno(errno)),
        };
        let rdev = if matches!(kind, Kind::Char | Kind::Block) { rdev } else { 0 };
        let (dir, name, target) = (convert::ino(dir), convert::name(name), Vec::new());
        self.make(request, Create { dir, name, kind, mode, rdev, target }, reply);
    }

    fn mkdir(&self, request: &Request, dir: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let (dir, name, target) = (convert::ino(dir), convert::name(name), Vec::new());
        self.make(request, Create { dir, name, kind: Kind::Dir, mode, rdev: 0, target }, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = convert::ino(parent);
        self.change(request, convert::name(name).map(|name| Change::Unlink { dir, name }), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = convert::ino(parent);
        self.change(request, convert::name(name).map(|name| Change::Rmdir { dir, name }), reply);
    }

    fn symlink(&self, request: &Request, dir: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (dir, name, target) = (convert::ino(dir), convert::name(name), target.as_os_str().as_bytes().to_vec());
        self.make(request, Create { dir, name, kind: Kind::Symlink, mode: 0o777, rdev: 0, target }, reply);
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
        let change = mode.and_then(|mode| {
            let (from_dir, to_dir) = (convert::ino(parent), convert::ino(newparent));
            let (from, to) = (convert::name(name)?, convert::name(newname)?);
            Ok(Change::Rename { from_dir, from, to_dir, to, mode })
        });
        self.change(request, change, reply);
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (ino, dir, name) = (convert::ino(ino), convert::ino(newparent), convert::name(newname));
        self.serve(request, move |volume, who| {
            let caller = Caller::of(who);
            let linked = name.and_then(|name| {
                let told = volume.change(&caller, Change::Link { ino, dir, name })?;
                volume.changed(&caller, ino, told)
            });
            reply_entry(reply, linked);
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (ino, stores) = (convert::ino(ino), may_store(flags.0));
        let open = move |volume: &Volume, who| {
            let (opening, caller) = (volume.client.opening(), Caller::of(who));
            let (_, inode) = volume.inode(&caller, Query::Inode(ino))?;
            // It lost its last name since it was looked up, and nobody here keeps it.
            if inode.nlink > 0 {
                opening.opened(ino);
            } else if !opening.opened_again(ino) {
                return Err(Errno::STALE);
            }
            let handle = volume.handles.open();
            volume.kernel.pages.open(ino, handle, stores);
            Ok(handle)
        };
        self.serve_then(request, open, move |opened| match opened {
            Ok(handle) => reply.opened(FileHandle(handle), FILE_FLAGS),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let ino = convert::ino(ino);
        // What goes around the pages names an owner of locks.
        if owner.is_none() && self.volume.kernel.has_pages() {
            return self.serve(request, move |volume, who| {
                volume.read_pages(&Caller::of(who), ino, offset, size, |read| match read {
                    Ok(bytes) => reply.data(&bytes),
                    Err(errno) => reply.error(convert::errno(errno)),
                });
            });
        }
        let read = move |volume: &Volume, who| volume.read(&Caller::of(who), ino, offset, size);
        self.serve_then(request, read, move |read| match read {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (ino, data, len) = (convert::ino(ino), data.to_vec(), data.len() as u32);
        if how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            return self.serve_first(request, move |volume, _| volume.write_back(ino, offset, data, reply), drop);
        }
        let offset = (flags.0 & O_APPEND == 0).then_some(offset);
        let write = move |volume: &Volume, who| volume.write(&Caller::of(who), ino, offset, data);
        self.serve_then(request, write, move |written| match written {
            Ok(()) => reply.written(len),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn flush(&self, request: &Request, ino: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let (ino, handle, owner) = (convert::ino(ino), handle.0, owner.0);
        let unlock = move |volume: &Volume, who| {
            let caller = Caller::of(who);
            // Whoever gets its locks next is to see what was stored.
            let synced = volume.sync_closed(&caller, ino);
            synced.and(volume.unlock_closed(&caller, ino, handle, owner))
        };
        self.serve_first(request, unlock, move |unlocked| reply_empty(reply, unlocked));
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let (ino, volume) = (convert::ino(ino), &self.volume);
        volume.kernel.pages.close(ino, handle.0);
        volume.closed(ino);
        if !volume.kernel.pages.is_open(ino) {
            volume.kernel.stores.closed(ino);
        }
        volume.unlock_released(ino, handle.0);
        reply.ok();
    }

    fn fsync(&self, request: &Request, ino: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let ino = convert::ino(ino);
        // Each write was on the server's disk when it returned, but for what was answered before.
        if self.volume.kernel.stores.is_clean(ino) {
            return reply.ok();
        }
        let sync = move |volume: &Volume, who| volume.sync(&Caller::of(who), ino);
        self.serve_then(request, sync, move |synced| reply_empty(reply, synced));
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Who has a directory open makes no difference: places say by themselves what they mean.
        if self.volume.kernel.has_listings() {
            // The kernel asks once.
            return reply.error(fuser::Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(&self, request: &Request, ino: INodeNo, _: FileHandle, place: u64, mut reply: ReplyDirectory) {
        let ino = convert::ino(ino);
        self.serve(request, move |volume, who| {
            let snapshot = match volume.snapshot(&Caller::of(who), ino, place) {
                Ok(snapshot) => snapshot,
                Err(errno) => return reply.error(convert::errno(errno)),
            };
            let mut names = snapshot.behind(place).peekable();
            if names.peek().is_none() {
                volume.ends_listing(ino, &snapshot);
            }
            for (next, entry) in names {
                let (name, kind) = (OsStr::from_bytes(&entry.name), convert::file_type(entry.kind));
                if reply.add(INodeNo(entry.ino.0), next, kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.serve(request, move |volume, who| match volume.ask_space(&Caller::of(who)) {
            Ok(space) => {
                let blocks = space.max_bytes.min(BYTES_SHOWN_MAX) / BLOCK_BYTES;
                let free = blocks.saturating_sub(space.used_bytes / BLOCK_BYTES);
                let files = space.max_inodes.min(BYTES_SHOWN_MAX);
                let unused = files.saturating_sub(space.used_inodes);
                let name_len = bluefs::key::NAME_BYTES_MAX as u32;
                reply.statfs(blocks, free, free, files, unused, BLOCK_BYTES as u32, name_len, BLOCK_BYTES as u32);
            }
            Err(errno) => reply.error(convert::errno(errno)),
        });
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
        let change = mode.and_then(|mode| {
            let (ino, name, value) = (convert::ino(ino), xattr_name_to_set(name)?, value.to_vec());
            Ok(Change::SetXattr { ino, name, value, mode })
        });
        self.change(request, change, reply);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (ino, name) = (convert::ino(ino), xattr_name(name));
        self.serve(request, move |volume, who| {
            reply_xattr(reply, size, name.and_then(|name| volume.xattr_of(&Caller::of(who), ino, name)));
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let ino = convert::ino(ino);
        self.serve(request, move |volume, who| reply_xattr(reply, size, volume.xattrs_of(&Caller::of(who), ino)));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let ino = convert::ino(ino);
        self.change(request, xattr_name(name).map(|name| Change::RemoveXattr { ino, name }), reply);
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
        let (dir, name, target) = (convert::ino(dir), convert::name(name), Vec::new());
        let create = Create { dir, name, kind: Kind::File, mode, rdev: 0, target };
        self.serve(request, move |volume, who| {
            let opening = volume.client.opening();
            match volume.create_or_find(&Caller::of(who), create, flags & O_EXCL != 0) {
                Ok((ino, inode)) => {
                    opening.opened(ino);
                    let attr = convert::attr(ino, &inode);
                    let handle = volume.handles.open();
                    volume.kernel.pages.open(ino, handle, may_store(flags));
                    reply.created(&TTL, &attr, Generation(0), FileHandle(handle), FILE_FLAGS);
                }
                // Somebody else has made it since the kernel looked. At ESTALE the kernel looks again, and opens it. It
                // does so once.
                Err(Errno::EXIST) if flags & O_EXCL == 0 => reply.error(convert::errno(Errno::STALE)),
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
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
        let wanted = Wanted { ino: convert::ino(ino), owner: owner.0, handle: handle.0, start, end, typ };
        self.serve(request, move |volume, who| volume.test_lock(&Caller::of(who), &wanted, reply));
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
        let wanted = Wanted { ino: convert::ino(ino), owner: owner.0, handle: handle.0, start, end, typ };
        let set = move |volume: &Volume, who| reply_empty(reply, volume.set_lock(&Caller::of(who), &wanted, sleep));
        if wanted.is_given_back() {
            self.serve_first(request, set, drop);
        } else if sleep {
            self.serve_apart(request, set);
        } else {
            self.serve(request, set);
        }
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
        let (keep_size, zero) = (mode & KEEP_SIZE != 0, mode & ZERO_RANGE != 0);
        match mode & !KEEP_SIZE {
            0 | ZERO_RANGE => self.serve(request, move |volume, who| {
                reply_empty(reply, volume.allocate(&Caller::of(who), ino, (offset, len), keep_size, zero));
            }),
            PUNCH_HOLE if keep_size => self.serve(request, move |volume, who| {
                reply_empty(reply, volume.punch(&Caller::of(who), ino, offset, len));
            }),
            _ => reply.error(convert::errno(Errno::OPNOTSUPP)),
        }
    }
}

/// Whether a file that is opened so may be mapped to be stored in.
fn may_store(flags: i32) -> bool {
    flags & O_ACCMODE == O_RDWR
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

pub fn reply_empty<T>(reply: ReplyEmpty, result: Result<T, Errno>) {
    match result {
        Ok(_) => reply.ok(),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}
