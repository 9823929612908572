//! Calls that make processes and threads.

use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::process::vfork;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object};
use speculation::Dependent;
use syscall_table::Op;

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
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

pub(in crate::ahead) fn plan_fork(call: &Call) -> Plan {
    let flags = clone_flags(call).unwrap_or(CLONE_VM);
    if flags & CLONE_OF_THREAD == CLONE_OF_THREAD && flags & CLONE_UNUSUAL_OF_THREAD == 0 {
        // It is taken back with its process.
        return Plan::new(Class::Free).once();
    }
    let is_vfork = vfork::is_vfork(flags);
    if flags & (CLONE_VM | CLONE_UNUSUAL) != 0 && !is_vfork {
        return Plan::new(Class::Barrier).once();
    }
    let mut plan = Plan::new(if is_vfork { Class::Apart } else { Class::Tracked }).once();
    plan.observes.push(Dependent::Process(process(call.pid)));
    plan.modifying(Object::Children(call.pid), Intent::Nothing)
}
