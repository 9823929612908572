//! Crash disk, workloads, native-against-inside comparison.
//!
//! [`crash`] is the machine that power is cut from: a disk that logs, an observer on the same clock, cuts, replay.
//! [`workload`] is what runs on it, and what must hold afterwards. [`table`], and the program `crash-table`, put both
//! together into 002's figure 3. [`faults`] ends and stops the processes that stand around a world. [`network`] is two
//! hosts and a slow line. [`mapping`] is a file as who maps it sees it. [`skipped`](mod@skipped) is for tests that
//! cannot run where they are.
#![deny(unsafe_code)]

pub mod crash;
pub mod faults;
pub mod mapping;
pub mod network;
pub mod skipped;
pub mod table;
pub mod workload;

/// The status of a program that judges, if it found what must not be: something was lost, or shown too early. No other
/// end has it: a panic has 101, an error 2 (`FOUND` in xtask's `shell.rs`).
pub const STATUS_FOUND: u8 = 3;
