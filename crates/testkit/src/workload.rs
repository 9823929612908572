//! Workloads for the crash disk, and what must hold after a crash (002, 4.2; `external-synchrony.md`).
//!
//! Each tells a number once the change that belongs to it is made. *Durable*: a number that was seen is on the disk.
//! *Ordered*: what is on the disk is a closed past, no change without those that happened before it.

mod blocks;
mod checks;
mod database;
mod programs;
mod servers;

use std::ffi::OsString;
use std::path::Path;

use crate::crash::{Channel, Configuration, CrashError, Expectation, Message, Violation, PREFIX};

pub use programs::Programs;

/// What a workload does about durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchrony {
    /// Nothing: it writes.
    None,
    /// fsync(2) after each write.
    Fsync,
    /// Its files are open with `O_SYNC`.
    OpenSync,
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One process appends to one file (002, 4.2).
    Writer,
    /// Three processes joined by pipes; two append to files, the third prints.
    Pipeline,
    /// A client and a server over loopback; both append.
    Tcp,
    /// Four threads take turns to append to four files; a fifth prints.
    Threads,
    /// Each block is a new file that is renamed into place.
    Files,
    /// One process writes number after number into one place of a file, another one sends what is there with
    /// sendfile(2).
    Sendfile,
    /// The same with splice(2), through a pipe.
    Splice,
    /// Processes end with a core each; their parent tells a number and changes nothing.
    Core,
    /// As `Writer`, but a number is told between the write and the fsync: a workload that keeps no promise, to try the
    /// crash disk with.
    Early,
    /// SQLite, rollback journal, synchronous=FULL: one insert a transaction.
    Sqlite,
    /// The same with synchronous=EXTRA: the directory is synced too.
    SqliteExtra,
    /// SQLite with a write-ahead log, synchronous=FULL.
    SqliteWal,
    /// PostgreSQL, three clients outside: one insert a transaction.
    PostgreSql,
    /// redis with `appendfsync always`, three clients outside.
    Redis,
    /// A server that keeps what its three clients outside send in SQLite.
    SqliteServer,
}

/// A workload with its size.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// What runs.
    pub kind: Kind,
    /// What it does about durability; SQLite knows by itself.
    pub synchrony: Synchrony,
    /// How many changes it makes.
    pub count: u32,
    /// Length of a block, bytes; 16 at least.
    pub block_len: usize,
    /// How long it rests after each change, µs.
    pub pause_us: u32,
}

/// So many cores fit on the disk.
const CORES_MAX: u32 = 30;

const NAMES: [(&str, Kind); 15] = [
    ("writer", Kind::Writer),
    ("pipeline", Kind::Pipeline),
    ("tcp", Kind::Tcp),
    ("threads", Kind::Threads),
    ("files", Kind::Files),
    ("sendfile", Kind::Sendfile),
    ("splice", Kind::Splice),
    ("core", Kind::Core),
    ("early", Kind::Early),
    ("sqlite", Kind::Sqlite),
    ("sqlite-extra", Kind::SqliteExtra),
    ("sqlite-wal", Kind::SqliteWal),
    ("postgresql", Kind::PostgreSql),
    ("redis", Kind::Redis),
    ("sqlite-server", Kind::SqliteServer),
];

const SYNCHRONIES: [(&str, Synchrony); 3] =
    [("none", Synchrony::None), ("fsync", Synchrony::Fsync), ("osync", Synchrony::OpenSync)];

impl Workload {
    /// From its name: `writer-fsync`, `tcp`, `sqlite`. Without a suffix it only writes.
    pub fn parse(name: &str) -> Option<Workload> {
        let of_kind = |name: &str| NAMES.iter().find(|(known, _)| *known == name);
        let (kind, synchrony) = match (of_kind(name), name.rsplit_once('-')) {
            (Some((_, kind)), _) if kind.is_database() => (*kind, Synchrony::Fsync),
            (Some((_, kind)), _) => (*kind, Synchrony::None),
            (None, Some((kind, suffix))) => {
                let (_, kind) = of_kind(kind).filter(|(_, kind)| !kind.is_database())?;
                let (_, synchrony) = SYNCHRONIES.iter().find(|(known, _)| *known == suffix)?;
                (*kind, *synchrony)
            }
            (None, None) => return None,
        };
        Some(Workload { kind, synchrony, count: 200, block_len: 1000, pause_us: 2000 })
    }

    /// All names that [`Workload::parse`] knows.
    pub fn names() -> Vec<String> {
        let mut names = Vec::new();
        for (name, kind) in NAMES {
            names.push(name.to_owned());
            if !kind.is_database() {
                names.extend(["fsync", "osync"].map(|suffix| format!("{name}-{suffix}")));
            }
        }
        names
    }

    /// Its name.
    pub fn name(&self) -> String {
        let named = NAMES.iter().find(|(_, kind)| *kind == self.kind);
        let name = named.map_or("", |(name, _)| name);
        match self.synchrony {
            _ if self.kind.is_database() => name.to_owned(),
            Synchrony::None => name.to_owned(),
            Synchrony::Fsync => format!("{name}-fsync"),
            Synchrony::OpenSync => format!("{name}-osync"),
        }
    }

    /// Program and arguments to run it in `dir`, telling its numbers to `target` (`stdout`, `udp:PORT`, `tcp:PORT`).
    pub fn command(&self, programs: &Programs, dir: &Path, target: &str) -> Vec<OsString> {
        let mut command: Vec<OsString> = match (self.kind.journal(), self.kind.server()) {
            (Some((mode, synchronous)), _) => {
                let mut command = programs.sqlite();
                command.extend(["--journal-mode", mode, "--synchronous", synchronous].map(Into::into));
                command
            }
            (None, Some(server)) => programs.serve(server),
            (None, None) => vec![programs.workload().into(), self.kind.name().into()],
        };
        command.push(dir.into());
        let mut option = |name: &str, value: &str| command.extend([name.into(), value.into()]);
        option("--count", &self.count.to_string());
        option("--pause-us", &self.pause_us.to_string());
        option("--to", target);
        if !self.kind.is_database() {
            let synchrony = SYNCHRONIES.iter().find(|(_, known)| *known == self.synchrony);
            option("--size", &self.block_len.to_string());
            option("--sync", synchrony.map_or("none", |(name, _)| name));
        }
        if self.kind.server().is_some() {
            command.extend(["--", PREFIX].map(Into::into));
        }
        command
    }

    /// Makes what has to be there before it starts.
    pub fn prepare(&self, programs: &Programs, dir: &Path) -> Result<(), CrashError> {
        self.kind.server().map_or(Ok(()), |kind| servers::prepare(programs, kind, dir))
    }

    /// What is wrong with the directory, given what had been seen. Complete output is expected once the exit was seen.
    pub fn check(&self, programs: &Programs, dir: &Path, observed: &[Message]) -> Vec<Violation> {
        if let Some(kind) = self.kind.server() {
            return servers::check(programs, kind, dir, observed);
        }
        if matches!(self.kind, Kind::Sendfile | Kind::Splice) {
            return checks::record(dir, observed.iter().map(|message| message.text.as_str()));
        }
        let seen = match self.seen(observed) {
            Ok(seen) => seen,
            Err(violation) => return vec![violation],
        };
        let len = self.block_len;
        match self.kind {
            Kind::Writer | Kind::Early => checks::chain(dir, &["blocks"], len, seen),
            Kind::Pipeline => checks::chain(dir, &["a", "b"], len, seen),
            Kind::Tcp => checks::chain(dir, &["server", "client"], len, seen),
            Kind::Threads => checks::turns(dir, 4, len, seen),
            Kind::Files => checks::files(dir, len, seen),
            Kind::Core => checks::cores(dir, len, seen),
            // A number may be told many times, or not at all; servers have several clients.
            Kind::Sendfile | Kind::Splice | Kind::PostgreSql | Kind::Redis | Kind::SqliteServer => Vec::new(),
            Kind::Sqlite | Kind::SqliteExtra | Kind::SqliteWal => database::check(dir, seen),
        }
    }

    /// How many changes were seen: the numbers came in order, so all below the last.
    fn seen(&self, observed: &[Message]) -> Result<u64, Violation> {
        let numbers = observed.iter().filter(|message| message.channel != Channel::Exit);
        let mut seen = 0;
        for message in numbers {
            if message.text != seen.to_string() {
                let what = format!("saw {:?} where {seen} was due", message.text);
                return Err(Violation::OutOfOrder(what));
            }
            seen += 1;
        }
        let exited = observed.iter().any(|message| message.channel == Channel::Exit);
        let count = if self.kind == Kind::Core { self.count.min(CORES_MAX) } else { self.count };
        if exited && seen != u64::from(count) {
            let what = format!("saw the exit after {seen} of {count} numbers");
            return Err(Violation::OutOfOrder(what));
        }
        Ok(seen)
    }

    /// What `configuration` promises to this workload.
    pub fn expectation(&self, configuration: &Configuration) -> Expectation {
        match (self.kind, self.synchrony) {
            // With FULL, the deletion of the rollback journal, which commits, is not synced: what follows from that
            // depends on when the file system commits.
            (Kind::Sqlite, _) if configuration.on_write != Expectation::Safe => Expectation::Unknown,
            // Only where a write is durable by itself does it not matter.
            (Kind::Early, _) => configuration.on_write,
            (_, Synchrony::None) => configuration.on_write,
            (_, Synchrony::Fsync | Synchrony::OpenSync) => configuration.on_fsync,
        }
    }
}

impl Kind {
    /// Knows by itself what to do about durability.
    fn is_database(self) -> bool {
        self.journal().is_some() || self.server().is_some()
    }

    /// What `programs/servers.py` calls it.
    fn server(self) -> Option<&'static str> {
        match self {
            Kind::PostgreSql => Some("postgresql"),
            Kind::Redis => Some("redis"),
            Kind::SqliteServer => Some("sqlite"),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(_, kind)| *kind == self);
        named.map_or("", |(name, _)| name)
    }

    /// SQLite's journal_mode and synchronous.
    fn journal(self) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::Sqlite => Some(("DELETE", "FULL")),
            Kind::SqliteExtra => Some(("DELETE", "EXTRA")),
            Kind::SqliteWal => Some(("WAL", "FULL")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back() {
        for name in Workload::names() {
            assert_eq!(Workload::parse(&name).unwrap().name(), name);
        }
        assert!(Workload::parse("sqlite-osync").is_none());
        assert!(Workload::parse("reader").is_none());
    }
}
