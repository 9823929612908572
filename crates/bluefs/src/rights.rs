//! Who may do what, as path_resolution(7), inode(7) and chmod(2) have it.

use crate::op::{Cred, Errno, Inode, Kind};

/// Permission to read.
pub const READ: u16 = 4;
/// Permission to write.
pub const WRITE: u16 = 2;
/// Permission to execute, or to search a directory.
pub const EXEC: u16 = 1;
const SETUID: u16 = 0o4000;
pub const SETGID: u16 = 0o2000;
const STICKY: u16 = 0o1000;

impl Cred {
    /// Whether it has all rights.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it is in this group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether `inode` is its own, or it has all rights.
    pub fn owns(&self, inode: &Inode) -> bool {
        self.is_root() || self.uid == inode.uid
    }
}

/// Refuses what the mode of `inode` does not give.
pub fn need(cred: &Cred, inode: &Inode, want: u16) -> Result<(), Errno> {
    let given = if cred.uid == inode.uid {
        inode.mode >> 6
    } else if cred.in_group(inode.gid) {
        inode.mode >> 3
    } else {
        inode.mode
    };
    if cred.is_root() || given & want == want {
        Ok(())
    } else {
        Err(Errno::ACCES)
    }
}

/// The same for contents: an owner always may, since it was decided at `open` whether a descriptor can be written, and
/// a mode that was set afterwards changes nothing for it.
pub fn need_or_own(cred: &Cred, inode: &Inode, want: u16) -> Result<(), Errno> {
    if cred.owns(inode) {
        return Ok(());
    }
    need(cred, inode, want)
}

/// Refuses to remove a name from a directory with the sticky bit, if neither the directory nor what the name means is
/// the caller's own.
pub fn need_unsticky(cred: &Cred, dir: &Inode, victim: &Inode) -> Result<(), Errno> {
    if dir.mode & STICKY == 0 || cred.owns(dir) || cred.owns(victim) {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// A write by somebody without all rights takes the setuid bit away, and the setgid bit where it is one.
pub fn mode_after_write(cred: &Cred, inode: &Inode) -> u16 {
    let set = inode.mode & (SETUID | SETGID) != 0;
    if inode.kind != Kind::File || !set || cred.is_root() {
        return inode.mode;
    }
    mode_without_set_ids(cred, inode)
}

/// A setgid bit without permission for the group to execute meant mandatory locking: it stays, unless the caller is not
/// in the group, and could not set it (as since Linux 6.2).
pub fn mode_without_set_ids(cred: &Cred, inode: &Inode) -> u16 {
    if inode.kind == Kind::Dir {
        return inode.mode;
    }
    let group_executes = inode.mode & 0o010 != 0;
    let may_set = cred.is_root() || cred.in_group(inode.gid);
    let cleared = if group_executes || !may_set { SETUID | SETGID } else { SETUID };
    inode.mode & !cleared
}
