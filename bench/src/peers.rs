//! The peers: the same command on the same image, mounted and started in the ways that people have today, and ours.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use crate::figure::Series;
use crate::image::Image;
use crate::inside::{command, output_of, prefix, prefix_of, statistic};
use crate::Options;

/// One way to run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Mounted as usual: fast, and what was printed may be lost.
    Async,
    /// Mounted `sync,dirsync`: every write is durable when it returns.
    Sync,
    /// Mounted as usual, fsync made to do nothing by `LD_PRELOAD`.
    Eatmydata,
    /// Mounted as usual, under `speculator run`.
    Ours,
    /// The same with the older binary that the options name.
    Before,
}

/// All of them, in the order of the tables.
pub const PEERS: [Peer; 4] = [Peer::Async, Peer::Sync, Peer::Eatmydata, Peer::Ours];

impl Peer {
    /// As tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Async => "async",
            Peer::Sync => "sync",
            Peer::Eatmydata => "async + eatmydata",
            Peer::Ours => "speculator",
            Peer::Before => "speculator, before",
        }
    }

    fn mount_options(self) -> &'static str {
        match self {
            Peer::Sync => "sync,dirsync",
            _ => "",
        }
    }

    fn prefix(self, stats: &Path, options: &Options) -> Result<Vec<String>, String> {
        match self {
            Peer::Async | Peer::Sync => Ok(Vec::new()),
            Peer::Eatmydata => Ok(vec!["eatmydata".to_owned()]),
            Peer::Ours => prefix(Some(stats)),
            Peer::Before => {
                // Nobody reads them; to write them is a part of what is measured.
                let stats = stats.with_extension("before");
                let words = options.before.as_deref().map(|binary| prefix_of(binary, Some(&stats)));
                words.ok_or("no older binary".into())
            }
        }
    }
}

/// All of them, and the older binary if the options name one.
pub fn peers(options: &Options) -> impl Iterator<Item = Peer> {
    PEERS.into_iter().chain(options.before.is_some().then_some(Peer::Before))
}

/// One line of a comparison: a peer, and the command it runs.
pub struct Entrant<'a> {
    /// The series' name.
    pub name: String,
    /// The way it runs.
    pub peer: Peer,
    /// The command, in the mounted directory.
    pub words: &'a [String],
}

/// What a comparison has measured.
pub struct Comparison {
    /// Seconds, for each entrant.
    pub series: Vec<Series>,
    /// The supervisor's statistics of the last run.
    pub notes: Vec<String>,
}

/// Measures every entrant `options.runs` times, interleaved, each on a freshly mounted image: wall time of the whole
/// command; for ours that includes the commit at the end of the world. `prepare` fills the directory, untimed.
pub fn compare(
    image: &Image,
    entrants: &[Entrant],
    options: &Options,
    prepare: &dyn Fn(&Path) -> Result<(), String>,
) -> Result<Comparison, String> {
    let mut series: Vec<Series> = entrants.iter().map(|entrant| Series::new(entrant.name.clone())).collect();
    let stats = image.beside("stats.json");
    for run in 0..options.runs {
        for (entrant, series) in entrants.iter().zip(&mut series) {
            let seconds = measure(image, entrant, &stats, options, prepare)?;
            eprintln!("run {} of {}: {}: {seconds:.3} s", run + 1, options.runs, entrant.name);
            series.values.push(seconds);
        }
    }
    Ok(Comparison { series, notes: notes(&stats) })
}

fn measure(
    image: &Image,
    entrant: &Entrant,
    stats: &Path,
    options: &Options,
    prepare: &dyn Fn(&Path) -> Result<(), String>,
) -> Result<f64, String> {
    let mounted = image.mount(entrant.peer.mount_options())?;
    let work = mounted.path().join("work");
    std::fs::create_dir(&work).map_err(|error| format!("cannot make {}: {error}", work.display()))?;
    prepare(&work)?;
    // What preparing wrote is nobody's cost.
    output_of(command(&["sync".to_owned()]))?;
    let mut words = entrant.peer.prefix(stats, options)?;
    words.extend_from_slice(entrant.words);
    let mut job = command(&words);
    job.current_dir(&work).stdin(Stdio::null());
    let start = Instant::now();
    output_of(job)?;
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_dir_all(&work).map_err(|error| format!("cannot remove {}: {error}", work.display()))?;
    Ok(seconds)
}

fn notes(stats: &Path) -> Vec<String> {
    let fields = ["processes", "syscalls_tracked", "tracee_stops", "fsyncs_elided", "output_bytes_held"];
    let found = fields.iter().filter_map(|field| Some(format!("{field} {}", statistic(stats, field)?)));
    let found: Vec<String> = found.collect();
    if found.is_empty() {
        return Vec::new();
    }
    vec![format!("speculator's last run: {}", found.join(", "))]
}
