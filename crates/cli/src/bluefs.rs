//! BlueFS: `speculator serve`, `speculator invite`, `speculator fsck`, `speculator mount`, `speculator bluefs`.

mod access;
mod advice;
pub mod args;
mod batch;
mod fsck;
mod invite;
mod journal;
mod metrics;
mod mount;
mod mount_options;
mod needs;
mod progress;
mod serve;
mod status;

pub use batch::batch;
pub use bluefs_mount::forgetter::COMMAND as FORGET_NAMES;
pub use fsck::fsck;
pub use invite::invite;
pub use mount::{forget_names, mount};
pub use mount_options::line_of_helper;
pub use needs::{needs, Need};
pub use serve::serve;
#[cfg(test)]
pub use status::CacheStatus;
pub use status::{mounts, servers, MountStatus, ServerStatus};
