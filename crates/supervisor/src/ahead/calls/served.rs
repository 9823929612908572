//! File systems that a program serves (FUSE, automount points, network file systems). If that program is inside, it may
//! wait for a guess, and whoever looks at its file system waits for the program: then looks have no permits
//! ([0254](../../../../../docs/decisions/0254-what-a-stop-is-spent-on.md)).
//!
//! The program is outside if the file system was mounted before the world began. It is also outside if nobody inside
//! has mounted anything, unless the file system is one that a server inside could serve over a network.

use procfs::mountinfo::Mount;
use procfs::ProcessId;

/// The mounts of such file systems.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Served {
    /// Those from before the world, as long as they are there.
    from_before: Vec<Mount>,
    /// There is one whose program may be inside.
    inside: bool,
}

impl Served {
    /// The world begins. What cannot be read now counts as mounted later.
    pub fn begin(&mut self) {
        self.from_before = mounts().unwrap_or_default();
    }

    /// Something was mounted, or is not mounted any more. `mounts_inside`: somebody inside has mounted anything since
    /// the world began, or is about to.
    pub fn look(&mut self, mounts_inside: bool) {
        match mounts() {
            Some(now) => self.are(&now, mounts_inside),
            None => self.inside = true,
        }
    }

    fn are(&mut self, now: &[Mount], mounts_inside: bool) {
        // Whoever serves these gets a descriptor of the file system from the process that mounts it.
        const BY_DESCRIPTOR: [&str; 2] = ["fuse", "autofs"];
        let is_by_descriptor = |mount: &Mount| BY_DESCRIPTOR.iter().any(|kind| mount.fs_type.starts_with(kind));
        // The number of a mount that is gone may be given to another one.
        self.from_before.retain(|mount| now.contains(mount));
        let may_be_inside = |mount: &&Mount| mounts_inside || !is_by_descriptor(mount);
        self.inside = now.iter().filter(may_be_inside).any(|mount| !self.from_before.contains(mount));
    }

    /// Whether there is one whose program may be inside.
    pub fn inside(&self) -> bool {
        self.inside
    }
}

fn mounts() -> Option<Vec<Mount>> {
    const SERVED: [&str; 6] = ["fuse", "nfs", "9p", "autofs", "cifs", "smb"];
    let is_served = |mount: &Mount| SERVED.iter().any(|served| mount.fs_type.starts_with(served));
    let all = procfs::mountinfo::of(ProcessId::own()).ok()?;
    Some(all.into_iter().filter(is_served).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, source: &str) -> Mount {
        let kind = if source.contains(':') { "nfs4" } else { "fuse.x" };
        let text = format!("{id} 1 0:99 / /mnt rw - {kind} {source} rw");
        procfs::mountinfo::parse(text.as_bytes()).remove(0)
    }

    #[test]
    fn what_was_mounted_before_is_served_outside() {
        let mut served = Served { from_before: vec![mount(1, "a"), mount(2, "b")], inside: false };
        served.are(&[mount(1, "a"), mount(2, "b")], true);
        assert!(!served.inside());
        served.are(&[mount(1, "a"), mount(3, "c")], true);
        assert!(served.inside());
        served.are(&[mount(1, "a")], true);
        assert!(!served.inside());
        // It was gone: its program may be another one.
        served.are(&[mount(1, "a"), mount(2, "b")], true);
        assert!(served.inside());
    }

    #[test]
    fn what_was_mounted_outside_is_served_outside() {
        let mut served = Served::default();
        served.are(&[mount(1, "a")], false);
        assert!(!served.inside());
        // A server inside may be reached from outside.
        served.are(&[mount(1, "a"), mount(2, "localhost:/b")], false);
        assert!(served.inside());
        served.are(&[mount(1, "a")], true);
        assert!(served.inside());
    }
}
