//! The system calls that no safe wrapper offers. All unsafe code of this crate is here.

use std::ffi::{c_int, c_long, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

fn check(answer: c_long) -> io::Result<c_long> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}

/// Like fork(2), with the child in new namespaces; `None` in the child. Call it from a process with one thread.
pub fn fork_into(namespaces: c_int) -> io::Result<Option<i32>> {
    let flags = (namespaces | libc::SIGCHLD) as libc::c_ulong;
    // SAFETY: no stack and no pointers are given, so the child goes on with a copy of this memory, as after fork(2);
    // the caller has one thread (documented), so no lock is held by somebody who is not there any more.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok((pid != 0).then_some(pid as i32))
}

/// Let the kernel kill this process when its parent ends.
pub fn die_with_parent() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Leave without running anything of Rust's or C's.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
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

/// SIGPIPE, SIGXFSZ, and what is blocked, as they were when we were started.
pub fn reset_signals(ignored: &[c_int], mask: &libc::sigset_t) {
    // SAFETY: no handler is installed; the set is whole.
    unsafe {
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            libc::signal(signal, if ignored.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
    }
}

/// Block these signals in this thread and those that it starts. What was blocked before.
pub fn block_signals(signals: &[c_int]) -> libc::sigset_t {
    let set = signal_set(signals);
    let mut old = signal_set(&[]);
    // SAFETY: whole sets.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut old) };
    old
}

fn signal_set(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: the set is ours, and made whole before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Whether this process was told to ignore a signal.
pub fn is_ignored(signal: c_int) -> bool {
    // SAFETY: nothing is changed; the kernel writes one whole structure, for which all-zero is a value.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut found) == 0 && found.sa_sigaction == libc::SIG_IGN
    }
}

/// Wait for one of these (blocked) signals, at most this long.
pub fn await_signal(signals: &[c_int], milliseconds: u32) -> Option<c_int> {
    let set = signal_set(signals);
    let timeout =
        libc::timespec { tv_sec: i64::from(milliseconds / 1000), tv_nsec: i64::from(milliseconds % 1000) * 1_000_000 };
    // SAFETY: both are whole and outlive the call.
    let signal = unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &timeout) };
    (signal > 0).then_some(signal)
}

/// Send a signal; to all processes that this one can see if `pid` is -1.
pub fn kill(pid: i32, signal: c_int) {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid, signal) };
}

/// wait(2) for a child, any if `pid` is -1: who, and its status.
pub fn wait_for(pid: i32) -> io::Result<(i32, c_int)> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours.
        match check(unsafe { libc::waitpid(pid, &mut status, 0) }.into()) {
            Ok(who) => return Ok((who as i32, status)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A copy of another process's descriptor.
pub fn descriptor_of(pid: i32, fd: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; both answers are new descriptors that are ours.
    unsafe {
        let process = OwnedFd::from_raw_fd(check(libc::syscall(libc::SYS_pidfd_open, pid, 0))? as c_int);
        check(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0))
            .map(|fd| OwnedFd::from_raw_fd(fd as c_int))
    }
}

/// Bytes of another process's memory, as many as can be read.
pub fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: the kernel writes into `buffer`, which outlives the call; the address is the other process's, not ours.
    check(unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) } as c_long).map(|n| n as usize)
}

/// Install a seccomp filter for this process and its children; the answer is the descriptor on which its questions
/// arrive.
pub fn install_filter(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    // Only a fatal signal ends a question: a handler does not run, and the call is not made twice (Linux 5.19).
    const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
    let len = program.len() as u16;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let install = |flags: libc::c_ulong| {
        // SAFETY: `program` describes instructions that live until the call returns; the answer is a new descriptor.
        unsafe {
            check(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program))
                .map(|fd| OwnedFd::from_raw_fd(fd as c_int))
        }
    };
    let listen = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    install(listen | WAIT_KILLABLE_RECV).or_else(|_| install(listen))
}

const NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const NOTIF_SEND: libc::c_ulong = 0xc018_2101;
const _: () = assert!(size_of::<libc::seccomp_notif>() == 80 && size_of::<libc::seccomp_notif_resp>() == 24);

/// A system call that waits for our answer.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// What the answer refers to.
    pub id: u64,
    /// Which thread asks, as we see it.
    pub tid: i32,
    /// The call's number.
    pub nr: i32,
    /// Its arguments.
    pub args: [u64; 6],
}

/// The next question; waits for it.
pub fn next_question(listener: BorrowedFd<'_>) -> io::Result<Question> {
    // SAFETY: all-zero is what the kernel wants to find in it; it lives until the call returns.
    let notif = unsafe {
        let mut notif: libc::seccomp_notif = std::mem::zeroed();
        check(libc::ioctl(listener.as_raw_fd(), NOTIF_RECV, &mut notif).into())?;
        notif
    };
    Ok(Question { id: notif.id, tid: notif.pid as i32, nr: notif.data.nr, args: notif.data.args })
}

/// Let the call be made (`None`), or fail with an errno.
pub fn answer(listener: BorrowedFd<'_>, id: u64, errno: Option<c_int>) -> io::Result<()> {
    const CONTINUE: u32 = 1;
    let flags = if errno.is_none() { CONTINUE } else { 0 };
    let mut response = libc::seccomp_notif_resp { id, val: 0, error: -errno.unwrap_or(0), flags };
    // SAFETY: the kernel reads one whole structure.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND, &mut response) }.into()).map(drop)
}

/// Opens what a file handle names, on the file system of `mount`.
pub fn open_by_handle(mount: BorrowedFd<'_>, kind: i32, handle: &[u8], flags: c_int) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct FileHandle {
        bytes: u32,
        kind: i32,
        handle: [u8; libc::MAX_HANDLE_SZ as usize],
    }
    let mut request = FileHandle { bytes: handle.len() as u32, kind, handle: [0; libc::MAX_HANDLE_SZ as usize] };
    let room = request.handle.get_mut(..handle.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(handle);
    // SAFETY: the structure is laid out as struct file_handle with `bytes` bytes behind it; the answer is a new
    // descriptor.
    unsafe {
        check(libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &mut request, flags | libc::O_CLOEXEC))
            .map(|fd| OwnedFd::from_raw_fd(fd as c_int))
    }
}

/// The project that the room of an object is counted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// Its number; 0 if there is none.
    pub id: u32,
    /// A directory's: what is made in it belongs to it as well, and nothing else can be put there.
    pub inherited: bool,
}

/// struct fsxattr of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Fsxattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
const FS_XFLAG_PROJINHERIT: u32 = 0x200;
const _: () = assert!(size_of::<Fsxattr>() == 0x1c);

/// Of an open file or directory; none where the file system knows no projects.
pub fn project_of(object: BorrowedFd<'_>) -> Project {
    let mut found = Fsxattr::default();
    // SAFETY: the kernel writes one whole structure.
    let answer = unsafe { libc::ioctl(object.as_raw_fd(), FS_IOC_FSGETXATTR, &mut found) };
    match answer {
        0 => Project { id: found.projid, inherited: found.xflags & FS_XFLAG_PROJINHERIT != 0 },
        _ => Project::default(),
    }
}

/// Take an open directory out of the project that it has inherited: anything can be put there.
pub fn leave_project(dir: BorrowedFd<'_>) -> io::Result<()> {
    if !project_of(dir).inherited {
        return Ok(());
    }
    let mut found = Fsxattr::default();
    // SAFETY: the kernel writes one whole structure, and reads one.
    unsafe {
        check(libc::ioctl(dir.as_raw_fd(), FS_IOC_FSGETXATTR, &mut found).into())?;
        found.projid = 0;
        found.xflags &= !FS_XFLAG_PROJINHERIT;
        check(libc::ioctl(dir.as_raw_fd(), FS_IOC_FSSETXATTR, &found).into()).map(drop)
    }
}

/// How an open file or directory is encrypted (fscrypt); nothing if it is not.
pub fn encryption_of(object: BorrowedFd<'_>) -> Vec<u8> {
    #[repr(C)]
    struct Policy {
        len: u64,
        bytes: [u8; 64],
    }
    const FS_IOC_GET_ENCRYPTION_POLICY_EX: libc::c_ulong = 0xc009_6616;
    let mut policy = Policy { len: 64, bytes: [0; 64] };
    // SAFETY: the kernel writes `len` bytes at most behind the length.
    let answer = unsafe { libc::ioctl(object.as_raw_fd(), FS_IOC_GET_ENCRYPTION_POLICY_EX, &mut policy) };
    let len = if answer == 0 { policy.len.min(64) as usize } else { 0 };
    policy.bytes[..len].to_vec()
}

/// Switch on the loopback interface of this network namespace.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: an all-zero request is a value; the kernel reads and writes one of them.
    unsafe {
        let socket = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        let socket = OwnedFd::from_raw_fd(socket as c_int);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request).into()).map(drop)
    }
}

/// Take these out of what this process, and what it becomes, may ever do.
pub fn give_up_capabilities(capabilities: &[u32]) -> io::Result<()> {
    for &capability in capabilities {
        // SAFETY: no pointers. A kernel that does not know one has nothing to give up.
        let answer = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
        if answer != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    // What is inheritable survives the bounding set.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: the structures of capget(2), whole and alive.
    unsafe {
        check(libc::syscall(libc::SYS_capget, &mut header, data.as_mut_ptr()))?;
        data.iter_mut().for_each(|word| word.inheritable = 0);
        check(libc::syscall(libc::SYS_capset, &mut header, data.as_ptr())).map(drop)
    }
}

/// Close everything from this descriptor on.
pub fn close_from(first: c_int) {
    // SAFETY: called in a child that uses none of them any more.
    unsafe { libc::syscall(libc::SYS_close_range, first, c_int::MAX, 0) };
}

/// Put a copy of a descriptor in the place of another; it stays open across exec.
pub fn replace(new: BorrowedFd<'_>, old: c_int) -> io::Result<()> {
    // SAFETY: nothing in this process owns `old`: a standard descriptor, or one that was reserved for this.
    check(unsafe { libc::dup2(new.as_raw_fd(), old) }.into()).map(drop)
}

/// Take a descriptor by its number.
///
/// The caller says that nothing else in this process owns it.
pub fn adopt(fd: c_int) -> OwnedFd {
    // SAFETY: the caller's word (documented).
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Gives this process, which has one thread, its own mount namespace.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: unshare(CLONE_NEWNS) changes what paths mean, no memory and no descriptor.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into()).map(drop)
}
