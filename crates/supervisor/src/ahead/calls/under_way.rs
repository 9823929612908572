//! Calls that were allowed and are to be told of: what they may observe or modify until then.
//!
//! **Invariant:** a thread makes one such call at most. It is under way from the answer to the question until the agent
//! tells that it was made, the thread asks about another one, or it ends.

use crate::ahead::calls::exchange::Covered;
use crate::ahead::calls::waiting::News;
use crate::ahead::filesystems::disk::mirrors;
use crate::ahead::filesystems::disk::programs::Executed;
use crate::ahead::objects::input::ReadUnderWay;
use crate::ahead::objects::sockets::accept::Accepted;
use crate::ahead::Object;
use procfs::{ProcessId, ThreadId};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A call that was allowed and is to be told of.
#[derive(Debug, Default)]
pub(in crate::ahead) struct UnderWay {
    pub objects: Vec<Object>,
    /// It waits for any of many.
    pub watches: bool,
    /// It is fork or one of its kin.
    pub makes_child: bool,
    /// The child gets memory of its own where the call asks for its parent's.
    pub is_apart: bool,
    /// It may wait for long and has no effect until it ends: it can be interrupted and made again.
    pub can_be_repeated: bool,
    /// It changes names on a disk, which are not what they seem to be until it ends.
    pub changes_names: bool,
    /// It closes a descriptor of a file, and changes nothing else.
    pub only_closes: bool,
    /// It adds no dependency to anything.
    pub adds_nothing: bool,
    /// It adds no dependency to anything, and what undoes it is kept already.
    pub covered: Option<Covered>,
    /// It executes what only those inside find.
    pub executes: Option<Executed>,
    /// It opens this by way of a descriptor of ours.
    pub _opens: Option<Arc<OwnedFd>>,
    /// It takes something that a rollback has to give back.
    pub takes: Option<Taking>,
    /// It maps a file that is to have a mirror.
    pub mirrors: Option<mirrors::Mapping>,
    /// It may wait, deaf to everything, until a child does not use the memory of its process any more (`vfork`).
    pub lends_memory: bool,
    /// It executes a program in the place of its process's first thread.
    pub replaces_first: bool,
}

/// What a call takes that is known only when it has been made.
#[derive(Debug)]
pub(in crate::ahead) enum Taking {
    /// What it reads from a stream of outside.
    Input(ReadUnderWay),
    /// The connection that it accepts.
    Connection(Arc<Accepted>),
}

impl UnderWay {
    /// The sockets, with those at the other ends, of which it has closed the last descriptor.
    pub fn hung_up(&self) -> Vec<Object> {
        let closes = self.objects.iter().any(|object| matches!(object, Object::Descriptors(_)));
        let sockets = self.objects.iter().filter(|object| closes && matches!(object, Object::Socket(_)));
        sockets.cloned().collect()
    }

    /// Whether something is left to be done when it has been made: a child is to be waited for, a mirror to be mapped,
    /// or whoever waits at another end to be called out.
    pub fn leaves_something(&self) -> bool {
        self.is_apart || self.mirrors.is_some() || !self.hung_up().is_empty()
    }

    /// What may have changed for those who wait, when a process has made it.
    pub fn news(&self, of: ProcessId) -> News {
        let is_other = |object: &Object| matches!(object, Object::Children(_) | Object::Signals(_));
        let is_of_processes = self.makes_child || self.is_apart || self.lends_memory || self.replaces_first;
        match is_of_processes || self.objects.is_empty() || self.objects.iter().any(is_other) {
            true => News::Any,
            false => News::OrdinaryCall(of),
        }
    }

    /// Whether it may observe or modify this.
    pub fn concerns(&self, object: &Object) -> bool {
        self.objects.contains(object)
            || self.watches && object.can_be_awaited()
            || matches!(object, Object::Socket(_)) && self.objects.contains(&Object::SOME_SOCKET)
    }
}

/// All of a world.
#[derive(Debug, Default)]
pub(in crate::ahead) struct CallsUnderWay(HashMap<ThreadId, UnderWay>);

impl CallsUnderWay {
    /// A thread was told to make a call.
    pub fn begin(&mut self, tid: ThreadId, call: UnderWay) {
        self.0.insert(tid, call);
    }

    /// A thread has made its call, or never will. `None`: it was making none of which we want to hear.
    pub fn end(&mut self, tid: ThreadId) -> Option<UnderWay> {
        self.0.remove(&tid)
    }

    /// The call that a thread is making.
    pub fn of(&self, tid: ThreadId) -> Option<&UnderWay> {
        self.0.get(&tid)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, tid: ThreadId) -> Option<&mut UnderWay> {
        self.0.get_mut(&tid)
    }

    /// Whether a thread is making a call that may have had a part of its effect: it cannot be taken back to before it.
    pub fn cannot_be_repeated(&self, tid: ThreadId) -> bool {
        self.of(tid).is_some_and(|call| !call.can_be_repeated)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (ThreadId, &UnderWay)> {
        self.0.iter().map(|(&tid, call)| (tid, call))
    }

    /// Those of others than a thread, in no order.
    pub fn of_others(&self, caller: ThreadId) -> impl Iterator<Item = (ThreadId, &UnderWay)> {
        self.iter().filter(move |&(tid, _)| tid != caller)
    }
}
