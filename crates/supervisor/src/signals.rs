//! A signal arrives: where is the thread, and how does it look as if we were not there (interposition.md, 4)?
//!
//! * In the program: deliver.
//! * In the agent, before the program's call was made, or in the call when it was interrupted without effect: take the
//!   thread back to its call site, registers and all; the kernel then interrupts or restarts the call there as it would
//!   have done without us.
//! * In the agent, after the call: let it finish, instruction by instruction, then deliver. Where only the program's
//!   registers are left to be loaded, load them.
//! * A handler, or a core, shows the thread at the program's own call, not in a stub, where the call has stayed in its
//!   place (`call_sites`): who unwinds the stack goes by that address.

mod transfers;

use transfers::{waits_again, waits_anew};

pub use transfers::{call_to_finish, fill_at_once, goes_on, tell_when_made};

use crate::same_core;
use agent_abi::{
    AgentHeader, Frame, ThreadPage, World, AFTER_LEAVES, AFTER_OBSERVES, AFTER_REPEATS, AFTER_REPEATS_AND_FINISHES,
    AFTER_WAITS, OWN_DESCRIPTORS_MAX, PHASE_BEFORE, PHASE_PARTIAL, PROCESSES_MAX, REPEATS, THREADS_MAX,
    THREAD_PAGE_OFFSET,
};
pub(crate) use procfs::SignalSets;
use procfs::ThreadId;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use syscall_table::nr;
use tracee::{AgentImage, Registers, RemoteCalls, Result, SignalInfo, Stopped, TraceError, RESTARTS};

/// What the agent has written down about a thread.
struct Saved {
    program_rsp: u64,
    phase: u32,
    thread: usize,
    process: usize,
    after: u64,
    /// Descriptors of the agent's own that are open, each with one more; and where the thread notes them.
    own: [u64; OWN_DESCRIPTORS_MAX],
    own_at: u64,
    /// Any are open, or the thread's page says so.
    has_noted: bool,
    frame: Frame,
}

/// The beginning of a `ThreadPage`, and the frame, which stands right below it where the thread's stack begins.
#[repr(C)]
#[derive(Clone, Copy)]
struct FrameAndPage {
    frame: Frame,
    words: [u64; 7],
    own: [u64; OWN_DESCRIPTORS_MAX],
}

impl tracee::RemoteMemory for FrameAndPage {}

impl Saved {
    fn read(tid: ThreadId, page: u64) -> Result<Self> {
        let kernel = |source| TraceError::kernel("read the agent's page", tid, source);
        let FrameAndPage { frame, words, own } =
            tracee::read_value(tid, page.wrapping_sub(offset_of!(FrameAndPage, words) as u64)).map_err(kernel)?;
        Ok(Self {
            program_rsp: words[1],
            phase: words[3] as u32,
            thread: words[4] as u32 as usize,
            process: (words[4] >> 32) as usize,
            after: words[6],
            own,
            has_noted: own != [0; OWN_DESCRIPTORS_MAX],
            own_at: page.wrapping_add(offset_of!(ThreadPage, own) as u64),
            frame,
        })
    }

    /// A descriptor of the agent's own was opened or closed just now, and that is not noted yet.
    fn correct_own(&mut self, header: &AgentHeader, registers: &Registers) {
        let at = registers.rip;
        let (note, number) = if (header.gate_open_own_after..header.gate_open_own_noted).contains(&at) {
            (registers.r9, (registers.rax as i64).saturating_add(1).max(0) as u64)
        } else if at == header.gate_close_own_after {
            (registers.rsi, 0)
        } else {
            return;
        };
        if let Some(own) = self.own.get_mut((note.wrapping_sub(self.own_at) / 8) as usize) {
            *own = number;
            self.has_noted |= number != 0;
        }
    }

    /// Give the thread other registers. Descriptors of the agent's own, which it does not come to close, are closed for
    /// it. To do so is never to wait: they are of files of domains or of `/proc`, or open as names only.
    fn put(&self, stopped: &Stopped, image: &AgentImage, registers: &Registers) -> Result<()> {
        if !self.has_noted {
            return stopped.set_registers(registers);
        }
        let kernel = |source| TraceError::kernel("write the agent's page", stopped.tid(), source);
        let none = [0; OWN_DESCRIPTORS_MAX * size_of::<u64>()];
        tracee::write_bytes(stopped.tid(), self.own_at, &none).map_err(kernel)?;
        let mut calls = RemoteCalls::in_company(stopped, image.header.gate_program)?;
        for number in self.own.iter().filter_map(|noted| noted.checked_sub(1)) {
            calls.call(libc::SYS_close, &[number])?;
        }
        let mask = calls.mask();
        calls.finish_sending_again(registers, mask)
    }
}

const _: () = assert!(offset_of!(ThreadPage, after) == 6 * 8 && offset_of!(ThreadPage, thread) == 4 * 8);
const _: () = assert!(offset_of!(ThreadPage, own) == 7 * 8);

/// A stopped thread's registers, and where it is.
pub struct Look {
    registers: Registers,
    position: Position,
}

/// Look where a thread is.
pub fn look(stopped: &Stopped, image: &AgentImage) -> Result<Look> {
    let registers = stopped.registers()?;
    Ok(Look { position: position(stopped, image, &registers)?, registers })
}

/// Where a thread is.
enum Position {
    /// The program's own code.
    Program,
    /// On its way in: all registers but the stack pointer are the program's.
    Entering,
    /// Nothing has happened yet.
    Before(Saved),
    /// The call was interrupted without effect.
    Interrupted(Saved),
    /// The call has been made, and only what it observed is left to be noted.
    Done(Saved),
    /// A part of the call has been made, and nothing of it is left to be done: it ends there.
    Partial(Saved),
    /// The call has been made.
    After,
    /// Nothing is left but to give the program its registers back.
    Leaving(Saved),
}

fn position(stopped: &Stopped, image: &AgentImage, registers: &Registers) -> Result<Position> {
    let at = registers.rip;
    let header = &image.header;
    if !image.contains(at) {
        return Ok(Position::Program);
    }
    if (header.entry..header.entry_saved).contains(&at) {
        return Ok(Position::Entering);
    }
    let is_leaving = (header.leave..header.leave_end).contains(&at);
    let mut saved = match Saved::read(stopped.tid(), registers.gs_base) {
        // A new program whose agent is about to begin: it has no page, or no frame in it, and no call of its program is
        // under way.
        Err(TraceError::Kernel { source, .. }) if source.raw_os_error() == Some(libc::EFAULT) => {
            return Ok(Position::Program)
        }
        other => other?,
    };
    saved.correct_own(header, registers);
    if is_leaving {
        return Ok(Position::Leaving(saved));
    }
    let is_interrupted = RESTARTS.contains(&(registers.rax as i64));
    if at == header.gate_program_after {
        return Ok(match saved.after {
            _ if is_interrupted && saved.phase == PHASE_PARTIAL => Position::Partial(saved),
            _ if is_interrupted => Position::Interrupted(saved),
            // By an ignored signal, and the thread has not gone on since: this is one more signal.
            after if registers.rax as i64 == REPEATS && repeats(after) => Position::Interrupted(saved),
            AFTER_OBSERVES | AFTER_REPEATS => Position::Done(saved),
            AFTER_WAITS => Position::Before(saved),
            _ => Position::After,
        });
    }
    if (header.gate_clone_after..header.gate_clone_end).contains(&at) {
        let before = at == header.gate_clone_after && is_interrupted;
        return Ok(if before { Position::Interrupted(saved) } else { Position::After });
    }
    Ok(match saved.phase {
        _ if at == header.gate_effect_after => Position::After,
        PHASE_BEFORE => Position::Before(saved),
        PHASE_PARTIAL => Position::Partial(saved),
        _ => Position::After,
    })
}

/// Give the thread the registers that its program had at its call site.
fn to_program(registers: &mut Registers, saved: &Saved) {
    let frame = &saved.frame;
    registers.r15 = frame.r15;
    registers.r14 = frame.r14;
    registers.r13 = frame.r13;
    registers.r12 = frame.r12;
    registers.rbp = frame.rbp;
    registers.rbx = frame.rbx;
    [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = frame.args;
    registers.rcx = frame.continuation;
    registers.r11 = frame.rflags;
    registers.eflags = frame.rflags;
    registers.rsp = saved.program_rsp;
}

fn back_to_site(registers: &mut Registers, saved: &Saved) {
    to_program(registers, saved);
    registers.rip = saved.frame.continuation.wrapping_sub(SYSCALL_LEN);
    registers.rax = saved.frame.nr;
    registers.orig_rax = u64::MAX;
}

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SYSCALL_LEN: u64 = SYSCALL.len() as u64;

/// Where the program's own code goes on behind a call that goes on in a stub, if `call_sites` has left the call in its
/// place, behind the jump to the stub. Unwinders know what stands there, and C libraries ask in the handler of a signal
/// whether the thread was in a call that can be cancelled. Of all other calls it is in the stub. To go on there is the
/// same: the stub does nothing but jump there.
fn behind_call(tid: ThreadId, continuation: u64) -> u64 {
    const JUMP: u8 = 0xe9;
    let jump = tracee::read_bytes(tid, continuation, 5).unwrap_or_default();
    let [JUMP, a, b, c, d] = jump[..] else { return continuation };
    let displacement = i32::from_le_bytes([a, b, c, d]);
    let behind = continuation.wrapping_add(5).wrapping_add_signed(displacement.into());
    let call = tracee::read_bytes(tid, behind.wrapping_sub(SYSCALL_LEN), SYSCALL.len());
    if call.is_ok_and(|call| call == SYSCALL) {
        behind
    } else {
        continuation
    }
}

/// The call's own place, of a thread whose call is to be made (again) and goes on at `continuation`. The call is made
/// there with one stop more than in the stub.
fn call_itself(tid: ThreadId, continuation: u64) -> u64 {
    behind_call(tid, continuation).wrapping_sub(SYSCALL_LEN)
}

/// Where a thread is shown whose registers are its program's: at or behind its call if it is in the stub of one that
/// has stayed in its place, and else where it is.
fn shown_at(tid: ThreadId, registers: &Registers) -> u64 {
    let at = registers.rip;
    // Behind an interrupted call that the kernel may begin again two bytes before: that is the same there.
    if registers.orig_rax as i64 >= 0 && RESTARTS.contains(&(registers.rax as i64)) {
        return behind_call(tid, at);
    }
    let Ok(code) = tracee::read_bytes(tid, at, 2) else { return at };
    match code[..] {
        [0xe9, _] => behind_call(tid, at),
        // What `continuation_ahead` knows; most of a program begins otherwise.
        [0x0f, 0x05] | [0xeb, _] | [0xff, 0x25] | [0x48, 0x8d] => {
            continuation_ahead(tid, registers).map_or(at, |continuation| call_itself(tid, continuation))
        }
        _ => at,
    }
}

/// In a frame whose call may have been made, until the agent has written down what it returned.
pub const NO_RESULT: u64 = i64::MIN as u64;

/// What the program's call returned, if it has been made and the thread is still in the agent. The frame held
/// `NO_RESULT` before.
pub fn result_of_call(stopped: &Stopped, image: &AgentImage) -> Result<Option<i64>> {
    let registers = stopped.registers()?;
    let in_register = registers.rax as i64;
    Ok(match position(stopped, image, &registers)? {
        Position::Program | Position::Entering | Position::Before(_) | Position::Interrupted(_) => None,
        Position::Done(_) => Some(in_register),
        Position::Partial(saved) | Position::Leaving(saved) => Some(saved.frame.rax as i64),
        Position::After if registers.rip == image.header.gate_program_after => Some(in_register),
        Position::After => match Saved::read(stopped.tid(), registers.gs_base)?.frame.rax {
            NO_RESULT => Some(in_register),
            written => Some(written as i64),
        },
    })
}

/// If the thread is in the agent and has made a pipe: where the numbers of its ends are.
pub fn pipe_made(stopped: &Stopped, image: &AgentImage) -> Result<Option<u64>> {
    if result_of_call(stopped, image)? != Some(0) {
        return Ok(None);
    }
    let frame = Saved::read(stopped.tid(), stopped.registers()?.gs_base)?.frame;
    Ok(matches!(frame.nr, nr::pipe | nr::pipe2).then_some(frame.args[0]))
}

/// Whether the program's call has been made, and the thread is still in the agent.
pub fn is_call_made(stopped: &Stopped, image: &AgentImage) -> Result<bool> {
    let registers = stopped.registers()?;
    Ok(match position(stopped, image, &registers)? {
        Position::Program | Position::Entering | Position::Before(_) | Position::Interrupted(_) => false,
        Position::Done(_) | Position::Partial(_) | Position::After | Position::Leaving(_) => true,
    })
}

/// The frame is not complete yet, but all registers except the stack pointer are the program's.
fn leave_entry(tid: ThreadId, registers: &mut Registers) -> Result<()> {
    let page = registers.gs_base;
    if (page.wrapping_sub(THREAD_PAGE_OFFSET)..=page).contains(&registers.rsp) {
        registers.rsp = Saved::read(tid, page)?.program_rsp;
    }
    registers.rip = registers.rcx.wrapping_sub(2);
    registers.orig_rax = u64::MAX;
    Ok(())
}

/// Just behind the call, with what it has done so far.
fn to_partial(registers: &mut Registers, saved: &Saved) {
    to_program(registers, saved);
    registers.rip = saved.frame.continuation;
    registers.rax = saved.frame.rax;
    registers.orig_rax = u64::MAX;
}

/// What the kernel says of an interrupted call. A transfer that waits for room waits in `ppoll`
/// (`agent::transfer`), which no handler lets begin again.
fn interruption(saved: &Saved, result: u64) -> u64 {
    const ERESTARTSYS: i64 = -512;
    const ERESTARTNOHAND: i64 = -514;
    let is_transfer = matches!(saved.frame.nr, nr::sendfile | nr::splice | nr::tee | nr::vmsplice);
    match result as i64 {
        ERESTARTNOHAND if is_transfer => ERESTARTSYS as u64,
        // A call with a limit of time, which no handler lets begin again (signal(7)).
        REPEATS => -i64::from(libc::EINTR) as u64,
        _ => result,
    }
}

/// Just behind the call, with the kernel's answer: it decides whether the call begins again. One that goes on with what
/// the kernel remembers of it comes back as `restart_syscall`, and its number is written down.
fn to_interrupted(tid: ThreadId, registers: &mut Registers, saved: &Saved) -> Result<()> {
    const ERESTART_RESTARTBLOCK: i64 = -516;
    let page = registers.gs_base;
    let nr = match saved.frame.nr {
        nr::restart_syscall => restarted_call(tid, page).unwrap_or(nr::restart_syscall),
        nr => nr,
    };
    if registers.rax as i64 == ERESTART_RESTARTBLOCK {
        let kernel = |source| TraceError::kernel("write the agent's page", tid, source);
        let at = page.wrapping_add(offset_of!(ThreadPage, restarts) as u64);
        tracee::write_bytes(tid, at, &nr.to_ne_bytes()).map_err(kernel)?;
    }
    let result = interruption(saved, registers.rax);
    to_program(registers, saved);
    registers.rip = saved.frame.continuation;
    registers.rax = result;
    registers.orig_rax = nr;
    Ok(())
}

/// The call that `restart_syscall` goes on with in a thread. `None`: none was interrupted so, or it has no page yet.
fn restarted_call(tid: ThreadId, page: u64) -> Option<u64> {
    let at = page.wrapping_add(offset_of!(ThreadPage, restarts) as u64);
    tracee::read_value::<u64>(tid, at).ok().filter(|&number| number != 0)
}

/// A thread was put back to before its call. Where that is `restart_syscall`, the kernel would go on with the call that
/// it has interrupted last, which may be one of what was taken back: the thread makes its own call again, as a whole
/// (000, 5.1). `frame`: what it asks, and where that is written; `None` if it is on its way to its call.
pub fn repeat_restarted(stopped: &Stopped, frame: Option<(&mut Frame, u64)>) -> Result<()> {
    let tid = stopped.tid();
    let mut registers = stopped.registers()?;
    match frame {
        Some((frame, at)) if frame.nr == nr::restart_syscall => {
            let Some(number) = restarted_call(tid, registers.gs_base) else { return Ok(()) };
            let kernel = |source| TraceError::kernel("write a call's number", tid, source);
            let at = at.wrapping_add(offset_of!(Frame, nr) as u64);
            tracee::write_bytes(tid, at, &number.to_ne_bytes()).map_err(kernel)?;
            frame.nr = number;
        }
        None if registers.rax == nr::restart_syscall && continuation_ahead(tid, &registers).is_some() => {
            let Some(number) = restarted_call(tid, registers.gs_base) else { return Ok(()) };
            registers.rax = number;
            stopped.set_registers(&registers)?;
        }
        _ => {}
    }
    Ok(())
}

/// Whether a call that an ignored signal interrupts is made again for the time that is left.
fn repeats(after: u64) -> bool {
    matches!(after, AFTER_REPEATS | AFTER_REPEATS_AND_FINISHES | AFTER_WAITS)
}

/// Make a thread that is about to receive a signal, and has not moved since the `look`, look as if it stood in its
/// program. Signals that arrive meanwhile are
/// added to `more`; `has_run` says whether it ran for that.
pub fn leave_agent(
    stopped: Stopped,
    look: Look,
    image: &AgentImage,
    world: &World,
    ignores_traps: bool,
    more: &mut Vec<SignalInfo>,
    has_run: &mut bool,
) -> Result<Option<Stopped>> {
    let Look { mut registers, position } = look;
    if let Position::Interrupted(saved) = &position {
        if repeats(saved.after) && is_ignored(stopped.tid(), stopped.signal()) {
            registers.rax = REPEATS as u64;
            stopped.set_registers(&registers)?;
            return Ok(Some(stopped));
        }
    }
    if registers.rip == image.header.gate_program_after
        && registers.rax as i64 == -i64::from(libc::EINTR)
        && is_ignored(stopped.tid(), stopped.signal())
    {
        // Without a tracer the kernel drops such a signal before it can interrupt anything.
        let saved = Saved::read(stopped.tid(), registers.gs_base)?;
        if repeats(saved.after) {
            registers.rax = REPEATS as u64;
            stopped.set_registers(&registers)?;
            return Ok(Some(stopped));
        }
        leave_call(stopped.tid(), saved.thread, world);
        match saved.phase {
            PHASE_PARTIAL => to_partial(&mut registers, &saved),
            _ => back_to_site(&mut registers, &saved),
        }
        saved.put(&stopped, image, &registers)?;
        return Ok(Some(stopped));
    }
    let tid = stopped.tid();
    let saved = match position {
        Position::Program => {
            // It may be on its way into the agent or out of it, or was taken back to its call for something else.
            let at = shown_at(tid, &registers);
            if at == registers.rip {
                return Ok(Some(stopped));
            }
            registers.rip = at;
            None
        }
        // The kernel drops it, and goes on with the piece that is under way.
        Position::Partial(_)
            if registers.rip == image.header.gate_program_after && is_ignored(stopped.tid(), stopped.signal()) =>
        {
            return Ok(Some(stopped))
        }
        Position::Partial(saved) => {
            leave_call(tid, saved.thread, world);
            to_partial(&mut registers, &saved);
            registers.rip = behind_call(tid, saved.frame.continuation);
            Some(saved)
        }
        Position::Leaving(saved) => {
            to_partial(&mut registers, &saved);
            registers.rip = shown_at(tid, &registers);
            None
        }
        Position::Entering => {
            leave_entry(tid, &mut registers)?;
            registers.rip = call_itself(tid, registers.rcx);
            None
        }
        // Its wait is over, and the call comes next.
        Position::Before(saved)
            if saved.after == AFTER_WAITS
                && registers.rip == image.header.gate_program_after
                && is_ignored(tid, stopped.signal()) =>
        {
            return Ok(Some(stopped))
        }
        Position::Before(saved) => {
            leave_call(tid, saved.thread, world);
            back_to_site(&mut registers, &saved);
            registers.rip = call_itself(tid, saved.frame.continuation);
            Some(saved)
        }
        Position::Interrupted(saved) => {
            leave_call(tid, saved.thread, world);
            to_interrupted(tid, &mut registers, &saved)?;
            registers.rip = behind_call(tid, saved.frame.continuation);
            Some(saved)
        }
        Position::Done(saved) => {
            leave_call(tid, saved.thread, world);
            let result = registers.rax;
            to_program(&mut registers, &saved);
            registers.rip = behind_call(tid, saved.frame.continuation);
            registers.rax = result;
            registers.orig_rax = u64::MAX;
            let process = &world.processes[saved.process % PROCESSES_MAX];
            process.depend(&world.transactions, &world.transactions.dirty());
            Some(saved)
        }
        Position::After => {
            *has_run = true;
            let after = registers.gs_base.wrapping_add(offset_of!(ThreadPage, after) as u64);
            // A thread that has no page has nothing to be told.
            let _ = tracee::write_bytes(tid, after, &AFTER_LEAVES.to_ne_bytes());
            return step_out(stopped, image, ignores_traps, more);
        }
    };
    match saved {
        Some(saved) => saved.put(&stopped, image, &registers)?,
        None => stopped.set_registers(&registers)?,
    }
    Ok(Some(stopped))
}

/// Let a thread go on until it has left the agent. `None`: it stopped to ask the supervisor something, and the signal
/// that it had stopped for has to be sent again.
fn step_out(
    stopped: Stopped,
    image: &AgentImage,
    ignores_traps: bool,
    more: &mut Vec<SignalInfo>,
) -> Result<Option<Stopped>> {
    let Some(stopped) = stopped.step_while(|rip| image.contains(rip), more)? else { return Ok(None) };
    if ignores_traps {
        ignore_traps_again(&stopped, image)?;
    }
    let mut registers = stopped.registers()?;
    let at = shown_at(stopped.tid(), &registers);
    if at != registers.rip {
        registers.rip = at;
        stopped.set_registers(&registers)?;
    }
    Ok(Some(stopped))
}

/// A thread whose process ignores SIGTRAP was stepped. A step ends with a SIGTRAP that cannot be ignored: the kernel
/// has given the signal its default action, and the next one of anybody would end the process.
pub fn ignore_traps_again(stopped: &Stopped, image: &AgentImage) -> Result<()> {
    const SET_LEN: u64 = std::mem::size_of::<u64>() as u64;
    let at = stopped.registers()?.gs_base.wrapping_sub(crate::ahead::SCRATCH);
    let ignore: [u64; 4] = [libc::SIG_IGN as u64, 0, 0, 0];
    let bytes: Vec<u8> = ignore.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let kernel = |source| TraceError::kernel("write an action", stopped.tid(), source);
    tracee::write_bytes(stopped.tid(), at, &bytes).map_err(kernel)?;
    let mut calls = RemoteCalls::new(stopped, image.header.gate_program)?;
    calls.call(libc::SYS_rt_sigaction, &[libc::SIGTRAP as u64, at, 0, SET_LEN])?;
    let (registers, mask) = (*calls.registers(), calls.mask());
    calls.finish_sending_again(&registers, mask)
}

/// A process may send itself any signal with all that comes with it, its sender's name too. The only thread of one,
/// which stands in the program, does so; what was not sent is returned.
pub fn send_to_itself(stopped: &Stopped, image: &AgentImage, signals: &[SignalInfo]) -> Result<Vec<SignalInfo>> {
    let at = stopped.registers()?.gs_base.wrapping_sub(crate::ahead::SCRATCH);
    let mut calls = RemoteCalls::new(stopped, image.header.gate_program)?;
    let (pid, tid) = (calls.call(libc::SYS_getpid, &[])?, calls.call(libc::SYS_gettid, &[])?);
    let mut left = Vec::new();
    for info in signals {
        let is_written = tracee::write_bytes(stopped.tid(), at, info.as_bytes()).is_ok();
        let arguments = [pid as u64, tid as u64, info.number() as u64, at];
        if !is_written || calls.call(libc::SYS_rt_tgsigqueueinfo, &arguments)? != 0 {
            left.push(*info);
        }
    }
    left.extend(calls.finish()?);
    Ok(left)
}

/// The call that a thread is about to make, if it has not made it yet: also where it has come to a call site and no
/// further.
pub fn call_ahead(tid: ThreadId, look: &Look) -> Option<Frame> {
    let registers = &look.registers;
    match &look.position {
        Position::Before(saved) => Some(saved.frame),
        Position::Entering => Some(frame_at_site(registers, registers.rcx)),
        Position::Program => {
            continuation_ahead(tid, registers).map(|continuation| frame_at_site(registers, continuation))
        }
        _ => None,
    }
}

/// What a thread whose registers are its program's asks of the kernel.
fn frame_at_site(registers: &Registers, continuation: u64) -> Frame {
    let args = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
    Frame { nr: registers.rax, args, continuation, ..Frame::default() }
}

/// Where the result is awaited of the call that a thread is about to make: it is at a `syscall`, at the restart point
/// of a stub, or on from there to the agent (`call_sites::stub`).
fn continuation_ahead(tid: ThreadId, registers: &Registers) -> Option<u64> {
    const JMP_SHORT: u8 = 0xeb;
    const LEA_LEN: u64 = 7;
    let at = registers.rip;
    // The restart point and the way into the agent name each other.
    let enter_of = |restart: u64| match tracee::read_bytes(tid, restart, 2).ok()?[..] {
        [JMP_SHORT, distance] => Some(restart.wrapping_add(2).wrapping_add_signed(i64::from(distance as i8))),
        _ => None,
    };
    let loaded_by = |enter: u64| match tracee::read_bytes(tid, enter, LEA_LEN as usize).ok()?[..] {
        [0x48, 0x8d, 0x0d, a, b, c, d] => {
            let distance = i32::from_le_bytes([a, b, c, d]);
            let continuation = enter.wrapping_add(LEA_LEN).wrapping_add_signed(i64::from(distance));
            (enter_of(continuation.wrapping_sub(2)) == Some(enter)).then_some(continuation)
        }
        _ => None,
    };
    // Nothing of ours is so short; only a `syscall` may stand at the end of what can be read.
    let Ok(code) = tracee::read_bytes(tid, at, LEA_LEN as usize) else {
        return (tracee::read_bytes(tid, at, 2).ok()?[..] == [0x0f, 0x05]).then(|| at.wrapping_add(2));
    };
    match code[..] {
        [0x0f, 0x05, ..] => Some(at.wrapping_add(2)),
        [JMP_SHORT, _, ..] => loaded_by(enter_of(at)?).filter(|&continuation| continuation == at.wrapping_add(2)),
        [0xff, 0x25, ..] => loaded_by(at.wrapping_sub(LEA_LEN)),
        [0x48, 0x8d, 0x0d, ..] => loaded_by(at),
        _ => None,
    }
}

/// A thread that is about to make a call looks as if it had been interrupted in it, with one of the kernel's restart
/// codes: the kernel decides whether the call begins again.
pub fn interrupt_call(stopped: &Stopped, image: &AgentImage, world: &World, restart: i64) -> Result<()> {
    let mut registers = stopped.registers()?;
    match position(stopped, image, &registers)? {
        Position::Before(saved) => {
            leave_call(stopped.tid(), saved.thread, world);
            waits_anew(stopped.tid(), registers.gs_base)?;
            registers.rax = restart as u64;
            to_interrupted(stopped.tid(), &mut registers, &saved)?;
            registers.rip = behind_call(stopped.tid(), saved.frame.continuation);
            saved.put(stopped, image, &registers)
        }
        at_site @ (Position::Program | Position::Entering) => {
            let nr = registers.rax;
            if let Position::Entering = at_site {
                leave_entry(stopped.tid(), &mut registers)?;
            }
            let Some(continuation) = continuation_ahead(stopped.tid(), &registers) else { return Ok(()) };
            waits_anew(stopped.tid(), registers.gs_base)?;
            registers.rip = behind_call(stopped.tid(), continuation);
            registers.rax = restart as u64;
            registers.orig_rax = nr;
            stopped.set_registers(&registers)
        }
        _ => Ok(()),
    }
}

/// Whether a call that has just been made ended with EINTR though no signal came: without us it would have gone on.
fn is_interrupted_for_us(registers: &Registers) -> bool {
    registers.rax as i64 == -i64::from(libc::EINTR)
}

/// `take_back`, of a thread whose process may gain dependencies before it goes on. One that has made its call, or a
/// part of it, is told to make nothing more of it: that was allowed under what the process depended on before.
pub fn take_back_to_ask(stopped: &Stopped, image: &AgentImage, world: &World) -> Result<()> {
    let registers = stopped.registers()?;
    let is_over = !(registers.rip == image.header.gate_program_after && is_interrupted_for_us(&registers));
    if let (true, Position::After | Position::Done(_)) = (is_over, position(stopped, image, &registers)?) {
        let after = registers.gs_base.wrapping_add(offset_of!(ThreadPage, after) as u64);
        // A thread that has no page has nothing to be told.
        let _ = tracee::write_bytes(stopped.tid(), after, &AFTER_LEAVES.to_ne_bytes());
    }
    take_back(stopped, image, world)
}

/// Make a thread that was stopped on our behalf look as if it stood in its program, before a call that it has not made,
/// or in a call that was interrupted without effect. One that has made its call goes on from there.
pub fn take_back(stopped: &Stopped, image: &AgentImage, world: &World) -> Result<()> {
    let mut registers = stopped.registers()?;
    let is_interrupted = is_interrupted_for_us(&registers) && registers.rip == image.header.gate_program_after;
    let saved = match position(stopped, image, &registers)? {
        Position::Program | Position::After if !is_interrupted => return Ok(()),
        Position::Entering => {
            leave_entry(stopped.tid(), &mut registers)?;
            None
        }
        Position::Before(saved) => {
            leave_call(stopped.tid(), saved.thread, world);
            back_to_site(&mut registers, &saved);
            Some(saved)
        }
        Position::Interrupted(saved) => {
            leave_call(stopped.tid(), saved.thread, world);
            if repeats(saved.after) {
                waits_again(stopped.tid(), registers.gs_base)?;
            }
            // An ignored signal came before, and no other one.
            match registers.rax as i64 {
                REPEATS => back_to_site(&mut registers, &saved),
                _ => to_interrupted(stopped.tid(), &mut registers, &saved)?,
            }
            Some(saved)
        }
        Position::Partial(saved) => {
            leave_call(stopped.tid(), saved.thread, world);
            to_partial(&mut registers, &saved);
            Some(saved)
        }
        Position::Done(_) | Position::After | Position::Leaving(_) | Position::Program if is_interrupted => {
            let saved = Saved::read(stopped.tid(), registers.gs_base)?;
            leave_call(stopped.tid(), saved.thread, world);
            if repeats(saved.after) {
                waits_again(stopped.tid(), registers.gs_base)?;
            }
            match saved.phase {
                PHASE_PARTIAL => to_partial(&mut registers, &saved),
                _ => back_to_site(&mut registers, &saved),
            }
            Some(saved)
        }
        Position::Done(_) | Position::After | Position::Leaving(_) | Position::Program => return Ok(()),
    };
    match saved {
        Some(saved) => saved.put(stopped, image, &registers),
        None => stopped.set_registers(&registers),
    }
}

/// The registers that a thread's program has, wherever the thread is.
pub fn registers_of_program(stopped: &Stopped, image: &AgentImage) -> Result<Registers> {
    let mut registers = stopped.registers()?;
    let position = position(stopped, image, &registers)?;
    let result = match position {
        Position::Program => None,
        Position::Entering => {
            leave_entry(stopped.tid(), &mut registers)?;
            None
        }
        _ => Some(result_of_call(stopped, image)?),
    };
    if result.is_none() {
        registers.rip = shown_at(stopped.tid(), &registers);
    }
    if let Some(result) = result {
        let saved = Saved::read(stopped.tid(), registers.gs_base)?;
        to_program(&mut registers, &saved);
        registers.rip = behind_call(stopped.tid(), saved.frame.continuation);
        registers.rax = result.map_or(saved.frame.nr, |result| result as u64);
        registers.orig_rax = u64::MAX;
    }
    // The agent's own.
    registers.gs_base = 0;
    Ok(registers)
}

/// A thread is stopped for good while: if it has begun a change, it must not keep commits waiting. What was not done is
/// taken back to the call site; what was done is in the page cache.
pub fn release_commits(stopped: &Stopped, image: &AgentImage, world: &World) -> Result<()> {
    let mut registers = stopped.registers()?;
    match position(stopped, image, &registers)? {
        Position::Program | Position::Entering => {}
        Position::Before(saved) => {
            leave_call(stopped.tid(), saved.thread, world);
            back_to_site(&mut registers, &saved);
            saved.put(stopped, image, &registers)?;
        }
        Position::Interrupted(saved) | Position::Done(saved) | Position::Partial(saved) | Position::Leaving(saved) => {
            leave_call(stopped.tid(), saved.thread, world);
        }
        Position::After => {
            if let Ok(saved) = Saved::read(stopped.tid(), registers.gs_base) {
                leave_call(stopped.tid(), saved.thread, world);
            }
        }
    }
    Ok(())
}

/// Whether a signal does nothing in this thread: ignored, or by default without effect and not caught.
fn is_ignored(tid: ThreadId, signal: i32) -> bool {
    let Ok(sets) = SignalSets::of(tid) else { return false };
    let bit = 1u64 << (signal - 1).clamp(0, 63);
    let has_no_default_effect = matches!(signal, libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT);
    sets.ignored & bit != 0 || has_no_default_effect && sets.caught & bit == 0
}

/// The thread is taken out of its call: what it shares with others while it makes one is given up.
fn leave_call(tid: ThreadId, slot: usize, world: &World) {
    let thread = &world.threads[slot % THREADS_MAX];
    if thread.tid.load(Ordering::Relaxed) == tid.as_raw() as u32 {
        thread.work.end();
        thread.makes_pipe.store(0, Ordering::Relaxed);
        thread.leave_change(&world.transactions);
        thread.door.reset();
        thread.ignores_sigchld.store(0, Ordering::Relaxed);
        thread.confinement.end_for(|| same_core::free(tid));
    }
}
