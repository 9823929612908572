//! Which parts of a file planning looks at: what is loaded, the symbols, and the tables that say where these are. A
//! program that was built to be debugged is mostly something else.

use crate::elf::{read_u16, read_u32, read_u64};
use crate::PAGE;
use std::ops::Range;

/// Length of the header of an ELF file, bytes.
pub const HEADER_LEN: usize = 64;

/// Where the tables of an ELF file are: its program headers, and its section headers. `None`: it has no such tables,
/// and is read as a whole. `header`: its first [`HEADER_LEN`] bytes.
pub fn tables(header: &[u8]) -> Option<[Range<u64>; 2]> {
    let is_elf = header.get(..6) == Some(b"\x7fELF\x02\x01");
    let table = |at: usize, size: usize, least: u64| {
        let (start, count) = (read_u64(header, at)?, read_u16(header, size + 2)?);
        let size = read_u16(header, size)?;
        let is_usual = start != 0 && u64::from(size) >= least;
        is_usual.then(|| Some(start..start.checked_add(u64::from(size) * u64::from(count))?)).flatten()
    };
    is_elf.then(|| Some([table(32, 54, 56)?, table(40, 58, 64)?])).flatten()
}

/// The parts of a file of this length that planning looks at, in order. `None`: all of it. `programs` and `sections`
/// are the contents of its [`tables`].
pub fn parts(len: u64, header: &[u8], programs: &[u8], sections: &[u8]) -> Option<Vec<Range<u64>>> {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const SHT_SYMTAB: u32 = 2;
    const SHF_ALLOC: u64 = 2;
    const SHT_NOBITS: u32 = 8;
    let mut all = Vec::from(tables(header)?);
    all.push(0..HEADER_LEN as u64);
    for program in programs.chunks_exact(usize::from(read_u16(header, 54)?)) {
        if matches!(read_u32(program, 0)?, PT_LOAD | PT_DYNAMIC) {
            let (start, size) = (read_u64(program, 8)?, read_u64(program, 32)?);
            // As pages, the way it is mapped.
            all.push(start & !(PAGE - 1)..start.checked_add(size)?.checked_next_multiple_of(PAGE)?);
        }
    }
    let names = read_u16(header, 62)?;
    for (index, section) in sections.chunks_exact(usize::from(read_u16(header, 58)?)).enumerate() {
        let (kind, flags) = (read_u32(section, 4)?, read_u64(section, 8)?);
        let is_needed = flags & SHF_ALLOC != 0 || kind == SHT_SYMTAB || index == usize::from(names);
        if is_needed && kind != SHT_NOBITS {
            let start = read_u64(section, 24)?;
            all.push(start..start.checked_add(read_u64(section, 32)?)?);
        }
    }
    all.iter_mut().for_each(|part| *part = part.start.min(len)..part.end.min(len));
    all.sort_by_key(|part| part.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for part in all {
        match merged.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => merged.push(part),
        }
    }
    Some(merged)
}
