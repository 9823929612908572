//! A try whose keeping was interrupted, and that nobody will finish: its layer is removed, and what was carried out
//! stays.
//!
//! What COMMAND has made, and what has no name yet, goes with the layer. From then on nothing tells any more what was
//! done, so the layer says first that it is given up: after a crash, or a failure, `--resume` refuses it, and it can be
//! given up once more.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use procfs::mountinfo::{self, Table};
use rustix::fs::StatVfsMountFlags;
use rustix::mount::UnmountFlags;

use crate::apply::{self, Fuse, Manner};
use crate::error::{set_up, LayerError};
use crate::image::LayerImage;
use crate::plan::{FileSystemPlan, Plan};
use crate::record::{Known, Progress, Record};
use crate::recover::{is_lost, is_name_of_layer, read_plan, show, workplace};

/// What there is to tell of a layer that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// Where what had to make room, or was about to get another name, is; `None` if the plan could not be read.
    pub left: Option<Vec<Left>>,
}

/// A directory with things that COMMAND has not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// It is there.
    At(PathBuf),
    /// It may be on a file system that could not be looked into.
    Away {
        /// Its name, at the root of the file system.
        name: String,
        /// Where that was mounted.
        mount_point: PathBuf,
        /// What it is.
        fs_type: String,
    },
}

/// One file system that something was done on.
struct Part<'a> {
    plan: &'a FileSystemPlan,
    /// Its directory in the layer.
    layer: PathBuf,
    known: Known,
    /// Why it cannot be changed.
    away: Option<String>,
}

/// Removes a layer. Where it cannot be known, or not be said, what was put aside, only `force` does. Call it from a
/// process with one thread. With `crash_after`, this process ends after so many operations.
pub fn give_up(layer: &Path, force: bool, crash_after: Option<u64>) -> Result<GivenUp, LayerError> {
    let failed = |what: String| LayerError::GiveUp { layer: layer.to_owned(), what };
    let in_part = |what: String| LayerError::GivenUpInPart { layer: layer.to_owned(), what };
    if !is_name_of_layer(layer.file_name().unwrap_or_default()) {
        return Err(failed("its name is not that of a layer of speculator try".to_owned()));
    }
    let mounts = RefCell::new(Table::open().map_err(set_up(mountinfo::PATH))?);
    let scratch = workplace()?;
    let mut image = LayerImage::open(layer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => failed("somebody is keeping it now; wait for that".to_owned()),
        _ => failed(crate::why(&error)),
    })?;
    let mounted = scratch.join("image");
    let read = || -> io::Result<(Plan, Vec<Known>)> {
        image.mount(&mounted)?;
        let plan = read_plan(&mounted)?;
        let known = plan.file_systems.iter().map(|part| Record::open(&place(&mounted, part))?.read());
        let known = known.collect::<io::Result<_>>()?;
        Ok((plan, known))
    };
    let fuse = Fuse::new(crash_after);
    let mut is_begun = false;
    let left = match read() {
        Ok((plan, known)) => {
            let lower = scratch.join("lower");
            let (parts, mounted) = (plan.file_systems.iter().zip(known), &mounted);
            let parts: Vec<Part<'_>> =
                parts.filter_map(|(part, known)| Part::of(part, known, &plan, mounted, &lower)).collect();
            let away = parts.iter().find_map(|part| Some((part, part.away.as_ref()?)));
            if let (Some((part, why)), false) = (away, force) {
                return Err(failed(part.refusal(why, &plan.stage)));
            }
            fuse.burn();
            is_begun = parts.iter().any(|part| part.known.progress == Progress::GivenUp);
            for part in &parts {
                match part.mark() {
                    Ok(()) => is_begun = true,
                    Err(_) if force => {}
                    Err(error) if is_begun => return Err(in_part(crate::why(&error))),
                    Err(error) => return Err(failed(format!("{}; or use --force", crate::why(&error)))),
                }
            }
            fuse.burn();
            let manner = Manner { stage: &plan.stage, again: true, force, fuse: &fuse, mounts: &mounts };
            let left = parts.iter().map(|part| part.leave(&lower, &manner, force));
            let left: Result<Vec<_>, String> = left.collect();
            Some(left.map_err(in_part)?.into_iter().flatten().collect())
        }
        Err(_) if force => None,
        Err(error) => {
            let why = crate::why(&error);
            let what = format!("what it holds, and what was put aside for it, cannot be read: {why}; or use --force");
            return Err(failed(what));
        }
    };
    fuse.burn();
    let not_removed = |error| if is_begun { in_part(crate::why(&error)) } else { failed(crate::why(&error)) };
    image.discard().map_err(not_removed)?;
    let _ = rustix::mount::unmount(&mounted, UnmountFlags::DETACH);
    Ok(GivenUp { left })
}

fn place(image: &Path, part: &FileSystemPlan) -> PathBuf {
    image.join(part.layer.to_string())
}

impl<'a> Part<'a> {
    /// `None` if nothing is left on this file system.
    fn of(plan: &'a FileSystemPlan, known: Known, all: &Plan, image: &Path, lower: &Path) -> Option<Part<'a>> {
        if known.progress == Progress::AllDone || is_lost(plan, all) {
            return None;
        }
        let away = shown(plan, lower, || {
            let mount_point = plan.mount_point.display();
            let is_read_only = |found: rustix::fs::StatVfs| found.f_flag.contains(StatVfsMountFlags::RDONLY);
            if rustix::fs::statvfs(lower).is_ok_and(is_read_only) {
                return Err(format!("{mount_point} can only be read"));
            }
            // Not each kind of file system has a number of its own.
            let had_stage = known.progress == Progress::Begun && known.stage.is_some();
            match had_stage && std::fs::symlink_metadata(lower.join(&all.stage)).is_err() {
                true => Err(format!("{mount_point} has no {}: it may be another file system", all.stage)),
                false => Ok(()),
            }
        });
        let part = Part { plan, layer: place(image, plan), known, away: away.err() };
        // Before the stage was made, nothing was done.
        (part.away.is_none() || known.stage.is_some()).then_some(part)
    }

    fn refusal(&self, why: &str, stage: &str) -> String {
        let (fs_type, mount_point) = (&self.plan.fs_type, self.plan.mount_point.display());
        format!(
            "{why}; what had to make room for it may be in {stage} at the root of the {fs_type} that was mounted at \
             {mount_point}: make it accessible there, or use --force"
        )
    }

    /// From here on nobody can finish it.
    fn mark(&self) -> io::Result<()> {
        Record::open(&self.layer)?.write(Known { progress: Progress::GivenUp, ..self.known })
    }

    fn leave(&self, lower: &Path, manner: &Manner<'_>, force: bool) -> Result<Option<Left>, String> {
        let away = || {
            let (mount_point, fs_type) = (self.plan.mount_point.to_path_buf(), self.plan.fs_type.clone());
            Some(Left::Away { name: manner.stage.to_owned(), mount_point, fs_type })
        };
        if self.away.is_some() {
            return Ok(away());
        }
        let left = shown(self.plan, lower, || {
            apply::leave(self.plan, lower, &self.layer, manner)
                .map_err(|(path, error)| format!("{}: {}", path.display(), crate::why(&error)))
        });
        match left {
            Ok(is_left) => Ok(is_left.then(|| Left::At(self.plan.mount_point.join(manner.stage)))),
            Err(_) if force => Ok(away()),
            Err(why) => Err(why),
        }
    }
}

/// Does something while a file system is shown at `lower`.
fn shown<T>(plan: &FileSystemPlan, lower: &Path, act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let result = show(plan, lower).and_then(|()| act());
    // Nothing, if that has failed.
    let _ = rustix::mount::unmount(lower, UnmountFlags::DETACH);
    result
}
