//! Files on disks that a speculative process empties or gives another size, and what is read of them, and of files to
//! which it has written, before that is made
//! ([0122](../../../../../../docs/decisions/0122-contents-are-seen-inside.md)). A truncation is held among the writes
//! ([`writes`](crate::ahead::filesystems::disk::writes)).

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::filesystems::disk::contents::ContentChange;
use crate::ahead::filesystems::disk::name_calls::is_writable;
use crate::ahead::filesystems::disk::writes::has_size_limit;
use crate::ahead::filesystems::mapped;
use crate::ahead::filesystems::open::{arguments, O_CREAT, O_TRUNC};
use crate::ahead::filesystems::path_walk::Found;
use crate::ahead::rollback::undo::{position_of, Intent};
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use rustix::fs::{FileType, OFlags, SeekFrom};
use std::os::fd::OwnedFd;
use syscall_table::nr;
use tracee::{Result, Stopped};

/// Of a file: less than each file system can.
pub(super) const SIZE_MAX: u64 = 1 << 31;

/// Whether a call changes the size of an open file, and nothing else. `truncate` is not held: to keep the file open for
/// writing would be heard outside.
pub(in crate::ahead) fn is_truncation(nr: u64) -> bool {
    nr == nr::ftruncate
}

impl Supervisor {
    /// Whether a file can be given a size: by root as we are, whom nothing about the file or its file system keeps from
    /// it, and who has not mapped it.
    pub(in crate::ahead) fn can_truncate(&self, call: &Call, file: &Found, len: u64) -> bool {
        const EXECUTABLE: u32 = 0o111;
        let (device, _) = self.world().device(file.stat.st_dev);
        let is_on_disk = device == DeviceKind::Domain && !self.is_private(file.stat.st_dev);
        // Nobody runs it, of which a truncation would be told. It need not have a name: `emptied_by` looks at that.
        let is_usual = file.is_regular() && file.stat.st_mode & EXECUTABLE == 0;
        let is_one = |inode: &(u64, u64)| *inode == (file.stat.st_dev, file.stat.st_ino);
        is_on_disk
            && is_usual
            && len <= SIZE_MAX
            && !self.ahead.new_files.has(&file.stat)
            && self.is_root_as_we_are(call.pid)
            && is_writable(&file.fd)
            && !has_size_limit(call.pid)
            && !self.tracees.keys().any(|&pid| mapped::may_map(procfs::Maps::of(pid), is_one))
    }

    /// A speculative process opens a file that it empties: it opens it as it is, and the rest is held.
    pub(in crate::ahead) fn open_emptying(&mut self, stopped: &Stopped, call: &Call, plan: Plan) -> Result<Decision> {
        let Some(arguments) = arguments(call) else { return Ok(self.wait_at_barrier(call)) };
        let Some(found) = self.emptied_by(call, &arguments) else { return Ok(self.wait_at_barrier(call)) };
        let (dev, ino) = found.inode();
        let modifies = vec![(Object::File(dev, ino), Intent::Nothing)];
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let [dir, path, flags, mode] = arguments;
        let mut remote = self.remote_calls(stopped)?;
        let fd = remote.call(libc::SYS_openat, &[dir, path, flags & !(O_CREAT | O_TRUNC), mode])?;
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        self.observe_everything(call.tid);
        let opened = self.copy_descriptor(call.tid, fd as i32).ok().filter(|_| fd >= 0);
        let is_it = |copy: &OwnedFd| rustix::fs::fstat(copy).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (dev, ino));
        let Some(copy) = opened.filter(is_it) else {
            // Somebody outside has changed the name since.
            if fd >= 0 {
                let mut remote = self.remote_calls(stopped)?;
                remote.call(libc::SYS_close, &[fd as u64])?;
                let signals = remote.finish()?;
                self.hold_signals(call.pid, signals);
            }
            return Ok(self.wait_at_barrier(call));
        };
        self.hold_write(call, copy, (dev, ino), ContentChange::Truncate(0));
        Ok(Decision::Answer(fd))
    }

    /// `ftruncate` of a speculative process.
    pub(in crate::ahead) fn truncate_file(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        let len = call.frame.args[1];
        let found = self.truncated_by_descriptor(call).filter(|(found, _)| self.can_truncate(call, found, len));
        let Some((found, open)) = found else { return Ok(self.wait_at_barrier(call)) };
        let (dev, ino) = found.inode();
        let modifies = vec![(Object::File(dev, ino), Intent::Nothing)];
        if matches!(self.track(stopped, call, Plan::tracked_once(), modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        self.hold_write(call, open, (dev, ino), ContentChange::Truncate(len));
        Ok(Decision::Answer(0))
    }

    fn truncated_by_descriptor(&mut self, call: &Call) -> Option<(Found, OwnedFd)> {
        let copy = self.copy_descriptor(call.tid, call.frame.args[0] as i32).ok()?;
        let flags = rustix::fs::fcntl_getfl(&copy).ok()?;
        let is_writable = flags & OFlags::RWMODE != OFlags::RDONLY && !flags.contains(OFlags::PATH);
        let found = Found::of(copy.try_clone().ok()?).ok()?;
        is_writable.then_some((found, copy))
    }

    /// Who reads a file to which writes are held, or moves to its end, is answered; `None`: it does not concern that,
    /// or has to wait.
    pub(in crate::ahead) fn read_held_contents(&mut self, stopped: &Stopped, call: &Call) -> Result<Option<Decision>> {
        let moves_to_end = call.frame.nr == nr::lseek && call.frame.args[2] == libc::SEEK_END as u64;
        if self.ahead.contents.is_empty() || !(matches!(call.frame.nr, nr::read | nr::pread64) || moves_to_end) {
            return Ok(None);
        }
        let Some((copy, inode)) = self.held_file_behind(call) else { return Ok(None) };
        let size = self.held_size(&copy, inode);
        let current = || rustix::fs::seek(&copy, SeekFrom::Current(0)).ok();
        let (start, bytes) = match call.frame.nr {
            nr::lseek => (size.checked_add_signed(call.frame.args[1] as i64), Vec::new()),
            nr => {
                let start = if nr == nr::pread64 { Some(call.frame.args[3]) } else { current() };
                let bytes = start.and_then(|start| self.held_bytes(&copy, inode, start, size, call.frame.args[2]));
                let Some(bytes) = bytes else { return Ok(None) };
                (start, bytes)
            }
        };
        let Some(start) = start.filter(|&start| start <= i64::MAX as u64) else { return Ok(None) };
        let mut plan = Plan::tracked_once().observing(Object::File(inode.0, inode.1));
        if call.frame.nr != nr::pread64 {
            let Ok(position) = copy.try_clone() else { return Ok(None) };
            plan = plan.modifying(position_of(inode.0, inode.1), Intent::Position(position));
        }
        let modifies = std::mem::take(&mut plan.modifies);
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        self.observe_everything(call.tid);
        if tracee::write_bytes(call.tid, call.frame.args[1], &bytes).is_err() && !bytes.is_empty() {
            return Ok(Some(Decision::Answer(-i64::from(libc::EFAULT))));
        }
        if call.frame.nr != nr::pread64 {
            let _ = rustix::fs::seek(&copy, SeekFrom::Start(start + bytes.len() as u64));
        }
        Ok(Some(Decision::Answer(if moves_to_end { start as i64 } else { bytes.len() as i64 })))
    }

    /// The open file behind the descriptor of a call, if writes to it are held and the caller may read it.
    fn held_file_behind(&mut self, call: &Call) -> Option<(OwnedFd, (u64, u64))> {
        let (copy, inode) = self.held_file(call, call.frame.args[0] as i32)?;
        let flags = rustix::fs::fcntl_getfl(&copy).ok()?;
        let is_open = !flags.intersects(OFlags::PATH | OFlags::DIRECT)
            && (call.frame.nr == nr::lseek || flags & OFlags::RWMODE != OFlags::WRONLY);
        is_open.then_some((copy, inode))
    }

    /// The file behind a descriptor, if writes to it are held.
    pub(in crate::ahead) fn held_file(&mut self, call: &Call, fd: i32) -> Option<(OwnedFd, (u64, u64))> {
        let copy = self.copy_descriptor(call.tid, fd).ok()?;
        let stat = rustix::fs::fstat(&copy).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let inode = (stat.st_dev, stat.st_ino);
        (is_file && self.ahead.contents.has(&inode)).then_some((copy, inode))
    }

    /// What a file of such a size holds from `start` on. `None`: it cannot be read, or is too much.
    pub(in crate::ahead) fn held_bytes(
        &self,
        file: &OwnedFd,
        inode: (u64, u64),
        start: u64,
        size: u64,
        len: u64,
    ) -> Option<Vec<u8>> {
        const LEN_MAX: u64 = 16 << 20;
        let len = len.min(size.saturating_sub(start));
        let mut disk = vec![0; usize::try_from(len).ok().filter(|_| len <= LEN_MAX)?];
        let mut read = 0;
        while read < disk.len() {
            match rustix::io::pread(file, &mut disk[read..], start + read as u64) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        disk.truncate(read);
        let disk_size = rustix::fs::fstat(file).ok()?.st_size as u64;
        Some(self.ahead.contents.read(&inode, start, len as usize, (disk, disk_size)))
    }
}
