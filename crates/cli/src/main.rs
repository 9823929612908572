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

use std::process::ExitCode;

use args::Action;
use bluefs::args::BluefsAction;
use error::Failure;

fn main() -> ExitCode {
    let line = std::env::args_os().collect();
    let result = usage::parse(line).and_then(|cli| perform(cli.action));
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(),
    }
}

fn perform(action: Action) -> Result<u8, Failure> {
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
        Action::Bluefs { action: BluefsAction::Batch { address, invitation, file } } => {
            bluefs::batch(address, invitation.as_deref(), file.as_deref())
        }
        Action::Doctor(options) => doctor::doctor(&options),
        Action::Completions { shell } => generate::completions(shell),
        Action::Man { page } => generate::man(page.as_deref()),
    }
}
