//! Locks. `fcntl` and `flock` do not hinder each other, so each has bytes of its own at the server: files end at 2^63,
//! and the last byte of all is that of `flock`.
//!
//! A lock whose call is not known takes both: it hinders too much rather than too little.

use std::time::{Duration, Instant};

use bluefs::{Errno, Ino};
use bluefs_wire::{LockKind, LockRequest};
use fuser::ReplyLock;

use crate::caller::{Caller, LockCall};
use crate::convert;
use crate::filesystem::Volume;

/// `fcntl` of Linux.
const F_RDLCK: i32 = 0;
const F_WRLCK: i32 = 1;
const F_UNLCK: i32 = 2;
/// The last byte that `fcntl` can lock.
const FILE_END: u64 = i64::MAX as u64;
/// The byte that stands for `flock`.
const FLOCK_BYTE: u64 = u64::MAX;

/// EINTR, EAGAIN, EDEADLK.
const INTERRUPTED: Errno = Errno(4);
const AGAIN: Errno = Errno(11);
const DEADLK: Errno = Errno(35);
/// When an open file description asks again that waits for who waits for it.
const DEADLOCK_AGAIN: Duration = Duration::from_millis(100);
/// How long a lock is tried for that somebody here has who may be closing the file.
const CLOSING_MAX: Duration = Duration::from_secs(2);

/// A lock as the kernel asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub ino: Ino,
    pub owner: u64,
    pub handle: u64,
    pub start: u64,
    pub end: u64,
    pub typ: i32,
}

impl Wanted {
    fn kind(&self) -> Result<LockKind, Errno> {
        match self.typ {
            F_RDLCK => Ok(LockKind::Shared),
            F_WRLCK => Ok(LockKind::Exclusive),
            F_UNLCK => Ok(LockKind::Unlock),
            _ => Err(Errno::INVAL),
        }
    }

    /// Whether it is a lock that is given back.
    pub fn is_given_back(&self) -> bool {
        self.typ == F_UNLCK
    }

    /// Which call it is from. `flock` asks for whole files only. Which of the two kinds of `fcntl` it is matters to an
    /// owner that may have asked through another open file.
    fn call(&self, caller: &Caller, has_asked_through_another: bool) -> LockCall {
        match (self.start, self.end) {
            (0, FILE_END) => caller.lock_call(),
            _ if has_asked_through_another => match caller.lock_call() {
                LockCall::OpenFile => LockCall::OpenFile,
                _ => LockCall::Fcntl,
            },
            _ => LockCall::Fcntl,
        }
    }

    /// What it locks at the server.
    fn bytes(&self, call: LockCall) -> (u64, u64) {
        match call {
            LockCall::Fcntl | LockCall::OpenFile => (self.start, self.end),
            LockCall::Flock => (FLOCK_BYTE, FLOCK_BYTE),
            LockCall::Unknown => (self.start, FLOCK_BYTE),
        }
    }
}

impl Volume {
    /// `F_GETLK`.
    pub fn test_lock(&self, caller: &Caller, wanted: &Wanted, reply: ReplyLock) {
        let Wanted { ino, owner, start, end, .. } = *wanted;
        let tested = wanted.kind().and_then(|kind| {
            let lock = LockRequest { ino, owner, kind, start, end, wait: false };
            self.client.test_lock(lock, &|| self.is_given_up(caller))
        });
        match tested {
            // Whose process it is is known on its own machine alone.
            Ok(Some(LockRequest { kind, start, end, .. })) => {
                let typ = if kind == LockKind::Shared { F_RDLCK } else { F_WRLCK };
                reply.locked(start, end.min(FILE_END), typ, 0);
            }
            Ok(None) => reply.locked(start, end, F_UNLCK, 0),
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    /// `F_SETLK`, `F_SETLKW` and `flock`.
    pub fn set_lock(&self, caller: &Caller, wanted: &Wanted, wait: bool) -> Result<(), Errno> {
        let kind = wanted.kind()?;
        let Wanted { ino, owner, handle, .. } = *wanted;
        let call = wanted.call(caller, self.handles.has_asked_through_another(ino, owner, handle));
        let (start, end) = wanted.bytes(call);
        let lock = LockRequest { ino, owner, kind, start, end, wait };
        if kind != LockKind::Exclusive {
            // Who gets the lock next, or shares it from now on, is to see what was stored under it.
            self.flush_stores(caller, ino);
        }
        let is_flock = matches!(call, LockCall::Flock | LockCall::Unknown);
        let is_open_file = matches!(call, LockCall::Flock | LockCall::OpenFile);
        self.handles.asks(ino, owner, handle, is_open_file, || self.client.unlock_later(all_of(ino, owner)));
        let until = Instant::now() + CLOSING_MAX;
        let taken = loop {
            let given_back = self.handles.flocks_given_back();
            let taken = match kind {
                LockKind::Unlock => self.client.unlock(lock, &|| self.stops_waiting(caller)),
                _ => self.client.lock(lock, &|| self.stops_waiting(caller)),
            };
            // fcntl(2): an open file description waits whatever comes of it, as another thread may give its lock back.
            // So does whoever may be one.
            if taken == Err(DEADLK) && caller.lock_call() != LockCall::Fcntl {
                if self.stops_waiting(caller) {
                    break Err(INTERRUPTED);
                }
                std::thread::sleep(DEADLOCK_AGAIN);
                continue;
            }
            // A lock of somebody here goes with the open file, of which the kernel tells behind the end of `close`.
            let may_go = is_flock && taken == Err(AGAIN) && Instant::now() < until;
            if !may_go || !self.handles.wait_for_flock(ino, owner, given_back, until) {
                break taken;
            }
        };
        if taken.is_ok() && kind != LockKind::Unlock {
            self.handles.gets(ino, owner, handle);
        }
        if is_flock && taken.is_ok() {
            self.handles.set_flock(ino, owner, kind != LockKind::Unlock);
        }
        taken
    }

    /// A descriptor of an open file is closed. fcntl(2): a process that closes a file gives up all locks on it.
    pub fn unlock_closed(&self, caller: &Caller, ino: Ino, handle: u64, owner: u64) -> Result<(), Errno> {
        self.handles.may_close(ino, handle);
        match self.handles.closes(ino, owner) {
            true => self.client.unlock(all_of(ino, owner), &|| self.closes_alone(caller)),
            false => Ok(()),
        }
    }

    /// An open file is closed, and its locks go with it. Nobody waits for that: whatever is asked from now on is asked
    /// behind it.
    pub fn unlock_released(&self, ino: Ino, handle: u64) {
        self.handles.released(ino, handle, |owner| self.client.unlock_later(all_of(ino, owner)));
    }
}

/// That an owner gives back all locks on a file.
fn all_of(ino: Ino, owner: u64) -> LockRequest {
    LockRequest { ino, owner, kind: LockKind::Unlock, start: 0, end: FLOCK_BYTE, wait: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(start: u64, end: u64, call: LockCall) -> (u64, u64) {
        Wanted { ino: Ino(5), owner: 1, handle: 0, start, end, typ: F_WRLCK }.bytes(call)
    }

    #[test]
    fn the_two_calls_lock_different_bytes_and_an_unknown_one_both() {
        assert_eq!(bytes(0, FILE_END, LockCall::Fcntl), (0, FILE_END));
        assert_eq!(bytes(0, FILE_END, LockCall::Flock), (FLOCK_BYTE, FLOCK_BYTE));
        assert_eq!(bytes(0, FILE_END, LockCall::Unknown), (0, FLOCK_BYTE));
        let nobody = Caller::nobody();
        let part = Wanted { ino: Ino(5), owner: 1, handle: 0, start: 10, end: 19, typ: F_WRLCK };
        assert_eq!((part.call(&nobody, true), part.bytes(LockCall::Fcntl)), (LockCall::Fcntl, (10, 19)));
        let whole = Wanted { start: 0, end: FILE_END, ..part };
        assert_eq!(whole.call(&nobody, false), LockCall::Unknown);
    }
}
