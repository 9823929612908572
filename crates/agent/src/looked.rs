//! The name that was looked at last. Before a file is opened on a permit it is looked at; where the program, or the
//! open before, has looked at the same name a moment ago, that is enough
//! ([0209](../../../docs/decisions/0209-a-look-holds-for-a-moment.md)).
//!
//! A look is of its permit: who changes a name inside has taken that away. Somebody outside may change one between the
//! look and the open, whoever looks: so it holds for [`HOLDS_CYCLES`] only, and for nobody who has made another call
//! than those that look at files and descriptors.

use crate::clocks::Call;
use crate::descriptors::{S_IFDIR, S_IFMT, S_IFREG};
use crate::start::LOOKED_BASE;
use agent_abi::option;
use core::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
/// Some 20 µs.
const HOLDS_CYCLES: u64 = 50_000;
/// Longer names are not remembered; with the zero at the end.
const LEN_MAX: u64 = 64;
/// The look followed a link at the end, or there is none.
const FOLLOWED: u64 = 1;
/// There is no link at the end.
const NO_LINK: u64 = 2;

/// It belongs to the one thread of a process that has a permit.
#[repr(C)]
pub struct Looked {
    /// On which permit; 0: nothing is known.
    permit: AtomicU64,
    /// When, in cycles.
    at: AtomicU64,
    /// The page of memory in which the kernel has read the name.
    page: AtomicU64,
    /// Length with the zero at the end, above [`FOLLOWED`] and [`NO_LINK`].
    kind: AtomicU64,
    name: [AtomicU64; LEN_MAX as usize / 8],
}

const KIND_BITS: u32 = 2;

fn looked() -> &'static Looked {
    // SAFETY: mapped with the rest of what is this process's own; zeroes are a value of it.
    unsafe { &*(LOOKED_BASE as *const Looked) }
}

fn cycles() -> u64 {
    // SAFETY: the instruction changes nothing; `option::CYCLES_FORBIDDEN` says where it may not be used.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether so many bytes from there on are on one page.
fn is_within_page(path: u64, len: u64) -> bool {
    path % PAGE + len <= PAGE
}

/// The bytes `8 * at` to `8 * at + 7` of a name.
///
/// # Safety
/// They stand on a page that can be read.
unsafe fn word(path: u64, at: u64) -> u64 {
    // SAFETY: see above.
    unsafe { ((path + 8 * at) as *const u64).read_volatile() }
}

/// The length of a name with the zero at its end, if it is short; it is copied on the way.
fn copy(path: u64, name: &[AtomicU64]) -> Option<u64> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    for (at, copy) in (0..).zip(name) {
        // SAFETY: callers have seen that all of it is on the page on which the kernel has just read the name.
        let bytes = unsafe { word(path, at) };
        copy.store(bytes, Ordering::Relaxed);
        let zeroes = bytes.wrapping_sub(ONES) & !bytes & HIGHS;
        if zeroes != 0 {
            return Some(8 * at + u64::from(zeroes.trailing_zeros() / 8) + 1);
        }
    }
    None
}

/// Whether a name on a page that can be read is the one that was copied.
fn is_same(path: u64, name: &[AtomicU64], len: u64) -> bool {
    // SAFETY: see above.
    let differs = |at: u64| unsafe { word(path, at) } ^ name[at as usize % name.len()].load(Ordering::Relaxed);
    let (full, rest) = (len / 8, len % 8);
    (0..full).all(|at| differs(at) == 0) && (rest == 0 || differs(full) & ((1 << (8 * rest)) - 1) == 0)
}

/// The next call may change what a look has said, or take the name's memory away.
pub fn forget_look() {
    looked().permit.store(0, Ordering::Relaxed);
}

impl Call<'_> {
    /// The kernel has just read a name that leads to nothing of others, and has said that a file or directory on a
    /// file system that it keeps is there.
    pub fn remember_look(&self, permit: u64, path: u64, mode: u32, follows: bool) {
        let known = looked();
        known.permit.store(0, Ordering::Relaxed);
        let is_usable = matches!(mode & S_IFMT, S_IFREG | S_IFDIR) && is_within_page(path, LEN_MAX);
        if !is_usable || self.has_option(option::CYCLES_FORBIDDEN) {
            return;
        }
        if let Some(len) = copy(path, &known.name) {
            let kind = if follows { FOLLOWED } else { FOLLOWED | NO_LINK };
            known.kind.store(len << KIND_BITS | kind, Ordering::Relaxed);
            known.page.store(path / PAGE, Ordering::Relaxed);
            known.at.store(cycles(), Ordering::Relaxed);
            known.permit.store(permit, Ordering::Relaxed);
        }
    }

    /// Whether the same name was looked at on this permit a moment ago.
    pub fn has_just_looked(&self, permit: u64, path: u64, follows: bool) -> bool {
        let known = looked();
        let kind = known.kind.load(Ordering::Relaxed);
        let wanted = if follows { FOLLOWED } else { NO_LINK };
        // Its memory can be read: no call was made since that could have changed this.
        known.permit.load(Ordering::Relaxed) == permit
            && path / PAGE == known.page.load(Ordering::Relaxed)
            && is_within_page(path, LEN_MAX)
            && kind & wanted != 0
            && cycles().wrapping_sub(known.at.load(Ordering::Relaxed)) < HOLDS_CYCLES
            && is_same(path, &known.name, kind >> KIND_BITS)
    }
}
