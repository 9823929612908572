//! What a process may do.

/// Whether a process may do what we may. One that gave something up can neither take descriptors from us nor have its limits put back.
pub(super) fn has_our_rights(pid: i32) -> bool {
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
