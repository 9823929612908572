//! What the server keeps of a session while it runs.

use std::collections::{BTreeSet, VecDeque};

use bluefs::lease::{Millis, Ticket};
use bluefs::op::STEPS_MAX;
use bluefs::session::Session;
use bluefs::{Csn, Group};
use bluefs_store::SessionRow;
use bluefs_wire::Request;

use crate::engine::ConnectionId;

/// How long a session without a connection is kept, ms.
pub const KEPT_MS: Millis = 30_000;
/// Messages that may wait behind an interval that waits.
const PARKED_MAX: usize = 4096;
/// Bytes that a session may have staged.
pub const STAGED_BYTES_MAX: usize = bluefs::op::STAGED_BYTES_MAX + STEPS_MAX * STAGED_ROW_BYTES;
/// What is counted for each of these contents, beside their bytes.
pub const STAGED_ROW_BYTES: usize = 128;
/// The same of all sessions of one invitation.
pub const STAGED_OF_ONE_BYTES_MAX: usize = 1 << 30;
/// Bytes of messages that may wait behind an interval that waits: all that may be staged, and a large interval.
const PARKED_BYTES_MAX: usize = 96 << 20;
/// Groups of numbers that a session may have been lent, and of which it has used none.
pub const LENT_UNUSED_MAX: usize = 1024;
/// Requests for exclusive leases of one session that may wait.
pub const WANTED_MAX: usize = 64;
/// How long a request for exclusive leases waits, ms.
pub const EXCLUSIVE_WAIT_MS_MAX: Millis = 10_000;

/// A request for exclusive leases that waits.
#[derive(Debug)]
pub struct Wanted {
    pub tag: u64,
    pub ticket: Ticket,
    pub until: Millis,
}

/// Messages that wait, in their order.
#[derive(Debug, Default)]
pub struct Parked {
    queue: VecDeque<(Request, usize)>,
    bytes: usize,
}

impl Parked {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// One more, behind all others. `false`: there is no room for it.
    pub fn push(&mut self, message: Request) -> bool {
        let bytes = message.bytes();
        let fits = self.queue.len() < PARKED_MAX && self.bytes + bytes <= PARKED_BYTES_MAX;
        if fits {
            self.bytes += bytes;
            self.queue.push_back((message, bytes));
        }
        fits
    }

    /// This one is the next again.
    pub fn put_back(&mut self, message: Request) {
        let bytes = message.bytes();
        self.bytes += bytes;
        self.queue.push_front((message, bytes));
    }

    /// All of them, in their order.
    pub fn take(&mut self) -> impl Iterator<Item = Request> {
        std::mem::take(self).queue.into_iter().map(|(message, _)| message)
    }
}

/// A session.
#[derive(Debug)]
pub struct Live {
    pub row: SessionRow,
    pub session: Session,
    pub connection: Option<ConnectionId>,
    /// Up to here its connection has been told of what others have changed.
    pub told: Csn,
    /// Since when it has no connection.
    pub gone_since: Millis,
    /// An interval that waits for leases of others, and what came behind it.
    pub parked: Parked,
    pub staged_bytes: usize,
    /// Groups that were lent on this server's run, and of which no number is used yet.
    pub lent_unused: BTreeSet<Group>,
    pub wanted: Vec<Wanted>,
}

impl Live {
    pub fn new(row: SessionRow, session: Session, now: Millis) -> Live {
        let (parked, lent_unused, wanted) = (Parked::default(), BTreeSet::new(), Vec::new());
        let (connection, told, staged_bytes) = (None, Csn(0), 0);
        Live { row, session, connection, told, gone_since: now, parked, staged_bytes, lent_unused, wanted }
    }

    /// Whether it has been without a connection for too long.
    pub fn is_over(&self, now: Millis) -> bool {
        self.connection.is_none() && now >= self.gone_since + KEPT_MS
    }
}
