//! Calls that have to succeed.

use crate::{CheckpointError, Result};
use procfs::ThreadId;
use tracee::{RemoteCalls, Stopped};

const ERRNO_MAX: i64 = 4095;

/// A thread that makes calls for us, and a name for it in errors.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    pub tid: ThreadId,
    pub calls: RemoteCalls<'a>,
}

impl<'a> Caller<'a> {
    /// A thread; `in_company`: its process has others, which are all stopped.
    pub fn of(stopped: &'a Stopped, gate: u64, in_company: bool) -> Result<Self> {
        let calls = match in_company {
            true => RemoteCalls::in_company(stopped, gate)?,
            false => RemoteCalls::new(stopped, gate)?,
        };
        Ok(Self { tid: stopped.tid(), calls })
    }
}

impl Caller<'_> {
    /// Make a call; `-errno` is an error.
    pub fn call(&mut self, call: &'static str, number: i64, arguments: &[u64]) -> Result<u64> {
        let answer = self.calls.call(number, arguments)?;
        if (-ERRNO_MAX..0).contains(&answer) {
            let source = std::io::Error::from_raw_os_error(-answer as i32);
            return Err(CheckpointError::Refused { call, task: self.tid.into(), source });
        }
        Ok(answer as u64)
    }

    /// Leave it as it was.
    pub fn finish(self) -> Result<()> {
        let (registers, mask) = (*self.calls.registers(), self.calls.mask());
        Ok(self.calls.finish_sending_again(&registers, mask)?)
    }

    /// Bytes at an address of it.
    pub fn read(&self, address: u64, len: usize) -> Result<Vec<u8>> {
        tracee::read_bytes(self.tid, address, len).map_err(CheckpointError::access("memory", self.tid))
    }

    /// Write to an address of it.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        // Mostly it could write there itself: then nothing has to be opened.
        let range = address..address + bytes.len() as u64;
        if tracee::write_ranges(self.tid, &[range], bytes).is_ok_and(|written| written == bytes.len()) {
            return Ok(());
        }
        tracee::write_bytes(self.tid, address, bytes).map_err(CheckpointError::access("memory", self.tid))
    }

    /// Write a path or name.
    pub fn write_name(&self, address: u64, name: &[u8]) -> Result<()> {
        self.write(address, &[name, &[0]].concat())
    }
}
