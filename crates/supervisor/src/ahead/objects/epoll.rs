//! Sets of descriptors that are waited for together (epoll(7)), on a guess
//! ([0116](../../../../../docs/decisions/0116-epoll-sets-are-put-back.md),
//! [0272](../../../../../docs/decisions/0272-one-member-of-an-epoll-set.md)).
//!
//! An undo entry has the member that a call changes, or all of them before a wait that tells of something only once. It
//! is put back by the process itself, once its descriptors are those of the checkpoint: the kernel knows a member by
//! its descriptor's number and its open file, and forgets it with the file.
//!
//! **Invariant:** nobody else has a set that a process changes on a guess.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::objects::kind::{Identity, Readiness};
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{Call, Object, SCRATCH};
use crate::event_loop::Supervisor;
use agent_abi::option;
use procfs::{MagicLink, ProcessId, ThreadId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use syscall_table::Op;
use tracee::{Result, Stopped, TraceError};

pub(in crate::ahead) const LINK: &str = "anon_inode:[eventpoll]";
const EDGES: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What the kernel adds to whatever is asked for.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// An open epoll set.
type Set = Identity;

/// What a call is about to do to a set.
#[derive(Debug)]
pub(crate) struct Change {
    set: Set,
    /// By which descriptor of the process.
    fd: i32,
    part: Part,
}

/// What of a set is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The member that is added, changed or removed.
    Member(i32),
    /// Some are told of, and perhaps not once more.
    Told,
    /// All of it is closed: members that are closed after it leave it without a word.
    All,
}

/// What closing descriptors does to sets.
#[derive(Debug)]
pub(in crate::ahead) struct Leaving {
    /// Members that leave sets which stay open: by which descriptor of the set, and which member.
    pub members: Vec<(i32, i32)>,
    /// Sets that are closed, as they are.
    pub closed: Vec<(Object, Intent)>,
}

/// Which members of a set, by the numbers of their descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Numbers {
    All,
    These(BTreeSet<i32>),
}

impl Numbers {
    fn has(&self, number: i32) -> bool {
        match self {
            Self::All => true,
            Self::These(numbers) => numbers.contains(&number),
        }
    }

    fn add(&mut self, others: &Self) {
        match (&mut *self, others) {
            (Self::These(numbers), Self::These(others)) => numbers.extend(others),
            _ => *self = Self::All,
        }
    }
}

/// What a set was, or a part of it: a set of many members is changed often, and each change has an undo entry.
#[derive(Debug)]
pub(crate) struct Before {
    pid: ProcessId,
    fd: i32,
    set: Set,
    /// Which of its members this tells of.
    of: Numbers,
    /// Those of them that were there.
    members: Vec<Member>,
    /// The process may have been told of members.
    has_told: bool,
}

/// What is to be put back.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    /// One for each process and set. It has of each member what the oldest entry about that member says.
    undone: Vec<Before>,
}

impl Sets {
    /// A rollback goes from the youngest entry to the oldest.
    pub fn undo(&mut self, mut before: Before) {
        let is_of_it = |other: &Before| other.pid == before.pid && other.set == before.set;
        if let Some(younger) = self.undone.iter().position(is_of_it) {
            before.follow(self.undone.swap_remove(younger));
        }
        self.undone.push(before);
    }

    /// The rollback is over: who has ended takes his sets with him.
    pub fn rolled_back(&mut self) {
        self.undone.clear();
    }
}

impl Before {
    /// Takes up what a younger entry says of other members.
    fn follow(&mut self, younger: Before) {
        self.members.extend(younger.members.into_iter().filter(|member| !self.of.has(member.fd)));
        self.of.add(&younger.of);
        self.has_told |= younger.has_told;
    }
}

impl Supervisor {
    /// The set behind a descriptor. `None`: it is none, somebody outside may have it, or it cannot be told from others.
    fn epoll_set(&mut self, call: &Call, fd: i32) -> Option<Set> {
        let is_outside = self.world().options.load(Ordering::Relaxed) & option::OUTSIDE_EVENTS != 0;
        if is_outside || !is_set(call.tid, fd) {
            return None;
        }
        let file = self.copy_descriptor(call.tid, fd).ok()?;
        self.ahead.identities.of("epoll set", Readiness::Never, file).ok()
    }

    /// What is to be waited for changes.
    pub(in crate::ahead) fn plan_epoll_ctl(&mut self, call: &Call) -> Plan {
        let (fd, member) = (call.frame.args[0] as i32, call.frame.args[2] as i32);
        let Some(set) = self.epoll_set(call, fd).filter(|_| !is_set(call.tid, member)) else {
            return Plan::new(Class::Barrier).once();
        };
        if self.is_shared(call, fd) {
            return Plan::new(Class::Barrier).once();
        }
        let object = Object::Of(set.clone());
        let change = Change { set, fd, part: Part::Member(member) };
        Plan::new(Class::Tracked).modifying(object, Intent::EpollSet(change)).once()
    }

    /// A wait observes what is in the set besides what is ready. Where it is told of something only once, that is part
    /// of its effect.
    pub(in crate::ahead) fn plan_epoll_wait(&mut self, call: &Call, plan: Plan) -> Plan {
        let fd = call.frame.args[0] as i32;
        let members = members_of(call.tid, fd);
        let tells_once = has_member(&members, Member::tells_once);
        let has_sets = || has_member(&members, |member| is_set(call.tid, member.fd));
        // What is given again is mixed into an answer of ours.
        let is_answered = self.ahead.input.has_any() || self.ahead.listeners.any_waits();
        match self.epoll_set(call, fd) {
            Some(set) if !tells_once => plan.observing(Object::Of(set.clone())),
            Some(set) if !is_answered && !self.is_shared(call, fd) && !has_sets() => {
                plan.modifying(Object::Of(set.clone()), Intent::EpollSet(Change { set, fd, part: Part::Told }))
            }
            None if !tells_once => plan,
            _ => Plan::new(Class::Barrier),
        }
    }

    /// Whether another process has the set: who waits there sleeps in the kernel, and would be told of a member before
    /// anybody could keep it from him; and a rollback of several processes would have to put the set back in order.
    /// Whoever has ended on a guess waits nowhere, and has changed nothing there since it was shared.
    fn is_shared(&mut self, call: &Call, fd: i32) -> bool {
        let tids: Vec<ThreadId> = self.tracees.keys().copied().collect();
        let pids: BTreeSet<ProcessId> = tids.into_iter().filter_map(|tid| self.pid_of(tid).ok()).collect();
        let may_have = |pid: ProcessId| {
            let is_it = |other: i32| {
                // The kernel's answer takes a fraction of what it takes to read a link.
                let asked = crate::sys::are_same_file((call.tid, fd), (pid, other));
                asked.unwrap_or_else(|error| !is_gone(&error) && is_set(pid.leader(), other))
            };
            self.descriptors_of(pid).map_or(true, |open| open.into_iter().any(is_it))
        };
        let has_ended = |pid: ProcessId| self.ahead.children.has_ended(pid);
        pids.into_iter().any(|pid| pid != call.pid && !has_ended(pid) && may_have(pid))
    }

    /// Whether the parent of a process has the same open file under the same number, or may have it.
    fn is_its_parents(&self, call: &Call, fd: i32) -> bool {
        let Some(parent) = self.ahead.children.parent(call.pid) else { return false };
        match crate::sys::are_same_file((call.tid, fd), (parent, fd)) {
            Ok(is_same) => is_same,
            Err(error) => error.raw_os_error() != Some(libc::EBADF),
        }
    }

    /// The close of these descriptors takes some of them out of sets that stay open: by which descriptor of the set,
    /// and which member. And what is to be undone of the sets among them.
    pub(in crate::ahead) fn members_left(&mut self, call: &Call, closed: &[i32]) -> procfs::Result<Leaving> {
        let (mut left, mut sets, mut inodes) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut closed_sets = Vec::new();
        procfs::unless_gone(procfs::visit_descriptors(call.pid, |fd, link| {
            if closed.contains(&fd) {
                inodes.insert(fd, inode_of(link));
                closed_sets.extend((link == LINK.as_bytes()).then_some(fd));
            } else {
                left.push(fd);
                sets.extend((link == LINK.as_bytes()).then_some(fd));
            }
            ControlFlow::Continue(())
        }))?;
        // A descriptor whose link cannot be read may be any member.
        let going: Vec<(i32, Option<u64>)> = closed.iter().map(|fd| (*fd, inodes.get(fd).copied().flatten())).collect();
        let mut found = Vec::new();
        for set in sets {
            for (member, earlier) in counted(&members_of(call.tid, set)?) {
                let is_it = |fd: i32| crate::sys::is_member(call.tid, fd, (set, member.fd, earlier));
                let is_closed = |&&(fd, ino): &&(i32, Option<u64>)| {
                    ino.is_none_or(|ino| ino == member.ino)
                        && is_it(fd).unwrap_or(fd == member.fd)
                        && !self.stays_open(call, fd, &left)
                };
                found.extend(going.iter().find(is_closed).map(|_| (set, member.fd)));
            }
        }
        // Only who has a checkpoint gets a set back that is his alone.
        closed_sets.retain(|_| self.ahead.checkpoints.of(call.pid).next().is_some());
        let mut changes = Vec::new();
        for fd in closed_sets {
            if self.is_its_parents(call, fd) || self.is_shared(call, fd) {
                continue;
            }
            let Some(set) = self.epoll_set(call, fd) else { continue };
            changes.push((Object::Of(set.clone()), Intent::EpollSet(Change { set, fd, part: Part::All })));
        }
        Ok(Leaving { members: found, closed: changes })
    }

    /// Whether a file is still open when this descriptor of it is closed: it stays in its sets.
    fn stays_open(&self, call: &Call, fd: i32, left: &[i32]) -> bool {
        let is_its_childs = |child: ProcessId| crate::sys::are_same_file((call.tid, fd), (child, fd)).unwrap_or(false);
        left.iter().any(|&other| crate::sys::are_same_file((call.tid, fd), (call.tid, other)).unwrap_or(false))
            || self.is_its_parents(call, fd)
            || self.ahead.children.of(call.pid).any(is_its_childs)
    }

    /// Descriptors are closed that are members of sets. An undo entry keeps their files open, so that they would stay
    /// in the sets: they are taken out.
    pub(in crate::ahead) fn close_members(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        mut plan: Plan,
        members: Vec<(i32, i32)>,
    ) -> Result<Decision> {
        // Others may fail, or close nothing; and what was put in under another number cannot be named any more.
        let can_be_named = members.iter().all(|&(_, member)| member == call.frame.args[0] as i32);
        if syscall_table::op(call.frame.nr) != Some(Op::Close) || !can_be_named {
            return Ok(self.wait_at_barrier(call));
        }
        let mut modifies = Vec::new();
        for &(fd, member) in &members {
            let set = self.epoll_set(call, fd).filter(|_| !self.is_shared(call, fd));
            let Some(set) = set else { return Ok(self.wait_at_barrier(call)) };
            let object = Object::Of(set.clone());
            modifies.push((object, Intent::EpollSet(Change { set, fd, part: Part::Member(member) })));
        }
        modifies.append(&mut plan.modifies);
        let decision = self.track(stopped, call, plan, modifies)?;
        if matches!(decision, Decision::Wait) {
            return Ok(decision);
        }
        let mut remote = self.remote_calls(stopped)?;
        for (set, member) in members {
            remote.call(libc::SYS_epoll_ctl, &[set as u64, libc::EPOLL_CTL_DEL as u64, member as u64, 0])?;
        }
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(decision)
    }

    /// What a set is before a call changes it.
    pub(in crate::ahead) fn remember_set(&mut self, tid: ThreadId, change: Change) -> io::Result<Before> {
        let Change { set, fd, part } = change;
        let of = match part {
            Part::Member(number) => Numbers::These(BTreeSet::from([number])),
            Part::Told | Part::All => Numbers::All,
        };
        let members = open_members_of(tid, fd, &of).map_err(io::Error::other)?;
        let is_lost = |found: &Member| match part {
            Part::Member(number) => found.fd == number && !found.can_come_back(),
            Part::Told => found.tells_once() && found.is_exclusive(),
            Part::All => false,
        };
        if members.iter().any(is_lost) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Before { pid: self.pid_of(tid)?, fd, set, of, members, has_told: part == Part::Told })
    }

    /// A process has its descriptors of the checkpoint again: its sets are made what they were.
    pub(in crate::ahead) fn restore_sets(&mut self, pid: ProcessId, stopped: &Stopped) -> Result<()> {
        let undone: Vec<Before> = self.ahead.epoll_sets.undone.extract_if(.., |before| before.pid == pid).collect();
        for before in undone {
            self.restore_set(&before, stopped)?;
        }
        Ok(())
    }

    fn restore_set(&mut self, before: &Before, stopped: &Stopped) -> Result<()> {
        let pid = before.pid;
        let kernel = |source| TraceError::kernel("put back an epoll set", pid, source);
        let Some(fd) = self.descriptor_of_set(before).map_err(kernel)? else { return Ok(()) };
        let now = open_members_of(pid.leader(), fd, &before.of).map_err(|error| kernel(io::Error::other(error)))?;
        let changes = changes_back(&before.members, &now, before.has_told);
        if changes.is_empty() {
            return Ok(());
        }
        let at = stopped.registers()?.gs_base - SCRATCH;
        let mut remote = self.remote_calls(stopped)?;
        for (operation, member) in changes {
            tracee::write_bytes(pid, at, &epoll_event(member.events, member.data)).map_err(kernel)?;
            let done = remote.call(libc::SYS_epoll_ctl, &[fd as u64, operation as u64, member.fd as u64, at])?;
            // What is to go may have gone with its file.
            if done < 0 && operation != libc::EPOLL_CTL_DEL {
                return Err(kernel(io::Error::from_raw_os_error(-done as i32)));
            }
        }
        let signals = remote.finish()?;
        self.hold_signals(pid, signals);
        Ok(())
    }

    /// Which descriptor of the process is the set now; none if the process has made it since.
    fn descriptor_of_set(&self, before: &Before) -> io::Result<Option<i32>> {
        let open = self.descriptors_of(before.pid).map_err(io::Error::other)?;
        for fd in [before.fd].into_iter().chain(open.iter().copied()).filter(|fd| open.contains(fd)) {
            let Some(file) = before.set.file().filter(|_| is_set(before.pid.leader(), fd)) else { continue };
            if crate::sys::is_same_file(before.pid, fd, file)? {
                return Ok(Some(fd));
            }
        }
        Ok(None)
    }
}

/// What makes a set what it was. Those that tell only once are told to look again if they may have told, but for those
/// that had told before: they would wait for errors and hang-ups again.
fn changes_back(before: &[Member], now: &[Member], has_told: bool) -> Vec<(i32, Member)> {
    let find = |members: &[Member], one: &Member| members.iter().copied().find(|other| other.is_same(one));
    let mut changes = Vec::new();
    for member in now.iter().filter(|member| find(before, member).is_none()) {
        changes.push((libc::EPOLL_CTL_DEL, *member));
    }
    for member in before {
        match find(now, member) {
            None => changes.push((libc::EPOLL_CTL_ADD, *member)),
            Some(found) if found != *member || has_told && member.tells_once() && member.can_come_back() => {
                changes.push((libc::EPOLL_CTL_MOD, *member));
            }
            Some(_) => {}
        }
    }
    changes
}

/// Whether one of the members of an epoll set is such. If they are not known, one may be; a descriptor that is not open
/// has none.
fn has_member(members: &procfs::Result<Vec<Member>>, is_such: impl Fn(&Member) -> bool) -> bool {
    match members {
        Ok(members) => members.iter().any(is_such),
        Err(error) => !matches!(error, procfs::Error::Gone(_) | procfs::Error::Missing { .. }),
    }
}

/// Whether an error says that there is no such descriptor, or no such process.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ESRCH))
}

fn is_set(tid: ThreadId, fd: i32) -> bool {
    MagicLink::Fd(fd).shown(tid).is_ok_and(|link| link.as_os_str() == LINK)
}

/// What is in an epoll set.
pub(in crate::ahead) fn members_of(tid: ThreadId, fd: i32) -> procfs::Result<Vec<Member>> {
    Ok(procfs::text(tid, &format!("fdinfo/{fd}"))?.lines().filter_map(Member::of).collect())
}

/// Members, each with how many before it have the same number.
fn counted(members: &[Member]) -> impl Iterator<Item = (&Member, usize)> {
    let mut seen = BTreeMap::new();
    members.iter().map(move |member| {
        let count: &mut usize = seen.entry(member.fd).or_default();
        *count += 1;
        (member, *count - 1)
    })
}

/// Some of them, without those whose descriptor was closed, and whose file somebody else keeps open, such as a
/// checkpoint's copy of the process: the kernel will forget them, and nobody can name them. To ask about one member
/// takes the kernel time for each that the set has.
fn open_members_of(tid: ThreadId, fd: i32, of: &Numbers) -> procfs::Result<Vec<Member>> {
    let mut members = members_of(tid, fd)?;
    members.retain(|member| of.has(member.fd));
    let is_open = |&(member, earlier): &(&Member, usize)| {
        crate::sys::is_member(tid, member.fd, (fd, member.fd, earlier)).unwrap_or(false)
    };
    Ok(counted(&members).filter(is_open).map(|(member, _)| *member).collect())
}

/// The inode of a pipe or socket, by what its descriptor's link says. Of others the link tells none.
fn inode_of(link: &[u8]) -> Option<u64> {
    let link = std::str::from_utf8(link).ok()?;
    let number = link.strip_prefix("socket:[").or_else(|| link.strip_prefix("pipe:["))?;
    number.strip_suffix(']')?.parse().ok()
}

/// A line of an epoll set in fdinfo (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ahead) struct Member {
    pub fd: i32,
    pub events: u32,
    pub data: u64,
    pub ino: u64,
}

impl Member {
    pub(in crate::ahead) fn of(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let fd = words.next()?.parse().ok()?;
        let mut after = |name: &str| words.find(|word| *word == name).and_then(|_| words.next());
        let events = u32::from_str_radix(after("events:")?, 16).ok()?;
        let data = u64::from_str_radix(after("data:")?, 16).ok()?;
        let ino = words.find_map(|word| u64::from_str_radix(word.strip_prefix("ino:")?, 16).ok())?;
        Some(Self { fd, events, data, ino })
    }

    /// A file that was put under the number of another one is another member.
    fn is_same(&self, other: &Self) -> bool {
        self.fd == other.fd && self.ino == other.ino
    }

    fn tells_once(&self) -> bool {
        self.events & (EDGES | ONCE) != 0
    }

    /// Whether it can be made what it is. One that has told its only event waits for nothing at all, which nobody can
    /// ask for; an exclusive one cannot be changed.
    fn can_come_back(&self) -> bool {
        self.events & ALWAYS == ALWAYS && !self.is_exclusive()
    }

    fn is_exclusive(&self) -> bool {
        self.events & EXCLUSIVE != 0
    }
}

/// `struct epoll_event`, which is packed.
pub(in crate::ahead) type EpollEvent = [u8; 12];

pub(in crate::ahead) fn epoll_event(events: u32, data: u64) -> EpollEvent {
    let mut event = [0; 12];
    event[..4].copy_from_slice(&events.to_ne_bytes());
    event[4..].copy_from_slice(&data.to_ne_bytes());
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::objects::kind::Identities;
    use proptest::collection::vec;
    use proptest::{option, prop_assert_eq, proptest};
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::pipe::pipe;
    use std::os::fd::AsRawFd;

    const LEVEL: u32 = ALWAYS | 1;

    fn member(fd: i32, events: u32) -> Member {
        Member { fd, events, data: 7, ino: 1 }
    }

    #[test]
    fn a_line_of_fdinfo_is_a_member() {
        let line = "tfd:        5 events:       19 data:             cafe  pos:0 ino:61af sdev:7";
        assert_eq!(Member::of(line), Some(Member { fd: 5, events: 0x19, data: 0xcafe, ino: 0x61af }));
        assert!(Member::of("pos:\t0").is_none());
    }

    #[test]
    fn what_was_added_goes_and_what_was_removed_comes_back() {
        let changes = changes_back(&[member(3, LEVEL), member(4, LEVEL)], &[member(4, LEVEL), member(5, LEVEL)], false);
        let expected = [(libc::EPOLL_CTL_DEL, member(5, LEVEL)), (libc::EPOLL_CTL_ADD, member(3, LEVEL))];
        assert_eq!(changes, expected);
        let other_file = Member { ino: 2, ..member(3, LEVEL) };
        let changes = changes_back(&[member(3, LEVEL)], &[other_file], false);
        assert_eq!(changes, [(libc::EPOLL_CTL_DEL, other_file), (libc::EPOLL_CTL_ADD, member(3, LEVEL))]);
    }

    proptest! {
        /// A set is changed, with an undo entry before each change, about the member or about all of them; what is put
        /// back makes it what it was. A step: which member, what is done (0 removes it, 1 waits), other data.
        #[test]
        fn the_oldest_entry_about_a_member_counts(
            first in vec(option::of(0u64..3), 4),
            steps in vec((0..5i32, 0..4u8, 0..3u64), 1..8),
        ) {
            let with = |fd, data| Member { data, ..member(fd, LEVEL) };
            let before: BTreeMap<i32, Member> =
                (0..).zip(first).filter_map(|(fd, data)| Some((fd, with(fd, data?)))).collect();
            let file = epoll::create(CreateFlags::CLOEXEC).unwrap();
            let set = Identities::default().of("epoll set", Readiness::Never, file).unwrap();
            let (mut now, mut entries) = (before.clone(), Vec::new());
            for (fd, what, data) in steps {
                let (has_told, pid, set) = (what == 1, ProcessId::own(), set.clone());
                let of = if has_told { Numbers::All } else { Numbers::These(BTreeSet::from([fd])) };
                let members = now.values().filter(|member| of.has(member.fd)).copied().collect();
                entries.push(Before { pid, fd: 9, set, of, members, has_told });
                match what {
                    0 => _ = now.remove(&fd),
                    1 => {}
                    _ => _ = now.insert(fd, with(fd, data)),
                }
            }
            let has_told = entries.iter().any(|entry| entry.has_told);
            let mut sets = Sets::default();
            entries.into_iter().rev().for_each(|entry| sets.undo(entry));
            prop_assert_eq!(sets.undone.len(), 1);
            let undone = &sets.undone[0];
            prop_assert_eq!(undone.has_told, has_told);
            let seen: Vec<Member> = now.values().filter(|member| undone.of.has(member.fd)).copied().collect();
            for (operation, member) in changes_back(&undone.members, &seen, undone.has_told) {
                match operation {
                    libc::EPOLL_CTL_DEL => _ = now.remove(&member.fd),
                    _ => _ = now.insert(member.fd, member),
                }
            }
            prop_assert_eq!(now, before);
        }
    }

    #[test]
    fn links_of_pipes_and_sockets_tell_their_inodes() {
        assert_eq!(inode_of(b"socket:[81]"), Some(81));
        assert_eq!(inode_of(b"pipe:[7]"), Some(7));
        assert_eq!([&b"anon_inode:[eventfd]"[..], b"/tmp/pipe:[7]", b"pipe:[7] (deleted)"].map(inode_of), [None; 3]);
    }

    #[test]
    fn what_tells_once_looks_again_after_it_may_have_told() {
        let members = [member(3, LEVEL | EDGES), member(4, LEVEL), member(5, LEVEL | ONCE)];
        assert!(changes_back(&members, &members, false).is_empty());
        let again = changes_back(&members, &members, true);
        let expected = [(libc::EPOLL_CTL_MOD, members[0]), (libc::EPOLL_CTL_MOD, members[2])];
        assert_eq!(again, expected);
        // The kernel leaves nothing of one that has told its only event.
        let told = [members[0], members[1], member(5, ONCE)];
        assert_eq!(changes_back(&members, &told, false), [(libc::EPOLL_CTL_MOD, members[2])]);
        assert!(!told[2].can_come_back() && members[2].can_come_back());
        // What had told it before is left as it is.
        assert_eq!(changes_back(&told, &told, true), [(libc::EPOLL_CTL_MOD, members[0])]);
    }

    #[test]
    fn members_are_read_and_an_edge_is_told_again_when_asked() {
        let (reader, writer) = pipe().unwrap();
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&set, &reader, EventData::new_u64(7), flags).unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let told = || {
            let mut events = Vec::with_capacity(4);
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap()
        };
        assert_eq!((told(), told()), (1, 0));
        let members = members_of(ProcessId::own().leader(), set.as_raw_fd()).unwrap();
        assert_eq!((members.len(), members[0].fd, members[0].data), (1, reader.as_raw_fd(), 7));
        let again = changes_back(&members, &members, true);
        assert_eq!(again, [(libc::EPOLL_CTL_MOD, members[0])]);
        epoll::modify(&set, &reader, EventData::new_u64(again[0].1.data), flags).unwrap();
        assert_eq!(told(), 1);
    }
}
