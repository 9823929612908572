//! `mlockall`: the program's mappings are locked, and counted, without ours.

use crate::clocks::Call;
use crate::gate;
use agent_abi::{Request, MAPPINGS_MAX};
use syscall_table::nr;

const MCL_CURRENT: u64 = 1;
const MCL_FUTURE: u64 = 2;
const MCL_ONFAULT: u64 = 4;
const MLOCK_ONFAULT: u64 = 1;

impl Call<'_> {
    /// The kernel compares all mappings of a process with its limit, and locks them all: ours would be most of them.
    #[cold]
    #[inline(never)]
    pub fn lock_all(&mut self) {
        let flags = self.arg(0);
        let is_bad = flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0;
        let mut len = 0u64;
        let is_told =
            !is_bad && flags & MCL_CURRENT != 0 && each_mapping(|[_, length]| len = len.saturating_add(length));
        if !is_told || len > limit() {
            // The kernel refuses it, or its caller has no limit.
            self.proceed_observing();
            return;
        }
        // SAFETY: only says what stays in memory. What comes later stays if the program wants that; what is there is
        // locked as it says here, whatever was said before.
        unsafe {
            gate::call(nr::munlockall, [0; 6]);
            if flags & MCL_FUTURE != 0 {
                gate::call(nr::mlockall, [flags & !MCL_CURRENT, 0, 0, 0, 0, 0]);
            }
        }
        let how = if flags & MCL_ONFAULT != 0 { MLOCK_ONFAULT } else { 0 };
        each_mapping(|[at, length]| {
            // What cannot be read into memory is passed over, as by the kernel.
            // SAFETY: as above.
            unsafe { gate::call(nr::mlock2, [at, length, how, 0, 0, 0]) };
        });
        self.answer(0);
    }
}

/// The mappings of the program, one after the other: address and length. False if they are not known.
fn each_mapping(mut each: impl FnMut([u64; 2])) -> bool {
    let mut mappings = [[0u64; 2]; MAPPINGS_MAX];
    let mut from = 0;
    loop {
        let told = gate::request(Request::Mappings, from, mappings.as_mut_ptr() as u64, 0);
        let Ok(told) = usize::try_from(told) else { return false };
        for &mapping in mappings.iter().take(told) {
            each(mapping);
            from = mapping[0].saturating_add(mapping[1]);
        }
        if told < MAPPINGS_MAX {
            return true;
        }
    }
}

/// How much an ordinary user's process may lock.
fn limit() -> u64 {
    const RLIMIT_MEMLOCK: u64 = 8;
    let mut limit = [0u64; 2];
    // SAFETY: a whole `struct rlimit`.
    let result = unsafe { gate::call(nr::prlimit64, [0, RLIMIT_MEMLOCK, 0, limit.as_mut_ptr() as u64, 0, 0]) };
    if result == 0 {
        limit[0]
    } else {
        0
    }
}
