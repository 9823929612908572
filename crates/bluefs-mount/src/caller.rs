//! Who has made a request: their groups, and whether they have a signal, from `/proc`.

use std::time::{Duration, Instant};

use bluefs::op::GROUPS_MAX;
use bluefs::Cred;
use fuser::Request;

/// Bit of SIGKILL in a mask of signals. A signal that ends a process for want of a handler is pending as SIGKILL.
const KILL: u64 = 1 << 8;
/// `PF_EXITING` of Linux, in the flags of a thread.
const EXITING: u64 = 4;
/// Requests to `fcntl`, as `/proc` shows arguments.
const F_OFD_GETLK: &str = "0x24";
const F_OFD_SETLK: &str = "0x25";
const F_OFD_SETLKW: &str = "0x26";
/// How long a caller is awaited that runs between its request and its wait for the answer, and how often looked at.
const RUNNING_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// What a request says of who has made it.
#[derive(Debug, Clone, Copy)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    thread: u32,
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
    /// Its rights.
    pub cred: Cred,
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

impl Caller {
    /// One that cannot be looked at.
    #[cfg(test)]
    pub fn nobody() -> Caller {
        Caller { cred: Cred::root(), thread: 0, since: Instant::now() }
    }

    /// Looks at who has made a request.
    pub fn of(who: Who) -> Caller {
        let Who { uid, gid, thread } = who;
        // Root has every right.
        let status = if uid == 0 { None } else { status(thread) };
        let groups = status.map_or_else(Vec::new, |status| groups(&status));
        Caller { cred: Cred { uid, gid, groups }, thread, since: Instant::now() }
    }

    /// Whether it has waited for so long.
    pub fn has_waited(&self, so_long: Duration) -> bool {
        self.since.elapsed() >= so_long
    }

    /// Whether it is about to end.
    pub fn is_killed(&self) -> bool {
        status(self.thread).is_some_and(|status| pending(&status) & KILL != 0)
    }

    /// Whether it has ended. Of a thread that cannot be looked at that is not known.
    pub fn is_gone(&self) -> bool {
        self.thread != 0 && !std::path::Path::new("/proc").join(self.thread.to_string()).exists()
    }

    /// Whether it is ending, and closes what it had open: it has no signals any more.
    pub fn is_exiting(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.thread));
        stat.is_ok_and(|stat| flags(&stat) & EXITING != 0)
    }

    /// Whether it is umount(8), which looks at a mount before it takes it away.
    pub fn unmounts(&self) -> bool {
        std::fs::read_to_string(format!("/proc/{}/comm", self.thread)).is_ok_and(|name| name.trim_end() == "umount")
    }

    /// Which call for a lock it is in. A request says that too, but fuser does not pass it on.
    pub fn lock_call(&self) -> LockCall {
        let begun = Instant::now();
        loop {
            let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.thread));
            match call.as_deref().map(str::trim_end) {
                // It has sent its request, and does not wait for the answer yet.
                Ok("running") if begun.elapsed() < RUNNING_MAX => std::thread::sleep(LOOK_EVERY),
                Ok(call) => return lock_call(call),
                Err(_) => return LockCall::Unknown,
            }
        }
    }

    /// Whether it has a signal to handle.
    pub fn has_signal(&self) -> bool {
        let wanted = |status: &String| pending(status) & !mask(status, "SigBlk") & !mask(status, "SigIgn") != 0;
        status(self.thread).is_some_and(|status| pending(&status) & KILL != 0 || wanted(&status))
    }
}

/// Of a thread in another namespace of processes, or of the kernel, the number is 0.
fn status(thread: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

/// Of a line of `/proc/PID/syscall`. No other call of either number takes locks.
fn lock_call(line: &str) -> LockCall {
    let mut words = line.split(' ');
    let (call, command) = (words.next(), words.nth(1));
    // The numbers of x86-64 and i386.
    match (call.unwrap_or_default(), command) {
        ("73" | "143", _) => LockCall::Flock,
        ("72" | "55" | "221", Some(F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW)) => LockCall::OpenFile,
        ("72" | "55" | "221", _) => LockCall::Fcntl,
        _ => LockCall::Unknown,
    }
}

/// Of a line of `/proc/PID/stat`: the seventh field behind the name, which may hold anything.
fn flags(stat: &str) -> u64 {
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(6).and_then(|flags| flags.parse().ok()).unwrap_or(0)
}

fn field<'s>(status: &'s str, name: &str) -> &'s str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map_or("", str::trim)
}

fn mask(status: &str, name: &str) -> u64 {
    u64::from_str_radix(field(status, name), 16).unwrap_or(0)
}

fn pending(status: &str) -> u64 {
    mask(status, "SigPnd") | mask(status, "ShdPnd")
}

fn groups(status: &str) -> Vec<u32> {
    field(status, "Groups").split_whitespace().filter_map(|group| group.parse().ok()).take(GROUPS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nGroups:\t4 24 27 \nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000002\n\
                          SigBlk:\t0000000000000002\nSigIgn:\t0000000000001000\n";

    #[test]
    fn fields_of_status() {
        assert_eq!(groups(STATUS), [4, 24, 27]);
        assert_eq!(pending(STATUS), 0x102);
        assert_eq!((mask(STATUS, "SigBlk"), mask(STATUS, "SigCgt")), (2, 0));
    }

    #[test]
    fn calls_that_take_locks() {
        assert_eq!(lock_call("73 0x3 0x2 0x0 0x0 0x0 0x0 0x7ffd 0x7f05"), LockCall::Flock);
        assert_eq!(lock_call("72 0x3 0x7 0x0 0x0 0x0 0x0 0x7ffd 0x7f05"), LockCall::Fcntl);
        assert_eq!(lock_call("72 0x3 0x25 0x7ffc 0x0 0x0 0x0 0x7ffd 0x7f05"), LockCall::OpenFile);
        assert_eq!((lock_call("running"), lock_call("-1 0x0 0x0")), (LockCall::Unknown, LockCall::Unknown));
    }

    #[test]
    fn flags_behind_a_name_with_everything() {
        assert_eq!(flags("77 (a) b (c)) S 1 77 77 0 -1 4194564 120"), 4_194_564);
        assert_eq!(flags(""), 0);
    }

    #[test]
    fn we_are_alive() {
        let caller = Caller { thread: std::process::id(), ..Caller::nobody() };
        assert!(!caller.is_killed() && !caller.is_exiting());
        assert!(!Caller::nobody().has_signal());
    }
}
