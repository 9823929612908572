//! A volume of the store as the [`Tree`] that the rules work on.

use std::collections::BTreeMap;

use bluefs::op::{Inode, Lent};
use bluefs::tree::{Changes, Entry, Space, Tree};
use bluefs::{Group, Ino, Name, SessionId};
use bluefs_wire::Wire;

use crate::error::StoreError;
use crate::rows::{self, VolumeId};
use crate::store::{Batch, Rows};

/// Contents that sessions have sent for later intervals. They live in memory, and become durable with the interval
/// that takes them.
pub type Staged = BTreeMap<(SessionId, u64), Vec<u8>>;

/// One volume.
pub struct View<'r, R> {
    rows: &'r R,
    volume: VolumeId,
    staged: &'r Staged,
}

impl<'r, R: Rows> View<'r, R> {
    /// The volume as it is in these rows.
    pub fn new(rows: &'r R, volume: VolumeId, staged: &'r Staged) -> Self {
        View { rows, volume, staged }
    }

    fn row<T: Wire>(&self, key: Vec<u8>) -> Result<Option<T>, StoreError> {
        self.rows.get(&key)?.map(|value| rows::meaning(&key, &value)).transpose()
    }
}

impl<R: Rows> Tree for View<'_, R> {
    type Error = StoreError;

    fn inode(&self, ino: Ino) -> Result<Option<Inode>, StoreError> {
        self.row(rows::inode(self.volume, ino))
    }

    fn entry(&self, dir: Ino, name: &Name) -> Result<Option<Entry>, StoreError> {
        self.row(rows::named(b'e', self.volume, dir, name))
    }

    fn entries(&self, dir: Ino, after: Option<&Name>, max: usize) -> Result<Vec<(Name, Entry)>, StoreError> {
        let prefix = rows::key(b'e', self.volume, &[dir.0]);
        let mut from = after.map_or_else(|| prefix.clone(), |name| rows::named(b'e', self.volume, dir, name));
        if after.is_some() {
            from.push(0);
        }
        let found = self.rows.range(&from, &rows::behind(&prefix), max)?;
        found.iter().map(|(key, value)| Ok((rows::last_name(key)?, rows::meaning(key, value)?))).collect()
    }

    fn xattr(&self, ino: Ino, name: &Name) -> Result<Option<Vec<u8>>, StoreError> {
        self.rows.get(&rows::named(b'x', self.volume, ino, name))
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Name>, StoreError> {
        let prefix = rows::key(b'x', self.volume, &[ino.0]);
        let found = self.rows.keys(&prefix, &rows::behind(&prefix), usize::MAX)?;
        found.iter().map(|key| rows::last_name(key)).collect()
    }

    fn block(&self, ino: Ino, index: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.rows.get(&rows::block(self.volume, ino, index))
    }

    fn blocks(&self, ino: Ino, from: u64, max: usize) -> Result<Vec<u64>, StoreError> {
        let end = rows::behind(&rows::key(b'b', self.volume, &[ino.0]));
        let found = self.rows.keys(&rows::block(self.volume, ino, from), &end, max)?;
        found.iter().map(|key| rows::last_number(key)).collect()
    }

    fn space(&self) -> Result<Space, StoreError> {
        let key = rows::key(b's', self.volume, &[]);
        self.row(key)?.ok_or_else(|| StoreError::Damaged(format!("volume {} has no row of its room", self.volume.0)))
    }

    fn lent(&self, group: Group) -> Result<Option<Lent>, StoreError> {
        self.row(rows::lent(self.volume, group))
    }

    fn staged(&self, session: SessionId, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.staged.get(&(session, id)).cloned())
    }
}

impl Batch<'_> {
    /// Makes everything so that an interval has changed.
    pub fn write(&mut self, volume: VolumeId, changes: &Changes) -> Result<(), StoreError> {
        for (ino, inode) in &changes.inodes {
            self.set(rows::inode(volume, *ino), inode.as_ref())?;
            if inode.is_none() {
                self.put(rows::key(b'o', volume, &[ino.0]), None)?;
                self.put(rows::version(volume, *ino), None)?;
            }
        }
        for ((dir, name), entry) in &changes.entries {
            self.set(rows::named(b'e', volume, *dir, name), entry.as_ref())?;
        }
        for ((ino, name), value) in &changes.xattrs {
            self.put(rows::named(b'x', volume, *ino, name), value.clone())?;
        }
        for ((ino, index), block) in &changes.blocks {
            self.put(rows::block(volume, *ino, *index), block.clone())?;
        }
        for (group, lent) in &changes.lent {
            // Of a group without a row none is given: nothing has to be known of one that is used up.
            self.set(rows::lent(volume, *group), Some(lent).filter(|lent| lent.used != u64::MAX))?;
        }
        if let Some(space) = &changes.space {
            self.set(rows::key(b's', volume, &[]), Some(space))?;
        }
        changes.orphans.iter().try_for_each(|ino| self.put(rows::key(b'o', volume, &[ino.0]), Some(Vec::new())))
    }

    /// An inode without a name is freed in parts, and has begun to be.
    pub fn set_being_freed(&mut self, volume: VolumeId, ino: Ino) -> Result<(), StoreError> {
        self.put(rows::key(b'o', volume, &[ino.0]), Some(vec![1]))
    }

    /// Forgets the numbers that were lent to sessions that are not there any more. They are given to nobody else.
    pub fn forget_lent(&mut self, volume: VolumeId, is_there: impl Fn(SessionId) -> bool) -> Result<(), StoreError> {
        let prefix = rows::key(b'l', volume, &[]);
        for (key, value) in self.range(&prefix, &rows::behind(&prefix), usize::MAX)? {
            let lent: Lent = rows::meaning(&key, &value)?;
            if !is_there(lent.session) {
                self.put(key, None)?;
            }
        }
        Ok(())
    }
}
