//! A [`Tree`] in memory: for tests, for the model, and as the smallest example of a store.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound;

use crate::key::{Group, Ino, Name, SessionId};
use crate::op::{Inode, Kind, Lent, Time};
use crate::tree::{Changes, Entry, Space, Tree};

/// A volume in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemoryTree {
    inodes: BTreeMap<Ino, Inode>,
    entries: BTreeMap<(Ino, Name), Entry>,
    xattrs: BTreeMap<(Ino, Name), Vec<u8>>,
    blocks: BTreeMap<(Ino, u64), Vec<u8>>,
    lent: BTreeMap<Group, Lent>,
    staged: BTreeMap<(SessionId, u64), Vec<u8>>,
    /// Room and quota.
    pub space: Space,
    /// Inodes without a name.
    pub orphans: BTreeSet<Ino>,
}

/// The root directory of a new volume.
pub fn new_root(now: Time) -> Inode {
    let (mode, times) = (0o755, now);
    Inode {
        kind: Kind::Dir,
        mode,
        uid: 0,
        gid: 0,
        nlink: 2,
        size: 0,
        blocks: 0,
        rdev: 0,
        atime: times,
        mtime: times,
        ctime: times,
        parent: Ino::ROOT,
        target: Vec::new(),
    }
}

impl MemoryTree {
    /// A volume with an empty root directory.
    pub fn new(now: Time) -> MemoryTree {
        MemoryTree {
            inodes: BTreeMap::from([(Ino::ROOT, new_root(now))]),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            blocks: BTreeMap::new(),
            lent: BTreeMap::new(),
            staged: BTreeMap::new(),
            space: Space::fresh(),
            orphans: BTreeSet::new(),
        }
    }

    /// Makes everything so that an interval has changed.
    pub fn write(&mut self, session: SessionId, changes: Changes) {
        put_all(&mut self.inodes, changes.inodes);
        put_all(&mut self.entries, changes.entries);
        put_all(&mut self.xattrs, changes.xattrs);
        put_all(&mut self.blocks, changes.blocks);
        self.lent.extend(changes.lent);
        self.space = changes.space.unwrap_or(self.space);
        self.staged.retain(|(of, id), _| *of != session || !changes.unstaged.contains(id));
        self.orphans.extend(changes.orphans);
        self.orphans.retain(|ino| self.inodes.contains_key(ino));
    }

    /// Stages contents.
    pub fn stage(&mut self, session: SessionId, id: u64, bytes: Vec<u8>) {
        self.staged.insert((session, id), bytes);
    }

    /// All inodes.
    pub fn inodes(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.inodes.iter().map(|(ino, inode)| (*ino, inode))
    }
}

fn put_all<K: Ord, V>(map: &mut BTreeMap<K, V>, changes: BTreeMap<K, Option<V>>) {
    for (key, value) in changes {
        match value {
            Some(value) => _ = map.insert(key, value),
            None => _ = map.remove(&key),
        }
    }
}

impl Tree for MemoryTree {
    type Error = Infallible;

    fn inode(&self, ino: Ino) -> Result<Option<Inode>, Infallible> {
        Ok(self.inodes.get(&ino).cloned())
    }

    fn entry(&self, dir: Ino, name: &Name) -> Result<Option<Entry>, Infallible> {
        Ok(self.entries.get(&(dir, name.clone())).copied())
    }

    fn entries(&self, dir: Ino, after: Option<&Name>, max: usize) -> Result<Vec<(Name, Entry)>, Infallible> {
        let from = match after {
            Some(name) => Bound::Excluded((dir, name.clone())),
            None => Bound::Included((dir, Name::new(b"\x01").expect("a name"))),
        };
        let all = self.entries.range((from, Bound::Unbounded)).take_while(|((of, _), _)| *of == dir);
        Ok(all.take(max).map(|((_, name), entry)| (name.clone(), *entry)).collect())
    }

    fn xattr(&self, ino: Ino, name: &Name) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.xattrs.get(&(ino, name.clone())).cloned())
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Name>, Infallible> {
        Ok(self.xattrs.keys().filter(|(of, _)| *of == ino).map(|(_, name)| name.clone()).collect())
    }

    fn block(&self, ino: Ino, index: u64) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.blocks.get(&(ino, index)).cloned())
    }

    fn blocks(&self, ino: Ino, from: u64, max: usize) -> Result<Vec<u64>, Infallible> {
        Ok(self.blocks.range((ino, from)..=(ino, u64::MAX)).take(max).map(|((_, index), _)| *index).collect())
    }

    fn space(&self) -> Result<Space, Infallible> {
        Ok(self.space)
    }

    fn lent(&self, group: Group) -> Result<Option<Lent>, Infallible> {
        Ok(self.lent.get(&group).copied())
    }

    fn staged(&self, session: SessionId, id: u64) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.staged.get(&(session, id)).cloned())
    }
}
