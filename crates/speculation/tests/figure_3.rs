//! 000, figure 3, step by step: two processes `stat` different files in BlueFS, both write to one file in /tmp, and the
//! first speculation fails.

use speculation::{Access, Action, Checkpoint, DependencySet, Dependent, Process, SpeculationId, Verdict, World};

const P8000: Process = Process(8000);
const P8001: Process = Process(8001);
const INODE: &str = "inode 3556";

type Fig = World<&'static str, &'static str, &'static str>;

fn actions(world: &mut Fig) -> Vec<Action<&'static str, &'static str, &'static str>> {
    std::iter::from_fn(|| world.next_action()).collect()
}

fn set<const N: usize>(ids: [SpeculationId; N]) -> DependencySet {
    ids.into_iter().collect()
}

fn checkpoint_of(world: &mut Fig, process: Process) -> Checkpoint {
    match actions(world)[..] {
        [Action::TakeCheckpoint { process: taken, checkpoint }] if taken == process => checkpoint,
        ref other => panic!("expected one checkpoint of {process:?}, not {other:?}"),
    }
}

struct Figure {
    world: Fig,
    speculation_1: SpeculationId,
    speculation_2: SpeculationId,
    checkpoint_8000: Checkpoint,
    checkpoint_8001_first: Checkpoint,
    checkpoint_8001_second: Checkpoint,
}

/// Steps (a) to (c), each with the logs that the figure shows.
fn until_c() -> Figure {
    let mut world = Fig::default();
    // (a)
    let s1 = world.create_speculation(P8000, Access::ReadOnly, 0).unwrap();
    let checkpoint_8000 = checkpoint_of(&mut world, P8000);
    let s2 = world.create_speculation(P8001, Access::ReadOnly, 0).unwrap();
    let checkpoint_8001_first = checkpoint_of(&mut world, P8001);
    assert!(s1.dependencies.is_empty() && s2.dependencies.is_empty());
    let (s1, s2) = (s1.id, s2.id);
    assert_eq!(world.log_dependencies(&Dependent::Process(P8000)), [set([s1])]);
    assert_eq!(world.log_dependencies(&Dependent::Process(P8001)), [set([s2])]);
    // (b) "an undo entry is not created for process 8000 when it modifies the file"
    world.modify(P8000, INODE, "undo 8000's write");
    assert_eq!(actions(&mut world), []);
    assert_eq!(world.log_dependencies(&Dependent::Object(INODE)), [set([s1])]);
    assert_eq!(world.log_length(&Dependent::Process(P8000)), 1);
    // (c)
    world.modify(P8001, INODE, "undo 8001's write");
    let checkpoint_8001_second = checkpoint_of(&mut world, P8001);
    assert_eq!(world.log_dependencies(&Dependent::Object(INODE)), [set([s1]), set([s2])]);
    assert_eq!(world.log_dependencies(&Dependent::Process(P8001)), [set([s2]), set([s1])]);
    Figure {
        world,
        speculation_1: s1,
        speculation_2: s2,
        checkpoint_8000,
        checkpoint_8001_first,
        checkpoint_8001_second,
    }
}

#[test]
fn modifying_again_takes_no_checkpoint() {
    let mut figure = until_c();
    figure.world.modify(P8001, INODE, "undo 8001's second write");
    assert_eq!(actions(&mut figure.world), []);
    assert_eq!(figure.world.log_length(&Dependent::Process(P8001)), 2);
}

#[test]
fn d_speculation_1_fails() {
    let Figure { mut world, speculation_1, speculation_2, .. } = until_c();
    let figure = until_c();
    assert_eq!(world.fail_speculation(speculation_1), Ok(Verdict::InTime));
    let expected = [
        Action::Stop { process: P8000 },
        Action::Stop { process: P8001 },
        Action::Failed { speculation: speculation_1 },
        Action::RollBack { object: INODE, payloads: vec!["undo 8001's write", "undo 8000's write"] },
        Action::RestoreProcess { process: P8000, checkpoint: figure.checkpoint_8000 },
        Action::RestoreProcess { process: P8001, checkpoint: figure.checkpoint_8001_second },
        Action::RollbackComplete,
        Action::ProcessResolved { process: P8000 },
        Action::ObjectResolved { object: INODE },
    ];
    assert_eq!(actions(&mut world), expected);
    assert_eq!(world.dependencies_of_process(P8001), &set([speculation_2]));
    // "When process 8001 is restarted, it will attempt to write to inode 3556 again."
    world.modify(P8001, INODE, "undo 8001's write");
    assert_eq!(world.log_dependencies(&Dependent::Object(INODE)), [set([speculation_2])]);
    assert_eq!(actions(&mut world), []);
}

#[test]
fn speculation_2_fails_instead() {
    let Figure { mut world, speculation_1, speculation_2, checkpoint_8001_first, checkpoint_8001_second, .. } =
        until_c();
    world.fail_speculation(speculation_2).unwrap();
    let expected = [
        Action::Stop { process: P8001 },
        Action::Failed { speculation: speculation_2 },
        Action::RollBack { object: INODE, payloads: vec!["undo 8001's write"] },
        Action::DiscardCheckpoint { process: P8001, checkpoint: checkpoint_8001_second },
        Action::RestoreProcess { process: P8001, checkpoint: checkpoint_8001_first },
        Action::RollbackComplete,
        Action::ProcessResolved { process: P8001 },
    ];
    assert_eq!(actions(&mut world), expected);
    assert_eq!(world.log_dependencies(&Dependent::Object(INODE)), [set([speculation_1])]);
}

#[test]
fn both_commit() {
    let Figure {
        mut world,
        speculation_1,
        speculation_2,
        checkpoint_8000,
        checkpoint_8001_first,
        checkpoint_8001_second,
    } = until_c();
    world.commit_speculation(speculation_1).unwrap();
    let expected = [
        Action::RollForward { object: INODE, payloads: vec!["undo 8000's write"] },
        Action::DiscardCheckpoint { process: P8000, checkpoint: checkpoint_8000 },
        Action::DiscardCheckpoint { process: P8001, checkpoint: checkpoint_8001_second },
        Action::ProcessResolved { process: P8000 },
    ];
    assert_eq!(actions(&mut world), expected);
    world.commit_speculation(speculation_2).unwrap();
    let expected = [
        Action::RollForward { object: INODE, payloads: vec!["undo 8001's write"] },
        Action::DiscardCheckpoint { process: P8001, checkpoint: checkpoint_8001_first },
        Action::ProcessResolved { process: P8001 },
        Action::ObjectResolved { object: INODE },
    ];
    assert_eq!(actions(&mut world), expected);
}
