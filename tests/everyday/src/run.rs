//! The runs of one command.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::commands;
use crate::place::{tree, Place, Tree};

/// No run takes so long, however busy the machine is; one of many rounds has so much for each of them.
const PATIENCE_S: u32 = 180;

/// The command alone, as all runs start it: what it prints and its status go into files of its own.
const PLAINLY: &str = r#"bash -c "$COMMAND" > "$RESULTS/stdout" 2> "$RESULTS/stderr" < /dev/null
echo $? > "$RESULTS/status""#;

/// Guesses one after the other. What the command left is put aside after each, and the next one finds what the first
/// has found, at the same place.
const ROUNDS: &str = r#"results=$RESULTS work=$PWD
for round in $(seq "$ROUNDS"); do
    export RESULTS=$results/$round
    mkdir "$RESULTS"
    id=$("$SPECULATOR" begin)
    PLAINLY
    [ "$id" = failed ] || "$SPECULATOR" commit "$id"
    cd / && mv "$work" "$RESULTS/tree" && cp -a "$FIXTURE" "$work" && cd "$work" || exit
done"#;

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
    /// So many, one after the other, in one world: the command is run in each of them, and each is right.
    Rounds(u32),
}

impl Guess {
    /// What bash runs: all of it in one world.
    fn script(self) -> String {
        match self {
            Guess::None | Guess::Many => PLAINLY.to_owned(),
            Guess::Rounds(_) => ROUNDS.replace("PLAINLY", PLAINLY),
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
    /// That it did not end.
    hangs: Option<String>,
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
    /// Guesses one after the other, in each of which it was run.
    pub rounds: u32,
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
pub fn run(place: &Place, command: &commands::Command, rounds: u32) -> Result<Outcome, String> {
    let plain = once(place, command, Guess::None)?;
    if let Some(hangs) = &plain.hangs {
        return Ok(Outcome { differences: vec![format!("plain: {hangs}")], ..Outcome::default() });
    }
    let right = once(place, command, Guess::Right)?;
    let mut outcome = Outcome { differences: differences("right", &plain, &right), ..Outcome::default() };
    outcome.is_stuck = right.stats["ahead"]["failed"].as_u64() != Some(0);
    outcome.waits = counts(&right.stats["ahead"]["barriers"]);
    // What did not end in a guess that is right does not end in others that stay open as long.
    let has_ended = right.hangs.is_none();
    if has_ended {
        // A guess that failed because everything waited for it is taken back, too.
        let wrong = once(place, command, Guess::Wrong)?;
        let untouched = tree(&place.fresh()?);
        outcome.differences.extend(left_by_wrong(&untouched, &wrong));
    }
    let many = once(place, command, Guess::Many)?;
    outcome.differences.extend(differences("many", &plain, &many));
    outcome.guesses = counts(&many.stats["ahead"]["injected"]).values().sum();
    if rounds > 0 && has_ended {
        outcome.rounds = rounds;
        outcome.differences.extend(in_rounds(place, command, &plain, rounds)?);
    }
    Ok(outcome)
}

/// Where one of many rounds in one world left something else than the plain run.
fn in_rounds(place: &Place, command: &commands::Command, plain: &Left, rounds: u32) -> Result<Vec<String>, String> {
    let whole = once(place, command, Guess::Rounds(rounds))?;
    let mut found: Vec<String> = whole.hangs.iter().map(|hangs| format!("rounds: {hangs}")).collect();
    for round in 1..=rounds {
        let results = place.results().join(round.to_string());
        let left = Left {
            // Of all rounds together.
            around: if round == rounds { whole.around.clone() } else { plain.around.clone() },
            ..Left::read(&results, &results.join("tree"), &place.work())
        };
        found.extend(differences(&format!("round {round}"), plain, &left));
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

impl Left {
    /// What a command has said, and what stands in `tree`, which was `work` when it ran.
    fn read(results: &Path, found: &Path, work: &Path) -> Left {
        let said = |name: &str| fs::read_to_string(results.join(name)).unwrap_or_default();
        Left {
            stdout: said("stdout"),
            stderr: masked(&said("stderr"), work),
            status: said("status"),
            tree: tree(found),
            around: String::new(),
            stats: Value::Null,
            hangs: None,
        }
    }
}

fn once(place: &Place, command: &commands::Command, guess: Guess) -> Result<Left, String> {
    let (work, results) = (place.fresh()?, place.empty_results()?);
    let stats = results.join("stats");
    let rounds = if let Guess::Rounds(rounds) = guess { rounds } else { 1 };
    let patience = PATIENCE_S * rounds.div_ceil(5);
    let mut run = Command::new("timeout");
    run.args(["-k", "1", &patience.to_string()]).arg(&place.speculator).arg("run");
    run.arg(format!("--stats=json:{}", stats.display()));
    if guess == Guess::Many {
        run.args(["--inject", "open:0%:5,stat:0%:5,read:0%:5", "--seed", "1"]);
    }
    run.args(["--", "bash", "-c", &guess.script()]).current_dir(&work).stdin(Stdio::null());
    run.env("COMMAND", &command.script).env("RESULTS", &results).env("SPECULATOR", &place.speculator);
    run.env("ROUNDS", rounds.to_string()).env("FIXTURE", place.fixture());
    run.envs(ENVIRONMENT.iter().copied());
    let output = run.output().map_err(|error| format!("cannot start timeout: {error}"))?;
    let around = format!(
        "{}{}status {:?}",
        String::from_utf8_lossy(&output.stdout),
        told_by_shell(&output.stderr),
        output.status.code()
    );
    let is_late = output.status.code().is_none_or(|code| [124, 137].contains(&code));
    let hangs = is_late.then(|| format!("it did not end within {patience} s"));
    let read = read_stats(&stats);
    if read.is_none() && hangs.is_none() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}, {guess:?}: no statistics; {:?}: {}", command.name, output.status, said.trim()));
    }
    Ok(Left { around, stats: read.unwrap_or_default(), hangs, ..Left::read(&results, &work, &work) })
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
    // What was not finished differs everywhere.
    if let Some(hangs) = &other.hangs {
        return vec![format!("{name}: {hangs}")];
    }
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
    if let Some(hangs) = &wrong.hangs {
        return vec![format!("wrong: {hangs}")];
    }
    let mut found: Vec<String> = of_trees(untouched, &wrong.tree).map(|it| format!("wrong: {it}")).collect();
    let said = [&wrong.stdout, &wrong.stderr, &wrong.status];
    if wrong.around != "taken back\nstatus Some(0)" || said.iter().any(|text| !text.is_empty()) {
        found.push(format!("wrong: left {:?}, and of the command {said:?}", wrong.around));
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
