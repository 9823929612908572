//! The table: one file for each noun, one row for each operation on it.

mod event;
mod file;
mod pipe;
mod process;
mod shared_memory;
mod signal;
mod socket;

use crate::rule::{PropagationRule, Role, Row};
use crate::{ObjectKind, Operation};

/// Both ways with the object: "almost all operations that modify kernel objects also observe the object" (000, 6.1).
const BOTH: PropagationRule = PropagationRule::tracked(&[Role::Object], &[Role::Object]);
/// From the object to the process.
const OBSERVE: PropagationRule = PropagationRule::tracked(&[Role::Object], &[]);
/// Both ways, for objects whose operations cannot be undone yet.
const BOTH_LIGHTWEIGHT: PropagationRule = PropagationRule::lightweight_only(&[Role::Object], &[Role::Object]);
/// From the object to the process, likewise.
const OBSERVE_LIGHTWEIGHT: PropagationRule = PropagationRule::lightweight_only(&[Role::Object], &[]);

const fn row(kind: ObjectKind, operation: Operation, rule: PropagationRule, why: &'static str) -> Row {
    Row { kind, operation, rule, why }
}

/// What an operation on a kind of object passes on.
pub fn rule(kind: ObjectKind, operation: Operation) -> PropagationRule {
    let row = rows().find(|row| row.kind == kind && row.operation == operation);
    row.map_or(PropagationRule::BARRIER, |row| row.rule)
}

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    let tables = [process::ROWS, pipe::ROWS, socket::ROWS, file::ROWS, shared_memory::ROWS, signal::ROWS, event::ROWS];
    tables.into_iter().flatten()
}
