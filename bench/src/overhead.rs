//! What a world pays for full speculation while nothing is speculative: the same programs natively, in a world that
//! never speculated, and in one whose first program made a speculation and committed it.

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::inside::{command, machine, nanoseconds, prefix_with, Workshop};
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
        let mut group = WAYS.map(|way| Series::new(format!("{operation}, {way}")));
        for _ in 0..options.runs {
            for (way, series) in group.iter_mut().enumerate() {
                let mut words = match way {
                    0 => Vec::new(),
                    _ => prefix_with(&[], &workshop.file("stats.json"))?,
                };
                words.extend((way == 2).then(|| resolved.clone()));
                words.extend([micro.clone(), operation.to_owned(), count.to_string()]);
                let mut job = command(&words);
                job.current_dir(workshop.path());
                series.values.push(nanoseconds(job)?);
            }
        }
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
