//! Interleavings of the two protocols of this crate, up to `LOOM_MAX_PREEMPTIONS` (4 unless told) preemptions, and of
//! each protocol broken, so that the models show that they can fail. Run with `RUSTFLAGS="--cfg loom" cargo test -p
//! commit-clock --test loom --release`.
//!
//! What they do not show: they still pass without the second look at the generation in `open_handle`, and (bound 3)
//! with a relaxed `fetch_add` in `close_transaction`. Do not weaken either because this file stays green: loom treats
//! `SeqCst` only approximately.
#![cfg(loom)]

use commit_clock::{AtomicClock, Clock, Handle, Transactions};
use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

/// The only domain.
const D: usize = 0;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(4));
    builder.check(model);
}

/// How a writer goes about a change; only the first is right.
#[derive(Clone, Copy, PartialEq)]
enum Writer {
    Correct,
    /// It holds no handle: the flush may begin between tag and change.
    WithoutHandle,
    /// It tags after the change: a reader may look in between.
    TagsAfter,
    /// It closes its handle before the change.
    ClosesEarly,
}

struct World {
    transactions: Transactions,
    handle: Handle,
    /// The dependencies of the file.
    tag: AtomicClock,
    /// The file in the page cache, and on the platter: how many times it was changed.
    cached: AtomicU64,
    platter: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            transactions: Transactions::new(1),
            handle: Handle::new(),
            tag: AtomicClock::new(),
            cached: AtomicU64::new(0),
            platter: AtomicU64::new(0),
        })
    }

    fn write(&self, how: Writer) {
        if how != Writer::WithoutHandle {
            self.transactions.open_handle(&self.handle);
        }
        let transaction = self.transactions.join(D);
        if how == Writer::ClosesEarly {
            self.handle.close();
        }
        if how != Writer::TagsAfter {
            self.tag.raise(D, transaction);
        }
        self.cached.store(1, Ordering::Release);
        if how == Writer::TagsAfter {
            self.tag.raise(D, transaction);
        }
        self.handle.close();
    }

    /// Read the file, then write to the outside if that is allowed.
    fn read_and_output(&self) {
        let seen = self.cached.load(Ordering::Acquire);
        let clock = self.tag.load(1);
        if seen == 1 && self.transactions.is_resolved(&clock) {
            assert_eq!(self.platter.load(Ordering::Acquire), 1, "output shows what is not durable");
        }
    }

    /// As `read_and_output`, by the short cut: "nothing in the world is uncommitted".
    fn read_and_output_if_clean(&self) {
        let seen = self.cached.load(Ordering::Acquire);
        if seen == 1 && self.transactions.is_clean() {
            assert_eq!(self.platter.load(Ordering::Acquire), 1, "output shows what is not durable");
        }
    }

    fn commit(&self) {
        let (closing, ticket) = self.transactions.close_transaction(D);
        while !self.transactions.is_quiet(ticket, &self.handle) {
            thread::yield_now();
        }
        // The flush: what is in the page cache now reaches the platter.
        let cached = self.cached.load(Ordering::Acquire);
        self.platter.store(cached, Ordering::Release);
        self.transactions.set_committed(D, closing);
    }
}

fn tag_against_commit(how: Writer, read: fn(&World)) {
    explore(move || {
        let world = World::new();
        let (writer, committer) = (world.clone(), world.clone());
        let writer = thread::spawn(move || writer.write(how));
        let committer = thread::spawn(move || committer.commit());
        read(&world);
        writer.join().unwrap();
        committer.join().unwrap();
        // Whoever looks when all is over must not be misled either.
        read(&world);
    });
}

#[test]
fn a_handle_and_an_early_tag_keep_output_behind_the_flush() {
    tag_against_commit(Writer::Correct, World::read_and_output);
}

#[test]
fn the_short_cut_of_a_clean_world_is_safe() {
    tag_against_commit(Writer::Correct, World::read_and_output_if_clean);
}

#[test]
#[should_panic(expected = "output shows what is not durable")]
fn broken_no_handle() {
    tag_against_commit(Writer::WithoutHandle, World::read_and_output);
}

#[test]
#[should_panic(expected = "output shows what is not durable")]
fn broken_tag_after_the_change() {
    tag_against_commit(Writer::TagsAfter, World::read_and_output);
}

#[test]
#[should_panic(expected = "output shows what is not durable")]
fn broken_handle_closed_before_the_change() {
    tag_against_commit(Writer::ClosesEarly, World::read_and_output);
}

#[test]
#[should_panic(expected = "output shows what is not durable")]
fn broken_clean_world_without_handle() {
    tag_against_commit(Writer::WithoutHandle, World::read_and_output_if_clean);
}

/// Two commits in a row while one change is made: `open_handle` may meet a generation that moves twice.
#[test]
fn two_commits_in_a_row() {
    explore(|| {
        let world = World::new();
        let writer = world.clone();
        let writer = thread::spawn(move || writer.write(Writer::Correct));
        world.commit();
        world.read_and_output();
        world.commit();
        world.read_and_output();
        writer.join().unwrap();
        world.read_and_output();
    });
}

/// The order in which a sender merges and sends, and a receiver receives and merges.
#[derive(Clone, Copy, PartialEq)]
enum Transfer {
    Correct,
    /// The sender merges after the data can be received.
    MergesAfterSending,
    /// The receiver merges before it receives.
    MergesBeforeReceiving,
}

fn clock(transaction: u64) -> Clock {
    let mut clock = Clock::NONE;
    clock.0[D] = transaction;
    clock
}

/// Two senders with different dependencies put a byte each into a pipe; who receives a byte takes its sender's.
fn merge_against_transfer(how: Transfer) {
    explore(move || {
        let pipe = Arc::new((AtomicClock::new(), AtomicU64::new(0)));
        let senders = [1u64, 2].map(|transaction| {
            let pipe = pipe.clone();
            thread::spawn(move || {
                let (object, data) = &*pipe;
                if how != Transfer::MergesAfterSending {
                    object.merge(&clock(transaction), 1);
                }
                data.fetch_add(transaction, Ordering::AcqRel);
                if how == Transfer::MergesAfterSending {
                    object.merge(&clock(transaction), 1);
                }
            })
        });
        let (object, data) = &*pipe;
        let mut mine = Clock::NONE;
        if how == Transfer::MergesBeforeReceiving {
            mine.merge(&object.load(1));
        }
        let received = data.load(Ordering::Acquire);
        if how != Transfer::MergesBeforeReceiving {
            mine.merge(&object.load(1));
        }
        // 1 from the first, 2 from the second, 3 from both.
        let needed = if received >= 2 { 2 } else { received };
        assert!(mine.0[D] >= needed, "received data without its dependencies");
        for sender in senders {
            sender.join().unwrap();
        }
        assert_eq!(object.load(1), clock(2), "the maximum of both");
    });
}

#[test]
fn data_never_travels_without_its_dependencies() {
    merge_against_transfer(Transfer::Correct);
}

#[test]
#[should_panic(expected = "received data without its dependencies")]
fn broken_merge_after_transfer() {
    merge_against_transfer(Transfer::MergesAfterSending);
}

#[test]
#[should_panic(expected = "received data without its dependencies")]
fn broken_merge_before_receiving() {
    merge_against_transfer(Transfer::MergesBeforeReceiving);
}

/// All of it together: a change reaches a second process through a pipe, which writes to the outside.
#[test]
fn a_change_a_transfer_and_a_commit() {
    explore(|| {
        let world = World::new();
        let pipe = Arc::new((AtomicClock::new(), AtomicU64::new(0)));
        let (writer, sent) = (world.clone(), pipe.clone());
        let writer = thread::spawn(move || {
            writer.write(Writer::Correct);
            // The writer depends on what it changed.
            sent.0.merge(&writer.tag.load(1), 1);
            sent.1.store(1, Ordering::Release);
        });
        let committer = world.clone();
        let committer = thread::spawn(move || committer.commit());
        let received = pipe.1.load(Ordering::Acquire);
        let mine = pipe.0.load(1);
        if received == 1 && world.transactions.is_resolved(&mine) {
            assert_eq!(world.platter.load(Ordering::Acquire), 1, "output shows what is not durable");
        }
        writer.join().unwrap();
        committer.join().unwrap();
    });
}

/// How a domain is closed; only the first is right.
#[derive(Clone, Copy, PartialEq)]
enum LetGo {
    Correct,
    /// It does not look whether somebody is about to change something.
    BlindForHandles,
    /// It closes first, and then says so.
    ClosesFirst,
}

/// A domain that the committer has open, or not.
struct Holder {
    world: Arc<World>,
    is_open: loom::sync::Mutex<bool>,
    /// The same, for who must not wait.
    open_now: AtomicU64,
}

impl Holder {
    fn set(&self, is_open: &mut bool, to: bool) {
        *is_open = to;
        self.open_now.store(u64::from(to), Ordering::SeqCst);
    }

    fn write(&self) {
        let transactions = &self.world.transactions;
        loop {
            transactions.open_handle(&self.world.handle);
            if transactions.may_join(D) {
                break;
            }
            self.world.handle.close();
            let mut is_open = self.is_open.lock().unwrap();
            self.set(&mut is_open, true);
            transactions.hold(D);
        }
        transactions.join(D);
        assert_eq!(self.open_now.load(Ordering::SeqCst), 1, "changed while it was not open");
        self.world.handle.close();
    }

    fn let_go(&self, how: LetGo) {
        let transactions = &self.world.transactions;
        let mut is_open = self.is_open.lock().unwrap();
        if how == LetGo::ClosesFirst {
            self.set(&mut is_open, false);
        }
        let handle = (how != LetGo::BlindForHandles).then_some(&self.world.handle);
        if transactions.let_go(D, handle.into_iter(), || true) {
            self.set(&mut is_open, false);
        }
    }
}

/// Two changes while the domain is closed, or is not.
fn change_against_let_go(how: LetGo) {
    explore(move || {
        let holder = Arc::new(Holder {
            world: World::new(),
            is_open: loom::sync::Mutex::new(true),
            open_now: AtomicU64::new(1),
        });
        holder.world.transactions.hold(D);
        let writer = holder.clone();
        let writer = thread::spawn(move || {
            writer.write();
            writer.write();
        });
        holder.let_go(how);
        writer.join().unwrap();
        assert_eq!(holder.open_now.load(Ordering::SeqCst), 1, "nothing is committed, and it is not open");
    });
}

#[test]
fn a_domain_is_open_while_it_is_changed() {
    change_against_let_go(LetGo::Correct);
}

#[test]
#[should_panic(expected = "not open")]
fn broken_let_go_that_sees_no_handles() {
    change_against_let_go(LetGo::BlindForHandles);
}

#[test]
#[should_panic(expected = "not open")]
fn broken_let_go_that_closes_first() {
    change_against_let_go(LetGo::ClosesFirst);
}

/// How a write that flushes itself goes wrong; only the first is right.
#[derive(Clone, Copy, PartialEq)]
enum Flushed {
    Correct,
    /// Who looks at the file keeps what it has learned to itself.
    LearnsAlone,
    /// The program goes on before the flush.
    ReturnsEarly,
    /// It counts as flushed before it is.
    EndsEarly,
}

/// One thread writes a file and flushes it in the same call. Another looks at the file, or at its memory, and says in
/// the memory of both what it has seen; a third, which shares that memory, shows it.
fn flushed_write(how: Flushed) {
    explore(move || {
        let world = World::new();
        let memory = Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (world, memory) = (world.clone(), memory.clone());
            move || {
                world.transactions.open_handle(&world.handle);
                let transaction = world.transactions.join_flushed(D);
                world.tag.raise(D, transaction);
                world.cached.store(1, Ordering::Release);
                if how == Flushed::ReturnsEarly {
                    memory.store(1, Ordering::Release);
                }
                if how == Flushed::EndsEarly {
                    world.transactions.end_flushed(D);
                }
                world.platter.store(1, Ordering::Release);
                if how != Flushed::EndsEarly {
                    world.transactions.end_flushed(D);
                }
                world.handle.close();
                memory.store(1, Ordering::Release);
            }
        });
        let looker = thread::spawn({
            let (world, memory) = (world.clone(), memory.clone());
            move || {
                if world.cached.load(Ordering::Acquire) == 1 {
                    if how != Flushed::LearnsAlone {
                        world.transactions.learn(&world.tag.load(1));
                    }
                    memory.store(1, Ordering::Release);
                }
            }
        });
        if memory.load(Ordering::Acquire) == 1 && world.transactions.is_resolved(&world.transactions.known()) {
            assert_eq!(world.platter.load(Ordering::Acquire), 1, "output shows what is not durable");
        }
        // Or it sees something of which it does not know what it depends on.
        if world.cached.load(Ordering::Acquire) == 1 {
            let is_shown = world.transactions.is_clean() || world.transactions.is_resolved(&world.transactions.dirty());
            assert!(!is_shown || world.platter.load(Ordering::Acquire) == 1, "output shows what is not durable");
        }
        writer.join().unwrap();
        looker.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "not durable")]
fn broken_end_before_the_flush() {
    flushed_write(Flushed::EndsEarly);
}

#[test]
fn memory_tells_of_a_flushed_write_when_it_is_durable() {
    flushed_write(Flushed::Correct);
}

#[test]
#[should_panic(expected = "not durable")]
fn broken_who_looks_learns_alone() {
    flushed_write(Flushed::LearnsAlone);
}

#[test]
#[should_panic(expected = "not durable")]
fn broken_return_before_the_flush() {
    flushed_write(Flushed::ReturnsEarly);
}

/// A write that flushes itself against somebody who maps the file: one of the two sees the other.
fn flushed_write_against_mapping(looks_before_it_tags: bool) {
    explore(move || {
        let world = World::new();
        let mapped = Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (world, mapped) = (world.clone(), mapped.clone());
            move || {
                world.transactions.open_handle(&world.handle);
                let transaction = world.transactions.join_flushed(D);
                let early = mapped.load(Ordering::SeqCst);
                world.tag.raise(D, transaction);
                fence(Ordering::SeqCst);
                let is_mapped = if looks_before_it_tags { early } else { mapped.load(Ordering::SeqCst) };
                if is_mapped == 1 {
                    // An ordinary write.
                    world.transactions.join_log(D);
                }
                world.cached.store(1, Ordering::Release);
                world.handle.close();
            }
        });
        mapped.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        world.transactions.learn(&world.tag.load(1));
        // The file is seen without a call.
        if world.cached.load(Ordering::Acquire) == 1 {
            let is_shown = world.transactions.is_resolved(&world.transactions.known());
            assert!(!is_shown, "output shows what is not durable");
        }
        writer.join().unwrap();
    });
}

#[test]
fn who_maps_a_file_depends_on_a_flushed_write() {
    flushed_write_against_mapping(false);
}

#[test]
#[should_panic(expected = "not durable")]
fn broken_look_at_mappings_before_the_tag() {
    flushed_write_against_mapping(true);
}
