//! Threads of ours. One that cannot be started (RLIMIT_NPROC, pids.max) is an error that somebody is told of, and
//! no panic.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Start a thread of this name.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let told = |error: io::Error| io::Error::new(error.kind(), format!("a thread cannot be started: {error}"));
    Builder::new().name(name.into()).spawn(work).map_err(told)
}
