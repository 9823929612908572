//! System calls of the agent's own, and the program's: all of them leave from the gate page.

use agent_abi::{Frame, Request, REQUEST_NR};
use core::sync::atomic::AtomicU64;

extern "C" {
    fn gate_call(nr: u64, a0: u64, a1: u64, a2: u64, a3: u64, a4: u64, a5: u64) -> i64;
    fn gate_program();
    fn agent_leave();
    fn gate_effect(nr: u64, a0: u64, a1: u64, a2: u64) -> i64;
    fn gate_open_own(nr: u64, a0: u64, a1: u64, a2: u64, a3: u64, note: *const AtomicU64) -> i64;
    fn gate_close_own(fd: u64, note: *const AtomicU64);
    fn gate_clone(args: *const [u64; 6], nr: u64, page: u64, thread: u64, process: u64) -> i64;
}

pub const EPERM: i64 = 1;
pub const ENOENT: i64 = 2;
pub const EINTR: i64 = 4;
pub const EBADF: i64 = 9;
pub const ECHILD: i64 = 10;
pub const EAGAIN: i64 = 11;
pub const ENOMEM: i64 = 12;
pub const EACCES: i64 = 13;
pub const EFAULT: i64 = 14;
pub const EINVAL: i64 = 22;
pub const ETXTBSY: i64 = 26;
pub const ENOSYS: i64 = 38;
pub const EOPNOTSUPP: i64 = 95;

/// A call of the agent's own.
///
/// # Safety
/// As the call itself: pointers among the arguments must be valid for what the kernel does with them.
#[inline(always)]
pub unsafe fn call(nr: u64, args: [u64; 6]) -> i64 {
    // SAFETY: the gate changes only what a system call changes; the caller vouches for the pointers.
    unsafe { gate_call(nr, args[0], args[1], args[2], args[3], args[4], args[5]) }
}

/// The program's own call, with the arguments in its frame. Its result goes into the frame.
#[inline(always)]
pub fn program(frame: &mut Frame) -> i64 {
    let result = make(&frame.args, frame.nr);
    frame.rax = result as u64;
    result
}

#[inline(always)]
fn make(args: &[u64; 6], nr: u64) -> i64 {
    let result;
    // SAFETY: it is what the program asked for; were it harmful, it would be so without us. The gate changes what a
    // system call changes, and the registers of its arguments.
    unsafe {
        core::arch::asm!(
            "lea r12, [rip + 2f]",
            "jmp {gate}",
            "2:",
            gate = sym gate_program,
            inout("rdi") args => _,
            inout("rsi") nr => _,
            out("rax") result,
            out("rcx") _,
            out("rdx") _,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
            out("r12") _,
        );
    }
    result
}

/// The program goes on, with the registers in its frame.
///
/// # Safety
/// `frame` must be the thread's own, at the top of its stack. Nothing below it is needed any more.
#[inline(always)]
pub unsafe fn leave(frame: *mut Frame) -> ! {
    // SAFETY: see the function's own contract.
    unsafe {
        core::arch::asm!("mov rsp, {}", "jmp {leave}", in(reg) frame, leave = sym agent_leave, options(noreturn));
    }
}

/// Another call in the place of the program's own: behind it, the agent must finish.
#[inline(never)]
pub fn instead(args: &[u64; 6], nr: u64) -> i64 {
    make(args, nr)
}

/// Ask the supervisor something that can be asked twice.
pub fn request(what: Request, a: u64, b: u64, c: u64) -> i64 {
    // SAFETY: no kernel has this call; the supervisor answers it and reads memory only at the addresses it is given.
    unsafe { gate_call(u64::from(REQUEST_NR), what as u64, a, b, c, 0, 0) }
}

/// Ask the supervisor something that must not be asked twice: from here on the agent must finish.
pub fn effect(what: Request, a: u64, b: u64) -> i64 {
    // SAFETY: as `request`.
    unsafe { gate_effect(u64::from(REQUEST_NR), what as u64, a, b) }
}

/// Open a descriptor of the agent's own, and note it: its number and one more. What cannot be opened is noted
/// as nothing.
///
/// # Safety
/// As `call`; `note` must be one of this thread's page that holds nothing.
pub unsafe fn open_own(nr: u64, args: [u64; 4], note: &AtomicU64) -> i64 {
    // SAFETY: see the function's own contract.
    unsafe { gate_open_own(nr, args[0], args[1], args[2], args[3], note) }
}

/// Close a descriptor of the agent's own, and forget it.
///
/// # Safety
/// The descriptor must be the one that `note` has.
pub unsafe fn close_own(fd: u64, note: &AtomicU64) {
    // SAFETY: see the function's own contract.
    unsafe { gate_close_own(fd, note) }
}

/// Make a child. It comes to life in `process::child` on its own page.
///
/// # Safety
/// `page` must be a prepared `ThreadPage` that nobody else uses in the child's memory.
pub unsafe fn clone(args: &[u64; 6], nr: u64, page: u64, thread: usize, process: usize) -> i64 {
    // SAFETY: see the function's own contract.
    unsafe { gate_clone(args, nr, page, thread as u64, process as u64) }
}

/// Stop for good.
pub fn trap() -> ! {
    // SAFETY: ends the process.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
