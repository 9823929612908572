//! `fsync` and `fdatasync` of a speculative process, where they are no dependency only: on file systems that do not
//! commit in order ([0055](../../../../../../docs/decisions/0055-fsync-on-a-guess.md)). They are held as writes are,
//! between them: the call is answered at once, and made in its order when nothing that it depends on can fail any more.

use crate::ahead::calls::ask::Decision;
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::{process, Call, Written};
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use rustix::fs::{FileType, OFlags};
use std::os::fd::OwnedFd;
use syscall_table::nr;

/// A call that is held.
#[derive(Debug)]
pub(crate) struct HeldSync {
    file: OwnedFd,
    data_only: bool,
}

impl Supervisor {
    /// Hold the call of a speculative process; it waits where it is not sure to succeed.
    pub(in crate::ahead) fn hold_sync(&mut self, call: &Call, fd: i32) -> Decision {
        let Some(held) = self.sync_of(call, fd) else { return self.wait_at_barrier(call) };
        self.ahead.core.output(process(call.pid), Written::Sync(held));
        Decision::Answer(0)
    }

    fn sync_of(&mut self, call: &Call, fd: i32) -> Option<HeldSync> {
        let FileDescription::File { device: DeviceKind::Domain, copy, .. } = self.file_description(call.tid, fd) else {
            return None;
        };
        let stat = rustix::fs::fstat(&copy).ok()?;
        let is_kept = matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory);
        let is_open = !rustix::fs::fcntl_getfl(&copy).ok()?.contains(OFlags::PATH);
        let is_sure = is_kept && is_open && matches!(call.frame.nr, nr::fsync | nr::fdatasync);
        is_sure.then_some(HeldSync { file: copy, data_only: call.frame.nr == nr::fdatasync })
    }

    /// Nothing that it depends on can fail any more.
    pub(in crate::ahead) fn make_sync(&mut self, held: &HeldSync) {
        if self.ahead.is_doomed {
            return;
        }
        let made = if held.data_only { rustix::fs::fdatasync(&held.file) } else { rustix::fs::fsync(&held.file) };
        if let Err(error) = made {
            // The program was told that it had succeeded.
            self.end_world(&format!("a file whose fsync had been held could not be made durable: {error}"));
        }
    }
}
