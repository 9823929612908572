//! What a server tells of itself: what it has now and has done, and who comes and goes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bluefs::tree::Space;
use bluefs_wire::Refusal;

/// A volume, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFigures {
    /// Its name.
    pub name: String,
    /// Sessions, also those whose client is away for a moment.
    pub sessions: usize,
    /// Sessions that have a connection.
    pub connected: usize,
    /// Leases of all sessions: groups of 64 inodes.
    pub leases: usize,
    /// Locks that programs have.
    pub locks: usize,
    /// Files that have no name any more, and that somebody may have open.
    pub nameless: usize,
    /// Sessions whose change waits for leases of others.
    pub waiting: usize,
    /// Commits since the volume was made.
    pub commits: u64,
    /// What it holds, and may hold.
    pub space: Space,
}

/// A server, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// How long it has been running.
    pub up: Duration,
    /// Connections of clients that have said who they are.
    pub connections: usize,
    /// Messages of clients, and what was sent to them.
    pub messages: u64,
    /// Replies, invalidations and recalls.
    pub replies: u64,
    /// Bytes that came over the network, of connections that have begun to speak.
    pub received_bytes: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Bytes that wait for clients to read them.
    pub unsent_bytes: usize,
    /// Turns in which something was decided: each is one batch of the store, with one sync if it has changed anything.
    pub turns: u64,
    /// How long all of these took, and the longest.
    pub turn_time: Duration,
    /// The longest turn.
    pub turn_time_max: Duration,
    /// Whom the server has refused or disconnected, by the reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Bytes of the newest segment of the log.
    pub log_bytes: u64,
    /// All volumes.
    pub volumes: Vec<VolumeFigures>,
}

impl Figures {
    /// Something was decided, and took so long.
    pub(crate) fn turn_took(&mut self, time: Duration) {
        self.turns += 1;
        self.turn_time += time;
        self.turn_time_max = self.turn_time_max.max(time);
    }
}

/// Who a connection belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// The volume.
    pub volume: String,
    /// The number of the invitation; 0: nobody has to be invited.
    pub invitation: u64,
    /// Which connection of its session it is: with 1 a session has begun, with more it goes on.
    pub epoch: u64,
    /// Whether it may only read.
    pub read_only: bool,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A client is let in.
    Connected {
        /// From where.
        peer: Option<SocketAddr>,
        /// Who.
        guest: Guest,
    },
    /// The connection of a client has ended.
    Disconnected {
        /// From where it was.
        peer: Option<SocketAddr>,
        /// Who it was.
        guest: Guest,
        /// How long it lasted.
        after: Duration,
    },
    /// Somebody is not let in, or is disconnected.
    Refused {
        /// From where.
        peer: Option<SocketAddr>,
        /// Who, if the client was let in before.
        guest: Option<Guest>,
        /// The reason, in a word.
        why: &'static str,
        /// The reason, in the words that the client is told.
        text: String,
    },
    /// The disk has no room for a change, in spite of what is kept for that, or none to bring the store up to date:
    /// what takes room is refused until there is some.
    Full,
    /// The server has been told to stop: clients are disconnected, and the store is brought up to date.
    Stopping,
}

/// A word for why somebody is refused.
pub fn word(why: Refusal) -> &'static str {
    match why {
        Refusal::Version => "version",
        Refusal::Volume => "volume",
        Refusal::Session => "session",
        Refusal::Protocol => "protocol",
        Refusal::Limit => "limit",
        Refusal::Stopping => "stopping",
    }
}

/// Looks at a server from another thread.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<Mutex<Figures>>);

impl Gauge {
    /// The figures, a second old at most while nothing takes longer.
    pub fn look(&self) -> Figures {
        self.lock().clone()
    }

    pub(crate) fn set(&self, figures: Figures) {
        *self.lock() = figures;
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of all connections, counted by their threads.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    received: AtomicU64,
    sent: Arc<AtomicU64>,
}

/// What one thread has told [`Traffic`] of.
#[derive(Debug, Default)]
pub(crate) struct Told(u64);

impl Traffic {
    /// A connection has received so much in all.
    pub fn received(&self, all: u64, told: &mut Told) {
        self.received.fetch_add(all - told.0, Ordering::Relaxed);
        told.0 = all;
    }

    /// Where connections count what they send.
    pub fn sent_counter(&self) -> Arc<AtomicU64> {
        self.sent.clone()
    }

    /// Received and sent.
    pub fn look(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }
}
