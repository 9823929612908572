//! Transfers that a stop of ours, or an ignored signal, has ended early: natively they would have gone on.

use super::{is_ignored, position, Look, Position, Saved};
use crate::requests::parts_of;
use agent_abi::{Frame, ThreadPage, World, PROCESSES_MAX, PROCESS_MAPPED_SERVED};
use procfs::{MagicLink, ThreadId};
use std::mem::offset_of;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::Ordering;
use syscall_table::nr;
use tracee::{AgentImage, Registers, Result, Stopped, TraceError};

/// Whether a signal has come with the end of a transfer that goes on with the rest if that signal is ignored: without
/// a tracer the kernel drops it before it can end anything (`agent::cut`). The thread is told so.
pub fn goes_on(stopped: &Stopped, look: &Look, image: &AgentImage) -> Result<bool> {
    let registers = &look.registers;
    let at_end = registers.rip == image.header.gate_program_after && registers.rax as i64 > 0;
    let nr = match &look.position {
        _ if !at_end => return Ok(false),
        Position::Done(saved) => saved.frame.nr,
        Position::After => Saved::read(stopped.tid(), registers.gs_base)?.frame.nr,
        _ => return Ok(false),
    };
    let is_transfer =
        matches!(nr, nr::write | nr::writev | nr::sendto | nr::sendmsg | nr::sendmmsg | nr::recvfrom | nr::recvmsg);
    if !is_transfer || !is_ignored(stopped.tid(), stopped.signal()) {
        return Ok(false);
    }
    tell_cut(stopped.tid(), registers)?;
    Ok(true)
}

/// The agent is told that its call was cut short, and goes on with the rest (`agent::cut`).
fn tell_cut(tid: ThreadId, registers: &Registers) -> Result<()> {
    let cut = registers.gs_base.wrapping_add(offset_of!(ThreadPage, cut) as u64);
    let kernel = |source| TraceError::kernel("write the agent's page", tid, source);
    tracee::write_bytes(tid, cut, &1u64.to_ne_bytes()).map_err(kernel)
}

/// Whether a thread that was stopped on our behalf is in the middle of a call whose count is short only if a signal
/// comes, or that is made in pieces of which none may be missing. It is to go on with the rest, as if it had not been
/// stopped; a call that ended by that stop is told so (`agent::cut`).
pub fn goes_on_with_rest(stopped: &Stopped, image: &AgentImage, world: &World) -> Result<bool> {
    let (tid, registers) = (stopped.tid(), stopped.registers()?);
    let saved = match position(stopped, image, &registers)? {
        Position::Partial(saved) => return Ok(is_whole(&saved.frame)),
        Position::Done(saved) => saved,
        Position::After => Saved::read(tid, registers.gs_base)?,
        _ => return Ok(false),
    };
    if writes_copied_pieces(&saved, world) {
        return Ok(true);
    }
    let is_at_end = registers.rip == image.header.gate_program_after && registers.rax as i64 > 0;
    let is_short = || asked(tid, &saved.frame).is_some_and(|len| registers.rax < len);
    if !is_at_end || !is_whole(&saved.frame) || !is_short() || !is_stream(tid, saved.frame.args[0] as i32) {
        return Ok(false);
    }
    tell_cut(tid, &registers)?;
    Ok(true)
}

/// Whether a call transfers all that it is asked for, however long that takes.
fn is_whole(frame: &Frame) -> bool {
    let waits_for_all = |flags: u64| flags & libc::MSG_WAITALL as u64 != 0;
    match frame.nr {
        nr::recvfrom => waits_for_all(frame.args[3]),
        nr::recvmsg => waits_for_all(frame.args[2]),
        nr::sendto | nr::sendmsg => true,
        nr => writes(nr),
    }
}

fn writes(nr: u64) -> bool {
    matches!(nr, nr::write | nr::writev | nr::pwrite64 | nr::pwritev | nr::pwritev2)
}

/// Whether a call may be a write to a file that is made in pieces (`agent::transfer::write_served`).
fn writes_copied_pieces(saved: &Saved, world: &World) -> bool {
    let flags = &world.processes[saved.process % PROCESSES_MAX].flags;
    writes(saved.frame.nr) && flags.load(Ordering::Relaxed) & PROCESS_MAPPED_SERVED != 0
}

/// How many bytes a call is to transfer, as the program's memory says.
fn asked(tid: ThreadId, frame: &Frame) -> Option<u64> {
    const PARTS_AT: u64 = 16;
    let (parts, len) = match frame.nr {
        nr::write | nr::sendto | nr::recvfrom => return Some(frame.args[2]),
        nr::writev => (frame.args[1], frame.args[2]),
        nr::sendmsg | nr::recvmsg => {
            let [parts, len] = tracee::read_value(tid, frame.args[1].wrapping_add(PARTS_AT)).ok()?;
            (parts, len)
        }
        _ => return None,
    };
    parts_of(tid, parts, len)?.iter().try_fold(0u64, |sum, &[_, len]| sum.checked_add(len))
}

/// Whether a descriptor is a pipe or a socket: elsewhere a count is short for other reasons.
fn is_stream(tid: ThreadId, fd: i32) -> bool {
    MagicLink::Fd(fd).metadata(tid).is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}
