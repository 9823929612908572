//! What SIGCHLD does in a process.

use crate::ahead::process::children::Children;
use crate::ahead::rollback::undo::Undo;
use crate::ahead::{process, Call, Object, SCRATCH};
use crate::descriptors::real_user_of;
use crate::event_loop::Supervisor;
use crate::signals::SignalSets;
use agent_abi::{PROCESS_EXIT_SIGNAL, PROCESS_NO_ZOMBIES};
use procfs::{ProcessId, Stat, Status};
use speculation::Dependent;
use std::sync::atomic::Ordering;
use tracee::{Result, SignalInfo, Stopped, TraceError};

impl Children {
    /// Whether a process has still to be told of a child, or to wait for one in the kernel.
    pub fn has_to_hear(&self, pid: ProcessId) -> bool {
        self.is_to_be_told(pid) || self.to_reap.contains_key(&pid)
    }

    /// A parent has been told of a child, or has not to be.
    pub(super) fn need_not_tell(&mut self, parent: ProcessId, child: ProcessId) {
        let Some(told) = self.to_tell.get_mut(&parent) else { return };
        told.retain(|&other| other != child);
        if told.is_empty() {
            self.to_tell.remove(&parent);
        }
    }

    pub fn is_to_be_told(&self, pid: ProcessId) -> bool {
        self.to_tell.contains_key(&pid)
    }

    /// The next child of which a process has still to be told, and its status. The kernel tells of one that has really
    /// ended meanwhile.
    pub(super) fn first_to_tell(&mut self, parent: ProcessId) -> Option<(ProcessId, i32)> {
        loop {
            let &child = self.to_tell.get(&parent)?.first()?;
            match self.held_exits.get(&child) {
                Some(exit) => return Some((child, exit.status)),
                None => self.need_not_tell(parent, child),
            }
        }
    }

    /// All that have.
    pub fn who_has_to_hear(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.to_tell.keys().chain(self.to_reap.keys()).copied()
    }

    /// Those that have still to be told of a child.
    pub fn parents_to_tell(&self) -> Vec<ProcessId> {
        self.to_tell.keys().copied().collect()
    }
}

impl Supervisor {
    /// A process has been told of a child, which can be undone.
    pub(super) fn note_told(
        &mut self,
        parent: ProcessId,
        observes: Vec<Dependent<Object>>,
        (child, status): (ProcessId, i32),
    ) -> Result<()> {
        let undo = (Object::Children(parent), Undo::Told { parent, child, status });
        self.ahead.touched.insert(undo.0.clone());
        self.ahead.note_flows(parent, &observes, &[]);
        self.ahead.core.system_call(process(parent), observes, vec![undo]);
        self.carry_out()
    }

    /// SIGCHLD does nothing in a process now. When it is taken back to before that, it may: then it has to be told.
    pub(super) fn tell_without_effect(&mut self, parent: ProcessId) -> Result<()> {
        while let Some((child, status)) = self.ahead.children.first_to_tell(parent) {
            self.note_told(parent, Vec::new(), (child, status))?;
            self.ahead.children.need_not_tell(parent, child);
            // Nor does it hear of that end later, when the kernel tells of it.
            self.ahead.children.silent.insert(child, Some(parent));
        }
        Ok(())
    }

    /// The kernel joins its word of a child's end with one that waits already, and says nothing of the second child.
    /// The first word is kept from the program, which knows of that end: then we tell of the others.
    pub(in crate::ahead) fn tell_of_joined(&mut self, parent: ProcessId, stopped: &Stopped) -> Result<()> {
        if stopped.pending_signals(true)?.iter().any(|info| info.number() == libc::SIGCHLD) {
            // The next word was not joined with this one.
            return Ok(());
        }
        // Of a child whose end we have not heard of ourselves the kernel has not told its parent either.
        // A word that reached the parent while it did something for us is with the signals that are held for it.
        let (kin, held) = (&self.ahead.children, &self.ahead.held_signals);
        let is_unheard = |child: &ProcessId| {
            let is_told = kin.is_silent(*child) || kin.held_exits.contains_key(child) || kin.heard.contains(child);
            !is_told && !held.tells_of(parent, *child) && !self.tracees.contains_key(&child.leader())
        };
        let told = |child| Some(end_of(child, status_of_zombie(child)?));
        let unreaped = kin.unreaped_of(parent).chain(self.ahead.unasked_ends.of(parent));
        let told: Vec<SignalInfo> = unreaped.filter(is_unheard).filter_map(told).collect();
        self.ahead.children.heard.extend(told.iter().map(SignalInfo::process));
        self.hold_signals(parent, told);
        Ok(())
    }

    /// Whether nobody waits for the children of a process. Of one that has asked the kernel for that once, this thread
    /// of it says whether that still holds.
    pub(super) fn leaves_no_zombies(
        &mut self,
        stopped: &Stopped,
        pid: ProcessId,
        sets: &procfs::Result<SignalSets>,
    ) -> Result<bool> {
        const SET_LEN: u64 = 8;
        if ignores_children(sets) || !self.may_leave_no_zombies(pid) {
            return Ok(ignores_children(sets));
        }
        let mut remote = self.remote_calls(stopped)?;
        let at = remote.registers().gs_base - SCRATCH;
        remote.call(libc::SYS_rt_sigaction, &[libc::SIGCHLD as u64, 0, at, SET_LEN])?;
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        let kernel = |source| TraceError::kernel("read a handler", pid, source);
        let [_, flags]: [u64; 2] = tracee::read_value(pid, at).map_err(kernel)?;
        Ok(flags & libc::SA_NOCLDWAIT as u64 != 0)
    }

    /// Whether an `rt_sigaction`, which changes whether the kernel waits for the children of the caller, concerns some
    /// that a rollback would leave to it. These are older than a checkpoint under which that was otherwise. They have
    /// not ended in the kernel yet: it would keep them as zombies, or not, as the call says, which no rollback changes.
    /// Where the kernel waits for children now, those for whom the caller has waited on a guess do not count.
    pub(in crate::ahead) fn has_older_children(&mut self, call: &Call) -> bool {
        let leaves_none = leaves_no_zombies_after(call);
        self.ahead.checkpoints.note_no_zombies(call.pid, !leaves_none);
        let Some(births) = self.ahead.checkpoints.births_with_no_zombies(call.pid, !leaves_none) else { return false };
        let kin = &self.ahead.children;
        let is_reaped = |child: ProcessId| kin.held_exits.get(&child).is_some_and(|exit| exit.reaped);
        let mut older = kin.kin.of_before(call.pid, births);
        older.any(|child| self.tracees.contains_key(&child.leader()) && (leaves_none || !is_reaped(child)))
            || self.ahead.unasked_ends.of(call.pid).next().is_some()
    }

    pub(super) fn may_leave_no_zombies(&self, pid: ProcessId) -> bool {
        self.flags_of(pid).is_some_and(|flags| flags.load(Ordering::SeqCst) & PROCESS_NO_ZOMBIES != 0)
    }

    /// The signal by which the kernel tells of the end of a process; 0: none. `None`: it is not known (any more).
    pub(in crate::ahead) fn exit_signal(&self, pid: ProcessId) -> Option<i32> {
        let tracee = self.tracees.get(&pid.leader())?;
        match self.world().processes[tracee.process].flags.load(Ordering::Relaxed) & PROCESS_EXIT_SIGNAL {
            0 => Some(libc::SIGCHLD),
            _ => Stat::of(pid).and_then(|stat| stat.exit_signal()).ok(),
        }
    }
}

/// Whether a process whose end this signal tells is a child of `clone`, as `wait(2)` calls those of `__WCLONE`.
pub(super) fn is_by_clone(exit_signal: Option<i32>) -> Option<bool> {
    exit_signal.map(|signal| signal != libc::SIGCHLD)
}

/// What the kernel tells a parent of a child that has ended so.
pub(in crate::ahead) fn end_of(child: ProcessId, status: i32) -> SignalInfo {
    SignalInfo::child_ended(child, real_user_of(child.leader()).unwrap_or(0), status)
}

/// The `wait(2)` status of a process that has ended, of which SIGCHLD tells, and for which its parent has not waited.
pub(super) fn status_of_zombie(pid: ProcessId) -> Option<i32> {
    let stat = Stat::of(pid).ok()?;
    // Of others it tells by another signal, or by none.
    stat.exit_signal().ok().filter(|&signal| signal == libc::SIGCHLD)?;
    stat.exit_code().ok().filter(|_| stat.state().is_ok_and(|state| state == 'Z'))
}

/// Whether the kernel may still tell a parent of a child's end: the child is there, perhaps as a zombie, or SIGCHLD
/// waits, or its parent stands still for a signal that we have not looked at.
pub(super) fn may_still_be_told(child: ProcessId, parent: Option<ProcessId>) -> bool {
    let may_hear = |parent: ProcessId| {
        waits_for_child_signal(Status::of(parent).and_then(|status| status.state()), || SignalSets::of(parent))
    };
    !procfs::is_unknown(child) || parent.is_some_and(may_hear)
}

/// Whether SIGCHLD may wait for a process of this state. If that is not known, it may.
fn waits_for_child_signal(state: procfs::Result<char>, sets: impl FnOnce() -> procfs::Result<SignalSets>) -> bool {
    match state {
        Ok('t') => true,
        Ok(_) => has_child_signal(&sets(), |sets| sets.pending),
        Err(error) => !error.is_gone(),
    }
}

/// Whether SIGCHLD is in a set of a process. If its sets are not known, it is taken for one that has it.
fn has_child_signal(sets: &procfs::Result<SignalSets>, which: impl Fn(&SignalSets) -> u64) -> bool {
    let bit = 1u64 << (libc::SIGCHLD - 1);
    sets.as_ref().map_or_else(|error| !error.is_gone(), |sets| which(sets) & bit != 0)
}

/// Whether nobody waits for the children of this process: wait(2), under SIGCHLD.
pub(super) fn ignores_children(sets: &procfs::Result<SignalSets>) -> bool {
    has_child_signal(sets, |sets| sets.ignored)
}

/// Whether the kernel waits for children itself after this `rt_sigaction` of SIGCHLD.
fn leaves_no_zombies_after(call: &Call) -> bool {
    let asked = tracee::read_value::<[u64; 2]>(call.tid, call.frame.args[1]);
    // What cannot be read is not taken for less than it may be.
    asked.map_or(true, |[handler, flags]| handler == libc::SIG_IGN as u64 || flags & libc::SA_NOCLDWAIT as u64 != 0)
}

/// Whether a process may get a SIGCHLD that is to be kept from it: not where it may be taken without a stop.
pub(in crate::ahead) fn may_hear_of_burials(sets: &procfs::Result<SignalSets>) -> bool {
    !has_child_signal(sets, |sets| sets.blocked & !sets.caught)
}

/// Whether SIGCHLD does anything in this process.
pub(super) fn hears_of_children(pid: ProcessId) -> bool {
    // Blocked, it may be taken by sigwait or a signal descriptor.
    has_child_signal(&SignalSets::of(pid), |sets| sets.caught | sets.blocked)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const INIT: ProcessId = ProcessId::from_raw(1);
    const PARENT: ProcessId = ProcessId::from_raw(2);
    const CHILD: ProcessId = ProcessId::from_raw(3);
    const OTHER: ProcessId = ProcessId::from_raw(4);

    pub fn unreadable<T>() -> procfs::Result<T> {
        let source = std::io::Error::from_raw_os_error(libc::EMFILE);
        Err(procfs::Error::Unreadable { task: INIT.into(), name: "status".to_owned(), source })
    }

    #[test]
    fn a_signal_may_wait_for_a_process_that_cannot_be_looked_at() {
        assert!(has_child_signal(&unreadable(), |sets| sets.ignored));
        assert!(!has_child_signal(&Err(procfs::Error::Gone(INIT.into())), |sets| sets.ignored));
        assert!(waits_for_child_signal(unreadable(), unreadable));
        assert!(waits_for_child_signal(Ok('S'), unreadable));
        assert!(!waits_for_child_signal(Err(procfs::Error::Gone(INIT.into())), unreadable));
    }

    fn with_ends_to_tell() -> Children {
        let mut children = Children::default();
        for child in [CHILD, OTHER] {
            children.born(PARENT, child, false);
            children.hold_zombie(PARENT, child, child.as_raw(), true);
        }
        children
    }

    #[test]
    fn who_has_really_ended_keeps_no_parent_from_hearing_of_another() {
        let mut children = with_ends_to_tell();
        children.held_exits.remove(&CHILD);
        assert_eq!(children.first_to_tell(PARENT), Some((OTHER, OTHER.as_raw())));
        children.held_exits.remove(&OTHER);
        assert_eq!(children.first_to_tell(PARENT), None);
        assert!(!children.is_to_be_told(PARENT));
    }

    #[test]
    fn an_end_is_told_as_its_status_says() {
        let told = |status| SignalInfo::child_ended(CHILD, 0, status).code();
        let by_signal = libc::SIGABRT;
        assert_eq!(
            [told(3 << 8), told(by_signal), told(by_signal | 0x80)],
            [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED]
        );
    }

    #[test]
    fn the_end_of_who_lives_again_is_news() {
        let mut children = with_ends_to_tell();
        assert!(children.is_silent(CHILD));
        children.revive(CHILD);
        assert!(!children.is_silent(CHILD) && children.is_silent(OTHER));
    }
}
