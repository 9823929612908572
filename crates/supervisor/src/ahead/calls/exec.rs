//! What a new program is on a guess: what it closes, and what cannot be put back.

use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::rollback::undo;
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use procfs::ProcessId;
use syscall_table::nr;

impl Supervisor {
    /// The vessel still has the old image; what exec closes is closed as by the program itself.
    pub(super) fn plan_exec(&mut self, call: &Call) -> Plan {
        let has_company = self.has_company(call.tid);
        if !self.ahead.is_speculative(call.pid)
            || self.changes_identity(call)
            || self.loses_exit_signal(call.pid)
            || has_company && !self.can_end_other_threads(call)
        {
            return Plan::new(Class::Barrier).once();
        }
        if let Some(error) = self.missing_program(call) {
            // A look at a name, and nothing else.
            let class = Class::Known { result: -i64::from(error.raw_os_error()) };
            return Plan { class, ..self.plan_lookup(call.pid) };
        }
        let Ok(closed) = self.descriptors_closed_by_exec(call.pid) else { return Plan::new(Class::Barrier).once() };
        let mut plan = self.plan_close(call, closed.into_iter());
        match plan.class {
            // A checkpoint now would have the threads that it ends.
            Class::Tracked if has_company => plan.class = Class::Fresh,
            Class::Tracked | Class::Later => {}
            _ => return Plan::new(Class::Barrier).once(),
        }
        plan.observes = self.plan_lookup(call.pid).observes;
        plan
    }

    /// Whether the kernel tells of the end of a process by another signal than SIGCHLD, or by none. A new program has
    /// SIGCHLD, and nobody can put that back.
    fn loses_exit_signal(&self, pid: ProcessId) -> bool {
        !self.goes(pid) && self.exit_signal(pid) != Some(libc::SIGCHLD)
    }

    /// Whether a program runs with the rights of its owner, or with some of its own.
    fn changes_identity(&self, call: &Call) -> bool {
        let (dir, path) = if call.frame.nr == nr::execve { (syscall_table::CWD, 0) } else { (0, 1) };
        self.look_up(call, dir, path).may_be(|program| program.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0)
    }

    fn descriptors_closed_by_exec(&self, pid: ProcessId) -> procfs::Result<Vec<i32>> {
        let open = procfs::unless_gone(procfs::descriptors_and_flags(pid))?;
        let closed = open.into_iter().filter(|&(_, flags)| flags & undo::CLOSE_ON_EXEC != 0);
        let mut closed: Vec<i32> = closed.map(|(fd, _)| fd).collect();
        closed.sort_unstable();
        Ok(closed)
    }
}
