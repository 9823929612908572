//! The state that operations read and change: a [`Tree`] that is there, and an [`Overlay`] with what an interval would
//! change.
//!
//! Steps are carried out in an overlay. Only when the last one has succeeded are its [`Changes`] written to the tree:
//! all of it or nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::key::{Group, Ino, Key, Name};
use crate::op::{Errno, Inode, Kind, Lent, BLOCK_BYTES};

/// What a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The inode.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
}

/// Room in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Space {
    /// Bytes of blocks that are there.
    pub used_bytes: u64,
    /// Inodes that are there.
    pub used_inodes: u64,
    /// Quota, bytes.
    pub max_bytes: u64,
    /// Quota, inodes.
    pub max_inodes: u64,
    /// The next number that the server itself gives, in a group of its own.
    pub next_ino: Ino,
    /// The lowest group of which no number was given or lent.
    pub next_group: Group,
}

impl Space {
    /// An empty volume without quota: only the root directory is there. Numbers up to the end of the first group are
    /// the server's own.
    pub fn fresh() -> Space {
        Space {
            used_bytes: 0,
            used_inodes: 1,
            max_bytes: u64::MAX,
            max_inodes: u64::MAX,
            next_ino: Ino(2),
            next_group: Group(1),
        }
    }
}

/// Why an operation stops.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// It is refused: this is its result.
    Refused(Errno),
    /// The state could not be read: nothing is known.
    Broken(E),
}

impl<E> From<Errno> for Stop<E> {
    fn from(errno: Errno) -> Self {
        Stop::Refused(errno)
    }
}

/// The state of one volume.
pub trait Tree {
    /// Why it could not be read.
    type Error;
    /// An inode.
    fn inode(&self, ino: Ino) -> Result<Option<Inode>, Self::Error>;
    /// What a name means.
    fn entry(&self, dir: Ino, name: &Name) -> Result<Option<Entry>, Self::Error>;
    /// At most `max` names behind `after`, in the order of their bytes.
    fn entries(&self, dir: Ino, after: Option<&Name>, max: usize) -> Result<Vec<(Name, Entry)>, Self::Error>;
    /// An extended attribute.
    fn xattr(&self, ino: Ino, name: &Name) -> Result<Option<Vec<u8>>, Self::Error>;
    /// The names of all extended attributes.
    fn xattrs(&self, ino: Ino) -> Result<Vec<Name>, Self::Error>;
    /// A block; `None`: a hole. It may be shorter than a block: zeros follow.
    fn block(&self, ino: Ino, index: u64) -> Result<Option<Vec<u8>>, Self::Error>;
    /// At most `max` numbers of blocks that are there, from `from` on.
    fn blocks(&self, ino: Ino, from: u64, max: usize) -> Result<Vec<u64>, Self::Error>;
    /// Room.
    fn space(&self) -> Result<Space, Self::Error>;
    /// To whom a group of numbers is lent.
    fn lent(&self, group: Group) -> Result<Option<Lent>, Self::Error>;
    /// Contents that this session has staged under this number.
    fn staged(&self, session: crate::SessionId, id: u64) -> Result<Option<Vec<u8>>, Self::Error>;
}

/// Everything that differs from the tree below.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Inodes; `None`: removed.
    pub inodes: BTreeMap<Ino, Option<Inode>>,
    /// Names; `None`: removed.
    pub entries: BTreeMap<(Ino, Name), Option<Entry>>,
    /// Extended attributes; `None`: removed.
    pub xattrs: BTreeMap<(Ino, Name), Option<Vec<u8>>>,
    /// Blocks; `None`: removed.
    pub blocks: BTreeMap<(Ino, u64), Option<Vec<u8>>>,
    /// Room, if it differs.
    pub space: Option<Space>,
    /// Groups of numbers.
    pub lent: BTreeMap<Group, Lent>,
    /// Staged contents that were used.
    pub unstaged: BTreeSet<u64>,
    /// Inodes that have lost their last name. They are there until nobody has them open.
    pub orphans: BTreeSet<Ino>,
    /// Every key whose version is the commit's.
    pub keys: BTreeSet<Key>,
}

/// A tree with changes that are not in it yet.
pub struct Overlay<'t, T: Tree> {
    tree: &'t T,
    changes: Changes,
    /// Bytes of all blocks in `changes`.
    block_bytes: u64,
}

/// What an operation in an overlay comes to.
pub type Did<T, E> = Result<T, Stop<E>>;

impl<'t, T: Tree> Overlay<'t, T> {
    /// Nothing is changed yet.
    pub fn new(tree: &'t T) -> Self {
        Overlay { tree, changes: Changes::default(), block_bytes: 0 }
    }

    /// What was changed.
    pub fn into_changes(self) -> Changes {
        self.changes
    }

    /// An inode that has to be there: a number without an inode is stale, as it may have been good once.
    pub fn inode(&self, ino: Ino) -> Did<Inode, T::Error> {
        let found = match self.changes.inodes.get(&ino) {
            Some(changed) => changed.clone(),
            None => self.tree.inode(ino).map_err(Stop::Broken)?,
        };
        found.ok_or(Stop::Refused(Errno::STALE))
    }

    /// Whether there is such an inode.
    pub fn exists(&self, ino: Ino) -> Did<bool, T::Error> {
        match self.inode(ino) {
            Ok(_) => Ok(true),
            Err(Stop::Refused(_)) => Ok(false),
            Err(broken) => Err(broken),
        }
    }

    /// What a name means.
    pub fn entry(&self, dir: Ino, name: &Name) -> Did<Option<Entry>, T::Error> {
        match self.changes.entries.get(&(dir, name.clone())) {
            Some(changed) => Ok(*changed),
            None => self.tree.entry(dir, name).map_err(Stop::Broken),
        }
    }

    /// Whether a directory has no names.
    pub fn is_empty_dir(&self, dir: Ino) -> Did<bool, T::Error> {
        let first = Name::new(b"\x01").expect("a name");
        let own = self.changes.entries.range((dir, first)..).take_while(|((of, _), _)| *of == dir);
        let mut removed = 0;
        for (_, entry) in own {
            match entry {
                Some(_) => return Ok(false),
                None => removed += 1,
            }
        }
        // At most `removed` of the names below are gone: one more than that shows whether any is left.
        let below = self.tree.entries(dir, None, removed + 1).map_err(Stop::Broken)?;
        Ok(below.iter().all(|(name, _)| self.changes.entries.contains_key(&(dir, name.clone()))))
    }

    /// Changes an inode.
    pub fn put_inode(&mut self, ino: Ino, inode: Inode) {
        self.changes.inodes.insert(ino, Some(inode));
    }

    /// Changes a name, its key and its directory's listing.
    pub fn put_entry(&mut self, dir: Ino, name: &Name, entry: Option<Entry>) {
        self.changes.entries.insert((dir, name.clone()), entry);
        self.touch(Key::Name(dir, name.clone()));
        self.touch(Key::Listing(dir));
    }

    /// Notes that this key has a new version.
    pub fn touch(&mut self, key: Key) {
        self.changes.keys.insert(key);
    }

    /// An extended attribute.
    pub fn xattr(&self, ino: Ino, name: &Name) -> Did<Option<Vec<u8>>, T::Error> {
        match self.changes.xattrs.get(&(ino, name.clone())) {
            Some(changed) => Ok(changed.clone()),
            None => self.tree.xattr(ino, name).map_err(Stop::Broken),
        }
    }

    /// The names of all extended attributes.
    pub fn xattrs(&self, ino: Ino) -> Did<Vec<Name>, T::Error> {
        let mut names: BTreeSet<Name> = self.tree.xattrs(ino).map_err(Stop::Broken)?.into_iter().collect();
        for ((of, name), value) in &self.changes.xattrs {
            match value {
                _ if *of != ino => {}
                Some(_) => _ = names.insert(name.clone()),
                None => _ = names.remove(name),
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Changes an extended attribute.
    pub fn put_xattr(&mut self, ino: Ino, name: &Name, value: Option<Vec<u8>>) {
        self.changes.xattrs.insert((ino, name.clone()), value);
        self.touch(Key::Xattr(ino));
    }

    /// A block; `None`: a hole.
    pub fn block(&self, ino: Ino, index: u64) -> Did<Option<Vec<u8>>, T::Error> {
        match self.changes.blocks.get(&(ino, index)) {
            Some(changed) => Ok(changed.clone()),
            None => self.tree.block(ino, index).map_err(Stop::Broken),
        }
    }

    /// Changes a block. Says whether there is one more (1), one less (-1), or as many as before.
    pub fn put_block(&mut self, ino: Ino, index: u64, block: Option<Vec<u8>>) -> Did<i64, T::Error> {
        let before = i64::from(self.block(ino, index)?.is_some());
        let after = i64::from(block.is_some());
        let bytes = |block: &Option<Vec<u8>>| block.as_ref().map_or(0, |block| block.len() as u64);
        self.block_bytes += bytes(&block);
        let replaced = self.changes.blocks.insert((ino, index), block).flatten();
        self.block_bytes -= bytes(&replaced);
        Ok(after - before)
    }

    /// Bytes of all blocks that were changed.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// The numbers of the first blocks that are there, of a file that was not changed here.
    pub fn first_blocks(&self, ino: Ino, max: usize) -> Did<Vec<u64>, T::Error> {
        self.tree.blocks(ino, 0, max).map_err(Stop::Broken)
    }

    /// Removes all blocks from `from` up to and without `to`. Says how many there were.
    pub fn remove_blocks(&mut self, ino: Ino, from: u64, to: u64) -> Did<u64, T::Error> {
        let own = self.changes.blocks.range((ino, from)..(ino, to));
        let mut gone: BTreeSet<u64> = own.filter(|(_, block)| block.is_some()).map(|((_, index), _)| *index).collect();
        let mut next = from;
        loop {
            let below = self.tree.blocks(ino, next, 1024).map_err(Stop::Broken)?;
            let Some(&last) = below.last() else { break };
            gone.extend(below.into_iter().filter(|&i| i < to && !self.changes.blocks.contains_key(&(ino, i))));
            next = last + 1;
            if next >= to {
                break;
            }
        }
        for &index in &gone {
            let replaced = self.changes.blocks.insert((ino, index), None).flatten();
            self.block_bytes -= replaced.map_or(0, |block| block.len() as u64);
        }
        Ok(gone.len() as u64)
    }

    /// Room.
    pub fn space(&self) -> Did<Space, T::Error> {
        match self.changes.space {
            Some(space) => Ok(space),
            None => self.tree.space().map_err(Stop::Broken),
        }
    }

    /// Takes or gives back room. Only what takes can be refused.
    pub fn take_space(&mut self, blocks: i64, inodes: i64) -> Did<(), T::Error> {
        let mut space = self.space()?;
        let bytes = blocks.saturating_mul(BLOCK_BYTES as i64);
        space.used_bytes = space.used_bytes.saturating_add_signed(bytes);
        space.used_inodes = space.used_inodes.saturating_add_signed(inodes);
        let too_much =
            (blocks > 0 && space.used_bytes > space.max_bytes) || (inodes > 0 && space.used_inodes > space.max_inodes);
        if too_much {
            return Err(Errno::DQUOT.into());
        }
        self.changes.space = Some(space);
        Ok(())
    }

    /// A number that no inode ever had, of a group of the server's own.
    pub fn next_ino(&mut self) -> Did<Ino, T::Error> {
        let mut space = self.space()?;
        let ino = space.next_ino;
        space.next_ino = Ino(ino.0 + 1);
        if space.next_ino.group() != ino.group() {
            space.next_ino = Ino(space.next_group.inodes().start);
            space.next_group = Group(space.next_group.0 + 1);
        }
        self.changes.space = Some(space);
        Ok(ino)
    }

    /// To whom a group of numbers is lent.
    pub fn lent(&self, group: Group) -> Did<Option<Lent>, T::Error> {
        match self.changes.lent.get(&group) {
            Some(lent) => Ok(Some(*lent)),
            None => self.tree.lent(group).map_err(Stop::Broken),
        }
    }

    /// Changes whom a group of numbers is lent to, or which were used.
    pub fn put_lent(&mut self, lent: Lent) {
        self.changes.lent.insert(lent.group, lent);
    }

    /// Lends a whole group of new numbers.
    pub fn lend(&mut self, session: crate::SessionId) -> Did<Group, T::Error> {
        let mut space = self.space()?;
        let group = space.next_group;
        space.next_group = Group(group.0 + 1);
        self.changes.space = Some(space);
        self.put_lent(Lent { group, session, used: 0 });
        Ok(group)
    }

    /// Takes staged contents out.
    pub fn take_staged(&mut self, session: crate::SessionId, id: u64) -> Did<Vec<u8>, T::Error> {
        if self.changes.unstaged.contains(&id) {
            return Err(Errno::INVAL.into());
        }
        let staged = self.tree.staged(session, id).map_err(Stop::Broken)?.ok_or(Errno::INVAL)?;
        self.changes.unstaged.insert(id);
        Ok(staged)
    }

    /// Takes an inode and everything that belongs to it away.
    pub fn remove_inode(&mut self, ino: Ino) -> Did<(), T::Error> {
        let blocks = self.remove_blocks(ino, 0, u64::MAX)?;
        for name in self.xattrs(ino)? {
            self.put_xattr(ino, &name, None);
        }
        self.changes.inodes.insert(ino, None);
        self.changes.orphans.remove(&ino);
        self.take_space(-(blocks as i64), -1)
    }

    /// Notes that an inode has lost its last name.
    pub fn put_orphan(&mut self, ino: Ino) {
        self.changes.orphans.insert(ino);
    }
}
