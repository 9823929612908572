//! Injection: chosen system calls become speculations whose predicted result is right or wrong at random, and which are
//! resolved after a delay. It is the test bed of everything in this module, and shows the machine at work.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::{process, Call};
use crate::event_loop::Supervisor;
use agent_abi::Frame;
use procfs::ProcessId;
use speculation::{Access, SpeculationId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};
use syscall_table::nr;
use syscall_table::Op;
use tracee::Stopped;

/// A kind of call that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Opening a file.
    Open,
    /// Looking at a name or a file: `stat`, `access`, `readlink`, …
    Stat,
    /// Reading data.
    Read,
    /// Writing data.
    Write,
    /// Reading a directory.
    Readdir,
    /// Giving another name.
    Rename,
    /// Removing a name.
    Unlink,
    /// Making a directory.
    Mkdir,
    /// Starting a program.
    Exec,
    /// Making a child.
    Fork,
    /// Waiting for a child.
    Wait,
    /// Closing a descriptor.
    Close,
}

const FAMILIES: [(Family, &str); 12] = [
    (Family::Open, "open"),
    (Family::Stat, "stat"),
    (Family::Read, "read"),
    (Family::Write, "write"),
    (Family::Readdir, "readdir"),
    (Family::Rename, "rename"),
    (Family::Unlink, "unlink"),
    (Family::Mkdir, "mkdir"),
    (Family::Exec, "exec"),
    (Family::Fork, "fork"),
    (Family::Wait, "wait"),
    (Family::Close, "close"),
];

/// One family's share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How likely a prediction is wrong, 0 to 1.
    pub wrong: f64,
    /// How long until it is known.
    pub delay: Duration,
}

/// What `--inject` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Injection {
    /// By family.
    pub rates: BTreeMap<Family, Rate>,
    /// Where chance begins: the same seed, the same choices.
    pub seed: u64,
}

/// Why a text is not an injection.
#[derive(Debug, thiserror::Error)]
pub enum InjectionError {
    /// The family is not known.
    #[error(
        "'{0}' is no family of calls; there are open, stat, read, write, readdir, rename, unlink, mkdir, exec, fork, \
         wait, close and all"
    )]
    Family(String),
    /// Not a number between 0 and 1, or a percentage.
    #[error("'{0}' is no probability; write a number from 0 to 1, or a percentage")]
    Probability(String),
    /// Not a number of milliseconds.
    #[error("'{0}' is no delay; write milliseconds, at most 60000")]
    Delay(String),
    /// Neither two nor three parts.
    #[error("'{0}' is not CALL:PROBABILITY[:DELAY_MS]")]
    Form(String),
}

const DELAY: Duration = Duration::from_millis(5);

/// When injected guesses are resolved, and how.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Deadlines {
    /// Of those that are due at the same time the older first.
    due: BTreeMap<(Instant, u64), (SpeculationId, bool)>,
    last: u64,
}

impl Deadlines {
    fn add(&mut self, at: Instant, id: SpeculationId, is_right: bool) {
        self.last += 1;
        self.due.insert((at, self.last), (id, is_right));
    }

    /// One that is to be resolved by now, and whether it was right.
    pub fn take_due(&mut self, now: Instant) -> Option<(SpeculationId, bool)> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    pub fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|&(at, _)| at)
    }

    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

impl Injection {
    /// Nothing is chosen.
    pub fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    /// The calls of `CALL:PROBABILITY[:DELAY_MS][,…]`.
    pub fn parse(text: &str) -> Result<Self, InjectionError> {
        let mut injection = Self::default();
        for part in text.split(',') {
            let words: Vec<&str> = part.split(':').collect();
            let (name, probability, delay) = match words[..] {
                [name, probability] => (name, probability, DELAY),
                [name, probability, delay] => (name, probability, parse_delay(delay)?),
                _ => return Err(InjectionError::Form(part.to_owned())),
            };
            let rate = Rate { wrong: parse_probability(probability)?, delay };
            if name == "all" {
                injection.rates.extend(FAMILIES.iter().map(|&(family, _)| (family, rate)));
            } else {
                injection.rates.insert(name.parse()?, rate);
            }
        }
        Ok(injection)
    }
}

fn parse_probability(text: &str) -> Result<f64, InjectionError> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let value = number.parse::<f64>().ok().map(|value| value / scale);
    value.filter(|value| (0.0..=1.0).contains(value)).ok_or_else(|| InjectionError::Probability(text.to_owned()))
}

fn parse_delay(text: &str) -> Result<Duration, InjectionError> {
    const DELAY_MS_MAX: f64 = 60_000.0;
    let ms = text.parse::<f64>().ok().filter(|ms| (0.0..=DELAY_MS_MAX).contains(ms));
    ms.map(|ms| Duration::from_secs_f64(ms / 1000.0)).ok_or_else(|| InjectionError::Delay(text.to_owned()))
}

impl FromStr for Family {
    type Err = InjectionError;
    fn from_str(text: &str) -> Result<Self, InjectionError> {
        let found = FAMILIES.iter().find(|(_, name)| *name == text);
        found.map(|&(family, _)| family).ok_or_else(|| InjectionError::Family(text.to_owned()))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = FAMILIES.iter().find(|(family, _)| family == self);
        f.write_str(found.map_or("", |&(_, name)| name))
    }
}

impl Family {
    /// The family of a call.
    pub fn of(frame: &Frame) -> Option<Self> {
        const RENAMES: [u64; 3] = [nr::rename, nr::renameat, nr::renameat2];
        const UNLINKS: [u64; 3] = [nr::unlink, nr::unlinkat, nr::rmdir];
        const MKDIRS: [u64; 2] = [nr::mkdir, nr::mkdirat];
        Some(match syscall_table::op(frame.nr)? {
            Op::Open | Op::OpenAt | Op::OpenAt2 | Op::Creat => Self::Open,
            Op::StatPath { .. } | Op::Statx | Op::ObservePath { .. } | Op::AddWatch { .. } | Op::ObserveFd { .. } => {
                Self::Stat
            }
            Op::Read { .. } if matches!(frame.nr, nr::getdents | nr::getdents64) => Self::Readdir,
            Op::Read { .. } | Op::Recv { .. } => Self::Read,
            Op::Write { .. } | Op::Send { .. } => Self::Write,
            Op::ModifyPaths { .. } if RENAMES.contains(&frame.nr) => Self::Rename,
            Op::ModifyPath { .. } if UNLINKS.contains(&frame.nr) => Self::Unlink,
            Op::ModifyPath { .. } if MKDIRS.contains(&frame.nr) => Self::Mkdir,
            Op::Execve | Op::Execveat => Self::Exec,
            Op::Fork | Op::Clone | Op::Clone3 => Self::Fork,
            Op::Wait => Self::Wait,
            Op::Close => Self::Close,
            _ => return None,
        })
    }

    /// Whether the slow operation changes what it is about (000, 5.2).
    pub fn access(self) -> Access {
        match self {
            Self::Open | Self::Stat | Self::Read | Self::Readdir | Self::Wait => Access::ReadOnly,
            _ => Access::Mutating,
        }
    }

    /// A result that is not the one: what a wrong guess would have told the program.
    pub fn wrong_result(self) -> i64 {
        -i64::from(match self {
            Self::Open | Self::Stat | Self::Exec => libc::ENOENT,
            Self::Read | Self::Readdir => return 0,
            Self::Write => libc::ENOSPC,
            Self::Rename | Self::Unlink | Self::Mkdir | Self::Close => return 0,
            Self::Fork => libc::EAGAIN,
            Self::Wait => libc::ECHILD,
        })
    }
}

/// Chooses.
#[derive(Clone, Debug)]
pub(crate) struct Injector {
    rates: BTreeMap<Family, Rate>,
    state: u64,
}

/// What was chosen for a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub family: Family,
    pub is_right: bool,
    pub delay: Duration,
}

impl Injector {
    pub fn new(injection: &Injection) -> Self {
        Self { rates: injection.rates.clone(), state: injection.seed }
    }

    pub fn choose(&mut self, frame: &Frame) -> Option<Chosen> {
        let family = Family::of(frame)?;
        let rate = *self.rates.get(&family)?;
        let is_right = self.uniform() >= rate.wrong;
        Some(Chosen { family, is_right, delay: rate.delay })
    }

    /// Whether a call may be chosen.
    pub fn concerns(&self, frame: &Frame) -> bool {
        !self.rates.is_empty() && Family::of(frame).is_some_and(|family| self.rates.contains_key(&family))
    }

    /// The kinds of calls of which none is ever chosen (`agent_abi::permitted`).
    pub fn kinds_left(&self) -> u32 {
        use agent_abi::permitted;
        let kind_of = |family: &Family| match family {
            Family::Stat => permitted::LOOK,
            Family::Open => permitted::OPEN,
            Family::Read => permitted::READ,
            Family::Readdir => permitted::READ_DIRECTORY,
            Family::Close => permitted::CLOSE,
            Family::Write => permitted::WRITE,
            Family::Wait => permitted::WAIT,
            Family::Exec => permitted::EXECUTE,
            Family::Unlink => permitted::REMOVE,
            _ => 0,
        };
        permitted::ALL & !self.rates.keys().map(kind_of).fold(0, |all, kind| all | kind)
    }

    /// splitmix64: small, and good enough to toss coins.
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Outcomes of injected calls. When a wrong guess takes a process back to a checkpoint that several speculations share,
/// the slow operations between the two have ended: when they are asked for again, their results are known, and nobody
/// waits for them a second time.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(HashMap<ProcessId, History>);

#[derive(Debug, Default)]
struct History {
    /// Speculations of the present execution.
    count: u64,
    expected: VecDeque<Expected>,
    /// Of the calls that are to come again: whether the outcome is known.
    again: VecDeque<bool>,
}

#[derive(Debug)]
struct Expected {
    number: u64,
    /// When the outcome is known.
    at: Instant,
    is_right: bool,
}

impl Outcomes {
    /// What is older is forgotten, and waited for again after a rollback.
    const EXPECTED_MAX: usize = 4096;

    /// A call is about to become a speculation.
    pub fn count(&mut self, pid: ProcessId) {
        self.0.entry(pid).or_default().count += 1;
    }

    /// It did not.
    pub fn uncount(&mut self, pid: ProcessId) {
        self.0.entry(pid).or_default().count -= 1;
    }

    pub fn counted(&self, pid: ProcessId) -> u64 {
        self.0.get(&pid).map_or(0, |history| history.count)
    }

    /// It did, and this is how it will turn out.
    pub fn expect(&mut self, pid: ProcessId, at: Instant, is_right: bool) {
        let history = self.0.entry(pid).or_default();
        let number = history.count;
        history.expected.push_back(Expected { number, at, is_right });
        if history.expected.len() > Self::EXPECTED_MAX {
            history.expected.pop_front();
        }
    }

    /// The process is where it was after `count` speculations. Those that are known now are so in the next execution,
    /// up to the first wrong one: what was asked for after that was asked for in error.
    pub fn back_to(&mut self, pid: ProcessId, count: u64, now: Instant) {
        let Some(history) = self.0.get_mut(&pid) else { return };
        let first = history.expected.partition_point(|expected| expected.number <= count);
        let undone = history.expected.split_off(first);
        let mut again = VecDeque::new();
        // The call at the checkpoint is made again, and not guessed.
        let at_checkpoint = history.expected.back_mut().filter(|last| last.number == count && last.at <= now);
        let mut is_in_error = at_checkpoint.is_some_and(|last| !std::mem::replace(&mut last.is_right, true));
        let undone = if is_in_error { VecDeque::new() } else { undone };
        for expected in undone {
            let is_known = expected.at <= now;
            again.push_back(is_known);
            is_in_error = is_known && !expected.is_right;
            if is_in_error {
                break;
            }
        }
        if !is_in_error {
            // What the last execution had not come to yet.
            again.append(&mut history.again);
        }
        history.again = again;
        history.count = count;
    }

    /// An injected call comes again; whether its outcome is known.
    pub fn is_known_again(&mut self, pid: ProcessId) -> bool {
        let Some(history) = self.0.get_mut(&pid) else { return false };
        if history.again.pop_front() != Some(true) {
            return false;
        }
        history.count += 1;
        let number = history.count;
        history.expected.push_back(Expected { number, at: Instant::now(), is_right: true });
        true
    }

    /// The process depends on nothing: nothing takes it back to before this.
    pub fn settle(&mut self, pid: ProcessId) {
        if let Some(history) = self.0.get_mut(&pid) {
            history.expected.clear();
        }
    }

    /// The process has ended.
    pub fn forget(&mut self, pid: ProcessId) {
        self.0.remove(&pid);
    }
}

impl Supervisor {
    /// The call becomes a speculation: its result is guessed, and whether the guess was right is known later.
    pub(in crate::ahead) fn inject_into(
        &mut self,
        stopped: &Stopped,
        call: &mut Call,
        plan: &Plan,
        chosen: Chosen,
    ) -> tracee::Result<Option<Decision>> {
        if matches!(plan.class, Class::Free) {
            return Ok(None);
        }
        let needs_checkpoint = self.ahead.core.creation_needs_checkpoint(process(call.pid), self.ahead.now_ms());
        let is_worth = !needs_checkpoint || self.is_worth_a_checkpoint(call.pid, chosen.delay);
        if !is_worth {
            self.waits_instead(call.pid, chosen.delay);
        }
        if self.ahead.options.waits || !is_worth {
            call.not_before = Some(Instant::now() + chosen.delay);
            self.ahead.report.waited += 1;
            return Ok(Some(Decision::Wait));
        }
        if self.ahead.waiting.iter().any(|parked| parked.call.wants_window) {
            // Somebody waits until nothing is speculative: with new guesses all the time that would never be.
            return Ok(None);
        }
        self.ahead.outcomes.count(call.pid);
        let access = chosen.family.access();
        let Some(id) = self.begin_speculation(stopped, call, access, Some(chosen.delay))? else {
            self.ahead.outcomes.uncount(call.pid);
            return Ok(None);
        };
        self.ahead.report.began(chosen.family);
        let at = Instant::now() + chosen.delay;
        self.ahead.ledger.made(id, &chosen.family.to_string(), Some(at), self.ahead.now());
        self.ahead.outcomes.expect(call.pid, at, chosen.is_right);
        self.ahead.deadlines.add(at, id, chosen.is_right);
        Ok((!chosen.is_right).then(|| Decision::Answer(chosen.family.wrong_result())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProcessId = ProcessId::from_raw(7);
    const OTHER: ProcessId = ProcessId::from_raw(8);

    #[test]
    fn texts() {
        let injection = Injection::parse("open:0.5,stat:10%:30").unwrap();
        assert_eq!(injection.rates[&Family::Open], Rate { wrong: 0.5, delay: DELAY });
        assert_eq!(injection.rates[&Family::Stat], Rate { wrong: 0.1, delay: Duration::from_millis(30) });
        assert_eq!(Injection::parse("all:0").unwrap().rates.len(), FAMILIES.len());
        for bad in ["", "open", "open:2", "open:-1", "open:x", "opne:0.5", "open:0.5:-3", "open:0.5:1:2", "open:0.5,,"]
        {
            assert!(Injection::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_known_is_not_waited_for_again() {
        let (early, late) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let mut outcomes = Outcomes::default();
        for (at, is_right) in [(early, true), (early, true), (early, false), (late, true)] {
            outcomes.count(ONE);
            outcomes.expect(ONE, at, is_right);
        }
        // The checkpoint was taken at the first one, which is made again without a guess.
        outcomes.back_to(ONE, 1, Instant::now());
        let again: Vec<bool> = (0..3).map(|_| outcomes.is_known_again(ONE)).collect();
        assert_eq!(again, [true, true, false], "the one that failed is known, too; the one after it was made in error");
        // An older checkpoint: they are still known.
        outcomes.back_to(ONE, 0, Instant::now());
        let again: Vec<bool> = (0..4).map(|_| outcomes.is_known_again(ONE)).collect();
        assert_eq!(again, [true, true, true, false]);
        outcomes.settle(ONE);
        assert_eq!(outcomes.counted(ONE), 3);
        assert_eq!(outcomes.counted(OTHER), 0);
    }

    #[test]
    fn the_same_seed_chooses_the_same() {
        let mut injection = Injection::parse("open:0.5").unwrap();
        injection.seed = 7;
        let frame = Frame { nr: 2, ..Frame::default() };
        let draw = |injection: &Injection| {
            let mut injector = Injector::new(injection);
            (0..1000).map(|_| injector.choose(&frame).unwrap().is_right).collect::<Vec<_>>()
        };
        assert_eq!(draw(&injection), draw(&injection));
        let right = draw(&injection).iter().filter(|&&right| right).count();
        assert!((400..600).contains(&right), "{right}");
    }
}
