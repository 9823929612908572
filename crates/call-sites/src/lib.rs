//! Finds system-call sites in a program file and plans how to patch them: pure logic, bytes in, plan out.
//!
//! Every `syscall` (`0f 05`) in an executable segment is replaced by a five-byte jump to a stub, where that is certain
//! to be right. Patched text and stubs are mapped at a fixed distance from each other, so one copy serves every
//! process. A site that is not patched keeps working through a stop (interposition.md, 1); so in doubt it is left.
//!
//! **Invariants.** Bytes outside the windows are the file's. No branch leads into a window behind its first byte.
//! Windows do not overlap. What a stub runs before and after the call is what stood in the window, in its order.
//!
//! - which `0f 05` are instructions — `boundary.rs`, with `functions.rs` and `elf.rs`
//! - which addresses can be jumped to — `targets.rs`
//! - which bytes make room — `window.rs`
//! - what stands in a stub — `stub.rs`; where stubs go — `place.rs`
//! - all of it, for one segment — `segment.rs`
#![forbid(unsafe_code)]

mod boundary;
mod elf;
mod functions;
mod parts;
mod place;
mod segment;
mod stub;
mod targets;
mod window;

use std::fmt;

pub use parts::{parts, tables, HEADER_LEN};

/// Length of the jump that replaces a site, bytes.
pub const JUMP_LEN: u64 = 5;
/// Size of a page, bytes.
pub const PAGE: u64 = 4096;

/// What a plan depends on besides the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Absolute address of the agent's entry; stubs jump there.
    pub agent_entry: u64,
    /// Distance from a position-independent segment to its stubs, bytes, a multiple of 4096; 1 GiB below by default.
    pub stub_distance_dyn: Option<i64>,
}

/// Is the file mapped where it says, or anywhere?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfKind {
    /// At the addresses in the file.
    Exec,
    /// Anywhere: shared libraries and position-independent programs.
    Dyn,
}

/// What to map instead of the text of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlan {
    /// How the file is mapped.
    pub kind: ElfKind,
    /// One for each executable, not writable segment that has a patch; most files have none.
    pub segments: Vec<SegmentPlan>,
    /// What was found in segments without a patch: these are mapped from the file, as ever.
    pub left: Vec<Site>,
}

/// What to map instead of one executable segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPlan {
    /// Where in the file the segment's first page begins, bytes.
    pub file_offset: u64,
    /// Address in the file of the segment's first page.
    pub vaddr: u64,
    /// Length of the file-backed pages, bytes.
    pub len: u64,
    /// The patched pages: `len` bytes.
    pub text: Vec<u8>,
    /// The stubs, in full pages.
    pub stubs: Vec<u8>,
    /// The stubs' address is the segment's mapped address plus this; a multiple of 4096.
    pub stub_distance: i64,
    /// Every `0f 05`, sorted by address.
    pub sites: Vec<Site>,
}

/// One `0f 05`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its address in the file.
    pub vaddr: u64,
    /// What becomes of it.
    pub fate: Fate,
}

impl Site {
    /// The patch, if it has one.
    pub fn patch(&self) -> Option<&Patch> {
        match &self.fate {
            Fate::Patched(patch) => Some(patch),
            Fate::Unpatched(_) => None,
        }
    }

    /// Does the text jump to a stub here?
    pub fn is_patched(&self) -> bool {
        self.patch().is_some()
    }

    /// Why there is no patch.
    pub fn reason(&self) -> Option<Reason> {
        match self.fate {
            Fate::Patched(_) => None,
            Fate::Unpatched(reason) => Some(reason),
        }
    }
}

/// What becomes of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is replaced by a jump.
    Patched(Patch),
    /// It stays as it is.
    Unpatched(Reason),
}

/// A window and its stub. Offsets are from the start of the stub area, bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Address in the file of the first byte replaced.
    pub window: u64,
    /// How many bytes are replaced: at least [`JUMP_LEN`].
    pub window_len: u64,
    /// What was moved.
    pub shape: Shape,
    /// The restart point X: a thread whose call is to be made (again) continues here. The call's result is awaited at
    /// X + 2, which is the address that the agent finds in rcx.
    pub restart: u32,
    /// Where the jump in the text leads: at what was moved from before the call, then the way into the agent.
    pub entry: u32,
    /// The first byte after the stub.
    pub end: u32,
}

/// Which instructions a window takes besides `syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// Following ones only: `window` is the site itself, and jumping there is a restart too.
    After,
    /// Preceding ones only. Where they take the whole jump, the call itself stays in its place.
    Before,
    /// Preceding and following ones.
    Both,
}

/// Why a site is not patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// sigreturn is native: unwinders recognise these bytes
    SigreturnIsNative,
    /// the bytes are data or the middle of another instruction
    NotAnInstruction,
    /// something before it in its function cannot be decoded
    Undecodable,
    /// it belongs to no known function and no section says that it is code
    UnknownFunction,
    /// it belongs to no known function, and decoding from different places does not agree on it
    NoAgreement,
    /// it belongs to no known function and no call number is loaded before it
    NoCallNumber,
    /// its function has a switch whose table was not found
    UnknownSwitch,
    /// something can jump into every window
    BranchTarget,
    /// the instructions around it cannot be moved
    NoWindow,
    /// an address that moved instructions use is too far from the stubs
    OutOfReach,
    /// windows of other sites take the bytes
    Crowded,
    /// the loader writes into this text
    TextRelocations,
}

impl Reason {
    /// Is it known that a `syscall` instruction is there?
    pub fn is_instruction(self) -> bool {
        use Reason::{NoAgreement, NoCallNumber, NotAnInstruction, Undecodable, UnknownFunction};
        !matches!(self, NotAnInstruction | Undecodable | UnknownFunction | NoAgreement | NoCallNumber)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Reason::SigreturnIsNative => "sigreturn is native: unwinders recognise these bytes",
            Reason::NotAnInstruction => "the bytes are data or the middle of another instruction",
            Reason::Undecodable => "something before it in its function cannot be decoded",
            Reason::UnknownFunction => "it belongs to no known function and no section says that it is code",
            Reason::NoAgreement => "it belongs to no known function, and decoding from different places does not agree",
            Reason::NoCallNumber => "it belongs to no known function and no call number is loaded before it",
            Reason::UnknownSwitch => "its function has a switch whose table was not found",
            Reason::BranchTarget => "something can jump into every window",
            Reason::NoWindow => "the instructions around it cannot be moved",
            Reason::OutOfReach => "an address that moved instructions use is too far from the stubs",
            Reason::Crowded => "windows of other sites take the bytes",
            Reason::TextRelocations => "the loader writes into this text",
        })
    }
}

/// Why there is no plan for a file. The program can run all the same: every call stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// not an ELF file
    NotElf,
    /// not a 64-bit x86 file
    NotX86_64,
    /// neither a program nor a shared library
    NotLoadable,
    /// the program headers are damaged
    BadProgramHeaders,
    /// the distance of the stubs is no multiple of 4096 or too large
    StubDistance {
        /// The distance asked for, bytes.
        distance: i64,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::NotElf => formatter.write_str("not an ELF file"),
            PlanError::NotX86_64 => formatter.write_str("not a 64-bit x86 file"),
            PlanError::NotLoadable => formatter.write_str("neither a program nor a shared library"),
            PlanError::BadProgramHeaders => formatter.write_str("the program headers are damaged"),
            PlanError::StubDistance { distance } => {
                write!(formatter, "stubs cannot be {distance} bytes from the text; use a multiple of 4096 below 2 GiB")
            }
        }
    }
}

impl std::error::Error for PlanError {}

/// Plans the patches of a program file.
pub fn plan(file: &[u8], options: &Options) -> Result<FilePlan, PlanError> {
    let elf = elf::Elf::parse(file)?;
    segment::plan_segments(&elf, options)
}

/// The site at an address in the file, and its segment, if that segment has a patch.
pub fn find_site(plan: &FilePlan, vaddr: u64) -> Option<(&SegmentPlan, &Site)> {
    let segment = plan.segments.iter().find(|segment| vaddr.wrapping_sub(segment.vaddr) < segment.len)?;
    let index = segment.sites.binary_search_by_key(&vaddr, |site| site.vaddr).ok()?;
    Some((segment, &segment.sites[index]))
}

impl SegmentPlan {
    /// The site whose stub has a byte at `offset` in the stub area: tells where a thread in a stub belongs.
    pub fn site_of_stub(&self, offset: u32) -> Option<&Site> {
        self.sites.iter().find(|site| site.patch().is_some_and(|patch| (patch.restart..patch.end).contains(&offset)))
    }
}
