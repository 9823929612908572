//! The bytes of a stub.
//!
//! ```text
//! X:     eb xx                     jmp enter           restart point
//! X+2:   instructions that followed `syscall`, then a jump back behind the window
//! pre:   instructions that preceded `syscall`
//! enter: 48 8d 0d xx xx xx xx      lea rcx, [rip + (X+2)]
//!        ff 25 xx xx xx xx         jmp qword ptr [rip + slot]
//! ```
//! The jump in the text goes to `pre` (which is `enter` when nothing precedes). The first eight bytes of a stub area
//! are the slot: the absolute address of the agent.

use iced_x86::{Instruction, OpKind};

use crate::boundary::Text;
use crate::window::{ends_path, relative_target, Window};
use crate::{JUMP_LEN, PAGE};

/// Length of the slot at the start of an area, bytes.
const SLOT_LEN: u64 = 8;
/// No stub is longer: six instructions of fifteen bytes at most, four branches grown, and 25 bytes of its own.
const STUB_LEN_MAX: u64 = 160;
/// Stubs begin at multiples of this, bytes.
const STUB_ALIGN: usize = 8;

/// Pages that are enough for the stubs of `sites`, bytes.
pub(crate) fn area_len_max(sites: usize) -> u64 {
    (SLOT_LEN + sites as u64 * STUB_LEN_MAX).next_multiple_of(PAGE)
}

/// Offsets in the stub area of what one stub consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub restart: u32,
    pub entry: u32,
    pub end: u32,
}

/// A stub area that grows.
pub(crate) struct StubArea {
    vaddr: u64,
    bytes: Vec<u8>,
}

impl StubArea {
    pub fn new(vaddr: u64, agent_entry: u64) -> Self {
        StubArea { vaddr, bytes: agent_entry.to_le_bytes().to_vec() }
    }

    fn here(&self) -> u64 {
        self.vaddr.wrapping_add(self.bytes.len() as u64)
    }

    fn offset(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    /// Adds the stub of `window`. `None` (and nothing added) if something in it does not reach.
    pub fn add(&mut self, window: &Window, text: Text) -> Option<Placed> {
        let len = self.bytes.len();
        let placed = self.try_add(window, text);
        if placed.is_none() {
            self.bytes.truncate(len);
        }
        placed
    }

    fn try_add(&mut self, window: &Window, text: Text) -> Option<Placed> {
        let aligned = self.bytes.len().next_multiple_of(STUB_ALIGN);
        self.bytes.resize(aligned, 0xcc);
        let restart = self.offset();
        self.bytes.extend([0xeb, 0]);
        let result = self.here();
        self.add_moved(&window.after, text)?;
        if !window.after.last().is_some_and(ends_path) {
            self.bytes.push(0xe9);
            self.add_relative(window.range.end, 0)?;
        }
        let entry = self.offset();
        self.add_moved(&window.before, text)?;
        let short = i8::try_from(self.here().wrapping_sub(result)).ok()?;
        *self.bytes.get_mut(restart as usize + 1)? = short as u8;
        self.bytes.extend([0x48, 0x8d, 0x0d]);
        self.add_relative(result, 0)?;
        self.bytes.extend([0xff, 0x25]);
        self.add_relative(self.vaddr, 0)?;
        Some(Placed { restart, entry, end: self.offset() })
    }

    fn add_moved(&mut self, instructions: &[Instruction], text: Text) -> Option<()> {
        instructions.iter().try_for_each(|instruction| self.add_instruction(instruction, text))
    }

    fn add_instruction(&mut self, instruction: &Instruction, text: Text) -> Option<()> {
        let bytes = text.slice(instruction.ip()..instruction.next_ip());
        let Some(target) = relative_target(instruction) else {
            self.bytes.extend(bytes);
            return Some(());
        };
        if instruction.op0_kind() != OpKind::NearBranch64 {
            return self.add_ip_relative(instruction, bytes, target);
        }
        // Short branches become near ones: 7x -> 0f 8x, eb -> e9.
        match *bytes {
            [condition @ 0x70..=0x7f, _] => self.bytes.extend([0x0f, condition + 0x10]),
            [0x0f, condition, ..] => self.bytes.extend([0x0f, condition]),
            [0xeb | 0xe9, ..] => self.bytes.push(0xe9),
            _ => return None,
        }
        self.add_relative(target, 0)
    }

    /// The same bytes with another displacement, which an immediate may follow.
    fn add_ip_relative(&mut self, instruction: &Instruction, bytes: &[u8], target: u64) -> Option<()> {
        let decoder_offsets = {
            let mut decoder = text_decoder(instruction, bytes);
            let again = decoder.decode();
            decoder.get_constant_offsets(&again)
        };
        if decoder_offsets.displacement_size() != 4 {
            return None;
        }
        let (head, tail) = bytes.split_at_checked(decoder_offsets.displacement_offset())?;
        let tail = tail.get(4..)?;
        self.bytes.extend(head);
        self.add_relative(target, tail.len() as u64)?;
        self.bytes.extend(tail);
        Some(())
    }

    /// Four bytes that lead to `target` from behind themselves and `trailing` more bytes.
    fn add_relative(&mut self, target: u64, trailing: u64) -> Option<()> {
        let next = self.here().wrapping_add(4 + trailing);
        let displacement = i32::try_from(target.wrapping_sub(next) as i64).ok()?;
        self.bytes.extend(displacement.to_le_bytes());
        Some(())
    }

    /// The whole area, in full pages.
    pub fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len().next_multiple_of(PAGE as usize);
        self.bytes.resize(len, 0xcc);
        self.bytes
    }

    /// The area's address.
    pub fn vaddr(&self) -> u64 {
        self.vaddr
    }
}

fn text_decoder<'a>(instruction: &Instruction, bytes: &'a [u8]) -> iced_x86::Decoder<'a> {
    iced_x86::Decoder::with_ip(64, bytes, instruction.ip(), iced_x86::DecoderOptions::NONE)
}

/// The bytes that replace a window: a jump to `entry`, then traps. Where the jump ends before the call, that stays in
/// its place: a thread that a signal finds in the call is shown there, and a call that begins again is made there.
pub(crate) fn window_bytes(window: &Window, entry: u64) -> Option<Vec<u8>> {
    let next = window.range.start + JUMP_LEN;
    let displacement = i32::try_from(entry.wrapping_sub(next) as i64).ok()?;
    let mut bytes = vec![0xe9];
    bytes.extend(displacement.to_le_bytes());
    bytes.resize((window.range.end - window.range.start) as usize, 0xcc);
    if window.keeps_call() {
        bytes.truncate(bytes.len() - SYSCALL.len());
        bytes.extend(SYSCALL);
    }
    Some(bytes)
}

const SYSCALL: &[u8] = &[0x0f, 0x05];
