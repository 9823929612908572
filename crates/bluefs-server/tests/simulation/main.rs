//! A server and its clients in simulated time: one seed is one history, with everything that went wrong in it. Whatever
//! the clients saw has to be what one copy of the files would have shown.
//!
//! `SEEDS=1000` runs more of them. `SEED=7` runs one. Both together run so many, beginning with that seed.
//! `PLANTED=rare` plants the faults that may need thousands of histories, and fails where `SEEDS` histories show none
//! of one.

mod client;
mod history;
#[path = "../support/mod.rs"]
mod support;
mod world;

use bluefs::lease::Millis;

use world::World;

/// How long a history is, simulated.
const LENGTH_MS: Millis = 90_000;
/// Histories of each run.
const SEEDS: u64 = 12;
/// Histories in which a planted fault has to show.
const SEEDS_MAX: u64 = 300;

/// A generator of numbers that look random, always the same ones.
pub struct Dice(u64);

impl Dice {
    /// One of so many.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A client gives a lease back and goes on using it.
    RecallsIgnored,
    /// A client does not hear what others change.
    InvalidationsIgnored,
    /// A client counts a lease from when it was granted.
    LeaseFromReply,
    /// A client says what it knows of a file while a change of its own is under way.
    OwnChangesIgnored,
    /// A client says that its reads are newer than they are.
    BaseTooNew,
    /// A client lets a file without a name go while somebody has it open.
    ReleasedWhileOpen,
    /// The server says what it has done before that is on its disk.
    RepliesBeforeSync,
    /// A server that was started again does not wait for leases of its predecessor.
    GraceSkipped,
    /// The server's clock is faster than the clients'.
    ServerClockFast,
    /// The server gives away a lock that somebody has.
    LockTakenAway,
    /// A client does not say which locks it has to a server that was started again.
    LocksNotReclaimed,
}

const FAULTS: [Fault; 5] = [
    Fault::RecallsIgnored,
    Fault::InvalidationsIgnored,
    Fault::BaseTooNew,
    Fault::ServerClockFast,
    Fault::LockTakenAway,
];

/// What shows in few of all histories: it is planted only on request.
const RARE_FAULTS: [Fault; 6] = [
    Fault::OwnChangesIgnored,
    Fault::LeaseFromReply,
    Fault::ReleasedWhileOpen,
    Fault::RepliesBeforeSync,
    Fault::GraceSkipped,
    Fault::LocksNotReclaimed,
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn every_history_could_have_been_one_copy() {
    let first = number("SEED");
    let count = number("SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let seeds = first.unwrap_or(0)..first.unwrap_or(0) + count;
    let mut totals = [0; 4];
    for seed in seeds {
        let (wrong, counts) = World::new(seed, None).run(LENGTH_MS);
        assert!(wrong.is_empty(), "SEED={seed}: {} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    let [commits, failed, reads, locks] = totals;
    println!("{count} histories: {commits} commits, {failed} failures, {reads} reads, {locks} locks");
    let few = count as usize * 20;
    assert!(commits > few && failed > 0 && reads > few && locks > few / 4, "{totals:?}");
}

#[test]
fn what_is_planted_is_found() {
    let wants_rare = std::env::var("PLANTED").is_ok_and(|which| which == "rare");
    let faults = if wants_rare { &RARE_FAULTS[..] } else { &FAULTS };
    let histories = number("SEEDS").filter(|_| wants_rare).unwrap_or(SEEDS_MAX);
    faults.iter().for_each(|fault| is_found(*fault, histories));
}

fn is_found(fault: Fault, histories: u64) {
    let found = (0..histories).find(|seed| !World::new(*seed, Some(fault)).run(LENGTH_MS).0.is_empty());
    println!("{fault:?}: found in history {found:?}");
    assert!(found.is_some(), "{fault:?}");
}
