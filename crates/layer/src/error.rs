//! Why a try could not be made, or not be kept. The text says what, where, why, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use external_sync::advice_on_lack;

use crate::why;

/// Every failure of ours.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// An ordinary user cannot mount.
    #[error("cannot try anything: a layer over the file systems needs root; run as root")]
    NotRoot,
    /// Something of the layer, the view or the namespaces.
    #[error(
        "cannot make a layer: {what}: {}; {}",
        why(source), advice_on_lack(source).unwrap_or("see speculator doctor")
    )]
    SetUp {
        /// What was being done.
        what: String,
        /// The kernel's word.
        source: io::Error,
    },
    /// The directory that COMMAND is to be in.
    #[error("cannot run anything in the working directory: {}; change to another one", why(.0))]
    WorkingDirectory(io::Error),
    /// The directory for the layer.
    #[error("cannot make a layer in {}: {what}: {}; {}", dir.display(), why(source), advice_on_place(source))]
    Place {
        /// The directory.
        dir: PathBuf,
        /// What was being done.
        what: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
    /// A program of e2fsprogs is missing or failed.
    #[error("cannot make a layer: mkfs.ext4: {0}; install e2fsprogs, or choose another place with --layer-dir")]
    Mkfs(String),
    /// COMMAND itself.
    #[error("cannot run {}: {}; check it and the interpreter that it names", program.display(), why(source))]
    Exec {
        /// Its path.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Everything inside was killed by somebody.
    #[error("the first process of the try was killed; everything was undone, see dmesg (out of memory?)")]
    InsideDied,
    /// What COMMAND did cannot be read from the layer.
    #[error("cannot tell what changed at {}: {}; everything was undone", path.display(), why(source))]
    Scan {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is not enough room to keep everything.
    #[error(
        "cannot keep: {}{} needs {needed} bytes and has {free}; make room and try again, everything was undone",
        path.display(), together_with(others)
    )]
    NoRoom {
        /// The file system.
        path: PathBuf,
        /// Where other parts of it are mounted, whose needs are counted as well.
        others: Vec<PathBuf>,
        /// Bytes of new data.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// There are not enough inodes to keep everything.
    #[error(
        "cannot keep: {} needs {needed} inodes and has {free}; remove files there and try again, everything was undone",
        path.display()
    )]
    NoInodes {
        /// The file system.
        path: PathBuf,
        /// New ones.
        needed: u64,
        /// Those that are free.
        free: u64,
    },
    /// The file system would refuse it half way.
    #[error("cannot keep: {}: {why}; everything was undone", path.display())]
    Unkeepable {
        /// What.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// Keeping would undo what somebody else did.
    #[error("cannot keep: somebody else changed {count} of these things as well, such as {}; everything was undone, use --force to let COMMAND win", path.display())]
    Conflict {
        /// How many.
        count: usize,
        /// One of them.
        path: PathBuf,
    },
    /// The intent could not be written: nothing has changed.
    #[error("cannot keep: {what}: {}; everything was undone", why(source))]
    Intent {
        /// What was being done.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// Half of the plan is carried out; the rest is safe in the layer.
    #[error(
        "kept only in part: {}: {}; the rest is safe in {}: remove the cause, then run speculator try --resume \
         --layer-dir {} (or --give-up)",
        path.display(), why(source), layer.display(), place(layer).display()
    )]
    Partly {
        /// Where it stopped.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// The layer's image.
        layer: PathBuf,
    },
    /// What was held back could not be written out.
    #[error("kept, but what COMMAND printed cannot be shown: {}; check where stdout and stderr lead", why(.0))]
    Release(io::Error),
    /// A layer that nobody wants to finish.
    #[error("cannot give up {}: {what}; it was left as it is", layer.display())]
    GiveUp {
        /// The layer's image.
        layer: PathBuf,
        /// Why not.
        what: String,
    },
    /// The same, behind the moment from which nobody can finish it.
    #[error(
        "given up only in part: {what}; remove the cause, then run speculator try --give-up {} once more, or use \
         --force",
        layer.display()
    )]
    GivenUpInPart {
        /// The layer's image.
        layer: PathBuf,
        /// Why not.
        what: String,
    },
    /// A layer that was left behind by a crash.
    #[error("cannot finish {}: {what}; it was left as it is", layer.display())]
    Resume {
        /// The layer's image.
        layer: PathBuf,
        /// Why not.
        what: String,
    },
}

fn together_with(others: &[PathBuf]) -> String {
    let others: Vec<String> = others.iter().map(|other| other.display().to_string()).collect();
    if others.is_empty() {
        String::new()
    } else {
        format!(" (together with {})", others.join(" and "))
    }
}

/// For `--layer-dir`.
fn place(layer: &Path) -> &Path {
    layer.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl LayerError {
    /// 126 or 127 where COMMAND is to blame, as env(1) has it; else 125.
    pub fn status(&self) -> u8 {
        match self {
            Self::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Exec { .. } => 126,
            _ => 125,
        }
    }
}

fn advice_on_place(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EFBIG) => "raise the limit of file sizes (ulimit -f)",
        _ => advice_on_lack(error).unwrap_or("choose another place with --layer-dir"),
    }
}

/// For `map_err`: where a layer is to be, and what was being done.
pub(crate) fn in_place<E: Into<io::Error>>(dir: &Path, what: &'static str) -> impl FnOnce(E) -> LayerError + use<E> {
    let dir = dir.to_owned();
    move |source| LayerError::Place { dir, what, source: source.into() }
}

/// For `map_err`: what was being done.
pub(crate) fn set_up<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> LayerError {
    let what = what.into();
    move |source| LayerError::SetUp { what, source: source.into() }
}
