//! The Blue File System (000, section 7.4) without I/O, clock or threads: what server and client decide, as functions
//! of what they were told.
//!
//! A server orders everything that clients change. A client runs ahead in *intervals*: transactions that name the state
//! that they were based on ([`interval`]). The server validates an interval ([`version`]), carries out its steps as a
//! whole or not at all ([`apply`]), and keeps its outcome until the client has acknowledged it ([`session`]). A client
//! may answer from its cache without asking while it has a lease ([`lease`]).
//!
//! **Invariant:** a change is visible to other clients only after the log record of its interval is durable; this
//! crate is told so by its caller.
#![forbid(unsafe_code)]

pub mod apply;
pub mod interval;
pub mod key;
pub mod lease;
pub mod memory;
pub mod op;
pub mod query;
mod rights;
pub mod runs;
pub mod session;
pub mod tree;
pub mod version;

pub use key::{Csn, Group, Ino, Key, Name, SessionId};
pub use op::{Change, Content, Cred, Errno, Inode, Interval, Kind, Outcome, Step, Time};
pub use rights::mode_without_set_ids;
pub use runs::Runs;
