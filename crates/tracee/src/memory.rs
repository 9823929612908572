//! Another process's memory. Addresses there are claims: everything read is checked by the kernel and bounded by us.

use crate::sys;
use procfs::TaskId;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::slice;

/// Types for which every pattern of bits is valid.
pub trait RemoteMemory: Copy {}
impl RemoteMemory for u8 {}
impl RemoteMemory for u32 {}
impl RemoteMemory for u64 {}
impl<const N: usize> RemoteMemory for [u64; N] {}
impl RemoteMemory for agent_abi::Frame {}

/// A value at an address of another process.
pub fn read_value<T: RemoteMemory>(of: impl Into<TaskId>, address: u64) -> io::Result<T> {
    sys::read_remote_value(of.into(), address)
}

/// Bytes at an address of another process; an error unless all of them can be read.
pub fn read_bytes(of: impl Into<TaskId>, address: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let got = sys::read_remote(of.into(), address, &mut bytes)?;
    if got != len {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    Ok(bytes)
}

/// More ranges than this cannot be read or written at once (`IOV_MAX`).
pub const RANGES_MAX: usize = 1024;

/// Read ranges of another process's memory, at most [`RANGES_MAX`], into one buffer, one after the other. How many
/// bytes could be read: it ends where something cannot.
pub fn read_ranges(of: impl Into<TaskId>, ranges: &[Range<u64>], into: &mut [u8]) -> io::Result<usize> {
    sys::read_ranges(of.into(), ranges, into)
}

/// Write one buffer to ranges of another process's memory, at most [`RANGES_MAX`], one after the other, where the
/// process itself could write. How many bytes could be written: it ends where something cannot.
pub fn write_ranges(of: impl Into<TaskId>, ranges: &[Range<u64>], bytes: &[u8]) -> io::Result<usize> {
    sys::write_ranges(of.into(), ranges, bytes)
}

/// Write to an address of a stopped thread's process, where the process itself could write: what the kernel does for a
/// call. An error (EFAULT) unless all bytes can be written.
pub fn write_own_bytes(of: impl Into<TaskId>, address: u64, bytes: &[u8]) -> io::Result<()> {
    let end = address.checked_add(bytes.len() as u64);
    let written = end.map_or(Ok(0), |end| sys::write_ranges(of.into(), slice::from_ref(&(address..end)), bytes))?;
    match written == bytes.len() {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Write to an address of a stopped thread's process, read-only pages included. Only for these a file of `/proc` is
/// opened.
pub fn write_bytes(of: impl Into<TaskId>, address: u64, bytes: &[u8]) -> io::Result<()> {
    let of = of.into();
    let end = address.checked_add(bytes.len() as u64);
    let written = end.map_or(Ok(0), |end| sys::write_ranges(of, slice::from_ref(&(address..end)), bytes));
    match written {
        Ok(written) if written == bytes.len() => Ok(()),
        _ => procfs::memory(of)?.write_all_at(bytes, address),
    }
}
