//! Files of a store of which anything was changed: bits, pieces, lengths, names, records with checksums that are right.
//! Whatever they hold, opening them says what is wrong or gives rows that were there once; nothing panics.
//!
//! One seed is one damaged store. `cargo xtask fuzz` tries them for as long as it is told.

#[path = "../../bluefs-client/tests/support/fuzz.rs"]
mod fuzz;

use std::collections::BTreeMap;
use std::sync::Arc;

use bluefs::{Csn, SessionId, Time};
use bluefs_store::{CrashDisk, Disk, Rows, SessionRow, Store, StoreError, VolumeId};
use fuzz::{for_seeds, Dice};

const SEEDS: u64 = 400;
const USED_MIB_MAX: u64 = 1024;
const VOLUME: VolumeId = VolumeId(1);
/// Bytes of a record in front of its puts, and where records begin.
const HEADER_BYTES: usize = 20;
const ALIGN: usize = 8;

type Dump = BTreeMap<Vec<u8>, Vec<u8>>;

fn dump(store: &Store) -> Result<Dump, StoreError> {
    Ok(store.rows()?.range(b"a", b"~", usize::MAX)?.into_iter().collect())
}

/// A store with several segments of its log, and everything that its rows have ever been.
fn made() -> (CrashDisk, Vec<Dump>) {
    let disk = CrashDisk::new();
    let mut store = Store::on(Arc::new(disk.clone())).expect("a new store").store;
    let mut all = vec![Dump::new()];
    store.set_segment_bytes_max(400);
    store.batch(|batch| batch.create_volume(b"default", Time(1))).expect("a volume");
    all.push(dump(&store).expect("rows"));
    for number in 1..=12 {
        let row = SessionRow { epoch: number, ..SessionRow::default() };
        let put = store.batch(|batch| {
            batch.set_csn(VOLUME, Csn(number))?;
            batch.set_session(VOLUME, SessionId(number % 3), Some(&row))
        });
        put.expect("a batch");
        all.push(dump(&store).expect("rows"));
    }
    // As a killed server leaves it.
    (disk.copy(), all)
}

/// A store's files, to be changed.
struct Files<'d>(&'d CrashDisk);

impl Files<'_> {
    fn read(&self, name: &str) -> Vec<u8> {
        let file = self.0.open(name, false).expect("a disk in memory").expect("it is there");
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        file.read(0, &mut bytes).expect("bytes");
        bytes
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let file = self.0.open(name, true).expect("a disk in memory").expect("it is made");
        file.set_len(bytes.len() as u64).and_then(|()| file.write(0, bytes)).expect("written");
    }
}

fn a_file(dice: &mut Dice, disk: &CrashDisk, of_log: bool) -> Option<String> {
    let names = disk.names().expect("names").into_iter().filter(|name| !of_log || name.starts_with("log-"));
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| names[dice.roll(names.len() as u64) as usize].clone())
}

/// Of a record at some place the checksum is made right.
fn seal(bytes: &mut [u8], at: usize) {
    let Some(len) = bytes.get(at..at + 4).map(|len| u32::from_le_bytes(len.try_into().expect("four"))) else { return };
    let end = (len as usize).saturating_add(at + HEADER_BYTES).checked_next_multiple_of(ALIGN);
    let Some(record) = end.and_then(|end| bytes.get_mut(at..end)) else { return };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&record[..4]);
    hasher.update(&record[8..]);
    record[4..8].copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// Changes something. Whether a checksum was made right: then rows may be found that were never there.
fn damage(dice: &mut Dice, disk: &CrashDisk) -> bool {
    let files = Files(disk);
    let Some(name) = a_file(dice, disk, false) else { return false };
    let mut bytes = files.read(&name);
    let at = dice.roll(bytes.len() as u64 + 1) as usize;
    let longest = 1 << dice.roll(14);
    let len = (dice.roll(longest) as usize).min(bytes.len() - at);
    match dice.roll(11) {
        0 | 1 if !bytes.is_empty() => {
            let bit = dice.roll(bytes.len() as u64 * 8) as usize;
            disk.flip(&name, bit);
        }
        2 => files.write(&name, &bytes[..at]),
        3 => {
            bytes[at..at + len].fill(dice.roll(256) as u8);
            files.write(&name, &bytes);
        }
        4 => {
            let piece = bytes[at..at + len].to_vec();
            let to = dice.roll((bytes.len() - len) as u64 + 1) as usize;
            bytes[to..to + len].copy_from_slice(&piece);
            files.write(&name, &bytes);
        }
        5 => {
            bytes.extend(vec![dice.roll(256) as u8; dice.roll(5000) as usize]);
            files.write(&name, &bytes);
        }
        6 => disk.remove(&name).expect("removed"),
        7 => {
            let other = a_file(dice, disk, false).expect("one is there");
            files.write(&other, &bytes);
        }
        8 => {
            let number = dice.ino();
            files.write(&format!("log-{:016x}", number.0), &bytes);
        }
        9 => {
            let names = ["log-", "log-00000000000000zz", "witness", "state.new", "x"];
            files.write(names[dice.roll(5) as usize], &bytes[at..at + len]);
        }
        _ => {
            let Some(name) = a_file(dice, disk, true) else { return false };
            let mut bytes = files.read(&name);
            let starts = (0..bytes.len()).step_by(ALIGN).collect::<Vec<_>>();
            let Some(&at) = starts.get(dice.roll(8) as usize) else { return false };
            let field = [0, 8, 16, 20, 24, 40][dice.roll(6) as usize];
            let number = dice.number().to_le_bytes();
            for (byte, new) in bytes[at..].iter_mut().skip(field).zip(&number[..1 + dice.roll(8) as usize]) {
                *byte = *new;
            }
            seal(&mut bytes, at);
            files.write(&name, &bytes);
            return true;
        }
    }
    false
}

/// What is said of a store: its rows, if it opens and all of it can be read.
fn opened(disk: &CrashDisk) -> Option<Dump> {
    let mut store = Store::on(Arc::new(disk.clone())).ok()?.store;
    let checked = store.check();
    let rows = dump(&store).ok()?;
    // It goes on, or says why not.
    let _ = store.batch(|batch| batch.set_csn(VOLUME, Csn(99)));
    let report = checked.ok()?;
    report.faults.is_empty().then_some(rows)
}

#[test]
fn whatever_has_become_of_its_files_a_store_says_so_or_has_what_was_there() {
    let (whole, all) = made();
    assert_eq!(opened(&whole.copy()).as_ref(), all.last(), "without damage");
    assert!(Files(&whole).read("witness").len() > ALIGN);
    for_seeds(SEEDS, 1, USED_MIB_MAX, |seeds| {
        for seed in seeds {
            let (mut dice, disk) = (Dice::new(seed), whole.copy());
            let mut is_forged = false;
            for _ in 0..=dice.roll(4) {
                is_forged |= damage(&mut dice, &disk);
            }
            let found = opened(&disk);
            let was_there = |rows| is_forged || all.contains(rows);
            assert!(found.as_ref().is_none_or(was_there), "seed {seed}: rows that were never there");
        }
    });
}
