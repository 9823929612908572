//! `speculator begin`, `commit` and `fail`: a script's own speculations, inside a world; `guesses`, and the same from
//! outside of it.

use crate::error::{plain, Failure};
use crate::generate::stdout;
use speculator::{Begun, Speculation};
use std::io::{self, Write};
use supervisor::completions::{News, Outcome, Resolver};

/// The status of `begin` after the speculation has failed.
const FAILED: u8 = 1;

/// Print the number of a new speculation. Returns a second time, with "failed" and status 1, if it fails.
/// `outside`: by what somebody outside knows it, who is to resolve it.
pub fn begin(outside: Option<u64>) -> Result<u8, Failure> {
    let mut out = stdout()?;
    let begun = outside.map_or_else(speculator::begin, speculator::begin_for_outside);
    let (text, status) = match begun {
        Ok(Begun::Ahead(speculation)) => (speculation.number().to_string(), 0),
        Ok(Begun::Failed) => ("failed".to_owned(), FAILED),
        Err(error) => return Err(failure("begin", &error)),
    };
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // Whoever began it was told to end, and the guess failed for that.
        Err(error) if status == FAILED && error.kind() == io::ErrorKind::BrokenPipe => Ok(status),
        written => written.map(|()| status).map_err(Failure::Output),
    }
}

/// A guess was right, or it was wrong: then it does not return to a caller that depends on it. `world`: of which
/// `speculator run`, if it is not that of the caller.
pub fn resolve(number: u64, is_right: bool, world: Option<i32>) -> Result<u8, Failure> {
    let what = format!("{} {number}", if is_right { "commit" } else { "fail" });
    let one = Speculation::from_number(number);
    let done = match (world, is_right) {
        (Some(world), _) => resolve_from_outside(number, is_right, world),
        (None, true) => one.commit(),
        (None, false) => one.fail(),
    };
    done.map(|()| 0).map_err(|error| match world {
        Some(world) if error.raw_os_error() != Some(libc::ESRCH) => unreached(what, world, &error),
        _ => failure(&what, &error),
    })
}

fn resolve_from_outside(number: u64, is_right: bool, world: i32) -> io::Result<()> {
    let mut resolver = Resolver::connect(world)?;
    resolver.say(if is_right { Outcome::Commit(number) } else { Outcome::Fail(number) })?;
    while let Some(news) = resolver.hear()? {
        match news {
            News::Committed(one) if one == number && is_right => return Ok(()),
            News::Failed(one) if one == number && !is_right => return Ok(()),
            News::Committed(one) | News::Failed(one) | News::Undone(one) | News::Unknown(one) if one == number => break,
            _ => {}
        }
    }
    Err(io::Error::from_raw_os_error(libc::ESRCH))
}

/// Tell of the guesses of a world that are for somebody outside, until it has ended.
pub fn guesses(world: i32) -> Result<u8, Failure> {
    let what = "tell of guesses";
    let mut resolver = Resolver::connect(world).map_err(|error| unreached(what.to_owned(), world, &error))?;
    let mut out = stdout()?;
    while let Some(news) = resolver.hear().map_err(|error| unreached(what.to_owned(), world, &error))? {
        let text = serde_json::to_string(&news).map_err(|error| Failure::Output(error.into()))?;
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::Output)?;
    }
    Ok(0)
}

/// A world that cannot be spoken to.
fn unreached(what: String, world: i32, error: &io::Error) -> Failure {
    let (why, advice) = match error.kind() {
        io::ErrorKind::ConnectionRefused => (
            format!("process {world} is no running speculator run"),
            "see speculator top for the worlds that there are",
        ),
        io::ErrorKind::PermissionDenied => (format!("world {world} is another user's"), "be that user, or root"),
        _ => (plain(error), "see speculator top for the worlds that there are"),
    };
    Failure::Speculate { what, why, advice }
}

fn failure(what: &str, error: &io::Error) -> Failure {
    let (why, advice) = match error.raw_os_error() {
        Some(libc::ENOSYS) => ("this is not inside a world".to_owned(), "start the script with speculator run"),
        Some(libc::ESRCH) => ("there is no such open speculation".to_owned(), "resolve each one once"),
        Some(libc::EAGAIN) => ("the caller cannot run ahead now".to_owned(), "resolve other speculations first"),
        _ => (plain(error), "see speculator doctor"),
    };
    Failure::Speculate { what: what.to_owned(), why, advice }
}
