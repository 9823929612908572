//! The FUSE file system behind the crash disk: a root directory with one file, `disk.img`, held in memory.
//!
//! One thread serves one request at a time, and the file is opened for direct I/O: what the loop driver sends arrives
//! here at once, in order, and nothing is cached in between.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use super::clock::Clock;
use super::fault::Faults;
use super::log::DiskEvent;

/// The name of the one file.
pub const FILE_NAME: &str = "disk.img";
const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(3600);
const WRITE_LEN_MAX: u32 = 1 << 20;

/// The disk: its content as the cache shows it, and what happened since the recording began.
#[derive(Default)]
pub struct Platter {
    /// What a read returns.
    pub content: Vec<u8>,
    /// What to keep of a recording; `None` when none is made.
    pub recording: Option<Vec<DiskEvent>>,
    /// How long a flush takes.
    pub flush_delay: Duration,
    /// Requests since the disk was made.
    pub writes: u64,
    /// Requests since the disk was made.
    pub flushes: u64,
    /// What goes wrong.
    pub faults: Faults,
}

/// The platter, shared by the FUSE thread and the [`super::CrashDisk`].
pub type SharedPlatter = Arc<Mutex<Platter>>;

/// Locks; a checker that panicked elsewhere does not matter to the disk.
pub fn lock(platter: &SharedPlatter) -> MutexGuard<'_, Platter> {
    platter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the requests.
pub struct DiskFs {
    /// The disk.
    pub platter: SharedPlatter,
    /// What stamps them.
    pub clock: Clock,
}

impl DiskFs {
    fn attr(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode == FILE;
        let size = match is_file {
            true => lock(&self.platter).content.len() as u64,
            false => 0,
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// False when it does not fit.
    fn store(&self, offset: u64, data: &[u8]) -> bool {
        let issued = self.clock.stamp();
        let mut platter = lock(&self.platter);
        let Some(end) = usize::try_from(offset).ok().and_then(|o| o.checked_add(data.len())) else {
            return false;
        };
        let Some(place) = platter.content.get_mut(end - data.len()..end) else {
            return false;
        };
        place.copy_from_slice(data);
        platter.writes += 1;
        if let Some(recording) = &mut platter.recording {
            recording.push(DiskEvent::Write { issued, done: self.clock.stamp(), offset, data: data.to_vec() });
        }
        true
    }

    /// False when it failed: nothing is promised then.
    fn bring_to_platter(&self) -> bool {
        let begin = self.clock.stamp();
        let delay = lock(&self.platter).flush_delay;
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let end = self.clock.stamp();
        let mut platter = lock(&self.platter);
        platter.flushes += 1;
        if platter.faults.on_flush().is_some() {
            return false;
        }
        if let Some(recording) = &mut platter.recording {
            recording.push(DiskEvent::Flush { begin, end });
        }
        true
    }
}

impl Filesystem for DiskFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The loop driver may send more at once; then it arrives as several writes, which can be lost one by one.
        let _ = config.set_max_write(WRITE_LEN_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == FILE_NAME {
            reply.entry(&TTL, &self.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(inode));
    }

    /// Times and modes may be set, and are forgotten; the size is fixed.
    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match size {
            Some(_) => reply.error(Errno::EPERM),
            None => reply.attr(&TTL, &self.attr(inode)),
        }
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), direct);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let platter = lock(&self.platter);
        let len = platter.content.len();
        let begin = usize::try_from(offset).unwrap_or(len).min(len);
        let end = begin.saturating_add(size as usize).min(len);
        reply.data(&platter.content[begin..end]);
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Some(error) = lock(&self.platter).faults.on_write() {
            return reply.error(error);
        }
        match self.store(offset, data) {
            true => reply.written(data.len() as u32),
            false => reply.error(Errno::ENOSPC),
        }
    }

    fn fsync(&self, _request: &Request, _inode: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.bring_to_platter() {
            true => reply.ok(),
            false => reply.error(Errno::EIO),
        }
    }

    /// Discard and write-zeroes; refused, the kernel writes zeroes itself, which is logged.
    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    /// close(2): what must not count as a flush of the disk.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}
