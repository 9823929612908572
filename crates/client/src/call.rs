//! The one call behind everything here, and its C faces (`include/speculator.h`).

use agent_abi::{speculate, SPECULATE_NR};
use std::io;

/// The call itself; no kernel has it: outside a world it answers `ENOSYS`.
pub fn speculate(what: u64, number: u64) -> io::Result<u64> {
    // SAFETY: two integers; nothing is read or written at any address.
    let answer = unsafe { libc::syscall(i64::from(SPECULATE_NR), what, number) };
    u64::try_from(answer).map_err(|_| io::Error::last_os_error())
}

fn for_c(what: u64, number: u64) -> i64 {
    // SAFETY: as above. errno is left as `syscall` sets it.
    unsafe { libc::syscall(i64::from(SPECULATE_NR), what, number) }
}

/// See `include/speculator.h`.
#[no_mangle]
pub extern "C" fn speculator_begin() -> i64 {
    for_c(speculate::BEGIN, 0)
}

/// See `include/speculator.h`.
#[no_mangle]
pub extern "C" fn speculator_begin_for_outside(tag: u64) -> i64 {
    for_c(speculate::BEGIN_OUTSIDE, tag)
}

/// See `include/speculator.h`.
#[no_mangle]
pub extern "C" fn speculator_commit(speculation: i64) -> i32 {
    for_c(speculate::COMMIT, speculation as u64) as i32
}

/// See `include/speculator.h`.
#[no_mangle]
pub extern "C" fn speculator_fail(speculation: i64) -> i32 {
    for_c(speculate::FAIL, speculation as u64) as i32
}

/// See `include/speculator.h`.
#[no_mangle]
pub extern "C" fn speculator_depth() -> i64 {
    for_c(speculate::DEPTH, 0)
}
