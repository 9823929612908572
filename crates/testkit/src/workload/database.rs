//! What must hold of the database of `programs/sqlite-inserts.py`.

use std::path::Path;
use std::process::Command;

use crate::crash::Violation;

const QUERY: &str = "PRAGMA integrity_check; SELECT count(*), coalesce(max(id), -1), sum(text NOT LIKE id || ':%' OR \
     length(text) <> length(id) + 1 + id * 37 % 500) FROM item;";

/// Opens the database, which recovers it, and looks.
pub fn check(dir: &Path, seen: u64) -> Vec<Violation> {
    let path = dir.join("test.db");
    let lost = |what: &str| vec![Violation::NotDurable(format!("{what}, {seen} rows were seen"))];
    if !path.exists() {
        return if seen == 0 { vec![] } else { lost("no database") };
    }
    let output = Command::new("sqlite3").args(["-batch", "-init", "/dev/null"]).arg(&path).arg(QUERY).output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return vec![Violation::Corrupt(format!("sqlite3 does not run: {error}"))],
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("no such table") {
        return if seen == 0 { vec![] } else { lost("no table") };
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match parse(&text) {
        Some((count, max, wrong)) => verdict(count, max, wrong, seen),
        None => vec![Violation::Corrupt(format!("sqlite3: {} {}", text.trim(), stderr.trim()))],
    }
}

/// Rows, largest id, rows with a wrong text; `None` unless the integrity check says ok.
fn parse(text: &str) -> Option<(u64, i64, u64)> {
    let mut fields = text.trim().strip_prefix("ok\n")?.split('|');
    let count = fields.next()?.parse().ok()?;
    let max = fields.next()?.parse().ok()?;
    let wrong = fields.next()?;
    // The sum over no rows is NULL, shown as nothing.
    let wrong = if wrong.is_empty() { 0 } else { wrong.parse().ok()? };
    Some((count, max, wrong))
}

fn verdict(count: u64, max: i64, wrong: u64, seen: u64) -> Vec<Violation> {
    let mut violations = Vec::new();
    if wrong > 0 {
        violations.push(Violation::Corrupt(format!("{wrong} rows are wrong")));
    }
    if i64::try_from(count) != Ok(max + 1) {
        let what = format!("{count} rows, but the last is {max}");
        violations.push(Violation::OutOfOrder(what));
    }
    if count < seen {
        let what = format!("{count} rows, {seen} were seen");
        violations.push(Violation::NotDurable(what));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_a_prefix_and_what_was_seen_is_there() {
        assert_eq!(parse("ok\n0|-1|\n"), Some((0, -1, 0)));
        assert_eq!(parse("ok\n3|2|0\n"), Some((3, 2, 0)));
        assert_eq!(parse("*** in database main ***\n"), None);
        assert_eq!(verdict(3, 2, 0, 3), []);
        assert!(matches!(verdict(3, 3, 0, 3)[..], [Violation::OutOfOrder(_)]));
        assert!(matches!(verdict(3, 2, 0, 4)[..], [Violation::NotDurable(_)]));
    }
}
