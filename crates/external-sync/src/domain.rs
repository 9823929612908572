//! Domains: what each mounted file system can promise to whoever looks from outside (002, 3.3;
//! `external-synchrony.md`).
//!
//! A file system is put into a [`Class`] by its type, its options, and what it lies on. Whatever is not known to have a
//! working flush is [`Class::Outside`]: when in doubt, wait.

mod classify;
mod look;
mod table;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::flush::Way;
use look::Machine;
use procfs::mountinfo::{self, Mount};

pub use classify::is_pseudo;
pub use table::{Domain, DomainId, DomainTable, Place, DOMAINS_MAX};

/// What a file system is to external synchrony.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It commits data and metadata in one order and flushes the disk: both promises.
    Ordered,
    /// It has a working flush, but after a crash a later change may be there without an earlier one.
    Durable,
    /// It lives in memory: nothing of it is there after a crash, with or without us.
    Memory,
    /// It is an interface to the kernel and stores nothing.
    Pseudo,
    /// It never changes.
    ReadOnly,
    /// It belongs to somebody else, or nothing is known of it: writing to it is output.
    Outside,
}

/// Whether a promise is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// It is.
    Kept,
    /// It is not.
    NotKept,
    /// There is nothing on this file system that it could be about.
    NothingToKeep,
}

impl Class {
    /// *Durable before observed*: nothing that depends on an uncommitted change has left.
    pub fn durable_before_observed(self) -> Promise {
        match self {
            Class::Ordered | Class::Durable => Promise::Kept,
            Class::Memory | Class::Pseudo | Class::ReadOnly => Promise::NothingToKeep,
            Class::Outside => Promise::NotKept,
        }
    }

    /// *Ordered*: after a crash the disk shows no later change without the earlier ones.
    pub fn ordered(self) -> Promise {
        match self {
            Class::Ordered => Promise::Kept,
            Class::Durable | Class::Outside => Promise::NotKept,
            Class::Memory | Class::Pseudo | Class::ReadOnly => Promise::NothingToKeep,
        }
    }

    /// Whether it can commit, and so can be a domain.
    pub fn can_commit(self) -> bool {
        matches!(self, Class::Ordered | Class::Durable)
    }

    /// The word that people see.
    pub fn name(self) -> &'static str {
        match self {
            Class::Ordered => "ordered",
            Class::Durable => "durable",
            Class::Memory => "memory",
            Class::Pseudo => "pseudo",
            Class::ReadOnly => "read-only",
            Class::Outside => "outside",
        }
    }

    /// What to do to get more from a file system of this class; `None` when there is nothing to get.
    pub fn what_to_do(self) -> Option<&'static str> {
        match self {
            Class::Ordered | Class::Pseudo | Class::ReadOnly => None,
            Class::Durable => Some(
                "fsync stays a real fsync here; for full speed work on a volume (speculator volume create, run --volume), \
                 or give up order with --elide-fsync",
            ),
            Class::Memory => Some("nothing here survives a crash; keep what must survive on a volume"),
            Class::Outside => Some("writes here wait like output; work on a volume (speculator volume create, run --volume)"),
        }
    }
}

/// One mounted file system and what it can promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// Device number, in the encoding of `st_dev`. On btrfs and overlayfs files may report another: see
    /// [`DomainTable::learn`].
    pub dev: u64,
    /// `stx_mnt_id` of this mount.
    pub mount_id: u64,
    /// Where it is mounted.
    #[serde(serialize_with = "lossy")]
    pub mount_point: PathBuf,
    /// `ext4`, `tmpfs`…
    pub fs_type: String,
    /// A device, `host:/path`, or just a word.
    #[serde(serialize_with = "lossy")]
    pub source: PathBuf,
    /// What it is to us.
    pub class: Class,
    /// Why it is in this class.
    pub reason: String,
    /// How it is flushed, if it can commit.
    #[serde(skip)]
    pub way: Way,
}

/// JSON has no way to write a path that is not Unicode.
fn lossy<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl FileSystem {
    fn new(mount: &Mount, all: &[Mount], machine: &Machine) -> FileSystem {
        let (class, reason) = classify::classify(mount, all, machine);
        FileSystem {
            dev: mount.dev,
            mount_id: mount.id,
            mount_point: mount.mount_point.clone(),
            fs_type: mount.fs_type.clone(),
            source: mount.source.clone(),
            class,
            reason,
            way: if class.can_commit() { classify::way(mount, all, machine) } else { Way::default() },
        }
    }
}

/// Every mount that this process sees, in the kernel's order.
pub fn file_systems() -> io::Result<Vec<FileSystem>> {
    Ok(classify_all(&mountinfo::read()?))
}

fn classify_all(mounts: &[Mount]) -> Vec<FileSystem> {
    let machine = Machine::default();
    mounts.iter().map(|mount| FileSystem::new(mount, mounts, &machine)).collect()
}
