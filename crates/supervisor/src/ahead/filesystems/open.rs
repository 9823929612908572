//! Opening for creation what exists already: `> /dev/null`, `>> log`. Nothing is created then, so it need not wait.
//!
//! The process makes the call without `O_CREAT` and `O_TRUNC`. Should the name be gone by then, the call fails and
//! waits like any that creates something: what we have looked at may be changed by anybody outside.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::filesystems::disk::names::{path_text, paths_of};
use crate::ahead::filesystems::disk::new_files::O_ACCMODE;
use crate::ahead::filesystems::disk::watchers;
use crate::ahead::filesystems::path_walk::{End, Found, Way};
use crate::ahead::Call;
use crate::descriptors::user_of;
use crate::event_loop::Supervisor;
use agent_abi::DeviceKind;
use procfs::{LockKind, ThreadId};
use rustix::fs::{FileType, Stat};
use std::cell::RefCell;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};
use syscall_table::nr;
use syscall_table::Op;
use tracee::{Result, Stopped};

const O_WRONLY: u64 = 1;
const O_RDWR: u64 = 2;
pub(in crate::ahead) const O_CREAT: u64 = 0o100;
pub(in crate::ahead) const O_EXCL: u64 = 0o200;
pub(in crate::ahead) const O_TRUNC: u64 = 0o1000;
pub(in crate::ahead) const O_APPEND: u64 = 0o2000;
pub(in crate::ahead) const O_NOFOLLOW: u64 = 0o400000;
const O_DIRECTORY: u64 = 0o200000;
/// The one bit of it that no other flag has.
pub(in crate::ahead) const O_TMPFILE: u64 = 0o20000000;

/// The arguments of `openat` that a call means; none for `openat2`.
pub(in crate::ahead) fn arguments(call: &Call) -> Option<[u64; 4]> {
    let [a, b, c, d, ..] = call.frame.args;
    let here = libc::AT_FDCWD as u64;
    match call.frame.nr {
        nr::open => Some([here, a, b, c]),
        nr::creat => Some([here, a, O_CREAT | O_WRONLY | O_TRUNC, b]),
        nr::openat => Some([a, b, c, d]),
        _ => None,
    }
}

/// The flags of a call that opens a file; all that matter if they cannot be read.
pub(in crate::ahead) fn open_flags(call: &Call) -> u64 {
    match (arguments(call), syscall_table::op(call.frame.nr)) {
        (Some([_, _, flags, _]), _) => flags,
        (None, Some(Op::OpenAt2)) => tracee::read_value(call.tid, call.frame.args[2]).unwrap_or(O_CREAT | O_TRUNC),
        (None, _) => 0,
    }
}

/// Of which files somebody has a lease, as of a moment ago
/// ([0259](../../../../../docs/decisions/0259-leases-as-of-a-moment-ago.md)).
#[derive(Debug, Default)]
pub(in crate::ahead) struct Leases(RefCell<Option<(Instant, HashSet<u64>)>>);

impl Leases {
    const TIME: Duration = Duration::from_secs(1);

    fn forget(&self) {
        self.0.take();
    }

    /// Whether somebody has a lease of a file of this number, on whichever file system.
    fn are_of(&self, inode: u64) -> bool {
        let mut known = self.0.borrow_mut();
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() > Self::TIME) {
            // To read them may take 15 ms: the kernel waits for all processors. Where they cannot be read nobody is
            // taken to have one, as in the agent.
            let locks = procfs::file_locks().unwrap_or_default();
            let leased = locks.into_iter().filter(|lock| lock.kind == LockKind::Lease).map(|lock| lock.inode);
            *known = Some((Instant::now(), leased.collect()));
        }
        known.as_ref().is_some_and(|(_, leased)| leased.contains(&inode))
    }
}

impl Supervisor {
    /// A call that would create or empty a file: `Existing` if it does neither, `Creation` if it may do the first.
    pub(in crate::ahead) fn plan_creating_open(&mut self, call: &Call) -> Plan {
        match arguments(call) {
            Some(arguments) if self.changes_nothing(call, &arguments) => {
                Plan { class: Class::Existing, ..self.plan_lookup(call.pid) }.once()
            }
            Some(arguments) if self.emptied_by(call, &arguments).is_some() => {
                Plan { class: Class::Emptying, ..self.plan_lookup(call.pid) }.once()
            }
            Some(arguments) if self.makes_unnamed(call, &arguments) => self.plan_lookup(call.pid),
            Some([_, _, flags, _]) if flags & (O_CREAT | O_TMPFILE) == O_CREAT => {
                Plan { class: Class::Creation, ..self.plan_lookup(call.pid) }.once()
            }
            _ => Plan::new(Class::Barrier).once(),
        }
    }

    /// Whether a call may make a file.
    pub(in crate::ahead) fn creates_file(&self, call: &Call) -> bool {
        open_flags(call) & O_CREAT != 0
    }

    /// Whether somebody may hear of the call, or be waited for, because he has a lease of the file. Who opens it only
    /// to read breaks leases of writers: these are looked for where somebody inside has asked for any.
    pub(in crate::ahead) fn may_break_lease(&self, call: &Call) -> bool {
        let flags = open_flags(call);
        let is_plain_read = flags & (O_ACCMODE | O_TRUNC) == 0 && !self.are_reads_heard();
        if flags & libc::O_PATH as u64 != 0 || is_plain_read {
            return false;
        }
        let path = syscall_table::op(call.frame.nr).and_then(|op| paths_of(op).first().copied());
        let Some((dir, path)) = path else { return false };
        let found = self.look_up(call, dir, path);
        let may_be_leased = |stat: &Stat| {
            let is_of_inside = self.ahead.new_files.has(stat);
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && (!is_of_inside || self.are_reads_heard())
        };
        if !found.may_be(may_be_leased) {
            return false;
        }
        if self.are_reads_heard() {
            // Somebody inside may have got one since.
            self.ahead.leases.forget();
        }
        found.may_be(|stat| self.ahead.leases.are_of(stat.st_ino))
    }

    fn changes_nothing(&self, call: &Call, &[dir, path, flags, _]: &[u64; 4]) -> bool {
        if flags & (O_EXCL | O_TMPFILE) != 0 {
            return false;
        }
        let Some(path) = crate::requests::read_path(call.tid, path) else { return false };
        let dir = (dir as i32 != libc::AT_FDCWD).then_some(dir as i32);
        let path = std::os::unix::ffi::OsStringExt::into_vec(path.into_os_string());
        let way = self.walk(call.tid, call.pid, dir, &path, flags & O_NOFOLLOW == 0);
        if is_refused(&way, flags) {
            return true;
        }
        let End::Entry(entry) = &way.end else { return false };
        let Some(found) = entry.found.as_ref().filter(|_| !way.through_proc) else { return false };
        is_nothing(found) || flags & O_TRUNC == 0 && self.is_kept_file(found) && may_create(call.tid, &entry.dir, found)
    }

    /// Whether a call makes a file without a name, which only its process has, in a directory that everybody sees as it
    /// is. To those who depend on the guess it is a file that was there: what is written to it is held, and a rollback
    /// closes it.
    fn makes_unnamed(&self, call: &Call, &[dir, path, flags, _]: &[u64; 4]) -> bool {
        if flags & (O_TMPFILE | O_DIRECTORY | O_CREAT) != O_TMPFILE | O_DIRECTORY {
            return false;
        }
        let Some(path) = crate::requests::read_path(call.tid, path) else { return false };
        let dir = (dir as i32 != libc::AT_FDCWD).then_some(dir as i32);
        let way = self.walk(call.tid, call.pid, dir, path.as_os_str().as_bytes(), flags & O_NOFOLLOW == 0);
        if !way.is_known() || way.is_held || way.through_proc {
            return false;
        }
        way.found().is_some_and(|dir| {
            let (device, _) = self.world().device(dir.stat.st_dev);
            dir.is_dir()
                && matches!(device, DeviceKind::Domain | DeviceKind::Memory)
                && !self.is_private(dir.stat.st_dev)
                && !self.ahead.attributes.has(&dir.stat)
                && !watchers::is_watched(&dir.stat)
        })
    }

    /// The file that a call empties, if it is sure to and does nothing else.
    pub(in crate::ahead) fn emptied_by(&self, call: &Call, &[dir, _, flags, _]: &[u64; 4]) -> Option<Found> {
        let writes = flags & O_ACCMODE == O_WRONLY || flags & O_ACCMODE == O_RDWR;
        if flags & (O_EXCL | O_TMPFILE) != 0 || flags & O_TRUNC == 0 || !writes {
            return None;
        }
        let (_, at) = *paths_of(syscall_table::op(call.frame.nr)?).first()?;
        let dir = (dir as i32 != libc::AT_FDCWD).then_some(dir as i32);
        let way = self.walk(call.tid, call.pid, dir, &path_text(call, at)?, flags & O_NOFOLLOW == 0);
        let End::Entry(entry) = way.end else { return None };
        let found = entry.found.filter(|_| !way.through_proc && !way.is_held)?;
        let has_name = found.stat.st_nlink > 0;
        (has_name && self.can_truncate(call, &found, 0) && may_create(call.tid, &entry.dir, &found)).then_some(found)
    }

    fn is_kept_file(&self, found: &Found) -> bool {
        let (device, _) = self.world().device(found.stat.st_dev);
        found.is_regular() && matches!(device, DeviceKind::Domain | DeviceKind::Memory | DeviceKind::ReadOnly)
    }

    /// The call of a speculative process.
    pub(in crate::ahead) fn open_existing(&mut self, stopped: &Stopped, call: &Call, plan: Plan) -> Result<Decision> {
        let Some([dir, path, flags, mode]) = arguments(call) else { return Ok(self.wait_at_barrier(call)) };
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Decision::Wait);
        }
        let mut remote = self.remote_calls(stopped)?;
        let result = remote.call(libc::SYS_openat, &[dir, path, flags & !(O_CREAT | O_TRUNC), mode])?;
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        if result == -i64::from(libc::ENOENT) {
            return Ok(self.wait_at_barrier(call));
        }
        // The agent does not see what the path led through: it may have been anything that is not committed yet.
        if let Some(tracee) = self.tracees.get(&call.tid) {
            let world = self.world();
            world.processes[tracee.process].depend(&world.transactions, &world.transactions.dirty());
        }
        Ok(Decision::Answer(result))
    }
}

/// Whether a directory is opened to be written to: EISDIR, with `O_CREAT` and without. (`touch` tries that first.)
pub(in crate::ahead) fn is_refused(way: &Way, flags: u64) -> bool {
    let writes = flags & O_ACCMODE == O_WRONLY || flags & O_ACCMODE == O_RDWR;
    let is_plain = way.is_known() && !way.through_proc && flags & (libc::O_DIRECTORY | libc::O_PATH) as u64 == 0;
    writes && is_plain && way.found().is_some_and(Found::is_dir)
}

/// A device that keeps nothing: null, zero, full.
fn is_nothing(found: &Found) -> bool {
    const NOTHING: [u64; 3] = [0x103, 0x105, 0x107];
    FileType::from_raw_mode(found.stat.st_mode) == FileType::CharacterDevice && NOTHING.contains(&found.stat.st_rdev)
}

/// Whether `O_CREAT` itself makes no difference: in a directory where everybody may create files it can be refused for
/// those of others (`fs.protected_regular`).
fn may_create(tid: ThreadId, dir: &Found, found: &Found) -> bool {
    const STICKY: u32 = 0o1000;
    dir.stat.st_mode & STICKY == 0 || user_of(tid).is_ok_and(|user| user == found.stat.st_uid)
}
