//! A signal for a thread that comes to a call, asks about it, or was kept there, where without us it would wait in the
//! call: it is interrupted in it.
//!
//! Who was kept has been in its call for as long, as far as its program is concerned, and a handler that only notes the
//! signal (Perl, shells) relies on the call to end. Where the call would not have to wait, the signal comes before it.

use crate::ahead::filesystems::disk::new_files::would_be_given;
use crate::ahead::process::thread_group::Then;
use crate::event_loop::Supervisor;
use crate::signals::{self, repeat_restarted, Look};
use agent_abi::Frame;
use procfs::{ProcessId, ThreadId};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags};
use rustix::net::sockopt::Timeout;
use std::os::fd::AsRawFd;
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
        let Some(frame) = signals::call_ahead(stopped.tid(), &look) else { return Ok(look) };
        match self.restart_of(stopped.tid(), &frame, stopped.signal()) {
            Some(restart) => {
                signals::interrupt_call(stopped, &self.image, self.segment.world, restart)?;
                signals::look(stopped, &self.image)
            }
            None => Ok(look),
        }
    }

    /// What the kernel would answer inside if a call that waits is interrupted by this signal; `None` if it is not
    /// known to wait.
    fn restart_of(&mut self, tid: ThreadId, frame: &Frame, signal: i32) -> Option<i64> {
        if frame.nr == nr::pause || sleeps(tid, frame) {
            return Some(ERESTARTNOHAND);
        }
        match syscall_table::op(frame.nr)? {
            // A child's end is found by the wait itself.
            Op::Wait if signal == libc::SIGCHLD => None,
            Op::Wait => {
                let pid = self.pid_of(tid).ok()?;
                self.waits_for_the_living(pid, frame).then_some(ERESTARTSYS)
            }
            Op::Read { fd } | Op::Recv { fd } | Op::RecvMsg { fd } => {
                (!takes_what_is_there(frame)).then(|| self.restart_at(tid, frame, fd, PollFlags::IN))?
            }
            Op::Accept => self.restart_at(tid, frame, 0, PollFlags::IN),
            Op::Write { fd } => self.restart_at(tid, frame, fd, PollFlags::OUT),
            Op::Flock => self.waits_for_lock(tid, frame).then_some(ERESTARTSYS),
            Op::Poll | Op::Select | Op::EpollWait => {
                let waits = waits_for_time(tid, frame) && !blocks(tid, frame, signal);
                (waits && self.knows_what_is_ready() && self.finds_nothing_ready(tid, frame)).then_some(ERESTARTNOHAND)
            }
            _ => None,
        }
    }

    /// Whether the kernel knows of everything that is to be had from pipes and sockets.
    fn knows_what_is_ready(&mut self) -> bool {
        !self.ahead.input.has_any() && !self.ahead.listeners.any_waits() && self.deceived_ends().is_empty()
    }

    /// What the kernel would answer if a call is interrupted that reads from a descriptor, accepts a connection there,
    /// or writes to it; `None` if the call is not known to wait.
    fn restart_at(&mut self, tid: ThreadId, frame: &Frame, fd: u8, events: PollFlags) -> Option<i64> {
        let is_simple = matches!(frame.nr, nr::read | nr::readv | nr::write | nr::writev | nr::accept | nr::accept4)
            || matches!(frame.nr, nr::recvfrom | nr::recvmsg);
        let copy = self.copy_descriptor(tid, frame.args[usize::from(fd)] as i32).ok().filter(|_| is_simple)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&copy).ok()?.st_mode);
        // A socket may take some bytes before `poll` says that it can be written to. What is no file, pipe or socket is
        // an event counter, a timer or the like.
        let may_wait = match kind {
            FileType::Fifo => true,
            FileType::Socket | FileType::Unknown => events == PollFlags::IN,
            _ => false,
        };
        let is_nonblocking = rustix::fs::fcntl_getfl(&copy).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
        if !may_wait || is_nonblocking || !self.knows_what_is_ready() {
            return None;
        }
        let mut one = [PollFd::new(&copy, events)];
        let waits = poll(&mut one, Some(&Timespec::default())) == Ok(0);
        // With a limit of time it does not begin again (socket(7)).
        let is_limited = kind == FileType::Socket
            && !rustix::net::sockopt::socket_timeout(&copy, Timeout::Recv).is_ok_and(|limit| limit.is_none());
        waits.then_some(if is_limited { ERESTARTNOHAND } else { ERESTARTSYS })
    }

    fn waits_for_lock(&mut self, tid: ThreadId, frame: &Frame) -> bool {
        let [fd, operation, ..] = frame.args;
        let Ok(copy) = self.copy_descriptor(tid, fd as i32) else { return false };
        // A lock that the same open file has already would be changed, and is in the way of others only.
        let has_lock = || procfs::descriptor_field(ProcessId::own(), copy.as_raw_fd(), "lock").is_ok();
        operation as i32 & libc::LOCK_NB == 0 && !has_lock() && !would_be_given(&copy, operation)
    }
}

/// Whether a call takes only what is there already.
fn takes_what_is_there(frame: &Frame) -> bool {
    let flags = match frame.nr {
        nr::recvfrom => frame.args[3],
        nr::recvmsg => frame.args[2],
        _ => 0,
    };
    flags as i32 & libc::MSG_DONTWAIT != 0
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

/// Whether a call that watches descriptors lets time pass if there is nothing to tell.
fn waits_for_time(tid: ThreadId, frame: &Frame) -> bool {
    let is_some_time = |at: u64| at == 0 || tracee::read_value::<[u64; 2]>(tid, at).is_ok_and(|time| time != [0, 0]);
    let args = &frame.args;
    match frame.nr {
        nr::poll => args[2] as i32 != 0,
        nr::ppoll => is_some_time(args[2]),
        nr::select | nr::pselect6 => is_some_time(args[4]),
        nr::epoll_wait | nr::epoll_pwait => args[3] as i32 != 0,
        nr::epoll_pwait2 => is_some_time(args[3]),
        _ => false,
    }
}

/// Whether a call that watches descriptors blocks this signal as long as it waits; 0: any.
fn blocks(tid: ThreadId, frame: &Frame, signal: i32) -> bool {
    let at = match frame.nr {
        nr::ppoll => Ok(frame.args[3]),
        nr::epoll_pwait | nr::epoll_pwait2 => Ok(frame.args[4]),
        // There the set is named by a word in memory.
        nr::pselect6 if frame.args[5] != 0 => tracee::read_value::<u64>(tid, frame.args[5]),
        _ => return false,
    };
    match at {
        Ok(0) => false,
        Ok(at) if signal > 0 => tracee::read_value::<u64>(tid, at).map_or(true, |set| set >> (signal - 1) & 1 != 0),
        _ => true,
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
