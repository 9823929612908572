//! Whether a plan can be carried out to its end: what a file system would refuse half way is found before the layer has
//! a name, while everything can still be undone.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use procfs::mountinfo::Mount;
use rustix::fs::{FileType, Mode, OFlags, StatVfsMountFlags, XattrFlags};

use crate::error::LayerError;
use crate::mounts;
use crate::object;
use crate::overlay_format::Handle;
use crate::plan::{FileSystemPlan, Hold, Step};
use crate::realm::Realm;
use crate::sys;
use crate::view::Layered;

/// What the plans meet.
pub struct Surroundings {
    /// What is mounted for everybody else, and whether it was mounted since the try began.
    pub mounts: Vec<Mount>,
    pub is_new: Vec<bool>,
    /// The directory in which the layer gets its name, and those that this one is in: device and inode.
    pub layer_dirs: HashSet<(u64, u64)>,
}

/// Looks at one file system's plan.
pub fn check(plan: &FileSystemPlan, layer: &Layered, around: &Surroundings) -> Result<(), LayerError> {
    let check = Check::new(plan, layer, around);
    let at_root = |error| check.refused(Path::new(""), &error);
    check.room().map_err(at_root)??;
    check.steps()?;
    check.held()?;
    check.attributes().map_err(at_root)??;
    check.contents()?;
    check.directories()
}

const PROTECTED: &str = "it cannot be changed, or only be appended to (chattr +i, +a)";

struct Check<'a> {
    plan: &'a FileSystemPlan,
    layer: &'a Layered,
    around: &'a Surroundings,
    before: Before<'a>,
    mounted: Vec<Mounted<'a>>,
    /// Of directories, by their paths before keeping.
    realms: RefCell<HashMap<PathBuf, Option<Rc<Realm>>>>,
}

/// Something that is mounted in this file system.
struct Mounted<'a> {
    /// On what.
    on: PathBuf,
    mount: &'a Mount,
    is_new: bool,
}

/// Where things are before anything is done.
struct Before<'a>(HashMap<&'a Path, Option<&'a Path>>);

impl<'a> Before<'a> {
    fn new(plan: &'a FileSystemPlan) -> Self {
        let directory = |step: &'a Step| match step {
            Step::MakeDir { at } => Some((&**at, None)),
            Step::Place { hold, at } => match &plan.holds[*hold] {
                Hold::Directory { from, .. } => Some((&**at, Some(&**from))),
                Hold::File { .. } => None,
            },
            Step::Trash { .. } | Step::Create { .. } | Step::Link { .. } => None,
        };
        Self(plan.steps.iter().filter_map(directory).collect())
    }

    /// The directory that will be at `at`, or in a directory there, by its own path: `None` if it is to be made.
    fn of(&self, at: &Path) -> Option<PathBuf> {
        let known = at.ancestors().find_map(|dir| Some((dir, self.0.get(dir)?)));
        let Some((dir, from)) = known else { return Some(at.to_owned()) };
        // INVARIANT: it is one of the ancestors.
        Some((*from)?.join(at.strip_prefix(dir).expect("an ancestor")))
    }

    /// The same of the directory that a name is in: with the name.
    fn of_name(&self, at: &Path) -> Option<PathBuf> {
        Some(self.of(parent(at))?.join(at.file_name()?))
    }

    /// The directory in which everything that is to be made above `at` will be made.
    fn outermost(&self, at: &Path) -> PathBuf {
        at.ancestors().find_map(|dir| self.of(dir)).unwrap_or_default()
    }
}

fn parent(at: &Path) -> &Path {
    at.parent().unwrap_or(Path::new(""))
}

impl<'a> Check<'a> {
    fn new(plan: &'a FileSystemPlan, layer: &'a Layered, around: &'a Surroundings) -> Self {
        let mounted = around.mounts.iter().zip(&around.is_new).filter_map(|(mount, &is_new)| {
            let on = mounts::mounted_on(mount, &layer.home, &around.mounts)?;
            Some(Mounted { on, mount, is_new })
        });
        let (mounted, before) = (mounted.collect(), Before::new(plan));
        Check { plan, layer, around, before, mounted, realms: RefCell::default() }
    }

    fn no(&self, at: &Path, why: impl Into<String>) -> LayerError {
        // Joining with nothing would leave a slash behind.
        let here = at.as_os_str().is_empty();
        let path = if here { self.layer.mount_point.clone() } else { self.layer.mount_point.join(at) };
        LayerError::Unkeepable { path, why: why.into() }
    }

    fn refused(&self, at: &Path, error: &io::Error) -> LayerError {
        self.no(at, crate::why(error))
    }

    fn lower(&self, at: &Path) -> PathBuf {
        self.layer.lower.join(at)
    }

    /// What is called `at` when everything is done, and where it is before. That there is nothing of this name, any
    /// more or yet, is for somebody else to say.
    fn unprotected(&self, at: &Path, before: Option<&Path>) -> Result<(), LayerError> {
        let Some(before) = before else { return Ok(()) };
        match object::open(&self.lower(before)).and_then(|found| object::is_protected(found.as_fd())) {
            Ok(true) => Err(self.no(at, PROTECTED)),
            _ => Ok(()),
        }
    }

    fn steps(&self) -> Result<(), LayerError> {
        for step in &self.plan.steps {
            let at = step.at();
            self.unprotected(parent(at), self.before.of(parent(at)).as_deref())?;
            if let (Step::Trash { .. }, Some(before)) = (step, self.before.of_name(at)) {
                self.goes(at, &before, true)?;
            }
            self.takes(step)?;
        }
        Ok(())
    }

    fn held(&self) -> Result<(), LayerError> {
        for (number, hold) in self.plan.holds.iter().enumerate() {
            match hold {
                Hold::Directory { from, .. } => {
                    self.unprotected(parent(from), Some(parent(from)))?;
                    self.goes(from, from, false)?;
                    self.reached(from, parent(from))?;
                }
                Hold::File { handle, .. } => {
                    let file = self.open(handle).and_then(|file| object::is_protected(file.as_fd()));
                    if file.is_ok_and(|is_protected| is_protected) {
                        return Err(self.no(self.plan.place_of(number).map_or(Path::new(""), |at| at), PROTECTED));
                    }
                }
            }
        }
        Ok(())
    }

    /// What leaves its place, to be removed or for another one.
    fn goes(&self, at: &Path, before: &Path, is_removed: bool) -> Result<(), LayerError> {
        self.unprotected(at, Some(before))?;
        let Ok(found) = std::fs::symlink_metadata(self.lower(before)) else { return Ok(()) };
        if self.around.layer_dirs.contains(&(found.dev(), found.ino())) {
            return Err(self.no(at, "the layer is in it; choose another place with --layer-dir"));
        }
        for Mounted { on, mount, is_new } in self.mounted.iter().filter(|mounted| mounted.on.starts_with(before)) {
            let (what, place) = (mount.source.display(), mount.mount_point.display());
            if *is_new {
                return Err(self.no(at, format!("{what} was mounted at {place} meanwhile")));
            }
            // What is mounted deeper down goes where its directory goes.
            if on == before || is_removed && !self.moves_out(on, before) {
                return Err(self.no(at, format!("{what} is mounted at {place}; unmount it")));
            }
        }
        Ok(())
    }

    /// Whether what is mounted there is in a directory that goes elsewhere before `dir` is removed.
    fn moves_out(&self, mounted_on: &Path, dir: &Path) -> bool {
        self.plan.holds.iter().any(|hold| match hold {
            Hold::Directory { from, .. } => {
                from.starts_with(dir) && mounted_on.starts_with(&**from) && mounted_on != &**from
            }
            Hold::File { .. } => false,
        })
    }

    /// Of a directory, by its path before keeping; `None` if it is not there.
    fn realm(&self, dir: &Path) -> Option<Rc<Realm>> {
        let mut realms = self.realms.borrow_mut();
        let look = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir = rustix::fs::open(self.lower(dir), flags, Mode::empty()).ok()?;
            Realm::of(dir.as_fd(), self.has_subvolumes()).ok().map(Rc::new)
        };
        realms.entry(dir.to_owned()).or_insert_with(look).clone()
    }

    fn has_subvolumes(&self) -> bool {
        self.plan.fs_type == "btrfs"
    }

    /// Names in `dir` can be changed, and moved to and from the file system's root.
    fn reached(&self, at: &Path, dir: &Path) -> Result<(), LayerError> {
        let (Some(root), Some(realm)) = (self.realm(Path::new("")), self.realm(dir)) else { return Ok(()) };
        if !realm.is_beside(&root) {
            let root = self.layer.mount_point.display();
            let why = format!("it is in another subvolume than {root}; mount that subvolume there, and try again");
            return Err(self.no(at, why));
        }
        self.unlocked(at, dir, &realm)
    }

    fn unlocked(&self, at: &Path, dir: &Path, realm: &Realm) -> Result<(), LayerError> {
        if !realm.is_encrypted() {
            return Ok(());
        }
        match unnamed_file(&self.lower(dir)) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.no(at, format!("the directory is encrypted: {}", crate::why(&error)))),
        }
    }

    /// The directory that a name is made in, or removed from, agrees.
    fn takes(&self, step: &Step) -> Result<(), LayerError> {
        let at = step.at();
        let dir = self.before.outermost(parent(at));
        let Some(realm) = self.realm(&dir) else { return Ok(()) };
        let object = match step {
            Step::MakeDir { .. } => return self.unlocked(at, &dir, &realm),
            Step::Trash { .. } | Step::Create { .. } => None,
            Step::Link { to, .. } => self.realm(&self.before.outermost(parent(to))).map(|realm| realm.of_new()),
            Step::Place { hold, .. } => self.realm_of_held(&self.plan.holds[*hold]),
        };
        self.reached(at, &dir)?;
        match object.and_then(|object| realm.refuses(&object)) {
            Some(why) => Err(self.no(at, why)),
            None => Ok(()),
        }
    }

    /// Only files and directories can be asked.
    fn realm_of_held(&self, hold: &Hold) -> Option<Realm> {
        match hold {
            Hold::Directory { from, .. } => self.realm(from).map(|realm| (*realm).clone()),
            Hold::File { handle, .. } => {
                let file = self.open(handle).ok()?;
                match object::kind(&object::stat(file.as_fd()).ok()?) {
                    FileType::RegularFile => {
                        let file = object::reopen(file.as_fd(), false).ok()?;
                        Realm::of(file.as_fd(), self.has_subvolumes()).ok()
                    }
                    _ => None,
                }
            }
        }
    }

    fn contents(&self) -> Result<(), LayerError> {
        for contents in &self.plan.contents {
            let refused = |error: io::Error| self.refused(&contents.at, &error);
            let target = self.open(&contents.handle).map_err(refused)?;
            if object::is_protected(target.as_fd()).map_err(refused)? {
                return Err(self.no(&contents.at, PROTECTED));
            }
            let found = object::stat(target.as_fd()).map_err(refused)?;
            if found.st_nlink > 1 && self.is_run(&contents.source, target.as_fd()).map_err(refused)? {
                let why = "it is being run and has several names, of which only one would be the new program; end it";
                return Err(self.no(&contents.at, why));
            }
        }
        Ok(())
    }

    /// A program that is being run cannot be written to.
    fn is_run(&self, source: &Path, target: BorrowedFd<'_>) -> io::Result<bool> {
        if object::kind(&object::stat(target)?) != FileType::RegularFile {
            return Ok(false);
        }
        let source = object::open(&self.layer.layer.join(source))?;
        let (from, to) = (object::reopen(source.as_fd(), false)?, object::reopen(target, false)?);
        let is_busy = || match object::reopen(target, true) {
            Ok(_) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => Ok(true),
            Err(error) => Err(error),
        };
        Ok(!object::same_contents(&from, &to)? && is_busy()?)
    }

    fn directories(&self) -> Result<(), LayerError> {
        let unprotected = |at: &Path| self.unprotected(at, self.before.of(at).as_deref());
        self.plan.directories.iter().try_for_each(|directory| unprotected(&directory.at))
    }

    /// The layer takes extended attributes that are larger, or of more kinds: each set of them is tried on a file
    /// without a name.
    fn attributes(&self) -> io::Result<Result<(), LayerError>> {
        let mut tried = HashSet::new();
        let created = self.plan.steps.iter().filter_map(|step| match step {
            Step::Create { at, source } => Some((at, source)),
            _ => None,
        });
        let changed = self.plan.contents.iter().map(|contents| (&contents.at, &contents.source));
        let directories = self.plan.directories.iter().map(|directory| (&directory.at, &directory.source));
        for (at, source) in created.chain(changed).chain(directories) {
            let wanted = object::xattrs(object::open(&self.layer.layer.join(&source.0))?.as_fd())?;
            // Access control lists go by what kind of object it is.
            let wanted: BTreeMap<_, _> =
                wanted.into_iter().filter(|(name, _)| !name.as_bytes().starts_with(b"system.")).collect();
            if wanted.is_empty() || !tried.insert(wanted.clone()) {
                continue;
            }
            // Not every file system can make one.
            let Ok(scratch) = unnamed_file(&self.layer.lower) else { return Ok(Ok(())) };
            for (name, value) in &wanted {
                let set = rustix::fs::setxattr(object::name_of(scratch.as_fd()), name, value, XattrFlags::empty());
                if let Err(error) = set {
                    let (name, error) = (name.to_string_lossy(), io::Error::from(error));
                    return Ok(Err(self.no(at, format!("its extended attribute {name}: {}", crate::why(&error)))));
                }
            }
        }
        Ok(Ok(()))
    }

    fn room(&self) -> io::Result<Result<(), LayerError>> {
        let room = rustix::fs::statvfs(&self.layer.lower)?;
        if room.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Ok(Err(self.no(Path::new(""), "by now it can only be read")));
        }
        let needed = inodes_needed(self.plan);
        // A file system that does not count them has none at all.
        if room.f_files == 0 || needed <= room.f_ffree {
            return Ok(Ok(()));
        }
        let (path, free) = (self.layer.mount_point.clone(), room.f_ffree);
        Ok(Err(LayerError::NoInodes { path, needed, free }))
    }

    fn open(&self, handle: &Handle) -> io::Result<OwnedFd> {
        let mount = File::open(&self.layer.lower)?;
        sys::open_by_handle(mount.as_fd(), handle.kind, &handle.bytes, libc::O_PATH)
    }
}

fn unnamed_file(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600))?)
}

/// In memory each name takes one; the stage is one, and holds a further name of what is made or held.
fn inodes_needed(plan: &FileSystemPlan) -> u64 {
    let in_memory = matches!(plan.fs_type.as_str(), "tmpfs" | "devtmpfs");
    let of_step = |step: &Step| match step {
        Step::MakeDir { .. } => 1,
        Step::Create { .. } => 1 + u64::from(in_memory),
        Step::Link { .. } => u64::from(in_memory),
        Step::Place { hold, .. } => u64::from(in_memory && matches!(plan.holds[*hold], Hold::File { .. })),
        Step::Trash { .. } => 0,
    };
    let held = plan.holds.iter().filter(|hold| matches!(hold, Hold::File { .. })).count() as u64;
    let of_steps: u64 = plan.steps.iter().map(of_step).sum();
    1 + of_steps + if in_memory { held } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Rel;

    fn rel(name: &str) -> Rel {
        Rel(name.into())
    }

    fn plan(holds: Vec<Hold>, steps: Vec<Step>) -> FileSystemPlan {
        FileSystemPlan {
            mount_point: rel("/m"),
            fs_type: "ext4".to_owned(),
            root_ino: 2,
            fs_id: 0,
            layer: 0,
            holds,
            steps,
            contents: Vec::new(),
            directories: Vec::new(),
        }
    }

    #[test]
    fn where_things_are_before() {
        let held = |from: &str| Hold::Directory { from: rel(from), ino: 7 };
        let plan = plan(
            vec![held("d"), held("d/sub")],
            vec![
                Step::MakeDir { at: rel("d") },
                Step::Place { hold: 0, at: rel("e") },
                Step::Place { hold: 1, at: rel("e/s2") },
                Step::MakeDir { at: rel("e/new") },
            ],
        );
        let before = Before::new(&plan);
        let of = |at: &str| before.of(Path::new(at));
        assert_eq!(of(""), Some("".into()));
        assert_eq!(of("other/x"), Some("other/x".into()));
        assert_eq!((of("d"), of("d/x")), (None, None));
        assert_eq!((of("e"), of("e/x")), (Some("d".into()), Some("d/x".into())));
        assert_eq!(of("e/s2/x"), Some("d/sub/x".into()));
        assert_eq!(before.of_name(Path::new("e/s2")), Some("d/s2".into()));
        assert_eq!(before.outermost(Path::new("e/new/deep")), PathBuf::from("d"));
        assert_eq!(before.outermost(Path::new("d")), PathBuf::from(""));
    }

    #[test]
    fn names_in_memory_take_inodes() {
        let mut plan = plan(
            vec![Hold::File { handle: Handle { kind: 1, bytes: Vec::new() }, ino: 7 }],
            vec![
                Step::Trash { at: rel("a"), ino: 7 },
                Step::MakeDir { at: rel("d") },
                Step::Place { hold: 0, at: rel("d/a") },
                Step::Create { at: rel("d/n"), source: rel("upper/d/n") },
                Step::Link { at: rel("d/m"), to: rel("d/n") },
            ],
        );
        assert_eq!(inodes_needed(&plan), 3);
        plan.fs_type = "tmpfs".to_owned();
        assert_eq!(inodes_needed(&plan), 7);
    }
}
