//! Who depended on whom, for Graphviz: an arrow from whom a dependency came to who took it.

use std::collections::BTreeMap;
use std::fmt::Write;

use supervisor::{History, Outcome};

use super::{life_at, title};

/// The graph in the language DOT.
pub fn graph(history: &History) -> String {
    let mut text = "digraph speculator {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n".to_owned();
    for (index, life) in history.lives.iter().enumerate() {
        let label = format!("{}\n{}", title(life), tally(history, index));
        // INVARIANT: writing to a string does not fail.
        writeln!(text, "  p{index} [label=\"{}\"];", escaped(&label)).expect("a string");
    }
    for ((from, to, via), count) in dependencies(history) {
        let times = if count > 1 { format!(" ×{count}") } else { String::new() };
        writeln!(text, "  p{from} -> p{to} [label=\"{}{times}\"];", escaped(via)).expect("a string");
    }
    text + "}\n"
}

/// From whom to whom, through what, and how often.
fn dependencies(history: &History) -> BTreeMap<(usize, usize, &str), usize> {
    let mut counts = BTreeMap::new();
    for flow in &history.flows {
        let ends = life_at(history, flow.from, flow.at_us).zip(life_at(history, flow.to, flow.at_us));
        if let Some((from, to)) = ends {
            *counts.entry((from, to, flow.via.as_str())).or_default() += 1;
        }
    }
    counts
}

/// What a process did.
fn tally(history: &History, index: usize) -> String {
    let is_own = |pid: i32, at_us: u64| life_at(history, pid, at_us) == Some(index);
    let guesses = history.guesses.iter().filter(|guess| is_own(guess.pid, guess.since_us));
    let outcomes: Vec<Outcome> = guesses.map(|guess| guess.outcome).collect();
    let wrong = outcomes.iter().filter(|outcome| **outcome == Outcome::Wrong).count();
    let checkpoints = history.checkpoints.iter().filter(|taken| is_own(taken.pid, taken.at_us)).count();
    let back = history.rollbacks.iter().filter(|back| back.pids.iter().any(|&pid| is_own(pid, back.at_us))).count();
    format!("{} guesses, {wrong} wrong\n{checkpoints} checkpoints\ntaken back {back} times", outcomes.len())
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::history;
    use super::*;

    #[test]
    fn an_arrow_for_each_way_that_dependencies_took() {
        let text = graph(&history());
        let arrows: Vec<&str> = text.lines().filter(|line| line.contains("->")).map(str::trim).collect();
        assert_eq!(arrows, ["p0 -> p1 [label=\"pipe 12 ×2\"];", "p2 -> p0 [label=\"its end\"];"]);
        assert!(text.contains("bash 7\\n3 guesses, 1 wrong\\n1 checkpoints\\ntaken back 1 times"), "{text}");
        assert!(text.contains("sort \\\"<&>\\\" 8\\n0 guesses"), "{text}");
        assert!(text.contains("cat 8\\n1 guesses"), "{text}");
    }
}
