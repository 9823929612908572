//! Files without a name that nobody can have open: for sessions they are gone, and they are freed in parts.

use std::collections::BTreeSet;

use bluefs::apply::free;
use bluefs::lease::Millis;
use bluefs::query::Query;
use bluefs::{Ino, SessionId};
use bluefs_store::{Batch, Left, StoreError, View};
use bluefs_wire::Request;

use super::Volume;
use crate::engine::{Now, FULL_EVERY_MS};

/// Blocks that are removed in one turn with files that nobody can have open, at most: 1 GiB of contents.
const FREED_BLOCKS_MAX: usize = 65_536;
/// How long files that nobody can have open wait for a change to be freed with, ms.
const UNFREED_MS_MAX: Millis = 200;

impl Volume {
    /// Whether it has no name, and nobody can have it open: for sessions it is gone, also while it is freed in parts.
    pub(super) fn is_unused(&self, ino: Ino) -> bool {
        self.orphans.get(&ino).is_some_and(BTreeSet::is_empty)
    }

    /// Whether the answer to this depends on files that wait to be freed: how much room there is, or one of them.
    pub(super) fn is_asked_what_is_free(&self, message: &Request) -> bool {
        self.free_at.is_some()
            && match message {
                Request::Ask { query, .. } | Request::AskLeased { query, .. } => {
                    matches!(query, Query::Space) || query.keys(None).iter().any(|key| self.is_unused(key.ino()))
                }
                Request::Versions { inos, .. } => inos.iter().any(|ino| self.is_unused(*ino)),
                _ => false,
            }
    }

    /// A session has such a file open no more.
    pub(super) fn released(&mut self, session: SessionId, ino: Ino, now: Now) {
        let Some(who) = self.orphans.get_mut(&ino) else { return };
        who.remove(&session);
        if who.is_empty() {
            // Nobody is told of it: by itself it is worth no flush, for which the next change would wait.
            self.free_at.get_or_insert(now.millis + UNFREED_MS_MAX);
        }
    }

    /// Frees files that nobody can have open any more; what is more than a turn may free, in the next ones.
    pub(super) fn free(&mut self, batch: &mut Batch, now: Now) -> Result<(), StoreError> {
        if now.millis < self.free_not_before {
            return Ok(());
        }
        if !self.may_free {
            // If that had no room either all would begin again, with this: again and again, and everybody cut off.
            self.free_at = Some(now.millis + FULL_EVERY_MS);
            return Ok(());
        }
        self.free_at = None;
        let unused: Vec<Ino> = self.orphans.iter().filter(|(_, who)| who.is_empty()).map(|(ino, _)| *ino).collect();
        if unused.is_empty() {
            return Ok(());
        }
        let view = View::new(&*batch, self.id, &self.staged);
        let (changes, free) = free(&view, &unused, FREED_BLOCKS_MAX.min(self.removed_rows_max()))?;
        free.iter().for_each(|ino| _ = self.orphans.remove(ino));
        if free.len() < unused.len() {
            // On a full disk one part for each look at it, as that asks for the room of one.
            let is_full = self.left == Some(Left::nothing());
            self.free_not_before = now.millis + if is_full { FULL_EVERY_MS } else { 1 };
            self.free_at = Some(self.free_not_before);
        }
        batch.write(self.id, &changes)?;
        let cut = changes.inodes.iter().filter(|(_, inode)| inode.is_some());
        cut.map(|(ino, _)| *ino).try_for_each(|ino| batch.set_being_freed(self.id, ino))
    }
}
