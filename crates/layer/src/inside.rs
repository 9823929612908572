//! The first process of the try's namespaces: it makes them ready, starts COMMAND, and reaps. When it ends, the kernel
//! kills everything inside.
//!
//! It speaks with the process outside over two pipes: messages of eight bytes one way, orders of one byte the other.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit};

use crate::attempt::Network;
use crate::gate;
use crate::sys;
use crate::terminal;
use crate::view::View;

/// What the first process tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The user's side of COMMAND's terminal is the descriptor of this number.
    Terminal(i32),
    /// The filter's questions arrive at its descriptor of this number.
    Listener(i32),
    /// A step of setting up (see [`STAGES`]) failed.
    Failed(usize, i32),
    /// COMMAND runs, and has this number inside.
    Started(i32),
    /// COMMAND could not be executed: errno.
    NotExecuted(i32),
    /// COMMAND ended.
    Ended(u8),
    /// The command that decides ended.
    Decided(u8),
    /// Nobody else is inside any more.
    Alone,
}

/// What can go wrong before COMMAND starts.
pub const STAGES: [&str; 7] = [
    "the loopback interface",
    "the view of the file systems",
    "standard streams",
    "the system-call filter",
    "a process",
    "a terminal",
    "the working directory",
];

/// Orders.
pub const GO: u8 = b'g';
/// Run the command that decides.
pub const DECIDE: u8 = b'd';

impl Message {
    fn to_bytes(self) -> [u8; 8] {
        let (tag, value) = match self {
            Message::Listener(fd) => (0, fd),
            Message::Failed(stage, errno) => (1 + (stage as u32) * 16, errno),
            Message::Started(pid) => (2, pid),
            Message::NotExecuted(errno) => (3, errno),
            Message::Ended(status) => (4, status.into()),
            Message::Decided(status) => (5, status.into()),
            Message::Alone => (6, 0),
            Message::Terminal(fd) => (7, fd),
        };
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    /// The next message; `None` when the first process is gone.
    pub fn read(from: &mut impl Read) -> Option<Message> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes).ok()?;
        let [a, b, c, d, e, f, g, h] = bytes;
        let (tag, value) = (u32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
        Some(match tag % 16 {
            0 => Message::Listener(value),
            1 => Message::Failed((tag / 16) as usize, value),
            2 => Message::Started(value),
            3 => Message::NotExecuted(value),
            4 => Message::Ended(value as u8),
            5 => Message::Decided(value as u8),
            6 => Message::Alone,
            7 => Message::Terminal(value),
            _ => return None,
        })
    }
}

/// Everything that the first process needs.
pub struct Inside<'a> {
    pub view: &'a View,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    pub network: Network,
    /// Standard input, output and error; and where the deciding command's words go.
    pub streams: [OwnedFd; 4],
    pub orders: OwnedFd,
    pub messages: OwnedFd,
    /// Wait for everybody, not only for COMMAND.
    pub wait: bool,
    pub decide: Option<OsString>,
    /// COMMAND's streams are a terminal of its own instead.
    pub terminal: bool,
    /// COMMAND finds these as we have found them: which of SIGPIPE and SIGXFSZ are ignored, which standard descriptors
    /// are closed, how long files may be, and which signals are blocked.
    pub ignored: Vec<i32>,
    pub closed: Vec<i32>,
    pub file_size: Rlimit,
    pub mask: libc::sigset_t,
}

const ORDERS: i32 = 3;
const MESSAGES: i32 = 4;
const WORDS: i32 = 5;

fn failed(stage: usize, error: &io::Error) -> [u8; 8] {
    Message::Failed(stage, error.raw_os_error().unwrap_or(libc::EIO)).to_bytes()
}

impl Inside<'_> {
    /// Never returns; the process has one thread.
    pub fn run(self) -> ! {
        sys::die_with_parent();
        let _ = rustix::process::setsid();
        let (mut orders, mut messages) = match self.prepare() {
            Ok(pipes) => pipes,
            Err((stage, error)) => {
                let _ = rustix::io::write(&self.messages, &failed(stage, &error));
                sys::exit_now(1)
            }
        };
        self.serve(&mut orders, &mut messages);
        sys::exit_now(0)
    }

    fn prepare(&self) -> Result<(File, File), (usize, io::Error)> {
        if self.network == Network::No {
            sys::loopback_up().map_err(|error| (0, error))?;
        }
        self.view.enter().map_err(|error| (1, error))?;
        self.take_streams().map_err(|error| (2, error))?;
        let mut messages = File::from(sys::adopt(MESSAGES));
        match self.make_ready(&mut messages) {
            Ok(orders) => Ok((orders, messages)),
            Err((stage, error)) => {
                let _ = messages.write_all(&failed(stage, &error));
                sys::exit_now(1)
            }
        }
    }

    /// Everything behind the streams: where orders come from.
    fn make_ready(&self, messages: &mut File) -> Result<File, (usize, io::Error)> {
        // COMMAND begins there.
        rustix::process::chdir(&self.cwd).map_err(|error| (6, error.into()))?;
        let user_side = self.take_terminal(messages).map_err(|error| (5, error))?;
        let listener = sys::install_filter(&gate::filter()).map_err(|error| (3, error))?;
        let number = listener.as_raw_fd();
        messages.write_all(&Message::Listener(number).to_bytes()).map_err(|error| (3, error))?;
        // The other side takes a copy of them.
        let mut orders = File::from(sys::adopt(ORDERS));
        let mut go = [0];
        orders.read_exact(&mut go).map_err(|error| (3, error))?;
        if go != [GO] {
            sys::exit_now(1);
        }
        drop((listener, user_side));
        Ok(orders)
    }

    /// The streams get their numbers, and everything else is closed.
    fn take_streams(&self) -> io::Result<()> {
        let [input, output, error, words] = &self.streams;
        let wanted = [input, output, error, &self.orders, &self.messages, words];
        let mut copies = Vec::new();
        for fd in wanted {
            copies.push(rustix::io::fcntl_dupfd_cloexec(fd, 10)?);
        }
        for (number, copy) in copies.iter().enumerate() {
            sys::replace(copy.as_fd(), number as i32)?;
        }
        drop(copies);
        sys::close_from(WORDS + 1);
        Ok(())
    }

    /// The streams become COMMAND's terminal, if it is to have one; the user's side of it.
    fn take_terminal(&self, messages: &mut File) -> io::Result<Option<OwnedFd>> {
        if !self.terminal {
            return Ok(None);
        }
        let (user_side, command_side) = terminal::make()?;
        for stream in 0..3 {
            sys::replace(command_side.as_fd(), stream)?;
        }
        messages.write_all(&Message::Terminal(user_side.as_raw_fd()).to_bytes())?;
        Ok(Some(user_side))
    }

    fn serve(&self, orders: &mut File, messages: &mut File) {
        let mut tell = |message: Message| {
            if messages.write_all(&message.to_bytes()).is_err() {
                sys::exit_now(1);
            }
        };
        let command = match self.start_command() {
            Ok(Ok(pid)) => pid,
            Ok(Err(errno)) => return tell(Message::NotExecuted(errno)),
            Err(error) => return tell(Message::Failed(4, error.raw_os_error().unwrap_or(libc::EIO))),
        };
        tell(Message::Started(command));
        let status = reap_until(command);
        tell(Message::Ended(status));
        if self.wait {
            reap_all();
            tell(Message::Alone);
        }
        let mut order = [0];
        while orders.read_exact(&mut order).is_ok() {
            if order == [DECIDE] {
                tell(Message::Decided(self.decide(status).unwrap_or(125)));
            }
        }
    }

    /// COMMAND's number; or the errno with which it could not be executed.
    fn start_command(&self) -> io::Result<Result<i32, i32>> {
        let (mut reader, writer) = io::pipe()?;
        let Some(pid) = sys::fork_into(0)? else {
            let errno = self.become_command();
            let _ = (&writer).write_all(&errno.to_ne_bytes());
            sys::exit_now(127);
        };
        drop(writer);
        let mut errno = Vec::new();
        reader.read_to_end(&mut errno)?;
        match <[u8; 4]>::try_from(errno.as_slice()) {
            Ok(errno) => {
                let _ = sys::wait_for(pid);
                Ok(Err(i32::from_ne_bytes(errno)))
            }
            Err(_) => Ok(Ok(pid)),
        }
    }

    /// Returns only with an errno.
    fn become_command(&self) -> i32 {
        self.leave_first_process();
        if let Err(error) = self.lead() {
            return error.raw_os_error();
        }
        let string = |text: &std::ffi::OsStr| CString::new(text.as_bytes());
        let args: Result<Vec<CString>, _> = self.args.iter().map(|arg| string(arg)).collect();
        let (Ok(program), Ok(args)) = (string(self.program.as_os_str()), args) else { return libc::EINVAL };
        // Before CAP_SYS_RESOURCE could go.
        let _ = rustix::process::setrlimit(Resource::Fsize, self.file_size);
        if let Err(error) = sys::give_up_capabilities(&gate::capabilities(self.network)) {
            return error.raw_os_error().unwrap_or(libc::EPERM);
        }
        sys::reset_signals(&self.ignored, &self.mask);
        self.closed.iter().for_each(|&fd| drop(sys::adopt(fd)));
        sys::exec(&program, &args).raw_os_error().unwrap_or(libc::EIO)
    }

    /// A process group of COMMAND's own; with a terminal, a session of its own.
    fn lead(&self) -> rustix::io::Result<()> {
        if !self.terminal {
            return rustix::process::setpgid(None, None);
        }
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
    }

    fn leave_first_process(&self) {
        for number in [ORDERS, MESSAGES, WORDS] {
            drop(sys::adopt(number));
        }
    }

    /// Runs the command that decides, with a shell: its status.
    fn decide(&self, status: u8) -> io::Result<u8> {
        let Some(text) = &self.decide else { return Ok(125) };
        let Some(pid) = sys::fork_into(0)? else {
            let null = File::open("/dev/null");
            let words = sys::adopt(WORDS);
            let ready = null.and_then(|null| sys::replace(null.as_fd(), 0));
            let ready =
                ready.and_then(|()| sys::replace(words.as_fd(), 1)).and_then(|()| sys::replace(words.as_fd(), 2));
            drop((words, sys::adopt(ORDERS), sys::adopt(MESSAGES)));
            let ready = ready.and_then(|()| Ok(rustix::process::chdir(&self.cwd)?));
            let _ = rustix::process::setrlimit(Resource::Fsize, self.file_size);
            if ready.and_then(|()| sys::give_up_capabilities(&gate::capabilities(self.network))).is_ok() {
                sys::reset_signals(&self.ignored, &self.mask);
                std::env::set_var("SPECULATOR_STATUS", status.to_string());
                let text = CString::new(text.as_bytes()).unwrap_or_default();
                sys::exec(&c"/bin/sh".to_owned(), &[c"sh".to_owned(), c"-c".to_owned(), text]);
            }
            sys::exit_now(125);
        };
        Ok(reap_until(pid))
    }
}

/// Until this child ends; whoever else ends meanwhile is reaped as well.
fn reap_until(child: i32) -> u8 {
    loop {
        match sys::wait_for(-1) {
            Ok((pid, status)) if pid == child => {
                return match libc::WIFSIGNALED(status) {
                    true => 128u8.wrapping_add(libc::WTERMSIG(status) as u8),
                    false => libc::WEXITSTATUS(status) as u8,
                };
            }
            Ok(_) => {}
            Err(_) => return 125,
        }
    }
}

fn reap_all() {
    while sys::wait_for(-1).is_ok() {}
}
