//! Descriptors of the agent's own, which the program has not asked for and is not to find.
//!
//! A signal takes a thread out of the agent while its program's call has not been made, and what was begun is begun
//! again. A descriptor would stay. So the thread's page says which are open, from the instruction behind the call that
//! opens one to the one behind its close, and whoever takes the thread back closes them (`supervisor::signals`).

use crate::gate;
use agent_abi::{ThreadPage, OWN_DESCRIPTORS_MAX};
use core::sync::atomic::{AtomicU64, Ordering};
use syscall_table::nr;

const O_CLOEXEC: u64 = 0o2000000;
const EMFILE: i64 = 24;

/// An open file of the agent's own. It is closed when it is dropped.
pub struct OwnDescriptor {
    fd: u64,
    noted: &'static AtomicU64,
}

impl OwnDescriptor {
    /// What `open` would open; the kernel's error otherwise. No program that is executed meanwhile inherits it.
    ///
    /// # Safety
    /// `path` must be a name that the kernel can read, or be refused.
    pub unsafe fn open(path: u64, bits: u64) -> Result<Self, i64> {
        // SAFETY: see the function's own contract.
        unsafe { Self::open_at(crate::names::AT_FDCWD, path, bits) }
    }

    /// What `openat` would open; as [`Self::open`].
    ///
    /// # Safety
    /// As [`Self::open`].
    pub unsafe fn open_at(dir: u64, path: u64, bits: u64) -> Result<Self, i64> {
        let noted = free_note().ok_or(-EMFILE)?;
        // SAFETY: the caller vouches for the name, and the note is this thread's and holds nothing.
        match unsafe { gate::open_own(nr::openat, [dir, path, bits | O_CLOEXEC, 0], noted) } {
            fd if fd >= 0 => Ok(Self { fd: fd as u64, noted }),
            error => Err(error),
        }
    }

    /// Its number.
    pub fn fd(&self) -> u64 {
        self.fd
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        // SAFETY: it was opened here, and only this closes it; the note is its own.
        unsafe { gate::close_own(self.fd, self.noted) };
    }
}

/// One of this thread's notes that holds nothing. There are as many as are ever needed at once.
fn free_note() -> Option<&'static AtomicU64> {
    let notes: &'static [AtomicU64; OWN_DESCRIPTORS_MAX] = {
        let page: *const ThreadPage;
        // SAFETY: gs points to the thread's page, which begins with its own address and lives as long as the thread. Of
        // these words everybody has shared references only.
        unsafe {
            core::arch::asm!("mov {}, gs:[0]", out(reg) page, options(nostack, preserves_flags, readonly));
            &(*page).own
        }
    };
    notes.iter().find(|note| note.load(Ordering::Relaxed) == 0)
}
