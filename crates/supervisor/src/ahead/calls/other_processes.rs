//! What a name below `/proc`, or a file there, tells of other processes. What those inside do on a guess is to be seen
//! by nobody who does not depend on it, and what is read in `/proc` cannot be tracked: it waits. Processes outside the
//! world do nothing on a guess.

use crate::ahead::calls::plan::is_caller;
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use procfs::{MagicLink, ProcessId};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use syscall_table::Op;

impl Supervisor {
    /// Whether it looks up a name that leads through /proc to another process, while something is speculative.
    pub(super) fn leads_to_others(&self, call: &Call, op: Op) -> bool {
        if op.paths()[0].is_none() || !self.is_anything_speculative() {
            return false;
        }
        let elsewhere = self.world().options.load(Ordering::Relaxed) & agent_abi::option::PROC_ELSEWHERE != 0;
        elsewhere || op.paths().into_iter().flatten().any(|(dir, path)| self.path_leads_to_others(call, dir, path))
    }

    fn path_leads_to_others(&self, call: &Call, dir: u8, path: u8) -> bool {
        let args = &call.frame.args;
        let Some(path) = crate::requests::read_path(call.tid, args[usize::from(path) % 6]) else { return false };
        let base = match args[usize::from(dir) % 6] as i32 {
            _ if path.is_absolute() => PathBuf::new(),
            fd if dir != syscall_table::CWD && fd != libc::AT_FDCWD => {
                MagicLink::Fd(fd).shown(call.tid).unwrap_or_default()
            }
            _ => MagicLink::Cwd.shown(call.tid).unwrap_or_default(),
        };
        let whole = base.join(path).into_os_string().into_vec();
        syscall_table::may_lead_to_others(whole.iter().copied(), |id| is_caller(call, id))
            && !self.tells_of_outsider(call, &whole)
    }

    /// Whether an open file of proc or sysfs tells of what another process inside does.
    pub(super) fn file_tells_of_others(&self, call: &Call, file: &OwnedFd) -> bool {
        let Ok(path) = procfs::own_name(file) else { return true };
        !tells_only_of(call.pid, &path) && !self.tells_of_outsider(call, path.as_os_str().as_bytes())
    }

    /// Whether a path is that of a process outside the world, or of a file that tells of nobody but that one: no guess
    /// has changed it, and a rollback changes nothing of it.
    fn tells_of_outsider(&self, call: &Call, path: &[u8]) -> bool {
        const FILES: [&str; 13] = [
            "",
            "cgroup",
            "cmdline",
            "comm",
            "environ",
            "limits",
            "maps",
            "mountinfo",
            "mounts",
            "sched",
            "stat",
            "statm",
            "status",
        ];
        let Some(rest) = std::str::from_utf8(path).ok().and_then(|path| path.strip_prefix("/proc/")) else {
            return false;
        };
        let (number, file) = rest.split_once('/').unwrap_or((rest, ""));
        let number = number.parse().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()));
        // A descriptor's own name, with nothing behind it, ends with a slash.
        FILES.contains(&file.trim_end_matches('/'))
            && self.counts_as_we_do(call.tid)
            && number.is_some_and(|number| self.is_outsider(ProcessId::from_raw(number)))
    }
}

/// Whether a file of proc or sysfs tells of nobody but this process, or of the machine.
fn tells_only_of(pid: ProcessId, path: &Path) -> bool {
    // No process that is speculative makes a control group, or gets a device a number.
    const MACHINE: [&str; 9] =
        ["cpuinfo", "meminfo", "filesystems", "version", "uptime", "loadavg", "stat", "cgroups", "devices"];
    if path.starts_with("/sys") {
        return true;
    }
    // Of a network others tell who is connected, and what sockets are called.
    const NETWORK: [&str; 4] = ["dev", "if_inet6", "ipv6_route", "route"];
    let Ok(rest) = path.strip_prefix("/proc") else { return false };
    let parts: Vec<_> = rest.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    match &parts[..] {
        [sys, ..] if sys == "sys" => true,
        [_, net, file] if net == "net" => NETWORK.contains(&file.as_str()),
        [_, net, ..] if net == "net" => false,
        [first, ..] => *first == pid.to_string() || MACHINE.contains(&first.as_str()),
        [] => false,
    }
}
