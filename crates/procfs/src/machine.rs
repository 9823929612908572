//! What `/proc` says of the machine and not of a process.

use crate::{value, ProcessId};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Whether `/proc` is mounted.
pub fn is_mounted() -> bool {
    std::path::Path::new("/proc/self/fd").exists()
}

/// All processes that are seen from this namespace of processes, in no order.
///
/// # Errors
/// As of reading a directory; the same holds for every function here that can fail: what could not be read, or has
/// another form than known, is an error.
pub fn processes() -> io::Result<Vec<ProcessId>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        all.extend(number.map(ProcessId::from_raw));
    }
    Ok(all)
}

/// A line of `/proc/meminfo`, by its name without the colon (`MemAvailable`), in bytes.
///
/// # Errors
/// See [`processes`].
pub fn memory_bytes(name: &str) -> io::Result<u64> {
    parse_memory(&std::fs::read_to_string("/proc/meminfo")?, name).ok_or_else(|| no(name))
}

fn parse_memory(meminfo: &str, name: &str) -> Option<u64> {
    value(meminfo, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// A setting of the kernel, by its path below `/proc/sys`, without the end of the line.
///
/// # Errors
/// See [`processes`].
pub fn setting(name: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/{name}"))?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// The names of the settings in a directory below `/proc/sys`.
///
/// # Errors
/// See [`processes`].
pub fn settings_in(directory: &str) -> io::Result<Vec<OsString>> {
    std::fs::read_dir(format!("/proc/sys/{directory}"))?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Whether the first processor has a feature, by its name among the flags of `/proc/cpuinfo`.
///
/// # Errors
/// See [`processes`].
pub fn processor_has(flag: &str) -> io::Result<bool> {
    has_flag(&std::fs::read_to_string("/proc/cpuinfo")?, flag).ok_or_else(|| no("flags"))
}

fn has_flag(cpuinfo: &str, flag: &str) -> Option<bool> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'))?;
    Some(line.split_whitespace().any(|found| found == flag))
}

/// `/proc/loadavg`, kept open: it is read again and again.
#[derive(Debug)]
pub struct Load(File);

impl Load {
    /// Open it.
    ///
    /// # Errors
    /// See [`processes`].
    pub fn open() -> io::Result<Self> {
        File::open("/proc/loadavg").map(Self)
    }

    /// How many threads of the machine run, or could run, at this moment; the caller is one of them. `None`: not known.
    pub fn running(&self) -> Option<u32> {
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).unwrap_or(0);
        running(&text[..len])
    }
}

/// `0.20 0.18 0.12 1/80 11206`: the number before the slash.
fn running(loadavg: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(loadavg).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// The abstract names of Unix sockets that are listened at, in this network namespace, in their order, without the zero
/// that they begin with.
///
/// # Errors
/// See [`processes`].
pub fn listening_names() -> io::Result<Vec<String>> {
    Ok(listening(&std::fs::read_to_string("/proc/net/unix")?))
}

fn listening(sockets: &str) -> Vec<String> {
    /// `__SO_ACCEPTCON`: connections have the same name, and not this flag.
    const LISTENS: &str = "00010000";
    let lines = sockets.lines().filter(|line| line.split_whitespace().nth(3) == Some(LISTENS));
    let names = lines.filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A segment of System V shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSegment {
    /// Its number.
    pub id: i32,
    /// By what others find it; 0: by nothing (`IPC_PRIVATE`).
    pub key: i64,
    /// Its permissions, and that it is marked for removal (`SHM_DEST`, 01000).
    pub mode: u32,
    /// Who has made it.
    pub creator: ProcessId,
    /// When it was made, or its owner or mode were set; seconds since 1970.
    pub changed_at: i64,
}

impl SharedSegment {
    /// Whether it goes with its last attachment.
    pub fn is_marked(&self) -> bool {
        const MARKED: u32 = 0o1000;
        self.mode & MARKED != 0
    }

    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(Self {
            key: words.first()?.parse().ok()?,
            id: words.get(1)?.parse().ok()?,
            mode: u32::from_str_radix(words.get(2)?, 8).ok()?,
            creator: ProcessId::from_raw(words.get(4)?.parse().ok()?),
            changed_at: words.get(13)?.parse().ok()?,
        })
    }
}

/// All of this namespace. What is not understood is left out, as the heading is.
///
/// # Errors
/// See [`processes`].
pub fn shared_segments() -> io::Result<Vec<SharedSegment>> {
    let table = std::fs::read_to_string("/proc/sysvipc/shm")?;
    Ok(table.lines().filter_map(SharedSegment::of).collect())
}

fn no(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc says nothing of {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_among_the_processes() {
        assert!(is_mounted());
        assert!(processes().unwrap().contains(&ProcessId::own()));
    }

    #[test]
    fn numbers_of_the_machine() {
        assert!(memory_bytes("MemAvailable").unwrap() <= memory_bytes("MemTotal").unwrap());
        assert_eq!(parse_memory("MemTotal:        2048 kB\nHugePages_Total:       0\n", "MemTotal"), Some(2 << 20));
        assert_eq!(parse_memory("MemTotal:        2048 kB\nHugePages_Total:       0\n", "HugePages_Total"), None);
        assert!(setting("kernel/pid_max").unwrap().parse::<u64>().unwrap() > 0);
        assert!(setting("kernel/no-such").is_err());
        assert!(settings_in("kernel").unwrap().contains(&"pid_max".into()));
    }

    #[test]
    fn a_flag_is_a_whole_word_of_its_line() {
        let text = "processor\t: 0\nmodel name\t: pku\nflags\t\t: fpu sse2 ospke\n";
        assert_eq!((has_flag(text, "ospke"), has_flag(text, "pku")), (Some(true), Some(false)));
        assert_eq!(has_flag("processor\t: 0\n", "ospke"), None);
    }

    #[test]
    fn the_running_threads_are_read_from_loadavg() {
        assert_eq!(running(b"0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(running(b"10.20 0.18 0.12 12/80 11206\n"), Some(12));
        assert_eq!(running(b""), None);
        assert!(Load::open().unwrap().running().unwrap() >= 1);
    }

    #[test]
    fn names_are_those_of_listening_sockets() {
        let sockets = "\
Num       RefCount Protocol Flags    Type St Inode Path
000000001: 00000002 00000000 00010000 0001 01 100 @speculator-world-7
000000002: 00000003 00000000 00000000 0001 03 101 @speculator-world-7
000000003: 00000002 00000000 00010000 0001 01 102 /run/speculator-world-8
000000004: 00000002 00000000 00010000 0001 01 103 @other
000000005: 00000003 00000000 00000000 0001 03 104
000000006: 00000002 00000000 00010000 0001 01 105 @other
";
        assert_eq!(listening(sockets), ["other", "speculator-world-7"]);
    }

    #[test]
    fn segments_are_read() {
        let line = "         0      7  1600  4096  33  34  0  0  0  0  0  1  1  900  0  0";
        let segment = SharedSegment::of(line).unwrap();
        assert_eq!((segment.id, segment.key, segment.creator.as_raw(), segment.changed_at), (7, 0, 33, 900));
        assert!(segment.is_marked());
        assert_eq!(SharedSegment::of("       key      shmid perms       size  cpid  lpid nattch"), None);
    }
}
