//! Where commands run: the directory that they find, made once, and copied for each run; and what a run left there.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes what commands work on.
const FIXTURE: &str = include_str!("../fixture.sh");

/// A directory with the program that is tested, the fixture, and the runs.
pub struct Place {
    /// The program that is tested.
    pub speculator: PathBuf,
    root: PathBuf,
}

impl Place {
    /// Makes the fixture.
    pub fn new(speculator: &Path, root: &Path) -> Result<Place, String> {
        let told = |what: &str, path: &Path, error| format!("cannot {what} {}: {error}", path.display());
        let speculator = fs::canonicalize(speculator).map_err(|error| told("find", speculator, error))?;
        fs::create_dir_all(root.join("fixture")).map_err(|error| told("make", root, error))?;
        let root = fs::canonicalize(root).map_err(|error| told("find", root, error))?;
        let made = Command::new("bash").args(["-c", FIXTURE]).current_dir(root.join("fixture")).output();
        let made = made.map_err(|error| format!("cannot start bash: {error}"))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            return Err(format!("cannot make what the commands work on: {}", said.trim()));
        }
        Ok(Place { speculator, root })
    }

    /// A fresh copy of the fixture, always at the same path, so that what depends on the path is the same in each run.
    pub fn fresh(&self) -> Result<PathBuf, String> {
        let work = self.work();
        let _ = fs::remove_dir_all(&work);
        let copied = Command::new("cp").arg("-a").arg(self.fixture()).arg(&work).status();
        match copied {
            Ok(status) if status.success() => Ok(work),
            _ => Err(format!("cannot copy the fixture to {}", work.display())),
        }
    }

    /// Where commands run.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// What they find there.
    pub fn fixture(&self) -> PathBuf {
        self.root.join("fixture")
    }

    /// Where stands what the last run printed.
    pub fn results(&self) -> PathBuf {
        self.root.join("results")
    }

    /// An empty directory for what a run prints.
    pub fn empty_results(&self) -> Result<PathBuf, String> {
        let results = self.results();
        let _ = fs::remove_dir_all(&results);
        fs::create_dir(&results).map_err(|error| format!("cannot make {}: {error}", results.display()))?;
        Ok(results)
    }

    /// Removes all of it.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// What stands in a directory: of each name its kind, mode, and contents.
pub type Tree = BTreeMap<PathBuf, String>;

/// Looks at a directory. Git's index and its logs hold times and inodes of files; of those only that they are there.
pub fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
            found.insert(name, told_of(&path));
        }
    }
    found
}

fn told_of(path: &Path) -> String {
    let Ok(about) = fs::symlink_metadata(path) else { return "gone".to_owned() };
    let kind = about.file_type();
    let mode = format!("{:o}", about.mode());
    if kind.is_symlink() {
        return format!("{mode} -> {}", fs::read_link(path).unwrap_or_default().display());
    }
    if !kind.is_file() || kind.is_fifo() || holds_times(path) {
        return mode;
    }
    let mut hasher = DefaultHasher::new();
    fs::read(path).unwrap_or_default().hash(&mut hasher);
    format!("{mode} {} bytes, {:016x}", about.len(), hasher.finish())
}

/// Whether the contents of a file differ between two runs of the same command, natively too.
fn holds_times(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let is_of_git = name.contains("/.git/") || name.contains(".git/");
    let times =
        ["index", "logs/", "objects/", "packed-refs", "ORIG_HEAD", "refs/", "FETCH_HEAD", "MSG", "rebase", "BISECT"];
    is_of_git && times.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_tells_contents_modes_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("sub/file"), "one").unwrap();
        std::os::unix::fs::symlink("file", at("sub/link")).unwrap();
        let before = tree(folder.path());
        assert_eq!(before.len(), 3);
        assert!(before[Path::new("sub/link")].ends_with("-> file"));
        fs::write(at("sub/file"), "two").unwrap();
        assert_ne!(before, tree(folder.path()));
    }
}
