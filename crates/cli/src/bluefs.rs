//! BlueFS: `speculator serve`, `speculator invite`, `speculator fsck`, `speculator mount`, `speculator bluefs`.

pub mod args;
mod batch;
mod fsck;
mod invite;
mod mount;
mod mount_options;
mod serve;
mod status;

pub use batch::batch;
pub use fsck::fsck;
pub use invite::invite;
pub use mount::mount;
pub use mount_options::line_of_helper;
pub use serve::serve;
pub use status::{mounts, MountStatus};
