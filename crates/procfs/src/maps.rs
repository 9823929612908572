//! `/proc/PID/maps`.

use crate::{text, Error, Result, TaskId};
use std::ops::Range;

/// One line: an area of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its addresses.
    pub range: Range64,
    /// `rwxp`, with `-` for each right that it lacks, and `s` if it is shared.
    pub rights: &'a str,
    /// Where in the file it begins.
    pub offset: u64,
    /// Major and minor number of the file's device; 0 of memory without a file.
    pub device: (u32, u32),
    /// The file's inode; 0 of memory without a file.
    pub inode: u64,
    /// What is written behind it: the file, or a name such as `[stack]`.
    pub name: &'a str,
}

/// First and last address but one.
pub type Range64 = (u64, u64);

impl<'a> Mapping<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut rest = line;
        let mut next = || {
            let trimmed = rest.trim_start_matches(' ');
            let (word, after) = trimmed.split_at(trimmed.find(' ').unwrap_or(trimmed.len()));
            rest = after;
            word
        };
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let (start, end) = next().split_once('-')?;
        let rights = next();
        let offset = hex(next())?;
        let (major, minor) = next().split_once(':')?;
        let inode = next().parse().ok()?;
        let number = |word: &str| u32::from_str_radix(word, 16).ok();
        let device = (number(major)?, number(minor)?);
        Some(Self { range: (hex(start)?, hex(end)?), rights, offset, device, inode, name: rest.trim_start() })
    }

    /// Its addresses.
    pub fn addresses(&self) -> Range<u64> {
        self.range.0..self.range.1
    }

    /// Whether what is written there is seen by whoever has mapped the same.
    pub fn is_shared(&self) -> bool {
        self.rights.ends_with('s')
    }
}

/// All areas of memory of a process. A process that is ending has none.
#[derive(Clone, Debug, Default)]
pub struct Maps(String);

impl Maps {
    /// Read them.
    ///
    /// # Errors
    /// See [`Error`]; also a line that is not understood.
    pub fn of(task: impl Into<TaskId>) -> Result<Self> {
        let task = task.into();
        Self::parse(task, text(task, "maps")?)
    }

    /// Of a text that is the file of this process.
    ///
    /// # Errors
    /// A line is not understood.
    pub fn parse(task: impl Into<TaskId>, text: String) -> Result<Self> {
        match text.lines().all(|line| Mapping::of(line).is_some()) {
            true => Ok(Self(text)),
            false => Err(Error::no_field(task.into(), "maps", "line that is understood")),
        }
    }

    /// They, by address.
    pub fn iter(&self) -> impl Iterator<Item = Mapping<'_>> {
        self.0.lines().filter_map(Mapping::of)
    }

    /// The list as a program reads it, where some files have other names: what `name_of` says of an area's file. `None`
    /// if it cannot say.
    pub fn renamed(&self, name_of: impl Fn(&Mapping) -> Option<Option<Vec<u8>>>) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for line in self.0.lines() {
            let mapping = Mapping::of(line)?;
            let name = if mapping.inode == 0 { None } else { name_of(&mapping)? };
            match name {
                None => text.extend(line.as_bytes()),
                Some(name) => {
                    text.extend(line.strip_suffix(mapping.name)?.as_bytes());
                    // As the kernel escapes it.
                    text.extend(
                        name.iter().flat_map(|&byte| if byte == b'\n' { b"\\012".to_vec() } else { vec![byte] }),
                    );
                }
            }
            text.push(b'\n');
        }
        Some(text)
    }

    /// Major and minor numbers of devices, and inodes, of the files that are mapped.
    pub fn files(&self) -> impl Iterator<Item = ((u32, u32), u64)> + '_ {
        self.iter().filter(|mapping| mapping.inode != 0).map(|mapping| (mapping.device, mapping.inode))
    }
}

/// What a process has said of an area of its memory (`madvise(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// Children do not have it (`MADV_DONTFORK`).
    pub is_kept_from_children: bool,
    /// Children have zeroes there (`MADV_WIPEONFORK`).
    pub is_wiped_in_children: bool,
    /// The kernel may drop it at any time (`MAP_DROPPABLE`).
    pub may_be_dropped: bool,
}

/// The areas of a process with what it has said of each, in ascending order (`/proc/PID/smaps`).
///
/// # Errors
/// See [`Error`].
pub fn advice(task: impl Into<TaskId>) -> Result<Vec<(Range<u64>, Advice)>> {
    Ok(advice_in(&text(task.into(), "smaps")?))
}

fn advice_in(text: &str) -> Vec<(Range<u64>, Advice)> {
    let mut all: Vec<(Range<u64>, Advice)> = Vec::new();
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag: &str| flags.split_ascii_whitespace().any(|of| of == flag);
            if let Some((_, advice)) = all.last_mut() {
                *advice = Advice {
                    is_kept_from_children: has("dc"),
                    is_wiped_in_children: has("wf"),
                    may_be_dropped: has("dp"),
                };
            }
        } else if let Some(mapping) = Mapping::of(line) {
            all.push((mapping.addresses(), Advice::default()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessId;

    #[test]
    fn files_get_other_names() {
        let text = "1000-2000 r--p 00000000 08:01 7    /a/#7 (deleted)\n2000-3000 r--p 00000000 00:00 0 \n\
                    3000-4000 r--p 00000000 08:01 8    /b\n";
        let maps = Maps::parse(ProcessId::from_raw(1), text.to_owned()).unwrap();
        let is_seven = |mapping: &Mapping| mapping.device == (8, 1) && mapping.inode == 7;
        let named = |mapping: &Mapping| Some(is_seven(mapping).then(|| b"/new name".to_vec()));
        let expected = text.replace("/a/#7 (deleted)", "/new name");
        assert_eq!(maps.renamed(named), Some(expected.into_bytes()));
        assert_eq!(maps.renamed(|_| None), None);
    }

    #[test]
    fn a_line_is_read_whole() {
        let line = "7f1c-7f2d r-xs 00002000 08:1f 4711                       /tmp/a file";
        let expected = Mapping {
            range: (0x7f1c, 0x7f2d),
            rights: "r-xs",
            offset: 0x2000,
            device: (8, 0x1f),
            inode: 4711,
            name: "/tmp/a file",
        };
        assert_eq!(Mapping::of(line), Some(expected));
        let anonymous = Mapping::of("1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert!(!anonymous.is_shared() && anonymous.name.is_empty() && anonymous.inode == 0);
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        assert!(Maps::parse(ProcessId::from_raw(1), "1000-2000 rw-p 00000000 00:00 0\nhello\n".to_owned()).is_err());
        assert_eq!(Maps::parse(ProcessId::from_raw(1), String::new()).unwrap().iter().count(), 0);
    }

    #[test]
    fn own_program_is_mapped() {
        use std::os::unix::fs::MetadataExt;
        let own = std::fs::metadata("/proc/self/exe").unwrap().ino();
        let maps = Maps::of(ProcessId::own()).unwrap();
        assert!(maps.files().any(|(_, inode)| inode == own));
    }

    #[test]
    fn advice_is_read() {
        let text = "\
5000-6000 rw-p 00000000 00:00 0                  [heap]
Size:                  4 kB
VmFlags: rd wr mr mw me ac sd
7000-9000 rw-p 00000000 00:00 0
Size:                  8 kB
VmFlags: rd wr mr mw me dc ac
9000-a000 rw-p 00000000 00:00 0
VmFlags: rd wr wf ac
";
        let kept = Advice { is_kept_from_children: true, ..Advice::default() };
        let wiped = Advice { is_wiped_in_children: true, ..Advice::default() };
        let expected = [(0x5000..0x6000, Advice::default()), (0x7000..0x9000, kept), (0x9000..0xa000, wiped)];
        assert_eq!(advice_in(text), expected);
    }
}
