//! SQLite, one insert a transaction: `synchronous=FULL` in every way, against `synchronous=OFF`.

use std::fmt::Write as _;

use crate::figure::{against_before, Base, Figure, Limit, Target};
use crate::image::Image;
use crate::inside::machine;
use crate::peers::{compare, peers, Entrant, Peer};
use crate::Options;

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let count = if options.quick { 100 } else { 2_000 };
    let image = Image::make(512, 128)?;
    let words = |level: &str| ["sqlite3", "-init", level, "base.db", ""].map(str::to_owned);
    let (full, off) = (words("FULL"), words("OFF"));
    let mut entrants = vec![Entrant { name: "async, synchronous=OFF".into(), peer: Peer::Async, words: &off }];
    let with_full = |peer: Peer| Entrant { name: format!("{}, synchronous=FULL", peer.name()), peer, words: &full };
    entrants.extend(peers(options).map(with_full));
    let comparison = compare(&image, &entrants, options, &|work| {
        for level in ["FULL", "OFF"] {
            std::fs::write(work.join(level), script(level, count))
                .map_err(|error| format!("cannot write the script: {error}"))?;
        }
        Ok(())
    })?;
    let mut figure = Figure {
        name: "sqlite",
        title: format!("SQLite, {count} transactions of one insert"),
        unit: "s",
        series: comparison.series,
        base: Base::One(0),
        targets: Vec::new(),
        notes: [vec![machine()], comparison.notes].concat(),
    };
    let off = figure.median_of("async, synchronous=OFF");
    let full = figure.median_of("async, synchronous=FULL");
    let ours = figure.median_of("speculator, synchronous=FULL");
    figure.targets = vec![
        Target { claim: "speculator / synchronous=OFF".into(), measured: ours / off, limit: Limit::AtMost(1.15) },
        Target { claim: "synchronous=FULL / speculator".into(), measured: full / ours, limit: Limit::AtLeast(5.0) },
    ];
    let [ours, before] = ["speculator", "speculator, before"].map(|name| format!("{name}, synchronous=FULL"));
    figure.targets.extend(against_before(&figure, &ours, &before));
    Ok(figure)
}

fn script(level: &str, count: u32) -> String {
    let mut text = format!("pragma synchronous={level};\ncreate table t(id integer primary key, v text);\n");
    for row in 0..count {
        // Writing to a String does not fail.
        let _ = writeln!(text, "insert into t(v) values('the value of row {row}, a little longer than a word');");
    }
    text.push_str("select count(*) from t;\n");
    text
}
