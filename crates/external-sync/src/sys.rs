//! The system calls that no safe wrapper offers: loop device requests, and probes that try a thing in a child process
//! and report what came of it. All unsafe code of this crate is here.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
/// `_IOWR('f', 22, u8[9])`: a length, and room for a policy (fscrypt).
const FS_IOC_GET_ENCRYPTION_POLICY_EX: libc::c_ulong = 0xc009_6616;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The number of a loop device that nothing is attached to at this moment.
pub fn loop_free(control: &File) -> io::Result<u32> {
    // SAFETY: this request takes no argument and touches no memory of ours.
    let number = check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })?;
    Ok(number.unsigned_abs())
}

/// Ends all writing to an ext4 file system, its journal included, at once.
pub fn shut_down(root: BorrowedFd<'_>) -> io::Result<()> {
    const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
    const NO_LOG_FLUSH: u32 = 2;
    let flags = NO_LOG_FLUSH;
    // SAFETY: the request reads one u32, which lives until the call returns.
    check(unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_SHUTDOWN, &flags) }).map(drop)
}

/// Writes all changed pages of a file, and waits until the disk has them in its cache. What the file system keeps in
/// its journal is not written.
pub fn write_back(file: BorrowedFd<'_>) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no pointers.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) }).map(drop)
}

/// Attaches `image` to the loop device `device` until the last user of the device is gone.
pub fn loop_configure(device: &File, image: &File, name: &[u8]) -> io::Result<()> {
    // SAFETY: both structures are integers and byte arrays, for which all-zero is a value.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = image.as_raw_fd().unsigned_abs();
    config.info.flags = LO_FLAGS_AUTOCLEAR;
    let len = name.len().min(config.info.file_name.len() - 1);
    config.info.file_name[..len].copy_from_slice(&name[..len]);
    // SAFETY: LOOP_CONFIGURE reads one `loop_config`, which lives until the call returns.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &config) }).map(drop)
}

/// Device and inode number of the file attached to a loop device.
pub fn loop_backing(device: &File) -> io::Result<(u64, u64)> {
    // SAFETY: as above, all-zero is a value.
    let mut info: LoopInfo = unsafe { std::mem::zeroed() };
    // SAFETY: LOOP_GET_STATUS64 writes one `loop_info64`, which lives until the call returns.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &mut info) })?;
    Ok((info.device, info.inode))
}

/// Whether a directory is encrypted; `OPNOTSUPP` where none can be.
pub fn encryption_policy(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    const POLICY_LEN: u64 = 24;
    let mut argument = [POLICY_LEN, 0, 0, 0];
    // SAFETY: FS_IOC_GET_ENCRYPTION_POLICY_EX reads a length and writes at most so many bytes behind it; the array
    // lives until the call returns.
    let done = unsafe { libc::ioctl(directory.as_raw_fd(), FS_IOC_GET_ENCRYPTION_POLICY_EX, &mut argument) };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Gives the calling thread its own mount namespace.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: unshare(CLONE_NEWNS) changes what paths mean, no memory and no descriptor.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }).map(drop)
}

/// Runs `probe` in a child process. It reports success by 0 and failure by an errno.
///
/// `probe` must confine itself to system calls: other threads may have held locks when the child was made.
fn in_child(probe: fn() -> c_int) -> io::Result<()> {
    // SAFETY: the child calls `probe`, which makes system calls only, and leaves by `_exit`.
    match check(unsafe { libc::fork() })? {
        0 => {
            let status = probe();
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(status & 0xff) }
        }
        child => match wait_for(child)? {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        },
    }
}

/// The exit status of a child; a signal that ended it counts as EPERM (a filter that kills).
fn wait_for(child: libc::pid_t) -> io::Result<c_int> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        match check(unsafe { libc::waitpid(child, &mut status, 0) }) {
            Ok(_) if libc::WIFEXITED(status) => return Ok(libc::WEXITSTATUS(status)),
            Ok(_) => return Ok(libc::EPERM),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn errno() -> c_int {
    // SAFETY: points to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Tries whether a process may have its own mount namespace.
pub fn try_mount_namespace() -> io::Result<()> {
    in_child(|| {
        // SAFETY: see `unshare_mounts`; this child does nothing else.
        match unsafe { libc::unshare(libc::CLONE_NEWNS) } {
            0 => 0,
            _ => errno(),
        }
    })
}

/// Tries whether a process may install a seccomp filter that stops it for its tracer.
pub fn try_seccomp_filter() -> io::Result<()> {
    const SECCOMP_GET_ACTION_AVAIL: libc::c_uint = 2;
    let action: u32 = libc::SECCOMP_RET_TRACE;
    // SAFETY: the kernel reads the one u32.
    let available = unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) };
    if available < 0 {
        return Err(io::Error::last_os_error());
    }
    in_child(install_allowing_filter)
}

fn install_allowing_filter() -> c_int {
    let mut allow =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let program = libc::sock_fprog { len: 1, filter: &mut allow };
    // SAFETY: plain integers; the kernel reads the one-instruction program, which lives until the call returns.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return errno();
        }
        match libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) {
            0 => 0,
            _ => errno(),
        }
    }
}

/// Tries to trace a child process.
pub fn try_ptrace() -> io::Result<()> {
    // SAFETY: the child only waits for a signal, and leaves by `_exit`.
    let child = check(unsafe { libc::fork() })?;
    if child == 0 {
        // SAFETY: system calls without memory; the child dies with its parent.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            libc::pause();
            libc::_exit(0)
        }
    }
    // SAFETY: `child` is our child and not yet waited for; the request touches no memory.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, child, 0, 0) };
    let result = if seized == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: as above.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait_for(child)?;
    result
}

/// Tries to make and attach a System V shared memory segment of so many bytes; it is gone afterwards.
pub fn try_shared_memory(len: usize) -> io::Result<()> {
    // SAFETY: a new private segment; it is marked for removal before anyone could use it, and detached where it was
    // attached.
    unsafe {
        let id = check(libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | 0o600))?;
        let address = libc::shmat(id, std::ptr::null(), 0);
        let attached = if address as isize == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        if attached.is_ok() {
            libc::shmdt(address);
        }
        attached
    }
}

/// Sleep while `word` is `seen`, for at most `timeout`. May wake early.
pub(crate) fn futex_wait(word: &std::sync::atomic::AtomicU32, seen: u32, timeout: Option<std::time::Duration>) {
    let timeout = timeout.map(|t| libc::timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` outlives the call; the kernel only reads it and the timeout. Not FUTEX_PRIVATE: other processes
    // wake it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, timeout) };
}

/// Timers of the calling thread end when they are due: by default the kernel may put them off by 50 µs, as long
/// again as the shortest sleep of the engine.
pub(crate) fn wake_on_time() {
    const SLACK_NS: libc::c_ulong = 1;
    // SAFETY: no pointers. A thread that may not do it sleeps a little longer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
}

/// Wake everybody who sleeps on `word`, in any process.
pub(crate) fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
