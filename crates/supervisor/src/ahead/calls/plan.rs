//! What a call observes and modifies, and what it is if its process is speculative (000, section 6). The row of the
//! system-call table says it where neither the arguments nor the object matter; the rest is looked at here.

use crate::ahead::calls::births::plan_fork;
use crate::ahead::calls::other_processes::FileOfProcess;
use crate::ahead::calls::own_state::{self, plan_identity, plan_limit, plan_prctl};
use crate::ahead::filesystems::disk::attribute_calls;
use crate::ahead::filesystems::disk::names::is_fifo;
use crate::ahead::filesystems::disk::truncations::is_truncation;
use crate::ahead::filesystems::disk::writes::writes_nothing;
use crate::ahead::filesystems::memory::is_pread;
use crate::ahead::filesystems::open::{O_CREAT, O_TMPFILE, O_TRUNC};
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::objects::epoll::Leaving;
use crate::ahead::objects::input::{self, Source};
use crate::ahead::objects::sockets::accept::Listener;
use crate::ahead::objects::sockets::shutdown::Closed;
use crate::ahead::process::kill::SignalRequest;
use crate::ahead::process::wanted;
use crate::ahead::rollback::undo::{position_of, Intent};
use crate::ahead::{process, Call, Object};
use crate::event_loop::Supervisor;
use agent_abi::{option, DeviceKind, FDS_MAX};
use procfs::{ProcessId, TaskId};
use rustix::fs::FileType;
use speculation::Dependent;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::OnceLock;
use syscall_table::nr;
use syscall_table::{Ahead, Op, SyncKind, Whom};

/// What a call is.
#[derive(Debug)]
pub(crate) enum Class {
    /// Nothing that anybody else could observe: always allowed.
    Free,
    /// It observes and modifies objects, and can be undone.
    Tracked,
    /// It leaves the world: bytes written to a terminal, pipe or socket.
    Output { fd: i32 },
    /// It sends to the other end of a TCP connection inside.
    Send { fd: i32, ino: u64 },
    /// It reads what comes from outside.
    Input { source: Source },
    /// It makes a file durable.
    Sync { fd: i32 },
    /// It takes the lock of a file, or gives it up.
    Lock { fd: i32 },
    /// It takes a record lock, gives it up, or looks who has it.
    Record,
    /// It closes what its process has record locks of.
    CloseLocked { files: Vec<(u64, u64)> },
    /// It makes a child that is to use its memory, and waits until the child does not any more.
    Apart,
    /// It connects to a port where nobody listens.
    Refused { socket: OwnedFd, address: std::net::SocketAddr },
    /// It lets clients inside connect, and nobody outside yet.
    Listen { ino: u64, socket: OwnedFd },
    /// It connects to such a server, by its inode, at a port.
    Connect { server: u64, port: u16, client: OwnedFd },
    /// It accepts a connection.
    Accept { listener: Listener },
    /// It closes what is in epoll sets: descriptors of sets and of members.
    CloseMembers { members: Vec<(i32, i32)> },
    /// It closes directions of a connection, whose ends are these.
    Shutdown { ends: (u64, u64), socket: OwnedFd, closed: Closed },
    /// It changes names on a disk.
    Names,
    /// It changes what is said of a file or directory on a disk.
    Attributes,
    /// It opens for creation what exists.
    Existing,
    /// It empties a file that is there.
    Emptying,
    /// It changes the size of a file.
    Truncation,
    /// It may make a file.
    Creation,
    /// It maps a file that was there, to be written.
    Mirror,
    /// It writes to a file on a disk.
    Deferred { fd: i32 },
    /// It cannot be undone: its process must depend on nothing.
    Barrier,
    /// The same, and nor may what it concerns.
    Certain,
    /// It changes what its process has made since its last checkpoint: it must not need one itself.
    Fresh,
    /// It ends another process.
    Kill(SignalRequest),
    /// It sends another process a signal that this one survives.
    Signal(SignalRequest),
    /// It reads, and there is nothing, nor will there be.
    EndOfFile,
    /// It looks at processes in general: nothing at all may be speculative.
    Window,
    /// It reads what is said of another process.
    OfProcess(FileOfProcess),
    /// The end of the process.
    Exit { status: i32 },
    /// Waiting for a child.
    Wait,
    /// Its result is known, whatever happens outside meanwhile: it is answered.
    Known { result: i64 },
    /// Others are about to change what it looks at: it is looked at again when they have.
    Later,
}

/// A call, looked at.
#[derive(Debug)]
pub(crate) struct Plan {
    pub class: Class,
    pub observes: Vec<Dependent<Object>>,
    /// In this order; undone in the opposite one.
    pub modifies: Vec<(Object, Intent)>,
    /// It has no effect until it ends, however long that takes.
    pub can_be_repeated: bool,
}

impl Plan {
    pub(in crate::ahead) fn new(class: Class) -> Self {
        Self { class, observes: Vec::new(), modifies: Vec::new(), can_be_repeated: true }
    }

    /// A call that can be undone, whose objects the caller names itself.
    pub(in crate::ahead) fn tracked_once() -> Self {
        Self::new(Class::Tracked).once()
    }

    pub(in crate::ahead) fn observing(mut self, object: Object) -> Self {
        self.observes.push(Dependent::Object(object));
        self
    }

    pub(in crate::ahead) fn modifying(mut self, object: Object, intent: Intent) -> Self {
        self.modifies.push((object, intent));
        self
    }

    pub(in crate::ahead) fn once(mut self) -> Self {
        self.can_be_repeated = false;
        self
    }
}

pub(in crate::ahead) const FIONREAD: u64 = 0x541b;
pub(in crate::ahead) const FIONBIO: u64 = 0x5421;

impl Supervisor {
    pub(crate) fn plan(&mut self, call: &Call) -> Plan {
        let frame = &call.frame;
        let arg = |position: u8| frame.args[usize::from(position) % 6];
        let fd = |position: u8| arg(position) as i32;
        let Some(op) = syscall_table::op(frame.nr) else { return Plan::new(Class::Barrier) };
        if let Some(plan) = self.plan_look_at_others(call, op) {
            return plan;
        }
        if matches!(op, Op::Open | Op::OpenAt | Op::Creat | Op::OpenAt2) && self.may_break_lease(call) {
            return Plan::new(Class::Barrier).once();
        }
        if let Some(plan) = self.plan_new_file(call, op) {
            return plan;
        }
        if let Some(plan) = plan_limit(call, self.ahead.checkpoints.has_none(call.pid)) {
            return plan;
        }
        if let Some(plan) = self.plan_files(call, op) {
            return match (&plan.class, op) {
                // Not in memory.
                (Class::Barrier, Op::ModifyPath { .. } | Op::ModifyPaths { .. }) => self.plan_names(call, op),
                (Class::Barrier, Op::Open | Op::OpenAt | Op::Creat) => self.plan_creating_open(call),
                _ => plan,
            };
        }
        match syscall_table::ahead(frame.nr) {
            Ahead::Own | Ahead::Free => return Plan::new(Class::Free),
            Ahead::Alone => return Plan::new(Class::Window).once(),
            Ahead::Waits(_) if self.lasts_no_longer_than_its_process(call) => return Plan::new(Class::Free).once(),
            Ahead::Waits(_) if self.leads_as_long_as_it_lives(call) => return Plan::new(Class::Free).once(),
            Ahead::Waits(_) if wanted::sends_itself_nothing(call) => {
                return Plan::new(Class::Known { result: 0 }).once()
            }
            Ahead::Waits(_) => {
                let plan = self.plan_signal_by_descriptor(call);
                return plan.unwrap_or_else(|| Plan::new(Class::Barrier).once());
            }
            Ahead::Tracked | Ahead::Held | Ahead::ByArgument | Ahead::Certain => {}
        }
        match op {
            _ if is_refused(call) => Plan::new(Class::Free),
            Op::Read { fd: at } => self.plan_read(call, fd(at)),
            Op::ObserveFd { fd: at } => self.plan_look(call, fd(at)),
            Op::Write { fd: at } => self.plan_write(call, fd(at)),
            Op::Close => match self.plan_close(call, [fd(0)].into_iter()) {
                // EBADF, whatever anybody guesses.
                plan if matches!(plan.class, Class::Tracked) && plan.modifies.is_empty() => Plan::new(Class::Free),
                plan => plan,
            },
            Op::CloseRange if self.leaves_table(call) => Plan::new(Class::Barrier).once(),
            Op::CloseRange => {
                let (first, last) = (fd(0), (arg(1) as u32).min(FDS_MAX as u32) as i32);
                let Ok(open) = self.descriptors_of(call.pid) else { return Plan::new(Class::Barrier).once() };
                self.plan_close(call, open.into_iter().filter(|fd| (first..=last).contains(fd)))
            }
            Op::Dup2 if arg(0) as i32 != arg(1) as i32 => self.plan_close(call, [fd(1)].into_iter()),
            Op::Dup2 => Plan::new(Class::Free),
            Op::Fcntl => self.plan_fcntl(call),
            Op::Open | Op::OpenAt | Op::Creat | Op::OpenAt2 => self.plan_open(call),
            Op::ObservePath { .. } | Op::StatPath { .. } | Op::Statx | Op::Chdir | Op::Fchdir => {
                self.plan_lookup(call.pid)
            }
            Op::ModifyFd { fd: at } if is_truncation(frame.nr) => match self.file_description(call.tid, fd(at)) {
                // EINVAL.
                FileDescription::Pipe { .. } | FileDescription::Socket { .. } | FileDescription::Object(_) => {
                    Plan::new(Class::Free)
                }
                _ => Plan::new(Class::Truncation).once(),
            },
            Op::ModifyFd { .. } if attribute_calls::is_change(frame.nr) => Plan::new(Class::Attributes).once(),
            Op::ModifyPath { .. } | Op::ModifyPaths { .. } => self.plan_names(call, op),
            Op::Sync(SyncKind::File | SyncKind::Range) => self.plan_sync(call),
            Op::Ioctl => self.plan_ioctl(call),
            Op::Poll | Op::Select | Op::EpollWait => self.plan_poll(call),
            Op::Mmap => self.plan_mmap(call),
            Op::Fork | Op::Vfork | Op::Clone | Op::Clone3 => plan_fork(call),
            Op::Wait => Plan::new(Class::Wait),
            Op::Exit | Op::ExitGroup => Plan::new(Class::Exit { status: (arg(0) as i32 & 0xff) << 8 }),
            Op::Tgkill if arg(0) as i32 == call.pid.as_raw() => plan_own_signal(arg(2) as i32),
            Op::Kill if arg(0) as i32 == call.pid.as_raw() => plan_own_signal(arg(1) as i32),
            Op::Kill => self.plan_kill(call),
            Op::Execve | Op::Execveat => self.plan_exec(call),
            Op::Prctl if self.lasts_no_longer_than_its_process(call) => Plan::new(Class::Free).once(),
            Op::Prctl => plan_prctl(call),
            Op::Lasting if own_state::is_refused_key(call) => Plan::new(Class::Free),
            Op::Lasting if self.lasts_no_longer_than_its_process(call) => Plan::new(Class::Free).once(),
            Op::Lasting if self.locks_young_memory(call) => Plan::new(Class::Free).once(),
            // The agent asks where the kernel is to wait for children itself, or is not to any more.
            Op::Action if self.has_older_children(call) => Plan::new(Class::Barrier).once(),
            Op::Action => Plan::new(Class::Free).once(),
            Op::Description { .. } if call.frame.nr == nr::epoll_ctl => self.plan_epoll_ctl(call),
            Op::Description { .. } if matches!(frame.nr, nr::signalfd | nr::signalfd4) => {
                plan_signal_descriptor(arg(0))
            }
            Op::Description { fd: at } => self.plan_on_description(call, op, fd(at)),
            Op::Look if call.frame.nr == nr::getppid => {
                Plan::new(if self.is_orphan(call.pid) { Class::Barrier } else { Class::Free }).once()
            }
            Op::Look if call.frame.nr == nr::pidfd_open => self.plan_process_descriptor(call),
            Op::Look => plan_look_around(call),
            Op::Identity => plan_identity(call),
            Op::Recv { fd: at }
            | Op::RecvMsg { fd: at }
            | Op::RecvMmsg { fd: at }
            | Op::Send { fd: at }
            | Op::SendMsg { fd: at }
            | Op::SendMmsg { fd: at }
            | Op::SocketName { fd: at } => self.plan_on_socket(call, op, fd(at)),
            Op::Shutdown => self.plan_on_socket(call, op, fd(0)),
            Op::Copy { input, output } if self.copies_nothing(call, fd(input), fd(output)) => Plan::new(Class::Free),
            Op::Copy { input, output } if self.throws_away(call, fd(input), fd(output)) => {
                self.plan_read(call, fd(input))
            }
            Op::Copy { input, output } => self.plan_certain(call, [fd(input), fd(output)].into_iter()),
            Op::Vmsplice => self.plan_certain(call, [fd(0)].into_iter()),
            Op::Accept => self.plan_accept(call),
            Op::SocketState => self.plan_socket_state(call),
            Op::Flock => Plan::new(Class::Lock { fd: fd(0) }).once(),
            // A file that is in no memory file system of the world's own (`plan_files`), another process's limits,
            // a signal to another process's thread, or a row of the table that says that it waits.
            Op::ModifyFd { .. }
            | Op::Control { .. }
            | Op::Lasting
            | Op::Tgkill
            | Op::Tkill
            | Op::Sync(_)
            | Op::AddWatch { .. }
            | Op::ArchPrctl
            | Op::Barrier
            | Op::Group
            | Op::Mount
            | Op::Namespace
            | Op::Native
            | Op::OtherProcess
            | Op::OwnPages
            | Op::OwnTimer
            | Op::Pipe
            | Op::Refuse(_)
            | Op::Shmat
            | Op::SocketPair
            | Op::TakeSignal
            | Op::Trace => Plan::new(Class::Barrier).once(),
        }
    }

    fn plan_read(&mut self, call: &Call, fd: i32) -> Plan {
        match self.file_description(call.tid, fd) {
            FileDescription::Pipe { dev, ino, copy } => {
                // Taking something out lets go whoever waits for room.
                Plan::new(Class::Tracked).modifying(Object::Pipe(dev, ino), Intent::Stream(copy))
            }
            FileDescription::File { dev, ino, device, copy } => {
                if device == DeviceKind::Pseudo {
                    if let Some(plan) = self.plan_read_of_others(call, fd) {
                        return plan;
                    }
                }
                let mut plan = Plan::new(Class::Tracked).observing(Object::File(dev, ino));
                if matches!(call.frame.nr, nr::getdents | nr::getdents64) {
                    plan = plan.observing(Object::Names(dev, ino));
                }
                if is_pread(call) {
                    return plan;
                }
                plan.modifying(position_of(dev, ino), Intent::Position(copy))
            }
            FileDescription::Socket { ino, copy } => self.plan_socket(call, Op::Read { fd: 0 }, ino, copy),
            FileDescription::Object(object) => object.plan(call, Op::Read { fd: 0 }),
            FileDescription::Nothing | FileDescription::Bad => Plan::new(Class::Free),
            FileDescription::Outside { copy } => self.plan_input(call, copy),
            FileDescription::Untold | FileDescription::Other => Plan::new(Class::Barrier),
        }
    }

    fn plan_look(&mut self, call: &Call, fd: i32) -> Plan {
        match self.file_description(call.tid, fd) {
            FileDescription::File { dev, ino, copy, .. } if call.frame.nr == nr::lseek => Plan::new(Class::Tracked)
                .observing(Object::File(dev, ino))
                .modifying(position_of(dev, ino), Intent::Position(copy)),
            FileDescription::File { dev, ino, .. } => Plan::new(Class::Tracked).observing(Object::File(dev, ino)),
            _ => Plan::new(Class::Free),
        }
    }

    fn plan_write(&mut self, call: &Call, fd: i32) -> Plan {
        match self.file_description(call.tid, fd) {
            FileDescription::Pipe { dev, ino, copy } => {
                Plan::new(Class::Tracked).modifying(Object::Pipe(dev, ino), Intent::Stream(copy)).once()
            }
            FileDescription::Socket { ino, copy } => self.plan_socket(call, Op::Write { fd: 0 }, ino, copy),
            FileDescription::Object(object) => object.plan(call, Op::Write { fd: 0 }),
            // Whoever reads there may be inside, and is not to wait for the disk once the guess was right.
            FileDescription::Outside { copy } if has_name(&copy) => Plan::new(Class::Barrier).once(),
            FileDescription::Outside { .. } => Plan::new(Class::Output { fd }).once(),
            FileDescription::Nothing | FileDescription::Bad => Plan::new(Class::Free),
            FileDescription::File { dev, ino, copy, .. } if own_state::is_own_core_filter(call.pid, &copy) => {
                Plan::tracked_once().modifying(position_of(dev, ino), Intent::Position(copy))
            }
            // No bytes: no file on a disk, or in memory, is changed by that, not even its times.
            FileDescription::File { device: DeviceKind::Domain | DeviceKind::Memory, .. } if writes_nothing(call) => {
                Plan::new(Class::Free)
            }
            FileDescription::File { .. } => Plan::new(Class::Deferred { fd }).once(),
            FileDescription::Untold | FileDescription::Other => Plan::new(Class::Barrier).once(),
        }
    }

    /// An undo entry keeps open what is closed. Where the program, or somebody else, would be told that it still
    /// is, the close waits instead.
    pub(super) fn plan_close(&mut self, call: &Call, fds: impl Iterator<Item = i32>) -> Plan {
        let mut plan = Plan::new(Class::Tracked).once();
        let fds: Vec<i32> = fds.collect();
        let (mut may_be_members, mut locked) = (false, Vec::new());
        for &fd in &fds {
            let copy = self.copy_descriptor(call.tid, fd);
            if copy.is_ok_and(|copy| is_missed_when_open(&copy) || self.changes_fifo_of_others(call.pid, &copy)) {
                return Plan::new(Class::Barrier).once();
            }
            let description = self.file_description(call.tid, fd);
            may_be_members |= can_be_member(&description);
            match description {
                FileDescription::Bad => continue,
                FileDescription::Untold => return Plan::new(Class::Later),
                // The last end's close throws away what is in the pipe: first the end is undone, then the contents.
                FileDescription::Pipe { dev, ino, copy } => {
                    plan = plan.modifying(Object::Pipe(dev, ino), Intent::Stream(copy));
                }
                FileDescription::Socket { ino, copy } if self.ahead.is_speculative(call.pid) => {
                    plan.modifies.extend(self.hang_up(call.pid, ino, copy));
                }
                FileDescription::File { dev, ino, .. } if self.ahead.record_locks.is_owner_of(call.pid, (dev, ino)) => {
                    locked.push((dev, ino));
                }
                _ => {}
            }
            plan = plan.modifying(Object::Descriptors(call.pid), Intent::Close(fd));
        }
        if !locked.is_empty() {
            plan.class = Class::CloseLocked { files: locked };
        }
        if may_be_members && self.is_anything_speculative() {
            match self.members_left(call, &fds) {
                Ok(Leaving { members, closed }) => {
                    plan.modifies.splice(0..0, closed);
                    if !members.is_empty() {
                        plan.class = match plan.class {
                            Class::CloseLocked { .. } => Class::Barrier,
                            _ => Class::CloseMembers { members },
                        };
                    }
                }
                Err(_) => plan.class = Class::Barrier,
            }
        }
        plan
    }

    fn plan_fcntl(&mut self, call: &Call) -> Plan {
        const F_DUPFD: u64 = 0;
        const F_GETFD: u64 = 1;
        const F_SETFD: u64 = 2;
        const F_GETFL: u64 = 3;
        const F_SETFL: u64 = 4;
        const F_DUPFD_CLOEXEC: u64 = 1030;
        const F_SETLEASE: u64 = 1024;
        const F_NOTIFY: u64 = 1026;
        const F_SETPIPE_SZ: u64 = 1031;
        const F_GETPIPE_SZ: u64 = 1032;
        if call.frame.nr == nr::dup {
            return Plan::new(Class::Free);
        }
        let fd = call.frame.args[0] as i32;
        match call.frame.args[1] {
            F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD => Plan::new(Class::Free),
            // Whoever shares the description may have set them.
            F_GETFL | F_GETPIPE_SZ => match self.file_description(call.tid, fd) {
                FileDescription::Pipe { dev, ino, .. } => Plan::new(Class::Tracked).observing(Object::Pipe(dev, ino)),
                FileDescription::File { dev, ino, .. } => Plan::new(Class::Tracked).observing(position_of(dev, ino)),
                FileDescription::Socket { ino, .. } => Plan::new(Class::Tracked).observing(Object::Socket(ino)),
                _ => Plan::new(Class::Free),
            },
            F_SETPIPE_SZ => self.plan_certain(call, [fd].into_iter()),
            F_SETFD => {
                Plan::new(Class::Tracked).modifying(Object::Descriptors(call.pid), Intent::CloseOnExec(fd)).once()
            }
            F_SETFL => match self.file_description(call.tid, fd) {
                FileDescription::Pipe { dev, ino, copy } => {
                    let intent = Intent::EndFlags { fd, end: copy };
                    Plan::new(Class::Tracked).modifying(Object::Pipe(dev, ino), intent).once()
                }
                FileDescription::File { dev, ino, copy, .. } => {
                    Plan::new(Class::Tracked).modifying(position_of(dev, ino), Intent::Flags(copy)).once()
                }
                FileDescription::Socket { ino, copy } => self.plan_socket(call, Op::Fcntl, ino, copy),
                FileDescription::Bad | FileDescription::Nothing => Plan::new(Class::Free),
                FileDescription::Object(object) => object.plan(call, Op::Fcntl),
                _ => Plan::new(Class::Barrier).once(),
            },
            // F_GETLK, F_SETLK, F_SETLKW.
            5..=7 => Plan::new(Class::Record).once(),
            // Leases tell who has a file open.
            F_SETLEASE..=F_NOTIFY => Plan::new(Class::Window).once(),
            _ => Plan::new(Class::Barrier).once(),
        }
    }

    fn plan_open(&mut self, call: &Call) -> Plan {
        let args = &call.frame.args;
        let flags = match call.frame.nr {
            nr::open => args[1],
            nr::creat => O_CREAT,
            _ if syscall_table::op(call.frame.nr) == Some(Op::OpenAt2) => {
                tracee::read_value::<u64>(call.tid, args[2]).unwrap_or(O_CREAT)
            }
            _ => args[2],
        };
        if flags & (O_CREAT | O_TRUNC | O_TMPFILE) != 0 {
            return self.plan_creating_open(call);
        }
        let path = u8::from(!matches!(call.frame.nr, nr::open | nr::creat));
        let dir = if path == 0 { syscall_table::CWD } else { 0 };
        match self.look_up(call, dir, path).known().filter(|found| is_fifo(found)) {
            // By way of /proc/self/fd: nobody waits for whoever opens an end of that, and a rollback closes it.
            Some(found) if is_of_pipefs(found.st_dev) => {
                self.plan_lookup(call.pid).observing(Object::Pipe(found.st_dev, found.st_ino))
            }
            // Whoever opens the other end goes on when we have, and would not be taken back.
            Some(_) => Plan::new(Class::Barrier),
            None => self.plan_lookup(call.pid),
        }
    }

    /// A name is looked up: it is not known yet which. What is speculative in any directory counts.
    pub(in crate::ahead) fn plan_lookup(&mut self, pid: ProcessId) -> Plan {
        let mut plan = Plan::new(Class::Tracked);
        // Of files on disks it matters only what they add.
        if self.ahead.files.is_empty() && self.ahead.core.depends_on_all(process(pid)) {
            return plan;
        }
        for object in self.ahead.touched.iter() {
            if matches!(object, Object::Names(..) | Object::File(..)) {
                plan.observes.push(Dependent::Object(object.clone()));
            }
        }
        plan
    }

    fn plan_ioctl(&mut self, call: &Call) -> Plan {
        if syscall_table::looks_at_terminal(call.frame.args[1]) {
            return Plan::new(Class::Free);
        }
        // FIOCLEX, FIONCLEX
        if matches!(call.frame.args[1], 0x5450 | 0x5451) {
            let intent = Intent::CloseOnExec(call.frame.args[0] as i32);
            return Plan::new(Class::Tracked).modifying(Object::Descriptors(call.pid), intent).once();
        }
        match self.file_description(call.tid, call.frame.args[0] as i32) {
            FileDescription::Socket { ino, copy } => self.plan_socket(call, Op::Ioctl, ino, copy),
            FileDescription::Object(object) => object.plan(call, Op::Ioctl),
            FileDescription::Bad | FileDescription::Nothing => Plan::new(Class::Free),
            // ENOTTY.
            FileDescription::File { .. } | FileDescription::Pipe { .. } if is_of_terminals(call.frame.args[1]) => {
                Plan::new(Class::Free)
            }
            FileDescription::Pipe { dev, ino, copy } if call.frame.args[1] == FIONBIO => {
                let intent = Intent::EndFlags { fd: call.frame.args[0] as i32, end: copy };
                Plan::new(Class::Tracked).modifying(Object::Pipe(dev, ino), intent).once()
            }
            FileDescription::File { dev, ino, copy, .. } if call.frame.args[1] == FIONBIO => {
                Plan::new(Class::Tracked).modifying(position_of(dev, ino), Intent::Flags(copy)).once()
            }
            // FIONREAD: how much is in it.
            FileDescription::Pipe { dev, ino, .. } if call.frame.args[1] == libc::FIONREAD => {
                Plan::new(Class::Tracked).observing(Object::Pipe(dev, ino))
            }
            // The rest of a file.
            FileDescription::File { dev, ino, device: DeviceKind::Domain | DeviceKind::Memory, .. }
                if call.frame.args[1] == FIONREAD && !self.ahead.contents.has(&(dev, ino)) =>
            {
                Plan::new(Class::Tracked).observing(Object::File(dev, ino)).observing(position_of(dev, ino)).once()
            }
            FileDescription::Outside { copy } if call.frame.args[1] == FIONBIO && waits_as_asked(call, &copy) => {
                Plan::new(Class::Known { result: 0 }).once()
            }
            // How much there is to read depends on who has read.
            FileDescription::Outside { copy } if call.frame.args[1] == FIONREAD => match Source::of(copy) {
                Some(source) => Plan::new(Class::Tracked).observing(source.object()),
                None => Plan::new(Class::Barrier).once(),
            },
            _ => Plan::new(Class::Barrier).once(),
        }
    }

    /// `fsync` where it is a dependency: what is held for the file is made in order, and before it is durable
    /// nothing that came after is shown.
    fn plan_sync(&mut self, call: &Call) -> Plan {
        match self.file_description(call.tid, call.frame.args[0] as i32) {
            FileDescription::File { dev, device: DeviceKind::Domain, .. } if self.elides_fsync(dev) => {
                Plan::new(Class::Free)
            }
            FileDescription::File { device: DeviceKind::Domain, .. } => {
                Plan::new(Class::Sync { fd: call.frame.args[0] as i32 }).once()
            }
            FileDescription::Bad => Plan::new(Class::Free),
            // EINVAL.
            FileDescription::Pipe { .. } | FileDescription::Socket { .. } => Plan::new(Class::Free),
            _ => Plan::new(Class::Barrier).once(),
        }
    }

    fn elides_fsync(&self, dev: u64) -> bool {
        let world = self.world();
        let (_, domain) = world.device(dev);
        let keeps_order = world.ordered.load(Ordering::Relaxed) & (1 << domain) != 0;
        keeps_order || world.options.load(Ordering::Relaxed) & option::ELIDE_FSYNC != 0
    }

    fn plan_mmap(&mut self, call: &Call) -> Plan {
        const MAP_TYPE: u64 = 0xf;
        const MAP_PRIVATE: u64 = 2;
        const MAP_DROPPABLE: u64 = 8;
        const MAP_ANONYMOUS: u64 = 0x20;
        const PROT_WRITE: u64 = 2;
        let [_, _, protection, flags, fd, _] = call.frame.args;
        if flags & MAP_TYPE == MAP_PRIVATE || flags & (MAP_TYPE | MAP_ANONYMOUS) == MAP_DROPPABLE | MAP_ANONYMOUS {
            return Plan::new(Class::Free);
        }
        // Memory that others can write carries dependencies without a call. But what a file on a disk holds is never
        // speculative, and who cannot write there cannot tell anybody either.
        if protection & PROT_WRITE == 0 {
            if let FileDescription::File { device: DeviceKind::Domain | DeviceKind::ReadOnly, copy, .. } =
                self.file_description(call.tid, fd as i32)
            {
                let flags = rustix::fs::fcntl_getfl(&copy).unwrap_or(rustix::fs::OFlags::RDWR);
                if flags & rustix::fs::OFlags::RWMODE == rustix::fs::OFlags::RDONLY {
                    return Plan::new(Class::Free);
                }
            }
        }
        self.plan_shared_mapping(call)
    }

    /// Being ready is an observation of whoever made it ready, or left something to read: of every pipe, socket,
    /// counter and input, because a set is not worth reading.
    fn plan_poll(&mut self, call: &Call) -> Plan {
        let deceived = self.deceived_ends();
        if !deceived.is_empty() && self.asks_about(call, &deceived) {
            return Plan::new(Class::Later);
        }
        let mut plan = Plan::new(Class::Tracked);
        plan.observes.extend(self.ahead.touched.awaited().cloned().map(Dependent::Object));
        match syscall_table::op(call.frame.nr) {
            Some(Op::EpollWait) => self.plan_epoll_wait(call, plan),
            _ => plan,
        }
    }

    fn plan_on_socket(&mut self, call: &Call, op: Op, fd: i32) -> Plan {
        match self.file_description(call.tid, fd) {
            FileDescription::Socket { ino, copy } => self.plan_socket(call, op, ino, copy),
            _ => Plan::new(Class::Barrier).once(),
        }
    }

    fn plan_on_description(&mut self, call: &Call, op: Op, fd: i32) -> Plan {
        match self.file_description(call.tid, fd) {
            FileDescription::Object(object) => object.plan(call, op),
            // `setsockopt`
            FileDescription::Socket { copy, .. } if self.concerns_our_filter(call, &copy) => {
                Plan::new(Class::Barrier).once()
            }
            FileDescription::Socket { copy, .. } if self.goes_with_its_server(&copy) => Plan::new(Class::Free).once(),
            _ if self.ahead.is_speculative(call.pid) && !self.is_fresh_socket(call, fd) => {
                Plan::new(Class::Barrier).once()
            }
            _ => Plan::new(Class::Free),
        }
    }

    /// What cannot be undone, such as data that moves within the kernel: pipes and sockets only while they depend on
    /// nothing.
    fn plan_certain(&mut self, call: &Call, fds: impl Iterator<Item = i32>) -> Plan {
        let mut plan = Plan::new(Class::Certain).once();
        for fd in fds {
            match self.file_description(call.tid, fd) {
                FileDescription::Pipe { dev, ino, .. } => {
                    plan = plan.modifying(Object::Pipe(dev, ino), Intent::Nothing)
                }
                FileDescription::Object(object) => plan = plan.modifying(object.object(), Intent::Nothing),
                FileDescription::Socket { ino, copy } => {
                    let on_socket = self.plan_socket(call, Op::Copy { input: 0, output: 0 }, ino, copy);
                    if matches!(on_socket.class, Class::Later) {
                        return on_socket;
                    }
                    plan.modifies.extend(on_socket.modifies);
                }
                _ => {}
            }
        }
        plan
    }

    /// Whether the kernel refuses a copy without a look at the contents: from or into what is no file, as `cat` tries
    /// it first.
    pub(in crate::ahead) fn copies_nothing(&mut self, call: &Call, input: i32, output: i32) -> bool {
        let mut is_other = |fd| {
            let stat = self.copy_descriptor(call.tid, fd).ok().and_then(|copy| rustix::fs::fstat(copy).ok());
            stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile)
        };
        call.frame.nr == nr::copy_file_range && (is_other(output) || is_other(input))
    }

    /// Whether all that a copy does is to read from a pipe, as `grep -q` does with what it has no use for.
    fn throws_away(&mut self, call: &Call, input: i32, output: i32) -> bool {
        let keeps_nothing =
            call.frame.nr == nr::splice && matches!(self.file_description(call.tid, output), FileDescription::Nothing);
        match self.file_description(call.tid, input) {
            FileDescription::Pipe { copy, .. } => keeps_nothing && !self.is_end_of_new_fifo(&copy),
            _ => false,
        }
    }

    pub(crate) fn descriptors_of(&self, task: impl Into<TaskId>) -> procfs::Result<Vec<i32>> {
        procfs::unless_gone(procfs::descriptors(task))
    }
}

/// Whether the kernel refuses a call for its arguments, before it looks at any file.
pub(super) fn is_refused(call: &Call) -> bool {
    let is_negative = |at: usize| (call.frame.args[at] as i64) < 0;
    match call.frame.nr {
        nr::ftruncate | nr::truncate => is_negative(1),
        nr::pread64 | nr::pwrite64 => is_negative(3),
        nr::lseek => call.frame.args[2] as u32 > libc::SEEK_HOLE as u32,
        _ => false,
    }
}

/// Whether a descriptor may be in an epoll set.
fn can_be_member(description: &FileDescription) -> bool {
    !matches!(description, FileDescription::File { .. } | FileDescription::Nothing | FileDescription::Bad)
}

/// Whether `FIONBIO` asks for what is so already.
fn waits_as_asked(call: &Call, file: &OwnedFd) -> bool {
    let asked = tracee::read_value::<u32>(call.tid, call.frame.args[2]).map(|asked| asked != 0);
    let flags = rustix::fs::fcntl_getfl(file);
    asked.is_ok_and(|asked| flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK) == asked))
}

/// Whether a request of `ioctl` is for terminals only.
fn is_of_terminals(request: u64) -> bool {
    // Between them are FIONREAD (0x541b) and FIONBIO (0x5421); TCSETS2 and its kin.
    matches!(request as u32, 0x5401..=0x541a | 0x541c..=0x5420 | 0x5422..=0x542a | 0x402c_542b..=0x402c_542d)
}

/// A signal to itself. Most are looked at when they arrive; these never are.
fn plan_own_signal(signal: i32) -> Plan {
    match signal {
        libc::SIGKILL => Plan::new(Class::Exit { status: signal }),
        // Its parent may see it standing still.
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Plan::new(Class::Barrier).once(),
        _ => Plan::new(Class::Free),
    }
}

/// A new descriptor of signals is nobody else's; which signals an older one gives is not put back.
fn plan_signal_descriptor(fd: u64) -> Plan {
    Plan::new(if fd as i32 == -1 { Class::Free } else { Class::Barrier }).once()
}

/// Whether it is a FIFO: a pipe that has a name.
fn has_name(copy: &OwnedFd) -> bool {
    let is_fifo = rustix::fs::fstat(copy)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo);
    is_fifo && rustix::fs::fstatfs(copy).is_ok_and(|system| system.f_type != input::PIPEFS_MAGIC)
}

/// Whether a file of this device is a pipe without a name.
pub(in crate::ahead) fn is_of_pipefs(dev: u64) -> bool {
    static PIPEFS: OnceLock<Option<u64>> = OnceLock::new();
    let one = || Some(rustix::fs::fstat(&rustix::pipe::pipe().ok()?.0).ok()?.st_dev);
    *PIPEFS.get_or_init(one) == Some(dev)
}

/// Whether a number means the caller or its process.
pub(super) fn is_caller(call: &Call, number: i32) -> bool {
    number == call.pid.as_raw() || number == call.tid.as_raw()
}

/// Looks at a process: at another one only while it has done nothing on a guess.
pub(in crate::ahead) fn plan_look_around(call: &Call) -> Plan {
    let Some((_, shows)) = syscall_table::look_up(call.frame.nr) else { return Plan::new(Class::Window).once() };
    match shows.whom(&call.frame.args) {
        Whom::Caller => Plan::new(Class::Free),
        Whom::Process(id) if is_caller(call, id) => Plan::new(Class::Free),
        Whom::At(address) => match tracee::read_value::<u32>(call.tid, address) {
            Ok(id) if id == 0 || is_caller(call, id as i32) => Plan::new(Class::Free),
            _ => Plan::new(Class::Window).once(),
        },
        Whom::Process(_) | Whom::Anybody => Plan::new(Class::Window).once(),
    }
}

/// Whether others notice that somebody still has this open: a block device cannot be opened exclusively, who opens
/// a leased file waits for the lease, and the end of a terminal's master is a hang-up.
fn is_missed_when_open(file: &OwnedFd) -> bool {
    use rustix::fs::FileType;
    const PTMX: u64 = 0x502;
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => true,
        FileType::CharacterDevice => stat.st_rdev == PTMX,
        FileType::RegularFile => crate::sys::is_leased(file),
        _ => false,
    }
}
