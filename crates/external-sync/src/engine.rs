//! The commit engine: for each domain one active transaction that gathers changes, and at most one that commits (002,
//! 3.3).
//!
//! A commit closes the active transaction, waits until every change that joined it is in the page cache
//! (`commit_clock`), flushes the file system, lets go what waited for it, and only then publishes that it is committed:
//! nobody can learn of the commit and speak before those who were waiting have spoken.
//!
//! **Invariant:** `committed` never advances over a transaction whose flush failed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_abi::World;
use commit_clock::{Clock, Ticket, Transaction, DOMAINS_MAX};

use crate::flush::Root;
use crate::rest::Rest;
use crate::sys;

/// Why a transaction was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Output or a barrier depends on it (002, 3.4).
    Output,
    /// It is older than the interval (002, 2.5: five seconds).
    Age,
    /// It holds too much.
    Dirty,
    /// Every change asks for its commit (`--commit=eager`; 002, 4.7).
    Eager,
    /// The world ends.
    End,
}

impl Cause {
    /// The word in the statistics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Output => "output",
            Cause::Age => "age",
            Cause::Dirty => "dirty",
            Cause::Eager => "eager",
            Cause::End => "end",
        }
    }
}

/// One commit that was made.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// Of which domain.
    pub domain: usize,
    /// Why.
    pub cause: Cause,
    /// Whether the flush of one file was enough.
    pub is_of_log: bool,
    /// From the closing of the transaction to the end of the flush.
    pub duration: Duration,
}

/// Who is told of commits.
pub trait Observer: Send {
    /// All of `committed` is on stable storage: let go what waited for it. Called before anybody else can know.
    fn durable(&mut self, committed: &Clock, commit: &Commit);
    /// A flush failed: nothing that depends on the domain's transactions from here on may ever leave.
    fn flush_failed(&mut self, domain: usize, error: io::Error);
}

/// When to commit.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Age at which an active transaction is committed.
    pub interval: Duration,
    /// Dirty data at which it is, bytes.
    pub dirty_bytes_max: u64,
    /// `--commit=eager`.
    pub eager: bool,
}

/// A domain's log (`agent::log`), open for reading.
#[derive(Debug, Default)]
pub struct Log {
    /// What is flushed when nothing else was changed.
    current: Option<Arc<OwnedFd>>,
    /// The file that becomes the log at the next commit, and its number.
    pub next: Option<(u32, Arc<OwnedFd>)>,
}

/// How the engine reaches a domain's file system. Nothing is open on a file system that the world has not changed, or
/// not for a while: others may unmount it.
#[derive(Debug, Default)]
pub struct Handles {
    /// For each domain that is held (`Transactions::hold`) a directory on it, open since before the first change that
    /// is not committed.
    pub roots: [Option<Arc<Root>>; DOMAINS_MAX],
    /// For each domain the error of a flush that somebody else has made. The engine ends the world for it.
    pub failed: [Option<io::Error>; DOMAINS_MAX],
    /// Bit d: it stays open until the world ends, or somebody inside unmounts it.
    pub kept_open: u32,
    /// Somebody inside has taken a mount away that may still be in use (`MNT_DETACH`).
    pub has_leftovers: bool,
    /// Bit d: one fsync commits everything, because the journal takes data and metadata alike (ext4, data=journal).
    pub whole_journal: u32,
    /// For each domain the file that may be flushed alone.
    pub logs: [Log; DOMAINS_MAX],
}

impl Handles {
    /// Flush a domain beside its commits. False if that failed: then nothing that depends on it leaves any more. (The
    /// kernel tells of an error once. A commit that is under way meanwhile looks here when it has flushed.)
    pub fn flush(&mut self, domain: usize) -> bool {
        let flushed = self.roots[domain].as_ref().map_or(Ok(()), |root| root.write_all());
        match flushed {
            Ok(()) => true,
            Err(error) => {
                self.failed[domain] = Some(error);
                false
            }
        }
    }

    /// Mounts have changed. A file system that is read-only now, and where nothing was uncommitted, has lost nothing.
    pub fn accept_read_only(&self, world: &World) {
        let transactions = &world.transactions;
        let (dirty, committed) = (transactions.dirty(), transactions.committed());
        for (domain, root) in self.roots.iter().enumerate() {
            let is_clean = dirty.0[domain] <= committed.0[domain] && transactions.has_times_of(domain);
            let is_unmapped = world.mapped_domains.load(Ordering::SeqCst) & (1 << domain) == 0;
            if let (Some(root), true) = (root, is_clean && is_unmapped) {
                root.accept_read_only();
            }
        }
    }

    /// Close a domain's file system unless something there is uncommitted, about to be changed, or mapped.
    pub fn let_go(&mut self, world: &World, domain: usize) {
        if self.kept_open & (1 << domain) == 0 {
            self.close(world, domain);
        }
    }

    /// The same of any: who calls this looks afterwards whether it is mounted, and what has its number then.
    pub fn close(&mut self, world: &World, domain: usize) {
        if self.roots[domain].is_none() {
            return;
        }
        let handles = world.thread_map.taken().map(|i| &world.threads[i].handle);
        let is_unmapped = || world.mapped_domains.load(Ordering::SeqCst) & (1 << domain) == 0;
        if world.transactions.let_go(domain, handles, is_unmapped) {
            self.roots[domain] = None;
            self.logs[domain] = Log::default();
            world.logs[domain].store(0, Ordering::SeqCst);
            world.transactions.leave_log(domain);
        }
    }

    /// A transaction of `domain` was closed, and what joined it is quiet: what is to be flushed. What was proposed
    /// becomes the log of later ones.
    fn take_log(&mut self, world: &World, domain: usize) -> Changed {
        let log = &mut self.logs[domain];
        let before = log.current.clone();
        let next = log.next.take().map(|(number, file)| {
            log.current = Some(file.clone());
            (number, file)
        });
        let changed = match before {
            Some(log) if world.transactions.is_log_only(domain) => Changed::Log(log),
            before => Changed::More([before, next.as_ref().map(|(_, file)| file.clone())]),
        };
        if let Some((number, _)) = next {
            world.logs[domain].store(number, Ordering::SeqCst);
            world.transactions.leave_log(domain);
        }
        changed
    }
}

/// What a transaction has changed.
enum Changed {
    /// Nothing but the contents of this file.
    Log(Arc<OwnedFd>),
    /// More than that, or nobody knows; among it perhaps the contents of these, which their program flushes itself.
    More([Option<Arc<OwnedFd>>; 2]),
}

/// The thread that commits.
#[derive(Debug)]
pub struct Engine {
    thread: Option<std::thread::JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    world: &'static World,
}

impl Engine {
    /// Start it.
    pub fn start(
        world: &'static World,
        policy: Policy,
        handles: Arc<Mutex<Handles>>,
        observer: Box<dyn Observer>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            world,
            policy,
            handles,
            observer,
            stop: stop.clone(),
            dirty_since: [None; DOMAINS_MAX],
            clean_since: [None; DOMAINS_MAX],
            rests: [None; DOMAINS_MAX],
            failed: false,
        };
        let thread = std::thread::Builder::new().name("commit".into()).spawn(move || {
            // If nobody told of it, what waits for a commit would wait for ever, or leave without one at the end.
            if catch_unwind(AssertUnwindSafe(|| worker.run())).is_err() {
                worker.observer.flush_failed(0, io::Error::other("the thread that commits has an error"));
            }
        })?;
        Ok(Self { thread: Some(thread), stop, world })
    }

    /// Commit everything that is dirty, then end. The observer has been told of all of it when this returns. False if
    /// it was not, because the observer itself has an error.
    #[must_use]
    pub fn finish(mut self) -> bool {
        self.stop.store(true, Ordering::SeqCst);
        ring(self.world);
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }
}

/// Wake the engine.
pub fn ring(world: &World) {
    world.requests.fetch_add(1, Ordering::Release);
    sys::futex_wake(&world.requests);
}

/// Wake everybody who waits for a commit, or for output to leave.
pub fn announce(world: &World) {
    world.commits.fetch_add(1, Ordering::Release);
    sys::futex_wake(&world.commits);
}

/// Wait until all that `clock` depends on is committed; false if `give_up` says so first.
pub fn await_commit(world: &World, clock: &Clock, give_up: impl Fn() -> bool) -> bool {
    world.waiting.fetch_add(1, Ordering::AcqRel);
    let committed = await_commit_counted(world, clock, give_up);
    world.waiting.fetch_sub(1, Ordering::AcqRel);
    committed
}

fn await_commit_counted(world: &World, clock: &Clock, give_up: impl Fn() -> bool) -> bool {
    loop {
        let seen = world.commits.load(Ordering::Acquire);
        if world.transactions.is_resolved(clock) {
            return true;
        }
        if give_up() {
            return false;
        }
        if world.transactions.request(clock) {
            ring(world);
        }
        sys::futex_wait(&world.commits, seen, Some(Duration::from_millis(200)));
    }
}

/// When a domain is to be committed.
enum Due {
    Now(Cause),
    /// Output waits for it; look again after this time, or when something is requested.
    In(Duration),
    Not,
}

/// How many calls the threads of a world have made so far. Another number than before says that it is busy.
fn calls_made(world: &World) -> u64 {
    let calls = world.thread_map.taken().map(|i| world.threads[i].calls.load(Ordering::Relaxed));
    calls.fold(0, u64::wrapping_add)
}

struct Worker {
    world: &'static World,
    policy: Policy,
    handles: Arc<Mutex<Handles>>,
    observer: Box<dyn Observer>,
    stop: Arc<AtomicBool>,
    dirty_since: [Option<Instant>; DOMAINS_MAX],
    clean_since: [Option<Instant>; DOMAINS_MAX],
    /// After the last commit of each domain, until the next one.
    rests: [Option<Rest>; DOMAINS_MAX],
    failed: bool,
}

impl Worker {
    fn run(&mut self) {
        // How long after a change its age may begin to count: a fraction of the interval.
        let tick = (self.policy.interval / 8).clamp(Duration::from_millis(5), Duration::from_millis(500));
        sys::wake_on_time();
        let mut was_stopping = false;
        loop {
            let seen = self.world.requests.load(Ordering::Acquire);
            let stopping = self.stop.load(Ordering::SeqCst);
            if let Some((domain, error)) = self.failed_elsewhere() {
                return self.observer.flush_failed(domain, error);
            }
            if stopping && !was_stopping {
                // The last stores to files that are mapped, of which nobody has told.
                self.world.join_mapped();
                was_stopping = true;
            }
            let mut worked = false;
            let mut again = tick;
            for domain in 0..self.world.transactions.domains() {
                match self.due(domain, stopping) {
                    Due::Now(cause) => {
                        self.commit(domain, cause);
                        worked = true;
                    }
                    Due::In(rest) => again = again.min(rest),
                    Due::Not => {}
                }
            }
            if self.failed || (stopping && !worked) {
                return;
            }
            if !worked {
                self.let_go();
                sys::futex_wait(&self.world.requests, seen, Some(again));
            }
        }
    }

    /// A flush that somebody else has made, and that failed.
    fn failed_elsewhere(&self) -> Option<(usize, io::Error)> {
        let mut handles = self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        handles.failed.iter_mut().enumerate().find_map(|(domain, failed)| Some((domain, failed.take()?)))
    }

    fn due(&mut self, domain: usize, stopping: bool) -> Due {
        let transactions = &self.world.transactions;
        let committed = transactions.committed().0[domain];
        let is_dirty = transactions.dirty().0[domain] > committed || !transactions.has_times_of(domain);
        let is_requested = transactions.requested().0[domain] > committed;
        let since = &mut self.dirty_since[domain];
        if !is_dirty && !is_requested {
            *since = None;
            self.clean_since[domain].get_or_insert_with(Instant::now);
            return Due::Not;
        }
        self.clean_since[domain] = None;
        let since = *since.get_or_insert_with(Instant::now);
        if stopping {
            Due::Now(Cause::End)
        } else if self.world.dirty_bytes[domain].load(Ordering::Relaxed) >= self.policy.dirty_bytes_max {
            Due::Now(Cause::Dirty)
        } else if is_requested && self.policy.eager {
            Due::Now(Cause::Eager)
        } else if is_requested {
            match self.rest(domain) {
                Duration::ZERO => Due::Now(Cause::Output),
                rest => Due::In(rest),
            }
        } else if since.elapsed() >= self.policy.interval {
            Due::Now(Cause::Age)
        } else {
            Due::Not
        }
    }

    /// How long output still has to gather before its commit begins. A thread that waits for a commit ends the rest.
    fn rest(&mut self, domain: usize) -> Duration {
        let is_urgent = self.world.waiting.load(Ordering::Acquire) > 0;
        match &mut self.rests[domain] {
            Some(rest) if !is_urgent => rest.left(Instant::now(), calls_made(self.world)),
            _ => Duration::ZERO,
        }
    }

    /// Close file systems of which nothing was uncommitted for as long as a change waits at most.
    fn let_go(&mut self) {
        let mut handles = self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for domain in 0..self.world.transactions.domains() {
            if self.clean_since[domain].is_some_and(|since| since.elapsed() >= self.policy.interval) {
                handles.let_go(self.world, domain);
            }
        }
    }

    fn commit(&mut self, domain: usize, cause: Cause) {
        let begin = Instant::now();
        self.dirty_since[domain] = None;
        let (transaction, ticket) = self.world.transactions.close_transaction(domain);
        self.world.dirty_bytes[domain].store(0, Ordering::Relaxed);
        self.await_quiet(ticket);
        let is_of_log = match self.flush(domain, transaction) {
            Ok(is_of_log) => is_of_log,
            Err(error) => {
                self.failed = true;
                self.observer.flush_failed(domain, error);
                return;
            }
        };
        self.rests[domain] = Some(Rest::after(Instant::now(), begin.elapsed()));
        let mut committed = self.world.transactions.committed();
        committed.0[domain] = committed.0[domain].max(transaction);
        self.observer.durable(&committed, &Commit { domain, cause, is_of_log, duration: begin.elapsed() });
        self.world.transactions.set_committed(domain, transaction);
        announce(self.world);
    }

    /// Wait until every change that joined the closed transaction is in the page cache. A change takes microseconds,
    /// unless the disk itself is slow; a thread that is stopped or dies in the middle has its handle closed by the
    /// supervisor.
    fn await_quiet(&self, ticket: Ticket) {
        let world = self.world;
        let mut rounds = 0u32;
        while world.thread_map.taken().any(|i| !world.transactions.is_quiet(ticket, &world.threads[i].handle)) {
            rounds += 1;
            if rounds < 32 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Returns whether the flush of one file was enough.
    fn flush(&self, domain: usize, transaction: Transaction) -> io::Result<bool> {
        let (root, whole_journal, changed) = {
            let mut handles = self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let changed = handles.take_log(self.world, domain);
            (handles.roots[domain].clone(), handles.whole_journal & (1 << domain) != 0, changed)
        };
        let Some(root) = root else {
            // A clock may be too high: somebody waits for a transaction in which nothing was changed.
            let is_empty = self.world.transactions.dirty().0[domain] < transaction;
            let why = "nothing of it could be opened; raise the limit of open files (ulimit -n) if it is low";
            return if is_empty { Ok(false) } else { Err(io::Error::other(why)) };
        };
        let is_mapped = self.world.mapped_domains.load(Ordering::SeqCst) & (1 << domain) != 0;
        let mut is_of_log = false;
        match &changed {
            // Every change is in the journal's running transaction already: committing it is enough, and looks at no
            // inode.
            _ if whole_journal && !is_mapped => root.commit_journal()?,
            // Not fdatasync: whoever looks at the file's times depends on them.
            Changed::Log(log) if !is_mapped => {
                rustix::fs::fsync(log)?;
                root.check()?;
                is_of_log = true;
            }
            Changed::Log(log) => commit_all(&root, [log])?,
            Changed::More(files) => commit_all(&root, files.iter().flatten())?,
        }
        // fsync does not say what another flush was told meanwhile.
        let mut handles = self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        handles.failed[domain].take().map_or(Ok(is_of_log), Err)
    }
}

/// Commits everything on a file system. `syncfs` lets the journal commit sizes before the data that they count is
/// written; in `files`, which their program flushes itself, a crash in between would show zeroes that its own flush
/// would not have left there.
fn commit_all<'a>(root: &Root, files: impl IntoIterator<Item = &'a Arc<OwnedFd>>) -> io::Result<()> {
    files.into_iter().try_for_each(|file| sys::write_back(file.as_fd()))?;
    root.commit_all()
}
