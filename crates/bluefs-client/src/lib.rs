//! A session with a BlueFS server: it outlives its connections. What has no reply when a connection ends is sent again
//! on the next one, and takes effect once.
#![forbid(unsafe_code)]

mod address;
mod ahead;
mod batch;
mod cache;
mod cached;
mod client;
mod disk;
mod from_disk;
mod invitation;
mod line;
mod locks;
mod own;
mod sent;
mod state;
mod transaction;
mod wakers;
mod window;

pub use address::{Address, AddressError, DEFAULT_PORT};
pub use batch::{Batch, BatchError};
pub use cached::Told;
pub use client::{Client, Opening, Watch};
pub use disk::{Disk, DiskCounts, DiskError, BYTES_MAX_MIN, DEFAULT_BYTES_MAX};
pub use invitation::{Invitation, InvitationError};
pub use line::ConnectError;
pub use own::own_cred;
pub use sent::Touched;
pub use state::Counts;
pub use transaction::{message, path, NotDone, Operation, Path, Transaction};

/// What an invitation gives its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// By what the server is known.
    pub fingerprint: [u8; 32],
    /// What the server knows the owner by.
    pub secret: [u8; 32],
}

/// A cache in front of a client's, as the kernel's is. What it was told under a lease it says without asking.
pub trait Front: Send + Sync {
    /// Forgets what it was told of a group; `None`: everything. When this returns it says nothing of it any more.
    /// The thread that receives calls it: it must not wait for anything that a reply of the server may have to end.
    /// Whether there are contents besides: these it forgets in [`Front::forget_contents`].
    fn forget(&self, group: Option<bluefs::Group>) -> bool;

    /// Forgets contents of a group that it was told; `None`: of all. This may wait for replies of the server: a thread
    /// of its own calls it, and the lease is given back behind it. On a new connection nobody is there to reply.
    fn forget_contents(&self, group: Option<bluefs::Group>);

    /// Others have changed these, whether or not there was a lease. Nothing that comes behind it is known yet. The
    /// thread that receives calls it.
    fn others_changed(&self, keys: &[bluefs::Key]);

    /// Forgets what the session itself is about to change: others may see it before the session hears of it. When this
    /// returns nothing of that is said any more, and the client says nothing of it until it has heard. The thread that
    /// changes something calls it.
    fn before_change(&self, touched: &Touched);
}

/// What callers get when the connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDisconnect {
    /// They wait until it is back.
    Block,
    /// EIO: whether what they asked for was done is not known.
    Error,
}
