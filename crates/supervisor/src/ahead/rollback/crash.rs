//! A supervisor that is killed in the middle of a rollback or a commit, for tests of what is left then: nothing of a
//! wrong guess, and of a right one what was made so far (`run --crash-in-rollback`, which is hidden).

use procfs::ProcessId;

/// Counts the steps of rollbacks: a process is stopped, a child removed, an operation undone, a process put back; and
/// those of commits: something that was held is let go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crash {
    /// Steps that are made before the end; `None`: it does not come.
    left: Option<u64>,
}

impl Crash {
    pub fn after(steps: Option<u64>) -> Self {
        Self { left: steps }
    }

    /// A step is about to be made.
    pub fn step(&mut self) {
        match &mut self.left {
            None => {}
            Some(0) => crate::sys::kill(ProcessId::own(), libc::SIGKILL),
            Some(left) => *left -= 1,
        }
    }
}
