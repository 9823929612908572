//! Parent and child on one core while nobody needs another: waking somebody on a core that sleeps costs ten times as much (`docs/SHORT_PROCESSES.md`).
//!
//! * A thread that waits for a child stands behind a `Door`: there the supervisor can have it woken on the core that it wants.
//! * A child of a parent that is used to waiting for its children is born on its parent's core. For that the parent confines itself while it makes the
//!   child.
//!
//! **Invariant:** no instruction of a program runs confined. Parent and child free themselves, the child of a vfork also frees its parent; the
//! supervisor frees whom it takes out of the agent.

use crate::clocks::{world, Call};
use crate::descriptors::is_threaded;
use crate::gate;
use crate::start::FIRST_PAGE;
use agent_abi::{ThreadPage, PRIVATE_BASE, THREADS_MAX, THREAD_FORKED};
use core::sync::atomic::Ordering;

const SCHED_YIELD: u64 = 24;
const GETPPID: u64 = 110;
const SCHED_SETAFFINITY: u64 = 203;
const SCHED_GETAFFINITY: u64 = 204;
const GETCPU: u64 = 309;
const WNOHANG: u64 = 1;
/// So many children were waited for, each before the next one, before the next one is born near.
const WAITED_FOR_MIN: u32 = 2;
/// In `ThreadPage::births`: the newest child has not been waited for. Above it is counted how many have.
const NOT_WAITED_FOR: u32 = 1;
const ONE_WAITED_FOR: u32 = 2;

impl Call<'_> {
    /// Make the program's `wait4` or `waitid`.
    pub fn proceed_waiting(&mut self) -> i64 {
        const WAIT4: u64 = 61;
        let options = self.arg(if self.frame.nr == WAIT4 { 2 } else { 3 });
        if options & WNOHANG != 0 || self.world.ahead.load(Ordering::Relaxed) != 0 {
            return self.proceed_observing();
        }
        if self.page.births & NOT_WAITED_FOR != 0 {
            self.page.births = (self.page.births & !NOT_WAITED_FOR).saturating_add(ONE_WAITED_FOR);
        }
        self.thread.is_deaf.store(u32::from(is_deaf()), Ordering::Relaxed);
        self.thread.door.enter();
        let result = self.proceed_observing();
        while !self.thread.door.leave() {
            // The supervisor keeps it shut for a few microseconds.
            // SAFETY: no arguments.
            unsafe { gate::call(SCHED_YIELD, [0; 6]) };
        }
        self.thread.is_deaf.store(0, Ordering::Relaxed);
        result
    }

    /// Before a child is made: whether it is to be born on this core, as the thread slot `child`.
    pub fn confine_birth(&mut self, flags: u64, child: usize) -> bool {
        let waited_for = self.page.births / ONE_WAITED_FOR;
        let is_followed_by_wait = self.page.births & NOT_WAITED_FOR == 0;
        self.page.births = if is_followed_by_wait { self.page.births | NOT_WAITED_FOR } else { NOT_WAITED_FOR };
        let usual = self.world.usual_cores.load(Ordering::Relaxed);
        let is_wanted = usual != 0 && is_followed_by_wait && waited_for >= WAITED_FOR_MIN;
        if !is_wanted || !is_usual_birth(flags) || self.page.this != PRIVATE_BASE + FIRST_PAGE {
            return false;
        }
        let Some(core) = own_core() else { return false };
        if own_cores() != Some(usual) {
            return false;
        }
        self.thread.is_confined.store(1, Ordering::Release);
        if set_cores(0, 1 << core) != 0 {
            self.thread.is_confined.store(0, Ordering::Release);
            return false;
        }
        self.world.threads[child].is_confined.store(1, Ordering::Release);
        true
    }

    /// The child has been made, or not.
    pub fn free_parent(&self) {
        if self.thread.is_confined.swap(0, Ordering::AcqRel) != 0 {
            set_cores(0, u64::MAX);
        }
    }
}

/// A new child goes where it may.
pub fn free_child(page: &ThreadPage) {
    let thread = &world().threads[page.thread as usize % THREADS_MAX];
    if thread.is_confined.swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    set_cores(0, u64::MAX);
    if page.flags & THREAD_FORKED == 0 {
        // The parent sleeps in vfork until we execute something.
        // SAFETY: no arguments.
        let parent = unsafe { gate::call(GETPPID, [0; 6]) };
        if parent > 0 {
            set_cores(parent as u64, u64::MAX);
        }
    }
}

/// A child with a parent that it can name, which is the one that makes it.
fn is_usual_birth(flags: u64) -> bool {
    const CLONE_VM: u64 = 0x100;
    const CLONE_VFORK: u64 = 0x4000;
    const CLONE_PARENT: u64 = 0x8000;
    const CLONE_THREAD: u64 = 0x10000;
    const CLONE_NEWPID: u64 = 0x2000_0000;
    let shares_memory_for_good = flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0;
    flags & (CLONE_PARENT | CLONE_THREAD | CLONE_NEWPID) == 0 && !shares_memory_for_good
}

/// Whether SIGCHLD does nothing in this process, and no other thread can change that.
fn is_deaf() -> bool {
    const RT_SIGACTION: u64 = 13;
    const SIGCHLD: u64 = 17;
    const SIG_IGN: u64 = 1;
    const SET_LEN: u64 = 8;
    if is_threaded() {
        return false;
    }
    // Handler, flags, restorer, mask.
    let mut action = [u64::MAX; 4];
    // SAFETY: `action` is a whole `struct sigaction` of the kernel's.
    unsafe { gate::call(RT_SIGACTION, [SIGCHLD, 0, action.as_mut_ptr() as u64, SET_LEN, 0, 0]) };
    action[0] <= SIG_IGN
}

/// The core that this thread is on, if it has a bit in one word.
fn own_core() -> Option<u32> {
    let mut core = u32::MAX;
    // SAFETY: `core` is a word.
    unsafe { gate::call(GETCPU, [&raw mut core as u64, 0, 0, 0, 0, 0]) };
    (core < u64::BITS).then_some(core)
}

/// Where this thread may run, if all cores have bits in one word.
fn own_cores() -> Option<u64> {
    let mut cores = 0u64;
    let len = core::mem::size_of_val(&cores) as u64;
    // SAFETY: `cores` has `len` bytes.
    let got = unsafe { gate::call(SCHED_GETAFFINITY, [0, len, &raw mut cores as u64, 0, 0, 0]) };
    (got > 0).then_some(cores)
}

/// Set where a thread may run; 0 is this one. The kernel takes of them those that there are.
fn set_cores(thread: u64, cores: u64) -> i64 {
    let len = core::mem::size_of_val(&cores) as u64;
    // SAFETY: `cores` has `len` bytes.
    unsafe { gate::call(SCHED_SETAFFINITY, [thread, len, &raw const cores as u64, 0, 0, 0]) }
}
