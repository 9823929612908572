//! `connect` to a port of this machine where nobody listens: it is refused, and nobody hears of it.
//!
//! The call is made here, with a filter on the socket that lets nothing in but a reset. Should somebody have begun to
//! listen there at this very moment, the connection does not come about, and the call waits for the guess.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::objects::sockets::sys;
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use procfs::ThreadId;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{connect, connect_unspec};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use tracee::{Result, Stopped};

/// Longer than the loopback device ever takes.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

impl Supervisor {
    /// A speculative process connects a TCP socket that it has just made to what would refuse it; `None`: something
    /// else.
    pub(in crate::ahead) fn plan_refused(&mut self, call: &Call, ino: u64, copy: &OwnedFd) -> Option<Plan> {
        let address = own_address(call)?;
        let is_possible = self.ahead.is_speculative(call.pid)
            && self.is_fresh(call, ino)
            && !listens(call.tid, address.port())
            && !sys::has_filter(copy.as_fd());
        let socket = copy.try_clone().ok().filter(|_| is_possible)?;
        Some(Plan::new(Class::Refused { socket, address }).once())
    }

    /// Make the call, and answer it if it is refused.
    pub(in crate::ahead) fn connect_in_vain(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        socket: &OwnedFd,
        address: SocketAddr,
    ) -> Result<Decision> {
        let tracked = self.track(stopped, call, Plan::tracked_once(), Vec::new())?;
        if matches!(tracked, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        match refusal(socket, address).ok().flatten() {
            Some(error) => {
                self.observe_everything(call.tid);
                Ok(Decision::Answer(-i64::from(error.raw_os_error())))
            }
            None => Ok(self.wait_at_barrier(call)),
        }
    }
}

/// The address of a `connect`, if it is this machine's own.
pub(super) fn own_address(call: &Call) -> Option<SocketAddr> {
    let [_, at, len, ..] = call.frame.args;
    let bytes = tracee::read_bytes(call.tid, at, len.min(28) as usize).ok()?;
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?)) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            let ip = Ipv4Addr::from(ip);
            (ip.is_loopback() && bytes.len() >= 16).then_some(SocketAddr::from((ip, port)))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let ip = Ipv6Addr::from(ip);
            (ip == Ipv6Addr::LOCALHOST).then_some(SocketAddr::from((ip, port)))
        }
        _ => None,
    }
}

/// Whether anybody may listen at a port, on whatever address, where this thread is.
fn listens(tid: ThreadId, port: u16) -> bool {
    const IPV4: &str = "net/tcp";
    let is_there = |name: &str| {
        match procfs::text(tid, name) {
            Ok(table) => table.lines().skip(1).any(|line| is_listener(line, port)),
            // A kernel without IPv6 has no such table.
            Err(error) => name == IPV4 || !matches!(error, procfs::Error::Missing { .. }),
        }
    };
    port == 0 || is_there(IPV4) || is_there("net/tcp6")
}

/// A line of the table: number, own address with its port, the other one, state.
fn is_listener(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut words = line.split_whitespace().skip(1);
    let own = words.next().and_then(|address| u16::from_str_radix(address.rsplit(':').next()?, 16).ok());
    own == Some(port) && words.nth(1) == Some(LISTEN)
}

/// The error that the call gives, if it is refused; the socket is then what the call would leave.
fn refusal(socket: &OwnedFd, address: SocketAddr) -> io::Result<Option<Errno>> {
    let flags = rustix::fs::fcntl_getfl(socket)?;
    sys::let_only_resets_in(socket.as_fd())?;
    let begun = rustix::fs::fcntl_setfl(socket, flags | OFlags::NONBLOCK).and_then(|()| attempt(socket, address));
    let removed = sys::remove_filter(socket.as_fd());
    rustix::fs::fcntl_setfl(socket, flags)?;
    removed?;
    let waits = !flags.contains(OFlags::NONBLOCK);
    Ok(match begun? {
        // Whoever waits is told at once, and the socket is not connecting any more; anybody else finds the error later.
        Some(Errno::INPROGRESS) if waits => connect(socket, &address).err(),
        error => error,
    })
}

/// What `connect` says, if it is refused at once or soon. Otherwise it is as if it had not been called.
fn attempt(socket: &OwnedFd, address: SocketAddr) -> rustix::io::Result<Option<Errno>> {
    let error = connect(socket, &address).err();
    let is_refused = match error {
        Some(Errno::INPROGRESS) => {
            let mut ready = [PollFd::new(socket, PollFlags::OUT)];
            poll(&mut ready, Some(&PATIENCE))? == 1 && ready[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
        }
        error => error == Some(Errno::CONNREFUSED),
    };
    if !is_refused {
        connect_unspec(socket)?;
    }
    Ok(error.filter(|_| is_refused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_error;
    use rustix::net::{socket, AddressFamily, SocketType};
    use std::net::TcpListener;

    fn tcp() -> OwnedFd {
        socket(AddressFamily::INET, SocketType::STREAM, None).unwrap()
    }

    #[test]
    fn only_listeners_at_the_port_count() {
        let line = "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert!(is_listener(line, 8080) && !is_listener(line, 8081));
        assert!(!is_listener(&line.replace(" 0A ", " 01 "), 8080) && !is_listener("", 0));
    }

    #[test]
    fn who_waits_is_refused_and_who_does_not_finds_the_error() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let waiting = tcp();
        assert_eq!(refusal(&waiting, port).unwrap(), Some(Errno::CONNREFUSED));
        assert_eq!(refusal(&waiting, port).unwrap(), Some(Errno::CONNREFUSED));
        let other = tcp();
        rustix::io::ioctl_fionbio(&other, true).unwrap();
        let error = refusal(&other, port).unwrap();
        assert!(matches!(error, Some(Errno::INPROGRESS | Errno::CONNREFUSED)), "{error:?}");
        if error == Some(Errno::INPROGRESS) {
            assert_eq!(socket_error(&other), Ok(Err(Errno::CONNREFUSED)));
        }
        assert!(!sys::has_filter(other.as_fd()));
    }

    #[test]
    fn who_listens_hears_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (client, address) = (tcp(), listener.local_addr().unwrap());
        assert_eq!(refusal(&client, address).unwrap(), None);
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        // It can be made afterwards.
        assert_eq!(connect(&client, &address), Ok(()));
        assert!(listener.accept().is_ok());
    }
}
