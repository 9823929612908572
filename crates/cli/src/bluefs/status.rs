//! What `speculator top` asks a mount, and what it hears.
//!
//! As a world does, the process behind a mount listens on a Unix socket with an abstract name, and whoever connects
//! gets one JSON object. Only the user who mounts, and root, are answered, and only their mounts are listened to.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bluefs_client::Watch;
use rustix::process::getpid;
use serde::{Deserialize, Serialize};
use supervisor::status_sockets;

/// Begin of the names; the process id follows.
const PREFIX: &str = "speculator-mount-";
/// Who is slower than this is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// A mount, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// Where it is.
    pub mount: String,
    /// The process behind it.
    pub process: i32,
    /// The volume.
    pub volume: String,
    /// How old the mount is, microseconds.
    pub age_us: u64,
    /// Whether the server can be reached.
    pub is_connected: bool,
    /// Operations that wait for the server.
    pub in_flight: u64,
    /// Questions that were answered from memory.
    pub hits: u64,
    /// Questions to the server, also those that were asked ahead.
    pub asked: u64,
    /// Changes.
    pub changes: u64,
    /// Leases: groups of 64 inodes of which the mount says by itself what is in them.
    pub leases: u64,
}

/// Answers whoever asks about this mount, until the process ends.
pub fn serve(watch: Watch, volume: String, dir: &Path) -> io::Result<()> {
    let process = getpid().as_raw_nonzero().get();
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("{PREFIX}{process}"))?)?;
    let (mount, begin) = (dir.display().to_string(), Instant::now());
    let status = move || {
        let (is_connected, counts) = watch.look()?;
        let age_us = begin.elapsed().as_micros() as u64;
        let (in_flight, hits, asked) = (counts.in_flight, counts.hits, counts.asked);
        let (changes, leases, mount, volume) = (counts.changes, counts.leases, mount.clone(), volume.clone());
        Some(MountStatus { mount, process, volume, age_us, is_connected, in_flight, hits, asked, changes, leases })
    };
    let answer = move || {
        for stream in listener.incoming().flatten() {
            // Whoever went away meanwhile does not want to know.
            let _ = tell(stream, status());
        }
    };
    std::thread::Builder::new().name("status".to_owned()).spawn(answer).map(drop)
}

fn tell(mut stream: UnixStream, status: Option<MountStatus>) -> io::Result<()> {
    if !status_sockets::may_be_answered(&stream)? {
        return Ok(());
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(&status).map_err(io::Error::other)?)
}

/// The mounts on this machine that this user may look at.
pub fn mounts() -> io::Result<Vec<MountStatus>> {
    let ask = |name: &String| status_sockets::ask::<Option<MountStatus>>(name, PATIENCE).ok().flatten();
    Ok(status_sockets::names(PREFIX)?.iter().filter_map(ask).collect())
}
