//! What was found, for people.

use std::collections::BTreeMap;

use syscall_table::{Ahead, Because};

use crate::Row;

/// How many run ahead, and what the others wait for.
pub fn summary(rows: &[Row]) -> String {
    let ahead = rows.iter().filter(|(_, outcome)| !outcome.is_stuck && outcome.waits.is_empty()).count();
    let differ = rows.iter().filter(|(_, outcome)| !outcome.differences.is_empty()).count();
    let mut told =
        format!("{} commands: {ahead} run ahead without a wait, {differ} differ from a plain run", rows.len());
    let calls: Vec<String> = by_call(rows).into_iter().map(|(call, count)| format!("{call} {count}")).collect();
    if !calls.is_empty() {
        told.push_str(&format!("\ncommands that wait, by call: {}", calls.join(", ")));
    }
    told
}

/// Commands that wait at each call; those that stop most come first.
fn by_call(rows: &[Row]) -> Vec<(String, usize)> {
    let mut calls = BTreeMap::new();
    for (_, outcome) in rows {
        for name in outcome.waits.keys() {
            *calls.entry(name.clone()).or_insert(0) += 1;
        }
    }
    let mut calls: Vec<(String, usize)> = calls.into_iter().collect();
    calls.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    calls
}

/// What a call lacks that commands wait at, where the table of system calls says less.
const LACKING: &[(&str, &str)] = &[
    ("mkdir", "a new directory on a disk has no place to be held in before it has its name"),
    ("openat", "a name in a directory that is held itself, or a change of a file that cannot be held"),
    ("execve", "a process with several threads does not execute a new file, nor is one a new file's loader"),
    ("mmap", "a file that was there is mapped to be written, so that it changes without a call"),
    ("clone", "a process with several threads has no checkpoint"),
    ("clone3", "a process with several threads has no checkpoint"),
    ("fcntl", "a lease tells who has a file open, and some record locks cannot be taken back"),
    ("newfstatat", "the name leads to a file that was moved, has a name only for this guess, or tells of processes"),
    ("renameat2", "the move cannot be held beside what is held already"),
    ("unlinkat", "the removal cannot be held: of a directory, or of what is held itself"),
    ("wait4", "the child has ended without depending on the guess, or it waits itself"),
];

/// The page for `docs/`.
pub fn markdown(rows: &[Row]) -> String {
    let mut page = String::from(
        "# Everyday commands inside an open guess\n\n\
         Written by `cargo xtask everyday --table`. Each command is run plainly, inside one guess that is open until the\n\
         command has ended and then right, inside one that is then wrong (all is taken back, nothing is shown), with guesses\n\
         that its own calls begin (*own guesses*: how many), and in each of several guesses of one world, one after the\n\
         other (*in a row*). What it leaves is compared with the plain run: output, status, files. Where a command waits\n\
         for the guess, and nobody else could resolve it, the guess fails, and the command is run again without it: then\n\
         the calls are told at which something waited.\n\n",
    );
    page.extend(summary(rows).lines().take(1));
    page.push_str(
        "\n\n| group | command | inside one guess | own guesses | in a row | result |\n|---|---|---|---|---|---|\n",
    );
    for (command, outcome) in rows {
        let ahead = match (outcome.is_stuck, outcome.waits.is_empty()) {
            (false, true) => "runs ahead".to_owned(),
            (false, false) => format!("runs ahead; waited for others: {}", outcome.waits_told()),
            (true, true) => "waits: at no counted call".to_owned(),
            (true, false) => format!("waits: {}", outcome.waits_told()),
        };
        let result = match outcome.differences.first() {
            None => "same".to_owned(),
            Some(difference) => format!("differs: {}", cell(difference)),
        };
        let (guesses, rounds) = (outcome.guesses, outcome.rounds);
        let script = cell(&command.script);
        page.push_str(&format!("| {} | `{script}` | {ahead} | {guesses} | {rounds} | {result} |\n", command.group));
    }
    page + &reasons(rows)
}

/// A text within a row of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// Why each of the calls waited.
fn reasons(rows: &[Row]) -> String {
    let mut page = String::from("\n## Why calls wait\n\n| call | commands | why |\n|---|---:|---|\n");
    for (call, count) in by_call(rows) {
        page.push_str(&format!("| `{call}` | {count} | {} |\n", cell(&reason(&call))));
    }
    page
}

fn reason(call: &str) -> String {
    if let Some((_, lacking)) = LACKING.iter().find(|(name, _)| *name == call) {
        return (*lacking).to_owned();
    }
    let Some(row) = syscall_table::ROWS.iter().find(|row| row.name == call) else { return "not known".to_owned() };
    let kind = match row.ahead {
        Ahead::Waits(Because::Unknown) => "not known to be safe",
        Ahead::Waits(Because::Lasting) => "changes what no checkpoint holds",
        Ahead::Waits(Because::NotBuilt) => "could be tracked, and is not",
        Ahead::Certain => "moves data within the kernel",
        Ahead::Alone => "looks into other processes",
        _ => "tracked, but not with these arguments or on this object",
    };
    format!("{kind}: {}", row.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::parse;
    use crate::run::Outcome;

    #[test]
    fn each_call_that_a_command_waits_at_is_explained() {
        let command = parse("[g]\nx: mkdir a | cat\n").unwrap().remove(0);
        let waits = [("mkdir".to_owned(), 2), ("setpgid".to_owned(), 1)].into();
        let page = markdown(&[(command, Outcome { waits, is_stuck: true, ..Outcome::default() })]);
        assert!(page.contains("| `mkdir a \\| cat` | waits: mkdir 2, setpgid 1 |"), "{page}");
        assert!(page.contains("| `mkdir` | 1 | a new directory"), "{page}");
        assert!(!page.contains("not known |"), "{page}");
    }

    #[test]
    fn what_is_said_of_a_call_is_said_of_one_that_there_is() {
        let is_there = |name: &str| syscall_table::ROWS.iter().any(|row| row.name == name);
        assert!(LACKING.iter().all(|(name, _)| is_there(name)));
    }
}
