//! Programs that have more rights than whoever starts them. The kernel gives none to a traced program whose tracer is
//! not root (execve(2)).

use crate::descriptors::user_of;
use crate::event_loop::Supervisor;
use crate::message::Message;
use agent_abi::{DeviceKind, World};
use procfs::{MagicLink, Status, ThreadId};
use std::os::unix::fs::MetadataExt;

/// What a program file would give to whoever starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// Nothing.
    Nothing,
    /// The rights of its owner. Without them such programs mostly do the wrong thing.
    Owner,
    /// Those of its group. Many only guard themselves so (ssh-agent).
    Group,
    /// Capabilities. Many do without (ping).
    Capabilities,
}

impl Gives {
    /// What the program that a thread has just started would give it.
    pub(crate) fn of(tid: ThreadId, world: &World) -> Self {
        // Without the group's right to run it the bit means something else (inode(7)).
        const SETGID: u32 = libc::S_ISGID | libc::S_IXGRP;
        let Ok(program) = MagicLink::Exe.metadata(tid) else { return Self::Nothing };
        let group = || Status::of(tid).and_then(|status| status.groups()).map(|groups| groups[1]);
        if program.mode() & libc::S_ISUID != 0 && user_of(tid).is_ok_and(|uid| uid != program.uid()) {
            Self::Owner
        } else if program.mode() & SETGID == SETGID && group().is_ok_and(|gid| gid != program.gid()) {
            Self::Group
        } else if world.device(program.dev()).0 != DeviceKind::Outside && has_capabilities(tid) {
            Self::Capabilities
        } else {
            Self::Nothing
        }
    }
}

/// Not of a file that somebody serves, who may be inside and wait for us.
fn has_capabilities(tid: ThreadId) -> bool {
    let mut value = [0u8; 64];
    let found = rustix::fs::getxattr(MagicLink::Exe.path(tid), "security.capability", &mut value[..]);
    found.is_ok_and(|len| len > 0)
}

impl Supervisor {
    /// A program runs without rights that it would have natively: that is said once for each.
    pub(crate) fn tell_of_missing_rights(&mut self, tid: ThreadId, gives: Gives) {
        let what = match gives {
            Gives::Nothing | Gives::Owner => return,
            Gives::Group => "the rights of its group",
            Gives::Capabilities => "its capabilities",
        };
        let Ok(name) = MagicLink::Exe.shown(tid) else { return };
        if !self.told_of_rights.contains(&name) {
            let text = format!(
                "{} runs without {what}, which a traced program does not get; if it fails, start it outside",
                name.display()
            );
            self.front.tell(&Message::Warning { text });
            self.told_of_rights.insert(name);
        }
    }
}
