//! A volume: what requests of the kernel come to, as questions to the server.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bluefs::op::{Content, Effect, Failure, Inode, SetAttr, ALLOCATE_BYTES_MAX, FILE_BYTES_MAX};
use bluefs::query::{Answer, Query, NAMES_MAX};
use bluefs::tree::Space;
use bluefs::{mode_without_set_ids, Change, Cred, Errno, Ino, Key, Kind, Name};
use bluefs_client::{Client, Told};

use crate::caller::{Caller, Who};
use crate::departed::Departed;
use crate::handles::Handles;
use crate::kernel::{Kernel, Telling};
use crate::listings::Begun;
use crate::pages::{self, Reading};
use crate::snapshots::{Listing, Snapshot};

/// Bytes of one read or write: one step of an interval.
pub const WRITE_BYTES_MAX: u32 = bluefs::op::STEP_BYTES_MAX as u32;
/// How long umount(8) waits for answers about the mount that it is to take away, and how long a process that ends waits
/// for a server to hear which locks it gives back. So long a server that is there needs for no answer.
pub const ENDING_WAITS_MAX: Duration = Duration::from_millis(300);
/// How long a READ waits without a connection until the kernel has forgotten its pages. After that the READ is taken
/// for what the kernel waits for.
const LEAVING_ALONE_MAX: Duration = Duration::from_millis(500);
/// Bytes that are had under a lease at once: with what makes blocks of them whole, no more than one question.
const HELD_BYTES: u32 = WRITE_BYTES_MAX / 4;
/// When a lease is prolonged under which the kernel has contents of open files, and when that has not come about.
const PROLONGED: Duration = Duration::from_secs(4);
const ENDING: Duration = Duration::from_millis(300);
/// Bytes that one call reserves, at most. Each block takes a row in the store, and nobody sees how much room the
/// server's disk has: what is surely a mistake is refused before it fills that.
const RESERVED_BYTES_MAX: u64 = 64 << 30;
/// How long it may be said how much space there is.
const SPACE_TTL: Duration = Duration::from_secs(5);

/// A volume.
pub struct Volume {
    pub client: Client,
    pub handles: Handles,
    pub kernel: Arc<Kernel>,
    departed: Departed,
    space: Mutex<KnownSpace>,
}

impl Volume {
    pub fn new(client: Client, kernel: Arc<Kernel>) -> Volume {
        client.set_front(kernel.clone());
        let (handles, departed) = (Handles::default(), Departed::default());
        Volume { client, handles, kernel, departed, space: Mutex::default() }
    }

    fn ask(&self, caller: &Caller, query: Query) -> Result<Answer, Errno> {
        self.client.look(self.cred_for(caller, &query), query, &|| self.is_given_up(caller))
    }

    /// The rights by which a question is asked. The kernel has checked them. The caller's groups are looked at only if
    /// the answer depends on them, or if that is not known.
    fn cred_for<'c>(&self, caller: &'c Caller, query: &Query) -> &'c Cred {
        let is_answered = || matches!(self.client.known_for(caller.alone(), query), Some((Ok(_), _)));
        if !caller.alone().is_root() && is_answered() {
            return caller.alone();
        }
        caller.cred_to_look()
    }

    /// The rights by which something is changed: if a server cannot be told all groups, with those that matter here.
    fn cred_to_change<'c>(&self, caller: &'c Caller, change: &Change) -> Cow<'c, Cred> {
        if !caller.has_many_groups() {
            return Cow::Borrowed(caller.cred());
        }
        let mut queries: Vec<Query> = change.inos().map(Query::Inode).collect();
        let mut groups = Vec::new();
        match change {
            Change::SetAttr { set, .. } => groups.extend(set.gid),
            Change::Rename { from_dir, from, to_dir, to, .. } => queries.extend([
                Query::Lookup { dir: *from_dir, name: from.clone() },
                Query::Lookup { dir: *to_dir, name: to.clone() },
            ]),
            _ => {}
        }
        for query in queries {
            let found = self.client.look(&Cred::root(), query, &|| self.is_given_up(caller));
            groups.extend(inode_of(found).map(|(_, inode)| inode.gid));
        }
        Cow::Owned(caller.cred_with(&groups))
    }

    /// Changes something for somebody who may by a capability: the kernel has decided so, which servers know nothing
    /// of. What is made is the caller's own.
    fn change_as_root(&self, caller: &Caller, change: Change) -> Result<Told, Errno> {
        let (cred, gives_up) = (caller.cred_as_root(), || self.is_given_up(caller));
        match change {
            Change::Create { .. } => self.client.create_for(&cred, change, caller.alone().uid, &gives_up),
            Change::SetAttr { ino, ref set } if set.size.is_some() => self.change_let_in(caller, ino, change),
            _ => self.client.change_told(&cred, change, &gives_up),
        }
    }

    /// Whether nobody needs the answer: the caller is about to end, the mount is gone, or the caller would take it away
    /// and the server says nothing.
    pub fn is_given_up(&self, caller: &Caller) -> bool {
        let is_silent = || !self.client.is_connected() || caller.has_waited(ENDING_WAITS_MAX);
        caller.is_killed() || self.kernel.is_over() || (is_silent() && caller.unmounts())
    }

    /// Whether somebody who closes a file waits no longer for the server to hear it. A process that ends closes its
    /// files when its signals are gone already.
    pub fn closes_alone(&self, caller: &Caller) -> bool {
        self.is_given_up(caller) || (caller.has_waited(ENDING_WAITS_MAX) && caller.is_exiting())
    }

    /// Whether somebody who waits for a lock waits no longer: for any signal.
    pub fn stops_waiting(&self, caller: &Caller) -> bool {
        caller.has_signal() || self.kernel.is_over()
    }

    /// A file is closed, and frees room if it has no name.
    pub fn closed(&self, ino: Ino) {
        if self.client.close(ino) {
            self.space().changed();
        }
    }

    pub fn change(&self, caller: &Caller, change: Change) -> Result<Told, Errno> {
        let cred = self.cred_to_change(caller, &change);
        // That was decided when the file was opened ([`Volume::change_open`]).
        let writes = matches!(
            change,
            Change::Write { .. } | Change::Append { .. } | Change::Punch { .. } | Change::Allocate { .. }
        );
        let again = (!writes && !cred.is_root()).then(|| change.clone());
        let mut told = self.client.change_told(&cred, change, &|| self.is_given_up(caller));
        if let (Err(errno), Some(change)) = (&told, again) {
            if caller.overrides(&change, *errno) {
                told = self.change_as_root(caller, change);
            }
        }
        // What was given up may be done nevertheless.
        self.space().changed();
        if matches!(told, Err(Errno::IO)) || (told.is_err() && self.is_given_up(caller)) {
            self.kernel.may_be_made();
        }
        let told = told?;
        self.kernel.changed(told.changed());
        self.departed.add(told.nameless());
        Ok(told)
    }

    /// The kernel has no such inode any more.
    pub fn forgets(&self, ino: Ino) {
        self.departed.forget(ino);
        self.kernel.forgets(ino);
    }

    /// Changes an open file. The kernel has looked at the rights of whoever opened it, with which it was opened for
    /// this, and others may go on with it who would not be let in (`setpriv` behind a redirection).
    pub fn change_open(&self, caller: &Caller, ino: Ino, change: Change) -> Result<Told, Errno> {
        match self.change(caller, change.clone()) {
            Err(Errno::ACCES) => self.change_let_in(caller, ino, change),
            done => done,
        }
    }

    /// Changes contents for whom the kernel has let in.
    fn change_let_in(&self, caller: &Caller, ino: Ino, change: Change) -> Result<Told, Errno> {
        const TRIES: usize = 16;
        let gives_up = || self.is_given_up(caller);
        for _ in 0..TRIES {
            let (now, found) = self.client.ask(&Cred::root(), Query::Inode(ino), &gives_up)?;
            let (_, inode) = inode_of(Ok(found))?;
            // The caller is not root, and so takes the rights of a program away, in front of the change as the kernel.
            let mode = mode_without_set_ids(&caller.cred_with(&[inode.gid]), &inode);
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            let takes_rights = (mode != inode.mode).then_some(Change::SetAttr { ino, set });
            let changes = takes_rights.into_iter().chain([change.clone()]).collect();
            let told = self.client.change_since(&Cred::root(), changes, (now, vec![Key::Attr(ino)]), &gives_up);
            self.space().changed();
            match told? {
                Ok(told) => {
                    self.kernel.changed(told.changed());
                    return Ok(told);
                }
                Err(Failure::Refused { errno, .. }) => return Err(errno),
                // Others have changed its mode meanwhile.
                Err(_) => {}
            }
        }
        Err(Errno::ACCES)
    }

    /// How much space there is may have changed.
    pub fn space_changed(&self) {
        self.space().changed();
    }

    fn space(&self) -> MutexGuard<'_, KnownSpace> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much space there is. What others take meanwhile shows a little later.
    pub fn ask_space(&self, caller: &Caller) -> Result<Space, Errno> {
        let (changes, known) = self.space().now();
        if let Some(known) = known {
            return Ok(known);
        }
        let Answer::Space(told) = self.ask(caller, Query::Space)? else { return Err(Errno::IO) };
        self.space().told(told, changes);
        Ok(told)
    }

    /// An inode that was changed: what was told of it, or what it is now.
    pub fn changed(&self, caller: &Caller, ino: Ino, mut told: Told) -> Result<(Ino, Inode), Errno> {
        match told.inode(ino) {
            Some(inode) => Ok((ino, inode)),
            None => self.inode(caller, Query::Inode(ino)),
        }
    }

    pub fn inode(&self, caller: &Caller, query: Query) -> Result<(Ino, Inode), Errno> {
        inode_of(self.ask(caller, query))
    }

    /// What a name means or an inode is, and for how long the kernel may say the same, without asking; `None`: the
    /// server has to be asked.
    pub fn known(&self, cred: &Cred, query: &Query) -> Option<(Telling<'_>, Found)> {
        let telling = self.kernel.telling();
        let (known, sure) = self.client.known_for(cred, query)?;
        Some((telling, Found { found: inode_of(known), sure }))
    }

    /// The same, if it is an answer for everybody with the caller's rights, whatever their groups. It waits for nobody.
    pub fn known_surely(&self, who: Who, query: &Query) -> Option<(Telling<'_>, Found)> {
        self.known(Caller::of(who).alone(), query).filter(|(_, known)| known.is_sure())
    }

    /// The same, also if that has to be asked for. While it is told nothing is told to be forgotten.
    pub fn find(&self, who: Who, query: &Query) -> (Telling<'_>, Found) {
        let caller = Caller::of(who);
        if let Some(known) = self.known_surely(who, query) {
            return known;
        }
        let found = match (self.inode(&caller, query.clone()), query) {
            // What is open through the mount was lost with its session.
            (Err(Errno::STALE), Query::Inode(ino)) if !self.client.is_open(*ino) => {
                self.departed.find(*ino).ok_or(Errno::STALE)
            }
            (found, _) => found,
        };
        match self.known(caller.cred_to_look(), query) {
            Some(known) => known,
            None => (self.kernel.telling(), Found { found, sure: Duration::ZERO }),
        }
    }

    /// For how long nobody changes an inode, and a directory's listing, so far as that is known.
    pub fn is_sure(&self, ino: Ino) -> (Telling<'_>, Duration) {
        let telling = self.kernel.telling();
        let known = self.client.known_for(&Cred::root(), &Query::Inode(ino));
        (telling, known.map_or(Duration::ZERO, |(_, sure)| sure))
    }

    /// `pread`.
    pub fn read(&self, caller: &Caller, ino: Ino, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        if self.client.has_lost_lock(ino) {
            return Err(Errno::IO);
        }
        self.kernel.stores.wait(ino, &|| self.is_given_up(caller));
        let cred = self.cred_for(caller, &Query::Read { ino, offset, len: 0 });
        let gives_up = || self.is_given_up(caller);
        let mut all: Vec<u8> = Vec::new();
        while (all.len() as u32) < size {
            let (offset, len) = (offset + all.len() as u64, (size - all.len() as u32).min(WRITE_BYTES_MAX));
            let bytes = match self.client.read(cred, ino, offset, len, &gives_up) {
                // Whoever opened it was let in, by the kernel.
                Err(Errno::ACCES) => self.client.read(&Cred::root(), ino, offset, len, &gives_up)?,
                bytes => bytes?,
            };
            let end = (bytes.len() as u32) < len;
            all.extend(bytes);
            if end {
                break;
            }
        }
        Ok(all)
    }

    /// A READ for the kernel's pages: it is answered under a lease, and `answer` is called while nothing is forgotten.
    pub fn read_pages(
        &self,
        caller: &Caller,
        ino: Ino,
        offset: u64,
        size: u32,
        answer: impl FnOnce(Result<Vec<u8>, Errno>),
    ) {
        if self.client.has_lost_lock(ino) {
            return answer(Err(Errno::IO));
        }
        let reading = self.kernel.pages.read(ino, offset, u64::from(size));
        // The kernel reads on for who has ended, and others wait for the pages.
        let gives_up = || self.is_given_up(caller) || caller.is_gone();
        if reading.is_waited_for {
            // The kernel waits for it before a lease is given back.
            let now = self.ask_for_now(&Query::Read { ino, offset, len: size }, &reading, &gives_up);
            if reading.may_be_answered_for_now() {
                let mut now = now.and_then(bytes_of);
                now.iter_mut().for_each(|bytes| self.kernel.stores.add_late(ino, offset, bytes));
                now.iter().for_each(|bytes| self.kernel.pages.are_told(ino, offset, bytes, size as usize));
                return answer(now);
            }
        }
        self.kernel.stores.wait(ino, &gives_up);
        let query = Query::Read { ino, offset, len: size };
        // The mount asks with the rights of root. The kernel has looked at the rights of whoever opened the file, and
        // reads a missing page for whoever has it mapped or executes it.
        loop {
            {
                let telling = self.kernel.telling();
                let known = self.client.known_for(&Cred::root(), &query).filter(|(_, sure)| !sure.is_zero());
                if let Some((known, sure)) = known {
                    telling.fills(reading, sure, self.base_now(ino));
                    let known = known.and_then(bytes_of);
                    known.iter().for_each(|bytes| self.kernel.pages.are_told(ino, offset, bytes, size as usize));
                    return answer(known);
                }
            }
            let end = offset + u64::from(size);
            let pieces = (offset..end).step_by(HELD_BYTES as usize);
            let mut each = pieces.map(|at| (at, (end - at).min(u64::from(HELD_BYTES)) as u32));
            let held = each.try_for_each(|(at, len)| self.client.hold(&Cred::root(), ino, at, len, &gives_up));
            if let Err(errno) = held {
                return answer(Err(errno));
            }
        }
    }

    /// What a READ is to be told that the kernel may wait for before it goes on to forget: asked on this connection.
    /// There is no next one before the kernel has forgotten: whoever waited for it here would wait for itself.
    fn ask_for_now(&self, query: &Query, reading: &Reading<'_>, gives_up: &dyn Fn() -> bool) -> Result<Answer, Errno> {
        let is_lost = Cell::new(false);
        let loses_connection = || {
            is_lost.set(!self.client.is_connected());
            is_lost.get()
        };
        loop {
            if loses_connection() {
                // There is nothing to be told, and a program that stores there would be ended by SIGBUS. Mostly the
                // kernel waits for something else, and is done soon.
                reading.await_left(LEAVING_ALONE_MAX);
                return Err(Errno::IO);
            }
            let asked = self.client.ask(&Cred::root(), query.clone(), &|| gives_up() || loses_connection());
            // There may be another connection already.
            if asked.is_ok() || !is_lost.get() {
                return asked.map(|(_, answer)| answer);
            }
        }
    }

    /// Contents that the kernel has stay while their lease is prolonged, and are forgotten before it ends. Says when to
    /// look again.
    pub fn tend_pages(&self) {
        if self.kernel.pages.lapse() {
            self.kernel.forget_pages(|_| true);
        }
        // Since when nobody else has changed what programs may store in (`crate::stores`).
        self.kernel.pages.stored().into_iter().for_each(|ino| self.show_pages(ino));
        if self.kernel.pages.drop_twins() {
            self.kernel.forget_pages(|_| true);
        }
        let mut ending = Vec::new();
        for (ino, until) in self.kernel.pages.filled() {
            let now = pages::now();
            if until > now + PROLONGED {
                continue;
            }
            let (_telling, sure) = self.is_sure(ino);
            if !sure.is_zero() {
                self.kernel.pages.may_stay(ino, sure);
            }
            if until.max(now + sure) < now + ENDING {
                ending.push(Key::Data(ino));
            }
        }
        if self.kernel.pages.change(&ending) {
            self.kernel.forget_pages(|ino| ending.contains(&Key::Data(ino)));
        }
    }

    /// `pwrite`, or an append.
    pub fn write(&self, caller: &Caller, ino: Ino, offset: Option<u64>, data: Vec<u8>) -> Result<(), Errno> {
        if self.client.has_lost_lock(ino) {
            return Err(Errno::IO);
        }
        let content = Content::Inline(data);
        let change = match offset {
            Some(offset) => Change::Write { ino, offset, content },
            None => Change::Append { ino, content },
        };
        self.kernel.stores.wait(ino, &|| self.is_given_up(caller));
        self.change_open(caller, ino, change).map(|_| ())
    }

    /// A hole.
    pub fn punch(&self, caller: &Caller, ino: Ino, offset: u64, len: u64) -> Result<(), Errno> {
        if self.client.has_lost_lock(ino) {
            return Err(Errno::IO);
        }
        self.kernel.stores.wait(ino, &|| self.is_given_up(caller));
        self.change_open(caller, ino, Change::Punch { ino, offset, len }).map(|_| ())
    }

    /// `fallocate` of a range (offset, length). It is reserved in parts, and with the last one the file grows: if one
    /// is refused, the file is as long as it was.
    pub fn allocate(
        &self,
        caller: &Caller,
        ino: Ino,
        (offset, len): (u64, u64),
        keep_size: bool,
        zero: bool,
    ) -> Result<(), Errno> {
        if self.client.has_lost_lock(ino) {
            return Err(Errno::IO);
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::FBIG)?;
        self.kernel.stores.wait(ino, &|| self.is_given_up(caller));
        if len > RESERVED_BYTES_MAX {
            return Err(Errno::NOSPC);
        }
        let mut at = offset;
        loop {
            let len = (end - at).min(ALLOCATE_BYTES_MAX);
            let is_last = at + len == end;
            let keep_size = keep_size || !is_last;
            self.change_open(caller, ino, Change::Allocate { ino, offset: at, len, keep_size, zero })?;
            if is_last {
                return Ok(());
            }
            at += len;
        }
    }

    fn bytes(&self, caller: &Caller, query: Query) -> Result<Vec<u8>, Errno> {
        self.ask(caller, query).and_then(bytes_of)
    }

    pub fn create_inode(&self, caller: &Caller, create: Create) -> Result<(Ino, Inode), Errno> {
        let Create { dir, name, kind, mode, rdev, target } = create;
        let (name, mode) = (name?, (mode & 0o7777) as u16);
        let told = self.change(caller, Change::Create { dir, name, ino: None, kind, mode, rdev, target })?;
        match told.effect {
            Effect::Created(ino) => self.changed(caller, ino, told),
            _ => Err(Errno::IO),
        }
    }

    /// The same of a file, which may be there unless it is to be new. Where others make and remove it all the time it
    /// is tried a few times more: the kernel itself would look and try once more, and then tell of ESTALE.
    pub fn create_or_find(&self, caller: &Caller, create: Create, is_new: bool) -> Result<(Ino, Inode), Errno> {
        const TRIES: usize = 16;
        let again = || Create { target: create.target.clone(), name: create.name.clone(), ..create };
        for _ in 0..TRIES {
            match self.create_inode(caller, again()) {
                Err(Errno::EXIST) if !is_new => {}
                made => return made,
            }
            let Ok(name) = create.name.clone() else { break };
            if !matches!(self.inode(caller, Query::Lookup { dir: create.dir, name }), Err(Errno::NOENT)) {
                break;
            }
        }
        Err(Errno::EXIST)
    }

    /// The names of a directory of which those behind a place are asked for.
    pub fn snapshot(&self, caller: &Caller, dir: Ino, place: u64) -> Result<Arc<Snapshot>, Errno> {
        let begun = if place > 0 {
            if let Some(known) = self.kernel.snapshot_at(dir, place) {
                return Ok(known);
            }
            None
        } else {
            let (telling, sure) = self.is_sure(dir);
            match telling.begins_listing(dir, sure) {
                Begun::Known(known) => return Ok(known),
                Begun::Unknown(begun) => begun,
            }
        };
        let snapshot = self.kernel.sorted(self.list(caller, dir)?);
        let (telling, sure) = self.is_sure(dir);
        Ok(telling.adds_listing(dir, begun, sure, snapshot))
    }

    /// The kernel is about to be told that a snapshot has no more names.
    pub fn ends_listing(&self, dir: Ino, snapshot: &Snapshot) {
        let (telling, sure) = self.is_sure(dir);
        let may_stay = telling.ends_listing(dir, snapshot, sure);
        drop(telling);
        if !may_stay {
            self.kernel.forget_listing(dir);
        }
    }

    fn list(&self, caller: &Caller, dir: Ino) -> Result<Listing, Errno> {
        let (_, inode) = self.inode(caller, Query::Inode(dir))?;
        let mut all = vec![(b".".to_vec(), dir, Kind::Dir), (b"..".to_vec(), inode.parent, Kind::Dir)];
        let mut after: Option<Name> = None;
        loop {
            // Who may list a directory and not pass through it gets the names alone.
            let (dir, max) = (dir, NAMES_MAX as u32);
            let plus = Query::ListPlus { dir, after: after.clone(), max };
            let (names, end): (Vec<_>, bool) = match self.ask(caller, plus) {
                Ok(Answer::Entries { entries, end }) => {
                    (entries.into_iter().map(|(name, ino, inode)| (name, ino, inode.kind)).collect(), end)
                }
                Err(Errno::ACCES) => match self.ask(caller, Query::List { dir, after: after.take(), max })? {
                    Answer::Names { names, end } => (names, end),
                    _ => return Err(Errno::IO),
                },
                Ok(_) => return Err(Errno::IO),
                Err(errno) => return Err(errno),
            };
            after = names.last().map(|(name, ..)| name.clone());
            all.extend(names.into_iter().map(|(name, ino, kind)| (name.as_bytes().to_vec(), ino, kind)));
            if end || after.is_none() {
                return Ok(all);
            }
        }
    }

    pub fn xattr_of(&self, caller: &Caller, ino: Ino, name: Name) -> Result<Vec<u8>, Errno> {
        self.bytes(caller, Query::Xattr { ino, name })
    }

    pub fn xattrs_of(&self, caller: &Caller, ino: Ino) -> Result<Vec<u8>, Errno> {
        let Answer::Xattrs(names) = self.ask(caller, Query::Xattrs(ino))? else { return Err(Errno::IO) };
        let shown = names.iter().filter(|name| caller.alone().is_root() || !name.as_bytes().starts_with(b"trusted."));
        Ok(shown.flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect())
    }
}

/// What the server has said of its space.
#[derive(Debug, Default)]
struct KnownSpace {
    told: Option<(Instant, Space)>,
    /// How often this mount has changed something.
    changes: u64,
}

impl KnownSpace {
    /// This mount has changed something: an answer that is on its way may not know of it.
    fn changed(&mut self) {
        (self.told, self.changes) = (None, self.changes + 1);
    }

    /// What is known, and what to say with an answer that is asked for instead.
    fn now(&self) -> (u64, Option<Space>) {
        let fresh = self.told.filter(|(told, _)| told.elapsed() < SPACE_TTL);
        (self.changes, fresh.map(|(_, space)| space))
    }

    /// The server has answered to who has asked after so many changes.
    fn told(&mut self, space: Space, changes: u64) {
        if changes == self.changes {
            self.told = Some((Instant::now(), space));
        }
    }
}

/// An inode, and for how long that is sure.
pub struct Found {
    pub found: Result<(Ino, Inode), Errno>,
    pub sure: Duration,
}

impl Found {
    /// Whether it is an answer for everybody.
    fn is_sure(&self) -> bool {
        matches!(self.found, Ok(_) | Err(Errno::NOENT))
    }
}

fn bytes_of(answer: Answer) -> Result<Vec<u8>, Errno> {
    match answer {
        Answer::Bytes(bytes) => Ok(bytes),
        _ => Err(Errno::IO),
    }
}

fn inode_of(answer: Result<Answer, Errno>) -> Result<(Ino, Inode), Errno> {
    match answer? {
        Answer::Inode(ino, inode) => Ok((ino, inode)),
        _ => Err(Errno::IO),
    }
}

/// What is made.
pub struct Create {
    pub dir: Ino,
    pub name: Result<Name, Errno>,
    pub kind: Kind,
    pub mode: u32,
    pub rdev: u32,
    pub target: Vec<u8>,
}

/// Access control lists would have to be enforced, and capabilities to be taken away by writes: neither is there.
pub fn xattr_name(name: &OsStr) -> Result<Name, Errno> {
    let bytes = name.as_bytes();
    if bytes.starts_with(b"system.") || bytes.starts_with(b"security.") {
        return Err(Errno::OPNOTSUPP);
    }
    Name::new(bytes).ok_or(Errno::INVAL)
}

/// The same of one that is set: the others are in no namespace of xattr(7). They could be set before
/// docs/decisions/0304: they can be read and removed.
pub fn xattr_name_to_set(name: &OsStr) -> Result<Name, Errno> {
    let has = |prefix: &[u8]| name.as_bytes().strip_prefix(prefix).map(|rest| !rest.is_empty());
    match has(b"user.").or_else(|| has(b"trusted.")) {
        Some(true) => xattr_name(name),
        Some(false) => Err(Errno::INVAL),
        None => Err(Errno::OPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::File;
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;
    use std::thread;

    use bluefs::{Csn, SessionId};
    use bluefs_client::{Address, OnDisconnect};
    use bluefs_wire::{Reply, Request};

    use super::*;

    /// A server whose first connection ends with the first question.
    fn ending_server() -> Address {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        thread::spawn(move || {
            for (epoch, socket) in (1..).zip(listener.incoming().flatten()) {
                let (mut from, mut to) = bluefs_net::plain(socket).expect("a connection");
                thread::spawn(move || {
                    while let Ok(Some(request)) = from.receive::<Request>() {
                        let (session, csn, lease_ms) = (SessionId(1), Csn(0), 10_000);
                        let welcome =
                            Reply::Welcome { session, epoch, csn, last: 0, now: 0, lease_ms, read_only: false };
                        match request {
                            Request::Hello { .. } => to.send(&welcome).expect("it waits for that"),
                            Request::Ask { .. } if epoch == 1 => return thread::sleep(Duration::from_millis(30)),
                            _ => {}
                        }
                    }
                });
            }
        });
        format!("bluefs://127.0.0.1:{port}").parse().expect("an address")
    }

    /// On the next connection the kernel forgets everything first, and it has not forgotten this page yet.
    #[test]
    fn a_read_that_is_waited_for_does_not_wait_for_the_next_connection() {
        const INO: Ino = Ino(70);
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let kernel = Arc::new(Kernel::new(File::from(OwnedFd::from(ours)), false, None));
        let client = Client::connect(ending_server(), None, OnDisconnect::Block).expect("a server");
        let volume = Arc::new(Volume::new(client, kernel));
        let pages = &volume.kernel.pages;
        pages.open(INO, 1, false);
        pages.read(INO, 0, 4096).answered(Duration::from_secs(5), None);
        assert!(pages.change([&Key::Data(INO)]));
        let told = RefCell::new(Vec::new());
        pages.forget(
            |_| true,
            |_, _, _| {
                // The kernel waits for this one, and for the second time for none.
                if told.borrow().is_empty() {
                    let ((tell, hear), reader) = (channel(), volume.clone());
                    thread::spawn(move || {
                        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                        let caller = Caller::of(Who { uid: 0, gid: 0, thread });
                        reader.read_pages(&caller, INO, 0, 4096, |read| tell.send(read).expect("it is heard"));
                    });
                    told.borrow_mut().push(hear.recv_timeout(Duration::from_secs(10)).expect("it has an answer"));
                }
            },
        );
        assert_eq!(told.into_inner(), [Err(Errno::IO)]);
        let begun = Instant::now();
        while !volume.client.is_connected() && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(volume.client.is_connected(), "the next connection has come about");
        drop(theirs);
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_kept() {
        let mut known = KnownSpace::default();
        let (changes, _) = known.now();
        known.changed();
        known.told(Space::fresh(), changes);
        assert_eq!(known.now(), (1, None));
        known.told(Space::fresh(), 1);
        assert_eq!(known.now(), (1, Some(Space::fresh())));
        known.changed();
        assert_eq!(known.now(), (2, None));
    }
}
