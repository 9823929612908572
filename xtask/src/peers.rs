//! `peers`: programs that `bench bluefs` compares with, unpacked below `target/peers`. They are not installed: some
//! would change packages that are there.

use crate::shell::{job, target};

/// Debian's packages, with libraries that some of them need.
const PACKAGES: [&str; 12] = [
    "openssh-server",
    "libwrap0",
    "rclone",
    "user-mode-linux",
    "kmod",
    "libkmod2",
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "libntirpc4.3",
    "liburcu8",
    "libnfsidmap1",
    "libwbclient0",
];

/// Fetches them. What cannot be had is told; it is left out of the measurements.
pub fn run() -> Result<(), String> {
    let into = target().join("peers");
    std::fs::create_dir_all(&into).map_err(|error| format!("cannot make {}: {error}", into.display()))?;
    for package in PACKAGES {
        // Each by itself: one that is not to be had keeps nobody from the others.
        if let Err(problem) = job("apt-get").args(["--quiet", "download", package]).within(&into).run() {
            println!("left out: {package} ({problem})");
        }
    }
    let files = std::fs::read_dir(&into).map_err(|error| format!("cannot read {}: {error}", into.display()))?;
    for file in
        files.flatten().map(|entry| entry.path()).filter(|file| file.extension().is_some_and(|end| end == "deb"))
    {
        job("dpkg").args(["-x".as_ref(), file.as_os_str(), into.join("root").as_os_str()]).run()?;
    }
    Ok(())
}
