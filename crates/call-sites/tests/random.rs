//! Random code around calls, and damaged files.

mod support;

use call_sites::plan;
use iced_x86::{Decoder, DecoderOptions};
use proptest::prelude::*;
use support::{check_no_branch_inside, check_plan, checked_plan, elf, one_function, options, TEXT};

/// One instruction of the kinds that stand around calls.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    let fixed = prop::sample::select(vec![
        vec![0x0f, 0x05],
        vec![0x90],
        vec![0xc3],
        vec![0x31, 0xc0],
        vec![0x48, 0x89, 0xe5],
        vec![0x50],
        vec![0x5b],
        vec![0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff],
        vec![0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0],
        vec![0xf0, 0x0f, 0xb1, 0x0f],
        vec![0xf3, 0xa4],
        vec![0xf3, 0x0f, 0x1e, 0xfa],
        vec![0xff, 0xd0],
        vec![0xff, 0xe0],
        vec![0xcc],
    ]);
    prop_oneof![
        6 => fixed,
        2 => any::<u8>().prop_map(|number| vec![0xb8, number, 0, 0, 0]),
        2 => (0x70u8..0x80, -24i8..24).prop_map(|(jcc, to)| vec![jcc, to as u8]),
        1 => (-24i8..24).prop_map(|to| vec![0xeb, to as u8]),
        1 => (prop::sample::select(vec![vec![0xe9], vec![0xe8], vec![0x0f, 0x84]]), -64i32..64)
            .prop_map(|(opcode, to)| [opcode, to.to_le_bytes().to_vec()].concat()),
        1 => (-99i32..99).prop_map(|to| [vec![0x48, 0x8b, 0x05], to.to_le_bytes().to_vec()].concat()),
        1 => (-99i32..99, any::<u8>()).prop_map(|(to, value)| {
            [vec![0x80, 0x3d], to.to_le_bytes().to_vec(), vec![value]].concat()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn patches_run_what_stood_there(
        head in prop::collection::vec(instruction(), 0..12),
        tail in prop::collection::vec(instruction(), 0..12),
    ) {
        let code = [head.concat(), vec![0x0f, 0x05], tail.concat(), vec![0xcc; 4]].concat();
        let plan = checked_plan(&one_function(&code));
        let sweep = Decoder::with_ip(64, &code, TEXT, DecoderOptions::NONE);
        check_no_branch_inside(&plan, sweep.into_iter());
    }

    #[test]
    fn unknown_code_is_patched_rightly_too(
        head in prop::collection::vec(instruction(), 12..40),
        tail in prop::collection::vec(instruction(), 1..12),
    ) {
        let code = [head.concat(), vec![0xb8, 3, 0, 0, 0, 0x0f, 0x05], tail.concat(), vec![0xcc; 4]].concat();
        let plan = checked_plan(&elf(3, &code, &[0; 16], &[]));
        let sweep = Decoder::with_ip(64, &code, TEXT, DecoderOptions::NONE);
        check_no_branch_inside(&plan, sweep.into_iter());
    }

    #[test]
    fn damaged_files_do_no_harm(
        changes in prop::collection::vec((0usize..0x3200, any::<u8>()), 1..24),
        cut in prop::option::of(0usize..0x3200),
    ) {
        check_damaged(changes, cut);
    }
}

/// A file with some bytes changed, and cut: whatever is planned for it is right.
fn check_damaged(changes: Vec<(usize, u8)>, cut: Option<usize>) {
    let code = [&[0xb8, 3, 0, 0, 0, 0x0f, 0x05][..], &[0x90; 40], &[0xc3]].concat();
    let mut file = elf(2, &code, &[1; 64], &[0..20, 20..48]);
    for (at, value) in changes {
        // Half of the changes go to the headers, where they hurt most.
        let at = if value % 2 == 0 { at % 176 } else { at % file.len() };
        file[at] = value;
    }
    file.truncate(cut.unwrap_or(usize::MAX));
    if let Ok(plan) = plan(&file, &options()) {
        check_plan(&file, &plan);
    }
}

/// Another segment seems to be so long that no stub is in reach. The test above has found it.
#[test]
fn a_segment_without_a_patch_is_left() {
    check_damaged(vec![(155, 65), (8586, 2)], None);
}
