//! Waits with a limit. Without a tracer the kernel drops a signal that is ignored before it can interrupt anything;
//! with one it ends some waits, which cannot say how long they have lasted. They go on for the time that is left.

use crate::clocks::Call;
use crate::gate;
use crate::memory::read_program;
use agent_abi::{AFTER_REPEATS, PHASE_BEFORE, REPEATS};

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// How a call is told its limit.
#[derive(Clone, Copy)]
pub enum Limit {
    /// A number of milliseconds; negative: none.
    Milliseconds,
    /// The address of a `struct timespec`; null: none.
    Timespec,
}

impl Call<'_> {
    /// Make the program's call, whose limit is the argument at `position`.
    pub fn proceed_timed(&mut self, position: u8, limit: Limit) -> i64 {
        let Some(whole) = self.limit_ns(position, limit) else { return self.proceed_observing() };
        let begin = now_ns();
        let mut left: [u64; 2];
        loop {
            self.page.after = AFTER_REPEATS;
            let result = self.make();
            if result != REPEATS {
                return result;
            }
            // Nothing has happened yet.
            self.set_phase(PHASE_BEFORE);
            let rest = whole.saturating_sub(now_ns().saturating_sub(begin));
            left = [rest / SECOND_NS, rest % SECOND_NS];
            let value = match limit {
                Limit::Milliseconds => rest.div_ceil(MILLISECOND_NS),
                Limit::Timespec => (&raw const left) as u64,
            };
            self.replace_arg(position.into(), value);
        }
    }

    /// `None`: it waits without end, or not at all, or the kernel has something to say about the limit.
    fn limit_ns(&self, position: u8, limit: Limit) -> Option<u64> {
        let given = self.arg(position);
        let ns = match limit {
            Limit::Milliseconds => u64::try_from(given as i32).ok()? * MILLISECOND_NS,
            Limit::Timespec => {
                let mut time = [0u64; 2];
                let is_time = given != 0 && read_program(given, &mut time) && time[1] < SECOND_NS;
                is_time.then(|| time[0].checked_mul(SECOND_NS)?.checked_add(time[1])).flatten()?
            }
        };
        (ns != 0).then_some(ns)
    }
}

fn now_ns() -> u64 {
    const CLOCK_GETTIME: u64 = 228;
    const CLOCK_MONOTONIC: u64 = 1;
    let mut time = [0u64; 2];
    // SAFETY: a whole `struct timespec`.
    unsafe { gate::call(CLOCK_GETTIME, [CLOCK_MONOTONIC, time.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    time[0] * SECOND_NS + time[1]
}
