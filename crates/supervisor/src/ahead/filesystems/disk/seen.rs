//! The attributes of a file or directory of which something is held, as those inside see them (stat(2), statx(2)): its
//! number of names, the times of a directory whose names have changed, and held attributes. Whoever asks for them
//! depends on what is held from then on.
//!
//! Where the kernel finds the file by its name, the process makes its call, and the answer is changed. What is open in
//! the process, and what is found by a name that is not what the disk says, is looked at from here.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::Plan;
use crate::ahead::filesystems::disk::name_changes::Inode;
use crate::ahead::filesystems::disk::names::{dir_of, follows_last_link, path_text, paths_of, stat_buffer};
use crate::ahead::filesystems::disk::new_files::{descriptor_looked_at, has_known_flags};
use crate::ahead::filesystems::disk::stat::{self, Shown};
use crate::ahead::filesystems::path_walk::{object_of, End, Entry, Found};
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use rustix::fs::{FileType, Stat, Timespec};
use std::time::Duration;
use tracee::{Result, Stopped, TraceError};

/// What a call asks for.
enum LookedAt {
    /// The kernel finds it.
    Kernel(Stat),
    /// It is open in the process; this is a copy of its descriptor.
    Open(Found),
    /// It is found here only.
    Held(Found),
    /// This is why it is not found.
    Nothing(i32),
}

impl LookedAt {
    fn stat(&self) -> Option<&Stat> {
        match self {
            Self::Kernel(stat) => Some(stat),
            Self::Open(found) | Self::Held(found) => Some(&found.stat),
            Self::Nothing(_) => None,
        }
    }
}

impl Supervisor {
    /// Answer a call that asks for attributes; `None` if nothing is held of them.
    pub(in crate::ahead) fn look_at_attributes(&mut self, stopped: &Stopped, call: &Call) -> Result<Option<Decision>> {
        let ahead = &self.ahead;
        if ahead.held_names.is_empty()
            && ahead.attributes.is_empty()
            && ahead.new_files.is_empty()
            && ahead.contents.is_empty()
        {
            return Ok(None);
        }
        let Some((at, _)) = stat_buffer(call).filter(|_| has_known_flags(call)) else { return Ok(None) };
        let Some(looked_at) = self.attributes_looked_at(call) else { return Ok(None) };
        if looked_at.stat().is_some_and(|stat| self.is_size_held(stat)) && !self.is_root_as_we_are(call.pid) {
            return Ok(Some(self.wait_at_barrier(call)));
        }
        let plan = match &looked_at {
            LookedAt::Kernel(stat) | LookedAt::Open(Found { stat, .. }) => {
                Plan::tracked_once().observing(object_of(stat))
            }
            _ if self.would_find(stopped, call)? => {
                Plan { observes: self.plan_lookup(call.pid).observes, ..Plan::tracked_once() }
            }
            _ => return Ok(Some(self.wait_at_barrier(call))),
        };
        if matches!(self.track(stopped, call, plan, Vec::new())?, Decision::Wait) {
            return Ok(Some(Decision::Wait));
        }
        self.observe_everything(call.tid);
        if let Some(stat) = looked_at.stat() {
            self.ahead.contents.note_shown((stat.st_dev, stat.st_ino));
        }
        self.show_attributes(stopped, call, at, &looked_at).map(Some)
    }

    fn show_attributes(&mut self, stopped: &Stopped, call: &Call, at: u64, looked_at: &LookedAt) -> Result<Decision> {
        let kernel = |source| TraceError::kernel("show attributes", call.tid, source);
        match looked_at {
            LookedAt::Nothing(error) => Ok(Decision::Answer(-i64::from(*error))),
            LookedAt::Open(found) | LookedAt::Held(found) => {
                if matches!(looked_at, LookedAt::Open(_)) {
                    self.ahead.known_ways.tells_of(found.stat);
                }
                let change = |shown: &mut Shown| self.show_held(&found.stat, shown);
                let written = stat::show(call, at, &found.fd, change);
                Ok(Decision::Answer(if written.is_ok() { 0 } else { -i64::from(libc::EFAULT) }))
            }
            LookedAt::Kernel(found) => {
                let mut remote = self.remote_calls(stopped)?;
                let result = remote.call(call.frame.nr as i64, &call.frame.args)?;
                let signals = remote.finish()?;
                self.hold_signals(call.pid, signals);
                if result == 0 {
                    stat::change(call, at, |shown| self.show_held(found, shown)).map_err(kernel)?;
                }
                Ok(Decision::Answer(result))
            }
        }
    }

    /// What a call asks for, if something is held of it, or on the way there.
    fn attributes_looked_at(&mut self, call: &Call) -> Option<LookedAt> {
        let is_concerned = |this: &Self, stat: &Stat| {
            let ahead = &this.ahead;
            let is_gone = ahead.held_names.is_removed_dir((stat.st_dev, stat.st_ino));
            let is_held = ahead.held_names.has_inode(stat) || ahead.attributes.has(stat);
            let is_held = is_held || ahead.contents.has(&(stat.st_dev, stat.st_ino));
            (is_held || ahead.new_files.has(stat)) && !is_gone
        };
        if let Some(fd) = descriptor_looked_at(call) {
            let found = Found::of(self.copy_descriptor(call.tid, fd).ok()?).ok()?;
            return is_concerned(self, &found.stat).then_some(LookedAt::Open(found));
        }
        let (dir, at) = *paths_of(syscall_table::op(call.frame.nr)?).first()?;
        let text = path_text(call, at)?;
        let way = self.walk(call.tid, call.pid, dir_of(call, dir), &text, follows_last_link(call));
        let is_own_program = follows_last_link(call) && self.is_own_program(call, &text, &way);
        if way.through_proc && !is_own_program || !way.is_known() {
            return None;
        }
        if !way.is_held {
            let stat = way.found().map(|found| found.stat)?;
            return is_concerned(self, &stat).then_some(LookedAt::Kernel(stat));
        }
        if !self.is_root_as_we_are(call.pid) {
            return None;
        }
        match way.end {
            End::Entry(Entry { found: Some(found), .. }) | End::File(found) => Some(LookedAt::Held(found)),
            End::Entry(_) => Some(LookedAt::Nothing(libc::ENOENT)),
            End::Nowhere(error) => Some(LookedAt::Nothing(error.raw_os_error())),
            End::Unknown => None,
        }
    }

    /// Whether writes that are held will change its size.
    fn is_size_held(&self, stat: &Stat) -> bool {
        self.ahead.contents.has(&(stat.st_dev, stat.st_ino))
    }

    /// How many names a file has for those inside, or how many links a directory has, if the kernel says so many.
    pub(in crate::ahead) fn links_shown(&self, stat: &Stat, links: u64) -> u64 {
        let inode: Inode = (stat.st_dev, stat.st_ino);
        let kind = FileType::from_raw_mode(stat.st_mode);
        let gained = self.ahead.held_names.links_gained(inode, kind == FileType::Directory);
        // A new link or FIFO has one in its stage, and so has a file for each new name by which it was executed.
        let is_one_there = matches!(kind, FileType::Symlink | FileType::Fifo) && self.ahead.new_files.has(stat);
        let staged = usize::from(is_one_there) + self.ahead.program_names.count(&inode);
        links.saturating_add_signed(gained).saturating_sub(staged as u64)
    }

    pub(in crate::ahead) fn show_held(&self, stat: &Stat, shown: &mut Shown) {
        let inode: Inode = (stat.st_dev, stat.st_ino);
        shown.links = self.links_shown(stat, shown.links);
        let contents = &self.ahead.contents;
        if contents.has(&inode) {
            const BLOCK: u64 = 4096;
            let before = shown.size;
            shown.size = contents.size(&inode, before);
            let grown = shown.size.div_ceil(BLOCK).saturating_sub(before.div_ceil(BLOCK));
            shown.blocks = (shown.blocks + grown * 8).min(shown.size.div_ceil(BLOCK) * 8);
        }
        let names = &self.ahead.held_names;
        let change = names.last_change_in(inode).or(contents.last_change(&inode));
        let attributes = &self.ahead.attributes;
        let later = |time: Timespec, since: Duration| {
            let since = Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) };
            if (time.tv_sec, time.tv_nsec) < (since.tv_sec, since.tv_nsec) {
                since
            } else {
                time
            }
        };
        match change {
            Some(change) => {
                attributes.show(inode, 0..=change.attributes, shown);
                shown.contents = later(shown.contents, change.since);
                shown.changed = later(shown.changed, change.since);
                attributes.show(inode, change.attributes + 1.., shown);
            }
            None => attributes.show(inode, 0.., shown),
        }
        if let Some(since) = names.last_change_of(inode) {
            shown.changed = later(shown.changed, since);
        }
    }
}
