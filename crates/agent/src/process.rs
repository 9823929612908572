//! Children, signals, exec, and what a process says of itself.

use crate::clocks::Call;
use crate::descriptors::{
    forget_forever, forget_if_threaded, note_threads, private, set_undumpable, share_descriptions,
};
use crate::gate::{self, EACCES, EAGAIN, EBADF, EFAULT, EINVAL, EPERM};
use crate::memory::{home_of_thread, map_thread_page, read_program, read_program_bytes};
use crate::sockets::is_closed_by_exec;
use crate::timed::Limit;
use agent_abi::{
    option, Frame, Request, ThreadPage, PROCESSES_MAX, PROCESS_CHILDLESS, PROCESS_EXIT_SIGNAL, PROCESS_HEARS_OTHERS,
    PROCESS_MAPPED_SHARED, PROCESS_PRIVILEGES, PROCESS_SHARES, PROCESS_SHARES_STATE, PROCESS_TIMERS, PROCESS_UNDOES,
    THREADS_MAX, THREAD_FORKED, THREAD_PAGE_OFFSET, THREAD_UNCACHED,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use syscall_table::nr;
use syscall_table::Shows;

const SIGCHLD: u64 = 17;
const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_FILES: u64 = 0x400;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_PTRACE: u64 = 0x2000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_PARENT: u64 = 0x8000;
const CLONE_THREAD: u64 = 0x10000;
/// What semaphores get back at the end is kept in common.
const CLONE_SYSVSEM: u64 = 0x40000;
const CLONE_NEWUSER: u64 = 0x1000_0000;
/// It has other mounts than its parent.
const CLONE_NEWNS: u64 = 0x2_0000;
const CLONE_NEWIPC: u64 = 0x800_0000;
const CLONE_NEWPID: u64 = 0x2000_0000;
const CLONE_IO: u64 = 0x8000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// All kinds of namespaces: mount, cgroup, UTS, IPC, user, pid, network, time.
const NAMESPACES: u64 = 0x7e02_0080;
/// Words of `struct clone_args` that are understood.
const CLONE_ARGS_WORDS: usize = 11;

/// What a call wants of its child.
struct Birth {
    flags: u64,
    stack: u64,
    /// By which the kernel tells of the child's end; 0: by none.
    exit_signal: u64,
    nr: u64,
    args: [u64; 6],
}

impl Birth {
    /// Whether the child is a process that sees what its parent does to its directory, umask, I/O context or table of
    /// descriptors, and the other way round. (With the parent's memory there is one clock, or the parent waits; but a
    /// new program of the child shares directory and context still.)
    fn shares_state(&self) -> bool {
        let shares = |flag: u64| self.flags & flag != 0;
        !shares(CLONE_THREAD) && (shares(CLONE_FS | CLONE_IO) || shares(CLONE_FILES) && !shares(CLONE_VM))
    }
}

impl Call<'_> {
    pub fn fork(&mut self) {
        let args = [CLONE_PTRACE | SIGCHLD, 0, 0, 0, 0, 0];
        self.give_birth(Birth { flags: 0, stack: 0, exit_signal: SIGCHLD, nr: nr::clone, args });
    }

    pub fn vfork(&mut self) {
        let flags = self.flags_of_birth(CLONE_VM | CLONE_VFORK);
        self.give_birth(Birth {
            flags,
            stack: 0,
            exit_signal: SIGCHLD,
            nr: nr::clone,
            args: [flags | CLONE_PTRACE | SIGCHLD, 0, 0, 0, 0, 0],
        });
    }

    pub fn clone(&mut self) {
        const SIGNAL: u64 = 0xff;
        let mut args = self.frame.args;
        let (flags, stack) = (self.flags_of_birth(args[0]), args[1]);
        // With the flag, the kernel attaches the child to our supervisor itself, and the parent need not stop.
        args[0] = flags | CLONE_PTRACE;
        self.give_birth(Birth { flags, stack, exit_signal: args[0] & SIGNAL, nr: nr::clone, args });
    }

    pub fn clone3(&mut self) {
        const FLAGS: usize = 0;
        const EXIT_SIGNAL: usize = 4;
        const STACK: usize = 5;
        const STACK_SIZE: usize = 6;
        const SIZE_MIN: u64 = 64;
        const SIZE_MAX: u64 = 4096;
        let (at, size) = (self.arg(0), self.arg(1));
        if !(SIZE_MIN..=SIZE_MAX).contains(&size) {
            // The kernel looks at the size before anything else: a call that certainly fails.
            self.proceed();
            return;
        }
        let mut words = [0u64; CLONE_ARGS_WORDS];
        let known = size.min(core::mem::size_of_val(&words) as u64);
        if let Err(errno) = has_only_zeroes(at + known, size - known) {
            return self.answer(-errno);
        }
        if !read_program_bytes(at, &mut words, known) {
            return self.answer(-EFAULT);
        }
        let flags = self.flags_of_birth(words[FLAGS]);
        let stack = if words[STACK] == 0 { 0 } else { words[STACK].wrapping_add(words[STACK_SIZE]) };
        words[FLAGS] = flags | CLONE_PTRACE;
        let args = [words.as_ptr() as u64, known, 0, 0, 0, 0];
        self.give_birth(Birth { flags, stack, exit_signal: words[EXIT_SIGNAL], nr: nr::clone3, args });
    }

    /// On a guess a child has memory of its own: the supervisor gives what it writes there to its parent, which waits.
    fn flags_of_birth(&self, asked: u64) -> u64 {
        if self.is_apart {
            asked & !(CLONE_VM | CLONE_VFORK)
        } else {
            asked
        }
    }

    fn give_birth(&mut self, birth: Birth) {
        if birth.flags & CLONE_NEWIPC != 0 {
            // The world's memory is System V memory of this namespace.
            gate::request(Request::Refused, self.frame.nr, 0, 0);
            return self.answer(-EPERM);
        }
        if birth.flags & CLONE_INTO_CGROUP != 0 {
            // Whoever watches that group hears that somebody is in it now.
            self.settle();
        }
        if self.process.flags.load(Ordering::Relaxed) & PROCESS_CHILDLESS != 0 {
            // First: whoever is told of the child later may wait for it at once.
            self.process.flags.fetch_and(!PROCESS_CHILDLESS, Ordering::Relaxed);
        }
        if birth.flags & CLONE_FILES != 0 && birth.flags & CLONE_VM == 0 {
            forget_forever();
        }
        if birth.flags & CLONE_VM != 0 && birth.flags & CLONE_VFORK == 0 {
            note_threads();
        }
        if birth.flags & CLONE_FILES == 0 {
            share_descriptions();
        }
        if birth.shares_state() {
            self.process.flags.fetch_or(PROCESS_SHARES_STATE, Ordering::Relaxed);
        }
        let Some((thread, process)) = self.take_slots(&birth) else { return self.answer(-EAGAIN) };
        self.page.child_rsp = birth.stack;
        self.page.flags &= !THREAD_FORKED;
        if birth.flags & CLONE_VM == 0 {
            self.page.flags |= THREAD_FORKED;
        }
        let page = if birth.flags & CLONE_VM != 0 {
            match self.prepare_page(&birth, thread, process) {
                Some(page) => page,
                None => return self.answer(-EAGAIN),
            }
        } else {
            self.page.this
        };
        self.world.threads[thread].begin(process, page);
        if birth.flags & CLONE_SIGHAND == 0 {
            // A child of vfork may end before its parent comes out of here.
            self.ignore_sigchld();
        }
        let is_near = self.confine_birth(birth.flags, thread);
        let unseen = &self.world.births[thread % THREADS_MAX];
        let count = self.thread.calls.load(Ordering::Relaxed) as u32;
        let word = unseen.begin(self.page.thread as usize, count, birth.flags & CLONE_THREAD != 0);
        // SAFETY: the page is prepared, or is the child's own copy of ours.
        let result = unsafe { gate::clone(&birth.args, birth.nr, page, thread, process) };
        // Before the child's number is said: from then on whoever hears of its end gives its slots back.
        self.page.pending_thread = 0;
        self.page.pending_process = 0;
        if result >= 0 && self.has_supervisors_numbers() {
            unseen.made(word, result as u32);
        }
        if is_near {
            self.end_confinement();
        }
        if result >= 0 && birth.flags & CLONE_VFORK != 0 && !self.is_clean() {
            // It has waited for what the child did: before its exec, or its end.
            self.observe(&self.world.processes[process % PROCESSES_MAX].clock);
        }
        if result < 0 {
            self.give_back(thread, process);
        } else if birth.flags & CLONE_FILES == 0 {
            // What other threads opened in between.
            share_descriptions();
        }
        self.heed_sigchld();
        self.answer(result);
    }

    /// Whether a child's number here is that which the supervisor knows it by. What is said of one in another namespace
    /// would be about somebody else.
    fn has_supervisors_numbers(&self) -> bool {
        self.process.flags.load(Ordering::Relaxed) & PROCESS_PRIVILEGES == 0
            || self.counts_as_supervisor(self.own_pid())
    }

    fn shares_clock(&self, flags: u64) -> bool {
        let is_thread = flags & CLONE_THREAD != 0;
        let shares_memory = flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0;
        if self.has_option(option::INDEPENDENT_THREADS) {
            return shares_memory && !is_thread;
        }
        is_thread || shares_memory
    }

    fn take_slots(&mut self, birth: &Birth) -> Option<(usize, usize)> {
        let thread = match self.page.pending_thread {
            0 => self.world.thread_map.take()?,
            taken => taken as usize - 1,
        };
        self.page.pending_thread = thread as u32 + 1;
        let own = self.page.process as usize;
        if self.shares_clock(birth.flags) {
            // Counted once, also where a signal has taken the call back to its site in between.
            if self.page.pending_process == 0 {
                self.process.users.fetch_add(1, Ordering::AcqRel);
                self.page.pending_process = own as u32 + 1;
            }
            return Some((thread, own));
        }
        let process = match self.page.pending_process {
            0 => self.world.process_map.take()?,
            taken => taken as usize - 1,
        };
        self.page.pending_process = process as u32 + 1;
        let parent =
            if birth.flags & CLONE_PARENT != 0 { self.process.parent.load(Ordering::Relaxed) as usize } else { own };
        let slot = &self.world.processes[process % PROCESSES_MAX];
        slot.begin(parent, &self.dependencies());
        slot.inherit_mappings(self.process);
        if birth.shares_state() {
            slot.flags.fetch_or(PROCESS_SHARES_STATE, Ordering::Relaxed);
        }
        // With `CLONE_PARENT` it has its maker's.
        if birth.exit_signal != SIGCHLD || birth.flags & CLONE_PARENT != 0 {
            slot.flags.fetch_or(PROCESS_EXIT_SIGNAL, Ordering::Relaxed);
        }
        if birth.flags & CLONE_SYSVSEM != 0 {
            slot.flags.fetch_or(self.process.flags.load(Ordering::Relaxed) & PROCESS_UNDOES, Ordering::Relaxed);
        }
        if birth.flags & (CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID) != 0 {
            slot.flags.fetch_or(PROCESS_PRIVILEGES, Ordering::Relaxed);
        }
        Some((thread, process))
    }

    /// It has a timer perhaps, which its copies do not have. One that goes by the CPU time of another process tells
    /// of it, by signals, from then on.
    pub fn own_timer(&mut self, shows: Shows) {
        let tells = if self.is_about_others(shows) { PROCESS_HEARS_OTHERS } else { 0 };
        self.process.flags.fetch_or(PROCESS_TIMERS | tells, Ordering::Relaxed);
        self.proceed_observing();
    }

    fn give_back(&self, thread: usize, process: usize) {
        self.world.births[thread % THREADS_MAX].end();
        self.world.thread_map.give_back(thread);
        if process == self.page.process as usize {
            self.process.users.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.world.process_map.give_back(process);
        }
    }

    /// A page for a child that shares our memory.
    fn prepare_page(&mut self, birth: &Birth, thread: usize, process: usize) -> Option<u64> {
        let Some(base) = map_thread_page(thread) else {
            self.give_back(thread, process);
            self.page.pending_thread = 0;
            self.page.pending_process = 0;
            return None;
        };
        if base != home_of_thread(thread) {
            // Nobody else knows then that the child shares our memory.
            self.becomes_shared();
            self.world.processes[process % PROCESSES_MAX].flags.fetch_or(PROCESS_MAPPED_SHARED, Ordering::Relaxed);
        }
        let at = base + THREAD_PAGE_OFFSET;
        let uncached = if birth.flags & CLONE_FILES == 0 { THREAD_UNCACHED } else { self.page.flags & THREAD_UNCACHED };
        // SAFETY: just mapped, and large enough for both.
        unsafe {
            (at as *mut ThreadPage).write(ThreadPage {
                this: at,
                program_rsp: if birth.stack == 0 { self.page.program_rsp } else { birth.stack },
                stack_top: at,
                phase: agent_abi::PHASE_AFTER,
                flags: uncached,
                thread: thread as u32,
                process: process as u32,
                child_rsp: 0,
                after: 0,
                own: Default::default(),
                pending_thread: 0,
                pending_process: 0,
                births: 0,
                makes_new: 0,
                syncs: 0,
                log_writes: 0,
                log_written: 0,
                log_flushed: 0,
                cut: 0,
                restarts: 0,
                rest: AtomicU64::new(0),
                wait_since: 0,
                wait_site: 0,
                wait_rsp: 0,
                looks: AtomicU32::new(0),
            });
            ((at - core::mem::size_of::<Frame>() as u64) as *mut Frame).write(*self.frame);
        }
        Some(at)
    }

    /// A new program: if this returns, it failed.
    pub fn exec(&mut self) {
        if self.is_unreadable_program() {
            gate::request(Request::Refused, self.frame.nr, 0, 0);
            return self.answer(-EACCES);
        }
        if !self.is_clean() {
            // Descriptors that exec closes end their streams.
            self.look_at_unused();
            (0..3).filter(|&fd| is_closed_by_exec(fd)).for_each(|fd| self.before_close(fd));
            self.before_close_range(3, u64::MAX);
        }
        self.proceed();
        self.observe_path_of_exec();
    }

    /// The end: whoever waits for this process observes all that it did (000, 6.9).
    pub fn exit(&mut self) {
        if !self.is_clean() {
            // Whoever waits, polls, or looks for the process learns that it is gone.
            self.modify(&self.world.messages);
            self.modify(&self.world.names);
            let parent = self.process.parent.load(Ordering::Relaxed) as usize;
            if parent < PROCESSES_MAX {
                self.modify(&self.world.processes[parent].clock);
            }
            // Streams to outside are looked after by the supervisor, whatever ends the process (`Request::WatchEnd`).
            self.look_at_unused();
        }
        self.proceed();
    }

    /// How a child ended depends on what it did.
    pub fn wait(&mut self) {
        if self.wait_as_tracer() {
            return;
        }
        let result = self.proceed_waiting();
        if result >= 0 && !self.is_clean() {
            self.observe_everything();
        }
    }

    /// Signals that are taken without being delivered, or seen to wait: those of the kernel say nothing of who
    /// caused them.
    pub fn look_at_signals(&mut self) {
        let result = match self.frame.nr {
            nr::rt_sigpending => self.proceed_observing(),
            _ => self.proceed_timed(2, Limit::Timespec),
        };
        if self.is_clean() || result < 0 {
            return;
        }
        let mut pending = [1u64];
        // What cannot be read is taken for signals.
        let _ = self.frame.nr == nr::rt_sigpending && read_program(self.arg(0), &mut pending);
        if pending != [0] {
            self.observe_everything();
        }
    }

    /// So many bytes of signals were read from a descriptor. Observes those who sent them; returns whether all of them
    /// are known.
    pub fn observe_senders(&self, result: i64) -> bool {
        const SIGNAL_LEN: usize = 128;
        (0..result.max(0) as u64).step_by(SIGNAL_LEN).all(|at| self.observe_sender(self.arg(1).wrapping_add(at)))
    }

    /// The kernel's own signals say nothing of who caused them. SIGPIPE looks as if its receiver had sent it, and the
    /// signal of a parent's end as if that had. Anybody else has given what he depends on to the receiver beforehand.
    fn observe_sender(&self, at: u64) -> bool {
        const SIGPIPE: u32 = 13;
        const SI_USER: i32 = 0;
        const SI_QUEUE: i32 = -1;
        const SI_TKILL: i32 = -6;
        // Number and error, code and sender.
        let mut words = [0u64; 2];
        if self.process.users.load(Ordering::Relaxed) == 1 {
            // SAFETY: the kernel has just filled it, and there is no other thread that could have unmapped it since.
            words = unsafe { (at as *const [u64; 2]).read_unaligned() };
        } else if !read_program(at, &mut words) {
            return false;
        }
        let (signal, code, pid) = (words[0] as u32, words[1] as u32 as i32, (words[1] >> 32) as i32);
        // A thread with a clock of its own is not found by its process's number.
        let is_sent = signal != SIGPIPE
            && matches!(code, SI_USER | SI_QUEUE | SI_TKILL)
            && !self.has_option(option::INDEPENDENT_THREADS);
        let parent = self.world.processes.get(self.process.parent.load(Ordering::Relaxed) as usize);
        let is_parent = |sender| parent.is_some_and(|parent| core::ptr::eq(parent, sender));
        let sender = if is_sent { self.known_process(pid) } else { None };
        let Some(sender) = sender.filter(|&sender| !is_parent(sender)) else { return false };
        self.observe(&sender.clock);
        if sender.flags.load(Ordering::Relaxed) & PROCESS_SHARES != 0 {
            self.observe_known();
        }
        true
    }

    fn observe_path_of_exec(&self) {
        const ENOEXEC: i64 = 8;
        if self.is_clean() {
            return;
        }
        match self.frame.rax as i64 == -ENOEXEC {
            // That tells of the file's contents.
            true => self.observe_everything(),
            false => self.observe(&self.world.names),
        }
    }

    pub fn own_pid(&self) -> i32 {
        // SAFETY: no arguments.
        unsafe { gate::call(nr::getpid, [0; 6]) as i32 }
    }

    /// The process inside that the caller means by this number. In a pid namespace of its own it means another one.
    pub fn known_process(&self, pid: i32) -> Option<&'static agent_abi::Process> {
        let is_known = pid > 0 && self.counts_as_supervisor(self.own_pid());
        if is_known {
            self.find_process(pid as u32)
        } else {
            None
        }
    }

    /// `setpgid(pid, …)`: a child sees in which group its parent has put it, without a call that says so.
    pub fn change_group(&mut self) {
        let pid = self.arg(0) as i32;
        if pid != 0 && !self.is_clean() {
            match self.known_process(pid) {
                Some(target) => self.modify(&target.clock),
                None => self.settle(),
            }
        }
        self.proceed_observing();
    }

    fn find_process(&self, pid: u32) -> Option<&'static agent_abi::Process> {
        self.world.process_map.taken().map(|i| &self.world.processes[i]).find(|p| p.pid.load(Ordering::Relaxed) == pid)
    }

    pub fn prctl(&mut self) {
        const PR_SET_PDEATHSIG: u64 = 1;
        const PR_GET_DUMPABLE: u64 = 3;
        const PR_SET_DUMPABLE: u64 = 4;
        const PR_SET_KEEPCAPS: u64 = 8;
        const PR_GET_SECCOMP: u64 = 21;
        const PR_SET_SECCOMP: u64 = 22;
        const PR_CAPBSET_DROP: u64 = 24;
        const PR_SET_TSC: u64 = 26;
        const PR_TSC_ENABLE: u64 = 1;
        const PR_SET_SECUREBITS: u64 = 28;
        const PR_SET_MM: u64 = 35;
        const PR_SET_CHILD_SUBREAPER: u64 = 36;
        const PR_CAP_AMBIENT: u64 = 47;
        const PR_SCHED_CORE: u64 = 62;
        const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
        match u64::from(self.arg(0) as u32) {
            PR_SET_SECCOMP | PR_SET_SYSCALL_USER_DISPATCH => {
                gate::request(Request::Refused, self.frame.nr, self.arg(0), 0);
                self.answer(-EINVAL);
            }
            // The filter is ours. Where the world itself runs under one, the kernel says so.
            PR_GET_SECCOMP if !self.has_option(option::FILTERED_OUTSIDE) => self.answer(0),
            PR_SET_MM => self.barrier(),
            // Cookies of other processes, which it also changes.
            PR_SCHED_CORE => {
                self.barrier();
                self.observe_everything();
            }
            PR_SET_DUMPABLE if self.has_option(option::ORDINARY_USER) => self.set_dumpable(),
            PR_GET_DUMPABLE if private().undumpable != 0 => self.answer(0),
            PR_SET_KEEPCAPS | PR_CAPBSET_DROP | PR_SET_SECUREBITS | PR_CAP_AMBIENT => self.change_identity(),
            PR_SET_PDEATHSIG | PR_SET_CHILD_SUBREAPER if self.arg(1) != 0 => {
                self.world.options.fetch_or(option::ENDS_OF_PARENTS_HEARD, Ordering::SeqCst);
                self.proceed();
            }
            PR_SET_TSC if self.arg(1) != PR_TSC_ENABLE => {
                self.world.options.fetch_or(option::CYCLES_FORBIDDEN, Ordering::SeqCst);
                self.proceed();
            }
            _ => {
                self.proceed();
            }
        }
    }

    /// An ordinary user may not look into what is not dumpable, its tracer neither. So the kernel is not told: the
    /// program is traced, and hears what it has asked for.
    fn set_dumpable(&mut self) {
        match self.arg(1) {
            wanted @ (0 | 1) => {
                set_undumpable(1 - wanted);
                self.answer(0);
            }
            _ => self.answer(-EINVAL),
        }
    }

    /// Whether an ordinary user may execute the file but not read it: what becomes of it could not be traced by
    /// that user.
    fn is_unreadable_program(&self) -> bool {
        const AT_EACCESS: u64 = 0x200;
        const X_OK: u64 = 1;
        const R_OK: u64 = 4;
        if !self.has_option(option::ORDINARY_USER) {
            return false;
        }
        let (dir, path, flags) = match self.frame.nr {
            nr::execveat => (self.arg(0), self.arg(1), self.arg(4)),
            _ => (crate::names::AT_FDCWD, self.arg(0), 0),
        };
        // SAFETY: the path is the program's, and the kernel's to check.
        let may = |mode| unsafe { gate::call(nr::faccessat2, [dir, path, mode, flags | AT_EACCESS, 0, 0]) };
        may(R_OK) == -EACCES && may(X_OK) == 0
    }

    pub fn arch_prctl(&mut self) {
        const ARCH_SET_GS: u64 = 0x1001;
        const ARCH_GET_GS: u64 = 0x1004;
        const ARCH_SHSTK_ENABLE: u64 = 0x5001;
        match self.arg(0) {
            // Who leaves the agent after a fork, or for a signal, returns from fewer calls than it has made.
            ARCH_SHSTK_ENABLE => self.refuse(gate::EOPNOTSUPP as u16),
            ARCH_SET_GS => {
                gate::request(Request::Refused, self.frame.nr, ARCH_SET_GS, 0);
                self.answer(-EPERM);
            }
            ARCH_GET_GS => {
                // The program's gs base is 0; ours is not its business. The kernel writes the word, so that a bad
                // address is its error.
                self.answer(if crate::memory::write_program(self.arg(1), &[0]) { 0 } else { -EFAULT });
            }
            _ => {
                self.proceed();
            }
        }
    }

    /// `sigaltstack`: the kernel goes by the stack that the call is made on, which is ours.
    pub fn sigaltstack(&mut self) {
        const SS_ONSTACK: u64 = 1;
        const SS_DISABLE: u64 = 2;
        const SS_AUTODISARM: u64 = 1 << 31;
        let mut current = [0u64; 3];
        // SAFETY: `current` is a whole `stack_t`.
        unsafe { gate::call(nr::sigaltstack, [0, current.as_mut_ptr() as u64, 0, 0, 0, 0]) };
        let [start, flags, length] = current;
        let offset = self.page.program_rsp.wrapping_sub(start);
        let is_on_it = flags & (SS_DISABLE | SS_AUTODISARM) == 0 && offset > 0 && offset <= length;
        if !is_on_it {
            self.proceed_observing();
            return;
        }
        let (new, old) = (self.arg(0), self.arg(1));
        if new != 0 {
            let mut wanted = [0u64; 3];
            return self.answer(if crate::memory::read_program(new, &mut wanted) { -EPERM } else { -EFAULT });
        }
        let answer = [start, flags | SS_ONSTACK, length];
        self.answer(if old == 0 || crate::memory::write_program(old, &answer) { 0 } else { -EFAULT });
    }

    pub fn unshare(&mut self) {
        let flags = self.arg(0);
        let known = CLONE_THREAD | CLONE_FS | CLONE_SIGHAND | CLONE_VM | CLONE_FILES | CLONE_SYSVSEM | NAMESPACES;
        if flags & CLONE_NEWIPC != 0 && flags & !known != 0 {
            // The kernel looks for unknown flags first.
            return self.answer(-EINVAL);
        }
        if flags & CLONE_FILES != 0 {
            forget_forever();
        }
        self.change_namespace(flags);
    }

    /// `setns`. The type is always told to the kernel: what was looked at here may be another file by then.
    pub fn join_namespace(&mut self) {
        let asked = self.arg(1);
        if asked != 0 && asked & CLONE_NEWIPC == 0 {
            return self.change_namespace(asked);
        }
        match self.namespaces_joined(asked) {
            Err(errno) => self.answer(-errno),
            Ok(kinds) => {
                self.frame.args[1] = kinds;
                self.change_namespace(kinds);
                self.frame.args[1] = asked;
            }
        }
    }

    /// The kinds of namespaces that `setns` is to join, or the error that the kernel has before it asks for rights.
    fn namespaces_joined(&self, asked: u64) -> Result<u64, i64> {
        const F_GETFD: u64 = 1;
        const NS_GET_NSTYPE: u64 = 0xb703;
        let fd = self.arg(0);
        // SAFETY: no pointers; signal 0 is none.
        let (flags, kind, is_process) = unsafe {
            let flags = gate::call(nr::fcntl, [fd, F_GETFD, 0, 0, 0, 0]);
            let kind = gate::call(nr::ioctl, [fd, NS_GET_NSTYPE, 0, 0, 0, 0]);
            (flags, kind, gate::call(nr::pidfd_send_signal, [fd, 0, 0, 0, 0, 0]) != -EBADF)
        };
        match u64::try_from(kind) {
            _ if flags < 0 => Err(EBADF),
            Ok(kind) if asked == 0 || asked == kind => Ok(kind),
            Err(_) if is_process && asked != 0 && asked & !NAMESPACES == 0 => Ok(asked),
            _ => Err(EINVAL),
        }
    }

    fn change_namespace(&mut self, flags: u64) {
        if flags & CLONE_NEWIPC != 0 {
            gate::request(Request::Refused, self.frame.nr, flags, 0);
            return self.answer(-EPERM);
        }
        self.process.flags.fetch_or(PROCESS_PRIVILEGES, Ordering::Relaxed);
        self.mount();
    }
}

/// What is behind the part of a structure that we know has to be zero (copy_struct_from_user): an errno if it is not.
fn has_only_zeroes(mut at: u64, mut len: u64) -> Result<(), i64> {
    const E2BIG: i64 = 7;
    while len > 0 {
        let mut words = [0u64; 16];
        let part = len.min(core::mem::size_of_val(&words) as u64);
        if !read_program_bytes(at, &mut words, part) {
            return Err(EFAULT);
        }
        if words.iter().any(|&word| word != 0) {
            return Err(E2BIG);
        }
        at += part;
        len -= part;
    }
    Ok(())
}

/// A child's first steps: it returns 0 from the call that made it.
pub unsafe extern "C" fn child(frame: *mut Frame, page: *mut ThreadPage) -> *mut Frame {
    // SAFETY: the gate passes the frame at the top of the child's own stack, and its own page.
    let (frame, page) = unsafe { (&mut *frame, &mut *page) };
    frame.rax = 0;
    if page.child_rsp != 0 {
        page.program_rsp = page.child_rsp;
        page.child_rsp = 0;
    }
    page.pending_thread = 0;
    page.pending_process = 0;
    page.births = 0;
    page.log_flushed = 0;
    page.log_writes = 0;
    // What its parent does after an fsync is not what it will do.
    page.syncs = 0;
    if page.flags & THREAD_FORKED == 0 {
        return frame;
    }
    // A copy of the parent's memory is all ours.
    if page.flags & THREAD_UNCACHED != 0 {
        forget_forever();
    }
    page.flags = 0;
    share_descriptions();
    forget_if_threaded();
    let home = agent_abi::PRIVATE_BASE + crate::start::FIRST_PAGE;
    if page.this == home {
        return frame;
    }
    // Forked by a further thread: its page's place belongs to a slot that is not ours. Move to the first thread's page.
    const ARCH_SET_GS: u64 = 0x1001;
    // SAFETY: the first thread's page is mapped in every process, and nobody in this one uses it.
    unsafe {
        let moved = ThreadPage {
            this: home,
            program_rsp: page.program_rsp,
            stack_top: home,
            phase: page.phase,
            flags: 0,
            thread: page.thread,
            process: page.process,
            child_rsp: 0,
            after: page.after,
            own: Default::default(),
            pending_thread: 0,
            pending_process: 0,
            births: 0,
            makes_new: 0,
            syncs: 0,
            log_writes: 0,
            log_written: 0,
            log_flushed: 0,
            cut: 0,
            restarts: page.restarts,
            rest: AtomicU64::new(0),
            wait_since: 0,
            wait_site: 0,
            wait_rsp: 0,
            looks: AtomicU32::new(0),
        };
        (home as *mut ThreadPage).write(moved);
        let place = (home - core::mem::size_of::<Frame>() as u64) as *mut Frame;
        place.write(*frame);
        gate::call(nr::arch_prctl, [ARCH_SET_GS, home, 0, 0, 0, 0]);
        place
    }
}
