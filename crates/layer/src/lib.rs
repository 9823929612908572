//! A no-steal layer (000, 6.4): what a command changes lives where only it sees it, and reaches the file systems when
//! it is kept.
//!
//! ```text
//!  outside ── files ──┐ read                                  ┌─► apply ─► files     (keep)
//!                     ▼                                       │
//!   COMMAND ──► overlays: one over each local file system ──► layer ─► dropped       (undo)
//!   own pid, mount, IPC, UTS and network namespace            an image without a name
//! ```
//! [`Attempt`] is one try: begun, run to its end, looked at, then kept or undone. `view` builds what COMMAND sees;
//! `inside` is the first process there; `gate` answers for the system calls that lead past files; `scan` reads what the
//! layer holds and makes the [`plan`]; `check` looks whether that can be carried out to its end, and `apply` does it.
#![deny(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod apply;
mod attempt;
mod changes;
mod check;
mod error;
mod gate;
mod give_up;
mod held;
mod image;
mod input;
mod inside;
mod mounts;
mod object;
mod overlay_format;
mod plan;
mod realm;
mod record;
mod recover;
mod scan;
#[allow(unsafe_code)]
mod sys;
mod terminal;
mod view;

pub use attempt::{Attempt, LeftRunning, Network, Ran, TryOptions};
pub use changes::{Aspect, Change, Changes, Kind, What};
pub use error::LayerError;
pub use gate::{Asker, Reached, Verdict};
pub use give_up::{give_up, GivenUp, Left};
pub use held::Stream;
pub use record::Progress;
pub use recover::{interrupted, left_behind, progress, resume, Part, Resumed, Whereabouts};
pub use view::root_can_have_a_layer;

/// What an error says of itself, without the number that Rust puts behind it.
pub(crate) fn why(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
