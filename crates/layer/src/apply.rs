//! Carries out a [`Plan`]. Every step looks first whether it was done; see `plan` for the phases.
//!
//! Paths are followed below the file system's root and never through a symbolic link, so that nobody who changes the
//! tree meanwhile can lead us elsewhere.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use procfs::mountinfo::{Mount, Table};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};

use crate::mounts;
use crate::object::{self, Write};
use crate::overlay_format::Handle;
use crate::plan::{Contents, Directory, FileSystemPlan, Hold, Rel, Step};
use crate::record::{Known, Progress, Record};
use crate::sys;

/// Where it stopped, and why.
pub type Failed = (PathBuf, io::Error);

/// How plans are carried out.
pub struct Manner<'a> {
    /// What the stage is called.
    pub stage: &'a str,
    /// After a crash: what is there already was made by us.
    pub again: bool,
    /// COMMAND's wins over what somebody else has removed or replaced.
    pub force: bool,
    pub fuse: &'a Fuse,
    /// What is mounted for everybody else.
    pub mounts: &'a RefCell<Table>,
}

/// One file system's plan, all phases; at the end everything is on the disk.
pub fn apply(plan: &FileSystemPlan, lower: &Path, layer: &Path, manner: &Manner<'_>) -> Result<(), Failed> {
    let failed = |error| (plan.mount_point.0.clone(), error);
    let record = Record::open(layer).map_err(failed)?;
    let mut known = record.read().map_err(failed)?;
    match known.progress {
        Progress::AllDone => return Ok(()),
        Progress::GivenUp => return Err(failed(io::Error::other("it is given up"))),
        Progress::Begun | Progress::ContentsDone => {}
    }
    let root = open_directory(lower).map_err(failed)?;
    let mut apply = Apply { plan, lower, layer, manner, root, stage: None };
    apply.stage = apply.find_stage(known).map_err(failed)?;
    if known.progress == Progress::Begun {
        // Whatever is missing in another file system would be made there, and the layer removed.
        if manner.again && manner.force && known.stage.is_some() && apply.stage.is_none() {
            return Err(failed(no_stage(manner.stage)));
        }
        let (stage, ino) = match apply.stage.take() {
            Some(stage) => {
                leave_project(stage.as_fd()).map_err(failed)?;
                let ino = object::stat(stage.as_fd()).map_err(failed)?.st_ino;
                (stage, ino)
            }
            None => apply.make_stage().map_err(failed)?,
        };
        if known.stage != Some(ino) {
            known.stage = Some(ino);
            record.write(known).map_err(failed)?;
        }
        apply.stage = Some(stage);
        apply.holds()?;
        apply.each(&plan.steps, Apply::step, Step::at)?;
        apply.each(&plan.contents, Apply::contents, |contents| &contents.at)?;
        if manner.again {
            apply.remove_unfinished()?;
        }
        apply.burn();
        // Behind this nothing tells any more what was done, and others change what is there.
        rustix::fs::syncfs(&apply.root).map_err(|error| failed(error.into()))?;
        known.progress = Progress::ContentsDone;
        record.write(known).map_err(failed)?;
    }
    apply.burn();
    apply.remove_stage().map_err(|error| (plan.mount_point.join(manner.stage), error))?;
    apply.burn();
    apply.each(&plan.directories, Apply::directory, |directory| &directory.at)?;
    rustix::fs::syncfs(&apply.root).map_err(|error| failed(error.into()))?;
    known.progress = Progress::AllDone;
    record.write(known).map_err(failed)
}

/// The end of a plan that nobody will finish: what COMMAND made, and what has no name yet, goes. True if something else
/// is in the stage; it stays there.
pub fn leave(plan: &FileSystemPlan, lower: &Path, layer: &Path, manner: &Manner<'_>) -> Result<bool, Failed> {
    let failed = |error| (plan.mount_point.0.clone(), error);
    let known = Record::open(layer).and_then(|record| record.read()).map_err(failed)?;
    let root = open_directory(lower).map_err(failed)?;
    let apply = Apply { plan, lower, layer, manner, root, stage: None };
    apply.remove_unfinished()?;
    let is_left = apply.leave_stage(known).map_err(failed)?;
    rustix::fs::syncfs(&apply.root).map_err(|error| failed(error.into()))?;
    Ok(is_left)
}

/// Ends this process after so many operations, as a crash would: for the test that a crash can be recovered from.
#[derive(Debug, Default)]
pub struct Fuse(std::cell::Cell<Option<u64>>);

impl Fuse {
    /// `None` never burns down.
    pub fn new(operations: Option<u64>) -> Fuse {
        Fuse(std::cell::Cell::new(operations))
    }

    /// One more is done.
    pub fn burn(&self) {
        match self.0.get() {
            Some(0) => sys::exit_now(125),
            left => self.0.set(left.map(|left| left - 1)),
        }
    }
}

struct Apply<'a> {
    plan: &'a FileSystemPlan,
    lower: &'a Path,
    layer: &'a Path,
    manner: &'a Manner<'a>,
    root: OwnedFd,
    /// `None` behind its removal.
    stage: Option<OwnedFd>,
}

impl Apply<'_> {
    fn burn(&self) {
        self.manner.fuse.burn();
    }

    fn stage(&self) -> io::Result<BorrowedFd<'_>> {
        self.stage.as_ref().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The stage of an earlier attempt. The root may be a directory in which everybody makes what they like: what
    /// somebody else has put there under this name decides nothing.
    fn find_stage(&self, known: Known) -> io::Result<Option<OwnedFd>> {
        let name = Path::new(self.manner.stage);
        if !self.manner.again || ino_of(self.root.as_fd(), name)?.is_none() {
            return Ok(None);
        }
        let stage = beneath(self.root.as_fd(), name)?;
        let found = object::stat(stage.as_fd())?;
        let is_private = found.st_mode & 0o777 == 0o700 && found.st_uid == rustix::process::geteuid().as_raw();
        // A crash came before its number was noted, or before an earlier one was on the disk: nothing was done in it.
        let is_new = || -> io::Result<bool> { Ok(std::fs::read_dir(self.lower.join(name))?.next().is_none()) };
        let is_it = known.stage == Some(found.st_ino) || known.progress == Progress::Begun && is_new()?;
        match known.progress {
            _ if is_private && is_it => Ok(Some(stage)),
            Progress::Begun => Err(io::Error::other(format!("{} there was made by somebody else", self.manner.stage))),
            // It is not needed any more.
            Progress::ContentsDone | Progress::AllDone | Progress::GivenUp => Ok(None),
        }
    }

    /// What COMMAND made leaves the stage, and the stage goes if nothing else is in it. Whether it stays.
    fn leave_stage(&self, known: Known) -> io::Result<bool> {
        let name = Path::new(self.manner.stage);
        let stage = match beneath(self.root.as_fd(), name) {
            Err(error) if is_elsewhere(&error) => return Ok(false),
            stage => stage?,
        };
        let remove = || rustix::fs::unlinkat(&self.root, name, AtFlags::REMOVEDIR);
        if known.stage != Some(object::stat(stage.as_fd())?.st_ino) {
            // Ours only if a crash came before its number was noted: it is empty then.
            let _ = remove();
            return Ok(false);
        }
        for entry in rustix::fs::Dir::read_from(object::reopen(stage.as_fd(), false)?)? {
            let entry = entry?;
            let begins = |own: &&str| entry.file_name().to_bytes().starts_with(own.as_bytes());
            if ["new-", "again-", "busy-"].iter().any(begins) {
                // What cannot be removed keeps the stage, which is named.
                let _ = rustix::fs::unlinkat(&stage, entry.file_name(), AtFlags::empty());
            }
        }
        Ok(remove().is_err())
    }

    /// What a crash has left where it was made, on its way into the stage (see [`Apply::make_there`]).
    fn remove_unfinished(&self) -> Result<(), Failed> {
        let FileSystemPlan { steps, contents, .. } = self.plan;
        let created = steps.iter().enumerate().filter_map(|(number, step)| match step {
            // What is held may have to be made again.
            Step::Create { at, .. } | Step::Place { at, .. } => Some((new_name(number), at)),
            _ => None,
        });
        let replaced = contents.iter().enumerate().map(|(number, contents)| (busy_name(number), &contents.at));
        for (made, at) in created.chain(replaced) {
            // Where the directory is another one by now, nothing was made in it.
            let Ok(Some((dir, _))) = self.parent(at) else { continue };
            match remove_if_there(dir.as_fd(), &self.unfinished(&made)) {
                // We make no directory of such a name: anybody may who writes there.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
                Err(error) => {
                    return Err((self.plan.mount_point.join(&at.0).with_file_name(self.unfinished(&made)), error));
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// What it is called there.
    fn unfinished(&self, made: &Path) -> PathBuf {
        PathBuf::from(format!("{}-{}", self.manner.stage, made.display()))
    }

    /// A new one, for nobody else, and its number.
    fn make_stage(&self) -> io::Result<(OwnedFd, u64)> {
        let name = Path::new(self.manner.stage);
        rustix::fs::mkdirat(&self.root, name, Mode::from_raw_mode(0o700))?;
        let stage = beneath(self.root.as_fd(), name)?;
        let ino = object::stat(stage.as_fd())?.st_ino;
        // What goes can be of any project.
        leave_project(stage.as_fd())?;
        Ok((stage, ino))
    }

    /// What had to go, goes. What somebody has mounted in it would be unmounted by that.
    fn remove_stage(&self) -> io::Result<()> {
        let Some(stage) = &self.stage else { return Ok(()) };
        let name = Path::new(self.manner.stage);
        let all = self.manner.mounts.borrow_mut().read_again()?;
        // The last one is on top of the others.
        let home = all.iter().rfind(|mount| mount.mount_point == *self.plan.mount_point);
        let is_there = |mount: &&Mount| {
            home.and_then(|home| mounts::mounted_on(mount, home, &all)).is_some_and(|on| on.starts_with(name))
        };
        if let Some(mount) = all.iter().find(is_there) {
            return Err(io::Error::other(format!("{} is mounted there", mount.source.display())));
        }
        if ino_of(self.root.as_fd(), name)? != Some(object::stat(stage.as_fd())?.st_ino) {
            return Err(io::Error::other("somebody has taken it away"));
        }
        std::fs::remove_dir_all(self.lower.join(name))
    }

    fn each<T>(
        &self,
        items: &[T],
        act: impl Fn(&Self, usize, &T) -> io::Result<()>,
        at: impl Fn(&T) -> &Rel,
    ) -> Result<(), Failed> {
        for (number, item) in items.iter().enumerate() {
            self.burn();
            act(self, number, item).map_err(|error| (self.plan.mount_point.join(&at(item).0), error))?;
        }
        Ok(())
    }

    fn holds(&self) -> Result<(), Failed> {
        let mut directories = Vec::new();
        for (number, hold) in self.plan.holds.iter().enumerate() {
            match hold {
                Hold::File { handle, ino } => {
                    let at = || self.plan.mount_point.join(self.plan.place_of(number).map_or(Path::new(""), |at| at));
                    self.hold_file(number, handle, *ino).map_err(|error| (at(), error))?;
                }
                Hold::Directory { from, ino } => directories.push((number, from, *ino)),
            }
        }
        // Those below others first: their paths must still be the old ones.
        directories.sort_by_key(|(_, from, _)| std::cmp::Reverse(from.components().count()));
        for (number, from, ino) in directories {
            self.hold_directory(number, from, ino).map_err(|error| (self.plan.mount_point.join(&from.0), error))?;
        }
        Ok(())
    }

    fn hold_file(&self, number: usize, handle: &Handle, ino: u64) -> io::Result<()> {
        let name = hold_name(number);
        let held = ino_of(self.stage()?, &name)?;
        if self.manner.again && (held == Some(ino) || self.manner.force && held.is_some()) {
            return Ok(());
        }
        self.burn();
        let file = match self.open(handle, libc::O_PATH) {
            Err(error) if self.manner.again && error.raw_os_error() == Some(libc::ESTALE) => {
                // COMMAND's copy is made where it gets its name.
                return if self.manner.force { Ok(()) } else { Err(is_gone()) };
            }
            file => file?,
        };
        Ok(rustix::fs::linkat(file, "", self.stage()?, &name, AtFlags::EMPTY_PATH)?)
    }

    fn hold_directory(&self, number: usize, from: &Rel, ino: u64) -> io::Result<()> {
        self.burn();
        let Some((dir, name)) = self.parent(from)? else { return Ok(()) };
        if ino_of(dir.as_fd(), &name)? != Some(ino) {
            return Ok(());
        }
        rename(dir.as_fd(), &name, self.stage()?, &hold_name(number))
    }

    fn step(&self, number: usize, step: &Step) -> io::Result<()> {
        let Some((dir, name)) = self.parent(step.at())? else { return Err(io::ErrorKind::NotFound.into()) };
        let dir = dir.as_fd();
        let found = ino_of(dir, &name)?;
        match step {
            Step::Trash { ino, .. } if found == Some(*ino) => {
                rename(dir, &name, self.stage()?, &PathBuf::from(format!("gone-{number}")))
            }
            Step::Trash { .. } => Ok(()),
            Step::Place { hold, at } => self.place((number, at), *hold, dir, &name, found),
            Step::Create { source, .. } if found.is_some() && self.manner.again => {
                if ino_of(self.stage()?, &new_name(number))? == found {
                    return self.write_again(number, source);
                }
                self.make_room(number, dir, &name)?;
                self.create(number, source, dir, &name)
            }
            Step::Create { source, .. } => self.create(number, source, dir, &name),
            Step::Link { to, .. } => {
                let Some((to_dir, to_name)) = self.parent(to)? else { return Err(io::ErrorKind::NotFound.into()) };
                if found.is_some() && self.manner.again {
                    if found == ino_of(to_dir.as_fd(), &to_name)? {
                        return Ok(());
                    }
                    self.make_room(number, dir, &name)?;
                }
                Ok(rustix::fs::linkat(to_dir, to_name, dir, &name, AtFlags::empty())?)
            }
            Step::MakeDir { .. } => {
                if found.is_some() && self.manner.again {
                    if is_directory(dir, &name)? {
                        return Ok(());
                    }
                    self.make_room(number, dir, &name)?;
                }
                Ok(rustix::fs::mkdirat(dir, &name, Mode::from_raw_mode(0o700))?)
            }
        }
    }

    /// Since the crash somebody else has put something where COMMAND's is to be. It goes, but never a directory with
    /// all that is in it.
    fn make_room(&self, number: usize, dir: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
        if !self.manner.force {
            return Err(is_gone());
        }
        if is_directory(dir, name)? {
            return Err(io::Error::other("somebody else has made a directory there; move it away"));
        }
        self.set_aside(&format!("gone-{number}"), dir, name)
    }

    /// Into the stage, under a name that is free.
    fn set_aside(&self, label: &str, dir: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
        let mut more = 0;
        let aside = loop {
            let aside = PathBuf::from(format!("{label}-{more}"));
            if ino_of(self.stage()?, &aside)?.is_none() {
                break aside;
            }
            more += 1;
        };
        rename(dir, name, self.stage()?, &aside)?;
        // Exchanged since it was looked at. The stage is removed with all that is in it.
        if is_directory(self.stage()?, &aside)? {
            rename(self.stage()?, &aside, dir, name)?;
            return Err(io::Error::other("somebody else has just made a directory there; move it away"));
        }
        Ok(())
    }

    fn place(
        &self,
        (number, at): (usize, &Rel),
        hold: usize,
        dir: BorrowedFd<'_>,
        name: &Path,
        found: Option<u64>,
    ) -> io::Result<()> {
        let (hold, held) = (&self.plan.holds[hold], hold_name(hold));
        let in_stage = ino_of(self.stage()?, &held)?;
        let is_done = match hold {
            // What is held, and not the number that it had: somebody else's file may have that by now.
            Hold::File { .. } => found.is_some() && found == in_stage,
            Hold::Directory { .. } => in_stage.is_none(),
        };
        if is_done {
            return Ok(());
        }
        if found.is_some() && self.manner.again {
            self.make_room(number, dir, name)?;
        }
        let ino = match hold {
            Hold::Directory { .. } => return rename(self.stage()?, &held, dir, name),
            Hold::File { ino, .. } => *ino,
        };
        match rustix::fs::linkat(self.stage()?, &held, dir, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::XDEV)
                if self.manner.again && self.manner.force && in_stage != Some(ino) =>
            {
                self.place_copy(number, &held, at, dir, name)
            }
            linked => Ok(linked?),
        }
    }

    /// Of what somebody else has removed since, COMMAND's copy is held.
    fn place_copy(&self, number: usize, held: &Path, at: &Rel, dir: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
        let made = new_name(number);
        let source = object::open(&self.layer.join("upper").join(&at.0))?;
        self.make(source.as_fd(), &made, dir)?;
        let put = || -> io::Result<()> {
            // What is held is complete, also behind a power cut: nobody looks at it again.
            rustix::fs::syncfs(&self.root)?;
            rustix::fs::renameat(self.stage()?, &made, self.stage()?, held)?;
            Ok(rustix::fs::linkat(self.stage()?, held, dir, name, AtFlags::empty())?)
        };
        match put() {
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
                self.make_there(source.as_fd(), &made, dir)?;
                put()
            }
            put => put,
        }
    }

    /// Complete before it has its name.
    fn create(&self, number: usize, source: &Rel, dir: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
        let made = new_name(number);
        let source = object::open(&self.layer.join(&source.0))?;
        self.make(source.as_fd(), &made, dir)?;
        self.burn();
        // The name in the stage tells from now on who has made it.
        let link = || rustix::fs::linkat(self.stage()?, &made, dir, name, AtFlags::empty()).map_err(io::Error::from);
        match link() {
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
                self.make_there(source.as_fd(), &made, dir)?;
                link()
            }
            linked => linked,
        }
    }

    /// In the stage, for this directory: what is not to be read by everybody is encrypted there as well.
    fn make(&self, source: BorrowedFd<'_>, made: &Path, dir: BorrowedFd<'_>) -> io::Result<()> {
        if object::is_encrypted(dir)? {
            return self.make_there(source, made, dir);
        }
        remove_if_there(self.stage()?, made)?;
        object::create_like(source, self.stage()?, made).map(drop)
    }

    /// The same for a directory that only takes what was made in it, as it is of a project or encrypted (see `realm`):
    /// there it has a name that nobody else gives until it is complete, and is in the stage.
    fn make_there(&self, source: BorrowedFd<'_>, made: &Path, dir: BorrowedFd<'_>) -> io::Result<()> {
        let unfinished = self.unfinished(made);
        remove_if_there(dir, &unfinished)?;
        let finished = || -> io::Result<bool> {
            let new = object::create_like(source, dir, &unfinished)?;
            self.burn();
            remove_if_there(self.stage()?, made)?;
            rename(dir, &unfinished, self.stage()?, made)?;
            // As long as `new` is there, nothing else has its number.
            Ok(ino_of(self.stage()?, made)? == Some(object::stat(new.as_fd())?.st_ino))
        };
        let is_ours = finished().inspect_err(|_| {
            let _ = rustix::fs::unlinkat(dir, &unfinished, AtFlags::empty());
        })?;
        if is_ours {
            return Ok(());
        }
        // The stage is removed with all that is in it.
        rename(self.stage()?, made, dir, &unfinished)?;
        Err(io::Error::other("somebody else has exchanged what was made there"))
    }

    /// The new object has its name. A crash may have lost the data of a file and not its attributes, and where writing
    /// to the disk has failed, they are in memory only: as long as nobody has changed the file since, it gets its
    /// contents again.
    fn write_again(&self, number: usize, source: &Rel) -> io::Result<()> {
        let made = new_name(number);
        let source = object::open(&self.layer.join(&source.0))?;
        let target = object::open_at(self.stage()?, &made)?;
        let (wanted, is) = (object::stat(source.as_fd())?, object::stat(target.as_fd())?);
        let time = |stat: &rustix::fs::Stat| (stat.st_mtime, stat.st_mtime_nsec);
        let is_unchanged = object::kind(&wanted) == rustix::fs::FileType::RegularFile && time(&wanted) == time(&is);
        // Until its time is right again it looks as if somebody else had changed it.
        let mark = PathBuf::from(format!("again-{number}"));
        let is_marked = ino_of(self.stage()?, &mark)?.is_some();
        if is_unchanged || is_marked {
            if !is_marked {
                rustix::fs::mknodat(self.stage()?, &mark, rustix::fs::FileType::RegularFile, Mode::RUSR, 0)?;
            }
            let (from, to) = (object::reopen(source.as_fd(), false)?, object::reopen(target.as_fd(), true)?);
            object::copy_contents(&from, &to, Write::Everything)?;
            object::copy_attributes(source.as_fd(), target.as_fd())?;
            rustix::fs::unlinkat(self.stage()?, &mark, AtFlags::empty())?;
        }
        Ok(())
    }

    fn contents(&self, number: usize, contents: &Contents) -> io::Result<()> {
        let source = object::open(&self.layer.join(&contents.source.0))?;
        let target = match self.open(&contents.handle, libc::O_PATH) {
            // A program that was being run, and is replaced already.
            Err(error) if self.manner.again && error.raw_os_error() == Some(libc::ESTALE) => {
                return match self.find_replaced(contents, source.as_fd())? {
                    true => self.replace(number, contents),
                    // A name that COMMAND did not use: nothing of COMMAND's has it.
                    false if self.manner.force && !contents.source.starts_with("upper") => Ok(()),
                    false if self.manner.force => self.replace(number, contents),
                    false => Err(is_gone()),
                };
            }
            target => target?,
        };
        if object::kind(&object::stat(source.as_fd())?) == rustix::fs::FileType::RegularFile {
            let from = object::reopen(source.as_fd(), false)?;
            // After a failure what is read is what should have been written: the kernel takes it for written, and says
            // nothing of it a second time.
            let again = self.manner.again;
            let write = if again { Write::Everything } else { Write::Differences };
            let same = !again && object::same_contents(&from, &object::reopen(target.as_fd(), false)?)?;
            match object::reopen(target.as_fd(), true) {
                _ if same => {}
                Ok(to) => object::copy_contents(&from, &to, write)?,
                // Nobody can have written to a program that is being run: what is read is on the disk. Its other names
                // keep it.
                Err(error)
                    if error.raw_os_error() == Some(libc::ETXTBSY)
                        && object::stat(target.as_fd())?.st_nlink > 1
                        && object::same_contents(&from, &object::reopen(target.as_fd(), false)?)? => {}
                // A program that is being run: the new one takes its name.
                Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => return self.replace(number, contents),
                Err(error) => return Err(error),
            }
        }
        object::copy_attributes(source.as_fd(), target.as_fd())
    }

    /// Whether the name of a file whose handle leads nowhere any more has the contents that it is to have.
    fn find_replaced(&self, contents: &Contents, source: BorrowedFd<'_>) -> io::Result<bool> {
        let Some((dir, name)) = self.parent(&contents.at)? else { return Ok(false) };
        if ino_of(dir.as_fd(), &name)?.is_none() {
            return Ok(false);
        }
        let found = object::open_at(dir.as_fd(), &name)?;
        let is_file = |object| -> io::Result<bool> {
            Ok(object::kind(&object::stat(object)?) == rustix::fs::FileType::RegularFile)
        };
        if !is_file(source)? || !is_file(found.as_fd())? {
            return Ok(false);
        }
        object::same_contents(&object::reopen(source, false)?, &object::reopen(found.as_fd(), false)?)
    }

    fn replace(&self, number: usize, contents: &Contents) -> io::Result<()> {
        let made = busy_name(number);
        let source = object::open(&self.layer.join(&contents.source.0))?;
        let Some((dir, name)) = self.parent(&contents.at)? else { return Err(io::ErrorKind::NotFound.into()) };
        self.make(source.as_fd(), &made, dir.as_fd())?;
        let put = || rustix::fs::renameat(self.stage()?, &made, &dir, &name).map_err(io::Error::from);
        match put() {
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
                self.make_there(source.as_fd(), &made, dir.as_fd())?;
                put()
            }
            put => put,
        }
    }

    fn directory(&self, _number: usize, directory: &Directory) -> io::Result<()> {
        let source = object::open(&self.layer.join(&directory.source.0))?;
        let target = match directory.at.as_os_str().is_empty() {
            true => object::open(self.lower),
            false => beneath(self.root.as_fd(), &directory.at),
        };
        let target = match target {
            // Others may have removed or replaced it since it was made: nothing is to be said of it.
            Err(error) if self.manner.again && is_elsewhere(&error) => return Ok(()),
            target => target?,
        };
        object::copy_rights(source.as_fd(), target.as_fd())?;
        let mut wanted = object::stat(source.as_fd())?;
        let found = object::stat(target.as_fd())?;
        let time = |stat: &rustix::fs::Stat| (stat.st_mtime, stat.st_mtime_nsec);
        // The stage came and went in the root itself: its time says nothing of others.
        let is_root = directory.at.as_os_str().is_empty();
        if directory.keep_later_time && !is_root && time(&found) > time(&wanted) {
            (wanted.st_mtime, wanted.st_mtime_nsec) = time(&found);
        }
        object::set_times(target.as_fd(), &wanted)
    }

    /// The directory that a path is in, and its name there; `None` if there is no such directory.
    fn parent(&self, at: &Path) -> io::Result<Option<(OwnedFd, PathBuf)>> {
        let name = PathBuf::from(at.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        let dir = at.parent().unwrap_or(Path::new(""));
        let dir = match dir.as_os_str().is_empty() {
            true => self.root.try_clone(),
            false => beneath(self.root.as_fd(), dir),
        };
        match dir {
            Ok(dir) => Ok(Some((dir, name))),
            Err(error) if is_elsewhere(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, handle: &Handle, flags: i32) -> io::Result<OwnedFd> {
        let mount = File::open(self.lower)?;
        let found = sys::open_by_handle(mount.as_fd(), handle.kind, &handle.bytes, flags)?;
        // Somebody has removed its last name, and has it open. What is in the stage has one there.
        match object::stat(found.as_fd())?.st_nlink {
            0 => Err(rustix::io::Errno::STALE.into()),
            _ => Ok(found),
        }
    }
}

/// Of a directory that is held.
fn leave_project(dir: BorrowedFd<'_>) -> io::Result<()> {
    sys::leave_project(object::reopen(dir, false)?.as_fd())
}

/// On which it was noted.
fn no_stage(stage: &str) -> io::Error {
    let what = "it may be another file system; if it is not, run it without --force first";
    io::Error::other(format!("it has no {stage}: {what}"))
}

/// Nothing tells whether it is what COMMAND has seen.
fn is_gone() -> io::Error {
    io::Error::other("somebody else has removed or replaced it (--resume with --force lets COMMAND win)")
}

fn hold_name(number: usize) -> PathBuf {
    PathBuf::from(format!("held-{number}"))
}

fn new_name(number: usize) -> PathBuf {
    PathBuf::from(format!("new-{number}"))
}

fn busy_name(number: usize) -> PathBuf {
    PathBuf::from(format!("busy-{number}"))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn beneath(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// There is no directory of this name.
fn is_elsewhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn rename(from: BorrowedFd<'_>, name: &Path, to: BorrowedFd<'_>, new_name: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        // A file system that cannot promise not to replace: it was looked at just before.
        Err(rustix::io::Errno::INVAL) => Ok(rustix::fs::renameat(from, name, to, new_name)?),
        other => Ok(other?),
    }
}

fn remove_if_there(dir: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

fn is_directory(dir: BorrowedFd<'_>, name: &Path) -> io::Result<bool> {
    let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(object::kind(&found) == rustix::fs::FileType::Directory)
}

fn ino_of(dir: BorrowedFd<'_>, name: &Path) -> io::Result<Option<u64>> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found.st_ino)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
