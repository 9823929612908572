//! `--stats`: where the statistics go. The file is opened before COMMAND starts, and written when it has ended.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{fallocate, FallocateFlags};
use rustix::io::Errno;

use crate::error::plain;

/// The value of `--stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsTarget {
    /// For people, on stderr.
    Text,
    /// For programs, into a file.
    Json(PathBuf),
}

impl StatsTarget {
    /// Reads the value.
    pub fn parse(text: OsString) -> Result<StatsTarget, &'static str> {
        match form_and_file(&text) {
            ("text", None) => Ok(StatsTarget::Text),
            ("json", Some(file)) => Ok(StatsTarget::Json(file)),
            _ => Err("use text or json:FILE"),
        }
    }
}

/// What stands before the first colon, and the file that is named behind it, whose name may be any bytes. A colon with
/// nothing behind it makes no form.
pub fn form_and_file(text: &OsStr) -> (&str, Option<PathBuf>) {
    let bytes = text.as_bytes();
    let (form, file) = match bytes.iter().position(|byte| *byte == b':') {
        Some(at) if at + 1 < bytes.len() => (&bytes[..at], Some(PathBuf::from(OsStr::from_bytes(&bytes[at + 1..])))),
        _ => (bytes, None),
    };
    (std::str::from_utf8(form).unwrap_or_default(), file)
}

/// The statistics file is no good.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {what} to {}: {}; name a file that can be written", path.display(), plain(source))]
pub struct StatsError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Where statistics will be written, opened and found writable. A file that was made for it and not written is removed.
#[derive(Debug)]
pub enum StatsSink {
    /// On stderr.
    Text,
    /// Into this file.
    Json(StatsFile),
}

/// An open statistics file.
#[derive(Debug)]
pub struct StatsFile {
    what: &'static str,
    path: PathBuf,
    file: File,
    created: bool,
    written: bool,
}

impl StatsSink {
    /// Opens the target; nothing in an existing file changes yet.
    pub fn open(target: &StatsTarget) -> Result<StatsSink, StatsError> {
        match target {
            StatsTarget::Text => Ok(StatsSink::Text),
            StatsTarget::Json(path) => StatsFile::open(path, "statistics").map(StatsSink::Json),
        }
    }
}

impl StatsFile {
    /// Opens a file for `what`; nothing in an existing one changes yet.
    pub fn open(path: &Path, what: &'static str) -> Result<StatsFile, StatsError> {
        let new = OpenOptions::new().write(true).create_new(true).open(path);
        let (file, created) = match new {
            Ok(file) => (Ok(file), true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (OpenOptions::new().write(true).create(true).truncate(false).open(path), false)
            }
            Err(error) => (Err(error), false),
        };
        let file = file.map_err(|source| StatsError { what, path: path.to_owned(), source })?;
        // COMMAND may change the working directory's meaning (a volume mounted over it); the name is for removal and
        // messages.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(StatsFile { what, path, file, created, written: false })
    }

    /// Writes the statistics in place of what the file held.
    pub fn write(mut self, json: &str) -> Result<(), StatsError> {
        let result = self.replace(json.as_bytes());
        // One that was made for this and has a part of it is removed.
        self.written = result.is_ok();
        result.map_err(|source| StatsError { what: self.what, path: self.path.clone(), source })
    }

    fn replace(&mut self, contents: &[u8]) -> io::Result<()> {
        if !self.file.metadata()?.is_file() {
            return self.file.write_all(contents);
        }
        // What it holds goes only when there is room for what takes its place. Another file under its name would not
        // have its rights, its other names and its place behind links.
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, contents.len() as u64) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.file.write_all(contents)?;
        self.file.set_len(contents.len() as u64)
    }
}

impl Drop for StatsFile {
    fn drop(&mut self) {
        if self.created && !self.written {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(StatsTarget::parse("text".into()), Ok(StatsTarget::Text));
        assert_eq!(StatsTarget::parse("json:a:b".into()), Ok(StatsTarget::Json("a:b".into())));
        let latin_1 = OsStr::from_bytes(b"json:\xfc").to_owned();
        assert_eq!(StatsTarget::parse(latin_1), Ok(StatsTarget::Json(OsStr::from_bytes(b"\xfc").into())));
        for bad in ["", "json", "json:", "xml:x", "text:x", ":x"] {
            assert!(StatsTarget::parse(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_not_written_is_not_left_behind_and_old_contents_go_only_when_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        drop(StatsFile::open(&path, "statistics").unwrap());
        assert!(!path.exists());
        std::fs::write(&path, "old and long").unwrap();
        drop(StatsFile::open(&path, "statistics").unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old and long");
        StatsFile::open(&path, "statistics").unwrap().write("{}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
    }
}
