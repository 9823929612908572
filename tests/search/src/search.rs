//! Which pairs tell, and which of those are holes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;

use crate::cells::{is_outside, Cell, Cells, Pair, Place, Said, NOTHING};
use crate::known;

/// So many cells side by side; they mostly sleep.
const NATIVELY: usize = 250;
const INSIDE: usize = 80;
/// So few, when what was seen beside many is to be seen again.
const ALONE: usize = 16;
const SLOWER: u32 = 3;
/// Groups of cells at a time.
const AT_ONCE: usize = 4;

/// One search.
pub struct Search<'a> {
    pub cells: &'a Cells,
    pub verbose: bool,
}

/// What came of a search.
#[derive(Debug, Default)]
pub struct Found {
    pairs: usize,
    tells: usize,
    held: usize,
    /// B says what it says without the action: that waits, or does not show.
    quiet: usize,
    /// B said nothing, or not the same twice without the action.
    unclear: usize,
    holes: Vec<Hole>,
    /// Holes that are left, and why.
    known: Vec<(Pair, &'static str)>,
    /// Listed, and no holes though they tell. (What tells may depend on the file system: how it is mounted.)
    rotten: Vec<Pair>,
}

/// A pair whose B tells what is not durable.
#[derive(Debug)]
struct Hole {
    pair: Pair,
    with: String,
    without: String,
}

/// What came of a pair that tells.
enum Outcome {
    Held,
    Quiet,
    Unclear,
    Hole(Hole),
}

impl Search<'_> {
    /// Plays `pairs` natively, and those that tell inside.
    pub fn run(&self, pairs: &[Pair]) -> Result<Found, String> {
        let tells = self.telling(pairs)?;
        eprintln!("{} tell", tells.len());
        let outcomes = self.outcomes(&tells)?;
        let mut found = Found { pairs: pairs.len(), tells: tells.len(), ..Found::default() };
        for (pair, outcome) in tells.iter().zip(outcomes) {
            let reason = known::reason(pair, self.cells.holds_input);
            if reason.is_some() && matches!(outcome, Outcome::Held | Outcome::Quiet) {
                found.rotten.push(pair.clone());
            }
            match (outcome, reason) {
                (Outcome::Held, _) => found.held += 1,
                (Outcome::Quiet, _) => found.quiet += 1,
                (Outcome::Unclear, _) => found.unclear += 1,
                (Outcome::Hole(hole), Some(reason)) => found.known.push((hole.pair, reason)),
                (Outcome::Hole(hole), None) => found.holes.push(hole),
            }
        }
        Ok(found)
    }

    /// The pairs that tell natively.
    fn telling(&self, pairs: &[Pair]) -> Result<Vec<Pair>, String> {
        let usual = self.usual(pairs)?;
        let once = self.play(&acting(pairs, true), Place::Natively, NATIVELY, 1)?;
        let is_usual = |pair: &Pair, said: &Said| said.seen == usual[&pair.observation];
        let (same, differing): (Vec<_>, Vec<_>) = pairs.iter().zip(once).partition(|(pair, said)| is_usual(pair, said));
        let mut candidates: Vec<Pair> = differing.into_iter().map(|(pair, _)| pair.clone()).collect();
        // What is as if A had done nothing at all may be an action that undoes what was prepared for it.
        let is_prepared = |pair: &&Pair| self.cells.prepares(&pair.action);
        let undone: Vec<Pair> = same.into_iter().map(|(pair, _)| pair).filter(is_prepared).cloned().collect();
        let prepared = self.play(&acting(&undone, false), Place::Natively, NATIVELY, 1)?;
        let undone = undone.into_iter().zip(prepared).filter(|(pair, said)| !is_usual(pair, said));
        candidates.extend(undone.map(|(pair, _)| pair));
        eprintln!("{} of {} pairs may tell", candidates.len(), pairs.len());
        let tells = self.compare(&candidates, Place::Natively, NATIVELY, 1)?;
        let tells = candidates.into_iter().zip(tells).filter(|(_, compared)| compared.difference().is_some());
        Ok(tells.map(|(pair, _)| pair).collect())
    }

    /// What each observation sees when A does nothing, if that does not depend on chance.
    fn usual(&self, pairs: &[Pair]) -> Result<HashMap<String, Option<String>>, String> {
        let names: HashSet<&String> = pairs.iter().map(|pair| &pair.observation).collect();
        let of = |name: &&String| Pair { action: NOTHING.to_owned(), observation: (*name).clone() };
        let pairs: Vec<Pair> = names.iter().map(of).collect();
        let said = self.play(&acting(&pairs, false), Place::Natively, NATIVELY, 1)?;
        Ok(pairs.into_iter().map(|pair| pair.observation).zip(said.into_iter().map(|said| said.seen)).collect())
    }

    /// Twice with the action, twice without. In one world all do the same: what one changes another one depends on,
    /// where the world has one clock for all names and one for all messages, and would be held for that. A B outside is
    /// not held, and its A has changed a file of its own before it acts: such pairs stand side by side as they come.
    fn compare(&self, pairs: &[Pair], place: Place, beside: usize, slowness: u32) -> Result<Vec<Compared>, String> {
        let mut alike: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (at, Pair { action, observation }) in pairs.iter().enumerate() {
            let is_alone = place == Place::Inside && self.cells.changing.contains(observation);
            let is_apart = place == Place::Inside && !is_outside(observation);
            let action = if is_apart { action } else { "" };
            alike.entry((action, if is_alone { observation } else { "" })).or_default().push(at);
        }
        // Those without a common action are never so few in a world that the worlds would be many.
        let beside = |action: &str| if action.is_empty() { beside.max(INSIDE) } else { beside };
        let groups: Vec<&[usize]> =
            alike.iter().flat_map(|(&(action, _), indices)| indices.chunks(beside(action).div_ceil(4))).collect();
        let four = |&at: &usize| [true, false, true, false].map(|acts| Cell { pair: pairs[at].clone(), acts });
        let cells = groups.iter().map(|group| group.iter().flat_map(four).collect()).collect();
        let mut said = self.play_groups(cells, place, slowness)?.into_iter();
        let mut next = || said.next().ok_or("cells are missing");
        let mut compared = BTreeMap::new();
        for &at in groups.into_iter().flatten() {
            let [first, second, third, fourth] = [next()?, next()?, next()?, next()?];
            compared.insert(at, Compared { with: [first, third], without: [second, fourth] });
        }
        Ok(compared.into_values().collect())
    }

    /// What comes of pairs that tell, inside.
    fn outcomes(&self, pairs: &[Pair]) -> Result<Vec<Outcome>, String> {
        let compared = self.compare(pairs, Place::Inside, INSIDE, 1)?;
        // What was not held, or did not show, beside others is played again beside few.
        let again: Vec<usize> = (0..pairs.len()).filter(|&at| !compared[at].is_held()).collect();
        let pairs_again: Vec<Pair> = again.iter().map(|&at| pairs[at].clone()).collect();
        let compared_again = self.compare(&pairs_again, Place::Inside, ALONE, SLOWER)?;
        let mut second: HashMap<usize, Compared> = again.into_iter().zip(compared_again).collect();
        let mut outcomes = Vec::new();
        for (at, (pair, first)) in pairs.iter().zip(compared).enumerate() {
            let last = second.remove(&at).unwrap_or(first);
            let outcome = last.outcome(pair);
            if self.verbose {
                println!("{:24} {:24} {:7} {:?}", pair.action, pair.observation, outcome.name(), last);
            }
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// Plays `cells`, so many beside each other.
    fn play(&self, cells: &[Cell], place: Place, beside: usize, slowness: u32) -> Result<Vec<Said>, String> {
        self.play_groups(cells.chunks(beside).map(<[Cell]>::to_vec).collect(), place, slowness)
    }

    /// Plays the cells of each group side by side; what all said.
    fn play_groups(&self, groups: Vec<Vec<Cell>>, place: Place, slowness: u32) -> Result<Vec<Said>, String> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(group) = groups.get(at) else { break };
                    let said = self.cells.play(group, place, slowness);
                    results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((at, said));
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        results.sort_by_key(|(at, _)| *at);
        let groups: Result<Vec<Vec<Said>>, String> = results.into_iter().map(|(_, said)| said).collect();
        Ok(groups?.concat())
    }
}

fn acting(pairs: &[Pair], acts: bool) -> Vec<Cell> {
    pairs.iter().map(|pair| Cell { pair: pair.clone(), acts }).collect()
}

/// What B said in two plays with the action, and in two without.
#[derive(Debug)]
struct Compared {
    with: [Said; 2],
    without: [Said; 2],
}

impl Compared {
    /// What B sees with the action and without, if that differs and does not depend on chance.
    fn difference(&self) -> Option<(&str, &str)> {
        let without = self.without[0].seen.as_deref()?;
        let is_stable = self.without[1].seen.as_deref() == Some(without);
        let differs = self.with.iter().all(|said| said.seen.as_deref().is_some_and(|seen| seen != without));
        (is_stable && differs).then_some((self.with[0].seen.as_deref()?, without))
    }

    fn is_held(&self) -> bool {
        self.with.iter().all(|said| !said.is_early && said.seen.is_some())
    }

    fn outcome(&self, pair: &Pair) -> Outcome {
        let is_early = self.with.iter().any(|said| said.is_early);
        match self.difference() {
            _ if self.is_held() => Outcome::Held,
            Some((with, without)) if is_early => {
                Outcome::Hole(Hole { pair: pair.clone(), with: with.to_owned(), without: without.to_owned() })
            }
            _ if self.with[0].seen.is_some() && self.with[0].seen == self.without[0].seen => Outcome::Quiet,
            _ => Outcome::Unclear,
        }
    }
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Outcome::Held => "held",
            Outcome::Quiet => "quiet",
            Outcome::Unclear => "unclear",
            Outcome::Hole(_) => "HOLE",
        }
    }
}

/// What a search says of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All holes are known, and all that are known are holes.
    AsKnown,
    /// There is one that is not known.
    Hole,
    /// One that is listed is none.
    Rotten,
}

impl Found {
    /// An error says that the search shows nothing.
    pub fn verdict(&self) -> Result<Verdict, String> {
        if !self.holes.is_empty() {
            return Ok(Verdict::Hole);
        }
        // Where no B says anything, none says anything too early.
        if self.unclear * 2 > self.tells {
            return Err(format!("{} of {} pairs that tell are unclear: that shows nothing", self.unclear, self.tells));
        }
        Ok(if self.rotten.is_empty() { Verdict::AsKnown } else { Verdict::Rotten })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (Pair { action, observation }, reason) in &self.known {
            writeln!(f, "known: {action} {observation}: {reason}")?;
        }
        for Hole { pair: Pair { action, observation }, with, without } in &self.holes {
            writeln!(f, "HOLE: B says \"{with}\" before A's change is durable, and \"{without}\" if A does nothing")?;
            writeln!(f, "    cargo xtask search --action {action} --observation {observation}")?;
        }
        for Pair { action, observation } in &self.rotten {
            writeln!(f, "no hole any more, but listed as one: {action} {observation}")?;
        }
        let Found { pairs, tells, held, quiet, unclear, holes, known, .. } = self;
        write!(f, "{pairs} pairs, {tells} tell: {held} held, {quiet} where the action waits or does not show, ")?;
        writeln!(f, "{unclear} unclear, {} known, {} holes", known.len(), holes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_in_which_nobody_says_anything_shows_nothing() {
        let found = |tells, unclear| Found { tells, unclear, ..Found::default() };
        assert_eq!(found(0, 0).verdict(), Ok(Verdict::AsKnown));
        assert_eq!(found(4, 2).verdict(), Ok(Verdict::AsKnown));
        assert!(found(4, 3).verdict().is_err() && found(1, 1).verdict().is_err());
        let hole = Hole { pair: pair(), with: String::new(), without: String::new() };
        assert_eq!(Found { holes: vec![hole], ..found(1, 0) }.verdict(), Ok(Verdict::Hole));
        assert_eq!(Found { rotten: vec![pair()], ..found(1, 0) }.verdict(), Ok(Verdict::Rotten));
    }

    fn pair() -> Pair {
        Pair { action: "a".to_owned(), observation: "b".to_owned() }
    }
}
