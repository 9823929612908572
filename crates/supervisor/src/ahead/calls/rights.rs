//! What a process may do.

use procfs::{MagicLink, ProcessId, Status, TaskId, ThreadId};

/// Whether a process may do what we may. One that gave something up can neither take descriptors from us nor have its
/// limits put back.
pub(in crate::ahead) fn has_our_rights(pid: ProcessId) -> bool {
    const NAMES: [&str; 5] = ["Uid", "Gid", "CapPrm", "CapEff", "CapBnd"];
    let own = ProcessId::own();
    let (Ok(its), Ok(ours)) = (Status::of(pid), Status::of(own)) else { return false };
    let is_same = |name: &&str| its.field(name).is_ok_and(|value| ours.field(name).is_ok_and(|own| own == value));
    NAMES.iter().all(is_same) && is_same_namespace((pid, "user"), (own, "user"))
}

/// Whether the numbers of processes that a process uses, and is told, are those by which we know them.
pub(in crate::ahead) fn has_our_numbers(tid: ThreadId) -> bool {
    is_in_our_namespace(tid, "pid")
}

/// Whether its next child has such a number, too. If not, the next child may be the first process of a new namespace,
/// without which nobody can be there: it must not be a checkpoint.
pub(in crate::ahead) fn children_have_our_numbers(pid: ProcessId) -> bool {
    is_in_our_namespace(pid, "pid_for_children")
}

fn is_in_our_namespace(task: impl Into<TaskId>, kind: &'static str) -> bool {
    is_same_namespace((task, kind), (ProcessId::own(), "pid"))
}

/// Whether two namespaces are known to be one, each by its process and its name there.
fn is_same_namespace(one: (impl Into<TaskId>, &'static str), other: (ProcessId, &'static str)) -> bool {
    let one = MagicLink::Namespace(one.1).shown(one.0);
    one.is_ok_and(|one| MagicLink::Namespace(other.1).shown(other.0).is_ok_and(|other| other == one))
}
