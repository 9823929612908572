//! Type and options of a file system → its class and why.

use std::path::Path;

use super::look::Look;
use super::Class;
use crate::flush::{Last, Way};
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

/// Whether a type of file system is an interface to the kernel.
pub fn is_pseudo(fs_type: &str) -> bool {
    PSEUDO.contains(&fs_type)
}

const NEVER_CHANGE: &[&str] = &["squashfs", "erofs", "iso9660", "cramfs", "romfs"];

/// They can be flushed as a whole ([`way`]). ext2, vfat, exfat, jfs, ntfs3 and hfsplus write their blocks but do not
/// flush the disk's cache; f2fs does not where data was written in place, and what zfs does is a property that nothing
/// here shows. They count as outside.
const FLUSHING: &[&str] = &["ext3", "ext4", "xfs", "btrfs", "nilfs2", "bcachefs"];

/// What turns the flush of any of them off.
const NO_FLUSH: &[&str] = &["nobarrier", "barrier=0", "journal_flush_disabled", "volatile"];

/// Images that lie on each other's file systems are followed so far.
const IMAGES_MAX: usize = 8;

/// The class of a mounted file system and why it is in it. `all` are the mounts among which those under an overlay are
/// sought.
pub fn classify(mount: &Mount, all: &[Mount], look: &impl Look) -> (Class, String) {
    Classifier { all, look, images: 0 }.classify(mount)
}

/// How it is flushed, if its class can commit.
pub fn way(mount: &Mount, all: &[Mount], look: &impl Look) -> Way {
    match mount.fs_type.as_str() {
        "xfs" => Way { last: Last::File, upper: None },
        "ext3" | "ext4" if !look.has_journal(mount.dev) => Way { last: Last::Directory, upper: None },
        "overlay" => {
            let upper = mount.fs_option("upperdir").map(Path::new);
            let below = upper.and_then(|upper| look.mount_of_directory(upper, all));
            let below = below.filter(|below| below.fs_type != "overlay");
            Way { upper: upper.map(Path::to_owned), ..below.map_or_else(Way::default, |below| way(below, all, look)) }
        }
        _ => Way::default(),
    }
}

fn because(class: Class, reason: &str) -> (Class, String) {
    (class, reason.to_owned())
}

fn unknown(fs_type: &str) -> &'static str {
    let network = ["nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "virtiofs", "ocfs2", "gfs2"];
    match fs_type {
        _ if network.contains(&fs_type) => "others can see it without asking us",
        _ if fs_type.starts_with("fuse") => "a program outside serves it; sync never reaches a plain FUSE server",
        "ext2" | "vfat" | "exfat" | "msdos" | "jfs" | "ntfs3" | "hfsplus" => {
            "its syncfs does not flush the disk's cache"
        }
        "f2fs" => "its syncfs flushes nothing where data was only overwritten in place",
        "zfs" => "its sync property may turn the flush off, and is not shown",
        _ => "nothing is known of its flush",
    }
}

/// What fsync(2) of an image does.
enum Fsync {
    Flushes,
    Memory,
    /// Nothing is known of the file system that it lies on.
    Unknown,
    /// The mount that turns it off.
    DoesNot(String),
    /// Nobody can say where it lies.
    Unseen,
}

impl Fsync {
    /// Of several images the one with most of it counts.
    fn lacks(&self) -> u8 {
        match self {
            Self::Flushes => 0,
            Self::Memory => 1,
            Self::Unknown => 2,
            Self::DoesNot(_) | Self::Unseen => 3,
        }
    }
}

struct Classifier<'a, L> {
    all: &'a [Mount],
    look: &'a L,
    /// So many images lie above.
    images: usize,
}

impl<L: Look> Classifier<'_, L> {
    fn classify(&self, mount: &Mount) -> (Class, String) {
        let fs_type = mount.fs_type.as_str();
        let is_any_of = |list: &[&str]| list.contains(&fs_type);
        match fs_type {
            _ if is_pseudo(fs_type) => because(Class::Pseudo, "an interface to the kernel; stores nothing"),
            _ if is_any_of(MEMORY) => because(Class::Memory, "in memory; a crash takes all of it"),
            _ if is_any_of(NEVER_CHANGE) => because(Class::ReadOnly, "this type of file system never changes"),
            "overlay" => self.overlay(mount),
            _ if !is_any_of(FLUSHING) => because(Class::Outside, unknown(fs_type)),
            _ if mount.has_fs_option("ro") => because(Class::ReadOnly, "mounted read-only; never changes"),
            "xfs" if mount.fs_option("rtdev").is_some() => {
                because(Class::Outside, "nothing but an fsync of each of its files flushes its realtime device")
            }
            _ => match NO_FLUSH.iter().find(|option| mount.has_fs_option(option)) {
                Some(option) => (Class::Outside, format!("mounted with {option}: it does not flush the disk's cache")),
                None => self.on_disk(mount),
            },
        }
    }

    fn on_disk(&self, mount: &Mount) -> (Class, String) {
        // ext4 always shows data=journal, whether it comes from the mount or from the superblock's defaults.
        let journals_data = matches!(mount.fs_type.as_str(), "ext3" | "ext4") && mount.has_fs_option("data=journal");
        let (class, reason) = match journals_data {
            // Then a commit block may reach the disk before what it commits.
            true if mount.has_fs_option("journal_async_commit") => {
                (Class::Durable, "data=journal, but journal_async_commit gives up order")
            }
            true if self.look.may_encrypt(mount.dev, self.all) => (
                Class::Durable,
                "data=journal, but the data of encrypted files, which it may have, is not in the journal",
            ),
            true => (Class::Ordered, "data=journal with barriers: data and metadata commit in one order"),
            false => (Class::Durable, "flushes on demand; data and metadata reach the disk in any order"),
        };
        let images = self.look.images(mount);
        let mut on_images = images.iter().map(|image| self.on_image(mount, image, class, reason));
        let first = on_images.next().unwrap_or_else(|| (class, reason.to_owned()));
        // One that is not flushed is enough.
        on_images.fold(first, |worst, next| if worst.0 == Class::Outside { worst } else { next })
    }

    /// A loop device flushes the file that is its image: that reaches a disk only if the image's file system sees to
    /// it. One in memory is good for a test, not for keeping anything.
    fn on_image(&self, mount: &Mount, image: &Path, class: Class, reason: &str) -> (Class, String) {
        let path = image.display();
        match self.fsync_of_image(mount, image) {
            Fsync::Flushes => (class, reason.to_owned()),
            Fsync::Memory => (class, format!("{reason}; but its image {path} is in memory")),
            // In a container, above all: the flush goes down to whatever that is.
            Fsync::Unknown => (class, format!("{reason}; but what is below its image {path} cannot be seen")),
            Fsync::DoesNot(mounted) => {
                (Class::Outside, format!("its image {path} is on {mounted}, which does not flush the disk's cache"))
            }
            Fsync::Unseen => (Class::Outside, format!("on what file system its image {path} lies cannot be seen")),
        }
    }

    fn fsync_of_image(&self, mount: &Mount, image: &Path) -> Fsync {
        // It may be mounted over the directory that it lies in.
        let others = self.all.iter().filter(|other| other.dev != mount.dev);
        // Not by what the device itself says: who has it open keeps it from letting go of its image.
        match nearest(image, others) {
            Some(below) if self.images < IMAGES_MAX => Self { images: self.images + 1, ..*self }.fsync_on(below),
            _ => Fsync::Unseen,
        }
    }

    /// Of a file there.
    fn fsync_on(&self, mount: &Mount) -> Fsync {
        let is_any_of = |list: &[&str]| list.contains(&mount.fs_type.as_str());
        let is_off = |option: &&str| mount.has_fs_option(option);
        if is_volatile(mount) || NO_FLUSH.iter().chain(&["fsync_mode=nobarrier"]).any(is_off) {
            return Fsync::DoesNot(format!("{} ({})", mount.mount_point.display(), mount.fs_type));
        }
        match mount.fs_type.as_str() {
            _ if is_any_of(MEMORY) => Fsync::Memory,
            "overlay" => {
                let upper = mount.fs_option("upperdir").map(Path::new);
                let below = upper.and_then(|upper| self.look.mount_of_directory(upper, self.all));
                below.filter(|below| below.fs_type != "overlay").map_or(Fsync::Unknown, |below| self.fsync_on(below))
            }
            _ if !is_any_of(FLUSHING) => Fsync::Unknown,
            _ => {
                let images = self.look.images(mount);
                let all = images.iter().map(|image| self.fsync_of_image(mount, image));
                all.max_by_key(Fsync::lacks).unwrap_or(Fsync::Flushes)
            }
        }
    }

    /// syncfs(2) on an overlay flushes the file system of its upper layer (kernel documentation, overlayfs.rst), but
    /// passes over errors in writing data there: the commit engine flushes the upper layer itself. A `volatile` one
    /// flushes nothing.
    fn overlay(&self, mount: &Mount) -> (Class, String) {
        let Some(upper) = mount.fs_option("upperdir") else {
            return because(Class::ReadOnly, "an overlay without an upper layer never changes");
        };
        if mount.has_fs_option("ro") {
            return because(Class::ReadOnly, "mounted read-only; never changes");
        }
        if is_volatile(mount) {
            return because(Class::Outside, "a volatile overlay flushes nothing");
        }
        // In a container the upper layer's path belongs to the host's name space: then it is not here, or is this
        // overlay itself.
        let below = self.look.mount_of_directory(Path::new(upper), self.all);
        match below {
            Some(below) if below.fs_type != "overlay" => match self.classify(below).0 {
                Class::Ordered | Class::Durable => {
                    (Class::Durable, format!("its upper layer is on {}, which flushes on demand", below.fs_type))
                }
                Class::Memory => because(Class::Memory, "its upper layer is in memory; a crash takes all of it"),
                _ => (Class::Outside, format!("its upper layer is on {}", below.fs_type)),
            },
            _ => because(Class::Outside, "its upper layer cannot be opened from here"),
        }
    }
}

fn is_volatile(overlay: &Mount) -> bool {
    overlay.has_fs_option("volatile") || overlay.has_fs_option("fsync=volatile")
}

/// The mount that holds an absolute path: the longest mount point that is a prefix of it, the last one of these.
pub fn mount_of<'a>(path: &Path, all: &'a [Mount]) -> Option<&'a Mount> {
    nearest(path, all.iter())
}

fn nearest<'a>(path: &Path, mounts: impl Iterator<Item = &'a Mount>) -> Option<&'a Mount> {
    mounts.filter(|mount| path.starts_with(&mount.mount_point)).max_by_key(|mount| mount.mount_point.as_os_str().len())
}

#[cfg(test)]
mod tests;
