//! Patched text of program files: planned once for each version of a file, kept in segments that every process
//! attaches.
//!
//! There are only so many segments on a machine (`kernel.shmmni`: 4,096), and a world may run thousands of
//! programs. So what no process has attached is forgotten when there are many, first of all files that are gone
//! (`decisions/0042`).

use agent_abi::{text_index, FileVersion, Text, TextState, World, AGENT_BASE, MAPPINGS_MAX, OWN_END, TEXTS_MAX};
use call_sites::{FilePlan, SegmentPlan};
use procfs::{MagicLink, ProcessId, ThreadId};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use tracee::Segment;

/// Files larger than this stay as they are.
const FILE_LEN_MAX: u64 = 512 << 20;

/// With more segments than these, or more rows, what nobody uses is forgotten: down to three quarters.
const SEGMENTS_MANY: usize = 256;
/// Some rows stay free, so that every search ends soon.
const ROWS_MANY: usize = TEXTS_MAX * 7 / 8;

/// What was learned of one version of a file.
#[derive(Debug)]
struct Learned {
    version: FileVersion,
    /// Where it was found.
    path: Option<PathBuf>,
    /// Indices into `World::texts`.
    rows: Vec<usize>,
    /// Attached here, so that they live as long as this.
    segments: Vec<Segment>,
}

impl Learned {
    /// Whether a process has some of it attached.
    fn is_used(&self) -> bool {
        // What cannot be asked is taken to be used.
        self.segments.iter().any(|segment| segment.users().map_or(true, |users| users > 1))
    }

    /// When a process attached some of it for the last time, seconds.
    fn last_use(&self) -> i64 {
        self.segments.iter().filter_map(|segment| segment.last_attached().ok()).max().unwrap_or(0)
    }

    /// Whether its name leads to it no more.
    fn is_gone(&self) -> bool {
        let found = self.path.as_deref().and_then(|path| std::fs::metadata(path).ok());
        found.is_none_or(|metadata| version_of(&metadata) != self.version)
    }
}

/// Write the mappings of a process that are its program's, from an address on, into its memory at `at`: pairs of
/// address and length. Returns how many.
pub fn tell_mappings(tid: ThreadId, world: &World, from: u64, at: u64) -> io::Result<u64> {
    let maps = procfs::Maps::of(tid)?;
    let stubs: Vec<u64> = world.texts.iter().map(|row| row.stub_shm.load(Ordering::Relaxed).into()).collect();
    let pairs = maps.iter().filter_map(|mapping| program_mapping(&mapping, &stubs)).filter(|&[start, _]| start >= from);
    let pairs: Vec<[u64; 2]> = pairs.take(MAPPINGS_MAX).collect();
    let bytes: Vec<u8> = pairs.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
    tracee::write_bytes(tid, at, &bytes)?;
    Ok(pairs.len() as u64)
}

/// Address and length of a mapping, unless it is ours, or the kernel's page for old programs.
fn program_mapping(mapping: &procfs::Mapping<'_>, stubs: &[u64]) -> Option<[u64; 2]> {
    let (start, end) = mapping.range;
    // What a System V segment has as its inode is its number.
    let (number, name) = (mapping.inode, mapping.name);
    let is_stub = name.starts_with("/SYSV") && number != 0 && stubs.contains(&number);
    let is_ours = start >= AGENT_BASE && end <= OWN_END || is_stub;
    (!is_ours && name != "[vsyscall]").then_some([start, end - start])
}

/// All patched text of a world.
#[derive(Debug)]
pub struct Texts {
    world: &'static World,
    options: call_sites::Options,
    mode: i32,
    /// Our own program, which is not planned: `speculator begin` and `commit` make about a hundred calls each. To stop
    /// each of them takes less time than to plan 10 MB of text.
    own: Option<FileVersion>,
    /// In the order in which they were learned.
    learned: Vec<Learned>,
    segments_many: usize,
    /// What files are read into, one after the other. For a compiler that is 200 MB: as much memory each time, and page
    /// by page, would cost more to clear than it costs to read the files and to look through them.
    buffer: Vec<u8>,
}

impl Texts {
    /// `mode`: who may attach, as in chmod.
    pub fn new(world: &'static World, agent_entry: u64, mode: i32) -> Self {
        let options = call_sites::Options { agent_entry, ..Default::default() };
        let own_program = MagicLink::Exe.open(ProcessId::own(), OFlags::RDONLY).ok().map(File::from);
        let own = own_program.and_then(|file| file.metadata().ok()).map(|metadata| version_of(&metadata));
        Self { world, options, mode, own, learned: Vec::new(), segments_many: SEGMENTS_MANY, buffer: Vec::new() }
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
        let path = procfs::own_name(&file).ok();
        if self.own == Some(version) {
            return self.publish(version, path, None);
        }
        if let Some(plan) = self.plan_in_parts(&file, metadata.len()) {
            return self.publish(version, path, plan);
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
        self.publish(version, path, plan)
    }

    /// Plan a file of which planning does not look at much. `None`: it is to be read as a whole.
    fn plan_in_parts(&self, file: &File, len: u64) -> Option<Option<FilePlan>> {
        /// To read less than so much more is no loss.
        const WORTH: u64 = 1 << 20;
        let read = |part: Range<u64>| {
            let mut bytes = vec![0; usize::try_from(part.end - part.start).ok()?];
            file.read_exact_at(&mut bytes, part.start).ok()?;
            Some(bytes)
        };
        let header = read(0..call_sites::HEADER_LEN as u64)?;
        let [programs, sections] = call_sites::tables(&header)?;
        if len > FILE_LEN_MAX || programs.end.max(sections.end) > len {
            return None;
        }
        let parts = call_sites::parts(len, &header, &read(programs)?, &read(sections)?)?;
        let needed: u64 = parts.iter().map(|part| part.end - part.start).sum();
        if len - needed < WORTH {
            return None;
        }
        // The kernel clears only what is read into.
        let mut contents = vec![0; usize::try_from(len).ok()?];
        for part in parts {
            file.read_exact_at(&mut contents[part.start as usize..part.end as usize], part.start).ok()?;
        }
        Some(call_sites::plan(&contents, &self.options).ok())
    }

    fn is_known(&self, version: &FileVersion) -> bool {
        self.probe(version).any(|(_, row)| row.read(version).is_some())
    }

    /// The rows at which a file may stand, up to the first one that nobody ever had.
    fn probe(&self, version: &FileVersion) -> impl Iterator<Item = (usize, &'static Text)> {
        let (start, world) = (text_index(version), self.world);
        let rows = (0..TEXTS_MAX).map(move |i| (start + i) % TEXTS_MAX).map(move |i| (i, &world.texts[i]));
        rows.take_while(|(_, row)| row.state() != TextState::Free)
    }

    fn publish(&mut self, version: FileVersion, path: Option<PathBuf>, plan: Option<FilePlan>) -> io::Result<()> {
        let segments = plan.map_or_else(Vec::new, |plan| plan.segments);
        let patched: Vec<&SegmentPlan> =
            segments.iter().filter(|s| s.sites.iter().any(|site| site.is_patched())).collect();
        self.make_room(2 * patched.len(), patched.len().max(1));
        let mut learned = Learned { version, path, rows: Vec::new(), segments: Vec::new() };
        let published = self.publish_parts(&mut learned, &patched);
        // Also what was published before something failed.
        self.learned.push(learned);
        published
    }

    fn publish_parts(&mut self, learned: &mut Learned, patched: &[&SegmentPlan]) -> io::Result<()> {
        if patched.is_empty() {
            let row = self.free_row(learned)?;
            finish_row(row, TextState::Plain);
            return Ok(());
        }
        for plan in patched {
            let text = self.segment(&plan.text)?;
            let stubs = self.segment(&plan.stubs)?;
            let row = self.free_row(learned)?;
            row.sites.store(plan.sites.iter().filter(|site| site.is_patched()).count() as u32, Ordering::Relaxed);
            row.offset.store(plan.file_offset, Ordering::Relaxed);
            row.vaddr.store(plan.vaddr, Ordering::Relaxed);
            row.len.store(plan.len, Ordering::Relaxed);
            row.text_shm.store(text.id() as u32, Ordering::Relaxed);
            row.stub_shm.store(stubs.id() as u32, Ordering::Relaxed);
            row.stub_distance.store(plan.stub_distance, Ordering::Relaxed);
            row.stub_len.store(plan.stubs.len() as u64, Ordering::Relaxed);
            learned.segments.extend([text, stubs]);
            finish_row(row, TextState::Patched);
        }
        Ok(())
    }

    /// A segment with these bytes. If the machine has no more, ours that nobody uses are given back first.
    fn segment(&mut self, bytes: &[u8]) -> io::Result<Segment> {
        Segment::with(bytes, self.mode).or_else(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::ENOMEM) if self.forget_unused(|_| true) > 0 => Segment::with(bytes, self.mode),
            _ => Err(error),
        })
    }

    fn segments(&self) -> usize {
        self.learned.iter().map(|learned| learned.segments.len()).sum()
    }

    fn rows(&self) -> usize {
        self.learned.iter().map(|learned| learned.rows.len()).sum()
    }

    /// Before so many more segments and rows are made.
    fn make_room(&mut self, segments: usize, rows: usize) {
        let has_room = |texts: &Self, segments_most: usize, rows_most: usize| {
            texts.segments() + segments <= segments_most && texts.rows() + rows <= rows_most
        };
        if has_room(self, self.segments_many, ROWS_MANY) {
            return;
        }
        self.forget_unused(Learned::is_gone);
        if has_room(self, self.segments_many, ROWS_MANY) {
            return;
        }
        // More than is needed now, so that not each new file finds it full again.
        let (segments_most, rows_most) = (self.segments_many - self.segments_many / 4, ROWS_MANY - ROWS_MANY / 4);
        let mut last_uses: Vec<(i64, FileVersion)> =
            self.learned.iter().map(|learned| (learned.last_use(), learned.version)).collect();
        // In the order in which they were learned where the second is the same.
        last_uses.sort_by_key(|&(last_use, _)| last_use);
        for (_, version) in last_uses {
            self.forget_unused(|learned| learned.version == version);
            if has_room(self, segments_most, rows_most) {
                return;
            }
        }
    }

    /// Forget those of these that no process has attached; how many.
    fn forget_unused(&mut self, is_meant: impl Fn(&Learned) -> bool) -> usize {
        let world = self.world;
        let before = self.learned.len();
        self.learned.retain(|learned| {
            let is_kept = !is_meant(learned) || learned.is_used();
            if !is_kept {
                // A process that has just read a row attaches what it says, or finds that it is gone.
                learned.rows.iter().for_each(|&row| forget(world, row));
            }
            is_kept
        });
        before - self.learned.len()
    }

    /// A row for one more part of the file.
    fn free_row(&self, learned: &mut Learned) -> io::Result<&'static Text> {
        if self.rows() + learned.rows.len() >= ROWS_MANY {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let version = &learned.version;
        let start = text_index(version);
        let (index, row) = (0..TEXTS_MAX)
            .map(|i| (start + i) % TEXTS_MAX)
            .map(|i| (i, &self.world.texts[i]))
            .find(|(_, row)| matches!(row.state(), TextState::Free | TextState::Gone))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
        row.dev.store(version.dev, Ordering::Relaxed);
        row.ino.store(version.ino, Ordering::Relaxed);
        row.stamp.store(version.stamp, Ordering::Relaxed);
        learned.rows.push(index);
        Ok(row)
    }
}

/// The row is about no file any more. What stands last in front of a row that nobody ever had need not be searched
/// through.
fn forget(world: &World, row: usize) {
    world.texts[row].forget();
    let mut last = row;
    while world.texts[last].state() == TextState::Gone && world.texts[(last + 1) % TEXTS_MAX].state() == TextState::Free
    {
        world.texts[last].state.store(TextState::Free as u32, Ordering::Release);
        last = (last + TEXTS_MAX - 1) % TEXTS_MAX;
    }
}

fn finish_row(row: &Text, state: TextState) {
    row.state.store(state as u32, Ordering::Release);
}

fn version_of(m: &std::fs::Metadata) -> FileVersion {
    FileVersion::new(m.dev(), m.ino(), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()), m.size() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tracee::WorldSegment;

    /// A program with call sites that needs no other file.
    const PROGRAM: &str = "/lib64/ld-linux-x86-64.so.2";

    fn texts(segments_many: usize) -> Texts {
        let world = WorldSegment::create().expect("System V memory").world;
        Texts { segments_many, ..Texts::new(world, 0x7000_0000_1000, 0o600) }
    }

    /// So many copies of a program, each learned.
    fn learn_copies(texts: &mut Texts, folder: &std::path::Path, count: usize) -> Vec<FileVersion> {
        let learn = |i: usize| {
            let copy = folder.join(i.to_string());
            fs::copy(PROGRAM, &copy).unwrap();
            texts.learn(File::open(&copy).unwrap()).unwrap();
            version_of(&fs::metadata(&copy).unwrap())
        };
        (0..count).map(learn).collect()
    }

    #[test]
    fn what_nobody_uses_is_forgotten_the_oldest_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut texts = texts(8);
        let versions = learn_copies(&mut texts, folder.path(), 20);
        assert!(texts.segments() <= 8, "{}", texts.segments());
        assert!(!texts.is_known(&versions[0]));
        assert!(texts.is_known(&versions[19]));
        // It is learned again when it is needed.
        texts.learn(File::open(folder.path().join("0")).unwrap()).unwrap();
        assert!(texts.is_known(&versions[0]));
    }

    #[test]
    fn what_is_removed_is_forgotten_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut texts = texts(8);
        let versions = learn_copies(&mut texts, folder.path(), 4);
        fs::remove_file(folder.path().join("2")).unwrap();
        texts.make_room(2, 1);
        let known: Vec<bool> = versions.iter().map(|version| texts.is_known(version)).collect();
        assert_eq!(known, [true, true, false, true]);
    }

    /// A row that is read while it gets another file's contents says nothing of the first one.
    #[test]
    fn rows_are_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut texts = texts(4);
        let versions = learn_copies(&mut texts, folder.path(), 60);
        let used = texts.world.texts.iter().filter(|row| row.state() == TextState::Patched).count();
        assert_eq!(used, texts.rows());
        let known = versions.iter().filter(|version| texts.is_known(version)).count();
        assert_eq!(known, texts.learned.len());
    }
}
