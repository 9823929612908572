//! A server of BlueFS that is measured: how long it takes to start, what it uses, and what its store takes up.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bluefs_client::{Client, OnDisconnect, Ticket};

use crate::inside::{built, output_of};

/// What `/proc` counts processor time in.
const TICKS_PER_S: f64 = 100.0;
/// How long a server may take to open its store, and to end.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server with its store, ended when dropped.
pub struct Served {
    store: PathBuf,
    address: String,
    child: Child,
    /// How long it took until it listened, s.
    pub opened_s: f64,
}

/// What a server uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Processor time since it was started, s.
    pub cpu_s: f64,
    /// Memory of its own, and the most that it has had, MiB.
    pub memory_mib: f64,
    pub peak_mib: f64,
    /// Bytes that its log and its state take up on the disk.
    pub log_bytes: u64,
    pub state_bytes: u64,
}

impl Served {
    /// Starts one; the store is made if it is not there.
    pub fn start(store: &Path) -> Result<Served, String> {
        let begun = Instant::now();
        let mut command = Command::new(built("speculator"));
        command.arg("serve").arg(store).args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start a server: {error}"))?;
        let stdout = child.stdout.take().ok_or("a server without output")?;
        let mut line = String::new();
        // It says where it listens as soon as it does.
        BufReader::new(stdout).read_line(&mut line).map_err(|error| format!("the server: {error}"))?;
        let opened_s = begun.elapsed().as_secs_f64();
        let address = line.trim().rsplit(' ').next().filter(|last| last.starts_with("bluefs://"));
        let Some(address) = address.map(str::to_owned) else {
            let _ = child.wait();
            return Err(format!("the server says {line:?}"));
        };
        Ok(Served { store: store.to_owned(), address, child, opened_s })
    }

    /// Ends it in order, and starts it again.
    pub fn restart(self) -> Result<Served, String> {
        let store = self.store.clone();
        drop(self);
        Served::start(&store)
    }

    /// Kills it, and starts it again.
    pub fn killed(mut self) -> Result<Served, String> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.restart()
    }

    /// An invitation, in a file. One invitation has a bound of connections.
    pub fn invitation(&self, number: usize) -> Result<PathBuf, String> {
        let file = self.store.with_extension(format!("invitation-{number}"));
        if !file.exists() {
            let mut invite = Command::new(built("speculator"));
            invite.arg("invite").arg(&self.store);
            std::fs::write(&file, output_of(invite)?).map_err(|error| error.to_string())?;
        }
        Ok(file)
    }

    /// A client of it.
    pub fn client(&self) -> Result<Client, String> {
        self.client_by(0)
    }

    /// A client with this invitation.
    pub fn client_by(&self, number: usize) -> Result<Client, String> {
        let text = std::fs::read_to_string(self.invitation(number)?).map_err(|error| error.to_string())?;
        let mut words = text.split_whitespace().skip(2).map(from_hex);
        let (Some(Some(fingerprint)), Some(Some(secret))) = (words.next(), words.next()) else {
            return Err(format!("{text:?} is no invitation"));
        };
        let address = self.address.parse().map_err(|error: bluefs_client::AddressError| error.to_string())?;
        let ticket = Some(Ticket { fingerprint, secret });
        Client::connect(address, ticket, OnDisconnect::Block).map_err(|error| error.to_string())
    }

    /// Mounts it.
    pub fn mount(&self, dir: &Path) -> Result<Mount, String> {
        std::fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let device = || std::fs::metadata(dir).map_or(0, |metadata| metadata.dev());
        let (before, begun) = (device(), Instant::now());
        let mut command = Command::new(built("speculator"));
        command.args(["mount", "--foreground", &self.address]).arg(dir).arg("--invitation").arg(self.invitation(0)?);
        let child = command.spawn().map_err(|error| format!("cannot start a mount: {error}"))?;
        let mut mount = Mount { dir: dir.to_owned(), child };
        while device() == before {
            if begun.elapsed() > PATIENCE || !matches!(mount.child.try_wait(), Ok(None)) {
                return Err(format!("{} is not mounted", dir.display()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(mount)
    }

    /// What it uses now.
    pub fn used(&self) -> Used {
        let pid = self.child.id();
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        // proc(5): user and system time are the 14th and 15th field, the 12th and 13th behind the name.
        let stat = read("stat");
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        let files = std::fs::read_dir(&self.store).into_iter().flatten().flatten();
        let (mut log_bytes, mut state_bytes) = (0, 0);
        for file in files {
            let bytes = file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
            match file.file_name().to_string_lossy().as_ref() {
                "state" => state_bytes += bytes,
                name if name.starts_with("log-") => log_bytes += bytes,
                _ => {}
            }
        }
        let (memory_mib, peak_mib) = (memory_mib(pid, "VmRSS:"), memory_mib(pid, "VmHWM:"));
        Used { cpu_s: ticks / TICKS_PER_S, memory_mib, peak_mib, log_bytes, state_bytes }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // By SIGTERM it makes a checkpoint first.
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A mount, taken away when dropped.
pub struct Mount {
    dir: PathBuf,
    child: Child,
}

impl Mount {
    /// Memory of its process, MiB.
    pub fn memory_mib(&self) -> f64 {
        memory_mib(self.child.id(), "VmRSS:")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let ended = Command::new("umount").arg(&self.dir).status();
        if !ended.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").args(["-l", "-f"]).arg(&self.dir).status();
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A line of a process's status, MiB.
fn memory_mib(pid: u32, what: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib: Option<f64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let bytes = (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read() {
        assert_eq!(from_hex(&"0f".repeat(32)), Some([15; 32]));
        assert_eq!([from_hex("0f"), from_hex(&"0g".repeat(32))], [None, None]);
    }
}
