//! What COMMAND sees: a tree of mounts, put together below a directory that only this process's mount namespace has.
//!
//! ```text
//!  SCRATCH/            a tmpfs of our own, on a directory of /proc that nobody needs here
//!    image/            the layer's file system: N/upper, N/work/work for each
//!    nothing           an empty file
//!    lower/N           the file system below layer N, alone: without what is mounted on it. Applying writes here
//!    over/N            the overlay
//!    view/             the overlays in their places; the root that COMMAND gets
//! ```

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use procfs::mountinfo::{self, Mount};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::error::{set_up, LayerError};
use crate::image::LayerImage;
use crate::mounts::{self, Place, Treatment};
use crate::object;
use crate::sys;

/// Directories that every machine has and that nothing here looks into.
const SCRATCH: [&str; 3] = ["/proc/fs", "/proc/tty", "/sys/kernel"];

/// Devices that change nothing outside.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Files of the kernel that change it.
const PROC_READ_ONLY: [&str; 8] = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr"];

/// An empty file.
const NOTHING: &str = "nothing";

/// A layer over one file system.
#[derive(Clone, Debug)]
pub struct Layered {
    /// Names it in the layer's file system.
    pub number: usize,
    /// Where the file system is mounted.
    pub mount_point: PathBuf,
    /// What is mounted there.
    pub home: Mount,
    /// The file system itself.
    pub lower: PathBuf,
    /// The overlay's two directories: `upper` and `work`.
    pub layer: PathBuf,
    /// The overlay.
    pub over: PathBuf,
    /// When the root of the upper directory was changed last, and read, before COMMAND was there.
    pub root_changed: (i64, i64),
    pub root_read: (i64, i64),
}

/// Everything that is mounted for a try.
#[derive(Debug)]
pub struct View {
    /// COMMAND's root.
    pub root: PathBuf,
    /// The layers, outermost mount points first.
    pub layers: Vec<Layered>,
    /// What can only be read, and why.
    pub read_only: Vec<(PathBuf, &'static str)>,
    scratch: PathBuf,
    /// Held from the beginning: it hears of everything that could not be written to the layer.
    witness: File,
    fresh: Vec<(PathBuf, String)>,
}

/// A mount namespace of our own, and a place in it for mounts.
pub fn scratch() -> Result<PathBuf, LayerError> {
    sys::unshare_mounts().map_err(set_up("a mount namespace"))?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).map_err(set_up("private mounts"))?;
    let scratch = SCRATCH.iter().map(Path::new).find(|dir| dir.is_dir()).unwrap_or(Path::new("/mnt"));
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("speculator", scratch, "tmpfs", flags, Some(c"mode=0700"))
        .map_err(set_up(scratch.to_string_lossy()))?;
    Ok(scratch.to_owned())
}

impl View {
    /// Builds it. Call it from a process with one thread, which then has a mount namespace of its own.
    pub fn build(image: &LayerImage) -> Result<View, LayerError> {
        let scratch = scratch()?;
        for name in ["image", "lower", "over", "view"] {
            fs::create_dir(scratch.join(name)).map_err(set_up(name))?;
        }
        let nothing = File::create_new(scratch.join(NOTHING)).map_err(set_up(NOTHING))?;
        nothing.set_permissions(fs::Permissions::from_mode(0o444)).map_err(set_up(NOTHING))?;
        image.mount(&scratch.join("image")).map_err(set_up("the layer's file system"))?;
        // Our own scratch is one of them by now; below /proc nothing is looked at.
        let mut places = mounts::places().map_err(set_up(mountinfo::PATH))?;
        let root = scratch.join("view");
        let witness = File::open(scratch.join("image")).map_err(set_up("the layer's file system"))?;
        let mut view = View { root, layers: Vec::new(), read_only: Vec::new(), scratch, witness, fresh: Vec::new() };
        let homes = view.make_layers(&mut places)?;
        for (place, home) in places.iter().zip(homes) {
            match view.put(place, home) {
                // Whoever unmounts something elsewhere and removes its mount point takes it away here as well.
                Err(_) if !mounts::is_visible(&place.mount) => {}
                put => put.map_err(set_up(place.mount.mount_point.to_string_lossy()))?,
            }
        }
        view.devices(&places);
        Ok(view)
    }

    /// A layer for each file system, or part of one, that is not a part of another: where each place is to be found in
    /// them. What turns out not to be able to have a layer can only be read; but the root must have one.
    fn make_layers(&mut self, places: &mut [Place]) -> Result<Vec<Option<PathBuf>>, LayerError> {
        let mut homes: Vec<(Place, PathBuf)> = Vec::new();
        for at in outermost(places) {
            let result = self.make_layer(&places[at]);
            let place = &mut places[at];
            match result {
                Ok(layer) => {
                    homes.push((place.clone(), layer.over.clone()));
                    self.layers.push(layer);
                }
                Err(error) if place.mount.mount_point == Path::new("/") => return Err(error),
                Err(_) => place.treatment = Treatment::ReadOnly(Some("an overlay with an index cannot be put on it")),
            }
        }
        let find = |place: &mut Place| {
            if place.treatment != Treatment::Layer {
                return None;
            }
            let found = homes.iter().find_map(|(home, over)| {
                // An empty component would become a trailing slash.
                let below = mounts::within(place, home)?;
                Some(if below.as_os_str().is_empty() { over.clone() } else { over.join(below) })
            });
            if found.is_none() {
                place.treatment = Treatment::ReadOnly(Some("an overlay with an index cannot be put on it"));
            }
            found
        };
        Ok(places.iter_mut().map(find).collect())
    }

    fn make_layer(&self, place: &Place) -> Result<Layered, LayerError> {
        // Also counts those that failed.
        let made = fs::read_dir(self.scratch.join("lower")).map_or(0, Iterator::count);
        let number = made.to_string();
        let mount_point = place.mount.mount_point.clone();
        let failed = |what: &str| set_up::<io::Error>(format!("{what} {}", mount_point.display()));
        let lower = self.scratch.join("lower").join(&number);
        let over = self.scratch.join("over").join(&number);
        let layer = self.scratch.join("image").join(&number);
        for dir in [&lower, &over, &layer, &layer.join("upper"), &layer.join("work")] {
            fs::create_dir(dir).map_err(failed("a directory for the layer over"))?;
        }
        // Looking at a file must not change its time of access.
        rustix::mount::mount_bind(&mount_point, &lower)
            .and_then(|()| rustix::mount::mount_remount(&lower, MountFlags::BIND | MountFlags::NOATIME, ""))
            .map_err(|error| failed("below the layer over")(error.into()))?;
        // The overlay's root shows what its upper directory has.
        let (from, to) = (object::open(&lower), object::open(&layer.join("upper")));
        from.and_then(|from| object::copy_attributes(from.as_fd(), to?.as_fd()))
            .map_err(failed("the root of the layer over"))?;
        let mut layered = Layered {
            number: made,
            mount_point: mount_point.clone(),
            home: place.mount.clone(),
            lower,
            layer,
            over,
            root_changed: (0, 0),
            root_read: (0, 0),
        };
        layered.mount(flags_of(place)).map_err(failed("an overlay on"))?;
        let root = fs::metadata(layered.layer.join("upper")).map_err(failed("the root of the layer over"))?;
        layered.root_changed = (root.ctime(), root.ctime_nsec());
        layered.root_read = (root.atime(), root.atime_nsec());
        Ok(layered)
    }

    fn put(&mut self, place: &Place, home: Option<PathBuf>) -> io::Result<()> {
        let mount_point = &place.mount.mount_point;
        let at = self.place(mount_point);
        match &place.treatment {
            Treatment::Layer => {
                let home = home.ok_or(io::ErrorKind::NotFound)?;
                rustix::mount::mount_bind(home, &at)?;
                rustix::mount::mount_remount(&at, MountFlags::BIND | flags_of(place), "")?;
            }
            Treatment::ReadOnly(reason) => {
                if rustix::mount::mount_bind(mount_point, &at).is_err() {
                    return self.hide(&at);
                }
                let flags = MountFlags::BIND | MountFlags::RDONLY | flags_of(place);
                rustix::mount::mount_remount(&at, flags, "")?;
                self.read_only.extend(reason.map(|reason| (mount_point.clone(), reason)));
            }
            // It is on something that is not there.
            Treatment::Fresh if !at.is_dir() => {}
            Treatment::Fresh => self.fresh.push((at, place.mount.fs_type.clone())),
            Treatment::Leave if mount_point.starts_with("/proc") => {}
            Treatment::Leave => self.hide(&at)?,
        }
        Ok(())
    }

    /// What is below a mount that is not there must not be changed in its place.
    fn hide(&self, at: &Path) -> io::Result<()> {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        match fs::symlink_metadata(at) {
            Ok(found) if found.is_dir() => {
                rustix::mount::mount("speculator", at, "tmpfs", flags, Some(c"mode=0555"))?;
            }
            // As of a namespace: nobody can remove the file that it is on.
            Ok(_) => {
                rustix::mount::mount_bind(self.scratch.join(NOTHING), at)?;
                rustix::mount::mount_remount(at, MountFlags::BIND | flags, "")?;
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn place(&self, mount_point: &Path) -> PathBuf {
        match mount_point.strip_prefix("/") {
            Ok(below) if !below.as_os_str().is_empty() => self.root.join(below),
            _ => self.root.clone(),
        }
    }

    /// The layers have no devices: a few that are harmless are put there one by one, also where `/dev` is seen in other
    /// places, as in a root for chroot(1).
    fn devices(&self, places: &[Place]) {
        for place in places {
            let dev = self.place(&place.mount.mount_point);
            if place.mount.fs_type == "devtmpfs" || place.mount.mount_point == Path::new("/dev") {
                for name in DEVICES {
                    let _ = rustix::mount::mount_bind(format!("/dev/{name}"), dev.join(name));
                }
            }
        }
    }

    /// From inside, in the new namespaces: what belongs to them is mounted, and the tree becomes the root.
    pub fn enter(&self) -> io::Result<()> {
        let proc = self.place(Path::new("/proc"));
        for (at, fs_type) in &self.fresh {
            match mount_fresh(at, fs_type) {
                // Somebody has taken away what it was to be on, with the root for chroot(1) that it was in.
                Err(error)
                    if *at != proc
                        && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                made => made?,
            }
        }
        rustix::process::chdir(&self.root)?;
        rustix::process::pivot_root(".", ".")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        Ok(rustix::process::chdir("/")?)
    }

    /// Nobody is inside any more: only the file systems and the layer's directories are left.
    pub fn close(&self) -> io::Result<()> {
        rustix::mount::unmount(&self.root, UnmountFlags::DETACH)?;
        for layer in &self.layers {
            rustix::mount::unmount(&layer.over, UnmountFlags::DETACH)?;
        }
        Ok(())
    }

    /// Writes the layer to its file, and says if anything of it could ever not be written.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.witness)?)
    }

    /// The layer's file system.
    pub fn image(&self) -> PathBuf {
        self.scratch.join("image")
    }
}

/// Which of the places are seen through no other: the others share their layers.
fn outermost(places: &[Place]) -> Vec<usize> {
    let layered = || places.iter().enumerate().filter(|(_, place)| place.treatment == Treatment::Layer);
    let is_outermost = |at: usize, place: &Place| {
        !layered().any(|(other_at, other)| {
            let contains = mounts::within(place, other).is_some();
            let same = mounts::within(other, place).is_some();
            contains && other_at != at && (!same || other_at < at)
        })
    };
    layered().filter(|(at, place)| is_outermost(*at, place)).map(|(at, _)| at).collect()
}

fn mount_fresh(at: &Path, fs_type: &str) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match fs_type {
        "devpts" => {
            let options = Some(c"newinstance,ptmxmode=0666,mode=0620,gid=5");
            let terminals = MountFlags::NOSUID | MountFlags::NOEXEC;
            rustix::mount::mount("devpts", at, "devpts", terminals, options)?;
            rustix::mount::mount_bind(at.join("ptmx"), at.with_file_name("ptmx"))?;
        }
        name => rustix::mount::mount(name, at, name, flags, None::<&std::ffi::CStr>)?,
    }
    if fs_type == "proc" {
        protect_proc(at)?;
    }
    Ok(())
}

fn protect_proc(proc: &Path) -> io::Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for name in PROC_READ_ONLY {
        let at = proc.join(name);
        if at.symlink_metadata().is_ok() {
            rustix::mount::mount_bind(&at, &at)?;
            rustix::mount::mount_remount(&at, flags, "")?;
        }
    }
    Ok(())
}

/// A mount's own flags, and never devices.
fn flags_of(place: &Place) -> MountFlags {
    let known = [
        ("nosuid", MountFlags::NOSUID),
        ("noexec", MountFlags::NOEXEC),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::NODIRATIME),
        ("relatime", MountFlags::RELATIME),
    ];
    let options: Vec<&str> = place.mount.mount_options.split(',').collect();
    let given = known.iter().filter(|(name, _)| options.contains(name)).map(|(_, flag)| *flag);
    given.fold(MountFlags::NODEV, |all, flag| all | flag)
}

/// What a program must not notice the layer by, and must be there: directories can be renamed, hard links stay one
/// file, inode numbers do not change. `volatile`: an fsync inside waits for nothing, because nothing of a try is
/// durable before it is kept.
const FEATURES: [&str; 3] = ["redirect_dir=on", "index=on", "xino=on"];

impl Layered {
    fn mount(&self, flags: MountFlags) -> io::Result<()> {
        mount_overlay(&self.lower, &self.layer, &self.over, flags)
    }
}

/// `layer` holds the two directories `upper` and `work`.
fn mount_overlay(lower: &Path, layer: &Path, over: &Path, flags: MountFlags) -> io::Result<()> {
    let options = format!(
        "lowerdir={},upperdir={},workdir={},{},metacopy=off,volatile",
        lower.display(),
        layer.join("upper").display(),
        layer.join("work").display(),
        FEATURES.join(",")
    );
    let options = CString::new(options)?;
    rustix::mount::mount("speculator", over, "overlay", flags, Some(options.as_c_str()))?;
    // The kernel leaves out what it cannot do, and says so only here.
    let mounted = mountinfo::read()?;
    let own = mounted.iter().rev().find(|mount| mount.mount_point == over).ok_or(io::ErrorKind::NotFound)?;
    match FEATURES.iter().all(|feature| own.has_fs_option(feature)) {
        true => Ok(()),
        false => Err(rustix::io::Errno::OPNOTSUPP.into()),
    }
}

/// Whether the root of this machine can have a layer, tried with one in memory. Call it from a process with one thread.
pub fn root_can_have_a_layer() -> io::Result<()> {
    let Some(child) = sys::fork_into(0)? else {
        let errno = over_root().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        sys::exit_now(errno)
    };
    let (_, status) = sys::wait_for(child)?;
    match libc::WEXITSTATUS(status) {
        _ if !libc::WIFEXITED(status) => Err(io::Error::other("what tried it was killed")),
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Its mounts go with this process.
fn over_root() -> io::Result<()> {
    let scratch = scratch().map_err(|error| match error {
        LayerError::SetUp { source, .. } => source,
        _ => io::ErrorKind::Other.into(),
    })?;
    let at = |name: &str| scratch.join(name);
    for name in ["layer", "layer/upper", "layer/work", "lower", "over"] {
        fs::create_dir(at(name))?;
    }
    rustix::mount::mount_bind("/", at("lower"))?;
    mount_overlay(&at("lower"), &at("layer"), &at("over"), MountFlags::NODEV)
}
