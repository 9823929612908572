//! Who hears of what happens to files (inotify(7), fanotify(7)). The kernel tells of what is held when it is made. That
//! is early enough for those who do not depend on what it waits for. Who does would see the change and hear nothing of
//! it, or wait for its word for ever: such a change is not held, but waits.

use crate::ahead::calls::plan::Class;
use crate::ahead::filesystems::disk::attribute_calls::{named, Named};
use crate::ahead::filesystems::disk::names::{dir_of, path_text, paths_of};
use crate::ahead::filesystems::path_walk::End;
use crate::ahead::{process, Call};
use crate::event_loop::Supervisor;
use agent_abi::option;
use procfs::{ProcessId, Watch};
use rustix::fs::Stat;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Supervisor {
    /// Whether a call would hold a change of which somebody inside is to hear at once: who depends on all that the
    /// caller depends on, and watches the file or its directory.
    pub(in crate::ahead) fn is_heard_inside(&mut self, call: &Call, class: &Class) -> bool {
        // Or came from outside with its watches.
        const MAY_WATCH: u32 = option::FILES_WATCHED | option::OUTSIDE_EVENTS;
        if self.world().options.load(Ordering::Relaxed) & MAY_WATCH == 0 {
            return false;
        }
        let by_descriptor = match class {
            Class::Deferred { fd } => Some(*fd),
            Class::Truncation => Some(call.frame.args[0] as i32),
            Class::Attributes => match named(call) {
                Named::Open(fd) | Named::Descriptor(fd) => Some(fd),
                Named::Path => None,
            },
            Class::Names | Class::Emptying | Class::Creation => None,
            _ => return false,
        };
        let marks = self.marks_inside(call.pid);
        if marks.are_none() {
            return false;
        }
        let files = match by_descriptor {
            Some(fd) => self.copy_descriptor(call.tid, fd).ok().map(|file| around(&file)),
            None => self.files_named(call),
        };
        // What cannot be looked at may be watched.
        files.is_none_or(|files| files.iter().any(|file| marks.concern(file)))
    }

    /// What is watched by those who depend on all that a process depends on.
    fn marks_inside(&mut self, pid: ProcessId) -> Marks {
        let pids = self.processes();
        let (core, children) = (&self.ahead.core, &self.ahead.children);
        let own = core.dependencies_of_process(process(pid));
        let hears_at_once = |&other: &ProcessId| {
            !children.has_ended(other) && own.is_subset(core.dependencies_of_process(process(other)))
        };
        Marks::of(pids.into_iter().filter(hears_at_once))
    }

    /// The files and directories that the paths of a call name, and the directories in which they are. `None`: they are
    /// not known.
    fn files_named(&self, call: &Call) -> Option<Vec<Stat>> {
        let mut files = Vec::new();
        for (dir, at) in paths_of(syscall_table::op(call.frame.nr)?) {
            let text = path_text(call, at)?;
            let len = text.iter().rposition(|&byte| byte != b'/').map_or(text.len(), |last| last + 1);
            // Whether a last link is followed is the call's to say: what it leads to, and where it is, are looked at.
            for follows in [false, true] {
                match self.walk(call.tid, call.pid, dir_of(call, dir), &text[..len], follows).end {
                    End::Entry(entry) => {
                        files.push(entry.dir.stat);
                        files.extend(entry.found.map(|found| found.stat));
                    }
                    End::File(found) => files.extend(around(&found.fd)),
                    End::Nowhere(_) => {}
                    End::Unknown => return None,
                }
            }
        }
        Some(files)
    }
}

/// A file, and the directory in which it is.
fn around(file: &OwnedFd) -> Vec<Stat> {
    let path = procfs::own_name(file).unwrap_or_default();
    let dir = rustix::fs::stat(path.parent().unwrap_or(Path::new("/")));
    rustix::fs::fstat(file).into_iter().chain(dir).collect()
}

/// Whether anybody hears of what happens in a directory (inotify(7), fanotify(7)).
pub(in crate::ahead) fn is_watched(dir: &Stat) -> bool {
    Marks::read().concern(dir)
}

/// What is watched on this machine. What cannot be looked at may be.
#[derive(Debug)]
struct Marks(Option<Vec<Watch>>);

impl Marks {
    fn read() -> Self {
        procfs::machine::processes().map_or(Self(None), Self::of)
    }

    /// What these processes watch.
    fn of(processes: impl IntoIterator<Item = ProcessId>) -> Self {
        let all = processes.into_iter().map(|pid| procfs::unless_gone(procfs::watches(pid)).ok());
        Self(all.collect::<Option<Vec<_>>>().map(|all| all.concat()))
    }

    fn are_none(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    fn concern(&self, file: &Stat) -> bool {
        let device = (rustix::fs::major(file.st_dev), rustix::fs::minor(file.st_dev));
        self.0.as_ref().is_none_or(|watches| watches.iter().any(|watch| watch.concerns(device, file.st_ino)))
    }
}

/// Who hears of what happens to files, as of a moment ago: for many files at once.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Watchers {
    read: Option<(Instant, Marks)>,
}

impl Watchers {
    const TIME: Duration = Duration::from_secs(1);

    /// Whether anybody hears of this file, by itself or by its directory.
    pub fn hear(&mut self, file: &OwnedFd) -> bool {
        if self.read.as_ref().is_none_or(|(at, _)| at.elapsed() > Self::TIME) {
            self.read = Some((Instant::now(), Marks::read()));
        }
        let path = procfs::own_name(file).unwrap_or_default();
        let dir = rustix::fs::stat(path.parent().unwrap_or(Path::new("/")));
        let (Some((_, marks)), Ok(file), Ok(dir)) = (&self.read, rustix::fs::fstat(file), dir) else { return true };
        marks.concern(&file) || marks.concern(&dir)
    }
}
