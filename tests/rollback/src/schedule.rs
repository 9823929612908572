//! What is still to be run, and by whom: workers side by side, until all is done, the time is over, or somebody
//! interrupts.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use transparency::Settings;

use crate::journal::Journal;
use crate::matrix::{Cell, Matrix};
use crate::record::{Key, Outcome, Verdict};
use crate::subject::Subject;

/// A subject, and in which ways it is to be run: natively once for them all.
#[derive(Clone, Debug)]
pub struct Unit {
    subject: Subject,
    source: String,
    cells: Vec<Cell>,
}

impl Unit {
    /// All ways in which it is to be run.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.cells.iter().map(|cell| self.key(cell))
    }

    fn key(&self, cell: &Cell) -> Key {
        Key { name: self.subject.name(), cell: cell.clone(), source: self.source.clone() }
    }
}

/// Everything, in the order in which it is to be run. Of `scenarios` those are taken that `is_wanted`, as are batches.
pub fn plan(
    matrix: &Matrix,
    scenarios: &[Subject],
    settings: &Settings,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Unit>, String> {
    let mut units = Vec::new();
    for round in matrix.rounds() {
        let batches: Vec<Subject> = round.batches.clone().map(Subject::Programs).collect();
        for subject in scenarios.iter().chain(&batches).filter(|subject| is_wanted(&subject.name())) {
            let (source, cells) = (subject.source(settings)?, subject.in_round(&round));
            units.push(Unit { subject: subject.clone(), source, cells });
        }
    }
    Ok(units)
}

/// When to stop though there is more to do.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// At this moment no further run is begun.
    pub at: Option<Instant>,
    /// Now; what came of the runs that were under way does not count.
    pub interrupted: Arc<AtomicBool>,
}

impl End {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn has_come(&self) -> bool {
        self.is_interrupted() || self.at.is_some_and(|at| Instant::now() >= at)
    }
}

struct Waiting {
    units: Vec<Unit>,
    /// Names of what is running: nothing runs beside itself, it would meet its own files and ports.
    busy: HashSet<String>,
}

/// The work that is left.
pub struct Schedule<'a> {
    settings: &'a Settings,
    end: End,
    journal: Mutex<&'a mut Journal>,
    waiting: Mutex<Waiting>,
    /// Something has ended.
    changed: Condvar,
    turn: RwLock<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Schedule<'a> {
    /// All of `units` that `journal` does not have yet.
    pub fn new(units: Vec<Unit>, journal: &'a mut Journal, settings: &'a Settings, end: End) -> Schedule<'a> {
        let mut units = units;
        for unit in &mut units {
            let cells = std::mem::take(&mut unit.cells);
            unit.cells = cells.into_iter().filter(|cell| journal.outcome(&unit.key(cell)).is_none()).collect();
        }
        units.retain(|unit| !unit.cells.is_empty());
        let waiting = Mutex::new(Waiting { units, busy: HashSet::new() });
        let (changed, turn) = (Condvar::new(), RwLock::new(()));
        Schedule { settings, end, journal: Mutex::new(journal), waiting, changed, turn }
    }

    /// Works with this many workers; what could not be tried, and why.
    pub fn run(&self, jobs: usize) -> Vec<String> {
        let problems = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    while let Some(unit) = self.next() {
                        if let Err(problem) = self.run_unit(&unit) {
                            let problem = format!("{}: {problem}", unit.subject.name());
                            println!("{problem}");
                            locked(&problems).push(problem);
                        }
                        locked(&self.waiting).busy.remove(&unit.subject.name());
                        self.changed.notify_all();
                    }
                });
            }
        });
        problems.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next unit whose subject is not running.
    fn next(&self) -> Option<Unit> {
        let mut waiting = locked(&self.waiting);
        loop {
            if self.end.has_come() || waiting.units.is_empty() {
                return None;
            }
            let free = waiting.units.iter().position(|unit| !waiting.busy.contains(&unit.subject.name()));
            if let Some(at) = free {
                let unit = waiting.units.remove(at);
                waiting.busy.insert(unit.subject.name());
                return Some(unit);
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run_unit(&self, unit: &Unit) -> Result<(), String> {
        let (mut _with_others, mut _alone) = (None, None);
        match unit.subject.is_alone() {
            true => _alone = Some(self.turn.write().unwrap_or_else(PoisonError::into_inner)),
            false => _with_others = Some(self.turn.read().unwrap_or_else(PoisonError::into_inner)),
        }
        let mut unwritten = Ok(());
        let mut since = Instant::now();
        let result = unit.subject.run(self.settings, &unit.cells, &mut |cell, outcome| {
            if self.end.is_interrupted() {
                return ControlFlow::Break(());
            }
            show(unit, cell, &outcome.verdict, since.elapsed());
            since = Instant::now();
            unwritten = locked(&self.journal).add(unit.key(cell), outcome);
            match unwritten.is_err() || self.end.has_come() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        match self.end.is_interrupted() {
            true => Ok(()),
            false => result.and(unwritten),
        }
    }
}

/// `took`: with the native run, if it is the first of its unit.
fn show(unit: &Unit, cell: &Cell, verdict: &Verdict, took: Duration) {
    let problem = verdict.problem().map(|problem| format!("\n{problem}")).unwrap_or_default();
    let (name, word, took) = (unit.subject.name(), verdict.word(), took.as_secs_f64());
    println!("{name} --inject={} --seed={}: {word} after {took:.1} s{problem}", cell.inject, cell.seed);
}

/// What came of all of `units`, of those runs that were made; and how many were not.
pub fn outcomes<'a>(units: &[Unit], journal: &'a Journal) -> (Vec<(Key, &'a Outcome)>, usize) {
    let keys: Vec<Key> = units.iter().flat_map(Unit::keys).collect();
    let made: Vec<(Key, &Outcome)> = keys.iter().filter_map(|key| Some((key.clone(), journal.outcome(key)?))).collect();
    let left = keys.len() - made.len();
    (made, left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Runs what stands behind `--`, as if natively, with a variable that says that it is not.
    const INSIDE: &str = r#"while [ "$1" != -- ]; do shift; done; shift; INSIDE=1 exec "$@""#;

    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("it is there");
        }
    }

    /// A scenario that notes each run inside in a file `runs`.
    fn scenario(name: &str, rest: &str) -> (Place, Subject, Settings) {
        let place = std::env::temp_dir().join(format!("speculator-schedule-{}-{name}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        let source = place.join(format!("{name}.sh"));
        let text = format!("[ -z \"$INSIDE\" ] || echo run >> {}/runs\n{rest}\n", place.display());
        fs::write(&source, text).expect("written");
        let mut settings = Settings::from_environment();
        settings.prefix = ["sh", "-c", INSIDE, "inside", "--"].map(str::to_owned).to_vec();
        settings.runs = place.join("home");
        let scenario = transparency::Scenario::load(&source).expect("read");
        (Place(place), Subject::Scenario(scenario), settings)
    }

    fn runs(place: &Place) -> usize {
        fs::read_to_string(place.0.join("runs")).unwrap_or_default().lines().count()
    }

    fn planned(seeds: u64, subject: &Subject, settings: &Settings) -> Vec<Unit> {
        let matrix = Matrix { first_seed: 1, seeds, batches: 2 };
        plan(&matrix, std::slice::from_ref(subject), settings, |name| !name.starts_with("programs_")).expect("planned")
    }

    fn run(units: &[Unit], folder: &Path, settings: &Settings, end: End) -> (usize, usize) {
        let mut journal = Journal::open(folder, "version").expect("opened");
        let problems = Schedule::new(units.to_vec(), &mut journal, settings, end).run(2);
        assert_eq!(problems, Vec::<String>::new());
        let (made, left) = outcomes(units, &journal);
        assert!(made.iter().all(|(_, outcome)| outcome.verdict == Verdict::Same));
        (made.len(), left)
    }

    #[test]
    fn what_was_made_is_not_made_again() {
        let (place, subject, settings) = scenario("resumed", "echo the same");
        let folder = place.0.join("journal");
        let begun = planned(1, &subject, &settings);
        assert_eq!(run(&begun, &folder, &settings, End::default()), (4, 0));
        assert_eq!(runs(&place), 4);
        let all = planned(2, &subject, &settings);
        let over = End { at: Some(Instant::now()), ..End::default() };
        assert_eq!(run(&all, &folder, &settings, over), (4, 4));
        let interrupted = End { interrupted: Arc::new(AtomicBool::new(true)), ..End::default() };
        assert_eq!(run(&all, &folder, &settings, interrupted), (4, 4));
        assert_eq!(runs(&place), 4);
        assert_eq!(run(&all, &folder, &settings, End::default()), (8, 0));
        assert_eq!(run(&all, &folder, &settings, End::default()), (8, 0));
        assert_eq!(runs(&place), 8);
    }

    fn first_verdict(name: &str, rest: &str, patience: u32) -> Verdict {
        let (_place, subject, mut settings) = scenario(name, rest);
        settings.patience = patience;
        let (units, mut journal) = (planned(1, &subject, &settings), Journal::default());
        Schedule::new(units.clone(), &mut journal, &settings, End::default()).run(1);
        let (made, _) = outcomes(&units, &journal);
        made[0].1.verdict.clone()
    }

    #[test]
    fn a_difference_and_a_run_out_of_time_are_told_apart() {
        let differs = first_verdict("differs", "echo $INSIDE", 1);
        assert!(matches!(&differs, Verdict::Differs(how) if how.contains("stdout, line 1")), "{differs:?}");
        // The first of all runs is natively another one than those behind it.
        let was_there = std::env::temp_dir().join(format!("speculator-rollback-was-there-{}", std::process::id()));
        let varies = format!("if [ -e {0} ]; then echo later; else echo first; : > {0}; fi", was_there.display());
        let varies = first_verdict("varies", &varies, 1);
        std::fs::remove_file(was_there).expect("it was made");
        assert_eq!(varies, Verdict::Same);
        // No time at all.
        let late = first_verdict("late", "[ -z \"$INSIDE\" ] || sleep 60", 0);
        assert!(matches!(late, Verdict::OutOfTime(_)), "{late:?}");
    }
}
