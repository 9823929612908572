//! Timer descriptors (timerfd_create(2)), which are put back to what they would be by now
//! ([0112](../../../../../../docs/decisions/0112-timer-descriptors.md)).
//!
//! Time is not taken back. A timer is kept as the moments at which it expires, so that what was due while somebody ran
//! ahead is there after a rollback, as if nobody had touched it.

#[allow(unsafe_code)]
mod sys;

use crate::ahead::objects::kind::{info_of, Effect, Kind, Readiness, State};
use crate::ahead::Call;
use rustix::time::{clock_gettime, timerfd_gettime, timerfd_settime};
use rustix::time::{ClockId, Itimerspec, TimerfdTimerFlags, Timespec};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use syscall_table::{nr, Op};

/// Of a timer with a very short interval no two looks agree: it is looked at so often.
const LOOKS_MAX: usize = 8;

#[derive(Debug)]
pub(in crate::ahead) struct Timers;

impl Kind for Timers {
    fn name(&self) -> &'static str {
        "timer"
    }

    fn link(&self) -> &'static str {
        "anon_inode:[timerfd]"
    }

    fn readiness(&self) -> Readiness {
        Readiness::ByItself
    }

    /// It has none.
    fn number(&self, _file: &OwnedFd) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn effect(&self, call: &Call, op: Op, _file: &OwnedFd) -> Effect {
        let number = call.frame.nr;
        match op {
            // It takes the expirations.
            Op::Read { .. } => Effect::Changes,
            // EINVAL.
            Op::Write { .. } => Effect::Nothing,
            Op::Description { .. } if number == nr::timerfd_settime => Effect::Changes,
            Op::Description { .. } if number == nr::timerfd_gettime => Effect::Observes,
            _ => Effect::Waits,
        }
    }

    fn state(&self, file: &OwnedFd) -> io::Result<Box<dyn State>> {
        static CAN_SET_TICKS: OnceLock<bool> = OnceLock::new();
        if !*CAN_SET_TICKS.get_or_init(sys::can_set_ticks) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Box::new(Timer::of(file)?))
    }
}

/// A timer. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timer {
    /// What it was set by.
    clock: ClockId,
    /// Of its last `timerfd_settime`.
    flags: u32,
    schedule: Schedule,
}

/// When it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Schedule {
    /// Next; `None`: never.
    next: Option<u64>,
    /// From one time to the next; zero: there is only one.
    interval: u64,
    /// How often it has expired since somebody read it, or set it.
    ticks: u64,
}

impl Schedule {
    /// What becomes of it until `now` if nobody touches it.
    fn at(self, now: u64) -> Self {
        let Some(next) = self.next.filter(|&next| next <= now) else { return self };
        if self.interval == 0 {
            return Self { next: None, ticks: self.ticks + 1, ..self };
        }
        let expired = 1 + (now - next) / self.interval;
        Self { next: Some(next + expired * self.interval), ticks: self.ticks + expired, ..self }
    }
}

/// What `/proc/PID/fdinfo` says of a timer that `timerfd_gettime` does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Info {
    clock: u32,
    ticks: u64,
    flags: u32,
}

impl Info {
    fn of(file: &OwnedFd) -> io::Result<Self> {
        Self::parse(&info_of(file)?).ok_or(io::ErrorKind::Unsupported.into())
    }

    fn parse(info: &str) -> Option<Self> {
        let field = |name| procfs::value(info, name);
        Some(Self {
            clock: field("clockid")?.parse().ok()?,
            ticks: field("ticks")?.parse().ok()?,
            flags: u32::from_str_radix(field("settime flags")?, 8).ok()?,
        })
    }

    /// By which clock its expirations are known beforehand; `None`: they are not, or we may not set it.
    fn clock(&self) -> Option<ClockId> {
        const ABSOLUTE: u32 = TimerfdTimerFlags::ABSTIME.bits();
        const CANCELLED: u32 = TimerfdTimerFlags::CANCEL_ON_SET.bits();
        if self.flags & CANCELLED != 0 && self.ticks > 0 {
            // It may be that the clock was set: the next read would say so, once.
            return None;
        }
        match self.clock as i32 {
            libc::CLOCK_REALTIME if self.flags & ABSOLUTE != 0 => Some(ClockId::Realtime),
            // A time from now on does not change with the clock.
            libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC => Some(ClockId::Monotonic),
            libc::CLOCK_BOOTTIME => Some(ClockId::Boottime),
            _ => None,
        }
    }
}

impl Timer {
    fn of(file: &OwnedFd) -> io::Result<Self> {
        for _ in 0..LOOKS_MAX {
            // After this it waits for its next expiration, and those before are counted.
            let first = nanoseconds(timerfd_gettime(file)?.it_value);
            let info = Info::of(file)?;
            let left = timerfd_gettime(file)?;
            let clock = info.clock().ok_or(io::ErrorKind::Unsupported)?;
            let now = nanoseconds(clock_gettime(clock));
            let (second, interval) = (nanoseconds(left.it_value), nanoseconds(left.it_interval));
            let has_expired = second > first || (second == 0) != (first == 0);
            if !has_expired && Info::of(file)? == info {
                let next = (second > 0).then(|| now + second);
                let schedule = Schedule { next, interval, ticks: info.ticks };
                return Ok(Self { clock, flags: info.flags, schedule });
            }
        }
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl State for Timer {
    fn restore(&self, file: &OwnedFd) -> io::Result<()> {
        let flags = TimerfdTimerFlags::from_bits_retain(self.flags);
        for _ in 0..LOOKS_MAX {
            let now = nanoseconds(clock_gettime(self.clock));
            let schedule = self.schedule.at(now);
            let value = match schedule.next {
                Some(next) if flags.contains(TimerfdTimerFlags::ABSTIME) => next,
                Some(next) => next - now,
                None => 0,
            };
            let value = Itimerspec { it_interval: timespec(schedule.interval), it_value: timespec(value) };
            timerfd_settime(file, flags, &value)?;
            if schedule.ticks > 0 {
                sys::set_ticks(file, schedule.ticks)?;
            }
            // One that was due meanwhile may have been counted before the others were.
            if schedule.next.is_none_or(|next| nanoseconds(clock_gettime(self.clock)) < next) {
                break;
            }
        }
        Ok(())
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timespec(nanoseconds: u64) -> Timespec {
    Timespec { tv_sec: (nanoseconds / 1_000_000_000) as _, tv_nsec: (nanoseconds % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{timerfd_create, TimerfdClockId, TimerfdFlags};

    const SECOND: u64 = 1_000_000_000;

    fn new(clock: TimerfdClockId) -> OwnedFd {
        timerfd_create(clock, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK).unwrap()
    }

    fn set(timer: &OwnedFd, flags: TimerfdTimerFlags, value: u64, interval: u64) {
        let value = Itimerspec { it_interval: timespec(interval), it_value: timespec(value) };
        timerfd_settime(timer, flags, &value).unwrap();
    }

    fn read(timer: &OwnedFd) -> Option<u64> {
        let mut ticks = [0; 8];
        rustix::io::read(timer, &mut ticks).ok().map(|_| u64::from_ne_bytes(ticks))
    }

    fn left(timer: &OwnedFd) -> u64 {
        nanoseconds(timerfd_gettime(timer).unwrap().it_value)
    }

    /// Puts it back after `change`.
    fn kept_over(timer: &OwnedFd, change: impl Fn(&OwnedFd)) {
        let before = Timer::of(timer).unwrap();
        change(timer);
        before.restore(timer).unwrap();
        let after = Timer::of(timer).unwrap();
        assert_eq!((after.clock, after.flags), (before.clock, before.flags));
        assert_eq!(after.schedule.interval, before.schedule.interval);
    }

    fn disarm(timer: &OwnedFd) {
        set(timer, TimerfdTimerFlags::empty(), 0, 0);
    }

    /// Tick by tick.
    fn by_steps(mut schedule: Schedule, now: u64) -> Schedule {
        while let Some(next) = schedule.next.filter(|&next| next <= now) {
            schedule.ticks += 1;
            schedule.next = (schedule.interval > 0).then(|| next + schedule.interval);
        }
        schedule
    }

    #[test]
    fn a_schedule_goes_on_as_if_each_tick_had_been_counted() {
        let mut chance = 1u64;
        let mut draw = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % below
        };
        for _ in 0..20_000 {
            let next = (draw(8) > 0).then(|| draw(200));
            let schedule = Schedule { next, interval: draw(4) * draw(20), ticks: draw(5) };
            let (first, then) = (draw(400), draw(400));
            assert_eq!(schedule.at(first), by_steps(schedule, first), "{schedule:?} at {first}");
            let (first, then) = (first.min(then), first.max(then));
            assert_eq!(schedule.at(first).at(then), schedule.at(then), "{schedule:?} at {first} and {then}");
        }
    }

    #[test]
    fn a_timer_expires_when_it_would_have() {
        for clock in [TimerfdClockId::Realtime, TimerfdClockId::Monotonic, TimerfdClockId::Boottime] {
            let timer = new(clock);
            set(&timer, TimerfdTimerFlags::empty(), 500 * SECOND, 7 * SECOND);
            kept_over(&timer, disarm);
            assert!((490 * SECOND..=500 * SECOND).contains(&left(&timer)));
            kept_over(&timer, |timer| set(timer, TimerfdTimerFlags::empty(), 1, 0));
            assert!((490 * SECOND..=500 * SECOND).contains(&left(&timer)));
            assert_eq!(read(&timer), None);
        }
    }

    #[test]
    fn what_was_not_read_is_there_again() {
        let timer = new(TimerfdClockId::Monotonic);
        set(&timer, TimerfdTimerFlags::empty(), 1, 100 * SECOND);
        sys::set_ticks(&timer, 6).unwrap();
        kept_over(&timer, |timer| assert!(read(timer).is_some()));
        assert!(read(&timer).is_some_and(|ticks| (6..=7).contains(&ticks)));
        assert!((90 * SECOND..=100 * SECOND).contains(&left(&timer)));
    }

    #[test]
    fn what_was_due_meanwhile_has_come() {
        let timer = new(TimerfdClockId::Monotonic);
        set(&timer, TimerfdTimerFlags::empty(), 1_000_000, 0);
        let before = Timer::of(&timer).unwrap();
        disarm(&timer);
        std::thread::sleep(std::time::Duration::from_millis(5));
        before.restore(&timer).unwrap();
        assert_eq!((read(&timer), left(&timer)), (Some(1), 0));
    }

    #[test]
    fn a_time_of_the_clock_stays_one_and_is_cancelled_with_it() {
        let timer = new(TimerfdClockId::Realtime);
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        set(&timer, flags, nanoseconds(clock_gettime(ClockId::Realtime)) + 300 * SECOND, 0);
        kept_over(&timer, disarm);
        assert_eq!(Timer::of(&timer).unwrap().clock, ClockId::Realtime);
        assert!((290 * SECOND..=301 * SECOND).contains(&left(&timer)));
        sys::set_ticks(&timer, 1).unwrap();
        assert_eq!(Timer::of(&timer).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn a_timer_that_is_off_stays_off() {
        let timer = new(TimerfdClockId::Monotonic);
        kept_over(&timer, |timer| set(timer, TimerfdTimerFlags::empty(), SECOND, SECOND));
        assert_eq!((read(&timer), left(&timer)), (None, 0));
    }
}
