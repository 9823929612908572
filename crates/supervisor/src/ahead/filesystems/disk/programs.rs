//! Programs that only those inside find: files that a guess has made, and scripts that lead to or come from such a
//! file ([0123](../../../../../../docs/decisions/0123-programs-made-on-a-guess.md)).
//!
//! The process executes the file by way of a descriptor of ours, in `/proc`. The kernel takes the program's name from
//! that path: before the first instruction it is given the one by which the program was asked for, in the two places
//! where the kernel has put it ([`Executed::name`]). A script is not left to the kernel, which would hand that path on:
//! its interpreter is executed with the arguments that the kernel would make of it.

use crate::ahead::calls::ask::Decision;
use crate::ahead::calls::plan::{Class, Plan};
use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::filesystems::disk::names::path_text;
use crate::ahead::filesystems::disk::watchers;
use crate::ahead::filesystems::path_walk::{End, Entry, Found};
use crate::ahead::{process, Call, Object, SCRATCH};
use crate::event_loop::Supervisor;
use procfs::ThreadId;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use syscall_table::nr;
use tracee::{Result, Stopped, TraceError};

/// What we put there for a call takes so much at most: the agent's own part of its stack ends far above.
const SCRATCH_LEN: usize = 0x2000;
const EXECUTABLE: u32 = 0o111;

/// A program that is being executed by another name than it was asked for.
#[derive(Debug)]
pub(crate) struct Executed {
    name: Vec<u8>,
    /// How long the name is that the kernel knows.
    len: usize,
    /// By this it is found.
    _file: OwnedFd,
}

/// What a call executes.
struct Program {
    file: Found,
    /// The directory where its name stands, and the name.
    dir: Found,
    name: OsString,
    /// What comes in the place of the first argument; `None`: nothing does.
    arguments: Option<Vec<Vec<u8>>>,
    /// What it depends on.
    observes: Vec<Object>,
}

/// What becomes of a call.
enum Execution {
    Program(Box<Program>),
    /// It fails with this error.
    Error(i32),
    /// What is executed has contents or attributes that are held, and the kernel would not see them.
    Waits,
    /// The kernel finds what those inside see, or it is not known what it would do.
    Kernel,
}

/// What the beginning of a program file says.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    /// It is loaded by this program, if by any.
    Elf(Option<Vec<u8>>),
    /// The interpreter, and its argument.
    Script(Vec<u8>, Option<Vec<u8>>),
    /// It is no program.
    Nothing,
}

impl Executed {
    /// The program finds the name by which it was asked for, and so does whoever looks at it.
    pub fn name(&self, stopped: &Stopped) -> Result<()> {
        const AT_EXECFN: u64 = 31;
        let tid = stopped.tid();
        let kernel = |source| TraceError::kernel("name a program", tid, source);
        let at = procfs::auxiliary(tid, AT_EXECFN).map_err(|error| kernel(error.into()))?;
        let Some(at) = at else { return Ok(()) };
        let mut text = self.name.clone();
        text.resize(self.len.max(self.name.len()) + 1, 0);
        tracee::write_bytes(tid, at, &text).map_err(kernel)?;
        let last = self.name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash as u64 + 1);
        tracee::call_before_start(stopped, libc::SYS_prctl, &[libc::PR_SET_NAME as u64, at + last]).map(drop)
    }
}

impl Supervisor {
    /// What the kernel says of a program that is not there: it looks for that before it looks at anything else, but for
    /// the name itself. `None`: it is there, or that is not known. Of names that are held it is said elsewhere.
    pub(in crate::ahead) fn missing_program(&self, call: &Call) -> Option<Errno> {
        const PATH_MAX: usize = 4096;
        if call.frame.nr != nr::execve {
            return None;
        }
        let path = path_text(call, 0).filter(|path| (1..PATH_MAX).contains(&path.len()))?;
        let way = self.walk(call.tid, call.pid, None, &path, true);
        if way.is_held || way.is_open || way.through_proc {
            return None;
        }
        match way.end {
            End::Entry(Entry { found: None, .. }) => Some(Errno::NOENT),
            End::Nowhere(error @ (Errno::NOENT | Errno::NOTDIR)) => Some(error),
            _ => None,
        }
    }

    /// A speculative process executes what the kernel would not find; `None` where that is not so, or cannot be done.
    pub(in crate::ahead) fn execute_held(
        &mut self,
        stopped: &Stopped,
        call: &Call,
        plan: &mut Plan,
    ) -> Result<Option<Decision>> {
        let ahead = &self.ahead;
        let is_any = !ahead.held_names.is_empty()
            || !ahead.new_files.is_empty()
            || !ahead.contents.is_empty()
            || !ahead.attributes.is_empty();
        if !call.executes() || !is_any || !ahead.is_speculative(call.pid) || !matches!(plan.class, Class::Tracked) {
            return Ok(None);
        }
        if self.has_company(call.tid) || !self.is_root_as_we_are(call.pid) || !self.would_find(stopped, call)? {
            return Ok(None);
        }
        let Some((name, argv, envp)) = named(call) else { return Ok(None) };
        let program = match self.program_of(call, &name) {
            Execution::Program(program) => *program,
            Execution::Error(error) => {
                let observes = std::mem::take(&mut plan.observes);
                let plan = Plan { observes, ..Plan::tracked_once() };
                return self.answer_known(stopped, call, plan, -i64::from(error)).map(Some);
            }
            Execution::Waits => return Ok(Some(self.wait_at_barrier(call))),
            Execution::Kernel => return Ok(None),
        };
        let Some(file) = self.open_program(call, plan, &program) else { return Ok(None) };
        let path = path_of(&file, name.len());
        let executed = Executed { name, len: path.len(), _file: file };
        let at = stopped.registers()?.gs_base - SCRATCH;
        let Some(scratch) = layout(call, at, &path, [argv, envp], program.arguments) else { return Ok(None) };
        let kernel = |source| TraceError::kernel("write a call", call.tid, source);
        tracee::write_bytes(call.tid, at, &scratch).map_err(kernel)?;
        if !self.may_execute(stopped, call, at)? {
            return Ok(None);
        }
        plan.observes.extend(program.observes.into_iter().map(speculation::Dependent::Object));
        let plan = std::mem::replace(plan, Plan::tracked_once());
        let Plan { modifies, observes, .. } = plan;
        let under_way = match self.track(stopped, call, Plan { observes, ..Plan::tracked_once() }, modifies)? {
            Decision::Go => UnderWay::default(),
            Decision::GoAndTell(under_way) => under_way,
            other => return Ok(Some(other)),
        };
        // The agent does not see what the path led through: it may have been anything that is not committed yet.
        self.observe_everything(call.tid);
        Ok(Some(Decision::GoInstead(UnderWay { executes: Some(executed), ..under_way }, at)))
    }

    /// The file of the program, if the kernel would not find it, or not what leads to it, and it can be executed; or
    /// why not, if that is known.
    fn program_of(&self, call: &Call, name: &[u8]) -> Execution {
        /// So many interpreters of interpreters the kernel takes.
        const DEPTH_MAX: usize = 5;
        let (mut path, mut arguments, mut observes) = (name.to_vec(), None::<Vec<Vec<u8>>>, Vec::new());
        let mut is_concerned = false;
        for _ in 0..DEPTH_MAX {
            let way = self.walk(call.tid, call.pid, None, &path, true);
            is_concerned |= way.is_held;
            if !way.is_known() || way.through_proc {
                return Execution::Kernel;
            }
            // What is the kernel's to say is left to it.
            let fails = |error| if is_concerned { Execution::Error(error) } else { Execution::Kernel };
            let (dir, name, file) = match way.end {
                End::Entry(Entry { dir, name, found: Some(file) }) => (dir, name, file),
                End::Entry(_) => return fails(libc::ENOENT),
                End::Nowhere(error) => return fails(error.raw_os_error()),
                End::File(_) | End::Unknown => return Execution::Kernel,
            };
            is_concerned |= self.ahead.new_files.has(&file.stat);
            let fails = |error| if is_concerned { Execution::Error(error) } else { Execution::Kernel };
            if self.ahead.attributes.has(&file.stat) || self.ahead.contents.has(&file.inode()) {
                return Execution::Waits;
            }
            if !file.is_regular() || file.stat.st_mode & EXECUTABLE == 0 {
                return fails(libc::EACCES);
            }
            if file.stat.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
                return Execution::Kernel;
            }
            // The kernel looks for writers before it looks at the contents.
            if is_concerned && self.is_written_inside(file.inode()) {
                return Execution::Error(libc::ETXTBSY);
            }
            observes.push(file.object());
            let Some(head) = Head::of(&file) else { return Execution::Kernel };
            match head {
                Head::Elf(loader) => {
                    let can_be_loaded = loader.is_none_or(|loader| self.is_as_on_disk(call, &loader));
                    let program = Box::new(Program { file, dir, name, arguments, observes });
                    let is_executed = is_concerned && can_be_loaded;
                    return if is_executed { Execution::Program(program) } else { Execution::Kernel };
                }
                Head::Nothing if is_concerned && has_writers(&file) => return Execution::Waits,
                Head::Nothing => return fails(libc::ENOEXEC),
                Head::Script(interpreter, argument) => {
                    let rest = arguments.take().unwrap_or_default().into_iter().skip(1);
                    let own = [Some(interpreter.clone()), argument, Some(path)].into_iter().flatten();
                    arguments = Some(own.chain(rest).collect());
                    path = interpreter;
                }
            }
        }
        Execution::Kernel
    }

    /// Whether the kernel finds by itself what those inside see under a path.
    fn is_as_on_disk(&self, call: &Call, path: &[u8]) -> bool {
        let way = self.walk(call.tid, call.pid, None, path, true);
        let is_held = |file: &Found| {
            let ahead = &self.ahead;
            ahead.new_files.has(&file.stat) || ahead.attributes.has(&file.stat) || ahead.contents.has(&file.inode())
        };
        !way.is_held && way.is_known() && way.found().is_some_and(|file| !is_held(file))
    }

    /// What the process executes. A new file gets a name in a stage for each name by which it is executed: what has
    /// none cannot get one later that the kernel knows the program by. Whoever watches the directory would hear that
    /// it was moved there.
    fn open_program(&mut self, call: &Call, plan: &Plan, program: &Program) -> Option<OwnedFd> {
        let Program { file, dir, name, .. } = program;
        let giver = self.ahead.held_names.giver(dir.inode(), name);
        let Some(unnamed) = self.ahead.new_files.file_of(&file.stat) else {
            // The kernel knows an older file by an older name, and would by that of a link to it as well.
            return file.fd.try_clone().ok().filter(|_| giver.is_none() && !self.holds_for_writing(&file.stat));
        };
        let giver = giver?;
        if has_writers(file) && !self.is_written_inside(file.inode()) {
            // It is by what we keep: natively the program could be executed.
            return None;
        }
        let is_known = self.ahead.program_names.has(giver);
        let is_heard = || !self.ahead.new_files.has(&dir.stat) && watchers::is_watched(&dir.stat);
        if !is_known && (is_heard() || !self.are_names_given_at_once(call, plan, program)) {
            return None;
        }
        let stages = &mut self.ahead.stages;
        self.ahead.program_names.open(giver, file.inode(), || stages.link(&dir.fd, &unnamed))
    }

    /// Whether the name by which a new file is executed is given when the file's first one is: until it has all, the
    /// disk counts one too many. The process depends on whatever the name depends on, once it has looked at it.
    fn are_names_given_at_once(&self, call: &Call, plan: &Plan, program: &Program) -> bool {
        let core = &self.ahead.core;
        let (dev, ino) = program.file.inode();
        let mut all = core.dependencies_of_process(process(call.pid)).clone();
        plan.observes.iter().for_each(|seen| all.merge(core.dependencies_of(seen)));
        program.observes.iter().for_each(|object| all.merge(core.dependencies_of_object(object)));
        all.is_subset(core.dependencies_of_object(&Object::Created(dev, ino)))
    }

    /// Whether the process can execute by the path that was put there for it: its `/proc` may be another one, or none.
    fn may_execute(&mut self, stopped: &Stopped, call: &Call, at: u64) -> Result<bool> {
        const X_OK: u64 = 1;
        let mut remote = self.remote_calls(stopped)?;
        let path = at + PATH_AT as u64;
        let result = remote.call(libc::SYS_faccessat, &[libc::AT_FDCWD as u64, path, X_OK])?;
        let signals = remote.finish()?;
        self.hold_signals(call.pid, signals);
        Ok(result == 0)
    }
}

/// Whether a file may be open for writing.
fn has_writers(file: &Found) -> bool {
    let open = rustix::fs::open(procfs::own_path(&file.fd), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    open.map_or(true, |open| crate::sys::is_open_for_writing(open.as_fd()))
}

/// The name by which a program is asked for, where its arguments stand, and its environment.
fn named(call: &Call) -> Option<(Vec<u8>, u64, u64)> {
    let args = &call.frame.args;
    let (at, argv, envp) = match call.frame.nr {
        nr::execve => (0, args[1], args[2]),
        nr::execveat if args[4] == 0 => (1, args[2], args[3]),
        _ => return None,
    };
    let name = path_text(call, at).filter(|name| !name.is_empty())?;
    // Of others the kernel makes a name with the number of the directory's descriptor.
    let is_plain = at == 0 || name.starts_with(b"/") || args[0] as i32 == libc::AT_FDCWD;
    is_plain.then_some((name, argv, envp))
}

/// Where the process finds a file of ours; as long as `len` at least.
fn path_of(file: &OwnedFd, len: usize) -> Vec<u8> {
    let path = procfs::path_for_others(file);
    let slashes = "/".repeat(len.saturating_sub(path.len()));
    let (dir, fd) = path.rsplit_once('/').unwrap_or_default();
    format!("{dir}/{slashes}{fd}").into_bytes()
}

/// Where the path stands: behind the number of the call and its arguments.
const PATH_AT: usize = 7 * 8;

/// The call as the agent makes it, for an address: number, arguments, path, and what these point to. `None`: it is too
/// much.
fn layout(
    call: &Call,
    at: u64,
    path: &[u8],
    [mut argv, envp]: [u64; 2],
    arguments: Option<Vec<Vec<u8>>>,
) -> Option<Vec<u8>> {
    let mut texts = [path, &[0]].concat();
    if let Some(arguments) = arguments {
        let mut pointers = Vec::new();
        for argument in arguments {
            pointers.push(at + (PATH_AT + texts.len()) as u64);
            texts.extend(argument);
            texts.push(0);
        }
        pointers.extend(arguments_behind_first(call.tid, argv)?);
        pointers.push(0);
        texts.resize(texts.len().next_multiple_of(8), 0);
        argv = at + (PATH_AT + texts.len()) as u64;
        texts.extend(pointers.iter().flat_map(|pointer: &u64| pointer.to_ne_bytes()));
    }
    let words = [nr::execve, at + PATH_AT as u64, argv, envp, 0, 0, 0];
    let all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).chain(texts).collect();
    (all.len() <= SCRATCH_LEN).then_some(all)
}

/// The pointers in a list of arguments, but for the first one.
fn arguments_behind_first(tid: ThreadId, argv: u64) -> Option<Vec<u64>> {
    let mut pointers = Vec::new();
    if argv == 0 {
        return Some(pointers);
    }
    for i in 0..=SCRATCH_LEN as u64 / 8 {
        match tracee::read_value::<u64>(tid, argv.checked_add(i * 8)?).ok()? {
            0 => return Some(pointers.split_off(pointers.len().min(1))),
            pointer => pointers.push(pointer),
        }
    }
    None
}

impl Head {
    fn of(file: &Found) -> Option<Self> {
        // Nobody's lease is waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = rustix::fs::open(procfs::own_path(&file.fd), flags, Mode::empty()).ok()?;
        let mut head = [0; HEAD_LEN];
        let len = rustix::io::pread(&open, &mut head, 0).ok()?;
        match &head[..len] {
            head if head.starts_with(b"#!") => Self::of_script(head),
            head if !head.starts_with(b"\x7fELF") => are_formats_known().then_some(Self::Nothing),
            head => Self::of_elf(head, |at, len| {
                let mut bytes = vec![0; len];
                let read = rustix::io::pread(&open, &mut bytes, at).ok()?;
                (read == len).then_some(bytes)
            }),
        }
    }

    /// As the kernel reads it (`load_script`). `None`: what it does with this is not known here.
    fn of_script(head: &[u8]) -> Option<Self> {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
        let end = head.iter().position(|&byte| byte == b'\n');
        // A line that is longer than what the kernel reads is refused, or cut off.
        let line = match end {
            Some(end) => &head[2..end],
            None if head.len() < HEAD_LEN => &head[2..],
            None => return None,
        };
        let (start, end) = (line.iter().position(|b| !is_space(b))?, line.iter().rposition(|b| !is_space(b))?);
        let line = &line[start..=end];
        if line.contains(&0) {
            return None;
        }
        let name_len = line.iter().position(is_space).unwrap_or(line.len());
        let (name, rest) = line.split_at(name_len);
        let argument = rest.iter().position(|byte| !is_space(byte)).map(|start| rest[start..].to_vec());
        Some(Self::Script(name.to_vec(), argument))
    }

    /// A 64-bit program of this machine; another format may be somebody's that is told of its path.
    fn of_elf(head: &[u8], read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Self> {
        const IDENTITY: &[u8] = b"\x7fELF\x02\x01";
        const X86_64: u16 = 62;
        const PT_INTERP: u32 = 3;
        const HEADER_LEN: usize = 56;
        const PATH_MAX: u64 = 4096;
        let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let long = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if !head.starts_with(IDENTITY) || half(18)? != X86_64 || usize::from(half(54)?) != HEADER_LEN {
            return None;
        }
        let headers = read(long(head, 32)?, usize::from(half(56)?) * HEADER_LEN)?;
        let kind = |header: &[u8]| u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let Some(interpreter) = headers.chunks_exact(HEADER_LEN).find(|header| kind(header) == PT_INTERP) else {
            return Some(Self::Elf(None));
        };
        let (at, len) = (long(interpreter, 8)?, long(interpreter, 32)?);
        let text = read(at, usize::try_from(len).ok().filter(|_| len <= PATH_MAX)?)?;
        Some(Self::Elf(Some(text.strip_suffix(&[0])?.to_vec())))
    }
}

/// Whether nobody has told the kernel of formats of his own (`binfmt_misc`).
fn are_formats_known() -> bool {
    let Ok(names) = procfs::machine::settings_in("fs/binfmt_misc") else { return true };
    names.iter().all(|name| name == "register" || name == "status")
}

/// So much of a file the kernel looks at to know what it is.
const HEAD_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_and_its_argument_are_read_as_the_kernel_does() {
        let check = |text: &str, expected: Option<(&str, Option<&str>)>| {
            let expected = expected.map(|(name, argument)| Head::Script(name.into(), argument.map(Into::into)));
            assert_eq!(Head::of_script(text.as_bytes()), expected, "{text:?}");
        };
        check("#!/bin/sh\necho\n", Some(("/bin/sh", None)));
        check("#! /bin/sh -e  x \n", Some(("/bin/sh", Some("-e  x"))));
        check("#!\t/bin/sh\t\n", Some(("/bin/sh", None)));
        check("#!/bin/sh", Some(("/bin/sh", None)));
        check("#!\n/bin/sh", None);
        check("#!  \t", None);
        check(&format!("#!/bin/{}", "x".repeat(300)), None);
        check("#!/bin/sh\0 -x\n", None);
    }

    #[test]
    fn a_program_of_this_machine_names_its_loader() {
        let own = Found::of_path("/proc/self/exe").unwrap();
        let Some(Head::Elf(Some(loader))) = Head::of(&own) else { panic!("{:?}", Head::of(&own)) };
        assert!(loader.starts_with(b"/lib") && !loader.contains(&0), "{loader:?}");
        let text = Found::of_path("/etc/passwd").unwrap();
        assert_eq!(Head::of(&text), are_formats_known().then_some(Head::Nothing));
        let mut head = std::fs::read("/proc/self/exe").unwrap()[..HEAD_LEN].to_vec();
        head[4] = 1;
        assert_eq!(Head::of_elf(&head, |_, _| None), None, "a 32-bit program");
    }
}
