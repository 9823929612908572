//! The thread that carries packets from one device to the other.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};

use super::line::Line;
use super::{Carried, Shape};

/// No packet of a device is larger.
const PACKET_MAX: usize = 65_536;

/// What the line's owner sees of it, and says to it.
#[derive(Debug, Default)]
pub struct State {
    cut: AtomicBool,
    counts: [Counts; 2],
}

#[derive(Debug, Default)]
struct Counts {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
}

impl State {
    pub fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    pub fn carried(&self) -> [Carried; 2] {
        [0, 1].map(|direction| {
            let counts = &self.counts[direction];
            let [packets, bytes, lost] =
                [&counts.packets, &counts.bytes, &counts.lost].map(|count| count.load(Ordering::Relaxed));
            Carried { packets, bytes, lost }
        })
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    fn lost(&self, direction: usize) {
        self.counts[direction].lost.fetch_add(1, Ordering::Relaxed);
    }

    fn arrived(&self, direction: usize, bytes: usize) {
        self.counts[direction].packets.fetch_add(1, Ordering::Relaxed);
        self.counts[direction].bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn did_not_arrive(&self, direction: usize, bytes: usize) {
        self.counts[direction].packets.fetch_sub(1, Ordering::Relaxed);
        self.counts[direction].bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.lost(direction);
    }
}

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Carrier {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    /// Begins to carry packets between the devices. Direction 0 is from the first to the second.
    pub fn start(shape: Shape, devices: [File; 2], state: Arc<State>) -> io::Result<Carrier> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let seen = Arc::clone(&stop);
        let lines = [0, 1].map(|direction| Direction { line: Line::new(shape, direction), under_way: VecDeque::new() });
        let work = Work { devices, lines, state, start: Instant::now() };
        let thread = std::thread::Builder::new().name("line".to_owned()).spawn(move || work.carry(&seen))?;
        Ok(Carrier { stop, thread: Some(thread) })
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if rustix::io::write(&self.stop, &1_u64.to_ne_bytes()).is_ok() {
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

#[derive(Debug)]
struct Direction {
    line: Line,
    /// In the order in which they arrive.
    under_way: VecDeque<(Duration, Vec<u8>)>,
}

struct Work {
    devices: [File; 2],
    lines: [Direction; 2],
    state: Arc<State>,
    start: Instant,
}

impl Work {
    fn carry(mut self, stop: &OwnedFd) {
        let mut packet = vec![0; PACKET_MAX];
        loop {
            for direction in 0..2 {
                self.take(direction, &mut packet);
                self.deliver(direction);
            }
            if !self.wait(stop) {
                return;
            }
        }
    }

    /// Packets that a host sends get onto the line.
    fn take(&mut self, direction: usize, packet: &mut [u8]) {
        // A device without a packet says so; one whose namespace is gone has none any more.
        while let Ok(bytes) = (&self.devices[direction]).read(packet) {
            let now = self.start.elapsed();
            let arrival = if self.state.is_cut() { None } else { self.lines[direction].line.arrival(now, bytes) };
            match arrival {
                Some(time) => self.lines[direction].under_way.push_back((time, packet[..bytes].to_vec())),
                None => self.state.lost(direction),
            }
        }
    }

    /// Packets whose time has come arrive.
    fn deliver(&mut self, direction: usize) {
        let now = self.start.elapsed();
        let under_way = &mut self.lines[direction].under_way;
        while under_way.front().is_some_and(|(time, _)| *time <= now) {
            let Some((_, packet)) = under_way.pop_front() else { return };
            if self.state.is_cut() {
                self.state.lost(direction);
                continue;
            }
            // Counted before: whoever receives it may look at the count at once.
            self.state.arrived(direction, packet.len());
            if (&self.devices[1 - direction]).write_all(&packet).is_err() {
                self.state.did_not_arrive(direction, packet.len());
            }
        }
    }

    /// Until there is something to do. False at the end.
    fn wait(&self, stop: &OwnedFd) -> bool {
        let next = self.lines.iter().filter_map(|line| line.under_way.front()).map(|(time, _)| *time).min();
        let timeout = next.map(|time| time.saturating_sub(self.start.elapsed()));
        let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
        let mut ready = [
            PollFd::new(&self.devices[0], PollFlags::IN),
            PollFd::new(&self.devices[1], PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => ready[2].revents().is_empty(),
            Err(_) => false,
        }
    }
}
