//! Transfers that a stop of ours, or an ignored signal, has ended early: natively they would have gone on.

use super::{is_ignored, position, Look, Position, Saved};
use crate::requests::parts_of;
use agent_abi::{
    Frame, ThreadPage, World, PHASE_PARTIAL, PROCESSES_MAX, PROCESS_MAPPED_SERVED, REST_TELLS, REST_WAITS,
};
use procfs::{MagicLink, ThreadId};
use std::mem::offset_of;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::Ordering;
use syscall_table::nr;
use tracee::{AgentImage, Registers, RemoteCalls, Result, Stopped, TraceError};

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

fn is_told_cut(tid: ThreadId, registers: &Registers) -> bool {
    let cut = registers.gs_base.wrapping_add(offset_of!(ThreadPage, cut) as u64);
    tracee::read_value::<u64>(tid, cut).is_ok_and(|cut| cut != 0)
}

/// The agent tells when the call that its thread is in has been made, also if nobody was asked about it.
pub fn tell_when_made(stopped: &Stopped) -> Result<()> {
    say_of_rest(stopped.tid(), stopped.registers()?.gs_base, |rest| rest | REST_TELLS)
}

/// A thread is taken back from a wait with a limit: it makes its call again for the time that is left (`agent::timed`).
pub fn waits_again(tid: ThreadId, page: u64) -> Result<()> {
    say_of_rest(tid, page, |rest| rest | REST_WAITS)
}

/// Its call is over: the next one waits for all of its time.
pub fn waits_anew(tid: ThreadId, page: u64) -> Result<()> {
    say_of_rest(tid, page, |rest| rest & !REST_WAITS)
}

fn say_of_rest(tid: ThreadId, page: u64, say: impl Fn(u64) -> u64) -> Result<()> {
    let at = page.wrapping_add(offset_of!(ThreadPage, rest) as u64);
    let kernel = |what, source| TraceError::kernel(what, tid, source);
    let said: u64 = tracee::read_value(tid, at).map_err(|source| kernel("read the agent's page", source))?;
    let now = say(said);
    if now == said {
        return Ok(());
    }
    tracee::write_bytes(tid, at, &now.to_ne_bytes()).map_err(|source| kernel("write the agent's page", source))
}

/// The call of a thread that was stopped on our behalf, if the thread is in the middle of it, and the call's count is
/// short only if a signal comes, or it is made in pieces of which none may be missing. It is to go on with the rest, as
/// if it had not been stopped; a call that ended by that stop is told so (`agent::cut`).
pub fn call_to_finish(stopped: &Stopped, image: &AgentImage, world: &World) -> Result<Option<Frame>> {
    let (tid, registers) = (stopped.tid(), stopped.registers()?);
    let saved = match position(stopped, image, &registers)? {
        Position::Partial(saved) => {
            let goes_on = is_whole(&saved.frame) || sends_file(tid, &saved.frame);
            return Ok(goes_on.then_some(saved.frame));
        }
        Position::Done(saved) => saved,
        Position::After => Saved::read(tid, registers.gs_base)?,
        _ => return Ok(None),
    };
    let frame = saved.frame;
    if writes_copied_pieces(&saved, world) {
        return Ok(Some(frame));
    }
    // Between two pieces, or on its way to the next one.
    if is_whole(&frame) && (saved.phase == PHASE_PARTIAL || is_told_cut(tid, &registers)) {
        return Ok(Some(frame));
    }
    let is_at_end = registers.rip == image.header.gate_program_after && registers.rax as i64 > 0;
    if sends_file(tid, &frame) {
        if is_at_end && registers.orig_rax == nr::write && registers.rax < registers.rdx {
            tell_cut(tid, &registers)?;
        }
        return Ok(Some(frame));
    }
    let is_short = || asked(tid, &frame).is_some_and(|len| registers.rax < len);
    if !is_at_end || !is_whole(&frame) || !is_short() || !is_stream(tid, frame.args[0] as i32) {
        return Ok(None);
    }
    tell_cut(tid, &registers)?;
    Ok(Some(frame))
}

/// Some calls that never wait look whether a signal has come once in a while, and end with a part: chance (`getrandom`,
/// `/dev/urandom`) and `/dev/zero`. A thread that was stopped in one on our behalf gets the rest here.
pub fn fill_at_once(stopped: &Stopped, image: &AgentImage) -> Result<()> {
    let (tid, registers) = (stopped.tid(), stopped.registers()?);
    let is_made = registers.rip == image.header.gate_program_after || !image.contains(registers.rip);
    let (nr, before, at, len, last) = match registers.orig_rax {
        nr::getrandom => (libc::SYS_getrandom, None, registers.rdi, registers.rsi, registers.rdx),
        nr::read => (libc::SYS_read, Some(registers.rdi), registers.rsi, registers.rdx, 0),
        _ => return Ok(()),
    };
    let mut done = registers.rax;
    let is_short = done as i64 > 0 && done < len;
    if !is_made || !is_short || before.is_some_and(|fd| !is_endless(tid, fd as i32)) {
        return Ok(());
    }
    let mut calls = RemoteCalls::in_company(stopped, image.header.gate_program)?;
    while done < len {
        let (at, left) = (at.wrapping_add(done), len - done);
        let more = match before {
            None => calls.call(nr, &[at, left, last])?,
            Some(fd) => calls.call(nr, &[fd, at, left])?,
        };
        // Where nothing can be written is told with the next call.
        if more <= 0 {
            break;
        }
        done += more as u64;
    }
    let (mut registers, mask) = (*calls.registers(), calls.mask());
    registers.rax = done;
    calls.finish_sending_again(&registers, mask)
}

/// Whether a descriptor has bytes without end, of which nobody else has fewer then.
fn is_endless(tid: ThreadId, fd: i32) -> bool {
    const OF_MEMORY: u32 = 1;
    /// `zero`, `random`, `urandom`.
    const ENDLESS: [u32; 3] = [5, 8, 9];
    MagicLink::Fd(fd).metadata(tid).is_ok_and(|found| {
        let device = found.rdev();
        found.file_type().is_char_device()
            && rustix::fs::major(device) == OF_MEMORY
            && ENDLESS.contains(&rustix::fs::minor(device))
    })
}

/// Whether a call sends a file to a socket, which takes all of it: the agent does so in pieces (`agent::transfer`).
fn sends_file(tid: ThreadId, frame: &Frame) -> bool {
    let is_socket = |fd| MagicLink::Fd(fd).metadata(tid).is_ok_and(|found| found.file_type().is_socket());
    frame.nr == nr::sendfile && is_socket(frame.args[0] as i32)
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

/// Whether a descriptor is a pipe, a socket or a terminal: elsewhere a count is short for other reasons.
fn is_stream(tid: ThreadId, fd: i32) -> bool {
    /// `tty`, `console` and the like, and the ends of pseudo-terminals (the kernel's devices.txt).
    const TERMINALS: [std::ops::RangeInclusive<u32>; 2] = [4..=5, 136..=143];
    MagicLink::Fd(fd).metadata(tid).is_ok_and(|found| {
        let kind = found.file_type();
        let is_terminal = || TERMINALS.iter().any(|majors| majors.contains(&rustix::fs::major(found.rdev())));
        kind.is_fifo() || kind.is_socket() || kind.is_char_device() && is_terminal()
    })
}
