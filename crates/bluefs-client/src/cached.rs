//! Questions that the cache may answer, reading ahead, and changes.

use std::collections::BTreeSet;
use std::time::Duration;

use bluefs::op::{Effect, Failure, Inode, SetAttr, BLOCK_BYTES, STEP_BYTES_MAX};
use bluefs::query::{Answer, Query, NAMES_MAX};
use bluefs::{Change, Cred, Csn, Errno, Ino, Interval, Key, Kind, Outcome, Runs, SessionId, Step};
use bluefs_wire::{Reply, Request};

use crate::ahead::SMALL_BYTES;
use crate::cache::Said;
use crate::client::{Asked, Client, GivesUp};
use crate::state::State;
use crate::wakers::Event;

/// Groups that are leased one by one for an answer that is known; with more of them the question is asked again.
const LEASES_MAX: usize = 8;
/// How long whoever is refused a lease waits before asking again.
const REFUSED_PAUSE: Duration = Duration::from_millis(2);
/// EPROTO.
const PROTOCOL: Errno = Errno(71);

/// How contents come that were not known a moment ago.
enum Next {
    Known(Result<Answer, Errno>),
    OnItsWay(u64),
    Asked(u64),
}

/// What a change has done.
#[derive(Debug)]
pub struct Told {
    /// Its effect.
    pub effect: Effect,
    inodes: Vec<(Ino, Option<Inode>)>,
}

impl Told {
    /// Inodes that it has changed, as far as that was told.
    pub fn changed(&self) -> impl Iterator<Item = Ino> + '_ {
        self.inodes.iter().map(|(ino, _)| *ino)
    }

    /// Inodes that have lost their last name, as far as that was told.
    pub fn nameless(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        let told = self.inodes.iter().filter_map(|(ino, inode)| Some((*ino, inode.as_ref()?)));
        told.filter(|(_, inode)| inode.nlink == 0)
    }

    /// An inode as it was when the change was made, if it was told.
    pub fn inode(&mut self, ino: Ino) -> Option<Inode> {
        self.inodes.iter_mut().find(|(told, _)| *told == ino)?.1.take()
    }
}

impl Client {
    /// An answer that is true now: known under leases, or asked for.
    pub fn look(&self, cred: &Cred, query: Query, gives_up: GivesUp) -> Result<Answer, Errno> {
        if let Some(known) = self.known(cred, &query, gives_up) {
            if let (Query::Lookup { dir, name }, Ok(Answer::Inode(ino, _))) = (&query, &known) {
                self.state().ahead.found(*ino, *dir, name);
            }
            return known;
        }
        let looked = match &query {
            Query::Lookup { dir, name } => Some((*dir, name.clone())),
            _ => None,
        };
        let asked = self.begin(|state| {
            let tag = state.ask(|tag| Request::AskLeased { tag, cred: cred.clone(), query });
            if let Some((dir, _)) = &looked {
                state.list_ahead(cred, *dir);
            }
            tag
        })?;
        match self.reply(asked, gives_up)? {
            Reply::Answer { answer, .. } => {
                if let (Some((dir, name)), Answer::Inode(ino, _)) = (looked, &answer) {
                    self.state().ahead.found(*ino, dir, &name);
                }
                Ok(answer)
            }
            _ => Err(PROTOCOL),
        }
    }

    /// An answer that is known, and for how long whoever is told may go on saying so: [`Front`](crate::Front) is told
    /// if it ends before.
    pub fn known_for(&self, cred: &Cred, query: &Query) -> Option<(Result<Answer, Errno>, Duration)> {
        self.known_at(cred, query).map(|(_, known, sure)| (known, sure))
    }

    /// The same, and of which state it is an answer.
    pub fn known_at(&self, cred: &Cred, query: &Query) -> Option<(Csn, Result<Answer, Errno>, Duration)> {
        let mut state = self.state();
        let (known, sure) = state.known_for(cred, query)?;
        if let (Query::Lookup { dir, name }, Ok(Answer::Inode(ino, _))) = (query, &known) {
            state.ahead.found(*ino, *dir, name);
        }
        Some((state.csn, known, sure))
    }

    /// `pread` that is true now.
    pub fn read(&self, cred: &Cred, ino: Ino, offset: u64, len: u32, gives_up: GivesUp) -> Result<Vec<u8>, Errno> {
        let len = len.min(STEP_BYTES_MAX as u32);
        let end = offset.saturating_add(u64::from(len));
        let query = Query::Read { ino, offset, len };
        // Whole blocks can be kept.
        let (mut from, mut to) = (offset / BLOCK_BYTES * BLOCK_BYTES, end.next_multiple_of(BLOCK_BYTES));
        if to - from > STEP_BYTES_MAX as u64 {
            (from, to) = (offset, end);
        }
        let (mut waited, mut is_loaded) = (None, false);
        let tag = loop {
            if let Some(known) = self.known(cred, &query, gives_up) {
                self.state().read_ahead(cred, ino, offset, end);
                return bytes(known?);
            }
            if !std::mem::replace(&mut is_loaded, true) && self.load(cred, ino, from, to, gives_up) {
                continue;
            }
            // One look under one lock: what was on its way may have arrived since.
            let next = self.begin(|state| {
                if let Said::Known(known, _) = state.cached(cred, &query) {
                    return Next::Known(known);
                }
                if let Some(tag) = state.ahead.fetching(ino, offset, end).filter(|tag| waited != Some(*tag)) {
                    return Next::OnItsWay(tag);
                }
                let query = Query::Read { ino, offset: from, len: (to - from) as u32 };
                let tag = state.ask(|tag| Request::AskLeased { tag, cred: cred.clone(), query });
                state.read_ahead(cred, ino, offset, end);
                state.read_neighbours(cred, ino);
                Next::Asked(tag)
            })?;
            match next {
                Next::Known(known) => return bytes(known?),
                Next::OnItsWay(tag) => {
                    waited = Some(tag);
                    let arrived = |state: &mut State| (!state.ahead.is_fetching(tag)).then_some(Ok(()));
                    self.wait(Event::Ahead(tag), gives_up, arrived)?;
                }
                Next::Asked(tag) => break tag,
            }
        };
        let Reply::Answer { answer, .. } = self.reply(tag, gives_up)? else { return Err(PROTOCOL) };
        let mut bytes = bytes(answer)?;
        bytes.truncate((end - from) as usize);
        Ok(bytes.split_off(((offset - from) as usize).min(bytes.len())))
    }

    /// Has contents known under leases, at least for a moment: [`Client::known_for`] says what they are. If others
    /// write the lease is asked for again and again.
    pub fn hold(&self, cred: &Cred, ino: Ino, offset: u64, len: u32, gives_up: GivesUp) -> Result<(), Errno> {
        self.wait(Event::Any, gives_up, |state| match state.dead {
            Some(errno) => Some(Err(errno)),
            None => (!state.cache.is_changing(ino)).then_some(Ok(())),
        })?;
        let query = Query::Read { ino, offset, len };
        let is_sure = |query: &Query| self.known_for(cred, query).is_some_and(|(_, sure)| !sure.is_zero());
        if is_sure(&query) {
            return Ok(());
        }
        if is_sure(&Query::Inode(ino)) && self.state().cached(cred, &query) == Said::Unknown {
            return self.read(cred, ino, offset, len, gives_up).map(|_| ());
        }
        let group = ino.group();
        let asked = |tag| Asked { client: self, tag };
        let lease = asked(self.begin(|state| state.ask(|tag| Request::LeaseNow { tag, group }))?);
        // Behind the request for the lease, so that nothing changes in between. How long the file is is known, too.
        let inode = self.begin(|state| {
            let (cred, query) = (cred.clone(), Query::Inode(ino));
            state.cache.inode(ino).is_none().then(|| state.ask(|tag| Request::AskLeased { tag, cred, query }))
        })?;
        let inode = inode.map(asked);
        if self.state().cached(cred, &query) == Said::Unknown {
            self.read(cred, ino, offset, len, gives_up)?;
        }
        if let Some(inode) = inode {
            self.reply(inode.tag, gives_up)?;
        }
        if !matches!(self.reply(lease.tag, gives_up)?, Reply::Leased { granted: true, .. }) {
            // Somebody waits to write, which goes on as soon as all have given their leases back.
            std::thread::sleep(REFUSED_PAUSE);
        }
        Ok(())
    }

    /// Carries out one change. Says what it has made of inodes, as far as that was told.
    pub fn change_told(&self, cred: &Cred, mut change: Change, gives_up: GivesUp) -> Result<Told, Errno> {
        // Numbers of one's own keep apart what several clients create: leases are on groups of numbers.
        let mut own = None;
        if let Change::Create { ino, .. } = &mut change {
            own = self.state().take_ino();
            *ino = own.map(|(ino, _)| ino);
        }
        let lent_to = own.iter().map(|(_, session)| *session).collect();
        match self.change_lent(cred, vec![change], (Csn(0), vec![]), &lent_to, gives_up)? {
            Ok(told) => Ok(told),
            Err(failure) => {
                if let Some((ino, session)) = own {
                    self.state().put_ino(ino, session);
                }
                Err(errno_of(&failure))
            }
        }
    }

    /// Makes something with these rights that belongs to another user.
    pub fn create_for(&self, cred: &Cred, mut create: Change, uid: u32, gives_up: GivesUp) -> Result<Told, Errno> {
        const SET_IDS: u16 = 0o6000;
        let (number, lent_to) = self.borrow_ino(gives_up)?;
        let Change::Create { ino, kind, mode, .. } = &mut create else { return Err(Errno::INVAL) };
        *ino = Some(number);
        // Another owner takes them away, but for those of directories.
        let mode = (*kind != Kind::Dir && *mode & SET_IDS != 0).then_some(*mode);
        let set = SetAttr { uid: Some(uid), mode, ..SetAttr::default() };
        let changes = vec![create, Change::SetAttr { ino: number, set }];
        match self.change_lent(cred, changes, (Csn(0), vec![]), &BTreeSet::from([lent_to]), gives_up)? {
            Ok(told) => Ok(Told { effect: Effect::Created(number), ..told }),
            Err(failure) => {
                self.state().put_ino(number, lent_to);
                Err(errno_of(&failure))
            }
        }
    }

    /// Carries out changes, all or none, if no other session has changed any of these keys since that state. Tells the
    /// effect of the last one.
    pub fn change_since(
        &self,
        cred: &Cred,
        changes: Vec<Change>,
        (base, reads): (Csn, Vec<Key>),
        gives_up: GivesUp,
    ) -> Result<Result<Told, Failure>, Errno> {
        self.change_lent(cred, changes, (base, reads), &BTreeSet::new(), gives_up)
    }

    /// The same with numbers that were lent to these sessions.
    fn change_lent(
        &self,
        cred: &Cred,
        changes: Vec<Change>,
        (base, reads): (Csn, Vec<Key>),
        lent_to: &BTreeSet<SessionId>,
        gives_up: GivesUp,
    ) -> Result<Result<Told, Failure>, Errno> {
        let steps = changes.into_iter().map(|change| Step { cred: 0, time: None, change }).collect();
        let creds = vec![cred.clone()];
        let interval = Interval { number: 0, base, after: Runs::new(), reads, creds, steps };
        let Some(number) = self.send_interval(interval, Vec::new(), lent_to)? else { return Ok(Err(Failure::TooOld)) };
        let (outcome, inodes) = self.outcome(number, gives_up, |state| {
            let (outcome, inodes) = state.take_outcome(number)?;
            Some(outcome.map(|outcome| (outcome, inodes)))
        })?;
        Ok(match outcome {
            Outcome::Committed { mut effects, .. } => Ok(Told { effect: effects.pop().ok_or(PROTOCOL)?, inodes }),
            Outcome::Failed(failure) => Err(failure),
        })
    }

    /// What the cache says, with leases that are asked for if only these are missing.
    fn known(&self, cred: &Cred, query: &Query, gives_up: GivesUp) -> Option<Result<Answer, Errno>> {
        let mut asked = Vec::new();
        {
            let mut state = self.state();
            match state.cached(cred, query) {
                Said::Known(known, _) => return Some(known),
                Said::Lacks(groups) if groups.len() <= LEASES_MAX && state.output.is_some() => {
                    let mut ask = |group| state.ask(|tag| Request::Lease { tag, group });
                    asked.extend(groups.into_iter().map(|group| Asked { client: self, tag: ask(group) }));
                }
                _ => return None,
            }
        }
        for one in asked {
            if let Err(errno) = self.reply(one.tag, gives_up) {
                return Some(Err(errno));
            }
        }
        match self.state().cached(cred, query) {
            Said::Known(known, _) => Some(known),
            _ => None,
        }
    }
}

/// What a program is told.
fn errno_of(failure: &Failure) -> Errno {
    match failure {
        Failure::Refused { errno, .. } => *errno,
        _ => Errno::STALE,
    }
}

fn bytes(answer: Answer) -> Result<Vec<u8>, Errno> {
    match answer {
        Answer::Bytes(bytes) => Ok(bytes),
        _ => Err(PROTOCOL),
    }
}

impl State {
    /// Reads on where somebody reads.
    fn read_ahead(&mut self, cred: &Cred, ino: Ino, offset: u64, end: u64) {
        let Some(size) = self.cache.inode(ino).map(|inode| inode.size) else { return };
        if self.cache.leased_until(ino.group()).is_none() {
            return;
        }
        for (from, to) in self.ahead.read(ino, (offset, end), size, self.room_ahead()) {
            let blocks = from / BLOCK_BYTES..to.min(size).div_ceil(BLOCK_BYTES);
            if !blocks.into_iter().all(|index| self.is_near(ino, index)) {
                self.fetch(cred, ino, from, to);
            }
        }
    }

    fn fetch(&mut self, cred: &Cred, ino: Ino, from: u64, to: u64) {
        let query = Query::Read { ino, offset: from, len: (to - from) as u32 };
        if let Some(tag) = self.ask_ahead(|tag| Request::AskLeased { tag, cred: cred.clone(), query }) {
            self.ahead.fetch(tag, ino, from, to);
        }
    }

    /// Reads the small files behind this one, in the order of their names.
    fn read_neighbours(&mut self, cred: &Cred, ino: Ino) {
        if self.cache.inode(ino).is_none_or(|inode| inode.size > SMALL_BYTES) {
            return;
        }
        let Some((dir, name, count)) = self.ahead.neighbours(ino) else { return };
        let count = count.min((self.room_ahead() / SMALL_BYTES) as usize);
        if self.cache.leased_until(dir.group()).is_none() {
            return;
        }
        let fetching = self.ahead.fetching_inos();
        let next = self.cache.names_behind(dir, &name).take(count);
        let wanted = |ino: &Ino| {
            let small = |inode: &Inode| inode.kind == Kind::File && inode.size > 0 && inode.size <= SMALL_BYTES;
            !fetching.contains(ino) && !self.is_near(*ino, 0) && self.cache.inode(*ino).is_some_and(small)
        };
        let found: Vec<_> = next.map(|(name, ino)| (name.clone(), ino)).filter(|(_, ino)| wanted(ino)).collect();
        self.output.iter().for_each(|output| output.hold());
        for (name, ino) in found {
            self.ahead.found(ino, dir, &name);
            self.fetch(cred, ino, 0, SMALL_BYTES);
        }
        self.output.iter().for_each(|output| output.release());
    }

    /// Reads a directory of which several names were looked up.
    fn list_ahead(&mut self, cred: &Cred, dir: Ino) {
        let leased = self.cache.leased_until(dir.group()).is_some();
        if leased && self.room_ahead() > 0 && !self.cache.is_complete(dir) && self.ahead.missed(dir) {
            let query = Query::ListPlus { dir, after: None, max: NAMES_MAX as u32 };
            self.ask_ahead(|tag| Request::AskLeased { tag, cred: cred.clone(), query });
        }
    }
}
