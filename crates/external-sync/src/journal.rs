//! Whether a file system still takes any change: whether ext4's journal does, above all.
//!
//! A journal that grows too large commits by itself, in the background. If that fails, it is aborted, and what it held
//! is lost; but until ext4 looks at it again, an fsync that finds nothing left to commit answers 0. Beginning any
//! change makes ext4 look. So after each flush we begin one that does nothing: replacing an extended attribute that
//! does not exist. Other file systems answer as well, unless they have no such attributes.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Who is root may ask by the first name; others by the second, where the directory is theirs.
const NAMES: [&CStr; 2] = [c"trusted.speculator-probe", c"user.speculator-probe"];

/// A question that this file system answers.
#[derive(Clone, Copy, Debug)]
pub struct Probe(&'static CStr);

impl Probe {
    /// `None` where it cannot be asked: a file system without such attributes, a read-only mount, a directory of
    /// somebody else.
    pub fn of(root: BorrowedFd<'_>) -> Option<Probe> {
        NAMES.into_iter().map(Probe).find(|probe| probe.ask(root) == Err(Errno::NODATA))
    }

    /// An error if the file system has given up.
    pub fn check(self, root: BorrowedFd<'_>) -> io::Result<()> {
        match self.ask(root) {
            Err(error @ (Errno::ROFS | Errno::IO | Errno::SHUTDOWN)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn ask(self, root: BorrowedFd<'_>) -> Result<(), Errno> {
        rustix::fs::fsetxattr(root, self.0, &[], XattrFlags::REPLACE)
    }
}
