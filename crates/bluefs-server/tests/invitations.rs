//! A server that cannot read its invitations for a moment: nobody is let in, and no session ends for that.

mod support;

use std::cell::Cell;
use std::sync::Arc;

use bluefs::{SessionId, Time};
use bluefs_server::{Access, Action, ConnectionId, Engine, Event, Grant, Now};
use bluefs_store::{CrashDisk, Store};
use bluefs_wire::{Refusal, Reply, Request, PROTOCOL_VERSION};
use support::Numbered;

/// What is read of an invitation, if it can be read.
#[derive(Default)]
struct Invited {
    numbers: Numbered,
    reads: Cell<Option<bool>>,
}

impl Access for Invited {
    fn check(&self, _: &[u8], _: &[u8], _: Time) -> Option<Grant> {
        (self.reads.get() == Some(true)).then_some(Grant { invitation: 7, read_only: false })
    }

    fn stands(&self, _: u64, _: Time) -> bool {
        self.reads.get() == Some(true)
    }

    fn is_unknown(&self) -> bool {
        self.reads.get().is_none()
    }

    fn random(&self) -> u64 {
        self.numbers.random()
    }
}

fn handle(engine: &mut Engine, access: &Invited, events: Vec<Event>) -> Vec<Action> {
    engine.handle(events, Now { millis: 0, wall: Time(1) }, access).expect("a turn")
}

fn hello(from: u64, session: Option<(SessionId, u64)>) -> Vec<Event> {
    let from = ConnectionId(from);
    let (version, volume, secret) = (PROTOCOL_VERSION, vec![], vec![]);
    let hello = Request::Hello { version, volume, session, acknowledged: 0, secret };
    vec![Event::Opened(from), Event::Message(from, hello)]
}

fn welcomed(actions: &[Action]) -> Option<(SessionId, u64)> {
    actions.iter().find_map(|action| match action {
        Action::Send(_, Reply::Welcome { session, epoch, .. }) => Some((*session, *epoch)),
        _ => None,
    })
}

fn refused(actions: &[Action]) -> Vec<Refusal> {
    let why = |action: &Action| match action {
        Action::Send(_, Reply::Refused { why, .. }) => Some(*why),
        _ => None,
    };
    actions.iter().filter_map(why).collect()
}

#[test]
fn what_cannot_be_read_for_a_moment_is_not_withdrawn() {
    let store = Store::on(Arc::new(CrashDisk::new())).expect("a store").store;
    let mut engine = Engine::new(store, Now { millis: 0, wall: Time(1) }, || 7).expect("an engine");
    let access = Invited::default();
    access.reads.set(Some(true));
    let known = welcomed(&handle(&mut engine, &access, hello(1, None)));
    assert!(known.is_some());
    access.reads.set(None);
    let told = handle(&mut engine, &access, vec![]);
    assert_eq!(refused(&told), [Refusal::Limit], "it tries again");
    assert!(told.contains(&Action::Close(ConnectionId(1))));
    assert_eq!(refused(&handle(&mut engine, &access, hello(2, known))), [Refusal::Limit]);
    assert_eq!(refused(&handle(&mut engine, &access, hello(3, None))), [Refusal::Limit]);
    access.reads.set(Some(true));
    let again = welcomed(&handle(&mut engine, &access, hello(4, known)));
    assert_eq!(again, known.map(|(session, epoch)| (session, epoch + 1)), "the session goes on");
    access.reads.set(Some(false));
    assert_eq!(refused(&handle(&mut engine, &access, vec![])), [Refusal::Volume], "it is withdrawn");
    access.reads.set(Some(true));
    assert_eq!(refused(&handle(&mut engine, &access, hello(5, again))), [Refusal::Session], "and over");
}
