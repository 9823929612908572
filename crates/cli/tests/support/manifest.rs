//! Everything that can be told of a tree, to compare it with another, or with itself later.
#![allow(dead_code)] // Each test file uses its part.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::SeekFrom;

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: &'static str,
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, i64),
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// A file's bytes, a link's target, a device's number.
    pub contents: Vec<u8>,
    /// Where there is data, and where there are holes.
    pub segments: Vec<(u64, u64)>,
    pub blocks: u64,
    pub links: u64,
    /// All names of it in the tree.
    pub names: Vec<PathBuf>,
    /// Inode and times that cannot be set: only equal if nothing was done at all.
    pub identity: (u64, (i64, i64), (i64, i64)),
}

/// A tree, by paths below its root.
pub type Manifest = BTreeMap<PathBuf, Entry>;

/// Looks at everything. Twice, because looking for the first time may change a time of access.
pub fn manifest(root: &Path) -> Manifest {
    // How many blocks a file has is known when it is written out.
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
    walk(root);
    walk(root)
}

fn walk(root: &Path) -> Manifest {
    let mut found = Manifest::new();
    let mut names: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    visit(root, Path::new(""), &mut found, &mut names);
    for entry in found.values_mut() {
        entry.names = names[&entry.identity.0].clone();
    }
    found
}

fn visit(root: &Path, at: &Path, found: &mut Manifest, names: &mut BTreeMap<u64, Vec<PathBuf>>) {
    let path = if at.as_os_str().is_empty() { root.to_owned() } else { root.join(at) };
    let metadata = fs::symlink_metadata(&path).unwrap();
    found.insert(at.to_owned(), entry(&path, &metadata));
    names.entry(metadata.ino()).or_default().push(at.to_owned());
    if metadata.is_dir() {
        let mut inside: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        inside.sort();
        for name in inside {
            visit(root, &at.join(name), found, names);
        }
    }
}

fn entry(path: &Path, metadata: &fs::Metadata) -> Entry {
    let kind = metadata.file_type();
    let (name, contents, segments) = match () {
        () if kind.is_dir() => ("directory", Vec::new(), Vec::new()),
        () if kind.is_symlink() => {
            ("symlink", fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(), Vec::new())
        }
        () if kind.is_fifo() => ("fifo", Vec::new(), Vec::new()),
        () if kind.is_socket() => ("socket", Vec::new(), Vec::new()),
        () if kind.is_file() => {
            let mut file = OpenOptions::new().read(true).custom_flags(libc_noatime()).open(path).unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            ("file", bytes, segments(&file))
        }
        () => ("device", metadata.rdev().to_string().into_bytes(), Vec::new()),
    };
    Entry {
        kind: name,
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        xattrs: xattrs(path),
        contents,
        segments,
        blocks: if kind.is_file() { metadata.blocks() } else { 0 },
        links: metadata.nlink(),
        names: Vec::new(),
        identity: (
            metadata.ino(),
            (metadata.ctime(), metadata.ctime_nsec()),
            (metadata.atime(), metadata.atime_nsec()),
        ),
    }
}

fn libc_noatime() -> i32 {
    rustix::fs::OFlags::NOATIME.bits() as i32
}

fn segments(file: &File) -> Vec<(u64, u64)> {
    let (mut at, mut found) = (0, Vec::new());
    while let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap();
        found.push((data, at));
    }
    found
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 64 << 10];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            value.truncate(len);
            (String::from_utf8(name.to_vec()).unwrap(), value)
        })
        .collect()
}

/// Waits, and says from which second on times are new, and not those of what was made before. A file gets the time of
/// the clock's last tick, which may be in the second before.
pub fn await_news() -> i64 {
    const TICK: Duration = Duration::from_millis(50);
    std::thread::sleep(Duration::from_secs(1) + 2 * TICK);
    (SystemTime::now() - TICK).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}

/// What is left to compare between two runs of one script: times from `since` on are only known to be new.
pub fn comparable(mut tree: Manifest, since: i64) -> Manifest {
    for entry in tree.values_mut() {
        entry.identity = (0, (0, 0), (0, 0));
        if entry.mtime.0 >= since {
            entry.mtime = (i64::MAX, 0);
        }
    }
    tree
}

/// The first difference, in words.
#[track_caller]
pub fn assert_same(expected: &Manifest, found: &Manifest, what: &str) {
    for (path, entry) in expected {
        match found.get(path) {
            None => panic!("{what}: {} is missing", path.display()),
            Some(other) if other != entry => {
                panic!("{what}: {} differs:\n  expected {}\n  found    {}", path.display(), short(entry), short(other))
            }
            Some(_) => {}
        }
    }
    if let Some(path) = found.keys().find(|path| !expected.contains_key(*path)) {
        panic!("{what}: {} should not be there", path.display());
    }
}

fn short(entry: &Entry) -> String {
    let mut entry = entry.clone();
    let len = entry.contents.len();
    entry.contents.truncate(60);
    format!("{entry:?} ({len} bytes)")
}
