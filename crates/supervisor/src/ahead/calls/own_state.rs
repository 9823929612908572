//! What a process sets or asks of itself besides its memory: limits, names. What a checkpoint holds and a rollback
//! puts back (`checkpoint::state`) may be set on a guess; what is only asked may be asked; all else waits.

use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use checkpoint::VesselId;
use procfs::{ProcessId, Stat, Status};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use syscall_table::{nr, Op, Shows, Whom};

/// `prlimit64` and `setrlimit`, as far as they set a limit of the caller; `None`: it is another call. Of a process
/// without a checkpoint nothing has to be put back.
pub(in crate::ahead) fn plan_limit(call: &Call, has_no_checkpoint: bool) -> Option<Plan> {
    let args = &call.frame.args;
    let new = match call.frame.nr {
        nr::setrlimit => args[1],
        nr::prlimit64 if is_own(call, args[0] as i32) => args[2],
        _ => return None,
    };
    let can_be_put_back = new == 0 || keeps_hard_limit(call, new);
    Some(Plan::new(if can_be_put_back || has_no_checkpoint { Class::Free } else { Class::Barrier }).once())
}

/// Whether a number that a call was given means its own process.
fn is_own(call: &Call, number: i32) -> bool {
    number == 0 || number == call.pid.as_raw()
}

/// Whether only the soft limit is another one at `new`: a hard limit that was lowered can be raised again by some only.
fn keeps_hard_limit(call: &Call, new: u64) -> bool {
    let resource = call.frame.args[usize::from(call.frame.nr == nr::prlimit64)] as u32;
    let now = tracee::process_state::limit(call.pid, resource).map(|limit| limit.hard);
    let asked = tracee::read_value::<[u64; 2]>(call.tid, new).map(|[_, hard]| hard);
    matches!((now, asked), (Ok(now), Ok(asked)) if now == asked)
}

/// `setresuid` and its kin, and `capset`. What asks for the one user or group that the process has, as `posix_spawn`
/// does, or for the capabilities that the thread has, as `setpriv` does, changes nothing.
pub(in crate::ahead) fn plan_identity(call: &Call) -> Plan {
    if call.frame.nr == nr::capset && asks_for_own_capabilities(call) {
        return Plan::new(Class::Free).once();
    }
    let changes = ids_asked_for(call.frame.nr, &call.frame.args).is_none_or(|(kind, asked)| {
        let own = Status::of(call.pid).ok().and_then(|status| only_id(&status, kind));
        own.is_none_or(|own| asked.iter().any(|&id| id as u32 != own && id as u32 != u32::MAX))
    });
    Plan::new(if changes { Class::Barrier } else { Class::Free }).once()
}

/// Whether `capset` names the caller, and the capabilities that it has.
fn asks_for_own_capabilities(call: &Call) -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    let [header, data, ..] = call.frame.args;
    let low = |word: u64| word & u64::from(u32::MAX);
    let names_itself = |header: u64| {
        let number = (header >> 32) as i32;
        header as u32 == VERSION_3 && (number == 0 || number == call.tid.as_raw())
    };
    // Effective, permitted, inheritable: of the first 32, and then of the others.
    let asked = tracee::read_value::<[u64; 3]>(call.tid, data);
    let asked = asked.map(|[a, b, c]| [low(a) | b >> 32 << 32, a >> 32 | low(c) << 32, low(b) | c >> 32 << 32]);
    let own = || {
        let status = Status::of(call.tid).ok()?;
        Some([status.bits("CapEff").ok()?, status.bits("CapPrm").ok()?, status.bits("CapInh").ok()?])
    };
    tracee::read_value(call.tid, header).is_ok_and(names_itself) && asked.is_ok_and(|asked| own() == Some(asked))
}

/// Of which kind an id is.
#[derive(Clone, Copy)]
enum Ids {
    User,
    Group,
}

/// Of which kind a call sets ids, and which.
fn ids_asked_for(nr: u64, args: &[u64; 6]) -> Option<(Ids, &[u64])> {
    match nr {
        // setuid, setreuid, setresuid
        nr::setuid => Some((Ids::User, &args[..1])),
        nr::setreuid => Some((Ids::User, &args[..2])),
        nr::setresuid => Some((Ids::User, &args[..3])),
        // setgid, setregid, setresgid
        nr::setgid => Some((Ids::Group, &args[..1])),
        nr::setregid => Some((Ids::Group, &args[..2])),
        nr::setresgid => Some((Ids::Group, &args[..3])),
        _ => None,
    }
}

/// The real, effective and saved id, and that for files, if they are one.
fn only_id(status: &Status, kind: Ids) -> Option<u32> {
    let ids = match kind {
        Ids::User => status.users().ok()?,
        Ids::Group => status.groups().ok()?,
    };
    ids.iter().all(|&id| id == ids[0]).then_some(ids[0])
}

/// prctl(2). What is set and not put back by a rollback (the parent's death signal, who adopts orphans, no new
/// privileges, timer slack, …) waits.
pub(in crate::ahead) fn plan_prctl(call: &Call) -> Plan {
    const PR_SET_NAME: u64 = 15;
    const PR_SET_VMA: u64 = 0x5356_4d41;
    const PR_CAP_AMBIENT: u64 = 47;
    const PR_CAP_AMBIENT_IS_SET: u64 = 1;
    let [option, argument, ..] = call.frame.args;
    let is_free = match u64::from(option as u32) {
        PR_SET_NAME | PR_SET_VMA => true,
        PR_CAP_AMBIENT => argument == PR_CAP_AMBIENT_IS_SET,
        option => only_asks(option),
    };
    Plan::new(if is_free { Class::Free } else { Class::Barrier }).once()
}

/// Whether a call asks for a key of memory protection, or gives it back, where the processor has none: the kernel
/// refuses it. Of others a rollback would have to take back the key from each mapping.
pub(in crate::ahead) fn is_refused_key(call: &Call) -> bool {
    static HAS_KEYS: OnceLock<bool> = OnceLock::new();
    let has_keys = || {
        // Where that is not known, it has some.
        procfs::machine::processor_has("ospke").unwrap_or(true)
    };
    matches!(call.frame.nr, nr::pkey_alloc | nr::pkey_free) && !HAS_KEYS.get_or_init(has_keys)
}

impl Supervisor {
    /// Whether a call sets something of its process that nobody else sees, and a rollback takes it back by ending the
    /// process: it was born on a guess and has no checkpoint. One that it takes later finds what was set.
    pub(in crate::ahead) fn lasts_no_longer_than_its_process(&self, call: &Call) -> bool {
        const PRIO_PROCESS: u64 = 0;
        const IOPRIO_WHO_PROCESS: u64 = 1;
        let [which, who, ..] = call.frame.args;
        let is_own = match syscall_table::look_up(call.frame.nr) {
            Some((Op::Lasting, Shows::Own)) => true,
            Some((Op::OwnPages, Shows::Own)) => call.frame.nr == nr::pkey_mprotect,
            // Its own priority, and how it is scheduled.
            Some((Op::Barrier, _)) => {
                call.frame.nr == nr::setpriority && which == PRIO_PROCESS && is_own(call, who as i32)
            }
            Some((Op::Control { .. }, _)) => match call.frame.nr {
                nr::ioprio_set => which == IOPRIO_WHO_PROCESS && is_own(call, who as i32),
                nr::sched_setparam | nr::sched_setscheduler | nr::sched_setattr => is_own(call, which as i32),
                _ => false,
            },
            // Of no other process's clock.
            Some((Op::OwnTimer, shows)) => matches!(shows.whom(&call.frame.args), Whom::Caller),
            Some((Op::Prctl, _)) => {
                // PR_SET_: PDEATHSIG, KEEPCAPS, TIMERSLACK, NO_NEW_PRIVS, THP_DISABLE
                matches!(which as u32, 1 | 8 | 29 | 38 | 41)
            }
            _ => false,
        };
        is_own && self.ahead.checkpoints.of(call.pid).next().is_none()
    }

    /// Whether a call makes its process lead a group or a session of its own, and a rollback takes that back by ending
    /// the process. Whoever asks for its group, or sends a signal to one, waits. At a terminal a group says who may
    /// read there: what is read for a process would not be refused.
    pub(in crate::ahead) fn leads_as_long_as_it_lives(&self, call: &Call) -> bool {
        let [who, group, ..] = call.frame.args;
        let is_itself = |id: u64| is_own(call, id as i32);
        let has_no_terminal = || {
            let terminal = Stat::of(call.pid).and_then(|stat| stat.terminal());
            terminal.is_ok_and(|terminal| terminal.is_none())
        };
        let leads = match call.frame.nr {
            nr::setsid => true,
            nr::setpgid => is_itself(who) && is_itself(group) && has_no_terminal(),
            _ => false,
        };
        leads && self.ahead.checkpoints.of(call.pid).next().is_none()
    }

    /// Whether a thread gets a table of descriptors of its own, which no rollback would join with that of the others.
    pub(in crate::ahead) fn leaves_table(&self, call: &Call) -> bool {
        const CLOSE_RANGE_UNSHARE: u64 = 2;
        call.frame.args[2] & CLOSE_RANGE_UNSHARE != 0 && self.has_company(call.tid)
    }

    /// Whether a call locks or unlocks memory that no checkpoint of its process has: a rollback unmaps that.
    pub(in crate::ahead) fn locks_young_memory(&self, call: &Call) -> bool {
        let [start, len, ..] = call.frame.args;
        let end = start.saturating_add(len);
        let has_it = |vessel: VesselId| {
            let overlaps = |maps: procfs::Maps| {
                let mut areas = maps.iter().map(|mapping| mapping.addresses());
                areas.any(|area| area.start < end && start < area.end)
            };
            procfs::Maps::of(vessel).map_or(true, overlaps)
        };
        matches!(call.frame.nr, nr::mlock | nr::mlock2 | nr::munlock)
            && !self.ahead.checkpoints.of(call.pid).any(|kept| has_it(kept.vessel.id()))
    }
}

/// Whether a file says what of its process a core dump would hold. Each rollback puts that back.
pub(in crate::ahead) fn is_own_core_filter(pid: ProcessId, file: &OwnedFd) -> bool {
    let path = procfs::own_name(file);
    path.is_ok_and(|path| path.as_os_str() == format!("/proc/{pid}/coredump_filter").as_str())
}

const fn only_asks(option: u64) -> bool {
    matches!(
        option,
        // PR_GET_: PDEATHSIG, DUMPABLE, UNALIGN, KEEPCAPS, FPEMU, FPEXC, TIMING, NAME, ENDIAN, SECCOMP; PR_CAPBSET_READ
        2 | 3 | 5 | 7 | 9 | 11 | 13 | 16 | 19 | 21 | 23
        // PR_GET_: TSC, SECUREBITS, TIMERSLACK; PR_MCE_KILL_GET; PR_GET_: CHILD_SUBREAPER, NO_NEW_PRIVS,
        // TID_ADDRESS, THP_DISABLE
        | 25 | 27 | 30 | 34 | 37 | 39 | 40 | 42
        // PR_GET_: FP_MODE, SPECULATION_CTRL, TAGGED_ADDR_CTRL, IO_FLUSHER, MDWE, MEMORY_MERGE
        | 46 | 52 | 56 | 58 | 66 | 68
        // PR_GET_AUXV
        | 0x4155_5856
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_id_is_known_only_where_all_four_are_the_same() {
        let check = |text: &str, expected| {
            let status = Status::parse(ProcessId::own(), text.to_owned());
            assert_eq!(only_id(&status, Ids::User), expected, "{text}");
        };
        check("Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t1\t1\t1\t1\n", Some(7));
        check("Uid:\t7\t7\t0\t7\n", None);
        check("Gid:\t7\t7\t7\t7\n", None);
        check("Uid:\t7\t7\n", None);
    }

    #[test]
    fn what_sets_something_asks_for_nothing() {
        // PR_SET_: PDEATHSIG, DUMPABLE, KEEPCAPS, SECCOMP, SECUREBITS, TIMERSLACK, CHILD_SUBREAPER, NO_NEW_PRIVS;
        // PR_CAPBSET_DROP
        for option in [1, 4, 8, 22, 28, 29, 36, 38, 24] {
            assert!(!only_asks(option), "{option}");
        }
    }
}
