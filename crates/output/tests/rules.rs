//! The order of output, one rule a test.

use commit_clock::Clock;
use output::{Options, OutputQueues, QueueId, Release, Sequence, Why, WriterId};
use std::time::Duration;

const A: WriterId = WriterId(1);
const B: WriterId = WriterId(2);
const C: WriterId = WriterId(3);
const TERMINAL: QueueId = QueueId(1);
const SOCKET: QueueId = QueueId(2);
const PIPE: QueueId = QueueId(3);

type Queues = OutputQueues<&'static str>;

fn at(transaction: u64) -> Clock {
    let mut clock = Clock::NONE;
    clock.0[0] = transaction;
    clock
}

fn push(queues: &mut Queues, queue: QueueId, process: WriterId, transaction: u64, what: &'static str) -> Sequence {
    queues.push(queue, process, at(transaction), what, what.len()).unwrap()
}

/// What leaves now, in order.
fn leaving(queues: &mut Queues) -> Vec<&'static str> {
    let mut left = Vec::new();
    while let Some(release) = queues.next_release() {
        left.push(release.payload);
        queues.on_left(release.sequence);
    }
    left
}

#[test]
fn output_waits_for_its_transaction() {
    let mut queues = Queues::default();
    push(&mut queues, TERMINAL, A, 1, "one");
    push(&mut queues, TERMINAL, A, 2, "two");
    assert_eq!(queues.wanted(), at(2));
    assert!(leaving(&mut queues).is_empty());
    queues.on_committed(&at(1));
    assert_eq!(leaving(&mut queues), ["one"]);
    queues.on_committed(&at(2));
    assert_eq!(leaving(&mut queues), ["two"]);
    assert_eq!(queues.wanted(), Clock::NONE);
    assert!(queues.is_empty());
}

#[test]
fn whoever_adds_output_can_ask_whether_something_may_leave() {
    let mut queues = Queues::default();
    assert!(!queues.has_release());
    queues.on_committed(&at(1));
    push(&mut queues, SOCKET, A, 1, "committed before it was taken");
    assert!(queues.has_release());
    let release = queues.next_release().unwrap();
    assert!(!queues.has_release(), "somebody is writing it");
    queues.on_left(release.sequence);
    push(&mut queues, SOCKET, A, 2, "not committed");
    assert!(!queues.has_release());
    queues.on_committed(&at(2));
    assert!(queues.has_release());
    queues.on_blocked(SOCKET);
    assert!(!queues.has_release());
}

#[test]
fn a_queue_keeps_its_order() {
    let mut queues = Queues::default();
    push(&mut queues, TERMINAL, A, 1, "a");
    push(&mut queues, TERMINAL, B, 0, "b");
    assert!(leaving(&mut queues).is_empty());
    queues.on_committed(&at(1));
    assert_eq!(leaving(&mut queues), ["a", "b"]);
}

#[test]
fn different_queues_keep_the_order_of_writing() {
    let mut queues = Queues::default();
    push(&mut queues, TERMINAL, A, 1, "a");
    push(&mut queues, SOCKET, B, 0, "b");
    assert!(leaving(&mut queues).is_empty());
    queues.on_committed(&at(1));
    assert_eq!(leaving(&mut queues), ["a", "b"]);
}

#[test]
fn an_entry_is_released_once_and_holds_its_place_until_it_has_left() {
    let mut queues = Queues::default();
    let first = push(&mut queues, TERMINAL, A, 0, "a");
    push(&mut queues, SOCKET, B, 0, "b");
    assert_eq!(queues.next_release().unwrap().payload, "a");
    assert_eq!(queues.next_release(), None);
    queues.on_left(first);
    let release = queues.next_release().unwrap();
    assert_eq!(release, Release { sequence: release.sequence, queue: SOCKET, process: B, payload: "b" });
}

#[test]
fn a_reader_that_does_not_read_holds_up_only_its_queue_and_its_writers() {
    let mut queues = Queues::default();
    queues.on_blocked(PIPE);
    push(&mut queues, PIPE, A, 0, "blocked");
    push(&mut queues, TERMINAL, A, 0, "same process");
    push(&mut queues, PIPE, B, 0, "same queue");
    push(&mut queues, TERMINAL, C, 0, "behind the second");
    push(&mut queues, SOCKET, WriterId(4), 0, "free");
    assert_eq!(leaving(&mut queues), ["free"]);
    queues.on_unblocked(PIPE);
    assert_eq!(leaving(&mut queues), ["blocked", "same process", "same queue", "behind the second"]);
}

#[test]
fn an_uncommitted_entry_holds_up_all_even_in_a_blocked_queue() {
    let mut queues = Queues::default();
    queues.on_blocked(PIPE);
    push(&mut queues, PIPE, A, 1, "blocked");
    push(&mut queues, TERMINAL, B, 0, "b");
    assert!(leaving(&mut queues).is_empty());
    queues.on_committed(&at(1));
    assert_eq!(leaving(&mut queues), ["b"]);
}

#[test]
fn a_reader_that_stops_reading_in_the_middle() {
    let mut queues = Queues::default();
    push(&mut queues, PIPE, A, 0, "long");
    push(&mut queues, TERMINAL, B, 0, "b");
    push(&mut queues, TERMINAL, A, 0, "after long");
    let long = queues.next_release().unwrap();
    queues.on_blocked(PIPE);
    assert_eq!(leaving(&mut queues), ["b"]);
    queues.on_unblocked(PIPE);
    assert_eq!(queues.next_release(), None, "it is still being written");
    queues.on_left(long.sequence);
    assert_eq!(leaving(&mut queues), ["after long"]);
}

#[test]
fn a_full_queue_refuses_and_gives_back() {
    let mut queues: Queues = OutputQueues::new(Options { queue_bytes_max: 8 });
    queues.push(TERMINAL, A, at(1), "larger than the queue", 21).unwrap();
    let refused = queues.push(TERMINAL, A, at(1), "x", 1).unwrap_err();
    assert_eq!((refused.why, refused.payload), (Why::Full, "x"));
    queues.push(SOCKET, A, at(1), "12345678", 8).unwrap();
    assert!(!queues.has_room(SOCKET, 1) && queues.has_room(PIPE, 100));
    queues.on_committed(&at(1));
    assert_eq!(leaving(&mut queues).len(), 2);
    assert!(queues.has_room(TERMINAL, 8));
}

#[test]
fn a_broken_queue_drops_its_entries_and_lets_the_others_go() {
    let mut queues = Queues::default();
    push(&mut queues, PIPE, A, 1, "a");
    push(&mut queues, TERMINAL, A, 0, "b");
    let dropped = queues.on_broken(PIPE);
    assert_eq!(dropped.iter().map(|d| d.payload).collect::<Vec<_>>(), [Some("a")]);
    assert_eq!(queues.wanted(), Clock::NONE);
    assert_eq!(leaving(&mut queues), ["b"]);
    assert_eq!(queues.push(PIPE, A, at(0), "c", 1).unwrap_err().why, Why::Broken);
    queues.forget(PIPE);
    push(&mut queues, PIPE, A, 0, "another pipe");
}

#[test]
fn dropped_output_waits_for_no_commit() {
    let mut queues = Queues::default();
    push(&mut queues, PIPE, A, 7, "a");
    push(&mut queues, TERMINAL, B, 3, "b");
    queues.on_broken(PIPE);
    assert_eq!(queues.wanted(), at(3));
}

#[test]
fn what_was_lost_is_never_shown() {
    let mut queues = Queues::default();
    push(&mut queues, TERMINAL, A, 1, "saved");
    push(&mut queues, TERMINAL, A, 2, "lost");
    push(&mut queues, TERMINAL, B, 0, "has nothing to do with it");
    queues.on_committed(&at(1));
    let dropped = queues.on_domain_failed(0);
    assert_eq!(dropped.iter().map(|d| d.payload).collect::<Vec<_>>(), [Some("lost")]);
    assert_eq!(leaving(&mut queues), ["saved", "has nothing to do with it"]);
    assert_eq!(queues.push(TERMINAL, A, at(2), "more", 4).unwrap_err().why, Why::DomainFailed(0));
    push(&mut queues, TERMINAL, A, 1, "saved as well");
}

#[test]
fn straight_through() {
    let mut queues = Queues::default();
    assert!(queues.straight_through(TERMINAL, A, &at(1), &at(1)));
    assert!(!queues.straight_through(TERMINAL, A, &at(2), &at(1)));
    push(&mut queues, PIPE, B, 0, "b");
    assert!(!queues.straight_through(TERMINAL, A, &at(1), &at(1)), "b comes first");
    queues.on_blocked(PIPE);
    assert!(queues.straight_through(TERMINAL, A, &at(1), &at(1)));
    assert!(!queues.straight_through(TERMINAL, B, &at(1), &at(1)), "b is the same process's");
    assert!(!queues.straight_through(PIPE, A, &at(1), &at(1)), "b is in the same queue");
}

/// A hundred thousand entries, most of them behind a slow reader that takes one at a time.
#[test]
fn many_entries() {
    let start = cpu_time();
    let mut queues: OutputQueues<u64> = OutputQueues::new(Options { queue_bytes_max: usize::MAX });
    for n in 0..100_000u64 {
        let queue = if n % 4 == 0 { TERMINAL } else { PIPE };
        queues.push(queue, WriterId((n % 4) as u32), at(n / 1000), n, 1).unwrap();
    }
    let mut left = 0;
    for transaction in 0..100 {
        queues.on_committed(&at(transaction));
        while let Some(release) = queues.next_release() {
            queues.on_left(release.sequence);
            left += 1;
            queues.on_blocked(PIPE);
            while let Some(other) = queues.next_release() {
                queues.on_left(other.sequence);
                left += 1;
            }
            queues.on_unblocked(PIPE);
        }
    }
    assert_eq!(left, 100_000);
    let spent = cpu_time() - start;
    assert!(spent < Duration::from_secs(5), "{spent:?}");
}

/// What this thread has computed so far: on a busy machine a clock tells something else.
fn cpu_time() -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(spent.split(' ').next().unwrap().parse().unwrap())
}

/// A server with two clients, one of which does not read: the other one has its answers, and the server's own barriers
/// wait for nobody.
#[test]
fn a_reader_who_is_put_aside_keeps_its_writer_not_waiting() {
    let mut queues = Queues::default();
    push(&mut queues, SOCKET, A, 0, "to who does not read");
    push(&mut queues, PIPE, A, 0, "to who reads");
    let stuck = queues.next_release().unwrap();
    queues.on_put_aside(SOCKET);
    assert_eq!(queues.take_passed(), [A]);
    assert_eq!(leaving(&mut queues), ["to who reads"]);
    assert_eq!(queues.pending_of(A).entries, 0);
    assert_eq!(queues.pending_in(SOCKET).entries, 1);
    assert!(queues.holds_any_of(A) && !queues.holds_any_of(B));
    // What follows there waits for its commit first, and keeps what was written after it waiting so long.
    push(&mut queues, SOCKET, A, 1, "more to who does not read");
    push(&mut queues, PIPE, A, 0, "more to who reads");
    assert!(leaving(&mut queues).is_empty());
    queues.on_committed(&at(1));
    assert_eq!(queues.take_passed(), [A]);
    assert_eq!(leaving(&mut queues), ["more to who reads"]);
    // He reads again: all of it comes, in its order.
    queues.on_unblocked(SOCKET);
    assert!(!queues.on_left(stuck.sequence));
    assert_eq!(leaving(&mut queues), ["more to who does not read"]);
    assert!(queues.is_empty());
}
