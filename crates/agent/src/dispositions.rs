//! A SIGCHLD that does nothing: by default, or ignored. Without a tracer the kernel would not send it; with one the
//! thread stops. While a thread says in its slot that it ignores SIGCHLD, the supervisor drops the signal without a
//! look, wherever in the agent the thread is.
//!
//! And SIGTRAP, if it is ignored: the supervisor is told of that, because a step ends with it.

use crate::clocks::Call;
use crate::descriptors::is_threaded;
use crate::gate;
use crate::memory::read_program;
use agent_abi::option;
use core::sync::atomic::Ordering;
use syscall_table::nr;

const SIG_IGN: u64 = 1;

impl Call<'_> {
    /// `rt_sigaction`.
    pub fn set_action(&mut self) {
        const SIGTRAP: u64 = 5;
        let mut handler = [0];
        let is_set = self.arg(0) == SIGTRAP && read_program(self.arg(1), &mut handler);
        if is_set && handler[0] == SIG_IGN {
            self.world.options.fetch_or(option::TRAPS_IGNORED, Ordering::SeqCst);
        }
        self.proceed();
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
    const SIGCHLD: u64 = 17;
    const SET_LEN: u64 = 8;
    // Handler, flags, restorer, mask.
    let mut action = [u64::MAX; 4];
    // SAFETY: `action` is a whole `struct sigaction` of the kernel's.
    unsafe { gate::call(nr::rt_sigaction, [SIGCHLD, 0, action.as_mut_ptr() as u64, SET_LEN, 0, 0]) };
    action[0] <= SIG_IGN
}
