//! Guesses that a program has made for somebody outside of the world to resolve ([`crate::completions`]).

use crate::ahead::Ahead;
use crate::completions::{Listener, News, Order, Outcome};
use crate::event_loop::Supervisor;
use speculation::{SpeculationId, State};
use std::collections::BTreeMap;

/// Those that are open, and who hears of them.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Outside {
    /// With what resolvers were told, by their numbers.
    open: BTreeMap<u64, (SpeculationId, News)>,
    resolvers: Vec<Listener>,
}

impl Outside {
    pub fn has_any(&self) -> bool {
        !self.open.is_empty()
    }

    pub fn has(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    /// A resolver that is too slow, or has gone, hears nothing any more.
    fn tell(&mut self, news: &News) {
        self.resolvers.retain(|resolver| resolver.tell(news.clone()));
    }

    fn listen(&mut self, resolver: Listener) {
        if self.open.values().all(|(_, begun)| resolver.tell(begun.clone())) {
            self.resolvers.push(resolver);
        }
    }
}

impl Ahead {
    /// `id`, which has this number, is for somebody outside, who calls it by `tag`.
    pub(in crate::ahead) fn begun_for_outside(&mut self, number: u64, id: SpeculationId, tag: u64) {
        let maker = id.process;
        let before = self.core.dependencies_of_process(maker).iter().filter(|&other| other != id);
        let (mut depends_on, mut others) = (Vec::new(), 0);
        for other in before {
            match self.explicit.number_of(other) {
                Some(number) => depends_on.push(number),
                None => others += 1,
            }
        }
        let begun = News::Begun { guess: number, tag, process: id.process.0 as i32, depends_on, others };
        self.outside.tell(&begun);
        self.outside.open.insert(number, (id, begun));
    }

    /// `id` was resolved. Guesses that were undone with it nobody can resolve any more.
    pub(in crate::ahead) fn tell_outside(&mut self, id: SpeculationId, is_right: bool) {
        let core = &self.core;
        let is_open = |id| core.speculation(id).is_some_and(|speculation| speculation.state() == State::Open);
        let ended = self.outside.open.iter().map(|(&number, &(open, _))| (number, open));
        let ended: Vec<_> = ended.filter(|&(_, open)| open == id || !is_open(open)).collect();
        for (number, ended) in ended {
            self.outside.open.remove(&number);
            if ended != id {
                self.explicit.close(number);
                let verdict = self.core.fail_speculation(ended);
                self.report.resolved(false, &verdict);
            }
            self.outside.tell(&match (ended == id, is_right) {
                (true, true) => News::Committed(number),
                (true, false) => News::Failed(number),
                (false, _) => News::Undone(number),
            });
        }
    }
}

impl Supervisor {
    /// What others than this thread want of it.
    pub(crate) fn take_completions(&mut self) {
        for order in self.completions.take() {
            let (number, is_failure, asker) = match order {
                Order::Listen(resolver) => {
                    self.ahead.outside.listen(resolver);
                    continue;
                }
                Order::Resolve(Outcome::Commit(number), asker) => (number, false, asker),
                Order::Resolve(Outcome::Fail(number), asker) => (number, true, asker),
            };
            if !self.ahead.explicit.is_open(number) {
                // Whoever has gone does not want to know.
                asker.tell(News::Unknown(number));
                continue;
            }
            let is_told = self.ahead.outside.has(number);
            self.ahead.explicit.say(number, is_failure);
            self.settle_calls();
            if !is_told {
                // One that a program inside was to resolve: nobody else hears of it.
                let news = if is_failure { News::Failed(number) } else { News::Committed(number) };
                asker.tell(news);
            }
        }
    }
}
