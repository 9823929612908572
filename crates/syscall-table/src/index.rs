//! From a number to what it means, in one load. The array holds no pointers, so that the agent needs no relocations for
//! it.

use crate::{rows::TABLE, Op, Shows};

/// More than the newest kernel has; a power of two.
const NUMBERS: usize = 512;

static MEANINGS: [Option<(Op, Shows)>; NUMBERS] = index();

const fn index() -> [Option<(Op, Shows)>; NUMBERS] {
    let mut meanings = [None; NUMBERS];
    let mut at = 0;
    while at < TABLE.len() {
        meanings[TABLE[at].nr as usize] = Some((TABLE[at].op, TABLE[at].shows));
        at += 1;
    }
    meanings
}

/// What to do about a system call, and what it shows; `None` for a number that has no row, which is a barrier.
#[inline]
pub const fn look_up(nr: u64) -> Option<(Op, Shows)> {
    if nr < NUMBERS as u64 {
        MEANINGS[nr as usize]
    } else {
        None
    }
}

/// What to do about a system call; `None` for a number that has no row, which is a barrier.
#[inline]
pub fn op(nr: u64) -> Option<Op> {
    look_up(nr).map(|(op, _)| op)
}
