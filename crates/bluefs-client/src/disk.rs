//! Contents on the disk of the client's machine, kept across restarts (docs/decisions/0256).
//!
//! Nothing here is believed: a block is used only if the server has said, on this connection, that the file's contents
//! have not changed since the state that the block is of. It is written by a thread of its own, for which nobody waits;
//! what that does not manage to write is left out, and if the disk is full or broken the cache ends, and nothing else.

mod history;
mod index;
mod record;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bluefs::Ino;

pub use history::History;
pub use index::Found;
use index::{Generation, Index};
use record::{append, Head, HEADER_BYTES, HEAD_BYTES};
pub use record::{At, Stamp};

/// How much a cache may take up when nothing is said.
pub const DEFAULT_BYTES_MAX: u64 = 1 << 30;
/// How much it may take up at least.
pub const BYTES_MAX_MIN: u64 = 1 << 20;
/// Bytes that wait to be written, at most.
const QUEUED_MAX: usize = 16 << 20;
/// Bytes that are written at once.
const BATCH_BYTES: usize = 256 << 10;
/// How long the first one who reads waits until it is known what is there, and the end for what is not written yet.
const READY_MAX: Duration = Duration::from_secs(2);
/// How long one who has the directory is waited for: the process of a mount ends after umount(8) does.
const LOCKED_MAX: Duration = Duration::from_secs(5);
const LOCKED_PAUSE: Duration = Duration::from_millis(20);
/// The file that says who has the directory, and how the others begin.
const LOCK: &str = "lock";
const BLOCKS: &str = "blocks-";

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Somebody else has it.
    #[error("cannot use {} as a cache: another mount uses it", .0.display())]
    InUse(PathBuf),
    /// It is something else.
    #[error("cannot use {} as a cache: something else is in it", .0.display())]
    NotEmpty(PathBuf),
    /// Its owner could change what is in it.
    #[error("cannot use {} as a cache: it belongs to another user", .0.display())]
    NotOurs(PathBuf),
    /// It cannot be used.
    #[error("cannot use {} as a cache: {}", dir.display(), plain(source))]
    Io {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What is done, for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Blocks, and their bytes, that were taken from there.
    pub hits: u64,
    /// See `hits`.
    pub hit_bytes: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Whether it was turned off.
    pub is_off: bool,
}

#[derive(Debug)]
enum Order {
    /// Contents are of this volume from now on.
    Volume(u64),
    Put(u64, At, Stamp, Vec<u8>),
    /// Everything so far is to be written.
    Flush(Sender<()>),
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    bytes_max: u64,
    index: Mutex<Index>,
    /// It is known what is there.
    ready: Condvar,
    /// That takes longer than anybody waits.
    is_slow: AtomicBool,
    queued: AtomicUsize,
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    /// As long as it is there nobody else has the directory.
    _lock: File,
}

/// A cache on disk.
#[derive(Debug)]
pub struct Disk {
    shared: Arc<Shared>,
    orders: Sender<Order>,
}

impl Disk {
    /// Takes a directory, which is made if it is not there, for a cache of at most so many bytes.
    pub fn open(dir: &Path, bytes_max: u64) -> Result<Disk, DiskError> {
        let failed = |source| DiskError::Io { dir: dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let meta = std::fs::metadata(dir).map_err(failed)?;
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(DiskError::NotOurs(dir.to_owned()));
        }
        let names = names(dir).map_err(failed)?;
        if !names.is_empty() && !names.iter().any(|name| name == LOCK) {
            return Err(DiskError::NotEmpty(dir.to_owned()));
        }
        std::fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(failed)?;
        let lock = private().open(dir.join(LOCK)).map_err(failed)?;
        let begun = Instant::now();
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::WouldBlock if begun.elapsed() < LOCKED_MAX => std::thread::sleep(LOCKED_PAUSE),
                TryLockError::WouldBlock => return Err(DiskError::InUse(dir.to_owned())),
                TryLockError::Error(source) => return Err(failed(source)),
            }
        }
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            bytes_max: bytes_max.max(BYTES_MAX_MIN),
            index: Mutex::default(),
            ready: Condvar::new(),
            is_slow: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            hit_bytes: AtomicU64::new(0),
            _lock: lock,
        });
        let (orders, input) = mpsc::channel();
        let writer = shared.clone();
        let write = move || writer.write(&input);
        std::thread::Builder::new().name("cache".to_owned()).spawn(write).map_err(failed)?;
        Ok(Disk { shared, orders })
    }

    /// The contents are of this volume: what is there of another one is dropped.
    pub fn use_volume(&self, volume: u64) {
        self.shared.index().begins(volume);
        let _ = self.orders.send(Order::Volume(volume));
    }

    /// A block, as it was at `stamp`. It is written later, or never.
    pub fn put(&self, volume: u64, at: At, stamp: Stamp, contents: &[u8]) {
        let Shared { index, queued, .. } = &*self.shared;
        let is_off = index.lock().unwrap_or_else(PoisonError::into_inner).is_off;
        if is_off || queued.fetch_add(contents.len(), Ordering::Relaxed) > QUEUED_MAX {
            queued.fetch_sub(contents.len(), Ordering::Relaxed);
            return;
        }
        let _ = self.orders.send(Order::Put(volume, at, stamp, contents.to_vec()));
    }

    /// Waits until it is known what is there, but not for long: once it has taken too long nobody waits any more.
    pub fn wait_until_ready(&self) {
        let Shared { ready, is_slow, .. } = &*self.shared;
        if is_slow.load(Ordering::Relaxed) {
            return;
        }
        let is_loading = |index: &mut Index| index.is_loading;
        let waited = ready.wait_timeout_while(self.shared.index(), READY_MAX, is_loading);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            is_slow.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until everything so far is written, but not for long.
    pub fn flush(&self) {
        let (done, is_done) = mpsc::channel();
        let _ = self.orders.send(Order::Flush(done));
        let _ = is_done.recv_timeout(READY_MAX);
    }

    /// Files of a volume of which something is there: this one and those behind it, at most so many.
    pub fn files_from(&self, volume: u64, ino: Ino, max: usize) -> Vec<Ino> {
        self.shared.index().files_from(volume, ino, max)
    }

    /// A block that was there at a state that is `good`.
    pub fn find(&self, volume: u64, at: At, good: impl Fn(Stamp) -> bool) -> Option<Found> {
        self.shared.index().find(volume, at, good)
    }

    /// Drops the blocks of a file whose state is not `good`.
    pub fn drop_old(&self, volume: u64, ino: Ino, good: impl Fn(Stamp) -> bool) {
        self.shared.index().drop_old(volume, ino, good);
    }

    /// The contents of a block; `None`: the disk has lost them.
    pub fn read(&self, volume: u64, found: &Found) -> Option<Vec<u8>> {
        let contents = match found.read() {
            Ok(contents) => contents,
            // A file that ends too early is damage, as a wrong checksum is.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => {
                self.shared.turn_off(&error);
                return None;
            }
        };
        match &contents {
            Some(contents) => {
                self.shared.hits.fetch_add(1, Ordering::Relaxed);
                self.shared.hit_bytes.fetch_add(contents.len() as u64, Ordering::Relaxed);
                if self.shared.index().is_old(found) {
                    // It is used, and would go with its file.
                    self.put(volume, found.at, found.stamp, contents);
                }
            }
            None => self.shared.index().forget(found),
        }
        contents
    }

    /// Numbers for people.
    pub fn counts(&self) -> DiskCounts {
        let Shared { hits, hit_bytes, .. } = &*self.shared;
        let (hits, hit_bytes) = (hits.load(Ordering::Relaxed), hit_bytes.load(Ordering::Relaxed));
        let index = self.shared.index();
        DiskCounts { hits, hit_bytes, bytes: index.bytes(), is_off: index.is_off }
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread that writes.
    fn write(&self, orders: &Receiver<Order>) {
        let mut next = None;
        while let Some(order) = next.take().or_else(|| orders.recv().ok()) {
            let done = match order {
                Order::Volume(volume) => self.load(volume),
                Order::Put(volume, at, stamp, contents) => {
                    let mut batch = vec![(at, stamp, contents)];
                    let mut bytes = batch[0].2.len();
                    while bytes < BATCH_BYTES {
                        match orders.try_recv() {
                            Ok(Order::Put(of, at, stamp, contents)) if of == volume => {
                                bytes += contents.len();
                                batch.push((at, stamp, contents));
                            }
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    let done = self.append(volume, &batch);
                    self.queued.fetch_sub(bytes, Ordering::Relaxed);
                    done
                }
                Order::Flush(done) => {
                    let _ = done.send(());
                    Ok(())
                }
            };
            if let Err(error) = done {
                self.turn_off(&error);
            }
        }
    }

    /// Nothing more is read or written.
    fn turn_off(&self, error: &io::Error) {
        let mut index = self.index();
        if !std::mem::replace(&mut index.is_off, true) {
            index.clear();
            // Whoever has started the mount may be gone, and nobody reads this.
            let (dir, why) = (self.dir.display(), plain(error));
            let _ = writeln!(io::stderr(), "speculator: the cache in {dir} is off: {why}");
        }
        drop(index);
        self.ready.notify_all();
    }

    /// Finds out what is there of a volume, and removes everything else.
    fn load(&self, volume: u64) -> io::Result<()> {
        {
            let mut index = self.index();
            if index.is_off || index.volume != Some(volume) || !index.is_loading {
                return Ok(());
            }
            index.clear_blocks();
        }
        let mut numbers: Vec<u64> = names(&self.dir)?.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        let mut found = Vec::new();
        for number in numbers {
            match self.read_file(volume, number)? {
                Some(generation) if generation.bytes <= self.bytes_max / 2 => found.push(generation),
                _ => std::fs::remove_file(self.path(number))?,
            }
        }
        while found.len() > 2 {
            std::fs::remove_file(self.path(found.remove(0).number))?;
        }
        let mut index = self.index();
        if index.volume == Some(volume) {
            index.loaded(found);
        }
        drop(index);
        self.ready.notify_all();
        Ok(())
    }

    /// What a file has up to the first record that is none; it is cut there. `None`: it is not of this volume.
    fn read_file(&self, volume: u64, number: u64) -> io::Result<Option<Generation>> {
        let file = private().create(false).open(self.path(number))?;
        let len = file.metadata()?.len();
        let mut head = Vec::new();
        (&file).take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        let Some(head) = Head::of(&head).filter(|head| head.volume == volume) else { return Ok(None) };
        let mut generation = Generation::new(number, head.salt, Arc::new(file));
        generation.scan(len)?;
        generation.file.set_len(generation.bytes)?;
        Ok(Some(generation))
    }

    fn append(&self, volume: u64, batch: &[(At, Stamp, Vec<u8>)]) -> io::Result<()> {
        let size: usize = batch.iter().map(|(.., contents)| HEADER_BYTES + contents.len()).sum();
        let newest = {
            let index = self.index();
            if index.is_off || index.volume != Some(volume) {
                return Ok(());
            }
            let newest = index.newest().map(|newest| (newest.number, newest.salt, newest.file.clone(), newest.bytes));
            newest.filter(|(.., bytes)| bytes + size as u64 <= self.bytes_max / 2)
        };
        let (number, salt, file, offset) = match newest {
            Some(newest) => newest,
            None => self.next_file(volume)?,
        };
        let (mut bytes, mut places) = (Vec::with_capacity(size), Vec::new());
        for (at, stamp, contents) in batch {
            places.push((*at, *stamp, offset + bytes.len() as u64, contents.len()));
            append(&mut bytes, salt, *at, *stamp, contents);
        }
        std::os::unix::fs::FileExt::write_all_at(&*file, &bytes, offset)?;
        self.index().added(number, offset + bytes.len() as u64, places);
        Ok(())
    }

    /// The older file goes, and a new one is begun.
    fn next_file(&self, volume: u64) -> io::Result<(u64, u64, Arc<File>, u64)> {
        let (gone, last) = self.index().make_room();
        if let Some(gone) = gone {
            std::fs::remove_file(self.path(gone.number))?;
        }
        let (number, mut salt) = (last + 1, [0; 8]);
        File::open("/dev/urandom")?.read_exact(&mut salt)?;
        let salt = u64::from_le_bytes(salt);
        let mut file = private().truncate(true).open(self.path(number))?;
        file.write_all(&Head { volume, salt }.bytes())?;
        let file = Arc::new(file);
        let generation = Generation::new(number, salt, file.clone());
        let bytes = generation.bytes;
        self.index().begins_file(generation);
        Ok((number, salt, file, bytes))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{BLOCKS}{number:016x}"))
    }
}

/// What is in it is others', too.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    options
}

/// What went wrong, without the kernel's number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.find(" (os error ").map_or(text.clone(), |end| text[..end].to_owned())
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn number_of(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix(BLOCKS)?, 16).ok()
}
