//! A child of `vfork` uses its parent's memory. On a guess it has a copy instead, and its parent is given what it has
//! done to that (`docs/decisions/0054-vfork-on-a-guess.md`). The parent's memory is laid out like the child's, and
//! pages that differ are copied.
//!
//! Not given: the kernel's areas, System V segments, and what the parent does not give to its children
//! (`MADV_DONTFORK`, `MADV_WIPEONFORK`). A break that was moved within its page is not seen.

use crate::answer::Caller;
use crate::areas::{self, Area};
use crate::{layout, pages, CheckpointError, Result};
use procfs::{Advice, ProcessId};
use std::ops::Range;
use tracee::Stopped;

/// A process that is stopped, and can make calls for us.
#[derive(Clone, Copy, Debug)]
pub struct Halted<'a> {
    /// One of its threads.
    pub stopped: &'a Stopped,
    /// The address of a `syscall` instruction in it.
    pub gate: u64,
    /// It has other threads, which are all stopped.
    pub in_company: bool,
}

/// What was given to a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Pages that differed.
    pub pages: u64,
    /// Something lay elsewhere, or was protected differently.
    pub is_laid_out: bool,
}

/// A child's private memory, and where it lies, becomes its parent's, but for the ranges in `kept`. The child stands
/// still; the parent stands still as well, or does not use that memory. `caller`: the parent, once it is stopped where
/// it can make calls. `None` is the answer if it has to make some and is not: nothing was changed then.
///
/// # Errors
/// See [`crate::CheckpointError`]. After one the parent's memory may be half the child's.
pub fn give_memory(
    child: Halted<'_>,
    parent: ProcessId,
    caller: Option<Halted<'_>>,
    kept: &[Range<u64>],
) -> Result<Option<Given>> {
    let pid = child.stopped.tid().leads();
    let is_kept = |area: &Area| kept.iter().any(|range| area.overlaps(range));
    let is_given = |area: &Area| !area.is_special() && !area.is_segment() && !is_kept(area);
    let theirs: Vec<Area> = areas::of(pid)?.into_iter().filter(&is_given).collect();
    let ours: Vec<Area> = areas::of(parent)?.into_iter().filter(&is_given).collect();
    let gate = caller.map(|halted| halted.gate);
    let mut caller = match caller {
        Some(halted) => Some(Caller::of(halted.stopped, halted.gate, halted.in_company)?),
        None => None,
    };
    let is_laid_out = areas::difference(&ours, &theirs).is_some();
    if is_laid_out {
        let (Some(caller), Some(gate)) = (&mut caller, gate) else { return Ok(None) };
        let not_inherited = advised(parent, |advice| advice.is_kept_from_children)?;
        let is_inherited = |area: &Area| !not_inherited.iter().any(|range| area.overlaps(range));
        if !theirs.iter().all(is_inherited) {
            return Err(CheckpointError::Unsupported("memory mapped where its parent has some of its own"));
        }
        let mut in_child = Caller::of(child.stopped, child.gate, child.in_company)?;
        let brk = in_child.call("brk", libc::SYS_brk, &[0])?;
        in_child.finish()?;
        layout::follow(caller, gate, (pid.into(), brk), |area| is_given(area) && is_inherited(area), &theirs)?;
    }
    let private: Vec<Range<u64>> = theirs.into_iter().filter(|area| !area.shared).map(|area| area.range).collect();
    let forked = || {
        let not_forked = advised(parent, |advice| advice.is_kept_from_children || advice.is_wiped_in_children)?;
        Ok(pages::minus(&private, &not_forked))
    };
    let pages = pages::give(pid, parent, caller.as_mut(), &private, forked)?;
    if let Some(caller) = caller {
        caller.finish()?;
    }
    Ok(pages.map(|pages| Given { pages, is_laid_out }))
}

/// The areas of which a process has said something, in ascending order.
fn advised(pid: ProcessId, is_meant: impl Fn(&Advice) -> bool) -> Result<Vec<Range<u64>>> {
    Ok(procfs::advice(pid)?.into_iter().filter(|(_, advice)| is_meant(advice)).map(|(range, _)| range).collect())
}
