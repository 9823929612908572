//! Waits with a limit. Without a tracer the kernel drops a signal that is ignored before it can interrupt anything;
//! with one it ends some waits, which cannot say how long they have lasted. They go on for the time that is left.

use crate::clocks::Call;
use crate::gate::{self, EAGAIN, EINTR};
use crate::memory::read_program;
use agent_abi::{option, AFTER_OBSERVES, AFTER_REPEATS, AFTER_REPEATS_AND_FINISHES, AFTER_WAITS, REPEATS, REST_WAITS};
use core::sync::atomic::Ordering;
use syscall_table::nr;

pub const SECOND_NS: u64 = 1_000_000_000;
pub const MILLISECOND_NS: u64 = 1_000_000;

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
        let (begin, mut is_again) = self.begin_wait();
        let mut left: [u64; 2];
        loop {
            if !is_again {
                self.page.after = AFTER_REPEATS;
                let result = self.make();
                if result != REPEATS {
                    return result;
                }
                if !self.may_begin_more(true) {
                    self.begin_again();
                    return -EINTR;
                }
            }
            is_again = false;
            let rest = whole.saturating_sub(now_ns().saturating_sub(begin));
            left = [rest / SECOND_NS, rest % SECOND_NS];
            let value = match limit {
                Limit::Milliseconds => rest.div_ceil(MILLISECOND_NS),
                Limit::Timespec => (&raw const left) as u64,
            };
            self.replace_arg(position.into(), value);
        }
    }

    /// Make the program's call, which receives from the descriptor that is the argument at `position`: a socket may
    /// have a limit of its own for that (`SO_RCVTIMEO`). `after`: what is left to be done then.
    #[inline(always)]
    pub fn proceed_receiving(&mut self, position: u8, after: u64) -> i64 {
        self.clear_cut();
        if self.has_option(option::RECEIVE_LIMITS) {
            const SO_RCVTIMEO: u64 = 20;
            if let Some(whole) = socket_limit_ns(self.arg(position), SO_RCVTIMEO) {
                return self.receive_within(whole, position, after);
            }
        }
        self.page.after = after;
        let result = self.make();
        if self.is_cut() && result > 0 {
            return self.receive_rest(result, after, None);
        }
        result
    }

    /// After an ignored signal the rest of the time is waited in `ppoll`, which can be told it.
    #[cold]
    #[inline(never)]
    fn receive_within(&mut self, whole: u64, position: u8, after: u64) -> i64 {
        const MASK_LEN: u64 = 8;
        const POLLIN: u64 = 1;
        let repeats = if after == AFTER_OBSERVES { AFTER_REPEATS } else { AFTER_REPEATS_AND_FINISHES };
        let (begin, mut is_again) = self.begin_wait();
        loop {
            if !is_again {
                self.page.after = repeats;
                let result = self.make();
                if self.is_cut() && result > 0 {
                    return self.receive_rest(result, after, Some((begin, whole)));
                }
                if result != REPEATS {
                    return result;
                }
            }
            is_again = false;
            loop {
                if !self.may_begin_more(true) {
                    self.begin_again();
                    return -EINTR;
                }
                let rest = whole.saturating_sub(now_ns().saturating_sub(begin));
                if rest == 0 {
                    self.answer(-EAGAIN);
                    return -EAGAIN;
                }
                let left = [rest / SECOND_NS, rest % SECOND_NS];
                let mut one = [u64::from(self.arg(position) as u32) | POLLIN << 32];
                self.page.after = AFTER_WAITS;
                let ready =
                    gate::instead(&[one.as_mut_ptr() as u64, 1, left.as_ptr() as u64, 0, MASK_LEN, 0], nr::ppoll);
                if ready != 0 && ready != REPEATS && self.may_begin_more(true) {
                    break;
                }
            }
        }
    }

    /// When the wait of this call began, and whether that was before its thread was taken back from it for us: then it
    /// lasts no longer for that.
    pub fn begin_wait(&mut self) -> (u64, bool) {
        let is_same = self.page.wait_site == self.frame.continuation && self.page.wait_rsp == self.page.program_rsp;
        if self.has_been_taken_back() && is_same {
            return (self.page.wait_since, true);
        }
        let begin = now_ns();
        self.page.wait_since = begin;
        self.page.wait_site = self.frame.continuation;
        self.page.wait_rsp = self.page.program_rsp;
        (begin, false)
    }

    fn has_been_taken_back(&self) -> bool {
        let rest = &self.page.rest;
        rest.load(Ordering::Relaxed) & REST_WAITS != 0
            && rest.fetch_and(!REST_WAITS, Ordering::Relaxed) & REST_WAITS != 0
    }

    /// The call was answered without being made: whatever is made next is another one.
    #[inline(always)]
    pub fn has_waited(&self) {
        self.has_been_taken_back();
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

/// How long who uses a socket waits at most, as this option says: `None` without end, or if it is no socket.
pub fn socket_limit_ns(fd: u64, option: u64) -> Option<u64> {
    const SOL_SOCKET: u64 = 1;
    const MICROSECOND_NS: u64 = 1_000;
    let (mut time, mut len) = ([0u64; 2], 16u64);
    let args = [fd, SOL_SOCKET, option, time.as_mut_ptr() as u64, &raw mut len as u64, 0];
    // SAFETY: a whole `struct timeval`, and its length.
    let result = unsafe { gate::call(nr::getsockopt, args) };
    let limit = time[0].checked_mul(SECOND_NS)?.checked_add(time[1] * MICROSECOND_NS)?;
    (result == 0 && limit != 0).then_some(limit)
}

pub fn now_ns() -> u64 {
    const CLOCK_MONOTONIC: u64 = 1;
    let mut time = [0u64; 2];
    // SAFETY: a whole `struct timespec`.
    unsafe { gate::call(nr::clock_gettime, [CLOCK_MONOTONIC, time.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    time[0] * SECOND_NS + time[1]
}
