//! Files that were there, mapped to be written on a guess
//! ([0173](../../../../../../docs/decisions/0173-a-mapped-file-has-a-mirror.md)). What is stored in such a mapping
//! passes no call. So in its place a *mirror* is mapped, a copy in memory that all on the guess share. When the guess
//! is right, what differs from what was copied is written to the file; and each process that still has the mirror gets
//! the file itself in its place, before its next call. If the guess is wrong, the mirror goes.
//!
//! Whoever has a shared mapping is not checkpointed any more: it gains no dependencies, and stores nothing that depends
//! on more than the mirror does ([`Object::Created`]).

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::known_ways::News;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::filesystems::disk::contents::ContentChange;
use crate::ahead::filesystems::disk::name_changes::Inode;
use crate::ahead::filesystems::disk::names::paths_of;
use crate::ahead::filesystems::disk::truncations::is_truncation;
use crate::ahead::filesystems::disk::writes::DeferredWrite;
use crate::ahead::filesystems::mapped::may_map;
use crate::ahead::filesystems::open::{open_flags, O_TRUNC};
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use procfs::{ProcessId, ThreadId};
use rustix::fs::{FileType, MemfdFlags, OFlags, Stat};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;
use syscall_table::Op;
use tracee::{Result, Stopped, TraceError};

const MAP_TYPE: u64 = 0xf;
const MAP_SHARED: u64 = 1;
const MAP_FIXED: u64 = 0x10;
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;

/// A copy that is mapped in the place of a file.
#[derive(Debug)]
struct Mirror {
    inode: Inode,
    file: OwnedFd,
    /// In memory, and the inode by which it is known.
    copy: File,
    copied: Inode,
    /// What the file has, as far as it was copied from there or written there.
    base: Vec<u8>,
    /// Who made it.
    slot: usize,
    pid: ProcessId,
    /// Nothing that it depends on can fail any more.
    is_certain: bool,
}

#[derive(Debug, Default)]
pub(in crate::ahead) struct Mirrors {
    all: Vec<Mirror>,
    /// Files that have got one.
    pub news: News,
}

/// A mapping that is made of the file first, and then of the mirror.
#[derive(Clone, Copy, Debug)]
pub(in crate::ahead) struct Mapping {
    copied: Inode,
    at: u64,
    len: u64,
    protection: u64,
    offset: u64,
}

impl Mirrors {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a file has one that may still be forgotten: who reads the file otherwise waits.
    pub fn is_any_uncertain(&self) -> bool {
        self.all.iter().any(|mirror| !mirror.is_certain)
    }

    /// Whether one is certain: what is stored there is to be written before whoever has it mapped ends.
    pub fn is_any_certain(&self) -> bool {
        self.certain().next().is_some()
    }

    /// Its guess was wrong.
    pub fn forget(&mut self, copied: Inode) {
        self.all.retain(|mirror| mirror.copied != copied);
    }

    /// What is in each of them. `None`: it is not known, or too much to be compared.
    pub fn contents(&self) -> Option<Vec<(Inode, Vec<u8>)>> {
        const LEN_MAX: usize = 1 << 20;
        let len: usize = self.all.iter().map(|mirror| mirror.base.len()).sum();
        if len > LEN_MAX {
            return None;
        }
        let read = |mirror: &Mirror| {
            let mut now = vec![0; mirror.base.len()];
            mirror.copy.read_exact_at(&mut now, 0).ok().map(|()| (mirror.copied, now))
        };
        self.all.iter().map(read).collect()
    }

    /// Whether a file has one. What was stored there may not be in the file yet.
    pub fn has_of(&self, inode: Inode) -> bool {
        self.of(inode).is_some()
    }

    fn add(&mut self, mirror: Mirror) {
        self.news.of_file(mirror.inode);
        self.all.push(mirror);
    }

    fn of(&self, inode: Inode) -> Option<&Mirror> {
        self.all.iter().find(|mirror| mirror.inode == inode)
    }

    /// Whether a file has a mirror that may still be forgotten.
    fn is_mirrored(&self, stat: &Stat) -> bool {
        self.of((stat.st_dev, stat.st_ino)).is_some_and(|mirror| !mirror.is_certain)
    }

    fn certain(&self) -> impl Iterator<Item = &Mirror> {
        self.all.iter().filter(|mirror| mirror.is_certain)
    }
}

impl Mirror {
    /// Pieces of it that the file does not have yet.
    fn take_changes(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut now = vec![0; self.base.len()];
        if self.copy.read_exact_at(&mut now, 0).is_err() {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let mut at = 0;
        while at < now.len() {
            if now[at] == self.base[at] {
                at += 1;
                continue;
            }
            let begin = at;
            while at < now.len() && now[at] != self.base[at] {
                at += 1;
            }
            changes.push((begin as u64, now[begin..at].to_vec()));
        }
        self.base = now;
        changes
    }
}

impl Supervisor {
    /// What a shared mapping that may be written is on a guess.
    pub(in crate::ahead) fn plan_shared_mapping(&mut self, call: &Call) -> Plan {
        let [_, _, protection, flags, ..] = call.frame.args;
        let is_usual = flags == MAP_SHARED && protection & PROT_EXEC == 0;
        let is_one = is_usual && self.ahead.is_speculative(call.pid) && self.is_root_as_we_are(call.pid);
        Plan::new(if is_one { Class::Mirror } else { Class::Barrier }).once()
    }

    /// A speculative process maps a file that was there.
    pub(in crate::ahead) fn map_mirror(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        let [_, len, protection, _, fd, offset] = call.frame.args;
        let Some((file, stat)) = self.file_to_mirror(call, fd as i32) else { return Ok(self.wait_at_barrier(call)) };
        let inode = (stat.st_dev, stat.st_ino);
        let known = self.ahead.mirrors.of(inode).map(|mirror| mirror.copied);
        let (tracked, copied) = match known {
            Some(copied) => {
                let object = Object::Created(copied.0, copied.1);
                let core = &self.ahead.core;
                let own = core.dependencies_of_process(process(call.pid));
                if !own.is_subset(core.dependencies_of_object(&object)) {
                    return Ok(self.wait_at_barrier(call));
                }
                (self.track(stopped, call, Plan::tracked_once().observing(object), Vec::new())?, copied)
            }
            None => {
                if self.is_mapped_by_anybody(inode) {
                    return Ok(self.wait_at_barrier(call));
                }
                let Some(mirror) = self.mirror_of(call, file, &stat) else { return Ok(self.wait_at_barrier(call)) };
                let copied = mirror.copied;
                let modifies = vec![(Object::Created(copied.0, copied.1), Intent::Mirror(copied))];
                let tracked = self.track(stopped, call, Plan::tracked_once(), modifies)?;
                if !matches!(tracked, Decision::Wait) {
                    self.ahead.mirrors.add(mirror);
                }
                (tracked, copied)
            }
        };
        let mirrors = Some(Mapping { copied, at: 0, len, protection, offset });
        Ok(match tracked {
            Decision::GoAndTell(under_way) => Decision::GoAndTell(UnderWay { mirrors, ..under_way }),
            Decision::Go => Decision::GoAndTell(UnderWay { mirrors, ..UnderWay::default() }),
            other => other,
        })
    }

    /// The file that a call maps, if all that is in it can be copied, and nobody writes there in another way.
    fn file_to_mirror(&mut self, call: &Call, fd: i32) -> Option<(OwnedFd, Stat)> {
        const SIZE_MAX: i64 = 1 << 20;
        let FileDescription::File { dev, ino, device: DeviceKind::Domain, copy } = self.file_description(call.tid, fd)
        else {
            return None;
        };
        let stat = rustix::fs::fstat(&copy).ok()?;
        let flags = rustix::fs::fcntl_getfl(&copy).ok()?;
        let is_usual = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size <= SIZE_MAX;
        let is_open = flags & OFlags::RWMODE == OFlags::RDWR && !flags.intersects(OFlags::APPEND | OFlags::PATH);
        let is_held = self.ahead.contents.has(&(dev, ino));
        let can_be = is_usual && is_open && !is_held && self.has_room_for(&copy, 1 << 20);
        (can_be && self.has_free_descriptors(call.pid)).then_some((copy, stat))
    }

    fn mirror_of(&self, call: &Call, file: OwnedFd, stat: &Stat) -> Option<Mirror> {
        let mut base = vec![0; usize::try_from(stat.st_size).ok()?];
        let reader = File::from(file.try_clone().ok()?);
        reader.read_exact_at(&mut base, 0).ok()?;
        let copy = File::from(rustix::fs::memfd_create("mirror", MemfdFlags::CLOEXEC).ok()?);
        copy.write_all_at(&base, 0).ok()?;
        let found = rustix::fs::fstat(&copy).ok()?;
        let slot = self.tracees.get(&call.tid)?.process;
        let (inode, copied) = ((stat.st_dev, stat.st_ino), (found.st_dev, found.st_ino));
        Some(Mirror { inode, file, copy, copied, base, slot, pid: call.pid, is_certain: false })
    }

    /// Whether anybody on this machine has a file mapped, as far as we can look: what one of us stores the other would
    /// not see.
    fn is_mapped_by_anybody(&mut self, inode: Inode) -> bool {
        let inside = self.processes();
        let Ok(processes) = procfs::machine::processes() else { return true };
        processes.into_iter().any(|pid| match procfs::Maps::of(pid) {
            // Nobody may look at some processes outside.
            Err(_) if !inside.contains(&pid) => false,
            maps => may_map(maps, |found| *found == inode),
        })
    }

    /// The file has been mapped there: the mirror takes its place, before anybody knows the address.
    pub(in crate::ahead) fn mapped_mirror(&mut self, stopped: &Stopped, mapping: Mapping, result: i64) -> Result<()> {
        const ERRORS: std::ops::Range<i64> = -4095..0;
        let mirror = self.ahead.mirrors.all.iter().find(|mirror| mirror.copied == mapping.copied);
        let Some(mirror) = mirror.filter(|_| !ERRORS.contains(&result)) else { return Ok(()) };
        let kernel = |source| TraceError::kernel("copy a descriptor", stopped.tid(), source);
        let copy = OwnedFd::from(mirror.copy.try_clone().map_err(kernel)?);
        self.map_over(stopped, &copy, &[Mapping { at: result as u64, ..mapping }])
    }

    /// Map parts of a file at these addresses, in the name of a process.
    fn map_over(&mut self, stopped: &Stopped, file: &OwnedFd, mappings: &[Mapping]) -> Result<()> {
        let pid = self.pid_of(stopped.tid()).map_err(|source| TraceError::Kernel {
            what: "find a process",
            task: stopped.tid().into(),
            source,
        })?;
        self.is_asked_about_its_end(pid);
        let failed = |error: i32| TraceError::Kernel {
            what: "map a file",
            task: pid.into(),
            source: std::io::Error::from_raw_os_error(error),
        };
        let own = self.install_free(stopped, pid, file, true)?.ok_or_else(|| failed(libc::EMFILE))?;
        let mut remote = self.remote_calls(stopped)?;
        let mut result = 0;
        for mapping in mappings {
            let Mapping { at, len, protection, offset, .. } = *mapping;
            let flags = MAP_SHARED | MAP_FIXED;
            result = remote.call(libc::SYS_mmap, &[at, len, protection, flags, own as u64, offset])?.min(result);
        }
        remote.call(libc::SYS_close, &[own as u64])?;
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        if (-4095..0).contains(&result) {
            return Err(failed(-(result as i32)));
        }
        Ok(())
    }

    /// Whether a call would read or change a mirrored file in another way than through a mapping.
    pub(in crate::ahead) fn meets_mirror(&mut self, call: &Call) -> bool {
        if self.ahead.mirrors.is_empty() {
            return false;
        }
        // A process that sleeps may have one that is certain for long: the file is to have what was stored there.
        self.write_mirrors();
        if !self.ahead.mirrors.is_any_uncertain() {
            return false;
        }
        let args = call.frame.args;
        let is_behind = |supervisor: &mut Self, at: u8| {
            let copy = supervisor.copy_descriptor(call.tid, args[usize::from(at) % 6] as i32);
            let stat = copy.ok().and_then(|copy| rustix::fs::fstat(&copy).ok());
            stat.is_some_and(|stat| supervisor.ahead.mirrors.is_mirrored(&stat))
        };
        let is_named = |supervisor: &Self, op: Op| {
            let mut paths = paths_of(op).into_iter();
            let mirrors = &supervisor.ahead.mirrors;
            paths.any(|(dir, path)| supervisor.look_up(call, dir, path).may_be(|stat| mirrors.is_mirrored(stat)))
        };
        match syscall_table::op(call.frame.nr) {
            Some(Op::Read { fd } | Op::Write { fd } | Op::ModifyFd { fd }) => is_behind(self, fd),
            Some(Op::Copy { input, output }) => is_behind(self, input) || is_behind(self, output),
            // One more shared mapping gets the mirror.
            Some(Op::Mmap) if args[3] & MAP_TYPE == MAP_SHARED && args[2] & PROT_WRITE != 0 => false,
            Some(Op::Mmap) => is_behind(self, 4),
            Some(op @ (Op::Open | Op::OpenAt | Op::OpenAt2 | Op::Creat)) if open_flags(call) & O_TRUNC != 0 => {
                is_named(self, op)
            }
            Some(op @ (Op::Execve | Op::Execveat)) => is_named(self, op),
            Some(op @ Op::ModifyPath { .. }) if is_truncation(call.frame.nr) => is_named(self, op),
            _ => false,
        }
    }

    /// Nothing that a mirror depends on can fail any more: the file gets what was stored so far.
    pub(in crate::ahead) fn mirror_is_certain(&mut self, copied: Inode) {
        for mirror in self.ahead.mirrors.all.iter_mut().filter(|mirror| mirror.copied == copied) {
            mirror.is_certain = true;
        }
        self.forget_unmapped_mirrors();
        // Who waits in a call looks at it again, and leaves the mirror before that.
        let has_one = |tid: ThreadId| may_map(procfs::Maps::of(tid), |found| *found == copied);
        let waiting: Vec<ThreadId> =
            self.ahead.under_way.iter().filter(|(_, call)| call.can_be_repeated).map(|(tid, _)| tid).collect();
        for tid in waiting.into_iter().filter(|&tid| has_one(tid)) {
            let _ = tracee::interrupt(tid);
        }
    }

    fn write_mirrors(&mut self) {
        if self.ahead.is_doomed {
            return;
        }
        let mut writes = Vec::new();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for mirror in self.ahead.mirrors.all.iter_mut().filter(|mirror| mirror.is_certain) {
            for (offset, bytes) in mirror.take_changes() {
                let Ok(file) = mirror.file.try_clone() else { continue };
                let change = ContentChange::Write { offset: Some(offset), bytes: Arc::new(bytes) };
                let (inode, slot, pid) = (mirror.inode, mirror.slot, mirror.pid);
                writes.push(DeferredWrite { file, inode, change, slot, pid, number: 0, since });
            }
        }
        for write in writes {
            self.make_mapped_write(&write);
        }
    }

    /// Before a call of a process that depends on nothing any more: it gets the files in the place of their mirrors.
    /// False: not now.
    pub(in crate::ahead) fn leave_mirrors(&mut self, stopped: &Stopped, call: &Call) -> Result<bool> {
        if !self.ahead.mirrors.is_any_certain() {
            return Ok(true);
        }
        let Ok(maps) = procfs::unless_gone(procfs::Maps::of(call.pid)) else { return Ok(false) };
        let mut parts: Vec<(Inode, Vec<Mapping>)> = Vec::new();
        for mirror in self.ahead.mirrors.certain() {
            let is_its = |found: &procfs::Mapping<'_>| {
                (rustix::fs::makedev(found.device.0, found.device.1), found.inode) == mirror.copied
            };
            let right =
                |found: &procfs::Mapping<'_>, letter: char, bit| if found.rights.contains(letter) { bit } else { 0 };
            let mapping = |found: procfs::Mapping<'_>| Mapping {
                copied: mirror.copied,
                at: found.range.0,
                len: found.range.1 - found.range.0,
                protection: right(&found, 'r', PROT_READ) | right(&found, 'w', PROT_WRITE),
                offset: found.offset,
            };
            let mappings: Vec<Mapping> = maps.iter().filter(is_its).map(mapping).collect();
            if !mappings.is_empty() {
                parts.push((mirror.copied, mappings));
            }
        }
        if parts.is_empty() {
            return Ok(true);
        }
        let Some(others) = self.stop_others(call.pid, stopped.tid())? else { return Ok(false) };
        self.write_mirrors();
        let done = parts.into_iter().try_for_each(|(copied, mappings)| {
            let mirror = self.ahead.mirrors.all.iter().find(|mirror| mirror.copied == copied);
            match mirror.and_then(|mirror| mirror.file.try_clone().ok()) {
                Some(file) => self.map_over(stopped, &file, &mappings),
                None => Ok(()),
            }
        });
        self.let_go_on(call.pid, others)?;
        done?;
        self.forget_unmapped_mirrors();
        Ok(true)
    }

    /// What nobody maps any more has been written for the last time.
    pub(in crate::ahead) fn forget_unmapped_mirrors(&mut self) {
        if self.ahead.mirrors.is_empty() {
            return;
        }
        self.write_mirrors();
        let pids = self.processes();
        let is_mapped =
            |copied: Inode| pids.iter().any(|&pid| may_map(procfs::Maps::of(pid), |found| *found == copied));
        self.ahead.mirrors.all.retain(|mirror| !mirror.is_certain || is_mapped(mirror.copied));
    }
}
