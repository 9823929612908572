//! How the agent gets into a new program: a few instructions over its entry point attach the agent's and the world's segments, then jump to
//! the agent, which replaces or restores that page. One stop an exec, no descriptor, no path.

use crate::{memory, AgentImage, Registers, Result, Stopped, TraceError};
use agent_abi::{AGENT_BASE, WORLD_BASE};

const SHM_RDONLY: u32 = 0o10000;
const SHM_EXEC: u32 = 0o100000;
/// A second try, after the first found the door closed, finds the first segment attached already.
const SHM_REMAP: u32 = 0o40000;
const PAGE: u64 = 4096;

/// What was written over, until it is put back.
#[derive(Debug)]
pub struct Injection {
    at: u64,
    entry: u64,
    original: Vec<u8>,
}

impl Injection {
    /// Make a program that stands at its first instruction, with these registers, start with the agent. `thread` and `process` are its slots.
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
        let code = bootstrap(image, agent_id, world_id, thread, process, entry);
        // Stay within the page of the entry point: the next one may not be there.
        let room = PAGE - entry % PAGE;
        let at = if (code.len() as u64) <= room { entry } else { entry - entry % PAGE };
        let kernel = |source| TraceError::Kernel { what: "write the agent's bootstrap", tid, source };
        let original = memory::read_bytes(tid, at, code.len()).map_err(kernel)?;
        memory::write_bytes(tid, at, &code).map_err(kernel)?;
        if at != entry {
            registers.rip = at;
            stopped.set_registers(&registers)?;
        }
        Ok(Self { at, entry, original })
    }

    /// Whether an address is in what was written.
    pub fn covers(&self, address: u64) -> bool {
        (self.at..=self.at + self.original.len() as u64).contains(&address)
    }

    /// Where the program begins.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Put back what was there.
    pub fn restore(self, tid: i32) -> std::io::Result<()> {
        memory::write_bytes(tid, self.at, &self.original)
    }
}

fn bootstrap(image: &AgentImage, agent_id: i32, world_id: i32, thread: u32, process: u32, entry: u64) -> Vec<u8> {
    let mut code = Code(Vec::with_capacity(128));
    let mut failures = vec![code.attach(agent_id, AGENT_BASE, SHM_RDONLY | SHM_EXEC | SHM_REMAP)];
    failures.push(code.attach(world_id, WORLD_BASE, SHM_REMAP));
    code.emit(&[0xbf]).imm32(thread); // mov edi, thread
    code.emit(&[0xbe]).imm32(process); // mov esi, process
    code.emit(&[0x48, 0xba]).imm64(entry); // mov rdx, entry
    code.emit(&[0x48, 0xb8]).imm64(image.header.init); // mov rax, init
    code.emit(&[0xff, 0xe0]); // jmp rax
    let end = code.0.len();
    for failure in failures {
        code.0[failure] = (end - failure - 1) as u8;
    }
    code.emit(&[0xcc]); // int3, with the error in rax
    code.0
}

struct Code(Vec<u8>);

impl Code {
    fn emit(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
    fn imm32(&mut self, value: u32) -> &mut Self {
        self.emit(&value.to_le_bytes())
    }
    fn imm64(&mut self, value: u64) -> &mut Self {
        self.emit(&value.to_le_bytes())
    }

    /// shmat(id, at, flags); returns where the displacement of the jump on failure is.
    fn attach(&mut self, id: i32, at: u64, flags: u32) -> usize {
        self.emit(&[0xb8]).imm32(libc::SYS_shmat as u32); // mov eax, shmat
        self.emit(&[0xbf]).imm32(id as u32); // mov edi, id
        self.emit(&[0x48, 0xbe]).imm64(at); // mov rsi, at
        self.emit(&[0xba]).imm32(flags); // mov edx, flags
        self.emit(&[0x0f, 0x05]); // syscall
        self.emit(&[0x48, 0x39, 0xf0]); // cmp rax, rsi
        self.emit(&[0x75, 0x00]); // jne failure
        self.0.len() - 1
    }
}
