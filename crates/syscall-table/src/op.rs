//! What a system call means, in the words of `dependencies.md`. Argument positions are counted from 0.

/// Stands for "no directory descriptor: relative to the working directory".
pub const CWD: u8 = 0xff;

/// The six classes of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Carries nothing between processes and changes nothing outside: passes the filter, nobody looks at it.
    Native,
    /// Observes or modifies tracked objects.
    Tracked,
    /// May leave the world: held until what it depends on is committed.
    Output,
    /// Concerns this process (its descriptors, mappings, children) and our bookkeeping of them.
    Private,
    /// Answered by us, not by the kernel.
    Emulated,
    /// Not known to be safe: waits until the process depends on nothing, then runs.
    Barrier,
}

/// The spellings of fsync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// `fsync(fd)`, `fdatasync(fd)`.
    File,
    /// `syncfs(fd)`.
    FileSystem,
    /// `sync()`.
    All,
    /// `sync_file_range(fd, …)`.
    Range,
    /// `msync(addr, len, flags)`.
    Mapping,
}

/// What the agent does about a system call. Every field is the position of an argument, counted from 0; a `dir` may be
/// [`CWD`].
#[allow(missing_docs)] // The fields: the line above says all there is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Nothing: the filter lets it through. Only for rows of class `Native`.
    Native,
    /// Run it. Afterwards what it shows is observed, as its row says: it tells of another process, or of the
    /// machine, and changes nothing.
    Look,
    /// Wait until the process depends on nothing and its output has left, then run it.
    Barrier,
    /// Answer with this errno without asking the kernel.
    Refuse(u16),
    /// Observes the object behind the descriptor, after the call (data or attributes). An end-of-file on a stream
    /// observes its writers' end.
    Read { fd: u8 },
    /// Writes data to the object behind the descriptor; output if it is outside.
    Write { fd: u8 },
    /// As `Read`, from a socket.
    Recv { fd: u8 },
    /// As `Write`, to a socket: plain data, perhaps with an address (`sendto`).
    Send { fd: u8 },
    /// `recvmsg`: as `Recv`, and descriptors may arrive.
    RecvMsg { fd: u8 },
    /// `recvmmsg`: the same for several messages.
    RecvMmsg { fd: u8 },
    /// `sendmsg`: as `Send`, and descriptors may leave.
    SendMsg { fd: u8 },
    /// `sendmmsg`: the same for several messages.
    SendMmsg { fd: u8 },
    /// Observes attributes or position of the object behind the descriptor (`fstat`, `lseek`, `fgetxattr`…).
    ObserveFd { fd: u8 },
    /// Changes attributes, size or allocation of the object behind the descriptor (`ftruncate`, `fchmod`,
    /// `fsetxattr`…).
    ModifyFd { fd: u8 },
    /// Looks at, or changes, what all who share an open file see and is no data: options of a socket, a timer, a set of
    /// watched descriptors.
    Description { fd: u8 },
    /// `inotify_add_watch(fd, path, …)`: observes the name; the number of the watch tells how many there are.
    AddWatch { fd: u8, path: u8 },
    /// Limits and scheduling of the process at this position, 0 the caller itself: those of another one are for all to
    /// see.
    Control { pid: u8 },
    /// `setpgid`: the caller's own process group, or that of a child.
    Group,
    /// Moves data from one descriptor to another inside the kernel (`sendfile`, `splice`, `tee`, `copy_file_range`).
    Copy { input: u8, output: u8 },
    /// `vmsplice`: memory into a pipe, or out of it.
    Vmsplice,
    /// One of the spellings of fsync.
    Sync(SyncKind),
    /// `open(path, flags, mode)`.
    Open,
    /// `openat(dir, path, flags, mode)`.
    OpenAt,
    /// `openat2(dir, path, how, size)`.
    OpenAt2,
    /// `creat(path, mode)`.
    Creat,
    /// Looks up a name and observes that it is (not) there (`access`, `readlink`, `statfs`, `getxattr`…).
    ObservePath { dir: u8, path: u8 },
    /// As `ObservePath`, and fills a `struct stat` at argument `buf`.
    StatPath { dir: u8, path: u8, buf: u8 },
    /// `statx(dir, path, flags, mask, buf)`.
    Statx,
    /// Changes a name, or the attributes of what it names (`unlink`, `mkdir`, `chmod`, `truncate`…).
    ModifyPath { dir: u8, path: u8 },
    /// Changes two names (`rename`, `link`).
    ModifyPaths { dir: u8, path: u8, dir2: u8, path2: u8 },
    /// `chdir`: observes a name, and forgets what is known of the working directory.
    Chdir,
    /// `fchdir`.
    Fchdir,
    /// `close(fd)`.
    Close,
    /// `close_range(first, last, flags)`.
    CloseRange,
    /// `dup2(old, new)` and `dup3(old, new, flags)`: closes `new`.
    Dup2,
    /// `fcntl`: by command; `dup`, which is one of its commands.
    Fcntl,
    /// `ioctl`: by request.
    Ioctl,
    /// `flock`: observes and modifies the file's lock; may block.
    Flock,
    /// `pipe`, `pipe2`: an object that only we can reach.
    Pipe,
    /// `socketpair`.
    SocketPair,
    /// `connect`, `bind`, `listen`: a name that others can see.
    SocketName { fd: u8 },
    /// `accept`, `accept4`: observes who connected.
    Accept,
    /// `getpeername`, `getsockopt`: the state of a socket, and what is known of its peer.
    SocketState,
    /// `rt_sigtimedwait`, `rt_sigpending`: signals that are taken, or seen, without being delivered.
    TakeSignal,
    /// `shutdown(fd, how)`.
    Shutdown,
    /// `poll`, `ppoll`: observes that the ready ones are ready.
    Poll,
    /// `select`, `pselect6`.
    Select,
    /// `epoll_wait`, `epoll_pwait`, `epoll_pwait2`: observes that something is ready.
    EpollWait,
    /// `mmap`: the filter stops it only for file mappings, shared, executable or fixed over our pages.
    Mmap,
    /// `munmap`, `mprotect`, `mremap`, `madvise`…: stopped only where they touch our pages.
    OwnPages,
    /// `rt_sigaction`: the filter stops it only for SIGTRAP, with which a single step ends, and for SIGCHLD.
    Action,
    /// Sets a timer of its own: from then on a checkpoint has to look for timers.
    OwnTimer,
    /// `shmat`.
    Shmat,
    /// `fork`, `vfork`, `clone`: a child that inherits.
    Clone,
    /// `vfork`.
    Vfork,
    /// `fork`.
    Fork,
    /// `clone3`.
    Clone3,
    /// `execve`.
    Execve,
    /// `execveat`.
    Execveat,
    /// `wait4`, `waitid`: observes how a child ended, and what it did before.
    Wait,
    /// `exit` of one thread.
    Exit,
    /// `exit_group`.
    ExitGroup,
    /// `kill(pid, sig)`, `pidfd_send_signal`…: sender to receiver.
    Kill,
    /// `tkill(tid, sig)`.
    Tkill,
    /// `tgkill(tgid, tid, sig)`, `rt_tgsigqueueinfo`.
    Tgkill,
    /// `prctl`: by option.
    Prctl,
    /// `arch_prctl`: by code.
    ArchPrctl,
    /// Changes what a checkpoint of its process does not hold and nobody else depends on.
    Lasting,
    /// The same: user, group, capabilities. A process that gave up some cannot be put back as others can.
    Identity,
    /// `unshare`, `setns`: by flags.
    Namespace,
    /// `mount` and its kin: a barrier, after which the table of file systems is read again.
    Mount,
    /// `process_vm_writev` and its kin: observes or changes another process.
    OtherProcess,
    /// `ptrace`: what a process needs that stops the threads with which it shares its memory; the rest is refused.
    Trace,
}

impl Op {
    /// Where the names stand that it looks up: the directory's descriptor, or [`CWD`], and the path.
    pub const fn paths(self) -> [Option<(u8, u8)>; 2] {
        match self {
            Op::Open | Op::Creat | Op::Chdir | Op::Execve => [Some((CWD, 0)), None],
            Op::OpenAt | Op::OpenAt2 | Op::Statx | Op::Execveat => [Some((0, 1)), None],
            Op::AddWatch { path, .. } => [Some((CWD, path)), None],
            Op::ObservePath { dir, path } | Op::StatPath { dir, path, .. } | Op::ModifyPath { dir, path } => {
                [Some((dir, path)), None]
            }
            Op::ModifyPaths { dir, path, dir2, path2 } => [Some((dir, path)), Some((dir2, path2))],
            _ => [None, None],
        }
    }
}
