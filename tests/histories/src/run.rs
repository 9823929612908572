//! One history: clients do what they draw, faults befall them, and at the end everything is looked at.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bluefs_client::{Client, OnDisconnect};

use crate::call::{Answer, Call, Ino, Op, Place, DIRS, FILES, ROOT};
use crate::draw::Drawer;
use crate::linear::Timed;
use crate::plan::{Fault, Plan, CALLS};
use crate::planted::Planted;
use crate::scene::{NoAnswer, Scene, Worker};
use crate::worker::{Session, Worker as _};

const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a client waits that does not know what has become of its call.
const AFTER_UNKNOWN: Duration = Duration::from_millis(300);
/// How long the server is away, at most.
const AWAY_MAX: u64 = 200;

/// What has happened.
#[derive(Default)]
pub struct Happened {
    pub calls: Vec<Timed<Call>>,
    /// What should not happen, whatever was told.
    pub problems: Vec<String>,
    pub faults: usize,
}

/// Somebody who uses a client.
struct Lane {
    member: usize,
    /// Its number in the history: another one after each start. 0: none yet.
    client: AtomicU32,
}

struct Run<'s> {
    scene: &'s Scene,
    plan: &'s Plan,
    lanes: Vec<Lane>,
    clock: AtomicU64,
    next_call: AtomicU64,
    next_client: AtomicU32,
    happened: Mutex<Happened>,
}

/// Lets a history happen.
pub fn run(speculator: &Path, seed: u64, plan: &Plan, planted: Option<Planted>) -> io::Result<Happened> {
    let scene = Scene::new(speculator, plan, planted)?;
    let members = scene.members.iter().enumerate();
    let lane = |member| Lane { member, client: AtomicU32::new(0) };
    let lanes = members.flat_map(|(i, member)| std::iter::repeat_n(i, member.process_count())).map(lane).collect();
    let (clock, next_call, next_client) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(1));
    let run = Run { scene: &scene, plan, lanes, clock, next_call, next_client, happened: Mutex::default() };
    run.play(seed);
    run.look_at_all();
    let mut happened = run.happened.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let said = scene.end()?;
    happened.problems.extend(said.map(|said| format!("speculator fsck: {said}")));
    Ok(happened)
}

impl Run<'_> {
    fn happened(&self) -> MutexGuard<'_, Happened> {
        self.happened.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn problem(&self, problem: String) {
        self.happened().problems.push(problem);
    }

    fn play(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
        std::thread::scope(|scope| {
            for lane in &self.lanes {
                let random = random.fork();
                scope.spawn(move || self.use_client(lane, random));
            }
            let mut away = random.fork();
            for (at, fault) in &self.plan.faults {
                while self.next_call.load(Ordering::SeqCst) < *at {
                    std::thread::sleep(LOOK_EVERY);
                }
                self.happened().faults += 1;
                let away = Duration::from_millis(away.u64(..AWAY_MAX));
                match fault {
                    Fault::Hold { .. } | Fault::Stop { .. } => _ = scope.spawn(move || self.befall(*fault, away)),
                    _ => self.befall(*fault, away),
                }
            }
        });
    }

    fn befall(&self, fault: Fault, away: Duration) {
        let members = &self.scene.members;
        match fault {
            Fault::Server => {
                if let Err(error) = self.scene.restart_server(away) {
                    self.problem(format!("the server does not start again: {error}"));
                }
            }
            Fault::Cut(member) => members[member].link.cut(),
            Fault::Hold { member, up, down, lasts } => {
                members[member].link.hold(up, down);
                std::thread::sleep(lasts);
                members[member].link.hold(false, false);
            }
            Fault::Kill(member) => {
                // From now on what its processes have locked may be given to others.
                let clients = self.lanes.iter().filter(|lane| lane.member == member);
                clients.for_each(|lane| self.ends(lane.client.load(Ordering::SeqCst), self.tick()));
                members[member].kill();
            }
            Fault::Stop { member, lasts } => {
                members[member].stop();
                std::thread::sleep(lasts);
                members[member].go_on();
            }
        }
    }

    fn ends(&self, client: u32, began: u64) {
        let call = Call { id: 0, client, op: Op::End, answer: Answer::Unknown };
        self.happened().calls.push(Timed { call, began, returned: None });
    }

    fn use_client(&self, lane: &Lane, mut random: fastrand::Rng) {
        let member = &self.scene.members[lane.member];
        let mut drawer = Drawer::new(random.fork(), self.plan.lookers[lane.member], self.plan.looks_into_pages);
        let mut worker: Option<(Worker, u64)> = None;
        while self.next_call.load(Ordering::SeqCst) < CALLS {
            if worker.is_none() {
                let client = self.next_client.fetch_add(1, Ordering::SeqCst);
                lane.client.store(client, Ordering::SeqCst);
                drawer.forget();
                match self.scene.worker(member) {
                    Ok(begun) => worker = Some((begun, self.tick())),
                    Err(error) => return self.problem(format!("no process of a client: {error}")),
                }
            }
            let id = self.next_call.fetch_add(1, Ordering::SeqCst);
            let Some((process, _)) = worker.as_mut().filter(|_| id < CALLS) else { break };
            let op = drawer.next(id);
            let told = self.call(lane, id, &op, |op| process.ask(op));
            match told {
                // Calls whose outcome is not known make a history hard to judge: a client does not go on making them.
                Ok(Answer::Unknown) => std::thread::sleep(AFTER_UNKNOWN),
                Ok(answer) => drawer.told(&op, &answer),
                Err(why) => {
                    if why == NoAnswer::Late {
                        self.problem(format!("no answer to {op:?}"));
                    }
                    if let Some((process, since)) = worker.take() {
                        // It may have been told long ago that it has lost its locks.
                        self.ends(lane.client.load(Ordering::SeqCst), since);
                        process.end(member);
                    }
                }
            }
            std::thread::sleep(self.plan.pace.mul_f64(random.f64()));
        }
        if let Some((process, _)) = worker {
            self.ends(lane.client.load(Ordering::SeqCst), self.tick());
            process.end(member);
        }
    }

    fn call<E>(
        &self,
        lane: &Lane,
        id: u64,
        op: &Op,
        mut ask: impl FnMut(&Op) -> Result<Answer, E>,
    ) -> Result<Answer, E> {
        let (client, began) = (lane.client.load(Ordering::SeqCst), self.tick());
        let told = ask(op);
        let now = self.tick();
        let answer = told.as_ref().ok().cloned().unwrap_or(Answer::Unknown);
        let returned = (answer != Answer::Unknown).then_some(now);
        let says_something = answer != Answer::NotDone && (returned.is_some() || !op.only_looks());
        if says_something {
            let call = Call { id, client, op: op.clone(), answer };
            self.happened().calls.push(Timed { call, began, returned });
        }
        told
    }

    /// A client that was not there before looks at everything.
    fn look_at_all(&self) {
        let connected =
            self.scene.address().parse().map_err(|error| format!("{error}")).and_then(|address| {
                Client::connect(address, None, OnDisconnect::Block).map_err(|error| error.to_string())
            });
        let client = match connected {
            Ok(client) => client,
            Err(error) => return self.problem(error),
        };
        let mut session = Session::new(client, None);
        let lane = Lane { member: 0, client: AtomicU32::new(self.next_client.fetch_add(1, Ordering::SeqCst)) };
        let mut id = CALLS;
        let mut look = |op: Op| {
            id += 1;
            let told = self.call(&lane, id, &op, |op| Ok::<_, Infallible>(session.carry_out(op)));
            told.unwrap_or_else(|never| match never {})
        };
        let mut look_into = |dir: Ino| {
            look(Op::List(dir));
            for name in FILES {
                if let Answer::Ino(file) = look(Op::Lookup(Place { dir, name: name.to_owned() })) {
                    look(Op::Stat(file));
                    look(Op::Read(file));
                }
            }
            let found = DIRS.map(|name| look(Op::Lookup(Place { dir, name: name.to_owned() })));
            found
                .into_iter()
                .filter_map(|told| if let Answer::Ino(dir) = told { Some(dir) } else { None })
                .collect::<Vec<_>>()
        };
        for dir in look_into(ROOT) {
            look_into(dir);
        }
    }
}
