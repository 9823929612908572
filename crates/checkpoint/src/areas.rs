//! The areas of an address space, as `/proc/PID/maps` lists them.

use crate::Result;
use procfs::{Mapping, Maps, TaskId};
use std::ops::Range;

pub(crate) const PAGE: u64 = 4096;

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub range: Range<u64>,
    /// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    pub protection: u64,
    pub shared: bool,
    pub offset: u64,
    pub device: (u32, u32),
    pub inode: u64,
    pub name: String,
}

impl Area {
    fn of(mapping: &Mapping<'_>) -> Self {
        let flags = mapping.rights.as_bytes();
        let bit = |i: usize, value: i32| if flags.get(i).is_some_and(|&b| b != b'-') { value as u64 } else { 0 };
        Self {
            range: mapping.addresses(),
            protection: bit(0, libc::PROT_READ) | bit(1, libc::PROT_WRITE) | bit(2, libc::PROT_EXEC),
            shared: mapping.is_shared(),
            offset: mapping.offset,
            device: mapping.device,
            inode: mapping.inode,
            name: mapping.name.to_owned(),
        }
    }

    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Made by the kernel for every program: it can be moved, but not mapped.
    pub fn is_special(&self) -> bool {
        matches!(self.name.as_str(), "[vdso]" | "[vvar]" | "[vvar_vclock]")
    }

    /// A System V segment; its number is the inode's.
    pub fn is_segment(&self) -> bool {
        self.shared && self.name.starts_with("/SYSV")
    }

    pub fn is_main_stack(&self) -> bool {
        self.name == "[stack]"
    }

    /// Anonymous private memory whose pages may simply be dropped, and that may be written for a moment.
    pub fn is_writable_anonymous(&self) -> bool {
        let both = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        !self.shared && self.inode == 0 && !self.is_special() && self.protection & both == both
    }

    /// Whether an address in both has the same thing behind it, whatever may be done to it.
    pub fn is_same_object(&self, other: &Self) -> bool {
        let origin = |area: &Self| area.offset.wrapping_sub(area.range.start);
        let special = |area: &Self| area.is_special().then(|| area.name.clone());
        self.shared == other.shared
            && self.inode == other.inode
            && self.device == other.device
            && special(self) == special(other)
            && (self.inode == 0 || origin(self) == origin(other))
    }

    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

/// The areas of a process, in ascending order.
pub(crate) fn of(task: impl Into<TaskId>) -> Result<Vec<Area>> {
    Ok(areas(&Maps::of(task)?))
}

fn areas(maps: &Maps) -> Vec<Area> {
    maps.iter().filter(|mapping| mapping.name != "[vsyscall]").map(|mapping| Area::of(&mapping)).collect()
}

/// The same with neighbours joined that differ in nothing: the kernel does that when it can, not always.
pub(crate) fn joined(areas: &[Area]) -> Vec<Area> {
    let mut joined: Vec<Area> = Vec::new();
    for area in areas {
        match joined.last_mut() {
            Some(last)
                if last.range.end == area.range.start
                    && last.protection == area.protection
                    && last.is_same_object(area) =>
            {
                last.range.end = area.range.end;
            }
            _ => joined.push(Area { name: String::new(), ..area.clone() }),
        }
    }
    joined
}

/// Where two address spaces differ first; `None` if nowhere.
pub(crate) fn difference(a: &[Area], b: &[Area]) -> Option<String> {
    let (a, b) = (joined(a), joined(b));
    let at = (0..a.len().max(b.len())).find(|&i| a.get(i) != b.get(i))?;
    Some(format!("{:x?} instead of {:x?}", a.get(at), b.get(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "\
7f00-8f00 r-xp 00002000 fe:00 12 /usr/bin/a b
9000-a000 rw-s 00000000 00:01 7                          /SYSV00000000 (deleted)
b000-c000 rw-p 00000000 00:00 0
c000-d000 rw-p 00000000 00:00 0                          [heap]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        let areas = areas(&Maps::parse(procfs::ProcessId::from_raw(1), text.to_owned()).unwrap());
        assert_eq!(areas.len(), 4);
        assert_eq!((areas[0].protection, areas[0].offset, areas[0].name.as_str()), (5, 0x2000, "/usr/bin/a b"));
        assert!(areas[1].is_segment() && areas[1].inode == 7);
        assert_eq!(joined(&areas).len(), 3, "the heap continues what lies before it");
    }
}
