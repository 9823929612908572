//! Which case of `channels.c` shows which row of the table of `kernel_object`.
//!
//! The table says what each operation on each kind of object passes on; the agent and the supervisor have their own code for it. So that neither
//! can know of a channel that the other does not, every row must be one half of a case: what A does gives, what B does takes.

use kernel_object::{rows, rule, ObjectKind, Operation, Support};
use ObjectKind::*;
use Operation::*;

type Act = (ObjectKind, Operation);

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
        if rule(gives.0, gives.1).modifies.is_empty() || rule(takes.0, takes.1).observes.is_empty() {
            gaps.push(format!("{name}: the table says that {gives:?} gives nothing or {takes:?} takes nothing"));
        }
    }
    let tracked = rows().filter(|row| row.rule.lightweight == Support::Tracked);
    for row in tracked {
        let act = (row.kind, row.operation);
        let is_given = CASES.iter().any(|case| case.0 == act) || NOT_GIVEN.iter().any(|(known, _)| *known == act);
        let is_taken = CASES.iter().any(|case| case.1 == act) || NOT_TAKEN.iter().any(|(known, _)| *known == act);
        if !row.rule.modifies.is_empty() && !is_given && row.operation != Create {
            gaps.push(format!("{act:?} gives, and no case shows it"));
        }
        if !row.rule.observes.is_empty() && !is_taken && !is_blind(row.operation) {
            gaps.push(format!("{act:?} takes, and no case shows it"));
        }
    }
    gaps
}
