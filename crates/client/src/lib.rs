//! Speculations that a program makes itself (000, figure 2), inside a world of `speculator run`.
//!
//! ```no_run
//! match speculator::begin() {
//!     Ok(Begun::Ahead(speculation)) => { /* run ahead … */ speculation.commit()?; }
//!     Ok(Begun::Failed) => { /* the guess was wrong: everything since `begin` has never been */ }
//!     Err(error) => eprintln!("{error}"),
//! }
//! # use speculator::Begun;
//! # std::io::Result::Ok(())
//! ```
//! `begin` returns twice, as `fork` does: with a speculation, and again, from the same moment, if that fails. Between
//! the two everything that depends on the guess is taken back, in all processes of the world.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod call;

use agent_abi::speculate;
use std::io;

/// What `begin` returned with.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun {
    /// The program runs ahead.
    Ahead(Speculation),
    /// The speculation that began here has failed.
    Failed,
}

/// A speculation of this program's.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "until it is resolved nothing that depends on it leaves the world"]
pub struct Speculation(u64);

/// Begin a speculation.
///
/// # Errors
/// `ENOSYS` outside a world; `EAGAIN` where this process cannot run ahead: it has several threads or memory that it
/// shares, or too many speculations are open.
pub fn begin() -> io::Result<Begun> {
    begun(speculate::BEGIN, 0)
}

/// Begin a speculation that somebody outside of the world resolves (`speculator guesses`), who is told of `tag`.
///
/// # Errors
/// As `begin`.
pub fn begin_for_outside(tag: u64) -> io::Result<Begun> {
    begun(speculate::BEGIN_OUTSIDE, tag)
}

fn begun(what: u64, tag: u64) -> io::Result<Begun> {
    match call::speculate(what, tag) {
        Ok(number) => Ok(Begun::Ahead(Speculation(number))),
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Ok(Begun::Failed),
        Err(error) => Err(error),
    }
}

/// How many speculations this process depends on.
///
/// # Errors
/// `ENOSYS` outside a world.
pub fn depth() -> io::Result<u64> {
    call::speculate(speculate::DEPTH, 0)
}

impl Speculation {
    /// One that another process began and told us of.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number, for other processes of the world.
    pub fn number(&self) -> u64 {
        self.0
    }

    /// The guess was right.
    ///
    /// # Errors
    /// `ESRCH`: it was resolved before, or undone with an older one.
    pub fn commit(self) -> io::Result<()> {
        call::speculate(speculate::COMMIT, self.0).map(drop)
    }

    /// The guess was wrong. Returns only to a caller that does not depend on it.
    ///
    /// # Errors
    /// As `commit`.
    pub fn fail(self) -> io::Result<()> {
        call::speculate(speculate::FAIL, self.0).map(drop)
    }
}
