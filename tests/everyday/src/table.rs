//! What was found, for people.

use std::collections::BTreeMap;

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

/// The page for `docs/`.
pub fn markdown(rows: &[Row]) -> String {
    let mut page = String::from(
        "# Everyday commands inside an open guess\n\n\
         Written by `cargo xtask everyday --table`. Each command is run plainly, inside one guess that is right and open \
         until\nthe command has ended, inside one that is wrong, and with guesses that its own calls begin. What it leaves \
         is compared\nwith the plain run. A command that waits for the guess is listed with the calls that waited; it is \
         not run in a wrong one.\n\n",
    );
    page.push_str(&summary(rows).replace('\n', "\n\n"));
    page.push_str("\n\n| group | command | inside one guess | own guesses | result |\n|---|---|---|---|---|\n");
    for (command, outcome) in rows {
        let ahead = match (outcome.is_stuck, outcome.waits.is_empty()) {
            (false, true) => "runs ahead".to_owned(),
            (false, false) => format!("runs ahead; waited for others: {}", outcome.waits_told()),
            (true, _) => format!("waits: {}", outcome.waits_told()),
        };
        let result = if outcome.differences.is_empty() { "same" } else { "differs" };
        let script = command.script.replace('|', "\\|");
        page.push_str(&format!("| {} | `{script}` | {ahead} | {} | {result} |\n", command.group, outcome.guesses));
    }
    page
}
