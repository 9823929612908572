//! A disk in memory that remembers what was done to it, so that a test can be a crash: at any moment, with any of the
//! writes lost that were not synced.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile};

/// What was done.
#[derive(Debug, Clone)]
enum Deed {
    Create(String),
    Remove(String),
    Write { name: String, offset: u64, data: Vec<u8> },
    SetLen { name: String, len: u64 },
    Sync(String),
    SyncNames,
}

type Files = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Default)]
struct State {
    /// What was there before the first deed, on stable storage.
    base: Files,
    files: Files,
    deeds: Vec<Deed>,
}

/// A disk in memory.
#[derive(Debug, Clone, Default)]
pub struct CrashDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct File {
    disk: CrashDisk,
    name: String,
}

impl CrashDisk {
    /// An empty disk.
    pub fn new() -> CrashDisk {
        CrashDisk::default()
    }

    /// How many deeds there were.
    pub fn deeds(&self) -> usize {
        self.state().deeds.len()
    }

    /// The files as they are now, without a history.
    pub fn copy(&self) -> CrashDisk {
        CrashDisk::of(self.state().files.clone())
    }

    /// The disk after a crash behind the first `deeds` deeds. `survives` says of each write since the last sync of its
    /// file whether it is on the disk, in part perhaps: how many of its bytes.
    pub fn crash(&self, deeds: usize, mut survives: impl FnMut(usize) -> usize) -> CrashDisk {
        let state = self.state();
        let done = &state.deeds[..deeds];
        let mut files = state.base.clone();
        for (i, deed) in done.iter().enumerate() {
            let synced = done[i..].iter().any(|later| is_synced_by(deed, later));
            match deed {
                Deed::Write { name, offset, data } if !synced => {
                    let kept = survives(data.len());
                    carry_out(
                        &mut files,
                        &Deed::Write { name: name.clone(), offset: *offset, data: data[..kept].to_vec() },
                    );
                }
                Deed::Create(_) | Deed::Remove(_) | Deed::SetLen { .. } if !synced && survives(1) == 0 => {}
                deed => carry_out(&mut files, deed),
            }
        }
        CrashDisk::of(files)
    }

    /// Names and lengths of all files.
    pub fn lengths(&self) -> Vec<(String, usize)> {
        self.state().files.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect()
    }

    /// Changes a bit.
    pub fn flip(&self, name: &str, bit: usize) {
        let mut state = self.state();
        let bytes = state.files.get_mut(name).expect("the file is there");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    /// Bytes of a file up to the last one that is not zero.
    pub fn used(&self, name: &str) -> usize {
        let state = self.state();
        state.files[name].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    }

    /// Makes zeros of a file's bytes from there on.
    pub fn zero(&self, name: &str, from: usize) {
        let mut state = self.state();
        state.files.get_mut(name).expect("the file is there")[from..].fill(0);
    }

    fn of(files: Files) -> CrashDisk {
        CrashDisk(Arc::new(Mutex::new(State { base: files.clone(), files, deeds: Vec::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn perform(&self, deed: Deed) {
        let mut state = self.state();
        carry_out(&mut state.files, &deed);
        state.deeds.push(deed);
    }
}

/// Names are on the disk when they were synced, or when their file was.
fn is_synced_by(deed: &Deed, later: &Deed) -> bool {
    match (deed, later) {
        (Deed::Write { name, .. } | Deed::SetLen { name, .. }, Deed::Sync(synced)) => name == synced,
        (Deed::Create(_) | Deed::Remove(_), Deed::SyncNames) => true,
        _ => false,
    }
}

fn carry_out(files: &mut Files, deed: &Deed) {
    match deed {
        Deed::Create(name) => _ = files.entry(name.clone()).or_default(),
        Deed::Remove(name) => _ = files.remove(name),
        Deed::Write { name, offset, data } => {
            let Some(file) = files.get_mut(name) else { return };
            let end = *offset as usize + data.len();
            file.resize(file.len().max(end), 0);
            file[*offset as usize..end].copy_from_slice(data);
        }
        Deed::SetLen { name, len } => {
            if let Some(file) = files.get_mut(name) {
                file.resize(*len as usize, 0);
            }
        }
        Deed::Sync(_) | Deed::SyncNames => {}
    }
}

impl Disk for CrashDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let there = self.state().files.contains_key(name);
        if !there && !create {
            return Ok(None);
        }
        if !there {
            self.perform(Deed::Create(name.to_owned()));
        }
        Ok(Some(Arc::new(File { disk: self.clone(), name: name.to_owned() })))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().files.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.perform(Deed::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.perform(Deed::SyncNames);
        Ok(())
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files.get(&self.name).map_or(0, Vec::len) as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        let bytes = state.files.get(&self.name).and_then(|file| file.get(offset as usize..offset as usize + out.len()));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.perform(Deed::Write { name: self.name.clone(), offset, data: data.to_vec() });
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.perform(Deed::SetLen { name: self.name.clone(), len });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.perform(Deed::Sync(self.name.clone()));
        Ok(())
    }
}
