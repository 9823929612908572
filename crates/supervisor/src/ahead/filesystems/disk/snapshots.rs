//! Private mappings of files of which writes are held
//! ([0124](../../../../../../docs/decisions/0124-a-private-mapping-of-a-copy.md)): what is mapped is a copy in memory
//! of what those inside see in the file.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use rustix::fs::{MemfdFlags, OFlags};
use std::os::fd::OwnedFd;
use syscall_table::nr;
use tracee::{Result, Stopped};

const MAP_TYPE: u64 = 0xf;
const MAP_PRIVATE: u64 = 2;
const MAP_ANONYMOUS: u64 = 0x20;
/// `MAP_FIXED`, `MAP_FIXED_NOREPLACE`.
const MAP_FIXED: u64 = 0x10 | 0x10_0000;
const PROT_EXEC: u64 = 4;

impl Supervisor {
    /// A speculative process maps what those inside see in a file; `None`: it does not concern that, or has to wait.
    pub(in crate::ahead) fn map_held_contents(&mut self, stopped: &Stopped, call: &Call) -> Result<Option<Decision>> {
        let [at, len, protection, flags, fd, offset] = call.frame.args;
        if self.ahead.contents.is_empty() || call.frame.nr != nr::mmap || !self.ahead.is_speculative(call.pid) {
            return Ok(None);
        }
        // Where it is to stand somewhere, that may be ours; program text is patched.
        let is_data = flags & MAP_TYPE == MAP_PRIVATE && flags & MAP_ANONYMOUS == 0 && protection & PROT_EXEC == 0;
        if !is_data || flags & MAP_FIXED != 0 || at != 0 || !self.is_root_as_we_are(call.pid) {
            return Ok(None);
        }
        let Some((open, inode)) = self.held_file(call, fd as i32).filter(|(open, _)| can_be_read(open)) else {
            return Ok(None);
        };
        let plan = Plan::tracked_once().observing(Object::File(inode.0, inode.1));
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        self.observe_everything(call.tid);
        let Some(copy) = self.copy_of_held(&open, inode) else { return Ok(None) };
        let Some(own) = self.install_free(stopped, call.pid, &copy, true)? else { return Ok(None) };
        let mut remote = self.remote_calls(stopped)?;
        let result = remote.call(libc::SYS_mmap, &[at, len, protection, flags, own as u64, offset])?;
        remote.call(libc::SYS_close, &[own as u64])?;
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(Some(Decision::Answer(result)))
    }

    fn copy_of_held(&self, open: &OwnedFd, inode: (u64, u64)) -> Option<OwnedFd> {
        let path = procfs::own_name(open).ok()?;
        let name = path.file_name().unwrap_or_default();
        let size = self.held_size(open, inode);
        let bytes = self.held_bytes(open, inode, 0, size, size)?;
        let copy = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).ok()?;
        let mut written = 0;
        while written < bytes.len() {
            written += rustix::io::pwrite(&copy, &bytes[written..], written as u64).ok().filter(|&n| n > 0)?;
        }
        Some(copy)
    }
}

fn can_be_read(file: &OwnedFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(file);
    flags.is_ok_and(|flags| !flags.contains(OFlags::PATH) && flags & OFlags::RWMODE != OFlags::WRONLY)
}
