//! The memory that agent and supervisor share, and the few requests that go from one to the other.
//!
//! ```text
//! AGENT_BASE    the agent's code, read-only, one System V segment for every process of the world
//!   + 0         the gate page: the only place whose system calls the seccomp filter lets through
//! WORLD_BASE    `World`: clocks, transactions, process and thread slots; one segment, shared by all
//! PRIVATE_BASE  `Private`: one process's own: its descriptor cache, its first thread's page
//! THREADS_BASE  `ThreadPage`s of further threads, each THREAD_LEN
//! ```
//! System V segments need no descriptor in the program and no path: nothing that a close-all loop or a chroot could
//! take away.
//!
//! **Invariant:** everything in `World` may be read and written by any process inside at any time. The supervisor
//! treats what it reads there as a claim, bounds every index, and keeps its own truth about who is alive.
#![no_std]
#![forbid(unsafe_code)]

mod birth;
mod confinement;
mod directories;
mod door;
mod objects;
mod slots;
mod text;
mod thread;
mod ways;

pub use birth::Birth;
pub use confinement::Confinement;
pub use directories::{Directories, ShownAttributes, ShownDirectory, Time, DIRECTORIES};
pub use door::Door;
pub use objects::{
    hash_end, hash_object, Device, DeviceKind, FdEntry, FdKind, SocketEntry, DEVICES_MAX, OBJECTS, OUTSIDE_MAX, PIPES,
    QUEUES, SOCKETS,
};
pub use slots::{
    Known, Process, SlotMap, Thread, PROCESSES_MAX, PROCESS_CHILDLESS, PROCESS_ENDING, PROCESS_ENDS,
    PROCESS_EXIT_SIGNAL, PROCESS_GIVES_BACK, PROCESS_GOES, PROCESS_HAS_TO_HEAR, PROCESS_HEARS_OTHERS,
    PROCESS_IN_PSEUDO, PROCESS_KEEPS_MEMORY, PROCESS_KEPT_BY_EXEC, PROCESS_LOCKED_AHEAD, PROCESS_LOCKS,
    PROCESS_LOCKS_OUTSIDE, PROCESS_MAPPED_PRIVATE, PROCESS_MAPPED_SERVED, PROCESS_MAPPED_SHARED, PROCESS_NO_ZOMBIES,
    PROCESS_PRIVILEGES, PROCESS_SEES_OTHERS, PROCESS_SHARES, PROCESS_SHARES_STATE, PROCESS_TIMERS, PROCESS_UNDOES,
    PROCESS_WAITS, THREADS_MAX,
};
pub use text::{text_index, FileVersion, Text, TextRow, TextState, TEXTS_MAX};
pub use thread::{
    AgentHeader, Frame, Private, ThreadPage, AFTER_LEAVES, AFTER_MUST_FINISH, AFTER_OBSERVES, AFTER_REPEATS,
    AFTER_REPEATS_AND_FINISHES, AFTER_WAITS, FDS_MAX, OWN_DESCRIPTORS_MAX, PHASE_AFTER, PHASE_BEFORE, PHASE_PARTIAL,
    REPEATS, REST_TELLS, REST_WAITS, STUBS_MAX, SYNC_AFTER_WRITE, SYNC_OF_DATA, SYNC_SHOWS, SYNC_UNSHOWN,
    THREAD_FORKED, THREAD_TRACES, THREAD_UNCACHED, THREAD_WATCHED,
};
pub use ways::{WayEnd, WayKey, Ways, WAYS, WAY_LEN_MAX};

use commit_clock::{AtomicClock, Transactions, DOMAINS_MAX};
use core::sync::atomic::{AtomicU32, AtomicU64};
use epochs::Permits;
pub use epochs::{About, Work, YoungPipes};

/// Changes whenever the layout or the meaning of anything here changes; checked at every exec.
pub const PROTOCOL_VERSION: u32 = 24;

/// Written data at which a transaction is committed though nobody waits for it, bytes: what a journal of a gigabyte
/// would take into one transaction before it commits by itself (a quarter, half of that to be early).
pub const DIRTY_BYTES_MAX: u64 = 128 << 20;
/// Where the agent's code is mapped. The gate page comes first. Below the lowest place of a position-independent
/// executable (0x5555_5555_4000), and in program memory for every sanitizer: `decisions/0044`.
pub const AGENT_BASE: u64 = 0x5510_0000_0000;
/// Length of the gate page, bytes.
pub const GATE_LEN: u64 = 0x1000;
/// Most that the agent's image may take, bytes.
pub const AGENT_LEN_MAX: u64 = 0x10_0000;
/// Where `World` is mapped.
pub const WORLD_BASE: u64 = 0x5510_1000_0000;
/// Where `Private` is mapped. In the same gigabyte as the agent and the world: one page table less for every process.
pub const PRIVATE_BASE: u64 = 0x5510_3000_0000;
/// Where further threads' pages are mapped.
pub const THREADS_BASE: u64 = 0x5511_0000_0000;
/// Length of a thread's page with its stack below it, bytes.
pub const THREAD_LEN: u64 = 0x8000;
/// Where in that the `ThreadPage` itself begins: above its stack. What every call writes, and every fork copies, is
/// then one page of memory.
pub const THREAD_PAGE_OFFSET: u64 = THREAD_LEN - 0x400;
/// The first address after everything of ours.
pub const OWN_END: u64 = THREADS_BASE + THREADS_MAX as u64 * THREAD_LEN;

/// The number of the system call by which the agent asks the supervisor. No kernel has it; the filter turns it into a
/// stop.
pub const REQUEST_NR: u32 = 0x5bec;

/// What the agent can ask for: the first argument of `REQUEST_NR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Request {
    /// Take output for later: `(fd, frame)`. Answer: bytes taken, `-EAGAIN` if the queue is full, or `-EOPNOTSUPP`:
    /// wait instead.
    Output = 1,
    /// Plan the patches of the program's own file and of its interpreter: `(interpreter path or 0)`.
    PlanExecutable = 2,
    /// Plan the patches of the file behind a descriptor: `(fd)`.
    PlanFile = 3,
    /// Put back the bytes that the injection overwrote.
    Restore = 4,
    /// What kind of thing is this socket: `(fd)`. Answer: an `FdEntry`.
    Classify = 5,
    /// The table of mounted file systems may have changed.
    Mounts = 6,
    /// Something was refused: `(number, argument)`. Told to the user with `-v`.
    Refused = 7,
    /// The agent cannot go on: `(line)`.
    Fatal = 8,
    /// A descriptor of an outside stream is about to be closed: its other end must not see that before it may: `(fd)`.
    HoldEnd = 9,
    /// May this call be made, and as what: `(frame, busy)`. Answer: `ahead::…`. While the supervisor has no answer
    /// the thread stays stopped. `busy`: not 0 if the call has executed a program as it was answered, and has failed
    /// with ETXTBSY.
    Ahead = 10,
    /// A call that was to be told of has been made: `(result)`.
    Done = 11,
    /// A domain is about to be changed, and nobody has it open who could commit it: `(domain)`.
    Hold = 12,
    /// Something is about to be unmounted: close whatever need not be open: `(flags of umount2, number of the mount)`.
    LetGo = 13,
    /// `ptrace`, of those that `stop_the_world` names: `(frame)`. While the thread in question has not stopped
    /// there is no answer.
    Trace = 21,
    /// `wait4` of a thread that has stopped others: `(frame)`. `-EAGAIN`: not for one of these.
    TraceWait = 22,
    /// The process has a stream to outside: its other end must not see the process's end before it may, however that
    /// comes about.
    WatchEnd = 20,
    /// Is what is written to this file waited for: `(fd, slot of its clock)`. Answer: 1 if not (`--volatile`), else 0.
    Volatile = 23,
    /// May this call move something out of where nothing is waited for: `(frame)`. Answer: 0 if not.
    MovesOut = 24,
    /// Can this file be the log of its domain: `(fd, slot of its clock)`. Answer: its number, or 0. Unless another
    /// file has just become it, it becomes it at one of the next commits.
    Log = 25,
    /// Which mappings are the program's: `(from this address on, room for MAPPINGS_MAX pairs of address and length)`.
    /// Answer: how many.
    Mappings = 26,
    /// The file behind a descriptor has a device number that no mount shows: `(fd, number)`. Afterwards the table has
    /// it.
    Device = 27,
}

/// So many mappings are told in one answer.
pub const MAPPINGS_MAX: usize = 64;

impl Request {
    /// The request with this number.
    pub fn from_raw(raw: u64) -> Option<Self> {
        Some(match raw {
            1 => Self::Output,
            2 => Self::PlanExecutable,
            3 => Self::PlanFile,
            4 => Self::Restore,
            5 => Self::Classify,
            6 => Self::Mounts,
            7 => Self::Refused,
            8 => Self::Fatal,
            9 => Self::HoldEnd,
            10 => Self::Ahead,
            11 => Self::Done,
            12 => Self::Hold,
            13 => Self::LetGo,
            20 => Self::WatchEnd,
            21 => Self::Trace,
            22 => Self::TraceWait,
            23 => Self::Volatile,
            24 => Self::MovesOut,
            25 => Self::Log,
            26 => Self::Mappings,
            27 => Self::Device,
            _ => return None,
        })
    }
}

/// Answers to `Request::Ahead`.
pub mod ahead {
    /// Make the call.
    pub const GO: i64 = 0;
    /// Make the call and tell when it has been made.
    pub const GO_AND_TELL: i64 = 1;
    /// The supervisor has made it: its result is in the frame.
    pub const ANSWERED: i64 = 2;
    /// Ask again; signals that wait are delivered meanwhile.
    pub const AGAIN: i64 = 3;
    /// Make the call, which is `vfork` or one of its kin, as `fork`, and tell when it has been made.
    pub const GO_APART: i64 = 4;
    /// Make the call. A permit for more of its kind stands above these bits.
    pub const GO_ON_PERMIT: i64 = 5;
    /// The same for a call that puts something into a pipe or socket, or takes something out.
    pub const GO_ON_EXCHANGE: i64 = 6;
    /// The same for a write to a file that is put back as a whole.
    pub const GO_ON_WRITE: i64 = 7;
    /// The same for a call that reads a file without a name, or moves its position.
    pub const GO_ON_NEW_FILE: i64 = 8;
    /// Make another call that means the same, and tell when it has been made. Where its number and its arguments stand
    /// is said above these bits.
    pub const GO_INSTEAD: i64 = 9;
    /// The supervisor has made the call, which has opened a file that a guess has made. The permit on which the
    /// descriptor may be read and closed stands above these bits.
    pub const OPENED: i64 = 10;
    /// The same, and it may be written to as well.
    pub const OPENED_TO_WRITE: i64 = 11;
    /// The bits of an answer that say which one it is.
    pub const KINDS: i64 = 0xff;
    /// How far above them the permit, or the address, begins.
    pub const PERMIT_SHIFT: u32 = 8;
}

/// Kinds of calls that may be made on a permit: bits of `World::permitted`.
pub mod permitted {
    /// Looking a name up, or at a file.
    pub const LOOK: u32 = 1;
    /// Opening a file that is there to be read.
    pub const OPEN: u32 = 2;
    /// Reading a file.
    pub const READ: u32 = 4;
    /// Reading a directory.
    pub const READ_DIRECTORY: u32 = 8;
    /// Closing what was opened so.
    pub const CLOSE: u32 = 16;
    /// Writing to a file, pipe or socket.
    pub const WRITE: u32 = 32;
    /// Being told that there is no child to wait for. It needs no permit, and has no `kind`.
    pub const WAIT: u32 = 64;
    /// Being told that a program is not there. It has no `kind`: most such calls begin another program.
    pub const EXECUTE: u32 = 128;
    /// Being told that a name which is to be removed is not there. It has no `kind`, either.
    pub const REMOVE: u32 = 256;
    /// All of them.
    pub const ALL: u32 = 511;
    /// So much at most is put into a pipe or socket: it goes in as a whole, or the call waits (pipe(7), `PIPE_BUF`).
    pub const ATOMIC_LEN: u64 = 4096;
    /// So much a process writes to files between two questions: then it is looked whether there is room for more.
    pub const WRITTEN_LEN: u64 = 4 << 20;
    /// With no other flags than these an open makes, empties and changes nothing: `O_NOCTTY`, `O_NONBLOCK`,
    /// `O_LARGEFILE`, `O_DIRECTORY`, `O_NOFOLLOW`, `O_CLOEXEC`.
    pub const OPEN_BITS: u64 = 0o400 | 0o4000 | 0o100000 | 0o200000 | 0o400000 | 0o2000000;

    /// Of which kind the call with this number is, if there are permits for it.
    pub fn kind(nr: u64) -> Option<u32> {
        Some(match nr {
            // stat, fstat, lstat, lseek, access, readlink, statfs, newfstatat, readlinkat, faccessat, statx, faccessat2
            4 | 5 | 6 | 8 | 21 | 89 | 137 | 262 | 267 | 269 | 332 | 439 => LOOK,
            // open, openat
            2 | 257 => OPEN,
            // read, pread64, readv, preadv, recvfrom; mmap
            0 | 17 | 19 | 295 | 45 | 9 => READ,
            // write, pwrite64, sendto
            1 | 18 | 44 => WRITE,
            // getdents, getdents64
            78 | 217 => READ_DIRECTORY,
            // close
            3 => CLOSE,
            _ => return None,
        })
    }

    /// Whether it is a look or an open that names a file by its path.
    pub fn is_by_name(nr: u64) -> bool {
        matches!(kind(nr), Some(LOOK | OPEN)) && !is_by_descriptor(nr)
    }

    /// Whether it names a file by its first argument, a descriptor.
    pub fn is_by_descriptor(nr: u64) -> bool {
        matches!(nr, 5 | 8 | 0 | 17 | 19 | 295 | 78 | 217 | 3 | 1 | 18 | 44 | 45)
    }
}

/// The requests of `ptrace` that are answered where tracer and tracee share their memory (`decisions/0045`).
pub mod stop_the_world {
    /// `PTRACE_GETREGS`.
    pub const GETREGS: u64 = 12;
    /// `PTRACE_GETFPREGS`.
    pub const GETFPREGS: u64 = 14;
    /// `PTRACE_ATTACH`.
    pub const ATTACH: u64 = 16;
    /// `PTRACE_DETACH`.
    pub const DETACH: u64 = 17;
    /// `PTRACE_GETREGSET`.
    pub const GETREGSET: u64 = 0x4204;

    /// Whether it is one of them.
    pub fn is_answered(request: u64) -> bool {
        matches!(request, GETREGS | GETFPREGS | ATTACH | DETACH | GETREGSET)
    }
}

/// The number of the call by which programs speculate themselves (000, figure 2): `(what, speculation)`, see
/// `speculate`. No kernel has it.
pub const SPECULATE_NR: u32 = 0x5bed;

/// First argument of `SPECULATE_NR`.
pub mod speculate {
    /// Returns twice, as fork does: a new speculation's number, and `-ECANCELED` after it failed.
    pub const BEGIN: u64 = 1;
    /// The guess was right: `(speculation)`.
    pub const COMMIT: u64 = 2;
    /// The guess was wrong: `(speculation)`.
    pub const FAIL: u64 = 3;
    /// How many speculations the caller depends on.
    pub const DEPTH: u64 = 4;
    /// As `BEGIN`, for somebody outside of the world to resolve: `(tag)`, by which that one knows it.
    pub const BEGIN_OUTSIDE: u64 = 5;
}

/// Options of a world that the agent has to know: bits of `World::options`.
pub mod option {
    /// fsync returns at once on unordered domains too (`--elide-fsync`).
    pub const ELIDE_FSYNC: u32 = 1;
    /// Every change asks for its commit (`--commit=eager`; 002, 4.7).
    pub const EAGER: u32 = 2;
    /// Each thread has its own clock (`--threads=independent`; 002, 4.5 "noshm").
    pub const INDEPENDENT_THREADS: u32 = 4;
    /// Leave every call site as it is (`--interpose=stops`).
    pub const NO_PATCHES: u32 = 8;
    /// An event descriptor came from outside: writes to any of its kind may be seen there.
    pub const OUTSIDE_EVENTS: u32 = 32;
    /// For the crash disk's own test: release output at once. The guarantee is then broken on purpose.
    pub const RELEASE_EARLY: u32 = 64;
    /// A descriptor was taken out of another process: no process knows any more whether its own are shared.
    pub const DESCRIPTORS_TAKEN: u32 = 128;
    /// Whatever is refused is told (`-v`).
    pub const VERBOSE: u32 = 256;
    /// Descriptors were sent in a message: an object may be open though no process has a descriptor of it.
    pub const DESCRIPTORS_PASSED: u32 = 512;
    /// A name that says nothing of /proc may lead there: a link was made, or a file system mounted.
    pub const PROC_ELSEWHERE: u32 = 1024;
    /// Somebody inside hears, or has to allow, that a file is opened or read: the supervisor reads no program file
    /// any more.
    pub const READS_HEARD: u32 = 2048;
    /// The supervisor has an ordinary user's rights: it can trace only what that user may read.
    pub const ORDINARY_USER: u32 = 4096;
    /// The supervisor itself runs under a system-call filter.
    pub const FILTERED_OUTSIDE: u32 = 8192;
    /// Somebody inside gets a signal when a pipe or socket becomes ready (`O_ASYNC`).
    pub const READINESS_SIGNALLED: u32 = 32768;
    /// There are paths below which what is written is not waited for (`--volatile`).
    pub const VOLATILE: u32 = 16384;
    /// A socket was given a limit for how long a receiver waits (`SO_RCVTIMEO`).
    pub const RECEIVE_LIMITS: u32 = 65536;
    /// The same for a sender (`SO_SNDTIMEO`).
    pub const SEND_LIMITS: u32 = 131_072;
    /// Something was held that was written into a FIFO with a name: who reads there may be inside.
    pub const FIFO_HELD: u32 = 262_144;
    /// Somebody inside adopts orphans (`PR_SET_CHILD_SUBREAPER`), or hears of its parent's end (`PR_SET_PDEATHSIG`).
    pub const ENDS_OF_PARENTS_HEARD: u32 = 524_288;
    /// What is taken from outside waits for what is uncommitted (`--hold-input`).
    pub const HOLD_INPUT: u32 = 1_048_576;
    /// Somebody inside has ignored SIGTRAP: a single step would give that signal its default action.
    pub const TRAPS_IGNORED: u32 = 2_097_152;
    /// Somebody inside has locked a file (`flock`): a lock goes with the last descriptor of its open file.
    pub const FILES_LOCKED: u32 = 4_194_304;
    /// Somebody inside may not read the processor's clock (`PR_SET_TSC`).
    pub const CYCLES_FORBIDDEN: u32 = 8_388_608;
    /// Somebody inside mounts a file system, or has done so.
    pub const MOUNTED: u32 = 16_777_216;
    /// Somebody inside watches files, or has done so (inotify(7), fanotify(7)).
    pub const FILES_WATCHED: u32 = 33_554_432;
}

/// Bit of `World::mapped_domains`: a file in memory is mapped shared and writable.
pub const MAPPED_MEMORY: u32 = 1 << 31;

/// Bit of `World::private_changed`: a file that was mapped private has been changed by a call
/// (`World::private_changes`).
pub const PRIVATE_CHANGED: u32 = 1;
/// The same: it was also mapped shared and writable, so that it changes without a call.
pub const PRIVATE_STORES: u32 = 2;

/// Everything that the processes of a world share.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct World {
    /// `PROTOCOL_VERSION`.
    pub version: AtomicU32,
    /// Bits of `option`.
    pub options: AtomicU32,
    /// Bit d: domain d is ordered.
    pub ordered: AtomicU32,
    /// How many of `devices` are in use.
    pub devices_len: AtomicU32,
    /// Bit d: somebody had, or has, a writable shared mapping of a file of domain d: its commits must look for dirty
    /// pages, and whoever reads the file may see stores that no call has told of. `MAPPED_MEMORY`: the same for files
    /// in memory.
    pub mapped_domains: AtomicU32,
    /// Not 0: something is speculative, or may become so. The agent asks before each call that concerns more than its
    /// own process (000, 6.1).
    pub ahead: AtomicU32,
    /// `permitted::…` bits: which kinds of calls may be made on a permit.
    pub permitted: AtomicU32,
    /// The number of the supervisor's process, as `/proc` there has it.
    pub supervisor: AtomicU32,
    /// Which permits hold: while something is speculative, who has one need not ask (`decisions/0092`).
    pub permits: Permits,
    /// Names that may be looked up on a permit though something is held (`decisions/0196`).
    pub ways: Ways,
    /// What those inside are shown of directories of which something is held.
    pub directories: Directories,
    /// Pipes of a guess that all who have them depend on alike (`decisions/0231`).
    pub young: YoungPipes,
    /// `PRIVATE_…` bits: what was done to files that somebody has mapped private.
    pub private_changed: AtomicU32,
    /// Transactions of every domain.
    pub transactions: Transactions,
    /// Names: the newest transaction of each domain in which a name was made, removed or changed. One clock for all
    /// directories of a domain errs on the safe side and costs a lookup nothing.
    pub names: AtomicClock,
    /// Changes of files that somebody has mapped private.
    pub private_changes: AtomicClock,
    /// What anybody has sent into any pipe, socket or event descriptor: what a successful `epoll_wait` may have
    /// observed.
    pub messages: AtomicClock,
    /// Futex: counts commits.
    pub commits: AtomicU32,
    /// Not 0: the table of mounts has changed outside; whoever looks at a file asks the supervisor first
    /// (`Request::Mounts`).
    pub mounts_changed: AtomicU32,
    /// Futex: counts requests for commits.
    pub requests: AtomicU32,
    /// Threads that wait for a commit and do nothing else: it must not be put off.
    pub waiting: AtomicU32,
    /// Where a thread may run that never asked for anything else, bit n for core n, while hardly anybody but the world
    /// needs a core; else 0.
    pub usual_cores: AtomicU64,
    /// Bytes written to each domain since its last commit began.
    pub dirty_bytes: [AtomicU64; DOMAINS_MAX],
    /// Counts moments at which a descriptor of an outside stream may have been closed.
    pub closes: AtomicU64,
    /// fsyncs that returned at once.
    pub fsyncs_elided: AtomicU64,
    /// fsyncs in whose place the domain was committed.
    pub fsyncs_committed: AtomicU64,
    /// Writes to a log that flushed it before they returned.
    pub writes_flushed: AtomicU64,
    /// For each domain the number (`FdEntry::log`) of the file that is its log, or 0. Changed by the commit engine.
    pub logs: [AtomicU32; DOMAINS_MAX],
    /// fsyncs of files that could be a domain's log while another one was.
    pub log_misses: AtomicU32,
    /// How often somebody looked at the times of a log that were not on stable storage.
    pub log_looks: AtomicU32,
    /// For each domain the slot in `objects`, plus 1, of the log that processes with common memory flush with their
    /// writes; 0 if there is none. Another file may have the same slot.
    pub log_slots: [AtomicU32; DOMAINS_MAX],
    /// Bytes written to files that nobody waits for.
    pub volatile_bytes: AtomicU64,
    /// Counts calls that may have moved such files to where they are waited for.
    pub moves: AtomicU64,
    /// Barriers that had to wait or found nothing to wait for, by system-call number.
    pub barriers: [AtomicU32; 512],
    /// Calls that waited for a commit, by system-call number.
    pub waits: [AtomicU32; 512],
    /// The mounted file systems.
    pub devices: [Device; DEVICES_MAX],
    /// Pipes and sockets that came from outside: `hash_object`'s full 64 bits, 0 = free.
    pub outside: [AtomicU64; OUTSIDE_MAX],
    /// The first so many of `outside` are what COMMAND inherited: the supervisor keeps a copy of each, so that their
    /// end needs no other care.
    pub inherited: AtomicU64,
    /// Pipes made inside, by `hash_object`: a cache; what is not in it counts as outside.
    pub inside_pipes: [AtomicU64; PIPES],
    /// Pairs of Unix sockets made inside.
    pub sockets: [SocketEntry; SOCKETS],
    /// One bit a slot of `objects`: somebody had, or has, mapped it private.
    pub private_slots: [AtomicU64; OBJECTS / 64],
    /// The same for writable shared mappings.
    pub shared_slots: [AtomicU64; OBJECTS / 64],
    /// The same for any mapping of a file of a domain.
    pub mapped_slots: [AtomicU64; OBJECTS / 64],
    /// The same for pipes inside from which data went to outside without being read (`splice`).
    pub spliced_slots: [AtomicU64; OBJECTS / 64],
    /// Entries held in each outside object's queue.
    pub queue_pending: [AtomicU32; QUEUES],
    /// What is known of program files.
    pub texts: [Text; TEXTS_MAX],
    /// Which process slots are taken.
    pub process_map: SlotMap<{ PROCESSES_MAX / 64 }>,
    /// Which thread slots are taken.
    pub thread_map: SlotMap<{ THREADS_MAX / 64 }>,
    /// The processes.
    pub processes: [Process; PROCESSES_MAX],
    /// The threads.
    pub threads: [Thread; THREADS_MAX],
    /// What is known of each thread until it is seen. Not with the threads, of each of which all is in one line.
    pub births: [Birth; THREADS_MAX],
    /// The clock of every other object, by hash: two objects that meet in a slot share their dependencies, which is
    /// safe.
    pub objects: [AtomicClock; OBJECTS],
}
