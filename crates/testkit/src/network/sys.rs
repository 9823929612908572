//! A network namespace and a device in it: the system calls that no safe wrapper offers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::thread::UnshareFlags;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const IFF_TUN: i16 = 1;
/// Packets without a header in front.
const IFF_NO_PI: i16 = 0x1000;

/// `struct ifreq` of linux/if.h, as TUNSETIFF reads it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<Request>() == 40);

/// From now on this thread has a network of its own, with nothing in it.
pub fn own_network() -> io::Result<()> {
    // SAFETY: only the thread's network changes. Descriptors stay what they are, which is all that std relies on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// A new device in the thread's network, whose packets are read from the file and written to it, without waiting.
pub fn tun(name: &str) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let mut request = Request { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    let length = name.len().min(15);
    request.name[..length].copy_from_slice(&name.as_bytes()[..length]);
    // SAFETY: the kernel reads and writes one `struct ifreq`, which `request` is, to its full size.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
