//! Which commits a volume has, by what its server says.

use bluefs::Csn;

use super::record::Stamp;

/// The history of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The volume's own number.
    pub volume: u64,
    /// Starts of a server, and the newest commit at each.
    starts: Vec<(u64, Csn)>,
}

impl History {
    /// `None`: it says nothing.
    pub fn new(volume: u64, starts: Vec<(u64, Csn)>) -> Option<History> {
        (!starts.is_empty()).then_some(History { volume, starts })
    }

    /// What is told now at this commit.
    pub fn stamp(&self, csn: Csn) -> Stamp {
        Stamp { start: self.starts.last().map_or(0, |(start, _)| *start), csn }
    }

    /// Whether what was seen there is a part of this history: nothing has replaced it by what was before.
    pub fn has(&self, stamp: Stamp) -> bool {
        let Some(at) = self.starts.iter().position(|(start, _)| *start == stamp.start) else { return false };
        self.starts.get(at + 1).is_none_or(|(_, csn)| stamp.csn <= *csn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_backup_has_replaced_is_no_part_of_the_history() {
        let stamp = |start, csn| Stamp { start, csn: Csn(csn) };
        // A back-up of commit 20 went on; start 2 had come to 50.
        let history = History::new(7, vec![(1, Csn(0)), (2, Csn(10)), (3, Csn(20))]).expect("a history");
        for known in [stamp(1, 5), stamp(1, 10), stamp(2, 20), stamp(3, 900)] {
            assert!(history.has(known), "{known:?}");
        }
        for other in [stamp(1, 11), stamp(2, 21), stamp(2, 50), stamp(4, 1)] {
            assert!(!history.has(other), "{other:?}");
        }
        assert_eq!(history.stamp(Csn(30)), stamp(3, 30));
        assert_eq!(History::new(7, vec![]), None);
    }
}
