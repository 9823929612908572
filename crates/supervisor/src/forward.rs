//! Signals that somebody sends to the front and means COMMAND; and signals to their whole process group, which reach both by themselves.

use crate::sys;
use std::collections::VecDeque;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a signal to a process group may take from one process of it to the next.
const APART: Duration = Duration::from_millis(50);
/// How long what COMMAND got is remembered.
const REMEMBERED: Duration = Duration::from_millis(500);

/// Signals that COMMAND got from processes: number, sender, when.
#[derive(Clone, Debug, Default)]
pub struct Received(Arc<Mutex<VecDeque<(i32, i32, Instant)>>>);

impl Received {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(i32, i32, Instant)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// COMMAND is about to see a signal.
    pub fn note(&self, signal: i32, sender: i32) {
        let mut received = self.lock();
        received.retain(|(_, _, when)| when.elapsed() < REMEMBERED);
        received.push_back((signal, sender, Instant::now()));
    }

    /// Whether COMMAND got this one; each counts once.
    fn take(&self, signal: i32, sender: i32) -> bool {
        let mut received = self.lock();
        let is_it = |&(number, from, when): &(i32, i32, Instant)| {
            number == signal && from == sender && when.elapsed() < REMEMBERED
        };
        let found = received.iter().position(is_it);
        found.is_some_and(|found| received.remove(found).is_some())
    }

    /// The front got a signal: send it on to COMMAND unless it has it already.
    pub fn forward(&self, command: i32, signal: i32, sender: i32) {
        std::thread::sleep(APART);
        if !self.take(signal, sender) && !is_pending(command, signal) {
            sys::kill(command, signal);
        }
    }
}

/// Whether a signal waits until the process no longer blocks it.
fn is_pending(pid: i32, signal: i32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let mask = pending.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1).clamp(0, 63) != 0
}
