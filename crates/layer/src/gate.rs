//! What leads past files: system calls that change the machine or speak to somebody outside.
//!
//! A seccomp filter lets everything else pass at once and puts these to us. What changes the machine fails with EPERM,
//! and is told in the report. What speaks is looked at: to a process inside it passes; to outside it passes only if
//! that was allowed. Namespaces and capabilities that were given up stand behind this: what the filter does not see,
//! the kernel refuses.

use procfs::{MagicLink, ThreadId};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::attempt::Network;
use crate::sys::{self, Question};

/// Calls that change the machine, or reach what has no layer: they fail with EPERM.
const REFUSED: &[(i64, &str)] = &[
    (libc::SYS_mount, "mount"),
    (libc::SYS_umount2, "umount"),
    (libc::SYS_pivot_root, "pivot_root"),
    (libc::SYS_move_mount, "move_mount"),
    (libc::SYS_open_tree, "open_tree"),
    (libc::SYS_fsopen, "fsopen"),
    (libc::SYS_fspick, "fspick"),
    (libc::SYS_mount_setattr, "mount_setattr"),
    (libc::SYS_swapon, "swapon"),
    (libc::SYS_swapoff, "swapoff"),
    (libc::SYS_reboot, "reboot"),
    (libc::SYS_kexec_load, "kexec_load"),
    (libc::SYS_kexec_file_load, "kexec_file_load"),
    (libc::SYS_init_module, "init_module"),
    (libc::SYS_finit_module, "finit_module"),
    (libc::SYS_delete_module, "delete_module"),
    (libc::SYS_settimeofday, "settimeofday"),
    (libc::SYS_clock_settime, "clock_settime"),
    (libc::SYS_sethostname, "sethostname"),
    (libc::SYS_setdomainname, "setdomainname"),
    (libc::SYS_acct, "acct"),
    (libc::SYS_quotactl, "quotactl"),
    (libc::SYS_bpf, "bpf"),
    (libc::SYS_ioperm, "ioperm"),
    (libc::SYS_iopl, "iopl"),
    (libc::SYS_setns, "setns"),
    (libc::SYS_add_key, "add_key"),
    (libc::SYS_request_key, "request_key"),
    (libc::SYS_keyctl, "keyctl"),
    (libc::SYS_open_by_handle_at, "open_by_handle_at"),
    (libc::SYS_vhangup, "vhangup"),
];

/// Calls that a program can do without, and that would not be seen: ENOSYS, as on a kernel without them.
const ABSENT: &[i64] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Calls that may speak to somebody.
const SPEAKING: &[i64] =
    &[libc::SYS_connect, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_listen];

/// Capabilities that are given up: with them something outside the layer could be changed.
/// CAP_NET_ADMIN and CAP_NET_RAW stay when the network is one of our own.
const CAPABILITIES: &[u32] = &[
    2,  // CAP_DAC_READ_SEARCH: file handles lead past the layer (CAP_DAC_OVERRIDE is enough for the rest)
    9,  // CAP_LINUX_IMMUTABLE
    16, // CAP_SYS_MODULE
    17, // CAP_SYS_RAWIO
    20, // CAP_SYS_PACCT
    21, // CAP_SYS_ADMIN
    22, // CAP_SYS_BOOT
    25, // CAP_SYS_TIME
    30, // CAP_AUDIT_CONTROL
    29, // CAP_AUDIT_WRITE
    32, // CAP_MAC_OVERRIDE
    33, // CAP_MAC_ADMIN
    34, // CAP_SYSLOG
    35, // CAP_WAKE_ALARM
    36, // CAP_BLOCK_SUSPEND
    37, // CAP_AUDIT_READ
    38, // CAP_PERFMON
    39, // CAP_BPF
    40, // CAP_CHECKPOINT_RESTORE
];
const NETWORK_CAPABILITIES: &[u32] = &[12, 13]; // CAP_NET_ADMIN, CAP_NET_RAW

/// What COMMAND may not have.
pub fn capabilities(network: Network) -> Vec<u32> {
    let own_network = network == Network::No;
    let more = if own_network { &[] } else { NETWORK_CAPABILITIES };
    CAPABILITIES.iter().chain(more).copied().collect()
}

/// The filter.
pub fn filter() -> Vec<libc::sock_filter> {
    const LD: u16 = 0x20;
    const JEQ: u16 = 0x15;
    const JGE: u16 = 0x35;
    const RET: u16 = 0x06;
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    const X32_BIT: u32 = 0x4000_0000;
    const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let arg = |n: u32, half: u32| 16 + 8 * n + 4 * half;
    let mut program = vec![
        op(LD, 0, 0, 4),
        op(JEQ, 1, 0, AUDIT_ARCH_X86_64),
        op(RET, 0, 0, NO_SUCH_CALL),
        op(LD, 0, 0, 0),
        op(JGE, 0, 1, X32_BIT),
        op(RET, 0, 0, NO_SUCH_CALL),
    ];
    for &nr in ABSENT {
        program.extend([op(JEQ, 0, 1, nr as u32), op(RET, 0, 0, NO_SUCH_CALL)]);
    }
    let asked = REFUSED.iter().map(|(nr, _)| *nr).chain(SPEAKING.iter().copied().filter(|&nr| nr != libc::SYS_sendto));
    for nr in asked {
        program.extend([op(JEQ, 0, 1, nr as u32), op(RET, 0, 0, libc::SECCOMP_RET_USER_NOTIF)]);
    }
    // sendto(2) without an address goes where the socket is connected to: that was asked before.
    program.extend([
        op(JEQ, 0, 5, libc::SYS_sendto as u32),
        op(LD, 0, 0, arg(4, 0)),
        op(JEQ, 0, 2, 0),
        op(LD, 0, 0, arg(4, 1)),
        op(JEQ, 1, 0, 0),
        op(RET, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        op(RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
    program
}

/// Somebody who decides whether COMMAND may speak to outside: asked once. When the descriptor can be read, nobody waits
/// for the answer any more.
pub type Asker = Box<dyn Fn(&Reached, BorrowedFd<'_>) -> bool + Send>;

/// The same, with the descriptor.
pub type Asking = Box<dyn Fn(&Reached) -> bool + Send>;

/// An attempt to reach past the layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reached {
    /// The program's name.
    pub program: String,
    /// What it wanted, for people: `connect to 93.184.216.34:443/tcp`.
    pub what: String,
    /// What came of it.
    pub verdict: Verdict,
    /// How often.
    pub times: u64,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It failed.
    Refused,
    /// It happened, and cannot be undone.
    Allowed,
}

/// Answers questions until nobody is left who could ask.
pub struct Gate {
    listener: OwnedFd,
    network: Network,
    asker: Option<Asking>,
    answer: Option<bool>,
    reached: Arc<Mutex<Vec<Reached>>>,
}

impl Gate {
    /// What is found out is put into `reached`.
    pub fn new(listener: OwnedFd, network: Network, asker: Option<Asking>, reached: Arc<Mutex<Vec<Reached>>>) -> Gate {
        Gate { listener, network, asker, answer: None, reached }
    }

    /// Until the last process inside is gone.
    pub fn run(mut self) {
        loop {
            if !self.await_question() {
                return;
            }
            match sys::next_question(self.listener.as_fd()) {
                Ok(question) => {
                    let errno = self.judge(&question);
                    let _ = sys::answer(self.listener.as_fd(), question.id, errno);
                }
                // The one who asked was killed meanwhile.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                Err(_) => return,
            }
        }
    }

    fn await_question(&self) -> bool {
        use rustix::event::{poll, PollFd, PollFlags};
        loop {
            let mut polls = [PollFd::new(&self.listener, PollFlags::IN)];
            match poll(&mut polls, None) {
                Ok(_) => return polls[0].revents().contains(PollFlags::IN),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// The errno that the call gets, or `None`: it may be made.
    fn judge(&mut self, question: &Question) -> Option<i32> {
        let nr = i64::from(question.nr);
        if let Some((_, name)) = REFUSED.iter().find(|(refused, _)| *refused == nr) {
            self.note(question, (*name).to_owned(), Verdict::Refused);
            return Some(libc::EPERM);
        }
        let [fd, first, _, _, fourth, fifth] = question.args;
        match nr {
            libc::SYS_connect => {
                let address = read_address(question, first, question.args[2]);
                self.speak(question, fd, "connect to", address)
            }
            libc::SYS_sendto => self.speak(question, fd, "send to", read_address(question, fourth, fifth)),
            libc::SYS_sendmsg => self.speak(question, fd, "send to", read_message(question, first)),
            libc::SYS_sendmmsg => self.speak(question, fd, "send to", read_message(question, first)),
            libc::SYS_listen => self.listen(question, fd),
            _ => None,
        }
    }

    fn listen(&mut self, question: &Question, fd: u64) -> Option<i32> {
        if self.network == Network::No {
            return None;
        }
        let socket = descriptor(question.tid, fd)?;
        let address = rustix::net::getsockname(&socket).ok()?;
        let address = SocketAddr::try_from(address).ok()?;
        self.decide(question, format!("listen on {address}"), libc::EACCES)
    }

    fn speak(&mut self, question: &Question, fd: u64, verb: &str, address: Option<Address>) -> Option<i32> {
        let own_network = self.network == Network::No;
        match address? {
            Address::Internet(address) if own_network && address.ip().is_loopback() => None,
            Address::Internet(address) => {
                let what = format!("{verb} {address}{}", protocol(question.tid, fd));
                self.decide(question, what, libc::ENETUNREACH)
            }
            Address::Abstract(_) if own_network => None,
            Address::Abstract(name) => self.decide(question, format!("{verb} @{name}"), libc::ECONNREFUSED),
            Address::Path(path) => {
                // The layer has no sockets of others: the kernel refuses these itself.
                if self.is_outside(ThreadId::from_raw(question.tid), &path) {
                    self.note(question, format!("{verb} {}", path.display()), Verdict::Refused);
                    return Some(libc::ECONNREFUSED);
                }
                None
            }
            Address::Other(family) => {
                self.note(question, format!("{verb} a socket of family {family}"), Verdict::Refused);
                Some(libc::ENETUNREACH)
            }
        }
    }

    fn decide(&mut self, question: &Question, what: String, errno: i32) -> Option<i32> {
        let allowed = match self.network {
            Network::No => false,
            Network::Yes => true,
            Network::Ask => {
                let reached = self.attempt(question, what.clone(), Verdict::Refused);
                *self.answer.get_or_insert_with(|| self.asker.as_ref().is_some_and(|ask| ask(&reached)))
            }
        };
        let verdict = if allowed { Verdict::Allowed } else { Verdict::Refused };
        self.note(question, what, verdict);
        (!allowed).then_some(errno)
    }

    fn attempt(&self, question: &Question, what: String, verdict: Verdict) -> Reached {
        let program = procfs::program_name(ThreadId::from_raw(question.tid)).unwrap_or_default();
        Reached { program, what, verdict, times: 1 }
    }

    fn note(&self, question: &Question, what: String, verdict: Verdict) {
        let attempt = self.attempt(question, what, verdict);
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &&mut Reached| {
            (&known.program, &known.what, known.verdict) == (&attempt.program, &attempt.what, attempt.verdict)
        };
        match reached.iter_mut().find(same) {
            Some(known) => known.times += 1,
            None => reached.push(attempt),
        }
    }

    /// A socket that was there before: the same name outside is a socket, and the one inside is not a newer one.
    fn is_outside(&self, tid: ThreadId, path: &Path) -> bool {
        let seen = match path.is_absolute() {
            true => path.to_owned(),
            false => MagicLink::Cwd.shown(tid).unwrap_or_default().join(path),
        };
        let Ok(below) = seen.strip_prefix("/") else { return false };
        let inside = std::fs::metadata(MagicLink::Root.below(tid, below));
        let (Ok(inside), Ok(outside)) = (inside, std::fs::metadata(&seen)) else { return false };
        let changed = |found: &std::fs::Metadata| (found.ctime(), found.ctime_nsec());
        outside.file_type().is_socket() && inside.file_type().is_socket() && changed(&inside) == changed(&outside)
    }
}

enum Address {
    Internet(SocketAddr),
    Path(PathBuf),
    Abstract(String),
    Other(u16),
}

fn read_address(question: &Question, address: u64, len: u64) -> Option<Address> {
    if address == 0 {
        return None;
    }
    let mut bytes = [0; size_of::<libc::sockaddr_storage>()];
    let len = bytes.len().min(usize::try_from(len).ok()?);
    let have = sys::read_memory(question.tid, address, &mut bytes[..len]).ok()?;
    parse_address(&bytes[..have])
}

/// The address in a message header; that of the first message, where there are several.
fn read_message(question: &Question, header: u64) -> Option<Address> {
    let mut bytes = [0; 12];
    sys::read_memory(question.tid, header, &mut bytes).ok()?;
    let address = u64::from_ne_bytes(bytes[..8].try_into().ok()?);
    let len = u32::from_ne_bytes(bytes[8..].try_into().ok()?);
    read_address(question, address, len.into())
}

fn parse_address(bytes: &[u8]) -> Option<Address> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match i32::from(family) {
        libc::AF_UNSPEC | libc::AF_NETLINK | libc::AF_ALG => None,
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(Address::Internet((IpAddr::from(Ipv4Addr::from(ip)), port()?).into()))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let ip = Ipv6Addr::from(ip);
            let ip = ip.to_ipv4_mapped().map_or(IpAddr::from(ip), IpAddr::from);
            Some(Address::Internet((ip, port()?).into()))
        }
        libc::AF_UNIX => {
            let path = bytes.get(2..)?;
            Some(match path.first() {
                None => return None,
                Some(0) => Address::Abstract(String::from_utf8_lossy(&path[1..]).into_owned()),
                Some(_) => {
                    let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
                    Address::Path(OsString::from_vec(path[..end].to_owned()).into())
                }
            })
        }
        _ => Some(Address::Other(family)),
    }
}

fn descriptor(tid: i32, fd: u64) -> Option<OwnedFd> {
    let pid = procfs::process_of(ThreadId::from_raw(tid)).ok()?;
    sys::descriptor_of(pid.as_raw(), i32::try_from(fd).ok()?).ok()
}

fn protocol(tid: i32, fd: u64) -> &'static str {
    let kind = descriptor(tid, fd).and_then(|socket| rustix::net::sockopt::socket_type(&socket).ok());
    match kind {
        Some(rustix::net::SocketType::STREAM) => "/tcp",
        Some(rustix::net::SocketType::DGRAM) => "/udp",
        _ => "",
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({})", self.listener.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A classic BPF machine, enough for this program.
    fn run(nr: u32, arch: u32, args: [u64; 6]) -> u32 {
        let program = filter();
        let mut data = [0u8; 64];
        data[0..4].copy_from_slice(&nr.to_le_bytes());
        data[4..8].copy_from_slice(&arch.to_le_bytes());
        for (i, arg) in args.iter().enumerate() {
            data[16 + 8 * i..24 + 8 * i].copy_from_slice(&arg.to_le_bytes());
        }
        let (mut a, mut pc) = (0u32, 0usize);
        loop {
            let i = &program[pc];
            pc += 1;
            let branch = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
            match i.code {
                0x20 => a = u32::from_le_bytes(data[i.k as usize..i.k as usize + 4].try_into().unwrap()),
                0x15 => pc += branch(a == i.k),
                0x35 => pc += branch(a >= i.k),
                0x06 => return i.k,
                other => panic!("no such instruction {other:#x}"),
            }
        }
    }

    const X86_64: u32 = 0xc000_003e;

    #[test]
    fn the_filter_asks_about_what_is_listed_and_nothing_else() {
        let asked: Vec<i64> = REFUSED.iter().map(|(nr, _)| *nr).chain(SPEAKING.iter().copied()).collect();
        for nr in 0..600 {
            let expected = match () {
                () if ABSENT.contains(&nr) => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
                () if nr == libc::SYS_sendto => libc::SECCOMP_RET_ALLOW,
                () if asked.contains(&nr) => libc::SECCOMP_RET_USER_NOTIF,
                () => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(run(nr as u32, X86_64, [0; 6]), expected, "{nr}");
        }
        for address in [1, 1 << 40] {
            let answer = run(libc::SYS_sendto as u32, X86_64, [3, 0, 0, 0, address, 16]);
            assert_eq!(answer, libc::SECCOMP_RET_USER_NOTIF, "{address}");
        }
    }

    #[test]
    fn calls_of_other_architectures_do_not_exist() {
        let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        assert_eq!(run(165, 0x4000_0003, [0; 6]), absent);
        assert_eq!(run(0x4000_0000 + 165, X86_64, [0; 6]), absent);
    }

    #[test]
    fn addresses() {
        let told = |bytes: &[u8]| match parse_address(bytes) {
            Some(Address::Internet(address)) => address.to_string(),
            Some(Address::Path(path)) => path.display().to_string(),
            Some(Address::Abstract(name)) => format!("@{name}"),
            Some(Address::Other(family)) => format!("family {family}"),
            None => "nobody".to_owned(),
        };
        assert_eq!(told(&[2, 0, 1, 187, 93, 184, 216, 34, 0, 0]), "93.184.216.34:443");
        assert_eq!(told(b"\x01\0/run/x\0junk"), "/run/x");
        assert_eq!(told(b"\x01\0\0dbus"), "@dbus");
        assert_eq!(told(&[40, 0, 1]), "family 40");
        assert_eq!(told(&[16, 0]), "nobody");
        assert_eq!(told(&[1]), "nobody");
    }
}
