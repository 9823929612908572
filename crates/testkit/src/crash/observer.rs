//! The observer: it sees what leaves the workload, and when.
//!
//! Pipe, terminal and stream carry lines, a datagram is a message. A thread takes in what arrives; the disk asks for it
//! too before it stamps an event of its own ([`super::Clock::stamp`]), so that no output is stamped later than what
//! came after it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_setfl, OFlags};
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use serde::Serialize;

use super::clock::{Clock, Tap};
use super::error::CrashError;
use super::log::Message;

/// How a message left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Channel {
    /// Standard output, a pipe.
    Pipe,
    /// Standard output, a terminal.
    Terminal,
    /// A datagram over loopback, as in 002, 4.2.
    Udp,
    /// A stream over loopback.
    Tcp,
    /// The exit status, as whoever started the workload sees it; the text is the number.
    Exit,
}

/// Collects messages until [`Observer::finish`].
pub struct Observer {
    tap: Arc<ObserverTap>,
    thread: Option<JoinHandle<()>>,
}

struct ObserverTap {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sources: Vec<Source>,
    messages: Vec<Message>,
    stopped: bool,
}

struct Source {
    kind: Kind,
    channel: Channel,
    /// Shared with the thread, which polls it without holding the lock.
    fd: Arc<OwnedFd>,
    /// An unfinished line.
    rest: Vec<u8>,
    open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lines,
    Datagrams,
    Listener,
}

const POLL_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Observer {
    /// An observer that watches nothing yet.
    pub fn new(clock: &Clock) -> Observer {
        let tap = Arc::new(ObserverTap { clock: clock.clone(), state: Mutex::default() });
        let weak: Weak<ObserverTap> = Arc::downgrade(&tap);
        clock.add_tap(weak);
        let thread = std::thread::spawn({
            let tap = tap.clone();
            move || tap.watch()
        });
        Observer { tap, thread: Some(thread) }
    }

    /// A pipe to be somebody's standard output.
    pub fn pipe(&self) -> Result<OwnedFd, CrashError> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(CrashError::system("make a pipe"))?;
        self.add(Kind::Lines, Channel::Pipe, read)?;
        Ok(write)
    }

    /// A terminal to be somebody's standard output.
    pub fn terminal(&self) -> Result<OwnedFd, CrashError> {
        let opened = || -> io::Result<(OwnedFd, OwnedFd)> {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let master = openpt(flags)?;
            grantpt(&master)?;
            unlockpt(&master)?;
            let name = ptsname(&master, Vec::new())?;
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
            Ok((master, slave))
        };
        let (master, slave) = opened().map_err(CrashError::system("make a terminal"))?;
        self.add(Kind::Lines, Channel::Terminal, master)?;
        Ok(slave)
    }

    /// An address to send datagrams to.
    pub fn udp(&self) -> Result<SocketAddr, CrashError> {
        let bound = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let socket = bound.map_err(CrashError::system("bind a UDP socket"))?;
        let address = socket.local_addr();
        let address = address.map_err(CrashError::system("name a UDP socket"))?;
        self.add(Kind::Datagrams, Channel::Udp, socket.into())?;
        Ok(address)
    }

    /// An address to connect to and write lines to.
    pub fn tcp(&self) -> Result<SocketAddr, CrashError> {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = bound.map_err(CrashError::system("listen on a TCP socket"))?;
        let address = listener.local_addr();
        let address = address.map_err(CrashError::system("name a TCP socket"))?;
        self.add(Kind::Listener, Channel::Tcp, listener.into())?;
        Ok(address)
    }

    fn add(&self, kind: Kind, channel: Channel, fd: OwnedFd) -> Result<(), CrashError> {
        fcntl_setfl(&fd, OFlags::RDWR | OFlags::NONBLOCK).map_err(CrashError::system("set O_NONBLOCK"))?;
        self.tap.lock().sources.push(Source::new(kind, channel, fd));
        Ok(())
    }

    /// Stamps the exit status of the workload, after all its output.
    pub fn exited(&self, status: &str) {
        self.tap.drain();
        let message =
            Message { clock: self.tap.clock.stamp_message(), channel: Channel::Exit, text: status.to_owned() };
        self.tap.lock().messages.push(message);
    }

    /// How many messages there are by now.
    pub fn seen(&self) -> usize {
        self.tap.drain();
        self.tap.lock().messages.len()
    }

    /// Waits until nobody can write to the pipe or terminal any more, at most for `patience`.
    pub fn wait_for_end(&self, patience: Duration) {
        let end = Instant::now() + patience;
        while self.tap.lock().has_open_lines() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What was seen, in the order of the clock.
    pub fn finish(mut self) -> Vec<Message> {
        self.tap.drain();
        self.stop();
        let mut messages = std::mem::take(&mut self.tap.lock().messages);
        messages.sort_by_key(|message| message.clock);
        messages
    }

    fn stop(&mut self) {
        self.tap.lock().stopped = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ObserverTap {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        loop {
            let fds: Vec<Arc<OwnedFd>> = {
                let state = self.lock();
                if state.stopped {
                    return;
                }
                let open = state.sources.iter().filter(|source| source.open);
                open.map(|source| source.fd.clone()).collect()
            };
            let mut polled: Vec<PollFd> =
                fds.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
            let _ = poll(&mut polled, Some(&POLL_PERIOD));
            self.drain();
        }
    }
}

impl Tap for ObserverTap {
    fn drain(&self) {
        let mut state = self.lock();
        let State { sources, messages, .. } = &mut *state;
        let mut accepted = Vec::new();
        for source in sources.iter_mut().filter(|source| source.open) {
            match source.kind {
                Kind::Listener => source.accept(&mut accepted),
                _ => source.take_in(&self.clock, messages),
            }
        }
        for mut source in accepted {
            source.take_in(&self.clock, messages);
            sources.push(source);
        }
    }
}

impl State {
    fn has_open_lines(&self) -> bool {
        let lines = |source: &Source| source.open && source.kind == Kind::Lines;
        self.sources.iter().any(lines)
    }
}

impl Source {
    fn new(kind: Kind, channel: Channel, fd: OwnedFd) -> Source {
        Source { kind, channel, fd: Arc::new(fd), rest: Vec::new(), open: true }
    }

    fn accept(&mut self, accepted: &mut Vec<Source>) {
        use rustix::net::{accept_with, SocketFlags};
        while let Ok(fd) = accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            accepted.push(Source::new(Kind::Lines, Channel::Tcp, fd));
        }
    }

    fn take_in(&mut self, clock: &Clock, messages: &mut Vec<Message>) {
        let mut buffer = [0; 65536];
        loop {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) if self.kind == Kind::Lines => self.open = false,
                Ok(len) => {
                    self.rest.extend_from_slice(&buffer[..len]);
                    if self.kind == Kind::Datagrams && self.rest.last() != Some(&b'\n') {
                        self.rest.push(b'\n');
                    }
                    self.split(clock, messages);
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                // EIO: the last user of the terminal is gone.
                Err(_) => self.open = false,
            }
            return;
        }
    }

    fn split(&mut self, clock: &Clock, messages: &mut Vec<Message>) {
        while let Some(len) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=len).collect();
            messages.push(Message {
                clock: clock.stamp_message(),
                channel: self.channel,
                text: String::from_utf8_lossy(&line).trim_end().to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn output_is_stamped_before_what_follows_it() {
        let clock = Clock::new();
        let observer = Observer::new(&clock);
        let mut pipe = std::fs::File::from(observer.pipe().unwrap());
        let mut events = Vec::new();
        for number in 0..200 {
            writeln!(pipe, "{number}").unwrap();
            events.push(clock.stamp());
        }
        drop(pipe);
        observer.wait_for_end(Duration::from_secs(60));
        observer.exited("0");
        let messages = observer.finish();
        assert_eq!(messages.len(), 201);
        for (number, event) in events.into_iter().enumerate() {
            assert_eq!(messages[number].text, number.to_string());
            assert!(messages[number].clock < event);
        }
        assert_eq!(messages[200].channel, Channel::Exit);
    }

    #[test]
    fn terminal_and_sockets() {
        let clock = Clock::new();
        let observer = Observer::new(&clock);
        let mut terminal = std::fs::File::from(observer.terminal().unwrap());
        writeln!(terminal, "t").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.send_to(b"u", observer.udp().unwrap()).unwrap();
        let mut tcp = std::net::TcpStream::connect(observer.tcp().unwrap()).unwrap();
        tcp.write_all(b"v\nw\n").unwrap();
        drop((terminal, tcp));
        let end = Instant::now() + Duration::from_secs(60);
        while observer.seen() < 4 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut seen: Vec<String> = observer.finish().into_iter().map(|m| m.text).collect();
        seen.sort();
        assert_eq!(seen, ["t", "u", "v", "w"]);
    }
}
