//! Names that calls on permits give, where other threads of the program could change them between our look and the
//! kernel's: both look at a copy ([0240](../../../docs/decisions/0240-threads-have-permits.md)).

use crate::clocks::Call;
use crate::names::{can_be_read, PAGE};
use core::mem::MaybeUninit;

/// A name that the program's other threads cannot change.
pub struct OwnName([MaybeUninit<u8>; OwnName::LEN_MAX as usize + 1]);

impl OwnName {
    /// Longer names are asked about.
    pub const LEN_MAX: u64 = 512;

    #[inline(always)]
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; Self::LEN_MAX as usize + 1])
    }

    /// Where a copy of the name stands. `None`: it cannot be read, or is long.
    #[inline(never)]
    fn copy(&mut self, path: u64) -> Option<u64> {
        for (at, byte) in (path..).zip(&mut self.0) {
            if (at == path || at.is_multiple_of(PAGE)) && !can_be_read(at) {
                return None;
            }
            // SAFETY: it can be read. A thread that unmaps it meanwhile ends the process: the supervisor sees the
            // fault.
            let read = unsafe { (at as *const u8).read_volatile() };
            byte.write(read);
            if read == 0 {
                return Some(self.0.as_ptr() as u64);
            }
        }
        None
    }
}

impl Call<'_> {
    /// The name that the call gives at this position, for us to look at. Other threads could change it meanwhile: where
    /// there are some, it is copied. `None`: it cannot be read, or is long.
    pub fn name_to_read(&self, position: u8, own: &mut OwnName) -> Option<u64> {
        let path = self.arg(position);
        match self.has_company() {
            false => Some(path),
            true => own.copy(path),
        }
    }

    /// The same, and the kernel gets what we look at.
    pub fn stable_name(&mut self, position: u8, own: &mut OwnName) -> Option<u64> {
        let path = self.name_to_read(position, own)?;
        if path != self.arg(position) {
            self.replace_arg(usize::from(position), path);
        }
        Some(path)
    }

    /// The call is asked about, with the name that the program gives.
    #[cold]
    pub fn has_not_begun(&mut self) -> bool {
        if self.has_company() {
            self.give_own_args();
        }
        false
    }
}
