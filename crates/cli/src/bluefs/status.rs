//! What `speculator top` asks a mount or a server, and what it hears.
//!
//! As a world does, the process behind a mount, and that of a server, listens on a Unix socket with an abstract name,
//! and whoever connects gets one JSON object. Only the user whose process it is, and root, are answered, and only their
//! processes are listened to.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bluefs_client::Watch;
use bluefs_server::Gauge;
use rustix::process::getpid;
use serde::{Deserialize, Serialize};
use supervisor::status_sockets;

/// Begin of the names; the process id follows.
const PREFIX: &str = "speculator-mount-";
const SERVER_PREFIX: &str = "speculator-serve-";
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
    /// Bytes that were sent to the server, and that came from it.
    pub sent_bytes: u64,
    /// See `sent_bytes`.
    pub received_bytes: u64,
    /// Contents of changes that are on the server's disk.
    pub written_bytes: u64,
    /// Contents of changes that the server has not answered yet: who has made them waits.
    pub unwritten_bytes: u64,
    /// The cache on disk, if there is one.
    pub cache: Option<CacheStatus>,
}

/// The cache on disk of a mount, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Blocks that were read from there, in place of from the server.
    pub hits: u64,
    /// Their bytes.
    pub hit_bytes: u64,
    /// Bytes that it takes up.
    pub bytes: u64,
    /// Whether it was turned off, as the disk is full or fails.
    pub is_off: bool,
}

/// Answers whoever asks about this mount, until the process ends.
pub fn serve(watch: Watch, volume: String, dir: &Path) -> io::Result<()> {
    let process = getpid().as_raw_nonzero().get();
    let (mount, begin) = (dir.display().to_string(), Instant::now());
    let status = move || {
        let (is_connected, counts) = watch.look()?;
        Some(MountStatus {
            mount: mount.clone(),
            process,
            volume: volume.clone(),
            age_us: begin.elapsed().as_micros() as u64,
            is_connected,
            in_flight: counts.in_flight,
            hits: counts.hits,
            asked: counts.asked,
            changes: counts.changes,
            leases: counts.leases,
            sent_bytes: counts.sent_bytes,
            received_bytes: counts.received_bytes,
            written_bytes: counts.written_bytes,
            unwritten_bytes: counts.unwritten_bytes,
            cache: counts.disk.map(|disk| CacheStatus {
                hits: disk.hits,
                hit_bytes: disk.hit_bytes,
                bytes: disk.bytes,
                is_off: disk.is_off,
            }),
        })
    };
    answer(&format!("{PREFIX}{process}"), status)
}

/// A server, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its address.
    pub server: String,
    /// Its process.
    pub process: i32,
    /// The directory of its store.
    pub store: String,
    /// How long it has been running, microseconds.
    pub age_us: u64,
    /// Clients that are connected.
    pub connections: u64,
    /// Messages of clients.
    pub messages: u64,
    /// Bytes that came from clients, and that were sent to them.
    pub received_bytes: u64,
    /// See `received_bytes`.
    pub sent_bytes: u64,
    /// Turns: each is made durable as a whole.
    pub turns: u64,
    /// How long all turns took, microseconds.
    pub turns_us: u64,
    /// All volumes.
    pub volumes: Vec<VolumeStatus>,
}

/// A volume of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Commits since it was made.
    pub commits: u64,
    /// Clients that are connected.
    pub connected: u64,
    /// Leases of all clients.
    pub leases: u64,
    /// Locks of all clients.
    pub locks: u64,
    /// Clients whose change waits for leases of others.
    pub waiting: u64,
    /// Bytes that it holds.
    pub used_bytes: u64,
}

/// Answers whoever asks about this server, until the process ends.
pub fn serve_server(gauge: Gauge, server: String, store: &Path) -> io::Result<()> {
    // As whoever asks about it from elsewhere names it.
    let store = std::fs::canonicalize(store).unwrap_or_else(|_| store.to_owned());
    let (process, store) = (getpid().as_raw_nonzero().get(), store.display().to_string());
    let status = move || {
        let figures = gauge.look();
        let volume = |volume: bluefs_server::VolumeFigures| VolumeStatus {
            name: volume.name,
            commits: volume.commits,
            connected: volume.connected as u64,
            leases: volume.leases as u64,
            locks: volume.locks as u64,
            waiting: volume.waiting as u64,
            used_bytes: volume.space.used_bytes,
        };
        ServerStatus {
            server: server.clone(),
            process,
            store: store.clone(),
            age_us: figures.up.as_micros() as u64,
            connections: figures.connections as u64,
            messages: figures.messages,
            received_bytes: figures.received_bytes,
            sent_bytes: figures.sent_bytes,
            turns: figures.turns,
            turns_us: figures.turn_time.as_micros() as u64,
            volumes: figures.volumes.into_iter().map(volume).collect(),
        }
    };
    answer(&format!("{SERVER_PREFIX}{process}"), status)
}

/// Answers whoever connects to this name.
fn answer<T: Serialize>(name: &str, status: impl Fn() -> T + Send + 'static) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    let answer = move || {
        for stream in listener.incoming().flatten() {
            // Whoever went away meanwhile does not want to know.
            let _ = tell(stream, &status());
        }
    };
    std::thread::Builder::new().name("status".to_owned()).spawn(answer).map(drop)
}

fn tell(mut stream: UnixStream, status: &impl Serialize) -> io::Result<()> {
    if !status_sockets::may_be_answered(&stream)? {
        return Ok(());
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(status).map_err(io::Error::other)?)
}

/// The mounts on this machine that this user may look at.
pub fn mounts() -> io::Result<Vec<MountStatus>> {
    let ask = |name: &String| status_sockets::ask::<Option<MountStatus>>(name, PATIENCE).ok().flatten();
    Ok(status_sockets::names(PREFIX)?.iter().filter_map(ask).collect())
}

/// The servers on this machine that this user may look at.
pub fn servers() -> io::Result<Vec<ServerStatus>> {
    let ask = |name: &String| status_sockets::ask(name, PATIENCE).ok();
    Ok(status_sockets::names(SERVER_PREFIX)?.iter().filter_map(ask).collect())
}
