//! Files: how a path is walked, and what a file system does for a speculative process. Files in memory
//! are changed at once and undone ([`memory`]); those on disks are changed when nothing can fail any more ([`disk`]).

pub(in crate::ahead) mod disk;
pub(in crate::ahead) mod mapped;
pub(in crate::ahead) mod memory;
pub(in crate::ahead) mod open;
pub(in crate::ahead) mod path_walk;
pub(in crate::ahead) mod text_busy;
pub(in crate::ahead) mod walks;
