//! No other crate opens a file of `/proc`, or builds a path there, by itself: what could not be read is an error in
//! `procfs`, and elsewhere it has been an empty answer (docs/decisions/0107, 0219).

use std::fs;
use std::path::{Path, PathBuf};

/// Sources outside `procfs` that name `/proc`, in how many lines, and why.
const EXCEPTIONS: &[(&str, usize, &str)] = &[
    // The agent has no libc and no heap: it makes the calls of the process that it is in.
    ("agent/src/held.rs", 1, "the agent"),
    ("agent/src/kin.rs", 1, "the agent"),
    ("agent/src/opening.rs", 1, "the agent"),
    ("agent/src/own_descriptors.rs", 1, "the agent"),
    ("agent/src/permits.rs", 1, "the agent"),
    ("agent/src/start.rs", 1, "the agent"),
    ("bluefs-mount/src/forgetter.rs", 1, "the program starts itself again: a path for execve"),
    ("cli/src/bluefs/mount.rs", 1, "the program starts itself again: a path for execve"),
    ("external-sync/src/doctor.rs", 2, "text for the user"),
    ("layer/src/mounts.rs", 1, "where a mount is, of a table that was read"),
    ("layer/src/view.rs", 3, "directories that are mounted over"),
    ("supervisor/src/event_loop.rs", 1, "whether a working directory is there"),
    ("supervisor/src/front.rs", 1, "text for the user"),
    ("supervisor/src/volatile.rs", 1, "whether a path leads there"),
    ("supervisor/src/ahead/calls/other_processes.rs", 2, "a path that a program gives, and which file it has open"),
    ("supervisor/src/ahead/calls/own_state.rs", 1, "which file a program has open"),
    ("external-sync/src/volume/mount.rs", 1, "a mount point that is refused"),
    ("supervisor/src/ahead/filesystems/disk/attribute_calls.rs", 1, "a path that a program gives"),
    ("supervisor/src/ahead/filesystems/disk/names.rs", 1, "which directory a path led to"),
    ("supervisor/src/ahead/filesystems/disk/view.rs", 3, "a path that a program gives"),
    // What looks from outside depends on none of the crates that it looks at.
    ("testkit/src/faults/leftovers.rs", 3, "an observer"),
    ("testkit/src/faults/victims.rs", 2, "an observer"),
    ("testkit/src/network.rs", 2, "an observer"),
];

#[test]
fn nobody_else_reads_proc() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut sources = Vec::new();
    for folder in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
        collect(&folder.join("src"), &mut sources);
    }
    assert!(sources.len() > 200, "the sources are not where they were: {}", sources.len());
    let name = |path: &Path| path.strip_prefix(crates).unwrap().to_str().unwrap().to_owned();
    let mut wrong = Vec::new();
    let mut used = 0;
    for path in sources.iter().filter(|path| !path.starts_with(crates.join("procfs"))) {
        let (name, source) = (name(path), fs::read_to_string(path).unwrap());
        let exception = EXCEPTIONS.iter().find(|(exception, ..)| *exception == name);
        let lines = uses(&source);
        used += usize::from(exception.is_some());
        if lines.len() != exception.map_or(0, |&(_, count, _)| count) {
            wrong.push((name, lines.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "to be asked of `procfs`, or counted here with a reason: {wrong:#?}");
    assert_eq!(used, EXCEPTIONS.len(), "an exception names no source any more");
}

/// The lines with a string that begins with `/proc`, without comments and unit tests.
fn uses(source: &str) -> Vec<&str> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    code.lines().filter(is_code).filter(|line| line.contains("\"/proc")).map(str::trim).collect()
}

fn collect(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, sources),
            false if path.extension().is_some_and(|extension| extension == "rs") => sources.push(path),
            false => {}
        }
    }
}

#[test]
fn strings_in_code_are_found() {
    let two = "let a = open(\"/proc/self/fd\");\nlet b;\nmatch text { b\"/proc/self/exe\" => {} }\n";
    assert_eq!(uses(two), ["let a = open(\"/proc/self/fd\");", "match text { b\"/proc/self/exe\" => {} }"]);
    assert_eq!(uses("// \"/proc\"\n#[cfg(test)]\nmod tests {\n\"/proc/self/exe\"\n}\n"), Vec::<&str>::new());
}
