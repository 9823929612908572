//! Directories of which names or attributes are held: what those inside are shown of them is written down, so that who
//! has a permit asks for it without a question
//! ([0262](../../../../../docs/decisions/0262-a-directory-is-told-by-its-agent.md)).
//!
//! The times of a directory and the number of its links change with each name that is held in it. Whatever comes to be
//! held of a directory, or is held no more, strikes out what is known of it, as it does with names
//! ([`known_ways`](crate::ahead::calls::known_ways)).

use crate::ahead::calls::known_ways::{follows_at_end, with_name, Place};
use crate::ahead::filesystems::disk::name_changes::Inode;
use crate::ahead::filesystems::disk::stat::Shown;
use crate::ahead::filesystems::path_walk::{End, Way};
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use agent_abi::{ShownAttributes, ShownDirectory, Time, WayEnd, WayKey, WAYS};
use rustix::fs::{Stat, Timespec};
use std::collections::HashSet;
use std::time::Duration;

/// Directories that somebody inside has looked at.
#[derive(Debug, Default)]
pub(in crate::ahead) struct LookedAt(HashSet<Inode>);

impl LookedAt {
    /// So many at most: of others it is asked each time that something has changed.
    const MAX: usize = 4096;

    /// Nobody was asked about for some time.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    fn add(&mut self, inode: Inode) {
        if self.0.len() < Self::MAX {
            self.0.insert(inode);
        }
    }
}

impl Supervisor {
    /// A call was answered that asks for what a name leads to: a directory, of which something is held. The name is
    /// known from here on, if nothing is held of what it leads by.
    pub(in crate::ahead) fn learn_held_directory(&mut self, call: &Call) {
        let Some(text) = self.text_of_way(call) else { return };
        let follows = follows_at_end(call);
        let way = self.walk(call.tid, call.pid, None, &text, follows);
        let Some(dir) = way.found().filter(|found| found.is_dir() && self.is_held(found.inode())) else { return };
        if !self.goes_by_nothing_held(&way) {
            return;
        }
        let (stat, (dev, ino)) = (dir.stat, dir.inode());
        let start = (!text.starts_with(b"/")).then_some(way.start);
        let key = with_name(WayKey::new(start, follows), &text);
        let places = way.by.into_iter().flat_map(|(dir, name)| [Place::Through(dir), Place::Name(dir, name)]).collect();
        self.ahead.known_ways.learn(&self.segment.world.ways, key, WayEnd::directory(dev, ino), places);
        self.learn_attributes_of(&stat);
    }

    /// A name was made or removed. What is shown of its directory is another now: it is written down at once, if
    /// somebody has looked at it before.
    pub(in crate::ahead) fn learn_directory_again(&mut self, way: &Way) {
        let End::Entry(entry) = &way.end else { return };
        let inode = entry.dir.inode();
        if self.ahead.known_ways.looked_at.0.contains(&inode) && self.segment.world.directories.of(inode).is_none() {
            self.learn_attributes_of(&entry.dir.stat);
        }
    }

    /// What is shown of a directory is known from here on.
    pub(in crate::ahead) fn learn_attributes_of(&mut self, stat: &Stat) {
        let inode = (stat.st_dev, stat.st_ino);
        let Some(shown) = self.shown_directory(stat) else { return };
        self.ahead.known_ways.looked_at.add(inode);
        let slot = WAYS + self.segment.world.directories.learn(inode, shown);
        self.ahead.known_ways.put(slot, vec![Place::End(inode)]);
    }

    /// `None`: it cannot be said for longer than a moment.
    fn shown_directory(&self, stat: &Stat) -> Option<ShownDirectory> {
        let (ahead, inode) = (&self.ahead, (stat.st_dev, stat.st_ino));
        if !self.is_held(inode) || ahead.held_names.is_removed_dir(inode) {
            return None;
        }
        let mut shown = Shown::of(stat);
        self.show_held(stat, &mut shown);
        let links_gained = shown.links as i64 - stat.st_nlink as i64;
        if !ahead.attributes.has_inode(&inode) {
            // Somebody outside may change it meanwhile, if it is not new.
            let names = &ahead.held_names;
            let time = |since: Duration| (since.as_secs() as i64, i64::from(since.subsec_nanos()));
            let contents = names.last_change_in(inode).map_or((0, 0), |change| time(change.since));
            let changed = contents.max(names.last_change_of(inode).map_or((0, 0), time));
            return Some(ShownDirectory { links_gained, contents, changed, attributes: None });
        }
        let attributes = ShownAttributes {
            mode: shown.mode,
            user: shown.user,
            group: shown.group,
            access: ahead.attributes.has_access(&inode).then(|| time(shown.access)),
        };
        ahead.new_files.has(stat).then(|| ShownDirectory {
            links_gained,
            contents: time(shown.contents),
            changed: time(shown.changed),
            attributes: Some(attributes),
        })
    }
}

fn time(time: Timespec) -> Time {
    (time.tv_sec, time.tv_nsec)
}
