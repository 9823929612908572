//! The queues of a world.
//!
//! To find what may leave next it is enough to look at entries that are at the head of their queue and of their
//! process, in queues that are not blocked: the oldest of these, if it is older than every uncommitted entry. For
//! suppose that an older entry, committed then, were not stalled, and take the oldest such. Everything before it is
//! stalled, so nothing of its queue or process is before it, and its queue is not blocked. Then it is itself an older
//! head.

use crate::entry::{Dropped, Entry, PushError, Pushed, QueueId, Release, Sequence, Why, WriterId};
use crate::lanes::Lane;
use commit_clock::{Clock, DOMAINS_MAX};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Limits of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes that one queue holds. A single larger entry is taken when its queue is empty.
    pub queue_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { queue_bytes_max: 1 << 20 }
    }
}

/// What is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// How many entries.
    pub entries: usize,
    /// How long they are together.
    pub bytes: usize,
}

/// All output that has not left.
#[derive(Clone, Debug)]
pub struct OutputQueues<T> {
    options: Options,
    entries: BTreeMap<Sequence, Entry<T>>,
    queues: BTreeMap<QueueId, Lane>,
    processes: BTreeMap<WriterId, Lane>,
    blocked: BTreeSet<QueueId>,
    /// Blocked queues that keep nobody waiting: see `on_put_aside`.
    aside: BTreeSet<QueueId>,
    /// Processes that have one entry less in their lane since somebody asked.
    passed: Vec<WriterId>,
    broken: BTreeSet<QueueId>,
    failed_domains: BTreeSet<usize>,
    committed: Clock,
    /// Entries at the head of their queue and their process, in queues that are not blocked.
    heads: BTreeSet<Sequence>,
    /// Entries that were uncommitted when last looked at; the front one is uncommitted now.
    uncommitted: VecDeque<Sequence>,
    /// What the entries in `uncommitted` depend on, and perhaps some that were there.
    wanted: Clock,
    next: u64,
}

impl<T> Default for OutputQueues<T> {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl<T> OutputQueues<T> {
    /// Nothing is held.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            entries: BTreeMap::new(),
            queues: BTreeMap::new(),
            processes: BTreeMap::new(),
            blocked: BTreeSet::new(),
            aside: BTreeSet::new(),
            passed: Vec::new(),
            broken: BTreeSet::new(),
            failed_domains: BTreeSet::new(),
            committed: Clock::NONE,
            heads: BTreeSet::new(),
            uncommitted: VecDeque::new(),
            wanted: Clock::NONE,
            next: 0,
        }
    }

    /// Hold output that `process`, depending on `clock`, writes to `queue`.
    pub fn push(&mut self, queue: QueueId, process: WriterId, clock: Clock, payload: T, bytes: usize) -> Pushed<T> {
        if let Some(why) = self.refusal(queue, &clock, bytes) {
            return Err(PushError { why, payload });
        }
        self.next += 1;
        let sequence = Sequence(self.next);
        if !clock.is_resolved_by(&self.committed) {
            self.uncommitted.push_back(sequence);
            self.wanted.merge(&clock);
        }
        self.queues.entry(queue).or_default().push(sequence, bytes);
        self.processes.entry(process).or_default().push(sequence, bytes);
        let entry = Entry { queue, process, clock, bytes, payload: Some(payload), is_passed: false };
        self.entries.insert(sequence, entry);
        self.note_if_head(sequence);
        self.let_pass(process);
        Ok(sequence)
    }

    fn refusal(&self, queue: QueueId, clock: &Clock, bytes: usize) -> Option<Why> {
        if self.broken.contains(&queue) {
            return Some(Why::Broken);
        }
        let mut failed = self.failed_domains.iter().copied();
        if let Some(domain) = failed.find(|&domain| clock.0[domain] > self.committed.0[domain]) {
            return Some(Why::DomainFailed(domain));
        }
        (!self.has_room(queue, bytes)).then_some(Why::Full)
    }

    /// Whether `push` would not answer `Full`.
    pub fn has_room(&self, queue: QueueId, bytes: usize) -> bool {
        let held = self.pending_in(queue);
        held.entries == 0 || held.bytes.saturating_add(bytes) <= self.options.queue_bytes_max
    }

    /// Whether output may be written without being held: it is committed, and if it were pushed it would be the next to
    /// be released, and at once.
    pub fn straight_through(&self, queue: QueueId, process: WriterId, clock: &Clock, committed: &Clock) -> bool {
        let mut known = self.committed;
        known.merge(committed);
        clock.is_resolved_by(&known)
            && !self.blocked.contains(&queue)
            && !self.broken.contains(&queue)
            && !self.queues.contains_key(&queue)
            && !self.processes.contains_key(&process)
            && self.heads.is_empty()
            && self.uncommitted.is_empty()
    }

    /// All transactions up to `committed` are on stable storage.
    pub fn on_committed(&mut self, committed: &Clock) {
        self.committed.merge(committed);
        self.skip_committed();
    }

    /// Of these processes one entry has been put aside since the last question (a process comes once for each).
    pub fn take_passed(&mut self) -> Vec<WriterId> {
        std::mem::take(&mut self.passed)
    }

    /// The flush of `domain` failed. What depends on it never leaves and is dropped here; more of it is not taken.
    pub fn on_domain_failed(&mut self, domain: usize) -> Vec<Dropped<T>> {
        assert!(domain < DOMAINS_MAX, "domain {domain} does not exist");
        self.failed_domains.insert(domain);
        let committed = self.committed.0[domain];
        let depends = |entry: &Entry<T>| entry.clock.0[domain] > committed;
        let gone = self.entries.iter().filter(|(_, entry)| depends(entry)).map(|(sequence, _)| *sequence);
        let gone: Vec<_> = gone.collect();
        self.drop_all(gone)
    }

    /// The next entry to write out. It stays the first of its queue and process until `on_left`, or until its queue
    /// breaks; if its queue blocks meanwhile, others may be released, and its writing goes on when the queue unblocks.
    pub fn next_release(&mut self) -> Option<Release<T>> {
        let sequence = self.releasable()?;
        let entry = self.entries.get_mut(&sequence).expect("a head is held");
        let payload = entry.payload.take()?;
        Some(Release { sequence, queue: entry.queue, process: entry.process, payload })
    }

    /// Whether `next_release` would hand out an entry.
    pub fn has_release(&self) -> bool {
        self.releasable().is_some_and(|sequence| self.entries[&sequence].payload.is_some())
    }

    fn releasable(&self) -> Option<Sequence> {
        let sequence = *self.heads.first()?;
        let is_committed = self.uncommitted.front().is_none_or(|first| *first > sequence);
        is_committed.then_some(sequence)
    }

    /// All of the entry has left. Whether it was held of its process until now: not if it was put aside.
    pub fn on_left(&mut self, sequence: Sequence) -> bool {
        debug_assert!(self.entries.get(&sequence).is_none_or(|entry| entry.payload.is_none()), "it was not released");
        self.remove(sequence).is_some_and(|entry| !entry.is_passed)
    }

    /// The outside reader takes no more for now.
    pub fn on_blocked(&mut self, queue: QueueId) {
        self.blocked.insert(queue);
        if let Some(head) = self.queues.get(&queue).and_then(Lane::head) {
            self.heads.remove(&head);
        }
    }

    /// As `on_blocked`, for a queue whose writers would not have waited for its reader either: what is committed is put
    /// aside as if it had left, and its processes' later entries pass it. In its queue it stays where it is.
    pub fn on_put_aside(&mut self, queue: QueueId) {
        self.on_blocked(queue);
        if self.aside.insert(queue) {
            self.let_all_pass();
        }
    }

    /// The outside reader takes more.
    pub fn on_unblocked(&mut self, queue: QueueId) {
        self.blocked.remove(&queue);
        self.aside.remove(&queue);
        if let Some(head) = self.queues.get(&queue).and_then(Lane::head) {
            self.note_if_head(head);
        }
    }

    /// The outside reader is gone (EPIPE): its entries are dropped, and more are not taken.
    pub fn on_broken(&mut self, queue: QueueId) -> Vec<Dropped<T>> {
        self.broken.insert(queue);
        self.blocked.remove(&queue);
        self.aside.remove(&queue);
        let gone: Vec<_> = self.queues.get(&queue).map_or(Vec::new(), |lane| lane.iter().collect());
        self.drop_all(gone)
    }

    /// The outside object is no longer there, and its id may be used for another one. Nothing may be held for it.
    pub fn forget(&mut self, queue: QueueId) {
        debug_assert!(!self.queues.contains_key(&queue), "output for {queue:?} is held");
        self.broken.remove(&queue);
        self.blocked.remove(&queue);
        self.aside.remove(&queue);
    }

    /// What is held of a process, without what is put aside.
    pub fn pending_of(&self, process: WriterId) -> Pending {
        pending(self.processes.get(&process))
    }

    /// Whether something that a process has written has not left, also if it is put aside.
    pub fn holds_any_of(&self, process: WriterId) -> bool {
        self.entries.values().any(|entry| entry.process == process)
    }

    /// What is held for an outside object.
    pub fn pending_in(&self, queue: QueueId) -> Pending {
        pending(self.queues.get(&queue))
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What has to be committed so that everything held may leave: the commit to trigger (002, 3.4).
    pub fn wanted(&self) -> Clock {
        self.wanted
    }

    fn note_if_head(&mut self, sequence: Sequence) {
        let entry = &self.entries[&sequence];
        let first_of_queue = self.queues[&entry.queue].head() == Some(sequence);
        let first_of_process = || self.processes[&entry.process].head() == Some(sequence);
        if first_of_queue && (entry.is_passed || first_of_process()) && !self.blocked.contains(&entry.queue) {
            self.heads.insert(sequence);
        }
    }

    fn let_all_pass(&mut self) {
        if !self.aside.is_empty() {
            let processes: Vec<_> = self.processes.keys().copied().collect();
            processes.into_iter().for_each(|process| self.let_pass(process));
        }
    }

    /// What a process has first is committed, and waits for a reader who keeps nobody waiting: what follows is first.
    fn let_pass(&mut self, process: WriterId) {
        while let Some(sequence) = self.processes.get(&process).and_then(Lane::head) {
            let is_committed = self.uncommitted.front().is_none_or(|first| *first > sequence);
            let entry = self.entries.get_mut(&sequence).expect("an entry stands in its lanes");
            if !is_committed || !self.aside.contains(&entry.queue) {
                return;
            }
            entry.is_passed = true;
            let next = leave(&mut self.processes, process, sequence, entry.bytes);
            self.passed.push(process);
            if let Some(next) = next {
                self.note_if_head(next);
            }
        }
    }

    fn drop_all(&mut self, gone: Vec<Sequence>) -> Vec<Dropped<T>> {
        let dropped = gone.into_iter().filter_map(|sequence| {
            let Entry { queue, process, payload, is_passed, .. } = self.remove(sequence)?;
            Some(Dropped { sequence, queue, process, payload, is_passed })
        });
        let dropped = dropped.collect();
        self.want_what_is_left();
        dropped
    }

    fn remove(&mut self, sequence: Sequence) -> Option<Entry<T>> {
        let entry = self.entries.remove(&sequence)?;
        self.heads.remove(&sequence);
        let of_queue = leave(&mut self.queues, entry.queue, sequence, entry.bytes);
        let of_process =
            (!entry.is_passed).then(|| leave(&mut self.processes, entry.process, sequence, entry.bytes)).flatten();
        for next in [of_queue, of_process].into_iter().flatten() {
            self.note_if_head(next);
        }
        self.let_pass(entry.process);
        self.skip_committed();
        Some(entry)
    }

    /// Dropped output waits for no commit.
    fn want_what_is_left(&mut self) {
        self.wanted = Clock::NONE;
        for entry in self.uncommitted.iter().filter_map(|sequence| self.entries.get(sequence)) {
            self.wanted.merge(&entry.clock);
        }
    }

    /// Bring `uncommitted` to its first entry that is held and uncommitted.
    fn skip_committed(&mut self) {
        let mut any = false;
        while let Some(first) = self.uncommitted.front() {
            let entry = self.entries.get(first);
            if entry.is_some_and(|entry| !entry.clock.is_resolved_by(&self.committed)) {
                break;
            }
            self.uncommitted.pop_front();
            any = true;
        }
        if self.uncommitted.is_empty() {
            self.wanted = Clock::NONE;
        }
        if any {
            self.let_all_pass();
        }
    }
}

fn pending(lane: Option<&Lane>) -> Pending {
    lane.map_or(Pending::default(), |lane| Pending { entries: lane.len(), bytes: lane.bytes })
}

/// Take an entry out of its lane; the new head.
fn leave<L: Ord>(lanes: &mut BTreeMap<L, Lane>, key: L, sequence: Sequence, bytes: usize) -> Option<Sequence> {
    let lane = lanes.get_mut(&key).expect("an entry stands in its lanes");
    lane.remove(sequence, bytes);
    let head = lane.head();
    if head.is_none() {
        lanes.remove(&key);
    }
    head
}
