//! A guest: Linux as a program (user-mode-linux), with file systems that this machine's kernel has not, such as NFS.
//!
//! Its root directory is this machine's (`hostfs`), so that it runs the same programs. Its network is a device of the
//! near host, which passes its packets on to the line. A call costs more there than outside: what is measured in a
//! guest is compared with what is measured in a guest.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use testkit::network::{Host, Network};

use crate::inside::output_of;

/// Its address, and that of the near host on their own network.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 1);
/// What it says when it is there, and, with a status, when it has done something.
const SIGN: &str = "@@";
const PATIENCE: Duration = Duration::from_secs(10);

/// Modules of its kernel, each behind those that it needs.
const MODULES: &str = "net/dns_resolver/dns_resolver fs/netfs/netfs fs/fscache/fscache net/sunrpc/sunrpc \
    fs/nfs_common/grace fs/lockd/lockd fs/nfs/nfs fs/nfs/nfsv4 fs/fuse/fuse";

/// The programs that are asked for once before anything is measured: each is read from this machine's files then.
const PROGRAMS: &str = "tar find cat rm git dd ls mkdir";

/// One that runs.
pub struct Guest {
    kernel: Child,
    /// Paths of scripts, one a line.
    words: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    dir: PathBuf,
}

impl Guest {
    /// Starts it. `unpacked`: where the packages of peers are; `dir` is for its files.
    pub fn start(network: &Network, unpacked: &Path, dir: &Path) -> Result<Guest, String> {
        let script = |host: &Host, script: &str| {
            let mut command = host.command("sh");
            command.args(["-ec", script]);
            output_of(command).map(drop)
        };
        script(
            network.near(),
            &format!(
                "ip tuntap add mode tap name guest; ip address add {GATEWAY}/24 dev guest; ip link set guest up; \
                 echo 1 > /proc/sys/net/ipv4/ip_forward"
            ),
        )?;
        script(network.far(), "ip route add 10.99.1.0/24 dev line")?;
        let init = dir.join("init");
        std::fs::write(&init, init_script(unpacked))
            .and_then(|()| std::fs::set_permissions(&init, Permissions::from_mode(0o755)))
            .map_err(|error| format!("cannot write the guest's first program: {error}"))?;
        // The processes of its programs end with it.
        let mut command = network.near().command("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(unpacked.join("usr/bin/linux.uml"));
        command.args(["mem=1024M", "rootfstype=hostfs", "rootflags=/", "rw", "quiet", "con=null", "con0=fd:0,fd:1"]);
        command.arg(format!("init={}", init.display())).arg("vec0:transport=tap,ifname=guest,gro=1");
        // Its memory is a file there.
        command.env("TMPDIR", "/dev/shm").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut kernel = command.spawn().map_err(|error| format!("cannot start a guest: {error}"))?;
        let (Some(words), Some(lines)) = (kernel.stdin.take(), kernel.stdout.take()) else {
            return Err("a guest without a console".to_owned());
        };
        let mut guest = Guest { kernel, words: Some(words), lines: BufReader::new(lines), dir: dir.to_owned() };
        guest.await_sign()?;
        guest.run(&format!("for p in {PROGRAMS}; do $p --version; done"))?;
        Ok(guest)
    }

    /// Has its `sh` run something.
    pub fn run(&mut self, script: &str) -> Result<(), String> {
        let file = self.dir.join("guest-script");
        let kernel = |error| format!("cannot speak with the guest: {error}");
        std::fs::write(&file, script).map_err(kernel)?;
        let words = self.words.as_mut().ok_or("the guest is over")?;
        writeln!(words, "{}", file.display()).and_then(|()| words.flush()).map_err(kernel)?;
        match self.await_sign()?.as_str() {
            "0" => Ok(()),
            status => {
                let said =
                    std::fs::read_to_string(PathBuf::from(format!("{}.out", file.display()))).unwrap_or_default();
                let end = said.lines().last().unwrap_or_default();
                Err(format!("in the guest: status {status}: {end}"))
            }
        }
    }

    /// What it says next; messages of its kernel are passed over.
    fn await_sign(&mut self) -> Result<String, String> {
        let mut heard = Vec::new();
        loop {
            let mut line = Vec::new();
            match self.lines.read_until(b'\n', &mut line) {
                Ok(1..) => {}
                _ => return Err(format!("the guest has ended: {}", heard.join(" / "))),
            }
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if let Some(said) = line.strip_prefix(SIGN) {
                return Ok(said.trim().to_owned());
            }
            heard.push(line);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It ends when there is nothing more to read.
        drop(self.words.take());
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && matches!(self.kernel.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.kernel.kill();
        let _ = self.kernel.wait();
    }
}

/// What runs as its first process.
fn init_script(unpacked: &Path) -> String {
    let root = unpacked.display();
    format!(
        r#"#!/bin/sh
exec < /dev/tty0 > /dev/tty0 2>&1
stty raw -echo
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /run
modules={root}/usr/lib/uml/modules/$(uname -r)/kernel
ln -s {root}/bin/kmod /run/insmod
for module in {MODULES}; do
    LD_LIBRARY_PATH={root}/lib/x86_64-linux-gnu:{root}/usr/lib/x86_64-linux-gnu /run/insmod $modules/$module.ko
done
ip link set lo up; ip link set vec0 up; ip address add {ADDRESS}/24 dev vec0; ip route add default via {GATEWAY}
export HOME=/run PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
echo {SIGN} there
while read -r file; do sh "$file" > "$file.out" 2>&1 < /dev/null; echo {SIGN} $?; done
echo o > /proc/sysrq-trigger
sleep 10
"#
    )
}
