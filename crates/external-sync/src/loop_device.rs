//! Loop devices: a regular file seen as a block device. A device is attached with "autoclear": it lets go of its file
//! when its last user (a mount, or the [`LoopDevice`]) is gone, however that came about.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::sys;

const ATTACH_ATTEMPTS: u32 = 64;

/// A device attached by us; the file is let go of when this is dropped, unless something is mounted from it by then.
pub struct LoopDevice {
    path: PathBuf,
    _device: File,
}

/// Why no device could be attached.
pub enum AttachError {
    /// `/dev/loop-control` or the device itself cannot be had.
    NoDevice(PathBuf, io::Error),
    /// The kernel refused the file.
    Refused(io::Error),
}

impl LoopDevice {
    /// Attaches `image` (open for reading and writing). The device shares the open file description: an flock(2) held
    /// on it lasts as long as the device keeps the file.
    pub fn attach(image: &File, name: &Path) -> Result<LoopDevice, AttachError> {
        let control_path = Path::new("/dev/loop-control");
        let no_device = |path: &Path| {
            let path = path.to_owned();
            move |error| AttachError::NoDevice(path, error)
        };
        let control = open_rw(control_path).map_err(no_device(control_path))?;
        for attempt in 0..ATTACH_ATTEMPTS {
            let number = sys::loop_free(&control).map_err(no_device(control_path))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open_rw(&path).map_err(no_device(&path))?;
            match sys::loop_configure(&device, image, name.as_os_str().as_bytes()) {
                Ok(()) => return Ok(LoopDevice { path, _device: device }),
                // Somebody else took the free device between the two calls.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(Duration::from_millis(u64::from(attempt)));
                }
                Err(error) => return Err(AttachError::Refused(error)),
            }
        }
        Err(AttachError::Refused(io::Error::from_raw_os_error(libc::EBUSY)))
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn open_rw(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// The loop devices that the file with this metadata is attached to, whoever did it, under whatever name.
pub fn attached_to(image: &fs::Metadata) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| backing_of(&entry.path()) == Some((image.dev(), image.ino())))
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .collect()
}

/// Device and inode of what is attached to a block device, given its folder in `/sys/block`.
fn backing_of(sys_block: &Path) -> Option<(u64, u64)> {
    let name = backing_name(sys_block)?;
    let device = Path::new("/dev").join(sys_block.file_name()?);
    // The device knows best; the name (all that an ordinary user can see) may have been renamed or replaced since.
    if let Ok(found) = File::open(device).and_then(|device| sys::loop_backing(&device)) {
        return Some(found);
    }
    let found = fs::metadata(name).ok()?;
    Some((found.dev(), found.ino()))
}

fn backing_name(sys_block: &Path) -> Option<PathBuf> {
    let name = fs::read(sys_block.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.trim_ascii_end())))
}

/// The images that a block device shows, or parts of them: it may be a loop device, a partition of one, or made of
/// others (device mapper, md). `sys_block` is its folder in `/sys`.
pub fn images_below(sys_block: PathBuf) -> Vec<PathBuf> {
    const DEVICES_MAX: usize = 256;
    let (mut images, mut left, mut looked_at) = (Vec::new(), vec![sys_block], 0);
    while let Some(device) = left.pop() {
        let Ok(device) = fs::canonicalize(device) else { continue };
        // A partition stands in the folder of its disk.
        let disk = if device.join("partition").exists() { device.parent().unwrap_or(&device) } else { &device };
        images.extend(backing_name(disk));
        let below = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
        left.extend(below.map(|entry| entry.path()));
        looked_at += 1;
        if looked_at == DEVICES_MAX {
            break;
        }
    }
    images
}

/// The name of the file behind a loop device such as `/dev/loop3`, as the kernel remembers it.
pub fn backing_file(device: &Path) -> Option<PathBuf> {
    backing_name(&Path::new("/sys/block").join(device.file_name()?))
}

/// Waits until a loop device has let go of its file; false when it has not after `patience`.
pub fn wait_until_free(device: &Path, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    while backing_file(device).is_some() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_behind_partitions_and_what_is_made_of_them() {
        let sys = tempfile::tempdir().unwrap();
        let make = |name: &str, text: &str| {
            let path = sys.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for number in 0..2 {
            make(&format!("loop{number}/loop/backing_file"), &format!("/images/{number}\n"));
            make(&format!("loop{number}/loop{number}p1/partition"), "1\n");
        }
        make("vda/vda1/partition", "1\n");
        for (made, of) in [("dm-0", "loop0/loop0p1"), ("dm-0", "vda/vda1"), ("dm-1", "dm-0"), ("dm-1", "loop1")] {
            let slaves = sys.path().join(made).join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            std::os::unix::fs::symlink(sys.path().join(of), slaves.join(of.replace('/', "-"))).unwrap();
        }
        let found = |name: &str| {
            let mut images = images_below(sys.path().join(name));
            images.sort();
            images
        };
        let [first, second] = ["/images/0", "/images/1"].map(PathBuf::from);
        assert_eq!(found("loop0"), std::slice::from_ref(&first));
        assert_eq!(found("loop1/loop1p1"), std::slice::from_ref(&second));
        assert_eq!(found("dm-0"), std::slice::from_ref(&first));
        assert_eq!(found("dm-1"), [first, second]);
        assert!(found("vda/vda1").is_empty());
        assert!(found("no-such-device").is_empty());
    }
}
