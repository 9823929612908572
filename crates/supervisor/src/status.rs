//! What `speculator top` asks a running world, and what it hears.
//!
//! Each supervisor listens on a socket with an abstract name ([`crate::status_sockets`]); nobody can say anything to a
//! world.
//!
//! The event loop alone knows what is speculative. Whoever listens sets a flag, which the loop looks at between two
//! events, and wakes it if it waits: a world that nobody looks at pays for one load.

use crate::outputs::CommitRecord;
use crate::status_sockets;
use rustix::process::getpid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracee::Waker;

/// Begin of the names; the supervisor's process id follows.
const PREFIX: &str = "speculator-world-";
/// A listener that is slower than this is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// A world, at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorldStatus {
    /// The process that the user started.
    pub front: i32,
    /// The process that supervises the world.
    pub supervisor: i32,
    /// COMMAND.
    pub command: i32,
    /// COMMAND and its arguments.
    pub command_line: String,
    /// How old the world is, microseconds.
    pub age_us: u64,
    /// Commits so far, by cause.
    pub commits: BTreeMap<String, u64>,
    /// Full speculation.
    pub ahead: AheadStatus,
}

/// What is speculative in a world.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AheadStatus {
    /// Guesses whose outcome is not known.
    pub open: usize,
    /// Those of them that are oldest.
    pub oldest: Vec<OpenGuess>,
    /// Guesses that were right so far, that were wrong, and that were taken back with older ones.
    pub resolved: [u64; 3],
    /// Checkpoints that are kept now.
    pub kept: usize,
    /// Checkpoints that were taken so far.
    pub checkpoints: u64,
    /// What they took together, microseconds.
    pub checkpoint_us: u64,
    /// Rollbacks so far, by what the wrong guess was about.
    pub rollbacks: BTreeMap<String, u64>,
    /// The processes, by their ids.
    pub processes: Vec<ProcessStatus>,
}

/// A guess whose outcome is not known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenGuess {
    /// What `speculator begin` printed, if it was that.
    pub number: Option<u64>,
    /// Who made it.
    pub pid: i32,
    /// At which call.
    pub why: String,
    /// Since when it is open, microseconds.
    pub age_us: u64,
}

/// A process inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its process id.
    pub pid: i32,
    /// Name of its program.
    pub program: String,
    /// Since when it depends on a guess, microseconds; `None` if it does not.
    pub ahead_us: Option<u64>,
    /// On how many it depends.
    pub guesses: usize,
    /// Checkpoints of it that are kept.
    pub checkpoints: usize,
    /// What it waits for, if for something of ours.
    pub waits_for: Option<String>,
}

/// Where the listener asks and the event loop answers.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    is_wanted: AtomicBool,
    answer: Mutex<Option<AheadStatus>>,
    answered: Condvar,
}

impl Asked {
    /// The event loop looks here between two events.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// It answers.
    pub fn answer(&self, status: AheadStatus) {
        self.is_wanted.store(false, Ordering::Relaxed);
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        self.answered.notify_one();
    }

    /// In the listener. `None` if the loop does not come to it in time: it is in the middle of a long rollback, say.
    fn ask(&self, event_loop: Waker) -> Option<AheadStatus> {
        /// The wake-up may come just before the wait that it is to end.
        const AGAIN: Duration = Duration::from_millis(5);
        let begin = Instant::now();
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        *answer = None;
        self.is_wanted.store(true, Ordering::Relaxed);
        while answer.is_none() && begin.elapsed() < PATIENCE {
            event_loop.wake();
            let waited = self.answered.wait_timeout(answer, AGAIN).unwrap_or_else(PoisonError::into_inner);
            answer = waited.0;
        }
        answer.take()
    }
}

/// What does not change in a world, and what others than the event loop know.
#[derive(Debug)]
pub(crate) struct Known {
    pub front: i32,
    pub command: i32,
    pub command_line: String,
    pub begin: Instant,
    pub commits: Arc<Mutex<CommitRecord>>,
}

/// Answer whoever asks about this world, until the process ends. Call it in the thread of the event loop.
pub(crate) fn serve(known: Known, asked: Arc<Asked>) -> io::Result<()> {
    let event_loop = Waker::of_this_thread()?;
    let name = format!("{PREFIX}{}", getpid().as_raw_nonzero());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    crate::threads::start("status", move || {
        for stream in listener.incoming().flatten() {
            // Whoever went away meanwhile does not want to know.
            let _ = tell(stream, &known, &asked, event_loop);
        }
    })
    .map(drop)
}

fn tell(mut stream: UnixStream, known: &Known, asked: &Asked, event_loop: Waker) -> io::Result<()> {
    if !status_sockets::may_be_answered(&stream)? {
        return Ok(());
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(ahead) = asked.ask(event_loop) else { return Ok(()) };
    let status = WorldStatus {
        front: known.front,
        supervisor: getpid().as_raw_nonzero().get(),
        command: known.command,
        command_line: known.command_line.clone(),
        age_us: known.begin.elapsed().as_micros() as u64,
        commits: known.commits.lock().unwrap_or_else(PoisonError::into_inner).by_cause.clone(),
        ahead,
    };
    stream.write_all(&serde_json::to_vec(&status).map_err(io::Error::other)?)
}

/// The worlds on this machine that this user may look at, and how many others there are.
pub fn worlds() -> io::Result<(Vec<WorldStatus>, usize)> {
    let names = status_sockets::names(PREFIX)?;
    let found: Vec<WorldStatus> =
        names.iter().filter_map(|name| status_sockets::ask(name, 2 * PATIENCE).ok()).collect();
    let others = names.len() - found.len();
    Ok((found, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_loop_is_asked_and_answers() {
        let asked = Arc::new(Asked::default());
        assert!(!asked.is_wanted());
        let listener = {
            let (asked, this) = (asked.clone(), Waker::of_this_thread().unwrap());
            std::thread::spawn(move || asked.ask(this).unwrap().open)
        };
        while !listener.is_finished() {
            if asked.is_wanted() {
                asked.answer(AheadStatus { open: 3, ..AheadStatus::default() });
            }
            std::thread::yield_now();
        }
        assert_eq!(listener.join().unwrap(), 3);
    }
}
