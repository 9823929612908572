//! What is speculative just now, for `speculator top`.

use crate::ahead::calls::waiting::Parked;
use crate::ahead::speculations::history;
use crate::ahead::speculations::ledger::us;
use crate::ahead::{process, Ahead};
use crate::event_loop::Supervisor;
use crate::status::{AheadStatus, OpenGuess, ProcessStatus};
use procfs::{ProcessId, ThreadId};
use std::time::Instant;

impl Supervisor {
    pub(crate) fn ahead_status(&mut self) -> AheadStatus {
        /// Guesses that are told one by one.
        const OLDEST_MAX: usize = 100;
        let mut tids: Vec<ThreadId> = self.tracees.keys().copied().collect();
        tids.sort_unstable();
        // Threads that are not the first of their process are not told of.
        let pids = tids.into_iter().filter_map(|tid| self.pid_of(tid).ok().filter(|&pid| tid.is_leader_of(pid)));
        let pids: Vec<ProcessId> = pids.collect();
        let ahead = &self.ahead;
        let report = &ahead.report;
        AheadStatus {
            open: ahead.core.open_speculations(),
            oldest: ahead.open_guesses(OLDEST_MAX),
            resolved: [report.committed, report.failed, report.unmade],
            kept: ahead.checkpoints.count(),
            checkpoints: report.checkpoints,
            checkpoint_us: report.checkpoint_us,
            rollbacks: report.causes.clone(),
            processes: pids.into_iter().map(|pid| ahead.process_status(pid)).collect(),
        }
    }
}

impl Ahead {
    fn open_guesses(&self, max: usize) -> Vec<OpenGuess> {
        let now = self.now();
        let open = self.ledger.open().into_iter().take(max).map(|(id, guess)| OpenGuess {
            number: self.explicit.number_of(id),
            pid: guess.pid.as_raw(),
            why: guess.why.clone(),
            age_us: us(now.saturating_sub(guess.since)),
        });
        open.collect()
    }

    fn process_status(&self, pid: ProcessId) -> ProcessStatus {
        let since = self.ledger.ahead_since(pid);
        ProcessStatus {
            pid: pid.as_raw(),
            program: history::program_of(pid),
            ahead_us: since.map(|since| us(self.now().saturating_sub(since))),
            guesses: self.core.dependencies_of_process(process(pid)).len() as usize,
            checkpoints: self.checkpoints.of(pid).count(),
            waits_for: self.what_it_waits_for(pid),
        }
    }

    fn what_it_waits_for(&self, pid: ProcessId) -> Option<String> {
        if self.children.stands(pid) {
            return Some("the outcome of its guesses, to end".to_owned());
        }
        if self.ending.contains_key(&pid) {
            return Some("others at its pipes, to end by a signal".to_owned());
        }
        let parked = self.waiting.iter().find(|parked| parked.call.pid == pid)?;
        Some(self.what_a_call_waits_for(parked))
    }

    fn what_a_call_waits_for(&self, parked: &Parked) -> String {
        let call = &parked.call;
        let name = syscall_table::row(call.frame.nr).map_or("a system call", |row| row.name);
        if let Some(at) = call.not_before {
            let left = at.saturating_duration_since(Instant::now());
            return format!("the result of {name}, {} ms more", left.as_millis());
        }
        if call.wants_window {
            return format!("a moment without any guess, to call {name}");
        }
        if matches!(syscall_table::op(call.frame.nr), Some(syscall_table::Op::Wait)) {
            return "a child".to_owned();
        }
        match self.is_speculative(call.pid) {
            true => format!("the outcome of its guesses, to call {name}"),
            false => format!("the outcome of others' guesses, to call {name}"),
        }
    }
}
