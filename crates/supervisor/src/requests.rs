//! What the agent asks.

use crate::event_loop::Supervisor;
use crate::message::Message;
use crate::outputs::{Taken, Target, TargetKind};
use crate::spent::Cause;
use agent_abi::{hash_object, Frame, Request};
use commit_clock::DOMAINS_MAX;
use external_sync::domain::Place;
use procfs::{MagicLink, ProcessId, ThreadId};
use rustix::fs::{FileType, OFlags};
use rustix::net::UCred;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use syscall_table::nr;
use tracee::{Registers, Result, Stopped};

/// More than this in one call is not taken for later: the writer waits instead.
const OUTPUT_LEN_MAX: usize = 1 << 20;

impl Supervisor {
    pub(crate) fn on_request(&mut self, stopped: Stopped, mut registers: Registers) -> Result<()> {
        let tid = stopped.tid();
        let [a, b] = [registers.rsi, registers.rdx];
        let request = Request::from_raw(registers.rdi);
        self.ahead_on_request(tid, request);
        match request {
            Some(Request::Ahead) => return self.on_ahead(stopped, a, b != 0),
            Some(Request::Done) => {
                self.accounts.is(Cause::Stop("done"));
                return self.on_done(stopped, a as i64);
            }
            Some(Request::Trace) => return self.on_trace(stopped, a),
            _ => self.revoke_permits(),
        }
        let answer = match request {
            Some(Request::Output) => self.on_output(tid, a as i32, b),
            Some(Request::PlanExecutable) => self.plan_executable(tid, a),
            Some(Request::PlanFile) => self.plan_file(tid, a as i32),
            Some(Request::Restore) => self.restore(tid),
            Some(Request::Classify) => self.classify(tid, a as i32),
            Some(Request::Mounts) => self.mounts(),
            Some(Request::Device) => self.learn_device(tid, a as i32, b),
            Some(Request::Hold) => self.hold_domain(Some(tid), a as usize).map(|()| 0).map_err(errno),
            Some(Request::LetGo) => self.let_go_domains(a, b),
            Some(Request::Refused) => self.refused(tid, a, b),
            Some(Request::Fatal) => self.fatal(tid, a),
            Some(Request::HoldEnd) => self.hold_end(tid, a as i32),
            Some(Request::Volatile) => self.is_volatile(tid, a as i32, b as usize),
            Some(Request::Log) => self.propose_log(tid, a as i32, b as usize),
            Some(Request::MovesOut) => self.moves_out(tid, a),
            Some(Request::Mappings) => crate::texts::tell_mappings(tid, self.world(), a, b).map_err(errno),
            Some(Request::WatchEnd) => {
                self.watch_end_of(&stopped, registers.gs_base).map(|()| 0).map_err(|_| libc::ESRCH)
            }
            Some(Request::TraceWait) => self.wait_as_tracer(tid, a),
            Some(Request::Ahead | Request::Done | Request::Trace) | None => Err(libc::ENOSYS),
        };
        registers.rax = match answer {
            Ok(value) => value,
            Err(errno) => -i64::from(errno) as u64,
        };
        // Not a system call that the kernel could restart.
        registers.orig_rax = u64::MAX;
        stopped.set_registers(&registers)?;
        stopped.resume(0)
    }

    /// Take output for later.
    fn on_output(&mut self, tid: ThreadId, fd: i32, frame_at: u64) -> std::result::Result<u64, i32> {
        let frame: Frame = tracee::read_value(tid, frame_at).map_err(|_| libc::EOPNOTSUPP)?;
        let (target, bytes) = self.output_of(tid, fd, &frame).ok_or(libc::EOPNOTSUPP)?;
        let process = self.tracees.get(&tid).map(|tracee| tracee.process).ok_or(libc::EOPNOTSUPP)?;
        let id = *self.output_ids.get(&process).ok_or(libc::EOPNOTSUPP)?;
        // After the bytes were read: what is in shared memory may have changed since the call was made.
        let clock = self.dependencies_of_process(process);
        let len = bytes.len() as u64;
        let sender = self.sender_to(&target, tid, process);
        let taken = self.outputs.take_from(&target, id, clock, bytes, sender);
        // The writer asks for what it knew before: this may be a later transaction.
        if taken != Taken::No && self.world().transactions.request(&clock) {
            external_sync::engine::ring(self.world());
        }
        match taken {
            Taken::Yes => Ok(len),
            Taken::Full => Err(libc::EAGAIN),
            Taken::No => Err(libc::EOPNOTSUPP),
        }
    }

    /// As whom the process has to be named to who asks for that with each message of a Unix socket (`SO_PASSCRED`).
    /// Only root may send as another.
    fn sender_to(&mut self, target: &Target, tid: ThreadId, process: usize) -> Option<UCred> {
        use rustix::net::{sockopt::socket_domain, AddressFamily};
        use rustix::process::{getgid, getuid, Gid, Pid, Uid};
        let is_unix = || socket_domain(&target.fd).is_ok_and(|domain| domain == AddressFamily::UNIX);
        if target.kind != TargetKind::Socket || !self.is_root_user || !is_unix() {
            return None;
        }
        let pid = Pid::from_raw(self.pid_of(tid).ok()?.as_raw())?;
        let flags = self.world().processes[process].flags.load(Ordering::Relaxed);
        let (uid, gid) = match flags & agent_abi::PROCESS_PRIVILEGES {
            0 => (getuid(), getgid()),
            _ => {
                let status = procfs::Status::of(tid).ok()?;
                (Uid::from_raw(status.users().ok()?[0]), Gid::from_raw(status.groups().ok()?[0]))
            }
        };
        Some(UCred { pid, uid, gid })
    }

    /// The bytes that a call writes, and where to; `None` if the program has to write itself.
    pub(crate) fn output_of(&mut self, tid: ThreadId, fd: i32, frame: &Frame) -> Option<(Target, Vec<u8>)> {
        let bytes = gather(tid, frame)?;
        if bytes.is_empty() || bytes.len() > OUTPUT_LEN_MAX {
            return None;
        }
        let target = target_of(self.copy_descriptor(tid, fd).ok()?)?;
        Some((target, bytes))
    }

    /// Keep an outside stream open until what its end depends on is committed: an entry without bytes.
    fn hold_end(&mut self, tid: ThreadId, fd: i32) -> std::result::Result<u64, i32> {
        let copy = self.copy_descriptor(tid, fd).map_err(errno)?;
        if self.is_end_of_new_fifo(&copy) {
            return Ok(0);
        }
        let target = stream_of(copy).ok_or(libc::EOPNOTSUPP)?;
        let process = self.tracees.get(&tid).map(|tracee| tracee.process).ok_or(libc::ESRCH)?;
        let id = *self.output_ids.get(&process).ok_or(libc::ESRCH)?;
        let clock = self.world().processes[process].clock.load(DOMAINS_MAX);
        self.outputs.take(&target, id, clock, Vec::new());
        Ok(0)
    }

    pub(crate) fn copy_descriptor(&mut self, tid: ThreadId, fd: i32) -> io::Result<OwnedFd> {
        let pid = self.pid_of(tid)?;
        match self.descriptors.copy(pid, fd) {
            Ok(copy) => Ok(copy),
            // Its first thread may have ended, and has no descriptors any more.
            Err(error) => crate::sys::pidfd_open_thread(tid)
                .and_then(|thread| crate::sys::pidfd_getfd(thread.as_fd(), fd))
                .map_err(|_| error),
        }
    }

    /// Whether somebody inside hears what we read, or is to allow it: who stands still then would be waited for.
    pub(crate) fn are_reads_heard(&self) -> bool {
        self.world().options.load(Ordering::Relaxed) & agent_abi::option::READS_HEARD != 0
    }

    fn plan_executable(&mut self, tid: ThreadId, interpreter_at: u64) -> std::result::Result<u64, i32> {
        if self.are_reads_heard() {
            return Err(libc::EBUSY);
        }
        let program = MagicLink::Exe.open(tid, OFlags::RDONLY).map_err(|error| errno(error.into()))?;
        self.texts.learn(program.into()).map_err(errno)?;
        if interpreter_at != 0 {
            let path = read_path(tid, interpreter_at).ok_or(libc::EFAULT)?;
            self.texts.learn(File::open(MagicLink::Root.below(tid, &path)).map_err(errno)?).map_err(errno)?;
        }
        Ok(0)
    }

    fn plan_file(&mut self, tid: ThreadId, fd: i32) -> std::result::Result<u64, i32> {
        if self.are_reads_heard() {
            return Err(libc::EBUSY);
        }
        let copy = self.copy_descriptor(tid, fd).map_err(errno)?;
        // The copy shares its offset with the program's: open the file anew.
        self.texts.learn(File::open(procfs::own_path(&copy)).map_err(errno)?).map_err(errno)?;
        Ok(0)
    }

    fn restore(&mut self, tid: ThreadId) -> std::result::Result<u64, i32> {
        let injection = self.tracees.get_mut(&tid).and_then(|tracee| tracee.injection.take()).ok_or(libc::EINVAL)?;
        injection.restore(tid).map_err(|_| libc::EIO)?;
        Ok(0)
    }

    fn classify(&mut self, tid: ThreadId, fd: i32) -> std::result::Result<u64, i32> {
        let copy = self.copy_descriptor(tid, fd).map_err(errno)?;
        Ok(self.classify_socket(tid.as_raw(), &copy))
    }

    fn learn_device(&mut self, tid: ThreadId, fd: i32, dev: u64) -> std::result::Result<u64, i32> {
        let mount = procfs::descriptor_field(tid, fd, "mnt_id").ok().and_then(|number| number.parse().ok());
        let place = mount.map_or(Place::Outside, |mount| match self.domains.learn(dev, mount) {
            Place::Outside if is_pseudo_for(tid, mount) => Place::Pseudo,
            place => place,
        });
        crate::devices::set_device(self.world(), dev, place);
        Ok(0)
    }

    fn mounts(&mut self) -> std::result::Result<u64, i32> {
        let world = self.world();
        world.mounts_changed.store(0, Ordering::SeqCst);
        self.permits_of_mounts();
        self.domains.refresh().map_err(errno)?;
        crate::devices::publish(&self.domains, world, &self.handles).map_err(errno)?;
        self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).accept_read_only(world);
        Ok(0)
    }

    /// A domain is about to be changed, by a thread or by us. Whatever file system is mounted there now, it may be
    /// another than when we last looked.
    pub(crate) fn hold_domain(&mut self, tid: Option<ThreadId>, domain: usize) -> io::Result<()> {
        let world = self.world();
        self.domains.refresh_if_mounted(|domains| crate::devices::publish(domains, world, &self.handles))?;
        let known = self.domains.domains().get(domain).ok_or(io::ErrorKind::InvalidInput)?;
        let by_way = |dev| tid.and_then(|tid| open_by_way_of(tid, dev));
        crate::devices::hold(&self.domains, known.id, world, &self.handles, by_way)
    }

    /// Whether a process inside has, or is about to have, a file of a domain mapped so that it can be changed
    /// without a call. If none has, the domain is not held for that any longer.
    fn is_mapped(&self, domain: usize) -> bool {
        let world = self.world();
        let bit = 1 << domain;
        if world.mapped_domains.fetch_and(!bit, Ordering::SeqCst) & bit == 0 {
            return false;
        }
        // Who maps it has opened a handle before the bit was set, and closes it when the mapping is there.
        let is_under_way = world.thread_map.taken().any(|thread| world.threads[thread].handle.is_open());
        let dev = self.domains.domains().get(domain).map(|domain| domain.file_system.dev);
        let mut owners = self
            .tracees
            .iter()
            .filter(|(_, tracee)| world.processes[tracee.process].mapped_domains.load(Ordering::SeqCst) & bit != 0);
        let is_mapped = is_under_way || owners.any(|(&tid, _)| dev.is_none_or(|dev| maps_shared(tid, dev)));
        if is_mapped {
            world.mapped_domains.fetch_or(bit, Ordering::SeqCst);
        }
        is_mapped
    }

    /// Somebody inside is about to unmount this mount, with these flags.
    fn let_go_domains(&mut self, flags: u64, mount: u64) -> std::result::Result<u64, i32> {
        let world = self.world();
        self.domains.refresh().map_err(errno)?;
        let may_go = self.goes_with_its_mounts(flags);
        let goes = self.domains.domain_of_mount(mount).filter(|_| may_go);
        let is_mapped: Vec<bool> = (0..world.transactions.domains()).map(|domain| self.is_mapped(domain)).collect();
        let mut handles = self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (domain, _) in is_mapped.iter().enumerate().filter(|(_, &is_mapped)| !is_mapped) {
            // What was stored there last may not be on the disk yet, and nobody else will look for it.
            if !handles.flush(domain) {
                world.mapped_domains.fetch_or(1 << domain, Ordering::SeqCst);
                // The engine ends the world.
                drop(handles);
                external_sync::engine::ring(world);
                return Err(libc::EIO);
            }
        }
        for domain in 0..world.transactions.domains() {
            match goes.is_some_and(|goes| usize::from(goes.0) == domain) {
                true => handles.close(world, domain),
                false => handles.let_go(world, domain),
            }
        }
        Ok(0)
    }

    /// Whether a file system is gone for the world when no mount of it is left here: nobody has taken one lazily away,
    /// and may use what is left, and nobody has mounts of his own.
    fn goes_with_its_mounts(&self, flags: u64) -> bool {
        const MNT_DETACH: u64 = libc::MNT_DETACH as u64;
        let mounts = |process: procfs::TaskId| MagicLink::Namespace("mnt").shown(process);
        let own = mounts(ProcessId::own().into()).ok();
        let has_same = |tid: &ThreadId| match mounts((*tid).into()) {
            Ok(other) => Some(other) == own,
            Err(error) => error.is_gone(),
        };
        let mut handles = self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        handles.has_leftovers |= flags & MNT_DETACH != 0;
        !handles.has_leftovers && self.tracees.keys().all(has_same)
    }

    fn refused(&mut self, tid: ThreadId, nr: u64, argument: u64) -> std::result::Result<u64, i32> {
        let name = u16::try_from(nr)
            .ok()
            .and_then(|nr| syscall_table::row(u64::from(nr)))
            .map_or("a system call", |row| row.name);
        let asked = match crate::request_names::name_of_request(nr, argument) {
            Some(request) => request.to_owned(),
            None => format!("{argument:#x}"),
        };
        let text = format!("{name}({asked}) of thread {tid} was refused: a world cannot contain what it does");
        let is_new = self.refused.insert(nr);
        self.front.tell(&if is_new { Message::Note { text } } else { Message::Detail { text } });
        Ok(0)
    }

    fn fatal(&mut self, tid: ThreadId, line: u64) -> std::result::Result<u64, i32> {
        self.front.tell(&Message::Warning { text: format!("the agent of thread {tid} could not go on (line {line})") });
        Ok(0)
    }
}

/// Whether a mount that a thread has, perhaps in a namespace of its own, is an interface to the kernel, as the `/proc`
/// of a container: whoever reads there learns what others do.
fn is_pseudo_for(tid: ThreadId, mount: u64) -> bool {
    let mounts = procfs::mountinfo::of(tid).unwrap_or_default();
    mounts.iter().any(|one| one.id == mount && external_sync::domain::is_pseudo(&one.fs_type))
}

/// Whether a thread's process has a file of this device mapped shared.
fn maps_shared(tid: ThreadId, dev: u64) -> bool {
    let wanted = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let Ok(maps) = procfs::Maps::of(tid) else { return true };
    let is_mapped = maps.iter().any(|mapping| mapping.is_shared() && mapping.device == wanted);
    is_mapped
}

fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A file or directory on this file system, found among what a thread has open: where it was unmounted lazily, or
/// covered, nothing else leads there.
fn open_by_way_of(tid: ThreadId, dev: u64) -> Option<OwnedFd> {
    use std::os::unix::fs::MetadataExt;
    let files = procfs::descriptors(tid).unwrap_or_default().into_iter().map(MagicLink::Fd);
    files.chain([MagicLink::Cwd, MagicLink::Root]).find_map(|link| {
        let metadata = link.metadata(tid).ok()?;
        let is_there = metadata.dev() == dev && (metadata.is_file() || metadata.is_dir());
        is_there.then(|| link.open(tid, OFlags::RDONLY).ok()).flatten()
    })
}

pub(crate) fn read_path(tid: ThreadId, address: u64) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    const PATH_MAX: usize = 4096;
    let mut path = Vec::new();
    while path.len() < PATH_MAX {
        // Never across a page: the next one may not be there.
        let at = address + path.len() as u64;
        let chunk = tracee::read_bytes(tid, at, 4096 - (at % 4096) as usize).ok()?;
        if let Some(end) = chunk.iter().position(|&b| b == 0) {
            path.extend_from_slice(&chunk[..end]);
            return Some(std::ffi::OsString::from_vec(path).into());
        }
        path.extend_from_slice(&chunk);
    }
    None
}

/// As `gather`, and `pwrite`: where it goes to is the caller's to see.
pub(crate) fn gather_for_file(tid: ThreadId, frame: &Frame) -> Option<Vec<u8>> {
    if !matches!(frame.nr, nr::write | nr::writev | nr::pwrite64) {
        return None;
    }
    let as_write = Frame { nr: if frame.nr == nr::pwrite64 { nr::write } else { frame.nr }, ..*frame };
    gather(tid, &as_write).filter(|bytes| bytes.len() <= OUTPUT_LEN_MAX)
}

/// The bytes that a call wants to write; `None` if it is not a plain write of data.
fn gather(tid: ThreadId, frame: &Frame) -> Option<Vec<u8>> {
    let [_, a1, a2, a3, a4, _] = frame.args;
    const QUIET: u64 = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as u64;
    match frame.nr {
        nr::write => read_within(tid, a1, a2),
        nr::writev => gather_vector(tid, a1, a2),
        nr::sendto if a4 == 0 && a3 & !QUIET == 0 => read_within(tid, a1, a2),
        nr::sendmsg if a2 & !QUIET == 0 => {
            let header: [u64; 4] = tracee::read_value(tid, a1).ok()?;
            gather_vector(tid, header[2], header[3])
        }
        _ => None,
    }
}

fn read_within(tid: ThreadId, address: u64, len: u64) -> Option<Vec<u8>> {
    let len = usize::try_from(len).ok().filter(|&len| len <= OUTPUT_LEN_MAX)?;
    tracee::read_bytes(tid, address, len).ok()
}

/// The parts of a vector (`struct iovec`) in a thread's memory: address and length. `None`: the kernel would refuse it.
pub(crate) fn parts_of(tid: ThreadId, vector: u64, count: u64) -> Option<Vec<[u64; 2]>> {
    const IOV_MAX: u64 = 1024;
    const PART_LEN: u64 = 16;
    if count > IOV_MAX {
        return None;
    }
    (0..count).map(|part| tracee::read_value(tid, vector.wrapping_add(part * PART_LEN)).ok()).collect()
}

fn gather_vector(tid: ThreadId, vector: u64, count: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for [address, len] in parts_of(tid, vector, count)? {
        if bytes.len() as u64 + len > OUTPUT_LEN_MAX as u64 {
            return None;
        }
        bytes.extend(read_within(tid, address, len)?);
    }
    Some(bytes)
}

/// The master of a pseudo-terminal: opened anew it is another one (pts(4)).
const PTMX: u64 = 0x502;
/// `/dev/tty`: for each session another terminal, and for ours none (tty(4)).
const CONTROLLING_TERMINAL: u64 = 0x500;

/// An outside object that can take a write now; `None` where the program has to see for itself.
fn target_of(fd: OwnedFd) -> Option<Target> {
    let stat = rustix::fs::fstat(&fd).ok()?;
    let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
    if flags.contains(rustix::fs::OFlags::PATH) || flags & rustix::fs::OFlags::RWMODE == rustix::fs::OFlags::RDONLY {
        return None;
    }
    let (object, kind) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => (hash_object(stat.st_dev, stat.st_ino), TargetKind::Pipe),
        FileType::CharacterDevice
            if !matches!(stat.st_rdev, PTMX | CONTROLLING_TERMINAL) && takes_background_writes(&fd) =>
        {
            (hash_object(u64::MAX, stat.st_rdev), TargetKind::Terminal)
        }
        FileType::Socket if is_connected_stream(&fd) => (hash_object(stat.st_dev, stat.st_ino), TargetKind::Socket),
        _ => return None,
    };
    if kind != TargetKind::Terminal && has_error(&fd) {
        return None;
    }
    let fd = match kind {
        TargetKind::Socket => fd,
        // When there is room at all, there is room for what is written at once.
        TargetKind::Pipe => pipe_without_waiting(&fd, flags).unwrap_or(fd),
        TargetKind::Terminal => without_waiting(&fd)?,
    };
    Some(Target { object, dev: stat.st_dev, kind, fd: Arc::new(fd) })
}

/// The same pipe or terminal, opened anew so that a write to it never waits for its reader; the program's own
/// description stays as it is. Somebody else's terminal may not be opened.
fn without_waiting(fd: &OwnedFd) -> Option<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = procfs::own_path(fd);
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    File::options().write(true).custom_flags(flags).open(path).ok().map(OwnedFd::from)
}

/// The same pipe, where each write is a packet if it was so before (pipe(2), `O_DIRECT`). It cannot be opened so.
fn pipe_without_waiting(fd: &OwnedFd, flags: OFlags) -> Option<OwnedFd> {
    let pipe = without_waiting(fd)?;
    match flags.contains(OFlags::DIRECT) {
        true => rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK | OFlags::DIRECT).ok().map(|()| pipe),
        false => Some(pipe),
    }
}

/// An outside pipe or socket, in whatever state.
pub(crate) fn stream_of(fd: OwnedFd) -> Option<Target> {
    let stat = rustix::fs::fstat(&fd).ok()?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => TargetKind::Pipe,
        FileType::Socket => TargetKind::Socket,
        _ => return None,
    };
    Some(Target { object: hash_object(stat.st_dev, stat.st_ino), dev: stat.st_dev, kind, fd: Arc::new(fd) })
}

/// With TOSTOP a write may stop its writer: the writer must do it itself.
fn takes_background_writes(fd: &OwnedFd) -> bool {
    rustix::termios::tcgetattr(fd).is_ok_and(|t| !t.local_modes.contains(rustix::termios::LocalModes::TOSTOP))
}

fn is_connected_stream(fd: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_type(fd).is_ok_and(|kind| kind == rustix::net::SocketType::STREAM)
        && rustix::net::getpeername(fd).is_ok()
}

fn has_error(fd: &OwnedFd) -> bool {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};
    let mut polls = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polls, Some(&now)).is_err()
        || polls[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}
