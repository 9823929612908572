//! Names: looking them up, making, removing and changing them.
//!
//! All names of a domain share one clock (`World::names`): looking up any name depends on the newest transaction in
//! which some name of the domain changed. That errs on the safe side, and a lookup needs no second look at the
//! directory.

use crate::clocks::Call;
use crate::descriptors::{shows_open, Stat, Way, S_IFDIR, S_IFREG};
use crate::gate::{self, EINVAL, ENOENT};
use crate::memory::read_program;
use agent_abi::{FdEntry, FdKind, Request, PROCESS_IN_PSEUDO};
use commit_clock::Transaction;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use syscall_table::nr;

pub const AT_FDCWD: u64 = -100i64 as u64;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_EMPTY_PATH: u64 = 0x1000;
pub const PATH_MAX: usize = 4096;
pub const PAGE: u64 = 4096;

/// Whether a call of `Op::ModifyPath` changes what a symbolic link points to.
fn follows_links(nr: u64, args: &[u64; 6]) -> bool {
    match nr {
        nr::truncate
        | nr::chmod
        | nr::chown
        | nr::utime
        | nr::utimes
        | nr::futimesat
        | nr::setxattr
        | nr::removexattr
        | nr::fchmodat => true,
        // The flags are the fourth argument,
        nr::fchmodat2 | nr::utimensat => args[3] & AT_SYMLINK_NOFOLLOW == 0,
        // the fifth,
        nr::fchownat => args[4] & AT_SYMLINK_NOFOLLOW == 0,
        // the third,
        nr::setxattrat | nr::removexattrat => args[2] & AT_SYMLINK_NOFOLLOW == 0,
        // the fifth.
        nr::file_setattr => args[4] & AT_SYMLINK_NOFOLLOW == 0,
        _ => false,
    }
}

/// Whether a call of `Op::ModifyPath` can only make a name that is not there yet, whatever is there: it follows no link
/// and enters no mount.
fn makes_new(nr: u64) -> bool {
    matches!(nr, nr::mkdir | nr::symlink | nr::mknod | nr::mkdirat | nr::mknodat | nr::symlinkat)
}

/// Where a name is, or would be.
#[derive(Clone, Copy)]
pub struct Place {
    pub entry: FdEntry,
    /// The name is there already.
    pub exists: bool,
    /// It names a file or directory, not a FIFO, a socket or a device.
    pub is_plain: bool,
    /// It names a regular file.
    pub is_file: bool,
    /// Others may see that it is opened.
    pub shows_open: bool,
}

/// Look at a name, or at its directory where there is no such name yet. `Err` where the call will fail in the kernel,
/// too.
pub fn locate(call: &Call, dir: u64, path: u64, follow: bool) -> Option<Place> {
    let flags = if follow { 0 } else { AT_SYMLINK_NOFOLLOW } | AT_EMPTY_PATH;
    match Stat::of_name(dir, path, flags) {
        Ok(stat) => {
            let kind = stat.kind();
            let is_plain = kind == S_IFREG || kind == S_IFDIR || !follow;
            Some(Place {
                entry: call.file_entry(&stat, Way::Name(dir, path, follow)),
                exists: true,
                is_plain,
                is_file: kind == S_IFREG,
                shows_open: shows_open(&stat),
            })
        }
        // The kernel has read the whole of it.
        Err(error) if error == -ENOENT => locate_parent(call, dir, path, true),
        Err(_) => None,
    }
}

/// Look at the directory of a name. `is_readable`: the name can be read.
pub fn locate_parent(call: &Call, dir: u64, path: u64, is_readable: bool) -> Option<Place> {
    let mut parent = [MaybeUninit::<u8>::uninit(); PATH_MAX];
    let (mut length, mut before) = (0, 0);
    // Where the last component begins: that, with any slashes behind it, is what is not looked at.
    let mut end = 0;
    while length < PATH_MAX - 1 {
        let at = path + length as u64;
        if !is_readable && (length == 0 || at.is_multiple_of(PAGE)) && !can_be_read(at) {
            return None;
        }
        // SAFETY: the kernel has just read from this page. A thread that unmaps it meanwhile ends the process: the
        // supervisor sees the fault.
        let byte = unsafe { (at as *const u8).read_volatile() };
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
    let entry = call.file_entry(&stat, Way::Name(dir, name, true));
    Some(Place { entry, exists: false, is_plain: true, is_file: false, shows_open: false })
}

/// Whether the word around an address can be read. The kernel reads a signal mask from there, and then finds that it
/// knows no such thing to do with it: a fifth of what a look at a name costs.
pub fn can_be_read(address: u64) -> bool {
    const NO_SUCH_THING: u64 = 99;
    const LEN: u64 = 8;
    // SAFETY: with this first argument it changes nothing (rt_sigprocmask(2)).
    unsafe { gate::call(nr::rt_sigprocmask, [NO_SUCH_THING, address & !(LEN - 1), 0, LEN, 0, 0]) == -EINVAL }
}

impl Call<'_> {
    pub fn directory(&self, position: u8) -> u64 {
        if position == syscall_table::CWD {
            AT_FDCWD
        } else {
            self.arg(position) as i32 as i64 as u64
        }
    }

    /// The process looked up a name.
    #[inline(always)]
    pub fn observe_names(&self) {
        if !self.is_clean() {
            self.observe(&self.world.names);
        }
    }

    pub fn observe_path(&mut self) {
        self.proceed_observing();
        self.observe_names();
    }

    /// `chdir`, `fchdir`: relative names begin there from now on.
    pub fn change_directory(&mut self) {
        self.observe_path();
        if self.frame.rax != 0 {
            return;
        }
        let here = [b'.', 0];
        let is_pseudo = Stat::of_name(AT_FDCWD, here.as_ptr() as u64, 0).is_ok_and(|stat| {
            self.file_entry(&stat, Way::Name(AT_FDCWD, here.as_ptr() as u64, true)).kind() == FdKind::Pseudo
        });
        let flags = &self.process.flags;
        match is_pseudo {
            true => flags.fetch_or(PROCESS_IN_PSEUDO, Ordering::Relaxed),
            false => flags.fetch_and(!PROCESS_IN_PSEUDO, Ordering::Relaxed),
        };
    }

    pub fn stat_path(&mut self, buf: u8) {
        let result = self.proceed_observing();
        if !self.are_times_clean() {
            self.observe(&self.world.names);
            if result == 0 {
                // SAFETY: the kernel has just filled it. A thread that unmaps it meanwhile ends the process: the
                // supervisor sees the fault.
                let (dev, ino) = unsafe {
                    let stat = self.arg(buf) as *const u64;
                    (stat.read_unaligned(), stat.add(1).read_unaligned())
                };
                self.observe_object(dev, ino);
                if self.frame.nr == nr::newfstatat && self.names_descriptor() {
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
        if !self.are_times_clean() {
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
                self.observe_object(dev, ino[0]);
            }
        }
    }

    fn observe_object(&self, dev: u64, ino: u64) {
        let entry = self.entry_on_device(dev, agent_abi::hash_object(dev, ino));
        self.note_look_at_log(entry.slot());
        self.observe(self.object(entry.slot()));
        // Its times, and how much room it takes up.
        self.observe_stores(entry);
    }

    pub fn tag_names(&self, place: Place, transaction: Transaction, with_object: bool) {
        self.world.names.raise(place.entry.domain(), transaction);
        self.modify(&self.world.names);
        if with_object {
            let object = self.object(place.entry.slot());
            object.raise(place.entry.domain(), transaction);
            self.modify(object);
            self.note_change(place.entry.slot());
        }
    }

    pub fn change_names(&mut self, place: Place, with_object: bool) -> i64 {
        let domain = place.entry.domain();
        let transaction = self.begin_change(domain);
        self.tag_names(place, transaction, with_object);
        let result = self.proceed();
        self.end_change(domain, 0);
        result
    }

    /// `with_object`: what has the name changes, too, and whoever has it open may look at it.
    pub fn change_names_in_memory(&mut self, place: Place, with_object: bool) -> i64 {
        if !self.is_clean() {
            self.modify(&self.world.names);
            if with_object {
                self.modify(self.object(place.entry.slot()));
                self.note_change(place.entry.slot());
            }
        }
        self.proceed()
    }

    /// Makes, removes or changes one name, or the attributes of what it names.
    pub fn modify_path(&mut self, dir: u8, path: u8) {
        if self.arg(path) == 0 && dir != syscall_table::CWD {
            // utimensat(fd, NULL, …)
            return self.modify_descriptor(dir);
        }
        if self.frame.nr == nr::truncate {
            return self.truncate();
        }
        let (dir, path) = (self.directory(dir), self.arg(path));
        if matches!(self.frame.nr, nr::symlink | nr::symlinkat) {
            self.note_link(self.arg(0));
        }
        let place = match makes_new(self.frame.nr) {
            // On the directory's file system, or not at all.
            true => locate_parent(self, dir, path, false),
            false => locate(self, dir, path, follows_links(self.frame.nr, &self.frame.args)),
        };
        self.modify_place(place);
        self.look_again(place, dir, path, follows_links(self.frame.nr, &self.frame.args));
    }

    /// The call has changed what a name means, or what it names. Somebody may have changed a link or a directory on the
    /// way since the name was looked at: then it has happened on another file system, and joins there now. (Where there
    /// is one domain, and that was it, nothing else can be missing.)
    pub fn look_again(&mut self, place: Option<Place>, dir: u64, path: u64, follow: bool) {
        let domain_of = |place: Place| (place.entry.kind() == FdKind::DomainFile).then(|| place.entry.domain());
        let joined = place.and_then(domain_of);
        let domains = self.transactions().domains();
        let is_certain = domains == 0 || domains == 1 && joined.is_some() || self.is_replaced();
        if is_certain || (self.frame.rax as i64) < 0 {
            return;
        }
        let is_removal = matches!(self.frame.nr, nr::unlink | nr::rmdir | nr::unlinkat);
        let (now, is_as_said) = match is_removal {
            true => (locate_parent(self, dir, path, true), place.is_some_and(|place| place.exists)),
            false => {
                let now = locate(self, dir, path, follow);
                (now, now.is_some_and(|now| now.exists))
            }
        };
        match now {
            // There the call has done what it says it has.
            Some(now) if is_as_said => {
                if domain_of(now).is_some() && domain_of(now) != joined {
                    self.tag_made(now.entry);
                }
            }
            // It was turned there and back, or somebody else has made or removed the same.
            _ => self.tag_anywhere(),
        }
    }

    /// Something was changed, nobody knows where: it is in the active transaction of each file system that there is.
    #[cold]
    fn tag_anywhere(&self) {
        for domain in 0..self.transactions().domains() {
            let is_held = self.transactions().is_held(domain);
            if is_held || gate::request(Request::Hold, domain as u64, 0, 0) >= 0 {
                self.world.names.raise(domain, self.join_change(domain));
                self.end_change(domain, 0);
            }
        }
        self.modify(&self.world.names);
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
                    self.change_names_in_memory(place, place.exists);
                }
                FdKind::Nothing => {
                    self.proceed();
                }
                _ => self.barrier(),
            },
        }
        self.observe_names();
    }

    /// Changes two names. They are on one file system, or the call fails; but the first may be reached through /proc
    /// (`linkat` of a file that has no name yet), so the second says which.
    pub fn modify_paths(&mut self, from: (u8, u8), to: (u8, u8)) {
        const AT_SYMLINK_FOLLOW: u64 = 0x400;
        let follows = self.frame.nr == nr::linkat && self.arg(4) & AT_SYMLINK_FOLLOW != 0;
        let from = locate(self, self.directory(from.0), self.arg(from.1), follows);
        let (to_dir, to_path) = (self.directory(to.0), self.arg(to.1));
        let to = locate(self, to_dir, to_path, false);
        from.iter().for_each(|from| self.before_move(from.entry));
        let place = match (from, to) {
            (Some(from), Some(to)) if matches!(from.entry.kind(), FdKind::DomainFile | FdKind::MemoryFile) => {
                self.tag_replaced(to);
                Some(from)
            }
            (Some(_), Some(to)) => Some(to),
            _ => None,
        };
        self.modify_place(place);
        self.look_again(place, to_dir, to_path, false);
    }

    /// What a name meant so far changes, too.
    fn tag_replaced(&mut self, to: Place) {
        if to.exists && to.entry.kind() == FdKind::DomainFile {
            let domain = to.entry.domain();
            let transaction = self.begin_change(domain);
            self.object(to.entry.slot()).raise(domain, transaction + 1);
            self.end_change(domain, 0);
        } else if to.exists && to.entry.kind() == FdKind::MemoryFile && !self.is_clean() {
            self.modify(self.object(to.entry.slot()));
        }
    }
}
