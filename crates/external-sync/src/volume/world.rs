//! The volumes of a world: mounted in a mount namespace that only the world sees, so that nobody outside can observe
//! them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountPropagationFlags;

use super::{mount, private, MountedVolume, PrivateMemory, VolumeError};
use crate::sys;

/// `IMAGE:DIR` of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// The image or block device.
    pub image: PathBuf,
    /// Where the world sees it.
    pub dir: PathBuf,
}

impl VolumeSpec {
    /// Splits at the last colon: an image's name may hold one, a directory's may not.
    pub fn parse(text: &OsStr) -> Result<VolumeSpec, VolumeError> {
        let failed = |why| VolumeError::Spec { text: text.to_string_lossy().into_owned(), why };
        let bytes = text.as_bytes();
        let colon = bytes.iter().rposition(|&byte| byte == b':').ok_or_else(|| failed("it has no colon"))?;
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        match (&bytes[..colon], &bytes[colon + 1..]) {
            ([], _) => Err(failed("the image is missing")),
            (_, []) => Err(failed("the directory is missing")),
            (image, dir) => Ok(VolumeSpec { image: path(image), dir: path(dir) }),
        }
    }
}

/// The mounted volumes of a world, in the order in which they were asked for, and its private memory.
#[must_use = "dropping it unmounts the volumes; call unmount()"]
#[derive(Debug, Default)]
pub struct WorldVolumes {
    volumes: Vec<MountedVolume>,
    private: Vec<PrivateMemory>,
}

/// Moves the calling thread into a mount namespace of its own and mounts the volumes there, and a fresh tmpfs on each
/// directory of `private`. What is mounted outside later still appears inside; nothing that is mounted inside appears
/// outside. Afterwards the working directory is entered again by name, because it may now lie on a volume. With nothing
/// to mount nothing is done.
///
/// Call it before other threads are started: they would keep the old namespace.
pub fn mount_for_world(specs: &[VolumeSpec], private: &[PathBuf]) -> Result<WorldVolumes, VolumeError> {
    let mut world = WorldVolumes::default();
    let Some(first) = specs.first().map(|spec| &spec.image).or(private.first()) else { return Ok(world) };
    check_root(first)?;
    enter_own_namespace()?;
    for spec in specs {
        match mount_one(&world, spec) {
            Ok(volume) => world.volumes.push(volume),
            Err(error) => {
                // The first error is the one to tell; nothing has been written to the others yet.
                let _ = world.unmount();
                return Err(error);
            }
        }
    }
    for dir in private {
        match private::mount(dir) {
            Ok(memory) => world.private.push(memory),
            Err(error) => {
                let _ = world.unmount();
                return Err(error);
            }
        }
    }
    if let Ok(dir) = std::env::current_dir() {
        let _ = std::env::set_current_dir(dir);
    }
    Ok(world)
}

fn check_root(image: &Path) -> Result<(), VolumeError> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(VolumeError::NeedsRoot { image: image.to_owned() })
    }
}

fn enter_own_namespace() -> Result<(), VolumeError> {
    sys::unshare_mounts().map_err(|source| VolumeError::Namespace { source })?;
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|error| VolumeError::Namespace { source: error.into() })
}

fn mount_one(world: &WorldVolumes, spec: &VolumeSpec) -> Result<MountedVolume, VolumeError> {
    let dir = std::fs::canonicalize(&spec.dir).unwrap_or_else(|_| spec.dir.clone());
    if world.volumes.iter().any(|volume| volume.dir() == dir) {
        return Err(VolumeError::SameMountPoint { dir });
    }
    mount(&spec.image, &spec.dir)
}

impl WorldVolumes {
    /// The mounted volumes.
    pub fn iter(&self) -> impl Iterator<Item = &MountedVolume> {
        self.volumes.iter()
    }

    /// Memory that only this world sees.
    pub fn take_private(&mut self) -> Vec<PrivateMemory> {
        std::mem::take(&mut self.private)
    }

    /// Gives up this process's part in them: after a fork, the other process unmounts them.
    pub fn release(mut self) {
        for volume in self.volumes.drain(..) {
            volume.keep();
        }
    }

    /// Unmounts all, the last one first, after the last process of the world is gone; the first error is returned.
    pub fn unmount(mut self) -> Result<(), VolumeError> {
        let mut result = Ok(());
        while let Some(volume) = self.volumes.pop() {
            result = result.and(volume.unmount());
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<(&str, &str)>) {
        let found = VolumeSpec::parse(OsStr::new(text)).ok();
        let expect = expect.map(|(image, dir)| VolumeSpec { image: image.into(), dir: dir.into() });
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn specs() {
        check("a.img:/mnt", Some(("a.img", "/mnt")));
        check("/x/a:b.img:dir", Some(("/x/a:b.img", "dir")));
        check("a.img", None);
        check("a.img:", None);
        check(":/mnt", None);
    }
}
