//! Event descriptors (eventfd(2)): a counter, which is read in /proc and put back by reading and writing.

use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The state of an event descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// The kernel's number of it: all of them have one inode.
    pub id: u64,
    pub count: u64,
    /// Reading takes one, not all.
    pub is_semaphore: bool,
}

impl Counter {
    /// `None` if this is no event descriptor.
    pub fn of(fd: &OwnedFd) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?)
    }

    fn parse(info: &str) -> Option<Self> {
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(Self {
            id: field("eventfd-id:")?.parse().ok()?,
            count: u64::from_str_radix(field("eventfd-count:")?, 16).ok()?,
            is_semaphore: field("eventfd-semaphore:")? == "1",
        })
    }

    /// Make the counter what it was. Nobody else uses it meanwhile.
    pub fn restore(self, fd: &OwnedFd) -> io::Result<()> {
        let Some(now) = Self::of(fd) else { return Err(io::ErrorKind::InvalidInput.into()) };
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
        assert_eq!(Counter::of(&fd), Some(counter));
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
        assert_eq!(Counter::of(&reader), None);
    }
}
