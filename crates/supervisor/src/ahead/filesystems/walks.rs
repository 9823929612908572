//! The paths that were resolved for the call that is being considered.
//!
//! Whether a call may go ahead is asked of one mechanism after the other, and most of them ask where a path of the call
//! leads to. A path is resolved once for all of them.
//!
//! **Invariants**
//! * Nothing is kept from one consideration of a call to the next.
//! * What is kept was found with the changes of names that are held now: it is forgotten when one is added or removed,
//!   when the core has something carried out, and when a thread makes a call for us.

use crate::ahead::filesystems::path_walk::Way;
use crate::ahead::Call;
use crate::sys;
use procfs::ThreadId;
use std::cell::RefCell;
use std::time::Duration;

/// Where a path begins, and how it is resolved.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::ahead) struct Asked<'a> {
    pub tid: ThreadId,
    /// The descriptor of the directory where it begins, if it is not the working directory.
    pub dir: Option<i32>,
    pub path: &'a [u8],
    pub follows: bool,
}

#[derive(Debug)]
struct Resolved {
    tid: ThreadId,
    dir: Option<i32>,
    path: Vec<u8>,
    follows: bool,
    way: Way,
}

/// Paths that were resolved since a call has begun to be considered.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Walks {
    considered: RefCell<Option<Considered>>,
}

#[derive(Debug, Default)]
struct Considered {
    /// Before any directory was looked at, by the kernel's clock for the times of files.
    since: Option<Duration>,
    resolved: Vec<Resolved>,
}

impl Walks {
    /// A call is considered from here on. What was found for it before may not be so any more.
    pub fn begin(&self, call: &mut Call) {
        call.texts.get_mut().clear();
        self.considered.replace(Some(Considered::default()));
    }

    /// It has been decided about.
    pub fn end(&self) {
        self.considered.take();
    }

    /// What was found may not be so any more.
    pub fn forget(&self) {
        if let Some(considered) = self.considered.borrow_mut().as_mut() {
            *considered = Considered::default();
        }
    }

    /// A time before any of the directories was looked at that lie on the ways which are kept, and on those to come.
    pub fn since(&self) -> Option<Duration> {
        let now = || sys::coarse_time().ok();
        match self.considered.borrow_mut().as_mut() {
            Some(considered) => {
                considered.since = considered.since.or_else(now);
                considered.since
            }
            None => now(),
        }
    }

    /// The way that was found, if the path has been resolved.
    pub fn known(&self, asked: &Asked) -> Option<Way> {
        let considered = self.considered.borrow();
        // It is the same with a link at its end and without, if there is no link.
        let leads_there = |one: &&Resolved| one.follows == asked.follows || one.follows && !one.way.ends_with_link;
        let is_it = |one: &&Resolved| one.tid == asked.tid && one.dir == asked.dir && one.path == asked.path;
        considered.as_ref()?.resolved.iter().filter(is_it).find(leads_there).map(|one| one.way.clone())
    }

    /// The path leads there.
    pub fn learn(&self, asked: &Asked, way: &Way) {
        const MOST: usize = 8;
        let mut considered = self.considered.borrow_mut();
        let Some(considered) = considered.as_mut().filter(|considered| considered.resolved.len() < MOST) else {
            return;
        };
        let &Asked { tid, dir, path, follows } = asked;
        considered.resolved.push(Resolved { tid, dir, path: path.to_vec(), follows, way: way.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::filesystems::path_walk::End;
    use agent_abi::Frame;
    use procfs::ProcessId;

    const THREAD: ThreadId = ThreadId::from_raw(10);

    fn asked(path: &[u8], follows: bool) -> Asked<'_> {
        Asked { tid: THREAD, dir: None, path, follows }
    }

    fn way(inode: u64, ends_with_link: bool) -> Way {
        Way {
            through: Vec::new(),
            through_proc: false,
            is_held: false,
            is_open: false,
            start: (1, inode),
            by: Vec::new(),
            missing: None,
            held_from: None,
            ends_with_link,
            end: End::Unknown,
        }
    }

    fn begun() -> Walks {
        let walks = Walks::default();
        walks.begin(&mut Call::new(THREAD, ProcessId::from_raw(10), Frame::default(), 0));
        walks
    }

    fn start(walks: &Walks, asked: &Asked) -> Option<u64> {
        walks.known(asked).map(|way| way.start.1)
    }

    #[test]
    fn a_path_is_known_until_its_call_has_been_considered() {
        let walks = Walks::default();
        walks.learn(&asked(b"a", true), &way(5, false));
        assert_eq!(start(&walks, &asked(b"a", true)), None);
        let walks = begun();
        walks.learn(&asked(b"a", true), &way(5, false));
        assert_eq!(start(&walks, &asked(b"a", true)), Some(5));
        assert_eq!(start(&walks, &asked(b"b", true)), None);
        assert_eq!(start(&walks, &Asked { dir: Some(3), ..asked(b"a", true) }), None);
        assert_eq!(start(&walks, &Asked { tid: ThreadId::from_raw(11), ..asked(b"a", true) }), None);
        walks.end();
        assert_eq!(start(&walks, &asked(b"a", true)), None);
    }

    #[test]
    fn a_link_at_the_end_makes_two_ways() {
        let walks = begun();
        walks.learn(&asked(b"file", true), &way(5, false));
        walks.learn(&asked(b"link", true), &way(6, true));
        assert_eq!(start(&walks, &asked(b"file", false)), Some(5));
        assert_eq!(start(&walks, &asked(b"link", false)), None);
        walks.learn(&asked(b"link", false), &way(7, false));
        assert_eq!(start(&walks, &asked(b"link", false)), Some(7));
        assert_eq!(start(&walks, &asked(b"link", true)), Some(6));
    }

    #[test]
    fn what_is_found_after_a_change_is_as_it_was_later() {
        let walks = begun();
        walks.learn(&asked(b"a", true), &way(5, false));
        let before = walks.since();
        assert_eq!(walks.since(), before);
        // The clock of files goes on some 250 times a second.
        std::thread::sleep(Duration::from_millis(20));
        walks.forget();
        assert_eq!(start(&walks, &asked(b"a", true)), None);
        assert!(walks.since() > before);
    }
}
