//! "We make a conservative assumption that processes with write permission for a shared memory region are continually
//! writing to that region, while processes with read permission are continually reading it" (002, 3.6). A region keeps
//! what was written to it when its writer unmaps it or exits.

use std::collections::{BTreeMap, BTreeSet};

/// How a process maps a region. Who can write can read: x86 has no pages that can only be written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Permission {
    /// `PROT_READ`.
    Read,
    /// `PROT_WRITE`.
    Write,
}

/// Who maps what.
#[derive(Clone, Debug)]
pub(crate) struct Mappings<K> {
    /// How many mappings of each permission.
    of: BTreeMap<(u32, K), (usize, usize)>,
    regions: BTreeMap<u32, BTreeSet<K>>,
    readers: BTreeMap<K, BTreeSet<u32>>,
}

impl<K> Default for Mappings<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), regions: BTreeMap::new(), readers: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Mappings<K> {
    pub fn map(&mut self, process: u32, region: K, permission: Permission) {
        let counts = self.of.entry((process, region.clone())).or_default();
        match permission {
            Permission::Read => counts.0 += 1,
            Permission::Write => counts.1 += 1,
        }
        self.readers.entry(region.clone()).or_default().insert(process);
        self.regions.entry(process).or_default().insert(region);
    }

    pub fn unmap(&mut self, process: u32, region: &K, permission: Permission) {
        let key = (process, region.clone());
        let Some(counts) = self.of.get_mut(&key) else { return };
        match permission {
            Permission::Read => counts.0 = counts.0.saturating_sub(1),
            Permission::Write => counts.1 = counts.1.saturating_sub(1),
        }
        if *counts == (0, 0) {
            self.of.remove(&key);
            self.forget(process, region);
        }
    }

    fn forget(&mut self, process: u32, region: &K) {
        if let Some(readers) = self.readers.get_mut(region) {
            readers.remove(&process);
            if readers.is_empty() {
                self.readers.remove(region);
            }
        }
        if let Some(regions) = self.regions.get_mut(&process) {
            regions.remove(region);
            if regions.is_empty() {
                self.regions.remove(&process);
            }
        }
    }

    /// `execve` and `exit`.
    pub fn unmap_all(&mut self, process: u32) {
        for region in self.regions_of(process) {
            self.of.remove(&(process, region.clone()));
            self.forget(process, &region);
        }
    }

    /// A fork shares all shared mappings.
    pub fn fork(&mut self, parent: u32, child: u32) {
        for region in self.regions_of(parent) {
            let counts = self.of[&(parent, region.clone())];
            self.of.insert((child, region.clone()), counts);
            self.readers.entry(region.clone()).or_default().insert(child);
            self.regions.entry(child).or_default().insert(region);
        }
    }

    fn regions_of(&self, process: u32) -> Vec<K> {
        self.regions.get(&process).map_or(Vec::new(), |regions| regions.iter().cloned().collect())
    }

    pub fn written_by(&self, process: u32) -> Vec<K> {
        let mut regions = self.regions_of(process);
        regions.retain(|region| self.of[&(process, region.clone())].1 > 0);
        regions
    }

    pub fn readers_of(&self, region: &K) -> Vec<u32> {
        self.readers.get(region).map_or(Vec::new(), |readers| readers.iter().copied().collect())
    }
}
