//! Names that the kernel keeps: those that it may say by itself, and those that this mount is about to change.

use std::collections::{BTreeMap, BTreeSet};

use bluefs::{Group, Ino, Key, Name};

/// Names that are remembered, at most. Behind that no further one is told for any time.
const NAMES_MAX: usize = 1 << 20;

/// Names that the kernel has asked about.
#[derive(Debug, Default)]
pub struct Names {
    /// By the groups of their directories: whether the kernel may say by itself what they mean, or that they are not
    /// there.
    groups: BTreeMap<Group, BTreeMap<(Ino, Name), bool>>,
    count: usize,
    /// There is no room for a further one, whatever is forgotten of those that the kernel may not say.
    is_full: bool,
}

/// What a change of this mount does to names that the kernel may say by itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changing {
    /// Directories with such names among those that change.
    pub dirs: BTreeSet<Ino>,
    /// All names that change with them.
    pub names: Vec<(Ino, Name)>,
    /// The kernel may take one of them along to a directory of another group, with the time of the first one's lease.
    pub leaves_group: bool,
}

impl Names {
    /// The kernel asks about a name that is there, whether it may say by itself what that means from now on. Not if
    /// there are too many.
    pub fn tell(&mut self, dir: Ino, name: &Name) -> bool {
        self.ask(dir, name) || (self.count < NAMES_MAX && self.ask(dir, name))
    }

    /// The kernel asks about a name that is not there. Not when it asks for the first time: so many are asked about
    /// once, and then made.
    pub fn ask(&mut self, dir: Ino, name: &Name) -> bool {
        let key = (dir, name.clone());
        if let Some(told) = self.groups.get_mut(&dir.group()).and_then(|names| names.get_mut(&key)) {
            *told = true;
            return true;
        }
        if self.count >= NAMES_MAX {
            if self.is_full {
                return false;
            }
            self.groups.values_mut().for_each(|names| names.retain(|_, told| *told));
            self.groups.retain(|_, names| !names.is_empty());
            self.count = self.groups.values().map(BTreeMap::len).sum();
            // To look through all of them takes long: not again for a few that are forgotten.
            self.is_full = self.count > NAMES_MAX / 4 * 3;
            if self.is_full {
                return false;
            }
        }
        if self.count < NAMES_MAX {
            self.set(key, false);
        }
        false
    }

    /// The names of a group's directories (`None`: of all) that the kernel may say by itself: from now on it may not.
    pub fn take(&mut self, group: Option<Group>) -> Vec<(Ino, Name)> {
        let is_it = |of: &Group| group.is_none_or(|group| group == *of);
        let groups = self.groups.iter_mut().filter(|(of, _)| is_it(of));
        let told = groups.flat_map(|(_, names)| names.iter_mut()).filter(|(_, told)| **told);
        let taken = told.map(|(key, told)| {
            *told = false;
            key.clone()
        });
        taken.collect()
    }

    /// Whether the kernel has to forget all of them before it can be told another one for any time.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The kernel is told to say none of them any more.
    pub fn take_all(&mut self) {
        self.is_full = false;
        self.groups.values_mut().flat_map(BTreeMap::values_mut).for_each(|told| *told = false);
    }

    /// This mount changes these. The kernel does to its names what it has changed, and what it says of one holds for
    /// that whose place it takes.
    pub fn change(&mut self, keys: &BTreeSet<Key>) -> Changing {
        let names =
            || keys.iter().filter_map(|key| if let Key::Name(dir, name) = key { Some((dir, name)) } else { None });
        let is_told = |(dir, name): (&Ino, &Name)| {
            let names = self.groups.get(&dir.group());
            names.and_then(|names| names.get(&(*dir, name.clone()))).is_some_and(|told| *told)
        };
        if !names().any(is_told) {
            return Changing::default();
        }
        let names: Vec<(Ino, Name)> = names().map(|(dir, name)| (*dir, name.clone())).collect();
        names.iter().for_each(|key| self.set(key.clone(), true));
        let dirs: BTreeSet<Ino> = names.iter().map(|(dir, _)| *dir).collect();
        let mut groups = dirs.iter().map(|dir| dir.group());
        let first = groups.next();
        Changing { leaves_group: groups.any(|group| Some(group) != first), dirs, names }
    }

    fn set(&mut self, key: (Ino, Name), told: bool) {
        let names = self.groups.entry(key.0.group()).or_default();
        self.count += usize::from(names.insert(key, told).is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(9);

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    #[test]
    fn when_all_names_are_told_they_have_to_be_forgotten() {
        let mut names = Names::default();
        let number = |number: usize| name(&number.to_string());
        for at in 0..NAMES_MAX - 1 {
            assert!(names.tell(Ino(at as u64), &number(at)));
        }
        assert!(!names.tell(DIR, &name("last")) && !names.is_full());
        assert!(!names.tell(DIR, &name("one more")) && names.is_full());
        names.take_all();
        assert!(!names.is_full() && names.tell(DIR, &name("one more")));
    }

    #[test]
    fn a_name_is_told_when_it_is_asked_about_again() {
        let mut names = Names::default();
        assert!(!names.ask(DIR, &name("a")));
        assert_eq!(names.take(None), []);
        assert!(names.ask(DIR, &name("a")) && names.ask(DIR, &name("a")));
        assert_eq!(names.take(Some(Group(DIR.group().0 + 1))), []);
        assert_eq!(names.take(Some(DIR.group())), [(DIR, name("a"))]);
        assert_eq!(names.take(None), [], "once");
        assert!(names.ask(DIR, &name("a")), "it was asked about before");
        assert!(names.tell(DIR, &name("b")), "it is there");
        assert_eq!(names.take(None), [(DIR, name("a")), (DIR, name("b"))]);
    }

    #[test]
    fn a_change_of_a_name_that_was_told_concerns_all_its_names() {
        let far = Ino(DIR.0 + (1 << 40));
        assert_ne!(DIR.group(), far.group());
        let mut names = Names::default();
        let keys = |names: &[(Ino, &str)]| names.iter().map(|(dir, text)| Key::Name(*dir, name(text))).collect();
        assert_eq!(names.change(&keys(&[(DIR, "a"), (far, "b")])), Changing::default());
        names.ask(DIR, &name("a"));
        assert_eq!(names.change(&keys(&[(DIR, "a")])), Changing::default(), "it is asked about each time");
        names.ask(DIR, &name("a"));
        let all = [(DIR, name("a")), (DIR, name("c"))].to_vec();
        let within = Changing { dirs: [DIR].into(), names: all, leaves_group: false };
        assert_eq!(names.change(&keys(&[(DIR, "a"), (DIR, "c")])), within);
        assert_eq!(names.take(None), [(DIR, name("a")), (DIR, name("c"))]);
        names.ask(DIR, &name("a"));
        let all = [(DIR, name("a")), (far, name("b"))].to_vec();
        let away = Changing { dirs: [DIR, far].into(), names: all, leaves_group: true };
        assert_eq!(names.change(&keys(&[(DIR, "a"), (far, "b")])), away);
    }
}
