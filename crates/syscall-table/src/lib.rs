//! One row for each x86-64 system call: what it means for dependencies, without guesses and on a guess, and why. The
//! table is data: the seccomp filter is built from it, the agent dispatches on it, the supervisor's plans begin with
//! it, `speculator doctor --syscalls` prints it, and `docs/SYSCALLS.md` is generated from it. A number that has no row
//! is a barrier.
#![no_std]
#![forbid(unsafe_code)]

mod ahead;
mod check;
mod index;
mod op;
mod proc;
mod render;
mod rows;
mod shows;
mod socket_options;

pub use ahead::{ahead, concerns_only_its_process, looks_at_terminal, Ahead, Because};
pub use index::{look_up, op};
pub use op::{Class, Op, SyncKind, CWD};
pub use proc::may_lead_to_others;
pub use render::{write_markdown, write_text};
pub use rows::{nr, ROWS};
pub use shows::{error_shows_others, Shows, Whom};
pub use socket_options::{option_shows, OptionShows};

/// What the table says of one system call.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its number in the x86-64 ABI.
    pub nr: u16,
    /// Its name as in `asm/unistd_64.h`, without `__NR_`.
    pub name: &'static str,
    /// What kind of thing it is to somebody who reasons about dependencies.
    pub class: Class,
    /// What the agent does about it.
    pub op: Op,
    /// Of whom its result tells, or its error.
    pub shows: Shows,
    /// What it is while its process depends on a guess.
    pub ahead: Ahead,
    /// Why, in a few words.
    pub why: &'static str,
}

/// The row of a system call, if the table knows it.
pub fn row(nr: u64) -> Option<&'static Row> {
    let at = ROWS.binary_search_by_key(&nr, |row| u64::from(row.nr)).ok()?;
    ROWS.get(at)
}
