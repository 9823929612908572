//! Event descriptors (eventfd(2)): a counter, which is read in /proc and put back by reading and writing.

use crate::ahead::objects::kind::{info_of, Effect, Kind, Readiness, State};
use crate::ahead::Call;
use rustix::io::{read, write};
use std::io;
use std::os::fd::OwnedFd;
use syscall_table::{nr, Op};

/// More than this a semaphore does not get on a guess: whoever takes that back reads once for each unit.
const UNITS_MAX: u64 = 1 << 16;

#[derive(Debug)]
pub(in crate::ahead) struct Counters;

impl Kind for Counters {
    fn name(&self) -> &'static str {
        "event counter"
    }

    fn link(&self) -> &'static str {
        "anon_inode:[eventfd]"
    }

    fn readiness(&self) -> Readiness {
        Readiness::ByOthers
    }

    fn number(&self, file: &OwnedFd) -> io::Result<Option<u64>> {
        Ok(Some(Counter::of(file)?.id))
    }

    /// Reading changes it as writing does, and each may wait for the other.
    fn effect(&self, call: &Call, op: Op, file: &OwnedFd) -> Effect {
        let is_too_much = |units: Option<u64>| {
            // One by one is as many calls as it took.
            units != Some(1) && Counter::of(file).map_or(true, |counter| !counter.has_room(units))
        };
        match op {
            Op::Write { .. } if is_too_much(units_of(call)) => Effect::IsCertain,
            Op::Read { .. } | Op::Write { .. } => Effect::Changes,
            _ => Effect::Waits,
        }
    }

    fn state(&self, file: &OwnedFd) -> io::Result<Box<dyn State>> {
        Ok(Box::new(Counter::of(file)?))
    }
}

/// The state of an event descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    /// The kernel's number of it: all of them have one inode.
    id: u64,
    count: u64,
    /// Reading takes one, not all.
    is_semaphore: bool,
}

impl State for Counter {
    fn restore(&self, fd: &OwnedFd) -> io::Result<()> {
        let now = Self::of(fd)?;
        let reads = match self.is_semaphore {
            true => now.count.saturating_sub(self.count),
            false => u64::from(now.count > self.count),
        };
        for _ in 0..reads {
            read(fd, &mut [0u8; 8])?;
        }
        let left = if reads > 0 && !self.is_semaphore { 0 } else { now.count.min(self.count) };
        if self.count > left {
            write(fd, &(self.count - left).to_ne_bytes())?;
        }
        Ok(())
    }
}

impl Counter {
    /// Whether it has no more than may be taken out unit by unit, if it is one of which that is done, once so many are
    /// put in. `None`: it is not known how many.
    fn has_room(&self, units: Option<u64>) -> bool {
        !self.is_semaphore || units.is_some_and(|units| self.count.saturating_add(units) <= UNITS_MAX)
    }

    fn of(fd: &OwnedFd) -> io::Result<Self> {
        Self::parse(&info_of(fd)?).ok_or(io::ErrorKind::Unsupported.into())
    }

    fn parse(info: &str) -> Option<Self> {
        let field = |name| procfs::value(info, name);
        Some(Self {
            id: field("eventfd-id")?.parse().ok()?,
            count: u64::from_str_radix(field("eventfd-count")?, 16).ok()?,
            is_semaphore: field("eventfd-semaphore")? == "1",
        })
    }
}

/// How much a call puts in.
fn units_of(call: &Call) -> Option<u64> {
    let [_, buffer, ..] = call.frame.args;
    if call.frame.nr == nr::write {
        tracee::read_value(call.tid, buffer).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{eventfd, EventfdFlags};

    #[track_caller]
    fn check(flags: EventfdFlags, before: u32, change: impl Fn(&OwnedFd)) {
        let fd = eventfd(before, flags | EventfdFlags::CLOEXEC).unwrap();
        let counter = Counter::of(&fd).unwrap();
        assert_eq!(counter.count, u64::from(before));
        change(&fd);
        counter.restore(&fd).unwrap();
        assert_eq!(Counter::of(&fd).unwrap(), counter);
    }

    #[test]
    fn a_counter_is_what_it_was() {
        let add = |n: u64| move |fd: &OwnedFd| assert_eq!(write(fd, &n.to_ne_bytes()), Ok(8));
        let take = |fd: &OwnedFd| assert_eq!(read(fd, &mut [0u8; 8]), Ok(8));
        for flags in [EventfdFlags::empty(), EventfdFlags::SEMAPHORE, EventfdFlags::NONBLOCK] {
            check(flags, 0, add(300));
            check(flags, 17, add(1));
            check(flags, 17, take);
            check(flags, 5, |fd| {
                take(fd);
                add(2)(fd);
            });
            check(flags, 3, |_| {});
        }
    }

    #[test]
    fn other_descriptors_are_none() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(Counter::of(&reader).is_err());
    }
}
