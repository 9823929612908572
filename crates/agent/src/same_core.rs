//! Parent and child on one core while nobody needs another: waking somebody on a core that sleeps costs ten times as
//! much (`docs/SHORT_PROCESSES.md`).
//!
//! * A thread that waits for a child stands behind a `Door`: there the supervisor can have it woken on the core that it
//!   wants.
//! * A child of a parent that is used to waiting for its children is born on its parent's core. For that the parent
//!   confines itself while it makes the child.
//!
//! **Invariant:** no instruction of a program runs confined. The supervisor frees both before the child runs, and the
//! parent if it takes it out of the agent; the parent frees itself if there is no child, or sooner.

use crate::clocks::Call;
use crate::gate;
use core::sync::atomic::Ordering;
use syscall_table::nr;

/// So many children were waited for, each before the next one, before the next one is born on its parent's core.
const WAITED_FOR_MIN: u32 = 2;
/// In `ThreadPage::births`: the newest child has not been waited for. Above it is counted how many have.
const NOT_WAITED_FOR: u32 = 1;
const ONE_WAITED_FOR: u32 = 2;

impl Call<'_> {
    /// Make the program's `wait4` or `waitid`.
    pub fn proceed_waiting(&mut self) -> i64 {
        const WNOHANG: u64 = 1;
        let options = self.arg(if self.frame.nr == nr::wait4 { 2 } else { 3 });
        if options & WNOHANG != 0 || self.world.ahead.load(Ordering::Relaxed) != 0 {
            return self.proceed_observing();
        }
        if self.page.births & NOT_WAITED_FOR != 0 {
            self.page.births = (self.page.births & !NOT_WAITED_FOR).saturating_add(ONE_WAITED_FOR);
        }
        self.ignore_sigchld();
        self.thread.door.enter();
        let result = self.proceed_observing();
        while !self.thread.door.leave() {
            give_way();
        }
        self.heed_sigchld();
        result
    }

    /// Before a child is made: whether it is to be born on this core, as the thread slot `child`.
    pub fn confine_birth(&mut self, flags: u64, child: usize) -> bool {
        let waited_for = self.page.births / ONE_WAITED_FOR;
        let is_followed_by_wait = self.page.births & NOT_WAITED_FOR == 0;
        self.page.births = if is_followed_by_wait { self.page.births | NOT_WAITED_FOR } else { NOT_WAITED_FOR };
        let usual = self.world.usual_cores.load(Ordering::Relaxed);
        let is_wanted = usual != 0 && is_followed_by_wait && waited_for >= WAITED_FOR_MIN;
        if !is_wanted || !is_child(flags) || self.world.ahead.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let Some(core) = own_core() else { return false };
        if own_cores() != Some(usual) {
            return false;
        }
        self.thread.confinement.begin();
        if set_own_cores(1 << core) != 0 {
            self.thread.confinement.reset();
            return false;
        }
        self.world.threads[child].born_near.store(self.page.thread + 1, Ordering::Release);
        true
    }

    /// The child has been made, or not.
    pub fn end_confinement(&self) {
        self.thread.confinement.end(
            || {
                set_own_cores(u64::MAX);
            },
            give_way,
        );
    }
}

/// Whether it is a child that its parent waits for, rather than a thread beside it.
fn is_child(flags: u64) -> bool {
    const CLONE_VM: u64 = 0x100;
    const CLONE_VFORK: u64 = 0x4000;
    flags & CLONE_VM == 0 || flags & CLONE_VFORK != 0
}

/// The supervisor has something to do that takes a few microseconds.
fn give_way() {
    // SAFETY: no arguments.
    unsafe { gate::call(nr::sched_yield, [0; 6]) };
}

/// The core that this thread is on, if it has a bit in one word.
fn own_core() -> Option<u32> {
    let mut core = u32::MAX;
    // SAFETY: `core` is a word.
    unsafe { gate::call(nr::getcpu, [&raw mut core as u64, 0, 0, 0, 0, 0]) };
    (core < u64::BITS).then_some(core)
}

/// Where this thread may run, if all cores have bits in one word.
fn own_cores() -> Option<u64> {
    let mut cores = 0u64;
    let len = core::mem::size_of_val(&cores) as u64;
    // SAFETY: `cores` has `len` bytes.
    let got = unsafe { gate::call(nr::sched_getaffinity, [0, len, &raw mut cores as u64, 0, 0, 0]) };
    (got > 0).then_some(cores)
}

/// Set where this thread may run. The kernel takes of them those that there are.
fn set_own_cores(cores: u64) -> i64 {
    let len = core::mem::size_of_val(&cores) as u64;
    // SAFETY: `cores` has `len` bytes.
    unsafe { gate::call(nr::sched_setaffinity, [0, len, &raw const cores as u64, 0, 0, 0]) }
}
