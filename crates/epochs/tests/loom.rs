//! Interleavings of calls, grants and a failure, up to `LOOM_MAX_PREEMPTIONS` (6 unless told) preemptions; and the
//! same with each error of [`Fault`] planted, which some model has to find. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p epochs --test loom --release`.
//!
//! Loom knows the order of fences only, not that of sequentially consistent operations: so there is a fence after each
//! exchange under loom, where the hardware needs none.
#![cfg(loom)]

use epochs::planted::{plant, planted, Fault};
use epochs::{About, Ask, Asker, Busy, Epoch, Epochs, Object, Permits, Process, Thread, Want, Work, YoungPipes};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use std::panic::{catch_unwind, AssertUnwindSafe};

const AHEAD: usize = 0;
const OTHER: usize = 1;
/// What the process that is ahead writes, and what the other one writes.
const GUESSED: u64 = 1;
const CERTAIN: u64 = 2;

/// What was there before a modification, and in which epoch that was made.
type Log = Vec<(Epoch, u64)>;

/// Two processes of one thread each. The first depends on epoch 1.
struct World {
    epochs: Epochs,
    processes: [Process; 2],
    threads: [Thread; 2],
    objects: Vec<Object>,
    contents: Vec<AtomicU64>,
    logs: Vec<Mutex<Log>>,
    /// Which processes can be put back.
    checkpoints: [AtomicU64; 2],
    /// Held by whoever plays the supervisor: that is one thread.
    supervisor: Mutex<()>,
}

impl World {
    fn new(objects: usize) -> Arc<World> {
        let world = World {
            epochs: Epochs::new(),
            processes: [Process::new(0), Process::new(0)],
            threads: [Thread::new(), Thread::new()],
            objects: (0..objects).map(|slot| Object::new(key(slot))).collect(),
            contents: (0..objects).map(|_| AtomicU64::new(0)).collect(),
            logs: (0..objects).map(|_| Mutex::new(Log::new())).collect(),
            checkpoints: [AtomicU64::new(0), AtomicU64::new(0)],
            supervisor: Mutex::new(()),
        };
        let guess = world.epochs.guess(world.asker(AHEAD), &world.threads, || world.checkpoint(AHEAD));
        assert_eq!(guess, Ok(1));
        Arc::new(world)
    }

    fn asker(&self, process: usize) -> Asker<'_> {
        Asker { process: &self.processes[process], thread: process, siblings: &[] }
    }

    fn checkpoint(&self, process: usize) {
        self.checkpoints[process].store(1, Ordering::SeqCst);
    }

    fn keep(&self, slot: usize) {
        let epoch = 1;
        self.logs[slot].lock().unwrap().push((epoch, self.contents[slot].load(Ordering::SeqCst)));
    }

    /// A call: `effect` is what the kernel does.
    fn call<R>(&self, process: usize, wanted: &[Want], effect: impl FnOnce() -> R) -> R {
        let entered =
            self.epochs.enter(&self.processes[process], &self.threads, process, &self.objects, wanted, |slot| {
                self.keep(slot);
                true
            });
        if entered.is_err() {
            self.ask(process, wanted);
        }
        let result = effect();
        self.threads[process].clear();
        result
    }

    fn ask(&self, process: usize, wanted: &[Want]) {
        loop {
            {
                let _one = self.supervisor.lock().unwrap();
                let granted = self.epochs.grant(
                    self.asker(process),
                    &self.threads,
                    &self.objects,
                    wanted,
                    || self.checkpoint(process),
                    |slot| self.keep(slot),
                );
                if granted.is_ok() {
                    return;
                }
            }
            loom::thread::yield_now();
        }
    }

    fn write(&self, process: usize, slot: usize, value: u64) {
        let want = [Want { slot, key: key(slot), modifies: true }];
        self.call(process, &want, || self.contents[slot].store(value, Ordering::SeqCst));
    }

    fn read(&self, process: usize, slot: usize) -> u64 {
        let want = [Want { slot, key: key(slot), modifies: false }];
        self.call(process, &want, || self.contents[slot].load(Ordering::SeqCst))
    }

    /// Epoch 1 fails: what depends on it is put back. The supervisor waits for whoever is in a call.
    fn fail(&self) {
        let slots = 0..self.objects.len();
        for slot in slots {
            loop {
                {
                    let _one = self.supervisor.lock().unwrap();
                    match self.epochs.begin_to_put_back(&self.objects, slot, 1, &self.threads) {
                        Ok(true) => {
                            let before = self.before(slot);
                            if let Some(before) = before {
                                self.contents[slot].store(before, Ordering::SeqCst);
                            }
                            self.epochs.put_back(&self.objects, slot, 0);
                            break;
                        }
                        Ok(false) => break,
                        Err(Busy::Marked(_) | Busy::Working(_)) => (),
                    }
                }
                loom::thread::yield_now();
            }
        }
    }

    /// The oldest thing that was kept is what was there before the epoch.
    fn before(&self, slot: usize) -> Option<u64> {
        let log = self.logs[slot].lock().unwrap();
        log.first().map(|&(_, before)| before)
    }

    /// A process that depends on the guess can be put back.
    fn check_checkpoints(&self) {
        for process in [AHEAD, OTHER] {
            let taken = self.checkpoints[process].load(Ordering::SeqCst) == 1;
            assert!(self.processes[process].epoch() == 0 || taken, "process {process} depends without a checkpoint");
        }
    }
}

fn key(slot: usize) -> u64 {
    slot as u64 + 7
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(6));
    builder.check(model);
}

/// Whoever has seen what a guess wrote depends on the guess.
fn a_reader_depends_on_what_it_sees() {
    let world = World::new(1);
    let writer = world.clone();
    let thread = loom::thread::spawn(move || writer.write(AHEAD, 0, GUESSED));
    let seen = world.read(OTHER, 0);
    assert!(seen != GUESSED || world.processes[OTHER].epoch() == 1, "a guess was seen and is not depended on");
    thread.join().unwrap();
    world.check_checkpoints();
}

/// The same for the second of two objects.
fn a_reader_of_two_depends_on_what_it_sees() {
    let world = World::new(2);
    let writer = world.clone();
    let thread = loom::thread::spawn(move || writer.write(AHEAD, 1, GUESSED));
    let both = [0, 1].map(|slot| Want { slot, key: key(slot), modifies: false });
    let seen = world.call(OTHER, &both, || world.contents[1].load(Ordering::SeqCst));
    assert!(seen != GUESSED || world.processes[OTHER].epoch() == 1, "a guess was seen and is not depended on");
    thread.join().unwrap();
}

/// What was written by somebody who depends on nothing is there after a failure, and what a guess wrote is not.
fn a_failure_takes_back_what_depends_and_nothing_else() {
    let world = World::new(1);
    let writer = world.clone();
    let thread = loom::thread::spawn(move || writer.write(AHEAD, 0, GUESSED));
    world.write(OTHER, 0, CERTAIN);
    let other_depends = world.processes[OTHER].epoch() == 1;
    thread.join().unwrap();
    world.check_checkpoints();
    world.fail();
    let left = world.contents[0].load(Ordering::SeqCst);
    let expected = if other_depends { 0 } else { CERTAIN };
    assert_eq!(left, expected, "after the failure; the other one depends on the guess: {other_depends}");
}

/// A failure while somebody looks: what is seen is not a guess, or its reader is known to depend on it.
fn a_failure_is_not_seen_half() {
    let world = World::new(1);
    world.write(AHEAD, 0, GUESSED);
    let failing = world.clone();
    let thread = loom::thread::spawn(move || failing.fail());
    let seen = world.read(OTHER, 0);
    let depends = world.processes[OTHER].epoch() == 1;
    assert!(seen == 0 || depends, "a guess was seen and is not depended on");
    thread.join().unwrap();
    assert_eq!(world.contents[0].load(Ordering::SeqCst), 0);
}

/// A failure while the process that is ahead writes on: nothing of that is left when it is back.
fn a_failure_waits_for_a_call_under_way() {
    let world = World::new(1);
    world.write(AHEAD, 0, GUESSED);
    let writer = world.clone();
    let thread = loom::thread::spawn(move || {
        // It is stopped by the failure, or its call is over before.
        let want = [Want { slot: 0, key: key(0), modifies: true }];
        let process = &writer.processes[AHEAD];
        let keep = |_| true;
        if writer.epochs.enter(process, &writer.threads, AHEAD, &writer.objects, &want, keep).is_ok() {
            let touched_again = writer.objects[0].version();
            writer.contents[0].store(GUESSED + 10, Ordering::SeqCst);
            writer.threads[AHEAD].clear();
            return Some(touched_again);
        }
        None
    });
    let version = world.objects[0].version();
    world.fail();
    let left = world.contents[0].load(Ordering::SeqCst);
    let after = thread.join().unwrap();
    // A call that began after the object was put back found it untouched, and touched it for the first time again.
    let began_later = after.is_some_and(|touched| touched > version + 1);
    assert!(left == 0 || began_later, "{left} is left of the guess");
}

/// Whoever works on a permit sees nothing of a guess, and what he works on does not change under his hands. Loom tells
/// if both may be at the contents at once.
fn nobody_works_on_what_changes() {
    let permits = Arc::new((Permits::new(), Work::new(), UnsafeCell::new(0u64)));
    permits.0.revoke();
    let permit = permits.0.number();
    let worker = permits.clone();
    let thread = loom::thread::spawn(move || {
        let (permits, work, contents) = &*worker;
        // Twice: a publication that was taken back is no hindrance to the next one.
        for _ in 0..2 {
            if work.begin(permits, permit, About::Anything) {
                // SAFETY: what the model is about: loom looks at it.
                assert_eq!(contents.with(|contents| unsafe { *contents }), 0, "a guess was seen");
                work.end();
            }
        }
    });
    let (permits, work, contents) = &*permits;
    if !permits.revoke_and_look(|| work.is_under_way()) {
        // SAFETY: as above.
        contents.with_mut(|contents| unsafe { *contents = GUESSED });
    }
    thread.join().unwrap();
    assert!(!work.is_under_way());
}

/// Whoever changes what is in a file lets those go on who sleep until there is something in a stream. Their next look
/// at the file needs another permit.
fn a_stream_is_read_while_a_file_changes() {
    let permits = Arc::new((Permits::new(), Work::new(), UnsafeCell::new(0u64)));
    permits.0.revoke();
    let permit = permits.0.number();
    let worker = permits.clone();
    let thread = loom::thread::spawn(move || {
        let (permits, work, file) = &*worker;
        for about in [About::Stream, About::Anything] {
            if work.begin(permits, permit, about) {
                if about == About::Anything {
                    // SAFETY: what the model is about: loom looks at it.
                    assert_eq!(file.with(|file| unsafe { *file }), 0, "a guess was seen");
                }
                work.end();
            }
        }
    });
    let (permits, work, file) = &*permits;
    if !permits.revoke_and_look(|| work.is_under_way_elsewhere()) {
        // SAFETY: as above.
        file.with_mut(|file| unsafe { *file = GUESSED });
    }
    thread.join().unwrap();
}

/// Whoever ends the epoch of a pipe goes on when nobody is in a call on it, and nobody begins one.
fn nobody_works_on_a_pipe_that_is_young_no_more() {
    const PIPE: u64 = 40;
    let young = Arc::new((YoungPipes::new(), Work::new(), UnsafeCell::new(0u64)));
    young.0.begin_epoch(1);
    young.0.note(PIPE, 1);
    young.0.go_on();
    let supervisor = young.clone();
    let thread = loom::thread::spawn(move || {
        let (young, work, contents) = &*supervisor;
        young.begin_epoch(2);
        young.go_on();
        if !work.is_under_way() {
            // SAFETY: what the model is about: loom looks at it.
            contents.with_mut(|contents| unsafe { *contents = GUESSED });
        }
    });
    let (young, work, contents) = &*young;
    for _ in 0..2 {
        if young.begin(work, |epoch| young.has(PIPE, epoch)) {
            // SAFETY: what the model is about: loom looks at it.
            assert_eq!(contents.with(|contents| unsafe { *contents }), 0, "a guess was seen");
            work.end();
        }
    }
    thread.join().unwrap();
}

/// A process says that it ends, and then looks whether it may. Whoever makes a checkpoint of its parent ends the epoch,
/// and then looks whether a child ends: what the checkpoint has is there when it is put back.
fn a_checkpoint_has_no_child_that_ends() {
    let shared = Arc::new((YoungPipes::new(), Work::new(), AtomicU64::new(0)));
    shared.0.begin_epoch(1);
    shared.0.go_on();
    let child = shared.clone();
    let thread = loom::thread::spawn(move || {
        let (young, work, ending) = &*child;
        let is_late = planted(Fault::EndSaidLate);
        if !is_late {
            ending.fetch_or(1, Ordering::SeqCst);
        }
        let ends = young.begin(work, |now| now == 1);
        if ends == is_late {
            ending.store(u64::from(ends), Ordering::SeqCst);
        }
        ends
    });
    let (young, _, ending) = &*shared;
    young.begin_epoch(2);
    let has_checkpoint = ending.load(Ordering::SeqCst) == 0;
    young.go_on();
    let has_ended = thread.join().unwrap();
    assert!(!(has_checkpoint && has_ended), "a child is gone that a checkpoint has");
}

/// A thread that asked is let go with a permit; meanwhile somebody else is granted a change.
fn who_was_let_go_is_seen() {
    let permits = Arc::new((Permits::new(), Work::new(), UnsafeCell::new(0u64)));
    permits.0.revoke();
    // It stands still: the supervisor publishes for it.
    permits.1.begin_for(permits.0.number(), About::Anything);
    let worker = permits.clone();
    let thread = loom::thread::spawn(move || {
        let (_, work, contents) = &*worker;
        // SAFETY: as above.
        assert_eq!(contents.with(|contents| unsafe { *contents }), 0, "a guess was seen");
        work.end();
    });
    let (permits, work, contents) = &*permits;
    if !permits.revoke_and_look(|| work.is_under_way()) {
        // SAFETY: as above.
        contents.with_mut(|contents| unsafe { *contents = GUESSED });
    }
    thread.join().unwrap();
}

/// Changes on a permit are not undone one by one: what was there is kept before a change gives new dependencies, and
/// that is what a failure puts back. Nothing that was done on the permit is lost by that.
fn a_failure_keeps_what_was_done_on_a_permit() {
    let shared = Arc::new((Permits::new(), Work::new(), AtomicU64::new(0)));
    shared.0.revoke();
    let permit = shared.0.number();
    let worker = shared.clone();
    let thread = loom::thread::spawn(move || {
        let (permits, work, contents) = &*worker;
        let mut made = 0;
        for _ in 0..2 {
            if work.begin(permits, permit, About::Anything) {
                contents.fetch_add(1, Ordering::Relaxed);
                work.end();
                made += 1;
            }
        }
        made
    });
    let (permits, work, contents) = &*shared;
    let early = planted(Fault::KeptBeforeRevoked).then(|| contents.load(Ordering::Relaxed));
    if !permits.revoke_and_look(|| work.is_under_way()) {
        let kept = early.unwrap_or_else(|| contents.load(Ordering::Relaxed));
        contents.store(100, Ordering::Relaxed);
        contents.store(kept, Ordering::Relaxed);
    }
    let made = thread.join().unwrap();
    assert_eq!(contents.load(Ordering::Relaxed), made, "a change on a permit is lost");
}

/// Somebody sleeps on a permit until there is something to be read. Whoever puts in what depends on a guess calls him
/// out of his call first.
fn a_sleeper_takes_nothing_of_a_guess() {
    let shared = Arc::new((Permits::new(), Work::new(), AtomicU64::new(0), AtomicU64::new(0)));
    shared.0.revoke();
    let permit = shared.0.number();
    let sleeper = shared.clone();
    let thread = loom::thread::spawn(move || {
        let (permits, work, contents, called) = &*sleeper;
        if !work.begin(permits, permit, About::Anything) {
            return;
        }
        if planted(Fault::SleepsUnpublished) {
            work.end();
        }
        loop {
            if called.load(Ordering::Acquire) != 0 && !planted(Fault::CallIgnored) {
                break;
            }
            let seen = contents.load(Ordering::Acquire);
            assert_ne!(seen, GUESSED, "what depends on a guess was taken on a permit");
            if seen == CERTAIN || planted(Fault::CallIgnored) && called.load(Ordering::Acquire) != 0 {
                break;
            }
            loom::thread::yield_now();
        }
        work.end();
    });
    let (permits, work, contents, called) = &*shared;
    if permits.revoke_and_look(|| work.is_under_way()) {
        called.store(1, Ordering::Release);
        while work.is_under_way() && !planted(Fault::CallIgnored) {
            loom::thread::yield_now();
        }
    }
    contents.store(GUESSED, Ordering::Release);
    called.store(1, Ordering::Release);
    thread.join().unwrap();
}

/// A mark says for one descriptor what was decided on one permit. It is not looked at on the next one.
fn a_mark_means_nothing_on_the_next_permit() {
    let shared = Arc::new((Permits::new(), Work::new(), AtomicU64::new(0)));
    shared.0.revoke();
    let marked_on = shared.0.number();
    let worker = shared.clone();
    let thread = loom::thread::spawn(move || {
        let (permits, work, contents) = &*worker;
        let permit = if planted(Fault::OldMarkUsed) { permits.number() } else { marked_on };
        if work.begin(permits, permit, About::Anything) {
            assert_eq!(contents.load(Ordering::Acquire), 0, "a mark was used after its permit");
            work.end();
        }
    });
    let (permits, work, contents) = &*shared;
    if !permits.revoke_and_look(|| work.is_under_way()) {
        contents.store(GUESSED, Ordering::Release);
    }
    thread.join().unwrap();
}

/// A thread closes or replaces a descriptor that another one uses on a permit (decisions/0240): it takes the mark away
/// first, and is let go when the other one does not work.
fn nobody_uses_a_descriptor_that_is_replaced() {
    let shared = Arc::new((Permits::new(), Work::new(), AtomicU64::new(1), AtomicU64::new(0)));
    shared.0.revoke();
    let permit = shared.0.number();
    let user = shared.clone();
    let thread = loom::thread::spawn(move || {
        let (permits, work, mark, replaced) = &*user;
        if mark.load(Ordering::SeqCst) == 0 || !work.begin(permits, permit, About::Anything) {
            return;
        }
        if planted(Fault::MarkNotLookedAtAgain) || mark.load(Ordering::SeqCst) != 0 {
            assert_eq!(replaced.load(Ordering::Acquire), 0, "a descriptor was replaced while a mark was believed");
        }
        work.end();
    });
    let (_, work, mark, replaced) = &*shared;
    if planted(Fault::MarkTakenLast) {
        replaced.store(u64::from(!work.is_under_way()), Ordering::Release);
        mark.store(0, Ordering::SeqCst);
    } else {
        mark.swap(0, Ordering::SeqCst);
        loom::sync::atomic::fence(Ordering::SeqCst);
        if !work.is_under_way() {
            replaced.store(1, Ordering::Release);
        }
    }
    thread.join().unwrap();
}

/// A thread was allowed to open something, and marks the descriptor as opened on the permit that its process has
/// (decisions/0318). Meanwhile another thread's call takes a checkpoint of the process, and gets it another permit: a
/// checkpoint that has the descriptor must not leave it a mark that holds.
fn a_checkpoint_has_nothing_that_is_marked_as_opened_since() {
    let (permits, work) = (Permits::new(), Work::new());
    permits.revoke();
    let (process, mark) = (AtomicU64::new(permits.number()), AtomicU64::new(0));
    // The process's descriptors: whether it is open.
    let shared = Arc::new((permits, work, process, mark, Mutex::new(false)));
    let opener = shared.clone();
    let thread = loom::thread::spawn(move || {
        let (permits, work, process, mark, is_open) = &*opener;
        let before = process.load(Ordering::Relaxed);
        *is_open.lock().unwrap() = true;
        let permit = if planted(Fault::PermitTakenBehind) { process.load(Ordering::Relaxed) } else { before };
        if work.begin(permits, permit, About::Anything) {
            mark.store(permit, Ordering::SeqCst);
            work.end();
        }
    });
    let (permits, _, process, mark, is_open) = &*shared;
    permits.revoke();
    let has_it = *is_open.lock().unwrap();
    process.store(permits.number(), Ordering::SeqCst);
    thread.join().unwrap();
    let is_marked = mark.load(Ordering::SeqCst) == permits.number();
    assert!(!(has_it && is_marked), "what a checkpoint has is taken for new");
}

/// Something is held of a file, so that who looks at it with the kernel has seen what was before. It is made, and then
/// nothing is held (decisions/0251): whoever finds so afterwards may have looked before.
fn a_look_knows_what_was_held_when_it_was_made() {
    let shared = Arc::new((Permits::new(), Work::new(), AtomicU64::new(1), AtomicU64::new(0)));
    shared.0.revoke();
    let permit = shared.0.number();
    let looker = shared.clone();
    let thread = loom::thread::spawn(move || {
        let (permits, work, is_held, file) = &*looker;
        if !work.begin(permits, permit, About::Anything) {
            return;
        }
        let seen = file.load(Ordering::Acquire);
        let is_past = is_held.load(Ordering::Acquire) == 0;
        if is_past && (planted(Fault::PermitNotLookedAtAgain) || permits.number() == permit) {
            assert_eq!(seen, GUESSED, "what was held was not seen");
        }
        work.end();
    });
    let (permits, _, is_held, file) = &*shared;
    permits.revoke();
    file.store(GUESSED, Ordering::Release);
    is_held.store(0, Ordering::SeqCst);
    thread.join().unwrap();
}

const MODELS: [(&str, fn()); 16] = [
    (
        "a checkpoint has nothing that is marked as opened since",
        a_checkpoint_has_nothing_that_is_marked_as_opened_since,
    ),
    ("a failure keeps what was done on a permit", a_failure_keeps_what_was_done_on_a_permit),
    ("a sleeper takes nothing of a guess", a_sleeper_takes_nothing_of_a_guess),
    ("a mark means nothing on the next permit", a_mark_means_nothing_on_the_next_permit),
    ("nobody uses a descriptor that is replaced", nobody_uses_a_descriptor_that_is_replaced),
    ("a look knows what was held when it was made", a_look_knows_what_was_held_when_it_was_made),
    ("nobody works on what changes", nobody_works_on_what_changes),
    ("a stream is read while a file changes", a_stream_is_read_while_a_file_changes),
    ("nobody works on a pipe that is young no more", nobody_works_on_a_pipe_that_is_young_no_more),
    ("a checkpoint has no child that ends", a_checkpoint_has_no_child_that_ends),
    ("who was let go is seen", who_was_let_go_is_seen),
    ("a reader depends on what it sees", a_reader_depends_on_what_it_sees),
    ("a reader of two depends on what it sees", a_reader_of_two_depends_on_what_it_sees),
    ("a failure takes back what depends, and nothing else", a_failure_takes_back_what_depends_and_nothing_else),
    ("a failure is not seen half", a_failure_is_not_seen_half),
    ("a failure waits for a call under way", a_failure_waits_for_a_call_under_way),
];

/// In one test: what is planted is planted for all.
#[test]
fn the_protocol_holds_and_each_planted_error_is_found() {
    for (name, model) in MODELS {
        println!("{name}");
        explore(model);
    }
    let faults = [
        Fault::NotPublished,
        Fault::PublishedLate,
        Fault::PublishedRelaxed,
        Fault::OnlyFirstSeen,
        Fault::MarkIgnored,
        Fault::UnsettledTouched,
        Fault::OthersIgnored,
        Fault::OthersFirst,
        Fault::NothingKept,
        Fault::WorkIgnored,
        Fault::GrantNotPublished,
        Fault::NoCheckpoint,
        Fault::PutBackUnderWork,
        Fault::WorkNotPublished,
        Fault::WorkRelaxed,
        Fault::PermitLookedAtFirst,
        Fault::StreamPublished,
        Fault::EpochEndedLast,
        Fault::RevokedRelaxed,
        Fault::WorkersIgnored,
        Fault::WorkersLookedAtFirst,
        Fault::KeptBeforeRevoked,
        Fault::SleepsUnpublished,
        Fault::CallIgnored,
        Fault::OldMarkUsed,
        Fault::EndSaidLate,
        Fault::MarkNotLookedAtAgain,
        Fault::MarkTakenLast,
        Fault::PermitNotLookedAtAgain,
        Fault::PermitTakenBehind,
    ];
    for fault in faults {
        plant(Some(fault));
        let found = MODELS.iter().find(|(_, model)| catch_unwind(AssertUnwindSafe(|| explore(*model))).is_err());
        plant(None);
        match found {
            Some((name, _)) => println!("{fault:?}: found by: {name}"),
            None => panic!("{fault:?}: no model finds it"),
        }
    }
}

/// Who asks has nothing published.
#[test]
fn a_call_that_asks_publishes_nothing() {
    loom::model(|| {
        let world = World::new(1);
        world.objects[0].ask_about();
        let want = [Want { slot: 0, key: key(0), modifies: false }];
        let answer =
            world.epochs.enter(&world.processes[OTHER], &world.threads, OTHER, &world.objects, &want, |_| true);
        assert_eq!(answer, Err(Ask::Unsettled));
        assert!(!world.threads[OTHER].works());
    });
}
