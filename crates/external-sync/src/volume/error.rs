//! What can go wrong with a volume: each variant's message is one line that says what, where, why, and what to do.

use std::io;
use std::path::PathBuf;

use super::{JOURNAL_LEN_MIN, VOLUME_LEN_MIN};
use crate::{advice_on_lack, why};

/// A failed operation on a volume.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The message of a variant is its documentation.
pub enum VolumeError {
    #[error("cannot create {}: it exists already; remove it or choose another name", image.display())]
    Exists { image: PathBuf },
    #[error("cannot create {}: {size} bytes are too small for a volume; use at least {}M", image.display(), VOLUME_LEN_MIN >> 20)]
    TooSmall { image: PathBuf, size: u64 },
    #[error("cannot create {}: a journal of {journal} bytes is too small; use at least {}M", image.display(), JOURNAL_LEN_MIN >> 20)]
    JournalTooSmall { image: PathBuf, journal: u64 },
    #[error("cannot create {}: a journal of {journal} bytes is too large for this volume; use at most {max} bytes", image.display())]
    JournalTooLarge { image: PathBuf, journal: u64, max: u64 },
    #[error("cannot create {}: {}; {}", image.display(), why(source), advice_on_creating(source))]
    Create { image: PathBuf, source: io::Error },
    #[error("cannot create {}: no room for all of it: {}; free some space, choose a smaller size, or say --sparse", image.display(), why(source))]
    Reserve { image: PathBuf, source: io::Error },
    #[error("cannot find {program}: it is not in PATH, /usr/sbin or /sbin; install e2fsprogs")]
    ProgramMissing { program: &'static str },
    #[error("{program} failed on {}: {why}; {advice}", image.display())]
    ProgramFailed { program: &'static str, image: PathBuf, why: String, advice: &'static str },
    #[error("cannot use {} as a volume: no such file; make one with: speculator volume create {} --size 1G", image.display(), image.display())]
    Missing { image: PathBuf },
    #[error("cannot use {} as a volume: it is neither a regular file nor a block device; name an image made by speculator volume create", image.display())]
    NotAnImage { image: PathBuf },
    #[error("cannot open {}: {}; {}", image.display(), why(source), advice_on_opening(source))]
    Open { image: PathBuf, source: io::Error },
    #[error("cannot use {} as a volume: {why}; a volume has to be writable", image.display())]
    ReadOnly { image: PathBuf, why: &'static str },
    #[error("cannot use {}: it is in use ({by}); unmount it there first", image.display())]
    InUse { image: PathBuf, by: String },
    #[error("cannot use {} as a volume: {why}; make one with speculator volume create", image.display())]
    NotAVolume { image: PathBuf, why: &'static str },
    #[error("cannot use {}: the file system in it is damaged ({why}); look at it with speculator volume check, repair it with e2fsck -f", image.display())]
    Corrupt { image: PathBuf, why: String },
    #[error("cannot mount {}: only root may mount a file system; run as root", image.display())]
    NeedsRoot { image: PathBuf },
    #[error("cannot mount {}: no loop device ({}: {}); load the loop module, or give the container /dev/loop-control and loop devices", image.display(), device.display(), why(source))]
    NoLoopDevice { image: PathBuf, device: PathBuf, source: io::Error },
    #[error("cannot attach {} to a loop device: {}; see the kernel log (dmesg)", image.display(), why(source))]
    Attach { image: PathBuf, source: io::Error },
    #[error("cannot mount on {}: {}; name an existing directory", dir.display(), why(source))]
    MountPoint { dir: PathBuf, source: io::Error },
    #[error("cannot mount on {}: {why}; name another directory", dir.display())]
    Unfit { dir: PathBuf, why: &'static str },
    #[error("cannot mount two volumes on {}: the first would be hidden; give each its own directory", dir.display())]
    SameMountPoint { dir: PathBuf },
    #[error("cannot mount {} on {}: {}; {}", image.display(), dir.display(), why(source), advice_on_mounting(source))]
    Mount { image: PathBuf, dir: PathBuf, source: io::Error },
    #[error(
        "cannot mount memory of the world's own on {}: {}; {}",
        dir.display(), why(source), advice_on_mounting(source)
    )]
    Private { dir: PathBuf, source: io::Error },
    #[error("cannot give the world its own mounts: {}; {}", why(source), advice_on_mounting(source))]
    Namespace { source: io::Error },
    #[error("cannot unmount {}: no volume is mounted there; see findmnt -t ext4", dir.display())]
    NotMounted { dir: PathBuf },
    #[error("cannot unmount {}: it is still used by a process; find it with fuser -vm {}", dir.display(), dir.display())]
    Busy { dir: PathBuf },
    #[error("cannot unmount {}: {}; run as root", dir.display(), why(source))]
    Unmount { dir: PathBuf, source: io::Error },
    #[error("cannot write what {} holds to its disk: {}; recent changes may be lost, check the disk under it and the kernel log", dir.display(), why(source))]
    Flush { dir: PathBuf, source: io::Error },
    #[error("unmounted {} here, but {} is still in use: it is also mounted in another mount namespace; stop what runs there", dir.display(), device.display())]
    StillAttached { dir: PathBuf, device: PathBuf },
    #[error("cannot read the mount table of /proc: {}; mount /proc", why(source))]
    MountTable { source: io::Error },
    #[error("cannot understand --volume {text}: {why}; write IMAGE:DIR")]
    Spec { text: String, why: &'static str },
}

fn advice_on_opening(error: &io::Error) -> &'static str {
    advice_on_lack(error).unwrap_or("check its path and permissions, or run as root")
}

fn advice_on_creating(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "create its directory first",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => "choose a directory that you can write to",
        Some(libc::EFBIG) => "choose a smaller size, or raise the limit of file sizes (ulimit -f)",
        Some(libc::EINVAL) => "choose a smaller size",
        Some(libc::ENOSPC | libc::EDQUOT) => "free some space or choose a smaller size",
        _ => advice_on_lack(error).unwrap_or("choose another place"),
    }
}

fn advice_on_mounting(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root (CAP_SYS_ADMIN)",
        Some(libc::ENODEV) => "this kernel has no ext4; load its module",
        Some(libc::EBUSY) => "unmount it where it is in use",
        _ => advice_on_lack(error).unwrap_or("see the kernel log (dmesg)"),
    }
}
