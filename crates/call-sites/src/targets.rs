//! Which addresses near the sites can be jumped to?
//!
//! A window may have a branch target only as its first byte. Looked for are: branches with a four-byte displacement
//! anywhere in executable segments, at any byte (a cold part of a function jumps back from far away); short branches
//! by decoding the functions near by, or at any byte where no function is known; addresses in instructions; address
//! words in data (tables, relocations, symbols); switch tables with relative entries. A false target costs at most a
//! site, a missed one would cost the program.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::boundary::Text;
use crate::elf::{read_i32, read_u64, Elf};
use crate::functions::Function;

/// How far from a site a window can reach, bytes.
pub(crate) const REACH: u64 = 48;
/// How far a short branch can jump, with its own length, bytes.
pub(crate) const SHORT: u64 = 132;

/// The branch targets near the sites of one segment.
pub(crate) struct Targets {
    base: u64,
    /// One bit for 16 bytes of text: is a site near?
    near_site: Vec<u64>,
    /// One bit for each byte of it: can something jump there? Known near sites only.
    hits: Vec<u64>,
}

impl Targets {
    pub fn new(text: Text, sites: impl Iterator<Item = u64>) -> Self {
        let words = text.bytes.len() / 1024 + 2;
        let mut targets = Targets { base: text.vaddr, near_site: vec![0; words], hits: vec![0; words * 16] };
        for site in sites {
            let first = (site - text.vaddr).saturating_sub(REACH) >> 4;
            for granule in first..=(site - text.vaddr + REACH) >> 4 {
                if let Some(word) = targets.near_site.get_mut((granule >> 6) as usize) {
                    *word |= 1 << (granule & 63);
                }
            }
        }
        targets
    }

    #[inline]
    fn matters(&self, vaddr: u64) -> bool {
        let granule = vaddr.wrapping_sub(self.base) >> 4;
        let word = usize::try_from(granule >> 6).ok().and_then(|index| self.near_site.get(index));
        word.is_some_and(|word| word >> (granule & 63) & 1 != 0)
    }

    #[inline]
    pub fn note(&mut self, vaddr: u64) {
        if self.matters(vaddr) {
            let byte = vaddr.wrapping_sub(self.base);
            self.hits[(byte >> 6) as usize] |= 1 << (byte & 63);
        }
    }

    /// Can something jump into `range`?
    pub fn any_in(&self, mut range: Range<u64>) -> bool {
        range.any(|vaddr| {
            let byte = vaddr.wrapping_sub(self.base);
            self.hits.get((byte >> 6) as usize).is_some_and(|word| word >> (byte & 63) & 1 != 0)
        })
    }

    /// Every `call`, `jmp`, `jcc` or `xbegin` with a four-byte displacement, whether its bytes are an instruction or
    /// not.
    pub fn note_far_branches(&mut self, text: Text) {
        // Eight bytes at once: of a library's text this is read to the last byte, and few of them begin such a branch.
        let mut start = 0;
        while let (Some(word), Some(next)) = (read_u64(text.bytes, start), read_u64(text.bytes, start + 1)) {
            let mut maybe = may_begin_branch(word, next);
            while maybe != 0 {
                self.note_far_branch(text, start + maybe.trailing_zeros() as usize / 8);
                maybe &= maybe - 1;
            }
            start += 8;
        }
        for index in start..text.bytes.len() {
            self.note_far_branch(text, index);
        }
    }

    #[inline]
    fn note_far_branch(&mut self, text: Text, index: usize) {
        match text.bytes[index..] {
            [0xe8 | 0xe9, ..] => self.note_displacement(text, index + 1),
            [0x0f, 0x80..=0x8f, ..] | [0xc7, 0xf8, ..] => self.note_displacement(text, index + 2),
            _ => {}
        }
    }

    /// Where the four-byte displacement at `index` leads, counted from its end.
    #[inline]
    fn note_displacement(&mut self, text: Text, index: usize) {
        if let Some(displacement) = read_i32(text.bytes, index) {
            let next = text.vaddr + index as u64 + 4;
            self.note(next.wrapping_add_signed(i64::from(displacement)));
        }
    }

    /// Every short branch, whether its bytes are an instruction or not.
    pub fn note_short_branches(&mut self, text: Text, range: Range<u64>) {
        let start = range.start.max(text.vaddr);
        for (index, pair) in text.slice(range).windows(2).enumerate() {
            if matches!(pair[0], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb) {
                let next = start + index as u64 + 2;
                self.note(next.wrapping_add_signed(i64::from(pair[1] as i8)));
            }
        }
    }

    /// Every address that stands in an aligned word of `bytes`.
    pub fn note_address_words(&mut self, bytes: &[u8], vaddr: u64) {
        let skip = (vaddr.wrapping_neg() & 7) as usize;
        for word in bytes.get(skip..).unwrap_or_default().chunks_exact(8) {
            self.note(u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]));
        }
    }

    /// Every branch target and every address in the instructions of a function.
    pub fn note_function(&mut self, text: Text, function: Function) {
        self.note(function.start);
        for instruction in &mut text.decode(function.start..function.end) {
            self.note_instruction(&instruction);
        }
    }

    /// The same, and the targets of its switches. `false` if there is a switch whose table was not found.
    pub fn note_function_with_switches(&mut self, elf: &Elf, text: Text, function: Function) -> bool {
        let mut survey = SwitchSurvey::default();
        self.note(function.start);
        for instruction in &mut text.decode(function.start..function.end) {
            self.note_instruction(&instruction);
            survey.see(&instruction);
        }
        if !survey.has_switch {
            return true;
        }
        let mut found = false;
        for &table in &survey.tables {
            found |= self.note_table(elf, table, function);
        }
        found
    }

    fn note_instruction(&mut self, instruction: &Instruction) {
        for operand in 0..instruction.op_count() {
            match instruction.op_kind(operand) {
                OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16 => {
                    self.note(instruction.near_branch_target());
                }
                OpKind::Memory => self.note(instruction.memory_displacement64()),
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
                    self.note(instruction.immediate(operand));
                }
                _ => {}
            }
        }
    }

    /// Reads `table` both as offsets from itself and as addresses. An entry that is not code ends it; one too many does
    /// no harm.
    fn note_table(&mut self, elf: &Elf, table: u64, function: Function) -> bool {
        const ENTRIES_MAX: usize = 4096;
        let inside = |target: u64| (function.start..function.end).contains(&target);
        let Some(bytes) = elf.bytes_from(table) else {
            return false;
        };
        let offsets = (0..ENTRIES_MAX)
            .map_while(|index| read_i32(bytes, index * 4))
            .map(|offset| table.wrapping_add_signed(i64::from(offset)));
        let addresses = (0..ENTRIES_MAX).map_while(|index| read_u64(bytes, index * 8));
        let mut found = false;
        for target in offsets.take_while(|&t| elf.is_code(t)).chain(addresses.take_while(|&t| elf.is_code(t))) {
            found |= inside(target);
            self.note(target);
        }
        found
    }
}

/// The highest bit of each byte of `word` that may begin a branch with a four-byte displacement; `next` is the word a
/// byte further on. None that does is missed; behind a hit one may be marked that does not.
#[inline]
fn may_begin_branch(word: u64, next: u64) -> u64 {
    const EVERY: u64 = 0x0101_0101_0101_0101;
    // The highest bit of each byte that is 0, and perhaps of one behind such a byte.
    let zero = |x: u64| x.wrapping_sub(EVERY) & !x & (EVERY << 7);
    let call_or_jmp = zero((word & (EVERY * 0xfe)) ^ (EVERY * 0xe8));
    let jcc = zero(word ^ (EVERY * 0x0f)) & zero((next & (EVERY * 0xf0)) ^ (EVERY * 0x80));
    let xbegin = zero(word ^ (EVERY * 0xc7)) & zero(next ^ (EVERY * 0xf8));
    call_or_jmp | jcc | xbegin
}

/// What a function shows of its switches.
#[derive(Default)]
struct SwitchSurvey {
    has_switch: bool,
    /// Addresses that the function computes: one of them is the table.
    tables: Vec<u64>,
    /// Instructions since an entry was loaded from a table of offsets.
    since_offset: Option<u32>,
}

impl SwitchSurvey {
    /// How many instructions may stand between loading an entry and jumping to it.
    const NEAR: u32 = 16;

    fn see(&mut self, instruction: &Instruction) {
        self.since_offset = self.since_offset.map(|count| count + 1);
        match instruction.mnemonic() {
            Mnemonic::Movsxd => self.since_offset = Some(0),
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => self.add(instruction.ip_rel_memory_address()),
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Immediate32 => self.add(instruction.immediate(1)),
            _ => {}
        }
        if instruction.flow_control() == FlowControl::IndirectBranch {
            self.see_jump(instruction);
        }
    }

    fn add(&mut self, table: u64) {
        if !self.tables.contains(&table) {
            self.tables.push(table);
        }
    }

    /// A jump through a register after loading an offset, or through an indexed table, is a switch; all else is a call
    /// in tail position.
    fn see_jump(&mut self, jump: &Instruction) {
        match jump.op0_kind() {
            OpKind::Register if self.since_offset.is_some_and(|count| count <= Self::NEAR) => self.has_switch = true,
            OpKind::Memory if jump.memory_index() != Register::None => {
                self.has_switch = true;
                self.add(jump.memory_displacement64());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a branch with a four-byte displacement may begin, by the bytes alone.
    fn begins_branch(first: u8, second: u8) -> bool {
        matches!((first, second), (0xe8 | 0xe9, _) | (0x0f, 0x80..=0x8f) | (0xc7, 0xf8))
    }

    #[test]
    fn no_byte_that_may_begin_a_branch_is_missed() {
        for (first, second) in (0..=u8::MAX).flat_map(|first| (0..=u8::MAX).map(move |second| (first, second))) {
            for at in 0..8 {
                for filler in [0x00, 0x0f, 0x80, 0xc7, 0xe8, 0xff] {
                    let mut bytes = [filler; 9];
                    bytes[at..at + 2].copy_from_slice(&[first, second]);
                    let (word, next) = (read_u64(&bytes, 0), read_u64(&bytes, 1));
                    let found = may_begin_branch(word.expect("nine bytes"), next.expect("nine bytes"));
                    if begins_branch(first, second) {
                        assert!(found >> (at * 8 + 7) & 1 == 1, "{bytes:x?} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_far_branch_is_found_wherever_it_stands() {
        const LEN: u64 = 256;
        let branches = [[0x90, 0xe8], [0x0f, 0x84], [0xc7, 0xf8]];
        for (branch, start) in branches.into_iter().flat_map(|branch| (0..LEN - 5).map(move |start| (branch, start))) {
            let mut bytes = vec![0x90u8; LEN as usize];
            // To the byte 100, counted from the end of the displacement.
            let displacement = 100i32 - (start as i32 + 6);
            bytes[start as usize..][..2].copy_from_slice(&branch);
            bytes[start as usize + 2..][..4].copy_from_slice(&displacement.to_le_bytes());
            let text = Text { vaddr: 0x1000, bytes: &bytes };
            let mut targets = Targets::new(text, [0x1000 + 100].into_iter());
            targets.note_far_branches(text);
            assert!(targets.any_in(0x1000 + 100..0x1000 + 101), "{branch:x?} at {start}");
            assert!(!targets.any_in(0x1000 + 99..0x1000 + 100), "{branch:x?} at {start}");
        }
    }
}
