//! From the table's row to what is done about it.

use crate::clocks::Call;
use crate::descriptors::Stat;
use crate::gate::{self, ETXTBSY};
use crate::names::AT_FDCWD;
use crate::permits::OnPermit;
use crate::timed::Limit;
use agent_abi::{ahead, DeviceKind, Frame, Request, ThreadPage, REST_TELLS};
use core::sync::atomic::Ordering;
use syscall_table::nr;
use syscall_table::{Op, Shows};

const X32: u64 = 0x4000_0000;

/// A thread made a system call.
pub unsafe extern "C" fn dispatch(frame: *mut Frame, page: *mut ThreadPage) -> ! {
    // SAFETY: the entry code passes the frame that it just filled and the page that gs points to; both are this
    // thread's alone.
    unsafe {
        handle(&mut *frame, &mut *page);
        gate::leave(frame)
    }
}

#[inline(always)]
fn handle(frame: &mut Frame, page: &mut ThreadPage) {
    let mut call = Call::new(frame, page);
    let calls = &call.thread.calls;
    calls.store(calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let number = call.frame.nr;
    let mut is_busy = false;
    loop {
        let Some(decided) = call.decide(is_busy) else { return call.has_waited() };
        carry_out(&mut call);
        if decided.is_told || call.is_to_tell() {
            gate::request(Request::Done, call.frame.rax, 0, 0);
        }
        if decided.is_permitted {
            call.end_permit();
        }
        if decided.opens_on != 0 {
            call.mark_opened(decided.opens_on);
        }
        is_busy = decided.is_program && call.frame.rax as i64 == -ETXTBSY;
        if !is_busy {
            return;
        }
        // Perhaps only by what is kept for a guess: nothing has happened yet.
        call.ask_instead(number);
    }
}

/// How a call is to be made.
#[derive(Default)]
struct Decided {
    /// The supervisor is told when it has been made.
    is_told: bool,
    /// It was published as one that nobody is asked about, which ends with the call.
    is_permitted: bool,
    /// It was asked about, and executes what it names.
    is_program: bool,
    /// It was asked about, and opens what it names: the permit that its process had just before the call is made; else
    /// 0. One that it has behind the call may be younger than a checkpoint that has the descriptor.
    opens_on: u64,
}

/// The call is made, and what belongs to it.
#[inline(always)]
pub fn carry_out(call: &mut Call) {
    match syscall_table::look_up(call.frame.nr) {
        Some((op, shows)) => {
            act(call, op, shows);
            call.observe_shown(op, shows);
        }
        // The x32 ABI: as on a kernel that was built without it.
        None if call.frame.nr & X32 != 0 => call.answer(-gate::ENOSYS),
        // A number that the table does not know is a barrier.
        None => {
            call.barrier();
            call.observe_shown(Op::Barrier, Shows::Everything);
        }
    }
}

#[inline(always)]
fn act(call: &mut Call, op: Op, shows: Shows) {
    match op {
        Op::Native if call.frame.nr == nr::sigaltstack => call.sigaltstack(),
        Op::Pipe => call.pipe(),
        Op::Wait => call.wait(),
        Op::Lasting if call.frame.nr == nr::mlockall => call.lock_all(),
        Op::Native | Op::Lasting | Op::Look => {
            call.proceed_observing();
        }
        Op::Exit | Op::ExitGroup => call.exit(),
        Op::Barrier if call.frame.nr == nr::pidfd_getfd => call.take_descriptor(),
        Op::Barrier if call.frame.nr == nr::open_by_handle_at => call.open_by_handle(),
        Op::Barrier if call.frame.nr == nr::process_madvise => call.advise_process(),
        Op::Barrier if matches!(call.frame.nr, nr::quotactl | nr::quotactl_fd) => call.quota(),
        Op::Barrier if call.frame.nr == nr::fanotify_init => call.listen_to_files(),
        Op::Barrier => call.barrier(),
        Op::Refuse(errno) => call.refuse(errno),
        Op::ObserveFd { fd } if call.frame.nr == nr::fstat => call.read_attributes(fd),
        Op::Read { fd } | Op::ObserveFd { fd } => call.read(fd),
        Op::Write { fd } => call.write(fd),
        Op::Recv { fd } => call.receive(fd),
        Op::Send { fd } => call.send(fd),
        Op::RecvMsg { fd } => call.receive_message(fd),
        Op::RecvMmsg { fd } => call.receive_messages(fd),
        Op::SendMsg { fd } => call.send_message(fd),
        Op::SendMmsg { fd } => call.send_messages(fd),
        Op::ModifyFd { fd } => call.modify_descriptor(fd),
        Op::Description { .. } if call.frame.nr == nr::setsockopt => call.set_socket_option(),
        Op::Description { fd } if matches!(call.frame.nr, nr::signalfd | nr::signalfd4) => call.signal_descriptor(fd),
        Op::Description { fd } => call.change_description(fd),
        Op::AddWatch { fd, .. } => call.add_watch(fd),
        Op::Control { pid } => call.control(pid),
        Op::Group => call.change_group(),
        Op::Copy { input, output } => call.copy(input, output),
        Op::Vmsplice => call.vmsplice(),
        Op::Sync(kind) => call.sync(kind),
        Op::Open => call.open(None, 0, 1),
        Op::OpenAt => call.open(Some(0), 1, 2),
        Op::OpenAt2 => call.open2(),
        Op::Creat => call.creat(),
        Op::ObservePath { .. } => call.observe_path(),
        Op::StatPath { buf, .. } => call.stat_path(buf),
        Op::Statx => call.statx(),
        Op::ModifyPath { dir, path } => call.modify_path(dir, path),
        Op::ModifyPaths { dir, path, dir2, path2 } => call.modify_paths((dir, path), (dir2, path2)),
        Op::Chdir | Op::Fchdir => call.change_directory(),
        Op::Close => call.close(),
        Op::CloseRange => call.close_range(),
        Op::Dup2 => call.dup2(),
        Op::Fcntl => call.fcntl(),
        Op::Ioctl => call.ioctl(),
        Op::Flock => call.lock(0, true),
        Op::SocketPair => call.socket_pair(),
        Op::SocketName { fd } => call.socket_name(fd),
        Op::Accept => call.accept(),
        Op::Shutdown => call.shutdown(),
        Op::SocketState => call.socket_state(),
        Op::TakeSignal => call.look_at_signals(),
        Op::Poll => call.await_ready(call.arg(1) == 0),
        Op::Select => call.await_ready(call.arg(0) == 0),
        Op::EpollWait => call.await_watched(),
        Op::Mmap => call.mmap(),
        Op::OwnPages => call.own_pages(),
        Op::Action => call.set_action(),
        Op::OwnTimer => call.own_timer(shows),
        Op::Shmat => call.shmat(),
        Op::Fork => call.fork(),
        Op::Vfork => call.vfork(),
        Op::Clone => call.clone(),
        Op::Clone3 => call.clone3(),
        Op::Execve | Op::Execveat => call.exec(),
        Op::Kill => call.kill(0),
        Op::Tkill => call.kill_thread(0),
        Op::Tgkill => call.kill(0),
        Op::Prctl => call.prctl(),
        Op::ArchPrctl => call.arch_prctl(),
        Op::Identity => call.change_identity(),
        Op::Namespace if call.frame.nr == nr::unshare => call.unshare(),
        Op::Namespace => call.join_namespace(),
        Op::Mount => call.mount(),
        Op::OtherProcess => call.other_process(),
        Op::Trace => call.trace(),
    }
}

impl Call<'_> {
    /// How the call is to be made; `None`: it was. `is_busy`: it was made, and the program was open for writing.
    #[inline(always)]
    fn decide(&mut self, is_busy: bool) -> Option<Decided> {
        let mut decided = Decided::default();
        if self.world.ahead.load(Ordering::Relaxed) == 0 && self.frame.nr != u64::from(agent_abi::SPECULATE_NR) {
            return Some(decided);
        }
        match self.go_unasked() {
            OnPermit::Made => return None,
            OnPermit::Begun => decided.is_permitted = true,
            OnPermit::Ask => match self.ask(is_busy) {
                ahead::ANSWERED => {
                    self.remember_answered();
                    return None;
                }
                answer if matches!(answer & ahead::KINDS, ahead::OPENED | ahead::OPENED_TO_WRITE) => {
                    self.remember_answered();
                    self.mark_answered(answer);
                    return None;
                }
                answer if (ahead::GO_ON_PERMIT..=ahead::GO_ON_NEW_FILE).contains(&(answer & ahead::KINDS)) => {
                    self.take_permit(answer);
                    decided.is_permitted = true;
                }
                answer if answer & ahead::KINDS == ahead::GO_INSTEAD => {
                    self.take_other_call((answer >> ahead::PERMIT_SHIFT) as u64);
                    decided.is_told = true;
                }
                answer => {
                    self.forget_mark_again();
                    decided.is_told = matches!(answer, ahead::GO_AND_TELL | ahead::GO_APART);
                    decided.is_program = matches!(self.frame.nr, nr::execve | nr::execveat);
                    if answer == ahead::GO && matches!(self.frame.nr, nr::open | nr::openat) {
                        decided.opens_on = self.process.permit.load(Ordering::Relaxed);
                    }
                    self.is_apart = answer == ahead::GO_APART;
                }
            },
        }
        Some(decided)
    }

    /// Whether the supervisor has let the thread go on in this call, and is told when it has been made; only once.
    #[inline(always)]
    fn is_to_tell(&self) -> bool {
        self.page.rest.load(Ordering::Relaxed) & REST_TELLS != 0
            && self.page.rest.fetch_and(!REST_TELLS, Ordering::Relaxed) & REST_TELLS != 0
    }

    /// Something is speculative: what this call may touch is the supervisor's to decide.
    #[cold]
    #[inline(never)]
    fn ask(&mut self, is_busy: bool) -> i64 {
        if syscall_table::concerns_only_its_process(self.frame.nr, &self.frame.args) || self.leaves_zombies_as_before()
        {
            return ahead::GO;
        }
        let frame = &raw const *self.frame as u64;
        loop {
            match gate::request(Request::Ahead, frame, u64::from(is_busy), 0) {
                ahead::AGAIN => {}
                answer => return answer,
            }
        }
    }

    /// Not known to be safe: wait until nothing depends on a guess, then run it.
    pub fn barrier(&mut self) {
        self.settle();
        match self.frame.nr {
            nr::semop | nr::semtimedop | nr::mq_notify => self.note_given_back(),
            _ => {}
        }
        match self.frame.nr {
            nr::semtimedop => self.proceed_timed(3, Limit::Timespec),
            _ => self.proceed(),
        };
    }

    /// `quotactl`: it may change the file system of a device, or of a descriptor.
    fn quota(&mut self) {
        let device = match self.frame.nr {
            nr::quotactl => Stat::of_name(AT_FDCWD, self.arg(1), 0).map(|stat| stat.rdev),
            _ => Stat::of_fd(self.arg(0)).map(|stat| stat.dev),
        };
        self.settle();
        match device.map(|device| self.world.device(device)) {
            Ok((DeviceKind::Domain, domain)) => {
                let transaction = self.begin_change(domain);
                self.world.names.raise(domain, transaction);
                self.proceed();
                self.end_change(domain, 0);
            }
            _ => {
                self.proceed();
            }
        }
    }

    /// Limits and the like. Those of another process wait, so that who looks at them learns nothing that is not
    /// committed.
    fn control(&mut self, position: u8) {
        const IOPRIO_WHO_PROCESS: u32 = 1;
        // A group's number, or a user's, is not a process's: 0 means all of the caller's.
        let is_of_many = self.frame.nr == nr::ioprio_set && self.arg(0) as u32 != IOPRIO_WHO_PROCESS;
        match self.arg(position) as u32 {
            0 if !is_of_many => {
                self.proceed();
            }
            _ => self.barrier(),
        }
    }

    /// What a world cannot contain.
    pub fn refuse(&mut self, errno: u16) {
        if self.has_option(agent_abi::option::VERBOSE) {
            gate::request(agent_abi::Request::Refused, self.frame.nr, self.arg(0), 0);
        }
        self.answer(-i64::from(errno));
    }

    /// `pidfd_getfd`: from now on a descriptor may be shared without its process's doing.
    fn take_descriptor(&mut self) {
        self.world.options.fetch_or(agent_abi::option::DESCRIPTORS_TAKEN, Ordering::SeqCst);
        self.barrier();
        let taken = self.frame.rax;
        if (taken as i64) >= 0 {
            self.note_taken_over(taken);
        }
    }

    /// `process_vm_writev` and its kin.
    pub fn other_process(&mut self) {
        self.settle();
        self.proceed();
        self.observe_everything();
    }

    /// The table of file systems may change.
    pub fn mount(&mut self) {
        self.note_proc_mounted();
        if self.frame.nr != nr::umount2 {
            self.world.options.fetch_or(agent_abi::option::MOUNTED, Ordering::SeqCst);
        }
        self.settle();
        if self.frame.nr == nr::umount2 {
            // Natively only those who use it keep it busy.
            self.await_commit(&self.transactions().dirty());
            gate::request(Request::LetGo, self.arg(1), mount_at(self.arg(0), self.arg(1)), 0);
        }
        self.proceed();
        gate::request(Request::Mounts, 0, 0, 0);
    }
}

/// The number of the mount that a path leads to, for an `umount2` with these flags; 0 if the kernel does not say.
fn mount_at(path: u64, flags: u64) -> u64 {
    const UMOUNT_NOFOLLOW: u64 = 8;
    const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
    const AT_NO_AUTOMOUNT: u64 = 0x800;
    const AT_STATX_DONT_SYNC: u64 = 0x4000;
    const STATX_MNT_ID: u64 = 0x1000;
    // stx_mask at 0, stx_mnt_id at 144.
    let mut found = [0u64; 32];
    let follows = if flags & UMOUNT_NOFOLLOW != 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
    let how = AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC | follows;
    // SAFETY: a whole `struct statx`; the kernel checks the path.
    unsafe { gate::call(nr::statx, [AT_FDCWD, path, how, STATX_MNT_ID, found.as_mut_ptr() as u64, 0]) };
    match found[0] & STATX_MNT_ID {
        0 => 0,
        _ => found[18],
    }
}
