//! COMMAND's own terminal, joined to the user's: what is typed goes to it, and what it shows is seen at once, by the
//! one who decides.
//!
//! The terminal is of the layer's own `devpts`, so COMMAND finds its name there and nobody else's terminal. It is
//! COMMAND's controlling terminal: ^C, window sizes and modes are between COMMAND and its terminal, and ours only
//! carries bytes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Termios};

/// A new terminal: the side that plays the user, and COMMAND's. Call it inside the view.
pub fn make() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let user_side = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&user_side)?;
    let command_side = rustix::pty::ioctl_tiocgptpeer(&user_side, flags)?;
    Ok((user_side, command_side))
}

/// The terminal of whoever started us.
#[derive(Debug)]
pub struct UsersTerminal {
    tty: File,
    modes: Termios,
}

impl UsersTerminal {
    /// Fails if there is none.
    pub fn open() -> io::Result<UsersTerminal> {
        let tty = File::options().read(true).write(true).open("/dev/tty")?;
        let modes = rustix::termios::tcgetattr(&tty)?;
        Ok(UsersTerminal { tty, modes })
    }

    /// Every byte as it is typed and as it is written: COMMAND's terminal makes of it what COMMAND wants.
    fn make_raw(&self) {
        let mut raw = self.modes.clone();
        raw.make_raw();
        let _ = rustix::termios::tcsetattr(&self.tty, OptionalActions::Drain, &raw);
    }

    /// As it was.
    pub fn restore(&self) {
        let _ = rustix::termios::tcsetattr(&self.tty, OptionalActions::Drain, &self.modes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Pause,
    GoOn,
    End,
}

/// Two terminals that are joined, until it is dropped. Copies speak of the same ones.
#[derive(Clone, Debug)]
pub struct Joint(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    users: Arc<UsersTerminal>,
    command: Arc<OwnedFd>,
    orders: Sender<Order>,
    wake: OwnedFd,
    /// The user's terminal is as it was, and stays so.
    over: Mutex<bool>,
}

/// The user's terminal is for somebody else to use, until this is dropped.
#[derive(Debug)]
pub struct Pause<'a>(&'a Joint);

/// What carries the bytes.
#[derive(Debug)]
pub struct Carrier {
    joint: Joint,
    thread: JoinHandle<()>,
}

impl Carrier {
    /// `command`: the user's side of COMMAND's terminal.
    pub fn start(users: UsersTerminal, command: OwnedFd) -> io::Result<Carrier> {
        let flags = rustix::fs::fcntl_getfl(&command)?;
        rustix::fs::fcntl_setfl(&command, flags | OFlags::NONBLOCK)?;
        let (users, command) = (Arc::new(users), Arc::new(command));
        let (orders, received) = channel();
        let (woken, wake) = io::pipe()?;
        let ends = Ends {
            users: Arc::clone(&users),
            command: Arc::clone(&command),
            orders,
            wake: wake.into(),
            over: Mutex::default(),
        };
        let joint = Joint(Arc::new(ends));
        joint.resize();
        users.make_raw();
        let mut carried = Carried {
            users,
            command,
            orders: received,
            woken: woken.into(),
            typed: Vec::new(),
            paused: false,
            left: false,
        };
        let thread = std::thread::Builder::new().spawn(move || carried.run());
        let thread = thread.inspect_err(|_| joint.0.users.restore())?;
        Ok(Carrier { joint, thread })
    }

    /// A handle on it.
    pub fn joint(&self) -> Joint {
        self.joint.clone()
    }

    /// Everybody inside is gone: what they showed last is shown, and the user's terminal is as it was.
    pub fn finish(self) {
        self.joint.order(Order::End);
        let _ = self.thread.join();
        *self.joint.is_over() = true;
        self.joint.0.users.restore();
    }
}

impl Joint {
    fn is_over(&self) -> MutexGuard<'_, bool> {
        self.0.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: Order) {
        let _ = self.0.orders.send(order);
        let _ = rustix::io::write(&self.0.wake, &[0]);
    }

    /// The user's terminal is as it was, and nothing is carried.
    pub fn pause(&self) -> Pause<'_> {
        self.order(Order::Pause);
        self.0.users.restore();
        Pause(self)
    }

    /// COMMAND's terminal gets the size of the user's.
    pub fn resize(&self) {
        if let Ok(size) = rustix::termios::tcgetwinsize(&self.0.users.tty) {
            let _ = rustix::termios::tcsetwinsize(&*self.0.command, size);
        }
    }

    /// Before this process ends in a hurry.
    pub fn restore(&self) {
        // Nothing is waited for.
        if let Ok(mut over) = self.0.over.try_lock() {
            *over = true;
        }
        self.0.users.restore();
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        // Whoever asked may be late: then somebody else reads lines there.
        let over = self.0.is_over();
        if !*over {
            self.0 .0.users.make_raw();
            self.0.order(Order::GoOn);
        }
    }
}

/// What the carrying thread has.
struct Carried {
    users: Arc<UsersTerminal>,
    command: Arc<OwnedFd>,
    orders: Receiver<Order>,
    woken: OwnedFd,
    /// Typed, and not yet taken by COMMAND's terminal.
    typed: Vec<u8>,
    paused: bool,
    /// The user's terminal was hung up.
    left: bool,
}

const READ_MAX: usize = 4096;

impl Carried {
    fn run(&mut self) {
        loop {
            let (typed, shown, woken) = self.await_something();
            if woken && self.obey() {
                while self.show() {}
                return;
            }
            if typed && !self.paused {
                self.take_typed();
            }
            self.pass_on();
            if shown && !self.paused && !self.show() && self.is_over() {
                self.paused = true;
            }
        }
    }

    /// Which of them has something: the user's terminal, COMMAND's, the orders.
    fn await_something(&self) -> (bool, bool, bool) {
        let none = PollFlags::empty();
        // What does not fit waits, and who types waits with it.
        let input = if self.paused || !self.typed.is_empty() { none } else { PollFlags::IN };
        let output = match (self.paused, self.typed.is_empty()) {
            (true, _) => none,
            (false, true) => PollFlags::IN,
            (false, false) => PollFlags::IN | PollFlags::OUT,
        };
        let mut polls = vec![PollFd::new(&self.woken, PollFlags::IN)];
        if !self.paused {
            polls.push(PollFd::new(&*self.command, output));
            // It would be told again and again.
            if !self.left {
                polls.push(PollFd::new(&self.users.tty, input));
            }
        }
        if poll(&mut polls, None).is_err() {
            return (false, false, false);
        }
        let ready = |index: usize| polls.get(index).is_some_and(|poll| !poll.revents().is_empty());
        (ready(2), ready(1), ready(0))
    }

    /// True if that was the end.
    fn obey(&mut self) -> bool {
        let _ = rustix::io::read(&self.woken, &mut [0; 16]);
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Pause => self.paused = true,
                Order::GoOn => self.paused = false,
                Order::End => return true,
            }
        }
        false
    }

    fn take_typed(&mut self) {
        let mut buffer = [0; READ_MAX];
        match rustix::io::read(&self.users.tty, &mut buffer) {
            Ok(len @ 1..) => self.typed.extend_from_slice(&buffer[..len]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => self.left = is_hung_up(&self.users.tty),
        }
    }

    fn pass_on(&mut self) {
        if self.typed.is_empty() {
            return;
        }
        match rustix::io::write(&*self.command, &self.typed) {
            Ok(len) => drop(self.typed.drain(..len)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.typed.clear(),
        }
    }

    /// Whether something was shown.
    fn show(&mut self) -> bool {
        let mut buffer = [0; READ_MAX];
        match rustix::io::read(&*self.command, &mut buffer) {
            Ok(len) if len > 0 => {
                let _ = io::Write::write_all(&mut &self.users.tty, &buffer[..len]);
                true
            }
            _ => false,
        }
    }

    /// Nobody holds COMMAND's terminal any more: only the order to end is awaited.
    fn is_over(&self) -> bool {
        is_hung_up(&*self.command)
    }
}

fn is_hung_up(terminal: impl AsFd) -> bool {
    let mut polls = [PollFd::new(&terminal, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polls, Some(&now)).is_ok() && polls[0].revents().contains(PollFlags::HUP)
}
