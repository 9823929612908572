//! Names that are held, as those inside see them ([0022](../../../../../../docs/decisions/0022-new-files.md)): a new file under its name, and nothing where a name was taken away. Calls that
//! ask for such a name, open it, or change it again are answered from here; whoever makes one depends on what the name depends on. What is not answered here
//! waits until the change is made.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::filesystems::disk::attributes;
use crate::ahead::filesystems::disk::names::{
    dir_of, follows_last_link, is_held_change, path_text, paths_of, stat_buffer,
};
use crate::ahead::filesystems::disk::new_files::{has_known_flags, is_root_as_we_are, KNOWN_FLAGS, O_ACCMODE};
use crate::ahead::filesystems::open::{arguments, O_CREAT, O_EXCL, O_NOFOLLOW};
use crate::ahead::filesystems::path_walk::{End, Entry, Found, Way};
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use syscall_table::Op;
use tracee::{Result, Stopped};

/// What is done about a call.
enum View {
    /// This is its result.
    Answer(i64),
    /// The attributes of a new file are written there.
    Stat { file: Found, at: u64 },
    /// A new file is opened.
    Open { file: Found, flags: u64 },
    /// The attributes of a new file are changed.
    Attributes { file: Found, change: attributes::Change },
    /// A file is made where there is none any more.
    Make,
    /// The name is held once more.
    Change,
}

impl Supervisor {
    /// Answer a call from what is held; `None` if it does not concern that, or has to wait.
    pub(in crate::ahead) fn look_at_view(&mut self, stopped: &Stopped, call: &Call) -> Result<Option<Decision>> {
        if self.ahead.held_names.is_empty() {
            return Ok(None);
        }
        let Some(view) = self.view_of(call).filter(|_| is_root_as_we_are(call.pid)) else { return Ok(None) };
        match view {
            View::Change => return self.hold_names(stopped, call).map(Some),
            View::Make => {
                let plan = self.plan_creating_open(call);
                return self.create_file(stopped, call, plan).map(Some);
            }
            _ => {}
        }
        if !self.would_find(stopped, call)? {
            return Ok(None);
        }
        let plan = Plan { observes: self.plan_lookup().observes, ..Plan::tracked_once() };
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        match view {
            View::Answer(result) => Ok(Some(Decision::Answer(result))),
            View::Stat { file, at } => Ok(Some(self.show_new_file(call, &file, at))),
            View::Open { file, flags } => self.open_new_file(stopped, call, &file, flags),
            View::Attributes { file, change } => self.change_attributes(stopped, call, &file, change),
            View::Make | View::Change => Ok(None),
        }
    }

    fn view_of(&self, call: &Call) -> Option<View> {
        let op = syscall_table::op(call.frame.nr)?;
        match op {
            Op::Open | Op::OpenAt | Op::Creat => self.view_of_open(call),
            Op::StatPath { .. } | Op::Statx => {
                let entry = self.viewed_entry(call, op, follows_last_link(call))?;
                let (at, _) = stat_buffer(call).filter(|_| has_known_flags(call))?;
                let Some(file) = entry.found else { return Some(View::Answer(-i64::from(libc::ENOENT))) };
                // Writes that are held will change its size.
                let is_deferred = self.ahead.deferred.contains_key(&(file.stat.st_dev, file.stat.st_ino));
                (!is_deferred).then_some(View::Stat { file, at })
            }
            Op::ObservePath { .. } => self.view_of_access(call, op),
            Op::ModifyPath { .. } | Op::ModifyPaths { .. } => self.view_of_change(call, op),
            _ => None,
        }
    }

    /// The name that the first path of a call ends with, if it is held, and what it means inside is known.
    fn viewed_entry(&self, call: &Call, op: Op, follows: bool) -> Option<Entry> {
        let (dir, at) = *paths_of(op).first()?;
        viewed(self.walk(call.tid, call.pid, dir_of(call, dir), &path_text(call, at)?, follows))
    }

    fn view_of_open(&self, call: &Call) -> Option<View> {
        let [_, _, flags, _] = arguments(call)?;
        let makes = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        let entry = self.viewed_entry(call, syscall_table::op(call.frame.nr)?, !makes && flags & O_NOFOLLOW == 0)?;
        let is_usual = flags as u32 & !(KNOWN_FLAGS as u32) == 0 && flags & O_ACCMODE != O_ACCMODE;
        match entry.found {
            Some(_) if makes => Some(View::Answer(-i64::from(libc::EEXIST))),
            Some(file) => is_usual.then_some(View::Open { file, flags }),
            None if flags & O_CREAT == 0 => Some(View::Answer(-i64::from(libc::ENOENT))),
            None => Some(View::Make),
        }
    }

    fn view_of_access(&self, call: &Call, op: Op) -> Option<View> {
        const ACCESS: u64 = 21;
        const FACCESSAT: u64 = 269;
        const FACCESSAT2: u64 = 439;
        const READLINK: u64 = 89;
        const READLINKAT: u64 = 267;
        const X_OK: u64 = 1;
        const ALL: u64 = 7;
        let args = &call.frame.args;
        let (mode, flags) = match call.frame.nr {
            ACCESS => (args[1], 0),
            FACCESSAT => (args[2], 0),
            FACCESSAT2 => (args[2], args[3]),
            READLINK | READLINKAT => {
                let entry = self.viewed_entry(call, op, false)?;
                return Some(View::Answer(-i64::from(entry.found.map_or(libc::ENOENT, |_| libc::EINVAL))));
            }
            _ => return None,
        };
        let follows = flags & rustix::fs::AtFlags::SYMLINK_NOFOLLOW.bits() as u64 == 0;
        let entry = self.viewed_entry(call, op, follows).filter(|_| mode & !ALL == 0)?;
        let Some(file) = entry.found else { return Some(View::Answer(-i64::from(libc::ENOENT))) };
        // Root may read and write everything, and execute what anybody may.
        let may_all = mode & X_OK == 0 || file.stat.st_mode & 0o111 != 0;
        Some(View::Answer(if may_all { 0 } else { -i64::from(libc::EACCES) }))
    }

    fn view_of_change(&self, call: &Call, op: Op) -> Option<View> {
        if attributes::is_change(call.frame.nr) {
            let entry = self.viewed_entry(call, op, attributes::follows(call)?)?;
            let change = attributes::change_of(call, attributes::now())?;
            let nothing = View::Answer(-i64::from(libc::ENOENT));
            return Some(entry.found.map_or(nothing, |file| View::Attributes { file, change }));
        }
        let way_of = |(dir, at)| {
            let text = path_text(call, at)?;
            Some(self.walk(call.tid, call.pid, dir_of(call, dir), &text, false))
        };
        let ways: Vec<Way> = paths_of(op).into_iter().map(way_of).collect::<Option<_>>()?;
        let are_known = ways.iter().all(|way| way.is_known() && !way.through_proc);
        let is_any = ways.iter().any(|way| way.is_view);
        (is_held_change(call.frame.nr) && are_known && is_any).then_some(View::Change)
    }
}

fn viewed(way: Way) -> Option<Entry> {
    match way.end {
        End::Entry(entry) if way.is_view && !way.through_proc => Some(entry),
        _ => None,
    }
}
