//! APPLY: the rules of changes. Rights, room and cycles are checked again here, whatever the client has predicted.
//!
//! Steps are carried out one after the other in an [`Overlay`]; the first that is refused refuses the interval.

use crate::key::{Ino, Key, Name, SessionId};
use crate::op::*;
use crate::rights::{mode_after_write, mode_without_set_ids, need, need_or_own, need_unsticky, EXEC, SETGID, WRITE};
use crate::tree::{Changes, Did, Entry, Overlay, Stop, Tree};

/// In whose name an interval is applied, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    /// Whether it may change anything.
    pub read_only: bool,
    /// The server's time. It stands in the log, so that an interval that is applied again comes to the same.
    pub now: Time,
}

/// Carries out all steps. `Ok(Err(…))`: nothing is to be changed.
#[allow(clippy::type_complexity, reason = "the outer result is the state's, the inner one the interval's")]
pub fn apply<T: Tree>(
    tree: &T,
    interval: &Interval,
    context: Context,
) -> Result<Result<(Changes, Vec<Effect>), Failure>, T::Error> {
    if !within_bounds(interval) {
        return Ok(Err(Failure::Malformed));
    }
    let mut view = Overlay::new(tree);
    let mut effects = Vec::with_capacity(interval.steps.len());
    for (i, step) in interval.steps.iter().enumerate() {
        let cred = &interval.creds[usize::from(step.cred)];
        let mut one = One { view: &mut view, cred, context, time: step.time.unwrap_or(context.now) };
        match one.step(&step.change) {
            Ok(effect) => effects.push(effect),
            Err(Stop::Refused(errno)) => return Ok(Err(Failure::Refused { step: i as u32, errno })),
            Err(Stop::Broken(error)) => return Err(error),
        }
        if view.block_bytes() > PUT_BYTES_MAX {
            return Ok(Err(Failure::Malformed));
        }
    }
    Ok(Ok((view.into_changes(), effects)))
}

/// Frees inodes without a name that nobody has open any more, and removes so many blocks at most. Says which are free;
/// of the first one that is not, only a part of its blocks may be gone. No other one waits for it that fits.
pub fn free<T: Tree>(tree: &T, inos: &[Ino], blocks_max: usize) -> Result<(Changes, Vec<Ino>), T::Error> {
    let mut view = Overlay::new(tree);
    let (mut left, mut free) = (blocks_max, Vec::new());
    let mut large = None;
    for &ino in inos {
        match free_whole(&mut view, ino, &mut left) {
            Ok(true) | Err(Stop::Refused(_)) => free.push(ino),
            Ok(false) => _ = large.get_or_insert(ino),
            Err(Stop::Broken(error)) => return Err(error),
        }
    }
    match large.map_or(Ok(()), |ino| cut(&mut view, ino, left)) {
        Err(Stop::Broken(error)) => Err(error),
        Ok(()) | Err(Stop::Refused(_)) => Ok((view.into_changes(), free)),
    }
}

/// Frees it, if it has no more blocks than that. Says whether it is free.
fn free_whole<T: Tree>(view: &mut Overlay<T>, ino: Ino, left: &mut usize) -> Did<bool, T::Error> {
    let inode = view.inode(ino)?;
    if inode.nlink > 0 {
        return Ok(true);
    }
    if inode.blocks > *left as u64 {
        return Ok(false);
    }
    *left -= inode.blocks as usize;
    view.remove_inode(ino).map(|()| true)
}

/// Removes so many of its first blocks, of which it has more.
fn cut<T: Tree>(view: &mut Overlay<T>, ino: Ino, blocks: usize) -> Did<(), T::Error> {
    let Some(&to) = view.first_blocks(ino, blocks.saturating_add(1))?.get(blocks) else { return Ok(()) };
    let mut inode = view.inode(ino)?;
    let gone = view.remove_blocks(ino, 0, to)?;
    inode.blocks = inode.blocks.saturating_sub(gone);
    view.put_inode(ino, inode);
    view.take_space(-(gone as i64), 0)
}

fn within_bounds(interval: &Interval) -> bool {
    let sized = interval.steps.len() <= STEPS_MAX && interval.reads.len() <= READS_MAX;
    let light = interval.steps.iter().map(|step| step.change.bytes()).sum::<usize>() <= INTERVAL_BYTES_MAX;
    let reserved = interval.steps.iter().fold(0u64, |sum, step| sum.saturating_add(step.change.reserved_bytes()));
    let creds = interval.steps.iter().all(|step| usize::from(step.cred) < interval.creds.len());
    sized
        && light
        && reserved <= ALLOCATE_BYTES_MAX
        && creds
        && interval.creds.iter().all(|cred| cred.groups.len() <= GROUPS_MAX)
}

/// One step.
struct One<'v, 't, T: Tree> {
    view: &'v mut Overlay<'t, T>,
    cred: &'v Cred,
    context: Context,
    time: Time,
}

impl<T: Tree> One<'_, '_, T> {
    fn step(&mut self, change: &Change) -> Did<Effect, T::Error> {
        if self.context.read_only {
            return Err(Errno::ROFS.into());
        }
        if self.time.0 > self.context.now.0.saturating_add(FUTURE_MS_MAX * 1_000_000) || change.bytes() > STEP_BYTES_MAX
        {
            return Err(Errno::INVAL.into());
        }
        match change {
            Change::Create { dir, name, ino, kind, mode, rdev, target } => {
                self.create(*dir, name, *ino, *kind, *mode, *rdev, target).map(Effect::Created)
            }
            Change::Link { ino, dir, name } => self.link(*ino, *dir, name),
            Change::Unlink { dir, name } => self.remove(*dir, name, false),
            Change::Rmdir { dir, name } => self.remove(*dir, name, true),
            Change::Rename { from_dir, from, to_dir, to, mode } => self.rename((*from_dir, from), (*to_dir, to), *mode),
            Change::SetAttr { ino, set } => self.set_attr(*ino, set),
            Change::Write { ino, offset, content } => self.write(*ino, Some(*offset), content),
            Change::Append { ino, content } => self.write(*ino, None, content),
            Change::Punch { ino, offset, len } => self.punch(*ino, *offset, *len),
            Change::Allocate { ino, offset, len, keep_size, zero } => {
                self.allocate(*ino, (*offset, *len), *keep_size, *zero)
            }
            Change::SetXattr { ino, name, value, mode } => self.set_xattr(*ino, name, Some(value), *mode),
            Change::RemoveXattr { ino, name } => self.set_xattr(*ino, name, None, XattrMode::Replace),
        }
    }

    /// A directory whose names the caller may change.
    fn writable_dir(&self, dir: Ino) -> Did<Inode, T::Error> {
        let inode = self.view.inode(dir)?;
        if inode.kind != Kind::Dir {
            return Err(Errno::NOTDIR.into());
        }
        need(self.cred, &inode, WRITE | EXEC)?;
        Ok(inode)
    }

    /// What a name in a directory means that the caller may remove.
    fn removable(&self, dir: &Inode, entry: Entry) -> Did<Inode, T::Error> {
        let inode = self.view.inode(entry.ino)?;
        need_unsticky(self.cred, dir, &inode)?;
        Ok(inode)
    }

    /// Times of a directory merge by maximum, so that two who create in it do not conflict; its count of links by
    /// difference.
    /// The time of modification after a change. Changes that come out of the order of their times do not set it back;
    /// one that lies in the future was chosen (utimensat(2)), and does not outlast a change.
    fn modified(&self, before: Time) -> Time {
        before.min(self.context.now).max(self.time)
    }

    fn touch_dir(&mut self, dir: Ino, links: i32) -> Did<(), T::Error> {
        let mut inode = self.view.inode(dir)?;
        inode.mtime = self.modified(inode.mtime);
        inode.ctime = inode.ctime.max(self.time);
        inode.nlink = inode.nlink.saturating_add_signed(links);
        self.view.put_inode(dir, inode);
        self.view.touch(Key::Listing(dir));
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one change")]
    fn create(
        &mut self,
        dir: Ino,
        name: &Name,
        ino: Option<Ino>,
        kind: Kind,
        mode: u16,
        rdev: u32,
        target: &[u8],
    ) -> Did<Ino, T::Error> {
        let parent = self.writable_dir(dir)?;
        if parent.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        if self.view.entry(dir, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.check_new(kind, rdev, target)?;
        if kind == Kind::Dir && parent.nlink >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let ino = match ino {
            Some(ino) => self.lent_ino(ino)?,
            None => self.view.next_ino()?,
        };
        self.view.take_space(0, 1)?;
        self.view.put_inode(ino, self.new_inode(dir, &parent, kind, mode, rdev, target));
        self.view.put_entry(dir, name, Some(Entry { ino, kind }));
        self.touch_dir(dir, i32::from(kind == Kind::Dir))?;
        [Key::Attr(ino), Key::Data(ino), Key::Parent(ino)].into_iter().for_each(|key| self.view.touch(key));
        Ok(ino)
    }

    fn check_new(&self, kind: Kind, rdev: u32, target: &[u8]) -> Did<(), T::Error> {
        let device = matches!(kind, Kind::Char | Kind::Block);
        // mknod(2): the device 0 of characters is none (a whiteout), and everybody may make it.
        let is_real = device && (kind, rdev) != (Kind::Char, 0);
        if is_real && !self.cred.is_root() {
            return Err(Errno::PERM.into());
        }
        if (rdev != 0 && !device) || (kind == Kind::Symlink) == target.is_empty() || target.contains(&0) {
            return Err(Errno::INVAL.into());
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(())
    }

    fn new_inode(&self, dir: Ino, parent: &Inode, kind: Kind, mode: u16, rdev: u32, target: &[u8]) -> Inode {
        const GROUP_EXECUTES: u16 = 0o010;
        let inherits = parent.mode & SETGID != 0;
        let gid = if inherits { parent.gid } else { self.cred.gid };
        let mut mode = if kind == Kind::Symlink { 0o777 } else { mode & 0o7777 };
        if inherits && kind == Kind::Dir {
            mode |= SETGID;
        } else if inherits && !self.cred.is_root() && !self.cred.in_group(gid) && mode & GROUP_EXECUTES != 0 {
            // A program with the rights of a group that its maker is not in: chmod(2) would not make one either.
            mode &= !SETGID;
        }
        Inode {
            kind,
            mode,
            uid: self.cred.uid,
            gid,
            nlink: if kind == Kind::Dir { 2 } else { 1 },
            size: target.len() as u64,
            blocks: 0,
            rdev,
            atime: self.time,
            mtime: self.time,
            ctime: self.time,
            parent: if kind == Kind::Dir { dir } else { Ino(0) },
            target: target.to_vec(),
        }
    }

    /// A number that the client chose: lent to its session, and never given before.
    fn lent_ino(&mut self, ino: Ino) -> Did<Ino, T::Error> {
        let mut lent = self.view.lent(ino.group())?.ok_or(Errno::INVAL)?;
        let bit = 1u64 << (ino.0 - ino.group().inodes().start);
        if lent.session != self.context.session || lent.used & bit != 0 {
            return Err(Errno::INVAL.into());
        }
        lent.used |= bit;
        self.view.put_lent(lent);
        Ok(ino)
    }

    fn link(&mut self, ino: Ino, dir: Ino, name: &Name) -> Did<Effect, T::Error> {
        let parent = self.writable_dir(dir)?;
        let mut inode = self.view.inode(ino)?;
        if inode.kind == Kind::Dir {
            return Err(Errno::PERM.into());
        }
        // A file that has lost its last name gets no new one: who saw that it was gone was right.
        if parent.nlink == 0 || inode.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        if self.view.entry(dir, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        if inode.nlink >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        inode.nlink += 1;
        let entry = Entry { ino, kind: inode.kind };
        self.put_changed(ino, inode);
        self.view.put_entry(dir, name, Some(entry));
        self.touch_dir(dir, 0)?;
        Ok(Effect::Done)
    }

    /// Writes an inode whose attributes have changed, with a new time of change.
    fn put_changed(&mut self, ino: Ino, mut inode: Inode) {
        inode.ctime = inode.ctime.max(self.time);
        self.view.put_inode(ino, inode);
        self.view.touch(Key::Attr(ino));
    }

    fn remove(&mut self, dir: Ino, name: &Name, directory: bool) -> Did<Effect, T::Error> {
        let parent = self.writable_dir(dir)?;
        let entry = self.view.entry(dir, name)?.ok_or(Errno::NOENT)?;
        let inode = self.removable(&parent, entry)?;
        match (directory, inode.kind == Kind::Dir) {
            (true, false) => return Err(Errno::NOTDIR.into()),
            (false, true) => return Err(Errno::ISDIR.into()),
            _ => {}
        }
        self.drop_name(entry.ino, inode)?;
        self.view.put_entry(dir, name, None);
        self.touch_dir(dir, -i32::from(directory))?;
        Ok(Effect::Done)
    }

    /// One name less. A directory has to be empty.
    fn drop_name(&mut self, ino: Ino, mut inode: Inode) -> Did<(), T::Error> {
        if inode.kind == Kind::Dir {
            if !self.view.is_empty_dir(ino)? {
                return Err(Errno::NOTEMPTY.into());
            }
            inode.nlink = 0;
            self.view.touch(Key::Parent(ino));
        } else {
            inode.nlink = inode.nlink.saturating_sub(1);
        }
        if inode.nlink == 0 {
            self.view.put_orphan(ino);
        }
        self.put_changed(ino, inode);
        Ok(())
    }

    fn rename(
        &mut self,
        (from_dir, from): (Ino, &Name),
        (to_dir, to): (Ino, &Name),
        mode: RenameMode,
    ) -> Did<Effect, T::Error> {
        let (old_parent, new_parent) = (self.writable_dir(from_dir)?, self.writable_dir(to_dir)?);
        if new_parent.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        let moved = self.view.entry(from_dir, from)?.ok_or(Errno::NOENT)?;
        let moved_inode = self.removable(&old_parent, moved)?;
        self.may_leave(from_dir, to_dir, &moved_inode)?;
        self.check_no_cycle(moved, to_dir)?;
        let there = self.view.entry(to_dir, to)?;
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT.into()),
            // rename(2): two names of one file: nothing is done.
            (_, Some(there)) if there.ino == moved.ino => return Ok(Effect::Done),
            (RenameMode::Exchange, Some(there)) => {
                let there_inode = self.removable(&new_parent, there)?;
                self.may_leave(to_dir, from_dir, &there_inode)?;
                self.check_no_cycle(there, from_dir)?;
                self.view.put_entry(from_dir, from, Some(there));
                self.rehang(there, to_dir, from_dir)?;
            }
            (_, replaced) => {
                if let Some(there) = replaced {
                    self.replace(&new_parent, moved, there, to_dir)?;
                }
                self.view.put_entry(from_dir, from, None);
            }
        }
        self.view.put_entry(to_dir, to, Some(moved));
        self.rehang(moved, from_dir, to_dir)?;
        self.touch_dir(from_dir, 0)?;
        self.touch_dir(to_dir, 0)?;
        // Looked at in the end: what is replaced or moved the other way makes room.
        for (dir, before) in [(from_dir, old_parent.nlink), (to_dir, new_parent.nlink)] {
            let links = self.view.inode(dir)?.nlink;
            if links > before && links > LINKS_MAX {
                return Err(Errno::MLINK.into());
            }
        }
        Ok(Effect::Done)
    }

    /// rename(2), EACCES: a directory that moves to another parent is written to, since its `..` changes.
    fn may_leave(&self, from_dir: Ino, to_dir: Ino, inode: &Inode) -> Did<(), T::Error> {
        if inode.kind == Kind::Dir && from_dir != to_dir {
            need(self.cred, inode, WRITE)?;
        }
        Ok(())
    }

    fn replace(&mut self, parent: &Inode, moved: Entry, there: Entry, to_dir: Ino) -> Did<(), T::Error> {
        let victim = self.removable(parent, there)?;
        let victim_is_dir = there.kind == Kind::Dir;
        match (moved.kind == Kind::Dir, victim_is_dir) {
            (true, false) => return Err(Errno::NOTDIR.into()),
            (false, true) => return Err(Errno::ISDIR.into()),
            _ => {}
        }
        self.drop_name(there.ino, victim)?;
        self.touch_dir(to_dir, -i32::from(victim_is_dir))
    }

    /// A directory cannot move into itself. All ancestors of the destination are looked at, as they are now.
    fn check_no_cycle(&self, moved: Entry, to_dir: Ino) -> Did<(), T::Error> {
        if moved.kind != Kind::Dir {
            return Ok(());
        }
        let mut at = to_dir;
        while at != Ino::ROOT {
            if at == moved.ino {
                return Err(Errno::INVAL.into());
            }
            at = self.view.inode(at)?.parent;
        }
        if moved.ino == Ino::ROOT {
            return Err(Errno::INVAL.into());
        }
        Ok(())
    }

    /// What was moved has a new time of change, and a directory a new parent.
    fn rehang(&mut self, moved: Entry, from_dir: Ino, to_dir: Ino) -> Did<(), T::Error> {
        let mut inode = self.view.inode(moved.ino)?;
        if inode.kind == Kind::Dir {
            inode.parent = to_dir;
            self.view.touch(Key::Parent(moved.ino));
            if from_dir != to_dir {
                self.touch_dir(from_dir, -1)?;
                self.touch_dir(to_dir, 1)?;
            }
        }
        self.put_changed(moved.ino, inode);
        Ok(())
    }

    fn set_attr(&mut self, ino: Ino, set: &SetAttr) -> Did<Effect, T::Error> {
        let mut inode = self.view.inode(ino)?;
        self.set_owner(&mut inode, set)?;
        if let Some(mode) = set.mode {
            if !self.cred.owns(&inode) {
                return Err(Errno::PERM.into());
            }
            inode.mode = mode & 0o7777;
            if !self.cred.is_root() && !self.cred.in_group(inode.gid) {
                inode.mode &= !SETGID;
            }
        }
        self.set_times(&mut inode, set)?;
        if let Some(size) = set.size {
            self.truncate(ino, &mut inode, size)?;
        }
        if set.mtime.is_some() {
            self.view.touch(if inode.kind == Kind::Dir { Key::Listing(ino) } else { Key::Data(ino) });
        }
        self.put_changed(ino, inode);
        Ok(Effect::Done)
    }

    fn set_owner(&self, inode: &mut Inode, set: &SetAttr) -> Did<(), T::Error> {
        // Nothing to be set is chown(2) of neither: it takes set-id bits away as any other.
        let mode = mode_without_set_ids(self.cred, inode);
        let is_empty = *set == SetAttr::default() && mode != inode.mode;
        if set.uid.is_none() && set.gid.is_none() && !is_empty {
            return Ok(());
        }
        let uid_stays = set.uid.is_none_or(|uid| uid == inode.uid);
        let gid_may = set.gid.is_none_or(|gid| gid == inode.gid || self.cred.in_group(gid));
        let owner_may = self.cred.owns(inode) && uid_stays && gid_may;
        // Linux asks for nothing but this where a file is given room, and whoever may write takes the bits away by any
        // write.
        let writer_may = is_empty && need_or_own(self.cred, inode, WRITE).is_ok();
        if !self.cred.is_root() && !owner_may && !writer_may {
            return Err(Errno::PERM.into());
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        inode.mode = mode;
        Ok(())
    }

    fn set_times(&self, inode: &mut Inode, set: &SetAttr) -> Did<(), T::Error> {
        let chosen = [set.atime, set.mtime].iter().any(|time| matches!(time, Some(SetTime::At(_))));
        let any = set.atime.is_some() || set.mtime.is_some();
        if chosen && !self.cred.owns(inode) {
            return Err(Errno::PERM.into());
        }
        if any {
            need_or_own(self.cred, inode, WRITE)?;
        }
        let time = |set: Option<SetTime>, old: Time| match set {
            None => old,
            Some(SetTime::Now) => self.time,
            Some(SetTime::At(time)) => time,
        };
        inode.atime = time(set.atime, inode.atime);
        inode.mtime = time(set.mtime, inode.mtime);
        Ok(())
    }

    fn truncate(&mut self, ino: Ino, inode: &mut Inode, size: u64) -> Did<(), T::Error> {
        self.writable_file(inode)?;
        if size > FILE_BYTES_MAX {
            return Err(Errno::FBIG.into());
        }
        // A file that is set to the size it has loses what was reserved behind that, as on ext4 and XFS.
        if size <= inode.size {
            let gone = self.view.remove_blocks(ino, size.div_ceil(BLOCK_BYTES), u64::MAX)?;
            self.zero_within(ino, size, BLOCK_BYTES - size % BLOCK_BYTES)?;
            self.grow(inode, -(gone as i64))?;
        }
        inode.size = size;
        inode.mtime = self.modified(inode.mtime);
        inode.mode = mode_after_write(self.cred, inode);
        self.view.touch(Key::Data(ino));
        Ok(())
    }

    fn writable_file(&self, inode: &Inode) -> Did<(), T::Error> {
        match inode.kind {
            Kind::File => Ok(need_or_own(self.cred, inode, WRITE)?),
            Kind::Dir => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn grow(&mut self, inode: &mut Inode, blocks: i64) -> Did<(), T::Error> {
        inode.blocks = inode.blocks.saturating_add_signed(blocks);
        self.view.take_space(blocks, 0)
    }

    /// Zeros within one block, if that is there.
    fn zero_within(&mut self, ino: Ino, offset: u64, len: u64) -> Did<(), T::Error> {
        let (index, within) = (offset / BLOCK_BYTES, (offset % BLOCK_BYTES) as usize);
        let Some(mut block) = self.view.block(ino, index)? else { return Ok(()) };
        let end = block.len().min(within + len as usize);
        if within < end {
            block[within..end].fill(0);
            self.view.put_block(ino, index, Some(block))?;
        }
        Ok(())
    }

    fn write(&mut self, ino: Ino, offset: Option<u64>, content: &Content) -> Did<Effect, T::Error> {
        let mut inode = self.view.inode(ino)?;
        self.writable_file(&inode)?;
        let staged;
        let data = match content {
            Content::Inline(data) => data,
            Content::Staged(id) => {
                staged = self.view.take_staged(self.context.session, *id)?;
                &staged
            }
        };
        let offset = offset.unwrap_or(inode.size);
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::FBIG)?;
        let more = self.put_bytes(ino, offset, data)?;
        self.grow(&mut inode, more)?;
        if !data.is_empty() {
            inode.size = inode.size.max(end);
            inode.mtime = self.modified(inode.mtime);
            let mode = mode_after_write(self.cred, &inode);
            if mode != inode.mode {
                inode.mode = mode;
                self.view.touch(Key::Attr(ino));
            }
            inode.ctime = inode.ctime.max(self.time);
            self.view.touch(Key::Data(ino));
        }
        let size = inode.size;
        self.view.put_inode(ino, inode);
        Ok(Effect::Wrote { offset, size })
    }

    /// Says how many blocks there are more than before.
    fn put_bytes(&mut self, ino: Ino, offset: u64, mut data: &[u8]) -> Did<i64, T::Error> {
        let (mut at, mut more) = (offset, 0);
        while !data.is_empty() {
            let (index, within) = (at / BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
            let (here, rest) = data.split_at(data.len().min(BLOCK_BYTES as usize - within));
            let mut block = self.view.block(ino, index)?.unwrap_or_default();
            block.resize(block.len().max(within + here.len()), 0);
            block[within..within + here.len()].copy_from_slice(here);
            more += self.view.put_block(ino, index, Some(block))?;
            at += here.len() as u64;
            data = rest;
        }
        Ok(more)
    }

    fn punch(&mut self, ino: Ino, offset: u64, len: u64) -> Did<Effect, T::Error> {
        let mut inode = self.view.inode(ino)?;
        self.writable_file(&inode)?;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(Errno::INVAL)?.min(FILE_BYTES_MAX);
        if offset > end {
            return Err(Errno::FBIG.into());
        }
        let (first, last) = (offset.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
        if first <= last {
            let gone = self.view.remove_blocks(ino, first, last)?;
            self.grow(&mut inode, -(gone as i64))?;
            self.zero_within(ino, offset, first * BLOCK_BYTES - offset)?;
            self.zero_within(ino, last * BLOCK_BYTES, end - last * BLOCK_BYTES)?;
        } else {
            self.zero_within(ino, offset, end - offset)?;
        }
        inode.mtime = self.modified(inode.mtime);
        inode.mode = mode_after_write(self.cred, &inode);
        self.view.touch(Key::Data(ino));
        self.put_changed(ino, inode);
        Ok(Effect::Done)
    }

    /// A block that is reserved is there and has no bytes: zeros follow. So it counts in the room that is used, and a
    /// write to it takes no more.
    fn allocate(&mut self, ino: Ino, (offset, len): (u64, u64), keep_size: bool, zero: bool) -> Did<Effect, T::Error> {
        let mut inode = self.view.inode(ino)?;
        self.writable_file(&inode)?;
        if len == 0 {
            return Err(Errno::INVAL.into());
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::FBIG)?;
        let mut more = 0;
        for index in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let (first, last) = (index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES);
            let (from, to) = (first.max(offset), last.min(end));
            if self.view.block(ino, index)?.is_none() || (zero && (from, to) == (first, last)) {
                more += self.view.put_block(ino, index, Some(Vec::new()))?;
            } else if zero {
                self.zero_within(ino, from, to - from)?;
            }
        }
        self.grow(&mut inode, more)?;
        let grows = !keep_size && end > inode.size;
        if grows {
            inode.size = end;
        }
        if grows || zero {
            inode.mtime = self.modified(inode.mtime);
            self.view.touch(Key::Data(ino));
        }
        inode.mode = mode_after_write(self.cred, &inode);
        self.put_changed(ino, inode);
        Ok(Effect::Done)
    }

    fn set_xattr(&mut self, ino: Ino, name: &Name, value: Option<&Vec<u8>>, mode: XattrMode) -> Did<Effect, T::Error> {
        let inode = self.view.inode(ino)?;
        self.may_set_xattr(&inode, name)?;
        let names = self.view.xattrs(ino)?;
        match (names.contains(name), mode) {
            (true, XattrMode::Create) => return Err(Errno::EXIST.into()),
            (false, XattrMode::Replace) => return Err(Errno::NODATA.into()),
            _ => {}
        }
        let others = names.iter().filter(|other| *other != name);
        let bytes: usize = others.chain([name]).map(|name| name.as_bytes().len() + 1).sum();
        if value.is_some_and(|value| value.len() > XATTR_BYTES_MAX || bytes > XATTR_NAMES_BYTES_MAX) {
            return Err(Errno::NOSPC.into());
        }
        self.view.put_xattr(ino, name, value.cloned());
        self.put_changed(ino, inode);
        Ok(Effect::Done)
    }

    /// xattr(7): `user.` is for files and directories, and needs permission to write; everything else is for the
    /// superuser.
    fn may_set_xattr(&self, inode: &Inode, name: &Name) -> Did<(), T::Error> {
        if !name.as_bytes().starts_with(b"user.") {
            return if self.cred.is_root() { Ok(()) } else { Err(Errno::PERM.into()) };
        }
        if !matches!(inode.kind, Kind::File | Kind::Dir) {
            return Err(Errno::PERM.into());
        }
        Ok(need(self.cred, inode, WRITE)?)
    }
}
