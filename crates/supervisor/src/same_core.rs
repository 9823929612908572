//! A tracee goes on where its supervisor is.
//!
//! What a stop costs is not what is done about it but waking somebody on another core, twice: about 50 µs on a virtual machine, against 7 µs on one
//! core (`docs/decisions/0005`). The kernel wakes a resumed tracee on whichever core is idle, and that is never the one on which the supervisor is
//! just then running. So the supervisor confines the tracee to its own core, resumes it, and lets go of it before it can have run: the supervisor
//! has real-time priority, and gives up its core only afterwards.
//!
//! This is done only while nobody else on the machine is running: where there is work for other cores, the kernel's choice is the better one.

use crate::sys;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Whether and how tracees are kept near.
#[derive(Debug)]
pub struct SameCore {
    /// `/proc/loadavg`; `None` where tracees are left alone.
    load: Option<File>,
    /// Where the supervisor may run: what a program may that never asked for anything else.
    usual: sys::Cores,
}

/// A tracee that is confined, until it is let go.
#[derive(Debug)]
#[must_use = "a tracee must not run on confined"]
pub struct Confined {
    tid: i32,
    before: sys::Cores,
}

impl SameCore {
    /// `runs_first`: whether the supervisor has real-time priority. Without it a tracee could run, and look, before it is let go.
    pub fn new(runs_first: bool) -> Self {
        let usual = sys::cores_of(0).unwrap_or(sys::Cores::ALL);
        let load = if runs_first && usual.count() > 1 { File::open("/proc/loadavg").ok() } else { None };
        Self { load, usual }
    }

    /// Confine a stopped tracee to our core.
    pub fn confine(&self, tid: i32) -> Option<Confined> {
        if !self.is_alone() {
            return None;
        }
        let own = sys::current_core()?;
        let before = sys::cores_of(tid).ok()?;
        let can_be_moved = before.count() > 1 && before.has(own) && sys::is_scheduled_normally(tid);
        if !can_be_moved || sys::set_cores(tid, &sys::Cores::only(own)).is_err() {
            return None;
        }
        // The kernel remembers what was asked for and follows it when the cores that there are change: ask for no less than there was.
        let before = if before == self.usual { sys::Cores::ALL } else { before };
        Some(Confined { tid, before })
    }

    /// Whether we are the only thread on the machine that runs or could run.
    fn is_alone(&self) -> bool {
        let Some(load) = &self.load else { return false };
        let mut text = [0u8; 64];
        let len = load.read_at(&mut text, 0).unwrap_or(0);
        running(&text[..len]) == Some(1)
    }
}

/// Let a tracee that was confined run where it may.
pub fn let_go(confined: Confined) {
    // It may have died meanwhile.
    let _ = sys::set_cores(confined.tid, &confined.before);
}

/// `0.20 0.18 0.12 1/80 11206`: the number before the slash (proc(5)).
fn running(loadavg: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(loadavg).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_threads_are_read_from_loadavg() {
        assert_eq!(running(b"0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(running(b"10.20 0.18 0.12 12/80 11206\n"), Some(12));
        assert_eq!(running(b""), None);
    }

    #[test]
    fn without_priority_nobody_is_confined() {
        assert!(SameCore::new(false).confine(std::process::id() as i32).is_none());
    }
}
