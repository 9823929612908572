//! `/proc/self/mountinfo` as data (proc_pid_mountinfo(5)).

use crate::{Error, Result, TaskId};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// One line: one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Unique while the mount exists; what statx(2) reports as `stx_mnt_id`.
    pub id: u64,
    /// The number of the mount that this one is on.
    pub parent: u64,
    /// The file system's device number, in the encoding of `st_dev`.
    pub dev: u64,
    /// The directory (or file) of the file system that is seen there: `/` unless it is a bind mount.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Options of this mount: `rw`, `nosuid`, `relatime`…
    pub mount_options: String,
    /// `ext4`, `tmpfs`, `fuse.sshfs`…
    pub fs_type: String,
    /// A device, `host:/path`, or just a word.
    pub source: PathBuf,
    /// Options of the file system, shared by all its mounts.
    pub fs_options: String,
}

impl Mount {
    /// Whether the file system (not just this mount) has the option.
    pub fn has_fs_option(&self, option: &str) -> bool {
        self.fs_options.split(',').any(|found| found == option)
    }

    /// The value of `name=value` in the file system's options.
    pub fn fs_option(&self, name: &str) -> Option<&str> {
        self.fs_options.split(',').find_map(|found| found.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Of the calling thread, not of the process: one thread may have entered a mount namespace of its own.
pub const PATH: &str = "/proc/thread-self/mountinfo";

/// The mounts that this thread sees, in the kernel's order: a later one covers an earlier one at the same place.
///
/// # Errors
/// As of reading a file; so for the others.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(PATH)?))
}

/// The same, read a moment ago if nothing has been mounted since, and this thread is still where it was. Options of a
/// file system that were changed through another mount namespace are seen within [`RECENT`].
///
/// # Errors
/// As of reading a file.
pub fn recent() -> io::Result<Rc<[Mount]>> {
    LAST_READ.with_borrow_mut(|last| match last {
        Some(seen) if seen.is_recent() => Ok(seen.mounts.clone()),
        _ => Ok(last.insert(Seen::now()?).mounts.clone()),
    })
}

/// So long what was read is taken for what is.
pub const RECENT: Duration = Duration::from_millis(100);

thread_local! {
    static LAST_READ: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// What a thread has seen.
struct Seen {
    table: Table,
    mounts: Rc<[Mount]>,
    /// Of which mount namespace: device and inode.
    namespace: (u64, u64),
    at: Instant,
}

impl Seen {
    fn now() -> io::Result<Self> {
        let (at, namespace) = (Instant::now(), namespace()?);
        let mut table = Table(File::open(PATH)?);
        let mounts = table.read_again()?.into();
        Ok(Self { table, mounts, namespace, at })
    }

    fn is_recent(&self) -> bool {
        self.at.elapsed() < RECENT
            && namespace().is_ok_and(|now| now == self.namespace)
            && !self.table.has_changed().unwrap_or(true)
    }
}

fn namespace() -> io::Result<(u64, u64)> {
    let found = std::fs::metadata("/proc/thread-self/ns/mnt")?;
    Ok((found.dev(), found.ino()))
}

/// The first mount that this thread sees of the file system with this device number, as of `st_dev`.
///
/// # Errors
/// As of reading a file.
pub fn of_device(dev: u64) -> io::Result<Option<Mount>> {
    Ok(recent()?.iter().find(|mount| mount.dev == dev).cloned())
}

/// The mounts that another thread sees.
///
/// # Errors
/// See [`Error`]; also a line that is not understood.
pub fn of(task: impl Into<TaskId>) -> Result<Vec<Mount>> {
    const NAME: &str = "mountinfo";
    let task = task.into();
    let text = crate::read(task, NAME)?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(parse_line);
    lines.collect::<Option<_>>().ok_or_else(|| Error::no_field(task, NAME, "line that is understood"))
}

/// The table of our process, kept open: the kernel tells once of each change, by an exceptional condition (`POLLPRI`).
#[derive(Debug)]
pub struct Table(File);

impl Table {
    /// Open it, and read it: later changes will be told.
    ///
    /// # Errors
    /// As of reading a file.
    pub fn open() -> io::Result<Self> {
        let mut table = Self(File::open("/proc/self/mountinfo")?);
        table.read_again()?;
        Ok(table)
    }

    /// The change is known.
    ///
    /// # Errors
    /// As of reading a file.
    pub fn read_again(&mut self) -> io::Result<Vec<Mount>> {
        let mut text = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut text)?;
        Ok(parse(&text))
    }

    /// Whether there is a change that was not told. It is told by this.
    fn has_changed(&self) -> io::Result<bool> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(poll(&mut [PollFd::new(self, PollFlags::PRI)], Some(&now))? > 0)
    }
}

/// To wait for a change.
impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Parses the file's contents; a line that cannot be understood is left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let parent = text(fields.next()?).parse().ok()?;
    let dev = parse_dev(&text(fields.next()?))?;
    let root = path(fields.next()?);
    let mount_point = path(fields.next()?);
    let mount_options = text(fields.next()?);
    // Optional fields (`shared:7`…) end with a lone dash.
    fields.find(|field| *field == b"-")?;
    Some(Mount {
        id,
        parent,
        dev,
        root,
        mount_point,
        mount_options,
        fs_type: text(fields.next()?),
        source: path(fields.next()?),
        fs_options: text(fields.next()?),
    })
}

fn parse_dev(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// The kernel writes space, tab, newline, backslash and `#` as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        match octal(rest) {
            Some(escaped) => {
                plain.push(escaped);
                rest = &rest[4..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

fn octal(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\")?.get(..3)?;
    let value = digits.iter().try_fold(0u32, |value, digit| match digit {
        b'0'..=b'7' => Some(value * 8 + u32::from(digit - b'0')),
        _ => None,
    })?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes() {
        let line =
            br"36 35 98:0 /mnt1 /mnt/two\040words\134 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let mounts = parse(line);
        assert_eq!(mounts.len(), 1);
        let mount = &mounts[0];
        assert_eq!((mount.id, mount.parent), (36, 35));
        assert_eq!(mount.dev, rustix::fs::makedev(98, 0));
        assert_eq!(mount.mount_point, PathBuf::from("/mnt/two words\\"));
        assert_eq!((mount.fs_type.as_str(), mount.source.to_str()), ("ext3", Some("/dev/root")));
        assert_eq!(mount.fs_option("errors"), Some("continue"));
        assert!(mount.has_fs_option("rw") && !mount.has_fs_option("r"));
    }

    #[test]
    fn what_cannot_be_understood_is_left_out() {
        assert!(parse(b"\n1 2 x:y / / rw - a b c\n1 2 3:4 / /x rw\n").is_empty());
    }

    #[test]
    fn the_mounts_of_this_machine_parse() {
        let text = std::fs::read(PATH).unwrap();
        assert_eq!(parse(&text).len(), text.iter().filter(|&&byte| byte == b'\n').count());
        let first = read().unwrap().remove(0);
        assert_eq!(of_device(first.dev).unwrap(), Some(first));
        assert_eq!(of(crate::ProcessId::own()).unwrap().len(), Table::open().unwrap().read_again().unwrap().len());
    }
}
