//! The programs of e2fsprogs: where they are, and how they failed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where a program is: in `PATH`, or where Debian keeps what only root is thought to need.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs a program found by [`find`] with its messages in English and collects what it says.
pub fn run(program: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Result<Output> {
    Command::new(program).args(args).env("LC_ALL", "C").stdin(Stdio::null()).output()
}

/// The line of a program's error output that says why, without the program's name before it.
pub fn complaint(program: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    // The first line of theirs is the version: `mke2fs 1.47.0 (5-Feb-2023)`.
    let line = lines().find(|line| !line.starts_with("mke2fs ") && !line.starts_with("e2fsck "));
    match line {
        Some(line) => line.trim_start_matches(program).trim_start_matches(": ").to_owned(),
        None => output.status.to_string(),
    }
}
