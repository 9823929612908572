//! Which object is behind a descriptor, and where its clock is.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots for objects' clocks.
pub const OBJECTS: usize = 1 << 16;
/// Counters for outside queues.
pub const QUEUES: usize = 1 << 12;
/// Mounted file systems that a world can know.
pub const DEVICES_MAX: usize = 256;
/// Outside pipes and sockets that a world can know.
pub const OUTSIDE_MAX: usize = 1024;
/// Slots for pipes made inside.
pub const PIPES: usize = 1 << 14;
/// Places for each of them; a power of two.
const PIPE_PLACES: usize = 8;
/// Slots for Unix socket pairs.
pub const SOCKETS: usize = 4096;

/// 64 bits that stand for an object. Never 0.
#[inline(always)]
pub const fn hash_object(dev: u64, ino: u64) -> u64 {
    // splitmix64's finalizer: every bit of the inode reaches the low bits that pick the slot.
    let mut x = ino ^ dev.rotate_left(40) ^ 0x9e37_79b9_7f4a_7c15;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) | 1
}

/// What an end of something that leads outside is noted as among the young (`YoungPipes`): the supervisor keeps it open
/// until all guesses are resolved, so that nobody outside hears of a close of it. `mode`: how it was opened
/// (`O_ACCMODE`).
pub const fn hash_end(dev: u64, ino: u64, mode: u32) -> u64 {
    // Even, and so no pipe's own.
    hash_object(dev, ino) & !7 | (mode as u64 & 3) << 1
}

/// What a file system is to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceKind {
    /// Not known: whatever is written there may be seen outside at once.
    Outside = 0,
    /// A domain: it can commit.
    Domain = 1,
    /// Lives in memory: carries dependencies, has nothing to commit.
    Memory = 2,
    /// proc, sysfs and the like: a window onto the whole world, and onto the outside.
    Pseudo = 3,
    /// Cannot change while the world runs.
    ReadOnly = 4,
}

/// One mounted file system.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    /// `st_dev`.
    pub dev: AtomicU64,
    /// `DeviceKind`.
    pub kind: AtomicU32,
    /// Index of the domain, if it is one.
    pub domain: AtomicU32,
}

/// Where the clock of a connection between two Unix sockets is.
#[repr(C)]
#[derive(Debug)]
pub struct SocketEntry {
    /// Inode of one of the two sockets, 0 = free.
    pub ino: AtomicU64,
    /// Slot of the connection's clock.
    pub slot: AtomicU64,
}

/// What kind of object a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FdKind {
    /// Not looked at yet.
    Unknown = 0,
    /// A file or directory of a domain.
    DomainFile = 1,
    /// A file in memory: carries dependencies.
    MemoryFile = 2,
    /// A pipe, socket pair, event descriptor: only the world can reach it.
    Inside = 3,
    /// A terminal, pipe or socket that leaves the world: has a queue.
    Outside = 4,
    /// A file or device that others may look at: has no queue, writes wait.
    OutsideFile = 5,
    /// proc and the like.
    Pseudo = 6,
    /// `/dev/null` and others that carry nothing.
    Nothing = 7,
    /// Not a descriptor.
    Bad = 8,
}

/// What the agent remembers of a descriptor: kind, domain and slot in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdEntry(pub u64);

impl FdEntry {
    /// Not looked at yet.
    pub const UNKNOWN: FdEntry = FdEntry(0);
    /// The program asked for O_SYNC or O_DSYNC and the domain makes it unnecessary.
    pub const ELIDED_SYNC: u64 = 1 << 16;
    /// The elided flag was O_SYNC (not just O_DSYNC).
    pub const ELIDED_FULL_SYNC: u64 = 1 << 17;
    /// A socket.
    pub const SOCKET: u64 = 1 << 18;
    /// A stream whose end-of-file tells of its writers' end.
    pub const STREAM: u64 = 1 << 19;
    /// A terminal.
    pub const TERMINAL: u64 = 1 << 20;
    /// A FIFO that was opened by name, or a pipe of others that came in later: the supervisor has no copy of it.
    pub const NAMED: u64 = 1 << 21;
    /// Opened by this process since it last made a child: no other process shares its offset and flags. Also of an
    /// entry that is `Unknown` otherwise.
    pub const FRESH: u64 = 1 << 22;
    /// Is no pipe, no FIFO and no socket. Of an entry that is `Unknown` otherwise.
    pub const NO_STREAM: u64 = 1 << 23;
    /// Known not to have been opened O_PATH.
    pub const OPENED: u64 = 1 << 24;
    /// Made by this open, on the file system of this entry's domain, as it seemed. Of an entry that is `Unknown`
    /// otherwise.
    pub const MADE: u64 = 1 << 25;
    /// A directory: its attributes, size and links change with the names in it.
    pub const DIRECTORY: u64 = 1 << 26;
    /// A file where what is written is not waited for.
    pub const VOLATILE: u64 = 1 << 27;
    /// It was asked whether the file can be its domain's log. Its number, or 0, stands in the place of the upper part
    /// of its hash, which nothing else needs.
    pub const LOG_ASKED: u64 = 1 << 28;
    /// Signals are read from it (`signalfd`).
    pub const SIGNALS: u64 = 1 << 29;
    /// A block device: what it shows may be any change of the file system on it.
    pub const BLOCKS: u64 = 1 << 30;
    const LOG_SHIFT: u32 = 48;

    /// An entry.
    #[inline(always)]
    pub const fn new(kind: FdKind, domain: usize, object: u64) -> Self {
        FdEntry(kind as u64 | ((domain as u64) & 0xff) << 8 | (object >> 32) << 32)
    }

    /// The same with flags.
    #[inline(always)]
    pub const fn with(self, flags: u64) -> Self {
        FdEntry(self.0 | flags)
    }

    /// The same without flags.
    #[inline(always)]
    pub const fn without(self, flags: u64) -> Self {
        FdEntry(self.0 & !flags)
    }

    /// The same file with its number among those that can be logs; 0 if it cannot.
    #[inline(always)]
    pub const fn with_log(self, number: u16) -> Self {
        let rest = self.0 & ((1 << Self::LOG_SHIFT) - 1);
        FdEntry(rest | Self::LOG_ASKED | (number as u64) << Self::LOG_SHIFT)
    }

    /// The same file, of which that is not known.
    #[inline(always)]
    pub const fn without_log(self) -> Self {
        if self.has(Self::LOG_ASKED) {
            self.with_log(0).without(Self::LOG_ASKED)
        } else {
            self
        }
    }

    /// The file's number among those that can be logs; 0 if it has none.
    #[inline(always)]
    pub const fn log(self) -> u32 {
        if self.has(Self::LOG_ASKED) {
            (self.0 >> Self::LOG_SHIFT) as u32
        } else {
            0
        }
    }

    /// Whether a flag is set.
    #[inline(always)]
    pub const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Its kind.
    #[inline(always)]
    pub const fn kind(self) -> FdKind {
        match self.0 as u8 {
            1 => FdKind::DomainFile,
            2 => FdKind::MemoryFile,
            3 => FdKind::Inside,
            4 => FdKind::Outside,
            5 => FdKind::OutsideFile,
            6 => FdKind::Pseudo,
            7 => FdKind::Nothing,
            8 => FdKind::Bad,
            _ => FdKind::Unknown,
        }
    }

    /// Its domain, if it is a `DomainFile`.
    #[inline(always)]
    pub const fn domain(self) -> usize {
        (self.0 >> 8) as usize & (commit_clock::DOMAINS_MAX - 1)
    }

    /// Index of its clock in `World::objects`.
    #[inline(always)]
    pub const fn slot(self) -> usize {
        (self.0 >> 32) as usize & (OBJECTS - 1)
    }

    /// Index of its counter in `World::queue_pending`.
    #[inline(always)]
    pub const fn queue(self) -> usize {
        (self.0 >> 32) as usize & (QUEUES - 1)
    }
}

impl crate::World {
    /// Stores to mapped files come without a call, before or after this one; they are in whatever transaction is
    /// flushed next. Whether there may be any.
    pub fn join_mapped(&self) -> bool {
        let mapped = self.mapped_domains.load(Ordering::Relaxed);
        let mut any = false;
        for domain in (0..self.transactions.domains()).filter(|domain| mapped & (1 << domain) != 0) {
            self.transactions.join(domain);
            any = true;
        }
        any
    }

    /// What the file system with this `st_dev` is.
    #[inline(always)]
    pub fn device(&self, dev: u64) -> (DeviceKind, usize) {
        self.known_device(dev).unwrap_or((DeviceKind::Outside, 0))
    }

    /// The same, if the table has that number.
    #[inline(always)]
    pub fn known_device(&self, dev: u64) -> Option<(DeviceKind, usize)> {
        let len = (self.devices_len.load(Ordering::Acquire) as usize).min(DEVICES_MAX);
        for device in self.devices.iter().take(len) {
            if device.dev.load(Ordering::Relaxed) == dev {
                let domain = device.domain.load(Ordering::Relaxed) as usize & (commit_clock::DOMAINS_MAX - 1);
                let kind = match device.kind.load(Ordering::Relaxed) {
                    1 => DeviceKind::Domain,
                    2 => DeviceKind::Memory,
                    3 => DeviceKind::Pseudo,
                    4 => DeviceKind::ReadOnly,
                    _ => DeviceKind::Outside,
                };
                return Some((kind, domain));
            }
        }
        None
    }

    /// Whether the table has not got this `st_dev`, and has room for it.
    pub fn may_learn_device(&self, dev: u64) -> bool {
        self.known_device(dev).is_none() && (self.devices_len.load(Ordering::Acquire) as usize) < DEVICES_MAX
    }

    /// Whether this pipe or socket came from outside.
    pub fn is_outside(&self, object: u64) -> bool {
        self.outside.iter().map(|o| o.load(Ordering::Acquire)).take_while(|&o| o != 0).any(|o| o == object)
    }

    /// Whether this pipe or socket is one that COMMAND inherited.
    pub fn is_inherited(&self, object: u64) -> bool {
        let inherited = self.inherited.load(Ordering::Relaxed) as usize;
        self.outside.iter().take(inherited).any(|o| o.load(Ordering::Acquire) == object)
    }

    /// From now on this pipe or socket is outside. False if there is no room.
    pub fn mark_outside(&self, object: u64) -> bool {
        for o in &self.outside {
            match o.compare_exchange(0, object, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(seen) if seen == object => return true,
                Err(_) => {}
            }
        }
        false
    }

    /// Whether this pipe was made inside. Forgetting one is safe: it then counts as outside.
    pub fn is_inside_pipe(&self, object: u64) -> bool {
        self.places_of_pipe(object).iter().any(|place| place.load(Ordering::Acquire) == object)
    }

    /// This pipe was made inside. One that was made long ago may be forgotten for it.
    pub fn remember_pipe(&self, object: u64) {
        if self.is_inside_pipe(object) {
            return;
        }
        let places = self.places_of_pipe(object);
        for place in places {
            if place.compare_exchange(0, object, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
        }
        places[(object >> 1) as usize % PIPE_PLACES].store(object, Ordering::Release);
    }

    /// Whether a thread may have made a pipe that nobody was told of yet.
    pub fn is_any_pipe_untold(&self) -> bool {
        self.thread_map.taken().any(|slot| self.threads[slot].makes_pipe.load(Ordering::Acquire) != 0)
    }

    /// Where a pipe may be remembered. With one place each, of a hundred pipes two would share one in every third
    /// world.
    fn places_of_pipe(&self, object: u64) -> &[AtomicU64] {
        let first = (object >> 32) as usize & (PIPES - PIPE_PLACES);
        &self.inside_pipes[first..first + PIPE_PLACES]
    }

    /// The connection of a Unix socket made inside, if it is remembered.
    pub fn socket_slot(&self, ino: u64) -> Option<u64> {
        let entry = &self.sockets[ino as usize & (SOCKETS - 1)];
        let slot = entry.slot.load(Ordering::Acquire);
        (entry.ino.load(Ordering::Acquire) == ino).then_some(slot)
    }

    /// Remember the connection of a Unix socket. What stood in its place is forgotten: it can be asked for again.
    pub fn remember_socket(&self, ino: u64, slot: u64) {
        let entry = &self.sockets[ino as usize & (SOCKETS - 1)];
        entry.ino.store(0, Ordering::Release);
        entry.slot.store(slot, Ordering::Release);
        entry.ino.store(ino, Ordering::Release);
    }
}
