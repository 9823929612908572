//! What is held, for whom, and in which order it leaves: pure logic (002, 2.3; 004, 1.2.1.3).
//!
//! Every outside object (terminal, socket, pipe to outside) has one queue. An entry is *committed* when all that it
//! depends on is on stable storage. It may leave when it is committed, when all earlier entries of its queue have left,
//! and all earlier entries of its process have left. Over different queues and processes entries leave in the order in
//! which they were written, so that no entry overtakes one that happened before it, whatever carried the cause.
//!
//! A reader outside that does not read must not stop the world. An entry is *stalled* if it is committed and its queue
//! is blocked, or if it is committed and stands, in its queue or in its process, behind a stalled entry. A stalled
//! entry does not hold up entries of other processes in other queues. An uncommitted one does, for the short time of a
//! commit.
//!
//! A process that would not have waited for such a reader either (a server with many clients) does not wait for it
//! here: its queue is *put aside* (`OutputQueues::on_put_aside`). What is committed there, and is the oldest that its
//! process has, counts as left for that process. Later entries of the process pass it. Between two such readers there
//! is no order that one of them could see.
//!
//! Events go in by methods, actions come out of [`OutputQueues::next_release`]:
//! ```
//! use commit_clock::Clock;
//! use output::{Options, OutputQueues, WriterId, QueueId};
//! let mut queues = OutputQueues::new(Options::default());
//! let mut clock = Clock::NONE;
//! clock.0[0] = 3;
//! queues.push(QueueId(1), WriterId(8000), clock, "hello", 5).unwrap();
//! assert!(queues.next_release().is_none());
//! queues.on_committed(&clock);
//! let release = queues.next_release().unwrap();
//! assert_eq!(release.payload, "hello"); // write it out, then
//! queues.on_left(release.sequence);
//! assert!(queues.is_empty());
//! ```
#![forbid(unsafe_code)]

mod entry;
mod lanes;
mod queues;

pub use entry::{Dropped, PushError, Pushed, QueueId, Release, Sequence, Why, WriterId};
pub use queues::{Options, OutputQueues, Pending};
