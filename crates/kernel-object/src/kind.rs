//! Kernel objects and what processes do with them.

/// A kind of object that can carry state from one process to another. The keys of `dependencies.md`: a process has a pid,
/// a file a device and an inode, a socket the inode of its receiving end, …
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// A process with all its threads.
    Process,
    /// What a dead process leaves for who waits for it.
    ExitStatus,
    /// A pipe.
    Pipe,
    /// A named pipe.
    Fifo,
    /// The receiving end of a Unix socket.
    UnixSocket,
    /// The receiving end of a TCP or UDP connection between two processes inside.
    LoopbackSocket,
    /// A regular file: data and attributes.
    File,
    /// A directory: the names in it, and its attributes.
    Directory,
    /// What `open` makes and `dup` and `fork` share: offset and flags.
    OpenFileDescription,
    /// A mapping that processes share: mmap, shm, memfd.
    SharedMemory,
    /// One signal on its way.
    Signal,
    /// A counter that processes read and write.
    EventFd,
    /// A timer.
    TimerFd,
    /// A descriptor that receives signals.
    SignalFd,
    /// A set of watched descriptors.
    Epoll,
    /// A set of watched files.
    Inotify,
    /// A wait queue on a page that processes share.
    Futex,
    /// Anything else.
    Other,
}

/// What a process does to an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// Take data out, or look at it.
    Read,
    /// Put data in.
    Write,
    /// Look without taking: `MSG_PEEK`, `tee` from, `FIONREAD`.
    Peek,
    /// Look whether something is there: `poll`, `select`, `epoll_wait`.
    Poll,
    /// Make it.
    Create,
    /// Open it by name, or attach to it.
    Open,
    /// Let the last reference go.
    Close,
    /// `stat`, `access`, `getdents`, `fcntl(F_GETFL)`, `getsockname`.
    GetAttributes,
    /// `chmod`, `utimensat`, `truncate`, `fcntl(F_SETFL)`, `setsockopt`, `shutdown`.
    SetAttributes,
    /// `flock`, `fcntl(F_SETLK)`.
    Lock,
    /// Put a name into a directory, or take one out: `link`, `unlink`, `mkdir`, `rename`.
    ChangeName,
    /// Look a name up.
    Lookup,
    /// `lseek`, and the part of `read` and `write` that moves the offset.
    Seek,
    /// Map it.
    Map,
    /// Take a mapping away.
    Unmap,
    /// `connect` to its listener, or `accept` from its queue.
    Connect,
    /// Send it. Of a signal: `kill`.
    Send,
    /// Take it. Of a signal: delivery.
    Deliver,
    /// `fork`, `clone`.
    Fork,
    /// `execve`.
    Exec,
    /// `exit`.
    Exit,
    /// `wait`.
    Wait,
    /// `setpgid`, `setpriority`, `prlimit`: change another process's attributes.
    Control,
    /// `ptrace`, `process_vm_writev`: change another process's memory.
    Trace,
}

impl ObjectKind {
    /// Every kind.
    pub const ALL: [ObjectKind; 18] = {
        use ObjectKind::*;
        [
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
            Signal,
            EventFd,
            TimerFd,
            SignalFd,
            Epoll,
            Inotify,
            Futex,
            Other,
        ]
    };
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 24] = {
        use Operation::*;
        [
            Read,
            Write,
            Peek,
            Poll,
            Create,
            Open,
            Close,
            GetAttributes,
            SetAttributes,
            Lock,
            ChangeName,
            Lookup,
            Seek,
            Map,
            Unmap,
            Connect,
            Send,
            Deliver,
            Fork,
            Exec,
            Exit,
            Wait,
            Control,
            Trace,
        ]
    };
}
