//! What files on disks hold once the writes and truncations that are held are made: their sizes, their bytes, and when
//! the last of these changes was asked for.

use crate::ahead::calls::known_ways::News;
use crate::ahead::filesystems::disk::name_changes::{DirChange, Inode};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A change of a file's contents.
#[derive(Clone, Debug)]
pub(in crate::ahead) enum ContentChange {
    /// At an offset, or at the end.
    Write { offset: Option<u64>, bytes: Arc<Vec<u8>> },
    /// To this size.
    Truncate(u64),
}

impl ContentChange {
    /// How many bytes it keeps.
    pub fn len(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Truncate(_) => 0,
        }
    }

    fn size_after(&self, size: u64) -> u64 {
        match self {
            Self::Write { offset, bytes } => size.max(offset.unwrap_or(size) + bytes.len() as u64),
            Self::Truncate(len) => *len,
        }
    }
}

/// A part of a file, as far as it is known.
struct Part {
    start: u64,
    /// As long as the part; zero where the file is not written.
    bytes: Vec<u8>,
    /// Of the file.
    size: u64,
}

impl Part {
    fn apply(&mut self, change: &ContentChange) {
        match change {
            ContentChange::Write { offset, bytes } => self.overlay(offset.unwrap_or(self.size), bytes),
            ContentChange::Truncate(len) => {
                let kept = len.saturating_sub(self.start).min(self.bytes.len() as u64) as usize;
                self.bytes[kept..].fill(0);
            }
        }
        self.size = change.size_after(self.size);
    }

    fn overlay(&mut self, offset: u64, bytes: &[u8]) {
        let (first, last) = (offset.max(self.start), (offset + bytes.len() as u64).min(self.end()));
        if first < last {
            let (to, from) = ((first - self.start) as usize, (first - offset) as usize);
            let len = (last - first) as usize;
            self.bytes[to..to + len].copy_from_slice(&bytes[from..from + len]);
        }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

#[derive(Debug)]
struct Step {
    number: u64,
    change: ContentChange,
    since: Duration,
    /// How many changes of attributes were held before.
    attributes: u64,
}

/// Files whose contents are not what the world should see of them.
#[derive(Debug, Default)]
pub(in crate::ahead) struct HeldContents {
    files: HashMap<Inode, Vec<Step>>,
    /// Those of which somebody was told when they were changed.
    shown: HashSet<Inode>,
    next_number: u64,
    pub news: News,
}

impl HeldContents {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub fn has(&self, inode: &Inode) -> bool {
        self.files.contains_key(inode)
    }

    /// The number of the change, and when it was asked for.
    pub fn add(&mut self, inode: Inode, change: ContentChange, attributes: u64) -> (u64, Duration) {
        self.next_number += 1;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let step = Step { number: self.next_number, change, since, attributes };
        self.files.entry(inode).or_default().push(step);
        self.news.of_file(inode);
        (self.next_number, since)
    }

    /// It is made, or will never be. Whether it was the last one of its file.
    pub fn remove(&mut self, inode: Inode, number: u64) -> bool {
        let Some(steps) = self.files.get_mut(&inode) else { return false };
        steps.retain(|step| step.number != number);
        let is_last = steps.is_empty();
        if is_last {
            self.files.remove(&inode);
            self.shown.remove(&inode);
        }
        is_last
    }

    /// Somebody is told of the file's times: they are to be the same afterwards.
    pub fn note_shown(&mut self, inode: Inode) {
        if self.has(&inode) {
            self.shown.insert(inode);
        }
    }

    pub fn is_shown(&self, inode: &Inode) -> bool {
        self.shown.contains(inode)
    }

    /// The last change of a file.
    pub fn last_change(&self, inode: &Inode) -> Option<DirChange> {
        let last = self.files.get(inode)?.last()?;
        Some(DirChange { since: last.since, attributes: last.attributes })
    }

    fn changes(&self, inode: &Inode) -> impl Iterator<Item = &ContentChange> {
        self.files.get(inode).into_iter().flatten().map(|step| &step.change)
    }

    /// The size of a file that has this one on the disk.
    pub fn size(&self, inode: &Inode, disk: u64) -> u64 {
        self.changes(inode).fold(disk, |size, change| change.size_after(size))
    }

    /// What a file holds from `start` on, as far as `len`: `disk` is what the disk has there, and the size that it
    /// says.
    pub fn read(&self, inode: &Inode, start: u64, len: usize, disk: (Vec<u8>, u64)) -> Vec<u8> {
        let (mut bytes, size) = disk;
        bytes.resize(len, 0);
        let mut part = Part { start, bytes, size };
        self.changes(inode).for_each(|change| part.apply(change));
        let available = part.size.saturating_sub(start).min(len as u64) as usize;
        part.bytes.truncate(available);
        part.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: Option<u64>, text: &str) -> ContentChange {
        ContentChange::Write { offset, bytes: Arc::new(text.as_bytes().to_vec()) }
    }

    /// What is read of a file that holds `disk`, in whole and from the third byte on.
    fn check(disk: &str, changes: &[ContentChange], expected: &str) {
        let mut held = HeldContents::default();
        for change in changes {
            held.add((1, 2), change.clone(), 0);
        }
        let size = disk.len() as u64;
        assert_eq!(held.size(&(1, 2), size), expected.len() as u64);
        for start in [0, 2] {
            let bytes = disk.as_bytes().get(start..).unwrap_or_default().to_vec();
            let read = held.read(&(1, 2), start as u64, 100, (bytes, size));
            assert_eq!(read, expected.as_bytes().get(start..).unwrap_or_default(), "from {start} on");
        }
    }

    #[test]
    fn the_last_change_of_a_byte_counts() {
        check("hello", &[], "hello");
        check("hello", &[write(Some(1), "EL"), write(None, "!")], "hELlo!");
        check("hello", &[ContentChange::Truncate(0)], "");
        check("hello", &[ContentChange::Truncate(3), write(None, "p")], "help");
        check("hello", &[ContentChange::Truncate(2), ContentChange::Truncate(4)], "he\0\0");
        check("", &[write(Some(3), "x")], "\0\0\0x");
        check("hello", &[ContentChange::Truncate(0), write(Some(0), "a\n"), write(None, "b\n")], "a\nb\n");
    }

    #[test]
    fn a_file_is_forgotten_with_its_last_change() {
        let mut held = HeldContents::default();
        let (one, _) = held.add((1, 2), ContentChange::Truncate(7), 0);
        let (two, since) = held.add((1, 2), write(None, "x"), 3);
        held.note_shown((1, 2));
        held.note_shown((3, 4));
        let last = held.last_change(&(1, 2)).unwrap();
        assert_eq!((last.since, last.attributes), (since, 3));
        assert!(!held.remove((1, 2), two) && held.size(&(1, 2), 0) == 7 && held.is_shown(&(1, 2)));
        assert!(held.remove((1, 2), one) && held.is_empty() && !held.is_shown(&(1, 2)) && !held.is_shown(&(3, 4)));
    }
}
