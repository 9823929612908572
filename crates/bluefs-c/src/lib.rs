//! `include/bluefs.h`: intervals of a program's own, for C. What is done stands here; [`sys`] turns C's pointers into
//! what this module takes.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod sys;

use std::cell::RefCell;
use std::ffi::{CStr, CString};

use bluefs::Csn;
use bluefs_client::{own_cred, Address, Client, Invitation, NotDone, OnDisconnect, Operation, Path, Transaction};

/// `bluefs_outcome`, as the header numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
enum Outcome {
    Done = 0,
    Conflict = 1,
    Failed = 2,
    Unknown = 3,
}

/// `bluefs_interval`.
enum Interval {
    Open(Transaction),
    /// With what `bluefs_error` says of it.
    Closed(Result<Csn, (Outcome, String)>),
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// What this thread is told by `bluefs_error`.
fn tell(text: &str) {
    let line: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    // INVARIANT: a NUL is a control character.
    LAST_ERROR.set(CString::new(line).unwrap_or_default());
}

fn with_last_error<T>(look: impl FnOnce(&CStr) -> T) -> T {
    LAST_ERROR.with_borrow(|text| look(text))
}

fn as_text<'t>(bytes: &'t [u8], what: &str) -> Result<&'t str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("the {what} is no text"))
}

fn connect(address: &[u8], invitation: Option<&[u8]>, on_disconnect: i32) -> Result<Client, String> {
    let address: Address = as_text(address, "address")?.parse().map_err(|error| format!("{error}"))?;
    let on_disconnect = match on_disconnect {
        0 => OnDisconnect::Block,
        1 => OnDisconnect::Error,
        other => return Err(format!("{other} is neither BLUEFS_BLOCK nor BLUEFS_ERROR")),
    };
    let connected = match invitation {
        Some(text) => {
            // The text is not told: it is a secret, or was to be one.
            let invitation = std::str::from_utf8(text).ok().and_then(|text| text.parse::<Invitation>().ok());
            let invitation = invitation.ok_or("the invitation is not a line of speculator invite")?;
            Client::connect(invitation.completes(address), Some(invitation.ticket), on_disconnect)
        }
        None => Client::connect(address, None, on_disconnect),
    };
    connected.map_err(|error| error.to_string())
}

impl Interval {
    fn begin(client: &Client) -> Result<Interval, String> {
        let begun = Transaction::begin(client, &own_cred());
        begun.map(Interval::Open).map_err(|errno| NotDone::Unreachable(errno).to_string())
    }

    fn add(&mut self, operation: Operation) -> Result<(), String> {
        match self {
            Interval::Open(transaction) => transaction.add(&operation).map_err(bluefs_client::message),
            Interval::Closed(_) => Err("the interval is closed".to_owned()),
        }
    }

    fn close(&mut self) -> Outcome {
        if let Interval::Open(_) = self {
            let unsent = Interval::Closed(Err((Outcome::Failed, String::new())));
            if let Interval::Open(transaction) = std::mem::replace(self, unsent) {
                let closed = transaction.close().map_err(|error| (outcome(error), error.to_string()));
                *self = Interval::Closed(closed);
            }
        }
        match self {
            Interval::Closed(Err((outcome, text))) => {
                tell(text);
                *outcome
            }
            _ => Outcome::Done,
        }
    }

    fn commit(&self) -> u64 {
        match self {
            Interval::Closed(Ok(csn)) => csn.0,
            _ => 0,
        }
    }
}

fn outcome(error: NotDone) -> Outcome {
    match error {
        NotDone::Conflict => Outcome::Conflict,
        NotDone::Refused { .. } | NotDone::TooLarge | NotDone::Unreachable(_) => Outcome::Failed,
        NotDone::Unknown(_) => Outcome::Unknown,
    }
}

fn put(file: &[u8], to: Path) -> Result<Operation, String> {
    use std::os::unix::ffi::OsStrExt;
    let file = std::path::Path::new(std::ffi::OsStr::from_bytes(file));
    let data = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(Operation::Write(to, data))
}

fn chmod(mode: u32, at: Path) -> Result<Operation, String> {
    let mode = u16::try_from(mode).ok().filter(|mode| *mode <= 0o7777);
    Ok(Operation::Chmod(mode.ok_or("the mode has bits beyond 07777")?, at))
}
