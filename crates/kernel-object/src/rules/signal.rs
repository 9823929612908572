//! Signals, in two steps (000, 6.7): sending makes an object of its own, delivery takes it.

use super::{row, Row, BOTH, OBSERVE};
use crate::rule::{PropagationRule, Role};
use crate::ObjectKind::{Signal, SignalFd};
use crate::Operation::{Create, Deliver, Poll, Read, Send, SetAttributes};

pub(super) const ROWS: &[Row] = &[
    row(
        Signal,
        Send,
        PropagationRule::tracked(&[Role::OtherProcess], &[Role::Object]),
        "\"the sender observes that it is allowed to send\" (000, 6.7); the object is new",
    ),
    row(Signal, Deliver, BOTH, "at a place where the receiver can be checkpointed; undone by redelivery (000, 6.7)"),
    row(Signal, Poll, OBSERVE, "sigpending"),
    row(SignalFd, Create, BOTH, "the object is new"),
    row(SignalFd, SetAttributes, BOTH, "changes the mask"),
    row(SignalFd, Poll, super::OBSERVE_LIGHTWEIGHT, "undo of a signal taken this way is not written"),
    row(SignalFd, Read, super::BOTH_LIGHTWEIGHT, "undo of a signal taken this way is not written"),
];
