//! A second file of a connection to the kernel.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::ioctl::{ioctl, opcode, Setter};

/// `FUSE_DEV_IOC_CLONE`.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Opens another file of the connection that `device` belongs to. The requests that are read from one of them end when
/// that one is closed, whoever has the other one. Reading from it never waits.
pub fn second_of(device: impl AsFd) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let second = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/fuse")?;
    let first = device.as_fd().as_raw_fd() as u32;
    // SAFETY: the request reads a u32, the number of a file, from where it is told to, and `Setter` gives it the place
    // of one.
    unsafe { ioctl(&second, Setter::<CLONE, u32>::new(first)) }?;
    Ok(second)
}
