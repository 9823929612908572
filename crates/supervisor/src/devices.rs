//! The table of file systems in shared memory, and the engine's way to each domain.

use agent_abi::{DeviceKind, World, DEVICES_MAX};
use external_sync::domain::{DomainTable, Place};
use external_sync::engine::Handles;
use external_sync::journal::Probe;
use rustix::fs::{MemfdFlags, Stat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Fill the world's table from the mounts, and the engine's handles.
pub fn publish(table: &DomainTable, world: &World, handles: &Mutex<Handles>) -> io::Result<()> {
    for (dev, place) in table.places() {
        set_device(world, dev, place);
    }
    // Memory that has no mount: memfds and shared anonymous memory.
    let memory = rustix::fs::memfd_create("speculator", MemfdFlags::CLOEXEC)?;
    set_device(world, dev_of(&memory)?, Place::Memory);
    let mut handles = handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut ordered = 0;
    for domain in table.domains() {
        let index = usize::from(domain.id.0);
        if domain.is_ordered() {
            ordered |= 1 << index;
        }
        handles.roots[index] = match domain.handle() {
            Some(handle) => Some(Arc::new(handle.try_clone_to_owned()?)),
            None => None,
        };
        let probe = |handle| Probe::of(handle, &domain.file_system.fs_type);
        // Once found it is kept: a file system that gives up must not look like one that cannot be asked.
        handles.probes[index] = handles.probes[index].or_else(|| domain.handle().and_then(probe));
    }
    // data=journal: the journal holds everything (`external_sync::domain`), and the root is a directory of the same journal.
    handles.whole_journal = ordered;
    world.ordered.store(ordered, Ordering::SeqCst);
    Ok(())
}

fn dev_of(fd: &OwnedFd) -> io::Result<u64> {
    let stat: Stat = rustix::fs::fstat(fd.as_fd())?;
    Ok(stat.st_dev)
}

fn set_device(world: &World, dev: u64, place: Place) {
    let (kind, domain) = match place {
        Place::Domain(id) => (DeviceKind::Domain, u32::from(id.0)),
        Place::Memory => (DeviceKind::Memory, 0),
        Place::Pseudo => (DeviceKind::Pseudo, 0),
        Place::ReadOnly => (DeviceKind::ReadOnly, 0),
        Place::Outside => (DeviceKind::Outside, 0),
    };
    let len = world.devices_len.load(Ordering::Acquire) as usize;
    let index = (0..len).find(|&i| world.devices[i].dev.load(Ordering::Relaxed) == dev).unwrap_or(len);
    if index >= DEVICES_MAX {
        return; // Not in the table means outside.
    }
    let device = &world.devices[index];
    device.domain.store(domain, Ordering::Release);
    device.kind.store(kind as u32, Ordering::Release);
    device.dev.store(dev, Ordering::Release);
    if index == len {
        world.devices_len.store(len as u32 + 1, Ordering::Release);
    }
}
