//! One volume: intervals are checked, applied and told to the others; questions are answered; leases, locks and files
//! without a name are kept track of.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bluefs::apply::{apply, Context};
use bluefs::lease::{Leases, MayWrite, Millis, QUIET_MS, TERM_MS};
use bluefs::op::{Effect, Errno, Failure, Value};
use bluefs::query::{answer, Query};
use bluefs::session::{Arrived, Session};
use bluefs::tree::{Changes, Overlay, Space, Stop, Tree};
use bluefs::version::{Checked, Versions};
use bluefs::{Cred, Csn, Group, Ino, Interval, Key, Outcome, SessionId, Step};
use bluefs_store::{Batch, Left, Rows, SessionRow, Staged, StoreError, View, VolumeId};
use bluefs_wire::{Refusal, Reply, Request};

use crate::engine::{Action, ConnectionId, Now};
use crate::figures::VolumeFigures;
use crate::locks::Locks;
use crate::makers::Makers;
use crate::session::{Live, KEPT_MS, LENT_UNUSED_MAX, STAGED_BYTES_MAX, STAGED_OF_ONE_BYTES_MAX, STAGED_ROW_BYTES};
use crate::untold::Untold;
use crate::versions;

mod leasing;
mod locking;
mod nameless;
mod room;

/// Changes of keys that are remembered for CHECK.
const VERSIONS_HELD_MAX: usize = 1_000_000;
/// Keys of one invalidation.
const KEYS_MAX: usize = 100_000;

/// Why a connection is ended.
type Refused = Option<(Refusal, &'static str)>;

/// A volume.
pub struct Volume {
    id: VolumeId,
    csn: Csn,
    versions: Versions,
    untold: Untold,
    leases: Leases,
    sessions: BTreeMap<SessionId, Live>,
    locks: Locks,
    /// Files without a name, and who may have each open.
    orphans: BTreeMap<Ino, BTreeSet<SessionId>>,
    /// Until when at most files that nobody can have open wait for a change to be freed with.
    free_at: Option<Millis>,
    /// Until when no more of them is freed: a turn has freed as much as it may.
    free_not_before: Millis,
    makers: Makers,
    staged: Staged,
    /// When a parked interval is to be tried again, at the latest.
    retry_at: Option<Millis>,
    /// The last session of which one was tried again.
    retried: SessionId,
    /// When it is looked at who has no leases any more.
    sweep_at: Millis,
    /// Connections that are to end for what they had parked.
    refused: Vec<(ConnectionId, Refusal, &'static str)>,
    /// What changes may still have of the store's disk.
    left: Option<Left>,
    /// Whether there is room to free something.
    may_free: bool,
}

/// Where an interval got to.
enum Tried {
    Decided(Outcome),
    /// It waits for leases until then.
    Waits(Millis),
}

impl Volume {
    /// As it is in the store, after a start of the server.
    pub fn load(rows: &impl Rows, id: VolumeId, now: Now) -> Result<Volume, StoreError> {
        let csn = rows.csn(id)?;
        let mut sessions = BTreeMap::new();
        for (session, row) in rows.sessions(id)? {
            let outcomes = Session::recovered(row.acknowledged, rows.outcomes(id, session)?);
            sessions.insert(session, Live::new(row, outcomes, now.millis));
        }
        let everybody: BTreeSet<SessionId> = sessions.keys().copied().collect();
        // Nobody gets a file back of which a part is gone.
        let who = |is_being_freed| if is_being_freed { BTreeSet::new() } else { everybody.clone() };
        let orphans: BTreeMap<Ino, BTreeSet<SessionId>> =
            rows.orphans(id)?.into_iter().map(|(ino, is_being_freed)| (ino, who(is_being_freed))).collect();
        let free_at = orphans.values().any(BTreeSet::is_empty).then_some(now.millis);
        let leased: BTreeSet<SessionId> =
            sessions.iter().filter(|(_, live)| live.row.leased).map(|(session, _)| *session).collect();
        let leases = match leased.is_empty() {
            true => Leases::new(TERM_MS),
            false => Leases::restarted(TERM_MS, now.millis).held_by(leased.clone()),
        };
        let leases = leases.with_quiet(QUIET_MS);
        let (versions, untold) = (Versions::new(csn, VERSIONS_HELD_MAX), Untold::new(csn));
        let (locks, staged) = (Locks::restarted(leased, now.millis, KEPT_MS), Staged::new());
        Ok(Volume {
            id,
            csn,
            versions,
            untold,
            leases,
            sessions,
            locks,
            orphans,
            free_at,
            free_not_before: 0,
            makers: Makers::default(),
            staged,
            retry_at: None,
            retried: SessionId(0),
            sweep_at: now.millis + TERM_MS,
            refused: Vec::new(),
            left: None,
            may_free: true,
        })
    }

    /// Another pause between a change and another session's lease.
    pub fn set_quiet(&mut self, quiet: Millis) {
        self.leases.set_quiet(quiet);
    }

    /// Another term of leases.
    pub fn set_term(&mut self, term: Millis) {
        self.leases.set_term(term);
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// How many sessions of this invitation there are, and how many of them are connected.
    pub fn sessions_of(&self, invitation: u64) -> (usize, usize) {
        let of_one = || self.sessions.values().filter(|live| live.row.invitation == invitation);
        (of_one().count(), of_one().filter(|live| live.connection.is_some()).count())
    }

    /// What it has now, beside what is in the store.
    pub fn figures(&self, name: String, space: Space) -> VolumeFigures {
        VolumeFigures {
            name,
            sessions: self.sessions.len(),
            connected: self.sessions.values().filter(|live| live.connection.is_some()).count(),
            leases: self.sessions.keys().map(|session| self.leases.count(*session)).sum(),
            locks: self.locks.count(),
            nameless: self.orphans.len(),
            waiting: self.sessions.values().filter(|live| !live.parked.is_empty()).count(),
            commits: self.csn.0,
            space,
        }
    }

    /// What is durable of a session.
    pub fn row(&self, session: SessionId) -> Option<&SessionRow> {
        self.sessions.get(&session).map(|live| &live.row)
    }

    /// A new session.
    pub fn begin(&mut self, session: SessionId, row: SessionRow, now: Now) {
        self.sessions.insert(session, Live::new(row, Session::new(), now.millis));
    }

    /// The session has a new connection: its epoch is one more, and what came over the old one and was not decided is
    /// forgotten. Says which connection it had.
    pub fn connect(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        connection: ConnectionId,
        acknowledged: u64,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> Result<Option<ConnectionId>, StoreError> {
        self.forget_pending(session);
        self.leases.forget_recalls(session);
        let live = self.sessions.get_mut(&session).expect("admitted");
        live.row.epoch += 1;
        // What was kept under the old connection counts no more.
        live.told = self.csn;
        let old = live.connection.replace(connection);
        let (epoch, read_only) = (live.row.epoch, live.row.read_only);
        self.acknowledge(batch, session, acknowledged)?;
        let last = self.sessions[&session].session.last();
        batch.set_session(self.id, session, Some(&self.sessions[&session].row))?;
        let (csn, now, lease_ms) = (self.csn, now.wall.0, self.leases.term());
        let welcome = Reply::Welcome { session, epoch, csn, last, now, lease_ms, read_only };
        actions.push(Action::Send(connection, welcome));
        let open = self.orphans.iter().filter(|(_, who)| who.contains(&session)).map(|(ino, _)| *ino);
        actions.extend(open.map(|ino| Action::Send(connection, Reply::Orphan { ino })));
        Ok(old)
    }

    /// The connection of a session is gone.
    pub fn disconnect(&mut self, session: SessionId, connection: ConnectionId, now: Now) {
        let Some(live) = self.sessions.get_mut(&session) else { return };
        if live.connection == Some(connection) {
            live.connection = None;
            live.gone_since = now.millis;
            self.locks.disconnected(session, now.millis + KEPT_MS);
            self.forget_pending(session);
        }
    }

    /// What waits on a connection is sent again on the next one.
    fn forget_pending(&mut self, session: SessionId) {
        self.locks.forget_waiting(session);
        self.leases.forget_writer(session);
        self.staged.retain(|(of, _), _| *of != session);
        if let Some(live) = self.sessions.get_mut(&session) {
            drop(live.parked.take());
            live.staged_bytes = 0;
            live.wanted.drain(..).for_each(|wanted| _ = self.leases.leave_queue(wanted.ticket));
        }
    }

    /// When something is to be done, also if nothing happens.
    pub fn next_turn(&self) -> Option<Millis> {
        let gone =
            self.sessions.values().filter(|live| live.connection.is_none()).map(|live| live.gone_since + KEPT_MS);
        let wanted = self.sessions.values().flat_map(|live| &live.wanted).map(|wanted| {
            let free = self.leases.exclusive_until(wanted.ticket);
            free.map_or(wanted.until, |free| free.min(wanted.until))
        });
        let others = [self.retry_at, self.free_at, self.locks.unknown_until(), self.untold.next_turn()];
        gone.chain(wanted).chain(others.into_iter().flatten()).min()
    }

    /// A message of a session.
    pub fn message(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        message: Request,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> Result<Refused, StoreError> {
        if self.is_asked_what_is_free(&message) {
            self.free(batch, now)?;
        }
        let live = self.sessions.get_mut(&session).expect("connected");
        let changes = matches!(message, Request::Submit { .. } | Request::Stage { .. } | Request::Acknowledge { .. });
        if changes && !live.parked.is_empty() {
            return Ok((!live.parked.push(message)).then_some((Refusal::Limit, "too much waits")));
        }
        self.makers.heard(session, &message);
        match message {
            Request::Hello { .. } => unreachable!("the engine handles it"),
            Request::Ask { tag, cred, query } => {
                let reply = self.answer(batch, tag, &cred, &query)?;
                self.send(session, reply, actions);
            }
            Request::AskLeased { tag, cred, query } => {
                let reply = self.answer(batch, tag, &cred, &query)?;
                let groups = self.grant_for(batch, session, &query, &reply, now)?;
                self.send(session, Reply::Granted { tag, groups }, actions);
                self.send(session, reply, actions);
            }
            Request::Submit { interval } => return self.submit(batch, session, interval, now, actions),
            Request::Stage { id, data } => return Ok(self.stage(session, id, data)),
            Request::Acknowledge { number } => {
                self.acknowledge(batch, session, number)?;
                batch.set_session(self.id, session, Some(&self.sessions[&session].row))?;
            }
            Request::Lease { tag, group } => {
                let granted = self.grant(batch, session, group, now)?;
                self.send(session, Reply::Leased { tag, granted }, actions);
            }
            Request::LeaseNow { tag, group } => {
                let granted = self.grant_now(batch, session, group, now)?;
                self.send(session, Reply::Leased { tag, granted }, actions);
            }
            Request::GiveBack { group } => {
                self.leases.give_back(session, group);
                self.retry(batch, now, actions)?;
            }
            Request::Exclusive { tag, keys } => {
                let groups = keys.iter().map(Key::group).collect();
                return Ok(self.want_exclusive(session, tag, groups, now, actions));
            }
            Request::Lend { tag } => self.lend(batch, session, tag, actions)?,
            Request::Lock { tag, lock } => return self.lock(batch, session, tag, lock, actions),
            Request::Reclaim { tag, lock } => self.reclaim_lock(batch, session, tag, lock, actions)?,
            Request::TestLock { tag, lock } => {
                self.send(session, Reply::Tested { tag, other: self.locks.in_the_way(session, &lock) }, actions);
            }
            Request::CancelLock { tag } => self.cancel_lock(session, tag, actions),
            Request::Released { ino } => self.released(session, ino, now),
            Request::Goodbye {} => self.end(batch, session, now, actions)?,
            Request::GaveUp {} => {
                self.leases.gave_up(session);
                self.locks.reclaimed(session);
                self.give_locks(batch, actions)?;
                self.retry(batch, now, actions)?;
            }
            Request::History { tag } => {
                let reply = versions::history(batch, self.id, tag)?;
                self.send(session, reply, actions);
            }
            Request::Versions { tag, inos } => {
                let mut versions = versions::of(batch, self.id, &inos)?;
                let gone = versions.iter_mut().zip(&inos).filter(|(_, ino)| self.is_unused(**ino));
                gone.for_each(|(version, _)| *version = None);
                self.send(session, Reply::Versions { tag, csn: self.csn, versions }, actions);
            }
            Request::Ping { tag } => self.send(session, Reply::Pong { tag }, actions),
        }
        Ok(None)
    }

    /// Time has passed.
    pub fn tick(&mut self, batch: &mut Batch, now: Now, actions: &mut Vec<Action>) -> Result<(), StoreError> {
        let over: Vec<SessionId> =
            self.sessions.iter().filter(|(_, live)| live.is_over(now.millis)).map(|(id, _)| *id).collect();
        for session in over {
            self.end(batch, session, now, actions)?;
        }
        self.locks.tick(now.millis);
        self.give_locks(batch, actions)?;
        if self.sweep_at <= now.millis {
            self.sweep(batch, now)?;
        }
        if self.free_at.is_some_and(|at| at <= now.millis) {
            self.free(batch, now)?;
        }
        if self.retry_at.is_some_and(|at| at <= now.millis) {
            self.retry(batch, now, actions)?;
        }
        // Writers that were kept out have gone first.
        self.give_exclusive(now, actions);
        self.tell_all(now, actions);
        Ok(())
    }

    /// The session is over, with all that it had.
    pub fn end(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        self.forget_pending(session);
        self.sessions.remove(&session);
        self.locks.end(session);
        self.leases.end(session);
        self.orphans.values_mut().for_each(|who| _ = who.remove(&session));
        batch.set_session(self.id, session, None)?;
        batch.forget_lent(self.id, |session| self.sessions.contains_key(&session))?;
        self.free(batch, now)?;
        self.give_locks(batch, actions)?;
        self.retry(batch, now, actions)
    }

    /// Whatever is said to a session comes after what others have changed before.
    fn send(&mut self, session: SessionId, reply: Reply, actions: &mut Vec<Action>) {
        let Some(live) = self.sessions.get_mut(&session) else { return };
        let Some(connection) = live.connection else { return };
        tell(&self.untold, session, live, self.csn, actions);
        self.makers.told(session, &reply);
        actions.push(Action::Send(connection, reply));
    }

    /// Tells those who have not been told for too long, and forgets what everybody knows.
    fn tell_all(&mut self, now: Now, actions: &mut Vec<Action>) {
        let mut known = self.csn;
        for (session, live) in self.sessions.iter_mut().filter(|(_, live)| live.connection.is_some()) {
            if self.untold.is_due(live.told, now.millis) {
                tell(&self.untold, *session, live, self.csn, actions);
            }
            known = known.min(live.told);
        }
        self.untold.forget(known);
    }

    fn answer(&self, batch: &Batch, tag: u64, cred: &Cred, query: &Query) -> Result<Reply, StoreError> {
        let csn = self.csn;
        if query.keys(None).iter().any(|key| self.is_unused(key.ino())) {
            return Ok(Reply::Error { tag, csn, errno: Errno::STALE });
        }
        match answer(&View::new(batch, self.id, &self.staged), cred, query) {
            Ok(answer) => Ok(Reply::Answer { tag, csn, answer }),
            Err(Stop::Refused(errno)) => Ok(Reply::Error { tag, csn, errno }),
            Err(Stop::Broken(error)) => Err(error),
        }
    }

    fn stage(&mut self, session: SessionId, id: u64, data: Vec<u8>) -> Refused {
        if data.is_empty() {
            return Some((Refusal::Protocol, "nothing is staged"));
        }
        let row = if self.staged.contains_key(&(session, id)) { 0 } else { STAGED_ROW_BYTES };
        let more = data.len() + row;
        let invitation = self.sessions[&session].row.invitation;
        let of_one = self.sessions.values().filter(|live| live.row.invitation == invitation);
        if of_one.map(|live| live.staged_bytes).sum::<usize>() + more > STAGED_OF_ONE_BYTES_MAX {
            return Some((Refusal::Limit, "too much is staged by this invitation"));
        }
        let live = self.sessions.get_mut(&session).expect("connected");
        live.staged_bytes += more;
        if live.staged_bytes > STAGED_BYTES_MAX {
            return Some((Refusal::Limit, "too much is staged"));
        }
        self.staged.entry((session, id)).or_default().extend(data);
        None
    }

    /// An interval is decided, now or before: the contents that it names are gone, whatever has become of it. The next
    /// interval may give its own the same numbers, and contents of the same number are put behind one another.
    fn unstage(&mut self, session: SessionId, interval: &Interval) {
        let live = self.sessions.get_mut(&session).expect("connected");
        for bytes in interval.staged().filter_map(|id| self.staged.remove(&(session, id))) {
            live.staged_bytes -= bytes.len() + STAGED_ROW_BYTES;
        }
    }

    fn acknowledge(&mut self, batch: &mut Batch, session: SessionId, number: u64) -> Result<(), StoreError> {
        let live = self.sessions.get_mut(&session).expect("connected");
        live.session.acknowledge(number);
        live.row.acknowledged = live.session.acknowledged();
        batch.forget_outcomes(self.id, session, live.row.acknowledged)
    }

    fn lend(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        tag: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        let live = self.sessions.get_mut(&session).expect("connected");
        if live.row.read_only {
            self.send(session, Reply::Error { tag, csn: self.csn, errno: Errno::ROFS }, actions);
            return Ok(());
        }
        if live.lent_unused.len() >= LENT_UNUSED_MAX {
            // The session has numbers, and can use those.
            self.send(session, Reply::Error { tag, csn: self.csn, errno: Errno::NOSPC }, actions);
            return Ok(());
        }
        let (group, changes) = {
            let view = View::new(&*batch, self.id, &self.staged);
            let mut overlay = Overlay::new(&view);
            match overlay.lend(session) {
                Ok(group) => (group, overlay.into_changes()),
                Err(Stop::Refused(errno)) => {
                    self.send(session, Reply::Error { tag, csn: self.csn, errno }, actions);
                    return Ok(());
                }
                Err(Stop::Broken(error)) => return Err(error),
            }
        };
        batch.write(self.id, &changes)?;
        self.sessions.get_mut(&session).expect("connected").lent_unused.insert(group);
        self.send(session, Reply::Lent { tag, group }, actions);
        Ok(())
    }

    fn submit(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        interval: Interval,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> Result<Refused, StoreError> {
        let number = interval.number;
        let live = &self.sessions[&session];
        let outcome = match live.session.arrived(&interval) {
            Arrived::Again(outcome) => outcome,
            Arrived::Impossible => return Ok(Some((Refusal::Protocol, "an interval with a number that cannot be"))),
            // A client that comes again acknowledges what it has heard until then.
            Arrived::TooMany => return Ok(Some((Refusal::Limit, "too many outcomes are not acknowledged"))),
            Arrived::Next => match self.decide(batch, session, &interval, now, actions)? {
                Tried::Decided(outcome) => {
                    self.leases.forget_writer(session);
                    self.sessions.get_mut(&session).expect("connected").session.decided(number, outcome.clone());
                    outcome
                }
                Tried::Waits(until) => {
                    self.retry_at = Some(self.retry_at.map_or(until, |at| at.min(until)));
                    let live = self.sessions.get_mut(&session).expect("connected");
                    live.parked.put_back(Request::Submit { interval });
                    return Ok(None);
                }
            },
        };
        self.unstage(session, &interval);
        self.send(session, Reply::Decided { number, outcome }, actions);
        Ok(None)
    }

    /// CHECK and APPLY.
    fn decide(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        interval: &Interval,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> Result<Tried, StoreError> {
        if self.free_at.is_some() {
            // Its room counts, and it is in the same flush.
            self.free(batch, now)?;
        }
        let live = &self.sessions[&session];
        let failed = |failure| Ok(Tried::Decided(Outcome::Failed(failure)));
        if let Some(number) = live.session.failed_dependency(interval) {
            return failed(Failure::Dependency(number));
        }
        let view = View::new(&*batch, self.id, &self.staged);
        match self.versions.check(session, interval.base, &interval.reads) {
            Checked::Valid(_) => {}
            Checked::Conflict(keys) => return failed(Failure::Conflict(values(&view, keys)?)),
            Checked::TooOld => return failed(Failure::TooOld),
        }
        let is_gone = |step: &Step| step.change.inos().any(|ino| self.is_unused(ino));
        if let Some(step) = interval.steps.iter().position(is_gone) {
            return failed(Failure::Refused { step: step as u32, errno: Errno::STALE });
        }
        let context = Context { session, read_only: live.row.read_only, now: now.wall };
        let applied = match apply(&view, interval, context)? {
            Ok(applied) => applied,
            Err(failure) => return failed(failure),
        };
        if self.has_no_room_for(&view, &applied.0, batch.bytes())? {
            let step = interval.steps.len().saturating_sub(1) as u32;
            return failed(Failure::Refused { step, errno: Errno::NOSPC });
        }
        let groups: BTreeSet<Group> = applied.0.keys.iter().map(Key::group).collect();
        match self.leases.may_write(session, &groups, now.millis) {
            MayWrite::Now => {}
            MayWrite::Wait { until, recall } => {
                recall.into_iter().for_each(|(who, group)| self.send(who, Reply::Recall { group }, actions));
                return Ok(Tried::Waits(until));
            }
        }
        let outcome = self.commit(batch, session, interval.number, applied, now, actions)?;
        Ok(Tried::Decided(outcome))
    }

    fn commit(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        number: u64,
        (changes, effects): (Changes, Vec<Effect>),
        now: Now,
        actions: &mut Vec<Action>,
    ) -> Result<Outcome, StoreError> {
        if !changes.keys.is_empty() {
            self.csn = Csn(self.csn.0 + 1);
            batch.set_csn(self.id, self.csn)?;
            versions::note(batch, self.id, &changes, self.csn)?;
        }
        batch.write(self.id, &changes)?;
        self.makers.made(session, &effects);
        let outcome = Outcome::Committed { csn: self.csn, effects };
        batch.set_outcome(self.id, session, number, &outcome)?;
        let live = self.sessions.get_mut(&session).expect("connected");
        changes.lent.keys().for_each(|group| _ = live.lent_unused.remove(group));
        self.invalidate(session, number, &changes, now, actions);
        for ino in changes.orphans {
            let is_alone = self.makers.removed(session, ino);
            let who: BTreeSet<SessionId> =
                if is_alone { [session].into() } else { self.sessions.keys().copied().collect() };
            who.iter().for_each(|who| self.send(*who, Reply::Orphan { ino }, actions));
            self.orphans.insert(ino, who);
        }
        if !changes.keys.is_empty() {
            self.versions.commit(session, self.csn, changes.keys);
        }
        Ok(outcome)
    }

    /// Tells who has changed these keys what they are now. The others are told later.
    fn invalidate(&mut self, by: SessionId, number: u64, changes: &Changes, now: Now, actions: &mut Vec<Action>) {
        let keys: Vec<Key> = changes.keys.iter().cloned().collect();
        if !keys.is_empty() {
            self.untold.add(self.csn, by, keys.clone(), now.millis);
        }
        let inodes = changes.inodes.iter().map(|(ino, inode)| (*ino, inode.clone())).collect();
        let names = changes.entries.iter().map(|((dir, name), entry)| (*dir, name.clone(), *entry)).collect();
        self.send(by, Reply::Changed { number, csn: self.csn, keys, inodes, names }, actions);
    }

    /// Tries parked intervals again; in the next turn those for which there is no room in this one.
    fn retry(&mut self, batch: &mut Batch, now: Now, actions: &mut Vec<Action>) -> Result<(), StoreError> {
        self.retry_at = None;
        // Whoever came last in the turn before comes last: nobody waits for all that others park meanwhile.
        let behind = self.sessions.range((Bound::Excluded(self.retried), Bound::Unbounded));
        let all = behind.chain(self.sessions.range(..=self.retried));
        let waiting: Vec<SessionId> =
            all.filter(|(_, live)| !live.parked.is_empty()).map(|(session, _)| *session).collect();
        for session in waiting {
            let parked = self.sessions.get_mut(&session).expect("there").parked.take();
            for message in parked {
                if batch.is_full() {
                    self.retry_at = Some(now.millis);
                    self.sessions.get_mut(&session).expect("there").parked.push(message);
                    continue;
                }
                self.retried = session;
                if let Some((why, text)) = self.message(batch, session, message, now, actions)? {
                    // What came behind it may need it.
                    self.forget_pending(session);
                    let connection = self.sessions[&session].connection;
                    self.refused.extend(connection.map(|connection| (connection, why, text)));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes the connections that are to be refused.
    pub fn take_refused(&mut self) -> Vec<(ConnectionId, Refusal, &'static str)> {
        std::mem::take(&mut self.refused)
    }
}

/// Tells a session which keys others have changed since it was told last.
fn tell(untold: &Untold, session: SessionId, live: &mut Live, csn: Csn, actions: &mut Vec<Action>) {
    let Some(connection) = live.connection.filter(|_| live.told < csn) else { return };
    let keys: Vec<Key> = untold.keys(session, live.told).into_iter().cloned().collect();
    live.told = csn;
    let parts = keys.chunks(KEYS_MAX).map(|keys| Reply::Invalidate { csn, keys: keys.to_vec() });
    actions.extend(parts.map(|reply| Action::Send(connection, reply)));
}

/// The new values of keys that were changed; unknown are those for which there is no room in a reply.
fn values<T: Tree>(tree: &T, keys: Vec<Key>) -> Result<Vec<(Key, Value)>, T::Error> {
    const ROOM_BYTES: usize = 1 << 20;
    let mut room = ROOM_BYTES;
    let value = |key: Key| {
        let value = match &key {
            _ if room == 0 => Value::Unknown,
            Key::Name(dir, name) => Value::Entry(tree.entry(*dir, name)?.map(|entry| entry.ino)),
            other => Value::Inode(tree.inode(other.ino())?),
        };
        let target = if let Value::Inode(Some(inode)) = &value { inode.target.len() } else { 0 };
        room = room.saturating_sub(std::mem::size_of::<Value>() + target);
        Ok((key, value))
    };
    keys.into_iter().map(value).collect()
}
