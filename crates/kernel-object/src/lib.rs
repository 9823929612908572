//! What each kind of kernel object carries between processes: pure logic (000, section 6; 002, 3.6).
//!
//! [`rule`] answers for an operation on a kind of object: from whom does the process take dependencies, to whom does it
//! give them, and can that be undone. The table is complete by construction: what has no row is a barrier.
//! [`Propagator`] applies rules to any type of dependency that can be merged.
#![forbid(unsafe_code)]

mod dependencies;
mod kind;
mod propagator;
mod rule;
mod rules;
mod shared_memory;

pub use dependencies::Dependencies;
pub use kind::{ObjectKind, Operation};
pub use propagator::{Parties, Party, Propagator};
pub use rule::{PropagationRule, Role, Row, Support};
pub use rules::{rows, rule};
pub use shared_memory::Permission;
