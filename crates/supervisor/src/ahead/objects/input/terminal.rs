//! Terminals as sources of input: which one it is, who may read there, and how what was typed is put back into it.

use crate::ahead::objects::input::pushback::Chunk;
use procfs::{ProcessId, Stat, Status};
use rustix::termios::{
    tcgetattr, tcsetattr, InputModes, LocalModes, OptionalActions, SpecialCodeIndex, SpecialCodes, Termios,
};
use std::io;
use std::os::fd::OwnedFd;

/// In place of a device that an inode stands on.
pub(crate) const DEVICE: u64 = u64::MAX;

/// Which terminal this is. `None` for other devices, for the end of a pseudo-terminal that is no terminal to its user,
/// and for `/dev/tty`, which is another one for whoever opens it again.
pub(crate) fn number(device: &OwnedFd) -> Option<u64> {
    const TTY: u64 = 0x500;
    const PTMX: u64 = 0x502;
    let stat = rustix::fs::fstat(device).ok()?;
    let is_terminal = !matches!(stat.st_rdev, TTY | PTMX) && tcgetattr(device).is_ok();
    is_terminal.then_some(stat.st_rdev)
}

/// Whether what is read there comes in lines, and an end of file can be typed.
pub(crate) fn has_lines(terminal: &OwnedFd) -> bool {
    tcgetattr(terminal).is_ok_and(|termios| termios.local_modes.contains(LocalModes::ICANON))
}

/// Whether this terminal would stop a process that reads now: it is the process's own, and has another group in the
/// foreground.
pub(crate) fn is_in_background(pid: ProcessId, number: u64) -> bool {
    let is_in_background = |stat: Stat| {
        let (terminal, group, foreground) = (stat.terminal()?, stat.group()?, stat.foreground()?);
        Ok(terminal == Some(number) && group != foreground)
    };
    Stat::of(pid).and_then(is_in_background).unwrap_or(false)
}

/// Whether we may put something into a terminal that is not ours (`TIOCSTI` needs `CAP_SYS_ADMIN`).
pub(crate) fn can_be_returned_to() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let effective = Status::of(ProcessId::own()).and_then(|status| status.bits("CapEff"));
    effective.is_ok_and(|set| set & SYS_ADMIN != 0)
}

/// Put what was read back in front of what has been typed since. Its echo was seen when it was typed, and is not seen
/// again.
pub(crate) fn put_back<'a>(terminal: &OwnedFd, chunks: impl Iterator<Item = &'a Chunk>) -> io::Result<()> {
    let before = tcgetattr(terminal)?;
    let done = put_back_quietly(terminal, &before, chunks);
    tcsetattr(terminal, OptionalActions::Now, &before)?;
    done
}

fn put_back_quietly<'a>(
    terminal: &OwnedFd,
    before: &Termios,
    chunks: impl Iterator<Item = &'a Chunk>,
) -> io::Result<()> {
    let is_in_lines = before.local_modes.contains(LocalModes::ICANON);
    tcsetattr(terminal, OptionalActions::Now, &unprocessed(before, false))?;
    let typed_since = take_all(terminal)?;
    tcsetattr(terminal, OptionalActions::Now, &unprocessed(before, is_in_lines))?;
    let mut bytes = Vec::new();
    for chunk in chunks {
        bytes.extend(&chunk.bytes);
        if is_in_lines && chunk.ends && chunk.bytes.last() != Some(&b'\n') {
            bytes.push(before.special_codes[SpecialCodeIndex::VEOF]);
        }
    }
    bytes.extend(typed_since);
    bytes.iter().try_for_each(|&byte| crate::sys::type_into(terminal, byte))
}

/// As `before`, but each byte is taken as it is, and nothing waits. In lines: they end, and files do.
fn unprocessed(before: &Termios, is_in_lines: bool) -> Termios {
    let mut termios = before.clone();
    termios.input_modes = InputModes::empty();
    termios.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ISIG | LocalModes::IEXTEN;
    termios.local_modes.set(LocalModes::ICANON, is_in_lines);
    if is_in_lines {
        let end = before.special_codes[SpecialCodeIndex::VEOF];
        // Zero: no byte means that.
        termios.special_codes = without_codes(&before.special_codes);
        termios.special_codes[SpecialCodeIndex::VEOF] = end;
    } else {
        termios.special_codes[SpecialCodeIndex::VMIN] = 0;
        termios.special_codes[SpecialCodeIndex::VTIME] = 0;
    }
    termios
}

fn without_codes(codes: &SpecialCodes) -> SpecialCodes {
    let mut none = codes.clone();
    for index in [
        SpecialCodeIndex::VERASE,
        SpecialCodeIndex::VKILL,
        SpecialCodeIndex::VEOL,
        SpecialCodeIndex::VEOL2,
        SpecialCodeIndex::VWERASE,
        SpecialCodeIndex::VREPRINT,
        SpecialCodeIndex::VLNEXT,
    ] {
        none[index] = 0;
    }
    none
}

fn take_all(terminal: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match rustix::io::read(terminal, &mut part)? {
            0 => return Ok(bytes),
            len => bytes.extend(&part[..len]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{grantpt, ioctl_tiocgptpeer, openpt, unlockpt, OpenptFlags};

    /// A terminal and the end that a user sits at.
    fn terminal() -> (OwnedFd, OwnedFd) {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let terminal = ioctl_tiocgptpeer(&user, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        (user, terminal)
    }

    fn read(fd: &OwnedFd) -> Vec<u8> {
        let mut bytes = [0; 100];
        let len = rustix::io::read(fd, &mut bytes).unwrap();
        bytes[..len].to_vec()
    }

    fn chunk(text: &str, ends: bool) -> Chunk {
        Chunk { bytes: text.as_bytes().to_vec(), ends, error: None }
    }

    #[test]
    fn what_is_put_back_comes_first_and_is_not_seen_again() {
        if !can_be_returned_to() {
            return;
        }
        let (user, terminal) = terminal();
        rustix::io::write(&user, b"later\npart").unwrap();
        let echo = read(&user);
        assert_eq!(echo, b"later\r\npart");
        put_back(&terminal, [chunk("on", false), chunk("e\x03\x7f\n", true), chunk("no line", true)].iter()).unwrap();
        rustix::io::write(&user, b"ial\n").unwrap();
        for line in [&b"one\x03\x7f\n"[..], b"no line", b"later\n", b"partial\n"] {
            assert_eq!(read(&terminal), line);
        }
        assert_eq!(read(&user), b"ial\r\n", "only what is typed now is seen");
    }

    #[test]
    fn without_lines_bytes_are_put_back_as_they_were() {
        if !can_be_returned_to() {
            return;
        }
        let (user, terminal) = terminal();
        let mut raw = tcgetattr(&terminal).unwrap();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw).unwrap();
        rustix::io::write(&user, b"cd").unwrap();
        put_back(&terminal, [chunk("a\x04", true), chunk("b\r", false)].iter()).unwrap();
        assert_eq!(read(&terminal), b"a\x04b\rcd");
    }

    #[test]
    fn other_devices_are_no_terminals() {
        let (user, terminal) = terminal();
        assert!(number(&terminal).is_some());
        assert!(number(&user).is_none());
        assert!(number(&std::fs::File::open("/dev/null").unwrap().into()).is_none());
        assert!(has_lines(&terminal));
    }
}
