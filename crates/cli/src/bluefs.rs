//! BlueFS: `speculator serve`, `speculator invite`, `speculator fsck`, `speculator mount`, `speculator bluefs`.

pub mod args;
mod batch;
mod fsck;
mod invite;
mod mount;
mod serve;
mod status;

pub use batch::batch;
pub use fsck::fsck;
pub use invite::invite;
pub use mount::mount;
pub use serve::serve;
pub use status::{mounts, MountStatus};
