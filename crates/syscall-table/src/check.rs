//! What the table must be, proven when it is compiled.

use crate::{rows::TABLE, Ahead, Because, Class, Op, Row, Shows, CWD};

/// The numbers between the two ranges of the x86-64 ABI, which the kernel keeps free.
const FREE_FIRST: u16 = 337;
const FREE_LAST: u16 = 423;
/// System calls have six arguments.
const ARGUMENTS: u8 = 6;

const _: () = assert!(is_dense(TABLE), "a number is missing, doubled or out of order");
const _: () = assert!(all_agree(TABLE), "a row's class and its operation contradict each other");
const _: () = assert!(all_show_what_they_may(TABLE), "a row's class or operation contradicts what it is said to show");
const _: () =
    assert!(all_are_as_careful_on_a_guess(TABLE), "a row waits without guesses and not on a guess, or the like");
const _: () = assert!(all_in_range(TABLE), "an operation names an argument that does not exist");

const fn is_dense(rows: &[Row]) -> bool {
    let mut expected = 0;
    let mut at = 0;
    while at < rows.len() {
        if expected == FREE_FIRST {
            expected = FREE_LAST + 1;
        }
        if rows[at].nr != expected {
            return false;
        }
        expected += 1;
        at += 1;
    }
    expected > FREE_LAST + 1
}

const fn all_agree(rows: &[Row]) -> bool {
    let mut at = 0;
    while at < rows.len() {
        if !agree(rows[at].class, rows[at].op) {
            return false;
        }
        at += 1;
    }
    true
}

/// Each operation that belongs to one class only occurs there, and that class has no other.
const fn agree(class: Class, op: Op) -> bool {
    match op {
        Op::Native => matches!(class, Class::Native),
        Op::Barrier | Op::Mount => matches!(class, Class::Barrier),
        Op::Refuse(_) | Op::Sync(_) | Op::Trace => matches!(class, Class::Emulated),
        Op::Write { .. }
        | Op::Send { .. }
        | Op::SendMsg { .. }
        | Op::SendMmsg { .. }
        | Op::Copy { .. }
        | Op::Vmsplice
        | Op::SocketName { .. }
        | Op::Shutdown => matches!(class, Class::Output),
        _ => matches!(class, Class::Tracked | Class::Private),
    }
}

const fn all_show_what_they_may(rows: &[Row]) -> bool {
    let mut at = 0;
    while at < rows.len() {
        if !shows_what_it_may(rows[at].class, rows[at].op, rows[at].shows) {
            return false;
        }
        at += 1;
    }
    true
}

/// Nobody looks at what passes the filter; `Look` is there for what it shows; and what waits because nobody knows
/// what it does may show anything.
const fn shows_what_it_may(class: Class, op: Op, shows: Shows) -> bool {
    match (class, op) {
        (Class::Native, _) => matches!(shows, Shows::Nothing | Shows::Own | Shows::Signal | Shows::Memory),
        (Class::Barrier, _) | (_, Op::OtherProcess) => matches!(shows, Shows::Everything),
        (_, Op::Refuse(_)) => matches!(shows, Shows::Nothing),
        (_, Op::Look) => shows.is_observed_afterwards() || matches!(shows, Shows::Failure),
        _ => true,
    }
}

const fn all_are_as_careful_on_a_guess(rows: &[Row]) -> bool {
    let mut at = 0;
    while at < rows.len() {
        if !is_as_careful_on_a_guess(rows[at].op, rows[at].ahead) {
            return false;
        }
        at += 1;
    }
    true
}

/// A barrier waits on a guess, too; what is answered here needs no waiting; what only looks is decided by whom it
/// looks at; and where the kernel is not asked about a call, nothing of it can be held.
const fn is_as_careful_on_a_guess(op: Op, ahead: Ahead) -> bool {
    match op {
        Op::Barrier | Op::Mount => matches!(ahead, Ahead::Waits(Because::Unknown)),
        Op::Refuse(_) => matches!(ahead, Ahead::Free),
        Op::Look => matches!(ahead, Ahead::ByArgument | Ahead::Waits(_) | Ahead::Alone),
        Op::Native => matches!(ahead, Ahead::Own | Ahead::Free | Ahead::Waits(Because::Lasting)),
        Op::Copy { .. } | Op::Vmsplice => matches!(ahead, Ahead::Certain),
        _ => !matches!(ahead, Ahead::Waits(Because::Unknown) | Ahead::Certain),
    }
}

const fn all_in_range(rows: &[Row]) -> bool {
    let mut at = 0;
    while at < rows.len() {
        if !in_range(rows[at].op) {
            return false;
        }
        at += 1;
    }
    true
}

const fn in_range(op: Op) -> bool {
    match op {
        Op::Read { fd }
        | Op::Write { fd }
        | Op::Recv { fd }
        | Op::Send { fd }
        | Op::RecvMsg { fd }
        | Op::RecvMmsg { fd }
        | Op::SendMsg { fd }
        | Op::SendMmsg { fd }
        | Op::ObserveFd { fd }
        | Op::ModifyFd { fd }
        | Op::Description { fd }
        | Op::Control { pid: fd }
        | Op::SocketName { fd } => fd < ARGUMENTS,
        Op::Copy { input, output } => input < ARGUMENTS && output < ARGUMENTS && input != output,
        Op::AddWatch { fd, path } => fd < path && path < ARGUMENTS,
        Op::ObservePath { dir, path } | Op::ModifyPath { dir, path } => is_path(dir, path),
        Op::StatPath { dir, path, buf } => is_path(dir, path) && buf == path + 1,
        Op::ModifyPaths { dir, path, dir2, path2 } => is_path(dir, path) && is_path(dir2, path2) && path < path2,
        _ => true,
    }
}

/// A directory descriptor stands right before its path.
const fn is_path(dir: u8, path: u8) -> bool {
    path < ARGUMENTS && (dir == CWD || dir + 1 == path)
}
