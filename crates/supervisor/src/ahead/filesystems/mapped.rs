//! Files that processes have mapped: what is done to those is seen without a call.

use procfs::Maps;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Device and inode.
type Inode = (u64, u64);

/// Files that somebody has mapped, or had.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    files: HashSet<Inode>,
    /// Of some process it could not be found out: every file counts.
    is_unknown: bool,
}

impl Mapped {
    /// A file is mapped now.
    pub fn note(&mut self, file: Inode) {
        self.files.insert(file);
    }

    /// What a process has mapped.
    pub fn learn(&mut self, maps: procfs::Result<Maps>) {
        match procfs::unless_gone(maps) {
            Ok(maps) => self.files.extend(files_of(&maps)),
            Err(_) => self.is_unknown = true,
        }
    }

    /// Whether a file may be mapped.
    pub fn may_be(&self, file: Inode) -> bool {
        self.is_unknown || self.files.contains(&file)
    }
}

/// Whether a process may have one of these files mapped.
pub(in crate::ahead) fn may_map(maps: procfs::Result<Maps>, is_one: impl Fn(&Inode) -> bool) -> bool {
    procfs::unless_gone(maps).map_or(true, |maps| files_of(&maps).any(|file| is_one(&file)))
}

/// Whether a process may have a file mapped that is below one of these directories.
pub(in crate::ahead) fn may_map_below(maps: procfs::Result<Maps>, dirs: &[PathBuf]) -> bool {
    let is_below = |path: &str| dirs.iter().any(|dir| Path::new(path).starts_with(dir));
    procfs::unless_gone(maps).map_or(true, |maps| maps.iter().any(|mapping| is_below(mapping.name)))
}

fn files_of(maps: &Maps) -> impl Iterator<Item = Inode> + '_ {
    maps.files().map(|((major, minor), inode)| (rustix::fs::makedev(major, minor), inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::ProcessId;

    const INIT: ProcessId = ProcessId::from_raw(1);

    fn unreadable() -> procfs::Result<Maps> {
        let source = std::io::Error::from_raw_os_error(libc::EACCES);
        Err(procfs::Error::Unreadable { task: INIT.into(), name: "maps".to_owned(), source })
    }

    #[test]
    fn a_file_is_mapped_unless_all_maps_could_be_read() {
        let mut mapped = Mapped::default();
        mapped.learn(Err(procfs::Error::Gone(INIT.into())));
        mapped.learn(Maps::parse(INIT, "1000-2000 r--p 00000000 08:01 7 /a".to_owned()));
        let disk = rustix::fs::makedev(8, 1);
        assert!(mapped.may_be((disk, 7)) && !mapped.may_be((disk, 8)));
        mapped.learn(unreadable());
        assert!(mapped.may_be((disk, 8)));
    }

    #[test]
    fn what_is_mapped_below_a_directory_is_found_by_its_path() {
        let below = |dir: &str| {
            let maps = Maps::parse(INIT, "1000-2000 r--p 00000000 08:01 7    /a/bc/d".to_owned());
            may_map_below(maps, &[dir.into()])
        };
        assert!(below("/a/bc") && !below("/a/b") && !below("/d"));
        assert!(may_map_below(unreadable(), &[]));
    }

    #[test]
    fn a_process_that_cannot_be_looked_at_may_have_mapped_anything() {
        assert!(may_map(unreadable(), |_| false));
        assert!(!may_map(Err(procfs::Error::Gone(INIT.into())), |_| true));
    }
}
