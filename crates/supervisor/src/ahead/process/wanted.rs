//! Which children a wait asks for, and what of them (wait4(2), waitid(2)).

use crate::ahead::process::kill::SignalRequest;
use crate::ahead::{process, Call};
use crate::event_loop::Supervisor;
use agent_abi::Frame;
use procfs::ProcessId;
use syscall_table::nr;

/// What a wait asks for.
pub(super) struct Wanted {
    which: Which,
    pub nohang: bool,
    /// What it says then of children of whom none has ended.
    pub nobody: i64,
    /// Looks, and leaves the child to be waited for again.
    pub nowait: bool,
    pub exited: bool,
    /// Whether only those whose end SIGCHLD does not tell, or only the others.
    by_clone: Option<bool>,
    /// Children that were stopped or continued are told of, too.
    pub alive: bool,
}

/// Numbers as the program says them.
enum Which {
    Any,
    Pid(i32),
    Group(i32),
}

impl Wanted {
    /// Any child that has ended.
    pub const ANY: Self =
        Self { which: Which::Any, nohang: false, nobody: 0, nowait: false, exited: true, by_clone: None, alive: false };

    pub fn of(call: &Call) -> Self {
        Self::of_frame(call.pid, &call.frame, || call.behind())
    }

    /// `behind`: what the descriptor means by which a call waits.
    fn of_frame(pid: ProcessId, frame: &Frame, behind: impl FnOnce() -> Option<Behind>) -> Self {
        let mut is_nonblocking = false;
        let args = &frame.args;
        let own_group = || Which::Group(group_of(pid));
        let (which, options, exited) = if frame.nr == nr::waitid {
            let which = match args[0] as u32 {
                libc::P_PID => Which::Pid(args[1] as i32),
                libc::P_PGID if args[1] == 0 => own_group(),
                libc::P_PGID => Which::Group(args[1] as i32),
                libc::P_PIDFD => {
                    let behind = behind();
                    is_nonblocking = behind.is_some_and(|behind| behind.is_nonblocking);
                    Which::Pid(behind.map_or(-1, |behind| behind.process))
                }
                _ => Which::Any,
            };
            (which, args[3] as i32, args[3] as i32 & libc::WEXITED != 0)
        } else {
            let which = match args[0] as i32 {
                -1 => Which::Any,
                0 => own_group(),
                pid if pid > 0 => Which::Pid(pid),
                group => Which::Group(group.wrapping_neg()),
            };
            (which, args[2] as i32, true)
        };
        Self {
            which,
            nohang: options & libc::WNOHANG != 0 || is_nonblocking,
            nobody: if options & libc::WNOHANG != 0 { 0 } else { -i64::from(libc::EAGAIN) },
            nowait: frame.nr == nr::waitid && options & libc::WNOWAIT != 0,
            exited,
            by_clone: (options & libc::__WALL == 0).then_some(options & libc::__WCLONE != 0),
            alive: options & (libc::WUNTRACED | libc::WCONTINUED) != 0,
        }
    }

    /// Whether the kernel does not refuse a wait at once.
    pub fn is_known(call: &Call) -> bool {
        const ALWAYS: i32 =
            libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED | libc::__WNOTHREAD | libc::__WALL | libc::__WCLONE;
        let args = &call.frame.args;
        if call.frame.nr != nr::waitid {
            return args[2] as i32 & !ALWAYS == 0 && args[0] as i32 != i32::MIN;
        }
        let options = args[3] as i32;
        let has_event = options & (libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED) != 0;
        let is_kind = match args[0] as u32 {
            libc::P_ALL => true,
            libc::P_PID => args[1] as i32 > 0,
            libc::P_PGID => args[1] as i32 >= 0,
            libc::P_PIDFD => call.behind().is_some(),
            _ => false,
        };
        options & !(ALWAYS | libc::WEXITED | libc::WNOWAIT) == 0 && has_event && is_kind
    }

    /// Whether it asks for children of this kind.
    pub fn wants(&self, is_by_clone: impl FnOnce() -> Option<bool>) -> bool {
        self.by_clone.is_none_or(|wanted| is_by_clone().is_none_or(|is| is == wanted))
    }

    pub fn is_for_group(&self) -> bool {
        matches!(self.which, Which::Group(_))
    }

    pub fn matches(&self, child: ProcessId) -> bool {
        match self.which {
            Which::Any => true,
            Which::Pid(pid) => pid == child.as_raw(),
            Which::Group(group) => group_of(child) == group,
        }
    }
}

impl Supervisor {
    /// Whether a process has a child that depends on more than it does: which group that is in may be a guess.
    pub(super) fn has_child_further_ahead(&self, pid: ProcessId) -> bool {
        let kin = &self.ahead.children;
        let depends_on = |pid: ProcessId| self.ahead.core.dependencies_of_process(process(pid));
        let mut children = kin.unreaped_of(pid).filter(|&child| !kin.is_gone(child));
        children.any(|child| !depends_on(child).is_subset(depends_on(pid)))
    }

    /// Whether a call waits for children, of which none has ended. A child that was waited for already does not count.
    pub(in crate::ahead) fn waits_for_the_living(&self, pid: ProcessId, frame: &Frame) -> bool {
        let wanted = Wanted::of_frame(pid, frame, || Behind::of(pid, frame.args[1] as i32));
        let kin = &self.ahead.children;
        let has_ended = |child: ProcessId| kin.ended.contains(&child) || kin.held_exits.contains_key(&child);
        let children = kin.unreaped_of(pid).filter(|&child| wanted.matches(child) && !kin.is_gone(child));
        let mut unasked = self.ahead.unasked_ends.of(pid).filter(|&child| wanted.matches(child));
        !wanted.nohang && are_alive(children, has_ended) && unasked.all(procfs::is_unknown)
    }
}

impl Call {
    /// What the descriptor means by which it waits. The kernel, too, looks at that when the call begins; and who is
    /// kept waiting is looked at at each event.
    fn behind(&self) -> Option<Behind> {
        *self.awaited.get_or_init(|| Behind::of(self.pid, self.frame.args[1] as i32))
    }
}

/// What a descriptor means by which a call waits (pidfd_open(2)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    /// -1: one that was waited for.
    process: i32,
    /// Who waits by it is not to be kept waiting (`PIDFD_NONBLOCK`).
    is_nonblocking: bool,
}

impl Behind {
    fn of(pid: ProcessId, fd: i32) -> Option<Self> {
        let process = process_behind(pid, fd)?;
        let flags = procfs::descriptor_flags(pid, fd).unwrap_or(0);
        Some(Self { process, is_nonblocking: flags & libc::O_NONBLOCK as u32 != 0 })
    }
}

/// The process that a descriptor of another one's means.
fn process_behind(pid: ProcessId, fd: i32) -> Option<i32> {
    procfs::descriptor_field(pid, fd, "Pid").ok()?.parse().ok()
}

/// Whom a call sends which signal by a descriptor, if it says nothing else of it.
pub(in crate::ahead) fn signal_by_descriptor(call: &Call) -> Option<SignalRequest> {
    let [fd, signal, info, flags, ..] = call.frame.args;
    let is_plain = call.frame.nr == nr::pidfd_send_signal && (info, flags as u32) == (0, 0);
    // Of one that was waited for the number is -1.
    let receiver = is_plain.then(|| process_behind(call.pid, fd as i32)).flatten().filter(|&number| number > 0)?;
    Some(SignalRequest { receiver: ProcessId::from_raw(receiver), signal: signal as i32 })
}

/// Whether a call asks whether signals can be sent by a descriptor, which is that of the caller's own process: as Go
/// does to know whether there is the call.
pub(in crate::ahead) fn sends_itself_nothing(call: &Call) -> bool {
    signal_by_descriptor(call).is_some_and(|request| request.receiver == call.pid && request.signal == 0)
}

fn group_of(pid: ProcessId) -> i32 {
    // One whose leader is of an outer namespace has the number 0, to the kernel's own wait as well.
    crate::sys::group_of(pid).unwrap_or(0)
}

/// Whether there are children, and none of them has ended.
fn are_alive(children: impl Iterator<Item = ProcessId>, has_ended: impl Fn(ProcessId) -> bool) -> bool {
    let mut children = children.peekable();
    children.peek().is_some() && !children.any(has_ended)
}

/// Whether one of these children is such. If they are not known, one may be.
pub(super) fn has_child_of_whom(children: procfs::Result<Vec<ProcessId>>, is_such: impl Fn(ProcessId) -> bool) -> bool {
    procfs::unless_gone(children).map_or(true, |children| children.into_iter().any(is_such))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::process::child_signal::tests::unreadable;

    const ONE: ProcessId = ProcessId::from_raw(1);
    const OTHER: ProcessId = ProcessId::from_raw(2);

    #[test]
    fn children_that_cannot_be_listed_may_be_there() {
        assert!(has_child_of_whom(unreadable(), |_| false));
        assert!(!has_child_of_whom(Err(procfs::Error::Gone(ONE.into())), |_| true));
        assert!(!has_child_of_whom(Ok(vec![ONE]), |child| child == OTHER));
    }
}
