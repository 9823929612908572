//! An ordered file system to work on, mounted so that nobody else sees it and nothing is left behind.

use std::path::{Path, PathBuf};

use crate::shell::{is_root, job, Job};

/// An image in a directory of its own; removed when dropped. It is mounted by the jobs that run [`Volume::around`] it.
pub struct Volume {
    directory: PathBuf,
}

impl Volume {
    /// Makes an ext4 image with a large journal; needs root, loop devices and mount namespaces.
    pub fn make(name: &str, size_mb: u32) -> Result<Volume, String> {
        if !is_root() {
            return Err("mounting a volume needs root".to_owned());
        }
        // Directly under /tmp: an ordinary user has to get there. Short, and of the same length whatever the process's
        // number is: a socket's path has at most 107 bytes.
        let directory = std::env::temp_dir().join(format!("speculator-{name}-{:06x}", std::process::id()));
        std::fs::create_dir_all(directory.join("mnt"))
            .map_err(|error| format!("cannot make {directory:?}: {error}"))?;
        let volume = Volume { directory };
        let journal = format!("size={}", size_mb / 4);
        let mkfs = job("mkfs.ext4").args(["-q", "-F", "-J", &journal]).args([volume.image()]);
        mkfs.args([format!("{size_mb}M")]).output()?;
        Ok(volume)
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.directory.join("volume.img")
    }

    /// Where it is mounted, for those who see it.
    pub fn path(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    /// A job that runs what is added to it with the volume mounted, in a mount namespace of its own: when its last
    /// process has ended, the mount is gone.
    pub fn around(&self, program: &Path) -> Job {
        let script = "mount -t ext4 -o loop,data=journal \"$0\" \"$1\" && chmod 755 \"$1\" && shift && exec \"$@\"";
        let job = job("unshare").args(["--mount", "sh", "-c", script]).args([self.image(), self.path()]);
        job.args([program])
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Left in TMPDIR at worst.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
