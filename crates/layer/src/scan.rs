//! Reads a layer when nobody changes it any more: what was done ([`Changes`]) and how to do it for good
//! ([`FileSystemPlan`]).
//!
//! The upper directory is walked beside what is below it. `place` is a directory's path as COMMAND sees it; `merged`
//! where the lower directory is that shows through it; `before` the lower directory that had this name, for the report
//! only.
//!
//! Whoever changes a lower object changes its ctime, which nobody can set: an object that the try changed and whose
//! ctime is later than the try's beginning was changed by somebody else as well.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::changes::{Aspect, Change, Changes, Kind, What};
use crate::error::LayerError;
use crate::object;
use crate::overlay_format::{self, Handle};
use crate::plan::{Contents, Directory, FileSystemPlan, Hold, Rel, Step};
use crate::sys;
use crate::view::Layered;

/// A time by the clock that file systems use.
pub type Moment = (i64, i64);

/// What one layer holds.
pub fn scan(layer: &Layered, begun: Moment, changes: &mut Changes) -> Result<FileSystemPlan, LayerError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LayerError::Scan { path, source }
    };
    let root = fs::symlink_metadata(&layer.lower).map_err(failed(&layer.mount_point))?;
    let mount = File::open(&layer.lower).map_err(failed(&layer.mount_point))?;
    let fs_id = rustix::fs::fstatvfs(&mount).map_err(|error| failed(&layer.mount_point)(error.into()))?.f_fsid;
    let mut scan = Scan {
        layer,
        mount,
        begun,
        plan: FileSystemPlan {
            mount_point: Rel(layer.mount_point.clone()),
            fs_type: layer.home.fs_type.clone(),
            root_ino: root.ino(),
            fs_id,
            layer: layer.number,
            holds: Vec::new(),
            steps: Vec::new(),
            contents: Vec::new(),
            directories: Vec::new(),
        },
        held: HashMap::new(),
        held_directories: HashSet::new(),
        replaced_later: Vec::new(),
        hidden: Vec::new(),
        new: HashMap::new(),
        seen: HashSet::new(),
        gone: Vec::new(),
        placed: Vec::new(),
        needed: 0,
        changes,
    };
    let top = Spot { place: PathBuf::new(), merged: Some(PathBuf::new()), before: Some(PathBuf::new()) };
    scan.directory(&top).and_then(|()| scan.index()).map_err(|(path, source)| failed(&path)(source))?;
    scan.tell_gone_and_placed();
    let needed = scan.needed;
    let mut plan = scan.plan;
    finish(&mut plan);
    changes.needed.push((layer.number, needed));
    Ok(plan)
}

/// Where the stage is made changes the root's times; but a plan that changes nothing stays empty.
fn finish(plan: &mut FileSystemPlan) {
    let root = |directory: &Directory| directory.at.as_os_str().is_empty();
    if !plan.is_empty() && !plan.directories.iter().any(root) {
        let (at, source) = (Rel(PathBuf::new()), Rel("upper".into()));
        plan.directories.push(Directory { at, source, keep_later_time: true });
    }
}

type Result2<T> = Result<T, (PathBuf, io::Error)>;

struct Spot {
    place: PathBuf,
    merged: Option<PathBuf>,
    before: Option<PathBuf>,
}

struct Scan<'a> {
    layer: &'a Layered,
    mount: File,
    begun: Moment,
    plan: FileSystemPlan,
    /// Lower inode to hold.
    held: HashMap<u64, usize>,
    held_directories: HashSet<u64>,
    /// What others have changed, and COMMAND has put something in the place of: a conflict, unless it has only another
    /// name, by itself or with a directory.
    replaced_later: Vec<(PathBuf, u64)>,
    /// What an old directory had and a new one in its place has not.
    hidden: Vec<PathBuf>,
    /// Inode of the layer to the first name of a new object.
    new: HashMap<u64, PathBuf>,
    /// Inodes of the layer whose contents are in the plan.
    seen: HashSet<u64>,
    /// Lower paths that are not there any more.
    gone: Vec<PathBuf>,
    /// Objects of the lower file system under a name that they did not have.
    placed: Vec<(u64, PathBuf, Option<u64>)>,
    needed: u64,
    changes: &'a mut Changes,
}

/// An entry of the upper directory, and what has the same name below.
struct Entry {
    /// As COMMAND sees it.
    at: PathBuf,
    upper: Metadata,
    held: OwnedFd,
    /// The lower entry that this one hides, if there is one.
    natural: Option<(PathBuf, Metadata)>,
    /// What had this name before, if the parent is new.
    before: Option<(PathBuf, Metadata)>,
}

impl Entry {
    /// What this one is in the place of.
    fn replaced(&self) -> Option<&(PathBuf, Metadata)> {
        self.natural.as_ref().or(self.before.as_ref())
    }
}

impl Scan<'_> {
    fn upper(&self, at: &Path) -> PathBuf {
        join(&self.layer.layer.join("upper"), at)
    }

    fn lower(&self, at: &Path) -> PathBuf {
        join(&self.layer.lower, at)
    }

    /// As COMMAND names it.
    fn name(&self, at: &Path) -> PathBuf {
        join(&self.layer.mount_point, at)
    }

    fn directory(&mut self, spot: &Spot) -> Result2<()> {
        let upper = self.upper(&spot.place);
        let failed = |error| (self.name(&spot.place), error);
        let mut names: Vec<OsString> = Vec::new();
        for entry in fs::read_dir(&upper).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
        }
        names.sort();
        let mut own_steps = 0;
        for name in &names {
            let entry = self.entry(spot, name).map_err(|error| (self.name(&spot.place.join(name)), error))?;
            let before = self.plan.steps.len();
            let below = self.judge(spot, name, &entry).map_err(|error| (self.name(&entry.at), error))?;
            own_steps += self.plan.steps.len() - before;
            if let Some(below) = below {
                self.directory(&below)?;
            }
        }
        if spot.merged.is_none() {
            self.hidden_by_new_directory(spot, &names).map_err(failed_at(&spot.place))?;
        }
        self.attributes_of_directory(spot, own_steps > 0, names.is_empty()).map_err(failed_at(&spot.place))
    }

    fn entry(&self, spot: &Spot, name: &OsString) -> io::Result<Entry> {
        let at = spot.place.join(name);
        let upper = self.upper(&at);
        let below = |dir: &Option<PathBuf>| -> io::Result<Option<(PathBuf, Metadata)>> {
            let Some(dir) = dir else { return Ok(None) };
            let path = dir.join(name);
            Ok(if_there(fs::symlink_metadata(self.lower(&path)))?.map(|found| (path, found)))
        };
        let natural = below(&spot.merged)?;
        let before = if spot.merged.is_some() { None } else { below(&spot.before)? };
        Ok(Entry { upper: fs::symlink_metadata(&upper)?, held: object::open(&upper)?, at, natural, before })
    }

    /// What one entry means. A directory is to be walked next.
    fn judge(&mut self, spot: &Spot, name: &OsString, entry: &Entry) -> io::Result<Option<Spot>> {
        // Also in a directory that COMMAND made or replaced: what somebody else has put there meanwhile would go.
        let is_gone = overlay_format::is_whiteout(&entry.upper);
        if let Some((path, found)) = entry.replaced() {
            // What becomes of directories that are gone is looked at when all names are known.
            if !(found.is_dir() && (entry.upper.is_dir() || is_gone)) && self.is_later(found) {
                self.replaced_later.push((path.clone(), found.ino()));
            }
        }
        if is_gone {
            self.trash(entry);
            return Ok(None);
        }
        if entry.upper.is_dir() {
            return self.judge_directory(spot, name, entry).map(Some);
        }
        match overlay_format::origin(entry.held.as_fd())? {
            Some(handle) => self.judge_copy(entry, handle)?,
            None => self.judge_new(entry),
        }
        Ok(None)
    }

    fn judge_directory(&mut self, spot: &Spot, name: &OsString, entry: &Entry) -> io::Result<Spot> {
        let shown = self.shown_through(spot, name, entry)?;
        let at = entry.at.clone();
        let Some((path, found)) = shown else {
            if let Some((path, found)) = entry.replaced().filter(|(_, found)| self.is_later(found)) {
                self.replaced_later.push((path.clone(), found.ino()));
            }
            self.trash_replaced(entry);
            self.plan.steps.push(Step::MakeDir { at: Rel(at.clone()) });
            let before = entry.replaced().filter(|(_, found)| found.is_dir()).map(|(path, _)| path.clone());
            if before.is_none() {
                self.report(entry, What::Created, Vec::new(), None);
            }
            return Ok(Spot { place: at, merged: None, before });
        };
        let in_place = entry.natural.as_ref().is_some_and(|(natural, _)| *natural == path);
        if !in_place {
            self.trash(entry);
            let hold = self.hold(found.ino(), Hold::Directory { from: Rel(path.clone()), ino: found.ino() });
            self.held_directories.insert(found.ino());
            self.plan.steps.push(Step::Place { hold, at: Rel(at.clone()) });
            self.report(entry, What::Renamed(self.name(&path)), Vec::new(), Some((&path, &found)));
        }
        Ok(Spot { place: at, merged: Some(path.clone()), before: Some(path) })
    }

    /// The lower directory that an upper one shows through.
    fn shown_through(
        &mut self,
        spot: &Spot,
        name: &OsString,
        entry: &Entry,
    ) -> io::Result<Option<(PathBuf, Metadata)>> {
        if overlay_format::is_opaque(entry.held.as_fd())? {
            return Ok(None);
        }
        let path = match overlay_format::redirect(entry.held.as_fd())? {
            Some(redirect) => match redirect.strip_prefix("/") {
                Ok(absolute) => Some(absolute.to_owned()),
                Err(_) => spot.merged.as_ref().map(|dir| dir.join(&redirect)),
            },
            None => spot.merged.as_ref().map(|dir| dir.join(name)),
        };
        let Some(path) = path else { return Ok(None) };
        let found = if_there(fs::symlink_metadata(self.lower(&path)))?.filter(Metadata::is_dir);
        if let Some(handle) = overlay_format::origin(entry.held.as_fd())? {
            let was = self.open(&handle).and_then(|was| object::stat(was.as_fd()));
            match &found {
                None => self.conflict(&path, "it was removed by somebody else"),
                // What is in it now was never seen by COMMAND, whatever it is called.
                Some(found) if was.map_or(true, |was| was.st_ino != found.ino()) => {
                    self.conflict(&path, "it was replaced by somebody else");
                }
                Some(_) => {}
            }
        }
        Ok(found.map(|found| (path, found)))
    }

    /// A copy of a lower object, under its own name or another.
    fn judge_copy(&mut self, entry: &Entry, handle: Handle) -> io::Result<()> {
        let lower = self.open(&handle).and_then(|lower| Ok((object::stat(lower.as_fd())?, lower)));
        let Some((stat, lower)) = lower.ok().filter(|(stat, _)| stat.st_nlink > 0) else {
            self.conflict(&entry.at, "it was removed by somebody else");
            // If COMMAND is to win, its copy is a new file.
            self.judge_new(entry);
            return Ok(());
        };
        if (stat.st_ctime, stat.st_ctime_nsec as i64) > self.begun {
            self.conflict(&entry.at, "it was changed by somebody else");
        }
        let in_place = entry.natural.as_ref().is_some_and(|(_, found)| found.ino() == stat.st_ino);
        if !in_place {
            self.trash(entry);
            let hold = self.hold(stat.st_ino, Hold::File { handle: handle.clone(), ino: stat.st_ino });
            self.plan.steps.push(Step::Place { hold, at: Rel(entry.at.clone()) });
            self.placed.push((stat.st_ino, entry.at.clone(), Some(stat.st_size as u64)));
        }
        let source = Rel(Path::new("upper").join(&entry.at));
        let aspects = self.contents(entry.held.as_fd(), lower.as_fd(), handle, &entry.at, source)?;
        if in_place && !aspects.is_empty() {
            let natural = entry.natural.as_ref().map(|(path, found)| (path.as_path(), found));
            self.report(entry, What::Changed, aspects, natural);
        }
        Ok(())
    }

    /// Something that was not there before.
    fn judge_new(&mut self, entry: &Entry) {
        self.trash_replaced(entry);
        let at = Rel(entry.at.clone());
        match self.new.get(&entry.upper.ino()) {
            Some(first) => self.plan.steps.push(Step::Link { at, to: Rel(first.clone()) }),
            None => {
                self.needed += entry.upper.blocks() * 512;
                self.new.insert(entry.upper.ino(), entry.at.clone());
                let source = Rel(Path::new("upper").join(&entry.at));
                self.plan.steps.push(Step::Create { at, source });
            }
        }
        match entry.replaced().filter(|(_, found)| kind_of(found) == kind_of(&entry.upper)) {
            Some((path, found)) => {
                let aspects = self.differences(&entry.held, path);
                self.report(entry, What::Changed, aspects, Some((path, found)));
            }
            None => self.report(entry, What::Created, Vec::new(), None),
        }
    }

    /// The contents and attributes of a copy, if they differ from what they are copied from: what differs.
    fn contents(
        &mut self,
        copy: std::os::fd::BorrowedFd<'_>,
        lower: std::os::fd::BorrowedFd<'_>,
        handle: Handle,
        at: &Path,
        source: Rel,
    ) -> io::Result<Vec<Aspect>> {
        let aspects = aspects(copy, lower)?;
        let (new, old) = (object::stat(copy)?, object::stat(lower)?);
        let read_later = (new.st_atime, new.st_atime_nsec) != (old.st_atime, old.st_atime_nsec);
        if (!aspects.is_empty() || read_later) && self.seen.insert(new.st_ino) {
            self.needed += (new.st_blocks - old.st_blocks).max(0) as u64 * 512;
            self.plan.contents.push(Contents { handle, at: Rel(at.to_owned()), source });
        }
        Ok(aspects)
    }

    /// Files with several names are in the overlay's index: one may have been changed under a name that is gone.
    fn index(&mut self) -> Result2<()> {
        let index = self.layer.layer.join("work/index");
        let failed = |error| (self.layer.mount_point.clone(), error);
        let Some(entries) = if_there(fs::read_dir(&index)).map_err(failed)? else { return Ok(()) };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            self.indexed(&entry.path(), &entry.file_name()).map_err(|error| (self.layer.mount_point.clone(), error))?;
        }
        Ok(())
    }

    fn indexed(&mut self, path: &Path, name: &OsString) -> io::Result<()> {
        let found = fs::symlink_metadata(path)?;
        if found.is_dir() || overlay_format::is_whiteout(&found) || self.seen.contains(&found.ino()) {
            return Ok(());
        }
        let held = object::open(path)?;
        let Some(handle) = overlay_format::origin(held.as_fd())? else { return Ok(()) };
        let Ok(lower) = self.open(&handle) else { return Ok(()) };
        if object::stat(lower.as_fd())?.st_nlink == 0 {
            return Ok(());
        }
        // A name is only known by luck, and only needed for messages.
        let known = fs::read_link(object::name_of(lower.as_fd())).ok();
        let known = known.and_then(|path| path.strip_prefix(&self.layer.lower).map(Path::to_owned).ok());
        let at = known.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| PathBuf::from("(a hard link)"));
        let source = Rel(Path::new("work/index").join(name));
        let aspects = self.contents(held.as_fd(), lower.as_fd(), handle, &at, source)?;
        if !aspects.is_empty() {
            let (path, before, after) = (self.name(&at), self.lower(&at), path.to_owned());
            let old = object::stat(lower.as_fd())?.st_size as u64;
            self.changes.list.push(Change {
                path,
                what: What::Changed,
                kind: kind_of(&found),
                size_before: Some(old),
                size_after: Some(found.len()),
                aspects,
                before: Some(before),
                after: Some(after),
            });
        }
        Ok(())
    }

    fn attributes_of_directory(&mut self, spot: &Spot, stepped: bool, is_leaf: bool) -> io::Result<()> {
        let source = Rel(Path::new("upper").join(&spot.place));
        let at = Rel(spot.place.clone());
        let Some(lower) = spot.merged.as_ref().or(spot.before.as_ref()) else {
            self.plan.directories.push(Directory { at, source, keep_later_time: false });
            return Ok(());
        };
        let new = object::open(&self.upper(&spot.place))?;
        let old = object::open(&self.lower(lower))?;
        let mut aspects = aspects(new.as_fd(), old.as_fd())?;
        let (found, now) = (object::stat(old.as_fd())?, object::stat(new.as_fd())?);
        let later = (found.st_ctime, found.st_ctime_nsec as i64) > self.begun;
        let is_root = spot.place.as_os_str().is_empty();
        let unchanged = (now.st_ctime, now.st_ctime_nsec as i64) == self.layer.root_changed;
        let unread = (now.st_atime, now.st_atime_nsec as i64) == self.layer.root_read;
        if is_root && unchanged && (later || unread) {
            // It was copied at the beginning: what is different is what somebody else has done.
            return Ok(());
        }
        let read = (found.st_atime, found.st_atime_nsec) != (now.st_atime, now.st_atime_nsec);
        // That it was read is all that there is to be said of a directory that nobody can change.
        let times = aspects.contains(&Aspect::Times) || (read && !object::is_protected(old.as_fd())?);
        if stepped || times || !aspects.is_empty() || spot.merged.is_none() {
            self.plan.directories.push(Directory { at, source, keep_later_time: later });
        }
        // A new time is a consequence of what was done in it, unless nothing was.
        if !is_leaf || spot.merged.is_none() {
            aspects.retain(|aspect| *aspect != Aspect::Times);
        }
        if later && spot.merged.is_some() && aspects.iter().any(|aspect| *aspect != Aspect::Times) {
            self.conflict(&spot.place, "its owner, mode or attributes may have been changed by somebody else");
        }
        if !aspects.is_empty() {
            self.changes.list.push(Change {
                path: self.name(&spot.place),
                what: What::Changed,
                kind: Kind::Directory,
                size_before: None,
                size_after: None,
                aspects,
                before: None,
                after: None,
            });
        }
        Ok(())
    }

    /// A new directory in the place of an old one: what the old one had and the new one has not.
    fn hidden_by_new_directory(&mut self, spot: &Spot, names: &[OsString]) -> io::Result<()> {
        let Some(before) = &spot.before else { return Ok(()) };
        for entry in fs::read_dir(self.lower(before))? {
            let name = entry?.file_name();
            if names.binary_search(&name).is_err() {
                self.hidden.push(before.join(name));
            }
        }
        Ok(())
    }

    /// The lower entry of this name has to go, and that is a removal.
    fn trash(&mut self, entry: &Entry) {
        if let Some((path, found)) = &entry.natural {
            self.plan.steps.push(Step::Trash { at: Rel(entry.at.clone()), ino: found.ino() });
            self.gone.push(path.clone());
        }
    }

    /// The lower entry of this name has to go; the report tells of what comes in its place, if that is of the same
    /// kind.
    fn trash_replaced(&mut self, entry: &Entry) {
        if let Some((_, found)) = &entry.natural {
            self.plan.steps.push(Step::Trash { at: Rel(entry.at.clone()), ino: found.ino() });
        }
        if let Some((path, found)) = entry.replaced() {
            if kind_of(found) != kind_of(&entry.upper) {
                self.gone.push(path.clone());
            }
        }
    }

    fn hold(&mut self, ino: u64, hold: Hold) -> usize {
        let holds = &mut self.plan.holds;
        *self.held.entry(ino).or_insert_with(|| {
            holds.push(hold);
            holds.len() - 1
        })
    }

    fn open(&self, handle: &Handle) -> io::Result<OwnedFd> {
        sys::open_by_handle(self.mount.as_fd(), handle.kind, &handle.bytes, libc::O_PATH)
    }

    fn is_later(&self, found: &Metadata) -> bool {
        (found.ctime(), found.ctime_nsec()) > self.begun
    }

    fn conflict(&mut self, at: &Path, why: &'static str) {
        let path = self.name(at);
        if !self.changes.conflicts.iter().any(|(known, _)| *known == path) {
            self.changes.conflicts.push((path, why));
        }
    }

    fn differences(&self, new: &OwnedFd, lower: &Path) -> Vec<Aspect> {
        let aspects = object::open(&self.lower(lower)).and_then(|old| aspects(new.as_fd(), old.as_fd()));
        aspects.unwrap_or_else(|_| vec![Aspect::Contents])
    }

    fn report(&mut self, entry: &Entry, what: What, aspects: Vec<Aspect>, before: Option<(&Path, &Metadata)>) {
        let size = |found: &Metadata| (!found.is_dir()).then_some(found.len());
        self.changes.list.push(Change {
            path: self.name(&entry.at),
            what,
            kind: kind_of(&entry.upper),
            size_before: before.and_then(|(_, found)| size(found)),
            size_after: size(&entry.upper),
            aspects,
            before: before.map(|(path, _)| self.lower(path)),
            after: Some(self.upper(&entry.at)),
        });
    }

    /// When everything that moved is known, what is gone can be told from what only has another name.
    fn tell_gone_and_placed(&mut self) {
        self.tell_replaced();
        let mut gone = BTreeMap::new();
        let mut hidden = std::mem::take(&mut self.hidden);
        hidden.retain(|path| !self.is_in_held_directory(path));
        for path in std::mem::take(&mut self.gone).into_iter().chain(hidden) {
            self.collect_gone(path, &mut gone);
        }
        self.tell_placed(&mut gone);
        for (path, found) in gone {
            self.changes.list.push(Change {
                path: self.name(&path),
                what: What::Removed,
                kind: kind_of(&found),
                size_before: (!found.is_dir()).then_some(found.len()),
                size_after: None,
                aspects: Vec::new(),
                before: Some(self.lower(&path)),
                after: None,
            });
        }
        self.changes.list.sort_by(|a, b| a.path.cmp(&b.path));
    }

    fn tell_replaced(&mut self) {
        for (path, ino) in std::mem::take(&mut self.replaced_later) {
            if !self.held.contains_key(&ino) && !self.is_in_held_directory(&path) {
                self.conflict(&path, "it was changed by somebody else");
            }
        }
    }

    /// Files with new names. One that has lost its old name was renamed, and that name is not gone.
    fn tell_placed(&mut self, gone: &mut BTreeMap<PathBuf, Metadata>) {
        let mut by_ino: HashMap<u64, PathBuf> = HashMap::new();
        for (path, found) in &*gone {
            if !found.is_dir() {
                by_ino.entry(found.ino()).or_insert_with(|| path.clone());
            }
        }
        for (ino, at, size) in std::mem::take(&mut self.placed) {
            let upper = self.upper(&at);
            let Ok(found) = fs::symlink_metadata(&upper) else { continue };
            let from = by_ino.remove(&ino);
            let before = from.as_ref().map(|from| self.lower(from));
            let mut aspects = Vec::new();
            if let (Some(before), Ok(new)) = (&before, object::open(&upper)) {
                aspects =
                    object::open(before).and_then(|old| self::aspects(new.as_fd(), old.as_fd())).unwrap_or_default();
            }
            let what = match &from {
                Some(from) => What::Renamed(self.name(from)),
                None => What::Created,
            };
            if from.is_none() {
                aspects.push(Aspect::Links);
            }
            from.map(|from| gone.remove(&from));
            let (size_before, size_after) = (size.filter(|_| before.is_some()), Some(found.len()));
            let (path, kind) = (self.name(&at), kind_of(&found));
            self.changes.list.push(Change {
                path,
                what,
                kind,
                size_before,
                size_after,
                aspects,
                before,
                after: Some(upper),
            });
        }
    }

    /// Whether it goes where a directory above it goes.
    fn is_in_held_directory(&self, path: &Path) -> bool {
        self.plan.holds.iter().any(|hold| match hold {
            Hold::Directory { from, .. } => path.starts_with(&from.0),
            Hold::File { .. } => false,
        })
    }

    fn collect_gone(&mut self, path: PathBuf, gone: &mut BTreeMap<PathBuf, Metadata>) {
        let Ok(found) = fs::symlink_metadata(self.lower(&path)) else { return };
        if found.is_dir() && self.held_directories.contains(&found.ino()) {
            return;
        }
        if self.is_later(&found) {
            self.conflict(&path, "it was changed by somebody else");
        }
        if found.is_dir() {
            for entry in fs::read_dir(self.lower(&path)).into_iter().flatten().flatten() {
                self.collect_gone(path.join(entry.file_name()), gone);
            }
        }
        gone.insert(path, found);
    }
}

/// What differs between two objects of one kind.
fn aspects(new: std::os::fd::BorrowedFd<'_>, old: std::os::fd::BorrowedFd<'_>) -> io::Result<Vec<Aspect>> {
    let (a, b) = (object::stat(new)?, object::stat(old)?);
    let same_contents = match object::kind(&a) {
        rustix::fs::FileType::RegularFile => {
            object::same_contents(&object::reopen(new, false)?, &object::reopen(old, false)?)?
        }
        rustix::fs::FileType::Symlink => {
            rustix::fs::readlinkat(new, "", Vec::new())? == rustix::fs::readlinkat(old, "", Vec::new())?
        }
        _ => a.st_rdev == b.st_rdev,
    };
    let mut found = Vec::new();
    let mut add = |different: bool, aspect| found.extend(different.then_some(aspect));
    add(!same_contents, Aspect::Contents);
    add(a.st_mode != b.st_mode, Aspect::Mode);
    add((a.st_uid, a.st_gid) != (b.st_uid, b.st_gid), Aspect::Owner);
    add(object::xattrs(new)? != object::xattrs(old)?, Aspect::Attributes);
    add((a.st_mtime, a.st_mtime_nsec) != (b.st_mtime, b.st_mtime_nsec), Aspect::Times);
    Ok(found)
}

fn failed_at(place: &Path) -> impl Fn(io::Error) -> (PathBuf, io::Error) {
    let place = place.to_owned();
    move |error| (place.clone(), error)
}

fn kind_of(found: &Metadata) -> Kind {
    let kind = found.file_type();
    match () {
        () if kind.is_dir() => Kind::Directory,
        () if kind.is_symlink() => Kind::Symlink,
        () if kind.is_fifo() => Kind::Fifo,
        () if kind.is_socket() => Kind::Socket,
        () if kind.is_char_device() || kind.is_block_device() => Kind::Device,
        () => Kind::File,
    }
}

/// Joining with nothing leaves no slash behind.
fn join(dir: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        dir.to_owned()
    } else {
        dir.join(below)
    }
}

fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}
