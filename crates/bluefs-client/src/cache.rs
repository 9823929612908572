//! What a session knows of its volume, so that it need not ask again.
//!
//! What is here is true at the point of the server's stream that was received: answers come in, and what others or the
//! session itself change goes out or is replaced, in the order of that stream. It may be *used* for a group only under
//! a lease: then nothing has changed behind that point. The answers are made by the same rules as the server's
//! ([`bluefs::query::answer`]), rights included.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bluefs::lease::{ClientLeases, Millis};
use bluefs::op::{Content, Effect, Inode, Lent, BLOCK_BYTES, FILE_BYTES_MAX, STEP_BYTES_MAX};
use bluefs::query::{answer, Answer, Query};
use bluefs::tree::{Entry, Space, Stop, Tree};
use bluefs::{Change, Cred, Csn, Errno, Group, Ino, Interval, Key, Kind, Name, SessionId};

use crate::sent::{Sent, Touched};

/// Blocks of contents that are kept, at most: 256 MiB.
const BLOCKS_MAX: usize = 16_384;
/// Inodes and names that are kept, at most.
const FACTS_MAX: usize = 1_000_000;

/// The names of a directory, as far as they are known.
#[derive(Debug, Default)]
struct Names {
    known: BTreeMap<Name, Option<Entry>>,
    /// Whether `known` has every name that is there.
    complete: bool,
    /// A listing has come this far.
    listed: Option<Name>,
}

#[derive(Debug, Default)]
struct Xattrs {
    known: BTreeMap<Name, Option<Vec<u8>>>,
    /// Every name that is there.
    names: Option<Vec<Name>>,
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    used: u64,
}

/// What is known, and what of it may be used.
#[derive(Debug, Default)]
pub struct Cache {
    leases: ClientLeases,
    /// How long the last one lasts.
    term: Millis,
    inodes: BTreeMap<Ino, Inode>,
    names: BTreeMap<Ino, Names>,
    names_count: usize,
    xattrs: BTreeMap<Ino, Xattrs>,
    blocks: BTreeMap<(Ino, u64), Block>,
    /// Since when contents have not changed, of files of which it was asked.
    versions: BTreeMap<Ino, Csn>,
    /// Files of which intervals have changed the contents whose outcomes come next.
    unsettled: BTreeMap<u64, BTreeSet<Ino>>,
    /// Intervals of the session's own of which nothing was heard yet.
    sent: Sent,
    /// Blocks by when they were used.
    order: BTreeMap<u64, (Ino, u64)>,
    clock: u64,
    /// When a group was used.
    used: BTreeMap<Group, u64>,
    /// Leases that were used, and end soon.
    aging: BTreeSet<Group>,
}

/// What the cache says to a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// The answer, and until when it is one.
    Known(Result<Answer, Errno>, Millis),
    /// It would be known with leases on these groups.
    Lacks(BTreeSet<Group>),
    /// Nothing.
    Unknown,
}

impl Cache {
    /// Nothing is known any more, but what was sent.
    pub fn clear(&mut self) {
        *self = Cache { sent: std::mem::take(&mut self.sent), ..Cache::default() };
    }

    /// An interval is about to be sent: see [`Sent::announce`].
    pub fn announce(&mut self, interval: &Interval) -> (u64, Arc<Touched>) {
        let names = &self.names;
        self.sent.announce(interval, |dir, name| meaning(names, dir, name))
    }

    /// It was sent, or never will be.
    pub fn withdraw(&mut self, announced: u64) {
        self.sent.withdraw(announced);
    }

    /// An interval is sent.
    pub fn begun(&mut self, interval: &Interval) {
        let names = &self.names;
        self.sent.begun(interval, |dir, name| meaning(names, dir, name));
    }

    /// A lease was granted; the request was sent at `asked`.
    pub fn granted(&mut self, group: Group, asked: Millis, term: Millis) {
        self.term = term;
        self.leases.granted(group, asked, term);
    }

    /// A lease is given back.
    pub fn recalled(&mut self, group: Group) {
        self.leases.recalled(group);
    }

    /// Whether there is a lease, and until when.
    pub fn leased_until(&self, group: Group) -> Option<Millis> {
        self.leases.until(group)
    }

    /// How many leases there are.
    pub fn lease_count(&self, now: Millis) -> usize {
        self.leases.count(now)
    }

    /// Answers, if it can.
    pub fn answer(&mut self, cred: &Cred, query: &Query, now: Millis) -> Said {
        let (lacks, aging, touched) = (RefCell::default(), RefCell::default(), RefCell::default());
        let view = View { cache: self, now, until: Cell::new(Millis::MAX), lacks, aging, touched };
        let said = match answer(&view, cred, query) {
            Ok(answer) => Ok(answer),
            Err(Stop::Refused(errno)) => Err(errno),
            Err(Stop::Broken(Unknown)) => return Said::Unknown,
        };
        let View { until, lacks, aging, touched, .. } = view;
        if self.sent.may_change(query, said.as_ref().ok()) {
            return Said::Unknown;
        }
        let (lacks, aging, touched) = (lacks.into_inner(), aging.into_inner(), touched.into_inner());
        self.aging.extend(aging);
        touched.into_iter().for_each(|at| self.touch(at));
        if lacks.is_empty() {
            Said::Known(said, until.get())
        } else {
            Said::Lacks(lacks)
        }
    }

    /// Leases to be asked for again, before they end.
    pub fn take_aging(&mut self) -> BTreeSet<Group> {
        std::mem::take(&mut self.aging)
    }

    /// The server has answered.
    pub fn learn(&mut self, query: &Query, answer: Result<&Answer, Errno>) {
        match (query, answer) {
            (Query::Inode(_), Ok(Answer::Inode(ino, inode))) => self.put_inode(*ino, inode.clone()),
            (Query::Lookup { dir, name }, Ok(Answer::Inode(ino, inode))) => {
                self.put_name(*dir, name, Some(Entry { ino: *ino, kind: inode.kind }));
                self.put_inode(*ino, inode.clone());
            }
            (Query::Lookup { dir, name }, Err(Errno::NOENT)) => self.put_name(*dir, name, None),
            (Query::List { dir, after, .. }, Ok(Answer::Names { names, end })) => {
                let names = names.iter().map(|(name, ino, kind)| (name, Entry { ino: *ino, kind: *kind }));
                self.listed(*dir, after.as_ref(), names, *end);
            }
            (Query::ListPlus { dir, after, .. }, Ok(Answer::Entries { entries, end })) => {
                let names = entries.iter().map(|(name, ino, inode)| (name, Entry { ino: *ino, kind: inode.kind }));
                self.listed(*dir, after.as_ref(), names, *end);
                entries.iter().for_each(|(_, ino, inode)| self.put_inode(*ino, inode.clone()));
            }
            (Query::Read { ino, offset, len }, Ok(Answer::Bytes(bytes))) => self.put_read(*ino, *offset, *len, bytes),
            (Query::Xattr { ino, name }, Ok(Answer::Bytes(value))) => {
                self.xattrs.entry(*ino).or_default().known.insert(name.clone(), Some(value.clone()));
            }
            (Query::Xattr { ino, name }, Err(Errno::NODATA)) => {
                self.xattrs.entry(*ino).or_default().known.insert(name.clone(), None);
            }
            (Query::Xattrs(ino), Ok(Answer::Xattrs(names))) => {
                self.xattrs.entry(*ino).or_default().names = Some(names.clone());
            }
            _ => {}
        }
        self.make_room();
    }

    /// Others have changed this.
    pub fn forget(&mut self, key: &Key) {
        match key {
            Key::Data(ino) => {
                self.inodes.remove(ino);
                self.versions.remove(ino);
                self.forget_blocks(*ino);
            }
            Key::Attr(ino) | Key::Parent(ino) => _ = self.inodes.remove(ino),
            Key::Xattr(ino) => _ = self.xattrs.remove(ino),
            Key::Locks(_) => {}
            Key::Name(dir, name) => {
                if let Some(names) = self.names.get_mut(dir) {
                    self.names_count -= usize::from(names.known.remove(name).is_some());
                    (names.complete, names.listed) = (false, None);
                }
            }
            Key::Listing(dir) => {
                self.inodes.remove(dir);
                if let Some(names) = self.names.get_mut(dir) {
                    (names.complete, names.listed) = (false, None);
                }
            }
        }
    }

    /// The session itself has changed this. Contents follow with the outcome ([`Cache::committed`]). Until
    /// [`Cache::settled`] nothing is said of contents that it has changed: the new size is known, and they are not.
    pub fn changed(
        &mut self,
        number: u64,
        keys: &[Key],
        inodes: &[(Ino, Option<Inode>)],
        names: &[(Ino, Name, Option<Entry>)],
    ) {
        let data = keys.iter().filter_map(|key| if let Key::Data(ino) = key { Some(*ino) } else { None });
        self.unsettled.insert(number, data.collect());
        self.sent.heard(number);
        for key in keys {
            match key {
                Key::Data(ino) => {
                    self.inodes.remove(ino);
                    self.versions.remove(ino);
                }
                Key::Name(dir, _) | Key::Listing(dir) => {
                    self.inodes.remove(dir);
                    if let Some(names) = self.names.get_mut(dir) {
                        names.listed = None;
                    }
                }
                other => self.forget(other),
            }
        }
        for (dir, name, entry) in names {
            self.put_name(*dir, name, *entry);
        }
        for (ino, inode) in inodes {
            match inode {
                Some(inode) => {
                    self.put_inode(*ino, inode.clone());
                    // Only who creates changes the parent and the data of one: nothing else is in it than was told.
                    if keys.contains(&Key::Data(*ino)) && keys.contains(&Key::Parent(*ino)) {
                        if inode.kind == Kind::Dir {
                            self.names.entry(*ino).or_default().complete = true;
                        }
                        if !keys.contains(&Key::Xattr(*ino)) {
                            self.xattrs.entry(*ino).or_default().names = Some(Vec::new());
                        }
                    }
                }
                None => {
                    self.inodes.remove(ino);
                    self.versions.remove(ino);
                    self.forget_blocks(*ino);
                    self.xattrs.remove(ino);
                    self.forget_names(*ino);
                }
            }
        }
        self.make_room();
    }

    /// Whether it was told on this connection what an interval of the session's own has changed.
    pub fn was_told(&self, number: u64) -> bool {
        self.unsettled.contains_key(&number)
    }

    /// An interval of the session's own is committed: what it has done to contents.
    pub fn committed(&mut self, interval: &Interval, effects: &[Effect]) {
        for (step, effect) in interval.steps.iter().zip(effects) {
            match (&step.change, effect) {
                (
                    Change::Write { ino, content: Content::Inline(data), .. }
                    | Change::Append { ino, content: Content::Inline(data) },
                    Effect::Wrote { offset, size },
                ) => {
                    let offset = if let Change::Write { offset, .. } = &step.change { *offset } else { *offset };
                    self.patch(*ino, offset, data, *size);
                }
                (
                    Change::Write { ino, .. }
                    | Change::Append { ino, .. }
                    | Change::Punch { ino, .. }
                    | Change::Allocate { ino, .. },
                    _,
                ) => self.forget_blocks(*ino),
                (Change::SetAttr { ino, set }, _) if set.size.is_some() => self.forget_blocks(*ino),
                _ => {}
            }
        }
        self.make_room();
    }

    /// The outcome of an interval has arrived.
    pub fn settled(&mut self, number: u64) {
        self.unsettled.remove(&number);
        self.sent.heard(number);
    }

    /// Whether the session itself is changing contents, and has not heard what has become of that.
    pub fn is_changing(&self, ino: Ino) -> bool {
        let is_unsettled = self.unsettled.values().any(|inos| inos.contains(&ino));
        is_unsettled || self.sent.may_change(&Query::Read { ino, offset: 0, len: 0 }, None)
    }

    /// An inode, whether or not there is a lease.
    pub fn inode(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    /// Names behind this one in a directory that is known completely, with what they mean.
    pub fn names_behind<'c>(&'c self, dir: Ino, name: &Name) -> impl Iterator<Item = (&'c Name, Ino)> {
        let names = self.names.get(&dir).filter(|names| names.complete);
        let range = (Bound::Excluded(name.clone()), Bound::Unbounded);
        names
            .into_iter()
            .flat_map(move |names| names.known.range(range.clone()))
            .filter_map(|(n, e)| Some((n, (*e)?.ino)))
    }

    /// Whether every name of a directory is known.
    pub fn is_complete(&self, dir: Ino) -> bool {
        self.names.get(&dir).is_some_and(|names| names.complete)
    }

    /// The server has said since when contents have not changed.
    pub fn learn_versions(&mut self, inos: &[Ino], versions: &[Option<Csn>]) {
        if self.versions.len() > FACTS_MAX {
            self.versions.clear();
        }
        self.versions.extend(inos.iter().zip(versions).filter_map(|(ino, csn)| Some((*ino, (*csn)?))));
    }

    /// Since when the contents of a file have not changed, as far as that was asked.
    pub fn version(&self, ino: Ino) -> Option<Csn> {
        self.versions.get(&ino).copied()
    }

    /// A block is there, as it is at the point of the stream that was received.
    pub fn add_block(&mut self, (ino, index): (Ino, u64), bytes: Vec<u8>) {
        self.put_block(ino, index, bytes);
        self.make_room();
    }

    /// Whether a block is known.
    pub fn has_block(&self, ino: Ino, index: u64) -> bool {
        self.blocks.contains_key(&(ino, index))
    }

    fn put_inode(&mut self, ino: Ino, inode: Inode) {
        self.inodes.insert(ino, inode);
        self.use_group(ino.group());
    }

    fn put_name(&mut self, dir: Ino, name: &Name, entry: Option<Entry>) {
        let known = &mut self.names.entry(dir).or_default().known;
        self.names_count += usize::from(known.insert(name.clone(), entry).is_none());
        self.use_group(dir.group());
    }

    fn listed<'a>(
        &mut self,
        dir: Ino,
        after: Option<&Name>,
        names: impl Iterator<Item = (&'a Name, Entry)>,
        end: bool,
    ) {
        let mut last = after.cloned();
        for (name, entry) in names {
            self.put_name(dir, name, Some(entry));
            last = Some(name.clone());
        }
        let known = self.names.entry(dir).or_default();
        if after.is_some() && known.listed.as_ref() != after {
            return;
        }
        // What was removed since a name was looked up is not in the listing, and was told of: it is known as gone.
        known.complete |= end;
        known.listed = if end { None } else { last };
    }

    fn put_read(&mut self, ino: Ino, offset: u64, len: u32, bytes: &[u8]) {
        for (index, block) in whole_blocks(offset, len, bytes) {
            self.put_block(ino, index, block.to_vec());
        }
    }

    fn put_block(&mut self, ino: Ino, index: u64, bytes: Vec<u8>) {
        self.clock += 1;
        let used = self.clock;
        if let Some(old) = self.blocks.insert((ino, index), Block { bytes, used }) {
            self.order.remove(&old.used);
        }
        self.order.insert(used, (ino, index));
    }

    fn touch(&mut self, at: (Ino, u64)) {
        if let Some(block) = self.blocks.get_mut(&at) {
            self.clock += 1;
            self.order.remove(&block.used);
            block.used = self.clock;
            self.order.insert(self.clock, at);
        }
    }

    fn forget_blocks(&mut self, ino: Ino) {
        let gone: Vec<_> = self.blocks.range((ino, 0)..=(ino, u64::MAX)).map(|(at, _)| *at).collect();
        gone.into_iter().for_each(|at| self.forget_block(at));
    }

    fn forget_block(&mut self, at: (Ino, u64)) {
        if let Some(block) = self.blocks.remove(&at) {
            self.order.remove(&block.used);
        }
    }

    /// Contents that were written. Of a block of which the rest is not known nothing is known then.
    fn patch(&mut self, ino: Ino, offset: u64, data: &[u8], size: u64) {
        let end = offset.saturating_add(data.len() as u64);
        if end > FILE_BYTES_MAX {
            // No file has these bytes: the server says something that is not so.
            return;
        }
        for index in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let (first, last) = (index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES);
            let (from, to) = (first.max(offset), last.min(end));
            let piece = &data[(from - offset) as usize..(to - offset) as usize];
            let whole = from == first && (to == last || to == size);
            let mut bytes = match self.blocks.get_mut(&(ino, index)) {
                _ if whole => Vec::new(),
                Some(block) => std::mem::take(&mut block.bytes),
                None => continue,
            };
            let (at, behind) = ((from - first) as usize, (to - first) as usize);
            bytes.resize(bytes.len().max(behind), 0);
            bytes[at..behind].copy_from_slice(piece);
            self.put_block(ino, index, bytes);
        }
    }

    fn use_group(&mut self, group: Group) {
        self.clock += 1;
        self.used.insert(group, self.clock);
    }

    fn make_room(&mut self) {
        while self.blocks.len() > BLOCKS_MAX {
            let Some((_, at)) = self.order.pop_first() else { break };
            self.blocks.remove(&at);
        }
        if self.inodes.len() + self.names_count <= FACTS_MAX {
            return;
        }
        // The older half of all groups goes.
        let mut groups: Vec<(u64, Group)> = self.used.iter().map(|(group, used)| (*used, *group)).collect();
        groups.sort_unstable();
        for (_, group) in groups.iter().take(groups.len().div_ceil(2)) {
            self.forget_group(*group);
        }
    }

    fn forget_group(&mut self, group: Group) {
        self.used.remove(&group);
        for ino in group.inodes().map(Ino) {
            self.inodes.remove(&ino);
            self.xattrs.remove(&ino);
            self.forget_names(ino);
        }
    }

    fn forget_names(&mut self, dir: Ino) {
        if let Some(names) = self.names.remove(&dir) {
            self.names_count -= names.known.len();
        }
    }
}

/// The blocks that are known as a whole by what was read.
pub fn whole_blocks(offset: u64, len: u32, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let is_end = bytes.len() < (len as usize).min(STEP_BYTES_MAX);
    let end = offset + bytes.len() as u64;
    let whole = offset.div_ceil(BLOCK_BYTES)..if is_end { end.div_ceil(BLOCK_BYTES) } else { end / BLOCK_BYTES };
    whole.map(move |index| {
        let (from, to) = (index * BLOCK_BYTES, ((index + 1) * BLOCK_BYTES).min(end));
        (index, &bytes[(from - offset) as usize..(to - offset) as usize])
    })
}

/// What a name is known to mean.
fn meaning(names: &BTreeMap<Ino, Names>, dir: Ino, name: &Name) -> Option<Option<Ino>> {
    let names = names.get(&dir)?;
    let entry = names.known.get(name).copied();
    entry.or_else(|| names.complete.then_some(None)).map(|entry| entry.map(|entry| entry.ino))
}

/// It is not known.
#[derive(Debug)]
struct Unknown;

/// The cache as a volume, of which not everything is known.
struct View<'c> {
    cache: &'c Cache,
    now: Millis,
    /// When the first of the leases ends that were used.
    until: Cell<Millis>,
    lacks: RefCell<BTreeSet<Group>>,
    aging: RefCell<BTreeSet<Group>>,
    touched: RefCell<Vec<(Ino, u64)>>,
}

impl View<'_> {
    fn need(&self, group: Group) {
        let until = self.cache.leases.until(group);
        self.until.set(self.until.get().min(until.unwrap_or(0)));
        match until {
            Some(until) if until >= self.now + self.cache.term / 2 => {}
            Some(until) if until > self.now => _ = self.aging.borrow_mut().insert(group),
            _ => _ = self.lacks.borrow_mut().insert(group),
        }
    }
}

impl Tree for View<'_> {
    type Error = Unknown;

    fn inode(&self, ino: Ino) -> Result<Option<Inode>, Unknown> {
        self.need(ino.group());
        self.cache.inodes.get(&ino).cloned().map(Some).ok_or(Unknown)
    }

    fn entry(&self, dir: Ino, name: &Name) -> Result<Option<Entry>, Unknown> {
        self.need(dir.group());
        let names = self.cache.names.get(&dir).ok_or(Unknown)?;
        match names.known.get(name) {
            Some(entry) => Ok(*entry),
            None if names.complete => Ok(None),
            None => Err(Unknown),
        }
    }

    fn entries(&self, dir: Ino, after: Option<&Name>, max: usize) -> Result<Vec<(Name, Entry)>, Unknown> {
        self.need(dir.group());
        let names = self.cache.names.get(&dir).filter(|names| names.complete).ok_or(Unknown)?;
        let from = after.map_or(Bound::Unbounded, |name| Bound::Excluded(name.clone()));
        let there =
            names.known.range((from, Bound::Unbounded)).filter_map(|(name, entry)| Some((name.clone(), (*entry)?)));
        Ok(there.take(max).collect())
    }

    fn xattr(&self, ino: Ino, name: &Name) -> Result<Option<Vec<u8>>, Unknown> {
        self.need(ino.group());
        let xattrs = self.cache.xattrs.get(&ino).ok_or(Unknown)?;
        match (xattrs.known.get(name), &xattrs.names) {
            (Some(value), _) => Ok(value.clone()),
            (None, Some(names)) if !names.contains(name) => Ok(None),
            _ => Err(Unknown),
        }
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Name>, Unknown> {
        self.need(ino.group());
        self.cache.xattrs.get(&ino).and_then(|xattrs| xattrs.names.clone()).ok_or(Unknown)
    }

    fn block(&self, ino: Ino, index: u64) -> Result<Option<Vec<u8>>, Unknown> {
        self.need(ino.group());
        if self.cache.unsettled.values().any(|inos| inos.contains(&ino)) {
            return Err(Unknown);
        }
        let block = self.cache.blocks.get(&(ino, index)).ok_or(Unknown)?;
        self.touched.borrow_mut().push((ino, index));
        Ok(Some(block.bytes.clone()))
    }

    fn blocks(&self, _: Ino, _: u64, _: usize) -> Result<Vec<u64>, Unknown> {
        Err(Unknown)
    }

    fn space(&self) -> Result<Space, Unknown> {
        Err(Unknown)
    }

    fn lent(&self, _: Group) -> Result<Option<Lent>, Unknown> {
        Err(Unknown)
    }

    fn staged(&self, _: SessionId, _: u64) -> Result<Option<Vec<u8>>, Unknown> {
        Err(Unknown)
    }
}

#[cfg(test)]
mod tests {
    use bluefs::op::Time;
    use bluefs::{Csn, Runs, Step};

    use super::*;

    /// Found by `cargo xtask histories`: between two messages of the server the new size of a file was known and the
    /// old contents, so that another thread read zeros.
    #[test]
    fn contents_that_an_interval_has_changed_are_not_known_before_its_outcome() {
        let ino = Ino(5);
        let inode = |size| Inode {
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            size,
            blocks: 1,
            rdev: 0,
            atime: Time(0),
            mtime: Time(0),
            ctime: Time(0),
            parent: Ino(0),
            target: Vec::new(),
        };
        let mut cache = Cache::default();
        let query = Query::Read { ino, offset: 0, len: BLOCK_BYTES as u32 };
        let read = |cache: &mut Cache| match cache.answer(&Cred::root(), &query, 1) {
            Said::Known(Ok(Answer::Bytes(bytes)), _) => Some(bytes),
            _ => None,
        };
        cache.granted(ino.group(), 0, 10_000);
        cache.learn(&Query::Inode(ino), Ok(&Answer::Inode(ino, inode(3))));
        cache.learn(&query, Ok(&Answer::Bytes(b"one".to_vec())));
        assert_eq!(read(&mut cache).as_deref(), Some(&b"one"[..]));
        cache.changed(1, &[Key::Data(ino), Key::Attr(ino)], &[(ino, Some(inode(6)))], &[]);
        assert_eq!(read(&mut cache), None);
        let change = Change::Append { ino, content: Content::Inline(b"two".to_vec()) };
        let steps = vec![Step { cred: 0, time: None, change }];
        let interval =
            Interval { number: 1, base: Csn(0), after: Runs::new(), reads: vec![], creds: vec![Cred::root()], steps };
        cache.committed(&interval, &[Effect::Wrote { offset: 3, size: 6 }]);
        cache.settled(1);
        assert_eq!(read(&mut cache).as_deref(), Some(&b"onetwo"[..]));
    }
}
