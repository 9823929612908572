//! Mounts that change without a call inside: a device number without a disk may be another file system's from then
//! on. Agents are told to ask before they look at the next file.

use agent_abi::World;
use procfs::mountinfo::Table;
use rustix::event::{poll, PollFd, PollFlags};
use std::io;
use std::sync::atomic::Ordering;

/// Watch the table of mounts until the supervisor ends.
pub fn start(world: &'static World) -> io::Result<()> {
    let mut table = Table::open()?;
    crate::threads::start("mounts", move || {
        while await_change(&table).is_ok() {
            world.mounts_changed.store(1, Ordering::SeqCst);
            if table.read_again().is_err() {
                return;
            }
        }
    })
    .map(drop)
}

fn await_change(table: &Table) -> rustix::io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(table, PollFlags::PRI)], None) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}
