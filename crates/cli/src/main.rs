//! The command `speculator`. An error is one line on stderr, `speculator: what where: why; what to do`, and the status
//! 125; 126 and 127 say of COMMAND what env(1) says with them.
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[macro_use]
mod tell;

mod args;
mod bluefs;
mod command;
mod doctor;
mod error;
mod generate;
mod input;
mod number;
mod picture;
mod report;
mod run;
mod size;
mod speculate;
mod stats;
mod top;
mod try_report;
mod try_run;
mod usage;
mod volume;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Action;
use bluefs::args::BluefsAction;
use error::Failure;

fn main() -> ExitCode {
    supervisor::let_writes_fail();
    error::tell_of_faults();
    // What is wrong was told already.
    std::panic::catch_unwind(answer).unwrap_or(ExitCode::from(error::STATUS_OURS))
}

fn answer() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    if let Some(said) = bluefs::line_of_helper(&line) {
        return help_mount(said);
    }
    // No command for people: it is in no help, and in no completions.
    if line.get(1).is_some_and(|word| word == bluefs::FORGET_NAMES) {
        return bluefs::forget_names().map_or_else(|failure| failure.report(), ExitCode::from);
    }
    let result = usage::parse(line).and_then(|cli| perform(cli.action));
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(),
    }
}

/// What mount(8) has started; its statuses are those of mount(8).
fn help_mount(said: Result<Option<Vec<OsString>>, String>) -> ExitCode {
    const WRONG_CALL: u8 = 1;
    const MOUNT_FAILURE: u8 = 32;
    let result = said
        .map_err(Failure::Usage)
        .and_then(|line| line.map_or(Ok(0), |line| usage::parse(line).and_then(|cli| perform(cli.action))));
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(MOUNT_FAILURE),
        Err(failure) => {
            let _told = failure.report();
            ExitCode::from(if let Failure::Usage(_) = failure { WRONG_CALL } else { MOUNT_FAILURE })
        }
    }
}

fn perform(action: Action) -> Result<u8, Failure> {
    // A world says it itself, and `doctor` is there to say it.
    let needs_proc = matches!(action, Action::Try(_) | Action::Top(_) | Action::Volume { .. } | Action::Mount(_));
    if needs_proc && !procfs::machine::is_mounted() {
        return Err(Failure::NoProc);
    }
    match action {
        Action::Run(options) => run::run(options),
        Action::Begin { outside } => speculate::begin(outside),
        Action::Commit { speculation, world } => speculate::resolve(speculation, true, world),
        Action::Fail { speculation, world } => speculate::resolve(speculation, false, world),
        Action::Guesses { world } => speculate::guesses(world),
        Action::Try(options) => try_run::try_run(options),
        Action::Top(options) => top::top(&options),
        Action::Volume { action } => volume::perform(action),
        Action::Serve(options) => bluefs::serve(options),
        Action::Invite(options) => bluefs::invite(&options),
        Action::Mount(options) => bluefs::mount(&options),
        Action::Fsck(options) => bluefs::fsck(&options),
        Action::Bluefs { action: BluefsAction::Batch { address, access, file } } => {
            bluefs::batch(address, &access, file.as_deref())
        }
        Action::Doctor(options) => doctor::doctor(&options),
        Action::Completions { shell } => generate::completions(shell),
        Action::Man { page } => generate::man(page.as_deref()),
    }
}
