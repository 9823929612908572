//! Unsafe code of sockets: filters, and the network that a socket is in.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One step of a filter.
type Step = libc::sock_filter;

/// Where a packet begins, seen from its TCP header (`SKF_NET_OFF`).
const NETWORK: u32 = -0x10_0000i32 as u32;
/// More cannot be let in at once: a filter takes memory that the kernel bounds (`net.core.optmem_max`).
pub const PORTS_MAX: usize = 256;

const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const END: u32 = libc::BPF_RET | libc::BPF_K;
const ALL: u32 = u32::MAX;
const NOTHING: u32 = 0;

fn step(code: u32, k: u32, jt: u8, jf: u8) -> Step {
    Step { code: code as u16, jt, jf, k }
}

/// Let nothing reach a TCP socket but a segment that resets its connection, until [`remove_filter`].
pub fn let_only_resets_in(socket: BorrowedFd<'_>) -> io::Result<()> {
    /// Where a TCP header has its flags, and the one for a reset.
    const FLAGS_AT: u32 = 13;
    const RST: u32 = 4;
    let steps = [step(LOAD_BYTE, FLAGS_AT, 0, 0), step(HAS, RST, 0, 1), step(END, ALL, 0, 0), step(END, NOTHING, 0, 0)];
    attach(socket, &steps)
}

/// Let nothing reach a TCP socket but what comes from these ports of this machine's own addresses (`127.0.0.0/8`,
/// `::1`), until [`remove_filter`]. Whatever else comes is lost, as if the network had lost it. Of more than
/// [`PORTS_MAX`] ports the last ones are let in. What is accepted from here on has the same filter.
pub fn let_only_ports_in(socket: BorrowedFd<'_>, ports: &[u16]) -> io::Result<()> {
    /// Where the address of the sender is, in a header of IPv4 and in one of IPv6.
    const FROM_V4: u32 = NETWORK + 12;
    const FROM_V6: u32 = NETWORK + 8;
    const LOOPBACK_NET: u32 = 127;
    const VERSION_6: u32 = 0x60;
    let mut steps = vec![
        step(LOAD_BYTE, NETWORK, 0, 0),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xf0, 0, 0),
        step(IS, VERSION_6, 2, 0),
        step(LOAD_BYTE, FROM_V4, 0, 0),
        step(IS, LOOPBACK_NET, 9, 8),
        step(LOAD_WORD, FROM_V6, 0, 0),
        step(IS, 0, 0, 6),
        step(LOAD_WORD, FROM_V6 + 4, 0, 0),
        step(IS, 0, 0, 4),
        step(LOAD_WORD, FROM_V6 + 8, 0, 0),
        step(IS, 0, 0, 2),
        step(LOAD_WORD, FROM_V6 + 12, 0, 0),
        step(IS, 1, 1, 0),
        step(END, NOTHING, 0, 0),
        step(LOAD_HALF, 0, 0, 0),
    ];
    for &port in &ports[ports.len().saturating_sub(PORTS_MAX)..] {
        steps.extend([step(IS, port.into(), 0, 1), step(END, ALL, 0, 0)]);
    }
    steps.push(step(END, NOTHING, 0, 0));
    attach(socket, &steps)
}

fn attach(socket: BorrowedFd<'_>, steps: &[Step]) -> io::Result<()> {
    // The kernel reads the steps, and changes none.
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_ptr().cast_mut() };
    set(socket, libc::SO_ATTACH_FILTER, &program)
}

/// Take a filter away again.
pub fn remove_filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SO_DETACH_FILTER, &0i32)
}

fn set<T>(socket: BorrowedFd<'_>, option: i32, value: &T) -> io::Result<()> {
    let len = size_of_val(value) as libc::socklen_t;
    // SAFETY: the value is ours, as long as it says, and what it points to lives until the call is over.
    let answer = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, std::ptr::from_ref(value).cast(), len)
    };
    check(answer)
}

/// Whether a socket may have a filter.
pub fn has_filter(socket: BorrowedFd<'_>) -> bool {
    let mut len: libc::socklen_t = 0;
    let nowhere = std::ptr::null_mut();
    // SAFETY: there is room for nothing, so that only the length is told.
    let answer =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_GET_FILTER, nowhere, &raw mut len) };
    check(answer).is_err() || len != 0
}

/// The identity of the network namespace that a socket is in (Linux 5.14).
pub fn network_of(socket: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_NETNS_COOKIE: i32 = 71;
    let mut cookie = 0u64;
    let mut len = size_of_val(&cookie) as libc::socklen_t;
    let at = (&raw mut cookie).cast();
    // SAFETY: both are ours, and there is room for as much as the length says.
    let answer = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, at, &raw mut len) };
    check(answer).map(|()| cookie)
}

fn check(answer: i32) -> io::Result<()> {
    match answer {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// A client with a port of its own, which is not connected yet.
    fn client(any: &str) -> (rustix::fd::OwnedFd, u16) {
        use rustix::net::{bind, getsockname, socket, AddressFamily, SocketType};
        let any: std::net::SocketAddr = any.parse().unwrap();
        let family = if any.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::STREAM, None).unwrap();
        bind(&socket, &any).unwrap();
        let name = std::net::SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        (socket, name.port())
    }

    #[test]
    fn only_these_ports_get_in() {
        for (listens, any) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("[::]:0", "127.0.0.1:0")] {
            let Ok(listener) = TcpListener::bind(listens) else { continue };
            let address = listener.local_addr().unwrap();
            let reached = std::net::SocketAddr::new(any.parse::<std::net::SocketAddr>().unwrap().ip(), address.port());
            assert!(!has_filter(listener.as_fd()));
            let ((known, port), (other, _)) = (client(any), client(any));
            let_only_ports_in(listener.as_fd(), &[1, port, 2]).unwrap();
            assert!(has_filter(listener.as_fd()));
            rustix::net::connect(&known, &reached).unwrap();
            let (mut accepted, _) = listener.accept().unwrap();
            let mut stream = TcpStream::from(known);
            stream.write_all(b"in").unwrap();
            let mut two = [0; 2];
            accepted.read_exact(&mut two).unwrap();
            assert_eq!((&two, has_filter(accepted.as_fd())), (b"in", true), "{listens}");
            // A moment is enough for the loopback device.
            rustix::io::ioctl_fionbio(&other, true).unwrap();
            assert_eq!(rustix::net::connect(&other, &reached), Err(rustix::io::Errno::INPROGRESS));
            std::thread::sleep(Duration::from_millis(20));
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "{listens}");
            remove_filter(listener.as_fd()).unwrap();
            remove_filter(accepted.as_fd()).unwrap();
            assert!(!has_filter(listener.as_fd()) && !has_filter(accepted.as_fd()));
        }
    }

    #[test]
    fn all_sockets_of_a_network_tell_the_same() {
        let (one, _) = client("127.0.0.1:0");
        let (other, _) = client("127.0.0.1:0");
        assert_eq!(network_of(one.as_fd()).unwrap(), network_of(other.as_fd()).unwrap());
    }
}
