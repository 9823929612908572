//! Builds small ELF files, and checks a plan against the file by reading the patched bytes as a processor would.
#![allow(dead_code)]

use std::ops::Range;

use call_sites::{plan, FilePlan, Options, Patch, SegmentPlan, Site, JUMP_LEN};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Address of the text of [`elf`].
pub const TEXT: u64 = 0x40_1000;
/// Address of the read-only data of [`elf`].
pub const DATA: u64 = 0x80_0000;
pub const AGENT: u64 = 0x7abc_dead_0000;

pub fn options() -> Options {
    Options { agent_entry: AGENT, stub_distance_dyn: None }
}

/// A program with `code` at [`TEXT`], `data` at [`DATA`], and a symbol for each of `functions` (ranges in `code`).
pub fn elf(kind: u16, code: &[u8], data: &[u8], functions: &[Range<u64>]) -> Vec<u8> {
    elf_with_text(kind, code, data, functions, Some(0..code.len() as u64))
}

/// The same, where only `text` (a range in `code`) is in an executable section; without it there is none.
pub fn elf_with_text(
    kind: u16,
    code: &[u8],
    data: &[u8],
    functions: &[Range<u64>],
    text: Option<Range<u64>>,
) -> Vec<u8> {
    let data_at = 0x1000 + code.len().next_multiple_of(0x1000);
    let symbols_at = data_at + data.len().next_multiple_of(0x1000);
    let symbols_len = 24 * functions.len();
    let mut file = Vec::new();
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend(kind.to_le_bytes());
    file.extend(62u16.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    for word in [TEXT, 64, (symbols_at + symbols_len) as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 2, 64, 2 + u16::from(text.is_some()), 0] {
        file.extend(half.to_le_bytes());
    }
    for (flags, offset, vaddr, len) in [(5u32, 0x1000, TEXT, code.len()), (4, data_at, DATA, data.len())] {
        file.extend(1u32.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [offset as u64, vaddr, vaddr, len as u64, len as u64, 0x1000] {
            file.extend(word.to_le_bytes());
        }
    }
    file.resize(0x1000, 0);
    file.extend(code);
    file.resize(data_at, 0);
    file.extend(data);
    file.resize(symbols_at, 0);
    for function in functions {
        file.extend([0, 0, 0, 0, 2, 0, 1, 0]);
        file.extend((TEXT + function.start).to_le_bytes());
        file.extend((function.end - function.start).to_le_bytes());
    }
    file.extend([0; 64]);
    if let Some(text) = text {
        let len = text.end - text.start;
        for word in [1u64 << 32, 6, TEXT + text.start, 0x1000 + text.start, len, 0, 16, 0] {
            file.extend(word.to_le_bytes());
        }
    }
    for word in [2u64 << 32, 0, 0, symbols_at as u64, symbols_len as u64, 0, 8, 24] {
        file.extend(word.to_le_bytes());
    }
    file
}

/// One function that is all of `code`, with enough room behind it.
pub fn one_function(code: &[u8]) -> Vec<u8> {
    elf(2, code, &[0; 64], std::slice::from_ref(&(0..code.len() as u64)))
}

/// Plans `file` and checks every patch.
pub fn checked_plan(file: &[u8]) -> FilePlan {
    let plan = plan(file, &options()).expect("a plan");
    check_plan(file, &plan);
    plan
}

/// Checks that a plan does what the file did.
pub fn check_plan(file: &[u8], plan: &FilePlan) {
    for segment in &plan.segments {
        let original = Memory { vaddr: segment.vaddr, bytes: &original_pages(file, segment) };
        let area = segment.vaddr.wrapping_add_signed(segment.stub_distance);
        let stubs = Memory { vaddr: area, bytes: &segment.stubs };
        assert_eq!(segment.text.len() as u64, segment.len);
        assert_eq!((segment.stubs.len() % 4096, segment.stub_distance % 4096), (0, 0));
        assert_eq!(segment.stubs[..8], AGENT.to_le_bytes());
        check_untouched(&original, segment);
        assert!(segment.sites.iter().any(Site::is_patched));
        for site in &segment.sites {
            assert_eq!(original.at(site.vaddr, 2), [0x0f, 0x05]);
            if let Some(patch) = site.patch() {
                check_site(&original, segment, &stubs, site, patch);
                assert_eq!(segment.site_of_stub(patch.restart), Some(site));
                assert_eq!(segment.site_of_stub(patch.end - 1), Some(site));
            }
        }
    }
}

fn original_pages(file: &[u8], segment: &SegmentPlan) -> Vec<u8> {
    let mut pages: Vec<u8> = file[segment.file_offset as usize..].iter().copied().take(segment.len as usize).collect();
    pages.resize(segment.len as usize, 0);
    pages
}

/// Outside the windows, text is the file's; windows follow each other and do not overlap.
fn check_untouched(original: &Memory, segment: &SegmentPlan) {
    let mut at = segment.vaddr;
    let (mut expected, mut end_of_stub) = (segment.text.clone(), 8);
    for patch in segment.sites.iter().filter_map(Site::patch) {
        assert!(patch.window >= at, "windows overlap at {:x}", patch.window);
        assert!(patch.restart >= end_of_stub, "stubs overlap at {:x}", patch.window);
        at = patch.window + patch.window_len;
        end_of_stub = patch.end;
        let range = (patch.window - segment.vaddr) as usize..(at - segment.vaddr) as usize;
        expected[range].copy_from_slice(original.at(patch.window, patch.window_len));
    }
    assert!(expected == original.bytes, "text changed outside the windows");
}

struct Memory<'m> {
    vaddr: u64,
    bytes: &'m [u8],
}

impl Memory<'_> {
    fn at(&self, vaddr: u64, len: u64) -> &[u8] {
        let start = vaddr.wrapping_sub(self.vaddr) as usize;
        &self.bytes[start..start + len as usize]
    }

    fn decode(&self, vaddr: u64) -> impl Iterator<Item = Instruction> + '_ {
        let start = vaddr.wrapping_sub(self.vaddr) as usize;
        Decoder::with_ip(64, &self.bytes[start..], vaddr, DecoderOptions::NONE)
            .into_iter()
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn decode_until(&self, range: Range<u64>) -> Vec<Instruction> {
        let found: Vec<_> =
            Decoder::with_ip(64, self.at(range.start, range.end - range.start), range.start, 0).into_iter().collect();
        assert!(found.iter().all(|i| !i.is_invalid()), "window {range:x?} does not hold whole instructions");
        found
    }
}

/// Follows the jump through the stub and compares what runs with what stood in the window.
fn check_site(original: &Memory, segment: &SegmentPlan, stubs: &Memory, site: &Site, patch: &Patch) {
    let end = patch.window + patch.window_len;
    let before = original.decode_until(patch.window..site.vaddr);
    let after = original.decode_until(site.vaddr + 2..end);
    let patched = Memory { vaddr: segment.vaddr, bytes: &segment.text };
    let jump = patched.decode_until(patch.window..patch.window + JUMP_LEN);
    assert_eq!((jump.len(), jump[0].mnemonic()), (1, Mnemonic::Jmp));
    let rest = patched.at(patch.window + JUMP_LEN, patch.window_len - JUMP_LEN);
    // Where the jump ends before the call, that stays in its place.
    let traps = if site.vaddr >= patch.window + JUMP_LEN && after.is_empty() {
        assert_eq!(rest[rest.len() - 2..], [0x0f, 0x05]);
        &rest[..rest.len() - 2]
    } else {
        rest
    };
    assert!(traps.iter().all(|&byte| byte == 0xcc));
    let entry = jump[0].near_branch_target();
    assert_eq!(entry, stubs.vaddr + u64::from(patch.entry));

    let restart = stubs.vaddr + u64::from(patch.restart);
    let enter = check_way_in(stubs, entry, &before, restart);
    let short = stubs.decode_until(restart..restart + 2);
    assert_eq!((short.len(), short[0].near_branch_target()), (1, enter), "the restart point enters the agent");
    check_way_back(stubs, restart + 2, &after, end);
}

/// From `entry`: the instructions before the call, then `lea rcx`, then the jump through the slot.
fn check_way_in(stubs: &Memory, entry: u64, before: &[Instruction], restart: u64) -> u64 {
    let run: Vec<_> = stubs.decode(entry).take(before.len() + 2).collect();
    for (moved, stood) in run.iter().zip(before) {
        assert_same(moved, stood);
    }
    let [lea, jump] = run[before.len()..] else { panic!("the stub is cut off") };
    assert_eq!((lea.mnemonic(), lea.op0_register()), (Mnemonic::Lea, Register::RCX));
    assert_eq!(lea.ip_rel_memory_address(), restart + 2, "rcx tells where the result is awaited");
    assert_eq!((jump.mnemonic(), jump.op0_kind()), (Mnemonic::Jmp, OpKind::Memory));
    assert_eq!(jump.ip_rel_memory_address(), stubs.vaddr, "the slot is the first word");
    lea.ip()
}

/// From `result`: the instructions after the call, then the byte behind the window, unless they never get there.
fn check_way_back(stubs: &Memory, result: u64, after: &[Instruction], end: u64) {
    let run: Vec<_> = stubs.decode(result).take(after.len() + 1).collect();
    for (moved, stood) in run.iter().zip(after) {
        assert_same(moved, stood);
    }
    if !after.last().is_some_and(never_goes_on) {
        let back = run[after.len()];
        assert_eq!((back.mnemonic(), back.near_branch_target()), (Mnemonic::Jmp, end));
    }
}

fn never_goes_on(instruction: &Instruction) -> bool {
    use FlowControl::{IndirectBranch, Return, UnconditionalBranch};
    matches!(instruction.flow_control(), UnconditionalBranch | IndirectBranch | Return)
}

/// The same operation on the same operands; addresses compare as absolute ones.
fn assert_same(moved: &Instruction, stood: &Instruction) {
    if stood.op_count() > 0 && stood.op0_kind() == OpKind::NearBranch64 {
        assert_eq!(moved.mnemonic(), stood.mnemonic());
        assert_eq!(moved.near_branch_target(), stood.near_branch_target());
    } else {
        assert_eq!(moved, stood, "at {:x}", stood.ip());
        assert_eq!((moved.len(), moved.code()), (stood.len(), stood.code()));
    }
}

/// No direct branch that a plain sweep over `text` finds leads into a window behind its first byte.
pub fn check_no_branch_inside(plan: &FilePlan, sweep: impl Iterator<Item = Instruction>) {
    let patches: Vec<&Patch> =
        plan.segments.iter().flat_map(|segment| &segment.sites).filter_map(Site::patch).collect();
    for instruction in sweep {
        if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::NearBranch64 {
            continue;
        }
        let target = instruction.near_branch_target();
        let index = patches.partition_point(|patch| patch.window < target);
        if let Some(patch) = index.checked_sub(1).map(|index| patches[index]) {
            assert!(target >= patch.window + patch.window_len, "{:x} jumps to {target:x}", instruction.ip());
        }
    }
}
