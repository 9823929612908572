//! Where functions begin and end, from whatever the file has: unwind tables, Go's function table, symbols.
//!
//! Unwind tables come first: a loader needs them, so they survive `strip`, and they cover assembly too. They are
//! looked up through the sorted table in `.eh_frame_hdr`; no frame is read that is not asked for.

use std::cell::OnceCell;
use std::ops::Range;

use crate::elf::{read_i32, read_u32, read_u64, Elf};

/// Addresses of one function: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Function {
    pub start: u64,
    pub end: u64,
}

impl Function {
    fn contains(&self, vaddr: u64) -> bool {
        (self.start..self.end).contains(&vaddr)
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.start < range.end && range.start < self.end
    }
}

/// All that the file tells about its functions.
pub(crate) struct Functions<'e, 'a> {
    elf: &'e Elf<'a>,
    frames: Option<FrameTable<'a>>,
    listed: OnceCell<Vec<Function>>,
}

impl<'e, 'a> Functions<'e, 'a> {
    pub fn new(elf: &'e Elf<'a>) -> Self {
        let frames = FrameTable::parse(elf);
        Functions { elf, frames, listed: OnceCell::new() }
    }

    /// The function that `vaddr` lies in.
    pub fn containing(&self, vaddr: u64) -> Option<Function> {
        let framed = self.frames.as_ref().and_then(|frames| frames.containing(self.elf, vaddr));
        framed.or_else(|| self.listed_overlapping(&(vaddr..vaddr + 1)).find(|f| f.contains(vaddr)))
    }

    /// The function before `vaddr`, drawn out to the next one, and its own end, if it ends near by. Assembly that makes
    /// a stack ends its unwind information before the call (clone in glibc), but not its code.
    pub fn drawn_out_to(&self, vaddr: u64) -> Option<(Function, u64)> {
        const NEAR: u64 = 64;
        let around = self.around(vaddr.saturating_sub(NEAR)..vaddr.saturating_add(NEAR), |_| false).functions;
        let last = around.iter().filter(|f| f.end <= vaddr).max_by_key(|f| f.end)?;
        let next = around.iter().map(|f| f.start).filter(|&start| start > vaddr).min();
        Some((Function { start: last.start, end: next.unwrap_or(vaddr + NEAR) }, last.end))
    }

    /// Every known function that has a byte in `range`, by unwind table; where this leaves gaps that are not mere
    /// padding, by the other tables too. Also returns what still belongs to no function.
    pub fn around(&self, range: Range<u64>, is_padding: impl Fn(Range<u64>) -> bool) -> Surroundings {
        let mut known: Vec<Function> =
            self.frames.as_ref().map(|frames| frames.overlapping(self.elf, &range)).unwrap_or_default();
        let gaps = |known: &[Function]| -> Vec<Range<u64>> {
            uncovered(range.clone(), known).into_iter().filter(|gap| !is_padding(gap.clone())).collect()
        };
        for gap in gaps(&known) {
            known.extend(self.listed_overlapping(&gap));
        }
        known.sort_unstable();
        known.dedup();
        Surroundings { unknown: gaps(&known), functions: known }
    }

    fn listed_overlapping<'s>(&'s self, range: &Range<u64>) -> impl Iterator<Item = Function> + 's {
        let listed = self.listed.get_or_init(|| listed_functions(self.elf));
        let range = range.clone();
        let end = listed.partition_point(|f| f.start < range.end);
        // Symbols nest at most by aliases and entry points, so a few steps back reach every one that covers the start.
        let first = listed.partition_point(|f| f.start <= range.start).saturating_sub(8);
        listed[first.min(end)..end].iter().copied().filter(move |f| f.overlaps(&range))
    }
}

/// What stands in a stretch of text.
pub(crate) struct Surroundings {
    pub functions: Vec<Function>,
    pub unknown: Vec<Range<u64>>,
}

fn uncovered(range: Range<u64>, known: &[Function]) -> Vec<Range<u64>> {
    let mut sorted = known.to_vec();
    sorted.sort_unstable();
    let mut gaps = Vec::new();
    let mut at = range.start;
    for function in sorted {
        if function.start > at {
            gaps.push(at..function.start.min(range.end));
        }
        at = at.max(function.end);
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

/// The binary search table of `.eh_frame_hdr` (LSB Core, 10.6.2).
struct FrameTable<'a> {
    header: u64,
    entries: &'a [u8],
}

impl<'a> FrameTable<'a> {
    const DATA_RELATIVE_SDATA4: u8 = 0x3b;
    const UDATA4: u8 = 0x03;

    fn parse(elf: &Elf<'a>) -> Option<Self> {
        let header = elf.eh_frame_hdr?;
        let bytes = elf.bytes_from(header)?;
        let [1, pointer, Self::UDATA4, Self::DATA_RELATIVE_SDATA4] = *bytes.get(..4)? else {
            return None;
        };
        // The pointer to .eh_frame is four bytes in every encoding of this family; it is not needed.
        if !matches!(pointer & 0x0f, 0x03 | 0x0b) {
            return None;
        }
        let count = read_u32(bytes, 8)? as usize;
        let entries = bytes.get(12..12usize.checked_add(count.checked_mul(8)?)?)?;
        Some(FrameTable { header, entries })
    }

    fn len(&self) -> usize {
        self.entries.len() / 8
    }

    fn start(&self, index: usize) -> u64 {
        let offset = read_i32(self.entries, index * 8).unwrap_or(0);
        self.header.wrapping_add_signed(i64::from(offset))
    }

    /// The first entry that begins after `vaddr`.
    fn index_after(&self, vaddr: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(middle) <= vaddr {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn containing(&self, elf: &Elf<'a>, vaddr: u64) -> Option<Function> {
        let index = self.index_after(vaddr).checked_sub(1)?;
        self.function(elf, index).filter(|f| f.contains(vaddr))
    }

    fn overlapping(&self, elf: &Elf<'a>, range: &Range<u64>) -> Vec<Function> {
        let first = self.index_after(range.start).saturating_sub(1);
        (first..self.len())
            .take_while(|&index| self.start(index) < range.end)
            .filter_map(|index| self.function(elf, index))
            .filter(|f| f.overlaps(range))
            .collect()
    }

    /// The range in the frame description. Its encoding stands in another record; instead of reading that, the usual
    /// encodings are tried and only one that gives the start which the table gives is believed.
    fn function(&self, elf: &Elf<'a>, index: usize) -> Option<Function> {
        let start = self.start(index);
        let offset = read_i32(self.entries, index * 8 + 4)?;
        let frame = self.header.wrapping_add_signed(i64::from(offset));
        let bytes = elf.bytes_from(frame)?;
        let relative = frame.wrapping_add(8).wrapping_add_signed(i64::from(read_i32(bytes, 8)?));
        let len = if relative == start || u64::from(read_u32(bytes, 8)?) == start {
            u64::from(read_u32(bytes, 12)?)
        } else if read_u64(bytes, 8)? == start {
            read_u64(bytes, 16)?
        } else {
            return None;
        };
        (len > 0).then_some(Function { start, end: start.checked_add(len)? })
    }
}

/// Functions by Go's table and by symbols, sorted by start.
fn listed_functions(elf: &Elf) -> Vec<Function> {
    let mut functions = go_functions(elf).unwrap_or_default();
    functions.extend(symbol_functions(elf));
    if elf.eh_frame_hdr.is_none() {
        functions.extend(framed_functions(elf));
    }
    functions.retain(|f| elf.is_code(f.start));
    functions.sort_unstable();
    functions.dedup();
    functions
}

/// All of `.eh_frame`, for programs without the search table: static ones of some linkers. Only the usual encoding of
/// addresses (relative, four bytes) is understood: if any record does not lead to code, none is believed.
fn framed_functions(elf: &Elf) -> Vec<Function> {
    let Some(section) = elf.section(b".eh_frame") else {
        return Vec::new();
    };
    let mut functions = Vec::new();
    let mut at = 0usize;
    while let Some(len) = read_u32(section.bytes, at).filter(|&len| len != 0 && len != u32::MAX) {
        let record = at + 4;
        let is_frame = read_u32(section.bytes, record).is_some_and(|id| id != 0);
        let offset = read_i32(section.bytes, record + 4);
        let size = read_u32(section.bytes, record + 8);
        if let (true, Some(offset), Some(size)) = (is_frame, offset, size) {
            let field = section.vaddr.wrapping_add(record as u64 + 4);
            let start = field.wrapping_add_signed(i64::from(offset));
            functions.push(Function { start, end: start.saturating_add(u64::from(size)) });
        }
        at = match record.checked_add(len as usize) {
            Some(next) => next,
            None => break,
        };
    }
    if functions.iter().all(|f| f.start < f.end && elf.is_code(f.start) && elf.is_code(f.end - 1)) {
        functions
    } else {
        Vec::new()
    }
}

/// `.gopclntab` since Go 1.18: a header, then pairs of (offset of the function from the text's start, of its data).
fn go_functions(elf: &Elf) -> Option<Vec<Function>> {
    let table = elf.section(b".gopclntab").or_else(|| elf.section(b".data.rel.ro.gopclntab"))?.bytes;
    if !matches!(read_u32(table, 0)?, 0xffff_fff0 | 0xffff_fff1) || table.get(4..8)? != [0, 0, 1, 8] {
        return None;
    }
    let count = usize::try_from(read_u64(table, 8)?).ok()?;
    // Newer linkers leave the text's start out, so that no relocation is needed.
    let text = elf.section(b".text").map(|section| section.vaddr);
    let start = match read_u64(table, 24)? {
        0 => text?,
        start => start,
    };
    let pairs = table.get(usize::try_from(read_u64(table, 64)?).ok()?..)?;
    let pairs = pairs.get(..count.checked_mul(8)?.checked_add(4)?)?;
    let at = |index: usize| Some(start.wrapping_add(u64::from(read_u32(pairs, index * 8)?)));
    (0..count).map(|index| Some(Function { start: at(index)?, end: at(index + 1)? })).collect()
}

/// Functions in the symbol tables. One without a size (assembly) reaches to the next symbol.
fn symbol_functions(elf: &Elf) -> Vec<Function> {
    let mut symbols: Vec<(u64, u64)> = symbols(elf).filter(|s| s.is_function).map(|s| (s.vaddr, s.size)).collect();
    symbols.sort_unstable();
    let mut functions = Vec::with_capacity(symbols.len());
    for (index, &(start, size)) in symbols.iter().enumerate() {
        let next = symbols[index + 1..].iter().map(|s| s.0).find(|&next| next > start);
        let end = match (size, next) {
            (0, Some(next)) => next,
            (0, None) => continue,
            (size, _) => start.saturating_add(size),
        };
        functions.push(Function { start, end });
    }
    functions
}

/// A symbol that can name code.
pub(crate) struct Symbol {
    pub vaddr: u64,
    size: u64,
    is_function: bool,
}

/// Every defined symbol without a type or of a function type.
pub(crate) fn symbols<'e>(elf: &'e Elf) -> impl Iterator<Item = Symbol> + 'e {
    const SHT_SYMTAB: u32 = 2;
    const SHT_DYNSYM: u32 = 11;
    let tables = elf.sections.iter().filter(|s| matches!(s.kind, SHT_SYMTAB | SHT_DYNSYM));
    tables.flat_map(|table| table.bytes.chunks_exact(24)).filter_map(|entry| {
        let kind = entry[4] & 0x0f;
        let defined = entry[6..8] != [0, 0];
        let (function, gnu_ifunc, no_type) = (kind == 2, kind == 10, kind == 0);
        (defined && (function || gnu_ifunc || no_type)).then(|| Symbol {
            vaddr: read_u64(entry, 8).unwrap_or(0),
            size: read_u64(entry, 16).unwrap_or(0),
            is_function: function || gnu_ifunc,
        })
    })
}
