//! What a signal that a handler takes costs, natively and in a world: with a tracer each signal is a stop.

use crate::figure::{Base, Figure};
use crate::inside::{compare_ways, machine, Workshop};
use crate::Options;

/// Operations of `programs/signals.c`.
const OPERATIONS: [&str; 3] = ["kill", "timer", "timer_in_calls"];
const SIGNALS: u32 = 5000;
const WAYS: [&str; 2] = ["native", "run"];

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let workshop = Workshop::open()?;
    let program = workshop.compile("signals", &[])?;
    let count = if options.quick { SIGNALS / 20 } else { SIGNALS };
    let mut series = Vec::new();
    for operation in OPERATIONS {
        let words = |_| vec![program.clone(), operation.to_owned(), count.to_string()];
        let group = compare_ways(&workshop, options.runs, operation, WAYS, words)?;
        eprintln!("{operation}: {:.0} ns natively, {:.0} inside", group[0].median(), group[1].median());
        series.extend(group);
    }
    let title = "One signal that a handler takes".to_owned();
    let (base, notes, targets) = (Base::Groups(WAYS.len()), vec![machine()], Vec::new());
    Ok(Figure { name: "signals", title, unit: "ns", series, base, targets, notes })
}
