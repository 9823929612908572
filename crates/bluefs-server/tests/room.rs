//! A store whose disk is nearly full, or full: what takes more room is refused, and everything else goes on.

mod support;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use bluefs::op::{Change, Content, Errno, Failure, SetAttr};
use bluefs::{Cred, Csn, Ino, Interval, Kind, Name, Outcome, Runs, SessionId, Step, Time};
use bluefs_server::{Action, ConnectionId, Engine, Event, Now};
use bluefs_store::{CrashDisk, Disk, DiskFile, Room, Rows, Store, StoreError};
use bluefs_wire::{Reply, Request, PROTOCOL_VERSION};
use support::Numbered;

const A: ConnectionId = ConnectionId(1);
const INO: Ino = Ino(2);
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A disk that says that it has so much room, and what may be had in fact: bytes that files of the log become longer
/// by. The state's are not counted: in these tests it is written by checkpoints only.
#[derive(Debug, Clone)]
struct Nearly {
    disk: CrashDisk,
    size: u64,
    free: Arc<AtomicU64>,
    quota: Arc<AtomicU64>,
}

impl Nearly {
    fn new() -> Nearly {
        Nearly::of(100 * GIB)
    }

    fn of(size: u64) -> Nearly {
        let (free, quota) = (Arc::new(AtomicU64::new(GIB)), Arc::new(AtomicU64::new(GIB)));
        Nearly { disk: CrashDisk::new(), size, free, quota }
    }

    fn set_free(&self, bytes: u64) {
        self.free.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of all segments of the log.
    fn log_bytes(&self) -> usize {
        self.disk.lengths().iter().filter(|(name, _)| name.starts_with("log-")).map(|(_, bytes)| bytes).sum()
    }
}

#[derive(Debug)]
struct Counted(Arc<dyn DiskFile>, Arc<AtomicU64>);

impl DiskFile for Counted {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    /// What there is room for is written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let more = (offset + data.len() as u64).saturating_sub(self.0.len()?);
        let missing = more.saturating_sub(self.1.load(Ordering::Relaxed));
        let fits = (data.len() as u64).saturating_sub(missing) as usize;
        if fits > 0 {
            self.1.fetch_sub(more - missing, Ordering::Relaxed);
            self.0.write(offset, &data[..fits])?;
        }
        match missing {
            0 => Ok(()),
            _ => Err(io::ErrorKind::QuotaExceeded.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.fetch_add(self.0.len()?.saturating_sub(len), Ordering::Relaxed);
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Disk for Nearly {
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let file = self.disk.open(name, create)?;
        let counted = |file| -> Arc<dyn DiskFile> { Arc::new(Counted(file, self.quota.clone())) };
        Ok(if name.starts_with("log-") { file.map(counted) } else { file })
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.disk.names()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn room(&self, _: &str) -> io::Result<Option<Room>> {
        Ok(Some(Room { free: self.free.load(Ordering::Relaxed), size: self.size, file: 0 }))
    }

    fn has(&self, bytes: u64) -> bool {
        bytes < self.quota.load(Ordering::Relaxed).min(self.free.load(Ordering::Relaxed))
    }
}

struct Bench {
    engine: Engine,
    access: Numbered,
    millis: u64,
    number: u64,
}

impl Bench {
    /// A server of this disk, and a client that has said hello.
    fn new(disk: &Nearly) -> Bench {
        Bench::with(Store::on(Arc::new(disk.clone())).expect("a store").store)
    }

    fn with(store: Store) -> Bench {
        let engine = Engine::new(store, Now { millis: 0, wall: Time(1) }, || 7).expect("an engine");
        let mut bench = Bench { engine, access: Numbered::default(), millis: 0, number: 0 };
        bench.connect(None);
        bench
    }

    /// Says hello, as a new session or as one that goes on.
    fn connect(&mut self, session: Option<(SessionId, u64)>) {
        self.turn(vec![Event::Opened(A)]).expect("a turn");
        let (version, volume, secret) = (PROTOCOL_VERSION, vec![], vec![]);
        let hello = Request::Hello { version, volume, session, acknowledged: 0, secret };
        let told = self.turn(vec![Event::Message(A, hello)]).expect("a turn");
        assert!(matches!(told[..], [Action::Send(A, Reply::Welcome { .. }), ..]), "{told:?}");
    }

    fn now(&self) -> Now {
        Now { millis: self.millis, wall: Time(1) }
    }

    fn turn(&mut self, events: Vec<Event>) -> Result<Vec<Action>, StoreError> {
        self.millis += 1000;
        self.engine.handle(events, self.now(), &self.access)
    }

    /// What becomes of a change.
    fn change(&mut self, change: Change) -> Result<(), Errno> {
        self.number += 1;
        self.submit(change).expect("a turn")
    }

    fn submit(&mut self, change: Change) -> Result<Result<(), Errno>, StoreError> {
        self.submit_all(vec![change])
    }

    fn submit_all(&mut self, changes: Vec<Change>) -> Result<Result<(), Errno>, StoreError> {
        let told = self.turn(vec![self.interval(changes)])?;
        Ok(outcomes(told)[0])
    }

    fn interval(&self, changes: Vec<Change>) -> Event {
        let steps = changes.into_iter().map(|change| Step { cred: 0, time: None, change }).collect();
        let creds = vec![Cred::root()];
        let interval = Interval { number: self.number, base: Csn(0), after: Runs::new(), reads: vec![], creds, steps };
        Event::Message(A, Request::Submit { interval })
    }

    /// Files without a name.
    fn nameless(&self) -> usize {
        self.engine.volumes().expect("figures").iter().map(|volume| volume.nameless).sum()
    }
}

/// What became of intervals.
fn outcomes(told: Vec<Action>) -> Vec<Result<(), Errno>> {
    let decided = |action| match action {
        Action::Send(_, Reply::Decided { outcome: Outcome::Committed { .. }, .. }) => Some(Ok(())),
        Action::Send(_, Reply::Decided { outcome: Outcome::Failed(Failure::Refused { errno, .. }), .. }) => {
            Some(Err(errno))
        }
        Action::Send(_, Reply::Decided { outcome, .. }) => panic!("{outcome:?}"),
        _ => None,
    };
    told.into_iter().filter_map(decided).collect()
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn create(file: &str) -> Change {
    let (dir, name, kind, target) = (Ino::ROOT, name(file), Kind::File, Vec::new());
    Change::Create { dir, name, ino: None, kind, mode: 0o644, rdev: 0, target }
}

fn write(offset: u64, bytes: u64) -> Change {
    Change::Write { ino: INO, offset, content: Content::Inline(vec![b'x'; bytes as usize]) }
}

fn set(set: SetAttr) -> Change {
    Change::SetAttr { ino: INO, set }
}

#[test]
fn what_takes_room_is_refused_before_the_disk_is_full() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    assert_eq!(bench.change(write(0, 40_000)), Ok(()));
    disk.set_free(200 * MIB);
    assert_eq!(bench.change(create("other")), Err(Errno::NOSPC));
    assert_eq!(bench.change(write(GIB, 4)), Err(Errno::NOSPC), "a block more");
    assert_eq!(bench.change(write(1, 4)), Ok(()), "over what is there");
    disk.set_free(10 * MIB);
    assert_eq!(bench.change(write(1, 4)), Err(Errno::NOSPC), "it is in the log, and twice in the state for a while");
    assert_eq!(bench.change(set(SetAttr { mode: Some(0o600), ..SetAttr::default() })), Ok(()));
    assert_eq!(bench.change(set(SetAttr { size: Some(20_000), ..SetAttr::default() })), Ok(()));
    assert_eq!(bench.change(Change::Unlink { dir: Ino::ROOT, name: name("file") }), Ok(()));
    disk.set_free(GIB);
    assert_eq!(bench.change(create("other")), Ok(()));
}

/// It was looked at the disk each 8 MiB of the log, and one change may be larger.
#[test]
fn what_is_larger_than_what_is_left_is_refused() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    disk.set_free(268 * MIB);
    bench.number += 1;
    let five = (0..5).map(|i| write(i * MIB, MIB)).collect();
    assert_eq!(bench.submit_all(five).expect("a turn"), Err(Errno::NOSPC));
    assert_eq!(bench.change(write(0, MIB)), Ok(()));
}

/// It stayed short until the log had 64 MiB or the server was started again.
#[test]
fn a_disk_that_is_short_is_given_back_what_the_log_has() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    (0..12).for_each(|i| assert_eq!(bench.change(write(i * MIB, MIB)), Ok(())));
    assert!(disk.log_bytes() as u64 > 12 * MIB);
    disk.set_free(200 * MIB);
    (0..3).for_each(|_| _ = bench.turn(vec![]).expect("a turn"));
    assert!((disk.log_bytes() as u64) < MIB, "all that it had is in the state");
    let deeds = disk.disk.deeds();
    (0..9).for_each(|_| _ = bench.turn(vec![]).expect("a turn"));
    assert_eq!(disk.disk.deeds(), deeds, "and nothing more is done");
}

/// A quota, or a disk that others fill, ended the server.
#[test]
fn a_change_for_which_there_is_no_room_is_refused_when_it_comes_again() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    disk.quota.store(300_000, Ordering::Relaxed);
    bench.number += 1;
    let large = || write(0, MIB);
    assert!(matches!(bench.submit(large()), Err(StoreError::Full(_))));
    bench.engine.begin_again(bench.now()).expect("the store goes on");
    assert!(bench.engine.became_full() && !bench.engine.became_full(), "it is told once");
    let session = SessionId(1);
    bench.connect(Some((session, 1)));
    assert!(matches!(bench.submit(large()), Ok(Err(Errno::NOSPC))), "the same one");
    assert_eq!(bench.change(create("other")), Err(Errno::NOSPC));
    assert_eq!(bench.change(set(SetAttr { mode: Some(0o600), ..SetAttr::default() })), Ok(()));
    disk.quota.store(GIB, Ordering::Relaxed);
    bench.millis += 1000;
    assert_eq!(bench.change(large()), Ok(()));
    assert_eq!(bench.change(create("other")), Ok(()));
    drop(bench);
    let opened = Store::on(Arc::new(disk.disk.copy())).expect("it opens again");
    assert_eq!(opened.notes, Vec::<String>::new());
    assert!(opened.store.check().expect("rows").faults.is_empty());
}

/// A checkpoint that has no room is made later: the log has everything.
#[test]
fn a_checkpoint_waits_for_room() {
    let disk = Nearly::new();
    let mut store = Store::on(Arc::new(disk.clone())).expect("a store").store;
    store.set_segment_bytes_max(100_000);
    disk.quota.store(900_000, Ordering::Relaxed);
    for i in 0..30 {
        let name = [b'a' + i; 4000];
        store.batch(|batch| batch.create_volume(&name, Time(1))).expect("the log goes on");
    }
    assert!(store.is_postponed() && store.log_bytes() > 100_000);
    assert!(!store.give_back().expect("no end"), "there is no room yet");
    let volumes = |disk: &Nearly| {
        let opened = Store::on(Arc::new(disk.disk.copy())).expect("it opens again");
        opened.store.rows().expect("rows").volumes().expect("volumes").len()
    };
    assert_eq!(volumes(&disk), 30);
    disk.quota.store(GIB, Ordering::Relaxed);
    assert!(store.give_back().expect("a checkpoint"));
    assert!(!store.is_postponed() && store.log_bytes() == 0);
    assert_eq!(volumes(&disk), 30);
}

/// It went on with 8 MiB: the same change was accepted, had no room and disconnected everybody, again and again.
#[test]
fn a_full_store_goes_on_with_room_for_what_had_none() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    disk.quota.store(10 * MIB, Ordering::Relaxed);
    // Two intervals, as large as they may be, in one batch.
    let large = |bench: &mut Bench, begins: u64| {
        let intervals = [0, 1].map(|i| {
            bench.number = begins + i;
            bench.interval((7 * i..7 * i + 7).map(|i| write(i * MIB, MIB)).collect())
        });
        bench.turn(intervals.into()).map(outcomes)
    };
    let begins = bench.number + 1;
    assert!(matches!(large(&mut bench, begins), Err(StoreError::Full(_))));
    bench.engine.begin_again(bench.now()).expect("the store goes on");
    bench.connect(Some((SessionId(1), 1)));
    bench.millis += 1000;
    assert_eq!(large(&mut bench, begins).expect("a turn"), [Err(Errno::NOSPC); 2]);
    disk.quota.store(20 * MIB, Ordering::Relaxed);
    bench.millis += 1000;
    assert_eq!(bench.change(write(0, MIB)), Ok(()));
}

/// Changes for which the zeros are enough that the log keeps for small records.
fn small_ones_go_on(bench: &mut Bench) {
    let mode = |i: u16| set(SetAttr { mode: Some(0o600 + i % 8), ..SetAttr::default() });
    (0..50).for_each(|i| assert_eq!(bench.change(mode(i)), Ok(())));
    assert_eq!(bench.change(create("other")), Err(Errno::NOSPC));
    assert_eq!(bench.change(Change::Unlink { dir: Ino::ROOT, name: name("file") }), Ok(()));
}

/// Nothing could be removed any more as soon as others had taken the last of the disk: the zeros ahead of the log had
/// been cut away. Each new beginning found that again, and everybody waited.
#[test]
fn what_is_small_has_room_where_something_large_had_none() {
    for (quota, bytes) in [(300_000, MIB), (0, 50_000)] {
        let disk = Nearly::new();
        let mut bench = Bench::new(&disk);
        assert_eq!(bench.change(create("file")), Ok(()));
        disk.quota.store(quota, Ordering::Relaxed);
        bench.number += 1;
        assert!(matches!(bench.submit(write(0, bytes)), Err(StoreError::Full(_))), "not even if zeros are enough");
        bench.engine.begin_again(bench.now()).expect("the store goes on");
        disk.quota.store(0, Ordering::Relaxed);
        bench.connect(Some((SessionId(1), 1)));
        small_ones_go_on(&mut bench);
    }
}

/// A new segment had no zeros, and a log that was opened again had few.
#[test]
fn what_is_small_has_room_in_a_new_segment_and_behind_a_start() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    (0..12).for_each(|i| assert_eq!(bench.change(write(i * MIB, MIB)), Ok(())));
    disk.set_free(200 * MIB);
    (0..3).for_each(|_| _ = bench.turn(vec![]).expect("a turn"));
    assert!((disk.log_bytes() as u64) < MIB, "a new segment");
    drop(bench);
    let mut bench = Bench::new(&disk);
    disk.quota.store(0, Ordering::Relaxed);
    small_ones_go_on(&mut bench);
}

/// What each segment begins with was taken for something that a checkpoint gives back.
#[test]
fn a_small_disk_that_is_short_makes_no_checkpoint_for_each_change() {
    let disk = Nearly::of(32 * MIB);
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    assert_eq!(bench.change(write(0, 200_000)), Ok(()));
    disk.set_free(700_000);
    let mode = |i: u16| set(SetAttr { mode: Some(0o600 + i % 8), ..SetAttr::default() });
    let deeds = |bench: &mut Bench, i| {
        let before = disk.disk.deeds();
        assert_eq!(bench.change(mode(i)), Ok(()));
        disk.disk.deeds() - before
    };
    let most = (0..20).map(|i| deeds(&mut bench, i)).skip(5).max();
    assert!(most.is_some_and(|most| most <= 4), "{most:?} deeds for one change");
}

/// It tried to free a file of which it had freed a part, had no room, began again, and tried at once.
#[test]
fn a_full_store_does_not_begin_again_for_what_nobody_waits_for() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    (0..20).for_each(|i| assert_eq!(bench.change(write(i * MIB, MIB)), Ok(())));
    assert_eq!(bench.change(Change::Unlink { dir: Ino::ROOT, name: name("file") }), Ok(()));
    bench.turn(vec![Event::Message(A, Request::Released { ino: INO })]).expect("a turn");
    disk.set_free(0);
    bench.turn(vec![]).expect("a part is freed");
    disk.set_free(GIB);
    disk.quota.store(0, Ordering::Relaxed);
    bench.number += 1;
    let content = || Content::Inline(vec![b'x'; MIB as usize]);
    let more = |offset| Change::Write { ino: Ino(3), offset, content: content() };
    let large = vec![create("other"), more(0), more(MIB)];
    assert!(matches!(bench.submit_all(large), Err(StoreError::Full(_))));
    bench.engine.begin_again(bench.now()).expect("the store goes on");
    // Others take what the zeros ahead of the log had.
    disk.quota.store(0, Ordering::Relaxed);
    for _ in 0..3 {
        bench.turn(vec![]).expect("it waits for room");
        assert_eq!(bench.nameless(), 1);
    }
    disk.quota.store(GIB, Ordering::Relaxed);
    (0..3).for_each(|_| _ = bench.turn(vec![]).expect("a turn"));
    assert_eq!(bench.nameless(), 0);
}

/// What two clients remove in one batch is compared by itself.
#[test]
fn who_removes_something_is_not_refused_for_what_others_remove() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    (0..24).for_each(|i| assert_eq!(bench.change(write(i * MIB, MIB)), Ok(())));
    disk.set_free(0);
    let cuts = [12 * MIB, 0].map(|size| {
        bench.number += 1;
        bench.interval(vec![set(SetAttr { size: Some(size), ..SetAttr::default() })])
    });
    let told = bench.turn(cuts.into()).expect("a turn");
    assert_eq!(outcomes(told), [Ok(()), Ok(())]);
}

/// Nobody was told why everything that takes room was refused.
#[test]
fn a_checkpoint_that_waits_for_room_is_told() {
    let disk = Nearly::new();
    let mut store = Store::on(Arc::new(disk.clone())).expect("a store").store;
    store.set_segment_bytes_max(100_000);
    let mut bench = Bench::with(store);
    assert_eq!(bench.change(create("file")), Ok(()));
    assert!(!bench.engine.became_full());
    disk.quota.store(900_000, Ordering::Relaxed);
    assert_eq!(bench.change(write(0, 200_000)), Ok(()));
    assert!(bench.engine.became_full() && !bench.engine.became_full(), "it is told once");
    disk.quota.store(GIB, Ordering::Relaxed);
    assert_eq!(bench.change(write(0, 200_000)), Ok(()));
}

/// What the state had since the start was counted as if it had still to be written.
#[test]
fn a_checkpoint_behind_a_start_needs_no_room_for_what_the_start_has_written() {
    let disk = Nearly::new();
    let mut bench = Bench::new(&disk);
    assert_eq!(bench.change(create("file")), Ok(()));
    assert_eq!(bench.change(write(0, MIB)), Ok(()));
    drop(bench);
    let mut store = Store::on(Arc::new(disk.clone())).expect("a store").store;
    store.set_segment_bytes_max(100_000);
    disk.quota.store(3 * MIB / 2, Ordering::Relaxed);
    assert!(store.give_back().expect("a checkpoint"));
}

/// It is changed in memory meanwhile, and redb writes what is too much of that to the state.
#[test]
fn while_a_checkpoint_waits_the_log_has_a_bound() {
    let disk = Nearly::new();
    let mut store = Store::on(Arc::new(disk.clone())).expect("a store").store;
    store.set_segment_bytes_max(100_000);
    disk.set_free(MIB / 2);
    let put = |store: &mut Store| {
        let name = [b'a'; 200_000];
        store.batch(|batch| batch.create_volume(&name, Time(1))).expect("the log goes on");
    };
    put(&mut store);
    assert!(store.is_postponed() && store.left_when_full().rest > 0);
    (0..41).for_each(|_| put(&mut store));
    assert_eq!(store.left_when_full().rest, 0);
}
