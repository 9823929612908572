//! Who decides what has arrived: the thread that received it, if nothing else waits and nobody decides, as to wake
//! another one costs more than most decisions; else the server's own thread, which also looks at the clock (record
//! 0268).
//!
//! **Invariant:** what one connection says is decided in its order. A thread decides by itself only if nothing waits
//! ([`Desk::waiting`]), and what it has handed in earlier waits until it is decided.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::Access;
use crate::serve::{Input, ServeError, Turns};

/// Inputs that are decided in one turn, at most: one batch of the store, or several if they put much.
const TURN_INPUTS_MAX: usize = 512;
/// How often the clock is looked at, also if nothing happens: an invitation may have expired.
const TURN_MAX: Duration = Duration::from_secs(1);

/// The server is over: nothing is decided any more.
#[derive(Debug)]
pub struct Over;

/// What all threads of a server share.
pub struct Desk {
    /// `None`: the server is over. Its own thread takes them.
    turns: Mutex<Option<Turns>>,
    /// What has been handed in and is not decided yet.
    waiting: AtomicUsize,
    to_input: SyncSender<Input>,
    access: Box<dyn Access + Send + Sync>,
    begin: Instant,
    /// When the server's own thread looks at the clock, ms after `begin`.
    looks_at: AtomicU64,
}

impl Desk {
    pub fn new(turns: Turns, to_input: SyncSender<Input>, access: Box<dyn Access + Send + Sync>) -> Desk {
        let (waiting, looks_at) = (AtomicUsize::new(0), AtomicU64::new(0));
        Desk { turns: Mutex::new(Some(turns)), waiting, to_input, access, begin: Instant::now(), looks_at }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Turns>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands something in. It may be decided when this returns.
    pub fn hand_in(&self, input: Input) -> Result<(), Over> {
        if let Ok(mut turns) = self.turns.try_lock() {
            if self.waiting.load(Ordering::SeqCst) == 0 {
                return self.decide_here(&mut turns, input);
            }
        }
        // Without the lock: there may be no room, and the server's own thread needs the lock to make some.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.to_input.send(input).map_err(|_| Over)
    }

    fn decide_here(&self, turns: &mut Option<Turns>, input: Input) -> Result<(), Over> {
        let turns = turns.as_mut().ok_or(Over)?;
        let decided = turns.turn(vec![input], &*self.access).map_err(|error| turns.fail(error));
        let at = self.after(turns.until_next());
        if at < self.looks_at.load(Ordering::SeqCst) {
            // Once for each time: the server's own thread says when it looks next. If there is no room for this it is
            // about to look anyhow.
            self.looks_at.store(at, Ordering::SeqCst);
            let _ = self.to_input.try_send(Input::Look);
        }
        decided.map(|_| ()).map_err(|()| Over)
    }

    /// In so much time, ms after `begin`.
    fn after(&self, time: Duration) -> u64 {
        self.begin.elapsed().saturating_add(time).as_millis() as u64
    }

    /// The server's own thread: decides what others have handed in, until the server is stopped. Says what is left of
    /// it.
    pub fn decide(&self, input: &Receiver<Input>) -> Result<Turns, ServeError> {
        loop {
            // Whoever decides meanwhile knows when this thread looks.
            let turns = self.lock();
            let until = turns.as_ref().map_or(Duration::ZERO, Turns::until_next);
            let until = until.clamp(Duration::from_millis(1), TURN_MAX);
            self.looks_at.store(self.after(until), Ordering::SeqCst);
            drop(turns);
            let mut inputs = match input.recv_timeout(until) {
                Ok(first) => vec![first],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => vec![Input::Stop],
            };
            let mut turns = self.lock();
            inputs.extend(input.try_iter().take(TURN_INPUTS_MAX - inputs.len()));
            let handed_in = inputs.iter().filter(|input| !matches!(input, Input::Look | Input::Stop)).count();
            let Some(open) = turns.as_mut() else { unreachable!("only this thread takes them") };
            let goes_on = open.turn(inputs, &*self.access);
            self.waiting.fetch_sub(handed_in, Ordering::SeqCst);
            if !matches!(goes_on, Ok(true)) {
                let last = turns.take();
                return goes_on.map(|_| last.expect("they were there"));
            }
        }
    }
}
