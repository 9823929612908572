//! Connections between processes inside that begin while something is speculative (000, 6.6).
//!
//! The kernel takes no connection back into the queue of the socket that listens. So what an execution that was taken
//! back had accepted waits in
//! *front* of that socket, in its order, as input does in front of its source: the next accept there, whoever makes it,
//! gets the same socket again from us ([`Listeners`]). Its client sees no difference: it was connected before, and is.
//!
//! A connection that was never made is taken out of the queue again, wherever it waits: if its client is taken back,
//! whoever accepted it is, too, because the queue depends on the client. The client's own socket cannot be made
//! unconnected; so it must be one that the rollback closes, made since the last checkpoint and known to nobody else. A
//! client with an older one waits.
//!
//! Nobody may connect to a socket that only we, or those who have ended for their program, still have: natively it
//! would be refused.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::calls::under_way::Taking;
use crate::ahead::filesystems::memory::names_file;
use crate::ahead::filesystems::path_walk::{End, Entry};
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::objects::input;
use crate::ahead::objects::sockets::tcp::is_tcp;
use crate::ahead::rollback::undo::Intent;
use crate::ahead::{Call, Object};
use crate::classify::Name;
use crate::event_loop::Supervisor;
use agent_abi::{Private, PRIVATE_BASE};
use procfs::{MagicLink, TaskId, ThreadId};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, socket_acceptconn, socket_domain, socket_passcred, socket_type};
use rustix::net::{accept_with, send, AddressFamily, SendFlags, SocketFlags, SocketType};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use syscall_table::nr;
use tracee::{Result, Stopped, TraceError};

/// How often it is looked whether what waits can still be accepted.
pub(in crate::ahead) const PATIENCE: Duration = Duration::from_millis(50);

/// What one call of a speculative process accepts; nothing until it has.
#[derive(Debug, Default)]
pub(crate) struct Accepted(OnceLock<Arc<OwnedFd>>);

/// A socket that only the world listens with.
#[derive(Debug)]
pub(crate) struct Listener {
    ino: u64,
    copy: OwnedFd,
}

/// Connections that wait in front of sockets that listen, by the inodes of those.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Listeners {
    waiting: HashMap<u64, VecDeque<Arc<OwnedFd>>>,
    /// Clients that have never connected, by inode, in the rollback that is under way: who accepted them may have asked
    /// to before they came.
    unmade: Vec<(u64, Arc<OwnedFd>)>,
    /// When it was last looked whether anybody can still accept them.
    looked_at: Option<Instant>,
}

impl Listeners {
    pub fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn waits_at(&self, listener: u64) -> bool {
        self.waiting.contains_key(&listener)
    }

    /// Whether the socket with this inode waits to be accepted: nobody has it, and nobody has let it go.
    pub fn has(&self, ino: u64) -> bool {
        self.waiting.values().flatten().any(|socket| ino_of(socket) == Some(ino))
    }

    /// A rollback is complete.
    pub fn rolled_back(&mut self) {
        self.unmade.clear();
    }

    fn push(&mut self, listener: u64, socket: Arc<OwnedFd>) {
        self.waiting.entry(listener).or_default().push_back(socket);
    }

    fn first(&self, listener: u64) -> Option<Arc<OwnedFd>> {
        self.waiting.get(&listener)?.front().cloned()
    }

    fn take_first(&mut self, listener: u64) {
        if let Some(waiting) = self.waiting.get_mut(&listener) {
            waiting.pop_front();
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }
}

impl Supervisor {
    pub(in crate::ahead) fn plan_accept(&mut self, call: &Call) -> Plan {
        match self.file_description(call.tid, call.frame.args[0] as i32) {
            FileDescription::Socket { ino, copy } if self.listens_inside(&copy) => {
                if let Some(plan) = self.plan_accept_unseen(call, ino) {
                    return plan;
                }
                Plan::new(Class::Accept { listener: Listener { ino, copy } })
            }
            _ => Plan::new(Class::Barrier),
        }
    }

    pub(in crate::ahead) fn accept(&mut self, stopped: &Stopped, call: &Call, listener: Listener) -> Result<Decision> {
        let object = Object::Socket(listener.ino);
        let never_waits = rustix::fs::fcntl_getfl(&listener.copy).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
        if !self.takes_alone(call, &object, never_waits) {
            return Ok(Decision::Wait);
        }
        let accepted = Arc::new(Accepted::default());
        let intent = Intent::Accept { listener: listener.ino, accepted: Arc::clone(&accepted) };
        let decision = self.track(stopped, call, Plan::new(Class::Tracked), vec![(object, intent)])?;
        let Decision::GoAndTell(mut under_way) = decision else { return Ok(decision) };
        if let Some(socket) = self.ahead.listeners.first(listener.ino) {
            return Ok(Decision::Answer(self.accept_again(stopped, call, listener.ino, &accepted, &socket)?));
        }
        if self.ahead.is_speculative(call.pid) {
            input::expect_result(call)?;
            under_way.takes = Some(Taking::Connection(accepted));
        }
        Ok(Decision::GoAndTell(under_way))
    }

    /// A connection that was accepted before is accepted again.
    fn accept_again(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        listener: u64,
        accepted: &Accepted,
        socket: &Arc<OwnedFd>,
    ) -> Result<i64> {
        let [_, address, len_at, flags, ..] = call.frame.args;
        let flags = if call.frame.nr == nr::accept4 { flags as i32 } else { 0 };
        if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Ok(-i64::from(libc::EINVAL));
        }
        if !self.has_free_descriptors(call.pid) {
            return Ok(-i64::from(libc::EMFILE));
        }
        self.ahead.listeners.take_first(listener);
        self.ahead.changes += 1;
        if let Err(error) = write_address(call.tid, address, len_at, socket) {
            // The kernel drops it as well.
            return Ok(-i64::from(error.raw_os_error().unwrap_or(libc::EFAULT)));
        }
        let _ = accepted.0.set(Arc::clone(socket));
        let fresh = if flags & libc::SOCK_NONBLOCK != 0 { OFlags::NONBLOCK } else { OFlags::empty() };
        let kernel = |source| TraceError::kernel("give a connection again", call.tid, source);
        rustix::fs::fcntl_setfl(&**socket, fresh).map_err(|error| kernel(error.into()))?;
        let fd = self.install_free(stopped, call.pid, socket, flags & libc::SOCK_CLOEXEC != 0)?;
        // Another thread was faster, and the connection has been taken.
        let fd = fd.ok_or_else(|| kernel(io::Error::from_raw_os_error(libc::EMFILE)))?;
        self.note_stream(stopped, call, fd)?;
        self.observe_everything(call.tid);
        Ok(i64::from(fd))
    }

    /// As the agent does where the kernel accepts: a stream that may lead outside.
    fn note_stream(&mut self, stopped: &Stopped, call: &Call, fd: i32) -> Result<()> {
        let at = PRIVATE_BASE + offset_of!(Private, outside_streams_end) as u64;
        let kernel = |source| TraceError::kernel("note a stream", call.tid, source);
        let end: u64 = tracee::read_value(call.tid, at).map_err(kernel)?;
        tracee::write_bytes(call.tid, at, &end.max(fd as u64 + 1).to_ne_bytes()).map_err(kernel)?;
        self.watch_end(stopped)
    }

    /// What somebody has learned may depend on anything that anybody did.
    pub(in crate::ahead) fn observe_everything(&mut self, tid: ThreadId) {
        let world = self.world();
        if let Some(tracee) = self.tracees.get(&tid) {
            world.processes[tracee.process].depend(&world.transactions, &world.transactions.dirty());
        }
    }

    /// A call to accept has ended with this result.
    pub(in crate::ahead) fn note_accepted(&mut self, tid: ThreadId, accepted: &Accepted, result: i64) -> Result<()> {
        let Ok(fd) = i32::try_from(result) else { return Ok(()) };
        if fd < 0 {
            return Ok(());
        }
        let kernel = |source| TraceError::kernel("hold a connection", tid, source);
        let copy = self.copy_descriptor(tid, fd).map_err(kernel)?;
        let ino = ino_of(&copy).ok_or_else(|| kernel(io::ErrorKind::InvalidInput.into()))?;
        let _ = accepted.0.set(self.ahead.ends.hold(ino, copy));
        Ok(())
    }

    /// `connect` of a Unix socket to a name that is not there: that is observed, and nothing leaves.
    pub(in crate::ahead) fn plan_connect_to_nothing(&mut self, call: &Call, copy: &OwnedFd) -> Option<Plan> {
        // With SO_PASSCRED the socket would get a name first.
        let is_plain = socket_domain(copy) == Ok(AddressFamily::UNIX) && socket_passcred(copy) == Ok(false);
        let error = self.connects_to_nothing(call).filter(|_| is_plain)?;
        let mut plan = self.plan_lookup(call.pid);
        plan.class = Class::Known { result: -i64::from(error.raw_os_error()) };
        Some(plan.once())
    }

    /// Why a path that a call connects to leads nowhere. `None` if it does not, or that may be otherwise for those
    /// inside.
    pub(in crate::ahead) fn connects_to_nothing(&self, call: &Call) -> Option<Errno> {
        let text = self.path_to_connect_to(call).filter(|_| call.frame.nr == nr::connect)?;
        let way = self.walk(call.tid, call.pid, None, &text, true);
        let is_disks = way.through.is_empty() && !way.is_held && !way.through_proc;
        let error = match way.end {
            End::Entry(Entry { found: None, .. }) => Errno::NOENT,
            End::Nowhere(error @ (Errno::NOENT | Errno::NOTDIR)) => error,
            _ => return None,
        };
        // What we can look up it can.
        (is_disks && self.has_our_rights(call.pid)).then_some(error)
    }

    fn path_to_connect_to(&self, call: &Call) -> Option<Vec<u8>> {
        match self.name_bytes(call)? {
            name if name[0] == 0 || !names_file(call) => None,
            name => Some(name.split(|&byte| byte == 0).next()?.to_vec()),
        }
    }

    /// `connect` of a Unix socket to one that listens inside; `None`: nothing is known of it, or it cannot be undone.
    pub(in crate::ahead) fn plan_connect(&mut self, call: &Call, ino: u64, copy: OwnedFd) -> Option<Plan> {
        let is_unix = socket_domain(&copy) == Ok(AddressFamily::UNIX);
        let is_stream = matches!(socket_type(&copy), Ok(SocketType::STREAM | SocketType::SEQPACKET));
        if !is_unix || !is_stream || !self.is_in_our_network(&copy) {
            return None;
        }
        let listener = self.unix_listener(&self.name_of(call)?, &copy)?;
        if !self.is_held_by_the_living(listener) {
            return Some(Plan::new(Class::Later));
        }
        if self.ahead.is_speculative(call.pid) && !self.is_fresh(call, ino) {
            return None;
        }
        let mut plan = self.plan_lookup(call.pid);
        plan.class = Class::Fresh;
        Some(plan.modifying(Object::Socket(listener), Intent::Connect { listener, client: copy }))
    }

    /// Whether a socket was made since the last checkpoint, and nobody else has it: a rollback closes it.
    pub(in crate::ahead) fn is_fresh(&mut self, call: &Call, ino: u64) -> bool {
        let last = self.ahead.checkpoints.last_of(call.pid);
        // Whoever was born since its parent's last checkpoint has none of its own: it got what its parent had.
        let is_since = last.is_none_or(|kept| !kept.sockets.contains(&ino));
        let all = self.inside();
        is_since && self.ahead.ends.get(ino).is_none() && self.is_held_once_among(&all, ino)
    }

    /// A call to accept has never been made.
    pub(in crate::ahead) fn accept_back(&mut self, listener: u64, accepted: &Accepted) {
        let Some(socket) = accepted.0.get() else { return };
        let client = self.unix_peer(socket);
        if !self.ahead.listeners.unmade.iter().any(|(unmade, _)| Some(*unmade) == client) {
            self.ahead.listeners.waiting.entry(listener).or_default().push_front(Arc::clone(socket));
        }
    }

    /// A connection is taken out of the queue that it waits in, as if it had never been made; or it is taken back from
    /// whoever accepts it.
    pub(in crate::ahead) fn disconnect(&mut self, listener: u64, client: u64, held: Arc<OwnedFd>) -> io::Result<()> {
        let Ok(copy) = self.end_of(listener) else { return Ok(()) };
        while !self.remove_client(listener, client) {
            let mut ready = [PollFd::new(&*copy, PollFlags::IN)];
            poll(&mut ready, Some(&Timespec::default()))?;
            if !ready[0].revents().contains(PollFlags::IN) {
                self.ahead.listeners.unmade.push((client, held));
                return Ok(());
            }
            let socket = accept_with(&*copy, SocketFlags::CLOEXEC)?;
            self.remember_made_inside(&socket);
            let Some(ino) = ino_of(&socket) else { return Ok(()) };
            let socket = self.ahead.ends.hold(ino, socket);
            self.ahead.listeners.push(listener, socket);
        }
        Ok(())
    }

    fn remove_client(&mut self, listener: u64, client: u64) -> bool {
        let Some(waiting) = self.ahead.listeners.waiting.remove(&listener) else { return false };
        let count = waiting.len();
        let others: VecDeque<Arc<OwnedFd>> =
            waiting.into_iter().filter(|socket| self.unix_peer(socket) != Some(client)).collect();
        let is_removed = others.len() < count;
        if !others.is_empty() {
            self.ahead.listeners.waiting.insert(listener, others);
        }
        is_removed
    }

    /// Nobody listens any more: what waited there is reset, as it is with the kernel's own queue.
    pub(in crate::ahead) fn reset_unaccepted(&mut self) {
        let looked_at = self.ahead.listeners.looked_at;
        if !self.ahead.listeners.any_waits() || looked_at.is_some_and(|at| at.elapsed() < PATIENCE) {
            return;
        }
        self.ahead.listeners.looked_at = Some(Instant::now());
        let listeners: Vec<u64> = self.ahead.listeners.waiting.keys().copied().collect();
        for listener in listeners {
            // In an undo entry, or by somebody who may live again.
            if self.end_of(listener).is_ok() {
                continue;
            }
            for socket in self.ahead.listeners.waiting.remove(&listener).unwrap_or_default() {
                self.reset(&socket);
            }
            self.ahead.changes += 1;
        }
    }

    /// What was not read makes a reset of the end, and so does a TCP socket that is not to linger.
    fn reset(&mut self, socket: &OwnedFd) {
        if is_tcp(socket) {
            let _ = set_socket_linger(socket, Some(Duration::ZERO));
            return;
        }
        let client = self.unix_peer(socket).and_then(|client| self.end_of(client).ok());
        if let Some(client) = client {
            let _ = send(&*client, b"x", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Where a call connects to.
    fn name_of(&self, call: &Call) -> Option<Name> {
        let name = self.name_bytes(call)?;
        if name[0] == 0 {
            return Some(Name::Abstract(name));
        }
        let text = name.split(|&byte| byte == 0).next()?;
        let way = self.walk(call.tid, call.pid, None, text, true);
        way.found().map(|found| Name::File { dev: found.stat.st_dev, ino: found.stat.st_ino })
    }

    /// The name in the address of a call, as it stands there; never empty.
    fn name_bytes(&self, call: &Call) -> Option<Vec<u8>> {
        const NAME_LEN_MAX: usize = 108;
        const FAMILY_LEN: usize = 2;
        let [_, at, len, ..] = call.frame.args;
        let len = (len as usize).checked_sub(FAMILY_LEN).filter(|len| (1..=NAME_LEN_MAX).contains(len))?;
        tracee::read_bytes(call.tid, at + FAMILY_LEN as u64, len).ok()
    }

    /// Whether this socket listens, and only the world has it.
    pub(in crate::ahead) fn listens_inside(&mut self, socket: &OwnedFd) -> bool {
        let is_known = socket_domain(socket) == Ok(AddressFamily::UNIX) || is_tcp(socket);
        is_known && socket_acceptconn(socket) == Ok(true) && self.is_ours_alone(socket)
    }
}

/// Which of a process's descriptors are sockets, by inode.
pub(in crate::ahead) fn sockets_among(task: TaskId, descriptors: &[i32]) -> procfs::Result<HashSet<u64>> {
    let mut sockets = HashSet::new();
    for fd in descriptors {
        let link = match MagicLink::Fd(*fd).shown(task) {
            // Closed meanwhile, by a process that shares the table.
            Err(procfs::Error::Missing { .. }) => continue,
            other => procfs::unless_gone(other)?,
        };
        let ino = |link: &str| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok();
        sockets.extend(link.to_str().and_then(ino));
    }
    Ok(sockets)
}

fn ino_of(socket: &OwnedFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|stat| stat.st_ino)
}

/// The peer's name, where a call that accepts wants it.
fn write_address(tid: ThreadId, at: u64, len_at: u64, socket: &OwnedFd) -> io::Result<()> {
    if at == 0 {
        return Ok(());
    }
    let name = crate::sys::peer_name(socket)?;
    let room = i32::try_from(tracee::read_value::<u32>(tid, len_at)?);
    let room = room.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))? as usize;
    tracee::write_bytes(tid, at, &name[..room.min(name.len())])?;
    tracee::write_bytes(tid, len_at, &(name.len() as i32).to_ne_bytes())
}
