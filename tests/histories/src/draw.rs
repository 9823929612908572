//! What a client does next.

use crate::call::{Answer, Ino, Line, Mode, Op, Place, DIRS, FILES, RECORDS_MAX, ROOT};

/// Files and directories that a client knows, at most: the last ones.
const FILES_KNOWN: usize = 5;
const DIRS_KNOWN: usize = 3;
/// Numbers of records that one call may use.
const RECORDS_OF_CALL: u64 = 8;

/// Of who looks into pages: how much of what it does is that, in percent, and at how many records.
const PAGES_PART: u8 = 90;
const RECORDS_OF_PAGES: usize = 3;

/// A client's choices.
pub struct Drawer {
    random: fastrand::Rng,
    /// Whoever only looks chooses something else once in so many times: it has an answer in its cache, mostly.
    only_looks: Option<u8>,
    /// It writes few files, and looks mostly at single records of them.
    looks_into_pages: bool,
    /// What it has looked at last.
    looked: Option<Op>,
    files: Vec<Ino>,
    dirs: Vec<Ino>,
    locked: Option<Ino>,
}

impl Drawer {
    /// Of a client that does anything, or only looks.
    pub fn new(random: fastrand::Rng, only_looks: Option<u8>, looks_into_pages: bool) -> Drawer {
        Drawer { random, only_looks, looks_into_pages, looked: None, files: Vec::new(), dirs: vec![ROOT], locked: None }
    }

    /// Begins anew: nothing is open.
    pub fn forget(&mut self) {
        (self.files, self.dirs, self.locked, self.looked) = (Vec::new(), vec![ROOT], None, None);
    }

    /// The client has been told this.
    pub fn told(&mut self, op: &Op, answer: &Answer) {
        match (op, answer) {
            (Op::Lookup(place) | Op::Create(place) | Op::Mkdir(place), Answer::Ino(ino)) => {
                let (known, max) = match DIRS.contains(&place.name.as_str()) {
                    true => (&mut self.dirs, DIRS_KNOWN),
                    false => (&mut self.files, FILES_KNOWN),
                };
                known.retain(|other| other != ino);
                known.push(*ino);
                if known.len() > max {
                    // The root is not forgotten.
                    known.remove(usize::from(known[0] == ROOT));
                }
            }
            (Op::Lock(ino), Answer::Done) => self.locked = Some(*ino),
            (Op::Unlock(_), _) => self.locked = None,
            _ => {}
        }
    }

    /// The next operation; `id` is the number of the call.
    pub fn next(&mut self, id: u64) -> Op {
        let Some(looks_again) = self.only_looks else { return self.any(id) };
        if let Some(again) = self.looked.clone().filter(|_| self.random.u8(..looks_again) > 0) {
            return again;
        }
        loop {
            let op = self.any(id);
            if op.only_looks() {
                self.looked = Some(op.clone());
                return op;
            }
        }
    }

    fn any(&mut self, id: u64) -> Op {
        let record = (id * RECORDS_OF_CALL + 1) as u32;
        let Some(&file) = self.files.get(self.random.usize(..self.files.len().max(1))) else {
            return match self.random.u8(..4) {
                0 => Op::Create(self.file_place()),
                1 => Op::List(self.dir()),
                2 => Op::Lookup(dir_place(&mut self.random)),
                _ => Op::Lookup(self.file_place()),
            };
        };
        if self.looks_into_pages && self.random.u8(..100) < PAGES_PART {
            return self.of_pages(file, record);
        }
        match self.random.u8(..100) {
            0..10 => Op::Lookup(self.file_place()),
            10..15 => Op::Lookup(dir_place(&mut self.random)),
            15..23 => Op::Create(self.file_place()),
            23..26 => Op::Mkdir(dir_place(&mut self.random)),
            26..32 => Op::Unlink(self.file_place()),
            32..34 => Op::Rmdir(dir_place(&mut self.random)),
            34..42 => Op::Rename(self.file_place(), self.file_place(), self.mode()),
            42..45 => Op::Rename(dir_place(&mut self.random), dir_place(&mut self.random), self.mode()),
            45..48 => Op::Link(file, self.file_place()),
            48..55 => Op::List(self.dir()),
            55..61 => Op::Stat(file),
            61..63 => Op::Stat(self.dir()),
            63..69 => Op::Read(file),
            69..75 => Op::Peek(file, self.random.usize(..RECORDS_MAX / 20)),
            75..84 => Op::Append(file, record),
            84..87 => Op::Put(file, self.random.usize(..RECORDS_MAX / 20), record),
            87..88 => Op::Cut(file),
            88..94 => self.locked.map_or(Op::Lock(file), Op::Unlock),
            _ => Op::Batch((0..self.random.u32(1..4)).map(|line| self.line(record + line)).collect()),
        }
    }

    /// What shows a page that is not the server's: changes, and looks right behind them.
    fn of_pages(&mut self, file: Ino, record: u32) -> Op {
        let at = self.random.usize(..RECORDS_OF_PAGES);
        match self.random.u8(..100) {
            0..66 => Op::Peek(file, at),
            66..92 => Op::Put(file, at, record),
            92..98 => Op::Append(file, record),
            _ => Op::Cut(file),
        }
    }

    fn dir(&mut self) -> Ino {
        self.dirs[self.random.usize(..self.dirs.len())]
    }

    fn file_place(&mut self) -> Place {
        if self.looks_into_pages {
            return Place { dir: ROOT, name: FILES[0].to_owned() };
        }
        // Mostly in the root, where all meet.
        let dir = if self.random.bool() { ROOT } else { self.dir() };
        Place { dir, name: FILES[self.random.usize(..FILES.len())].to_owned() }
    }

    fn mode(&mut self) -> Mode {
        match self.random.u8(..5) {
            0 => Mode::NoReplace,
            1 => Mode::Exchange,
            _ => Mode::Replace,
        }
    }

    fn path(&mut self) -> String {
        let file = FILES[self.random.usize(..FILES.len())];
        match self.random.u8(..3) {
            0 => format!("{}/{file}", DIRS[self.random.usize(..DIRS.len())]),
            _ => file.to_owned(),
        }
    }

    fn line(&mut self, record: u32) -> Line {
        match self.random.u8(..6) {
            0..2 => Line::Write(self.path(), record),
            2..4 => Line::Append(self.path(), record),
            4 => Line::Rename(self.path(), self.path()),
            _ => Line::Remove(self.path()),
        }
    }
}

fn dir_place(random: &mut fastrand::Rng) -> Place {
    Place { dir: ROOT, name: DIRS[random.usize(..DIRS.len())].to_owned() }
}
