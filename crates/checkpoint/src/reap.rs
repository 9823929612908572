//! Vessels that are dead, and that their parent, the process itself, has to reap: their tracer alone cannot.
//!
//! A vessel's end is announced by no signal and no `wait` without `__WALL` or `__WCLONE` hears of it. Until it is
//! reaped it is a zombie: a process id and a task structure, no memory.

use crate::answer::Caller;
use crate::{Result, VesselId};
use procfs::ProcessId;
use tracee::Stopped;

/// A vessel that was killed, and whose tracer has still to hear of its end.
#[derive(Debug)]
#[must_use = "its end has to be waited for"]
pub struct Dying {
    pub(crate) vessel: VesselId,
    pub(crate) parent: ProcessId,
    pub(crate) was_settled: bool,
}

impl Dying {
    /// The vessel.
    pub fn vessel(&self) -> VesselId {
        self.vessel
    }

    /// The process that will have to reap it.
    pub fn parent(&self) -> ProcessId {
        self.parent
    }

    /// Its end was seen by whoever waits for all tracees.
    pub fn ended(self) -> ToReap {
        ToReap { vessel: self.vessel, parent: self.parent, can_wait: !self.was_settled }
    }

    /// If it has ended already.
    pub fn look(self) -> std::result::Result<ToReap, Self> {
        match tracee::look_for_end(self.vessel.thread()) {
            Ok(None) => Err(self),
            // There is nothing to wait for if somebody has.
            Ok(Some(_)) | Err(_) => Ok(self.ended()),
        }
    }

    /// Wait for its end.
    pub fn await_end(self) -> ToReap {
        // There is nothing to wait for if somebody has.
        let _ = tracee::await_end(self.vessel.thread());
        self.ended()
    }
}

/// A dead vessel, to be reaped when its process next stops. When the process itself ends first, the kernel hands it to
/// the world's init.
#[derive(Debug)]
#[must_use = "a zombie stays until its process reaps it"]
pub struct ToReap {
    pub(crate) vessel: VesselId,
    pub(crate) parent: ProcessId,
    can_wait: bool,
}

impl ToReap {
    /// The dead vessel.
    pub fn vessel(&self) -> VesselId {
        self.vessel
    }

    /// The process that has to reap it.
    pub fn parent(&self) -> ProcessId {
        self.parent
    }

    /// Whether nobody can have noticed it: it died before it was settled, so that its process has executed no program
    /// since its birth, and the kernel has told of its end to nobody; and nobody has looked.
    pub fn can_wait(&self) -> bool {
        self.can_wait
    }

    /// Somebody looks.
    pub fn hurry(&mut self) {
        self.can_wait = false;
    }

    /// The process has ended, and `parent` is its parent now, and has been told.
    pub fn reparented_to(self, parent: ProcessId) -> Self {
        Self { parent, can_wait: false, ..self }
    }

    /// Reap several at once in the process whose they are; registers are saved and restored only once.
    /// `in_company`: the process has other threads than `p`.
    pub fn all(zombies: impl IntoIterator<Item = Self>, p: &Stopped, gate: u64, in_company: bool) -> Result<()> {
        let mut caller = Caller::of(p, gate, in_company)?;
        for zombie in zombies {
            zombie.reap(&mut caller)?;
        }
        caller.finish()
    }

    pub(crate) fn reap(self, caller: &mut Caller) -> Result<()> {
        let flags = (libc::__WALL | libc::WNOHANG) as u64;
        caller.call("wait4", libc::SYS_wait4, &[self.vessel.as_raw() as u64, 0, flags, 0]).map(drop)
    }
}
