//! The server of BlueFS.
//!
//! [`Engine`] decides: messages in, replies out, without sockets, clocks or threads; what it has decided in one turn is
//! one batch of the store, so that no reply leaves before its state is on stable storage. [`Server`] is the thin rest:
//! sockets, clocks and threads.
#![forbid(unsafe_code)]

mod access;
mod bounds;
mod desk;
mod engine;
mod figures;
mod locks;
mod makers;
mod serve;
mod session;
mod untold;
mod versions;
mod volume;

pub use access::{identity_of, Everybody, Invitation, Invitations};
pub use engine::{Access, Action, ConnectionId, Engine, Event, Grant, Now};
pub use figures::{Figures, Gauge, Guest, Note, VolumeFigures};
pub use locks::{Locked, Locks};
pub use serve::{ServeError, Server, Stopper};
