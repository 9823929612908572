//! What a try did to files, for people and programs to look at before they decide.

use std::path::PathBuf;

use serde::Serialize;

/// Everything that was done to files, by path.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// In the order of their paths.
    pub list: Vec<Change>,
    /// What somebody outside changed while the try went on, and the try as well.
    pub conflicts: Vec<(PathBuf, &'static str)>,
    /// Bytes that keeping needs, for each layer, by its number.
    pub(crate) needed: Vec<(usize, u64)>,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// As COMMAND names it.
    pub path: PathBuf,
    /// What was done.
    pub what: What,
    /// What it is, or was.
    pub kind: Kind,
    /// Bytes before.
    pub size_before: Option<u64>,
    /// Bytes after.
    pub size_after: Option<u64>,
    /// What is different.
    pub aspects: Vec<Aspect>,
    /// Where what it was before can be read, until the try is kept or undone.
    pub before: Option<PathBuf>,
    /// Where what it is now can be read.
    pub after: Option<PathBuf>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// It was not there before.
    Created,
    /// It is the same object, and different.
    Changed,
    /// It is not there any more.
    Removed,
    /// It was called this before.
    Renamed(#[serde(skip)] PathBuf),
}

/// What a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character or block device.
    Device,
}

/// What is different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    /// What it holds.
    Contents,
    /// Its mode.
    Mode,
    /// Its owner or group.
    Owner,
    /// Its time of modification.
    Times,
    /// Its extended attributes or access control list.
    Attributes,
    /// Its names (hard links).
    Links,
}
