//! A build in the manner of the Andrew benchmark (002, figure 5): unpack, configure, make and remove a C package.

use std::path::Path;

use crate::figure::{Base, Figure, Limit, Target};
use crate::image::Image;
use crate::inside::{machine, repository};
use crate::peers::{compare, Entrant, PEERS};
use crate::Options;

/// The package: GNU hello, from Debian's source archive, fetched by `cargo xtask setup`.
const ARCHIVE: &str = "hello_2.10.orig.tar.gz";

/// What is timed. The package's directory is the only one that unpacking makes. Temporary files are on the same
/// file system, for all peers, as the docs/MEASUREMENTS.md says: else a compiler goes from one file system to the
/// other at each step, and ours commits each time.
const SCRIPT: &str = "set -e; mkdir tmp; TMPDIR=$PWD/tmp; export TMPDIR; tar xzf source.tar.gz; cd hello-*; ./configure --quiet --disable-nls > /dev/null 2>&1; \
    make -j2 > /dev/null 2>&1; ./hello > /dev/null; cd ..; rm -rf hello-* tmp";

const QUICK_SCRIPT: &str = "set -e; tar xzf source.tar.gz; ls -R > /dev/null; rm -rf hello-*";

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let archive = repository().join("target/sources").join(ARCHIVE);
    if !archive.exists() {
        return Err(format!("{} is missing: cargo xtask setup", archive.display()));
    }
    let image = Image::make(1024, 256)?;
    let words = ["sh", "-c", if options.quick { QUICK_SCRIPT } else { SCRIPT }].map(str::to_owned);
    let entrants = PEERS.map(|peer| Entrant { name: peer.name().to_owned(), peer, words: &words });
    let comparison = compare(&image, &entrants, options, &|work: &Path| {
        let copied = std::fs::copy(&archive, work.join("source.tar.gz"));
        copied.map(drop).map_err(|error| format!("cannot copy {}: {error}", archive.display()))
    })?;
    let mut figure = Figure {
        name: "build",
        title: "GNU hello: untar, configure, make -j2, remove".to_owned(),
        unit: "s",
        series: comparison.series,
        base: Base::One(0),
        targets: Vec::new(),
        notes: [vec![machine()], comparison.notes].concat(),
    };
    let measured = figure.median_of("speculator") / figure.median_of("async");
    figure.targets = vec![Target { claim: "speculator / async".into(), measured, limit: Limit::AtMost(1.03) }];
    Ok(figure)
}
