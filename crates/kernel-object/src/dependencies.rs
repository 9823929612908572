//! The two kinds of dependencies that objects carry: sets of full speculations, and clocks of lightweight ones.

use commit_clock::Clock;
use speculation::DependencySet;

/// Dependencies that can be passed on. `merge` is a union: idempotent, commutative, associative, and it only grows.
pub trait Dependencies: Clone + Default {
    /// Depend on all that `other` depends on, too. Returns whether that is news.
    fn merge(&mut self, other: &Self) -> bool;

    /// Whether this depends on all that `other` depends on.
    fn covers(&self, other: &Self) -> bool;

    /// Whether this depends on nothing.
    fn is_none(&self) -> bool;
}

impl Dependencies for DependencySet {
    fn merge(&mut self, other: &Self) -> bool {
        let news = !self.covers(other);
        if news {
            DependencySet::merge(self, other);
        }
        news
    }

    fn covers(&self, other: &Self) -> bool {
        other.is_subset(self)
    }

    fn is_none(&self) -> bool {
        self.is_empty()
    }
}

impl Dependencies for Clock {
    fn merge(&mut self, other: &Self) -> bool {
        let news = !self.covers(other);
        Clock::merge(self, other);
        news
    }

    fn covers(&self, other: &Self) -> bool {
        other.is_resolved_by(self)
    }

    fn is_none(&self) -> bool {
        *self == Clock::NONE
    }
}
