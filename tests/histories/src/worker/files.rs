//! A client that uses a mount, as any program would.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{self, AtFlags, FlockOperation, Mode as Bits, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{is_of_dirs, list, refused, Worker};
use crate::call::{Answer, Ino, Line, Mode, Op, Place, RECORDS_MAX, RECORD_BYTES, ROOT, WORD_BYTES};
use crate::copy::{bytes_of, record_of, records_of};
use testkit::mapping::Mapping;

/// What is open of a file.
struct Open {
    file: OwnedFd,
    appends: Option<OwnedFd>,
    reads: Option<Reads>,
}

/// What is open to be read, and mapped.
struct Reads {
    file: OwnedFd,
    mapping: Mapping,
    /// How often it was looked at.
    count: usize,
}

/// The files of a mount.
pub struct Files {
    /// The program `speculator`, and the server: transactions do not go through the mount.
    speculator: PathBuf,
    address: String,
    open: BTreeMap<Ino, Open>,
    is_over: bool,
}

impl Files {
    /// A client of the mount on this directory.
    pub fn new(dir: &Path, speculator: PathBuf, address: String) -> io::Result<Files> {
        let file = fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Bits::empty())?;
        let open = BTreeMap::from([(ROOT, Open { file, appends: None, reads: None })]);
        Ok(Files { speculator, address, open, is_over: false })
    }

    fn try_to(&mut self, op: &Op) -> Result<Answer, Errno> {
        Ok(match op {
            Op::Lookup(place) => self.open(place, OFlags::empty())?,
            Op::Create(place) => self.open(place, OFlags::CREATE | OFlags::EXCL)?,
            Op::Mkdir(place) => self.mkdir(place)?,
            Op::Unlink(place) => done(fs::unlinkat(self.fd(place.dir)?, &place.name, AtFlags::empty()))?,
            Op::Rmdir(place) => done(fs::unlinkat(self.fd(place.dir)?, &place.name, AtFlags::REMOVEDIR))?,
            Op::Rename(from, to, mode) => {
                let flags = match mode {
                    Mode::Replace => RenameFlags::empty(),
                    Mode::NoReplace => RenameFlags::NOREPLACE,
                    Mode::Exchange => RenameFlags::EXCHANGE,
                };
                done(fs::renameat_with(self.fd(from.dir)?, &from.name, self.fd(to.dir)?, &to.name, flags))?
            }
            Op::Link(ino, place) => {
                let (old, dir) = (proc_path(self.fd(*ino)?), self.fd(place.dir)?);
                done(fs::linkat(fs::CWD, old, dir, &place.name, AtFlags::SYMLINK_FOLLOW))?
            }
            Op::List(dir) => self.list(*dir)?,
            Op::Stat(ino) => stat(&fs::fstat(self.fd(*ino)?)?),
            Op::Read(ino) => {
                let mut bytes = vec![0; RECORDS_MAX * RECORD_BYTES];
                let len = rustix::io::pread(self.fd(*ino)?, &mut bytes, 0)?;
                // No copy has such contents.
                Answer::Records(records_of(&bytes[..len]).unwrap_or_else(|| vec![u32::MAX]))
            }
            Op::Peek(ino, at) => self.peek(*ino, at * RECORD_BYTES)?,
            Op::Append(ino, record) => {
                let file = self.appending(*ino)?;
                whole(rustix::io::write(file, &bytes_of(*record)))?
            }
            Op::Put(ino, at, record) => {
                whole(rustix::io::pwrite(self.fd(*ino)?, &bytes_of(*record), (at * RECORD_BYTES) as u64))?
            }
            Op::Cut(ino) => done(fs::ftruncate(self.fd(*ino)?, 0))?,
            Op::Lock(ino) => done(fs::flock(self.fd(*ino)?, FlockOperation::NonBlockingLockExclusive))?,
            Op::Unlock(ino) => done(fs::flock(self.fd(*ino)?, FlockOperation::Unlock))?,
            Op::Batch(lines) => self.batch(lines),
            Op::End => Answer::Done,
        })
    }

    fn fd(&self, ino: Ino) -> Result<BorrowedFd<'_>, Errno> {
        self.open.get(&ino).map(|open| open.file.as_fd()).ok_or(Errno::BADF)
    }

    /// Opens what a name means. What is open already stays so: it may have a lock.
    fn open(&mut self, place: &Place, flags: OFlags) -> Result<Answer, Errno> {
        let kind = if is_of_dirs(place) { OFlags::RDONLY | OFlags::DIRECTORY } else { OFlags::RDWR };
        let flags = flags | kind | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::openat(self.fd(place.dir)?, &place.name, flags, Bits::from_raw_mode(0o644))?;
        let ino = fs::fstat(&file)?.st_ino;
        self.open.entry(ino).or_insert(Open { file, appends: None, reads: None });
        Ok(Answer::Ino(ino))
    }

    /// A directory that is made has no descriptor: nobody is told its number.
    fn mkdir(&mut self, place: &Place) -> Result<Answer, Errno> {
        fs::mkdirat(self.fd(place.dir)?, &place.name, Bits::from_raw_mode(0o755))?;
        Ok(Answer::Done)
    }

    fn appending(&mut self, ino: Ino) -> Result<&OwnedFd, Errno> {
        let open = self.open.get_mut(&ino).ok_or(Errno::BADF)?;
        if open.appends.is_none() {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
            open.appends = Some(fs::open(proc_path(open.file.as_fd()), flags, Bits::empty())?);
        }
        open.appends.as_ref().ok_or(Errno::BADF)
    }

    fn peek(&mut self, ino: Ino, at: usize) -> Result<Answer, Errno> {
        let open = self.open.get_mut(&ino).ok_or(Errno::BADF)?;
        if open.reads.is_none() {
            let file = fs::open(proc_path(open.file.as_fd()), OFlags::RDONLY | OFlags::CLOEXEC, Bits::empty())?;
            let len = RECORDS_MAX * RECORD_BYTES;
            // A shared mapping shows the same as a private one.
            let mapping = if ino.is_multiple_of(2) { Mapping::new(&file, len) } else { Mapping::shared(&file, len) };
            let mapping = mapping.map_err(|_| Errno::IO)?;
            open.reads = Some(Reads { file, mapping, count: 0 });
        }
        let Some(reads) = &mut open.reads else { return Err(Errno::BADF) };
        reads.count += 1;
        let mut word = [0; WORD_BYTES];
        if reads.count.is_multiple_of(2) {
            let len = rustix::io::pread(&reads.file, &mut word, at as u64)?;
            return Ok(Answer::Records(record_of(&word[..len])));
        }
        let is_there = |word: &mut [u8]| reads.mapping.read(at, word).is_ok();
        // The kernel may not know how long the file is by now.
        let is_there = is_there(&mut word) || (fs::fstat(&reads.file).is_ok() && is_there(&mut word));
        Ok(match word {
            _ if !is_there => Answer::NotDone,
            [0, 0, 0, 0] => Answer::Zeros,
            word => Answer::Records(record_of(&word)),
        })
    }

    fn list(&self, dir: Ino) -> Result<Answer, Errno> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(self.fd(dir)?)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(Answer::Names(names))
    }

    /// `speculator bluefs batch`.
    fn batch(&self, lines: &[Line]) -> Answer {
        let run = || {
            let mut command = Command::new(&self.speculator);
            command.args(["bluefs", "batch", "--plain", &self.address]).stdin(Stdio::piped());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
            child.stdin.take().map_or(Ok(()), |mut input| input.write_all(list(lines).as_bytes()))?;
            child.wait_with_output()
        };
        let Ok(output) = run() else { return Answer::Unknown };
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Answer::Done,
            false if said.contains(": line ") => Answer::Refused(Errno::INVAL.raw_os_error()),
            false if said.contains("nothing was changed") || said.contains("cannot connect") => Answer::NotDone,
            false => Answer::Unknown,
        }
    }
}

impl Worker for Files {
    fn carry_out(&mut self, op: &Op) -> Answer {
        self.try_to(op).unwrap_or_else(|errno| {
            self.is_over |= [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO].contains(&errno);
            refused(op, errno.raw_os_error())
        })
    }

    /// The mount is gone, or it has lost a lock.
    fn is_over(&self) -> bool {
        self.is_over
    }
}

fn proc_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn done(result: Result<(), Errno>) -> Result<Answer, Errno> {
    result.map(|()| Answer::Done)
}

fn whole(result: Result<usize, Errno>) -> Result<Answer, Errno> {
    match result? {
        RECORD_BYTES => Ok(Answer::Done),
        _ => Err(Errno::IO),
    }
}

fn stat(stat: &fs::Stat) -> Answer {
    let names = stat.st_nlink as u32;
    match fs::FileType::from_raw_mode(stat.st_mode) {
        fs::FileType::Directory if names == 0 => Answer::Refused(Errno::NOENT.raw_os_error()),
        fs::FileType::Directory => Answer::Stat(0, names),
        _ => Answer::Stat(stat.st_size as usize / RECORD_BYTES, names),
    }
}
