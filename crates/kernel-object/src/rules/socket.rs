//! Unix sockets and connections between two processes inside (000, 6.6). The object is the receiving end; the sender also
//! observes its own.

use super::{row, Row, BOTH, OBSERVE};
use crate::rule::{PropagationRule, Role};
use crate::ObjectKind::{LoopbackSocket, UnixSocket};
use crate::Operation::{Close, Connect, Create, GetAttributes, Peek, Poll, Read, SetAttributes, Write};

/// "Any speculative dependencies associated with that socket are propagated to both the sending process and destination
/// socket" (000, 6.6).
const SEND: PropagationRule = PropagationRule::tracked(&[Role::Source, Role::Object], &[Role::Object]);
/// Changes both ends.
const ENDS: PropagationRule = PropagationRule::tracked(&[Role::Source, Role::Object], &[Role::Source, Role::Object]);
/// As `ENDS`, without a way to undo it: the kernel's connection cannot be put back.
const ENDS_LIGHTWEIGHT: PropagationRule =
    PropagationRule::lightweight_only(&[Role::Source, Role::Object], &[Role::Source, Role::Object]);

pub(super) const ROWS: &[Row] = &[
    row(UnixSocket, Create, BOTH, "socketpair; the object is new"),
    row(UnixSocket, Connect, ENDS, "puts an end into the listener's queue, or takes it out"),
    row(UnixSocket, Write, SEND, "000, 6.6; descriptors in the message keep their own objects"),
    row(UnixSocket, Read, BOTH, "\"between the process and the socket\" (000, 6.6)"),
    row(UnixSocket, Peek, OBSERVE, "MSG_PEEK, FIONREAD"),
    row(UnixSocket, Poll, OBSERVE, "shows whether there is data or room"),
    row(UnixSocket, Close, ENDS, "the other end sees EOF or EPIPE"),
    row(UnixSocket, GetAttributes, OBSERVE, "getsockname, SO_PEERCRED, SIOCOUTQ"),
    row(UnixSocket, SetAttributes, ENDS, "shutdown, setsockopt"),
    row(LoopbackSocket, Create, BOTH, "002: a database and its client on one machine need no change"),
    row(LoopbackSocket, Connect, ENDS_LIGHTWEIGHT, "as a Unix socket; what was accepted is accepted again"),
    row(LoopbackSocket, Write, SEND, "as a Unix socket; on a guess it is held as output is"),
    row(LoopbackSocket, Read, BOTH, "as a Unix socket; undone by giving it again, as input from outside"),
    row(LoopbackSocket, Peek, OBSERVE, "as a Unix socket"),
    row(LoopbackSocket, Poll, OBSERVE, "as a Unix socket"),
    row(LoopbackSocket, Close, ENDS, "as a Unix socket"),
    row(LoopbackSocket, GetAttributes, OBSERVE, "as a Unix socket; TCP_INFO"),
    row(LoopbackSocket, SetAttributes, ENDS_LIGHTWEIGHT, "as a Unix socket"),
];
