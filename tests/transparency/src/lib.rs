//! Transparency: a program runs natively and then inside, in directories of the same path, and everything that
//! it leaves is compared: standard output, standard error, exit status or signal, and the tree of files.
//!
//! A scenario is a file with directives in its first lines ([`directives`]): one behaviour each in
//! `tests/programs/` (see there), a real program each in `tests/transparency/scenarios/`. Programs that own a
//! terminal are driven through tmux ([`terminal`]).
//!
//! **Invariant**: no process is ever killed that this harness did not start ([`run`] marks each one).

#![deny(unsafe_code)]

pub mod compare;
pub mod compile;
pub mod directives;
pub mod discover;
pub mod run;
pub mod scenario;
pub mod settings;
pub mod terminal;
pub mod terminal_scenarios;
pub mod tree;

pub use scenario::{check, Scenario};
pub use settings::Settings;
