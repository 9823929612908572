//! From a number to what it means, in one load. The array holds no pointers, so that the agent needs no relocations for it.

use crate::{rows::TABLE, Op};

/// More than the newest kernel has; a power of two.
const NUMBERS: usize = 512;

static OPS: [Option<Op>; NUMBERS] = index();

const fn index() -> [Option<Op>; NUMBERS] {
    let mut ops = [None; NUMBERS];
    let mut at = 0;
    while at < TABLE.len() {
        ops[TABLE[at].nr as usize] = Some(TABLE[at].op);
        at += 1;
    }
    ops
}

/// What to do about a system call; `None` for a number that has no row, which is a barrier.
#[inline]
pub fn op(nr: u64) -> Option<Op> {
    if nr < NUMBERS as u64 {
        OPS.get(nr as usize).copied().flatten()
    } else {
        None
    }
}
