//! `ptrace` for those who stop the threads with which they share their memory, as LeakSanitizer does before it
//! looks for leaks (`decisions/0045`). The supervisor, who is the tracer of all, answers.

use crate::clocks::Call;
use crate::gate::{self, EAGAIN, EPERM};
use agent_abi::{stop_the_world, Request, THREAD_TRACES};
use syscall_table::nr;

impl Call<'_> {
    pub fn trace(&mut self) {
        if !stop_the_world::is_answered(self.arg(0)) {
            return self.refuse(EPERM as u16);
        }
        let answer = gate::effect(Request::Trace, &raw const *self.frame as u64, 0);
        match answer {
            answer if answer == -EPERM => return self.refuse(EPERM as u16),
            0 if self.arg(0) == stop_the_world::ATTACH => self.page.flags |= THREAD_TRACES,
            _ => {}
        }
        self.answer(answer);
    }

    /// `wait4` for a thread that this one has stopped. The kernel knows of no such thread; false if neither do we.
    pub fn wait_as_tracer(&mut self) -> bool {
        if self.page.flags & THREAD_TRACES == 0 || self.frame.nr != nr::wait4 {
            return false;
        }
        let answer = gate::effect(Request::TraceWait, &raw const *self.frame as u64, 0);
        if answer == -EAGAIN {
            return false;
        }
        self.answer(answer);
        true
    }
}
