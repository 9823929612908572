//! Kills and stops the processes that stand around a world, at random moments, and looks what comes of it. The exit
//! status is 3 when something was shown too early, 1 when something else is wrong (it is left behind, or hangs), and 2
//! when too few processes were met for that to be known, or nothing ran.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use clap::Parser;
use testkit::crash::private_mounts;
use testkit::faults::{Campaign, Case, MARK, WORKLOADS};
use testkit::STATUS_FOUND;

/// Kills and stops the processes that stand around a world.
#[derive(Parser)]
struct Args {
    /// How many times
    #[arg(default_value_t = 500)]
    count: u64,
    /// What the cases are drawn with; from the time when left out
    #[arg(long)]
    seed: Option<u64>,
    /// Only this case
    #[arg(long)]
    only: Option<u64>,
    /// Cuts of the power for each
    #[arg(long, default_value_t = 4)]
    cuts: usize,
    /// Further options of `speculator run`
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
    /// The program `speculator`
    #[arg(long)]
    speculator: PathBuf,
}

fn main() -> ExitCode {
    let done = match std::env::var_os(MARK) {
        Some(_) => run(&Args::parse()),
        None => again_with_mark(),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("faults: {error}");
            ExitCode::from(2)
        }
    }
}

/// The campaign in a process whose variables say where its files are, and that are inherited by everything that it
/// starts.
fn again_with_mark() -> Result<u8, Box<dyn std::error::Error>> {
    Args::parse();
    let directory = tempfile::Builder::new().prefix("speculator-faults-").tempdir()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(MARK, directory.path()).env("TMPDIR", directory.path());
    let status = command.status()?;
    // As it is: only what the campaign itself says is a finding.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| format!("the campaign did not come about: {status}").into())
}

fn run(args: &Args) -> Result<u8, Box<dyn std::error::Error>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    private_mounts()?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("seed {seed}, {} cases, {} cuts each", args.count, args.cuts);
    let campaign = Campaign::new(&args.speculator, &args.options, args.cuts, &interrupted)?;
    let (mut struck, mut cuts, mut bad, mut losses) = (0, 0, 0, 0);
    for number in args.only.map_or(0..args.count, |only| only..only + 1) {
        let case = Case::draw(seed, number);
        let outcome = campaign.run(&case)?;
        struck += u64::from(outcome.was_struck);
        cuts += outcome.cuts;
        losses += outcome.losses;
        if !outcome.problems.is_empty() {
            bad += 1;
            println!("case {number}: {} {case:?}", WORKLOADS[case.workload]);
            println!("    status {}, {} seen: {:?}", outcome.status, outcome.seen, outcome.problems);
        }
    }
    println!("{struck} of {} were struck while they ran, {cuts} cuts; {bad} bad", args.count);
    // Moments are drawn up to a tenth behind the end: most strikes meet somebody, unless the processes are not found.
    if bad == 0 && args.only.is_none() && struck < args.count / 2 {
        return Err("most cases struck nobody, so that they show nothing".into());
    }
    Ok(match (bad, losses) {
        (0, _) => 0,
        (_, 0) => 1,
        _ => STATUS_FOUND,
    })
}
