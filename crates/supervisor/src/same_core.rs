//! A tracee goes on where its supervisor is.
//!
//! What a stop costs is not what is done about it but waking somebody on another core, twice: about 50 µs on a virtual
//! machine, against 7 µs on one core (`docs/decisions/0005`). The kernel wakes a resumed tracee on whichever core is
//! idle, and that is never the one on which the supervisor is just then running. So the supervisor confines the tracee
//! to its own core, resumes it, and lets go of it before it can have run: the supervisor has real-time priority, and
//! gives up its core only afterwards.
//!
//! This is done only while hardly anybody else on the machine is running: where there is work for many cores, the
//! kernel's choice is the better one.

use crate::sys;
use agent_abi::Door;
use procfs::machine::Load;
use procfs::ThreadId;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that may run besides those that a stop is about: the parent that goes on to wait for its child, and one
/// more, a thread of the kernel for the most part. Without this allowance two of three stops found "somebody else";
/// with it a build with two jobs is faster, too.
const OTHERS_MAX: u32 = 2;

/// Whether and how parents and children are kept on one core.
#[derive(Debug)]
pub struct SameCore {
    /// `None` where tracees are left alone.
    load: Option<Load>,
    /// When was looked last, and what was seen.
    looked: Cell<Option<(Instant, Option<u32>)>>,
    /// Where the supervisor may run: what a program may that never asked for anything else.
    usual: sys::Cores,
    /// Nobody has asked for less than there is (`taskset`): whoever has the usual cores may be told to run on all.
    is_unrestricted: bool,
    /// The usual cores for the agents, while hardly anybody but the world needs a core (`World::usual_cores`).
    told: &'static AtomicU64,
}

/// A tracee that is confined, until it is let go.
#[derive(Debug)]
#[must_use = "a tracee must not run on confined"]
pub struct Confined {
    tid: ThreadId,
    before: sys::Cores,
}

impl Confined {
    /// Who.
    pub fn tid(&self) -> ThreadId {
        self.tid
    }

    /// Where it may run once it is let go, as the kernel's bit mask.
    pub fn before(&self) -> Vec<u64> {
        self.before.words().to_vec()
    }
}

/// A thread that waits for a child and is confined while it is woken.
#[derive(Debug)]
#[must_use = "its door must be opened again"]
pub struct Woken {
    confined: Confined,
    door: &'static Door,
}

impl Woken {
    /// It has been woken: let it go on.
    pub fn let_go(self) {
        let_go(self.confined);
        self.door.open();
    }
}

impl SameCore {
    /// `runs_first`: whether the supervisor has real-time priority. Without it a tracee could run, and look, before it
    /// is let go.
    pub fn new(runs_first: bool, told: &'static AtomicU64) -> Self {
        let usual = sys::cores_of(None).unwrap_or(sys::Cores::ALL);
        let load = if runs_first && usual.count() > 1 { Load::open().ok() } else { None };
        Self { load, looked: Cell::new(None), usual, is_unrestricted: is_unrestricted(&usual), told }
    }

    /// Whether hardly anybody else ran when we last looked.
    pub fn was_calm(&self) -> bool {
        self.told.load(Ordering::Relaxed) != 0
    }

    /// Confine a stopped tracee to our core.
    pub fn confine(&self, tid: ThreadId) -> Option<Confined> {
        if !self.is_calm(1) {
            return None;
        }
        self.confine_to_own(tid)
    }

    /// Have a thread that waits for a child be woken on our core by the end of that child, which we are about to see.
    pub fn draw_near(&self, tid: ThreadId, door: &'static Door) -> Option<Woken> {
        const OURSELVES_AND_WHO_ENDS: u32 = 2;
        if !self.is_calm(OURSELVES_AND_WHO_ENDS) || !door.shut() {
            return None;
        }
        match self.confine_to_own(tid) {
            Some(confined) => Some(Woken { confined, door }),
            None => {
                door.open();
                None
            }
        }
    }

    /// A child that was born confined, on its parent's core, goes on on ours.
    pub fn take_over(&self, tid: ThreadId) -> Option<Confined> {
        if self.is_calm(1) {
            // Where it cannot be moved it goes on where it is.
            let _ = sys::current_core().map(|own| sys::set_cores(Some(tid), &sys::Cores::only(own)));
            return Some(Confined { tid, before: sys::Cores::ALL });
        }
        free(tid);
        None
    }

    /// How many threads run or could run. What was so a moment ago is taken to be so still: to look takes as long as a
    /// tenth of what is done for a stop.
    fn running(&self, load: &Load) -> Option<u32> {
        const MOMENT: Duration = Duration::from_micros(500);
        let now = Instant::now();
        let looked = self.looked.get().filter(|(at, _)| now.duration_since(*at) < MOMENT);
        let (_, running) = looked.unwrap_or_else(|| (now, load.running()));
        if looked.is_none() {
            self.looked.set(Some((now, running)));
        }
        running
    }

    fn confine_to_own(&self, tid: ThreadId) -> Option<Confined> {
        let own = sys::current_core()?;
        let before = sys::cores_of(Some(tid)).ok()?;
        let can_be_moved = before.count() > 1 && before.has(own) && sys::is_scheduled_normally(tid);
        if !can_be_moved || sys::set_cores(Some(tid), &sys::Cores::only(own)).is_err() {
            return None;
        }
        // The kernel remembers what was asked for and follows it when the cores that there are change: ask for no less
        // than there was.
        let is_everywhere = self.is_unrestricted && before == self.usual;
        let before = if is_everywhere { sys::Cores::ALL } else { before };
        Some(Confined { tid, before })
    }

    /// Whether hardly more threads run or could run on the machine than these, which include us.
    fn is_calm(&self, threads: u32) -> bool {
        let Some(load) = &self.load else { return false };
        let is_calm = self.running(load).is_some_and(|running| running <= threads + OTHERS_MAX);
        let told = if is_calm && self.is_unrestricted { self.usual.word() } else { None };
        self.told.store(told.unwrap_or(0), Ordering::Relaxed);
        is_calm
    }
}

/// Let a tracee that was confined run where it may.
pub fn let_go(confined: Confined) {
    // It may have died meanwhile.
    let _ = sys::set_cores(Some(confined.tid), &confined.before);
}

/// Whether these, our own, are all that we could have.
fn is_unrestricted(own: &sys::Cores) -> bool {
    let widened = sys::set_cores(None, &sys::Cores::ALL).and_then(|()| sys::cores_of(None));
    let is_all = widened.is_ok_and(|all| all == *own);
    if !is_all {
        // As whoever started us wanted it.
        let _ = sys::set_cores(None, own);
    }
    is_all
}

/// Let a thread run everywhere.
pub fn free(tid: ThreadId) {
    // It may have died meanwhile.
    let _ = sys::set_cores(Some(tid), &sys::Cores::ALL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_started_on_one_core_is_restricted() {
        let all = sys::cores_of(None).expect("any thread may ask");
        let one = sys::Cores::only(sys::current_core().expect("it runs somewhere"));
        sys::set_cores(None, &one).expect("it may run there");
        assert_eq!(is_unrestricted(&one), all.count() == 1);
        assert_eq!(sys::cores_of(None).expect("any thread may ask"), one);
        sys::set_cores(None, &all).expect("as it was");
    }

    #[test]
    fn without_priority_nobody_is_confined() {
        static TOLD: AtomicU64 = AtomicU64::new(0);
        assert!(SameCore::new(false, &TOLD).confine(procfs::ProcessId::own().leader()).is_none());
    }
}
