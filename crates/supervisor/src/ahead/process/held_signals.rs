//! Signals that were taken from a thread's stop and can be heard only when their receiver depends on nothing: they end
//! it, stop it, tell of a child, or came while it was made to do something for us.
//!
//! **Invariant:** who is named here has at least one, and is alive: a number that is given to another process means
//! that one.

use procfs::ProcessId;
use std::collections::HashMap;
use tracee::SignalInfo;

/// By receiver, in the order in which they came.
#[derive(Debug, Default)]
pub(in crate::ahead) struct HeldSignals(HashMap<ProcessId, Vec<SignalInfo>>);

impl HeldSignals {
    /// One more.
    pub fn hold(&mut self, receiver: ProcessId, info: SignalInfo) {
        self.0.entry(receiver).or_default().push(info);
    }

    /// The receiver may hear them now.
    pub fn take(&mut self, receiver: ProcessId) -> Vec<SignalInfo> {
        self.0.remove(&receiver).unwrap_or_default()
    }

    /// The receiver has ended, or never was.
    pub fn forget(&mut self, receiver: ProcessId) {
        self.0.remove(&receiver);
    }

    /// One like this waits in the kernel again: the same number, from the same sender.
    pub fn forget_one_like(&mut self, receiver: ProcessId, pending: &SignalInfo) {
        let Some(held) = self.0.get_mut(&receiver) else { return };
        let is_same = |info: &SignalInfo| info.number() == pending.number() && info.process() == pending.process();
        if let Some(at) = held.iter().position(is_same) {
            held.remove(at);
        }
        if held.is_empty() {
            self.forget(receiver);
        }
    }

    /// What a receiver is to hear.
    pub fn of(&self, receiver: ProcessId) -> &[SignalInfo] {
        self.0.get(&receiver).map_or(&[], Vec::as_slice)
    }

    /// Whether a receiver is to hear SIGCHLD about this process.
    pub fn tells_of(&self, receiver: ProcessId, child: ProcessId) -> bool {
        self.of(receiver).iter().any(|info| info.number() == libc::SIGCHLD && info.process() == child)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by receiver, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessId, &[SignalInfo])> {
        self.0.iter().map(|(&receiver, held)| (receiver, held.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_told_of_by_its_own_signal() {
        let (receiver, child, other) = (ProcessId::from_raw(10), ProcessId::from_raw(11), ProcessId::from_raw(12));
        let mut held = HeldSignals::default();
        held.hold(receiver, SignalInfo::sent_by(child, 0, libc::SIGTERM));
        assert!(!held.tells_of(receiver, child));
        held.hold(receiver, SignalInfo::child_ended(child, 0, 0));
        assert!(held.tells_of(receiver, child) && !held.tells_of(receiver, other) && !held.tells_of(other, child));
    }

    #[test]
    fn one_that_waits_in_the_kernel_again_is_not_held_twice() {
        let (receiver, sender, other) = (ProcessId::from_raw(10), ProcessId::from_raw(11), ProcessId::from_raw(12));
        let mut held = HeldSignals::default();
        let (from_sender, from_other) =
            (SignalInfo::sent_by(sender, 0, libc::SIGTERM), SignalInfo::sent_by(other, 0, libc::SIGTERM));
        [from_sender, from_other, from_sender].into_iter().for_each(|info| held.hold(receiver, info));
        held.forget_one_like(receiver, &from_sender);
        assert_eq!(held.of(receiver).iter().map(SignalInfo::process).collect::<Vec<_>>(), [other, sender]);
        held.forget_one_like(receiver, &from_sender);
        held.forget_one_like(receiver, &from_sender);
        held.forget_one_like(receiver, &from_other);
        assert!(held.is_empty() && held.of(receiver).is_empty() && held.take(receiver).is_empty());
    }
}
