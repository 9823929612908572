//! Mappings: what is shared, what is executable, and what is ours.

use crate::clocks::Call;
use crate::descriptors::{private, Stat};
use crate::gate::{self, EACCES, EINVAL, ENOMEM};
use crate::start::{PRIVATE_LEN, THREAD_PAGES_BASE};
use agent_abi::{
    text_index, FdKind, FileVersion, Private, Request, TextRow, TextState, World, AGENT_BASE, AGENT_LEN_MAX,
    MAPPED_MEMORY, OWN_END, PRIVATE_BASE, PRIVATE_STORES, PROCESS_KEEPS_MEMORY, PROCESS_MAPPED_PRIVATE,
    PROCESS_MAPPED_SERVED, PROCESS_MAPPED_SHARED, STUBS_MAX, TEXTS_MAX, THREADS_BASE, THREADS_MAX, THREAD_LEN,
    WORLD_BASE,
};
use core::sync::atomic::{AtomicU64, Ordering};
use syscall_table::nr;

const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
pub const MAP_TYPE: u64 = 0x0f;
pub const MAP_PRIVATE: u64 = 2;
/// Private memory that the kernel may empty: where C libraries keep the state of `getrandom` (mmap(2), Linux 6.11).
pub const MAP_DROPPABLE: u64 = 8;
pub const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED: u64 = 0x10;
const MAP_DENYWRITE: u64 = 0x800;
const PAGE: u64 = 4096;
/// Segments are as long as several of such pages (`tracee::Segment`).
const HUGE_PAGE: u64 = 2 << 20;

/// Copy words of the program's memory; false if they cannot be read. The kernel reads them for us, so that a bad
/// address is its error.
pub fn read_program(address: u64, into: &mut [u64]) -> bool {
    read_program_bytes(address, into, core::mem::size_of_val(into) as u64)
}

/// The same for so many bytes, which end within the words.
pub fn read_program_bytes(address: u64, into: &mut [u64], len: u64) -> bool {
    let local = [into.as_mut_ptr() as u64, len.min(core::mem::size_of_val(into) as u64)];
    let remote = [address, len];
    // SAFETY: `local` lies in `into`; the kernel checks `remote`.
    unsafe {
        // The thread, not its process: once the first thread has ended, the process's number leads to no memory.
        let own = gate::call(nr::gettid, [0; 6]) as u64;
        gate::call(nr::process_vm_readv, [own, local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0]) == len as i64
    }
}

/// Copy bytes of the program's memory to memory of ours: how many could be read.
pub fn copy_program(from: u64, to: u64, len: u64) -> u64 {
    let (local, remote) = ([to, len], [from, len]);
    // SAFETY: the caller owns the memory; the kernel checks `remote`.
    let copied = unsafe {
        let own = gate::call(nr::gettid, [0; 6]) as u64;
        gate::call(nr::process_vm_readv, [own, local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0])
    };
    copied.max(0) as u64
}

/// Whether a range may have something of ours in it, now or later.
fn is_near_ours(address: u64, length: u64) -> bool {
    overlaps(address, length, AGENT_BASE, OWN_END)
}

fn overlaps(address: u64, length: u64, from: u64, to: u64) -> bool {
    address < to && address.saturating_add(length) > from
}

/// Whether a range has something of ours in it. What is between that belongs to the program: the kernel hands it out
/// when it has nothing else left.
fn touches_ours(address: u64, length: u64) -> bool {
    is_near_ours(address, length)
        && (areas().into_iter().any(|(from, to)| overlaps(address, length, from, to))
            || touches_thread_page(address, length))
}

/// Where our memory is in every process.
fn areas() -> [(u64, u64); 3] {
    let world_len = core::mem::size_of::<World>() as u64;
    [
        (AGENT_BASE, AGENT_BASE + AGENT_LEN_MAX.next_multiple_of(HUGE_PAGE)),
        (WORLD_BASE, WORLD_BASE + world_len.next_multiple_of(HUGE_PAGE)),
        (PRIVATE_BASE, PRIVATE_BASE + PRIVATE_LEN.next_multiple_of(PAGE)),
    ]
}

fn touches_thread_page(address: u64, length: u64) -> bool {
    let (from, to) = (address.max(THREADS_BASE), address.saturating_add(length).min(OWN_END));
    let slots = from.saturating_sub(THREADS_BASE) / THREAD_LEN..to.saturating_sub(THREADS_BASE).div_ceil(THREAD_LEN);
    let is_at_home = |slot: usize| thread_page(slot).load(Ordering::Relaxed) == home_of_thread(slot);
    from < to && slots.into_iter().any(|slot| is_at_home(slot as usize))
}

/// Where the page of a thread slot is in this process; 0: it has none yet.
fn thread_page(slot: usize) -> &'static AtomicU64 {
    // SAFETY: a part of this process's own memory, which holds zeroes at first.
    unsafe { &*((THREAD_PAGES_BASE as *const AtomicU64).add(slot % THREADS_MAX)) }
}

/// Where that page is if nothing of the program's is there.
pub fn home_of_thread(slot: usize) -> u64 {
    THREADS_BASE + slot as u64 * THREAD_LEN
}

/// Map a thread's page, or map it anew if an earlier thread had it. Elsewhere, if the program has something at its
/// place, because the kernel had nothing else left to give it.
pub fn map_thread_page(slot: usize) -> Option<u64> {
    const PROT_READ_WRITE: u64 = 3;
    const MAP_PRIVATE_ANONYMOUS: u64 = 0x22;
    const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
    // SAFETY: nothing is replaced but a page of ours, and the slot is the caller's alone.
    let map = |at: u64, flags: u64| unsafe {
        gate::call(nr::mmap, [at, THREAD_LEN, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS | flags, u64::MAX, 0])
    };
    let known = thread_page(slot).load(Ordering::Relaxed);
    let mut got = match known {
        0 => map(home_of_thread(slot), MAP_FIXED_NOREPLACE),
        at => map(at, MAP_FIXED),
    };
    if got < 0 && known == 0 {
        got = map(0, 0);
    }
    let at = u64::try_from(got).ok()?;
    thread_page(slot).store(at, Ordering::Relaxed);
    Some(at)
}

impl Call<'_> {
    pub fn mmap(&mut self) {
        let [address, length, prot, flags, fd, offset] = self.frame.args;
        if flags & MAP_FIXED != 0 && touches_ours(address, length) {
            return self.answer(-ENOMEM);
        }
        if flags & MAP_ANONYMOUS != 0 {
            if !matches!(flags & MAP_TYPE, MAP_PRIVATE | MAP_DROPPABLE) {
                self.becomes_shared();
            }
            self.proceed();
            return;
        }
        let entry = self.descriptor(fd);
        if entry.kind() == FdKind::OutsideFile {
            // Its pages come from whoever serves that file system, perhaps from inside (`Call::write_served`).
            self.process.flags.fetch_or(PROCESS_MAPPED_SERVED, Ordering::Relaxed);
        }
        if entry.kind() == FdKind::DomainFile {
            set(&self.world.mapped_slots, entry.slot());
        }
        if flags & MAP_TYPE != MAP_PRIVATE {
            self.map_shared(entry, is_writable(fd));
        } else if prot & PROT_EXEC == 0 && flags & MAP_DENYWRITE == 0 {
            self.map_private(entry);
        }
        let result = self.proceed();
        // Who maps a domain has a handle open until it is mapped: `map_shared`.
        self.thread.handle.close();
        if result < 0 {
            return;
        }
        if !self.is_clean() {
            self.observe_entry(entry, 1);
        }
        // The dynamic linker says MAP_DENYWRITE. Others who map program text look at its bytes (valgrind translates
        // them): they get what is in the file.
        let is_text = prot & PROT_EXEC != 0 && prot & PROT_WRITE == 0 && flags & MAP_TYPE == MAP_PRIVATE;
        if is_text && flags & MAP_DENYWRITE != 0 {
            self.patch_mapping(fd, result as u64, length, offset);
        }
    }

    /// A file mapped shared: who can write passes to who can read (002, 3.6).
    fn map_shared(&mut self, entry: agent_abi::FdEntry, is_writable: bool) {
        if is_writable
            && matches!(entry.kind(), FdKind::DomainFile | FdKind::MemoryFile)
            && mark(&self.world.shared_slots, &self.world.private_slots, entry.slot())
        {
            self.world.private_changed.fetch_or(PRIVATE_STORES, Ordering::SeqCst);
        }
        match entry.kind() {
            FdKind::DomainFile if is_writable => {
                // Stores come without a handle: from now on the engine keeps the domain open, unless somebody
                // unmounts it and no process has it mapped any more. Whoever looks for such a process finds this
                // handle, or the mapping.
                self.process.mapped_domains.fetch_or(1 << entry.domain(), Ordering::SeqCst);
                self.open_handle(entry.domain());
                self.world.mapped_domains.fetch_or(1 << entry.domain(), Ordering::SeqCst);
            }
            FdKind::MemoryFile if is_writable => {
                self.world.mapped_domains.fetch_or(MAPPED_MEMORY, Ordering::SeqCst);
            }
            // A file system that cannot change. Devices have no slot: /dev/zero is memory that whoever inherits it
            // shares.
            FdKind::Nothing if entry.slot() != 0 => return,
            // Others will see the stores at once, whatever they depend on.
            FdKind::OutsideFile if is_writable => self.settle(),
            // Read only: one object more that the process depends on, whenever it is asked.
            FdKind::DomainFile | FdKind::MemoryFile if self.process.watch(entry.slot()) => return,
            _ => {}
        }
        self.becomes_shared();
    }

    /// Data of a file, mapped private. Program text (the dynamic linker says MAP_DENYWRITE) is taken not to change
    /// under its users.
    fn map_private(&self, entry: agent_abi::FdEntry) {
        if !matches!(entry.kind(), FdKind::DomainFile | FdKind::MemoryFile) {
            return;
        }
        self.process.flags.fetch_or(PROCESS_MAPPED_PRIVATE, Ordering::Relaxed);
        if mark(&self.world.private_slots, &self.world.shared_slots, entry.slot()) {
            self.becomes_shared();
        }
    }

    /// From now on others may learn from the process's memory what it knows.
    pub fn becomes_shared(&self) {
        self.process.flags.fetch_or(PROCESS_MAPPED_SHARED, Ordering::Relaxed);
        self.transactions().learn(&self.process.clock.load(self.transactions().domains()));
    }

    pub fn shmat(&mut self) {
        const SHM_REMAP: u64 = 0o40000;
        if self.arg(2) & SHM_REMAP != 0 && touches_ours(self.arg(1), PAGE) {
            return self.answer(-EINVAL);
        }
        self.becomes_shared();
        self.proceed();
    }

    /// `munmap`, `mprotect`, `mremap`, `madvise` of what may be ours.
    pub fn own_pages(&mut self) {
        const MREMAP_FIXED: u64 = 2;
        if self.frame.nr == nr::madvise && self.refuses_advice(self.arg(2)) {
            return self.answer(-EINVAL);
        }
        let moves_over_ours =
            self.frame.nr == nr::mremap && self.arg(3) & MREMAP_FIXED != 0 && touches_ours(self.arg(4), self.arg(2));
        if touches_ours(self.arg(0), self.arg(1)) || moves_over_ours {
            return self.answer(-EINVAL);
        }
        let result = self.proceed();
        if result == -EACCES
            && self.frame.nr == nr::mprotect
            && self.arg(2) & PROT_WRITE != 0
            && own_texts(self.arg(0), self.arg(1))
        {
            self.proceed();
        }
    }

    /// `process_madvise`: of its own memory a process may say there what `madvise` says.
    pub fn advise_process(&mut self) {
        if self.refuses_advice(self.arg(3)) {
            return self.answer(-EINVAL);
        }
        self.barrier();
    }

    /// Whether the program may not say this of memory. What a checkpoint has to know of is noted.
    fn refuses_advice(&self, advice: u64) -> bool {
        const MADV_DONTFORK: u32 = 10;
        const MADV_WIPEONFORK: u32 = 18;
        const MADV_GUARD_INSTALL: u32 = 102;
        match advice as u32 {
            // A checkpoint is a child.
            MADV_DONTFORK | MADV_WIPEONFORK => {
                self.process.flags.fetch_or(PROCESS_KEEPS_MEMORY, Ordering::Relaxed);
                false
            }
            // A rollback could not write what was there before. Kernels before 6.13 say the same; programs fall back.
            MADV_GUARD_INSTALL => {
                gate::request(Request::Refused, self.frame.nr, MADV_GUARD_INSTALL.into(), 0);
                true
            }
            _ => false,
        }
    }

    fn patch_mapping(&mut self, fd: u64, at: u64, length: u64, offset: u64) {
        if self.has_option(agent_abi::option::NO_PATCHES) {
            return;
        }
        let Ok(stat) = Stat::of_fd(fd) else { return };
        let file = stat.version();
        let may_be_planned = || may_ask_for_plans(self.world) && gate::request(Request::PlanFile, fd, 0, 0) >= 0;
        if !is_known(self.world, &file) && !may_be_planned() {
            return;
        }
        for row in rows(self.world, &file).filter(|row| row.is_patched) {
            let inside = row.offset >= offset && row.offset - offset + row.len <= (length + PAGE - 1) & !(PAGE - 1);
            if inside {
                attach(self.process, &row, at + (row.offset - offset));
            }
        }
    }
}

/// Set a slot's bit in `own`; whether it is set in `other`. Whichever side comes second sees both.
fn mark(own: &[AtomicU64], other: &[AtomicU64], slot: usize) -> bool {
    set(own, slot);
    is_set(other, slot)
}

fn set(bits: &[AtomicU64], slot: usize) {
    if !is_set(bits, slot) {
        bits[slot / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
    }
}

pub fn is_set(bits: &[AtomicU64], slot: usize) -> bool {
    bits[slot / 64].load(Ordering::SeqCst) & 1 << (slot % 64) != 0
}

fn is_writable(fd: u64) -> bool {
    const F_GETFL: u64 = 3;
    const O_ACCMODE: i64 = 3;
    // SAFETY: no pointers.
    let flags = unsafe { gate::call(nr::fcntl, [fd, F_GETFL, 0, 0, 0, 0]) };
    flags < 0 || flags & O_ACCMODE != 0
}

/// Whether the supervisor may read a program file: if it is heard by, or waits for, somebody inside, the file's
/// calls stop instead.
pub fn may_ask_for_plans(world: &agent_abi::World) -> bool {
    world.options.load(Ordering::Relaxed) & agent_abi::option::READS_HEARD == 0
}

/// The rows about one version of a file.
pub fn rows(world: &'static agent_abi::World, file: &FileVersion) -> impl Iterator<Item = TextRow> {
    let start = text_index(file);
    let file = *file;
    (0..TEXTS_MAX)
        .map(move |i| &world.texts[(start + i) % TEXTS_MAX])
        .take_while(|row| row.state() != TextState::Free)
        .filter_map(move |row| row.read(&file))
}

pub fn is_known(world: &'static agent_abi::World, file: &FileVersion) -> bool {
    rows(world, file).next().is_some()
}

/// Map the patched text over the original, and its stubs at their distance. If the file was forgotten meanwhile,
/// and nobody had it, there are no such segments any more: its calls stop.
pub fn attach(process: &agent_abi::Process, row: &TextRow, at: u64) -> bool {
    const SHM_RDONLY: u64 = 0o10000;
    const SHM_REMAP: u64 = 0o40000;
    const SHM_EXEC: u64 = 0o100000;
    let stubs_at = at.wrapping_add_signed(row.stub_distance);
    if is_near_ours(stubs_at, row.stub_len) {
        return false;
    }
    if !has_stubs(stubs_at, row.stub_shm) {
        // Without SHM_REMAP: if something is there already, the text stays as it is, and its calls stop.
        // SAFETY: maps at a free place.
        let got = unsafe { gate::call(nr::shmat, [u64::from(row.stub_shm), stubs_at, SHM_RDONLY | SHM_EXEC, 0, 0, 0]) };
        if got != stubs_at as i64 || !remember_stubs(stubs_at, row.stub_shm) {
            return false;
        }
    }
    // SAFETY: replaces the text that was just mapped and that nobody has run yet by the same text, patched.
    let got =
        unsafe { gate::call(nr::shmat, [u64::from(row.text_shm), at, SHM_RDONLY | SHM_EXEC | SHM_REMAP, 0, 0, 0]) };
    if got == at as i64 {
        remember_text(at, row.len);
        let sites = u64::from(row.sites);
        process.patched_sites.store(process.patched_sites.load(Ordering::Relaxed) + sites, Ordering::Relaxed);
    }
    got == at as i64
}

fn has_stubs(at: u64, id: u32) -> bool {
    let private = private();
    let len = (private.stubs_len as usize).min(STUBS_MAX);
    (0..len).any(|i| private.stubs[i] == at && private.stub_ids[i] == id)
}

fn remember_text(at: u64, len: u64) {
    // SAFETY: as in `remember_stubs`.
    let private = unsafe { &mut *(PRIVATE_BASE as *mut Private) };
    // What was there before has been unmapped.
    let mut free = 0;
    for i in 0..(private.texts_len as usize).min(STUBS_MAX) {
        let (text, text_len) = private.texts[i];
        if text.saturating_add(text_len) <= at || at.saturating_add(len) <= text {
            private.texts[free] = private.texts[i];
            free += 1;
        }
    }
    private.texts_len = free as u64;
    if free < STUBS_MAX {
        private.texts[free] = (at, len);
        private.texts_len += 1;
    }
}

/// A program wants to write on its text: patched text that the range touches becomes the process's own copy. False if
/// there is none.
fn own_texts(at: u64, len: u64) -> bool {
    let private = private();
    let mut any = false;
    for &(text, text_len) in private.texts.iter().take(private.texts_len as usize) {
        if text < at.saturating_add(len) && at < text + text_len {
            any |= own_text(text, text_len);
        }
    }
    any
}

fn own_text(text: u64, len: u64) -> bool {
    const MREMAP_MAYMOVE_FIXED: u64 = 3;
    const PROT_READ_WRITE: u64 = 3;
    const PROT_READ_EXEC: u64 = 5;
    const MAP_PRIVATE_ANONYMOUS: u64 = 0x22;
    // SAFETY: the copy is made aside and takes the text's place in one step: a thread that runs there notices nothing.
    // If the text has been unmapped meanwhile, the kernel's copy fails and nothing changes.
    unsafe {
        let copy = gate::call(nr::mmap, [0, len, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, u64::MAX, 0]);
        if copy < 0 {
            return false;
        }
        let words = core::slice::from_raw_parts_mut(copy as *mut u64, len as usize / 8);
        read_program(text, words)
            && gate::call(nr::mprotect, [copy as u64, len, PROT_READ_EXEC, 0, 0, 0]) == 0
            && gate::call(nr::mremap, [copy as u64, len, len, MREMAP_MAYMOVE_FIXED, text, 0]) == text as i64
    }
}

fn remember_stubs(at: u64, id: u32) -> bool {
    // SAFETY: this process's own memory; two threads that map libraries at once may lose an entry, which costs speed
    // only.
    let private = unsafe { &mut *(PRIVATE_BASE as *mut Private) };
    let len = private.stubs_len as usize;
    if len < STUBS_MAX {
        private.stubs[len] = at;
        private.stub_ids[len] = id;
        private.stubs_len += 1;
    }
    true
}

/// Write words to the program's memory; false if they cannot be written.
pub fn write_program(address: u64, from: &[u64]) -> bool {
    let len = core::mem::size_of_val(from) as u64;
    let local = [from.as_ptr() as u64, len];
    let remote = [address, len];
    // SAFETY: `local` describes `from`; the kernel checks `remote`.
    unsafe {
        // The thread, not its process: once the first thread has ended, the process's number leads to no memory.
        let own = gate::call(nr::gettid, [0; 6]) as u64;
        gate::call(nr::process_vm_writev, [own, local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0]) == len as i64
    }
}
