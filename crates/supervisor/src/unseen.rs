//! Children that end before they are seen: whoever is killed at once never stops for the first time, and so never says
//! which slots it had. Its maker says that, in a word that belongs to the child's slot ([`agent_abi::Birth`]).

use std::sync::atomic::Ordering;

use agent_abi::PROCESSES_MAX;
use procfs::{Status, ThreadId};

use crate::event_loop::{Supervisor, Tracee};

/// So many whose slots were not found are remembered. Of most, as of stray vessels, there are none.
const REMEMBERED_MAX: usize = 256;

/// Who has ended without being seen, and whose slots were not found yet: its maker may not have come to say it.
#[derive(Debug, Default)]
pub(crate) struct EndedUnseen(Vec<ThreadId>);

impl EndedUnseen {
    /// A thread of this id was seen: it is another one.
    pub fn forget(&mut self, tid: ThreadId) {
        self.0.retain(|&ended| ended != tid);
    }
}

impl Supervisor {
    /// A thread has ended that was never seen. The kernel attaches it to us when it is made, so that we hear of it.
    pub(crate) fn on_end_of_unseen(&mut self, tid: ThreadId) {
        self.ended_unseen.forget(tid);
        if self.ended_unseen.0.len() == REMEMBERED_MAX {
            self.ended_unseen.0.remove(0);
        }
        self.ended_unseen.0.push(tid);
        let world = self.world();
        world.closes.fetch_add(1, Ordering::Relaxed);
        for thread in world.thread_map.taken() {
            let Some(unseen) = world.births[thread].unseen().map(|id| ThreadId::from_raw(id as i32)) else { continue };
            // The number of one that ended earlier may be that of a new thread by now, which will be seen.
            if !self.ended_unseen.0.contains(&unseen) || is_alive(unseen) {
                continue;
            }
            self.ended_unseen.forget(unseen);
            self.give_back_unseen(thread);
        }
    }

    /// Of a process so many threads are left, and those that were never seen have ended, too: the kernel tells of the
    /// end of the first one, and of a new program, when all others are gone. Also those whose maker did not come to say
    /// that it had made them.
    pub(crate) fn give_back_unseen_threads(&mut self, process: usize, left: usize) {
        let world = self.world();
        let of_process = |&thread: &usize| {
            let slot = &world.threads[thread];
            slot.process.load(Ordering::Acquire) as usize == process && world.births[thread].is_unseen_thread()
        };
        let unseen: Vec<usize> = world.thread_map.taken().filter(of_process).collect();
        // Whoever shares the slot without being a thread of the process may have threads of its own.
        if unseen.len() + left == world.processes[process].users.load(Ordering::Acquire) as usize {
            unseen.into_iter().for_each(|thread| self.give_back_unseen(thread));
        }
    }

    fn give_back_unseen(&mut self, thread: usize) {
        let process = self.world().threads[thread].process.load(Ordering::Relaxed) as usize % PROCESSES_MAX;
        self.give_back(&Tracee { thread: Some(thread), process, ..Tracee::default() });
    }
}

/// Whether somebody traces this thread, as we do until we hear of its end. What cannot be read counts as yes.
fn is_alive(tid: ThreadId) -> bool {
    match Status::of(tid).and_then(|status| status.tracer()) {
        Ok(tracer) => tracer.is_some(),
        Err(error) => !error.is_gone(),
    }
}
