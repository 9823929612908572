//! Processes that end in earnest though on a guess
//! ([0182](../../../../../docs/decisions/0182-who-ended-on-a-guess-ends.md)).
//!
//! Where parent and child depend on the same when the parent waits, and no checkpoint has the child, whatever takes
//! back the wait takes the parent to before it had the child. Nobody asks for the child any more: it ends, and is
//! forgotten, but for what it wrote.

use crate::ahead::rollback::undo::{Descriptor, Undo};
use crate::ahead::{process, Object};
use crate::event_loop::Supervisor;
use agent_abi::{PROCESS_GIVES_BACK, PROCESS_LOCKS, PROCESS_SHARES};
use procfs::{ProcessId, Stat};
use rustix::fs::{FileType, OFlags};
use speculation::Dependent;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use tracee::Result;

/// Ends of pipes and terminals that lead outside, of processes that were buried: whoever is outside hears of their
/// close when nothing is open any more that may fail.
#[derive(Debug, Default)]
pub(in crate::ahead) struct OutsideEnds(HashMap<(u64, u64, u32), Arc<OwnedFd>>);

impl OutsideEnds {
    /// False if it cannot be told what it is.
    fn hold(&mut self, end: &Arc<OwnedFd>) -> bool {
        let (Ok(stat), Ok(flags)) = (rustix::fs::fstat(end), rustix::fs::fcntl_getfl(end)) else { return false };
        let mode = (flags & OFlags::RWMODE).bits();
        self.0.entry((stat.st_dev, stat.st_ino, mode)).or_insert_with(|| end.clone());
        true
    }

    pub fn close(&mut self) {
        self.0.clear();
    }
}

impl Supervisor {
    /// What an ended process still has open, when it ends on a guess: whether its close shows nothing to anybody.
    pub(in crate::ahead) fn closes_unseen(&mut self, file: OwnedFd) -> bool {
        if self.is_file_locked(&file) {
            return false;
        }
        match rustix::fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile | FileType::Directory) => true,
            Ok(FileType::Fifo | FileType::CharacterDevice) => self.ahead.outside_ends.hold(&Arc::new(file)),
            _ => false,
        }
    }

    /// Whether a child whose exit is held, and for which its parent waits now, need not be kept for anybody.
    pub(in crate::ahead) fn may_bury(&mut self, parent: ProcessId, child: ProcessId) -> bool {
        let (core, kin) = (&self.ahead.core, &self.ahead.children);
        let of = |pid: ProcessId| core.dependencies_of_process(process(pid));
        let observes = [Dependent::Process(process(child))];
        let flags = self.tracees.get(&child.leader()).map(|tracee| &self.world().processes[tracee.process].flags);
        let leaves = PROCESS_GIVES_BACK | PROCESS_LOCKS | PROCESS_SHARES;
        self.ahead.is_speculative(parent)
            && of(parent) == of(child)
            && core.has_ended_for_good(process(child))
            && core.gains(process(parent), &observes, &[Object::Children(parent)]).is_empty()
            && self.ahead.checkpoints.has_none(child)
            && kin.leaves_nothing(child)
            && !self.has_company(child.leader())
            && flags.is_some_and(|flags| flags.load(Ordering::Relaxed) & leaves == 0)
            && !self.ahead.signals.has_any_for(child)
            && self.ahead.held_signals.of(child).is_empty()
            && self.ahead.mirrors.is_empty()
            && !leads_session_at_terminal(child).unwrap_or(true)
            && self.forgets_descriptors(child)
    }

    /// Whether nothing that a process has closed has to be kept for others. What leads outside is held for them.
    fn forgets_descriptors(&mut self, pid: ProcessId) -> bool {
        let ahead = &mut self.ahead;
        ahead.core.payloads(&Object::Descriptors(pid)).all(|undo| match undo {
            Undo::Nothing | Undo::CloseOnExec { .. } | Undo::Descriptor { was: Descriptor::PipeEnd { .. }, .. } => true,
            Undo::Descriptor { was: Descriptor::Open(file), .. } => {
                match rustix::fs::fstat(file.as_fd()).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
                    Ok(FileType::RegularFile | FileType::Directory) => true,
                    Ok(FileType::Fifo | FileType::CharacterDevice) => ahead.outside_ends.hold(file),
                    _ => false,
                }
            }
            _ => false,
        })
    }

    /// It ends, and is forgotten.
    pub(in crate::ahead) fn bury(&mut self, parent: ProcessId, child: ProcessId) -> Result<()> {
        let Some((stopped, _)) = self.ahead.children.take_standing(child) else { return Ok(()) };
        self.ahead.core.bury(process(child));
        for object in [Object::Descriptors(child), Object::Children(child), Object::Signals(child)] {
            self.ahead.core.bury_object(&object);
            self.ahead.touched.remove(&object);
        }
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
