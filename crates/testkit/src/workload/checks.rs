//! What must hold of files of blocks.

use std::fs;
use std::path::Path;

use crate::crash::Violation;

use super::blocks;

/// How far a file that holds blocks 0, 1, 2… has come.
struct Progress {
    name: String,
    /// So many blocks are complete.
    complete: u64,
    /// So many have at least begun.
    begun: u64,
}

/// Files that hold 0, 1, 2…, where block n of each was written after block n of the one before; a number is told
/// after the last.
pub fn chain(dir: &Path, names: &[&str], len: usize, seen: u64) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut files: Vec<Progress> = Vec::new();
    for name in names {
        let (progress, violation) = progress(dir, name, len);
        files.push(progress);
        violations.extend(violation);
    }
    for pair in files.windows(2) {
        if pair[1].begun > pair[0].complete {
            violations.push(Violation::OutOfOrder(format!(
                "{} has {} blocks, {} before it only {}",
                pair[1].name, pair[1].begun, pair[0].name, pair[0].complete
            )));
        }
    }
    let short = files.iter().filter(|file| file.complete < seen);
    violations.extend(short.map(|file| not_durable(&file.name, file.complete, seen)));
    violations
}

fn not_durable(name: &str, complete: u64, seen: u64) -> Violation {
    Violation::NotDurable(format!("{name} has {complete} blocks, {seen} were seen"))
}

fn progress(dir: &Path, name: &str, len: usize) -> (Progress, Option<Violation>) {
    let file = blocks::read(&dir.join(name), len);
    let complete = prefix_len(&file.numbers);
    let in_order = complete == file.numbers.len() as u64;
    let partial_in_order = file.partial.flatten().is_none_or(|number| number == complete);
    let progress = Progress {
        name: name.to_owned(),
        complete,
        begun: complete + u64::from(file.partial.is_some() || file.garbage.is_some()),
    };
    let violation = match in_order && partial_in_order {
        true => file.garbage,
        false => Some(Violation::OutOfOrder(format!("{name}: {file:?}"))),
    };
    (progress, violation)
}

/// Files `thread-0`… that hold 0, 1, 2… between them, each number written after all smaller ones.
pub fn turns(dir: &Path, files: usize, len: usize, seen: u64) -> Vec<Violation> {
    let mut complete = Vec::new();
    let mut partial = Vec::new();
    let mut violations = Vec::new();
    for index in 0..files {
        let file = blocks::read(&dir.join(format!("thread-{index}")), len);
        complete.extend(file.numbers);
        partial.extend(file.partial);
        violations.extend(file.garbage);
    }
    complete.sort_unstable();
    let prefix = prefix_len(&complete);
    if prefix < complete.len() as u64 {
        violations.push(Violation::OutOfOrder(format!(
            "block {prefix} is missing, {} later ones are there",
            complete.len() as u64 - prefix
        )));
    } else if partial.len() > 1 || partial.iter().flatten().any(|number| *number != prefix) {
        violations.push(Violation::OutOfOrder(format!("{partial:?} begun, {prefix} complete")));
    }
    if prefix < seen {
        violations.push(not_durable("all threads", prefix, seen));
    }
    violations
}

/// How many of 0, 1, 2… come first in an ascending list.
fn prefix_len(numbers: &[u64]) -> u64 {
    let matching = numbers.iter().zip(0..).take_while(|(found, due)| **found == *due);
    matching.count() as u64
}

/// Files `0.done`, `1.done`…, each complete before it got its name, and named in this order.
pub fn files(dir: &Path, len: usize, seen: u64) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut numbers = match names(dir) {
        Ok(numbers) => numbers,
        Err(violation) => return vec![violation],
    };
    numbers.sort_unstable();
    let mut lost = 0;
    for number in &numbers {
        let file = blocks::read(&dir.join(format!("{number}.done")), len);
        if file.numbers == [*number] && file.partial.is_none() && file.garbage.is_none() {
            continue;
        }
        lost += u64::from(*number < seen);
        let no_content = || format!("{number}.done has its name, but not its content");
        let violation = file.garbage;
        violations.push(violation.unwrap_or_else(|| Violation::OutOfOrder(no_content())));
    }
    let prefix = prefix_len(&numbers);
    if prefix < numbers.len() as u64 {
        let what = format!("{prefix}.done is missing, later ones are there");
        violations.push(Violation::OutOfOrder(what));
    }
    if prefix < seen || lost > 0 {
        violations.push(not_durable("the directory", prefix - lost.min(prefix), seen));
    }
    violations
}

/// A file `record` that holds one number, each larger than the one before: none that was seen is larger.
pub fn record<'a>(dir: &Path, seen: impl Iterator<Item = &'a str>) -> Vec<Violation> {
    let seen = seen.filter_map(record_number).max().unwrap_or(0);
    let held = match fs::read_to_string(dir.join("record")) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && seen == 0 => return Vec::new(),
        Err(error) => return vec![Violation::Corrupt(format!("record: {error}"))],
    };
    match record_number(held.trim_end()) {
        Some(held) if held < seen => vec![Violation::NotDurable(format!("record holds {held}, {seen} was seen"))],
        None if seen > 0 => vec![Violation::Corrupt(format!("record holds {held:?}"))],
        _ => Vec::new(),
    }
}

/// A number stands there twice; one that was read while it was written does not count.
fn record_number(line: &str) -> Option<u64> {
    let (first, second) = line.split_once(' ')?;
    first.parse().ok().filter(|_| first == second)
}

/// Directories 0, 1, 2… each with a core of a process that held the block of that number.
pub fn cores(dir: &Path, len: usize, seen: u64) -> Vec<Violation> {
    let missing = (0..seen).filter(|&number| !has_core(&dir.join(number.to_string()), &blocks::block(number, len)));
    missing.map(|number| Violation::NotDurable(format!("core {number} of {seen} is not there, or not whole"))).collect()
}

fn has_core(folder: &Path, block: &[u8]) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read(file.path()).ok()).any(|core| {
        core.starts_with(b"\x7fELF") && core.windows(block.len()).any(|part| part[0] == block[0] && part == block)
    })
}

fn names(dir: &Path) -> Result<Vec<u64>, Violation> {
    let corrupt = |error: std::io::Error| Violation::Corrupt(format!("{}: {error}", dir.display()));
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(corrupt)? {
        let name = entry.map_err(corrupt)?.file_name();
        let name = name.to_string_lossy();
        numbers.extend(name.strip_suffix(".done").and_then(|name| name.parse::<u64>().ok()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, numbers: &[u64], cut: usize) {
        let mut content: Vec<u8> = numbers.iter().flat_map(|n| blocks::block(*n, 64)).collect();
        content.truncate(content.len() - cut);
        fs::write(dir.join(name), content).unwrap();
    }

    #[test]
    fn a_later_file_must_not_be_ahead_and_what_was_seen_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, "a", &[0, 1, 2], 1);
        write(dir, "b", &[0, 1], 0);
        assert_eq!(chain(dir, &["a", "b"], 64, 2), []);
        assert!(matches!(chain(dir, &["a", "b"], 64, 3)[..], [Violation::NotDurable(_), _]));
        write(dir, "b", &[0, 1, 2], 60);
        assert!(matches!(chain(dir, &["a", "b"], 64, 2)[..], [Violation::OutOfOrder(_)]));
        write(dir, "a", &[0, 2], 0);
        assert!(matches!(chain(dir, &["a"], 64, 0)[..], [Violation::OutOfOrder(_)]));
        assert!(matches!(chain(dir, &["c"], 64, 1)[..], [Violation::NotDurable(_)]));
    }

    #[test]
    fn no_number_was_seen_that_the_record_does_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let check = |seen: &[&str]| record(dir, seen.iter().copied());
        assert_eq!(check(&[]), []);
        assert!(matches!(check(&["000001 000001"])[..], [Violation::Corrupt(_)]));
        fs::write(dir.join("record"), "000007 000007\n").unwrap();
        assert_eq!(check(&["000007 000007", "000003 000003", "000019 000020", "0"]), []);
        assert!(matches!(check(&["000008 000008"])[..], [Violation::NotDurable(_)]));
    }

    #[test]
    fn a_core_holds_its_block() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir(dir.join("0")).unwrap();
        assert_eq!(cores(dir, 64, 0), []);
        assert!(matches!(cores(dir, 64, 1)[..], [Violation::NotDurable(_)]));
        fs::write(dir.join("0/core.1"), [&b"\x7fELF..."[..], &blocks::block(0, 64)].concat()).unwrap();
        assert_eq!(cores(dir, 64, 1), []);
    }

    #[test]
    fn turns_are_taken_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, "thread-0", &[0, 3], 0);
        write(dir, "thread-1", &[1, 2, 4], 10);
        assert_eq!(turns(dir, 2, 64, 4), []);
        assert!(matches!(turns(dir, 2, 64, 5)[..], [Violation::NotDurable(_)]));
        write(dir, "thread-1", &[1, 4], 0);
        assert!(matches!(turns(dir, 2, 64, 0)[..], [Violation::OutOfOrder(_)]));
    }

    #[test]
    fn a_name_comes_after_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, "0.done", &[0], 0);
        write(dir, "1.done", &[1], 0);
        write(dir, "new", &[2], 3);
        assert_eq!(files(dir, 64, 2), []);
        write(dir, "1.done", &[1], 64);
        assert!(matches!(files(dir, 64, 1)[..], [Violation::OutOfOrder(_)]));
        assert!(matches!(files(dir, 64, 2)[..], [Violation::OutOfOrder(_), Violation::NotDurable(_)]));
        fs::remove_file(dir.join("0.done")).unwrap();
        write(dir, "1.done", &[1], 0);
        assert!(matches!(files(dir, 64, 0)[..], [Violation::OutOfOrder(_)]));
    }
}
