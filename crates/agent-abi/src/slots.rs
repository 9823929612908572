//! Process and thread slots, and how they are taken without a lock.

use crate::confinement::Confinement;
use crate::door::Door;
use commit_clock::{AtomicClock, Handle, Transaction, Transactions};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use epochs::Work;

/// Processes that a world can have at once.
pub const PROCESSES_MAX: usize = 8192;
/// Threads that a world can have at once.
pub const THREADS_MAX: usize = 16384;

/// The process has memory in common with others, or a file mapped shared (002, 3.6): it depends on whatever anybody
/// knows.
pub const PROCESS_MAPPED_SHARED: u32 = 1;
/// The process has mapped data of a file private: in pages that it has not touched yet it sees what others write
/// (`World::private_changed`).
pub const PROCESS_MAPPED_PRIVATE: u32 = 2;

/// The process has set a timer since it was born; timers live on over exec.
pub const PROCESS_TIMERS: u32 = 4;
/// The process has asked for a record lock since it was born; they live on over exec, too.
pub const PROCESS_LOCKS: u32 = 8;
/// The process, or one that it descends from, has changed its user, its capabilities or its namespaces, or executed a
/// program that does.
pub const PROCESS_PRIVILEGES: u32 = 16;
/// The process's working directory is in /proc or its like.
pub const PROCESS_IN_PSEUDO: u32 = 32;
/// The process has mapped a file of a file system that somebody may serve: to touch its memory may be to wait for him.
pub const PROCESS_MAPPED_SERVED: u32 = 64;
/// The process, or one that it descends from, has locked a file that is outside: who closes it may give the lock up.
pub const PROCESS_LOCKS_OUTSIDE: u32 = 128;
/// The process shares its table of descriptors, its directory and umask, or its I/O context with another one, and sees
/// without a call that says so what that one does there. Directory and context are shared over exec, too.
pub const PROCESS_SHARES_STATE: u32 = 256;
/// The process hears of others without a call that says so: by a timer that goes by another one's CPU time.
pub const PROCESS_HEARS_OTHERS: u32 = 512;
/// The process has changed semaphores in a way that its end takes back (`SEM_UNDO`), also over exec.
pub const PROCESS_UNDOES: u32 = 1024;
/// The process was born on a guess and has no checkpoint: nothing of it is put back, it ends if the guess was wrong.
/// Only the supervisor says so.
pub const PROCESS_GOES: u32 = 2048;
/// The process has no child to wait for, in its program's eyes. Only the supervisor says so, of one that goes with a
/// guess; the process takes it back before it makes a child.
pub const PROCESS_CHILDLESS: u32 = 4096;
/// The kernel may tell the parent of the process of its end by another signal than SIGCHLD, or by none: what it says
/// of the process (`exit_signal`) is to be looked at. A new program has SIGCHLD.
pub const PROCESS_EXIT_SIGNAL: u32 = 8192;
/// The process has to hear of a signal or a child, on a guess: it asks at its next call. Only the supervisor says so.
pub const PROCESS_HAS_TO_HEAR: u32 = 16384;
/// The process was born on a guess with a memory of its own, and begun a program since if it was to have its parent's:
/// its end concerns its parent alone. Only the supervisor says so.
pub const PROCESS_ENDS: u32 = 32768;
/// What the kernel knows of the children of the process is all that there is to know: no end of one is held, none was
/// told of. Only the supervisor says so, of one that goes with a guess.
pub const PROCESS_WAITS: u32 = 65536;
/// The process is about to end without a question.
pub const PROCESS_ENDING: u32 = 131_072;
/// It has asked for a record lock while something was speculative. The kernel may not know of that
/// (`decisions/0213`): closing a descriptor gives it up.
pub const PROCESS_LOCKED_AHEAD: u32 = 262_144;
/// The process, or one that it descends from, has asked the kernel to wait for its children itself (`SA_NOCLDWAIT`).
/// Whether that still holds the kernel knows.
pub const PROCESS_NO_ZOMBIES: u32 = 524_288;
/// The process, or one that it descends from, has said of some of its memory that children do not get it, or get zeroes
/// (`MADV_DONTFORK`, `MADV_WIPEONFORK`). A new program has no such memory.
pub const PROCESS_KEEPS_MEMORY: u32 = 1_048_576;
/// Each of these is seen by whoever has something in common with the process, when it ends.
pub const PROCESS_GIVES_BACK: u32 = PROCESS_LOCKS_OUTSIDE | PROCESS_UNDOES;
/// What a new program has of the one before: what belongs to the process and not to its memory.
pub const PROCESS_KEPT_BY_EXEC: u32 = PROCESS_TIMERS
    | PROCESS_LOCKED_AHEAD
    | PROCESS_LOCKS
    | PROCESS_PRIVILEGES
    | PROCESS_IN_PSEUDO
    | PROCESS_GIVES_BACK
    | PROCESS_SHARES_STATE
    | PROCESS_GOES
    | PROCESS_HAS_TO_HEAR
    | PROCESS_ENDS
    | PROCESS_WAITS;
/// What the supervisor alone says of a process, or the process of what it is about to do: it is so at a moment, not
/// from then on.
pub const PROCESS_OF_THE_MOMENT: u32 =
    PROCESS_GOES | PROCESS_CHILDLESS | PROCESS_HAS_TO_HEAR | PROCESS_ENDS | PROCESS_WAITS | PROCESS_ENDING;
/// Each of these makes a process depend on whatever anybody knows to be changed (`Transactions::known`).
pub const PROCESS_SHARES: u32 = PROCESS_MAPPED_SHARED | PROCESS_SEES_OTHERS;
/// Each of these makes it depend on whatever anybody changed: it sees more of others than their memory.
pub const PROCESS_SEES_OTHERS: u32 = PROCESS_SHARES_STATE | PROCESS_HEARS_OTHERS;

/// What is shared about one process (or, with independent threads, one thread).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Process {
    /// What it depends on.
    pub clock: AtomicClock,
    /// Its process id, as the supervisor sees it; 0 until known.
    pub pid: AtomicU32,
    /// Slot of its parent.
    pub parent: AtomicU32,
    /// `PROCESS_…` bits.
    pub flags: AtomicU32,
    /// Bit d: it has a writable shared mapping of a file of domain d.
    pub mapped_domains: AtomicU32,
    /// Its entries that are held in output queues.
    pub held_outputs: AtomicU32,
    /// Threads that use this slot.
    pub users: AtomicU32,
    /// Sites that were mapped patched.
    pub patched_sites: AtomicU64,
    /// Objects that it has mapped read-only and shared, by slot plus 1; 0 = none.
    pub watched: [AtomicU32; 6],
    /// What `getppid` answered last, plus 1; 0 = never asked.
    pub parent_seen: AtomicU32,
    /// Bytes that it has taken from connections to outside since it last depended on nothing there.
    pub taken: AtomicU32,
    /// On which permit it may look names up, and read what it opened or asked about (`World::permits`); 0 = none.
    pub permit: AtomicU64,
    /// In which epoch it was known to depend on all guesses that are open (`YoungPipes`); 0 = none.
    pub young: AtomicU64,
}

/// What is known of a process ([`Process::known`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    flags: u32,
    mapped_domains: u32,
    watched: [u32; 6],
}

/// What is shared about one thread.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Thread {
    /// Open while the thread changes a domain.
    pub handle: Handle,
    /// Address of its `ThreadPage` in its process.
    pub page: AtomicU64,
    /// Its thread id, as the supervisor sees it.
    pub tid: AtomicU32,
    /// Slot of its process.
    pub process: AtomicU32,
    /// It waits for a child.
    pub door: Door,
    /// Not 0: it is in a call of the agent, and SIGCHLD does nothing in its process.
    pub ignores_sigchld: AtomicU32,
    /// It makes a child on its own core.
    pub confinement: Confinement,
    /// Thread slot of the parent that was confined when it made this one, plus 1: both may run everywhere again. 0 if
    /// none was.
    pub born_near: AtomicU32,
    /// System calls that went through the agent, in all programs of the thread; 0 in a free slot. Here, not with the
    /// process: threads on several processors would take one line from each other at every call.
    pub calls: AtomicU64,
    /// The domain whose log a call of it is changing that flushes it (`Transactions::join_flushed`), plus 1.
    pub flushing: AtomicU32,
    /// Not 0: it is in a call that makes a pipe, or has made one and not told of it yet (`World::remember_pipe`).
    /// Whoever was born meanwhile, or shares its descriptors, may have that pipe.
    pub makes_pipe: AtomicU32,
    /// The permit on which it makes a call now.
    pub work: Work,
}

/// One bit a slot.
#[repr(C)]
#[derive(Debug)]
pub struct SlotMap<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> SlotMap<WORDS> {
    /// Take a free slot.
    pub fn take(&self) -> Option<usize> {
        for (i, word) in self.0.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = (!seen).trailing_zeros();
                match word.compare_exchange_weak(seen, seen | 1 << bit, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => return Some(i * 64 + bit as usize),
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    /// Give a slot back.
    pub fn give_back(&self, index: usize) {
        if let Some(word) = self.0.get(index / 64) {
            word.fetch_and(!(1 << (index % 64)), Ordering::AcqRel);
        }
    }

    /// The slots that are taken.
    pub fn taken(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut left = word.load(Ordering::Acquire);
            core::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                Some(i * 64 + bit)
            })
        })
    }
}

impl Process {
    /// What else a child has from its parent: its mappings.
    pub fn inherit_mappings(&self, parent: &Process) {
        const INHERITED: u32 = PROCESS_MAPPED_SHARED
            | PROCESS_MAPPED_PRIVATE
            | PROCESS_MAPPED_SERVED
            | PROCESS_KEEPS_MEMORY
            | PROCESS_HEARS_OTHERS
            | PROCESS_PRIVILEGES
            | PROCESS_IN_PSEUDO
            | PROCESS_NO_ZOMBIES
            | PROCESS_LOCKS_OUTSIDE;
        self.flags.fetch_or(parent.flags.load(Ordering::Relaxed) & INHERITED, Ordering::Relaxed);
        self.mapped_domains.store(parent.mapped_domains.load(Ordering::Relaxed), Ordering::Relaxed);
        for (own, watched) in self.watched.iter().zip(&parent.watched) {
            own.store(watched.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// It has been given what a child of it has mapped (`vfork` with a copy of the memory).
    pub fn has_mapped_like(&self, child: &Process) {
        const OF_MAPPINGS: u32 = PROCESS_MAPPED_SHARED | PROCESS_MAPPED_PRIVATE | PROCESS_MAPPED_SERVED;
        let mut flags = child.flags.load(Ordering::Relaxed) & OF_MAPPINGS;
        self.mapped_domains.fetch_or(child.mapped_domains.load(Ordering::SeqCst), Ordering::SeqCst);
        let watched = child.watched.iter().filter_map(|cell| cell.load(Ordering::Relaxed).checked_sub(1));
        for slot in watched {
            if !self.watch(slot as usize) {
                flags |= PROCESS_MAPPED_SHARED;
            }
        }
        self.flags.fetch_or(flags, Ordering::Relaxed);
    }

    /// What is known of it that a new program loses: its flags, and what it has mapped.
    pub fn known(&self) -> Known {
        Known {
            flags: self.flags.load(Ordering::SeqCst) & !PROCESS_OF_THE_MOMENT,
            mapped_domains: self.mapped_domains.load(Ordering::SeqCst),
            watched: core::array::from_fn(|at| self.watched[at].load(Ordering::Relaxed)),
        }
    }

    /// It has been put back, so that this is true of it again. What was found out since stays: nobody knows which of it
    /// a program has done that is gone.
    pub fn is_known_again(&self, known: &Known) {
        let mut flags = known.flags;
        self.mapped_domains.fetch_or(known.mapped_domains, Ordering::SeqCst);
        for slot in known.watched.iter().filter_map(|slot| slot.checked_sub(1)) {
            if !self.watch(slot as usize) {
                flags |= PROCESS_MAPPED_SHARED;
            }
        }
        self.flags.fetch_or(flags, Ordering::SeqCst);
    }

    /// From now on the process depends on this, too. With those who share its memory it shares what it knows.
    #[inline(always)]
    pub fn depend(&self, transactions: &Transactions, clock: &commit_clock::Clock) {
        self.clock.merge(clock, transactions.domains());
        if self.flags.load(Ordering::Relaxed) & PROCESS_SHARES != 0 {
            transactions.learn(clock);
        }
    }

    /// A new program has none of them.
    pub fn forget_mappings(&self) {
        self.mapped_domains.store(0, Ordering::Release);
        self.watched.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }

    /// A fresh slot for a child of `parent`, depending on what `clock` depends on.
    pub fn begin(&self, parent: usize, clock: &commit_clock::Clock) {
        self.clock.reset();
        self.clock.merge(clock, commit_clock::DOMAINS_MAX);
        self.pid.store(0, Ordering::Relaxed);
        self.parent.store(parent as u32, Ordering::Relaxed);
        self.flags.store(0, Ordering::Relaxed);
        self.mapped_domains.store(0, Ordering::Relaxed);
        self.held_outputs.store(0, Ordering::Relaxed);
        self.users.store(1, Ordering::Relaxed);
        self.parent_seen.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.permit.store(0, Ordering::Relaxed);
        self.young.store(0, Ordering::Relaxed);
        self.watched.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        self.patched_sites.store(0, Ordering::Release);
    }
}

impl Process {
    /// From now on depend on whatever this object depends on. False if there is no room to remember it.
    pub fn watch(&self, slot: usize) -> bool {
        let wanted = slot as u32 + 1;
        self.watched.iter().any(|cell| {
            cell.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire).is_ok()
                || cell.load(Ordering::Relaxed) == wanted
        })
    }
}

impl Thread {
    /// A fresh slot for a thread of `process` whose page is at `page`.
    pub fn begin(&self, process: usize, page: u64) {
        self.handle.close();
        self.flushing.store(0, Ordering::Relaxed);
        self.makes_pipe.store(0, Ordering::Relaxed);
        self.work.end();
        self.door.reset();
        self.ignores_sigchld.store(0, Ordering::Relaxed);
        self.confinement.reset();
        self.born_near.store(0, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        self.tid.store(0, Ordering::Relaxed);
        self.process.store(process as u32, Ordering::Release);
    }

    /// `Transactions::join_flushed` for a call of this thread.
    #[inline(always)]
    pub fn join_flushed(&self, transactions: &Transactions, domain: usize) -> Transaction {
        let transaction = transactions.join_flushed(domain);
        self.flushing.store(domain as u32 + 1, Ordering::Relaxed);
        transaction
    }

    /// That call has flushed what it changed, or it counts as one that does not.
    #[inline(always)]
    pub fn end_flushed(&self, transactions: &Transactions) {
        if let Some(domain) = self.flushing.swap(0, Ordering::Relaxed).checked_sub(1) {
            transactions.end_flushed(domain as usize);
        }
    }

    /// The thread does not end a change itself: it has died, or is taken out of its call. What it was to flush counts
    /// as an ordinary change.
    pub fn leave_change(&self, transactions: &Transactions) {
        if let Some(domain) = self.flushing.load(Ordering::Relaxed).checked_sub(1) {
            transactions.join_log(domain as usize);
            self.end_flushed(transactions);
        }
        self.handle.close();
    }
}
