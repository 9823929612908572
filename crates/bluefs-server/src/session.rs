//! What the server keeps of a session while it runs.

use std::collections::VecDeque;

use bluefs::lease::{Millis, Ticket};
use bluefs::session::Session;
use bluefs_store::SessionRow;
use bluefs_wire::Request;

use crate::engine::ConnectionId;

/// How long a session without a connection is kept, ms.
pub const KEPT_MS: Millis = 30_000;
/// Messages that may wait behind an interval that waits.
pub const PARKED_MAX: usize = 4096;
/// Bytes that a session may have staged.
pub const STAGED_BYTES_MAX: usize = 64 << 20;
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

/// A session.
#[derive(Debug)]
pub struct Live {
    pub row: SessionRow,
    pub session: Session,
    pub connection: Option<ConnectionId>,
    /// Since when it has no connection.
    pub gone_since: Millis,
    /// An interval that waits for leases of others, and what came behind it.
    pub parked: VecDeque<Request>,
    pub staged_bytes: usize,
    pub wanted: Vec<Wanted>,
}

impl Live {
    pub fn new(row: SessionRow, session: Session, now: Millis) -> Live {
        let (parked, wanted) = (VecDeque::new(), Vec::new());
        Live { row, session, connection: None, gone_since: now, parked, staged_bytes: 0, wanted }
    }

    /// Whether it has been without a connection for too long.
    pub fn is_over(&self, now: Millis) -> bool {
        self.connection.is_none() && now >= self.gone_since + KEPT_MS
    }
}
