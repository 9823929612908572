//! Where each block is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bluefs::Ino;

use super::record::{At, Header, Stamp, HEADER_BYTES, HEAD_BYTES};

/// Where a record is, and what it says.
#[derive(Debug, Clone, Copy)]
struct Slot {
    offset: u64,
    len: u32,
    stamp: Stamp,
}

/// A file, and which blocks are in it. Of several records of one block the last one counts.
#[derive(Debug)]
pub struct Generation {
    pub number: u64,
    pub salt: u64,
    pub file: Arc<File>,
    /// Up to where it has records.
    pub bytes: u64,
    blocks: BTreeMap<At, Slot>,
}

/// A block that is there.
#[derive(Debug)]
pub struct Found {
    pub at: At,
    pub stamp: Stamp,
    number: u64,
    salt: u64,
    file: Arc<File>,
    offset: u64,
    len: usize,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Index {
    /// What there is is of this volume.
    pub volume: Option<u64>,
    /// It is not known yet what there is.
    pub is_loading: bool,
    pub is_off: bool,
    /// The older file first.
    files: Vec<Generation>,
    /// The highest number of a file that there was.
    last: u64,
}

impl Generation {
    /// A file with nothing but a head.
    pub fn new(number: u64, salt: u64, file: Arc<File>) -> Generation {
        Generation { number, salt, file, bytes: HEAD_BYTES as u64, blocks: BTreeMap::new() }
    }

    /// Finds its records, up to the first one that is none. `len`: of the file.
    pub fn scan(&mut self, len: u64) -> io::Result<()> {
        let mut input = BufReader::new(At0 { file: &self.file, at: self.bytes });
        loop {
            let mut bytes = [0; HEADER_BYTES];
            match input.read_exact(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
            let Some(Header { at, stamp, len: contents, .. }) = Header::of(self.salt, &bytes) else { return Ok(()) };
            let end = self.bytes + (HEADER_BYTES + contents) as u64;
            if end > len {
                return Ok(());
            }
            input.seek_relative(contents as i64)?;
            self.blocks.insert(at, Slot { offset: self.bytes, len: contents as u32, stamp });
            self.bytes = end;
        }
    }
}

/// A file from a place on.
struct At0<'f> {
    file: &'f File,
    at: u64,
}

impl Read for At0<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(out, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl io::Seek for At0<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let io::SeekFrom::Current(by) = to else { return Err(io::ErrorKind::Unsupported.into()) };
        self.at = self.at.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl Index {
    /// What there is is of this volume; it has to be found out.
    pub fn begins(&mut self, volume: u64) {
        if self.volume != Some(volume) && !self.is_off {
            (self.volume, self.is_loading) = (Some(volume), true);
        }
    }

    /// Nothing is there any more.
    pub fn clear(&mut self) {
        (self.volume, self.is_loading) = (None, false);
        self.files.clear();
    }

    /// Of what was there nothing counts.
    pub fn clear_blocks(&mut self) {
        self.files.clear();
    }

    /// This is what there is.
    pub fn loaded(&mut self, files: Vec<Generation>) {
        self.last = files.last().map_or(0, |file| file.number).max(self.last);
        (self.files, self.is_loading) = (files, false);
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The file that is written.
    pub fn newest(&self) -> Option<&Generation> {
        self.files.last()
    }

    /// Takes the older file if there are two. Says the highest number that there was, too.
    pub fn make_room(&mut self) -> (Option<Generation>, u64) {
        ((self.files.len() > 1).then(|| self.files.remove(0)), self.last)
    }

    /// This file is written from now on.
    pub fn begins_file(&mut self, file: Generation) {
        self.last = file.number;
        self.files.push(file);
    }

    /// Records were written to a file, which is so long now.
    pub fn added(&mut self, number: u64, bytes: u64, places: Vec<(At, Stamp, u64, usize)>) {
        let Some(file) = self.files.iter_mut().find(|file| file.number == number) else { return };
        file.bytes = bytes;
        let slots = places.into_iter().map(|(at, stamp, offset, len)| (at, Slot { offset, len: len as u32, stamp }));
        file.blocks.extend(slots);
    }

    fn of(&self, volume: u64) -> &[Generation] {
        if self.volume == Some(volume) && !self.is_loading {
            &self.files
        } else {
            &[]
        }
    }

    /// See [`super::Disk::files_from`].
    pub fn files_from(&self, volume: u64, ino: Ino, max: usize) -> Vec<Ino> {
        let (mut found, mut next) = (Vec::new(), Some(ino));
        while let Some(from) = next.filter(|_| found.len() < max) {
            let first = |file: &Generation| file.blocks.range((from, 0)..).next().map(|((ino, _), _)| *ino);
            let ino = self.of(volume).iter().filter_map(first).min();
            found.extend(ino);
            next = ino.and_then(|ino| ino.0.checked_add(1)).map(Ino);
        }
        found
    }

    /// See [`super::Disk::find`].
    pub fn find(&self, volume: u64, at: At, good: impl Fn(Stamp) -> bool) -> Option<Found> {
        self.of(volume).iter().rev().find_map(|file| {
            let Slot { offset, len, stamp } = *file.blocks.get(&at).filter(|slot| good(slot.stamp))?;
            let (number, salt, file) = (file.number, file.salt, file.file.clone());
            Some(Found { at, stamp, number, salt, file, offset, len: len as usize })
        })
    }

    /// See [`super::Disk::drop_old`].
    pub fn drop_old(&mut self, volume: u64, ino: Ino, good: impl Fn(Stamp) -> bool) {
        if self.volume != Some(volume) {
            return;
        }
        for file in &mut self.files {
            let of_file = file.blocks.range((ino, 0)..=(ino, u64::MAX));
            let old: Vec<At> = of_file.filter(|(_, slot)| !good(slot.stamp)).map(|(at, _)| *at).collect();
            old.iter().for_each(|at| _ = file.blocks.remove(at));
        }
    }

    /// A record is damaged.
    pub fn forget(&mut self, found: &Found) {
        if let Some(file) = self.files.iter_mut().find(|file| file.number == found.number) {
            if file.blocks.get(&found.at).is_some_and(|slot| slot.offset == found.offset) {
                file.blocks.remove(&found.at);
            }
        }
    }

    /// Whether it is in the file that goes first.
    pub fn is_old(&self, found: &Found) -> bool {
        self.files.len() > 1 && self.files[0].number == found.number
    }
}

impl Found {
    /// Its contents; `None`: what is there is not what was written.
    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; HEADER_BYTES + self.len];
        self.file.read_exact_at(&mut bytes, self.offset)?;
        let contents = bytes.split_off(HEADER_BYTES);
        let header = Header::of(self.salt, &bytes);
        let is_it = |header: &Header| (header.at, header.stamp) == (self.at, self.stamp);
        Ok(header.filter(is_it).filter(|header| header.is_of(self.salt, &contents)).map(|_| contents))
    }
}
