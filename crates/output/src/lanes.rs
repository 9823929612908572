//! The entries of one queue, or of one process, in order. An entry at the head of both its queue and its process waits
//! for nobody there.

use crate::Sequence;
use std::collections::VecDeque;

/// Sequences, oldest first.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lane {
    waiting: VecDeque<Sequence>,
    pub bytes: usize,
}

impl Lane {
    pub fn push(&mut self, sequence: Sequence, bytes: usize) {
        debug_assert!(self.waiting.back().is_none_or(|last| *last < sequence));
        self.waiting.push_back(sequence);
        self.bytes += bytes;
    }

    pub fn head(&self) -> Option<Sequence> {
        self.waiting.front().copied()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = Sequence> + '_ {
        self.waiting.iter().copied()
    }

    /// Almost always the head.
    pub fn remove(&mut self, sequence: Sequence, bytes: usize) {
        let at = self.waiting.binary_search(&sequence).expect("an entry stands in its lanes");
        self.waiting.remove(at);
        self.bytes -= bytes;
    }
}
