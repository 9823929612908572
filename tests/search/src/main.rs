//! Searches for holes of *durable before observed*: for a process B that learns what another one did, which still has
//! uncommitted changes, and whose output leaves before those are durable.
//!
//! `cells/*.c` has actions of A and observations of B. Each action with each observation is a *pair*. A pair *tells* if
//! what B sees differs with and without the action when both run natively; that is found out, not written down. Pairs
//! that tell are played in a world whose flushes are stopped. What B says before they are let go was not held: if it
//! is not what B says without the action, the pair is a *hole*. A B of `outside:…` observations runs outside the world,
//! and shares with A what A inherited: what it says differs only if something has left.

#![forbid(unsafe_code)]

mod cells;
mod known;
mod search;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

use cells::{is_outside, Cells, Pair};
use search::{Search, Verdict};

/// So many pairs with two actions, if it is not said how many.
const PAIRS_OF_TWO: usize = 1500;

/// Searches for what a process inside can learn and show before it is durable
#[derive(Debug, Parser)]
struct Arguments {
    /// The program to be searched
    #[arg(long)]
    speculator: PathBuf,
    /// A folder on the disk that is to be kept in order
    #[arg(long)]
    into: PathBuf,
    /// So many pairs, drawn at random; all if not said
    #[arg(long)]
    pairs: Option<usize>,
    /// Without the first so many of those drawn
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Where drawing begins
    #[arg(long)]
    seed: Option<u64>,
    /// Only pairs with this action
    #[arg(long)]
    action: Option<String>,
    /// Only pairs with this observation
    #[arg(long)]
    observation: Option<String>,
    /// Only pairs whose B is outside the world, or only others
    #[arg(long)]
    outside: Option<bool>,
    /// A does two actions, one after the other; some are drawn
    #[arg(long)]
    two: bool,
    /// A acts in another thread than the one that has changed the file
    #[arg(long)]
    in_thread: bool,
    /// Say also which pairs tell, and what came of each
    #[arg(short, long)]
    verbose: bool,
    /// More options of `speculator run`
    #[arg(long, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// The status that says that a hole was found, and nothing else does (`FOUND` in xtask's `shell.rs`).
const STATUS_FOUND: u8 = 3;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(Verdict::AsKnown) => ExitCode::SUCCESS,
        Ok(Verdict::Hole) => ExitCode::from(STATUS_FOUND),
        Ok(Verdict::Rotten) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("search: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Verdict, String> {
    let mut cells = Cells::build(&arguments.into, &arguments.speculator, &arguments.options)?;
    cells.in_thread = arguments.in_thread;
    if let Some((action, observation)) = known::unknown(&cells) {
        return Err(format!("{action} {observation} is listed in known.rs, and there is no such pair"));
    }
    let pairs = chosen(arguments, &cells)?;
    let search = Search { cells: &cells, verbose: arguments.verbose };
    let found = search.run(&pairs)?;
    print!("{found}");
    found.verdict()
}

/// The pairs that the arguments choose, as they are drawn from the seed, which is printed.
fn chosen(arguments: &Arguments, cells: &Cells) -> Result<Vec<Pair>, String> {
    let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or_else(clock);
    let mut rng = fastrand::Rng::with_seed(seed);
    let actions: Vec<&String> = cells.actions.iter().filter(|name| is(&arguments.action, name)).collect();
    let observations: Vec<&String> =
        cells.observations.iter().filter(|name| is(&arguments.observation, name)).collect();
    if actions.is_empty() || observations.is_empty() {
        return Err("no such pair".to_owned());
    }
    let pair = |action: String, observation: &str| Pair { action, observation: observation.to_owned() };
    let mut pairs = Vec::new();
    if arguments.two {
        // There are too many to shuffle them.
        for _ in 0..arguments.pairs.unwrap_or(PAIRS_OF_TWO) {
            let mut both = [&cells.actions[rng.usize(..cells.actions.len())], actions[rng.usize(..actions.len())]];
            rng.shuffle(&mut both);
            let [first, second] = both;
            pairs.push(pair(format!("{first}+{second}"), observations[rng.usize(..observations.len())]));
        }
    } else {
        for action in actions {
            pairs.extend(observations.iter().map(|observation| pair(action.clone(), observation)));
        }
    }
    pairs.retain(|pair| {
        cells.can_be_played(pair) && arguments.outside.is_none_or(|is| is == is_outside(&pair.observation))
    });
    let outside = cells.observations.iter().filter(|name| is_outside(name)).count();
    print!("{} actions, {} observations, {outside} of them outside", cells.actions.len(), cells.observations.len());
    if arguments.pairs.is_some() || arguments.two {
        rng.shuffle(&mut pairs);
        pairs.drain(..arguments.skip.min(pairs.len()));
        pairs.truncate(arguments.pairs.unwrap_or(PAIRS_OF_TWO));
        print!(", drawn with --seed {seed}");
    }
    println!();
    Ok(pairs)
}
