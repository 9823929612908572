//! Epochs are an approximation: whatever a naive model, which copies exact sets of guesses at each call, says that a
//! process or an object depends on, the epochs say, too. And an object that is modified has what its modifier has.

use proptest::prelude::*;
use replay::simulate::{Agent, Lanes, Setting, Simulation};
use replay::step::{Change, Kind, Object, Process, Step, Touch};
use std::collections::{BTreeSet, HashMap};

/// Every guess by number, and the lane and epoch that it became a member of.
#[derive(Default)]
struct Naive {
    processes: HashMap<Process, BTreeSet<usize>>,
    objects: HashMap<Object, BTreeSet<usize>>,
    guesses: Vec<(u32, u64)>,
}

impl Naive {
    fn process(&mut self, process: Process) -> &mut BTreeSet<usize> {
        self.processes.entry(process).or_default()
    }

    fn object(&mut self, object: Object) -> &mut BTreeSet<usize> {
        self.objects.entry(object).or_default()
    }

    fn step(&mut self, step: &Step, after: &Simulation) {
        if step.guesses {
            self.guesses.extend(after.newest_guess());
            let guess = self.guesses.len() - 1;
            self.process(step.process).insert(guess);
        }
        for touch in &step.touches {
            match *touch {
                Touch::Observe(object) => {
                    let more = self.object(object).clone();
                    self.process(step.process).extend(more);
                }
                Touch::Modify(object, _) => {
                    let more = self.object(object).clone();
                    self.process(step.process).extend(more);
                    let all = self.process(step.process).clone();
                    self.object(object).extend(all);
                }
            }
        }
        let own = self.process(step.process).clone();
        match step.kind {
            Kind::Birth(child) => *self.process(child) = own,
            Kind::Reap(child) => {
                let end = self.process(child).clone();
                self.process(step.process).extend(end);
            }
            Kind::Signal(receiver) => self.process(receiver).extend(own),
            Kind::Call | Kind::Output | Kind::Barrier => (),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let touch = (0..6_u32, 0..5_u8).prop_map(|(object, how)| match how {
        0 | 1 => Touch::Observe(object),
        2 => Touch::Modify(object, Change::Queue),
        3 => Touch::Modify(object, Change::OldName),
        _ => Touch::Modify(object, Change::Contents { kept: 1 }),
    });
    let step = (0..4_u32, 0..12_u8, 0..4_u32, any::<bool>(), prop::collection::vec(touch, 0..3), 0..50_u32);
    prop::collection::vec(step, 1..120).prop_map(|raw| {
        let mut time = 0.0;
        let mut steps = Vec::new();
        for (process, kind, other, guesses, touches, wait) in raw {
            time += f64::from(wait) / 1000.0;
            let other_process = if other == process { (other + 1) % 4 } else { other };
            let kind = match kind {
                0 => Kind::Reap(other_process),
                1 => Kind::Signal(other_process),
                2 => Kind::Output,
                3 => Kind::Barrier,
                // A number that is not used yet.
                4 => Kind::Birth(100 + steps.len() as u32),
                _ => Kind::Call,
            };
            steps.push(Step { time, process, kind, touches, guesses });
        }
        steps
    })
}

fn lanes() -> impl Strategy<Value = Lanes> {
    prop_oneof![Just(Lanes::Few(1)), Just(Lanes::Few(8)), Just(Lanes::Exact)]
}

fn agent() -> impl Strategy<Value = Agent> {
    prop_oneof![Just(Agent::Asks), Just(Agent::KeepsContents), Just(Agent::KeepsAll)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn epochs_know_at_least_what_exact_sets_know(steps in steps(), lanes in lanes(), agent in agent()) {
        let setting = Setting { lanes, agent, interval: 0.1, delay: 0.03 };
        let mut naive = Naive::default();
        let mut simulation = Simulation::new(setting);
        for step in &steps {
            simulation.step(step);
            naive.step(step, &simulation);
            for (&process, guesses) in &naive.processes {
                let known = simulation.dependencies(process);
                for &(lane, epoch) in guesses.iter().map(|&guess| &naive.guesses[guess]) {
                    prop_assert!(
                        simulation.is_committed(lane, epoch) || known.get(&lane).is_some_and(|&has| has >= epoch),
                        "process {process} depends on epoch {epoch} of lane {lane} and has {known:?} after {step:?}"
                    );
                }
            }
            for touch in &step.touches {
                if let Touch::Modify(object, _) = *touch {
                    let known = simulation.dependencies_of(object);
                    let guesses = naive.objects.get(&object).cloned().unwrap_or_default();
                    for &(lane, epoch) in guesses.iter().map(|&guess| &naive.guesses[guess]) {
                        prop_assert!(
                            simulation.is_committed(lane, epoch) || known.get(&lane).is_some_and(|&has| has >= epoch),
                            "object {object} depends on epoch {epoch} of lane {lane} and has {known:?} after {step:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn who_asks_nothing_gains_nothing(steps in steps(), lanes in lanes()) {
        let mut simulation = Simulation::new(Setting { lanes, agent: Agent::Asks, interval: 0.1, delay: 0.03 });
        for step in &steps {
            let before = simulation.clone();
            let asked = simulation.step(step);
            if !asked && matches!(step.kind, Kind::Call) {
                let mut moved = before.clone();
                moved.at(step.time);
                prop_assert_eq!(moved.dependencies(step.process), simulation.dependencies(step.process));
            }
        }
    }

    #[test]
    fn an_agent_that_keeps_more_asks_no_more(steps in steps(), lanes in lanes()) {
        let asks = [Agent::Asks, Agent::KeepsContents, Agent::KeepsAll].map(|agent| {
            let setting = Setting { lanes, agent, interval: 0.1, delay: 0.03 };
            replay::simulate::simulate(&steps, setting).asks
        });
        prop_assert!(asks[0] >= asks[1] && asks[1] >= asks[2], "{asks:?}");
    }
}
