//! What a world pays for full speculation while nothing is speculative: the same programs natively, in a world that
//! never speculated, and in one whose first program made a speculation and committed it.

use crate::figure::{Base, Figure, Limit, Target};
use crate::inside::{compare_ways, machine, Workshop};
use crate::Options;

/// Operations of `microbench.c` and how often each is done in one run. The warm-up, a tenth of that, outlasts what
/// follows a speculation.
const OPERATIONS: [(&str, u32); 4] =
    [("stat", 1_000_000), ("read", 2_000_000), ("open_read_close", 300_000), ("compute", 200_000)];

const WAYS: [&str; 3] = ["native", "lightweight", "after a speculation"];

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let workshop = Workshop::open()?;
    let (micro, resolved) = (workshop.compile("microbench", &[])?, workshop.compile("resolved", &[])?);
    let (mut series, mut targets) = (Vec::new(), Vec::new());
    for (operation, count) in OPERATIONS {
        let count = if options.quick { count / 20 } else { count };
        let words = |way| {
            let before = (way == 2).then(|| resolved.clone());
            before.into_iter().chain([micro.clone(), operation.to_owned(), count.to_string()]).collect()
        };
        let group = compare_ways(&workshop, options.runs, operation, WAYS, words)?;
        let [native, plain, after] = [0, 1, 2].map(|way: usize| group[way].median());
        eprintln!("{operation}: {native:.0} ns natively, {plain:.0} inside, {after:.0} after a speculation");
        let claim = format!("{operation}: after a speculation / lightweight");
        targets.push(Target { claim, measured: after / plain, limit: Limit::AtMost(1.02) });
        series.extend(group);
    }
    let title = "One operation while nothing is speculative".to_owned();
    let notes = vec![machine()];
    Ok(Figure { name: "overhead", title, unit: "ns", series, base: Base::Groups(WAYS.len()), targets, notes })
}
