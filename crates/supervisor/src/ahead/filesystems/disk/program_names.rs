//! By what the kernel knows programs that a guess has made
//! ([0221](../../../../../../docs/decisions/0221-a-program-with-several-names.md)): each name by which one was executed
//! has a number in the world's stage until the change is made that gives it.

use crate::ahead::filesystems::disk::name_changes::Inode;
use crate::ahead::filesystems::disk::stages::Staged;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// What stands in stages for names by which programs were executed, by the number of the change that gives the name.
#[derive(Debug, Default)]
pub(in crate::ahead) struct ProgramNames(BTreeMap<u64, (Inode, Staged)>);

impl ProgramNames {
    /// The file as it is executed by a name; `stage` makes what the kernel knows it by.
    pub fn open(&mut self, giver: u64, inode: Inode, stage: impl FnOnce() -> Option<Staged>) -> Option<OwnedFd> {
        if !self.has(giver) {
            self.0.insert(giver, (inode, stage()?));
        }
        self.0.get(&giver)?.1.open()
    }

    /// Whether a program was executed by the name that a change gives.
    pub fn has(&self, giver: u64) -> bool {
        self.0.contains_key(&giver)
    }

    /// How many names the disk counts for a file that it will not have.
    pub fn count(&self, inode: &Inode) -> usize {
        self.0.values().filter(|(its, _)| its == inode).count()
    }

    /// The change that gives the name of what the kernel knows by this path.
    pub fn giver_of(&self, inode: &Inode, path: &[u8]) -> Option<u64> {
        let known = self.0.iter().find(|(_, (its, staged))| its == inode && staged.is_called(path));
        known.map(|(&giver, _)| giver)
    }

    /// What gets the name now, or goes.
    pub fn take(&mut self, giver: u64) -> Option<Staged> {
        self.0.remove(&giver).map(|(_, staged)| staged)
    }
}
