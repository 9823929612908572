//! Loop device requests and the mount namespace: the system calls that no safe wrapper offers. All unsafe code of this
//! crate.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
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

/// Attaches `image` to the loop device `device` until the last user of the device is gone. Without direct I/O: the
/// driver then serves one request after the other, each to its end, in the order in which the file system sent them.
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

/// Detaches the file of a loop device: now, or when its last user goes.
pub fn loop_clear(device: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument and touches no memory of ours.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) }).map(drop)
}

/// Writes back and forgets what the kernel caches of a block device that nothing is mounted from.
pub fn forget_cache(device: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument and touches no memory of ours.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF) }).map(drop)
}

/// Gives the calling thread, and the threads and processes that it starts from now on, their own mount namespace.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: unshare(CLONE_NEWNS) changes what paths mean, no memory and no descriptor.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }).map(drop)
}
