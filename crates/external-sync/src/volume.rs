//! Volumes: ext4 images mounted `data=journal` with a large journal (002, 3.3: data and metadata commit in one order).
//!
//! An image is created under no name and gets its name when it is complete. While it is mounted, an flock(2) on it is
//! held by the loop device; that, the loop devices themselves and O_EXCL on block devices tell who uses an image
//! already.

mod check;
mod error;
mod mount;
mod private;
mod world;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use rustix::process::{getegid, geteuid};

use crate::e2fsprogs;
use crate::superblock::LABEL;

pub use check::{check, CheckReport, Condition};
pub use error::VolumeError;
pub use mount::{mount, umount, MountedVolume};
pub use private::{PrivateMemory, KEPT, WORLD};
pub use world::{mount_for_world, VolumeSpec, WorldVolumes};

/// Smallest volume, bytes.
pub const VOLUME_LEN_MIN: u64 = 32 << 20;
/// Smallest journal, bytes: jbd2 wants 1024 blocks.
pub const JOURNAL_LEN_MIN: u64 = 4 << 20;
/// Largest journal, bytes: mke2fs allows 10,240,000 blocks.
pub const JOURNAL_LEN_MAX: u64 = 10_240_000 * BLOCK_LEN;

const BLOCK_LEN: u64 = 4096;
const JOURNAL_LEN_DEFAULT_MAX: u64 = 1 << 30;
const MKFS: &str = "mkfs.ext4";

/// Named one by one, so that an image does not depend on the distribution's mke2fs.conf.
const FEATURES: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,\
                        large_file,huge_file,dir_nlink,extra_isize,metadata_csum";

/// What [`create`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// Length of the image, bytes.
    pub size: u64,
    /// Length of its journal, bytes.
    pub journal: u64,
}

/// Length of the journal for a volume of `size` bytes when none is asked for: a quarter, at most 1 GiB. With
/// `data=journal` all data passes through it, and one transaction may take a third of it.
pub fn default_journal_len(size: u64) -> u64 {
    (size / 4).clamp(JOURNAL_LEN_MIN, JOURNAL_LEN_DEFAULT_MAX)
}

/// Where the room for what will be written comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// All of it is taken from the file system under the image now. It cannot run out later, where a commit that has
    /// succeeded would be lost on its way from the journal to its place.
    Reserved,
    /// Only what is used is taken.
    Sparse,
}

/// Makes a new volume image; sizes are in bytes and are rounded down to blocks (volume) and MiB (journal).
pub fn create(image: &Path, size: u64, journal: Option<u64>, room: Room) -> Result<Created, VolumeError> {
    let created = check_sizes(image, size, journal)?;
    if image.symlink_metadata().is_ok() {
        return Err(VolumeError::Exists { image: image.to_owned() });
    }
    let mkfs = e2fsprogs::find(MKFS).ok_or(VolumeError::ProgramMissing { program: MKFS })?;
    let new = NewImage::open(image).map_err(creating(image))?;
    new.file.set_len(created.size).map_err(creating(image))?;
    make_file_system(&mkfs, image, &new, created.journal)?;
    if room == Room::Reserved {
        reserve(&new.file, created.size).map_err(|source| VolumeError::Reserve { image: image.to_owned(), source })?;
    }
    new.publish().map_err(creating(image))?;
    Ok(created)
}

fn reserve(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, size) {
        // Not every file system can; the image is then as sparse as before.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn creating(image: &Path) -> impl Fn(io::Error) -> VolumeError + '_ {
    |source| match source.kind() {
        io::ErrorKind::AlreadyExists => VolumeError::Exists { image: image.to_owned() },
        _ => VolumeError::Create { image: image.to_owned(), source },
    }
}

fn check_sizes(image: &Path, size: u64, journal: Option<u64>) -> Result<Created, VolumeError> {
    let image = image.to_owned();
    if size < VOLUME_LEN_MIN {
        return Err(VolumeError::TooSmall { image, size });
    }
    let journal = journal.unwrap_or_else(|| default_journal_len(size));
    let max = JOURNAL_LEN_MAX.min(size / 2);
    if journal < JOURNAL_LEN_MIN {
        return Err(VolumeError::JournalTooSmall { image, journal });
    }
    if journal > max {
        return Err(VolumeError::JournalTooLarge { image, journal, max });
    }
    Ok(Created { size: size / BLOCK_LEN * BLOCK_LEN, journal: journal >> 20 << 20 })
}

/// lazy_*_init=0: the kernel must not write in the background what nobody asked for.
fn make_file_system(mkfs: &Path, image: &Path, new: &NewImage, journal: u64) -> Result<(), VolumeError> {
    let extended =
        format!("lazy_itable_init=0,lazy_journal_init=0,root_owner={}:{}", geteuid().as_raw(), getegid().as_raw());
    let journal = format!("size={}", journal >> 20);
    let target = new.path_for_others();
    let target = target.to_string_lossy();
    let args = [
        "-q",
        "-F",
        "-t",
        "ext4",
        "-b",
        "4096",
        "-I",
        "256",
        "-i",
        "8192",
        "-m",
        "0",
        "-e",
        "remount-ro",
        "-L",
        LABEL,
        "-O",
        FEATURES,
        "-E",
        &extended,
        "-J",
        &journal,
        "--",
        &target,
    ];
    let output = e2fsprogs::run(mkfs, args).map_err(creating(image))?;
    if output.status.success() {
        return Ok(());
    }
    let why = e2fsprogs::complaint(MKFS, &output);
    Err(VolumeError::ProgramFailed {
        program: MKFS,
        image: image.to_owned(),
        why,
        advice: "free some space, or choose another size or place",
    })
}

/// An image in the making. Where the file system can do it, it has no name until it is complete: nothing is left behind
/// even by a kill. Elsewhere it is removed on drop unless it was published.
struct NewImage {
    file: File,
    image: PathBuf,
    named: bool,
    published: bool,
}

impl NewImage {
    fn open(image: &Path) -> io::Result<NewImage> {
        let mut options = OpenOptions::new();
        // Only its owner may read it: it will hold files of many owners.
        options.read(true).write(true).mode(0o600);
        let nameless = options.clone().custom_flags(libc::O_TMPFILE).open(folder_of(image));
        let (file, named) = match nameless {
            Ok(file) => (file, false),
            Err(error) if has_no_tmpfile(&error) => (options.create_new(true).open(image)?, true),
            Err(error) => return Err(error),
        };
        Ok(NewImage { file, image: image.to_owned(), named, published: false })
    }

    /// A path by which a child process finds the file, name or no name.
    fn path_for_others(&self) -> PathBuf {
        procfs::path_for_others(&self.file).into()
    }

    fn publish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if !self.named {
            rustix::fs::linkat(CWD, self.path_for_others(), CWD, &self.image, AtFlags::SYMLINK_FOLLOW)?;
        }
        self.published = true;
        File::open(folder_of(&self.image))?.sync_all()
    }
}

impl Drop for NewImage {
    fn drop(&mut self) {
        if self.named && !self.published {
            let _ = fs::remove_file(&self.image);
        }
    }
}

/// What open(2) says on a file system, or a kernel, that has no O_TMPFILE.
fn has_no_tmpfile(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL))
}

/// The directory that a file is in.
fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_a_quarter_within_limits() {
        assert_eq!(default_journal_len(32 << 20), 8 << 20);
        assert_eq!(default_journal_len(512 << 20), 128 << 20);
        assert_eq!(default_journal_len(1 << 40), 1 << 30);
    }

    #[test]
    fn the_default_journal_of_the_smallest_volume_fits() {
        assert!(check_sizes(Path::new("x"), VOLUME_LEN_MIN, None).is_ok());
    }

    /// As on a file system without O_TMPFILE.
    #[test]
    fn a_named_image_that_was_not_published_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let file = File::create_new(&image).unwrap();
        drop(NewImage { file, image: image.clone(), named: true, published: false });
        assert!(!image.exists());
        let file = File::create_new(&image).unwrap();
        NewImage { file, image: image.clone(), named: true, published: false }.publish().unwrap();
        assert!(image.exists());
    }

    #[test]
    fn the_folder_of_a_bare_name_is_the_working_directory() {
        assert_eq!(folder_of(Path::new("x.img")), Path::new("."));
        assert_eq!(folder_of(Path::new("/x.img")), Path::new("/"));
    }
}
