//! One try, from its beginning to the decision. Until then nothing outside has changed, and if this process ends,
//! however that comes about, the kernel drops everything.

use procfs::mountinfo::{self, Mount, Table};
use procfs::{MagicLink, ProcessId, Status};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::{Resource, Rlimit};
use rustix::time::{clock_gettime, ClockId};

use crate::apply::{Fuse, Manner};
use crate::changes::Changes;
use crate::check::{self, Surroundings};
use crate::error::{in_place, set_up, LayerError};
use crate::gate::{Asker, Asking, Gate, Reached};
use crate::held::{Collector, Held, Stream};
use crate::image::LayerImage;
use crate::input::{self, Copying};
use crate::inside::{Inside, Message, DECIDE, GO, STAGES};
use crate::plan::{FileSystemPlan, Plan, PLAN_NAME, PLAN_VERSION};
use crate::record::Record;
use crate::scan::{self, Moment};
use crate::sys;
use crate::terminal::{Carrier, Joint, UsersTerminal};
use crate::view::{Layered, View};

/// May COMMAND speak to somebody outside?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// It has a network of its own, without a way out.
    No,
    /// The first time, somebody is asked.
    Ask,
    /// Yes. What it sends cannot be undone.
    Yes,
}

/// What to try, and how.
pub struct TryOptions {
    /// The file to run.
    pub program: PathBuf,
    /// Its arguments, from its name on.
    pub args: Vec<OsString>,
    /// What it may reach.
    pub network: Network,
    /// Who is asked.
    pub asker: Option<Asker>,
    /// Where the layer's file is made.
    pub layer_dir: PathBuf,
    /// Wait for all processes, not only for COMMAND.
    pub wait: bool,
    /// A shell command that decides, run in COMMAND's view when COMMAND has ended.
    pub keep_if: Option<OsString>,
    /// COMMAND gets a terminal of its own, joined to ours: it is seen at once, and not held, what it shows there.
    pub terminal: bool,
    /// Of SIGPIPE and SIGXFSZ those that COMMAND finds ignored, as we did.
    pub ignored: Vec<i32>,
    /// Standard descriptors that COMMAND is not to have, as we had none.
    pub closed: Vec<i32>,
}

/// A process that went on when COMMAND had ended. It was killed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LeftRunning {
    /// Its number, outside.
    pub pid: i32,
    /// What it was started as.
    pub command: String,
}

/// What COMMAND did.
pub struct Ran {
    /// COMMAND's exit status, or 128 + the signal that ended it.
    pub status: u8,
    /// What the deciding command said, if there was one.
    pub decided: Option<u8>,
    /// Processes that went on.
    pub left: Vec<LeftRunning>,
    /// What it tried to reach past the files.
    pub reached: Vec<Reached>,
    /// What it printed.
    pub printed: Held,
    /// What it did to files.
    pub changes: Changes,
    /// What could only be read, and why.
    pub read_only: Vec<(PathBuf, &'static str)>,
}

/// A try that runs, or that waits for the decision.
pub struct Attempt {
    view: View,
    image: LayerImage,
    plans: Vec<FileSystemPlan>,
    begun: Moment,
    phase: Phase,
    /// Of everybody else, and what it was at the beginning.
    mounts: RefCell<Table>,
    mounts_before: Vec<Mount>,
}

/// What a signal means, by how far the try is.
#[derive(Clone, Debug)]
struct Phase(Arc<Progress>);

#[derive(Debug)]
struct Progress {
    phase: AtomicU8,
    first: AtomicI32,
    command: AtomicI32,
    terminal: Mutex<Option<Joint>>,
}

const RUNNING: u8 = 0;
/// The deciding command runs.
const JUDGING: u8 = 1;
const DECIDING: u8 = 2;
const KEEPING: u8 = 3;
/// What is left is to show what was printed.
const KEPT: u8 = 4;
/// What is left is to say why not.
const OVER: u8 = 5;
/// A signal has ended it: nothing comes after this.
const GIVEN_UP: u8 = 6;

/// Signals that mean: enough; and the one that says that the terminal's size has changed.
const AWAITED: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGWINCH];

/// Those of them that whoever started us (nohup(1), a shell behind `&`) has not said to ignore: a signal that is
/// blocked arrives also if it is ignored.
fn awaited() -> Vec<i32> {
    AWAITED.into_iter().filter(|&signal| !sys::is_ignored(signal)).collect()
}

impl Attempt {
    /// Runs COMMAND to its end, and looks at what it did. Call it from a process with one thread.
    pub fn run(mut options: TryOptions) -> Result<(Attempt, Ran), LayerError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LayerError::NotRoot);
        }
        let cwd = std::env::current_dir().map_err(LayerError::WorkingDirectory)?;
        let file_size = lift_file_size();
        let image = LayerImage::create(&options.layer_dir)?;
        let begun = beginning();
        let failed = || set_up(mountinfo::PATH);
        let mut mounts = Table::open().map_err(failed())?;
        let mounts_before = mounts.read_again().map_err(failed())?;
        let view = View::build(&image)?;
        // What COMMAND does has another time than what was done for it.
        let _ = beginning();
        let mask = sys::block_signals(&awaited());
        let started = start(&mut options, &view, (cwd, file_size, mask))?;
        let (plans, phase, mounts) = (Vec::new(), started.phase.clone(), RefCell::new(mounts));
        let mut attempt = Attempt { view, image, plans, begun, phase, mounts, mounts_before };
        let ran = attempt.follow(started, &options)?;
        Ok((attempt, ran))
    }

    fn follow(&mut self, mut started: Started, options: &TryOptions) -> Result<Ran, LayerError> {
        let result = started.await_command(options);
        // From here on the first process's number may be another's.
        self.phase.advance(DECIDING);
        let left = processes_of(started.first);
        sys::kill(started.first, libc::SIGKILL);
        let _ = sys::wait_for(started.first);
        // Also if COMMAND could not be started.
        started.give_back();
        let (status, decided) = result?;
        let printed = started.collector.finish().map_err(set_up("what was printed"))?;
        self.view.close().map_err(set_up("unmounting the view"))?;
        let changes = self.scan()?;
        let reached = started.reached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Ran { status, decided, left, reached, printed, changes, read_only: self.view.read_only.clone() })
    }

    fn scan(&mut self) -> Result<Changes, LayerError> {
        let mut changes = Changes::default();
        self.plans.clear();
        for layer in &self.view.layers {
            self.plans.push(scan::scan(layer, self.begun, &mut changes)?);
        }
        changes.list.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }

    /// Does for good what COMMAND did, and returns when it is on the disk. What somebody else changed as well is only
    /// overwritten by `force`. With `crash_after`, this process ends after so many operations as if the machine had
    /// stopped, so that a test of `resume` has something to resume.
    pub fn keep(mut self, force: bool, crash_after: Option<u64>) -> Result<(), LayerError> {
        let result = self.keep_all(force, crash_after);
        self.phase.advance(if result.is_ok() { KEPT } else { OVER });
        result
    }

    fn keep_all(&mut self, force: bool, crash_after: Option<u64>) -> Result<(), LayerError> {
        // Somebody may have changed something while it was decided.
        let changes = self.scan()?;
        if let (Some((path, _)), false) = (changes.conflicts.first(), force) {
            return Err(LayerError::Conflict { count: changes.conflicts.len(), path: path.clone() });
        }
        // Some layers are over parts of one file system. A directory with a project quota has a room of its own, which
        // the size tells.
        let mut together: HashMap<(u64, u64), (u64, Vec<PathBuf>)> = HashMap::new();
        for (number, needed) in changes.needed.into_iter().filter(|(_, needed)| *needed > 0) {
            let layer = self.layer(number);
            let room = rustix::fs::statvfs(&layer.lower).map_err(|error| intent("room")(error.into()))?;
            let (all, others) = together.entry((layer.home.dev, room.f_blocks)).or_default();
            *all += needed;
            let (needed, free, path) = (*all, room.f_bfree * room.f_frsize, layer.mount_point.clone());
            if needed > free {
                return Err(LayerError::NoRoom { path, others: std::mem::take(others), needed, free });
            }
            others.push(path);
        }
        let file_systems: Vec<FileSystemPlan> = self.plans.drain(..).filter(|plan| !plan.is_empty()).collect();
        if file_systems.is_empty() {
            return Ok(());
        }
        self.check(&file_systems)?;
        self.phase.advance(KEEPING);
        let stage = stage_name().map_err(intent("a name"))?;
        let plan = Plan { version: PLAN_VERSION, stage, boot: boot(), file_systems };
        self.write(&plan).map_err(intent("the layer"))?;
        let name = self.image.publish().map_err(|(source, left)| match left {
            None => intent("a name for the layer")(source),
            Some(layer) => LayerError::Partly { path: layer.clone(), source, layer },
        })?;
        let fuse = Fuse::new(crash_after);
        let manner = Manner { stage: &plan.stage, again: false, force, fuse: &fuse, mounts: &self.mounts };
        for file_system in &plan.file_systems {
            let layer = self.layer(file_system.layer);
            crate::apply::apply(file_system, &layer.lower, &layer.layer, &manner)
                .map_err(|(path, source)| LayerError::Partly { path, source, layer: name.clone() })?;
        }
        self.image.discard().map_err(|source| LayerError::Partly { path: name.clone(), source, layer: name.clone() })
    }

    fn layer(&self, number: usize) -> &Layered {
        let layer = self.view.layers.iter().find(|layer| layer.number == number);
        // INVARIANT: numbers of layers come from this list.
        layer.expect("a layer's number is of a layer")
    }

    fn check(&self, plans: &[FileSystemPlan]) -> Result<(), LayerError> {
        let mounts = self.mounts.borrow_mut().read_again().map_err(intent(mountinfo::PATH))?;
        let place = |mount: &Mount| (mount.id, mount.dev, mount.mount_point.clone());
        let before: HashSet<_> = self.mounts_before.iter().map(place).collect();
        let is_new = mounts.iter().map(|mount| !before.contains(&place(mount))).collect();
        let layer_dirs = self.image.directories().map_err(intent("the layer's directory"))?;
        let around = Surroundings { mounts, is_new, layer_dirs };
        plans.iter().try_for_each(|plan| check::check(plan, self.layer(plan.layer), &around))
    }

    /// The plan, and what will be said of how far it is, into the layer.
    fn write(&self, plan: &Plan) -> io::Result<()> {
        for file_system in &plan.file_systems {
            Record::create(&self.layer(file_system.layer).layer)?;
        }
        write_plan(plan, &self.view.image())?;
        self.view.sync()
    }
}

/// A limit of the length of files is COMMAND's: the layer's file is longer. What it was.
pub fn lift_file_size() -> Rlimit {
    let found = rustix::process::getrlimit(Resource::Fsize);
    let lift = |current| rustix::process::setrlimit(Resource::Fsize, Rlimit { current, ..found });
    // Without CAP_SYS_RESOURCE the hard limit stays.
    let all = rustix::process::setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None });
    let _ = all.or_else(|_| lift(found.maximum));
    found
}

/// Nobody can guess it: where everybody makes what they like, nobody has made it before.
fn stage_name() -> io::Result<String> {
    let random = procfs::machine::setting("kernel/random/uuid")?;
    Ok(format!(".speculator-try-{random}"))
}

fn intent(what: &str) -> impl FnOnce(io::Error) -> LayerError {
    let what = what.to_owned();
    move |source| LayerError::Intent { what, source }
}

/// The machine's boot.
pub fn boot() -> String {
    procfs::machine::setting("kernel/random/boot_id").unwrap_or_default()
}

fn write_plan(plan: &Plan, image: &Path) -> io::Result<()> {
    let bytes = postcard::to_stdvec(plan).map_err(io::Error::other)?;
    File::create(image.join(PLAN_NAME))?.write_all(&bytes)
}

/// Now, and only afterwards: the clock of file systems stands still for some milliseconds at a time, and a change after
/// this must not have the same time as one before.
fn beginning() -> Moment {
    let now = clock_gettime(ClockId::Realtime);
    loop {
        let coarse = clock_gettime(ClockId::RealtimeCoarse);
        if (coarse.tv_sec, coarse.tv_nsec) > (now.tv_sec, now.tv_nsec) {
            return (now.tv_sec, now.tv_nsec);
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

impl Phase {
    fn new(first: i32) -> Phase {
        let (phase, command) = (AtomicU8::new(RUNNING), AtomicI32::new(0));
        Phase(Arc::new(Progress { phase, first: AtomicI32::new(first), command, terminal: Mutex::default() }))
    }

    /// If a signal has ended it already, this process ends any moment.
    fn advance(&self, to: u8) {
        let next = |phase| (phase != GIVEN_UP).then_some(to);
        while self.0.phase.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_err() {
            thread::park();
        }
    }

    fn terminal(&self) -> Option<Joint> {
        self.0.terminal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn join_terminal(&self, joint: Option<Joint>) {
        *self.0.terminal.lock().unwrap_or_else(PoisonError::into_inner) = joint;
    }

    /// The first signal is COMMAND's to answer, as long as it or somebody whom it leads is there; the next ends
    /// everything. While it is decided, by whomever, a signal is a no; while it is kept, it is too late; afterwards it
    /// ends what is left to be shown.
    fn watch(self, awaited: Vec<i32>) -> io::Result<()> {
        let watch = move || {
            let mut passed_on = false;
            loop {
                match sys::await_signal(&awaited, 1000) {
                    None => {}
                    Some(libc::SIGWINCH) => self.terminal().iter().for_each(Joint::resize),
                    Some(signal) => self.take(signal, &mut passed_on),
                }
            }
        };
        thread::Builder::new().spawn(watch).map(drop)
    }

    fn take(&self, signal: i32, passed_on: &mut bool) {
        let first = self.0.first.load(Ordering::SeqCst);
        let phase = self.0.phase.load(Ordering::SeqCst);
        match phase {
            KEEPING => {}
            KEPT => leave(signal, "interrupted: kept, but not everything that COMMAND printed was shown"),
            OVER => leave(signal, "interrupted"),
            RUNNING if !*passed_on => {
                *passed_on = true;
                match self.0.command.load(Ordering::SeqCst) {
                    0 => sys::kill(first, libc::SIGKILL),
                    command if leads(first, command) => sys::kill(-command, signal),
                    _ => self.take(signal, passed_on),
                }
            }
            _ => {
                let next = self.0.phase.compare_exchange(phase, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst);
                if next.is_err() {
                    return self.take(signal, passed_on);
                }
                if phase != DECIDING {
                    sys::kill(first, libc::SIGKILL);
                }
                self.give_up(signal);
            }
        }
    }

    fn give_up(&self, signal: i32) -> ! {
        self.terminal().iter().for_each(Joint::restore);
        leave(signal, "interrupted: everything was undone")
    }
}

/// Whoever has to be told may be the one who does not read: nothing is waited for, and no lock is taken.
fn leave(signal: i32, words: &str) -> ! {
    let stderr = rustix::stdio::stderr();
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polls = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut polls, Some(&now)).is_ok() && polls[0].revents().contains(PollFlags::OUT) {
        let _ = rustix::io::write(stderr, format!("speculator: {words}\n").as_bytes());
    }
    sys::exit_now(128 + signal)
}

/// Whether somebody inside is in this process group. The number of one that has ended can be another's.
fn leads(first: i32, group: i32) -> bool {
    let group_of = |pid| rustix::process::getpgid(rustix::process::Pid::from_raw(pid)).ok();
    processes_of(first).iter().any(|process| group_of(process.pid).is_some_and(|found| found.as_raw_pid() == group))
}

/// COMMAND runs, or is about to.
struct Started {
    first: i32,
    messages: File,
    orders: File,
    collector: Collector,
    reached: Arc<Mutex<Vec<Reached>>>,
    phase: Phase,
    input: Option<Copying>,
    carrier: Option<Carrier>,
    /// Closed when nobody waits for the answer to a question any more.
    questions: Option<io::PipeWriter>,
}

/// Where whoever started us was, and what COMMAND finds as we have found it.
type Found = (PathBuf, Rlimit, libc::sigset_t);

fn start(options: &mut TryOptions, view: &View, found: Found) -> Result<Started, LayerError> {
    let (cwd, file_size, mask) = found;
    let awaited = awaited();
    let pipe = || io::pipe().map_err(set_up("a pipe"));
    let users = match options.terminal {
        true => Some(UsersTerminal::open().map_err(set_up("the terminal"))?),
        false => None,
    };
    let (order_reader, order_writer) = pipe()?;
    let (message_reader, message_writer) = pipe()?;
    let (output, outputs) = streams().map_err(set_up("a pipe"))?;
    let (stdin, input) = input::prepare(options.terminal).map_err(set_up("standard input"))?;
    let [stdout, stderr] = output;
    let words = io::stderr().as_fd().try_clone_to_owned().map_err(set_up("standard error"))?;
    let namespaces =
        libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;
    let own_network = if options.network == Network::No { libc::CLONE_NEWNET } else { 0 };
    let inside = Inside {
        view,
        program: options.program.clone(),
        args: options.args.clone(),
        cwd,
        network: options.network,
        streams: [stdin, stdout, stderr, words],
        orders: order_reader.into(),
        messages: message_writer.into(),
        wait: options.wait,
        decide: options.keep_if.clone(),
        terminal: options.terminal,
        ignored: options.ignored.clone(),
        closed: options.closed.clone(),
        file_size,
        mask,
    };
    let first = match sys::fork_into(namespaces | own_network).map_err(set_up("namespaces"))? {
        Some(first) => first,
        None => inside.run(),
    };
    drop(inside);
    let end = |error: LayerError| {
        sys::kill(first, libc::SIGKILL);
        let _ = sys::wait_for(first);
        error
    };
    let ready = || -> Result<_, LayerError> {
        let phase = Phase::new(first);
        phase.clone().watch(awaited).map_err(set_up("a thread"))?;
        let collector = Collector::start(&options.layer_dir, outputs)
            .map_err(in_place(&options.layer_dir, "a file for what is printed"))?;
        let input = input.map(input::Input::start).transpose().map_err(set_up("a thread"))?;
        Ok((phase, collector, input))
    };
    let (phase, collector, input) = ready().map_err(end)?;
    let mut started = Started {
        first,
        messages: OwnedFd::from(message_reader).into(),
        orders: OwnedFd::from(order_writer).into(),
        collector,
        reached: Arc::default(),
        phase,
        input,
        carrier: None,
        questions: None,
    };
    let opened = started.open_gate(options, users).map_err(end);
    if opened.is_err() {
        started.give_back();
    }
    opened.map(|()| started)
}

impl Started {
    /// Everybody inside is gone: the terminal, and what COMMAND has not read, are for others.
    fn give_back(&mut self) {
        self.questions = None;
        self.phase.join_terminal(None);
        if let Some(carrier) = self.carrier.take() {
            carrier.finish();
        }
        if let Some(input) = self.input.take() {
            input.give_back();
        }
    }

    fn open_gate(&mut self, options: &mut TryOptions, users: Option<UsersTerminal>) -> Result<(), LayerError> {
        let mut message = Message::read(&mut self.messages);
        if let (Some(Message::Terminal(number)), Some(users)) = (message, users) {
            let carrier = sys::descriptor_of(self.first, number).and_then(|command| Carrier::start(users, command));
            let carrier = carrier.map_err(set_up("COMMAND's terminal"))?;
            self.phase.join_terminal(Some(carrier.joint()));
            self.carrier = Some(carrier);
            message = Message::read(&mut self.messages);
        }
        let Some(Message::Listener(number)) = message else {
            return Err(self.failure(message, options));
        };
        let listener = sys::descriptor_of(self.first, number).map_err(set_up("the system-call filter's descriptor"))?;
        let (over, end) = io::pipe().map_err(set_up("a pipe"))?;
        self.questions = Some(end);
        let asker = options.asker.take().map(|asker| undisturbed(asker, self.phase.terminal(), over.into()));
        let gate = Gate::new(listener, options.network, asker, Arc::clone(&self.reached));
        thread::Builder::new().spawn(move || gate.run()).map_err(set_up("a thread"))?;
        self.orders.write_all(&[GO]).map_err(set_up("the first process"))
    }

    fn failure(&self, message: Option<Message>, options: &TryOptions) -> LayerError {
        let error = io::Error::from_raw_os_error;
        match message {
            Some(Message::Failed(stage, errno)) => {
                let what = STAGES.get(stage).copied().unwrap_or("something").to_owned();
                LayerError::SetUp { what, source: error(errno) }
            }
            Some(Message::NotExecuted(errno)) => {
                LayerError::Exec { program: options.program.clone(), source: error(errno) }
            }
            _ => LayerError::InsideDied,
        }
    }

    /// COMMAND's status, and what the deciding command said.
    fn await_command(&mut self, options: &TryOptions) -> Result<(u8, Option<u8>), LayerError> {
        let mut status = 125;
        loop {
            match Message::read(&mut self.messages) {
                Some(Message::Started(inside)) => {
                    let outside = outside_number(self.first, inside);
                    self.phase.0.command.store(outside.unwrap_or(0), Ordering::SeqCst);
                }
                Some(Message::Ended(ended)) => {
                    status = ended;
                    if !options.wait {
                        break;
                    }
                }
                Some(Message::Alone) => break,
                other => return Err(self.failure(other, options)),
            }
        }
        if options.keep_if.is_none() {
            return Ok((status, None));
        }
        self.phase.advance(JUDGING);
        self.orders.write_all(&[DECIDE]).map_err(|_| LayerError::InsideDied)?;
        match Message::read(&mut self.messages) {
            Some(Message::Decided(decided)) => Ok((status, Some(decided))),
            other => Err(self.failure(other, options)),
        }
    }
}

/// Asks while nothing else uses the terminal.
fn undisturbed(asker: Asker, terminal: Option<Joint>, over: OwnedFd) -> Asking {
    Box::new(move |reached| {
        let _pause = terminal.as_ref().map(Joint::pause);
        asker(reached, over.as_fd())
    })
}

type Outputs = ([OwnedFd; 2], Vec<(Stream, OwnedFd)>);

/// COMMAND's standard output and error, and where they can be read. If ours are the same thing, so are COMMAND's: the
/// order stays.
fn streams() -> io::Result<Outputs> {
    let (out_reader, out_writer) = io::pipe()?;
    let same = |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    let (out, err) = (rustix::fs::fstat(rustix::stdio::stdout()), rustix::fs::fstat(rustix::stdio::stderr()));
    if let (Ok(out), Ok(err)) = (out, err) {
        if same(out, err) {
            let copy = out_writer.try_clone()?;
            return Ok(([out_writer.into(), copy.into()], vec![(Stream::Out, out_reader.into())]));
        }
    }
    let (err_reader, err_writer) = io::pipe()?;
    let readers = vec![(Stream::Out, out_reader.into()), (Stream::Err, err_reader.into())];
    Ok(([out_writer.into(), err_writer.into()], readers))
}

/// The processes in the first one's namespace but for itself and those that are dead.
fn processes_of(first: i32) -> Vec<LeftRunning> {
    let namespace = |pid: ProcessId| MagicLink::Namespace("pid").shown(pid).ok();
    let first = ProcessId::from_raw(first);
    let Some(own) = namespace(first) else { return Vec::new() };
    let mut left: Vec<LeftRunning> = procfs::machine::processes()
        .unwrap_or_default()
        .into_iter()
        .filter(|&pid| pid != first && namespace(pid).as_ref() == Some(&own))
        .filter_map(|pid| Some(LeftRunning { pid: pid.as_raw(), command: command_line(pid)? }))
        .collect();
    left.sort_by_key(|process| process.pid);
    left
}

/// `None` of a process that is dead already. One that has no command line, as for a moment in `execve`, is shown by its
/// name, as ps(1) does.
fn command_line(pid: ProcessId) -> Option<String> {
    let status = Status::of(pid).ok()?;
    if status.state().is_ok_and(|state| state == 'Z') {
        return None;
    }
    let mut line = procfs::read(pid, "cmdline").ok()?;
    while line.last() == Some(&0) {
        line.pop();
    }
    if line.is_empty() {
        return Some(format!("[{}]", status.field("Name").unwrap_or_default()));
    }
    line.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    Some(OsString::from_vec(line).to_string_lossy().into_owned())
}

/// The number that a process of the first one's namespace has outside.
fn outside_number(first: i32, inside: i32) -> Option<i32> {
    let is_it = |&pid: &i32| {
        let number = Status::of(ProcessId::from_raw(pid)).and_then(|status| status.innermost("NSpid"));
        number.is_ok_and(|number: i32| number == inside)
    };
    processes_of(first).into_iter().map(|process| process.pid).find(is_it)
}
