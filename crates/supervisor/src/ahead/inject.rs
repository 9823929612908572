//! Injection: chosen system calls become speculations whose predicted result is right or wrong at random, and which are resolved after a delay.
//! It is the test bed of everything in this module, and shows the machine at work.

use agent_abi::Frame;
use speculation::Access;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use syscall_table::Op;

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
    #[error("{0} is no family of calls; there are open, stat, read, write, readdir, rename, unlink, mkdir, exec, fork, wait, close and all")]
    Family(String),
    /// Not a number between 0 and 1, or a percentage.
    #[error("{0} is no probability; write a number from 0 to 1, or a percentage")]
    Probability(String),
    /// Not a number of milliseconds.
    #[error("{0} is no delay; write milliseconds, at most 60000")]
    Delay(String),
    /// Neither two nor three parts.
    #[error("{0} is not CALL:PROBABILITY[:DELAY_MS]")]
    Form(String),
}

const DELAY: Duration = Duration::from_millis(5);

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
        const GETDENTS: u64 = 78;
        const GETDENTS64: u64 = 217;
        const RENAMES: [u64; 3] = [82, 264, 316];
        const UNLINKS: [u64; 3] = [87, 263, 84];
        const MKDIRS: [u64; 2] = [83, 258];
        Some(match syscall_table::op(frame.nr)? {
            Op::Open | Op::OpenAt | Op::OpenAt2 | Op::Creat => Self::Open,
            Op::StatPath { .. } | Op::Statx | Op::ObservePath { .. } | Op::ObserveFd { .. } => Self::Stat,
            Op::Read { .. } if matches!(frame.nr, GETDENTS | GETDENTS64) => Self::Readdir,
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

    /// splitmix64: small, and good enough to toss coins.
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
