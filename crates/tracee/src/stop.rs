//! Stops as types: what happened to a thread, and what can be done to it while it is stopped.

use crate::sys::{self, Registers, SignalInfo};
use crate::thread_state::{next_of, stands_at_end, Next};
use crate::{Result, TraceError};
use procfs::{ProcessId, ThreadId};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io;

/// Something that happened to a thread of the world.
// It lives for one turn of the event loop: no reason to put it on the heap.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Event {
    /// It stopped.
    Stopped(Stopped),
    /// It ended with this status; its parent has not been told yet when this is the last of its process.
    Exited {
        /// Who.
        tid: ThreadId,
        /// `wait(2)` status.
        status: i32,
    },
}

/// Why a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The filter stopped a system call at its entry.
    SystemCall,
    /// A new program was loaded; the thread that asked for it had this id before.
    Exec {
        /// Its thread id before.
        former_tid: ThreadId,
    },
    /// A signal is about to be delivered.
    Signal(i32),
    /// Stopped by job control: stays so until SIGCONT.
    Group(i32),
    /// Newly attached, or interrupted.
    Trap,
    /// About to end, with everything that it has still open (after `Stopped::trace_exit`).
    Exit,
}

/// A stopped thread. Resuming it gives it up. One that is dropped never runs again, unless it is on its way to its end:
/// nothing else would let it come there, and the first thread of a process is reported after all others. The event loop
/// hears of such a stop once more.
#[derive(Debug)]
#[must_use = "a stopped thread that is dropped never runs again"]
pub struct Stopped {
    tid: ThreadId,
    stop: Cell<Stop>,
    /// What `wait(2)` said.
    status: Cell<i32>,
    /// It stands at the entry of a call that it has not come out of: what it makes of that can still be changed.
    is_in_call: Cell<bool>,
    /// It does not stand still for us any more, or its stop was kept.
    is_given_up: Cell<bool>,
    /// Its registers, once somebody has read them: they are read several times for most stops.
    registers: Cell<Option<Registers>>,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.stop() == Stop::Exit && !self.is_given_up.get() {
            sys::keep_for_later(self.tid, self.status.get());
        }
    }
}

/// Begin to hold a thread, of a process with one thread all of it. If we die, it is killed.
pub fn seize(tid: ThreadId) -> Result<()> {
    sys::seize(tid, OPTIONS)
}

const OPTIONS: i32 = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESECCOMP;

/// Wait until something happens to any thread of the world; `None` when there is none left, `Some(None)` when a
/// [`Waker`] ended the wait.
pub fn wait() -> io::Result<Option<Option<Event>>> {
    Ok(sys::wait_any()?.map(|happened| happened.map(|(tid, status)| event_of(tid, status))))
}

/// As `wait`; `before_end` is called with a thread that has ended before its parent is told, if that can be known.
pub fn wait_before_end<T>(before_end: impl FnOnce(ThreadId) -> T) -> io::Result<(Option<Option<Event>>, Option<T>)> {
    let ended = match sys::is_anything_kept() {
        true => None,
        false => match sys::look_for_end() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok((Some(None), None)),
            ended => ended.unwrap_or(None),
        },
    };
    let prepared = ended.map(before_end);
    Ok((wait()?, prepared))
}

/// Ends the waits of the thread that made it, from other threads of the same process.
#[derive(Clone, Copy, Debug)]
pub struct Waker {
    tid: ThreadId,
}

impl Waker {
    /// For the calling thread.
    pub fn of_this_thread() -> io::Result<Self> {
        sys::can_be_woken().map(|tid| Self { tid })
    }

    /// End the wait that the thread is in. One that begins a moment later is not ended.
    pub fn wake(self) {
        sys::wake(self.tid);
    }
}

/// As `wait`, until `deadline` at the latest: `Some(None)` also when the time is up. The thread must have called
/// `block_child_signal` before.
pub fn wait_until(deadline: std::time::Instant) -> io::Result<Option<Option<Event>>> {
    Ok(sys::wait_any_until(deadline)?.map(|happened| happened.map(|(tid, status)| event_of(tid, status))))
}

/// For `wait_until`: block SIGCHLD in this thread and those that it starts.
pub fn block_child_signal() {
    sys::block_child_signal();
}

/// Make a running thread stop: it reports `Stop::Trap`, or whatever it stops for before that.
pub fn interrupt(tid: ThreadId) -> Result<()> {
    sys::interrupt(tid)
}

/// Stop a thread, wherever it is, and wait until it has stopped; what happens to others meanwhile is kept for `wait`.
/// `None` if it died instead: its end is kept for `wait`, too. A stop that it had reported and nobody looked at is what
/// it stopped for.
pub fn halt(tid: ThreadId) -> Result<Option<Stopped>> {
    Ok(halt_all(&[tid])?.remove(&tid))
}

/// The same for several threads, of which none waits for another one to stop. Those that died are missing, and so is
/// one that executes: it has its leader's id then.
pub fn halt_all(tids: &[ThreadId]) -> Result<HashMap<ThreadId, Stopped>> {
    let (mut halted, mut awaited) = (HashMap::new(), HashSet::new());
    for &tid in tids {
        if let Some(status) = sys::take_kept(tid) {
            halted.extend(stop_or_end(tid, status).map(|stopped| (tid, stopped)));
            continue;
        }
        match sys::interrupt(tid) {
            Ok(()) => drop(awaited.insert(tid)),
            Err(TraceError::Gone(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let mut ends_stand = sys::is_end_kept() || halted.values().any(|stopped: &Stopped| stopped.stop() == Stop::Exit);
    while let Some(&any) = awaited.iter().next() {
        let kernel = |source| TraceError::Kernel { what: "wait", task: any.into(), source };
        let (tid, status) = match next_of(ends_stand, awaited.iter()).map_err(kernel)? {
            Some(Next::Event(tid, status)) => (tid, status),
            Some(Next::Dead(tid)) => {
                awaited.remove(&tid);
                continue;
            }
            // Nobody left to wait for: they are gone.
            None => break,
        };
        ends_stand |= stands_at_end(status);
        if status >> 16 == libc::PTRACE_EVENT_EXEC {
            // Nothing is ever told of the id that it had, if that was another one.
            if let Some(former) = sys::event_message(tid)
                .ok()
                .map(|former| ThreadId::from_raw(former as i32))
                .filter(|&former| former != tid)
            {
                awaited.remove(&former);
            }
        }
        if awaited.remove(&tid) {
            halted.extend(stop_or_end(tid, status).map(|stopped| (tid, stopped)));
        } else {
            sys::keep_for_later(tid, status);
        }
    }
    Ok(halted)
}

/// Wait for the next thing that happens to one thread. `None` if it ended: its end is kept for `wait`.
pub fn await_stop(tid: ThreadId) -> Result<Option<Stopped>> {
    if let Some(status) = sys::take_kept(tid) {
        return Ok(stop_or_end(tid, status));
    }
    let kernel = |source| TraceError::Kernel { what: "wait", task: tid.into(), source };
    Ok(sys::wait_for(tid).map_err(kernel)?.and_then(|status| stop_or_end(tid, status)))
}

/// Kill a process, whatever it is doing. Its end is still to be waited for.
pub fn kill(pid: ProcessId) -> Result<()> {
    sys::kill(pid)
}

/// Wait for the end of a thread that was killed, as its tracer; its `wait(2)` status.
pub fn await_end(tid: ThreadId) -> io::Result<i32> {
    let ended = sys::wait_end(tid, 0)?;
    ended.ok_or_else(|| io::Error::other("a wait without end ended"))
}

/// The same, if it has ended already.
pub fn look_for_end(tid: ThreadId) -> io::Result<Option<i32>> {
    sys::wait_end(tid, libc::WNOHANG)
}

fn stop_or_end(tid: ThreadId, status: i32) -> Option<Stopped> {
    match event_of(tid, status) {
        Event::Stopped(stopped) => Some(stopped),
        Event::Exited { .. } => {
            sys::keep_for_later(tid, status);
            None
        }
    }
}

fn event_of(tid: ThreadId, status: i32) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Exited { tid, status };
    }
    Event::Stopped(Stopped::from_status(tid, status))
}

impl Stopped {
    /// What a `wait(2)` status says of a thread that has stopped.
    pub(crate) fn from_status(tid: ThreadId, status: i32) -> Self {
        let signal = libc::WSTOPSIG(status);
        let stop = match status >> 16 {
            libc::PTRACE_EVENT_SECCOMP => Stop::SystemCall,
            libc::PTRACE_EVENT_EXEC => Stop::Exec {
                former_tid: sys::event_message(tid).map_or(tid, |former| ThreadId::from_raw(former as i32)),
            },
            libc::PTRACE_EVENT_EXIT => Stop::Exit,
            libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Trap,
            libc::PTRACE_EVENT_STOP => Stop::Group(signal),
            _ => Stop::Signal(signal),
        };
        let is_in_call = Cell::new(stop == Stop::SystemCall);
        let (stop, status) = (Cell::new(stop), Cell::new(status));
        Self { tid, stop, status, is_in_call, is_given_up: Cell::new(false), registers: Cell::new(None) }
    }

    /// Who.
    pub fn tid(&self) -> ThreadId {
        self.tid
    }

    /// Why.
    pub fn stop(&self) -> Stop {
        self.stop.get()
    }

    /// It was made to run for a moment, and has stopped again.
    pub(crate) fn stands_anew(&self, status: i32) {
        let now = Self::from_status(self.tid, status);
        now.give_up();
        self.stop.set(now.stop());
        self.status.set(status);
        self.forget_registers();
    }

    /// Whether it stood at the entry of a call until now; from here on it does not.
    pub(crate) fn leave_call(&self) -> bool {
        self.is_in_call.take()
    }

    /// Leave it stopped: the event loop hears of it later, as of any other.
    pub fn keep(self) {
        self.give_up();
        sys::keep_for_later(self.tid, self.status.get());
    }

    /// It does not stand still for us any more.
    pub(crate) fn give_up(&self) {
        self.is_given_up.set(true);
    }

    /// The signal that it stopped for; 0 if it stopped for another reason.
    pub fn signal(&self) -> i32 {
        match self.stop() {
            Stop::Signal(signal) => signal,
            _ => 0,
        }
    }

    /// Let it, and the children that it makes from now on, stop once more before they end.
    pub fn trace_exit(&self) -> Result<()> {
        sys::set_options(self.tid, OPTIONS | libc::PTRACE_O_TRACEEXIT)
    }

    /// Its registers. Who has been killed since they were read first still has them here.
    pub fn registers(&self) -> Result<Registers> {
        let registers = match self.registers.get() {
            Some(registers) => registers,
            None => sys::registers(self.tid)?,
        };
        self.registers.set(Some(registers));
        Ok(registers)
    }

    /// Change its registers.
    pub fn set_registers(&self, registers: &Registers) -> Result<()> {
        self.forget_registers();
        sys::set_registers(self.tid, registers)
    }

    /// They are about to change, or have changed.
    pub(crate) fn forget_registers(&self) {
        self.registers.set(None);
    }

    /// The signal that it stopped for, with everything that came with it.
    pub fn signal_info(&self) -> Result<SignalInfo> {
        sys::signal_info(self.tid)
    }

    /// Let it run; at a signal stop, with this signal (0: none).
    pub fn resume(self, signal: i32) -> Result<()> {
        self.give_up();
        sys::resume(self.tid, libc::PTRACE_CONT, signal)
    }

    /// Let it run with another signal than it stopped for.
    pub fn resume_with(self, info: &SignalInfo) -> Result<()> {
        sys::set_signal_info(self.tid, info)?;
        self.give_up();
        sys::resume(self.tid, libc::PTRACE_CONT, info.number())
    }

    /// Trace it no more: it goes on, and its end is not told.
    pub fn let_go(self) -> Result<()> {
        self.give_up();
        sys::resume(self.tid, libc::PTRACE_DETACH, 0)
    }

    /// Leave it stopped by job control, but let it hear SIGCONT. Who is not stopped by it any more goes on.
    pub fn listen(self) -> Result<()> {
        self.give_up();
        let request = if matches!(self.stop(), Stop::Group(_)) { libc::PTRACE_LISTEN } else { libc::PTRACE_CONT };
        sys::resume(self.tid, request, 0)
    }

    /// Let it run single instructions for as long as `inside(rip)` holds. Signals that arrive meanwhile are collected.
    /// `None` if it stopped to ask the supervisor something: the event loop hears of it next. `Err(Gone)` if it died.
    pub fn step_while(
        self,
        mut inside: impl FnMut(u64) -> bool,
        collected: &mut Vec<SignalInfo>,
    ) -> Result<Option<Self>> {
        // A single step ends with a SIGTRAP; were it blocked, the kernel would reset its handler.
        let mask = sys::signal_mask(self.tid)?;
        let trap = 1u64 << (libc::SIGTRAP - 1);
        if mask & trap != 0 {
            sys::set_signal_mask(self.tid, mask & !trap)?;
        }
        while inside(self.registers()?.rip) {
            self.forget_registers();
            sys::resume(self.tid, libc::PTRACE_SINGLESTEP, 0)?;
            if !self.await_stop(collected)? {
                sys::set_signal_mask(self.tid, mask)?;
                return Ok(None);
            }
        }
        if mask & trap != 0 {
            sys::set_signal_mask(self.tid, mask)?;
        }
        // The kernel takes a stepped `popf` for the program's own wish to be stepped, and leaves the trap flag set.
        const TRAP_FLAG: u64 = 0x100;
        let mut registers = self.registers()?;
        registers.eflags &= !TRAP_FLAG;
        self.set_registers(&registers)?;
        Ok(Some(self))
    }

    /// Wait for the end of a step. One must wait for *any* thread: were this one the first of its process and dying
    /// with it, it would be reported only after the others, which wait for us. What happens to others is kept for the
    /// event loop.
    fn await_stop(&self, collected: &mut Vec<SignalInfo>) -> Result<bool> {
        let status = loop {
            let kernel = |source| TraceError::Kernel { what: "wait", task: self.tid.into(), source };
            let Some((tid, status)) = sys::wait_new().map_err(kernel)? else {
                return Err(TraceError::Gone(self.tid.into()));
            };
            let is_event = matches!(status >> 16, libc::PTRACE_EVENT_EXEC | libc::PTRACE_EVENT_EXIT);
            let is_step = tid == self.tid && libc::WIFSTOPPED(status) && !is_event;
            if is_step {
                break status;
            }
            sys::keep_for_later(tid, status);
            if tid == self.tid {
                return Err(TraceError::Gone(tid.into()));
            }
        };
        if status >> 16 == libc::PTRACE_EVENT_SECCOMP {
            // A request of the agent: the event loop answers it.
            sys::keep_for_later(self.tid, status);
            return Ok(false);
        }
        let signal = libc::WSTOPSIG(status);
        if status >> 16 == 0 {
            let info = sys::signal_info(self.tid)?;
            if signal == libc::SIGTRAP && info.code() > 0 {
                return Ok(true);
            }
            let is_fault =
                matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE) && info.code() > 0;
            if is_fault {
                // Repeating the instruction would repeat the fault, for ever.
                let source = io::Error::other(format!("signal {signal} while it was being stepped"));
                return Err(TraceError::Kernel { what: "step", task: self.tid.into(), source });
            }
            collected.push(info);
        }
        Ok(true)
    }
}
