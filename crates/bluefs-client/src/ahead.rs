//! What is read before it is wanted: the next part of a file that is read from its beginning to its end, the next
//! small files of a directory, and a directory of which several names were looked up.

use std::collections::{BTreeMap, BTreeSet};

use bluefs::op::BLOCK_BYTES;
use bluefs::{Ino, Name};

/// How far ahead a file is read: at first, and at most.
const WINDOW_MIN: u64 = 256 << 10;
const WINDOW_MAX: u64 = 8 << 20;
/// Bytes of one question.
pub const PIECE_BYTES: u64 = 256 << 10;
/// Files that are read in whole before they are wanted.
pub const SMALL_BYTES: u64 = 64 << 10;
/// Small files at once, at first and at most.
const FILES_MIN: usize = 4;
const FILES_MAX: usize = 64;
/// Names after which a directory is read.
const MISSES: u32 = 2;
/// Files and directories of which something is remembered.
const REMEMBERED_MAX: usize = 4096;

#[derive(Debug)]
struct Stream {
    /// Where the next read would go on.
    next: u64,
    window: u64,
    /// Up to where was asked.
    asked: u64,
}

#[derive(Debug)]
struct Fetch {
    ino: Ino,
    from: u64,
    to: u64,
}

/// All of that.
#[derive(Debug, Default)]
pub struct Ahead {
    streams: BTreeMap<Ino, Stream>,
    fetching: BTreeMap<u64, Fetch>,
    places: BTreeMap<Ino, (Ino, Name)>,
    files: BTreeMap<Ino, usize>,
    misses: BTreeMap<Ino, u32>,
}

impl Ahead {
    /// The connection is gone.
    pub fn clear(&mut self) {
        *self = Ahead { places: std::mem::take(&mut self.places), ..Ahead::default() };
    }

    /// A file is read. Says which parts of it are to be asked for now: no more than there is room for.
    pub fn read(&mut self, ino: Ino, (offset, end): (u64, u64), size: u64, room: u64) -> Vec<(u64, u64)> {
        limit(&mut self.streams);
        let fresh = Stream { next: 0, window: WINDOW_MIN / 2, asked: 0 };
        let stream = self.streams.entry(ino).or_insert(fresh);
        if offset != stream.next {
            // Reads of several threads arrive in any order.
            let near = offset < stream.asked && offset + stream.window > stream.next;
            if !near {
                *stream = Stream { next: end, window: WINDOW_MIN / 2, asked: 0 };
                return Vec::new();
            }
        }
        stream.next = stream.next.max(end);
        // The next read is probably as long: what of it is not asked for by now would be asked for with all of it.
        stream.window = (stream.window * 2).max(end - offset).min(WINDOW_MAX);
        let from = stream.asked.max(end.next_multiple_of(BLOCK_BYTES));
        let to = (stream.next + stream.window).min(size.min(bluefs::op::FILE_BYTES_MAX)).next_multiple_of(BLOCK_BYTES);
        let to = to.min(from.saturating_add(room / PIECE_BYTES * PIECE_BYTES));
        // Not for a few blocks, unless these are the last.
        if from >= size || to <= from || (to - from < PIECE_BYTES && to < size) {
            return Vec::new();
        }
        stream.asked = to;
        (from..to).step_by(PIECE_BYTES as usize).map(|at| (at, (at + PIECE_BYTES).min(to))).collect()
    }

    /// A part of a file was asked for.
    pub fn fetch(&mut self, tag: u64, ino: Ino, from: u64, to: u64) {
        self.fetching.insert(tag, Fetch { ino, from, to });
    }

    /// What was asked for has arrived, or never will.
    pub fn arrived(&mut self, tag: u64) {
        self.fetching.remove(&tag);
    }

    /// Whether an answer is still to come.
    pub fn is_fetching(&self, tag: u64) -> bool {
        self.fetching.contains_key(&tag)
    }

    /// The question that asks for this part of a file, or for some of it.
    pub fn fetching(&self, ino: Ino, from: u64, to: u64) -> Option<u64> {
        let meets = |fetch: &&Fetch| fetch.ino == ino && fetch.from < to && from < fetch.to;
        self.fetching.iter().find(|(_, fetch)| meets(fetch)).map(|(tag, _)| *tag)
    }

    /// Inodes of which something is asked for.
    pub fn fetching_inos(&self) -> BTreeSet<Ino> {
        self.fetching.values().map(|fetch| fetch.ino).collect()
    }

    /// A name was looked up.
    pub fn found(&mut self, ino: Ino, dir: Ino, name: &Name) {
        limit(&mut self.places);
        self.places.insert(ino, (dir, name.clone()));
    }

    /// Where a file stands, as it was looked up last, and how many of its neighbours are to be read.
    pub fn neighbours(&mut self, ino: Ino) -> Option<(Ino, Name, usize)> {
        let (dir, name) = self.places.get(&ino)?.clone();
        limit(&mut self.files);
        let count = self.files.entry(dir).or_insert(FILES_MIN / 2);
        *count = (*count * 2).min(FILES_MAX);
        Some((dir, name, *count))
    }

    /// A name of this directory was not known. Whether the directory is to be read.
    pub fn missed(&mut self, dir: Ino) -> bool {
        limit(&mut self.misses);
        let misses = self.misses.entry(dir).or_default();
        *misses += 1;
        *misses % (8 * MISSES) == MISSES
    }
}

/// What is remembered is only good for speed.
fn limit<V>(map: &mut BTreeMap<Ino, V>) {
    if map.len() >= REMEMBERED_MAX {
        map.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(9);

    #[test]
    fn a_file_that_is_read_in_order_is_read_ahead_of_that() {
        let mut ahead = Ahead::default();
        let (step, size) = (128 << 10, 100 << 20);
        let mut asked = 0;
        for at in (0..size).step_by(step as usize) {
            for (from, to) in ahead.read(INO, (at, at + step), size, u64::MAX) {
                assert!(from >= at + step && (from == asked || asked == 0) && to - from <= PIECE_BYTES);
                asked = to;
            }
            assert!(asked <= at + step + WINDOW_MAX);
            assert!(at < (4 << 20) || asked >= (at + (7 << 20)).min(size), "the window has grown");
        }
        assert_eq!(asked, size);
    }

    /// Otherwise the next read asks for what is on its way once more, together with the rest.
    #[test]
    fn the_next_read_of_the_same_length_is_asked_for_as_a_whole() {
        let (step, size) = (1 << 20, 64 << 20);
        let mut ahead = Ahead::default();
        let mut asked = 0;
        for at in (0..size).step_by(step as usize) {
            asked = ahead.read(INO, (at, at + step), size, u64::MAX).last().map_or(asked, |(_, to)| *to);
            assert!(asked >= (at + 2 * step).min(size), "at {at} only up to {asked}");
        }
    }

    #[test]
    fn reads_here_and_there_ask_for_nothing_more() {
        let mut ahead = Ahead::default();
        for at in [50 << 20, 3 << 20, 70 << 20, 9 << 20] {
            assert_eq!(ahead.read(INO, (at, at + 4096), 100 << 20, u64::MAX), []);
        }
    }
}
