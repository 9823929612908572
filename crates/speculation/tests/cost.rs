//! The largest world that the options allow stays cheap.

use speculation::{Access, Action, Options, Process, World};
use std::time::{Duration, Instant};

const COUNT: u32 = 2000;

/// Processes in a chain, each of which speculates often and writes what the next one reads.
fn full(share_checkpoints: bool) -> World<u32, u32, u32> {
    let options = Options { share_checkpoints, ..Options::default() };
    let mut world = World::new(options);
    for n in 0..COUNT {
        let process = Process(n % 20);
        world.observe(process, n.wrapping_sub(1) % 50);
        world.create_speculation(process, Access::ReadOnly, u64::from(n)).unwrap();
        world.modify(process, n % 50, n);
        world.output(process, n);
    }
    world
}

#[test]
fn two_thousand_speculations_commit_or_fail_quickly() {
    for share in [true, false] {
        let start = Instant::now();
        let (mut committing, mut failing) = (full(share), full(share));
        for n in 0..COUNT {
            let (process, counter) = (Process(n % 20), u64::from(n / 20 + 1));
            committing.commit_speculation(speculation::SpeculationId { process, counter }).unwrap();
        }
        let shown = std::iter::from_fn(|| committing.next_action());
        let shown = shown.filter(|action| matches!(action, Action::ReleaseOutput { .. })).count();
        assert_eq!(shown, COUNT as usize);
        failing.fail_speculation(speculation::SpeculationId { process: Process(0), counter: 1 }).unwrap();
        assert_eq!(failing.open_speculations(), 0, "all depended on the first");
        eprintln!("share {share}: {:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
