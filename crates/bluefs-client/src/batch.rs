//! A list of operations as one transaction: everything that the paths meant when it was made is a hypothesis, and when
//! one is wrong, the list is made anew.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

use bluefs::op::{INTERVAL_BYTES_MAX, STAGED_BYTES_MAX, STEPS_MAX};
use bluefs::{Cred, Csn, Errno, Group, Key};

use crate::client::Client;
use crate::transaction::{message, path, NotDone, Operation, Transaction};

/// Attempts, while others change the same.
const ATTEMPTS_MAX: usize = 16;
/// Attempts behind which others are kept from changing the same.
const POLITE_ATTEMPTS: usize = 3;

/// Why a batch was not carried out. Nothing of it was.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A line cannot be understood.
    #[error("line {line}: {why}; nothing was changed")]
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

/// A list of operations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Each with its line.
    operations: Vec<(usize, Operation)>,
}

impl Batch {
    /// Reads a list: one operation a line, words as in a shell (quotes and backslashes), `#` begins a comment.
    pub fn parse(text: &str) -> Result<Batch, BatchError> {
        let (mut operations, mut bytes) = (Vec::new(), 0);
        for (i, text) in text.lines().enumerate() {
            let line = i + 1;
            let wrong = |why: String| BatchError::Syntax { line, why };
            let words = words(text).map_err(wrong)?;
            if let Some(operation) = operation(&words).map_err(wrong)? {
                bytes += contents(&operation);
                operations.push((line, operation));
            }
            // What is more would be read for nothing.
            if bytes > STAGED_BYTES_MAX + INTERVAL_BYTES_MAX || operations.len() > STEPS_MAX {
                return Err(wrong(NotDone::TooLarge.to_string()));
            }
        }
        Ok(Batch { operations })
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Bytes of contents.
    pub fn bytes(&self) -> u64 {
        self.operations.iter().map(|(_, operation)| contents(operation) as u64).sum()
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
            let mut transaction = Transaction::begin(client, cred).map_err(BatchError::Unreachable)?;
            // If one is refused, so is the transaction.
            let _ = self.operations.iter().try_for_each(|(_, operation)| transaction.add(operation));
            read = transaction.reads().clone();
            match transaction.close() {
                Ok(csn) => return Ok(csn),
                Err(NotDone::Conflict) => {}
                Err(NotDone::Refused { operation, errno }) => {
                    let line = self.operations.get(operation).map(|(line, _)| *line).unwrap_or_default();
                    return Err(BatchError::Refused { line, errno });
                }
                Err(too_large @ NotDone::TooLarge) => {
                    let line = self.operations.last().map_or(1, |(line, _)| *line);
                    return Err(BatchError::Syntax { line, why: too_large.to_string() });
                }
                Err(NotDone::Unreachable(errno)) => return Err(BatchError::Unreachable(errno)),
                Err(NotDone::Unknown(errno)) => return Err(BatchError::Unknown(errno)),
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

/// Bytes of contents that an operation has.
fn contents(operation: &Operation) -> usize {
    match operation {
        Operation::Write(_, data) | Operation::Append(_, data) => data.len(),
        _ => 0,
    }
}

fn operation(words: &[String]) -> Result<Option<Operation>, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(Some(match words.as_slice() {
        [] => return Ok(None),
        ["mkdir", at] => Operation::Mkdir(path(at.as_bytes())?),
        ["write", at, text] => Operation::Write(path(at.as_bytes())?, text.as_bytes().to_vec()),
        ["put", file, at] => {
            let at = path(at.as_bytes())?;
            let mut data = Vec::new();
            // One more byte than there may be, of a file that may have no end.
            let read = File::open(file).and_then(|file| file.take(STAGED_BYTES_MAX as u64 + 1).read_to_end(&mut data));
            read.map_err(|error| format!("cannot read {file}: {error}"))?;
            if data.len() > STAGED_BYTES_MAX {
                return Err(format!("{file} is larger than all contents of one transaction may be, 64 MiB"));
            }
            Operation::Write(at, data)
        }
        ["append", at, text] => Operation::Append(path(at.as_bytes())?, text.as_bytes().to_vec()),
        ["remove", at] => Operation::Remove(path(at.as_bytes())?),
        ["rmdir", at] => Operation::Rmdir(path(at.as_bytes())?),
        ["rename", from, to] => Operation::Rename(path(from.as_bytes())?, path(to.as_bytes())?),
        ["link", old, new] => Operation::Link(path(old.as_bytes())?, path(new.as_bytes())?),
        ["symlink", target, at] => Operation::Symlink(target.as_bytes().to_vec(), path(at.as_bytes())?),
        ["chmod", mode, at] => {
            let wrong = || format!("{mode} is no mode; write it in octal, such as 644");
            let mode = u16::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(wrong)?;
            Operation::Chmod(mode, path(at.as_bytes())?)
        }
        ["truncate", size, at] => Operation::Truncate(
            size.parse().map_err(|_| format!("{size} is no number of bytes"))?,
            path(at.as_bytes())?,
        ),
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
        // It has no end.
        assert!(Batch::parse("put /dev/zero a")
            .expect_err("too large")
            .to_string()
            .contains("is larger than all contents"));
        for bad in ["mkdir ..", "chmod 99 a", "chmod 10000 a", "truncate x a", "put /no/such/file a"] {
            assert!(Batch::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Batch::parse("# nothing\n").expect("empty"), Batch::default());
    }
}
