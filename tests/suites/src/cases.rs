//! What came of each case of a script.

use std::collections::BTreeMap;

/// What a script said of its cases.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// What came of each case, by its name. Names come more than once where cases are made in loops.
    cases: BTreeMap<String, Vec<String>>,
    /// Why it did not end.
    pub unfinished: Option<String>,
}

impl Told {
    /// What a script of git says (TAP): `ok 3 - name`, `not ok 4 - name`, with `# SKIP` or `# TODO`.
    pub fn of_tap(said: &str) -> Told {
        let mut told = Told::default();
        for line in said.lines() {
            let (came, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
                (Some(rest), _) => ("ok", rest),
                (_, Some(rest)) => ("failed", rest),
                _ => continue,
            };
            let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
            let came = match directive.split_whitespace().next() {
                Some(word @ ("skip" | "SKIP")) => word.to_lowercase(),
                Some("TODO") => format!("{came}, which is known"),
                _ => came.to_owned(),
            };
            told.add(name, &came);
        }
        told
    }

    /// What a script of SQLite says: `name... Ok`, or other words, and lines with `!` about what failed.
    pub fn of_sqlite(said: &str) -> Told {
        let mut told = Told::default();
        for line in said.lines() {
            if let Some((name, rest)) = line.split_once("...") {
                if !name.contains(' ') && !name.is_empty() {
                    let came = match rest.split_whitespace().next() {
                        Some("Ok") => "ok",
                        Some("Omitted") => "skip",
                        _ => "failed",
                    };
                    told.add(name, came);
                }
            } else if let Some((errors, rest)) = line.split_once(" errors out of ") {
                told.add("errors", errors);
                told.add("tests", rest.split_whitespace().next().unwrap_or(""));
            }
        }
        told
    }

    /// What a script of Redis says: `[ok]: name (3 ms)`, `[err]: name in tests/…`, and other words, in colours.
    pub fn of_redis(said: &str) -> Told {
        let mut told = Told::default();
        for line in said.lines() {
            let plain: String = line.split('\u{1b}').enumerate().map(|(index, part)| uncoloured(index, part)).collect();
            let Some((came, rest)) = plain.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) else { continue };
            let (name, came) = match came {
                "ok" => (rest.rsplit_once(" (").map_or(rest, |(name, _)| name), "ok"),
                "err" => (rest.rsplit_once(" in tests/").map_or(rest, |(name, _)| name), "failed"),
                "skip" | "ignore" => (rest, "skip"),
                "exception" | "TIMEOUT" => (rest, "failed"),
                _ => continue,
            };
            told.add(name, came);
        }
        told
    }

    /// One that did not end.
    pub fn unfinished(mut self, why: Option<String>) -> Told {
        self.unfinished = why;
        self
    }

    fn add(&mut self, name: &str, came: &str) {
        self.cases.entry(name.to_owned()).or_default().push(came.to_owned());
    }

    /// How many cases there were.
    pub fn count(&self) -> usize {
        self.cases.values().map(Vec::len).sum()
    }

    /// Where they came to something else than natively.
    pub fn differences(&self, natively: &Told) -> Vec<String> {
        let mut found: Vec<String> = self.unfinished.iter().cloned().collect();
        let names = natively.cases.keys().chain(self.cases.keys().filter(|name| !natively.cases.contains_key(*name)));
        for name in names {
            let came = |told: &Told| told.cases.get(name).map_or("not run".to_owned(), |all| all.join(", "));
            let (here, there) = (came(self), came(natively));
            if here != there {
                found.push(format!("{name}: {here} in the place of {there}"));
            }
        }
        found
    }
}

/// What stands behind the escape character of a colour, without the rest of that colour.
fn uncoloured(index: usize, part: &str) -> &str {
    let colour = part.strip_prefix('[').and_then(|rest| rest.split_once('m')).filter(|_| index > 0);
    colour.map_or(part, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_of_git_is_read() {
        let said = "ok 1 - setup\nnot ok 2 - it works\n#\techo\nok 3 # skip it waits (missing FOO)\n\
                    not ok 4 - later # TODO known breakage\n1..4\n";
        let told = Told::of_tap(said);
        assert_eq!(told.count(), 4);
        let other = Told::of_tap(&said.replace("not ok 2", "ok 2").replace("ok 1 - setup\n", ""));
        assert_eq!(
            other.differences(&told),
            ["1 - setup: not run in the place of ok", "2 - it works: ok in the place of failed"]
        );
        assert!(told.differences(&told).is_empty());
    }

    #[test]
    fn a_script_of_sqlite_is_read() {
        let said = "a-1.0... Ok\na-1.0... Ok\na-2...\n! a-2 expected: [1]\n! a-2 got:      [2]\n\
                    1 errors out of 3 tests on host Linux 64-bit little-endian\n";
        let told = Told::of_sqlite(said);
        assert_eq!(told.count(), 5);
        let other = Told::of_sqlite(&said.replacen("a-1.0... Ok\n", "", 1));
        assert_eq!(other.differences(&told), ["a-1.0: ok in the place of ok, ok"]);
    }

    #[test]
    fn a_script_of_redis_is_read() {
        let said = "Starting test server at port 21079\n[ready]: 71\n\u{1b}[1;37;49mTesting unit/auth\u{1b}[0m\n\
                    [\u{1b}[0;32;49mok\u{1b}[0m]: AUTH fails (if told) (3 ms)\n\
                    [\u{1b}[0;31;49merr\u{1b}[0m]: AUTH succeeds in tests/unit/auth.tcl\n[ignore]: Large\n\
                    [1/1 \u{1b}[0;33;49mdone\u{1b}[0m]: unit/auth (1 seconds)\n";
        let told = Told::of_redis(said);
        assert_eq!(told.count(), 3);
        let other = Told::of_redis(&said.replace("err", "ok").replace(" in tests/unit/auth.tcl", " (1 ms)"));
        assert_eq!(other.differences(&told), ["AUTH succeeds: ok in the place of failed"]);
    }
}
