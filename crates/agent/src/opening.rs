//! Opening files: what is opened, made and emptied, and how little need be looked at for that.

use crate::clocks::Call;
use crate::descriptors::{shows_open, Stat};
use crate::gate::{self, EAGAIN};
use crate::names::{locate, locate_parent, Place, AT_FDCWD, PAGE};
use crate::opened::OwnDescriptor;
use agent_abi::{option, FdEntry, FdKind};
use core::sync::atomic::Ordering;
use syscall_table::nr;

const O_WRONLY: u64 = 1;
const O_RDWR: u64 = 2;
const O_CREAT: u64 = 0o100;
const O_EXCL: u64 = 0o200;
const O_TRUNC: u64 = 0o1000;
const O_APPEND: u64 = 0o2000;
const O_NONBLOCK: u64 = 0o4000;
const O_DSYNC: u64 = 0o10000;
const O_SYNC: u64 = 0o4010000;
const O_TMPFILE: u64 = 0o20000000;
const O_PATH: u64 = 0o10000000;
const O_DIRECTORY: u64 = 0o200000;
/// Words of a `struct open_how` that are looked at; so far it has three.
const HOW_WORDS: usize = 8;

/// Whether others may see that what a name leads to is opened.
fn shows_open_of(dir: u64, path: u64) -> bool {
    Stat::of_name(dir, path, 0).is_ok_and(|stat| shows_open(&stat))
}

/// Where the flags of an open are.
enum Flags {
    /// An argument of the call.
    Argument(u8),
    /// A `struct open_how` in the program's memory, which is not ours to change; this is what it says.
    How([u64; HOW_WORDS]),
}

/// A bit for each way of opening what may have to be made.
fn kind_of_open(bits: u64) -> u32 {
    1 << (u32::from(bits & O_TRUNC != 0) | u32::from(bits & O_APPEND != 0) << 1)
}

/// What is known of a file that was made there, as it seems.
fn made_in(place: Place) -> FdEntry {
    FdEntry::new(FdKind::Unknown, place.entry.domain(), 0).with(FdEntry::MADE)
}

impl Call<'_> {
    pub fn open(&mut self, dir: Option<u8>, path: u8, flags: u8) {
        if self.is_replaced() {
            return self.open_what_was_found(self.arg(flags));
        }
        let bits = self.arg(flags);
        let changes = bits & (O_CREAT | O_TRUNC | O_DSYNC) != 0 || bits & O_TMPFILE == O_TMPFILE;
        let dir = self.directory(dir.unwrap_or(syscall_table::CWD));
        if !changes || bits & O_PATH != 0 {
            if bits & (O_WRONLY | O_RDWR) != 0
                && bits & O_PATH == 0
                && !self.is_settled()
                && shows_open_of(dir, self.arg(path))
            {
                // Whoever waits at the other end, perhaps outside, sees that this one is opened; so does a device.
                self.settle();
            }
            self.proceed_observing();
            self.observe_names();
            self.after_open(bits, FdEntry::UNKNOWN);
            return;
        }
        if !self.opens_new(dir, self.arg(path), bits, flags) {
            self.open_changing(dir, self.arg(path), bits, Flags::Argument(flags));
        }
    }

    /// The supervisor has replaced the call, and knows what is opened: nothing is made, and nobody outside has it.
    fn open_what_was_found(&mut self, bits: u64) {
        self.proceed();
        self.observe_names();
        self.after_open(bits, FdEntry::UNKNOWN);
    }

    /// An `open` by another name.
    pub fn creat(&mut self) {
        const BITS: u64 = O_CREAT | O_TRUNC | O_WRONLY;
        if self.is_replaced() {
            return self.open_what_was_found(BITS);
        }
        let (path, mode) = (self.arg(0), self.arg(1));
        self.replace_call(nr::open, [path, BITS, mode, 0, 0, 0]);
        self.open_changing(AT_FDCWD, path, BITS, Flags::Argument(1));
    }

    pub fn open2(&mut self) {
        let (how, size) = (self.arg(2), self.arg(3));
        let mut copy = [0u64; HOW_WORDS];
        let known = size.min(size_of_val(&copy) as u64);
        // The kernel knows none that is longer, and takes one with zeroes behind.
        let is_valid = (24..=PAGE).contains(&size) && is_zero(how + known, size - known);
        if !is_valid || !crate::memory::read_program_bytes(how, &mut copy, known) {
            self.proceed();
            return;
        }
        if size > known {
            self.replace_arg(3, known);
        }
        let dir = self.directory(0);
        self.open_changing(dir, self.arg(1), copy[0], Flags::How(copy));
    }

    /// Make a file where that is likely to be what the open means. Returns whether that was tried. With O_EXCL the
    /// kernel makes a file in the directory that was looked at, or nothing: it follows no link and finds no FIFO. So
    /// neither the name need be looked at beforehand, nor the descriptor afterwards.
    fn opens_new(&mut self, dir: u64, path: u64, bits: u64, flags: u8) -> bool {
        let is_asked = bits & O_EXCL != 0;
        let is_simple = bits & (O_CREAT | O_DIRECTORY | O_PATH | O_DSYNC) == O_CREAT;
        let is_likely = is_asked || self.page.makes_new & kind_of_open(bits) != 0;
        if !is_simple || !is_likely || self.world.ahead.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let place = locate_parent(self, dir, path, false);
        let Some(place) = place.filter(|place| place.entry.kind() == FdKind::DomainFile) else { return false };
        self.replace_arg(flags as usize, bits | O_EXCL);
        let result = self.change_names(place, false);
        if result < 0 && !is_asked {
            // Nothing has happened. What the program asked for is begun again at its call site, where signals find it.
            self.expect_new(bits, false);
            self.frame.rax = self.frame.nr;
            self.frame.continuation = self.frame.continuation.wrapping_sub(2);
            return true;
        }
        self.observe_names();
        if result >= 0 {
            self.remember_opened(result as u64, made_in(place).with(FdEntry::OPENED | FdEntry::NO_STREAM));
        }
        true
    }

    /// Programs go on as they began: what they open to append to is mostly there, what they open to empty it is not.
    fn expect_new(&mut self, bits: u64, is_new: bool) {
        let kind = kind_of_open(bits);
        self.page.makes_new = if is_new { self.page.makes_new | kind } else { self.page.makes_new & !kind };
    }

    /// An open that may make, empty, or synchronously write a file.
    #[inline(never)]
    fn open_changing(&mut self, dir: u64, path: u64, bits: u64, flags: Flags) {
        let Some(place) = locate(self, dir, path, true) else {
            let result = self.proceed();
            self.observe_names();
            self.after_open(bits, FdEntry::UNKNOWN);
            if result >= 0 {
                // What was in its way has gone since.
                self.tag_made(self.descriptor(result as u64));
            }
            return;
        };
        self.expect_new(bits, bits & O_CREAT != 0 && !place.exists);
        let elided = self.elide_open_flags(place, bits, &flags);
        let makes = bits & O_CREAT != 0 || bits & O_TMPFILE == O_TMPFILE;
        let empties = bits & O_TRUNC != 0 && place.exists;
        let result = match place.entry.kind() {
            _ if place.shows_open => {
                self.settle();
                self.proceed()
            }
            // What is no file can wait for somebody else: no handle must be held then.
            _ if !place.is_plain => self.proceed(),
            _ if !makes && !empties => self.proceed(),
            FdKind::DomainFile if place.exists => match self.open_leased(place, empties, bits, flags) {
                Some(result) => result,
                None => return,
            },
            FdKind::DomainFile => self.change_names(place, empties),
            FdKind::MemoryFile => self.change_names_in_memory(place, empties),
            FdKind::Outside | FdKind::OutsideFile | FdKind::Pseudo => {
                self.settle();
                self.proceed()
            }
            _ => self.proceed(),
        };
        self.observe_names();
        // The name may have been a dangling link, or have been changed meanwhile: then the file was made, or emptied,
        // somewhere else than it seemed.
        let is_foreseen = place.entry.kind() == FdKind::DomainFile && place.is_plain;
        let changes = makes || bits & O_TRUNC != 0;
        self.after_open(bits, if changes && is_foreseen { made_in(place) } else { FdEntry::UNKNOWN });
        if result >= 0 && changes && !is_foreseen {
            self.tag_made(self.descriptor(result as u64));
        }
        if elided != 0 && result >= 0 {
            let entry = self.descriptor(result as u64);
            if entry.kind() == FdKind::DomainFile {
                self.remember(result as u64, entry.with(elided));
            }
        }
    }

    /// Somebody, perhaps outside, may have a lease on the file: the kernel would wait until he gives it up, which
    /// must not be with an open handle. `None`: the call begins again.
    fn open_leased(&mut self, place: Place, empties: bool, bits: u64, flags: Flags) -> Option<i64> {
        if bits & O_NONBLOCK != 0 {
            return Some(self.change_names(place, empties));
        }
        // It lives as long as the call.
        let how: [u64; HOW_WORDS];
        match flags {
            Flags::Argument(at) => self.replace_arg(at.into(), self.given_arg(at.into()) | O_NONBLOCK),
            Flags::How(mut copy) => {
                copy[0] |= O_NONBLOCK;
                how = copy;
                self.replace_arg(2, how.as_ptr() as u64);
            }
        }
        let result = self.change_names(place, empties);
        if result == -EAGAIN {
            self.set_phase(agent_abi::PHASE_BEFORE);
            self.await_lease();
            return None;
        }
        if result >= 0 {
            self.clear_nonblock(result as u64, bits);
        }
        Some(result)
    }

    /// Somebody is asked to give a lease up: the call begins again a moment later.
    fn await_lease(&mut self) {
        const PAUSE: [u64; 2] = [0, 5_000_000];
        // SAFETY: both are ours.
        unsafe { gate::call(nr::nanosleep, [PAUSE.as_ptr() as u64, 0, 0, 0, 0, 0]) };
        self.begin_again();
    }

    /// The kernel changes no more than these flags.
    fn clear_nonblock(&self, fd: u64, bits: u64) {
        const F_SETFL: u64 = 4;
        const O_ASYNC: u64 = 0o20000;
        const O_DIRECT: u64 = 0o40000;
        const O_NOATIME: u64 = 0o1000000;
        // SAFETY: no pointers.
        unsafe { gate::call(nr::fcntl, [fd, F_SETFL, bits & (O_APPEND | O_ASYNC | O_DIRECT | O_NOATIME), 0, 0, 0]) };
    }

    /// `truncate`. Who has the file open for writing is not kept waiting by a lease, and nobody gets one: so the
    /// file is opened where there are leases at all. Elsewhere nobody who watches it is to hear of that.
    pub fn truncate(&mut self) {
        let path = self.arg(0);
        let place = locate(self, AT_FDCWD, path, true);
        let is_file =
            place.is_some_and(|place| place.exists && place.is_file && place.entry.kind() == FdKind::DomainFile);
        if !is_file || (self.arg(1) as i64) < 0 || !are_there_leases() {
            self.modify_place(place);
            return self.look_again(place, AT_FDCWD, path, true);
        }
        // SAFETY: the kernel has just read the path, and checks it again.
        let opened = unsafe { OwnDescriptor::open(path, O_WRONLY | O_NONBLOCK) };
        if matches!(opened, Err(error) if error == -EAGAIN) {
            return self.await_lease();
        }
        self.modify_place(place);
        self.look_again(place, AT_FDCWD, path, true);
        self.observe_who_delayed();
    }

    /// `open_by_handle_at`: what it empties is emptied as `ftruncate` does.
    pub fn open_by_handle(&mut self) {
        const O_ACCMODE: u64 = 3;
        let bits = self.arg(2);
        let empties = bits & O_TRUNC != 0 && bits & O_ACCMODE != 0;
        self.settle();
        if empties {
            self.replace_arg(2, bits & !O_TRUNC);
        }
        let fd = self.proceed();
        if fd < 0 {
            return;
        }
        self.forget(fd as u64);
        if empties {
            self.empty(fd as u64);
        }
        self.observe_everything();
    }

    /// Nothing waits here: the call was made.
    fn empty(&mut self, fd: u64) {
        let entry = self.descriptor(fd);
        let object = self.object(entry.slot());
        if entry.kind() == FdKind::DomainFile {
            object.raise(entry.domain(), self.join_change(entry.domain()));
        }
        self.modify(object);
        self.note_change(entry.slot());
        // SAFETY: no pointers.
        unsafe { gate::call(nr::ftruncate, [fd, 0, 0, 0, 0, 0]) };
        if entry.kind() == FdKind::DomainFile {
            self.end_change(entry.domain(), 0);
        }
    }

    /// A descriptor of this process alone. That a FIFO could be opened tells that the other end was.
    fn after_open(&mut self, bits: u64, known: FdEntry) {
        let fd = self.frame.rax;
        if (fd as i64) < 0 {
            return;
        }
        let opened = if bits & O_PATH == 0 { FdEntry::OPENED } else { 0 };
        self.remember_opened(fd, known.with(opened));
        self.observe_who_delayed();
        if bits & (O_PATH | O_DIRECTORY) != 0 || self.is_clean() {
            return;
        }
        // Which file it is matters when it is used, and then mostly the program has asked by itself.
        let is_known_enough = !self.is_looked_at_at_once() && self.is_opened_and_no_stream(fd);
        if !is_known_enough && self.descriptor(fd).has(FdEntry::NAMED) {
            self.observe_everything();
        }
    }

    /// An open, or a truncation, may have waited for somebody inside, who gave up a lease or had to allow it.
    fn observe_who_delayed(&self) {
        if self.has_option(option::READS_HEARD) && !self.is_clean() {
            self.observe_everything();
        }
    }

    /// Something was made or changed, and not where it was expected.
    pub fn tag_made(&self, made: FdEntry) {
        if made.kind() == FdKind::DomainFile {
            // The agent must finish now, perhaps while it is stepped: nothing may wait here for a commit.
            let transaction = self.join_change(made.domain());
            let place = Place { entry: made, exists: true, is_plain: true, is_file: true, shows_open: false };
            self.tag_names(place, transaction, true);
            self.end_change(made.domain(), 0);
        }
    }

    fn elide_open_flags(&mut self, place: Place, bits: u64, flags: &Flags) -> u64 {
        // O_SYNC stays in a structure: it is the program's.
        let &Flags::Argument(position) = flags else { return 0 };
        if bits & O_DSYNC == 0 || place.entry.kind() != FdKind::DomainFile {
            return 0;
        }
        // It lasts: what is mounted there must be known for certain.
        self.open_handle(place.entry.domain());
        self.thread.handle.close();
        if !self.elides_fsync(place.entry.domain()) {
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
}

/// Whether anybody has a lease on anything, as far as can be seen from here: leases stand among the locks. Where they
/// cannot be read, nobody is taken to have one.
fn are_there_leases() -> bool {
    const LOCKS: &[u8; 12] = b"/proc/locks\0";
    const LEASE: u64 = u64::from_be_bytes(*b"   LEASE");
    const LEN_MASK: u64 = (1 << 40) - 1;
    let mut part = [0u64; 64];
    // SAFETY: the path is ours and ends.
    let Ok(locks) = (unsafe { OwnDescriptor::open(LOCKS.as_ptr() as u64, 0) }) else { return false };
    // The last bytes, newest lowest.
    let mut last = 0u64;
    let mut found = false;
    while !found {
        // SAFETY: the kernel writes no more than the buffer has.
        let args = [locks.fd(), part.as_mut_ptr() as u64, size_of_val(&part) as u64, 0, 0, 0];
        let len = unsafe { gate::call(nr::read, args) };
        if len <= 0 {
            break;
        }
        for at in 0..len as usize {
            last = last << 8 | part[at / 8] >> (at % 8 * 8) & 0xff;
            found |= last & LEN_MASK == LEASE & LEN_MASK;
        }
    }
    found
}

/// Whether all of a range in the program's memory is readable, and zero.
fn is_zero(mut at: u64, mut len: u64) -> bool {
    let mut words = [0u64; HOW_WORDS];
    while len > 0 {
        let piece = len.min(size_of_val(&words) as u64);
        words.fill(0);
        if !crate::memory::read_program_bytes(at, &mut words, piece) || words.iter().any(|&word| word != 0) {
            return false;
        }
        (at, len) = (at + piece, len - piece);
    }
    true
}
