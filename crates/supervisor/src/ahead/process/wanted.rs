//! Which children a wait asks for, and what of them (wait4(2), waitid(2)).

use agent_abi::Frame;
use procfs::ProcessId;
use syscall_table::nr;

/// What a wait asks for.
pub(super) struct Wanted {
    which: Which,
    pub nohang: bool,
    /// Looks, and leaves the child to be waited for again.
    pub nowait: bool,
    pub exited: bool,
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
    pub const ANY: Self = Self { which: Which::Any, nohang: false, nowait: false, exited: true, alive: false };

    pub fn of(pid: ProcessId, frame: &Frame) -> Self {
        let args = &frame.args;
        let own_group = || Which::Group(group_of(pid));
        let (which, options, exited) = if frame.nr == nr::waitid {
            let which = match args[0] as u32 {
                libc::P_PID => Which::Pid(args[1] as i32),
                libc::P_PGID if args[1] == 0 => own_group(),
                libc::P_PGID => Which::Group(args[1] as i32),
                libc::P_PIDFD => Which::Pid(process_behind(pid, args[1] as i32).unwrap_or(-1)),
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
            nohang: options & libc::WNOHANG != 0,
            nowait: frame.nr == nr::waitid && options & libc::WNOWAIT != 0,
            exited,
            alive: options & (libc::WUNTRACED | libc::WCONTINUED) != 0,
        }
    }

    /// Whether the kernel does not refuse a wait at once.
    pub fn is_known(pid: ProcessId, frame: &Frame) -> bool {
        const ALWAYS: i32 =
            libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED | libc::__WNOTHREAD | libc::__WALL | libc::__WCLONE;
        let args = &frame.args;
        if frame.nr != nr::waitid {
            return args[2] as i32 & !ALWAYS == 0 && args[0] as i32 != i32::MIN;
        }
        let options = args[3] as i32;
        let has_event = options & (libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED) != 0;
        let is_kind = match args[0] as u32 {
            libc::P_ALL => true,
            libc::P_PID => args[1] as i32 > 0,
            libc::P_PGID => args[1] as i32 >= 0,
            libc::P_PIDFD => process_behind(pid, args[1] as i32).is_some(),
            _ => false,
        };
        options & !(ALWAYS | libc::WEXITED | libc::WNOWAIT) == 0 && has_event && is_kind
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

/// The process that a descriptor of another one's means.
fn process_behind(pid: ProcessId, fd: i32) -> Option<i32> {
    procfs::descriptor_field(pid, fd, "Pid").ok()?.parse().ok()
}

fn group_of(pid: ProcessId) -> i32 {
    // One whose leader is of an outer namespace has the number 0, to the kernel's own wait as well.
    crate::sys::group_of(pid).unwrap_or(0)
}
