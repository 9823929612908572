//! What a process may do.

use crate::ahead::filesystems::path_walk::Found;
use crate::descriptors::file_system_user_of;
use crate::event_loop::Supervisor;
use agent_abi::PROCESS_PRIVILEGES;
use procfs::{MagicLink, ProcessId, Status, TaskId, ThreadId};
use rustix::process::Gid;
use std::sync::atomic::Ordering;
use std::sync::OnceLock;

impl Supervisor {
    /// Whether a process may do what we may. One that gave something up can neither take descriptors from us nor have
    /// its limits put back.
    pub(in crate::ahead) fn has_our_rights(&self, pid: ProcessId) -> bool {
        !self.may_have_changed_rights(pid) || compares_rights(pid)
    }

    /// Whether a process is root as we are, so that what we make for it is what it would make.
    pub(in crate::ahead) fn is_root_as_we_are(&self, pid: ProcessId) -> bool {
        match self.may_have_changed_rights(pid) {
            true => file_system_user_of(pid.leader()).is_ok_and(|user| user == 0) && compares_rights(pid),
            false => rustix::process::geteuid().is_root(),
        }
    }

    /// The group that a process gives to what it makes, where the directory does not say otherwise.
    pub(in crate::ahead) fn file_system_group_of(&self, pid: ProcessId) -> Option<Gid> {
        if !self.may_have_changed_rights(pid) {
            return Some(rustix::process::getegid());
        }
        let [_, _, _, for_files] = Status::of(pid).and_then(|status| status.groups()).ok()?;
        Some(Gid::from_raw(for_files))
    }

    /// Whether a process may change the entries of a directory, whatever they are: it is its owner, who may write
    /// there, or has root's rights.
    pub(in crate::ahead) fn may_change(&self, pid: ProcessId, dir: &Found) -> bool {
        const OWNER_MAY: u32 = 0o300;
        const OVERRIDES: u64 = DAC_OVERRIDE | FOWNER;
        let Some(RightsToFiles { user, capabilities }) = self.rights_to_files(pid) else { return false };
        let is_owner = user == dir.stat.st_uid && dir.stat.st_mode & OWNER_MAY == OWNER_MAY;
        is_owner || capabilities & OVERRIDES == OVERRIDES
    }

    /// Whether a process is a file's owner, whatever becomes of what is held, or may do what that one may.
    pub(in crate::ahead) fn is_owner(&self, pid: ProcessId, file: &Found) -> bool {
        let Some(RightsToFiles { user, capabilities }) = self.rights_to_files(pid) else { return false };
        capabilities & FOWNER != 0 || user == file.stat.st_uid && !self.ahead.attributes.has(&file.stat)
    }

    fn rights_to_files(&self, pid: ProcessId) -> Option<RightsToFiles> {
        match self.may_have_changed_rights(pid) {
            true => RightsToFiles::of(pid),
            false => *OWN.get_or_init(|| RightsToFiles::of(ProcessId::own())),
        }
    }

    /// Whether a process, or one that it descends from, has tried to change its user, groups, capabilities or
    /// namespaces. If not, it has those with which COMMAND began, which are ours, and no file of `/proc` need be read.
    pub(in crate::ahead) fn may_have_changed_rights(&self, pid: ProcessId) -> bool {
        let flags = |slot: usize| self.world().processes[slot].flags.load(Ordering::Relaxed);
        self.tracees.get(&pid.leader()).is_none_or(|tracee| flags(tracee.process) & PROCESS_PRIVILEGES != 0)
    }
}

// Capabilities: CAP_DAC_OVERRIDE and CAP_FOWNER.
const DAC_OVERRIDE: u64 = 1 << 1;
const FOWNER: u64 = 1 << 3;

/// What decides which files a process may change.
#[derive(Clone, Copy, Debug)]
struct RightsToFiles {
    user: u32,
    capabilities: u64,
}

/// Ours, which do not change.
static OWN: OnceLock<Option<RightsToFiles>> = OnceLock::new();

impl RightsToFiles {
    fn of(pid: ProcessId) -> Option<Self> {
        // Real, effective, saved, of file systems.
        const OF_FILE_SYSTEMS: usize = 3;
        let status = Status::of(pid).ok()?;
        let user = status.number("Uid", OF_FILE_SYSTEMS).ok()?;
        Some(Self { user, capabilities: status.bits("CapEff").unwrap_or(0) })
    }
}

fn compares_rights(pid: ProcessId) -> bool {
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
