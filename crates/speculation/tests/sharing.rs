//! Checkpoints that several speculations share, and how many may be open (000, 5.2).

use speculation::{Access, Action, CreateError, Options, Process, ResolveError, SpeculationId, Verdict, World};

const A: Process = Process(1);
const B: Process = Process(2);

type W = World<&'static str, u32, &'static str>;

fn speculate(world: &mut W, process: Process, access: Access, now_ms: u64) -> SpeculationId {
    world.create_speculation(process, access, now_ms).unwrap().id
}

fn actions(world: &mut W) -> Vec<Action<&'static str, u32, &'static str>> {
    std::iter::from_fn(|| world.next_action()).collect()
}

fn checkpoints_taken(world: &mut W) -> usize {
    let taken = |action: &Action<_, _, _>| matches!(action, Action::TakeCheckpoint { .. });
    actions(world).iter().filter(|action| taken(action)).count()
}

/// How many checkpoints A takes for speculations with these kinds and times.
fn checkpoints(options: Options, speculations: &[(Access, u64)]) -> usize {
    let mut world = W::new(options);
    for &(access, now_ms) in speculations {
        speculate(&mut world, A, access, now_ms);
    }
    checkpoints_taken(&mut world)
}

use Access::{Mutating, ReadOnly};

#[test]
fn read_only_speculations_share_for_500_ms() {
    let options = Options::default();
    assert_eq!(checkpoints(options, &[(ReadOnly, 0), (ReadOnly, 499), (ReadOnly, 500)]), 1);
    assert_eq!(checkpoints(options, &[(ReadOnly, 0), (ReadOnly, 501)]), 2);
    // The age is that of the checkpoint, not of the last speculation.
    assert_eq!(checkpoints(options, &[(ReadOnly, 0), (ReadOnly, 400), (ReadOnly, 800)]), 2);
    assert_eq!(checkpoints(options, &[(ReadOnly, 0), (ReadOnly, 501), (ReadOnly, 1000)]), 2);
}

#[test]
fn a_mutating_speculation_ends_the_sharing() {
    let options = Options::default();
    assert_eq!(checkpoints(options, &[(ReadOnly, 0), (Mutating, 1)]), 1);
    assert_eq!(checkpoints(options, &[(Mutating, 0), (ReadOnly, 1)]), 2);
    assert_eq!(checkpoints(options, &[(ReadOnly, 0), (Mutating, 1), (ReadOnly, 2), (ReadOnly, 3)]), 2);
    assert_eq!(checkpoints(options, &[(Mutating, 0), (Mutating, 1), (Mutating, 2)]), 3);
}

#[test]
fn sharing_is_an_option() {
    let options = Options { share_checkpoints: false, ..Options::default() };
    assert_eq!(checkpoints(options, &[(ReadOnly, 0), (ReadOnly, 0)]), 2);
    let options = Options { checkpoint_age_ms_max: 10, ..Options::default() };
    assert_eq!(checkpoints(options, &[(ReadOnly, 0), (ReadOnly, 10), (ReadOnly, 11)]), 2);
}

#[test]
fn a_checkpoint_taken_to_observe_is_not_shared() {
    let mut world = W::default();
    speculate(&mut world, A, ReadOnly, 0);
    speculate(&mut world, B, ReadOnly, 0);
    world.modify(B, "f", 0);
    world.observe(A, "f");
    speculate(&mut world, A, ReadOnly, 1);
    assert_eq!(checkpoints_taken(&mut world), 4);
}

#[test]
fn a_checkpoint_whose_speculations_have_committed_is_not_shared() {
    let mut world = W::default();
    let first = speculate(&mut world, A, ReadOnly, 0);
    world.commit_speculation(first).unwrap();
    speculate(&mut world, A, ReadOnly, 1);
    assert_eq!(checkpoints_taken(&mut world), 2);
}

/// "Output that depends on only one speculation must wait for both to complete" (000, 5.3).
#[test]
fn output_waits_for_all_that_share_its_checkpoint() {
    let mut world = W::default();
    let first = speculate(&mut world, A, ReadOnly, 0);
    world.output(A, "x");
    let second = speculate(&mut world, A, ReadOnly, 1);
    actions(&mut world);
    world.commit_speculation(first).unwrap();
    assert_eq!(actions(&mut world), []);
    world.commit_speculation(second).unwrap();
    assert!(actions(&mut world).contains(&Action::ReleaseOutput { process: A, output: "x" }));
}

/// The process goes back to the shared checkpoint and writes again, although its write came before the guess that
/// failed.
#[test]
fn a_failure_takes_back_all_since_the_shared_checkpoint() {
    let mut world = W::default();
    let first = speculate(&mut world, A, ReadOnly, 0);
    world.modify(A, "f", 7);
    let second = speculate(&mut world, A, ReadOnly, 1);
    world.commit_speculation(first).unwrap();
    actions(&mut world);
    world.fail_speculation(second).unwrap();
    assert!(actions(&mut world).contains(&Action::RollBack { object: "f", payloads: vec![7] }));
}

#[test]
fn the_other_one_that_shares_fails_as_well() {
    let mut world = W::default();
    let first = speculate(&mut world, A, ReadOnly, 0);
    let second = speculate(&mut world, A, ReadOnly, 1);
    world.fail_speculation(second).unwrap();
    assert_eq!(world.open_speculations(), 0);
    // Its reply comes in later (000, 8.4).
    assert_eq!(world.commit_speculation(first), Ok(Verdict::AlreadyFailed));
    assert_eq!(world.commit_speculation(first), Err(ResolveError::Unknown(first)));
}

/// B's mkdir reaches the server with "depends on A's first"; A's second must not become part of that afterwards.
#[test]
fn nothing_joins_what_a_mutation_of_another_process_depends_on() {
    let mut world = W::default();
    let first = speculate(&mut world, A, ReadOnly, 0);
    world.modify(A, "p", 1);
    world.observe(B, "p");
    let mkdir = world.create_speculation(B, Mutating, 1).unwrap();
    assert_eq!(mkdir.dependencies.iter().collect::<Vec<_>>(), [first]);
    actions(&mut world);
    let second = speculate(&mut world, A, ReadOnly, 2);
    assert_eq!(checkpoints_taken(&mut world), 1);
    world.fail_speculation(second).unwrap();
    assert!(world.speculation(mkdir.id).is_some_and(|s| s.state() == speculation::State::Open));
}

#[test]
fn at_most_2000_are_open() {
    let mut world = W::default();
    let all: Vec<_> = (0..2000).map(|_| speculate(&mut world, A, ReadOnly, 0)).collect();
    let one_more = world.create_speculation(A, ReadOnly, 0);
    assert_eq!(one_more, Err(CreateError::TooManyOpen(2000)));
    assert_eq!(world.dependencies_of_process(A).runs().len(), 1);
    world.create_lightweight_speculation(B);
    world.commit_speculation(all[0]).unwrap();
    speculate(&mut world, B, ReadOnly, 0);
}

#[test]
fn a_lightweight_speculation_cannot_fail() {
    let mut world = W::default();
    let transaction = world.create_lightweight_speculation(A);
    world.add_commit_dependency(B, transaction);
    assert_eq!(world.fail_speculation(transaction), Err(ResolveError::CannotFail(transaction)));
    world.modify(B, "f", 3);
    world.observe(A, "f");
    let forward = Action::RollForward { object: "f", payloads: vec![3] };
    assert_eq!(actions(&mut world), [forward], "no checkpoint, and nothing to undo");
    assert!(world.is_speculative(A));
    world.commit_speculation(transaction).unwrap();
    assert!(!world.is_speculative(A) && !world.is_speculative(B));
}
