//! Everyday work on a directory of a server at the other end of a line: BlueFS, sshfs, and a local disk.
//!
//! Each row says what it took, and the line says exactly what went over it. What is durable when a command returns
//! differs: see the notes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::network::{Carried, Network, Shape};

use crate::figure::{Base, Figure, Series};
use crate::inside::{built, machine, output_of, Workshop};
use crate::Options;

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
const SSHD: &str = "/usr/sbin/sshd";

/// A step of the work.
struct Row {
    name: &'static str,
    /// Whether the directory is mounted anew before it, so that no client has anything in its caches.
    cold: bool,
    /// For `sh`, in the directory. `$IN` has what is put in, `$MB` the size of the large file.
    script: &'static str,
}

const ROWS: [Row; 11] = [
    Row { name: "untar", cold: false, script: "tar -xf $IN/tree.tar" },
    Row { name: "list and stat, cold", cold: true, script: "find tree -printf '%s\\n' > /dev/null" },
    Row { name: "list and stat, again", cold: false, script: "find tree -printf '%s\\n' > /dev/null" },
    Row { name: "read all files, cold", cold: true, script: "find tree -type f -exec cat {} + > /dev/null" },
    Row { name: "read all files, again", cold: false, script: "find tree -type f -exec cat {} + > /dev/null" },
    Row { name: "rm -rf", cold: false, script: "rm -rf tree" },
    Row { name: "git clone", cold: false, script: "git clone -q file://$IN/repository clone" },
    Row { name: "git status", cold: false, script: "git -C clone status --short" },
    Row { name: "git checkout", cold: false, script: "git -C clone checkout -q other" },
    Row {
        name: "write a large file",
        cold: false,
        script: "dd if=/dev/zero of=large bs=1M count=$MB conv=fsync status=none",
    },
    Row { name: "read a large file, cold", cold: true, script: "dd if=large of=/dev/null bs=1M status=none" },
];

/// Runs it.
pub fn run(options: &Options) -> Result<Vec<Figure>, String> {
    let work = Workshop::open()?;
    let files = if options.quick { 40 } else { 1000 };
    make_input(work.path(), files)?;
    let mut figures = Vec::new();
    for (name, round_trip) in [("bluefs-0ms", 0), ("bluefs-30ms", 30)] {
        figures.push(figure(options, &work, name, Duration::from_millis(round_trip), files)?);
    }
    Ok(figures)
}

fn figure(
    options: &Options,
    work: &Workshop,
    name: &'static str,
    round_trip: Duration,
    files: u32,
) -> Result<Figure, String> {
    let peers = peers();
    let mut series: Vec<Series> = Vec::new();
    for row in &ROWS {
        series.extend(peers.iter().map(|peer| Series::new(format!("{}: {}", row.name, peer.name()))));
    }
    let mut carried = BTreeMap::new();
    let megabytes = if options.quick { 8 } else { 128 };
    for run in 0..options.runs {
        for (index, peer) in peers.iter().enumerate() {
            let dir = work.file(&format!("{name}-{}-{run}", peer.name().replace(' ', "-")));
            let mut place = Place::new(*peer, dir, round_trip)?;
            for (row, step) in ROWS.iter().enumerate() {
                let (seconds, bytes) = place.step(step, work.path(), megabytes)?;
                series[row * peers.len() + index].values.push(seconds);
                carried.insert((row, index), (seconds, bytes));
            }
        }
    }
    let shape = format!("{} ms, no limit of its rate", round_trip.as_millis());
    let mut notes = vec![
        format!("{}; a line of {shape}; {files} files of 1 to 20 KB, a large file of {megabytes} MB", machine()),
        "durable when a command returns: BlueFS: everything; sshfs and the local disk: nothing without fsync"
            .to_owned(),
    ];
    if !peers.contains(&Peer::Sshfs) {
        notes.push("sshfs was left out: the packages sshfs and openssh-server are not there".to_owned());
    }
    for ((row, index), (seconds, [there, back])) in carried {
        if there.packets == 0 {
            continue;
        }
        let trips = match round_trip.as_secs_f64() {
            0.0 => String::new(),
            trip => format!(", the time of {:.0} round trips", seconds / trip),
        };
        notes.push(format!(
            "{}: {}: {} packets and {} bytes there, {} and {} back{trips} (last run)",
            ROWS[row].name,
            peers[index].name(),
            there.packets,
            there.bytes,
            back.packets,
            back.bytes
        ));
    }
    let title = format!("Everyday work on a server's directory, {shape}");
    Ok(Figure { name, title, unit: "s", series, base: Base::Groups(peers.len()), targets: Vec::new(), notes })
}

/// A tree of small files as an archive, and a repository with two branches.
fn make_input(dir: &Path, files: u32) -> Result<(), String> {
    let script = r#"set -e; cd "$1"; mkdir tree; i=0
        while [ $i -lt $2 ]; do
            d=tree/d$((i / 20)); [ -d $d ] || mkdir $d
            head -c $((1000 + i * 7919 % 19000)) /dev/zero | tr '\0' x > $d/f$i; i=$((i + 1))
        done
        tar -cf tree.tar tree
        git init -q repository; cp -r tree repository/; cd repository
        git config user.email bench@localhost; git config user.name bench
        git add .; git commit -q -m one; git checkout -q -b other
        for f in tree/d0/*; do echo more >> $f; done; git rm -rq tree/d1; git commit -q -a -m two; git checkout -q -"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(dir).arg(files.to_string());
    output_of(command).map(|_| ())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Local,
    Bluefs,
    Sshfs,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Local => "local disk",
            Peer::Bluefs => "BlueFS",
            Peer::Sshfs => "sshfs",
        }
    }
}

fn peers() -> Vec<Peer> {
    let sshfs = Command::new("sshfs").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let sshfs = sshfs.is_ok_and(|status| status.success()) && Path::new(SSHD).exists();
    [Some(Peer::Local), Some(Peer::Bluefs), sshfs.then_some(Peer::Sshfs)].into_iter().flatten().collect()
}

/// Where a peer's directory is, with its server.
struct Place {
    peer: Peer,
    dir: PathBuf,
    network: Network,
    server: Option<Child>,
}

impl Place {
    fn new(peer: Peer, dir: PathBuf, round_trip: Duration) -> Result<Place, String> {
        let network = Network::new(Shape { round_trip, ..Shape::default() }).map_err(|error| error.to_string())?;
        for sub in ["mount", "remote"] {
            std::fs::create_dir_all(dir.join(sub))
                .map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        }
        let mut place = Place { peer, dir, network, server: None };
        place.serve()?;
        place.mount()?;
        Ok(place)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn serve(&mut self) -> Result<(), String> {
        let (far, address) = (self.network.far(), self.network.far().address());
        let (mut command, port) = match self.peer {
            Peer::Local => return Ok(()),
            Peer::Bluefs => {
                let mut command = far.command(built("speculator"));
                command.arg("serve").arg(self.file("store")).args(["--listen", &format!("{address}:7164")]);
                (command, 7164)
            }
            Peer::Sshfs => {
                self.configure_sshd()?;
                // Its processes for connections end with it, also those whose line is gone.
                let mut command = far.command("unshare");
                command.args(["--pid", "--fork", "--kill-child", SSHD, "-D", "-f"]).arg(self.file("sshd_config"));
                (command, 2222)
            }
        };
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.server = Some(started.map_err(|error| format!("cannot start a server: {error}"))?);
        let waited = far.run(move || {
            let end = Instant::now() + PATIENCE;
            while std::net::TcpStream::connect((address, port)).is_err() && Instant::now() < end {
                std::thread::sleep(PAUSE);
            }
        });
        waited.join().map_err(|_| "a thread ended")?.map_err(|error| format!("no network: {error}"))?;
        if self.peer == Peer::Bluefs {
            let mut invite = Command::new(built("speculator"));
            invite.arg("invite").arg(self.file("store"));
            let invitation = output_of(invite)?;
            std::fs::write(self.file("invitation"), invitation).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn configure_sshd(&self) -> Result<(), String> {
        for key in ["host_key", "key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(self.file(key));
            output_of(keygen)?;
        }
        let written = std::fs::create_dir_all("/run/sshd").and_then(|()| {
            let config = format!(
                "Port 2222\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
                 PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n",
                self.file("host_key").display(),
                self.file("key.pub").display()
            );
            std::fs::write(self.file("sshd_config"), config)
        });
        written.map_err(|error| format!("cannot configure sshd: {error}"))
    }

    fn mount(&self) -> Result<(), String> {
        let (near, address) = (self.network.near(), self.network.far().address());
        let command = match self.peer {
            Peer::Local => return Ok(()),
            Peer::Bluefs => {
                let mut command = near.command(built("speculator"));
                command.args(["mount", &format!("bluefs://{address}:7164/")]).arg(self.file("mount"));
                command.arg("--invitation").arg(self.file("invitation"));
                command
            }
            Peer::Sshfs => {
                let mut command = near.command("sshfs");
                let key = format!("IdentityFile={}", self.file("key").display());
                command.arg(format!("root@{address}:{}", self.file("remote").display())).arg(self.file("mount"));
                command.args(["-p", "2222", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
                command.args(["-o", &key, "-o", "LogLevel=ERROR"]);
                command
            }
        };
        output_of(command).map(|_| ())
    }

    fn unmount(&self) -> Result<(), String> {
        if self.peer == Peer::Local {
            return Ok(());
        }
        let mut command = Command::new("umount");
        command.arg(self.file("mount"));
        output_of(command).map(|_| ())
    }

    /// Runs a step: how long it takes, and what goes over the line.
    fn step(&mut self, row: &Row, input: &Path, megabytes: u32) -> Result<(f64, [Carried; 2]), String> {
        if row.cold {
            self.unmount()?;
            self.mount()?;
        }
        let before = self.network.carried();
        let begun = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", row.script]).current_dir(self.file("mount"));
        output_of(command_with(command, input, megabytes)).map_err(|problem| format!("{}: {problem}", row.name))?;
        let seconds = begun.elapsed().as_secs_f64();
        let after = self.network.carried();
        let difference = |i: usize| Carried {
            packets: after[i].packets - before[i].packets,
            bytes: after[i].bytes - before[i].bytes,
            lost: after[i].lost - before[i].lost,
        };
        Ok((seconds, [difference(0), difference(1)]))
    }
}

fn command_with(mut command: Command, input: &Path, megabytes: u32) -> Command {
    command.env("IN", input).env("MB", megabytes.to_string()).env("LC_ALL", "C");
    // A repository of another owner is no concern here.
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
    command
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(problem) = self.unmount() {
            eprintln!("bench: {problem}");
        }
        if let Some(mut server) = self.server.take() {
            // It may have ended by itself.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
