//! Output that is held, and how it leaves (002, 2.3). The order is decided by the `output` crate; here are the
//! descriptors and the writing.

use crate::stats::Samples;
use agent_abi::{FdEntry, FdKind, World};
use commit_clock::Clock;
use external_sync::engine::{self, announce};
use output::{OutputQueues, QueueId, Release, Why, WriterId};
use procfs::ProcessId;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// What kind of outside object a queue leads to: how much one write may carry without waiting for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A pipe or FIFO: when it is writable there is room for PIPE_BUF bytes.
    Pipe,
    /// A terminal.
    Terminal,
    /// A stream socket.
    Socket,
}

/// An outside object.
#[derive(Clone, Debug)]
pub struct Target {
    /// `hash_object` of it.
    pub object: u64,
    /// The file system that it was found on: terminals are told apart by their numbers, and each mount of devpts has
    /// a terminal 0.
    pub dev: u64,
    /// Its kind.
    pub kind: TargetKind,
    /// Our own descriptor of it; closed as soon as nothing is held for it, so that its reader sees the end when it
    /// comes.
    pub fd: Arc<OwnedFd>,
}

impl Target {
    fn queue(&self) -> QueueId {
        QueueId(self.object)
    }
}

/// A piece of output.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    written: usize,
    since: Instant,
    /// Who it is from, for a socket whose reader may ask.
    sender: Option<UCred>,
}

#[derive(Debug, Default)]
struct State {
    queues: OutputQueues<Held>,
    targets: HashMap<QueueId, Target>,
    /// Handed out and not yet wholly written, because the reader is slow.
    stuck: HashMap<QueueId, Release<Held>>,
    /// Slots of processes that are still alive.
    slots: HashMap<WriterId, usize>,
    holds: Samples,
    bytes_held: u64,
}

/// All output that is held.
#[derive(Debug)]
pub struct Outputs {
    world: &'static World,
    state: Mutex<State>,
    /// Held while entries leave, so that they leave one after the other.
    leaving: Mutex<()>,
    wake: OwnedFd,
    stop: AtomicBool,
}

/// Whether output was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It will leave when its time has come.
    Yes,
    /// The queue is full: the writer must wait.
    Full,
    /// It must be written by the program itself, so that it sees the error.
    No,
}

impl Outputs {
    pub fn new(world: &'static World) -> io::Result<Arc<Self>> {
        let wake =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self {
            world,
            state: Mutex::default(),
            leaving: Mutex::default(),
            wake,
            stop: AtomicBool::new(false),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A process that may write.
    pub fn begin_process(&self, process: WriterId, slot: usize) {
        self.state().slots.insert(process, slot);
    }

    /// A process has ended; what it wrote still leaves.
    pub fn end_process(&self, process: WriterId) {
        self.state().slots.remove(&process);
    }

    /// Take output for later.
    pub fn take(&self, target: &Target, process: WriterId, clock: Clock, bytes: Vec<u8>) -> Taken {
        self.take_from(target, process, clock, bytes, None)
    }

    /// The same; it leaves as if `sender` wrote it then.
    pub fn take_from(
        &self,
        target: &Target,
        process: WriterId,
        clock: Clock,
        bytes: Vec<u8>,
        sender: Option<UCred>,
    ) -> Taken {
        let len = bytes.len();
        let mut state = self.state();
        if state.targets.get(&target.queue()).is_some_and(|known| known.dev != target.dev) {
            return Taken::No;
        }
        let committed = self.world.transactions.committed();
        state.queues.on_committed(&committed);
        self.let_pass(&mut state);
        let held = Held { bytes, written: 0, since: Instant::now(), sender };
        match state.queues.push(target.queue(), process, clock, held, len) {
            Ok(_) => {}
            Err(error) if error.why == Why::Full => return Taken::Full,
            Err(_) => return Taken::No,
        }
        state.targets.entry(target.queue()).or_insert_with(|| target.clone());
        state.bytes_held += len as u64;
        if let Some(&slot) = state.slots.get(&process) {
            self.world.processes[slot].held_outputs.fetch_add(1, Ordering::AcqRel);
        }
        self.world.queue_pending[queue_index(target.object)].fetch_add(1, Ordering::AcqRel);
        self.let_pass(&mut state);
        // A commit hands out what is held before it is published. What is taken in between depends on nothing by
        // what the queues know, and asks for no commit by what is published: nobody else would let it go.
        let may_leave = state.queues.has_release();
        drop(state);
        if may_leave && target.kind == TargetKind::Socket {
            // Before its writer goes on and others learn from it. Writing to a socket never waits.
            self.release_and_watch();
        } else if may_leave {
            self.wake();
        }
        Taken::Yes
    }

    fn wake(&self) {
        // A full counter wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Everything in `committed` is on stable storage: let go what may leave.
    pub fn on_committed(&self, committed: &Clock) {
        {
            let mut state = self.state();
            state.queues.on_committed(committed);
            self.let_pass(&mut state);
        }
        self.release_and_watch();
    }

    /// Nothing that depends on this domain from here on may ever leave.
    pub fn on_domain_failed(&self, domain: usize) {
        self.state().queues.on_domain_failed(domain);
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.state().queues.is_empty()
    }

    /// Whether all that this process has written has left, also to readers who do not read.
    pub fn has_left_of(&self, process: WriterId) -> bool {
        !self.state().queues.holds_any_of(process)
    }

    /// Whether nothing of this process is held, but for what is put aside.
    pub fn is_empty_of(&self, process: WriterId) -> bool {
        self.state().queues.pending_of(process).entries == 0
    }

    /// How long output was held, and how much of it.
    pub fn statistics(&self) -> (crate::stats::Distribution, u64) {
        let state = self.state();
        (state.holds.distribution(), state.bytes_held)
    }

    /// Let go what may leave; the output thread waits for slow readers.
    fn release_and_watch(&self) {
        self.release();
        if !self.state().stuck.is_empty() {
            self.wake();
        }
    }

    fn release(&self) {
        let _one_at_a_time = self.leaving.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut any = false;
        loop {
            let Some((release, target)) = self.next() else { break };
            self.write(release, &target);
            any = true;
        }
        if any {
            announce(self.world);
        }
    }

    fn next(&self) -> Option<(Release<Held>, Target)> {
        let mut state = self.state();
        let release = state.queues.next_release()?;
        let target = state.targets.get(&release.queue).cloned();
        target.map(|target| (release, target))
    }

    /// Write as much of an entry as its reader has room for.
    fn write(&self, mut release: Release<Held>, target: &Target) {
        loop {
            let held = &mut release.payload;
            if held.written == held.bytes.len() {
                return self.left(release); // The end of a stream: its descriptor goes with the entry.
            }
            match write_some(target, &held.bytes[held.written..], held.sender) {
                Progress::Wrote(n) => {
                    held.written += n;
                    if held.written == held.bytes.len() {
                        return self.left(release);
                    }
                }
                Progress::NoRoom => {
                    return self.wait_for_reader(release, target);
                }
                Progress::Broken => return self.broken(release),
            }
        }
    }

    /// Whoever writes to a socket is used to readers who do not read, and waits for none of them with what is for
    /// others (`decisions/0287`). Who writes to a pipe or a terminal mostly does.
    fn wait_for_reader(&self, release: Release<Held>, target: &Target) {
        let mut state = self.state();
        match target.kind {
            TargetKind::Socket => state.queues.on_put_aside(release.queue),
            TargetKind::Pipe | TargetKind::Terminal => state.queues.on_blocked(release.queue),
        }
        state.stuck.insert(release.queue, release);
        self.let_pass(&mut state);
    }

    /// What was put aside counts as left for whoever wrote it.
    fn let_pass(&self, state: &mut State) {
        let passed = state.queues.take_passed();
        for &process in &passed {
            self.one_less_of(state, process);
        }
        if !passed.is_empty() {
            announce(self.world);
        }
    }

    fn left(&self, release: Release<Held>) {
        let mut state = self.state();
        let was_held = state.queues.on_left(release.sequence);
        state.holds.add(release.payload.since.elapsed());
        self.account(&mut state, release.queue, was_held.then_some(release.process));
    }

    /// The reader is gone: what was meant for it is, too, as if it had been lost in the object's own buffer.
    fn broken(&self, release: Release<Held>) {
        let mut state = self.state();
        let dropped = state.queues.on_broken(release.queue);
        for entry in dropped {
            self.account(&mut state, entry.queue, (!entry.is_passed).then_some(entry.process));
        }
        state.queues.forget(release.queue);
        state.targets.remove(&release.queue);
    }

    /// One entry less is held for an outside object, and of a process for which it did not count as left before.
    fn account(&self, state: &mut State, queue: QueueId, process: Option<WriterId>) {
        self.world.queue_pending[queue_index(queue.0)].fetch_sub(1, Ordering::AcqRel);
        if let Some(process) = process {
            self.one_less_of(state, process);
        }
        self.let_pass(state);
        if state.queues.pending_in(queue).entries == 0 {
            state.targets.remove(&queue);
        }
    }

    fn one_less_of(&self, state: &State, process: WriterId) {
        if let Some(&slot) = state.slots.get(&process) {
            self.world.processes[slot].held_outputs.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The thread that waits for slow readers. Ends when it is told to and nothing is held.
    pub fn run(&self) {
        while !(self.stop.load(Ordering::SeqCst) && self.is_empty()) {
            let stuck: Vec<Target> = {
                let state = self.state();
                state.stuck.keys().filter_map(|queue| state.targets.get(queue).cloned()).collect()
            };
            let Ok(ready) = self.await_room(&stuck) else { return };
            let ready: Vec<&Target> =
                stuck.iter().zip(ready).filter_map(|(target, ready)| ready.then_some(target)).collect();
            self.retry(&ready);
            self.release();
        }
    }

    /// Wait until somebody calls, or a reader has room; for each target, whether it is that.
    fn await_room(&self, stuck: &[Target]) -> io::Result<Vec<bool>> {
        let mut polls = vec![PollFd::new(&self.wake, PollFlags::IN)];
        polls.extend(stuck.iter().map(|target| PollFd::from_borrowed_fd(target.fd.as_fd(), PollFlags::OUT)));
        match rustix::event::poll(&mut polls, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready = polls[1..].iter().map(|poll| !poll.revents().is_empty()).collect();
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        Ok(ready)
    }

    fn retry(&self, stuck: &[&Target]) {
        let _one_at_a_time = self.leaving.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for target in stuck {
            let release = {
                let mut state = self.state();
                let release = state.stuck.remove(&target.queue());
                if release.is_some() {
                    state.queues.on_unblocked(target.queue());
                }
                release
            };
            if let Some(release) = release {
                self.write(release, target);
            }
        }
        announce(self.world);
    }

    /// Let the thread end once everything has left.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }
}

fn queue_index(object: u64) -> usize {
    FdEntry::new(FdKind::Outside, 0, object).queue()
}

enum Progress {
    Wrote(usize),
    NoRoom,
    Broken,
}

/// One write that does not wait for the reader.
fn write_some(target: &Target, bytes: &[u8], sender: Option<UCred>) -> Progress {
    const PIPE_BUF: usize = 4096;
    const TERMINAL_CHUNK: usize = 2048;
    let result = match target.kind {
        TargetKind::Socket => match sender {
            Some(sender) => send_as(target, bytes, sender),
            None => rustix::net::send(&target.fd, bytes, AT_ONCE),
        },
        kind => {
            if !has_room(target) {
                return Progress::NoRoom;
            }
            let chunk = if kind == TargetKind::Pipe { PIPE_BUF } else { TERMINAL_CHUNK };
            rustix::io::write(&target.fd, &bytes[..bytes.len().min(chunk)])
        }
    };
    match result {
        Ok(n) => Progress::Wrote(n),
        Err(rustix::io::Errno::AGAIN) => Progress::NoRoom,
        Err(rustix::io::Errno::INTR) => Progress::Wrote(0),
        Err(_) => Progress::Broken,
    }
}

const AT_ONCE: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// With the credentials that the kernel would have noted had the process written it. It may have ended since: nobody
/// can be named then but us, as the same user.
fn send_as(target: &Target, bytes: &[u8], sender: UCred) -> rustix::io::Result<usize> {
    let send = |sender: UCred| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmCredentials(sender));
        rustix::net::sendmsg(&target.fd, &[IoSlice::new(bytes)], &mut control, AT_ONCE)
    };
    let is_refused = |error| matches!(error, Errno::SRCH | Errno::PERM | Errno::INVAL);
    match send(sender) {
        Err(error) if is_refused(error) => match send(UCred { pid: rustix::process::getpid(), ..sender }) {
            Err(error) if is_refused(error) => rustix::net::send(&target.fd, bytes, AT_ONCE),
            sent => sent,
        },
        sent => sent,
    }
}

fn has_room(target: &Target) -> bool {
    let mut polls = [PollFd::new(&target.fd, PollFlags::OUT)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    // An object with an error is "ready": writing tells what is wrong.
    rustix::event::poll(&mut polls, Some(&now)).is_ok_and(|n| n > 0)
}

/// What the commit engine tells, and to whom.
pub struct CommitObserver {
    pub world: &'static World,
    pub outputs: Arc<Outputs>,
    pub record: Arc<Mutex<CommitRecord>>,
    pub failed: Arc<AtomicBool>,
    pub names: Vec<String>,
    pub front: crate::message::Sender,
}

/// Commits so far.
#[derive(Debug, Default)]
pub struct CommitRecord {
    pub by_cause: std::collections::BTreeMap<String, u64>,
    pub of_log: u64,
    pub durations: Samples,
}

impl engine::Observer for CommitObserver {
    fn durable(&mut self, committed: &Clock, commit: &engine::Commit) {
        {
            let mut record = self.record.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *record.by_cause.entry(commit.cause.name().to_owned()).or_default() += 1;
            record.of_log += u64::from(commit.is_of_log);
            record.durations.add(commit.duration);
        }
        self.outputs.on_committed(committed);
    }

    fn flush_failed(&mut self, domain: usize, error: io::Error) {
        self.failed.store(true, Ordering::SeqCst);
        self.outputs.on_domain_failed(domain);
        let file_system = self.names.get(domain).cloned().unwrap_or_else(|| format!("domain {domain}"));
        self.front.tell(&crate::message::Message::FlushFailed { file_system, error: error.to_string() });
        for slot in self.world.process_map.taken() {
            let pid = self.world.processes[slot].pid.load(Ordering::Acquire);
            if pid > 1 {
                crate::sys::kill(ProcessId::from_raw(pid as i32), libc::SIGKILL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const WRITER: WriterId = WriterId(1);

    fn world() -> &'static World {
        let world = tracee::WorldSegment::create().unwrap().world;
        world.transactions.init(1);
        world
    }

    fn at(transaction: u64) -> Clock {
        let mut clock = Clock::NONE;
        clock.0[0] = transaction;
        clock
    }

    fn socket() -> (Target, UnixStream) {
        let (inside, outside) = UnixStream::pair().unwrap();
        outside.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (Target { object: 1, dev: 1, kind: TargetKind::Socket, fd: Arc::new(inside.into()) }, outside)
    }

    /// PostgreSQL on a volume made ten transactions a second: an answer that was taken between the release of a
    /// commit's output and the commit's publication waited until something else was committed.
    #[test]
    fn output_that_is_taken_before_its_commit_is_published_leaves() {
        let outputs = Outputs::new(world()).unwrap();
        let (target, mut client) = socket();
        outputs.on_committed(&at(1));
        assert_eq!(outputs.world.transactions.committed(), Clock::NONE, "not published");
        assert_eq!(outputs.take(&target, WRITER, at(1), b"answer".to_vec()), Taken::Yes);
        let mut answer = [0; 6];
        client.read_exact(&mut answer).expect("the answer left");
        assert_eq!(&answer, b"answer");
        assert!(outputs.is_empty());
    }

    #[test]
    fn output_that_is_taken_before_its_commit_waits() {
        let outputs = Outputs::new(world()).unwrap();
        let (target, mut client) = socket();
        outputs.on_committed(&at(1));
        assert_eq!(outputs.take(&target, WRITER, at(2), b"answer".to_vec()), Taken::Yes);
        client.set_nonblocking(true).unwrap();
        assert_eq!(client.read(&mut [0; 6]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        outputs.on_committed(&at(2));
        assert_eq!(client.read(&mut [0; 6]).unwrap(), 6);
    }

    /// Fails at a commit, and, if it is to, also when it hears of that.
    struct Failing {
        told: std::sync::mpsc::Sender<String>,
        fails_again: bool,
    }

    impl engine::Observer for Failing {
        fn durable(&mut self, _: &Clock, _: &engine::Commit) {
            panic!("of the test");
        }

        fn flush_failed(&mut self, _: usize, error: io::Error) {
            assert!(!self.fails_again, "of the test");
            self.told.send(error.to_string()).unwrap();
        }
    }

    #[test]
    fn an_error_of_the_thread_that_commits_is_not_passed_over() {
        for fails_again in [false, true] {
            let world = world();
            let (told, hears) = std::sync::mpsc::channel();
            let policy = engine::Policy { interval: Duration::from_secs(5), dirty_bytes_max: u64::MAX, eager: false };
            let observer = Box::new(Failing { told, fails_again });
            let engine = engine::Engine::start(world, policy, Arc::default(), observer).unwrap();
            assert!(world.transactions.request(&at(1)));
            engine::ring(world);
            assert_eq!(engine.finish(), !fails_again);
            assert_eq!(hears.try_recv().is_ok(), !fails_again);
        }
    }
}
