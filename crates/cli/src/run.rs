//! `speculator run`: everything that can be found wrong before COMMAND starts is found here.

use std::path::PathBuf;

use external_sync::domain;
use external_sync::volume::WorldVolumes;
use supervisor::{Ended, Stats, VolatileError, VolatilePath};

use crate::args::{Commit, Interpose, RunOptions, Threads};
use crate::command;
use crate::error::Failure;
use crate::report::Reports;
use crate::stats::{StatsError, StatsFile, StatsSink};

/// `speculator run`; the status is that of COMMAND.
pub fn run(options: RunOptions) -> Result<u8, Failure> {
    if speculator::depth().is_ok() {
        return Err(pass_through(&options));
    }
    let reports = Reports::open(&options.ahead.reports)?;
    let stats = options.stats.as_ref().map(StatsSink::open).transpose()?;
    let trace = trace()?;
    // INVARIANT: clap requires COMMAND.
    let name = options.command.first().expect("COMMAND is required").clone();
    if options.volumes.is_empty() && options.private_tmp.is_empty() {
        command::resolve(&name)?;
    }
    let volumes = external_sync::volume::mount_for_world(&options.volumes, &options.private_tmp)?;
    // COMMAND may lie on a volume, and so may paths that are volatile.
    let found = command::resolve(&name).map_err(Failure::from);
    let found = found.and_then(|program| Ok((program, volatile_paths(&options, &volumes)?)));
    let (program, volatile) = match found {
        Ok(found) => found,
        Err(error) => {
            volumes.unmount()?;
            return Err(error);
        }
    };
    volumes.iter().for_each(crate::volume::warn_of_doubt);
    if options.verbose > 0 {
        tell_promises();
    }
    let ended = supervisor::run(supervisor::RunOptions {
        program,
        args: options.command,
        volumes,
        volatile,
        elide_fsync: options.elide_fsync,
        eager: options.commit == Commit::Eager,
        commit_interval: options.commit_interval,
        independent_threads: options.threads == Threads::Independent,
        interpose: match options.interpose {
            Interpose::Agent => supervisor::Interpose::Agent,
            Interpose::Stops => supervisor::Interpose::Stops,
        },
        verbose: options.verbose,
        wants_stats: stats.is_some() || reports.are_wanted(),
        hold_input: options.hold_input,
        release_early: options.release_early,
        ahead: supervisor::AheadOptions { trace, ..options.ahead.into_options() },
    })?;
    match &ended.stats {
        Some(stats) => reports.tell(&stats.ahead)?,
        None if reports.are_wanted() => {
            tell!("speculator: processes of this world go on, so there is no report yet")
        }
        None => {}
    }
    show(ended, stats)
}

/// The file that SPECULATOR_TRACE names. The supervisor makes it, and has another working directory.
fn trace() -> Result<Option<PathBuf>, StatsError> {
    let Some(path) = std::env::var_os("SPECULATOR_TRACE").map(PathBuf::from) else { return Ok(None) };
    drop(StatsFile::open(&path, "the trace that SPECULATOR_TRACE names")?);
    Ok(Some(std::path::absolute(&path).unwrap_or(path)))
}

/// Inside a world already: COMMAND runs in that one, instead of us. Returns only if it cannot.
fn pass_through(options: &RunOptions) -> Failure {
    if !options.volumes.is_empty() || !options.private_tmp.is_empty() {
        return Failure::Nested;
    }
    // INVARIANT: clap requires COMMAND.
    let name = options.command.first().expect("COMMAND is required");
    let program = match command::resolve(name) {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    tell!("speculator: this is inside a world of speculator run already: COMMAND runs there, by that run's options");
    let source = supervisor::become_program(&program, &options.command);
    supervisor::RunError::Exec { program, source }.into()
}

fn volatile_paths(options: &RunOptions, volumes: &WorldVolumes) -> Result<Vec<VolatilePath>, VolatileError> {
    let path = |path: &PathBuf| VolatilePath::new(path, volumes.iter().map(|volume| volume.dir()));
    options.volatile.iter().map(path).collect()
}

fn show(ended: Ended, sink: Option<StatsSink>) -> Result<u8, Failure> {
    match (ended.stats, sink) {
        (_, None) => {}
        (Some(stats), Some(sink)) => write(&stats, sink)?,
        (None, Some(_)) => tell!("speculator: processes of this world go on, so there are no statistics yet"),
    }
    if let Some(signal) = ended.signal {
        supervisor::end_by(signal);
    }
    Ok(ended.status)
}

fn write(stats: &Stats, sink: StatsSink) -> Result<(), Failure> {
    match sink {
        StatsSink::Text => tell!("{stats}"),
        StatsSink::Json(file) => {
            let json = serde_json::to_string_pretty(stats).expect("numbers and strings");
            file.write(&(json + "\n"))?;
        }
    }
    Ok(())
}

/// What each file system that can commit promises.
fn tell_promises() {
    let Ok(found) = domain::file_systems() else { return };
    for file_system in found.iter().filter(|f| f.class.can_commit()) {
        tell!(
            "speculator: {} is {}: {}",
            file_system.mount_point.display(),
            file_system.class.name(),
            file_system.reason
        );
    }
}
