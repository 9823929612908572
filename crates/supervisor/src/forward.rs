//! Signals that somebody sends to the front and means COMMAND; and signals to their whole process group, which reach
//! both by themselves.

use crate::sys;
use procfs::{ProcessId, Stat, Status, ThreadId};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a signal to a process group may take from one process of it to the next.
const APART: Duration = Duration::from_millis(50);
/// How long COMMAND may have stopped for a signal before we look at it.
const LATE: Duration = Duration::from_secs(2);
/// Between two looks at that.
const PAUSE: Duration = Duration::from_millis(5);
/// How long what COMMAND got is remembered.
const REMEMBERED: Duration = Duration::from_millis(500);

/// Signals that COMMAND got from processes: number, sender, when.
#[derive(Clone, Debug, Default)]
pub struct Received(Arc<Mutex<VecDeque<(i32, ProcessId, Instant)>>>);

impl Received {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(i32, ProcessId, Instant)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// COMMAND is about to see a signal.
    pub fn note(&self, signal: i32, sender: ProcessId) {
        let now = Instant::now();
        let mut received = self.lock();
        // The oldest come first. COMMAND may get thousands in this time: only those that go are looked at.
        while received.front().is_some_and(|(_, _, when)| now - *when >= REMEMBERED) {
            received.pop_front();
        }
        received.push_back((signal, sender, now));
    }

    /// Whether COMMAND got this one; each counts once.
    fn take(&self, signal: i32, sender: ProcessId) -> bool {
        let mut received = self.lock();
        let is_it = |&(number, from, when): &(i32, ProcessId, Instant)| {
            number == signal && from == sender && when.elapsed() < REMEMBERED
        };
        let found = received.iter().position(is_it);
        found.is_some_and(|found| received.remove(found).is_some())
    }

    /// The front got a signal: send it on to COMMAND unless it has it already.
    pub fn forward(&self, command: ProcessId, signal: i32, sender: ProcessId) {
        std::thread::sleep(APART);
        let end = Instant::now() + LATE;
        loop {
            // In this order: first it waits, then a thread stops for it, then it is noted.
            if is_pending(command, signal) {
                return;
            }
            let may_be_seen_soon = is_stopped(command) && Instant::now() < end;
            if self.take(signal, sender) {
                return;
            }
            if !may_be_seen_soon {
                return sys::kill(command, signal);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Whether a signal waits until the process no longer blocks it.
fn is_pending(pid: ProcessId, signal: i32) -> bool {
    let pending = Status::of(pid).and_then(|status| status.bits("ShdPnd"));
    pending.is_ok_and(|mask| mask & 1 << (signal - 1).clamp(0, 63) != 0)
}

/// Whether one of its threads has stopped for us.
fn is_stopped(pid: ProcessId) -> bool {
    let stops = |tid: ThreadId| Stat::of(tid).and_then(|stat| stat.state()).is_ok_and(|state| state == 't');
    procfs::threads(pid).is_ok_and(|threads| threads.into_iter().any(stops))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use tracee::{Stop, Stopped};

    #[test]
    fn what_was_received_long_ago_is_forgotten() {
        const INIT: ProcessId = ProcessId::from_raw(1);
        let received = Received::default();
        let long_ago = Instant::now().checked_sub(REMEMBERED).expect("the machine is up for longer");
        received.lock().extend([(1, INIT, long_ago), (2, INIT, long_ago), (3, INIT, Instant::now())]);
        received.note(4, INIT);
        let left: Vec<i32> = received.lock().iter().map(|&(signal, ..)| signal).collect();
        assert_eq!(left, [3, 4]);
    }

    /// On a busy machine it may take long until the event loop sees that COMMAND got a signal.
    #[test]
    fn what_command_has_stopped_for_is_not_sent_on() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // When it answers, it has executed its program: that would be a stop, too.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let (pid, signal, sender) = (ProcessId::from_raw(child.id() as i32), libc::SIGUSR1, ProcessId::own());
        tracee::seize(pid.leader()).unwrap();
        sys::kill(pid, signal);
        let stopped = Stopped::await_thread(pid.leader()).unwrap();
        assert_eq!(stopped.stop(), Stop::Signal(signal));
        let received = Received::default();
        let seen = received.clone();
        let event_loop = std::thread::spawn(move || {
            std::thread::sleep(APART * 4);
            seen.note(signal, sender);
        });
        received.forward(pid, signal, sender);
        event_loop.join().unwrap();
        assert!(!is_pending(pid, signal), "it was sent a second time");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
