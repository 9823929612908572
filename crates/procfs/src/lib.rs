//! Reader of `/proc` (proc(5)): no other crate of the supervising side opens anything there, and none builds a path
//! there (`tests/only_reader.rs`).
//!
//! **Invariant:** a file that cannot be read is an [`Error`], never an empty answer. Only [`Error::Gone`] is an answer:
//! the process has ended, and has no memory, no descriptors and no children. Every other error means that nothing is
//! known of a process that is there; whoever asks has to wait, or to assume the worst.

#![forbid(unsafe_code)]

mod fields;
mod ids;
mod links;
mod locks;
pub mod machine;
mod maps;
pub mod mountinfo;
mod status;
mod watches;

pub use fields::{auxiliary, resident_pages, Limits, Marks, Stat};
pub use ids::{process_of, ProcessId, TaskId, ThreadId};
pub use links::{is_open_for_reading, own_name, own_path, path_for_others, visit_descriptors, MagicLink};
pub use locks::{file_locks, FileLock, LockKind};
pub use maps::{advice, Advice, Mapping, Maps};
pub use status::{SignalSets, Status};
pub use watches::{watches, Watch};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

/// Why something is not known of a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process has ended, perhaps a moment ago. A zombie still has a status and a number.
    #[error("process {0} has ended")]
    Gone(TaskId),
    /// The process is there, the file is not: a descriptor that is closed, or a kernel without this file.
    #[error("there is no /proc/{task}/{name}")]
    Missing {
        /// The process.
        task: TaskId,
        /// Path of the file below `/proc/PID`.
        name: String,
    },
    /// The file is there and cannot be read.
    #[error("cannot read /proc/{task}/{name}: {source}")]
    Unreadable {
        /// The process.
        task: TaskId,
        /// Path of the file below `/proc/PID`.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is there and cannot be written.
    #[error("cannot write /proc/{task}/{name}: {source}")]
    Unwritable {
        /// The process.
        task: TaskId,
        /// Path of the file below `/proc/PID`.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file was read and does not say what was asked for.
    #[error("/proc/{task}/{name} has no {field}")]
    NoField {
        /// The process.
        task: TaskId,
        /// Path of the file below `/proc/PID`.
        name: String,
        /// What was looked for.
        field: String,
    },
}

/// What `/proc` says, or why it is not known.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the process has ended: then it has nothing that could be looked for.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(_))
    }

    /// The process of which something is not known.
    pub fn task(&self) -> TaskId {
        match *self {
            Self::Gone(task)
            | Self::Missing { task, .. }
            | Self::Unreadable { task, .. }
            | Self::Unwritable { task, .. }
            | Self::NoField { task, .. } => task,
        }
    }

    pub(crate) fn no_field(task: TaskId, name: &str, field: &str) -> Self {
        Self::NoField { task, name: name.to_owned(), field: field.to_owned() }
    }

    fn of(task: TaskId, name: &str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone(task),
            // The whole directory may be hidden (`hidepid`): the kernel is asked whether the process is there. Of one
            // that has just ended, links say EACCES.
            Some(libc::ENOENT | libc::EACCES) if has_ended(task) => Self::Gone(task),
            Some(libc::ENOENT) => Self::Missing { task, name: name.to_owned() },
            _ => Self::Unreadable { task, name: name.to_owned(), source },
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Unreadable { source, .. } | Error::Unwritable { source, .. } => source,
            Error::Gone(_) => Self::from_raw_os_error(libc::ESRCH),
            Error::Missing { .. } => Self::from_raw_os_error(libc::ENOENT),
            other @ Error::NoField { .. } => Self::other(other),
        }
    }
}

/// A process that has ended has none of what was asked for; any other error stays one.
///
/// # Errors
/// What is not known of a process that is there.
pub fn unless_gone<T: Default>(found: Result<T>) -> Result<T> {
    match found {
        Err(Error::Gone(_)) => Ok(T::default()),
        other => other,
    }
}

/// Whether a process or thread has ended. A zombie has; the kernel still knows its number.
pub fn has_ended(task: impl Into<TaskId>) -> bool {
    let task = task.into();
    is_unknown(task) || read_path(&format!("/proc/{task}/stat")).is_ok_and(|stat| is_zombie(&stat))
}

fn is_zombie(stat: &[u8]) -> bool {
    // The name in parentheses may contain anything, parentheses included.
    let name_ends = stat.iter().rposition(|&byte| byte == b')');
    name_ends.is_some_and(|at| matches!(stat.get(at + 2), Some(b'Z' | b'X')))
}

/// Whether the kernel knows no process of this number: it was waited for, or never was.
pub fn is_unknown(task: impl Into<TaskId>) -> bool {
    Pid::from_raw(task.into().as_raw()).is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH))
}

/// The whole of `/proc/PID/NAME`.
///
/// # Errors
/// See [`Error`]; the same holds for every function here.
pub fn read(task: impl Into<TaskId>, name: &str) -> Result<Vec<u8>> {
    let task = task.into();
    read_path(&format!("/proc/{task}/{name}")).map_err(|source| Error::of(task, name, source))
}

fn read_path(path: &str) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    // Most fit; asking for the size first, as `read_to_end` does, would cost as much as reading.
    let mut bytes = vec![0; 4 << 10];
    let mut len = 0;
    loop {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(got) => len += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if len == bytes.len() {
            bytes.resize(len * 4, 0);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
/// See [`Error`].
pub fn text(task: impl Into<TaskId>, name: &str) -> Result<String> {
    let task = task.into();
    Ok(String::from_utf8_lossy(&read(task, name)?).into_owned())
}

/// Write a setting of a process, such as `oom_score_adj`.
///
/// # Errors
/// See [`Error`].
pub fn write(task: impl Into<TaskId>, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
    let task = task.into();
    std::fs::write(format!("/proc/{task}/{name}"), bytes).map_err(|source| match Error::of(task, name, source) {
        Error::Unreadable { task, name, source } => Error::Unwritable { task, name, source },
        other => other,
    })
}

/// The memory of a process, by its addresses, to read and to write what the process itself may only read as well.
///
/// # Errors
/// See [`Error`].
pub fn memory(task: impl Into<TaskId>) -> Result<File> {
    open(task.into(), "mem", File::options().read(true).write(true))
}

/// What is known of each page of a process's memory: a word of 64 bits for each, by number (proc_pid_pagemap(5)).
///
/// # Errors
/// See [`Error`].
pub fn page_map(task: impl Into<TaskId>) -> Result<File> {
    open(task.into(), "pagemap", File::options().read(true))
}

fn open(task: TaskId, name: &str, how: &std::fs::OpenOptions) -> Result<File> {
    how.open(format!("/proc/{task}/{name}")).map_err(|source| Error::of(task, name, source))
}

/// The name of the program that a thread runs (`comm`), which it may have set itself.
///
/// # Errors
/// See [`Error`].
pub fn program_name(task: impl Into<TaskId>) -> Result<String> {
    let name = text(task, "comm")?;
    Ok(name.strip_suffix('\n').unwrap_or(&name).to_owned())
}

/// How many threads a process has; those that have ended count until somebody has waited. Faster than [`threads`].
///
/// # Errors
/// See [`Error`].
pub fn thread_count(pid: ProcessId) -> Result<u64> {
    const NAME: &str = "task";
    let task = std::fs::metadata(format!("/proc/{pid}/{NAME}"));
    let task = task.map_err(|source| Error::of(pid.into(), NAME, source))?;
    // A directory has two links and one for each directory in it.
    Ok(std::os::unix::fs::MetadataExt::nlink(&task) - 2)
}

/// The children that a thread has made (`/proc/TID/task/TID/children`); those of the other threads are not among them.
///
/// # Errors
/// See [`Error`].
pub fn children(tid: ThreadId) -> Result<Vec<ProcessId>> {
    let name = format!("task/{tid}/children");
    let text = text(tid, &name)?;
    let numbers = text.split_whitespace().map(|word| word.parse().ok().map(ProcessId::from_raw));
    numbers.collect::<Option<_>>().ok_or_else(|| Error::no_field(tid.into(), &name, "list of numbers"))
}

/// The numbers of the descriptors that a process has open, in their order.
///
/// # Errors
/// See [`Error`].
pub fn descriptors(task: impl Into<TaskId>) -> Result<Vec<i32>> {
    let task = task.into();
    // The kernel makes an entry for each when it is asked first: there where `descriptors_and_flags` needs it as well.
    numbers_in(task, FDINFO)
}

/// How many descriptors a process has open. `None` before Linux 6.2, which does not say.
///
/// # Errors
/// See [`Error`].
pub fn descriptor_count(pid: ProcessId) -> Result<Option<i32>> {
    const NAME: &str = "fd";
    let found =
        std::fs::metadata(format!("/proc/{pid}/{NAME}")).map_err(|source| Error::of(pid.into(), NAME, source))?;
    Ok(i32::try_from(found.len()).ok().filter(|&count| count > 0))
}

/// A thread that has the descriptors of its process: the first one, as long as it has not ended before the others.
/// `None`: no descriptor is open there.
///
/// # Errors
/// See [`Error`].
pub fn owner_of_descriptors(pid: ProcessId) -> Result<Option<ThreadId>> {
    let has_any = |tid: ThreadId| {
        let mut has_any = false;
        links::visit_numbers(tid.into(), "fd", |_, _, _| {
            has_any = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(has_any)
    };
    // Of a leader that has ended nobody but root may ask, and the others are there.
    if unless_gone(has_any(pid.leader()))? {
        return Ok(Some(pid.leader()));
    }
    for tid in threads(pid)? {
        if unless_gone(has_any(tid))? {
            return Ok(Some(tid));
        }
    }
    Ok(None)
}

/// Whether descriptors are on their way in a message that a Unix socket of this task has not received yet.
///
/// # Errors
/// See [`Error`].
pub fn has_descriptors_coming(task: impl Into<TaskId>) -> Result<bool> {
    let task = task.into();
    let mut found = false;
    links::visit_numbers(task, FDINFO, |directory, _, name| {
        found = has_passed(directory, name);
        Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// What `fdinfo` says of a socket that has got descriptors, and nobody has taken them.
fn has_passed(fdinfo: &OwnedFd, name: &CStr) -> bool {
    let Ok(file) = rustix::fs::openat(fdinfo, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut text = String::new();
    // What is closed meanwhile has none.
    let _ = std::io::Read::read_to_string(&mut std::fs::File::from(file), &mut text);
    value(&text, "scm_fds").is_some_and(|count| count != "0")
}

/// Where `/proc/PID` has a file for each descriptor.
const FDINFO: &str = "fdinfo";

/// The threads of a process, in the order of their numbers; those that have ended, too, until somebody has waited.
///
/// # Errors
/// See [`Error`].
pub fn threads(pid: ProcessId) -> Result<Vec<ThreadId>> {
    Ok(numbers_in(pid, "task")?.into_iter().map(ThreadId::from_raw).collect())
}

fn numbers_in(task: impl Into<TaskId>, directory: &str) -> Result<Vec<i32>> {
    let task = task.into();
    let fail = |source| Error::of(task, directory, source);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{task}/{directory}")).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        numbers.push(number.ok_or_else(|| Error::no_field(task, directory, "number"))?);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A line of `/proc/PID/fdinfo/FD`, without its name.
///
/// # Errors
/// See [`Error`].
pub fn descriptor_field(task: impl Into<TaskId>, fd: i32, field: &str) -> Result<String> {
    let task = task.into();
    let name = format!("fdinfo/{fd}");
    let text = text(task, &name)?;
    let found = value(&text, field).map(str::to_owned);
    found.ok_or_else(|| Error::no_field(task, &name, field))
}

/// The flags of a descriptor, as of open(2), with `O_CLOEXEC`.
///
/// # Errors
/// See [`Error`].
pub fn descriptor_flags(task: impl Into<TaskId>, fd: i32) -> Result<u32> {
    let task = task.into();
    let octal = descriptor_field(task, fd, "flags")?;
    u32::from_str_radix(&octal, 8).map_err(|_| Error::no_field(task, &format!("fdinfo/{fd}"), "flags"))
}

/// The descriptors that a process has open, with their flags as of open(2) and `O_CLOEXEC`, in no order. One that is
/// closed meanwhile is not among them. This takes half as long as [`descriptors`] and [`descriptor_flags`] for each.
///
/// # Errors
/// See [`Error`].
pub fn descriptors_and_flags(task: impl Into<TaskId>) -> Result<Vec<(i32, u32)>> {
    let task = task.into();
    let mut found = Vec::new();
    links::visit_numbers(task, FDINFO, |directory, fd, name| {
        match flags_in(directory, name) {
            Ok(Some(flags)) => found.push((fd, flags)),
            Ok(None) => return Err(Error::no_field(task, &format!("{FDINFO}/{fd}"), "flags")),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(Error::of(task, &format!("{FDINFO}/{fd}"), error.into())),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// The flags that a file in `fdinfo` says; `None`: it says none.
fn flags_in(fdinfo: &OwnedFd, name: &CStr) -> rustix::io::Result<Option<u32>> {
    // They stand in the second line, whatever kind of file it is.
    const HEAD: usize = 64;
    let file = rustix::fs::openat(fdinfo, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut head = [0; HEAD];
    let len = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut head))?;
    let head = String::from_utf8_lossy(&head[..len]);
    Ok(value(&head, "flags").and_then(|octal| u32::from_str_radix(octal, 8).ok()))
}

/// The number of the system call that a thread is in. `None`: it is in none, or it runs.
///
/// # Errors
/// See [`Error`].
pub fn system_call(task: impl Into<TaskId>) -> Result<Option<u64>> {
    Ok(waiting_call(task)?.map(|(number, _)| number))
}

/// The system call that a thread waits in, with its arguments. `None`: it is in none, or it runs.
///
/// # Errors
/// See [`Error`].
pub fn waiting_call(task: impl Into<TaskId>) -> Result<Option<(u64, [u64; 6])>> {
    match activity(task)? {
        Activity::InCall(number, arguments) => Ok(Some((number, arguments))),
        Activity::Runs | Activity::Stands => Ok(None),
    }
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It runs, or would if it had a processor.
    Runs,
    /// It waits, and not in a system call: for a page of its memory, or stopped.
    Stands,
    /// It waits in this system call, with these arguments.
    InCall(u64, [u64; 6]),
}

impl Activity {
    /// `running`, `-1 SP PC`, or `NUMBER 0x… 0x… 0x… 0x… 0x… 0x… SP PC`.
    fn of(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        match words.next()? {
            "running" => Some(Self::Runs),
            "-1" => Some(Self::Stands),
            number => {
                let mut arguments = [0; 6];
                for argument in &mut arguments {
                    *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
                }
                Some(Self::InCall(number.parse().ok()?, arguments))
            }
        }
    }
}

/// What a thread is doing at this moment (`/proc/TID/syscall`).
///
/// # Errors
/// See [`Error`].
pub fn activity(task: impl Into<TaskId>) -> Result<Activity> {
    const NAME: &str = "syscall";
    let task = task.into();
    Activity::of(&text(task, NAME)?).ok_or_else(|| Error::no_field(task, NAME, "call"))
}

/// The value of a line `NAME: VALUE` of such a file. `name` is without the colon.
pub fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: ProcessId = ProcessId::from_raw(i32::MAX);

    fn own() -> ProcessId {
        ProcessId::own()
    }

    #[test]
    fn a_process_that_has_ended_has_nothing() {
        assert!(matches!(text(NOBODY, "status"), Err(Error::Gone(task)) if task == NOBODY.into()));
        assert!(matches!(descriptors(NOBODY), Err(Error::Gone(_))));
        assert_eq!(unless_gone(children(NOBODY.leader())).unwrap(), Vec::new());
    }

    #[test]
    fn a_thread_and_what_it_waits_in() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            tell.send(link.file_name().unwrap().to_str().unwrap().parse::<i32>().unwrap()).unwrap();
            let _ = wait.recv();
        });
        let tid = ThreadId::from_raw(told.recv().unwrap());
        assert!(threads(own()).unwrap().contains(&tid));
        let number = loop {
            match waiting_call(tid).unwrap() {
                Some((number, _)) => break number,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(Some(number), system_call(tid).unwrap());
        drop(end);
        thread.join().unwrap();
        assert!(matches!(threads(NOBODY), Err(Error::Gone(_))));
    }

    #[test]
    fn activities() {
        assert_eq!(Activity::of("running\n"), Some(Activity::Runs));
        assert_eq!(Activity::of("-1 0x7ffd 0x7f05\n"), Some(Activity::Stands));
        let call = Activity::InCall(72, [3, 0x25, 0x7ffc, 0, 0, 0]);
        assert_eq!(Activity::of("72 0x3 0x25 0x7ffc 0x0 0x0 0x0 0x7ffd 0x7f05\n"), Some(call));
        assert_eq!((Activity::of(""), Activity::of("72 0x3\n"), Activity::of("-72 0x3\n")), (None, None, None));
    }

    #[test]
    fn what_is_missing_of_a_process_that_is_there_is_not_its_end() {
        assert!(matches!(descriptor_flags(own(), 100_000), Err(Error::Missing { .. })));
        assert!(unless_gone(text(own(), "no-such-file").map(Some)).is_err());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        // A directory opens, and does not read.
        assert!(matches!(text(own(), "fd"), Err(Error::Unreadable { .. })));
        assert!(unless_gone(text(own(), "fd")).is_err());
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        assert!(matches!(write(own(), "stat", "x"), Err(Error::Unwritable { .. })));
        assert!(matches!(write(NOBODY, "oom_score_adj", "0"), Err(Error::Gone(_))));
        let score = read(own(), "oom_score_adj").unwrap();
        write(own(), "oom_score_adj", score).unwrap();
    }

    #[test]
    fn own_memory_name_and_threads() {
        use std::os::unix::fs::FileExt;
        let (word, mut found) = (7u64, [0; 8]);
        memory(own()).unwrap().read_exact_at(&mut found, &raw const word as u64).unwrap();
        assert_eq!(u64::from_ne_bytes(found), word);
        assert!(page_map(own()).is_ok());
        assert!(!program_name(own()).unwrap().contains('\n'));
        assert!(thread_count(own()).unwrap() >= 1);
        assert!(matches!(thread_count(NOBODY), Err(Error::Gone(_))));
    }

    #[test]
    fn whoever_has_ended_refuses_nothing() {
        let refused = || io::Error::from_raw_os_error(libc::EACCES);
        assert!(Error::of(NOBODY.into(), "fd", refused()).is_gone());
        assert!(matches!(Error::of(own().into(), "fd", refused()), Error::Unreadable { .. }));
    }

    #[test]
    fn own_descriptors_are_found() {
        let file = File::open("/dev/null").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(descriptors(own()).unwrap().contains(&fd));
        assert_eq!(descriptor_flags(own(), fd).unwrap() & 3, 0);
        if let Some(count) = descriptor_count(ProcessId::own()).unwrap() {
            // Other tests open and close some meanwhile.
            assert!((1..=1 << 16).contains(&count));
        }
        let all = descriptors_and_flags(own()).unwrap();
        assert!(all.contains(&(fd, descriptor_flags(own(), fd).unwrap())), "{all:?}");
        assert!(matches!(descriptors_and_flags(NOBODY), Err(Error::Gone(_))));
    }

    #[test]
    fn a_child_is_a_child_until_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = ProcessId::from_raw(child.id() as i32);
        // Tests run in threads, and the list is one thread's.
        assert!(children(own().leader()).is_ok());
        assert!(!is_unknown(pid) && !has_ended(pid));
        assert_eq!(Status::of(pid).unwrap().parent().unwrap(), Some(own()));
        child.kill().unwrap();
        while Status::of(pid).unwrap().state().unwrap() != 'Z' {
            std::thread::yield_now();
        }
        assert!(has_ended(pid) && !is_unknown(pid));
        assert!(matches!(MagicLink::Exe.shown(pid), Err(Error::Gone(_))));
        child.wait().unwrap();
        assert!(is_unknown(pid));
        assert!(matches!(Status::of(pid), Err(Error::Gone(_))));
    }
}
