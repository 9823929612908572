//! The workloads' programs, made ready in a temporary directory.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::crash::CrashError;

const WORKLOAD_SOURCE: &str = include_str!("../../programs/crash-workload.c");
const SERVERS_SOURCE: &str = include_str!("../../programs/servers.py");
const SQLITE_SOURCE: &str = include_str!("../../programs/sqlite-inserts.py");

/// The programs; they are gone when this is dropped.
pub struct Programs {
    dir: TempDir,
    python: PathBuf,
}

impl Programs {
    /// Compiles them with gcc, and finds a python3 that is a program itself, not a script that looks for one.
    pub fn build() -> Result<Programs, CrashError> {
        let dir = tempfile::Builder::new().prefix("crash-programs-").tempdir();
        let dir = dir.map_err(CrashError::system("make a temporary directory"))?;
        let sources = [
            ("crash-workload.c", WORKLOAD_SOURCE),
            ("sqlite-inserts.py", SQLITE_SOURCE),
            ("servers.py", SERVERS_SOURCE),
        ];
        for (name, source) in sources {
            let path = dir.path().join(name);
            fs::write(&path, source).map_err(CrashError::system(format!("write {}", path.display())))?;
        }
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-pthread", "-o"])
            .arg(dir.path().join("crash-workload"))
            .arg(dir.path().join("crash-workload.c"));
        output_of(&mut gcc)?;
        let code = "import sqlite3, sys; print(sys.executable)";
        let python = output_of(Command::new("python3").args(["-c", code]))?;
        let python = PathBuf::from(python.trim());
        Ok(Programs { dir, python })
    }

    /// `crash-workload`.
    pub(super) fn workload(&self) -> PathBuf {
        self.path("crash-workload")
    }

    /// The command line that SQLite's options follow.
    pub(super) fn sqlite(&self) -> Vec<OsString> {
        let script = self.path("sqlite-inserts.py");
        vec![self.python.clone().into(), "-S".into(), script.into()]
    }

    /// The command line of a server with its clients that options follow.
    pub(super) fn serve(&self, kind: &str) -> Vec<OsString> {
        vec![self.python.clone().into(), "-S".into(), self.path("servers.py").into(), "run".into(), kind.into()]
    }

    /// The program that prepares and recovers what servers keep.
    pub(super) fn servers(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.arg("-S").arg(self.path("servers.py"));
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::join(self.dir.path(), name)
    }
}

pub(super) fn output_of(command: &mut Command) -> Result<String, CrashError> {
    let text = format!("{command:?}");
    let output = command.output();
    let output = output.map_err(CrashError::system(format!("run {text}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(CrashError::Command {
        command: text,
        outcome: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
