//! Contents that the kernel has in its page cache, for mappings, and when it is told to forget them.
//!
//! A page has neither a time nor a version, and mappings show it without asking. So a page is told under a lease only,
//! and forgotten before that is given back or ends, and before the mount itself sends a change of it
//! (docs/decisions/0200).
//!
//! - To forget a page waits for whoever reads it from the mount at that moment. What these READs are about is left out:
//!   as long as one has no answer the kernel has nothing there, and it gets one under the next lease.
//! - A READ that arrives meanwhile may be one that is waited for: if the forgetting does not end, it is answered
//!   without a lease, and what it was answered is forgotten once more, still before the lease is given back.
//! - What programs store in shared mappings the kernel writes back ([`crate::stores`]), at the latest when it forgets
//!   the page. Then it has to be known what was stored: of a file that may be mapped so, what was told is kept, and the
//!   state of the volume in which it was so.
//! - Of a file that nobody has open nothing is noted: the kernel itself drops what it has of a file that is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bluefs::{Csn, Group, Ino, Key};
use rustix::time::{clock_gettime, ClockId};

/// How long a READ waits for pages that are being forgotten, until it may be what is waited for.
const LEAVING_MAX: Duration = Duration::from_millis(20);
/// The end of all files.
const END: u64 = i64::MAX as u64;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of it that are compared at once.
const LINE_BYTES: usize = 64;
/// What is kept of what was told, at most, for a while: with more of it the kernel is told to forget pages.
const TWINS_BYTES_MAX: usize = 256 << 20;

/// Since the machine was started, by a clock that goes on while it sleeps: a lease ends meanwhile.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Pages as they were told, or written back since, by their numbers.
type Twins = BTreeMap<u64, Box<[u8]>>;

#[derive(Debug, Default)]
struct File {
    /// The kernel may have pages that it may keep, and such that it has to forget.
    is_filled: bool,
    is_old: bool,
    /// Open files: through each the file may be mapped.
    open: BTreeSet<u64>,
    /// Those of them that are open to be read and written: through each it may be mapped to be stored in.
    storing: BTreeSet<u64>,
    /// The last state that the pages are known to show, but for what was stored.
    base: Option<Csn>,
    /// What was told, if something may be stored in it; and of pages that are being forgotten.
    twins: Twins,
    leaving: Twins,
    /// READs without an answer: from where, to where, and by which number they are known.
    reading: Vec<(u64, u64, u64)>,
    /// The kernel is being told to forget.
    is_leaving: bool,
    /// How many calls cut it just now: until they are answered the kernel writes nothing back of it.
    cutting: usize,
    /// Until when pages may be kept, by [`now`].
    until: Option<Duration>,
}

impl File {
    /// What the kernel has it may not keep. Whether it has to forget something.
    fn changes(&mut self) -> bool {
        self.is_old |= std::mem::take(&mut self.is_filled);
        self.is_old || self.is_leaving
    }

    /// The lease under which pages were told has ended, and they were not forgotten before it.
    fn has_lapsed(&self) -> bool {
        self.is_filled && self.until.is_some_and(|until| until <= now())
    }

    fn is_unused(&self) -> bool {
        self.open.is_empty() && !self.is_leaving && self.reading.is_empty() && self.cutting == 0
    }

    /// Everything but what is being read: offsets and lengths.
    fn unread(&self) -> Vec<(u64, u64)> {
        let mut reading: Vec<(u64, u64)> = self.reading.iter().map(|(from, to, _)| (*from, *to)).collect();
        reading.sort_unstable();
        let (mut at, mut parts) = (0, Vec::new());
        for (from, to) in reading {
            if at < from {
                parts.push((at, from - at));
            }
            at = at.max(to);
        }
        // To the end is said by no length.
        parts.extend((at < END).then_some((at, 0)));
        parts
    }
}

#[derive(Debug, Default)]
struct Files {
    files: BTreeMap<Ino, File>,
    last: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Pages {
    files: Mutex<Files>,
    /// Nothing is being forgotten any more of some file.
    left: Condvar,
    /// One at a time tells the kernel to forget.
    forgetting: Mutex<()>,
}

/// A READ that has no answer yet.
pub struct Reading<'p> {
    pages: &'p Pages,
    pub ino: Ino,
    number: u64,
    /// The kernel may wait for it while it forgets.
    pub is_waited_for: bool,
}

impl Pages {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file is opened. `stores`: to be read and written.
    pub fn open(&self, ino: Ino, handle: u64, stores: bool) {
        let mut files = self.files();
        let file = files.files.entry(ino).or_default();
        file.open.insert(handle);
        file.storing.extend(stores.then_some(handle));
    }

    /// It is closed.
    pub fn close(&self, ino: Ino, handle: u64) {
        let files = &mut self.files().files;
        if let Some(file) = files.get_mut(&ino) {
            file.open.remove(&handle);
            file.storing.remove(&handle);
            if file.open.is_empty() {
                (file.is_filled, file.is_old, file.base) = (false, false, None);
            }
            if file.storing.is_empty() {
                (file.twins, file.leaving) = (Twins::new(), Twins::new());
            }
        }
        tidy(files, ino);
    }

    /// What these keys are about has changed, or is about to. Whether the kernel has to forget something.
    pub fn change<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> bool {
        let files = &mut self.files().files;
        let inos = keys.into_iter().filter_map(|key| if let Key::Data(ino) = key { Some(*ino) } else { None });
        inos.fold(false, |must, ino| files.get_mut(&ino).is_some_and(File::changes) | must)
    }

    /// The same of all files of a group; `None`: of all.
    pub fn change_group(&self, group: Option<Group>) -> bool {
        let numbers = group.map_or(0..u64::MAX, Group::inodes);
        let mut files = self.files();
        files.files.range_mut(Ino(numbers.start)..Ino(numbers.end)).fold(false, |must, (_, file)| file.changes() | must)
    }

    /// Has the kernel forget the pages that it may not keep. `forget` tells it, by offset and length (0: to the end),
    /// and may wait. When this returns it has none, but of files that are being cut.
    pub fn forget(&self, of: impl Fn(Ino) -> bool, forget: impl Fn(Ino, u64, u64)) {
        let _one = self.forgetting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let next = {
                let mut files = self.files();
                let next = files.files.iter_mut().find(|(ino, file)| of(**ino) && file.is_old && file.cutting == 0);
                next.map(|(ino, file)| {
                    (file.is_old, file.is_leaving) = (false, true);
                    // What is told meanwhile is told of other pages, or of the same for a moment.
                    let leaving = std::mem::take(&mut file.twins);
                    file.leaving.extend(leaving);
                    (*ino, file.unread())
                })
            };
            let Some((ino, parts)) = next else { return };
            parts.into_iter().for_each(|(offset, len)| forget(ino, offset, len));
            if let Some(file) = self.files().files.get_mut(&ino) {
                file.is_leaving = false;
                file.leaving.clear();
            }
            self.left.notify_all();
        }
    }

    /// A file is being cut until what is returned goes. The kernel writes nothing back meanwhile, and to forget a page
    /// waits for that: a new connection, which has all pages forgotten, would wait for the call, and the call for the
    /// connection. So pages of this file are forgotten behind it ([`Pages::is_old`]).
    pub fn cut(&self, ino: Ino) -> Cut<'_> {
        self.files().files.entry(ino).or_default().cutting += 1;
        Cut(self, ino)
    }

    /// Whether the kernel has pages of a file that it has to forget.
    pub fn is_old(&self, ino: Ino) -> bool {
        self.files().files.get(&ino).is_some_and(|file| file.is_old)
    }

    /// A READ has arrived. It is one until what is returned goes.
    pub fn read(&self, ino: Ino, offset: u64, len: u64) -> Reading<'_> {
        let mut files = self.files();
        files.last += 1;
        let number = files.last;
        // Pages are read as a whole.
        let (from, to) = (offset & !0xfff, offset.saturating_add(len).checked_next_multiple_of(0x1000).unwrap_or(END));
        files.files.entry(ino).or_default().reading.push((from, to, number));
        let is_waited_for = !self.has_left(files, ino, LEAVING_MAX);
        Reading { pages: self, ino, number, is_waited_for }
    }

    /// Waits until nothing is being forgotten of a file, for so long at most. Whether that is so.
    fn has_left(&self, files: MutexGuard<'_, Files>, ino: Ino, within: Duration) -> bool {
        let is_leaving = |files: &mut Files| files.files.get(&ino).is_some_and(|file| file.is_leaving);
        let waited = self.left.wait_timeout_while(files, within, is_leaving);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Files of which the kernel has pages, and until when it may keep these, by [`now`].
    pub fn filled(&self) -> Vec<(Ino, Duration)> {
        let files = self.files();
        let filled = files.files.iter().filter(|(_, file)| file.is_filled);
        filled.filter_map(|(ino, file)| Some((*ino, file.until?))).collect()
    }

    /// Whether somebody here has a file open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.files().files.get(&ino).is_some_and(|file| !file.open.is_empty())
    }

    /// Files in whose pages something may have been stored since they were told.
    pub fn stored(&self) -> Vec<Ino> {
        let files = self.files();
        let stored = files.files.iter().filter(|(_, file)| file.is_filled && !file.storing.is_empty());
        stored.map(|(ino, _)| *ino).collect()
    }

    /// Whether something may be stored in pages of a file that is not written back.
    pub fn may_be_stored(&self, ino: Ino) -> bool {
        let has_pages = |file: &File| file.is_filled || file.is_old || file.is_leaving;
        self.files().files.get(&ino).is_some_and(|file| !file.storing.is_empty() && has_pages(file))
    }

    /// A file's pages show this state, since there is a lease. Who says so keeps them from being forgotten meanwhile.
    pub fn show(&self, ino: Ino, base: Csn) {
        let is_shown = |file: &&mut File| file.is_filled && !file.is_old && !file.has_lapsed();
        if let Some(file) = self.files().files.get_mut(&ino).filter(is_shown) {
            file.base = Some(base);
        }
    }

    /// The last state that a file's pages are known to show, or to have shown when they were forgotten.
    pub fn base(&self, ino: Ino) -> Option<Csn> {
        self.files().files.get(&ino)?.base
    }

    /// Whether the kernel is being told to forget pages of a file.
    pub fn is_leaving(&self, ino: Ino) -> bool {
        self.files().files.get(&ino).is_some_and(|file| file.is_leaving)
    }

    /// These bytes are told, or were written back, of so many that the kernel has: behind them the file has ended, and
    /// the kernel has zeros.
    pub fn are_told(&self, ino: Ino, offset: u64, bytes: &[u8], len: usize) {
        let mut files = self.files();
        let Some(file) = files.files.get_mut(&ino).filter(|file| !file.storing.is_empty()) else { return };
        let chunks = bytes.chunks(PAGE_BYTES).chain(std::iter::repeat(&[][..]));
        for (page, bytes) in (offset / PAGE_BYTES as u64..).zip(chunks.take(len.div_ceil(PAGE_BYTES))) {
            file.twins.insert(page, bytes.into());
        }
    }

    /// What of these bytes was stored since they were told: where, and how many bytes. `None`: what was told is not
    /// known any more.
    pub fn stored_since(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Option<Vec<(usize, usize)>> {
        let files = self.files();
        let file = files.files.get(&ino)?;
        let mut parts = Vec::new();
        for (at, (page, now)) in (offset / PAGE_BYTES as u64..).zip(bytes.chunks(PAGE_BYTES)).enumerate() {
            let told = file.twins.get(&page).or_else(|| file.leaving.get(&page))?;
            let lines = now.chunks(LINE_BYTES).enumerate().map(|(line, now)| (line * LINE_BYTES, now));
            // Most of a page is as it was.
            for (begin, now) in lines.filter(|(begin, now)| told.get(*begin..*begin + now.len()) != Some(*now)) {
                for (i, byte) in (begin..).zip(now) {
                    // Behind the end of the file there were zeros.
                    let was = told.get(i).copied().unwrap_or(0);
                    let i = at * PAGE_BYTES + i;
                    match parts.last_mut() {
                        _ if *byte == was => {}
                        Some((begin, len)) if *begin + *len == i => *len += 1,
                        _ => parts.push((i, 1)),
                    }
                }
            }
        }
        Some(parts)
    }

    /// If too much is kept of what was told, pages have to be forgotten of which it is: whether some have.
    pub fn drop_twins(&self) -> bool {
        let files = &mut self.files().files;
        let kept: usize = files.values().map(|file| file.twins.len() * PAGE_BYTES).sum();
        let may_go = |file: &&mut File| kept > TWINS_BYTES_MAX && !file.twins.is_empty();
        files.values_mut().filter(may_go).fold(false, |must, file| file.changes() | must)
    }

    /// It may keep them for so long from now on, if it still might.
    pub fn may_stay(&self, ino: Ino, sure: Duration) {
        if let Some(file) = self.files().files.get_mut(&ino).filter(|file| !file.has_lapsed()) {
            file.until = file.until.max(Some(now() + sure));
        }
    }

    /// Whether the kernel has pages that it has to forget as their lease has ended: of a mount that was stopped, or had
    /// no time. Others may have changed them, also if there is a lease again.
    pub fn lapse(&self) -> bool {
        let files = &mut self.files().files;
        let lapsed = files.values_mut().filter(|file| file.has_lapsed());
        lapsed.for_each(|file| _ = file.changes());
        files.values().any(|file| file.is_old)
    }
}

/// A file that is being cut.
pub struct Cut<'p>(&'p Pages, Ino);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        let files = &mut self.0.files().files;
        if let Some(file) = files.get_mut(&self.1) {
            file.cutting -= 1;
        }
        tidy(files, self.1);
    }
}

/// Of what is not open nothing needs to be known.
fn tidy(files: &mut BTreeMap<Ino, File>, ino: Ino) {
    if files.get(&ino).is_some_and(File::is_unused) {
        files.remove(&ino);
    }
}

impl Reading<'_> {
    /// It is answered now, under a lease that lasts for so long. While that is told nobody forgets. Whether it is the
    /// first one of its file since the kernel forgot.
    pub fn answered(self, sure: Duration, base: Option<Csn>) -> bool {
        let mut files = self.pages.files();
        let Some(file) = files.files.get_mut(&self.ino) else { return true };
        file.reading.retain(|(.., number)| *number != self.number);
        // What was told before is forgotten, and this with it.
        file.is_old |= file.has_lapsed();
        let is_first = !std::mem::replace(&mut file.is_filled, true);
        file.until = if is_first { None } else { file.until }.max(Some(now() + sure));
        if is_first && !file.is_leaving {
            file.base = base;
        }
        is_first
    }

    /// Waits until nothing of its file is being forgotten any more, for so long at most.
    pub fn await_left(&self, within: Duration) {
        self.pages.has_left(self.pages.files(), self.ino, within);
    }

    /// If the kernel still waits for it, it may be answered now without a lease, and what the kernel has is forgotten
    /// once more.
    pub fn may_be_answered_for_now(&self) -> bool {
        let mut files = self.pages.files();
        let Some(file) = files.files.get_mut(&self.ino).filter(|file| file.is_leaving) else { return false };
        file.reading.retain(|(.., number)| *number != self.number);
        file.is_old = true;
        true
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let files = &mut self.pages.files().files;
        if let Some(file) = files.get_mut(&self.ino) {
            file.reading.retain(|(.., number)| *number != self.number);
        }
        tidy(files, self.ino);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const INO: Ino = Ino(70);
    const SURE: Duration = Duration::from_secs(5);

    /// What the kernel is told to forget of the file.
    fn forgotten(pages: &Pages) -> Vec<(u64, u64)> {
        let parts: RefCell<Vec<(u64, u64)>> = RefCell::default();
        pages.forget(|_| true, |_, offset, len| parts.borrow_mut().push((offset, len)));
        parts.into_inner()
    }

    #[test]
    fn what_somebody_has_open_is_forgotten_with_each_change() {
        let pages = Pages::default();
        pages.open(INO, 1, false);
        assert!(!pages.change([&Key::Data(INO)]), "there is nothing yet");
        pages.read(INO, 0, 4096).answered(SURE, None);
        assert_eq!(pages.filled().len(), 1);
        assert!(!pages.change([&Key::Attr(INO), &Key::Data(Ino(71))]) && forgotten(&pages).is_empty());
        assert!(pages.change([&Key::Data(INO)]) && pages.filled().is_empty());
        assert!(pages.change([&Key::Data(INO)]), "it is not forgotten yet");
        assert_eq!(forgotten(&pages), [(0, 0)]);
        assert!(!pages.change([&Key::Data(INO)]));
        pages.open(INO, 2, false);
        pages.read(INO, 0, 4096).answered(SURE, None);
        pages.close(INO, 1);
        assert!(pages.change_group(Some(INO.group())), "somebody else has it open");
        pages.close(INO, 2);
        assert!(!pages.change_group(None) && forgotten(&pages).is_empty());
        assert!(pages.files().files.is_empty());
    }

    /// A mount that was stopped had a lease again before it looked, and its pages stayed.
    #[test]
    fn what_outlived_its_lease_is_forgotten_whatever_comes_behind() {
        let lapsed = || {
            let pages = Pages::default();
            pages.open(INO, 1, true);
            assert!(!pages.lapse());
            pages.read(INO, 0, 4096).answered(Duration::ZERO, None);
            pages
        };
        let forgets = |pages: Pages| assert!(pages.lapse() && forgotten(&pages) == [(0, 0)] && !pages.lapse());
        forgets(lapsed());
        let pages = lapsed();
        pages.may_stay(INO, SURE);
        forgets(pages);
        let pages = lapsed();
        pages.show(INO, Csn(7));
        assert_eq!(pages.base(INO), None);
        pages.read(INO, 4096, 4096).answered(SURE, None);
        pages.show(INO, Csn(7));
        assert_eq!(pages.base(INO), None);
        forgets(pages);
        let pages = Pages::default();
        pages.open(INO, 1, true);
        pages.read(INO, 0, 4096).answered(SURE, None);
        assert!(!pages.lapse() && forgotten(&pages).is_empty());
    }

    /// Nobody waits for a READ that waits for the lease that is to be given back.
    #[test]
    fn what_is_being_read_is_left_out() {
        let pages = Pages::default();
        pages.open(INO, 1, false);
        pages.read(INO, 0, 4096).answered(SURE, None);
        let (one, other) = (pages.read(INO, 8192, 100), pages.read(INO, 4096, 4096));
        assert!(!one.is_waited_for && pages.change_group(None));
        assert_eq!(forgotten(&pages), [(0, 4096), (12_288, 0)]);
        assert!(!pages.change_group(None));
        one.answered(SURE, None);
        drop(other);
        assert!(pages.change_group(None));
        assert_eq!(forgotten(&pages), [(0, 0)]);
    }

    #[test]
    fn who_is_waited_for_is_answered_and_forgotten_once_more() {
        let pages = Pages::default();
        pages.open(INO, 1, false);
        pages.read(INO, 0, 4096).answered(SURE, None);
        assert!(pages.change_group(None));
        let told = RefCell::new(0);
        pages.forget(
            |_| true,
            |_, _, _| {
                if told.replace_with(|told| *told + 1) == 0 {
                    let reading = pages.read(INO, 0, 4096);
                    assert!(reading.is_waited_for && reading.may_be_answered_for_now());
                }
            },
        );
        assert_eq!(told.into_inner(), 2);
        assert!(!pages.read(INO, 0, 4096).may_be_answered_for_now(), "nothing is being forgotten");
        assert!(!pages.change_group(None));
    }
    #[test]
    fn what_was_stored_is_what_differs_from_what_was_told() {
        let pages = Pages::default();
        pages.open(INO, 1, false);
        pages.are_told(INO, 4096, &[7; 5000], 3 * 4096);
        assert_eq!(pages.stored_since(INO, 4096, &[7; 10]), None, "nobody can store");
        pages.open(INO, 2, true);
        pages.read(INO, 4096, 5000).answered(SURE, Some(Csn(4)));
        pages.are_told(INO, 4096, &[7; 5000], 3 * 4096);
        let mut now = vec![7; 5000];
        (now[0], now[1], now[4095], now[4096]) = (1, 2, 3, 4);
        assert_eq!(pages.stored_since(INO, 4096, &now), Some(vec![(0, 2), (4095, 2)]));
        assert_eq!(pages.stored_since(INO, 0, &now), None, "the first page was not told");
        // Behind the end there are zeros.
        now.extend([0, 0, 9, 0]);
        assert_eq!(pages.stored_since(INO, 4096, &now), Some(vec![(0, 2), (4095, 2), (5002, 1)]));
        assert!(pages.may_be_stored(INO) && pages.base(INO) == Some(Csn(4)));
        let behind = [&[7; 5000][..], &[0; 3192], &[0, 5]].concat();
        assert_eq!(pages.stored_since(INO, 4096, &behind), Some(vec![(8193, 1)]));
        // What is being forgotten is known until it is.
        assert!(pages.change([&Key::Data(INO)]));
        let seen = RefCell::new(Vec::new());
        pages.forget(|_| true, |_, _, _| seen.borrow_mut().push(pages.stored_since(INO, 4096, &now[..1])));
        assert_eq!(seen.into_inner(), [Some(vec![(0, 1)])]);
        assert_eq!((pages.stored_since(INO, 4096, &now), pages.base(INO)), (None, Some(Csn(4))));
        pages.close(INO, 2);
        assert!(!pages.may_be_stored(INO));
    }
}
