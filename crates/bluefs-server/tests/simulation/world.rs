//! Clients, a server with its disk, and lines between them, in simulated time. Lines are slow and break; clients stop
//! and are killed; the server crashes in the middle of a turn, and is started again with its disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bluefs::lease::{Millis, TERM_MS};
use bluefs::query::{Answer, Query};
use bluefs::{Change, Cred, Csn, Ino, Interval, Kind, Name, Outcome, Runs, SessionId, Step, Time};
use bluefs_server::{Action, ConnectionId, Engine, Event, Now};
use bluefs_store::{CrashDisk, Store};
use bluefs_wire::{Reply, Request, PROTOCOL_VERSION};

use crate::client::{contents, Client};
use crate::history::History;
use crate::support::Numbered;
use crate::{Dice, Fault};

const CLIENTS: usize = 4;
/// A server looks at its clock at least so often.
const TURN_MS: Millis = 1_000;
/// How long what is under way may take at the end: leases, exclusive ones and sessions that are over.
const END_MS: Millis = 120_000;
/// How long the last messages need.
const SETTLE_MS: Millis = 100;
const PROBE: ConnectionId = ConnectionId(0);

#[derive(Debug)]
enum Down {
    Reply(Reply),
    Closed,
}

/// A connection. What is in it arrives in order.
#[derive(Debug, Default)]
struct Line {
    up: VecDeque<(Millis, Event)>,
    down: VecDeque<(Millis, Down)>,
}

pub struct World {
    fault: Option<Fault>,
    dice: Dice,
    now: Millis,
    disk: CrashDisk,
    engine: Option<Engine>,
    /// When the server was started, or will be.
    started: Millis,
    /// When it looks at its clock next, and until when it is busy.
    look_at: Millis,
    access: Numbered,
    lines: BTreeMap<ConnectionId, Line>,
    last_line: u64,
    clients: Vec<Client>,
    /// Each client's connection, when it tries again to have one, and until when it is stopped.
    connected: Vec<Option<ConnectionId>>,
    again_at: Vec<Millis>,
    stopped_until: Vec<Millis>,
    sessions: BTreeMap<ConnectionId, SessionId>,
    files: Vec<Ino>,
    last_name: u64,
    is_calm: bool,
    history: History,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>) -> World {
        let disk = CrashDisk::new();
        let mut world = World {
            fault,
            dice: Dice(seed),
            now: 0,
            engine: Some(engine(&disk, 0)),
            disk,
            started: 0,
            look_at: 0,
            access: Numbered::default(),
            lines: BTreeMap::new(),
            last_line: 0,
            clients: Vec::new(),
            connected: vec![None; CLIENTS],
            again_at: vec![0; CLIENTS],
            stopped_until: vec![0; CLIENTS],
            sessions: BTreeMap::new(),
            files: Vec::new(),
            last_name: 0,
            is_calm: false,
            history: History::default(),
        };
        world.files = world.make_files();
        for _ in 0..CLIENTS {
            let client = world.new_client();
            world.clients.push(client);
        }
        world
    }

    /// Runs for so long, lets everything come to its end, and says what was wrong.
    pub fn run(mut self, millis: Millis) -> (Vec<String>, [usize; 4]) {
        while self.now < millis {
            self.strike();
            self.step();
        }
        self.is_calm = true;
        self.clients.iter_mut().for_each(|client| client.is_ending = true);
        while self.now < millis + END_MS && !(self.engine.is_some() && self.clients.iter().all(Client::is_idle)) {
            self.step();
        }
        (0..SETTLE_MS).for_each(|_| self.step());
        for client in self.clients.iter().filter(|client| !client.is_idle()) {
            self.history.wrong.push(format!("it does not end: {}", client.doing()));
        }
        let counts = self.history.counts();
        let (end, left) = self.what_is_there();
        let mut wrong = self.history.check(&end);
        wrong.extend(left);
        (wrong, counts)
    }

    fn new_client(&mut self) -> Client {
        self.last_name += 1;
        Client::new(self.last_name, self.files.clone(), self.fault)
    }

    fn step(&mut self) {
        self.now += 1;
        if self.engine.is_none() && self.now >= self.started {
            self.start();
        }
        if self.engine.is_some() {
            self.serve();
        }
        for i in 0..CLIENTS {
            if self.stopped_until[i] <= self.now {
                self.run_client(i);
            }
        }
    }

    fn run_client(&mut self, i: usize) {
        while let Some(id) = self.connected[i] {
            let line = self.lines.get_mut(&id).expect("a client's connection");
            match line.down.front() {
                Some((at, _)) if *at <= self.now => {}
                _ => break,
            }
            match line.down.pop_front().expect("looked at").1 {
                Down::Reply(reply) => self.clients[i].receive(reply, self.now, &mut self.dice, &mut self.history),
                Down::Closed => self.disconnect(i),
            }
        }
        self.clients[i].run(self.now, &mut self.dice, &mut self.history);
        if self.connected[i].is_none() && self.again_at[i] <= self.now && self.engine.is_some() {
            self.connect(i);
        }
        let out = std::mem::take(&mut self.clients[i].out);
        if let Some(id) = self.connected[i].filter(|_| self.clients[i].welcome) {
            out.into_iter().for_each(|request| self.send_up(id, Event::Message(id, request)));
        }
    }

    fn connect(&mut self, i: usize) {
        self.last_line += 1;
        let id = ConnectionId(self.last_line);
        self.lines.insert(id, Line::default());
        self.connected[i] = Some(id);
        let hello = self.clients[i].hello();
        self.send_up(id, Event::Opened(id));
        self.send_up(id, Event::Message(id, hello));
    }

    /// The client notices that its connection is gone.
    fn disconnect(&mut self, i: usize) {
        if let Some(id) = self.connected[i].take() {
            self.lines.entry(id).or_default().down.clear();
        }
        self.clients[i].disconnected();
        self.again_at[i] = self.now + self.dice.roll(500);
    }

    fn delay(&mut self) -> Millis {
        if self.is_calm {
            2
        } else if self.dice.roll(60) == 0 {
            self.dice.roll(2_000)
        } else {
            1 + self.dice.roll(20)
        }
    }

    fn send_up(&mut self, id: ConnectionId, event: Event) {
        let at = self.now + self.delay();
        let line = self.lines.get_mut(&id).expect("it is there");
        let at = line.up.back().map_or(at, |(last, _)| at.max(*last));
        line.up.push_back((at, event));
    }

    fn send_down(&mut self, id: ConnectionId, down: Down) {
        let at = self.now + self.delay();
        let Some(line) = self.lines.get_mut(&id) else { return };
        let at = line.down.back().map_or(at, |(last, _)| at.max(*last));
        line.down.push_back((at, down));
    }

    fn serve(&mut self) {
        let mut events = Vec::new();
        for line in self.lines.values_mut() {
            while line.up.front().is_some_and(|(at, _)| *at <= self.now) {
                events.push(line.up.pop_front().expect("looked at").1);
            }
        }
        if events.is_empty() && self.now < self.look_at {
            return;
        }
        let deeds = self.disk.deeds();
        let now = self.server_time();
        let engine = self.engine.as_mut().expect("it runs");
        let actions = engine.handle(events, now, &self.access).expect("a turn");
        let next = engine.next_turn().map_or(Millis::MAX, |at| at.saturating_sub(now.millis));
        self.look_at = self.now + next.clamp(1, TURN_MS);
        let crashes = !self.is_calm && self.dice.roll(4_000) == 0;
        for action in actions {
            self.perform(action, crashes && self.fault != Some(Fault::RepliesBeforeSync));
        }
        if crashes {
            self.crash(deeds);
        }
        let connected = &self.connected;
        self.lines.retain(|id, line| connected.contains(&Some(*id)) || !line.up.is_empty());
    }

    fn server_time(&self) -> Now {
        let mut millis = self.now - self.started;
        match self.fault {
            Some(Fault::GraceSkipped) => millis += if self.started == 0 { 0 } else { TERM_MS },
            Some(Fault::ServerClockFast) => millis *= 3,
            _ => {}
        }
        Now { millis, wall: Time(self.now as i64 * 1_000_000) }
    }

    fn perform(&mut self, action: Action, is_lost: bool) {
        match action {
            Action::Send(id, reply) => {
                if let Reply::Welcome { session, .. } = &reply {
                    self.sessions.insert(id, *session);
                }
                if let Reply::Decided { number, outcome: Outcome::Committed { csn, .. } } = &reply {
                    self.history.committed(self.sessions[&id], *number, *csn, self.now);
                }
                if !is_lost {
                    self.send_down(id, Down::Reply(reply));
                }
            }
            Action::Close(id) => {
                self.send_down(id, Down::Closed);
                if let Some(line) = self.lines.get_mut(&id) {
                    line.up.clear();
                }
            }
        }
    }

    /// The server crashes in the turn that began behind so many deeds of its disk.
    fn crash(&mut self, deeds: usize) {
        let at = deeds + self.dice.roll((self.disk.deeds() - deeds) as u64 + 1) as usize;
        let mode = self.dice.roll(3);
        let dice = &mut self.dice;
        self.disk = self.disk.crash(at, |bytes| match mode {
            0 => 0,
            1 => bytes,
            _ => dice.roll(bytes as u64 + 1) as usize,
        });
        self.engine = None;
        self.started = self.now + 1 + self.dice.roll(1_500);
        let lost = self.fault != Some(Fault::RepliesBeforeSync);
        for i in 0..CLIENTS {
            let Some(id) = self.connected[i] else { continue };
            self.clients[i].cut(self.now);
            let notices = self.now + self.dice.roll(8_000);
            let line = self.lines.get_mut(&id).expect("a client's connection");
            line.up.clear();
            if lost {
                line.down.clear();
            }
            line.down.push_back((notices, Down::Closed));
        }
    }

    fn start(&mut self) {
        let mut engine = engine(&self.disk, 0);
        let newest = self.probe(&mut engine, vec![]).0;
        self.history.restarted(newest);
        self.engine = Some(engine);
        self.look_at = self.now;
        self.history.alone.iter_mut().for_each(|one| one.to = one.to.min(self.started));
    }

    /// What goes wrong now.
    fn strike(&mut self) {
        let i = self.dice.roll(CLIENTS as u64) as usize;
        match self.dice.roll(12_000) {
            0..=3 => self.cut(i),
            4 | 5 => self.stopped_until[i] = self.now + self.dice.roll(25_000),
            6 => {
                self.clients[i].killed(self.now, &mut self.history);
                self.cut(i);
                if let Some(id) = self.connected[i].take() {
                    self.lines.entry(id).or_default().down.clear();
                }
                self.clients[i] = self.new_client();
            }
            7 if self.fault == Some(Fault::LockTakenAway) => self.take_a_lock_away(i),
            _ => {}
        }
    }

    /// A connection breaks. Each end notices it when it does.
    fn cut(&mut self, i: usize) {
        let Some(id) = self.connected[i] else { return };
        self.clients[i].cut(self.now);
        let (client, server) = (self.now + self.dice.roll(15_000), self.now + self.dice.roll(12_000));
        let line = self.lines.get_mut(&id).expect("a client's connection");
        let now = self.now;
        line.down.retain(|(at, _)| *at <= now);
        line.down.push_back((client, Down::Closed));
        line.up.retain(|(at, _)| *at <= now);
        line.up.push_back((server, Event::Closed(id)));
        // What is sent from now on arrives nowhere.
        let session = self.sessions.get(&id).copied();
        let gone = std::mem::take(line);
        self.last_line += 1;
        let dead = ConnectionId(self.last_line);
        self.lines.insert(id, Line { up: gone.up, down: VecDeque::new() });
        self.lines.insert(dead, Line { up: VecDeque::new(), down: gone.down });
        self.connected[i] = Some(dead);
        if let Some(session) = session {
            self.sessions.insert(dead, session);
        }
    }

    fn take_a_lock_away(&mut self, i: usize) {
        let Some(id) = self.connected[i] else { return };
        for ino in self.files.clone() {
            let (kind, start, end) = (bluefs_wire::LockKind::Unlock, 0, u64::MAX);
            let lock = bluefs_wire::LockRequest { ino, owner: 1, kind, start, end, wait: false };
            self.send_up(id, Event::Message(id, Request::Lock { tag: 0, lock }));
        }
    }

    /// What a client without a history is told: the newest commit, and these answers.
    fn probe(&self, engine: &mut Engine, queries: Vec<Query>) -> (Csn, Vec<Answer>) {
        let (version, volume, secret) = (PROTOCOL_VERSION, vec![], vec![]);
        let hello = Request::Hello { version, volume, session: None, acknowledged: 0, secret };
        let cred = Cred::root();
        let ask = |(tag, query): (usize, Query)| Request::Ask { tag: tag as u64, cred: cred.clone(), query };
        let ask = queries.into_iter().enumerate().map(ask);
        let messages = [hello].into_iter().chain(ask).chain([Request::Goodbye {}]);
        let events = messages.map(|message| Event::Message(PROBE, message));
        let events = [Event::Opened(PROBE)].into_iter().chain(events).collect();
        let actions = engine.handle(events, self.server_time(), &self.access).expect("a turn");
        let mut newest = Csn(0);
        let mut answers = Vec::new();
        for action in actions {
            match action {
                Action::Send(PROBE, Reply::Welcome { csn, .. }) => newest = csn,
                Action::Send(PROBE, Reply::Answer { answer, .. }) => answers.push(answer),
                _ => {}
            }
        }
        (newest, answers)
    }

    /// What is in the files at the end, and what is there that nobody has.
    fn what_is_there(&mut self) -> (Vec<Vec<u64>>, Option<String>) {
        // What is on its way arrives; then sessions that are over let go of what they had open.
        for _ in 0..2 {
            self.now += END_MS;
            self.serve();
        }
        let mut engine = self.engine.take().expect("it runs");
        let mut queries: Vec<Query> =
            self.files.iter().map(|ino| Query::Read { ino: *ino, offset: 0, len: 1 << 20 }).collect();
        queries.push(Query::Space);
        queries.push(Query::List { dir: Ino::ROOT, after: None, max: 100 });
        let (_, answers) = self.probe(&mut engine, queries);
        let [files @ .., Answer::Space(space), Answer::Names { names, .. }] = &answers[..] else {
            panic!("answers: {answers:?}")
        };
        let named = 1 + names.len() as u64;
        let left = (space.used_inodes != named).then(|| format!("{} inodes, {named} named", space.used_inodes));
        (files.iter().map(contents).collect(), left)
    }

    /// Four files, two of them in one group.
    fn make_files(&mut self) -> Vec<Ino> {
        let mut engine = self.engine.take().expect("it runs");
        let (version, volume, secret) = (PROTOCOL_VERSION, vec![], vec![]);
        let hello = Request::Hello { version, volume, session: None, acknowledged: 0, secret };
        let mut events = vec![Event::Opened(PROBE), Event::Message(PROBE, hello)];
        events.extend((0..3).map(|tag| Event::Message(PROBE, Request::Lend { tag })));
        let actions = engine.handle(events, self.server_time(), &self.access).expect("a turn");
        let lent = actions.iter().filter_map(|action| match action {
            Action::Send(_, Reply::Lent { group, .. }) => Some(*group),
            _ => None,
        });
        let mut files: Vec<Ino> = lent.map(|group| Ino(group.inodes().start)).collect();
        files.push(Ino(files[0].0 + 1));
        let step = |(i, ino): (usize, &Ino)| {
            let name = Name::new(format!("file{i}").as_bytes()).expect("a name");
            let (kind, dir, ino) = (Kind::File, Ino::ROOT, Some(*ino));
            let change = Change::Create { dir, name, ino, kind, mode: 0o644, rdev: 0, target: vec![] };
            Step { cred: 0, time: None, change }
        };
        let steps = files.iter().enumerate().map(step).collect();
        let (after, reads, creds) = (Runs::new(), vec![], vec![Cred::root()]);
        let interval = Interval { number: 1, base: Csn(0), after, reads, creds, steps };
        let events = [Request::Submit { interval }, Request::Goodbye {}].map(|message| Event::Message(PROBE, message));
        engine.handle(events.into(), self.server_time(), &self.access).expect("a turn");
        self.engine = Some(engine);
        files
    }
}

fn engine(disk: &CrashDisk, millis: Millis) -> Engine {
    let store = Store::on(Arc::new(disk.clone())).expect("a store").store;
    let mut engine = Engine::new(store, Now { millis, wall: Time(0) }, || millis).expect("an engine");
    engine.set_quiet(50);
    engine
}
