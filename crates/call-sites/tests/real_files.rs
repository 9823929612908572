//! The files that programs here consist of.

mod support;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use call_sites::{FilePlan, Options, PlanError, Reason, Site, HEADER_LEN};
use iced_x86::{Decoder, DecoderOptions};
use support::{check_no_branch_inside, checked_plan};

/// The plan of `path`, checked; `None`, with the reason printed, where the file is missing.
fn survey(path: &str) -> Option<(Vec<u8>, FilePlan)> {
    let file = match std::fs::read(path) {
        Ok(file) => file,
        Err(error) => {
            println!("skipped: {path}: {error}");
            return None;
        }
    };
    let plan = checked_plan(&file);
    assert_eq!(in_parts(&file).1, call_sites::plan(&file, &Options::default()), "{path}: read in parts");
    let sites: Vec<&Site> = plan.segments.iter().flat_map(|segment| &segment.sites).chain(&plan.left).collect();
    println!("{path}: {} candidates, {} patched", sites.len(), sites.iter().filter(|s| s.is_patched()).count());
    Some((file, plan))
}

/// How much of a file planning looks at, and its plan if nothing else is read.
fn in_parts(file: &[u8]) -> (u64, Result<FilePlan, PlanError>) {
    let len = file.len() as u64;
    let range = |part: &Range<u64>| part.start as usize..part.end as usize;
    let header = &file[..HEADER_LEN];
    let [programs, sections] = call_sites::tables(header).unwrap();
    let parts = call_sites::parts(len, header, &file[range(&programs)], &file[range(&sections)]).unwrap();
    let mut read = vec![0xff; file.len()];
    parts.iter().for_each(|part| read[range(part)].copy_from_slice(&file[range(part)]));
    let needed = parts.iter().map(|part| part.end - part.start).sum();
    (needed, call_sites::plan(&read, &Options::default()))
}

/// This program was built to be debugged.
#[test]
fn what_planning_does_not_look_at_need_not_be_read() {
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let (needed, plan) = in_parts(&file);
    assert_eq!(plan, call_sites::plan(&file, &Options::default()));
    assert!(needed * 3 < file.len() as u64 * 2, "{needed} of {} bytes are looked at", file.len());
}

/// Every `syscall` that objdump sees in `path`; `None`, with the reason printed, where there is no objdump.
fn objdump_sites(path: &str) -> Option<BTreeSet<u64>> {
    let done = Command::new("objdump").args(["-d", "--no-show-raw-insn", path]).output();
    let Some(output) = done.as_ref().ok().filter(|output| output.status.success()) else {
        println!("not compared with objdump: {done:?}");
        return None;
    };
    let lines = String::from_utf8_lossy(&output.stdout);
    let site = |line: &str| {
        let (vaddr, rest) = line.split_once(":\t")?;
        (rest.trim_end() == "syscall").then(|| u64::from_str_radix(vaddr.trim(), 16).ok())?
    };
    Some(lines.lines().filter_map(site).collect())
}

fn patched_sites(plan: &FilePlan) -> BTreeSet<u64> {
    let sites = plan.segments.iter().flat_map(|segment| &segment.sites);
    sites.filter(|site| site.is_patched()).map(|site| site.vaddr).collect()
}

/// The sites that objdump sees, and of those the patched ones, sigreturn aside. Another disassembler has to agree that
/// each patched one is an instruction, and its count cannot hide the ones that the plan missed.
fn counts(path: &str, plan: &FilePlan) -> Option<(usize, usize)> {
    let (seen, patched) = (objdump_sites(path)?, patched_sites(plan));
    let wrong: Vec<_> = patched.difference(&seen).collect();
    assert!(wrong.is_empty(), "{path}: patched, but objdump sees no syscall at {wrong:x?}");
    let sites = plan.segments.iter().flat_map(|segment| &segment.sites);
    let native = sites.filter(|site| site.reason() == Some(Reason::SigreturnIsNative)).count();
    Some((seen.len() - native.min(seen.len()), patched.len()))
}

fn assert_patched(path: &str, percent: usize, sites_min: usize) {
    let Some((file, plan)) = survey(path) else { return };
    for segment in &plan.segments {
        let start = segment.file_offset as usize;
        let text = &file[start..file.len().min(start + segment.len as usize)];
        check_no_branch_inside(&plan, Decoder::with_ip(64, text, segment.vaddr, DecoderOptions::NONE).into_iter());
    }
    let Some((all, patched)) = counts(path, &plan) else { return };
    assert!(all >= sites_min, "{path}: only {all} sites");
    assert!(patched * 100 >= all * percent, "{path}: {patched} of {all}");
}

#[test]
fn libc() {
    assert_patched("/lib/x86_64-linux-gnu/libc.so.6", 99, 300);
}

#[test]
fn the_loader() {
    assert_patched("/lib64/ld-linux-x86-64.so.2", 95, 20);
}

#[test]
fn a_go_program() {
    assert_patched("/usr/local/go/bin/go", 95, 20);
}

/// Debian's node makes every call through libc (objdump finds no `syscall` in it, in a minute): what this shows is that
/// none of the places where the bytes happen to stand is taken for one.
#[test]
fn node_is_large_and_has_no_site() {
    if let Some((_, plan)) = survey("/usr/bin/node") {
        assert!(plan.segments.is_empty() && !plan.left.is_empty());
    }
}

/// Runs a tool; `false`, with the reason printed, where it is missing or fails.
fn run(program: &str, args: &[&str]) -> bool {
    let done = Command::new(program).args(args).output();
    let ok = done.as_ref().is_ok_and(|output| output.status.success());
    if !ok {
        println!("skipped: {program} {args:?}: {done:?}");
    }
    ok
}

fn path_in(directory: &Path, name: &str) -> String {
    directory.join(name).to_string_lossy().into_owned()
}

#[test]
fn a_static_program_with_and_without_tables() {
    let directory = std::env::temp_dir().join(format!("call-sites-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let [source, whole, stripped, bare] = ["a.c", "whole", "stripped", "bare"].map(|name| path_in(&directory, name));
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n").unwrap();
    if run("gcc", &["-static", "-O2", &source, "-o", &whole]) {
        assert_patched(&whole, 95, 50);
        if run("strip", &["-o", &stripped, &whole]) {
            assert_patched(&stripped, 95, 50);
        }
        if run("objcopy", &["--strip-all", "--remove-section", ".eh_frame", &whole, &bare]) {
            assert_consensus_is_right(&whole, &bare);
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// What agreement alone patches, objdump sees too; it finds most.
fn assert_consensus_is_right(whole: &str, bare: &str) {
    let Some((_, plan)) = survey(bare) else { return };
    // Without its tables the file has no less code: what objdump sees in the whole one is there.
    let Some((all, patched)) = counts(whole, &plan) else { return };
    assert!(patched * 100 >= all * 75, "{patched} of {all}");
}
