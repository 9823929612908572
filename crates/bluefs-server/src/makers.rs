//! Files of which nobody was told but the session that has made them: nobody else can have them open (record 0212).

use std::collections::BTreeMap;

use bluefs::op::{Effect, Failure, Value};
use bluefs::query::{Answer, Query};
use bluefs::{Ino, Outcome, SessionId};
use bluefs_wire::{Reply, Request};

/// How many of them are remembered: the youngest, as numbers grow.
const FILES_MAX: usize = 1 << 16;

/// What was made since the server started, and by whom.
#[derive(Default)]
pub struct Makers(BTreeMap<Ino, SessionId>);

impl Makers {
    /// A session has made these.
    pub fn made(&mut self, by: SessionId, effects: &[Effect]) {
        self.0.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Created(ino) => Some((*ino, by)),
            _ => None,
        }));
        while self.0.len() > FILES_MAX {
            self.0.pop_first();
        }
    }

    /// A session says something about files by their numbers.
    pub fn heard(&mut self, session: SessionId, message: &Request) {
        match message {
            Request::Ask { query, .. } | Request::AskLeased { query, .. } => match query {
                Query::Inode(ino) | Query::Read { ino, .. } | Query::Xattr { ino, .. } | Query::Xattrs(ino) => {
                    self.knows(session, *ino);
                }
                _ => {}
            },
            Request::Lock { lock, .. } | Request::Reclaim { lock, .. } => self.knows(session, lock.ino),
            _ => {}
        }
    }

    /// This is about to be said to a session, which knows afterwards what it names. What others have changed
    /// (`invalidate`) only says that nothing is known any more.
    pub fn told(&mut self, session: SessionId, reply: &Reply) {
        if self.0.is_empty() {
            return;
        }
        match reply {
            Reply::Answer { answer: Answer::Inode(ino, _), .. } => self.knows(session, *ino),
            Reply::Answer { answer: Answer::Names { names, .. }, .. } => {
                names.iter().for_each(|(_, ino, _)| self.knows(session, *ino));
            }
            Reply::Answer { answer: Answer::Entries { entries, .. }, .. } => {
                entries.iter().for_each(|(_, ino, _)| self.knows(session, *ino));
            }
            Reply::Changed { inodes, names, .. } => {
                inodes.iter().for_each(|(ino, _)| self.knows(session, *ino));
                names.iter().flat_map(|(.., entry)| entry).for_each(|entry| self.knows(session, entry.ino));
            }
            Reply::Decided { outcome: Outcome::Failed(Failure::Conflict(values)), .. } => {
                for (key, value) in values {
                    self.knows(session, key.ino());
                    if let Value::Entry(Some(ino)) = value {
                        self.knows(session, *ino);
                    }
                }
            }
            _ => {}
        }
    }

    /// A file has lost its last name. Whether this session alone can have it open.
    pub fn removed(&mut self, by: SessionId, ino: Ino) -> bool {
        self.0.remove(&ino) == Some(by)
    }

    fn knows(&mut self, session: SessionId, ino: Ino) {
        if self.0.get(&ino).is_some_and(|maker| *maker != session) {
            self.0.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use bluefs::{Csn, Key, Kind, Name};

    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const INO: Ino = Ino(70);

    fn name() -> Name {
        Name::new(b"f").expect("a name")
    }

    /// Whether the maker alone can have the file open after somebody was told this.
    fn alone(session: SessionId, reply: Reply) -> bool {
        let mut makers = Makers::default();
        makers.made(A, &[Effect::Done, Effect::Created(INO)]);
        makers.told(session, &reply);
        makers.removed(A, INO)
    }

    #[test]
    fn whoever_is_told_of_a_file_may_have_it_open() {
        let answer = |answer| Reply::Answer { tag: 1, csn: Csn(1), answer };
        let names = |ino| answer(Answer::Names { names: vec![(name(), ino, Kind::File)], end: true });
        assert!(!alone(B, names(INO)));
        assert!(alone(A, names(INO)) && alone(B, names(Ino(71))));
        let changed = Reply::Changed { number: 1, csn: Csn(1), keys: vec![], inodes: vec![(INO, None)], names: vec![] };
        assert!(!alone(B, changed.clone()) && alone(A, changed));
        let failed = |key, value| {
            let outcome = Outcome::Failed(Failure::Conflict(vec![(key, value)]));
            Reply::Decided { number: 1, outcome }
        };
        assert!(!alone(B, failed(Key::Name(Ino(1), name()), Value::Entry(Some(INO)))));
        assert!(!alone(B, failed(Key::Attr(INO), Value::Unknown)));
        assert!(alone(B, Reply::Invalidate { csn: Csn(1), keys: vec![Key::Data(INO)] }));
    }

    #[test]
    fn what_was_made_long_ago_or_is_removed_by_another_may_be_open_anywhere() {
        let mut makers = Makers::default();
        let made: Vec<Effect> = (0..=FILES_MAX as u64).map(|number| Effect::Created(Ino(70 + number))).collect();
        makers.made(A, &made);
        assert!(!makers.removed(A, Ino(70)) && makers.removed(A, Ino(71)) && !makers.removed(A, Ino(71)));
        assert!(!makers.removed(B, Ino(72)));
    }
}
