//! The volumes of a BlueFS server on a disk.
//!
//! ```text
//!  STORE/log-0000000000000001   records: what each batch of intervals has changed; the authority
//!  STORE/state                  redb: the newest value of every row, and the number of the last record in it
//!  STORE/witness                the number of the last record that was synced
//! ```
//!
//! A batch is one record: it is written to the log and synced, then its rows are written to redb in one transaction
//! together with the record's number. Redb's transactions are made durable now and then (a *checkpoint*); what is
//! missing in it after a crash is taken from the log, which is kept back to the checkpoint before the last one. A row
//! has one value, so that a record that is carried out again changes nothing.
//!
//! **Invariant:** [`Store::batch`] returns after the record is on stable storage. A disk without room for one, or a
//! quota, is no end: the log is what it was, and a checkpoint waits (docs/decisions/0309).
//!
//! **Invariant:** no damage is silent. Records have checksums, numbers without gaps, and the checksum of their
//! predecessor; rows have checksums over key and value; redb checks its pages when it is opened. A record that is
//! incomplete is dropped only if it is the last one and no witness says that it was complete once.
#![forbid(unsafe_code)]

mod check;
mod crash_disk;
mod disk;
mod error;
mod log;
mod rows;
mod store;
mod view;

pub use check::Report;
pub use crash_disk::CrashDisk;
pub use disk::{Directory, Disk, DiskFile, Room};
pub use error::StoreError;
pub use rows::{History, SessionRow, VolumeId, VolumeRow};
pub use store::{Batch, Left, Opened, Row, Rows, Store};
pub use view::{Staged, View};
