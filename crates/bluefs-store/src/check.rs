//! Reads every row of a store, and compares what they say of each other.

use std::collections::BTreeMap;

use bluefs::op::{Inode, BLOCK_BYTES};
use bluefs::tree::{Entry, Space};
use bluefs::{Csn, Ino, Kind};

use crate::error::StoreError;
use crate::rows::{self, VolumeId};
use crate::store::Rows;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many volumes there are.
    pub volumes: usize,
    /// How many inodes there are.
    pub inodes: usize,
    /// What does not fit together.
    pub faults: Vec<String>,
}

/// What names and blocks say of an inode.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counted {
    names: u32,
    subdirs: u32,
    blocks: u64,
}

/// Checks all volumes.
pub fn check(all: &impl Rows) -> Result<Report, StoreError> {
    let mut report = Report::default();
    for volume in all.volumes()? {
        report.volumes += 1;
        check_volume(all, volume.id, &mut report)?;
    }
    // Rows that nothing above has read, too, have a checksum.
    all.range(&[0], &[0xff], usize::MAX)?;
    Ok(report)
}

fn check_volume(all: &impl Rows, volume: VolumeId, report: &mut Report) -> Result<(), StoreError> {
    let rows_of = |letter: u8| {
        let prefix = rows::key(letter, volume, &[]);
        all.range(&prefix, &rows::behind(&prefix), usize::MAX)
    };
    let mut inodes = BTreeMap::new();
    for (key, value) in rows_of(b'i')? {
        inodes.insert(Ino(rows::last_number(&key)?), rows::meaning::<Inode>(&key, &value)?);
    }
    let mut counted: BTreeMap<Ino, Counted> = BTreeMap::new();
    let mut fault = |text: String| report.faults.push(format!("volume {}: {text}", volume.0));
    for (key, value) in rows_of(b'e')? {
        let entry: Entry = rows::meaning(&key, &value)?;
        let dir = Ino(rows::number_at(&key, 5)?);
        let name = String::from_utf8_lossy(rows::last_name(&key)?.as_bytes()).into_owned();
        match inodes.get(&entry.ino) {
            Some(inode) if inode.kind == entry.kind => {}
            Some(_) => fault(format!("{name:?} in directory {} says another kind than its inode", dir.0)),
            None => fault(format!("{name:?} in directory {} means inode {}, which is not there", dir.0, entry.ino.0)),
        }
        if inodes.get(&dir).is_none_or(|inode| inode.kind != Kind::Dir) {
            fault(format!("{name:?} stands in {}, which is no directory", dir.0));
        }
        counted.entry(entry.ino).or_default().names += 1;
        counted.entry(dir).or_default().subdirs += u32::from(entry.kind == Kind::Dir);
    }
    let prefix = rows::key(b'b', volume, &[]);
    for key in all.keys(&prefix, &rows::behind(&prefix), usize::MAX)? {
        counted.entry(Ino(rows::number_at(&key, 5)?)).or_default().blocks += 1;
    }
    for ino in counted.keys().filter(|ino| !inodes.contains_key(ino)) {
        fault(format!("something belongs to inode {}, which is not there", ino.0));
    }
    for (&ino, inode) in &inodes {
        let found = counted.get(&ino).copied().unwrap_or_default();
        let links = match inode.kind {
            Kind::Dir if ino == Ino::ROOT || found.names > 0 => 2 + found.subdirs,
            _ => found.names,
        };
        if inode.nlink != links {
            fault(format!("inode {} says {} links, and has {links}", ino.0, inode.nlink));
        }
        if inode.blocks != found.blocks {
            fault(format!("inode {} says {} blocks, and has {}", ino.0, inode.blocks, found.blocks));
        }
    }
    let csn = all.csn(volume)?;
    for (key, value) in rows_of(b'd')? {
        let (ino, version) = (Ino(rows::last_number(&key)?), rows::meaning::<Csn>(&key, &value)?);
        if version > csn || !inodes.contains_key(&ino) {
            fault(format!("the contents of inode {} have changed by commit {}, which cannot be", ino.0, version.0));
        }
    }
    // A row may say anything: faults are told above.
    let blocks = inodes.values().fold(0u64, |sum, inode| sum.saturating_add(inode.blocks));
    let (bytes, count) = (blocks.saturating_mul(BLOCK_BYTES), inodes.len() as u64);
    let key = rows::key(b's', volume, &[]);
    match all.get(&key)?.map(|value| rows::meaning::<Space>(&key, &value)).transpose()? {
        Some(space) if (space.used_bytes, space.used_inodes) == (bytes, count) => {}
        Some(space) => fault(format!(
            "it says {} bytes and {} inodes are used, and {bytes} and {count} are",
            space.used_bytes, space.used_inodes
        )),
        None => fault("it has no row of its room".to_owned()),
    }
    report.inodes += inodes.len();
    Ok(())
}
