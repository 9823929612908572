//! One world: the process that supervises it, the process that stands for it in front of the user, and what passes
//! between them.
//!
//! ```text
//! shell ── front ──┬── COMMAND ── …          inside, held by the supervisor from before its first exec
//!                  └── supervisor            a session of its own: no signal of the terminal reaches it
//!                        ├ event loop        every stop; the only thread that may touch tracees
//!                        ├ commit            external_sync::engine
//!                        └ output            what is held leaves here
//! ```
//! The front is COMMAND's parent, so that the shell's job control and the exit status are the kernel's own. It ends
//! when COMMAND has ended and everything that its exit status depends on is committed; the supervisor stays until the
//! last process inside has ended.
#![deny(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod ahead;
mod classify;
pub mod completions;
mod core_dump;
mod descriptors;
mod devices;
mod ending;
mod event_loop;
mod forward;
mod front;
mod inherited;
mod kept;
mod log_files;
mod message;
mod mount_watch;
mod outputs;
mod privileges;
mod refused_programs;
mod request_names;
mod requests;
mod resent_signals;
mod same_core;
mod signals;
mod spent;
mod stats;
mod status;
pub mod status_sockets;
mod stop_the_world;
#[allow(unsafe_code)]
mod sys;
mod texts;
mod threads;
mod unseen;
mod volatile;

pub use ahead::{AheadOptions, Family, Injection, InjectionError, Limits, Report, Rollback};
pub use ahead::{Flow, Guess, History, Life, Outcome, Taken, TakenBack};
pub use front::{become_program, run, Ended, Interpose, RunError, RunOptions};
pub use spent::Spent;
pub use stats::{Distribution, Stats};
pub use status::{worlds, AheadStatus, OpenGuess, ProcessStatus, WorldStatus};
pub use sys::{close_inherited, closed_at_start, end_by, ignored_at_start, let_writes_fail};
pub use volatile::{VolatileError, VolatilePath};
