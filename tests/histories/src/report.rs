//! Many histories, and what is said of them.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::call::{Answer, Call, Op};
use crate::copy::Copy;
use crate::linear::{judge, Stuck, Timed, Verdict};
use crate::plan::Plan;
use crate::planted::Planted;
use crate::run::{run, Happened};

/// Attempts to find an order, at most: for a verdict, and for a shorter history.
const ATTEMPTS_MAX: usize = 1_000_000;
const SHRINK_ATTEMPTS_MAX: usize = 100_000;
/// One in so many may be undecided.
const UNDECIDED_PART: u64 = 20;
/// How long it is tried to find a shorter one.
const SHRINK_MAX: Duration = Duration::from_secs(5);

/// What is to be judged.
pub struct Campaign {
    pub speculator: PathBuf,
    pub into: PathBuf,
    pub mounts: bool,
    pub pages: bool,
    pub planted: Option<Planted>,
}

#[derive(Default)]
struct Sums {
    histories: u64,
    calls: usize,
    open: usize,
    faults: usize,
    undecided: u64,
    bad: Vec<u64>,
}

impl Campaign {
    /// Judges these histories. Says whether all is as it should be: no violation; if an error is planted, one.
    pub fn run(&self, seed: u64, count: u64, jobs: usize) -> bool {
        let (next, end) = (AtomicU64::new(seed), seed + count);
        let (sums, is_found) = (Mutex::new(Sums::default()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end || is_found.load(Ordering::SeqCst) {
                        break;
                    }
                    let is_right = self.one(seed, &sums);
                    is_found.fetch_or(!is_right && self.planted.is_some(), Ordering::SeqCst);
                });
            }
        });
        let sums = sums.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Sums { histories, calls, open, faults, undecided, bad } = &sums;
        println!(
            "{histories} histories from seed {seed}, {calls} calls, {open} without an answer, {faults} faults: \
             {} bad, {undecided} undecided",
            bad.len()
        );
        match self.planted {
            Some(planted) if bad.is_empty() => {
                println!("{} is not found", planted.word());
                false
            }
            Some(planted) => {
                println!("{} is found with seed {}", planted.word(), bad[0]);
                true
            }
            None => bad.is_empty() && *undecided * UNDECIDED_PART <= *histories,
        }
    }

    /// One history; whether it is right.
    fn one(&self, seed: u64, sums: &Mutex<Sums>) -> bool {
        let plan = Plan::draw(seed, self.mounts, self.pages, self.planted);
        let happened = run(&self.speculator, seed, &plan, self.planted)
            .unwrap_or_else(|error| Happened { problems: vec![error.to_string()], ..Happened::default() });
        let verdict = judge::<Copy>(Copy::new(), &happened.calls, ATTEMPTS_MAX);
        let mut sums = lock(sums);
        sums.histories += 1;
        sums.calls += happened.calls.len();
        sums.open += happened.calls.iter().filter(|timed| timed.returned.is_none()).count();
        sums.faults += happened.faults;
        sums.undecided += u64::from(verdict == Verdict::Undecided);
        // A planted error has to be seen in what was told.
        let is_right =
            !matches!(verdict, Verdict::Violation(_)) && (happened.problems.is_empty() || self.planted.is_some());
        if !is_right {
            sums.bad.push(seed);
        }
        drop(sums);
        if !is_right && self.planted.is_none() {
            self.tell(seed, &plan, &happened, &verdict);
        }
        is_right
    }

    fn tell(&self, seed: u64, plan: &Plan, happened: &Happened, verdict: &Verdict) {
        let mut text = format!("seed {seed}\n{plan:#?}\n\n");
        happened.problems.iter().for_each(|problem| _ = writeln!(text, "{problem}"));
        if matches!(verdict, Verdict::Violation(_)) {
            let (calls, stuck) = shrink(&happened.calls);
            let order: Vec<u64> = stuck.order.iter().map(|&call| calls[call].began).collect();
            let _ = writeln!(text, "no copy could have answered so:\n{}", lines(&calls));
            let _ = writeln!(text, "the longest order is of those that began at {order:?};");
            let _ = writeln!(text, "the one that began at {} does not fit\n", calls[stuck.next].began);
        }
        let _ = writeln!(text, "everything:\n{}", lines(&happened.calls));
        let file = self.into.join(format!("{seed}.txt"));
        let written = std::fs::create_dir_all(&self.into).and_then(|()| std::fs::write(&file, text));
        let verdict = if matches!(verdict, Verdict::Violation(_)) { "a violation" } else { "" };
        println!("seed {seed}: {verdict} {:?}: {} {written:?}", happened.problems, file.display());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn lines(calls: &[Timed<Call>]) -> String {
    let mut calls: Vec<_> = calls.iter().collect();
    calls.sort_by_key(|timed| timed.began);
    let mut text = String::new();
    for Timed { call, began, returned } in calls {
        let returned = returned.map_or_else(|| "…".to_owned(), |at| at.to_string());
        let _ = writeln!(text, "{began:4}-{returned:4} {:2} {:?} -> {:?}", call.client, call.op, call.answer);
    }
    text
}

/// The shortest beginning that is a violation, without what is not needed for one.
fn shrink(calls: &[Timed<Call>]) -> (Vec<Timed<Call>>, Stuck) {
    let mut times: Vec<u64> = calls.iter().filter_map(|timed| timed.returned).collect();
    times.sort_unstable();
    let short = times.partition_point(|&time| stuck(&until(calls, time)).is_none());
    let mut calls = times.get(short).map_or_else(|| calls.to_vec(), |&time| until(calls, time));
    let (mut at, begun) = (0, Instant::now());
    while at < calls.len() && begun.elapsed() < SHRINK_MAX {
        let mut fewer = calls.clone();
        let gone = fewer.remove(at);
        // Somebody who is told a number gives it to what was made without one.
        let tells = matches!(gone.call.op, Op::Lookup(_)) && matches!(gone.call.answer, Answer::Ino(_));
        let has_no_effect = gone.call.op.only_looks() && !tells || matches!(gone.call.answer, Answer::Refused(_));
        match has_no_effect && stuck(&fewer).is_some() {
            true => calls = fewer,
            false => at += 1,
        }
    }
    let stuck = stuck(&calls).unwrap_or_default();
    (calls, stuck)
}

/// What was known at this time.
fn until(calls: &[Timed<Call>], time: u64) -> Vec<Timed<Call>> {
    let begun = calls.iter().filter(|timed| timed.began < time);
    let seen = begun.map(|timed| match timed.returned {
        Some(at) if at <= time => timed.clone(),
        _ => {
            let call = Call { answer: Answer::Unknown, ..timed.call.clone() };
            Timed { call, began: timed.began, returned: None }
        }
    });
    seen.filter(|timed| timed.returned.is_some() || !timed.call.op.only_looks()).collect()
}

fn stuck(calls: &[Timed<Call>]) -> Option<Stuck> {
    match judge::<Copy>(Copy::new(), calls, SHRINK_ATTEMPTS_MAX) {
        Verdict::Violation(stuck) => Some(stuck),
        _ => None,
    }
}
