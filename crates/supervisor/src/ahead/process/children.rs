//! Parents and children: fork, exit and wait of speculative processes (000, 6.8 and 6.9).
//!
//! The exit of a speculative process is *held*: the process closes what others would see closed, and then stands still
//! at the entry of its last call, so that a rollback can revive it in place, with its pid and its children. The
//! supervisor tells its parent, and gives it the status. When nothing can fail any more the process makes its call, and
//! what the kernel then says is not said twice.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::process::burial::{is_closed_unnoticed, leads_session_at_terminal};
use crate::ahead::process::child_signal::{
    end_of, hears_of_children, is_by_clone, may_hear_of_burials, may_still_be_told,
};
use crate::ahead::process::kin::Kin;
use crate::ahead::process::vfork::Apart;
use crate::ahead::process::wait_answer::{tell_of_end, tell_of_none};
use crate::ahead::process::wanted::{has_child_of_whom, Wanted};
use crate::ahead::rollback;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::speculations::bounds;
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use checkpoint::{CheckpointError, ToReap};
use procfs::{MagicLink, ProcessId, SignalSets, Status, ThreadId};
use speculation::Dependent;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;
use tracee::{Result, SignalInfo, Stop, Stopped};

/// A process that has ended as far as its program is concerned.
#[derive(Debug)]
pub(crate) struct HeldExit {
    /// `None`: nobody inside.
    pub(super) parent: Option<ProcessId>,
    /// `wait(2)` status.
    pub(super) status: i32,
    /// Its parent has waited for it.
    pub(super) reaped: bool,
    /// And that will not be undone.
    for_good: bool,
    /// Nobody sees the close of what it has open.
    closes_unseen: bool,
}

impl HeldExit {
    pub(super) fn of_zombie(parent: ProcessId, status: i32) -> Self {
        Self { parent: Some(parent), status, reaped: false, for_good: false, closes_unseen: false }
    }
}

/// What is known of kinship.
#[derive(Debug, Default)]
pub(crate) struct Children {
    pub(super) kin: Kin,
    /// They share their parent's memory until they call exec.
    sharing: HashSet<ProcessId>,
    pub held_exits: BTreeMap<ProcessId, HeldExit>,
    /// Processes that end when children for which they have waited have ended.
    pub(super) ending_behind: BTreeSet<ProcessId>,
    pub apart: Apart,
    standing: HashMap<ProcessId, (Stopped, Option<SignalInfo>)>,
    /// Whom to send SIGCHLD, and about whom. Who has nothing to be told is not among them: all are looked at for each
    /// call.
    pub(super) to_tell: HashMap<ProcessId, Vec<ProcessId>>,
    /// Ended in the kernel; their parent has waited for them while their exits were held, which can still be undone.
    pub(super) provisionally_reaped: HashMap<ProcessId, ProcessId>,
    /// Their parent has waited for them, for good, while their exits were held, and must still do so in the kernel.
    pub(super) to_reap: HashMap<ProcessId, Vec<ProcessId>>,
    /// What the kernel says about them, to their parent, has been said, or never happened.
    pub(super) silent: HashMap<ProcessId, Option<ProcessId>>,
    /// Their end is being told by us.
    pub(super) announced: HashSet<ProcessId>,
    /// Those that end in earnest on a guess, and are forgotten, until the kernel tells of it, with their parents.
    pub(super) buried: HashMap<ProcessId, ProcessId>,
    /// Ended for good, and not known to have been waited for.
    pub(super) ended: HashSet<ProcessId>,
    /// Those of whose end the kernel's word has reached their parent.
    pub heard: HashSet<ProcessId>,
    /// Ended in the kernel before their exits were held, with their statuses.
    pub(super) zombies: HashMap<ProcessId, i32>,
}

impl Children {
    /// A process depends on nothing: those of its children that have ended and were waited for are forgotten. Whoever
    /// asks for children looks at all that are known, and their numbers are given to others.
    pub fn forget_gone(&mut self, parent: ProcessId) {
        let gone: Vec<ProcessId> = self.kin.of(parent).filter(|&child| self.is_gone(child)).collect();
        for child in gone {
            self.ended.remove(&child);
            self.heard.remove(&child);
            self.kin.remove(child);
        }
    }

    pub fn born(&mut self, parent: ProcessId, child: ProcessId, shares_memory: bool) {
        self.kin.insert(child, parent);
        self.silent.remove(&child);
        self.ended.remove(&child);
        self.heard.remove(&child);
        if shares_memory {
            self.sharing.insert(child);
        }
    }

    /// Whether a process has children to wait for that its program has heard of already.
    pub fn is_anything_to_reap(&self, parent: ProcessId) -> bool {
        self.to_reap.contains_key(&parent)
    }

    /// Whether nobody has still to be told of, or kept from, anybody's end. It looks at each process whose end is to be
    /// kept from its parent: ask seldom.
    pub fn is_quiet(&mut self) -> bool {
        self.forget_zombies_of_the_dead();
        self.forget_dead_of_the_dead();
        if !self.is_settled() {
            return false;
        }
        self.silent.retain(|&child, &mut parent| may_still_be_told(child, parent));
        // What we send is lost, too, while another SIGCHLD waits.
        self.announced.retain(|child| self.silent.contains_key(child));
        self.silent.is_empty()
    }

    fn is_settled(&self) -> bool {
        self.held_exits.is_empty()
            && self.standing.is_empty()
            && self.to_tell.is_empty()
            && self.provisionally_reaped.is_empty()
            && self.to_reap.is_empty()
            && self.buried.is_empty()
    }

    pub fn shares_memory(&self, pid: ProcessId) -> bool {
        self.sharing.contains(&pid)
    }

    pub fn executed(&mut self, pid: ProcessId) {
        self.sharing.remove(&pid);
        self.apart.leave(pid);
    }

    /// A process whose exit is held stands still: at its last call, or where a signal ended it.
    pub fn keep(&mut self, pid: ProcessId, stopped: Stopped, by: Option<SignalInfo>) {
        self.standing.insert(pid, (stopped, by));
    }

    /// Where a process whose exit is held stands still.
    pub fn standing_at(&self, pid: ProcessId) -> Option<&Stopped> {
        self.standing.get(&pid).map(|(stopped, _)| stopped)
    }

    /// The thread with which it does.
    pub fn standing_thread(&self, pid: ProcessId) -> Option<ThreadId> {
        self.standing_at(pid).map(Stopped::tid)
    }

    /// Whether a process has a child that uses its memory.
    pub fn any_shares_with(&self, pid: ProcessId) -> bool {
        self.sharing.iter().any(|&child| self.kin.parent(child) == Some(pid))
    }

    pub fn stands(&self, pid: ProcessId) -> bool {
        self.standing.contains_key(&pid)
    }

    /// Children for which a process has waited for good, and whose exits are held.
    pub(super) fn reaped_of(&self, pid: ProcessId) -> impl Iterator<Item = ProcessId> + '_ {
        let is_reaped = move |exit: &HeldExit| exit.parent == Some(pid) && exit.reaped && exit.for_good;
        self.held_exits.iter().filter(move |(_, exit)| is_reaped(exit)).map(|(child, _)| *child)
    }

    pub fn take_standing(&mut self, pid: ProcessId) -> Option<(Stopped, Option<SignalInfo>)> {
        self.standing.remove(&pid)
    }

    /// A process lives again.
    pub fn revive(&mut self, pid: ProcessId) {
        if let Some(exit) = self.held_exits.remove(&pid) {
            self.kin.not_reaped(pid);
            // What the kernel says of its end is news then.
            self.silent.remove(&pid);
            if let Some(parent) = exit.parent {
                self.need_not_tell(parent, pid);
            }
        }
    }

    /// A process never was.
    pub fn unmake(&mut self, pid: ProcessId) {
        self.revive(pid);
        let parent = self.kin.remove(pid);
        self.sharing.remove(&pid);
        self.apart.leave(pid);
        // What was told of its end is undone, too: what the kernel says of it is not that.
        self.announced.remove(&pid);
        self.silent.insert(pid, parent);
    }

    pub fn ended(&mut self, pid: ProcessId) {
        self.sharing.remove(&pid);
        self.apart.leave(pid);
        self.to_tell.remove(&pid);
        // Its number may be another process's next: those are not that one's children.
        self.kin.forget_children_of(pid);
        if let Some(parent) = self.buried.remove(&pid) {
            // A parent that has ended in earnest meanwhile asked for no more.
            return self.reap_later(parent, pid);
        }
        match self.held_exits.remove(&pid) {
            Some(HeldExit { parent: Some(parent), reaped: true, for_good: true, .. }) => self.reap_later(parent, pid),
            Some(HeldExit { parent: Some(parent), reaped: true, .. }) => {
                self.provisionally_reaped.insert(pid, parent);
            }
            _ => {
                self.ended.insert(pid);
            }
        }
    }

    /// That a parent has waited for a child whose exit is held is true for good.
    pub fn reaped_for_good(&mut self, child: ProcessId) {
        if let Some(parent) = self.provisionally_reaped.remove(&child) {
            self.reap_later(parent, child);
        } else if let Some(exit) = self.held_exits.get_mut(&child) {
            exit.for_good = true;
        }
    }

    /// A parent has not waited for a child whose exit is held. `is_told`: the parent hears of that end from us, before
    /// and after the wait that is undone. So the kernel's word is still kept from it.
    pub fn not_reaped(&mut self, child: ProcessId, is_told: bool) {
        if !is_told {
            self.silent.remove(&child);
        }
        self.kin.not_reaped(child);
        if let Some(parent) = self.provisionally_reaped.remove(&child) {
            match self.zombies.get(&child) {
                Some(&status) => drop(self.held_exits.insert(child, HeldExit::of_zombie(parent, status))),
                None => drop(self.ended.insert(child)),
            }
        } else if let Some(exit) = self.held_exits.get_mut(&child) {
            exit.reaped = false;
        }
    }

    pub fn reap_later(&mut self, parent: ProcessId, child: ProcessId) {
        self.kin.remove(child);
        self.zombies.remove(&child);
        self.to_reap.entry(parent).or_default().push(child);
    }

    /// Whether a process has ended by itself, and nothing that it has left is seen by anybody when it is not there.
    pub fn leaves_nothing(&self, pid: ProcessId) -> bool {
        self.held_exits.get(&pid).is_some_and(|exit| exit.closes_unseen)
            && self.standing.get(&pid).is_some_and(|(_, by)| by.is_none())
            && self.kin.of(pid).next().is_none()
            && !self.buried.values().any(|&parent| parent == pid)
            && !self.sharing.contains(&pid)
            && self.apart.parent(pid).is_none()
    }

    /// Whether its program has ended, though the process may not have.
    pub fn has_ended(&self, pid: ProcessId) -> bool {
        self.held_exits.contains_key(&pid) || self.buried.contains_key(&pid)
    }

    /// Those that were buried and are not known to have ended.
    pub fn dying(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.buried.keys().copied()
    }

    pub fn bury(&mut self, parent: ProcessId, child: ProcessId) {
        self.held_exits.remove(&child);
        self.to_tell.remove(&child);
        self.kin.remove(child);
        self.buried.insert(child, parent);
        // The kernel's word of its end is no news.
        self.silent.insert(child, Some(parent));
        self.need_not_tell(parent, child);
    }

    /// A parent has not heard of a child's end. False if the child has really ended meanwhile: then the kernel has told
    /// what nobody was to hear.
    pub fn tell_again(&mut self, parent: ProcessId, child: ProcessId) -> bool {
        self.silent.remove(&child);
        self.announced.remove(&child);
        let is_held = self.held_exits.contains_key(&child);
        if is_held {
            self.to_tell.entry(parent).or_default().push(child);
        }
        is_held
    }

    /// Whether a process has waited for a child that is not dead in the kernel yet. The kernel would tell the process
    /// of that child again, or say that the child lives.
    fn has_waited_for_the_dying(&self, parent: ProcessId) -> bool {
        let is_reaped = |child: ProcessId| self.held_exits.get(&child).is_some_and(|exit| exit.reaped);
        self.kin.of(parent).any(is_reaped) || self.buried.values().any(|&of| of == parent)
    }

    pub fn any_held_exits(&self) -> bool {
        !self.held_exits.is_empty()
    }

    pub fn are_many_held_exits(&self) -> bool {
        bounds::are_many_ended(self.held_exits.len())
    }

    /// Its children.
    pub fn of(&self, parent: ProcessId) -> impl Iterator<Item = ProcessId> + '_ {
        self.kin.of(parent)
    }

    /// How many processes have been born so far.
    pub fn births(&self) -> u64 {
        self.kin.births()
    }

    /// Those for whom it has not waited.
    pub fn unreaped_of(&self, parent: ProcessId) -> impl Iterator<Item = ProcessId> + '_ {
        self.kin.unreaped_of(parent)
    }

    pub fn parent(&self, pid: ProcessId) -> Option<ProcessId> {
        self.kin.parent(pid)
    }

    pub fn knows(&self, pid: ProcessId) -> bool {
        self.kin.parent(pid).is_some()
    }

    /// Whether nothing is known of a process of this number.
    pub(super) fn is_forgotten(&self, pid: ProcessId) -> bool {
        !self.knows(pid) && !self.buried.contains_key(&pid)
    }

    /// Whether it has ended and was waited for in the kernel.
    pub(super) fn is_gone(&self, child: ProcessId) -> bool {
        self.ended.contains(&child) && procfs::is_unknown(child)
    }

    /// Whether a SIGCHLD about this process is ours.
    pub fn take_announced(&mut self, pid: ProcessId) -> bool {
        self.announced.remove(&pid)
    }

    /// Its end is told by us.
    pub fn announce(&mut self, pid: ProcessId) {
        self.announced.insert(pid);
    }

    /// Whether we have told of its end, and its parent has not heard it yet.
    pub fn is_announced(&self, pid: ProcessId) -> bool {
        self.announced.contains(&pid)
    }

    /// Whether the kernel's SIGCHLD about this process is to be kept from its parent.
    pub fn is_silent(&self, pid: ProcessId) -> bool {
        self.silent.contains_key(&pid)
    }
}

impl Supervisor {
    /// Its parent goes on when the child is known: otherwise it might ask for a child that we have not heard of. What
    /// was known of an earlier process of this number says nothing. One that has ended already does not stop any more.
    pub(in crate::ahead) fn await_birth(&mut self, child: ThreadId) -> Result<()> {
        if self.tracees.contains_key(&child) {
            return Ok(());
        }
        match tracee::await_stop(child)? {
            Some(stopped) => {
                self.on_stop(stopped);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A process stopped while it was making a child, and will not tell of it: if there is one, it is heard of before
    /// its parent does anything else, which might make it seem to be a child of a later guess.
    pub(in crate::ahead) fn hear_of_births(&mut self, tid: ThreadId) -> Result<()> {
        match self.ahead.giving_birth.remove(&tid) {
            true => self.hear_of_children(tid),
            false => Ok(()),
        }
    }

    /// Children that a thread has made are heard of.
    pub(in crate::ahead) fn hear_of_children(&mut self, tid: ThreadId) -> Result<()> {
        self.unannounced_children(tid)?.into_iter().try_for_each(|child| self.await_birth(child.leader()))
    }

    /// Children that a thread has made, and of whose birth we have not heard.
    pub(in crate::ahead) fn unannounced_children(&self, tid: ThreadId) -> Result<Vec<ProcessId>> {
        let children = procfs::unless_gone(procfs::children(tid))?;
        let vessels: Vec<ProcessId> = self.ahead.checkpoints.vessels().map(|vessel| vessel.process()).collect();
        let is_known = |child: &ProcessId| {
            self.tracees.contains_key(&child.leader())
                || vessels.contains(child)
                || self.ahead.vessels.is_given_up(tid.leads(), *child)
        };
        let mut unheard = Vec::new();
        for child in children.into_iter().filter(|child| !is_known(child)) {
            if rollback::is_traced_by_us(child)? {
                unheard.push(child);
            }
        }
        Ok(unheard)
    }

    /// A process that depends on a guess ends.
    pub(in crate::ahead) fn end_speculatively(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        status: i32,
    ) -> Result<Decision> {
        if self.would_orphan(call.pid) && self.would_tell_orphans(call.pid) {
            return Ok(Decision::Wait);
        }
        if self.exit_signal(call.pid).is_none_or(|signal| !matches!(signal, 0 | libc::SIGCHLD)) {
            // We tell of an end by SIGCHLD only.
            return Ok(self.wait_at_barrier(call));
        }
        if self.may_have_locks(call.pid) {
            // They would stay while the exit is held.
            return Ok(self.wait_at_barrier(call));
        }
        let Ok(open) = self.descriptors_of(call.pid) else { return Ok(Decision::Wait) };
        let mut closes_unseen = true;
        let mut modifies: Vec<(Object, Intent)> = Vec::new();
        let mut ends = Vec::new();
        for fd in open {
            match self.file_description(call.tid, fd) {
                FileDescription::Pipe { copy, .. } if self.changes_fifo_of_others(call.pid, &copy) => {
                    return Ok(self.wait_at_barrier(call));
                }
                FileDescription::Pipe { dev, ino, copy } => {
                    modifies.push((Object::Pipe(dev, ino), Intent::Stream(copy)));
                    modifies.push((Object::Descriptors(call.pid), Intent::Close(fd)));
                    ends.push(fd);
                }
                // Who would execute it is not to find that somebody writes there.
                FileDescription::File { dev, ino, .. } if self.ahead.new_files.has_inode(&(dev, ino)) => {
                    modifies.push((Object::Descriptors(call.pid), Intent::Close(fd)));
                    ends.push(fd);
                }
                FileDescription::Socket { ino, copy }
                    if self.is_end_of_young_pair(&copy) || self.goes_with_its_server(&copy) =>
                {
                    modifies.extend(self.hang_up(call.pid, ino, copy));
                    modifies.push((Object::Descriptors(call.pid), Intent::Close(fd)));
                    ends.push(fd);
                }
                // It stays open while the exit is held.
                FileDescription::Socket { ino, copy } => {
                    closes_unseen &= self.has_other_holder(call.pid, ino);
                    modifies.extend(self.hang_up(call.pid, ino, copy));
                }
                FileDescription::File { copy, .. } | FileDescription::Outside { copy } => {
                    closes_unseen &= self.closes_unseen(copy);
                }
                FileDescription::Untold => return Ok(Decision::Wait),
                FileDescription::Nothing | FileDescription::Bad => {}
                // Nobody else who has one notices that a descriptor of it is closed.
                FileDescription::Object(_) => {}
                FileDescription::Other => {
                    let link = MagicLink::Fd(fd).shown(call.tid);
                    closes_unseen &= link.is_ok_and(|link| is_closed_unnoticed(&link));
                }
            }
        }
        let plan = Plan::tracked_once();
        let locked = self.give_up_all_records(call.pid, &mut modifies);
        let is_socket = |object: &&Object| matches!(object, Object::Socket(_));
        let hung_up: Vec<Object> = modifies.iter().map(|(object, _)| object).filter(is_socket).cloned().collect();
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        self.gave_up_records(call.pid, &locked);
        self.retire_others(call.pid, call.tid)?;
        if !ends.is_empty() {
            let mut remote = self.remote_calls(stopped)?;
            for fd in ends {
                remote.call(libc::SYS_close, &[fd as u64])?;
            }
            let signals = remote.finish()?;
            self.hold_signals(call.pid, signals);
        }
        self.hold_exit(call.pid, status, closes_unseen)?;
        if !hung_up.is_empty() {
            self.call_out_who_waits_at(call.tid, &hung_up);
        }
        Ok(Decision::Keep)
    }

    /// Whether a process has children that its program has not waited for.
    fn would_orphan(&self, pid: ProcessId) -> bool {
        let kin = &self.ahead.children;
        kin.unreaped_of(pid).any(|child| !kin.is_gone(child))
    }

    /// Whether anybody inside would learn at once that a process has ended which has children: whoever adopts them,
    /// or who asked for a signal at the end of its parent, or the session that it leads at a terminal. Otherwise
    /// whoever adopts them is outside, and only the children themselves can ask who their parent is.
    fn would_tell_orphans(&self, pid: ProcessId) -> bool {
        let options = self.world().options.load(Ordering::Relaxed);
        options & agent_abi::option::ENDS_OF_PARENTS_HEARD != 0 || leads_session_at_terminal(pid).unwrap_or(true)
    }

    /// Whether the parent of a process has ended on a guess: natively the process would have another one.
    pub(in crate::ahead) fn is_orphan(&self, pid: ProcessId) -> bool {
        let kin = &self.ahead.children;
        kin.parent(pid).is_some_and(|parent| kin.held_exits.contains_key(&parent))
    }

    fn hold_exit(&mut self, pid: ProcessId, status: i32, closes_unseen: bool) -> Result<()> {
        let parent = self.ahead.children.parent(pid);
        let exit = HeldExit { parent, status, reaped: false, for_good: false, closes_unseen };
        self.ahead.children.held_exits.insert(pid, exit);
        [Some(pid), parent].into_iter().flatten().for_each(|hearing| self.hears_from_us(hearing));
        self.ahead.children.apart.leave(pid);
        self.ahead.file_locks.is_shown_later();
        // Many stand like this, and nobody asks for what they have open.
        self.descriptors.forget(pid);
        self.ahead.core.exit(process(pid));
        self.ahead.report.held_exits += 1;
        self.ahead.changes += 1;
        self.carry_out()?;
        if let Some(parent) = parent.filter(|parent| self.tracees.contains_key(&parent.leader())) {
            if is_by_clone(self.exit_signal(pid)) != Some(true) {
                self.ahead.children.to_tell.entry(parent).or_default().push(pid);
            }
            self.interrupt_parent(parent);
        }
        Ok(())
    }

    /// A parent hears SIGCHLD about held exits at a place where it can be checkpointed (000, 6.7).
    pub(in crate::ahead) fn deliver_child_signal(
        &mut self,
        stopped: &Stopped,
        pid: ProcessId,
        call: Option<&Call>,
    ) -> Result<bool> {
        if stopped.tid() != pid.leader() {
            // Of several threads the first one is told.
            return Ok(false);
        }
        let Some((child, status)) = self.ahead.children.first_to_tell(pid) else { return Ok(false) };
        if !hears_of_children(pid) {
            self.tell_without_effect(pid)?;
            return Ok(false);
        }
        let observes = vec![Dependent::Process(process(child))];
        let needs = self.ahead.core.needs_checkpoint(process(pid), &observes, &[]);
        if needs {
            let wait = self.wait_for(pid, &observes, &[]);
            if !self.prepare_checkpoint(stopped, pid, call, wait)? {
                return Ok(false);
            }
        }
        self.note_told(pid, observes, (child, status))?;
        self.ahead.children.need_not_tell(pid, child);
        self.forget_silent_children(pid, stopped)?;
        self.ahead.children.silent.insert(child, Some(pid));
        self.ahead.children.announced.insert(child);
        self.send_in_name_of(pid, stopped, &end_of(child, status), false)?;
        Ok(true)
    }

    /// A wait is answered from what is known of children, or waits for one.
    pub(super) fn find_child(&mut self, stopped: &Stopped, call: &Call) -> Result<Decision> {
        if !Wanted::is_known(call) {
            // The kernel says what is wrong with it.
            return Ok(Decision::Go);
        }
        let wanted = Wanted::of(call);
        if wanted.is_for_group() && self.has_child_further_ahead(call.pid) {
            return Ok(Decision::Wait);
        }
        if self.ahead.is_speculative(call.pid) {
            if let Some(decision) = self.reap_unasked(stopped, call, &wanted)? {
                return Ok(decision);
            }
        }
        while let Some((child, status)) = self.held_end(call.pid, &wanted) {
            let sets = SignalSets::of(call.pid);
            let may_bury = may_hear_of_burials(&sets);
            if !self.leaves_no_zombies(stopped, call.pid, &sets)? {
                let tell = || tell_of_end(call, child, status);
                return self.reap_held_exit(stopped, call, (child, wanted.nowait), may_bury, tell);
            }
            // It gets no status: the kernel waits for them itself, and says that there are none once nobody is left.
            let is_waited_for = self.exit_signal(child) == Some(libc::SIGCHLD);
            if !is_waited_for {
                return Ok(Decision::Wait);
            }
            let reaped = self.reap_held_exit(stopped, call, (child, false), may_bury, || Ok(0))?;
            if matches!(reaped, Decision::Wait) {
                return Ok(Decision::Wait);
            }
        }
        let kin = &self.ahead.children;
        if !self.ahead.is_speculative(call.pid) {
            if kin.has_waited_for_the_dying(call.pid) {
                return Ok(Decision::Wait);
            }
            let objects = vec![Object::Children(call.pid)];
            return Ok(Decision::GoAndTell(UnderWay { objects, can_be_repeated: true, ..UnderWay::default() }));
        }
        let mut any = false;
        for child in kin.unreaped_of(call.pid) {
            if !self.is_wanted(child, &wanted) || kin.is_gone(child) {
                continue;
            }
            if kin.ended.contains(&child) {
                // Waiting for it in the kernel could not be undone.
                return Ok(Decision::Wait);
            }
            any = true;
        }
        if !any && self.knows_only_kernel(call.pid, &wanted) {
            // The kernel knows of a child that we do not.
            return Ok(Decision::Wait);
        }
        Ok(match (any, wanted.nohang) {
            (false, _) => Decision::Answer(tell_of_none(call, -i64::from(libc::ECHILD))?),
            // Whether one has stopped only the kernel knows.
            (true, true) if wanted.alive => Decision::Wait,
            (true, true) => Decision::Answer(tell_of_none(call, wanted.nobody)?),
            (true, false) => Decision::Wait,
        })
    }

    fn is_wanted(&self, child: ProcessId, wanted: &Wanted) -> bool {
        wanted.matches(child) && wanted.wants(|| is_by_clone(self.exit_signal(child)))
    }

    /// A child for this wait whose exit is held, and its status.
    fn held_end(&self, pid: ProcessId, wanted: &Wanted) -> Option<(ProcessId, i32)> {
        let kin = &self.ahead.children;
        kin.unreaped_of(pid)
            .filter(|&child| wanted.exited && self.is_wanted(child, wanted))
            .find_map(|child| kin.held_exits.get(&child).map(|exit| (child, exit.status)))
    }

    /// Whether the kernel has a child for this wait that was born to somebody else and orphaned, or that shares memory
    /// and so is no process to us.
    pub(super) fn knows_only_kernel(&self, pid: ProcessId, wanted: &Wanted) -> bool {
        let kin = &self.ahead.children;
        has_child_of_whom(procfs::children(pid.leader()), |child| {
            let is_ours = self.ahead.vessels.has(child);
            let is_waited_for = kin.waited_for_by(child).is_some();
            let is_known =
                kin.parent(child) == Some(pid) || self.ahead.unasked_ends.of(pid).any(|ended| ended == child);
            !is_ours && !is_waited_for && !is_known && wanted.matches(child)
        })
    }

    /// `nowait`: it only looks. `tell` gives the result, while the child is still there.
    fn reap_held_exit(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        (child, nowait): (ProcessId, bool),
        may_bury: bool,
        tell: impl FnOnce() -> Result<i64>,
    ) -> Result<Decision> {
        if self.ahead.children.to_tell.get(&call.pid).is_some_and(|untold| untold.contains(&child)) {
            // Nobody has waited for a child before the signal that tells of its end is there, and this one could not be
            // sent yet.
            return Ok(Decision::Wait);
        }
        let plan = Plan {
            class: Class::Tracked,
            observes: vec![Dependent::Process(process(child))],
            modifies: Vec::new(),
            can_be_repeated: true,
        };
        // One that only looks leaves the child to a wait that may be younger, and undone though this one is not.
        let buries = !nowait && may_bury && self.may_bury(call.pid, child);
        let is_told = self.ahead.children.is_silent(child);
        let intent = if nowait || buries { Intent::Nothing } else { Intent::Reap { child, is_told } };
        let modifies = vec![(Object::Children(call.pid), intent)];
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let is_speculative = self.ahead.is_speculative(call.pid);
        let result = tell()?;
        if buries {
            self.bury(call.pid, child)?;
        } else if !nowait {
            self.ahead.children.kin.reaped(child);
            if let Some(exit) = self.ahead.children.held_exits.get_mut(&child) {
                exit.reaped = true;
                // A process that depends on nothing is never rolled back to before this.
                exit.for_good = !is_speculative;
            }
            self.ahead.children.silent.insert(child, Some(call.pid));
            // Linux tells nevertheless; but one that was told already is not told twice.
            self.ahead.children.need_not_tell(call.pid, child);
            if !self.tracees.contains_key(&child.leader()) {
                self.ahead.children.ended(child);
            }
        }
        Ok(Decision::Answer(result))
    }

    /// Wait, in the name of a process, for children of which its program knows nothing (vessels) or has waited already
    /// (held exits).
    pub(in crate::ahead) fn reap_unseen(&mut self, stopped: &Stopped, pid: ProcessId) -> Result<()> {
        if self.is_without_agent(stopped.tid()) {
            // There is nothing of ours in it yet that could make the calls.
            return Ok(());
        }
        let unreaped = self.ahead.vessels.take_unreaped(pid);
        if !unreaped.is_empty() {
            let gate = self.image.header.gate_program;
            ToReap::all(unreaped, stopped, gate, self.has_company(pid.leader())).or_else(unless_gone)?;
            self.forget_silent_children(pid, stopped)?;
        }
        match self.ahead.children.to_reap.remove(&pid) {
            Some(dead) => {
                self.wait_in(stopped, pid, &dead)?;
                // Left in its queue, the kernel's word of them would stop it, and take it back to before its next call.
                self.forget_silent_children(pid, stopped)?;
                if !matches!(stopped.stop(), Stop::Signal(_)) {
                    // Nor does it stand still for that word. Behind ours the kernel's is left in the queue.
                    let kin = &mut self.ahead.children;
                    kin.silent.retain(|child, _| !dead.contains(child) || kin.announced.contains(child));
                }
                self.hears_from_kernel(pid);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(in crate::ahead) fn wait_in(&mut self, stopped: &Stopped, pid: ProcessId, dead: &[ProcessId]) -> Result<()> {
        let mut remote = self.remote_calls(stopped)?;
        let options = (libc::__WALL | libc::WNOHANG) as u64;
        for &child in dead {
            remote.call(libc::SYS_wait4, &[child.as_raw() as u64, 0, options])?;
        }
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        Ok(())
    }

    /// The end of a process that could not reap its vessels: a program may have adopted them.
    pub(in crate::ahead) fn reparent(&mut self, unreaped: Vec<ToReap>) {
        for dead in unreaped {
            let parent = Status::of(dead.vessel()).and_then(|of| of.parent()).ok().flatten();
            let Some(parent) = parent.filter(|parent| self.tracees.contains_key(&parent.leader())) else {
                continue;
            };
            self.ahead.vessels.are_unreaped([dead.reparented_to(parent)]);
        }
    }

    /// Whether a process other than `pid` has still to wait in the kernel for a child for which its program has waited.
    /// It is made to, if it can be.
    pub(in crate::ahead) fn is_reaping_due(&self, pid: ProcessId) -> bool {
        let can_stop = |parent: &ProcessId| {
            let is_busy = self.ahead.under_way.cannot_be_repeated(parent.leader());
            *parent != pid
                && self.tracees.contains_key(&parent.leader())
                && !is_busy
                && !self.is_without_agent(parent.leader())
        };
        let mut is_due = false;
        for &parent in self.ahead.children.to_reap.keys().filter(|parent| can_stop(parent)) {
            is_due = true;
            if !self.is_kept(parent, parent.leader()) {
                let _ = tracee::interrupt(parent.leader());
            }
        }
        is_due
    }
}

fn unless_gone(error: CheckpointError) -> Result<()> {
    match error {
        CheckpointError::Trace(error) => Err(error),
        // A zombie more, until the process ends.
        _ => Ok(()),
    }
}
