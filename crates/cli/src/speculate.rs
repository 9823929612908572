//! `speculator begin`, `commit` and `fail`: a script's own speculations, inside a world.

use crate::error::Failure;
use speculator::{Begun, Speculation};
use std::io::{self, Write};

/// The status of `begin` after the speculation has failed.
const FAILED: u8 = 1;

/// Print the number of a new speculation. Returns a second time, with "failed" and status 1, if it fails.
pub fn begin() -> Result<u8, Failure> {
    let (text, status) = match speculator::begin() {
        Ok(Begun::Ahead(speculation)) => (speculation.number().to_string(), 0),
        Ok(Begun::Failed) => ("failed".to_owned(), FAILED),
        Err(error) => return Err(failure("begin", &error)),
    };
    let mut out = io::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // Whoever began it was told to end, and the guess failed for that.
        Err(error) if status == FAILED && error.kind() == io::ErrorKind::BrokenPipe => Ok(status),
        written => written.map(|()| status).map_err(Failure::Output),
    }
}

/// The guess was right.
pub fn commit(number: u64) -> Result<u8, Failure> {
    let done = Speculation::from_number(number).commit();
    done.map(|()| 0).map_err(|error| failure(&format!("commit {number}"), &error))
}

/// The guess was wrong. Does not return to a caller that depends on it.
pub fn fail(number: u64) -> Result<u8, Failure> {
    let done = Speculation::from_number(number).fail();
    done.map(|()| 0).map_err(|error| failure(&format!("fail {number}"), &error))
}

fn failure(what: &str, error: &io::Error) -> Failure {
    let (why, advice) = match error.raw_os_error() {
        Some(libc::ENOSYS) => ("this is not inside a world".to_owned(), "start the script with speculator run"),
        Some(libc::ESRCH) => ("there is no such open speculation".to_owned(), "resolve each one once"),
        Some(libc::EAGAIN) => ("the caller cannot run ahead now".to_owned(), "resolve other speculations first"),
        _ => (error.to_string(), "see speculator doctor"),
    };
    Failure::Speculate { what: what.to_owned(), why, advice }
}
