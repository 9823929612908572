//! One file-system object to another: what it holds, hole for hole, and everything that is said of it.
//!
//! Objects are held by O_PATH descriptors, so that a symbolic link, a FIFO or a device is handled without being
//! followed or opened.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, SeekFrom, Stat, StatxAttributes, StatxFlags, Timespec,
    Timestamps, Uid, CWD,
};

/// Holds an object without opening it.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    open_at(CWD, path)
}

/// The same, below a directory.
pub fn open_at(dir: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// What the object is said to be.
pub fn stat(object: BorrowedFd<'_>) -> io::Result<Stat> {
    Ok(rustix::fs::statat(object, "", AtFlags::EMPTY_PATH)?)
}

/// The kind of object.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Whether it cannot be changed, or only be appended to (chattr(1)).
pub fn is_protected(object: BorrowedFd<'_>) -> io::Result<bool> {
    let found = rustix::fs::statx(object, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    Ok(found.stx_attributes.intersects(StatxAttributes::APPEND | StatxAttributes::IMMUTABLE))
}

/// Whether it, or what is in it, is encrypted (fscrypt).
pub fn is_encrypted(object: BorrowedFd<'_>) -> io::Result<bool> {
    let found = rustix::fs::statx(object, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    Ok(found.stx_attributes.contains(StatxAttributes::ENCRYPTED))
}

/// A name by which calls that want a path reach the object itself, even if it is a symbolic link.
pub fn name_of(object: BorrowedFd<'_>) -> String {
    procfs::own_path(&object)
}

/// Opens an object that is held.
pub fn reopen(object: BorrowedFd<'_>, write: bool) -> io::Result<File> {
    File::options().read(true).write(write).open(name_of(object))
}

const OVERLAY: &[u8] = b"trusted.overlay.";
/// How an overlay keeps an attribute of this kind that belongs to the file.
const OVERLAY_ESCAPED: &[u8] = b"trusted.overlay.overlay.";

/// Attributes that every file system means in the same way. Others are settings of one kind of file system
/// (`btrfs.compression`): the layer does not have them, so they are left as they are.
const COMMON: [&[u8]; 5] =
    [b"user.", b"trusted.", b"security.", b"system.posix_acl_access", b"system.posix_acl_default"];

/// How XFS keeps access control lists: it tells of each twice. The layer has the old one under this name, whatever
/// became of it.
const SHADOWS: &[u8] = b"trusted.SGI_ACL_";

/// The extended attributes that the object has for its owner, access control lists included.
pub fn xattrs(object: BorrowedFd<'_>) -> io::Result<BTreeMap<CString, Vec<u8>>> {
    let name = name_of(object);
    let mut names = Vec::with_capacity(64 << 10);
    match rustix::fs::listxattr(&name, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => {}
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    }
    let mut found = BTreeMap::new();
    let is_common = |name: &&[u8]| COMMON.iter().any(|common| name.starts_with(common)) && !name.starts_with(SHADOWS);
    for attribute in names.split(|&byte| byte == 0).filter(is_common) {
        let plain = match attribute.strip_prefix(OVERLAY_ESCAPED) {
            Some(rest) => [OVERLAY, rest].concat(),
            None if attribute.starts_with(OVERLAY) => continue,
            None => attribute.to_vec(),
        };
        let mut value = Vec::with_capacity(64 << 10);
        match rustix::fs::getxattr(&name, attribute, rustix::buffer::spare_capacity(&mut value)) {
            Ok(_) => drop(found.insert(CString::new(plain)?, value)),
            Err(rustix::io::Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Owner, mode, extended attributes and times of one object to another. What is the same is not touched.
pub fn copy_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let wanted = stat(from)?;
    copy_rights(from, to)?;
    set_times(to, &wanted)
}

/// The same without the times.
pub fn copy_rights(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let wanted = stat(from)?;
    let found = stat(to)?;
    let name = name_of(to);
    // Changing the owner takes set-id bits and capabilities away: it comes first.
    if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid) {
        let (uid, gid) = (Uid::from_raw(wanted.st_uid), Gid::from_raw(wanted.st_gid));
        rustix::fs::chownat(to, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    let (wanted_xattrs, found_xattrs) = (xattrs(from)?, xattrs(to)?);
    for attribute in found_xattrs.keys().filter(|attribute| !wanted_xattrs.contains_key(*attribute)) {
        rustix::fs::removexattr(&name, attribute.as_c_str())?;
    }
    for (attribute, value) in &wanted_xattrs {
        if found_xattrs.get(attribute) != Some(value) {
            rustix::fs::setxattr(&name, attribute.as_c_str(), value, rustix::fs::XattrFlags::empty())?;
        }
    }
    if kind(&wanted) != FileType::Symlink && stat(to)?.st_mode != wanted.st_mode {
        rustix::fs::chmod(&name, Mode::from_raw_mode(wanted.st_mode & 0o7777))?;
    }
    Ok(())
}

/// Access and modification time.
pub fn set_times(to: BorrowedFd<'_>, wanted: &Stat) -> io::Result<()> {
    let time = |seconds: i64, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as i64 };
    let times = Timestamps {
        last_access: time(wanted.st_atime, wanted.st_atime_nsec),
        last_modification: time(wanted.st_mtime, wanted.st_mtime_nsec),
    };
    Ok(rustix::fs::utimensat(to, "", &times, AtFlags::EMPTY_PATH)?)
}

const CHUNK: usize = 256 << 10;
const BLOCK: usize = 4096;

/// What is written where two files are to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Only what is not the same yet.
    Differences,
    /// All of it.
    Everything,
}

/// Makes `to` hold what `from` holds, with holes in the same places.
///
/// An overlay copies whole megabytes, and fills small holes with zeros: where `to` has a hole and `from` has zeros, the
/// hole stays.
pub fn copy_contents(from: &File, to: &File, write: Write) -> io::Result<()> {
    let len = from.metadata()?.len();
    if to.metadata()?.len() > len {
        to.set_len(len)?;
    }
    let mut at = 0;
    while at < len {
        let data = seek(from, SeekFrom::Data(at))?.unwrap_or(len).min(len);
        clear(to, at, data)?;
        let end = seek(from, SeekFrom::Hole(data))?.unwrap_or(len).min(len);
        copy_range(from, to, data, end, write)?;
        at = end;
    }
    if to.metadata()?.len() != len {
        to.set_len(len)?;
    }
    Ok(())
}

/// Where the next data or hole begins; `None` behind the last.
fn seek(file: &File, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes a hole where there is data.
fn clear(file: &File, at: u64, end: u64) -> io::Result<()> {
    let len = file.metadata()?.len();
    let end = end.min(len);
    if at >= end || seek(file, SeekFrom::Data(at))?.is_none_or(|data| data >= end) {
        return Ok(());
    }
    // A hole does not end within a block but at the end of the file.
    let whole = if end == len { end.next_multiple_of(BLOCK as u64) } else { end };
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, at, whole - at) {
        // A file system without holes that are made later.
        Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(file, at, end),
        made => Ok(made?),
    }
}

fn write_zeros(file: &File, mut at: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; CHUNK];
    while at < end {
        let len = CHUNK.min(usize::try_from(end - at).unwrap_or(CHUNK));
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

fn copy_range(from: &File, to: &File, mut at: u64, end: u64, write: Write) -> io::Result<()> {
    let old_len = to.metadata()?.len();
    let mut wanted = vec![0; CHUNK];
    let mut found = vec![0; CHUNK];
    while at < end {
        let want = CHUNK.min(usize::try_from(end - at).unwrap_or(CHUNK));
        let wanted = &mut wanted[..want];
        from.read_exact_at(wanted, at)?;
        let have = read_up_to(to, &mut found[..want], at)?;
        for (block, chunk) in wanted.chunks(BLOCK).enumerate() {
            let start = block * BLOCK;
            let place = at + start as u64;
            let same = write == Write::Differences
                && start + chunk.len() <= have
                && found[start..start + chunk.len()] == *chunk;
            let hole_stays = || -> io::Result<bool> {
                let is_zero = chunk.iter().all(|&byte| byte == 0);
                Ok(is_zero
                    && place < old_len
                    && seek(to, SeekFrom::Data(place))?.is_none_or(|data| data >= place + chunk.len() as u64))
            };
            if !same && !hole_stays()? {
                to.write_all_at(chunk, place)?;
            }
        }
        at += want as u64;
    }
    Ok(())
}

fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read_at(&mut buffer[have..], at + have as u64) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// Whether two files hold the same bytes.
pub fn same_contents(a: &File, b: &File) -> io::Result<bool> {
    let len = a.metadata()?.len();
    if len != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut in_a, mut in_b) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0;
    while at < len {
        let (have_a, have_b) = (read_up_to(a, &mut in_a, at)?, read_up_to(b, &mut in_b, at)?);
        if have_a != have_b || in_a[..have_a] != in_b[..have_b] {
            return Ok(false);
        }
        if have_a == 0 {
            break;
        }
        at += have_a as u64;
    }
    Ok(true)
}

/// Makes an object like `from`, which is not a directory, under a new name, with everything but its attributes' last
/// word: times are set as well, but a later hard link does not change them. What was made; who else writes to the
/// directory may have given its name to something else.
pub fn create_like(from: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let wanted = stat(from)?;
    match kind(&wanted) {
        FileType::RegularFile => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let new = File::from(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?);
            copy_contents(&reopen(from, false)?, &new, Write::Differences)?;
            copy_attributes(from, new.as_fd())?;
            return Ok(new.into());
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, "", Vec::new())?;
            rustix::fs::symlinkat(target, dir, name)?;
        }
        kind => rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(wanted.st_mode & 0o7777), wanted.st_rdev)?,
    }
    let new = open_at(dir, name)?;
    let found = stat(new.as_fd())?;
    // The name tells only that it is such an object, of ours.
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours || (kind(&found), found.st_rdev) != (kind(&wanted), wanted.st_rdev) {
        return Err(io::Error::other("somebody else has exchanged what was made there"));
    }
    copy_attributes(from, new.as_fd())?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn segments(file: &File) -> Vec<(u64, u64)> {
        let (mut at, mut found) = (0, Vec::new());
        while let Some(data) = seek(file, SeekFrom::Data(at)).unwrap() {
            at = seek(file, SeekFrom::Hole(data)).unwrap().unwrap();
            found.push((data, at));
        }
        found
    }

    #[test]
    fn holes_stay_holes_and_become_holes() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.set_len(10 << 20).unwrap();
        from.write_all_at(b"begin", 0).unwrap();
        from.write_all_at(&[7; 9000], 5 << 20).unwrap();
        from.write_all_at(&[0; 8192], 8 << 20).unwrap();
        to.write_all_at(&vec![1; 12 << 20], 0).unwrap();
        copy_contents(&from, &to, Write::Differences).unwrap();
        assert!(same_contents(&from, &to).unwrap());
        from.sync_all().unwrap();
        to.sync_all().unwrap();
        assert_eq!(segments(&from), segments(&to));
        assert_eq!(from.metadata().unwrap().blocks(), to.metadata().unwrap().blocks());
        let new = tempfile::tempfile().unwrap();
        copy_contents(&from, &new, Write::Differences).unwrap();
        assert_eq!(segments(&from), segments(&new));
    }

    #[test]
    fn a_difference_is_seen_wherever_it_is() {
        let (a, b) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        for file in [&a, &b] {
            file.write_all_at(&[3; 700_000], 0).unwrap();
        }
        assert!(same_contents(&a, &b).unwrap());
        b.write_all_at(&[4], 699_999).unwrap();
        assert!(!same_contents(&a, &b).unwrap());
        copy_contents(&a, &b, Write::Differences).unwrap();
        assert!(same_contents(&a, &b).unwrap());
    }
}
