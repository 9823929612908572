//! Random histories of several clients of one BlueFS server, with faults, judged by whether one copy could have
//! answered so. Exit status 1: none could, or something hangs.

#![forbid(unsafe_code)]

mod call;
mod copy;
mod draw;
mod linear;
mod link;
mod plan;
mod planted;
mod report;
mod run;
mod scene;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use bluefs_client::{Address, Client, OnDisconnect};
use clap::{Parser, Subcommand};

use planted::Planted;
use report::Campaign;

#[derive(Parser)]
#[command(about = "Judges what several clients of BlueFS have seen", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    work: Option<Work>,
    /// How many histories
    #[arg(default_value_t = 100)]
    count: u64,
    /// Of the first one; each of the next has one more. From the time when left out
    #[arg(long)]
    seed: Option<u64>,
    /// Histories at the same time
    #[arg(long, default_value_t = 6)]
    jobs: usize,
    /// An error that is made on purpose: the status is 0 when it is found
    #[arg(long, value_enum)]
    planted: Option<Planted>,
    /// Without mounts, which need root
    #[arg(long)]
    no_mounts: bool,
    /// Only histories of mounts whose clients look at what the kernel has of contents
    #[arg(long, conflicts_with = "no_mounts")]
    pages: bool,
    /// Where violations are written to
    #[arg(long, default_value = "target/histories")]
    into: PathBuf,
    /// The program `speculator`
    #[arg(long, default_value = "target/debug/speculator")]
    speculator: PathBuf,
}

#[derive(Subcommand)]
enum Work {
    /// A client's process; only the program itself starts it
    #[command(hide = true)]
    Work {
        address: Address,
        /// Callers wait for a connection that is lost
        #[arg(long)]
        waits: bool,
        #[arg(long)]
        planted: Option<Planted>,
        /// The directory of a mount that is used
        #[arg(long, requires = "speculator")]
        files: Option<PathBuf>,
        #[arg(long)]
        speculator: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.work {
        Some(work) => do_work(work).map(|()| true),
        None => judge(args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("histories: {error}");
            ExitCode::from(2)
        }
    }
}

fn do_work(work: Work) -> Result<(), Box<dyn std::error::Error>> {
    let Work::Work { address, waits, planted, files, speculator } = work;
    if let (Some(dir), Some(speculator)) = (files, speculator) {
        return Ok(worker::work(worker::Files::new(&dir, speculator, address.to_string())?)?);
    }
    let on_disconnect = if waits { OnDisconnect::Block } else { OnDisconnect::Error };
    let client = Client::connect(address, None, on_disconnect)?;
    Ok(worker::work(worker::Session::new(client, planted))?)
}

fn judge(args: Args) -> Result<bool, Box<dyn std::error::Error>> {
    let mounts = !args.no_mounts && rustix::process::geteuid().is_root();
    if mounts {
        // Nothing stays mounted, however this ends.
        testkit::crash::private_mounts()?;
    }
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let (speculator, into) = (std::path::absolute(args.speculator)?, args.into);
    let campaign = Campaign { speculator, into, mounts, pages: args.pages, planted: args.planted };
    Ok(campaign.run(seed, args.count, args.jobs))
}
