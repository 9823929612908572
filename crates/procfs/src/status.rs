//! `/proc/PID/status`.

use crate::{text, value, Error, ProcessId, Result, TaskId, ThreadId};

/// `/proc/PID/status` as it was when it was read.
#[derive(Clone, Debug)]
pub struct Status {
    task: TaskId,
    text: String,
}

impl Status {
    /// Read it.
    ///
    /// # Errors
    /// See [`Error`]; the same holds for every method: a field that is not there is an error.
    pub fn of(task: impl Into<TaskId>) -> Result<Self> {
        let task = task.into();
        Ok(Self::parse(task, text(task, "status")?))
    }

    /// Of a text that is the file of this task.
    pub fn parse(task: impl Into<TaskId>, text: String) -> Self {
        Self { task: task.into(), text }
    }

    /// The value of a field, by its name without the colon.
    ///
    /// # Errors
    /// There is no such field.
    pub fn field(&self, name: &str) -> Result<&str> {
        value(&self.text, name).ok_or_else(|| self.lacks(name))
    }

    fn lacks(&self, name: &str) -> Error {
        Error::no_field(self.task, "status", name)
    }

    /// One of the numbers of a field.
    ///
    /// # Errors
    /// There is no such field, or no such number in it.
    pub fn number<T: std::str::FromStr>(&self, name: &str, position: usize) -> Result<T> {
        let word = self.field(name)?.split_whitespace().nth(position);
        word.and_then(|word| word.parse().ok()).ok_or_else(|| self.lacks(name))
    }

    /// A set of bits in hexadecimal: `SigIgn`, `SigPnd`, `CapEff`, …
    ///
    /// # Errors
    /// There is no such field.
    pub fn bits(&self, name: &str) -> Result<u64> {
        u64::from_str_radix(self.field(name)?, 16).map_err(|_| self.lacks(name))
    }

    /// How many threads the process has.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn threads(&self) -> Result<u32> {
        self.number("Threads", 0)
    }

    /// The parent, unless it is outside of our namespace.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn parent(&self) -> Result<Option<ProcessId>> {
        let number: i32 = self.number("PPid", 0)?;
        Ok((number > 0).then(|| ProcessId::from_raw(number)))
    }

    /// The thread that traces this one, if one does. The kernel names the thread, not its process.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn tracer(&self) -> Result<Option<ThreadId>> {
        let number: i32 = self.number("TracerPid", 0)?;
        Ok((number > 0).then(|| ThreadId::from_raw(number)))
    }

    /// Real, effective and saved user, and the one as whom files are used.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn users(&self) -> Result<[u32; 4]> {
        self.four("Uid")
    }

    /// The same of the group.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn groups(&self) -> Result<[u32; 4]> {
        self.four("Gid")
    }

    fn four(&self, name: &str) -> Result<[u32; 4]> {
        let mut four = [0; 4];
        for (position, number) in four.iter_mut().enumerate() {
            *number = self.number(name, position)?;
        }
        Ok(four)
    }

    /// Whether a filter of system calls applies (seccomp(2)). A kernel without them has no such field.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn is_filtered(&self) -> Result<bool> {
        self.number::<u32>("Seccomp", 0).map(|mode| mode != 0)
    }

    /// The process of a thread.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn process(&self) -> Result<ProcessId> {
        self.number("Tgid", 0).map(ProcessId::from_raw)
    }

    /// The number in the innermost namespace of a field such as `NSpid`.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn innermost<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        let word = self.field(name)?.split_whitespace().next_back();
        word.and_then(|word| word.parse().ok()).ok_or_else(|| self.lacks(name))
    }

    /// The letter of the state: `R`, `S`, `t`, `Z`, …
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn state(&self) -> Result<char> {
        self.field("State")?.chars().next().ok_or_else(|| self.lacks("State"))
    }

    /// What a process can give up but not get back. A kernel without one of them has it of no process.
    pub fn privileges(&self) -> Vec<&str> {
        const NAMES: [&str; 11] = [
            "Uid",
            "Gid",
            "Groups",
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
            "Seccomp",
            "Seccomp_filters",
        ];
        NAMES.iter().map(|name| value(&self.text, name).unwrap_or_default()).collect()
    }

    /// The mask of the modes of new files.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn umask(&self) -> Result<u64> {
        u64::from_str_radix(self.field("Umask")?, 8).map_err(|_| self.lacks("Umask"))
    }
}

/// The signals of a thread, as bits from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalSets {
    /// Wait to be delivered, to the thread or to its process.
    pub pending: u64,
    /// Are blocked by the thread.
    pub blocked: u64,
    /// Are ignored by the process.
    pub ignored: u64,
    /// Have a handler.
    pub caught: u64,
}

impl SignalSets {
    /// Read them.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn of(tid: impl Into<TaskId>) -> Result<Self> {
        let status = Status::of(tid)?;
        Ok(Self {
            pending: status.bits("SigPnd")? | status.bits("ShdPnd")?,
            blocked: status.bits("SigBlk")?,
            ignored: status.bits("SigIgn")?,
            caught: status.bits("SigCgt")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_status_says_who_we_are() {
        let own = ProcessId::own();
        let status = Status::of(own).unwrap();
        assert_eq!((status.process().unwrap(), status.innermost::<i32>("NStgid").is_ok()), (own, true));
        assert!(status.threads().unwrap() > 0);
        assert_eq!(status.users().unwrap()[1], rustix::process::geteuid().as_raw());
        assert_eq!(status.groups().unwrap()[1], rustix::process::getegid().as_raw());
        assert!(SignalSets::of(own).is_ok());
    }

    #[test]
    fn a_field_that_is_not_there_is_an_error() {
        let text = "Name:\tinit\nThreads:\tmany\nUid:\t0 0\n";
        let status = Status::parse(ProcessId::from_raw(1), text.to_owned());
        assert!(matches!(status.field("PPid"), Err(Error::NoField { .. })));
        assert!(status.threads().is_err() && status.bits("SigIgn").is_err());
        assert_eq!(status.number::<u32>("Uid", 1).unwrap(), 0);
        assert!(status.users().is_err() && status.is_filtered().is_err());
        assert!(status.number::<u32>("Uid", 3).is_err());
    }
}
