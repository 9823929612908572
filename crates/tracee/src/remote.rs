//! System calls made by a stopped thread on our behalf.
//!
//! The thread is put before a `syscall` instruction and stepped over it. Until `finish` every signal that can wait
//! waits in the kernel, with everything that came with it: all are blocked but SIGTRAP, with which a step ends.
//!
//! A thread that blocks SIGTRAP may have one that waits, and a step would take it out of the kernel's queue; where
//! SIGTRAP is ignored, a step gives it its default action. Such a thread goes on to the end of its calls instead: two
//! stops for each call, and no signal. Such a stop is none for a signal, after which alone the kernel restarts an
//! interrupted call, or takes what a signal came with: the thread is stopped once more if it has either.
//!
//! **Invariant:** a thread that was not killed has its registers and its signal mask back when `RemoteCalls` is gone.

use crate::stop::Stop;
use crate::sys::{self, Registers, SignalInfo};
use crate::{Result, Stopped, TraceError};
use procfs::ThreadId;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// See [`mind_ignored_traps`].
static TRAPS_MAY_BE_IGNORED: AtomicBool = AtomicBool::new(false);

const TRAP_BIT: u64 = bit_of(libc::SIGTRAP);
/// The first signal of which the kernel keeps each one that is sent, and the last one of all.
const FIRST_REAL_TIME: i32 = 32;
const LAST_SIGNAL: i32 = 64;
/// The processor's trap flag.
const TRAP_FLAG: u64 = 0x100;
const SYSCALL_LEN: u64 = 2;
/// In `orig_rax`: not in a system call, nothing to be restarted.
const NO_CALL: u64 = u64::MAX;
/// `-ERESTARTSYS`, `-ERESTARTNOINTR`, `-ERESTARTNOHAND`, `-ERESTART_RESTARTBLOCK`: interrupted without effect; the
/// kernel decides on the way to the program.
pub const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
/// How often a thread may come out of something else before it makes the call: once out of a call that is cancelled or
/// out of exec, and once for each signal that cannot be blocked. So often is a call made that is interrupted, too.
const ATTEMPTS_MAX: u32 = 64;

/// A signal's place in a set of signals.
const fn bit_of(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// From now on a tracee may ignore SIGTRAP, or may be put back to where it did: no call is made by steps any more.
pub fn mind_ignored_traps() {
    TRAPS_MAY_BE_IGNORED.store(true, Ordering::Relaxed);
}

/// Whether a thread's process ignores SIGTRAP. False before [`mind_ignored_traps`].
pub fn ignores_traps(tid: ThreadId) -> bool {
    TRAPS_MAY_BE_IGNORED.load(Ordering::Relaxed)
        && procfs::SignalSets::of(tid).is_ok_and(|sets| sets.ignored & TRAP_BIT != 0)
}

/// A stopped thread that makes system calls for us: the only one of its process, or one of several that are all stopped
/// ([`Self::in_company`]).
///
/// It may have stopped at the entry of a call: that call is then *not* made (see [`Stopped::repeat_call`]). It may have
/// stopped for a signal: after `finish` it can still be resumed with this signal and nothing of it is lost.
#[derive(Debug)]
pub struct RemoteCalls<'a> {
    stopped: &'a Stopped,
    gate: u64,
    registers: Registers,
    mask: u64,
    signal: Option<SignalInfo>,
    collected: Vec<SignalInfo>,
    /// It blocks SIGTRAP, or somebody ignores it: nothing is done by steps.
    keeps_traps: bool,
    /// A call has been made: it stands somewhere else than it did.
    moved: bool,
    finished: Cell<bool>,
    /// Its process has other threads.
    in_company: bool,
}

impl<'a> RemoteCalls<'a> {
    /// Begin. `gate` is the address of a `syscall` instruction in the thread's process. Where a filter would stop the
    /// call, the stop is passed over, and the call made.
    pub fn new(stopped: &'a Stopped, gate: u64) -> Result<Self> {
        let tid = stopped.tid();
        let registers = stopped.registers()?;
        stopped.forget_registers();
        let mask = sys::signal_mask(tid)?;
        let signal = match stopped.stop() {
            Stop::Signal(_) => Some(sys::signal_info(tid)?),
            _ => None,
        };
        let keeps_traps = TRAPS_MAY_BE_IGNORED.load(Ordering::Relaxed) || mask & TRAP_BIT != 0;
        sys::set_signal_mask(tid, if keeps_traps { u64::MAX } else { !TRAP_BIT })?;
        let collected = Vec::new();
        Ok(Self {
            stopped,
            gate,
            registers,
            mask,
            signal,
            collected,
            keeps_traps,
            moved: false,
            finished: Cell::new(false),
            in_company: false,
        })
    }

    /// The same for a thread of several, which all are stopped. What happens to others meanwhile is kept for the event
    /// loop: that the first thread of a process that is killed has died is told only after the others' deaths.
    pub fn in_company(stopped: &'a Stopped, gate: u64) -> Result<Self> {
        let mut calls = Self::new(stopped, gate)?;
        calls.in_company = true;
        Ok(calls)
    }

    fn wait(&self) -> io::Result<Option<i32>> {
        match self.in_company {
            true => crate::thread_state::wait_among(self.stopped.tid()),
            false => sys::wait_for(self.stopped.tid()),
        }
    }

    /// How the thread stops next. Of its death the event loop learns as of any other, and of its stop on the way there:
    /// somebody may kill it while it makes a call for us. Another thread of its process may execute a program
    /// meanwhile: then the first thread's id is that of the new program.
    fn next_stop(&self) -> Result<i32> {
        let tid = self.stopped.tid();
        let kernel = |source| TraceError::Kernel { what: "wait", task: tid.into(), source };
        let status = self.wait().map_err(kernel)?;
        let is_over = |status: i32| matches!(status >> 16, libc::PTRACE_EVENT_EXIT | libc::PTRACE_EVENT_EXEC);
        match status {
            Some(status) if libc::WIFSTOPPED(status) && !is_over(status) => Ok(status),
            over => {
                over.into_iter().for_each(|status| sys::keep_for_later(tid, status));
                // Nobody is left to whom anything could be given back.
                self.finished.set(true);
                Err(TraceError::Gone(tid.into()))
            }
        }
    }

    /// Where the thread stood, and what it will have again.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The signals that it blocks, and will block again.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// The signal that it stopped for.
    pub fn signal(&self) -> Option<SignalInfo> {
        self.signal
    }

    /// Make calls from another place from here on.
    pub fn set_gate(&mut self, gate: u64) {
        self.gate = gate;
    }

    /// Make a call; the kernel's answer, `-errno` included. One that was interrupted without effect is made again: what
    /// cannot be blocked has interrupted it, a stop of job control or an interrupt of ours that came late.
    pub fn call(&mut self, number: i64, arguments: &[u64]) -> Result<i64> {
        let tid = self.stopped.tid();
        if let Some(answer) = self.call_instead(number, arguments)? {
            return Ok(answer);
        }
        let prepared = self.with_arguments(arguments);
        let registers = Registers { rip: self.gate, rax: number as u64, orig_rax: NO_CALL, ..prepared };
        self.moved = true;
        let mut was_interrupted = false;
        for _ in 0..ATTEMPTS_MAX {
            sys::set_registers(tid, &registers)?;
            self.step()?;
            let mut after = sys::registers(tid)?;
            if self.keeps_traps && after.rip == self.gate + SYSCALL_LEN {
                // It has come in.
                self.step()?;
                after = sys::registers(tid)?;
            }
            was_interrupted = after.rip == self.gate + SYSCALL_LEN && RESTARTS.contains(&(after.rax as i64));
            if after.rip == self.gate + SYSCALL_LEN && !was_interrupted {
                return Ok(after.rax as i64);
            }
            // It came out of what it was in when we began: a call at whose entry it stood, an exec.
            if after.rip != self.gate && !was_interrupted {
                break;
            }
        }
        if was_interrupted {
            return Ok(-i64::from(libc::EINTR));
        }
        let source = io::Error::other(format!("call {number} did not come back"));
        Err(TraceError::Kernel { what: "step", task: tid.into(), source })
    }

    /// The thread's registers with the arguments of a call in their places.
    fn with_arguments(&self, arguments: &[u64]) -> Registers {
        let argument = |i: usize| arguments.get(i).copied().unwrap_or(0);
        Registers {
            rdi: argument(0),
            rsi: argument(1),
            rdx: argument(2),
            r10: argument(3),
            r8: argument(4),
            r9: argument(5),
            // On no stack: a call that asks whether the thread is on its alternate one hears no.
            rsp: 0,
            eflags: self.registers.eflags & !TRAP_FLAG,
            ..self.registers
        }
    }

    /// At the entry of a call this one can be made in its place: one wait less than to come out of it first. `None` if
    /// it has to be made from the gate, because the thread stands elsewhere, or something came in between.
    fn call_instead(&mut self, number: i64, arguments: &[u64]) -> Result<Option<i64>> {
        if !self.stopped.leave_call() {
            return Ok(None);
        }
        let tid = self.stopped.tid();
        let registers = Registers { orig_rax: number as u64, ..self.with_arguments(arguments) };
        self.moved = true;
        sys::set_registers(tid, &registers)?;
        self.step()?;
        let after = sys::registers(tid)?;
        // Interrupted, it stands before the instruction again, or the kernel has not put it there yet.
        let is_made = after.rip == registers.rip && !RESTARTS.contains(&(after.rax as i64));
        Ok(is_made.then_some(after.rax as i64))
    }

    /// One step, whatever stops it before its end; for a thread that keeps its SIGTRAP, to where it next comes into a
    /// call or out of one.
    fn step(&mut self) -> Result<()> {
        let tid = self.stopped.tid();
        loop {
            let request = if self.keeps_traps { libc::PTRACE_SYSCALL } else { libc::PTRACE_SINGLESTEP };
            sys::resume(tid, request, 0)?;
            let status = self.next_stop()?;
            match (status >> 16, libc::WSTOPSIG(status)) {
                (0, libc::SIGTRAP) if self.keeps_traps => return Ok(()),
                (0, libc::SIGTRAP) => {
                    let info = sys::signal_info(tid)?;
                    if info.code() <= 0 {
                        self.collected.push(info);
                    }
                    return Ok(());
                }
                (0, signal) => {
                    let info = sys::signal_info(tid)?;
                    let registers = sys::registers(tid)?;
                    if info.is_fault_at(registers.rip) {
                        let what = format!("signal {signal} instead of an answer at {registers:x?}");
                        return Err(TraceError::Kernel {
                            what: "system call",
                            task: tid.into(),
                            source: io::Error::other(what),
                        });
                    }
                    if info.is_synchronous() {
                        // What the program did just when it was stopped: it comes again with the instruction. The
                        // kernel looks for such signals before all others, whether they are blocked or not.
                        continue;
                    }
                    self.collected.push(info);
                }
                // The filter stopped our own call: let it be made. An interrupt that came late: it is stopped anyway.
                (libc::PTRACE_EVENT_SECCOMP | libc::PTRACE_EVENT_STOP, _) => {}
                (event, _) => {
                    let source = io::Error::other(format!("event {event} instead of an answer"));
                    return Err(TraceError::Kernel { what: "system call", task: tid.into(), source });
                }
            }
        }
    }

    /// Put registers and mask back. Signals that could not wait are given to the caller, who decides about them.
    pub fn finish(mut self) -> Result<Vec<SignalInfo>> {
        let (registers, mask) = (self.registers, self.mask);
        self.leave(&registers, mask)?;
        Ok(std::mem::take(&mut self.collected))
    }

    /// Leave the thread, perhaps with other registers and another mask than it had. The signal that it stopped for is
    /// the caller's; those that could not wait in the kernel (SIGSTOP cannot be blocked) are sent again, and the thread
    /// stops for them when it is resumed.
    pub fn finish_sending_again(mut self, registers: &Registers, mask: u64) -> Result<()> {
        self.leave(registers, mask)?;
        for signal in &self.collected {
            signal.resend(self.stopped.tid());
        }
        Ok(())
    }

    fn leave(&mut self, registers: &Registers, mask: u64) -> Result<()> {
        self.finished.set(true);
        let tid = self.stopped.tid();
        // Somebody may have looked at those of a call that was made for us.
        self.stopped.forget_registers();
        if self.moved && self.keeps_traps && self.signal.is_some() {
            self.stand_at_signal()?;
        }
        sys::set_signal_mask(tid, mask)?;
        if !self.moved {
            return sys::set_registers(tid, registers);
        }
        sys::set_registers(tid, registers)?;
        if let Some(signal) = &self.signal {
            // It stands at a trap of ours: what it is resumed with counts as what it stopped for.
            sys::set_signal_info(tid, signal)?;
        }
        let is_interrupted = registers.orig_rax != NO_CALL && RESTARTS.contains(&(registers.rax as i64));
        let is_elsewhere = self.keeps_traps && self.signal.is_none();
        if matches!(self.stopped.stop(), Stop::Group(_)) || is_elsewhere && is_interrupted {
            self.stand_again()?;
        }
        Ok(())
    }

    /// Into the stop for a signal, from which alone it can be resumed with what came with another one. A signal of ours
    /// brings it there, and goes no further.
    fn stand_at_signal(&mut self) -> Result<()> {
        let tid = self.stopped.tid();
        let sent = self.send_what_only_stops()?;
        sys::set_signal_mask(tid, !bit_of(sent))?;
        loop {
            sys::resume(tid, libc::PTRACE_CONT, 0)?;
            let status = self.next_stop()?;
            if status >> 16 != 0 {
                continue;
            }
            let info = sys::signal_info(tid)?;
            if !info.only_stops() {
                self.collected.push(info);
            }
            // Of two SIGTRAP the kernel keeps the first: one of somebody else that came meanwhile is the stop.
            if info.only_stops() || info.number() == libc::SIGTRAP {
                return Ok(());
            }
        }
    }

    /// Send the thread a signal that it will stop for, and say which. A SIGTRAP that waits for the program is to stay
    /// in the kernel's queue with its sender, whose name we could not give it again: then it is a real-time signal of
    /// which none waits.
    fn send_what_only_stops(&self) -> Result<i32> {
        let tid = self.stopped.tid();
        let process = procfs::Status::of(tid)?.process()?;
        let pending = procfs::SignalSets::of(tid)?.pending;
        let spare = [libc::SIGTRAP].into_iter().chain((FIRST_REAL_TIME..=LAST_SIGNAL).rev());
        // The queue may be full for signals that are kept one by one; a SIGTRAP still stops it.
        spare
            .filter(|signal| pending & bit_of(*signal) == 0)
            .chain([libc::SIGTRAP])
            .find(|signal| SignalInfo::that_only_stops(*signal).send_again(process, tid))
            .ok_or_else(|| TraceError::last("send a signal", tid))
    }

    /// Back into the stop of job control, from which alone a thread can be told to listen, or into that of an
    /// interrupt, from which the kernel restarts an interrupted call. A signal that is reported instead has been
    /// taken out of the kernel's queue: it is collected. Who was continued meanwhile is not stopped any more, and
    /// must not be told to listen: a stop signal that waits for it would not be heard.
    fn stand_again(&mut self) -> Result<()> {
        let tid = self.stopped.tid();
        loop {
            sys::interrupt(tid)?;
            sys::resume(tid, libc::PTRACE_CONT, 0)?;
            let status = self.next_stop()?;
            match status >> 16 {
                0 => self.collected.push(sys::signal_info(tid)?),
                _ => {
                    self.stopped.stands_anew(status);
                    return Ok(());
                }
            }
        }
    }
}

impl Drop for RemoteCalls<'_> {
    fn drop(&mut self) {
        if !self.finished.get() {
            let (registers, mask) = (self.registers, self.mask);
            let _ = self.leave(&registers, mask);
        }
    }
}

impl Stopped {
    /// Wait for the next thing that happens to a thread, and to no other: the first stop of a child that was born held
    /// (`CLONE_PTRACE`), say.
    pub fn await_thread(tid: ThreadId) -> Result<Self> {
        let kernel = |source| TraceError::Kernel { what: "wait", task: tid.into(), source };
        match sys::wait_for(tid).map_err(kernel)? {
            Some(status) if libc::WIFSTOPPED(status) => Ok(Self::from_status(tid, status)),
            Some(status) => {
                sys::keep_for_later(tid, status);
                Err(TraceError::Gone(tid.into()))
            }
            None => Err(TraceError::Gone(tid.into())),
        }
    }

    /// Stop a running thread, and wait until it has stopped, for this reason or another.
    pub fn interrupt(tid: ThreadId) -> Result<Self> {
        sys::interrupt(tid)?;
        Self::await_thread(tid)
    }

    /// A thread that stood at the entry of a system call, or whose call was cancelled by [`RemoteCalls`], makes the
    /// call when it is resumed.
    pub fn repeat_call(&self) -> Result<()> {
        let mut registers = self.registers()?;
        registers.rip -= SYSCALL_LEN;
        registers.rax = registers.orig_rax;
        registers.orig_rax = NO_CALL;
        self.set_registers(&registers)
    }

    /// Kill its process and wait for its end as its tracer. The process's parent is still to be told by the kernel.
    pub fn kill(self) -> Result<()> {
        let tid = self.tid();
        self.give_up();
        sys::kill(tid.leads())?;
        let kernel = |source| TraceError::Kernel { what: "wait", task: tid.into(), source };
        // A stop may have been on its way.
        while let Some(status) = sys::wait_for(tid).map_err(kernel)? {
            if !libc::WIFSTOPPED(status) {
                break;
            }
            let _ = sys::resume(tid, libc::PTRACE_CONT, 0);
        }
        Ok(())
    }
}
