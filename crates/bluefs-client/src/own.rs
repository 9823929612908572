//! Who this process is.

use bluefs::op::GROUPS_MAX;
use bluefs::Cred;

/// As whom this process acts on files.
pub fn own_cred() -> Cred {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.into_iter().map(|gid| gid.as_raw()).take(GROUPS_MAX).collect();
    Cred { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), groups }
}
