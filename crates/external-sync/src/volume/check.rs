//! Looking at a volume without changing it. An image that was not unmounted has changes in its journal that its next
//! mount will put in place; they are put in place in a temporary copy, so that e2fsck judges what that mount will see.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, SeekFrom};

use super::mount::{claim, opening, Kind};
use super::{folder_of, VolumeError};
use crate::e2fsprogs;
use crate::superblock::Superblock;

const FSCK: &str = "e2fsck";

/// What [`check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// The verdict.
    pub condition: Condition,
    /// Whether the image is one that `speculator volume create` made (by its label).
    pub is_volume: bool,
    /// What e2fsck wrote, for people to read.
    pub details: String,
}

/// The verdict on an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It was unmounted, and nothing is wrong.
    Clean,
    /// It was not unmounted; nothing is wrong once its journal is replayed, as the next mount does.
    NeedsReplay,
    /// e2fsck would change something.
    Damaged,
}

/// Checks the file system in `image` thoroughly, without writing to it.
pub fn check(image: &Path) -> Result<CheckReport, VolumeError> {
    let kind = Kind::of(image)?;
    let file = open_to_check(image, kind)?;
    let fsck = e2fsprogs::find(FSCK).ok_or(VolumeError::ProgramMissing { program: FSCK })?;
    let Some(superblock) = Superblock::read(&file).map_err(opening(image))? else {
        let why = "it holds no ext4 file system";
        return Err(VolumeError::NotAVolume { image: image.to_owned(), why });
    };
    let checker = Checker { fsck, image };
    let (condition, details) = match superblock.needs_recovery {
        true => checker.check_replayed(&file)?,
        false => checker.check_as_it_is(file, kind)?,
    };
    Ok(CheckReport { condition, is_volume: superblock.is_volume, details })
}

fn open_to_check(image: &Path, kind: Kind) -> Result<File, VolumeError> {
    let mut options = OpenOptions::new();
    options.read(true);
    if kind == Kind::BlockDevice {
        options.custom_flags(libc::O_EXCL);
    }
    let file = options.open(image).map_err(|source| match source.raw_os_error() {
        // Here it does not matter whether it may be written to.
        Some(libc::EPERM) => VolumeError::Open { image: image.to_owned(), source },
        _ => opening(image)(source),
    })?;
    if kind == Kind::Image {
        claim(image, &file, FlockOperation::NonBlockingLockShared)?;
    }
    Ok(file)
}

struct Checker<'a> {
    fsck: PathBuf,
    image: &'a Path,
}

impl Checker<'_> {
    fn check_as_it_is(&self, file: File, kind: Kind) -> Result<(Condition, String), VolumeError> {
        let (sound, details) = match kind {
            Kind::Image => self.run(&path_of(&file))?,
            Kind::BlockDevice => {
                drop(file); // e2fsck wants a block device for itself, too.
                self.run(self.image)?
            }
        };
        Ok((if sound { Condition::Clean } else { Condition::Damaged }, details))
    }

    fn check_replayed(&self, file: &File) -> Result<(Condition, String), VolumeError> {
        let copy = copy_of(self.image, file).map_err(|source| copying(self.image, &source))?;
        self.replay(&copy)?;
        let (sound, details) = self.run(&path_of(&copy))?;
        Ok((if sound { Condition::NeedsReplay } else { Condition::Damaged }, details))
    }

    /// Whether e2fsck has nothing to object to, and what it says.
    fn run(&self, path: &Path) -> Result<(bool, String), VolumeError> {
        let path = path.to_string_lossy();
        let output = e2fsprogs::run(&self.fsck, ["-f", "-n", "--", &path]).map_err(opening(self.image))?;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let details = said.replace(path.as_ref(), &self.image.to_string_lossy());
        match output.status.code() {
            Some(0) => Ok((true, details)),
            // e2fsck(8): 4, errors left uncorrected; 8, operational error, also for a superblock that makes no sense.
            Some(4 | 8 | 12) => Ok((false, details)),
            _ => Err(self.failed(e2fsprogs::complaint(FSCK, &output))),
        }
    }

    fn replay(&self, copy: &File) -> Result<(), VolumeError> {
        let path = path_of(copy);
        let args = ["-y", "-E", "journal_only", "--", &path.to_string_lossy()];
        let output = e2fsprogs::run(&self.fsck, args).map_err(opening(self.image))?;
        match output.status.code() {
            Some(0..=7) => Ok(()), // Whatever is wrong, the check after this finds and tells.
            _ => Err(self.failed(e2fsprogs::complaint(FSCK, &output))),
        }
    }

    fn failed(&self, why: String) -> VolumeError {
        let image = self.image.to_owned();
        VolumeError::ProgramFailed { program: FSCK, image, why, advice: "run e2fsck -fn on it to see more" }
    }
}

fn copying(image: &Path, source: &io::Error) -> VolumeError {
    VolumeError::ProgramFailed {
        program: "copying for a check",
        image: image.to_owned(),
        why: crate::why(source),
        advice: "make room beside it, or mount and unmount it once",
    }
}

fn path_of(file: &File) -> PathBuf {
    procfs::path_for_others(file).into()
}

/// A copy without a name, with holes where the image has holes, beside the image (or in the temporary folder).
fn copy_of(image: &Path, file: &File) -> io::Result<File> {
    let open = |folder: &Path| {
        OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder)
    };
    let copy = open(folder_of(image)).or_else(|_| open(&std::env::temp_dir()))?;
    let len = rustix::fs::seek(file, SeekFrom::End(0))?;
    copy.set_len(len)?;
    let mut at = 0;
    while let Some(data) = next_data(file, at)? {
        at = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap_or(len);
        copy_range(file, &copy, data, at)?;
    }
    Ok(copy)
}

/// Where the next data at or after `at` begins; a block device is data throughout.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(rustix::io::Errno::INVAL) if at == 0 => Ok(Some(0)),
        Err(rustix::io::Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn copy_range(from: &File, to: &File, mut at: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    while at < end {
        let want = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let chunk = &mut buffer[..want];
        from.read_exact_at(chunk, at)?;
        to.write_all_at(chunk, at)?;
        at += want as u64;
    }
    Ok(())
}
