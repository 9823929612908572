//! Programs that cannot run inside: they are ended before their first instruction, and somebody is told.

use crate::event_loop::Supervisor;
use crate::message::Message;
use procfs::MagicLink;
use tracee::{Result, Stopped};

impl Supervisor {
    /// It cannot run inside because of what it is.
    pub(crate) fn refuse_program(&mut self, stopped: Stopped, why: &str, what_to_do: &str) -> Result<()> {
        self.refuse(stopped, why, what_to_do, true)
    }

    /// `is_to_blame`: because of what the program is; of COMMAND the front then says 126, else 125.
    pub(crate) fn refuse(&mut self, stopped: Stopped, why: &str, what_to_do: &str, is_to_blame: bool) -> Result<()> {
        let tid = stopped.tid();
        let name = MagicLink::Exe.shown(tid).map(|path| path.display().to_string());
        let name = name.or_else(|_| procfs::program_name(tid)).unwrap_or_else(|_| "a program".into());
        let text = format!("cannot run {name} inside: {why}; {what_to_do}");
        self.front.tell(&Message::Refused { text, is_command: tid.leads() == self.root, is_to_blame });
        crate::sys::kill_process_of(tid, libc::SIGKILL);
        stopped.resume(0)
    }
}
