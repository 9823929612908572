//! Finding COMMAND as execvp(3) will, so that what env(1) would say is said before a world is made.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use crate::error::plain;

/// Why COMMAND cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// env(1)'s 127.
    #[error("cannot run {}: not found; check its name and PATH", shown(.0))]
    NotFound(OsString),
    /// env(1)'s 126.
    #[error("cannot run {}: {}; {}", path.display(), plain(source), advice(source))]
    NotExecutable {
        /// What was found.
        path: PathBuf,
        /// Why it cannot be executed.
        source: io::Error,
    },
}

impl CommandError {
    /// The exit status that belongs to it.
    pub fn status(&self) -> u8 {
        match self {
            CommandError::NotFound(_) => 127,
            CommandError::NotExecutable { .. } => 126,
        }
    }
}

/// Only permissions can be given.
fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES) => "make it executable, or name another file",
        _ => "name another file",
    }
}

/// A name that is empty would not be seen.
fn shown(name: &OsStr) -> std::borrow::Cow<'_, str> {
    if name.is_empty() {
        "''".into()
    } else {
        name.to_string_lossy()
    }
}

/// What execvp(3) uses when PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file that COMMAND names: as it is when it has a slash, else the first executable one in PATH. Call it where
/// COMMAND will run: after the volumes are mounted.
pub fn resolve(command: &OsStr) -> Result<PathBuf, CommandError> {
    let not_found = || CommandError::NotFound(command.to_owned());
    if command.is_empty() {
        return Err(not_found());
    }
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_found()),
            Err(source) => Err(CommandError::NotExecutable { path, source }),
        };
    }
    search(command).unwrap_or_else(|| Err(not_found()))
}

/// A file in PATH that may not be executed is only told of when there is no better one.
fn search(command: &OsStr) -> Option<Result<PathBuf, CommandError>> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut denied = None;
    for dir in std::env::split_paths(&path) {
        let file = if dir.as_os_str().is_empty() { Path::new(".").join(command) } else { dir.join(command) };
        match executable(&file) {
            Ok(()) => return Some(Ok(file)),
            Err(error) if is_absent(&error) => {}
            Err(source) => {
                denied.get_or_insert(CommandError::NotExecutable { path: file, source });
            }
        }
    }
    denied.map(Err)
}

/// Not in this directory of PATH, or that is none.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn executable(path: &Path) -> io::Result<()> {
    let found = path.metadata()?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    Ok(rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, status: Option<u8>) {
        let found = resolve(OsStr::new(command));
        assert_eq!(found.as_ref().err().map(CommandError::status), status, "{command}: {found:?}");
    }

    #[test]
    fn as_env_says() {
        check("sh", None);
        check("/bin/sh", None);
        check("no-such-command", Some(127));
        check("/no/such/command", Some(127));
        check("/etc/passwd/x", Some(126));
        check("/bin/sh/", Some(126));
        check("", Some(127));
        check("/etc/passwd", Some(126));
        check("/etc", Some(126));
        check("/dev/null", Some(126));
    }
}
