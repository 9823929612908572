//! Changes that need no entry of their own in an undo log
//! ([0130](../../../../../docs/decisions/0130-changes-on-permits.md)).
//!
//! The core cuts a log only at an entry that added a dependency (000, 6.1). If a call adds none to anything, and the
//! log has an entry that puts back the whole of its object, made when or after the last dependency was added, then the
//! object is put back to the same state with and without an entry for the call. What is in a pipe or socket is kept as
//! a whole by each transfer, but not by a hang-up or a change of flags. A file in memory is kept as a whole when it is
//! written to for the second time and nothing has changed, if it is small; a file that the guess itself has made goes
//! as a whole. The next such calls of the process are made on a permit.

use crate::ahead::calls::plan::{is_of_pipefs, Plan};
use crate::ahead::filesystems::memory::inverse::Change;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::{option, permitted};
use speculation::DependencySet;
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use syscall_table::nr;
use syscall_table::Op;

/// Larger files are kept piece by piece.
const WHOLE_LEN_MAX: u64 = 1 << 20;

/// All of a file's contents.
const WHOLE: Range<u64> = 0..u64::MAX;

/// What undoes a change is kept already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covered {
    /// It puts something into a pipe or socket, or takes something out.
    Exchange,
    /// It writes to a file.
    Write,
    /// It changes something else of a file that the guess has made. The next one is asked about again.
    Once,
}

/// Objects that an entry of their log keeps as a whole, and what they depended on when it had been added.
#[derive(Debug, Default)]
pub(in crate::ahead) struct WholeObjects(HashMap<Object, DependencySet>);

impl WholeObjects {
    /// Nothing that was kept is known to be there any more.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// The object depends on nothing any more, and has no log.
    pub fn resolved(&mut self, object: &Object) {
        self.0.remove(object);
    }

    /// Whether what was kept puts the object back wherever its log is cut: it came to depend on nothing since.
    fn has(&self, object: &Object, depends_on: &DependencySet) -> bool {
        self.0.get(object).is_some_and(|then| depends_on.is_subset(then))
    }
}

/// The objects of which an entry for such a change keeps the whole.
pub(in crate::ahead) fn kept_whole(modifies: &[(Object, Intent)]) -> Vec<Object> {
    let is_whole = |intent: &Intent| match intent {
        Intent::Stream(_) | Intent::Queue(_) => true,
        Intent::Memory(Change::Contents { range, .. }) => *range == WHOLE,
        _ => false,
    };
    modifies.iter().filter(|(_, intent)| is_whole(intent)).map(|(object, _)| object.clone()).collect()
}

impl Supervisor {
    /// The changes of a call that have to be undone by entries of its own.
    pub(in crate::ahead) fn without_covered_changes(
        &mut self,
        call: &Call,
        plan: &Plan,
        mut modifies: Vec<(Object, Intent)>,
    ) -> (Vec<(Object, Intent)>, Option<Covered>) {
        let keys: Vec<Object> = modifies.iter().map(|(object, _)| object.clone()).collect();
        if self.ahead.options.asks_always || !self.ahead.core.adds_nothing(process(call.pid), &plan.observes, &keys) {
            return (modifies, None);
        }
        let covered = match &mut modifies[..] {
            [(object, intent @ (Intent::Stream(_) | Intent::Queue(_)))] => {
                let is_whole = plan.can_be_repeated || !takes(call.frame.nr);
                (is_whole && is_exchange(call.frame.nr)).then(|| self.cover_exchange(object, intent))
            }
            [(file @ Object::File(..), intent)] if call.frame.nr == nr::pwrite64 => self.cover_file(file, intent),
            [(file @ Object::File(..), intent), (Object::Position(..), _)] if call.frame.nr == nr::write => {
                self.cover_file(file, intent)
            }
            [(object, Intent::Nothing)] if is_young_stream(object) && is_exchange(call.frame.nr) => {
                (plan.can_be_repeated || !takes(call.frame.nr)).then_some(Covered::Exchange)
            }
            [(Object::File(..), Intent::Nothing)] if call.frame.nr == nr::write => Some(Covered::Write),
            [(Object::File(..), Intent::Nothing)] if is_made_in_one(call.frame.nr) => Some(Covered::Once),
            _ => None,
        };
        if covered.is_some() {
            // All descriptions of a file have one object for their positions: of this one nothing may be kept yet.
            modifies.retain(|(_, intent)| !matches!(intent, Intent::Nothing));
        }
        (modifies, covered)
    }

    /// The logs of these objects have got an entry that keeps the whole.
    pub(in crate::ahead) fn note_kept_whole(&mut self, objects: Vec<Object>) {
        for object in objects {
            let depends_on = self.ahead.core.dependencies_of_object(&object);
            if !depends_on.is_empty() {
                self.ahead.whole_objects.0.insert(object, depends_on.clone());
            }
        }
    }

    /// What is in a pipe or socket is kept, if it is not yet: by this change.
    fn cover_exchange(&self, object: &Object, intent: &mut Intent) -> Covered {
        if self.is_kept_whole(object) {
            *intent = Intent::Nothing;
        }
        Covered::Exchange
    }

    fn is_kept_whole(&self, object: &Object) -> bool {
        let depends_on = self.ahead.core.dependencies_of_object(object);
        depends_on.is_empty() || self.ahead.whole_objects.has(object, depends_on)
    }

    /// The file is kept as a whole, if it is not yet: by this change, which is none of nothing else then.
    fn cover_file(&mut self, file: &Object, intent: &mut Intent) -> Option<Covered> {
        let Intent::Memory(Change::Contents { file: open, range }) = intent else {
            // It goes with the guess that has made it.
            return matches!(intent, Intent::Nothing).then_some(Covered::Write);
        };
        if self.is_kept_whole(file) {
            *intent = Intent::Nothing;
            return Some(Covered::Write);
        }
        let size = rustix::fs::fstat(&*open).map_or(u64::MAX, |stat| stat.st_size as u64);
        if size > WHOLE_LEN_MAX {
            return None;
        }
        *range = WHOLE;
        Some(Covered::Write)
    }

    /// Whether the next calls like this one, which is covered, may be made without a question.
    pub(in crate::ahead) fn may_change_on_permit(&mut self, call: &Call, covered: Covered) -> bool {
        let options = self.world().options.load(Ordering::Relaxed);
        options & option::READINESS_SIGNALLED == 0
            && match covered {
                // A thread that sleeps there would keep the others from closing anything.
                Covered::Exchange => has_no_effect_before_its_end(call) && !self.has_company(call.tid),
                Covered::Write => self.has_room_behind(call),
                // It is no call of a kind that has permits.
                Covered::Once => return self.may_be_left_alone(call),
            }
            && self.may_have_any_permit(call.tid, call.pid, permitted::kind(call.frame.nr).unwrap_or(0))
            && !self.ahead.waiting.iter().any(|parked| waits_for_readiness(&parked.call))
    }
}

impl Supervisor {
    /// Whether what a call writes to may grow, if a guess has made it.
    fn has_room_behind(&mut self, call: &Call) -> bool {
        let file = self.new_file_behind(call, call.frame.args[0] as i32);
        file.is_none_or(|(file, _)| self.has_room_for_more(&file.fd))
    }

    /// Whether a file that a guess has made, which takes room on a disk, may grow by as much as each process may write
    /// before it asks again.
    pub(in crate::ahead) fn has_room_for_more(&self, file: &OwnedFd) -> bool {
        let processes = self.tracees.len() as u64;
        self.has_room_for(file, permitted::WRITTEN_LEN.saturating_mul(processes))
    }
}

/// Whether what nothing is kept of is a pipe or socket that goes with those who have it open (`objects::young`).
fn is_young_stream(object: &Object) -> bool {
    match object {
        Object::Socket(_) => true,
        // A FIFO is looked at each time.
        Object::Pipe(dev, _) => is_of_pipefs(*dev),
        _ => false,
    }
}

/// Whether a call changes a file by its descriptor, besides its contents, without waiting for anybody.
fn is_made_in_one(nr: u64) -> bool {
    matches!(nr, nr::fchmod | nr::fchown | nr::utimensat | nr::ftruncate)
}

fn is_exchange(nr: u64) -> bool {
    takes(nr) || matches!(nr, nr::write | nr::sendto)
}

fn takes(nr: u64) -> bool {
    matches!(nr, nr::read | nr::readv | nr::recvfrom)
}

/// Whether a call can be taken back as long as it waits: it has taken or put in nothing (pipe(7), `PIPE_BUF`).
fn has_no_effect_before_its_end(call: &Call) -> bool {
    let [_, _, len, flags, address, _] = call.frame.args;
    let is_plain = |allowed: i32| flags as i32 & !allowed == 0 && address == 0;
    match call.frame.nr {
        nr::read | nr::readv => true,
        nr::write => (1..=permitted::ATOMIC_LEN).contains(&len),
        nr::sendto => (1..=permitted::ATOMIC_LEN).contains(&len) && is_plain(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
        nr::recvfrom => is_plain(libc::MSG_DONTWAIT),
        _ => false,
    }
}

/// Whether a parked call is looked at again when something was put in or taken out.
pub(in crate::ahead) fn waits_for_readiness(call: &Call) -> bool {
    !matches!(syscall_table::op(call.frame.nr), Some(Op::Wait | Op::Exit | Op::ExitGroup) | None)
}
