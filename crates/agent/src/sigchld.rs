//! A SIGCHLD that does nothing: by default, or ignored. Without a tracer the kernel would not send it; with one the thread stops. While a thread says in its
//! slot that it ignores SIGCHLD, the supervisor drops the signal without a look, wherever in the agent the thread is.

use crate::clocks::Call;
use crate::descriptors::is_threaded;
use crate::gate;
use core::sync::atomic::Ordering;
use syscall_table::nr;

impl Call<'_> {
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
    const SIG_IGN: u64 = 1;
    const SET_LEN: u64 = 8;
    // Handler, flags, restorer, mask.
    let mut action = [u64::MAX; 4];
    // SAFETY: `action` is a whole `struct sigaction` of the kernel's.
    unsafe { gate::call(nr::rt_sigaction, [SIGCHLD, 0, action.as_mut_ptr() as u64, SET_LEN, 0, 0]) };
    action[0] <= SIG_IGN
}
