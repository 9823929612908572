//! What is asked of a descriptor beside data: its flags, its locks, requests to what is behind it.

use crate::clocks::Call;
use crate::descriptors::{is_doubtful_socket, note_outside_stream, replace_remembered, Stat};
use crate::gate;
use crate::memory::{read_program, read_program_bytes};
use crate::transfer::is_pipe;
use agent_abi::{option, FdEntry, FdKind, PROCESS_LOCKS, PROCESS_LOCKS_OUTSIDE};
use core::sync::atomic::Ordering;
use syscall_table::nr;

impl Call<'_> {
    pub fn fcntl(&mut self) {
        const F_DUPFD: u64 = 0;
        const F_GETFD: u64 = 1;
        const F_SETFD: u64 = 2;
        const F_GETFL: u64 = 3;
        const F_GETLK: u64 = 5;
        const F_SETLK: u64 = 6;
        const F_SETLKW: u64 = 7;
        const F_OFD_GETLK: u64 = 36;
        const F_OFD_SETLKW: u64 = 38;
        const F_SETFL: u64 = 4;
        const F_SETOWN: u64 = 8;
        const F_GETSIG: u64 = 11;
        const F_SETOWN_EX: u64 = 15;
        const F_GETOWNER_UIDS: u64 = 17;
        const F_DUPFD_CLOEXEC: u64 = 1030;
        const F_SETPIPE_SZ: u64 = 1031;
        const F_SET_FILE_RW_HINT: u64 = 1038;
        const F_SETLEASE: u64 = 1024;
        const O_ASYNC: u64 = 0o20000;
        let command = if self.frame.nr == nr::dup { F_DUPFD } else { u64::from(self.arg(1) as u32) };
        match command {
            F_GETLK..=F_SETLKW | F_OFD_GETLK..=F_OFD_SETLKW => {
                let is_noted = self.process.flags.load(Ordering::Relaxed) & PROCESS_LOCKS != 0;
                if matches!(command, F_SETLK | F_SETLKW) && !is_noted {
                    self.process.flags.fetch_or(PROCESS_LOCKS, Ordering::Relaxed);
                }
                self.lock(0, !matches!(command, F_GETLK | F_OFD_GETLK));
            }
            F_GETFL => self.get_flags(),
            F_GETFD | F_SETFD => {
                self.proceed();
            }
            F_DUPFD | F_DUPFD_CLOEXEC => {
                let known = self.known(self.arg(0));
                let result = self.proceed();
                if result >= 0 {
                    self.remember(result as u64, known);
                }
            }
            F_SETOWN | F_SETOWN_EX => {
                self.note_owner_of(command == F_SETOWN_EX);
                self.change_description(0);
            }
            F_SETFL if self.arg(2) & O_ASYNC != 0 => {
                self.signal_readiness();
                self.change_description(0);
            }
            F_SETFL | F_SETOWN..=F_GETSIG | F_SETOWN_EX..=F_GETOWNER_UIDS | F_SETPIPE_SZ..=F_SET_FILE_RW_HINT => {
                self.change_description(0);
            }
            // Leases tell who has the file open, and for the rest nobody knows.
            _ => {
                if command == F_SETLEASE {
                    // Who has one allows others to open the file.
                    self.hear_reads();
                }
                self.change_description(0);
                self.observe_everything();
            }
        }
    }

    /// `F_SETOWN`, and `F_SETOWN_EX` with its structure.
    fn note_owner_of(&mut self, is_structure: bool) {
        const F_OWNER_TID: u32 = 0;
        const F_OWNER_PGRP: u32 = 2;
        if !is_structure {
            return self.note_owner(self.arg(2) as i32);
        }
        let mut owner = [0u64];
        if !read_program(self.arg(2), &mut owner) {
            return;
        }
        let (kind, id) = (owner[0] as u32, (owner[0] >> 32) as i32);
        match kind {
            F_OWNER_TID if self.is_thread_inside(id as u32) => {}
            F_OWNER_PGRP => self.note_owner(id.wrapping_neg()),
            _ => self.note_owner(id),
        }
    }

    fn is_thread_inside(&self, tid: u32) -> bool {
        let mut threads = self.world.thread_map.taken().map(|slot| &self.world.threads[slot]);
        self.counts_as_supervisor(self.own_pid()) && threads.any(|thread| thread.tid.load(Ordering::Relaxed) == tid)
    }

    /// The kernel sends a signal to the owner of an open file when it becomes ready. For one that may be outside
    /// nothing inside may become so before what caused it is committed. A group (a negative number) may have members
    /// there.
    fn note_owner(&mut self, id: i32) {
        let is_inside = id == 0 || id == self.own_pid() || self.known_process(id).is_some();
        if !is_inside && self.descriptor(self.arg(0)).kind() != FdKind::Outside {
            self.nothing_is_inside();
        }
    }

    /// From now on the kernel tells somebody by a signal that something can be read or written: no guess is to make
    /// it so.
    fn signal_readiness(&self) {
        self.world.options.fetch_or(option::READINESS_SIGNALLED, Ordering::SeqCst);
    }

    /// Flags, owner, size, seals, options, timers: what all who share an open file see.
    pub fn change_description(&mut self, position: u8) {
        if self.is_clean() {
            self.proceed();
            return;
        }
        let entry = self.descriptor(self.arg(position));
        if entry.kind() == FdKind::Bad {
            self.proceed();
            return;
        }
        if self.is_inherited_from_outside(entry) {
            self.settle();
        }
        self.modify_description(entry);
        self.proceed();
        self.observe(self.object(entry.slot()));
        if is_doubtful_socket(entry) {
            self.observe_everything();
        }
    }

    /// `signalfd`: what is read from such a descriptor says who sent it.
    pub fn signal_descriptor(&mut self, position: u8) {
        self.change_description(position);
        let made = self.frame.rax;
        if (made as i64) < 0 {
            return;
        }
        let entry = self.descriptor(made);
        if entry.kind() == FdKind::Inside {
            replace_remembered(made, entry, entry.with(FdEntry::SIGNALS));
        }
    }

    /// Whoever shares it may look at it, or wait for it to become ready.
    pub fn modify_description(&self, entry: FdEntry) {
        if self.may_be_shared(entry) {
            self.modify(self.object(entry.slot()));
            self.modify(&self.world.messages);
        }
    }

    /// From now on somebody inside hears that files are opened and read, or even has to allow it.
    pub fn hear_reads(&self) {
        self.world.options.fetch_or(agent_abi::option::READS_HEARD, Ordering::SeqCst);
    }

    fn watch_files(&self) {
        self.world.options.fetch_or(agent_abi::option::FILES_WATCHED, Ordering::SeqCst);
    }

    /// `fanotify_init`.
    pub fn listen_to_files(&mut self) {
        self.watch_files();
        self.hear_reads();
        self.barrier();
    }

    /// A watch that is added gets the next number.
    pub fn add_watch(&mut self, position: u8) {
        const IN_ACCESS: u64 = 0x1;
        const IN_CLOSE_NOWRITE: u64 = 0x10;
        const IN_OPEN: u64 = 0x20;
        self.watch_files();
        if self.frame.nr == nr::inotify_add_watch && self.arg(2) & (IN_ACCESS | IN_CLOSE_NOWRITE | IN_OPEN) != 0 {
            self.hear_reads();
        }
        let entry = if self.is_clean() { None } else { Some(self.descriptor(self.arg(position))) };
        entry.iter().for_each(|&entry| self.modify_description(entry));
        self.observe_path();
        if let Some(entry) = entry {
            self.observe(self.object(entry.slot()));
        }
    }

    /// Whether somebody outside may have the same open file.
    fn is_inherited_from_outside(&self, entry: FdEntry) -> bool {
        match entry.kind() {
            FdKind::Outside if entry.has(FdEntry::TERMINAL) => true,
            FdKind::Outside => Stat::of_fd(self.arg(0)).is_ok_and(|stat| self.world.is_outside(stat.hash())),
            FdKind::OutsideFile => self.may_be_shared(entry),
            _ => false,
        }
    }

    /// A lock is a message: who takes it may have waited for whoever held it. On a file whose data waits like output
    /// it is one to outside (`decisions/0036`).
    pub fn lock(&mut self, position: u8, changes: bool) {
        let entry = self.descriptor(self.arg(position));
        self.modify(self.object(entry.slot()));
        if changes && !self.has_option(option::FILES_LOCKED) {
            self.world.options.fetch_or(option::FILES_LOCKED, Ordering::SeqCst);
        }
        if changes && matches!(entry.kind(), FdKind::OutsideFile | FdKind::Outside | FdKind::Pseudo) {
            self.process.flags.fetch_or(PROCESS_LOCKS_OUTSIDE, Ordering::Relaxed);
            // It is given up with the process, too.
            note_outside_stream(self.arg(position));
            self.settle();
        }
        self.proceed();
        // A lock is also given up by closing the file, or by the end of a process: whoever takes it, or sees that it is
        // taken, does not know whose.
        if !self.is_clean() {
            self.observe_everything();
        }
    }

    pub fn ioctl(&mut self) {
        const FIOASYNC: u32 = 0x5452;
        const FIOSETOWN: u32 = 0x8901;
        const SIOCSPGRP: u32 = 0x8902;
        let entry = self.descriptor(self.arg(0));
        match Ioctl::of(self.arg(1) as u32) {
            Ioctl::Observes => self.read(0),
            Ioctl::Flags => {
                let mut owner = [0u64];
                match self.arg(1) as u32 {
                    FIOASYNC => self.signal_readiness(),
                    FIOSETOWN | SIOCSPGRP if read_program_bytes(self.arg(2), &mut owner, 4) => {
                        self.note_owner(owner[0] as i32);
                    }
                    _ => {}
                }
                self.change_description(0);
            }
            Ioctl::ModifiesFile => self.modify_descriptor(0),
            Ioctl::Freezes => self.answer(-gate::EOPNOTSUPP),
            Ioctl::Unknown => match entry.kind() {
                FdKind::Inside if is_pipe(entry) => self.send_inside(entry),
                FdKind::Nothing | FdKind::Bad => {
                    self.proceed();
                }
                FdKind::DomainFile => {
                    self.settle();
                    self.modify_descriptor(0);
                }
                FdKind::Outside if changes_how_it_is_shown(self.arg(1) as u32) => {
                    self.settle();
                    self.await_queue(entry);
                    self.proceed();
                }
                _ => {
                    self.settle();
                    self.await_queue(entry);
                    self.proceed();
                    self.observe_everything();
                }
            },
        }
    }
}

/// Whether a request to a terminal concerns what was written before, by others too: the modes in which it is shown, or
/// that it has been.
fn changes_how_it_is_shown(request: u32) -> bool {
    // TCSETS and its kin, TCSBRK, TCSBRKP. (Not TCXONC: it is what lets the rest be shown.)
    matches!(request, 0x5402..=0x5404 | 0x5406..=0x5409 | 0x402c542b..=0x402c542d | 0x5425)
}

/// What an `ioctl` request means.
enum Ioctl {
    /// Reads state, or changes only this process's view of it.
    Observes,
    /// Changes the flags of an open file: FIONBIO, FIOASYNC.
    Flags,
    /// Changes a file.
    ModifiesFile,
    /// FIFREEZE and FITHAW: a frozen file system could not commit.
    Freezes,
    /// Not known: a barrier.
    Unknown,
}

impl Ioctl {
    fn of(request: u32) -> Self {
        match request {
            // TCGETS, TCGETS2, TIOCGWINSZ, TIOCGPGRP, TIOCGSID, TIOCOUTQ, FIONREAD, TIOCGPTN, TIOCGEXCL, TIOCGETD
            0x5401 | 0x802c542a | 0x5413 | 0x540f | 0x5429 | 0x5411 | 0x541b | 0x80045430 | 0x80045440 | 0x5424 => {
                Self::Observes
            }
            0x5421 | 0x5452 => Self::Flags,
            // FIOSETOWN, SIOCSPGRP, TFD_IOC_SET_TICKS, EPIOCSPARAMS
            0x8901 | 0x8902 | 0x4008_5400 | 0x4008_8a01 => Self::Flags,
            // FIONCLEX, FIOCLEX, FIOQSIZE, FIGETBSZ, FIBMAP, FS_IOC_FIEMAP, FIOGETOWN, SIOCGPGRP, SIOCATMARK,
            // SIOCOUTQNSD, EPIOCGPARAMS
            0x5450 | 0x5451 | 0x5460 | 2 | 1 | 0xc020660b | 0x8903..=0x8905 | 0x894b | 0x8008_8a02 => Self::Observes,
            // FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FSGETXATTR, FS_IOC_GETFSUUID, BLKGETSIZE64, BLKSSZGET
            0x80086601 | 0x80087601 | 0x801c581f | 0x80111500 | 0x80081272 | 0x1268 => Self::Observes,
            // FICLONE, FICLONERANGE, FIDEDUPERANGE, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION
            0x40049409 | 0x4020940d | 0xc0189436 | 0x40086602 | 0x401c5820 | 0x40087602 => Self::ModifiesFile,
            0xc0045877 | 0xc0045878 => Self::Freezes,
            _ => Self::Unknown,
        }
    }
}
