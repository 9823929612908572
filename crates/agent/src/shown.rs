//! What the result of a call tells of others where its operation has not observed it (`syscall_table::Shows`):
//! another process, a total, an error.
//!
//! What cannot be named observes everything. While nothing is uncommitted all of this is one look at two words.

use crate::clocks::Call;
use crate::gate::{self, EAGAIN, EFAULT};
use crate::memory::read_program;
use crate::names::{can_be_read, AT_FDCWD, PATH_MAX};
use agent_abi::{option, FdKind, PROCESSES_MAX, PROCESS_IN_PSEUDO, THREADS_MAX};
use core::sync::atomic::Ordering;
use syscall_table::nr;
use syscall_table::{error_shows_others, may_lead_to_others, Op, Shows, Whom};

const ERRORS_END: i64 = -4096;
const PAGE: u64 = 4096;

impl Call<'_> {
    /// The call of a row that shows this has been made.
    #[inline(always)]
    pub fn observe_shown(&mut self, op: Op, shows: Shows) {
        if shows.is_observed_afterwards() || (self.frame.rax as i64) < 0 {
            self.look_back(shows);
        }
        if matches!(shows, Shows::Names) && !self.is_clean() {
            self.observe_way(op);
        }
    }

    #[inline(never)]
    fn look_back(&mut self, shows: Shows) {
        if matches!(shows, Shows::Parent) {
            return self.observe_parent();
        }
        if self.is_clean() {
            return;
        }
        let is_told = match self.frame.rax as i64 {
            result @ ERRORS_END..0 => {
                matches!(shows, Shows::Failure) || error_shows_others(-result as u16) || self.is_about_others(shows)
            }
            _ => self.is_about_others(shows),
        };
        if is_told {
            self.observe_everything();
        }
    }

    /// Whether a call of such a row is about somebody else than its caller.
    pub fn is_about_others(&self, shows: Shows) -> bool {
        match shows.whom(&self.frame.args) {
            Whom::Caller => false,
            Whom::Process(id) => !self.is_own(id),
            Whom::At(address) => {
                // The word before it is there as well.
                let mut words = [0u64];
                let id = read_program(address.wrapping_sub(4), &mut words).then_some((words[0] >> 32) as i32);
                id.is_none_or(|id| id != 0 && !self.is_own(id))
            }
            Whom::Anybody => true,
        }
    }

    /// Whether an id is this process's or one of its threads', as it counts them itself: in a pid namespace of its
    /// own the supervisor's numbers mean others.
    fn is_own(&self, id: i32) -> bool {
        // SAFETY: no arguments.
        let own = |nr| unsafe { gate::call(nr, [0; 6]) as i32 };
        let (pid, tid) = (own(nr::getpid), own(nr::gettid));
        id == pid || id == tid || self.counts_as_supervisor(pid) && self.is_own_thread(id)
    }

    /// Whether the supervisor knows this process by the number by which it knows itself.
    pub fn counts_as_supervisor(&self, pid: i32) -> bool {
        self.process.pid.load(Ordering::Relaxed) == pid as u32
    }

    fn is_own_thread(&self, id: i32) -> bool {
        let own = self.page.process;
        self.world.thread_map.taken().map(|slot| &self.world.threads[slot % THREADS_MAX]).any(|thread| {
            thread.tid.load(Ordering::Relaxed) == id as u32 && thread.process.load(Ordering::Relaxed) == own
        })
    }

    /// `getppid`: whoever hears what it heard before, or of the parent that it was born to, learns nothing.
    fn observe_parent(&mut self) {
        let answer = self.frame.rax as u32;
        let seen = self.process.parent_seen.load(Ordering::Relaxed);
        if seen == answer.wrapping_add(1) {
            return;
        }
        self.process.parent_seen.store(answer.wrapping_add(1), Ordering::Relaxed);
        if seen == 0 && self.is_born_to(answer) || self.is_clean() {
            return;
        }
        self.observe_everything();
    }

    fn is_born_to(&self, pid: u32) -> bool {
        let parent = self.process.parent.load(Ordering::Relaxed) as usize;
        pid != 0 && parent < PROCESSES_MAX && self.world.processes[parent].pid.load(Ordering::Relaxed) == pid
    }

    /// Names were looked up: those that lead through /proc show what a process does.
    #[inline(never)]
    fn observe_way(&mut self, op: Op) {
        if self.frame.rax as i64 == -EFAULT {
            return;
        }
        // That a file cannot be opened at once tells of who has a lease on it.
        let leads_to_others = self.frame.rax as i64 == -EAGAIN
            || self.has_option(option::PROC_ELSEWHERE)
            || op.paths().iter().flatten().any(|&(dir, path)| self.leads_to_others(dir, path));
        if leads_to_others {
            self.observe_everything();
        }
    }

    fn leads_to_others(&self, dir: u8, path: u8) -> bool {
        let text = self.arg(path);
        let is_read = (self.frame.rax as i64) >= 0;
        if text == 0 || !is_read && !can_be_read(text) {
            return false;
        }
        // SAFETY: the kernel has just read it, or `can_be_read`. A thread that unmaps it meanwhile ends the
        // process: the supervisor sees the fault.
        let byte = |at: u64| unsafe { (at as *const u8).read_volatile() };
        if byte(text) != b'/' && self.begins_in_pseudo(dir) {
            return true;
        }
        let bytes = (text..text + PATH_MAX as u64)
            .take_while(|&at| is_read || !at.is_multiple_of(PAGE) || can_be_read(at))
            .map(byte)
            .take_while(|&byte| byte != 0);
        may_lead_to_others(bytes, |id| self.is_own(id))
    }

    /// Whether relative names begin in /proc or its like.
    fn begins_in_pseudo(&self, dir: u8) -> bool {
        match self.directory(dir) {
            AT_FDCWD => self.process.flags.load(Ordering::Relaxed) & PROCESS_IN_PSEUDO != 0,
            fd => self.descriptor(fd).kind() == FdKind::Pseudo,
        }
    }

    /// A symbolic link to this text is about to be made. One that says /proc makes names that do not say so lead there.
    pub fn note_link(&self, text: u64) {
        if self.text_names_proc(text) {
            self.proc_is_elsewhere();
        }
    }

    /// A file system is about to be mounted, or a part of the tree in another place.
    pub fn note_proc_mounted(&self) {
        let is_proc = match self.frame.nr {
            // Source and type; where its name says so anyway it leads nobody astray.
            nr::mount => {
                [0, 2].iter().any(|&at| self.text_names_proc(self.arg(at))) && !self.text_names_proc(self.arg(1))
            }
            nr::open_tree | nr::open_tree_attr => self.text_names_proc(self.arg(1)) || self.begins_in_pseudo(0),
            nr::fsopen => self.text_names_proc(self.arg(0)),
            _ => false,
        };
        if is_proc {
            self.proc_is_elsewhere();
        }
    }

    fn proc_is_elsewhere(&self) {
        self.world.options.fetch_or(option::PROC_ELSEWHERE, Ordering::SeqCst);
    }

    /// Whether a component of a text in the program's memory is `proc`.
    fn text_names_proc(&self, text: u64) -> bool {
        const PROC: u32 = u32::from_be_bytes(*b"proc");
        const SLASH: u64 = b'/' as u64;
        if text == 0 || !can_be_read(text) {
            return false;
        }
        // The last bytes, newest lowest: `proc` between two slashes, of which the text's ends count as such.
        let mut last = SLASH;
        for at in text..text + PATH_MAX as u64 {
            if at.is_multiple_of(PAGE) && !can_be_read(at) {
                return false;
            }
            // SAFETY: `can_be_read` has just tried this page.
            let byte = unsafe { (at as *const u8).read_volatile() };
            let ends = byte == 0;
            last = last << 8 | if ends { SLASH } else { u64::from(byte) };
            if last & 0xffff_ffff_ffff == SLASH << 40 | u64::from(PROC) << 8 | SLASH {
                return true;
            }
            if ends {
                return false;
            }
        }
        false
    }
}
