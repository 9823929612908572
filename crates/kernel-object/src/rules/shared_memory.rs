//! Shared memory (002, 3.6): only mapping and unmapping are seen. Between them whoever can write is taken to write all the
//! time, and whoever can read to read all the time; `crate::shared_memory` does that.

use super::{row, Row, BOTH_LIGHTWEIGHT, OBSERVE_LIGHTWEIGHT};
use crate::rule::{PropagationRule, Role};
use crate::ObjectKind::{Futex, SharedMemory};
use crate::Operation::{Close, Create, GetAttributes, Map, Open, Poll, Read, SetAttributes, Unmap, Write};

const MAP: PropagationRule =
    PropagationRule::lightweight_only(&[Role::Object, Role::Backing], &[Role::Object, Role::Backing]);

pub(super) const ROWS: &[Row] = &[
    row(SharedMemory, Create, BOTH_LIGHTWEIGHT, "memfd_create, shm_open, shmget"),
    row(SharedMemory, Open, OBSERVE_LIGHTWEIGHT, "shows that it exists"),
    row(SharedMemory, Map, MAP, "002, 3.6; a rollback would need checkpoints at arbitrary places"),
    row(SharedMemory, Unmap, MAP, "what was written stays in the region"),
    row(SharedMemory, Read, OBSERVE_LIGHTWEIGHT, "read of a memfd"),
    row(SharedMemory, Write, BOTH_LIGHTWEIGHT, "write to a memfd"),
    row(SharedMemory, GetAttributes, OBSERVE_LIGHTWEIGHT, "fstat"),
    row(SharedMemory, SetAttributes, BOTH_LIGHTWEIGHT, "ftruncate, seals"),
    row(SharedMemory, Close, PropagationRule::lightweight_only(&[], &[]), "shows nothing"),
    row(Futex, Write, BOTH_LIGHTWEIGHT, "FUTEX_WAKE shows how many waited"),
    row(Futex, Poll, BOTH_LIGHTWEIGHT, "FUTEX_WAIT: its page carries already; who waits is state too"),
];
