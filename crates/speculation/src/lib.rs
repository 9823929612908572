//! Full and lightweight speculations, undo logs, dependency sets: pure logic (000, sections 4 to 6).
//!
//! Events go in by the methods of [`World`], actions come out of [`World::next_action`]; there is no I/O, no clock and
//! no type of the operating system here. Objects are known by a key `K`, what undoes one operation is an opaque payload
//! `P`, what a process shows to the outside is an opaque `O`.
//!
//! ```
//! use speculation::{Access, Action, Process, World};
//! let mut world: World<&str, &str, &str> = World::default();
//! let a = Process(8000);
//! let made = world.create_speculation(a, Access::ReadOnly, 0).unwrap();
//! assert!(matches!(world.next_action(), Some(Action::TakeCheckpoint { .. })));
//! world.modify(a, "inode 3556", "remove 5 bytes at 0");
//! world.fail_speculation(made.id).unwrap();
//! let actions: Vec<_> = std::iter::from_fn(|| world.next_action()).collect();
//! assert!(actions.contains(&Action::RollBack { object: "inode 3556", payloads: vec!["remove 5 bytes at 0"] }));
//! ```
//!
//! **Invariants**
//! * A speculation stands in at most one entry of an undo log: the one whose operation introduced it.
//! * Every entry of a process's log that names a full speculation holds what the process starts again from.
//! * Every payload, checkpoint and output that goes in comes out exactly once.
#![forbid(unsafe_code)]

mod action;
mod dependency_set;
mod id;
mod options;
mod record;
mod undo_log;
mod world;

pub use action::Action;
pub use dependency_set::{DependencySet, Run};
pub use id::{Checkpoint, Process, SpeculationId};
pub use options::Options;
pub use record::{Access, Dependent, Kind, Speculation, State};
pub use undo_log::{Entry, UndoLog};
pub use world::{CreateError, Created, ResolveError, Verdict, World};
