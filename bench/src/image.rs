//! The file system that peers are compared on: one ext4 image, made once, mounted `data=journal` for each run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inside::output_of;

/// An ext4 image with a large journal, as `speculator volume create` makes them; removed when dropped.
pub struct Image {
    directory: PathBuf,
    file: PathBuf,
}

/// A mounted image; unmounted, and thereby flushed, when dropped.
pub struct Mounted<'a> {
    at: PathBuf,
    _image: &'a Image,
}

impl Image {
    /// Makes an image of `size_mb` with a journal of `journal_mb`, on the disk that `TMPDIR` is on.
    pub fn make(size_mb: u32, journal_mb: u32) -> Result<Image, String> {
        let directory = std::env::temp_dir().join(format!("speculator-bench-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("mnt"))
            .map_err(|error| format!("cannot make {directory:?}: {error}"))?;
        let image = Image { file: directory.join("ordered.img"), directory };
        let mut command = Command::new("mkfs.ext4");
        command.args(["-q", "-F", "-J", &format!("size={journal_mb}"), "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        command.arg(&image.file).arg(format!("{size_mb}M"));
        output_of(command)?;
        Ok(image)
    }

    /// Mounts it with `options` beside `data=journal`.
    pub fn mount(&self, options: &str) -> Result<Mounted<'_>, String> {
        let at = self.directory.join("mnt");
        let all =
            if options.is_empty() { "loop,data=journal".to_owned() } else { format!("loop,data=journal,{options}") };
        let mut command = Command::new("mount");
        command.args(["-t", "ext4", "-o", &all]).arg(&self.file).arg(&at);
        output_of(command).map_err(|problem| format!("{problem}; mounting needs root and loop devices"))?;
        Ok(Mounted { at, _image: self })
    }

    /// A file beside the image, outside of it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // What cannot be removed is left in TMPDIR; the measurement stands.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Mounted<'_> {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Somebody who looks at every mount (`speculator doctor`) may be looking at this one.
        for _ in 0..50 {
            if Command::new("umount").arg("-q").arg(&self.at).status().is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        eprintln!("bench: cannot unmount {}", self.at.display());
    }
}
