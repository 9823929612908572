//! Operations, what they are made of, and what comes of them.

use crate::key::{Csn, Group, Ino, Key, Name};
use crate::runs::Runs;

/// Bytes of a block of contents. The last block of a file is as long as the file needs.
pub const BLOCK_BYTES: u64 = 16 * 1024;
/// Bytes of contents that a session may have staged.
pub const STAGED_BYTES_MAX: usize = 64 << 20;
/// Steps of one interval, at most.
pub const STEPS_MAX: usize = 4096;
/// Bytes that one step writes, at most.
pub const STEP_BYTES_MAX: usize = 1 << 20;
/// Bytes that the steps of one interval carry, at most; more has to be staged.
pub const INTERVAL_BYTES_MAX: usize = 8 << 20;
/// Bytes that the steps of one interval reserve ([`Change::Allocate`]), at most: each block is a row of its own.
pub const ALLOCATE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the blocks that one interval puts, at most: one byte behind a hole is a whole block.
pub const PUT_BYTES_MAX: u64 = 128 << 20;
/// Keys that one interval has read, at most.
pub const READS_MAX: usize = 100_000;
/// Bytes of one extended attribute, at most (`XATTR_SIZE_MAX`).
pub const XATTR_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all extended attributes' names of one inode, at most (`XATTR_LIST_MAX`).
pub const XATTR_NAMES_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the target of a symbolic link, at most (`PATH_MAX` without the NUL).
pub const TARGET_BYTES_MAX: usize = 4095;
/// Supplementary groups of a caller, at most.
pub const GROUPS_MAX: usize = 64;
/// Names of one inode, at most.
pub const LINKS_MAX: u32 = 65_000;
/// Size of a file, at most.
pub const FILE_BYTES_MAX: u64 = 1 << 50;
/// How far a client's time may be ahead of the server's, ms.
pub const FUTURE_MS_MAX: i64 = 1000;

/// An error number of Linux (x86-64 and all newer architectures).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub u16);

#[allow(missing_docs, reason = "errno(3) says what each means")]
impl Errno {
    pub const PERM: Errno = Errno(1);
    pub const NOENT: Errno = Errno(2);
    pub const IO: Errno = Errno(5);
    pub const ACCES: Errno = Errno(13);
    pub const EXIST: Errno = Errno(17);
    pub const NOTDIR: Errno = Errno(20);
    pub const ISDIR: Errno = Errno(21);
    pub const INVAL: Errno = Errno(22);
    pub const FBIG: Errno = Errno(27);
    pub const NOSPC: Errno = Errno(28);
    pub const ROFS: Errno = Errno(30);
    pub const MLINK: Errno = Errno(31);
    pub const NAMETOOLONG: Errno = Errno(36);
    pub const NOTEMPTY: Errno = Errno(39);
    pub const NODATA: Errno = Errno(61);
    pub const OPNOTSUPP: Errno = Errno(95);
    pub const STALE: Errno = Errno(116);
    pub const DQUOT: Errno = Errno(122);
}

/// A time: nanoseconds since 1970, which reaches to the year 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// FIFO.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    Char,
    /// Block device.
    Block,
}

/// Everything about an inode but its contents, names and extended attributes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inode {
    /// What it is.
    pub kind: Kind,
    /// Permissions: the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; of a directory, 2 and one for each directory in it. 0: it has no name, somebody may have it
    /// open.
    pub nlink: u32,
    /// Size, bytes.
    pub size: u64,
    /// Blocks of contents that are there (a hole has none).
    pub blocks: u64,
    /// Number of a device.
    pub rdev: u32,
    /// Time of the last access that was set. Reads do not move it.
    pub atime: Time,
    /// Time of the last change of contents, or of names.
    pub mtime: Time,
    /// Time of the last change of anything.
    pub ctime: Time,
    /// Of a directory: the directory that it stands in; of the root, itself. Otherwise 0.
    pub parent: Ino,
    /// Of a symbolic link: where it leads.
    pub target: Vec<u8>,
}

/// Whose rights an operation has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cred {
    /// User; 0 has all rights.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Cred {
    /// The superuser.
    pub fn root() -> Cred {
        Cred { uid: 0, gid: 0, groups: Vec::new() }
    }
}

/// Bytes of a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    /// In the step itself.
    Inline(Vec<u8>),
    /// Sent before, under this number of the session.
    Staged(u64),
}

/// What `rename` does when the new name is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// `RENAME_NOREPLACE`.
    NoReplace,
    /// `RENAME_EXCHANGE`.
    Exchange,
}

/// What `setxattr` expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XattrMode {
    /// Nothing.
    Either,
    /// `XATTR_CREATE`.
    Create,
    /// `XATTR_REPLACE`.
    Replace,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetTime {
    /// The time of the step (`UTIME_NOW`).
    Now,
    /// This one, which may lie in the future.
    At(Time),
}

/// What `chmod`, `chown`, `truncate` and `utimensat` set; `None` leaves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Time of access.
    pub atime: Option<SetTime>,
    /// Time of modification.
    pub mtime: Option<SetTime>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// `open` with `O_CREAT|O_EXCL`, `mkdir`, `symlink`, `mknod`.
    Create {
        /// Where.
        dir: Ino,
        /// Under which name.
        name: Name,
        /// Its number, out of a group that was lent to the session; `None` lets the server choose.
        ino: Option<Ino>,
        /// What.
        kind: Kind,
        /// Permissions, after the umask.
        mode: u16,
        /// Number of a device, else 0.
        rdev: u32,
        /// Target of a symbolic link, else empty.
        target: Vec<u8>,
    },
    /// `link`.
    Link {
        /// What gets one more name.
        ino: Ino,
        /// Where.
        dir: Ino,
        /// The name.
        name: Name,
    },
    /// `unlink`.
    Unlink {
        /// Where.
        dir: Ino,
        /// The name.
        name: Name,
    },
    /// `rmdir`.
    Rmdir {
        /// Where.
        dir: Ino,
        /// The name.
        name: Name,
    },
    /// `renameat2`.
    Rename {
        /// From where.
        from_dir: Ino,
        /// The old name.
        from: Name,
        /// Where to.
        to_dir: Ino,
        /// The new name.
        to: Name,
        /// What if it is there.
        mode: RenameMode,
    },
    /// `chmod`, `chown`, `truncate`, `utimensat`.
    SetAttr {
        /// Of which.
        ino: Ino,
        /// What.
        set: SetAttr,
    },
    /// `pwrite`.
    Write {
        /// To which file.
        ino: Ino,
        /// From which byte on.
        offset: u64,
        /// What.
        content: Content,
    },
    /// `write` with `O_APPEND`: blind, the server finds the offset.
    Append {
        /// To which file.
        ino: Ino,
        /// What.
        content: Content,
    },
    /// `fallocate` with `FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE`.
    Punch {
        /// Of which file.
        ino: Ino,
        /// From which byte on.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// `fallocate` without `FALLOC_FL_PUNCH_HOLE`: every block of the range is there afterwards.
    Allocate {
        /// Of which file.
        ino: Ino,
        /// From which byte on.
        offset: u64,
        /// How many bytes; at most [`ALLOCATE_BYTES_MAX`].
        len: u64,
        /// `FALLOC_FL_KEEP_SIZE`: the file does not grow.
        keep_size: bool,
        /// `FALLOC_FL_ZERO_RANGE`: what was in the range is zeros.
        zero: bool,
    },
    /// `setxattr`.
    SetXattr {
        /// Of which.
        ino: Ino,
        /// Its name.
        name: Name,
        /// Its value.
        value: Vec<u8>,
        /// What is expected.
        mode: XattrMode,
    },
    /// `removexattr`.
    RemoveXattr {
        /// Of which.
        ino: Ino,
        /// Its name.
        name: Name,
    },
}

impl Change {
    /// Bytes of contents that it carries.
    pub fn bytes(&self) -> usize {
        match self {
            Change::Write { content: Content::Inline(data), .. }
            | Change::Append { content: Content::Inline(data), .. } => data.len(),
            Change::SetXattr { value, .. } => value.len(),
            Change::Create { target, .. } => target.len(),
            _ => 0,
        }
    }

    /// The inodes that it names. One that it makes is none yet.
    pub fn inos(&self) -> impl Iterator<Item = Ino> {
        let (one, other) = match self {
            Change::Create { dir, .. } | Change::Unlink { dir, .. } | Change::Rmdir { dir, .. } => (*dir, None),
            Change::Link { ino, dir, .. } => (*ino, Some(*dir)),
            Change::Rename { from_dir, to_dir, .. } => (*from_dir, Some(*to_dir)),
            Change::SetAttr { ino, .. }
            | Change::Write { ino, .. }
            | Change::Append { ino, .. }
            | Change::Punch { ino, .. }
            | Change::Allocate { ino, .. }
            | Change::SetXattr { ino, .. }
            | Change::RemoveXattr { ino, .. } => (*ino, None),
        };
        std::iter::once(one).chain(other)
    }

    /// Bytes that it reserves without carrying them.
    pub fn reserved_bytes(&self) -> u64 {
        if let Change::Allocate { len, .. } = self {
            *len
        } else {
            0
        }
    }
}

/// One change of an interval.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// Whose rights: index into [`Interval::creds`].
    pub cred: u16,
    /// When it was done; `None`: when it is committed.
    pub time: Option<Time>,
    /// What is done.
    pub change: Change,
}

/// A transaction: what its steps change is applied as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Number in its session: 1, 2, 3 …, in the order in which the client closed them.
    pub number: u64,
    /// The state that its reads saw.
    pub base: Csn,
    /// Closed intervals of the same session that it depends on and whose outcome the client does not know.
    pub after: Runs,
    /// Hypotheses: these have not been changed by others since `base`.
    pub reads: Vec<Key>,
    /// Rights that its steps name.
    pub creds: Vec<Cred>,
    /// What it changes.
    pub steps: Vec<Step>,
}

/// What a step says when it succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Done.
    Done,
    /// Number of what was created.
    Created(Ino),
    /// Where the bytes went, and how large the file is now.
    Wrote {
        /// Offset of the first byte.
        offset: u64,
        /// Size of the file.
        size: u64,
    },
}

/// The new value of a key that a hypothesis was wrong about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// It is not told: ask.
    Unknown,
    /// The inode; `None`: it is gone.
    Inode(Option<Inode>),
    /// What the name means; `None`: it is not there.
    Entry(Option<Ino>),
}

/// Why an interval failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Others changed what it had read: every such key, with its new value, as far as there is room for it. Whoever
    /// asks again for an outcome that was lost is told of some only.
    Conflict(Vec<(Key, Value)>),
    /// Its base is older than the server remembers: everything that it read counts as changed.
    TooOld,
    /// An interval that it depends on has failed.
    Dependency(u64),
    /// A step was refused; the retry may predict this.
    Refused {
        /// Which step.
        step: u32,
        /// Why.
        errno: Errno,
    },
    /// The interval itself cannot be: a number that is no next one, an index out of bounds, a size above the limits.
    Malformed,
}

/// What became of an interval.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is applied, and durable.
    Committed {
        /// Its place in the order.
        csn: Csn,
        /// What each step says.
        effects: Vec<Effect>,
    },
    /// Nothing of it is applied.
    Failed(Failure),
}

impl Outcome {
    /// Whether it is applied.
    pub fn is_committed(&self) -> bool {
        matches!(self, Outcome::Committed { .. })
    }

    /// What is kept of it for a client that may not have got it: of a conflict some keys, and no values.
    pub fn kept(&self) -> Outcome {
        const KEYS_KEPT_MAX: usize = 64;
        match self {
            Outcome::Failed(Failure::Conflict(keys)) => {
                let kept = keys.iter().take(KEYS_KEPT_MAX).map(|(key, _)| (key.clone(), Value::Unknown));
                Outcome::Failed(Failure::Conflict(kept.collect()))
            }
            other => other.clone(),
        }
    }
}

impl Interval {
    /// About how many bytes it takes up.
    pub fn bytes(&self) -> usize {
        /// A key or a step without what it carries.
        const EACH: usize = 128;
        let carried: usize = self.steps.iter().map(|step| step.change.bytes()).sum();
        carried + EACH * (self.steps.len() + self.reads.len() + self.creds.len())
    }

    /// The staged contents that its steps name.
    pub fn staged(&self) -> impl Iterator<Item = u64> + '_ {
        self.steps.iter().filter_map(|step| match &step.change {
            Change::Write { content: Content::Staged(id), .. }
            | Change::Append { content: Content::Staged(id), .. } => Some(*id),
            _ => None,
        })
    }
}

/// A group of inode numbers that was lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lent {
    /// Which.
    pub group: Group,
    /// To whom.
    pub session: crate::key::SessionId,
    /// Bit n: the n-th number was given to an inode. It stays set when the inode is gone.
    pub used: u64,
}
