//! What an operation on a kind of object passes on between processes (000, section 6), and which case shows it.
//!
//! The agent and the supervisor have code of their own for each. So that none of it is without a case, every operation
//! has to be one half of one: what A does gives, what B does takes. What a call shows of others is in the table of
//! system calls (`syscall_table::Shows`).

use Kind::*;
use Operation::*;

/// What can carry state from one process to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Process,
    ExitStatus,
    Pipe,
    Fifo,
    UnixSocket,
    LoopbackSocket,
    File,
    Directory,
    OpenFileDescription,
    SharedMemory,
    Futex,
    Signal,
    SignalFd,
    EventFd,
    TimerFd,
    Epoll,
    Inotify,
}

/// What a process does to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Wait,
    Control,
    GetAttributes,
    Exec,
    Fork,
    Exit,
    Poll,
    Create,
    Read,
    Write,
    Close,
    SetAttributes,
    Peek,
    Open,
    Connect,
    Lock,
    Map,
    ChangeName,
    Lookup,
    Seek,
    Unmap,
    Send,
    Deliver,
}

/// The operations on a kind of object that are tracked and pass something on: to the object, from it, or both.
struct Rule {
    kind: Kind,
    both: &'static [Operation],
    takes: &'static [Operation],
    gives: &'static [Operation],
}

const RULES: &[Rule] = &[
    Rule { kind: Process, both: &[Wait, Control], takes: &[GetAttributes, Exec], gives: &[Fork, Exit] },
    Rule { kind: ExitStatus, both: &[Wait], takes: &[Poll], gives: &[Create] },
    Rule {
        kind: Pipe,
        both: &[Create, Read, Write, Close, SetAttributes],
        takes: &[Peek, Poll, GetAttributes],
        gives: &[],
    },
    Rule {
        kind: Fifo,
        both: &[Open, Read, Write, Close, SetAttributes],
        takes: &[Peek, Poll, GetAttributes],
        gives: &[],
    },
    Rule {
        kind: UnixSocket,
        both: &[Create, Connect, Write, Read, Close, SetAttributes],
        takes: &[Peek, Poll, GetAttributes],
        gives: &[],
    },
    Rule {
        kind: LoopbackSocket,
        both: &[Create, Connect, Write, Read, Close, SetAttributes],
        takes: &[Peek, Poll, GetAttributes],
        gives: &[],
    },
    Rule {
        kind: File,
        both: &[Create, Write, SetAttributes, Lock],
        takes: &[Open, Read, GetAttributes, Map],
        gives: &[],
    },
    Rule {
        kind: Directory,
        both: &[SetAttributes, ChangeName],
        takes: &[Open, Lookup, Read, GetAttributes],
        gives: &[],
    },
    Rule { kind: OpenFileDescription, both: &[Create, Seek, SetAttributes], takes: &[GetAttributes], gives: &[] },
    Rule {
        kind: SharedMemory,
        both: &[Create, Map, Unmap, Write, SetAttributes],
        takes: &[Open, Read, GetAttributes],
        gives: &[],
    },
    Rule { kind: Futex, both: &[Write, Poll], takes: &[], gives: &[] },
    Rule { kind: Signal, both: &[Send, Deliver], takes: &[Poll], gives: &[] },
    Rule { kind: SignalFd, both: &[Create, SetAttributes, Read], takes: &[Poll], gives: &[] },
    Rule { kind: EventFd, both: &[Create, Read, Write], takes: &[Poll], gives: &[] },
    Rule { kind: TimerFd, both: &[Create, SetAttributes, Read], takes: &[GetAttributes, Poll], gives: &[] },
    Rule { kind: Epoll, both: &[Create, SetAttributes, Poll], takes: &[], gives: &[] },
    Rule { kind: Inotify, both: &[Create, SetAttributes], takes: &[], gives: &[] },
];

impl Rule {
    /// The operations that give something to the object.
    fn giving(&self) -> impl Iterator<Item = Act> + '_ {
        self.both.iter().chain(self.gives).map(|operation| (self.kind, *operation))
    }

    /// Those that take something from it.
    fn taking(&self) -> impl Iterator<Item = Act> + '_ {
        self.both.iter().chain(self.takes).map(|operation| (self.kind, *operation))
    }
}

type Act = (Kind, Operation);

/// What A does, what B does, and the case.
const CASES: &[(Act, Act, &str)] = &[
    ((Pipe, Write), (Pipe, Read), "pipe_data"),
    ((Pipe, Close), (Pipe, Read), "pipe_eof_close"),
    ((Pipe, Close), (Pipe, Poll), "pipe_poll_hup"),
    ((Pipe, Write), (Pipe, Peek), "pipe_fionread"),
    ((Pipe, Read), (Pipe, Write), "pipe_room"),
    ((Pipe, SetAttributes), (Pipe, Write), "pipe_room_size"),
    ((Pipe, SetAttributes), (Pipe, GetAttributes), "pipe_size"),
    ((Pipe, Write), (Pipe, SetAttributes), "pipe_shrink"),
    ((Fifo, Open), (Fifo, Open), "fifo_open"),
    ((Fifo, Write), (Fifo, Read), "fifo_data"),
    ((Fifo, Close), (Fifo, Read), "fifo_eof"),
    ((Fifo, Read), (Fifo, Write), "fifo_room"),
    ((Fifo, Write), (Fifo, Peek), "fifo_fionread"),
    ((Fifo, Write), (Fifo, Poll), "fifo_poll_in"),
    ((Fifo, SetAttributes), (Fifo, GetAttributes), "fifo_size"),
    ((Fifo, Write), (Fifo, SetAttributes), "fifo_shrink"),
    ((UnixSocket, Write), (UnixSocket, Read), "unix_data"),
    ((UnixSocket, Close), (UnixSocket, Read), "unix_eof"),
    ((UnixSocket, SetAttributes), (UnixSocket, Poll), "unix_poll_rdhup"),
    ((UnixSocket, Read), (UnixSocket, Write), "unix_room"),
    ((UnixSocket, Connect), (UnixSocket, Connect), "unix_accept"),
    ((UnixSocket, Write), (UnixSocket, Peek), "unix_peek"),
    ((UnixSocket, Read), (UnixSocket, GetAttributes), "unix_outq"),
    ((UnixSocket, SetAttributes), (UnixSocket, SetAttributes), "unix_bound"),
    ((LoopbackSocket, Write), (LoopbackSocket, Read), "tcp_data"),
    ((LoopbackSocket, Close), (LoopbackSocket, Read), "tcp_fin"),
    ((LoopbackSocket, Connect), (LoopbackSocket, Connect), "tcp_accept"),
    ((LoopbackSocket, Read), (LoopbackSocket, Write), "tcp_room"),
    ((LoopbackSocket, Write), (LoopbackSocket, Peek), "tcp_peek"),
    ((LoopbackSocket, Write), (LoopbackSocket, Poll), "tcp_poll_in"),
    ((LoopbackSocket, SetAttributes), (LoopbackSocket, Poll), "tcp_shutdown"),
    ((LoopbackSocket, SetAttributes), (LoopbackSocket, SetAttributes), "tcp_not_connected"),
    ((LoopbackSocket, SetAttributes), (LoopbackSocket, GetAttributes), "tcp_option"),
    ((File, Write), (File, Read), "file_read"),
    ((File, Write), (File, Map), "file_mmap_private"),
    ((File, SetAttributes), (File, GetAttributes), "stat_mode"),
    ((File, SetAttributes), (File, SetAttributes), "xattr_taken"),
    ((File, Write), (File, Write), "append_offset"),
    ((File, Lock), (File, Lock), "flock_busy"),
    ((File, Create), (Directory, Lookup), "name_open"),
    ((Directory, ChangeName), (File, Create), "name_taken"),
    ((Directory, ChangeName), (Directory, Lookup), "name_mkdir"),
    ((Directory, ChangeName), (Directory, Read), "name_readdir"),
    ((Directory, ChangeName), (Directory, ChangeName), "name_eexist"),
    ((Directory, ChangeName), (Directory, Open), "name_directory"),
    ((Directory, ChangeName), (File, Open), "name_enoent"),
    ((Directory, SetAttributes), (Directory, GetAttributes), "directory_mode"),
    ((Directory, SetAttributes), (Directory, SetAttributes), "directory_xattr"),
    ((OpenFileDescription, Seek), (OpenFileDescription, Seek), "lseek_shared"),
    ((OpenFileDescription, SetAttributes), (OpenFileDescription, GetAttributes), "flags_shared"),
    ((File, Write), (Process, Exec), "exec_binary"),
    ((Process, Exit), (Process, Wait), "wait_status"),
    ((ExitStatus, Create), (ExitStatus, Poll), "wait_nowait"),
    ((ExitStatus, Create), (ExitStatus, Wait), "wait_waitid"),
    ((Process, Exit), (Process, GetAttributes), "gone_proc"),
    ((Process, Exit), (Signal, Send), "gone_kill"),
    ((Process, Control), (Process, GetAttributes), "priority"),
    ((Process, Control), (Process, Control), "limit"),
    ((Process, Fork), (Pipe, Read), "fork_writes"),
    ((SharedMemory, Map), (SharedMemory, Map), "memory_anonymous"),
    ((SharedMemory, Unmap), (SharedMemory, Read), "memory_unmapped"),
    ((SharedMemory, Write), (SharedMemory, Read), "memfd_data"),
    ((SharedMemory, SetAttributes), (SharedMemory, GetAttributes), "memfd_size"),
    ((SharedMemory, SetAttributes), (SharedMemory, Write), "memfd_sealed"),
    ((SharedMemory, SetAttributes), (SharedMemory, SetAttributes), "memfd_sealed_twice"),
    ((SharedMemory, Create), (SharedMemory, Open), "sysv_open"),
    ((Futex, Write), (Futex, Poll), "memory_futex"),
    ((Futex, Poll), (Futex, Write), "futex_waiter"),
    ((Signal, Send), (Signal, Deliver), "signal_handler"),
    ((Signal, Send), (Signal, Poll), "signal_pending"),
    ((Signal, Send), (SignalFd, Read), "signalfd_"),
    ((Signal, Send), (SignalFd, Poll), "signalfd_poll"),
    ((SignalFd, SetAttributes), (SignalFd, Poll), "mask_of_signalfd"),
    ((EventFd, Write), (EventFd, Read), "eventfd_"),
    ((EventFd, Write), (EventFd, Poll), "eventfd_poll"),
    ((EventFd, Read), (EventFd, Write), "eventfd_room"),
    ((TimerFd, SetAttributes), (TimerFd, Read), "timerfd_by_a"),
    ((TimerFd, SetAttributes), (TimerFd, GetAttributes), "timerfd_gettime_"),
    ((TimerFd, SetAttributes), (TimerFd, SetAttributes), "timerfd_settime_"),
    ((TimerFd, Read), (TimerFd, Poll), "timerfd_taken"),
    ((Epoll, SetAttributes), (Epoll, SetAttributes), "epoll_added"),
    ((Epoll, SetAttributes), (Epoll, Poll), "epoll_waits"),
    ((Epoll, Poll), (Epoll, Poll), "epoll_oneshot"),
    ((Inotify, SetAttributes), (Inotify, SetAttributes), "inotify_second"),
];

/// What A cannot give by itself, and why.
const NOT_GIVEN: &[(Act, &str)] = &[
    ((Process, Wait), "whom only one process could wait for is missed by nobody else"),
    ((ExitStatus, Wait), "as waiting for the process"),
    ((SharedMemory, Unmap), "what was written gives, not that it is no longer mapped"),
    ((Signal, Deliver), "what is pending is the receiver's own"),
    ((SignalFd, Read), "each reads its own signals"),
];

/// What tells B nothing, and why.
const NOT_TAKEN: &[(Act, &str)] = &[
    ((OpenFileDescription, SetAttributes), "F_SETFL says nothing of the old flags"),
    ((SharedMemory, Unmap), "it says nothing of what was mapped"),
    ((SignalFd, SetAttributes), "signalfd says nothing of the old mask"),
];

/// Making an object tells of no other, unless there is a case for it; letting it go tells nothing at all.
fn is_blind(operation: Operation) -> bool {
    matches!(operation, Create | Close)
}

/// What is wrong with the cases, given the names of those that there are.
pub fn gaps(names: &[String]) -> Vec<String> {
    let mut gaps = Vec::new();
    for (gives, takes, name) in CASES {
        if !names.iter().any(|known| known == name) {
            gaps.push(format!("{name}: no such case"));
        }
        if !RULES.iter().any(|rule| rule.giving().any(|act| act == *gives)) {
            gaps.push(format!("{name}: the table says that {gives:?} gives nothing"));
        }
        if !RULES.iter().any(|rule| rule.taking().any(|act| act == *takes)) {
            gaps.push(format!("{name}: the table says that {takes:?} takes nothing"));
        }
    }
    for act in RULES.iter().flat_map(Rule::giving).filter(|act| act.1 != Create) {
        if !CASES.iter().any(|case| case.0 == act) && !NOT_GIVEN.iter().any(|(known, _)| *known == act) {
            gaps.push(format!("{act:?} gives, and no case shows it"));
        }
    }
    for act in RULES.iter().flat_map(Rule::taking).filter(|act| !is_blind(act.1)) {
        if !CASES.iter().any(|case| case.1 == act) && !NOT_TAKEN.iter().any(|(known, _)| *known == act) {
            gaps.push(format!("{act:?} takes, and no case shows it"));
        }
    }
    gaps
}
