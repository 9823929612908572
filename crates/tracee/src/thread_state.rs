//! One thread among several of its process: waiting for it, what it alone has, and its end.

#[allow(unsafe_code)]
pub(crate) mod sys;

use crate::{RemoteCalls, Result, SignalInfo, Stopped, TraceError};
use procfs::ThreadId;
use std::io;
use std::time::Duration;

/// Policy, priority and nice value of a thread (`struct sched_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling([u8; sys::SCHEDULING_LEN]);

/// How a thread is scheduled.
pub fn scheduling(tid: ThreadId) -> io::Result<Scheduling> {
    sys::scheduling(tid).map(Scheduling)
}

/// Change how a thread is scheduled.
pub fn set_scheduling(tid: ThreadId, scheduling: &Scheduling) -> io::Result<()> {
    sys::set_scheduling(tid, &scheduling.0)
}

/// Whether two threads have the same table of descriptors (`CLONE_FILES`) and the same directories and umask
/// (`CLONE_FS`). Threads of one process mostly do, but need not (`unshare`).
pub fn same_files(a: ThreadId, b: ThreadId) -> io::Result<bool> {
    sys::same_files(a, b)
}

/// How long a wait that looks whether a first thread is dead pauses between two looks, at first and at most.
const PAUSE: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// What a wait for several threads has found.
pub(crate) enum Next {
    /// This has happened to a thread, be it one of them or not.
    Event(ThreadId, i32),
    /// This one of them is dead. The event loop hears of its end later: the kernel tells of a first thread's end when
    /// all other threads of the process have ended.
    Dead(ThreadId),
}

/// Wait for the next thing that happens to any thread of ours. A first thread may be dead by now, be it that its
/// process was killed, or that it went on from its stop at the end just before it was interrupted. The kernel tells of
/// that only after the other threads have ended: whoever waited for it alone would wait for ever. `ends_stand`: some
/// thread stands at its end, so that this is likely. `None` when there is no thread left.
pub(crate) fn next_of<'a>(
    ends_stand: bool,
    awaited: impl Iterator<Item = &'a ThreadId> + Clone,
) -> io::Result<Option<Next>> {
    let mut pause = PAUSE;
    let mut looks_for_dead = ends_stand;
    loop {
        match sys::look_own()? {
            None => return Ok(None),
            Some(Some((tid, status))) => return Ok(Some(Next::Event(tid, status))),
            Some(None) => {}
        }
        // The end of a thread that is not the first one can be waited for a moment later: the event loop hears of it.
        let dead = || awaited.clone().find(|&&tid| procfs::has_ended(tid));
        if let Some(&dead) = looks_for_dead.then(dead).flatten() {
            return Ok(Some(Next::Dead(dead)));
        }
        crate::sys::await_child_signal(pause);
        if !ends_stand {
            pause = (pause * 2).min(PAUSE_MAX);
        }
        looks_for_dead = true;
    }
}

/// Whether this status of wait(2) is a thread's stop on the way to its end (`PTRACE_EVENT_EXIT`).
pub(crate) fn stands_at_end(status: i32) -> bool {
    libc::WIFSTOPPED(status) && status >> 16 == libc::PTRACE_EVENT_EXIT
}

/// Wait for the next thing that happens to a thread; what happens to others meanwhile is kept for the event loop. If
/// its process dies, the first thread is reported only after all others: `None`, as soon as it is dead.
pub(crate) fn wait_among(tid: ThreadId) -> io::Result<Option<i32>> {
    let mut ends_stand = crate::sys::is_end_kept();
    while let Some(next) = next_of(ends_stand, std::iter::once(&tid))? {
        match next {
            Next::Event(other, status) if other == tid => return Ok(Some(status)),
            Next::Event(other, status) => {
                ends_stand |= stands_at_end(status);
                crate::sys::keep_for_later(other, status);
            }
            Next::Dead(_) => break,
        }
    }
    Ok(None)
}

/// What was kept for the event loop of a thread that had this id is not to be told: another one is about to have it.
pub fn forget_former(tid: ThreadId) {
    while crate::sys::take_kept(tid).is_some() {}
}

impl Stopped {
    /// Let this thread end, and no other one. It tells nobody in memory (`CLONE_CHILD_CLEARTID`, robust futexes). Its
    /// end is kept for the event loop. Answers signals that could not wait in the kernel, which are the process's.
    pub fn end_alone(self, gate: u64) -> Result<Vec<SignalInfo>> {
        const LIST_LEN: u64 = 24;
        const NO_CALL: u64 = u64::MAX;
        let tid = self.tid();
        let mut calls = RemoteCalls::in_company(&self, gate)?;
        calls.call(libc::SYS_set_tid_address, &[0])?;
        calls.call(libc::SYS_set_robust_list, &[0, LIST_LEN])?;
        let mut collected = calls.finish()?;
        self.set_signal_mask(u64::MAX)?;
        let registers = self.registers()?;
        self.set_registers(&crate::Registers {
            rip: gate,
            rax: libc::SYS_exit as u64,
            orig_rax: NO_CALL,
            rdi: 0,
            rsp: 0,
            ..registers
        })?;
        loop {
            crate::sys::resume(tid, libc::PTRACE_CONT, 0)?;
            let kernel = |source| TraceError::Kernel { what: "wait for the end", task: tid.into(), source };
            let Some(status) = wait_among(tid).map_err(kernel)? else { return Ok(collected) };
            if !libc::WIFSTOPPED(status) {
                crate::sys::keep_for_later(tid, status);
                return Ok(collected);
            }
            // Where it stops on the way there does not matter: the filter, its last stop.
            if status >> 16 == 0 {
                collected.push(self.signal_info()?);
            }
        }
    }
}
