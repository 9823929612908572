//! Who ends up depending on what, with sets of speculations and with clocks.

use commit_clock::Clock;
use kernel_object::{rule, Dependencies, ObjectKind, Operation, Parties, Party, Permission, Propagator, Role};
use proptest::prelude::*;
use speculation::{DependencySet, Process, SpeculationId};
use std::collections::BTreeSet;

/// Makes the n-th of a few different dependencies.
trait Sample: Dependencies + PartialEq + std::fmt::Debug {
    fn nth(n: u64) -> Self;
}

impl Sample for DependencySet {
    fn nth(n: u64) -> Self {
        let id = SpeculationId { process: Process(n as u32), counter: 1 };
        [id].into_iter().collect()
    }
}

impl Sample for Clock {
    fn nth(n: u64) -> Self {
        let mut clock = Clock::NONE;
        clock.0[n as usize] = 7;
        clock
    }
}

type P<D> = Propagator<&'static str, D>;

fn act<D: Sample>(p: &mut P<D>, process: u32, kind: ObjectKind, operation: Operation, object: &'static str) {
    p.apply(process, &rule(kind, operation), &Parties::object(object));
}

fn both<D: Sample>(a: u64, b: u64) -> D {
    let mut merged = D::nth(a);
    merged.merge(&D::nth(b));
    merged
}

fn a_pipe_passes_both_ways<D: Sample>() {
    let mut p = P::<D>::default();
    p.add(1, &D::nth(1));
    p.add(2, &D::nth(2));
    act(&mut p, 1, ObjectKind::Pipe, Operation::Write, "pipe");
    act(&mut p, 2, ObjectKind::Pipe, Operation::Read, "pipe");
    assert_eq!(p.of_process(2), &both(1, 2));
    assert_eq!(p.of_process(1), &D::nth(1));
    act(&mut p, 1, ObjectKind::Pipe, Operation::Write, "pipe");
    assert_eq!(p.of_process(1), &both(1, 2), "the writer sees that there is room again");
}

fn a_reader_of_a_file_gives_nothing<D: Sample>() {
    let mut p = P::<D>::default();
    p.add(1, &D::nth(1));
    act(&mut p, 1, ObjectKind::File, Operation::Read, "file");
    assert!(p.of_object(&"file").is_none());
    act(&mut p, 1, ObjectKind::File, Operation::Write, "file");
    act(&mut p, 2, ObjectKind::File, Operation::Read, "file");
    assert_eq!(p.of_process(2), &D::nth(1));
}

/// 000, 6.6
fn a_sender_observes_its_own_socket<D: Sample>() {
    let mut p = P::<D>::default();
    p.add(1, &D::nth(1));
    p.add(3, &D::nth(3));
    act(&mut p, 3, ObjectKind::UnixSocket, Operation::Read, "source");
    let send = rule(ObjectKind::UnixSocket, Operation::Write);
    let parties = Parties::object("destination").with(Role::Source, Party::Object("source"));
    p.apply(1, &send, &parties);
    assert_eq!(p.of_process(1), &both(1, 3));
    assert_eq!(p.of_object(&"destination"), &both(1, 3));
    assert_eq!(p.of_object(&"source"), &D::nth(3));
}

/// 000, 6.7: the sender takes the receiver's; the receiver takes the sender's only by delivery.
fn a_signal_travels_in_two_steps<D: Sample>() {
    let mut p = P::<D>::default();
    p.add(1, &D::nth(1));
    p.add(2, &D::nth(2));
    let parties = Parties::object("SIGTERM").with(Role::OtherProcess, Party::Process(2));
    p.apply(1, &rule(ObjectKind::Signal, Operation::Send), &parties);
    assert_eq!(p.of_process(1), &both(1, 2));
    assert_eq!(p.of_process(2), &D::nth(2));
    act(&mut p, 2, ObjectKind::Signal, Operation::Deliver, "SIGTERM");
    assert_eq!(p.of_process(2), &both(1, 2));
}

fn a_child_inherits_and_a_parent_waits<D: Sample>() {
    let mut p = P::<D>::default();
    p.add(1, &D::nth(1));
    p.fork(1, 2);
    p.add(2, &D::nth(2));
    assert_eq!(p.of_process(2), &both(1, 2));
    assert_eq!(p.of_process(1), &D::nth(1));
    p.exit(2);
    let parties = Parties::none().with(Role::OtherProcess, Party::Process(2));
    p.apply(1, &rule(ObjectKind::Process, Operation::Wait), &parties);
    p.forget(&Party::Process(2));
    assert_eq!(p.of_process(1), &both(1, 2));
}

fn a_rename_joins_both_directories<D: Sample>() {
    let mut p = P::<D>::default();
    p.add(2, &D::nth(2));
    act(&mut p, 2, ObjectKind::Directory, Operation::SetAttributes, "from");
    let rename = rule(ObjectKind::Directory, Operation::ChangeName);
    let parties = Parties::object("from").with(Role::Object, Party::Object("to")).with(Role::Named, Party::Object("f"));
    p.apply(1, &rename, &parties);
    for object in ["from", "to", "f"] {
        assert_eq!(p.of_object(&object), &D::nth(2));
    }
    act(&mut p, 3, ObjectKind::Directory, Operation::Lookup, "to");
    assert_eq!(p.of_process(3), &D::nth(2));
}

/// 002, 3.6
fn shared_memory_passes_at_once<D: Sample>() {
    let mut p = P::<D>::default();
    p.map(1, "region", Permission::Write);
    p.map(2, "region", Permission::Read);
    p.add(1, &D::nth(1));
    assert_eq!(p.of_process(2), &D::nth(1), "as soon as the writer gains it");
    p.add(2, &D::nth(2));
    assert_eq!(p.of_process(1), &D::nth(1), "a reader writes nothing");
    // A chain: 2 writes another region that 3 reads.
    p.map(2, "other", Permission::Write);
    p.map(3, "other", Permission::Read);
    p.add(1, &D::nth(3));
    assert!(p.of_process(3).covers(&both(1, 3)) && p.of_process(3).covers(&D::nth(2)));
    // What was written stays.
    p.unmap(1, &"region", Permission::Write);
    p.add(1, &D::nth(4));
    p.map(4, "region", Permission::Read);
    assert_eq!(p.of_process(4), &both(1, 3));
}

fn two_writers_share_everything<D: Sample>() {
    let mut p = P::<D>::default();
    p.map(1, "region", Permission::Write);
    p.fork(1, 2);
    p.add(1, &D::nth(1));
    p.add(2, &D::nth(2));
    assert_eq!(p.of_process(1), &both(1, 2));
    assert_eq!(p.of_process(2), &both(1, 2));
    p.exec(2);
    p.add(2, &D::nth(3));
    assert_eq!(p.of_process(1), &both(1, 2), "a new image has no mapping");
}

fn resolving_forgets<D: Sample>() {
    let mut p = P::<D>::default();
    p.add(1, &D::nth(1));
    act(&mut p, 1, ObjectKind::File, Operation::Write, "file");
    p.resolve(|dependencies| *dependencies = D::default());
    assert!(p.of_process(1).is_none() && p.of_object(&"file").is_none());
}

macro_rules! for_both {
    ($($scenario:ident),* $(,)?) => {
        mod sets { $(#[test] fn $scenario() { super::$scenario::<super::DependencySet>() })* }
        mod clocks { $(#[test] fn $scenario() { super::$scenario::<super::Clock>() })* }
    };
}

for_both!(
    a_pipe_passes_both_ways,
    a_reader_of_a_file_gives_nothing,
    a_sender_observes_its_own_socket,
    a_signal_travels_in_two_steps,
    a_child_inherits_and_a_parent_waits,
    a_rename_joins_both_directories,
    shared_memory_passes_at_once,
    two_writers_share_everything,
    resolving_forgets,
);

#[derive(Clone, Copy, Debug)]
enum Event {
    Gain(u32, u64),
    Write(u32, u8),
    Read(u32, u8),
    Map(u32, u8, bool),
    Unmap(u32, u8, bool),
}

fn event() -> impl Strategy<Value = Event> {
    let (process, object) = (0u32..4, 0u8..3);
    prop_oneof![
        (process.clone(), 0u64..8).prop_map(|(p, n)| Event::Gain(p, n)),
        (process.clone(), object.clone()).prop_map(|(p, o)| Event::Write(p, o)),
        (process.clone(), object.clone()).prop_map(|(p, o)| Event::Read(p, o)),
        (process.clone(), object.clone(), any::<bool>()).prop_map(|(p, o, w)| Event::Map(p, o, w)),
        (process, object, any::<bool>()).prop_map(|(p, o, w)| Event::Unmap(p, o, w)),
    ]
}

/// Plain sets, and shared memory by going round until nothing changes.
#[derive(Default)]
struct Model {
    processes: [BTreeSet<u64>; 4],
    objects: [BTreeSet<u64>; 3],
    maps: Vec<(u32, u8, bool)>,
}

impl Model {
    fn step(&mut self, event: Event) {
        match event {
            Event::Gain(p, n) => drop(self.processes[p as usize].insert(n)),
            Event::Write(p, o) => {
                self.read(p, o);
                self.write(p, o);
            }
            Event::Read(p, o) => self.read(p, o),
            Event::Map(p, o, write) => self.maps.push((p, o, write)),
            Event::Unmap(p, o, write) => {
                let at = self.maps.iter().position(|map| *map == (p, o, write));
                at.map(|at| self.maps.remove(at));
            }
        }
        for _ in 0..8 {
            for (p, o, write) in self.maps.clone() {
                self.read(p, o);
                if write {
                    self.write(p, o);
                }
            }
        }
    }

    fn read(&mut self, p: u32, o: u8) {
        self.processes[p as usize].extend(&self.objects[o as usize]);
    }

    fn write(&mut self, p: u32, o: u8) {
        self.objects[o as usize].extend(&self.processes[p as usize]);
    }
}

fn merged<D: Sample>(set: &BTreeSet<u64>) -> D {
    let mut merged = D::default();
    for &n in set {
        merged.merge(&D::nth(n));
    }
    merged
}

fn agree<D: Sample>(events: &[Event]) {
    let mut propagator = Propagator::<u8, D>::default();
    let mut model = Model::default();
    let permission = |write| if write { Permission::Write } else { Permission::Read };
    for &event in events {
        match event {
            Event::Gain(p, n) => propagator.add(p, &D::nth(n)),
            Event::Write(p, o) => {
                propagator.apply(p, &rule(ObjectKind::File, Operation::Write), &Parties::object(o));
            }
            Event::Read(p, o) => propagator.apply(p, &rule(ObjectKind::File, Operation::Read), &Parties::object(o)),
            Event::Map(p, o, write) => propagator.map(p, o, permission(write)),
            Event::Unmap(p, o, write) => propagator.unmap(p, &o, permission(write)),
        }
        model.step(event);
        for p in 0..4 {
            assert_eq!(propagator.of_process(p), &merged::<D>(&model.processes[p as usize]));
        }
        for o in 0..3 {
            assert_eq!(propagator.of_object(&o), &merged::<D>(&model.objects[o as usize]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everybody_depends_on_what_the_model_says(events in prop::collection::vec(event(), 1..60)) {
        agree::<DependencySet>(&events);
        agree::<Clock>(&events);
    }
}
