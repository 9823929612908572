//! Locks, outcomes and what is known, over connections that end.

use std::sync::mpsc::{channel, Receiver, Sender};

use bluefs::op::{Change, Content, Effect, Step};

use super::*;

impl Output for Sender<Request> {
    fn send(&self, request: Request) {
        // A test may not look.
        let _ = Sender::send(self, request);
    }
}

fn connected(state: &mut State) -> Receiver<Request> {
    let (to_output, output) = channel();
    state.connected(to_output);
    output
}

fn lock(kind: LockKind) -> LockRequest {
    LockRequest { ino: Ino(5), owner: 1, kind, start: 0, end: 9, wait: kind != LockKind::Unlock }
}

/// The locks that were asked for or given back.
fn asked(output: &Receiver<Request>) -> Vec<LockKind> {
    let kind = |request| if let Request::Lock { lock, .. } = request { Some(lock.kind) } else { None };
    output.try_iter().filter_map(kind).collect()
}

#[test]
fn a_lock_that_is_given_back_is_given_back_on_the_next_connection_too() {
    let mut state = State::new();
    let output = connected(&mut state);
    state.unlock_later(lock(LockKind::Unlock));
    let again = state.ask(|tag| Request::Lock { tag, lock: lock(LockKind::Shared) });
    assert_eq!(asked(&output), [LockKind::Unlock, LockKind::Shared]);
    state.disconnected();
    let output = connected(&mut state);
    assert_eq!(asked(&output), [LockKind::Unlock, LockKind::Shared], "in the same order");
    state.arrived(Reply::Locked { tag: again - 1 });
    state.disconnected();
    assert_eq!(asked(&connected(&mut state)), [LockKind::Shared]);
    assert!(state.cancelled.is_empty());
}

#[test]
fn a_lock_that_is_given_to_nobody_is_given_back() {
    let mut state = State::new();
    let output = connected(&mut state);
    let tag = state.ask(|tag| Request::Lock { tag, lock: lock(LockKind::Exclusive) });
    state.forget(tag);
    state.arrived(Reply::Locked { tag });
    assert_eq!(asked(&output), [LockKind::Exclusive, LockKind::Unlock]);
}

/// A signal ends a wait, the lock was given just before, and the program asks again: it has it.
#[test]
fn a_lock_that_is_asked_for_again_is_kept() {
    let mut state = State::new();
    let output = connected(&mut state);
    let ask = |state: &mut State| state.ask(|tag| Request::Lock { tag, lock: lock(LockKind::Exclusive) });
    let first = ask(&mut state);
    state.forget(first);
    let second = ask(&mut state);
    state.arrived(Reply::Locked { tag: first });
    state.arrived(Reply::Locked { tag: second });
    assert_eq!(asked(&output), [LockKind::Exclusive, LockKind::Exclusive]);
    assert_eq!(state.locks.all().len(), 1);
}

/// fcntl(2): who is interrupted while it waits for another lock of its bytes keeps the one that it had.
#[test]
fn who_is_interrupted_keeps_the_lock_that_it_had() {
    let shared = LockRequest { wait: false, ..lock(LockKind::Shared) };
    let wider = LockRequest { end: 99, ..lock(LockKind::Exclusive) };
    for is_given_first in [true, false] {
        let mut state = State::new();
        let output = connected(&mut state);
        let tag = state.ask(|tag| Request::Lock { tag, lock: shared });
        state.arrived(Reply::Locked { tag });
        state.take_reply(tag);
        let tag = state.ask(|tag| Request::Lock { tag, lock: wider });
        state.forget(tag);
        assert_eq!(asked(&output), [LockKind::Shared, LockKind::Exclusive]);
        let output = match is_given_first {
            true => {
                state.arrived(Reply::Locked { tag });
                output
            }
            false => {
                state.disconnected();
                connected(&mut state)
            }
        };
        let sent: Vec<Request> = output.try_iter().collect();
        let is_lock = |request: &&Request| matches!(request, Request::Lock { .. } | Request::Reclaim { .. });
        let locks: Vec<&Request> = sent.iter().filter(is_lock).collect();
        let Some(Request::Lock { tag, lock: first }) = locks.first() else { panic!("{locks:?}") };
        assert_eq!(*first, shared, "before anything is reclaimed");
        let rest = LockRequest { start: 10, end: 99, wait: false, ..lock(LockKind::Unlock) };
        assert!(locks.iter().any(|one| matches!(one, Request::Lock { lock, .. } if *lock == rest)), "{locks:?}");
        state.arrived(Reply::Locked { tag: *tag });
        assert_eq!(state.locks.all(), [shared]);
        assert!(!state.has_lost_lock(Ino(5)) && state.cancelled.is_empty());
    }
}

#[test]
fn who_cannot_have_back_what_it_had_has_lost_it() {
    let mut state = State::new();
    let output = connected(&mut state);
    let ask = |state: &mut State, kind| state.ask(|tag| Request::Lock { tag, lock: lock(kind) });
    let tag = ask(&mut state, LockKind::Exclusive);
    state.arrived(Reply::Locked { tag });
    state.take_reply(tag);
    let tag = ask(&mut state, LockKind::Shared);
    state.forget(tag);
    state.arrived(Reply::Locked { tag });
    assert_eq!(asked(&output), [LockKind::Exclusive, LockKind::Shared, LockKind::Exclusive]);
    state.arrived(Reply::Error { tag: tag + 1, csn: Csn(0), errno: Errno(11) });
    assert!(state.has_lost_lock(Ino(5)) && state.locks.all().is_empty());
}

/// `--on-disconnect=error`: the server may have given it just before the connection ended.
#[test]
fn a_lock_that_was_answered_with_an_error_is_not_kept() {
    let mut state = State::new();
    let _output = connected(&mut state);
    let tag = state.ask(|tag| Request::Lock { tag, lock: lock(LockKind::Exclusive) });
    state.disconnected();
    state.fail_all(Errno::IO);
    assert_eq!(state.take_reply(tag), Some(Err(Errno::IO)));
    assert_eq!(asked(&connected(&mut state)), [LockKind::Unlock]);
}

/// Others may have changed the file between the interval and the connection on which its outcome is told again.
#[test]
fn what_an_outcome_that_is_told_again_has_written_is_not_what_is_there() {
    const FILE: Ino = Ino(5);
    let write = Change::Write { ino: FILE, offset: 0, content: Content::Inline(b"mine".to_vec()) };
    let steps = vec![Step { cred: 0, time: None, change: write }];
    for is_told in [false, true] {
        let mut state = State::new();
        let _output = connected(&mut state);
        let number = state.submit(Interval { steps: steps.clone(), ..nothing() }, Vec::new());
        state.disconnected();
        let _output = connected(&mut state);
        if is_told {
            let (keys, inodes, names) = (vec![Key::Data(FILE)], vec![], vec![]);
            state.arrived(Reply::Changed { number, csn: Csn(1), keys, inodes, names });
        }
        let effects = vec![Effect::Wrote { offset: 0, size: 4 }];
        state.arrived(Reply::Decided { number, outcome: Outcome::Committed { csn: Csn(1), effects } });
        assert_eq!(state.cache.has_block(FILE, 0), is_told);
    }
}

#[test]
fn an_outcome_of_a_session_that_is_gone_is_nobody_elses() {
    let mut state = State::new();
    let _output = connected(&mut state);
    let first = state.submit(nothing(), Vec::new());
    state.disconnected();
    state.begin_anew();
    let second = state.submit(nothing(), Vec::new());
    assert!(state.take_outcome(second).is_none());
    assert_eq!(state.take_outcome(first).map(|(outcome, _)| outcome), Some(Err(Errno::IO)));
}

/// What was never sent is certainly not carried out: the kernel may carry it out again.
#[test]
fn only_what_was_sent_of_a_session_that_is_gone_may_have_been_done() {
    let mut state = State::new();
    let submit = |state: &mut State| state.submit(nothing(), Vec::new());
    for is_sent_again in [false, true] {
        let output = connected(&mut state);
        let first = submit(&mut state);
        drop(output);
        state.disconnected();
        let second = submit(&mut state);
        if is_sent_again {
            drop(connected(&mut state));
            state.disconnected();
        }
        let third = submit(&mut state);
        state.begin_anew();
        let outcomes = [first, second, third].map(|number| state.take_outcome(number).map(|(outcome, _)| outcome));
        let errno = if is_sent_again { Errno::IO } else { Errno::STALE };
        assert_eq!(outcomes, [Errno::IO, errno, Errno::STALE].map(|errno| Some(Err(errno))));
    }
}

fn nothing() -> Interval {
    let (reads, creds, steps) = (vec![], vec![], vec![]);
    Interval { number: 0, base: Csn(0), after: bluefs::Runs::new(), reads, creds, steps }
}

#[test]
fn outcomes_that_nobody_waits_for_are_not_kept() {
    let mut state = State::new();
    let _output = connected(&mut state);
    let numbers = [0, 1].map(|_| state.submit(nothing(), Vec::new()));
    let outcome = || Outcome::Committed { csn: Csn(1), effects: vec![] };
    state.abandon(numbers[0]);
    numbers.iter().for_each(|&number| state.arrived(Reply::Decided { number, outcome: outcome() }));
    assert_eq!(state.outcomes.len(), 1);
    state.abandon(numbers[1]);
    assert!(state.outcomes.is_empty() && state.abandoned.is_empty());
}

/// The files without a name that were given up.
fn released(output: &Receiver<Request>) -> Vec<Ino> {
    let ino = |request| if let Request::Released { ino } = request { Some(ino) } else { None };
    output.try_iter().filter_map(ino).collect()
}

#[test]
fn files_without_a_name_are_given_up_while_others_are_always_about_to_be_opened() {
    const FILES: [Ino; 2] = [Ino(5), Ino(6)];
    let mut state = State::new();
    let output = connected(&mut state);
    let first = state.begin_opening();
    state.arrived(Reply::Orphan { ino: FILES[0] });
    let second = state.begin_opening();
    assert_eq!(released(&output), [], "the first may open it");
    state.end_opening(first, None);
    assert_eq!(released(&output), [FILES[0]], "the second was begun later");
    state.arrived(Reply::Orphan { ino: FILES[1] });
    let third = state.begin_opening();
    state.end_opening(second, Some(FILES[1]));
    assert!(state.open_again(FILES[1]) && !state.open_again(FILES[0]));
    state.close(FILES[1]);
    assert_eq!(released(&output), [], "it is open once more");
    state.close(FILES[1]);
    assert_eq!(released(&output), [FILES[1]]);
    state.end_opening(third, None);
}

/// The numbers of intervals that were sent, and what was acknowledged.
fn submitted(output: &Receiver<Request>) -> (Vec<u64>, Vec<u64>) {
    let (mut numbers, mut acknowledged) = (Vec::new(), Vec::new());
    for request in output.try_iter() {
        match request {
            Request::Submit { interval } => numbers.push(interval.number),
            Request::Acknowledge { number } => acknowledged.push(number),
            _ => {}
        }
    }
    (numbers, acknowledged)
}

fn decided(state: &mut State, number: u64) {
    state.arrived(Reply::Decided { number, outcome: Outcome::Committed { csn: Csn(1), effects: vec![] } });
}

/// The server takes no more than so many whose outcomes are not acknowledged.
#[test]
fn no_more_intervals_are_on_their_way_than_a_server_takes() {
    const ALL: u64 = INTERVALS_MAX + 500;
    let mut state = State::new();
    (0..ALL).for_each(|_| _ = state.submit(nothing(), Vec::new()));
    for _ in 0..2 {
        let output = connected(&mut state);
        assert_eq!(submitted(&output), ((1..=INTERVALS_MAX).collect(), vec![]));
        assert!(state.given == INTERVALS_MAX);
        state.disconnected();
    }
    let output = connected(&mut state);
    submitted(&output);
    decided(&mut state, 1);
    assert_eq!(submitted(&output), (vec![INTERVALS_MAX + 1], vec![1]), "it is acknowledged at once");
    (2..=ALL).for_each(|number| decided(&mut state, number));
    let (numbers, acknowledged) = submitted(&output);
    assert_eq!(numbers, (INTERVALS_MAX + 2..=ALL).collect::<Vec<_>>());
    assert!(acknowledged.is_sorted() && acknowledged.last() <= Some(&ALL));
    assert_eq!(state.submit(nothing(), Vec::new()), ALL + 1);
    assert_eq!(submitted(&output).0, [ALL + 1]);
}

/// Of a session that is over what was never sent is carried out once more by the kernel.
#[test]
fn what_has_waited_for_room_was_not_sent() {
    let mut state = State::new();
    let output = connected(&mut state);
    (0..=INTERVALS_MAX).for_each(|_| _ = state.submit(nothing(), Vec::new()));
    drop(output);
    state.disconnected();
    state.begin_anew();
    let mut outcome = |number| state.take_outcome(number).map(|(outcome, _)| outcome);
    assert_eq!(outcome(INTERVALS_MAX), Some(Err(Errno::IO)));
    assert_eq!(outcome(INTERVALS_MAX + 1), Some(Err(Errno::STALE)));
}

#[test]
fn no_more_is_asked_for_than_a_server_keeps_for_who_does_not_read() {
    const ALL: usize = 40;
    const FIT: usize = 32;
    let read = |tag| {
        let query = Query::Read { ino: Ino(5), offset: 0, len: 1 << 20 };
        Request::Ask { tag, cred: Cred::root(), query }
    };
    let tags = |output: &Receiver<Request>| -> Vec<u64> {
        let tag = |request| if let Request::Ask { tag, .. } = request { Some(tag) } else { None };
        output.try_iter().filter_map(tag).collect()
    };
    let mut state = State::new();
    let output = connected(&mut state);
    let asked: Vec<u64> = (0..ALL).map(|_| state.ask(read)).collect();
    assert_eq!(tags(&output), asked[..FIT]);
    assert_eq!(state.room_ahead(), 0);
    let small = state.ask(|tag| Request::Ask { tag, cred: Cred::root(), query: Query::Space });
    assert_eq!(tags(&output), [small], "its answer is small");
    let answer = || Answer::Bytes(Vec::new());
    state.forget(asked[FIT]);
    state.arrived(Reply::Answer { tag: asked[3], csn: Csn(1), answer: answer() });
    assert_eq!(tags(&output), [asked[FIT + 1]], "nobody waits for the first any more");
    state.take_reply(asked[3]);
    state.disconnected();
    let output = connected(&mut state);
    let left: Vec<u64> = asked.iter().copied().filter(|tag| ![asked[3], asked[FIT]].contains(tag)).collect();
    let mut told = tags(&output);
    for tag in &left {
        state.arrived(Reply::Error { tag: *tag, csn: Csn(1), errno: Errno::NOENT });
    }
    told.extend(tags(&output));
    told.retain(|tag| *tag != small);
    assert_eq!(told, left);
    assert!(state.room_ahead() > 0 && state.held.is_empty());
}

#[test]
fn numbers_that_nobody_waits_for_any_more_are_for_the_next_one() {
    let mut state = State::new();
    let _output = connected(&mut state);
    state.session = Some((SessionId(1), 1));
    state.is_borrowing = true;
    let tag = state.ask(|tag| Request::Lend { tag });
    state.forget(tag);
    state.arrived(Reply::Lent { tag, group: Group(3) });
    assert_eq!(state.take_ino(), Some((Ino(192), SessionId(1))));
}
