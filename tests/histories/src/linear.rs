//! Whether a history is linearizable: the algorithm of Wing and Gong with Lowe's memory of what was tried, as in
//! porcupine. A call that has not returned may have happened at any time after it began, or never.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// What one copy would do.
pub trait Model {
    /// What it remembers.
    type State: Clone + Eq + Hash;
    /// A call with its answer; a call without one has none.
    type Call;

    /// The state after the call, if the answer is what it would have said.
    fn step(state: &Self::State, call: &Self::Call) -> Option<Self::State>;
}

/// A call, and when it began and returned. No two times are the same.
#[derive(Debug, Clone)]
pub struct Timed<C> {
    /// What.
    pub call: C,
    /// When it began.
    pub began: u64,
    /// When it returned; `None`: never.
    pub returned: Option<u64>,
}

/// What is known of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// One copy could have answered so.
    Linearizable,
    /// None could.
    Violation(Stuck),
    /// It took too many attempts to find out.
    Undecided,
}

/// How far the best attempt came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stuck {
    /// These calls in this order.
    pub order: Vec<usize>,
    /// This one has returned by then, and cannot be among them.
    pub next: usize,
}

/// Judges a history, with so many attempts at most.
pub fn judge<M: Model>(start: M::State, history: &[Timed<M::Call>], attempts: usize) -> Verdict {
    Search::<M>::new(start, history).run(attempts)
}

/// An end of a call in the list of all of them, in the order of time. Calls that are in the order are taken out.
struct Entry {
    call: usize,
    is_return: bool,
    next: usize,
    before: usize,
}

struct Search<'h, M: Model> {
    history: &'h [Timed<M::Call>],
    /// The first one stands for the beginning; the end is its number, too.
    list: Vec<Entry>,
    /// Where each call begins and returns in `list`.
    places: Vec<(usize, Option<usize>)>,
    state: Rc<M::State>,
    /// Calls in the order, with the states before them.
    order: Vec<(usize, Rc<M::State>)>,
    done: Vec<u64>,
    /// Fingerprints of the calls that were in an order, with the state behind it: of 128 bits, as the states themselves
    /// would need gigabytes. If two were the same, a violation could be seen that is none.
    tried: HashSet<[u64; 2]>,
    best: Stuck,
}

impl<'h, M: Model> Search<'h, M> {
    fn new(start: M::State, history: &'h [Timed<M::Call>]) -> Self {
        let begins = history.iter().enumerate().map(|(call, timed)| (timed.began, call, false));
        let returns = history.iter().enumerate().filter_map(|(call, timed)| Some((timed.returned?, call, true)));
        let mut ends: Vec<_> = begins.chain(returns).collect();
        ends.sort_unstable();
        let count = ends.len() + 1;
        let mut list = vec![Entry { call: 0, is_return: false, next: 1 % count, before: count - 1 }];
        let mut places = vec![(0, None); history.len()];
        for (i, (_, call, is_return)) in ends.into_iter().enumerate() {
            let at = i + 1;
            list.push(Entry { call, is_return, next: (at + 1) % count, before: i });
            match is_return {
                false => places[call].0 = at,
                true => places[call].1 = Some(at),
            }
        }
        let done = vec![0; history.len().div_ceil(64)];
        let (order, tried, best) = (Vec::new(), HashSet::new(), Stuck::default());
        Search { history, list, places, state: Rc::new(start), order, done, tried, best }
    }

    fn run(mut self, attempts: usize) -> Verdict {
        let mut at = self.list[0].next;
        while at != 0 {
            let Entry { call, is_return, next, .. } = self.list[at];
            if !is_return {
                at = if self.take(call) { self.list[0].next } else { next };
                if self.tried.len() > attempts {
                    return Verdict::Undecided;
                }
                continue;
            }
            // It has returned, and is not in the order: the last one that is was wrong.
            if self.order.len() >= self.best.order.len() {
                self.best = Stuck { order: self.order.iter().map(|(call, _)| *call).collect(), next: call };
            }
            match self.put_back() {
                Some(place) => at = self.list[place].next,
                None => return Verdict::Violation(self.best),
            }
        }
        // Whatever has returned is in the order.
        Verdict::Linearizable
    }

    /// Puts a call behind the order, if its answer is right there and this was not tried before.
    fn take(&mut self, call: usize) -> bool {
        let Some(state) = M::step(&self.state, &self.history[call].call) else { return false };
        let state = Rc::new(state);
        self.done[call / 64] |= 1 << (call % 64);
        if !self.tried.insert([0, 1].map(|salt: u8| fingerprint(&(salt, &self.done, &state)))) {
            self.done[call / 64] &= !(1 << (call % 64));
            return false;
        }
        self.order.push((call, std::mem::replace(&mut self.state, state)));
        let (begin, end) = self.places[call];
        [Some(begin), end].into_iter().flatten().for_each(|place| self.unlink(place));
        true
    }

    /// Takes the last call out of the order. Says where it begins.
    fn put_back(&mut self) -> Option<usize> {
        let (call, state) = self.order.pop()?;
        self.state = state;
        self.done[call / 64] &= !(1 << (call % 64));
        let (begin, end) = self.places[call];
        [end, Some(begin)].into_iter().flatten().for_each(|place| self.link(place));
        Some(begin)
    }

    fn unlink(&mut self, place: usize) {
        let Entry { next, before, .. } = self.list[place];
        self.list[before].next = next;
        self.list[next].before = before;
    }

    fn link(&mut self, place: usize) {
        let Entry { next, before, .. } = self.list[place];
        self.list[before].next = place;
        self.list[next].before = place;
    }
}

fn fingerprint(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A register of which both writes and the exchange of two values are known.
    struct Register;

    #[derive(Debug, Clone, Copy)]
    enum Did {
        Wrote(u8),
        Read(u8),
        Exchanged(u8, u8),
    }

    impl Model for Register {
        type State = u8;
        type Call = Did;

        fn step(state: &u8, call: &Did) -> Option<u8> {
            match *call {
                Did::Wrote(value) => Some(value),
                Did::Read(value) => (value == *state).then_some(value),
                Did::Exchanged(from, to) => (from == *state).then_some(to),
            }
        }
    }

    /// Every order, one after the other.
    fn naive(state: u8, history: &[Timed<Did>], done: &mut Vec<usize>) -> bool {
        let left = |call: &usize| !done.contains(call);
        let waiting: Vec<usize> = (0..history.len()).filter(left).collect();
        let first_return = waiting.iter().filter_map(|&call| history[call].returned).min();
        let Some(first_return) = first_return else { return true };
        waiting.into_iter().filter(|&call| history[call].began < first_return).any(|call| {
            let Some(after) = Register::step(&state, &history[call].call) else { return false };
            done.push(call);
            let is_right = naive(after, history, done);
            done.pop();
            is_right
        })
    }

    fn did() -> impl Strategy<Value = Did> {
        let value = || 0u8..3;
        prop_oneof![
            value().prop_map(Did::Wrote),
            value().prop_map(Did::Read),
            (value(), value()).prop_map(|(from, to)| Did::Exchanged(from, to)),
        ]
    }

    /// Calls of three clients, one after the other for each; one in five does not return.
    fn history() -> impl Strategy<Value = Vec<Timed<Did>>> {
        let call = (did(), 0usize..3, 0u64..12, 0u8..5);
        prop::collection::vec(call, 0..7).prop_map(|calls| {
            let mut free = [0u64; 3];
            let timed = calls.into_iter().enumerate().map(|(i, (call, client, lasts, returns))| {
                let began = free[client];
                free[client] = began + 1 + lasts;
                // Times of different calls are not the same.
                let returned = (returns > 0).then_some(free[client] * 16 + i as u64);
                Timed { call, began: began * 16 + 8 + i as u64, returned }
            });
            timed.collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_says_what_trying_every_order_says(history in history()) {
            let expected = naive(0, &history, &mut Vec::new());
            let verdict = judge::<Register>(0, &history, 100_000);
            prop_assert_eq!(verdict == Verdict::Linearizable, expected, "{:?}", verdict);
        }
    }

    fn timed(call: Did, began: u64, returned: Option<u64>) -> Timed<Did> {
        Timed { call, began, returned }
    }

    #[test]
    fn a_call_that_did_not_return_may_have_happened_late_or_never() {
        let lost = timed(Did::Wrote(1), 0, None);
        let read = |value, at| timed(Did::Read(value), at, Some(at + 1));
        for (values, is_right) in [([0, 0], true), ([0, 1], true), ([1, 1], true), ([1, 0], false)] {
            let history = [lost.clone(), read(values[0], 2), read(values[1], 4)];
            assert_eq!(judge::<Register>(0, &history, 100_000) == Verdict::Linearizable, is_right, "{values:?}");
        }
    }

    #[test]
    fn it_tells_where_it_is_stuck() {
        let history = [timed(Did::Wrote(1), 0, Some(1)), timed(Did::Read(0), 2, Some(3))];
        assert_eq!(judge::<Register>(0, &history, 100_000), Verdict::Violation(Stuck { order: vec![0], next: 1 }));
    }
}
