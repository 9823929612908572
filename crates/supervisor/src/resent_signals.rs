//! Signals that are sent again in another form.
//!
//! A signal that was taken out of a thread's queue goes back there. Where the kernel lets nobody but its receiver say
//! what it says (that a child has ended, who sent it with `kill`), another one is sent in its place, with a number by
//! which its original is found when it arrives.
//!
//! The kernel keeps one of each standard signal only, and drops what waits when it is ignored. So an original may be
//! kept here whose signal never arrives. It is found by its own number, not by that of the signal, so that it is taken
//! for no other one. It is forgotten as soon as its thread stops for a signal.

use procfs::ThreadId;
use std::collections::HashMap;
use std::num::NonZeroU64;
use tracee::{SignalInfo, Stopped};

/// A signal as it was before another one was sent in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Original {
    id: NonZeroU64,
    pub info: SignalInfo,
    /// Whether we tell of the end of a child by it, in the place of the kernel.
    pub is_told: bool,
}

/// The signals that were sent again in another form, by thread.
#[derive(Default)]
pub(crate) struct ResentSignals {
    last: u64,
    of: HashMap<ThreadId, Vec<Original>>,
}

impl ResentSignals {
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// What is to be sent to a thread in the place of a signal. `is_told`: see [`Original`].
    pub(crate) fn in_place_of(&mut self, tid: ThreadId, info: SignalInfo, is_told: bool) -> SignalInfo {
        self.last += 1;
        let id = NonZeroU64::new(self.last).expect("fewer than 2^64 signals");
        self.of.entry(tid).or_default().push(Original { id, info, is_told });
        info.in_its_place(id)
    }

    /// What a signal was that a thread has got.
    pub(crate) fn take(&mut self, tid: ThreadId, info: SignalInfo) -> SignalInfo {
        let mut info = info;
        // What was sent again may have been sent again.
        while let Some(was) = self.remove(tid, &info) {
            info = was;
        }
        info
    }

    fn remove(&mut self, tid: ThreadId, info: &SignalInfo) -> Option<SignalInfo> {
        let id = info.is_in_place_of()?;
        let originals = self.of.get_mut(&tid)?;
        let at = originals.iter().position(|original| original.id == id)?;
        let was = originals.remove(at);
        if originals.is_empty() {
            self.of.remove(&tid);
        }
        Some(was.info)
    }

    /// What was sent again as this signal, which waits for a thread.
    pub(crate) fn original(&self, tid: ThreadId, info: &SignalInfo) -> Option<Original> {
        find(self.of.get(&tid), info)
    }

    /// A thread has stopped, and what was taken out of its queue is known: originals whose signals do not wait there
    /// have been dropped by the kernel.
    pub(crate) fn forget_dropped(&mut self, stopped: &Stopped) {
        let Some(originals) = self.of.get_mut(&stopped.tid()) else { return };
        // Who has ended meanwhile is forgotten as a whole.
        let Ok(pending) = stopped.pending_signals(false) else { return };
        originals.retain(|original| pending.iter().any(|info| info.is_in_place_of() == Some(original.id)));
        if originals.is_empty() {
            self.of.remove(&stopped.tid());
        }
    }

    /// Those of all threads.
    pub(crate) fn originals(&self) -> HashMap<ThreadId, Vec<Original>> {
        self.of.clone()
    }

    /// A signal waits again for a thread that has been put back to a checkpoint, which had these originals. Returns the
    /// one of this signal.
    pub(crate) fn waits_again(
        &mut self,
        tid: ThreadId,
        info: &SignalInfo,
        kept: Option<&Vec<Original>>,
    ) -> Option<Original> {
        let was = find(kept, info)?;
        let originals = self.of.entry(tid).or_default();
        if originals.iter().all(|original| original.id != was.id) {
            originals.push(was);
        }
        Some(was)
    }

    /// The thread has ended.
    pub(crate) fn forget(&mut self, tid: ThreadId) {
        self.of.remove(&tid);
    }
}

/// The original of a signal among these.
pub(crate) fn find(originals: Option<&Vec<Original>>, info: &SignalInfo) -> Option<Original> {
    let id = info.is_in_place_of()?;
    originals?.iter().find(|original| original.id == id).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::ProcessId;

    const THREAD: ThreadId = ThreadId::from_raw(10);

    fn of_child(child: i32) -> SignalInfo {
        SignalInfo::child_ended(ProcessId::from_raw(child), 0, 0)
    }

    #[test]
    fn a_signal_that_the_kernel_dropped_is_taken_for_no_other_one() {
        let mut resent = ResentSignals::default();
        let first = resent.in_place_of(THREAD, of_child(21), false);
        // The kernel keeps one of them.
        let _dropped = resent.in_place_of(THREAD, of_child(22), false);
        assert_eq!(resent.take(THREAD, first).process(), ProcessId::from_raw(21));
        let third = resent.in_place_of(THREAD, of_child(23), false);
        assert_eq!(resent.take(THREAD, third).process(), ProcessId::from_raw(23));
        // It has been taken already; what it says in the place of the original is all that is known.
        assert_eq!(resent.take(THREAD, third).code(), third.code());
    }

    #[test]
    fn what_was_sent_again_twice_is_what_it_was_at_first() {
        let mut resent = ResentSignals::default();
        let once = resent.in_place_of(THREAD, of_child(21), false);
        let twice = resent.in_place_of(THREAD, once, false);
        assert_eq!(resent.take(THREAD, twice).code(), libc::CLD_EXITED);
        assert!(resent.is_empty());
    }

    #[test]
    fn a_checkpoint_has_the_originals_of_its_signals() {
        let mut resent = ResentSignals::default();
        let info = resent.in_place_of(THREAD, of_child(21), true);
        let kept = resent.originals();
        resent.take(THREAD, info);
        for _ in 0..2 {
            let was = resent.waits_again(THREAD, &info, kept.get(&THREAD)).unwrap();
            assert!(was.is_told);
        }
        assert_eq!(resent.take(THREAD, info).process(), ProcessId::from_raw(21));
        assert!(resent.is_empty());
    }
}
