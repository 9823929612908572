//! What `speculator mount` needs of this machine, for `speculator doctor`.

use std::fs::OpenOptions;

use serde::Serialize;

use crate::error::plain;

/// The first kernel that keeps names, attributes, listings and mapped contents for as long as the server promises.
const KERNEL: (u32, u32) = (6, 16);

/// One of these things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    /// What it is.
    pub name: &'static str,
    /// Whether it is there; without it a mount may be slower (`limits`), or impossible.
    pub is_there: bool,
    /// Whether there are mounts without it.
    pub only_limits: bool,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub advice: Option<&'static str>,
}

/// All of them, as they are here.
pub fn needs() -> Vec<Need> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map(drop).map_err(|error| plain(&error));
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    vec![may_mount(rustix::process::geteuid().is_root()), of_device(device), of_kernel(&release)]
}

fn may_mount(is_root: bool) -> Need {
    let (detail, advice) = match is_root {
        true => ("you are root", None),
        false => ("you are not root", Some("mount as root; serve, invite and bluefs batch work without")),
    };
    Need { name: "the right to mount", is_there: is_root, only_limits: false, detail: detail.to_owned(), advice }
}

fn of_device(opened: Result<(), String>) -> Need {
    let (is_there, detail, advice) = match opened {
        Ok(()) => (true, "/dev/fuse can be opened".to_owned(), None),
        Err(why) => (
            false,
            format!("/dev/fuse: {why}"),
            Some("load the fuse module (modprobe fuse), as root; in a container, --device /dev/fuse"),
        ),
    };
    Need { name: "FUSE", is_there, only_limits: false, detail, advice }
}

fn of_kernel(release: &str) -> Need {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|word| word.parse::<u32>().ok());
    let found = numbers.next().zip(numbers.next());
    let is_there = found.is_some_and(|found| found >= KERNEL);
    let (major, minor) = KERNEL;
    let detail = match is_there {
        true => format!("{release}: the kernel answers what is sure by itself"),
        false => format!("{release}: before {major}.{minor} the mount's process is asked about each name and listing"),
    };
    Need { name: "the kernel's caches", is_there, only_limits: true, detail, advice: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        for (release, is_there) in [("6.16.0", true), ("6.18.5-amd64", true), ("7.0-rc1", true), ("10.1", true)]
            .into_iter()
            .chain([("6.9.1", false), ("5.20.3", false), ("6.1.0-9", false), ("", false), ("six", false)])
        {
            assert_eq!(of_kernel(release).is_there, is_there, "{release}");
        }
    }

    #[test]
    fn what_is_missing_says_what_to_do() {
        assert!(may_mount(false).advice.is_some() && may_mount(true).advice.is_none());
        let missing = of_device(Err("not found".to_owned()));
        assert!(!missing.is_there && missing.advice.is_some() && missing.detail == "/dev/fuse: not found");
    }
}
