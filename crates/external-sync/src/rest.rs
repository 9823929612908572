//! When a commit that output waits for begins. After a commit the file system is left to the programs for as long
//! as that commit took, so that a world that shows much does not keep it busy with commits only, and one commit
//! lets many answers go. Nobody gains by that rest while the world makes no calls: then it ends early (002, 3.4: a
//! commit begins when output depends on it).

use std::time::{Duration, Instant};

/// A world that has made no call for this fraction of the last commit's duration is idle.
const IDLE_FRACTION: u32 = 16;
/// Shortest time without calls that counts: a program that was woken by an answer needs as long to make its first call.
const IDLE_MIN: Duration = Duration::from_micros(40);
/// Longest: a commit may take seconds on a slow disk.
const IDLE_MAX: Duration = Duration::from_millis(2);

/// The rest after one domain's last commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    until: Instant,
    idle: Duration,
    /// Calls that the world had made when we last looked and saw new ones, and when that was.
    calls: Option<(u64, Instant)>,
}

impl Rest {
    /// A commit has ended at `end`; it took `duration`.
    pub(crate) fn after(end: Instant, duration: Duration) -> Self {
        Self { until: end + duration, idle: (duration / IDLE_FRACTION).clamp(IDLE_MIN, IDLE_MAX), calls: None }
    }

    /// How long the next commit still has to wait, seen at `now`, when the world has made `calls` calls; zero if it
    /// may begin. Ask again after that time at the latest.
    pub(crate) fn left(&mut self, now: Instant, calls: u64) -> Duration {
        let left = self.until.saturating_duration_since(now);
        let since = match self.calls {
            Some((before, since)) if before == calls => since,
            _ => now,
        };
        self.calls = Some((calls, since));
        left.min((since + self.idle).saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Duration = Duration::from_millis(3);

    fn rest() -> (Rest, Instant) {
        let end = Instant::now();
        (Rest::after(end, COMMIT), end)
    }

    #[test]
    fn while_calls_are_made_it_lasts_as_long_as_the_commit_took() {
        let (mut rest, end) = rest();
        let mut now = end;
        let mut calls = 0;
        while now < end + COMMIT {
            let left = rest.left(now, calls);
            assert!(!left.is_zero(), "{:?} after the commit", now - end);
            now += left.min(end + COMMIT - now);
            calls += 1;
        }
        assert_eq!(rest.left(now, calls), Duration::ZERO);
    }

    #[test]
    fn a_world_without_calls_ends_it() {
        let (mut rest, end) = rest();
        let left = rest.left(end, 7);
        assert_eq!(left, COMMIT / IDLE_FRACTION);
        assert_eq!(rest.left(end + left, 7), Duration::ZERO);
    }

    #[test]
    fn a_call_in_between_makes_the_world_busy_again() {
        let (mut rest, end) = rest();
        let idle = rest.left(end, 7);
        assert_eq!(rest.left(end + idle, 8), idle);
        assert_eq!(rest.left(end + 2 * idle, 8), Duration::ZERO);
    }

    #[test]
    fn what_counts_as_idle_has_bounds() {
        let end = Instant::now();
        assert_eq!(Rest::after(end, Duration::from_micros(100)).left(end, 0), IDLE_MIN);
        assert_eq!(Rest::after(end, Duration::from_secs(9)).left(end, 0), IDLE_MAX);
    }
}
