//! Tells two runs apart, and says where.

use crate::run::Outcome;
use crate::tree::{Entry, Tree};

/// Everything that one run has left.
#[derive(Clone, Debug)]
pub struct Remains {
    /// Output and status.
    pub outcome: Outcome,
    /// The directory that it ran in.
    pub tree: Tree,
}

/// What may differ between two runs of the same program.
#[derive(Clone, Debug, Default)]
pub struct Tolerance {
    /// Numbers in output (pids, addresses, times).
    pub numbers: bool,
    /// The order of lines.
    pub order: bool,
}

/// Differences shown for each run; the rest are counted.
const SHOWN_MAX: usize = 8;

/// The differences between `native` and `inside`, one text each; empty if there are none.
pub fn differences(native: &Remains, inside: &Remains, tolerance: &Tolerance) -> Vec<String> {
    let mut found = Vec::new();
    let (a, b) = (&native.outcome, &inside.outcome);
    if a.status != b.status {
        found.push(format!("exit status: native {}, inside {}", a.status, b.status));
    }
    found.extend(text_difference("stdout", &a.stdout, &b.stdout, tolerance));
    found.extend(text_difference("stderr", &a.stderr, &b.stderr, tolerance));
    found.extend(tree_differences(&native.tree, &inside.tree, tolerance));
    shortened(found)
}

fn shortened(mut found: Vec<String>) -> Vec<String> {
    if found.len() > SHOWN_MAX {
        let more = found.len() - SHOWN_MAX;
        found.truncate(SHOWN_MAX);
        found.push(format!("… and {more} more"));
    }
    found
}

fn tree_differences(native: &Tree, inside: &Tree, tolerance: &Tolerance) -> Vec<String> {
    let mut found = Vec::new();
    for (path, entry) in native {
        match inside.get(path) {
            None => found.push(format!("{path}: only native ({})", entry.about)),
            Some(other) => found.extend(entry_difference(path, entry, other, tolerance)),
        }
    }
    let new = inside.iter().filter(|(path, _)| !native.contains_key(*path));
    found.extend(new.map(|(path, entry)| format!("{path}: only inside ({})", entry.about)));
    found
}

fn entry_difference(path: &str, native: &Entry, inside: &Entry, tolerance: &Tolerance) -> Option<String> {
    if native.about != inside.about {
        return Some(format!("{path}: native {}, inside {}", native.about, inside.about));
    }
    text_difference(path, &native.content, &inside.content, tolerance)
}

fn text_difference(what: &str, native: &[u8], inside: &[u8], tolerance: &Tolerance) -> Option<String> {
    if native == inside {
        return None;
    }
    let (native, inside) = (normal(native, tolerance), normal(inside, tolerance));
    if native == inside {
        return None;
    }
    let line = native.iter().zip(&inside).take_while(|(a, b)| a == b).count();
    let show = |lines: &[String]| lines.get(line).map_or("(nothing)".to_owned(), |text| excerpt(text));
    Some(format!(
        "{what}, line {} of {} and {}:\n    native: {}\n    inside: {}",
        line + 1,
        native.len(),
        inside.len(),
        show(&native),
        show(&inside)
    ))
}

fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn normal(bytes: &[u8], tolerance: &Tolerance) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if tolerance.numbers {
        lines.iter_mut().for_each(|line| *line = without_numbers(line));
    }
    if tolerance.order {
        lines.sort();
    }
    lines
}

/// Each run of digits becomes `N`.
pub fn without_numbers(line: &str) -> String {
    let mut result = String::with_capacity(line.len());
    let mut in_number = false;
    for character in line.chars() {
        if !character.is_ascii_digit() {
            result.push(character);
        } else if !in_number {
            result.push('N');
        }
        in_number = character.is_ascii_digit();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains(stdout: &str, status: i32) -> Remains {
        let outcome = Outcome { stdout: stdout.into(), stderr: Vec::new(), status, timed_out: false, left: Vec::new() };
        Remains { outcome, tree: Tree::new() }
    }

    fn check(native: &str, inside: &str, tolerance: &Tolerance, differ: bool) {
        let found = differences(&remains(native, 0), &remains(inside, 0), tolerance);
        assert_eq!(!found.is_empty(), differ, "{found:?}");
    }

    #[test]
    fn output_is_compared_within_its_tolerance() {
        let exact = Tolerance::default();
        let loose = Tolerance { numbers: true, order: true };
        check("a\nb\n", "a\nb\n", &exact, false);
        check("a\nb\n", "b\na\n", &exact, true);
        check("a 12\nb\n", "b\na 7\n", &loose, false);
        check("a\n", "a\na\n", &loose, true);
    }

    #[test]
    fn status_and_files_are_compared() {
        let found = differences(&remains("", 0), &remains("", 1), &Tolerance::default());
        assert_eq!(found, ["exit status: native 0, inside 1"]);
        let mut more = remains("", 0);
        more.tree.insert("f".into(), Entry { about: "- 0644".into(), content: vec![] });
        assert_eq!(differences(&more, &remains("", 0), &Tolerance::default()).len(), 1);
    }
}
