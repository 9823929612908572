//! The way in for kinds of objects ([0111](../../../../../docs/decisions/0111-kinds-of-objects.md)).
//!
//! A kind is one file here: what its objects are called, which calls observe and change them, what their state is, and
//! how it is put back. Calls, undo entries and rollbacks know [`Kind`] only.
//!
//! **What is shared.** A descriptor that was duplicated, passed on, or inherited by a child leads to the same object:
//! [`Identity`] says which one. What belongs to one descriptor alone is the process's (`Object::Descriptors`).
//!
//! **Invariant:** an object has one number as long as anything names it: an undo entry, a call under way, the engine.

use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::objects::KINDS;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{Call, Object};
use procfs::ProcessId;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use syscall_table::Op;

/// A kind of object behind descriptors without a name.
pub(in crate::ahead) trait Kind: Debug + Sync {
    /// As people call one.
    fn name(&self) -> &'static str;

    /// What `/proc/PID/fd` shows of one.
    fn link(&self) -> &'static str;

    /// What makes one ready.
    fn readiness(&self) -> Readiness;

    /// The kernel's number of the object, which all who have it share; `None`: it has none, and is told from others by
    /// its open file.
    fn number(&self, file: &OwnedFd) -> io::Result<Option<u64>>;

    /// What a call with such an object as its descriptor does. What is not known waits.
    fn effect(&self, call: &Call, op: Op, file: &OwnedFd) -> Effect;

    /// All of its state, as it is before a call changes it. `ErrorKind::Unsupported`: it could not be put back, and the
    /// call waits.
    fn state(&self, file: &OwnedFd) -> io::Result<Box<dyn State>>;
}

/// What an object was.
pub(crate) trait State: Debug + Send {
    /// Make it what it would be now if nobody had changed it since. Nobody uses it meanwhile.
    fn restore(&self, file: &OwnedFd) -> io::Result<()>;
}

/// What a call does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ahead) enum Effect {
    /// Nothing that the next call could tell.
    Nothing,
    /// It tells what state the object is in.
    Observes,
    /// It changes the object. It may wait, and then has no effect until it ends.
    Changes,
    /// It cannot be undone.
    Waits,
    /// It changes the object, and cannot be undone: nor may what was done to the object before be undone after it.
    IsCertain,
}

/// What makes an object ready, so that somebody who waits for it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ahead) enum Readiness {
    /// Nobody waits for it itself.
    Never,
    /// What others do.
    ByOthers,
    /// Time, too: who waits for it is not stuck.
    ByItself,
}

/// Which object: of which kind, and which of them.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    kind: &'static str,
    readiness: Readiness,
    number: u64,
    /// Where the number is ours: nobody else has it while somebody has this.
    file: Option<Arc<OwnedFd>>,
}

impl Identity {
    pub(in crate::ahead) fn readiness(&self) -> Readiness {
        self.readiness
    }

    /// Its open file, if that is what tells it from others.
    pub(in crate::ahead) fn file(&self) -> Option<&Arc<OwnedFd>> {
        self.file.as_ref()
    }

    fn key(&self) -> (&'static str, u64) {
        (self.kind, self.number)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Identity {}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Identity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.number)
    }
}

/// Numbers of open files that the kernel has no number for. It only says in which order two of them are.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Identities {
    /// In that order.
    known: Vec<(u64, Weak<OwnedFd>)>,
    last: u64,
}

impl Identities {
    /// Which object a file is, of a kind of this name.
    pub fn of(&mut self, kind: &'static str, readiness: Readiness, file: OwnedFd) -> io::Result<Identity> {
        self.known.retain(|(_, file)| file.strong_count() > 0);
        let mut failed = None;
        let mut order = |known: Arc<OwnedFd>| {
            crate::sys::order_of_files(&known, &file).unwrap_or_else(|error| {
                failed = Some(error);
                Ordering::Equal
            })
        };
        // All that are left are open.
        let found = self.known.binary_search_by(|(_, known)| known.upgrade().map_or(Ordering::Less, &mut order));
        if let Some(error) = failed {
            return Err(error);
        }
        match found {
            Ok(at) => {
                let (number, known) = &self.known[at];
                Ok(Identity { kind, readiness, number: *number, file: known.upgrade() })
            }
            Err(at) => {
                self.last += 1;
                let file = Arc::new(file);
                self.known.insert(at, (self.last, Arc::downgrade(&file)));
                Ok(Identity { kind, readiness, number: self.last, file: Some(file) })
            }
        }
    }
}

/// What `/proc/self/fdinfo` says of a file of ours.
pub(in crate::ahead) fn info_of(file: &OwnedFd) -> io::Result<String> {
    Ok(procfs::text(ProcessId::own(), &format!("fdinfo/{}", file.as_raw_fd()))?)
}

/// A descriptor of ours for an object of such a kind.
#[derive(Debug)]
pub(crate) struct OpenObject {
    kind: &'static dyn Kind,
    identity: Identity,
    pub(in crate::ahead) file: Arc<OwnedFd>,
}

impl OpenObject {
    /// `None`: it is of none of the kinds, or is not known to be.
    pub(in crate::ahead) fn behind(file: OwnedFd, identities: &mut Identities) -> Option<Self> {
        let link = procfs::own_name(&file).ok()?;
        let kind = *KINDS.iter().find(|kind| link.as_os_str() == kind.link())?;
        let (name, readiness) = (kind.name(), kind.readiness());
        match kind.number(&file).ok()? {
            Some(number) => {
                let identity = Identity { kind: name, readiness, number, file: None };
                Some(Self { kind, identity, file: Arc::new(file) })
            }
            None => {
                let identity = identities.of(name, readiness, file).ok()?;
                let file = Arc::clone(identity.file()?);
                Some(Self { kind, identity, file })
            }
        }
    }

    pub(in crate::ahead) fn object(&self) -> Object {
        Object::Of(self.identity.clone())
    }

    /// What a call observes and modifies that has it as its descriptor.
    pub(in crate::ahead) fn plan(self, call: &Call, op: Op) -> Plan {
        let object = self.object();
        match self.kind.effect(call, op, &self.file) {
            Effect::Nothing => Plan::new(Class::Free),
            Effect::Observes => Plan::new(Class::Tracked).observing(object),
            Effect::Changes => Plan::new(Class::Tracked).modifying(object, Intent::State(self)),
            Effect::Waits => Plan::new(Class::Barrier).once(),
            Effect::IsCertain => Plan::new(Class::Certain).modifying(object, Intent::Nothing).once(),
        }
    }

    pub(in crate::ahead) fn state(&self) -> io::Result<Box<dyn State>> {
        self.kind.state(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{eventfd, EventfdFlags};

    fn new() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn copies_are_the_same_object_as_long_as_something_names_it() {
        let mut identities = Identities::default();
        let mut identify = |file| identities.of("thing", Readiness::Never, file).unwrap();
        let (one, other) = (new(), new());
        let copy = || rustix::io::dup(&one).unwrap();
        let (first, second) = (identify(copy()), identify(copy()));
        assert_eq!(first, second);
        assert_ne!(first, identify(other));
        drop(first);
        assert_eq!(second, identify(copy()));
    }

    #[test]
    fn each_of_many_is_found_again() {
        let mut identities = Identities::default();
        let files: Vec<OwnedFd> = (0..40).map(|_| new()).collect();
        let mut identify = |file| identities.of("thing", Readiness::Never, rustix::io::dup(file).unwrap()).unwrap();
        let mut known: Vec<Identity> = files.iter().map(&mut identify).collect();
        for forgotten in [20, 3, 0] {
            known.remove(forgotten);
        }
        let kept: Vec<&OwnedFd> = (0..40).filter(|at| ![20, 3, 0].contains(at)).map(|at| &files[at]).collect();
        for (file, identity) in kept.into_iter().zip(&known) {
            assert_eq!(identify(file), *identity);
        }
        let others = [0, 3, 20].map(|at| identify(&files[at]));
        assert!(others.iter().all(|other| !known.contains(other)));
    }

    #[test]
    fn nothing_is_kept_open_that_nothing_names() {
        let mut identities = Identities::default();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(identities.of("thing", Readiness::Never, writer).unwrap());
        assert_eq!(rustix::io::read(&reader, &mut [0u8]), Ok(0));
    }

    #[test]
    fn what_is_of_no_kind_is_not_taken_for_one() {
        let mut identities = Identities::default();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(OpenObject::behind(reader, &mut identities).is_none());
        let counter = OpenObject::behind(new(), &mut identities).unwrap();
        assert_eq!(counter.object().to_string().split(' ').next(), Some("event"));
    }
}
