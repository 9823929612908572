//! What a process depends on, and waiting until it depends on nothing.

use crate::gate;
use agent_abi::{
    option, Frame, Process, Request, Thread, ThreadPage, World, PRIVATE_CHANGED, PRIVATE_STORES, PROCESSES_MAX,
    PROCESS_MAPPED_PRIVATE, PROCESS_SEES_OTHERS, PROCESS_SHARES, THREADS_MAX, WORLD_BASE,
};
use commit_clock::{AtomicClock, Clock, Transactions};
use core::sync::atomic::{fence, AtomicU32, Ordering};
use syscall_table::nr;

/// The world's shared memory.
#[inline(always)]
pub fn world() -> &'static World {
    // SAFETY: mapped at every exec before the agent runs, never unmapped; all of it is atomics.
    unsafe { &*(WORLD_BASE as *const World) }
}

/// One more of a call's number.
#[inline(always)]
fn count(counts: &[AtomicU32; 512], nr: u64) {
    counts[nr.min(511) as usize].fetch_add(1, Ordering::Relaxed);
}

/// A thread in a system call.
pub struct Call<'a> {
    pub frame: &'a mut Frame,
    pub page: &'a mut ThreadPage,
    pub world: &'static World,
    pub process: &'static Process,
    pub thread: &'static Thread,
    /// Number and arguments that the kernel gets instead of the program's. The frame keeps the program's: its
    /// registers must come back as they were.
    replaced: Option<(u64, [u64; 6])>,
    /// A child gets a copy of the memory where its parent asked for one in the memory itself (`ahead::GO_APART`).
    pub is_apart: bool,
    /// What the call says is compared before the program may have it ([`crate::permits`]).
    pub is_compared: bool,
    /// Of a `recvmsg` of all: how much room the program has given for what comes beside the data ([`crate::cut`]).
    pub control_room: u64,
}

impl<'a> Call<'a> {
    #[inline(always)]
    pub fn new(frame: &'a mut Frame, page: &'a mut ThreadPage) -> Self {
        let world = world();
        let process = &world.processes[page.process as usize % PROCESSES_MAX];
        let thread = &world.threads[page.thread as usize % THREADS_MAX];
        Self {
            frame,
            page,
            world,
            process,
            thread,
            replaced: None,
            is_apart: false,
            is_compared: false,
            control_room: 0,
        }
    }

    #[inline(always)]
    pub fn arg(&self, position: u8) -> u64 {
        self.frame.args[position as usize % 6]
    }

    /// Make the program's call.
    #[inline(always)]
    pub fn proceed(&mut self) -> i64 {
        self.page.after = agent_abi::AFTER_MUST_FINISH;
        self.make()
    }

    /// The same, where what has to be done behind it is known already.
    #[inline(always)]
    pub fn make(&mut self) -> i64 {
        match self.replaced {
            None => gate::program(self.frame),
            Some((nr, args)) => {
                let result = gate::instead(&args, nr);
                self.frame.rax = result as u64;
                result
            }
        }
    }

    /// What the kernel gets as an argument.
    pub fn given_arg(&self, position: usize) -> u64 {
        self.replaced.map_or(self.frame.args, |(_, args)| args)[position % 6]
    }

    /// Let the kernel get another value of an argument.
    pub fn replace_arg(&mut self, position: usize, value: u64) {
        let (nr, mut args) = self.replaced.unwrap_or((self.frame.nr, self.frame.args));
        args[position % 6] = value;
        self.replaced = Some((nr, args));
    }

    /// Let the kernel get another call that means the same.
    pub fn replace_call(&mut self, nr: u64, args: [u64; 6]) {
        self.replaced = Some((nr, args));
    }

    /// The kernel gets what the program gives.
    #[cold]
    pub fn give_own_args(&mut self) {
        self.replaced = None;
    }

    /// Whether the kernel gets another call than the program's.
    pub fn is_replaced(&self) -> bool {
        self.replaced.is_some()
    }

    /// Let the kernel get the call that the supervisor has written at this address.
    #[cold]
    #[inline(never)]
    pub fn take_other_call(&mut self, at: u64) {
        // SAFETY: the supervisor has just written a number and six arguments there, far below on this thread's stack.
        let [nr, args @ ..] = unsafe { (at as *const [u64; 7]).read_unaligned() };
        self.replace_call(nr, args);
    }

    /// Make the program's call where nothing but an observation comes after it: a signal that arrives with its end need
    /// not wait for us.
    #[inline(always)]
    pub fn proceed_observing(&mut self) -> i64 {
        // A signal that comes with its end takes the thread out of the agent at once where only observing is left.
        self.page.after = match self.is_compared {
            true => agent_abi::AFTER_MUST_FINISH,
            false => agent_abi::AFTER_OBSERVES,
        };
        gate::program(self.frame)
    }

    /// Answer without the kernel.
    #[inline(always)]
    pub fn answer(&mut self, result: i64) {
        self.frame.rax = result as u64;
    }

    #[inline(always)]
    pub fn transactions(&self) -> &'static Transactions {
        &self.world.transactions
    }

    #[inline(always)]
    pub fn has_option(&self, bit: u32) -> bool {
        self.world.options.load(Ordering::Relaxed) & bit != 0
    }

    /// Whether fsync has nothing to do on this domain. Where the world has changed nothing, it is the kernel's: another
    /// file system may have been mounted there.
    #[inline(always)]
    pub fn elides_fsync(&self, domain: usize) -> bool {
        (self.is_ordered(domain) || self.has_option(option::ELIDE_FSYNC)) && self.transactions().is_held(domain)
    }

    #[inline(always)]
    pub fn is_ordered(&self, domain: usize) -> bool {
        self.world.ordered.load(Ordering::Relaxed) & (1 << domain) != 0
    }

    #[inline(always)]
    pub fn object(&self, slot: usize) -> &'static AtomicClock {
        &self.world.objects[slot % agent_abi::OBJECTS]
    }

    /// What the process depends on now (002, 3.6: with shared memory, on whatever anybody has changed).
    #[inline(always)]
    pub fn dependencies(&self) -> Clock {
        let mut clock = self.process.clock.load(self.transactions().domains());
        if self.process.watched[0].load(Ordering::Relaxed) != 0 {
            self.add_watched(&mut clock);
        }
        if self.process.flags.load(Ordering::Relaxed) & PROCESS_SHARES != 0 {
            self.add_others(&mut clock);
        }
        if self.world.private_changed.load(Ordering::Relaxed) != 0 {
            self.add_private_mappings(&mut clock);
        }
        clock
    }

    /// Pages of private mappings that were not touched yet show what was written to their files.
    #[cold]
    fn add_private_mappings(&self, clock: &mut Clock) {
        if self.process.flags.load(Ordering::Relaxed) & PROCESS_MAPPED_PRIVATE == 0 {
            return;
        }
        if self.world.private_changed.load(Ordering::Relaxed) & PRIVATE_STORES != 0 {
            return self.add_everything(clock);
        }
        clock.merge(&self.world.private_changes.load(self.transactions().domains()));
        self.depend(clock);
    }

    /// A file is about to change; whoever has mapped it private may see that without a call.
    #[inline(always)]
    pub fn note_change(&self, slot: usize) {
        let slot = slot % agent_abi::OBJECTS;
        if self.world.private_slots[slot / 64].load(Ordering::Relaxed) & (1 << (slot % 64)) != 0 {
            self.change_mapped(slot);
        }
    }

    /// Data is about to go to outside from a pipe inside, without being read: from now on whoever writes there depends
    /// on nothing when he does. What is written already is in what the caller looks at next.
    pub fn note_spliced(&self, slot: usize) {
        let slot = slot % agent_abi::OBJECTS;
        self.world.spliced_slots[slot / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The process has raised the clock of an object inside, and is about to write there. Either it sees here that
    /// data goes to outside from there, or whoever lets it go sees what this process depends on.
    #[inline(always)]
    pub fn settle_if_spliced(&mut self, slot: usize) {
        fence(Ordering::SeqCst);
        let slot = slot % agent_abi::OBJECTS;
        if self.world.spliced_slots[slot / 64].load(Ordering::Relaxed) & (1 << (slot % 64)) != 0 {
            self.settle();
        }
    }

    #[cold]
    fn change_mapped(&self, slot: usize) {
        let domains = self.transactions().domains();
        self.world.private_changes.merge(&self.object(slot).load(domains), domains);
        self.world.private_changed.fetch_or(PRIVATE_CHANGED, Ordering::SeqCst);
    }

    #[cold]
    fn add_watched(&self, clock: &mut Clock) {
        let domains = self.transactions().domains();
        if self.world.join_mapped() {
            clock.merge(&self.transactions().dirty());
        }
        for cell in &self.process.watched {
            let slot = cell.load(Ordering::Relaxed);
            if slot != 0 {
                clock.merge(&self.object(slot as usize - 1).load(domains));
            }
        }
        self.depend(clock);
    }

    #[cold]
    fn add_others(&self, clock: &mut Clock) {
        if self.process.flags.load(Ordering::Relaxed) & PROCESS_SEES_OTHERS != 0 {
            return self.add_everything(clock);
        }
        self.world.join_mapped();
        clock.merge(&self.transactions().known());
        self.process.clock.merge(clock, self.transactions().domains());
    }

    #[cold]
    fn add_everything(&self, clock: &mut Clock) {
        self.world.join_mapped();
        clock.merge(&self.transactions().dirty());
        self.depend(clock);
    }

    /// The process depends on this from now on.
    #[inline(always)]
    fn depend(&self, clock: &Clock) {
        self.process.depend(self.transactions(), clock);
    }

    /// The process observed an object.
    #[inline(always)]
    pub fn observe(&self, object: &AtomicClock) {
        self.depend(&object.load(self.transactions().domains()));
    }

    /// The process observed somebody who shares memory with others.
    pub fn observe_known(&self) {
        self.depend(&self.transactions().known());
    }

    /// The process observed something whose own dependencies are not known: it may be anything that anybody did.
    #[inline(always)]
    pub fn observe_everything(&self) {
        self.world.join_mapped();
        self.depend(&self.transactions().dirty());
    }

    /// Whether an observation, of whatever it may be, adds nothing: no clock in the world is above the dirty one.
    /// (Where stores come without a call, the dirty one is not up to date.)
    #[inline(always)]
    pub fn depends_on_everything(&self) -> bool {
        let domains = self.transactions().domains();
        self.is_clean()
            || self.world.mapped_domains.load(Ordering::Relaxed) == 0
                && self.transactions().dirty().is_resolved_by(&self.process.clock.load(domains))
    }

    /// The process modifies an object; before the modification can be seen.
    #[inline(always)]
    pub fn modify(&self, object: &AtomicClock) {
        let clock = self.dependencies();
        object.merge(&clock, self.transactions().domains());
    }

    /// Whether nothing in the world is uncommitted.
    #[inline(always)]
    pub fn is_clean(&self) -> bool {
        // A writable shared mapping of a domain's file changes it without a call.
        self.world.mapped_domains.load(Ordering::Relaxed) & !agent_abi::MAPPED_MEMORY == 0
            && self.transactions().is_clean()
    }

    /// The same for who looks at times of files.
    #[inline(always)]
    pub fn are_times_clean(&self) -> bool {
        self.is_clean() && self.transactions().has_times()
    }

    /// Whether the process depends on nothing and nothing of its output is held.
    #[inline(always)]
    pub fn is_settled(&self) -> bool {
        self.process.held_outputs.load(Ordering::Acquire) == 0 && self.transactions().is_resolved(&self.dependencies())
    }

    /// A barrier: wait until the process depends on nothing and its output has left.
    #[inline(always)]
    pub fn settle(&mut self) {
        count(&self.world.barriers, self.frame.nr);
        if !self.is_settled() {
            self.settle_slowly();
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_slowly(&mut self) {
        let clock = self.dependencies();
        self.await_commit(&clock);
        loop {
            let seen = self.world.commits.load(Ordering::Acquire);
            if self.process.held_outputs.load(Ordering::Acquire) == 0 {
                return;
            }
            self.sleep(seen);
        }
    }

    /// Wait until nothing is held for an outside object: what is written directly must not overtake it. That may take
    /// until its reader reads (`Outputs::wait_for_reader`).
    pub fn await_queue(&self, entry: agent_abi::FdEntry) {
        self.await_queue_unless(entry, || false);
    }

    /// The same; false if `gives_up` says so first.
    pub fn await_queue_unless(&self, entry: agent_abi::FdEntry, gives_up: impl Fn() -> bool) -> bool {
        if entry.kind() != agent_abi::FdKind::Outside {
            return true;
        }
        loop {
            let seen = self.world.commits.load(Ordering::Acquire);
            if self.world.queue_pending[entry.queue()].load(Ordering::Acquire) == 0 {
                return true;
            }
            if gives_up() {
                return false;
            }
            self.sleep(seen);
        }
    }

    /// Wait until all that `clock` depends on is on stable storage.
    #[inline(never)]
    pub fn await_commit(&self, clock: &Clock) {
        if self.transactions().is_resolved(clock) {
            return;
        }
        count(&self.world.waits, self.frame.nr);
        // A thread that is taken back to its call site, or killed, leaves its count behind: commits are then put off
        // less than they could be.
        self.world.waiting.fetch_add(1, Ordering::AcqRel);
        loop {
            let seen = self.world.commits.load(Ordering::Acquire);
            if self.transactions().is_resolved(clock) {
                self.world.waiting.fetch_sub(1, Ordering::AcqRel);
                return;
            }
            if self.transactions().request(clock) {
                self.ring();
            }
            self.sleep(seen);
        }
    }

    pub fn sleep(&self, seen: u32) {
        const FUTEX_WAIT: u64 = 0;
        let word = &raw const self.world.commits as u64;
        // SAFETY: the word is in the world's memory.
        unsafe { gate::call(nr::futex, [word, FUTEX_WAIT, u64::from(seen), 0, 0, 0]) };
    }

    /// Ask for a commit without waiting for it.
    pub fn request_commit(&self, clock: &Clock) {
        if self.transactions().request(clock) {
            self.ring();
        }
    }

    /// Wake the commit engine.
    pub fn ring(&self) {
        const FUTEX_WAKE: u64 = 1;
        self.world.requests.fetch_add(1, Ordering::Release);
        let word = &raw const self.world.requests as u64;
        // SAFETY: as in `sleep`.
        unsafe { gate::call(nr::futex, [word, FUTEX_WAKE, 1, 0, 0, 0]) };
    }

    /// Begin to change `domain`. Until `end_change` no transaction that is active now begins to flush (commit-clock).
    #[inline(always)]
    pub fn begin_change(&mut self, domain: usize) -> commit_clock::Transaction {
        self.settle_elsewhere(domain);
        self.join_change(domain)
    }

    /// 002, 2.5: what a change of `domain` depends on elsewhere must not become durable, or be read, after it.
    #[inline(always)]
    pub fn settle_elsewhere(&mut self, domain: usize) {
        if crate::descriptors::has_outside_streams() && self.page.flags & agent_abi::THREAD_WATCHED == 0 {
            self.watch_own_end();
        }
        let mut elsewhere = self.dependencies();
        elsewhere.0[domain] = 0;
        if !self.transactions().is_resolved(&elsewhere) {
            self.await_commit(&elsewhere);
        }
    }

    /// Another thread has made the process's streams to outside, and may have ended since: the end of this one may be
    /// the end of the streams, and they depend on what it is about to do.
    #[cold]
    #[inline(never)]
    fn watch_own_end(&mut self) {
        self.page.flags |= agent_abi::THREAD_WATCHED;
        gate::request(agent_abi::Request::WatchEnd, 0, 0, 0);
    }

    /// The same without waiting: for a change that was made already, by the program's call.
    #[inline(always)]
    pub fn join_change(&self, domain: usize) -> commit_clock::Transaction {
        self.open_handle(domain);
        let transaction = self.transactions().join(domain);
        self.process.clock.raise(domain, transaction);
        transaction
    }

    /// Open the thread's handle: until it is closed, the engine has `domain` open, and no transaction that is active
    /// now begins to flush.
    #[inline(always)]
    pub fn open_handle(&self, domain: usize) {
        self.transactions().open_handle(&self.thread.handle);
        if !self.transactions().may_join(domain) {
            self.open_handle_held(domain);
        }
    }

    #[cold]
    #[inline(never)]
    fn open_handle_held(&self, domain: usize) {
        let mut is_possible = true;
        // No handle while we ask: whoever closes the domain may be waiting for it. If it cannot be opened, the commit
        // fails, and nothing ever leaves.
        while is_possible && !self.transactions().may_join(domain) {
            self.thread.handle.close();
            is_possible = gate::request(Request::Hold, domain as u64, 0, 0) >= 0;
            self.transactions().open_handle(&self.thread.handle);
        }
    }

    /// The change is in the page cache, or will never be.
    #[inline(always)]
    pub fn end_change(&self, domain: usize, bytes: i64) {
        self.thread.handle.close();
        const DIRTY_BYTES_MAX: u64 = agent_abi::DIRTY_BYTES_MAX;
        if bytes > 0 {
            let before = self.world.dirty_bytes[domain].fetch_add(bytes as u64, Ordering::Relaxed);
            if before < DIRTY_BYTES_MAX && before + bytes as u64 >= DIRTY_BYTES_MAX {
                self.request_commit(&self.transactions().dirty());
            }
        }
        if self.has_option(option::EAGER) {
            self.request_commit(&self.process.clock.load(self.transactions().domains()));
        }
    }
}
