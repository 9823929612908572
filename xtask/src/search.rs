//! `search`: pairs of actions and observations, to find what is shown before it is durable (`tests/search`).

use crate::shell::{build_comparer, build_judged, comparer, is_root, target, Job};

/// How many pairs are a sample: less than a minute.
const SAMPLE: &str = "1500";
/// The same of pairs with an observer outside.
const SAMPLE_OUTSIDE: &str = "700";
/// A pair that tells, and is held.
const PLANTED: [&str; 4] = ["--action", "write_pipe", "--observation", "read_pipe"];

fn search() -> Job {
    let search = comparer("search", &target().join("search"));
    // Actions leave segments and semaphores.
    if is_root() {
        search.with_own_segments()
    } else {
        search
    }
}

/// A search, with the program's own arguments.
pub fn run(arguments: &[String]) -> Result<(), String> {
    build_judged()?;
    build_comparer("search")?;
    search().args(arguments).run()
}

/// Some pairs, and that a world which shows its output too early is found out.
pub fn sample() -> Result<(), String> {
    run(&["--pairs", SAMPLE, "--outside", "false"].map(str::to_owned))?;
    println!("\nobservers outside");
    search().args(["--pairs", SAMPLE_OUTSIDE, "--outside", "true", "--options=--hold-input"]).run()?;
    println!("\noutput released too early on purpose: a hole must be found");
    search().args(PLANTED).args(["--options=--release-early"]).has_to_find("the search")
}
