//! Processes: fork, exec, exit, wait (000, 6.8 and 6.9).

use super::{row, Row, OBSERVE};
use crate::rule::{PropagationRule, Role};
use crate::ObjectKind::{ExitStatus, Process};
use crate::Operation::{Close, Control, Create, Exec, Exit, Fork, GetAttributes, Poll, Trace, Wait};

const OTHER: &[Role] = &[Role::OtherProcess];

pub(super) const ROWS: &[Row] = &[
    row(Process, Fork, PropagationRule::tracked(&[], OTHER), "the child inherits all dependencies (000, 6.8)"),
    row(
        Process,
        Exec,
        PropagationRule::tracked(&[Role::Backing], &[]),
        "the image shows the file; the vessel still has the old image",
    ),
    row(
        Process,
        Exit,
        PropagationRule::tracked(&[], &[Role::Object]),
        "leaves an exit status; the pid stays taken until all is resolved (000, 6.9)",
    ),
    row(
        Process,
        Wait,
        PropagationRule::tracked(&[Role::OtherProcess, Role::Object], &[Role::Object]),
        "who waits takes the dead child's dependencies, and the exit status away",
    ),
    row(
        Process,
        GetAttributes,
        PropagationRule::tracked(OTHER, &[]),
        "/proc, getpriority, getpgid, kill(pid, 0): shows what the other one did",
    ),
    row(
        Process,
        Control,
        PropagationRule::lightweight_only(OTHER, OTHER),
        "the other process would need a checkpoint at an arbitrary place (000, 6.7)",
    ),
    row(Process, Trace, PropagationRule::BARRIER, "changes memory behind the other process's back"),
    row(ExitStatus, Create, PropagationRule::tracked(&[], &[Role::Object]), "exit; the object is new"),
    row(ExitStatus, Poll, OBSERVE, "waitid(WNOWAIT), a pidfd in poll"),
    row(
        ExitStatus,
        Wait,
        PropagationRule::tracked(&[Role::OtherProcess, Role::Object], &[Role::Object]),
        "as wait on the process",
    ),
    row(ExitStatus, Close, PropagationRule::tracked(&[], &[]), "closing a pidfd shows nothing"),
];
