//! What the kernel may say by itself, and how it is told to forget it.
//!
//! Names and attributes are told with a time for which they hold: that of the lease under which they are known. When a
//! lease is recalled, the kernel forgets first, and the lease is given back behind that. The kernel must never keep
//! what it was told *before* it was told to forget:
//!
//! - Of attributes it compares a version, which it has looked at before it asked, if it has the inode. If an answer
//!   about a name brings an inode that the kernel may not have, the kernel compares nothing. The attributes of such an
//!   inode are forgotten twice: at once, and when whoever asked has gone on. Then the lease is given back. The mount
//!   itself changes only inodes that the kernel has. A file with several names is an exception: its attributes get no
//!   time (docs/decisions/0263).
//! - Of names it compares nothing. So before a lease is given back, whoever was given an answer about a name has to
//!   have gone on ([`crate::landed`]), and then the kernel is told name by name to ask again, by a process of its own
//!   ([`crate::forgetter`]).
//! - If an operation keeps a directory locked, that is waited for until the time is over for which its names were told.
//!   On a new connection, for which the operation may wait, there is a new epoch of names instead (FUSE 7.44): the
//!   kernel believes no name that it had before. To change it takes no lock. But a name of an old epoch goes out of the
//!   kernel's tree, also that of a working directory, or of one on which something is mounted (docs/decisions/0252).
//! - Versions and epochs change here behind all answers that were made before: the gate.
//!
//! What the mount itself changes is forgotten before that is sent, as others may see it before the mount hears of it
//! (docs/decisions/0186). Not names, as the operation has the directory's lock: but each walk through a directory asks
//! for its attributes, which are forgotten, and is not answered before the operation is over (docs/decisions/0258).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::RandomState;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use bluefs::{Csn, Group, Ino, Key, Name};
use bluefs_client::{Front, Touched};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::attributes::Attributes;
use crate::caller::{Caller, Who};
use crate::forgetter::Forgetter;
use crate::landed::Landed;
use crate::listings::{Begun, Listings};
use crate::names::Names;
use crate::pages::{Pages, Reading};
use crate::snapshots::{Listing, Snapshot};
use crate::stores::{keeps_pages, Stores};
use crate::threads::apart_or_here;

/// `FUSE_NOTIFY_INVAL_INODE`, `FUSE_NOTIFY_INC_EPOCH`.
const INVAL_INODE: i32 = 2;
const INC_EPOCH: i32 = 8;
/// The version of FUSE that has the latter.
pub const EPOCHS_SINCE: (u32, u32) = (7, 44);
/// Bytes of a notification without a body, and with that of `FUSE_NOTIFY_INVAL_INODE`.
const HEAD_BYTES: u32 = 16;
const INVAL_BYTES: u32 = 40;
/// How long a new connection waits until the kernel asks about names again.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// So much later a time is over for certain that the kernel was told.
const NAMES_LATE_MAX: Duration = Duration::from_secs(2);
/// How often who waits for names looks whether there is a mount.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often who waits for a change looks whether that is over.
const LOOK_EVERY: Duration = Duration::from_micros(200);

thread_local! {
    /// Who has made the request that this thread carries out.
    static CALLER: Cell<u32> = const { Cell::new(0) };
    /// What it is changing of names that the kernel may say by itself.
    static CHANGING: RefCell<Changing> = RefCell::default();
}

#[derive(Debug, Default)]
struct Told {
    /// Inodes that the kernel has asked about, and has not forgotten.
    known: BTreeSet<Ino>,
    /// Attributes that the kernel may say by itself.
    attributes: Attributes,
    names: Names,
    /// When the time of all of them is over for certain.
    names_until: Option<Instant>,
    /// Names that it is to ask about again before the lease of their group is given back.
    expiring: Vec<(Ino, Name)>,
    /// Inodes whose attributes it forgets once more before that, as who asked may not have gone on.
    arriving: Vec<Ino>,
    /// Directories in which names are being changed that it may say by itself: how many changes are under way, and the
    /// threads whose changes are answered.
    changing: BTreeMap<Ino, Changes>,
    listings: Listings,
}

#[derive(Debug, Default)]
struct Changes {
    under_way: usize,
    /// With how long each had run when it was looked at first.
    answered: Vec<(u32, Option<Duration>)>,
}

/// What a request changes of names that the kernel may say by itself.
#[derive(Debug, Default)]
struct Changing {
    dirs: BTreeSet<Ino>,
    names: BTreeSet<(Ino, Name)>,
    /// The kernel is to ask about the names again behind it.
    expires: bool,
}

impl Told {
    /// The inodes of which the kernel may say something that is about to change. If it may be anything it is noted no
    /// more.
    fn touched(&mut self, touched: &Touched) -> Vec<Ino> {
        if touched.anything {
            self.listings.change_group(None);
            return self.attributes.take(None).into_iter().map(|(ino, _)| ino).collect();
        }
        self.listings.change(&touched.keys);
        let inos: BTreeSet<Ino> = touched.keys.iter().map(Key::ino).collect();
        inos.into_iter().filter(|ino| self.attributes.has(*ino)).collect()
    }
}

/// The kernel's side of a mount.
#[derive(Debug)]
pub struct Kernel {
    device: File,
    /// Whether names are told for some time.
    keeps_names: bool,
    /// Who has the kernel ask about names again, and forget pages. Without it there is a new epoch each time.
    forgetter: Option<Forgetter>,
    /// Who has taken in what was said of names.
    landed: Landed,
    has_epochs: AtomicBool,
    /// There is no room for the names that it may say: it has to forget them.
    has_all_names: AtomicBool,
    gate: RwLock<()>,
    told: Mutex<Told>,
    /// Of the places of names.
    hasher: RandomState,
    /// Contents that it has.
    pub pages: Pages,
    /// What it writes back of them.
    pub stores: Stores,
}

/// While it is there the kernel is being told something, and is not told to forget.
pub struct Telling<'k> {
    kernel: &'k Kernel,
    _open: RwLockReadGuard<'k, ()>,
}

impl Kernel {
    pub fn new(device: File, keeps_names: bool, forgetter: Option<Forgetter>) -> Kernel {
        let (has_epochs, has_all_names, gate, told, hasher) = Default::default();
        let (pages, stores) = Default::default();
        let landed = Landed::default();
        Kernel { device, keeps_names, forgetter, landed, has_epochs, has_all_names, gate, told, hasher, pages, stores }
    }

    /// Whether the kernel may be told names for some time. It may not where the process is gone that has it ask again:
    /// then each change by others would wait for the end of a lease.
    fn may_keep_names(&self) -> bool {
        self.keeps_names && !self.forgetter.as_ref().is_some_and(Forgetter::is_gone)
    }

    /// A thread makes a request.
    pub fn asks(&self, thread: u32) {
        if self.keeps_names {
            self.landed.asks(thread);
        }
    }

    /// The kernel speaks this version of FUSE.
    pub fn speaks(&self, version: (u32, u32)) {
        self.has_epochs.store(version >= EPOCHS_SINCE, Ordering::Relaxed);
    }

    /// Whether the mount is gone: the kernel has answered for us to whoever waited.
    pub fn is_over(&self) -> bool {
        let mut device = [PollFd::new(&self.device, PollFlags::empty())];
        let polled = poll(&mut device, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && device[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// Begins to tell it something. What is told has to be decided behind this.
    pub fn telling(&self) -> Telling<'_> {
        Telling { kernel: self, _open: self.gate.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// It may not have this inode any more. If it has found it again already it forgets its listing, as nobody knows of
    /// that any more.
    pub fn forgets(&self, ino: Ino) {
        let mut told = self.told();
        told.known.remove(&ino);
        if told.changing.get(&ino).is_some_and(|changes| changes.under_way == 0) {
            told.changing.remove(&ino);
        }
        let has_listing = told.listings.filled(ino).is_some();
        drop(told);
        if has_listing {
            self.forget_listing(ino);
        }
        self.told().listings.forget(ino);
    }

    /// It forgets the listing of a directory. That may wait for a program that is being given names of it.
    pub fn forget_listing(&self, ino: Ino) {
        if !self.has_listings() {
            return;
        }
        let filled = self.told().listings.filled(ino);
        notify_inode(&self.device, ino, 0, 0);
        self.told().listings.emptied(ino, filled);
    }

    /// The snapshot of a directory that a place is in, if it is still there.
    pub fn snapshot_at(&self, ino: Ino, place: u64) -> Option<Arc<Snapshot>> {
        self.told().listings.at(ino, place)
    }

    /// Names, in the order of their places.
    pub fn sorted(&self, listing: Listing) -> Snapshot {
        Snapshot::new(listing, &self.hasher)
    }

    /// It forgets contents of these files that it may not have any more. That may wait for READs, and for what it
    /// writes back first.
    pub fn forget_pages(&self, of: impl Fn(Ino) -> bool) {
        self.close_gate();
        self.pages.forget(of, |ino, offset, len| {
            let body = inval_inode(ino, offset as i64, len as i64);
            let left = || if self.is_over() { Duration::ZERO } else { LOOK_AGAIN };
            let by_another = |forgetter: &Forgetter| self.pages.may_be_stored(ino) && forgetter.tell(&body, left);
            if !self.forgetter.as_ref().is_some_and(by_another) {
                notify(&self.device, &body);
            }
        });
    }

    /// Whether it has pages under leases. Before it had epochs mappings do not see changes.
    pub fn has_pages(&self) -> bool {
        self.has_epochs.load(Ordering::Relaxed)
    }

    /// Whether it keeps listings, and opens directories without asking. Before it had epochs attributes hold for no
    /// time, and so listings do not, either.
    pub fn has_listings(&self) -> bool {
        self.has_epochs.load(Ordering::Relaxed)
    }

    /// This mount itself has changed inodes. What the kernel changes by itself for that, it changes without a version.
    pub fn changed(&self, inos: impl Iterator<Item = Ino>) {
        self.close_gate();
        let told = self.told();
        let sure: Vec<Ino> = inos.filter(|ino| told.attributes.has(*ino)).collect();
        drop(told);
        sure.into_iter().for_each(|ino| self.forget_attributes(ino));
    }

    /// This thread carries out a request of that one.
    pub fn serves(&self, thread: u32) {
        CALLER.set(thread);
    }

    /// The request that this thread carries out is answered. What it has changed is over when its caller has gone on.
    pub fn answered(self: &Arc<Kernel>) {
        if self.has_all_names.swap(false, Ordering::Relaxed) {
            // Nothing is told meanwhile: what was told before and is taken in behind it would be believed.
            let _closed = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            self.new_epoch();
        }
        let changing = CHANGING.take();
        if changing.dirs.is_empty() {
            return;
        }
        let caller = CALLER.get();
        self.landed.is_given(caller);
        if !changing.expires {
            return self.is_made(&changing.dirs, caller);
        }
        let kernel = self.clone();
        let expire = move || {
            let patience = kernel.patience();
            kernel.expire(&changing.names.iter().cloned().collect::<Vec<_>>(), patience);
            kernel.is_made(&changing.dirs, caller);
        };
        // Whoever walks there waits for it.
        apart_or_here("names", expire);
    }

    fn is_made(&self, dirs: &BTreeSet<Ino>, by: u32) {
        let mut told = self.told();
        for dir in dirs {
            let changes = told.changing.entry(*dir).or_default();
            changes.answered.push((by, None));
            changes.under_way = changes.under_way.saturating_sub(1);
        }
    }

    /// A change that this thread's request has asked for failed, and may be made nevertheless.
    pub fn may_be_made(&self) {
        CHANGING.with_borrow_mut(|changing| changing.expires = true);
    }

    /// Whether names of a directory are being changed that the kernel may say by itself.
    pub fn is_changing(&self, dir: Ino) -> bool {
        self.keeps_names && self.told().changing.contains_key(&dir)
    }

    /// Waits until no such change is under way any more, and the kernel has made all of them.
    pub fn awaits_changes(&self, dir: Ino, gives_up: &dyn Fn() -> bool) {
        while self.is_changing(dir) && !self.has_changed(dir) && !gives_up() {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Forgets changes of a directory that the kernel has made. Whether all are.
    fn has_changed(&self, dir: Ino) -> bool {
        let mut told = self.told();
        let Some(changes) = told.changing.get_mut(&dir) else { return true };
        let now = Instant::now();
        changes.answered.retain_mut(|(thread, ran)| !self.landed.has_gone_on(*thread, now, ran));
        let is_over = changes.under_way == 0 && changes.answered.is_empty();
        if is_over {
            told.changing.remove(&dir);
        }
        is_over
    }

    /// The kernel believes no name any more that it was told before.
    fn new_epoch(&self) {
        self.told().names.take_all();
        notify(&self.device, &notification(HEAD_BYTES, INC_EPOCH, &[]));
    }

    /// The kernel asks about names again that were taken from what it may say. That may wait for operations.
    fn expire_names(&self, group: Option<Group>) {
        let expiring = {
            let mut told = self.told();
            let is_it = |(dir, _): &(Ino, Name)| group.is_none_or(|group| dir.group() == group);
            let (ours, others): (Vec<_>, Vec<_>) = std::mem::take(&mut told.expiring).into_iter().partition(is_it);
            told.expiring = others;
            ours
        };
        let patience = if group.is_some() { self.patience() } else { RECONNECT_MAX };
        if !expiring.is_empty() && !self.expire(&expiring, patience) && group.is_none() {
            self.new_epoch();
        }
    }

    /// It forgets attributes once more that somebody may not have taken in when it was told to forget.
    fn forget_arriving(&self, group: Option<Group>) {
        let arriving = {
            let mut told = self.told();
            let is_it = |ino: &Ino| group.is_none_or(|group| ino.group() == group);
            let (ours, others): (Vec<_>, Vec<_>) = std::mem::take(&mut told.arriving).into_iter().partition(is_it);
            told.arriving = others;
            ours
        };
        if !arriving.is_empty() {
            // They have after this time.
            let _ = self.landed.wait(NAMES_LATE_MAX);
            arriving.into_iter().for_each(|ino| self.forget_attributes(ino));
        }
    }

    /// The kernel asks about these again; `false`: that is not known after so long.
    fn expire(&self, names: &[(Ino, Name)], patience: Duration) -> bool {
        let begun = Instant::now();
        let rest = || patience.saturating_sub(begun.elapsed());
        let expire = |forgetter: &Forgetter| self.landed.wait(rest()) && forgetter.expire(names, rest());
        let is_done = self.forgetter.as_ref().is_some_and(expire);
        // Whoever forgets names may be gone.
        while !is_done && !rest().is_zero() && !self.is_over() {
            std::thread::sleep(rest().min(LOOK_AGAIN));
        }
        is_done
    }

    /// How long it may take until the time of all names is over that the kernel was told.
    fn patience(&self) -> Duration {
        let until = self.told().names_until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything that is being told is told.
    fn close_gate(&self) {
        drop(self.gate.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn forget_attributes(&self, ino: Ino) {
        // From -1: the attributes, and no contents.
        notify_inode(&self.device, ino, -1, 0);
    }
}

/// Tells the kernel to forget an inode's attributes, and its pages from an offset on: so many bytes, or all (0).
fn notify_inode(device: &File, ino: Ino, offset: i64, len: i64) {
    notify(device, &inval_inode(ino, offset, len));
}

fn inval_inode(ino: Ino, offset: i64, len: i64) -> Vec<u8> {
    let body = [ino.0.to_ne_bytes(), offset.to_ne_bytes(), len.to_ne_bytes()].concat();
    notification(INVAL_BYTES, INVAL_INODE, &body)
}

fn notification(len: u32, code: i32, body: &[u8]) -> Vec<u8> {
    [&len.to_ne_bytes()[..], &code.to_ne_bytes(), &0u64.to_ne_bytes(), body].concat()
}

fn notify(mut device: &File, notification: &[u8]) {
    // It does not have the inode, or the mount is gone: then there is nothing to forget.
    let _ = device.write(notification);
}

impl Telling<'_> {
    /// For how long the kernel may say by itself what a name means, and the attributes of that, if both are known for
    /// so long. `has_others`: it may have other names. `to`: the thread that is told so.
    pub fn name(
        &self,
        dir: Ino,
        name: &Name,
        (ino, has_others): (Ino, bool),
        sure: Duration,
        to: u32,
    ) -> (Duration, Duration) {
        let sure = self.of_kernels_with_epochs(sure);
        let mut told = self.kernel.told();
        let may_keep = self.kernel.may_keep_names();
        let is_known = told.known.contains(&ino);
        // Of what the kernel may not have it compares no version: see the module.
        let may_arrive = |told: &Told| {
            let other = told.attributes.arrives_at(ino).filter(|other| *other != to);
            may_keep && !has_others && to != 0 && !other.is_some_and(|other| self.kernel.landed.may_go_on(other))
        };
        let may = !sure.is_zero() && told.listings.is_good(ino, true) && !told.changing.contains_key(&ino);
        let may = may && (is_known || may_arrive(&told)) && told.attributes.note(ino, sure, (!is_known).then_some(to));
        let keeps = may && may_keep && told.names.tell(dir, name);
        self.kernel.has_all_names.fetch_or(told.names.is_full(), Ordering::Relaxed);
        // A name that it is to keep and is told for no time has attributes for no time, either.
        let may = keeps || (may && !may_keep);
        if keeps {
            told.names_until = told.names_until.max(Some(Instant::now() + sure + NAMES_LATE_MAX));
            self.kernel.landed.given(to);
        }
        let if_so = |is: bool| if is { sure } else { Duration::ZERO };
        (if_so(may && keeps), if_so(may))
    }

    /// For how long it may say that a name is not there.
    pub fn absent(&self, dir: Ino, name: &Name, sure: Duration, to: u32) -> Duration {
        let sure = if self.kernel.may_keep_names() { self.of_kernels_with_epochs(sure) } else { Duration::ZERO };
        let mut told = self.kernel.told();
        if sure.is_zero() || !told.names.ask(dir, name) {
            self.kernel.has_all_names.fetch_or(told.names.is_full(), Ordering::Relaxed);
            return Duration::ZERO;
        }
        told.names_until = told.names_until.max(Some(Instant::now() + sure + NAMES_LATE_MAX));
        self.kernel.landed.given(to);
        sure
    }

    /// For how long it may say the attributes that it has asked for; `None`: for no time, and before it is told them it
    /// has to forget its listing of this directory.
    pub fn attributes(&self, ino: Ino, sure: Duration) -> Option<Duration> {
        let sure = self.of_kernels_with_epochs(sure);
        let mut told = self.kernel.told();
        told.known.insert(ino);
        if !told.listings.is_good(ino, !sure.is_zero()) {
            return None;
        }
        let may = !sure.is_zero() && !told.changing.contains_key(&ino) && told.attributes.note(ino, sure, None);
        Some(if may { sure } else { Duration::ZERO })
    }

    /// A directory is read from its beginning, and for so long nobody changes it.
    pub fn begins_listing(&self, ino: Ino, sure: Duration) -> Begun {
        let is_sure = !self.of_kernels_with_epochs(sure).is_zero();
        self.kernel.told().listings.begin(ino, is_sure)
    }

    /// These names were asked for since it was begun in a generation, and for so long nobody changes it now.
    pub fn adds_listing(&self, ino: Ino, begun: Option<u64>, sure: Duration, snapshot: Snapshot) -> Arc<Snapshot> {
        let is_sure = !self.of_kernels_with_epochs(sure).is_zero();
        self.kernel.told().listings.add(ino, begun, is_sure, snapshot)
    }

    /// Whether it may keep the listing that it has all of when it is told that a snapshot has no more names. Otherwise
    /// it has to forget it before.
    pub fn ends_listing(&self, ino: Ino, snapshot: &Snapshot, sure: Duration) -> bool {
        let is_sure = !self.of_kernels_with_epochs(sure).is_zero();
        self.kernel.told().listings.ends(ino, snapshot, is_sure)
    }

    /// A READ for pages is answered now, under a lease that lasts for so long. Answers about the file's length that the
    /// kernel has not taken in yet are worth nothing: of a page that it fills now it would take the end away.
    pub fn fills(&self, reading: Reading, sure: Duration, base: Option<Csn>) {
        let ino = reading.ino;
        if reading.answered(sure, base) {
            self.kernel.forget_attributes(ino);
        }
    }

    fn of_kernels_with_epochs(&self, sure: Duration) -> Duration {
        if self.kernel.has_epochs.load(Ordering::Relaxed) {
            sure
        } else {
            Duration::ZERO
        }
    }
}

impl Front for Kernel {
    fn forget(&self, group: Option<Group>) -> bool {
        self.close_gate();
        let mut told = self.told();
        let names = told.names.take(group);
        let has_names = !names.is_empty();
        told.expiring.extend(names);
        told.listings.change_group(group);
        let sure = told.attributes.take(group);
        let is_arriving = |(ino, to): &(Ino, Option<u32>)| to.filter(|to| self.landed.may_go_on(*to)).map(|_| *ino);
        let arriving: Vec<Ino> = sure.iter().filter_map(is_arriving).collect();
        let has_arriving = !arriving.is_empty();
        told.arriving.extend(arriving);
        drop(told);
        sure.into_iter().for_each(|(ino, _)| self.forget_attributes(ino));
        let has_pages = self.pages.change_group(group);
        has_names || has_arriving || has_pages || self.stores.any_late(group)
    }

    fn forget_contents(&self, group: Option<Group>) {
        self.forget_arriving(group);
        self.expire_names(group);
        self.forget_pages(|ino| group.is_none_or(|group| ino.group() == group));
        self.stores.wait_for_group(group);
    }

    fn others_changed(&self, keys: &[Key]) {
        self.told().listings.change(keys);
        // It has nothing of their contents: a lease was given back, or has ended.
        self.pages.change(keys);
    }

    fn before_change(&self, touched: &Touched) {
        let mut told = self.told();
        let names = told.names.change(&touched.keys);
        CHANGING.with_borrow_mut(|changing| {
            // A change may be sent again.
            let new: Vec<Ino> = names.dirs.difference(&changing.dirs).copied().collect();
            new.iter().for_each(|dir| told.changing.entry(*dir).or_default().under_way += 1);
            changing.dirs.extend(new);
            changing.names.extend(names.names);
            changing.expires |= names.leaves_group;
        });
        drop(told);
        if !names.dirs.is_empty() {
            // Before it is answered: its next request says that it has gone on.
            self.landed.given(CALLER.get());
        }
        // Behind this the kernel is told no attributes of these directories for any time.
        self.close_gate();
        let mut sure: BTreeSet<Ino> = self.told().touched(touched).into_iter().collect();
        sure.extend(&names.dirs);
        sure.into_iter().for_each(|ino| self.forget_attributes(ino));
        if keeps_pages() {
            return;
        }
        let has_pages = if touched.anything { self.pages.change_group(None) } else { self.pages.change(&touched.keys) };
        if has_pages {
            self.forget_pages(|ino| touched.anything || touched.keys.contains(&Key::Data(ino)));
            // What was stored before it is written before it.
            let is_killed = || Caller::of(Who { uid: 0, gid: 0, thread: CALLER.get() }).is_killed();
            touched.keys.iter().for_each(|key| self.stores.wait(key.ino(), &|| self.is_over() || is_killed()));
        }
    }
}

#[cfg(test)]
mod tests;
