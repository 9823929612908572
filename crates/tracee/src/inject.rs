//! How the agent gets into a new program: one word over its entry point attaches the agent's segment and jumps to it;
//! the registers say the rest. The agent attaches the world's segment, and replaces or restores the page of that word.
//! One stop an exec, no descriptor, no path.

use crate::{memory, sys, AgentImage, Registers, RemoteCalls, Result, Stopped, TraceError};
use agent_abi::AGENT_BASE;
use procfs::ThreadId;

const SHM_RDONLY: u64 = 0o10000;
const SHM_EXEC: u64 = 0o100000;
/// A second try, after the first found the door closed, finds the first segment attached already.
const SHM_REMAP: u64 = 0o40000;
const PAGE: u64 = 4096;

/// `mov al, shmat` (exec leaves 0 in rax); `syscall`; `jmp r10`; `int3`. The entry point as a word at once: neither
/// `/proc` nor a second call is needed.
const BOOTSTRAP: [u8; 8] = [0xb0, libc::SYS_shmat as u8, 0x0f, 0x05, 0x41, 0xff, 0xe2, 0xcc];
/// Where `agent_start` may find that the world's segment cannot be attached, bytes from its beginning.
const START_LEN: u64 = 64;

/// A call that a new program, which has just been executed, makes before its first instruction; the kernel's answer.
pub fn call_before_start(stopped: &Stopped, number: i64, arguments: &[u64]) -> Result<i64> {
    const SYSCALL: u64 = 0x050f;
    let (tid, at) = (stopped.tid(), word_at_entry(stopped.registers()?.rip));
    let kernel = |source| TraceError::Kernel { what: "read the entry point", task: tid.into(), source };
    let original = memory::read_value(tid, at).map_err(kernel)?;
    sys::write_word(tid, at, SYSCALL)?;
    let mut calls = RemoteCalls::new(stopped, at)?;
    let result = calls.call(number, arguments)?;
    let (registers, mask) = (*calls.registers(), calls.mask());
    calls.finish_sending_again(&registers, mask)?;
    sys::write_word(tid, at, original)?;
    Ok(result)
}

/// Where a word can be written at an entry point: within its page, for the next one may not be there.
fn word_at_entry(entry: u64) -> u64 {
    entry.min((entry - entry % PAGE) + PAGE - BOOTSTRAP.len() as u64)
}

/// What was written over, until it is put back.
#[derive(Debug)]
pub struct Injection {
    at: u64,
    entry: u64,
    original: u64,
}

impl Injection {
    /// Make a program that stands at its first instruction, with these registers, start with the agent. `thread` and
    /// `process` are its slots.
    pub fn begin(
        stopped: &Stopped,
        mut registers: Registers,
        image: &AgentImage,
        agent_id: i32,
        world_id: i32,
        (thread, process): (u32, u32),
    ) -> Result<Self> {
        let tid = stopped.tid();
        let entry = registers.rip;
        let at = word_at_entry(entry);
        let kernel = |source| TraceError::Kernel { what: "read the entry point", task: tid.into(), source };
        let original = memory::read_value(tid, at).map_err(kernel)?;
        sys::write_word(tid, at, u64::from_le_bytes(BOOTSTRAP))?;
        registers.rip = at;
        // Where a call was made before, the result of exec is not on its way any more.
        registers.rax = 0;
        // For shmat.
        registers.rdi = agent_id as u64;
        registers.rsi = AGENT_BASE;
        registers.rdx = SHM_RDONLY | SHM_EXEC | SHM_REMAP;
        // For `agent_start`.
        registers.r10 = image.header.init;
        registers.rbx = u64::from(thread);
        registers.rbp = u64::from(process);
        registers.r12 = entry;
        registers.r13 = world_id as u64;
        stopped.set_registers(&registers)?;
        Ok(Self { at, entry, original })
    }

    /// Whether a thread that stands at `address` when it gets `signal` could not attach a segment: there is no agent to
    /// jump to, or the agent's first instructions gave up. The error is in rax.
    pub fn has_failed(&self, image: &AgentImage, signal: i32, address: u64) -> bool {
        let init = image.header.init;
        match signal {
            libc::SIGSEGV => address == init,
            libc::SIGTRAP => (init + 1..=init + START_LEN).contains(&address),
            _ => false,
        }
    }

    /// Where the program begins.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Put back what was there.
    pub fn restore(self, tid: ThreadId) -> Result<()> {
        sys::write_word(tid, self.at, self.original)
    }
}
