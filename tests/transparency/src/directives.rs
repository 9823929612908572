//! The directives in the first lines of a scenario's file: `@name value`, after whatever opens a comment there.
//!
//! | directive | meaning |
//! |---|---|
//! | `@build FLAGS` | further flags for `cc` |
//! | `@no-libc` | compile with `-nostdlib -static` and without the usual flags |
//! | `@library FILE.c` | also build FILE.c as a shared object, whose path is in `$TEST_LIBRARY` |
//! | `@needs COMMAND…` | commands without which the scenario is skipped |
//! | `@source FILE` | needs this archive, fetched by `cargo xtask setup`; it is in `$SOURCES` |
//! | `@root` | needs root |
//! | `@user` | runs as an ordinary user, when the harness is root |
//! | `@setuid` | the program in the run directory is owned by root and setuid; implies `@user` |
//! | `@status N` | the exit status that it means to end with; 128+n for signal n |
//! | `@timeout SECONDS` | instead of 30 |
//! | `@args WORD…` | the program's arguments |
//! | `@stdin TEXT` | what standard input has; it is empty otherwise |
//! | `@numbers` | numbers in the output are replaced by `N` before the comparison |
//! | `@unsorted` | the output's lines may come in any order |
//! | `@ignore NAME…` | files of these names (or ending so, after `*`) are not compared by content |
//! | `@never TEXT` | `tests/rollback`: what only a wrong guess can make it say |
//! | `@memory` | `tests/rollback`: it runs in a directory in memory |
//! | `@heavy` | `tests/rollback`: it runs once in the short form |
//! | `@alone` | runs while no other scenario runs |
//!
//! A scenario that repeats something makes its rounds divided by `$ROUNDS_DIVIDED_BY`, if that is set, as
//! `tests/rollback` does (`rounds` in `check.h`).

/// The directives of one scenario.
#[derive(Clone, Debug, Default)]
pub struct Directives {
    found: Vec<(String, Vec<String>)>,
}

/// Lines at the start of a file in which directives are looked for.
const LINES_MAX: usize = 30;

impl Directives {
    /// Reads the directives in `text`.
    pub fn parse(text: &str) -> Directives {
        let found = text.lines().take(LINES_MAX).filter_map(parse_line).collect();
        Directives { found }
    }

    /// Whether `@name` is there.
    pub fn has(&self, name: &str) -> bool {
        self.found.iter().any(|(found, _)| found == name)
    }

    /// All words after every `@name`.
    pub fn words(&self, name: &str) -> Vec<String> {
        let of_name = self.found.iter().filter(|(found, _)| found == name);
        of_name.flat_map(|(_, words)| words.iter().cloned()).collect()
    }

    /// The first word after `@name`, as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.words(name).first()?.parse().ok()
    }
}

fn parse_line(line: &str) -> Option<(String, Vec<String>)> {
    let text = line.trim_start_matches(|c: char| c.is_whitespace() || "/*#;".contains(c));
    let mut words = text.strip_prefix('@')?.split_whitespace().filter(|word| *word != "*/").map(str::to_owned);
    let name = words.next()?;
    Some((name, words.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_stand_in_comments_of_any_language() {
        let directives = Directives::parse("#!/bin/sh\n# @needs git tar\n// @timeout 60\n * @root\nx @user\n");
        assert_eq!(directives.words("needs"), ["git", "tar"]);
        assert_eq!(directives.number("timeout"), Some(60));
        assert!(directives.has("root"));
        assert!(!directives.has("user"), "a directive opens its line");
    }
}
