//! The few calls that need `unsafe`: ptrace, System V memory, another process's memory, fork.

mod signal_info;

pub use signal_info::SignalInfo;

use crate::{Result, TraceError};
use procfs::{ProcessId, TaskId, ThreadId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;

/// A thread's general registers, as the kernel lays them out (`struct user_regs_struct`).
pub type Registers = libc::user_regs_struct;

fn ptrace(what: &'static str, request: libc::c_uint, tid: ThreadId, address: usize, data: usize) -> Result<i64> {
    // SAFETY: the callers below pass, as address and data, integers or pointers to whole objects of the type that the
    // request wants.
    let answer = unsafe { libc::ptrace(request, tid.as_raw(), address, data) };
    if answer == -1 {
        return Err(TraceError::last(what, tid));
    }
    Ok(answer)
}

pub(crate) fn seize(tid: ThreadId, options: i32) -> Result<()> {
    ptrace("attach", libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

pub(crate) fn set_options(tid: ThreadId, options: i32) -> Result<()> {
    ptrace("options", libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

pub(crate) fn resume(tid: ThreadId, request: libc::c_uint, signal: i32) -> Result<()> {
    ptrace("resume", request, tid, 0, signal as usize).map(drop)
}

pub(crate) fn registers(tid: ThreadId) -> Result<Registers> {
    // SAFETY: integers only.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    ptrace("registers", libc::PTRACE_GETREGS, tid, 0, &raw mut registers as usize)?;
    Ok(registers)
}

pub(crate) fn set_registers(tid: ThreadId, registers: &Registers) -> Result<()> {
    ptrace("set registers", libc::PTRACE_SETREGS, tid, 0, registers as *const _ as usize).map(drop)
}

pub(crate) fn event_message(tid: ThreadId) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    ptrace("event", libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(message)
}

pub(crate) fn signal_info(tid: ThreadId) -> Result<SignalInfo> {
    // SAFETY: plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    ptrace("signal", libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as usize)?;
    Ok(SignalInfo(info))
}

pub(crate) fn set_signal_info(tid: ThreadId, info: &SignalInfo) -> Result<()> {
    ptrace("set signal", libc::PTRACE_SETSIGINFO, tid, 0, &raw const info.0 as usize).map(drop)
}

pub(crate) fn signal_mask(tid: ThreadId) -> Result<u64> {
    let mut mask = 0u64;
    ptrace("signal mask", libc::PTRACE_GETSIGMASK, tid, 8, &raw mut mask as usize)?;
    Ok(mask)
}

pub(crate) fn set_signal_mask(tid: ThreadId, mask: u64) -> Result<()> {
    ptrace("set signal mask", libc::PTRACE_SETSIGMASK, tid, 8, &raw const mask as usize).map(drop)
}

/// Write a word to a stopped thread's process, to read-only pages too.
pub(crate) fn write_word(tid: ThreadId, address: u64, word: u64) -> Result<()> {
    ptrace("write", libc::PTRACE_POKETEXT, tid, address as usize, word as usize).map(drop)
}

thread_local! {
    /// What happened to other threads while one was being stepped.
    static LATER: RefCell<VecDeque<(ThreadId, i32)>> = const { RefCell::new(VecDeque::new()) };

    /// How many events were taken one by one since all that had stopped were taken together.
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// Keep something that happened for the next `wait_any`.
pub(crate) fn keep_for_later(tid: ThreadId, status: i32) {
    // Nobody hears of anything any more where a thread of ours ends.
    let _ = LATER.try_with(|later| later.borrow_mut().push_back((tid, status)));
}

/// The next thing that was kept.
///
/// The kernel tells first of the tracee that was attached last. Two that stop again and again, each time before the
/// next wait, would keep it from ever telling of an older one, for which somebody may wait. So after some events all
/// tracees that have stopped are taken, and each of them comes before any of them comes once more.
fn next_kept() -> io::Result<Option<(ThreadId, i32)>> {
    const ONE_BY_ONE: u32 = 64;
    let kept = LATER.with_borrow_mut(VecDeque::pop_front);
    let taken = TAKEN.get() + 1;
    if kept.is_some() || taken < ONE_BY_ONE {
        TAKEN.set(taken);
        return Ok(kept);
    }
    TAKEN.set(0);
    while let Looked::Event(tid, status) = look_at(-1)? {
        keep_for_later(tid, status);
    }
    Ok(LATER.with_borrow_mut(VecDeque::pop_front))
}

/// Wait for any tracee, those first that were kept. `None` when there are none left, `Some(None)` when somebody woke
/// us.
pub(crate) fn wait_any() -> io::Result<Option<Option<(ThreadId, i32)>>> {
    match next_kept()? {
        Some(event) => Ok(Some(Some(event))),
        None => wait_once(),
    }
}

/// Wait until something new has happened to any tracee, and leave it there: the next `wait_new` mostly finds it. `Some`
/// if it has ended; an error also when somebody woke us.
pub(crate) fn look_for_end() -> io::Result<Option<ThreadId>> {
    const LEAVE: i32 = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
    let mut info = SignalInfo::default();
    // SAFETY: `info` is ours.
    let answer = unsafe { libc::waitid(libc::P_ALL, 0, &mut info.0, LEAVE) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let has_ended = matches!(info.code(), libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    // A wait tells of a thread where that is what has ended.
    Ok(has_ended.then(|| ThreadId::from_raw(info.process().as_raw())))
}

/// Whether somebody's stop at his end is kept for the next `wait_any`.
pub(crate) fn is_end_kept() -> bool {
    LATER.with_borrow(|later| later.iter().any(|&(_, status)| crate::thread_state::stands_at_end(status)))
}

/// Whether something is kept for the next `wait_any`.
pub(crate) fn is_anything_kept() -> bool {
    LATER.with_borrow(|later| !later.is_empty())
}

/// Wait for something new of any tracee. `None` when there are none left.
pub(crate) fn wait_new() -> io::Result<Option<(ThreadId, i32)>> {
    loop {
        match wait_once()? {
            Some(Some(event)) => return Ok(Some(event)),
            Some(None) => {}
            None => return Ok(None),
        }
    }
}

/// The same, or until a signal was handled.
fn wait_once() -> io::Result<Option<Option<(ThreadId, i32)>>> {
    let mut status = 0;
    // SAFETY: `status` is ours.
    let tid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
    if tid > 0 {
        return Ok(Some(Some((ThreadId::from_raw(tid), status))));
    }
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        e if e.kind() == io::ErrorKind::Interrupted => Ok(Some(None)),
        e => Err(e),
    }
}

/// Ends a wait; harmless, and used by nobody else in the supervisor.
const WAKE: i32 = libc::SIGURG;

/// Let `wake` end the waits of this thread; its id.
pub(crate) fn can_be_woken() -> io::Result<ThreadId> {
    extern "C" fn nothing(_: i32) {}
    let handler: extern "C" fn(i32) = nothing;
    // SAFETY: the handler does nothing; without SA_RESTART the wait that it interrupts ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        match libc::sigaction(WAKE, &action, std::ptr::null_mut()) {
            0 => Ok(ThreadId::from_raw(libc::syscall(libc::SYS_gettid) as i32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Send a thread of ours out of its wait.
pub(crate) fn wake(tid: ThreadId) {
    // SAFETY: no pointers; it handles the signal.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid.as_raw(), WAKE) };
}

/// Wait for any tracee until `deadline` at the latest; `Some(None)` when the time is up or somebody woke us. SIGCHLD
/// must be blocked (`block_child_signal`): then it stays pending from the moment of an event until somebody waits, and
/// none is missed between the two looks.
pub(crate) fn wait_any_until(deadline: std::time::Instant) -> io::Result<Option<Option<(ThreadId, i32)>>> {
    if let Some(event) = next_kept()? {
        return Ok(Some(Some(event)));
    }
    // A SIGCHLD of what has been waited for by its own id since tells nothing. To look at all tracees takes the longer
    // the more of them stand still: not once for that, and then once more.
    if matches!(woken_by(std::time::Duration::ZERO), Woken::Other) {
        return Ok(Some(None));
    }
    loop {
        // All of them, as the SIGCHLD of several is one.
        match look_at(-1)? {
            Looked::Event(tid, status) => return Ok(Some(Some((tid, status)))),
            Looked::Nobody => return Ok(None),
            Looked::Nothing => {}
        }
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Ok(Some(None));
        }
        match woken_by(left) {
            Woken::Other => return Ok(Some(None)),
            Woken::Timeout => {}
            // The one that it tells of is found without a look at all. Somebody may have sent it who is none of them.
            Woken::Child(tid) if tid > 0 => {
                if let Looked::Event(tid, status) = look_at(tid)? {
                    return Ok(Some(Some((tid, status))));
                }
            }
            Woken::Child(_) => {}
        }
    }
}

/// What a look at tracees has found.
enum Looked {
    Event(ThreadId, i32),
    Nothing,
    /// There are none.
    Nobody,
}

/// What has happened to one tracee, or to any (-1).
fn look_at(tid: i32) -> io::Result<Looked> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours.
        match unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) } {
            0 => return Ok(Looked::Nothing),
            found if found > 0 => return Ok(Looked::Event(ThreadId::from_raw(found), status)),
            _ => {}
        }
        match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => return Ok(Looked::Nobody),
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e => return Err(e),
        }
    }
}

/// What has ended a wait for a SIGCHLD.
enum Woken {
    /// One of this thread has been taken.
    Child(i32),
    /// The time.
    Timeout,
    /// Somebody else.
    Other,
}

/// Take the SIGCHLD that waits, or comes within this time, if one does.
fn woken_by(within: std::time::Duration) -> Woken {
    let within = libc::timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    let mut info = SignalInfo::default();
    // SAFETY: the set, the information and the time are ours.
    let answer = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigtimedwait(&set, &mut info.0, &within)
    };
    match answer {
        0.. => Woken::Child(info.process().as_raw()),
        _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Woken::Other,
        _ => Woken::Timeout,
    }
}

/// Wait until a SIGCHLD comes, for so long at most. Where it is not blocked it is not heard of.
pub(crate) fn await_child_signal(within: std::time::Duration) {
    woken_by(within);
}

/// Block SIGCHLD in this thread and those that it starts.
pub(crate) fn block_child_signal() {
    // SAFETY: the set is ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Wait for one thread only; what others do stays in the kernel. `None` when it is no tracee or child of ours.
pub(crate) fn wait_for(tid: ThreadId) -> io::Result<Option<i32>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours.
        if unsafe { libc::waitpid(tid.as_raw(), &mut status, libc::__WALL) } == tid.as_raw() {
            return Ok(Some(status));
        }
        match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e => return Err(e),
        }
    }
}

/// Kill a process.
pub(crate) fn kill(pid: ProcessId) -> Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::kill(pid.as_raw(), libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(TraceError::last("kill", pid)),
    }
}

/// Wait for the end of a thread that was killed, or only look (`WNOHANG` in `flags`; then `None`: not yet); its stops
/// on the way there do not matter any more.
pub(crate) fn wait_end(tid: ThreadId, flags: i32) -> io::Result<Option<i32>> {
    while let Some(status) = take_kept(tid) {
        if !libc::WIFSTOPPED(status) {
            return Ok(Some(status));
        }
        let _ = resume(tid, libc::PTRACE_CONT, 0);
    }
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours.
        match unsafe { libc::waitpid(tid.as_raw(), &mut status, libc::__WALL | flags) } {
            0 => return Ok(None),
            waited if waited == tid.as_raw() && !libc::WIFSTOPPED(status) => return Ok(Some(status)),
            waited if waited == tid.as_raw() => {
                // On its way out one may stop once more (PTRACE_O_TRACEEXIT).
                let _ = resume(tid, libc::PTRACE_CONT, 0);
                continue;
            }
            _ => {}
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e => return Err(e),
        }
    }
}

/// The next thing that was kept for later about this thread.
pub(crate) fn take_kept(tid: ThreadId) -> Option<i32> {
    LATER.with_borrow_mut(|later| {
        let at = later.iter().position(|&(kept, _)| kept == tid)?;
        later.remove(at).map(|(_, status)| status)
    })
}

pub(crate) fn interrupt(tid: ThreadId) -> Result<()> {
    ptrace("interrupt", libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Read another process's memory; how many bytes could be read.
pub(crate) fn read_remote(task: TaskId, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: into.len() };
    // SAFETY: `local` is exactly `into`; the kernel checks `remote`.
    let got = unsafe { libc::process_vm_readv(task.as_raw(), &local, 1, &remote, 1, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(got as usize)
}

/// Ranges of another process, one after the other, as the kernel wants them.
fn remote_vectors(ranges: &[std::ops::Range<u64>]) -> (Vec<libc::iovec>, usize) {
    let vector = |range: &std::ops::Range<u64>| libc::iovec {
        iov_base: range.start as *mut _,
        iov_len: (range.end - range.start) as usize,
    };
    let remote: Vec<libc::iovec> = ranges.iter().map(vector).collect();
    let len = remote.iter().map(|vector| vector.iov_len).sum();
    (remote, len)
}

/// Read ranges of another process's memory, at most `IOV_MAX`, into one buffer; how many bytes could be read.
pub(crate) fn read_ranges(task: TaskId, ranges: &[std::ops::Range<u64>], into: &mut [u8]) -> io::Result<usize> {
    let (remote, len) = remote_vectors(ranges);
    assert!(len <= into.len());
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: `local` lies in `into`; the kernel checks `remote`.
    let got =
        unsafe { libc::process_vm_readv(task.as_raw(), &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Write one buffer to ranges of another process's memory, at most `IOV_MAX`; how many bytes could be written.
pub(crate) fn write_ranges(task: TaskId, ranges: &[std::ops::Range<u64>], bytes: &[u8]) -> io::Result<usize> {
    let (remote, len) = remote_vectors(ranges);
    assert!(len <= bytes.len());
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len };
    // SAFETY: `local` lies in `bytes` and is only read; the kernel checks `remote`.
    let put =
        unsafe { libc::process_vm_writev(task.as_raw(), &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0) };
    usize::try_from(put).map_err(|_| io::Error::last_os_error())
}

/// A value of any plain type from another process.
pub(crate) fn read_remote_value<T: Copy>(task: TaskId, address: u64) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the slice covers the value; callers use only types for which every bit pattern is valid (see
    // `memory::Plain`).
    let bytes = unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), std::mem::size_of::<T>()) };
    let got = read_remote(task, address, bytes)?;
    if got != bytes.len() {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    // SAFETY: zeroed, then overwritten; plain by contract.
    Ok(unsafe { value.assume_init() })
}

/// Attach a segment; one of whole huge pages where a huge page may begin.
unsafe fn attach_aligned(id: i32, len: usize) -> *mut libc::c_void {
    const RESERVED: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the reservation is at a place of the kernel's choice and is ours: the segment takes a part of it, the
    // rest is given back.
    unsafe {
        if !len.is_multiple_of(HUGE_PAGE) {
            return libc::shmat(id, std::ptr::null(), 0);
        }
        let reserved = libc::mmap(std::ptr::null_mut(), len + HUGE_PAGE, libc::PROT_NONE, RESERVED, -1, 0);
        if reserved == libc::MAP_FAILED {
            return libc::shmat(id, std::ptr::null(), 0);
        }
        let before = reserved.align_offset(HUGE_PAGE);
        let place = reserved.byte_add(before);
        let at = libc::shmat(id, place, libc::SHM_REMAP);
        if at != place {
            libc::munmap(reserved, len + HUGE_PAGE);
            return at;
        }
        if before > 0 {
            libc::munmap(reserved, before);
        }
        libc::munmap(place.byte_add(len), HUGE_PAGE - before);
        at
    }
}

/// A new System V segment of `len` bytes, attached here at an address of the kernel's choice and already marked for
/// removal: it lives as long as somebody is attached.
pub(crate) fn create_segment(len: usize, mode: i32) -> io::Result<(i32, *mut u8)> {
    // SAFETY: no pointers go in; the new mapping comes at a free address.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | mode);
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        let at = attach_aligned(id, len);
        let attached = if at as isize == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        attached.map(|()| (id, at.cast()))
    }
}

/// A segment goes away with the last process that has it.
pub(crate) fn mark_segment_for_removal(id: i32) -> io::Result<()> {
    // SAFETY: the request takes no pointer.
    checked(unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }.into()).map(drop)
}

#[cfg(test)]
pub(crate) fn tests_only_unmarked_segment() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600) }
}

/// What a huge page holds on x86-64, bytes.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Have the kernel put a segment of ours, whole huge pages long, into huge pages. It stays as it is where the kernel
/// cannot (before Linux 6.1, or without that much memory in one piece).
pub(crate) fn collapse_segment(at: *mut u8, len: usize) {
    const MADV_COLLAPSE: libc::c_int = 25;
    // A huge page is made where one page is already there.
    for start in (0..len).step_by(HUGE_PAGE) {
        // SAFETY: within the segment; any value will do.
        unsafe { at.add(start).read_volatile() };
    }
    // SAFETY: the range is the segment's; its contents stay.
    unsafe { libc::madvise(at.cast(), len, MADV_COLLAPSE) };
}

/// What the kernel says of a segment.
pub(crate) fn segment_state(id: i32) -> io::Result<libc::shmid_ds> {
    // SAFETY: `ds` is a whole `shmid_ds`.
    unsafe {
        let mut ds: libc::shmid_ds = std::mem::zeroed();
        checked(libc::shmctl(id, libc::IPC_STAT, &mut ds).into()).map(|_| ds)
    }
}

/// Give a segment to a user.
pub(crate) fn set_segment_owner(id: i32, uid: u32) -> io::Result<()> {
    let mut ds = segment_state(id)?;
    ds.shm_perm.uid = uid;
    // SAFETY: `ds` is a whole `shmid_ds`.
    checked(unsafe { libc::shmctl(id, libc::IPC_SET, &mut ds) }.into()).map(drop)
}

pub(crate) fn detach_segment(at: *mut u8) {
    // SAFETY: `at` came from `create_segment` and its owner is being dropped.
    unsafe { libc::shmdt(at.cast()) };
}

pub(crate) fn copy_into_segment(at: *mut u8, len: usize, bytes: &[u8]) {
    assert!(bytes.len() <= len);
    // SAFETY: the segment has `len` bytes and nobody else has it yet.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
}

pub(crate) fn world_at(at: *mut u8) -> &'static agent_abi::World {
    // SAFETY: the segment has the size of a `World`, is page aligned, zeroed, and lives until the process ends
    // (`WorldSegment` is leaked); a `World` is made of atomics, for which any bits are valid.
    unsafe { &*at.cast::<agent_abi::World>() }
}

pub(crate) fn collapse_world(world: &'static agent_abi::World) {
    let len = std::mem::size_of::<agent_abi::World>().next_multiple_of(HUGE_PAGE);
    collapse_segment(std::ptr::from_ref(world).cast_mut().cast(), len);
}

/// The two sides of a fork.
#[derive(Debug)]
pub enum Forked {
    /// In the parent: the child's pid.
    Parent(ProcessId),
    /// In the child.
    Child,
}

/// Fork. Only from a process with one thread, so that the child may do what it likes.
pub fn fork_with() -> io::Result<Forked> {
    // SAFETY: the caller has one thread (documented).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(ProcessId::from_raw(pid))),
    }
}

/// Install the filter in this process: from here on its system calls stop. With root the program may still gain
/// privileges by exec.
pub fn enter_world(filter: &crate::Filter, no_new_privileges: bool) -> io::Result<()> {
    const SECCOMP_SET_MODE_FILTER: libc::c_ulong = 1;
    let program = filter.program();
    let fprog = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr() as *mut libc::sock_filter };
    // SAFETY: `fprog` describes `program`, which lives until the call returns.
    unsafe {
        if no_new_privileges && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

const NT_X86_XSTATE: usize = 0x202;

pub(crate) fn extended_state(tid: ThreadId) -> Result<Vec<u8>> {
    // What a processor of today has at most, tiles included; the kernel says how much it is.
    let mut state = vec![0u8; 12 << 10];
    let mut iov = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    ptrace("vector registers", libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut iov as usize)?;
    state.truncate(iov.iov_len);
    Ok(state)
}

pub(crate) fn set_extended_state(tid: ThreadId, state: &[u8]) -> Result<()> {
    let iov = libc::iovec { iov_base: state.as_ptr() as *mut _, iov_len: state.len() };
    ptrace("set vector registers", libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, &raw const iov as usize).map(drop)
}

/// Where a thread's restartable sequences are registered (`struct ptrace_rseq_configuration`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RseqConfiguration {
    /// Address of its `struct rseq`; 0: not registered.
    pub pointer: u64,
    /// Length of it, bytes.
    pub size: u32,
    /// What stands before an abort handler.
    pub signature: u32,
    /// Flags.
    pub flags: u32,
    /// Unused.
    pub pad: u32,
}

pub(crate) fn rseq_configuration(tid: ThreadId) -> Result<RseqConfiguration> {
    const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
    let mut configuration = RseqConfiguration::default();
    let len = std::mem::size_of::<RseqConfiguration>();
    ptrace("rseq", PTRACE_GET_RSEQ_CONFIGURATION, tid, len, &raw mut configuration as usize)?;
    Ok(configuration)
}

pub(crate) fn pending_signals(tid: ThreadId, shared: bool) -> Result<Vec<SignalInfo>> {
    const MOST: usize = 8;
    let mut infos = vec![SignalInfo::default(); MOST];
    let mut pending = Vec::new();
    loop {
        let arguments = libc::ptrace_peeksiginfo_args {
            off: pending.len() as u64,
            flags: if shared { libc::PTRACE_PEEKSIGINFO_SHARED } else { 0 },
            nr: MOST as i32,
        };
        // `SignalInfo` is one field, a `siginfo_t`; there are `MOST` of them.
        let (from, into) = (&raw const arguments as usize, infos.as_mut_ptr() as usize);
        let got = ptrace("pending signals", libc::PTRACE_PEEKSIGINFO, tid, from, into)? as usize;
        pending.extend_from_slice(&infos[..got]);
        if got < MOST {
            return Ok(pending);
        }
    }
}

fn checked(answer: i64) -> io::Result<i64> {
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

pub(crate) fn robust_list(tid: ThreadId) -> io::Result<(u64, u64)> {
    let (mut head, mut len) = (0u64, 0u64);
    // SAFETY: both are ours and of the kernel's size.
    checked(unsafe { libc::syscall(libc::SYS_get_robust_list, tid.as_raw(), &mut head, &mut len) })?;
    Ok((head, len))
}

pub(crate) fn limit(
    pid: ProcessId,
    resource: u32,
    new: Option<crate::process_state::Limit>,
) -> io::Result<crate::process_state::Limit> {
    let mut old = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let new = new.map(|limit| libc::rlimit64 { rlim_cur: limit.soft, rlim_max: limit.hard });
    let from = new.as_ref().map_or(std::ptr::null(), |limit| &raw const *limit);
    // SAFETY: `from` is null or a whole limit; `old` is ours.
    checked(unsafe { libc::prlimit64(pid.as_raw(), resource, from, &mut old) }.into())?;
    Ok(crate::process_state::Limit { soft: old.rlim_cur, hard: old.rlim_max })
}

pub(crate) fn niceness(tid: ThreadId) -> io::Result<i32> {
    // SAFETY: no pointers. The bare call answers 20 - nice, so that -1 is always an error.
    let answer = checked(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid.as_raw()) })?;
    Ok(20 - answer as i32)
}

pub(crate) fn set_niceness(tid: ThreadId, nice: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    checked(unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid.as_raw(), nice) }).map(drop)
}

pub(crate) fn affinity(tid: ThreadId) -> io::Result<Vec<u64>> {
    let mut mask = vec![0u64; 128];
    // SAFETY: the length is that of the buffer.
    let len = checked(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid.as_raw(), mask.len() * 8, mask.as_mut_ptr())
    })?;
    mask.truncate(len as usize / 8);
    Ok(mask)
}

pub(crate) fn set_affinity(tid: ThreadId, mask: &[u64]) -> io::Result<()> {
    // SAFETY: the length is that of the buffer.
    checked(unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid.as_raw(), mask.len() * 8, mask.as_ptr()) })
        .map(drop)
}

pub(crate) fn run_first() -> bool {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: `param` is whole.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &param) == 0 }
}

pub(crate) fn bring_near(tid: ThreadId) {
    // SAFETY: no arguments.
    let Ok(core) = usize::try_from(unsafe { libc::sched_getcpu() }) else { return };
    let mut mask = vec![0u64; core / 64 + 1];
    mask[core / 64] = 1 << (core % 64);
    let _ = set_affinity(tid, &mask);
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct PagemapScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

pub(crate) fn own_pages(pagemap: &std::fs::File) -> io::Result<Vec<std::ops::Range<u64>>> {
    use std::os::fd::AsRawFd;
    const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610; // _IOWR('f', 16, struct pm_scan_arg)
    const FILE: u64 = 1 << 2;
    const PRESENT: u64 = 1 << 3;
    const SWAPPED: u64 = 1 << 4;
    const ADDRESSES_END: u64 = 0x7fff_ffff_f000;
    let mut regions = vec![PageRegion::default(); 512];
    let mut found: Vec<std::ops::Range<u64>> = Vec::new();
    let mut start = 0;
    while start < ADDRESSES_END {
        let mut scan = PagemapScan {
            size: std::mem::size_of::<PagemapScan>() as u64,
            flags: 0,
            start,
            end: ADDRESSES_END,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: FILE,
            category_mask: FILE,
            category_anyof_mask: PRESENT | SWAPPED,
            return_mask: FILE,
        };
        // SAFETY: `scan` describes `regions`, both live until the call returns.
        let answer = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &mut scan) };
        let count = match checked(answer.into()) {
            Ok(count) => count as usize,
            Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => return Err(io::ErrorKind::Unsupported.into()),
            Err(e) => return Err(e),
        };
        for region in &regions[..count] {
            match found.last_mut() {
                Some(last) if last.end == region.start => last.end = region.end,
                _ => found.push(region.start..region.end),
            }
        }
        start = scan.walk_end;
    }
    Ok(found)
}
