//! Calls for which nobody is asked though something is speculative: those that the process has a permit for
//! (`epochs::Permits`, [0092](../../../docs/decisions/0092-permits.md)).
//!
//! The supervisor gives a process a permit when it has allowed it a call that looks at files: as long as that holds,
//! the process depends on whatever any file or directory depends on, so that looking at one more adds nothing. It is
//! revoked before anything changes. What moves a position or closes a descriptor needs a *mark* of the descriptor
//! besides, which says that this can be taken back.

use crate::clocks::Call;
use crate::descriptors::{private, Stat, S_IFLNK, S_IFREG};
use crate::dispatch::carry_out;
use crate::exchange;
use crate::gate::{self, ECHILD, EINVAL, ENOENT};
use crate::looked::forget_look;
use crate::memory::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_TYPE};
use crate::names::AT_FDCWD;
use crate::opened::OwnDescriptor;
use crate::own_names::OwnName;
use crate::start::MARKS_BASE;
use crate::ways::{end_of, AT_SYMLINK_NOFOLLOW, ENOENT_SAID};
use agent_abi::{
    ahead, option, permitted, About, DeviceKind, WayEnd, PHASE_BEFORE, PROCESS_CHILDLESS, PROCESS_GOES,
    PROCESS_IN_PSEUDO, PROCESS_SHARES_STATE, THREAD_TRACES, THREAD_UNCACHED,
};
use core::sync::atomic::{AtomicU64, Ordering};
use syscall_table::nr;

/// Descriptors that can have a mark; calls on higher ones are asked about.
pub const MARKS: usize = 4096;
/// The descriptor was opened on the permit: no checkpoint has it, and nobody shares it.
const FRESH: u64 = 1;
/// What puts its position back is kept.
const KEPT: u64 = 2;
/// It leads to a file that nobody serves.
const SEEN: u64 = 4;
/// Above these, and those of [`crate::exchange`], stands the permit on which a mark was made.
const SHIFT: u32 = 9;
/// It leads to a new file, of which its attributes and names are held, but not what is in it; and what puts its
/// position back is kept.
const KEPT_NEW: u64 = 128;
/// It was opened on the permit, and leads to a new file.
const FRESH_NEW: u64 = 256;

const O_NOFOLLOW: u64 = 0o400000;
const AT_EMPTY_PATH: u64 = 0x1000;
const ENOTDIR: i64 = 20;

fn mark(fd: u64) -> &'static AtomicU64 {
    // SAFETY: callers check the bound; the marks are mapped with the rest of what is this process's own.
    unsafe { &*((MARKS_BASE + fd * 8) as *const AtomicU64) }
}

/// `st_dev` of what a `stat` has just told.
///
/// # Safety
/// The kernel has just filled the buffer.
unsafe fn told_device(buffer: u64) -> u64 {
    // SAFETY: see above. A thread that unmaps it meanwhile ends the process: the supervisor sees the fault.
    unsafe { (buffer as *const u64).read_unaligned() }
}

/// The inode that a `stat` has just told, so far behind the beginning of the buffer.
///
/// # Safety
/// As `told_device`.
unsafe fn told_inode(buffer: u64, offset: u64) -> u64 {
    // SAFETY: see above.
    unsafe { ((buffer + offset) as *const u64).read_unaligned() }
}

/// The `st_mode` that a `stat` has just told.
///
/// # Safety
/// As `told_device`.
unsafe fn told_mode(buffer: u64) -> u32 {
    // SAFETY: see above.
    unsafe { ((buffer + core::mem::offset_of!(Stat, mode) as u64) as *const u32).read_unaligned() }
}

/// The device of what a `statx` has just told.
///
/// # Safety
/// As `told_device`.
unsafe fn told_device_extended(buffer: u64) -> u64 {
    // SAFETY: see above; stx_dev_major and _minor stand at 136 and 140.
    let (major, minor) = unsafe {
        let numbers = (buffer + 136) as *const u32;
        (u64::from(numbers.read_unaligned()), u64::from(numbers.add(1).read_unaligned()))
    };
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
}

fn moves_position(number: u64) -> bool {
    !matches!(number, nr::pread64 | nr::preadv)
}

/// One of these marks a descriptor needs for a call on it.
fn marks_needed(number: u64) -> u64 {
    match number {
        nr::pread64 | nr::preadv => FRESH | KEPT | SEEN | KEPT_NEW | FRESH_NEW,
        _ if exchange::is_change(number) => 0,
        _ => FRESH | KEPT | KEPT_NEW | FRESH_NEW,
    }
}

/// What became of a call that the process may have a permit for.
#[derive(PartialEq, Eq)]
pub enum OnPermit {
    /// Nothing has happened that may not happen again, and the supervisor has to be asked.
    Ask,
    /// It is to be made, and then it is over ([`Call::end_permit`]).
    Begun,
    /// It was made.
    Made,
}

impl OnPermit {
    fn made_if(is_made: bool) -> Self {
        if is_made {
            Self::Made
        } else {
            Self::Ask
        }
    }
}

impl Call<'_> {
    /// Begins the call, if nobody has to be asked, and makes it where more belongs to it than in other calls.
    pub fn go_unasked(&mut self) -> OnPermit {
        match self.go_on_permit() {
            OnPermit::Ask if self.begins_on_young_pipe() || self.begins_among_kin() => OnPermit::Begun,
            decided => decided,
        }
    }

    /// The same, if the process has a permit for it.
    #[inline(never)]
    fn go_on_permit(&mut self) -> OnPermit {
        let permit = self.process.permit.load(Ordering::Relaxed);
        let number = self.frame.nr;
        if number == nr::close {
            return match self.close_on_permit(permit) {
                OnPermit::Ask if self.changes_what_goes() => OnPermit::Begun,
                decided => decided,
            };
        }
        if matches!(number, nr::dup2 | nr::dup3) {
            self.forget_mark(u64::from(self.arg(1) as u32));
        }
        let kinds = self.world.permitted.load(Ordering::Relaxed);
        let is_permitted = permitted::kind(number).is_some_and(|kind| kinds & kind != 0);
        if permit != 0 && (!is_permitted || number == nr::mmap) {
            forget_look();
        }
        if number == nr::wait4 && self.has_nobody_to_wait_for() {
            self.answer(-ECHILD);
            return OnPermit::Made;
        }
        if number == nr::execve && permit != 0 && kinds & permitted::EXECUTE != 0 && self.misses_program(permit) {
            return OnPermit::Made;
        }
        if matches!(number, nr::unlink | nr::unlinkat)
            && permit != 0
            && kinds & permitted::REMOVE != 0
            && self.misses_name(permit)
        {
            return OnPermit::Made;
        }
        // Looked at again when the thread has published that it works.
        let now = self.world.permits.number();
        if !is_permitted {
            return match self.watches_file() || self.changes_what_goes() {
                true => OnPermit::Begun,
                false => OnPermit::Ask,
            };
        }
        if permitted::is_by_descriptor(number) && number != nr::fstat {
            return self.go_on_mark(now);
        }
        if number == nr::mmap {
            return self.maps_on_mark(now);
        }
        if permit == 0 || permit != now {
            return OnPermit::Ask;
        }
        OnPermit::made_if(match number {
            nr::open => self.opens_on_permit(permit, AT_FDCWD, 0, self.arg(1)),
            nr::openat => self.opens_on_permit(permit, self.directory(0), 1, self.arg(2)),
            _ => self.looks_on_permit(permit),
        })
    }

    /// What the call does to its descriptor was decided on this permit, or is taken back with what was decided.
    #[inline(always)]
    fn go_on_mark(&mut self, permit: u64) -> OnPermit {
        let fd = self.arg(0);
        let marks = self.marks_of(fd, permit);
        let about = match marks & marks_needed(self.frame.nr) {
            0 if marks != 0 && self.may_exchange(marks) => exchange::about(self.frame.nr, marks),
            0 => return OnPermit::Ask,
            _ => About::Anything,
        };
        match self.thread.work.begin(&self.world.permits, permit, about) && self.is_marked_still(fd, permit, marks) {
            true => OnPermit::Begun,
            false => OnPermit::Ask,
        }
    }

    /// Whether no other thread has begun to close or replace the descriptor since its marks were looked at. If one has,
    /// the thread works no more. Whoever begins later, and asks, waits until the thread does not work.
    #[inline(always)]
    fn is_marked_still(&self, fd: u64, permit: u64, marks: u64) -> bool {
        if !self.has_company() || self.marks_of(fd, permit) & marks == marks {
            return true;
        }
        self.end_permit();
        false
    }

    /// Whether the process has, or may be about to have, other threads.
    pub fn has_company(&self) -> bool {
        self.process.users.load(Ordering::Relaxed) != 1
    }

    /// A private mapping of a file shows what is in the file, when the call is made or later. On a disk that depends on
    /// no guess: what is written there on one is held.
    fn maps_on_mark(&mut self, permit: u64) -> OnPermit {
        let (flags, fd) = (self.arg(3), self.arg(4));
        let is_private = flags & MAP_TYPE == MAP_PRIVATE && flags & MAP_ANONYMOUS == 0;
        let is_on_disk = |stat: Stat| self.world.device(stat.dev).0 == DeviceKind::Domain;
        let marks = self.marks_of(fd, permit) & (FRESH | KEPT | SEEN);
        let is_covered = is_private && marks != 0 && Stat::of_fd(fd).is_ok_and(is_on_disk);
        match is_covered && self.begins_on(permit) && self.is_marked_still(fd, permit, marks) {
            true => OnPermit::Begun,
            false => OnPermit::Ask,
        }
    }

    /// The supervisor has allowed the call, published that this thread works, and given a permit for more.
    pub fn take_permit(&mut self, answer: i64) {
        let number = self.frame.nr;
        let fd = u64::from(self.arg(0) as u32);
        let is_marked = permitted::is_by_descriptor(number) && !matches!(number, nr::close | nr::fstat);
        if !is_marked || fd >= MARKS as u64 || !self.has_marks() {
            return;
        }
        let permit = (answer >> ahead::PERMIT_SHIFT) as u64;
        let marked = mark(fd).load(Ordering::Relaxed);
        let before = if marked >> SHIFT == permit { marked } else { permit << SHIFT };
        let more = match answer & ahead::KINDS {
            ahead::GO_ON_EXCHANGE => exchange::marks_of_exchange(number),
            ahead::GO_ON_WRITE => exchange::marks_of_write(number),
            ahead::GO_ON_NEW_FILE => KEPT_NEW,
            // Only for what moves the position it is kept.
            _ if moves_position(number) => KEPT | SEEN,
            _ => SEEN,
        };
        mark(fd).store(before | more, Ordering::Relaxed);
    }

    /// The call that was made on a permit is over.
    #[inline(always)]
    pub fn end_permit(&self) {
        self.thread.work.end();
    }

    fn begins_on(&self, permit: u64) -> bool {
        self.thread.work.begin(&self.world.permits, permit, About::Anything)
    }

    /// Whether the marks in this memory are those of the thread's descriptors.
    pub fn has_marks(&self) -> bool {
        self.page.flags & THREAD_UNCACHED == 0 && private().uncached == 0
    }

    /// The marks that a descriptor has on this permit.
    #[inline(always)]
    fn marks_of(&self, fd: u64, permit: u64) -> u64 {
        let fd = u64::from(fd as u32);
        if fd >= MARKS as u64 || !self.has_marks() {
            return 0;
        }
        let marked = mark(fd).load(Ordering::SeqCst);
        if marked >> SHIFT == permit {
            marked & ((1 << SHIFT) - 1)
        } else {
            0
        }
    }

    /// The number of a descriptor may soon be another file's.
    fn forget_mark(&self, fd: u64) {
        if fd < MARKS as u64 && self.has_marks() && mark(fd).load(Ordering::Relaxed) != 0 {
            // Sequentially consistent: before the supervisor looks who works. Alone, nobody else does.
            mark(fd).store(0, if self.has_company() { Ordering::SeqCst } else { Ordering::Relaxed });
        }
    }

    /// A call was asked about that closes or replaces a descriptor. Another thread that was in a call on it, which is
    /// over, may have marked it since.
    #[cold]
    pub fn forget_mark_again(&self) {
        match self.frame.nr {
            nr::close => self.forget_mark(u64::from(self.arg(0) as u32)),
            nr::dup2 | nr::dup3 => self.forget_mark(u64::from(self.arg(1) as u32)),
            _ => {}
        }
    }

    /// What is not held for a guess is closed as it was opened: a checkpoint has no part in it.
    fn close_on_permit(&mut self, permit: u64) -> OnPermit {
        let fd = u64::from(self.arg(0) as u32);
        if fd >= MARKS as u64 || !self.has_marks() {
            return OnPermit::Ask;
        }
        let is_fresh = permit != 0 && self.marks_of(fd, permit) & (FRESH | FRESH_NEW) != 0;
        // First: whatever becomes of the call, and whoever is asked, the number may soon be another file's.
        self.forget_mark(fd);
        let may_close = self.world.permitted.load(Ordering::Relaxed) & permitted::CLOSE != 0;
        match may_close && is_fresh && self.begins_on(permit) {
            true => OnPermit::Begun,
            false => OnPermit::Ask,
        }
    }

    /// Whether a program that is to be executed is not there: to say so is a look at its name. If it is there, the
    /// supervisor decides.
    fn misses_program(&mut self, permit: u64) -> bool {
        let path = self.arg(0);
        let is_permitted = permit == self.world.permits.number() && !self.has_company();
        if !is_permitted || !self.may_look_up() || !self.begins_on(permit) {
            return false;
        }
        let error = Stat::of_name(AT_FDCWD, path, 0).err().unwrap_or(0);
        // The kernel has read the name.
        let is_missing = matches!(-error, ENOENT | ENOTDIR)
            && self.stays_here(AT_FDCWD, path)
            && self.leads_past_what_is_held(permit, path, true, || Err(error));
        if is_missing {
            self.answer(error);
            self.observe_names();
        }
        self.end_permit();
        is_missing
    }

    /// Whether a name that is to be removed from the working directory is not there: to say so is a look at it. If it
    /// is there, the supervisor decides.
    fn misses_name(&mut self, permit: u64) -> bool {
        let (dir, position, flags) = match self.frame.nr {
            nr::unlink => (AT_FDCWD, 0, 0),
            _ => (self.directory(0), 1, self.arg(2)),
        };
        let path = self.arg(position);
        let is_permitted = permit == self.world.permits.number() && !self.has_company();
        if !is_permitted || flags != 0 || dir != AT_FDCWD || !self.may_look_up() || !self.begins_on(permit) {
            return false;
        }
        let error = Stat::of_name(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW).err().unwrap_or(0);
        // Where nothing can be written the kernel says that first.
        let is_missing = -error == ENOENT
            && is_plain_name(path)
            && is_writable(c".")
            && (self.leads_past_what_is_held(permit, path, false, || Err(error))
                || self.tells_of_what_is_held(self.frame.nr, permit, path, false, 0));
        if is_missing {
            self.answer(error);
            self.observe_names();
        }
        self.end_permit();
        is_missing
    }

    /// Whether a `wait4` says that there are no children, of a process of which nothing is put back: that depends on
    /// what the process itself has done. The kernel may know of some for which the program has waited already.
    fn has_nobody_to_wait_for(&self) -> bool {
        // WNOHANG, WUNTRACED, WCONTINUED, __WNOTHREAD, __WALL, __WCLONE: with others it is refused (wait4(2)).
        const OPTIONS: u64 = 0x1 | 0x2 | 0x8 | 0x2000_0000 | 0x4000_0000 | 0x8000_0000;
        const ALONE: u32 = PROCESS_GOES | PROCESS_CHILDLESS;
        let flags = self.process.flags.load(Ordering::Relaxed);
        flags & (ALONE | PROCESS_SHARES_STATE) == ALONE
            && self.process.users.load(Ordering::Relaxed) == 1
            && u64::from(self.arg(2) as u32) & !OPTIONS == 0
            && self.arg(0) as i32 != i32::MIN
            && self.page.flags & THREAD_TRACES == 0
            && self.world.permitted.load(Ordering::Relaxed) & permitted::WAIT != 0
            && !self.has_option(option::ENDS_OF_PARENTS_HEARD)
    }

    /// Files and directories that are there, to be read. To open anything else may be to wait, or be seen.
    fn opens_on_permit(&mut self, permit: u64, dir: u64, position: u8, bits: u64) -> bool {
        let mut own = OwnName::new();
        let may_open = bits & !permitted::OPEN_BITS == 0 && self.may_look_up() && self.has_marks();
        let Some(path) = may_open.then(|| self.stable_name(position, &mut own)).flatten() else { return false };
        if !self.begins_on(permit) {
            return self.has_not_begun();
        }
        let follows = bits & O_NOFOLLOW == 0;
        let is_alone = !self.has_company();
        if is_alone && dir == AT_FDCWD && self.has_just_looked(permit, path, follows) {
            return self.opens_what_is_there(permit, path, follows);
        }
        let flags = if follows { 0 } else { AT_SYMLINK_NOFOLLOW };
        let looked = Stat::of_name(dir, path, flags);
        let is_of_machine = looked.is_ok() && tells_of_machine(path);
        let is_sure = match &looked {
            Ok(stat) if is_of_machine => self.is_plain_and_pseudo(stat),
            Ok(stat) => self.is_plain_and_kept(stat),
            Err(error) => matches!(-error, ENOENT | ENOTDIR),
        };
        let end = looked.as_ref().map(end_of).map_err(|&error| error);
        // The kernel has read the name.
        let leads_past = |call: &Self| is_of_machine || call.leads_past_what_is_held(permit, path, follows, || end);
        if !is_sure || !self.stays_here(dir, path) {
            self.end_permit();
            return self.has_not_begun();
        }
        if !leads_past(self) {
            let is_held = is_alone && end == Err(ENOENT_SAID) && self.opens_what_is_held(permit, path, bits);
            self.end_permit();
            return is_held || self.has_not_begun();
        }
        match looked {
            Ok(stat) => {
                if is_alone && dir == AT_FDCWD && !is_of_machine {
                    self.remember_look(permit, path, stat.mode, follows);
                }
                self.opens_what_is_there(permit, path, follows)
            }
            Err(error) => {
                // Nothing is made: the open would say the same.
                self.answer(error);
                self.observe_names();
                self.end_permit();
                true
            }
        }
    }

    /// It is a file or a directory that only the kernel keeps. Whether it was opened as the program wants it.
    fn opens_what_is_there(&mut self, permit: u64, path: u64, follows: bool) -> bool {
        let number = self.frame.nr;
        carry_out_compared(self);
        let fd = self.frame.rax;
        let opened = || Stat::of_fd(fd);
        let is_right = match fd as i64 >= 0 && tells_of_machine(path) {
            true => opened().is_ok_and(|stat| self.is_plain_and_pseudo(&stat)),
            false => self.leads_past_what_is_held(permit, path, follows, || opened().map(|stat| end_of(&stat))),
        };
        if !is_right {
            // It could not be opened, or somebody outside has made the name lead elsewhere since.
            if fd as i64 >= 0 {
                self.forget(fd);
                // SAFETY: the program does not know of the descriptor.
                unsafe { gate::call(nr::close, [fd, 0, 0, 0, 0, 0]) };
            }
            self.end_permit();
            self.ask_instead(number);
            return false;
        }
        // Before the work is over: who closes it then, and asks, finds the mark.
        if fd < MARKS as u64 {
            mark(fd).store(permit << SHIFT | FRESH, Ordering::Relaxed);
        }
        self.end_permit();
        true
    }

    /// The supervisor has allowed an `open`, perhaps with a permit for what comes next. If that holds still, and the
    /// name is known to lead past all that is held, the descriptor is as if it were opened on that permit.
    #[cold]
    pub fn mark_opened(&self, permit: u64) {
        let fd = self.frame.rax;
        let (dir, position, bits) = match self.frame.nr {
            nr::open => (AT_FDCWD, 0, self.arg(1)),
            _ => (self.directory(0), 1, self.arg(2)),
        };
        if fd >= MARKS as u64 || bits & !permitted::OPEN_BITS != 0 || !self.may_look_up() || !self.has_marks() {
            return;
        }
        let mut own = OwnName::new();
        // It may not be the one that the supervisor has read: the descriptor is compared with what it leads to.
        let Some(path) = self.name_to_read(position, &mut own) else { return };
        if !self.stays_here(dir, path) || !self.begins_on(permit) {
            return;
        }
        if let Ok(stat) = Stat::of_fd(fd) {
            if self.is_plain_and_kept(&stat)
                && self.leads_past_what_is_held(permit, path, bits & O_NOFOLLOW == 0, || Ok(end_of(&stat)))
            {
                mark(fd).store(permit << SHIFT | FRESH, Ordering::Relaxed);
            }
        }
        self.end_permit();
    }

    /// `stat` and `access`: they change nothing, so what they say is looked at first.
    fn looks_on_permit(&mut self, permit: u64) -> bool {
        let number = self.frame.nr;
        let (dir, position, flags) = match number {
            nr::stat | nr::lstat | nr::access | nr::statfs => (AT_FDCWD, 0, 0),
            // As with an empty name.
            nr::fstat => (self.arg(0), 0, 0),
            nr::newfstatat | nr::faccessat2 => (self.directory(0), 1, self.arg(3)),
            nr::statx => (self.directory(0), 1, self.arg(2)),
            nr::faccessat => (self.directory(0), 1, 0),
            nr::readlink if self.arg(2) as i32 > 0 => (AT_FDCWD, 0, 0),
            nr::readlinkat if self.arg(3) as i32 > 0 => (self.directory(0), 1, 0),
            _ => return false,
        };
        let is_readlink = matches!(number, nr::readlink | nr::readlinkat);
        let follows = !is_readlink && number != nr::lstat && flags & AT_SYMLINK_NOFOLLOW == 0;
        let may_be_empty = flags & AT_EMPTY_PATH != 0;
        let is_named = number != nr::fstat;
        if !self.may_look_up() || may_be_empty && self.arg(position) == 0 {
            return false;
        }
        let mut own = OwnName::new();
        let path = if is_named { self.stable_name(position, &mut own) } else { Some(0) };
        let Some(path) = path else { return false };
        if !self.begins_on(permit) {
            return self.has_not_begun();
        }
        carry_out_compared(self);
        let result = self.frame.rax as i64;
        let is_sure = match result {
            0 if number == nr::fstat => self.tells_of_descriptor(number, dir, permit),
            0 if may_be_empty && is_empty(path) => self.tells_of_descriptor(number, dir, permit),
            // Of a file system that is there somebody may change the totals.
            _ if number == nr::statfs && result >= 0 => false,
            // All three are said when the name has been read.
            _ if number == nr::fstat => false,
            _ if result >= 0 || is_readlink && result == -EINVAL => {
                self.is_told_of_kept(number)
                    && self.stays_here(dir, path)
                    && (self.leads_past_what_is_held(permit, path, follows, || {
                        self.end_of_result(number, dir, path, follows)
                    }) || result == 0 && self.tells_of_held_directory(number, permit, path, follows))
            }
            _ if result == -ENOENT || result == -ENOTDIR => {
                self.stays_here(dir, path)
                    && (self.leads_past_what_is_held(permit, path, follows, || Err(result))
                        || result == -ENOENT && self.tells_of_what_is_held(number, permit, path, follows, flags))
            }
            _ => false,
        };
        self.end_permit();
        let may_remember = dir == AT_FDCWD && !may_be_empty && self.has_marks() && !self.has_company();
        if is_sure && result == 0 && may_remember {
            // What something is held of is not opened as it is.
            let mode = self.mode_told_of(number).filter(|_| !self.world.ways.may_be_held(self.end_told_of(number)));
            if let Some(mode) = mode {
                let follows = number != nr::lstat && flags & AT_SYMLINK_NOFOLLOW == 0;
                self.remember_look(permit, path, mode, follows);
            }
        }
        if !is_sure {
            self.ask_instead(number);
        }
        is_sure
    }

    /// The call was made, and may be made again: as if it had not been.
    pub fn ask_instead(&mut self, number: u64) {
        self.set_phase(PHASE_BEFORE);
        self.frame.rax = number;
        self.has_not_begun();
    }

    /// A new file was opened on this permit. Before the work is over: who closes it then, and asks, finds the mark.
    pub fn mark_new(&self, fd: u64, permit: u64) {
        if fd < MARKS as u64 {
            mark(fd).store(permit << SHIFT | FRESH_NEW, Ordering::Relaxed);
        }
    }

    /// The supervisor has opened a new file, and given a permit for the next calls on its descriptor.
    #[cold]
    pub fn mark_answered(&self, answer: i64) {
        let (fd, permit) = (self.frame.rax, (answer >> ahead::PERMIT_SHIFT) as u64);
        if fd >= MARKS as u64 || !self.has_marks() {
            return;
        }
        let more = if answer & ahead::KINDS == ahead::OPENED_TO_WRITE { exchange::marks_of_opened() } else { 0 };
        mark(fd).store(permit << SHIFT | FRESH_NEW | more, Ordering::Relaxed);
    }

    /// Whether the kernel's answer about a descriptor is right, perhaps after the number of the file's names in it was
    /// corrected.
    fn tells_of_descriptor(&self, number: u64, fd: u64, permit: u64) -> bool {
        self.marks_of(fd, permit) & FRESH != 0
            || self.is_told_of_kept(number)
                && (self.is_past_what_is_held(fd, permit) || self.tells_of_file(number, permit))
    }

    fn is_plain_and_pseudo(&self, stat: &Stat) -> bool {
        stat.kind() == S_IFREG && matches!(self.world.device(stat.dev).0, DeviceKind::Pseudo)
    }

    /// Whether a file, by its descriptor, is not one of which something is held.
    fn is_past_what_is_held(&self, fd: u64, permit: u64) -> bool {
        let is_past = !self.world.ways.is_needed() || self.marks_of(fd, permit) & (FRESH | KEPT | SEEN) != 0;
        is_past && self.held_is_as_at_look(permit)
    }

    /// Of which file a call told that has said something of one. Some do not say of which: then it is one of which they
    /// would say the same now.
    fn end_of_result(&self, number: u64, dir: u64, path: u64, follows: bool) -> Result<WayEnd, i64> {
        let bits = if follows { 0 } else { AT_SYMLINK_NOFOLLOW };
        let (mode, flags) = match number {
            nr::access => (self.arg(1), 0),
            nr::faccessat => (self.arg(2), 0),
            nr::faccessat2 => (self.arg(2), self.arg(3)),
            nr::readlink | nr::readlinkat => {
                let stat = Stat::of_name(dir, path, bits)?;
                // What a link says never changes, and no link that leads to more is held.
                let is_same = (stat.kind() == S_IFLNK) == (self.frame.rax as i64 >= 0);
                return if is_same { Ok(end_of(&stat)) } else { Err(-EINVAL) };
            }
            _ => return Ok(self.end_told_of(number)),
        };
        match mode {
            0 => Stat::of_name(dir, path, bits).map(|stat| end_of(&stat)),
            _ => end_accessible(dir, path, follows, mode, flags),
        }
    }

    /// Of which file a call that has succeeded told.
    fn end_told_of(&self, number: u64) -> WayEnd {
        let (dev, ino) = self.inode_told_of(number);
        WayEnd::file(dev, ino)
    }

    /// The same: its device and inode.
    pub fn inode_told_of(&self, number: u64) -> (u64, u64) {
        // SAFETY: the call has succeeded.
        match number {
            nr::stat | nr::lstat | nr::fstat => unsafe { (told_device(self.arg(1)), told_inode(self.arg(1), 8)) },
            nr::statx => unsafe { (told_device_extended(self.arg(4)), told_inode(self.arg(4), 32)) },
            _ => unsafe { (told_device(self.arg(2)), told_inode(self.arg(2), 8)) },
        }
    }

    /// Whether what a call told of is on a file system that only the kernel keeps.
    fn is_told_of_kept(&self, number: u64) -> bool {
        // SAFETY: the call has succeeded.
        let dev = match number {
            nr::stat | nr::lstat | nr::fstat => unsafe { told_device(self.arg(1)) },
            nr::newfstatat => unsafe { told_device(self.arg(2)) },
            nr::statx => unsafe { told_device_extended(self.arg(4)) },
            // It tells only of rights.
            _ => return true,
        };
        self.is_kept_by_kernel(dev)
    }

    /// `st_mode` of what a call that has succeeded told of, if it did.
    fn mode_told_of(&self, number: u64) -> Option<u32> {
        // SAFETY: the call has succeeded.
        match number {
            nr::stat | nr::lstat => Some(unsafe { told_mode(self.arg(1)) }),
            nr::newfstatat => Some(unsafe { told_mode(self.arg(2)) }),
            _ => None,
        }
    }

    pub fn is_kept_by_kernel(&self, dev: u64) -> bool {
        matches!(self.world.device(dev).0, DeviceKind::Domain | DeviceKind::Memory)
    }

    fn may_look_up(&self) -> bool {
        !self.has_option(option::PROC_ELSEWHERE)
            && self.process.flags.load(Ordering::Relaxed) & PROCESS_IN_PSEUDO == 0
            && self.world.mounts_changed.load(Ordering::Relaxed) == 0
    }

    /// Whether a name that the kernel has read leads to nothing of other processes (`supervisor::ahead::plan`).
    fn stays_here(&self, dir: u64, path: u64) -> bool {
        let mut length = 0;
        let mut is_absolute = false;
        let bytes = core::iter::from_fn(|| {
            if length > OwnName::LEN_MAX {
                return None;
            }
            // SAFETY: the kernel has just read the name up to its end.
            let byte = unsafe { ((path + length) as *const u8).read_volatile() };
            is_absolute |= length == 0 && byte == b'/';
            length += 1;
            (byte != 0).then_some(byte)
        });
        let leads_away = syscall_table::may_lead_to_others(bytes, |_| false);
        !leads_away && length <= OwnName::LEN_MAX && (is_absolute || dir == AT_FDCWD)
    }
}

/// Whether a name that the kernel has read is one of a file by which it tells of the machine and of itself, of no
/// process and of nothing that a guess could have changed: what begins programs that use SELinux's library, and Go's.
fn tells_of_machine(path: u64) -> bool {
    const NAMES: [&core::ffi::CStr; 2] = [c"/proc/filesystems", c"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"];
    // SAFETY: up to the first byte that differs, all are of a name that the kernel has read.
    let has = |at: usize, byte: u8| unsafe { ((path + at as u64) as *const u8).read_volatile() } == byte;
    NAMES.iter().any(|name| name.to_bytes_with_nul().iter().enumerate().all(|(at, &byte)| has(at, byte)))
}

/// Which file a name leads to, if the process has rights to it: the file is held on to, so that both are of the same.
fn end_accessible(dir: u64, path: u64, follows: bool, mode: u64, flags: u64) -> Result<WayEnd, i64> {
    const O_PATH: u64 = 0o10000000;
    let bits = O_PATH | if follows { 0 } else { O_NOFOLLOW };
    // SAFETY: the kernel has read the name.
    let file = unsafe { OwnDescriptor::open_at(dir, path, bits) }?;
    let empty = c"".as_ptr() as u64;
    let stat = Stat::of_fd(file.fd());
    // SAFETY: the name is ours.
    let said = unsafe { gate::call(nr::faccessat2, [file.fd(), empty, mode, flags | AT_EMPTY_PATH, 0, 0]) };
    match said {
        0 => stat.map(|stat| end_of(&stat)),
        error => Err(error),
    }
}

/// Whether a name that the kernel has just read stands in the working directory itself.
fn is_plain_name(path: u64) -> bool {
    let mut at = 0;
    loop {
        // SAFETY: the kernel has read the name up to its end.
        match unsafe { ((path + at) as *const u8).read_volatile() } {
            0 => return at > 0,
            b'/' => return false,
            _ => at += 1,
        }
    }
}

/// Whether the file system of a directory can be written to, as far as its mount says.
fn is_writable(dir: &core::ffi::CStr) -> bool {
    const FLAGS: usize = 10;
    const ST_RDONLY: u64 = 1;
    let mut totals = [0u64; 16];
    // SAFETY: the name and the buffer, which is longer than `struct statfs`, are ours.
    let said = unsafe { gate::call(nr::statfs, [dir.as_ptr() as u64, totals.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    said == 0 && totals[FLAGS] & ST_RDONLY == 0
}

/// Whether a name that the kernel has just read is empty: then the call is about the descriptor.
fn is_empty(path: u64) -> bool {
    // SAFETY: see above.
    unsafe { (path as *const u8).read_volatile() == 0 }
}

/// Not once more in each place where it is needed. What the call says is compared then.
#[inline(never)]
fn carry_out_compared(call: &mut Call) {
    call.is_compared = true;
    carry_out(call);
    call.is_compared = false;
}
