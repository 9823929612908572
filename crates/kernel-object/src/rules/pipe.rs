//! Pipes and FIFOs (000, 6.5): "read and write both modify and observe pipe state".

use super::{row, Row, BOTH, OBSERVE};
use crate::ObjectKind::{Fifo, Pipe};
use crate::Operation::{Close, Create, GetAttributes, Open, Peek, Poll, Read, SetAttributes, Write};

pub(super) const ROWS: &[Row] = &[
    row(Pipe, Create, BOTH, "undone by destroying it (000, 6.5)"),
    row(Pipe, Read, BOTH, "undone by putting the bytes back; also splice from"),
    row(Pipe, Write, BOTH, "shows how much room there is; also splice to, vmsplice"),
    row(Pipe, Peek, OBSERVE, "tee from, FIONREAD"),
    row(Pipe, Poll, OBSERVE, "shows whether there is data or room"),
    row(Pipe, Close, BOTH, "EOF and EPIPE are state (000, 6.5: kept until resolved)"),
    row(Pipe, GetAttributes, OBSERVE, "fstat, F_GETPIPE_SZ"),
    row(Pipe, SetAttributes, BOTH, "F_SETPIPE_SZ fails if data would not fit"),
    row(Fifo, Open, BOTH, "waits for the other end, and lets it go on"),
    row(Fifo, Read, BOTH, "as a pipe"),
    row(Fifo, Write, BOTH, "as a pipe"),
    row(Fifo, Peek, OBSERVE, "as a pipe"),
    row(Fifo, Poll, OBSERVE, "as a pipe"),
    row(Fifo, Close, BOTH, "as a pipe"),
    row(Fifo, GetAttributes, OBSERVE, "as a file"),
    row(Fifo, SetAttributes, BOTH, "as a pipe and a file"),
];
