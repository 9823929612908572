//! What names lead to while something is held for a guess: past all of that
//! ([0196](../../../docs/decisions/0196-names-past-what-is-held.md)), so that the kernel's answer is right.

use crate::clocks::Call;
use crate::descriptors::Stat;
use crate::gate::ENOENT;
use crate::names::AT_FDCWD;
use agent_abi::{WayEnd, WayKey, WAY_LEN_MAX};
use core::mem::MaybeUninit;

pub const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
pub const ENOENT_SAID: i64 = -ENOENT;

impl Call<'_> {
    /// Whether a name that the kernel has read, from the root or the working directory, leads past everything that is
    /// held, in a call that has begun on this permit. `end`: what it leads to now, or the error.
    pub fn leads_past_what_is_held(
        &self,
        permit: u64,
        path: u64,
        follows: bool,
        end: impl FnOnce() -> Result<WayEnd, i64>,
    ) -> bool {
        self.is_past_all_that_is_known(path, follows, end) && self.held_is_as_at_look(permit)
    }

    /// Whether what is known to be held was so when the kernel looked, in a call that has begun on this permit.
    /// A change that was held then may have been made since. Before that is known here, the permit is revoked.
    pub fn held_is_as_at_look(&self, permit: u64) -> bool {
        self.world.permits.number() == permit
    }

    fn is_past_all_that_is_known(&self, path: u64, follows: bool, end: impl FnOnce() -> Result<WayEnd, i64>) -> bool {
        if !self.world.ways.is_needed() {
            return true;
        }
        let Some(Looked { key, start, length }) = looked_for(path, follows) else { return false };
        let end = end();
        let is_known = self.world.ways.end_of(key).is_some_and(|known| match (end, known.length_before_missing()) {
            (Ok(end), None) => end == known,
            (Err(ENOENT_SAID), Some(length)) => missing_at(path, length) == Some(known),
            _ => false,
        });
        is_known || self.is_in_known_directory(path, start, length, end)
    }

    /// Whether a name of this length is one of which nothing is held, directly in a directory that is known
    /// ([0245](../../../docs/decisions/0245-a-directory-is-known.md)), and leads to no link that was followed, and to
    /// nothing of which something is held.
    #[inline(never)]
    fn is_in_known_directory(
        &self,
        path: u64,
        start: Option<(u64, u64)>,
        length: u64,
        end: Result<WayEnd, i64>,
    ) -> bool {
        // SAFETY: the kernel has read the name.
        let byte = |at: u64| unsafe { ((path + at) as *const u8).read_volatile() };
        let slash = (0..length).rev().find(|&at| byte(at) == b'/');
        let name = slash.map_or(0, |at| at + 1);
        let is_dots = (name..length).all(|at| byte(at) == b'.') && length - name <= 2;
        if is_dots {
            return false;
        }
        let mut key = WayKey::within(start);
        (0..slash.unwrap_or(0)).for_each(|at| key.add(byte(at)));
        let Some(known) = self.world.ways.end_of(key) else { return false };
        // Of an absolute name in the root the slash is left.
        let dir =
            copied_up_to(path, slash.map_or(0, |at| at.max(1)) as usize, |dir| Stat::of_name(AT_FDCWD, dir, 0).ok());
        let Some(dir) = dir.filter(|dir| end_of(dir) == known) else { return false };
        let mut entry = WayKey::new(Some((dir.dev, dir.ino)), false);
        (name..length).for_each(|at| entry.add(byte(at)));
        if self.world.ways.may_be_held_name(entry) {
            return false;
        }
        match (end, Stat::of_name(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW)) {
            (Ok(end), Ok(entry)) => end == end_of(&entry) && !self.world.ways.may_be_held(end),
            (Err(ENOENT_SAID), Err(ENOENT_SAID)) => true,
            _ => false,
        }
    }
}

/// A name as it is looked for.
pub struct Looked {
    pub key: WayKey,
    /// Device and inode of the directory where it begins; of the root nothing.
    start: Option<(u64, u64)>,
    /// How many bytes it has.
    length: u64,
}

/// How a name that the kernel has read is looked for; `None`: it is too long to be known.
pub fn looked_for(path: u64, follows: bool) -> Option<Looked> {
    // SAFETY: the kernel has read the name.
    let byte = |at: u64| unsafe { ((path + at) as *const u8).read_volatile() };
    let start = match byte(0) {
        b'/' => None,
        _ => {
            let here = Stat::of_name(AT_FDCWD, c".".as_ptr() as u64, 0).ok()?;
            Some((here.dev, here.ino))
        }
    };
    let mut key = WayKey::new(start, follows);
    let mut length = 0;
    while byte(length) != 0 {
        if length >= WAY_LEN_MAX as u64 {
            return None;
        }
        key.add(byte(length));
        length += 1;
    }
    Some(Looked { key, start, length })
}

pub fn end_of(stat: &Stat) -> WayEnd {
    WayEnd::file(stat.dev, stat.ino)
}

/// As what a name is known of which the next part is missing behind so many bytes, if these lead to a directory.
fn missing_at(path: u64, length: usize) -> Option<WayEnd> {
    let dir = copied_up_to(path, length, |dir| Stat::of_name(AT_FDCWD, dir, 0).ok())?;
    Some(WayEnd::missing(length, dir.dev, dir.ino, dir.ctime))
}

/// What is said of the beginning of a name, if it is not too long. Of nothing: of the working directory.
pub fn copied_up_to<T>(path: u64, length: usize, of: impl FnOnce(u64) -> Option<T>) -> Option<T> {
    let mut copy = [const { MaybeUninit::<u8>::uninit() }; WAY_LEN_MAX + 2];
    if length > WAY_LEN_MAX {
        return None;
    }
    for (at, byte) in copy.iter_mut().enumerate().take(length) {
        // SAFETY: the kernel has read the name, which is longer.
        byte.write(unsafe { ((path + at as u64) as *const u8).read_volatile() });
    }
    // What begins here is looked for in the working directory.
    if length == 0 {
        copy[0].write(b'.');
    }
    copy[length.max(1)].write(0);
    of(copy.as_ptr() as u64)
}
