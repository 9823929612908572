//! A core dump is a change that no call makes: the kernel writes a file between the delivery of a signal and the
//! end of its process ([0031](../../../docs/decisions/0031-core-dumps.md)).
//!
//! It joins the active transaction before the signal is delivered, and the thread's handle stays open until the
//! thread has ended: no commit begins while a part of the core is there.

use crate::event_loop::Supervisor;
use crate::signals::SignalSets;
use agent_abi::{DeviceKind, World, PROCESS_MAPPED_SERVED};
use commit_clock::{Clock, DOMAINS_MAX};
use procfs::{MagicLink, ThreadId};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Signals that make a core where nobody catches them (signal(7)).
const MAKE_CORES: [i32; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

impl Supervisor {
    /// A signal is about to be delivered. Returns what has to be committed before: what the process depends on
    /// elsewhere must not become durable after its core (002, 2.5), and a core that somebody outside gets tells of
    /// everything. `has_waited`: it was committed; of what other threads, which go on, have done since there is no end.
    pub(crate) fn before_core(&mut self, tid: ThreadId, signal: i32, has_waited: bool) -> Option<Clock> {
        if !MAKE_CORES.contains(&signal) || !is_default(tid, signal) {
            return None;
        }
        let pattern = procfs::machine::setting("kernel/core_pattern").ok()?;
        let folder = folder_of(tid, &pattern);
        if folder.is_some() && !may_be_written(tid) {
            return None;
        }
        let place = folder.map(|folder| fs::metadata(folder).map(|found| self.world().device(found.dev())));
        let mut unsettled = match has_waited {
            true => self.world().processes[self.tracees.get(&tid)?.process].clock.load(DOMAINS_MAX),
            false => self.dependencies_of(tid)?.0,
        };
        let domain = match place {
            Some(Ok((DeviceKind::Domain, domain))) => Some(domain),
            // A program outside, which no limit keeps from having it (core(5)), or a file that others see at once.
            None | Some(Ok((DeviceKind::Outside, _))) if !has_waited => None,
            _ => return None,
        };
        if let Some(domain) = domain {
            unsettled.0[domain] = 0;
        }
        if !self.world().transactions.is_resolved(&unsettled) {
            return Some(unsettled);
        }
        if let Some(domain) = domain {
            self.join_core(tid, domain);
        }
        None
    }

    fn join_core(&mut self, tid: ThreadId, domain: usize) {
        let world = self.world();
        let Some(tracee) = self.tracees.get(&tid) else { return };
        let (Some(thread), process) = (tracee.thread, &world.processes[tracee.process]) else { return };
        let handle = &world.threads[thread].handle;
        world.transactions.open_handle(handle);
        while !world.transactions.may_join(domain) {
            handle.close();
            // What cannot be opened fails when it is flushed.
            let is_held = self.hold_domain(Some(tid), domain).is_ok();
            world.transactions.open_handle(handle);
            if !is_held {
                break;
            }
        }
        let transaction = world.transactions.join(domain);
        process.clock.raise(domain, transaction);
        world.names.raise(domain, transaction);
        world.names.merge(&process.clock.load(DOMAINS_MAX), DOMAINS_MAX);
        if process.flags.load(Ordering::Relaxed) & PROCESS_MAPPED_SERVED != 0 {
            handle.close();
            is_stored_without_a_call(world, process, domain);
        }
    }
}

/// The kernel reads all memory of the process, and pages of files that somebody serves are waited for: as with
/// stores to mapped files, whoever reads there depends on the transaction that is active then, and so does the
/// process's parent (`wait` observes everything).
fn is_stored_without_a_call(world: &World, process: &agent_abi::Process, domain: usize) {
    process.mapped_domains.fetch_or(1 << domain, Ordering::SeqCst);
    world.mapped_domains.fetch_or(1 << domain, Ordering::SeqCst);
}

/// Whether the kernel may leave a core where this signal ends the process of a thread: in a file, or with somebody
/// outside who gets it whatever the limit is. That is told to whoever waits for the process, too.
pub(crate) fn may_leave_core(tid: ThreadId, signal: i32) -> bool {
    let is_given_away =
        || procfs::machine::setting("kernel/core_pattern").map_or(true, |name| name.starts_with(['|', '@']));
    MAKE_CORES.contains(&signal) && is_default(tid, signal) && (may_be_written(tid) || is_given_away())
}

/// Whether the limit of the process lets a core be written (getrlimit(2), RLIMIT_CORE).
fn may_be_written(tid: ThreadId) -> bool {
    let limit = procfs::Limits::of(tid).and_then(|limits| limits.soft("Max core file size"));
    !matches!(limit, Ok(Some(0)))
}

fn is_default(tid: ThreadId, signal: i32) -> bool {
    let bit = 1u64 << (signal - 1);
    SignalSets::of(tid).map_or(true, |sets| (sets.caught | sets.ignored) & bit == 0)
}

/// Where the kernel puts the core of a thread (core(5)). None where a program outside gets it.
fn folder_of(tid: ThreadId, pattern: &str) -> Option<PathBuf> {
    let pattern = pattern.trim_end_matches('\n');
    if pattern.starts_with(['|', '@']) {
        return None;
    }
    let folder = Path::new(pattern).parent().unwrap_or(Path::new(""));
    let base = if folder.has_root() { MagicLink::Root } else { MagicLink::Cwd };
    // What stands for a number or a name is not there under that name: then the first folder that is.
    folder.ancestors().map(|folder| base.below(tid, folder)).find(|folder| folder.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, expect: Option<(MagicLink, &str)>) {
        let tid = procfs::ProcessId::own().leader();
        let expect = expect.map(|(base, folder)| base.below(tid, Path::new(folder)));
        assert_eq!(folder_of(tid, pattern), expect, "{pattern:?}");
    }

    #[test]
    fn a_core_goes_where_its_pattern_says() {
        check("core\n", Some((MagicLink::Cwd, "")));
        check("core.%p", Some((MagicLink::Cwd, "")));
        check("/tmp/core.%e", Some((MagicLink::Root, "tmp")));
        check("/tmp/%u-no-such/core", Some((MagicLink::Root, "tmp")));
        check("|/usr/lib/systemd/systemd-coredump %P", None);
        check("@/run/socket", None);
    }
}
