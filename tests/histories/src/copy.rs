//! One copy: what a file system on one machine would say.

use std::collections::BTreeMap;

use crate::call::{Answer, Call, Ino, Line, Mode, Op, Place, RECORD_BYTES, ROOT};
use crate::linear::Model;

/// Numbers from here on stand for what nobody has been told the number of yet.
const UNTOLD: Ino = 1 << 40;
/// Operations of one call that may create something, at most.
const LINES_MAX: u64 = 16;

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const EEXIST: i32 = 17;
const ENOTEMPTY: i32 = 39;
const ESTALE: i32 = 116;
/// Both are true, and the kernel looks at another one first than the server.
const ENOENT_OR_EEXIST: i32 = -1;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Node {
    Dir { names: BTreeMap<String, Ino>, is_gone: bool },
    File { records: Vec<u32>, names: u32 },
}

/// All files and locks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Copy {
    nodes: BTreeMap<Ino, Node>,
    locks: BTreeMap<Ino, u32>,
}

/// What an operation comes to.
type Did = Result<Answer, i32>;

impl Model for Copy {
    type State = Copy;
    type Call = Call;

    fn step(state: &Copy, call: &Call) -> Option<Copy> {
        let mut next = state.clone();
        let id = UNTOLD + call.id * LINES_MAX;
        if let Op::Batch(lines) = &call.op {
            return next.batch(lines, id, &call.answer).then_some(next);
        }
        if let (Op::Lookup(place), Answer::Ino(ino)) = (&call.op, &call.answer) {
            next.tell(place, *ino);
        }
        if let (Op::Create(_) | Op::Mkdir(_), Answer::Ino(ino)) = (&call.op, &call.answer) {
            // No number is given twice.
            if next.nodes.contains_key(ino) {
                return None;
            }
        }
        let id = if let Answer::Ino(ino) = call.answer { ino } else { id };
        let did = next.carry_out(call, id);
        fits(&did, &call.answer).then_some(match did {
            Ok(_) => next,
            Err(_) => state.clone(),
        })
    }
}

/// Whether a client may be told this.
fn fits(did: &Did, answer: &Answer) -> bool {
    match (did, answer) {
        // What did not happen need not be in the order.
        (Err(_), Answer::Unknown | Answer::NotDone) => false,
        (Ok(_), Answer::Unknown) => true,
        // A directory that was made has no descriptor, and so no number that its maker knows.
        (Ok(Answer::Ino(untold)), Answer::Done) => *untold >= UNTOLD,
        (Ok(Answer::Records(records)), Answer::Zeros) => records.iter().all(|record| *record == 0),
        (Ok(said), answer) => said == answer,
        // A directory that was removed may be shown as one without names.
        (Err(ENOENT), Answer::Names(names)) => names.is_empty(),
        // What was removed is found out by its name or by its number.
        (Err(ENOENT), Answer::Refused(errno)) => [ENOENT, ESTALE].contains(errno),
        (Err(ENOENT_OR_EEXIST), Answer::Refused(errno)) => [ENOENT, ESTALE, EEXIST].contains(errno),
        (Err(error), Answer::Refused(errno)) => error == errno,
        (Err(_), _) => false,
    }
}

impl Copy {
    /// An empty volume.
    pub fn new() -> Copy {
        let root = Node::Dir { names: BTreeMap::new(), is_gone: false };
        Copy { nodes: [(ROOT, root)].into(), locks: BTreeMap::new() }
    }

    fn carry_out(&mut self, call: &Call, id: Ino) -> Did {
        match &call.op {
            Op::Lookup(place) => Ok(Answer::Ino(self.meaning(place)?)),
            Op::Create(place) => self.create(place, id, Node::File { records: Vec::new(), names: 1 }),
            Op::Mkdir(place) => self.create(place, id, Node::Dir { names: BTreeMap::new(), is_gone: false }),
            Op::Unlink(place) => self.unlink(place),
            Op::Rmdir(place) => self.rmdir(place),
            Op::Rename(from, to, mode) => self.rename(from, to, *mode),
            Op::Link(ino, place) => self.link(*ino, place),
            Op::List(dir) => Ok(Answer::Names(self.names_mut(*dir)?.keys().cloned().collect())),
            Op::Stat(ino) => self.stat(*ino),
            Op::Read(ino) => Ok(Answer::Records(self.records(*ino)?.clone())),
            Op::Peek(ino, at) => Ok(Answer::Records(self.records(*ino)?.get(*at).copied().into_iter().collect())),
            Op::Append(ino, record) => self.write(*ino, None, *record),
            Op::Put(ino, at, record) => self.write(*ino, Some(*at), *record),
            Op::Cut(ino) => {
                self.records(*ino)?.clear();
                Ok(Answer::Done)
            }
            Op::Lock(ino) => match *self.locks.entry(*ino).or_insert(call.client) == call.client {
                true => Ok(Answer::Done),
                false => Err(EAGAIN),
            },
            Op::Unlock(ino) => {
                self.locks.retain(|locked, client| locked != ino || *client != call.client);
                Ok(Answer::Done)
            }
            Op::End => {
                let before = self.locks.len();
                self.locks.retain(|_, client| *client != call.client);
                // Without locks it is not worth an attempt.
                if self.locks.len() < before {
                    Ok(Answer::Done)
                } else {
                    Err(ENOENT)
                }
            }
            Op::Batch(_) => unreachable!("a batch is carried out by itself"),
        }
    }

    /// All lines or none.
    fn batch(&mut self, lines: &[Line], id: Ino, answer: &Answer) -> bool {
        let before = self.clone();
        let refused = lines.iter().zip(id..).find_map(|(line, id)| self.line(line, id).err());
        if refused.is_some() {
            *self = before;
        }
        match answer {
            Answer::Done | Answer::Unknown => refused.is_none(),
            // Which line is refused is not compared, as each is planned at its own moment.
            Answer::Refused(_) => refused.is_some(),
            _ => false,
        }
    }

    fn line(&mut self, line: &Line, id: Ino) -> Did {
        match line {
            Line::Write(path, record) => {
                let place = self.place(path)?;
                let ino = match self.meaning(&place) {
                    Ok(ino) => ino,
                    Err(_) => {
                        self.create(&place, id, Node::File { records: Vec::new(), names: 1 })?;
                        id
                    }
                };
                *self.records(ino)? = vec![*record];
                Ok(Answer::Done)
            }
            Line::Append(path, record) => {
                let ino = self.meaning(&self.place(path)?)?;
                self.write(ino, None, *record)
            }
            Line::Remove(path) => self.unlink(&self.place(path)?),
            Line::Rename(from, to) => self.rename(&self.place(from)?, &self.place(to)?, Mode::Replace),
        }
    }

    fn place(&self, path: &str) -> Result<Place, i32> {
        let (dir, name) = match path.split_once('/') {
            Some((dir, name)) => (self.meaning(&Place { dir: ROOT, name: dir.to_owned() })?, name),
            None => (ROOT, path),
        };
        Ok(Place { dir, name: name.to_owned() })
    }

    /// Somebody is told the number of what had none so far.
    fn tell(&mut self, place: &Place, told: Ino) {
        let Ok(untold) = self.meaning(place) else { return };
        if untold < UNTOLD || self.nodes.contains_key(&told) {
            return;
        }
        if let Some(node) = self.nodes.remove(&untold) {
            self.nodes.insert(told, node);
        }
        for node in self.nodes.values_mut() {
            if let Node::Dir { names, .. } = node {
                names.values_mut().filter(|ino| **ino == untold).for_each(|ino| *ino = told);
            }
        }
    }

    fn names(&self, dir: Ino) -> Result<&BTreeMap<String, Ino>, i32> {
        match self.nodes.get(&dir) {
            Some(Node::Dir { names, .. }) => Ok(names),
            _ => Err(ENOENT),
        }
    }

    /// The names of a directory that may get another one.
    fn names_mut(&mut self, dir: Ino) -> Result<&mut BTreeMap<String, Ino>, i32> {
        match self.nodes.get_mut(&dir) {
            Some(Node::Dir { names, is_gone: false }) => Ok(names),
            _ => Err(ENOENT),
        }
    }

    fn meaning(&self, place: &Place) -> Result<Ino, i32> {
        self.names(place.dir)?.get(&place.name).copied().ok_or(ENOENT)
    }

    fn records(&mut self, ino: Ino) -> Result<&mut Vec<u32>, i32> {
        match self.nodes.get_mut(&ino) {
            Some(Node::File { records, .. }) => Ok(records),
            _ => Err(ENOENT),
        }
    }

    fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.nodes.get(&ino), Some(Node::Dir { .. }))
    }

    fn create(&mut self, place: &Place, id: Ino, node: Node) -> Did {
        let names = self.names_mut(place.dir)?;
        if names.contains_key(&place.name) {
            return Err(EEXIST);
        }
        names.insert(place.name.clone(), id);
        self.nodes.insert(id, node);
        Ok(Answer::Ino(id))
    }

    /// A name that is not there any more.
    fn lose_name(&mut self, ino: Ino) -> Result<(), i32> {
        match self.nodes.get_mut(&ino) {
            Some(Node::Dir { names, .. }) if !names.is_empty() => return Err(ENOTEMPTY),
            Some(Node::Dir { is_gone, .. }) => *is_gone = true,
            Some(Node::File { names, .. }) => *names -= 1,
            None => {}
        }
        Ok(())
    }

    fn unlink(&mut self, place: &Place) -> Did {
        let ino = self.names_mut(place.dir)?.remove(&place.name).ok_or(ENOENT)?;
        self.lose_name(ino)?;
        Ok(Answer::Done)
    }

    fn rmdir(&mut self, place: &Place) -> Did {
        let ino = self.meaning(place)?;
        self.lose_name(ino)?;
        self.names_mut(place.dir)?.remove(&place.name);
        Ok(Answer::Done)
    }

    fn rename(&mut self, from: &Place, to: &Place, mode: Mode) -> Did {
        let moved = self.meaning(from)?;
        self.names_mut(to.dir)?;
        let there = self.meaning(to).ok();
        match (mode, there) {
            (Mode::NoReplace, Some(_)) => return Err(EEXIST),
            (Mode::Exchange, None) => return Err(ENOENT),
            (Mode::Exchange, Some(other)) => {
                self.names_mut(from.dir)?.insert(from.name.clone(), other);
                self.names_mut(to.dir)?.insert(to.name.clone(), moved);
            }
            // Two names of one file stay as they are.
            (_, Some(other)) if other == moved => {}
            (_, other) => {
                other.map_or(Ok(()), |other| self.lose_name(other))?;
                self.names_mut(from.dir)?.remove(&from.name);
                self.names_mut(to.dir)?.insert(to.name.clone(), moved);
            }
        }
        Ok(Answer::Done)
    }

    fn link(&mut self, ino: Ino, place: &Place) -> Did {
        let is_gone = matches!(self.nodes.get(&ino), None | Some(Node::File { names: 0, .. }));
        let there = self.names_mut(place.dir)?;
        match (is_gone, there.contains_key(&place.name)) {
            (true, true) => return Err(ENOENT_OR_EEXIST),
            (true, false) => return Err(ENOENT),
            (false, true) => return Err(EEXIST),
            (false, false) => {}
        }
        there.insert(place.name.clone(), ino);
        if let Some(Node::File { names, .. }) = self.nodes.get_mut(&ino) {
            *names += 1;
        }
        Ok(Answer::Done)
    }

    fn stat(&self, ino: Ino) -> Did {
        match self.nodes.get(&ino) {
            Some(Node::File { records, names }) => Ok(Answer::Stat(records.len(), *names)),
            Some(Node::Dir { is_gone: true, .. }) | None => Err(ENOENT),
            Some(Node::Dir { names, .. }) => {
                let dirs = names.values().filter(|ino| self.is_dir(**ino)).count();
                Ok(Answer::Stat(0, 2 + dirs as u32))
            }
        }
    }

    fn write(&mut self, ino: Ino, at: Option<usize>, record: u32) -> Did {
        let records = self.records(ino)?;
        let at = at.unwrap_or(records.len());
        if records.len() <= at {
            records.resize(at + 1, 0);
        }
        records[at] = record;
        Ok(Answer::Done)
    }
}

/// The bytes of a record: text, as it has to stand in a list of a transaction.
pub fn bytes_of(record: u32) -> Vec<u8> {
    format!("{record:04x}").into_bytes().repeat(RECORD_BYTES / 4)
}

/// The records of a file; `None`: some bytes are of one, and some of another. What was never written is 0.
pub fn records_of(bytes: &[u8]) -> Option<Vec<u32>> {
    let whole = |record: &[u8]| record.len() == RECORD_BYTES && record.chunks(4).all(|other| other == &record[..4]);
    bytes.chunks(RECORD_BYTES).map(|record| whole(record).then(|| value(&record[..4]))?).collect()
}

/// The record of which this is a word; of no bytes none.
pub fn record_of(word: &[u8]) -> Vec<u32> {
    match word {
        [] => Vec::new(),
        // No copy has such contents.
        word => vec![value(word).unwrap_or(u32::MAX)],
    }
}

fn value(word: &[u8]) -> Option<u32> {
    match word {
        [0, 0, 0, 0] => Some(0),
        word => u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: Ino, name: &str) -> Place {
        Place { dir, name: name.to_owned() }
    }

    /// Carries calls out, one after the other; `None`: an answer is wrong.
    fn all(calls: &[(Op, Answer)]) -> Option<Copy> {
        calls.iter().enumerate().try_fold(Copy::new(), |copy, (id, (op, answer))| {
            let (op, answer) = (op.clone(), answer.clone());
            Copy::step(&copy, &Call { id: id as u64, client: (id % 2) as u32, op, answer })
        })
    }

    #[test]
    fn records() {
        let file = [bytes_of(7), vec![0; RECORD_BYTES], bytes_of(0xfff)].concat();
        assert_eq!(records_of(&file), Some(vec![7, 0, 0xfff]));
        assert_eq!(records_of(&file[..RECORD_BYTES + 1]), None);
        assert_eq!(records_of(&[bytes_of(1)[..4].to_vec(), bytes_of(2)[4..].to_vec()].concat()), None);
    }

    #[test]
    fn a_number_that_nobody_was_told_is_learnt_when_it_is_looked_up() {
        let made = (Op::Create(place(ROOT, "a")), Answer::Unknown);
        let looked = |ino| (Op::Lookup(place(ROOT, "a")), Answer::Ino(ino));
        let read = |ino, records: &[u32]| (Op::Read(ino), Answer::Records(records.to_vec()));
        assert!(all(&[made.clone(), looked(9), (Op::Append(9, 5), Answer::Done), read(9, &[5]), looked(9)]).is_some());
        assert!(all(&[made.clone(), looked(9), looked(10)]).is_none());
        assert!(all(&[made, looked(9), read(9, &[5])]).is_none());
    }

    #[test]
    fn names_of_files_and_directories() {
        let create = |dir, name, ino| (Op::Create(place(dir, name)), Answer::Ino(ino));
        let done = |op| (op, Answer::Done);
        let rename = |from: &str, to: &str, mode| Op::Rename(place(ROOT, from), place(ROOT, to), mode);
        let right = [
            (Op::Mkdir(place(ROOT, "p")), Answer::Ino(5)),
            create(5, "a", 6),
            (Op::Rmdir(place(ROOT, "p")), Answer::Refused(ENOTEMPTY)),
            done(rename("p", "q", Mode::Replace)),
            (Op::Create(place(5, "a")), Answer::Refused(EEXIST)),
            done(Op::Link(6, place(ROOT, "b"))),
            (Op::Stat(6), Answer::Stat(0, 2)),
            create(ROOT, "a", 7),
            done(rename("a", "b", Mode::Exchange)),
            (Op::Lookup(place(ROOT, "b")), Answer::Ino(7)),
            done(Op::Unlink(place(5, "a"))),
            done(Op::Rmdir(place(ROOT, "q"))),
            (Op::Create(place(5, "c")), Answer::Refused(ENOENT)),
            (Op::Stat(ROOT), Answer::Stat(0, 2)),
            (Op::List(ROOT), Answer::Names(vec!["a".to_owned(), "b".to_owned()])),
        ];
        assert!(all(&right).is_some());
        for wrong in 0..right.len() {
            let mut calls = right.to_vec();
            calls[wrong].1 = Answer::Refused(EAGAIN);
            assert!(all(&calls).is_none(), "{:?}", right[wrong].0);
        }
    }

    #[test]
    fn a_transaction_happens_as_a_whole() {
        let lines = |last| vec![Line::Write("a".to_owned(), 1), Line::Rename("a".to_owned(), "b".to_owned()), last];
        let good = lines(Line::Append("b".to_owned(), 2));
        let bad = lines(Line::Append("a".to_owned(), 2));
        let listed = |names: &[&str]| (Op::List(ROOT), Answer::Names(names.iter().map(|&name| name.into()).collect()));
        assert!(all(&[(Op::Batch(good.clone()), Answer::Done), listed(&["b"])]).is_some());
        assert!(all(&[(Op::Batch(bad.clone()), Answer::Refused(ENOENT)), listed(&[])]).is_some());
        assert!(all(&[(Op::Batch(bad), Answer::Done)]).is_none());
        assert!(all(&[(Op::Batch(good), Answer::Refused(ENOENT))]).is_none());
    }

    #[test]
    fn a_lock_is_one_client_s_until_it_gives_it_back_or_ends() {
        // The calls are those of clients 0 and 1 in turn.
        let lock = |answer| (Op::Lock(9), answer);
        let busy = Answer::Refused(EAGAIN);
        assert!(
            all(&[lock(Answer::Done), lock(busy.clone()), (Op::Unlock(9), Answer::Done), lock(Answer::Done)]).is_some()
        );
        assert!(all(&[lock(Answer::Done), lock(Answer::Done)]).is_none());
        assert!(all(&[lock(Answer::Done), lock(busy), (Op::End, Answer::Unknown), lock(Answer::Done)]).is_some());
    }
}
