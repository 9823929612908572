//! The table against what it describes: the kernel's own list of numbers, and the page that is generated from it.

use std::{fs, io::ErrorKind};

use syscall_table::{op, row, write_markdown, write_text, Op, ROWS};

const KERNEL_HEADER: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SYSCALLS.md");

#[test]
fn every_call_of_the_kernels_header_has_a_row_of_its_name() {
    let header = match fs::read_to_string(KERNEL_HEADER) {
        Ok(header) => header,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => panic!("cannot read {KERNEL_HEADER}: {error}"),
    };
    let calls: Vec<(&str, u64)> = header.lines().filter_map(definition).collect();
    assert!(calls.len() > 300, "{KERNEL_HEADER} does not look as it used to");
    for (name, nr) in calls {
        assert_eq!(row(nr).map(|row| row.name), Some(name), "system call {nr}");
    }
}

/// `#define __NR_read 0`
fn definition(line: &str) -> Option<(&str, u64)> {
    let (name, nr) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
    Some((name, nr.trim().parse().ok()?))
}

#[test]
fn a_number_finds_its_own_row_and_no_other() {
    for nr in 0..1024 {
        let expected = ROWS.iter().find(|row| u64::from(row.nr) == nr);
        assert_eq!(row(nr).map(|row| row.name), expected.map(|row| row.name));
        assert_eq!(op(nr), expected.map(|row| row.op), "system call {nr}");
    }
    assert_eq!(op(0), Some(Op::Read { fd: 0 }));
    // The x32 ABI, a negative number, and what the kernel keeps free.
    for nr in [0x4000_0000, u64::MAX, 337, 423, 511, 512] {
        assert_eq!(op(nr), None);
        assert!(row(nr).is_none());
    }
}

#[test]
fn names_are_unique_and_every_row_says_why_on_one_line() {
    let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROWS.len());
    for row in ROWS {
        assert!(!row.why.is_empty() && !row.why.contains(['\n', '|']), "{}", row.name);
    }
}

#[test]
fn the_columns_of_the_text_are_aligned() {
    let mut text = String::new();
    write_text(&mut text).unwrap();
    let header = text.lines().next().unwrap();
    let why_at = header.find("why").unwrap();
    assert_eq!(text.lines().count(), ROWS.len() + 1);
    for (line, row) in text.lines().skip(1).zip(ROWS) {
        assert_eq!(&line[why_at..], row.why);
        assert!(line[..why_at].ends_with("  "), "{line}");
    }
}

#[test]
fn the_committed_page_is_up_to_date() {
    let mut page = String::new();
    write_markdown(&mut page).unwrap();
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        committed == page,
        "docs/SYSCALLS.md is out of date; run \
         `cargo run -p syscall-table --example syscalls_md > docs/SYSCALLS.md`"
    );
}
