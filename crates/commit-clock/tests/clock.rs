//! Clocks without concurrency; `loom.rs` has the races.
#![cfg(not(loom))]

use commit_clock::{AtomicClock, Clock, Handle, Transactions, DOMAINS_MAX};

fn clock(domain: usize, transaction: u64) -> Clock {
    let mut clock = Clock::NONE;
    clock.0[domain] = transaction;
    clock
}

#[test]
fn a_transaction_is_of_the_log_only_if_nothing_else_joined() {
    let transactions = Transactions::new(2);
    let commit = || {
        let (closed, _) = transactions.close_transaction(0);
        transactions.set_committed(0, closed);
    };
    transactions.join_log(0);
    assert!(transactions.is_log_only(0));
    transactions.join(1);
    assert!(transactions.is_log_only(0) && !transactions.is_log_only(1));
    transactions.join(0);
    transactions.join_log(0);
    assert!(!transactions.is_log_only(0));
    commit();
    transactions.join_log(0);
    assert!(transactions.is_log_only(0));
    // Another file becomes the log when a transaction is closed: the next one may hold changes of both.
    let (closed, _) = transactions.close_transaction(0);
    transactions.leave_log(0);
    transactions.set_committed(0, closed);
    transactions.join_log(0);
    assert!(!transactions.is_log_only(0));
    commit();
    assert!(transactions.is_log_only(0));
}

#[test]
fn what_its_call_flushes_is_known_to_nobody_who_does_not_look() {
    let transactions = Transactions::new(2);
    transactions.join(1);
    let flushed = transactions.join_flushed(0);
    assert_eq!(transactions.dirty(), {
        let mut both = clock(0, flushed);
        both.merge(&clock(1, 1));
        both
    });
    assert_eq!(transactions.known(), clock(1, 1));
    assert!(transactions.is_log_only(0) && !transactions.is_clean());
    // Two calls at once: who has seen something does not know of which one it is.
    transactions.join_flushed(0);
    transactions.end_flushed(0);
    assert_eq!(transactions.dirty().0[0], flushed);
    transactions.end_flushed(0);
    assert_eq!(transactions.dirty(), clock(1, 1));
    // Somebody with shared memory has read the log.
    transactions.learn(&clock(0, flushed));
    assert_eq!(transactions.known().0[0], flushed);
    let (closed, _) = transactions.close_transaction(0);
    transactions.set_committed(0, closed);
    // The flush of the call failed.
    let next = transactions.join_flushed(0);
    assert_eq!(transactions.known().0[0], flushed);
    assert_eq!(transactions.join_log(0), next);
    transactions.end_flushed(0);
    assert_eq!((transactions.known().0[0], transactions.dirty().0[0]), (next, next));
}

#[test]
fn times_that_a_flush_has_left_keep_nobody_waiting_but_who_looks_and_who_closes() {
    let transactions = Transactions::new(2);
    transactions.hold(1);
    let joined = transactions.join_flushed(1);
    transactions.leave_times(1, joined);
    transactions.end_flushed(1);
    assert!(transactions.is_clean() && !transactions.has_times() && transactions.has_times_of(0));
    assert!(!transactions.let_go(1, [].into_iter(), || true), "the times are not committed");
    let (closed, _) = transactions.close_transaction(1);
    transactions.set_committed(1, closed);
    assert!(transactions.has_times());
    assert!(transactions.let_go(1, [].into_iter(), || true));
}

#[test]
fn a_merged_clock_is_resolved_when_all_its_parts_are() {
    let mut both = clock(0, 3);
    both.merge(&clock(1, 5));
    both.merge(&clock(1, 4));
    assert!(!both.is_resolved_by(&clock(0, 3)));
    let mut committed = clock(0, 3);
    committed.merge(&clock(1, 5));
    assert!(both.is_resolved_by(&committed));
    assert!(Clock::NONE.is_resolved_by(&Clock::NONE));
}

#[test]
fn a_clock_is_one_cache_line() {
    assert_eq!((std::mem::size_of::<AtomicClock>(), std::mem::align_of::<AtomicClock>()), (64, 64));
}

#[test]
fn an_atomic_clock_only_grows() {
    let atomic = AtomicClock::new();
    atomic.raise(2, 9);
    atomic.raise(2, 4);
    atomic.merge(&clock(2, 5), DOMAINS_MAX);
    assert_eq!(atomic.load(DOMAINS_MAX), clock(2, 9));
    assert_eq!(atomic.load(2), Clock::NONE, "only the first domains are looked at");
}

#[test]
fn a_transaction_gathers_closes_and_commits() {
    let (transactions, handle) = (Transactions::new(1), Handle::new());
    assert!(transactions.is_clean());
    transactions.open_handle(&handle);
    assert_eq!(transactions.join(0), 1);
    assert_eq!(transactions.under_way(0), None);
    let (closing, ticket) = transactions.close_transaction(0);
    assert_eq!((closing, transactions.active(0), transactions.under_way(0)), (1, 2, Some(1)));
    assert!(!transactions.is_quiet(ticket, &handle), "a change of it is in flight");
    handle.close();
    assert!(transactions.is_quiet(ticket, &handle) && !transactions.is_clean());
    transactions.open_handle(&handle);
    assert!(transactions.is_quiet(ticket, &handle), "that one belongs to the next");
    transactions.set_committed(0, closing);
    assert!(transactions.is_clean() && transactions.is_resolved(&clock(0, 1)));
    assert_eq!(transactions.under_way(0), None);
}

#[test]
fn a_commit_is_requested_once() {
    let transactions = Transactions::new(2);
    assert!(transactions.request(&clock(1, 1)));
    assert!(!transactions.request(&clock(1, 1)));
    transactions.set_committed(1, 4);
    assert!(!transactions.request(&clock(1, 3)), "it is committed");
    assert_eq!(transactions.requested(), clock(1, 1));
}
