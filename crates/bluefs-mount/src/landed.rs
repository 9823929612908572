//! Whether the kernel has taken in an answer that was written: the thread that waited for it has gone on.
//!
//! When a thread goes on with an answer about a name, the kernel sets anew for how long it believes that name. It does
//! not compare the answer with what it was told meanwhile. So before a name is forgotten, all threads that were given
//! such an answer have to have gone on.
//!
//! Between its wake-up and that moment a thread waits for nobody, and does little. So it has gone on if it makes
//! another request, sleeps, is gone, or has run for [`RUNS_MAX`]. If none of that shows, the thread counts as gone on
//! after [`LATE_MAX`], the margin by which the kernel's leases end earlier.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use procfs::Status;

use crate::caller::id;

/// So late a thread may go on, at most. A lease that the kernel was told of ends as much earlier.
const LATE_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// Time on a core that no thread needs for what it does with an answer.
const RUNS_MAX: Duration = Duration::from_millis(15);
/// Threads that are remembered before those are dropped of which it is sure.
const THREADS_MAX: usize = 4096;

/// Threads that were given an answer.
#[derive(Debug, Default)]
pub struct Landed(Mutex<HashMap<u32, Instant>>);

impl Landed {
    /// A thread makes a request: what it was given before it has taken in. All that the mount does not see are 0.
    pub fn asks(&self, thread: u32) {
        if thread != 0 {
            self.threads().remove(&thread);
        }
    }

    /// It is being given an answer. Who asks [`Landed::wait`] has waited until that is written.
    pub fn given(&self, thread: u32) {
        let mut threads = self.threads();
        if threads.len() >= THREADS_MAX {
            threads.retain(|_, given| given.elapsed() < LATE_MAX);
        }
        threads.insert(thread, Instant::now());
    }

    /// The thread has its answer only now, if it has not made another request since [`Landed::given`].
    pub fn is_given(&self, thread: u32) {
        if let Some(given) = self.threads().get_mut(&thread) {
            *given = Instant::now();
        }
    }

    /// Whether a thread may still have to go on with what it was given.
    pub fn may_go_on(&self, thread: u32) -> bool {
        self.threads().contains_key(&thread)
    }

    /// Waits until all have gone on that have been given an answer; `false`: some have not within this time.
    pub fn wait(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        let mut open: Vec<(u32, Option<Duration>)> = self.threads().keys().map(|thread| (*thread, None)).collect();
        loop {
            open.retain_mut(|(thread, ran)| !self.has_gone_on(*thread, begun, ran));
            if open.is_empty() {
                return true;
            }
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether it has taken in what it had been given at that time. `ran`: how long it had run when it was looked at
    /// first.
    pub fn has_gone_on(&self, thread: u32, at: Instant, ran: &mut Option<Duration>) -> bool {
        let given = self.threads().get(&thread).copied();
        if given.is_none_or(|given| given.elapsed() >= LATE_MAX) {
            return true;
        }
        if thread == 0 {
            // Another one may have been given something since.
            return at.elapsed() >= LATE_MAX;
        }
        if given.is_some_and(|given| given > at) {
            return true;
        }
        match Status::of(id(thread)).and_then(|status| status.state()) {
            // Uninterruptibly it may wait for pages of the inode of which it was told.
            Ok('R' | 'D') => {
                let Some(now) = time_on_core(thread) else { return false };
                now >= *ran.get_or_insert(now) + RUNS_MAX
            }
            Ok(_) => true,
            Err(_) => procfs::is_unknown(id(thread)),
        }
    }

    fn threads(&self) -> MutexGuard<'_, HashMap<u32, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a thread has run. The kernel counts that up with each of its ticks.
fn time_on_core(thread: u32) -> Option<Duration> {
    let all = procfs::read(id(thread), "schedstat").ok()?;
    let first = std::str::from_utf8(&all).ok()?.split_whitespace().next()?;
    first.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_millis(5);

    /// The number of a thread that runs without a pause until it is told to sleep for ever.
    fn busy(sleeps: &'static AtomicBool) -> u32 {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32);
            while !sleeps.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_secs(3600));
        });
        told.recv().expect("a number")
    }

    #[test]
    fn who_runs_may_not_have_gone_on() {
        static SLEEPS: AtomicBool = AtomicBool::new(false);
        let (landed, thread) = (Landed::default(), busy(&SLEEPS));
        assert!(landed.wait(Duration::ZERO), "nobody was given anything");
        landed.given(thread);
        assert!(!landed.wait(SOON));
        landed.asks(thread);
        assert!(landed.wait(Duration::ZERO), "it has asked again");
        landed.given(thread);
        assert!(landed.wait(LATE_MAX / 2), "it has run for long");
        landed.given(thread);
        SLEEPS.store(true, Ordering::Relaxed);
        assert!(landed.wait(LATE_MAX / 2), "it sleeps");
    }

    #[test]
    fn who_is_gone_has_gone_on() {
        let landed = Landed::default();
        let ended = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        landed.given(ended.join().expect("a number"));
        assert!(landed.wait(LATE_MAX / 2));
    }

    #[test]
    fn who_cannot_be_looked_at_has_gone_on_late() {
        let landed = Landed::default();
        landed.given(0);
        assert!(!landed.wait(SOON));
        landed.asks(0);
        assert!(!landed.wait(SOON), "it may be another one that asks");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| landed.wait(LATE_MAX + LATE_MAX / 2));
            std::thread::sleep(SOON);
            landed.given(0);
            std::thread::sleep(10 * SOON);
            assert!(!waits.is_finished(), "it may be another one that was given something");
            assert!(waits.join().expect("no panic"));
        });
    }
}
