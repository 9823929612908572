//! Sockets at which a world or a mount says how it is: each has an abstract name, so that nothing stands in a file
//! system, and it is gone with its process. `/proc/net/unix` lists the names. Who connects gets one JSON object. Only
//! the user whose process it is, and root, are answered (`SO_PEERCRED`), and only that user's processes are listened
//! to.

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

/// The abstract names on this machine that begin so and are listened at.
///
/// # Errors
/// `/proc/net/unix` cannot be read.
pub fn names(prefix: &str) -> io::Result<Vec<String>> {
    let mut names = procfs::machine::listening_names()?;
    names.retain(|name| name.starts_with(prefix));
    Ok(names)
}

/// A connection to who listens at a name.
///
/// # Errors
/// Nobody listens there, or it is somebody else's process (`PermissionDenied`).
pub(crate) fn connect(name: &str) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let who = socket_peercred(&stream)?.uid;
    match geteuid().is_root() || who == geteuid() {
        true => Ok(stream),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// What somebody who listens at a name says of himself.
///
/// # Errors
/// Nobody listens there, it is somebody else's process, or it says nothing within `patience`.
pub fn ask<T: DeserializeOwned>(name: &str, patience: Duration) -> io::Result<T> {
    let mut stream = connect(name)?;
    stream.set_read_timeout(Some(patience))?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Whether who has connected may be answered.
///
/// # Errors
/// The kernel does not say who it is.
pub fn may_be_answered(stream: &UnixStream) -> io::Result<bool> {
    let who = socket_peercred(stream)?.uid;
    Ok(who.is_root() || who == geteuid())
}
