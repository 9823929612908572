//! What COMMAND inherits came from outside, and is COMMAND's alone from its start on.

use crate::sys;
use agent_abi::{hash_object, option};
use procfs::{MagicLink, ProcessId};
use rustix::fs::FileType;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// What COMMAND has inherited is its own now: who is at the other end of a pipe, or waits for a lock, hears when
/// COMMAND closes it. Standard error stays: we may have something to say. Terminals stay, too: who has a terminal's
/// other side hears at once that nobody has it open any more, and nobody holds that until what was done is durable.
pub fn let_go() {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let (Ok(null), Ok(inherited)) = (null, sys::inherited()) else { return };
    let is_terminal = |fd: i32| {
        let metadata = MagicLink::Fd(fd).metadata(ProcessId::own());
        let mode = metadata.map(|metadata| std::os::unix::fs::MetadataExt::mode(&metadata));
        mode.map_or(true, |mode| FileType::from_raw_mode(mode) == FileType::CharacterDevice)
    };
    for fd in inherited.into_iter().filter(|&fd| !is_terminal(fd)) {
        match fd {
            0 | 1 => drop(sys::replace(null.as_fd(), fd)),
            2 => {}
            fd => sys::close(fd),
        }
    }
}

fn outside_count(world: &agent_abi::World) -> u64 {
    world.outside.iter().take_while(|object| object.load(Ordering::Relaxed) != 0).count() as u64
}

/// What COMMAND inherits came from outside.
pub fn mark(world: &agent_abi::World, inherited: &[i32]) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    for fd in inherited {
        let metadata = MagicLink::Fd(*fd).metadata(ProcessId::own())?;
        match FileType::from_raw_mode(metadata.mode()) {
            kind @ (FileType::Fifo | FileType::Socket) => {
                world.mark_outside(hash_object(metadata.dev(), metadata.ino()));
                world.inherited.store(outside_count(world), Ordering::SeqCst);
                if kind == FileType::Socket {
                    // It may have limits of time already.
                    world.options.fetch_or(option::RECEIVE_LIMITS | option::SEND_LIMITS, Ordering::SeqCst);
                }
            }
            FileType::Unknown => {
                world.options.fetch_or(option::OUTSIDE_EVENTS, Ordering::SeqCst);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Out of the way: a session of our own, none of COMMAND's descriptors (or their readers would never see the end), no
/// working directory that could be on a volume.
pub fn detach(inherited: &[i32]) -> io::Result<()> {
    rustix::process::setsid()?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        sys::replace(null.as_fd(), standard)?;
    }
    for &fd in inherited.iter().filter(|&&fd| fd > 2) {
        sys::close(fd);
    }
    std::env::set_current_dir("/")
}
