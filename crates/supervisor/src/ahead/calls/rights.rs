//! What a process may do.

use procfs::{ProcessId, TaskId, ThreadId};

/// Whether a process may do what we may. One that gave something up can neither take descriptors from us nor have its
/// limits put back.
pub(in crate::ahead) fn has_our_rights(pid: ProcessId) -> bool {
    const NAMES: [&str; 5] = ["Uid:", "Gid:", "CapPrm:", "CapEff:", "CapBnd:"];
    let status = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/status"));
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user"));
    let (pid, own) = (pid.to_string(), "self");
    let (Ok(its), Ok(ours)) = (status(&pid), status(own)) else { return false };
    let is_same = |name: &&str| {
        let line = |status: &str| status.lines().find(|line| line.starts_with(*name)).map(str::to_owned);
        line(&its).is_some_and(|value| Some(value) == line(&ours))
    };
    NAMES.iter().all(is_same) && namespace(&pid).ok().is_some_and(|its| Some(its) == namespace(own).ok())
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

fn is_in_our_namespace(task: impl Into<TaskId>, kind: &str) -> bool {
    let namespace = |of: &str, kind: &str| std::fs::read_link(format!("/proc/{of}/ns/{kind}")).ok();
    let ours = namespace("self", "pid");
    ours.is_some() && namespace(&task.into().to_string(), kind) == ours
}
