//! Mounts that change without a call inside: a device number without a disk may be another file system's from then
//! on. Agents are told to ask before they look at the next file.

use agent_abi::World;
use rustix::event::{poll, PollFd, PollFlags};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::atomic::Ordering;

/// Watch the table of mounts until the supervisor ends.
pub fn start(world: &'static World) -> io::Result<()> {
    let mut table = File::open("/proc/self/mountinfo")?;
    let mut text = Vec::new();
    table.read_to_end(&mut text)?;
    crate::threads::start("mounts", move || {
        // proc_pid_mountinfo(5): a change is an exceptional condition, told once.
        while await_change(&table).is_ok() {
            world.mounts_changed.store(1, Ordering::SeqCst);
            text.clear();
            if table.rewind().and_then(|()| table.read_to_end(&mut text)).is_err() {
                return;
            }
        }
    })
    .map(drop)
}

fn await_change(table: &File) -> rustix::io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(table, PollFlags::PRI)], None) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}
