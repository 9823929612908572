//! Replays logs of real programs against epochs of guesses, without any agent: how many calls would have to ask the
//! supervisor if dependencies were decided when they change and not at each call.

#![forbid(unsafe_code)]

pub mod simulate;
pub mod step;
pub mod strace;
pub mod touch;
