//! Leases of a session, as messages ask for them.

use std::collections::{BTreeMap, BTreeSet};

use bluefs::lease::{Given, Ticket, TERM_MS};
use bluefs::query::Query;
use bluefs::{Group, SessionId};
use bluefs_store::{Batch, StoreError};
use bluefs_wire::{Refusal, Reply};

use super::{Refused, Volume};
use crate::engine::{Action, Now};
use crate::session::{Wanted, EXCLUSIVE_WAIT_MS_MAX, WANTED_MAX};

impl Volume {
    /// Grants a lease, if it can be had.
    pub(super) fn grant(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        group: Group,
        now: Now,
    ) -> Result<bool, StoreError> {
        if self.leases.grant(session, group, now.millis).is_none() {
            return Ok(false);
        }
        self.note_leased(batch, session)?;
        Ok(true)
    }

    /// Grants the leases under which a reply to this query may be kept, as far as they can be had.
    pub(super) fn grant_for(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        query: &Query,
        reply: &Reply,
        now: Now,
    ) -> Result<Vec<Group>, StoreError> {
        let groups = query.groups(if let Reply::Answer { answer, .. } = reply { Some(answer) } else { None });
        let mut granted = Vec::new();
        for group in groups {
            if self.grant(batch, session, group, now)? {
                granted.push(group);
            }
        }
        Ok(granted)
    }

    /// Grants a lease also during the pause after a change.
    pub(super) fn grant_now(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        group: Group,
        now: Now,
    ) -> Result<bool, StoreError> {
        if self.leases.grant_now(session, group, now.millis).is_none() {
            return Ok(false);
        }
        self.note_leased(batch, session)?;
        Ok(true)
    }

    /// Before a session is told of its first lease or lock it is durable that it may have some.
    pub(super) fn note_leased(&mut self, batch: &mut Batch, session: SessionId) -> Result<(), StoreError> {
        let row = &mut self.sessions.get_mut(&session).expect("there").row;
        if row.leased {
            return Ok(());
        }
        row.leased = true;
        batch.set_session(self.id, session, Some(row))
    }

    /// Notes who has neither leases nor locks any more.
    pub(super) fn sweep(&mut self, batch: &mut Batch, now: Now) -> Result<(), StoreError> {
        self.sweep_at = now.millis + TERM_MS;
        self.leases.expire_all(now.millis);
        for (session, live) in self.sessions.iter_mut().filter(|(_, live)| live.row.leased) {
            if self.leases.count(*session) == 0 && !self.locks.may_have_any(*session) {
                live.row.leased = false;
                batch.set_session(self.id, *session, Some(&live.row))?;
            }
        }
        Ok(())
    }

    /// A session waits for an exclusive lease of these groups.
    pub(super) fn want_exclusive(
        &mut self,
        session: SessionId,
        tag: u64,
        groups: BTreeSet<Group>,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> Refused {
        let live = self.sessions.get_mut(&session).expect("connected");
        if live.wanted.len() >= WANTED_MAX {
            return Some((Refusal::Limit, "too many exclusive leases are waited for"));
        }
        match self.leases.queue(session, groups) {
            Some(ticket) => {
                live.wanted.push(Wanted { tag, ticket, until: now.millis + EXCLUSIVE_WAIT_MS_MAX });
                self.give_exclusive(now, actions);
            }
            None => self.send(session, Reply::Leased { tag, granted: false }, actions),
        }
        None
    }

    /// Gives exclusive leases to those whose turn it is, and tells who has waited for too long.
    pub(super) fn give_exclusive(&mut self, now: Now, actions: &mut Vec<Action>) {
        let given = self.leases.give_exclusive(now.millis);
        let mut answers: BTreeMap<Ticket, bool> =
            given.into_iter().map(|(ticket, given)| (ticket, matches!(given, Given::Until(_)))).collect();
        let wanted = self.sessions.values().flat_map(|live| &live.wanted);
        let over: Vec<Ticket> = wanted.filter(|one| one.until <= now.millis).map(|one| one.ticket).collect();
        for ticket in over {
            if self.leases.leave_queue(ticket).is_some() {
                answers.insert(ticket, false);
            }
        }
        if answers.is_empty() {
            return;
        }
        let mut told: Vec<(Ticket, SessionId, u64)> = Vec::new();
        for (session, live) in &mut self.sessions {
            let of_session = live.wanted.extract_if(.., |one| answers.contains_key(&one.ticket));
            told.extend(of_session.map(|one| (one.ticket, *session, one.tag)));
        }
        told.sort_unstable();
        for (ticket, session, tag) in told {
            self.send(session, Reply::Leased { tag, granted: answers[&ticket] }, actions);
        }
    }
}
