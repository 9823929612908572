//! The runs of one command.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::commands;
use crate::place::{tree, Place, Tree};

/// No run takes so long, however busy the machine is.
const PATIENCE_S: &str = "180";

/// The command alone, as all runs start it: what it prints and its status go into files of its own.
const PLAINLY: &str = r#"bash -c "$COMMAND" > "$RESULTS/stdout" 2> "$RESULTS/stderr" < /dev/null
echo $? > "$RESULTS/status""#;

/// The environment of a command: the same everywhere.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_AUTHOR_NAME", "a"),
    ("GIT_AUTHOR_EMAIL", "a@example.org"),
    ("GIT_COMMITTER_NAME", "a"),
    ("GIT_COMMITTER_EMAIL", "a@example.org"),
    ("GIT_AUTHOR_DATE", "2024-01-01T00:00:00Z"),
    ("GIT_COMMITTER_DATE", "2024-01-01T00:00:00Z"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("HOME", "/root"),
];

/// How a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guess {
    /// Without any.
    None,
    /// Inside one that is open all the time, and right.
    Right,
    /// Inside one that is open all the time, and wrong.
    Wrong,
    /// Many, which its own calls begin, and which are right.
    Many,
}

impl Guess {
    fn script(self) -> String {
        match self {
            Guess::None | Guess::Many => PLAINLY.to_owned(),
            Guess::Right => format!(
                "id=$(\"$SPECULATOR\" begin)\n{PLAINLY}\n[ \"$id\" = failed ] || \"$SPECULATOR\" commit \"$id\""
            ),
            Guess::Wrong => format!(
                "id=$(\"$SPECULATOR\" begin)\nif [ \"$id\" != failed ]; then\n{PLAINLY}\n\
                 \"$SPECULATOR\" fail \"$id\"; exit 9; fi\necho taken back"
            ),
        }
    }
}

/// What a run left.
#[derive(Debug)]
struct Left {
    stdout: String,
    stderr: String,
    status: String,
    tree: Tree,
    /// What the shell around it printed, and its status.
    around: String,
    stats: Value,
}

/// What was found about a command.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Calls that waited for the open guess, with how often.
    pub waits: BTreeMap<String, u64>,
    /// Whether it waited for the open guess, so that the guess could not stay open.
    pub is_stuck: bool,
    /// Guesses that its own calls began in the last run.
    pub guesses: u64,
    /// Where a run left something else than the plain run.
    pub differences: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.differences {
            write!(f, "DIFFERS: {difference}; ")?;
        }
        match self.is_stuck {
            true => write!(f, "waits: {}", self.waits_told()),
            false => write!(f, "runs ahead; {} guesses of its own", self.guesses),
        }
    }
}

impl Outcome {
    /// The calls that waited.
    pub fn waits_told(&self) -> String {
        let told: Vec<String> = self.waits.iter().map(|(name, count)| format!("{name} {count}")).collect();
        told.join(", ")
    }
}

/// Runs a command in all ways. An error says why it could not be tried.
pub fn run(place: &Place, command: &commands::Command) -> Result<Outcome, String> {
    let plain = once(place, command, Guess::None)?;
    let right = once(place, command, Guess::Right)?;
    let mut outcome = Outcome { differences: differences("right", &plain, &right), ..Outcome::default() };
    outcome.is_stuck = right.stats["ahead"]["failed"].as_u64() != Some(0);
    outcome.waits = counts(&right.stats["ahead"]["barriers"]);
    // A guess that cannot stay open until the command has ended is not wrong when it is said to be.
    if !outcome.is_stuck {
        let wrong = once(place, command, Guess::Wrong)?;
        let untouched = tree(&place.fresh()?);
        outcome.differences.extend(left_by_wrong(&untouched, &wrong));
    }
    let many = once(place, command, Guess::Many)?;
    outcome.differences.extend(differences("many", &plain, &many));
    outcome.guesses = counts(&many.stats["ahead"]["injected"]).values().sum();
    Ok(outcome)
}

fn once(place: &Place, command: &commands::Command, guess: Guess) -> Result<Left, String> {
    let (work, results) = (place.fresh()?, place.results()?);
    let stats = results.join("stats");
    let mut run = Command::new("timeout");
    run.args(["-k", "1", PATIENCE_S]).arg(&place.speculator).arg("run");
    run.arg(format!("--stats=json:{}", stats.display()));
    if guess == Guess::Many {
        run.args(["--inject", "open:0%:5,stat:0%:5,read:0%:5", "--seed", "1"]);
    }
    run.args(["--", "bash", "-c", &guess.script()]).current_dir(&work).stdin(Stdio::null());
    run.env("COMMAND", &command.script).env("RESULTS", &results).env("SPECULATOR", &place.speculator);
    run.envs(ENVIRONMENT.iter().copied());
    let output = run.output().map_err(|error| format!("cannot start timeout: {error}"))?;
    let said = |name: &str| fs::read_to_string(results.join(name)).unwrap_or_default();
    let around = format!(
        "{}{}status {:?}",
        String::from_utf8_lossy(&output.stdout),
        told_by_shell(&output.stderr),
        output.status.code()
    );
    let stats = read_stats(&stats).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{}, {guess:?}: no statistics; {:?}: {}", command.name, output.status, said.trim())
    })?;
    Ok(Left {
        stdout: said("stdout"),
        stderr: masked(&said("stderr"), &work),
        status: said("status"),
        tree: tree(&work),
        around,
        stats,
    })
}

fn read_stats(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn counts(value: &Value) -> BTreeMap<String, u64> {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
}

/// Without the line that tells of a guess for which everything waits: that is counted.
fn told_by_shell(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().filter(|line| !line.starts_with("speculator: "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Numbers of processes differ between runs.
fn masked(text: &str, work: &Path) -> String {
    let text = text.replace(&*work.to_string_lossy(), "WORK");
    let mut masked = String::new();
    for character in text.chars() {
        match (character.is_ascii_digit(), masked.ends_with('N')) {
            (true, true) => {}
            (true, false) => masked.push('N'),
            (false, _) => masked.push(character),
        }
    }
    masked
}

fn differences(name: &str, plain: &Left, other: &Left) -> Vec<String> {
    let mut found = Vec::new();
    let pairs = [
        ("prints", &plain.stdout, &other.stdout),
        ("says on stderr", &plain.stderr, &other.stderr),
        ("ends with", &plain.status, &other.status),
        ("is surrounded by", &plain.around, &other.around),
    ];
    for (what, plain, other) in pairs.into_iter().filter(|(_, plain, other)| plain != other) {
        found.push(format!("{name}: {what} {other:?} instead of {plain:?}"));
    }
    found.extend(of_trees(&plain.tree, &other.tree).map(|difference| format!("{name}: {difference}")));
    found
}

fn left_by_wrong(untouched: &Tree, wrong: &Left) -> Vec<String> {
    let mut found: Vec<String> = of_trees(untouched, &wrong.tree).map(|it| format!("wrong: {it}")).collect();
    if wrong.around != "taken back\nstatus Some(0)" || !wrong.status.is_empty() {
        found.push(format!("wrong: left {:?} and status {:?}", wrong.around, wrong.status));
    }
    found
}

fn of_trees<'a>(expected: &'a Tree, found: &'a Tree) -> impl Iterator<Item = String> + 'a {
    let names = expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name)));
    let none = "nothing";
    names.filter(|name| expected.get(*name) != found.get(*name)).map(move |name| {
        let told = |tree: &Tree| tree.get(name).map_or(none.to_owned(), Clone::clone);
        format!("{} is {} instead of {}", name.display(), told(found), told(expected))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_that_differ_are_told() {
        let tree = |rows: &[(&str, &str)]| -> Tree {
            rows.iter().map(|(name, what)| ((*name).into(), (*what).to_owned())).collect()
        };
        let told: Vec<String> = of_trees(&tree(&[("a", "1"), ("b", "2")]), &tree(&[("a", "1"), ("c", "3")])).collect();
        assert_eq!(told, ["b is nothing instead of 2", "c is 3 instead of nothing"]);
    }

    #[test]
    fn numbers_and_the_place_are_masked() {
        assert_eq!(masked("/x/work/f: line 12", Path::new("/x/work")), "WORK/f: line N");
    }
}
