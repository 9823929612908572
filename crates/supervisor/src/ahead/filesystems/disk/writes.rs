//! Writes of speculative processes to files on disks (000, 6.4: no-steal). They are held as output is, and reach the
//! file, in their order, when what they depend on is committed; a rollback drops them. Until then nobody reads the
//! file: whoever wants to waits.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan;
use crate::ahead::filesystems::disk::attribute_calls::{self, UTIME_OMIT};
use crate::ahead::filesystems::disk::contents::ContentChange;
use crate::ahead::filesystems::disk::name_calls::is_held_change;
use crate::ahead::filesystems::disk::name_changes::Inode;
use crate::ahead::filesystems::disk::names::{paths_of, tells_of_link};
use crate::ahead::filesystems::disk::truncations::{is_truncation, SIZE_MAX};
use crate::ahead::filesystems::open::{open_flags, O_TRUNC};
use crate::ahead::rollback::undo::{position_of, Intent};
use crate::ahead::{process, Call, Object, Written};
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use commit_clock::DOMAINS_MAX;
use procfs::{ProcessId, ThreadId};
use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use syscall_table::nr;
use syscall_table::{Op, SyncKind};
use tracee::{Result, Stopped};

/// One write, or a truncation.
#[derive(Debug)]
pub(crate) struct DeferredWrite {
    pub(in crate::ahead) file: OwnedFd,
    pub(in crate::ahead) inode: Inode,
    pub(in crate::ahead) change: ContentChange,
    /// Slot of the writer.
    pub slot: usize,
    pub pid: ProcessId,
    /// Among those that are held, and when it was asked for.
    pub(in crate::ahead) number: u64,
    pub(in crate::ahead) since: Duration,
}

impl DeferredWrite {
    /// How many bytes it keeps.
    pub fn len(&self) -> usize {
        self.change.len()
    }

    /// Make it. The program's own position must not move: it has moved already.
    fn make(&self) -> io::Result<()> {
        let mut file = match &self.change {
            ContentChange::Write { offset, .. } if offset.is_none() != appends(&self.file)? => {
                open_to_write(&self.file, offset.is_none())?
            }
            _ => File::from(self.file.try_clone()?),
        };
        match &self.change {
            ContentChange::Write { offset: Some(offset), bytes } => file.write_all_at(bytes, *offset),
            ContentChange::Write { offset: None, bytes } => {
                let position = file.stream_position();
                file.write_all(bytes)?;
                position.and_then(|position| file.seek(SeekFrom::Start(position))).map(drop)
            }
            ContentChange::Truncate(len) => file.set_len(*len),
        }
    }

    /// The file was changed when the program asked for it, not now.
    fn set_time(&self) {
        let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let since = Timespec { tv_sec: self.since.as_secs() as i64, tv_nsec: i64::from(self.since.subsec_nanos()) };
        let times = Timestamps { last_access: kept, last_modification: since };
        // Whoever was shown the time is root as the supervisor is. An ordinary user may not set the times of files of
        // others: their times stay those of the commit.
        let _ = rustix::fs::futimens(&self.file, &times);
    }
}

/// Whether what is written to an open file goes to the end, wherever it is to go.
fn appends(file: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_getfl(file)?.contains(OFlags::APPEND))
}

/// Opens a file once more, because the flags of the program's own open file have changed since a write was held.
fn open_to_write(file: &OwnedFd, appends: bool) -> io::Result<File> {
    let flags = if appends { OFlags::WRONLY | OFlags::APPEND } else { OFlags::WRONLY };
    let again = rustix::fs::open(procfs::own_path(file), flags | OFlags::CLOEXEC, Mode::empty())?;
    Ok(File::from(again))
}

/// Whether a call writes no bytes.
pub(in crate::ahead) fn writes_nothing(call: &Call) -> bool {
    matches!(call.frame.nr, nr::write | nr::pwrite64) && call.frame.args[2] == 0
}

impl Supervisor {
    /// A write to a file: held where it depends on a guess, or begins at a position that does; else made now. Then
    /// whoever moves that position on a guess waits until it has been made: a rollback must not put back one from
    /// before it.
    pub(in crate::ahead) fn write_file(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        fd: i32,
        is_speculative: bool,
    ) -> Result<Decision> {
        let positions: Vec<Object> = self.position_behind(call, fd).into_iter().collect();
        if is_speculative || self.ahead.core.needs_checkpoint(process(call.pid), &[], &positions) {
            let held = self.defer_write(stopped, call, fd)?;
            return Ok(held.unwrap_or_else(|| self.wait_at_barrier(call)));
        }
        let modifies = positions.into_iter().map(|position| (position, Intent::Nothing)).collect();
        self.track(stopped, call, plan::Plan::tracked_once(), modifies)
    }

    /// Hold a write to a file. `None` where it has to wait instead.
    fn defer_write(&mut self, stopped: &Stopped, call: &Call, fd: i32) -> Result<Option<Decision>> {
        let Some((file, inode, change)) = self.write_of(call, fd) else { return Ok(None) };
        let (dev, ino) = inode;
        let position = self.copy_descriptor(call.tid, fd).ok();
        let modifies = vec![
            (Object::File(dev, ino), Intent::Nothing),
            (position_of(dev, ino), position.map_or(Intent::Nothing, Intent::Position)),
        ];
        let plan = plan::Plan::tracked_once();
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        let len = change.len();
        if call.frame.nr != nr::pwrite64 {
            let start = match change {
                ContentChange::Write { offset: Some(offset), .. } => offset,
                _ => self.held_size(&file, inode),
            };
            let _ = rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(start + len as u64));
        }
        self.hold_write(call, file, inode, change);
        Ok(Some(Decision::Answer(len as i64)))
    }

    /// A call has changed a file, as far as those inside see.
    pub(in crate::ahead) fn hold_write(&mut self, call: &Call, file: OwnedFd, inode: Inode, change: ContentChange) {
        // Whoever was killed meanwhile is told of no result.
        let Some(slot) = self.tracees.get(&call.tid).map(|tracee| tracee.process) else { return };
        let attributes = self.ahead.attributes.held_before();
        let (number, since) = self.ahead.contents.add(inode, change.clone(), attributes);
        let write = DeferredWrite { file, inode, change, slot, pid: call.pid, number, since };
        self.ahead.report.output_held += write.len() as u64;
        self.ahead.deferred_bytes += write.len() as u64;
        self.ahead.core.output(process(call.pid), Written::File(write));
    }

    /// The size of a file, as those inside see it.
    pub(in crate::ahead) fn held_size(&self, file: &OwnedFd, inode: Inode) -> u64 {
        let disk = rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64);
        self.ahead.contents.size(&inode, disk)
    }

    /// The position that a write moves, or looks at: that an open file appends stands with its position, and then it
    /// makes no difference which place a write names.
    fn position_behind(&mut self, call: &Call, fd: i32) -> Option<Object> {
        let stat = rustix::fs::fstat(self.copy_descriptor(call.tid, fd).ok()?).ok()?;
        Some(position_of(stat.st_dev, stat.st_ino))
    }

    fn write_of(&mut self, call: &Call, fd: i32) -> Option<(OwnedFd, Inode, ContentChange)> {
        if self.ahead.holds_enough() {
            return None;
        }
        let bytes = crate::requests::gather_for_file(call.tid, &call.frame)?;
        let file = self.copy_descriptor(call.tid, fd).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let flags = rustix::fs::fcntl_getfl(&file).ok()?;
        let (device, _) = self.world().device(stat.st_dev);
        let is_kept = matches!(device, DeviceKind::Domain | DeviceKind::Memory);
        let is_writable = flags & OFlags::RWMODE != OFlags::RDONLY;
        if !self.has_room_for(&file, bytes.len() as u64) {
            // The kernel would say so; held, it would be found too late.
            return None;
        }
        if has_size_limit(call.pid) {
            // The kernel would cut it short, or send SIGXFSZ.
            return None;
        }
        if flags.contains(OFlags::DIRECT) {
            // The kernel would refuse what is not aligned.
            return None;
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || !is_kept
            || !is_writable
            || bytes.is_empty()
        {
            return None;
        }
        let offset = match call.frame.nr {
            // Whatever the offset is (pwrite(2), BUGS).
            _ if flags.contains(OFlags::APPEND) => None,
            nr::pwrite64 => Some(call.frame.args[3]),
            _ => Some(rustix::fs::seek(&file, rustix::fs::SeekFrom::Current(0)).ok()?),
        };
        let inode = (stat.st_dev, stat.st_ino);
        let size = || self.ahead.contents.size(&inode, stat.st_size as u64);
        // A negative offset is refused before it is seen that it does not count; a large one is the file system's to
        // refuse.
        let starts = [Some(offset.unwrap_or_else(size)), (call.frame.nr == nr::pwrite64).then_some(call.frame.args[3])];
        let fits = |start: u64| start.checked_add(bytes.len() as u64).is_some_and(|end| end <= SIZE_MAX);
        if !starts.into_iter().flatten().all(fits) {
            return None;
        }
        let change = ContentChange::Write { offset, bytes: Arc::new(bytes) };
        Some((file, inode, change))
    }

    /// Whether a file system has so much room besides what is held already that a write cannot fail for want of it:
    /// twice what is needed, because blocks are written as a whole, names need some, too, and room for others who write
    /// there meanwhile.
    pub(in crate::ahead) fn has_room_for(&self, file: &OwnedFd, len: u64) -> bool {
        const RESERVE: u64 = 1 << 20;
        let held = self.ahead.deferred_bytes + self.ahead.held_names.room_needed();
        let needed = held.saturating_add(len).saturating_mul(2).saturating_add(RESERVE);
        rustix::fs::fstatvfs(file).is_ok_and(|space| space.f_bavail.saturating_mul(space.f_frsize) >= needed)
    }

    /// Nothing that it depends on can fail any more: the write is made.
    pub(in crate::ahead) fn make_write(&mut self, write: &DeferredWrite) {
        let is_shown = self.ahead.contents.is_shown(&write.inode);
        self.forget_write(write);
        if self.ahead.is_doomed {
            return;
        }
        self.about_to_change(write.inode.0);
        if let Err(error) = write.make() {
            // The program was told that it had succeeded.
            self.end_world(&format!("a write that had been held could not be made: {error}"));
            return;
        }
        if is_shown || !self.ahead.watchers.hear(&write.file) {
            write.set_time();
        }
        self.join_transaction(write);
    }

    /// The engine has the file system open from before the change, and keeps it open until it is committed.
    pub(in crate::ahead) fn about_to_change(&mut self, dev: u64) {
        if let (DeviceKind::Domain, domain) = self.world().device(dev) {
            // If it cannot be opened, the commit fails, and with it the world.
            let _ = self.hold_domain(None, domain);
            self.world().transactions.join(domain);
        }
    }

    /// What was stored in a mapping is written.
    pub(in crate::ahead) fn make_mapped_write(&mut self, write: &DeferredWrite) {
        self.about_to_change(write.inode.0);
        match write.make() {
            Ok(()) => self.join_transaction(write),
            Err(error) => self.end_world(&format!("what was stored in a mapped file could not be written: {error}")),
        }
    }

    /// The change is in the page cache now: it is in the transaction that is active now, or in an older one.
    fn join_transaction(&mut self, write: &DeferredWrite) {
        let world = self.world();
        let (device, domain) = world.device(write.inode.0);
        if device != DeviceKind::Domain {
            return;
        }
        let transaction = world.transactions.join(domain);
        let object = agent_abi::FdEntry::new(
            agent_abi::FdKind::DomainFile,
            domain,
            agent_abi::hash_object(write.inode.0, write.inode.1),
        );
        world.objects[object.slot()].raise(domain, transaction);
        world.dirty_bytes[domain].fetch_add(write.len() as u64, Ordering::Relaxed);
        let slot = &world.processes[write.slot];
        if slot.pid.load(Ordering::Acquire) as i32 == write.pid.as_raw() {
            slot.clock.raise(domain, transaction);
        }
        // Whoever wrote may be gone; what it wrote after this is held with a clock from before.
        self.ahead.written.merge(&slot_clock(domain, transaction));
    }

    /// The write was made, or will never be.
    pub(in crate::ahead) fn forget_write(&mut self, write: &DeferredWrite) {
        self.ahead.deferred_bytes -= write.len() as u64;
        if self.ahead.contents.remove(write.inode, write.number) {
            self.ahead.changes += 1;
        }
    }

    /// Whether a call would look at a file whose writes are held.
    pub(in crate::ahead) fn looks_at_deferred(&mut self, call: &Call) -> bool {
        if self.ahead.contents.is_empty() {
            return false;
        }
        let args = &call.frame.args;
        match syscall_table::op(call.frame.nr) {
            // A position says nothing of contents.
            Some(Op::ObserveFd { .. }) if call.frame.nr == nr::lseek && args[2] <= libc::SEEK_CUR as u64 => false,
            Some(Op::ObserveFd { fd }) if matches!(call.frame.nr, nr::fgetxattr | nr::flistxattr) => {
                self.is_deferred(call.tid, args[fd as usize] as i32)
                    && self.has_capabilities(call.tid, args[fd as usize] as i32)
            }
            // They come in the order in which they were asked for.
            Some(Op::ModifyFd { .. }) if is_truncation(call.frame.nr) && self.ahead.is_speculative(call.pid) => false,
            Some(Op::ModifyFd { .. } | Op::ModifyPath { .. })
                if (attribute_calls::is_change(call.frame.nr) || is_held_change(call.frame.nr))
                    && self.ahead.is_speculative(call.pid) =>
            {
                false
            }
            Some(Op::Sync(SyncKind::File | SyncKind::Range)) => false,
            Some(Op::Read { fd } | Op::ObserveFd { fd } | Op::ModifyFd { fd }) => {
                self.is_deferred(call.tid, args[fd as usize] as i32)
            }
            Some(Op::Write { fd }) => {
                // A process that depends on what the held writes depend on adds to them; others wait for them.
                !self.ahead.is_speculative(call.pid) && self.is_deferred(call.tid, args[fd as usize] as i32)
            }
            // What a speculative process empties is emptied in that order too, or its call waits by itself.
            Some(op @ (Op::Open | Op::OpenAt | Op::OpenAt2 | Op::Creat)) => {
                !self.ahead.is_speculative(call.pid)
                    && open_flags(call) & O_TRUNC != 0
                    && paths_of(op).into_iter().any(|(dir, path)| self.names_deferred(call, dir, path))
            }
            Some(Op::Mmap) => self.is_deferred(call.tid, args[4] as i32),
            Some(Op::Fcntl) => self.changes_how_it_writes(call) && self.is_deferred(call.tid, args[0] as i32),
            // A link has none.
            Some(Op::StatPath { .. } | Op::Statx) if tells_of_link(call) => false,
            Some(Op::StatPath { dir, path, .. } | Op::ModifyPath { dir, path }) => self.names_deferred(call, dir, path),
            Some(Op::Statx) => self.names_deferred(call, 0, 1),
            Some(Op::Execve) => self.names_deferred(call, syscall_table::CWD, 0),
            Some(Op::Execveat) => self.names_deferred(call, 0, 1),
            Some(Op::Copy { input, output })
                if self.copies_nothing(
                    call,
                    args[usize::from(input) % 6] as i32,
                    args[usize::from(output) % 6] as i32,
                ) =>
            {
                false
            }
            Some(Op::Copy { input, output }) => {
                [input, output].into_iter().any(|fd| self.is_deferred(call.tid, args[usize::from(fd) % 6] as i32))
            }
            Some(Op::Sync(_)) => true,
            _ => false,
        }
    }

    /// Whether a path may lead to a file whose writes are held. What cannot be found by the program has no such writes;
    /// what we cannot tell may have.
    fn names_deferred(&self, call: &Call, dir: u8, path: u8) -> bool {
        self.look_up(call, dir, path).may_be(|found| self.ahead.contents.has(&(found.st_dev, found.st_ino)))
    }

    /// Whether a write would take an extended attribute away.
    fn has_capabilities(&mut self, tid: ThreadId, fd: i32) -> bool {
        let Ok(copy) = self.copy_descriptor(tid, fd) else { return true };
        let found = rustix::fs::fgetxattr(&copy, "security.capability", &mut [0; 1][..]);
        found != Err(rustix::io::Errno::NODATA)
    }

    /// Whether `fcntl` sets flags under which held writes could not be made as they were asked for. They are made
    /// through the program's own open file. If only O_APPEND has changed there, they are made through another one. That
    /// must be possible, and a watcher of the file would hear of it.
    fn changes_how_it_writes(&mut self, call: &Call) -> bool {
        let [fd, command, asked, ..] = call.frame.args;
        if call.frame.nr != nr::fcntl || command as i32 != libc::F_SETFL {
            return false;
        }
        let Ok(copy) = self.copy_descriptor(call.tid, fd as i32) else { return false };
        let asked = OFlags::from_bits_retain(asked as u32);
        let Ok(flags) = rustix::fs::fcntl_getfl(&copy) else { return true };
        let changed = flags ^ asked;
        if !changed.intersects(OFlags::APPEND | OFlags::DIRECT) {
            return false;
        }
        let can_be_opened = self.ahead.is_speculative(call.pid)
            && !self.ahead.watchers.hear(&copy)
            && open_to_write(&copy, false).is_ok();
        changed.contains(OFlags::DIRECT) || !can_be_opened
    }

    fn is_deferred(&mut self, tid: ThreadId, fd: i32) -> bool {
        let Ok(copy) = self.copy_descriptor(tid, fd) else { return false };
        rustix::fs::fstat(&copy).is_ok_and(|stat| self.ahead.contents.has(&(stat.st_dev, stat.st_ino)))
    }
}

pub(in crate::ahead) fn slot_clock(domain: usize, transaction: commit_clock::Transaction) -> commit_clock::Clock {
    let mut clock = commit_clock::Clock::NONE;
    clock.0[domain % DOMAINS_MAX] = transaction;
    clock
}

/// Whether files that this process writes may not grow as they like (`RLIMIT_FSIZE`).
pub(super) fn has_size_limit(pid: ProcessId) -> bool {
    let limit = procfs::Limits::of(pid).and_then(|limits| limits.soft("Max file size"));
    !matches!(limit, Ok(None))
}
