//! What goes to the cache on disk, and what comes from there.
//!
//! A block is written with the commit of the answer that has told it. It is read again into the cache in memory, under
//! the same rules as an answer: that needs the file's version, told on this connection, and not forgotten since because
//! somebody has changed the file. A block that is not older than the version is what the server would say at that
//! point of its stream.

use std::sync::Arc;

use bluefs::op::{Content, Effect, BLOCK_BYTES};
use bluefs::query::{Answer, Query};
use bluefs::{Change, Cred, Csn, Ino, Interval};
use bluefs_wire::{Request, VERSIONS_MAX};

use crate::cache::whole_blocks;
use crate::client::{Asked, Client, GivesUp};
use crate::disk::{Disk, Found, History, Stamp};
use crate::state::State;

impl Client {
    /// Has known what the disk has of a part of a file. Whether that is all that was missing.
    pub(crate) fn load(&self, cred: &Cred, ino: Ino, from: u64, to: u64, gives_up: GivesUp) -> bool {
        let Some(disk) = self.state().disk.clone() else { return false };
        disk.wait_until_ready();
        let Ok(tags) = self.begin(|state| state.ask_about_disk(&disk, cred, ino)) else { return false };
        let asked: Vec<Asked> = tags.into_iter().map(|tag| Asked { client: self, tag }).collect();
        for one in asked {
            if self.reply(one.tag, gives_up).is_err() {
                return false;
            }
        }
        let Some((volume, found)) = self.state().on_disk(&disk, ino, from, to) else { return false };
        // Without the lock: the disk may be slow.
        let blocks: Vec<_> = found.iter().map_while(|found| Some((found, disk.read(volume, found)?))).collect();
        if blocks.len() < found.len() {
            return false;
        }
        let mut state = self.state();
        // Meanwhile somebody may have changed the file, or there may be another connection.
        let is_good = |state: &State, found: &Found| state.is_good(ino, found.stamp);
        if !blocks.iter().all(|(found, _)| is_good(&state, found)) {
            return false;
        }
        blocks.into_iter().for_each(|(found, bytes)| state.cache.add_block(found.at, bytes));
        true
    }
}

impl State {
    /// Asks for what has to be known of a file before something of it can be taken from the disk, if anything is there.
    fn ask_about_disk(&mut self, disk: &Disk, cred: &Cred, ino: Ino) -> Vec<u64> {
        let mut tags = Vec::new();
        let Some(volume) = self.history.as_ref().map(|history| history.volume) else { return tags };
        // Files that were made together are mostly read together.
        let mut inos = disk.files_from(volume, ino, VERSIONS_MAX);
        if inos.first() != Some(&ino) {
            return tags;
        }
        if self.cache.inode(ino).is_none() {
            let (cred, query) = (cred.clone(), Query::Inode(ino));
            tags.push(self.ask(|tag| Request::AskLeased { tag, cred, query }));
        }
        if self.cache.version(ino).is_none() {
            inos.retain(|ino| self.cache.version(*ino).is_none());
            tags.push(self.ask(|tag| Request::Versions { tag, inos }));
        }
        tags
    }

    /// What the disk has of a part of a file and memory has not, if that is all that is missing.
    fn on_disk(&self, disk: &Disk, ino: Ino, from: u64, to: u64) -> Option<(u64, Vec<Found>)> {
        let (volume, size) = (self.history.as_ref()?.volume, self.cache.inode(ino)?.size);
        self.cache.version(ino)?;
        disk.drop_old(volume, ino, |stamp| self.is_good(ino, stamp));
        let blocks = from / BLOCK_BYTES..to.min(size).div_ceil(BLOCK_BYTES);
        let missing = blocks.filter(|index| !self.cache.has_block(ino, *index));
        let found = missing.map(|index| disk.find(volume, (ino, index), |stamp| self.is_good(ino, stamp)));
        Some((volume, found.collect::<Option<_>>()?))
    }

    /// Whether what a file had in this state it still has.
    fn is_good(&self, ino: Ino, stamp: Stamp) -> bool {
        let has = self.history.as_ref().is_some_and(|history| history.has(stamp));
        has && self.cache.version(ino).is_some_and(|version| version <= stamp.csn)
    }

    /// Whether a block need not be asked for ahead: it is known, or the disk has it, as far as is known.
    pub(crate) fn is_near(&self, ino: Ino, index: u64) -> bool {
        let is_on_disk = |(disk, history): (&Arc<Disk>, &History)| {
            let may_be = |stamp| self.cache.version(ino).is_none() || self.is_good(ino, stamp);
            disk.find(history.volume, (ino, index), may_be).is_some()
        };
        self.cache.has_block(ino, index) || self.disk.as_ref().zip(self.history.as_ref()).is_some_and(is_on_disk)
    }

    /// A file that an interval has written as a whole is kept. Of other files all that was kept of them before has
    /// another version now.
    pub(crate) fn keep_written(&self, interval: &Interval, effects: &[Effect], csn: Csn) {
        let (Some(disk), Some(history)) = (&self.disk, &self.history) else { return };
        // With one step there is nothing between it and the commit.
        let ([step], [Effect::Wrote { size, .. }]) = (interval.steps.as_slice(), effects) else { return };
        let Change::Write { ino, offset: 0, content: Content::Inline(data) } = &step.change else { return };
        if data.len() as u64 == *size {
            for (index, bytes) in data.chunks(BLOCK_BYTES as usize).enumerate() {
                disk.put(history.volume, (*ino, index as u64), history.stamp(csn), bytes);
            }
        }
    }
}

/// Files that are not there any more need no room.
pub(crate) fn drop_gone(disk: &Disk, history: &History, inos: &[Ino], versions: &[Option<Csn>]) {
    let gone = inos.iter().zip(versions).filter(|(_, version)| version.is_none());
    gone.for_each(|(ino, _)| disk.drop_old(history.volume, *ino, |_| false));
}

/// Keeps what was read.
pub(crate) fn keep_read(disk: &Disk, history: &History, query: &Query, answer: &Answer, csn: Csn) {
    let (Query::Read { ino, offset, len }, Answer::Bytes(bytes)) = (query, answer) else { return };
    for (index, bytes) in whole_blocks(*offset, *len, bytes) {
        disk.put(history.volume, (*ino, index), history.stamp(csn), bytes);
    }
}
