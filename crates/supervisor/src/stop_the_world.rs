//! `ptrace` inside, for a process that stops the threads with which it shares its memory (`decisions/0045`):
//! LeakSanitizer makes such a process before it looks for leaks. The kernel gives a thread one tracer, and that is us;
//! so we stop the thread, tell its registers, and let it go.
//!
//! ```text
//! PTRACE_ATTACH    the thread is interrupted; the answer comes when it has stopped
//! wait4            tells once that it has stopped, by SIGSTOP
//! GETREGS…         the registers that its program has
//! PTRACE_DETACH    it goes on, as it does when its tracer ends
//! ```
//!
//! **Invariant:** a thread that is held has no handle open: commits do not wait for it.

use crate::ahead::is_traced_by_us;
use crate::event_loop::Supervisor;
use crate::signals;
use agent_abi::{stop_the_world, Frame};
use procfs::{Status, ThreadId};
use std::collections::HashMap;
use tracee::{Registers, Result, Stop, Stopped};

const NT_PRSTATUS: u64 = 1;
const NT_FPREGSET: u64 = 2;
const NT_X86_XSTATE: u64 = 0x202;
/// `struct user_fpregs_struct`: how the extended state begins, up to what `XSAVE` alone has.
const FPREGS_LEN: usize = 512;
const FPREGS_USED: usize = 464;
/// `wait(2)` status of a thread that was stopped by SIGSTOP.
const STOPPED: u32 = (libc::SIGSTOP as u32) << 8 | 0x7f;

/// Who stops whom.
#[derive(Debug, Default)]
pub(crate) struct StopTheWorld {
    /// Threads that are about to stop.
    awaited: HashMap<ThreadId, Attach>,
    /// Threads that have stopped.
    held: HashMap<ThreadId, Held>,
}

/// Somebody waits until a thread has stopped.
#[derive(Debug)]
struct Attach {
    tracer: Stopped,
    /// The thread's number, as the tracer sees it.
    number: i32,
}

/// A thread that has stopped.
#[derive(Debug)]
struct Held {
    stopped: Stopped,
    tracer: ThreadId,
    number: i32,
    /// Its tracer has been told.
    is_told: bool,
}

impl StopTheWorld {
    /// Whether a thread is stopped, or about to be, for somebody inside, or waits for that.
    pub fn concerns(&self, tid: ThreadId) -> bool {
        let waits = || self.awaited.values().any(|attach| attach.tracer.tid() == tid);
        self.held.contains_key(&tid) || self.awaited.contains_key(&tid) || waits()
    }
}

/// An answer to the agent: a value, or an error's number.
type Answer = std::result::Result<u64, i32>;

impl Supervisor {
    /// A request of `ptrace`.
    pub(crate) fn on_trace(&mut self, stopped: Stopped, frame_at: u64) -> Result<()> {
        let tid = stopped.tid();
        let Ok(frame) = tracee::read_value::<Frame>(tid, frame_at) else { return answer(stopped, Err(libc::EFAULT)) };
        let number = frame.args[1] as i32;
        match frame.args[0] {
            stop_the_world::ATTACH => match self.find_to_stop(tid, number) {
                Ok(target) => self.begin_to_stop(stopped, target, number),
                Err(errno) => answer(stopped, Err(errno)),
            },
            stop_the_world::DETACH => {
                let target = self.held_by(tid, number).filter(|_| frame.args[3] == 0);
                answer(stopped, target.map(|_| 0).ok_or(libc::ESRCH))?;
                target.map_or(Ok(()), |target| self.let_go_of(target))
            }
            _ => {
                let told = self.tell_registers(tid, &frame);
                answer(stopped, told)
            }
        }
    }

    /// `wait4` of a thread that has stopped others.
    pub(crate) fn wait_as_tracer(&mut self, tid: ThreadId, frame_at: u64) -> Answer {
        let frame: Frame = tracee::read_value(tid, frame_at).map_err(|_| libc::EAGAIN)?;
        let (number, status_at) = (frame.args[0] as i32, frame.args[1]);
        let target = self.held_by(tid, number).ok_or(libc::EAGAIN)?;
        let held = self.stop_the_world.held.get_mut(&target).filter(|held| !held.is_told).ok_or(libc::EAGAIN)?;
        if status_at != 0 {
            write(tid, status_at, &STOPPED.to_le_bytes())?;
        }
        held.is_told = true;
        Ok(number as u64)
    }

    /// The thread that a tracer means: of another process, with the same memory, and not stopped by anybody yet.
    fn find_to_stop(&mut self, tracer: ThreadId, number: i32) -> Found {
        let is_meant = |tid: ThreadId| {
            Status::of(tid).and_then(|status| status.innermost("NSpid")).is_ok_and(|inner: i32| inner == number)
        };
        // A thread that was made a moment ago is held, though we have not heard of its birth.
        let same = ThreadId::from_raw(number);
        let is_inside = self.tracees.contains_key(&same) || is_traced_by_us(same).unwrap_or(false);
        let found = match is_inside && is_meant(same) {
            true => Some(same),
            // A process id namespace of its own: the tracer knows the thread by another number.
            false => self.tracees.keys().copied().find(|&tid| is_meant(tid) && shares_memory(tracer, tid)),
        };
        let target = found.ok_or(libc::EPERM)?;
        let is_taken =
            self.stop_the_world.awaited.contains_key(&target) || self.stop_the_world.held.contains_key(&target);
        let is_own = self.pid_of(target).ok() == self.pid_of(tracer).ok();
        if is_taken || is_own || !shares_memory(tracer, target) {
            return Err(libc::EPERM);
        }
        Ok(target)
    }

    fn begin_to_stop(&mut self, tracer: Stopped, target: ThreadId, number: i32) -> Result<()> {
        if tracee::interrupt(target).is_err() {
            return answer(tracer, Err(libc::ESRCH));
        }
        self.stop_the_world.awaited.insert(target, Attach { tracer, number });
        Ok(())
    }

    /// A thread has stopped, and the event loop has seen to it. Whatever it stopped for, that took the place of the
    /// stop that we had asked for.
    pub(crate) fn ask_again_to_stop(&mut self, tid: ThreadId) {
        if self.stop_the_world.awaited.contains_key(&tid) {
            let _ = tracee::interrupt(tid);
        }
    }

    /// A thread has stopped where it can be held: the tracer who waits for that goes on. None if there is one.
    pub(crate) fn hold_for_tracer(&mut self, stopped: Stopped) -> Result<Option<Stopped>> {
        let tid = stopped.tid();
        let Some(Attach { tracer, number }) = self.stop_the_world.awaited.remove(&tid) else {
            return Ok(Some(stopped));
        };
        if !shares_memory(tracer.tid(), tid) {
            // It has executed another program meanwhile.
            answer(tracer, Err(libc::ESRCH))?;
            return Ok(Some(stopped));
        }
        let world = self.segment.world;
        self.tell_of_pipe(&stopped)?;
        signals::take_back(&stopped, &self.image, world)?;
        signals::release_commits(&stopped, &self.image, world)?;
        let held = Held { stopped, tracer: tracer.tid(), number, is_told: false };
        self.stop_the_world.held.insert(tid, held);
        answer(tracer, Ok(0))?;
        self.ahead_on_hold(tid);
        Ok(None)
    }

    fn let_go_of(&mut self, target: ThreadId) -> Result<()> {
        let Some(held) = self.stop_the_world.held.remove(&target) else { return Ok(()) };
        match held.stopped.stop() {
            Stop::Group(_) => self.on_group_stop(held.stopped),
            _ => self.on_trap(held.stopped),
        }
    }

    /// A thread has ended: whom it held goes on, and who waited for it does not wait any more.
    pub(crate) fn stop_nobody_for(&mut self, tid: ThreadId) {
        if self.stop_the_world.awaited.is_empty() && self.stop_the_world.held.is_empty() {
            return;
        }
        self.stop_the_world.held.remove(&tid);
        self.stop_the_world.awaited.retain(|_, attach| attach.tracer.tid() != tid);
        if let Some(attach) = self.stop_the_world.awaited.remove(&tid) {
            let _ = answer(attach.tracer, Err(libc::ESRCH));
        }
        let held = self.stop_the_world.held.iter().filter(|(_, held)| held.tracer == tid);
        for target in held.map(|(&target, _)| target).collect::<Vec<_>>() {
            let _ = self.let_go_of(target);
        }
    }

    fn held_by(&self, tracer: ThreadId, number: i32) -> Option<ThreadId> {
        let mut held = self.stop_the_world.held.iter();
        held.find(|(_, held)| held.tracer == tracer && held.number == number).map(|(&target, _)| target)
    }

    fn tell_registers(&self, tracer: ThreadId, frame: &Frame) -> Answer {
        let [request, number, set, data, ..] = frame.args;
        let target = self.held_by(tracer, number as i32).ok_or(libc::ESRCH)?;
        let stopped = &self.stop_the_world.held[&target].stopped;
        let set = match request {
            stop_the_world::GETREGS => NT_PRSTATUS,
            stop_the_world::GETFPREGS => NT_FPREGSET,
            _ => set,
        };
        let bytes = self.registers_of(stopped, set)?;
        if request != stop_the_world::GETREGSET {
            return write(tracer, data, &bytes).map(|()| 0);
        }
        let [base, len]: [u64; 2] = tracee::read_value(tracer, data).map_err(|_| libc::EFAULT)?;
        if !len.is_multiple_of(8) {
            return Err(libc::EINVAL);
        }
        let len = bytes.len().min(len as usize);
        write(tracer, base, &bytes[..len])?;
        write(tracer, data + 8, &(len as u64).to_le_bytes())?;
        Ok(0)
    }

    /// The registers that a thread's program has. The agent uses none of the vector registers.
    fn registers_of(&self, stopped: &Stopped, set: u64) -> std::result::Result<Vec<u8>, i32> {
        match set {
            NT_PRSTATUS => signals::registers_of_program(stopped, &self.image)
                .map(|registers| bytes_of(&registers))
                .map_err(|_| libc::ESRCH),
            NT_FPREGSET | NT_X86_XSTATE => {
                let mut state = stopped.extended_state().map_err(|_| libc::ESRCH)?;
                if set == NT_FPREGSET {
                    state.resize(FPREGS_LEN, 0);
                    state[FPREGS_USED..].fill(0);
                }
                Ok(state)
            }
            _ => Err(libc::EINVAL),
        }
    }
}

/// A thread, or the number of an error.
type Found = std::result::Result<ThreadId, i32>;

fn shares_memory(a: ThreadId, b: ThreadId) -> bool {
    tracee::process_state::same_memory(a, b).unwrap_or(false)
}

fn write(tid: ThreadId, address: u64, bytes: &[u8]) -> std::result::Result<(), i32> {
    let range = address..address.wrapping_add(bytes.len() as u64);
    match tracee::write_ranges(tid, std::slice::from_ref(&range), bytes) {
        Ok(written) if written == bytes.len() => Ok(()),
        _ => Err(libc::EFAULT),
    }
}

/// Let a thread that has asked go on.
fn answer(stopped: Stopped, answer: Answer) -> Result<()> {
    let mut registers = stopped.registers()?;
    registers.rax = answer.unwrap_or_else(|errno| -i64::from(errno) as u64);
    registers.orig_rax = u64::MAX;
    stopped.set_registers(&registers)?;
    stopped.resume(0)
}

/// As the kernel lays them out.
fn bytes_of(r: &Registers) -> Vec<u8> {
    let words = [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi, r.rdi,
        r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss, r.fs_base, r.gs_base, r.ds, r.es, r.fs, r.gs,
    ];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
