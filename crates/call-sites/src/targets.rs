//! Which addresses near the sites can be jumped to?
//!
//! A window may have a branch target only as its first byte. Looked for are: branches with a four-byte displacement
//! anywhere in executable segments, at any byte (a cold part of a function jumps back from far away); short branches
//! by decoding the functions near by, or at any byte where no function is known; addresses in instructions; address
//! words in data (tables, relocations, symbols); switch tables with relative entries. A false target costs at most a
//! site, a missed one would cost the program.

use std::collections::BTreeSet;
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
    hits: BTreeSet<u64>,
}

impl Targets {
    pub fn new(text: Text, sites: impl Iterator<Item = u64>) -> Self {
        let mut targets =
            Targets { base: text.vaddr, near_site: vec![0; text.bytes.len() / 1024 + 2], hits: BTreeSet::new() };
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
            self.hits.insert(vaddr);
        }
    }

    /// Can something jump into `range`?
    pub fn any_in(&self, range: Range<u64>) -> bool {
        self.hits.range(range).next().is_some()
    }

    /// Every `call`, `jmp`, `jcc` or `xbegin` with a four-byte displacement, whether its bytes are an instruction or not.
    pub fn note_far_branches(&mut self, text: Text) {
        for index in memchr::memchr2_iter(0xe8, 0xe9, text.bytes) {
            self.note_displacement(text, index + 1);
        }
        for index in memchr::memchr2_iter(0x0f, 0xc7, text.bytes) {
            if matches!(text.bytes[index..], [0x0f, 0x80..=0x8f, ..] | [0xc7, 0xf8, ..]) {
                self.note_displacement(text, index + 2);
            }
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

    /// The targets of switches in `function`. `false` if there is a switch whose table was not found.
    pub fn note_switches(&mut self, elf: &Elf, text: Text, function: Function) -> bool {
        let mut survey = SwitchSurvey::default();
        for instruction in &mut text.decode(function.start..function.end) {
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
