//! What goes wrong with a disk, and when.

use std::fmt;

/// A fault, counted from the moment at which it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The n-th write fails (EIO), or all from there on.
    Write {
        /// Which.
        nth: u64,
        /// Whether the disk stays broken.
        lasting: bool,
    },
    /// The n-th flush fails (EIO), or all from there on; those before it have succeeded.
    Flush {
        /// Which.
        nth: u64,
        /// Whether the disk stays broken.
        lasting: bool,
    },
    /// From the n-th write on there is no room (ENOSPC).
    NoSpace {
        /// Which.
        nth: u64,
    },
}

impl Fault {
    /// The same for the same seed.
    pub fn of_seed(seed: u64) -> Fault {
        let mut rng = fastrand::Rng::with_seed(seed);
        match rng.u32(0..5) {
            0 | 1 => Fault::Write { nth: rng.u64(1..120), lasting: rng.bool() },
            2 | 3 => Fault::Flush { nth: rng.u64(1..40), lasting: rng.bool() },
            _ => Fault::NoSpace { nth: rng.u64(1..120) },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |lasting: &bool| if *lasting { " and all later ones fail" } else { " fails" };
        match self {
            Fault::Write { nth, lasting } => write!(f, "write {nth}{} with EIO", on(lasting)),
            Fault::Flush { nth, lasting } => write!(f, "flush {nth}{} with EIO", on(lasting)),
            Fault::NoSpace { nth } => write!(f, "write {nth} and all later ones fail with ENOSPC"),
        }
    }
}

/// A fault on its way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    fault: Option<Fault>,
    writes: u64,
    flushes: u64,
    hits: u64,
}

impl Faults {
    /// From now on.
    pub fn new(fault: Fault) -> Faults {
        Faults { fault: Some(fault), ..Faults::default() }
    }

    /// How often a request has failed.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// A write has come: how it fails, if it does.
    pub(super) fn on_write(&mut self) -> Option<fuser::Errno> {
        self.writes += 1;
        let error = match self.fault? {
            Fault::Write { nth, lasting } if is_now(self.writes, nth, lasting) => fuser::Errno::EIO,
            Fault::NoSpace { nth } if is_now(self.writes, nth, true) => fuser::Errno::ENOSPC,
            _ => return None,
        };
        self.hits += 1;
        Some(error)
    }

    /// The same for a flush.
    pub(super) fn on_flush(&mut self) -> Option<fuser::Errno> {
        self.flushes += 1;
        match self.fault? {
            Fault::Flush { nth, lasting } if is_now(self.flushes, nth, lasting) => {
                self.hits += 1;
                Some(fuser::Errno::EIO)
            }
            _ => None,
        }
    }
}

fn is_now(count: u64, nth: u64, lasting: bool) -> bool {
    count == nth || lasting && count > nth
}
