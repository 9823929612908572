//! Contents of memory.
//!
//! Process and vessel share every page that neither has written since the fork: the same page frame means unchanged. Frames can be seen by root
//! only; without it, pages that both have are compared.
//!
//! Only pages of a process's own count, anonymous ones and private copies of a file's pages. What the process has and the vessel does not was
//! made since: it is dropped, and comes again as zeroes or from the file.

use crate::answer::Caller;
use crate::areas::PAGE;
use crate::{CheckpointError, Result};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// How much is compared or copied at a time, pages.
const CHUNK: u64 = 256;

/// What had to be done to the contents of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Pages copied from the vessel.
    pub pages: u64,
    /// Pages dropped that the vessel does not have.
    pub dropped: u64,
}

/// One process's memory.
struct Memory {
    pid: i32,
    bytes: File,
    frames: File,
}

impl Memory {
    fn of(pid: i32) -> Result<Self> {
        let open = |name: &str, write| File::options().read(true).write(write).open(format!("/proc/{pid}/{name}"));
        Ok(Self {
            pid,
            bytes: open("mem", true).map_err(CheckpointError::access("memory", pid))?,
            frames: open("pagemap", false).map_err(CheckpointError::access("page map", pid))?,
        })
    }

    fn own_pages(&self) -> Result<Vec<Range<u64>>> {
        tracee::process_state::own_pages(&self.frames).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => CheckpointError::Unsupported("a kernel without PAGEMAP_SCAN (Linux 6.7)"),
            _ => CheckpointError::access("page map", self.pid)(error),
        })
    }

    fn entries(&self, range: &Range<u64>) -> Result<Vec<u64>> {
        let mut bytes = vec![0; ((range.end - range.start) / PAGE * 8) as usize];
        let at = range.start / PAGE * 8;
        self.frames.read_exact_at(&mut bytes, at).map_err(CheckpointError::access("page map", self.pid))?;
        Ok(bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).collect())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.bytes.read_exact_at(into, at).map_err(CheckpointError::access("memory", self.pid))
    }
}

/// Make the contents of the process's private memory, laid out like the vessel's but for a range of ours, equal to the vessel's.
pub(crate) fn restore(caller: &mut Caller, vessel: i32, ours: Option<Range<u64>>) -> Result<Copied> {
    let (now, then) = (Memory::of(caller.pid)?, Memory::of(vessel)?);
    let (own_now, own_then) = (now.own_pages()?, then.own_pages()?);
    let mut copied = Copied::default();
    for range in minus(&minus(&own_now, &own_then), ours.as_slice()) {
        drop_pages(caller, &range)?;
        copied.dropped += (range.end - range.start) / PAGE;
    }
    let mut buffers = [vec![0; (CHUNK * PAGE) as usize], vec![0; (CHUNK * PAGE) as usize]];
    for range in own_then {
        for range in chunks(range) {
            copied.pages += restore_chunk(&now, &then, &range, &mut buffers)?;
        }
    }
    Ok(copied)
}

fn drop_pages(caller: &mut Caller, range: &Range<u64>) -> Result<()> {
    const MADV_DONTNEED_LOCKED: u64 = 24;
    let arguments = |advice| [range.start, range.end - range.start, advice];
    // Pages that are locked in memory have to be asked for by name.
    caller
        .call("madvise", libc::SYS_madvise, &arguments(libc::MADV_DONTNEED as u64))
        .or_else(|_| caller.call("madvise", libc::SYS_madvise, &arguments(MADV_DONTNEED_LOCKED)))
        .map(drop)
}

fn chunks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by((CHUNK * PAGE) as usize).map(move |start| start..end.min(start + CHUNK * PAGE))
}

fn restore_chunk(now: &Memory, then: &Memory, range: &Range<u64>, buffers: &mut [Vec<u8>; 2]) -> Result<u64> {
    let differing = differing(&now.entries(range)?, &then.entries(range)?);
    let mut copied = 0;
    let mut page = 0;
    while page < differing.len() {
        let len = differing[page..].iter().take_while(|&&d| d == differing[page]).count();
        if differing[page] != Pages::Same {
            let at = range.start + page as u64 * PAGE;
            let [theirs, ours] = buffers;
            let theirs = &mut theirs[..len * PAGE as usize];
            then.read(at, theirs)?;
            copied += if differing[page] == Pages::Unknown {
                let ours = &mut ours[..len * PAGE as usize];
                now.read(at, ours)?;
                write_differing(now, at, theirs, ours)?
            } else {
                now.bytes.write_all_at(theirs, at).map_err(CheckpointError::access("memory", now.pid))?;
                len as u64
            };
        }
        page += len;
    }
    Ok(copied)
}

fn write_differing(now: &Memory, at: u64, theirs: &[u8], ours: &[u8]) -> Result<u64> {
    let mut copied = 0;
    let pages = theirs.chunks_exact(PAGE as usize).zip(ours.chunks_exact(PAGE as usize));
    for (i, (theirs, ours)) in pages.enumerate() {
        if theirs != ours {
            let at = at + i as u64 * PAGE;
            now.bytes.write_all_at(theirs, at).map_err(CheckpointError::access("memory", now.pid))?;
            copied += 1;
        }
    }
    Ok(copied)
}

/// What the page maps say of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    Same,
    Different,
    Unknown,
}

fn differing(now: &[u64], then: &[u64]) -> Vec<Pages> {
    /// Frame, or place in swap.
    const FRAME: u64 = (1 << 55) - 1;
    const FILE: u64 = 1 << 61;
    const SWAPPED: u64 = 1 << 62;
    const PRESENT: u64 = 1 << 63;
    let compare = |(&now, &then): (&u64, &u64)| {
        const KIND: u64 = FILE | SWAPPED | PRESENT;
        if now & KIND != then & KIND {
            Pages::Different
        } else if now & FRAME == 0 || then & FRAME == 0 {
            Pages::Unknown
        } else if now & FRAME == then & FRAME {
            Pages::Same
        } else {
            Pages::Different
        }
    };
    now.iter().zip(then).map(compare).collect()
}

/// The parts of `these` that are in none of `those`. Both ascend.
fn minus(these: &[Range<u64>], those: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    let mut those = those.iter().peekable();
    for this in these {
        let mut start = this.start;
        while let Some(that) = those.peek() {
            if that.end <= start {
                those.next();
                continue;
            }
            if that.start >= this.end {
                break;
            }
            if that.start > start {
                rest.push(start..that.start);
            }
            start = that.end;
            if start >= this.end {
                break;
            }
        }
        if start < this.end {
            rest.push(start..this.end);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::single_range_in_vec_init)]
    #[test]
    fn ranges_are_subtracted() {
        let check =
            |these: &[Range<u64>], those: &[Range<u64>], rest: &[Range<u64>]| assert_eq!(minus(these, those), rest);
        check(&[0..10], &[], &[0..10]);
        check(&[0..10, 12..20], &[2..4, 8..14, 19..30], &[0..2, 4..8, 14..19]);
        check(&[5..6, 7..8], &[0..100], &[]);
        check(&[0..100], &[0..1, 99..100], &[1..99]);
    }

    #[test]
    fn frames_that_are_hidden_have_to_be_compared() {
        const PRESENT: u64 = 1 << 63;
        assert_eq!(
            differing(&[PRESENT, PRESENT | 5, PRESENT | 5], &[PRESENT, PRESENT | 5, PRESENT | 6]),
            [Pages::Unknown, Pages::Same, Pages::Different]
        );
    }
}
