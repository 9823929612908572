//! What clients do, and what they are told. Each of these takes effect at one moment.

use serde::{Deserialize, Serialize};

/// Number of an inode.
pub type Ino = u64;
/// The root directory.
pub const ROOT: Ino = 1;
/// Directories, which stand in the root.
pub const DIRS: [&str; 2] = ["p", "q"];
/// Files, which stand in the root and in directories.
pub const FILES: [&str; 3] = ["a", "b", "c"];
/// Bytes of a record: they do not fit into the blocks of contents, so that some lie in two of them.
pub const RECORD_BYTES: usize = 700;
/// Bytes that say which record it is; a record has nothing else.
pub const WORD_BYTES: usize = 4;
/// Records of a file that is read, at most. Its bytes are one request of the kernel.
pub const RECORDS_MAX: usize = 150;

/// What `renameat2` is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    Replace,
    NoReplace,
    Exchange,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub dir: Ino,
    pub name: String,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// What a name means. It is open from then on.
    Lookup(Place),
    /// `open` with `O_CREAT|O_EXCL`.
    Create(Place),
    Mkdir(Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place, Mode),
    Link(Ino, Place),
    List(Ino),
    Stat(Ino),
    Read(Ino),
    /// The record of this number, of a file that is open to be read: in turns in a private mapping and by `pread`.
    Peek(Ino, usize),
    /// A record with this in all of its words, at the end.
    Append(Ino, u32),
    /// The same, as the record of this number.
    Put(Ino, usize, u32),
    /// Nothing is left of the contents.
    Cut(Ino),
    /// `flock`, without waiting.
    Lock(Ino),
    Unlock(Ino),
    /// A transaction.
    Batch(Vec<Line>),
    /// The client is killed: at some time later its locks are gone.
    End,
}

/// A line of a transaction. Paths begin at the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// Makes the file, or takes its contents away, and writes one record.
    Write(String, u32),
    Append(String, u32),
    Remove(String),
    Rename(String, String),
}

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Ino(Ino),
    Names(Vec<String>),
    /// Records of a file, and its names; of a directory only these.
    Stat(usize, u32),
    Records(Vec<u32>),
    /// A page has nothing but zeros there: the file ends before, or it was never written.
    Zeros,
    /// The error number.
    Refused(i32),
    /// It was surely not done.
    NotDone,
    /// It may have been done, or may be done later.
    Unknown,
}

/// An operation of a client, and what it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The number of the call in its history.
    pub id: u64,
    /// Which client.
    pub client: u32,
    pub op: Op,
    pub answer: Answer,
}

impl Op {
    /// Whether it changes nothing.
    pub fn only_looks(&self) -> bool {
        matches!(self, Op::Lookup(_) | Op::List(_) | Op::Stat(_) | Op::Read(_) | Op::Peek(..))
    }
}
