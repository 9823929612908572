//! Loop devices: a file seen as a block device, until the last user of the device is gone, however that came about.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::CrashError;
use super::sys;

const ATTACH_ATTEMPTS: u32 = 64;
const DETACH_PATIENCE: Duration = Duration::from_secs(5);

/// A loop device that we attached; detached on drop.
pub(super) struct LoopDevice {
    path: PathBuf,
    device: Option<File>,
}

impl LoopDevice {
    /// Attaches `image` to a free device. `name` is what losetup(8) shows.
    pub fn attach(image: &File, name: &Path) -> Result<LoopDevice, CrashError> {
        let control = open_rw(Path::new("/dev/loop-control"))?;
        let mut attempt = 0;
        loop {
            let number = sys::loop_free(&control);
            let number = number.map_err(CrashError::system("find a free loop device"))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open_rw(&path)?;
            match sys::loop_configure(&device, image, name.as_os_str().as_bytes()) {
                Ok(()) => {
                    let device = Some(device);
                    return Ok(LoopDevice { path, device });
                }
                // Somebody else took it between the two calls.
                Err(error) if is_busy(&error) && attempt < ATTACH_ATTEMPTS => {
                    std::thread::sleep(Duration::from_millis(attempt.into()));
                }
                Err(source) => return Err(CrashError::system(format!("attach to {}", path.display()))(source)),
            }
            attempt += 1;
        }
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the kernel read the image again. Nothing may be mounted from the device.
    pub fn forget_cache(&self) -> Result<(), CrashError> {
        let device = self.device.as_ref();
        let flushed = device.map_or(Ok(()), sys::forget_cache);
        flushed.map_err(CrashError::system(format!("drop the cache of {}", self.path.display())))
    }

    fn is_attached(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default();
        fs::exists(Path::new("/sys/block").join(name).join("loop/backing_file")).unwrap_or(false)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            // An error leaves it to autoclear, when the file is closed below.
            let _ = sys::loop_clear(&device);
        }
        let end = Instant::now() + DETACH_PATIENCE;
        while self.is_attached() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

fn open_rw(path: &Path) -> Result<File, CrashError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(CrashError::system(format!("open {}", path.display())))
}
