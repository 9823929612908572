//! A server, mounts and a place for them.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, waitid, Pid, Signal, WaitId, WaitIdOptions};
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

/// Sends a signal to a child. After SIGSTOP this waits until the child has stopped: on a busy machine its threads run
/// on for a while.
#[track_caller]
pub fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("sent");
    let begun = Instant::now();
    let is_stopped = || {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(pid), options).expect("a child").is_some_and(|status| status.stopped())
    };
    while signal == Signal::STOP && !is_stopped() {
        assert!(begun.elapsed() < Duration::from_secs(25), "{child:?} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
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
        command.arg("serve").arg(store).args(options);
        Server::by(command)
    }

    /// By this command.
    pub fn by(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a server");
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

/// What a mount is told about its right, unless its options do: servers of tests are plain ones mostly.
fn right(options: &[&str]) -> Option<&'static str> {
    (!options.contains(&"--invitation")).then_some("--plain")
}

/// A mount, unmounted at the end.
pub struct Mount(pub PathBuf);

impl Mount {
    pub fn new(address: &str, dir: &Path, options: &[&str]) -> Mount {
        std::fs::create_dir_all(dir).expect("a directory");
        succeeds(speculator().arg("mount").args(right(options)).args([address]).arg(dir).args(options));
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

/// For how long a mount is waited for.
const MOUNTED_MAX: Duration = Duration::from_secs(25);

/// A mount whose process is a child, so that it can be stopped and killed.
pub struct Foreground {
    pub child: Child,
    pub mount: Mount,
}

impl Foreground {
    pub fn new(address: &str, dir: &Path) -> Foreground {
        Foreground::by(speculator(), &[], address, dir)
    }

    /// By this command, which is `speculator`, with options.
    pub fn by(mut command: Command, options: &[&str], address: &str, dir: &Path) -> Foreground {
        std::fs::create_dir_all(dir).expect("a directory");
        command
            .arg("mount")
            .args(right(options))
            .args(options)
            .arg(address)
            .arg(dir)
            .arg("--foreground")
            .stdout(Stdio::null());
        let (child, mount) = (command.spawn().expect("a mount"), Mount(dir.to_owned()));
        let begun = Instant::now();
        while !mount.is_there() {
            assert!(begun.elapsed() < MOUNTED_MAX, "it is not mounted");
            std::thread::sleep(Duration::from_millis(10));
        }
        Foreground { child, mount }
    }

    pub fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.mount.is_there() {
            let _ = Command::new("umount").arg("-l").arg(&self.mount.0).stderr(Stdio::null()).status();
        }
    }
}

/// A line to a server, which can be held: then nothing arrives, and nobody hears of it.
pub struct Line {
    pub address: String,
    held: Arc<AtomicBool>,
    /// What comes behind so many bytes of a direction is held, too.
    held_behind: Arc<AtomicU64>,
    flights: Arc<Mutex<Flights>>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

/// How often something was sent to the server after something had come from there, a round trip later at least: both
/// ends may send a flight in parts.
#[derive(Default)]
struct Flights {
    count: u32,
    to_server: bool,
    last: Option<Instant>,
    round_trip: Duration,
}

impl Line {
    /// To the server at this address; from an address of this machine.
    pub fn new(server: &str) -> Line {
        let to = server.trim_start_matches("bluefs://").trim_end_matches('/').to_owned();
        Line::between(TcpListener::bind("127.0.0.1:0").expect("a port"), to)
    }

    /// From whoever connects here to there.
    pub fn between(listener: TcpListener, to: String) -> Line {
        let address = format!("bluefs://{}", listener.local_addr().expect("an address"));
        let (held, sockets) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let flights = Arc::new(Mutex::new(Flights::default()));
        let held_behind = Arc::new(AtomicU64::new(u64::MAX));
        let (holds, holds_behind) = (held.clone(), held_behind.clone());
        let line = Line {
            address,
            held: holds,
            held_behind: holds_behind,
            flights: flights.clone(),
            sockets: sockets.clone(),
        };
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&to)) else { continue };
                for (from, to, to_server) in [(&near, &far, true), (&far, &near, false)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    to.set_nodelay(true).expect("a socket");
                    let (held, held_behind, flights) = (held.clone(), held_behind.clone(), flights.clone());
                    std::thread::spawn(move || {
                        carry(from, to, (&held, &held_behind), || flights.lock().expect("no panic").note(to_server));
                    });
                }
                sockets.lock().expect("no panic").extend([near, far]);
            }
        });
        line
    }

    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
        self.held_behind.store(u64::MAX, Ordering::SeqCst);
    }

    /// Lets so many bytes of each direction of a connection through, and holds the rest.
    pub fn hold_behind(&self, bytes: u64) {
        self.held_behind.store(bytes, Ordering::SeqCst);
    }

    /// How often the client has sent something, and what followed on it was sent behind an answer.
    pub fn flights(&self) -> u32 {
        self.flights.lock().expect("no panic").count
    }

    pub fn count_flights(&self, round_trip: Duration) {
        *self.flights.lock().expect("no panic") = Flights { round_trip, ..Flights::default() };
    }

    /// Ends every connection. Others can be made.
    pub fn cut(&self) {
        self.sockets.lock().expect("no panic").drain(..).for_each(|socket| _ = socket.shutdown(Shutdown::Both));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.hold(false);
        self.cut();
    }
}

impl Flights {
    fn note(&mut self, to_server: bool) {
        let is_later = self.last.is_none_or(|last| last.elapsed() >= self.round_trip.mul_f64(0.9));
        if to_server && !self.to_server && is_later {
            (self.count, self.last) = (self.count + 1, Some(Instant::now()));
        }
        self.to_server = to_server;
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, (held, behind): (&AtomicBool, &AtomicU64), arrived: impl Fn()) {
    let (mut bytes, mut carried) = (vec![0; 1 << 16], 0);
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        carried += len as u64;
        while held.load(Ordering::SeqCst) || carried > behind.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        arrived();
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
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

    /// Two mounts of a server's volume, as two machines would have them.
    pub fn two_mounts(&self, server: &Server) -> (Mount, Mount) {
        let mount = |name| Mount::new(&server.address, &self.path(name), &[]);
        (mount("a"), mount("b"))
    }
}

/// What `speculator top` says of a mount, as JSON; `None`: it is not shown.
pub fn shown(dir: &Path) -> Option<serde_json::Value> {
    let output = speculator().args(["top", "--json"]).output().expect("it starts");
    let lines = text(&output.stdout);
    let mut all = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    all.find(|one| one["mount"].as_str() == dir.to_str())
}
