//! The mapping itself.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

#[derive(Debug)]
pub struct Mapped {
    address: usize,
    len: usize,
}

impl Mapped {
    pub fn new(file: BorrowedFd, len: usize) -> io::Result<Mapped> {
        let (null, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE);
        // SAFETY: the kernel chooses where, so that nothing else is there; nobody makes a reference to it.
        let mapped = unsafe { libc::mmap(null, len, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapped { address: mapped as usize, len })
    }

    /// Has the kernel write what is mapped there. It says EFAULT where a program would get a signal.
    pub fn write_to(&self, at: usize, len: usize, to: BorrowedFd) -> io::Result<()> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: these bytes are in the mapping, which lasts as long as `self`; only the kernel reads them.
        let written = unsafe { libc::write(to.as_raw_fd(), (self.address + at) as *const libc::c_void, len) };
        match usize::try_from(written) {
            Ok(written) if written == len => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `new`, and nobody has a reference to it.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.len) };
    }
}
