//! A small language of scenarios. Processes are `A`, `B`, …; an object whose name begins with `p` or `q` is a pipe and
//! reading takes a value out of it; any other is a file. Speculations are `s1`, …, transactions `t1`, ….

use speculation::{Access, Action, Checkpoint, Dependent, Process, SpeculationId, State, World};
use std::collections::{BTreeMap, BTreeSet};

enum Undo {
    Nothing,
    RemoveLast,
    PutFirst(String),
}

#[derive(Default)]
struct Scenario {
    world: World<String, Undo, String>,
    now_ms: u64,
    ids: BTreeMap<String, SpeculationId>,
    objects: BTreeMap<String, Vec<String>>,
    shown: Vec<String>,
    dropped: Vec<String>,
    /// What the process was about to do at each checkpoint.
    checkpoints: BTreeMap<Checkpoint, String>,
    back_to: BTreeMap<Process, String>,
    gone: BTreeSet<Process>,
    pids_free: BTreeSet<Process>,
}

/// Play `events` and look whether all of `expected` came true.
pub fn check(events: &str, expected: &str) {
    let mut scenario = Scenario::default();
    for event in events.split(';') {
        scenario.play(event.trim());
    }
    for expectation in expected.split(';') {
        let expectation = expectation.trim();
        assert!(scenario.holds(expectation), "after {events:?}: not so: {expectation:?}");
    }
}

fn process(name: &str) -> Process {
    assert!(name.len() == 1, "{name:?} is no process");
    Process(u32::from(name.as_bytes()[0]))
}

/// `writes` → `write`.
fn verb(word: &str) -> &str {
    word.strip_suffix('s').unwrap_or(word)
}

impl Scenario {
    fn play(&mut self, event: &str) {
        let words: Vec<&str> = event.split_whitespace().collect();
        match words[..] {
            [ms, "ms", "pass"] => self.now_ms += ms.parse::<u64>().unwrap(),
            [id, "commits"] => drop(self.world.commit_speculation(self.ids[id]).unwrap()),
            [id, "fails"] => drop(self.world.fail_speculation(self.ids[id]).unwrap()),
            [who, "speculates", id] => self.speculate(process(who), id, Access::ReadOnly),
            [who, "speculates", id, "to", "mutate"] => self.speculate(process(who), id, Access::Mutating),
            [who, "depends", "on", "transaction", id] => self.depend(process(who), id),
            [who, "writes", value, "to", object] => return self.write(process(who), value, object, vec![], "write"),
            [who, "reads", object] if object.starts_with(['p', 'q']) => return self.take(process(who), object, "read"),
            [who, "reads", object] => self.world.observe(process(who), object.into()),
            [who, "prints", what] => self.world.output(process(who), what.into()),
            [who, "forks", child] => self.world.fork(process(who), process(child)),
            [who, "exits"] => self.world.exit(process(who)),
            [who, "waits", "for", child] => self.world.observe_process(process(who), process(child)),
            [who, "signals", receiver, "with", signal] => {
                let observes = vec![Dependent::Process(process(receiver))];
                return self.write(process(who), "sent", signal, observes, "signal");
            }
            [who, "receives", signal] => return self.take(process(who), signal, "receive"),
            _ => panic!("what is {event:?}?"),
        }
        self.drain(words.get(1).map_or("", |word| verb(word)));
    }

    fn speculate(&mut self, who: Process, id: &str, access: Access) {
        let made = self.world.create_speculation(who, access, self.now_ms).unwrap();
        self.ids.insert(id.into(), made.id);
    }

    fn depend(&mut self, who: Process, id: &str) {
        if !self.ids.contains_key(id) {
            let made = self.world.create_lightweight_speculation(who);
            self.ids.insert(id.into(), made);
        }
        self.world.add_commit_dependency(who, self.ids[id]);
    }

    fn write(&mut self, who: Process, value: &str, object: &str, observes: Vec<Dependent<String>>, doing: &str) {
        self.world.system_call(who, observes, vec![(object.into(), Undo::RemoveLast)]);
        self.drain(doing);
        self.objects.entry(object.into()).or_default().push(value.into());
    }

    fn take(&mut self, who: Process, object: &str, doing: &str) {
        let first = self.objects.get(object).and_then(|values| values.first()).cloned();
        let undo = first.clone().map_or(Undo::Nothing, Undo::PutFirst);
        self.world.modify(who, object.into(), undo);
        self.drain(doing);
        if first.is_some() {
            self.objects.get_mut(object).unwrap().remove(0);
        }
    }

    fn drain(&mut self, doing: &str) {
        while let Some(action) = self.world.next_action() {
            match action {
                Action::TakeCheckpoint { checkpoint, .. } => drop(self.checkpoints.insert(checkpoint, doing.into())),
                Action::RestoreProcess { process, checkpoint } => {
                    self.back_to.insert(process, self.checkpoints[&checkpoint].clone());
                }
                Action::DestroyProcess { process } => drop(self.gone.insert(process)),
                Action::ReleasePid { process } => drop(self.pids_free.insert(process)),
                Action::ReleaseOutput { output, .. } => self.shown.push(output),
                Action::DropOutput { output, .. } => self.dropped.push(output),
                Action::RollBack { object, payloads } => {
                    let values = self.objects.get_mut(&object).unwrap();
                    payloads.into_iter().for_each(|undo| undo.apply(values));
                }
                _ => {}
            }
        }
    }

    fn holds(&self, expectation: &str) -> bool {
        let words: Vec<&str> = expectation.split_whitespace().collect();
        match words[..] {
            [who, "back", "to", "its", doing] => self.back_to.get(&process(who)).is_some_and(|to| to == doing),
            [who, "runs", "on"] => !self.back_to.contains_key(&process(who)) && !self.gone.contains(&process(who)),
            [who, "gone"] => self.gone.contains(&process(who)),
            ["pid", "of", who, "free"] => self.pids_free.contains(&process(who)),
            ["pid", "of", who, "taken"] => !self.pids_free.contains(&process(who)),
            ["shown", ..] => self.shown == words[1..],
            [what, "shown"] => self.shown.iter().any(|shown| shown == what),
            [what, "dropped"] => self.dropped.iter().any(|dropped| dropped == what),
            [what, "held"] => !self.shown.iter().chain(&self.dropped).any(|seen| seen == what),
            [id, "failed"] => self.state(id) == Some(State::Failed),
            [id, "open"] => self.state(id) == Some(State::Open),
            [object, "empty"] => self.objects.get(object).is_none_or(Vec::is_empty),
            [object, "holds", ..] => self.objects[object] == words[2..],
            [name, "free"] => self.depends_on(name).is_empty(),
            [name, "depends", "on", ref ids @ ..] => {
                self.depends_on(name) == ids.iter().map(|id| self.ids[*id]).collect::<Vec<_>>()
            }
            _ => panic!("what is {expectation:?}?"),
        }
    }

    fn state(&self, id: &str) -> Option<State> {
        self.world.speculation(self.ids[id]).map(|speculation| speculation.state())
    }

    fn depends_on(&self, name: &str) -> Vec<SpeculationId> {
        let set = match name.starts_with(|c: char| c.is_ascii_uppercase()) {
            true => self.world.dependencies_of_process(process(name)),
            false => self.world.dependencies_of_object(&name.to_string()),
        };
        set.iter().collect()
    }
}

impl Undo {
    fn apply(self, values: &mut Vec<String>) {
        match self {
            Undo::Nothing => {}
            Undo::RemoveLast => drop(values.pop()),
            Undo::PutFirst(value) => values.insert(0, value),
        }
    }
}
