//! FIFOs that a guess has made ([0174](../../../../../../docs/decisions/0174-fifos-of-a-guess.md)). As long as one has
//! no name nobody outside can have it open: it is a pipe. What takes back what was done to it takes the FIFO back, so
//! that nothing of it is kept: a process of which that is not so waits with whatever changes it, and outside nobody
//! finds anything in it later that can still fail.
//!
//! To open one may take until somebody opens the other end. So the process opens it itself, by way of a descriptor of
//! ours in `/proc`; whoever comes with new dependencies meanwhile calls it out, as from a read that waits.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::filesystems::disk::names::is_fifo;
use crate::ahead::filesystems::disk::new_files::barrier;
use crate::ahead::filesystems::open::{O_CREAT, O_EXCL, O_NOFOLLOW, O_TRUNC};
use crate::ahead::filesystems::path_walk::Found;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{Call, Object, SCRATCH};
use crate::event_loop::Supervisor;
use procfs::ProcessId;
use rustix::fs::Stat;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use syscall_table::{nr, Op};
use tracee::{Result, Stopped, TraceError};

impl Supervisor {
    /// What a call is that reads from such a FIFO or writes into it; `None` if it does not.
    pub(in crate::ahead) fn plan_new_fifo(&mut self, call: &Call, op: Op) -> Option<Plan> {
        let (Op::Read { fd } | Op::Write { fd }) = op else { return None };
        let copy = self.copy_descriptor(call.tid, call.frame.args[usize::from(fd) % 6] as i32).ok()?;
        let stat = rustix::fs::fstat(&copy).ok().filter(|stat| self.is_new_fifo(stat))?;
        if self.changes_fifo_of_others(call.pid, &copy) {
            return Some(barrier());
        }
        let plan = Plan::tracked_once().modifying(Object::Pipe(stat.st_dev, stat.st_ino), Intent::Nothing);
        Some(Plan { can_be_repeated: matches!(op, Op::Read { .. }), ..plan })
    }

    /// Whether what a process does to a FIFO could be taken back alone, and be seen by somebody outside before.
    pub(in crate::ahead) fn changes_fifo_of_others(&self, pid: ProcessId, end: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(end) else { return false };
        let pipe = Object::Pipe(stat.st_dev, stat.st_ino);
        self.is_new_fifo(&stat) && !self.is_as_certain_as_its_file(pid, &pipe, (stat.st_dev, stat.st_ino))
    }

    /// Whether this is an end of a FIFO that nobody outside can have: its close is seen by those inside only.
    pub(crate) fn is_end_of_new_fifo(&self, end: &OwnedFd) -> bool {
        rustix::fs::fstat(end).is_ok_and(|stat| self.is_new_fifo(&stat))
    }

    fn is_new_fifo(&self, stat: &Stat) -> bool {
        is_fifo(stat) && self.ahead.new_files.has(stat)
    }

    /// An end of such a FIFO is opened, by one who depends on it now. `None`: it has to wait for its name.
    pub(in crate::ahead) fn open_new_fifo(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        fifo: &Found,
        flags: u64,
    ) -> Result<Option<Decision>> {
        let (dev, ino) = fifo.inode();
        let Some(file) = self.ahead.new_files.file_of(&fifo.stat) else { return Ok(None) };
        if self.changes_fifo_of_others(call.pid, &file) {
            return Ok(None);
        }
        let at = stopped.registers()?.gs_base - SCRATCH;
        let flags = flags & !(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW);
        let kernel = |source| TraceError::kernel("write a call", call.tid, source);
        tracee::write_bytes(call.tid, at, &opening(at, &file, flags)).map_err(kernel)?;
        if !self.may_find(stopped, call, at + PATH_AT)? {
            return Ok(None);
        }
        let plan = Plan { can_be_repeated: true, ..Plan::tracked_once() };
        let under_way = match self.track(stopped, call, plan, vec![(Object::Pipe(dev, ino), Intent::Nothing)])? {
            Decision::Go => UnderWay::default(),
            Decision::GoAndTell(under_way) => under_way,
            other => return Ok(Some(other)),
        };
        Ok(Some(Decision::GoInstead(UnderWay { _opens: Some(file), ..under_way }, at)))
    }

    /// Whether a process finds what stands at a path of its memory: its `/proc` may be another one than ours, or none.
    fn may_find(&mut self, stopped: &Stopped, call: &Call, path: u64) -> Result<bool> {
        const F_OK: u64 = 0;
        let mut remote = self.remote_calls(stopped)?;
        let result = remote.call(libc::SYS_faccessat, &[libc::AT_FDCWD as u64, path, F_OK])?;
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(result == 0)
    }
}

/// Where the path stands: behind the number of the call and its arguments.
const PATH_AT: u64 = 7 * 8;

/// The call as the agent makes it, for an address.
fn opening(at: u64, fifo: &Arc<OwnedFd>, flags: u64) -> Vec<u8> {
    let path = procfs::path_for_others(fifo) + "\0";
    let words = [nr::openat, libc::AT_FDCWD as u64, at + PATH_AT, flags, 0, 0, 0];
    words.iter().flat_map(|word| word.to_ne_bytes()).chain(path.into_bytes()).collect()
}
