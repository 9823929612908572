use super::*;
use procfs::mountinfo;
use std::path::PathBuf;

/// A machine of the tests' own.
#[derive(Clone, Default)]
struct Machine {
    encrypts: bool,
    has_no_journal: bool,
    /// Source and image.
    images: Vec<(&'static str, &'static str)>,
}

impl Look for Machine {
    fn may_encrypt(&self, _: u64, _: &[Mount]) -> bool {
        self.encrypts
    }

    fn has_journal(&self, _: u64) -> bool {
        !self.has_no_journal
    }

    fn images(&self, mount: &Mount) -> Vec<PathBuf> {
        let found = self.images.iter().filter(|(source, _)| Path::new(source) == mount.source);
        found.map(|(_, image)| PathBuf::from(image)).collect()
    }

    fn mount_of_directory<'a>(&self, path: &Path, all: &'a [Mount]) -> Option<&'a Mount> {
        path.starts_with("/usr").then(|| mount_of(path, all))?
    }
}

/// A mount and those around it.
fn mounts(fs_type_source_options: &str, others: &[&str]) -> Vec<Mount> {
    let mut text =
        format!("9 1 7:0 / /mnt/x rw,relatime - {fs_type_source_options}\n1 0 8:1 / / rw - ext4 /dev/sda1 rw\n");
    others.iter().for_each(|other| text += &format!("{other}\n"));
    mountinfo::parse(text.as_bytes())
}

#[track_caller]
fn check_on(machine: &Machine, mounts: &[Mount], expect: Class) -> String {
    let (class, reason) = classify(&mounts[0], mounts, machine);
    assert_eq!(class, expect, "{:?}: {reason}", mounts[0]);
    reason
}

#[track_caller]
fn check(fs_type_source_options: &str, expect: Class) {
    check_on(&Machine::default(), &mounts(fs_type_source_options, &[]), expect);
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
    check("xfs /dev/sdb rw,rtdev=/dev/sdc", Class::Outside);
    check("btrfs /dev/sdb rw,nobarrier", Class::Outside);
    check("bcachefs /dev/sdb rw", Class::Durable);
    check("bcachefs /dev/sdb rw,journal_flush_disabled", Class::Outside);
    check("f2fs /dev/sdb rw,fsync_mode=posix", Class::Outside);
    check("zfs pool/x rw,xattr", Class::Outside);
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

#[test]
fn encrypted_files_are_not_in_the_journal() {
    let encrypts = Machine { encrypts: true, ..Machine::default() };
    check_on(&encrypts, &mounts("ext4 /dev/sdb rw,data=journal", &[]), Class::Durable);
    check_on(&encrypts, &mounts("ext4 /dev/sdb rw", &[]), Class::Durable);
}

/// Of an image that lies at `path`, and the loop device of `/mnt/x`.
fn with_image(path: &'static str) -> Machine {
    Machine { images: vec![("/dev/loop0", path)], ..Machine::default() }
}

#[test]
fn an_image_is_as_durable_as_what_it_lies_on() {
    let ext4 = "ext4 /dev/loop0 rw,data=journal";
    let others = [
        "2 1 8:2 / /fat rw - vfat /dev/sda2 rw",
        "3 1 8:3 / /fast rw - ext4 /dev/sda3 rw,nobarrier",
        "4 1 0:4 / /over rw - overlay overlay rw,lowerdir=/usr,upperdir=/usr,workdir=/usr,volatile",
        "5 1 0:5 / /dev/shm rw - tmpfs tmpfs rw",
        "6 1 0:6 / /box rw - overlay overlay rw,lowerdir=/usr,upperdir=/of/the/host,workdir=/of/the/host",
    ];
    let mounts = mounts(ext4, &others);
    let check = |path: &'static str, expect| check_on(&with_image(path), &mounts, expect);
    check("/images/x", Class::Ordered);
    assert!(check("/dev/shm/x", Class::Ordered).contains("in memory"));
    assert!(check("/fat/x", Class::Ordered).contains("cannot be seen"));
    assert!(check("/fast/x", Class::Outside).contains("/fast (ext4)"));
    check("/over/x", Class::Outside);
    assert!(check("/box/x", Class::Ordered).contains("cannot be seen"));
}

#[test]
fn images_within_images_end_somewhere() {
    // It is mounted over the directory that it lies in.
    check_on(&with_image("/mnt/x/image"), &mounts("ext4 /dev/loop0 rw", &[]), Class::Durable);
    let circle =
        Machine { images: vec![("/dev/loop0", "/mnt/y/image"), ("/dev/loop1", "/mnt/x/image")], ..Machine::default() };
    check_on(&circle, &mounts("ext4 /dev/loop0 rw", &["2 1 7:1 / /mnt/y rw - ext4 /dev/loop1 rw"]), Class::Outside);
}

#[test]
fn what_is_flushed_behind_syncfs() {
    let way_of = |machine: &Machine, text: &str| {
        let mounts = mounts(text, &["2 1 8:2 / /usr rw - xfs /dev/sda2 rw"]);
        way(&mounts[0], &mounts, machine)
    };
    let (with, without) = (Machine::default(), Machine { has_no_journal: true, ..Machine::default() });
    assert_eq!(way_of(&with, "ext4 /dev/sdb rw"), Way::default());
    assert_eq!(way_of(&without, "ext4 /dev/sdb rw"), Way { last: Last::Directory, upper: None });
    assert_eq!(way_of(&without, "btrfs /dev/sdb rw"), Way::default());
    assert_eq!(way_of(&with, "xfs /dev/sdb rw"), Way { last: Last::File, upper: None });
    let overlay = "overlay overlay rw,lowerdir=/lib,upperdir=/usr/upper,workdir=/usr/work";
    assert_eq!(way_of(&with, overlay), Way { last: Last::File, upper: Some("/usr/upper".into()) });
}

#[test]
fn of_several_images_one_that_is_not_flushed_is_enough() {
    let fast = "3 1 8:3 / /fast rw - ext4 /dev/sda3 rw,nobarrier";
    for (second, expect) in [("/fast/x", Class::Outside), ("/images/y", Class::Durable)] {
        let images = ["/images/x", second, "/images/z"].map(|image| ("/dev/loop0", image)).to_vec();
        check_on(&Machine { images, ..Machine::default() }, &mounts("ext4 /dev/loop0 rw", &[fast]), expect);
    }
}
