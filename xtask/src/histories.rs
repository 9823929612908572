//! `histories`: random histories of several clients of BlueFS, judged by whether one copy could have answered so
//! (`tests/histories`).

use crate::shell::{build_comparer, build_judged, comparer, is_root, target, Job};

/// Histories of a sample: a quarter of a minute.
const SAMPLE: &str = "40";
/// Errors that are made on purpose. `late-pages` needs mounts, and so root.
const PLANTED: [&str; 8] = [
    "lost-invalidations",
    "stale-after-reconnection",
    "lost-commits",
    "rename-in-two",
    "batch-in-parts",
    "appended-twice",
    "lock-of-two",
    "long-leases",
];
/// Histories in which each of them has to be found.
const PLANTED_HISTORIES: &str = "60";

fn histories() -> Job {
    comparer("histories", &target().join("histories"))
}

/// Histories, with the program's own arguments.
pub fn run(arguments: &[String]) -> Result<(), String> {
    build_judged()?;
    build_comparer("histories")?;
    histories().args(arguments).run()
}

/// Some histories, and that each planted error is found.
pub fn sample() -> Result<(), String> {
    run(&[SAMPLE, "--seed=1"].map(str::to_owned))?;
    let of_mounts = is_root().then_some("late-pages");
    let mut planted = PLANTED.iter().copied().chain(of_mounts);
    planted.try_for_each(|error| histories().args([PLANTED_HISTORIES, "--seed=1", "--planted", error]).run())
}
