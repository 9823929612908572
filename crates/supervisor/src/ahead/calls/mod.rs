//! System calls: which may be made now, as what, and what is known when one has been made.

pub(in crate::ahead) mod ask;
pub(in crate::ahead) mod births;
pub(in crate::ahead) mod exchange;
mod exec;
pub(in crate::ahead) mod interrupted;
pub(in crate::ahead) mod known_directories;
pub(in crate::ahead) mod known_ways;
pub(in crate::ahead) mod opened;
mod other_processes;
pub(in crate::ahead) mod own_state;
pub(in crate::ahead) mod permits;
pub(in crate::ahead) mod plan;
pub(in crate::ahead) mod ready;
mod rest;
pub(in crate::ahead) mod rights;
pub(in crate::ahead) mod served;
pub(in crate::ahead) mod under_way;
pub(in crate::ahead) mod waiting;
