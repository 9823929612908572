//! Sockets: which are inside, and messages that carry descriptors.

use crate::clocks::Call;
use crate::descriptors::{
    is_doubtful_socket, is_pair, note_outside_stream, share_descriptions, Stat, S_IFIFO, S_IFSOCK,
};
use crate::gate;
use crate::memory::{read_program, read_program_bytes};
use crate::names::{locate, AT_FDCWD};
use agent_abi::{option, FdEntry, FdKind, AFTER_MUST_FINISH, FDS_MAX};
use core::sync::atomic::Ordering;
use syscall_table::nr;
use syscall_table::{option_shows, OptionShows};

const AF_UNSPEC: u64 = 0;
const AF_UNIX: u64 = 1;
const SOCK_STREAM: u64 = 1;
const SOCK_DGRAM: u64 = 2;
const SOCK_SEQPACKET: u64 = 5;
const SO_TYPE: u64 = 3;
const SOL_SOCKET: u32 = 1;
const SO_RCVTIMEO_OLD: u32 = 20;
const SO_RCVTIMEO_NEW: u32 = 66;
const SO_SNDTIMEO_OLD: u32 = 21;
const SO_SNDTIMEO_NEW: u32 = 67;
const SO_ZEROCOPY: u64 = 60;
const SCM_RIGHTS: u32 = 1;
/// Tells the inodes of such sockets from those of pairs in `World::sockets`; the supervisor knows it as well
/// (supervisor::classify). Inodes of sockets have 32 bits.
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
    }

    /// To the other end of a connection inside; or, with an address, wherever that leads.
    fn send_message_inside(&mut self, entry: FdEntry, has_address: bool) {
        if has_address {
            self.settle();
        }
        self.send_inside(entry);
    }

    pub fn send(&mut self, position: u8) {
        const MSG_OOB: u64 = 1;
        if self.hands_pages_over(3) {
            return;
        }
        let entry = self.descriptor(self.arg(position));
        match entry.kind() {
            FdKind::Inside => self.send_message_inside(entry, self.arg(4) != 0),
            // The kernel refuses it: taken for later, it would be shown.
            FdKind::Outside if !entry.has(FdEntry::SOCKET) => {
                self.proceed();
            }
            // Plain data on a stream can be taken for later; an address, or urgent data, waits.
            FdKind::Outside if self.arg(4) == 0 && self.arg(3) & MSG_OOB == 0 && entry.has(FdEntry::STREAM) => {
                self.write_outside(position, entry);
            }
            FdKind::Bad => {
                self.proceed();
            }
            _ => self.barrier_to_peer(entry),
        }
    }

    pub fn receive_message(&mut self, position: u8) {
        let entry = self.descriptor(self.arg(position));
        if !self.is_clean() {
            self.settle_taking(self.arg(position), entry);
            self.lets_others_go(entry);
        }
        self.note_control_room();
        let result = self.proceed_receiving(position, AFTER_MUST_FINISH);
        if result >= 0 && !self.is_clean() {
            self.note_taken(entry, result);
            self.observe_entry(entry, result);
        }
        self.observe_none(entry, result);
        self.observe_error(result);
        if result >= 0 {
            self.look_at_received(entry, self.arg(1));
        }
    }

    pub fn receive_messages(&mut self, position: u8) {
        let entry = self.descriptor(self.arg(position));
        if !self.is_clean() {
            self.settle_taking(self.arg(position), entry);
            self.lets_others_go(entry);
        }
        let received = self.proceed_receiving(position, AFTER_MUST_FINISH);
        if received >= 0 && !self.is_clean() {
            self.observe_entry(entry, received);
        }
        self.observe_none(entry, received);
        self.observe_error(received);
        for i in 0..received.max(0) as u64 {
            self.look_at_received(entry, self.arg(1) + i * HEADER_STRIDE);
        }
    }

    fn look_at_received(&self, socket: FdEntry, header: u64) {
        match socket.kind() {
            FdKind::Inside => self.note_received(header),
            _ => self.mark_received(socket, header),
        }
    }

    /// What came from inside may lead outside, and this process may be the last one that has it.
    fn note_received(&self, header: u64) {
        let Some(message) = Message::read(header) else { return };
        let is_whole = message.descriptors(|fd| {
            if let Ok(stat) = Stat::of_fd(fd) {
                self.note_stream(fd, &stat);
            }
        });
        if !is_whole {
            note_outside_stream(FDS_MAX as u64 - 1);
        }
    }

    fn note_stream(&self, fd: u64, stat: &Stat) {
        let is_inside = match stat.kind() {
            S_IFSOCK => self.world.socket_slot(stat.ino).is_some_and(is_pair),
            S_IFIFO => self.world.is_inside_pipe(stat.hash()),
            _ => true,
        };
        if !is_inside {
            note_outside_stream(fd);
        }
    }

    /// A descriptor was taken out of a process, which may be outside: then so is what it stands for.
    pub fn note_taken_over(&self, fd: u64) {
        self.forget(fd);
        let Ok(stat) = Stat::of_fd(fd) else { return };
        self.note_stream(fd, &stat);
        if stat.kind() == 0 {
            self.nothing_is_inside();
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
                    if stat.kind() == S_IFSOCK {
                        // It may have limits of time already.
                        let limits = option::RECEIVE_LIMITS | option::SEND_LIMITS;
                        self.world.options.fetch_or(limits, Ordering::Relaxed);
                    }
                    if matches!(stat.kind(), S_IFIFO | S_IFSOCK) {
                        note_outside_stream(fd);
                        if !self.world.mark_outside(stat.hash()) {
                            self.nothing_is_inside();
                        }
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
        if self.hands_pages_over(2) {
            return;
        }
        let entry = self.descriptor(self.arg(position));
        let message = Message::read(self.arg(1));
        message.iter().for_each(|message| self.note_passed(message));
        match (entry.kind(), message) {
            (FdKind::Inside, message) => {
                self.send_message_inside(entry, message.is_none_or(|message| message.name != 0))
            }
            (FdKind::Bad, _) => {
                self.proceed();
            }
            (FdKind::Outside, _) if !entry.has(FdEntry::SOCKET) => {
                self.proceed();
            }
            // What cannot be read the kernel may be able to read: nobody knows what it is.
            (_, None) => self.barrier_to_peer(entry),
            (FdKind::Outside, Some(message))
                if message.name == 0 && message.control_len == 0 && entry.has(FdEntry::STREAM) =>
            {
                self.write_outside(position, entry);
            }
            (_, Some(message)) => {
                self.mark_sent(&message);
                self.barrier_to_peer(entry);
            }
        }
    }

    pub fn send_messages(&mut self, position: u8) {
        if self.hands_pages_over(3) {
            return;
        }
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
                self.barrier_to_peer(entry);
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
            // Whoever gets it writes there behind what is held for it.
            self.await_queue(entry);
            // A socket that is not connected yet may be so later, and one that listens may have clients inside.
            leaves |= matches!(entry.kind(), FdKind::Inside | FdKind::Unknown) || is_doubtful_socket(entry);
        });
        if leaves || !whole {
            self.nothing_is_inside();
        }
    }

    /// From now on every pipe, socket and event descriptor may be seen outside.
    pub fn nothing_is_inside(&self) {
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
        if self.frame.nr == nr::connect && self.connects_nowhere() {
            return self.observe_names();
        }
        if self.frame.nr == nr::connect && self.changes_peer(self.arg(position)) {
            self.nothing_is_inside();
        }
        if self.frame.nr != nr::bind {
            self.remember_made_inside(self.arg(position));
        }
        let known = self.known(self.arg(position));
        self.forget(self.arg(position));
        if self.frame.nr == nr::bind {
            return self.bind();
        }
        self.settle();
        // It may get another peer.
        self.await_queue(known);
        let result = self.proceed();
        self.forget(self.arg(position));
        self.observe_answer_of_name(result);
    }

    /// That a name answers, or does not, tells of whoever has it, or had it; that it answers now, of whoever made
    /// room among those that wait there.
    fn observe_answer_of_name(&self, result: i64) {
        if self.is_clean() {
            return;
        }
        match result {
            0.. => self.observe(&self.world.messages),
            _ => self.observe_everything(),
        }
    }

    /// For whoever is at the other end: this very socket is one of the world's. Before `connect`, so that nobody can
    /// ask too early.
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

    /// Whether `connect` may give another peer to a socket that had one: other processes that share it remember the
    /// former.
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

    /// `connect` to a path that is not there: nobody outside is told, so nothing need be waited for. Returns
    /// whether that is answered. C libraries ask for the socket of a name service with each user that they look up.
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
        let result = unsafe { gate::call(nr::connect, [fd, NOWHERE.as_ptr() as u64, NOWHERE.len() as u64, 0, 0, 0]) };
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
        self.bind_name();
        if self.frame.rax == 0 && has_name(self.arg(0)) {
            // When it goes, others can have the name, and whoever asks for it is refused.
            note_outside_stream(self.arg(0));
        }
        self.observe_answer_of_name(self.frame.rax as i64);
    }

    fn bind_name(&mut self) {
        let mut address = [0u64; 15];
        let words = (self.arg(2) as usize).min(112).div_ceil(8);
        self.settle();
        if words > 0 && read_program(self.arg(1), &mut address[..words]) && address[0] & 0xffff == AF_UNIX {
            let path = (&raw const address as u64) + 2;
            if address[0] >> 16 & 0xff != 0 {
                let place = locate(self, AT_FDCWD, path, false);
                self.modify_place(place);
                return self.look_again(place, AT_FDCWD, path, false);
            }
        }
        self.proceed();
    }

    pub fn accept(&mut self) {
        if !self.is_clean() {
            // It makes room for whoever waits to be connected.
            self.settle_accepting(self.arg(0));
            self.modify(&self.world.messages);
        }
        let result = self.proceed_receiving(0, AFTER_MUST_FINISH);
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
                self.settle();
                self.await_queue(entry);
                self.proceed();
                self.observe_entry(entry, 0);
            }
        }
    }
}

impl Call<'_> {
    /// A socket that has a name and no peer is about to be closed: whoever asks for the name learns of that at
    /// once, here and outside.
    #[cold]
    #[inline(never)]
    pub fn before_close_named(&mut self, fd: u64) {
        if !has_name(fd) || self.is_exec() && !is_closed_by_exec(fd) {
            return;
        }
        let Ok(stat) = Stat::of_fd(fd) else { return };
        let name = self.object(FdEntry::new(FdKind::Nothing, 0, stat.hash()).slot());
        self.modify(name);
        if parent_has(fd) {
            // Nobody learns anything before that one is closed, too.
            return;
        }
        self.observe(name);
        self.settle();
        // Others may have closed it meanwhile. The process itself is not looked at again: what it has mapped shared may
        // change at any time, and then it would never be settled.
        loop {
            let clock = name.load(self.transactions().domains());
            if self.transactions().is_resolved(&clock) {
                return;
            }
            self.await_commit(&clock);
        }
    }

    fn is_exec(&self) -> bool {
        matches!(self.frame.nr, nr::execve | nr::execveat)
    }

    /// `setsockopt`. What others see of it waits as what is sent does.
    pub fn set_socket_option(&mut self) {
        if (self.arg(1) as u32, u64::from(self.arg(2) as u32)) == (SOL_SOCKET, SO_ZEROCOPY) {
            return self.refuse_zerocopy();
        }
        if !self.is_clean() && self.option_is_seen_outside() {
            self.settle();
            self.await_queue(self.descriptor(self.arg(0)));
        }
        if self.arg(1) as u32 == SOL_SOCKET && matches!(self.arg(2) as u32, SO_RCVTIMEO_OLD | SO_RCVTIMEO_NEW) {
            self.world.options.fetch_or(option::RECEIVE_LIMITS, Ordering::Relaxed);
        }
        if self.arg(1) as u32 == SOL_SOCKET && matches!(self.arg(2) as u32, SO_SNDTIMEO_OLD | SO_SNDTIMEO_NEW) {
            self.world.options.fetch_or(option::SEND_LIMITS, Ordering::Relaxed);
        }
        self.change_description(0);
    }

    fn option_is_seen_outside(&self) -> bool {
        let fd = self.arg(0);
        let is_outside = || self.descriptor(fd).kind() != FdKind::Inside;
        match option_shows(self.arg(1) as u32, self.arg(2) as u32) {
            OptionShows::Nobody => false,
            // Who has no name has no peer either.
            OptionShows::Peer => has_name(fd) && is_outside(),
            OptionShows::Unsent => has_name(fd) && unsent(fd) != 0 && is_outside(),
            OptionShows::Name => has_name(fd),
            OptionShows::Machine => true,
        }
    }

    /// Pages that are sent without being copied may change before they have left (`decisions/0030`). The kernel
    /// copies them unless this option is set, and programs do without it where a kernel or a kind of socket does not
    /// know it.
    fn refuse_zerocopy(&mut self) {
        let (off, mut asked) = (0u32, [0u64]);
        let args = [self.arg(0), u64::from(SOL_SOCKET), SO_ZEROCOPY, &raw const off as u64, 4, 0];
        // SAFETY: the value is ours.
        let answer = unsafe { gate::call(nr::setsockopt, args) };
        let turns_off = read_program_bytes(self.arg(3), &mut asked, 4) && asked[0] == 0;
        match answer {
            0 if turns_off => self.answer(0),
            0 => self.refuse(gate::EOPNOTSUPP as u16),
            error => self.answer(error),
        }
    }

    /// Whether a message is to be sent without being copied, from a socket that got the option outside. The answer is
    /// then that of a process that has too much memory locked by such messages: it sends them without.
    fn hands_pages_over(&mut self, flags: u8) -> bool {
        const MSG_ZEROCOPY: u64 = 0x400_0000;
        const ENOBUFS: i64 = 105;
        let is_so = self.arg(flags) & MSG_ZEROCOPY != 0 && socket_option(self.arg(0), SO_ZEROCOPY) == Some(1);
        if is_so {
            self.answer(-ENOBUFS);
        }
        is_so
    }

    /// `getpeername`, `getsockopt`: some answers tell what the peer has done.
    pub fn socket_state(&mut self) {
        self.change_description(0);
        if self.tells_of_peer() && !self.is_clean() {
            self.observe_everything();
        }
    }

    fn tells_of_peer(&self) -> bool {
        const SO_ERROR: u64 = 4;
        const SO_MEMINFO: u64 = 55;
        const SOL_SOCKET: u64 = 1;
        const IPPROTO_IP: u64 = 0;
        const IPPROTO_IPV6: u64 = 41;
        const TCP_NODELAY: u64 = 1;
        const TCP_QUICKACK: u64 = 12;
        const TCP_WINDOW_CLAMP: u64 = 10;
        match (u64::from(self.arg(1) as u32), u64::from(self.arg(2) as u32)) {
            _ if self.frame.nr != nr::getsockopt => (self.frame.rax as i64) < 0,
            (SOL_SOCKET, option) => matches!(option, SO_ERROR | SO_MEMINFO),
            (IPPROTO_IP | IPPROTO_IPV6, _) => false,
            // Of TCP and all others: only what the socket's owner has set is known to be harmless.
            (_, option) => !matches!(option, TCP_NODELAY..=TCP_WINDOW_CLAMP | TCP_QUICKACK),
        }
    }
}

/// Whether a socket has a name that others can ask for.
fn has_name(fd: u64) -> bool {
    const AF_INET: u64 = 2;
    const AF_INET6: u64 = 10;
    const AF_NETLINK: u64 = 16;
    const FAMILY_LEN: u32 = 2;
    let mut address = [0u64; 16];
    let mut len = size_of_val(&address) as u32;
    let args = [fd, address.as_mut_ptr() as u64, &raw mut len as u64, 0, 0, 0];
    // SAFETY: both are ours, and as long as they say.
    if unsafe { gate::call(nr::getsockname, args) } < 0 {
        return false;
    }
    match address[0] & 0xffff {
        AF_INET | AF_INET6 => address[0] >> 16 & 0xffff != 0,
        AF_UNIX => len > FAMILY_LEN,
        AF_NETLINK => false,
        _ => true,
    }
}

/// Bytes that a TCP socket was given and has not sent yet. Where the kernel does not say, there may be some.
fn unsent(fd: u64) -> u32 {
    const SIOCOUTQNSD: u64 = 0x894b;
    let mut len = 0u32;
    // SAFETY: an `int` that is ours.
    match unsafe { gate::call(nr::ioctl, [fd, SIOCOUTQNSD, &raw mut len as u64, 0, 0, 0]) } {
        0 => len,
        _ => u32::MAX,
    }
}

pub fn is_closed_by_exec(fd: u64) -> bool {
    const F_GETFD: u64 = 1;
    const FD_CLOEXEC: i64 = 1;
    // SAFETY: no pointers.
    unsafe { gate::call(nr::fcntl, [fd, F_GETFD, 0, 0, 0, 0]) & FD_CLOEXEC != 0 }
}

/// Whether the parent has the same open file under the same number, as a server has of which its child closes what
/// it inherited.
fn parent_has(fd: u64) -> bool {
    const KCMP_FILE: u64 = 0;
    // SAFETY: no pointers.
    unsafe {
        let (own, parent) = (gate::call(nr::getpid, [0; 6]) as u64, gate::call(nr::getppid, [0; 6]) as u64);
        gate::call(nr::kcmp, [own, parent, KCMP_FILE, fd, fd, 0]) == 0
    }
}

/// An option of a socket that is a number.
pub fn socket_option(fd: u64, option: u64) -> Option<u64> {
    // Most are shorter: the kernel fills the low bytes.
    let mut value = 0u64;
    let mut len = size_of::<u64>() as u32;
    let args = [fd, u64::from(SOL_SOCKET), option, &raw mut value as u64, &raw mut len as u64, 0];
    // SAFETY: both are ours, and as long as they say.
    let result = unsafe { gate::call(nr::getsockopt, args) };
    (result == 0).then_some(value)
}
