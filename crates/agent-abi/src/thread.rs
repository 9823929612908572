//! What belongs to one thread and to one process alone. Offsets are used by the agent's assembly; asserted below.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Descriptors whose kind is remembered; higher ones are looked at each time.
pub const FDS_MAX: usize = 65536;
/// Descriptors of the agent's own that a thread may have open at once.
pub const OWN_DESCRIPTORS_MAX: usize = 2;
/// Stub areas that a process can remember.
pub const STUBS_MAX: usize = 64;

/// The program's call has not been made: it can be taken back to its call site and made again.
pub const PHASE_BEFORE: u32 = 1;
/// The program's call has been made: the agent must finish.
pub const PHASE_AFTER: u32 = 2;
/// A part of the program's call has been made, all that belongs to it is finished, and the frame has the result of
/// a call that ends there. What is under way can be thrown away.
pub const PHASE_PARTIAL: u32 = 3;

/// The agent must finish itself what it began.
pub const AFTER_MUST_FINISH: u64 = 0;
/// All that is left is to note what the call observed: the supervisor can note that it may have observed everything,
/// and send the thread on.
pub const AFTER_OBSERVES: u64 = 1;
/// The supervisor lets the thread leave the agent, because a signal waits, or a checkpoint was taken: the agent begins
/// nothing more that may wait, or that was allowed before.
pub const AFTER_LEAVES: u64 = 2;
/// As `AFTER_OBSERVES`; and if the call was interrupted by a signal that the program ignores, it is made again for
/// the time that is left (`REPEATS`).
pub const AFTER_REPEATS: u64 = 3;
/// The same, where the agent must finish itself what it began.
pub const AFTER_REPEATS_AND_FINISHES: u64 = 4;
/// What is made is no call of the program's but a wait before it: nothing has happened yet, whatever it returns. It is
/// made again in the same way.
pub const AFTER_WAITS: u64 = 5;
/// What such a call returns, in the place of EINTR.
pub const REPEATS: i64 = -4000;

/// The thread has its own descriptor table but shares its memory (vfork's child): the cache is not its own.
pub const THREAD_UNCACHED: u32 = 1;
/// The thread is making a child that gets its own copy of the memory.
pub const THREAD_FORKED: u32 = 2;
/// The thread has stopped others (`stop_the_world`): it may wait for them.
pub const THREAD_TRACES: u32 = 4;
/// The thread stops before it ends: its process has a stream to outside.
pub const THREAD_WATCHED: u32 = 8;

/// The supervisor is told when the call that is under way has been made, though it was not asked about it.
pub const REST_TELLS: u64 = 1;
/// The thread was taken back from a wait with a limit, and makes that call again: for the time that is left.
pub const REST_WAITS: u64 = 2;

/// Since its last fsync the thread has shown nothing.
pub const SYNC_UNSHOWN: u32 = 1;
/// After its fsync before that it has.
pub const SYNC_SHOWS: u32 = 2;
/// That fsync came right after the only write to what it flushed.
pub const SYNC_AFTER_WRITE: u32 = 4;
/// The last one was `fdatasync`.
pub const SYNC_OF_DATA: u32 = 8;

/// The registers of the program at its call site, as the agent saved them at the top of the thread's stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    /// Callee-saved registers.
    pub r15: u64,
    /// See `r15`.
    pub r14: u64,
    /// See `r15`.
    pub r13: u64,
    /// See `r15`.
    pub r12: u64,
    /// See `r15`.
    pub rbp: u64,
    /// See `r15`.
    pub rbx: u64,
    /// The result, once there is one; the number until then.
    pub rax: u64,
    /// Where the program goes on: the address after its `syscall`. Two bytes before it the call can be made again.
    pub continuation: u64,
    /// Arguments, in their order.
    pub args: [u64; 6],
    /// The number.
    pub nr: u64,
    /// The program's flags.
    pub rflags: u64,
}

/// What the agent knows of a thread; gs points to it. Its stack ends there, with a `Frame` on top.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadPage {
    /// Its own address.
    pub this: u64,
    /// The program's stack pointer.
    pub program_rsp: u64,
    /// Where the agent's stack begins.
    pub stack_top: u64,
    /// `PHASE_…`.
    pub phase: u32,
    /// `THREAD_…`.
    pub flags: u32,
    /// Index of its `Thread` slot.
    pub thread: u32,
    /// Index of its `Process` slot.
    pub process: u32,
    /// The stack pointer that the program gave its next child, 0 = the same as its own.
    pub child_rsp: u64,
    /// What the agent has to do after the program's call: `AFTER_…`.
    pub after: u64,
    /// Descriptors of the agent's own that are open: the number and one more, 0 = none (`agent::opened`).
    pub own: [AtomicU64; OWN_DESCRIPTORS_MAX],
    /// Thread slot taken for a child that is not born yet, plus 1. A fork that a signal interrupts finds it again.
    pub pending_thread: u32,
    /// Process slot taken for it, plus 1.
    pub pending_process: u32,
    /// Children that it waited for, each before the next one (`agent::same_core`).
    pub births: u32,
    /// A bit for each way of opening what may have to be made: the last time it was (`agent::opening`).
    pub makes_new: u32,
    /// How many of the descriptors that are opened next are looked at at once (`agent::descriptors`).
    pub looks: AtomicU32,
    /// `SYNC_…`: what it does after an fsync (`agent::fsync`).
    pub syncs: u32,
    /// How often it has written to files that could be logs since its last fsync.
    pub log_writes: u32,
    /// Which of its calls was the last of them (`Thread::calls`).
    pub log_written: u64,
    /// The call that wrote to a log and flushed it, and that log's number below.
    pub log_flushed: u64,
    /// Not 0: a signal that the program ignores came with the end of a transfer. Without a tracer it would not have
    /// ended it.
    pub cut: u64,
    /// The number of the call that `restart_syscall` goes on with; its arguments are the same.
    pub restarts: u64,
    /// `REST_…`: what the supervisor has said of the call that the thread is in, or makes next.
    pub rest: AtomicU64,
    /// When the last wait with a limit began (`CLOCK_MONOTONIC`, ns).
    pub wait_since: u64,
    /// In which call of the program: where that goes on.
    pub wait_site: u64,
    /// And the program's stack pointer in it.
    pub wait_rsp: u64,
}

/// The start of a process's own memory.
#[repr(C)]
#[derive(Debug)]
pub struct Private {
    /// Threads of this process do not all share one descriptor table: nothing may be remembered.
    pub uncached: u32,
    /// Stub areas in use.
    pub stubs_len: u32,
    /// Addresses of stub areas that are attached.
    pub stubs: [u64; STUBS_MAX],
    /// System V ids of what is attached there.
    pub stub_ids: [u32; STUBS_MAX],
    /// One more than the highest descriptor that was seen to be an outside socket, or a FIFO.
    pub outside_streams_end: u64,
    /// One more than the highest descriptor that anything was remembered of.
    pub fds_end: u64,
    /// The process has, or had, further threads.
    pub threaded: u64,
    /// The program has asked not to be dumpable, and the kernel was not told (`agent::process`).
    pub undumpable: u64,
    /// Of so many moves (`World::moves`) it has taken note.
    pub moves_seen: AtomicU64,
    /// Patched texts that are attached.
    pub texts_len: u64,
    /// Address and length of each.
    pub texts: [(u64, u64); STUBS_MAX],
}

/// Where things are in the agent's image: the first bytes after the gate page.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AgentHeader {
    /// `PROTOCOL_VERSION`.
    pub version: u64,
    /// A thread's entry: rax = number, rcx = continuation.
    pub entry: u64,
    /// The first address of the entry at which the frame is complete.
    pub entry_saved: u64,
    /// The start of a process: rdi = thread slot, rsi = process slot, rdx = entry point, rcx = 1 if bytes must be put
    /// back.
    pub init: u64,
    /// The program's call in the gate: before it, it has not been made.
    pub gate_program: u64,
    /// The address after the program's call.
    pub gate_program_after: u64,
    /// The address after a request that must not be made twice.
    pub gate_effect_after: u64,
    /// From here on a descriptor of the agent's own is open, in rax; r9 says where that is about to be noted
    /// (`ThreadPage::own`).
    pub gate_open_own_after: u64,
    /// It is noted.
    pub gate_open_own_noted: u64,
    /// Here it is closed; rsi says where it is still noted.
    pub gate_close_own_after: u64,
    /// The address after a call that makes a child, in parent and child; up to `gate_clone_end` it has been made.
    pub gate_clone_after: u64,
    /// See `gate_clone_after`.
    pub gate_clone_end: u64,
    /// The first address after which registers are the program's again.
    pub leave: u64,
    /// The end of that.
    pub leave_end: u64,
    /// End of code.
    pub end: u64,
}

const _: () = assert!(offset_of!(ThreadPage, program_rsp) == 8);
const _: () = assert!(offset_of!(ThreadPage, stack_top) == 16);
const _: () = assert!(offset_of!(ThreadPage, phase) == 24);
const _: () = assert!(offset_of!(Frame, rax) == 48);
const _: () = assert!(core::mem::size_of::<Frame>() == 16 * 8);
