//! Full speculation (000, sections 4 to 6): processes run ahead of slow operations, and are taken back together with
//! everything they touched.
//!
//! The logic is the `speculation` crate's; here it gets hands. While something is speculative, or may become so, the
//! agent of every process asks before each call that concerns more than its own process ([`ask`]). The call is looked
//! at ([`plan`]): which objects does it observe and modify, how is that undone ([`undo`])? Then it is allowed,
//! answered, or kept waiting. What cannot be undone waits until its process depends on nothing.
//!
//! ```text
//! agent ── may I? ──> ask ──> plan ──> speculation::World ──> actions ──> rollback: vessels, undo, output
//!                      ^                      ^
//!                  parked calls        inject, api, deadlines
//! ```
//!
//! **Invariants**
//! * A call that gives new dependencies to an object is not allowed while another one on that object is under way: who
//!   was allowed before was allowed under what the object depended on then.
//! * A process with memory that others may write never becomes speculative: it waits instead.
//! * Nothing that a speculative process does leaves the world: what has no undo and is no output is a barrier.

mod calls;
mod events;
mod filesystems;
mod objects;
mod process;
mod rollback;
mod speculations;
mod touched;
pub(crate) use events::is_fatal;

pub(crate) use filesystems::memory::inverse::Memory;
use procfs::{ProcessId, ThreadId};
pub(crate) use rollback::is_traced_by_us;
pub use speculations::history::{Flow, Guess, History, Life, Outcome, Taken, TakenBack};
pub use speculations::inject::{Family, Injection, InjectionError};
pub use speculations::report::{Report, Rollback};

use crate::outputs::Target;
use agent_abi::Frame;
use commit_clock::Clock;
use filesystems::disk::writes::DeferredWrite;
use objects::kind::{Identities, Identity, Readiness};
use process::wanted::Behind;
use rollback::undo::Undo;
use speculation::Process;
use speculations::inject::{Deadlines, Injector, Outcomes};
use speculations::ledger::Ledger;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use syscall_table::Op;
use tracee::{Result, SignalInfo, Stopped, TraceError};

/// What can be speculative besides processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Object {
    /// A pipe or FIFO that only the world can reach, by inode number.
    Pipe(u64, u64),
    /// What was sent to a Unix socket whose both ends are inside, and whether more may come: the receiving end's inode.
    Socket(u64),
    /// An object of some kind, or an epoll set: see `objects::kind`.
    Of(Identity),
    /// A pipe or terminal of outside, as far as it has been read: see `objects::input::SourceId`.
    Input(u64, u64),
    /// Contents and attributes of a file: device, inode.
    File(u64, u64),
    /// Entries and attributes of a directory: device, inode.
    Names(u64, u64),
    /// That there is a file at all which has no name yet: device, inode.
    Created(u64, u64),
    /// Who has the lock of a file (`flock`): device, inode.
    Lock(u64, u64),
    /// The position in an open file: by the file, because descriptions have no name.
    Position(u64, u64),
    /// The descriptors of a process.
    Descriptors(ProcessId),
    /// What a process knows of its children.
    Children(ProcessId),
    /// Signals that were sent to a process.
    Signals(ProcessId),
}

impl Object {
    /// A socket of which it is not known which one it is: under way, it may concern any of them.
    const SOME_SOCKET: Self = Self::Socket(0);

    /// Whether whoever waits for it may go on though nobody inside does anything.
    pub fn comes_by_itself(&self) -> bool {
        matches!(self, Self::Of(identity) if identity.readiness() == Readiness::ByItself)
    }

    /// Whether a call may wait until somebody else has done something to it, and `poll` may look at it.
    pub fn can_be_awaited(&self) -> bool {
        match self {
            Self::Of(identity) => identity.readiness() != Readiness::Never,
            _ => matches!(self, Self::Pipe(..) | Self::Socket(_) | Self::Input(..)),
        }
    }
}

/// Output of a speculative process.
#[derive(Debug)]
pub(crate) enum Written {
    /// To a terminal, pipe or socket that leads outside.
    Stream { target: Target, writer: output::WriterId, clock: Clock, bytes: Vec<u8> },
    /// To the other end of a TCP connection inside.
    Sent(objects::sockets::tcp::Sent),
    /// To a file on a disk.
    File(DeferredWrite),
    /// To a directory on a disk.
    Names(filesystems::disk::name_changes::HeldChange),
    /// To what is said of a file or directory on a disk.
    Attributes(filesystems::disk::attributes::HeldAttributes),
    /// To stable storage.
    Sync(filesystems::disk::syncs::HeldSync),
    /// To a file's lock: it is given up.
    Unlock(objects::file_lock::HeldRelease),
}

pub(crate) type Core = speculation::World<Object, Undo, Written>;

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipe(_, ino) => write!(f, "pipe {ino}"),
            Self::File(_, ino) => write!(f, "file {ino}"),
            Self::Names(_, ino) => write!(f, "directory {ino}"),
            Self::Created(_, ino) => write!(f, "new file {ino}"),
            Self::Lock(_, ino) => write!(f, "lock of file {ino}"),
            Self::Position(_, ino) => write!(f, "position in file {ino}"),
            Self::Descriptors(pid) => write!(f, "descriptors of {pid}"),
            Self::Children(pid) => write!(f, "children of {pid}"),
            Self::Signals(pid) => write!(f, "signals to {pid}"),
            Self::Socket(ino) => write!(f, "socket {ino}"),
            Self::Of(identity) => identity.fmt(f),
            Self::Input(_, ino) => write!(f, "input {ino}"),
        }
    }
}

/// How full speculation is to work in a world.
#[derive(Clone, Debug, Default)]
pub struct AheadOptions {
    /// Calls that become speculations with random outcomes.
    pub injection: Injection,
    /// Wait for each injected call instead of running ahead of it: what the gain is measured against.
    pub waits: bool,
    /// Limits of the core.
    pub limits: Limits,
    /// Take checkpoints that cost more than the wait that they hide, too.
    pub always_checkpoints: bool,
    /// Ask about each call: the reference.
    pub asks_always: bool,
    /// Keep what happens for a picture.
    pub keeps_history: bool,
    /// Be killed after so many steps of rollbacks, so that a test can look at what is left.
    pub crash_in_rollback: Option<u64>,
    /// Where decisions are written down, for whoever looks for a fault here: the file that SPECULATOR_TRACE names.
    pub trace: Option<std::path::PathBuf>,
}

/// Options of the papers, with their defaults (000, 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Age above which a checkpoint is no longer shared.
    pub checkpoint_age: Duration,
    /// Full speculations that may be open at the same time.
    pub open_speculations: usize,
    /// Whether read-only speculations share a checkpoint at all.
    pub share_checkpoints: bool,
    /// What is taken for the wait where only a program knows how long its guess stays open.
    pub expected_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let core = speculation::Options::default();
        Self {
            checkpoint_age: Duration::from_millis(core.checkpoint_age_ms_max),
            open_speculations: core.open_speculations_max,
            share_checkpoints: core.share_checkpoints,
            expected_wait: Duration::from_secs(1),
        }
    }
}

/// A call that was asked about.
#[derive(Debug)]
pub(crate) struct Call {
    pub tid: ThreadId,
    pub pid: ProcessId,
    pub frame: Frame,
    pub frame_at: u64,
    /// Not looked at before: only then may it become a speculation.
    pub is_fresh: bool,
    /// An injected wait that is over at this time.
    pub not_before: Option<Instant>,
    /// Its result, once somebody else has found it.
    pub answer: Option<i64>,
    /// It was made before, by an execution that was taken back.
    pub was_rolled_back: bool,
    /// It was made just now, and failed because the program was open for writing.
    pub was_busy: bool,
    /// It waits until nothing at all is speculative.
    pub wants_window: bool,
    /// It is the end by this signal, wherever the thread is, and no call of its program.
    pub ends_by: Option<SignalInfo>,
    /// It has made this child, and waits for it as in `vfork`.
    pub awaits: Option<ProcessId>,
    /// The paths among its arguments, by their addresses, that were read since it has begun to be considered.
    pub texts: RefCell<Vec<(u64, Vec<u8>)>>,
    /// For whom it waits by a descriptor, once that was looked at.
    pub awaited: OnceCell<Option<Behind>>,
}

impl Call {
    /// Looked at before: nothing is known of it but this.
    fn new(tid: ThreadId, pid: ProcessId, frame: Frame, frame_at: u64) -> Self {
        Self {
            tid,
            pid,
            frame,
            frame_at,
            is_fresh: false,
            not_before: None,
            answer: None,
            was_rolled_back: false,
            was_busy: false,
            wants_window: false,
            ends_by: None,
            awaits: None,
            texts: RefCell::default(),
            awaited: OnceCell::new(),
        }
    }

    /// Whether it executes a program.
    fn executes(&self) -> bool {
        matches!(syscall_table::op(self.frame.nr), Some(Op::Execve | Op::Execveat))
    }

    /// Whether it may be made again to let signals in. Who waits in `vfork` hears none.
    fn hears_signals(&self) -> bool {
        self.answer.is_none() && self.awaits.is_none()
    }
}

/// Write what a call answers into its caller's memory. False where the caller itself could not write: the kernel would
/// say EFAULT.
fn write_answer(tid: ThreadId, at: u64, bytes: &[u8]) -> Result<bool> {
    match tracee::write_own_bytes(tid, at, bytes) {
        Err(error) if error.raw_os_error() != Some(libc::EFAULT) => {
            Err(TraceError::kernel("write an answer", tid, error))
        }
        written => Ok(written.is_ok()),
    }
}

/// State of full speculation in a world.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub core: Core,
    pub options: AheadOptions,
    injector: Injector,
    outcomes: Outcomes,
    begin: Instant,
    /// When something was speculative last.
    quiet_since: Instant,
    waiting: calls::waiting::WaitingCalls,
    under_way: calls::under_way::CallsUnderWay,
    checkpoints: rollback::checkpoints::Checkpoints,
    deadlines: Deadlines,
    explicit: speculations::explicit::ExplicitGuesses,
    outside: speculations::outside::Outside,
    held_signals: process::held_signals::HeldSignals,
    signals: process::signals::Queues,
    /// Processes that were asked to stop so that everything they do from now on is asked about.
    unsettled: HashSet<ThreadId>,
    children: process::children::Children,
    unasked_ends: process::unasked_ends::UnaskedEnds,
    /// A signal ends them, once nobody is at their pipes.
    ending: BTreeMap<ProcessId, (Stopped, SignalInfo)>,
    vessels: rollback::vessels::Vessels,
    /// Objects that may be speculative.
    touched: touched::Touched,
    files: filesystems::memory::Files,
    /// Ends of connections that we hold.
    ends: objects::sockets::queue::Ends,
    /// Sockets whose queue had something that cannot be kept, by inode.
    odd_queues: HashSet<u64>,
    identities: Identities,
    epoll_sets: objects::epoll::Sets,
    file_locks: objects::file_lock::FileLocks,
    leases: filesystems::open::Leases,
    record_locks: objects::record_lock::RecordLockedFiles,
    input: objects::input::Input,
    listeners: objects::sockets::accept::Listeners,
    shutdowns: objects::sockets::shutdown::Shutdowns,
    sends: objects::sockets::tcp::Sends,
    servers: objects::sockets::servers::Servers,
    /// Counts whatever may let a waiting call go on.
    changes: u64,
    /// They may have made a child of which they have not told yet.
    giving_birth: HashSet<ThreadId>,
    /// While a rollback puts objects back no waiting call is looked at: it would find some of them as before and some
    /// as after it. An error leaves this set, and ends the world (`resolve`): nobody may go on in what was half put
    /// back.
    is_rolling_back: bool,
    /// Every process inside was killed, because nothing here can be trusted any more.
    is_doomed: bool,
    /// Executed, and not yet heard of from their agent, which may be there (`is_without_agent`).
    starting: HashSet<ThreadId>,
    /// A call waits until it is known whether a pipe is inside ([`objects::new_pipes`]).
    awaits_pipes: bool,
    outside_ends: process::burial::OutsideEnds,
    /// Where output that is held goes to, by object.
    targets: HashMap<u64, Weak<OwnedFd>>,
    /// Writes and truncations that are held, by file.
    contents: filesystems::disk::contents::HeldContents,
    /// Who would hear that the time of such a file is set.
    watchers: filesystems::disk::watchers::Watchers,
    /// What held writes hold together.
    deferred_bytes: u64,
    /// Bounds that somebody had to wait at.
    reached: BTreeSet<speculations::bounds::Bound>,
    /// What is held for terminals, pipes and sockets.
    shown_bytes: u64,
    held_names: filesystems::disk::name_changes::HeldNames,
    walks: filesystems::walks::Walks,
    stages: filesystems::disk::stages::Stages,
    attributes: filesystems::disk::attributes::Attributes,
    mirrors: filesystems::disk::mirrors::Mirrors,
    new_files: filesystems::disk::new_files::NewFiles,
    program_names: filesystems::disk::program_names::ProgramNames,
    permits: calls::permits::Given,
    busy_programs: filesystems::text_busy::BusyPrograms,
    youth: objects::young_pipes::Youth,
    known_ways: calls::known_ways::KnownWays,
    whole_objects: calls::exchange::WholeObjects,
    /// Transactions that held writes went into.
    written: Clock,
    standstill: speculations::standstill::Standstill,
    /// See [`AheadOptions::trace`].
    trace: Option<std::fs::File>,
    pub ledger: Ledger,
    crash: rollback::crash::Crash,
    thread_groups: process::thread_group::ThreadGroups,
    costs: speculations::worth::Costs,
    pub report: Report,
    /// What became free while the queues were full.
    overflow: Vec<Written>,
}

impl Ahead {
    pub fn new(options: AheadOptions, memories: Vec<Memory>) -> Self {
        let limits = options.limits;
        let core = speculation::World::new(speculation::Options {
            checkpoint_age_ms_max: limits.checkpoint_age.as_millis() as u64,
            open_speculations_max: limits.open_speculations,
            share_checkpoints: limits.share_checkpoints,
        });
        let injector = Injector::new(&options.injection);
        let ledger = Ledger::new(options.keeps_history);
        let crash = rollback::crash::Crash::after(options.crash_in_rollback);
        let trace = options.trace.as_ref().and_then(|path| std::fs::File::create(path).ok());
        Self {
            core,
            injector,
            options,
            outcomes: Outcomes::default(),
            begin: Instant::now(),
            quiet_since: Instant::now(),
            waiting: Default::default(),
            under_way: Default::default(),
            checkpoints: Default::default(),
            deadlines: Deadlines::default(),
            explicit: Default::default(),
            outside: Default::default(),
            held_signals: Default::default(),
            signals: process::signals::Queues::default(),
            unsettled: HashSet::new(),
            children: process::children::Children::default(),
            unasked_ends: process::unasked_ends::UnaskedEnds::default(),
            ending: BTreeMap::new(),
            vessels: rollback::vessels::Vessels::default(),
            touched: touched::Touched::default(),
            files: filesystems::memory::Files::new(memories),
            ends: objects::sockets::queue::Ends::default(),
            odd_queues: HashSet::new(),
            identities: Identities::default(),
            epoll_sets: objects::epoll::Sets::default(),
            file_locks: objects::file_lock::FileLocks::default(),
            leases: filesystems::open::Leases::default(),
            record_locks: objects::record_lock::RecordLockedFiles::default(),
            input: objects::input::Input::default(),
            listeners: objects::sockets::accept::Listeners::default(),
            shutdowns: objects::sockets::shutdown::Shutdowns::default(),
            sends: objects::sockets::tcp::Sends::default(),
            servers: objects::sockets::servers::Servers::default(),
            changes: 0,
            giving_birth: HashSet::new(),
            is_rolling_back: false,
            is_doomed: false,
            starting: HashSet::new(),
            awaits_pipes: false,
            outside_ends: Default::default(),
            targets: HashMap::new(),
            contents: Default::default(),
            watchers: Default::default(),
            deferred_bytes: 0,
            reached: BTreeSet::new(),
            shown_bytes: 0,
            held_names: filesystems::disk::name_changes::HeldNames::default(),
            walks: Default::default(),
            stages: filesystems::disk::stages::Stages::default(),
            attributes: filesystems::disk::attributes::Attributes::default(),
            mirrors: filesystems::disk::mirrors::Mirrors::default(),
            new_files: filesystems::disk::new_files::NewFiles::default(),
            program_names: filesystems::disk::program_names::ProgramNames::default(),
            permits: calls::permits::Given::default(),
            busy_programs: filesystems::text_busy::BusyPrograms::default(),
            youth: objects::young_pipes::Youth::default(),
            known_ways: Default::default(),
            whole_objects: calls::exchange::WholeObjects::default(),
            written: Clock::NONE,
            standstill: speculations::standstill::Standstill::default(),
            trace,
            ledger,
            crash,
            thread_groups: process::thread_group::ThreadGroups::default(),
            costs: speculations::worth::Costs::default(),
            report: Report::default(),
            overflow: Vec::new(),
        }
    }

    /// All pieces that are held for an object share a descriptor of ours: a guess may hold more of them than we may
    /// open.
    fn with_one_descriptor(&mut self, mut target: Target) -> Target {
        match self.targets.get(&target.object).and_then(Weak::upgrade) {
            Some(fd) => target.fd = fd,
            None => {
                self.targets.retain(|_, fd| fd.strong_count() > 0);
                self.targets.insert(target.object, Arc::downgrade(&target.fd));
            }
        }
        target
    }

    /// Whether as much output is held as may be. Whoever writes more waits until nothing that it depends on can fail:
    /// it is the supervisor's memory, and when there is none left the world ends.
    fn holds_enough(&self) -> bool {
        const HELD_BYTES_MAX: u64 = 64 << 20;
        self.shown_bytes + self.deferred_bytes >= HELD_BYTES_MAX
    }

    /// Whether every call has to be asked about from the start.
    pub fn is_always_on(&self) -> bool {
        !self.options.injection.is_empty()
    }

    pub fn is_speculative(&self, pid: ProcessId) -> bool {
        self.core.is_speculative(process(pid))
    }

    /// Write down what was decided.
    fn trace(&mut self, what: impl FnOnce() -> String) {
        if let Some(file) = &mut self.trace {
            let line = format!("{:>10} {}\n", self.begin.elapsed().as_micros(), what());
            let _ = std::io::Write::write_all(file, line.as_bytes());
        }
    }

    /// Write down what was decided of a call.
    fn trace_decision(&mut self, call: &Call, decision: &calls::ask::Decision) {
        if self.trace.is_none() {
            return;
        }
        let (pid, [a, b, c, ..]) = (call.pid, call.frame.args);
        let depth = self.core.dependencies_of_process(process(pid)).len();
        let paths = syscall_table::op(call.frame.nr).map_or([None; 2], |op| op.paths());
        let path = |(_, at): (u8, u8)| crate::requests::read_path(call.tid, call.frame.args[usize::from(at) % 6]);
        let paths: Vec<_> = paths.into_iter().flatten().filter_map(path).collect();
        self.trace(|| {
            let name = syscall_table::row(call.frame.nr).map_or("speculate", |row| row.name);
            format!("{pid} ({depth}) {name}({a:#x}, {b:#x}, {c:#x}) {paths:?}: {decision:?}")
        });
    }

    /// Time since the world began.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// When the event loop has to look here again though nothing stopped.
    pub fn next_look(&self) -> Option<Instant> {
        /// Signals of a thread that is kept waiting are looked for this often.
        const PATIENCE: Duration = Duration::from_millis(3);
        let deadline = self.deadlines.next();
        let waits = !self.waiting.is_empty()
            || !self.overflow.is_empty()
            || !self.sends.is_empty()
            || self.servers.any_opening()
            || self.signals.any_unreached();
        let parked = waits.then(|| Instant::now() + PATIENCE);
        let injected = self.waiting.iter().filter_map(|parked| parked.call.not_before).min();
        let explicit = self.explicit.is_any_open().then(|| Instant::now() + Duration::from_millis(250));
        let unaccepted = self.listeners.any_waits().then(|| Instant::now() + objects::sockets::accept::PATIENCE);
        let others = [self.permits.next_look(), self.waiting.next_look()];
        [deadline, parked, injected, explicit, unaccepted].into_iter().chain(others).flatten().min()
    }
}

/// So far below a thread's page, in the agent's stack where it is never that deep, we put what we pass to calls that it
/// makes for us.
pub(crate) const SCRATCH: u64 = 0x6000;

pub(crate) fn process(pid: ProcessId) -> Process {
    Process(pid.as_raw() as u32)
}

/// The process that the core knows by this number: what [`process`] has made of it.
pub(crate) fn pid_of(process: Process) -> ProcessId {
    ProcessId::from_raw(process.0 as i32)
}
