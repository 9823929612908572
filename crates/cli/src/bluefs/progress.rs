//! How far a transfer is, on one line of a terminal that is written over again and again.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bluefs_client::Watch;

/// What takes less is not told of.
const PATIENCE: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_millis(250);
/// To the first column, and nothing behind it.
const CLEAR: &str = "\r\x1b[K";

/// Tells of a transfer until it is dropped.
pub struct Progress {
    over: Option<mpsc::Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Progress {
    /// Of so many bytes of contents, which a client sends from now on; `None`: nobody would see it.
    pub fn begin(watch: Watch, bytes: u64) -> Option<Progress> {
        if bytes == 0 || !std::io::stderr().is_terminal() {
            return None;
        }
        let (over, is_over) = mpsc::channel();
        let tell = move || tell(&watch, bytes, &is_over);
        // Without a thread it is only not told.
        let teller = std::thread::Builder::new().name("progress".to_owned()).spawn(tell).ok()?;
        Some(Progress { over: Some(over), teller: Some(teller) })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.over.take());
        // What is printed next is not to be cleared.
        let _ = self.teller.take().map(JoinHandle::join);
    }
}

fn tell(watch: &Watch, bytes: u64, is_over: &mpsc::Receiver<()>) {
    let begun = Instant::now();
    let Some((_, before)) = watch.look() else { return };
    let (mut wait, mut has_told) = (PATIENCE, false);
    while is_over.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let Some((is_connected, counts)) = watch.look() else { break };
        let line = line(counts.sent_bytes - before.sent_bytes, bytes, begun.elapsed(), is_connected);
        // Nothing can be done about a terminal that is gone.
        let _ = write!(std::io::stderr(), "{CLEAR}{line}");
        (wait, has_told) = (TELL_EVERY, true);
    }
    if has_told {
        let _ = write!(std::io::stderr(), "{CLEAR}");
    }
}

fn line(sent: u64, bytes: u64, passed: Duration, is_connected: bool) -> String {
    let mebibytes = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
    let rate = sent as f64 / passed.as_secs_f64().max(0.001);
    let next = if !is_connected {
        "the server cannot be reached".to_owned()
    } else if sent >= bytes {
        // Messages are larger than contents. What others have got in the way of is sent again.
        "the server is to answer".to_owned()
    } else if sent == 0 {
        "begins".to_owned()
    } else {
        format!("{} a second, {:.0} s left", mebibytes(rate), (bytes - sent) as f64 / rate)
    };
    format!("{} of {} sent; {next}", mebibytes(sent.min(bytes) as f64), mebibytes(bytes as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let check = |sent_mib: u64, is_connected, says: &str| {
            assert_eq!(line(sent_mib << 20, 40 << 20, Duration::from_secs(5), is_connected), says);
        };
        check(0, true, "0.0 MiB of 40.0 MiB sent; begins");
        check(10, true, "10.0 MiB of 40.0 MiB sent; 2.0 MiB a second, 15 s left");
        check(10, false, "10.0 MiB of 40.0 MiB sent; the server cannot be reached");
        check(41, true, "40.0 MiB of 40.0 MiB sent; the server is to answer");
    }
}
