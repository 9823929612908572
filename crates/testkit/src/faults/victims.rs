//! The processes that stand around a world: the one that was started, and its child that leads a session of its own.

use std::fs;

use procfs::{ProcessId, Stat};
use rustix::process::Pid;

/// Whom it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// What was started, COMMAND's parent.
    Front,
    /// What holds COMMAND.
    Supervisor,
}

/// The process, if it is there.
pub fn find(victim: Victim, front: i32) -> Option<Pid> {
    match victim {
        Victim::Front => Pid::from_raw(front).filter(|_| is_speculator(front)),
        Victim::Supervisor => {
            let path = format!("/proc/{front}/task/{front}/children");
            let children = fs::read_to_string(path).ok()?;
            let mut children = children.split_whitespace().filter_map(|word| word.parse().ok());
            children.find(|&child| leads_session(child) && is_speculator(child)).and_then(Pid::from_raw)
        }
    }
}

/// The session is 0 where its leader is outside of our pid namespace.
fn leads_session(pid: i32) -> bool {
    pid > 0 && Stat::of(ProcessId::from_raw(pid)).and_then(|stat| stat.session()).is_ok_and(|session| session == pid)
}

fn is_speculator(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "speculator")
}
