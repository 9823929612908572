//! What to do about a failure of BlueFS, as each line about one ends.

use std::io;

use bluefs_client::{ConnectError, DiskError};
use bluefs_mount::MountError;
use bluefs_server::ServeError;
use bluefs_store::StoreError;
use external_sync::advice_on_lack;

use crate::error::{plain, Failure};

/// A failure with what to do behind it.
pub fn failed(what: &dyn std::fmt::Display, error: &io::Error, otherwise: &str) -> Failure {
    let advice = advice_on_lack(error).unwrap_or(otherwise);
    Failure::Bluefs(format!("cannot {what}: {}; {advice}", plain(error)))
}

/// A store that cannot be used. Most variants say themselves what to do.
pub fn store(what: &str, error: &StoreError) -> Failure {
    let advice = match error {
        StoreError::Io { source, .. } => advice_on_lack(source).unwrap_or(match source.raw_os_error() {
            Some(libc::EEXIST | libc::ENOTDIR | libc::ENOENT | libc::ELOOP | libc::ENAMETOOLONG) => "name a directory",
            Some(libc::EACCES | libc::EPERM) => "be its owner, or name a directory that you can write to",
            Some(libc::EROFS) => "name a directory that can be written to",
            Some(libc::ENOSPC | libc::EDQUOT) => "make room there",
            Some(libc::EFBIG) => "raise the limit of file sizes (ulimit -f)",
            _ => "see the kernel log (dmesg), and speculator fsck",
        }),
        StoreError::Full(_) => "make room there",
        StoreError::Database(_) => "see speculator fsck",
        _ => return Failure::Bluefs(format!("cannot {what}: {error}")),
    };
    Failure::Bluefs(format!("cannot {what}: {error}; {advice}"))
}

/// A server that cannot go on.
pub fn server(at: &str, error: &ServeError) -> Failure {
    match error {
        ServeError::Store(error) => store(&format!("serve {at}"), error),
        ServeError::Io(error) => failed(&format!("serve {at}"), error, "start it again"),
    }
}

/// An address that cannot be listened at.
pub fn listening(at: &str, error: &io::Error) -> Failure {
    let otherwise = match error.kind() {
        io::ErrorKind::AddrInUse => "name another port, or end what listens there",
        io::ErrorKind::AddrNotAvailable => "name an address of this machine",
        io::ErrorKind::PermissionDenied => "name a port from 1024 on, or be root",
        _ => "name another address",
    };
    failed(&format!("listen at {at}"), error, otherwise)
}

/// A connection that did not come about.
pub fn connecting(error: &ConnectError, is_plain: bool) -> Failure {
    // What a socket's time limit says. Nothing has run out but patience.
    if let ConnectError::Io { address, source } = error {
        if source.kind() == io::ErrorKind::WouldBlock {
            return Failure::Bluefs(format!(
                "cannot connect to {address}: it does not answer; does a server run there?"
            ));
        }
    }
    let advice = match error {
        ConnectError::Elsewhere { .. } => "give --invitation FILE with what speculator invite has printed",
        ConnectError::Refused { .. } if is_plain => "see speculator top for the volumes of servers of this machine",
        ConnectError::Refused { .. } => "ask whoever serves it; an invitation is for one volume, and may have expired",
        ConnectError::Io { source, .. } => advice_on_lack(source).unwrap_or(match is_plain {
            true => "does it run, with --plain? else an invitation is needed",
            false => "does it run there, without --plain?",
        }),
    };
    Failure::Bluefs(format!("{error}; {advice}"))
}

/// A volume that was not mounted, or is no more.
pub fn mounting(error: &MountError) -> Failure {
    let advice = match error {
        MountError::Mount { source, .. } => advice_on_lack(source).unwrap_or(match source.raw_os_error() {
            Some(libc::ENOTDIR) => "name a directory",
            Some(libc::EPERM | libc::EACCES) => "run as root; see speculator doctor",
            _ => "is the directory there? see speculator doctor, too",
        }),
        MountError::Ended(_) => "unmount it, and mount it again",
    };
    Failure::Bluefs(format!("{error}; {advice}"))
}

/// A directory that cannot be a cache.
pub fn caching(error: &DiskError) -> Failure {
    let advice = match error {
        DiskError::InUse(_) => "give each mount its own",
        DiskError::NotEmpty(_) => "name an empty directory, or none that is there",
        DiskError::NotOurs(_) => "name one of your own",
        DiskError::Io { source, .. } => advice_on_lack(source).unwrap_or("name a directory that you can write to"),
    };
    Failure::Bluefs(format!("{error}; {advice}"))
}
