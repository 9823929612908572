//! How much may be held for guesses ([0088](../../../../../docs/decisions/0088-bounds-of-what-is-held.md)). Each bound
//! is below what the machine allows: at it a process waits, and the world goes on.

use crate::ahead::calls::ask::Decision;
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use crate::message::Message;
use procfs::machine::memory_bytes;
use rustix::process::Resource;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Bytes that undo entries of this world hold.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// Bytes of an undo entry, counted as long as it is there.
#[derive(Debug)]
pub(crate) struct Counted(u64);

impl Counted {
    pub fn new(bytes: usize) -> Self {
        KEPT.fetch_add(bytes as u64, Ordering::Relaxed);
        Self(bytes as u64)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// What is held too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::ahead) enum Bound {
    Descriptors,
    EndedProcesses,
    Bytes,
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Descriptors => "open files",
            Self::EndedProcesses => "processes that have ended",
            Self::Bytes => "bytes that calls have replaced",
        })
    }
}

/// Whether undo entries hold as many bytes as they may.
pub(in crate::ahead) fn are_many_bytes_kept() -> bool {
    const SHARE: u64 = 16;
    const LEAST: u64 = 64 << 20;
    const MOST: u64 = 1 << 30;
    static MAX: OnceLock<u64> = OnceLock::new();
    let max = *MAX.get_or_init(|| (memory_bytes("MemTotal").unwrap_or(0) / SHARE).clamp(LEAST, MOST));
    KEPT.load(Ordering::Relaxed) >= max
}

/// Whether so many processes stand still at their end that no more should: each has its number, its memory and its slot
/// in the world, and some descriptors of ours.
pub(in crate::ahead) fn are_many_ended(count: usize) -> bool {
    /// Each costs memory, too: above so many it is looked at.
    const FEW: usize = 256;
    const SHARE: u64 = 8;
    static MAX: OnceLock<usize> = OnceLock::new();
    let is_short = || match (memory_bytes("MemTotal"), memory_bytes("MemAvailable")) {
        (Ok(total), Ok(available)) => available < total / SHARE,
        _ => true,
    };
    count >= *MAX.get_or_init(ended_max) || count > FEW && is_short()
}

fn ended_max() -> usize {
    /// Half of the slots that a world has.
    const MOST: u64 = agent_abi::PROCESSES_MAX as u64 / 2;
    const DESCRIPTORS_EACH: u64 = 5;
    const SHARE: u64 = 4;
    let setting = |name: &str| procfs::machine::setting(name).ok()?.parse::<u64>().ok();
    let soft = |resource| rustix::process::getrlimit(resource).current;
    let limits = [
        soft(Resource::Nofile).map(|limit| limit / DESCRIPTORS_EACH),
        soft(Resource::Nproc).map(|limit| limit / SHARE),
        setting("kernel/pid_max").map(|limit| limit / SHARE),
        setting("kernel/threads-max").map(|limit| limit / SHARE),
    ];
    limits.into_iter().flatten().fold(MOST, u64::min) as usize
}

impl Supervisor {
    /// A call waits at a bound, which is said once.
    pub(in crate::ahead) fn wait_at_bound(&mut self, call: &Call, bound: Bound) -> Decision {
        if self.ahead.reached.insert(bound) {
            let (pid, name) = (call.pid, syscall_table::row(call.frame.nr).map_or("a call", |row| row.name));
            let text = format!("process {pid} waits at {name}: as many {bound} are held for guesses as may be");
            self.front.tell(&Message::Note { text });
        }
        self.wait_at_barrier(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_counted_until_it_goes() {
        let before = KEPT.load(Ordering::Relaxed);
        let kept = Counted::new(2 << 30);
        assert!(are_many_bytes_kept());
        drop(kept);
        assert_eq!(KEPT.load(Ordering::Relaxed), before);
        assert!(!are_many_bytes_kept());
    }

    #[test]
    fn the_bound_of_ended_processes_is_below_what_a_world_has() {
        let max = ended_max();
        assert!(max > 0 && max <= agent_abi::PROCESSES_MAX / 2, "{max}");
        assert!(are_many_ended(max) && !are_many_ended(0));
    }
}
