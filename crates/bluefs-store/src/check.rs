//! Reads every row of a store, and compares what they say of each other.

use std::collections::BTreeMap;

use bluefs::op::{Inode, BLOCK_BYTES};
use bluefs::tree::{Entry, Space};
use bluefs::{Csn, Ino, Kind};

use crate::error::StoreError;
use crate::rows::{self, VolumeId};
use crate::store::{Row, Rows};

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

fn check_volume(all: &impl Rows, id: VolumeId, report: &mut Report) -> Result<(), StoreError> {
    let mut volume = Volume { all, id, inodes: BTreeMap::new(), faults: &mut report.faults };
    for (key, value) in volume.rows_of(b'i')? {
        volume.inodes.insert(Ino(rows::last_number(&key)?), rows::meaning(&key, &value)?);
    }
    let counted = volume.count()?;
    volume.check_inodes(&counted);
    volume.check_versions()?;
    volume.check_space()?;
    report.inodes += volume.inodes.len();
    Ok(())
}

/// A volume that is being checked.
struct Volume<'a, R> {
    all: &'a R,
    id: VolumeId,
    inodes: BTreeMap<Ino, Inode>,
    faults: &'a mut Vec<String>,
}

impl<R: Rows> Volume<'_, R> {
    fn fault(&mut self, text: String) {
        self.faults.push(format!("volume {}: {text}", self.id.0));
    }

    fn rows_of(&self, letter: u8) -> Result<Vec<Row>, StoreError> {
        let prefix = rows::key(letter, self.id, &[]);
        self.all.range(&prefix, &rows::behind(&prefix), usize::MAX)
    }

    /// Counts the names and blocks of each inode, and compares names with what they mean.
    fn count(&mut self) -> Result<BTreeMap<Ino, Counted>, StoreError> {
        let mut counted: BTreeMap<Ino, Counted> = BTreeMap::new();
        for (key, value) in self.rows_of(b'e')? {
            let entry: Entry = rows::meaning(&key, &value)?;
            let dir = Ino(rows::number_at(&key, 5)?);
            let name = String::from_utf8_lossy(rows::last_name(&key)?.as_bytes()).into_owned();
            match self.inodes.get(&entry.ino) {
                Some(inode) if inode.kind == entry.kind => {}
                Some(_) => self.fault(format!("{name:?} in directory {} says another kind than its inode", dir.0)),
                None => {
                    let ino = entry.ino.0;
                    self.fault(format!("{name:?} in directory {} means inode {ino}, which is not there", dir.0));
                }
            }
            if self.inodes.get(&dir).is_none_or(|inode| inode.kind != Kind::Dir) {
                self.fault(format!("{name:?} stands in {}, which is no directory", dir.0));
            }
            counted.entry(entry.ino).or_default().names += 1;
            counted.entry(dir).or_default().subdirs += u32::from(entry.kind == Kind::Dir);
        }
        let prefix = rows::key(b'b', self.id, &[]);
        for key in self.all.keys(&prefix, &rows::behind(&prefix), usize::MAX)? {
            counted.entry(Ino(rows::number_at(&key, 5)?)).or_default().blocks += 1;
        }
        Ok(counted)
    }

    fn check_inodes(&mut self, counted: &BTreeMap<Ino, Counted>) {
        let mut faults = Vec::new();
        for ino in counted.keys().filter(|ino| !self.inodes.contains_key(ino)) {
            faults.push(format!("something belongs to inode {}, which is not there", ino.0));
        }
        for (&ino, inode) in &self.inodes {
            let found = counted.get(&ino).copied().unwrap_or_default();
            let links = match inode.kind {
                Kind::Dir if ino == Ino::ROOT || found.names > 0 => 2 + found.subdirs,
                _ => found.names,
            };
            if inode.nlink != links {
                faults.push(format!("inode {} says {} links, and has {links}", ino.0, inode.nlink));
            }
            if inode.blocks != found.blocks {
                faults.push(format!("inode {} says {} blocks, and has {}", ino.0, inode.blocks, found.blocks));
            }
        }
        faults.into_iter().for_each(|text| self.fault(text));
    }

    fn check_versions(&mut self) -> Result<(), StoreError> {
        let csn = self.all.csn(self.id)?;
        for (key, value) in self.rows_of(b'd')? {
            let (ino, version) = (Ino(rows::last_number(&key)?), rows::meaning::<Csn>(&key, &value)?);
            if version > csn || !self.inodes.contains_key(&ino) {
                let text = format!("the contents of inode {} have changed by commit {}", ino.0, version.0);
                self.fault(format!("{text}, which cannot be"));
            }
        }
        Ok(())
    }

    fn check_space(&mut self) -> Result<(), StoreError> {
        // A row may say anything: faults are told above.
        let blocks = self.inodes.values().fold(0u64, |sum, inode| sum.saturating_add(inode.blocks));
        let (bytes, count) = (blocks.saturating_mul(BLOCK_BYTES), self.inodes.len() as u64);
        let key = rows::key(b's', self.id, &[]);
        match self.all.get(&key)?.map(|value| rows::meaning::<Space>(&key, &value)).transpose()? {
            Some(space) if (space.used_bytes, space.used_inodes) == (bytes, count) => {}
            Some(space) => self.fault(format!(
                "it says {} bytes and {} inodes are used, and {bytes} and {count} are",
                space.used_bytes, space.used_inodes
            )),
            None => self.fault("it has no row of its room".to_owned()),
        }
        Ok(())
    }
}
