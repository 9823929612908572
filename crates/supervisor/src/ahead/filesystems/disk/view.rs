//! Names that are held, as those inside see them ([0022](../../../../../../docs/decisions/0022-new-files.md)): what is
//! new under its name, what was moved where it is now, and nothing where a name was taken away. Calls that ask for such
//! a name, lead through one, open it, or change it again are answered from here; whoever makes one depends on what the
//! name depends on. What is not answered here waits until the change is made.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::filesystems::disk::attribute_calls;
use crate::ahead::filesystems::disk::name_calls::is_held_change;
use crate::ahead::filesystems::disk::names::{dir_of, is_fifo, path_text, paths_of};
use crate::ahead::filesystems::disk::new_files::{KNOWN_FLAGS, O_ACCMODE};
use crate::ahead::filesystems::memory;
use crate::ahead::filesystems::open::{arguments, O_CREAT, O_EXCL, O_NOFOLLOW, O_TMPFILE};
use crate::ahead::filesystems::path_walk::{End, Entry, Found, Way};
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use procfs::{MagicLink, ThreadId};
use rustix::fs::StatVfsMountFlags;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use syscall_table::nr;
use syscall_table::Op;
use tracee::{Result, Stopped};

const O_DIRECTORY: u64 = 0o200000;
const O_NOATIME: u64 = 0o1000000;
const O_PATH: u64 = 0o10000000;
/// Flags of `open` that do what they say where something is opened that is there.
const OPENING_FLAGS: u64 = KNOWN_FLAGS | O_DIRECTORY | O_NOATIME | O_PATH;

/// What is done about a call.
enum View {
    /// This is its result.
    Answer(i64),
    /// These bytes are written into its buffer of such a length, as far as there is room.
    Text { text: Vec<u8>, at: u64, room: u64 },
    /// These bytes are written where it asks for them.
    Totals { text: Vec<u8>, at: u64 },
    /// It is opened.
    Open { file: Found, flags: u64 },
    /// One end of it is opened, by the process itself, for that may take for ever.
    OpenFifo { fifo: Found, flags: u64 },
    /// It becomes the working directory.
    Enter(Found),
    /// Attributes are changed.
    HoldAttributes,
    /// A file is made where there is none any more.
    Make,
    /// The name is held once more.
    Change,
}

/// What a path leads to.
enum Viewed {
    Found(Found),
    Nothing(i32),
}

/// Where a directory is, such as the working directory.
enum Cwd {
    AsOnDisk,
    Moved(Vec<u8>),
}

impl Supervisor {
    /// Answer a call from what is held; `None` if it does not concern that, or has to wait.
    pub(in crate::ahead) fn look_at_view(&mut self, stopped: &Stopped, call: &Call) -> Result<Option<Decision>> {
        if self.ahead.held_names.is_empty() {
            return Ok(None);
        }
        let Some(view) = self.view_of(call).filter(|_| self.is_root_as_we_are(call.pid)) else { return Ok(None) };
        match view {
            View::Change => return self.hold_names(stopped, call).map(Some),
            View::HoldAttributes => return self.hold_attributes(stopped, call).map(Some),
            View::Make => {
                let plan = self.plan_creating_open(call);
                return self.create_file(stopped, call, plan).map(Some);
            }
            _ => {}
        }
        let has_path = call.frame.nr != memory::GETCWD;
        if has_path && !self.would_find(stopped, call)? {
            return Ok(None);
        }
        let plan = Plan { observes: self.plan_lookup(call.pid).observes, ..Plan::tracked_once() };
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        self.observe_everything(call.tid);
        match view {
            View::Answer(result) => Ok(Some(Decision::Answer(result))),
            View::Text { text, at, room } => Ok(Some(give_text(call, &text, at, room))),
            View::Totals { text, at } => Ok(Some(match give_text(call, &text, at, text.len() as u64) {
                Decision::Answer(0..) => Decision::Answer(0),
                failed => failed,
            })),
            View::Open { file, flags } => self.open_found(stopped, call, &file, flags),
            View::OpenFifo { fifo, flags } => self.open_new_fifo(stopped, call, &fifo, flags),
            View::Enter(dir) => self.enter(stopped, call, &dir),
            View::Make | View::Change | View::HoldAttributes => Ok(None),
        }
    }

    fn view_of(&self, call: &Call) -> Option<View> {
        let op = syscall_table::op(call.frame.nr)?;
        match op {
            Op::Open | Op::OpenAt | Op::Creat => self.view_of_open(call),
            Op::Chdir => Some(match self.viewed(call, op, true)? {
                Viewed::Found(found) if found.is_dir() => View::Enter(found),
                Viewed::Found(_) => View::Answer(-i64::from(libc::ENOTDIR)),
                Viewed::Nothing(error) => View::Answer(-i64::from(error)),
            }),
            Op::ObservePath { .. } if call.frame.nr == memory::GETCWD => self.view_of_cwd(call),
            Op::ObservePath { .. } => self.view_of_look(call, op),
            Op::ModifyPath { .. } | Op::ModifyPaths { .. } => self.view_of_change(call, op),
            _ => None,
        }
    }

    /// What the first path of a call leads to, if that is not what the disk says, and known.
    fn viewed(&self, call: &Call, op: Op, follows: bool) -> Option<Viewed> {
        let (dir, at) = *paths_of(op).first()?;
        let text = path_text(call, at)?;
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, follows);
        if !way.is_view() && !self.is_own_program(call, &text, &way) {
            return None;
        }
        match way.end {
            End::Entry(Entry { found: Some(found), .. }) | End::File(found) => Some(Viewed::Found(found)),
            End::Entry(_) => Some(Viewed::Nothing(libc::ENOENT)),
            End::Nowhere(error) => Some(Viewed::Nothing(error.raw_os_error())),
            End::Unknown => None,
        }
    }

    fn view_of_open(&self, call: &Call) -> Option<View> {
        let [_, _, flags, _] = arguments(call)?;
        if let Some(file) = self.list_of_mappings(call, flags) {
            return Some(View::Open { file, flags });
        }
        let (_, at) = *paths_of(syscall_table::op(call.frame.nr)?).first()?;
        if flags & O_CREAT != 0 && path_text(call, at)?.ends_with(b"/") {
            // It fails with EISDIR, whatever is there, or with what the way there says.
            return None;
        }
        let makes_new = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        let follows = !makes_new && flags & O_NOFOLLOW == 0;
        let found = match self.viewed(call, syscall_table::op(call.frame.nr)?, follows)? {
            Viewed::Nothing(libc::ENOENT) if flags & O_CREAT != 0 => return Some(View::Make),
            Viewed::Nothing(error) => return Some(View::Answer(-i64::from(error))),
            // A file without a name, which a directory that has none yet cannot be asked for.
            Viewed::Found(found) if found.is_dir() && flags & O_TMPFILE != 0 => return None,
            Viewed::Found(found) => found,
        };
        let error = match () {
            _ if makes_new => libc::EEXIST,
            _ if flags & O_DIRECTORY != 0 && !found.is_dir() => libc::ENOTDIR,
            _ if found.is_dir() && (flags & O_CREAT != 0 || flags & O_PATH == 0 && flags & O_ACCMODE != 0) => {
                libc::EISDIR
            }
            _ if found.is_symlink() && flags & O_PATH == 0 => libc::ELOOP,
            _ => {
                let is_usual = flags as u32 & !(OPENING_FLAGS as u32) == 0 && flags & O_ACCMODE != O_ACCMODE;
                if is_fifo(&found.stat) && flags & O_PATH == 0 {
                    return is_usual.then_some(View::OpenFifo { fifo: found, flags });
                }
                let can_be_opened = is_fifo(&found.stat) || found.is_regular() || found.is_dir() || found.is_symlink();
                return (is_usual && can_be_opened).then_some(View::Open { file: found, flags });
            }
        };
        Some(View::Answer(-i64::from(error)))
    }

    /// What asks for rights, a link's text, extended attributes, or the file system.
    fn view_of_look(&self, call: &Call, op: Op) -> Option<View> {
        let args = &call.frame.args;
        match call.frame.nr {
            nr::access => self.view_of_access(call, op, args[1], 0),
            nr::faccessat => self.view_of_access(call, op, args[2], 0),
            nr::faccessat2 => self.view_of_access(call, op, args[2], args[3]),
            nr::readlink => self.view_of_link(call, op, args[1], args[2]),
            nr::readlinkat => self.view_of_link(call, op, args[2], args[3]),
            nr::statfs => self.view_of_totals(call, op),
            nr::getxattr | nr::lgetxattr | nr::listxattr | nr::llistxattr => self.view_of_extended(call, op),
            _ => None,
        }
    }

    /// Extended attributes.
    fn view_of_extended(&self, call: &Call, op: Op) -> Option<View> {
        const NAME_MAX: usize = 255;
        let args = &call.frame.args;
        let lists = matches!(call.frame.nr, nr::listxattr | nr::llistxattr);
        let follows = matches!(call.frame.nr, nr::getxattr | nr::listxattr);
        let found = match self.viewed(call, op, follows)? {
            Viewed::Found(found) => found,
            Viewed::Nothing(error) => return Some(View::Answer(-i64::from(error))),
        };
        // This path leads to a link itself, and not where the link leads to.
        let (path, mut bytes) = (procfs::own_path(&found.fd), vec![0; 1 << 16]);
        let (at, room) = if lists { (args[1], args[2]) } else { (args[2], args[3]) };
        let len = match lists {
            true => rustix::fs::listxattr(path, &mut bytes[..]),
            false => {
                let name = path_text(call, 1).filter(|name| (1..=NAME_MAX).contains(&name.len()))?;
                rustix::fs::getxattr(path, name, &mut bytes[..])
            }
        };
        let len = match len {
            Ok(len) if room == 0 => return Some(View::Answer(len as i64)),
            Ok(len) if len as u64 > room => return Some(View::Answer(-i64::from(libc::ERANGE))),
            Ok(len) => len,
            Err(error) => return Some(View::Answer(-i64::from(error.raw_os_error()))),
        };
        bytes.truncate(len);
        Some(View::Text { text: bytes, at, room })
    }

    /// The file system of a file or directory. What has no name yet was made by way of the mount where it will be
    /// ([`staging`](super::staging)), whose flags are told, too.
    fn view_of_totals(&self, call: &Call, op: Op) -> Option<View> {
        let found = match self.viewed(call, op, true)? {
            Viewed::Found(found) if found.is_regular() || found.is_dir() => found,
            Viewed::Found(_) => return None,
            Viewed::Nothing(error) => return Some(View::Answer(-i64::from(error))),
        };
        let text = totals_of(&found.fd).ok()?;
        Some(View::Totals { text, at: call.frame.args[1] })
    }

    fn view_of_access(&self, call: &Call, op: Op, mode: u64, flags: u64) -> Option<View> {
        const X_OK: u64 = 1;
        const ALL: u64 = 7;
        let follows = flags & rustix::fs::AtFlags::SYMLINK_NOFOLLOW.bits() as u64 == 0;
        if mode & !ALL != 0 {
            return None;
        }
        // Root may read and write everything, and execute what anybody may.
        let is_no_program =
            |file: &Found| file.stat.st_mode & 0o111 == 0 || file.is_regular() && runs_nothing(&file.fd);
        Some(View::Answer(match self.viewed(call, op, follows)? {
            Viewed::Found(found) if mode & X_OK != 0 && !found.is_dir() && is_no_program(&found) => {
                -i64::from(libc::EACCES)
            }
            Viewed::Found(_) => 0,
            Viewed::Nothing(error) => -i64::from(error),
        }))
    }

    fn view_of_link(&self, call: &Call, op: Op, at: u64, room: u64) -> Option<View> {
        let room = room as u32;
        if room > 0 && room <= i32::MAX as u32 {
            if let Some(text) = self.path_of_own_program(call, op) {
                return Some(View::Text { text, at, room: u64::from(room) });
            }
        }
        let found = match self.viewed(call, op, false)? {
            _ if room == 0 || room > i32::MAX as u32 => return Some(View::Answer(-i64::from(libc::EINVAL))),
            Viewed::Found(found) => found,
            Viewed::Nothing(error) => return Some(View::Answer(-i64::from(error))),
        };
        if !found.is_symlink() {
            return Some(View::Answer(-i64::from(libc::EINVAL)));
        }
        let text = rustix::fs::readlinkat(&found.fd, "", Vec::new()).ok()?.into_bytes();
        Some(View::Text { text, at, room: u64::from(room) })
    }

    /// The working directory, if it is not where the disk says.
    fn view_of_cwd(&self, call: &Call) -> Option<View> {
        if self.is_cwd_removed(call.tid) {
            return Some(View::Answer(-i64::from(libc::ENOENT)));
        }
        if !self.ahead.held_names.moves_directories() {
            return None;
        }
        let [at, room, ..] = call.frame.args;
        let Cwd::Moved(mut text) = self.path_of_cwd(call.tid)? else { return None };
        text.push(0);
        // Whatever the room: libc asks for it piece by piece then.
        let error = if text.len() > libc::PATH_MAX as usize { libc::ENAMETOOLONG } else { libc::ERANGE };
        match text.len() as u64 <= room && error == libc::ERANGE {
            true => Some(View::Text { text, at, room }),
            false => Some(View::Answer(-i64::from(error))),
        }
    }

    /// Whether the kernel says where the working directory is, as those inside see it.
    pub(in crate::ahead) fn is_cwd_where_it_was(&self, tid: ThreadId) -> bool {
        let is_there = || matches!(self.path_of_cwd(tid), Some(Cwd::AsOnDisk));
        !self.is_cwd_removed(tid) && (!self.ahead.held_names.moves_directories() || is_there())
    }

    fn is_cwd_removed(&self, tid: ThreadId) -> bool {
        let is_removed = |here: Found| self.ahead.held_names.is_removed_dir(here.inode());
        Found::behind(&MagicLink::Cwd, tid).is_some_and(is_removed)
    }

    /// Whether a path leads through `/proc` to the program that its process runs, if that has no name on the disk.
    pub(in crate::ahead) fn is_own_program(&self, call: &Call, text: &[u8], way: &Way) -> bool {
        let ahead = &self.ahead;
        let is_new = |found: &Found| ahead.new_files.has(&found.stat) || ahead.program_names.count(&found.inode()) > 0;
        way.through_proc && !way.is_open && names_own_program(call, text) && way.found().is_some_and(is_new)
    }

    /// Where the program that a process runs will be, if a call asks for that and it has no name on the disk.
    fn path_of_own_program(&self, call: &Call, op: Op) -> Option<Vec<u8>> {
        let (dir, at) = *paths_of(op).first()?;
        let text = path_text(call, at).filter(|text| names_own_program(call, text))?;
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, true);
        if !self.is_own_program(call, &text, &way) {
            return None;
        }
        let known_by = MagicLink::Exe.shown(call.tid).ok()?.into_os_string().into_encoded_bytes();
        self.path_of_held(call.tid, way.found()?.inode(), &known_by)
    }

    /// Where a file will be that is not where the disk says, and that the kernel knows by this path. `None`: it has no
    /// such name any more, or which of several it is known by cannot be told.
    fn path_of_held(&self, tid: ThreadId, inode: (u64, u64), known_by: &[u8]) -> Option<Vec<u8>> {
        let names = &self.ahead.held_names;
        if let Some(giver) = self.ahead.program_names.giver_of(&inode, known_by) {
            return self.path_in(tid, names.name_given(inode, giver)?);
        }
        let (dir, name) = names.only_name(inode)?;
        // What was there before is known by its older name, also while it gets a further one.
        let is_older = !self.ahead.new_files.has_inode(&inode);
        if is_older && names.giver(Found::of(dir.try_clone().ok()?).ok()?.inode(), name).is_some() {
            return None;
        }
        self.path_in(tid, (dir, name))
    }

    fn path_in(&self, tid: ThreadId, (dir, name): (Arc<OwnedFd>, &OsStr)) -> Option<Vec<u8>> {
        let path = match self.path_of_dir(tid, Found::of(dir.try_clone().ok()?).ok()?)? {
            Cwd::Moved(path) => path,
            Cwd::AsOnDisk => procfs::own_name(&dir).ok()?.into_os_string().into_encoded_bytes(),
        };
        let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
        Some([&path[..], slash, name.as_encoded_bytes()].concat())
    }

    /// What a process has mapped, if a call opens the list of that and it has mapped files without a name on the disk:
    /// a copy of the list, where these have the names that those inside see.
    fn list_of_mappings(&self, call: &Call, flags: u64) -> Option<Found> {
        let (dir, at) = *paths_of(syscall_table::op(call.frame.nr)?).first()?;
        let by_number = format!("/proc/{}/maps", call.pid);
        let text = path_text(call, at).filter(|text| text == b"/proc/self/maps" || text == by_number.as_bytes())?;
        let is_read = flags & O_ACCMODE == 0 && flags & (O_CREAT | O_DIRECTORY | O_PATH) == 0;
        if !is_read || !self.maps_held_file(call.tid) || self.maps_below_moved(call.tid) {
            return None;
        }
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, true);
        if way.found()?.inode() != Found::of_path(&by_number).ok()?.inode() {
            return None;
        }
        let shown = procfs::Maps::of(call.pid).ok()?.renamed(|mapping| {
            let (major, minor) = mapping.device;
            let file = (rustix::fs::makedev(major, minor), mapping.inode);
            match self.ahead.held_names.concerns(&file) || self.ahead.new_files.has_inode(&file) {
                true => self.path_of_held(call.tid, file, mapping.name.as_bytes()).map(Some),
                false => Some(None),
            }
        })?;
        let list = rustix::fs::memfd_create("maps", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
        (rustix::io::pwrite(&list, &shown, 0) == Ok(shown.len())).then(|| Found::of(list).ok())?
    }

    /// `None`: it cannot be told.
    fn path_of_cwd(&self, tid: ThreadId) -> Option<Cwd> {
        self.path_of_dir(tid, Found::behind(&MagicLink::Cwd, tid)?)
    }

    /// The same for any directory.
    fn path_of_dir(&self, tid: ThreadId, mut here: Found) -> Option<Cwd> {
        const DEPTH_MAX: usize = 1000;
        let root = Found::behind(&MagicLink::Root, tid)?;
        let (mut names, mut is_moved) = (Vec::new(), false);
        while here.inode() != root.inode() && names.len() < DEPTH_MAX {
            let is_held = self.ahead.held_names.parent(here.inode()).is_some();
            names.push(self.name_of_dir(&here)?);
            is_moved |= is_held;
            here = self.above(&here).ok()?.0;
        }
        names.reverse();
        let path = || names.iter().flat_map(|name| [b"/", &name[..]].concat()).collect();
        Some(if is_moved { Cwd::Moved(path()) } else { Cwd::AsOnDisk })
    }

    fn name_of_dir(&self, dir: &Found) -> Option<Vec<u8>> {
        if let Some((_, name)) = self.ahead.held_names.parent(dir.inode()) {
            return Some(name.as_encoded_bytes().to_vec());
        }
        let path = procfs::own_name(&dir.fd).ok().filter(|_| dir.stat.st_nlink > 0)?;
        path.file_name().map(|name| name.as_encoded_bytes().to_vec())
    }

    fn view_of_change(&self, call: &Call, op: Op) -> Option<View> {
        if attribute_calls::is_change(call.frame.nr) {
            let follows = attribute_calls::follows(call)?;
            return match self.viewed(call, op, follows) {
                Some(Viewed::Nothing(error)) => Some(View::Answer(-i64::from(error))),
                Some(Viewed::Found(_)) => Some(View::HoldAttributes),
                // Its name is what the disk says, and names in it are held, or others of it.
                None => self.leads_to_held_names(call, op, follows).then_some(View::HoldAttributes),
            };
        }
        let way_of = |(dir, at)| {
            let text = path_text(call, at)?;
            Some(self.walk(call.tid, call.pid, dir_of(call, dir), &text, false))
        };
        let ways: Vec<Way> = paths_of(op).into_iter().map(way_of).collect::<Option<_>>()?;
        let are_known = ways.iter().all(|way| way.is_known() && !way.through_proc);
        let is_held = |way: &Way| way.found().is_some_and(|found| self.ahead.held_names.has_inode(&found.stat));
        let is_any = ways.iter().any(|way| way.is_view() || is_held(way));
        (is_held_change(call.frame.nr) && are_known && is_any).then_some(View::Change)
    }

    fn leads_to_held_names(&self, call: &Call, op: Op, follows: bool) -> bool {
        let Some(&(dir, at)) = paths_of(op).first() else { return false };
        let Some(text) = path_text(call, at) else { return false };
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, follows);
        let is_concerned = |found: &Found| self.ahead.held_names.has_inode(&found.stat);
        way.is_known() && !way.through_proc && way.found().is_some_and(is_concerned)
    }

    /// The working directory becomes one that the call cannot find by itself.
    fn enter(&mut self, stopped: &Stopped, call: &Call, dir: &Found) -> Result<Option<Decision>> {
        let Some(fd) = self.install_free(stopped, call.pid, &dir.fd, true)? else { return Ok(None) };
        let mut remote = self.remote_calls(stopped)?;
        let result = remote.call(libc::SYS_fchdir, &[fd as u64])?;
        remote.call(libc::SYS_close, &[fd as u64])?;
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(Some(Decision::Answer(result)))
    }
}

/// Whether this is how a process names the program that it runs. (Who has another number there is no root as we are.)
fn names_own_program(call: &Call, text: &[u8]) -> bool {
    text == b"/proc/self/exe" || text == format!("/proc/{}/exe", call.pid).as_bytes()
}

/// Whether no program is run by way of this file's mount.
fn runs_nothing(file: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(file).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

fn give_text(call: &Call, text: &[u8], at: u64, room: u64) -> Decision {
    let text = &text[..text.len().min(room as usize)];
    let written = tracee::write_bytes(call.tid, at, text);
    Decision::Answer(if written.is_ok() { text.len() as i64 } else { -i64::from(libc::EFAULT) })
}

/// `struct statfs`, as the kernel writes it.
fn totals_of(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let (found, id) = (rustix::fs::fstatfs(file)?, rustix::fs::fstatvfs(file)?.f_fsid);
    let words = [
        found.f_type as u64,
        found.f_bsize as u64,
        found.f_blocks,
        found.f_bfree,
        found.f_bavail,
        found.f_files,
        found.f_ffree,
        id,
        found.f_namelen as u64,
        found.f_frsize as u64,
        found.f_flags as u64,
    ];
    let spare = [0; 4];
    Ok(words.into_iter().chain(spare).flat_map(u64::to_ne_bytes).collect())
}
