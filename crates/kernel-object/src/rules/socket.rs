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
/// As `ENDS` and `SEND`, without a way to undo it: the kernel's connection cannot be put back.
const SEND_LIGHTWEIGHT: PropagationRule =
    PropagationRule::lightweight_only(&[Role::Source, Role::Object], &[Role::Object]);
const ENDS_LIGHTWEIGHT: PropagationRule =
    PropagationRule::lightweight_only(&[Role::Source, Role::Object], &[Role::Source, Role::Object]);
const BOTH_LIGHTWEIGHT: PropagationRule = super::BOTH_LIGHTWEIGHT;
const OBSERVE_LIGHTWEIGHT: PropagationRule = super::OBSERVE_LIGHTWEIGHT;

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
    row(LoopbackSocket, Create, BOTH_LIGHTWEIGHT, "002: a database and its client on one machine need no change"),
    row(LoopbackSocket, Connect, ENDS_LIGHTWEIGHT, "as a Unix socket"),
    row(LoopbackSocket, Write, SEND_LIGHTWEIGHT, "as a Unix socket"),
    row(LoopbackSocket, Read, BOTH_LIGHTWEIGHT, "as a Unix socket"),
    row(LoopbackSocket, Peek, OBSERVE_LIGHTWEIGHT, "as a Unix socket"),
    row(LoopbackSocket, Poll, OBSERVE_LIGHTWEIGHT, "as a Unix socket"),
    row(LoopbackSocket, Close, ENDS_LIGHTWEIGHT, "as a Unix socket"),
    row(LoopbackSocket, GetAttributes, OBSERVE_LIGHTWEIGHT, "as a Unix socket; TCP_INFO"),
    row(LoopbackSocket, SetAttributes, ENDS_LIGHTWEIGHT, "as a Unix socket"),
];
