//! Applies rules to dependencies of any type. It keeps one value for each process and object; where a full speculation needs
//! checkpoints and undo logs, `speculation::World` is the engine and the same rules tell it what to observe and modify.

use crate::shared_memory::{Mappings, Permission};
use crate::{Dependencies, PropagationRule, Role};
use std::collections::BTreeMap;

/// A process or an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Party<K> {
    /// By pid.
    Process(u32),
    /// By key.
    Object(K),
}

/// Who plays which role in one operation. A role may be played by several (the directories of a path), or by nobody.
#[derive(Clone, Debug, Default)]
pub struct Parties<K>(Vec<(Role, Party<K>)>);

impl<K: Clone> Parties<K> {
    /// Only the object.
    pub fn object(object: K) -> Self {
        Self(vec![(Role::Object, Party::Object(object))])
    }

    /// Nobody yet.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// And `party` as `role`.
    pub fn with(mut self, role: Role, party: Party<K>) -> Self {
        self.0.push((role, party));
        self
    }

    /// Those that play one of `roles`.
    pub fn playing<'a>(&'a self, roles: &'a [Role]) -> impl Iterator<Item = &'a Party<K>> {
        self.0.iter().filter(|(role, _)| roles.contains(role)).map(|(_, party)| party)
    }
}

/// The dependencies of everything inside.
#[derive(Clone, Debug)]
pub struct Propagator<K, D> {
    dependencies: BTreeMap<Party<K>, D>,
    mappings: Mappings<K>,
    none: D,
}

impl<K: Ord + Clone, D: Dependencies> Default for Propagator<K, D> {
    fn default() -> Self {
        Self { dependencies: BTreeMap::new(), mappings: Mappings::default(), none: D::default() }
    }
}

impl<K: Ord + Clone, D: Dependencies> Propagator<K, D> {
    /// What a process or object depends on.
    pub fn dependencies(&self, party: &Party<K>) -> &D {
        self.dependencies.get(party).unwrap_or(&self.none)
    }

    /// What a process depends on.
    pub fn of_process(&self, process: u32) -> &D {
        self.dependencies(&Party::Process(process))
    }

    /// What an object depends on.
    pub fn of_object(&self, object: &K) -> &D {
        self.dependencies(&Party::Object(object.clone()))
    }

    /// The process depends on something new, its own doing: it changed a domain, it runs ahead.
    pub fn add(&mut self, process: u32, dependencies: &D) {
        self.give(Party::Process(process), dependencies);
    }

    /// The process does something with `parties`. Barriers are the caller's: here they pass nothing on.
    pub fn apply(&mut self, process: u32, rule: &PropagationRule, parties: &Parties<K>) {
        let mut taken = D::default();
        for party in parties.playing(rule.observes) {
            taken.merge(self.dependencies(party));
        }
        self.give(Party::Process(process), &taken);
        let given = self.of_process(process).clone();
        for party in parties.playing(rule.modifies) {
            self.give(party.clone(), &given);
        }
    }

    /// Map a region: from now on its writers pass all that they have and gain to its readers (002, 3.6).
    pub fn map(&mut self, process: u32, region: K, permission: Permission) {
        self.mappings.map(process, region.clone(), permission);
        let held = self.of_object(&region).clone();
        self.give(Party::Process(process), &held);
        if permission == Permission::Write {
            let brought = self.of_process(process).clone();
            self.give(Party::Object(region), &brought);
        }
    }

    /// Take one mapping away.
    pub fn unmap(&mut self, process: u32, region: &K, permission: Permission) {
        self.mappings.unmap(process, region, permission);
    }

    /// `child` inherits the dependencies and the shared mappings of `parent` (000, 6.8).
    pub fn fork(&mut self, parent: u32, child: u32) {
        self.mappings.fork(parent, child);
        let inherited = self.of_process(parent).clone();
        self.give(Party::Process(child), &inherited);
    }

    /// A new image has no mappings of the old one.
    pub fn exec(&mut self, process: u32) {
        self.mappings.unmap_all(process);
    }

    /// The process is dead; its dependencies stay until `forget`, for who waits for it.
    pub fn exit(&mut self, process: u32) {
        self.mappings.unmap_all(process);
    }

    /// Drop a process that was waited for, or an object that is no more.
    pub fn forget(&mut self, party: &Party<K>) {
        self.dependencies.remove(party);
    }

    /// Something was resolved: `resolve` takes it out of each value.
    pub fn resolve(&mut self, mut resolve: impl FnMut(&mut D)) {
        self.dependencies.retain(|_, dependencies| {
            resolve(dependencies);
            !dependencies.is_none()
        });
    }

    /// Give, and pass on through shared memory until nobody gains anything.
    fn give(&mut self, to: Party<K>, given: &D) {
        let mut gaining = vec![to];
        while let Some(party) = gaining.pop() {
            if given.is_none() || !self.dependencies.entry(party.clone()).or_default().merge(given) {
                continue;
            }
            match party {
                Party::Process(process) => {
                    gaining.extend(self.mappings.written_by(process).into_iter().map(Party::Object));
                }
                Party::Object(region) => {
                    gaining.extend(self.mappings.readers_of(&region).into_iter().map(Party::Process));
                }
            }
        }
    }
}
