//! The list of commands.

use std::path::Path;

/// The list, as it stands in the repository.
pub const COMMANDS: &str = include_str!("../commands.txt");

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its group.
    pub group: String,
    /// Its name, unlike all others.
    pub name: String,
    /// What bash is given.
    pub script: String,
    /// Programs that have to be there.
    pub needs: Vec<String>,
}

impl Command {
    /// The first program that it needs and that is not there.
    pub fn missing(&self) -> Option<&str> {
        let path = std::env::var("PATH").unwrap_or_default();
        let is_there = |program: &str| match program.contains('/') {
            true => Path::new(program).exists(),
            false => path.split(':').any(|folder| Path::new(folder).join(program).exists()),
        };
        self.needs.iter().map(String::as_str).find(|program| !is_there(program))
    }
}

/// Reads a list: `[group: PROGRAM …]`, `name: script`, comments and empty lines.
pub fn parse(text: &str) -> Result<Vec<Command>, String> {
    let mut commands: Vec<Command> = Vec::new();
    let (mut group, mut needs) = (String::new(), Vec::new());
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (name, programs) = heading.split_once(": ").unwrap_or((heading, ""));
            (group, needs) = (name.to_owned(), programs.split_whitespace().map(str::to_owned).collect());
            continue;
        }
        let (name, script) = line.split_once(": ").ok_or(format!("line {}: not `name: script`", at + 1))?;
        if commands.iter().any(|command| command.name == name) {
            return Err(format!("line {}: a second {name}", at + 1));
        }
        let (group, needs) = (group.clone(), needs.clone());
        commands.push(Command { group, name: name.to_owned(), script: script.to_owned(), needs });
    }
    Ok(commands)
}

/// So many of them, chosen by a seed, in the order of the list.
pub fn sample(all: Vec<Command>, count: usize, seed: u64) -> Vec<Command> {
    let mut keyed: Vec<(u64, usize)> = (0..all.len()).map(|at| (mix(seed ^ mix(at as u64)), at)).collect();
    keyed.sort_unstable();
    let mut places: Vec<usize> = keyed.into_iter().take(count).map(|(_, at)| at).collect();
    places.sort_unstable();
    places.into_iter().filter_map(|at| all.get(at).cloned()).collect()
}

/// Spreads the bits of a number (the finalizer of splitmix64).
fn mix(number: u64) -> u64 {
    let first = (number.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let second = (first ^ (first >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    second ^ (second >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_enough_commands_and_each_has_a_group() {
        let all = parse(COMMANDS).unwrap();
        assert!(all.len() >= 120, "{}", all.len());
        assert!(all.iter().all(|command| !command.group.is_empty()));
    }

    #[test]
    fn groups_name_what_they_need() {
        let all = parse("[a]\nx: one: two\n\n# no\n[b: p q]\ny: z\n").unwrap();
        assert_eq!((all[0].script.as_str(), all[0].needs.len()), ("one: two", 0));
        assert_eq!(all[1].needs, ["p", "q"]);
        assert!(parse("x: a\nx: b\n").is_err());
    }

    #[test]
    fn a_sample_is_the_same_for_the_same_seed() {
        let all = parse(COMMANDS).unwrap();
        assert_eq!(sample(all.clone(), 9, 3), sample(all.clone(), 9, 3));
        assert_ne!(sample(all.clone(), 9, 3), sample(all, 9, 4));
    }
}
