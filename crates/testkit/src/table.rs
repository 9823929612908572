//! 002's figure 3, measured: one row for each workload in each configuration.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::crash::{
    record, replay_all, Configuration, CrashError, Cut, CutPlan, Expectation, Log, RecordOptions, Replayer, Report,
};
use crate::workload::{Kind, Programs, Synchrony, Workload};

/// How to measure a row.
pub struct MeasureOptions<'run> {
    /// How the workload runs.
    pub record: RecordOptions<'run>,
    /// How many cuts at most.
    pub cuts: usize,
    /// What they are drawn with.
    pub seed: u64,
    /// How many are replayed at once.
    pub jobs: usize,
    /// Where to put the disk as it was at the first violation, before recovery.
    pub keep_images: Option<&'run Path>,
}

/// Runs `workload` in `configuration` once, and cuts the power of that run many times.
pub fn measure(
    options: &MeasureOptions<'_>,
    configuration: &Configuration,
    workload: &Workload,
    programs: &Programs,
) -> Result<Report, CrashError> {
    let mut prepared = Ok(());
    let recording = record(configuration, &options.record, |dir, target| {
        prepared = workload.prepare(programs, dir);
        workload.command(programs, dir, target)
    });
    prepared?;
    let recording = recording?;
    let log = &recording.log;
    let plan = CutPlan::new(log, options.seed, options.cuts);
    let begin = Instant::now();
    let outcomes = replay_all(
        log,
        &configuration.recover_options,
        &plan.cuts,
        options.jobs,
        options.record.interrupted,
        |dir, seen| workload.check(programs, dir, seen),
    )?;
    let replay_s = begin.elapsed().as_secs_f64();
    let report = Report {
        configuration: configuration.name.clone(),
        workload: workload.name(),
        run_s: recording.elapsed.as_secs_f64(),
        replay_s,
        ..Report::new(log, &plan, &outcomes)
    };
    let mut bad = outcomes.iter().filter(|outcome| !outcome.violations.is_empty());
    if let (Some(dir), Some(bad)) = (options.keep_images, bad.next()) {
        let name = format!("{}-{}-{}.img", report.configuration, report.workload, bad.cut.at);
        keep_image(log, &bad.cut, &dir.join(name))?;
    }
    Ok(report)
}

fn keep_image(log: &Log, cut: &Cut, path: &Path) -> Result<(), CrashError> {
    let disk = Replayer::new(log, "")?.disk_after(cut);
    std::fs::write(path, disk).map_err(CrashError::system(format!("write {}", path.display())))
}

/// A line of the table, and of the JSON file.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    #[serde(flatten)]
    pub report: Report,
    /// What the configuration promises to the workload.
    pub expectation: Expectation,
    /// Whether the report agrees with that.
    pub as_expected: bool,
    /// Whether the workload calls fsync or the like.
    pub syncs: bool,
    /// Whether the workload waits, as it should, for what makes its changes durable; else it says nothing of the
    /// configuration.
    pub in_figure: bool,
    /// Why the run did not come about.
    pub error: Option<String>,
}

/// What stands above the rows.
pub const HEADER: &str = "configuration      workload         cuts  not-durable  out-of-order  corrupt   run s  replay s  writes  flushes  as expected";

impl Row {
    /// A row from what [`measure`] returned.
    pub fn new(configuration: &Configuration, workload: &Workload, measured: Result<Report, CrashError>) -> Row {
        let expectation = workload.expectation(configuration);
        let syncs = workload.synchrony != Synchrony::None;
        let (report, error) = match measured {
            Ok(report) => (report, None),
            Err(error) => {
                let names = Report {
                    configuration: configuration.name.clone(),
                    workload: workload.name(),
                    ..Report::default()
                };
                (names, Some(error.to_string()))
            }
        };
        let as_expected = match expectation {
            _ if error.is_some() => false,
            Expectation::Safe => !report.has_violations(),
            Expectation::Durable => report.not_durable == 0,
            Expectation::Lossy => report.has_violations(),
            Expectation::Unknown => true,
        };
        let in_figure = workload.kind != Kind::Early && expectation != Expectation::Unknown;
        Row { report, expectation, as_expected, syncs, in_figure, error }
    }

    fn verdict(&self) -> &'static str {
        match (self.as_expected, self.expectation) {
            (true, Expectation::Safe) => "yes: safe",
            (true, Expectation::Durable) => "yes: durable",
            (true, Expectation::Lossy) => "yes: loses",
            (true, Expectation::Unknown) => "no claim",
            (false, _) if self.error.is_some() => "NO: DID NOT RUN",
            (false, Expectation::Lossy) => "NO: FOUND NO LOSS",
            (false, _) => "NO: LOSES",
        }
    }
}

/// What rows come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All are as expected.
    AsExpected,
    /// One did not run.
    DidNotRun,
    /// One that should be safe loses something.
    Loses,
    /// One that should lose something did not.
    FoundNoLoss,
}

/// What did not run goes first: with it a loss that was found elsewhere would prove less than it says.
pub fn verdict(rows: &[Row]) -> Verdict {
    let bad = || rows.iter().filter(|row| !row.as_expected);
    match bad().next() {
        None => Verdict::AsExpected,
        Some(_) if bad().any(|row| row.error.is_some()) => Verdict::DidNotRun,
        Some(_) if bad().any(|row| row.expectation != Expectation::Lossy) => Verdict::Loses,
        Some(_) => Verdict::FoundNoLoss,
    }
}

/// One line, and what a reader needs who did not expect it.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.report;
        write!(
            f,
            "{:<18} {:<15} {:>5} {:>12} {:>13} {:>8} {:>7.2} {:>9.1} {:>7} {:>8}  {}",
            report.configuration,
            report.workload,
            report.cut_points,
            report.not_durable,
            report.out_of_order,
            report.corrupt,
            report.run_s,
            report.replay_s,
            report.writes,
            report.flushes,
            self.verdict(),
        )?;
        if let Some(error) = &self.error {
            write!(f, "\n    {error}")?;
        }
        let examples = report.examples.iter().filter(|_| !self.as_expected);
        for example in examples {
            write!(
                f,
                "\n    cut at {}: {} events on the platter, {} more writes kept, {} messages seen: {:?}",
                example.at, example.certain, example.kept, example.observed, example.violations
            )?;
        }
        Ok(())
    }
}

/// The paper's table: is data durable on write, on fsync? From the workloads that write only, and those that sync.
pub fn figure_3(configurations: &[Configuration], rows: &[Row]) -> String {
    let mut table = format!("{:<18} {:<22} data durable on fsync", "", "data durable on write");
    for configuration in configurations {
        let answer = |syncs: bool| {
            let is_cell = |row: &&Row| {
                row.report.configuration == configuration.name && row.syncs == syncs && row.error.is_none()
            };
            let cells: Vec<&Row> = rows.iter().filter(is_cell).collect();
            match cells.iter().any(|row| row.report.has_violations()) {
                _ if cells.is_empty() => "-",
                true => "No",
                false => "Yes",
            }
        };
        let line = format!("\n{:<18} {:<22} {}", configuration.name, answer(false), answer(true));
        table.push_str(&line);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(expectation: Expectation, as_expected: bool, error: Option<&str>) -> Row {
        let (report, error) = (Report::default(), error.map(str::to_owned));
        Row { report, expectation, as_expected, syncs: false, in_figure: true, error }
    }

    #[test]
    fn what_did_not_run_is_no_loss() {
        let good = || row(Expectation::Safe, true, None);
        let loses = || row(Expectation::Safe, false, None);
        assert_eq!(verdict(&[]), Verdict::AsExpected);
        assert_eq!(verdict(&[good()]), Verdict::AsExpected);
        assert_eq!(verdict(&[good(), loses()]), Verdict::Loses);
        assert_eq!(verdict(&[loses(), row(Expectation::Safe, false, Some("no disk"))]), Verdict::DidNotRun);
        assert_eq!(verdict(&[row(Expectation::Lossy, false, None), good()]), Verdict::FoundNoLoss);
    }
}
