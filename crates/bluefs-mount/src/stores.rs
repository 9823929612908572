//! What programs store in shared mappings, and the kernel writes back: behind `msync`, `munmap` and `close`, before a
//! `read` of it, when it forgets a page, and otherwise when it likes (docs/decisions/0269).
//!
//! - The kernel writes whole pages. Several machines may store in the same page at the same time, as nobody is asked
//!   before a store. So the mount writes the bytes that were stored, and no others. If these are scattered, it writes
//!   the page as a whole, unless somebody else has changed the file since the page was told.
//! - While the kernel forgets a page it waits for the answer to the write of that page. On a new connection nobody is
//!   there to answer yet; two machines that both write back wait for each other's lease; and a process that ends waits,
//!   too. So a write is answered after a while in any case, and at once if its page is being forgotten. Whoever reads,
//!   changes or syncs the file waits until the write is made.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bluefs::op::{Content, Failure, Inode, SetAttr, STEPS_MAX};
use bluefs::query::{Answer, Query};
use bluefs::{Change, Cred, Csn, Errno, Group, Ino, Key};
use fuser::ReplyWrite;

use crate::caller::Caller;
use crate::convert;
use crate::filesystem::{Volume, ENDING_WAITS_MAX};

/// After how long a write is answered that is not made yet.
const ANSWERED_AFTER: Duration = Duration::from_millis(300);
/// How often whoever waits for such a write looks whether to give up.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// So often it is looked how long a file is, while others change it. Then what was stored is written nevertheless.
const LOOKS_AT_LENGTH_MAX: usize = 8;

/// If the bytes that were stored are in no more parts than these, they are written without the rest of the page.
const PARTS_FEW: usize = 64;

thread_local! {
    /// The kernel forgets no pages for what this thread changes.
    static KEEPS_PAGES: Cell<bool> = const { Cell::new(false) };
}

/// What was stored in pages.
#[derive(Debug)]
struct Stored {
    offset: u64,
    data: Vec<u8>,
    /// Which bytes of it, as far as that is known.
    parts: Option<Vec<(usize, usize)>>,
}

#[derive(Debug, Default)]
struct File {
    /// Writes that were answered before they were made, in the order in which the kernel sent them.
    late: BTreeMap<u64, Arc<Stored>>,
    /// One of these was not made.
    is_lost: bool,
}

#[derive(Debug, Default)]
struct Files {
    files: BTreeMap<Ino, File>,
    last: u64,
}

impl Files {
    fn any_late(&self, group: Option<Group>) -> bool {
        let Some(numbers) = group.map(Group::inodes) else { return false };
        let mut files = self.files.range(Ino(numbers.start)..Ino(numbers.end));
        files.any(|(_, file)| !file.late.is_empty())
    }
}

/// Of all files.
#[derive(Debug, Default)]
pub struct Stores {
    files: Mutex<Files>,
    made: Condvar,
}

/// A write that was answered and is not made.
struct Late<'s> {
    stores: &'s Stores,
    ino: Ino,
    number: u64,
}

impl Stores {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next write.
    fn next(&self) -> u64 {
        let mut files = self.files();
        files.last += 1;
        files.last
    }

    fn late(&self, ino: Ino, number: u64, stored: Arc<Stored>) -> Late<'_> {
        self.files().files.entry(ino).or_default().late.insert(number, stored);
        Late { stores: self, ino, number }
    }

    /// Adds to what the server has at an offset what was answered and may not have been made.
    pub fn add_late(&self, ino: Ino, offset: u64, bytes: &mut [u8]) {
        let late: Vec<Arc<Stored>> = match self.files().files.get(&ino) {
            Some(file) => file.late.values().cloned().collect(),
            None => return,
        };
        for stored in late {
            let all = [(0, stored.data.len())];
            for (begin, len) in stored.parts.as_deref().unwrap_or(&all) {
                for (at, byte) in (stored.offset + *begin as u64..).zip(stored.data.iter().skip(*begin).take(*len)) {
                    let place = at.checked_sub(offset).and_then(|at| bytes.get_mut(usize::try_from(at).ok()?));
                    place.into_iter().for_each(|place| *place = *byte);
                }
            }
        }
    }

    /// Whether nothing is to be waited for or to be told.
    pub fn is_clean(&self, ino: Ino) -> bool {
        !self.files().files.contains_key(&ino)
    }

    /// Waits until everything is made that was answered.
    pub fn wait(&self, ino: Ino, gives_up: &dyn Fn() -> bool) {
        self.wait_before(ino, u64::MAX, gives_up);
    }

    /// The same, of writes with smaller numbers.
    fn wait_before(&self, ino: Ino, number: u64, gives_up: &dyn Fn() -> bool) {
        let mut files = self.files();
        while files.files.get(&ino).is_some_and(|file| file.late.range(..number).next().is_some()) {
            drop(files);
            if gives_up() {
                return;
            }
            files = self.made.wait_timeout(self.files(), LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether something of a group's files was answered and is not made; `None`: it does not matter.
    pub fn any_late(&self, group: Option<Group>) -> bool {
        self.files().any_late(group)
    }

    /// A lease is about to be given back: what was stored under it is written before whatever others write then. It is
    /// waited for as long as a write is before it is answered, and no longer: two machines that both write back wait
    /// for each other's lease.
    pub fn wait_for_group(&self, group: Option<Group>) {
        let until = Instant::now() + ANSWERED_AFTER;
        let mut files = self.files();
        while files.any_late(group) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            files = self.made.wait_timeout(files, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether something was lost that somebody who has the file open stored.
    fn check_lost(&self, ino: Ino) -> Result<(), Errno> {
        match self.files().files.get(&ino).is_some_and(|file| file.is_lost) {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// The same, and whether all of it was made.
    pub fn sync(&self, ino: Ino, gives_up: &dyn Fn() -> bool) -> Result<(), Errno> {
        self.wait(ino, gives_up);
        let is_lost = self.files().files.get(&ino).is_some_and(|file| file.is_lost || !file.late.is_empty());
        if is_lost {
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// Nobody has the file open any more: whoever opens it next hears of nothing.
    pub fn closed(&self, ino: Ino) {
        let files = &mut self.files().files;
        if files.get(&ino).is_some_and(|file| file.late.is_empty()) {
            files.remove(&ino);
        }
    }
}

impl Late<'_> {
    /// It will not be made.
    fn lose(&self) {
        self.stores.files().files.entry(self.ino).or_default().is_lost = true;
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        let files = &mut self.stores.files().files;
        if let Some(file) = files.get_mut(&self.ino) {
            file.late.remove(&self.number);
            if file.late.is_empty() && !file.is_lost {
                files.remove(&self.ino);
            }
        }
        self.stores.made.notify_all();
    }
}

/// Changes something that the kernel itself has done, or will do, to the pages that it has.
pub fn keeping_pages<T>(change: impl FnOnce() -> T) -> T {
    KEEPS_PAGES.set(true);
    let done = change();
    KEEPS_PAGES.set(false);
    done
}

/// Whether the kernel forgets no pages for what this thread changes.
pub fn keeps_pages() -> bool {
    KEEPS_PAGES.get()
}

impl Volume {
    /// The kernel writes back what it has of a file.
    pub fn write_back(&self, ino: Ino, offset: u64, data: Vec<u8>, reply: ReplyWrite) {
        let (len, begun, number) = (data.len() as u32, Instant::now(), self.kernel.stores.next());
        let pages = &self.kernel.pages;
        let (base, parts) = (pages.base(ino), pages.stored_since(ino, offset, &data));
        // Behind the answer more may be stored.
        pages.are_told(ino, offset, &data, data.len());
        let stored = Arc::new(Stored { offset, data, parts });
        let (reply, late) = (RefCell::new(Some(reply)), RefCell::new(None));
        let answer = || {
            if let Some(reply) = reply.take() {
                *late.borrow_mut() = Some(self.kernel.stores.late(ino, number, stored.clone()));
                reply.written(len);
            }
        };
        if pages.is_leaving(ino) {
            answer();
        }
        let gives_up = || {
            if begun.elapsed() >= ANSWERED_AFTER || pages.is_leaving(ino) {
                answer();
            }
            self.kernel.is_over()
        };
        self.kernel.stores.wait_before(ino, number, &gives_up);
        let written = keeping_pages(|| self.write_stored(ino, base, &stored, &gives_up));
        match (reply.take(), written) {
            (Some(reply), Ok(())) => reply.written(len),
            (Some(reply), Err(errno)) => reply.error(convert::errno(errno)),
            (None, Ok(())) => {}
            (None, Err(_)) => late.borrow().iter().for_each(Late::lose),
        }
    }

    fn write_stored(
        &self,
        ino: Ino,
        base: Option<Csn>,
        stored: &Stored,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        if self.client.has_lost_lock(ino) {
            return Err(Errno::IO);
        }
        let Stored { offset, data, parts } = stored;
        let (_, data) = self.within_file(ino, *offset, data, gives_up)?;
        if data.is_empty() {
            return Ok(());
        }
        let is_scattered = |parts: &Vec<(usize, usize)>| parts.len() > PARTS_FEW;
        if let Some(base) = base.filter(|_| parts.as_ref().is_none_or(is_scattered)) {
            let change = Change::Write { ino, offset: *offset, content: Content::Inline(data.to_vec()) };
            match self.write_since(vec![change], (base, vec![Key::Data(ino)]), gives_up)? {
                Ok(()) => return Ok(()),
                Err(Failure::Refused { errno, .. }) => return Err(errno),
                // Others have changed the file, or the server does not know whether they have.
                Err(_) => {}
            }
        }
        let parts = parts.as_ref().ok_or(Errno::IO)?;
        for _ in 0..LOOKS_AT_LENGTH_MAX {
            let (now, data) = self.within_file(ino, *offset, &stored.data, gives_up)?;
            if self.write_parts(ino, *offset, data, parts, (now, vec![Key::Data(ino)]), gives_up)? {
                return Ok(());
            }
            // Others have changed the file since: they may have cut it.
        }
        let (_, data) = self.within_file(ino, *offset, &stored.data, gives_up)?;
        match self.write_parts(ino, *offset, data, parts, (Csn(0), vec![]), gives_up)? {
            true => Ok(()),
            false => Err(Errno::IO),
        }
    }

    /// What of these bytes lies within the file, and in which state. Whose file was cut has nothing to write behind its
    /// end.
    fn within_file<'d>(
        &self,
        ino: Ino,
        offset: u64,
        data: &'d [u8],
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(Csn, &'d [u8]), Errno> {
        let known = self.client.known_at(&Cred::root(), &Query::Inode(ino)).map(|(now, known, _)| (now, known));
        let (now, answer) = match known {
            Some((now, known)) => (now, known?),
            None => self.client.ask(&Cred::root(), Query::Inode(ino), gives_up)?,
        };
        let Answer::Inode(_, inode) = answer else { return Err(Errno::IO) };
        Ok((now, &data[..inode.size.saturating_sub(offset).min(data.len() as u64) as usize]))
    }

    /// Writes these parts. False: others have changed what was read since.
    fn write_parts(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        parts: &[(usize, usize)],
        since: (Csn, Vec<Key>),
        gives_up: &dyn Fn() -> bool,
    ) -> Result<bool, Errno> {
        let write = |(begin, len): &(usize, usize)| {
            let bytes = data.get(*begin..data.len().min(begin + len)).filter(|bytes| !bytes.is_empty())?;
            Some(Change::Write { ino, offset: offset + *begin as u64, content: Content::Inline(bytes.to_vec()) })
        };
        let writes: Vec<Change> = parts.iter().map_while(write).collect();
        for writes in writes.chunks(STEPS_MAX) {
            match self.write_since(writes.to_vec(), since.clone(), gives_up)? {
                Ok(()) => {}
                Err(Failure::Refused { errno, .. }) => return Err(errno),
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// With the rights of root: who has a file open to be written may write it.
    fn write_since(
        &self,
        changes: Vec<Change>,
        since: (Csn, Vec<Key>),
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Result<(), Failure>, Errno> {
        let told = self.client.change_since(&Cred::root(), changes, since, gives_up);
        self.space_changed();
        Ok(told?.map(|told| self.kernel.changed(told.changed())))
    }

    /// Notes which state a file's pages show now, if there is a lease.
    pub fn show_pages(&self, ino: Ino) {
        let _telling = self.kernel.telling();
        if let Some(base) = self.base_now(ino) {
            self.kernel.pages.show(ino, base);
        }
    }

    /// What pages show that are told now, under a lease.
    pub fn base_now(&self, ino: Ino) -> Option<Csn> {
        let (csn, _, sure) = self.client.known_at(&Cred::root(), &Query::Inode(ino))?;
        (!sure.is_zero()).then_some(csn)
    }

    /// Sets attributes. While a file is cut the kernel sends nothing of what it has to write back: so it cannot be
    /// asked to forget pages in which something may be stored. It cuts them by itself.
    pub fn set_attributes(
        &self,
        caller: &Caller,
        ino: Ino,
        set: SetAttr,
        is_open: bool,
    ) -> Result<(Ino, Inode), Errno> {
        if set.size.is_some() && self.client.has_lost_lock(ino) {
            return Err(Errno::IO);
        }
        let cuts = set.size.is_some() && self.kernel.pages.may_be_stored(ino);
        if set.size.is_some() {
            self.kernel.stores.wait(ino, &|| self.is_given_up(caller));
        }
        let set_all = || match is_open {
            true => self.change_open(caller, ino, Change::SetAttr { ino, set }),
            false => self.change(caller, Change::SetAttr { ino, set }),
        };
        if !cuts {
            return self.changed(caller, ino, set_all()?);
        }
        let cut = self.kernel.pages.cut(ino);
        let set = keeping_pages(set_all).and_then(|told| self.changed(caller, ino, told));
        drop(cut);
        if self.kernel.pages.is_old(ino) {
            // It waits until the call is answered. Without a thread they are forgotten with the next ones.
            let kernel = self.kernel.clone();
            let forget = move || kernel.forget_pages(|other| other == ino);
            let _ = std::thread::Builder::new().name("pages".to_owned()).spawn(forget);
        }
        set
    }

    /// Has the kernel write back what may be stored in a file's pages: another machine is to see it. Whether it was
    /// written is told to who syncs or closes the file.
    pub fn flush_stores(&self, caller: &Caller, ino: Ino) {
        if self.kernel.pages.may_be_stored(ino) && self.kernel.pages.change([&Key::Data(ino)]) {
            self.kernel.forget_pages(|other| other == ino);
        }
        self.kernel.stores.wait(ino, &|| self.stops_waiting(caller));
    }

    /// `fsync`: the kernel has written back what it has.
    pub fn sync(&self, caller: &Caller, ino: Ino) -> Result<(), Errno> {
        self.kernel.stores.sync(ino, &|| self.is_given_up(caller))
    }

    /// `close`, and the end or the replacement of a program: it does not wait for a server that is away.
    pub fn sync_closed(&self, caller: &Caller, ino: Ino) -> Result<(), Errno> {
        let waits_no_longer = || caller.has_waited(ENDING_WAITS_MAX) || caller.is_exiting();
        self.kernel.stores.wait(ino, &|| self.is_given_up(caller) || waits_no_longer());
        self.kernel.stores.check_lost(ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(70);

    fn stored() -> Arc<Stored> {
        Arc::new(Stored { offset: 4096, data: b"abcdef".to_vec(), parts: Some(vec![(1, 2), (5, 1)]) })
    }

    #[test]
    fn who_syncs_waits_for_what_was_answered_and_hears_of_what_is_lost() {
        let stores = Stores::default();
        assert!(stores.is_clean(INO) && stores.sync(INO, &|| false).is_ok());
        let (one, other) = (stores.late(INO, 1, stored()), stores.late(INO, 2, stored()));
        assert_eq!(stores.sync(INO, &|| true), Err(Errno::IO), "who does not wait for it does not know");
        drop(one);
        assert!(!stores.is_clean(INO));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| stores.sync(INO, &|| false));
            std::thread::sleep(Duration::from_millis(20));
            other.lose();
            drop(other);
            assert_eq!(waits.join().expect("no panic"), Err(Errno::IO));
        });
        assert_eq!(stores.sync(INO, &|| false), Err(Errno::IO), "each hears of it");
        stores.closed(INO);
        assert!(stores.is_clean(INO));
        drop(stores.late(INO, 3, stored()));
        assert!(stores.is_clean(INO));
    }

    #[test]
    fn what_was_answered_is_waited_for_also_when_the_file_is_closed() {
        let stores = Stores::default();
        let late = stores.late(INO, 1, stored());
        stores.closed(INO);
        let looked = Cell::new(0);
        stores.wait(INO, &|| {
            looked.set(looked.get() + 1);
            looked.get() == 3
        });
        assert_eq!((looked.get(), stores.is_clean(INO)), (3, false));
        drop(late);
        assert!(stores.is_clean(INO));
    }
    #[test]
    fn who_reads_in_between_is_told_what_was_stored() {
        let stores = Stores::default();
        let whole = Stored { offset: 4100, data: b"XY".to_vec(), parts: None };
        let _late = (stores.late(INO, 1, stored()), stores.late(INO, 2, Arc::new(whole)));
        let told = |offset: u64, bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            stores.add_late(INO, offset, &mut bytes);
            String::from_utf8(bytes).expect("text")
        };
        assert_eq!(told(4096, b"........"), ".bc.XY..");
        assert_eq!((told(4095, b"..."), told(4098, b"..")), ("..b".to_owned(), "c.".to_owned()));
        stores.add_late(Ino(71), 4096, &mut []);
    }
}
