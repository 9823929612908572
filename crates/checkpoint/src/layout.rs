//! What lies where in memory.
//!
//! Nearly always nothing has to be done, or the break has to be moved back. Otherwise, in this order: calls are made
//! from a page of our own, the
//! *stage*, put where neither process has anything, for whatever else is there may go. The kernel's own areas (vdso)
//! step aside onto the stage, or are mapped there again if they are gone (valgrind unmaps them). What the vessel does
//! not have is unmapped. What it has is kept, protected differently, or mapped anew as a whole. The kernel's areas go
//! to their places. Last, the two lists of areas are compared.
//!
//! An area that has lost a part, or is in pieces, is mapped anew rather than patched: the kernel might keep the pieces
//! as areas of their own, and then mremap of the whole would fail.

use crate::answer::Caller;
use crate::areas::{self, Area, PAGE};
use crate::{CheckpointError, Result, VesselId};
use procfs::{MagicLink, Marks, TaskId, ThreadId};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const ADDRESSES: Range<u64> = 0x10_0000..0x7fff_fff0_0000;
const FIXED: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
const NO_FILE: u64 = u64::MAX;

/// Pages of ours in the process: one with a `syscall` instruction, one for what is passed to calls, and room for the
/// kernel's areas.
#[derive(Debug)]
pub(crate) struct Stage(u64);

impl Stage {
    const LEN: u64 = 2 * PAGE;
    /// Room for the kernel's areas: they have 8 pages in Linux 6.18, and 6 before 6.12.
    const ASIDE_LEN: u64 = 64 * PAGE;

    fn put(caller: &mut Caller, ours: &[Area], theirs: &[Area]) -> Result<Self> {
        let taken: Vec<&Area> = ours.iter().chain(theirs).collect();
        let place = gap(&taken, Self::LEN + Self::ASIDE_LEN);
        let this = Self(place.ok_or(CheckpointError::Unsupported("a full address space"))?);
        let both = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let run = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        caller.call("mmap", libc::SYS_mmap, &[this.0, PAGE, run, FIXED, NO_FILE, 0])?;
        caller.call("mmap", libc::SYS_mmap, &[this.data(), PAGE, both, FIXED, NO_FILE, 0])?;
        caller.write(this.0, &SYSCALL)?;
        caller.calls.set_gate(this.0);
        Ok(this)
    }

    /// Where its `syscall` instruction is.
    pub fn gate(&self) -> u64 {
        self.0
    }

    /// Where arguments of calls can be written.
    pub fn data(&self) -> u64 {
        self.0 + PAGE
    }

    /// What it takes of the address space.
    pub fn range(&self) -> Range<u64> {
        self.0..self.0 + Self::LEN
    }

    /// Where the kernel's areas step aside to.
    fn aside(&self) -> Range<u64> {
        self.range().end..self.range().end + Self::ASIDE_LEN
    }

    /// Take it away. The step over the instruction ends behind it, where nothing is any more and nothing is fetched.
    pub fn remove(self, caller: &mut Caller) -> Result<()> {
        caller.call("munmap", libc::SYS_munmap, &[self.0, Self::LEN]).map(drop)
    }
}

/// The middle of the widest range where nothing is.
fn gap(areas: &[&Area], len: u64) -> Option<u64> {
    let mut taken: Vec<Range<u64>> = areas.iter().map(|area| area.range.clone()).collect();
    taken.sort_by_key(|range| range.start);
    taken.push(ADDRESSES.end..ADDRESSES.end);
    let (mut end, mut widest) = (ADDRESSES.start, 0..0);
    for range in taken {
        if range.start.saturating_sub(end) > widest.end - widest.start {
            widest = end..range.start;
        }
        end = end.max(range.end);
    }
    let room = (widest.end - widest.start).checked_sub(len)?;
    Some((widest.start + room / 2) & !(PAGE - 1))
}

/// Lay the process's memory out like the vessel's, whose break is at `brk`. The stage is there, and used, if there was
/// more to be done than to move the break. `ours` and `theirs`: where everything is now, and in the vessel.
pub(crate) fn restore(
    caller: &mut Caller,
    vessel: VesselId,
    brk: u64,
    mut ours: Vec<Area>,
    theirs: &[Area],
) -> Result<Option<Stage>> {
    let tid = caller.tid;
    let marks = (Marks::of(tid)?, Marks::of(vessel)?);
    let executable = (MagicLink::Exe.shown(tid)?, MagicLink::Exe.shown(vessel)?);
    let same_program = marks.0 == marks.1 && executable.0 == executable.1;
    let mut broken = caller.call("brk", libc::SYS_brk, &[0])?;
    if broken != brk && marks.0.start_brk == marks.1.start_brk {
        broken = caller.call("brk", libc::SYS_brk, &[brk])?;
        ours = areas::of(tid)?;
    }
    let is_whole = |area: &Area| compare(area, &ours) == (true, true);
    let is_same = areas::difference(&ours, theirs).is_none() && theirs.iter().all(is_whole);
    if same_program && broken == brk && is_same {
        return Ok(None);
    }
    let stage = Stage::put(caller, &ours, theirs)?;
    ours = kernel_areas_again(caller, &stage, ours, theirs)?;
    let moved = step_aside(caller, &stage, &ours, theirs)?;
    for range in surplus(&ours, theirs) {
        caller.call("munmap", libc::SYS_munmap, &[range.start, range.end - range.start])?;
    }
    Builder { caller, stage: &stage, model: vessel.into(), open: None }.build(&ours, theirs)?;
    for (at, area) in moved {
        move_area(caller, at, &area)?;
    }
    protect_kernel_areas(caller, &ours, theirs)?;
    if !(same_program && broken == brk) {
        let changed = executable.0 != executable.1;
        set_marks(caller, &stage, vessel, &marks.1, brk, changed)?;
    }
    verify(tid, &stage, theirs)?;
    Ok(Some(stage))
}

/// Lay a parent's memory out like that of its child, whose break is at `brk`. It does so with the areas of both that
/// `is_given` says, which has none of the kernel's areas and no segment. `theirs`: those of the child. `gate`: the
/// address of a `syscall` instruction in the parent.
pub(crate) fn follow(
    caller: &mut Caller,
    gate: u64,
    (child, brk): (TaskId, u64),
    is_given: impl Fn(&Area) -> bool,
    theirs: &[Area],
) -> Result<()> {
    if caller.call("brk", libc::SYS_brk, &[0])? != brk {
        caller.call("brk", libc::SYS_brk, &[brk])?;
    }
    let all = areas::of(caller.tid)?;
    let ours: Vec<Area> = all.iter().filter(|area| is_given(area)).cloned().collect();
    if areas::difference(&ours, theirs).is_none() {
        return Ok(());
    }
    let stage = Stage::put(caller, &all, theirs)?;
    for range in surplus(&ours, theirs) {
        caller.call("munmap", libc::SYS_munmap, &[range.start, range.end - range.start])?;
    }
    Builder { caller, stage: &stage, model: child, open: None }.build(&ours, theirs)?;
    let staged = stage.range();
    let ours = areas::of(caller.tid)?.into_iter().filter(|area| is_given(area) && !area.overlaps(&staged));
    let difference = areas::difference(&ours.collect::<Vec<_>>(), theirs);
    stage.remove(caller)?;
    caller.calls.set_gate(gate);
    match difference {
        Some(difference) => Err(CheckpointError::Layout { task: caller.tid.into(), difference }),
        None => Ok(()),
    }
}

fn verify(tid: ThreadId, stage: &Stage, theirs: &[Area]) -> Result<()> {
    let staged = stage.range();
    let ours: Vec<Area> = areas::of(tid)?.into_iter().filter(|area| !area.overlaps(&staged)).collect();
    match areas::difference(&ours, theirs) {
        Some(difference) => Err(CheckpointError::Layout { task: tid.into(), difference }),
        None => Ok(()),
    }
}

fn special(areas: &[Area]) -> impl Iterator<Item = &Area> {
    areas.iter().filter(|area| area.is_special())
}

/// The same one of the kernel's areas in the other process. The kernel lets nobody take a part of one.
fn counterpart<'a>(area: &Area, others: &'a [Area]) -> Option<&'a Area> {
    special(others).find(|other| other.name == area.name && other.len() == area.len())
}

/// Let the kernel map its areas on the stage if the process has unmapped one that the vessel has: it maps them all, and
/// only for a process that has none. Answers what the process has then, without the stage.
fn kernel_areas_again(caller: &mut Caller, stage: &Stage, ours: Vec<Area>, theirs: &[Area]) -> Result<Vec<Area>> {
    const ARCH_MAP_VDSO_64: u64 = 0x2003;
    if special(theirs).all(|area| counterpart(area, &ours).is_some()) {
        return Ok(ours);
    }
    for area in special(&ours) {
        caller.call("munmap", libc::SYS_munmap, &[area.range.start, area.len()])?;
    }
    let arguments = [ARCH_MAP_VDSO_64, stage.aside().start];
    caller.call("arch_prctl(ARCH_MAP_VDSO_64)", libc::SYS_arch_prctl, &arguments)?;
    let mut ours = areas::of(caller.tid)?;
    ours.retain(|area| !area.overlaps(&stage.range()));
    Ok(ours)
}

/// Move the kernel's areas onto the stage if they have to go elsewhere: where they have to go, others of them may be.
/// Those that the vessel does not have are unmapped. Answers where each is now, and where it belongs.
fn step_aside(caller: &mut Caller, stage: &Stage, ours: &[Area], theirs: &[Area]) -> Result<Vec<(u64, Area)>> {
    let mut moved = Vec::new();
    let mut aside = stage.aside().start;
    for area in special(ours) {
        match counterpart(area, theirs) {
            None => {
                caller.call("munmap", libc::SYS_munmap, &[area.range.start, area.len()])?;
            }
            Some(place) if area.overlaps(&stage.aside()) => moved.push((area.range.start, place.clone())),
            Some(place) if place.range != area.range => {
                let there = Area { range: aside..aside + area.len(), ..area.clone() };
                move_area(caller, area.range.start, &there)?;
                moved.push((aside, place.clone()));
                aside += area.len();
            }
            Some(_) => {}
        }
    }
    Ok(moved)
}

fn protect_kernel_areas(caller: &mut Caller, ours: &[Area], theirs: &[Area]) -> Result<()> {
    let is_protected = |area: &&Area| counterpart(area, ours).is_some_and(|our| our.protection == area.protection);
    for area in special(theirs).filter(|area| !is_protected(area)) {
        caller.call("mprotect", libc::SYS_mprotect, &[area.range.start, area.len(), area.protection])?;
    }
    Ok(())
}

fn move_area(caller: &mut Caller, from: u64, to: &Area) -> Result<()> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let arguments = [from, to.len(), to.len(), flags, to.range.start];
    caller.call("mremap", libc::SYS_mremap, &arguments).map(drop)
}

/// What the process has and the vessel has not. The kernel's areas do not count.
fn surplus(ours: &[Area], theirs: &[Area]) -> Vec<Range<u64>> {
    let mut surplus: Vec<Range<u64>> = Vec::new();
    for area in ours.iter().filter(|area| !area.is_special()) {
        let mut start = area.range.start;
        for their in theirs.iter().filter(|their| their.overlaps(&area.range)) {
            if their.range.start > start {
                surplus.push(start..their.range.start);
            }
            start = start.max(their.range.end);
        }
        if start < area.range.end {
            match surplus.last_mut() {
                Some(last) if last.end == start => last.end = area.range.end,
                _ => surplus.push(start..area.range.end),
            }
        }
    }
    surplus
}

/// Whether the process has, all over an area of the vessel's and in one piece, the same thing as the vessel, and with
/// the same protection.
fn compare(area: &Area, ours: &[Area]) -> (bool, bool) {
    let (mut at, mut is_protected) = (area.range.start, true);
    for our in ours.iter().filter(|our| our.overlaps(&area.range)) {
        if our.range.start > area.range.start || !our.is_same_object(area) {
            return (false, false);
        }
        is_protected &= our.protection == area.protection;
        at = our.range.end;
    }
    (at >= area.range.end, is_protected)
}

/// Maps what the process lacks.
struct Builder<'a, 'b> {
    caller: &'a mut Caller<'b>,
    stage: &'a Stage,
    /// Whose memory is laid out as it is to be.
    model: TaskId,
    /// The file that was opened last: a library is mapped in several pieces.
    open: Option<((u32, u32), u64, bool, u64)>,
}

impl Builder<'_, '_> {
    fn build(mut self, ours: &[Area], theirs: &[Area]) -> Result<()> {
        let lacking = |area: &&Area| !area.is_special() && !compare(area, ours).0;
        // Segments can only be attached as a whole: what else lies there comes after them.
        for area in theirs.iter().filter(lacking).filter(|area| area.is_segment()) {
            self.attach(area)?;
        }
        for area in theirs.iter().filter(lacking).filter(|area| !area.is_segment()) {
            self.map(area)?;
        }
        for area in theirs.iter().filter(|area| !area.is_special()) {
            let (is_same, is_protected) = compare(area, ours);
            if is_same && !is_protected || !is_same && area.is_segment() {
                let arguments = [area.range.start, area.len(), area.protection];
                self.caller.call("mprotect", libc::SYS_mprotect, &arguments)?;
            }
        }
        self.close()
    }

    fn attach(&mut self, area: &Area) -> Result<()> {
        let flag = |wanted: bool, flag: i32| if wanted { flag as u64 } else { 0 };
        let flags = libc::SHM_REMAP as u64
            | flag(area.protection & libc::PROT_WRITE as u64 == 0, libc::SHM_RDONLY)
            | flag(area.protection & libc::PROT_EXEC as u64 != 0, libc::SHM_EXEC);
        let at = area.range.start - area.offset;
        self.caller.call("shmat", libc::SYS_shmat, &[area.inode, at, flags]).map(drop)
    }

    fn map(&mut self, area: &Area) -> Result<()> {
        let place = [area.range.start, area.len(), area.protection];
        if area.inode == 0 && !area.shared && !area.name.starts_with('/') {
            let grows = if area.is_main_stack() { libc::MAP_GROWSDOWN as u64 } else { 0 };
            let mut map = |flags| {
                let arguments = [place[0], place[1], place[2], FIXED | grows | flags, NO_FILE, 0];
                self.caller.call("mmap", libc::SYS_mmap, &arguments).map(drop)
            };
            // What there is not enough memory for was not reserved either: a sanitizer's shadow has terabytes.
            return map(0).or_else(|_| map(libc::MAP_NORESERVE as u64));
        }
        let file = self.open(area)?;
        let kind = if area.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE } as u64;
        let arguments = [place[0], place[1], place[2], kind | libc::MAP_FIXED as u64, file, area.offset];
        self.caller.call("mmap", libc::SYS_mmap, &arguments).map(drop)
    }

    fn open(&mut self, area: &Area) -> Result<u64> {
        match &self.open {
            Some((device, inode, shared, file))
                if *device == area.device && *inode == area.inode && *shared == area.shared =>
            {
                return Ok(*file)
            }
            _ => self.close()?,
        }
        // The link leads to the file even if its name is gone; only root may follow it.
        let link = MagicLink::MapFile(area.range.clone()).path(self.model);
        let mut answer = self.open_path(link.as_bytes(), area.shared);
        if answer.is_err() {
            answer = self.open_path(area.name.as_bytes(), area.shared);
        }
        let file = answer?;
        self.open = Some((area.device, area.inode, area.shared, file));
        Ok(file)
    }

    fn open_path(&mut self, path: &[u8], shared: bool) -> Result<u64> {
        self.caller.write_name(self.stage.data(), path)?;
        let mut open = |flags: i32| {
            let flags = (flags | libc::O_CLOEXEC) as u64;
            self.caller.call("open", libc::SYS_open, &[self.stage.data(), flags, 0])
        };
        if shared {
            // It may be made writable later, though it is not now.
            open(libc::O_RDWR).or_else(|_| open(libc::O_RDONLY))
        } else {
            open(libc::O_RDONLY)
        }
    }

    fn close(&mut self) -> Result<()> {
        if let Some((_, _, _, file)) = self.open.take() {
            self.caller.call("close", libc::SYS_close, &[file])?;
        }
        Ok(())
    }
}

/// Tell the kernel where program, arguments, environment and break are, and of which file the program is.
fn set_marks(
    caller: &mut Caller,
    stage: &Stage,
    vessel: VesselId,
    marks: &Marks,
    brk: u64,
    executable: bool,
) -> Result<()> {
    const PR_SET_MM_MAP: u64 = 14;
    let mut file = None;
    if executable {
        let path = MagicLink::Exe.path(vessel);
        caller.write_name(stage.data(), path.as_bytes())?;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let opened = caller.call("open", libc::SYS_open, &[stage.data(), flags, 0]).or_else(|_| {
            let path = MagicLink::Exe.shown(vessel)?;
            caller.write_name(stage.data(), path.as_os_str().as_bytes())?;
            caller.call("open", libc::SYS_open, &[stage.data(), flags, 0])
        })?;
        file = Some(opened);
    }
    let auxiliary = procfs::read(vessel, "auxv")?;
    let map: [u64; 11] = [
        marks.code[0],
        marks.code[1],
        marks.data[0],
        marks.data[1],
        marks.start_brk,
        brk,
        marks.start_stack,
        marks.arguments[0],
        marks.arguments[1],
        marks.environment[0],
        marks.environment[1],
    ];
    const MAP_LEN: u64 = 13 * 8;
    let mut bytes: Vec<u8> = map.iter().flat_map(|mark| mark.to_le_bytes()).collect();
    bytes.extend((stage.data() + MAP_LEN).to_le_bytes());
    bytes.extend((auxiliary.len() as u32).to_le_bytes());
    bytes.extend(file.map_or(u32::MAX, |file| file as u32).to_le_bytes());
    bytes.extend(auxiliary);
    caller.write(stage.data(), &bytes)?;
    let arguments = [libc::PR_SET_MM as u64, PR_SET_MM_MAP, stage.data(), MAP_LEN, 0];
    caller.call("prctl(PR_SET_MM)", libc::SYS_prctl, &arguments)?;
    if let Some(file) = file {
        caller.call("close", libc::SYS_close, &[file])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(range: Range<u64>, protection: u64, inode: u64, offset: u64) -> Area {
        let (device, name) = ((0, 0), String::new());
        Area { range, protection, shared: false, offset, device, inode, name }
    }

    #[test]
    fn what_the_vessel_lacks_is_surplus() {
        let ours = [area(0..10, 3, 0, 0), area(20..30, 3, 0, 0), area(30..40, 1, 7, 0)];
        let theirs = [area(2..5, 3, 0, 0), area(20..25, 3, 0, 0)];
        assert_eq!(surplus(&ours, &theirs), [0..2, 5..10, 25..40]);
    }

    #[test]
    fn an_area_is_kept_protected_or_mapped_anew() {
        let ours = [area(0..10, 3, 0, 0), area(10..20, 1, 0, 0), area(20..30, 1, 7, 0)];
        assert_eq!(compare(&area(2..8, 3, 0, 0), &ours), (true, true));
        assert_eq!(compare(&area(2..8, 1, 0, 0), &ours), (true, false));
        assert!(!compare(&area(2..18, 3, 0, 0), &ours).0, "it is in two pieces, which might not join again");
        assert!(!compare(&area(2..24, 3, 0, 0), &ours).0, "a part of it is another file");
        assert!(compare(&area(25..30, 1, 7, 5), &ours).0);
        assert!(!compare(&area(25..30, 1, 7, 6), &ours).0, "the same file at another place");
        assert!(!compare(&area(28..34, 1, 7, 8), &ours).0, "the end is missing");
    }

    #[test]
    fn the_widest_gap_is_taken() {
        let low = area(ADDRESSES.start..0x1000_0000, 3, 0, 0);
        let high = area(0x7000_0000_0000..ADDRESSES.end, 3, 0, 0);
        let at = gap(&[&low, &high], 0x3000).expect("there is room");
        assert!(at > 0x1000_0000 && at + 0x3000 < 0x7000_0000_0000);
    }
}
