//! Which moments to cut the power at, and what reaches the platter of what was on its way.

use std::collections::HashSet;
use std::ops::Range;

use fastrand::Rng;
use serde::Serialize;

use super::log::{DiskEvent, Log};

const SECTOR_LEN: usize = 512;
/// ext4's superblock is one sector's worth of fields and a checksum in the next; a real disk writes this block as one.
const NEVER_TORN_LEN: u64 = 4096;
/// How often a random cut may turn out to be one that we have, before we take it that there are no others.
const DUPLICATES_MAX: u32 = 1000;

/// A write that reached the platter although nothing had promised that.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Kept {
    /// Which event of [`Log::disk`].
    pub event: usize,
    /// Which part of its data, bytes; whole sectors.
    pub part: Range<usize>,
}

/// A power failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Cut {
    /// The moment.
    pub at: u64,
    /// So many events of [`Log::disk`] are on the platter for certain.
    pub certain: usize,
    /// What else is, in the order in which it was sent.
    pub kept: Vec<Kept>,
}

/// The cuts to try, in the order of time.
#[derive(Clone, Debug)]
pub struct CutPlan {
    /// What brings about the same plan for the same log.
    pub seed: u64,
    /// The cuts.
    pub cuts: Vec<Cut>,
}

impl CutPlan {
    /// At most `count` cuts, fewer if the log does not have as many different ones. Up to a half come right after a
    /// flush and a quarter right after a message, with everything lost that may be lost. The rest come at random
    /// moments, with random writes, or parts of writes, kept.
    ///
    /// Right after a flush the platter is what the file system has made certain and nothing else: a size that was
    /// committed before the data that it counts shows there and hardly anywhere else.
    pub fn new(log: &Log, seed: u64, count: usize) -> CutPlan {
        let mut rng = Rng::with_seed(seed);
        let mut seen = HashSet::new();
        let mut cuts = Vec::new();
        let mut add = |cuts: &mut Vec<Cut>, cut: Cut| {
            let observed = log.observed(cut.at).len();
            let new = seen.insert((cut.certain, cut.kept.clone(), observed));
            if new {
                cuts.push(cut);
            }
            new
        };
        let flush_ends = log.disk.iter().filter_map(|event| match event {
            DiskEvent::Flush { end, .. } => Some(*end),
            DiskEvent::Write { .. } => None,
        });
        let messages = log.messages.iter().map(|message| message.clock);
        add(&mut cuts, Cut::nothing_kept(log, log.end));
        // Flushes come in rounds of a few for each commit: evenly spread ones could all be the same of a round.
        let mut flushes: Vec<u64> = flush_ends.collect();
        rng.shuffle(&mut flushes);
        flushes.truncate(count / 2);
        for clock in flushes.into_iter().chain(spread(&messages.collect::<Vec<_>>(), count / 4)) {
            add(&mut cuts, Cut::nothing_kept(log, clock + 1));
        }
        let first = log.end.min(first_clock(log));
        let mut duplicates = 0;
        while cuts.len() < count && duplicates < DUPLICATES_MAX {
            let at = rng.u64(first..=log.end);
            if !add(&mut cuts, Cut::random(log, at, &mut rng)) {
                duplicates += 1;
            }
        }
        cuts.truncate(count);
        cuts.sort_by_key(|cut| (cut.certain, cut.at));
        CutPlan { seed, cuts }
    }
}

fn first_clock(log: &Log) -> u64 {
    let disk = log.disk.first().map(|event| match event {
        DiskEvent::Write { issued, .. } => *issued,
        DiskEvent::Flush { begin, .. } => *begin,
    });
    let message = log.messages.first().map(|message| message.clock);
    disk.into_iter().chain(message).min().unwrap_or(0)
}

/// At most `count` of them, evenly spread, the last one among them.
fn spread(moments: &[u64], count: usize) -> Vec<u64> {
    let count = count.min(moments.len());
    (1..=count).map(|nth| moments[nth * moments.len() / count - 1]).collect()
}

impl Cut {
    /// At `at`, and whatever can be lost is.
    pub fn nothing_kept(log: &Log, at: u64) -> Cut {
        let (certain, _) = log.on_platter(at);
        let kept = Vec::new();
        Cut { at, certain, kept }
    }

    fn random(log: &Log, at: u64, rng: &mut Rng) -> Cut {
        let (certain, pending) = log.on_platter(at);
        let some = pick(&pending, rng);
        let tear = rng.u8(..4) == 0;
        let kept = some.into_iter().map(|event| keep(log, event, tear && rng.bool(), rng));
        let kept = kept.collect();
        Cut { at, certain, kept }
    }

    /// The writes of this cut that are not known for certain, as what goes where.
    pub fn patches<'log>(&self, log: &'log Log) -> Vec<(u64, &'log [u8])> {
        let patch = |kept: &Kept| match &log.disk[kept.event] {
            DiskEvent::Write { offset, data, .. } => {
                Some((offset + kept.part.start as u64, data.get(kept.part.clone())?))
            }
            DiskEvent::Flush { .. } => None,
        };
        self.kept.iter().filter_map(patch).collect()
    }
}

/// Some of the pending writes: each shape of a loss is likely, not only the even mixture.
fn pick(pending: &[usize], rng: &mut Rng) -> Vec<usize> {
    if pending.is_empty() {
        return Vec::new();
    }
    let split = rng.usize(..=pending.len());
    let one = rng.usize(..pending.len());
    match rng.u8(..7) {
        0 => pending.to_vec(),
        1 => pending[..split].to_vec(),
        2 => pending[split..].to_vec(),
        3 => vec![pending[one]],
        4 => [&pending[..one], &pending[one + 1..]].concat(),
        5 => pending.iter().copied().filter(|_| rng.u8(..8) != 0).collect(),
        _ => pending.iter().copied().filter(|_| rng.bool()).collect(),
    }
}

fn keep(log: &Log, event: usize, torn: bool, rng: &mut Rng) -> Kept {
    let (offset, len) = match &log.disk[event] {
        DiskEvent::Write { offset, data, .. } => (*offset, data.len()),
        DiskEvent::Flush { .. } => (0, 0),
    };
    let sectors = len / SECTOR_LEN;
    if !torn || sectors < 2 || offset < NEVER_TORN_LEN {
        return Kept { event, part: 0..len };
    }
    let middle = rng.usize(1..sectors) * SECTOR_LEN;
    let part = match rng.bool() {
        true => 0..middle,
        false => middle..len,
    };
    Kept { event, part }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        let mut disk = Vec::new();
        for n in 0..10 {
            disk.push(DiskEvent::Write {
                issued: n * 4,
                done: n * 4 + 1,
                offset: 8192 + n * 4096,
                data: vec![n as u8; 4096],
            });
            if n % 5 == 4 {
                disk.push(DiskEvent::Flush { begin: n * 4 + 2, end: n * 4 + 3 });
            }
        }
        Log { base: vec![0; 65536], disk, messages: Vec::new(), end: 40 }
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_another() {
        let log = log();
        let plan = CutPlan::new(&log, 7, 100);
        assert_eq!(plan.cuts, CutPlan::new(&log, 7, 100).cuts);
        assert_ne!(plan.cuts, CutPlan::new(&log, 8, 100).cuts);
        assert!(plan.cuts.len() > 50 && plan.cuts.len() <= 100);
    }

    #[test]
    fn half_of_the_cuts_come_right_after_a_flush() {
        let disk = (0..100).map(|n| match n % 2 {
            0 => DiskEvent::Write { issued: n * 3, done: n * 3 + 1, offset: 8192 + n * 4096, data: vec![1; 4096] },
            _ => DiskEvent::Flush { begin: n * 3, end: n * 3 + 1 },
        });
        let log = Log { base: vec![0; 1 << 20], disk: disk.collect(), messages: Vec::new(), end: 300 };
        let is_right_after_a_flush = |cut: &&Cut| {
            let ends = |event: &DiskEvent| matches!(event, DiskEvent::Flush { end, .. } if *end + 1 == cut.at);
            cut.kept.is_empty() && log.disk.iter().any(ends)
        };
        let plan = CutPlan::new(&log, 3, 40);
        assert!(plan.cuts.iter().filter(is_right_after_a_flush).count() >= 20);
    }

    #[test]
    fn nothing_is_kept_that_was_not_issued_and_parts_are_whole_sectors() {
        let log = log();
        let mut torn = 0;
        for cut in CutPlan::new(&log, 1, 300).cuts {
            let (certain, pending) = log.on_platter(cut.at);
            assert_eq!(cut.certain, certain);
            for kept in &cut.kept {
                assert!(pending.contains(&kept.event));
                assert!(kept.part.start % 512 == 0 && kept.part.end % 512 == 0);
                torn += usize::from(kept.part.len() < 4096);
            }
        }
        assert!(torn > 0);
    }
}
