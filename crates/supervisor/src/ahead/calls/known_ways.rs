//! Names that lead past everything that is held
//! ([0196](../../../../../docs/decisions/0196-names-past-what-is-held.md)): who has a permit looks them up without a
//! question though something is held.
//!
//! When a call that looks up a name was allowed to be made as it is, the name is followed once more from here, and
//! written down in the world's memory with what it leads to. The directories that it leads through, the names looked up
//! there, and the end are its *places*. Whatever comes to be held tells of its own places: what leads by one is struck
//! out before the next permit is given. Each time that something comes to be held all permits are revoked, so whoever
//! looks on a permit finds only what leads past all that was held when he got it.
//!
//! Somebody outside may make a name lead elsewhere. The agent compares where the name has led to. If that is the same,
//! it has led past all that is held, too: nothing that is held is on the disk and leads on to anything, else no name is
//! known ([`Supervisor::knows_ways`]).

use crate::ahead::calls::known_directories::LookedAt;
use crate::ahead::filesystems::disk::name_changes::Inode;
use crate::ahead::filesystems::disk::names::{dir_of, follows_last_link, path_text, paths_of};
use crate::ahead::filesystems::path_walk::{End, Entry, Missing, Way};
use crate::ahead::Call;
use crate::event_loop::Supervisor;
use agent_abi::{WayEnd, WayKey, Ways, World, WAYS, WAY_LEN_MAX};
use procfs::{MagicLink, ProcessId};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use syscall_table::nr;

/// What a name leads by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::ahead) enum Place {
    /// A name that is looked up in a directory.
    Name(Inode, Vec<u8>),
    /// A directory in which a name is looked up.
    Through(Inode),
    End(Inode),
}

/// Places at which something has come to be held since they were taken last.
#[derive(Debug, Default)]
pub(in crate::ahead) struct News(Vec<Place>);

impl News {
    /// Of a file or directory itself.
    pub fn of_file(&mut self, inode: Inode) {
        self.0.push(Place::End(inode));
    }

    /// Of a directory, for whoever looks up names in it.
    pub fn of_dir(&mut self, inode: Inode) {
        self.0.push(Place::Through(inode));
    }

    pub fn of_name(&mut self, dir: Inode, name: &[u8]) {
        self.0.push(Place::Name(dir, name.to_vec()));
    }

    fn take(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.0)
    }
}

/// Which names are written down, by their slots, and behind these which directories
/// ([`known_directories`](crate::ahead::calls::known_directories)).
#[derive(Debug, Default)]
pub(in crate::ahead) struct KnownWays {
    places: HashMap<usize, Vec<Place>>,
    by_place: HashMap<Place, HashSet<usize>>,
    /// Processes whose root and mounts are ours.
    rooted: HashSet<ProcessId>,
    /// Some process may get other ones.
    roots_differ: bool,
    /// Whether a directory's times tell of each change, by the device.
    keeps_times: HashMap<u64, bool>,
    /// Something was held when a permit was given last.
    is_anything_held: bool,
    /// What the kernel says of the file of which the call that is being decided gets a descriptor, or asks by one.
    told_of: Option<Stat>,
    pub(super) looked_at: LookedAt,
}

impl KnownWays {
    /// A process was born in the namespaces of its parent.
    pub fn born(&mut self, parent: ProcessId, child: ProcessId) {
        if self.rooted.contains(&parent) {
            self.rooted.insert(child);
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, pid: ProcessId) {
        self.rooted.remove(&pid);
    }

    /// Nobody was asked about for some time.
    pub fn begin(&mut self) {
        self.rooted.clear();
        self.keeps_times.clear();
        self.looked_at.forget();
    }

    /// The call that is being decided gets a descriptor of this file, or asks for its attributes by one.
    pub fn tells_of(&mut self, file: Stat) {
        self.told_of = Some(file);
    }

    /// Another call is being decided.
    pub fn tells_of_nothing(&mut self) {
        self.told_of = None;
    }

    /// The file that the call which is being decided gets a descriptor of, or asks about by one.
    pub fn told_of(&self) -> Option<Stat> {
        self.told_of
    }

    /// Some process is about to get another root, or other mounts.
    pub fn roots_may_differ(&mut self) {
        self.roots_differ = true;
    }

    pub(super) fn learn(&mut self, ways: &Ways, key: WayKey, end: WayEnd, places: Vec<Place>) {
        let slot = ways.learn(key, end);
        self.put(slot, places);
    }

    /// What stands in this slot is true as long as nothing comes to be held at these places, or is held no more.
    pub(super) fn put(&mut self, slot: usize, places: Vec<Place>) {
        self.strike_out(slot);
        for place in &places {
            self.by_place.entry(place.clone()).or_default().insert(slot);
        }
        self.places.insert(slot, places);
    }

    fn strike_out(&mut self, slot: usize) {
        for place in self.places.remove(&slot).unwrap_or_default() {
            if let Some(slots) = self.by_place.get_mut(&place) {
                slots.remove(&slot);
                if slots.is_empty() {
                    self.by_place.remove(&place);
                }
            }
        }
    }

    fn forget_place(&mut self, world: &World, place: &Place) {
        for slot in self.by_place.get(place).cloned().unwrap_or_default() {
            forget_slot(world, slot);
            self.strike_out(slot);
        }
    }

    fn forget_all(&mut self, world: &World) {
        self.by_place.clear();
        self.places.drain().for_each(|(slot, _)| forget_slot(world, slot));
    }

    /// Where the kernel keeps the directories alone.
    fn keeps_times(&mut self, dev: u64) -> bool {
        *self.keeps_times.entry(dev).or_insert_with(|| {
            let mount = procfs::mountinfo::of_device(dev).ok().flatten();
            mount.is_some_and(|mount| matches!(&mount.fs_type[..], "ext4" | "tmpfs" | "xfs"))
        })
    }
}

impl Place {
    /// Something is held here: whoever looks at it asks, until nothing is held. A name concerns its directory, too.
    fn note(&self, ways: &Ways) {
        let (Self::Name(inode, _) | Self::Through(inode) | Self::End(inode)) = *self;
        ways.note_held(WayEnd::file(inode.0, inode.1));
        if let Self::Name(dir, name) = self {
            ways.note_held_name(with_name(WayKey::new(Some(*dir), false), name));
        }
    }
}

impl Supervisor {
    /// Whether something is held that a look at it would have to be answered from.
    pub(in crate::ahead) fn is_anything_held(&self) -> bool {
        let ahead = &self.ahead;
        !ahead.contents.is_empty()
            || !ahead.held_names.is_empty()
            || !ahead.attributes.is_empty()
            || !ahead.new_files.is_empty()
            || !ahead.mirrors.is_empty()
    }

    /// Whether something is held of a file or directory, or in it.
    pub(in crate::ahead) fn is_held(&self, inode: Inode) -> bool {
        let ahead = &self.ahead;
        ahead.contents.has(&inode)
            || ahead.held_names.concerns(&inode)
            || ahead.attributes.has_inode(&inode)
            || ahead.new_files.has_inode(&inode)
            || ahead.mirrors.has_of(inode)
    }

    /// Whether any name can be known: nothing that is held leads on to more on the disk. Else somebody outside could
    /// make a name lead by it to the same end as before.
    pub(super) fn knows_ways(&self) -> bool {
        !self.ahead.held_names.has_any_that_leads_on() && !self.ahead.attributes.has_any_that_leads_on()
    }

    /// A permit is about to be given: what leads by something that is held by now is not known any more.
    pub(in crate::ahead) fn forget_ways(&mut self) {
        let knows_ways = self.knows_ways();
        let world = self.segment.world;
        let ways = &world.ways;
        let ahead = &mut self.ahead;
        let news = [
            ahead.held_names.news.take(),
            ahead.contents.news.take(),
            ahead.attributes.news.take(),
            ahead.mirrors.news.take(),
        ];
        match knows_ways {
            true => news.iter().flatten().for_each(|place| ahead.known_ways.forget_place(world, place)),
            false => ahead.known_ways.forget_all(world),
        }
        news.iter().flatten().for_each(|place| place.note(ways));
        let is_anything_held = self.is_anything_held();
        let was_anything_held = std::mem::replace(&mut self.ahead.known_ways.is_anything_held, is_anything_held);
        let ways = &self.segment.world.ways;
        if was_anything_held && !is_anything_held {
            // First: who has looked while something was held finds that his permit holds no more, and asks.
            self.segment.world.permits.revoke();
            ways.nothing_is_held();
        }
        ways.set_needed(is_anything_held);
    }

    /// Whether a process finds under a name what we find.
    pub(in crate::ahead) fn has_our_root(&mut self, pid: ProcessId) -> bool {
        if self.ahead.known_ways.roots_differ {
            return false;
        }
        if self.ahead.known_ways.rooted.contains(&pid) {
            return true;
        }
        let is_same = |what: MagicLink| {
            let of = |pid: ProcessId| what.metadata(pid).ok().map(|found| (found.dev(), found.ino()));
            let own = of(ProcessId::own());
            own.is_some() && own == of(pid)
        };
        let is_ours = is_same(MagicLink::Root) && is_same(MagicLink::Namespace("mnt"));
        if is_ours {
            self.ahead.known_ways.rooted.insert(pid);
        }
        is_ours
    }

    /// A call that looks up a name was allowed: the name is known from here on, if it leads past all that is held.
    pub(in crate::ahead) fn learn_way(&mut self, call: &Call) {
        let Some(text) = self.text_of_way(call) else { return };
        let follows = follows_at_end(call);
        // Before any of the directories is looked at.
        let Some(since) = self.ahead.walks.since() else { return };
        let way = self.walk(call.tid, call.pid, None, &text, follows);
        let start = (!text.starts_with(b"/")).then_some(way.start);
        self.learn_directory_of(call, start, &text);
        let Some(end) = self.end_past_what_is_held(&way, &text, since) else { return };
        let key = with_name(WayKey::new(start, follows), &text);
        let mut places: Vec<Place> = way.found().map(|found| Place::End(found.inode())).into_iter().collect();
        for (dir, name) in way.by {
            places.extend([Place::Through(dir), Place::Name(dir, name)]);
        }
        self.ahead.known_ways.learn(&self.segment.world.ways, key, end, places);
    }

    /// The name that a call looks up, if it may be known.
    pub(super) fn text_of_way(&self, call: &Call) -> Option<Vec<u8>> {
        if !self.is_anything_held() || !self.knows_ways() || self.are_names_changing() {
            return None;
        }
        let &(dir, at) = syscall_table::op(call.frame.nr).map(paths_of)?.first()?;
        let text = path_text(call, at).filter(|text| (1..=WAY_LEN_MAX).contains(&text.len()))?;
        (text.starts_with(b"/") || dir_of(call, dir).is_none()).then_some(text)
    }

    /// A call that looks up a name was answered from what is held. Of other names in the directory nothing may be held.
    pub(in crate::ahead) fn learn_directory(&mut self, call: &Call) {
        let Some(text) = self.text_of_way(call) else { return };
        let here = || MagicLink::Cwd.metadata(call.tid).map(|found| (found.dev(), found.ino()));
        let start = match text.starts_with(b"/") {
            true => None,
            false => match here() {
                Ok(here) => Some(here),
                Err(_) => return,
            },
        };
        self.learn_directory_of(call, start, &text);
    }

    /// The directory in which a name stands is known from here on, if nothing is held on the way there
    /// ([0245](../../../../../docs/decisions/0245-a-directory-is-known.md)): all names in it of which nothing is held
    /// lead past what is held of names.
    fn learn_directory_of(&mut self, call: &Call, start: Option<Inode>, text: &[u8]) {
        let slash = text.iter().rposition(|&byte| byte == b'/');
        let dir = &text[..slash.unwrap_or(0)];
        let key = with_name(WayKey::within(start), dir);
        if self.segment.world.ways.end_of(key).is_some() {
            return;
        }
        let named = match (slash, dir) {
            (None, _) => b".",
            (Some(_), b"") => b"/",
            (Some(_), dir) => dir,
        };
        let way = self.walk(call.tid, call.pid, None, named, true);
        let Some(found) = way.found().filter(|found| found.is_dir() && self.goes_by_nothing_held(&way)) else { return };
        let inode = found.inode();
        if self.ahead.attributes.lets_all_search(inode) == Some(false) {
            return;
        }
        let mut places = vec![Place::Through(inode)];
        for (dir, name) in way.by {
            places.extend([Place::Through(dir), Place::Name(dir, name)]);
        }
        self.ahead.known_ways.learn(&self.segment.world.ways, key, WayEnd::file(inode.0, inode.1), places);
    }

    /// A call was answered that looks up a name, or has changed one, and the name is held: what it leads to for those
    /// inside is known from here on, if that is a new file of which nothing but names is held, a new directory, or
    /// nothing ([0257](../../../../../docs/decisions/0257-new-files-are-found-by-their-agent.md)).
    pub(in crate::ahead) fn learn_held(&mut self, call: &Call) {
        let Some(text) = self.text_of_way(call).filter(|text| !ends_with_directory(text)) else { return };
        let way = self.walk(call.tid, call.pid, None, &text, follows_at_end(call));
        self.learn_directory_again(&way);
        let Some((length, dir)) = self.beginning_of_held(&way, &text) else { return };
        let mut places = Vec::new();
        let end = match &way.end {
            End::Entry(Entry { found: Some(found), .. }) if self.is_plainly_new(&found.stat) || found.is_dir() => {
                let Some(file) = self.ahead.new_files.file_of(&found.stat) else { return };
                let (descriptor, inode) = (file.as_raw_fd() as u32, found.inode());
                match found.is_dir() {
                    // It stays there, whatever becomes of the names in it.
                    true => self.learn_attributes_of(&found.stat),
                    false => {
                        places.push(Place::End(inode));
                        self.learn_links_of(&found.stat);
                    }
                }
                WayEnd::held(length, dir, Some((descriptor, inode)))
            }
            End::Entry(Entry { found: None, .. }) | End::Nowhere(Errno::NOENT) => WayEnd::held(length, dir, None),
            _ => return,
        };
        for (dir, name) in &way.by {
            places.extend([Place::Through(*dir), Place::Name(*dir, name.clone())]);
        }
        // There is no link at the end.
        let start = (!text.starts_with(b"/")).then_some(way.start);
        for follows in [false, true] {
            let key = with_name(WayKey::new(start, follows), &text);
            self.ahead.known_ways.learn(&self.segment.world.ways, key, end, places.clone());
        }
    }

    /// How many bytes of a name lead to the directory on the disk in which the first name stands that is held, and that
    /// directory. `None`: not all that comes behind is new, or everybody's to look at.
    fn beginning_of_held(&self, way: &Way, text: &[u8]) -> Option<(usize, Inode)> {
        let (index, from) = way.held_from.as_ref()?;
        if !way.is_view() || way.ends_with_link || self.goes_by_rights_taken(way) {
            return None;
        }
        let held = way.by.get(*index..)?;
        let own: Vec<&[u8]> = text.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
        let own = own.get(own.len().checked_sub(from.behind + 1)?..)?;
        let mut names = held.iter().zip(own);
        // No link was followed there.
        let is_straight = held.len() <= own.len() && names.all(|((_, name), own)| name == own && name != b"..");
        let is_all_new = is_straight && held.iter().skip(1).all(|(dir, _)| self.is_new_and_open(*dir));
        let length = length_up_to(text, from.behind).filter(|_| is_all_new)?;
        Some((length, (from.dir.st_dev, from.dir.st_ino)))
    }

    /// The call that was decided has given its process a descriptor of a file, or has told it of one by its
    /// descriptor. If a guess has made the file, and nothing but its names is held, the number of its names is written
    /// down: the kernel knows everything else
    /// ([0255](../../../../../docs/decisions/0255-a-new-file-is-told-by-its-agent.md)).
    pub(in crate::ahead) fn learn_links(&mut self) {
        let Some(stat) = self.ahead.known_ways.told_of.take() else { return };
        if !self.knows_ways() || self.are_names_changing() {
            return;
        }
        if self.is_plainly_new(&stat) {
            self.learn_links_of(&stat);
        } else if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.learn_attributes_of(&stat);
        }
    }

    /// Whether a file is one that a guess has made, of which nothing but names is held.
    pub(in crate::ahead) fn is_plainly_new(&self, stat: &Stat) -> bool {
        let (inode, ahead) = ((stat.st_dev, stat.st_ino), &self.ahead);
        let is_new = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && ahead.new_files.has(stat);
        is_new && !ahead.contents.has(&inode) && !ahead.attributes.has_inode(&inode) && !ahead.mirrors.has_of(inode)
    }

    fn learn_links_of(&mut self, stat: &Stat) {
        let inode = (stat.st_dev, stat.st_ino);
        // That a name was given to it or taken away changes it, and the kernel does not know of that.
        let last = self.ahead.held_names.last_change_of(inode);
        if last.is_some_and(|last| last > Duration::new(stat.st_ctime as u64, stat.st_ctime_nsec as u32)) {
            return;
        }
        let links = WayEnd::links(self.links_shown(stat, stat.st_nlink));
        let (key, places) = (WayKey::links_of(inode.0, inode.1), vec![Place::End(inode)]);
        self.ahead.known_ways.learn(&self.segment.world.ways, key, links, places);
    }

    /// Whether nothing is held of what a name leads by, up to its end.
    pub(super) fn goes_by_nothing_held(&self, way: &Way) -> bool {
        !way.is_held && !way.is_open && !way.through_proc && !self.goes_by_rights_taken(way)
    }

    /// Whether a name leads through a directory in which, as is held, not everybody may look up names.
    fn goes_by_rights_taken(&self, way: &Way) -> bool {
        way.by.iter().any(|(dir, _)| self.ahead.attributes.lets_all_search(*dir) == Some(false))
    }

    /// Whether this is a new directory in which everybody may look up names.
    fn is_new_and_open(&self, dir: Inode) -> bool {
        let attributes = &self.ahead.attributes;
        self.ahead.new_files.has_inode(&dir)
            && attributes.lets_all_search(dir).unwrap_or_else(|| self.ahead.new_files.lets_all_search(dir))
    }

    /// What a name leads to, if it leads past everything that is held.
    fn end_past_what_is_held(&mut self, way: &Way, text: &[u8], now: Duration) -> Option<WayEnd> {
        if !self.goes_by_nothing_held(way) {
            return None;
        }
        match (way.found(), &way.missing) {
            (Some(found), _) => {
                (!self.is_held(found.inode())).then(|| WayEnd::file(found.stat.st_dev, found.stat.st_ino))
            }
            (None, Some(missing)) => self.end_before(missing, text, now),
            (None, None) => None,
        }
    }

    /// The directory where a name is missing, if each change of it after this time shows.
    fn end_before(&mut self, missing: &Missing, text: &[u8], now: Duration) -> Option<WayEnd> {
        let dir = &missing.dir;
        let changed = Duration::new(u64::try_from(dir.st_ctime).ok()?, u32::try_from(dir.st_ctime_nsec).ok()?);
        if !shows_changes_since(changed, now) || !self.ahead.known_ways.keeps_times(dir.st_dev) {
            return None;
        }
        let length = length_up_to(text, missing.behind)?;
        let time = (dir.st_ctime, dir.st_ctime_nsec as i64);
        Some(WayEnd::missing(length, dir.st_dev, dir.st_ino, time))
    }
}

fn forget_slot(world: &World, slot: usize) {
    match slot.checked_sub(WAYS) {
        Some(directory) => world.directories.forget(directory),
        None => world.ways.forget(slot),
    }
}

pub(super) fn with_name(mut key: WayKey, name: &[u8]) -> WayKey {
    name.iter().for_each(|&byte| key.add(byte));
    key
}

/// Whether the last part of a name can be a directory's only.
fn ends_with_directory(text: &[u8]) -> bool {
    matches!(text.rsplit(|&byte| byte == b'/').next(), None | Some(b"" | b"." | b".."))
}

/// Whether a directory that was changed last at one time gets another one by each change after the other. The kernel's
/// clock goes by ticks, and some file systems keep only seconds.
fn shows_changes_since(changed: Duration, now: Duration) -> bool {
    let reached = if changed.subsec_nanos() == 0 { Duration::from_secs(now.as_secs()) } else { now };
    reached > changed
}

/// How many bytes stand before the name that has so many names behind it.
fn length_up_to(text: &[u8], behind: usize) -> Option<usize> {
    let mut at = 0;
    let mut beginnings = Vec::new();
    for name in text.split(|&byte| byte == b'/') {
        if !matches!(name, b"" | b".") {
            beginnings.push(at);
        }
        at += name.len() + 1;
    }
    beginnings.iter().rev().nth(behind).copied()
}

/// Whether a call that only looks follows a link at the end of its name.
pub(super) fn follows_at_end(call: &Call) -> bool {
    const O_NOFOLLOW: u64 = 0o400000;
    const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
    let args = &call.frame.args;
    match call.frame.nr {
        nr::readlink | nr::readlinkat => false,
        nr::open => args[1] & O_NOFOLLOW == 0,
        nr::openat => args[2] & O_NOFOLLOW == 0,
        nr::faccessat2 => args[3] & AT_SYMLINK_NOFOLLOW == 0,
        _ => follows_last_link(call),
    }
}

#[cfg(test)]
mod tests {
    use super::{length_up_to, shows_changes_since};
    use std::time::Duration;

    #[test]
    fn a_directory_shows_changes_once_its_time_has_passed() {
        let check = |changed: (u64, u32), now: (u64, u32)| {
            shows_changes_since(Duration::new(changed.0, changed.1), Duration::new(now.0, now.1))
        };
        assert!(!check((5, 7), (5, 7)) && !check((5, 7), (4, 9)) && check((5, 7), (5, 8)));
        // Perhaps only seconds are kept.
        assert!(!check((5, 0), (5, 999_999_999)) && check((5, 0), (6, 0)));
    }

    #[test]
    fn a_missing_name_is_found_in_its_path() {
        let check =
            |text: &str, behind, expected| assert_eq!(length_up_to(text.as_bytes(), behind), expected, "{text}");
        check("a", 0, Some(0));
        check("/a", 0, Some(1));
        check("a/./b//c/", 0, Some(7));
        check("a/./b//c/", 1, Some(4));
        check("/usr/../lib/x", 3, Some(1));
        check("/", 0, None);
    }
}
