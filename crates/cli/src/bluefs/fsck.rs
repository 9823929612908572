//! `speculator fsck`.

use bluefs_store::{Opened, Store, StoreError};

use super::advice;
use super::args::FsckOptions;
use crate::error::Failure;
use crate::generate::print;
use crate::tell::counted;

const STATUS_DAMAGED: u8 = 1;

/// Reads everything; the status is 1 if the store is damaged.
pub fn fsck(options: &FsckOptions) -> Result<u8, Failure> {
    let path = options.store.display();
    let opened = Store::open(&options.store).and_then(|Opened { store, notes }| Ok((store.check()?, notes)));
    match opened {
        Ok((report, mut notes)) => {
            notes.extend(report.faults.iter().cloned());
            notes.iter().try_for_each(|note| print(&format!("{path}: {note}\n")))?;
            let verdict = if report.faults.is_empty() { "clean" } else { "damaged; restore it from a copy" };
            let (volumes, inodes) = (counted(report.volumes as u64, "volume"), counted(report.inodes as u64, "inode"));
            print(&format!("{path}: {volumes}, {inodes}: {verdict}\n"))?;
            Ok(if report.faults.is_empty() { 0 } else { STATUS_DAMAGED })
        }
        Err(StoreError::Damaged(why)) => {
            print(&format!("{path}: damaged: {why}; restore it from a copy\n"))?;
            Ok(STATUS_DAMAGED)
        }
        Err(error) => Err(advice::store(&format!("check {path}"), &error)),
    }
}
