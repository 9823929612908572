//! Processes that end in earnest though on a guess
//! ([0182](../../../../../docs/decisions/0182-who-ended-on-a-guess-ends.md)).
//!
//! Where parent and child depend on the same when the parent waits, and no checkpoint has the child, whatever takes
//! back the wait takes the parent to before it had the child. Nobody asks for the child any more: it ends, and is
//! forgotten, but for what it wrote.

use crate::ahead::objects::{epoll, KINDS};
use crate::ahead::process::children::Children;
use crate::ahead::rollback::undo::{Descriptor, Undo};
use crate::ahead::{process, Object};
use crate::event_loop::Supervisor;
use agent_abi::{hash_end, PROCESS_GIVES_BACK, PROCESS_LOCKS, PROCESS_SEES_OTHERS};
use procfs::{ProcessId, Stat};
use rustix::fs::{FileType, OFlags};
use speculation::Dependent;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use tracee::Result;

/// Ends of pipes and terminals that lead outside, of processes that were buried: whoever is outside hears of their
/// close when nothing is open any more that may fail.
#[derive(Debug, Default)]
pub(in crate::ahead) struct OutsideEnds(HashMap<(u64, u64, u32), Arc<OwnedFd>>);

impl OutsideEnds {
    /// What it is noted as; `None` if it cannot be told what it is.
    fn hold(&mut self, end: &Arc<OwnedFd>) -> Option<u64> {
        let stat = rustix::fs::fstat(end).ok()?;
        let mode = (rustix::fs::fcntl_getfl(end).ok()? & OFlags::RWMODE).bits();
        self.0.entry((stat.st_dev, stat.st_ino, mode)).or_insert_with(|| end.clone());
        Some(hash_end(stat.st_dev, stat.st_ino, mode))
    }

    pub fn close(&mut self) {
        self.0.clear();
    }
}

impl Children {
    /// Who has waited for a child, as far as its program knows. The kernel may have that child for longer: standing
    /// still, about to end, or as a zombie for which nobody could wait yet.
    pub(super) fn waited_for_by(&self, child: ProcessId) -> Option<ProcessId> {
        let held = || self.held_exits.get(&child).filter(|exit| exit.reaped).and_then(|exit| exit.parent);
        let dead = || self.to_reap.iter().find(|(_, dead)| dead.contains(&child)).map(|(&parent, _)| parent);
        let known = self.provisionally_reaped.get(&child).or_else(|| self.buried.get(&child)).copied();
        known.or_else(held).or_else(dead)
    }

    /// Who ended before it could wait in the kernel for those for which its program had waited has left them to whoever
    /// adopts them.
    pub(super) fn forget_dead_of_the_dead(&mut self) {
        self.to_reap.retain(|&parent, _| !procfs::is_unknown(parent));
    }

    /// A process is put back to before it had the children for which it has waited since, and that were buried. Where
    /// our word of such a child is still in its queue, it is kept from it.
    pub fn was_not_told_of_buried(&mut self, parent: ProcessId) {
        let (silent, kin) = (&self.silent, &self.kin);
        let is_buried = |child: &ProcessId| silent.get(child) == Some(&Some(parent)) && kin.parent(*child).is_none();
        self.announced.retain(|child| !is_buried(child));
    }
}

impl Supervisor {
    /// Nobody outside hears of a close of this end any more, until all guesses are resolved. As long as the epoch lasts
    /// agents know that. False if it cannot be told what it is.
    pub(super) fn hold_outside_end(&mut self, end: &Arc<OwnedFd>) -> bool {
        let Some(noted) = self.ahead.outside_ends.hold(end) else { return false };
        let young = &self.world().young;
        let epoch = young.epoch();
        if !young.has(noted, epoch) {
            young.note(noted, epoch);
        }
        true
    }

    /// What an ended process still has open, when it ends on a guess: whether its close shows nothing to anybody.
    pub(in crate::ahead) fn closes_unseen(&mut self, file: OwnedFd) -> bool {
        if self.is_file_locked(&file) {
            return false;
        }
        match rustix::fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile | FileType::Directory) => true,
            Ok(FileType::Fifo | FileType::CharacterDevice) => self.hold_outside_end(&Arc::new(file)),
            _ => false,
        }
    }

    /// Whether a child whose exit is held, and for which its parent waits now, need not be kept for anybody.
    pub(in crate::ahead) fn may_bury(&mut self, parent: ProcessId, child: ProcessId) -> bool {
        let (core, kin) = (&self.ahead.core, &self.ahead.children);
        let of = |pid: ProcessId| core.dependencies_of_process(process(pid));
        let observes = [Dependent::Process(process(child))];
        let flags = self.tracees.get(&child.leader()).map(|tracee| &self.world().processes[tracee.process].flags);
        let leaves = PROCESS_GIVES_BACK | PROCESS_LOCKS | PROCESS_SEES_OTHERS;
        self.ahead.is_speculative(parent)
            && of(parent) == of(child)
            && core.has_ended_for_good(process(child))
            && core.gains(process(parent), &observes, &[Object::Children(parent)]).is_empty()
            && self.ahead.checkpoints.has_none(child)
            && kin.leaves_nothing(child)
            && self.leaves_nothing_in_memory(child)
            && flags.is_some_and(|flags| flags.load(Ordering::Relaxed) & leaves == 0)
            && !self.ahead.signals.has_any_for(child)
            && self.ahead.held_signals.of(child).is_empty()
            && !self.ahead.mirrors.is_any_certain()
            && !leads_session_at_terminal(child).unwrap_or(true)
            && self.forgets_descriptors(child)
    }

    /// Whether nothing that a process has closed has to be kept for others. What leads outside is held for them.
    pub(super) fn forgets_descriptors(&mut self, pid: ProcessId) -> bool {
        let ahead = &mut self.ahead;
        ahead.core.payloads(&Object::Descriptors(pid)).all(|undo| match undo {
            Undo::Nothing | Undo::CloseOnExec { .. } | Undo::Descriptor { was: Descriptor::PipeEnd { .. }, .. } => true,
            Undo::Descriptor { was: Descriptor::Open(file), .. } => {
                match rustix::fs::fstat(file.as_fd()).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                    Ok(FileType::RegularFile | FileType::Directory) => true,
                    Ok(FileType::Fifo | FileType::CharacterDevice) => ahead.outside_ends.hold(file).is_some(),
                    Ok(FileType::Unknown) => procfs::own_name(file).is_ok_and(|link| is_closed_unnoticed(&link)),
                    _ => false,
                }
            }
            _ => false,
        })
    }

    /// The core forgets a process that has ended for good, and what is the process's own, but for what it wrote.
    pub(super) fn bury_in_core(&mut self, pid: ProcessId) {
        self.ahead.core.bury(process(pid));
        for object in [Object::Descriptors(pid), Object::Children(pid), Object::Signals(pid)] {
            self.ahead.core.bury_object(&object);
            self.ahead.touched.remove(&object);
        }
    }

    /// It ends, and is forgotten.
    pub(in crate::ahead) fn bury(&mut self, parent: ProcessId, child: ProcessId) -> Result<()> {
        let Some((stopped, _)) = self.ahead.children.take_standing(child) else { return Ok(()) };
        self.bury_in_core(child);
        self.ahead.children.bury(parent, child);
        self.ahead.report.buried += 1;
        let ended = self.reap_all(&stopped, child).and_then(|()| self.reply(stopped, agent_abi::ahead::GO));
        match ended {
            // It was killed meanwhile.
            Err(tracee::TraceError::Gone(_)) => Ok(()),
            ended => ended,
        }
    }
}

/// Whether whoever else has an object without a name notices nothing when a descriptor of it is closed: an event
/// counter, a timer, an epoll set, a process. `link`: what `/proc/PID/fd` shows of it.
pub(super) fn is_closed_unnoticed(link: &Path) -> bool {
    const PROCESS: &str = "anon_inode:[pidfd]";
    let is = |of: &str| link.as_os_str() == of;
    is(epoll::LINK) || is(PROCESS) || KINDS.iter().any(|kind| is(kind.link()))
}

/// Whether a process leads a session that has a terminal: its end is a hang-up for others there (setsid(2)).
pub(super) fn leads_session_at_terminal(pid: ProcessId) -> procfs::Result<bool> {
    if crate::sys::session_of(pid).is_ok_and(|session| session != pid.as_raw()) {
        // Most lead none, and /proc takes much longer to say so.
        return Ok(false);
    }
    procfs::unless_gone(
        Stat::of(pid).and_then(|stat| Ok(stat.session()? == pid.as_raw() && stat.terminal()?.is_some())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::process::children::HeldExit;

    const PARENT: ProcessId = ProcessId::from_raw(1);
    const BURIED: ProcessId = ProcessId::from_raw(2);
    const HELD: ProcessId = ProcessId::from_raw(3);

    #[test]
    fn a_word_of_a_child_that_never_was_is_not_heard() {
        let mut children = Children::default();
        for child in [BURIED, HELD] {
            children.born(PARENT, child, false);
            children.announce(child);
        }
        children.bury(PARENT, BURIED);
        children.was_not_told_of_buried(HELD);
        assert!(children.is_announced(BURIED), "somebody else is put back");
        children.was_not_told_of_buried(PARENT);
        assert!(!children.take_announced(BURIED) && children.is_silent(BURIED));
        assert!(children.take_announced(HELD), "that is undone in another way");
    }

    /// The parent of the buried child stands still at its own end, and waits in the kernel when it is released.
    #[test]
    fn who_was_waited_for_is_known_until_the_kernel_forgets_it() {
        let mut children = Children::default();
        for child in [HELD, BURIED] {
            children.born(PARENT, child, false);
            assert_eq!(children.waited_for_by(child), None);
        }
        children.bury(PARENT, BURIED);
        assert_eq!(children.waited_for_by(BURIED), Some(PARENT));
        children.ended(BURIED);
        assert_eq!(children.waited_for_by(BURIED), Some(PARENT));
        let mut exit = HeldExit::of_zombie(PARENT, 0);
        exit.reaped = true;
        children.held_exits.insert(HELD, exit);
        assert_eq!(children.waited_for_by(HELD), Some(PARENT));
        children.ended(HELD);
        assert_eq!(children.waited_for_by(HELD), Some(PARENT));
        children.not_reaped(HELD, false);
        assert_eq!(children.waited_for_by(HELD), None);
    }

    #[test]
    fn a_wait_that_is_undone_is_no_reason_to_tell_twice() {
        let mut children = Children::default();
        for child in [HELD, BURIED] {
            children.born(PARENT, child, false);
            children.silent.insert(child, Some(PARENT));
            children.kin.reaped(child);
        }
        children.not_reaped(HELD, true);
        assert!(children.is_silent(HELD), "its parent has heard our word");
        children.not_reaped(BURIED, false);
        assert!(!children.is_silent(BURIED), "its parent has heard nothing");
        assert_eq!(children.unreaped_of(PARENT).count(), 2);
    }
}
