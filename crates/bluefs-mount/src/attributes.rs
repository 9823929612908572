//! Attributes that the kernel may say by itself.

use std::collections::btree_map::{BTreeMap, Entry};
use std::time::{Duration, Instant};

use bluefs::{Group, Ino};

/// Inodes whose attributes the kernel is told for some time, at most.
const SURE_MAX: usize = 1 << 20;
/// How late the kernel may begin to count, to be safe.
const LATE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Sure {
    /// With the thread that was given the attributes with a name, of an inode that the kernel may not have had.
    inos: BTreeMap<Ino, Option<u32>>,
    until: Instant,
}

/// Inodes whose attributes the kernel was told for some time.
#[derive(Debug, Default)]
pub struct Attributes {
    /// By their groups, and until when at the latest.
    sure: BTreeMap<Group, Sure>,
    count: usize,
}

impl Attributes {
    /// Whether those of an inode are among them.
    pub fn has(&self, ino: Ino) -> bool {
        self.sure.get(&ino.group()).is_some_and(|sure| sure.inos.contains_key(&ino))
    }

    /// The thread that was given attributes of an inode that the kernel may not have had.
    pub fn arrives_at(&self, ino: Ino) -> Option<u32> {
        *self.sure.get(&ino.group())?.inos.get(&ino)?
    }

    /// Notes that the kernel may say attributes for so long; `false`: it is told of too many. `to`: the thread that is
    /// given them, if the kernel may not have the inode.
    pub fn note(&mut self, ino: Ino, sure: Duration, to: Option<u32>) -> bool {
        let now = Instant::now();
        if self.count >= SURE_MAX {
            self.sure.retain(|_, sure| now < sure.until + LATE_MAX);
            self.count = self.sure.values().map(|sure| sure.inos.len()).sum();
        }
        if self.count >= SURE_MAX {
            return false;
        }
        let group = self.sure.entry(ino.group()).or_insert_with(|| Sure { inos: BTreeMap::new(), until: now });
        match group.inos.entry(ino) {
            Entry::Vacant(new) => {
                new.insert(to);
                self.count += 1;
            }
            Entry::Occupied(mut old) => *old.get_mut() = to.or(*old.get()),
        }
        group.until = group.until.max(now + sure);
        true
    }

    /// Those of a group (`None`: all), each with the thread of [`Attributes::arrives_at`]. They are noted no more.
    pub fn take(&mut self, group: Option<Group>) -> Vec<(Ino, Option<u32>)> {
        let taken: Vec<Sure> = match group {
            Some(group) => self.sure.remove(&group).into_iter().collect(),
            None => std::mem::take(&mut self.sure).into_values().collect(),
        };
        let inos: Vec<(Ino, Option<u32>)> = taken.into_iter().flat_map(|sure| sure.inos).collect();
        self.count -= inos.len();
        inos
    }
}
