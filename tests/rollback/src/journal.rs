//! The runs that were made, in a file, so that what was begun can be continued.
//!
//! Each line is one run, written when it has ended. A line that was cut off counts as not written. There is a file for
//! each version of the program under test: what another version did says nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{flock, FlockOperation};

use crate::record::{Key, Outcome, Verdict};

/// A number for these bytes, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// The runs that were made.
#[derive(Debug, Default)]
pub struct Journal {
    file: Option<File>,
    outcomes: BTreeMap<Key, Outcome>,
}

/// Without this a child that is just being started, and has not executed its program yet, would keep the file locked.
impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

impl Journal {
    /// The runs that were made before with this version of the program. The file is ours until we end.
    pub fn open(folder: &Path, version: &str) -> Result<Journal, String> {
        let path = folder.join(format!("{version}.jsonl"));
        let failed = |error| format!("cannot open {}: {error}", path.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let options = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| format!("{} is in use: {error}", path.display()))?;
        let text = fs::read_to_string(&path).map_err(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut outcomes = BTreeMap::new();
        for line in text[..whole].lines() {
            let (key, outcome) =
                serde_json::from_str(line).map_err(|error| format!("{}: {error}: {line}", path.display()))?;
            outcomes.insert(key, outcome);
        }
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        Ok(Journal { file: Some(file), outcomes })
    }

    /// What came of a run, if it was made.
    pub fn outcome(&self, key: &Key) -> Option<&Outcome> {
        self.outcomes.get(key)
    }

    /// Those runs that ran out of time are to be made again.
    pub fn forget_out_of_time(&mut self) {
        self.outcomes.retain(|_, outcome| !matches!(outcome.verdict, Verdict::OutOfTime(_)));
    }

    /// A run was made.
    pub fn add(&mut self, key: Key, outcome: Outcome) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write down what came of {}: {error}", key.name);
        if let Some(file) = &mut self.file {
            let line = serde_json::to_string(&(&key, &outcome)).map_err(|error| failed(error.into()))? + "\n";
            file.write_all(line.as_bytes()).map_err(failed)?;
        }
        self.outcomes.insert(key, outcome);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;
    use crate::matrix::of_batch;

    fn key(name: &str) -> Key {
        Key { name: name.to_owned(), cell: of_batch(1), source: digest(b"text") }
    }

    fn outcome(verdict: Verdict) -> Outcome {
        Outcome { counts: Counts { wrong: 3, ..Counts::default() }, verdict }
    }

    #[test]
    fn what_was_written_is_there_again_but_for_a_line_that_was_cut_off() {
        let folder = std::env::temp_dir().join(format!("speculator-journal-{}", std::process::id()));
        let mut journal = Journal::open(&folder, "one").expect("a new journal");
        assert!(Journal::open(&folder, "one").is_err(), "it is ours alone");
        journal.add(key("a"), outcome(Verdict::Same)).expect("written");
        journal.add(key("b"), outcome(Verdict::Differs("line 1\nline 2".to_owned()))).expect("written");
        drop(journal);
        let path = folder.join("one.jsonl");
        let text = fs::read_to_string(&path).expect("it is there");
        fs::write(&path, &text[..text.len() - 5]).expect("cut off");

        let mut journal = Journal::open(&folder, "one").expect("what is whole");
        assert_eq!(journal.outcome(&key("a")), Some(&outcome(Verdict::Same)));
        assert_eq!(journal.outcome(&key("b")), None);
        journal.add(key("b"), outcome(Verdict::OutOfTime("late".to_owned()))).expect("written");
        drop(journal);
        let mut journal = Journal::open(&folder, "one").expect("all of it");
        assert_eq!(journal.outcome(&key("b")), Some(&outcome(Verdict::OutOfTime("late".to_owned()))));
        journal.forget_out_of_time();
        assert!(journal.outcome(&key("a")).is_some() && journal.outcome(&key("b")).is_none());
        let other = Journal::open(&folder, "two").expect("another version");
        assert_eq!(other.outcome(&key("a")), None);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
