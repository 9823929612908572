//! Opening, batches, checkpoints.

use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;

use bluefs::memory::new_root;
use bluefs::tree::Space;
use bluefs::{Csn, Ino, Outcome, SessionId, Time};
use bluefs_wire::Wire;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};

use crate::check::{self, Report};
use crate::disk::{Backend, Directory, Disk, DiskFile, Room, LOCK};
use crate::error::StoreError;
use crate::log::{self, Log, Place, Puts};
use crate::rows::{self, History, SessionRow, VolumeId, VolumeRow};

const STATE: &str = "state";
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
/// The row that says which record of the log is the last in the state.
const APPLIED: &[u8] = b"\0applied";
/// The row that says what the others mean.
const FORMAT: &[u8] = b"\0format";
/// `bluefs 1` had session rows that did not say whether a session may have leases, `bluefs 2` has no versions of
/// contents: a program that does not keep them must not change what has some.
const FORMAT_2: &[u8] = b"bluefs 2";
const FORMAT_3: &[u8] = b"bluefs 3";
/// Bytes of a segment of the log at which a checkpoint is made. Two segments and what the state takes for a while are
/// no more than the reserve, also on a small disk: so what is written over what is there goes on. Twice a segment and a
/// batch are less than half of [`CACHE_BYTES`]: beyond that redb writes to the state while something is put, and a
/// failure there ends the server.
const SEGMENT_BYTES_MAX: u64 = 32 << 20;
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
const SEGMENT_PART: u64 = 4;
/// Memory for what was read of the state, and for what was changed since the last checkpoint, bytes.
const CACHE_BYTES: usize = 192 << 20;
/// Bytes that a batch puts, about, at which it should end.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Room on the disk that is kept for what takes none in the end, at most, and which part of the disk that is at most:
/// who removes something needs some for a while.
const RESERVE_BYTES_MAX: u64 = 256 << 20;
const RESERVE_PART: u64 = 32;
/// Bytes of the log that any change may have, however little room there is: who removes something has these.
const SMALL_BYTES: u64 = 64 << 10;
/// While there is little room a checkpoint is made for this part of a segment.
const GIVEN_BACK_PART: u64 = 8;
/// Behind a batch for which there was no room there is room again if so much can be had.
const GOES_ON_BYTES: u64 = 8 << 20;
/// What a checkpoint takes beside what was changed, at most, and which part of the reserve that is at most: on a small
/// disk all else would leave less.
const CHECKPOINT_BYTES_MAX: u64 = 1 << 20;
const CHECKPOINT_PART: u64 = 4;
/// Bytes that the log may have more than when a checkpoint was due for which there was no room. It is changed in memory
/// meanwhile, of which redb keeps only so much.
const POSTPONED_BYTES_MAX: u64 = 8 << 20;

// redb writes to the state while something is put as soon as half of its memory is changed pages.
const _: () = assert!(2 * (SEGMENT_BYTES_MAX + BATCH_BYTES_MAX as u64) < CACHE_BYTES as u64 / 2);
const _: () = assert!(2 * (SEGMENT_BYTES_MAX + POSTPONED_BYTES_MAX) < CACHE_BYTES as u64 / 2);

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Rows that can be read.
pub trait Rows {
    /// The value of a row.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// At most `max` rows from `from` on, before `to`.
    fn range(&self, from: &[u8], to: &[u8], max: usize) -> Result<Vec<Row>, StoreError>;
    /// The keys alone.
    fn keys(&self, from: &[u8], to: &[u8], max: usize) -> Result<Vec<Vec<u8>>, StoreError>;

    /// A volume; its name empty means `default`.
    fn volume(&self, name: &[u8]) -> Result<Option<VolumeId>, StoreError> {
        let key = rows::volume_name(name);
        self.get(&key)?.map(|value| rows::meaning(&key, &value)).transpose()
    }

    /// All volumes.
    fn volumes(&self) -> Result<Vec<VolumeRow>, StoreError> {
        let found = self.range(b"v", b"w", usize::MAX)?;
        let volume = |(key, value): &Row| Ok(VolumeRow { id: rows::meaning(key, value)?, name: key[1..].to_vec() });
        found.iter().map(volume).collect()
    }

    /// The newest commit of a volume.
    fn csn(&self, volume: VolumeId) -> Result<Csn, StoreError> {
        let key = rows::key(b'c', volume, &[]);
        let value = self.get(&key)?;
        value.map_or(Ok(Csn(0)), |value| rows::meaning(&key, &value))
    }

    /// Which volume it is, and who has served it; `None`: no server that keeps versions of contents has.
    fn history(&self, volume: VolumeId) -> Result<Option<History>, StoreError> {
        let key = rows::history(volume);
        self.get(&key)?.map(|value| rows::meaning(&key, &value)).transpose()
    }

    /// The commit that has changed the contents of a file last; `None`: none since versions are kept.
    fn version(&self, volume: VolumeId, ino: Ino) -> Result<Option<Csn>, StoreError> {
        let key = rows::version(volume, ino);
        self.get(&key)?.map(|value| rows::meaning(&key, &value)).transpose()
    }

    /// All sessions of a volume.
    fn sessions(&self, volume: VolumeId) -> Result<Vec<(SessionId, SessionRow)>, StoreError> {
        let prefix = rows::key(b'p', volume, &[]);
        let found = self.range(&prefix, &rows::behind(&prefix), usize::MAX)?;
        found.iter().map(|(key, value)| Ok((SessionId(rows::last_number(key)?), rows::meaning(key, value)?))).collect()
    }

    /// Outcomes of a session that were not acknowledged.
    fn outcomes(&self, volume: VolumeId, session: SessionId) -> Result<BTreeMap<u64, Outcome>, StoreError> {
        let prefix = rows::key(b'q', volume, &[session.0]);
        let found = self.range(&prefix, &rows::behind(&prefix), usize::MAX)?;
        found.iter().map(|(key, value)| Ok((rows::last_number(key)?, rows::meaning(key, value)?))).collect()
    }

    /// Inodes without a name, and whether a part of each may be gone already ([`Batch::set_being_freed`]).
    fn orphans(&self, volume: VolumeId) -> Result<Vec<(Ino, bool)>, StoreError> {
        let prefix = rows::key(b'o', volume, &[]);
        let found = self.range(&prefix, &rows::behind(&prefix), usize::MAX)?;
        found.iter().map(|(key, value)| Ok((Ino(rows::last_number(key)?), !value.is_empty()))).collect()
    }
}

impl<T: ReadableTable<&'static [u8], &'static [u8]>> Rows for T {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = ReadableTable::get(self, key)?;
        found.map(|sealed| rows::unseal(key, sealed.value()).map(<[u8]>::to_vec)).transpose()
    }

    fn range(&self, from: &[u8], to: &[u8], max: usize) -> Result<Vec<Row>, StoreError> {
        let found = ReadableTable::range::<&[u8]>(self, from..to)?.take(max);
        let mut all = Vec::new();
        for row in found {
            let (key, sealed) = row?;
            all.push((key.value().to_vec(), rows::unseal(key.value(), sealed.value())?.to_vec()));
        }
        Ok(all)
    }

    fn keys(&self, from: &[u8], to: &[u8], max: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let found = ReadableTable::range::<&[u8]>(self, from..to)?.take(max);
        found.map(|row| Ok(row?.0.value().to_vec())).collect()
    }
}

/// A batch of changes, which becomes durable as a whole.
pub struct Batch<'t> {
    table: Table<'t, &'static [u8], &'static [u8]>,
    puts: Puts,
    /// Keys and values that were put.
    bytes: usize,
    bytes_max: usize,
}

impl Rows for Batch<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Rows::get(&self.table, key)
    }

    fn range(&self, from: &[u8], to: &[u8], max: usize) -> Result<Vec<Row>, StoreError> {
        Rows::range(&self.table, from, to, max)
    }

    fn keys(&self, from: &[u8], to: &[u8], max: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        self.table.keys(from, to, max)
    }
}

impl Batch<'_> {
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        put(&mut self.table, &key, value.as_deref())?;
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.puts.insert(key, value);
        Ok(())
    }

    /// Bytes of the record that it will be, about.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Whether so much was put that what else is to be done should be done in the next one.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    pub(crate) fn set<T: Wire>(&mut self, key: Vec<u8>, meaning: Option<&T>) -> Result<(), StoreError> {
        self.put(key, meaning.map(rows::value))
    }

    /// Makes a volume with an empty root directory.
    pub fn create_volume(&mut self, name: &[u8], now: Time) -> Result<VolumeId, StoreError> {
        let id = VolumeId(self.volumes()?.iter().map(|volume| volume.id.0 + 1).max().unwrap_or(1));
        self.set(rows::volume_name(name), Some(&id))?;
        self.put(rows::key(b'n', id, &[]), Some(name.to_vec()))?;
        self.set(rows::inode(id, Ino::ROOT), Some(&new_root(now)))?;
        self.set(rows::key(b's', id, &[]), Some(&Space::fresh()))?;
        self.set_csn(id, Csn(0))?;
        Ok(id)
    }

    /// How much a volume may hold, bytes of blocks and inodes, from now on. What is there stays, also if it is more.
    pub fn set_quota(&mut self, volume: VolumeId, max_bytes: u64, max_inodes: u64) -> Result<(), StoreError> {
        let key = rows::key(b's', volume, &[]);
        let space: Option<Space> = self.get(&key)?.map(|value| rows::meaning(&key, &value)).transpose()?;
        let space = Space { max_bytes, max_inodes, ..space.unwrap_or_else(Space::fresh) };
        self.set(key, Some(&space))
    }

    /// The newest commit of a volume.
    pub fn set_csn(&mut self, volume: VolumeId, csn: Csn) -> Result<(), StoreError> {
        self.set(rows::key(b'c', volume, &[]), Some(&csn))
    }

    /// Which volume it is, and who has served it.
    pub fn set_history(&mut self, volume: VolumeId, history: &History) -> Result<(), StoreError> {
        self.set(rows::history(volume), Some(history))
    }

    /// This commit has changed the contents of a file.
    pub fn set_version(&mut self, volume: VolumeId, ino: Ino, csn: Csn) -> Result<(), StoreError> {
        self.set(rows::version(volume, ino), Some(&csn))
    }

    /// A session; `None`: it is over, its outcomes are forgotten.
    pub fn set_session(
        &mut self,
        volume: VolumeId,
        session: SessionId,
        row: Option<&SessionRow>,
    ) -> Result<(), StoreError> {
        self.set(rows::session(volume, session), row)?;
        if row.is_none() {
            self.forget_outcomes(volume, session, u64::MAX)?;
        }
        Ok(())
    }

    /// What became of an interval.
    pub fn set_outcome(
        &mut self,
        volume: VolumeId,
        session: SessionId,
        number: u64,
        outcome: &Outcome,
    ) -> Result<(), StoreError> {
        self.set(rows::outcome(volume, session, number), Some(outcome))
    }

    /// Outcomes up to this number are acknowledged.
    pub fn forget_outcomes(&mut self, volume: VolumeId, session: SessionId, up_to: u64) -> Result<(), StoreError> {
        let from = rows::outcome(volume, session, 0);
        let mut to = rows::outcome(volume, session, up_to);
        to.push(0);
        self.keys(&from, &to, usize::MAX)?.into_iter().try_for_each(|key| self.put(key, None))
    }
}

fn put(table: &mut Table<&'static [u8], &'static [u8]>, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
    match value {
        Some(value) => _ = table.insert(key, rows::seal(key, value).as_slice())?,
        None => _ = table.remove(key)?,
    }
    Ok(())
}

fn mark(table: &mut Table<&'static [u8], &'static [u8]>, last: Place) -> Result<(), StoreError> {
    put(table, APPLIED, Some(&rows::value(&(last.number, last.checksum))))
}

/// A store that was opened.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What should be said: a record that was dropped, damage that harms nobody.
    pub notes: Vec<String>,
}

/// A store.
pub struct Store {
    database: Database,
    log: Log,
    /// The last record that was in the state at the last checkpoint. The log is kept from there on: redb may go back
    /// to the commit before its last one.
    checkpoint: u64,
    segment_bytes_max: u64,
    batch_bytes_max: usize,
    broken: bool,
    /// How much of the newest segment was in the state already when the state was written last.
    written: u64,
    /// There was no room for a checkpoint that was due: how much was not written then.
    postponed: Option<u64>,
    /// Bytes of the contents of all volumes, as far as somebody has said so.
    used_bytes: u64,
}

/// Bytes of the log that changes may have before they are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Those that take more room for good.
    pub new: u64,
    /// Those that write over what is there: this takes room until the next checkpoints.
    pub over: u64,
    /// All others, as who removes something.
    pub rest: u64,
}

impl Left {
    /// Behind so many bytes more of the log.
    pub fn behind(self, bytes: u64) -> Left {
        let rest = self.rest.saturating_sub(bytes).max(SMALL_BYTES.min(self.rest));
        Left { new: self.new.saturating_sub(bytes), over: self.over.saturating_sub(bytes), rest }
    }

    /// The least, as long as there is something.
    pub fn nothing() -> Left {
        Left { new: 0, over: 0, rest: SMALL_BYTES }
    }

    /// Whether there is room for a change of so many bytes in a batch that has others. What is small is never refused
    /// for those: who removes something did not ask for them.
    pub fn has_rest(self, bytes: u64, batch_bytes: u64) -> bool {
        let others = if bytes <= SMALL_BYTES { 0 } else { batch_bytes };
        bytes.saturating_add(others) <= self.rest
    }
}

impl Store {
    /// Opens the store in a directory, or makes one there if it is empty or not there.
    pub fn open_or_create(path: &Path) -> Result<Opened, StoreError> {
        std::fs::create_dir_all(path).map_err(StoreError::io(format!("make {}", path.display())))?;
        Store::take(path, true)
    }

    /// Opens the store in a directory.
    pub fn open(path: &Path) -> Result<Opened, StoreError> {
        if !path.is_dir() {
            return Err(StoreError::Missing);
        }
        Store::take(path, false)
    }

    fn take(path: &Path, create: bool) -> Result<Opened, StoreError> {
        std::fs::read_dir(path).map_err(StoreError::io(format!("read {}", path.display())))?;
        // One that was made when a crash came may have its lock alone.
        let empty = names_of(path).all(|name| name == LOCK);
        if empty && !create {
            return Err(StoreError::Missing);
        }
        if !empty && !is_store(path) {
            return Err(StoreError::NotAStore);
        }
        let disk = Directory::take(path).map_err(StoreError::io(format!("lock {}", path.display())))?;
        Store::on(Arc::new(disk.ok_or(StoreError::InUse)?))
    }

    /// Opens the store on a disk, or makes one there.
    pub fn on(disk: Arc<dyn Disk>) -> Result<Opened, StoreError> {
        let database = open_database(&*disk)?;
        // A log says that the state was finished once. So the state has its name on the disk before there is a log.
        disk.sync_names().map_err(StoreError::io("sync the store"))?;
        let applied = read_applied(&database)?;
        let (log, found) = Log::open(disk.clone(), applied)?;
        let notes = found.notes;
        replay(&database, &found.records, log.last)?;
        disk.sync_names().map_err(StoreError::io("sync the store"))?;
        let checkpoint = log.last.number;
        // As large as on any other one if it cannot be asked.
        let segment_bytes_max = disk.room(STATE).ok().flatten().map_or(SEGMENT_BYTES_MAX, segment_of);
        let batch_bytes_max = BATCH_BYTES_MAX.min(2 * segment_bytes_max as usize);
        let written = log.segment_bytes();
        let store = Store {
            database,
            log,
            checkpoint,
            segment_bytes_max,
            batch_bytes_max,
            broken: false,
            written,
            postponed: None,
            used_bytes: u64::MAX,
        };
        Ok(Opened { store, notes })
    }

    /// Makes checkpoints so often that a test sees them.
    pub fn set_segment_bytes_max(&mut self, bytes: u64) {
        self.segment_bytes_max = bytes;
    }

    /// Says that batches are full ([`Batch::is_full`]) so soon that a test sees it.
    pub fn set_batch_bytes_max(&mut self, bytes: usize) {
        self.batch_bytes_max = bytes;
    }

    /// Changes something. When it returns without an error, everything that `work` has put is on stable storage; when
    /// `work` fails, or the disk has no room ([`StoreError::Full`]), nothing is changed.
    pub fn batch<R, E: From<StoreError>>(&mut self, work: impl FnOnce(&mut Batch) -> Result<R, E>) -> Result<R, E> {
        if self.broken {
            return Err(StoreError::Broken.into());
        }
        let transaction = self.begin()?;
        let (result, puts) = {
            let table = transaction.open_table(ROWS).map_err(StoreError::from)?;
            let mut batch = Batch { table, puts: Puts::new(), bytes: 0, bytes_max: self.batch_bytes_max };
            let result = work(&mut batch)?;
            (result, batch.puts)
        };
        if !puts.is_empty() {
            // From here on a failure leaves it open whether the record will be found at the next start.
            self.broken = true;
            let finished = self.finish(transaction, &puts);
            self.broken = !matches!(finished, Ok(()) | Err(StoreError::Full(_)));
            finished?;
        }
        Ok(result)
    }

    fn begin(&self) -> Result<WriteTransaction, StoreError> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        Ok(transaction)
    }

    fn finish(&mut self, transaction: WriteTransaction, puts: &Puts) -> Result<(), StoreError> {
        let place = self.log.append(puts)?;
        mark(&mut transaction.open_table(ROWS)?, place)?;
        transaction.commit()?;
        if self.log.segment_bytes() >= self.segment_bytes_max && self.postponed.is_none() {
            let unwritten = self.unwritten();
            self.postponed = (!self.try_checkpoint()?).then_some(unwritten);
        }
        Ok(())
    }

    /// Rows as they are now.
    pub fn rows(&self) -> Result<impl Rows + use<>, StoreError> {
        Ok(self.database.begin_read()?.open_table(ROWS)?)
    }

    /// The number of the last record.
    pub fn last_record(&self) -> u64 {
        self.log.last.number
    }

    /// Bytes of the log that the state has in memory only.
    fn unwritten(&self) -> u64 {
        self.log.segment_bytes().saturating_sub(self.written)
    }

    /// Bytes of the log's newest segment: so much is written again into the state after a crash, about.
    pub fn log_bytes(&self) -> u64 {
        self.log.segment_bytes()
    }

    /// How much changes may still have; `None`: as much as anybody wants. A store whose disk is full goes on only with
    /// what is small, and cannot be opened before there is room. `used_bytes`: of the contents of all volumes.
    pub fn left(&mut self, used_bytes: u64) -> Result<Option<Left>, StoreError> {
        self.used_bytes = used_bytes;
        let room = self.log.room(STATE).map_err(StoreError::io("look at the store's disk"))?;
        Ok(room.map(|room| left(room, used_bytes, self.unwritten())))
    }

    /// How much changes may still have while the store is full, or [`Store::is_postponed`].
    pub fn left_when_full(&self) -> Left {
        let is_over = self.postponed.is_some_and(|then| self.unwritten() >= then.saturating_add(POSTPONED_BYTES_MAX));
        let rest = match is_over {
            true => 0,
            false if self.has_some_room() => SMALL_BYTES,
            // What the log has kept for small records, of which one may have several changes.
            false => log::SMALL_BYTES_MAX / 2,
        };
        Left { rest, ..Left::nothing() }
    }

    /// Whether so much can be had, whatever the disk says that it has, that a full store may go on: what there was no
    /// room for comes again.
    pub fn has_room(&mut self) -> bool {
        let least = self.segment_bytes_max.min(GOES_ON_BYTES);
        let has = self.log.has_room_for(least.max(self.log.refused_bytes()));
        if has {
            self.log.forget_refused();
        }
        has
    }

    /// Whether a full store has room for something that is small and that nobody waits for.
    pub fn has_some_room(&self) -> bool {
        self.log.has_room_for(4 * SMALL_BYTES)
    }

    /// Whether there was no room for a checkpoint that was due. [`Store::give_back`] tries again.
    pub fn is_postponed(&self) -> bool {
        self.postponed.is_some()
    }

    /// Makes a checkpoint while there is little room, if that gives enough of it back: what is behind it is counted no
    /// more, and old segments go. Says whether it has.
    pub fn give_back(&mut self) -> Result<bool, StoreError> {
        // What cannot be asked may be nothing.
        let older = self.log.older_bytes().unwrap_or(0);
        let enough = (self.segment_bytes_max / GIVEN_BACK_PART).max(SMALL_BYTES);
        if older.saturating_add(self.log.segment_bytes()) < enough {
            return Ok(false);
        }
        self.broken = true;
        let is_made = self.try_checkpoint()?;
        self.broken = false;
        self.postponed = self.postponed.filter(|_| !is_made);
        Ok(is_made)
    }

    /// Reads every row, and checks what they say of each other.
    pub fn check(&self) -> Result<Report, StoreError> {
        check::check(&self.rows()?)
    }

    /// Everything is in redb; the log begins a new segment, and forgets what only the checkpoint before the last one
    /// would need. If the disk has no room for that nothing is done: the log has everything.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.try_checkpoint().map(drop)
    }

    /// `false`: there is no room. A state that were written in part would have to be opened again.
    fn try_checkpoint(&mut self) -> Result<bool, StoreError> {
        // Of what is not in the file yet redb keeps no more than half of its memory for pages.
        let unwritten = self.unwritten().saturating_mul(2).min(CACHE_BYTES as u64 / 2);
        // What is free inside is estimated.
        let room = self.log.room(STATE).ok().flatten();
        let inside = room.map_or(0, |room| free_inside(room, self.used_bytes) / 2);
        let own = room.map_or(CHECKPOINT_BYTES_MAX, checkpoint_of);
        if !self.log.has_room_for(unwritten.saturating_sub(inside) + own + log::FIRST_BYTES) {
            return Ok(false);
        }
        replay(&self.database, &[], self.log.last)?;
        self.written = self.log.segment_bytes();
        if !self.log.next_segment()? {
            return Ok(false);
        }
        self.written = 0;
        self.log.forget(self.checkpoint)?;
        self.checkpoint = self.log.last.number;
        Ok(true)
    }
}

/// Room that is kept on a disk of this size.
fn reserve_of(room: Room) -> u64 {
    RESERVE_BYTES_MAX.min(room.size / RESERVE_PART)
}

/// How large a segment may become on a disk of this size.
fn segment_of(room: Room) -> u64 {
    (reserve_of(room) / SEGMENT_PART).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

/// What a checkpoint takes on a disk of this size beside what was changed.
fn checkpoint_of(room: Room) -> u64 {
    CHECKPOINT_BYTES_MAX.min(reserve_of(room) / CHECKPOINT_PART)
}

/// A block takes twice its bytes in the state, whose file does not become smaller where something is removed: what it
/// has beyond that is free for what comes.
fn free_inside(room: Room, used_bytes: u64) -> u64 {
    room.file.saturating_sub(used_bytes.saturating_mul(9) / 4)
}

/// `log_bytes`: of records of which the state may not be written yet.
fn left(room: Room, used_bytes: u64, log_bytes: u64) -> Left {
    let reserve = reserve_of(room);
    let coming = log_bytes.saturating_mul(2);
    let all = room.free.saturating_add(free_inside(room, used_bytes)).saturating_sub(coming);
    // Each byte of the log is twice in the state, too, and the log needs some of what is free outside.
    let beyond = |reserve: u64| room.free.saturating_sub(reserve / 2).min(all.saturating_sub(reserve) / 3);
    Left { new: beyond(reserve), over: beyond(reserve / 2), rest: room.free.max(SMALL_BYTES) }
}

fn is_store(path: &Path) -> bool {
    path.join(STATE).exists() || names_of(path).any(|name| log::is_ours(&name))
}

fn names_of(path: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(path).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
}

/// Redb checks every page of a file that is there. What it says of a damaged one may also be a panic.
fn open_database(disk: &dyn Disk) -> Result<Database, StoreError> {
    let file = disk.open(STATE, true).map_err(StoreError::io("open the state"))?.expect("it is made");
    forget_unfinished(disk, &*file).map_err(StoreError::io("make the state"))?;
    let open = || {
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create_with_backend(Backend(file))?;
        let transaction = database.begin_write()?;
        drop(transaction.open_table(ROWS)?);
        transaction.commit()?;
        Ok::<_, StoreError>(database)
    };
    match catch_unwind(AssertUnwindSafe(open)) {
        Ok(Err(StoreError::Database(why))) => Err(StoreError::Damaged(format!("its database says: {why}"))),
        Ok(result) => result,
        Err(_) => Err(StoreError::Damaged("its database cannot be opened".to_owned())),
    }
}

/// A crash while the store was made has left a state that redb had not named its own yet. There is no log then.
fn forget_unfinished(disk: &dyn Disk, state: &dyn DiskFile) -> std::io::Result<()> {
    let mut magic = vec![0; state.len()?.min(9) as usize];
    state.read(0, &mut magic)?;
    let begun = disk.names()?.iter().any(|name| log::is_ours(name));
    if !begun && magic.iter().all(|byte| *byte == 0) {
        state.set_len(0)?;
    }
    Ok(())
}

/// Rows of another format would be misread.
fn check_format(found: &[u8]) -> Result<(), StoreError> {
    if [FORMAT_2, FORMAT_3].contains(&found) {
        return Ok(());
    }
    let (found, ours) = (String::from_utf8_lossy(found), String::from_utf8_lossy(FORMAT_3));
    Err(StoreError::Database(format!("it has the format \"{found}\", and this version reads \"{ours}\" only")))
}

fn read_applied(database: &Database) -> Result<Place, StoreError> {
    let table = database.begin_read()?.open_table(ROWS)?;
    if let Some(format) = Rows::get(&table, FORMAT)? {
        check_format(&format)?;
    }
    let Some(value) = Rows::get(&table, APPLIED)? else { return Ok(Place::default()) };
    let (number, checksum) = rows::meaning(APPLIED, &value)?;
    Ok(Place { number, checksum })
}

/// Carries records out, and makes everything up to `last` durable.
fn replay(database: &Database, records: &[Puts], last: Place) -> Result<(), StoreError> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let mut table = transaction.open_table(ROWS)?;
    for (key, value) in records.iter().flatten() {
        put(&mut table, key, value.as_deref())?;
    }
    put(&mut table, FORMAT, Some(FORMAT_3))?;
    mark(&mut table, last)?;
    drop(table);
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn a_disk_is_short_while_something_can_still_be_removed() {
        let room = |free, file| Room { free, size: 100 * GIB, file };
        let is_short = |room, used, log| left(room, used, log).new == 0;
        assert!(!is_short(room(GIB, GIB), GIB / 2, 0));
        assert!(is_short(room(200 << 20, GIB), GIB / 2, 0), "less than what is kept");
        assert!(is_short(room(300 << 20, GIB), GIB / 2, 60 << 20), "the log has more");
        assert!(!is_short(room(200 << 20, GIB), 0, 0), "the state has room inside");
        assert!(is_short(room(100 << 20, GIB), 0, 0), "and the log has none");
        assert!(!is_short(Room { free: 1 << 20, size: 8 << 20, file: 0 }, 0, 0), "a small one");
    }

    #[test]
    fn what_is_written_over_goes_on_for_longer_than_what_is_new_and_what_is_small_for_longest() {
        let left = |free| left(Room { free, size: 100 * GIB, file: 0 }, 0, 0);
        assert_eq!(left(556 * MIB), Left { new: 100 * MIB, over: 428 * MIB / 3, rest: 556 * MIB });
        assert_eq!(left(200 * MIB), Left { new: 0, over: 24 * MIB, rest: 200 * MIB });
        assert_eq!(left(100 * MIB), Left { new: 0, over: 0, rest: 100 * MIB });
        assert_eq!(left(0), Left::nothing());
        assert_eq!(left(200 * MIB).behind(20 * MIB), Left { new: 0, over: 4 * MIB, rest: 180 * MIB });
        assert_eq!(left(200 * MIB).behind(GIB), Left::nothing());
        let over = Left { rest: 0, ..Left::nothing() };
        assert_eq!(over.behind(0), over, "what has nothing gets nothing");
    }

    /// It was each batch that had so much: who removed something in one with others was refused.
    #[test]
    fn what_is_small_is_not_refused_for_others() {
        let least = Left::nothing();
        assert!(least.has_rest(SMALL_BYTES, GIB) && !least.has_rest(SMALL_BYTES + 1, 0));
        let more = Left { rest: MIB, ..least };
        assert!(more.has_rest(MIB / 2, MIB / 2) && !more.has_rest(MIB / 2, MIB));
        assert!(!Left { rest: 0, ..least }.has_rest(1, 0));
    }

    /// On disks of 64 MiB the log was never cut.
    #[test]
    fn a_checkpoint_has_room_where_what_is_written_over_has_none() {
        for size in [16 * MIB, 64 * MIB, GIB, 100 * GIB] {
            let room = Room { free: size, size, file: 0 };
            assert!(checkpoint_of(room) < reserve_of(room) / 2, "{size}");
        }
    }

    #[test]
    fn two_segments_and_their_copies_are_no_more_than_the_reserve() {
        let segment = |size| segment_of(Room { free: size, size, file: 0 });
        assert_eq!([segment(GIB), segment(4 * GIB), segment(100 * GIB)], [8 * MIB, 32 * MIB, 32 * MIB]);
        assert_eq!(segment(64 * MIB), 512 << 10);
        assert_eq!(segment(0), SEGMENT_BYTES_MIN);
    }

    #[test]
    fn another_format_is_refused() {
        assert!(check_format(FORMAT_2).is_ok() && check_format(FORMAT_3).is_ok());
        for other in [&b"bluefs 1"[..], b"bluefs 4", b""] {
            assert!(check_format(other).is_err_and(|error| error.to_string().contains("this version reads")));
        }
    }
}
