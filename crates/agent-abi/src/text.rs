//! What is known of program files: where their patched text is.

use core::sync::atomic::{fence, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Segments of program files that a world can know.
pub const TEXTS_MAX: usize = 1024;

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TextState {
    /// Nothing yet.
    Free = 0,
    /// The file has no call site, or none that can be patched.
    Plain = 1,
    /// `text` and `stubs` are segments to attach.
    Patched = 2,
    /// It was about a file that is forgotten. Searches go on behind it, and another file may get it.
    Gone = 3,
}

/// One executable segment of one program file. Written by the supervisor only; `state` is published last. A row
/// that is forgotten gets `Gone`, then another `generation`, and only then other contents: what was read between
/// two looks at the same generation, beginning with a state of the row's file, is of that file (`Text::read`).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Text {
    /// `TextState`.
    pub state: AtomicU32,
    /// Sites in it that are patched.
    pub sites: AtomicU32,
    /// Identity of the file: device, inode, time of change (seconds and nanoseconds folded), size.
    pub dev: AtomicU64,
    /// See `dev`.
    pub ino: AtomicU64,
    /// See `dev`.
    pub stamp: AtomicU64,
    /// Offset of the segment in the file, bytes, page aligned.
    pub offset: AtomicU64,
    /// Its address before relocation, page aligned.
    pub vaddr: AtomicU64,
    /// Its length, bytes, whole pages.
    pub len: AtomicU64,
    /// System V id of the patched text.
    pub text_shm: AtomicU32,
    /// System V id of its stubs.
    pub stub_shm: AtomicU32,
    /// Address of the stubs, minus the text's, bytes.
    pub stub_distance: AtomicI64,
    /// Length of the stubs, bytes.
    pub stub_len: AtomicU64,
    /// How often the row was forgotten.
    pub generation: AtomicU32,
}

/// What a row says, all of it at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRow {
    /// Whether there is anything to attach.
    pub is_patched: bool,
    /// See `Text::sites`.
    pub sites: u32,
    /// See `Text::offset`.
    pub offset: u64,
    /// See `Text::vaddr`.
    pub vaddr: u64,
    /// See `Text::len`.
    pub len: u64,
    /// See `Text::text_shm`.
    pub text_shm: u32,
    /// See `Text::stub_shm`.
    pub stub_shm: u32,
    /// See `Text::stub_distance`.
    pub stub_distance: i64,
    /// See `Text::stub_len`.
    pub stub_len: u64,
}

/// The identity of one version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// `st_dev`.
    pub dev: u64,
    /// `st_ino`.
    pub ino: u64,
    /// Changes whenever the content does: `st_mtim`, `st_ctim` and `st_size`, folded.
    pub stamp: u64,
}

impl FileVersion {
    /// From the fields of a `struct stat`.
    pub fn new(dev: u64, ino: u64, mtime: (i64, i64), ctime: (i64, i64), size: i64) -> Self {
        let mut stamp = 0u64;
        for word in [mtime.0, mtime.1, ctime.0, ctime.1, size] {
            stamp = (stamp.rotate_left(13) ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        Self { dev, ino, stamp }
    }
}

impl Text {
    /// Whether this row is about that file.
    pub fn is_of(&self, file: &FileVersion) -> bool {
        self.dev.load(Ordering::Relaxed) == file.dev
            && self.ino.load(Ordering::Relaxed) == file.ino
            && self.stamp.load(Ordering::Relaxed) == file.stamp
    }

    /// Its state.
    pub fn state(&self) -> TextState {
        match self.state.load(Ordering::Acquire) {
            1 => TextState::Plain,
            2 => TextState::Patched,
            3 => TextState::Gone,
            _ => TextState::Free,
        }
    }

    /// What it says of that file; `None` if it is not about it, or not any more.
    pub fn read(&self, file: &FileVersion) -> Option<TextRow> {
        let generation = self.generation.load(Ordering::Acquire);
        let state = self.state();
        if !matches!(state, TextState::Plain | TextState::Patched) || !self.is_of(file) {
            return None;
        }
        let row = TextRow {
            is_patched: state == TextState::Patched,
            sites: self.sites.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
            vaddr: self.vaddr.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            text_shm: self.text_shm.load(Ordering::Relaxed),
            stub_shm: self.stub_shm.load(Ordering::Relaxed),
            stub_distance: self.stub_distance.load(Ordering::Relaxed),
            stub_len: self.stub_len.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (self.generation.load(Ordering::Relaxed) == generation).then_some(row)
    }

    /// The row is about no file any more.
    pub fn forget(&self) {
        self.state.store(TextState::Gone as u32, Ordering::Release);
        self.generation.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::Release);
    }
}

/// Where a file's rows begin; a file that has several has them one after the other from there.
pub fn text_index(file: &FileVersion) -> usize {
    crate::hash_object(file.dev, file.ino ^ file.stamp) as usize % TEXTS_MAX
}
