//! Processes: birth, end, `wait`, and the signals between them.

pub(in crate::ahead) mod burial;
pub(in crate::ahead) mod child_signal;
pub(in crate::ahead) mod childless;
pub(in crate::ahead) mod children;
pub(in crate::ahead) mod held_signals;
mod installed;
pub(in crate::ahead) mod kill;
pub(in crate::ahead) mod kin;
mod release;
pub(in crate::ahead) mod signals;
pub(in crate::ahead) mod thread_group;
pub(in crate::ahead) mod unasked_ends;
pub(in crate::ahead) mod usage;
pub(in crate::ahead) mod vfork;
mod wait_answer;
pub(in crate::ahead) mod wanted;
