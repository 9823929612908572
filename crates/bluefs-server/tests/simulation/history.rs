//! What clients did and saw, and whether one copy of the files could have answered so: every change takes effect once,
//! between its call and its return, in the order of its CSN, and what a client sees is the state at one point between
//! its own call and return.

use std::collections::BTreeMap;

use bluefs::lease::Millis;
use bluefs::{Csn, SessionId};

/// The contents of a file: the tokens that were appended to it.
pub type Contents = Vec<u64>;

/// One of the files.
pub type File = usize;

#[derive(Debug)]
pub struct Write {
    pub called: Millis,
    pub returned: Option<Millis>,
    pub appends: Vec<(File, u64)>,
    /// What it was told before, and depends on.
    pub saw: Option<(File, Contents)>,
    /// The client was told that it has failed.
    pub failed: bool,
    csn: Option<Csn>,
}

#[derive(Debug)]
struct Read {
    called: Millis,
    returned: Millis,
    file: File,
    saw: Contents,
}

/// A lock, as its owner knows it: from when it was told that it has it, until it gave it back or was over.
#[derive(Debug)]
pub struct Hold {
    pub owner: u64,
    pub file: File,
    pub from: Millis,
    pub to: Millis,
}

/// A range of time and groups in which nobody else may change anything.
#[derive(Debug)]
pub struct Alone {
    pub owner: SessionId,
    pub files: Vec<File>,
    pub from: Millis,
    pub to: Millis,
}

#[derive(Debug, Default)]
pub struct History {
    writes: Vec<Write>,
    numbers: BTreeMap<(SessionId, u64), usize>,
    reads: Vec<Read>,
    commits: BTreeMap<Csn, usize>,
    committed_at: Vec<(Millis, SessionId, usize)>,
    pub holds: Vec<Hold>,
    pub alone: Vec<Alone>,
    pub opened: u64,
    /// What cannot be, as it was noticed.
    pub wrong: Vec<String>,
}

impl History {
    /// A change is sent; its number follows.
    pub fn write(&mut self, called: Millis, appends: Vec<(File, u64)>, saw: Option<(File, Contents)>) -> usize {
        self.writes.push(Write { called, returned: None, appends, saw, failed: false, csn: None });
        self.writes.len() - 1
    }

    pub fn numbered(&mut self, session: SessionId, number: u64, write: usize) {
        self.numbers.insert((session, number), write);
    }

    pub fn returned(&mut self, write: usize, now: Millis, committed: bool) {
        (self.writes[write].returned, self.writes[write].failed) = (Some(now), !committed);
    }

    pub fn read(&mut self, called: Millis, returned: Millis, file: File, saw: Contents) {
        self.reads.push(Read { called, returned, file, saw });
    }

    /// The server has committed an interval. It says so again whenever it is asked.
    pub fn committed(&mut self, session: SessionId, number: u64, csn: Csn, now: Millis) {
        let Some(&write) = self.numbers.get(&(session, number)) else { return };
        match self.writes[write].csn {
            Some(known) if known == csn => return,
            Some(known) => self.wrong.push(format!("{write} is committed as {} and {}", known.0, csn.0)),
            None => {}
        }
        self.writes[write].csn = Some(csn);
        self.committed_at.push((now, session, write));
        if self.commits.insert(csn, write).is_some_and(|other| other != write) {
            self.wrong.push(format!("two intervals are committed as {}", csn.0));
        }
    }

    /// A server that was started again has this as its newest commit: nobody was told of later ones.
    pub fn restarted(&mut self, newest: Csn) {
        for (_, write) in self.commits.split_off(&Csn(newest.0 + 1)) {
            if self.writes[write].returned.is_some() && !self.writes[write].failed {
                self.wrong.push(format!("{write} was acknowledged and is lost"));
            }
            self.writes[write].csn = None;
            self.committed_at.retain(|(.., committed)| *committed != write);
        }
    }

    pub fn counts(&self) -> [usize; 4] {
        let failed = self.writes.iter().filter(|write| write.failed).count();
        [self.commits.len(), failed, self.reads.len(), self.holds.len()]
    }

    /// Whether all of it could have been one copy; `end` is what is in the files at the end.
    pub fn check(mut self, end: &[Contents]) -> Vec<String> {
        let states = self.states(end.len());
        let last = states.last_key_value().expect("the first state").1;
        if last != end {
            self.wrong.push(format!("the files have {end:?}, and the commits make {last:?}"));
        }
        self.check_writes(&states);
        self.check_order(&states);
        self.check_holds();
        self.check_alone();
        self.wrong
    }

    /// What the files have after each commit.
    fn states(&self, files: usize) -> BTreeMap<Csn, Vec<Contents>> {
        let mut now = vec![Contents::new(); files];
        let mut states = BTreeMap::from([(Csn(0), now.clone())]);
        for (csn, write) in &self.commits {
            self.writes[*write].appends.iter().for_each(|(file, token)| now[*file].push(*token));
            states.insert(*csn, now.clone());
        }
        states
    }

    fn check_writes(&mut self, states: &BTreeMap<Csn, Vec<Contents>>) {
        for (i, write) in self.writes.iter().enumerate() {
            match write.csn {
                Some(_) if write.failed => self.wrong.push(format!("{i} has failed and is committed")),
                None if write.returned.is_some() && !write.failed => self.wrong.push(format!("{i} was not committed")),
                Some(csn) => {
                    let before = states.range(..csn).next_back().expect("the first state").1;
                    // A session knows itself what it has changed since.
                    let own = write.appends[0].1 >> 32;
                    let others = |all: &Contents| all.iter().copied().filter(|t| t >> 32 != own).collect::<Contents>();
                    let differs = |saw: &&(File, Contents)| others(&before[saw.0]) != others(&saw.1);
                    if let Some((_, saw)) = write.saw.as_ref().filter(differs) {
                        self.wrong.push(format!("{i} is based on {saw:?}, which was {before:?} when it took effect"));
                    }
                }
                None => {}
            }
        }
    }

    /// Gives each read the earliest point that it can have, in the order of returning: it lies behind everything that
    /// had returned when the read was called.
    fn check_order(&mut self, states: &BTreeMap<Csn, Vec<Contents>>) {
        let committed = |write: &Write| Some((write.called, write.returned.unwrap_or(Millis::MAX), write.csn?));
        let writes: Vec<(Millis, Millis, Csn)> = self.writes.iter().filter_map(committed).collect();
        self.reads.sort_by_key(|read| read.returned);
        let mut points: Vec<(Millis, Csn)> = Vec::new();
        let before = |points: &[(Millis, Csn)], called: Millis| {
            let of_writes = writes.iter().filter(|(_, returned, _)| *returned < called).map(|(.., csn)| *csn);
            let of_reads = points.iter().filter(|(returned, _)| *returned < called).map(|(_, csn)| *csn);
            of_writes.chain(of_reads).max().unwrap_or(Csn(0))
        };
        for read in &self.reads {
            let low = before(&points, read.called);
            let later = writes.iter().filter(|(called, ..)| *called > read.returned).map(|(.., csn)| *csn);
            let high = later.min().unwrap_or(Csn(u64::MAX));
            // A state lasts until the next commit.
            let from = *states.range(..=low).next_back().expect("the first state").0;
            let point = states.range(from..high).find(|(_, state)| state[read.file] == read.saw);
            match point {
                Some((csn, _)) => points.push((read.returned, low.max(*csn))),
                None => self.wrong.push(format!("between {} and {} nobody could see this: {read:?}", low.0, high.0)),
            }
        }
        for (called, _, csn) in &writes {
            if before(&points, *called) >= *csn {
                self.wrong.push(format!("commit {} was called after what is behind it had returned", csn.0));
            }
        }
    }

    fn check_holds(&mut self) {
        let holds = self.holds.iter().enumerate();
        let pairs = holds.flat_map(|(i, a)| self.holds[i + 1..].iter().map(move |b| (a, b)));
        let both = |a: &Hold, b: &Hold| a.file == b.file && a.owner != b.owner && a.from < b.to && b.from < a.to;
        let wrong = pairs.filter(|(a, b)| both(a, b)).map(|(a, b)| format!("two have a lock: {a:?} {b:?}"));
        self.wrong.extend(wrong.collect::<Vec<_>>());
    }

    fn check_alone(&mut self) {
        for (at, by, write) in &self.committed_at {
            let appends = &self.writes[*write].appends;
            let disturbs = |one: &&Alone| {
                one.owner != *by
                    && (one.from..one.to).contains(at)
                    && appends.iter().any(|(file, _)| one.files.contains(file))
            };
            if let Some(one) = self.alone.iter().find(disturbs) {
                self.wrong.push(format!("{by:?} has changed at {at} what {one:?} has alone"));
            }
        }
    }
}
