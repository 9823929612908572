//! What has a version: keys, the groups that they belong to, and the commit number that is the version.

/// Number of inodes in a group, as a power of two. Inode numbers are lent in whole groups, so that what one client
/// creates together shares groups.
const GROUP_BITS: u32 = 6;
/// Number of inodes in a group.
pub const GROUP_SIZE: u64 = 1 << GROUP_BITS;
/// Longest name, bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Number of an inode in its volume. Never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory of every volume.
    pub const ROOT: Ino = Ino(1);

    /// The group of all keys of this inode.
    pub fn group(self) -> Group {
        Group(self.0 >> GROUP_BITS)
    }
}

/// Commit sequence number: the order of everything that changed a volume, and the version of everything in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Csn(pub u64);

/// A client's session on one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A fixed set of keys: the unit of leases, and of the second step of validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u64);

impl Group {
    /// The numbers of the inodes in this group.
    pub fn inodes(self) -> std::ops::Range<u64> {
        let first = self.0 << GROUP_BITS;
        first..first.saturating_add(GROUP_SIZE)
    }
}

/// One component of a path: not empty, at most 255 bytes, without `/` and NUL, neither `.` nor `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// `None` if these bytes are no name.
    pub fn new(bytes: &[u8]) -> Option<Name> {
        let sized = !bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX;
        let plain = !bytes.contains(&b'/') && !bytes.contains(&0);
        (sized && plain && bytes != b"." && bytes != b"..").then(|| Name(bytes.into()))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What has a version of its own. A hypothesis is "this key has not changed since my base".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Contents, size and time of modification of a file; the target of a symbolic link.
    Data(Ino),
    /// Mode, owner, number of names, time of change.
    Attr(Ino),
    /// The directory that a directory stands in.
    Parent(Ino),
    /// Extended attributes.
    Xattr(Ino),
    /// Locks between clients.
    Locks(Ino),
    /// Whether a name is there, and what it means.
    Name(Ino, Name),
    /// The set of names of a directory, its size, number of links and time of modification. Who creates under one name
    /// does not read it.
    Listing(Ino),
}

impl Key {
    /// The inode that the key stands on: of a name, the directory.
    pub fn ino(&self) -> Ino {
        match self {
            Key::Data(ino) | Key::Attr(ino) | Key::Parent(ino) | Key::Xattr(ino) | Key::Locks(ino) => *ino,
            Key::Name(ino, _) | Key::Listing(ino) => *ino,
        }
    }

    /// The group it belongs to: it never changes, also when a file is moved.
    pub fn group(&self) -> Group {
        self.ino().group()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
            assert_eq!(Name::new(bad), None, "{bad:?}");
        }
        for good in [&b"a"[..], b"...", b" ", &[0xff], &[b'x'; 255]] {
            assert_eq!(Name::new(good).expect("a name").as_bytes(), good);
        }
    }

    #[test]
    fn a_group_is_a_range_of_inodes() {
        let group = Ino(130).group();
        assert_eq!(group.inodes(), 128..192);
        assert!(group.inodes().all(|ino| Ino(ino).group() == group));
        assert_eq!(Key::Listing(Ino(130)).group(), group);
    }
}
