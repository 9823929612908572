//! What is known of program files: where their patched text is.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

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
}

/// One executable segment of one program file. Written once, by the supervisor; `state` is published last.
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
            _ => TextState::Free,
        }
    }
}

/// Where a file's rows begin; a file that has several has them one after the other from there.
pub fn text_index(file: &FileVersion) -> usize {
    crate::hash_object(file.dev, file.ino ^ file.stamp) as usize % TEXTS_MAX
}
