//! BlueFS messages as bytes. The format is described in `docs/bluefs-protocol.md`.
//!
//! Numbers are little-endian and of fixed width; lists and byte strings have a length of four bytes in front, which is
//! checked against a bound and against what is left of the message before anything is allocated. An enumeration is one
//! byte, then its fields. There is exactly one encoding of each value, and a message has to end where its last field
//! ends.
#![forbid(unsafe_code)]

mod codec;
mod frame;
mod message;
mod types;

pub use codec::{decode, encode, Reader, Wire, WireError};
pub use frame::{frame, Frames, FRAME_BYTES_MAX, HEADER_BYTES};
pub use message::{LockKind, LockRequest, Refusal, Reply, Request, PROTOCOL_VERSION, STARTS_MAX, VERSIONS_MAX};
