//! What the tests with hostile clients and a hostile server have in common (`hostile.rs`, here and of `bluefs-server`):
//! where their numbers come from, and how many seeds they try.

use std::ops::Range;
use std::time::{Duration, Instant};

use bluefs::Ino;

/// MiB that may be mapped.
const MAPPED_MIB_MAX: u64 = 6144;

/// Gives out seeds, `at_once` at a time: `some` in all, or for as long as `cargo xtask fuzz` is to take. In the end at
/// most `used_mib_max` MiB of memory may be used.
pub fn for_seeds(some: u64, at_once: u64, used_mib_max: u64, mut each: impl FnMut(Range<u64>)) {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    let first = number("BLUEFS_FUZZ_SEED").unwrap_or(1);
    let limit = number("BLUEFS_FUZZ_SECONDS").map(Duration::from_secs);
    let (begun, mut next) = (Instant::now(), first);
    while limit.map_or(next - first < some, |limit| begun.elapsed() < limit) {
        each(next..next + at_once);
        next += at_once;
    }
    let (peak, now) = (memory("VmPeak:"), memory("VmRSS:"));
    println!("{} seeds from {first}; {peak} MiB were mapped at most, {now} MiB are used", next - first);
    assert!(peak < MAPPED_MIB_MAX && now < used_mib_max, "{peak} MiB, {now} MiB");
}

/// MiB of this process.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
}

/// Numbers that look random, the same ones for the same seed.
pub struct Dice(fastrand::Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0.u64(..sides)
    }

    /// Small ones, those at bounds, and any.
    pub fn number(&mut self) -> u64 {
        let near = self.roll(3);
        match self.roll(9) {
            0..=4 => self.roll(8),
            5 => u64::MAX - near,
            6 => (1 << 63) - 1 + near,
            7 => (1 << 50) - 1 + near,
            _ => self.roll(u64::from(u32::MAX)) << self.roll(32),
        }
    }

    pub fn ino(&mut self) -> Ino {
        Ino(self.number())
    }
}
