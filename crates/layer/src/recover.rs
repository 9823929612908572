//! A try whose keeping was interrupted, by a crash or for want of room, is finished here, or given up: its layer has a
//! name and holds the plan.

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
        let name = entry.file_name();
        if LayerImage::is_roots(&entry.metadata()?) && is_name_of_layer(&name) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn is_name_of_layer(name: &OsStr) -> bool {
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

/// How far each of them is. Call it from a process with one thread.
pub fn progress(layers: &[PathBuf]) -> Result<Vec<Result<Vec<Part>, LayerError>>, LayerError> {
    let scratch = workplace()?;
    Ok(layers.iter().map(|layer| progress_of(layer, &scratch)).collect())
}

fn progress_of(layer: &Path, scratch: &Path) -> Result<Vec<Part>, LayerError> {
    let (_image, plan) = open(layer, scratch)?;
    let mounted = scratch.join("image");
    let part = |part: &FileSystemPlan| -> io::Result<Part> {
        let known = Record::open(&mounted.join(part.layer.to_string()))?.read()?;
        let steps = part.holds.len() + part.steps.len() + part.contents.len() + part.directories.len();
        Ok(Part { mount_point: part.mount_point.to_path_buf(), steps, progress: known.progress })
    };
    let parts = plan.and_then(|plan| plan.file_systems.iter().map(part).collect::<io::Result<Vec<_>>>());
    let _ = rustix::mount::unmount(&mounted, UnmountFlags::DETACH);
    parts.map_err(|error| LayerError::Resume { layer: layer.to_owned(), what: crate::why(&error) })
}

/// Removes a layer that will not be finished. What was carried out stays. The directories that hold what had to make
/// room, or was about to get another name; `None` if the plan cannot be read. Call it from a process with one thread.
pub fn give_up(layer: &Path) -> Result<Option<Vec<PathBuf>>, LayerError> {
    let failed = |what: String| LayerError::GiveUp { layer: layer.to_owned(), what };
    if !is_name_of_layer(layer.file_name().unwrap_or_default()) {
        return Err(failed("its name is not that of a layer of speculator try".to_owned()));
    }
    let scratch = workplace()?;
    let (mut image, plan) = open(layer, &scratch).map_err(|error| match error {
        LayerError::Resume { what, .. } => failed(what),
        other => other,
    })?;
    let mounted = scratch.join("image");
    let left = plan.ok().map(|plan| {
        let stages = plan.file_systems.iter().filter_map(|part| leave_stage(part, &plan.stage, &mounted));
        stages.collect()
    });
    image.discard().map_err(|error| failed(crate::why(&error)))?;
    let _ = rustix::mount::unmount(&mounted, UnmountFlags::DETACH);
    Ok(left)
}

/// The stage on a file system, if there is something in it that COMMAND has not made.
fn leave_stage(part: &FileSystemPlan, name: &str, image: &Path) -> Option<PathBuf> {
    let known = Record::open(&image.join(part.layer.to_string())).and_then(|record| record.read()).ok()?;
    let stage = part.mount_point.join(name);
    let found = std::fs::symlink_metadata(&stage).ok()?;
    if !found.is_dir() || known.stage != Some(found.ino()) {
        return None;
    }
    for entry in std::fs::read_dir(&stage).ok()?.flatten() {
        let name = entry.file_name();
        if ["new-", "again-", "busy-"].iter().any(|own| name.as_encoded_bytes().starts_with(own.as_bytes())) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    std::fs::remove_dir(&stage).is_err().then_some(stage)
}

/// A mount namespace of our own, with places for a layer and a file system.
fn workplace() -> Result<PathBuf, LayerError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LayerError::NotRoot);
    }
    let scratch = view::scratch()?;
    for name in ["image", "lower"] {
        std::fs::create_dir(scratch.join(name)).map_err(set_up(name))?;
    }
    Ok(scratch)
}

/// Mounts a layer that nobody else has, if it can be mounted, and reads its plan.
fn open(layer: &Path, scratch: &Path) -> Result<(LayerImage, io::Result<Plan>), LayerError> {
    let failed = |what: String| LayerError::Resume { layer: layer.to_owned(), what };
    let image = LayerImage::open(layer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => failed("somebody is keeping it now".to_owned()),
        _ => failed(crate::why(&error)),
    })?;
    let mounted = scratch.join("image");
    let plan = image.mount(&mounted).and_then(|()| read_plan(&mounted));
    Ok((image, plan))
}

/// Finishes them all, those behind one that cannot be finished as well: what could not be done. Call it from a process
/// with one thread.
pub fn resume(layers: &[PathBuf]) -> Result<(), Vec<LayerError>> {
    let mounts = Table::open().map_err(|error| vec![set_up(mountinfo::PATH)(error)])?;
    let mounts = RefCell::new(mounts);
    let scratch = workplace().map_err(|error| vec![error])?;
    // What is written is not COMMAND's any more.
    lift_file_size();
    let mut failures = Vec::new();
    for layer in layers {
        if let Err(error) = resume_one(layer, &scratch, &mounts) {
            failures.push(error);
            // Where nothing is mounted, there is nothing to be done.
            for name in ["lower", "image"] {
                let _ = rustix::mount::unmount(scratch.join(name), UnmountFlags::DETACH);
            }
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures)
    }
}

fn resume_one(layer: &Path, scratch: &Path, mounts: &RefCell<Table>) -> Result<(), LayerError> {
    let failed = |what: String| LayerError::Resume { layer: layer.to_owned(), what };
    let plain = |error: io::Error| failed(crate::why(&error));
    let (mut image, plan) = open(layer, scratch)?;
    let plan = plan.map_err(plain)?;
    let mounted = scratch.join("image");
    for file_system in &plan.file_systems {
        finish(file_system, &plan, scratch, layer, mounts)?;
    }
    image.discard().map_err(plain)?;
    rustix::mount::unmount(&mounted, UnmountFlags::empty()).map_err(|error| plain(error.into()))
}

fn read_plan(image: &Path) -> io::Result<Plan> {
    let bytes = std::fs::read(image.join(PLAN_NAME))?;
    let plan: Plan = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    if plan.version != PLAN_VERSION {
        return Err(io::Error::other("it was made by another version of speculator"));
    }
    Ok(plan)
}

fn finish(
    file_system: &FileSystemPlan,
    plan: &Plan,
    scratch: &Path,
    layer: &Path,
    mounts: &RefCell<Table>,
) -> Result<(), LayerError> {
    let in_memory = matches!(file_system.fs_type.as_str(), "tmpfs" | "devtmpfs");
    if in_memory && plan.boot != boot() {
        return Ok(());
    }
    let mount_point = &file_system.mount_point.0;
    let failed = |what: String| LayerError::Resume { layer: layer.to_owned(), what };
    let plain = |error: io::Error| failed(format!("{}: {}", mount_point.display(), crate::why(&error)));
    let lower = scratch.join("lower");
    rustix::mount::mount_bind(mount_point, &lower)
        .and_then(|()| rustix::mount::mount_remount(&lower, MountFlags::BIND | MountFlags::NOATIME, ""))
        .map_err(|error| plain(error.into()))?;
    let root = File::open(&lower).and_then(|root| root.metadata()).map_err(plain)?;
    let fs_id = rustix::fs::statvfs(&lower).map_err(|error| plain(error.into()))?.f_fsid;
    let is_another = fs_id != file_system.fs_id && has_lasting_id(&file_system.fs_type);
    if root.ino() != file_system.root_ino || is_another {
        return Err(failed(format!("{} is not what was mounted there; mount it", mount_point.display())));
    }
    let of_layer = scratch.join("image").join(file_system.layer.to_string());
    let manner = Manner { stage: &plan.stage, again: true, fuse: &Fuse::default(), mounts };
    apply::apply(file_system, &lower, &of_layer, &manner).map_err(|(path, source)| LayerError::Partly {
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
