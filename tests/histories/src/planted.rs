//! Errors that are made on purpose: each has to be found.

use clap::ValueEnum;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Planted {
    /// Clients do not hear what others have changed, and the server believes that they have given their leases back.
    LostInvalidations,
    /// Clients take a lease to last longer than the server does: they count it from something later.
    LongLeases,
    /// Clients go on with their caches on a new connection.
    StaleAfterReconnection,
    /// A lease is given back 30 ms before its client hears that it is recalled: so long the kernel keeps its pages.
    LatePages,
    /// What the server has acknowledged is gone when it starts again.
    LostCommits,
    /// A rename takes the old name away, and makes the new one later.
    RenameInTwo,
    /// A transaction is one for each of its lines.
    BatchInParts,
    /// What may have been appended is appended again.
    AppendedTwice,
    /// Clients take a lock that is refused as given.
    LockOfTwo,
}

impl Planted {
    /// The word for it on a command line.
    pub fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
