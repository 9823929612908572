//! What a history is made of: who takes part, and what befalls them. All of it follows from a seed.

use std::time::Duration;

use crate::planted::Planted;

/// Calls of a history, before everything is looked at.
pub const CALLS: u64 = 150;

/// How long clients wait between calls, at most: who looks at pages looks often, as a page that stays too long shows
/// for a moment only.
const PACE_MAX_MS: u64 = 25;
const PACE_OF_PAGES_MAX_MS: u64 = 8;

/// One plan in so many has both a server that starts again and clients that are killed.
const PATIENT: u64 = 16;

/// What a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A session of its own; whether callers wait for a lost connection.
    Session { waits: bool },
    /// A mount, with so many processes that use it.
    Mount { processes: usize },
}

/// What befalls one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server is killed, and started again.
    Server,
    /// The connections of a client end.
    Cut(usize),
    /// Nothing arrives for a while: at the server, at the client.
    Hold { member: usize, up: bool, down: bool, lasts: Duration },
    /// The client is killed.
    Kill(usize),
    /// The client is stopped for a while.
    Stop { member: usize, lasts: Duration },
}

/// All of that.
#[derive(Debug, Clone)]
pub struct Plan {
    pub members: Vec<Kind>,
    /// Which of them only look, and how rarely at something else: with what they have in their caches they go on also
    /// without a server.
    pub lookers: Vec<Option<u8>>,
    /// Some few files are written and looked at, mostly through what the kernel has of them.
    pub looks_into_pages: bool,
    /// How long a lease lasts.
    pub term: Duration,
    /// How long after a change others get no lease.
    pub pause: Duration,
    /// Clients wait so long between calls, at most.
    pub pace: Duration,
    /// Each with the number of the call before which it begins.
    pub faults: Vec<(u64, Fault)>,
}

/// How often somebody who looks looks at the same, of those whose leases last too long.
const LOOKS_AT_THE_SAME: u8 = 24;

impl Plan {
    /// The plan of this seed; `mounts`: whether some clients may be mounts; `pages`: some are, and look into pages.
    pub fn draw(seed: u64, mounts: bool, pages: bool, planted: Option<Planted>) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed);
        // Mounts take long to come about, and longer terms.
        let pages = pages || planted == Some(Planted::LatePages);
        let mounts = mounts && (pages || planted.is_none() && random.u8(..4) == 0);
        let looks_into_pages = mounts && (pages || random.bool());
        let members: Vec<Kind> = (0..random.usize(2..=4)).map(|i| kind(&mut random, mounts && i < 2)).collect();
        // The kernel is told of a lease less 2 s.
        let term = Duration::from_millis(if mounts { 3_500 } else { 800 });
        let lookers = members.iter().map(|_| (random.u8(..5) == 0).then_some(16)).collect();
        let pace_max_ms = if looks_into_pages { PACE_OF_PAGES_MAX_MS } else { PACE_MAX_MS };
        let mut plan = Plan {
            members,
            lookers,
            looks_into_pages,
            term,
            pause: Duration::from_millis(10),
            pace: Duration::from_millis(random.u64(2..pace_max_ms)),
            faults: vec![],
        };
        let count = random.usize(0..=6);
        plan.faults = (0..count).map(|_| (random.u64(..CALLS), plan.fault(&mut random))).collect();
        // A server that was started again waits 30 s for a session that is gone.
        let restarts = plan.faults.iter().any(|(_, fault)| *fault == Fault::Server);
        if restarts && !seed.is_multiple_of(PATIENT) {
            plan.faults.retain(|(_, fault)| !matches!(fault, Fault::Kill(_)));
        }
        plan.plant(&mut random, planted);
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    fn fault(&self, random: &mut fastrand::Rng) -> Fault {
        let member = random.usize(..self.members.len());
        // Some last longer than a lease.
        let lasts = self.term.mul_f64(random.f64() * 1.6);
        match random.u8(..10) {
            0..2 => Fault::Server,
            2..4 => Fault::Cut(member),
            4..7 => {
                let (up, down) = [(true, true), (true, false), (false, true)][random.usize(..3)];
                Fault::Hold { member, up, down, lasts }
            }
            7 => Fault::Kill(member),
            _ => Fault::Stop { member, lasts },
        }
    }

    /// What it takes for an error to show.
    fn plant(&mut self, random: &mut fastrand::Rng, planted: Option<Planted>) {
        let mut all: Vec<usize> = (0..self.members.len()).collect();
        random.shuffle(&mut all);
        let mut at = || random.u64(30..CALLS - 20);
        match planted {
            Some(Planted::LongLeases) => {
                // One who looks and one who writes: several who wait to write would keep the first one from having a
                // lease at all.
                (self.term, self.pause, self.pace) =
                    (Duration::from_millis(100), Duration::ZERO, Duration::from_millis(30));
                self.members = vec![Kind::Session { waits: true }; 2];
                self.lookers = vec![Some(LOOKS_AT_THE_SAME), None];
                let hold = Fault::Hold { member: 0, up: true, down: true, lasts: self.term * 5 };
                // One after the other.
                self.faults = [30, 70, 110].map(|at| (at, hold)).to_vec();
            }
            Some(Planted::StaleAfterReconnection) => {
                self.faults = (0..30).map(|i| (at(), Fault::Cut(all[i % all.len()]))).collect();
            }
            Some(Planted::LostCommits) => self.faults = vec![(at(), Fault::Server)],
            Some(Planted::AppendedTwice) => {
                self.members.iter_mut().for_each(|member| *member = Kind::Session { waits: false });
                self.faults = (0..12).map(|i| (at(), Fault::Cut(all[i % all.len()]))).collect();
            }
            Some(_) => self.faults.clear(),
            None => {}
        }
    }
}

fn kind(random: &mut fastrand::Rng, mount: bool) -> Kind {
    match mount {
        true => Kind::Mount { processes: random.usize(1..=2) },
        false => Kind::Session { waits: random.u8(..3) > 0 },
    }
}
