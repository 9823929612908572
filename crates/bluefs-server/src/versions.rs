//! When contents have changed last, across restarts, and in which history: so that a client can use what it had of
//! them on its disk (docs/decisions/0256).
//!
//! A version is the commit that has changed the *bytes* of a file, whoever made it: neither its times nor its names. It
//! is written with that commit, in one batch, so that it is right after whatever end of the server. A commit number
//! alone does not say what was seen: a back-up that was put in place of a store gives the same numbers to other
//! changes. So each start of a server has a random number, and the store says at which commit each one began: who has
//! seen commit *c* of start *s* has seen what is in this store if the next start began at *c* or later.

use bluefs::tree::{Changes, Tree};
use bluefs::{Csn, Ino, Key, Kind};
use bluefs_store::{Batch, History, Rows, Staged, StoreError, View, VolumeId};
use bluefs_wire::{Reply, STARTS_MAX};

/// A server starts: notes that for all volumes. `random` gives numbers that no other start has.
pub fn start(batch: &mut Batch, mut random: impl FnMut() -> u64) -> Result<(), StoreError> {
    for volume in batch.volumes()? {
        let csn = batch.csn(volume.id)?;
        // What has changed contents until now has left no version.
        let unknown = |volume| History { volume, floor: csn, starts: Vec::new() };
        let mut history = batch.history(volume.id)?.unwrap_or_else(|| unknown(random()));
        history.starts.push((random(), csn));
        let old = history.starts.len().saturating_sub(STARTS_MAX);
        history.starts.drain(..old);
        batch.set_history(volume.id, &history)?;
    }
    Ok(())
}

/// Notes whose contents this commit changes. What it changes is not written yet.
pub fn note(batch: &mut Batch, volume: VolumeId, changes: &Changes, csn: Csn) -> Result<(), StoreError> {
    let files = changes.keys.iter().filter_map(|key| if let Key::Data(ino) = key { Some(*ino) } else { None });
    for ino in files {
        let Some(Some(new)) = changes.inodes.get(&ino) else { continue };
        let has_blocks = || changes.blocks.range((ino, 0)..=(ino, u64::MAX)).next().is_some();
        if new.kind == Kind::File && (has_blocks() || size(batch, volume, ino)? != new.size) {
            batch.set_version(volume, ino, csn)?;
        }
    }
    Ok(())
}

fn size(batch: &Batch, volume: VolumeId, ino: Ino) -> Result<u64, StoreError> {
    let inode = View::new(batch, volume, &Staged::new()).inode(ino)?;
    Ok(inode.map_or(0, |inode| inode.size))
}

/// Which volume it is, and who has served it.
pub fn history(batch: &Batch, volume: VolumeId, tag: u64) -> Result<Reply, StoreError> {
    let History { volume, starts, .. } = batch.history(volume)?.unwrap_or_default();
    Ok(Reply::History { tag, volume, starts })
}

/// Since when the contents of these files have not changed; `None`: it is not there.
pub fn of(batch: &Batch, volume: VolumeId, inos: &[Ino]) -> Result<Vec<Option<Csn>>, StoreError> {
    let floor = batch.history(volume)?.unwrap_or_default().floor;
    let nothing = Staged::new();
    let view = View::new(batch, volume, &nothing);
    let version = |ino: &Ino| match view.inode(*ino)? {
        Some(_) => Ok(Some(batch.version(volume, *ino)?.unwrap_or(floor))),
        None => Ok(None),
    };
    inos.iter().map(version).collect()
}
