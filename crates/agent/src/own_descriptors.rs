//! Calls that concern descriptors of their process alone, and need no permit
//! ([0206](../../../docs/decisions/0206-what-concerns-nobody-else.md),
//! [0240](../../../docs/decisions/0240-threads-have-permits.md)).

use crate::clocks::Call;
use crate::descriptors::{is_carrying_nothing, Stat, S_IFDIR, S_IFREG};
use crate::gate::{self, EBADF};
use crate::opened::OwnDescriptor;
use agent_abi::{option, permitted, FdEntry, PROCESS_GOES, PROCESS_LOCKED_AHEAD, PROCESS_LOCKS, PROCESS_SHARES_STATE};
use core::sync::atomic::Ordering;
use syscall_table::nr;

impl Call<'_> {
    /// The supervisor has opened a file for the process, if the call was to do that.
    #[cold]
    pub fn remember_answered(&self) {
        if matches!(self.frame.nr, nr::open | nr::openat | nr::openat2 | nr::creat) && self.frame.rax as i64 >= 0 {
            self.remember_opened(self.frame.rax, FdEntry::UNKNOWN);
        }
    }

    /// Whether the call would watch a file or directory: the kernel says EPERM, or something worse, to everybody.
    pub fn watches_file(&self) -> bool {
        let watched = || Stat::of_fd(u64::from(self.arg(2) as u32));
        self.frame.nr == nr::epoll_ctl
            && self.world.permitted.load(Ordering::Relaxed) & permitted::LOOK != 0
            && watched().is_ok_and(|stat| self.is_plain_and_kept(&stat))
    }

    pub fn is_plain_and_kept(&self, stat: &Stat) -> bool {
        matches!(stat.kind(), S_IFREG | S_IFDIR) && self.is_kept_by_kernel(stat.dev)
    }

    /// Whether the call changes nothing but descriptors, or flags of files, of a process of which nothing is put back,
    /// and nobody else can tell: what it closes, if anything, is a file or directory that only the kernel keeps, or a
    /// device that carries nothing. With its last descriptor a lock or a lease would go, and who watches it would hear
    /// of that. What it replaces another thread may be using.
    pub fn changes_what_goes(&self) -> bool {
        const F_SETFD: u32 = 2;
        const F_SETLK: u32 = 6;
        const F_SETLKW: u32 = 7;
        const OTHERS_MAY_TELL: u32 = option::READS_HEARD | option::DESCRIPTORS_PASSED | option::DESCRIPTORS_TAKEN;
        let goes = || {
            let flags = self.process.flags.load(Ordering::Relaxed);
            flags & (PROCESS_GOES | PROCESS_SHARES_STATE) == PROCESS_GOES
                && self.has_marks()
                && self.world.permitted.load(Ordering::Relaxed) & permitted::CLOSE != 0
        };
        let closed = match self.frame.nr {
            nr::fcntl if self.arg(1) as u32 == F_SETFD => None,
            nr::fcntl if matches!(self.arg(1) as u32, F_SETLK | F_SETLKW) => {
                // It will be asked about.
                self.process.flags.fetch_or(PROCESS_LOCKED_AHEAD, Ordering::Relaxed);
                return false;
            }
            nr::fcntl => return self.concerns_own_flags() && goes(),
            nr::close => Some(self.arg(0)),
            nr::dup2 | nr::dup3 if self.arg(0) as u32 != self.arg(1) as u32 && !self.has_company() => Some(self.arg(1)),
            _ => return false,
        };
        let has_none = |fd: u64| {
            self.process.flags.load(Ordering::Relaxed) & (PROCESS_LOCKS | PROCESS_LOCKED_AHEAD) == 0 && has_no_locks(fd)
        };
        let is_unlocked = |fd: u64| !self.has_option(option::FILES_LOCKED) || has_none(fd);
        goes()
            && !self.has_option(OTHERS_MAY_TELL)
            && closed.is_none_or(|fd| self.is_plain_or_none(fd, Stat::of_fd(fd)) && is_unlocked(fd))
    }

    /// Whether the call looks at the flags of an open file that no other process shares, or sets them, and nobody can
    /// be told of the file's readiness.
    fn concerns_own_flags(&self) -> bool {
        const F_GETFL: u32 = 3;
        const F_SETFL: u32 = 4;
        const O_ACCMODE: u64 = 3;
        const O_NONBLOCK: u64 = 0o4000;
        const O_LARGEFILE: u64 = 0o100000;
        let (fd, set) = (u64::from(self.arg(0) as u32), u64::from(self.arg(2) as u32));
        let is_usual = match self.arg(1) as u32 {
            F_GETFL => true,
            F_SETFL => set & !(O_ACCMODE | O_NONBLOCK | O_LARGEFILE) == 0,
            _ => false,
        };
        is_usual
            && !self.has_option(option::DESCRIPTORS_PASSED)
            && !self.may_be_shared(self.known(fd))
            && Stat::of_fd(fd).is_ok_and(|stat| self.is_plain_and_kept(&stat))
    }

    /// Whether a descriptor, of which this is known, leads to a file or directory that only the kernel keeps, to a
    /// device that carries nothing, or nowhere.
    pub fn is_plain_or_none(&self, fd: u64, stat: Result<Stat, i64>) -> bool {
        const F_GETLEASE: u64 = 1025;
        const F_UNLCK: i64 = 2;
        // SAFETY: no pointers.
        let is_leased = || unsafe { gate::call(nr::fcntl, [fd, F_GETLEASE, 0, 0, 0, 0]) } != F_UNLCK;
        match stat {
            Ok(stat) if is_carrying_nothing(&stat) => true,
            Ok(stat) => self.is_plain_and_kept(&stat) && !is_leased(),
            Err(error) => error == -EBADF,
        }
    }
}

/// Whether an open file has no lock, which would go with its last descriptor. `/proc/self/fdinfo` has a line for each
/// (proc(5)), behind some others. Record locks that are taken on a guess are not among them.
fn has_no_locks(fd: u64) -> bool {
    const FOLDER: &[u8] = b"/proc/self/fdinfo/";
    const DIGITS: usize = 10;
    let mut path = [0u8; FOLDER.len() + DIGITS + 1];
    let mut at = FOLDER.len() + DIGITS;
    let mut rest = fd & u64::from(u32::MAX);
    loop {
        at -= 1;
        path[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let begin = at - FOLDER.len();
    path[begin..at].copy_from_slice(FOLDER);
    // SAFETY: the path is ours, and ends with a zero.
    let Ok(info) = (unsafe { OwnDescriptor::open(path[begin..].as_ptr() as u64, 0) }) else { return false };
    let mut text = [0u8; 256];
    // SAFETY: the kernel writes no more than the buffer has.
    let len = unsafe { gate::call(nr::read, [info.fd(), text.as_mut_ptr() as u64, text.len() as u64, 0, 0, 0]) };
    drop(info);
    let Some(text) = usize::try_from(len).ok().and_then(|len| text.get(..len)) else { return false };
    // All of it was read: its lines are "pos:", "flags:", "mnt_id:", "ino:" and those of locks.
    !text.is_empty() && text.len() < 256 && !text.windows(5).any(|five| five == b"lock:")
}
