//! Hole 2: one moves `/x` into `/y`, another `/y` into `/x`: every check of names passes, and a cycle is cut off from
//! the root.

use std::collections::BTreeMap;

use bluefs::apply::{apply, Context};
use bluefs::memory::MemoryTree;
use bluefs::op::RenameMode;
use bluefs::tree::{Changes, Tree};
use bluefs::version::{Checked, Versions};
use bluefs::{Change, Cred, Csn, Ino, Interval, Key, Kind, Name, Runs, SessionId, Step, Time};
use stateright::{Checker, Model, Property};

#[derive(Debug, Clone, Copy)]
struct Moving {
    /// The server checks cycles again.
    server_checks: bool,
    /// The clients read the destination's whole chain of ancestors.
    clients_read_ancestors: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    tree: MemoryTree,
    versions: Versions,
    /// What each client has read, and at which state, before it sends its move.
    bases: BTreeMap<u64, Csn>,
    done: BTreeMap<u64, bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Look(u64),
    Move(u64),
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn interval(base: Csn, reads: Vec<Key>, change: Change) -> Interval {
    let step = Step { cred: 0, time: None, change };
    Interval { number: 1, base, after: Runs::new(), reads, creds: vec![Cred::root()], steps: vec![step] }
}

const CONTEXT: Context = Context { session: SessionId(9), read_only: false, now: Time(1) };

impl State {
    fn apply(&mut self, session: u64, interval: &Interval) {
        let outcome = apply(&self.tree, interval, CONTEXT).expect("memory can be read");
        if let Ok((changes, _)) = outcome {
            self.commit(session, changes);
        }
    }

    fn commit(&mut self, session: u64, changes: Changes) {
        let csn = Csn(self.versions.csn().0 + 1);
        self.versions.commit(SessionId(session), csn, changes.keys.iter().cloned());
        self.tree.write(SessionId(session), changes);
    }

    fn reaches_root(&self, ino: Ino) -> bool {
        let mut at = ino;
        for _ in 0..8 {
            if at == Ino::ROOT {
                return true;
            }
            at = self.tree.inode(at).expect("memory can be read").expect("a directory").parent;
        }
        false
    }
}

impl Moving {
    fn submit(&self, state: &mut State, client: u64) {
        let (from, to) = if client == 1 { ("x", "y") } else { ("y", "x") };
        let ino = |of: &str| if of == "x" { Ino(2) } else { Ino(3) };
        // That the destination is there was read by its number; a client that caches it need not look at its name
        // again.
        let mut reads = vec![Key::Name(Ino::ROOT, name(from)), Key::Name(ino(to), name(from)), Key::Attr(ino(to))];
        if self.clients_read_ancestors {
            reads.push(Key::Parent(ino(to)));
        }
        let (from_dir, to_dir, mode) = (Ino::ROOT, ino(to), RenameMode::NoReplace);
        let change = Change::Rename { from_dir, from: name(from), to_dir, to: name(from), mode };
        let interval = interval(state.bases[&client], reads, change);
        if !matches!(state.versions.check(SessionId(client), interval.base, &interval.reads), Checked::Valid(_)) {
            return;
        }
        if self.server_checks {
            state.apply(client, &interval);
        } else {
            state.apply_naively(client, from, to_dir);
        }
    }
}

impl State {
    /// What a server without a check of cycles would do. The destination is found by its number, as a cache has it.
    fn apply_naively(&mut self, session: u64, from: &str, to_dir: Ino) {
        let Some(moved) = self.tree.entry(Ino::ROOT, &name(from)).expect("memory can be read") else { return };
        let mut inode = self.tree.inode(moved.ino).expect("memory can be read").expect("a directory");
        inode.parent = to_dir;
        let mut changes = Changes::default();
        changes.entries.insert((Ino::ROOT, name(from)), None);
        changes.entries.insert((to_dir, name(from)), Some(moved));
        changes.inodes.insert(moved.ino, Some(inode));
        changes.keys.extend([Key::Name(Ino::ROOT, name(from)), Key::Name(to_dir, name(from)), Key::Parent(moved.ino)]);
        self.commit(session, changes);
    }

    /// Whether the client itself would see a cycle in what it has looked at.
    fn would_be_cycle(&self, client: u64) -> bool {
        let (moved, to) = if client == 1 { (Ino(2), Ino(3)) } else { (Ino(3), Ino(2)) };
        self.tree.inode(to).expect("memory can be read").expect("a directory").parent == moved
    }
}

impl Model for Moving {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (tree, versions) = (MemoryTree::new(Time(0)), Versions::new(Csn(0), 100));
        let mut state = State { tree, versions, bases: BTreeMap::new(), done: BTreeMap::new() };
        for dir in ["x", "y"] {
            let (kind, target) = (Kind::Dir, vec![]);
            let create =
                Change::Create { dir: Ino::ROOT, name: name(dir), ino: None, kind, mode: 0o755, rdev: 0, target };
            state.apply(9, &interval(Csn(0), vec![], create));
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in [1, 2] {
            match (state.bases.contains_key(&client), state.done.contains_key(&client)) {
                (false, _) => actions.push(Action::Look(client)),
                (true, false) => actions.push(Action::Move(client)),
                (true, true) => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Look(client) => {
                state.bases.insert(client, state.versions.csn());
                if state.would_be_cycle(client) {
                    state.done.insert(client, true);
                }
            }
            Action::Move(client) => {
                self.submit(&mut state, client);
                state.done.insert(client, true);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("every directory hangs on the root", |_, state: &State| {
                state.tree.inodes().all(|(ino, _)| state.reaches_root(ino))
            }),
            Property::sometimes("one is moved", |_, state: &State| {
                state.tree.inodes().any(|(ino, inode)| ino != Ino::ROOT && inode.parent != Ino::ROOT)
            }),
        ]
    }
}

#[test]
fn the_server_refuses_a_cycle() {
    Moving { server_checks: true, clients_read_ancestors: false }.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn a_chain_of_ancestors_that_was_read_is_a_hypothesis() {
    Moving { server_checks: false, clients_read_ancestors: true }.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn a_cycle_that_nobody_checks_is_found() {
    let checker = Moving { server_checks: false, clients_read_ancestors: false }.checker().spawn_bfs().join();
    assert!(checker.discovery("every directory hangs on the root").is_some());
}
