//! Where the event loop's time goes: what it did between one stop of a thread and the wait for the next one.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tracee::{Event, Stop, Stopped};

/// How often something was done, and how long it took altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// How often.
    pub count: u64,
    /// Microseconds.
    pub us: u64,
}

/// What came of a question about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answered {
    /// The process makes the call.
    Go,
    /// The process makes it, and has a permit for more of its kind.
    Permit,
    /// The process makes it, and tells when it has been made.
    Tell,
    /// The supervisor has made the call, or knows its result.
    Answer,
    /// The call waits, or its thread has ended.
    Later,
}

impl Answered {
    pub fn name(self) -> &'static str {
        match self {
            Self::Go => "made",
            Self::Permit => "made on a permit",
            Self::Tell => "made and told",
            Self::Answer => "answered",
            Self::Later => "later or never",
        }
    }
}

/// What an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// A stop for this reason.
    Stop(&'static str),
    /// A question of full speculation about a call, by its number, and what came of it.
    Asked(u64, Answered),
    /// A thread has ended.
    End,
    /// Nothing: time has passed.
    Time,
}

impl Cause {
    pub fn of(event: &Option<Event>) -> Self {
        match event {
            Some(Event::Stopped(stopped)) => Self::Stop(reason_of(stopped)),
            Some(Event::Exited { .. }) => Self::End,
            None => Self::Time,
        }
    }
}

/// Why a thread has stopped.
pub(crate) fn reason_of(stopped: &Stopped) -> &'static str {
    match stopped.stop() {
        Stop::Trap => "birth",
        Stop::Exec { .. } => "exec",
        Stop::SystemCall => "call",
        Stop::Signal(_) => "signal",
        Stop::Group(_) => "group",
        Stop::Exit => "end",
    }
}

/// The accounts of one world.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    spent: HashMap<Cause, (u64, Duration)>,
    current: Option<(Cause, Instant)>,
}

impl Accounts {
    /// An event has come.
    pub fn begin(&mut self, cause: Cause) {
        self.current = Some((cause, Instant::now()));
    }

    /// More is known of the event.
    pub fn is(&mut self, cause: Cause) {
        if let Some((current, _)) = &mut self.current {
            *current = cause;
        }
    }

    /// Everything that follows from the event has been done.
    pub fn end(&mut self) {
        let Some((cause, since)) = self.current.take() else { return };
        let (count, time) = self.spent.entry(cause).or_default();
        *count += 1;
        *time += since.elapsed();
    }

    /// By name: `openat: answered`, `exec`.
    pub fn by_name(&self) -> BTreeMap<String, Spent> {
        let mut named = BTreeMap::<String, Spent>::new();
        for (cause, (count, time)) in &self.spent {
            let name = match *cause {
                Cause::Stop(reason) => reason.to_owned(),
                Cause::Asked(nr, answered) => {
                    let call = syscall_table::row(nr).map_or("speculate", |row| row.name);
                    format!("{call}: {}", answered.name())
                }
                Cause::End => "gone".to_owned(),
                Cause::Time => "time".to_owned(),
            };
            let spent = named.entry(name).or_default();
            spent.count += count;
            spent.us += time.as_micros() as u64;
        }
        named
    }
}

/// What took longest, in one line.
pub(crate) fn longest(spent: &BTreeMap<String, Spent>) -> String {
    const SHOWN: usize = 6;
    let mut by_time: Vec<_> = spent.iter().collect();
    by_time.sort_by_key(|(_, spent)| std::cmp::Reverse(spent.us));
    let all: u64 = spent.values().map(|spent| spent.us).sum();
    let shown = by_time
        .iter()
        .take(SHOWN)
        .map(|(name, spent)| format!("; {name}: {:.3} s for {}", spent.us as f64 / 1e6, spent.count));
    format!("{:.3} s{}", all as f64 / 1e6, shown.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_as_what_is_known_of_it_in_the_end() {
        let mut accounts = Accounts::default();
        accounts.end();
        accounts.begin(Cause::Stop("call"));
        accounts.is(Cause::Asked(syscall_table::nr::openat, Answered::Answer));
        accounts.end();
        accounts.is(Cause::Time);
        accounts.begin(Cause::End);
        accounts.end();
        let named = accounts.by_name();
        let counts: Vec<_> = named.iter().map(|(name, spent)| (name.as_str(), spent.count)).collect();
        assert_eq!(counts, [("gone", 1), ("openat: answered", 1)]);
    }

    #[test]
    fn the_longest_come_first() {
        let of = |count, us| Spent { count, us };
        let spent = [("a".to_owned(), of(1, 1000)), ("b".to_owned(), of(2, 3000))].into();
        assert_eq!(longest(&spent), "0.004 s; b: 0.003 s for 2; a: 0.001 s for 1");
    }
}
