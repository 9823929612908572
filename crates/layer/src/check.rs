//! Whether a plan can be carried out to its end: what a file system would refuse half way is found before the layer has
//! a name, while everything can still be undone.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::mountinfo::Mount;
use rustix::fs::{FileType, Mode, OFlags, XattrFlags};

use crate::error::LayerError;
use crate::object;
use crate::overlay_format::Handle;
use crate::plan::{FileSystemPlan, Hold, Step};
use crate::sys;
use crate::view::Layered;

/// What the plans meet.
pub struct Surroundings {
    /// What was mounted since the try began.
    pub new_mounts: Vec<Mount>,
    /// The directory in which the layer gets its name, and those that this one is in: device and inode.
    pub layer_dirs: HashSet<(u64, u64)>,
}

/// Looks at one file system's plan.
pub fn check(plan: &FileSystemPlan, layer: &Layered, around: &Surroundings) -> Result<(), LayerError> {
    let check = Check { plan, layer, around };
    let at_root = |error| check.refused(Path::new(""), &error);
    check.steps()?;
    check.held()?;
    check.attributes().map_err(at_root)??;
    check.contents()?;
    check.directories()?;
    check.inodes().map_err(at_root)?
}

const PROTECTED: &str = "it cannot be changed, or only be appended to (chattr +i, +a)";

struct Check<'a> {
    plan: &'a FileSystemPlan,
    layer: &'a Layered,
    around: &'a Surroundings,
}

impl Check<'_> {
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

    /// That there is nothing of this name, any more or yet, is for somebody else to say.
    fn unprotected(&self, at: &Path) -> Result<(), LayerError> {
        match object::open(&self.lower(at)).and_then(|found| object::is_protected(found.as_fd())) {
            Ok(true) => Err(self.no(at, PROTECTED)),
            _ => Ok(()),
        }
    }

    fn steps(&self) -> Result<(), LayerError> {
        for step in &self.plan.steps {
            let at = step.at();
            self.unprotected(at.parent().unwrap_or(Path::new("")))?;
            if let Step::Trash { .. } = step {
                self.goes(at)?;
            }
        }
        Ok(())
    }

    fn held(&self) -> Result<(), LayerError> {
        for (number, hold) in self.plan.holds.iter().enumerate() {
            match hold {
                Hold::Directory { from, .. } => {
                    self.unprotected(from.parent().unwrap_or(Path::new("")))?;
                    self.goes(from)?;
                }
                Hold::File { handle, .. } => {
                    let file = self.open(handle).and_then(|file| object::is_protected(file.as_fd()));
                    if file.is_ok_and(|is_protected| is_protected) {
                        return Err(self.no(self.place_of(number), PROTECTED));
                    }
                }
            }
        }
        Ok(())
    }

    /// The name that what is held gets.
    fn place_of(&self, held: usize) -> &Path {
        let is_it = |step: &&Step| matches!(step, Step::Place { hold, .. } if *hold == held);
        self.plan.steps.iter().find(is_it).map_or(Path::new(""), |step| step.at())
    }

    /// What leaves its place.
    fn goes(&self, at: &Path) -> Result<(), LayerError> {
        self.unprotected(at)?;
        let Ok(found) = std::fs::symlink_metadata(self.lower(at)) else { return Ok(()) };
        if self.around.layer_dirs.contains(&(found.dev(), found.ino())) {
            return Err(self.no(at, "the layer is in it; choose another place with --layer-dir"));
        }
        let place = self.layer.mount_point.join(at);
        if let Some(mount) = self.around.new_mounts.iter().find(|mount| mount.mount_point.starts_with(&place)) {
            let what = mount.source.display();
            return Err(self.no(at, format!("{what} was mounted at {} meanwhile", mount.mount_point.display())));
        }
        Ok(())
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
        self.plan.directories.iter().try_for_each(|directory| self.unprotected(&directory.at))
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
            let Some(scratch) = self.scratch_file() else { return Ok(Ok(())) };
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

    /// Not every file system can make one.
    fn scratch_file(&self) -> Option<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(&self.layer.lower, flags, Mode::from_raw_mode(0o600)).ok()
    }

    fn inodes(&self) -> io::Result<Result<(), LayerError>> {
        let room = rustix::fs::statvfs(&self.layer.lower)?;
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

    #[test]
    fn names_in_memory_take_inodes() {
        let rel = |name: &str| Rel(name.into());
        let mut plan = FileSystemPlan {
            mount_point: rel("/m"),
            fs_type: "ext4".to_owned(),
            root_ino: 2,
            fs_id: 0,
            layer: 0,
            holds: vec![Hold::File { handle: Handle { kind: 1, bytes: Vec::new() }, ino: 7 }],
            steps: vec![
                Step::Trash { at: rel("a"), ino: 7 },
                Step::MakeDir { at: rel("d") },
                Step::Place { hold: 0, at: rel("d/a") },
                Step::Create { at: rel("d/n"), source: rel("upper/d/n") },
                Step::Link { at: rel("d/m"), to: rel("d/n") },
            ],
            contents: Vec::new(),
            directories: Vec::new(),
        };
        assert_eq!(inodes_needed(&plan), 3);
        plan.fs_type = "tmpfs".to_owned();
        assert_eq!(inodes_needed(&plan), 7);
    }
}
