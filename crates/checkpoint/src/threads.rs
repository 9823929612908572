//! Checkpoints of processes with several threads: one vessel for the memory, and what the kernel keeps for each thread.
//!
//! All threads are stopped while a checkpoint is taken or put back; whoever calls has taken those that were in calls
//! back to before them, or interrupted them there: then the call begins again. A fork copies the first thread only. Of
//! each other one its registers, masks and addresses are noted, which each has to be asked for by calls of its own.
//!
//! Put back, threads that are still there get their state again. Threads that have ended since are made again with
//! their ids (`clone3` with `set_tid`, which needs `CAP_CHECKPOINT_RESTORE` in the process). Threads that were born
//! since end.

use crate::answer::Caller;
use crate::state::{self, STACK_LEN};
use crate::vessel::{missing, pending_of, restarting};
use crate::{areas, CheckpointError, Copied, Known, Result, ToReap, Vessel, VesselId};
use procfs::{ProcessId, Status, ThreadId};
use std::collections::hash_map::{Entry, HashMap};
use tracee::process_state::{self as outside, RseqConfiguration};
use tracee::thread_state::{self, Scheduling};
use tracee::{Registers, SignalInfo, Stop, Stopped, TraceError};

const WORD: usize = 8;
/// What makes a thread of its maker, attached to us and stopped before its first instruction.
const FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_PTRACE;

/// A checkpoint of a process with all its threads.
#[derive(Debug)]
#[must_use = "a vessel is either discarded or kept: dropped, it stays until its tracer ends"]
pub struct ThreadedVessel {
    vessel: Vessel,
    /// What the first thread lets the kernel clear when it ends, if there were others or it was said.
    tid_address: Option<u64>,
    others: Vec<Thread>,
}

/// One thread, beside what is in memory. The first thread's state is the vessel's.
#[derive(Debug)]
struct Thread {
    tid: ThreadId,
    registers: Registers,
    extended: Vec<u8>,
    mask: u64,
    signal: Option<SignalInfo>,
    pending: Vec<SignalInfo>,
    alternate_stack: Vec<u8>,
    tid_address: u64,
    robust_list: (u64, u64),
    rseq: RseqConfiguration,
    name: Vec<u8>,
    privileges: Vec<String>,
    affinity: Vec<u64>,
    scheduling: Scheduling,
}

impl ThreadedVessel {
    /// Take a checkpoint of process `pid`, whose threads are all in `threads`, stopped. `gate` is the address of a
    /// `syscall` instruction in it. Afterwards all threads stand where they stood; see [`Vessel::fork`].
    pub fn fork(pid: ProcessId, threads: &HashMap<ThreadId, Stopped>, gate: u64) -> Result<Self> {
        let stopped: HashMap<ThreadId, &Stopped> = threads.iter().map(|(&tid, stopped)| (tid, stopped)).collect();
        let this = Self::fork_known(pid, &stopped, gate, Known::default(), &mut Vec::new())?;
        match this.vessel.settle() {
            Ok(()) => Ok(this),
            Err(error) => this.discard(&threads[&pid.leader()], gate).and(Err(error)),
        }
    }

    /// The same of a process that has one thread; see [`Vessel::fork_known`].
    pub fn fork_alone(p: &Stopped, gate: u64, known: Known, zombies: &mut Vec<ToReap>) -> Result<Self> {
        let vessel = Vessel::fork_known(p, gate, known, zombies)?;
        Ok(Self { vessel, tid_address: None, others: Vec::new() })
    }

    /// The same with what the caller knows; see [`Vessel::fork_known`].
    pub fn fork_known(
        pid: ProcessId,
        threads: &HashMap<ThreadId, &Stopped>,
        gate: u64,
        known: Known,
        zombies: &mut Vec<ToReap>,
    ) -> Result<Self> {
        let leader =
            *threads.get(&pid.leader()).ok_or(CheckpointError::Unsupported("a first thread that has ended"))?;
        refuse(pid, threads)?;
        let scratch = state::writable(&areas::of(pid)?)?;
        let before = tracee::read_bytes(pid, scratch, STACK_LEN).map_err(CheckpointError::access("memory", pid))?;
        let mut tids: Vec<ThreadId> = threads.keys().copied().filter(|tid| !tid.is_leader_of(pid)).collect();
        tids.sort_unstable();
        let looked: Result<(Vec<Thread>, u64)> = (|| {
            let others =
                tids.iter().map(|tid| Thread::of(threads[tid], gate, scratch, &known)).collect::<Result<_>>()?;
            let mut caller = Caller::of(leader, gate, true)?;
            let tid_address = tid_address(&mut caller, scratch)?;
            caller.finish()?;
            Ok((others, tid_address))
        })();
        tracee::write_bytes(pid, scratch, &before).map_err(CheckpointError::access("memory", pid))?;
        let (others, tid_address) = looked?;
        let vessel = Vessel::fork_among(leader, gate, known, zombies, threads.len() as u64)?;
        Ok(Self { vessel, tid_address: Some(tid_address), others })
    }

    /// Whether it does not know what its process's only thread lets the kernel clear when it ends. To ask for that
    /// costs the thread a call, and only a new program changes it (`exec`).
    pub fn lacks_tid_address(&self) -> bool {
        self.tid_address.is_none()
    }

    /// What that is. Nothing, if it is known.
    pub fn note_tid_address(&mut self, address: u64) {
        self.tid_address.get_or_insert(address);
    }

    /// The vessel: its memory, and the first thread.
    pub fn vessel(&self) -> &Vessel {
        &self.vessel
    }

    /// The vessel's own number.
    pub fn id(&self) -> VesselId {
        self.vessel.id()
    }

    /// The other threads that it has kept.
    pub fn others(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.others.iter().map(|thread| thread.tid)
    }

    /// The signal for which a thread had stopped, if it had: `restore` leaves it to the caller to deliver it.
    pub fn signal(&self, tid: ThreadId) -> Option<SignalInfo> {
        match self.others.iter().find(|thread| thread.tid == tid) {
            Some(thread) => thread.signal,
            None => self.vessel.signal().filter(|_| tid.is_leader_of(self.vessel.of())),
        }
    }

    /// The signals that were pending, of which thread, and whether for the whole process (with the first thread). A
    /// restore sends those again that are not pending any more.
    pub fn pending(&self) -> impl Iterator<Item = (ThreadId, SignalInfo, bool)> + '_ {
        let first = self.vessel.of().leader();
        let of_process = self.vessel.pending().iter().map(move |&(info, shared)| (first, info, shared));
        let of_others =
            self.others.iter().flat_map(|thread| thread.pending.iter().map(|&info| (thread.tid, info, false)));
        of_process.chain(of_others)
    }

    /// Put the process back. `threads` has all threads that it has now, stopped; afterwards it has those of the
    /// checkpoint. `gate` is the address of a `syscall` instruction in the program that it runs *now*.
    ///
    /// After an error other than `Unsupported` the process is half of each: kill it.
    pub fn restore(&self, threads: &mut HashMap<ThreadId, Stopped>, gate: u64) -> Result<Copied> {
        self.restore_known(threads, gate, Known::default())
    }

    /// The same with what the caller knows; see [`Vessel::restore_known`].
    pub fn restore_known(&self, threads: &mut HashMap<ThreadId, Stopped>, gate: u64, known: Known) -> Result<Copied> {
        let pid = self.vessel.of();
        let leader =
            threads.remove(&pid.leader()).ok_or(CheckpointError::Unsupported("a first thread that has ended"))?;
        let stops = std::mem::take(threads);
        let mut others = Others { kept: &self.others, tid_address: self.tid_address, stops, waiting: HashMap::new() };
        let copied = match self.vessel.restore_among(&leader, gate, known, &mut others) {
            // It may be missing something only because it is dying.
            Err(error @ CheckpointError::Unsupported(_)) => match leader.registers() {
                Ok(_) => Err(error),
                Err(gone) => Err(gone.into()),
            },
            copied => copied,
        };
        *threads = others.stops;
        threads.insert(pid.leader(), leader);
        copied
    }

    /// Give the checkpoint up. All threads of its process are stopped, `leader` is the first of them.
    pub fn discard(self, leader: &Stopped, gate: u64) -> Result<()> {
        self.vessel.discard_among(leader, gate)
    }

    /// Give the vessel alone to whoever takes it from here.
    pub fn into_vessel(self) -> Vessel {
        self.vessel
    }
}

/// What cannot be kept must not be tried.
fn refuse(pid: ProcessId, threads: &HashMap<ThreadId, &Stopped>) -> Result<()> {
    for (&tid, stopped) in threads {
        match stopped.stop() {
            Stop::Signal(_) | Stop::SystemCall | Stop::Trap => {}
            Stop::Group(_) => return Err(CheckpointError::Unsupported("a process stopped by job control")),
            _ => return Err(CheckpointError::Unsupported("a thread that ends or executes")),
        }
        if !tid.is_leader_of(pid) && !shares_files(tid, pid)? {
            return Err(CheckpointError::Unsupported("a thread with descriptors or directories of its own"));
        }
    }
    Ok(())
}

fn shares_files(tid: ThreadId, pid: ProcessId) -> Result<bool> {
    thread_state::same_files(tid, pid.leader()).map_err(CheckpointError::access("descriptors", tid))
}

fn tid_address(caller: &mut Caller, scratch: u64) -> Result<u64> {
    const PR_GET_TID_ADDRESS: u64 = 40;
    caller.call("prctl(PR_GET_TID_ADDRESS)", libc::SYS_prctl, &[PR_GET_TID_ADDRESS, scratch])?;
    let bytes = caller.read(scratch, WORD)?;
    Ok(bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
}

impl Thread {
    fn of(stopped: &Stopped, gate: u64, scratch: u64, known: &Known) -> Result<Self> {
        let tid = stopped.tid();
        let access = |what| CheckpointError::access(what, tid);
        let status = Status::of(tid)?;
        let mut caller = Caller::of(stopped, gate, true)?;
        caller.call("sigaltstack", libc::SYS_sigaltstack, &[0, scratch])?;
        let alternate_stack = caller.read(scratch, STACK_LEN)?;
        let tid_address = tid_address(&mut caller, scratch)?;
        let (registers, mask, signal) = (*caller.calls.registers(), caller.calls.mask(), caller.calls.signal());
        caller.finish()?;
        Ok(Self {
            tid,
            registers,
            extended: stopped.extended_state()?,
            mask,
            signal,
            pending: pending_of(stopped, false)?,
            alternate_stack,
            tid_address,
            robust_list: stopped.robust_list().map_err(access("robust list"))?,
            rseq: stopped.rseq_configuration()?,
            name: procfs::read(tid, "comm")?,
            privileges: status.privileges().into_iter().map(str::to_owned).collect(),
            affinity: match &known.affinity_of {
                Some((confined, affinity)) if *confined == tid => affinity.clone(),
                _ => outside::affinity(tid).map_err(access("affinity"))?,
            },
            scheduling: thread_state::scheduling(tid).map_err(access("scheduling"))?,
        })
    }

    /// Policy, nice value and processors.
    fn restore_from_outside(&self) -> Result<()> {
        let error = |what: &'static str, unsupported: &'static str| {
            let tid = self.tid;
            move |error: std::io::Error| match error.kind() {
                std::io::ErrorKind::PermissionDenied => CheckpointError::Unsupported(unsupported),
                _ => CheckpointError::access(what, tid)(error),
            }
        };
        let scheduling = || error("scheduling", "a nice value raised since");
        if thread_state::scheduling(self.tid).map_err(scheduling())? != self.scheduling {
            thread_state::set_scheduling(self.tid, &self.scheduling).map_err(scheduling())?;
        }
        let affinity = || error("affinity", "processors that may not be used any more");
        if outside::affinity(self.tid).map_err(affinity())? != self.affinity {
            outside::set_affinity(self.tid, &self.affinity).map_err(affinity())?;
        }
        Ok(())
    }

    /// Make it again, in the process of `maker`.
    fn make(&self, maker: &mut Caller, scratch: u64) -> Result<Stopped> {
        const ARGUMENTS: usize = 11;
        const SET_TID: usize = 8;
        let len = (ARGUMENTS * WORD) as u64;
        let mut arguments = [0u64; ARGUMENTS];
        arguments[0] = FLAGS as u64;
        arguments[SET_TID] = scratch + len;
        arguments[SET_TID + 1] = 1;
        let mut bytes: Vec<u8> = arguments.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(self.tid.as_raw().to_le_bytes());
        maker.write(scratch, &bytes)?;
        thread_state::forget_former(self.tid);
        maker.call("clone3", libc::SYS_clone3, &[scratch, len])?;
        Ok(tracee::await_stop(self.tid)?.ok_or(TraceError::Gone(self.tid.into()))?)
    }

    /// What it alone has and can only set itself, with bytes that lie at `scratch` for a moment.
    fn give_state(
        &self,
        stopped: &Stopped,
        pid: ProcessId,
        gate: u64,
        scratch: u64,
        waiting: &[SignalInfo],
    ) -> Result<()> {
        let tid = self.tid;
        let mut caller = Caller::of(stopped, gate, true)?;
        caller.write(scratch, &self.alternate_stack)?;
        caller.call("sigaltstack", libc::SYS_sigaltstack, &[scratch, 0])?;
        if procfs::read(tid, "comm")? != self.name {
            caller.write_name(scratch, self.name.strip_suffix(b"\n").unwrap_or(&self.name))?;
            caller.call("prctl", libc::SYS_prctl, &[libc::PR_SET_NAME as u64, scratch])?;
        }
        let list = stopped.robust_list().map_err(CheckpointError::access("robust list", tid))?;
        if list != self.robust_list {
            let (head, len) = self.robust_list;
            caller.call("set_robust_list", libc::SYS_set_robust_list, &[head, len])?;
        }
        for info in missing(waiting, &self.pending, &pending_of(stopped, false)?) {
            // To itself a thread may send a signal with anything in it.
            caller.write(scratch, info.as_bytes())?;
            let arguments = [pid.as_raw() as u64, tid.as_raw() as u64, info.number() as u64, scratch];
            caller.call("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, &arguments)?;
        }
        caller.finish()
    }

    /// The end: nothing is changed in memory any more.
    fn leave(&self, stopped: &Stopped, gate: u64) -> Result<()> {
        let now = stopped.rseq_configuration()?;
        let mut caller = Caller::of(stopped, gate, true)?;
        if now != self.rseq && self.rseq.pointer != 0 {
            state::register_rseq(&mut caller, &self.rseq)?;
        }
        caller.call("set_tid_address", libc::SYS_set_tid_address, &[self.tid_address])?;
        stopped.set_extended_state(&self.extended)?;
        Ok(caller.calls.finish_sending_again(&restarting(self.registers), self.mask)?)
    }
}

/// The other threads of a process that is put back: what they were, and those that are there.
#[derive(Debug)]
pub(crate) struct Others<'a> {
    kept: &'a [Thread],
    /// The first thread's, if it is known.
    tid_address: Option<u64>,
    stops: HashMap<ThreadId, Stopped>,
    /// Signals that wait for them, before dispositions are set: that may throw some away.
    waiting: HashMap<ThreadId, Vec<SignalInfo>>,
}

impl Others<'_> {
    /// There are none, and were none.
    pub fn none() -> Self {
        Self { kept: &[], tid_address: None, stops: HashMap::new(), waiting: HashMap::new() }
    }

    /// How many threads the process has now.
    pub fn company(&self) -> usize {
        1 + self.stops.len()
    }

    /// Whether there are, or will be, other threads than the first.
    pub fn is_company(&self) -> bool {
        !self.stops.is_empty() || !self.kept.is_empty()
    }

    /// What cannot be put back must not be begun. `now`: the first thread's.
    pub fn refuse(&self, pid: ProcessId, now: &Status) -> Result<()> {
        /// `CAP_SYS_ADMIN`, `CAP_CHECKPOINT_RESTORE`: with either of them a thread may choose an id.
        const MAKERS: u64 = 1 << 21 | 1 << 40;
        for thread in self.kept {
            if self.stops.contains_key(&thread.tid) {
                if Status::of(thread.tid)?.privileges() != thread.privileges {
                    return Err(CheckpointError::Unsupported("privileges or filters changed since"));
                }
                if !shares_files(thread.tid, pid)? {
                    return Err(CheckpointError::Unsupported("descriptors or directories taken apart since"));
                }
                continue;
            }
            // In a name space of ids of its own it has other ids there.
            let is_named_by_us = now.field("NSpid")?.split_whitespace().count() == 1;
            if now.bits("CapEff")? & MAKERS == 0 || !is_named_by_us {
                return Err(CheckpointError::Unsupported("threads ended since"));
            }
            if now.privileges() != thread.privileges {
                return Err(CheckpointError::Unsupported("privileges or filters changed since"));
            }
            if !procfs::is_unknown(thread.tid) {
                return Err(CheckpointError::Unsupported("a thread whose id somebody else has by now"));
            }
        }
        Ok(())
    }

    pub fn restore_from_outside(&self) -> Result<()> {
        self.kept
            .iter()
            .filter(|thread| self.stops.contains_key(&thread.tid))
            .try_for_each(Thread::restore_from_outside)
    }

    /// Threads that were born since end.
    pub fn end_newborn(&mut self, pid: ProcessId, gate: u64) -> Result<()> {
        let is_kept = |tid: ThreadId| self.kept.iter().any(|thread| thread.tid == tid);
        let newborn: Vec<ThreadId> = self.stops.keys().copied().filter(|&tid| !is_kept(tid)).collect();
        for tid in newborn {
            let Some(stopped) = self.stops.remove(&tid) else { continue };
            for info in stopped.end_alone(gate)? {
                info.send_again(pid, pid.leader());
            }
        }
        Ok(())
    }

    /// Before the memory goes.
    pub fn unregister(&self, gate: u64) -> Result<()> {
        for thread in self.kept {
            let Some(stopped) = self.stops.get(&thread.tid) else { continue };
            let now = stopped.rseq_configuration()?;
            if now != thread.rseq && now.pointer != 0 {
                let mut caller = Caller::of(stopped, gate, true)?;
                state::unregister_rseq(&mut caller, &now)?;
                caller.finish()?;
            }
        }
        Ok(())
    }

    /// Which signals wait for them.
    pub fn note_pending(&mut self) -> Result<()> {
        for (&tid, stopped) in &self.stops {
            self.waiting.insert(tid, pending_of(stopped, false)?);
        }
        Ok(())
    }

    /// The memory is laid out as it was, and is still to be given its contents.
    pub fn give_state(&mut self, leader: &mut Caller, gate: u64, scratch: u64) -> Result<()> {
        if let Some(address) = self.tid_address {
            leader.call("set_tid_address", libc::SYS_set_tid_address, &[address])?;
        }
        for thread in self.kept {
            let stopped = match self.stops.entry(thread.tid) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(ended) => {
                    let made = ended.insert(thread.make(leader, scratch)?);
                    thread.restore_from_outside()?;
                    made
                }
            };
            let waiting = self.waiting.get(&thread.tid).map_or(&[][..], Vec::as_slice);
            thread.give_state(stopped, leader.tid.leads(), gate, scratch, waiting)?;
        }
        Ok(())
    }

    /// Everything is in its place.
    pub fn leave(&self, gate: u64) -> Result<()> {
        self.kept.iter().try_for_each(|thread| thread.leave(&self.stops[&thread.tid], gate))
    }
}
