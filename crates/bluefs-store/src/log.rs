//! The log: segments of records, each named by the number of its first record.
//!
//! ```text
//!  record   length u32 | checksum u32 | number u64 | checksum of the record before u32 | puts | zeros up to 8 bytes
//!  put      length of key u32 | key | 0, or: 1 | length of value u32 | value
//!  witness  two slots of 16 bytes: number u64 | checksum u32 | 0 u32; even numbers in the first one
//! ```
//!
//! Behind the last record a segment may have zeros, which records overwrite: so a sync need not wait until the file
//! system has noted that the file has become longer (docs/decisions/0187).
//!
//! All numbers are little-endian. The checksum is a CRC-32 over everything behind it; the length is that of the puts.
//! At most one record is written at a time: only the last one can be incomplete after a crash. The witness is written
//! after the sync and not synced itself: it tells an incomplete record from one that was damaged later, wherever the
//! machine has not lost its memory as well.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, Room};
use crate::error::{is_no_room, StoreError};

/// Rows that a batch has changed; `None`: removed.
pub type Puts = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Bytes in front of a record's puts.
const HEADER_BYTES: usize = 20;
/// Where records begin.
const ALIGN: usize = 8;
/// The last number that a record may have: nobody comes so far.
const NUMBER_MAX: u64 = 1 << 62;
const PREFIX: &str = "log-";
const WITNESS: &str = "witness";
const SLOT_BYTES: usize = 16;
/// Zeros that are written ahead: as many as there are bytes of records, between [`FIRST_BYTES`] and this.
const AHEAD_BYTES_MAX: u64 = 1 << 20;
/// They end at multiples of this.
const AHEAD_UNIT: u64 = 4096;
/// Zeros that a segment begins with, and that only small records use up: these have room there when the rest of the
/// disk is gone.
pub(crate) const FIRST_BYTES: u64 = 64 << 10;
/// How many bytes a small record has at most.
pub(crate) const SMALL_BYTES_MAX: u64 = 32 << 10;

/// A place in the log: the number of a record, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub number: u64,
    pub checksum: u32,
}

/// The log, open for appending.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    witness: Arc<dyn DiskFile>,
    segment: Arc<dyn DiskFile>,
    end: u64,
    /// Up to where the segment has zeros behind that, or nothing.
    zeros: u64,
    /// The last record.
    pub last: Place,
    /// First records of all segments.
    firsts: Vec<u64>,
    /// Bytes of the largest record for which there was no room.
    refused_bytes: u64,
}

/// What was found in a log.
#[derive(Debug, Default)]
pub struct Found {
    /// What the records behind the state put.
    pub records: Vec<Puts>,
    /// What should be said.
    pub notes: Vec<String>,
}

pub fn is_ours(name: &str) -> bool {
    name == WITNESS || first_of(name).is_some()
}

fn first_of(name: &str) -> Option<u64> {
    let first = u64::from_str_radix(name.strip_prefix(PREFIX).filter(|rest| rest.len() == 16)?, 16).ok()?;
    // The first record has the number 1. A file with another name is none of ours.
    (1..=NUMBER_MAX).contains(&first).then_some(first)
}

fn name_of(first: u64) -> String {
    format!("{PREFIX}{first:016x}")
}

fn encode(last: Place, puts: &Puts) -> Result<(Place, Vec<u8>), StoreError> {
    let mut bytes = vec![0; HEADER_BYTES];
    let put_bytes = |bytes: &mut Vec<u8>, what: &[u8]| {
        bytes.extend((what.len() as u32).to_le_bytes());
        bytes.extend(what);
    };
    for (key, value) in puts {
        put_bytes(&mut bytes, key);
        bytes.push(u8::from(value.is_some()));
        if let Some(value) = value {
            put_bytes(&mut bytes, value);
        }
    }
    let len = length(bytes.len() - HEADER_BYTES)?;
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    bytes[0..4].copy_from_slice(&len.to_le_bytes());
    bytes[8..16].copy_from_slice(&(last.number + 1).to_le_bytes());
    bytes[16..20].copy_from_slice(&last.checksum.to_le_bytes());
    let checksum = checksum(&bytes);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    Ok((Place { number: last.number + 1, checksum }, bytes))
}

/// The length of a record's puts as it stands in the record: one that were cut could not be read again.
fn length(bytes: usize) -> Result<u32, StoreError> {
    u32::try_from(bytes).map_err(|_| StoreError::TooLarge(bytes))
}

fn checksum(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&record[0..4]);
    hasher.update(&record[8..]);
    hasher.finalize()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The record at the beginning of these bytes: where it stands, the checksum of its predecessor, and its bytes.
fn record_at(bytes: &[u8]) -> Option<(Place, u32, &[u8])> {
    if bytes.len() < HEADER_BYTES {
        return None;
    }
    let end = (word(bytes, 0) as usize).checked_add(HEADER_BYTES)?.checked_next_multiple_of(ALIGN)?;
    let record = bytes.get(..end)?;
    let place = Place { number: long(record, 8), checksum: word(record, 4) };
    (checksum(record) == place.checksum && place.number > 0).then(|| (place, word(record, 16), record))
}

fn puts_of(record: &[u8]) -> Option<Puts> {
    let mut rest = record.get(HEADER_BYTES..HEADER_BYTES + word(record, 0) as usize)?;
    let mut puts = Puts::new();
    let take = |rest: &mut &[u8], len: usize| {
        let (taken, left) = rest.split_at_checked(len)?;
        *rest = left;
        Some(taken.to_vec())
    };
    let take_bytes = |rest: &mut &[u8]| {
        let len = word(&take(rest, 4)?, 0) as usize;
        take(rest, len)
    };
    while !rest.is_empty() {
        let key = take_bytes(&mut rest)?;
        let value = match take(&mut rest, 1)?[0] {
            0 => None,
            _ => Some(take_bytes(&mut rest)?),
        };
        puts.insert(key, value);
    }
    Some(puts)
}

impl Log {
    /// Reads the log. `applied`: the last record that the state has.
    pub fn open(disk: Arc<dyn Disk>, applied: Place) -> Result<(Log, Found), StoreError> {
        let names = disk.names().map_err(StoreError::io("list the store"))?;
        let mut firsts: Vec<u64> = names.iter().filter_map(|name| first_of(name)).collect();
        firsts.sort_unstable();
        let mut found = Found::default();
        let mut scan = Scan { applied, last: None, found: &mut found };
        let mut end = 0;
        for (i, &first) in firsts.iter().enumerate() {
            end = scan.segment(&read_all(&*disk, &name_of(first))?, first, i + 1 == firsts.len())?;
        }
        let last = scan.last.unwrap_or_default();
        let witness = open(&*disk, WITNESS)?;
        let acknowledged = read_witness(&*witness)?;
        if acknowledged > last.number.max(applied.number) {
            let at = last.number.max(applied.number) + 1;
            return Err(StoreError::Damaged(format!("record {at} of its log was complete once, and is not any more")));
        }
        if last.number < applied.number {
            if last.number > 0 {
                let note =
                    format!("the log ends at record {}, the state at {}: nothing is lost", last.number, applied.number);
                found.notes.push(note);
            }
            return Ok((Log::begin(disk, witness, firsts, applied)?, found));
        }
        let Some(&first) = firsts.last() else { return Ok((Log::begin(disk, witness, firsts, applied)?, found)) };
        let segment = open(&*disk, &name_of(first))?;
        if segment.len().map_err(StoreError::io("read the log"))? > end {
            segment.set_len(end).and_then(|()| segment.sync()).map_err(StoreError::io("cut the log"))?;
        }
        Ok((Log { disk, witness, segment, end, zeros: end, last, firsts, refused_bytes: 0 }, found))
    }

    fn begin(
        disk: Arc<dyn Disk>,
        witness: Arc<dyn DiskFile>,
        firsts: Vec<u64>,
        last: Place,
    ) -> Result<Log, StoreError> {
        let segment = witness.clone();
        let mut log = Log { disk, witness, segment, end: 0, zeros: 0, last, firsts, refused_bytes: 0 };
        match log.next_segment()? {
            true => Ok(log),
            false => Err(StoreError::Full(io::ErrorKind::StorageFull.into())),
        }
    }

    /// Appends a record. When it returns, the record is on stable storage. After [`StoreError::Full`] the log is what
    /// it was before.
    pub fn append(&mut self, puts: &Puts) -> Result<Place, StoreError> {
        let (place, bytes) = encode(self.last, puts)?;
        let had_zeros_to = self.zeros;
        let written = self.write_zeros(bytes.len() as u64).and_then(|()| self.segment.write(self.end, &bytes));
        match written {
            Err(error) if is_no_room(&error) => {
                self.refused_bytes = self.refused_bytes.max(bytes.len() as u64);
                return Err(self.take_back(error, had_zeros_to));
            }
            written => written.map_err(StoreError::io("write to the log"))?,
        }
        self.segment.sync().map_err(StoreError::io("sync the log"))?;
        self.end += bytes.len() as u64;
        self.last = place;
        let mut slot = place.number.to_le_bytes().to_vec();
        slot.extend(crc32fast::hash(&slot).to_le_bytes());
        let at = (place.number % 2) * SLOT_BYTES as u64;
        match self.witness.write(at, &slot) {
            // The record is there. What the witness says of those before is true.
            Err(error) if is_no_room(&error) => {}
            written => written.map_err(StoreError::io("write to the log"))?,
        }
        Ok(place)
    }

    /// There was no room for all of a record, and a part of it may stand behind the last one. As soon as that is gone
    /// for certain the log is what it was; else nobody knows what a start would find. Zeros that were there up to
    /// `zeros` are there again: smaller records have that room.
    fn take_back(&mut self, error: io::Error, zeros: u64) -> StoreError {
        let blank = vec![0; (zeros - self.end) as usize];
        let cut = |to: u64| self.segment.set_len(to);
        let again = cut(zeros).and_then(|()| self.segment.write(self.end, &blank)).map(|()| zeros);
        // Where what is written takes other blocks than before, that may have no room either.
        let taken = again.or_else(|_| cut(self.end).map(|()| self.end));
        match taken.and_then(|zeros| self.segment.sync().map(|()| zeros)) {
            Ok(zeros) => {
                self.zeros = zeros;
                StoreError::Full(error)
            }
            Err(source) => StoreError::io("take a record out of the log for which there was no room")(source),
        }
    }

    /// Before a record of so many bytes makes the file longer, more zeros do. One sync is for both. A large one leaves
    /// those alone that small ones need.
    fn write_zeros(&mut self, bytes: u64) -> io::Result<()> {
        let end = self.end + bytes;
        let kept = if bytes > SMALL_BYTES_MAX { FIRST_BYTES } else { 0 };
        if end + kept <= self.zeros {
            return Ok(());
        }
        let (from, to) = (end.max(self.zeros), end + end.clamp(FIRST_BYTES, AHEAD_BYTES_MAX));
        let to = to.next_multiple_of(AHEAD_UNIT);
        match self.segment.write(from, &vec![0; (to - from) as usize]) {
            // The record itself may have room, also in what these have taken.
            Err(error) if is_no_room(&error) && kept == 0 => {
                self.segment.set_len(self.zeros)?;
                self.zeros = end;
            }
            written => {
                written?;
                self.zeros = to;
            }
        }
        Ok(())
    }

    /// What a record and the zeros behind it take, if there was no room for one that large.
    pub fn refused_bytes(&self) -> u64 {
        if self.refused_bytes == 0 {
            0
        } else {
            self.refused_bytes + AHEAD_BYTES_MAX
        }
    }

    /// Now there is.
    pub fn forget_refused(&mut self) {
        self.refused_bytes = 0;
    }

    /// Whether its disk has so much.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.disk.has(bytes)
    }

    /// Bytes of the segments before the one that is written, but for the zeros that each begins with.
    pub fn older_bytes(&self) -> io::Result<u64> {
        let bytes = |first: &u64| self.disk.open(&name_of(*first), false)?.map_or(Ok(0), |file| file.len());
        let older = self.firsts.iter().rev().skip(1).map(bytes);
        older.map(|bytes| Ok(bytes?.saturating_sub(FIRST_BYTES))).sum()
    }

    /// Room on its disk, on which this file is, too.
    pub fn room(&self, file: &str) -> io::Result<Option<Room>> {
        self.disk.room(file)
    }

    /// Bytes of the segment that is written.
    pub fn segment_bytes(&self) -> u64 {
        self.end
    }

    /// Later records go to a new segment, which has room for some small ones from the start. `false`: there is no room
    /// for one, and they go where they went.
    pub fn next_segment(&mut self) -> Result<bool, StoreError> {
        let first = self.last.number + 1;
        if self.firsts.last() == Some(&first) && self.zeros >= FIRST_BYTES {
            // The one that is written has no record yet. Its zeros are not given to others.
            return Ok(true);
        }
        let segment = match open(&*self.disk, &name_of(first)) {
            Err(StoreError::Io { source, .. }) if is_no_room(&source) => return Ok(false),
            opened => opened?,
        };
        let failed = StoreError::io("begin a segment of the log");
        let begun = segment.set_len(0).and_then(|()| segment.write(0, &vec![0; FIRST_BYTES as usize]));
        match begun.and_then(|()| segment.sync()) {
            Err(error) if is_no_room(&error) => {
                let undone = if self.firsts.contains(&first) {
                    // It has no record yet, and is the one that is written.
                    self.zeros = self.end;
                    segment.set_len(0).and_then(|()| segment.sync())
                } else {
                    // A start would take one that is there for the last.
                    self.disk.remove(&name_of(first)).and_then(|()| self.disk.sync_names())
                };
                return undone.map(|()| false).map_err(failed);
            }
            begun => begun.map_err(failed)?,
        }
        self.disk.sync_names().map_err(StoreError::io("sync the store"))?;
        self.segment = segment;
        (self.end, self.zeros) = (0, FIRST_BYTES);
        self.firsts.retain(|known| *known != first);
        self.firsts.push(first);
        Ok(true)
    }

    /// Records up to `number` are not needed any more.
    pub fn forget(&mut self, number: u64) -> Result<(), StoreError> {
        while self.firsts.len() > 1 && self.firsts[1] <= number + 1 {
            self.disk.remove(&name_of(self.firsts[0])).map_err(StoreError::io("remove a segment of the log"))?;
            self.firsts.remove(0);
        }
        Ok(())
    }
}

/// Reads segments one after the other.
struct Scan<'f> {
    applied: Place,
    last: Option<Place>,
    found: &'f mut Found,
}

impl Scan<'_> {
    /// Says where the last good record ends.
    fn segment(&mut self, bytes: &[u8], first: u64, is_last: bool) -> Result<u64, StoreError> {
        let before = self.last.map_or(first - 1, |last| last.number);
        if before + 1 != first {
            // Of records that the state has, a gap harms nobody.
            if first > self.applied.number + 1 {
                let (from, to) = (before.max(self.applied.number) + 1, first - 1);
                return Err(StoreError::Damaged(format!("records {from} to {to} of its log are gone")));
            }
            self.found.notes.push(format!(
                "records {} to {} of the log are gone: the state has them",
                before + 1,
                first - 1
            ));
            self.last = None;
        }
        if self.last.is_none() && first > self.applied.number + 1 {
            let (state, log) = (self.applied.number, first);
            return Err(StoreError::Damaged(format!("its state ends at record {state}, its log begins at {log}")));
        }
        let (mut at, mut next) = (0, first);
        loop {
            while let Some((place, predecessor, record)) = record_at(&bytes[at..]) {
                if place.number != next || self.last.is_some_and(|last| last.checksum != predecessor) {
                    return Err(StoreError::Damaged(format!("record {next} of its log is another one")));
                }
                self.take(place, predecessor, record)?;
                next += 1;
                at += record.len();
            }
            // Zeros were written ahead. That a record is missing shows in front of the next segment by its number, and
            // at the end in the witness.
            let rest = &bytes[at..];
            let Some(last) = rest.iter().rposition(|byte| *byte != 0) else { break };
            let rest = &rest[..(last + 1).next_multiple_of(ALIGN).min(rest.len())];
            let Some(goes_on) = self.damaged_at(rest, next, is_last)? else { break };
            (at, next, self.last) = (at + goes_on, self.applied.number + 1, Some(self.applied));
        }
        if self.last.is_none() && next == self.applied.number + 1 {
            self.last = Some(Place { number: next - 1, checksum: self.applied.checksum });
        }
        Ok(at as u64)
    }

    fn take(&mut self, place: Place, predecessor: u32, record: &[u8]) -> Result<(), StoreError> {
        let differs =
            |number: u64| StoreError::Damaged(format!("record {number} of its log is not the one in its state"));
        if place.number == self.applied.number && place.checksum != self.applied.checksum {
            return Err(differs(place.number));
        }
        if place.number > self.applied.number {
            if place.number == self.applied.number + 1 && predecessor != self.applied.checksum {
                return Err(differs(self.applied.number));
            }
            let unreadable = || StoreError::Damaged(format!("record {} of its log cannot be read", place.number));
            self.found.records.push(puts_of(record).ok_or_else(unreadable)?);
        }
        self.last = Some(place);
        Ok(())
    }

    /// Behind the last good record there is something else. A record behind it shows that it was complete once. Of
    /// records that the state has none is needed: then it is said where the first one is that it has not, if there is
    /// one.
    fn damaged_at(&mut self, rest: &[u8], number: u64, is_last: bool) -> Result<Option<usize>, StoreError> {
        let damaged = || StoreError::Damaged(format!("record {number} of its log is damaged"));
        if number <= self.applied.number {
            let (next, predecessor) = (self.applied.number + 1, Some(self.applied.checksum));
            let goes_on = places(rest, 0, |place| place.0 == next && predecessor == Some(place.1)).next();
            if goes_on.is_none() && places(rest, 0, |place| place.0 > self.applied.number).next().is_some() {
                return Err(damaged());
            }
            self.found.notes.push(format!("record {number} of the log is damaged: the state has it"));
            return Ok(goes_on);
        }
        if !is_last || was_followed(rest, number, self.last.map(|last| last.checksum)) {
            return Err(damaged());
        }
        let bytes = rest.len();
        self.found.notes.push(format!(
            "record {number} of the log is incomplete ({bytes} bytes): it was never acknowledged, and is dropped"
        ));
        Ok(None)
    }
}

/// Where whole records begin of which the number and the checksum of the predecessor are such, from a place on.
fn places<'b>(
    bytes: &'b [u8],
    from: usize,
    is_such: impl Fn((u64, u32)) -> bool + 'b,
) -> impl Iterator<Item = usize> + 'b {
    let from = from.next_multiple_of(ALIGN);
    (from..bytes.len().saturating_sub(HEADER_BYTES - 1)).step_by(ALIGN).filter(move |&at| {
        // Most places are told by their number: checksums take time.
        let (number, predecessor) = (long(bytes, at + 8), word(bytes, at + 16));
        number <= NUMBER_MAX && is_such((number, predecessor)) && record_at(&bytes[at..]).is_some()
    })
}

/// Whether there are records behind the one that begins here and is not whole. What it holds is its client's: that may
/// look like a record, too. So as long as its header is as it should be, those count that stand behind its end, and its
/// successor wherever it stands, which has its checksum.
fn was_followed(rest: &[u8], number: u64, predecessor: Option<u32>) -> bool {
    let behind = |from: usize| places(rest, from, move |place| place.0 > number).next().is_some();
    if rest.len() < HEADER_BYTES || long(rest, 8) != number || predecessor.is_some_and(|own| own != word(rest, 16)) {
        return behind(ALIGN);
    }
    let (len, checksum) = (word(rest, 0) as usize, word(rest, 4));
    behind(HEADER_BYTES + len) || places(rest, ALIGN, |place| place == (number + 1, checksum)).next().is_some()
}

fn open(disk: &dyn Disk, name: &str) -> Result<Arc<dyn DiskFile>, StoreError> {
    let made = disk.open(name, true).map_err(StoreError::io(format!("open {name}")))?;
    Ok(made.expect("it is made if it is not there"))
}

fn read_all(disk: &dyn Disk, name: &str) -> Result<Vec<u8>, StoreError> {
    let file = open(disk, name)?;
    let read = || {
        let mut bytes = vec![0; file.len()? as usize];
        file.read(0, &mut bytes)?;
        Ok(bytes)
    };
    read().map_err(StoreError::io(format!("read {name}")))
}

/// The last record that is known to have been synced.
fn read_witness(witness: &dyn DiskFile) -> Result<u64, StoreError> {
    let read = || {
        let mut bytes = vec![0; (witness.len()? as usize).min(2 * SLOT_BYTES)];
        witness.read(0, &mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(StoreError::io("read the witness"))?;
    let slot = |at: usize| {
        let slot = bytes.get(at..at + 12)?;
        (crc32fast::hash(&slot[..8]) == word(slot, 8)).then(|| long(slot, 0))
    };
    Ok([0, SLOT_BYTES].into_iter().filter_map(slot).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash_disk::CrashDisk;

    fn puts(value: &[u8]) -> Puts {
        Puts::from([(b"key".to_vec(), Some(value.to_vec()))])
    }

    /// Some records, each behind the one before.
    fn records(values: &[&[u8]]) -> Vec<(Place, Vec<u8>)> {
        let mut last = Place::default();
        let mut record = |value: &&[u8]| {
            let record = encode(last, &puts(value)).expect("it is short enough");
            last = record.0;
            record
        };
        values.iter().map(&mut record).collect()
    }

    #[test]
    fn a_record_that_is_too_long_is_not_cut() {
        let long = u32::MAX as usize;
        assert!(length(long).is_ok_and(|bytes| bytes == u32::MAX));
        assert!(matches!(length(long + 1), Err(StoreError::TooLarge(_))));
    }

    fn opened(segment: &[u8], applied: Place) -> Result<(Log, Found), StoreError> {
        let disk = CrashDisk::new();
        open(&disk, &name_of(1)).expect("a file").write(0, segment).expect("written");
        Log::open(Arc::new(disk), applied)
    }

    #[test]
    fn what_looks_like_a_record_within_one_that_is_not_whole_is_none() {
        let forged = encode(Place { number: 1 << 61, checksum: 0 }, &Puts::new()).expect("it is short enough").1;
        // One of eight begins where a record may.
        let contents: Vec<u8> = (0..400).flat_map(|_| forged.iter().chain(&[0])).copied().collect();
        let records = records(&[b"first", &contents, b"third"]);
        let whole = [&records[0].1[..], &records[1].1[..]].concat();
        for kept in [HEADER_BYTES + 1, records[1].1.len() / 2, records[1].1.len() - ALIGN] {
            let (log, found) = opened(&whole[..records[0].1.len() + kept], Place::default()).expect("only torn");
            assert_eq!((log.last, found.records), (records[0].0, vec![puts(b"first")]));
        }
        let mut damaged = [&whole[..], &records[2].1[..]].concat();
        for (at, why) in
            [(0, "its length"), (4, "its checksum"), (8, "its number"), (16, "its predecessor"), (90, "it")]
        {
            let at = records[0].1.len() + at;
            damaged[at] ^= 1;
            assert!(matches!(opened(&damaged, Place::default()), Err(StoreError::Damaged(_))), "{why}");
            damaged[at] ^= 1;
        }
    }

    #[test]
    fn a_damaged_record_that_the_state_has_hides_none_that_it_has_not() {
        let records = records(&[b"first", b"second", b"third", b"fourth"]);
        let mut segment = records.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>();
        segment[HEADER_BYTES + 8] ^= 1;
        let (log, found) = opened(&segment, records[1].0).expect("the state has the first one");
        assert_eq!((log.last, log.end), (records[3].0, segment.len() as u64));
        assert_eq!(found.records, [puts(b"third"), puts(b"fourth")]);
        let (log, found) = opened(&segment, records[3].0).expect("the state has all");
        assert_eq!((log.last, found.records), (records[3].0, vec![]));
        let other = Place { checksum: 1, ..records[1].0 };
        assert!(matches!(opened(&segment, other), Err(StoreError::Damaged(_))), "they are not behind that state");
    }
}
