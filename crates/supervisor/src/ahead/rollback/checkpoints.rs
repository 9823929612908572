//! The checkpoints that a rollback may need.
//!
//! A checkpoint is *prepared* before the core is told of the call that needs it: whether it can be taken decides
//! whether the call may be made at all. The core then says that it is to be *kept*, or says nothing, and it is given
//! up. While it is *new*, its vessel has not let go of what others could notice (`vessels`).
//!
//! **Invariants**
//! * At most one is prepared.
//! * What is new is kept.

use crate::ahead::calls::rights::{children_have_our_numbers, has_our_numbers};
use crate::ahead::events::own_page;
use crate::ahead::process::thread_group::Then;
use crate::ahead::{Call, SCRATCH};
use crate::event_loop::Supervisor;
use crate::resent_signals::Original;
use checkpoint::{Known, ThreadedVessel, VesselId};
use procfs::{ProcessId, TaskId, ThreadId};
use speculation::Checkpoint;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use tracee::{Result, Stopped};

/// A checkpoint and what goes with it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub vessel: ThreadedVessel,
    pub pid: ProcessId,
    /// The thread that made it necessary.
    pub tid: ThreadId,
    /// The call at whose entry it was taken; none if it was taken elsewhere.
    pub call: Option<Call>,
    /// What the other threads were doing.
    pub others: HashMap<ThreadId, Then>,
    /// Descriptors that were open.
    pub descriptors: Vec<i32>,
    /// Sockets among them, by inode.
    pub sockets: HashSet<u64>,
    /// What they lead to: device and inode.
    pub open: HashSet<(u64, u64)>,
    /// What the signals of ours were that waited for its threads.
    pub sent_again: HashMap<ThreadId, Vec<Original>>,
    /// How many processes had been born in the world ([`crate::ahead::process::kin::Kin::births`]).
    pub births: u64,
    /// Whether the kernel waited for its children itself, if that has changed since.
    pub no_zombies: Option<bool>,
    /// How many calls of the process had become speculations by injection, the one at whose entry it was taken
    /// included.
    pub injected: u64,
    /// Its parent, which waits for it, if its memory was to be its parent's.
    pub apart: Option<ProcessId>,
    /// What was known of it, by thread: a new program begins with less.
    pub known: Vec<agent_abi::Known>,
    /// What it had registered with the kernel for `membarrier`, as that call says it, if it has executed since.
    pub barriers: Option<u64>,
}

/// All of a world.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Checkpoints {
    kept: HashMap<Checkpoint, Kept>,
    prepared: Option<Kept>,
    /// By the process id of their vessels.
    new: HashMap<TaskId, Checkpoint>,
}

impl Checkpoints {
    /// One was taken, for the call that the core is about to be told of. What an earlier one was for came to nothing:
    /// it is to be given up.
    #[must_use]
    pub fn prepare(&mut self, kept: Kept) -> Option<Kept> {
        self.prepared.replace(kept)
    }

    /// The one that is prepared, if one is: nobody wants it any more.
    pub fn take_prepared(&mut self) -> Option<Kept> {
        self.prepared.take()
    }

    pub fn is_any_prepared(&self) -> bool {
        self.prepared.is_some()
    }

    /// The one that is prepared is the core's from here on. Whose it is.
    pub fn keep_prepared(&mut self, checkpoint: Checkpoint) -> ProcessId {
        let kept = self.prepared.take();
        let kept = kept.expect("whoever tells the core of a call that needs a checkpoint prepares it before");
        let pid = kept.pid;
        self.new.insert(kept.vessel.id().into(), checkpoint);
        self.kept.insert(checkpoint, kept);
        pid
    }

    /// One that is kept. `None`: its process has ended for good.
    pub fn get(&self, checkpoint: Checkpoint) -> Option<&Kept> {
        self.kept.get(&checkpoint)
    }

    /// It is put back or given up. `None`: its process has ended for good.
    pub fn take(&mut self, checkpoint: Checkpoint) -> Option<Kept> {
        let kept = self.kept.remove(&checkpoint)?;
        self.new.remove(&kept.vessel.id().into());
        Some(kept)
    }

    /// All that a process has, the one that is prepared included.
    pub fn take_all_of(&mut self, pid: ProcessId) -> Vec<Kept> {
        let of_it: Vec<Checkpoint> =
            self.kept.iter().filter(|(_, kept)| kept.pid == pid).map(|(&checkpoint, _)| checkpoint).collect();
        let prepared = self.prepared.take_if(|prepared| prepared.pid == pid);
        prepared.into_iter().chain(of_it.into_iter().filter_map(|checkpoint| self.take(checkpoint))).collect()
    }

    /// All that there are, the one that is prepared included.
    pub fn take_all(&mut self) -> impl Iterator<Item = Kept> {
        self.new.clear();
        std::mem::take(&mut self.kept).into_values().chain(self.prepared.take())
    }

    /// Those that were new. None is any more: their vessels are to let go of what others could notice.
    pub fn take_new(&mut self) -> impl Iterator<Item = &Kept> {
        std::mem::take(&mut self.new).into_values().filter_map(|checkpoint| self.kept.get(&checkpoint))
    }

    /// The one whose vessel this is, if that may not have stopped yet.
    pub fn of_unsettled_vessel(&self, task: TaskId) -> Option<&Kept> {
        let prepared = self.prepared.as_ref().filter(|kept| TaskId::from(kept.vessel.id()) == task);
        prepared.or_else(|| self.kept.get(self.new.get(&task)?))
    }

    /// How many are kept.
    pub fn count(&self) -> usize {
        self.kept.len()
    }

    /// Those that are kept, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.kept.values()
    }

    /// Those of a process that are kept, in no order.
    pub fn of(&self, pid: ProcessId) -> impl Iterator<Item = &Kept> {
        self.iter().filter(move |kept| kept.pid == pid)
    }

    /// Whether a process has none, also none that is prepared.
    pub fn has_none(&self, pid: ProcessId) -> bool {
        self.iter().chain(&self.prepared).all(|kept| kept.pid != pid)
    }

    /// The one of a process that was kept last.
    pub fn last_of(&self, pid: ProcessId) -> Option<&Kept> {
        let of_it = self.kept.iter().filter(|(_, kept)| kept.pid == pid);
        of_it.max_by_key(|(checkpoint, _)| checkpoint.0).map(|(_, kept)| kept)
    }

    /// What the kernel clears when the first thread of a process ends, where that is not known yet.
    pub fn note_tid_address(&mut self, pid: ProcessId, address: u64) {
        let of_it = self.kept.values_mut().filter(|kept| kept.pid == pid);
        of_it.for_each(|kept| kept.vessel.note_tid_address(address));
    }

    /// What a process has registered for `membarrier`, for those that do not know it yet.
    pub fn note_barriers(&mut self, pid: ProcessId, registered: u64) {
        for kept in self.kept.values_mut().filter(|kept| kept.pid == pid) {
            kept.barriers.get_or_insert(registered);
        }
    }

    /// Whether the kernel waits for the children of a process itself has been like this so far, and is about to change:
    /// for those that do not know it yet.
    pub fn note_no_zombies(&mut self, pid: ProcessId, before: bool) {
        for kept in self.kept.values_mut().filter(|kept| kept.pid == pid) {
            kept.no_zombies.get_or_insert(before);
        }
    }

    /// How many processes had been born when a process was last kept while that was like this.
    pub fn births_with_no_zombies(&self, pid: ProcessId, no_zombies: bool) -> Option<u64> {
        let were_so = self.of(pid).filter(|kept| kept.no_zombies == Some(no_zombies));
        were_so.map(|kept| kept.births).max()
    }

    /// Whether somebody who is put back will have this file open: device and inode.
    pub fn has_open(&self, inode: (u64, u64)) -> bool {
        self.iter().any(|kept| kept.open.contains(&inode))
    }

    /// Whether somebody who is put back will have a socket, by its inode.
    pub fn has_socket(&self, ino: u64) -> bool {
        self.iter().any(|kept| kept.sockets.contains(&ino))
    }

    /// The vessels of all that there are.
    pub fn vessels(&self) -> impl Iterator<Item = VesselId> + '_ {
        self.iter().chain(&self.prepared).map(|kept| kept.vessel.id())
    }
}

impl Supervisor {
    pub(in crate::ahead) fn can_be_checkpointed(&self, pid: ProcessId) -> bool {
        !self.shares_mappings(pid) && self.stands_for_itself(pid)
    }

    /// Whether a process may have memory in common with others that is no copy.
    pub(in crate::ahead) fn shares_mappings(&self, pid: ProcessId) -> bool {
        self.has_flag(pid, agent_abi::PROCESS_SHARES)
    }

    /// What need not be looked for in a process, of which this thread has stopped.
    pub(in crate::ahead) fn known_of(&self, pid: ProcessId, tid: ThreadId) -> Known {
        let first = self.tracees.get(&pid.leader());
        let slot = first.map(|tracee| &self.world().processes[tracee.process]);
        let one_thread = slot.is_some_and(|slot| slot.users.load(Ordering::Relaxed) == 1);
        let has_not = |flag: u32| slot.is_some_and(|slot| slot.flags.load(Ordering::Relaxed) & flag == 0);
        let (no_timers, no_advice) = (has_not(agent_abi::PROCESS_TIMERS), has_not(agent_abi::PROCESS_KEEPS_MEMORY));
        // Whoever was born while nobody asked may run in its parent's memory: then its agent has a page of its own
        // there.
        let has_own_page =
            |thread: usize| self.world().threads[thread].page.load(Ordering::Relaxed) == own_page(thread);
        let own_memory = self.ahead.is_always_on()
            || first.and_then(|tracee| tracee.thread).is_some_and(|thread| !has_own_page(thread));
        let confined = self.confined.iter().rev().find(|confined| confined.tid() == tid);
        let affinity_of = confined.map(|confined| (tid, confined.before()));
        Known { one_thread, no_timers, own_memory, no_advice, affinity_of, ..Known::default() }
    }

    /// What is known of a process.
    pub(in crate::ahead) fn known_in_slots(&mut self, pid: ProcessId) -> Vec<agent_abi::Known> {
        let threads = self.threads_of(pid);
        let slots = threads.iter().filter_map(|tid| Some(self.tracees.get(tid)?.process));
        slots.map(|slot| self.world().processes[slot].known()).collect()
    }

    /// A process has been put back. It may have begun a program since, of which less is known.
    pub(in crate::ahead) fn is_known_again(&mut self, kept: &Kept) {
        for tid in self.threads_of(kept.pid) {
            let Some(tracee) = self.tracees.get(&tid) else { continue };
            kept.known.iter().for_each(|known| self.world().processes[tracee.process].is_known_again(known));
        }
    }

    /// A process is about to begin a new program. With the memory goes the address that the kernel clears when the
    /// first thread ends, and a checkpoint of that thread alone has not got it; and what is registered for `membarrier`
    /// (Linux tells of that since 6.3). Nobody but the thread can be asked, and few checkpoints need it.
    pub(in crate::ahead) fn note_what_exec_resets(&mut self, stopped: &Stopped, pid: ProcessId) -> Result<()> {
        const PR_GET_TID_ADDRESS: u64 = 40;
        const GET_REGISTRATIONS: u64 = 1 << 9;
        let lacks_address = self.ahead.checkpoints.of(pid).any(|kept| kept.vessel.lacks_tid_address());
        let lacks_address = lacks_address && stopped.tid() == pid.leader();
        if !lacks_address && self.ahead.checkpoints.of(pid).all(|kept| kept.barriers.is_some()) {
            return Ok(());
        }
        let at = stopped.registers()?.gs_base - SCRATCH;
        let mut remote = self.remote_calls(stopped)?;
        let registered = remote.call(libc::SYS_membarrier, &[GET_REGISTRATIONS, 0, 0])?;
        let told = match lacks_address {
            true => remote.call(libc::SYS_prctl, &[PR_GET_TID_ADDRESS, at])?,
            false => -1,
        };
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        self.ahead.checkpoints.note_barriers(pid, u64::try_from(registered).unwrap_or(0));
        if let (0, Ok(address)) = (told, tracee::read_value::<u64>(pid, at)) {
            self.ahead.checkpoints.note_tid_address(pid, address);
        }
        Ok(())
    }

    /// What a process had registered for `membarrier` it has again. What is registered already does no harm.
    pub(in crate::ahead) fn register_barriers(&mut self, kept: &Kept, stopped: &Stopped) -> Result<()> {
        let registered = kept.barriers.unwrap_or(0);
        if registered == 0 {
            return Ok(());
        }
        let mut remote = self.remote_calls(stopped)?;
        for bit in (0..32).map(|bit| 1 << bit).filter(|bit| registered & bit != 0) {
            remote.call(libc::SYS_membarrier, &[bit, 0, 0])?;
        }
        let signals = remote.finish()?;
        self.hold_signals(kept.pid, signals);
        Ok(())
    }

    fn has_flag(&self, pid: ProcessId, flag: u32) -> bool {
        let has = |process: usize| self.world().processes[process].flags.load(Ordering::Relaxed) & flag != 0;
        self.tracees.get(&pid.leader()).is_some_and(|tracee| has(tracee.process))
    }

    /// Whether a process has its memory for itself but for its mappings, no record locks, and our rights and numbers.
    pub(in crate::ahead) fn stands_for_itself(&self, pid: ProcessId) -> bool {
        self.tracees.contains_key(&pid.leader())
            && (!self.has_company(pid.leader()) || self.is_one_process(pid))
            && !self.ahead.children.shares_memory(pid)
            && !self.may_have_locks(pid)
            && (!self.has_flag(pid, agent_abi::PROCESS_PRIVILEGES)
                || self.has_our_rights(pid) && has_our_numbers(pid.leader()) && children_have_our_numbers(pid))
    }

    pub(in crate::ahead) fn may_have_locks(&self, pid: ProcessId) -> bool {
        let flags = |slot: usize| self.world().processes[slot].flags.load(Ordering::Relaxed);
        let slot = self.tracees.get(&pid.leader()).map(|tracee| tracee.process);
        slot.is_none_or(|slot| flags(slot) & agent_abi::PROCESS_LOCKS != 0) && has_locks(pid)
    }
}

/// Whether a process has record locks: it loses them when it closes any descriptor of the file, which a rollback does
/// too, and cannot get them back.
fn has_locks(pid: ProcessId) -> bool {
    let is_its = |lock: &procfs::FileLock| lock.kind == procfs::LockKind::Record && lock.pid == Some(pid);
    procfs::file_locks().map_or(true, |locks| locks.iter().any(is_its))
}
