//! The table as a whole, and what it says about the objects of `dependencies.md`.

use kernel_object::{rows, rule, ObjectKind, Operation, PropagationRule, Role, Support};
use std::collections::BTreeSet;

#[test]
fn no_operation_has_two_rows() {
    let mut seen = BTreeSet::new();
    for row in rows() {
        assert!(seen.insert((row.kind, row.operation)), "{:?} {:?}", row.kind, row.operation);
        assert!(!row.why.is_empty());
    }
}

#[test]
fn the_lists_of_kinds_and_operations_are_complete() {
    let kinds: BTreeSet<_> = ObjectKind::ALL.into_iter().collect();
    let operations: BTreeSet<_> = Operation::ALL.into_iter().collect();
    assert_eq!((kinds.len(), operations.len()), (ObjectKind::ALL.len(), Operation::ALL.len()));
    for row in rows() {
        assert!(kinds.contains(&row.kind) && operations.contains(&row.operation));
    }
}

#[test]
fn what_is_not_known_is_a_barrier() {
    for operation in Operation::ALL {
        assert_eq!(rule(ObjectKind::Other, operation), PropagationRule::BARRIER);
    }
    assert!(rule(ObjectKind::Process, Operation::Trace).is_barrier());
    assert!(rule(ObjectKind::Pipe, Operation::Map).is_barrier());
}

#[test]
fn full_speculations_are_never_allowed_more_than_lightweight_ones() {
    for row in rows() {
        assert!(row.rule.lightweight <= row.rule.full, "{:?} {:?}", row.kind, row.operation);
    }
}

/// 000, 6.1: an operation that modifies also observes. The exceptions make something new, or are the exit that leaves it.
#[test]
fn what_modifies_observes() {
    for row in rows() {
        let blind: Vec<_> = row.rule.modifies.iter().filter(|role| !row.rule.observes.contains(role)).collect();
        let new = matches!(
            (row.kind, row.operation),
            (ObjectKind::Process, Operation::Fork | Operation::Exit)
                | (ObjectKind::ExitStatus, Operation::Create)
                | (ObjectKind::Signal, Operation::Send)
        );
        assert!(blind.is_empty() || new, "{:?} {:?} modifies {blind:?} blindly", row.kind, row.operation);
    }
}

#[test]
fn every_kind_but_other_has_rows() {
    for kind in ObjectKind::ALL {
        assert_eq!(rows().any(|row| row.kind == kind), kind != ObjectKind::Other, "{kind:?}");
    }
}

#[test]
fn shared_memory_and_its_like_are_barriers_for_full_speculations() {
    use ObjectKind::*;
    for row in rows().filter(|row| matches!(row.kind, SharedMemory | Futex | Epoll)) {
        assert_eq!(row.rule.full, Support::Barrier, "{:?} {:?} (000, 6.10)", row.kind, row.operation);
    }
}

#[test]
fn a_counter_can_be_put_back() {
    for operation in [Operation::Read, Operation::Write, Operation::Poll] {
        assert_ne!(rule(ObjectKind::EventFd, operation).full, Support::Barrier, "{operation:?}");
    }
}

#[test]
fn pipes_pass_both_ways_and_files_are_read_one_way() {
    let both = |rule: PropagationRule| (rule.observes_object(), rule.modifies_object());
    for operation in [Operation::Read, Operation::Write, Operation::Close] {
        assert_eq!(both(rule(ObjectKind::Pipe, operation)), (true, true));
    }
    assert_eq!(both(rule(ObjectKind::File, Operation::Read)), (true, false));
    assert_eq!(both(rule(ObjectKind::File, Operation::Write)), (true, true));
    assert_eq!(rule(ObjectKind::UnixSocket, Operation::Write).observes, [Role::Source, Role::Object]);
}
