//! Changes of names on disks that are held, and what they make of each name for those inside.

use crate::ahead::calls::known_ways::News;
use crate::ahead::filesystems::disk::name_index::{Meanings, NameIndex, NameKey};
use crate::ahead::filesystems::disk::stages::Staged;
use crate::ahead::filesystems::disk::staging;
use crate::ahead::filesystems::path_walk::{Entry, Found};
use rustix::fs::{AtFlags, RenameFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::Hash;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Device and inode.
pub(in crate::ahead) type Inode = (u64, u64);

/// A file or directory.
#[derive(Clone, Debug)]
pub(in crate::ahead) struct Target {
    pub inode: Inode,
    pub is_dir: bool,
    /// Names can lead through it: a directory or a link.
    pub leads_on: bool,
    /// It names the file, and does not open it.
    pub fd: Arc<OwnedFd>,
}

impl Target {
    pub fn of(found: Found) -> Self {
        let leads_on = found.is_dir() || found.is_symlink();
        Self { inode: found.inode(), is_dir: found.is_dir(), leads_on, fd: found.fd }
    }

    /// Where the disk says that it is.
    pub fn path(&self) -> PathBuf {
        procfs::own_name(&self.fd).unwrap_or_default()
    }

    /// Take another one's descriptor, which leads to the same by the same way: we hold one of each then.
    fn share(&mut self, held: &HashMap<Inode, (Target, usize)>) {
        let Some((same, _)) = held.get(&self.inode) else { return };
        let mount = |fd: &OwnedFd| {
            let found = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
            found.ok().map(|found| found.stx_mnt_id)
        };
        if mount(&same.fd).is_some_and(|known| mount(&self.fd) == Some(known)) {
            self.fd = same.fd.clone();
        }
    }

    fn found(&self) -> Option<Found> {
        let stat = rustix::fs::fstat(&self.fd).ok()?;
        Some(Found { fd: self.fd.clone(), stat })
    }
}

/// A name on a disk.
#[derive(Debug)]
pub(crate) struct DiskName {
    pub(in crate::ahead) dir: Target,
    pub(in crate::ahead) name: OsString,
    /// What it is the name of.
    pub(in crate::ahead) file: Option<Target>,
}

impl DiskName {
    pub(in crate::ahead) fn of(entry: Entry) -> Self {
        Self { dir: Target::of(entry.dir), name: entry.name, file: entry.found.map(Target::of) }
    }

    /// Of something that is made, or gets a further name.
    pub(in crate::ahead) fn of_new(entry: Entry, file: Target) -> Self {
        Self { file: Some(file), ..Self::of(entry) }
    }

    /// Where it is, for the user.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    pub fn inode(&self) -> Option<Inode> {
        self.file.as_ref().map(|file| file.inode)
    }

    fn is_as_it_was(&self) -> bool {
        let found = rustix::fs::statat(&self.dir.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|stat| (stat.st_dev, stat.st_ino)) == self.inode()
    }
}

/// A change of names that is not made yet.
#[derive(Debug)]
pub(crate) enum NameChange {
    /// A file that has none gets this name.
    Create { name: DiskName, file: Arc<OwnedFd> },
    /// A directory, link or FIFO that is in a stage gets this name.
    Place { name: DiskName, staged: Staged },
    /// A file that has a name, or will have one by then, gets another one.
    Link { name: DiskName, file: Arc<OwnedFd> },
    /// The name is removed.
    Remove(DiskName),
    /// The first one's file gets the second one instead; not if there is a file of that name, if it `keeps` that.
    Rename { from: DiskName, to: DiskName, keeps: bool },
}

impl NameChange {
    pub fn names(&self) -> Vec<&DiskName> {
        match self {
            Self::Create { name, .. } | Self::Place { name, .. } | Self::Link { name, .. } | Self::Remove(name) => {
                vec![name]
            }
            Self::Rename { from, to, .. } => vec![from, to],
        }
    }

    fn names_mut(&mut self) -> Vec<&mut DiskName> {
        match self {
            Self::Create { name, .. } | Self::Place { name, .. } | Self::Link { name, .. } | Self::Remove(name) => {
                vec![name]
            }
            Self::Rename { from, to, .. } => vec![from, to],
        }
    }

    /// What it makes of each name, and what that was before.
    fn meanings(&self) -> Vec<(&DiskName, Option<&Target>, Option<&Target>)> {
        match self {
            Self::Create { name, .. } | Self::Place { name, .. } | Self::Link { name, .. } => {
                vec![(name, name.file.as_ref(), None)]
            }
            Self::Remove(name) => vec![(name, None, name.file.as_ref())],
            Self::Rename { from, to, .. } => {
                vec![(from, None, from.file.as_ref()), (to, from.file.as_ref(), to.file.as_ref())]
            }
        }
    }

    /// The files and directories that were there and gain or lose a name: this changes them, too.
    fn changed(&self) -> impl Iterator<Item = Inode> + '_ {
        let names = match self {
            Self::Create { .. } | Self::Place { .. } => Vec::new(),
            Self::Link { .. } | Self::Remove(_) | Self::Rename { .. } => self.names(),
        };
        names.into_iter().filter_map(DiskName::inode)
    }

    /// What it makes, if it makes something.
    pub fn made(&self) -> Option<Inode> {
        match self {
            Self::Create { name, .. } | Self::Place { name, .. } => name.inode(),
            Self::Link { .. } | Self::Remove(_) | Self::Rename { .. } => None,
        }
    }

    /// Make it. What somebody outside did with the name meanwhile came after. `program`: what the kernel knows the file
    /// by, if it was executed by this name.
    pub fn make(&self, program: Option<&Staged>) -> rustix::io::Result<()> {
        match self {
            Self::Create { name, .. } | Self::Link { name, .. } if program.is_some() => {
                match program.map(|program| program.place(&name.dir.fd, &name.name)) {
                    // The stage is reached through another mount.
                    Some(Err(Errno::XDEV)) => self.make(None),
                    Some(placed) => placed,
                    None => Ok(()),
                }
            }
            Self::Create { name, file } => staging::give_name(file, &name.dir.fd, &name.name),
            Self::Place { name, staged } => staged.place(&name.dir.fd, &name.name),
            Self::Link { name, file } => rustix::fs::linkat(file, "", &name.dir.fd, &name.name, AtFlags::EMPTY_PATH),
            Self::Remove(name) if name.is_as_it_was() => {
                let is_dir = name.file.as_ref().is_some_and(|file| file.is_dir);
                let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(&name.dir.fd, &name.name, flags)
            }
            Self::Remove(_) => Ok(()),
            Self::Rename { from, .. } if !from.is_as_it_was() => Err(Errno::STALE),
            Self::Rename { from, to, keeps } => {
                let flags = if *keeps { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
                rustix::fs::renameat_with(&from.dir.fd, &from.name, &to.dir.fd, &to.name, flags)
            }
        }
    }
}

/// A change that is held, by the number that it has here.
#[derive(Debug)]
pub(crate) struct HeldChange {
    pub(in crate::ahead) number: u64,
    pub change: NameChange,
}

/// What a change, by its number, makes of a name: that of a file, or of nothing.
type Meaning = (u64, Option<Inode>);

/// A name of which changes are held.
#[derive(Debug, Default)]
struct HeldName {
    /// What the disk says.
    disk: Option<Inode>,
    /// That leads on to more.
    leads_on: bool,
    /// What each change makes of it, the oldest first.
    steps: Vec<Meaning>,
}

impl HeldName {
    fn meaning(&self) -> Option<Inode> {
        self.steps.last().and_then(|&(_, meaning)| meaning)
    }

    fn meanings(&self) -> Meanings<'_> {
        Meanings { now: self.meaning(), disk: self.disk, steps: &self.steps }
    }
}

/// The directory of names that are held: its changes, by their numbers.
type HeldDir = BTreeMap<u64, DirChange>;

/// How many links directories gain by the directories in them (`..`), if all that is held is made.
#[derive(Debug, Default)]
struct Links {
    gained: HashMap<Inode, i64>,
    /// What is a directory, of all that is held.
    directories: HashSet<Inode>,
}

impl Links {
    /// An inode may have been something else before.
    fn note_kinds(&mut self, change: &NameChange) {
        for target in targets_of(change) {
            match target.is_dir {
                true => self.directories.insert(target.inode),
                false => self.directories.remove(&target.inode),
            };
        }
    }

    /// What a name in a directory adds counts so many times.
    fn count(&mut self, dir: Inode, name: &HeldName, times: i64) {
        let is_dir = |meaning: Option<Inode>| meaning.is_some_and(|inode| self.directories.contains(&inode));
        let gain = i64::from(is_dir(name.meaning())) - i64::from(is_dir(name.disk));
        if gain != 0 {
            let gained = self.gained.entry(dir).or_default();
            *gained += gain * times;
            if *gained == 0 {
                self.gained.remove(&dir);
            }
        }
    }
}

/// When a directory got its last name, or lost one.
#[derive(Clone, Copy, Debug)]
pub(in crate::ahead) struct DirChange {
    pub since: Duration,
    /// Changes of attributes up to this number came before.
    pub attributes: u64,
}

/// Names and files that are not what the world should see of them.
#[derive(Debug, Default)]
pub(in crate::ahead) struct HeldNames {
    names: HashMap<NameKey, HeldName>,
    /// Which of them mean what.
    index: NameIndex,
    next_number: u64,
    /// What has such a name, or had one, or is made: how many names of each.
    targets: HashMap<Inode, (Target, usize)>,
    dirs: HashMap<Inode, HeldDir>,
    /// When each change was asked for that gave a name to a file or directory which was there, or took one away.
    times: HashMap<Inode, BTreeMap<u64, Duration>>,
    links: Links,
    /// How many names lead on to more on the disk.
    leading_on: usize,
    pub news: News,
}

impl HeldNames {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a name of which a change is held leads on to more on the disk.
    pub fn has_any_that_leads_on(&self) -> bool {
        self.leading_on > 0
    }

    /// Whether so many of our descriptors are held (each file and directory takes one, and perhaps one for what it is
    /// made of), or so many changes, that no more should be.
    pub fn is_full(&self) -> bool {
        const CHANGES_MAX: usize = 1 << 16;
        let changes: usize = self.dirs.values().map(HeldDir::len).sum();
        changes >= CHANGES_MAX || crate::sys::are_many_descriptors_held()
    }

    /// How much room the changes take on their disks, at most: a block of the directory each, and one of its index.
    pub fn room_needed(&self) -> u64 {
        const BLOCKS: u64 = 2 * 4096;
        self.names.len() as u64 * BLOCKS
    }

    fn held(&self, dir: Inode, name: &[u8]) -> Option<&HeldName> {
        if self.is_empty() {
            return None;
        }
        self.names.get(&(dir, OsStr::from_bytes(name).to_owned()))
    }

    /// What a name will mean: some file, or nothing. `None` if it means what the disk says.
    pub fn meaning(&self, dir: Inode, name: &[u8]) -> Option<Option<Inode>> {
        self.held(dir, name).map(HeldName::meaning)
    }

    /// The same, with all that is known of the file.
    pub fn target_named(&self, dir: Inode, name: &[u8]) -> Option<Option<&Target>> {
        let Some(inode) = self.meaning(dir, name)? else { return Some(None) };
        self.targets.get(&inode).map(|(target, _)| Some(target))
    }

    /// What those inside find under a name: a file, or nothing. The outer `None`: what the disk says; the inner one: it
    /// cannot be told.
    pub fn view(&self, dir: Inode, name: &[u8]) -> Option<Option<Option<Found>>> {
        let Some(inode) = self.meaning(dir, name)? else { return Some(Some(None)) };
        Some(self.targets.get(&inode).and_then(|(target, _)| target.found()).map(Some))
    }

    /// Where a directory that is made or moved will be: the directory above, and its name there. `None`: where the disk
    /// says.
    pub fn parent(&self, inode: Inode) -> Option<(Arc<OwnedFd>, &OsStr)> {
        self.targets.get(&inode).filter(|(target, _)| target.is_dir)?;
        let (dir, name) = self.index.names_of(inode).next()?;
        let (target, _) = self.targets.get(dir)?;
        Some((target.fd.clone(), name))
    }

    /// The one name that a file will have, if there is one: its directory, and the name there.
    pub fn only_name(&self, inode: Inode) -> Option<(Arc<OwnedFd>, &OsStr)> {
        let mut names = self.index.names_of(inode);
        let (dir, name) = names.next().filter(|_| names.next().is_none())?;
        Some((self.targets.get(dir)?.0.fd.clone(), name))
    }

    /// The change that gives a file the name which this one is now, or was before the file was renamed: it makes the
    /// file, or links it. `None`: the name was given before, or is none.
    pub fn giver(&self, dir: Inode, name: &OsStr) -> Option<u64> {
        let (mut key, mut before) = ((dir, name.to_owned()), u64::MAX);
        loop {
            let steps = &self.names.get(&key)?.steps;
            let &(number, meaning) = steps.iter().rev().find(|(step, _)| *step < before)?;
            meaning?;
            // The change that takes a name away in the same step is a rename.
            let mut others = self.names.iter().filter(|(other, _)| **other != key);
            match others.find(|(_, held)| held.steps.contains(&(number, None))) {
                None => return Some(number),
                Some((from, _)) => (key, before) = (from.clone(), number),
            }
        }
    }

    /// The name of a file that such a change gives, as it is now: its directory, and the name there.
    pub fn name_given(&self, inode: Inode, giver: u64) -> Option<(Arc<OwnedFd>, &OsStr)> {
        let mut names = self.index.names_of(inode);
        let (dir, name) = names.find(|(dir, name)| self.giver(*dir, name) == Some(giver))?;
        Some((self.targets.get(dir)?.0.fd.clone(), name))
    }

    /// Whether a directory has no name any more for those inside.
    pub fn is_removed_dir(&self, inode: Inode) -> bool {
        let is_dir = self.targets.get(&inode).is_some_and(|(target, _)| target.is_dir);
        is_dir && self.index.is_concerned(inode) && self.index.names_of(inode).next().is_none()
    }

    pub fn has_names_in(&self, dir: Inode) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// Names in a directory that will be those of files, each with the number of the change that gives it.
    pub fn added_in(&self, dir: Inode) -> impl Iterator<Item = (&OsString, u64, &Target)> {
        self.index.names_in(dir).filter_map(move |name| {
            let &(number, meaning) = self.names.get(&(dir, name.clone()))?.steps.last()?;
            Some((name, number, &self.targets.get(&meaning?)?.0))
        })
    }

    /// How many names a file will have, beyond those that the disk says; of a directory, how many directories in it.
    pub fn links_gained(&self, inode: Inode, is_dir: bool) -> i64 {
        match is_dir {
            true => self.links.gained.get(&inode).copied().unwrap_or(0),
            false => self.index.gained(inode),
        }
    }

    pub fn last_change_in(&self, dir: Inode) -> Option<DirChange> {
        self.dirs.get(&dir).and_then(|dir| dir.last_key_value()).map(|(_, &change)| change)
    }

    /// When something got its last name, or lost one.
    pub fn last_change_of(&self, inode: Inode) -> Option<Duration> {
        self.times.get(&inode).and_then(|times| times.last_key_value()).map(|(_, &since)| since)
    }

    /// Whether names are held of this, or in this.
    pub fn has_inode(&self, stat: &Stat) -> bool {
        self.concerns(&(stat.st_dev, stat.st_ino))
    }

    pub fn concerns(&self, inode: &Inode) -> bool {
        self.targets.contains_key(inode)
    }

    /// Whether a directory is not where the disk says.
    pub fn moves_directories(&self) -> bool {
        self.moved_dirs().next().is_some()
    }

    /// Directories that are not where the disk says.
    pub fn moved_dirs(&self) -> impl Iterator<Item = &Target> {
        let targets = self.index.meant().filter_map(|inode| self.targets.get(&inode));
        targets.map(|(target, _)| target).filter(|target| target.is_dir)
    }

    /// `attributes`: how many changes of attributes were held before.
    pub fn add(&mut self, mut change: NameChange, attributes: u64) -> HeldChange {
        for name in change.names_mut() {
            let files = [Some(&mut name.dir), name.file.as_mut()];
            files.into_iter().flatten().for_each(|target| target.share(&self.targets));
        }
        self.next_number += 1;
        let number = self.next_number;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.links.note_kinds(&change);
        for (name, meaning, before) in change.meanings() {
            let leads_on = before.is_some_and(|target| target.leads_on);
            let key = (name.dir.inode, name.name.clone());
            let held = match self.names.entry(key.clone()) {
                MapEntry::Occupied(held) => {
                    let held = held.into_mut();
                    self.index.take_out(&key, held.meanings());
                    self.links.count(key.0, held, -1);
                    held
                }
                MapEntry::Vacant(place) => {
                    self.leading_on += usize::from(leads_on);
                    place.insert(HeldName { disk: before.map(|target| target.inode), leads_on, steps: Vec::new() })
                }
            };
            held.steps.push((number, meaning.map(|target| target.inode)));
            self.index.put(&key, held.meanings());
            self.links.count(key.0, held, 1);
            self.news.of_name(name.dir.inode, name.name.as_bytes());
            self.dirs.entry(name.dir.inode).or_default().insert(number, DirChange { since, attributes });
        }
        for inode in change.changed() {
            self.times.entry(inode).or_default().insert(number, since);
        }
        for target in targets_of(&change) {
            self.news.of_file(target.inode);
            self.targets.entry(target.inode).or_insert_with(|| (target.clone(), 0)).1 += 1;
        }
        HeldChange { number, change }
    }

    /// It is made, or will never be.
    pub fn remove(&mut self, HeldChange { number, change }: &HeldChange, is_made: bool) {
        for (name, meaning, _) in change.meanings() {
            let key = (name.dir.inode, name.name.clone());
            if let Some(held) = self.names.get_mut(&key) {
                self.index.take_out(&key, held.meanings());
                self.links.count(key.0, held, -1);
                held.steps.retain(|(step, _)| step != number);
                self.leading_on -= usize::from(held.leads_on);
                if is_made {
                    held.disk = meaning.map(|target| target.inode);
                    held.leads_on = meaning.is_some_and(|target| target.leads_on);
                }
                self.leading_on += usize::from(held.leads_on && !held.steps.is_empty());
                match held.steps.is_empty() {
                    true => drop(self.names.remove(&key)),
                    false => {
                        self.links.count(key.0, held, 1);
                        self.index.put(&key, held.meanings());
                    }
                }
            }
            // It may be there, or not, from now on.
            self.news.of_name(name.dir.inode, name.name.as_bytes());
            forget(&mut self.dirs, name.dir.inode, *number);
        }
        for inode in change.changed() {
            forget(&mut self.times, inode, *number);
        }
        if self.names.is_empty() {
            self.links = Links::default();
        }
        for target in targets_of(change) {
            // How many names it has beyond those of the disk is another number now.
            self.news.of_file(target.inode);
            count_down(&mut self.targets, &target.inode, |(_, count)| count);
        }
    }
}

/// All files and directories that a change concerns, each as often as it does.
fn targets_of(change: &NameChange) -> impl Iterator<Item = &Target> {
    change.names().into_iter().flat_map(|name| [Some(&name.dir), name.file.as_ref()]).flatten()
}

/// Forget one of several changes.
fn forget<T>(changes: &mut HashMap<Inode, BTreeMap<u64, T>>, inode: Inode, number: u64) {
    if let MapEntry::Occupied(mut of_inode) = changes.entry(inode) {
        of_inode.get_mut().remove(&number);
        if of_inode.get().is_empty() {
            of_inode.remove();
        }
    }
}

fn count_down<K: Hash + Eq, V>(held: &mut HashMap<K, V>, key: &K, count: impl Fn(&mut V) -> &mut usize) {
    if let Some(value) = held.get_mut(key) {
        *count(value) -= 1;
        if *count(value) == 0 {
            held.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(dir: &std::path::Path, name: &str) -> DiskName {
        let found = |path: &std::path::Path| {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok().map(|fd| Found::of(fd).unwrap())
        };
        let (found, dir) = (found(&dir.join(name)), found(dir).unwrap());
        DiskName::of(Entry { dir, name: name.into(), found })
    }

    #[test]
    fn names_are_held_until_the_last_change_of_them_is_made() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let remove = || NameChange::Remove(entry(dir.path(), "a"));
        let mut held = HeldNames::default();
        let (one, two) = (held.add(remove(), 0), held.add(remove(), 0));
        let at = one.change.names()[0].dir.inode;
        held.remove(&one, true);
        assert!(held.meaning(at, b"a") == Some(None) && held.meaning(at, b"b").is_none());
        held.remove(&two, true);
        assert!(held.is_empty() && held.targets.is_empty() && held.dirs.is_empty());
    }

    #[test]
    fn the_last_change_of_a_name_says_what_it_means() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let at = |name: &str| entry(dir.path(), name);
        let (dir_inode, file) = (at("a").dir.inode, at("a").inode());
        let mut held = HeldNames::default();
        let moved = held.add(NameChange::Rename { from: at("a"), to: at("b"), keeps: false }, 0);
        assert_eq!((held.meaning(dir_inode, b"a"), held.meaning(dir_inode, b"b")), (Some(None), Some(file)));
        assert_eq!(held.links_gained(file.unwrap(), false), 0);
        let b = DiskName { file: at("a").file, ..at("b") };
        let removed = held.add(NameChange::Remove(b), 0);
        assert_eq!((held.meaning(dir_inode, b"b"), held.links_gained(file.unwrap(), false)), (Some(None), -1));
        held.remove(&removed, false);
        assert_eq!((held.meaning(dir_inode, b"b"), held.links_gained(file.unwrap(), false)), (Some(file), 0));
        held.remove(&moved, true);
        assert!(held.is_empty());
    }

    #[test]
    fn a_directory_was_changed_last_by_what_is_held_of_it_now() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let at = |name: &str| entry(dir.path(), name);
        let mut held = HeldNames::default();
        let inode = at("a").dir.inode;
        let removed = held.add(NameChange::Remove(at("a")), 3);
        let before = held.last_change_in(inode).unwrap();
        let moved = held.add(NameChange::Rename { from: at("b"), to: at("c"), keeps: false }, 5);
        assert!(held.last_change_in(inode).is_some_and(|last| last.since > before.since && last.attributes == 5));
        held.remove(&moved, false);
        assert!(held.last_change_in(inode).is_some_and(|last| last.since == before.since && last.attributes == 3));
        held.remove(&removed, false);
        assert!(held.last_change_in(inode).is_none() && !held.has_names_in(inode));
    }

    #[test]
    fn a_file_is_changed_by_what_is_done_to_its_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let at = |name: &str| entry(dir.path(), name);
        let inode = |name: &str| at(name).inode().unwrap();
        let mut held = HeldNames::default();
        let link = DiskName { file: at("a").file, ..at("c") };
        let file = link.file.as_ref().unwrap().fd.clone();
        let linked = held.add(NameChange::Link { name: link, file }, 0);
        let before = held.last_change_of(inode("a")).unwrap();
        assert!(held.last_change_of(inode("b")).is_none());
        let moved = held.add(NameChange::Rename { from: at("a"), to: at("b"), keeps: false }, 0);
        assert!(held.last_change_of(inode("a")).is_some_and(|last| last > before));
        assert_eq!(held.last_change_of(inode("b")), held.last_change_of(inode("a")), "it is replaced");
        held.remove(&moved, false);
        assert_eq!((held.last_change_of(inode("a")), held.last_change_of(inode("b"))), (Some(before), None));
        held.remove(&linked, false);
        let new = NameChange::Create { name: at("b"), file: at("b").file.unwrap().fd };
        let made = held.add(new, 0);
        assert!(held.times.is_empty(), "what is made has its times");
        held.remove(&made, false);
    }

    #[test]
    fn a_directory_has_a_link_for_each_directory_in_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["one", "two", "two/sub"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("file"), "").unwrap();
        let at = |name: &str| entry(dir.path(), name);
        let of = |file: &str, name: &str| DiskName { file: at(file).file, ..at(name) };
        let inode = at("one").dir.inode;
        let mut held = HeldNames::default();
        let gained = |held: &HeldNames| held.links_gained(inode, true);
        let removed = held.add(NameChange::Remove(at("one")), 0);
        assert_eq!(gained(&held), -1);
        let replaced = held.add(NameChange::Rename { from: at("two"), to: at("one"), keeps: false }, 0);
        assert_eq!(gained(&held), -1, "one of two is left");
        let back = held.add(NameChange::Rename { from: of("two", "one"), to: of("one", "two"), keeps: false }, 0);
        let file = held.add(NameChange::Rename { from: at("file"), to: of("two", "one"), keeps: false }, 0);
        assert_eq!(gained(&held), -1, "a file is no directory");
        held.remove(&file, false);
        held.remove(&removed, true);
        assert_eq!(gained(&held), 0, "that one is gone from the disk");
        held.remove(&back, false);
        held.remove(&replaced, false);
        assert!(gained(&held) == 0 && held.is_empty() && held.links.gained.is_empty());
    }

    #[test]
    fn a_directory_is_where_its_last_change_put_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("one/sub")).unwrap();
        std::fs::create_dir(dir.path().join("two")).unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let mut held = HeldNames::default();
        let sub = entry(&one, "sub").inode().unwrap();
        assert!(held.parent(sub).is_none());
        let moved =
            held.add(NameChange::Rename { from: entry(&one, "sub"), to: entry(&two, "there"), keeps: false }, 0);
        let (at_one, at_two) = (moved.change.names()[0].dir.inode, moved.change.names()[1].dir.inode);
        let (above, name) = held.parent(sub).unwrap();
        assert_eq!((rustix::fs::fstat(above).unwrap().st_ino, name), (at_two.1, OsStr::new("there")));
        assert_eq!((held.links_gained(at_one, true), held.links_gained(at_two, true)), (-1, 1));
        assert!(!held.is_removed_dir(sub));
        let there = DiskName { file: entry(&one, "sub").file, ..entry(&two, "there") };
        let removed = held.add(NameChange::Remove(there), 0);
        assert!(held.is_removed_dir(sub) && !held.is_removed_dir(at_one));
        held.remove(&removed, false);
        held.remove(&moved, false);
        assert!(held.is_empty() && held.targets.is_empty());
    }

    #[test]
    fn a_name_is_followed_from_the_change_that_gives_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), "").unwrap();
        let at = |name: &str| entry(dir.path(), name);
        let (dir_inode, file) = (at("old").dir.inode, at("old").inode().unwrap());
        let of_file = |name: &str| DiskName { file: at("old").file, ..at(name) };
        let link = |name: &str| NameChange::Link { name: of_file(name), file: at("old").file.unwrap().fd };
        let mut held = HeldNames::default();
        let (one, two) = (held.add(link("one"), 0), held.add(link("two"), 0));
        let moved = held.add(NameChange::Rename { from: of_file("one"), to: at("moved"), keeps: false }, 0);
        let again = held.add(link("one"), 0);
        let giver = |held: &HeldNames, name: &str| held.giver(dir_inode, OsStr::new(name));
        assert_eq!(giver(&held, "moved"), Some(one.number));
        assert_eq!((giver(&held, "two"), giver(&held, "one")), (Some(two.number), Some(again.number)));
        assert_eq!(held.name_given(file, one.number).unwrap().1, OsStr::new("moved"));
        held.remove(&one, true);
        held.remove(&moved, true);
        assert!(held.name_given(file, one.number).is_none());
        let renamed = held.add(NameChange::Rename { from: at("old"), to: at("new"), keeps: false }, 0);
        assert_eq!((giver(&held, "new"), giver(&held, "old")), (None, None), "it was there before");
        for change in [two, again, renamed] {
            held.remove(&change, false);
        }
        assert!(held.is_empty());
    }

    #[test]
    fn what_came_in_the_place_of_a_removed_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "old").unwrap();
        let change = NameChange::Remove(entry(dir.path(), "a"));
        std::fs::write(dir.path().join("new"), "new").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        change.make(None).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        NameChange::Remove(entry(dir.path(), "a")).make(None).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_rename_that_keeps_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| entry(dir.path(), name);
        std::fs::write(dir.path().join("a"), "a").unwrap();
        let keeping = NameChange::Rename { from: at("a"), to: at("b"), keeps: true };
        std::fs::write(dir.path().join("b"), "b").unwrap();
        assert_eq!(keeping.make(None), Err(Errno::EXIST));
        NameChange::Rename { from: at("a"), to: at("b"), keeps: false }.make(None).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("b")).unwrap(), "a");
        assert_eq!(keeping.make(None), Err(Errno::STALE), "it has gone");
    }
}
