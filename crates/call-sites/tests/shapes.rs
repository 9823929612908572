//! One test a shape: a snippet of code, and what becomes of its call.

mod support;

use call_sites::{find_site, plan, ElfKind, Options, PlanError, Reason, Shape};
use support::{checked_plan, elf, elf_with_text, one_function, options, DATA, TEXT};

/// What becomes of each `0f 05` in a function made of `parts`.
fn outcome(parts: &[&[u8]]) -> Vec<Result<Shape, Reason>> {
    let mut code = parts.concat();
    code.extend([0xcc; 3]);
    outcomes(&one_function(&code))
}

fn outcomes(file: &[u8]) -> Vec<Result<Shape, Reason>> {
    let plan = checked_plan(file);
    let sites = plan.segments.iter().flat_map(|segment| &segment.sites).chain(&plan.left);
    sites.map(|site| site.patch().map(|patch| patch.shape).ok_or_else(|| site.reason().unwrap())).collect()
}

const SYSCALL: &[u8] = &[0x0f, 0x05];
const RET: &[u8] = &[0xc3];
const NOP: &[u8] = &[0x90];
const XOR_EAX: &[u8] = &[0x31, 0xc0];
const MOV_EAX_3: &[u8] = &[0xb8, 3, 0, 0, 0];
const CMP_ERROR: &[u8] = &[0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff];

#[test]
fn what_precedes_is_preferred_if_the_call_can_stay() {
    assert_eq!(outcome(&[MOV_EAX_3, SYSCALL, CMP_ERROR, &[0x73, 1], RET, NOP, RET]), [Ok(Shape::Before)]);
    let code = [NOP, XOR_EAX, XOR_EAX, SYSCALL, CMP_ERROR, RET].concat();
    let plan = checked_plan(&one_function(&code));
    let patch = plan.segments[0].sites[0].patch().unwrap();
    assert_eq!((patch.window, patch.window_len), (TEXT, 7));
    assert_eq!(plan.segments[0].text[5..7], *SYSCALL);
    // Two or four bytes are too few.
    assert_eq!(outcome(&[XOR_EAX, SYSCALL, CMP_ERROR, RET]), [Ok(Shape::After)]);
    assert_eq!(outcome(&[XOR_EAX, XOR_EAX, SYSCALL, CMP_ERROR, RET]), [Ok(Shape::After)]);
}

#[test]
fn a_conditional_branch_is_moved_and_grows() {
    // test eax, eax; js +1
    assert_eq!(outcome(&[XOR_EAX, SYSCALL, &[0x85, 0xc0, 0x78, 1], RET, NOP, RET]), [Ok(Shape::After)]);
    // cmp rax, imm; ja far away, where the branch is the end of the window
    assert_eq!(
        outcome(&[XOR_EAX, SYSCALL, &[0x48, 0x85, 0xc0], &[0x0f, 0x87, 1, 0, 0, 0], RET, NOP, RET]),
        [Ok(Shape::After)]
    );
}

#[test]
fn an_address_relative_to_the_instruction_is_kept() {
    // mov eax, [rip + x]; and with an immediate behind the displacement: cmp dword ptr [rip + x], 7
    assert_eq!(outcome(&[XOR_EAX, SYSCALL, &[0x8b, 5, 0, 1, 0, 0], RET]), [Ok(Shape::After)]);
    assert_eq!(outcome(&[XOR_EAX, SYSCALL, &[0x83, 0x3d, 0, 1, 0, 0, 7], RET]), [Ok(Shape::After)]);
    assert_eq!(outcome(&[&[0x8b, 5, 0, 1, 0, 0], SYSCALL, RET]), [Ok(Shape::Before)]);
}

#[test]
fn what_precedes_serves_when_a_return_follows() {
    assert_eq!(outcome(&[MOV_EAX_3, SYSCALL, RET]), [Ok(Shape::Before)]);
    assert_eq!(outcome(&[NOP, XOR_EAX, NOP, SYSCALL, RET]), [Ok(Shape::Before)]);
}

#[test]
fn both_sides_serve_when_neither_suffices() {
    // A jump arrives behind the first instruction, so only two bytes before the call are free.
    assert_eq!(outcome(&[&[0xeb, 1], NOP, XOR_EAX, SYSCALL, RET]), [Ok(Shape::Both)]);
}

#[test]
fn a_call_is_not_moved() {
    assert_eq!(outcome(&[NOP, SYSCALL, &[0xe8, 0, 1, 0, 0], RET]), [Err(Reason::NoWindow)]);
    assert_eq!(outcome(&[&[0xff, 0xd0], SYSCALL, &[0xff, 0xd0]]), [Err(Reason::NoWindow)]);
}

#[test]
fn a_landing_pad_is_not_moved() {
    assert_eq!(outcome(&[NOP, SYSCALL, &[0xf3, 0x0f, 0x1e, 0xfa], RET]), [Err(Reason::NoWindow)]);
}

#[test]
fn nothing_behind_the_end_of_a_path_is_moved() {
    // ret; then something that only a jump from elsewhere can reach
    assert_eq!(outcome(&[NOP, SYSCALL, RET, XOR_EAX, RET]), [Err(Reason::NoWindow)]);
}

#[test]
fn a_jump_to_the_call_keeps_it_first() {
    // The loop of a restarted call: jmp back to the syscall itself.
    assert_eq!(outcome(&[MOV_EAX_3, SYSCALL, CMP_ERROR, &[0x74, 0xf6], RET]), [Ok(Shape::After)]);
    assert_eq!(outcome(&[MOV_EAX_3, SYSCALL, &[0xeb, 0xfc]]), [Err(Reason::BranchTarget)]);
}

#[test]
fn a_jump_into_what_follows_is_seen() {
    // jne over the call, to the comparison behind it
    assert_eq!(outcome(&[&[0x75, 2], SYSCALL, CMP_ERROR, RET]), [Err(Reason::BranchTarget)]);
}

#[test]
fn a_far_jump_into_what_follows_is_seen() {
    // Another function, out of the reach of short branches, as the cold part of this one is.
    let mut code = [NOP, NOP, SYSCALL, CMP_ERROR, RET].concat();
    let function = 0..code.len() as u64;
    code.resize(0x800, 0xcc);
    code.push(0xe9);
    code.extend((4i32 - 0x805).to_le_bytes());
    let cold = 0x800..code.len() as u64;
    assert_eq!(outcomes(&elf(2, &code, &[0; 8], &[function, cold])), [Err(Reason::BranchTarget)]);
}

#[test]
fn a_switch_into_what_follows_is_seen() {
    // lea rdx, [rip + table]; movsxd rax, [rdx + rax*4]; add rax, rdx; jmp rax; mov eax, 3; syscall; test; ret
    let table = i32::try_from(DATA - (TEXT + 7)).unwrap().to_le_bytes();
    let head = [&[0x48, 0x8d, 0x15][..], &table, &[0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0, 0xff, 0xe0]].concat();
    let code = [&head, MOV_EAX_3, SYSCALL, CMP_ERROR, RET].concat();
    let case = |offset: usize| i32::try_from(TEXT as i64 + offset as i64 - DATA as i64).unwrap().to_le_bytes();
    let site = head.len() + MOV_EAX_3.len();
    let function = 0..code.len() as u64;
    let file = |targets: [usize; 2]| elf(2, &code, &targets.map(case).concat(), std::slice::from_ref(&function));
    assert_eq!(outcomes(&file([head.len(), head.len()])), [Ok(Shape::Before)]);
    assert_eq!(outcomes(&file([head.len(), site])), [Ok(Shape::After)]);
    assert_eq!(outcomes(&file([head.len(), site + 2])), [Ok(Shape::Before)]);
    assert_eq!(outcomes(&file([site, site + 2])), [Err(Reason::BranchTarget)]);
    // A table that leads nowhere is not understood: hands off.
    assert_eq!(outcomes(&elf(2, &code, &[0x7f; 8], &[function])), [Err(Reason::UnknownSwitch)]);
}

#[test]
fn an_address_in_data_is_seen() {
    let code = [NOP, SYSCALL, CMP_ERROR, RET].concat();
    let file = |address: u64| elf(2, &code, &address.to_le_bytes(), std::slice::from_ref(&(0..code.len() as u64)));
    assert_eq!(outcomes(&file(TEXT + 1)), [Ok(Shape::After)]);
    assert_eq!(outcomes(&file(TEXT + 3)), [Err(Reason::BranchTarget)]);
}

#[test]
fn sigreturn_stays() {
    for load in [&[0xb8, 15, 0, 0, 0][..], &[0x48, 0xc7, 0xc0, 15, 0, 0, 0], &[0x6a, 15, 0x58]] {
        assert_eq!(outcome(&[load, SYSCALL, CMP_ERROR, RET]), [Err(Reason::SigreturnIsNative)]);
    }
}

#[test]
fn bytes_inside_an_instruction_stay() {
    // mov eax, 0x050f; and an opcode that does not exist before a real call
    assert_eq!(outcome(&[&[0xb8, 0x0f, 5, 0, 0], RET]), [Err(Reason::NotAnInstruction)]);
    assert_eq!(outcome(&[MOV_EAX_3, &[6], SYSCALL, CMP_ERROR, RET]), [Err(Reason::Undecodable)]);
}

#[test]
fn neighbours_share_what_there_is() {
    // If the first call took what follows it, nothing would be left for the second.
    let outcomes = outcome(&[MOV_EAX_3, SYSCALL, MOV_EAX_3, SYSCALL, RET]);
    assert_eq!(outcomes, [Ok(Shape::Before), Ok(Shape::Before)]);
    assert_eq!(outcome(&[NOP, SYSCALL, MOV_EAX_3, SYSCALL, RET]).iter().filter(|o| o.is_ok()).count(), 1);
    assert_eq!(outcome(&[SYSCALL, SYSCALL, SYSCALL, RET]), [Err(Reason::NoWindow); 3]);
}

#[test]
fn code_of_no_known_function_needs_agreement_and_a_number() {
    let filler = [0x48, 0x89, 0xe5].repeat(40);
    let with = |load: &[u8]| {
        let code = [&filler, load, SYSCALL, CMP_ERROR, RET, &[0xcc; 64]].concat();
        outcomes(&elf(2, &code, &[0; 8], &[]))
    };
    assert_eq!(with(MOV_EAX_3), [Ok(Shape::Before)]);
    assert_eq!(with(&[0x48, 0x89, 0xe5]), [Err(Reason::NoCallNumber)]);
    assert_eq!(with(&[6, 6, 6]), [Err(Reason::NoAgreement)]);
}

/// Debian's libLLVM-14 has its read-only data in the executable segment. Far behind the code, most starts agreed on a
/// call with a number in eax, and the data would have been patched.
#[test]
fn read_only_data_in_an_executable_segment_stays() {
    let filler = [0x48, 0x89, 0xe5].repeat(40);
    let code = [&filler, MOV_EAX_3, SYSCALL, CMP_ERROR, RET, &[0xcc; 64]].concat();
    let with_text = |text| outcomes(&elf_with_text(2, &code, &[0; 8], &[], text));
    assert_eq!(with_text(Some(0..code.len() as u64)), [Ok(Shape::Before)]);
    assert_eq!(with_text(Some(0..64)), [Err(Reason::NotAnInstruction)]);
    assert_eq!(with_text(None), [Err(Reason::UnknownFunction)]);
}

#[test]
fn stubs_of_a_position_independent_file_stand_where_asked() {
    let code = [MOV_EAX_3, SYSCALL, CMP_ERROR, RET].concat();
    let file = elf(3, &code, &[0; 8], std::slice::from_ref(&(0..code.len() as u64)));
    let at = |distance| plan(&file, &Options { stub_distance_dyn: distance, ..options() });
    let default = at(None).unwrap();
    assert_eq!((default.kind, default.segments[0].stub_distance), (ElfKind::Dyn, -(1 << 30)));
    assert_eq!(at(Some(1 << 28)).unwrap().segments[0].stub_distance, 1 << 28);
    for distance in [4095, 1 << 31, i64::MAX - 4095] {
        assert_eq!(at(Some(distance)), Err(PlanError::StubDistance { distance }));
    }
}

#[test]
fn stubs_of_a_fixed_file_stand_below_it() {
    let plan = checked_plan(&one_function(&[MOV_EAX_3, SYSCALL, CMP_ERROR, RET].concat()));
    let segment = &plan.segments[0];
    let area = segment.vaddr.wrapping_add_signed(segment.stub_distance);
    assert!((0x10000..TEXT - segment.stubs.len() as u64).contains(&area), "{area:x}");
}

#[test]
fn files_without_calls_or_of_other_kinds_are_left() {
    let none = checked_plan(&one_function(&[0xc3; 16]));
    assert!(none.segments.is_empty() && none.left.is_empty());
    let unpatched = checked_plan(&one_function(&[0xb8, 0x0f, 5, 0, 0, 0xc3]));
    assert_eq!((unpatched.segments.len(), unpatched.left.len()), (0, 1));
    assert_eq!(plan(b"#!/bin/sh\n", &options()), Err(PlanError::NotElf));
    assert_eq!(plan(b"\x7fELF\x01\x01\x01", &options()), Err(PlanError::NotElf));
    let mut other = one_function(SYSCALL);
    other[18] = 183;
    assert_eq!(plan(&other, &options()), Err(PlanError::NotX86_64));
}

#[test]
fn a_site_is_found_by_its_address() {
    let plan = checked_plan(&one_function(&[MOV_EAX_3, SYSCALL, CMP_ERROR, RET].concat()));
    assert_eq!(find_site(&plan, TEXT + 5).unwrap().1.vaddr, TEXT + 5);
    assert_eq!(find_site(&plan, TEXT + 6), None);
    assert_eq!(find_site(&plan, 0), None);
}
