//! `vfork`, and what is like it (`posix_spawn`), on a guess
//! ([0054](../../../../../docs/decisions/0054-vfork-on-a-guess.md)). Processes that share memory are never speculative.
//! So the child gets a copy of the memory, as by `fork`, and its parent waits here instead of in the kernel. Before the
//! child calls exec, and before it ends, what it has written and mapped is given to its parent.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::births;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::{process, Call};
use crate::event_loop::Supervisor;
use agent_abi::{Frame, AGENT_BASE, OWN_END};
use checkpoint::{CheckpointError, Halted};
use commit_clock::DOMAINS_MAX;
use procfs::ProcessId;
use speculation::Dependent;
use std::collections::HashMap;
use syscall_table::nr;
use tracee::{Result, Stopped, TraceError};

const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// The signal of the end.
const SIGNAL: u64 = 0xff;

/// Children that have a copy of the memory that they asked to share, and whose parent waits: by child, its parent.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    parents: HashMap<ProcessId, ProcessId>,
    /// Where the kernel writes the descriptor of the child that a process makes (`CLONE_PIDFD`), by process.
    descriptors: HashMap<ProcessId, u64>,
    /// One has executed a program or ended: its parent may go on.
    has_left: bool,
}

impl Apart {
    pub fn begin(&mut self, child: ProcessId, parent: ProcessId) {
        self.parents.insert(child, parent);
    }

    /// A process is about to make such a child, whose descriptor goes there.
    fn expect(&mut self, parent: ProcessId, descriptor: Option<u64>) {
        match descriptor {
            Some(at) => self.descriptors.insert(parent, at),
            None => self.descriptors.remove(&parent),
        };
    }

    /// It has memory of its own, or has ended.
    pub fn leave(&mut self, child: ProcessId) {
        if let Some(parent) = self.parents.remove(&child) {
            self.descriptors.remove(&parent);
            self.has_left = true;
        }
    }

    pub fn parent(&self, child: ProcessId) -> Option<ProcessId> {
        self.parents.get(&child).copied()
    }

    /// A rollback has put it back to where it was this.
    pub fn put_back(&mut self, child: ProcessId, parent: Option<ProcessId>) {
        match parent {
            Some(parent) => self.begin(child, parent),
            None => self.leave(child),
        }
    }

    /// Whether one has left since this was asked last.
    pub fn take_leaving(&mut self) -> bool {
        std::mem::take(&mut self.has_left)
    }
}

/// Whether these flags of `clone` ask for a child in the memory of its parent, which waits, and for nothing else.
pub(in crate::ahead) fn is_vfork(flags: u64) -> bool {
    const BOTH: u64 = CLONE_VM | CLONE_VFORK;
    flags & BOTH == BOTH && flags & !(BOTH | CLONE_PIDFD | CLONE_CLEAR_SIGHAND | SIGNAL) == 0
}

impl Supervisor {
    /// A speculative process makes a child as by `vfork`.
    pub(in crate::ahead) fn bear_apart(&mut self, stopped: &Stopped, call: &Call, mut plan: Plan) -> Result<Decision> {
        let modifies = std::mem::take(&mut plan.modifies);
        let tracked = self.track(stopped, call, Plan { class: Class::Tracked, ..plan }, modifies)?;
        self.ahead.children.apart.expect(call.pid, births::pidfd_address(call));
        Ok(match tracked {
            Decision::GoAndTell(_) if self.has_company(call.tid) && !self.lend_memory(call.pid, call.tid)? => {
                Decision::Wait
            }
            Decision::GoAndTell(mut under_way) => {
                (under_way.makes_child, under_way.is_apart) = (true, true);
                Decision::GoAndTell(under_way)
            }
            other => other,
        })
    }

    /// A child is born, and has not run yet. It finds its descriptor's number where it has its parent's memory: the
    /// kernel has written that when the child had its copy already.
    pub(in crate::ahead) fn share_pidfd(&self, parent: ProcessId, child: ProcessId) {
        let apart = &self.ahead.children.apart;
        let Some(&at) = apart.descriptors.get(&parent).filter(|_| apart.parent(child) == Some(parent)) else { return };
        // What cannot be written is memory that the child does not have, and does not give back.
        let _ = tracee::read_value::<u32>(parent.leader(), at)
            .and_then(|number| tracee::write_bytes(child.leader(), at, &number.to_ne_bytes()));
    }

    /// The child is born. Its parent goes on when it has memory of its own, or has ended.
    pub(in crate::ahead) fn await_apart(&mut self, stopped: Stopped, pid: ProcessId, child: ProcessId) -> Result<()> {
        let tid = stopped.tid();
        let frame = Frame { nr: nr::vfork, ..Frame::default() };
        let call = Call { awaits: Some(ProcessId::from_raw(child.as_raw())), ..Call::new(tid, pid, frame, 0) };
        self.ahead.waiting.park(stopped, call);
        Ok(())
    }

    /// Whether a parent may go on: what its child has done until then it has observed.
    pub(in crate::ahead) fn decide_apart(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        child: ProcessId,
    ) -> Result<Decision> {
        if self.ahead.children.apart.parent(child).is_some() {
            return Ok(Decision::Wait);
        }
        // A parent that is back where it was before must not need a checkpoint in the middle of a call.
        let observes = vec![Dependent::Process(process(child))];
        let plan = Plan { class: Class::Fresh, observes, modifies: Vec::new(), can_be_repeated: false };
        Ok(match self.track(stopped, call, plan, Vec::new())? {
            Decision::Wait => Decision::Wait,
            _ => Decision::Go,
        })
    }

    /// What a child has written, and mapped, becomes its parent's, before the child executes a program or ends. False:
    /// the parent has to make calls for that, and has not come to wait yet.
    pub(in crate::ahead) fn hand_back(&mut self, child: &Stopped, pid: ProcessId) -> Result<bool> {
        let Some(parent) = self.ahead.children.apart.parent(pid) else { return Ok(true) };
        self.ahead.walks.forget();
        let halted = |stopped| {
            let gate = self.image.header.gate_program;
            Halted { stopped, gate, in_company: self.has_company(Stopped::tid(stopped)) }
        };
        let waits = self.ahead.waiting.iter().find(|parked| parked.call.awaits == Some(pid));
        let caller = waits.map(|parked| halted(&parked.stopped));
        #[allow(clippy::single_range_in_vec_init)]
        let given = checkpoint::give_memory(halted(child), parent, caller, &[AGENT_BASE..OWN_END]);
        let slot = |pid: ProcessId| Some(&self.world().processes[self.tracees.get(&pid.leader())?.process]);
        if let (Some(child), Some(parent)) = (slot(pid), slot(parent)) {
            parent.depend(&self.world().transactions, &child.clock.load(DOMAINS_MAX));
            parent.has_mapped_like(child);
        }
        match given {
            Ok(Some(given)) => self.ahead.trace(|| format!("{pid} gives to {parent}: {given:?}")),
            Ok(None) => return Ok(!self.is_bearing_apart(parent)),
            Err(error) if error.is_gone() => {}
            Err(CheckpointError::Trace(error)) => return Err(error),
            Err(error) => {
                let source = std::io::Error::other(error.to_string());
                return Err(TraceError::Kernel { what: "give memory to a parent", task: pid.into(), source });
            }
        }
        Ok(true)
    }

    /// Whether a thread of a process has not told yet that it has made such a child.
    pub(in crate::ahead) fn is_bearing_apart(&mut self, parent: ProcessId) -> bool {
        let threads = self.threads_of(parent);
        threads.iter().any(|&tid| self.ahead.under_way.of(tid).is_some_and(|call| call.is_apart))
    }
}

/// Whether a process lets go of its memory by this call, which is that.
pub(in crate::ahead) fn lets_go(call: &Call, class: &Class) -> bool {
    call.executes() || matches!(class, Class::Exit { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: ProcessId = ProcessId::from_raw(1);
    const CHILD: ProcessId = ProcessId::from_raw(2);
    const OTHER: ProcessId = ProcessId::from_raw(3);

    #[test]
    fn threads_and_what_shares_more_are_no_vfork() {
        let check = |flags, expected| assert_eq!(is_vfork(flags), expected, "{flags:x}");
        check(CLONE_VM | CLONE_VFORK | 17, true);
        check(CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND, true);
        check(CLONE_VM | 17, false);
        check(CLONE_VFORK | 17, false);
        check(CLONE_VM | CLONE_VFORK | CLONE_PIDFD, true);
        // CLONE_FILES, CLONE_SIGHAND, CLONE_THREAD
        for shared in [0x400, 0x800, 0x1_0000] {
            check(CLONE_VM | CLONE_VFORK | shared, false);
        }
    }

    #[test]
    fn a_parent_waits_until_its_child_has_left() {
        let mut apart = Apart::default();
        apart.begin(CHILD, PARENT);
        assert!(apart.parent(CHILD) == Some(PARENT) && !apart.take_leaving());
        apart.leave(OTHER);
        assert!(!apart.take_leaving());
        apart.leave(CHILD);
        assert!(apart.parent(CHILD).is_none() && apart.take_leaving() && !apart.take_leaving());
        apart.put_back(CHILD, Some(PARENT));
        assert_eq!(apart.parent(CHILD), Some(PARENT));
    }
}
