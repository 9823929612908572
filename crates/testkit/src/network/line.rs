//! One direction of a line, without a clock: when does which packet arrive?

use std::time::Duration;

use super::Shape;

/// For so long may packets wait for the line: as long as the buffer of a home's router.
const QUEUE_MAX: Duration = Duration::from_millis(200);

/// One direction.
#[derive(Debug)]
pub struct Line {
    delay: Duration,
    rate: Option<u64>,
    loss: f64,
    chance: fastrand::Rng,
    /// When the line has sent all that it has.
    free_at: Duration,
}

impl Line {
    /// A line on which nothing is. The directions of one shape lose different packets.
    pub fn new(shape: Shape, direction: u64) -> Self {
        Self {
            delay: shape.round_trip / 2,
            rate: shape.rate,
            loss: shape.loss,
            chance: fastrand::Rng::with_seed(shape.seed.wrapping_mul(2).wrapping_add(direction)),
            free_at: Duration::ZERO,
        }
    }

    /// When a packet that is given to the line `now` arrives, or `None` if it is lost.
    pub fn arrival(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        if self.chance.f64() < self.loss {
            return None;
        }
        let from = self.free_at.max(now);
        if from - now > QUEUE_MAX {
            return None;
        }
        let nanoseconds = |rate: u64| bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
        let sending = self.rate.map_or(0, nanoseconds);
        self.free_at = from + Duration::from_nanos(u64::try_from(sending).unwrap_or(u64::MAX));
        Some(self.free_at + self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn half_a_round_trip_is_the_delay() {
        let mut line = Line::new(Shape { round_trip: 30 * MS, ..Shape::default() }, 0);
        assert_eq!(line.arrival(5 * MS, 1500), Some(20 * MS));
        assert_eq!(line.arrival(5 * MS, 1500), Some(20 * MS), "without a rate nothing waits");
    }

    #[test]
    fn packets_wait_for_those_before_them() {
        // 1,000 bytes take a millisecond.
        let mut line = Line::new(Shape { rate: Some(8_000_000), round_trip: 10 * MS, ..Shape::default() }, 0);
        assert_eq!(line.arrival(MS, 1000), Some(7 * MS));
        assert_eq!(line.arrival(MS, 1000), Some(8 * MS));
        assert_eq!(line.arrival(10 * MS, 500), Some(15 * MS + MS / 2));
    }

    #[test]
    fn what_would_wait_too_long_is_lost() {
        let mut line = Line::new(Shape { rate: Some(8_000_000), ..Shape::default() }, 0);
        let arrived = (0..1000).filter(|_| line.arrival(Duration::ZERO, 1000).is_some()).count();
        assert_eq!(arrived, 201, "200 ms of packets and the one that is sent");
    }

    #[test]
    fn about_as_many_are_lost_as_are_to_be_and_the_same_with_the_same_seed() {
        let lost = |seed, direction| -> Vec<bool> {
            let mut line = Line::new(Shape { loss: 0.25, seed, ..Shape::default() }, direction);
            (0..4000).map(|_| line.arrival(Duration::ZERO, 100).is_none()).collect()
        };
        let count = lost(7, 0).iter().filter(|lost| **lost).count();
        assert!((850..1150).contains(&count), "{count}");
        assert_eq!(lost(7, 0), lost(7, 0));
        assert_ne!(lost(7, 0), lost(7, 1));
        assert_ne!(lost(7, 0), lost(8, 0));
    }
}
