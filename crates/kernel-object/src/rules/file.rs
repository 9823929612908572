//! Files, directories, open file descriptions (000, 6.2 to 6.4). Names carry through their directory. What allocates
//! blocks and inodes carries nothing: "the particular number received is typically unimportant" (000, 6.4).

use super::{row, Row, BOTH, BOTH_LIGHTWEIGHT, OBSERVE};
use crate::rule::{PropagationRule, Role};
use crate::ObjectKind::{Directory, File, OpenFileDescription};
use crate::Operation::{
    ChangeName, Close, Create, GetAttributes, Lock, Lookup, Map, Open, Read, Seek, SetAttributes, Unmap, Write,
};

const NAMES: PropagationRule = PropagationRule::tracked(&[Role::Object, Role::Named], &[Role::Object, Role::Named]);
const NOTHING: PropagationRule = PropagationRule::tracked(&[], &[]);

pub(super) const ROWS: &[Row] = &[
    row(File, Open, OBSERVE, "shows that it exists and may be opened"),
    row(File, Create, BOTH, "the object is new; its name is a change of the directory"),
    row(File, Read, OBSERVE, "access times are not state that anybody depends on (000, 5.3)"),
    row(File, Write, BOTH, "permissions may have changed (000, 6.1)"),
    row(File, GetAttributes, OBSERVE, "stat"),
    row(File, SetAttributes, BOTH, "chmod, utimensat, truncate, fallocate"),
    row(File, Lock, BOTH_LIGHTWEIGHT, "who waits for a lock cannot be put back into its queue"),
    row(File, Map, OBSERVE, "a private mapping; a shared one is SharedMemory"),
    row(File, Unmap, NOTHING, "a private mapping shows nothing to others"),
    row(File, Close, NOTHING, "the description goes; POSIX locks go with `Lock`"),
    row(Directory, Open, OBSERVE, "as a file"),
    row(Directory, Lookup, OBSERVE, "every directory of a path, also when the name is missing"),
    row(Directory, Read, OBSERVE, "getdents"),
    row(Directory, GetAttributes, OBSERVE, "stat"),
    row(Directory, SetAttributes, BOTH, "chmod, utimensat"),
    row(Directory, ChangeName, NAMES, "link, unlink, mkdir, rmdir, rename: names and link counts (000, 6.3)"),
    row(Directory, Close, NOTHING, "shows nothing"),
    row(OpenFileDescription, Create, BOTH, "the object is new"),
    row(OpenFileDescription, Seek, BOTH, "the offset is shared by dup and fork"),
    row(OpenFileDescription, GetAttributes, OBSERVE, "F_GETFL"),
    row(OpenFileDescription, SetAttributes, BOTH, "F_SETFL"),
    row(OpenFileDescription, Close, NOTHING, "nobody can see how many descriptors refer to it"),
];
