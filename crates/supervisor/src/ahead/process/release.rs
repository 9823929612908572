//! The ends of processes whose exits were held (000, 6.9), once nothing can fail any more: children before parents.
//!
//! A program that has waited for a child and ends leaves nothing of that child behind. If the parent ended first, the
//! child, for which nobody would wait in its name any more, could still be seen by whoever knows its number, and would
//! be given to whoever adopts orphans, who may be a program.

use procfs::ProcessId;

use crate::event_loop::Supervisor;

impl Supervisor {
    /// Nothing can fail any more: the process whose exit was held ends, as do children for which it has waited. It does
    /// when these have ended, and has waited for them in the kernel then.
    pub(in crate::ahead) fn release_exit(&mut self, pid: ProcessId) {
        if !self.ahead.children.stands(pid) {
            return;
        }
        let dying: Vec<ProcessId> = self.dying_before(pid).collect();
        if !dying.is_empty() {
            self.ahead.children.ending_behind.insert(pid);
            return dying.into_iter().for_each(|child| self.release_exit(child));
        }
        self.ahead.children.ending_behind.remove(&pid);
        let Some((stopped, signal)) = self.ahead.children.take_standing(pid) else { return };
        let _ = self.reap_all(&stopped, pid).and_then(|()| match signal {
            None => self.reply(stopped, agent_abi::ahead::GO),
            Some(signal) => self.end_by(stopped, signal),
        });
    }

    /// A process has ended: its parent may have waited to end behind it.
    pub(in crate::ahead) fn end_behind(&mut self) {
        let behind: Vec<ProcessId> = self.ahead.children.ending_behind.iter().copied().collect();
        for pid in behind {
            if self.dying_before(pid).next().is_none() {
                self.release_exit(pid);
            }
        }
    }

    /// Children that are still there of those for which a process has waited for good.
    fn dying_before(&self, pid: ProcessId) -> impl Iterator<Item = ProcessId> + '_ {
        let reaped = self.ahead.children.reaped_of(pid);
        reaped.filter(|child| self.tracees.contains_key(&child.leader()))
    }
}
