//! Operations that change nothing, and the keys that their answers depend on.

use std::collections::BTreeSet;

use crate::key::{Group, Ino, Key, Name};
use crate::op::{Cred, Errno, Inode, Kind, BLOCK_BYTES, STEP_BYTES_MAX};
use crate::rights::{need, need_or_own, EXEC, READ};
use crate::tree::{Did, Entry, Overlay, Space, Stop, Tree};

/// Names in one answer, at most.
pub const NAMES_MAX: usize = 1024;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Query {
    /// `stat` of an inode.
    Inode(Ino),
    /// What a name means, and `stat` of that.
    Lookup {
        /// Where.
        dir: Ino,
        /// The name.
        name: Name,
    },
    /// The names of a directory, in the order of their bytes.
    List {
        /// Which.
        dir: Ino,
        /// Names behind this one.
        after: Option<Name>,
        /// At most so many (and [`NAMES_MAX`]).
        max: u32,
    },
    /// The names of a directory as [`Query::List`], with `stat` of each.
    ListPlus {
        /// Which.
        dir: Ino,
        /// Names behind this one.
        after: Option<Name>,
        /// At most so many (and [`NAMES_MAX`]).
        max: u32,
    },
    /// `pread`.
    Read {
        /// Which file.
        ino: Ino,
        /// From which byte on.
        offset: u64,
        /// How many bytes, at most [`STEP_BYTES_MAX`].
        len: u32,
    },
    /// `getxattr`.
    Xattr {
        /// Of which.
        ino: Ino,
        /// Its name.
        name: Name,
    },
    /// `listxattr`.
    Xattrs(Ino),
    /// `statfs`.
    Space,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// An inode.
    Inode(Ino, Inode),
    /// Names, what each means, and whether there are no more.
    Names {
        /// The names.
        names: Vec<(Name, Ino, Kind)>,
        /// Whether these are the last.
        end: bool,
    },
    /// Names, `stat` of what each means, and whether there are no more.
    Entries {
        /// The names.
        entries: Vec<(Name, Ino, Inode)>,
        /// Whether these are the last.
        end: bool,
    },
    /// Contents, or the value of an extended attribute.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Xattrs(Vec<Name>),
    /// Room.
    Space(Space),
}

impl Query {
    /// The keys that the answer depends on.
    pub fn keys(&self, answer: Option<&Answer>) -> Vec<Key> {
        let stat = |ino: Ino, kind: Kind| match kind {
            Kind::Dir => vec![Key::Attr(ino), Key::Listing(ino), Key::Parent(ino)],
            _ => vec![Key::Attr(ino), Key::Data(ino)],
        };
        let mut keys = match self {
            Query::Inode(ino) if answer.is_none() => vec![Key::Attr(*ino)],
            Query::Lookup { dir, name } => vec![Key::Attr(*dir), Key::Name(*dir, name.clone())],
            Query::List { dir, .. } | Query::ListPlus { dir, .. } => vec![Key::Attr(*dir), Key::Listing(*dir)],
            Query::Read { ino, .. } => vec![Key::Attr(*ino), Key::Data(*ino)],
            Query::Xattr { ino, .. } | Query::Xattrs(ino) => vec![Key::Attr(*ino), Key::Xattr(*ino)],
            Query::Inode(_) | Query::Space => vec![],
        };
        match answer {
            Some(Answer::Inode(ino, inode)) => keys.extend(stat(*ino, inode.kind)),
            Some(Answer::Entries { entries, .. }) => {
                keys.extend(entries.iter().flat_map(|(_, ino, inode)| stat(*ino, inode.kind)));
            }
            _ => {}
        }
        keys
    }

    /// The groups of these keys: who has leases on them may give the same answer.
    pub fn groups(&self, answer: Option<&Answer>) -> BTreeSet<Group> {
        self.keys(answer).iter().map(Key::group).collect()
    }
}

/// Answers.
pub fn answer<T: Tree>(tree: &T, cred: &Cred, query: &Query) -> Did<Answer, T::Error> {
    let view = Overlay::new(tree);
    match query {
        Query::Inode(ino) => Ok(Answer::Inode(*ino, view.inode(*ino)?)),
        Query::Lookup { dir, name } => {
            directory(&view, cred, *dir, EXEC)?;
            let entry = view.entry(*dir, name)?.ok_or(Errno::NOENT)?;
            Ok(Answer::Inode(entry.ino, view.inode(entry.ino)?))
        }
        Query::List { dir, after, max } => {
            let Listed { found, end } = list(&view, tree, cred, *dir, after.as_ref(), *max)?;
            let names = found.into_iter().map(|(name, entry)| (name, entry.ino, entry.kind)).collect();
            Ok(Answer::Names { names, end })
        }
        Query::ListPlus { dir, after, max } => {
            // stat(2) of a name needs to pass through the directory.
            directory(&view, cred, *dir, EXEC)?;
            let Listed { found, end } = list(&view, tree, cred, *dir, after.as_ref(), *max)?;
            let stat = |(name, entry): (Name, Entry)| Ok((name, entry.ino, view.inode(entry.ino)?));
            let entries = found.into_iter().map(stat).collect::<Did<_, T::Error>>()?;
            Ok(Answer::Entries { entries, end })
        }
        Query::Read { ino, offset, len } => read(&view, cred, *ino, *offset, *len).map(Answer::Bytes),
        Query::Xattr { ino, name } => {
            view.inode(*ino)?;
            Ok(Answer::Bytes(view.xattr(*ino, name)?.ok_or(Errno::NODATA)?))
        }
        Query::Xattrs(ino) => {
            view.inode(*ino)?;
            Ok(Answer::Xattrs(view.xattrs(*ino)?))
        }
        Query::Space => Ok(Answer::Space(view.space()?)),
    }
}

fn directory<T: Tree>(view: &Overlay<T>, cred: &Cred, dir: Ino, want: u16) -> Did<(), T::Error> {
    let inode = view.inode(dir)?;
    if inode.kind != Kind::Dir {
        return Err(Errno::NOTDIR.into());
    }
    Ok(need(cred, &inode, want)?)
}

/// Names of a directory, and whether these are the last.
struct Listed {
    found: Vec<(Name, Entry)>,
    end: bool,
}

fn list<T: Tree>(
    view: &Overlay<T>,
    tree: &T,
    cred: &Cred,
    dir: Ino,
    after: Option<&Name>,
    max: u32,
) -> Did<Listed, T::Error> {
    directory(view, cred, dir, READ)?;
    let max = (max as usize).clamp(1, NAMES_MAX);
    let mut found = tree.entries(dir, after, max + 1).map_err(Stop::Broken)?;
    let end = found.len() <= max;
    found.truncate(max);
    Ok(Listed { found, end })
}

fn read<T: Tree>(view: &Overlay<T>, cred: &Cred, ino: Ino, offset: u64, len: u32) -> Did<Vec<u8>, T::Error> {
    let inode = view.inode(ino)?;
    match inode.kind {
        Kind::File => need_or_own(cred, &inode, READ)?,
        Kind::Dir => return Err(Errno::ISDIR.into()),
        _ => return Err(Errno::INVAL.into()),
    }
    let end = inode.size.min(offset.saturating_add(u64::from(len).min(STEP_BYTES_MAX as u64)));
    let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
    let mut at = offset;
    while at < end {
        let (index, within) = (at / BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
        let here = (BLOCK_BYTES as usize - within).min((end - at) as usize);
        let block = view.block(ino, index)?.unwrap_or_default();
        let there = block.get(within..).unwrap_or_default();
        bytes.extend(&there[..there.len().min(here)]);
        at += here as u64;
        bytes.resize((at - offset) as usize, 0);
    }
    Ok(bytes)
}
