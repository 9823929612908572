//! Contents of memory.
//!
//! Process and vessel share every page that neither has written since the fork: the same page frame means unchanged.
//! Frames can be seen by root only; without it, pages that both have are compared.
//!
//! Only pages of a process's own count, anonymous ones and private copies of a file's pages. What the process has and
//! the vessel does not was made since: it is dropped, and comes again as zeroes or from the file.

use crate::answer::Caller;
use crate::areas::{self, PAGE};
use crate::{CheckpointError, Result, VesselId};
use procfs::{ProcessId, TaskId};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// How much of a page map is read at a time, pages.
const WINDOW: u64 = 4096;
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
    task: TaskId,
    bytes: File,
    frames: File,
}

impl Memory {
    fn of(task: impl Into<TaskId>) -> Result<Self> {
        let task = task.into();
        Ok(Self { task, bytes: procfs::memory(task)?, frames: procfs::page_map(task)? })
    }

    /// The ranges that have pages of the process's own, in ascending order.
    fn own_pages(&self) -> Result<Vec<Range<u64>>> {
        match tracee::process_state::own_pages(&self.frames) {
            // Before Linux 6.7.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.own_pages_by_entries(),
            found => found.map_err(CheckpointError::access("page map", self.task)),
        }
    }

    fn own_pages_by_entries(&self) -> Result<Vec<Range<u64>>> {
        let mut own: Vec<Range<u64>> = Vec::new();
        // The kernel's data (vvar) and shared memory hold nothing of the process's own. A vdso that was written does.
        for area in areas::of(self.task)?.into_iter().filter(|area| !area.name.starts_with("[vvar") && !area.shared) {
            for window in pieces(area.range, WINDOW) {
                for (index, entry) in self.entries(&window)?.into_iter().enumerate() {
                    let start = window.start + index as u64 * PAGE;
                    if entry & (PRESENT | SWAPPED) != 0 && entry & FILE == 0 {
                        push(&mut own, start..start + PAGE);
                    }
                }
            }
        }
        Ok(own)
    }

    fn entries(&self, range: &Range<u64>) -> Result<Vec<u64>> {
        let mut bytes = vec![0; ((range.end - range.start) / PAGE * 8) as usize];
        let at = range.start / PAGE * 8;
        self.frames.read_exact_at(&mut bytes, at).map_err(CheckpointError::access("page map", self.task))?;
        Ok(bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).collect())
    }

    /// Read ranges into one buffer.
    fn read(&self, ranges: &[Range<u64>], into: &mut [u8]) -> Result<()> {
        let all_at_once = |ranges: &[Range<u64>], into: &mut [u8]| tracee::read_ranges(self.task, ranges, into);
        // What the process may not read itself can be read like this.
        let one = |range: &Range<u64>, into: &mut [u8]| self.bytes.read_exact_at(into, range.start);
        in_turn(ranges, into, all_at_once, one).map_err(CheckpointError::access("memory", self.task))
    }

    /// Write one buffer to ranges.
    fn write(&self, ranges: &[Range<u64>], bytes: &mut [u8]) -> Result<()> {
        let all_at_once = |ranges: &[Range<u64>], bytes: &mut [u8]| tracee::write_ranges(self.task, ranges, bytes);
        let one = |range: &Range<u64>, bytes: &mut [u8]| self.bytes.write_all_at(bytes, range.start);
        in_turn(ranges, bytes, all_at_once, one).map_err(CheckpointError::access("memory", self.task))
    }
}

/// Do something to all ranges and the parts of a buffer that belong to them: to as many at once as it goes, and to the
/// one where it does not go in another way.
fn in_turn(
    mut ranges: &[Range<u64>],
    mut buffer: &mut [u8],
    all_at_once: impl Fn(&[Range<u64>], &mut [u8]) -> io::Result<usize>,
    one: impl Fn(&Range<u64>, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    while !ranges.is_empty() {
        let some = &ranges[..ranges.len().min(tracee::RANGES_MAX)];
        let mut left = all_at_once(some, buffer).unwrap_or(0) as u64;
        let mut whole = 0;
        while let Some(range) = some.get(whole).filter(|range| range.end - range.start <= left) {
            left -= range.end - range.start;
            whole += 1;
        }
        let done = bytes_in(&some[..whole]);
        (ranges, buffer) = (&ranges[whole..], &mut buffer[done..]);
        if whole < some.len() {
            let range = &ranges[0];
            let len = (range.end - range.start) as usize;
            one(range, &mut buffer[..len])?;
            (ranges, buffer) = (&ranges[1..], &mut buffer[len..]);
        }
    }
    Ok(())
}

fn bytes_in(ranges: &[Range<u64>]) -> usize {
    ranges.iter().map(|range| (range.end - range.start) as usize).sum()
}

/// Make the contents of the process's private memory, laid out like the vessel's but for a range of ours, equal to the
/// vessel's.
pub(crate) fn restore(caller: &mut Caller, vessel: VesselId, ours: Option<Range<u64>>) -> Result<Copied> {
    let (now, then) = (Memory::of(caller.tid)?, Memory::of(vessel)?);
    let (own_now, own_then) = (now.own_pages()?, then.own_pages()?);
    let mut copied = Copied::default();
    for range in minus(&minus(&own_now, &own_then), ours.as_slice()) {
        drop_pages(caller, &range)?;
        copied.dropped += (range.end - range.start) / PAGE;
    }
    let (mut different, mut unknown) = (Vec::new(), Vec::new());
    for window in windows(&own_then) {
        find_differing(&now, &then, &window, &mut different, &mut unknown)?;
    }
    let mut buffers = [Vec::new(), Vec::new()];
    for batch in batches(different) {
        copied.pages += copy(&now, &then, &batch, &mut buffers[0])?;
    }
    for batch in batches(unknown) {
        copied.pages += copy_differing(&now, &then, &batch, &mut buffers)?;
    }
    Ok(copied)
}

/// Make the contents of a parent's memory equal to those of its child's in the ranges `private`, which ascend and are
/// private memory of both. `forked`: the part of them that the child had from its birth on. Says how many pages
/// differed; `None` if some have to be dropped, and nobody (`caller`) is there who could do so.
pub(crate) fn give(
    child: ProcessId,
    parent: ProcessId,
    caller: Option<&mut Caller>,
    private: &[Range<u64>],
    forked: impl FnOnce() -> Result<Vec<Range<u64>>>,
) -> Result<Option<u64>> {
    let (now, then) = (Memory::of(parent)?, Memory::of(child)?);
    let (own_now, own_then) = (common(&now.own_pages()?, private), common(&then.own_pages()?, private));
    let mut dropped = minus(&own_now, &own_then);
    if !dropped.is_empty() {
        dropped = common(&dropped, &forked()?);
    }
    let mut pages = 0;
    match caller {
        Some(caller) => {
            for range in dropped {
                drop_pages(caller, &range)?;
                pages += (range.end - range.start) / PAGE;
            }
        }
        None if dropped.is_empty() => {}
        None => return Ok(None),
    }
    let (mut different, mut unknown) = (Vec::new(), Vec::new());
    for window in windows(&own_then) {
        find_differing(&now, &then, &window, &mut different, &mut unknown)?;
    }
    let mut buffers = [Vec::new(), Vec::new()];
    for batch in batches(different) {
        pages += copy(&now, &then, &batch, &mut buffers[0])?;
    }
    for batch in batches(unknown) {
        pages += copy_differing(&now, &then, &batch, &mut buffers)?;
    }
    Ok(Some(pages))
}

/// Ranges in groups whose page maps are read at once: those close to each other together, long ones in pieces.
fn windows(own: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let mut windows: Vec<Vec<Range<u64>>> = Vec::new();
    for range in own.iter().flat_map(|range| pieces(range.clone(), WINDOW)) {
        match windows.last_mut() {
            Some(window) if range.end - window[0].start <= WINDOW * PAGE => window.push(range),
            _ => windows.push(vec![range]),
        }
    }
    windows
}

fn find_differing(
    now: &Memory,
    then: &Memory,
    window: &[Range<u64>],
    different: &mut Vec<Range<u64>>,
    unknown: &mut Vec<Range<u64>>,
) -> Result<()> {
    let whole = window[0].start..window[window.len() - 1].end;
    let (now, then) = (now.entries(&whole)?, then.entries(&whole)?);
    for at in window.iter().flat_map(|range| range.clone().step_by(PAGE as usize)) {
        let index = ((at - whole.start) / PAGE) as usize;
        match compare(now[index], then[index]) {
            Pages::Same => {}
            Pages::Different => push(different, at..at + PAGE),
            Pages::Unknown => push(unknown, at..at + PAGE),
        }
    }
    Ok(())
}

/// Add a range that lies behind all others.
fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// Ranges in groups that fit into a buffer.
fn batches(ranges: Vec<Range<u64>>) -> Vec<Vec<Range<u64>>> {
    let mut batches: Vec<Vec<Range<u64>>> = Vec::new();
    let mut room = 0;
    for range in ranges.into_iter().flat_map(|range| pieces(range, CHUNK)) {
        let len = range.end - range.start;
        match batches.last_mut().filter(|_| len <= room) {
            Some(batch) => batch.push(range),
            None => {
                room = CHUNK * PAGE;
                batches.push(vec![range]);
            }
        }
        room -= len;
    }
    batches
}

/// Most processes have changed little: no more memory is touched than is needed.
fn room_for<'a>(batch: &[Range<u64>], buffer: &'a mut Vec<u8>) -> &'a mut [u8] {
    let len = bytes_in(batch);
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

fn copy(now: &Memory, then: &Memory, batch: &[Range<u64>], buffer: &mut Vec<u8>) -> Result<u64> {
    let bytes = room_for(batch, buffer);
    then.read(batch, bytes)?;
    now.write(batch, bytes)?;
    Ok(bytes.len() as u64 / PAGE)
}

fn copy_differing(now: &Memory, then: &Memory, batch: &[Range<u64>], buffers: &mut [Vec<u8>; 2]) -> Result<u64> {
    let [theirs, ours] = buffers.each_mut().map(|buffer| room_for(batch, buffer));
    then.read(batch, theirs)?;
    now.read(batch, ours)?;
    let pages = batch.iter().flat_map(|range| range.clone().step_by(PAGE as usize));
    let (mut differing, mut len) = (Vec::new(), 0);
    for (index, at) in pages.enumerate() {
        let page = index * PAGE as usize..(index + 1) * PAGE as usize;
        if theirs[page.clone()] != ours[page.clone()] {
            push(&mut differing, at..at + PAGE);
            theirs.copy_within(page, len);
            len += PAGE as usize;
        }
    }
    now.write(&differing, &mut theirs[..len])?;
    Ok(len as u64 / PAGE)
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

/// A range in pieces of at most so many pages.
fn pieces(range: Range<u64>, pages: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by((pages * PAGE) as usize).map(move |start| start..end.min(start + pages * PAGE))
}

/// What the page maps say of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    Same,
    Different,
    Unknown,
}

/// Bits of an entry of a page map: frame, or place in swap.
const FRAME: u64 = (1 << 55) - 1;
const FILE: u64 = 1 << 61;
const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

fn compare(now: u64, then: u64) -> Pages {
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
}

/// The parts of `these` that are in one of `those`. Both ascend.
pub(crate) fn common(these: &[Range<u64>], those: &[Range<u64>]) -> Vec<Range<u64>> {
    minus(these, &minus(these, those))
}

/// The parts of `these` that are in none of `those`. Both ascend.
pub(crate) fn minus(these: &[Range<u64>], those: &[Range<u64>]) -> Vec<Range<u64>> {
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
        assert_eq!(common(&[0..10, 12..20], &[2..4, 8..14]), [2..4, 8..10, 12..14]);
    }

    #[test]
    fn frames_that_are_hidden_have_to_be_compared() {
        assert_eq!(compare(PRESENT, PRESENT), Pages::Unknown);
        assert_eq!(compare(PRESENT | 5, PRESENT | 5), Pages::Same);
        assert_eq!(compare(PRESENT | 5, PRESENT | 6), Pages::Different);
        assert_eq!(compare(PRESENT | 5, SWAPPED | 5), Pages::Different);
    }

    #[allow(clippy::single_range_in_vec_init)]
    #[test]
    fn what_is_close_is_looked_at_together_and_what_is_long_in_pieces() {
        let page = |n: u64| n * PAGE;
        let own = [page(0)..page(2), page(9)..page(10), page(WINDOW)..page(3 * WINDOW)];
        let expected = [
            vec![page(0)..page(2), page(9)..page(10)],
            vec![page(WINDOW)..page(2 * WINDOW)],
            vec![page(2 * WINDOW)..page(3 * WINDOW)],
        ];
        assert_eq!(windows(&own), expected);
        let batch = batches(vec![page(0)..page(CHUNK - 1), page(2000)..page(2001), page(3000)..page(3000 + CHUNK + 1)]);
        let lens: Vec<Vec<u64>> = batch.iter().map(|b| b.iter().map(|r| (r.end - r.start) / PAGE).collect()).collect();
        assert_eq!(lens, [vec![CHUNK - 1, 1], vec![CHUNK], vec![1]]);
    }

    /// Where something cannot be done for all at once it is done for that one alone, and goes on for all others.
    #[test]
    fn what_does_not_go_with_the_others_goes_alone() {
        let ranges: Vec<Range<u64>> = (0..3000).map(|n| n * 10..n * 10 + 1 + n % 3).collect();
        let is_refused = |range: &Range<u64>| range.start.is_multiple_of(7) || range.start == 29_990;
        let mut buffer = vec![0u8; bytes_in(&ranges)];
        let mark = |range: &Range<u64>, part: &mut [u8]| part.fill((range.start % 251) as u8 + 1);
        let all_at_once = |ranges: &[Range<u64>], buffer: &mut [u8]| {
            assert!(ranges.len() <= tracee::RANGES_MAX);
            let mut done = 0;
            for range in ranges {
                let len = (range.end - range.start) as usize;
                if is_refused(range) {
                    // A part of it may have been done.
                    return Ok(done + len - 1);
                }
                mark(range, &mut buffer[done..done + len]);
                done += len;
            }
            Ok(done)
        };
        let one = |range: &Range<u64>, part: &mut [u8]| {
            assert!(is_refused(range));
            mark(range, part);
            Ok(())
        };
        in_turn(&ranges, &mut buffer, all_at_once, one).unwrap();
        let mut expected = Vec::new();
        for range in &ranges {
            expected.extend(std::iter::repeat_n((range.start % 251) as u8 + 1, (range.end - range.start) as usize));
        }
        assert_eq!(buffer, expected);
    }

    /// Two ways to the same answer.
    #[test]
    fn a_kernel_that_cannot_scan_is_asked_page_by_page() {
        // Somebody who does nothing meanwhile.
        let mut idle = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let memory = Memory::of(ProcessId::from_raw(idle.id() as i32)).unwrap();
        let stable = (0..1000).find_map(|_| {
            let (before, by_entries, after) =
                (memory.own_pages().unwrap(), memory.own_pages_by_entries().unwrap(), memory.own_pages().unwrap());
            (before == after && !before.is_empty()).then_some((before, by_entries))
        });
        idle.kill().unwrap();
        idle.wait().unwrap();
        let (scanned, by_entries) = stable.expect("it stands still in the end");
        assert_eq!(scanned, by_entries);
    }
}
