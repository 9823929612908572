//! Random events against the rules as they are written down, applied to a plain list.

use commit_clock::Clock;
use output::{Options, OutputQueues, PushError, QueueId, Sequence, Why, WriterId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// queue, process, how far ahead of the committed transaction, domain, bytes
    Push(u64, u32, u64, usize, usize),
    Commit(usize),
    Release,
    Left,
    Blocked(u64),
    PutAside(u64),
    Unblocked(u64),
    Broken(u64),
    DomainFailed(usize),
}

struct Held {
    sequence: Sequence,
    queue: u64,
    process: u32,
    clock: Clock,
    bytes: usize,
    released: bool,
    passed: bool,
}

#[derive(Default)]
struct Model {
    held: Vec<Held>,
    committed: Clock,
    blocked: BTreeSet<u64>,
    aside: BTreeSet<u64>,
    broken: BTreeSet<u64>,
    failed: BTreeSet<usize>,
    clocks: [Clock; 4],
}

const BYTES_MAX: usize = 100;

impl Model {
    fn is_committed(&self, at: usize) -> bool {
        self.held[at].clock.is_resolved_by(&self.committed)
    }

    fn related(&self, a: usize, b: usize) -> bool {
        let is_of_process = self.held[a].process == self.held[b].process;
        self.held[a].queue == self.held[b].queue || is_of_process && !self.held[a].passed && !self.held[b].passed
    }

    /// What is committed, the first of its process, and in a queue that is put aside, keeps its process not waiting.
    fn let_pass(&mut self) -> BTreeMap<u32, usize> {
        let mut passed = BTreeMap::new();
        let is_first = |model: &Self, at: usize| {
            let held = &model.held;
            !held[at].passed && held[..at].iter().all(|other| other.passed || other.process != held[at].process)
        };
        for at in 0..self.held.len() {
            let is_aside = self.aside.contains(&self.held[at].queue);
            if is_aside && is_first(self, at) && (0..=at).all(|earlier| self.is_committed(earlier)) {
                self.held[at].passed = true;
                *passed.entry(self.held[at].process).or_default() += 1;
            }
        }
        passed
    }

    fn is_stalled(&self, at: usize) -> bool {
        let behind = || (0..at).any(|earlier| self.related(earlier, at) && self.is_stalled(earlier));
        self.is_committed(at) && (self.blocked.contains(&self.held[at].queue) || behind())
    }

    fn may_leave(&self, at: usize) -> bool {
        self.is_committed(at)
            && !self.blocked.contains(&self.held[at].queue)
            && (0..at).all(|earlier| self.is_stalled(earlier) && !self.related(earlier, at))
    }

    fn next(&self) -> Option<usize> {
        let at = (0..self.held.len()).find(|&at| self.may_leave(at))?;
        (!self.held[at].released).then_some(at)
    }

    fn bytes_in(&self, queue: u64) -> usize {
        self.held.iter().filter(|held| held.queue == queue).map(|held| held.bytes).sum()
    }

    fn refusal(&self, queue: u64, clock: &Clock, bytes: usize) -> Option<Why> {
        if self.broken.contains(&queue) {
            return Some(Why::Broken);
        }
        if let Some(domain) = self.failed.iter().find(|&&d| clock.0[d] > self.committed.0[d]) {
            return Some(Why::DomainFailed(*domain));
        }
        let is_empty = self.held.iter().all(|held| held.queue != queue);
        (!is_empty && self.bytes_in(queue) + bytes > BYTES_MAX).then_some(Why::Full)
    }
}

fn event() -> impl Strategy<Value = Event> {
    let queue = 0u64..4;
    prop_oneof![
        80 => (queue.clone(), 0u32..4, 0u64..3, 0usize..2, 0usize..15)
            .prop_map(|(q, p, ahead, d, bytes)| Event::Push(q, p, ahead, d, bytes)),
        24 => (0usize..2).prop_map(Event::Commit),
        48 => Just(Event::Release),
        48 => Just(Event::Left),
        8 => queue.clone().prop_map(Event::Blocked),
        8 => queue.clone().prop_map(Event::PutAside),
        16 => queue.clone().prop_map(Event::Unblocked),
        1 => queue.prop_map(Event::Broken),
        1 => (0usize..2).prop_map(Event::DomainFailed),
    ]
}

struct Pair {
    model: Model,
    queues: OutputQueues<u64>,
    pushed: u64,
}

impl Pair {
    fn run(&mut self, event: Event) {
        match event {
            Event::Push(queue, process, ahead, domain, bytes) => self.push(queue, process, ahead, domain, bytes),
            Event::Commit(domain) if self.model.failed.contains(&domain) => {}
            Event::Commit(domain) => {
                self.model.committed.0[domain] += 1;
                self.queues.on_committed(&self.model.committed);
            }
            Event::Release => self.release(),
            Event::Left => self.left(),
            Event::Blocked(queue) => {
                self.model.blocked.insert(queue);
                self.queues.on_blocked(QueueId(queue));
            }
            Event::PutAside(queue) => {
                self.model.blocked.insert(queue);
                self.model.aside.insert(queue);
                self.queues.on_put_aside(QueueId(queue));
            }
            Event::Unblocked(queue) => {
                self.model.blocked.remove(&queue);
                self.model.aside.remove(&queue);
                self.queues.on_unblocked(QueueId(queue));
            }
            Event::Broken(queue) => {
                self.model.broken.insert(queue);
                self.model.blocked.remove(&queue);
                self.model.aside.remove(&queue);
                let dropped = self.queues.on_broken(QueueId(queue));
                self.expect_dropped(dropped, |held, _| held.queue == queue);
            }
            Event::DomainFailed(domain) => {
                self.model.failed.insert(domain);
                let dropped = self.queues.on_domain_failed(domain);
                self.expect_dropped(dropped, |held, committed| held.clock.0[domain] > committed.0[domain]);
            }
        }
    }

    fn push(&mut self, queue: u64, process: u32, ahead: u64, domain: usize, bytes: usize) {
        // The clock of a process only grows.
        let clock = &mut self.model.clocks[process as usize];
        clock.0[domain] = clock.0[domain].max(self.model.committed.0[domain] + ahead);
        let clock = *clock;
        let through = self.queues.straight_through(QueueId(queue), WriterId(process), &clock, &self.model.committed);
        self.pushed += 1;
        let answer = self.queues.push(QueueId(queue), WriterId(process), clock, self.pushed, bytes);
        match (self.model.refusal(queue, &clock, bytes), answer) {
            (Some(why), Err(PushError { why: given, payload })) => {
                assert!(why == given && payload == self.pushed);
            }
            (None, Ok(sequence)) => {
                self.model.held.push(Held { sequence, queue, process, clock, bytes, released: false, passed: false });
                let at_once = self.model.next() == Some(self.model.held.len() - 1);
                assert_eq!(through, at_once, "straight through is what would leave at once");
            }
            (expected, answer) => panic!("expected {expected:?}, not {answer:?}"),
        }
    }

    fn release(&mut self) {
        let expected = self.model.next();
        let release = self.queues.next_release();
        let sequence = expected.map(|at| self.model.held[at].sequence);
        assert_eq!(release.map(|release| release.sequence), sequence);
        if let Some(at) = expected {
            self.model.held[at].released = true;
        }
    }

    /// The oldest entry that is being written, and whose reader reads, has left.
    fn left(&mut self) {
        let blocked = &self.model.blocked;
        let at = self.model.held.iter().position(|held| held.released && !blocked.contains(&held.queue));
        if let Some(at) = at {
            let held = self.model.held.remove(at);
            assert_eq!(self.queues.on_left(held.sequence), !held.passed);
        }
    }

    fn expect_dropped(&mut self, dropped: Vec<output::Dropped<u64>>, which: impl Fn(&Held, &Clock) -> bool) {
        let committed = self.model.committed;
        let (gone, left) = std::mem::take(&mut self.model.held).into_iter().partition(|h| which(h, &committed));
        self.model.held = left;
        let gone: Vec<Held> = gone;
        let expected: Vec<_> = gone.iter().map(|held| (held.sequence, held.released, held.passed)).collect();
        let dropped: Vec<_> = dropped.iter().map(|d| (d.sequence, d.payload.is_none(), d.is_passed)).collect();
        assert_eq!(dropped, expected);
    }

    fn check(&mut self) {
        let mut passed = BTreeMap::new();
        self.queues.take_passed().into_iter().for_each(|process| *passed.entry(process.0).or_default() += 1);
        assert_eq!(passed, self.model.let_pass());
        for queue in 0..4 {
            let pending = self.queues.pending_in(QueueId(queue));
            let entries = self.model.held.iter().filter(|held| held.queue == queue).count();
            assert_eq!((pending.entries, pending.bytes), (entries, self.model.bytes_in(queue)));
        }
        for process in 0..4 {
            let is_held = |held: &&Held| held.process == process && !held.passed;
            let entries = self.model.held.iter().filter(is_held).count();
            assert_eq!(self.queues.pending_of(WriterId(process)).entries, entries);
        }
        assert_eq!(self.queues.is_empty(), self.model.held.is_empty());
        assert_eq!(self.queues.wanted().is_resolved_by(&self.model.committed), self.all_committed());
    }

    fn all_committed(&self) -> bool {
        (0..self.model.held.len()).all(|at| self.model.is_committed(at))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_leave_as_the_rules_say(events in prop::collection::vec(event(), 1..160)) {
        let queues = OutputQueues::new(Options { queue_bytes_max: BYTES_MAX });
        let mut pair = Pair { model: Model::default(), queues, pushed: 0 };
        for event in events {
            pair.run(event);
            pair.check();
        }
        // Whatever happened, once all is committed and all readers read, everything leaves.
        for _ in 0..3 {
            (0..2).for_each(|domain| pair.run(Event::Commit(domain)));
            pair.check();
        }
        (0..4).for_each(|queue| pair.run(Event::Unblocked(queue)));
        for _ in 0..pair.model.held.len() {
            pair.run(Event::Release);
            pair.run(Event::Left);
            pair.check();
        }
        prop_assert!(pair.queues.is_empty());
    }
}
