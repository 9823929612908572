//! What has to be done to keep a try. The plan is written into the layer before the first step, and each step can tell
//! by looking whether it was done: after a crash the whole plan is carried out again (`recover`).
//!
//! For each file system there are phases, each finished before the next:
//! 1. `holds`: what will have another name is taken hold of in the *stage*, a directory at the file system's root:
//!    files by a further link, directories by a rename, those below others first.
//! 2. `steps`, from the root down: what has to go is renamed into the stage, what is new is made, what is held gets its
//!    new names.
//! 3. `contents`: files that were changed are changed in place.
//! 4. All of that is flushed, and the layer says that it is done. The stage is removed, and with it what had to go.
//! 5. `directories` get their owners, modes, attributes and times, and the layer says that all is done.
//!
//! Nothing is destroyed before phase 3, and inode numbers of what had to go cannot be used again before phase 4: so a
//! number tells whether a step was done. What is made keeps a name in the stage, which tells that it was made here.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::overlay_format::Handle;

/// Changes when the meaning of a plan does.
pub const PLAN_VERSION: u32 = 3;
/// Its name in the layer's file system.
pub const PLAN_NAME: &str = "plan";

/// A path that need not be text. Relative: to the root of the file system, or of its layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rel(pub PathBuf);

impl std::ops::Deref for Rel {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Serialize for Rel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_os_str().as_bytes().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<u8>::deserialize(deserializer).map(|bytes| Rel(OsString::from_vec(bytes).into()))
    }
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// What the stage is called, on each file system.
    pub stage: String,
    /// The machine's boot: file systems in memory do not outlive it.
    pub boot: String,
    /// One for each file system that changes.
    pub file_systems: Vec<FileSystemPlan>,
}

/// One file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemPlan {
    /// Where it was mounted.
    pub mount_point: Rel,
    /// What it was.
    pub fs_type: String,
    /// Inode of what was mounted there.
    pub root_ino: u64,
    /// Which file system that was (`f_fsid` of statvfs(3)).
    pub fs_id: u64,
    /// Its number: `N/upper` in the layer's file system holds its new objects.
    pub layer: usize,
    /// Phase 1.
    pub holds: Vec<Hold>,
    /// Phase 2.
    pub steps: Vec<Step>,
    /// Phase 3.
    pub contents: Vec<Contents>,
    /// Phase 5.
    pub directories: Vec<Directory>,
}

/// An object that gets other names. Its number in the list names it in the stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// Anything but a directory.
    File {
        /// Which.
        handle: Handle,
        /// Its number.
        ino: u64,
    },
    /// A directory with everything in it.
    Directory {
        /// Where it was before.
        from: Rel,
        /// Its number.
        ino: u64,
    },
}

/// Phase 2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Into the stage with it, if it is still this one.
    Trash {
        /// Where it is.
        at: Rel,
        /// Its number.
        ino: u64,
    },
    /// What is held gets a name.
    Place {
        /// Which.
        hold: usize,
        /// Its name.
        at: Rel,
    },
    /// A new object, but no directory.
    Create {
        /// Its name.
        at: Rel,
        /// What it is like, in the layer.
        source: Rel,
    },
    /// A further name of a new object.
    Link {
        /// Its name.
        at: Rel,
        /// A name that it has.
        to: Rel,
    },
    /// A new directory.
    MakeDir {
        /// Its name.
        at: Rel,
    },
}

impl Step {
    /// The name that it is about.
    pub fn at(&self) -> &Rel {
        match self {
            Step::Trash { at, .. }
            | Step::Place { at, .. }
            | Step::Create { at, .. }
            | Step::Link { at, .. }
            | Step::MakeDir { at } => at,
        }
    }
}

/// A file that was changed; the handle finds it under whatever name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Which.
    pub handle: Handle,
    /// One of its names, for messages, and for replacing a program that is being run.
    pub at: Rel,
    /// What it is like, in the layer.
    pub source: Rel,
}

/// What is said of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Its name.
    pub at: Rel,
    /// What it is like, in the layer.
    pub source: Rel,
    /// Somebody else changed it meanwhile: the later of the two times is right.
    pub keep_later_time: bool,
}

impl FileSystemPlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let Self { holds, steps, contents, directories, .. } = self;
        holds.is_empty() && steps.is_empty() && contents.is_empty() && directories.is_empty()
    }

    /// The first name that what is held gets.
    pub fn place_of(&self, held: usize) -> Option<&Rel> {
        let is_it = |step: &&Step| matches!(step, Step::Place { hold, .. } if *hold == held);
        self.steps.iter().find(is_it).map(Step::at)
    }
}
