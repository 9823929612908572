//! Calls that change something and of which nobody is asked (`epochs::Permits`,
//! [0130](../../../docs/decisions/0130-changes-on-permits.md)): to put something into a pipe or socket, to take
//! something out, to write to a file.
//!
//! The supervisor marks a descriptor for them when it has allowed such a call that added no dependency to anything:
//! then what undoes the next ones is kept already, because that puts back the whole of what was there. A call that may
//! sleep sleeps in the kernel while it is published. It has no effect before it ends, so that whoever has to change the
//! object's dependencies can call the thread out of it.

use crate::clocks::Call;
use crate::start::WRITTEN_BASE;
use agent_abi::{permitted, About};
use core::sync::atomic::{AtomicU64, Ordering};
use syscall_table::nr;

/// What can be taken out there is kept.
const TAKES: u64 = 8;
/// What can be put in there is kept.
const GIVES: u64 = 16;
/// What the file held is kept, as a whole.
const HELD: u64 = 32;
/// Where its position was is kept for writes.
const PLACED: u64 = 64;

const MSG_DONTWAIT: u64 = 0x40;
const MSG_NOSIGNAL: u64 = 0x4000;

/// Whether none but the marks of this module are for such a call.
pub fn is_change(number: u64) -> bool {
    matches!(number, nr::write | nr::pwrite64 | nr::sendto | nr::recvfrom)
}

/// What an exchange that the supervisor has allowed says of the next ones.
pub fn marks_of_exchange(number: u64) -> u64 {
    match number {
        nr::read | nr::readv | nr::recvfrom => TAKES,
        nr::write | nr::sendto => GIVES,
        _ => 0,
    }
}

/// What a write to a file that it has allowed says of the next ones.
pub fn marks_of_write(number: u64) -> u64 {
    left_to_write().store(permitted::WRITTEN_LEN, Ordering::Relaxed);
    match number {
        nr::write => HELD | PLACED,
        nr::pwrite64 => HELD,
        _ => 0,
    }
}

/// What a new file that it has opened says of writes.
pub fn marks_of_opened() -> u64 {
    marks_of_write(nr::write)
}

fn left_to_write() -> &'static AtomicU64 {
    // SAFETY: mapped with the rest of what is this process's own.
    unsafe { &*(WRITTEN_BASE as *const AtomicU64) }
}

/// Whether so much more may be written to files. What is written to one that the guess has made takes room on a disk.
fn is_left(len: u64) -> bool {
    left_to_write().fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(len)).is_ok()
}

/// Whether that much goes in as a whole or not at all. Of nothing nobody knows what it is: an empty packet is one.
fn is_atomic(len: u64) -> bool {
    (1..=permitted::ATOMIC_LEN).contains(&len)
}

/// What a call on a descriptor with these marks is about, if it may be made.
pub fn about(number: u64, marks: u64) -> About {
    let is_of_stream = match number {
        nr::read | nr::readv | nr::recvfrom => marks & TAKES != 0,
        nr::write | nr::sendto => marks & GIVES != 0,
        _ => false,
    };
    match is_of_stream {
        true => About::Stream,
        false => About::Anything,
    }
}

impl Call<'_> {
    /// Whether a descriptor with these marks may be used for the call.
    #[inline(never)]
    pub fn may_exchange(&self, marks: u64) -> bool {
        let has = |wanted: u64| marks & wanted == wanted;
        let (len, flags) = (self.arg(2), self.arg(3));
        match self.frame.nr {
            nr::read | nr::readv => has(TAKES),
            nr::recvfrom => has(TAKES) && flags & !MSG_DONTWAIT == 0 && self.arg(4) == 0,
            nr::sendto => {
                has(GIVES) && is_atomic(len) && flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) == 0 && self.arg(4) == 0
            }
            nr::write if has(GIVES) => is_atomic(len),
            nr::write => has(HELD | PLACED) && is_left(len),
            nr::pwrite64 => has(HELD) && is_left(len),
            _ => false,
        }
    }
}
