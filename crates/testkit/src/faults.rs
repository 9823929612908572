//! The processes that stand around a world are killed or stopped at random moments, while a workload runs on a
//! crash disk.
//!
//! Afterwards: the command has ended; nothing of it is left (processes, System V segments, mounts, loop devices,
//! files); and no cut of the power shows that something was seen which was not durable.

mod leftovers;
mod victims;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::{kill_process, Signal};

use crate::crash::{record, replay_all, Channel, Configuration, CrashError, CutPlan, RecordOptions};
use crate::workload::{Programs, Workload};

use leftovers::Before;
pub use leftovers::MARK;
use victims::{find, Victim};

/// What runs while it happens.
pub const WORKLOADS: [&str; 10] = [
    "writer",
    "writer-fsync",
    "writer-osync",
    "pipeline",
    "tcp",
    "threads",
    "files",
    "files-fsync",
    "sqlite",
    "sqlite-wal",
];

const DISK_LEN: usize = 32 << 20;
/// A command that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest stop before the process goes on, or is killed.
const STOP_MS_MAX: u64 = 300;

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT later.
    Stop,
    /// SIGSTOP, and SIGKILL later.
    StopAndKill,
}

/// One case of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Index into [`WORKLOADS`].
    pub workload: usize,
    /// The command mounts the disk itself, as a volume.
    pub on_volume: bool,
    /// Whom it strikes.
    victim: Victim,
    /// How.
    pub blow: Blow,
    /// When, as a part of the time that the workload takes undisturbed.
    at: f64,
    /// How long a stop lasts.
    stop: Duration,
    seed: u64,
}

impl Case {
    /// The `number`th case of a campaign.
    pub fn draw(seed: u64, number: u64) -> Case {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
        Case {
            workload: number as usize % WORKLOADS.len(),
            on_volume: rng.bool(),
            victim: if rng.bool() { Victim::Front } else { Victim::Supervisor },
            blow: *rng.choice(&[Blow::Kill, Blow::Stop, Blow::StopAndKill]).unwrap_or(&Blow::Kill),
            at: rng.f64() * 1.1,
            stop: Duration::from_millis(rng.u64(..STOP_MS_MAX)),
            seed: rng.u64(..),
        }
    }
}

/// What became of a case.
#[derive(Debug, Default)]
pub struct Outcome {
    /// It was struck before it had ended by itself.
    pub was_struck: bool,
    /// How the command ended.
    pub status: String,
    /// How long it ran.
    pub elapsed: Duration,
    /// Numbers that were seen.
    pub seen: usize,
    /// Cuts that were tried.
    pub cuts: usize,
    /// What was seen, or had to be there, and is not.
    pub losses: usize,
    /// What must not be, losses among it.
    pub problems: Vec<String>,
}

/// A campaign's circumstances.
pub struct Campaign<'run> {
    programs: Programs,
    /// `speculator`, the program.
    speculator: &'run Path,
    /// Further options of `speculator run`.
    options: &'run str,
    interrupted: &'run AtomicBool,
    cuts: usize,
    /// How long each workload takes undisturbed, on the disk and on a volume.
    durations: Mutex<[[Option<Duration>; 2]; WORKLOADS.len()]>,
}

impl<'run> Campaign<'run> {
    /// With so many cuts of each case.
    pub fn new(
        speculator: &'run Path,
        options: &'run str,
        cuts: usize,
        interrupted: &'run AtomicBool,
    ) -> Result<Self, CrashError> {
        let durations = Mutex::new([[None; 2]; WORKLOADS.len()]);
        Ok(Campaign { programs: Programs::build()?, speculator, options, interrupted, cuts, durations })
    }

    /// Runs a case.
    pub fn run(&self, case: &Case) -> Result<Outcome, CrashError> {
        let duration = self.undisturbed(case)?;
        let before = Before::look();
        let struck = Mutex::new(Vec::new());
        let strike = |front: i32| {
            let pids = strike(case, duration, front);
            struck.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(pids);
        };
        let mut outcome = self.recorded(case, Some(&strike))?;
        let pids = struck.into_inner().unwrap_or_default();
        outcome.was_struck = !pids.is_empty();
        if case.blow == Blow::Stop && outcome.status != "0" {
            outcome.problems.push(format!("it was only stopped, and its status is {}", outcome.status));
        }
        outcome.problems.extend(before.what_is_left(&pids));
        Ok(outcome)
    }

    fn undisturbed(&self, case: &Case) -> Result<Duration, CrashError> {
        let place = (case.workload, usize::from(case.on_volume));
        let known = || self.durations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(duration) = known()[place.0][place.1] {
            return Ok(duration);
        }
        let duration = self.recorded(&Case { seed: 0, ..*case }, None)?.elapsed;
        known()[place.0][place.1] = Some(duration);
        Ok(duration)
    }

    /// Runs the workload, and cuts the power of that run.
    fn recorded(&self, case: &Case, disturb: Option<&(dyn Fn(i32) + Sync)>) -> Result<Outcome, CrashError> {
        let workload = workload(case);
        let configuration = self.configuration(case);
        let options = RecordOptions {
            disk_len: DISK_LEN,
            flush_delay: Duration::ZERO,
            channel: Channel::Pipe,
            patience: PATIENCE,
            interrupted: self.interrupted,
            fault: None,
            disturb,
        };
        let command = |dir: &Path, target: &str| workload.command(&self.programs, dir, target);
        let recording = match record(&configuration, &options, command) {
            Err(CrashError::Command { outcome, .. }) if outcome.starts_with("did not end") => {
                return Ok(Outcome { problems: vec![outcome], ..Outcome::default() });
            }
            recorded => recorded?,
        };
        let plan = CutPlan::new(&recording.log, case.seed, if disturb.is_some() { self.cuts } else { 1 });
        let check = |dir: &Path, seen: &[crate::crash::Message]| workload.check(&self.programs, dir, seen);
        let recover = &configuration.recover_options;
        let replayed = replay_all(&recording.log, recover, &plan.cuts, 1, self.interrupted, check)?;
        let violations = || replayed.iter().flat_map(|outcome| &outcome.violations);
        Ok(Outcome {
            was_struck: false,
            status: recording.status,
            elapsed: recording.elapsed,
            seen: recording.log.messages.len(),
            cuts: plan.cuts.len(),
            losses: violations().count(),
            problems: violations().map(|violation| format!("{violation:?}")).collect(),
        })
    }

    fn configuration(&self, case: &Case) -> Configuration {
        let begin = format!("{} run {}", self.speculator.display(), self.options);
        let command = match case.on_volume {
            true => format!("{begin} --volume {{device}}:{{dir}} --"),
            false => format!("{begin} --"),
        };
        Configuration::ours(&command, "data=journal", crate::crash::Expectation::Safe)
    }
}

fn workload(case: &Case) -> Workload {
    let name = WORKLOADS[case.workload % WORKLOADS.len()];
    let workload = Workload::parse(name).unwrap_or_else(|| unreachable!("{name} is in the list of names"));
    Workload { count: 60, pause_us: 500, ..workload }
}

/// Waits for the moment, and strikes. The process that was struck, and the front; nothing if it had ended before.
fn strike(case: &Case, duration: Duration, front: i32) -> Vec<i32> {
    sleep(duration.mul_f64(case.at));
    let Some(victim) = find(case.victim, front) else { return Vec::new() };
    let send = |signal| kill_process(victim, signal).is_ok();
    let was_struck = match case.blow {
        Blow::Kill => send(Signal::KILL),
        Blow::Stop | Blow::StopAndKill => {
            let was_struck = send(Signal::STOP);
            sleep(case.stop);
            send(if case.blow == Blow::Stop { Signal::CONT } else { Signal::KILL });
            was_struck
        }
    };
    if was_struck {
        vec![victim.as_raw_nonzero().get(), front]
    } else {
        Vec::new()
    }
}
