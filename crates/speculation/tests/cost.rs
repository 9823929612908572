//! The largest world that the options allow stays cheap.

use speculation::{Access, Action, Options, Process, World};
use std::time::Duration;

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

/// What this thread has computed so far: on a busy machine a clock tells something else.
fn cpu_time() -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(spent.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn two_thousand_speculations_commit_or_fail_quickly() {
    for share in [true, false] {
        let start = cpu_time();
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
        let spent = cpu_time() - start;
        eprintln!("share {share}: {spent:?}");
        assert!(spent < Duration::from_secs(10), "{spent:?}");
    }
}
