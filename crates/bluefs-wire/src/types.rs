//! Encodings of what `bluefs` decides on.

use bluefs::op::*;
use bluefs::query::{Answer, Query, NAMES_MAX};
use bluefs::tree::{Entry, Space};
use bluefs::{Csn, Group, Ino, Key, Name, Runs, SessionId};

use crate::codec::{
    get_bytes, get_list, put_bytes, put_list, wire_enum, wire_struct, wire_tuples, Reader, Wire, WireError,
};

/// Runs of one set, at most.
const RUNS_MAX: usize = 4096;
/// Credentials of one interval, at most.
const CREDS_MAX: usize = 1024;
/// Extended attributes that one answer names, at most.
const XATTRS_MAX: usize = XATTR_NAMES_BYTES_MAX / 2;

macro_rules! newtypes {
    ($($type:ident($inner:ty)),*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn get(from: &mut Reader) -> Result<Self, WireError> {
                Ok($type(<$inner>::get(from)?))
            }
        }
    )*};
}

newtypes!(Ino(u64), Csn(u64), SessionId(u64), Group(u64), Errno(u16), Time(i64));

impl Wire for Name {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        let bytes = get_bytes(from, "name", bluefs::key::NAME_BYTES_MAX)?;
        Name::new(&bytes).ok_or(WireError::Invalid("name"))
    }
}

impl Wire for Runs {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(self.parts(), out);
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        Runs::from_parts(get_list(from, "list of runs", RUNS_MAX)?).ok_or(WireError::Invalid("list of runs"))
    }
}

macro_rules! tuples {
    ($(($($field:ident: $type:ident),*)),*) => {$(
        impl<$($type: Wire),*> Wire for ($($type),*) {
            fn put(&self, out: &mut Vec<u8>) {
                let ($($field),*) = self;
                $($field.put(out);)*
            }

            fn get(from: &mut Reader) -> Result<Self, WireError> {
                $(let $field = Wire::get(from)?;)*
                Ok(($($field),*))
            }
        }
    )*};
}

tuples!((a: A, b: B), (a: A, b: B, c: C));

wire_tuples!("kind" Kind { 1 File, 2 Dir, 3 Symlink, 4 Fifo, 5 Socket, 6 Char, 7 Block });
wire_tuples!("mode of a rename" RenameMode { 0 Replace, 1 NoReplace, 2 Exchange });
wire_tuples!("mode of an extended attribute" XattrMode { 0 Either, 1 Create, 2 Replace });
wire_tuples!("time to set" SetTime { 0 Now, 1 At(time) });
wire_tuples!("content" Content { 0 Inline(data ["write", STEP_BYTES_MAX]), 1 Staged(id) });
wire_struct!(Entry { ino, kind });
wire_struct!(Lent { group, session, used });
wire_struct!(Space { used_bytes, used_inodes, max_bytes, max_inodes, next_ino, next_group });
wire_struct!(Cred { uid, gid, groups {"list of groups", GROUPS_MAX} });
wire_struct!(SetAttr { mode, uid, gid, size, atime, mtime });
wire_struct!(Inode {
    kind,
    mode,
    uid,
    gid,
    nlink,
    size,
    blocks,
    rdev,
    atime,
    mtime,
    ctime,
    parent,
    target ["target", TARGET_BYTES_MAX],
});
wire_struct!(Step { cred, time, change });
wire_struct!(Interval {
    number,
    base,
    after,
    reads {"list of reads", READS_MAX},
    creds {"list of credentials", CREDS_MAX},
    steps {"list of steps", STEPS_MAX},
});

wire_enum!("change" Change {
    1 Create { dir, name, ino, kind, mode, rdev, target ["target", TARGET_BYTES_MAX] },
    2 Link { ino, dir, name },
    3 Unlink { dir, name },
    4 Rmdir { dir, name },
    5 Rename { from_dir, from, to_dir, to, mode },
    6 SetAttr { ino, set },
    7 Write { ino, offset, content },
    8 Append { ino, content },
    9 Punch { ino, offset, len },
    10 SetXattr { ino, name, value ["extended attribute", XATTR_BYTES_MAX], mode },
    11 RemoveXattr { ino, name },
    12 Allocate { ino, offset, len, keep_size, zero },
});

impl Wire for Key {
    fn put(&self, out: &mut Vec<u8>) {
        let tag = match self {
            Key::Data(_) => 1,
            Key::Attr(_) => 2,
            Key::Parent(_) => 3,
            Key::Xattr(_) => 4,
            Key::Locks(_) => 5,
            Key::Name(..) => 6,
            Key::Listing(_) => 7,
        };
        out.push(tag);
        self.ino().put(out);
        if let Key::Name(_, name) = self {
            name.put(out);
        }
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        let (tag, ino) = (u8::get(from)?, Ino::get(from)?);
        match tag {
            1 => Ok(Key::Data(ino)),
            2 => Ok(Key::Attr(ino)),
            3 => Ok(Key::Parent(ino)),
            4 => Ok(Key::Xattr(ino)),
            5 => Ok(Key::Locks(ino)),
            6 => Ok(Key::Name(ino, Name::get(from)?)),
            7 => Ok(Key::Listing(ino)),
            value => Err(WireError::Unknown { what: "key", value }),
        }
    }
}

impl Wire for Effect {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Effect::Done => out.push(0),
            Effect::Created(ino) => (1u8, *ino).put(out),
            Effect::Wrote { offset, size } => (2u8, *offset, *size).put(out),
        }
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        match u8::get(from)? {
            0 => Ok(Effect::Done),
            1 => Ok(Effect::Created(Ino::get(from)?)),
            2 => Ok(Effect::Wrote { offset: u64::get(from)?, size: u64::get(from)? }),
            value => Err(WireError::Unknown { what: "effect", value }),
        }
    }
}

wire_tuples!("value" Value { 0 Unknown, 1 Inode(inode), 2 Entry(entry) });

impl Wire for Failure {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Failure::Conflict(keys) => {
                out.push(1);
                put_list(keys, out);
            }
            Failure::TooOld => out.push(2),
            Failure::Dependency(number) => (3u8, *number).put(out),
            Failure::Refused { step, errno } => (4u8, *step, *errno).put(out),
            Failure::Malformed => out.push(5),
        }
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        match u8::get(from)? {
            1 => Ok(Failure::Conflict(get_list(from, "list of conflicts", READS_MAX)?)),
            2 => Ok(Failure::TooOld),
            3 => Ok(Failure::Dependency(u64::get(from)?)),
            4 => Ok(Failure::Refused { step: u32::get(from)?, errno: Errno::get(from)? }),
            5 => Ok(Failure::Malformed),
            value => Err(WireError::Unknown { what: "failure", value }),
        }
    }
}

impl Wire for Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Outcome::Committed { csn, effects } => {
                (1u8, *csn).put(out);
                put_list(effects, out);
            }
            Outcome::Failed(failure) => {
                out.push(2);
                failure.put(out);
            }
        }
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        match u8::get(from)? {
            1 => {
                let csn = Csn::get(from)?;
                Ok(Outcome::Committed { csn, effects: get_list(from, "list of effects", STEPS_MAX)? })
            }
            2 => Ok(Outcome::Failed(Failure::get(from)?)),
            value => Err(WireError::Unknown { what: "outcome", value }),
        }
    }
}

impl Wire for Query {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Query::Inode(ino) => (1u8, *ino).put(out),
            Query::Lookup { dir, name } => (2u8, *dir, name.clone()).put(out),
            Query::List { dir, after, max } => {
                (3u8, *dir, after.clone()).put(out);
                max.put(out);
            }
            Query::Read { ino, offset, len } => {
                (4u8, *ino, *offset).put(out);
                len.put(out);
            }
            Query::Xattr { ino, name } => (5u8, *ino, name.clone()).put(out),
            Query::Xattrs(ino) => (6u8, *ino).put(out),
            Query::Space => out.push(7),
            Query::ListPlus { dir, after, max } => {
                (8u8, *dir, after.clone()).put(out);
                max.put(out);
            }
        }
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        match u8::get(from)? {
            1 => Ok(Query::Inode(Ino::get(from)?)),
            2 => Ok(Query::Lookup { dir: Ino::get(from)?, name: Name::get(from)? }),
            3 => Ok(Query::List { dir: Ino::get(from)?, after: Wire::get(from)?, max: u32::get(from)? }),
            4 => Ok(Query::Read { ino: Ino::get(from)?, offset: u64::get(from)?, len: u32::get(from)? }),
            5 => Ok(Query::Xattr { ino: Ino::get(from)?, name: Name::get(from)? }),
            6 => Ok(Query::Xattrs(Ino::get(from)?)),
            7 => Ok(Query::Space),
            8 => Ok(Query::ListPlus { dir: Ino::get(from)?, after: Wire::get(from)?, max: u32::get(from)? }),
            value => Err(WireError::Unknown { what: "query", value }),
        }
    }
}

impl Wire for Answer {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Answer::Inode(ino, inode) => {
                (1u8, *ino).put(out);
                inode.put(out);
            }
            Answer::Names { names, end } => {
                out.push(2);
                put_list(names, out);
                end.put(out);
            }
            Answer::Bytes(bytes) => {
                out.push(3);
                put_bytes(bytes, out);
            }
            Answer::Xattrs(names) => {
                out.push(4);
                put_list(names, out);
            }
            Answer::Space(space) => {
                out.push(5);
                space.put(out);
            }
            Answer::Entries { entries, end } => {
                out.push(6);
                put_list(entries, out);
                end.put(out);
            }
        }
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        match u8::get(from)? {
            1 => Ok(Answer::Inode(Ino::get(from)?, Inode::get(from)?)),
            2 => Ok(Answer::Names { names: get_list(from, "list of names", NAMES_MAX)?, end: bool::get(from)? }),
            3 => Ok(Answer::Bytes(get_bytes(from, "answer", STEP_BYTES_MAX)?)),
            4 => Ok(Answer::Xattrs(get_list(from, "list of extended attributes", XATTRS_MAX)?)),
            5 => Ok(Answer::Space(Space::get(from)?)),
            6 => Ok(Answer::Entries { entries: get_list(from, "list of names", NAMES_MAX)?, end: bool::get(from)? }),
            value => Err(WireError::Unknown { what: "answer", value }),
        }
    }
}
