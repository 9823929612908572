//! A try whose keeping was interrupted, by a crash or for want of room, is finished here: its layer has a name and
//! holds the plan.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::mountinfo::{self, Table};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::apply::{self, Fuse, Manner};
use crate::attempt::boot;
use crate::error::{set_up, LayerError};
use crate::image::{LayerImage, NAME_PREFIX, NAME_SUFFIX};
use crate::plan::{FileSystemPlan, Plan, PLAN_NAME, PLAN_VERSION};
use crate::view;

/// The layers in a directory whose keeping was begun and not finished.
pub fn interrupted(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let metadata = entry.metadata()?;
        let is_ours = metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o077 == 0;
        if is_ours && name.starts_with(NAME_PREFIX) && name.ends_with(NAME_SUFFIX) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Finishes them all, those behind one that cannot be finished as well: what could not be done. Call it from a process
/// with one thread.
pub fn resume(layers: &[PathBuf]) -> Result<(), Vec<LayerError>> {
    if !rustix::process::geteuid().is_root() {
        return Err(vec![LayerError::NotRoot]);
    }
    let mounts = Table::open().map_err(|error| vec![set_up(mountinfo::PATH)(error)])?;
    let mounts = RefCell::new(mounts);
    let scratch = view::scratch().map_err(|error| vec![error])?;
    for name in ["image", "lower"] {
        std::fs::create_dir(scratch.join(name)).map_err(|error| vec![set_up(name)(error)])?;
    }
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
    let mut image = LayerImage::open(layer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => failed("somebody is keeping it now".to_owned()),
        _ => plain(error),
    })?;
    let mounted = scratch.join("image");
    image.mount(&mounted).map_err(plain)?;
    let plan = read_plan(&mounted).map_err(plain)?;
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
