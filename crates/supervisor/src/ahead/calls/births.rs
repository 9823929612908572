//! Calls that make processes and threads.

use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::process::vfork;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object};
use speculation::Dependent;
use syscall_table::Op;

const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const SIGCHLD: u64 = libc::SIGCHLD as u64;
/// `CLONE_FILES`, `CLONE_FS`, `CLONE_PARENT`, and all new namespaces.
const CLONE_UNUSUAL: u64 = 0x400 | 0x200 | 0x8000 | 0x7e02_0000 | 0x80;
/// What a thread has in common with its process: `CLONE_VM`, `CLONE_FS`, `CLONE_FILES`, `CLONE_SIGHAND`,
/// `CLONE_THREAD`.
const CLONE_OF_THREAD: u64 = 0x1_0f00;
/// `CLONE_PIDFD`, `CLONE_VFORK`, `CLONE_PARENT`, and all new namespaces.
const CLONE_UNUSUAL_OF_THREAD: u64 = 0x1000 | CLONE_VFORK | 0x8000 | 0x7e02_0000 | 0x80;

/// Whether a call makes a process with memory of its own.
pub(in crate::ahead) fn makes_process(call: &Call) -> bool {
    clone_flags(call).is_some_and(|flags| flags & CLONE_VM == 0)
}

/// What a process, or thread, that a call makes has in common with its maker; `None`: it makes none.
fn clone_flags(call: &Call) -> Option<u64> {
    match syscall_table::op(call.frame.nr)? {
        Op::Fork => Some(0),
        Op::Vfork => Some(CLONE_VM | CLONE_VFORK),
        Op::Clone => Some(call.frame.args[0]),
        Op::Clone3 => Some(tracee::read_value::<u64>(call.tid, call.frame.args[0]).unwrap_or(CLONE_VM)),
        _ => None,
    }
}

/// The signal by which the parent of a process that a call makes is told of its end; 0: none. `None`: it is not known.
fn exit_signal(call: &Call) -> Option<u64> {
    const EXIT_SIGNAL: u64 = 32;
    const SIGNAL: u64 = 0xff;
    match syscall_table::op(call.frame.nr)? {
        Op::Clone => Some(call.frame.args[0] & SIGNAL),
        Op::Clone3 => tracee::read_value(call.tid, call.frame.args[0] + EXIT_SIGNAL).ok(),
        _ => Some(SIGCHLD),
    }
}

/// Where a call wants the descriptor of the process that it makes.
pub(in crate::ahead) fn pidfd_address(call: &Call) -> Option<u64> {
    const PIDFD: u64 = 8;
    clone_flags(call).filter(|flags| flags & CLONE_PIDFD != 0)?;
    match syscall_table::op(call.frame.nr)? {
        Op::Clone => Some(call.frame.args[2]),
        Op::Clone3 => tracee::read_value(call.tid, call.frame.args[0] + PIDFD).ok(),
        _ => None,
    }
}

pub(in crate::ahead) fn plan_fork(call: &Call) -> Plan {
    let flags = clone_flags(call).unwrap_or(CLONE_VM);
    if flags & CLONE_OF_THREAD == CLONE_OF_THREAD && flags & CLONE_UNUSUAL_OF_THREAD == 0 {
        // It is taken back with its process.
        return Plan::new(Class::Free).once();
    }
    let is_vfork = vfork::is_vfork(flags);
    // What tells of its end we tell, and that is SIGCHLD.
    let is_told_as_usual = matches!(exit_signal(call), Some(0 | SIGCHLD));
    if flags & (CLONE_VM | CLONE_UNUSUAL) != 0 && !is_vfork || !is_told_as_usual {
        return Plan::new(Class::Barrier).once();
    }
    let mut plan = Plan::new(if is_vfork { Class::Apart } else { Class::Tracked }).once();
    plan.observes.push(Dependent::Process(process(call.pid)));
    plan.modifying(Object::Children(call.pid), Intent::Nothing)
}
