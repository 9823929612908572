//! What can go wrong with a store.

use std::io;

/// Why a store cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Something that was written is not there any more, or is not what was written.
    #[error("the store is damaged: {0}; restore it from a copy")]
    Damaged(String),
    /// The database.
    #[error("cannot use the store's database: {0}")]
    Database(String),
    /// Another process has it.
    #[error("another process uses this store; end it first")]
    InUse,
    /// There is something else.
    #[error("this is no store, and not empty; name another directory")]
    NotAStore,
    /// There is nothing.
    #[error("there is no store; make one with speculator serve")]
    Missing,
    /// A batch is larger than a record of the log may be.
    #[error("a record of the log would have {0} bytes, and may have 4 GiB; nothing of it was written")]
    TooLarge(usize),
    /// The disk has no room for a batch: nothing of it was written, and the store goes on.
    #[error("the disk has no room for the store: {0}; nothing of this was written")]
    Full(io::Error),
    /// An earlier write or sync failed: what is on the disk is not known until the store is opened again.
    #[error("an earlier write to the store failed; start the server again")]
    Broken,
}

impl StoreError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> StoreError {
        let what = what.into();
        |source| StoreError::Io { what, source }
    }
}

/// Whether that is all that is wrong.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

macro_rules! database_errors {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> StoreError {
                match redb::Error::from(error) {
                    redb::Error::Corrupted(why) => StoreError::Damaged(format!("its database says: {why}")),
                    redb::Error::Io(source) => StoreError::Io { what: "use the database".to_owned(), source },
                    other => StoreError::Database(other.to_string()),
                }
            }
        }
    )*};
}

database_errors!(DatabaseError, TransactionError, TableError, StorageError, CommitError, SetDurabilityError);
