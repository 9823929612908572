//! A SIGCHLD that does nothing: by default, or ignored. Without a tracer the kernel would not send it; with one the
//! thread stops. While a thread says in its slot that it ignores SIGCHLD, the supervisor drops the signal without a
//! look, wherever in the agent the thread is.
//!
//! And SIGTRAP, if it is ignored: the supervisor is told of that, because a step ends with it; and whether the kernel
//! is to wait for children itself, of which `/proc` says nothing.

use crate::clocks::Call;
use crate::descriptors::is_threaded;
use crate::gate;
use crate::memory::read_program;
use agent_abi::{option, PROCESS_NO_ZOMBIES};
use core::sync::atomic::Ordering;
use syscall_table::nr;

const SIG_IGN: u64 = 1;
const SIGCHLD: u64 = 17;
const SA_NOCLDWAIT: u64 = 2;

impl Call<'_> {
    /// `rt_sigaction`.
    pub fn set_action(&mut self) {
        const SIGTRAP: u64 = 5;
        let signal = self.arg(0);
        let mut action = [0; 2];
        if matches!(signal, SIGTRAP | SIGCHLD) && read_program(self.arg(1), &mut action) {
            let [handler, flags] = action;
            if signal == SIGTRAP && handler == SIG_IGN {
                self.world.options.fetch_or(option::TRAPS_IGNORED, Ordering::SeqCst);
            }
            if signal == SIGCHLD && flags & SA_NOCLDWAIT != 0 {
                self.process.flags.fetch_or(PROCESS_NO_ZOMBIES, Ordering::SeqCst);
            }
        }
        self.proceed();
    }

    /// Whether this is an `rt_sigaction` of SIGCHLD after which the kernel waits for children itself if it did before,
    /// and does not if it did not. Of one that cannot be read the kernel says so.
    pub fn leaves_zombies_as_before(&self) -> bool {
        let is_it = self.frame.nr == nr::rt_sigaction && self.arg(0) == SIGCHLD;
        let mut action = [0; 2];
        is_it && (!read_program(self.arg(1), &mut action) || leaves_no_zombies(action) == now_leaves_no_zombies())
    }

    /// From here to `heed_sigchld`: the thread stays in the agent, and only it could give SIGCHLD a handler.
    pub fn ignore_sigchld(&self) {
        self.thread.ignores_sigchld.store(u32::from(!is_threaded() && does_nothing()), Ordering::Relaxed);
    }

    /// Whatever happens to the program may be its own doing again.
    pub fn heed_sigchld(&self) {
        self.thread.ignores_sigchld.store(0, Ordering::Relaxed);
    }
}

/// Whether SIGCHLD has no handler in this process.
fn does_nothing() -> bool {
    let [handler, _] = action_of_sigchld();
    handler <= SIG_IGN
}

/// Whether the kernel waits for the children of this process itself.
fn now_leaves_no_zombies() -> bool {
    leaves_no_zombies(action_of_sigchld())
}

/// Whether the kernel waits for children itself where SIGCHLD has this handler and these flags.
const fn leaves_no_zombies([handler, flags]: [u64; 2]) -> bool {
    handler == SIG_IGN || flags & SA_NOCLDWAIT != 0
}

/// The handler of SIGCHLD and its flags.
fn action_of_sigchld() -> [u64; 2] {
    const SET_LEN: u64 = 8;
    // Handler, flags, restorer, mask.
    let mut action = [u64::MAX; 4];
    // SAFETY: `action` is a whole `struct sigaction` of the kernel's.
    unsafe { gate::call(nr::rt_sigaction, [SIGCHLD, 0, action.as_mut_ptr() as u64, SET_LEN, 0, 0]) };
    [action[0], action[1]]
}
