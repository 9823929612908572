//! Type and options of a file system → its class and why.

use std::path::{Path, PathBuf};

use super::Class;
use crate::loop_device;
use procfs::mountinfo::Mount;

const MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"];

const PSEUDO: &[&str] = &[
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devpts",
    "mqueue",
    "debugfs",
    "tracefs",
    "securityfs",
    "pstore",
    "bpf",
    "configfs",
    "selinuxfs",
    "efivarfs",
    "binfmt_misc",
    "rpc_pipefs",
    "fusectl",
    "autofs",
    "nsfs",
    "resctrl",
    "cpuset",
    "smackfs",
    "xenfs",
    "functionfs",
    "binder",
];

const NEVER_CHANGE: &[&str] = &["squashfs", "erofs", "iso9660", "cramfs", "romfs"];

/// Their syncfs(2) ends with a flush of the disk's cache. ext2, vfat, exfat, jfs, ntfs3 and hfsplus write their blocks
/// but do not flush there; they count as outside.
const FLUSHING: &[&str] = &["ext3", "ext4", "xfs", "btrfs", "f2fs", "nilfs2", "zfs", "bcachefs"];

/// What turns the flush of any of them off.
const NO_FLUSH: &[&str] = &["nobarrier", "barrier=0", "fsync_mode=nobarrier", "volatile"];

/// The class of a mounted file system and why it is in it. `all` are the mounts among which those under an overlay are
/// sought.
pub fn classify(mount: &Mount, all: &[Mount]) -> (Class, String) {
    let fs_type = mount.fs_type.as_str();
    let is_any_of = |list: &[&str]| list.contains(&fs_type);
    let because = |class, reason: &str| (class, reason.to_owned());
    match fs_type {
        _ if is_any_of(PSEUDO) => because(Class::Pseudo, "an interface to the kernel; stores nothing"),
        _ if is_any_of(MEMORY) => because(Class::Memory, "in memory; a crash takes all of it"),
        _ if is_any_of(NEVER_CHANGE) => because(Class::ReadOnly, "this type of file system never changes"),
        "overlay" => overlay(mount, all),
        _ if !is_any_of(FLUSHING) => because(Class::Outside, unknown(fs_type)),
        _ if mount.has_fs_option("ro") => because(Class::ReadOnly, "mounted read-only; never changes"),
        _ => match NO_FLUSH.iter().find(|option| mount.has_fs_option(option)) {
            Some(option) => (Class::Outside, format!("mounted with {option}: it does not flush the disk's cache")),
            None => on_disk(mount, all),
        },
    }
}

fn unknown(fs_type: &str) -> &'static str {
    let network = ["nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "virtiofs", "ocfs2", "gfs2"];
    match fs_type {
        _ if network.contains(&fs_type) => "others can see it without asking us",
        _ if fs_type.starts_with("fuse") => "a program outside serves it; sync never reaches a plain FUSE server",
        "ext2" | "vfat" | "exfat" | "msdos" | "jfs" | "ntfs3" | "hfsplus" => {
            "its syncfs does not flush the disk's cache"
        }
        _ => "nothing is known of its flush",
    }
}

fn on_disk(mount: &Mount, all: &[Mount]) -> (Class, String) {
    // ext4 always shows data=journal, whether it comes from the mount or from the superblock's defaults.
    let journals_data = matches!(mount.fs_type.as_str(), "ext3" | "ext4") && mount.has_fs_option("data=journal");
    let (class, reason) = match journals_data {
        // Then a commit block may reach the disk before what it commits.
        true if mount.has_fs_option("journal_async_commit") => {
            (Class::Durable, "data=journal, but journal_async_commit gives up order")
        }
        true => (Class::Ordered, "data=journal with barriers: data and metadata commit in one order"),
        false => (Class::Durable, "flushes on demand; data and metadata reach the disk in any order"),
    };
    match image_in_memory(mount, all) {
        Some(image) => (class, format!("{reason}; but its image {} is in memory", image.display())),
        None => (class, reason.to_owned()),
    }
}

/// The image of a loop device, if it is on a file system in memory: good for a test, not for keeping anything.
fn image_in_memory(mount: &Mount, all: &[Mount]) -> Option<PathBuf> {
    let image = loop_device::backing_file(&mount.source)?;
    let below = mount_of(&image, all)?;
    MEMORY.contains(&below.fs_type.as_str()).then_some(image)
}

/// syncfs(2) on an overlay flushes the file system of its upper layer (kernel documentation, overlayfs.rst); a
/// `volatile` one flushes nothing.
fn overlay(mount: &Mount, all: &[Mount]) -> (Class, String) {
    let because = |class, reason: &str| (class, reason.to_owned());
    let Some(upper) = mount.fs_option("upperdir") else {
        return because(Class::ReadOnly, "an overlay without an upper layer never changes");
    };
    if mount.has_fs_option("ro") {
        return because(Class::ReadOnly, "mounted read-only; never changes");
    }
    if mount.has_fs_option("volatile") || mount.has_fs_option("fsync=volatile") {
        return because(Class::Outside, "a volatile overlay flushes nothing");
    }
    // In a container the upper layer's path belongs to the host's name space: then it is not here, or is this overlay
    // itself.
    let below = if Path::new(upper).is_dir() { mount_of(Path::new(upper), all) } else { None };
    match below {
        Some(below) if below.fs_type != "overlay" => match classify(below, all).0 {
            Class::Ordered | Class::Durable => {
                (Class::Durable, format!("its upper layer is on {}, which flushes on demand", below.fs_type))
            }
            Class::Memory => because(Class::Memory, "its upper layer is in memory; a crash takes all of it"),
            _ => (Class::Outside, format!("its upper layer is on {}", below.fs_type)),
        },
        _ => because(Class::Outside, "its upper layer cannot be seen from here"),
    }
}

/// The mount that holds an absolute path: the longest mount point that is a prefix of it, the last one of these.
pub fn mount_of<'a>(path: &Path, all: &'a [Mount]) -> Option<&'a Mount> {
    all.iter()
        .filter(|mount| path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.as_os_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::mountinfo;

    #[track_caller]
    fn check(fs_type_source_options: &str, expect: Class) {
        let line =
            format!("9 1 7:0 / /mnt/x rw,relatime - {fs_type_source_options}\n1 0 8:1 / / rw - ext4 /dev/sda1 rw\n");
        let mounts = mountinfo::parse(line.as_bytes());
        assert_eq!(classify(&mounts[0], &mounts).0, expect, "{fs_type_source_options}");
    }

    #[test]
    fn ext4_by_options() {
        check("ext4 /dev/loop0 rw,data=journal", Class::Ordered);
        check("ext4 /dev/loop0 rw,errors=remount-ro,data=journal", Class::Ordered);
        check("ext4 /dev/loop0 rw,nobarrier,data=journal", Class::Outside);
        check("ext4 /dev/loop0 rw,journal_async_commit,data=journal", Class::Durable);
        check("ext4 /dev/sda1 rw,discard", Class::Durable);
        check("ext4 /dev/sda1 ro", Class::ReadOnly);
    }

    #[test]
    fn others_by_type() {
        check("xfs /dev/sdb rw", Class::Durable);
        check("btrfs /dev/sdb rw,nobarrier", Class::Outside);
        check("vfat /dev/sdb rw", Class::Outside);
        check("tmpfs tmpfs rw", Class::Memory);
        check("proc proc rw", Class::Pseudo);
        check("squashfs /dev/loop1 ro", Class::ReadOnly);
        check("nfs4 host:/x rw", Class::Outside);
        check("fuse.sshfs host:/x rw", Class::Outside);
        check("fuseblk /dev/sdc1 rw", Class::Outside);
        check("madeupfs none rw", Class::Outside);
    }

    #[test]
    fn overlays_by_what_is_under_them() {
        check("overlay overlay rw,lowerdir=/usr,upperdir=/usr,workdir=/usr", Class::Durable);
        check("overlay overlay rw,lowerdir=/usr,upperdir=/usr,workdir=/usr,volatile", Class::Outside);
        check("overlay overlay rw,lowerdir=/usr,upperdir=/no/such/dir,workdir=/usr", Class::Outside);
        check("overlay overlay rw,lowerdir=/usr:/lib", Class::ReadOnly);
    }
}
