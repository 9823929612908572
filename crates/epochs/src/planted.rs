//! Errors that the models plant into the protocol, to show that they find them. Nothing of this is in a normal build.

/// An error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A thread does not publish what it works on.
    NotPublished,
    /// A thread publishes after its look at the objects.
    PublishedLate,
    /// A publication is an ordinary store: it may be seen after the look.
    PublishedRelaxed,
    /// A look at a thread sees only the first object that it published.
    OnlyFirstSeen,
    /// A thread does not care whether an object is marked.
    MarkIgnored,
    /// A thread takes an object that somebody marks for one that it modifies for the first time.
    UnsettledTouched,
    /// A thread that modifies for the first time does not look at the others.
    OthersIgnored,
    /// It looks at the others before it marks the object.
    OthersFirst,
    /// It keeps nothing.
    NothingKept,
    /// The supervisor does not look at what is published before it changes an object's epoch.
    WorkIgnored,
    /// A granted call is not published for its caller.
    GrantNotPublished,
    /// A process comes to depend on more without a checkpoint.
    NoCheckpoint,
    /// An object that failed becomes what it was while somebody works on it.
    PutBackUnderWork,
    /// A thread does not publish that it works on a permit.
    WorkNotPublished,
    /// It publishes that with an ordinary store.
    WorkRelaxed,
    /// It looks whether its permit holds before it publishes that it works.
    PermitLookedAtFirst,
    /// The supervisor revokes the permits for young pipes before it ends their epoch.
    EpochEndedLast,
    /// It publishes that all that it does is about a stream.
    StreamPublished,
    /// Permits are revoked with an ordinary store.
    RevokedRelaxed,
    /// The supervisor does not look who works before it goes on.
    WorkersIgnored,
    /// It looks who works before it revokes.
    WorkersLookedAtFirst,
    /// It keeps what is there before it revokes: a change on a permit is not in what a failure puts back.
    #[cfg(loom)]
    KeptBeforeRevoked,
    /// A thread that sleeps in its call takes its publication back meanwhile.
    #[cfg(loom)]
    SleepsUnpublished,
    /// A thread that was called out of its call goes on to its end.
    #[cfg(loom)]
    CallIgnored,
    /// A process says that it ends after it has looked whether it may.
    #[cfg(loom)]
    EndSaidLate,
    /// A thread uses a mark that was made on an earlier permit.
    #[cfg(loom)]
    OldMarkUsed,
    /// A thread does not look again at the mark of a descriptor when it has published that it works.
    #[cfg(loom)]
    MarkNotLookedAtAgain,
    /// A thread that replaces a descriptor takes its mark away after the look who works.
    #[cfg(loom)]
    MarkTakenLast,
    /// A thread takes the permit on which it marks what it has opened from its process, behind the call.
    #[cfg(loom)]
    PermitTakenBehind,
    /// Who has looked at a file believes that nothing is held of it, though his permit may have been revoked since.
    #[cfg(loom)]
    PermitNotLookedAtAgain,
}

#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}

#[cfg(loom)]
pub use planting::{plant, planted};

#[cfg(loom)]
mod planting {
    use super::Fault;
    use std::sync::atomic::{AtomicU8, Ordering};

    static PLANTED: AtomicU8 = AtomicU8::new(u8::MAX);

    /// From now on the protocol has this error, or none.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.store(fault.map_or(u8::MAX, |fault| fault as u8), Ordering::SeqCst);
    }

    /// Whether it has this one.
    pub fn planted(fault: Fault) -> bool {
        PLANTED.load(Ordering::SeqCst) == fault as u8
    }
}
