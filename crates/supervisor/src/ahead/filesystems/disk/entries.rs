//! The entries of a directory in which names are held, as those inside see them
//! ([0053](../../../../../../docs/decisions/0053-entries-with-held-names.md)). The kernel's answer is taken; what was
//! removed is left out, and what was added is put behind it.
//!
//! The kernel knows nothing of names that were added, so who goes on reading when they have been made might miss
//! them, or read them twice. All that is left of a directory is therefore given at once, or the call waits. If names
//! were only removed it does not matter when they are left out.
//!
//! Between names that were added are places of our own ([`place_before`]), to which a program can come back (`telldir`
//! and `seekdir`, [0298](../../../../../../docs/decisions/0298-what-suites-of-others-found.md)).

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::rollback::undo::{position_of, Intent};
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use rustix::fs::{AtFlags, SeekFrom};
use std::os::fd::OwnedFd;
use syscall_table::nr;
use tracee::{Result, Stopped, TraceError};

/// Of `struct linux_dirent64`: inode, offset, length of the entry, type, name.
const OFFSET: usize = 8;
const LENGTH: usize = 16;
const KIND: usize = 18;
const NAME: usize = 19;
/// Where reading a directory of ext4 ends.
const END: u64 = i64::MAX as u64;
/// Behind all places that ext4 gives to an entry (a hash, which is less than this, above 32 bits). Whoever reads on
/// from here is told by the kernel that nothing is left.
const PLACES: u64 = 0x7fff_ffff << 32;

/// The place before the name that a change with this number adds, and behind all that were added by earlier ones.
fn place_before(number: u64) -> u64 {
    PLACES + number.min(END - PLACES - 1)
}

/// An entry that is not on the disk, or that is another one there.
struct Added {
    name: Vec<u8>,
    ino: u64,
    kind: u8,
    /// Of the change that adds it.
    number: u64,
}

impl Added {
    /// The entry, and where reading goes on behind it.
    fn entry(&self, next: u64) -> Vec<u8> {
        const ALIGNED: usize = 8;
        let length = (NAME + self.name.len() + 1).next_multiple_of(ALIGNED);
        let mut entry = vec![0; length];
        entry[..OFFSET].copy_from_slice(&self.ino.to_ne_bytes());
        entry[OFFSET..LENGTH].copy_from_slice(&next.to_ne_bytes());
        entry[LENGTH..KIND].copy_from_slice(&(length as u16).to_ne_bytes());
        entry[KIND] = self.kind;
        entry[NAME..NAME + self.name.len()].copy_from_slice(&self.name);
        entry
    }
}

impl Supervisor {
    /// A process that depends on the held names of a directory reads its entries, or comes to depend on them by that.
    pub(in crate::ahead) fn read_held_entries(&mut self, stopped: &Stopped, call: &Call) -> Result<Option<Decision>> {
        if self.ahead.held_names.is_empty() || call.frame.nr != nr::getdents64 || !self.ahead.is_speculative(call.pid) {
            return Ok(None);
        }
        let Ok(dir) = self.copy_descriptor(call.tid, call.frame.args[0] as i32) else { return Ok(None) };
        let Ok(stat) = rustix::fs::fstat(&dir) else { return Ok(None) };
        let inode = (stat.st_dev, stat.st_ino);
        let is_moved = self.ahead.held_names.parent(inode).is_some();
        let is_removed = self.ahead.held_names.is_removed_dir(inode);
        if !is_moved && !is_removed && !self.ahead.held_names.has_names_in(inode) || !is_ext4(&dir) {
            return Ok(None);
        }
        if self.are_names_changing() {
            return Ok(Some(Decision::Wait));
        }
        let Ok(position) = rustix::fs::seek(&dir, SeekFrom::Current(0)) else { return Ok(None) };
        let (Ok(kept), Ok(moved)) = (dir.try_clone(), dir.try_clone()) else { return Ok(None) };
        // Those between which it has come back to a place are left from there on.
        let mut added = if position == END { Vec::new() } else { self.added_to(&dir, inode) };
        added.retain(|added| place_before(added.number) >= position);
        let plan =
            Plan::tracked_once().observing(Object::File(inode.0, inode.1)).observing(Object::Names(inode.0, inode.1));
        if is_removed {
            return self.answer_known(stopped, call, plan, -i64::from(libc::ENOENT)).map(Some);
        }
        let modifies = vec![(position_of(inode.0, inode.1), Intent::Position(moved))];
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        let result = match added.is_empty() {
            true => Some(self.read_what_is_left(stopped, call, inode)?),
            false => self.read_all(stopped, call, inode, &kept, &added)?,
        };
        self.observe_everything(call.tid);
        let Some(result) = result else {
            let _ = rustix::fs::seek(&kept, SeekFrom::Start(position));
            return Ok(Some(self.wait_at_barrier(call)));
        };
        Ok(Some(Decision::Answer(result)))
    }

    /// Names that the disk does not have, in the order in which they were added.
    fn added_to(&self, dir: &OwnedFd, inode: (u64, u64)) -> Vec<Added> {
        let mut added = Vec::new();
        for (name, number, target) in self.ahead.held_names.added_in(inode) {
            if rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                let name = name.as_encoded_bytes().to_vec();
                added.push(Added { name, ino: target.inode.1, kind: kind_of(&target.fd), number });
            }
        }
        added.sort_by_key(|added| added.number);
        added
    }

    /// What the kernel says, without what was removed.
    fn read_what_is_left(&mut self, stopped: &Stopped, call: &Call, inode: (u64, u64)) -> Result<i64> {
        loop {
            let (result, entries) = self.read_entries(stopped, call)?;
            if result <= 0 {
                return Ok(result);
            }
            let left = self.seen_of(&entries, inode);
            if !left.is_empty() {
                return self.give(call, &left);
            }
        }
    }

    /// All that is left at once; `None` if there is no room for it, or if places in this directory are not such that
    /// others are behind all of them (one without an index ends at its size).
    fn read_all(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        inode: (u64, u64),
        dir: &OwnedFd,
        added: &[Added],
    ) -> Result<Option<i64>> {
        let room = call.frame.args[2] as u32 as usize;
        let mut all = Vec::new();
        loop {
            let (result, entries) = self.read_entries(stopped, call)?;
            match result {
                0 => break,
                error if error < 0 => return Ok(Some(error)),
                _ => all.extend(self.seen_of(&entries, inode)),
            }
            if all.len() > room {
                return Ok(None);
            }
        }
        if rustix::fs::seek(dir, SeekFrom::Current(0)) != Ok(END) {
            return Ok(None);
        }
        if let (Some(last), Some(first)) = (last_place(&mut all), added.first()) {
            last.copy_from_slice(&place_before(first.number).to_ne_bytes());
        }
        let nexts = added.iter().skip(1).map(|added| place_before(added.number)).chain([END]);
        added.iter().zip(nexts).for_each(|(added, next)| all.extend(added.entry(next)));
        if all.len() > room {
            return Ok(None);
        }
        self.give(call, &all).map(Some)
    }

    /// The call, made in the process.
    fn read_entries(&mut self, stopped: &Stopped, call: &Call) -> Result<(i64, Vec<u8>)> {
        let mut remote = self.remote_calls(stopped)?;
        let result = remote.call(libc::SYS_getdents64, &call.frame.args)?;
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        let kernel = |source| TraceError::kernel("read entries", call.tid, source);
        let len = usize::try_from(result).unwrap_or(0);
        Ok((result, tracee::read_bytes(call.tid, call.frame.args[1], len).map_err(kernel)?))
    }

    fn give(&self, call: &Call, entries: &[u8]) -> Result<i64> {
        let kernel = |source| TraceError::kernel("write entries", call.tid, source);
        tracee::write_bytes(call.tid, call.frame.args[1], entries).map_err(kernel)?;
        Ok(entries.len() as i64)
    }

    /// Of these entries, those that those inside see.
    fn seen_of(&self, entries: &[u8], inode: (u64, u64)) -> Vec<u8> {
        let mut seen = Vec::new();
        let above = self.ahead.held_names.parent(inode).and_then(|(above, _)| rustix::fs::fstat(above).ok());
        let above = above.map(|stat| stat.st_ino);
        for entry in Entries(entries) {
            match self.ahead.held_names.target_named(inode, name_of(entry)) {
                None if name_of(entry) == b".." => add_entry(&mut seen, entry, above, None),
                None => seen.extend(entry),
                Some(None) => {}
                Some(Some(file)) => add_entry(&mut seen, entry, Some(file.inode.1), Some(kind_of(&file.fd))),
            }
        }
        seen
    }
}

/// Where reading goes on behind the last one of some entries.
fn last_place(entries: &mut [u8]) -> Option<&mut [u8]> {
    let last = Entries(entries).last()?.len();
    let begin = entries.len() - last;
    Some(&mut entries[begin + OFFSET..begin + LENGTH])
}

/// An entry with another inode, and of another kind, if there are such.
fn add_entry(seen: &mut Vec<u8>, entry: &[u8], ino: Option<u64>, kind: Option<u8>) {
    let begin = seen.len();
    seen.extend(entry);
    if let Some(ino) = ino {
        seen[begin..begin + OFFSET].copy_from_slice(&ino.to_ne_bytes());
    }
    if let Some(kind) = kind {
        seen[begin + KIND] = kind;
    }
}

/// What an entry says of the kind of its file (`DT_REG` and its kin): the upper bits of the mode.
fn kind_of(file: &OwnedFd) -> u8 {
    const SHIFT: u32 = 12;
    const UNKNOWN: u8 = 0;
    rustix::fs::fstat(file).map_or(UNKNOWN, |stat| (stat.st_mode >> SHIFT) as u8 & 0xf)
}

/// Entries as the kernel writes them.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = self.0.get(LENGTH..KIND)?.try_into().ok().map(u16::from_ne_bytes)?;
        let (entry, rest) = self.0.split_at_checked(usize::from(length)).filter(|(entry, _)| entry.len() > NAME)?;
        self.0 = rest;
        Some(entry)
    }
}

fn name_of(entry: &[u8]) -> &[u8] {
    entry[NAME..].split(|&byte| byte == 0).next().unwrap_or_default()
}

fn is_ext4(dir: &OwnedFd) -> bool {
    const EXT4_SUPER_MAGIC: u64 = 0xef53;
    rustix::fs::fstatfs(dir).is_ok_and(|found| found.f_type as u64 == EXT4_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_made() {
        let made =
            ["a", "seven77", "a longer name"].map(|name| Added { name: name.into(), ino: 7, kind: 8, number: 9 });
        let mut all: Vec<u8> = made.iter().flat_map(|added| added.entry(5)).collect();
        let names: Vec<&[u8]> = Entries(&all).map(name_of).collect();
        assert_eq!(names, [&b"a"[..], b"seven77", b"a longer name"]);
        assert!(Entries(&all).all(|entry| entry.len() % 8 == 0 && entry[KIND] == 8 && entry[0] == 7));
        last_place(&mut all).unwrap().copy_from_slice(&END.to_ne_bytes());
        let places: Vec<u8> = Entries(&all).map(|entry| entry[OFFSET]).collect();
        assert_eq!(places, [5, 5, 0xff]);
    }

    #[test]
    fn places_between_added_names_are_behind_all_of_the_disk() {
        const LAST_HASH: u64 = 0x7fff_fffe << 32 | 0xffff_ffff;
        assert!(LAST_HASH < place_before(0) && place_before(0) < place_before(1));
        assert!(place_before(u64::MAX) < END);
    }

    #[test]
    fn what_is_no_entry_ends_them() {
        assert_eq!(Entries(&[0; 30]).count(), 0);
        assert_eq!(Entries(&[1; 10]).count(), 0);
    }
}
