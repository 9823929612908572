//! What comes with a signal, in the layout of the kernel.

use std::num::NonZeroU64;

use procfs::{ProcessId, ThreadId};

/// A signal with everything that came with it (`siginfo_t`).
#[derive(Clone, Copy)]
pub struct SignalInfo(pub(crate) libc::siginfo_t);

impl std::fmt::Debug for SignalInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SignalInfo({}, code {})", self.0.si_signo, self.0.si_code)
    }
}

impl Default for SignalInfo {
    fn default() -> Self {
        // SAFETY: plain data.
        Self(unsafe { std::mem::zeroed() })
    }
}

/// In eights of bytes: the kernel keeps 48, and only its own SIGCHLD uses more than 32 of them.
const NOTE_AT: usize = 4;
const RESENT_AT: usize = NOTE_AT + 1;
const NOTE: u64 = u64::from_be_bytes(*b"ourswell");
const NOTE_STOPS: u64 = u64::from_be_bytes(*b"ourstops");
const NOTE_RESENT: u64 = u64::from_be_bytes(*b"oursagin");
/// `SI_ASYNCNL`: no process says it, and Linux does not use it.
const CODE_OF_RESENT: i32 = -60;

impl SignalInfo {
    /// `si_code`.
    pub fn code(&self) -> i32 {
        self.0.si_code
    }
    /// `si_pid`: of whom a signal of a process, or SIGCHLD, tells.
    pub fn process(&self) -> ProcessId {
        self.sender()
    }
    /// Whether the kernel could not do the instruction at this address, or refused the call before it.
    pub(crate) fn is_fault_at(&self, instruction: u64) -> bool {
        let is_fault =
            matches!(self.0.si_signo, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGSYS);
        // SAFETY: every layout of the union has as many bytes.
        is_fault && self.0.si_code > 0 && unsafe { self.0.si_addr() as u64 } == instruction
    }
    /// Whether the thread's own instruction caused it: it would come again.
    pub fn is_synchronous(&self) -> bool {
        let fault =
            matches!(self.0.si_signo, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP);
        fault && self.0.si_code > 0
    }
    /// What the kernel tells a parent when a child of this real user has ended with this `wait(2)` status.
    pub fn child_ended(child: ProcessId, user: u32, status: i32) -> Self {
        const HAS_CORE: i32 = 0x80;
        let mut info = Self::default();
        info.0.si_signo = libc::SIGCHLD;
        let (code, value) = match libc::WIFSIGNALED(status) {
            true if status & HAS_CORE != 0 => (libc::CLD_DUMPED, libc::WTERMSIG(status)),
            true => (libc::CLD_KILLED, libc::WTERMSIG(status)),
            false => (libc::CLD_EXITED, libc::WEXITSTATUS(status)),
        };
        info.0.si_code = code;
        // `si_pid`, `si_uid`, `si_status`: the first words of the union, which begins at 16.
        let words: [i32; 3] = [child.as_raw(), user as i32, value];
        // SAFETY: a `siginfo_t` has 128 bytes; these twelve are inside, and plain.
        unsafe { (&raw mut info.0).cast::<i32>().add(4).copy_from_nonoverlapping(words.as_ptr(), 3) };
        info
    }
    /// What `kill` of a process says.
    pub fn sent_by(process: ProcessId, user: u32, number: i32) -> Self {
        let mut info = Self::default();
        info.0.si_signo = number;
        // SAFETY: as in `child_ended`: `si_pid`, `si_uid`.
        unsafe { (&raw mut info.0).cast::<[i32; 2]>().add(2).write([process.as_raw(), user as i32]) };
        info
    }
    /// A signal of ours that only brings its receiver into a stop ([`Self::only_stops`]).
    pub(crate) fn that_only_stops(signal: i32) -> Self {
        let mut info = Self::sent_by(ProcessId::own(), 0, signal);
        info.0.si_code = libc::SI_QUEUE;
        info.with_note(NOTE_STOPS)
    }
    /// Whether it is such a one: what a process sends, or we send again, is none.
    pub(crate) fn only_stops(&self) -> bool {
        self.has_note(NOTE_STOPS)
    }
    /// With a note in it, where the kernel keeps what no signal but SIGCHLD has: that it is known already.
    pub fn noted(self) -> Self {
        self.with_note(NOTE)
    }
    /// Without it: what its receiver may see.
    pub fn unnoted(self) -> Self {
        match self.is_noted() {
            true => self.with_note(0),
            false => self,
        }
    }
    /// What is sent in its place where the kernel lets nobody but its receiver say what it says. `id` finds what it
    /// was. Who takes such a signal without a stop sees whose it is, and the code that a queued signal has if a process
    /// sent it. One of the kernel's has a code for which the agent knows no sender.
    pub fn in_its_place(&self, id: NonZeroU64) -> Self {
        let mut info = self.with_note(NOTE_RESENT);
        info.0.si_code = if self.code() <= 0 { libc::SI_QUEUE } else { CODE_OF_RESENT };
        // SAFETY: as in `has_note`.
        unsafe { (&raw mut info.0).cast::<u64>().add(RESENT_AT).write(id.get()) };
        info
    }
    /// The `id` of a signal that was sent in the place of another one ([`Self::in_its_place`]).
    pub fn is_in_place_of(&self) -> Option<NonZeroU64> {
        // SAFETY: as in `has_note`.
        let id = unsafe { (&raw const self.0).cast::<u64>().add(RESENT_AT).read() };
        NonZeroU64::new(id).filter(|_| self.has_note(NOTE_RESENT))
    }
    /// Whether it has the note.
    pub fn is_noted(&self) -> bool {
        self.has_note(NOTE)
    }
    fn has_note(&self, note: u64) -> bool {
        let is_of_kernel = self.number() == libc::SIGCHLD && self.code() > 0;
        // SAFETY: a `siginfo_t` has 128 bytes; these eight are inside, aligned, and plain.
        !is_of_kernel && unsafe { (&raw const self.0).cast::<u64>().add(NOTE_AT).read() } == note
    }
    fn with_note(mut self, note: u64) -> Self {
        // SAFETY: as in `is_noted`.
        unsafe { (&raw mut self.0).cast::<u64>().add(NOTE_AT).write(note) };
        self
    }
    /// `si_signo`.
    pub fn number(&self) -> i32 {
        self.0.si_signo
    }
    /// `si_pid`: who sent it, if a process did.
    pub fn sender(&self) -> ProcessId {
        // SAFETY: any bits are an integer.
        ProcessId::from_raw(unsafe { self.0.si_pid() })
    }
    /// Send it again to a thread, with all that came with it if the kernel lets us. SIGSTOP and what else cannot be
    /// blocked carry nothing that a program could see.
    pub(crate) fn resend(&self, tid: ThreadId) {
        // Any other thread than the first one is refused with its own number.
        let is_sent = self.send_again(tid.leads(), tid)
            || procfs::process_of(tid).is_ok_and(|pid| pid != tid.leads() && self.send_again(pid, tid));
        if !is_sent {
            // SAFETY: no pointers.
            unsafe { libc::syscall(libc::SYS_tkill, tid.as_raw(), self.number()) };
        }
    }
    /// Send it, with all that came with it, to a thread; false where the kernel does not let others say such a thing.
    pub fn send_again(&self, pid: ProcessId, tid: ThreadId) -> bool {
        let (pid, tid) = (pid.as_raw(), tid.as_raw());
        // SAFETY: a whole `siginfo_t`.
        unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, self.number(), &raw const self.0) == 0 }
    }
    /// The `siginfo_t`, as the kernel lays it out.
    pub fn as_bytes(&self) -> &[u8] {
        let len = std::mem::size_of::<libc::siginfo_t>();
        // SAFETY: every `SignalInfo` was zeroed as a whole or written as a whole by the kernel, and lives as long as
        // the answer.
        unsafe { std::slice::from_raw_parts((&raw const self.0).cast(), len) }
    }
}
