//! A client's process: it reads operations, one a line, and writes what it was told.

mod files;
mod session;

use std::io::{self, BufRead, Write};

use crate::call::{Answer, Line, Op, Place};

pub use files::Files;
pub use session::Session;

/// Something that carries operations out.
pub trait Worker {
    /// Carries one out.
    fn carry_out(&mut self, op: &Op) -> Answer;
    /// Whether nothing can be done any more.
    fn is_over(&self) -> bool;
}

/// Does what it is told until there is no more.
pub fn work(mut worker: impl Worker) -> io::Result<()> {
    println!("ready");
    for line in io::stdin().lock().lines() {
        let answer = worker.carry_out(&serde_json::from_str(&line?)?);
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        if worker.is_over() {
            break;
        }
    }
    Ok(())
}

/// The list of a transaction.
fn list(lines: &[Line]) -> String {
    let text = |record: &u32| String::from_utf8(crate::copy::bytes_of(*record)).expect("digits");
    let line = |line: &Line| match line {
        Line::Write(path, record) => format!("write {path} {}\n", text(record)),
        Line::Append(path, record) => format!("append {path} {}\n", text(record)),
        Line::Remove(path) => format!("remove {path}\n"),
        Line::Rename(from, to) => format!("rename {from} {to}\n"),
    };
    lines.iter().map(line).collect()
}

/// EIO, EINTR, ESTALE, ENOTCONN, ECONNABORTED: what was asked for may have been done.
const UNCERTAIN: [i32; 5] = [5, 4, 116, 107, 103];

/// What an error number says of an operation.
fn refused(op: &Op, errno: i32) -> Answer {
    match UNCERTAIN.contains(&errno) {
        // Who only looks learns nothing.
        true if op.only_looks() && errno != 116 => Answer::NotDone,
        true if !op.only_looks() => Answer::Unknown,
        _ => Answer::Refused(errno),
    }
}

/// Whether a place may hold directories: these have names of their own.
fn is_of_dirs(place: &Place) -> bool {
    crate::call::DIRS.contains(&place.name.as_str())
}
