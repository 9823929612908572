//! File systems on disks (000, 6.4: no-steal). What a speculative process changes is held, shown to those inside as far
//! as it can be, and made when nothing that it depends on can fail any more.

pub(in crate::ahead) mod attribute_calls;
pub(in crate::ahead) mod attributes;
pub(in crate::ahead) mod contents;
pub(in crate::ahead) mod entries;
pub(in crate::ahead) mod fifos;
pub(in crate::ahead) mod mirrors;
pub(in crate::ahead) mod name_calls;
pub(in crate::ahead) mod name_changes;
mod name_index;
pub(in crate::ahead) mod names;
pub(in crate::ahead) mod new_files;
pub(in crate::ahead) mod program_names;
pub(in crate::ahead) mod programs;
pub(in crate::ahead) mod seen;
pub(in crate::ahead) mod snapshots;
pub(in crate::ahead) mod stages;
pub(in crate::ahead) mod staging;
pub(in crate::ahead) mod stat;
pub(in crate::ahead) mod syncs;
pub(in crate::ahead) mod truncations;
pub(in crate::ahead) mod view;
pub(in crate::ahead) mod watchers;
pub(in crate::ahead) mod writes;
