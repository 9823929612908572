//! Names that lead to what is held for a guess, without a question
//! ([0257](../../../docs/decisions/0257-new-files-are-found-by-their-agent.md)): to a file or directory that the guess
//! has made, or to nothing.
//!
//! The kernel finds neither the file nor, in a directory that the guess has made, the directory. The supervisor has
//! written down what such a name leads to for those inside, and agents reach a file through the supervisor's descriptor
//! of it, in `/proc`. Whoever has no right to that asks.

use crate::clocks::Call;
use crate::descriptors::{Stat, S_IFREG};
use crate::gate::{self, EINVAL};
use crate::names::AT_FDCWD;
use crate::ways::{copied_up_to, looked_for, AT_SYMLINK_NOFOLLOW, ENOENT_SAID};
use agent_abi::{FdEntry, WayEnd, AFTER_MUST_FINISH, PHASE_AFTER, PHASE_BEFORE};
use core::sync::atomic::Ordering;
use syscall_table::nr;

const O_NOCTTY: u64 = 0o400;
const O_NONBLOCK: u64 = 0o4000;
const O_LARGEFILE: u64 = 0o100000;
const O_CLOEXEC: u64 = 0o2000000;
const O_PATH: u64 = 0o10000000;

/// What a name leads to for those inside.
struct Held {
    known: WayEnd,
    /// How many bytes of the name lead to the directory that is on the disk.
    length: usize,
    /// That directory.
    dir: (u64, u64),
    /// The supervisor's descriptor of the file, if there is one.
    descriptor: Option<u32>,
}

impl Held {
    /// What a name that the kernel has read, and found nothing under, is known to lead to. The directory in which its
    /// first name is held is still there.
    fn of(call: &Call, path: u64, follows: bool) -> Option<Self> {
        let known = call.world.ways.end_of(looked_for(path, follows)?.key)?;
        let (length, descriptor) = known.held_behind()?;
        let dir = copied_up_to(path, length, |dir| Stat::of_name(AT_FDCWD, dir, 0).ok())?;
        let held = Self { known, length, dir: (dir.dev, dir.ino), descriptor };
        (descriptor.is_some() || held.is_end(None)).then_some(held)
    }

    fn is_end(&self, file: Option<(u64, u64)>) -> bool {
        let file = self.descriptor.zip(file);
        WayEnd::held(self.length, self.dir, file) == self.known
    }

    /// Whether this is the file: the supervisor may have closed its descriptor since, and have another one there.
    fn is(&self, file: &Stat) -> bool {
        self.is_end(Some((file.dev, file.ino)))
    }
}

/// The path of a descriptor in `/proc`, with the zero at its end.
struct DescriptorPath([u8; Self::LEN]);

impl DescriptorPath {
    /// `/proc/4294967295/fd/4294967295`, and the zero.
    const LEN: usize = 32;

    /// `process`: of somebody else.
    fn of(process: Option<u32>, descriptor: u32) -> Self {
        let mut path = [0; Self::LEN];
        let mut length = 0;
        let mut put = |bytes: &[u8]| {
            for &byte in bytes {
                path[length % Self::LEN] = byte;
                length += 1;
            }
        };
        put(b"/proc/");
        match process {
            Some(process) => digits(process, &mut put),
            None => put(b"self"),
        }
        put(b"/fd/");
        digits(descriptor, &mut put);
        Self(path)
    }

    fn at(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

/// A number in decimal digits.
fn digits(number: u32, put: &mut impl FnMut(&[u8])) {
    let mut power = 1_000_000_000;
    while power > 1 && number < power {
        power /= 10;
    }
    while power > 0 {
        put(&[b'0' + (number / power % 10) as u8]);
        power /= 10;
    }
}

fn close(fd: i64) {
    // SAFETY: no pointers; the program does not know of the descriptor.
    unsafe { gate::call(nr::close, [fd as u64, 0, 0, 0, 0, 0]) };
}

impl Call<'_> {
    /// A look at a name, which has begun on this permit, has found nothing in the kernel. Whether it is answered now by
    /// what the name leads to.
    #[cold]
    pub fn tells_of_what_is_held(&mut self, number: u64, permit: u64, path: u64, follows: bool, flags: u64) -> bool {
        let Some(held) = Held::of(self, path, follows) else { return false };
        let is_told = match held.descriptor {
            // As the kernel says.
            None => number != nr::statfs && self.held_is_as_at_look(permit),
            Some(descriptor) => self.tells_of_held_file(number, permit, flags, &held, descriptor),
        };
        if is_told {
            self.observe_held();
        }
        is_told
    }

    fn tells_of_held_file(&mut self, number: u64, permit: u64, flags: u64, held: &Held, descriptor: u32) -> bool {
        let file = self.supervisors_path(descriptor);
        let flags = flags & !AT_SYMLINK_NOFOLLOW;
        // SAFETY: the path is ours; the kernel checks the program's buffer.
        let make = |nr: u64, args: [u64; 6]| unsafe { gate::call(nr, args) };
        let result = match number {
            nr::stat | nr::lstat => make(nr::stat, [file.at(), self.arg(1), 0, 0, 0, 0]),
            nr::newfstatat => make(nr::newfstatat, [AT_FDCWD, file.at(), self.arg(2), flags, 0, 0]),
            nr::statx => make(nr::statx, [AT_FDCWD, file.at(), flags, self.arg(3), self.arg(4), 0]),
            nr::access | nr::faccessat | nr::faccessat2 | nr::readlink | nr::readlinkat if flags == 0 => {
                return self.tells_of_held_rights(number, permit, held, &file)
            }
            _ => return false,
        };
        // SAFETY: the kernel has filled the program's buffer.
        let is_it = || held.is_end(Some(self.inode_told_of(number)));
        let is_told = result == 0 && is_it() && self.tells_of_file(number, permit);
        if is_told {
            self.answer(0);
        }
        is_told
    }

    /// What says whether there is a link, or which rights there are.
    fn tells_of_held_rights(&mut self, number: u64, permit: u64, held: &Held, file: &DescriptorPath) -> bool {
        if !Stat::of_name(AT_FDCWD, file.at(), 0).is_ok_and(|stat| held.is(&stat)) {
            return false;
        }
        let mode = match number {
            nr::access => Some(self.arg(1)),
            nr::faccessat | nr::faccessat2 => Some(self.arg(2)),
            _ => None,
        };
        let result = match mode {
            // SAFETY: the path is ours.
            Some(mode) => unsafe { gate::call(nr::faccessat, [AT_FDCWD, file.at(), mode, 0, 0, 0]) },
            None => -EINVAL,
        };
        let is_told = (result == 0 || mode.is_none()) && self.held_is_as_at_look(permit);
        if is_told {
            self.answer(result);
        }
        is_told
    }

    /// A name is to be opened for reading, on this permit, under which the kernel has found nothing. Whether that is
    /// done.
    #[cold]
    pub fn opens_what_is_held(&mut self, permit: u64, path: u64, bits: u64) -> bool {
        let Some(held) = Held::of(self, path, true) else { return false };
        let is_usual = bits & !(O_NOCTTY | O_NONBLOCK | O_LARGEFILE | O_CLOEXEC) == 0;
        let Some(descriptor) = held.descriptor else {
            let is_known = is_usual && self.held_is_as_at_look(permit);
            if is_known {
                self.answer(ENOENT_SAID);
                self.observe_held();
            }
            return is_known;
        };
        if !is_usual {
            return false;
        }
        // What is opened from here on is closed, or told to the program: a signal waits for that.
        let number = self.frame.rax;
        self.page.after = AFTER_MUST_FINISH;
        self.set_phase(PHASE_AFTER);
        let opened = self.open_descriptor(&held, descriptor, bits);
        if opened >= 0 && self.held_is_as_at_look(permit) {
            self.answer(opened);
            self.remember_opened(opened as u64, FdEntry::UNKNOWN);
            self.mark_new(opened as u64, permit);
            self.observe_held();
            return true;
        }
        if opened >= 0 {
            close(opened);
        }
        self.set_phase(PHASE_BEFORE);
        self.frame.rax = number;
        false
    }

    /// Open the supervisor's file, by the number that the program would get. To open another one may be to wait, or be
    /// seen: so it is held on to first, and looked at. -1: it is another one, or cannot be opened.
    fn open_descriptor(&self, held: &Held, descriptor: u32, bits: u64) -> i64 {
        let file = self.supervisors_path(descriptor);
        // SAFETY: the paths are ours.
        let open =
            |path: &DescriptorPath, bits: u64| unsafe { gate::call(nr::openat, [AT_FDCWD, path.at(), bits, 0, 0, 0]) };
        let named = open(&file, O_PATH | O_CLOEXEC);
        if named < 0 {
            return -1;
        }
        let is_it = Stat::of_fd(named as u64).is_ok_and(|stat| stat.kind() == S_IFREG && held.is(&stat));
        let opened = if is_it { open(&DescriptorPath::of(None, named as u32), bits | O_CLOEXEC) } else { -1 };
        if opened < 0 {
            close(named);
            return -1;
        }
        // SAFETY: no pointers; the program knows of neither descriptor.
        unsafe { gate::call(nr::dup3, [opened as u64, named as u64, bits & O_CLOEXEC, 0, 0, 0]) };
        close(opened);
        named
    }

    fn supervisors_path(&self, descriptor: u32) -> DescriptorPath {
        DescriptorPath::of(Some(self.world.supervisor.load(Ordering::Relaxed)), descriptor)
    }

    /// What the name led through may be anything that is not committed yet.
    fn observe_held(&self) {
        if !self.is_clean() {
            self.observe_everything();
        }
    }
}
