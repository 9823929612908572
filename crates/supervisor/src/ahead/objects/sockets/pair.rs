//! Pairs of sockets that a guess has made ([0175](../../../../../../docs/decisions/0175-pairs-of-a-guess.md)). Whoever
//! has an end of one got it from the process that made it, by being born. Had one of them come to depend on more since
//! then, it would have a checkpoint with that end. As long as nobody has such a checkpoint, they all depend on the
//! same, and whatever takes back what one of them has done takes the pair back. So nothing is kept of what is sent, and
//! the kernel tells the other end of a close.

use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::objects::sockets::is_special_message;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use std::os::fd::OwnedFd;
use syscall_table::Op;

impl Supervisor {
    /// What a call on an end of such a pair is; `None`: as on any other connection. Without a peer: nobody has it open
    /// any more.
    pub(in crate::ahead) fn plan_young_pair(&self, call: &Call, op: Op, own: u64, peer: Option<u64>) -> Option<Plan> {
        const ODD: i32 = libc::MSG_OOB | libc::MSG_ERRQUEUE | libc::MSG_PEEK;
        if !self.ahead.is_speculative(call.pid) || !self.is_young_pair(own, peer) {
            return None;
        }
        let args = &call.frame.args;
        let flags = match op {
            Op::Read { .. } | Op::Write { .. } | Op::Shutdown => 0,
            Op::Recv { .. } => args[3],
            Op::RecvMsg { .. } => args[2],
            Op::Send { .. } if args[4] == 0 => args[3],
            Op::SendMsg { .. } if !is_special_message(call) => args[2],
            _ => return None,
        } as i32;
        let takes = matches!(op, Op::Read { .. } | Op::Recv { .. } | Op::RecvMsg { .. });
        let changed = match (op, peer) {
            (Op::Shutdown, Some(peer)) => vec![own, peer],
            (_, Some(peer)) if !takes => vec![peer],
            _ => vec![own],
        };
        let changed: Vec<Object> = changed.into_iter().map(Object::Socket).collect();
        if flags & ODD != 0 || !self.ahead.core.gains(process(call.pid), &[], &changed).is_empty() {
            return None;
        }
        Some(plan_without_undo(changed, takes && flags & libc::MSG_WAITALL == 0))
    }

    /// Whether this is an end of such a pair: nobody who is put back will have it open.
    pub(in crate::ahead) fn is_end_of_young_pair(&mut self, end: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(end) else { return false };
        self.is_pair(stat.st_ino) && {
            let peer = self.unix_peer(end);
            self.is_young_pair(stat.st_ino, peer)
        }
    }

    fn is_young_pair(&self, own: u64, peer: Option<u64>) -> bool {
        let ahead = &self.ahead;
        let both = || [Some(own), peer].into_iter().flatten();
        let is_held = || both().any(|ino| ahead.ends.get(ino).is_some());
        self.is_pair(own)
            && !self.are_descriptors_passed()
            && !is_held()
            && !both().any(|ino| ahead.checkpoints.has_socket(ino))
    }

    /// Whether a socket was made inside as one of two.
    fn is_pair(&self, ino: u64) -> bool {
        self.world().socket_slot(ino).is_some_and(|slot| slot & 1 == 1)
    }
}

/// A call on a connection of which nothing is kept. One that wants all (`MSG_WAITALL`) would return what it has by then
/// if it were interrupted.
pub(super) fn plan_without_undo(changed: Vec<Object>, can_be_repeated: bool) -> Plan {
    let plan = changed.into_iter().fold(Plan::new(Class::Tracked), |plan, end| plan.modifying(end, Intent::Nothing));
    Plan { can_be_repeated, ..plan }
}
