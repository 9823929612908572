//! From time to place. Long waits in which nothing happens are drawn short and bursts wide: the ticks tell the time.

/// Pixels between one event and the next.
const STEP_MIN: f64 = 5.0;
const STEP_MAX: f64 = 90.0;
/// What the whole would take if it were drawn evenly, pixels.
const EVEN: f64 = 900.0;
/// Pixels between ticks, at least.
const TICK: f64 = 90.0;

/// An axis over moments, microseconds.
#[derive(Debug)]
pub struct Scale {
    /// Moments that something happened at, and where they are: both ascend.
    stops: Vec<(u64, f64)>,
}

impl Scale {
    /// For these moments; the first is at `left`.
    pub fn new(mut moments: Vec<u64>, left: f64) -> Self {
        moments.sort_unstable();
        moments.dedup();
        let total = moments.last().zip(moments.first()).map_or(1, |(last, first)| (last - first).max(1));
        let mut at = left;
        let mut stops: Vec<(u64, f64)> = Vec::new();
        for moment in moments {
            if let Some(&(before, _)) = stops.last() {
                at += ((moment - before) as f64 * EVEN / total as f64).clamp(STEP_MIN, STEP_MAX);
            }
            stops.push((moment, at));
        }
        Self { stops }
    }

    /// Where a moment is.
    pub fn x(&self, moment: u64) -> f64 {
        let after = self.stops.partition_point(|&(stop, _)| stop <= moment);
        match (after.checked_sub(1).map(|i| self.stops[i]), self.stops.get(after)) {
            (Some((from, x)), Some(&(to, next))) => x + (next - x) * (moment - from) as f64 / (to - from) as f64,
            (Some((_, x)), None) | (None, Some(&(_, x))) => x,
            (None, None) => 0.0,
        }
    }

    /// Where it ends.
    pub fn end(&self) -> f64 {
        self.stops.last().map_or(0.0, |&(_, x)| x)
    }

    /// Moments to write down, not too near each other.
    pub fn ticks(&self) -> Vec<u64> {
        let mut last = f64::NEG_INFINITY;
        let far = |&&(_, x): &&(u64, f64)| {
            let is_far = x - last >= TICK;
            last = if is_far { x } else { last };
            is_far
        };
        self.stops.iter().filter(far).map(|&(moment, _)| moment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_to_the_right_and_waits_are_short() {
        let scale = Scale::new(vec![1_000_000, 0, 10, 20, 20], 100.0);
        let places: Vec<f64> = [0, 10, 20, 500_000, 1_000_000, 2_000_000].map(|moment| scale.x(moment)).to_vec();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(places[..3], [100.0, 105.0, 110.0], "a burst can be told apart");
        assert_eq!((scale.end(), places[5]), (200.0, 200.0), "a second of nothing is short");
        assert_eq!(scale.ticks(), [0, 1_000_000]);
    }

    #[test]
    fn nothing_happened() {
        let scale = Scale::new(Vec::new(), 100.0);
        assert_eq!((scale.x(5), scale.end(), scale.ticks().len()), (0.0, 0.0, 0));
    }
}
