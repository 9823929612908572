//! Processes that have ended without a question
//! ([0238](../../../../../docs/decisions/0238-who-goes-ends-without-a-question.md)).
//!
//! Who goes with a guess, as its parent does, ends as it would natively. Its parent hears of it from the kernel, and
//! waits for it there, mostly without a question either. What is known here serves those that ask.

use crate::ahead::calls::ask::Decision;
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::process::child_signal::{may_hear_of_burials, status_of_zombie};
use crate::ahead::process::children::{Children, HeldExit};
use crate::ahead::process::wanted::Wanted;
use crate::ahead::{process, Call};
use crate::event_loop::Supervisor;
use agent_abi::{PROCESS_ENDING, PROCESS_ENDS, PROCESS_GOES, PROCESS_WAITS};
use procfs::{ProcessId, SignalSets};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use syscall_table::nr;
use tracee::{Result, SignalInfo, Stopped};

/// The children in a world that have ended without a question.
#[derive(Debug, Default)]
pub(in crate::ahead) struct UnaskedEnds {
    /// By parent, those for whom nobody is known to have waited.
    children: HashMap<ProcessId, Vec<ProcessId>>,
    /// The epoch in which ends that lead outside were held last, because somebody was born.
    held_in: u64,
}

impl UnaskedEnds {
    fn add(&mut self, parent: ProcessId, child: ProcessId) {
        /// Nobody tells when a parent has waited: if there are many, those that are gone are forgotten.
        const MANY: usize = 64;
        let children = self.children.entry(parent).or_default();
        children.push(child);
        if children.len() > MANY {
            self.forget_gone(parent);
        }
    }

    /// Nobody has to wait any more for children of a process that are not there.
    fn forget_gone(&mut self, parent: ProcessId) {
        if let Some(children) = self.children.get_mut(&parent) {
            children.retain(|&child| !procfs::is_unknown(child));
        }
    }

    /// Children of a process that may still have to be waited for.
    pub fn of(&self, parent: ProcessId) -> impl Iterator<Item = ProcessId> + '_ {
        self.children.get(&parent).into_iter().flatten().copied()
    }

    /// Whose child that may still have to be waited for a process is.
    pub fn parent(&self, child: ProcessId) -> Option<ProcessId> {
        self.children.iter().find(|(_, children)| children.contains(&child)).map(|(&parent, _)| parent)
    }

    /// Its parent has waited for a process, or its number is another one's.
    pub fn forget(&mut self, parent: ProcessId, child: ProcessId) {
        if let Some(children) = self.children.get_mut(&parent) {
            children.retain(|&other| other != child);
        }
    }

    /// A parent has ended.
    pub fn forget_children_of(&mut self, parent: ProcessId) {
        self.children.remove(&parent);
    }
}

impl Children {
    /// A process has ended, and its parent hears of that from the kernel alone. It may have heard already: who is
    /// stopped for that can be looked at before the end itself.
    pub fn leave_to_kernel(&mut self, pid: ProcessId) {
        self.kin.remove(pid);
        self.ended.remove(&pid);
    }

    /// The kernel has told of a process, which it does once. Of one that nobody knows any more nothing has to be kept.
    pub fn has_been_silent(&mut self, pid: ProcessId) {
        if !self.knows(pid) && !self.buried.contains_key(&pid) {
            self.silent.remove(&pid);
        }
    }

    /// The exit of a process that has ended in the kernel is held from now on. `tells`: so is the kernel's word of it,
    /// if its parent has not heard that yet.
    pub fn hold_zombie(&mut self, parent: ProcessId, child: ProcessId, status: i32, tells: bool) {
        self.kin.insert(child, parent);
        self.zombies.insert(child, status);
        self.held_exits.insert(child, HeldExit::of_zombie(parent, status));
        if tells && !self.heard.contains(&child) {
            self.silent.insert(child, Some(parent));
            self.to_tell.entry(parent).or_default().push(child);
        }
    }

    /// A child that the kernel does not know any more was waited for by whoever adopted it, or by its parent.
    pub(super) fn forget_zombies_of_the_dead(&mut self) {
        let gone = self.zombies.extract_if(|&child, _| procfs::is_unknown(child));
        for (child, _) in gone {
            self.held_exits.remove(&child);
            self.provisionally_reaped.remove(&child);
            self.kin.remove(child);
        }
    }

    /// Whether nothing about children of a process is held back from it, nor was told to it by us.
    pub fn knows_what_kernel_does(&self, parent: ProcessId) -> bool {
        let is_its = |of: &ProcessId| *of == parent;
        !self.has_to_hear(parent)
            && !self.buried.values().any(is_its)
            && !self.provisionally_reaped.values().any(is_its)
            && !self.silent.values().flatten().any(is_its)
            && !self.kin.of(parent).any(|child| self.held_exits.contains_key(&child))
    }
}

impl Supervisor {
    pub(super) fn flags_of(&self, pid: ProcessId) -> Option<&'static AtomicU32> {
        Some(&self.world().processes[self.tracees.get(&pid.leader())?.process].flags)
    }

    pub(in crate::ahead) fn goes(&self, pid: ProcessId) -> bool {
        self.flags_of(pid).is_some_and(|flags| flags.load(Ordering::SeqCst) & PROCESS_GOES != 0)
    }

    /// A process was born on a guess.
    pub(in crate::ahead) fn goes_from_now_on(&mut self, parent: ProcessId, child: ProcessId) {
        let epoch = self.world().young.epoch();
        if self.goes(parent) && self.ahead.unasked_ends.held_in != epoch {
            // It is the first one of many that end without a question, and have these open, mostly.
            self.ahead.unasked_ends.held_in = epoch;
            self.hold_outside_ends_of(child);
        }
        self.ahead.unasked_ends.forget(parent, child);
        // Until it begins a program its end concerns its parent's memory, or what it has mapped.
        let is_asked = self.ahead.children.apart.parent(child).is_some() || !self.ahead.mirrors.is_empty();
        let ends = if is_asked { 0 } else { PROCESS_ENDS };
        if let Some(flags) = self.flags_of(child) {
            flags.fetch_or(PROCESS_GOES | PROCESS_WAITS | ends, Ordering::SeqCst);
        }
    }

    /// The end of a process concerns more than its parent until it begins another program.
    pub(in crate::ahead) fn is_asked_about_its_end(&self, pid: ProcessId) {
        if let Some(flags) = self.flags_of(pid) {
            flags.fetch_and(!PROCESS_ENDS, Ordering::SeqCst);
        }
    }

    /// Ends of pipes and terminals that lead outside are kept open until all guesses are resolved: whoever is outside
    /// does not hear when a process closes them.
    fn hold_outside_ends_of(&mut self, pid: ProcessId) {
        let Ok(open) = self.descriptors_of(pid) else { return };
        for fd in open {
            if let FileDescription::Outside { copy } = self.file_description(pid.leader(), fd) {
                self.hold_outside_end(&Arc::new(copy));
            }
        }
    }

    /// A process has begun a program: it has memory of its own, also if it had its parent's when it was born.
    pub(in crate::ahead) fn ends_by_itself(&self, pid: ProcessId) {
        let goes = self.ahead.core.may_never_have_been(process(pid)) && self.ahead.checkpoints.has_none(pid);
        if let Some(flags) = self.flags_of(pid).filter(|_| goes) {
            flags.fetch_or(PROCESS_GOES | PROCESS_ENDS, Ordering::SeqCst);
            self.hears_from_kernel(pid);
        }
    }

    /// Nothing of what is known of the children of a process is held back from it any more: it waits in the kernel.
    pub(in crate::ahead) fn hears_from_kernel(&self, parent: ProcessId) {
        let Some(flags) = self.flags_of(parent) else { return };
        let goes_and_asks = flags.load(Ordering::SeqCst) & (PROCESS_GOES | PROCESS_WAITS) == PROCESS_GOES;
        if goes_and_asks && self.ahead.children.knows_what_kernel_does(parent) {
            flags.fetch_or(PROCESS_WAITS, Ordering::SeqCst);
        }
    }

    /// The end of a child is held: a parent hears of its children from us.
    pub(in crate::ahead) fn hears_from_us(&self, parent: ProcessId) {
        if let Some(flags) = self.flags_of(parent) {
            flags.fetch_and(!PROCESS_WAITS, Ordering::SeqCst);
        }
    }

    /// A process is about to have a checkpoint: the epoch is over. False while a child of it is about to end without a
    /// question: the checkpoint would have the child, which could not be put back. No further one begins to.
    pub(in crate::ahead) fn ends_epoch_of(&mut self, parent: ProcessId) -> bool {
        self.revoke_permits();
        self.end_youth();
        let is_ending =
            |child| self.flags_of(child).is_some_and(|flags| flags.load(Ordering::SeqCst) & PROCESS_ENDING != 0);
        !self.ahead.children.of(parent).any(is_ending)
    }

    /// A process has ended without a question. It is forgotten, but for what it wrote.
    pub(in crate::ahead) fn ended_unasked(&mut self, pid: ProcessId) {
        let Some(parent) = self.ahead.children.parent(pid) else { return };
        self.ahead.core.exit(process(pid));
        if self.ahead.core.has_ended_for_good(process(pid)) && self.forgets_descriptors(pid) {
            self.bury_in_core(pid);
        }
        self.ahead.report.unasked_ends += 1;
        self.ahead.children.leave_to_kernel(pid);
        self.ahead.unasked_ends.add(parent, pid);
    }

    /// A process gets a checkpoint. Children of it that have ended without a question, and for which it has not waited,
    /// are there in the checkpoint: from now on it hears of them from us.
    pub(in crate::ahead) fn hold_unasked_ends_of(&mut self, parent: ProcessId) {
        let status = |child| Some((child, status_of_zombie(child)?));
        let zombies: Vec<(ProcessId, i32)> = self.ahead.unasked_ends.of(parent).filter_map(status).collect();
        self.ahead.unasked_ends.forget_children_of(parent);
        if zombies.is_empty() {
            return;
        }
        // A word that is blocked is taken where nobody stops.
        let tells = may_hear_of_burials(&SignalSets::of(parent));
        for (child, status) in zombies {
            self.ahead.children.hold_zombie(parent, child, status, tells);
        }
    }

    /// Whether the kernel tells a parent by this SIGCHLD of a child that has ended without a question, and the parent
    /// may hear it now. That of a child whose end was held is kept from it, and was looked for before.
    pub(in crate::ahead) fn is_of_unasked_end(&self, parent: ProcessId, info: &SignalInfo) -> bool {
        let child = info.process();
        let is_forgotten = || !self.ahead.children.knows(child) && !self.tracees.contains_key(&child.leader());
        tells_of_end(info) && self.goes(parent) && is_forgotten()
    }

    /// Whether the kernel has a child of a process that has ended without a question, and that nobody has waited for.
    pub(in crate::ahead) fn any_unasked_end(&mut self, parent: ProcessId) -> bool {
        self.ahead.unasked_ends.forget_gone(parent);
        self.ahead.unasked_ends.of(parent).next().is_some()
    }

    /// A process asks for its children: it waits in the kernel for one that has ended without a question. `None`: there
    /// is none such.
    pub(super) fn reap_unasked(&mut self, stopped: &Stopped, call: &Call, wanted: &Wanted) -> Result<Option<Decision>> {
        let is_child_of_clone = || Some(false);
        if !wanted.exited || !wanted.wants(is_child_of_clone) {
            return Ok(None);
        }
        let ended: Vec<ProcessId> =
            self.ahead.unasked_ends.of(call.pid).filter(|&child| wanted.matches(child)).collect();
        for child in ended {
            if status_of_zombie(child).is_none() {
                // Waited for.
                self.ahead.unasked_ends.forget(call.pid, child);
                continue;
            }
            if !self.goes(call.pid) {
                // It would not be there any more if this is taken back.
                return Ok(Some(Decision::Wait));
            }
            let result = self.wait_for_zombie(stopped, call, child)?;
            if !wanted.nowait {
                self.ahead.unasked_ends.forget(call.pid, child);
            }
            if result != -i64::from(libc::ECHILD) {
                return Ok(Some(Decision::Answer(result)));
            }
        }
        Ok(None)
    }

    /// Makes a call that waits for children for one of them, which has ended.
    fn wait_for_zombie(&mut self, stopped: &Stopped, call: &Call, child: ProcessId) -> Result<i64> {
        const NOHANG: u64 = libc::WNOHANG as u64;
        let [_, status, options, usage, ..] = call.frame.args;
        let child = child.as_raw() as u64;
        let mut remote = self.remote_calls(stopped)?;
        let result = match call.frame.nr {
            nr::waitid => {
                let [_, _, info, options, usage, ..] = call.frame.args;
                remote.call(libc::SYS_waitid, &[u64::from(libc::P_PID), child, info, options | NOHANG, usage])?
            }
            _ => remote.call(libc::SYS_wait4, &[child, status, options | NOHANG, usage])?,
        };
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(result)
    }
}

/// Whether a SIGCHLD tells that a child has ended, and not that it stands still or goes on.
pub(in crate::ahead) fn tells_of_end(info: &SignalInfo) -> bool {
    matches!(info.code(), libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's word, and what the supervisor hears of an end, come in any order.
    #[test]
    fn a_parent_that_has_heard_of_an_end_is_not_told_again_when_it_gets_a_checkpoint() {
        const PARENT: ProcessId = ProcessId::from_raw(1);
        const CHILD: ProcessId = ProcessId::from_raw(2);
        for has_heard in [false, true] {
            let mut children = Children::default();
            children.born(PARENT, CHILD, false);
            if has_heard {
                children.heard.insert(CHILD);
            }
            children.leave_to_kernel(CHILD);
            children.hold_zombie(PARENT, CHILD, 0, true);
            assert_eq!(children.is_to_be_told(PARENT), !has_heard);
        }
    }

    #[test]
    fn who_was_waited_for_is_forgotten_when_there_are_many() {
        const PARENT: ProcessId = ProcessId::from_raw(1);
        const NOBODY: ProcessId = ProcessId::from_raw(i32::MAX - 1);
        let own = ProcessId::from_raw(std::process::id() as i32);
        let mut ends = UnaskedEnds::default();
        ends.add(PARENT, own);
        (0..200).for_each(|_| ends.add(PARENT, NOBODY));
        assert!(ends.of(PARENT).count() < 100 && ends.of(PARENT).any(|child| child == own));
        ends.forget(PARENT, own);
        assert!(ends.of(PARENT).all(|child| child == NOBODY));
        ends.forget_children_of(PARENT);
        assert_eq!(ends.of(PARENT).count(), 0);
    }
}
