//! What each call of a log observes and modifies, by the rows of the system-call table.

use crate::step::{Change, Kind, Object, Process, Step, Touch};
use crate::strace::{descriptor, string, Call};
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use syscall_table::{Op, Row, CWD, ROWS};

/// Turns calls into steps. `tree` is the directory that a file server would hold, `existing` are the names in it
/// before the first call, and `outside` the objects (as strace names them) that lead out of the world.
pub fn steps(calls: &[Call], tree: &Path, existing: HashSet<PathBuf>, outside: &[String]) -> Vec<Step> {
    let rows = ROWS.iter().map(|row| (row.name, row)).collect();
    let outside = outside.iter().cloned().collect();
    let mut reader = Reader {
        rows,
        tree: tree.to_owned(),
        existing,
        outside,
        start: calls.first().map_or(0.0, |call| call.time),
        ..Reader::default()
    };
    reader.learn_births(calls);
    for call in calls {
        reader.read(call);
    }
    reader.steps
}

/// What is a key of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Name(PathBuf),
    /// The list of names in a directory.
    Entries(PathBuf),
    /// A file's contents and attributes. The number tells files apart that had one name after the other.
    File(PathBuf, u32),
    /// A pipe, socket or other object without a name.
    Nameless(String),
    Lock(PathBuf),
}

#[derive(Default)]
struct Reader {
    rows: HashMap<&'static str, &'static Row>,
    tree: PathBuf,
    existing: HashSet<PathBuf>,
    outside: HashSet<String>,
    start: f64,
    objects: HashMap<Key, Object>,
    /// Which file has a name, if it is not the first one.
    files: HashMap<PathBuf, (PathBuf, u32)>,
    generations: HashMap<PathBuf, u32>,
    sizes: HashMap<(PathBuf, u32), u64>,
    positions: HashMap<(Process, i32), u64>,
    processes: HashMap<u32, Process>,
    parents: HashMap<u32, (u32, bool)>,
    born: HashSet<u32>,
    steps: Vec<Step>,
}

impl Reader {
    /// Who makes which thread, and whether that is a process of its own: a child may be heard of before its parent's
    /// call ends.
    fn learn_births(&mut self, calls: &[Call]) {
        for call in calls.iter().filter(|call| is_birth(&call.name) && call.result > 0) {
            let thread = call.arguments.iter().any(|argument| argument.contains("CLONE_THREAD"));
            self.parents.insert(call.result as u32, (call.thread, thread));
        }
    }

    /// The process of a thread; its birth is told when it is first heard of.
    fn process(&mut self, thread: u32, time: f64) -> Process {
        if let Some(&process) = self.processes.get(&thread) {
            return process;
        }
        let process = match self.parents.get(&thread).copied() {
            None => thread,
            Some((parent, is_thread)) => {
                let parent = self.process(parent, time);
                if is_thread {
                    parent
                } else {
                    let step = Step {
                        time: time - self.start,
                        process: parent,
                        kind: Kind::Birth(thread),
                        touches: Vec::new(),
                        guesses: false,
                    };
                    self.steps.push(step);
                    thread
                }
            }
        };
        self.born.insert(thread);
        self.processes.insert(thread, process);
        process
    }

    fn object(&mut self, key: Key) -> Object {
        let next = self.objects.len() as Object;
        *self.objects.entry(key).or_insert(next)
    }

    fn read(&mut self, call: &Call) {
        let process = self.process(call.thread, call.time);
        if is_birth(&call.name) {
            // Its step was pushed, or is pushed here.
            if call.result > 0 && !self.born.contains(&(call.result as u32)) {
                self.process(call.result as u32, call.time);
            }
            return;
        }
        let mut step =
            Step { time: call.time - self.start, process, kind: Kind::Call, touches: Vec::new(), guesses: false };
        match self.rows.get(call.name.as_str()) {
            Some(row) => self.touch(&mut step, call, row.op),
            None => step.kind = Kind::Barrier,
        }
        self.steps.push(step);
    }

    fn touch(&mut self, step: &mut Step, call: &Call, op: Op) {
        let failed = call.result < 0;
        match op {
            Op::Read { fd } | Op::Recv { fd } | Op::RecvMsg { fd } | Op::RecvMmsg { fd } => {
                self.transfer(step, call, fd, false);
            }
            Op::Write { fd } | Op::Send { fd } | Op::SendMsg { fd } | Op::SendMmsg { fd } => {
                self.transfer(step, call, fd, true);
            }
            Op::Copy { input, output } => {
                self.transfer(step, call, input, false);
                self.transfer(step, call, output, true);
            }
            Op::ObserveFd { fd } => {
                if call.name == "lseek" && !failed {
                    if let Some(number) = argument(call, fd).and_then(descriptor).map(|(number, _)| number) {
                        self.positions.insert((step.process, number), call.result as u64);
                    }
                }
                step.touches.extend(self.behind(call, fd).map(Touch::Observe));
            }
            Op::ModifyFd { fd } => {
                let kept = if call.name == "ftruncate" { self.size_behind(call, fd) } else { 0 };
                step.touches.extend(self.behind(call, fd).map(|file| Touch::Modify(file, Change::Contents { kept })));
            }
            Op::Open | Op::OpenAt | Op::OpenAt2 | Op::Creat => self.open(step, call, op),
            Op::ObservePath { .. }
            | Op::StatPath { .. }
            | Op::Statx
            | Op::Chdir
            | Op::Execve
            | Op::Execveat
            | Op::AddWatch { .. } => {
                for path in self.paths(call, op) {
                    self.look(step, &path);
                }
            }
            Op::ModifyPath { .. } | Op::ModifyPaths { .. } => self.change_names(step, call, op),
            Op::Poll | Op::Select if call.result > 0 => {
                let names = call.arguments.iter().flat_map(|argument| nameless_in(argument));
                let names: Vec<String> = names.filter(|name| !self.outside.contains(*name)).map(connection).collect();
                for name in names {
                    let object = self.object(Key::Nameless(name));
                    step.touches.push(Touch::Observe(object));
                }
            }
            Op::Mmap => {
                // A file that is mapped for reading is observed. One that several write by mappings waits.
                let shared = call.arguments.iter().any(|argument| argument.contains("MAP_SHARED"));
                let writes = call.arguments.iter().any(|argument| argument.contains("PROT_WRITE"));
                let file = self.behind(call, 4);
                match file {
                    Some(_) if shared && writes => step.kind = Kind::Barrier,
                    Some(file) => step.touches.push(Touch::Observe(file)),
                    None => (),
                }
            }
            Op::Flock => self.lock(step, call),
            Op::Fcntl if call.arguments.get(1).is_some_and(|command| command.contains("LK")) => self.lock(step, call),
            Op::Wait if call.result > 0 => step.kind = Kind::Reap(call.result as u32),
            Op::Kill | Op::Tkill | Op::Tgkill if !failed => {
                let receiver = argument(call, 0).and_then(|pid| pid.parse().ok());
                let receiver = receiver.and_then(|pid: u32| self.processes.get(&pid).copied());
                step.kind = match receiver {
                    Some(receiver) if receiver == step.process => Kind::Call,
                    Some(receiver) => Kind::Signal(receiver),
                    None => Kind::Barrier,
                };
            }
            Op::Barrier | Op::Mount | Op::OtherProcess => step.kind = Kind::Barrier,
            // Whatever else concerns the process alone, or has no effect until it is asked about.
            _ => (),
        }
    }

    /// Data from an object or to it.
    fn transfer(&mut self, step: &mut Step, call: &Call, position: u8, writes: bool) {
        let Some((number, Some(name))) = argument(call, position).and_then(descriptor) else { return };
        if call.result <= 0 {
            step.touches.extend(self.behind(call, position).map(Touch::Observe));
            return;
        }
        let count = call.result as u64;
        if self.outside.contains(name) {
            if writes {
                step.kind = Kind::Output;
            }
            return;
        }
        let Some(object) = self.behind(call, position) else { return };
        let Some(path) = path_of(name) else {
            step.touches.push(Touch::Modify(object, Change::Queue));
            return;
        };
        let file = self.file_at(&path);
        let positioned = call.name.starts_with('p');
        let at = match positioned {
            true => call.arguments.get(3).and_then(|offset| offset.parse().ok()).unwrap_or(0),
            false => self.positions.get(&(step.process, number)).copied().unwrap_or(0),
        };
        if !positioned {
            self.positions.insert((step.process, number), at + count);
        }
        if writes {
            let size = self.sizes.entry(file).or_insert(0);
            let kept = size.saturating_sub(at).min(count);
            *size = (*size).max(at + count);
            step.touches.push(Touch::Modify(object, Change::Contents { kept }));
        } else {
            step.touches.push(Touch::Observe(object));
        }
    }

    fn open(&mut self, step: &mut Step, call: &Call, op: Op) {
        let Some(path) = self.paths(call, op).into_iter().next() else { return };
        let flags = call.arguments.iter().find(|argument| argument.contains("O_")).cloned().unwrap_or_default();
        let creates = matches!(op, Op::Creat) || flags.contains("O_CREAT");
        let empties = matches!(op, Op::Creat) || flags.contains("O_TRUNC");
        self.look(step, &path);
        if call.result < 0 {
            return;
        }
        self.positions.insert((step.process, call.result as i32), 0);
        if creates && !self.exists(&path) {
            self.make(step, &path);
        } else if empties {
            let file = self.file_at(&path);
            let kept = self.sizes.insert(file.clone(), 0).unwrap_or(0);
            let object = self.object(Key::File(file.0, file.1));
            step.touches.push(Touch::Modify(object, Change::Contents { kept }));
        }
    }

    fn change_names(&mut self, step: &mut Step, call: &Call, op: Op) {
        let paths = self.paths(call, op);
        for path in &paths {
            self.look(step, path);
        }
        if call.result < 0 {
            return;
        }
        let Some(first) = paths.first() else { return };
        match (call.name.as_str(), paths.get(1)) {
            ("mkdir" | "mkdirat" | "symlink" | "symlinkat" | "mknod" | "mknodat", _) => self.make(step, first),
            ("link" | "linkat", Some(second)) => {
                let file = self.file_at(first);
                self.make(step, second);
                self.files.insert(second.clone(), file);
            }
            ("rename" | "renameat" | "renameat2", Some(second)) => {
                let file = self.file_at(first);
                self.remove(step, first);
                if self.exists(second) {
                    self.remove(step, second);
                }
                self.make(step, second);
                self.files.insert(second.clone(), file);
            }
            ("unlink" | "unlinkat" | "rmdir", _) => self.remove(step, first),
            // Attributes.
            _ => {
                let file = self.file_at(first);
                let kept = if call.name == "truncate" { self.sizes.get(&file).copied().unwrap_or(0) } else { 0 };
                let object = self.object(Key::File(file.0, file.1));
                step.touches.push(Touch::Modify(object, Change::Contents { kept }));
            }
        }
    }

    fn make(&mut self, step: &mut Step, path: &Path) {
        self.modify_name(step, path, Change::NewName);
        self.existing.insert(path.to_owned());
        let generation = self.generations.entry(path.to_owned()).or_insert(0);
        *generation += 1;
        self.files.insert(path.to_owned(), (path.to_owned(), *generation));
    }

    fn remove(&mut self, step: &mut Step, path: &Path) {
        self.modify_name(step, path, Change::OldName);
        self.existing.remove(path);
    }

    fn modify_name(&mut self, step: &mut Step, path: &Path, change: Change) {
        let name = self.object(Key::Name(path.to_owned()));
        step.touches.push(Touch::Modify(name, change));
        if let Some(directory) = path.parent() {
            let entries = self.object(Key::Entries(directory.to_owned()));
            step.touches.push(Touch::Modify(entries, Change::NewName));
        }
    }

    /// A name is looked up, and what has it is looked at.
    fn look(&mut self, step: &mut Step, path: &Path) {
        step.guesses |= path.starts_with(&self.tree);
        let name = self.object(Key::Name(path.to_owned()));
        step.touches.push(Touch::Observe(name));
        if self.exists(path) {
            let (path, generation) = self.file_at(path);
            let file = self.object(Key::File(path, generation));
            step.touches.push(Touch::Observe(file));
        }
    }

    fn lock(&mut self, step: &mut Step, call: &Call) {
        if let Some(path) = argument(call, 0).and_then(descriptor).and_then(|(_, name)| path_of(name?)) {
            let lock = self.object(Key::Lock(path));
            step.touches.push(Touch::Modify(lock, Change::Queue));
        }
    }

    /// The tree's names are known; elsewhere only what the programs made is new.
    fn exists(&self, path: &Path) -> bool {
        self.existing.contains(path) || (!path.starts_with(&self.tree) && !self.generations.contains_key(path))
    }

    fn file_at(&self, path: &Path) -> (PathBuf, u32) {
        self.files.get(path).cloned().unwrap_or_else(|| (path.to_owned(), 0))
    }

    fn size_behind(&self, call: &Call, position: u8) -> u64 {
        let path = argument(call, position).and_then(descriptor).and_then(|(_, name)| path_of(name?));
        path.and_then(|path| self.sizes.get(&self.file_at(&path)).copied()).unwrap_or(0)
    }

    /// The object behind a descriptor.
    fn behind(&mut self, call: &Call, position: u8) -> Option<Object> {
        let (_, name) = argument(call, position).and_then(descriptor)?;
        let name = name?;
        if self.outside.contains(name) || name.starts_with("/dev/") || name.starts_with("/proc/") {
            return None;
        }
        let key = match path_of(name) {
            Some(path) if call.name.starts_with("getdents") => Key::Entries(path),
            Some(path) => {
                let (path, generation) = self.file_at(&path);
                Key::File(path, generation)
            }
            None => Key::Nameless(connection(name)),
        };
        Some(self.object(key))
    }

    /// The paths of a call, absolute.
    fn paths(&self, call: &Call, op: Op) -> Vec<PathBuf> {
        let places = op.paths().into_iter().flatten();
        places.filter_map(|(directory, path)| self.path(call, directory, path)).collect()
    }

    fn path(&self, call: &Call, directory: u8, path: u8) -> Option<PathBuf> {
        let path = Path::new(argument(call, path).and_then(string)?);
        if path.is_absolute() {
            return Some(plain(path));
        }
        // strace says where a descriptor leads. A call without one is relative to a directory that nobody says: the
        // tree is close enough, names in it are told apart.
        let directory = match directory {
            CWD => None,
            position => argument(call, position).and_then(|text| text.split_once('<')).map(|(_, rest)| rest),
        };
        let directory = directory.and_then(|rest| rest.strip_suffix('>')).map_or(self.tree.as_path(), Path::new);
        Some(plain(&directory.join(path)))
    }
}

fn is_birth(name: &str) -> bool {
    matches!(name, "fork" | "vfork" | "clone" | "clone3")
}

fn argument(call: &Call, position: u8) -> Option<&str> {
    call.arguments.get(usize::from(position)).map(String::as_str)
}

/// The path of a file that has one; `(deleted)` behind it is strace's.
fn path_of(name: &str) -> Option<PathBuf> {
    let name = name.split_once('<').map_or(name, |(path, _)| path);
    name.starts_with('/').then(|| PathBuf::from(name.trim_end_matches("(deleted)").trim_end()))
}

/// Both ends of a connection are one object.
fn connection(name: &str) -> String {
    let Some((kind, ends)) = name.split_once(":[") else { return name.to_owned() };
    let Some((near, far)) = ends.trim_end_matches(']').split_once("->") else { return name.to_owned() };
    let (low, high) = if near <= far { (near, far) } else { (far, near) };
    format!("{kind}:[{low}->{high}]")
}

/// Pipes and sockets that are named in an argument of `poll`.
fn nameless_in(argument: &str) -> impl Iterator<Item = &str> {
    argument.split("fd=").skip(1).filter_map(|text| {
        let (_, rest) = text.split_once('<')?;
        let (name, _) = rest.split_once(">,").or_else(|| rest.split_once('>'))?;
        (!name.starts_with('/')).then_some(name)
    })
}

/// Without `.` and `..`, as far as that can be said of the text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => (),
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strace::parse;

    fn read(log: &str) -> Vec<Step> {
        steps(&parse(log), Path::new("/w"), HashSet::from([PathBuf::from("/w/old")]), &["pipe:[9]".to_owned()])
    }

    fn modifies(step: &Step) -> Vec<Change> {
        let changes = step.touches.iter().filter_map(|touch| match touch {
            Touch::Modify(_, change) => Some(*change),
            Touch::Observe(_) => None,
        });
        changes.collect()
    }

    #[test]
    fn what_was_not_there_is_a_new_name() {
        let log = "1 1.0 openat(AT_FDCWD</w>, \"new\", O_WRONLY|O_CREAT, 0666) = 3</w/new>";
        let steps = read(log);
        assert_eq!(modifies(&steps[0]), [Change::NewName, Change::NewName]);
        assert!(steps[0].guesses);
    }

    #[test]
    fn overwritten_bytes_are_kept_and_appended_ones_are_not() {
        let log = "1 1.0 openat(AT_FDCWD</w>, \"new\", O_WRONLY|O_CREAT, 0666) = 3</w/new>\n\
                   1 1.1 write(3</w/new>, \"\", 10) = 10\n\
                   1 1.2 pwrite64(3</w/new>, \"\", 10, 5) = 10";
        let steps = read(log);
        assert_eq!(modifies(&steps[1]), [Change::Contents { kept: 0 }]);
        assert_eq!(modifies(&steps[2]), [Change::Contents { kept: 5 }]);
    }

    #[test]
    fn a_removed_name_was_there() {
        let steps = read("1 1.0 unlinkat(AT_FDCWD</w>, \"old\", 0) = 0");
        assert_eq!(modifies(&steps[0]), [Change::OldName, Change::NewName]);
    }

    #[test]
    fn a_file_keeps_its_identity_when_it_is_renamed() {
        let log = "1 1.0 write(3</w/old>, \"\", 1) = 1\n\
                   1 1.1 rename(\"/w/old\", \"/w/other\") = 0\n\
                   1 1.2 write(3</w/other>, \"\", 1) = 1";
        let steps = read(log);
        assert_eq!(steps[0].touches[0], steps[2].touches[0]);
    }

    #[test]
    fn a_child_that_is_heard_of_before_its_parent_s_call_ends_is_born_first() {
        let log = "1 1.0 vfork( <unfinished ...>\n2 1.1 getpid() = 2\n1 1.2 <... vfork resumed>) = 2";
        let kinds: Vec<Kind> = read(log).iter().map(|step| step.kind).collect();
        assert_eq!(kinds, [Kind::Birth(2), Kind::Call]);
    }

    #[test]
    fn both_ends_of_a_connection_are_one_object() {
        assert_eq!(connection("UNIX-STREAM:[2->1]"), connection("UNIX-STREAM:[1->2]"));
    }

    #[test]
    fn what_leads_outside_is_output() {
        assert_eq!(read("1 1.0 write(1<pipe:[9]>, \"\", 1) = 1")[0].kind, Kind::Output);
    }
}
