//! Questions about this machine's addresses, links and routes (rtnetlink(7)), as `getifaddrs` asks them.
//!
//! They are answered by the kernel alone, and what it says is changed only by calls that wait for each guess. The
//! socket is the caller's own: one that was made since its last checkpoint goes with a rollback, and what waits in it.

use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use rustix::net::sockopt::{socket_domain, socket_protocol};
use rustix::net::AddressFamily;
use std::os::fd::OwnedFd;
use syscall_table::nr;
use syscall_table::Op;

impl Supervisor {
    /// A call on such a socket; `None` if it is another one.
    pub(in crate::ahead) fn plan_netlink(&mut self, call: &Call, op: Op, ino: u64, copy: &OwnedFd) -> Option<Plan> {
        if socket_domain(copy) != Ok(AddressFamily::NETLINK) {
            return None;
        }
        // NETLINK_ROUTE is 0.
        let is_route = matches!(socket_protocol(copy), Ok(None));
        let is_question = match op {
            Op::SocketName { .. } if call.frame.nr == nr::bind => is_kernel_or_nobody(call, call.frame.args[1]),
            Op::SocketName { .. } => call.frame.nr == nr::getsockname,
            Op::Send { .. } => asks(call, call.frame.args[1], call.frame.args[2], call.frame.args[4]),
            Op::SendMsg { .. } => asks_in_message(call),
            Op::Read { .. } | Op::Recv { .. } | Op::RecvMsg { .. } | Op::Ioctl | Op::Fcntl => true,
            _ => false,
        };
        let is_own = is_route && is_question && self.is_fresh(call, ino);
        Some(Plan::new(if is_own { Class::Free } else { Class::Barrier }).once())
    }
}

/// Whether an address names no groups, whose messages would tell what others do, and no other process.
fn is_kernel_or_nobody(call: &Call, at: u64) -> bool {
    // `sockaddr_nl`: family and padding, the other end, its groups.
    const LEN: usize = 12;
    at == 0 || tracee::read_bytes(call.tid, at, LEN).is_ok_and(|address| address[4..].iter().all(|&byte| byte == 0))
}

fn asks_in_message(call: &Call) -> bool {
    let header: std::io::Result<[u64; 7]> = tracee::read_value(call.tid, call.frame.args[1]);
    let Ok([name, _, vector, 1, 0, ..]) = header else { return false };
    let piece: std::io::Result<[u64; 2]> = tracee::read_value(call.tid, vector);
    piece.is_ok_and(|[at, len]| asks(call, at, len, name))
}

/// Whether a message asks the kernel for something, and for nothing else.
fn asks(call: &Call, at: u64, len: u64, to: u64) -> bool {
    const LEN_MAX: u64 = 4096;
    len <= LEN_MAX
        && is_kernel_or_nobody(call, to)
        && tracee::read_bytes(call.tid, at, len as usize).is_ok_and(|message| is_question(&message))
}

/// Whether a message has only requests for links, addresses and routes in it.
fn is_question(message: &[u8]) -> bool {
    const HEADER_LEN: usize = 16;
    const RTM_GETLINK: u16 = 18;
    const RTM_GETADDR: u16 = 22;
    const RTM_GETROUTE: u16 = 26;
    let mut rest = message;
    while !rest.is_empty() {
        let Some((header, _)) = rest.split_at_checked(HEADER_LEN) else { return false };
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let is_known = matches!(kind, RTM_GETLINK | RTM_GETADDR | RTM_GETROUTE);
        if !is_known || !(HEADER_LEN..=rest.len()).contains(&len) {
            return false;
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    !message.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: u16, len: u32, body: usize) -> Vec<u8> {
        let mut message = Vec::from(len.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.resize(16 + body, 0);
        message
    }

    #[test]
    fn only_requests_for_what_is_there_are_questions() {
        assert!(is_question(&request(22, 20, 4)) && is_question(&request(18, 17, 1)));
        let both = [request(18, 20, 4), request(22, 20, 4)].concat();
        assert!(is_question(&both));
        // RTM_NEWADDR; more than there is; less than a header; nothing; a second one that changes something.
        assert!(!is_question(&request(20, 20, 4)) && !is_question(&request(22, 24, 4)));
        assert!(!is_question(&request(22, 15, 4)) && !is_question(&[]) && !is_question(&[0; 15]));
        let mixed = [request(22, 20, 4), request(17, 20, 4)].concat();
        assert!(!is_question(&mixed));
    }
}
