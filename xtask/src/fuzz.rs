//! `fuzz`: hostile clients against the server of BlueFS, a hostile server against its client
//! (`crates/bluefs-server/tests/hostile.rs`, `crates/bluefs-client/tests/hostile.rs`), what comes before either knows
//! the other (`crates/bluefs-server/tests/hostile_access.rs`), and damaged stores
//! (`crates/bluefs-store/tests/hostile.rs`).

use crate::shell::cargo;

/// Minutes for each if nothing else is said.
const MINUTES: u64 = 1;

/// Tries seeds for so many minutes at each.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut minutes, mut seed) = (MINUTES, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or(format!("{word} needs a number"));
        match word.as_str() {
            "--for" => minutes = number()?,
            "--seed" => seed = Some(number()?),
            other => return Err(format!("fuzz does not know {other}")),
        }
    }
    // One that is new each time.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed: u64 = seed.unwrap_or_else(|| now.map_or(1, |now| now.as_secs() << 20));
    let tests = cargo(&[
        "test",
        "--quiet",
        "--workspace",
        "--test",
        "hostile",
        "--test",
        "hostile_access",
        "--",
        "--nocapture",
    ]);
    tests.env("BLUEFS_FUZZ_SECONDS", (minutes * 60).to_string()).env("BLUEFS_FUZZ_SEED", seed.to_string()).run()
}
