//! What intervals of the session's own change that were sent and of which nothing was heard yet. The server carries one
//! out while the session keeps its leases, and others may know of it before the session does: so nothing that it could
//! be about is said from the cache meanwhile (docs/decisions/0156).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bluefs::op::RenameMode;
use bluefs::query::{Answer, Query};
use bluefs::{Change, Ino, Interval, Key, Name};

#[derive(Debug, Default)]
pub struct Sent {
    /// By their numbers.
    sent: BTreeMap<u64, Arc<Touched>>,
    /// Those that are about to be sent, and have no number yet.
    announced: BTreeMap<u64, Arc<Touched>>,
    last: u64,
}

/// What an interval may change.
#[derive(Debug, Default)]
pub struct Touched {
    /// The keys.
    pub keys: BTreeSet<Key>,
    /// A name is taken away, and it is not known from what.
    pub anything: bool,
}

impl Sent {
    /// An interval is about to be sent. `meaning` says what a name is known to mean. Says by which number
    /// [`Sent::withdraw`] knows it.
    pub fn announce(
        &mut self,
        interval: &Interval,
        meaning: impl Fn(Ino, &Name) -> Option<Option<Ino>>,
    ) -> (u64, Arc<Touched>) {
        let touched = Arc::new(touched(interval, meaning));
        self.last += 1;
        self.announced.insert(self.last, touched.clone());
        (self.last, touched)
    }

    /// It was sent, and is known by its number, or it never will be.
    pub fn withdraw(&mut self, announced: u64) {
        self.announced.remove(&announced);
    }

    /// An interval is sent.
    pub fn begun(&mut self, interval: &Interval, meaning: impl Fn(Ino, &Name) -> Option<Option<Ino>>) {
        self.sent.insert(interval.number, Arc::new(touched(interval, meaning)));
    }

    /// What it has changed is told, or it has failed.
    pub fn heard(&mut self, number: u64) {
        self.sent.remove(&number);
    }

    /// Whether the answer may be another one already.
    pub fn may_change(&self, query: &Query, answer: Option<&Answer>) -> bool {
        if self.sent.is_empty() && self.announced.is_empty() {
            return false;
        }
        let keys = query.keys(answer);
        let mut all = self.sent.values().chain(self.announced.values());
        all.any(|touched| touched.anything || keys.iter().any(|key| touched.keys.contains(key)))
    }
}

fn touched(interval: &Interval, meaning: impl Fn(Ino, &Name) -> Option<Option<Ino>>) -> Touched {
    let mut touched = Touched::default();
    interval.steps.iter().for_each(|step| touched.add(&step.change, &meaning));
    touched
}

impl Touched {
    fn add(&mut self, change: &Change, meaning: &impl Fn(Ino, &Name) -> Option<Option<Ino>>) {
        match change {
            Change::Create { dir, name, .. } => self.name(*dir, name),
            Change::Link { ino, dir, name } => {
                self.name(*dir, name);
                self.keys.insert(Key::Attr(*ino));
            }
            Change::Unlink { dir, name } | Change::Rmdir { dir, name } => {
                self.name(*dir, name);
                self.named(meaning(*dir, name));
            }
            Change::Rename { from_dir, from, to_dir, to, mode } => {
                self.name(*from_dir, from);
                self.name(*to_dir, to);
                self.named(meaning(*from_dir, from));
                if *mode != RenameMode::NoReplace {
                    self.named(meaning(*to_dir, to));
                }
            }
            Change::SetAttr { ino, .. } => {
                self.keys.extend([Key::Attr(*ino), Key::Data(*ino), Key::Listing(*ino)]);
            }
            Change::Write { ino, .. }
            | Change::Append { ino, .. }
            | Change::Punch { ino, .. }
            | Change::Allocate { ino, .. } => {
                self.keys.extend([Key::Data(*ino), Key::Attr(*ino)]);
            }
            Change::SetXattr { ino, .. } | Change::RemoveXattr { ino, .. } => {
                self.keys.extend([Key::Xattr(*ino), Key::Attr(*ino)]);
            }
        }
    }

    fn name(&mut self, dir: Ino, name: &Name) {
        self.keys.extend([Key::Name(dir, name.clone()), Key::Listing(dir)]);
    }

    /// What has a name that changes.
    fn named(&mut self, meaning: Option<Option<Ino>>) {
        match meaning {
            Some(Some(ino)) => self.keys.extend([Key::Attr(ino), Key::Parent(ino)]),
            Some(None) => {}
            None => self.anything = true,
        }
    }
}
