//! Where stub areas go.

use crate::elf::{Elf, Load};
use crate::{ElfKind, Options, PlanError, PAGE};

/// A `jmp rel32` reaches 2 GiB; 16 MiB are kept for the length of areas and windows.
const REACH: i64 = (1 << 31) - (16 << 20);
/// Where the stubs of a position-independent file go unless options say otherwise: 1 GiB below its text.
const DISTANCE_DYN: i64 = -(1 << 30);
/// Lowest address that any process may map, by common `vm.mmap_min_addr`.
const LOWEST: u64 = 0x10000;
/// Unmapped space left between stubs and the program's first segment.
const GUARD: u64 = 0x10000;

/// Gives each executable segment of one file its stub area.
pub(crate) struct Placer {
    /// Distance of a position-independent file's areas; `None` for a file at fixed addresses.
    distance: Option<i64>,
    /// The next free address.
    cursor: i64,
}

impl Placer {
    /// `total` is enough for all areas of the file, bytes.
    pub fn new(elf: &Elf, options: &Options, total: u64) -> Result<Self, PlanError> {
        if elf.kind == ElfKind::Dyn {
            let distance = options.stub_distance_dyn.unwrap_or(DISTANCE_DYN);
            let usable = distance % PAGE as i64 == 0 && distance.abs() < REACH;
            return usable
                .then_some(Placer { distance: Some(distance), cursor: i64::MIN })
                .ok_or(PlanError::StubDistance { distance });
        }
        let lowest = elf.loads.iter().map(Load::page_vaddr).min().unwrap_or(0);
        let highest = elf.loads.iter().map(Load::end).max().unwrap_or(0);
        let below = lowest.checked_sub(total + GUARD).filter(|&start| start >= LOWEST);
        // Above, the heap comes first: it begins up to 32 MiB behind the program and grows.
        let above = (highest + (1 << 30)).next_multiple_of(PAGE);
        Ok(Placer { distance: None, cursor: below.unwrap_or(above) as i64 })
    }

    /// The address, as in the file, of the area for the segment whose pages begin at `vaddr`.
    pub fn place(&mut self, vaddr: u64, len_max: u64) -> u64 {
        let wanted = self.distance.map_or(i64::MIN, |distance| vaddr as i64 + distance);
        let start = wanted.max(self.cursor);
        self.cursor = start + len_max as i64;
        start as u64
    }
}

/// Addresses that every byte of an area at `vaddr` reaches.
pub(crate) fn reachable_from(vaddr: u64) -> std::ops::Range<i64> {
    (vaddr as i64).saturating_sub(REACH)..(vaddr as i64).saturating_add(REACH)
}
