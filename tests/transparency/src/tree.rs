//! What a directory holds: names, types, modes, owners, link counts, contents. Not times, inode numbers, sizes of
//! directories: two runs of the same program differ in them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type, mode, link count, owner.
    pub about: String,
    /// A regular file's bytes, a link's target; empty for everything else and for ignored files.
    pub content: Vec<u8>,
}

/// A tree: from path, relative to its root, to entry.
pub type Tree = BTreeMap<String, Entry>;

/// Reads the tree at `root`. `ignored` are names (or `*` and an ending) whose content does not count.
pub fn read(root: &Path, ignored: &[String]) -> io::Result<Tree> {
    let mut tree = Tree::new();
    read_into(root, "", ignored, &mut tree)?;
    Ok(tree)
}

fn read_into(directory: &Path, under: &str, ignored: &[String], tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if under.is_empty() { name.clone() } else { format!("{under}/{name}") };
        let metadata = fs::symlink_metadata(entry.path())?;
        let content = content(&entry.path(), &metadata, is_ignored(&name, ignored))?;
        tree.insert(path.clone(), Entry { about: about(&metadata), content });
        if metadata.is_dir() {
            read_into(&entry.path(), &path, ignored, tree)?;
        }
    }
    Ok(())
}

fn content(path: &Path, metadata: &fs::Metadata, ignored: bool) -> io::Result<Vec<u8>> {
    if metadata.is_symlink() {
        return Ok(fs::read_link(path)?.as_os_str().as_encoded_bytes().to_vec());
    }
    if metadata.is_file() && !ignored {
        return fs::read(path);
    }
    Ok(Vec::new())
}

fn about(metadata: &fs::Metadata) -> String {
    let kind = metadata.file_type();
    let letter = match () {
        () if kind.is_dir() => 'd',
        () if kind.is_symlink() => 'l',
        () if kind.is_fifo() => 'p',
        () if kind.is_socket() => 's',
        () if kind.is_char_device() || kind.is_block_device() => 'b',
        () => '-',
    };
    let mode = metadata.mode() & 0o7777;
    format!("{letter} {mode:04o} links {} owner {}:{}", metadata.nlink(), metadata.uid(), metadata.gid())
}

/// Whether `name` matches one of `patterns`: a name, `*ENDING` or `START*`.
pub fn is_ignored(name: &str, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(ending), _) => name.ends_with(ending),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_a_name_a_start_or_an_ending() {
        let patterns = ["index".to_owned(), "*.log".to_owned(), "tmp*".to_owned()];
        for (name, expected) in [("index", true), ("a.log", true), ("tmp1", true), ("index2", false)] {
            assert_eq!(is_ignored(name, &patterns), expected, "{name}");
        }
    }
}
