//! Programs that are written, or run, only because something is speculative: natively a call would not meet ETXTBSY
//! there.
//!
//! What undoes an operation on an open file keeps it open, also for writing. A checkpoint, and a process whose exit is
//! held, still run their program. Who would execute the one, or write to the other, waits until that is over. Whether
//! we keep a program open for writing is looked up only when the kernel says that somebody does: there may be thousands
//! of descriptors, and an `execve` that meets ETXTBSY has done nothing yet
//! ([0229](../../../../../docs/decisions/0229-the-kernel-says-who-is-busy.md)).

use crate::ahead::Call;
use crate::event_loop::Supervisor;
use procfs::{MagicLink, ProcessId, TaskId, ThreadId};
use rustix::fs::{FileType, OFlags, Stat};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use syscall_table::nr;
use syscall_table::{Op, CWD};

const EXECUTABLE: u32 = 0o111;
/// `O_ACCMODE`.
const ACCESS_MODE: u32 = 3;

/// Threads whose program the kernel called busy (ETXTBSY), though no descriptor of ours had it open for writing when we
/// were asked. One that we have closed since may have been the reason, so that these threads try once more.
#[derive(Debug, Default)]
pub(in crate::ahead) struct BusyPrograms {
    /// Counts whatever may have closed what was kept.
    let_go: u64,
    /// By thread, the count at which the thread was told to try once more.
    tried: HashMap<ThreadId, u64>,
}

impl BusyPrograms {
    /// Something that was kept open may not be so any more.
    pub fn let_go(&mut self) {
        self.let_go += 1;
    }

    /// A thread asks about a call; `was_busy`: once more, because its program was busy.
    pub fn asks(&mut self, tid: ThreadId, was_busy: bool) {
        if !was_busy {
            self.tried.remove(&tid);
        }
    }

    /// Whether a program is busy by itself: nothing was let go since its thread was told to try once more.
    fn is_busy_again(&mut self, tid: ThreadId) -> bool {
        self.tried.insert(tid, self.let_go) == Some(self.let_go)
    }
}

impl Supervisor {
    /// What the kernel has said of a program, if nobody keeps it open for writing for a guess. Who has waited for that
    /// tries again.
    pub(in crate::ahead) fn busy_error(&mut self, call: &Call) -> Option<i64> {
        let is_said = call.was_busy && call.is_fresh && self.ahead.busy_programs.is_busy_again(call.tid);
        is_said.then_some(-i64::from(libc::ETXTBSY))
    }

    /// Whether this call would fail because of what we hold.
    pub(in crate::ahead) fn meets_busy_program(&mut self, call: &Call) -> bool {
        let ahead = &self.ahead;
        let checkpoints = &ahead.checkpoints;
        let has_vessels = checkpoints.count() > 0 || ahead.vessels.any_dying() || checkpoints.is_any_prepared();
        let has_ended = ahead.children.any_held_exits() || ahead.children.dying().next().is_some();
        if ahead.core.open_speculations() == 0 && !has_vessels && !has_ended {
            return false;
        }
        match syscall_table::op(call.frame.nr) {
            Some(Op::Execve) => call.was_busy && self.is_kept_for_writing(call, CWD, 0),
            Some(Op::Execveat) => call.was_busy && self.is_kept_for_writing(call, 0, 1),
            _ => match opened_for_writing(call) {
                Some((dir, path)) => self.is_kept_running(call, dir, path),
                None => false,
            },
        }
    }

    /// Whether a program is opened for writing: until it is closed nobody can execute it, and who tries is told at
    /// once.
    pub(in crate::ahead) fn keeps_program_busy(&self, call: &Call) -> bool {
        opened_for_writing(call)
            .filter(|_| call.frame.nr != nr::truncate)
            .map(|(dir, path)| self.look_up(call, dir, path))
            .is_some_and(|found| found.may_be(is_program))
    }

    fn is_kept_for_writing(&self, call: &Call, dir: u8, path: u8) -> bool {
        let found = self.look_up(call, dir, path);
        found.known().filter(|found| is_regular(found)).is_some_and(|program| self.holds_for_writing(program))
    }

    /// Whether we keep a file open for writing.
    pub(in crate::ahead) fn holds_for_writing(&self, file: &Stat) -> bool {
        crate::sys::has_open_for_writing((file.st_dev, file.st_ino))
    }

    /// Whether a process has a file open for writing that has not ended, also on no guess.
    pub(in crate::ahead) fn is_written_inside(&self, file: (u64, u64)) -> bool {
        let is_it = |tid: ThreadId, fd: i32| {
            MagicLink::Fd(fd).metadata(tid).is_ok_and(|found| (found.dev(), found.ino()) == file)
        };
        let writes = |tid: ThreadId, fd: i32| {
            is_it(tid, fd) && procfs::descriptor_flags(tid, fd).is_ok_and(|flags| flags & ACCESS_MODE != 0)
        };
        let mut living = self.tracees.keys().filter(|tid| !self.ahead.children.held_exits.contains_key(&tid.leads()));
        living.any(|&tid| self.descriptors_of(tid).is_ok_and(|open| open.into_iter().any(|fd| writes(tid, fd))))
    }

    fn is_kept_running(&mut self, call: &Call, dir: u8, path: u8) -> bool {
        let found = self.look_up(call, dir, path);
        let found = found.known().filter(|found| is_program(found));
        let Some(program) = found.map(|found| (found.st_dev, found.st_ino)) else { return false };
        let runs = |task: TaskId| MagicLink::Exe.metadata(task).is_ok_and(|exe| (exe.dev(), exe.ino()) == program);
        // Those that were given up are as good as gone, and so is one that nobody wanted in the end.
        if let Some(stale) = self.ahead.checkpoints.take_prepared() {
            self.discard(stale);
        }
        self.await_dying();
        let kin = &self.ahead.children;
        // Of one that is let go its memory is nobody's before its program can be written.
        let has_no_program = |pid: ProcessId| MagicLink::Exe.metadata(pid).is_err();
        let mut held_exits = kin.held_exits.keys();
        let is_kept = self.ahead.checkpoints.iter().any(|kept| runs(kept.vessel.id().into()))
            || held_exits.any(|&pid| runs(pid.into()) || !kin.stands(pid) && has_no_program(pid))
            || kin.dying().any(|pid| runs(pid.into()) || has_no_program(pid));
        // Where somebody runs it in earnest, that is what the call is told.
        is_kept && !self.tracees.keys().any(|&tid| !kin.has_ended(tid.leads()) && runs(tid.into()))
    }
}

fn is_regular(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}

fn is_program(found: &Stat) -> bool {
    is_regular(found) && found.st_mode & EXECUTABLE != 0
}

/// Where the name stands of a file that a call opens for writing.
fn opened_for_writing(call: &Call) -> Option<(u8, u8)> {
    let args = &call.frame.args;
    let writes = |flags: u64| flags & u64::from((OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC).bits()) != 0;
    match syscall_table::op(call.frame.nr)? {
        Op::Open if writes(args[1]) => Some((CWD, 0)),
        Op::Creat => Some((CWD, 0)),
        Op::OpenAt if writes(args[2]) => Some((0, 1)),
        Op::OpenAt2 if tracee::read_value::<u64>(call.tid, args[2]).is_ok_and(writes) => Some((0, 1)),
        Op::ModifyPath { dir, path } if call.frame.nr == nr::truncate => Some((dir, path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_busy_that_is_so_twice_while_nothing_is_let_go() {
        let (mut busy, tid, other) = (BusyPrograms::default(), ThreadId::from_raw(7), ThreadId::from_raw(8));
        busy.asks(tid, true);
        assert!(!busy.is_busy_again(tid) && !busy.is_busy_again(other), "what we had may have been the reason");
        busy.let_go();
        assert!(!busy.is_busy_again(tid));
        busy.asks(tid, true);
        assert!(busy.is_busy_again(tid));
        busy.asks(tid, false);
        assert!(!busy.is_busy_again(tid), "it is about another program");
    }
}
