//! What belongs together in a file system: nothing can be moved or linked from one realm to another (`EXDEV`).
//!
//! A btrfs subvolume takes nothing of another one. A directory whose project is inherited (project quotas) takes only
//! what belongs to that project, and an encrypted one only what is encrypted as it is; but anything can be taken out
//! of these.

use std::io;
use std::os::fd::BorrowedFd;

use crate::object;
use crate::sys::{self, Project};

/// Where an object or a directory belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm {
    /// 0 in a file system that has only one.
    subvolume: u64,
    project: Project,
    /// Nothing if it is not encrypted.
    encryption: Vec<u8>,
}

impl Realm {
    /// Of an open file or directory.
    pub fn of(object: BorrowedFd<'_>, has_subvolumes: bool) -> io::Result<Realm> {
        let subvolume = if has_subvolumes { object::stat(object)?.st_dev } else { 0 };
        Ok(Realm { subvolume, project: sys::project_of(object), encryption: sys::encryption_of(object) })
    }

    /// Of what is made in this directory.
    pub fn of_new(&self) -> Realm {
        Realm { project: if self.project.inherited { self.project } else { Project::default() }, ..self.clone() }
    }

    /// Whether both are in one subvolume.
    pub fn is_beside(&self, other: &Realm) -> bool {
        self.subvolume == other.subvolume
    }

    /// Whether names in it are encrypted.
    pub fn is_encrypted(&self) -> bool {
        !self.encryption.is_empty()
    }

    /// Why this directory does not take such an object, and what to do.
    pub fn refuses(&self, object: &Realm) -> Option<&'static str> {
        if self.project.inherited && self.project.id != object.project.id {
            return Some("the project (quota) of what was moved there is another one; let it be copied instead");
        }
        if self.is_encrypted() && self.encryption != object.encryption {
            return Some("what was moved there is not encrypted as the directory is; let it be copied instead");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn realm(id: u32, inherited: bool, encryption: &[u8]) -> Realm {
        Realm { subvolume: 0, project: Project { id, inherited }, encryption: encryption.to_vec() }
    }

    #[test]
    fn what_is_taken_where() {
        let (plain, project, encrypted) = (realm(0, false, b""), realm(42, true, b""), realm(0, false, b"key"));
        for object in [&plain, &project, &encrypted] {
            assert_eq!(plain.refuses(object), None);
            assert_eq!(object.refuses(&object.of_new()), None);
        }
        assert!(project.refuses(&plain).is_some() && project.refuses(&realm(41, true, b"")).is_some());
        assert_eq!(project.refuses(&realm(42, false, b"")), None);
        assert!(encrypted.refuses(&plain).is_some() && encrypted.refuses(&realm(0, false, b"other")).is_some());
        assert_eq!(realm(7, false, b"").of_new(), plain);
    }
}
