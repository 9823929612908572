//! What the supervisor does when it is asked, and when guesses are made, come true or fail. It is one thread, and never
//! waits here: where it would, it is told for whom.

use crate::object::Owner;
use crate::planted::{planted, Fault};
use crate::{Epoch, Epochs, Object, Ordering, Process, Thread, Want};

/// Why a step cannot be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// A thread has marked this slot itself, and will unmark it in a moment.
    Marked(usize),
    /// This thread works on what would change: it has to be interrupted.
    Working(usize),
}

/// A thread that asks. It and all others of its process are stopped.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Its process.
    pub process: &'a Process,
    /// Its number.
    pub thread: usize,
    /// The numbers of the other threads of its process.
    pub siblings: &'a [usize],
}

impl Asker<'_> {
    /// Its process's epoch may change only if no sibling was stopped in the middle of a call.
    fn quiet(&self, threads: &[Thread]) -> Result<(), Busy> {
        match self.siblings.iter().find(|&&sibling| threads[sibling].works()) {
            None => Ok(()),
            Some(&sibling) => Err(Busy::Working(sibling)),
        }
    }
}

impl Epochs {
    /// A guess becomes a member of the open epoch, on which its process then depends. `checkpoint` is called first if
    /// it did not before.
    pub fn guess(&self, asker: Asker, threads: &[Thread], checkpoint: impl FnOnce()) -> Result<Epoch, Busy> {
        let epoch = self.current.load(Ordering::Relaxed).max(self.committed() + 1);
        if asker.process.epoch() < epoch {
            asker.quiet(threads)?;
            checkpoint();
            asker.process.set_epoch(epoch);
        }
        self.current.store(epoch, Ordering::Relaxed);
        Ok(epoch)
    }

    /// The open epoch takes no more members: the next guess opens another one.
    pub fn seal(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    /// All members of all epochs up to this one came true.
    pub fn commit(&self, epoch: Epoch) {
        self.committed.fetch_max(epoch, Ordering::Release);
    }

    /// A call that asked may be made. Its process comes to depend on all that the objects depend on: if that is more,
    /// `checkpoint` is called first. What the call modifies comes to depend on what the process depends on: `keep` is
    /// called for each slot for which that is more. The objects are published for the asker.
    pub fn grant(
        &self,
        asker: Asker,
        threads: &[Thread],
        objects: &[Object],
        wanted: &[Want],
        checkpoint: impl FnOnce(),
        mut keep: impl FnMut(usize),
    ) -> Result<(), Busy> {
        let unmark = |wants: &[Want]| {
            distinct(wants).for_each(|want| objects[want.slot].unmark(Owner::Supervisor, None));
        };
        for (at, want) in distinct(wanted).enumerate() {
            if let Err(busy) = mark(objects, want.slot, threads, Some(asker.thread)) {
                distinct(wanted).take(at).for_each(|want| objects[want.slot].unmark(Owner::Supervisor, None));
                return Err(busy);
            }
        }
        let mine = self.open_part(asker.process.epoch());
        let theirs = wanted.iter().map(|want| self.open_part(objects[want.slot].epoch())).max().unwrap_or(0);
        if theirs > mine {
            if let Err(busy) = asker.quiet(threads) {
                unmark(wanted);
                return Err(busy);
            }
            if !planted(Fault::NoCheckpoint) {
                checkpoint();
            }
            asker.process.set_epoch(theirs);
        }
        let epoch = mine.max(theirs);
        if !planted(Fault::GrantNotPublished) {
            threads[asker.thread].publish(distinct(wanted).map(|want| want.slot));
        }
        for want in distinct(wanted) {
            let object = &objects[want.slot];
            let first = want.modifies && self.open_part(object.epoch()) != epoch;
            if first {
                keep(want.slot);
            }
            object.unmark(Owner::Supervisor, first.then_some(epoch));
        }
        Ok(())
    }

    /// Gives a slot to another object, which depends on nothing.
    pub fn give_slot(&self, objects: &[Object], slot: usize, key: u64, threads: &[Thread]) -> Result<(), Busy> {
        mark(objects, slot, threads, None)?;
        objects[slot].reset(key);
        objects[slot].unmark(Owner::Supervisor, None);
        Ok(())
    }

    /// Marks an object that depends on epoch `failed` or a later one, so that nobody begins to work on it: its contents
    /// may be put back until [`Epochs::put_back`]. False, and no mark, if it depends on nothing that failed.
    pub fn begin_to_put_back(
        &self,
        objects: &[Object],
        slot: usize,
        failed: Epoch,
        threads: &[Thread],
    ) -> Result<bool, Busy> {
        mark(objects, slot, if planted(Fault::PutBackUnderWork) { &[] } else { threads }, None)?;
        let failed = self.open_part(objects[slot].epoch()) >= failed;
        if !failed {
            objects[slot].unmark(Owner::Supervisor, None);
        }
        Ok(failed)
    }

    /// The object is again what it was when it depended on `before`.
    pub fn put_back(&self, objects: &[Object], slot: usize, before: Epoch) {
        objects[slot].unmark(Owner::Supervisor, Some(before));
    }

    /// A process whose threads are all stopped with nothing published is again what it was when it depended on
    /// `before`.
    pub fn put_process_back(&self, process: &Process, before: Epoch) {
        process.set_epoch(before);
    }

    /// A thread that has ended, or is taken back to before its call, works on nothing any more, and has marked nothing.
    pub fn forget_call(&self, objects: &[Object], threads: &[Thread], number: usize) {
        let thread = &threads[number];
        for (slot, object) in objects.iter().enumerate() {
            if thread.works_on(slot) && object.is_marked_by(Owner::Thread(number)) {
                object.unmark(Owner::Thread(number), None);
            }
        }
        thread.clear();
    }
}

/// Each slot once, modified if one of its mentions says so.
fn distinct(wanted: &[Want]) -> impl Iterator<Item = Want> + '_ {
    wanted.iter().enumerate().filter(|(at, want)| wanted[..*at].iter().all(|earlier| earlier.slot != want.slot)).map(
        |(at, want)| {
            let modifies = wanted[at..].iter().any(|other| other.slot == want.slot && other.modifies);
            Want { modifies, ..*want }
        },
    )
}

/// Marks an object, if nobody but `except` works on it.
fn mark(objects: &[Object], slot: usize, threads: &[Thread], except: Option<usize>) -> Result<(), Busy> {
    let object = &objects[slot];
    if !object.mark(Owner::Supervisor) {
        return Err(Busy::Marked(slot));
    }
    let mut others = threads.iter().enumerate().filter(|(number, _)| Some(*number) != except);
    match others.find(|(_, thread)| thread.works_on(slot) && !planted(Fault::WorkIgnored)) {
        None => Ok(()),
        Some((number, _)) => {
            object.unmark(Owner::Supervisor, None);
            Err(Busy::Working(number))
        }
    }
}
