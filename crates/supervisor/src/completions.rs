//! Guesses whose outcome somebody outside of the world says: the client of a file system, a check, a script.
//!
//! Each supervisor listens on a socket with an abstract name ([`crate::status_sockets`]). Whoever connects is a
//! *resolver*: it is told of each guess that was begun for somebody outside (`speculator begin --outside TAG`) with the
//! guesses on which that depends (000, 7.1), and says which were right or wrong. Both directions are lines of JSON:
//! [`News`] to the resolver, [`Outcome`] from it. A resolver is a part of the world as far as the guarantee is
//! concerned: what it is told may turn out wrong, or be lost, so it shows that to nobody.
//!
//! The event loop alone may resolve. An outcome comes in from any thread, waits in [`Completions`], and wakes the loop.

use crate::status_sockets;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tracee::Waker;

/// Begin of the names; the process id of `speculator run` follows.
const PREFIX: &str = "speculator-guesses-";
/// A resolver that does not take what it is told for so long is told nothing more, and its connection ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// So much may wait for a resolver. One that is slower hears nothing more until it comes again: then it is told of all
/// that is open.
const NEWS_MAX: usize = 65_536;
/// So many resolvers may be connected.
const RESOLVERS_MAX: usize = 64;
/// No line of a resolver is longer, bytes.
const LINE_MAX: u64 = 200;

/// What a resolver is told: one object a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// A guess was begun for somebody outside; it is open.
    Begun {
        /// Its number.
        guess: u64,
        /// What its program calls it.
        tag: u64,
        /// The process that made it.
        process: i32,
        /// The open guesses of programs on which it depends: it is undone if one of them fails.
        depends_on: Vec<u64>,
        /// Open guesses without a number on which it depends, too (`run --inject`).
        others: usize,
    },
    /// A guess is right: somebody has said so.
    Committed(u64),
    /// A guess is wrong: somebody has said so, or it stood in the way of a signal that ends its process.
    Failed(u64),
    /// A guess has never been made: one on which it depended was wrong.
    Undone(u64),
    /// There is no such open guess: the answer to an outcome.
    Unknown(u64),
    /// This line of the resolver's says nothing that is known. The connection ends.
    Invalid(String),
}

/// What a resolver says: one object a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The guess was right.
    Commit(u64),
    /// The guess was wrong.
    Fail(u64),
}

/// Where a resolver is told. `None` is the end of it.
#[derive(Clone, Debug)]
pub(crate) struct Listener(SyncSender<Option<News>>);

impl Listener {
    /// False if it has gone, or is too slow.
    pub fn tell(&self, news: News) -> bool {
        self.0.try_send(Some(news)).is_ok()
    }
}

/// What others than the event loop want of it.
#[derive(Debug)]
pub(crate) enum Order {
    /// To hear of all guesses that are for somebody outside, beginning with those that are open.
    Listen(Listener),
    /// To resolve one.
    Resolve(Outcome, Listener),
}

/// Where orders come in. Any thread may have one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Completions {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    has_any: AtomicBool,
    orders: Mutex<Vec<Order>>,
    taken: Condvar,
    /// Where resolvers are told, with a number for each.
    told: Mutex<HashMap<u64, Listener>>,
    one_less: Condvar,
    next: AtomicU64,
}

impl Completions {
    /// The event loop looks here between two events.
    pub fn has_any(&self) -> bool {
        self.shared.has_any.load(Ordering::Relaxed)
    }

    /// It takes what has come.
    pub fn take(&self) -> Vec<Order> {
        let mut orders = self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.has_any.store(false, Ordering::Relaxed);
        self.shared.taken.notify_all();
        std::mem::take(&mut orders)
    }

    /// The world has ended: what resolvers have been told reaches them, unless one is slow to take it.
    pub fn tell_the_last(&self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.values().for_each(|listener| drop(listener.0.try_send(None)));
        let _ = self.shared.one_less.wait_timeout_while(told, PATIENCE, |told| !told.is_empty());
    }

    fn begin_telling(&self, listener: &Listener) -> u64 {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mut told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(number, listener.clone());
        number
    }

    fn end_telling(&self, number: u64) {
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        self.shared.one_less.notify_all();
    }

    /// In any other thread. Returns when the event loop has taken it.
    pub fn give(&self, order: Order, event_loop: Waker) {
        /// The wake-up may come just before the wait that it is to end.
        const AGAIN: Duration = Duration::from_millis(5);
        let mut orders = self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.push(order);
        self.shared.has_any.store(true, Ordering::Relaxed);
        while !orders.is_empty() {
            event_loop.wake();
            let waited = self.shared.taken.wait_timeout(orders, AGAIN);
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Listen to resolvers until the process ends. Call it in the thread of the event loop.
pub(crate) fn serve(front: i32, completions: &Completions) -> io::Result<()> {
    let event_loop = Waker::of_this_thread()?;
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("{PREFIX}{front}"))?)?;
    let (completions, connected) = (completions.clone(), Arc::new(AtomicUsize::new(0)));
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let may = status_sockets::may_be_answered(&stream).is_ok_and(|may| may);
            if !may || connected.load(Ordering::SeqCst) >= RESOLVERS_MAX {
                continue;
            }
            connected.fetch_add(1, Ordering::SeqCst);
            let one = (completions.clone(), Connected(connected.clone()));
            // Without a thread for it the connection is closed.
            let _ = crate::threads::start("resolver", move || {
                // Whoever went away meanwhile has said what it had to say.
                let _ = hear(&stream, &one.0, event_loop);
            });
        }
    };
    crate::threads::start("resolvers", accept).map(drop)
}

/// One of those that are connected.
struct Connected(Arc<AtomicUsize>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One resolver, until it goes.
fn hear(stream: &UnixStream, completions: &Completions, event_loop: Waker) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (to_resolver, news) = sync_channel(NEWS_MAX);
    let listener = Listener(to_resolver);
    completions.give(Order::Listen(listener.clone()), event_loop);
    let to = stream.try_clone()?;
    let (number, told) = (completions.begin_telling(&listener), completions.clone());
    let telling = crate::threads::start("news", move || {
        let _ = pass_on(&to, &news);
        // Whoever is too slow may come again.
        let _ = to.shutdown(Shutdown::Both);
        told.end_telling(number);
    });
    let telling = telling.inspect_err(|_| completions.end_telling(number))?;
    let said = obey(stream, &listener, completions, event_loop);
    let _ = listener.0.try_send(None);
    let _ = telling.join();
    said
}

/// What it says, until it says nothing more, or nothing that is known.
fn obey(stream: &UnixStream, listener: &Listener, completions: &Completions, event_loop: Waker) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if (&mut lines).take(LINE_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        match serde_json::from_str(&line) {
            Ok(outcome) => completions.give(Order::Resolve(outcome, listener.clone()), event_loop),
            Err(error) => {
                listener.tell(News::Invalid(error.to_string()));
                return Ok(());
            }
        }
    }
}

/// As many as have come are written at once.
fn pass_on(mut to: &UnixStream, news: &Receiver<Option<News>>) -> io::Result<()> {
    while let Ok(Some(first)) = news.recv() {
        let mut text = Vec::new();
        let mut is_over = false;
        for one in std::iter::once(Some(first)).chain(news.try_iter()) {
            let Some(one) = one else {
                is_over = true;
                break;
            };
            serde_json::to_writer(&mut text, &one).map_err(io::Error::other)?;
            text.push(b'\n');
        }
        to.write_all(&text)?;
        if is_over {
            break;
        }
    }
    Ok(())
}

/// Somebody outside who says outcomes to a world.
#[derive(Debug)]
pub struct Resolver {
    stream: BufReader<UnixStream>,
}

impl Resolver {
    /// To the world of this `speculator run`.
    ///
    /// # Errors
    /// There is no such world, or it is another user's.
    pub fn connect(run: i32) -> io::Result<Self> {
        status_sockets::connect(&format!("{PREFIX}{run}")).map(|stream| Self { stream: BufReader::new(stream) })
    }

    /// What is new; `None` when the world has ended. The first are the guesses that are open.
    ///
    /// # Errors
    /// The connection is broken, or who listens there is no world.
    pub fn hear(&mut self) -> io::Result<Option<News>> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_str(&line).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Say an outcome. `hear` tells when it is done, or that there is no such guess.
    ///
    /// # Errors
    /// The world has ended.
    pub fn say(&self, outcome: Outcome) -> io::Result<()> {
        let mut line = serde_json::to_vec(&outcome).map_err(io::Error::other)?;
        line.push(b'\n');
        self.stream.get_ref().write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_any_thread_gives_the_event_loop_takes() {
        let completions = Completions::default();
        let this = Waker::of_this_thread().unwrap();
        let (to_resolver, _news) = sync_channel(1);
        let tell = Listener(to_resolver);
        let givers: Vec<_> = (0..4)
            .map(|giver| {
                let (completions, tell) = (completions.clone(), tell.clone());
                let give = move |guess| completions.give(Order::Resolve(Outcome::Commit(guess), tell.clone()), this);
                std::thread::spawn(move || (0..50).map(|at| giver * 50 + at).for_each(give))
            })
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 200 {
            if completions.has_any() {
                taken.extend(completions.take().into_iter().map(|order| match order {
                    Order::Resolve(Outcome::Commit(guess), _) => guess,
                    other => panic!("{other:?}"),
                }));
            }
            std::thread::yield_now();
        }
        givers.into_iter().for_each(|giver| giver.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, (0..200).collect::<Vec<_>>());
        assert!(!completions.has_any());
    }

    #[test]
    fn lines_are_as_the_guide_shows_them() {
        let begun = News::Begun { guess: 3, tag: 7, process: 41, depends_on: vec![1, 2], others: 0 };
        let text = r#"{"begun":{"guess":3,"tag":7,"process":41,"depends_on":[1,2],"others":0}}"#;
        assert_eq!(serde_json::to_string(&begun).unwrap(), text);
        assert_eq!(serde_json::to_string(&News::Undone(3)).unwrap(), r#"{"undone":3}"#);
        assert_eq!(serde_json::from_str::<Outcome>(r#"{"commit":3}"#).unwrap(), Outcome::Commit(3));
        assert!(serde_json::from_str::<Outcome>(r#"{"commit":-3}"#).is_err());
    }
}
