//! Waits of a parent that hears of a child, and of one that has no child left.

use crate::ahead::calls::ask::Decision;
use crate::ahead::process::wanted::Wanted;
use crate::ahead::rollback::vessels;
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use agent_abi::{PROCESS_CHILDLESS, PROCESS_GOES};
use std::sync::atomic::Ordering;
use syscall_table::nr;
use tracee::{Result, Stopped};

/// Whether a call may say of a child in the same moment in which SIGCHLD tells of that one. `waitid` says 0 of a child
/// and of none.
pub(in crate::ahead) fn may_say_of_child(call: &Call) -> bool {
    call.frame.nr == nr::wait4
}

impl Supervisor {
    /// A process waits for children.
    pub(in crate::ahead) fn decide_wait(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        let decision = self.find_child(stopped, call)?;
        if matches!(decision, Decision::Answer(_)) {
            self.note_if_childless(call);
        }
        Ok(decision)
    }

    /// A process that waits for children has just been sent SIGCHLD. The kernel looks for a child once more before it
    /// looks for signals (wait4(2) is not interrupted by the child that it waits for), and the handler runs when the
    /// call has its result. So the thread need not ask again to be told the same.
    pub(in crate::ahead) fn decide_wait_with_signal(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        if vessels::would_notice(&self.plan(call).class, call.frame.nr) {
            self.settle_vessels();
            self.reap_unseen(stopped, call.pid)?;
        }
        Ok(match self.decide_wait(stopped, call)? {
            decision @ Decision::Answer(_) => decision,
            _ => Decision::Again,
        })
    }

    /// The agent does nothing more for a call that was answered: it leaves. Where SIGCHLD waits with the answer the
    /// thread would have to be stepped there.
    pub(in crate::ahead) fn leave_with_answer(&self, stopped: Stopped, call: &Call) -> Result<()> {
        let mut registers = stopped.registers()?;
        registers.rip = self.image.header.leave;
        registers.rsp = call.frame_at;
        registers.orig_rax = u64::MAX;
        stopped.set_registers(&registers)?;
        stopped.resume(0)
    }

    /// Of a process that is never put back only what it does itself changes that it has no children.
    fn note_if_childless(&mut self, call: &Call) {
        let Some(tracee) = self.tracees.get(&call.tid) else { return };
        let (kin, slot) = (&self.ahead.children, &self.world().processes[tracee.process]);
        let goes = slot.flags.load(Ordering::Relaxed) & PROCESS_GOES != 0;
        let is_childless = goes
            && slot.users.load(Ordering::Relaxed) == 1
            && kin.unreaped_of(call.pid).next().is_none()
            && self.counts_as_we_do(call.tid)
            && !self.knows_only_kernel(call.pid, &Wanted::ANY);
        if is_childless && !self.any_unasked_end(call.pid) {
            if let Some(flags) = self.flags_of(call.pid) {
                flags.fetch_or(PROCESS_CHILDLESS, Ordering::Relaxed);
            }
        }
    }
}
