//! What a call is while its process is speculative: the table's second mode (000, 5.3). The agent asks nobody about
//! rows that are [`Ahead::Own`]; the supervisor's plan of a call begins with what the row says.

use crate::{look_up, rows::TABLE, Op, Shows, Whom};

/// What a call is while its process depends on a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// It touches only what a checkpoint of its process holds: memory, handlers, masks, time (000, 5.1). Nobody is
    /// asked.
    Own,
    /// Nobody else learns of it, and a rollback of its process undoes it: allowed.
    Free,
    /// It observes and modifies objects inside, and is undone with them. What leads out of the world waits.
    Tracked,
    /// As `Tracked`; what would reach a disk, or leave the world, is kept until the guess is right (000, 6.4).
    Held,
    /// Its arguments decide.
    ByArgument,
    /// It waits, and so does whoever made what it concerns speculative: data that moves within the kernel.
    Certain,
    /// It looks into other processes: it waits until nobody is speculative.
    Alone,
    /// It waits until its process depends on no guess.
    Waits(Because),
}

/// Why a call waits for a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// What it does to others is not known to be safe: it is a barrier without guesses, too.
    Unknown,
    /// It changes something of its process that no checkpoint holds.
    Lasting,
    /// It could be tracked, and is not.
    NotBuilt,
}

/// Whether a request of `ioctl` tells of a terminal's settings and groups (`TCGETS`, `TCGETS2`, `TIOCGWINSZ`,
/// `TIOCGPGRP`, `TIOCGSID`), which a speculative process cannot change.
#[inline]
pub const fn looks_at_terminal(request: u64) -> bool {
    matches!(request as u32, 0x5401 | 0x802c_542a | 0x5413 | 0x540f | 0x5429)
}

/// The same size as `index`: more than the newest kernel has.
const NUMBERS: usize = 512;

static AHEAD: [Ahead; NUMBERS] = index();

const fn index() -> [Ahead; NUMBERS] {
    let mut all = [Ahead::Waits(Because::Unknown); NUMBERS];
    let mut at = 0;
    while at < TABLE.len() {
        all[TABLE[at].nr as usize] = TABLE[at].ahead;
        at += 1;
    }
    all
}

/// What a call is on a guess. A number without a row waits.
#[inline]
pub const fn ahead(nr: u64) -> Ahead {
    if nr < NUMBERS as u64 {
        AHEAD[nr as usize]
    } else {
        Ahead::Waits(Because::Unknown)
    }
}

/// Whether a call with this number and these arguments touches only what a checkpoint of its process holds. Whoever
/// is speculative may make it without a word. Identity (`setuid`, `setsid`) is not among them, nor are limits, which
/// cannot always be raised again: a checkpoint does not take them back.
#[inline]
pub const fn concerns_only_its_process(nr: u64, args: &[u64; 6]) -> bool {
    const MAP_TYPE: u64 = 0x0f;
    const MAP_PRIVATE: u64 = 2;
    const MAP_DROPPABLE: u64 = 8;
    const MAP_ANONYMOUS: u64 = 0x20;
    const F_DUPFD: u64 = 0;
    const F_GETFD: u64 = 1;
    const F_DUPFD_CLOEXEC: u64 = 1030;
    const ARCH_SET_FS: u64 = 0x1002;
    const ARCH_GET_FS: u64 = 0x1003;
    const SIGCHLD: u64 = 17;
    match (ahead(nr), look_up(nr)) {
        (Ahead::Own, _) => true,
        // Own handlers. Whether the kernel waits for children itself is more than its process's.
        (Ahead::ByArgument, Some((Op::Action, _))) => args[0] != SIGCHLD || args[1] == 0,
        // A guess's share in a total is nothing among those of the checkpoints.
        (Ahead::ByArgument, Some((Op::Look, shows))) => {
            matches!(shows, Shows::Totals) || matches!(shows.whom(args), Whom::Caller)
        }
        (Ahead::ByArgument, Some((Op::Mmap, _))) => {
            args[3] & MAP_ANONYMOUS != 0 && matches!(args[3] & MAP_TYPE, MAP_PRIVATE | MAP_DROPPABLE)
        }
        // Flags and numbers of its descriptors.
        (Ahead::ByArgument, Some((Op::Fcntl, _))) => {
            nr == crate::nr::dup || matches!(args[1], F_GETFD | F_DUPFD | F_DUPFD_CLOEXEC)
        }
        // Nobody else has what is new.
        (Ahead::Free, Some((Op::Pipe, _))) => true,
        // A terminal's settings and groups, which nobody changes on a guess.
        (Ahead::ByArgument, Some((Op::Ioctl, _))) => looks_at_terminal(args[1]),
        _ if nr == crate::nr::fadvise64 => true,
        // The address of a thread's own memory is in its registers.
        (Ahead::Free, Some((Op::ArchPrctl, _))) => matches!(args[0], ARCH_SET_FS | ARCH_GET_FS),
        // What the own limits are: no new ones are given.
        (Ahead::ByArgument, Some((Op::Control { pid }, _))) => {
            nr == crate::nr::prlimit64 && args[pid as usize] == 0 && args[2] == 0
        }
        _ => false,
    }
}
