//! Calls that wait for their answer: their threads stand in the question.
//!
//! **Invariants**
//! * A thread waits at one call at most.
//! * Whoever is sent out of a wait asks about the same call again, and that is no occasion for another guess: it is
//!   noted until it asks or ends.

use crate::ahead::Call;
use procfs::{ProcessId, ThreadId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};
use tracee::Stopped;

/// A call that waits for its answer.
#[derive(Debug)]
pub(in crate::ahead) struct Parked {
    pub stopped: Stopped,
    pub call: Call,
    /// When it was last looked whether a signal waits for it.
    pub since: Instant,
    /// How often that was looked at.
    pub looks: u32,
    pub begin: Instant,
    /// Of a wait for children: when it was first seen that one of them has ended.
    pub ended_since: Option<Instant>,
    /// Its user was told.
    pub is_told: bool,
}

/// A thread that was sent out of a wait to hear a signal, and will ask about the same call again.
#[derive(Clone, Copy, Debug)]
struct SentOut {
    pid: ProcessId,
    nr: u64,
    args: [u64; 6],
    /// When it began to wait.
    begin: Instant,
    /// Its user was told of that.
    is_told: bool,
    at: Instant,
}

/// All of a world.
#[derive(Debug, Default)]
pub(in crate::ahead) struct WaitingCalls {
    /// By a number that grows: who has waited longest is first.
    parked: BTreeMap<u64, Parked>,
    last: u64,
    /// They ask about a call that was looked at before.
    will_ask_again: HashSet<ThreadId>,
    sent_out: HashMap<ThreadId, SentOut>,
}

impl WaitingCalls {
    /// A call waits from now on.
    pub fn park(&mut self, stopped: Stopped, call: Call) {
        self.last += 1;
        let now = Instant::now();
        let (nr, args) = (call.frame.nr, call.frame.args);
        let before = self.sent_out.remove(&call.tid).filter(|before| (before.nr, before.args) == (nr, args));
        let (begin, is_told) = before.map_or((now, false), |before| (before.begin, before.is_told));
        self.parked
            .insert(self.last, Parked { stopped, call, since: now, looks: 0, begin, ended_since: None, is_told });
    }

    /// A thread goes to hear a signal. It waits on, unless it makes another call that waits.
    pub fn send_out(&mut self, parked: &Parked) {
        let Call { tid, pid, frame, .. } = &parked.call;
        let Parked { begin, is_told, .. } = *parked;
        let out = SentOut { pid: *pid, nr: frame.nr, args: frame.args, begin, is_told, at: Instant::now() };
        self.sent_out.insert(*tid, out);
        self.asks_again(*tid);
    }

    /// Processes of which a thread has just been sent out of a wait that began so long ago.
    pub fn sent_out_after(&self, wait: Duration, now: Instant) -> impl Iterator<Item = ProcessId> + '_ {
        /// Whoever has not come back by then does something else.
        const BACK: Duration = Duration::from_millis(100);
        let is_such = move |out: &&SentOut| now.duration_since(out.begin) >= wait && now.duration_since(out.at) < BACK;
        self.sent_out.values().filter(is_such).map(|out| out.pid)
    }

    /// It was taken to be looked at, and waits on in its place.
    pub fn put_back(&mut self, key: u64, parked: Parked) {
        self.parked.insert(key, parked);
    }

    /// The place of each, who has waited longest first.
    pub fn keys(&self) -> Vec<u64> {
        self.parked.keys().copied().collect()
    }

    pub fn get(&self, key: u64) -> Option<&Parked> {
        self.parked.get(&key)
    }

    pub fn get_mut(&mut self, key: u64) -> Option<&mut Parked> {
        self.parked.get_mut(&key)
    }

    /// It waits no more. `None`: it does not any more since it was seen there.
    pub fn take(&mut self, key: u64) -> Option<Parked> {
        self.parked.remove(&key)
    }

    /// The one at which a thread waits.
    pub fn take_of_thread(&mut self, tid: ThreadId) -> Option<Parked> {
        self.take_first(|call| call.tid == tid)
    }

    /// One at which a thread of a process waits: the one that has waited longest.
    pub fn take_of_process(&mut self, pid: ProcessId) -> Option<Parked> {
        self.take_first(|call| call.pid == pid)
    }

    /// Those at which the other threads of its process wait.
    pub fn take_of_others(&mut self, pid: ProcessId, tid: ThreadId) -> Vec<Parked> {
        let is_other = |call: &Call| call.pid == pid && call.tid != tid;
        let keys: Vec<u64> = self.entries().filter(|(_, parked)| is_other(&parked.call)).map(|(key, _)| key).collect();
        keys.into_iter().filter_map(|key| self.take(key)).collect()
    }

    fn take_first(&mut self, is_meant: impl Fn(&Call) -> bool) -> Option<Parked> {
        let key = self.parked.iter().find(|(_, parked)| is_meant(&parked.call)).map(|(&key, _)| key)?;
        self.parked.remove(&key)
    }

    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Who has waited longest first.
    pub fn iter(&self) -> impl Iterator<Item = &Parked> {
        self.parked.values()
    }

    /// The same with their places.
    pub fn entries(&self) -> impl Iterator<Item = (u64, &Parked)> {
        self.parked.iter().map(|(&key, parked)| (key, parked))
    }

    /// Whether a thread stands at a call.
    pub fn has(&self, tid: ThreadId) -> bool {
        self.iter().any(|parked| parked.call.tid == tid)
    }

    /// A thread is sent out of its wait, or out of a call that it was allowed: it asks again.
    pub fn asks_again(&mut self, tid: ThreadId) {
        self.will_ask_again.insert(tid);
    }

    /// A thread asks about a call. Whether that call was not looked at before.
    pub fn asks_anew(&mut self, tid: ThreadId) -> bool {
        !self.will_ask_again.remove(&tid)
    }

    /// Nobody's next call is one that was looked at before.
    pub fn forget_who_asks_again(&mut self) {
        self.will_ask_again.clear();
        self.sent_out.clear();
    }

    /// A thread of this id is not there any more, or is another one from here on.
    pub fn forget(&mut self, tid: ThreadId) {
        self.parked.retain(|_, parked| parked.call.tid != tid);
        self.will_ask_again.remove(&tid);
        self.sent_out.remove(&tid);
    }
}
