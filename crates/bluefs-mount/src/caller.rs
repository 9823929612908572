//! Who has made a request: their groups, and whether they have a signal, from `/proc`.
//!
//! A program that `execve` replaces closes its files under a lock for which readers of `stat`, `stack` and `syscall` in
//! `/proc` wait. If the mount read one of these for the request to close a file, both would wait for ever. So it reads
//! `status`, which waits for nothing; `stack` and `syscall` only for requests that no program makes while it is
//! replaced (attributes, locks).

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bluefs::op::GROUPS_MAX;
use bluefs::{Change, Cred, Errno};
use fuser::Request;
use procfs::{Activity, MagicLink, Status, ThreadId};

/// Bit of SIGKILL in a mask of signals. A signal that ends a process for want of a handler is pending as SIGKILL.
const KILL: u64 = 1 << 8;
/// The kernel's function that walks through the directories of a path, as `/proc/PID/stack` names it.
const WALK: &[u8] = b"link_path_walk";
/// Requests to `fcntl`.
const F_OFD_GETLK: u64 = 36;
const F_OFD_SETLK: u64 = 37;
const F_OFD_SETLKW: u64 = 38;
/// Capabilities of Linux, as bits.
const CHOWN: u64 = 1;
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const FOWNER: u64 = 1 << 3;
const SYS_ADMIN: u64 = 1 << 21;
const MKNOD: u64 = 1 << 27;
/// [`Cred::root`].
static ROOT: Cred = Cred { uid: 0, gid: 0, groups: Vec::new() };
/// How long a caller is awaited that runs between its request and its wait for the answer, and how often looked at.
const RUNNING_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// What a request says of who has made it.
#[derive(Debug, Clone, Copy)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    /// Its number; 0 if it cannot be looked at.
    pub thread: u32,
}

impl Who {
    /// Of this request.
    pub fn of(request: &Request) -> Who {
        Who { uid: request.uid(), gid: request.gid(), thread: request.pid() }
    }
}

/// Who has made a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Its rights without those of its groups.
    alone: Cred,
    /// All of them, once somebody has looked: that takes as long as a request.
    all: OnceLock<Rights>,
    thread: u32,
    /// Since when it waits.
    since: Instant,
}

/// Which call wants a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockCall {
    /// `fcntl` for a process.
    Fcntl,
    /// `fcntl` for an open file description.
    OpenFile,
    Flock,
    /// The caller cannot be looked at.
    Unknown,
}

/// All rights of a caller that is not root.
#[derive(Debug, Clone)]
struct Rights {
    cred: Cred,
    /// Groups that are not in `cred`, for want of room.
    other_groups: Vec<u32>,
    capabilities: u64,
}

impl Rights {
    fn of(alone: &Cred, thread: u32, status: Option<&Status>) -> Rights {
        let mut groups = status.map_or_else(Vec::new, groups);
        let other_groups = groups.split_off(groups.len().min(GROUPS_MAX));
        let capabilities = status.map_or(0, |status| mask(status, "CapEff"));
        // In a user namespace of its own it has them for that alone.
        let is_ours = || {
            let namespace = |thread| MagicLink::Namespace("user").shown(id(thread)).ok();
            namespace(thread).is_some_and(|its| Some(its) == namespace(std::process::id()))
        };
        let capabilities = if capabilities != 0 && is_ours() { capabilities } else { 0 };
        Rights { cred: Cred { groups, ..alone.clone() }, other_groups, capabilities }
    }

    /// Whether it has one of these capabilities.
    fn may(&self, capabilities: u64) -> bool {
        self.capabilities & capabilities != 0
    }
}

impl Caller {
    /// One that cannot be looked at.
    #[cfg(test)]
    pub fn nobody() -> Caller {
        Caller::of(Who { uid: 0, gid: 0, thread: 0 })
    }

    /// Who has made a request.
    pub fn of(who: Who) -> Caller {
        let Who { uid, gid, thread } = who;
        let alone = Cred { uid, gid, groups: Vec::new() };
        Caller { alone, all: OnceLock::new(), thread, since: Instant::now() }
    }

    /// Its rights without those of its groups.
    pub fn alone(&self) -> &Cred {
        &self.alone
    }

    /// Its rights.
    pub fn cred(&self) -> &Cred {
        // Root has every right.
        if self.alone.is_root() {
            return &self.alone;
        }
        &self.all().cred
    }

    fn all(&self) -> &Rights {
        self.all.get_or_init(|| Rights::of(&self.alone, self.thread, self.status().as_ref()))
    }

    /// The rights by which it looks at something. The kernel has decided by all that it may.
    pub fn cred_to_look(&self) -> &Cred {
        let is_more = |all: &Rights| all.may(DAC_OVERRIDE | DAC_READ_SEARCH) || !all.other_groups.is_empty();
        if !self.alone.is_root() && is_more(self.all()) {
            return &ROOT;
        }
        self.cred()
    }

    /// Whether it is in more groups than a server is told.
    pub fn has_many_groups(&self) -> bool {
        !self.alone.is_root() && !self.all().other_groups.is_empty()
    }

    /// Its rights, with those of these groups that it is in.
    pub fn cred_with(&self, groups: &[u32]) -> Cred {
        let mut cred = self.cred().clone();
        if self.has_many_groups() {
            let other_groups = &self.all().other_groups;
            cred.groups.splice(0..0, groups.iter().copied().filter(|group| other_groups.contains(group)));
            cred.groups.truncate(GROUPS_MAX);
        }
        cred
    }

    /// Whether it may do what its user and its groups may not (capabilities(7)). `errno` is what it would be told.
    pub fn overrides(&self, change: &Change, errno: Errno) -> bool {
        let needed = match (errno, change) {
            (Errno::ACCES, Change::SetAttr { set, .. }) if set.size.is_none() => DAC_OVERRIDE | FOWNER,
            (Errno::ACCES, _) => DAC_OVERRIDE,
            (Errno::PERM, Change::SetAttr { set, .. }) if set.uid.is_some() || set.gid.is_some() => CHOWN,
            (Errno::PERM, Change::Create { .. }) => MKNOD,
            (Errno::PERM, Change::SetXattr { .. } | Change::RemoveXattr { .. }) => SYS_ADMIN,
            (Errno::PERM, Change::Link { .. }) => 0,
            (Errno::PERM, _) => FOWNER,
            _ => 0,
        };
        !self.alone.is_root() && self.all().may(needed)
    }

    /// The rights of the superuser, for what it makes.
    pub fn cred_as_root(&self) -> Cred {
        Cred { uid: 0, ..self.alone.clone() }
    }

    /// Whether it has waited for so long.
    pub fn has_waited(&self, so_long: Duration) -> bool {
        self.since.elapsed() >= so_long
    }

    /// Whether it is about to end.
    pub fn is_killed(&self) -> bool {
        self.status().is_some_and(|status| pending(&status) & KILL != 0)
    }

    /// Whether it has ended. Of a thread that cannot be looked at that is not known.
    pub fn is_gone(&self) -> bool {
        self.thread != 0 && procfs::is_unknown(id(self.thread))
    }

    /// Whether it is ending, and closes what it had open: it has no signals any more, nor any memory.
    pub fn is_exiting(&self) -> bool {
        self.status().is_some_and(|status| status.field("VmSize").is_err())
    }

    /// Whether it asks because it walks through a directory, and has no lock of one: `true` if that is not known.
    pub fn walks(&self) -> bool {
        let state = self.status().and_then(|status| status.state().ok());
        // The stack of one that runs is not what it was. None that asks for attributes is being replaced.
        if !matches!(state, Some('S' | 'D')) {
            return true;
        }
        let stack = procfs::read(id(self.thread), "stack").unwrap_or_default();
        stack.is_empty() || stack.windows(WALK.len()).any(|part| part == WALK)
    }

    /// Whether it is umount(8), which looks at a mount before it takes it away.
    pub fn unmounts(&self) -> bool {
        procfs::program_name(id(self.thread)).is_ok_and(|name| name == "umount")
    }

    /// Which call for a lock it is in. A request says that too, but fuser does not pass it on.
    pub fn lock_call(&self) -> LockCall {
        let begun = Instant::now();
        loop {
            match procfs::activity(id(self.thread)) {
                // It has sent its request, and does not wait for the answer yet.
                Ok(Activity::Runs) if begun.elapsed() < RUNNING_MAX => std::thread::sleep(LOOK_EVERY),
                Ok(Activity::InCall(number, arguments)) => return lock_call(number, &arguments),
                _ => return LockCall::Unknown,
            }
        }
    }

    /// Whether it has a signal to handle.
    pub fn has_signal(&self) -> bool {
        let wanted = |status: &Status| pending(status) & !mask(status, "SigBlk") & !mask(status, "SigIgn") != 0;
        self.status().is_some_and(|status| pending(&status) & KILL != 0 || wanted(&status))
    }

    fn status(&self) -> Option<Status> {
        Status::of(id(self.thread)).ok()
    }
}

/// Of a thread in another namespace of processes, or of the kernel, the number is 0: `/proc` knows no such thread.
pub fn id(thread: u32) -> ThreadId {
    ThreadId::from_raw(thread as i32)
}

/// Of a call and its arguments. No other call of either number takes locks.
fn lock_call(number: u64, arguments: &[u64; 6]) -> LockCall {
    let [_, command, ..] = *arguments;
    // The numbers of x86-64 and i386.
    match number {
        73 | 143 => LockCall::Flock,
        72 | 55 | 221 if matches!(command, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW) => LockCall::OpenFile,
        72 | 55 | 221 => LockCall::Fcntl,
        _ => LockCall::Unknown,
    }
}

fn mask(status: &Status, name: &str) -> u64 {
    status.bits(name).unwrap_or(0)
}

fn pending(status: &Status) -> u64 {
    mask(status, "SigPnd") | mask(status, "ShdPnd")
}

fn groups(status: &Status) -> Vec<u32> {
    let groups = status.field("Groups").unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nGroups:\t4 24 27 \nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000002\n\
                          SigBlk:\t0000000000000002\nSigIgn:\t0000000000001000\n";

    #[test]
    fn fields_of_status() {
        let status = Status::parse(ThreadId::from_raw(1), STATUS.to_owned());
        assert_eq!(groups(&status), [4, 24, 27]);
        assert_eq!(pending(&status), 0x102);
        assert_eq!((mask(&status, "SigBlk"), mask(&status, "SigCgt")), (2, 0));
    }

    #[test]
    fn calls_that_take_locks() {
        let check = |number, command, expected| assert_eq!(lock_call(number, &[3, command, 0, 0, 0, 0]), expected);
        check(73, 2, LockCall::Flock);
        check(72, 7, LockCall::Fcntl);
        check(72, 0x25, LockCall::OpenFile);
        check(0, 0x25, LockCall::Unknown);
    }

    #[test]
    fn groups_are_looked_at_when_rights_are_asked_for() {
        let caller = Caller::of(Who { uid: 1000, gid: 1000, thread: std::process::id() });
        assert!(caller.alone().groups.is_empty() && caller.all.get().is_none());
        let status = Status::of(id(std::process::id())).expect("it is there");
        assert_eq!(caller.cred().groups, groups(&status));
        assert!(caller.all.get().is_some());
    }

    /// A caller whose `status` says this. Its thread is one of ours, and so it is in our user namespace.
    fn caller(status: &str) -> Caller {
        let thread = std::process::id();
        let caller = Caller::of(Who { uid: 1000, gid: 1000, thread });
        let status = Status::parse(ThreadId::from_raw(1), status.to_owned());
        let _ = caller.all.set(Rights::of(caller.alone(), thread, Some(&status)));
        caller
    }

    #[test]
    fn of_many_groups_those_that_matter_are_told() {
        let groups: Vec<String> = (2000..2100).map(|group| group.to_string()).collect();
        let caller = caller(&format!("Groups:\t{}\n", groups.join(" ")));
        assert!(caller.has_many_groups() && caller.cred().groups.len() == GROUPS_MAX);
        let told = caller.cred_with(&[7, 2001, 2099]);
        assert!(told.groups.len() == GROUPS_MAX && told.in_group(2099) && told.in_group(2001) && !told.in_group(7));
        assert!(caller.cred_to_look().is_root());
    }

    #[test]
    fn what_capabilities_are_for() {
        let of = |bits: u64| caller(&format!("Groups:\t\nCapEff:\t{bits:016x}\n"));
        let ino = bluefs::Ino(5);
        let set = |set| Change::SetAttr { ino, set };
        let owner = set(bluefs::op::SetAttr { uid: Some(5), ..Default::default() });
        let mode = set(bluefs::op::SetAttr { mode: Some(0o600), ..Default::default() });
        assert!(of(CHOWN).overrides(&owner, Errno::PERM) && !of(CHOWN).overrides(&mode, Errno::PERM));
        assert!(of(FOWNER).overrides(&mode, Errno::PERM) && !of(FOWNER).overrides(&owner, Errno::PERM));
        let remove = Change::Unlink { dir: ino, name: bluefs::Name::new(b"x").expect("a name") };
        assert!(of(DAC_OVERRIDE).overrides(&remove, Errno::ACCES) && !of(CHOWN).overrides(&remove, Errno::ACCES));
        assert!(!of(!0).overrides(&remove, Errno::NOENT));
        assert!(of(DAC_READ_SEARCH).cred_to_look().is_root() && !of(CHOWN).cred_to_look().is_root());
    }

    #[test]
    fn we_are_alive() {
        let caller = Caller { thread: std::process::id(), ..Caller::nobody() };
        assert!(!caller.is_killed() && !caller.is_exiting());
        assert!(!Caller::nobody().has_signal());
    }
}
