//! The table of file systems in shared memory, and the engine's way to each domain.

use agent_abi::{DeviceKind, World, DEVICES_MAX};
use external_sync::domain::{Domain, DomainId, DomainTable, Place};
use external_sync::engine::Handles;
use external_sync::flush::Root;
use rustix::fs::{MemfdFlags, Stat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Fill the world's table from the mounts, and open what must stay open.
pub fn publish(table: &DomainTable, world: &World, handles: &Mutex<Handles>) -> io::Result<()> {
    // Before anybody can find a new one in the table.
    world.transactions.extend(table.domains().len());
    for (dev, place) in table.places() {
        set_device(world, dev, place);
    }
    // Memory that has no mount: memfds and shared anonymous memory.
    let memory = rustix::fs::memfd_create("speculator", MemfdFlags::CLOEXEC)?;
    let memory = dev_of(&memory)?;
    set_device(world, memory, Place::Memory);
    let mut handles = handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let ids = |wanted: &dyn Fn(&Domain) -> bool| {
        table.domains().iter().filter(|d| wanted(d)).fold(0, |bits, domain| bits | 1 << domain.id.0)
    };
    // data=journal: the journal holds everything (`external_sync::domain`), and the root is a directory of the same
    // journal.
    handles.whole_journal = ids(&Domain::is_ordered);
    world.ordered.store(handles.whole_journal, Ordering::SeqCst);
    handles.kept_open = ids(&|domain| !domain.can_be_closed());
    for domain in table.domains().iter().filter(|domain| !domain.can_be_closed() && table.is_mounted(domain)) {
        // What cannot be opened fails when it is flushed.
        let _ = open(domain, world, &mut handles, || table.open(domain.id));
    }
    let is_gone = |domain: &Domain| {
        let is_closed = handles.roots[usize::from(domain.id.0)].is_none();
        is_closed && !domain.can_be_closed() && !table.is_mounted(domain)
    };
    let gone = ids(&is_gone);
    forget_unmounted(world, gone, |dev| dev == memory || table.place(dev).is_some());
    Ok(())
}

/// Somebody is about to change a domain: from now on the engine can flush it. `by_way` are other ways to the file
/// system, for one that has no mount point any more.
pub fn hold(
    table: &DomainTable,
    id: DomainId,
    world: &World,
    handles: &Mutex<Handles>,
    by_way: impl FnOnce(u64) -> Option<OwnedFd>,
) -> io::Result<()> {
    let domain = table.domain(id);
    if !domain.can_be_closed() && !table.is_mounted(domain) && table.place(domain.file_system.dev).is_some() {
        // Another file system has its number, which somebody has looked at before that was known here.
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    let mut handles = handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    open(domain, world, &mut handles, || table.open(id).or_else(|| by_way(domain.file_system.dev)))
}

/// What is open already stays: it was there before the first change.
fn open(
    domain: &Domain,
    world: &World,
    handles: &mut Handles,
    way: impl FnOnce() -> Option<OwnedFd>,
) -> io::Result<()> {
    let index = usize::from(domain.id.0);
    if handles.roots[index].is_none() {
        let root = way().ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))?;
        handles.roots[index] = Some(Arc::new(Root::new(root, &domain.file_system.way)?));
    }
    world.transactions.hold(index);
    Ok(())
}

fn dev_of(fd: &OwnedFd) -> io::Result<u64> {
    let stat: Stat = rustix::fs::fstat(fd.as_fd())?;
    Ok(stat.st_dev)
}

/// No file system has this number.
const NO_DEVICE: u64 = u64::MAX;

/// The number of a file system without a disk that was unmounted may be any other's next: it says nothing any more.
/// A domain keeps its number as long as it is open, or has a disk; `gone` are those that neither is true of.
fn forget_unmounted(world: &World, gone: u32, is_mounted: impl Fn(u64) -> bool) {
    let len = (world.devices_len.load(Ordering::Acquire) as usize).min(DEVICES_MAX);
    for device in &world.devices[..len] {
        let is_domain = device.kind.load(Ordering::Relaxed) == DeviceKind::Domain as u32;
        let is_kept = is_domain && gone & (1 << device.domain.load(Ordering::Relaxed)) == 0;
        if !is_kept && !is_mounted(device.dev.load(Ordering::Relaxed)) {
            device.kind.store(DeviceKind::Outside as u32, Ordering::Release);
            device.dev.store(NO_DEVICE, Ordering::Release);
            // `sync` looks at all of them.
            device.kind.store(DeviceKind::Pseudo as u32, Ordering::Release);
        }
    }
}

pub fn set_device(world: &World, dev: u64, place: Place) {
    let (kind, domain) = match place {
        Place::Domain(id) => (DeviceKind::Domain, u32::from(id.0)),
        Place::Memory => (DeviceKind::Memory, 0),
        Place::Pseudo => (DeviceKind::Pseudo, 0),
        Place::ReadOnly => (DeviceKind::ReadOnly, 0),
        Place::Outside => (DeviceKind::Outside, 0),
    };
    let len = world.devices_len.load(Ordering::Acquire) as usize;
    let place_of = |dev| (0..len).find(|&i| world.devices[i].dev.load(Ordering::Relaxed) == dev);
    let index = place_of(dev).or_else(|| place_of(NO_DEVICE)).unwrap_or(len);
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
