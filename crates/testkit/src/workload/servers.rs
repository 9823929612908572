//! Servers whose clients are outside (`programs/servers.py`): what was acknowledged to a client is in what the server
//! finds after the crash, and what a client sent later is not there without what it sent earlier.

use std::collections::BTreeMap;
use std::path::Path;

use super::programs::{output_of, Programs};
use crate::crash::{Channel, CrashError, Message, Violation};

/// Numbers of a client: how many, from 0 on.
type Counts = BTreeMap<u64, u64>;

/// Makes what has to be there before the server starts, durable.
pub fn prepare(programs: &Programs, kind: &str, dir: &Path) -> Result<(), CrashError> {
    output_of(programs.servers().args(["prepare", kind]).arg(dir))?;
    let what = || format!("sync {}", dir.display());
    let opened = std::fs::File::open(dir).map_err(CrashError::system(what()))?;
    rustix::fs::syncfs(&opened).map_err(CrashError::system(what()))
}

/// Starts the server on what is there, natively, and looks.
pub fn check(programs: &Programs, kind: &str, dir: &Path, observed: &[Message]) -> Vec<Violation> {
    let told = observed.iter().filter(|message| message.channel != Channel::Exit);
    let seen = match counts(told.map(|message| message.text.as_str())) {
        Ok(seen) => seen,
        Err(what) => return vec![Violation::OutOfOrder(format!("told {what}"))],
    };
    match output_of(programs.servers().args(["recover", kind]).arg(dir)) {
        Ok(found) => verdict(counts(found.lines()), &seen),
        Err(error) => vec![Violation::Corrupt(error.to_string())],
    }
}

fn verdict(found: Result<Counts, String>, seen: &Counts) -> Vec<Violation> {
    let found = match found {
        Ok(found) => found,
        Err(what) => return vec![Violation::OutOfOrder(format!("found {what}"))],
    };
    let lost = seen.iter().filter(|(client, count)| found.get(client).unwrap_or(&0) < count);
    let violation = |(client, count): (&u64, &u64)| {
        let found = found.get(client).unwrap_or(&0);
        Violation::NotDurable(format!("{found} of client {client}, {count} were acknowledged"))
    };
    lost.map(violation).collect()
}

/// Of lines with a client and its number each: how many of each client. Each client's numbers come in order.
fn counts<'line>(lines: impl Iterator<Item = &'line str>) -> Result<Counts, String> {
    let mut counts = Counts::new();
    for line in lines {
        let parsed =
            line.split_once(' ').and_then(|(client, number)| Some((client.parse().ok()?, number.parse().ok()?)));
        let (client, number): (u64, u64) = parsed.ok_or_else(|| format!("{line:?}"))?;
        let due = counts.entry(client).or_default();
        if number != *due {
            return Err(format!("{number} of client {client} where {due} was due"));
        }
        *due += 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Result<Counts, String> {
        counts(lines.iter().copied())
    }

    #[test]
    fn what_was_acknowledged_is_there() {
        let seen = of(&["0 0", "1 0", "0 1"]).unwrap();
        assert_eq!(verdict(of(&["0 0", "0 1", "1 0", "1 1", "2 0"]), &seen), []);
        assert!(matches!(verdict(of(&["0 0", "1 0"]), &seen)[..], [Violation::NotDurable(_)]));
        assert!(matches!(verdict(of(&[]), &seen)[..], [Violation::NotDurable(_), Violation::NotDurable(_)]));
    }

    #[test]
    fn a_later_one_without_an_earlier_one_is_out_of_order() {
        assert!(of(&["0 1"]).is_err());
        assert!(of(&["0 0", "0 2"]).is_err());
        assert!(of(&["0 x"]).is_err());
        assert!(matches!(verdict(of(&["0 1"]), &Counts::new())[..], [Violation::OutOfOrder(_)]));
    }
}
