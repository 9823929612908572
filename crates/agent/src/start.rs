//! The start of a program: its own memory, its first thread's page, its files' patched text. Runs at the first
//! instruction of every new image, on the stack that the kernel made.

use crate::clocks::world;
use crate::descriptors::{Stat, CACHE_BASE};
use crate::gate::{self};
use crate::memory::{attach, is_known, may_ask_for_plans, rows};
use agent_abi::{
    option, DeviceKind, Request, ThreadPage, FDS_MAX, PRIVATE_BASE, PROCESSES_MAX, PROCESS_MAPPED_SERVED,
    PROCESS_PRIVILEGES, THREADS_MAX, THREAD_PAGE_OFFSET,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use syscall_table::nr;

/// Offset of the first thread's page in the private memory. The stack is below it, and what is remembered of the first
/// descriptors stands in the same 4 KiB (`CACHE_BASE`).
pub const FIRST_PAGE: u64 = 0x1000 + THREAD_PAGE_OFFSET;
const _: () = assert!(CACHE_BASE >= PRIVATE_BASE + FIRST_PAGE + core::mem::size_of::<ThreadPage>() as u64);
/// Where the pages of threads are in this process: an address for each slot.
pub const THREAD_PAGES_BASE: u64 = CACHE_BASE + FDS_MAX as u64 * 8;
/// The name that was looked at last (`looked`).
pub const LOOKED_BASE: u64 = THREAD_PAGES_BASE + THREADS_MAX as u64 * 8;
/// What permits say of the first descriptors (`permits`): a page, and more for who has many.
pub const MARKS_BASE: u64 = LOOKED_BASE + core::mem::size_of::<crate::looked::Looked>() as u64;
/// Behind the marks: how much may still be written on permits (`exchange`).
pub const WRITTEN_BASE: u64 = MARKS_BASE + crate::permits::MARKS as u64 * 8;
pub const PRIVATE_LEN: u64 = WRITTEN_BASE - PRIVATE_BASE + 8;

/// What the kernel says of the new image (`getauxval(3)`).
#[derive(Default)]
struct Auxv {
    phdr: u64,
    phnum: u64,
    base: u64,
    /// The name that was executed: of a script, its own.
    name: u64,
    /// It runs with other rights than whoever executed it.
    is_secure: bool,
}

/// Called by `agent_start`.
pub unsafe extern "C" fn start(thread: u64, process: u64, entry: u64, stack: *const u64) {
    let world = world();
    if world.version.load(Ordering::Relaxed) != agent_abi::PROTOCOL_VERSION {
        gate::trap();
    }
    map_private();
    let page = PRIVATE_BASE + FIRST_PAGE;
    prepare_first_page(page, thread, process);
    let slot = &world.processes[process as usize % PROCESSES_MAX];
    // SAFETY: the stack is as the kernel made it.
    let auxv = unsafe { read_auxv(stack) };
    if auxv.is_secure {
        slot.flags.fetch_or(PROCESS_PRIVILEGES, Ordering::Relaxed);
    }
    let restored = if world.options.load(Ordering::Relaxed) & option::NO_PATCHES == 0 {
        patch_image(slot, &auxv, entry)
    } else {
        observe_executable(slot, &auxv);
        false
    };
    if !restored {
        gate::request(Request::Restore, 0, 0, 0);
    }
    // From here on a checkpoint can be taken, and calls be made for the supervisor: nothing is left to be put back.
    world.threads[thread as usize % THREADS_MAX].page.store(page, Ordering::Release);
}

fn map_private() {
    const PROT_READ_WRITE: u64 = 3;
    const MAP_PRIVATE_ANONYMOUS_FIXED_NORESERVE: u64 = 0x4032;
    // SAFETY: the address range is ours in a new image.
    let got = unsafe {
        gate::call(
            nr::mmap,
            [PRIVATE_BASE, PRIVATE_LEN, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_FIXED_NORESERVE, u64::MAX, 0],
        )
    };
    if got != PRIVATE_BASE as i64 {
        gate::request(Request::Fatal, u64::from(line!()), got as u64, 0);
        gate::trap();
    }
}

fn prepare_first_page(at: u64, thread: u64, process: u64) {
    const ARCH_SET_GS: u64 = 0x1001;
    // SAFETY: just mapped.
    unsafe {
        (at as *mut ThreadPage).write(ThreadPage {
            this: at,
            program_rsp: 0,
            stack_top: at,
            phase: agent_abi::PHASE_AFTER,
            flags: 0,
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
        gate::call(nr::arch_prctl, [ARCH_SET_GS, at, 0, 0, 0, 0]);
    }
}

unsafe fn read_auxv(stack: *const u64) -> Auxv {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    const AT_BASE: u64 = 7;
    const AT_EXECFN: u64 = 31;
    const AT_SECURE: u64 = 23;
    let mut auxv = Auxv::default();
    // SAFETY: argc, argv, NULL, envp, NULL, auxv: as the kernel laid it out.
    unsafe {
        let mut at = stack.add(stack.read() as usize + 2);
        while at.read() != 0 {
            at = at.add(1);
        }
        at = at.add(1);
        while at.read() != 0 {
            let value = at.add(1).read();
            match at.read() {
                AT_PHDR => auxv.phdr = value,
                AT_PHNUM => auxv.phnum = value,
                AT_BASE => auxv.base = value,
                AT_EXECFN => auxv.name = value,
                AT_SECURE => auxv.is_secure = value != 0,
                _ => {}
            }
            at = at.add(2);
        }
    }
    auxv
}

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    paddr: u64,
    file_len: u64,
    len: u64,
    align: u64,
}

const PT_INTERP: u32 = 3;
const PT_PHDR: u32 = 6;
const PT_LOAD: u32 = 1;

fn headers(auxv: &Auxv) -> &'static [ProgramHeader] {
    // SAFETY: AT_PHDR and AT_PHNUM describe the mapped program headers.
    unsafe { core::slice::from_raw_parts(auxv.phdr as *const ProgramHeader, (auxv.phnum as usize).min(256)) }
}

/// Where the program was loaded, relative to its own addresses.
fn load_bias(auxv: &Auxv) -> u64 {
    let headers = headers(auxv);
    if let Some(own) = headers.iter().find(|h| h.kind == PT_PHDR) {
        return auxv.phdr.wrapping_sub(own.vaddr);
    }
    // Without PT_PHDR: the headers stand in the first page of the segment that begins the file.
    match headers.iter().find(|h| h.kind == PT_LOAD && h.offset == 0) {
        Some(first) => (auxv.phdr & !0xfff).wrapping_sub(first.vaddr & !0xfff),
        None => 0,
    }
}

/// The program, and the script whose first line names it.
fn observe_executable(process: &agent_abi::Process, auxv: &Auxv) -> Option<Stat> {
    let world = world();
    let program = stat_path(c"/proc/self/exe".as_ptr().cast());
    program.iter().for_each(|stat| note_served(process, stat));
    if !world.transactions.is_clean() {
        let domains = world.transactions.domains();
        process.depend(&world.transactions, &world.names.load(domains));
        let named = if auxv.name == 0 { None } else { stat_path(auxv.name as *const u8) };
        for stat in program.iter().chain(&named) {
            let slot = agent_abi::FdEntry::new(agent_abi::FdKind::DomainFile, 0, stat.hash()).slot();
            process.depend(&world.transactions, &world.objects[slot].load(domains));
        }
        // What cannot be looked at may have been changed by anybody; somebody inside may have kept the exec waiting.
        let is_unknown = program.is_none() || named.is_none();
        if is_unknown || world.options.load(Ordering::Relaxed) & option::READS_HEARD != 0 {
            process.depend(&world.transactions, &world.transactions.dirty());
        }
    }
    program
}

/// Pages of a program that lies on somebody's file system come from him.
fn note_served(process: &agent_abi::Process, stat: &Stat) {
    if world().device(stat.dev).0 == DeviceKind::Outside {
        process.flags.fetch_or(PROCESS_MAPPED_SERVED, Ordering::Relaxed);
    }
}

fn stat_path(path: *const u8) -> Option<Stat> {
    Stat::of_name(crate::names::AT_FDCWD, path as u64, 0).ok()
}

/// Map patched text over the program's and its interpreter's. True if the page that the injection wrote on was
/// replaced.
fn patch_image(process: &agent_abi::Process, auxv: &Auxv, entry: u64) -> bool {
    let world = world();
    let Some(program) = observe_executable(process, auxv) else { return false };
    if auxv.phdr == 0 {
        return false;
    }
    let bias = load_bias(auxv);
    let interpreter = headers(auxv).iter().find(|h| h.kind == PT_INTERP).map(|h| bias.wrapping_add(h.vaddr));
    let interpreter_stat = interpreter.and_then(|path| stat_path(path as *const u8));
    interpreter_stat.iter().for_each(|stat| note_served(process, stat));
    let program_file = program.version();
    let unknown =
        !is_known(world, &program_file) || interpreter_stat.as_ref().is_some_and(|s| !is_known(world, &s.version()));
    if unknown && may_ask_for_plans(world) && gate::request(Request::PlanExecutable, interpreter.unwrap_or(0), 0, 0) < 0
    {
        return false;
    }
    let mut replaced = attach_all(process, &program_file, bias, entry, |_, _| {});
    if let Some(stat) = interpreter_stat {
        let is_attached = |at, len| populate(at, len);
        replaced |= attach_all(process, &stat.version(), auxv.base, entry, is_attached);
    }
    replaced
}

/// Attach all patched text of a file, each part followed by `is_attached(address, length)`. True if the entry point is
/// in one.
fn attach_all(
    process: &agent_abi::Process,
    file: &agent_abi::FileVersion,
    bias: u64,
    entry: u64,
    is_attached: impl Fn(u64, u64),
) -> bool {
    let mut replaced = false;
    for row in rows(world(), file).filter(|row| row.is_patched) {
        let at = bias.wrapping_add(row.vaddr);
        if attach(process, &row, at) {
            replaced |= entry >= at && entry - at < row.len;
            is_attached(at, row.len);
        }
    }
    replaced
}

/// Map all pages at once. The start of any program runs through nearly all of the loader's, and a System V segment has
/// no fault-around.
fn populate(at: u64, len: u64) {
    const MADV_POPULATE_READ: u64 = 22;
    const LOADER_LEN_MAX: u64 = 64 << 12;
    if len <= LOADER_LEN_MAX {
        // SAFETY: reads pages that are mapped; before Linux 5.14 it does nothing.
        unsafe { gate::call(nr::madvise, [at, len, MADV_POPULATE_READ, 0, 0, 0]) };
    }
}
