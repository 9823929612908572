//! The mapping itself.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What others have of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    Private,
    /// It is read only.
    Read,
    Stored,
}

#[derive(Debug)]
pub struct Mapped {
    address: usize,
    len: usize,
}

impl Mapped {
    pub fn new(file: BorrowedFd, len: usize, sharing: Sharing) -> io::Result<Mapped> {
        let flags = if sharing == Sharing::Private { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
        let writes = if sharing == Sharing::Stored { libc::PROT_WRITE } else { 0 };
        let (null, may) = (std::ptr::null_mut(), libc::PROT_READ | writes);
        // SAFETY: the kernel chooses where, so that nothing else is there; nobody makes a reference to it.
        let mapped = unsafe { libc::mmap(null, len, may, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapped { address: mapped as usize, len })
    }

    /// Has the kernel write what is mapped there. It says EFAULT where a program would get a signal.
    pub fn write_to(&self, at: usize, len: usize, to: BorrowedFd) -> io::Result<()> {
        self.check(at, len)?;
        // SAFETY: these bytes are in the mapping, which lasts as long as `self`; only the kernel reads them.
        all_of(len, unsafe { libc::write(to.as_raw_fd(), (self.address + at) as *const libc::c_void, len) })
    }

    /// Has the kernel store there what it reads. It says EFAULT where a program would get a signal.
    pub fn read_from(&self, at: usize, len: usize, from: BorrowedFd) -> io::Result<()> {
        self.check(at, len)?;
        // SAFETY: these bytes are in the mapping, which lasts as long as `self`, and to which nobody has a reference.
        all_of(len, unsafe { libc::read(from.as_raw_fd(), (self.address + at) as *mut libc::c_void, len) })
    }

    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: all of it is mapped; it stays as it is.
        match unsafe { libc::msync(self.address as *mut libc::c_void, self.len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn check(&self, at: usize, len: usize) -> io::Result<()> {
        match at.checked_add(len).is_some_and(|end| end <= self.len) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

fn all_of(len: usize, done: isize) -> io::Result<()> {
    match usize::try_from(done) {
        Ok(done) if done == len => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `new`, and nobody has a reference to it.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.len) };
    }
}
