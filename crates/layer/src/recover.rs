//! A try whose keeping was interrupted, by a crash or for want of room, is finished here: its layer has a name and
//! holds the plan.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use procfs::mountinfo::{self, Table};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::apply::{self, Fuse, Manner};
use crate::attempt::{boot, lift_file_size};
use crate::error::{set_up, LayerError};
use crate::image::{LayerImage, NAME_PREFIX, NAME_SUFFIX};
use crate::plan::{FileSystemPlan, Plan, PLAN_NAME, PLAN_VERSION};
use crate::record::{Progress, Record};
use crate::view;

/// The layers in a directory whose keeping was begun and not finished.
pub fn interrupted(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if !is_name_of_layer(&entry.file_name()) {
            continue;
        }
        match entry.metadata() {
            Ok(metadata) if LayerImage::is_roots(&metadata) => found.push(entry.path()),
            // Whoever was keeping it has finished.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn is_name_of_layer(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(NAME_PREFIX) && name.ends_with(NAME_SUFFIX))
}

/// The same without those that are being kept now.
pub fn left_behind(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = interrupted(dir)?;
    found.retain(|layer| !LayerImage::is_kept_now(layer));
    Ok(found)
}

/// How far the keeping of a try is on one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it was mounted.
    pub mount_point: PathBuf,
    /// What was to be done there, in all.
    pub steps: usize,
    /// How far that is.
    pub progress: Progress,
}

/// What is known of a layer that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// How far it is.
    Parts(Vec<Part>),
    /// Somebody is keeping it now.
    BeingKept,
    /// It is not there any more.
    Gone,
}

/// How far each of them is. Call it from a process with one thread.
pub fn progress(layers: &[PathBuf]) -> Result<Vec<Result<Whereabouts, LayerError>>, LayerError> {
    let scratch = workplace()?;
    Ok(layers.iter().map(|layer| progress_of(layer, &scratch)).collect())
}

fn progress_of(layer: &Path, scratch: &Path) -> Result<Whereabouts, LayerError> {
    let image = match LayerImage::open(layer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Whereabouts::BeingKept),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Whereabouts::Gone),
        image => image,
    };
    let mounted = scratch.join("image");
    let part = |part: &FileSystemPlan| -> io::Result<Part> {
        let known = Record::open(&mounted.join(part.layer.to_string()))?.read()?;
        let steps = part.holds.len() + part.steps.len() + part.contents.len() + part.directories.len();
        Ok(Part { mount_point: part.mount_point.to_path_buf(), steps, progress: known.progress })
    };
    let parts = || -> io::Result<Vec<Part>> {
        image?.mount(&mounted)?;
        let parts = read_plan(&mounted).and_then(|plan| plan.file_systems.iter().map(part).collect());
        let _ = rustix::mount::unmount(&mounted, UnmountFlags::DETACH);
        parts
    };
    let failed = |error| LayerError::Resume { layer: layer.to_owned(), what: crate::why(&error) };
    parts().map(Whereabouts::Parts).map_err(failed)
}

/// A mount namespace of our own, with places for a layer and a file system.
pub(crate) fn workplace() -> Result<PathBuf, LayerError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LayerError::NotRoot);
    }
    let scratch = view::scratch()?;
    for name in ["image", "lower"] {
        std::fs::create_dir(scratch.join(name)).map_err(set_up(name))?;
    }
    Ok(scratch)
}

/// What became of layers that were to be finished.
#[derive(Debug, Default)]
pub struct Resumed {
    /// How many were. Others may have gone meanwhile: somebody else has kept them, or given them up.
    pub kept: usize,
    /// Why others were not.
    pub failures: Vec<LayerError>,
}

/// Finishes them all, those behind one that cannot be finished as well. What somebody else has removed or replaced
/// since is only overwritten by `force`. Call it from a process with one thread.
pub fn resume(layers: &[PathBuf], force: bool) -> Result<Resumed, LayerError> {
    let mounts = RefCell::new(Table::open().map_err(set_up(mountinfo::PATH))?);
    let scratch = workplace()?;
    // What is written is not COMMAND's any more.
    lift_file_size();
    let mut resumed = Resumed::default();
    for layer in layers {
        match resume_one(layer, &scratch, &mounts, force) {
            Ok(is_kept) => resumed.kept += usize::from(is_kept),
            Err(error) => {
                resumed.failures.push(error);
                // Where nothing is mounted, there is nothing to be done.
                for name in ["lower", "image"] {
                    let _ = rustix::mount::unmount(scratch.join(name), UnmountFlags::DETACH);
                }
            }
        }
    }
    Ok(resumed)
}

/// False if it is not there any more.
fn resume_one(layer: &Path, scratch: &Path, mounts: &RefCell<Table>, force: bool) -> Result<bool, LayerError> {
    let failed = |what: String| LayerError::Resume { layer: layer.to_owned(), what };
    let plain = |error: io::Error| failed(crate::why(&error));
    let mut image = match LayerImage::open(layer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(failed("somebody is keeping it now; wait for that".to_owned()));
        }
        // Whoever was keeping it has finished, or has given it up.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        image => image.map_err(plain)?,
    };
    let mounted = scratch.join("image");
    image.mount(&mounted).map_err(plain)?;
    let plan = read_plan(&mounted).map_err(plain)?;
    if is_given_up(&plan, &mounted).map_err(plain)? {
        return Err(failed(format!("it is given up; run speculator try --give-up {} once more", layer.display())));
    }
    for file_system in &plan.file_systems {
        let manner = Manner { stage: &plan.stage, again: true, force, fuse: &Fuse::default(), mounts };
        if !is_lost(file_system, &plan) {
            finish(file_system, scratch, layer, &manner)?;
        }
    }
    image.discard().map_err(plain)?;
    rustix::mount::unmount(&mounted, UnmountFlags::empty()).map_err(|error| plain(error.into()))?;
    Ok(true)
}

/// Whether anybody has begun to.
fn is_given_up(plan: &Plan, image: &Path) -> io::Result<bool> {
    for part in &plan.file_systems {
        if Record::open(&image.join(part.layer.to_string()))?.read()?.progress == Progress::GivenUp {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The plan in a layer that is mounted.
pub(crate) fn read_plan(image: &Path) -> io::Result<Plan> {
    parse_plan(&std::fs::read(image.join(PLAN_NAME))?)
}

/// The version comes first, whatever the rest means.
fn parse_plan(bytes: &[u8]) -> io::Result<Plan> {
    let (version, _) = postcard::take_from_bytes::<u32>(bytes).map_err(io::Error::other)?;
    if version != PLAN_VERSION {
        return Err(io::Error::other("it was made by another version of speculator; use that one"));
    }
    postcard::from_bytes(bytes).map_err(io::Error::other)
}

/// Whether a file system in memory went with an earlier boot of the machine.
pub(crate) fn is_lost(file_system: &FileSystemPlan, plan: &Plan) -> bool {
    matches!(file_system.fs_type.as_str(), "tmpfs" | "devtmpfs") && plan.boot != boot()
}

/// Shows a file system alone at `lower`, if it is still what is mounted where it was; else why not. Something may be
/// mounted at `lower` all the same.
pub(crate) fn show(file_system: &FileSystemPlan, lower: &Path) -> Result<(), String> {
    let mount_point = &file_system.mount_point.0;
    let plain = |error: io::Error| format!("{}: {}", mount_point.display(), crate::why(&error));
    rustix::mount::mount_bind(mount_point, lower)
        .and_then(|()| rustix::mount::mount_remount(lower, MountFlags::BIND | MountFlags::NOATIME, ""))
        .map_err(|error| plain(error.into()))?;
    let root = File::open(lower).and_then(|root| root.metadata()).map_err(plain)?;
    let fs_id = rustix::fs::statvfs(lower).map_err(|error| plain(error.into()))?.f_fsid;
    let is_another = fs_id != file_system.fs_id && has_lasting_id(&file_system.fs_type);
    match root.ino() != file_system.root_ino || is_another {
        true => Err(format!("{} is not what was mounted there; mount it", mount_point.display())),
        false => Ok(()),
    }
}

fn finish(file_system: &FileSystemPlan, scratch: &Path, layer: &Path, manner: &Manner<'_>) -> Result<(), LayerError> {
    let mount_point = &file_system.mount_point.0;
    let failed = |what: String| LayerError::Resume { layer: layer.to_owned(), what };
    let plain = |error: io::Error| failed(format!("{}: {}", mount_point.display(), crate::why(&error)));
    let lower = scratch.join("lower");
    show(file_system, &lower).map_err(failed)?;
    let of_layer = scratch.join("image").join(file_system.layer.to_string());
    apply::apply(file_system, &lower, &of_layer, manner).map_err(|(path, source)| LayerError::Partly {
        path,
        source,
        layer: layer.to_owned(),
    })?;
    rustix::mount::unmount(&lower, UnmountFlags::DETACH).map_err(|error| plain(error.into()))
}

/// Whether the number of such a file system is made of its UUID. Others, as xfs, have that of the device, which may be
/// another one after a boot.
fn has_lasting_id(fs_type: &str) -> bool {
    matches!(fs_type, "ext2" | "ext3" | "ext4" | "btrfs" | "f2fs")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest of it may mean anything.
    #[test]
    fn a_plan_of_another_version_is_known_as_one() {
        let plan = Plan { version: PLAN_VERSION, ..Plan::default() };
        assert_eq!(parse_plan(&postcard::to_stdvec(&plan).unwrap()).unwrap(), plan);
        let other = parse_plan(&postcard::to_stdvec(&(PLAN_VERSION + 1, "short")).unwrap()).unwrap_err();
        assert!(other.to_string().contains("another version"), "{other}");
    }
}
