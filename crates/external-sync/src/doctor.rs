//! What this machine allows: each thing that Speculator needs is tried, not guessed, and what is missing comes with
//! what to do about it.

use std::io;

use serde::Serialize;

use crate::domain::{self, FileSystem, Promise};
use crate::{e2fsprogs, sys, why};
use procfs::ProcessId;

/// Oldest kernel on which everything that `run` uses is there: `close_range`, LOOP_CONFIGURE, `stx_mnt_id`, `clone3`.
const KERNEL_MIN: (u32, u32) = (5, 10);
/// The largest piece of shared memory that `run` cannot do without, bytes.
const WORLD_LEN: usize = std::mem::size_of::<agent_abi::World>().next_multiple_of(2 << 20);
/// Files that the processes around a world have open together, and some of COMMAND's, which has the same limit.
const FILES: u64 = 64;
/// Processes and threads that `run` has besides COMMAND's and itself, all of them at once.
const THREADS: usize = 8;

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It is there.
    Ok,
    /// It is not, and something works less well or not at all; `run` itself works.
    Limited,
    /// It is not, and `run` cannot work.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What.
    pub name: &'static str,
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What to do when it is not there.
    pub advice: Option<&'static str>,
}

/// Everything that `speculator doctor` tells.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether `speculator run` would work.
    pub run_works: bool,
    /// What the working directory's file system can promise.
    pub here: Option<Promises>,
    /// What this machine allows.
    pub findings: Vec<Finding>,
    /// What each mounted file system can promise.
    pub file_systems: Vec<Promises>,
}

/// One file system and its two promises.
#[derive(Clone, Debug, Serialize)]
pub struct Promises {
    /// The file system.
    #[serde(flatten)]
    pub file_system: FileSystem,
    /// Nothing that depends on an uncommitted change has left.
    pub durable_before_observed: Promise,
    /// After a crash, no later change without the earlier ones.
    pub ordered: Promise,
    /// What to do for more.
    pub advice: Option<&'static str>,
}

/// Looks at everything.
pub fn examine() -> Report {
    let findings = vec![
        kernel(),
        architecture(),
        proc_mounted(),
        tried(
            "seccomp filters",
            sys::try_seccomp_filter(),
            Need::Run,
            "build the kernel with CONFIG_SECCOMP_FILTER, or let the container use seccomp(2)",
        ),
        ptrace(),
        tried(
            "System V shared memory",
            sys::try_shared_memory(WORLD_LEN),
            Need::Run,
            "raise kernel.shmmax, kernel.shmall and kernel.shmmni (sysctl), or build the kernel with CONFIG_SYSVIPC",
        ),
        tried(
            "processes and threads",
            try_threads(),
            Need::Run,
            "raise the limit of processes (ulimit -u), or pids.max of the container",
        ),
        open_files(),
        user(),
        tried(
            "mount namespaces",
            sys::try_mount_namespace(),
            Need::Volumes,
            "run as root, or give the container CAP_SYS_ADMIN; without it run --volume does not work",
        ),
        device(
            "loop devices",
            "/dev/loop-control",
            "load the loop module and run as root; without it volumes cannot be mounted",
        ),
        device(
            "FUSE",
            "/dev/fuse",
            "load the fuse module and run as root; without it speculator mount and the crash tests do not work",
        ),
        e2fsprogs_there(),
    ];
    let run_works = findings.iter().all(|finding| finding.status != Status::Missing);
    let file_systems = promises();
    Report { run_works, findings, here: here(&file_systems), file_systems }
}

/// Who cannot do without a thing.
#[derive(Clone, Copy)]
enum Need {
    Run,
    Volumes,
}

fn ok(name: &'static str, detail: impl Into<String>) -> Finding {
    Finding { name, status: Status::Ok, detail: detail.into(), advice: None }
}

fn lacking(name: &'static str, need: Need, detail: impl Into<String>, advice: &'static str) -> Finding {
    let status = match need {
        Need::Run => Status::Missing,
        Need::Volumes => Status::Limited,
    };
    Finding { name, status, detail: detail.into(), advice: Some(advice) }
}

fn tried(name: &'static str, result: io::Result<()>, need: Need, advice: &'static str) -> Finding {
    match result {
        Ok(()) => ok(name, "work (tried)"),
        Err(error) => lacking(name, need, why(&error), advice),
    }
}

/// Tries to have as many threads at once as `run` needs.
fn try_threads() -> io::Result<()> {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
    let start = |_| {
        let ended = ended.clone();
        std::thread::Builder::new().spawn(move || drop(ended.lock().map(|ended| ended.recv())))
    };
    let threads: io::Result<Vec<_>> = (0..THREADS).map(start).collect();
    // Whoever waits hears that nobody is left who could send.
    drop(end);
    threads?.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

/// Whoever has fewer at first takes as many as may be.
fn open_files() -> Finding {
    match rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum {
        Some(most) if most < FILES => {
            lacking("open files", Need::Run, format!("{most} at most"), "allow 64 or more (ulimit -n)")
        }
        Some(most) => ok("open files", format!("{most} at most")),
        None => ok("open files", "any number"),
    }
}

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    match parse_release(&release) {
        Some(version) if version >= KERNEL_MIN => ok("kernel", format!("Linux {release}")),
        _ => lacking("kernel", Need::Run, format!("Linux {release}"), "use Linux 5.10 or newer"),
    }
}

/// `6.18.44-fc` → (6, 18).
pub(crate) fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn architecture() -> Finding {
    match std::env::consts::ARCH {
        "x86_64" => ok("processor", "x86-64"),
        other => lacking("processor", Need::Run, other, "use an x86-64 machine"),
    }
}

fn proc_mounted() -> Finding {
    match procfs::machine::is_mounted() {
        true => ok("/proc", "mounted"),
        false => lacking("/proc", Need::Run, "not mounted", "mount -t proc proc /proc"),
    }
}

fn ptrace() -> Finding {
    let scope = match procfs::machine::setting("kernel/yama/ptrace_scope") {
        Ok(scope) => format!("yama ptrace_scope {scope}"),
        Err(_) => "no yama".to_owned(),
    };
    match sys::try_ptrace() {
        Ok(()) => ok("ptrace", format!("works (tried); {scope}")),
        Err(error) => lacking(
            "ptrace",
            Need::Run,
            format!("{}; {scope}", why(&error)),
            "set kernel.yama.ptrace_scope to 0 or 1 (sysctl), give the container SYS_PTRACE, and do not run under another tracer",
        ),
    }
}

/// Whether user ids mean here what they mean to the machine: `/proc/self/uid_map` maps all of them to themselves.
fn is_first_user_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn user() -> Finding {
    let uid_map = procfs::text(ProcessId::own(), "uid_map");
    match rustix::process::geteuid() {
        uid if uid.is_root() && uid_map.is_ok_and(|map| !is_first_user_namespace(&map)) => lacking(
            "user",
            Need::Volumes,
            "root of a user namespace, not of the machine",
            "mount volumes outside of it (speculator volume mount, as root); run without --volume works here",
        ),
        uid if uid.is_root() => ok("user", "root"),
        uid => lacking(
            "user",
            Need::Volumes,
            format!("uid {}", uid.as_raw()),
            "run as root to mount volumes; run without --volume works as any user",
        ),
    }
}

fn device(name: &'static str, path: &'static str, advice: &'static str) -> Finding {
    match std::fs::OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => ok(name, format!("{path} opens")),
        Err(error) => lacking(name, Need::Volumes, format!("{path}: {}", why(&error)), advice),
    }
}

fn e2fsprogs_there() -> Finding {
    let programs = ["mkfs.ext4", "e2fsck"];
    match programs.map(e2fsprogs::find) {
        [Some(mkfs), Some(_)] => ok("e2fsprogs", mkfs.display().to_string()),
        _ => lacking(
            "e2fsprogs",
            Need::Volumes,
            "mkfs.ext4 or e2fsck not found",
            "apt-get install e2fsprogs; without it volumes cannot be made or checked",
        ),
    }
}

/// The file system of the working directory: of those that it lies on by its number, the one that is mounted nearest.
fn here(found: &[Promises]) -> Option<Promises> {
    use std::os::unix::fs::MetadataExt;
    let directory = std::env::current_dir().ok()?;
    let dev = std::fs::metadata(&directory).ok()?.dev();
    let above = |of: &&Promises| directory.starts_with(&of.file_system.mount_point);
    let depth = |of: &&Promises| (of.file_system.dev == dev, of.file_system.mount_point.as_os_str().len());
    found.iter().filter(above).max_by_key(depth).cloned()
}

fn promises() -> Vec<Promises> {
    let found = domain::file_systems().unwrap_or_default();
    found.into_iter().map(Promises::from).collect()
}

impl From<FileSystem> for Promises {
    fn from(file_system: FileSystem) -> Promises {
        Promises {
            durable_before_observed: file_system.class.durable_before_observed(),
            ordered: file_system.class.ordered(),
            advice: file_system.class.what_to_do(),
            file_system,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(parse_release("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(parse_release("5.10-rc1"), Some((5, 10)));
        assert_eq!(parse_release("strange"), None);
    }

    #[test]
    fn user_namespaces() {
        assert!(is_first_user_namespace("         0          0 4294967295\n"));
        assert!(!is_first_user_namespace("         0       1000          1\n"));
        assert!(!is_first_user_namespace("0 0 1\n1 100000 65536\n"));
    }

    #[test]
    fn the_working_directory_has_a_file_system() {
        let here = examine().here.unwrap();
        assert!(std::env::current_dir().unwrap().starts_with(here.file_system.mount_point));
    }

    #[test]
    fn every_finding_that_is_not_ok_says_what_to_do() {
        for finding in examine().findings {
            assert_eq!(finding.advice.is_none(), finding.status == Status::Ok, "{finding:?}");
            assert!(!finding.detail.is_empty());
        }
    }
}
