//! What is behind a descriptor of a process.

use crate::ahead::objects::kind::OpenObject;
use crate::event_loop::Supervisor;
use agent_abi::{hash_object, option, DeviceKind};
use procfs::ThreadId;
use rustix::fs::{FileType, Stat};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// What is behind a descriptor.
#[derive(Debug)]
pub(crate) enum FileDescription {
    /// A pipe or FIFO that only the world can reach.
    Pipe { dev: u64, ino: u64, copy: OwnedFd },
    /// A pipe of which somebody inside may be about to tell that it is one that only the world can reach.
    Untold,
    /// A file or directory.
    File { dev: u64, ino: u64, device: DeviceKind, copy: OwnedFd },
    /// A terminal or a pipe that leads outside.
    Outside { copy: OwnedFd },
    /// Devices that carry nothing.
    Nothing,
    /// A socket.
    Socket { ino: u64, copy: OwnedFd },
    /// An object without a name that only the world can reach.
    Object(OpenObject),
    /// Something whose operations cannot be undone: a device, a timer.
    Other,
    /// No descriptor.
    Bad,
}

impl Supervisor {
    pub(crate) fn file_description(&mut self, tid: ThreadId, fd: i32) -> FileDescription {
        let Ok(copy) = self.copy_descriptor(tid, fd) else { return FileDescription::Bad };
        self.description_of(copy)
    }

    /// Whether only the world can reach a pipe or FIFO. One that a guess has made has no name yet for anybody outside.
    pub(in crate::ahead) fn is_inside_pipe(&self, stat: &Stat) -> bool {
        let (world, hash) = (self.world(), hash_object(stat.st_dev, stat.st_ino));
        self.ahead.new_files.has(stat) || world.is_inside_pipe(hash) && !world.is_outside(hash)
    }

    pub(crate) fn description_of(&mut self, copy: OwnedFd) -> FileDescription {
        const NULL: u64 = 0x103;
        const ZERO: u64 = 0x105;
        const FULL: u64 = 0x107;
        const RANDOM: u64 = 0x108;
        const URANDOM: u64 = 0x109;
        let Ok(stat) = rustix::fs::fstat(&copy) else { return FileDescription::Other };
        let (dev, ino) = (stat.st_dev, stat.st_ino);
        let world = self.world();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => {
                // In this order: who is about to tell has told afterwards.
                if !self.is_inside_pipe(&stat) && self.may_be_untold(&stat) {
                    FileDescription::Untold
                } else if self.is_inside_pipe(&stat) {
                    FileDescription::Pipe { dev, ino, copy }
                } else {
                    FileDescription::Outside { copy }
                }
            }
            FileType::RegularFile | FileType::Directory | FileType::Symlink => {
                let (device, _) = world.device(dev);
                FileDescription::File { dev, ino, device, copy }
            }
            FileType::CharacterDevice if matches!(stat.st_rdev, NULL | ZERO | FULL | RANDOM | URANDOM) => {
                FileDescription::Nothing
            }
            FileType::CharacterDevice => FileDescription::Outside { copy },
            FileType::Socket => FileDescription::Socket { ino, copy },
            FileType::Unknown if world.options.load(Ordering::Relaxed) & option::OUTSIDE_EVENTS == 0 => {
                let object = OpenObject::behind(copy, &mut self.ahead.identities);
                object.map_or(FileDescription::Other, FileDescription::Object)
            }
            _ => FileDescription::Other,
        }
    }
}
