//! Where the directory of a peer is: a server at the other end of a line, its mount at this one, and what a step took.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::network::{Carried, Network, Shape};

use crate::guest::{self, Guest};
use crate::inside::{built, output_of, repository};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
/// What `/proc` counts processor time in.
const TICKS_PER_S: f64 = 100.0;

/// What a step took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    pub seconds: f64,
    /// To the server, and back.
    pub carried: [Carried; 2],
    /// Processor time of the server's processes, s.
    pub server_s: f64,
}

/// Who is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Local,
    Bluefs,
    Sshfs,
    Rclone,
    /// NFS-ganesha, by the kernel's client in a guest.
    NfsInGuest,
    /// BlueFS in the same guest, to compare the one before with.
    BluefsInGuest,
}

impl Peer {
    /// All of them, in the order of the tables.
    const ALL: [Peer; 6] =
        [Peer::Local, Peer::Bluefs, Peer::Sshfs, Peer::Rclone, Peer::NfsInGuest, Peer::BluefsInGuest];

    /// As tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Local => "local disk",
            Peer::Bluefs => "BlueFS",
            Peer::Sshfs => "sshfs",
            Peer::Rclone => "rclone",
            Peer::NfsInGuest => "NFS, in a guest",
            Peer::BluefsInGuest => "BlueFS, in a guest",
        }
    }

    /// What it needs, and is not on every machine.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Peer::Local | Peer::Bluefs => &[],
            Peer::Sshfs => &["sshfs", "sshd"],
            Peer::Rclone => &["rclone", "sshd"],
            Peer::NfsInGuest | Peer::BluefsInGuest => &["linux.uml", "kmod", "ganesha.nfsd"],
        }
    }

    fn is_in_guest(self) -> bool {
        matches!(self, Peer::NfsInGuest | Peer::BluefsInGuest)
    }

    fn is_bluefs(self) -> bool {
        matches!(self, Peer::Bluefs | Peer::BluefsInGuest)
    }
}

/// Those that are there, and a line for each that is not.
pub fn peers() -> (Vec<Peer>, Vec<String>) {
    let (mut there, mut notes) = (Vec::new(), Vec::new());
    for peer in Peer::ALL {
        let missing: Vec<&str> = peer.programs().iter().copied().filter(|name| program(name).is_none()).collect();
        if missing.is_empty() {
            there.push(peer);
        } else {
            let (name, missing) = (peer.name(), missing.join(" and "));
            notes.push(format!("{name} was left out: {missing} is not there (cargo xtask peers)"));
        }
    }
    let others = "JuiceFS (the proxy of Go's modules does not have it) and ZeroFS (it keeps its files in an object \
                  store, and has no client of its own) were left out";
    notes.push(others.to_owned());
    (there, notes)
}

/// Where a program is: on this system, or where `cargo xtask peers` puts it.
fn program(name: &str) -> Option<PathBuf> {
    let own = unpacked();
    let dirs = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    let dirs = dirs.into_iter().chain(["usr/bin", "usr/sbin", "bin"].map(|dir| own.join(dir)));
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Where packages of peers are unpacked, without being installed.
fn unpacked() -> PathBuf {
    repository().join("target/peers/root")
}

/// Where a peer's directory is, with its server.
pub struct Place {
    peer: Peer,
    dir: PathBuf,
    network: Network,
    server: Option<Child>,
    guest: Option<Guest>,
}

impl Place {
    pub fn new(peer: Peer, dir: PathBuf, shape: Shape) -> Result<Place, String> {
        let network = Network::new(shape).map_err(|error| error.to_string())?;
        for sub in ["mount", "remote"] {
            std::fs::create_dir_all(dir.join(sub))
                .map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        }
        let mut place = Place { peer, dir, network, server: None, guest: None };
        place.serve()?;
        if peer.is_in_guest() {
            place.guest = Some(Guest::start(&place.network, &unpacked(), &place.dir)?);
        }
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
            Peer::Bluefs | Peer::BluefsInGuest => {
                let mut command = far.command(built("speculator"));
                command.arg("serve").arg(self.file("store")).args(["--listen", &format!("{address}:7164")]);
                (command, 7164)
            }
            Peer::Sshfs | Peer::Rclone => {
                self.configure_sshd()?;
                let sshd = program("sshd").ok_or("no sshd")?;
                // Its processes for connections end with it, also those whose line is gone. It wants a user of its own,
                // which the system has if the package is installed.
                let script = "mount --bind \"$1\" /etc/passwd; shift; exec \"$@\"";
                let mut command = far.command("unshare");
                command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]);
                command.arg(self.file("passwd")).arg(sshd).args(["-D", "-f"]).arg(self.file("sshd_config"));
                command.env("LD_LIBRARY_PATH", unpacked().join("usr/lib/x86_64-linux-gnu"));
                (command, 2222)
            }
            Peer::NfsInGuest => {
                self.configure_ganesha()?;
                let root = unpacked();
                let libraries = ["usr/lib/x86_64-linux-gnu", "usr/lib/ganesha", "usr/lib/x86_64-linux-gnu/ganesha"];
                let libraries = libraries.map(|dir| root.join(dir).display().to_string()).join(":");
                let mut command = far.command("unshare");
                command.args(["--pid", "--fork", "--kill-child"]).arg(root.join("usr/bin/ganesha.nfsd")).arg("-F");
                command.arg("-f").arg(self.file("ganesha.conf")).arg("-p").arg(self.file("ganesha.pid"));
                command.arg("-L").arg(self.file("ganesha.log")).env("LD_LIBRARY_PATH", libraries);
                (command, 2049)
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
        if self.peer.is_bluefs() {
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
            let mut users = std::fs::read_to_string("/etc/passwd")?;
            if !users.lines().any(|line| line.starts_with("sshd:")) {
                users += "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n";
            }
            std::fs::write(self.file("passwd"), users)?;
            std::fs::write(self.file("sshd_config"), config)
        });
        written.map_err(|error| format!("cannot configure sshd: {error}"))
    }

    /// NFS 4 through one port, without Kerberos and the services that earlier versions need.
    fn configure_ganesha(&self) -> Result<(), String> {
        let root = unpacked();
        let config = format!(
            "NFS_Core_Param {{ Plugins_Dir = \"{}\"; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
             NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{}\"; Only_Numeric_Owners = true; \
             UseGetpwnam = true; DomainName = \"local\"; }}\nNFS_KRB5 {{ Active_krb5 = false; }}\n\
             EXPORT {{ Export_Id = 1; Path = \"{}\"; Pseudo = \"/remote\"; Access_Type = RW; \
             Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }} }}\n",
            root.join("usr/lib/x86_64-linux-gnu/ganesha").display(),
            self.file("recovery").display(),
            self.file("remote").display()
        );
        let written = std::fs::create_dir_all(self.file("recovery"))
            .and_then(|()| std::fs::write(self.file("ganesha.conf"), config));
        written.map_err(|error| format!("cannot configure NFS-ganesha: {error}"))
    }

    /// Has the guest run something.
    fn in_guest(&mut self, script: &str) -> Result<(), String> {
        self.guest.as_mut().ok_or("no guest")?.run(script)
    }

    fn mount_in_guest(&mut self) -> Result<(), String> {
        let (address, mount) = (self.network.far().address(), self.file("mount").display().to_string());
        let script = match self.peer {
            Peer::BluefsInGuest => format!(
                "{} mount bluefs://{address}:7164/ {mount} --invitation {}",
                built("speculator").display(),
                self.file("invitation").display()
            ),
            // Without a helper of mount(8), which may not be there.
            _ => format!(
                "mount -i -t nfs4 -o vers=4.2,sec=sys,addr={address},clientaddr={} {address}:/remote {mount}",
                guest::ADDRESS
            ),
        };
        self.in_guest(&script)
    }

    fn mount(&mut self) -> Result<(), String> {
        if self.peer.is_in_guest() {
            return self.mount_in_guest();
        }
        let (near, address) = (self.network.near(), self.network.far().address());
        let (remote, mount) = (self.file("remote"), self.file("mount"));
        let command = match self.peer {
            Peer::Local | Peer::NfsInGuest | Peer::BluefsInGuest => return Ok(()),
            Peer::Bluefs => {
                let mut command = near.command(built("speculator"));
                command.args(["mount", &format!("bluefs://{address}:7164/")]).arg(mount);
                command.arg("--invitation").arg(self.file("invitation"));
                command
            }
            Peer::Sshfs => {
                let mut command = near.command("sshfs");
                let key = format!("IdentityFile={}", self.file("key").display());
                command.arg(format!("root@{address}:{}", remote.display())).arg(mount);
                command.args(["-p", "2222", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
                command.args(["-o", &key, "-o", "LogLevel=ERROR"]);
                command
            }
            Peer::Rclone => {
                let mut command = near.command(program("rclone").ok_or("no rclone")?);
                command.arg("mount").arg(format!(":sftp:{}", remote.display())).arg(mount);
                command.args(["--sftp-host", &address.to_string(), "--sftp-port", "2222", "--sftp-user", "root"]);
                command.arg("--sftp-key-file").arg(self.file("key"));
                // Without it a file cannot be read and written at once, which git does.
                command.args(["--vfs-cache-mode", "writes", "--daemon", "--config", "/dev/null"]);
                command.arg("--cache-dir").arg(self.file("cache"));
                command
            }
        };
        output_of(command).map(|_| ())
    }

    fn unmount(&mut self) -> Result<(), String> {
        if self.peer == Peer::Local {
            return Ok(());
        }
        if self.peer.is_in_guest() {
            let script = format!("umount {}", self.file("mount").display());
            return self.in_guest(&script);
        }
        let mut command = Command::new("umount");
        command.arg(self.file("mount"));
        output_of(command).map(|_| ())
    }

    /// Puts a tree there, in no time that counts: not over the line where the server's directory is one.
    pub fn put(&self, tree: &Path) -> Result<(), String> {
        let script = match self.peer {
            Peer::Local => "cp -r \"$1\" \"$2/mount/\"",
            Peer::Sshfs | Peer::Rclone | Peer::NfsInGuest => "cp -r \"$1\" \"$2/remote/\"",
            Peer::Bluefs | Peer::BluefsInGuest => {
                "cd \"$1/..\"; t=${1##*/}; { find \"$t\" -type d -printf 'mkdir %p\\n'; \
                 find \"$t\" -type f -printf 'put %p %p\\n'; } > \"$2/list\"; split -l 4000 \"$2/list\" \"$2/part-\"; \
                 for p in \"$2\"/part-*; do \"$3\" bluefs batch \"$4\" --invitation \"$2/invitation\" \"$p\"; done"
            }
        };
        let address = format!("bluefs://{}:7164/", self.network.far().address());
        let mut command = self.network.far().command("sh");
        command.args(["-ec", script, "sh"]).arg(tree).arg(&self.dir).arg(built("speculator")).arg(address);
        output_of(command).map(|_| ())
    }

    /// Runs a script in the directory, mounted anew if it `is_cold`: what that takes.
    pub fn step(&mut self, script: &str, is_cold: bool, variables: &[(&str, String)]) -> Result<Took, String> {
        if is_cold {
            self.unmount()?;
            self.mount()?;
        }
        let (before, server_s) = (self.network.carried(), self.server_s());
        // A repository of another owner is no concern here.
        let git = [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")];
        let git = git.map(|(name, value)| (name, value.to_owned()));
        let variables = variables.iter().chain(&git);
        let begun = Instant::now();
        if self.peer.is_in_guest() {
            let set: String = variables.map(|(name, value)| format!("export {name}='{value}'\n")).collect();
            self.in_guest(&format!("{set}cd {}\n{script}\n", self.file("mount").display()))?;
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(self.file("mount")).env("LC_ALL", "C");
            command.envs(variables.map(|(name, value)| (name, value)));
            output_of(command)?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let (after, server_s) = (self.network.carried(), self.server_s() - server_s);
        let carried = [0, 1].map(|i| Carried {
            packets: after[i].packets - before[i].packets,
            bytes: after[i].bytes - before[i].bytes,
            lost: after[i].lost - before[i].lost,
        });
        Ok(Took { seconds, carried, server_s })
    }

    /// Processor time of the server and of all that it has started, s.
    fn server_s(&self) -> f64 {
        self.server.as_ref().map_or(0.0, |server| ticks_of(server.id()) / TICKS_PER_S)
    }
}

/// Of a process, of those that it has waited for, and of its descendants.
fn ticks_of(pid: u32) -> f64 {
    // proc(5): user and system time, and those of children that were waited for, are the 14th to 17th field, the 12th
    // to 15th behind the name.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let own: f64 = fields.skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> = children.flat_map(|all| numbers(&all)).collect();
    own + children.into_iter().map(ticks_of).sum::<f64>()
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_processor_time_is_its_parents() {
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", &format!("({busy}); read x")]).stdin(Stdio::piped()).spawn().expect("sh");
        let begun = Instant::now();
        while ticks_of(shell.id()) < 2.0 {
            assert!(begun.elapsed() < PATIENCE, "{} ticks", ticks_of(shell.id()));
            std::thread::sleep(PAUSE);
        }
        drop(shell.stdin.take());
        shell.wait().expect("a child");
    }
}
