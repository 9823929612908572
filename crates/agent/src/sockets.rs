//! Sockets: which are inside, and messages that carry descriptors.

use crate::clocks::Call;
use crate::descriptors::{
    is_doubtful_socket, is_pair, note_outside_stream, share_descriptions, Stat, S_IFIFO, S_IFSOCK,
};
use crate::gate;
use crate::memory::read_program;
use crate::names::{locate, AT_FDCWD};
use agent_abi::{option, FdEntry, FdKind};
use core::sync::atomic::Ordering;

const AF_UNSPEC: u64 = 0;
const AF_UNIX: u64 = 1;
const CONNECT: u64 = 42;
const BIND: u64 = 49;
const SOCK_STREAM: u64 = 1;
const SOCK_DGRAM: u64 = 2;
const SOCK_SEQPACKET: u64 = 5;
const SO_TYPE: u64 = 3;
const SOL_SOCKET: u32 = 1;
const SCM_RIGHTS: u32 = 1;
/// Tells the inodes of such sockets from those of pairs in `World::sockets`; the supervisor knows it as well (supervisor::classify). Inodes of
/// sockets have 32 bits.
const MADE_INSIDE: u64 = 1 << 32;
/// What the header of one of several messages takes: the header, and how much of the message was transferred.
const HEADER_STRIDE: u64 = 64;
/// Messages that the kernel takes in one call.
const MESSAGES_MAX: u32 = 1024;
/// Words of ancillary data that are looked at; more is a barrier.
const CONTROL_WORDS: usize = 160;

/// A `struct msghdr`.
struct Message {
    name: u64,
    control: u64,
    control_len: u64,
}

impl Message {
    fn read(address: u64) -> Option<Self> {
        let mut words = [0u64; 7];
        read_program(address, &mut words).then(|| Self { name: words[0], control: words[4], control_len: words[5] })
    }

    /// Calls `each` with every descriptor in the ancillary data; false if there was more than we look at.
    fn descriptors(&self, mut each: impl FnMut(u64)) -> bool {
        if self.control == 0 || self.control_len == 0 {
            return true;
        }
        let words = (self.control_len as usize).div_ceil(8);
        if words > CONTROL_WORDS {
            return false;
        }
        let mut control = [0u64; CONTROL_WORDS];
        if !read_program(self.control, &mut control[..words]) {
            return false;
        }
        let mut at = 0;
        while at + 2 <= words {
            let len = control[at] as usize;
            let (level, kind) = (control[at + 1] as u32, (control[at + 1] >> 32) as u32);
            if len < 16 || at + len.div_ceil(8) > words {
                break;
            }
            if level == SOL_SOCKET && kind == SCM_RIGHTS {
                for i in 0..(len - 16) / 4 {
                    let word = control[at + 2 + i / 2];
                    each(u64::from(if i % 2 == 0 { word as u32 } else { (word >> 32) as u32 }));
                }
            }
            at += len.div_ceil(8);
        }
        true
    }
}

impl Call<'_> {
    pub fn receive(&mut self, position: u8) {
        self.read(position);
        self.observe_hang_up();
    }

    /// That the peer is gone tells what it did before.
    fn observe_hang_up(&self) {
        const EPIPE: i64 = -32;
        const ECONNRESET: i64 = -104;
        if matches!(self.frame.rax as i64, EPIPE | ECONNRESET) && !self.is_clean() {
            self.observe_everything();
        }
    }

    /// To the other end of a connection inside; or, with an address, wherever that leads.
    fn send_message_inside(&mut self, entry: FdEntry, has_address: bool) {
        if has_address {
            self.settle();
        }
        self.send_inside(entry);
        self.observe_hang_up();
    }

    pub fn send(&mut self, position: u8) {
        const MSG_OOB: u64 = 1;
        let entry = self.descriptor(self.arg(position));
        match entry.kind() {
            FdKind::Inside => self.send_message_inside(entry, self.arg(4) != 0),
            // Plain data on a stream can be taken for later; an address, or urgent data, waits.
            FdKind::Outside if self.arg(4) == 0 && self.arg(3) & MSG_OOB == 0 && entry.has(FdEntry::STREAM) => {
                self.write_outside(position, entry);
            }
            FdKind::Bad => {
                self.proceed();
            }
            _ => self.barrier(),
        }
    }

    pub fn receive_message(&mut self, position: u8) {
        let entry = self.descriptor(self.arg(position));
        let result = self.proceed();
        if result >= 0 && !self.is_clean() {
            self.observe_entry(entry, result);
        }
        self.observe_hang_up();
        if result >= 0 && entry.kind() != FdKind::Inside {
            self.mark_received(entry, self.arg(1));
        }
    }

    pub fn receive_messages(&mut self, position: u8) {
        let entry = self.descriptor(self.arg(position));
        let received = self.proceed();
        if received >= 0 && !self.is_clean() {
            self.observe_entry(entry, received);
        }
        self.observe_hang_up();
        if received > 0 && entry.kind() != FdKind::Inside {
            for i in 0..received as u64 {
                self.mark_received(entry, self.arg(1) + i * HEADER_STRIDE);
            }
        }
    }

    /// What came from outside is outside.
    fn mark_received(&self, socket: FdEntry, header: u64) {
        if let Some(message) = Message::read(header) {
            let mut any = false;
            let whole = message.descriptors(|fd| {
                any = true;
                self.forget(fd);
                if let Ok(stat) = Stat::of_fd(fd) {
                    if matches!(stat.kind(), S_IFIFO | S_IFSOCK) && !self.world.mark_outside(stat.hash()) {
                        self.nothing_is_inside();
                    }
                    if stat.kind() == 0 {
                        self.world.options.fetch_or(option::OUTSIDE_EVENTS, Ordering::Relaxed);
                    }
                }
            });
            // From a peer that may have been inside: others may remember these as inside.
            if !whole || any && is_doubtful_socket(socket) {
                self.nothing_is_inside();
            }
        }
    }

    pub fn send_message(&mut self, position: u8) {
        let entry = self.descriptor(self.arg(position));
        let message = Message::read(self.arg(1));
        message.iter().for_each(|message| self.note_passed(message));
        match (entry.kind(), message) {
            (FdKind::Inside, message) => {
                self.send_message_inside(entry, message.is_some_and(|message| message.name != 0))
            }
            (FdKind::Bad, _) | (_, None) => {
                self.proceed();
            }
            (FdKind::Outside, Some(message))
                if message.name == 0 && message.control_len == 0 && entry.has(FdEntry::STREAM) =>
            {
                self.write_outside(position, entry);
            }
            (_, Some(message)) => {
                self.mark_sent(&message);
                self.barrier();
            }
        }
    }

    pub fn send_messages(&mut self, position: u8) {
        let entry = self.descriptor(self.arg(position));
        self.messages().for_each(|message| self.note_passed(&message));
        match entry.kind() {
            FdKind::Inside => {
                let has_address = self.messages().any(|message| message.name != 0);
                self.send_message_inside(entry, has_address);
            }
            FdKind::Bad => {
                self.proceed();
            }
            _ => {
                self.messages().for_each(|message| self.mark_sent(&message));
                self.barrier();
            }
        }
    }

    /// Whoever gets a descriptor shares its offset and flags; until then it is open in no process.
    fn note_passed(&self, message: &Message) {
        if message.control_len != 0 {
            share_descriptions();
            self.world.options.fetch_or(option::DESCRIPTORS_PASSED, Ordering::SeqCst);
        }
    }

    /// What `sendmmsg` is to send.
    fn messages(&self) -> impl Iterator<Item = Message> {
        let first = self.arg(1);
        let count = (self.arg(2) as u32).min(MESSAGES_MAX);
        (0..u64::from(count)).map_while(move |i| Message::read(first.wrapping_add(i * HEADER_STRIDE)))
    }

    /// Descriptors that leave: whoever remembers them as inside is wrong from now on.
    fn mark_sent(&self, message: &Message) {
        let mut leaves = false;
        let whole = message.descriptors(|fd| {
            let entry = self.descriptor(fd);
            // A socket that is not connected yet may be so later, and one that listens may have clients inside.
            leaves |= matches!(entry.kind(), FdKind::Inside | FdKind::Unknown) || is_doubtful_socket(entry);
        });
        if leaves || !whole {
            self.nothing_is_inside();
        }
    }

    /// From now on every pipe, socket and event descriptor may be seen outside.
    fn nothing_is_inside(&self) {
        self.world.options.fetch_or(option::OUTSIDE_EVENTS, Ordering::SeqCst);
    }

    pub fn socket_pair(&mut self) {
        let result = self.proceed();
        if result != 0 || self.arg(0) != AF_UNIX {
            return;
        }
        let mut pair = [0u64; 1];
        if !read_program(self.arg(3), &mut pair) {
            return;
        }
        let (Ok(a), Ok(b)) = (Stat::of_fd(pair[0] & 0xffff_ffff), Stat::of_fd(pair[0] >> 32)) else { return };
        let slot = agent_abi::hash_object(a.dev, a.ino.min(b.ino));
        self.world.remember_socket(a.ino, slot);
        self.world.remember_socket(b.ino, slot);
    }

    /// `connect`, `bind`, `listen`: others can see it.
    pub fn socket_name(&mut self, position: u8) {
        if self.frame.nr == CONNECT && self.connects_nowhere() {
            return self.observe_names();
        }
        if self.frame.nr == CONNECT && self.changes_peer(self.arg(position)) {
            self.nothing_is_inside();
        }
        if self.frame.nr != BIND {
            self.remember_made_inside(self.arg(position));
        }
        self.forget(self.arg(position));
        if self.frame.nr == BIND {
            return self.bind();
        }
        self.settle();
        self.proceed();
        self.forget(self.arg(position));
    }

    /// For whoever is at the other end: this very socket is one of the world's. Before `connect`, so that nobody can ask too early.
    fn remember_made_inside(&self, fd: u64) {
        const SO_COOKIE: u64 = 57;
        note_outside_stream(fd);
        if !matches!(socket_option(fd, SO_TYPE), Some(SOCK_STREAM | SOCK_SEQPACKET)) {
            return;
        }
        let (Ok(stat), Some(cookie)) = (Stat::of_fd(fd), socket_option(fd, SO_COOKIE)) else { return };
        if !self.world.socket_slot(stat.ino).is_some_and(is_pair) {
            self.world.remember_socket(stat.ino | MADE_INSIDE, cookie << 1);
        }
    }

    /// Whether `connect` may give another peer to a socket that had one: other processes that share it remember the former.
    fn changes_peer(&self, fd: u64) -> bool {
        const SO_DOMAIN: u64 = 39;
        let mut address = [AF_UNSPEC];
        // An address that cannot be read in one word is taken for one that disconnects.
        let _ = read_program(self.arg(1), &mut address);
        match address[0] & 0xffff {
            AF_UNSPEC if socket_option(fd, SO_TYPE) == Some(SOCK_STREAM) => true,
            AF_UNSPEC | AF_UNIX if socket_option(fd, SO_DOMAIN) == Some(AF_UNIX) => {
                socket_option(fd, SO_TYPE) == Some(SOCK_DGRAM) && self.descriptor(fd).kind() == FdKind::Inside
            }
            _ => false,
        }
    }

    /// `connect` to a path that is not there: nobody outside is told, so nothing need be waited for. Returns whether that is answered. C libraries ask for
    /// the socket of a name service with each user that they look up.
    fn connects_nowhere(&mut self) -> bool {
        const SO_PASSCRED: u64 = 16;
        const SO_PASSPIDFD: u64 = 76;
        // Nothing has this name: /proc has no process 0.
        const NOWHERE: &[u8; 17] = b"\x01\0/proc/0/nobody\0";
        if self.is_clean() || !self.is_path_missing() {
            return false;
        }
        let fd = self.arg(0);
        // With either option the kernel gives the socket a name first, which others can see.
        if socket_option(fd, SO_PASSCRED) != Some(0) || socket_option(fd, SO_PASSPIDFD).is_some_and(|on| on != 0) {
            return false;
        }
        // The program's own address may have come to be there meanwhile: the kernel gets one that cannot.
        // SAFETY: the address is ours, and as long as it says.
        let result = unsafe { gate::call(CONNECT, [fd, NOWHERE.as_ptr() as u64, NOWHERE.len() as u64, 0, 0, 0]) };
        self.answer(result);
        true
    }

    /// Whether the address of a `connect` is a path, and nothing is there.
    fn is_path_missing(&self) -> bool {
        const FAMILY_LEN: usize = 2;
        const PATH_MAX: usize = 108;
        let mut address = [0u64; (FAMILY_LEN + PATH_MAX).div_ceil(8) + 1];
        let len = self.arg(2) as u32 as usize;
        let is_path = (FAMILY_LEN + 1..=FAMILY_LEN + PATH_MAX).contains(&len);
        if !is_path || !read_program(self.arg(1), &mut address[..len.div_ceil(8)]) {
            return false;
        }
        if address[0] & 0xffff != AF_UNIX || address[0] >> 16 & 0xff == 0 {
            return false;
        }
        // The path ends with the address, if not before.
        address[len / 8] &= (1 << (len % 8 * 8)) - 1;
        let path = &raw const address as u64 + FAMILY_LEN as u64;
        Stat::of_name(AT_FDCWD, path, 0).is_err_and(|error| error == -gate::ENOENT)
    }

    /// A Unix socket's name is a name in a file system.
    fn bind(&mut self) {
        let mut address = [0u64; 15];
        let words = (self.arg(2) as usize).min(112).div_ceil(8);
        self.settle();
        if words > 0 && read_program(self.arg(1), &mut address[..words]) && address[0] & 0xffff == AF_UNIX {
            let path = (&raw const address as u64) + 2;
            if address[0] >> 16 & 0xff != 0 {
                if let Some(place) = locate(self, AT_FDCWD, path, false) {
                    return self.modify_place(Some(place));
                }
            }
        }
        self.proceed();
    }

    pub fn accept(&mut self) {
        let result = self.proceed();
        if result >= 0 {
            self.remember_made_inside(result as u64);
        }
        if result >= 0 && !self.is_clean() {
            self.observe(&self.world.messages);
        }
    }

    pub fn shutdown(&mut self) {
        let entry = self.descriptor(self.arg(0));
        match entry.kind() {
            FdKind::Inside => self.send_inside(entry),
            FdKind::Bad => {
                self.proceed();
            }
            // One that is not connected any more: by whom is not known.
            _ => {
                self.barrier();
                self.observe_entry(entry, 0);
            }
        }
    }
}

/// An option of a socket that is a number.
fn socket_option(fd: u64, option: u64) -> Option<u64> {
    const GETSOCKOPT: u64 = 55;
    // Most are shorter: the kernel fills the low bytes.
    let mut value = 0u64;
    let mut len = size_of::<u64>() as u32;
    let args = [fd, u64::from(SOL_SOCKET), option, &raw mut value as u64, &raw mut len as u64, 0];
    // SAFETY: both are ours, and as long as they say.
    let result = unsafe { gate::call(GETSOCKOPT, args) };
    (result == 0).then_some(value)
}
