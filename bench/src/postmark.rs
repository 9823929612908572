//! PostMark (002, figure 4): many small files created, read, appended to and deleted.

use std::path::Path;

use crate::figure::{against_before, Base, Figure, Limit, Target};
use crate::image::Image;
use crate::inside::machine;
use crate::peers::{compare, peers, Entrant, Peer};
use crate::Options;

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let count = if options.quick { 500 } else { 10_000 };
    let image = Image::make(2048, 512)?;
    // 002, 4.3: "it does not generate any output". Debian's shows dots; they go to a file on the volume, and once more
    // to us, to see what they cost.
    let quiet = ["sh", "-c", "exec postmark settings > report"].map(str::to_owned);
    let shown = ["postmark", "settings"].map(str::to_owned);
    let mut entrants: Vec<Entrant> =
        peers(options).map(|peer| Entrant { name: peer.name().to_owned(), peer, words: &quiet }).collect();
    entrants.push(Entrant { name: "speculator, shown".to_owned(), peer: Peer::Ours, words: &shown });
    let comparison = compare(&image, &entrants, options, &|work| write_settings(work, count))?;
    let mut figure = Figure {
        name: "postmark",
        title: format!("PostMark, {count} files, {count} transactions, 500-10,000 bytes"),
        unit: "s",
        series: comparison.series,
        base: Base::One(0),
        targets: Vec::new(),
        notes: [vec![machine()], comparison.notes].concat(),
    };
    let [fast, slow, ours] = ["async", "sync", "speculator"].map(|name| figure.median_of(name));
    figure.targets = vec![
        Target { claim: "speculator / async".into(), measured: ours / fast, limit: Limit::AtMost(1.07) },
        Target { claim: "sync / speculator".into(), measured: slow / ours, limit: Limit::AtLeast(25.0) },
    ];
    figure.targets.extend(against_before(&figure, "speculator", "speculator, before"));
    Ok(figure)
}

fn write_settings(work: &Path, count: u32) -> Result<(), String> {
    let files = work.join("files");
    std::fs::create_dir(&files).map_err(|error| format!("cannot make {}: {error}", files.display()))?;
    let text = format!(
        "set location {}\nset number {count}\nset transactions {count}\nset size 500 10000\nset seed 42\nrun\nquit\n",
        files.display()
    );
    std::fs::write(work.join("settings"), text).map_err(|error| format!("cannot write PostMark's settings: {error}"))
}
