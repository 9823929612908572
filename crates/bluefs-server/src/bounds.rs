//! What connections may take up together: however many there are, and whatever they send, the server's memory has a
//! bound, and whoever has said who they are is not shut out by those who have not.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of messages that wait for their turn; then connections are not read.
pub const WAITING_BYTES_MAX: usize = 128 << 20;
/// Messages of one connection that wait for their turn.
pub const WAITING_OF_ONE_MAX: usize = 64;
/// Bytes that wait for a client that does not read; then nothing more is heard from it. What it has asked until then
/// ([`WAITING_OF_ONE_MAX`] messages, with answers of about 1 MiB) fits in front of the bound at which it is cut.
const UNSENT_PAUSE_BYTES: usize = 40 << 20;
/// How often it is looked whether it has read.
const UNSENT_LOOK_EVERY: Duration = Duration::from_millis(5);
/// Connections that have not said who they are. One more ends the oldest of them.
pub const STRANGERS_MAX: usize = 256;
/// How long a connection may take to say who it is, however it divides its bytes.
const STRANGER_MAX: Duration = Duration::from_secs(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for what waits, in some unit.
#[derive(Debug)]
pub struct Room {
    max: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

impl Room {
    /// For so much at once.
    pub fn new(max: usize) -> Room {
        Room { max, used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Takes room, and waits until there is some. What is larger than all of it gets it alone.
    fn take(&self, amount: usize) {
        let mut used = lock(&self.used);
        while *used > 0 && used.saturating_add(amount) > self.max {
            used = self.freed.wait(used).unwrap_or_else(PoisonError::into_inner);
        }
        *used += amount;
    }

    fn give(&self, amount: usize) {
        *lock(&self.used) -= amount;
        self.freed.notify_all();
    }
}

/// A place in the queue for one message: given back when the message is decided.
#[derive(Debug)]
pub struct Place {
    of_all: Arc<Room>,
    own: Arc<Room>,
    bytes: usize,
}

impl Place {
    /// Waits for it: until few messages of the same connection wait, so that one that floods does not keep the others
    /// waiting, and few bytes of all.
    pub fn take(of_all: &Arc<Room>, own: &Arc<Room>, bytes: usize) -> Place {
        own.take(1);
        of_all.take(bytes);
        Place { of_all: of_all.clone(), own: own.clone(), bytes }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of_all.give(self.bytes);
        self.own.give(1);
    }
}

/// Connections that have not said who they are: they may be anybody's.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<BTreeMap<u64, (Instant, TcpStream)>>);

impl Strangers {
    /// One has come. Numbers are given in the order of their coming.
    pub fn enter(&self, id: u64, socket: &TcpStream) -> std::io::Result<()> {
        let mut all = lock(&self.0);
        while all.len() >= STRANGERS_MAX {
            all.pop_first().into_iter().for_each(|(_, (_, oldest))| cut(&oldest));
        }
        all.insert(id, (Instant::now(), socket.try_clone()?));
        Ok(())
    }

    /// It has said who it is, or has gone.
    pub fn leave(&self, id: u64) {
        lock(&self.0).remove(&id);
    }

    /// Ends those that take too long.
    pub fn end_late(&self) {
        let mut all = lock(&self.0);
        while all.first_key_value().is_some_and(|(_, (since, _))| since.elapsed() > STRANGER_MAX) {
            all.pop_first().into_iter().for_each(|(_, (_, late))| cut(&late));
        }
    }
}

fn cut(socket: &TcpStream) {
    // It may be closed already.
    let _ = socket.shutdown(Shutdown::Both);
}

/// Bytes that wait for a client to read them, and those of all clients.
#[derive(Debug, Default)]
pub struct Unsent {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
    /// Nothing is sent any more.
    is_over: AtomicBool,
}

impl Unsent {
    /// Of a new connection.
    pub fn new(all: Arc<AtomicUsize>) -> Unsent {
        Unsent { own: AtomicUsize::new(0), all, is_over: AtomicBool::new(false) }
    }

    /// More waits: says how much it is, and how much of all clients.
    pub fn add(&self, bytes: usize) -> (usize, usize) {
        let add = |to: &AtomicUsize| to.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (add(&self.own), add(&self.all))
    }

    /// It is on its way.
    pub fn sent(&self, bytes: usize) {
        self.own.fetch_sub(bytes, Ordering::Relaxed);
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Nothing is sent any more: what waits waits for ever.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until a client that has asked for much has read most of that. Until then it is not heard: each thing that
    /// it asks for would be more. `false`: nothing is sent any more.
    pub fn wait(&self) -> bool {
        while self.own() > UNSENT_PAUSE_BYTES && !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(UNSENT_LOOK_EVERY);
        }
        !self.is_over.load(Ordering::Relaxed)
    }

    /// How much waits.
    pub fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.all.fetch_sub(*self.own.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_waits_for_a_place_gets_it_when_one_is_given_back() {
        let (of_all, own) = (Arc::new(Room::new(10)), Arc::new(Room::new(2)));
        let first = Place::take(&of_all, &own, 9);
        let (all, other) = (of_all.clone(), Arc::new(Room::new(2)));
        let waiting = std::thread::spawn(move || Place::take(&all, &other, 2));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        drop(first);
        drop(waiting.join().expect("no panic"));
        drop(Place::take(&of_all, &own, 1000));
        let two = [(); 2].map(|()| Place::take(&of_all, &own, 1));
        let (all, same) = (of_all.clone(), own.clone());
        let waiting = std::thread::spawn(move || Place::take(&all, &same, 1));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished(), "one connection has two places");
        drop(two);
        drop(waiting.join().expect("no panic"));
    }

    #[test]
    fn the_oldest_stranger_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let strangers = Strangers::default();
        let pair = |id| {
            let near = TcpStream::connect(at).expect("connected");
            strangers.enter(id, &listener.accept().expect("accepted").0).expect("a socket");
            near
        };
        let mut first = pair(0);
        let mut second = pair(1);
        let _others: Vec<_> = (2..=STRANGERS_MAX as u64).map(pair).collect();
        assert_eq!(first.read(&mut [0]).expect("an end"), 0);
        second.set_nonblocking(true).expect("a socket");
        assert!(second.read(&mut [0]).is_err(), "it stays");
    }

    #[test]
    fn what_a_connection_has_not_sent_goes_with_it() {
        let all = Arc::new(AtomicUsize::new(0));
        let (one, other) = (Unsent::new(all.clone()), Unsent::new(all.clone()));
        assert_eq!((one.add(10), other.add(5)), ((10, 10), (5, 15)));
        one.sent(3);
        drop(one);
        assert_eq!((all.load(Ordering::Relaxed), other.own()), (5, 5));
    }

    #[test]
    fn who_has_much_to_read_is_not_heard_until_it_has() {
        let unsent = Arc::new(Unsent::default());
        assert!(unsent.wait());
        unsent.add(UNSENT_PAUSE_BYTES + 1);
        let waiting = |unsent: &Arc<Unsent>| {
            let unsent = unsent.clone();
            std::thread::spawn(move || unsent.wait())
        };
        let first = waiting(&unsent);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!first.is_finished());
        unsent.sent(1);
        assert!(first.join().expect("no panic"));
        unsent.add(1);
        let second = waiting(&unsent);
        unsent.end();
        assert!(!second.join().expect("no panic"));
    }
}
