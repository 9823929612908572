//! What is mounted, and what a try makes of it: each local file system that can be written gets a layer; what is made
//! by the kernel is made anew or can only be read; what cannot have a layer (network, FUSE, single files) can only be
//! read.

use std::io;
use std::path::{Path, PathBuf};

use procfs::mountinfo::{self, Mount};
use rustix::fs::{statx, AtFlags, FileType, Statx, StatxFlags, CWD};

/// What COMMAND sees in the place of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// A layer over it.
    Layer,
    /// A new one of its own: processes, terminals, message queues.
    Fresh,
    /// It can be read. The reason is for people; none where that is no loss.
    ReadOnly(Option<&'static str>),
    /// It is not there.
    Leave,
}

/// A mount that can be reached.
#[derive(Clone, Debug)]
pub struct Place {
    /// As the kernel tells it.
    pub mount: Mount,
    /// The device number of the files that are seen there: in btrfs each subvolume has its own, and nothing can be
    /// moved from one to another.
    pub files_dev: u64,
    /// What is made of it.
    pub treatment: Treatment,
}

/// File systems that can be below a layer and keep what a layer rests on: file handles, hard links, extended
/// attributes.
const LAYERED: &[&str] = &[
    "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "nilfs2", "jfs", "bcachefs", "zfs", "tmpfs", "devtmpfs", "overlay",
];
const KERNEL: &[&str] = &[
    "sysfs",
    "cgroup",
    "cgroup2",
    "securityfs",
    "debugfs",
    "tracefs",
    "configfs",
    "bpf",
    "pstore",
    "efivarfs",
    "hugetlbfs",
    "fusectl",
    "selinuxfs",
    "binfmt_misc",
    "rpc_pipefs",
    "nfsd",
    "resctrl",
    "ramfs",
];

/// The mounts that can be reached, in the order in which they cover each other. Below `/proc` nothing is looked at: it
/// is made anew.
pub fn places() -> io::Result<Vec<Place>> {
    let seen = |mount: Mount| {
        let found = look(&mount).filter(|found| found.stx_mnt_id == mount.id)?;
        let is_dir = FileType::from_raw_mode(found.stx_mode.into()).is_dir();
        let files_dev = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        Some(Place { treatment: treatment(&mount, is_dir), files_dev, mount })
    };
    let mut places: Vec<Place> = mountinfo::read()?.into_iter().filter_map(seen).collect();
    leave_what_is_on_processes(&mut places);
    Ok(places)
}

/// Wherever processes are seen: what is mounted there would be on a directory that will not be there.
fn leave_what_is_on_processes(places: &mut [Place]) {
    let is_of_processes = |place: &&Place| place.mount.fs_type == "proc" && place.treatment == Treatment::Fresh;
    let found: Vec<PathBuf> =
        places.iter().filter(is_of_processes).map(|place| place.mount.mount_point.clone()).collect();
    let is_on = |at: &Path| found.iter().any(|processes| at != processes && at.starts_with(processes));
    for place in places.iter_mut().filter(|place| is_on(&place.mount.mount_point)) {
        place.treatment = Treatment::Leave;
    }
}

/// Whether it is there still, and nothing is on it.
pub fn is_visible(mount: &Mount) -> bool {
    look(mount).is_some_and(|found| found.stx_mnt_id == mount.id)
}

/// What the kernel knows by itself of where something is mounted: a server that is away would be waited for.
fn look(mount: &Mount) -> Option<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(CWD, &mount.mount_point, flags, StatxFlags::MNT_ID | StatxFlags::TYPE).ok()
}

fn treatment(mount: &Mount, is_dir: bool) -> Treatment {
    let below = |dir: &str| mount.mount_point.starts_with(dir);
    let read_only = mount.mount_options.split(',').any(|option| option == "ro") || mount.has_fs_option("ro");
    match mount.fs_type.as_str() {
        _ if below("/proc") && mount.mount_point != Path::new("/proc") => Treatment::Leave,
        // Also in a root for chroot(1): through the links there, COMMAND would be in what others see, without a layer.
        "proc" if mount.root == Path::new("/") => Treatment::Fresh,
        "proc" if is_of_a_process(&mount.root) => Treatment::Leave,
        // A setting, say.
        "proc" => Treatment::ReadOnly(None),
        "devpts" if mount.mount_point == Path::new("/dev/pts") => Treatment::Fresh,
        "devpts" | "autofs" | "nsfs" => Treatment::Leave,
        "mqueue" => Treatment::Fresh,
        _ if below("/sys") => Treatment::ReadOnly(None),
        name if KERNEL.contains(&name) => Treatment::ReadOnly(None),
        _ if read_only => Treatment::ReadOnly(None),
        _ if !is_dir => Treatment::ReadOnly(Some("a single file that is mounted")),
        name if LAYERED.contains(&name) => Treatment::Layer,
        _ => Treatment::ReadOnly(Some("a file system that cannot have a layer")),
    }
}

/// What is there of a part of /proc, by its path within.
fn is_of_a_process(root: &Path) -> bool {
    let first = root.components().nth(1).and_then(|first| first.as_os_str().to_str());
    first.is_none_or(|first| first.parse::<u32>().is_ok())
}

/// Whether all of `inner` is also seen through `outer`, and can be moved about there; then, where below its mount
/// point.
pub fn within(inner: &Place, outer: &Place) -> Option<PathBuf> {
    if (inner.mount.dev, inner.files_dev) != (outer.mount.dev, outer.files_dev) {
        return None;
    }
    inner.mount.root.strip_prefix(&outer.mount.root).ok().map(Path::to_owned)
}

/// On which directory or file something is mounted: below the root of what is seen at `home`, if it is on that file
/// system at all. Whoever removes it through any mount of that file system unmounts this one.
pub fn mounted_on(mount: &Mount, home: &Mount, all: &[Mount]) -> Option<PathBuf> {
    let below = all.iter().find(|found| found.id == mount.parent && found.dev == home.dev)?;
    let at = below.root.join(mount.mount_point.strip_prefix(&below.mount_point).ok()?);
    at.strip_prefix(&home.root).ok().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(line: &str) -> Mount {
        mountinfo::parse(line.as_bytes()).remove(0)
    }

    fn place(line: &str, files_dev: u64) -> Place {
        Place { mount: mount(line), files_dev, treatment: Treatment::Layer }
    }

    #[test]
    fn a_bind_mount_shares_the_layer_of_its_file_system() {
        let whole = place("1 0 8:1 / / rw - ext4 /dev/sda1 rw", 1);
        let part = place("2 1 8:1 /srv/a /mnt rw - ext4 /dev/sda1 rw", 1);
        let other = place("3 1 8:2 /srv/a /data rw - ext4 /dev/sdb1 rw", 2);
        assert_eq!(within(&part, &whole), Some("srv/a".into()));
        assert_eq!(within(&whole, &part), None);
        assert_eq!(within(&other, &whole), None);
        let subvolume = place("4 1 8:1 /srv/a /a rw - btrfs /dev/sda1 rw", 3);
        assert_eq!(within(&subvolume, &whole), None);
    }

    #[test]
    fn what_is_mounted_through_another_mount_of_the_same_file_system_is_found() {
        let lines = [
            "1 0 8:1 /@ / rw - btrfs /dev/sda1 rw",
            "2 1 8:1 / /top rw - btrfs /dev/sda1 rw",
            "3 1 0:9 / /home/user/m rw - tmpfs m rw",
            "4 3 0:9 / /home/user/m/n rw - tmpfs n rw",
            "5 2 0:8 / /top/n rw - tmpfs n rw",
            "6 1 0:8 / / rw - tmpfs n rw",
        ];
        let all = lines.map(mount);
        let on = |mount: usize, home: usize| mounted_on(&all[mount], &all[home], &all);
        assert_eq!(on(2, 0), Some("home/user/m".into()));
        assert_eq!(on(2, 1), Some("@/home/user/m".into()));
        assert_eq!(on(3, 0), None);
        assert_eq!(on(4, 0), None);
        assert_eq!(on(4, 1), Some("n".into()));
        assert_eq!(on(5, 0), Some("".into()));
        assert_eq!(on(0, 0), None);
    }

    #[test]
    fn what_is_mounted_on_the_processes_of_another_root_is_left() {
        let fresh = |line: &str| Place { treatment: Treatment::Fresh, ..place(line, 1) };
        let mut places = [
            fresh("1 0 0:4 / /srv/proc rw - proc proc rw"),
            place("2 1 0:5 / /srv/proc/acpi rw - tmpfs tmpfs rw", 2),
            place("3 0 0:5 / /srv/process rw - tmpfs tmpfs rw", 2),
        ];
        leave_what_is_on_processes(&mut places);
        let found = places.map(|place| place.treatment);
        assert_eq!(found, [Treatment::Fresh, Treatment::Leave, Treatment::Layer]);
    }

    #[test]
    fn what_is_made_of_each() {
        let judge = |line: &str, is_dir| treatment(&mount(line), is_dir);
        let check = |line: &str, expected: Treatment| assert_eq!(judge(line, true), expected, "{line}");
        check("1 0 8:1 / / rw - ext4 /dev/sda1 rw", Treatment::Layer);
        check("1 0 8:1 / / ro - ext4 /dev/sda1 rw", Treatment::ReadOnly(None));
        check("1 0 0:4 / /proc rw - proc proc rw", Treatment::Fresh);
        check("1 0 0:4 / /srv/root/proc rw - proc proc rw", Treatment::Fresh);
        check("1 0 0:4 /1/root /srv/outside rw - proc proc rw", Treatment::Leave);
        check("1 0 0:4 /1 /srv/process rw - proc proc rw", Treatment::Leave);
        check("1 0 0:4 /sys/net/ipv4/ip_local_port_range /srv/ports rw - proc proc rw", Treatment::ReadOnly(None));
        check("1 0 0:4 / /proc/sys/fs/binfmt_misc rw - binfmt_misc x rw", Treatment::Leave);
        check("1 0 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw", Treatment::ReadOnly(None));
        check("1 0 0:6 / / rw - nfs4 host:/x rw", Treatment::ReadOnly(Some("a file system that cannot have a layer")));
        let file = "1 0 8:1 /x /etc/passwd rw - ext4 /dev/sda1 rw";
        assert_eq!(judge(file, false), Treatment::ReadOnly(Some("a single file that is mounted")));
    }
}
