//! The store against a naive model, through crashes, and with damaged files.

use std::collections::BTreeMap;
use std::sync::Arc;

use bluefs::apply::{apply, Context};
use bluefs::memory::MemoryTree;
use bluefs::op::{Change, Content, RenameMode, SetAttr, XattrMode};
use bluefs::query::{answer, Answer, Query};
use bluefs::tree::Tree;
use bluefs::{Cred, Csn, Ino, Interval, Kind, Name, Outcome, Runs, SessionId, Step, Time};
use bluefs_store::{CrashDisk, Opened, Rows, SessionRow, Staged, Store, StoreError, View, VolumeId};
use proptest::prelude::*;

const SESSION: SessionId = SessionId(7);
const VOLUME: VolumeId = VolumeId(1);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn context() -> Context {
    Context { session: SESSION, read_only: false, now: Time(5) }
}

fn interval(number: u64, changes: Vec<Change>) -> Interval {
    let steps = changes.into_iter().map(|change| Step { cred: 0, time: None, change }).collect();
    Interval { number, base: Csn(0), after: Runs::new(), reads: vec![], creds: vec![Cred::root()], steps }
}

fn open(disk: &CrashDisk) -> Result<Opened, StoreError> {
    Store::on(Arc::new(disk.clone()))
}

/// All rows that have a meaning for clients.
fn dump(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let rows = store.rows().expect("rows");
    rows.range(b"a", b"~", usize::MAX).expect("rows").into_iter().collect()
}

/// A batch as the server makes it: the changes, the commit, the outcome.
fn commit(store: &mut Store, interval: &Interval) -> bool {
    commit_staged(store, interval, &Staged::new())
}

/// The same of an interval that takes contents which were sent before it.
fn commit_staged(store: &mut Store, interval: &Interval, staged: &Staged) -> bool {
    let result = store.batch(|batch| {
        let applied = apply(&View::new(batch, VOLUME, staged), interval, context())?;
        let Ok((changes, effects)) = applied else { return Ok(false) };
        let csn = Csn(batch.csn(VOLUME)?.0 + 1);
        batch.write(VOLUME, &changes)?;
        batch.set_csn(VOLUME, csn)?;
        batch.set_outcome(VOLUME, SESSION, interval.number, &Outcome::Committed { csn, effects })?;
        Ok::<_, StoreError>(true)
    });
    result.expect("a batch")
}

fn fresh(disk: &CrashDisk) -> Store {
    let mut store = open(disk).expect("a new store").store;
    let made = store.batch(|batch| batch.create_volume(b"default", Time(1)));
    assert_eq!(made.expect("a volume"), VOLUME);
    store
}

fn changes() -> impl Strategy<Value = Change> {
    let ino = || (1u64..8).prop_map(Ino);
    let a_name = || prop::sample::select(vec!["a", "b", "c"]).prop_map(name);
    let kind = prop::sample::select(vec![Kind::File, Kind::File, Kind::Dir]);
    let data = || (0usize..40_000, any::<u8>()).prop_map(|(len, byte)| Content::Inline(vec![byte; len]));
    prop_oneof![
        3 => (ino(), a_name(), kind).prop_map(|(dir, name, kind)| Change::Create {
            dir, name, ino: None, kind, mode: 0o755, rdev: 0, target: vec![],
        }),
        1 => (ino(), a_name()).prop_map(|(dir, name)| Change::Unlink { dir, name }),
        1 => (ino(), a_name()).prop_map(|(dir, name)| Change::Rmdir { dir, name }),
        1 => (ino(), ino(), a_name()).prop_map(|(ino, dir, name)| Change::Link { ino, dir, name }),
        2 => (ino(), a_name(), ino(), a_name()).prop_map(|(from_dir, from, to_dir, to)| Change::Rename {
            from_dir, from, to_dir, to, mode: RenameMode::Replace,
        }),
        3 => (ino(), 0u64..60_000, data()).prop_map(|(ino, offset, content)| Change::Write { ino, offset, content }),
        1 => (ino(), data()).prop_map(|(ino, content)| Change::Append { ino, content }),
        1 => (ino(), 0u64..60_000, 1u64..40_000).prop_map(|(ino, offset, len)| Change::Punch { ino, offset, len }),
        1 => (ino(), 0u64..60_000, 1u64..40_000, any::<bool>(), any::<bool>()).prop_map(
            |(ino, offset, len, keep_size, zero)| Change::Allocate { ino, offset, len, keep_size, zero }
        ),
        1 => (ino(), 0u64..60_000).prop_map(|(ino, size)| Change::SetAttr {
            ino, set: SetAttr { size: Some(size), ..SetAttr::default() },
        }),
        1 => (ino(), a_name(), 0usize..9).prop_map(|(ino, n, len)| Change::SetXattr {
            ino, name: name(&format!("user.{}", n.as_bytes()[0])), value: vec![1; len], mode: XattrMode::Either,
        }),
        1 => (ino(), a_name()).prop_map(|(ino, n)| Change::RemoveXattr {
            ino, name: name(&format!("user.{}", n.as_bytes()[0])),
        }),
    ]
}

/// Everything that can be asked about the first inodes.
fn answers<T: Tree>(tree: &T) -> Vec<Result<Answer, String>>
where
    T::Error: std::fmt::Debug,
{
    let mut queries = vec![Query::Space];
    for ino in (1..12).map(Ino) {
        queries.extend([Query::Inode(ino), Query::Xattrs(ino), Query::List { dir: ino, after: None, max: 2 }]);
        queries.push(Query::List { dir: ino, after: Some(name("b")), max: 9 });
        queries.extend((0..7).map(|i| Query::Read { ino, offset: i * 16_000, len: 16_000 }));
        queries.extend(["97", "98"].map(|n| Query::Xattr { ino, name: name(&format!("user.{n}")) }));
    }
    queries.iter().map(|query| answer(tree, &Cred::root(), query).map_err(|stop| format!("{stop:?}"))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn as_a_tree_in_memory(intervals in prop::collection::vec(prop::collection::vec(changes(), 1..4), 1..25)) {
        let disk = CrashDisk::new();
        let mut store = fresh(&disk);
        store.set_segment_bytes_max(100_000);
        let mut model = MemoryTree::new(Time(1));
        for (i, changes) in intervals.into_iter().enumerate() {
            let interval = interval(i as u64 + 1, changes);
            let expected = apply(&model, &interval, context()).expect("in memory");
            prop_assert_eq!(commit(&mut store, &interval), expected.is_ok());
            if let Ok((changes, _)) = expected {
                model.write(SESSION, changes);
            }
            if i % 8 == 7 {
                drop(store);
                store = open(&disk).expect("opens again").store;
            }
        }
        let (rows, staged) = (store.rows().expect("rows"), Staged::new());
        prop_assert_eq!(answers(&View::new(&rows, VOLUME, &staged)), answers(&model));
        let orphans: Vec<(Ino, bool)> = model.orphans.iter().map(|ino| (*ino, false)).collect();
        prop_assert_eq!(rows.orphans(VOLUME).expect("rows"), orphans);
    }
}

/// A history with checkpoints: the disk, and after how many deeds which rows were acknowledged.
#[allow(clippy::type_complexity, reason = "pairs")]
fn history() -> (CrashDisk, Vec<(usize, BTreeMap<Vec<u8>, Vec<u8>>)>, Store) {
    let disk = CrashDisk::new();
    let mut acknowledged = vec![(0, BTreeMap::new())];
    let mut store = fresh(&disk);
    acknowledged.push((disk.deeds(), dump(&store)));
    store.set_segment_bytes_max(6_000);
    let mut taken = 0;
    for number in 1..=24u64 {
        let file = format!("f{}", number % 5);
        let create = |file: &str| Change::Create {
            dir: Ino::ROOT,
            name: name(file),
            ino: None,
            kind: Kind::File,
            mode: 0o644,
            rdev: 0,
            target: vec![],
        };
        let change = match number % 10 {
            1..=5 => vec![create(&file)],
            6 => vec![Change::Unlink { dir: Ino::ROOT, name: name(&file) }, create(&file)],
            // Contents in several blocks, which are durable with the interval that takes them, or not at all.
            8 => vec![Change::Append { ino: Ino(2 + number % 5), content: Content::Staged(number) }],
            _ => {
                let content = Content::Inline(vec![number as u8; 700 * number as usize % 5000]);
                vec![Change::Append { ino: Ino(2 + number % 5), content }]
            }
        };
        let staged = Staged::from([((SESSION, number), vec![number as u8; 20_000])]);
        if commit_staged(&mut store, &interval(number, change), &staged) {
            acknowledged.push((disk.deeds(), dump(&store)));
            taken += u32::from(number % 10 == 8);
        }
    }
    assert!(taken > 0, "an interval takes staged contents");
    assert!(acknowledged.len() > 15, "{}", acknowledged.len());
    (disk, acknowledged, store)
}

/// A generator of numbers: the same seed, the same test.
fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

#[test]
fn no_crash_loses_what_was_acknowledged() {
    let (disk, acknowledged, store) = history();
    drop(store);
    let (mut seed, mut cuts) = (1, 0);
    for deeds in 0..=disk.deeds() {
        let known = acknowledged.iter().rposition(|(at, _)| *at <= deeds).expect("the first");
        for way in 0..4 {
            let crashed = disk.crash(deeds, |len| match way {
                0 => len,
                1 => 0,
                2 => [0, len][random(&mut seed) % 2],
                _ => random(&mut seed) % (len + 1),
            });
            let label = format!("after {deeds} of {} deeds, way {way}", disk.deeds());
            let mut store = open(&crashed).unwrap_or_else(|error| panic!("{label}: {error}")).store;
            let found = dump(&store);
            let next = acknowledged.get(known + 1).map(|(_, rows)| rows);
            assert!(found == acknowledged[known].1 || Some(&found) == next, "{label}: other rows");
            cuts += 1;
            // While it was opened there may have been another crash.
            let recovery = crashed.deeds();
            for _ in 0..2 {
                let at = random(&mut seed) % (recovery + 1);
                let again = crashed.crash(at, |len| random(&mut seed) % (len + 1));
                let label = format!("{label}, and after {at} of {recovery} deeds of the next start");
                let store = open(&again).unwrap_or_else(|error| panic!("{label}: {error}")).store;
                assert!(dump(&store) == found, "{label}: other rows");
                cuts += 1;
            }
            // It goes on, and what it writes now is kept as well.
            let row = SessionRow { epoch: 3, ..SessionRow::default() };
            store.batch(|batch| batch.set_session(VOLUME, SESSION, Some(&row))).expect("a batch");
            let (expected, copy) = (dump(&store), crashed.copy());
            assert_eq!(
                dump(&open(&copy).unwrap_or_else(|error| panic!("{label}: {error}")).store),
                expected,
                "{label}"
            );
        }
    }
    assert!(cuts > 2_000, "{cuts} cuts");
}

#[track_caller]
fn flips_are_noticed(disk: &CrashDisk, expected: &BTreeMap<Vec<u8>, Vec<u8>>, count: usize) {
    let (mut seed, mut refused, mut harmless) = (2, 0, 0);
    for (file, len) in disk.lengths() {
        let bits = len * 8;
        for i in 0..count.min(bits) {
            let bit = if bits <= count { i } else { random(&mut seed) * 31 % bits };
            let damaged = disk.copy();
            damaged.flip(&file, bit);
            match open(&damaged) {
                Err(StoreError::Damaged(_)) => refused += 1,
                Err(other) => panic!("bit {bit} of {file}: {other}"),
                Ok(opened) => {
                    harmless += 1;
                    assert!(dump(&opened.store) == *expected, "bit {bit} of {file} ({len} bytes): other rows");
                }
            }
        }
    }
    assert!(refused > 0 && harmless > 0, "{refused} refused, {harmless} harmless");
}

#[test]
fn a_flipped_bit_is_noticed_or_harmless() {
    let (disk, _, store) = history();
    let expected = dump(&store);
    let killed = disk.copy();
    flips_are_noticed(&killed, &expected, 600);
    drop(store);
    flips_are_noticed(&disk.copy(), &expected, 600);
}

#[test]
fn every_bit_of_the_last_record_is_watched() {
    let disk = CrashDisk::new();
    let mut store = fresh(&disk);
    // Its last byte is not zero.
    store.batch(|batch| batch.set_csn(VOLUME, Csn(u64::MAX))).expect("a batch");
    let killed = disk.copy();
    let (log, len) = a_log(&killed);
    let written = killed.used(&log).next_multiple_of(8);
    assert!(written < len, "{written} of {len} bytes: there are zeros behind it");
    for bit in 0..written * 8 {
        let damaged = killed.copy();
        damaged.flip(&log, bit);
        assert!(matches!(open(&damaged), Err(StoreError::Damaged(_))), "bit {bit} of {written} bytes");
    }
    // Behind it nothing was acknowledged.
    for bit in (written * 8..len * 8).step_by(409) {
        let damaged = killed.copy();
        damaged.flip(&log, bit);
        assert!(open(&damaged).is_ok(), "bit {bit} of {len} bytes");
    }
}

fn a_log(disk: &CrashDisk) -> (String, usize) {
    disk.lengths().into_iter().find(|(file, _)| file.starts_with("log-")).expect("a log")
}

/// A file that becomes longer makes a sync wait for the file system's own notes of that.
#[test]
fn small_records_do_not_each_make_the_log_longer() {
    let disk = CrashDisk::new();
    let mut store = fresh(&disk);
    let mut lengths = std::collections::BTreeSet::new();
    for number in 1..=200 {
        store.batch(|batch| batch.set_csn(VOLUME, Csn(number))).expect("a batch");
        lengths.insert(a_log(&disk).1);
    }
    // As many zeros as there were bytes.
    assert!(lengths.len() < 6, "{lengths:?}");
}

/// A record that was lost as a whole leaves zeros in its place.
#[test]
fn a_record_that_has_become_zeros_is_missed() {
    let disk = CrashDisk::new();
    let mut store = fresh(&disk);
    for number in 1..=3 {
        store.batch(|batch| batch.set_csn(VOLUME, Csn(number))).expect("a batch");
    }
    let (log, _) = a_log(&disk);
    let (before, damaged) = (disk.used(&log), disk.copy());
    store.batch(|batch| batch.set_csn(VOLUME, Csn(4))).expect("a batch");
    let after = disk.copy();
    assert!(open(&after.copy()).is_ok());
    // The witness of the fourth, without it.
    let from = before.next_multiple_of(8);
    after.zero(&log, from);
    assert!(matches!(open(&after), Err(StoreError::Damaged(_))));
    assert!(open(&damaged).is_ok());
}

#[test]
fn a_batch_that_fails_changes_nothing() {
    let disk = CrashDisk::new();
    let mut store = fresh(&disk);
    let before = dump(&store);
    let failed: Result<(), StoreError> = store.batch(|batch| {
        batch.set_csn(VOLUME, Csn(9))?;
        Err(StoreError::Missing)
    });
    assert!(matches!(failed, Err(StoreError::Missing)));
    assert_eq!(dump(&store), before);
}

#[test]
fn outcomes_are_kept_until_they_are_acknowledged() {
    let disk = CrashDisk::new();
    let mut store = fresh(&disk);
    let outcome = |csn| Outcome::Committed { csn: Csn(csn), effects: vec![] };
    store
        .batch(|batch| (1..=3).try_for_each(|number| batch.set_outcome(VOLUME, SESSION, number, &outcome(number))))
        .expect("a batch");
    store.batch(|batch| batch.forget_outcomes(VOLUME, SESSION, 2)).expect("a batch");
    drop(store);
    let store = open(&disk).expect("opens").store;
    let kept = store.rows().expect("rows").outcomes(VOLUME, SESSION).expect("rows");
    assert_eq!(kept, BTreeMap::from([(3, outcome(3))]));
}

#[test]
fn a_directory_has_one_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    assert!(matches!(Store::open(&path), Err(StoreError::Missing)));
    let first = Store::open_or_create(&path).expect("a store");
    assert!(matches!(Store::open_or_create(&path), Err(StoreError::InUse)));
    drop(first);
    assert!(Store::open(&path).is_ok());
    std::fs::write(dir.path().join("other"), "x").expect("a file");
    assert!(matches!(Store::open_or_create(dir.path()), Err(StoreError::NotAStore)));
}
