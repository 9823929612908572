//! One piece of output, from `push` until it has left or is dropped.

use commit_clock::Clock;
use std::fmt;

/// An outside object that output goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueId(pub u64);

/// A process inside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriterId(pub u32);

/// Position in the order of writing, over all queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sequence(pub u64);

/// An entry that is held.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    pub queue: QueueId,
    pub process: WriterId,
    pub clock: Clock,
    pub bytes: usize,
    /// Absent once it was handed out by `next_release`.
    pub payload: Option<T>,
    /// It was put aside: it stands in its queue's lane only.
    pub is_passed: bool,
}

/// An entry to write out now. Report `on_left` when all of it has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release<T> {
    /// Its position.
    pub sequence: Sequence,
    /// Where it goes.
    pub queue: QueueId,
    /// Who wrote it.
    pub process: WriterId,
    /// What it is.
    pub payload: T,
}

/// An entry that never leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped<T> {
    /// Its position.
    pub sequence: Sequence,
    /// Where it would have gone.
    pub queue: QueueId,
    /// Who wrote it.
    pub process: WriterId,
    /// What it is; absent if `next_release` had handed it out.
    pub payload: Option<T>,
    /// It had been put aside, and was not held of its process any more.
    pub is_passed: bool,
}

/// What `push` answers: the entry's position.
pub type Pushed<T> = Result<Sequence, PushError<T>>;

/// Why output was not taken; the payload comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushError<T> {
    /// The reason.
    pub why: Why,
    /// What was to be pushed.
    pub payload: T,
}

/// Why output was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The queue holds as many bytes as it may: block the writer until entries have left.
    Full,
    /// The outside object is broken: EPIPE.
    Broken,
    /// It depends on a domain whose flush failed; it will never be committed.
    DomainFailed(usize),
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::Full => write!(f, "the output queue is full; wait until some of it has left"),
            Why::Broken => write!(f, "the reader of the output is gone (EPIPE)"),
            Why::DomainFailed(domain) => write!(f, "the output depends on domain {domain}, whose flush failed"),
        }
    }
}

impl<T: fmt::Debug> std::error::Error for PushError<T> {}
