//! An interval of a program's own: begin, operations, close, outcome.

use std::collections::{BTreeMap, BTreeSet};

use bluefs::op::{
    Content, Failure, RenameMode, SetAttr, INTERVAL_BYTES_MAX, READS_MAX, STAGED_BYTES_MAX, STEPS_MAX, STEP_BYTES_MAX,
    TARGET_BYTES_MAX,
};
use bluefs::query::{Answer, Query};
use bluefs::{Change, Cred, Csn, Errno, Ino, Interval, Key, Kind, Name, Outcome, Runs, SessionId, Step};

use crate::client::Client;

/// Contents up to this size travel in the interval itself.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Contents of one transaction that are sent with its steps, at most.
const INLINE_ALL_BYTES_MAX: usize = INTERVAL_BYTES_MAX / 2;

/// Why nothing was changed; or, once, why that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    /// It would be another one by now.
    #[error("others have changed what it is about; nothing was changed; begin anew")]
    Conflict,
    /// An operation is refused.
    #[error("operation {}: {}; nothing was changed", operation + 1, message(*.errno))]
    Refused {
        /// Which; the first one is 0.
        operation: usize,
        /// Why.
        errno: Errno,
    },
    /// There are bounds of operations and contents.
    #[error("the list is larger than one transaction may be: 4,096 operations with 64 MiB of contents")]
    TooLarge,
    /// Nothing was sent.
    #[error("the server cannot be asked: {}; nothing was changed", message(*.0))]
    Unreachable(Errno),
    /// It is not known whether it was carried out.
    #[error("the outcome is not known: {}; look at the files before you try again", message(*.0))]
    Unknown(Errno),
}

/// An error in words.
pub fn message(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(i32::from(errno.0)).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Something to be done. Paths begin at the root of the volume; symbolic links in them are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A directory is made.
    Mkdir(Path),
    /// A file gets these contents; it is made if it is not there.
    Write(Path, Vec<u8>),
    /// A file that is there gets longer.
    Append(Path, Vec<u8>),
    /// A name that is not a directory's is removed.
    Remove(Path),
    /// An empty directory is removed.
    Rmdir(Path),
    /// From, to. What was there is replaced.
    Rename(Path, Path),
    /// Old name, further name.
    Link(Path, Path),
    /// Target, name.
    Symlink(Vec<u8>, Path),
    /// Mode.
    Chmod(u16, Path),
    /// Size.
    Truncate(u64, Path),
}

/// The names of a path.
pub type Path = Vec<Name>;

/// Operations that will take effect together, or not at all: an interval. What the paths mean when an operation is
/// added is a hypothesis: if others have made it wrong when the transaction is closed, that is
/// a conflict. The server takes what one client does as one after the other: its own intervals are no others.
pub struct Transaction {
    client: Client,
    cred: Cred,
    base: Csn,
    /// What the transaction itself has made of names.
    names: BTreeMap<(Ino, Name), Option<(Ino, Kind)>>,
    reads: BTreeSet<Key>,
    steps: Vec<Step>,
    /// The operation of each step.
    of: Vec<usize>,
    added: usize,
    /// The operation that is refused, and why, if what was read still holds.
    refused: Option<(usize, Errno)>,
    /// Numbers that it has taken, for what it makes.
    numbers: Vec<(Ino, SessionId)>,
    staged: Vec<(u64, Vec<u8>)>,
    /// Bytes of contents and texts that are sent with the steps.
    inline: usize,
}

impl Transaction {
    /// Begins one.
    pub fn begin(client: &Client, cred: &Cred) -> Result<Transaction, Errno> {
        // What is read later is at least as new: a change in between is found as a conflict.
        let (base, _) = client.ask(cred, Query::Space, &|| false)?;
        Ok(Transaction {
            client: client.clone(),
            cred: cred.clone(),
            base,
            names: BTreeMap::new(),
            reads: BTreeSet::new(),
            steps: Vec::new(),
            of: Vec::new(),
            added: 0,
            refused: None,
            numbers: Vec::new(),
            staged: Vec::new(),
            inline: 0,
        })
    }

    /// Adds an operation. If it is refused, so is the transaction: nothing can be added, and [`Transaction::close`]
    /// says whether what was read for that still holds.
    pub fn add(&mut self, operation: &Operation) -> Result<(), Errno> {
        if let Some((_, errno)) = self.refused {
            return Err(errno);
        }
        match self.changes(operation) {
            Ok(changes) => {
                self.of.extend(changes.iter().map(|_| self.added));
                self.steps.extend(changes.into_iter().map(|change| Step { cred: 0, time: None, change }));
                self.added += 1;
                Ok(())
            }
            Err(errno) => {
                (self.steps, self.of, self.staged) = (Vec::new(), Vec::new(), Vec::new());
                self.refused = Some((self.added, errno));
                Err(errno)
            }
        }
    }

    /// What it depends on.
    pub fn reads(&self) -> &BTreeSet<Key> {
        &self.reads
    }

    /// Has it carried out. When this returns a commit, all of it is on the server's disk.
    pub fn close(mut self) -> Result<Csn, NotDone> {
        let staged = self.staged.iter().map(|(_, data)| data.len()).sum::<usize>();
        let is_long = self.steps.len() > STEPS_MAX || self.reads.len() > READS_MAX;
        // The server would end the connection, and it would be sent again on the next one.
        if is_long || staged > STAGED_BYTES_MAX || self.inline > INTERVAL_BYTES_MAX {
            return Err(NotDone::TooLarge);
        }
        let (reads, creds) = (std::mem::take(&mut self.reads).into_iter().collect(), vec![self.cred.clone()]);
        let (steps, staged) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.staged));
        let interval = Interval { number: 0, base: self.base, after: Runs::new(), reads, creds, steps };
        // A session that is over has taken its numbers with it: paths that were looked up in it may still hold.
        let lent_to = self.numbers.iter().map(|(_, lent_to)| *lent_to).collect();
        let outcome = self.client.submit_lent(interval, staged, lent_to, &|| false);
        if self.refused.is_none() && !matches!(outcome, Ok(Outcome::Failed(_))) {
            // They are used, or may be.
            self.numbers.clear();
        }
        match (outcome, self.refused) {
            // What was read for it was not read at one moment: it is refused if all of that still holds.
            (Ok(Outcome::Committed { .. }), Some((operation, errno))) => Err(NotDone::Refused { operation, errno }),
            (Ok(Outcome::Committed { csn, .. }), None) => Ok(csn),
            (Ok(Outcome::Failed(Failure::Refused { step, errno })), _) => {
                let operation = self.of.get(step as usize).copied().unwrap_or_default();
                Err(NotDone::Refused { operation, errno })
            }
            (Ok(Outcome::Failed(Failure::Malformed)), _) => Err(NotDone::TooLarge),
            (Ok(Outcome::Failed(_)), _) => Err(NotDone::Conflict),
            (Err(errno), Some(_)) => Err(NotDone::Unreachable(errno)),
            (Err(errno), None) => Err(NotDone::Unknown(errno)),
        }
    }

    fn changes(&mut self, operation: &Operation) -> Result<Vec<Change>, Errno> {
        Ok(match operation {
            Operation::Mkdir(path) => vec![self.create(path, Kind::Dir, 0o755, Vec::new())?.1],
            Operation::Symlink(target, path) => vec![self.create(path, Kind::Symlink, 0o777, target.clone())?.1],
            Operation::Write(path, data) => {
                let (dir, name) = self.parent(path)?;
                let (ino, first) = match self.lookup(dir, &name)? {
                    Some((ino, _)) => {
                        let set = SetAttr { size: Some(0), ..SetAttr::default() };
                        (ino, Change::SetAttr { ino, set })
                    }
                    None => self.create(path, Kind::File, 0o644, Vec::new())?,
                };
                vec![first, Change::Write { ino, offset: 0, content: self.content(data) }]
            }
            Operation::Append(path, data) => {
                vec![Change::Append { ino: self.existing(path)?, content: self.content(data) }]
            }
            Operation::Remove(path) => {
                let (dir, name) = self.removed(path)?;
                vec![Change::Unlink { dir, name }]
            }
            Operation::Rmdir(path) => {
                let (dir, name) = self.removed(path)?;
                vec![Change::Rmdir { dir, name }]
            }
            Operation::Rename(from, to) => {
                let ((from_dir, from), (to_dir, to)) = (self.parent(from)?, self.parent(to)?);
                let moved = self.lookup(from_dir, &from)?.ok_or(Errno::NOENT)?;
                let replaced = self.lookup(to_dir, &to)?;
                // Two names of one file stay as they are.
                if replaced.map(|(ino, _)| ino) != Some(moved.0) {
                    self.names.insert((from_dir, from.clone()), None);
                    self.names.insert((to_dir, to.clone()), Some(moved));
                }
                vec![Change::Rename { from_dir, from, to_dir, to, mode: RenameMode::Replace }]
            }
            Operation::Link(old, new) => {
                let ino = self.existing(old)?;
                let (dir, name) = self.parent(new)?;
                self.names.insert((dir, name.clone()), Some((ino, Kind::File)));
                vec![Change::Link { ino, dir, name }]
            }
            Operation::Chmod(mode, path) => {
                let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                vec![Change::SetAttr { ino: self.existing(path)?, set }]
            }
            Operation::Truncate(size, path) => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                vec![Change::SetAttr { ino: self.existing(path)?, set }]
            }
        })
    }

    fn create(&mut self, path: &Path, kind: Kind, mode: u16, target: Vec<u8>) -> Result<(Ino, Change), Errno> {
        if target.len() > TARGET_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let (dir, name) = self.parent(path)?;
        let (ino, lent_to) = self.client.borrow_ino(&|| false)?;
        self.numbers.push((ino, lent_to));
        self.inline += target.len();
        self.names.insert((dir, name.clone()), Some((ino, kind)));
        Ok((ino, Change::Create { dir, name, ino: Some(ino), kind, mode, rdev: 0, target }))
    }

    fn content(&mut self, data: &[u8]) -> Content {
        let is_small = data.len() <= INLINE_BYTES_MAX.min(STEP_BYTES_MAX);
        // Of no bytes there is no piece that could be staged.
        if data.is_empty() || (is_small && self.inline + data.len() <= INLINE_ALL_BYTES_MAX) {
            self.inline += data.len();
            return Content::Inline(data.to_vec());
        }
        let id = self.staged.len() as u64;
        self.staged.push((id, data.to_vec()));
        Content::Staged(id)
    }

    /// A name is removed: what it means now is a hypothesis, as with all others.
    fn removed(&mut self, path: &Path) -> Result<(Ino, Name), Errno> {
        let (dir, name) = self.parent(path)?;
        self.lookup(dir, &name)?.ok_or(Errno::NOENT)?;
        self.names.insert((dir, name.clone()), None);
        Ok((dir, name))
    }

    /// What a path means. Symbolic links are not followed.
    fn existing(&mut self, path: &Path) -> Result<Ino, Errno> {
        if path.is_empty() {
            return Ok(Ino::ROOT);
        }
        let (dir, name) = self.parent(path)?;
        self.lookup(dir, &name)?.map(|(ino, _)| ino).ok_or(Errno::NOENT)
    }

    fn parent(&mut self, path: &Path) -> Result<(Ino, Name), Errno> {
        let (name, dirs) = path.split_last().ok_or(Errno::INVAL)?;
        let mut at = Ino::ROOT;
        for dir in dirs {
            at = match self.lookup(at, dir)? {
                Some((ino, Kind::Dir)) => ino,
                Some(_) => return Err(Errno::NOTDIR),
                None => return Err(Errno::NOENT),
            };
        }
        Ok((at, name.clone()))
    }

    fn lookup(&mut self, dir: Ino, name: &Name) -> Result<Option<(Ino, Kind)>, Errno> {
        if let Some(known) = self.names.get(&(dir, name.clone())) {
            return Ok(*known);
        }
        let query = Query::Lookup { dir, name: name.clone() };
        self.reads.extend([Key::Attr(dir), Key::Name(dir, name.clone())]);
        let found = match self.client.ask(&self.cred, query, &|| false) {
            Ok((_, Answer::Inode(ino, inode))) => Some((ino, inode.kind)),
            // A directory that this transaction has made is not at the server yet: it is empty.
            Err(Errno::NOENT) => None,
            Err(Errno::STALE) if self.names.values().flatten().any(|(ino, _)| *ino == dir) => None,
            Ok(_) => return Err(Errno::IO),
            Err(errno) => return Err(errno),
        };
        Ok(found)
    }
}

impl Drop for Transaction {
    /// What it has not used others may use.
    fn drop(&mut self) {
        let mut state = self.client.state();
        self.numbers.drain(..).rev().for_each(|(ino, lent_to)| state.put_ino(ino, lent_to));
    }
}

/// The names of a path, which may begin with a slash.
pub fn path(text: &[u8]) -> Result<Path, String> {
    let parts = text.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts
        .map(|part| Name::new(part).ok_or_else(|| format!("{} is no path in a volume", String::from_utf8_lossy(text))))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use bluefs::tree::Space;
    use bluefs::Group;
    use bluefs_wire::{Reply, Request};

    use super::*;
    use crate::{Address, OnDisconnect};

    /// A server that has nothing, and says that all is done.
    fn server() -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let csn = Csn(0);
        let replies = move |request, groups: &mut std::ops::RangeFrom<u64>| match request {
            Request::Hello { .. } => Some(Reply::Welcome {
                session: SessionId(1),
                epoch: 1,
                csn,
                last: 0,
                now: 0,
                lease_ms: 10_000,
                read_only: false,
            }),
            Request::Ask { tag, query: Query::Space, .. } => {
                Some(Reply::Answer { tag, csn, answer: Answer::Space(Space::fresh()) })
            }
            Request::Ask { tag, .. } => Some(Reply::Error { tag, csn, errno: Errno::NOENT }),
            Request::Lend { tag } => Some(Reply::Lent { tag, group: Group(groups.next()?) }),
            Request::Submit { interval } => {
                let outcome = Outcome::Committed { csn, effects: vec![] };
                Some(Reply::Decided { number: interval.number, outcome })
            }
            _ => None,
        };
        std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("a client");
            let (mut from, mut to) = bluefs_net::plain(socket).expect("a connection");
            let mut groups = 1..;
            while let Ok(Some(request)) = from.receive::<Request>() {
                replies(request, &mut groups).iter().for_each(|reply| to.send(reply).expect("it listens"));
            }
        });
        format!("bluefs://{at}/").parse().expect("an address")
    }

    #[test]
    fn what_reads_more_than_an_interval_may_is_not_sent() {
        let client = Client::connect(server(), None, OnDisconnect::Error).expect("a session");
        for (reads, closed) in [(READS_MAX, Ok(Csn(0))), (READS_MAX + 1, Err(NotDone::TooLarge))] {
            let mut transaction = Transaction::begin(&client, &Cred::root()).expect("begun");
            transaction.reads.extend((1..=reads as u64).map(|ino| Key::Attr(Ino(ino))));
            assert_eq!(transaction.close(), closed);
        }
    }

    #[test]
    fn a_transaction_that_is_refused_uses_no_numbers_up() {
        let client = Client::connect(server(), None, OnDisconnect::Error).expect("a session");
        let path = |text: &[u8]| path(text).expect("a path");
        let mut transaction = Transaction::begin(&client, &Cred::root()).expect("begun");
        transaction.add(&Operation::Mkdir(path(b"new"))).expect("added");
        let (ino, _) = transaction.numbers[0];
        assert_eq!(transaction.add(&Operation::Remove(path(b"nothing"))), Err(Errno::NOENT));
        assert_eq!(transaction.close(), Err(NotDone::Refused { operation: 1, errno: Errno::NOENT }));
        assert_eq!(client.borrow_ino(&|| false).map(|(again, _)| again), Ok(ino));
    }

    /// The server knows nothing of numbers that were lent to a session that is over.
    #[test]
    fn what_uses_numbers_of_another_session_is_not_sent() {
        let client = Client::connect(server(), None, OnDisconnect::Error).expect("a session");
        let mut transaction = Transaction::begin(&client, &Cred::root()).expect("begun");
        let path = path(b"new").expect("a path");
        transaction.add(&Operation::Mkdir(path)).expect("added");
        transaction.numbers[0].1 = SessionId(2);
        assert_eq!(transaction.close(), Err(NotDone::Conflict));
    }

    #[test]
    fn what_is_empty_is_not_staged() {
        let client = Client::connect(server(), None, OnDisconnect::Error).expect("a session");
        let mut transaction = Transaction::begin(&client, &Cred::root()).expect("begun");
        transaction.inline = INLINE_ALL_BYTES_MAX;
        assert_eq!(transaction.content(b""), Content::Inline(vec![]));
        assert_eq!(transaction.content(b"x"), Content::Staged(0));
    }

    #[test]
    fn paths_begin_at_the_root() {
        let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
        assert_eq!(path(b"//a/./b/"), Ok(vec![name("a"), name("b")]));
        assert_eq!(path(b"/"), Ok(vec![]));
        assert!(path(b"a/../b").is_err() && path(b"a\0b").is_err());
    }
}
