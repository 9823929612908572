//! A signal for a thread that comes to a call, asks about it, or was kept there, where without us it would wait in the
//! call: it is interrupted in it.
//!
//! Who was kept has been in its call for as long, as far as its program is concerned, and a handler that only notes the
//! signal (Perl, shells) relies on the call to end. Where the call would not have to wait, the signal comes before it.

use crate::ahead::process::thread_group::Then;
use crate::event_loop::Supervisor;
use crate::signals::{self, repeat_restarted, Look};
use agent_abi::Frame;
use procfs::ThreadId;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags};
use syscall_table::nr;
use syscall_table::Op;
use tracee::{Result, Stopped};

const ERESTARTSYS: i64 = -512;
const ERESTARTNOHAND: i64 = -514;

impl Supervisor {
    /// A signal is about to be delivered, or may be.
    /// Where the thread is then.
    pub(crate) fn interrupt_in_call(&mut self, stopped: &Stopped) -> Result<Look> {
        let look = signals::look(stopped, &self.image)?;
        // A child's end is found by the wait itself.
        if stopped.signal() == libc::SIGCHLD {
            return Ok(look);
        }
        let Some(frame) = signals::call_ahead(stopped.tid(), &look) else { return Ok(look) };
        match self.restart_of(stopped.tid(), &frame) {
            Some(restart) => {
                signals::interrupt_call(stopped, &self.image, self.segment.world, restart)?;
                signals::look(stopped, &self.image)
            }
            None => Ok(look),
        }
    }

    /// What the kernel would answer inside if a call that waits is interrupted; `None` if it is not known to wait.
    fn restart_of(&mut self, tid: ThreadId, frame: &Frame) -> Option<i64> {
        if frame.nr == nr::pause || sleeps(tid, frame) {
            return Some(ERESTARTNOHAND);
        }
        match syscall_table::op(frame.nr)? {
            Op::Wait => {
                let pid = self.pid_of(tid).ok()?;
                self.waits_for_the_living(pid, frame).then_some(ERESTARTSYS)
            }
            Op::Read { fd } => {
                self.waits_for_bytes(tid, frame.nr, frame.args[usize::from(fd)] as i32).then_some(ERESTARTSYS)
            }
            Op::Poll | Op::Select => waits_for_time(tid, frame).then_some(ERESTARTNOHAND),
            _ => None,
        }
    }

    fn waits_for_bytes(&mut self, tid: ThreadId, nr: u64, fd: i32) -> bool {
        if nr != nr::read || self.ahead.input.has_any() || !self.deceived_ends().is_empty() {
            return false;
        }
        let Ok(copy) = self.copy_descriptor(tid, fd) else { return false };
        let kind = rustix::fs::fstat(&copy).map(|stat| FileType::from_raw_mode(stat.st_mode));
        if !matches!(kind, Ok(FileType::Fifo | FileType::Socket))
            || rustix::fs::fcntl_getfl(&copy).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
        {
            return false;
        }
        let mut one = [PollFd::new(&copy, PollFlags::IN)];
        poll(&mut one, Some(&Timespec::default())) == Ok(0)
    }
}

/// Whether a call sleeps; all of the time is left, and it says so.
fn sleeps(tid: ThreadId, frame: &Frame) -> bool {
    let (is_absolute, time, left) = match (frame.nr, frame.args) {
        (nr::nanosleep, [time, left, ..]) => (false, time, left),
        (nr::clock_nanosleep, [_, flags, time, left, ..]) => (flags as i32 & libc::TIMER_ABSTIME != 0, time, left),
        _ => return false,
    };
    let Ok(asked) = tracee::read_value::<[u64; 2]>(tid, time) else { return false };
    let is_some_time = asked != [0, 0] && (asked[0] as i64) >= 0 && asked[1] < 1_000_000_000;
    let tells = !is_absolute && left != 0;
    let bytes: Vec<u8> = asked.iter().flat_map(|word| word.to_ne_bytes()).collect();
    is_some_time && (!tells || tracee::write_bytes(tid, left, &bytes).is_ok())
}

/// Whether a call watches nothing and only lets time pass.
fn waits_for_time(tid: ThreadId, frame: &Frame) -> bool {
    let is_some_time = |at: u64| at == 0 || tracee::read_value::<[u64; 2]>(tid, at).is_ok_and(|time| time != [0, 0]);
    let args = &frame.args;
    match frame.nr {
        nr::poll => args[1] == 0 && args[2] as i32 != 0,
        nr::ppoll => args[1] == 0 && is_some_time(args[2]),
        nr::select | nr::pselect6 => args[0] as i32 == 0 && is_some_time(args[4]),
        _ => false,
    }
}

/// A thread was put back; what it does then. See [`repeat_restarted`].
pub(in crate::ahead) fn make_own_call_again(stopped: &Stopped, mut then: Then) -> Result<Then> {
    match &mut then {
        Then::GoesOn => repeat_restarted(stopped, None)?,
        Then::Asks(call) if call.frame_at != 0 => repeat_restarted(stopped, Some((&mut call.frame, call.frame_at)))?,
        Then::Asks(_) | Then::IsRetired { .. } => {}
    }
    Ok(then)
}
