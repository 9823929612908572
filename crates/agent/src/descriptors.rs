//! What is behind a descriptor: looked at once, remembered in memory of the process's own, so that fork copies what is
//! known as it copies the descriptors, and exec forgets it.

use crate::clocks::Call;
use crate::gate::{self, EINVAL};
use crate::opened::OwnDescriptor;
use agent_abi::{
    hash_object, option, DeviceKind, FdEntry, FdKind, Private, Request, FDS_MAX, PRIVATE_BASE, THREAD_UNCACHED,
};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};
use syscall_table::nr;

/// Where the cache begins in the private memory: just behind the first thread's page.
pub const CACHE_BASE: u64 = PRIVATE_BASE + 0x8d00;
/// How many descriptors are looked at at once after one that was left for later had to be looked at.
const LOOKS_AT_ONCE: u32 = 16;

/// The part of the kernel's `struct stat` that says what an object is.
#[repr(C)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pad: u32,
    pub rdev: u64,
    pub size: i64,
    pub blksize: i64,
    pub blocks: i64,
    pub atime: (i64, i64),
    pub mtime: (i64, i64),
    pub ctime: (i64, i64),
    reserved: [i64; 3],
}

const _: () = assert!(core::mem::size_of::<Stat>() == 144);

pub const S_IFMT: u32 = 0o170000;
pub const S_IFSOCK: u32 = 0o140000;
pub const S_IFLNK: u32 = 0o120000;
pub const S_IFREG: u32 = 0o100000;
pub const S_IFBLK: u32 = 0o060000;
pub const S_IFDIR: u32 = 0o040000;
pub const S_IFCHR: u32 = 0o020000;
pub const S_IFIFO: u32 = 0o010000;

/// How a file was found.
#[derive(Clone, Copy)]
pub enum Way {
    Descriptor(u64),
    /// By a name, relative to a directory's descriptor; whether a link is followed.
    Name(u64, u64, bool),
}

impl Way {
    /// Subvolumes of btrfs and layers of overlays have device numbers that the table of mounts does not show. The
    /// supervisor finds out on which mount the file is.
    #[cold]
    #[inline(never)]
    fn tell_device(self, dev: u64) {
        const O_NOFOLLOW: u64 = 0o400000;
        const O_PATH: u64 = 0o10000000;
        match self {
            Self::Descriptor(fd) => {
                gate::request(Request::Device, fd, dev, 0);
            }
            Self::Name(dir, path, follows) => {
                let flags = O_PATH | if follows { 0 } else { O_NOFOLLOW };
                // SAFETY: the kernel has just read this name.
                if let Ok(file) = unsafe { OwnDescriptor::open_at(dir, path, flags) } {
                    gate::request(Request::Device, file.fd(), dev, 0);
                }
            }
        }
    }
}

/// Whether a device number is one without a block device (major number 0).
fn is_without_disk(dev: u64) -> bool {
    dev & 0xffff_f000_000f_ff00 == 0
}

impl Stat {
    /// Of a descriptor; the kernel's error otherwise.
    #[inline(always)]
    pub fn of_fd(fd: u64) -> Result<Self, i64> {
        // SAFETY: the buffer is `fill`'s.
        Self::fill(|buffer| unsafe { gate::call(nr::fstat, [fd, buffer, 0, 0, 0, 0]) })
    }

    /// Of a name, relative to a directory's descriptor; `flags` are `AT_…`.
    #[inline(always)]
    pub fn of_name(dir: u64, path: u64, flags: u64) -> Result<Self, i64> {
        // SAFETY: the buffer is `fill`'s; the kernel checks `path`.
        Self::fill(|buffer| unsafe { gate::call(nr::newfstatat, [dir, path, buffer, flags, 0, 0]) })
    }

    /// Inlined with the call, so that nothing is cleared beforehand and only what is used of the answer is copied:
    /// without vector registers either takes as long as a tenth of the call.
    #[inline(always)]
    fn fill(call: impl FnOnce(u64) -> i64) -> Result<Self, i64> {
        let mut stat = MaybeUninit::<Self>::uninit();
        match call(stat.as_mut_ptr() as u64) {
            // SAFETY: the kernel has filled all of it; integers only.
            0 => Ok(unsafe { stat.assume_init() }),
            error => Err(error),
        }
    }

    pub fn kind(&self) -> u32 {
        self.mode & S_IFMT
    }

    pub fn hash(&self) -> u64 {
        hash_object(self.dev, self.ino)
    }

    pub fn version(&self) -> agent_abi::FileVersion {
        agent_abi::FileVersion::new(self.dev, self.ino, self.mtime, self.ctime, self.size)
    }
}

pub fn private() -> &'static Private {
    // SAFETY: mapped by `start` before any call comes in.
    unsafe { &*(PRIVATE_BASE as *const Private) }
}

/// The program has asked to be dumpable, or not.
pub fn set_undumpable(undumpable: u64) {
    // SAFETY: one aligned word of memory that is ours.
    unsafe { (&raw mut (*(PRIVATE_BASE as *mut Private)).undumpable).write_volatile(undumpable) }
}

/// Nothing may be remembered of descriptors any more: two tables share this memory, or two memories one table.
pub fn forget_forever() {
    // SAFETY: one aligned word of memory that is ours.
    unsafe { (&raw mut (*(PRIVATE_BASE as *mut Private)).uncached).write_volatile(1) }
}

/// A descriptor of a stream that may lead outside: its end is looked after when the process ends.
pub fn note_outside_stream(fd: u64) {
    // SAFETY: memory that is ours; a race between threads can only lose a bound that `fetch_max` would keep, so it is
    // one.
    let end = unsafe { &*(&raw const (*(PRIVATE_BASE as *const Private)).outside_streams_end).cast::<AtomicU64>() };
    if end.fetch_max(fd + 1, Ordering::Relaxed) == 0 {
        gate::request(Request::WatchEnd, 0, 0, 0);
    }
}

/// Whether the process may have such a stream.
#[inline(always)]
pub fn has_outside_streams() -> bool {
    private().outside_streams_end != 0
}

/// One more than the highest descriptor that anything was remembered of.
fn fds_end() -> &'static AtomicU64 {
    // SAFETY: as `note_outside_stream`.
    unsafe { &*(&raw const (*(PRIVATE_BASE as *const Private)).fds_end).cast::<AtomicU64>() }
}

/// From now on this process may have several threads.
pub fn note_threads() {
    // SAFETY: one aligned word of memory that is ours.
    unsafe { (&raw mut (*(PRIVATE_BASE as *mut Private)).threaded).write_volatile(1) }
}

/// Whether this process may have several threads.
pub fn is_threaded() -> bool {
    private().threaded != 0
}

/// A child shares, from its birth on, every description that is open now.
pub fn share_descriptions() {
    for fd in 0..fds_end().load(Ordering::Relaxed).min(FDS_MAX as u64) {
        if cell(fd).load(Ordering::Relaxed) & FdEntry::FRESH != 0 {
            cell(fd).fetch_and(!FdEntry::FRESH, Ordering::Relaxed);
        }
    }
}

/// In a child that is a copy: its kernel copied the descriptors before the memory, and other threads of the parent may
/// have closed and opened some in between. What is remembered may be wrong.
pub fn forget_if_threaded() {
    if private().threaded == 0 {
        return;
    }
    for fd in 0..fds_end().load(Ordering::Relaxed).min(FDS_MAX as u64) {
        let known = FdEntry(cell(fd).load(Ordering::Relaxed));
        let keeps = known.has(FdEntry::ELIDED_SYNC)
            && Stat::of_fd(fd).is_ok_and(|stat| FdEntry::new(FdKind::Nothing, 0, stat.hash()).slot() == known.slot());
        let kept = if keeps { known.without_log() } else { FdEntry::UNKNOWN };
        cell(fd).store(kept.0, Ordering::Relaxed);
    }
    // SAFETY: one aligned word of memory that is ours; the child has one thread.
    unsafe { (&raw mut (*(PRIVATE_BASE as *mut Private)).threaded).write_volatile(0) }
}

fn cell(fd: u64) -> &'static AtomicU64 {
    // SAFETY: callers check the bound; the cache is mapped as `private`.
    unsafe { &*((CACHE_BASE + fd * 8) as *const AtomicU64) }
}

/// Calls `each` with every descriptor that is remembered as one of a file that is not waited for.
pub fn volatile_descriptors(mut each: impl FnMut(u64, FdEntry)) {
    for fd in 0..fds_end().load(Ordering::Relaxed).min(FDS_MAX as u64) {
        let known = FdEntry(cell(fd).load(Ordering::Relaxed));
        if known.has(FdEntry::VOLATILE) {
            each(fd, known);
        }
    }
}

/// Remember something else of a descriptor, unless that is something new already.
pub fn replace_remembered(fd: u64, known: FdEntry, entry: FdEntry) {
    let _ = cell(fd).compare_exchange(known.0, entry.0, Ordering::Relaxed, Ordering::Relaxed);
}

impl Call<'_> {
    #[inline(always)]
    fn remembers(&self, fd: u64) -> bool {
        fd < FDS_MAX as u64 && self.page.flags & THREAD_UNCACHED == 0 && private().uncached == 0
    }

    /// What is known of a descriptor without asking the kernel.
    #[inline(always)]
    pub fn known(&self, fd: u64) -> FdEntry {
        let fd = u64::from(fd as u32);
        if self.remembers(fd) {
            FdEntry(cell(fd).load(Ordering::Relaxed))
        } else {
            FdEntry::UNKNOWN
        }
    }

    /// What is behind a descriptor.
    #[inline(always)]
    pub fn descriptor(&self, fd: u64) -> FdEntry {
        let known = self.known(fd);
        if known.kind() != FdKind::Unknown {
            return known;
        }
        self.look_at(u64::from(fd as u32))
    }

    /// Whether this process has opened the descriptor by name, shares it with nobody, and it is no pipe and no FIFO.
    /// (Sockets cannot be opened.) The kernel tells those apart before it looks what advice on the page cache it is
    /// given, and it knows no such advice. It does not run the filter for this number: a third of what it costs to look
    /// at the descriptor.
    pub fn is_opened_and_no_stream(&self, fd: u64) -> bool {
        let known = self.known(fd);
        if known.kind() != FdKind::Unknown || !known.has(FdEntry::FRESH) || self.has_option(option::DESCRIPTORS_TAKEN) {
            return false;
        }
        if known.has(FdEntry::NO_STREAM) {
            return true;
        }
        const NO_SUCH_ADVICE: u64 = 99;
        // SAFETY: no pointers.
        let is_no_stream = unsafe { gate::call(nr::fadvise64, [fd, 0, 0, NO_SUCH_ADVICE, 0, 0]) } == -EINVAL;
        if is_no_stream {
            self.remember(fd, known.with(FdEntry::NO_STREAM));
        }
        is_no_stream
    }

    /// The program has asked itself what is behind a descriptor. `answer` is the `struct stat` that the kernel has just
    /// filled for it.
    pub fn learn(&self, fd: u64, answer: u64) {
        let known = self.known(fd);
        if known.kind() != FdKind::Unknown {
            return;
        }
        // SAFETY: as in `stat_path`.
        let stat = unsafe { (answer as *const Stat).read_unaligned() };
        if matches!(stat.kind(), S_IFREG | S_IFDIR) {
            self.becomes_known(fd, known, self.file_entry(&stat, Way::Descriptor(fd)));
        }
    }

    #[inline(never)]
    fn look_at(&self, fd: u64) -> FdEntry {
        let entry = match Stat::of_fd(fd) {
            Ok(stat) => self.classify(fd, &stat),
            Err(_) => return FdEntry::new(FdKind::Bad, 0, 0),
        };
        let known = self.known(fd);
        if known.has(FdEntry::NO_STREAM) && !known.has(FdEntry::MADE) {
            // The offset alone was not enough.
            self.page.looks.store(LOOKS_AT_ONCE, Ordering::Relaxed);
        }
        if is_doubtful_socket(entry) {
            return entry;
        }
        self.becomes_known(fd, known, entry)
    }

    /// Whether a descriptor that was just opened is looked at now, because one that was left for later had to be looked
    /// at not long ago.
    pub fn is_looked_at_at_once(&self) -> bool {
        let looks = self.page.looks.load(Ordering::Relaxed);
        if looks > 0 {
            self.page.looks.store(looks - 1, Ordering::Relaxed);
        }
        looks > 0
    }

    /// What was opened turns out to be this.
    fn becomes_known(&self, fd: u64, known: FdEntry, entry: FdEntry) -> FdEntry {
        if known.has(FdEntry::MADE) && (entry.kind() != FdKind::DomainFile || entry.domain() != known.domain()) {
            // Somebody has put another directory in the place of the one that was looked at.
            self.tag_made(entry);
        }
        let entry = entry.with(known.0 & (FdEntry::FRESH | FdEntry::OPENED)).with(self.volatility(fd, entry));
        self.remember(fd, entry);
        entry
    }

    pub fn remember(&self, fd: u64, entry: FdEntry) {
        let fd = u64::from(fd as u32);
        if self.remembers(fd) {
            cell(fd).store(entry.0, Ordering::Relaxed);
            if fd >= fds_end().load(Ordering::Relaxed) && entry.0 != 0 {
                fds_end().fetch_max(fd + 1, Ordering::Relaxed);
            }
            if entry.kind() == FdKind::Outside && (entry.has(FdEntry::SOCKET) || entry.has(FdEntry::NAMED)) {
                note_outside_stream(fd);
            }
        }
    }

    /// The process has just opened a file by name.
    pub fn remember_opened(&self, fd: u64, known: FdEntry) {
        self.remember(fd, known.with(FdEntry::FRESH));
    }

    /// Whether another process may share the offset and the flags of this descriptor.
    pub fn may_be_shared(&self, entry: FdEntry) -> bool {
        !entry.has(FdEntry::FRESH) || self.has_option(option::DESCRIPTORS_TAKEN)
    }

    /// Descriptors that were opened and never used: what they are matters at the end of the process.
    pub fn look_at_unused(&self) {
        for fd in 0..fds_end().load(Ordering::Relaxed).min(FDS_MAX as u64) {
            let known = FdEntry(cell(fd).load(Ordering::Relaxed));
            let is_open_question = known.has(FdEntry::FRESH) && !known.has(FdEntry::NO_STREAM);
            if known.kind() == FdKind::Unknown && (is_open_question || known.has(FdEntry::MADE)) {
                self.descriptor(fd);
            }
        }
    }

    /// Descriptors in a range are about to be closed, or all of them by the end of the process.
    pub fn before_close_range(&mut self, first: u64, last: u64) {
        // Some may be ends of streams inside. Whoever hears of their close depends on what this process depends on.
        if !self.is_clean() {
            self.modify(&self.world.messages);
        }
        let mut fd = u64::from(first as u32);
        let end = private().outside_streams_end.min(u64::from(last as u32).saturating_add(1));
        if end > fd || fd <= 2 {
            self.world.closes.fetch_add(1, Ordering::Relaxed);
        }
        while fd < end {
            self.before_close(fd);
            fd += 1;
        }
    }

    /// The descriptor is about to be, or was, closed.
    #[inline(always)]
    pub fn forget(&self, fd: u64) {
        self.remember(fd, FdEntry::UNKNOWN);
    }

    pub fn forget_range(&self, first: u64, last: u64) {
        let mut fd = u64::from(first as u32);
        let end = u64::from(last as u32).saturating_add(1).min(fds_end().load(Ordering::Relaxed)).min(FDS_MAX as u64);
        while fd < end {
            // Reading first keeps untouched pages of the cache untouched.
            if self.remembers(fd) && cell(fd).load(Ordering::Relaxed) != 0 {
                cell(fd).store(0, Ordering::Relaxed);
            }
            fd += 1;
        }
    }

    fn classify(&self, fd: u64, stat: &Stat) -> FdEntry {
        match stat.kind() {
            S_IFREG | S_IFDIR | S_IFLNK => self.file_entry(stat, Way::Descriptor(fd)),
            S_IFIFO => self.pipe_entry(stat),
            S_IFSOCK => self.socket_entry(fd, stat),
            S_IFCHR => device_entry(stat),
            S_IFBLK => FdEntry::new(FdKind::OutsideFile, 0, stat.hash()).with(FdEntry::BLOCKS),
            // The kernel's anonymous inode: eventfd, timerfd, signalfd, epoll, inotify, pidfd.
            0 if !self.has_option(option::OUTSIDE_EVENTS) => FdEntry::new(FdKind::Inside, 0, stat.hash()),
            _ => FdEntry::new(FdKind::OutsideFile, 0, stat.hash()),
        }
    }

    pub fn file_entry(&self, stat: &Stat, way: Way) -> FdEntry {
        if self.world.mounts_changed.load(Ordering::Relaxed) != 0 {
            gate::request(Request::Mounts, 0, 0, 0);
        }
        if is_without_disk(stat.dev) && self.world.may_learn_device(stat.dev) {
            way.tell_device(stat.dev);
        }
        let directory = if stat.kind() == S_IFDIR { FdEntry::DIRECTORY } else { 0 };
        self.entry_on_device(stat.dev, stat.hash()).with(directory)
    }

    /// An object of the file system with that number, as far as the world knows its mounts.
    pub fn entry_on_device(&self, dev: u64, hash: u64) -> FdEntry {
        let (kind, domain) = self.world.device(dev);
        let kind = match kind {
            DeviceKind::Domain => FdKind::DomainFile,
            DeviceKind::Memory => FdKind::MemoryFile,
            DeviceKind::Pseudo => FdKind::Pseudo,
            DeviceKind::ReadOnly => FdKind::Nothing,
            DeviceKind::Outside => FdKind::OutsideFile,
        };
        FdEntry::new(kind, domain, hash)
    }

    fn pipe_entry(&self, stat: &Stat) -> FdEntry {
        // Only a pipe that was made inside is surely inside: a FIFO has a name that others can see, and /proc/PID/fd
        // leads to others' pipes.
        let is_inside = self.world.is_inside_pipe(stat.hash()) && !self.world.is_outside(stat.hash());
        let kind = if is_inside { FdKind::Inside } else { FdKind::Outside };
        let named = if is_inside || self.world.is_inherited(stat.hash()) { 0 } else { FdEntry::NAMED };
        FdEntry::new(kind, 0, stat.hash()).with(FdEntry::STREAM | named)
    }

    fn socket_entry(&self, fd: u64, stat: &Stat) -> FdEntry {
        if self.world.is_outside(stat.hash()) {
            return FdEntry::new(FdKind::Outside, 0, stat.hash()).with(FdEntry::SOCKET | FdEntry::STREAM);
        }
        if let Some(slot) = self.world.socket_slot(stat.ino).filter(|&slot| is_pair(slot)) {
            return FdEntry::new(FdKind::Inside, 0, slot).with(FdEntry::SOCKET | FdEntry::STREAM);
        }
        let answer = gate::request(Request::Classify, fd, 0, 0);
        if answer > 0 {
            return FdEntry(answer as u64);
        }
        FdEntry::new(FdKind::Outside, 0, stat.hash()).with(FdEntry::SOCKET | FdEntry::STREAM)
    }
}

/// `World::sockets` holds the clocks of pairs, whose hashes are odd, and even numbers for other sockets
/// (`remember_made_inside`).
pub fn is_pair(slot: u64) -> bool {
    slot & 1 == 1
}

/// A socket of which nothing is known yet (it is not connected), or nothing any more: whatever is written there waits,
/// whatever is read there may depend on anything, and it is looked at again at the next call.
pub fn is_doubtful_socket(entry: FdEntry) -> bool {
    entry.kind() == FdKind::Pseudo && entry.has(FdEntry::SOCKET)
}

/// Major and minor number of the device that a device's inode means.
fn device_numbers(stat: &Stat) -> (u64, u64) {
    ((stat.rdev >> 8) & 0xfff, (stat.rdev & 0xff) | ((stat.rdev >> 12) & 0xfff00))
}

/// Whether it is a device that carries nothing from one process to another: null, zero, full, random, urandom.
pub fn is_carrying_nothing(stat: &Stat) -> bool {
    stat.kind() == S_IFCHR && matches!(device_numbers(stat), (1, 3 | 5 | 7 | 8 | 9))
}

/// Whether it is a terminal: 4 consoles and serial lines, 5 /dev/tty and console, 136-143 the slaves of
/// pseudo-terminals.
pub fn is_terminal(stat: &Stat) -> bool {
    stat.kind() == S_IFCHR && matches!(device_numbers(stat), (4, _) | (5, 0 | 1) | (136..=143, _))
}

/// Whether others may see that it is opened, and not only what is done with it then: who has the other end of a FIFO,
/// or what a device leads to. A serial line says it by a wire, a watchdog begins to run, a new terminal gets a name.
pub fn shows_open(stat: &Stat) -> bool {
    match stat.kind() {
        S_IFIFO | S_IFBLK => true,
        S_IFCHR => !is_carrying_nothing(stat) && !matches!(device_numbers(stat), (5, 0) | (136..=143, _)),
        _ => false,
    }
}

fn device_entry(stat: &Stat) -> FdEntry {
    match device_numbers(stat) {
        _ if is_carrying_nothing(stat) => FdEntry::new(FdKind::Nothing, 0, 0),
        _ if is_terminal(stat) => {
            FdEntry::new(FdKind::Outside, 0, hash_object(u64::MAX, stat.rdev)).with(FdEntry::TERMINAL)
        }
        _ => FdEntry::new(FdKind::OutsideFile, 0, stat.hash()),
    }
}
