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
    /// What they said, with the command before it.
    pub said: String,
}

/// Runs tests; those that failed are run again. `arguments` follow `--` of the command and select tests.
pub fn run_tests(tests: &Job, arguments: &[String]) -> Result<(), String> {
    let Err(failure) = tests.again(arguments).run_tests() else { return Ok(()) };
    let names = &failure.names;
    let is_never = |name: &String| NEVER.iter().any(|never| name.contains(never));
    if names.is_empty() || names.len() > FAILED_MAX || names.iter().any(is_never) {
        return Err(failure.said);
    }
    for name in names {
        println!("\n{name} failed: it is run {REPETITIONS} times by itself");
        for _ in 0..REPETITIONS {
            if let Err(again) = tests.again(&["--exact".to_owned(), name.clone()]).run_tests() {
                return Err(format!("{}\nand, by itself:\n{}", failure.said, again.said));
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
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::job;

    /// A command that fails like a file of tests as often as its counter, a file that is deleted here, has lines to go.
    fn fails(times: u32, case: &str) -> Result<(), String> {
        let counter = std::env::temp_dir().join(format!("xtask-unstable-{}-{case}", std::process::id()));
        let script =
            "echo >> \"$0\"; [ $(wc -l < \"$0\") -gt $1 ] || { printf 'failures:\\n    a\\ntest result:\\n'; exit 1; }";
        let result = run_tests(&job("sh").args(["-c", script]).args([&counter]).args([times.to_string()]), &[]);
        let _ = std::fs::remove_file(counter);
        result
    }

    #[test]
    fn what_failed_once_is_told_and_passes() {
        assert!(fails(1, "once").is_ok());
        assert!(seen().iter().any(|told| told.starts_with("a: passed 5 times")));
    }

    #[test]
    fn what_fails_again_by_itself_fails() {
        assert!(fails(3, "thrice").is_err());
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
