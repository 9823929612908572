//! A list of operations as one transaction: everything that the paths meant when it was made is a hypothesis, and when
//! one is wrong, the list is made anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bluefs::op::{Content, Failure, RenameMode, SetAttr, STEP_BYTES_MAX};
use bluefs::query::{Answer, Query};
use bluefs::{Change, Cred, Csn, Errno, Group, Ino, Interval, Key, Kind, Name, Outcome, Runs, Step};

use crate::client::Client;

/// Attempts, while others change the same.
const ATTEMPTS_MAX: usize = 16;
/// Attempts behind which others are kept from changing the same.
const POLITE_ATTEMPTS: usize = 3;
/// Contents up to this size travel in the interval itself.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Why a batch was not carried out. Nothing of it was.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A line cannot be understood.
    #[error("line {line}: {why}")]
    Syntax {
        /// Which.
        line: usize,
        /// Why.
        why: String,
    },
    /// A line's operation is refused.
    #[error("line {line}: {}; nothing was changed", message(*.errno))]
    Refused {
        /// Which.
        line: usize,
        /// Why.
        errno: Errno,
    },
    /// Others have changed the same in each attempt.
    #[error("others change the same files again and again; nothing was changed; try again")]
    Contended,
    /// It is not known whether it was carried out.
    #[error("the outcome is not known: {}; look at the files before you try again", message(*.0))]
    Unknown(Errno),
    /// Nothing was sent.
    #[error("the server cannot be asked: {}; nothing was changed", message(*.0))]
    Unreachable(Errno),
}

fn message(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(i32::from(errno.0)).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operation {
    Mkdir(Path),
    Write(Path, Vec<u8>),
    Append(Path, Vec<u8>),
    Remove(Path),
    Rmdir(Path),
    Rename(Path, Path),
    Link(Path, Path),
    Symlink(Vec<u8>, Path),
    Chmod(u16, Path),
    Truncate(u64, Path),
}

type Path = Vec<Name>;

/// A list of operations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Each with its line.
    operations: Vec<(usize, Operation)>,
}

impl Batch {
    /// Reads a list: one operation a line, words as in a shell (quotes and backslashes), `#` begins a comment.
    pub fn parse(text: &str) -> Result<Batch, BatchError> {
        let mut operations = Vec::new();
        for (i, text) in text.lines().enumerate() {
            let line = i + 1;
            let wrong = |why: String| BatchError::Syntax { line, why };
            let words = words(text).map_err(wrong)?;
            if let Some(operation) = operation(&words).map_err(wrong)? {
                operations.push((line, operation));
            }
        }
        Ok(Batch { operations })
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Carries all of them out, or none. Says at which commit.
    pub fn run(&self, client: &Client, cred: &Cred) -> Result<Csn, BatchError> {
        let mut read = BTreeSet::new();
        for attempt in 0..ATTEMPTS_MAX {
            let keys = if attempt < POLITE_ATTEMPTS { BTreeSet::new() } else { read };
            let _alone = Alone::with(client, keys).map_err(BatchError::Unreachable)?;
            let mut plan = Plan::new(client, cred)?;
            // What was read for it was not read at one moment: it is refused if all of that still holds.
            let refused = plan.add_all(&self.operations).err();
            read = plan.reads.clone();
            match (plan.submit(), refused) {
                (Ok((Outcome::Committed { .. }, _)), Some(refused)) => return Err(refused),
                (Ok((Outcome::Committed { csn, .. }, _)), None) => return Ok(csn),
                (Ok((Outcome::Failed(Failure::Refused { step, errno }), lines)), _) => {
                    let line = lines.get(step as usize).copied().unwrap_or_default();
                    return Err(BatchError::Refused { line, errno });
                }
                (Ok((Outcome::Failed(Failure::Malformed), lines)), _) => {
                    let why = "the list is larger than one transaction may be".to_owned();
                    return Err(BatchError::Syntax { line: lines.last().copied().unwrap_or(1), why });
                }
                (Ok((Outcome::Failed(_), _)), _) => {}
                (Err(errno), Some(_)) => return Err(BatchError::Unreachable(errno)),
                (Err(errno), None) => return Err(BatchError::Unknown(errno)),
            }
        }
        Err(BatchError::Contended)
    }
}

/// While it is there others wait who would change the same, for as long as the server lets them.
struct Alone<'c> {
    client: &'c Client,
    groups: BTreeSet<Group>,
}

impl<'c> Alone<'c> {
    fn with(client: &'c Client, keys: BTreeSet<Key>) -> Result<Alone<'c>, Errno> {
        let groups: BTreeSet<Group> = keys.iter().map(Key::group).collect();
        // If it is not given, this attempt is one like those before.
        let granted = !keys.is_empty() && client.exclusive(keys.into_iter().collect())?;
        Ok(Alone { client, groups: if granted { groups } else { BTreeSet::new() } })
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.groups.iter().for_each(|group| self.client.state().give_back(*group));
    }
}

/// What a batch becomes.
struct Plan<'c> {
    client: &'c Client,
    cred: &'c Cred,
    base: Csn,
    /// What the batch itself has made of names.
    names: BTreeMap<(Ino, Name), Option<(Ino, Kind)>>,
    reads: BTreeSet<Key>,
    steps: Vec<Step>,
    lines: Vec<usize>,
    numbers: std::ops::Range<u64>,
    staged: Vec<(u64, Vec<u8>)>,
}

impl<'c> Plan<'c> {
    fn new(client: &'c Client, cred: &'c Cred) -> Result<Plan<'c>, BatchError> {
        // What is read later is at least as new: a change in between is found as a conflict.
        let (base, _) = client.ask(cred, Query::Space, &|| false).map_err(BatchError::Unreachable)?;
        let (names, reads, numbers) = (BTreeMap::new(), BTreeSet::new(), 0..0);
        Ok(Plan { client, cred, base, names, reads, steps: vec![], lines: vec![], numbers, staged: vec![] })
    }

    /// Has it carried out. Says what comes of it, and the line of each step.
    fn submit(self) -> Result<(Outcome, Vec<usize>), Errno> {
        let (reads, creds) = (self.reads.into_iter().collect(), vec![self.cred.clone()]);
        let interval = Interval { number: 0, base: self.base, after: Runs::new(), reads, creds, steps: self.steps };
        Ok((self.client.submit(interval, self.staged, &|| false)?, self.lines))
    }

    /// Plans all operations; or none, if one is refused.
    fn add_all(&mut self, operations: &[(usize, Operation)]) -> Result<(), BatchError> {
        for (line, operation) in operations {
            match self.changes(operation) {
                Ok(changes) => self.add(*line, changes),
                Err(errno) => {
                    (self.steps, self.staged, self.lines) = (vec![], vec![], vec![]);
                    return Err(BatchError::Refused { line: *line, errno });
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, line: usize, changes: Vec<Change>) {
        for change in changes {
            self.steps.push(Step { cred: 0, time: None, change });
            self.lines.push(line);
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
                let (dir, name) = self.parent(path)?;
                self.names.insert((dir, name.clone()), None);
                vec![Change::Unlink { dir, name }]
            }
            Operation::Rmdir(path) => {
                let (dir, name) = self.parent(path)?;
                self.names.insert((dir, name.clone()), None);
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
        let (dir, name) = self.parent(path)?;
        if self.numbers.is_empty() {
            self.numbers = self.client.lend()?.inodes();
        }
        let ino = Ino(self.numbers.next().ok_or(Errno::IO)?);
        self.names.insert((dir, name.clone()), Some((ino, kind)));
        Ok((ino, Change::Create { dir, name, ino: Some(ino), kind, mode, rdev: 0, target }))
    }

    fn content(&mut self, data: &[u8]) -> Content {
        if data.len() <= INLINE_BYTES_MAX.min(STEP_BYTES_MAX) {
            return Content::Inline(data.to_vec());
        }
        let id = self.staged.len() as u64;
        self.staged.push((id, data.to_vec()));
        Content::Staged(id)
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
        let found = match self.client.ask(self.cred, query, &|| false) {
            Ok((_, Answer::Inode(ino, inode))) => Some((ino, inode.kind)),
            // A directory that this batch has made is not at the server yet: it is empty.
            Err(Errno::NOENT) => None,
            Err(Errno::STALE) if self.names.values().flatten().any(|(ino, _)| *ino == dir) => None,
            Ok(_) => return Err(Errno::IO),
            Err(errno) => return Err(errno),
        };
        Ok(found)
    }
}

fn operation(words: &[String]) -> Result<Option<Operation>, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(Some(match words.as_slice() {
        [] => return Ok(None),
        ["mkdir", at] => Operation::Mkdir(path(at)?),
        ["write", at, text] => Operation::Write(path(at)?, text.as_bytes().to_vec()),
        ["put", file, at] => {
            let data = std::fs::read(PathBuf::from(file)).map_err(|error| format!("cannot read {file}: {error}"))?;
            Operation::Write(path(at)?, data)
        }
        ["append", at, text] => Operation::Append(path(at)?, text.as_bytes().to_vec()),
        ["remove", at] => Operation::Remove(path(at)?),
        ["rmdir", at] => Operation::Rmdir(path(at)?),
        ["rename", from, to] => Operation::Rename(path(from)?, path(to)?),
        ["link", old, new] => Operation::Link(path(old)?, path(new)?),
        ["symlink", target, at] => Operation::Symlink(target.as_bytes().to_vec(), path(at)?),
        ["chmod", mode, at] => {
            let wrong = || format!("{mode} is no mode; write it in octal, such as 644");
            let mode = u16::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(wrong)?;
            Operation::Chmod(mode, path(at)?)
        }
        ["truncate", size, at] => {
            Operation::Truncate(size.parse().map_err(|_| format!("{size} is no number of bytes"))?, path(at)?)
        }
        [name, ..] => {
            return Err(format!(
                "{name} with {} words is no operation; there are mkdir PATH, write PATH TEXT, put FILE PATH, \
                 append PATH TEXT, remove PATH, rmdir PATH, rename FROM TO, link OLD NEW, symlink TARGET PATH, \
                 chmod MODE PATH, truncate SIZE PATH",
                words.len() - 1
            ))
        }
    }))
}

fn path(text: &str) -> Result<Path, String> {
    let parts = text.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.map(|part| Name::new(part.as_bytes()).ok_or_else(|| format!("{text} is no path in a volume"))).collect()
}

fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None | Some('"'), '\\') => {
                let next = chars.next().ok_or("a backslash ends the line")?;
                word.get_or_insert_default().push(if next == 'n' && quote.is_some() { '\n' } else { next });
            }
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_as_in_a_shell() {
        let check = |line: &str, expected: &[&str]| assert_eq!(words(line).expect("words"), expected, "{line}");
        check("", &[]);
        check("  # nothing", &[]);
        check("write a#b 'x  y' # text", &["write", "a#b", "x  y"]);
        check(r#"write "a b" "x\n\"" "" "#, &["write", "a b", "x\n\"", ""]);
        check(r"remove a\ b", &["remove", "a b"]);
        assert!(words("'a").is_err() && words("a\\").is_err());
    }

    #[test]
    fn a_line_that_is_no_operation_is_named() {
        let error = Batch::parse("mkdir a\n\nmove a b\n").expect_err("no operation").to_string();
        assert!(error.starts_with("line 3: move with 2 words is no operation"), "{error}");
        for bad in ["mkdir ..", "chmod 99 a", "chmod 10000 a", "truncate x a", "put /no/such/file a"] {
            assert!(Batch::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Batch::parse("# nothing\n").expect("empty"), Batch::default());
    }
}
