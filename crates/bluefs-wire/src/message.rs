//! What client and server say to each other.

use bluefs::op::Inode;
use bluefs::query::{Answer, Query, NAMES_MAX};
use bluefs::tree::Entry;
use bluefs::{Cred, Csn, Errno, Group, Ino, Interval, Key, Name, Outcome, SessionId};

use crate::codec::{get_bytes, put_bytes, wire_enum, wire_struct, wire_tuples, Reader, Wire, WireError};

/// Version of this protocol, which a client says. A server also speaks with clients of all versions before it: each of
/// their messages means the same in this one. It refuses any other.
pub const PROTOCOL_VERSION: u16 = 3;
/// Bytes of a volume's name, at most.
const VOLUME_BYTES_MAX: usize = 64;
/// Bytes of an invitation's secret, at most.
const SECRET_BYTES_MAX: usize = 256;
/// Bytes of one piece of staged contents.
const STAGE_BYTES_MAX: usize = bluefs::op::STEP_BYTES_MAX;
/// Keys that one invalidation names, at most.
const KEYS_MAX: usize = 100_000;
/// Groups that one question can be about: a directory, and what its names mean.
const GROUPS_MAX: usize = NAMES_MAX + 2;
/// Files about whose versions one message asks, at most: a server looks at each.
pub const VERSIONS_MAX: usize = 1024;
/// Starts of a server that a volume's history names, at most.
pub const STARTS_MAX: usize = 64;
/// Bytes of an explanation, at most.
const TEXT_BYTES_MAX: usize = 1024;

/// What a lock does to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Nothing: it is given back.
    Unlock,
    /// It keeps exclusive ones out.
    Shared,
    /// It keeps all others out.
    Exclusive,
}

/// A lock between clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockRequest {
    /// Of which file.
    pub ino: Ino,
    /// Whose, within the session: an open file (`flock`) or a process (`fcntl`).
    pub owner: u64,
    /// What it does.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte. Files end before 2^63; the byte `u64::MAX` stands for `flock`.
    pub end: u64,
    /// Whether to wait until it can be had.
    pub wait: bool,
}

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// The first message of a connection.
    Hello {
        /// [`PROTOCOL_VERSION`].
        version: u16,
        /// Name of the volume; empty: `default`.
        volume: Vec<u8>,
        /// The session that is to go on; `None` begins one.
        session: Option<(SessionId, u64)>,
        /// Outcomes up to this one have arrived.
        acknowledged: u64,
        /// Secret of an invitation; empty on a plain connection.
        secret: Vec<u8>,
    },
    /// A question.
    Ask {
        /// Repeated in the answer.
        tag: u64,
        /// Whose rights.
        cred: Cred,
        /// What.
        query: Query,
    },
    /// A question, and a request for leases on everything that its answer depends on.
    AskLeased {
        /// Repeated in the answer.
        tag: u64,
        /// Whose rights.
        cred: Cred,
        /// What.
        query: Query,
    },
    /// A closed interval.
    Submit {
        /// The interval.
        interval: Interval,
    },
    /// Contents for a later interval: appended to what this number has.
    Stage {
        /// The number, chosen by the client.
        id: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Every outcome up to this number has arrived.
    Acknowledge {
        /// The number.
        number: u64,
    },
    /// Asks for a lease on a group.
    Lease {
        /// Repeated in the answer.
        tag: u64,
        /// The group.
        group: Group,
    },
    /// The same without the pause behind another's change: somebody waits for the lease, and not for an answer alone.
    LeaseNow {
        /// Repeated in the answer.
        tag: u64,
        /// The group.
        group: Group,
    },
    /// Gives a lease, or an exclusive one, back.
    GiveBack {
        /// The group.
        group: Group,
    },
    /// Asks for exclusive leases on the groups of these keys (PROGRESS, 3).
    Exclusive {
        /// Repeated in the answer.
        tag: u64,
        /// The keys.
        keys: Vec<Key>,
    },
    /// Asks for a group of inode numbers.
    Lend {
        /// Repeated in the answer.
        tag: u64,
    },
    /// A lock.
    Lock {
        /// Repeated in the answer.
        tag: u64,
        /// What.
        lock: LockRequest,
    },
    /// Stops waiting for a lock: its answer is EINTR, unless it was given meanwhile.
    CancelLock {
        /// The tag of the request.
        tag: u64,
    },
    /// A lock that the session has had before this connection. A server that was started again does not know it.
    Reclaim {
        /// Repeated in the answer.
        tag: u64,
        /// What.
        lock: LockRequest,
    },
    /// Whether a lock could be had.
    TestLock {
        /// Repeated in the answer.
        tag: u64,
        /// What.
        lock: LockRequest,
    },
    /// Nobody here has this inode open, although it has no name.
    Released {
        /// The inode.
        ino: Ino,
    },
    /// The session is over: nothing of it is needed any more.
    Goodbye {},
    /// The session uses none of the leases that it has had, and has reclaimed every lock.
    GaveUp {},
    /// Answered at once: whether the other end is there.
    Ping {
        /// Repeated in the answer.
        tag: u64,
    },
    /// Which volume this is, whatever its name and its server are, and which commits it has.
    History {
        /// Repeated in the answer.
        tag: u64,
    },
    /// When the contents of these files have changed last, whoever has changed them.
    Versions {
        /// Repeated in the answer.
        tag: u64,
        /// The files.
        inos: Vec<Ino>,
    },
}

impl Request {
    /// About how many bytes it takes up, beside what every message does.
    pub fn bytes(&self) -> usize {
        /// A key.
        const EACH: usize = 128;
        match self {
            Request::Submit { interval } => interval.bytes(),
            Request::Stage { data, .. } => data.len(),
            Request::Exclusive { keys, .. } => EACH * keys.len(),
            _ => EACH,
        }
    }
}

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Another version of the protocol.
    Version,
    /// No such volume, or no right to it.
    Volume,
    /// The session is not known: what was in flight cannot be proven (EIO: at ESTALE the kernel of Linux tries again).
    Session,
    /// The client broke a rule of the protocol.
    Protocol,
    /// A limit is reached.
    Limit,
    /// The server is stopping.
    Stopping,
}

/// What a server sends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The answer to a hello.
    Welcome {
        /// The session.
        session: SessionId,
        /// Its epoch: one more at each connection. Messages of an older one are dropped.
        epoch: u64,
        /// The newest commit.
        csn: Csn,
        /// The last interval of the session that was decided.
        last: u64,
        /// The server's time, nanoseconds since 1970.
        now: i64,
        /// How long a lease lasts, ms.
        lease_ms: u64,
        /// Whether the session may only read.
        read_only: bool,
    },
    /// The connection ends.
    Refused {
        /// Why.
        why: Refusal,
        /// In words.
        text: Vec<u8>,
    },
    /// The answer to a question.
    Answer {
        /// Of the question.
        tag: u64,
        /// The state that it is an answer about.
        csn: Csn,
        /// The answer.
        answer: Answer,
    },
    /// A question, or a lock, that is refused.
    Error {
        /// Of the question.
        tag: u64,
        /// The state that it is an answer about.
        csn: Csn,
        /// Why.
        errno: Errno,
    },
    /// What became of an interval.
    Decided {
        /// Its number.
        number: u64,
        /// The outcome.
        outcome: Outcome,
    },
    /// Others have changed these keys. It comes before any answer about that state.
    Invalidate {
        /// The commit.
        csn: Csn,
        /// The keys.
        keys: Vec<Key>,
    },
    /// A lease is granted, shared or exclusive, or refused.
    Leased {
        /// Of the request.
        tag: u64,
        /// Whether it is granted.
        granted: bool,
    },
    /// Leases that were asked for with a question. The answer comes next. A group that is not named is not leased.
    Granted {
        /// Of the question.
        tag: u64,
        /// The groups.
        groups: Vec<Group>,
    },
    /// What an interval of the session's own has changed. Its outcome comes next.
    Changed {
        /// Its number.
        number: u64,
        /// The commit.
        csn: Csn,
        /// The keys.
        keys: Vec<Key>,
        /// Inodes as they are now; `None`: gone.
        inodes: Vec<(Ino, Option<Inode>)>,
        /// Names as they are now.
        names: Vec<(Ino, Name, Option<Entry>)>,
    },
    /// The server wants a lease back.
    Recall {
        /// Its group.
        group: Group,
    },
    /// A group of inode numbers, none of which was ever used.
    Lent {
        /// Of the request.
        tag: u64,
        /// The group.
        group: Group,
    },
    /// A lock is given, or given back.
    Locked {
        /// Of the request.
        tag: u64,
    },
    /// Whether a lock could be had: a lock of somebody else that is in its way.
    Tested {
        /// Of the request.
        tag: u64,
        /// Its kind and bytes; whose it is is not told.
        other: Option<LockRequest>,
    },
    /// An inode has lost its last name: the client says `Released` as soon as nobody has it open.
    Orphan {
        /// The inode.
        ino: Ino,
    },
    /// The answer to a ping.
    Pong {
        /// Of the request.
        tag: u64,
    },
    /// Which volume this is, and which commits it has.
    History {
        /// Of the request.
        tag: u64,
        /// A random number, which the volume was given when it was made.
        volume: u64,
        /// Starts of a server on it, the last one at the end: a random number of each, and the newest commit then.
        starts: Vec<(u64, Csn)>,
    },
    /// When contents of files have changed last.
    Versions {
        /// Of the request.
        tag: u64,
        /// The state that it is an answer about.
        csn: Csn,
        /// For each file in the order of the request: they have not changed since then; `None`: it is not there.
        versions: Vec<Option<Csn>>,
    },
}

wire_tuples!("kind of a lock" LockKind { 0 Unlock, 1 Shared, 2 Exclusive });
wire_tuples!("refusal" Refusal { 1 Version, 2 Volume, 3 Session, 4 Protocol, 5 Limit, 6 Stopping });
wire_struct!(LockRequest { ino, owner, kind, start, end, wait });

wire_enum!("request" Request {
    1 Hello { version, volume ["volume", VOLUME_BYTES_MAX], session, acknowledged, secret ["secret", SECRET_BYTES_MAX] },
    2 Ask { tag, cred, query },
    3 Submit { interval },
    4 Stage { id, data ["piece of contents", STAGE_BYTES_MAX] },
    5 Acknowledge { number },
    6 Lease { tag, group },
    7 GiveBack { group },
    8 Exclusive { tag, keys {"list of keys", KEYS_MAX} },
    9 Lend { tag },
    10 Lock { tag, lock },
    11 CancelLock { tag },
    12 Released { ino },
    13 Goodbye {},
    14 Ping { tag },
    15 AskLeased { tag, cred, query },
    16 GaveUp {},
    17 Reclaim { tag, lock },
    18 TestLock { tag, lock },
    19 LeaseNow { tag, group },
    20 History { tag },
    21 Versions { tag, inos {"list of files", VERSIONS_MAX} },
});

wire_enum!("reply" Reply {
    1 Welcome { session, epoch, csn, last, now, lease_ms, read_only },
    2 Refused { why, text ["text", TEXT_BYTES_MAX] },
    3 Answer { tag, csn, answer },
    4 Error { tag, csn, errno },
    5 Decided { number, outcome },
    6 Invalidate { csn, keys {"list of keys", KEYS_MAX} },
    7 Leased { tag, granted },
    8 Recall { group },
    9 Lent { tag, group },
    10 Locked { tag },
    11 Orphan { ino },
    12 Pong { tag },
    13 Granted { tag, groups {"list of groups", GROUPS_MAX} },
    14 Changed {
        number,
        csn,
        keys {"list of keys", KEYS_MAX},
        inodes {"list of inodes", KEYS_MAX},
        names {"list of names", KEYS_MAX}
    },
    15 Tested { tag, other },
    16 History { tag, volume, starts {"list of starts", STARTS_MAX} },
    17 Versions { tag, csn, versions {"list of versions", VERSIONS_MAX} },
});

/// A secret or a text is a byte string also where it stands alone.
impl Wire for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self, out);
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        get_bytes(from, "byte string", bluefs::op::INTERVAL_BYTES_MAX)
    }
}
