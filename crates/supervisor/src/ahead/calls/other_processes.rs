//! What a name below `/proc`, or a file there, tells of other processes. What those inside do on a guess is to be seen
//! by nobody who does not depend on it. Processes outside the world do nothing on a guess.
//!
//! Few files tell of their process nothing but what it has done itself. Whoever looks up such a name, or reads such a
//! file, observes the process ([0329](../../../../../docs/decisions/0329-looks-at-a-process.md)). The file is read by
//! us: nobody gains a dependency meanwhile. All else waits.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{is_caller, Class, Plan};
use crate::ahead::filesystems::open::{open_flags, O_CREAT, O_TMPFILE, O_TRUNC};
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::rollback::undo::{position_of, Intent};
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use procfs::{MagicLink, ProcessId};
use rustix::fs::SeekFrom;
use speculation::Dependent;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use syscall_table::{nr, Op};
use tracee::{Result, Stopped};

/// The file that says in which state its process is, behind the name of its program.
const STATE: &str = "stat";

/// A file that is read.
#[derive(Debug)]
pub(crate) struct FileOfProcess {
    file: OwnedFd,
    /// It tells in which state its process is.
    tells_state: bool,
}

impl Supervisor {
    /// A call that looks up a name that leads through /proc to another process, while something is speculative. `None`:
    /// it is another one.
    pub(super) fn plan_look_at_others(&mut self, call: &Call, op: Op) -> Option<Plan> {
        if op.paths()[0].is_none() || !self.is_anything_speculative() {
            return None;
        }
        let elsewhere = self.world().options.load(Ordering::Relaxed) & agent_abi::option::PROC_ELSEWHERE != 0;
        let mut names = op.paths().into_iter().flatten();
        if !elsewhere && !names.any(|(dir, path)| self.path_leads_to_others(call, dir, path).is_some()) {
            return None;
        }
        let told_by = if elsewhere { None } else { self.looked_at(call, op) };
        let Some(pid) = told_by else { return Some(Plan::new(Class::Window).once()) };
        let mut plan = self.plan_lookup(call.pid);
        plan.observes.push(Dependent::Process(process(pid)));
        Some(plan)
    }

    /// Which process inside a name tells of, by a call that does nothing but look it up.
    fn looked_at(&self, call: &Call, op: Op) -> Option<ProcessId> {
        let only_looks = match op {
            Op::Open | Op::OpenAt => {
                open_flags(call) & (u64::from(libc::O_ACCMODE as u32) | O_CREAT | O_TRUNC | O_TMPFILE) == 0
            }
            Op::ObservePath { .. } | Op::StatPath { .. } | Op::Statx => true,
            _ => false,
        };
        let [Some((dir, path)), None] = op.paths() else { return None };
        let name = self.path_leads_to_others(call, dir, path).filter(|_| only_looks)?;
        let (pid, _) = self.told_by_itself(call, &name)?;
        Some(pid)
    }

    /// The whole of a name that leads to other processes than the caller, and those outside.
    fn path_leads_to_others(&self, call: &Call, dir: u8, path: u8) -> Option<Vec<u8>> {
        let args = &call.frame.args;
        let path = crate::requests::read_path(call.tid, args[usize::from(path) % 6])?;
        let base = match args[usize::from(dir) % 6] as i32 {
            _ if path.is_absolute() => PathBuf::new(),
            fd if dir != syscall_table::CWD && fd != libc::AT_FDCWD => {
                MagicLink::Fd(fd).shown(call.tid).unwrap_or_default()
            }
            _ => MagicLink::Cwd.shown(call.tid).unwrap_or_default(),
        };
        let whole = base.join(path).into_os_string().into_vec();
        let leads = syscall_table::may_lead_to_others(whole.iter().copied(), |id| is_caller(call, id))
            && !self.tells_of_outsider(call, &whole);
        leads.then_some(whole)
    }

    /// A read of a file of proc or sysfs that tells of what another process inside does. `None`: it tells of none.
    pub(super) fn plan_read_of_others(&mut self, call: &Call, fd: i32) -> Option<Plan> {
        let FileDescription::File { dev, ino, copy: file, .. } = self.file_description(call.tid, fd) else {
            return None;
        };
        if !self.file_tells_of_others(call, &file) {
            return None;
        }
        let told = || {
            let name = procfs::own_name(&file).ok()?;
            let (pid, name) = self.told_by_itself(call, name.as_os_str().as_bytes())?;
            // We see what the caller would see.
            let is_read = matches!(call.frame.nr, nr::read | nr::pread64) && self.has_our_rights(call.pid);
            let tells_state = name == STATE;
            (is_read && self.is_anything_speculative() && (!tells_state || has_room_for_state(call, &file)))
                .then_some((pid, tells_state))
        };
        let Some((pid, tells_state)) = told() else { return Some(Plan::new(Class::Window)) };
        let position = file.try_clone().ok()?;
        let mut plan = Plan::new(Class::OfProcess(FileOfProcess { file, tells_state })).once();
        plan.observes = vec![Dependent::Object(Object::File(dev, ino)), Dependent::Process(process(pid))];
        if call.frame.nr == nr::read {
            plan = plan.modifying(position_of(dev, ino), Intent::Position(position));
        }
        Some(plan)
    }

    /// The file is read for the caller.
    pub(super) fn read_of_process(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        mut plan: Plan,
        FileOfProcess { file, tells_state }: FileOfProcess,
    ) -> Result<Decision> {
        /// More than these files hold, but for a very long command line.
        const LEN_MAX: u64 = 1 << 20;
        let [_, buffer, len, offset, ..] = call.frame.args;
        let error = |errno: rustix::io::Errno| Decision::Answer(-i64::from(errno.raw_os_error()));
        let modifies = std::mem::take(&mut plan.modifies);
        if matches!(self.track(stopped, call, plan, modifies)?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        self.observe_everything(call.tid);
        let mut bytes = vec![0; len.min(LEN_MAX) as usize];
        let before = rustix::fs::seek(&file, SeekFrom::Current(0));
        let start = if call.frame.nr == nr::pread64 { Ok(offset) } else { before };
        let read = match call.frame.nr {
            nr::pread64 => rustix::io::pread(&file, &mut bytes, offset),
            _ => rustix::io::read(&file, &mut bytes),
        };
        match read {
            Ok(read) => bytes.truncate(read),
            Err(errno) => return Ok(error(errno)),
        }
        if tells_state && start == Ok(0) {
            show_as_running(&mut bytes);
        }
        if !bytes.is_empty() && tracee::write_bytes(call.tid, buffer, &bytes).is_err() {
            if let (nr::read, Ok(before)) = (call.frame.nr, before) {
                let _ = rustix::fs::seek(&file, SeekFrom::Start(before));
            }
            return Ok(error(rustix::io::Errno::FAULT));
        }
        Ok(Decision::Answer(bytes.len() as i64))
    }

    /// Which process inside a path tells of, and by which of the files that tell only what it has done itself, or what
    /// it is. One that stands still because of a guess, has ended, or has to hear a signal would be another one
    /// natively.
    fn told_by_itself<'a>(&self, call: &Call, path: &'a [u8]) -> Option<(ProcessId, &'a str)> {
        const FILES: [&str; 5] = ["", "cmdline", "comm", STATE, "statm"];
        let (pid, file) = of_process(path).filter(|(_, file)| FILES.contains(file))?;
        if self.ahead.children.held_exits.contains_key(&pid) || !self.counts_as_we_do(call.tid) {
            return None;
        }
        if let Some(parent) = self.ahead.unasked_ends.parent(pid) {
            // It has ended as natively, and the kernel knows whether its parent has waited for it.
            return Some((parent, file));
        }
        let leader = pid.leader();
        let is_process = |slot: usize| self.world().processes[slot].pid.load(Ordering::Acquire) as i32 == pid.as_raw();
        let tracee = self.tracees.get(&leader).filter(|tracee| tracee.thread.is_some() && is_process(tracee.process));
        let is_itself = tracee.is_some()
            && !self.is_without_agent(leader)
            && !self.ahead.ending.contains_key(&pid)
            && !self.ahead.signals.has_any_for(pid)
            && self.ahead.held_signals.of(pid).is_empty()
            && !self.ahead.waiting.has(leader)
            && !self.is_orphan(pid);
        is_itself.then_some((pid, file))
    }

    /// Whether an open file of proc or sysfs tells of what another process inside does.
    fn file_tells_of_others(&self, call: &Call, file: &OwnedFd) -> bool {
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
        let told = of_process(path).filter(|(_, file)| FILES.contains(file) && self.counts_as_we_do(call.tid));
        told.is_some_and(|(pid, _)| self.is_outsider(pid))
    }
}

/// Of which process a path tells, and by which file.
fn of_process(path: &[u8]) -> Option<(ProcessId, &str)> {
    let rest = std::str::from_utf8(path).ok()?.strip_prefix("/proc/")?;
    let (number, file) = rest.split_once('/').unwrap_or((rest, ""));
    let number = number.parse().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    // A descriptor's own name, with nothing behind it, ends with a slash.
    Some((ProcessId::from_raw(number), file.trim_end_matches('/')))
}

/// Longer than what stands before the state of a process and it: a number, a name in parentheses, and three spaces.
const STATE_END_MAX: u64 = 64;

/// Whether a read begins at the beginning of a file and has room for the state of its process, or begins behind that.
fn has_room_for_state(call: &Call, file: &OwnedFd) -> bool {
    let [_, _, len, offset, ..] = call.frame.args;
    let start = if call.frame.nr == nr::pread64 { Ok(offset) } else { rustix::fs::seek(file, SeekFrom::Current(0)) };
    start.is_ok_and(|start| start >= STATE_END_MAX || start == 0 && len >= STATE_END_MAX)
}

/// A process that we have stopped for a moment runs.
fn show_as_running(stat: &mut [u8]) {
    let name_end = stat.iter().rposition(|&byte| byte == b')');
    if let Some(state @ b't') = name_end.and_then(|end| stat.get_mut(end + 2)) {
        *state = b'R';
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stopped_for_a_moment_runs() {
        for (stat, shown) in [
            ("7 (a) t) t 1 7", "7 (a) t) R 1 7"),
            ("7 (a) S 1", "7 (a) S 1"),
            ("7 (t) T 1", "7 (t) T 1"),
            ("7 (t)", "7 (t)"),
            ("", ""),
        ] {
            let mut bytes = stat.as_bytes().to_vec();
            show_as_running(&mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), shown);
        }
    }

    #[test]
    fn a_path_tells_of_a_process_by_its_number() {
        let of = |path: &'static str| of_process(path.as_bytes()).map(|(pid, file)| (pid.as_raw(), file));
        assert_eq!(
            (of("/proc/7/stat"), of("/proc/7"), of("/proc/7/")),
            (Some((7, "stat")), Some((7, "")), Some((7, "")))
        );
        assert_eq!((of("/proc/7/task/7/stat"), of("/proc/+7/stat")), (Some((7, "task/7/stat")), None));
        assert_eq!((of("/proc/self/stat"), of("/proc"), of("/7/stat")), (None, None, None));
    }
}
