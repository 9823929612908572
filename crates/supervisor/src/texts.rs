//! Patched text of program files: planned once for each version of a file, kept in segments that every process attaches.

use agent_abi::{text_index, FileVersion, Text, TextState, World, TEXTS_MAX};
use call_sites::{FilePlan, SegmentPlan};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use tracee::Segment;

/// Files larger than this stay as they are.
const FILE_LEN_MAX: u64 = 512 << 20;

/// All patched text of a world.
#[derive(Debug)]
pub struct Texts {
    world: &'static World,
    options: call_sites::Options,
    mode: i32,
    /// Attached here, so that they live as long as the world.
    segments: Vec<Segment>,
    used: usize,
    /// What files are read into, one after the other. For a compiler that is 200 MB: as much memory each time, and page by page, would cost more to clear
    /// than it costs to read the files and to look through them.
    buffer: Vec<u8>,
}

impl Texts {
    /// `mode`: who may attach, as in chmod.
    pub fn new(world: &'static World, agent_entry: u64, mode: i32) -> Self {
        let options = call_sites::Options { agent_entry, ..Default::default() };
        Self { world, options, mode, segments: Vec::new(), used: 0, buffer: Vec::new() }
    }

    /// Make sure that the file is known.
    pub fn learn(&mut self, mut file: File) -> io::Result<()> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let version = version_of(&metadata);
        if self.is_known(&version) {
            return Ok(());
        }
        self.buffer.clear();
        if metadata.len() <= FILE_LEN_MAX {
            crate::sys::make_room(&mut self.buffer, metadata.len() as usize);
            file.read_to_end(&mut self.buffer)?;
        }
        // What is no ELF file we understand has no site that we could patch; its calls stop.
        let plan = call_sites::plan(&self.buffer, &self.options).ok();
        self.buffer.clear();
        crate::sys::lend(&mut self.buffer);
        self.publish(&version, plan)
    }

    fn is_known(&self, version: &FileVersion) -> bool {
        let start = text_index(version);
        (0..TEXTS_MAX)
            .map(|i| &self.world.texts[(start + i) % TEXTS_MAX])
            .take_while(|row| row.state() != TextState::Free)
            .any(|row| row.is_of(version))
    }

    fn publish(&mut self, version: &FileVersion, plan: Option<FilePlan>) -> io::Result<()> {
        let segments = plan.map_or_else(Vec::new, |plan| plan.segments);
        let patched: Vec<&SegmentPlan> =
            segments.iter().filter(|s| s.sites.iter().any(|site| site.is_patched())).collect();
        if patched.is_empty() {
            let row = self.free_row(version)?;
            finish_row(row, TextState::Plain);
            return Ok(());
        }
        for plan in patched {
            let text = Segment::with(&plan.text, self.mode)?;
            let stubs = Segment::with(&plan.stubs, self.mode)?;
            let row = self.free_row(version)?;
            row.sites.store(plan.sites.iter().filter(|site| site.is_patched()).count() as u32, Ordering::Relaxed);
            row.offset.store(plan.file_offset, Ordering::Relaxed);
            row.vaddr.store(plan.vaddr, Ordering::Relaxed);
            row.len.store(plan.len, Ordering::Relaxed);
            row.text_shm.store(text.id() as u32, Ordering::Relaxed);
            row.stub_shm.store(stubs.id() as u32, Ordering::Relaxed);
            row.stub_distance.store(plan.stub_distance, Ordering::Relaxed);
            row.stub_len.store(plan.stubs.len() as u64, Ordering::Relaxed);
            self.segments.push(text);
            self.segments.push(stubs);
            finish_row(row, TextState::Patched);
        }
        Ok(())
    }

    fn free_row(&mut self, version: &FileVersion) -> io::Result<&'static Text> {
        // Some rows stay free, so that every search ends soon.
        if self.used >= TEXTS_MAX * 7 / 8 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let start = text_index(version);
        let row = (0..TEXTS_MAX)
            .map(|i| &self.world.texts[(start + i) % TEXTS_MAX])
            .find(|row| row.state() == TextState::Free)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
        self.used += 1;
        row.dev.store(version.dev, Ordering::Relaxed);
        row.ino.store(version.ino, Ordering::Relaxed);
        row.stamp.store(version.stamp, Ordering::Relaxed);
        Ok(row)
    }
}

fn finish_row(row: &Text, state: TextState) {
    row.state.store(state as u32, Ordering::Release);
}

fn version_of(m: &std::fs::Metadata) -> FileVersion {
    FileVersion::new(m.dev(), m.ino(), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()), m.size() as i64)
}
