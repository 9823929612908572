//! Inodes that have lost their last name by a change of this mount, as they were then. The kernel opens neither
//! directories nor FIFOs through the mount, nor what is opened with `O_PATH`: the server frees them at once, and a
//! program that has one open may still look at it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bluefs::op::Inode;
use bluefs::Ino;

/// So many are kept at most: of one that another machine has put in the place of a name the kernel says nothing.
const KEPT_MAX: usize = 65_536;

/// What the kernel may still ask about.
#[derive(Debug, Default)]
pub struct Departed(Mutex<BTreeMap<Ino, Inode>>);

impl Departed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ino, Inode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These have lost their last name.
    pub fn add<'i>(&self, nameless: impl Iterator<Item = (Ino, &'i Inode)>) {
        let mut nameless = nameless.peekable();
        if nameless.peek().is_none() {
            return;
        }
        let mut kept = self.lock();
        for (ino, inode) in nameless {
            if kept.len() >= KEPT_MAX {
                kept.pop_first();
            }
            kept.insert(ino, inode.clone());
        }
    }

    /// One as it was.
    pub fn find(&self, ino: Ino) -> Option<(Ino, Inode)> {
        Some((ino, self.lock().get(&ino)?.clone()))
    }

    /// The kernel has no such inode any more.
    pub fn forget(&self, ino: Ino) {
        self.lock().remove(&ino);
    }
}
