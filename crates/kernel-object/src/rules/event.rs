//! Descriptors for events. Lightweight dependencies pass both ways; only a counter can be put back, so at the others full ones wait.

use super::{row, Row, BOTH, BOTH_LIGHTWEIGHT, OBSERVE, OBSERVE_LIGHTWEIGHT};
use crate::rule::PropagationRule;
use crate::ObjectKind::{Epoll, EventFd, Inotify, TimerFd};
use crate::Operation::{Close, Create, GetAttributes, Poll, Read, SetAttributes, Write};

const NOTHING: PropagationRule = PropagationRule::lightweight_only(&[], &[]);

pub(super) const ROWS: &[Row] = &[
    row(EventFd, Create, BOTH, "the object is new"),
    row(EventFd, Read, BOTH, "takes the counter, which is undone by writing it again"),
    row(EventFd, Write, BOTH, "may block if the counter is full; undone by reading"),
    row(EventFd, Poll, OBSERVE, "shows whether the counter is 0"),
    row(EventFd, Close, NOTHING, "shows nothing"),
    row(TimerFd, Create, BOTH_LIGHTWEIGHT, "the object is new"),
    row(TimerFd, SetAttributes, BOTH_LIGHTWEIGHT, "timerfd_settime returns the old time"),
    row(TimerFd, GetAttributes, OBSERVE_LIGHTWEIGHT, "timerfd_gettime"),
    row(TimerFd, Read, BOTH_LIGHTWEIGHT, "takes the expirations"),
    row(TimerFd, Poll, OBSERVE_LIGHTWEIGHT, "shows whether it has expired"),
    row(TimerFd, Close, NOTHING, "shows nothing"),
    row(Epoll, Create, BOTH_LIGHTWEIGHT, "the object is new"),
    row(Epoll, SetAttributes, BOTH_LIGHTWEIGHT, "epoll_ctl fails if the entry is there already"),
    row(
        Epoll,
        Poll,
        BOTH_LIGHTWEIGHT,
        "edge-triggered and one-shot entries change; the watched objects are observed each",
    ),
    row(Epoll, Close, NOTHING, "shows nothing"),
    row(Inotify, Create, BOTH_LIGHTWEIGHT, "the object is new"),
    row(Inotify, SetAttributes, BOTH_LIGHTWEIGHT, "adds and removes watches"),
    row(
        Inotify,
        Read,
        PropagationRule::BARRIER,
        "until whoever changes a watched file passes its dependencies to the queue",
    ),
];
