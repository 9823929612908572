//! What has been opened by the answer to a call: the next calls on the descriptor need no question
//! ([0261](../../../../../docs/decisions/0261-what-an-answer-opens-is-marked.md)).
//!
//! A file that a guess has made is opened by the supervisor, as the kernel does not find it. The descriptor is in no
//! checkpoint, and goes with the guess.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::exchange::waits_for_readiness;
use crate::ahead::filesystems::disk::new_files::O_ACCMODE;
use crate::ahead::filesystems::open::open_flags;
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::{ahead, option, permitted};
use rustix::fs::Stat;
use std::sync::atomic::Ordering;
use syscall_table::nr;

/// A new file that has been opened on a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    permit: u64,
    /// It may be written to without a question, too.
    may_be_written: bool,
}

impl Opened {
    /// What the agent is told.
    pub fn answer(self) -> i64 {
        let kind = if self.may_be_written { ahead::OPENED_TO_WRITE } else { ahead::OPENED };
        kind | (self.permit as i64) << ahead::PERMIT_SHIFT
    }
}

impl Supervisor {
    /// What was decided of a call, perhaps with a permit for the descriptor of this file that its answer is.
    pub(in crate::ahead) fn with_mark(&mut self, call: &Call, file: Option<&Stat>, decision: Decision) -> Decision {
        let Decision::Answer(fd @ 0..) = decision else { return decision };
        let opens = matches!(call.frame.nr, nr::open | nr::openat | nr::creat);
        let marked = file.filter(|_| opens).and_then(|file| self.mark_of(call, file));
        marked.map_or(decision, |opened| Decision::Opened(fd, opened))
    }

    fn mark_of(&mut self, call: &Call, file: &Stat) -> Option<Opened> {
        // Another thread may close what it does not know yet.
        let is_alone = !self.has_company(call.tid);
        let permit = self.permit_of(call.tid).filter(|_| is_alone && self.is_plainly_new(file))?;
        if !self.may_have_any_permit(call.tid, call.pid, permitted::READ) {
            return None;
        }
        Some(Opened { permit, may_be_written: self.may_be_written(call, file) })
    }

    /// Whether whatever is written there goes with the file, as is asked for a write
    /// ([`exchange`](crate::ahead::calls::exchange)).
    fn may_be_written(&mut self, call: &Call, file: &Stat) -> bool {
        let object = Object::File(file.st_dev, file.st_ino);
        let is_readiness_heard = self.world().options.load(Ordering::Relaxed) & option::READINESS_SIGNALLED != 0;
        open_flags(call) & O_ACCMODE != 0
            && !is_readiness_heard
            && self.may_have_any_permit(call.tid, call.pid, permitted::WRITE)
            && self.ahead.core.adds_nothing(process(call.pid), &[], std::slice::from_ref(&object))
            && self.is_as_certain_as_its_file(call.pid, &object, (file.st_dev, file.st_ino))
            && !self.ahead.waiting.iter().any(|parked| waits_for_readiness(&parked.call))
            && self.ahead.new_files.file_of(file).is_some_and(|file| self.has_room_for_more(&file))
    }
}
