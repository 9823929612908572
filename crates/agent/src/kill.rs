//! Signals that a process sends: to whom, and what that tells.

use crate::clocks::Call;
use crate::descriptors::is_threaded;
use crate::gate;
use agent_abi::{Process, PROCESSES_MAX};
use core::sync::atomic::Ordering;
use syscall_table::nr;

impl Call<'_> {
    /// `kill(pid, …)`, `tgkill(pid, …)`: the sender's dependencies go to the receiver, and it learns whether there
    /// is one.
    pub fn kill(&mut self, position: u8) {
        // That a signal could be sent to a group, or to all, tells that somebody is there.
        let mut tells_of_many = false;
        if !self.is_clean() {
            let pid = self.arg(position) as i32;
            match self.known_process(pid) {
                Some(target) => {
                    self.settle_before_stop(target);
                    self.modify(&target.clock);
                    self.observe(&target.clock);
                }
                None if pid > 0 && pid == self.own_pid() && !self.sends_stop() => {}
                None => {
                    tells_of_many = true;
                    self.settle();
                }
            }
        }
        if self.ends_own_process(position) {
            return self.end_by_own_hand();
        }
        const ESRCH: i64 = -3;
        // Nothing but an observation comes after it: a signal to oneself need not wait until the agent is left step
        // by step.
        let is_gone = self.proceed_observing() == ESRCH;
        if (is_gone || tells_of_many) && !self.is_clean() {
            self.observe_everything();
        }
    }

    /// COMMAND has its parent outside, who hears at once that it has stopped.
    fn settle_before_stop(&mut self, target: &Process) {
        let is_command = target.parent.load(Ordering::Relaxed) as usize >= PROCESSES_MAX;
        if is_command && self.sends_stop() {
            self.settle();
        }
    }

    fn sends_stop(&self) -> bool {
        const SIGSTOP: u64 = 19;
        const SIGTTOU: u64 = 22;
        let signal = match self.frame.nr {
            nr::tgkill | nr::rt_tgsigqueueinfo => self.arg(2),
            _ => self.arg(1),
        };
        (SIGSTOP..=SIGTTOU).contains(&u64::from(signal as u32))
    }

    /// Whether a thread ends its process with a signal for all of it. The kernel then kills all threads at once; of
    /// a traced process it picks one, and the others go on until that one has stopped for it.
    fn ends_own_process(&self, position: u8) -> bool {
        let signal = self.arg(1);
        self.frame.nr == nr::kill
            && is_threaded()
            && (1..=64).contains(&signal)
            && self.arg(position) as i32 == self.own_pid()
            && ends_by_default(signal)
            && has_default_action(signal)
            && !blocks(signal)
    }

    /// To the calling thread, so that it goes no further. Nobody is left who could tell whom the signal was for.
    fn end_by_own_hand(&mut self) {
        // SAFETY: no arguments.
        let own = unsafe { gate::call(nr::gettid, [0; 6]) as u64 };
        self.page.after = agent_abi::AFTER_MUST_FINISH;
        let result = gate::instead(&[self.arg(0), own, self.arg(1), 0, 0, 0], nr::tgkill);
        self.answer(result);
    }

    /// `tkill(tid, …)`.
    pub fn kill_thread(&mut self, position: u8) {
        let tid = self.arg(position) as u32;
        if !self.is_clean() {
            let is_known = self.counts_as_supervisor(self.own_pid());
            let target = self
                .world
                .thread_map
                .taken()
                .map(|i| &self.world.threads[i])
                .find(|t| is_known && t.tid.load(Ordering::Relaxed) == tid);
            match target {
                Some(target) => {
                    let process = target.process.load(Ordering::Relaxed) as usize % PROCESSES_MAX;
                    let target = &self.world.processes[process];
                    self.settle_before_stop(target);
                    self.modify(&target.clock);
                }
                None => self.settle(),
            }
        }
        self.proceed_observing();
    }
}

fn ends_by_default(signal: u64) -> bool {
    // Not SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH.
    !matches!(signal, 17..=23 | 28)
}

fn has_default_action(signal: u64) -> bool {
    const SET_LEN: u64 = 8;
    let mut action = [u64::MAX; 4];
    // SAFETY: `action` is a whole `struct sigaction` of the kernel's.
    unsafe { gate::call(nr::rt_sigaction, [signal, 0, action.as_mut_ptr() as u64, SET_LEN, 0, 0]) };
    action[0] == 0
}

/// Whether the calling thread blocks a signal.
fn blocks(signal: u64) -> bool {
    const SET_LEN: u64 = 8;
    let mut mask = [u64::MAX];
    // SAFETY: a whole set of signals.
    unsafe { gate::call(nr::rt_sigprocmask, [0, 0, mask.as_mut_ptr() as u64, SET_LEN, 0, 0]) };
    mask[0] & 1 << (signal - 1) != 0
}
