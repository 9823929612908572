//! System V segments: memory that a process can attach by number, with no descriptor and no path.

use crate::sys;
use agent_abi::World;
use procfs::machine::SharedSegment;
use procfs::ProcessId;
use std::io;
use std::sync::atomic::Ordering;

/// A segment of ours. It is marked for removal from the start, so it goes away with the last process that has it.
#[derive(Debug)]
pub struct Segment {
    id: i32,
    at: *mut u8,
    len: usize,
}

impl Segment {
    /// A segment that holds `bytes`, padded with zeroes to whole pages. `mode` as in chmod.
    pub fn with(bytes: &[u8], mode: i32) -> io::Result<Self> {
        let segment = Self::zeroed(bytes.len(), mode)?;
        sys::copy_into_segment(segment.at, segment.len, bytes);
        Ok(segment)
    }

    /// The same, of whole huge pages: for what every process attaches.
    pub fn gatherable_with(bytes: &[u8], mode: i32) -> io::Result<Self> {
        let segment = Self::zeroed(bytes.len().next_multiple_of(sys::HUGE_PAGE), mode)?;
        sys::copy_into_segment(segment.at, segment.len, bytes);
        Ok(segment)
    }

    /// Put it into huge pages, where the kernel has them. A page fault for each 4 KiB is then one for each 2 MiB, and
    /// no page tables are made for it: worth it once many processes attach it. To clear them is what a single program
    /// would only wait for.
    pub fn gather(&self) {
        sys::collapse_segment(self.at, self.len);
    }

    fn zeroed(len: usize, mode: i32) -> io::Result<Self> {
        let len = len.next_multiple_of(4096);
        let (id, at) = sys::create_segment(len, mode)?;
        Ok(Self { id, at, len })
    }

    /// Its number.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// How often it is attached, once by us.
    pub fn users(&self) -> io::Result<u64> {
        sys::segment_state(self.id).map(|state| state.shm_nattch)
    }

    /// When it was attached for the last time, seconds since 1970.
    pub fn last_attached(&self) -> io::Result<i64> {
        sys::segment_state(self.id).map(|state| state.shm_atime)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        sys::detach_segment(self.at);
    }
}

/// What a process of ours that has died, and was not waited for yet, has made since `since` (seconds since 1970) and
/// could not mark for removal any more: nobody else would remove it. Returns how many there were.
pub fn remove_segments_of(pid: ProcessId, since: i64) -> usize {
    let all = procfs::machine::shared_segments().unwrap_or_default();
    let left = all.iter().filter(|segment| is_left_behind(segment, pid, since));
    left.filter(|segment| sys::mark_segment_for_removal(segment.id).is_ok()).count()
}

/// Whether such a process has left a segment.
fn is_left_behind(segment: &SharedSegment, pid: ProcessId, since: i64) -> bool {
    const PRIVATE: i64 = 0;
    let is_its = segment.creator == pid && segment.changed_at >= since;
    segment.key == PRIVATE && is_its && !segment.is_marked()
}

/// The segment with the world's shared memory. It is never given up: threads of ours look at it until the end.
#[derive(Debug)]
pub struct WorldSegment {
    id: i32,
    /// The shared memory.
    pub world: &'static World,
}

impl WorldSegment {
    /// A world of which this process is the supervisor, with nothing in it.
    pub fn create() -> io::Result<Self> {
        let segment = Segment::zeroed(std::mem::size_of::<World>().next_multiple_of(sys::HUGE_PAGE), 0o600)?;
        let world = sys::world_at(segment.at);
        let id = segment.id;
        std::mem::forget(segment);
        world.version.store(agent_abi::PROTOCOL_VERSION, Ordering::SeqCst);
        world.supervisor.store(std::process::id(), Ordering::SeqCst);
        Ok(Self { id, world })
    }

    /// Its number.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Put it into huge pages: worth it once many processes attach it, each with page faults of its own. To clear them
    /// costs some milliseconds, which a single program would only wait for.
    pub fn gather(&self) {
        sys::collapse_world(self.world);
    }

    /// Let processes of this user attach it. Its creator still may; nobody else.
    pub fn set_owner(&self, uid: u32) -> io::Result<()> {
        sys::set_segment_owner(self.id, uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_segment_begins_where_a_huge_page_may_and_holds_what_it_was_given() {
        let segment = Segment::gatherable_with(b"agent", 0o600).expect("System V memory");
        segment.gather();
        assert_eq!(segment.at.align_offset(sys::HUGE_PAGE), 0);
        assert_eq!(segment.len, sys::HUGE_PAGE);
        let bytes = crate::read_bytes(ProcessId::own(), segment.at as u64, 8).expect("our own memory");
        assert_eq!(&bytes, b"agent\0\0\0");
    }
    #[test]
    fn what_a_process_left_unmarked_is_removed() {
        let id = sys::tests_only_unmarked_segment();
        let pid = ProcessId::own();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        let is_there = || procfs::machine::shared_segments().unwrap().iter().any(|segment| segment.id == id);
        assert_eq!(remove_segments_of(pid, now + 1000), 0, "it was made before");
        assert_eq!(remove_segments_of(ProcessId::from_raw(1), 0), 0, "another process made it");
        assert!(is_there());
        // Other tests of this process may be between the two calls at this moment: none of them suffers.
        assert!(remove_segments_of(pid, now - 1000) >= 1);
        assert!(!is_there());
    }

    #[test]
    fn of_the_table_only_what_is_left_counts() {
        let by = ProcessId::from_raw;
        let segment = |key, mode| SharedSegment { id: 7, key, mode, creator: by(33), changed_at: 900 };
        assert!(is_left_behind(&segment(0, 0o600), by(33), 900));
        assert!(!is_left_behind(&segment(0, 0o1600), by(33), 900), "marked already");
        assert!(!is_left_behind(&segment(5, 0o600), by(33), 900), "somebody else may look for it");
        assert!(!is_left_behind(&segment(0, 0o600), by(33), 901));
        assert!(!is_left_behind(&segment(0, 0o600), by(34), 900));
    }
}
