//! What a wait writes into its caller's memory (wait4(2), waitid(2)). As the kernel does, it has waited for the child
//! also where that memory cannot be written.

use crate::ahead::process::child_signal::end_of;
use crate::ahead::process::usage;
use crate::ahead::{write_answer, Call};
use procfs::ProcessId;
use syscall_table::nr;
use tracee::{Result, SignalInfo};

const FAULT: i64 = -(libc::EFAULT as i64);

/// A call tells of a child that has ended. Its result.
pub(super) fn tell_of_end(call: &Call, child: ProcessId, status: i32) -> Result<i64> {
    let args = &call.frame.args;
    // Four files of `/proc`, for which hardly anybody asks.
    let write_usage =
        |at: u64| Ok::<bool, tracee::TraceError>(at == 0 || write_answer(call.tid, at, &usage::of(child))?);
    let (is_written, result) = if call.frame.nr == nr::waitid {
        (write_usage(args[4])? && write_info(call, || end_of(child, status))?, 0)
    } else {
        let is_told = args[1] == 0 || write_answer(call.tid, args[1], &status.to_ne_bytes())?;
        (is_told && write_usage(args[3])?, i64::from(child.as_raw()))
    };
    Ok(if is_written { result } else { FAULT })
}

/// A call tells of no child, with this result: `waitid` says so in its caller's memory as well.
pub(super) fn tell_of_none(call: &Call, result: i64) -> Result<i64> {
    let is_written = call.frame.nr != nr::waitid || write_info(call, SignalInfo::default)?;
    Ok(if is_written { result } else { FAULT })
}

/// The fields that `waitid` writes, and none beside them. False if they cannot be written.
fn write_info(call: &Call, info: impl FnOnce() -> SignalInfo) -> Result<bool> {
    let at = call.frame.args[2];
    if at == 0 {
        return Ok(true);
    }
    let info = info();
    // `si_signo`, `si_errno`, `si_code`; `si_pid`, `si_uid`, `si_status`.
    for part in [0..12, 16..28] {
        if !write_answer(call.tid, at.wrapping_add(part.start as u64), &info.as_bytes()[part])? {
            return Ok(false);
        }
    }
    Ok(true)
}
