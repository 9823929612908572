//! A process that has ended for good is forgotten, and its number given to another one; what it wrote is not.

use speculation::{Access, Action, Options, Process, World};

const PARENT: Process = Process(1);
const CHILD: Process = Process(2);

type Inside = World<u8, &'static str, &'static str>;

fn actions(world: &mut Inside) -> Vec<Action<u8, &'static str, &'static str>> {
    std::iter::from_fn(|| world.next_action()).collect()
}

/// The parent guesses; two children of the same number one after the other, the first of which is buried.
fn begin() -> (Inside, speculation::SpeculationId) {
    let mut world = Inside::new(Options::default());
    let guess = world.create_speculation(PARENT, Access::ReadOnly, 0).unwrap().id;
    world.fork(PARENT, CHILD);
    world.output(CHILD, "first");
    world.modify(CHILD, 7, "of the buried");
    assert!(!world.has_ended_for_good(CHILD));
    world.exit(CHILD);
    assert!(world.has_ended_for_good(CHILD));
    world.bury(CHILD);
    world.bury_object(&7);
    world.fork(PARENT, CHILD);
    world.output(CHILD, "second");
    actions(&mut world);
    (world, guess)
}

#[test]
fn what_the_buried_wrote_is_released_in_its_order() {
    let (mut world, guess) = begin();
    world.commit_speculation(guess).unwrap();
    let actions = actions(&mut world);
    let released: Vec<&str> = actions
        .iter()
        .filter_map(|action| match action {
            Action::ReleaseOutput { output, .. } => Some(*output),
            _ => None,
        })
        .collect();
    assert_eq!(released, ["first", "second"]);
    let ends = actions.iter().filter(|action| matches!(action, Action::ReleasePid { .. }));
    assert_eq!(ends.count(), 0, "of the buried nothing is said, and the second child lives");
    let resolved = actions.iter().filter(|action| matches!(action, Action::ProcessResolved { .. }));
    assert_eq!(resolved.count(), 2, "parent and second child");
}

#[test]
fn what_the_buried_wrote_is_dropped_and_nobody_comes_back() {
    let (mut world, guess) = begin();
    world.fail_speculation(guess).unwrap();
    let actions = actions(&mut world);
    let count =
        |is_it: fn(&Action<u8, &'static str, &'static str>) -> bool| actions.iter().filter(|a| is_it(a)).count();
    assert_eq!(count(|action| matches!(action, Action::DropOutput { .. })), 2);
    assert_eq!(count(|action| matches!(action, Action::DestroyProcess { process: CHILD })), 1);
    assert_eq!(count(|action| matches!(action, Action::Stop { .. })), 2, "parent and second child");
    assert_eq!(count(|action| matches!(action, Action::RollBack { .. })), 0);
}

#[test]
fn who_has_a_checkpoint_may_come_back() {
    let mut world = Inside::new(Options::default());
    world.create_speculation(PARENT, Access::ReadOnly, 0).unwrap();
    world.exit(PARENT);
    assert!(!world.has_ended_for_good(PARENT));
}
