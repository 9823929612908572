//! What a thread does before a call and after it.

use crate::object::Owner;
use crate::planted::{planted, Fault};
use crate::{Epoch, Epochs, Object, Process, Thread, OBJECTS_MAX};

/// An object that a call touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Its slot.
    pub slot: usize,
    /// Which object the caller means.
    pub key: u64,
    /// Whether the call changes it, and not only looks at it.
    pub modifies: bool,
}

/// Why the supervisor has to be asked. Nothing is published then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The supervisor wants that of this process.
    Process,
    /// The call touches more objects than can be published.
    TooMany,
    /// The slot has another object now.
    OtherObject,
    /// Somebody changes the object's epoch, or it has to be asked about.
    Unsettled,
    /// The object depends on what the process does not depend on: that takes a checkpoint.
    Gain,
    /// It would be modified for the first time in an epoch, and somebody else works on it.
    InUse,
    /// What undoes the modification could not be kept.
    NotKept,
}

impl Epochs {
    /// Whether a call may be made by itself. If so, the objects are published until [`Thread::clear`], and `keep` was
    /// called for each slot that the call modifies for the first time in the process's epoch: it keeps what was there,
    /// and says whether it could.
    #[inline]
    pub fn enter(
        &self,
        process: &Process,
        threads: &[Thread],
        own: usize,
        objects: &[Object],
        wanted: &[Want],
        mut keep: impl FnMut(usize) -> bool,
    ) -> Result<(), Ask> {
        if process.asks() {
            return Err(Ask::Process);
        }
        if wanted.len() > OBJECTS_MAX {
            return Err(Ask::TooMany);
        }
        let thread = &threads[own];
        let publish = || thread.publish(wanted.iter().map(|want| want.slot));
        if !planted(Fault::NotPublished) && !planted(Fault::PublishedLate) {
            publish();
        }
        let result = self.look(process, objects, wanted).and_then(|()| {
            let epoch = self.open_part(process.epoch());
            for want in wanted.iter().filter(|want| want.modifies) {
                let object = &objects[want.slot];
                // Marked since the look: whoever marked it may be about to leave it as it is.
                let had = match object.settled() {
                    None if planted(Fault::UnsettledTouched) => Epoch::MAX,
                    had => had.ok_or(Ask::Unsettled)?,
                };
                if self.open_part(had) != epoch {
                    first_touch(object, want.slot, epoch, threads, own, &mut keep)?;
                }
            }
            Ok(())
        });
        if planted(Fault::PublishedLate) {
            publish();
        }
        if result.is_err() {
            thread.clear();
        }
        result
    }

    /// Whether the process depends on all that the objects depend on.
    #[inline(always)]
    fn look(&self, process: &Process, objects: &[Object], wanted: &[Want]) -> Result<(), Ask> {
        let epoch = process.epoch();
        for want in wanted {
            let object = &objects[want.slot];
            let theirs = object.settled().ok_or(Ask::Unsettled)?;
            if object.key() != want.key {
                return Err(Ask::OtherObject);
            }
            if theirs > epoch && self.open_part(theirs) != 0 {
                return Err(Ask::Gain);
            }
        }
        Ok(())
    }
}

/// An object is modified for the first time in an epoch: what was there is kept, then its epoch is raised. The caller
/// has published it.
fn first_touch(
    object: &Object,
    slot: usize,
    epoch: Epoch,
    threads: &[Thread],
    own: usize,
    keep: &mut impl FnMut(usize) -> bool,
) -> Result<(), Ask> {
    let mine = Owner::Thread(own);
    let in_use = || {
        let mut others = threads.iter().enumerate().filter(|(number, _)| *number != own);
        !planted(Fault::OthersIgnored) && others.any(|(_, other)| other.works_on(slot))
    };
    let early = planted(Fault::OthersFirst).then(&in_use);
    if !object.mark(mine) {
        return Err(Ask::Unsettled);
    }
    let problem = if early.unwrap_or_else(in_use) {
        Some(Ask::InUse)
    } else if planted(Fault::NothingKept) || keep(slot) {
        None
    } else {
        Some(Ask::NotKept)
    };
    object.unmark(mine, problem.is_none().then_some(epoch));
    problem.map_or(Ok(()), Err)
}
