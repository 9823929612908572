//! The end of a process that has streams to outside, whatever ends it: their other ends must not see that before what
//! the process depends on is committed. The kernel closes what a process leaves open; so we take copies while it stands
//! still for the last time.
//!
//! Only processes that had such a stream stop at their end (`Request::WatchEnd`): all others pay nothing.

use crate::event_loop::Supervisor;
use crate::outputs::Target;
use crate::requests::stream_of;
use crate::sys;
use agent_abi::{option, ThreadPage, PROCESS_GIVES_BACK, PROCESS_MAPPED_PRIVATE, PROCESS_SHARES, THREAD_WATCHED};
use commit_clock::{Clock, DOMAINS_MAX};
use output::WriterId;
use procfs::{MagicLink, Status, ThreadId};
use rustix::fs::FileType;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use tracee::{Result, SignalInfo, Stopped, TraceError, Waker};

/// A thread that stands still until what its process depends on is committed.
#[derive(Debug)]
pub(crate) struct GoesOnLater {
    stopped: Stopped,
    then: Then,
    /// What it waits for has come.
    may_go_on: Arc<AtomicBool>,
}

/// What a thread does that has stood still.
#[derive(Debug)]
enum Then {
    /// It is the last one of a process with names for which others may ask, or with locks or semaphores that they see:
    /// it ends. A copy of such a socket would keep its name from whoever wants it next.
    End,
    /// It sees a signal that leaves a core.
    Deliver { signal: i32, info: Option<SignalInfo> },
}

impl GoesOnLater {
    /// The thread.
    pub fn tid(&self) -> ThreadId {
        self.stopped.tid()
    }
}

impl Supervisor {
    /// From now on the thread stops before it ends, and so do the children that it makes.
    pub(crate) fn watch_end(&mut self, stopped: &Stopped) -> Result<()> {
        stopped.trace_exit()?;
        if let Some(tracee) = self.tracees.get_mut(&stopped.tid()) {
            tracee.watched = true;
            self.watched.insert(tracee.process);
        }
        Ok(())
    }

    /// The same; the thread's page says that it need not ask again.
    pub(crate) fn watch_end_of(&mut self, stopped: &Stopped, page: u64) -> Result<()> {
        self.watch_end(stopped)?;
        let kernel = |source| TraceError::kernel("note that a thread is watched", stopped.tid(), source);
        let at = page.wrapping_add(offset_of!(ThreadPage, flags) as u64);
        let flags: u32 = tracee::read_value(stopped.tid(), at).map_err(kernel)?;
        tracee::write_bytes(stopped.tid(), at, &(flags | THREAD_WATCHED).to_ne_bytes()).map_err(kernel)
    }

    /// A new thread, or a child, of a process that is watched.
    pub(crate) fn watch_heir(&mut self, stopped: &Stopped) -> Result<()> {
        if self.watched.is_empty() {
            return Ok(());
        }
        let Some(tracee) = self.tracees.get(&stopped.tid()) else { return Ok(()) };
        let parent = self.world().processes[tracee.process].parent.load(Ordering::Relaxed) as usize;
        if self.watched.contains(&tracee.process) || self.watched.contains(&parent) {
            return self.watch_end(stopped);
        }
        Ok(())
    }

    /// A thread is about to end. With the last one of its process, its descriptors go.
    pub(crate) fn on_ending(&mut self, stopped: Stopped) -> Result<()> {
        let tid = stopped.tid();
        if let Some(tracee) = self.tracees.get_mut(&tid) {
            tracee.ending = true;
            if let Some(thread) = tracee.thread {
                // A call that a kill ended left it open. What waits here for a commit would keep that commit waiting,
                // and a first thread is reported only after all others.
                self.world().threads[thread].leave_change(&self.world().transactions);
            }
            if !self.has_companion(tid) {
                self.hold_ends(tid);
                return self.end_when_names_may_go(stopped);
            }
            if self.has_own_descriptors(tid) {
                self.hold_ends(tid);
            }
        }
        stopped.resume(0)
    }

    /// With the process go the names of its sockets: whoever asks for one of them is refused. So do its locks,
    /// and what it took of semaphores.
    fn end_when_names_may_go(&mut self, stopped: Stopped) -> Result<()> {
        let tid = stopped.tid();
        let unsettled = self.unsettled_clock(tid);
        let is_missed = |one: &(Clock, usize)| {
            let flags = self.world().processes[one.1].flags.load(Ordering::Relaxed);
            flags & PROCESS_GIVES_BACK != 0 || self.has_name_for_others(tid)
        };
        let Some((clock, process)) = unsettled.filter(is_missed) else { return stopped.resume(0) };
        match self.output_ids.get(&process) {
            Some(&id) => self.go_on_later(stopped, clock, Some(id), Then::End),
            None => stopped.resume(0),
        }
    }

    /// A thread outside the agent sees a signal; with what came with it, if the kernel does not have that any more.
    pub(crate) fn deliver(&mut self, stopped: Stopped, signal: i32, info: Option<SignalInfo>) -> Result<()> {
        self.deliver_after(stopped, signal, info, false)
    }

    /// The same; `has_waited`: the thread has stood still for it already.
    fn deliver_after(
        &mut self,
        stopped: Stopped,
        signal: i32,
        info: Option<SignalInfo>,
        has_waited: bool,
    ) -> Result<()> {
        match (self.before_core(stopped.tid(), signal, has_waited), info) {
            (Some(clock), info) => self.go_on_later(stopped, clock, None, Then::Deliver { signal, info }),
            (None, Some(info)) => stopped.resume_with(&info),
            (None, None) => stopped.resume(signal),
        }
    }

    /// When all of this is committed, and the output of that process has left.
    fn go_on_later(&mut self, stopped: Stopped, clock: Clock, output: Option<WriterId>, then: Then) -> Result<()> {
        let world = self.world();
        let Ok(event_loop) = Waker::of_this_thread() else { return stopped.resume(0) };
        let may_go_on = Arc::new(AtomicBool::new(false));
        let (outputs, failed, told) = (self.outputs.clone(), self.failed.clone(), may_go_on.clone());
        let wait = move || {
            const AGAIN: Duration = Duration::from_millis(1);
            external_sync::engine::await_commit(world, &clock, || failed.load(Ordering::SeqCst));
            while !output.is_none_or(|id| outputs.is_empty_of(id)) && !failed.load(Ordering::SeqCst) {
                std::thread::sleep(AGAIN);
            }
            told.store(true, Ordering::SeqCst);
            // The wake-up may come just before the wait that it is to end.
            while Arc::strong_count(&told) > 1 {
                event_loop.wake();
                std::thread::sleep(AGAIN);
            }
        };
        match crate::threads::start("endings", wait) {
            Ok(_) => {
                self.going_on_later.push(GoesOnLater { stopped, then, may_go_on });
                Ok(())
            }
            // The event loop waits itself: nobody else goes on meanwhile, but nothing is shown that is not durable.
            Err(_) => {
                external_sync::engine::await_commit(world, &clock, || self.failed.load(Ordering::SeqCst));
                self.go_on(stopped, then)
            }
        }
    }

    fn go_on(&mut self, stopped: Stopped, then: Then) -> Result<()> {
        match then {
            Then::End => stopped.resume(0),
            Then::Deliver { signal, info } => self.deliver_after(stopped, signal, info, true),
        }
    }

    /// The event loop looks here between two events.
    pub(crate) fn go_on_with_those_committed(&mut self) {
        if self.going_on_later.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.going_on_later);
        let (may, must_wait) = all.into_iter().partition(|one| one.may_go_on.load(Ordering::SeqCst));
        self.going_on_later = must_wait;
        for GoesOnLater { stopped, then, .. } in may {
            // It may have been killed meanwhile.
            let _ = self.go_on(stopped, then);
        }
    }

    /// A fault of the first process of a namespace of processes. The kernel protects such a process from signals
    /// that it does not catch, and takes that back for a fault, but not while there is a tracer: the instruction
    /// would be tried for ever. We let go of it.
    pub(crate) fn let_first_process_die(&mut self, stopped: Stopped) -> Result<()> {
        let tid = stopped.tid();
        if !self.has_companion(tid) {
            self.hold_ends(tid);
        }
        stopped.let_go()?;
        self.on_exit(tid);
        Ok(())
    }

    /// Whether nobody else inside has one of its sockets that have a name and no peer.
    fn has_name_for_others(&mut self, tid: ThreadId) -> bool {
        let Ok(pid) = self.pid_of(tid) else { return false };
        let Ok(descriptors) = procfs::descriptors(tid) else { return false };
        let is_socket = |fd: i32| {
            let found = MagicLink::Fd(fd).metadata(tid);
            found.is_ok_and(|found| FileType::from_raw_mode(found.mode()) == FileType::Socket)
        };
        descriptors.into_iter().filter(|&fd| is_socket(fd)).any(|fd| {
            let copy = self.copy_of_ending(tid, fd);
            copy.is_some_and(|copy| is_name_without_peer(&copy) && !self.is_held_by_others(pid, &copy))
        })
    }

    /// What the process of a thread depends on, and its slot.
    pub(crate) fn dependencies_of(&self, tid: ThreadId) -> Option<(Clock, usize)> {
        let process = self.tracees.get(&tid)?.process;
        Some((self.dependencies_of_process(process), process))
    }

    /// What the process in a slot depends on, as its agent says it (`Call::dependencies`): with what it may have
    /// learned from shared memory, and what was stored in mapped files without a call.
    pub(crate) fn dependencies_of_process(&self, process: usize) -> Clock {
        let world = self.world();
        let slot = &world.processes[process];
        let mut clock = slot.clock.load(DOMAINS_MAX);
        let flags = slot.flags.load(Ordering::Relaxed);
        let shares = flags & PROCESS_SHARES != 0
            || flags & PROCESS_MAPPED_PRIVATE != 0 && world.private_changed.load(Ordering::Relaxed) != 0;
        if shares || slot.watched[0].load(Ordering::Relaxed) != 0 {
            world.join_mapped();
            clock.merge(&world.transactions.dirty());
        }
        clock
    }

    /// The same, of a thread that ends, if it is not settled yet.
    fn unsettled_clock(&self, tid: ThreadId) -> Option<(Clock, usize)> {
        let world = self.world();
        let (clock, process) = self.dependencies_of(tid)?;
        let slot = &world.processes[process];
        let is_settled = world.transactions.is_resolved(&clock) && slot.held_outputs.load(Ordering::Acquire) == 0;
        let is_shown_early = world.options.load(Ordering::Relaxed) & option::RELEASE_EARLY != 0;
        (!is_settled && !is_shown_early).then_some((clock, process))
    }

    /// Whether the process has another thread that will stop here, too.
    fn has_companion(&mut self, tid: ThreadId) -> bool {
        let process = self.tracees.get(&tid).map(|tracee| tracee.process);
        let others = self.tracees.iter().filter(|(&other, tracee)| {
            other != tid && Some(tracee.process) == process && tracee.watched && !tracee.ending
        });
        let others: Vec<ThreadId> = others.map(|(&other, _)| other).collect();
        let Ok(pid) = self.pid_of(tid) else { return false };
        others.into_iter().any(|other| self.pid_of(other).is_ok_and(|found| found == pid))
    }

    /// Whether a thread has a table of descriptors that goes with it (`unshare(CLONE_FILES)`).
    fn has_own_descriptors(&self, tid: ThreadId) -> bool {
        let process = self.tracees.get(&tid).map(|tracee| tracee.process);
        let is_other = |other: ThreadId, of: usize, ending: bool| other != tid && Some(of) == process && !ending;
        let mut others = self.tracees.iter().filter(|(&other, tracee)| is_other(other, tracee.process, tracee.ending));
        !others.any(|(&other, _)| sys::share_descriptors(tid, other))
    }

    fn hold_ends(&mut self, tid: ThreadId) {
        let world = self.world();
        let Some((clock, process)) = self.unsettled_clock(tid) else { return };
        let Some(&id) = self.output_ids.get(&process) else { return };
        for stream in self.outside_streams(tid) {
            self.outputs.take(&stream, id, clock, Vec::new());
        }
        if world.transactions.request(&clock) {
            external_sync::engine::ring(world);
        }
    }

    /// Copies of what a thread has open that leads outside and whose other end can see it close.
    fn outside_streams(&mut self, tid: ThreadId) -> Vec<Target> {
        let Ok(descriptors) = procfs::descriptors(tid) else { return Vec::new() };
        let streams = descriptors.into_iter().filter(|&fd| may_have_reader(tid, &MagicLink::Fd(fd)));
        let copies: Vec<OwnedFd> = streams.filter_map(|fd| self.copy_of_ending(tid, fd)).collect();
        let is_outside = |copy: &OwnedFd| {
            let is_socket =
                rustix::fs::fstat(copy).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
            !is_socket || rustix::net::getpeername(copy).is_ok() && self.classify_socket(tid.as_raw(), copy) == 0
        };
        let copies: Vec<OwnedFd> = copies.into_iter().filter(is_outside).collect();
        copies.into_iter().filter(|copy| !self.is_end_of_new_fifo(copy)).filter_map(stream_of).collect()
    }

    /// The first thread of its process may have ended before this one.
    fn copy_of_ending(&mut self, tid: ThreadId, fd: i32) -> Option<OwnedFd> {
        match sys::pidfd_open_thread(tid) {
            Ok(thread) => sys::pidfd_getfd(thread.as_fd(), fd).ok(),
            Err(_) => self.copy_descriptor(tid, fd).ok(),
        }
    }
}

/// Whether others can ask for a socket by its name, and be refused once it is gone. (A netlink socket's only the
/// kernel asks for.)
fn is_name_without_peer(socket: &OwnedFd) -> bool {
    use rustix::net::{getpeername, getsockname, AddressFamily};
    if getpeername(socket).is_ok() {
        return false;
    }
    let Ok(name) = getsockname(socket) else { return false };
    match name.address_family() {
        AddressFamily::NETLINK => false,
        AddressFamily::UNIX => name.addr_len() > 2,
        AddressFamily::INET | AddressFamily::INET6 => {
            let v4 = std::net::SocketAddrV4::try_from(name.clone()).map(|name| name.port());
            let v6 = std::net::SocketAddrV6::try_from(name).map(|name| name.port());
            v4.or(v6).is_ok_and(|port| port != 0)
        }
        _ => true,
    }
}

/// Whether what is open there is a socket, or a FIFO that has a name; pipes that were inherited are kept anyway
/// (`kept`).
fn may_have_reader(tid: ThreadId, link: &MagicLink) -> bool {
    let Ok(metadata) = link.metadata(tid) else { return false };
    match FileType::from_raw_mode(metadata.mode()) {
        FileType::Socket => true,
        FileType::Fifo => link.shown(tid).is_ok_and(|name| !name.as_os_str().as_encoded_bytes().starts_with(b"pipe:")),
        _ => false,
    }
}

/// Whether a thread belongs to the first process of a namespace of processes (proc(5)).
pub(crate) fn is_of_first_process(tid: ThreadId) -> bool {
    Status::of(tid).and_then(|status| status.innermost("NStgid")).is_ok_and(|number: i32| number == 1)
}
