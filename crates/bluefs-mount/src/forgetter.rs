//! A process that tells the kernel to ask about names again, and to forget pages in which programs may have stored
//! something.
//!
//! `FUSE_NOTIFY_INVAL_ENTRY` waits for the directory's lock, uninterruptibly, and an operation that has it may wait for
//! the mount. `FUSE_NOTIFY_INVAL_INODE` waits until what was stored in a page is written back, by the mount. So no
//! thread of the mount may do either: if the mount is killed, that thread would keep the connection to the kernel open,
//! nobody would answer what it waits for, and both would wait for ever. This process has a file of the connection of
//! its own. When the mount is gone, so are the requests that it had read; those that it had not read this process
//! refuses, until none of its threads waits any more.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bluefs::{Ino, Name};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::sys;

/// The hidden command of `speculator` that runs [`serve`].
pub const COMMAND: &str = "forget-names";

/// `FUSE_NOTIFY_INVAL_ENTRY`, with its flag to keep the name in the tree and to ask about it again.
const INVAL_ENTRY: i32 = 3;
const EXPIRE_ONLY: u32 = 1;
/// Bytes of the head of a notification, and of its body without the name.
const HEAD_BYTES: u32 = 16;
const BODY_BYTES: u32 = 16;
/// Names of one message.
const NAMES_MAX: usize = 1 << 16;
/// Room for any request: what the mount lets the kernel write, and a head.
const REQUEST_BYTES_MAX: usize = (1 << 20) + (1 << 16);
/// How long the end of a mount waits for this process.
const END_MAX: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often a process whose mount is gone looks for requests.
const REFUSE_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// ENOTCONN.
const GONE: i32 = -107;

/// The mount's end.
#[derive(Debug)]
pub struct Forgetter {
    to: Mutex<(UnixStream, u64)>,
    done: Arc<Done>,
    child: Mutex<Child>,
}

/// Messages that are carried out.
#[derive(Debug, Default)]
struct Done {
    numbers: Mutex<BTreeSet<u64>>,
    is_gone: AtomicBool,
    changed: Condvar,
}

impl Done {
    fn numbers(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forgetter {
    /// Starts the process.
    ///
    /// # Errors
    /// It cannot be started, or the kernel gives no second file of the connection.
    pub fn start(device: impl AsFd) -> io::Result<Forgetter> {
        let second = sys::second_of(device)?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(COMMAND).current_dir("/").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(second));
        // What is typed at a terminal ends the mount, and that ends this process.
        let child = command.stderr(Stdio::null()).process_group(0).spawn()?;
        let (done, from) = (Arc::<Done>::default(), ours.try_clone()?);
        let heard = done.clone();
        std::thread::Builder::new().name("names".to_owned()).spawn(move || hear(from, &heard))?;
        Ok(Forgetter { to: Mutex::new((ours, 0)), done, child: Mutex::new(child) })
    }

    /// Whether the process has ended.
    pub fn is_gone(&self) -> bool {
        self.done.is_gone.load(Ordering::Relaxed)
    }

    /// Has the kernel ask about these again, from now on; `false`: not so soon, or not surely.
    pub fn expire(&self, names: &[(Ino, Name)], patience: Duration) -> bool {
        let begun = Instant::now();
        names.chunks(NAMES_MAX).all(|names| {
            let body: Vec<u8> = names.iter().flat_map(|(dir, name)| notification(*dir, name)).collect();
            self.tell(&body, || patience.saturating_sub(begun.elapsed()))
        })
    }

    /// Has the kernel take in these notifications; `false`: not in the time that is left, or not surely.
    pub fn tell(&self, body: &[u8], left: impl Fn() -> Duration) -> bool {
        let Ok(number) = self.send(body) else { return false };
        let mut done = self.done.numbers();
        loop {
            if done.remove(&number) {
                return true;
            }
            let rest = left();
            if rest.is_zero() || self.is_gone() {
                return false;
            }
            let waited = self.done.changed.wait_timeout(done, rest);
            done = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn send(&self, body: &[u8]) -> io::Result<u64> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, last) = &mut *to;
        *last += 1;
        let head = [last.to_ne_bytes(), (body.len() as u64).to_ne_bytes()].concat();
        stream.write_all(&[&head, body].concat())?;
        Ok(*last)
    }
}

impl Drop for Forgetter {
    fn drop(&mut self) {
        let to = self.to.get_mut().unwrap_or_else(PoisonError::into_inner);
        // That is how it ends.
        let _ = to.0.shutdown(std::net::Shutdown::Both);
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < END_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn hear(mut from: UnixStream, done: &Done) {
    let mut number = [0; 8];
    while from.read_exact(&mut number).is_ok() {
        let mut numbers = done.numbers();
        // What nobody waits for any more would stay: only the last ones can be waited for.
        if numbers.len() >= NAMES_MAX {
            numbers.pop_first();
        }
        numbers.insert(u64::from_ne_bytes(number));
        drop(numbers);
        done.changed.notify_all();
    }
    done.is_gone.store(true, Ordering::Relaxed);
    done.changed.notify_all();
}

/// A name with its NUL, behind what is told of it.
fn notification(dir: Ino, name: &Name) -> Vec<u8> {
    let bytes = name.as_bytes();
    let name_bytes = bytes.len() as u32;
    let len = HEAD_BYTES + BODY_BYTES + name_bytes + 1;
    [
        &len.to_ne_bytes()[..],
        &INVAL_ENTRY.to_ne_bytes(),
        &0u64.to_ne_bytes(),
        &dir.0.to_ne_bytes(),
        &name_bytes.to_ne_bytes(),
        &EXPIRE_ONLY.to_ne_bytes(),
        bytes,
        b"\0",
    ]
    .concat()
}

/// The process: notifications from its standard input, to the connection that is its standard output.
///
/// # Errors
/// It was not started by a mount.
pub fn serve() -> io::Result<()> {
    let from = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let device = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
    // Not that there is a mount: that it is a socket.
    from.peer_addr()?;
    let (to, working) = (Arc::new(Mutex::new(from.try_clone()?)), Arc::new(AtomicUsize::new(0)));
    while let Some((number, body)) = next(&from) {
        let (device, to, at_work) = (device.try_clone()?, to.clone(), working.clone());
        working.fetch_add(1, Ordering::SeqCst);
        let work = move || {
            if tell(&device, &body) {
                let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
                // The mount may be gone.
                let _ = to.write_all(&number.to_ne_bytes());
            }
            at_work.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().spawn(work).is_err() {
            // It is not said to be done.
            working.fetch_sub(1, Ordering::SeqCst);
        }
    }
    refuse_requests(device, &working);
    Ok(())
}

fn next(mut from: &UnixStream) -> Option<(u64, Vec<u8>)> {
    let mut head = [0; 16];
    from.read_exact(&mut head).ok()?;
    let [number, len] =
        [&head[..8], &head[8..]].map(|word| word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    let mut body = vec![0; usize::try_from(len).ok()?];
    from.read_exact(&mut body).ok()?;
    Some((number, body))
}

/// Writes one notification after the other; `false`: not all of them are known to be carried out.
fn tell(mut device: &File, mut body: &[u8]) -> bool {
    while let Some((len, _)) = body.split_first_chunk::<4>() {
        let len = u32::from_ne_bytes(*len) as usize;
        let Some((one, rest)) = body.split_at_checked(len) else { return false };
        match device.write(one) {
            Ok(_) => {}
            // The kernel does not have the name, or not the directory: then there is nothing to forget.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory => {}
            Err(_) => return false,
        }
        body = rest;
    }
    true
}

/// While threads wait, what they wait for may wait for a request that nobody answers.
fn refuse_requests(mut device: File, working: &AtomicUsize) {
    let mut request = vec![0; REQUEST_BYTES_MAX];
    while working.load(Ordering::SeqCst) > 0 {
        let mut ready = [PollFd::new(&device, PollFlags::IN)];
        let _ = poll(&mut ready, Some(&REFUSE_EVERY));
        while let Ok(len) = device.read(&mut request) {
            let Some(unique) = request.get(8..16).filter(|_| len >= 16) else { break };
            let answer = [&HEAD_BYTES.to_ne_bytes()[..], &GONE.to_ne_bytes(), unique].concat();
            // What wants no answer is told so.
            let _ = device.write(&answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    #[test]
    fn a_notification_has_its_length_its_directory_and_its_name() {
        let all = notification(Ino(7), &name("abc"));
        assert_eq!(all.len(), 36);
        assert_eq!((&all[..4], &all[16..24]), (&36u32.to_ne_bytes()[..], &7u64.to_ne_bytes()[..]));
        assert_eq!((&all[24..28], &all[32..]), (&3u32.to_ne_bytes()[..], &b"abc\0"[..]));
    }

    #[test]
    fn messages_are_told_one_notification_after_the_other() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (first, second) = (notification(Ino(7), &name("abc")), notification(Ino(8), &name("d")));
        let body = [first.clone(), second.clone()].concat();
        let head = [3u64.to_ne_bytes(), (body.len() as u64).to_ne_bytes()].concat();
        (&ours).write_all(&[head, body.clone()].concat()).expect("room");
        assert_eq!(next(&theirs), Some((3, body.clone())));
        drop(ours);
        assert_eq!(next(&theirs), None);
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        assert!(tell(&File::from(OwnedFd::from(ours)), &body));
        let mut told = Vec::new();
        theirs.read_to_end(&mut told).expect("a socket");
        assert_eq!(told, body);
        assert!(!tell(&File::open("/dev/null").expect("a file"), &first), "it cannot be written");
    }
}
