//! What is asked of the kernel about one thread among several, and about what two processes have in common.

use procfs::{TaskId, ThreadId};
use std::io;

/// `struct sched_attr` in its first version.
pub(super) const SCHEDULING_LEN: usize = 48;

fn checked(answer: i64) -> io::Result<i64> {
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// What has happened to any tracee of this thread of ours. `None` when there is none, `Some(None)` when nothing has
/// happened.
pub(super) fn look_own() -> io::Result<Option<Option<(ThreadId, i32)>>> {
    let mut status = 0;
    // SAFETY: `status` is ours.
    match unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG) } {
        0 => Ok(Some(None)),
        tid if tid > 0 => Ok(Some(Some((ThreadId::from_raw(tid), status)))),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            e if e.kind() == io::ErrorKind::Interrupted => Ok(Some(None)),
            e => Err(e),
        },
    }
}

pub(super) fn scheduling(tid: ThreadId) -> io::Result<[u8; SCHEDULING_LEN]> {
    let mut attributes = [0u8; SCHEDULING_LEN];
    // SAFETY: the length is that of the buffer.
    checked(unsafe {
        libc::syscall(libc::SYS_sched_getattr, tid.as_raw(), attributes.as_mut_ptr(), SCHEDULING_LEN, 0)
    })?;
    Ok(attributes)
}

pub(super) fn set_scheduling(tid: ThreadId, attributes: &[u8; SCHEDULING_LEN]) -> io::Result<()> {
    // SAFETY: the attributes begin with their length.
    checked(unsafe { libc::syscall(libc::SYS_sched_setattr, tid.as_raw(), attributes.as_ptr(), 0) }).map(drop)
}

/// Whether two threads have the same table of descriptors, and the same directories and umask.
pub(super) fn same_files(a: ThreadId, b: ThreadId) -> io::Result<bool> {
    const KCMP_FILES: i32 = 2;
    const KCMP_FS: i32 = 3;
    // SAFETY: no pointers.
    let same = |what: i32| unsafe { libc::syscall(libc::SYS_kcmp, a.as_raw(), b.as_raw(), what, 0, 0) };
    Ok(checked(same(KCMP_FILES))? == 0 && checked(same(KCMP_FS))? == 0)
}

pub(crate) fn same_memory(a: TaskId, b: TaskId) -> io::Result<bool> {
    const KCMP_VM: i32 = 1;
    // SAFETY: no pointers.
    Ok(checked(unsafe { libc::syscall(libc::SYS_kcmp, a.as_raw(), b.as_raw(), KCMP_VM, 0, 0) })? == 0)
}
