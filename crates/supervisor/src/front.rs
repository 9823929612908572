//! The process that the user started: it starts the supervisor and COMMAND, stands for COMMAND in the shell's job
//! control, and ends with its status.

use crate::event_loop::Supervisor;
use crate::forward::Received;
use crate::kept::Kept;
use crate::log_files::LogFiles;
use crate::message::{Channel, Message, Order};
use crate::outputs::{CommitObserver, CommitRecord, Outputs};
use crate::same_core::SameCore;
use crate::signals::SignalSets;
use crate::stats::Stats;
use crate::texts::Texts;
use crate::volatile::{Volatile, VolatilePath};
use crate::{completions, devices, inherited, status, sys, threads};
use agent_abi::option;
use external_sync::domain::DomainTable;
use external_sync::engine::{Engine, Handles, Policy};
use external_sync::volume::WorldVolumes;
use procfs::{ProcessId, Status};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracee::{AgentImage, Filter, Forked, Segment, WorldSegment};

/// How system calls are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpose {
    /// Call sites are patched; what cannot be patched stops.
    Agent,
    /// Every call stops: slow, and the reference.
    Stops,
}

/// What to run, and how.
#[derive(Debug)]
pub struct RunOptions {
    /// The file to run.
    pub program: PathBuf,
    /// Its arguments, from its name on.
    pub args: Vec<OsString>,
    /// Volumes mounted for it.
    pub volumes: WorldVolumes,
    /// Below these paths what is written is not waited for.
    pub volatile: Vec<VolatilePath>,
    /// fsync returns at once on unordered domains, too.
    pub elide_fsync: bool,
    /// Every change asks for its commit.
    pub eager: bool,
    /// Age at which a transaction is committed.
    pub commit_interval: Duration,
    /// Each thread has its own clock (002, 4.5).
    pub independent_threads: bool,
    /// How system calls are seen.
    pub interpose: Interpose,
    /// Say what is refused.
    pub verbose: u8,
    /// Somebody wants the statistics: whoever ends right after COMMAND is waited for.
    pub wants_stats: bool,
    /// Nothing is taken from outside while something is uncommitted.
    pub hold_input: bool,
    /// Break the guarantee on purpose, so that a test of it can fail.
    pub release_early: bool,
    /// Full speculation.
    pub ahead: crate::ahead::AheadOptions,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status: COMMAND's own, or 128 + the signal that ended it.
    pub status: u8,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// What happened; `None` if processes of the world go on.
    pub stats: Option<Stats>,
}

/// Why it could not be run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The world could not be set up.
    #[error("cannot set up a world: {0}; see speculator doctor")]
    SetUp(String),
    /// COMMAND could not be started.
    #[error("cannot run {}: {source}; check it and the interpreter that it names", program.display())]
    Exec {
        /// Its path.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The filter could not be installed.
    #[error("cannot set up a world: seccomp is not allowed here: {0}; see speculator doctor")]
    Filter(io::Error),
    /// A flush failed.
    #[error("cannot make {file_system} durable: {error}; everything was stopped, and nothing that was not durable was shown")]
    Flush {
        /// Where it is mounted.
        file_system: String,
        /// The kernel's word.
        error: String,
    },
    /// The supervisor is gone.
    #[error(
        "the supervisor died, and the world with it; what was shown is durable, what was not durable was not shown"
    )]
    SupervisorDied,
    /// A volume.
    #[error("cannot unmount a volume: {0}; see speculator volume check")]
    Unmount(String),
}

impl RunError {
    /// 126 or 127 where COMMAND is to blame, as env(1) has it; else 125.
    pub fn status(&self) -> u8 {
        match self {
            Self::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Exec { .. } => STATUS_NOT_EXECUTED,
            _ => STATUS_OURS,
        }
    }
}

/// Something is wrong of which COMMAND is no cause.
const STATUS_OURS: u8 = 125;
/// COMMAND was found but cannot be executed, as env(1) has it.
const STATUS_NOT_EXECUTED: u8 = 126;

/// Signals that somebody may send us and mean COMMAND.
const FORWARDED: [i32; 12] = [
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPWR,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Run a command in a world of its own. Call it from a process with one thread.
pub fn run(mut options: RunOptions) -> Result<Ended, RunError> {
    let set_up = |what: &str| {
        let what = what.to_owned();
        move |source: io::Error| RunError::SetUp(format!("{what}: {source}"))
    };
    let (mut front_end, supervisor_end) = Channel::pair().map_err(set_up("socket pair"))?;
    let mask = sys::block_signals(&FORWARDED).map_err(set_up("signal mask"))?;
    let began = SystemTime::now();
    let supervisor = match tracee::fork_with().map_err(set_up("fork"))? {
        Forked::Child => {
            drop(front_end);
            supervise(supervisor_end, options);
            sys::exit_now(0);
        }
        Forked::Parent(pid) => pid,
    };
    drop(supervisor_end);
    // The supervisor unmounts the volumes; a copy of their directories would keep them busy.
    std::mem::take(&mut options.volumes).release();
    let started =
        await_ready(&mut front_end).and_then(|ids| start_command(&options, &mask, supervisor, ids, front_end));
    let (command, messages) = match started {
        Ok(started) => started,
        Err(error) => {
            tidy_up_after(supervisor, began, Some(&error));
            let _ = sys::wait_for(supervisor);
            return Err(error);
        }
    };
    inherited::let_go();
    // A working directory on a volume would keep it busy.
    let _ = std::env::set_current_dir("/");
    let ended = follow(command, &messages, options.wants_stats);
    tidy_up_after(supervisor, began, ended.as_ref().err());
    if !matches!(ended, Ok(Ended { stats: None, .. })) {
        // It ends right after its last message.
        let _ = sys::wait_for(supervisor);
    }
    ended
}

/// A supervisor that was killed may have made a segment that it could not mark for removal any more.
fn tidy_up_after(supervisor: ProcessId, began: SystemTime, problem: Option<&RunError>) {
    if matches!(problem, Some(RunError::SupervisorDied)) {
        tracee::remove_segments_of(
            supervisor,
            began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64),
        );
    }
}

fn await_ready(channel: &mut Channel) -> Result<(i32, i32), RunError> {
    match channel.receive() {
        Ok(Some(Message::Ready { agent_id, world_id })) => Ok((agent_id, world_id)),
        Ok(Some(Message::Failed { what })) => Err(RunError::SetUp(what)),
        _ => Err(RunError::SupervisorDied),
    }
}

/// COMMAND, as our child: it waits until it is held, installs the filter, and becomes the program. Its pid, and
/// what the supervisor tells from here on.
fn start_command(
    options: &RunOptions,
    mask: &libc::sigset_t,
    supervisor: ProcessId,
    (agent_id, world_id): (i32, i32),
    channel: Channel,
) -> Result<(ProcessId, Receiver<Heard>), RunError> {
    let io_error = |e: io::Error| RunError::SetUp(e.to_string());
    let (go_reader, go_writer) = io::pipe().map_err(io_error)?;
    let (error_reader, error_writer) = io::pipe().map_err(io_error)?;
    let command = match tracee::fork_with().map_err(io_error)? {
        Forked::Child => {
            drop((go_writer, error_reader));
            sys::allow_tracer(supervisor);
            let failure = become_command(options, mask, agent_id, world_id, go_reader);
            let _ = io::Write::write_all(&mut &error_writer, &failure.to_bytes());
            sys::exit_now(127);
        }
        Forked::Parent(pid) => pid,
    };
    drop((go_reader, error_writer));
    let messages = match await_seized(command, channel, options.verbose) {
        Ok(messages) => messages,
        Err(error) => {
            sys::kill(command, libc::SIGKILL);
            let _ = sys::wait_for(command);
            return Err(error);
        }
    };
    io::Write::write_all(&mut &go_writer, &[1]).map_err(io_error)?;
    drop(go_writer);
    let mut errno = Vec::new();
    io::Read::read_to_end(&mut &error_reader, &mut errno).map_err(io_error)?;
    let Ok(failure) = <[u8; 5]>::try_from(errno.as_slice()) else { return Ok((command, messages)) };
    let _ = sys::wait_for(command);
    Err(match StartFailure::from_bytes(failure) {
        StartFailure::Filter(errno) => RunError::Filter(io::Error::from_raw_os_error(errno)),
        StartFailure::Exec(errno) => {
            RunError::Exec { program: options.program.clone(), source: io::Error::from_raw_os_error(errno) }
        }
    })
}

/// Until COMMAND is held, and everything that it needs from us is there.
fn await_seized(command: ProcessId, mut channel: Channel, verbose: u8) -> Result<Receiver<Heard>, RunError> {
    let io_error = |e: io::Error| RunError::SetUp(e.to_string());
    channel.order(&Order::Seize { pid: command.as_raw() }).map_err(io_error)?;
    match channel.receive() {
        Ok(Some(Message::Seized)) => {}
        Ok(Some(Message::Failed { what })) => return Err(RunError::SetUp(what)),
        _ => return Err(RunError::SupervisorDied),
    }
    let supervisor = channel.sender().map_err(io_error)?;
    let (sender, heard) = std::sync::mpsc::channel();
    forward_signals(command, supervisor, sender.clone())
        .and_then(|()| read_messages(channel, verbose, sender))
        .map_err(io_error)?;
    Ok(heard)
}

/// What the front hears while it waits for COMMAND.
enum Heard {
    /// From the supervisor.
    Told(Message),
    /// Somebody has sent us a signal.
    Signal(i32, Instant),
    /// Nothing more will be told.
    SupervisorGone,
}

/// Why COMMAND did not start, as an errno; five bytes on the way from the child.
enum StartFailure {
    Filter(i32),
    Exec(i32),
}

impl StartFailure {
    fn to_bytes(&self) -> [u8; 5] {
        let (kind, errno) = match *self {
            Self::Filter(errno) => (0, errno),
            Self::Exec(errno) => (1, errno),
        };
        let [a, b, c, d] = errno.to_ne_bytes();
        [kind, a, b, c, d]
    }

    fn from_bytes([kind, errno @ ..]: [u8; 5]) -> Self {
        let errno = i32::from_ne_bytes(errno);
        if kind == 0 {
            Self::Filter(errno)
        } else {
            Self::Exec(errno)
        }
    }
}

/// Becomes a program without a world of its own. Returns only with an error.
pub fn become_program(program: &Path, args: &[OsString]) -> io::Error {
    let string = |text: &OsStr| CString::new(text.as_bytes());
    let args: Result<Vec<CString>, _> = args.iter().map(|arg| string(arg)).collect();
    let (Ok(program), Ok(args)) = (string(program.as_os_str()), args) else {
        return io::ErrorKind::InvalidInput.into();
    };
    sys::be_as_started();
    sys::exec(&program, &args)
}

/// In the child. Returns only with an error.
fn become_command(
    options: &RunOptions,
    mask: &libc::sigset_t,
    agent_id: i32,
    world_id: i32,
    mut go: io::PipeReader,
) -> StartFailure {
    let errno = |e: io::Error| e.raw_os_error().unwrap_or(libc::EIO);
    if let Err(e) = io::Read::read_exact(&mut go, &mut [0]) {
        return StartFailure::Filter(errno(e));
    }
    drop(go);
    let filter = Filter::new(agent_id, world_id);
    let c_string = |s: &std::ffi::OsStr| CString::new(s.as_bytes());
    let program = c_string(options.program.as_os_str());
    let args: Result<Vec<CString>, _> = options.args.iter().map(|a| c_string(a)).collect();
    let (Ok(program), Ok(args)) = (program, args) else { return StartFailure::Exec(libc::EINVAL) };
    sys::be_as_started();
    sys::set_signal_mask(mask);
    if let Err(e) = tracee::enter_world(&filter, !rustix::process::geteuid().is_root()) {
        return StartFailure::Filter(errno(e));
    }
    StartFailure::Exec(errno(sys::exec(&program, &args)))
}

/// A signal that somebody sends to us is meant for COMMAND; one from the terminal reaches it anyway.
fn forward_signals(
    command: ProcessId,
    mut supervisor: crate::message::Sender,
    heard: std::sync::mpsc::Sender<Heard>,
) -> io::Result<()> {
    let forward = move || loop {
        match sys::await_signal(&FORWARDED) {
            Ok((signal, true, sender)) if sender != command => {
                let _ = heard.send(Heard::Signal(signal, Instant::now()));
                supervisor.order(&Order::Forward { signal, sender: sender.as_raw() });
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    };
    threads::start("forward", forward).map(drop)
}

/// Messages come while we wait for COMMAND: those for people are told at once.
fn read_messages(mut channel: Channel, verbose: u8, heard: std::sync::mpsc::Sender<Heard>) -> io::Result<()> {
    let read = move || {
        while let Ok(Some(message)) = channel.receive::<Message>() {
            match message {
                Message::Note { text } if verbose > 0 => say(&text),
                Message::Detail { text } if verbose > 1 => say(&text),
                Message::Note { .. } | Message::Detail { .. } => {}
                Message::Warning { text } | Message::Refused { text, is_command: false, .. } => say(&text),
                other => {
                    if heard.send(Heard::Told(other)).is_err() {
                        return;
                    }
                }
            }
        }
        // The thread that hears signals lives on: that nothing more is told has to be said.
        let _ = heard.send(Heard::SupervisorGone);
    };
    threads::start("messages", read).map(drop)
}

/// Whoever has read our standard error may have left: that keeps nobody from hearing of COMMAND's end.
fn say(text: &str) {
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("speculator: {text}\n"));
}

/// The supervisor's next message of what became of COMMAND, or a signal that ends us. COMMAND has ended, so a signal
/// is ours, unless it was sent to the whole group and COMMAND has had it. `None`: the supervisor is gone.
fn await_outcome(heard: &Receiver<Heard>, ended: Instant) -> Result<Option<Message>, i32> {
    /// A signal to a process group reaches all of it within this time.
    const APART: Duration = Duration::from_millis(500);
    while let Ok(what) = heard.recv() {
        match what {
            Heard::Told(message) => return Ok(Some(message)),
            Heard::Signal(signal, when) if when > ended + APART && ends_us(signal) => return Err(signal),
            Heard::Signal(..) => {}
            Heard::SupervisorGone => break,
        }
    }
    Ok(None)
}

/// Whether a process that does nothing about this signal ends by it. Ours are all blocked, so that we may wait for
/// them; what is ignored was so when we were started.
fn ends_us(signal: i32) -> bool {
    let stops = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
    let own = SignalSets::of(ProcessId::own());
    !stops && own.is_ok_and(|sets| sets.ignored & 1 << (signal - 1) == 0)
}

/// Until COMMAND has ended and its end may be shown.
fn follow(command: ProcessId, heard: &Receiver<Heard>, wants_stats: bool) -> Result<Ended, RunError> {
    /// Who was only told to end, and has not been heard of yet, needs no longer than this.
    const PATIENCE: Duration = Duration::from_millis(500);
    let (mut status, mut signal) = await_command(command);
    let mut last = loop {
        match await_outcome(heard, Instant::now()) {
            Ok(Some(Message::Refused { text, is_to_blame, .. })) => {
                say(&text);
                // It was ended before its first instruction: for whoever has started it, it was not executed.
                (status, signal) = (if is_to_blame { STATUS_NOT_EXECUTED } else { STATUS_OURS }, None);
            }
            Ok(last) => break last,
            // The status is never shown, and nothing of COMMAND by ours. What it has written leaves as it is read.
            Err(signal) => return Ok(Ended { status: 128 + signal as u8, signal: Some(signal), stats: None }),
        }
    };
    if wants_stats && matches!(last, Some(Message::CommandSettled)) {
        let end = Instant::now() + PATIENCE;
        while let Ok(more) = heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if let Heard::Told(message) = more {
                last = Some(message);
                break;
            }
        }
    }
    match last {
        Some(Message::CommandSettled) => Ok(Ended { status, signal, stats: None }),
        Some(Message::WorldEnded { stats, unmount_error: None }) => Ok(Ended { status, signal, stats: Some(*stats) }),
        Some(Message::WorldEnded { unmount_error: Some(error), .. }) => Err(RunError::Unmount(error)),
        Some(Message::FlushFailed { file_system, error }) => Err(RunError::Flush { file_system, error }),
        _ => Err(RunError::SupervisorDied),
    }
}

fn await_command(command: ProcessId) -> (u8, Option<i32>) {
    loop {
        let Ok(status) = sys::wait_for(command) else { return (125, None) };
        if libc::WIFEXITED(status) {
            return (libc::WEXITSTATUS(status) as u8, None);
        }
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            return (128u8.wrapping_add(signal as u8), Some(signal));
        }
        if libc::WIFSTOPPED(status) {
            // The shell must see its job stopped; and when it continues the job, COMMAND goes on.
            sys::kill(ProcessId::own(), libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(2));
            if !sys::was_continued(command) {
                sys::kill(command, libc::SIGCONT);
            }
        }
    }
}

/// The supervising process, from its fork to its end.
fn supervise(mut channel: Channel, mut options: RunOptions) {
    let mut volumes = std::mem::take(&mut options.volumes);
    let mut front = match channel.sender() {
        Ok(front) => front,
        Err(_) => return,
    };
    let _ = front.another().map(crate::message::tell_of_panics);
    // Where it cannot be raised less runs ahead.
    let _ = sys::raise_limit_of_descriptors();
    let prepared = match Prepared::new(&options, &volumes) {
        Ok(prepared) => prepared,
        Err(e) => {
            let _ = volumes.unmount();
            return front.tell(&Message::Failed { what: e.to_string() });
        }
    };
    front.tell(&Message::Ready { agent_id: prepared.agent.id(), world_id: prepared.segment.id() });
    match channel.receive::<Order>() {
        Ok(Some(Order::Seize { pid })) => {
            let pid = ProcessId::from_raw(pid);
            if let Err(e) = tracee::seize(pid.leader()) {
                let _ = volumes.unmount();
                return front.tell(&Message::Failed { what: format!("ptrace is not allowed: {e}") });
            }
            let received = Received::default();
            // Before the first thread: what it blocks, all of them do. One that did not would be woken by every stop of
            // a tracee, to drop the signal.
            tracee::block_child_signal();
            let started = end_with_front(channel, pid, received.clone())
                .and_then(|()| prepared.start(pid, &mut front, &mut volumes, received));
            match started {
                Ok(running) => {
                    front.tell(&Message::Seized);
                    running.run(front, volumes);
                }
                Err(e) => {
                    let _ = volumes.unmount();
                    front.tell(&Message::Failed { what: e.to_string() });
                }
            }
        }
        _ => {
            let _ = volumes.unmount();
        }
    }
}

/// Whoever kills the front means COMMAND.
fn end_with_front(mut channel: Channel, command: ProcessId, received: Received) -> io::Result<()> {
    let end = move || {
        // The end of the channel is its end.
        while let Ok(Some(order)) = channel.receive() {
            if let Order::Forward { signal, sender } = order {
                received.forward(command, signal, ProcessId::from_raw(sender));
            }
        }
        sys::kill_if_held(command);
    };
    threads::start("front", end).map(drop)
}

/// Everything that the supervisor needs before COMMAND starts.
struct Prepared {
    segment: WorldSegment,
    agent: Segment,
    image: AgentImage,
    domains: DomainTable,
    handles: Arc<Mutex<Handles>>,
    outputs: Arc<Outputs>,
    kept: Kept,
    policy: Policy,
    is_root_user: bool,
    ahead: crate::ahead::AheadOptions,
    /// COMMAND and its arguments, for people.
    command_line: String,
    /// The process that the user started.
    front_pid: Option<ProcessId>,
    volatile: Vec<VolatilePath>,
}

impl Prepared {
    fn new(options: &RunOptions, volumes: &WorldVolumes) -> io::Result<Self> {
        check_machine()?;
        let is_root_user = rustix::process::geteuid().is_root();
        let segment = WorldSegment::create()
            .map_err(|e| io::Error::new(e.kind(), format!("no shared memory of the size of a world: {e}")))?;
        let world = segment.world;
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let volume_devs: Vec<u64> = volumes.iter().map(|volume| volume.dev()).collect();
        let domains = DomainTable::new(&volume_devs, &cwd)?;
        world.options.store(option_bits(options), Ordering::SeqCst);
        world.transactions.init(domains.domains().len().max(1));
        let handles = Arc::new(Mutex::new(Handles::default()));
        devices::publish(&domains, world, &handles)?;
        let inherited = sys::inherited()?;
        inherited::mark(world, &inherited)?;
        let kept = Kept::of(&inherited)?;
        inherited::detach(&inherited)?;
        let image = AgentImage::built_in();
        let agent = Segment::gatherable_with(image.bytes(), if is_root_user { 0o755 } else { 0o700 })?;
        let policy = Policy {
            interval: options.commit_interval,
            dirty_bytes_max: agent_abi::DIRTY_BYTES_MAX,
            eager: options.eager,
        };
        let outputs = Outputs::new(world)?;
        Ok(Self {
            segment,
            agent,
            image,
            domains,
            handles,
            outputs,
            kept,
            policy,
            is_root_user,
            ahead: options.ahead.clone(),
            volatile: options.volatile.clone(),
            command_line: command_line(&options.args),
            front_pid: sys::parent(),
        })
    }

    /// Everything that runs beside COMMAND. If that cannot be had, COMMAND has not begun.
    fn start(
        self,
        pid: ProcessId,
        front: &mut crate::message::Sender,
        volumes: &mut WorldVolumes,
        received: Received,
    ) -> io::Result<Running> {
        let begin = Instant::now();
        let world = self.segment.world;
        let failed = Arc::new(AtomicBool::new(false));
        let record = Arc::new(Mutex::new(CommitRecord::default()));
        let observer = CommitObserver {
            world,
            outputs: self.outputs.clone(),
            record: record.clone(),
            failed: failed.clone(),
            names: self.domains.domains().iter().map(|d| d.file_system.mount_point.display().to_string()).collect(),
            front: front.another()?,
        };
        let outputs = self.outputs.clone();
        let output_thread = threads::start("output", move || outputs.run())?;
        self.kept.watch(world, failed.clone())?;
        crate::mount_watch::start(world)?;
        let memories: io::Result<Vec<_>> = volumes.take_private().iter().map(crate::ahead::Memory::new).collect();
        let memories = memories?;
        let engine = Engine::start(world, self.policy, self.handles.clone(), Box::new(observer))?;
        let asked = Arc::new(status::Asked::default());
        let mut supervisor = Supervisor {
            texts: Texts::new(world, self.image.header.entry, if self.is_root_user { 0o755 } else { 0o700 }),
            segment: self.segment,
            agent: self.agent,
            image: self.image,
            tracees: HashMap::new(),
            descriptors: Default::default(),
            outputs: self.outputs.clone(),
            domains: self.domains,
            handles: self.handles.clone(),
            front: front.another()?,
            stats: Stats::default(),
            accounts: crate::spent::Accounts::default(),
            failed: failed.clone(),
            root: pid,
            unsettled: None,
            output_ids: HashMap::new(),
            next_output_id: 0,
            stopped_sites: HashMap::new(),
            stop_the_world: Default::default(),
            is_root_user: self.is_root_user,
            told_of_rights: HashSet::new(),
            ahead: crate::ahead::Ahead::new(self.ahead, memories),
            same_core: SameCore::new(tracee::process_state::run_first(), &world.usual_cores),
            confined: Vec::new(),
            watched: HashSet::new(),
            going_on_later: Vec::new(),
            resent_signals: Default::default(),
            traps_to_ignore: HashSet::new(),
            asked: asked.clone(),
            completions: Default::default(),
            received,
            classifier: None,
            refused: HashSet::new(),
            volatile: Volatile::new(self.volatile),
            log_files: LogFiles::default(),
            ended_unseen: crate::unseen::EndedUnseen::default(),
        };
        supervisor.adopt_root(pid);
        let known = status::Known {
            front: self.front_pid.map_or(0, ProcessId::as_raw),
            command: pid.as_raw(),
            command_line: self.command_line,
            begin,
            commits: record.clone(),
        };
        // Without it nobody can look at this world; it runs as well.
        let unseen = status::serve(known, asked).err();
        let unseen =
            unseen.or(completions::serve(self.front_pid.map_or(0, ProcessId::as_raw), &supervisor.completions).err());
        Ok(Running { supervisor, engine, output_thread, record, begin, unseen })
    }
}

/// A world from its first process on.
struct Running {
    supervisor: Supervisor,
    engine: Engine,
    output_thread: JoinHandle<()>,
    record: Arc<Mutex<CommitRecord>>,
    begin: Instant,
    /// Why nobody can look at this world.
    unseen: Option<io::Error>,
}

impl Running {
    /// Until its last process has ended, and everything is committed and told.
    fn run(self, mut front: crate::message::Sender, volumes: WorldVolumes) {
        let Self { mut supervisor, engine, output_thread, record, begin, unseen } = self;
        if let Some(error) = unseen {
            front.tell(&Message::Note { text: format!("speculator top will not see this world: {error}") });
        }
        let world = supervisor.world();
        let (outputs, handles, failed) =
            (supervisor.outputs.clone(), supervisor.handles.clone(), supervisor.failed.clone());
        let looped = supervisor.run();
        supervisor.completions.tell_the_last();
        if !engine.finish() && !failed.swap(true, Ordering::SeqCst) {
            let (file_system, error) = ("what was changed".to_owned(), "the thread that commits has ended".to_owned());
            front.tell(&Message::FlushFailed { file_system, error });
        }
        outputs.stop();
        let _ = output_thread.join();
        let mut stats = std::mem::take(&mut supervisor.stats);
        stats.spent = supervisor.accounts.by_name();
        stats.unpatched_sites += supervisor.stopped_sites.values().map(|sites| sites.len() as u64).sum::<u64>();
        stats.volatile_files = supervisor.volatile.files();
        stats.ahead = std::mem::take(&mut supervisor.ahead.report);
        stats.ahead.history = supervisor.ahead.ledger.history.take().map(|recorder| recorder.written);
        drop(supervisor);
        fill(&mut stats, world, &outputs, &record, begin);
        *handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Handles::default();
        let unmount_error = volumes.unmount().err().map(|e| e.to_string());
        if let Err(e) = looped {
            front.tell(&Message::Warning { text: format!("waiting for the world failed: {e}") });
        }
        if !failed.load(Ordering::SeqCst) {
            front.tell(&Message::WorldEnded { stats: Box::new(stats), unmount_error });
        }
    }
}

fn command_line(args: &[OsString]) -> String {
    let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    words.join(" ")
}

/// What would otherwise fail later and say less.
fn check_machine() -> io::Result<()> {
    if !procfs::machine::is_mounted() {
        return Err(io::Error::other("/proc is not mounted"));
    }
    let word = 0u64;
    match tracee::read_value::<u64>(ProcessId::own(), &raw const word as u64) {
        Ok(_) => Ok(()),
        Err(e) => Err(io::Error::other(format!("process_vm_readv is not allowed: {e}"))),
    }
}

fn option_bits(options: &RunOptions) -> u32 {
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    bit(options.elide_fsync, option::ELIDE_FSYNC)
        | bit(options.eager, option::EAGER)
        | bit(options.independent_threads, option::INDEPENDENT_THREADS)
        | bit(options.interpose == Interpose::Stops, option::NO_PATCHES)
        | bit(options.hold_input, option::HOLD_INPUT)
        | bit(options.release_early, option::RELEASE_EARLY)
        | bit(options.verbose > 0, option::VERBOSE)
        | bit(!rustix::process::geteuid().is_root(), option::ORDINARY_USER)
        | bit(is_filtered(), option::FILTERED_OUTSIDE)
        | bit(!options.volatile.is_empty(), option::VOLATILE)
}

/// Whether a system-call filter applies to us already (proc(5)).
fn is_filtered() -> bool {
    Status::of(ProcessId::own()).and_then(|status| status.is_filtered()).unwrap_or(false)
}

fn fill(stats: &mut Stats, world: &agent_abi::World, outputs: &Outputs, record: &Mutex<CommitRecord>, begin: Instant) {
    let record = record.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    stats.wall_us = begin.elapsed().as_micros() as u64;
    stats.commits = record.by_cause.clone();
    stats.commits_of_log = record.of_log;
    stats.commit_us = record.durations.distribution();
    (stats.output_hold_us, stats.output_bytes_held) = outputs.statistics();
    stats.fsyncs_elided = world.fsyncs_elided.load(Ordering::Relaxed);
    stats.volatile_bytes = world.volatile_bytes.load(Ordering::Relaxed);
    stats.fsyncs_committed = world.fsyncs_committed.load(Ordering::Relaxed);
    stats.writes_flushed = world.writes_flushed.load(Ordering::Relaxed);
    stats.barriers = by_call(&world.barriers);
    stats.waits = by_call(&world.waits);
}

/// Counts that are not zero, by the call's name.
fn by_call(counts: &[AtomicU32]) -> BTreeMap<String, u64> {
    let name =
        |nr: usize| syscall_table::row(nr as u64).map_or_else(|| format!("unknown_{nr}"), |row| row.name.to_owned());
    let counts = counts.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).enumerate();
    counts.filter(|&(_, count)| count > 0).map(|(nr, count)| (name(nr), count)).collect()
}
