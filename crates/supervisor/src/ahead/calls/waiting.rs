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
use syscall_table::Op;
use tracee::Stopped;

/// Longer than this no call is passed over: then it is looked at though nothing happens.
const PASSED_OVER_MAX: Duration = Duration::from_millis(20);

/// What may have changed for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ahead) enum News {
    /// Anything.
    Any,
    /// A process has asked about, or has made, a call that only changes files, descriptors or streams.
    OrdinaryCall(ProcessId),
}

impl News {
    /// What a question about a call may change, whatever is decided.
    pub fn of(call: &Call) -> Self {
        let is_of_descriptor = |op: &Op| {
            matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Copy { .. } | Op::Sync(_) | Op::Mmap)
                || matches!(op, Op::ObserveFd { .. } | Op::ModifyFd { .. } | Op::Description { .. } | Op::Fcntl)
                || matches!(
                    op,
                    Op::Close | Op::CloseRange | Op::Dup2 | Op::Pipe | Op::Poll | Op::Select | Op::EpollWait
                )
        };
        let is_of_name = |op: &Op| {
            matches!(op, Op::Open | Op::OpenAt | Op::OpenAt2 | Op::Creat | Op::Statx | Op::StatPath { .. })
                || matches!(op, Op::ObservePath { .. } | Op::ModifyPath { .. } | Op::ModifyPaths { .. })
                || matches!(op, Op::Chdir | Op::Fchdir)
        };
        let is_ordinary = |op: Op| is_of_descriptor(&op) || is_of_name(&op);
        match call.awaits.is_none() && syscall_table::op(call.frame.nr).is_some_and(is_ordinary) {
            true => Self::OrdinaryCall(call.pid),
            false => Self::Any,
        }
    }
}

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
    /// When it was last looked whether it may be made.
    pub considered: Instant,
    /// Its user was told.
    pub is_told: bool,
}

impl Parked {
    /// Whether a call of this process, which has changed nothing but files, descriptors and streams, is no occasion to
    /// look at this one again: it waits until a child has ended, or until a signal comes. Whoever builds something has
    /// a few such waits the whole time, and thousands of such calls.
    fn is_not_concerned(&self, asker: ProcessId) -> bool {
        let is_for_end = self.call.awaits.is_none() && syscall_table::op(self.call.frame.nr) == Some(Op::Wait);
        is_for_end
            && self.call.pid != asker
            && self.call.not_before.is_none()
            && self.considered.elapsed() < PASSED_OVER_MAX
    }
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
    /// Some were passed over since all were looked at.
    any_passed_over: bool,
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
        self.parked.insert(
            self.last,
            Parked { stopped, call, since: now, looks: 0, begin, ended_since: None, considered: now, is_told },
        );
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
    pub fn put_back(&mut self, key: u64, mut parked: Parked) {
        parked.considered = Instant::now();
        self.parked.insert(key, parked);
    }

    /// The place of each that is to be looked at after something has happened, who has waited longest first.
    pub fn concerned_by(&mut self, news: News) -> Vec<u64> {
        let is_concerned = |parked: &Parked| match news {
            News::Any => true,
            News::OrdinaryCall(asker) => !parked.is_not_concerned(asker),
        };
        let concerned: Vec<u64> =
            self.entries().filter(|(_, parked)| is_concerned(parked)).map(|(key, _)| key).collect();
        self.any_passed_over = concerned.len() < self.parked.len();
        concerned
    }

    /// When those that were passed over are to be looked at, though nothing happens.
    pub fn next_look(&self) -> Option<Instant> {
        let oldest = self.parked.values().map(|parked| parked.considered).min().filter(|_| self.any_passed_over);
        oldest.map(|considered| considered + PASSED_OVER_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;
    use agent_abi::Frame;
    use syscall_table::nr;

    #[test]
    fn who_waits_for_children_hears_of_calls_that_may_end_or_make_some() {
        let pid = ProcessId::from_raw(7);
        let news = |nr| News::of(&Call::new(pid.leader(), pid, Frame { nr, ..Frame::default() }, 0));
        for number in [nr::openat, nr::close, nr::write, nr::rename, nr::epoll_pwait, nr::newfstatat, nr::fcntl] {
            assert_eq!(news(number), News::OrdinaryCall(pid), "{number}");
        }
        let concerning = [nr::kill, nr::tgkill, nr::exit_group, nr::exit, nr::execve, nr::vfork, nr::clone, nr::wait4];
        for number in concerning.into_iter().chain([nr::setpgid, nr::prctl, nr::ioctl, nr::rt_sigaction]) {
            assert_eq!(news(number), News::Any, "{number}");
        }
    }
}
