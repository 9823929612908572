//! A client that is a session of its own.

use bluefs::op::{Content, Effect, Inode, RenameMode, SetAttr};
use bluefs::query::{Answer as Told, Query};
use bluefs::{Change, Cred, Errno, Kind, Name};
use bluefs_client::{Batch, BatchError, Client};
use bluefs_wire::{LockKind, LockRequest};

use super::{is_of_dirs, list, refused, Worker};
use crate::call::{Answer, Ino, Line, Mode, Op, Place, RECORDS_MAX, RECORD_BYTES, WORD_BYTES};
use crate::copy::{bytes_of, record_of, records_of};
use crate::planted::Planted;

/// `flock` of a client's only process.
const OWNER: u64 = 1;
/// Attempts of somebody who takes an unknown outcome for a failure.
const ATTEMPTS: usize = 20;

/// A session, and what is wrong with it.
pub struct Session {
    client: Client,
    planted: Option<Planted>,
    locked: Vec<Ino>,
}

impl Session {
    /// A client of this session.
    pub fn new(client: Client, planted: Option<Planted>) -> Session {
        Session { client, planted, locked: Vec::new() }
    }

    fn try_to(&mut self, op: &Op) -> Result<Answer, Errno> {
        Ok(match op {
            Op::Lookup(place) => {
                self.know(place.dir);
                let opening = self.client.opening();
                let ino = self.inode(Query::Lookup { dir: bluefs::Ino(place.dir), name: name(place) })?.0;
                opening.opened(ino);
                Answer::Ino(ino.0)
            }
            Op::Create(place) => self.create(place, Kind::File)?,
            Op::Mkdir(place) => self.create(place, Kind::Dir)?,
            Op::Unlink(place) => self.change(Change::Unlink { dir: bluefs::Ino(place.dir), name: name(place) })?,
            Op::Rmdir(place) => self.change(Change::Rmdir { dir: bluefs::Ino(place.dir), name: name(place) })?,
            Op::Rename(from, to, mode) => self.rename(from, to, *mode)?,
            Op::Link(ino, place) => {
                let (ino, dir) = (bluefs::Ino(*ino), bluefs::Ino(place.dir));
                self.change(Change::Link { ino, dir, name: name(place) })?
            }
            Op::List(dir) => {
                self.know(*dir);
                self.list(*dir)?
            }
            Op::Stat(ino) => stat(&self.inode(Query::Inode(bluefs::Ino(*ino)))?.1),
            Op::Read(ino) => {
                self.know(*ino);
                let len = (RECORDS_MAX * RECORD_BYTES) as u32;
                let bytes = self.client.read(&Cred::root(), bluefs::Ino(*ino), 0, len, &|| false)?;
                // No copy has such contents.
                Answer::Records(records_of(&bytes).unwrap_or_else(|| vec![u32::MAX]))
            }
            Op::Peek(ino, at) => {
                self.know(*ino);
                let offset = (at * RECORD_BYTES) as u64;
                let len = WORD_BYTES as u32;
                Answer::Records(record_of(&self.client.read(&Cred::root(), bluefs::Ino(*ino), offset, len, &|| false)?))
            }
            Op::Append(ino, record) => {
                self.change(Change::Append { ino: bluefs::Ino(*ino), content: Content::Inline(bytes_of(*record)) })?
            }
            Op::Put(ino, at, record) => {
                let (ino, offset) = (bluefs::Ino(*ino), (at * RECORD_BYTES) as u64);
                self.change(Change::Write { ino, offset, content: Content::Inline(bytes_of(*record)) })?
            }
            Op::Cut(ino) => {
                let set = SetAttr { size: Some(0), ..SetAttr::default() };
                self.change(Change::SetAttr { ino: bluefs::Ino(*ino), set })?
            }
            Op::Lock(ino) => {
                self.client.lock(lock(*ino, LockKind::Exclusive), &|| false)?;
                self.locked.push(*ino);
                Answer::Done
            }
            Op::Unlock(ino) => {
                self.client.lock(lock(*ino, LockKind::Unlock), &|| false)?;
                self.locked.retain(|locked| locked != ino);
                Answer::Done
            }
            Op::Batch(lines) => self.batch(lines),
            Op::End => Answer::Done,
        })
    }

    /// Has the attributes in the cache, as a kernel would have asked for them: without them no right is known, and the
    /// cache answers nothing about what is inside.
    fn know(&self, ino: Ino) {
        // What there is to say of it the operation itself is told.
        let _ = self.client.look(&Cred::root(), Query::Inode(bluefs::Ino(ino)), &|| false);
    }

    fn change(&self, change: Change) -> Result<Answer, Errno> {
        match self.client.change_told(&Cred::root(), change, &|| false)?.effect {
            Effect::Created(ino) => Ok(Answer::Ino(ino.0)),
            _ => Ok(Answer::Done),
        }
    }

    fn create(&self, place: &Place, kind: Kind) -> Result<Answer, Errno> {
        let opening = self.client.opening();
        let (dir, name) = (bluefs::Ino(place.dir), name(place));
        let answer =
            self.change(Change::Create { dir, name, ino: None, kind, mode: 0o755, rdev: 0, target: vec![] })?;
        if let Answer::Ino(ino) = answer {
            opening.opened(bluefs::Ino(ino));
        }
        Ok(answer)
    }

    fn rename(&self, from: &Place, to: &Place, mode: Mode) -> Result<Answer, Errno> {
        if self.planted == Some(Planted::RenameInTwo) && mode == Mode::Replace && !is_of_dirs(to) && from != to {
            return self.rename_in_two(from, to);
        }
        let mode = match mode {
            Mode::Replace => RenameMode::Replace,
            Mode::NoReplace => RenameMode::NoReplace,
            Mode::Exchange => RenameMode::Exchange,
        };
        let (from_dir, to_dir) = (bluefs::Ino(from.dir), bluefs::Ino(to.dir));
        self.change(Change::Rename { from_dir, from: name(from), to_dir, to: name(to), mode })
    }

    fn rename_in_two(&self, from: &Place, to: &Place) -> Result<Answer, Errno> {
        self.inode(Query::Lookup { dir: bluefs::Ino(from.dir), name: name(from) })?;
        match self.change(Change::Unlink { dir: bluefs::Ino(to.dir), name: name(to) }) {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        self.rename(from, to, Mode::NoReplace)
    }

    fn list(&self, dir: Ino) -> Result<Answer, Errno> {
        match self
            .client
            .look(&Cred::root(), Query::List { dir: bluefs::Ino(dir), after: None, max: 100 }, &|| false)?
        {
            Told::Names { names, .. } => {
                let name = |name: &Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
                Ok(Answer::Names(names.iter().map(|(text, _, _)| name(text)).collect()))
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn inode(&self, query: Query) -> Result<(bluefs::Ino, Inode), Errno> {
        match self.client.look(&Cred::root(), query, &|| false)? {
            Told::Inode(ino, inode) => Ok((ino, inode)),
            _ => Err(Errno::INVAL),
        }
    }

    fn batch(&self, lines: &[Line]) -> Answer {
        if self.planted == Some(Planted::BatchInParts) && lines.len() > 1 {
            let parts = lines.chunks(1).map(|line| self.batch(line));
            return parts.fold(Answer::Done, |so_far, part| if so_far == Answer::Done { part } else { so_far });
        }
        let batch = Batch::parse(&list(lines)).expect("a list");
        match batch.run(&self.client, &Cred::root()) {
            Ok(_) => Answer::Done,
            Err(BatchError::Refused { errno, .. }) => Answer::Refused(errno.0.into()),
            Err(BatchError::Unknown(_)) => Answer::Unknown,
            Err(_) => Answer::NotDone,
        }
    }
}

impl Worker for Session {
    fn carry_out(&mut self, op: &Op) -> Answer {
        let mut answer = self.try_to(op);
        if self.planted == Some(Planted::AppendedTwice) && matches!(op, Op::Append(..)) {
            for _ in 0..ATTEMPTS {
                if !matches!(answer, Err(Errno::IO | Errno::STALE)) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
                answer = self.try_to(op);
            }
        }
        answer.unwrap_or_else(|errno| refused(op, errno.0.into()))
    }

    /// It was told that others may have what it had locked.
    fn is_over(&self) -> bool {
        self.locked.iter().any(|ino| self.client.has_lost_lock(bluefs::Ino(*ino)))
    }
}

fn name(place: &Place) -> Name {
    Name::new(place.name.as_bytes()).expect("a name")
}

fn stat(inode: &Inode) -> Answer {
    match inode.kind {
        Kind::Dir if inode.nlink == 0 => Answer::Refused(Errno::NOENT.0.into()),
        Kind::Dir => Answer::Stat(0, inode.nlink),
        _ => Answer::Stat(inode.size as usize / RECORD_BYTES, inode.nlink),
    }
}

fn lock(ino: Ino, kind: LockKind) -> LockRequest {
    LockRequest { ino: bluefs::Ino(ino), owner: OWNER, kind, start: u64::MAX, end: u64::MAX, wait: false }
}
