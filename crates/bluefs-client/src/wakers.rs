//! Who waits for what. Each has a condition variable of its own: with one for all each message woke everybody, and of
//! some hundred that waited nobody got on (docs/decisions/0303).

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar};

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The reply with this tag.
    Reply(u64),
    /// The outcome of this interval.
    Outcome(u64),
    /// What was asked for ahead with this tag.
    Ahead(u64),
    /// Any message.
    Any,
}

/// All who wait.
#[derive(Debug, Default)]
pub struct Wakers {
    waiting: BTreeMap<(Event, u64), Arc<Condvar>>,
    last: u64,
}

impl Wakers {
    /// Somebody waits. Says under which number they are known, and what wakes them.
    pub fn enter(&mut self, event: Event) -> (u64, Arc<Condvar>) {
        self.last += 1;
        let woken = self.waiting.entry((event, self.last)).or_default();
        (self.last, woken.clone())
    }

    /// They wait no more.
    pub fn leave(&mut self, event: Event, number: u64) {
        self.waiting.remove(&(event, number));
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// It has happened.
    pub fn wake(&self, event: Event) {
        self.waiting.range((event, 0)..=(event, u64::MAX)).for_each(|(_, one)| one.notify_all());
    }

    /// Everybody is to look.
    pub fn wake_all(&self) {
        self.waiting.values().for_each(|one| one.notify_all());
    }
}
