//! One thread at a time: who asks, and what is kept.
#![cfg(not(loom))]

use epochs::{Ask, Asker, Busy, Epochs, Object, Process, Thread, Want, OBJECTS_MAX};
use std::panic::{catch_unwind, AssertUnwindSafe};

struct World {
    epochs: Epochs,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    objects: Vec<Object>,
}

impl World {
    fn new() -> World {
        World {
            epochs: Epochs::new(),
            processes: (0..3).map(|_| Process::new(0)).collect(),
            threads: (0..3).map(|_| Thread::new()).collect(),
            objects: (0..6).map(|slot| Object::new(slot + 1)).collect(),
        }
    }

    fn asker(&self, process: usize) -> Asker<'_> {
        Asker { process: &self.processes[process], thread: process, siblings: &[] }
    }

    fn guess(&self, process: usize) {
        self.epochs.guess(self.asker(process), &self.threads, || ()).unwrap();
    }

    /// The slots that were kept, if the call need not ask. It is over then.
    fn call(&self, process: usize, wanted: &[Want]) -> Result<Vec<usize>, Ask> {
        let mut kept = Vec::new();
        let keep = |slot| {
            kept.push(slot);
            true
        };
        self.epochs.enter(&self.processes[process], &self.threads, process, &self.objects, wanted, keep)?;
        self.threads[process].clear();
        Ok(kept)
    }

    /// The slots that were kept, and whether a checkpoint was made. The call is over then.
    fn grant(&self, process: usize, wanted: &[Want]) -> Result<(Vec<usize>, bool), Busy> {
        let (mut kept, mut checkpoint) = (Vec::new(), false);
        self.epochs.grant(
            self.asker(process),
            &self.threads,
            &self.objects,
            wanted,
            || checkpoint = true,
            |slot| kept.push(slot),
        )?;
        self.threads[process].clear();
        Ok((kept, checkpoint))
    }
}

fn look(slot: usize) -> Want {
    Want { slot, key: slot as u64 + 1, modifies: false }
}

fn change(slot: usize) -> Want {
    Want { modifies: true, ..look(slot) }
}

#[test]
fn without_a_guess_nobody_asks_and_nothing_is_kept() {
    let world = World::new();
    assert_eq!(world.call(0, &[change(0), look(1)]), Ok(vec![]));
    assert_eq!(world.call(1, &[change(0)]), Ok(vec![]));
}

#[test]
fn the_first_modification_keeps_and_the_second_does_not() {
    let world = World::new();
    world.guess(0);
    assert_eq!(world.call(0, &[change(0)]), Ok(vec![0]));
    assert_eq!(world.call(0, &[change(0), look(1)]), Ok(vec![]));
    world.epochs.seal();
    world.guess(0);
    assert_eq!(world.call(0, &[change(0)]), Ok(vec![0]), "in a new epoch");
}

#[test]
fn whoever_would_depend_on_more_asks_once_and_is_checkpointed() {
    let world = World::new();
    world.guess(0);
    world.call(0, &[change(0)]).unwrap();
    assert_eq!(world.call(1, &[look(0)]), Err(Ask::Gain));
    assert_eq!(world.grant(1, &[look(0)]), Ok((vec![], true)));
    assert_eq!(world.call(1, &[look(0)]), Ok(vec![]));
    assert_eq!(world.call(1, &[change(2)]), Ok(vec![2]), "it depends on the guess now");
    assert_eq!(world.call(2, &[look(2)]), Err(Ask::Gain));
}

#[test]
fn a_committed_epoch_is_no_dependency() {
    let world = World::new();
    world.guess(0);
    world.call(0, &[change(0)]).unwrap();
    world.epochs.commit(1);
    assert_eq!(world.call(1, &[look(0)]), Ok(vec![]));
    assert_eq!(world.call(1, &[change(0)]), Ok(vec![]));
    assert_eq!(world.call(0, &[change(1)]), Ok(vec![]));
}

#[test]
fn one_object_mentioned_twice_is_granted() {
    let world = World::new();
    world.guess(0);
    world.call(0, &[change(3)]).unwrap();
    assert_eq!(world.grant(1, &[look(3), change(4), change(3), look(4)]), Ok((vec![4], true)));
    assert_eq!(world.call(1, &[look(3), change(4), change(3)]), Ok(vec![]));
}

#[test]
fn what_cannot_be_decided_alone_asks() {
    let world = World::new();
    let many: Vec<Want> = (0..=OBJECTS_MAX).map(look).collect();
    assert_eq!(world.call(0, &many), Err(Ask::TooMany));
    assert_eq!(world.call(0, &[Want { key: 99, ..look(0) }]), Err(Ask::OtherObject));
    world.processes[0].set_asks(true);
    assert_eq!(world.call(0, &[look(0)]), Err(Ask::Process));
    world.processes[0].set_asks(false);
    world.objects[0].ask_about();
    assert_eq!(world.call(0, &[look(0)]), Err(Ask::Unsettled));
    assert_eq!(world.grant(0, &[look(0)]), Ok((vec![], false)), "who is asked may");
    world.objects[0].do_not_ask_about();
    assert_eq!(world.call(0, &[look(0)]), Ok(vec![]));
}

#[test]
fn an_object_in_use_is_not_touched_first_and_not_granted() {
    let world = World::new();
    world.guess(0);
    let keep = |_| true;
    world.epochs.enter(&world.processes[1], &world.threads, 1, &world.objects, &[look(5), look(0)], keep).unwrap();
    assert_eq!(world.call(0, &[change(0)]), Err(Ask::InUse));
    assert_eq!(world.grant(0, &[change(2), change(0)]), Err(Busy::Working(1)));
    world.threads[1].clear();
    assert_eq!(world.grant(0, &[change(2), change(0)]), Ok((vec![2, 0], false)));
}

#[test]
fn a_process_gains_nothing_while_a_sibling_is_in_a_call() {
    let world = World::new();
    world.guess(0);
    world.call(0, &[change(0)]).unwrap();
    world.epochs.enter(&world.processes[1], &world.threads, 2, &world.objects, &[look(5)], |_| true).unwrap();
    let asker = Asker { siblings: &[2], ..world.asker(1) };
    let granted = world.epochs.grant(asker, &world.threads, &world.objects, &[look(0)], || (), |_| ());
    assert_eq!(granted, Err(Busy::Working(2)));
    let guess = world.epochs.guess(asker, &world.threads, || ());
    assert_eq!(guess, Err(Busy::Working(2)));
    assert_eq!(world.call(0, &[look(0)]), Ok(vec![]), "nothing stayed marked");
}

#[test]
fn a_slot_that_has_another_object_depends_on_nothing() {
    let world = World::new();
    world.guess(0);
    world.call(0, &[change(0)]).unwrap();
    world.epochs.give_slot(&world.objects, 0, 77, &world.threads).unwrap();
    assert_eq!(world.call(1, &[look(0)]), Err(Ask::OtherObject));
    assert_eq!(world.call(1, &[Want { key: 77, ..look(0) }]), Ok(vec![]));
}

#[test]
fn a_thread_that_dies_while_it_keeps_leaves_nothing_marked() {
    let world = World::new();
    world.guess(0);
    let died = catch_unwind(AssertUnwindSafe(|| {
        let keep = |_| -> bool { panic!("the thread ends here") };
        world.epochs.enter(&world.processes[0], &world.threads, 0, &world.objects, &[look(1), change(0)], keep)
    }));
    assert!(died.is_err());
    assert_eq!(world.call(1, &[look(0)]), Err(Ask::Unsettled));
    assert_eq!(world.grant(1, &[look(0)]), Err(Busy::Marked(0)));
    world.epochs.forget_call(&world.objects, &world.threads, 0);
    assert_eq!(world.call(1, &[look(0)]), Ok(vec![]), "its epoch was not raised");
    assert_eq!(world.grant(1, &[change(1)]), Ok((vec![], false)));
}

#[test]
fn what_failed_is_put_back_and_what_did_not_is_left() {
    let world = World::new();
    world.guess(0);
    world.call(0, &[change(0)]).unwrap();
    assert_eq!(world.epochs.begin_to_put_back(&world.objects, 0, 1, &world.threads), Ok(true));
    assert_eq!(world.call(1, &[look(0)]), Err(Ask::Unsettled));
    world.epochs.put_back(&world.objects, 0, 0);
    world.epochs.put_process_back(&world.processes[0], 0);
    assert_eq!(world.epochs.begin_to_put_back(&world.objects, 1, 1, &world.threads), Ok(false));
    assert_eq!(world.call(1, &[look(0), look(1)]), Ok(vec![]));
    assert_eq!(world.call(0, &[change(0)]), Ok(vec![]), "it depends on nothing any more");
}
