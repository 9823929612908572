//! What the result of a call, or its error, tells of somebody else: another process, file, connection or mapping.
//!
//! Each row says it. Most operations observe by themselves what they show (a file's clock, the clock of all names);
//! what is left is looked at after the call by one rule: what a result shows and cannot be named observes
//! everything. While nothing is uncommitted that is one look.

/// Of whom the result of a call tells, or its error. Positions of arguments are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Nobody: a constant, time, chance, or an answer of ours.
    Nothing,
    /// The caller's own process.
    Own,
    /// Whoever sent a signal: the signal carries what that depends on.
    Signal,
    /// Whoever else has the same memory: its holders depend on everything at any time.
    Memory,
    /// Who made, removed or renamed a name, or changed what it leads to. Through `/proc` that is another process.
    Names,
    /// Who changed the object behind the descriptor: its data, room, attributes or end.
    Object,
    /// Who made any object ready, or took what was ready.
    Ready,
    /// Who is at the other end, listens, or has a name for that.
    Connection,
    /// A child that ended.
    Child,
    /// Whether the process that is to be signalled is there.
    Receiver,
    /// Nobody, if it succeeds. Any error may tell of others: of a limit that they reached, a child that executed a
    /// program, a group that is gone.
    Failure,
    /// The parent: another answer than the last one tells that it ended.
    Parent,
    /// The process at this position; 0 is the caller.
    Process {
        /// Position of the process id.
        pid: u8,
    },
    /// The process at argument 1 if argument 0 is this; else a group of processes, or all of a user.
    Selected {
        /// What argument 0 is where argument 1 is the id of a process.
        process: u8,
    },
    /// The process whose id is the second 32-bit word at the address in argument 0.
    Pointed,
    /// The process whose CPU time the clock at this position counts; the others are time.
    Clock {
        /// Position of the clock's id.
        id: u8,
    },
    /// Everybody who takes a part of something that is only counted as a whole: blocks of a file system, memory,
    /// processes.
    Totals,
    /// Anybody.
    Everything,
}

/// Whom a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The caller, or nobody.
    Caller,
    /// The process or thread with this id, as the caller counts them.
    Process(i32),
    /// The process whose id is at this address in the caller's memory.
    At(u64),
    /// Several, or it is not known.
    Anybody,
}

impl Shows {
    /// Whether the agent has something to look at when a call of such a row has succeeded. The other rows'
    /// operations observe what they show.
    #[inline(always)]
    pub const fn is_observed_afterwards(self) -> bool {
        !matches!(
            self,
            Shows::Nothing
                | Shows::Own
                | Shows::Signal
                | Shows::Memory
                | Shows::Names
                | Shows::Object
                | Shows::Ready
                | Shows::Connection
                | Shows::Child
                | Shows::Receiver
                | Shows::Failure
        )
    }

    /// Whom a call with these arguments is about, where its row names a process.
    pub const fn whom(self, args: &[u64; 6]) -> Whom {
        match self {
            Shows::Process { pid } => Whom::of(args[pid as usize % 6] as i32),
            Shows::Selected { process } if args[0] as u32 == process as u32 => Whom::of(args[1] as i32),
            Shows::Clock { id } => whose_clock(args[id as usize % 6] as i32),
            Shows::Pointed if args[0] == 0 => Whom::Caller,
            Shows::Pointed => Whom::At(args[0].wrapping_add(4)),
            Shows::Selected { .. } | Shows::Parent | Shows::Totals | Shows::Everything => Whom::Anybody,
            _ => Whom::Caller,
        }
    }
}

impl Whom {
    /// 0 stands for the caller.
    pub const fn of(pid: i32) -> Self {
        match pid {
            0 => Whom::Caller,
            pid => Whom::Process(pid),
        }
    }
}

/// The clock of a process or thread is its id, inverted, above three bits. `clock_getcpuclockid(3)`
const fn whose_clock(id: i32) -> Whom {
    const KIND: i32 = 3;
    const DEVICE: i32 = 3;
    match id {
        0.. => Whom::Caller,
        // The descriptor of a device.
        _ if id & KIND == DEVICE => Whom::Caller,
        _ => Whom::of(!(id >> 3)),
    }
}

/// Whether an error tells of others, whatever the call: of a process that is gone, a program that runs, a disk that
/// is full, a connection that broke. What is named here does not: it is a mistake of the caller's, or tells of what
/// the row's operation observes anyway.
pub const fn error_shows_others(errno: u16) -> bool {
    !matches!(
        errno,
        // EPERM, ENOENT, EINTR, E2BIG, ENOEXEC, EBADF, EAGAIN, ENOMEM, EACCES, EFAULT, ENOTBLK
        1 | 2 | 4 | 7 | 8 | 9 | 11 | 12 | 13 | 14 | 15
        // EEXIST, EXDEV, ENODEV, ENOTDIR, EISDIR, EINVAL, EMFILE, ENOTTY, EFBIG, ESPIPE, EROFS, EDOM, ERANGE
        | 17..=22 | 24 | 25 | 27 | 29 | 30 | 33 | 34
        // ENAMETOOLONG, ENOSYS, ENOTEMPTY, ELOOP, ENODATA, EOVERFLOW, ENOTSOCK, EDESTADDRREQ, EMSGSIZE, EPROTOTYPE,
        // ENOPROTOOPT
        | 36 | 38..=40 | 61 | 75 | 88..=92
        // EPROTONOSUPPORT, ESOCKTNOSUPPORT, EOPNOTSUPP, EPFNOSUPPORT, EAFNOSUPPORT, ETIMEDOUT, EINPROGRESS
        | 93..=97 | 110 | 115
    )
}
