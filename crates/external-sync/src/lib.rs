//! External synchrony (002): which file systems can commit and what they promise ([`domain`]), the volumes made for it
//! ([`volume`]), and what this machine allows ([`doctor`]).
#![deny(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod doctor;
pub mod domain;
pub mod e2fsprogs;
pub mod engine;
pub mod flush;
mod journal;
pub mod loop_device;
mod rest;
mod superblock;
#[allow(unsafe_code)]
mod sys;
pub mod volume;

/// What an error says of itself, without the number that Rust puts behind it.
pub(crate) fn why(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
