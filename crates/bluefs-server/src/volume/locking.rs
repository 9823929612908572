//! Locks of a session on files, as messages ask for them.

use bluefs::op::Errno;
use bluefs::SessionId;
use bluefs_store::{Batch, StoreError};
use bluefs_wire::{LockKind, LockRequest, Refusal, Reply};

use super::{Refused, Volume};
use crate::engine::Action;
use crate::locks::Locked;

/// EINTR, EAGAIN, EDEADLK, ENOLCK.
const INTERRUPTED: Errno = Errno(4);
const AGAIN: Errno = Errno(11);
const DEADLK: Errno = Errno(35);
const NOLCK: Errno = Errno(37);

impl Volume {
    /// A session wants a lock, or gives one back.
    pub(super) fn lock(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        tag: u64,
        lock: LockRequest,
        actions: &mut Vec<Action>,
    ) -> Result<Refused, StoreError> {
        if lock.start > lock.end {
            return Ok(Some((Refusal::Protocol, "a lock ends before it begins")));
        }
        let refused = match self.locks.request(session, tag, lock) {
            Locked::Given => self.locked(batch, session, tag, actions).map(|()| None)?,
            Locked::Waits => None,
            Locked::Refused => Some(AGAIN),
            Locked::TooMany => Some(NOLCK),
            Locked::Deadlock => Some(DEADLK),
        };
        if let Some(errno) = refused {
            self.send(session, Reply::Error { tag, csn: self.csn, errno }, actions);
        }
        self.give_locks(batch, actions)?;
        Ok(None)
    }

    /// A session had a lock before the server was started again.
    pub(super) fn reclaim_lock(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        tag: u64,
        lock: LockRequest,
        actions: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        if lock.start <= lock.end && lock.kind != LockKind::Unlock && self.locks.reclaim(session, lock) {
            self.locked(batch, session, tag, actions)?;
        } else {
            self.send(session, Reply::Error { tag, csn: self.csn, errno: AGAIN }, actions);
        }
        self.give_locks(batch, actions)
    }

    /// Who waits for a lock was interrupted.
    pub(super) fn cancel_lock(&mut self, session: SessionId, tag: u64, actions: &mut Vec<Action>) {
        if self.locks.cancel(session, tag) {
            self.send(session, Reply::Error { tag, csn: self.csn, errno: INTERRUPTED }, actions);
        }
    }

    /// Gives the locks that have become free to those who wait for them.
    pub(super) fn give_locks(&mut self, batch: &mut Batch, actions: &mut Vec<Action>) -> Result<(), StoreError> {
        self.locks.give().into_iter().try_for_each(|(session, tag, is_given)| match is_given {
            true => self.locked(batch, session, tag, actions),
            false => {
                self.send(session, Reply::Error { tag, csn: self.csn, errno: AGAIN }, actions);
                Ok(())
            }
        })
    }

    /// A lock is given.
    fn locked(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        tag: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        self.note_leased(batch, session)?;
        self.send(session, Reply::Locked { tag }, actions);
        Ok(())
    }
}
