//! Where guesses come from, who made which, what a checkpoint may cost, how much may be held, and what is told of it.

pub(in crate::ahead) mod bounds;
pub(in crate::ahead) mod explicit;
pub(in crate::ahead) mod history;
pub(in crate::ahead) mod inject;
pub(in crate::ahead) mod ledger;
pub(in crate::ahead) mod outside;
pub(in crate::ahead) mod report;
pub(in crate::ahead) mod standstill;
pub(in crate::ahead) mod status;
pub(in crate::ahead) mod worth;
