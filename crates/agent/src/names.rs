//! Names: looking them up, making, removing and changing them.
//!
//! All names of a domain share one clock (`World::names`): looking up any name depends on the newest transaction in which some name of the
//! domain changed. That errs on the safe side, and a lookup needs no second look at the directory.

use crate::clocks::Call;
use crate::descriptors::{Stat, S_IFDIR, S_IFIFO, S_IFREG};
use crate::gate::{nr, ENOENT};
use crate::memory::read_program;
use agent_abi::{FdEntry, FdKind};
use commit_clock::Transaction;
use core::mem::MaybeUninit;

pub const AT_FDCWD: u64 = -100i64 as u64;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_EMPTY_PATH: u64 = 0x1000;
const PATH_MAX: usize = 4096;

const O_WRONLY: u64 = 1;
const O_RDWR: u64 = 2;
const O_CREAT: u64 = 0o100;
const O_TRUNC: u64 = 0o1000;
const O_DSYNC: u64 = 0o10000;
const O_SYNC: u64 = 0o4010000;
const O_TMPFILE: u64 = 0o20000000;
const O_PATH: u64 = 0o10000000;
const O_DIRECTORY: u64 = 0o200000;

/// Whether a call of `Op::ModifyPath` changes what a symbolic link points to.
fn follows_links(nr: u64, args: &[u64; 6]) -> bool {
    match nr {
        // truncate, chmod, chown, utime, utimes, futimesat, setxattr, removexattr, fchmodat
        76 | 90 | 92 | 132 | 235 | 261 | 188 | 197 | 268 => true,
        // fchmodat2, utimensat: flags in the fourth argument
        452 | 280 => args[3] & AT_SYMLINK_NOFOLLOW == 0,
        // fchownat: in the fifth
        260 => args[4] & AT_SYMLINK_NOFOLLOW == 0,
        // setxattrat, removexattrat: in the third
        463 | 466 => args[2] & AT_SYMLINK_NOFOLLOW == 0,
        // file_setattr: in the fifth
        469 => args[4] & AT_SYMLINK_NOFOLLOW == 0,
        _ => false,
    }
}

/// Where a name is, or would be.
#[derive(Clone, Copy)]
pub struct Place {
    entry: FdEntry,
    /// The name is there already.
    exists: bool,
    /// It names a file or directory, not a FIFO, a socket or a device.
    is_plain: bool,
    is_fifo: bool,
}

/// Whether a name leads to a FIFO.
fn is_fifo(dir: u64, path: u64) -> bool {
    Stat::of_name(dir, path, 0).is_ok_and(|stat| stat.kind() == S_IFIFO)
}

/// Look at a name, or at its directory where there is no such name yet. `Err` where the call will fail in the kernel, too.
pub fn locate(call: &Call, dir: u64, path: u64, follow: bool) -> Option<Place> {
    let flags = if follow { 0 } else { AT_SYMLINK_NOFOLLOW } | AT_EMPTY_PATH;
    match Stat::of_name(dir, path, flags) {
        Ok(stat) => {
            let kind = stat.kind();
            let is_plain = kind == S_IFREG || kind == S_IFDIR || !follow;
            Some(Place { entry: call.file_entry(&stat), exists: true, is_plain, is_fifo: kind == S_IFIFO })
        }
        Err(error) if error == -ENOENT => locate_parent(call, dir, path),
        Err(_) => None,
    }
}

fn locate_parent(call: &Call, dir: u64, path: u64) -> Option<Place> {
    let mut parent = [MaybeUninit::<u8>::uninit(); PATH_MAX];
    let (mut length, mut before) = (0, 0);
    // Where the last component begins: that, with any slashes behind it, is what does not exist.
    let mut end = 0;
    while length < PATH_MAX - 1 {
        // SAFETY: the kernel has just read this string to its end (it said ENOENT, not EFAULT).
        let byte = unsafe { ((path + length as u64) as *const u8).read_volatile() };
        if byte == 0 {
            break;
        }
        if before == b'/' && byte != b'/' {
            end = length;
        }
        parent[length].write(byte);
        before = byte;
        length += 1;
    }
    parent[end].write(0);
    let flags = if end == 0 { AT_EMPTY_PATH } else { 0 };
    let here = [b'.', 0];
    let name = if end == 0 && dir == AT_FDCWD { here.as_ptr() as u64 } else { parent.as_ptr() as u64 };
    let stat = Stat::of_name(dir, name, flags).ok()?;
    Some(Place { entry: call.file_entry(&stat), exists: false, is_plain: true, is_fifo: false })
}

impl Call<'_> {
    fn directory(&self, position: u8) -> u64 {
        if position == syscall_table::CWD {
            AT_FDCWD
        } else {
            self.arg(position) as i32 as i64 as u64
        }
    }

    /// The process looked up a name.
    #[inline(always)]
    fn observe_names(&self) {
        if !self.is_clean() {
            self.observe(&self.world.names);
        }
    }

    pub fn observe_path(&mut self) {
        self.proceed_observing();
        self.observe_names();
    }

    pub fn stat_path(&mut self, buf: u8) {
        let result = self.proceed_observing();
        if !self.is_clean() {
            self.observe(&self.world.names);
            if result == 0 {
                // SAFETY: the kernel has just filled it. A thread that unmaps it meanwhile ends the process: the supervisor sees the fault.
                let (dev, ino) = unsafe {
                    let stat = self.arg(buf) as *const u64;
                    (stat.read_unaligned(), stat.add(1).read_unaligned())
                };
                self.observe_object(agent_abi::hash_object(dev, ino));
                if self.frame.nr == nr::NEWFSTATAT && self.names_descriptor() {
                    self.learn(self.arg(0), self.arg(buf));
                }
            }
        }
    }

    /// Whether a `newfstatat` that succeeded was about a descriptor, as C libraries spell `fstat`: an empty name.
    fn names_descriptor(&self) -> bool {
        // SAFETY: the kernel has just read this string.
        self.arg(3) & AT_EMPTY_PATH != 0
            && (self.arg(1) == 0 || unsafe { (self.arg(1) as *const u8).read_volatile() } == 0)
    }

    pub fn statx(&mut self) {
        let result = self.proceed_observing();
        if !self.is_clean() {
            self.observe(&self.world.names);
            if result == 0 {
                // struct statx: stx_ino at 32, stx_dev_major and _minor at 136 and 140.
                let (mut ino, mut numbers) = ([0u64; 1], [0u64; 1]);
                if !read_program(self.arg(4) + 32, &mut ino) || !read_program(self.arg(4) + 136, &mut numbers) {
                    return self.observe_everything();
                }
                let (major, minor) = (numbers[0] as u32, (numbers[0] >> 32) as u32);
                let dev = u64::from(minor & 0xff)
                    | u64::from(major & 0xfff) << 8
                    | u64::from(minor & !0xff) << 12
                    | u64::from(major & !0xfff) << 32;
                self.observe_object(agent_abi::hash_object(dev, ino[0]));
            }
        }
    }

    fn observe_object(&self, hash: u64) {
        let slot = FdEntry::new(FdKind::DomainFile, 0, hash).slot();
        self.observe(self.object(slot));
    }

    pub fn open(&mut self, dir: Option<u8>, path: u8, flags: u8) {
        let bits = self.arg(flags);
        let changes = bits & (O_CREAT | O_TRUNC | O_DSYNC) != 0 || bits & O_TMPFILE == O_TMPFILE;
        let dir = self.directory(dir.unwrap_or(syscall_table::CWD));
        if !changes || bits & O_PATH != 0 {
            if bits & (O_WRONLY | O_RDWR) != 0
                && bits & O_PATH == 0
                && !self.is_settled()
                && is_fifo(dir, self.arg(path))
            {
                // Whoever waits at the other end, perhaps outside, sees that this one is opened.
                self.settle();
            }
            self.proceed_observing();
            self.observe_names();
            self.after_open(bits);
            return;
        }
        self.open_changing(dir, self.arg(path), bits, Some(flags));
    }

    pub fn creat(&mut self) {
        self.open_changing(AT_FDCWD, self.arg(0), O_CREAT | O_TRUNC | O_WRONLY, None);
    }

    pub fn open2(&mut self) {
        let (how, size) = (self.arg(2), self.arg(3));
        if size < 24 {
            self.proceed();
            return;
        }
        let mut copy = [0u64; 3];
        if !crate::memory::read_program(how, &mut copy) {
            self.proceed();
            return;
        }
        let dir = self.directory(0);
        // O_SYNC stays: the structure is the program's.
        self.open_changing(dir, self.arg(1), copy[0], None);
    }

    /// An open that may make, empty, or synchronously write a file.
    #[inline(never)]
    fn open_changing(&mut self, dir: u64, path: u64, bits: u64, flags: Option<u8>) {
        let Some(place) = locate(self, dir, path, true) else {
            self.proceed();
            self.observe_names();
            self.after_open(bits);
            return;
        };
        let elided = self.elide_open_flags(place, bits, flags);
        let makes = bits & O_CREAT != 0 || bits & O_TMPFILE == O_TMPFILE;
        let empties = bits & O_TRUNC != 0 && place.exists;
        let result = match place.entry.kind() {
            _ if place.is_fifo => {
                self.settle();
                self.proceed()
            }
            // What is no file can wait for somebody else: no handle must be held then.
            _ if !place.is_plain => self.proceed(),
            _ if !makes && !empties => self.proceed(),
            FdKind::DomainFile => self.change_names(place, empties),
            FdKind::MemoryFile => self.change_names_in_memory(),
            FdKind::Outside | FdKind::OutsideFile | FdKind::Pseudo => {
                self.settle();
                self.proceed()
            }
            _ => self.proceed(),
        };
        self.observe_names();
        self.after_open(bits);
        if result >= 0 && makes {
            self.tag_made_elsewhere(place, result as u64);
        }
        if elided != 0 && result >= 0 {
            let entry = self.descriptor(result as u64);
            if entry.kind() == FdKind::DomainFile {
                self.remember(result as u64, entry.with(elided));
            }
        }
    }

    /// A descriptor of this process alone. That a FIFO could be opened tells that the other end was.
    fn after_open(&mut self, bits: u64) {
        let fd = self.frame.rax;
        if (fd as i64) < 0 {
            return;
        }
        self.remember_opened(fd);
        if bits & (O_PATH | O_DIRECTORY) != 0 || self.is_clean() {
            return;
        }
        // What reading it observes matters only to a process that does not depend on everything already. Who writes must know what it is.
        let only_reads = bits & (O_WRONLY | O_RDWR | O_CREAT) == 0;
        let is_known_enough = only_reads && self.depends_on_everything() && self.is_opened_and_seekable(fd);
        if !is_known_enough && self.descriptor(fd).has(FdEntry::NAMED) {
            self.observe_everything();
        }
    }

    /// The name may have been a dangling link: then the file was made somewhere else than it seemed.
    fn tag_made_elsewhere(&mut self, place: Place, fd: u64) {
        let made = self.descriptor(fd);
        let foreseen =
            place.entry.kind() == FdKind::DomainFile && place.entry.domain() == made.domain() && place.is_plain;
        if made.kind() == FdKind::DomainFile && !foreseen {
            // The agent must finish now, perhaps while it is stepped: nothing may wait here for a commit.
            let transaction = self.join_change(made.domain());
            let place = Place { entry: made, exists: true, is_plain: true, is_fifo: false };
            self.tag_names(place, transaction, true);
            self.end_change(made.domain(), 0);
        }
    }

    fn elide_open_flags(&mut self, place: Place, bits: u64, flags: Option<u8>) -> u64 {
        let Some(position) = flags else { return 0 };
        if bits & O_DSYNC == 0 || place.entry.kind() != FdKind::DomainFile || !self.elides_fsync(place.entry.domain()) {
            return 0;
        }
        self.replace_arg(position as usize % 6, bits & !O_SYNC);
        if bits & O_SYNC == O_SYNC {
            FdEntry::ELIDED_SYNC | FdEntry::ELIDED_FULL_SYNC
        } else {
            FdEntry::ELIDED_SYNC
        }
    }

    /// F_GETFL: what the program asked for, also where it was not needed.
    pub fn get_flags(&mut self) {
        let known = self.known(self.arg(0));
        let result = self.proceed();
        if !self.is_clean() {
            self.observe(self.object(self.descriptor(self.arg(0)).slot()));
        }
        if result >= 0 && known.has(FdEntry::ELIDED_SYNC) {
            let bits = if known.has(FdEntry::ELIDED_FULL_SYNC) { O_SYNC } else { O_DSYNC };
            self.answer(result | bits as i64);
        }
    }

    fn tag_names(&self, place: Place, transaction: Transaction, with_object: bool) {
        self.world.names.raise(place.entry.domain(), transaction);
        self.modify(&self.world.names);
        if with_object {
            let object = self.object(place.entry.slot());
            object.raise(place.entry.domain(), transaction);
            self.modify(object);
            self.note_change(place.entry.slot());
        }
    }

    fn change_names(&mut self, place: Place, with_object: bool) -> i64 {
        let domain = place.entry.domain();
        let transaction = self.begin_change(domain);
        self.tag_names(place, transaction, with_object);
        let result = self.proceed();
        self.end_change(domain, 0);
        result
    }

    fn change_names_in_memory(&mut self) -> i64 {
        if !self.is_clean() {
            self.modify(&self.world.names);
        }
        self.proceed()
    }

    /// Makes, removes or changes one name, or the attributes of what it names.
    pub fn modify_path(&mut self, dir: u8, path: u8) {
        if self.arg(path) == 0 && dir != syscall_table::CWD {
            // utimensat(fd, NULL, …)
            return self.modify_descriptor(dir);
        }
        let place = locate(self, self.directory(dir), self.arg(path), follows_links(self.frame.nr, &self.frame.args));
        self.modify_place(place);
    }

    pub fn modify_place(&mut self, place: Option<Place>) {
        match place {
            None => {
                self.proceed();
            }
            Some(place) => match place.entry.kind() {
                FdKind::DomainFile => {
                    self.change_names(place, place.exists);
                }
                FdKind::MemoryFile => {
                    self.change_names_in_memory();
                }
                FdKind::Nothing => {
                    self.proceed();
                }
                _ => self.barrier(),
            },
        }
        self.observe_names();
    }

    /// Changes two names. They are on one file system, or the call fails; but the first may be reached through /proc (`linkat` of a file
    /// that has no name yet), so the second says which.
    pub fn modify_paths(&mut self, from: (u8, u8), to: (u8, u8)) {
        let from = locate(self, self.directory(from.0), self.arg(from.1), false);
        let to = locate(self, self.directory(to.0), self.arg(to.1), false);
        let place = match (from, to) {
            (Some(from), Some(to)) if from.entry.kind() == FdKind::DomainFile => {
                self.tag_replaced(to);
                Some(from)
            }
            (Some(_), Some(to)) => Some(to),
            _ => None,
        };
        self.modify_place(place);
    }

    /// What a name meant so far changes, too.
    fn tag_replaced(&mut self, to: Place) {
        if to.exists && to.entry.kind() == FdKind::DomainFile {
            let domain = to.entry.domain();
            let transaction = self.begin_change(domain);
            self.object(to.entry.slot()).raise(domain, transaction + 1);
            self.end_change(domain, 0);
        }
    }
}
