//! A test that failed is run again by itself: what fails only sometimes is told and does not keep a step from passing
//! (docs/decisions/0029).
//!
//! What judges the guarantee is never repeated: one violation is one too many.

use std::sync::Mutex;

use crate::shell::Job;

/// How often a failed test has to pass by itself.
const REPETITIONS: u32 = 5;

/// With more failed tests than this something is broken, and nothing is repeated.
const FAILED_MAX: usize = 8;

/// Tests that are never repeated: each failure of theirs is something that was shown too early, or that a failed
/// guess left.
const NEVER: [&str; 2] =
    ["what_was_learned_through_any_channel_is_held", "what_a_failed_guess_did_is_learned_through_no_channel"];

/// What was unstable in this run: the test, and what it said.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// How a command of tests failed.
pub struct Failure {
    /// The names of the failed tests.
    pub names: Vec<String>,
    /// What else failed than tests that say so, if anything did.
    pub unexplained: Option<String>,
    /// What they said, with the command before it.
    pub said: String,
}

/// Runs tests; those that failed are run again. `arguments` follow `--` of the command and select tests.
pub fn run_tests(tests: &Job, arguments: &[String]) -> Result<(), String> {
    let Err(mut failure) = tests.again(arguments).run_tests() else { return Ok(()) };
    failure.names.sort();
    failure.names.dedup();
    let names = &failure.names;
    let is_never = |name: &String| NEVER.iter().any(|never| name.contains(never));
    let is_broken = names.is_empty() || names.len() > FAILED_MAX || failure.unexplained.is_some();
    if is_broken || names.iter().any(is_never) {
        return Err(failure.said);
    }
    for name in names {
        println!("\n{name} failed: it is run {REPETITIONS} times by itself");
        for _ in 0..REPETITIONS {
            match tests.again(&["--exact".to_owned(), name.clone()]).run_tests() {
                Err(again) => return Err(format!("{}\nand, by itself:\n{}", failure.said, again.said)),
                // Two files of tests may have one of this name; then both have run.
                Ok(0) => return Err(format!("{}\nand, by itself, it was not run", failure.said)),
                Ok(_) => {}
            }
        }
    }
    let told =
        format!("{}: passed {REPETITIONS} times by themselves; what they said:\n{}", names.join(", "), failure.said);
    if let Ok(mut seen) = SEEN.lock() {
        seen.push(told);
    }
    Ok(())
}

/// What was unstable so far.
pub fn seen() -> Vec<String> {
    SEEN.lock().map(|seen| seen.clone()).unwrap_or_default()
}

/// The names of failed tests in what tests print: the indented lines of the last list below `failures:` of each
/// file of tests.
pub fn failed_names<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut list: Vec<&str> = Vec::new();
    let mut is_listing = false;
    for line in lines {
        let name = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' ') && !rest.is_empty());
        match (line, name) {
            ("failures:", _) => (is_listing, list) = (true, Vec::new()),
            (_, Some(name)) if is_listing => list.push(name),
            ("", _) => {}
            _ if line.starts_with("test result:") => {
                names.extend(list.drain(..).map(str::to_owned));
                is_listing = false;
            }
            _ => is_listing = false,
        }
    }
    names
}

/// How many tests have passed, by what all files of tests say: `test result: ok. 1 passed; 0 failed; …`.
pub fn passed(lines: &[String]) -> usize {
    counted(lines, "passed;")
}

fn counted(lines: &[String], what: &str) -> usize {
    let results = lines.iter().filter(|line| line.starts_with("test result:"));
    let number = |line: &String| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == what)?;
        words.get(at.checked_sub(1)?)?.parse::<usize>().ok()
    };
    results.filter_map(number).sum()
}

/// What failed besides tests that say so, by what the files of tests say and what cargo says on standard error: one
/// that crashed, or that has found something when all its tests had ended. That is never forgiven.
pub fn unexplained(lines: &[String], of_cargo: &[String]) -> Option<String> {
    /// The status of a file of tests in which a test failed; of that alone cargo does not tell.
    const FAILED: &str = "(exit status: 101)";
    let ended = of_cargo.iter().map(|line| line.trim_start());
    let mut ended =
        ended.filter(|line| line.starts_with("process didn't exit successfully") && !line.ends_with(FAILED));
    if let Some(line) = ended.next() {
        return Some(line.to_owned());
    }
    let targets = of_cargo.iter().filter(|line| line.starts_with("error: ") && line.contains("failed, to rerun pass"));
    let (targets, said) =
        (targets.count(), lines.iter().filter(|line| line.starts_with("test result: FAILED")).count());
    if targets != said {
        return Some(format!("{targets} files of tests failed, and {said} say which test"));
    }
    let (failed, names) = (counted(lines, "failed;"), failed_names(lines.iter().map(String::as_str)).len());
    (failed != names).then(|| format!("{failed} tests failed, and {names} are named"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::job;

    /// What a file of tests says in which `a` failed, and cargo of it.
    const FAILS: &str = "printf 'failures:\n    a\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n'
        echo 'error: test failed, to rerun pass `-p x`' >&2";
    const PASSES: &str = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";

    /// A command that does this and fails as often as its counter, a file that is deleted here, has lines to go, and
    /// then does that.
    fn fails(times: u32, case: &str, fails: &str, passes: &str) -> Result<(), String> {
        let counter = std::env::temp_dir().join(format!("xtask-unstable-{}-{case}", std::process::id()));
        let script = format!("echo >> \"$0\"\n[ $(wc -l < \"$0\") -gt $1 ] || {{ {fails}\nexit 101\n}}\n{passes}");
        let result = run_tests(&job("sh").args(["-c", &script]).args([&counter]).args([times.to_string()]), &[]);
        let _ = std::fs::remove_file(counter);
        result
    }

    #[test]
    fn what_failed_once_is_told_and_passes() {
        assert!(fails(1, "once", FAILS, PASSES).is_ok());
        assert!(seen().iter().any(|told| told.starts_with("a: passed 5 times")));
    }

    #[test]
    fn what_fails_again_by_itself_fails() {
        assert!(fails(3, "thrice", FAILS, PASSES).is_err());
    }

    #[test]
    fn what_does_not_run_by_itself_fails() {
        let none = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'";
        assert!(fails(1, "none", FAILS, none).is_err_and(|said| said.contains("was not run")));
    }

    #[test]
    fn a_file_of_tests_that_crashed_is_not_forgiven() {
        let crash = format!("{FAILS}\necho 'error: test failed, to rerun pass `-p y`' >&2");
        assert!(fails(1, "crash", &crash, PASSES).is_err_and(|said| said.contains("2 files of tests failed")));
        let leaves = format!("{FAILS}\necho \"  process didn't exit successfully: x (exit status: 1)\" >&2");
        assert!(fails(1, "leaves", &leaves, PASSES).is_err_and(|said| said.contains("(exit status: 1)")));
    }

    #[test]
    fn names_stand_below_the_last_heading() {
        let said = "failures:\n\n---- a stdout ----\n    not a name\npanicked\n\n\nfailures:\n    a\n    b::c\n\ntest result: FAILED.";
        assert_eq!(failed_names(said.lines()), ["a", "b::c"]);
    }

    #[test]
    fn a_file_of_tests_without_failures_has_no_names() {
        assert!(failed_names("running 3 tests\n...\ntest result: ok. 3 passed".lines()).is_empty());
    }

    #[test]
    fn each_file_of_tests_has_its_own_list() {
        let said = "failures:\n    a\n\ntest result: FAILED.\n\nfailures:\n    b\n\ntest result: FAILED.";
        assert_eq!(failed_names(said.lines()), ["a", "b"]);
    }
}
