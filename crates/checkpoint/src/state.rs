//! What a process has beside memory and registers. What fork copied is asked of the vessel, when it is needed.

use crate::answer::Caller;
use crate::{areas, CheckpointError, Result, VesselId};
use procfs::{MagicLink, ProcessId, Status, ThreadId};
use std::io;
use tracee::process_state as outside;

const ACTION_LEN: usize = 32;
pub(crate) const STACK_LEN: usize = 24;
const TIMER_LEN: usize = 32;
/// Of a timer's bytes (`struct itimerval`), those that say how often it comes. The others say when it comes next.
const INTERVAL_LEN: usize = TIMER_LEN / 2;
const SET_LEN: u64 = 8;
const LIMITS: u32 = 16;
/// Below what a function may use under its stack pointer without moving it.
const RED_ZONE: u64 = 128;

/// Interval timers: real, virtual, profiling. A child has none, so what is left of them is noted when the checkpoint is
/// taken.
#[derive(Debug, Default)]
pub(crate) struct Timers([[u8; TIMER_LEN]; 3]);

impl Timers {
    pub fn of(caller: &mut Caller) -> Result<Self> {
        let scratch = (caller.calls.registers().rsp - RED_ZONE - TIMER_LEN as u64) & !15;
        let (scratch, before) = match caller.read(scratch, TIMER_LEN) {
            Ok(before) => (scratch, before),
            Err(_) => {
                let scratch = writable(&areas::of(caller.tid)?)?;
                (scratch, caller.read(scratch, TIMER_LEN)?)
            }
        };
        let mut timers = [[0; TIMER_LEN]; 3];
        for (which, timer) in timers.iter_mut().enumerate() {
            caller.call("getitimer", libc::SYS_getitimer, &[which as u64, scratch])?;
            timer.copy_from_slice(&caller.read(scratch, TIMER_LEN)?);
        }
        caller.write(scratch, &before)?;
        Ok(Self(timers.map(going_on)))
    }

    pub fn set(&self, caller: &mut Caller, scratch: u64) -> Result<()> {
        for (which, timer) in self.0.iter().enumerate() {
            caller.write(scratch, timer)?;
            caller.call("setitimer", libc::SYS_setitimer, &[which as u64, scratch, 0])?;
        }
        Ok(())
    }
}

/// What `setitimer` needs to start `timer` again. While the signal of a periodic ITIMER_REAL waits, the kernel keeps
/// the timer stopped, and `getitimer` says that nothing is left of its time. The kernel starts the timer again when the
/// signal is taken (`posixtimer_rearm_itimer`). Setting a time of zero would stop the timer for good.
fn going_on(mut timer: [u8; TIMER_LEN]) -> [u8; TIMER_LEN] {
    let (interval, left) = timer.split_at_mut(INTERVAL_LEN);
    if left.iter().all(|byte| *byte == 0) {
        left.copy_from_slice(interval);
    }
    timer
}

/// What the vessel's calls say.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Where a few bytes may be written for a moment, in the vessel as in a process laid out like it.
    pub scratch: u64,
    pub brk: u64,
    actions: Vec<(u64, Vec<u8>)>,
    alternate_stack: Vec<u8>,
    dumpable: u64,
}

impl Kept {
    /// `areas`: the vessel's.
    pub fn of(vessel: &mut Caller, areas: &[areas::Area], now: &Status, then: &Status) -> Result<Self> {
        let scratch = writable(areas)?;
        let before = vessel.read(scratch, ACTION_LEN)?;
        let mut actions = Vec::new();
        for signal in changed_signals(now, then)? {
            vessel.call("rt_sigaction", libc::SYS_rt_sigaction, &[signal, 0, scratch, SET_LEN])?;
            actions.push((signal, vessel.read(scratch, ACTION_LEN)?));
        }
        vessel.call("sigaltstack", libc::SYS_sigaltstack, &[0, scratch])?;
        let alternate_stack = vessel.read(scratch, STACK_LEN)?;
        vessel.write(scratch, &before)?;
        let brk = vessel.call("brk", libc::SYS_brk, &[0])?;
        let dumpable = vessel.call("prctl", libc::SYS_prctl, &[libc::PR_GET_DUMPABLE as u64])?;
        Ok(Self { scratch, brk, actions, alternate_stack, dumpable })
    }
}

/// Signals whose dispositions may differ. Of those at their default only SIGCHLD has flags that mean something.
fn changed_signals(now: &Status, then: &Status) -> Result<Vec<u64>> {
    let set = now.bits("SigCgt")?
        | then.bits("SigCgt")?
        | (now.bits("SigIgn")? ^ then.bits("SigIgn")?)
        | 1 << (libc::SIGCHLD - 1);
    Ok((1..=64).filter(|signal| set & 1 << (signal - 1) != 0).collect())
}

pub(crate) fn writable(areas: &[areas::Area]) -> Result<u64> {
    let area = areas.iter().find(|area| area.is_writable_anonymous());
    Ok(area.ok_or(CheckpointError::Unsupported("a process without writable memory"))?.range.start)
}

/// Make everything but memory and registers as it is in the vessel. What `scratch` points to is changed.
pub(crate) fn restore(
    caller: &mut Caller,
    vessel: VesselId,
    scratch: u64,
    kept: &Kept,
    now: &Status,
    then: &Status,
) -> Result<()> {
    for (signal, action) in &kept.actions {
        caller.write(scratch, action)?;
        caller.call("rt_sigaction", libc::SYS_rt_sigaction, &[*signal, scratch, 0, SET_LEN])?;
    }
    caller.write(scratch, &kept.alternate_stack)?;
    caller.call("sigaltstack", libc::SYS_sigaltstack, &[scratch, 0])?;
    if now.umask()? != then.umask()? {
        caller.call("umask", libc::SYS_umask, &[then.umask()?])?;
    }
    working_directory(caller, vessel, scratch)?;
    let name = procfs::read(vessel, "comm")?;
    if procfs::read(caller.tid, "comm")? != name {
        caller.write_name(scratch, name.strip_suffix(b"\n").unwrap_or(&name))?;
        caller.call("prctl", libc::SYS_prctl, &[libc::PR_SET_NAME as u64, scratch])?;
    }
    let dumpable = caller.call("prctl", libc::SYS_prctl, &[libc::PR_GET_DUMPABLE as u64])?;
    // 2, "only for root", cannot be asked for.
    if dumpable != kept.dumpable && kept.dumpable < 2 {
        caller.call("prctl", libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, kept.dumpable])?;
    }
    let personality = procfs::text(vessel, "personality")?;
    if procfs::text(caller.tid, "personality")? != personality {
        let persona = u64::from_str_radix(personality.trim(), 16).unwrap_or(0);
        caller.call("personality", libc::SYS_personality, &[persona])?;
    }
    core_filter(caller.tid, vessel)?;
    delete_timers(caller)
}

/// What a core dump would hold. Written from outside: the process may have no /proc.
fn core_filter(tid: ThreadId, vessel: VesselId) -> Result<()> {
    let now = match procfs::text(tid, "coredump_filter") {
        // A kernel without core dumps.
        Err(procfs::Error::Missing { .. }) => return Ok(()),
        now => now?,
    };
    let then = procfs::text(vessel, "coredump_filter")?;
    if now == then {
        return Ok(());
    }
    Ok(procfs::write(tid, "coredump_filter", format!("0x{}", then.trim()))?)
}

fn working_directory(caller: &mut Caller, vessel: VesselId, scratch: u64) -> Result<()> {
    let then = MagicLink::Cwd.shown(vessel)?;
    if MagicLink::Cwd.shown(caller.tid)? == then {
        return Ok(());
    }
    // The link leads there even if the directory was removed or renamed meanwhile. Without /proc, its name has to do.
    caller.write_name(scratch, MagicLink::Cwd.path(vessel).as_bytes())?;
    if caller.call("chdir", libc::SYS_chdir, &[scratch]).is_ok() {
        return Ok(());
    }
    caller.write_name(scratch, std::os::unix::ffi::OsStrExt::as_bytes(then.as_os_str()))?;
    caller.call("chdir", libc::SYS_chdir, &[scratch]).map(drop)
}

/// A process that has POSIX timers gets no checkpoint: those that it has now are younger.
fn delete_timers(caller: &mut Caller) -> Result<()> {
    let timers = procfs::text(caller.tid, "timers")?;
    for id in timers.lines().filter_map(|line| line.strip_prefix("ID: ")?.trim().parse::<u64>().ok()) {
        caller.call("timer_delete", libc::SYS_timer_delete, &[id])?;
    }
    Ok(())
}

/// Limits, nice value, processors, favour with the out-of-memory killer: what can be set from outside, and what only
/// the privileged may raise again. This comes first, so that a refusal changes nothing that matters.
pub(crate) fn restore_from_outside(pid: ProcessId, vessel: VesselId, cores: &[u64]) -> Result<()> {
    let error = |what: &'static str, unsupported: &'static str| {
        move |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => CheckpointError::Unsupported(unsupported),
            _ => CheckpointError::access(what, pid)(error),
        }
    };
    let limits = || error("limits", "limits lowered since");
    for resource in 0..LIMITS {
        let then = outside::limit(vessel.process(), resource).map_err(limits())?;
        if outside::limit(pid, resource).map_err(limits())? != then {
            outside::set_limit(pid, resource, then).map_err(limits())?;
        }
    }
    let nice = || error("nice value", "a nice value raised since");
    let then = outside::niceness(vessel.thread()).map_err(nice())?;
    if outside::niceness(pid.leader()).map_err(nice())? != then {
        outside::set_niceness(pid.leader(), then).map_err(nice())?;
    }
    let affinity = || error("affinity", "processors that may not be used any more");
    if outside::affinity(pid.leader()).map_err(affinity())? != cores {
        outside::set_affinity(pid.leader(), cores).map_err(affinity())?;
    }
    let score = || error("oom_score_adj", "oom_score_adj raised since");
    let then = procfs::read(vessel, "oom_score_adj")?;
    if procfs::read(pid, "oom_score_adj")? != then {
        procfs::write(pid, "oom_score_adj", then).map_err(io::Error::from).map_err(score())?;
    }
    Ok(())
}

/// Registered areas of restartable sequences: the kernel kills a process whose registered area it cannot write.
pub(crate) fn unregister_rseq(caller: &mut Caller, now: &outside::RseqConfiguration) -> Result<()> {
    const UNREGISTER: u64 = 1;
    let arguments = [now.pointer, now.size.into(), UNREGISTER, now.signature.into()];
    caller.call("rseq", libc::SYS_rseq, &arguments).map(drop)
}

pub(crate) fn register_rseq(caller: &mut Caller, then: &outside::RseqConfiguration) -> Result<()> {
    let arguments = [then.pointer, then.size.into(), 0, then.signature.into()];
    caller.call("rseq", libc::SYS_rseq, &arguments).map(drop)
}
