//! The cache on disk against a list of what was put: whatever becomes of its files, no block is another one.

use std::collections::BTreeMap;
use std::path::Path;

use bluefs::op::BLOCK_BYTES;
use bluefs::Csn;
use proptest::prelude::*;

use super::*;

const VOLUME: u64 = 7;

fn stamp(csn: u64) -> Stamp {
    Stamp { start: 1, csn: Csn(csn) }
}

/// A cache, and when it is known what is in it.
fn open(dir: &Path, bytes_max: u64) -> Disk {
    let disk = Disk::open(dir, bytes_max).expect("a cache");
    disk.use_volume(VOLUME);
    disk.wait_until_ready();
    disk
}

fn get(disk: &Disk, at: At, good: impl Fn(Stamp) -> bool) -> Option<Vec<u8>> {
    disk.find(VOLUME, at, good).and_then(|found| disk.read(VOLUME, &found))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = names(dir).expect("names").iter().filter(|name| number_of(name).is_some()).cloned().collect();
    all.sort();
    all.iter().map(|name| dir.join(name)).collect()
}

/// What was put: of a block and a state there is one truth.
type Model = BTreeMap<(At, u64), Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Put {
        ino: u64,
        index: u64,
        len: usize,
    },
    Restart,
    Flip {
        file: usize,
        at: usize,
        bit: u8,
    },
    Cut {
        file: usize,
        at: usize,
    },
    /// The bytes of a file from a place on are those of another place.
    Smear {
        file: usize,
        from: usize,
        to: usize,
        len: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let put = (0u64..4, 0u64..3, 0usize..=BLOCK_BYTES as usize);
    let step = prop_oneof![
        12 => put.prop_map(|(ino, index, len)| Step::Put { ino, index, len }),
        1 => Just(Step::Restart),
        1 => (0usize..2, any::<usize>(), 0u8..8).prop_map(|(file, at, bit)| Step::Flip { file, at, bit }),
        1 => (0usize..2, any::<usize>()).prop_map(|(file, at)| Step::Cut { file, at }),
        1 => (0usize..2, any::<usize>(), any::<usize>(), 1usize..40_000)
            .prop_map(|(file, from, to, len)| Step::Smear { file, from, to, len }),
    ];
    prop::collection::vec(step, 1..150)
}

/// Contents that differ in each byte from those of other states.
fn contents(at: At, csn: u64, len: usize) -> Vec<u8> {
    let seed = at.0 .0 * 31 + at.1 * 7 + csn * 13;
    (0..len as u64).map(|i| (seed + i / 64) as u8).collect()
}

/// Damages a file beside a cache that is closed.
fn damage(dir: &Path, step: &Step) {
    let files = files(dir);
    let (Step::Flip { file, .. } | Step::Cut { file, .. } | Step::Smear { file, .. }) = step else { return };
    let Some(path) = files.get(*file) else { return };
    let mut bytes = std::fs::read(path).expect("read");
    if bytes.is_empty() {
        return;
    }
    let len = bytes.len();
    match step {
        Step::Flip { at, bit, .. } => bytes[at % len] ^= 1 << bit,
        Step::Cut { at, .. } => bytes.truncate(at % len),
        Step::Smear { from, to, len: count, .. } => {
            let (from, to) = (from % len, to % len);
            let count = *count.min(&(len - from.max(to)));
            bytes.copy_within(from..from + count, to);
        }
        _ => {}
    }
    std::fs::write(path, bytes).expect("written");
}

fn run(steps: &[Step]) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("cache");
    let (mut disk, mut model) = (open(&dir, BYTES_MAX_MIN), Model::new());
    for (csn, step) in (1..).zip(steps) {
        match step {
            Step::Put { ino, index, len } => {
                let at = (Ino(*ino), *index);
                let bytes = contents(at, csn, *len);
                disk.put(VOLUME, at, stamp(csn), &bytes);
                disk.flush();
                let found = get(&disk, at, |found| found == stamp(csn));
                prop_assert_eq!(found.as_ref(), Some(&bytes));
                model.insert((at, csn), bytes);
            }
            _ => {
                disk.flush();
                drop(disk);
                damage(&dir, step);
                disk = reopen(&dir);
            }
        }
        prop_assert!(disk.counts().bytes <= BYTES_MAX_MIN && !disk.counts().is_off);
        for at in (0..4).flat_map(|ino| (0..3).map(move |index| (Ino(ino), index))) {
            for csn in 1..=csn {
                if let Some(bytes) = get(&disk, at, |found| found == stamp(csn)) {
                    prop_assert_eq!(Some(&bytes), model.get(&(at, csn)));
                }
            }
        }
    }
    Ok(())
}

/// The thread of the one before lets go of the directory a little later.
fn reopen(dir: &Path) -> Disk {
    for _ in 0..2_000 {
        match Disk::open(dir, BYTES_MAX_MIN) {
            Err(DiskError::InUse(_)) => std::thread::sleep(Duration::from_millis(1)),
            disk => {
                let disk = disk.expect("a cache");
                disk.use_volume(VOLUME);
                disk.wait_until_ready();
                return disk;
            }
        }
    }
    panic!("it is in use for ever");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_becomes_of_its_files_no_block_is_another_one(steps in steps()) {
        run(&steps)?;
    }
}

/// Two records, cut at each byte and with each bit of them flipped.
#[test]
fn no_cut_and_no_flipped_bit_makes_another_block() {
    let (salt, at) = (99, (Ino(3), 4));
    let mut log = Vec::new();
    append(&mut log, salt, at, stamp(5), b"first");
    append(&mut log, salt, (Ino(3), 5), stamp(6), b"second one");
    let second = HEADER_BYTES + 5;
    let read = |log: &[u8], from: usize| {
        let header = record::Header::of(salt, log.get(from..)?)?;
        let contents = log.get(from + HEADER_BYTES..from + HEADER_BYTES + header.len)?;
        header.is_of(salt, contents).then(|| (header.at, header.stamp, contents.to_vec()))
    };
    let (first, other) =
        (Some((at, stamp(5), b"first".to_vec())), Some(((Ino(3), 5), stamp(6), b"second one".to_vec())));
    assert_eq!((read(&log, 0), read(&log, second)), (first.clone(), other.clone()));
    for len in 0..log.len() {
        let cut = &log[..len];
        assert_eq!(read(cut, 0), first.clone().filter(|_| len >= second), "{len}");
        assert_eq!(read(cut, second), None, "{len}");
    }
    for bit in 0..log.len() * 8 {
        let mut flipped = log.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read(&flipped, 0), first.clone().filter(|_| bit / 8 >= second), "{bit}");
        assert_eq!(read(&flipped, second), other.clone().filter(|_| bit / 8 < second), "{bit}");
    }
    // What another file has left is no record of this one.
    assert_eq!(record::Header::of(salt + 1, &log), None);
}

#[test]
fn it_is_private_and_has_one_user() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().join("a/cache");
    let disk = open(&at, BYTES_MAX_MIN);
    disk.put(VOLUME, (Ino(1), 0), stamp(1), b"secret");
    disk.flush();
    let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o7777;
    assert_eq!(mode(&at), 0o700);
    assert!(files(&at).iter().chain([&at.join(LOCK)]).all(|file| mode(file) == 0o600));
    assert!(matches!(Disk::open(&at, BYTES_MAX_MIN), Err(DiskError::InUse(_))));
    let other = dir.path().join("other");
    std::fs::create_dir(&other).expect("made");
    std::fs::write(other.join("file"), "mine").expect("written");
    let error = Disk::open(&other, BYTES_MAX_MIN).expect_err("something else is there");
    assert_eq!(error.to_string(), format!("cannot use {} as a cache: something else is in it", other.display()));
}

#[test]
fn another_volume_gets_nothing_and_begins_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = open(dir.path(), BYTES_MAX_MIN);
    disk.put(VOLUME, (Ino(1), 0), stamp(1), b"of the first");
    disk.flush();
    assert!(get(&disk, (Ino(1), 0), |_| true).is_some());
    assert!(disk.find(VOLUME + 1, (Ino(1), 0), |_| true).is_none());
    disk.use_volume(VOLUME + 1);
    disk.wait_until_ready();
    // What was on its way is not taken for the other one's.
    disk.put(VOLUME, (Ino(2), 0), stamp(1), b"late");
    disk.flush();
    for volume in [VOLUME, VOLUME + 1] {
        assert!((1..3).all(|ino| disk.find(volume, (Ino(ino), 0), |_| true).is_none()), "{volume}");
    }
    assert_eq!(files(dir.path()), Vec::<PathBuf>::new());
}

/// The older file goes; what of it was used lately goes into the newer one.
#[test]
fn what_is_used_stays_and_the_rest_makes_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = open(dir.path(), BYTES_MAX_MIN);
    let block = vec![1; BLOCK_BYTES as usize];
    let used = (Ino(500), 0);
    for ino in 0..200 {
        let at = if ino == 0 { used } else { (Ino(ino), 0) };
        disk.put(VOLUME, at, stamp(1), &block);
        disk.flush();
        assert_eq!(get(&disk, used, |_| true).as_deref(), Some(&*block), "{ino}");
        disk.flush();
        assert!(disk.counts().bytes <= BYTES_MAX_MIN);
    }
    assert!(get(&disk, (Ino(1), 0), |_| true).is_none() && get(&disk, (Ino(199), 0), |_| true).is_some());
    assert_eq!(files(dir.path()).len(), 2);
    assert_eq!(disk.files_from(VOLUME, Ino(190), 3), [Ino(190), Ino(191), Ino(192)]);
    assert_eq!(disk.files_from(VOLUME, Ino(199), 9), [Ino(199), used.0]);
    disk.drop_old(VOLUME, used.0, |_| false);
    assert_eq!(disk.files_from(VOLUME, Ino(200), 9), []);
}

/// A directory that is gone is a disk that fails.
#[test]
fn a_disk_that_fails_ends_the_cache_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = open(dir.path(), BYTES_MAX_MIN);
    std::fs::remove_dir_all(dir.path()).expect("removed");
    disk.put(VOLUME, (Ino(1), 0), stamp(1), b"x");
    disk.flush();
    assert!(disk.counts().is_off);
    disk.put(VOLUME, (Ino(1), 0), stamp(1), b"x");
    disk.use_volume(VOLUME + 1);
    disk.wait_until_ready();
    disk.flush();
    assert!(disk.find(VOLUME, (Ino(1), 0), |_| true).is_none() && disk.counts().bytes == 0);
}
