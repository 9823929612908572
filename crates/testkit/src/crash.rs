//! The crash disk: what does a file system show after a power failure to somebody who saw the output until then?
//!
//! ```text
//!   workload ── ext4 ── /dev/loopN ── FUSE file `disk.img` ── memory + log ─┐
//!      └──── stdout, terminal, UDP, TCP ────────── observer ── log ─────────┤ one clock
//! ```
//! A [`CrashDisk`] logs every write and flush, an [`Observer`] every line of output, on one [`Clock`]. A [`CutPlan`]
//! chooses moments and, for each, which writes since the last completed flush reached the platter; a [`Replayer`]
//! rebuilds that disk, mounts it (ext4 recovers its journal) and has a checker look at it beside the output seen by
//! then.
//!
//! **What a cut at clock value t means.** Seen: the messages with a clock below t. On the platter for certain: every
//! write that completed before the beginning of a flush that ended before t. Perhaps on the platter, wholly, in part,
//! or not, each by itself: every other write issued before t. A flush in progress promises nothing. Whole sectors of
//! 512 bytes are written or not; the first 4096 bytes, where ext4 keeps a superblock with one checksum for two sectors,
//! do not tear.
//!
//! **Invariant**: output is stamped not later than any write or flush that follows it: before the disk stamps an event,
//! it takes in all output that has left the workload ([`Clock::stamp`]). So output that leaves just before its flush
//! ends is caught.

mod clock;
mod configuration;
mod cut;
mod disk;
mod error;
mod fault;
mod fuse;
mod keeper;
mod log;
mod loop_device;
mod mounted;
mod observer;
mod record;
mod replay;
mod report;
#[allow(unsafe_code)]
mod sys;

pub use clock::Clock;
pub use configuration::{Configuration, Expectation, MountedBy};
pub use cut::{Cut, CutPlan, Kept};
pub use disk::{CrashDisk, DiskOptions};
pub use error::CrashError;
pub use fault::Fault;
pub use log::{DiskEvent, Log, Message};
pub use mounted::{private_mounts, Mounted};
pub use observer::{Channel, Observer};
pub use record::{record, RecordOptions, Recording, PREFIX};
pub use replay::{replay_all, Replayer};
pub use report::{Example, Outcome, Report, Violation};
