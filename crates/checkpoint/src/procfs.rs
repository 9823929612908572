//! What `/proc` says of a process.

use crate::{CheckpointError, Result};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// The whole of `/proc/PID/NAME`.
pub(crate) fn read(pid: i32, name: &'static str) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(format!("/proc/{pid}/{name}"))?;
        // Most fit; asking for the size first, as `read_to_end` does, would cost as much as reading.
        let mut bytes = vec![0; 4 << 10];
        let mut len = 0;
        loop {
            match file.read(&mut bytes[len..])? {
                0 => break,
                got => len += got,
            }
            if len == bytes.len() {
                bytes.resize(len * 4, 0);
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    };
    read().map_err(error(name, pid))
}

fn error(name: &'static str, pid: i32) -> impl FnOnce(io::Error) -> CheckpointError {
    move |source| match source.kind() {
        io::ErrorKind::NotFound => CheckpointError::Trace(tracee::TraceError::Gone(pid)),
        _ => CheckpointError::access(name, pid)(source),
    }
}

/// The same as text.
pub(crate) fn text(pid: i32, name: &'static str) -> Result<String> {
    Ok(String::from_utf8_lossy(&read(pid, name)?).into_owned())
}

/// Where a link in `/proc/PID` leads.
pub(crate) fn link(pid: i32, name: &'static str) -> Result<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/{name}")).map_err(error(name, pid))
}

/// `/proc/PID/status`.
#[derive(Debug)]
pub(crate) struct Status(String);

impl Status {
    pub fn of(pid: i32) -> Result<Self> {
        Ok(Self(text(pid, "status")?))
    }

    fn field(&self, name: &str) -> &str {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim()
    }

    pub fn threads(&self) -> u32 {
        self.field("Threads").parse().unwrap_or(0)
    }

    pub fn parent(&self) -> i32 {
        self.field("PPid").parse().unwrap_or(0)
    }

    pub fn umask(&self) -> u64 {
        u64::from_str_radix(self.field("Umask"), 8).unwrap_or(0)
    }

    /// A set of signals: `SigIgn`, `SigCgt`, `SigPnd`, `ShdPnd`.
    pub fn signals(&self, name: &str) -> u64 {
        u64::from_str_radix(self.field(name), 16).unwrap_or(0)
    }

    /// What a process can give up but not get back.
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
        NAMES.iter().map(|name| self.field(name)).collect()
    }
}

/// What `/proc/PID/stat` says of where things lie in memory, in the order of `struct prctl_mm_map`, without `start_brk`'s companion `brk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    pub code: [u64; 2],
    pub data: [u64; 2],
    pub start_brk: u64,
    pub start_stack: u64,
    pub arguments: [u64; 2],
    pub environment: [u64; 2],
}

impl Marks {
    pub fn of(pid: i32) -> Result<Self> {
        let stat = text(pid, "stat")?;
        // The name in parentheses may contain anything, parentheses included.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|f| f.parse().ok()).unwrap_or(0);
        Ok(Self {
            code: [field(26), field(27)],
            start_stack: field(28),
            data: [field(45), field(46)],
            start_brk: field(47),
            arguments: [field(48), field(49)],
            environment: [field(50), field(51)],
        })
    }
}
