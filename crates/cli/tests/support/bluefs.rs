//! A server, mounts and a place for them.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

pub fn speculator() -> Command {
    Command::new(env!("CARGO_BIN_EXE_speculator"))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {} {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// A server, ended at the end.
pub struct Server {
    pub child: Child,
    pub address: String,
}

impl Server {
    pub fn start(store: &Path, listen: &str) -> Server {
        Server::with(store, &["--plain", "--listen", listen])
    }

    pub fn with(store: &Path, options: &[&str]) -> Server {
        let mut command = speculator();
        command.arg("serve").arg(store).args(options).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a server");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        assert!(address.starts_with("bluefs://"), "{line}");
        Server { child, address }
    }

    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("a port")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mount, unmounted at the end.
pub struct Mount(pub PathBuf);

impl Mount {
    pub fn new(address: &str, dir: &Path, options: &[&str]) -> Mount {
        std::fs::create_dir_all(dir).expect("a directory");
        succeeds(speculator().args(["mount", address]).arg(dir).args(options));
        Mount(dir.to_owned())
    }

    pub fn is_there(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
        mounts.lines().any(|line| line.split(' ').nth(1) == self.0.to_str())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

pub struct Scene {
    pub dir: TempDir,
}

impl Scene {
    pub fn new() -> Scene {
        Scene { dir: TempDir::with_prefix("bluefs-").expect("a directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn serve(&self) -> Server {
        Server::start(&self.path("store"), "127.0.0.1:0")
    }
}
