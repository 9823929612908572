//! The few calls that need `unsafe`: ptrace, System V memory, another process's memory, fork.

use crate::{Result, TraceError};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;

/// A thread's general registers, as the kernel lays them out (`struct user_regs_struct`).
pub type Registers = libc::user_regs_struct;

/// A signal with everything that came with it (`siginfo_t`).
#[derive(Clone, Copy)]
pub struct SignalInfo(pub(crate) libc::siginfo_t);

impl std::fmt::Debug for SignalInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SignalInfo({}, code {})", self.0.si_signo, self.0.si_code)
    }
}

impl Default for SignalInfo {
    fn default() -> Self {
        // SAFETY: plain data.
        Self(unsafe { std::mem::zeroed() })
    }
}

impl SignalInfo {
    /// `si_code`.
    pub fn code(&self) -> i32 {
        self.0.si_code
    }
    /// `si_signo`.
    pub fn number(&self) -> i32 {
        self.0.si_signo
    }
}

fn ptrace(what: &'static str, request: libc::c_uint, tid: i32, address: usize, data: usize) -> Result<i64> {
    // SAFETY: the callers below pass, as address and data, integers or pointers to whole objects of the type that the request wants.
    let answer = unsafe { libc::ptrace(request, tid, address, data) };
    if answer == -1 {
        return Err(TraceError::last(what, tid));
    }
    Ok(answer)
}

pub(crate) fn seize(tid: i32, options: i32) -> Result<()> {
    ptrace("attach", libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

pub(crate) fn resume(tid: i32, request: libc::c_uint, signal: i32) -> Result<()> {
    ptrace("resume", request, tid, 0, signal as usize).map(drop)
}

pub(crate) fn registers(tid: i32) -> Result<Registers> {
    // SAFETY: integers only.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    ptrace("registers", libc::PTRACE_GETREGS, tid, 0, &raw mut registers as usize)?;
    Ok(registers)
}

pub(crate) fn set_registers(tid: i32, registers: &Registers) -> Result<()> {
    ptrace("set registers", libc::PTRACE_SETREGS, tid, 0, registers as *const _ as usize).map(drop)
}

pub(crate) fn event_message(tid: i32) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    ptrace("event", libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(message)
}

pub(crate) fn signal_info(tid: i32) -> Result<SignalInfo> {
    // SAFETY: plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    ptrace("signal", libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as usize)?;
    Ok(SignalInfo(info))
}

pub(crate) fn set_signal_info(tid: i32, info: &SignalInfo) -> Result<()> {
    ptrace("set signal", libc::PTRACE_SETSIGINFO, tid, 0, &raw const info.0 as usize).map(drop)
}

pub(crate) fn signal_mask(tid: i32) -> Result<u64> {
    let mut mask = 0u64;
    ptrace("signal mask", libc::PTRACE_GETSIGMASK, tid, 8, &raw mut mask as usize)?;
    Ok(mask)
}

pub(crate) fn set_signal_mask(tid: i32, mask: u64) -> Result<()> {
    ptrace("set signal mask", libc::PTRACE_SETSIGMASK, tid, 8, &raw const mask as usize).map(drop)
}

/// Write a word to a stopped thread's process, to read-only pages too.
pub(crate) fn write_word(tid: i32, address: u64, word: u64) -> Result<()> {
    ptrace("write", libc::PTRACE_POKETEXT, tid, address as usize, word as usize).map(drop)
}

thread_local! {
    /// What happened to other threads while one was being stepped.
    static LATER: RefCell<VecDeque<(i32, i32)>> = const { RefCell::new(VecDeque::new()) };
}

/// Keep something that happened for the next `wait_any`.
pub(crate) fn keep_for_later(tid: i32, status: i32) {
    LATER.with_borrow_mut(|later| later.push_back((tid, status)));
}

/// Wait for any tracee, those first that were kept. `None` when there are none left.
pub(crate) fn wait_any() -> io::Result<Option<(i32, i32)>> {
    match LATER.with_borrow_mut(VecDeque::pop_front) {
        Some(event) => Ok(Some(event)),
        None => wait_new(),
    }
}

/// Wait for something new of any tracee. `None` when there are none left.
pub(crate) fn wait_new() -> io::Result<Option<(i32, i32)>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours.
        let tid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
        if tid > 0 {
            return Ok(Some((tid, status)));
        }
        match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e => return Err(e),
        }
    }
}

/// Read another process's memory; how many bytes could be read.
pub(crate) fn read_remote(pid: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: into.len() };
    // SAFETY: `local` is exactly `into`; the kernel checks `remote`.
    let got = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(got as usize)
}

/// A value of any plain type from another process.
pub(crate) fn read_remote_value<T: Copy>(pid: i32, address: u64) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the slice covers the value; callers use only types for which every bit pattern is valid (see `memory::Plain`).
    let bytes = unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), std::mem::size_of::<T>()) };
    let got = read_remote(pid, address, bytes)?;
    if got != bytes.len() {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    // SAFETY: zeroed, then overwritten; plain by contract.
    Ok(unsafe { value.assume_init() })
}

/// Attach a segment; one of whole huge pages where a huge page may begin.
unsafe fn attach_aligned(id: i32, len: usize) -> *mut libc::c_void {
    const RESERVED: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the reservation is at a place of the kernel's choice and is ours: the segment takes a part of it, the rest is given back.
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

/// What a huge page holds on x86-64, bytes.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Have the kernel put a fresh segment of ours, whole huge pages long, into huge pages. It stays as it is where the kernel cannot (before Linux 6.1,
/// or without that much memory in one piece).
pub(crate) fn collapse_segment(at: *mut u8, len: usize) {
    const MADV_COLLAPSE: libc::c_int = 25;
    // A huge page is made where one page is already there.
    for start in (0..len).step_by(HUGE_PAGE) {
        // SAFETY: within the segment, which nobody else has yet; zero is what is there.
        unsafe { at.add(start).write_volatile(0) };
    }
    // SAFETY: the range is the segment's; its contents stay.
    unsafe { libc::madvise(at.cast(), len, MADV_COLLAPSE) };
}

/// Give a segment to a user.
pub(crate) fn set_segment_owner(id: i32, uid: u32) -> io::Result<()> {
    // SAFETY: `ds` is a whole `shmid_ds`.
    unsafe {
        let mut ds: libc::shmid_ds = std::mem::zeroed();
        if libc::shmctl(id, libc::IPC_STAT, &mut ds) != 0 {
            return Err(io::Error::last_os_error());
        }
        ds.shm_perm.uid = uid;
        if libc::shmctl(id, libc::IPC_SET, &mut ds) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
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
    // SAFETY: the segment has the size of a `World`, is page aligned, zeroed, and lives until the process ends (`WorldSegment` is leaked);
    // a `World` is made of atomics, for which any bits are valid.
    unsafe { &*at.cast::<agent_abi::World>() }
}

/// The two sides of a fork.
#[derive(Debug)]
pub enum Forked {
    /// In the parent: the child's pid.
    Parent(i32),
    /// In the child.
    Child,
}

/// Fork. Only from a process with one thread, so that the child may do what it likes.
pub fn fork_with() -> io::Result<Forked> {
    // SAFETY: the caller has one thread (documented).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Install the filter in this process: from here on its system calls stop. With root the program may still gain privileges by exec.
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
