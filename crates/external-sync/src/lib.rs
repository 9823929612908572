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

/// What to do where this process, or the machine, has run out of something; then nothing is wrong with the place.
pub fn advice_on_lack(error: &std::io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::EMFILE => Some("raise the limit of open files (ulimit -n)"),
        libc::ENFILE => Some("end programs that have many files open: the machine allows no more"),
        // Of fork(2) and clone(2).
        libc::EAGAIN => Some("raise the limit of processes (ulimit -u)"),
        libc::ENOMEM => Some("free memory, or raise its limit (ulimit -v)"),
        _ => None,
    }
}
