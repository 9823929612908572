//! Lightweight speculations (002, 3.1): a commit dependency never fails, and a domain commits its transactions in
//! order. So "depends on every transaction up to T of domain d" says it all, an object's dependencies are one number
//! a domain, propagation is an element-wise maximum, and *resolved* means `committed[d] >= dependency[d]` for all d.
//!
//! The numbers live in shared memory and are changed by many processes at once, with no lock. Two protocols make
//! that safe; `tests/loom.rs` explores interleavings of both (bounded):
//!
//! * **Tag against commit.** A change must never be tagged with a transaction whose flush began before the change
//!   reached the page cache, and nobody may see the change without its tag. A thread that changes a domain holds a
//!   *handle* (the word is jbd2's) from before it reads the active transaction until its system call has returned,
//!   and tags the object *before* the call. Closing a transaction advances `active`, then waits until every handle that
//!   was open is gone; only then does the flush begin.
//! * **Merge against transfer.** A sender merges its clock into the object before the data can be received; a
//!   receiver merges the object's clock after it received.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(loom)]
extern crate std;

#[cfg(not(loom))]
use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// How many domains a world can have. One clock is then exactly one cache line.
pub const DOMAINS_MAX: usize = 8;

/// Number of a transaction of one domain. Transactions are numbered from 1; 0 means "nothing".
pub type Transaction = u64;

/// Dependencies of an object: for each domain, the newest transaction that it depends on.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Clock(pub [Transaction; DOMAINS_MAX]);

impl Clock {
    /// Depends on nothing.
    pub const NONE: Clock = Clock([0; DOMAINS_MAX]);

    /// Element-wise maximum: what depends on both depends on this.
    #[inline(always)]
    pub fn merge(&mut self, other: &Clock) {
        let mut d = 0;
        while d < DOMAINS_MAX {
            if other.0[d] > self.0[d] {
                self.0[d] = other.0[d];
            }
            d += 1;
        }
    }

    /// Whether every transaction that this depends on is in `committed`.
    #[inline(always)]
    pub fn is_resolved_by(&self, committed: &Clock) -> bool {
        let mut d = 0;
        while d < DOMAINS_MAX {
            if self.0[d] > committed.0[d] {
                return false;
            }
            d += 1;
        }
        true
    }
}

/// A clock in shared memory. It only ever grows, so a stale read errs on the side that the protocols above close.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct AtomicClock([AtomicU64; DOMAINS_MAX]);

impl AtomicClock {
    /// A clock that depends on nothing.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; DOMAINS_MAX])
    }
    /// A clock that depends on nothing.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// The current value of one domain.
    #[inline(always)]
    pub fn get(&self, domain: usize) -> Transaction {
        self.0[domain].load(Ordering::Acquire)
    }

    /// The current value of the first `domains` domains.
    #[inline(always)]
    pub fn load(&self, domains: usize) -> Clock {
        let mut clock = Clock::NONE;
        let mut d = 0;
        while d < domains && d < DOMAINS_MAX {
            clock.0[d] = self.0[d].load(Ordering::Acquire);
            d += 1;
        }
        clock
    }

    /// Make this depend on `transaction` of `domain` (and all earlier ones).
    #[inline(always)]
    pub fn raise(&self, domain: usize, transaction: Transaction) {
        let word = &self.0[domain];
        let mut seen = word.load(Ordering::Relaxed);
        while seen < transaction {
            match word.compare_exchange_weak(seen, transaction, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Make this depend on all that `clock` depends on.
    #[inline(always)]
    pub fn merge(&self, clock: &Clock, domains: usize) {
        let mut d = 0;
        while d < domains && d < DOMAINS_MAX {
            if clock.0[d] != 0 {
                self.raise(d, clock.0[d]);
            }
            d += 1;
        }
    }

    /// Forget everything. Only for a slot that nobody else can see yet.
    pub fn reset(&self) {
        for word in &self.0 {
            word.store(0, Ordering::Release);
        }
    }
}

impl Default for AtomicClock {
    fn default() -> Self {
        Self::new()
    }
}

/// A thread's handle: 0 while it changes nothing, else the generation in which it began to change a domain.
#[repr(transparent)]
#[derive(Debug)]
pub struct Handle(AtomicU64);

impl Handle {
    /// A closed handle.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
    /// A closed handle.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The change has reached the page cache (or will never happen).
    #[inline(always)]
    pub fn close(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether a change is in flight.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

impl Default for Handle {
    fn default() -> Self {
        Self::new()
    }
}

/// The transactions of all domains of a world: which one gathers changes, which ones are on stable storage.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Transactions {
    generation: AtomicU64,
    domains: AtomicU32,
    /// Bit d: whoever commits has domain d open.
    held: AtomicU32,
    /// For each domain the transaction that changes join now.
    active: AtomicClock,
    /// For each domain the newest transaction that is on stable storage.
    committed: AtomicClock,
    /// For each domain the newest transaction that somebody changed something in.
    dirty: AtomicClock,
    /// The same without changes that their calls flush.
    known: AtomicClock,
    /// For each domain how many calls are changing its log that flush it before they return.
    flushing: [AtomicU32; DOMAINS_MAX],
    /// For each domain the newest transaction whose commit somebody waits for.
    requested: AtomicClock,
    /// For each domain the newest transaction in which something else was changed than the contents of its log.
    beyond_log: AtomicClock,
    /// For each domain the newest transaction in which calls flushed the contents of its log, and not its times.
    untimed: AtomicClock,
}

impl Transactions {
    /// Every domain in transaction 1, with nothing committed.
    pub fn new(domains: usize) -> Self {
        let t = Self {
            generation: AtomicU64::new(1),
            domains: AtomicU32::new(0),
            held: AtomicU32::new(0),
            active: AtomicClock::new(),
            committed: AtomicClock::new(),
            dirty: AtomicClock::new(),
            known: AtomicClock::new(),
            flushing: core::array::from_fn(|_| AtomicU32::new(0)),
            requested: AtomicClock::new(),
            beyond_log: AtomicClock::new(),
            untimed: AtomicClock::new(),
        };
        t.init(domains);
        t
    }

    /// Set up memory that is all zeroes.
    pub fn init(&self, domains: usize) {
        assert!(domains <= DOMAINS_MAX);
        self.generation.store(1, Ordering::SeqCst);
        for d in 0..DOMAINS_MAX {
            self.active.raise(d, 1);
        }
        self.domains.store(domains as u32, Ordering::SeqCst);
    }

    /// The world has so many domains from now on, if it had fewer: something was mounted.
    pub fn extend(&self, domains: usize) {
        assert!(domains <= DOMAINS_MAX);
        self.domains.fetch_max(domains as u32, Ordering::SeqCst);
    }

    /// How many domains the world has.
    #[inline(always)]
    pub fn domains(&self) -> usize {
        (self.domains.load(Ordering::Relaxed) as usize).min(DOMAINS_MAX)
    }

    /// Begin a change: from here until `handle.close()`, no transaction that is active now begins to flush.
    #[inline(always)]
    pub fn open_handle(&self, handle: &Handle) {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            handle.0.store(generation, Ordering::SeqCst);
            // Store, load here and addition, load in the closer are all sequentially consistent: one of the two sees
            // the other. loom takes them for release and acquire only, and needs the fence; on a processor it would
            // cost three times the store.
            #[cfg(loom)]
            fence(Ordering::SeqCst);
            // If the generation moved between load and store, the closer may have looked at the handle before it was
            // set.
            if self.generation.load(Ordering::SeqCst) == generation {
                return;
            }
        }
    }

    /// The transaction that a change to `domain` joins. Call it with an open handle, and tag everything with the answer
    /// *before* the change is made.
    #[inline(always)]
    pub fn join(&self, domain: usize) -> Transaction {
        let transaction = self.join_log(domain);
        self.beyond_log.raise(domain, transaction);
        transaction
    }

    /// The same for a change of the contents of the domain's *log*: the one file whose flush commits a transaction in
    /// which nothing else was changed. Which file that is must be asked with the handle open.
    #[inline(always)]
    pub fn join_log(&self, domain: usize) -> Transaction {
        let transaction = self.active.get(domain);
        self.dirty.raise(domain, transaction);
        self.known.raise(domain, transaction);
        transaction
    }

    /// The same for a change of the log that the call itself flushes before it returns. No program knows of it before
    /// it is on stable storage, but for those that look at the log: what they see has the transaction's tag. After the
    /// flush comes `end_flushed`, with the handle still open; if there is none, or if it failed, `join_log` before it.
    #[inline(always)]
    pub fn join_flushed(&self, domain: usize) -> Transaction {
        let transaction = self.active.get(domain);
        self.flushing[domain].fetch_add(1, Ordering::SeqCst);
        self.dirty.raise(domain, transaction);
        transaction
    }

    /// A change that joined with `join_flushed` is on stable storage.
    #[inline(always)]
    pub fn end_flushed(&self, domain: usize) {
        self.flushing[domain].fetch_sub(1, Ordering::SeqCst);
    }

    /// A change that joined `transaction` with `join_flushed` is about to be made, and flushed without what the file
    /// system notes of its time. Whoever looks at such times asks `has_times` after it has looked.
    #[inline(always)]
    pub fn leave_times(&self, domain: usize, transaction: Transaction) {
        self.untimed.raise(domain, transaction);
    }

    /// Whether what times of files say is on stable storage where the file is. Otherwise, who looks at one depends on
    /// what the file depends on, also where `is_clean`.
    #[inline(always)]
    pub fn has_times(&self) -> bool {
        (0..self.domains()).all(|domain| self.has_times_of(domain))
    }

    /// The same for one domain.
    #[inline(always)]
    pub fn has_times_of(&self, domain: usize) -> bool {
        self.untimed.get(domain) <= self.committed.get(domain)
    }

    /// The newest transaction of a domain in which something may be uncommitted.
    #[inline(always)]
    fn newest(&self, domain: usize) -> Transaction {
        match self.flushing[domain].load(Ordering::SeqCst) {
            0 => self.known.get(domain),
            _ => self.dirty.get(domain),
        }
    }

    /// Somebody who shares memory with others has learned of all that `clock` depends on: so may they.
    #[inline(always)]
    pub fn learn(&self, clock: &Clock) {
        self.known.merge(clock, self.domains());
    }

    /// What memory can tell of: all that somebody has done or learned of whose memory others see.
    #[inline(always)]
    pub fn known(&self) -> Clock {
        self.known.load(self.domains())
    }

    /// Whether nothing but the log's contents was changed since the last commit of `domain`. Asked by whoever commits,
    /// when everything that joined the transaction is quiet.
    pub fn is_log_only(&self, domain: usize) -> bool {
        self.beyond_log.get(domain) <= self.committed.get(domain)
    }

    /// Another file is the log from now on, or none. Whoever commits says so when it has closed a transaction and
    /// before it closes the next one, which counts as one in which anything was changed: a change of the file that
    /// was the log is covered by that one, since its handle was opened before.
    pub fn leave_log(&self, domain: usize) {
        self.beyond_log.raise(domain, self.active.get(domain));
    }

    /// Whether a change to `domain` may join now, asked with an open handle: whoever commits has it open, and keeps it
    /// open until what has joined is committed. Otherwise close the handle, see to it that `hold` is called, and begin
    /// again.
    #[inline(always)]
    pub fn may_join(&self, domain: usize) -> bool {
        // Who joined first has asked.
        self.known.get(domain) >= self.active.get(domain) || self.is_held(domain)
    }

    /// Whether whoever commits has `domain` open. It stays so at least as long as a handle is open that was opened
    /// before this was asked.
    #[inline(always)]
    pub fn is_held(&self, domain: usize) -> bool {
        self.held.load(Ordering::SeqCst) & (1 << domain) != 0
    }

    /// Whoever commits has opened `domain`.
    pub fn hold(&self, domain: usize) {
        self.held.fetch_or(1 << domain, Ordering::SeqCst);
    }

    /// Whoever commits wants to close `domain`. Only if this returns true it may: nothing of it is uncommitted, nobody
    /// is about to change it, and whoever wants to waits for the next `hold`. `handles` are those of all threads;
    /// `is_unused` is asked last. Not while somebody else calls `hold`.
    pub fn let_go<'h>(
        &self,
        domain: usize,
        mut handles: impl Iterator<Item = &'h Handle>,
        is_unused: impl FnOnce() -> bool,
    ) -> bool {
        self.held.fetch_and(!(1 << domain), Ordering::SeqCst);
        // As in `close_transaction`: either we see a handle that is open, or who opened it sees that the domain is not
        // held.
        fence(Ordering::SeqCst);
        let is_idle = handles.all(|handle| handle.0.load(Ordering::SeqCst) == 0)
            && self.newest(domain) <= self.committed.get(domain)
            && self.has_times_of(domain)
            && is_unused();
        if !is_idle {
            self.hold(domain);
        }
        is_idle
    }

    /// The transaction that changes of `domain` join now, without joining it.
    #[inline(always)]
    pub fn active(&self, domain: usize) -> Transaction {
        self.active.get(domain)
    }

    /// The transaction of `domain` that is being committed, if one is: closed and not committed yet. Asked with an open
    /// handle: without an answer no flush begins until that is closed.
    #[inline(always)]
    pub fn under_way(&self, domain: usize) -> Option<Transaction> {
        let closed = self.active.get(domain) - 1;
        (closed > self.committed.get(domain)).then_some(closed)
    }

    /// Close the active transaction of `domain`; the next change joins the one after it. The flush may begin
    /// when `is_quiet(ticket, …)` holds for every thread's handle.
    pub fn close_transaction(&self, domain: usize) -> (Transaction, Ticket) {
        let closing = self.active.get(domain);
        self.active.raise(domain, closing + 1);
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        fence(Ordering::SeqCst);
        (closing, Ticket(generation))
    }

    /// Whether the change that this handle covers, if any, began after the transaction of `ticket` was closed.
    pub fn is_quiet(&self, ticket: Ticket, handle: &Handle) -> bool {
        let open_since = handle.0.load(Ordering::SeqCst);
        open_since == 0 || open_since >= ticket.0
    }

    /// `transaction` of `domain`, and all before it, are on stable storage.
    pub fn set_committed(&self, domain: usize, transaction: Transaction) {
        self.committed.raise(domain, transaction);
    }

    /// What is on stable storage.
    #[inline(always)]
    pub fn committed(&self) -> Clock {
        self.committed.load(self.domains())
    }

    /// What anybody may have changed so far: the safe answer where an object's own dependencies are not known.
    #[inline(always)]
    pub fn dirty(&self) -> Clock {
        let mut clock = Clock::NONE;
        for domain in 0..self.domains() {
            clock.0[domain] = self.newest(domain);
        }
        clock
    }

    /// Whether all that `clock` depends on is on stable storage.
    #[inline(always)]
    pub fn is_resolved(&self, clock: &Clock) -> bool {
        clock.is_resolved_by(&self.committed())
    }

    /// Whether nothing in the world is uncommitted. Checked after an observation, it makes every merge unnecessary.
    #[inline(always)]
    pub fn is_clean(&self) -> bool {
        let domains = self.domains();
        let mut d = 0;
        while d < domains {
            if self.newest(d) > self.committed.get(d) {
                return false;
            }
            d += 1;
        }
        true
    }

    /// Ask for the commit of all that `clock` depends on. Returns whether that is news.
    pub fn request(&self, clock: &Clock) -> bool {
        let domains = self.domains();
        let mut news = false;
        for d in 0..domains {
            if clock.0[d] > self.committed.get(d) && clock.0[d] > self.requested.get(d) {
                self.requested.raise(d, clock.0[d]);
                news = true;
            }
        }
        news
    }

    /// What has been asked for.
    pub fn requested(&self) -> Clock {
        self.requested.load(self.domains())
    }
}

/// Marks the moment at which a transaction was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);
