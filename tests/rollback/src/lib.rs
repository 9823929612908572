//! Full speculation under failure: a program runs natively, and then inside with guesses that turn out wrong at random
//! (`speculator run
//! --inject`). All that it leaves must be the same every time: standard output, standard error, exit status, the tree
//! of files, and that nothing else is left over.
//!
//! Scenarios are real programs and shell scripts ([`scenarios`]), programs at a terminal, and programs of several
//! processes that are drawn at random ([`generate`]) and played by an interpreter: the [`subject`]s. Each runs with
//! several rates and seeds ([`matrix`]). A failure names the command that shows it again. The short form is a test; the
//! full one, `src/bin/equivalence.rs`, takes hours: it keeps a [`journal`] of the runs that were made, and goes on
//! where it ended.

#![forbid(unsafe_code)]

pub mod at_terminal;
pub mod check;
pub mod counts;
pub mod generate;
pub mod journal;
pub mod leftovers;
pub mod matrix;
pub mod programs;
pub mod record;
pub mod scenarios;
pub mod schedule;
pub mod subject;
pub mod summary;
