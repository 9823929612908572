//! Whether there is something to read, where some of it is given again ([`input`](crate::ahead::objects::input)): the
//! kernel knows nothing of that. poll, select and epoll are answered by us when a descriptor that they ask about has
//! such input; they do not wait then. So is FIONREAD. What moves bytes inside the kernel cannot move these.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Plan, FIONREAD};
use crate::ahead::objects::epoll::{epoll_event, members_of, EpollEvent};
use crate::ahead::objects::input::Source;
use crate::ahead::{write_answer, Call};
use crate::event_loop::Supervisor;
use agent_abi::Frame;
use procfs::{MagicLink, ProcessId, ThreadId};
use rustix::event::{epoll, poll, PollFd, PollFlags, Timespec};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use syscall_table::nr;
use syscall_table::Op;
use tracee::{Result, Stopped};

/// Of a `struct pollfd`.
const ENTRY_LEN: u64 = 8;
const FDS_MAX: u64 = 65536;
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const READABLE: PollFlags = PollFlags::IN.union(PollFlags::RDNORM);

/// What is written into a process, and where.
type Writes = Vec<(u64, Vec<u8>)>;

/// A descriptor that is asked about: what for, and what is there.
struct Asked {
    events: PollFlags,
    copy: Option<OwnedFd>,
    has_pushback: bool,
}

impl Asked {
    /// What poll(2) would say of it.
    fn found(&self) -> PollFlags {
        let Some(copy) = &self.copy else { return PollFlags::NVAL };
        let mut one = [PollFd::from_borrowed_fd(copy.as_fd(), self.events)];
        let _ = poll(&mut one, Some(&NOW));
        match self.has_pushback {
            true => one[0].revents() | self.events & READABLE,
            false => one[0].revents(),
        }
    }
}

impl Supervisor {
    /// What a call says because some input is given again; `None` if it is as without.
    pub(in crate::ahead) fn decide_ready(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        plan: &mut Plan,
    ) -> Result<Option<Decision>> {
        let op = syscall_table::op(call.frame.nr);
        if matches!(op, Some(Op::Poll)) && call.frame.nr != nr::restart_syscall {
            // A poll that is interrupted goes on as a call that does not say what it is.
            self.ahead.input.polls.insert(call.tid, call.frame);
        }
        if !self.ahead.input.has_any() && !self.ahead.listeners.any_waits() {
            return Ok(None);
        }
        if let Some(Op::Ioctl) = op {
            self.discard_input(call);
        }
        if let Some(Op::Copy { input, .. }) = op {
            let cannot = !self.ahead.is_speculative(call.pid)
                && self.given_again(call.tid, call.frame.args[input as usize] as i32);
            return Ok(cannot.then(|| Decision::Answer(-i64::from(libc::EINVAL))));
        }
        let Some(question) = self.question(call, op) else { return Ok(None) };
        let observing = Plan { observes: std::mem::take(&mut plan.observes), ..Plan::tracked_once() };
        if matches!(self.track(stopped, call, observing, Vec::new())?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        let (result, writes) = self.answer_to(question);
        for (at, bytes) in writes {
            if !write_answer(call.tid, at, &bytes)? {
                return Ok(Some(Decision::Answer(-i64::from(libc::EFAULT))));
            }
        }
        Ok(Some(Decision::Answer(result)))
    }

    /// The program throws away what was typed and not read yet.
    fn discard_input(&mut self, call: &Call) {
        const TCFLSH: u64 = 0x540b;
        // TCSETSF, TCSETAF, TCSETSF2
        const SET_AND_FLUSH: [u64; 3] = [0x5404, 0x5408, 0x402c_542d];
        const OUTPUT_ONLY: u64 = 1;
        let [fd, request, queue, ..] = call.frame.args;
        let discards = SET_AND_FLUSH.contains(&request) || request == TCFLSH && queue != OUTPUT_ONLY;
        if discards && !self.ahead.is_speculative(call.pid) {
            if let Some(source) = self.source_behind(call.tid, fd as i32) {
                self.ahead.input.discard(source.id);
            }
        }
    }

    fn source_behind(&mut self, tid: ThreadId, fd: i32) -> Option<Source> {
        Source::of(self.copy_descriptor(tid, fd).ok()?)
    }

    /// Whether input is given again there, or a connection.
    fn given_again(&mut self, tid: ThreadId, fd: i32) -> bool {
        let Ok(copy) = self.copy_descriptor(tid, fd) else { return false };
        let waits = rustix::fs::fstat(&copy).is_ok_and(|stat| self.ahead.listeners.waits_at(stat.st_ino));
        waits || Source::of(copy).is_some_and(|source| self.ahead.input.pushback_len(source.id).is_some())
    }

    fn asked(&mut self, tid: ThreadId, fd: i32, events: PollFlags) -> Asked {
        let has_pushback = self.given_again(tid, fd);
        Asked { events, copy: self.copy_descriptor(tid, fd).ok(), has_pushback }
    }

    /// What a call asks, if the answer has to do with input that is given again.
    fn question(&mut self, call: &Call, op: Option<Op>) -> Option<Question> {
        let args = &call.frame.args;
        let question = match op? {
            Op::Poll => {
                let meant = self.meant_poll(call)?;
                matches!(meant.nr, nr::poll | nr::ppoll)
                    .then(|| self.poll_question(call.tid, args[0], args[1]))
                    .flatten()?
            }
            Op::Select => self.select_question(call.tid, args)?,
            Op::EpollWait => self.epoll_question(call)?,
            Op::Ioctl if args[1] == FIONREAD => {
                let source = self.source_behind(call.tid, args[0] as i32)?;
                Question::Len { again: self.ahead.input.pushback_len(source.id)?, source, at: args[2] }
            }
            _ => return None,
        };
        question.has_pushback().then_some(question)
    }

    /// Whether the kernel finds nothing ready of what a call watches, as far as that is known.
    pub(in crate::ahead) fn finds_nothing_ready(&mut self, tid: ThreadId, frame: &Frame) -> bool {
        let args = &frame.args;
        let finds_nothing = |asked: &Asked| asked.found().is_empty();
        match syscall_table::op(frame.nr) {
            Some(Op::Poll) if frame.nr != nr::restart_syscall => match self.poll_question(tid, args[0], args[1]) {
                Some(Question::Poll { asked, .. }) => asked.iter().flatten().all(finds_nothing),
                _ => false,
            },
            Some(Op::Select) => match self.select_question(tid, args) {
                Some(Question::Select { asked, .. }) => asked.iter().all(|(_, asked)| finds_nothing(asked)),
                _ => false,
            },
            Some(Op::EpollWait) => finds_nothing(&self.asked(tid, args[0] as i32, PollFlags::IN)),
            _ => false,
        }
    }

    /// Whether a call asks about one of these sockets, by inode. What cannot be looked at may be one of them.
    pub(in crate::ahead) fn asks_about(&self, call: &Call, sockets: &HashSet<u64>) -> bool {
        let Some(asked) = self.asked_descriptors(call) else { return true };
        asked.into_iter().any(|fd| leads_to(call.pid, fd, sockets))
    }

    /// `None` if the call does not say, or nobody knows any more.
    fn asked_descriptors(&self, call: &Call) -> Option<Vec<i32>> {
        let args = &call.frame.args;
        match syscall_table::op(call.frame.nr)? {
            Op::Poll => {
                let meant = self.meant_poll(call)?;
                let entry = |at: u64| tracee::read_value::<u64>(call.tid, args[0] + at * ENTRY_LEN).ok();
                let words = (0..args[1].min(FDS_MAX)).map(entry).collect::<Option<Vec<u64>>>();
                matches!(meant.nr, nr::poll | nr::ppoll).then_some(words?.into_iter().map(|word| word as i32).collect())
            }
            Op::Select => {
                let count = args[0].min(FDS_MAX) as usize;
                let mut asked = Vec::new();
                for set in args[1..4].iter().filter(|&&set| set != 0) {
                    let bytes = tracee::read_bytes(call.tid, *set, count.div_ceil(64) * 8).ok()?;
                    asked.extend((0..count).filter(|fd| bytes[fd / 8] >> (fd % 8) & 1 != 0).map(|fd| fd as i32));
                }
                Some(asked)
            }
            Op::EpollWait => Some(vec![args[0] as i32]),
            _ => None,
        }
    }

    /// The poll that a call is, or goes on with.
    fn meant_poll(&self, call: &Call) -> Option<Frame> {
        match call.frame.nr {
            nr::restart_syscall => {
                self.ahead.input.polls.get(&call.tid).filter(|last| last.args == call.frame.args).copied()
            }
            _ => Some(call.frame),
        }
    }

    fn poll_question(&mut self, tid: ThreadId, at: u64, count: u64) -> Option<Question> {
        let mut asked = Vec::new();
        for entry in 0..count.min(FDS_MAX) {
            let word: u64 = tracee::read_value(tid, at + entry * ENTRY_LEN).ok()?;
            let (fd, events) = (word as i32, PollFlags::from_bits_retain((word >> 32) as u16));
            // Negative: skipped.
            asked.push((fd >= 0).then(|| self.asked(tid, fd, events)));
        }
        Some(Question::Poll { at, asked })
    }

    fn select_question(&mut self, tid: ThreadId, args: &[u64; 6]) -> Option<Question> {
        let count = args[0].min(FDS_MAX) as usize;
        let sets = [args[1], args[2], args[3]];
        let mut words = [const { Vec::new() }; 3];
        for (set, words) in sets.iter().zip(&mut words) {
            if *set != 0 {
                let bytes = tracee::read_bytes(tid, *set, count.div_ceil(64) * 8).ok()?;
                *words =
                    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or([0; 8]))).collect();
            }
        }
        let mut asked = Vec::new();
        for fd in 0..count {
            let mut events = PollFlags::empty();
            for (words, kind) in words.iter().zip(Question::SETS) {
                let is_set = words.get(fd / 64).is_some_and(|word| word >> (fd % 64) & 1 != 0);
                events.set(kind.0, is_set);
            }
            if !events.is_empty() {
                asked.push((fd, self.asked(tid, fd as i32, events)));
            }
        }
        Some(Question::Select { sets, words: count.div_ceil(64), asked })
    }

    fn epoll_question(&mut self, call: &Call) -> Option<Question> {
        let [set, at, room, ..] = call.frame.args;
        let mut again = Vec::new();
        for member in members_of(call.tid, set as i32).ok()? {
            let wants = member.events & u32::from(READABLE.bits());
            if wants != 0 && self.given_again(call.tid, member.fd) {
                again.push(epoll_event(wants, member.data));
            }
        }
        let set = self.copy_descriptor(call.tid, set as i32).ok()?;
        (!again.is_empty() && room as i32 > 0).then_some(Question::Epoll { set, at, room: room as usize, again })
    }

    /// Result, and what is written.
    fn answer_to(&self, question: Question) -> (i64, Writes) {
        match question {
            Question::Len { source, again, at } => {
                let now = source.len_now().unwrap_or(0) as usize;
                (0, vec![(at, ((now + again) as i32).to_ne_bytes().to_vec())])
            }
            Question::Poll { at, asked } => answer_poll(at, &asked),
            Question::Select { sets, words, asked } => answer_select(sets, words, &asked),
            Question::Epoll { set, at, room, again } => {
                let events = ready_members(&set, room.min(FDS_MAX as usize), &again);
                let bytes = events.iter().flatten().copied().collect();
                (events.len() as i64, vec![(at, bytes)])
            }
        }
    }
}

enum Question {
    Len { source: Source, again: usize, at: u64 },
    Poll { at: u64, asked: Vec<Option<Asked>> },
    Select { sets: [u64; 3], words: usize, asked: Vec<(usize, Asked)> },
    Epoll { set: OwnedFd, at: u64, room: usize, again: Vec<EpollEvent> },
}

impl Question {
    /// For each set of select(2): what is asked for, and what is an answer.
    const SETS: [(PollFlags, PollFlags); 3] = [
        (PollFlags::IN, PollFlags::IN.union(PollFlags::RDNORM).union(PollFlags::HUP).union(PollFlags::ERR)),
        (PollFlags::OUT, PollFlags::OUT.union(PollFlags::WRNORM).union(PollFlags::ERR)),
        (PollFlags::PRI, PollFlags::PRI),
    ];

    fn has_pushback(&self) -> bool {
        let is_asked_for = |asked: &Asked| asked.has_pushback && asked.events.intersects(READABLE);
        match self {
            Self::Len { .. } | Self::Epoll { .. } => true,
            Self::Poll { asked, .. } => asked.iter().flatten().any(is_asked_for),
            Self::Select { asked, .. } => asked.iter().any(|(_, asked)| is_asked_for(asked)),
        }
    }
}

/// Whether a descriptor is one of these sockets, or an epoll set with one of them.
fn leads_to(pid: ProcessId, fd: i32, sockets: &HashSet<u64>) -> bool {
    let behind = |fd: i32| MagicLink::Fd(fd).shown(pid).ok()?.into_os_string().into_string().ok();
    let is_set = |link: &str| link == "anon_inode:[eventpoll]";
    let is_socket = |link: &str| {
        let ino = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok());
        ino.is_some_and(|ino| sockets.contains(&ino))
    };
    let Some(link) = behind(fd) else { return false };
    if !is_set(&link) {
        return is_socket(&link);
    }
    let Ok(members) = members_of(pid.leader(), fd) else { return true };
    // What is in a set keeps the number that it had; a set in a set is not looked at.
    members
        .into_iter()
        .any(|member| sockets.contains(&member.ino) || behind(member.fd).is_none_or(|link| is_set(&link)))
}

fn answer_poll(at: u64, asked: &[Option<Asked>]) -> (i64, Writes) {
    const REVENTS: u64 = 6;
    let found = asked.iter().map(|asked| asked.as_ref().map_or(PollFlags::empty(), Asked::found));
    let found: Vec<PollFlags> = found.collect();
    let count = found.iter().filter(|found| !found.is_empty()).count();
    let writes = found
        .iter()
        .enumerate()
        .map(|(entry, found)| (at + entry as u64 * ENTRY_LEN + REVENTS, found.bits().to_ne_bytes().to_vec()));
    (count as i64, writes.collect())
}

fn answer_select(sets: [u64; 3], words: usize, asked: &[(usize, Asked)]) -> (i64, Writes) {
    let mut answers = [vec![0u64; words], vec![0; words], vec![0; words]];
    let mut count = 0;
    for (fd, asked) in asked {
        let found = asked.found();
        if found.contains(PollFlags::NVAL) {
            return (-i64::from(libc::EBADF), Vec::new());
        }
        for (answer, (wanted, counts)) in answers.iter_mut().zip(Question::SETS) {
            if asked.events.contains(wanted) && found.intersects(counts) {
                answer[fd / 64] |= 1 << (fd % 64);
                count += 1;
            }
        }
    }
    let bytes = |words: Vec<u64>| words.into_iter().flat_map(u64::to_ne_bytes).collect();
    let writes = sets.into_iter().zip(answers).filter(|&(set, _)| set != 0).map(|(set, words)| (set, bytes(words)));
    (count, writes.collect())
}

/// What is ready in an epoll set: what the kernel says, and what is given `again`, each member once.
fn ready_members(set: &OwnedFd, room: usize, again: &[EpollEvent]) -> Vec<EpollEvent> {
    let mut found: Vec<epoll::Event> = Vec::with_capacity(room.max(1));
    let _ = epoll::wait(set, rustix::buffer::spare_capacity(&mut found), Some(&NOW));
    let mut events: Vec<EpollEvent> =
        found.iter().map(|event| epoll_event({ event.flags }.bits(), event.data.u64())).collect();
    for added in again {
        if let Some(event) = events.iter_mut().find(|event| event[4..] == added[4..]) {
            event.iter_mut().zip(&added[..4]).for_each(|(byte, more)| *byte |= more);
        } else if events.len() < room {
            events.push(*added);
        }
    }
    events
}

impl Source {
    /// How much the kernel has, bytes.
    fn len_now(&self) -> io::Result<u64> {
        Ok(rustix::io::ioctl_fionread(self.copy())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_socket_is_found_alone_and_in_a_set() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, &a, epoll::EventData::new_u64(7), epoll::EventFlags::IN).unwrap();
        let own = ProcessId::own();
        let ino = |fd: &dyn AsFd| rustix::fs::fstat(fd.as_fd()).unwrap().st_ino;
        let is_led = |fd: &dyn AsRawFd, to: u64| leads_to(own, fd.as_raw_fd(), &HashSet::from([to]));
        assert!(is_led(&a, ino(&a)) && is_led(&set, ino(&a)));
        assert!(!is_led(&b, ino(&a)) && !is_led(&set, ino(&b)));
        let outer = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&outer, &set, epoll::EventData::new_u64(7), epoll::EventFlags::IN).unwrap();
        assert!(is_led(&outer, ino(&b)), "nobody looks into a set in a set");
    }

    fn asked(fd: OwnedFd, events: PollFlags, has_pushback: bool) -> Asked {
        Asked { events, copy: Some(fd), has_pushback }
    }

    #[test]
    fn an_empty_pipe_with_input_given_again_is_ready() {
        let (reader, writer) = pipe().unwrap();
        let asked = [Some(asked(reader, PollFlags::IN, true)), None, Some(asked(writer, PollFlags::OUT, false))];
        let (count, writes) = answer_poll(1000, &asked);
        assert_eq!(count, 2);
        let revents: Vec<(u64, Vec<u8>)> = vec![(1006, vec![1, 0]), (1014, vec![0, 0]), (1022, vec![4, 0])];
        assert_eq!(writes, revents);
    }

    #[test]
    fn hang_up_is_said_beside_it() {
        let (reader, writer) = pipe().unwrap();
        drop(writer);
        assert_eq!(asked(reader, PollFlags::IN, true).found(), PollFlags::IN | PollFlags::HUP);
    }

    #[test]
    fn only_what_is_asked_for_is_said() {
        let (reader, _writer) = pipe().unwrap();
        assert_eq!(asked(reader, PollFlags::PRI, true).found(), PollFlags::empty());
    }

    #[test]
    fn select_counts_bits_and_refuses_what_is_closed() {
        let (reader, writer) = pipe().unwrap();
        let both = [(3, asked(reader, PollFlags::IN, true)), (70, asked(writer, PollFlags::OUT, false))];
        let (count, writes) = answer_select([8, 16, 0], 2, &both);
        assert_eq!(count, 2);
        let word = |bits: [u64; 2]| bits.into_iter().flat_map(u64::to_ne_bytes).collect::<Vec<u8>>();
        assert_eq!(writes, [(8, word([1 << 3, 0])), (16, word([0, 1 << 6]))]);
        let closed = [(3, Asked { events: PollFlags::IN, copy: None, has_pushback: false })];
        assert_eq!(answer_select([8, 0, 0], 1, &closed).0, -i64::from(libc::EBADF));
    }

    #[test]
    fn a_member_of_an_epoll_set_is_ready_once() {
        let (reader, writer) = pipe().unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, &reader, epoll::EventData::new_u64(7), epoll::EventFlags::IN).unwrap();
        let again = [epoll_event(1, 7)];
        assert_eq!(ready_members(&set, 4, &again), again);
        rustix::io::write(&writer, b"x").unwrap();
        assert_eq!(ready_members(&set, 4, &again), again);
        assert_eq!(ready_members(&set, 4, &[epoll_event(1, 8)]).len(), 2);
        assert_eq!(ready_members(&set, 1, &[epoll_event(1, 8)]).len(), 1);
    }
}
