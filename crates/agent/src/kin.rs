//! Ends of processes, and waits for children, of which nobody is asked
//! ([0238](../../../docs/decisions/0238-who-goes-ends-without-a-question.md)).
//!
//! A process that goes with a guess, as its parent does, ends as it would natively, and its parent hears of it from the
//! kernel, if both depend on all guesses that are open: whatever takes back what the parent has heard ends the parent,
//! which was made on the same guesses. What the end closes must be nothing that others could tell.

use crate::clocks::Call;
use crate::descriptors::{is_terminal, Stat, S_IFIFO};
use crate::gate::{self, ECHILD};
use crate::opened::OwnDescriptor;
use agent_abi::{
    hash_end, option, permitted, Process, PROCESS_ENDING, PROCESS_ENDS, PROCESS_EXIT_SIGNAL, PROCESS_GIVES_BACK,
    PROCESS_GOES, PROCESS_HAS_TO_HEAR, PROCESS_LOCKS, PROCESS_SHARES, PROCESS_SHARES_STATE, PROCESS_WAITS,
    THREAD_TRACES,
};
use core::sync::atomic::Ordering;
use syscall_table::nr;

/// Where one of these options is set, the supervisor is asked about every end and every wait.
const OTHERS_MAY_TELL: u32 = option::FILES_LOCKED
    | option::READS_HEARD
    | option::DESCRIPTORS_PASSED
    | option::DESCRIPTORS_TAKEN
    | option::READINESS_SIGNALLED
    | option::ENDS_OF_PARENTS_HEARD
    | option::INDEPENDENT_THREADS;

impl Call<'_> {
    /// Begins the end of the process, or a wait for its children, if nobody has to be asked.
    #[inline(never)]
    pub fn begins_among_kin(&self) -> bool {
        match self.frame.nr {
            nr::exit_group => self.begins_end(),
            nr::wait4 => self.begins_wait(),
            _ => false,
        }
    }

    /// The kernel knows all there is to know of the children. A thread that sleeps there is called out when an end is
    /// held of which it has to hear.
    fn begins_wait(&self) -> bool {
        const WAITS: u32 = PROCESS_GOES | PROCESS_WAITS;
        self.may_concern_kin(permitted::WAIT)
            && self.process.flags.load(Ordering::SeqCst) & (WAITS | PROCESS_SHARES_STATE | PROCESS_HAS_TO_HEAR) == WAITS
            && self.world.young.begin(&self.thread.work, |_| true)
    }

    fn begins_end(&self) -> bool {
        const ENDS: u32 = PROCESS_GOES | PROCESS_ENDS;
        const LEAVES: u32 =
            PROCESS_SHARES | PROCESS_GIVES_BACK | PROCESS_LOCKS | PROCESS_EXIT_SIGNAL | PROCESS_HAS_TO_HEAR;
        let flags = &self.process.flags;
        let was = flags.load(Ordering::SeqCst);
        if was & PROCESS_ENDING != 0 {
            // It was called out of its end: that is decided anew.
            flags.fetch_and(!PROCESS_ENDING, Ordering::SeqCst);
        }
        let epoch = self.process.young.load(Ordering::SeqCst);
        let may_end = was & (ENDS | LEAVES) == ENDS
            && self.may_concern_kin(permitted::CLOSE)
            && epoch != 0
            && self.has_parent_of(epoch)
            && !leads_session()
            && !has_children()
            && self.closes_unseen(epoch);
        if !may_end {
            return false;
        }
        // First: who makes a checkpoint of the parent ends the epoch, and then looks whether a child is about to end.
        flags.fetch_or(PROCESS_ENDING, Ordering::SeqCst);
        if self.world.young.begin(&self.thread.work, |now| now == epoch) {
            return true;
        }
        flags.fetch_and(!PROCESS_ENDING, Ordering::SeqCst);
        false
    }

    /// Whether such calls may be made by this process at all: it is alone with its memory and its descriptors.
    fn may_concern_kin(&self, kind: u32) -> bool {
        self.world.permitted.load(Ordering::Relaxed) & kind != 0
            && !self.has_option(OTHERS_MAY_TELL)
            && self.has_marks()
            && self.process.users.load(Ordering::Relaxed) == 1
            && self.page.flags & THREAD_TRACES == 0
    }

    /// Whether the kernel will tell a parent inside that waits in the kernel, and depends on all guesses that are open.
    fn has_parent_of(&self, epoch: u64) -> bool {
        const WAITS: u32 = PROCESS_GOES | PROCESS_WAITS;
        let is_such = |parent: &Process| {
            // SAFETY: no arguments.
            let pid = unsafe { gate::call(nr::getppid, [0; 6]) };
            pid == i64::from(parent.pid.load(Ordering::SeqCst))
                && parent.flags.load(Ordering::SeqCst) & WAITS == WAITS
                && parent.young.load(Ordering::SeqCst) == epoch
        };
        self.world.processes.get(self.process.parent.load(Ordering::Relaxed) as usize).is_some_and(is_such)
    }

    /// Whether nobody can tell that the descriptors of the process are closed.
    fn closes_unseen(&self, epoch: u64) -> bool {
        let young = &self.world.young;
        let is_unseen = |fd: u64| match Stat::of_fd(fd) {
            Ok(stat) if stat.kind() == S_IFIFO && young.has(stat.hash(), epoch) => true,
            Ok(stat) if stat.kind() == S_IFIFO || is_terminal(&stat) => young.has(end_behind(fd, &stat), epoch),
            stat => self.is_plain_or_none(fd, stat),
        };
        all_descriptors(is_unseen)
    }
}

/// What an end of a pipe of outside, or of a terminal, is noted as if it is kept open.
fn end_behind(fd: u64, stat: &Stat) -> u64 {
    const F_GETFL: u64 = 3;
    const O_ACCMODE: i64 = 3;
    // SAFETY: no pointers.
    let mode = unsafe { gate::call(nr::fcntl, [fd, F_GETFL, 0, 0, 0, 0]) } & O_ACCMODE;
    hash_end(stat.dev, stat.ino, mode as u32)
}

/// The end of who leads a session is a hang-up at its terminal.
fn leads_session() -> bool {
    // SAFETY: no pointers.
    unsafe { gate::call(nr::getsid, [0; 6]) == gate::call(nr::getpid, [0; 6]) }
}

/// Whether the kernel knows of a child, alive or not, for which nobody has waited.
fn has_children() -> bool {
    // WNOHANG, WEXITED, WNOWAIT, __WALL.
    const OPTIONS: u64 = 0x1 | 0x4 | 0x0100_0000 | 0x4000_0000;
    // SAFETY: it writes nothing.
    unsafe { gate::call(nr::waitid, [0, 0, 0, OPTIONS, 0, 0]) != -ECHILD }
}

/// Whether all open descriptors of the process are such; false if they cannot be listed.
fn all_descriptors(is_such: impl Fn(u64) -> bool) -> bool {
    const PATH: &core::ffi::CStr = c"/proc/self/fd";
    const O_DIRECTORY: u64 = 0o200000;
    let mut part = [0u64; 64];
    // SAFETY: the path is ours.
    let Ok(dir) = (unsafe { OwnDescriptor::open(PATH.as_ptr() as u64, O_DIRECTORY) }) else { return false };
    loop {
        let args = [dir.fd(), part.as_mut_ptr() as u64, size_of_val(&part) as u64, 0, 0, 0];
        // SAFETY: the kernel writes no more than the buffer has.
        match unsafe { gate::call(nr::getdents64, args) } {
            0 => break true,
            len if len > 0 && numbers(&part, len as usize).all(|fd| fd == dir.fd() || is_such(fd)) => {}
            _ => break false,
        }
    }
}

/// The numbers among the names of a part of a directory (`struct linux_dirent64`).
fn numbers(part: &[u64; 64], len: usize) -> impl Iterator<Item = u64> + '_ {
    /// Inode and offset, 8 bytes each.
    const RECORD_LEN: usize = 16;
    const NAME: usize = 19;
    let byte = move |at: usize| part.get(at / 8).map_or(0, |word| (word >> (at % 8 * 8)) as u8);
    let mut at = 0;
    core::iter::from_fn(move || {
        while at < len {
            let begin = at;
            at += (usize::from(byte(begin + RECORD_LEN)) | usize::from(byte(begin + RECORD_LEN + 1)) << 8).max(1);
            let digits = (begin + NAME..).map(byte).take_while(u8::is_ascii_digit);
            let mut number = None;
            for digit in digits {
                number = Some(number.unwrap_or(0) * 10 + u64::from(digit - b'0'));
            }
            if number.is_some() {
                return number;
            }
        }
        None
    })
}
