//! The few calls here that need `unsafe`.

use procfs::{ProcessId, TaskId, ThreadId};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::time::Duration;

fn check(answer: libc::c_long) -> io::Result<libc::c_long> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// The clock from which the kernel takes the times of files, since 1970. The one of the vDSO may be ahead of it.
pub fn coarse_time() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills `time`, which is ours.
    check(unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME_COARSE, &raw mut time) })?;
    Ok(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

/// A descriptor for a process.
pub fn pidfd_open(pid: ProcessId) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the answer is a new descriptor that is ours.
    unsafe { check(libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0)).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

/// A descriptor for one thread, which need not be the first of its process (Linux 6.9).
pub fn pidfd_open_thread(tid: ThreadId) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: as above.
    unsafe {
        check(libc::syscall(libc::SYS_pidfd_open, tid.as_raw(), PIDFD_THREAD)).map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// A copy of another process's descriptor.
pub fn pidfd_getfd(process: BorrowedFd<'_>, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: as above.
    unsafe {
        check(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0))
            .map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// What is asked of record locks that belong to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordCommand {
    /// Take one, without waiting, or give it up.
    Set,
    /// Look who is in the way of one.
    Look,
}

/// Record locks of an open file.
pub fn record_lock(file: BorrowedFd<'_>, command: RecordCommand, lock: &mut libc::flock) -> io::Result<()> {
    let command = match command {
        RecordCommand::Set => libc::F_OFD_SETLK,
        RecordCommand::Look => libc::F_OFD_GETLK,
    };
    // SAFETY: the kernel reads and writes this one structure.
    unsafe { check(libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)).into()).map(drop) }
}

/// Whether a descriptor of another process and one of ours are the same open file (kcmp(2)).
pub fn is_same_file(of: impl Into<TaskId>, fd: i32, own: &OwnedFd) -> io::Result<bool> {
    are_same_file((of, fd), (ProcessId::own(), own.as_raw_fd()))
}

/// The same of descriptors of any two processes.
pub fn are_same_file(
    (one, fd): (impl Into<TaskId>, i32),
    (other, other_fd): (impl Into<TaskId>, i32),
) -> io::Result<bool> {
    const KCMP_FILE: libc::c_int = 0;
    let (one, other) = (one.into().as_raw(), other.into().as_raw());
    // SAFETY: no pointers; it changes nothing.
    unsafe { check(libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILE, fd, other_fd)).map(|order| order == 0) }
}

/// Whether two threads have the same table of descriptors (kcmp(2)). Where the kernel does not say, they may not.
pub fn share_descriptors(one: ThreadId, other: ThreadId) -> bool {
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: no pointers; it changes nothing.
    unsafe { libc::syscall(libc::SYS_kcmp, one.as_raw(), other.as_raw(), KCMP_FILES, 0, 0) == 0 }
}

/// In which order two open files of ours are in the kernel (kcmp(2)): one that lasts as long as both are open.
pub fn order_of_files(one: &OwnedFd, other: &OwnedFd) -> io::Result<std::cmp::Ordering> {
    const KCMP_FILE: libc::c_int = 0;
    let (own, one, other) = (ProcessId::own().as_raw(), one.as_raw_fd(), other.as_raw_fd());
    // SAFETY: no pointers; it changes nothing.
    match check(unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one, other) })? {
        0 => Ok(std::cmp::Ordering::Equal),
        1 => Ok(std::cmp::Ordering::Less),
        2 => Ok(std::cmp::Ordering::Greater),
        // They differ, and have no order.
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Whether a descriptor of another process is the open file of a member of its epoll set: by the set's descriptor, the
/// member's number, and how many members come before it that had the same number.
pub fn is_member(of: impl Into<TaskId>, fd: i32, (set, number, earlier): (i32, i32, usize)) -> io::Result<bool> {
    const KCMP_EPOLL_TFD: libc::c_int = 7;
    let of = of.into().as_raw();
    let slot = [set as u32, number as u32, earlier as u32];
    // SAFETY: `slot` is a whole `struct kcmp_epoll_slot`, which is only read.
    unsafe { check(libc::syscall(libc::SYS_kcmp, of, of, KCMP_EPOLL_TFD, fd, slot.as_ptr())).map(|order| order == 0) }
}

/// Block these signals in this thread and those that it starts; returns what was blocked before.
pub fn block_signals(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: both sets are ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        check(libc::sigprocmask(libc::SIG_BLOCK, &set, &mut old).into())?;
        Ok(old)
    }
}

/// Set what this thread blocks.
pub fn set_signal_mask(mask: &libc::sigset_t) {
    // SAFETY: a whole set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

/// Wait for one of these (blocked) signals: its number, whether a process sent it (rather than the terminal or the
/// kernel), and who.
pub fn await_signal(signals: &[i32]) -> io::Result<(i32, bool, ProcessId)> {
    // SAFETY: both are ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let number = check(libc::sigwaitinfo(&set, &mut info).into())? as i32;
        Ok((number, info.si_code <= 0, ProcessId::from_raw(info.si_pid())))
    }
}

/// End as COMMAND did, so that a shell sees what it would have seen of it: a loop stops at ^C. Returns only if the
/// signal does not end us.
pub fn end_by(signal: i32) {
    // SAFETY: all structures are whole. COMMAND has left its core already: we leave none.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// Send a signal.
pub fn kill(pid: ProcessId, signal: i32) {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid.as_raw(), signal) };
}

/// Our parent, if it is in our namespace.
pub fn parent() -> Option<ProcessId> {
    rustix::process::getppid().map(|parent| ProcessId::from_raw(parent.as_raw_nonzero().get()))
}

/// Send a signal to the process of a thread: kill(2) takes the number of any of its threads.
pub fn kill_process_of(tid: ThreadId, signal: i32) {
    // SAFETY: no pointers; a process that is gone already is no matter.
    unsafe { libc::kill(tid.as_raw(), signal) };
}

/// What `waitpid` of a child says, stops included.
pub fn wait_for(pid: ProcessId) -> io::Result<i32> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours.
        match check(unsafe { libc::waitpid(pid.as_raw(), &mut status, libc::WUNTRACED) }.into()) {
            Ok(_) => return Ok(status),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether a child has been continued since it was seen to stop.
pub fn was_continued(pid: ProcessId) -> bool {
    let mut status = 0;
    // SAFETY: `status` is ours.
    unsafe {
        libc::waitpid(pid.as_raw(), &mut status, libc::WCONTINUED | libc::WNOHANG) == pid.as_raw()
            && libc::WIFCONTINUED(status)
    }
}

/// Let this process be held by that one (Yama).
pub fn allow_tracer(pid: ProcessId) {
    // SAFETY: no pointers. Fails without Yama, where nothing is needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, pid.as_raw() as libc::c_ulong, 0, 0, 0) };
}

/// Set what is done about a signal: default or ignored.
pub fn set_default(signal: i32, ignore: bool) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, if ignore { libc::SIG_IGN } else { libc::SIG_DFL }) };
}

/// Become another program, with arguments that begin with its name; returns only with an error. What is in no format
/// that the kernel knows is a script for /bin/sh, as execvp(3) has it: a path with a slash is not looked for.
pub fn exec(program: &CString, args: &[CString]) -> io::Error {
    let mut argv: Vec<*const libc::c_char> = args.iter().map(|arg| arg.as_ptr()).collect();
    argv.push(std::ptr::null());
    // SAFETY: a path and a list of strings that ends with null, all alive.
    unsafe { libc::execvp(program.as_ptr(), argv.as_ptr()) };
    io::Error::last_os_error()
}

/// Leave without running anything of Rust's or C's.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Put a descriptor in the place of another.
pub fn replace(new: BorrowedFd<'_>, old: i32) -> io::Result<()> {
    // SAFETY: `old` is a standard descriptor that nothing in this process owns.
    check(unsafe { libc::dup2(new.as_raw_fd(), old) }.into()).map(drop)
}

/// Descriptors that a program started by us would inherit, the standard ones included.
pub fn inherited() -> io::Result<Vec<i32>> {
    let mut inherited = Vec::new();
    for fd in procfs::descriptors(ProcessId::own())? {
        // SAFETY: no pointers; that of the directory that was read, closed since, answers -1.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            inherited.push(fd);
        }
    }
    Ok(inherited)
}

/// Close a descriptor that no object of this process owns.
pub fn close(fd: i32) {
    // SAFETY: inherited, and known to nothing here (`inherited`: everything that Rust opens is close-on-exec).
    unsafe { libc::close(fd) };
}

/// What ends a program that writes where nobody reads, or beyond its limit of file sizes, unless it is ignored: then
/// the write fails.
const OF_WRITES: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];
/// A bit for each of them.
static WERE_IGNORED: AtomicU8 = AtomicU8::new(0);
/// A bit for each standard descriptor.
static WERE_CLOSED: AtomicU8 = AtomicU8::new(0);

/// Rust's runtime ignores SIGPIPE before `main`, and opens `/dev/null` where a standard descriptor is closed; this runs
/// earlier.
#[used]
#[link_section = ".init_array"]
static NOTE_START: extern "C" fn() = note_start;

extern "C" fn note_start() {
    // SAFETY: only asks; `action` is whole.
    let is_ignored = |signal: i32| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    };
    // SAFETY: only asks.
    let is_closed = |fd: i32| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0;
    let ignored = (0..OF_WRITES.len()).filter(|&at| is_ignored(OF_WRITES[at])).map(|at| 1 << at);
    WERE_IGNORED.store(ignored.fold(0, |all, bit| all | bit), Ordering::Relaxed);
    let closed = (0..3).filter(|&fd| is_closed(fd)).map(|fd| 1 << fd);
    WERE_CLOSED.store(closed.fold(0, |all, bit| all | bit), Ordering::Relaxed);
}

/// From here on a write beyond the limit of file sizes fails, as one that nobody reads does, and can be told of.
pub fn let_writes_fail() {
    set_default(libc::SIGXFSZ, true);
}

/// The standard descriptors that were closed when we were started.
pub fn closed_at_start() -> impl Iterator<Item = i32> {
    let closed = WERE_CLOSED.load(Ordering::Relaxed);
    (0..3).filter(move |fd| closed & 1 << fd != 0)
}

/// What COMMAND is to find as we have found it: signals of writes that fail, and standard descriptors that were closed.
/// The next file that is opened here gets the number of one.
pub fn be_as_started() {
    let ignored: Vec<i32> = ignored_at_start().collect();
    OF_WRITES.into_iter().for_each(|signal| set_default(signal, ignored.contains(&signal)));
    closed_at_start().for_each(close);
}

/// Close what this process has inherited, beyond the standard descriptors.
pub fn close_inherited() {
    inherited().into_iter().flatten().filter(|&fd| fd > 2).for_each(close);
}

/// Of SIGPIPE and SIGXFSZ those that whoever started us ignored.
pub fn ignored_at_start() -> impl Iterator<Item = i32> {
    let ignored = WERE_IGNORED.load(Ordering::Relaxed);
    OF_WRITES.into_iter().enumerate().filter(move |(at, _)| ignored & 1 << at != 0).map(|(_, signal)| signal)
}

/// Let a terminal take this byte as if it had been typed.
pub fn type_into(terminal: &OwnedFd, byte: u8) -> io::Result<()> {
    // SAFETY: the kernel reads one byte.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, &raw const byte) }.into()).map(drop)
}

/// Send a signal to one thread of another process.
pub fn kill_thread(tid: ThreadId, signal: i32) {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_tkill, tid.as_raw(), signal) };
}

/// A close-on-exec copy of a descriptor that no object of this process owns, beyond the standard ones.
pub fn copy_descriptor(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: the answer is a new descriptor that is ours.
    unsafe { check(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).into()).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

/// Whether this process has a file open for writing, by its device and inode. If that is not known, it has.
///
/// There may be thousands of descriptors. To say of a number whether it is one takes the kernel less time than to list
/// one, and new ones get the lowest numbers: few others are below the highest, unless many were closed.
pub fn has_open_for_writing(file: (u64, u64)) -> bool {
    /// So many numbers more are looked at: other threads may open some meanwhile, below the highest.
    const MORE: i32 = 64;
    let own = ProcessId::own();
    let is_it = |fd: i32| open_for_writing(fd).is_ok_and(|found| found == Some(file));
    if let Some(count) = procfs::descriptor_count(own).ok().flatten() {
        let (mut fd, mut seen) = (0, 0);
        while seen < count && fd < 8 * count + 1024 {
            match open_for_writing(fd) {
                Ok(found) if found == Some(file) => return true,
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
                _ => seen += 1,
            }
            fd += 1;
        }
        if seen == count {
            return (fd..fd + MORE).any(is_it);
        }
    }
    procfs::descriptors(own).map_or(true, |own| own.into_iter().any(is_it))
}

/// Device and inode of a descriptor of this process, whoever owns it, if it is open for writing.
fn open_for_writing(fd: i32) -> io::Result<Option<(u64, u64)>> {
    // SAFETY: no pointers; it changes nothing.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) }.into())? as i32;
    if flags & libc::O_PATH != 0 || flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Ok(None);
    }
    // SAFETY: plain numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is written whole, or not.
    check(unsafe { libc::fstat(fd, &mut stat) }.into())?;
    Ok(Some((stat.st_dev, stat.st_ino)))
}

/// We keep open what processes inside have closed on a guess, and what they have made: as much as we may. Whoever may
/// raise the hard limit (`CAP_SYS_RESOURCE`) does. COMMAND is no child of ours, and keeps its own limit.
pub fn raise_limit_of_descriptors() -> io::Result<()> {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    /// More than all bounds on what is held together.
    const ENOUGH: u64 = 1 << 18;
    let raise = |limit: Option<u64>| setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit });
    let hard = getrlimit(Resource::Nofile).maximum;
    let most = procfs::machine::setting("fs/nr_open").ok().and_then(|most| most.parse().ok()).unwrap_or(0);
    let is_raised = hard.is_some_and(|hard| hard < ENOUGH.min(most) && raise(Some(ENOUGH.min(most))).is_ok());
    if !is_raised {
        raise(hard)?;
    }
    Ok(())
}

/// Whether so many are open that none may be left soon.
pub fn is_short_of_descriptors() -> bool {
    const RESERVE: u64 = 64;
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    has_fewer_descriptors_than(|limit| RESERVE.min(limit / 4), &LOOKS)
}

/// Whether so many are open that no more should be held for names.
pub fn are_many_descriptors_held() -> bool {
    const SHARE: u64 = 4;
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    has_fewer_descriptors_than(|limit| limit / SHARE, &LOOKS)
}

/// Whether fewer than so many of the limit are left. The lowest free number tells: each one that is new gets it.
/// `needless_looks`: at so many questions more the answer is no without a look, because many were left.
fn has_fewer_descriptors_than(left: impl Fn(u64) -> u64, needless_looks: &AtomicU64) -> bool {
    /// More than are opened between two questions.
    const AT_ONCE: u64 = 256;
    const LOOKS_MAX: u64 = 64;
    let looks = needless_looks.load(Ordering::Relaxed);
    if looks > 0 {
        needless_looks.store(looks - 1, Ordering::Relaxed);
        return false;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    // A new number for a file that is open costs a third of a new file.
    let lowest = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0)
        .or_else(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC))
        .map(|new| new.as_raw_fd() as u64);
    let lowest = lowest.unwrap_or(u64::MAX);
    let spare = limit.saturating_sub(lowest.saturating_add(left(limit)));
    needless_looks.store((spare / AT_ONCE).min(LOOKS_MAX), Ordering::Relaxed);
    lowest.saturating_add(left(limit)) > limit
}

/// The group of a process; 0 if its leader is of a namespace that we do not see.
pub fn group_of(pid: ProcessId) -> io::Result<i32> {
    // SAFETY: no pointers; it only asks.
    check(unsafe { libc::getpgid(pid.as_raw()) }.into()).map(|group| group as i32)
}

/// The session of a process; 0 if its leader is of a namespace that we do not see.
pub fn session_of(pid: ProcessId) -> io::Result<i32> {
    // SAFETY: no pointers; it only asks.
    check(unsafe { libc::getsid(pid.as_raw()) }.into()).map(|session| session as i32)
}

/// Whether a thread is there, may be sent signals, and is the first one of its process.
pub fn is_first_thread(tid: ThreadId) -> bool {
    // SAFETY: no pointers; signal 0 is not sent.
    unsafe { libc::syscall(libc::SYS_tgkill, tid.as_raw(), tid.as_raw(), 0) == 0 }
}

/// Kill a process if it is still one that we hold.
pub fn kill_if_held(pid: ProcessId) {
    let tracer = procfs::Status::of(pid).and_then(|status| status.tracer());
    if tracer.is_ok_and(|tracer| tracer == Some(ProcessId::own().leader())) {
        kill(pid, libc::SIGKILL);
    }
}

const CORES_WORDS: usize = 16;

/// A set of cores, as the kernel's masks: bit n is core n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores([u64; CORES_WORDS]);

impl Cores {
    /// All that there are.
    pub const ALL: Cores = Cores([u64::MAX; CORES_WORDS]);

    /// One.
    pub fn only(core: usize) -> Self {
        let mut cores = Cores([0; CORES_WORDS]);
        cores.0[core / 64 % CORES_WORDS] = 1 << (core % 64);
        cores
    }

    /// Whether it is among them.
    pub fn has(&self, core: usize) -> bool {
        self.0.get(core / 64).is_some_and(|word| word >> (core % 64) & 1 == 1)
    }

    /// All of them as one word, if they have bits there.
    pub fn word(&self) -> Option<u64> {
        self.0[1..].iter().all(|&word| word == 0).then_some(self.0[0])
    }

    /// All of them.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Where a thread may run (`None`: this one).
pub fn cores_of(tid: Option<ThreadId>) -> io::Result<Cores> {
    let tid = tid.map_or(0, ThreadId::as_raw);
    let mut cores = Cores([0; CORES_WORDS]);
    let len = std::mem::size_of_val(&cores.0);
    // SAFETY: the kernel writes at most `len` bytes.
    check(unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, len, cores.0.as_mut_ptr()) })?;
    Ok(cores)
}

/// Set where a thread may run (`None`: this one).
pub fn set_cores(tid: Option<ThreadId>, cores: &Cores) -> io::Result<()> {
    let tid = tid.map_or(0, ThreadId::as_raw);
    let len = std::mem::size_of_val(&cores.0);
    // SAFETY: the kernel reads `len` bytes.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, len, cores.0.as_ptr()) }).map(drop)
}

/// The core that this thread is on.
pub fn current_core() -> Option<usize> {
    // SAFETY: no arguments.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Whether a thread is in the usual scheduling class, and so runs after whoever has real-time priority.
pub fn is_scheduled_normally(tid: ThreadId) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::sched_getscheduler(tid.as_raw()) & !libc::SCHED_RESET_ON_FORK == libc::SCHED_OTHER }
}

/// Let an empty buffer have room for so many bytes and a few more; in huge pages if it is large.
pub fn make_room(buffer: &mut Vec<u8>, len: usize) {
    // Reading to the end looks for one byte more than there is.
    let wanted = len + 32;
    if buffer.capacity() < wanted {
        // The old one first.
        *buffer = Vec::new();
        buffer.reserve_exact(wanted);
        advise(buffer, libc::MADV_HUGEPAGE);
    }
}

/// Let the kernel take back what an empty buffer has, if somebody needs it before we do.
pub fn lend(buffer: &mut Vec<u8>) {
    debug_assert!(buffer.is_empty(), "its contents may go");
    advise(buffer, libc::MADV_FREE);
}

/// About all huge pages that lie within an empty buffer.
fn advise(buffer: &mut Vec<u8>, advice: libc::c_int) {
    const HUGE_PAGE: usize = 2 << 20;
    let from = buffer.as_mut_ptr().align_offset(HUGE_PAGE);
    let within = buffer.capacity().saturating_sub(from) / HUGE_PAGE * HUGE_PAGE;
    if within > 0 && buffer.is_empty() {
        // SAFETY: whole pages within the buffer, which has no contents to be lost.
        unsafe { libc::madvise(buffer.as_mut_ptr().add(from).cast(), within, advice) };
    }
}

/// The name of a socket's peer: a `struct sockaddr` of some family.
pub fn peer_name(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut name = vec![0u8; size_of::<libc::sockaddr_storage>()];
    let mut len = name.len() as libc::socklen_t;
    // SAFETY: both are ours, and as long as they say.
    check(unsafe { libc::getpeername(socket.as_raw_fd(), name.as_mut_ptr().cast(), &raw mut len) }.into())?;
    name.truncate(len as usize);
    Ok(name)
}

/// The memory that what this socket has sent takes until it is received (unix(7), `SIOCOUTQ`), bytes.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut len: libc::c_int = 0;
    // SAFETY: the kernel writes one number.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut len) }.into())?;
    Ok(len as usize)
}

/// What waits first in a socket.
#[derive(Debug)]
pub struct Peeked {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Copies of the descriptors that come with them.
    pub rights: Vec<OwnedFd>,
}

/// Look at what waits in a socket, at most `room` bytes, and leave it there. What is longer than that, or comes with
/// anything else than descriptors, is `ErrorKind::Unsupported`.
pub fn peek_message(socket: BorrowedFd<'_>, room: usize) -> io::Result<Peeked> {
    const CONTROL_WORDS: usize = 160;
    let mut peeked = Peeked { bytes: vec![0; room], rights: Vec::new() };
    let mut control = [0u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: peeked.bytes.as_mut_ptr().cast(), iov_len: room };
    let mut is_plain = true;
    // SAFETY: the header names a vector and two buffers of ours, as long as they are; the kernel's list of control
    // messages is walked by its own macros, and each descriptor in it is new and ours.
    let (len, flags) = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = std::mem::size_of_val(&control);
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let len = check(libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) as libc::c_long)?;
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            if ((*message).cmsg_level, (*message).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(message).cast::<i32>();
                let count = ((*message).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<i32>();
                peeked.rights.extend((0..count).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
            } else {
                is_plain = false;
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
        (len as usize, header.msg_flags)
    };
    if !is_plain || flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    peeked.bytes.truncate(len);
    // An entry of a log may keep it for long.
    peeked.bytes.shrink_to_fit();
    Ok(peeked)
}

/// Where the next peek at a socket begins (`SO_PEEK_OFF`); -1: at its beginning, always.
pub fn peek_offset(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut offset: libc::c_int = 0;
    let mut len = std::mem::size_of_val(&offset) as libc::socklen_t;
    // SAFETY: both are ours, and as long as they say.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            (&raw mut offset).cast(),
            &raw mut len,
        )
        .into()
    })?;
    Ok(offset)
}

/// How much memory a socket's queue of received data takes, and how much it may; bytes.
pub fn receive_memory(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    // SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF, and seven more.
    let mut memory = [0u32; 9];
    let mut len = std::mem::size_of_val(&memory) as libc::socklen_t;
    // SAFETY: both are ours, and as long as they say.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &raw mut len,
        )
        .into()
    })?;
    Ok((memory[0], memory[1]))
}

/// Set it.
pub fn set_peek_offset(socket: BorrowedFd<'_>, offset: i32) -> io::Result<()> {
    let len = std::mem::size_of_val(&offset) as libc::socklen_t;
    // SAFETY: a whole number.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw const offset).cast(), len)
            .into()
    })
    .map(drop)
}

/// Whether a directory has no flags (chattr(1)) and no project that it would give to what is made in it, by a
/// descriptor that only names it. `None` where that cannot be asked: file_getattr(2) came with Linux 6.17.
pub fn has_no_flags(dir: BorrowedFd<'_>) -> Option<bool> {
    const FILE_GETATTR: libc::c_long = 468;
    /// It has extended attributes.
    const HAS_ATTRIBUTES: u64 = 1 << 31;
    #[repr(C)]
    #[derive(Default)]
    struct FileAttr {
        xflags: u64,
        extent_size: u32,
        extents: u32,
        project: u32,
        copy_extent_size: u32,
    }
    let mut found = FileAttr::default();
    let (fd, len) = (dir.as_raw_fd(), std::mem::size_of_val(&found));
    // SAFETY: a string, and room for `len` bytes.
    let done = unsafe { libc::syscall(FILE_GETATTR, fd, c".".as_ptr(), &raw mut found, len, 0) };
    check(done).ok().map(|_| found.xflags & !HAS_ATTRIBUTES == 0 && found.project == 0)
}

/// Attributes of a file as stat(2) writes them.
pub fn stat(file: BorrowedFd<'_>) -> io::Result<[u8; 144]> {
    const _: () = assert!(std::mem::size_of::<libc::stat>() == 144);
    let mut found = [0; 144];
    let (fd, at) = (file.as_raw_fd(), found.as_mut_ptr());
    // SAFETY: an empty string, and room for the structure; the kernel does not mind how it is aligned.
    check(unsafe { libc::syscall(libc::SYS_newfstatat, fd, c"".as_ptr(), at, libc::AT_EMPTY_PATH) }).map(|_| found)
}

/// Those of `mask` as statx(2) writes them.
pub fn statx(file: BorrowedFd<'_>, mask: u32) -> io::Result<[u8; 256]> {
    const _: () = assert!(std::mem::size_of::<libc::statx>() == 256);
    let mut found = [0; 256];
    let (fd, at) = (file.as_raw_fd(), found.as_mut_ptr());
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, at) }).map(|_| found)
}

/// Whether anybody has a file open for writing: then it cannot be leased. Only for one that nobody else can open
/// meanwhile.
pub fn is_open_for_writing(file: BorrowedFd<'_>) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    !(lease(libc::F_RDLCK) && lease(libc::F_UNLCK))
}

/// Whether this open file has a lease.
pub fn is_leased(file: &OwnedFd) -> bool {
    // SAFETY: no pointers.
    !matches!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) }, -1 | libc::F_UNLCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn where_many_descriptors_are_left_not_each_question_looks() {
        let (few, many) = (AtomicU64::new(0), AtomicU64::new(0));
        for _ in 0..3 {
            assert!(has_fewer_descriptors_than(|limit| limit, &few));
        }
        assert!(!has_fewer_descriptors_than(|_| 0, &many));
        let looks = many.load(Ordering::Relaxed);
        (0..looks).for_each(|_| assert!(!has_fewer_descriptors_than(|limit| limit, &many)));
        assert!(has_fewer_descriptors_than(|limit| limit, &many), "no look after {looks} questions");
    }

    #[test]
    fn a_file_is_open_for_writing_among_many_descriptors() {
        let inode = |file: &std::fs::File| file.metadata().map(|found| (found.dev(), found.ino())).unwrap();
        let (_read, write) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let read_only = std::fs::File::open("/proc/self/exe").unwrap();
        let others: Vec<_> = (0..300).map(|_| write.try_clone().unwrap()).collect();
        let last = tempfile::tempfile().unwrap();
        let sought = inode(&last);
        assert!(has_open_for_writing(sought) && has_open_for_writing(inode(&write)));
        assert!(!has_open_for_writing(inode(&read_only)));
        // Numbers are missing now.
        others.into_iter().step_by(2).for_each(drop);
        assert!(has_open_for_writing(sought));
        drop(last);
        assert!(!has_open_for_writing(sought));
    }
}
