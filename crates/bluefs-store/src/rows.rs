//! Rows: the key of each is a letter, the volume, and what the row is about, with numbers in big-endian, so that a
//! directory's names and a file's blocks stand in their order.
//!
//! ```text
//!  v name                 volume         i volume ino         inode        l volume group           lent numbers
//!  n volume               its name       e volume ino name    entry        p volume session         session
//!  c volume               newest commit  x volume ino name    attribute    q volume session number  outcome
//!  s volume               room           b volume ino index   block        o volume ino             orphan
//!  h volume               history        d volume ino         when the contents of a file have changed last
//! ```
//!
//! The row of an orphan is empty, or 1: it is being freed, and a part of it may be gone.
//!
//! A value stands behind the CRC-32 of its key and itself.

use bluefs::{Csn, Group, Ino, Name, SessionId};
use bluefs_wire::{decode, encode, Reader, Wire, WireError};

use crate::error::StoreError;

/// A volume's number in its store. Never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

impl Wire for VolumeId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        u32::get(from).map(VolumeId)
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRow {
    /// Its number.
    pub id: VolumeId,
    /// Its name.
    pub name: Vec<u8>,
}

/// What is durable of a session, beside its outcomes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionRow {
    /// Its newest connection.
    pub epoch: u64,
    /// Outcomes up to this one have arrived.
    pub acknowledged: u64,
    /// Under which invitation it came; 0: none.
    pub invitation: u64,
    /// Whether it may only read.
    pub read_only: bool,
    /// Whether it may have leases or locks: after a restart who writes or locks waits for them.
    pub leased: bool,
}

impl Wire for SessionRow {
    fn put(&self, out: &mut Vec<u8>) {
        let SessionRow { epoch, acknowledged, invitation, read_only, leased } = self;
        (*epoch, *acknowledged, *invitation).put(out);
        (*read_only, *leased).put(out);
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        let (epoch, acknowledged, invitation) = Wire::get(from)?;
        let (read_only, leased) = Wire::get(from)?;
        Ok(SessionRow { epoch, acknowledged, invitation, read_only, leased })
    }
}

/// How a volume came to be what it is, so that what somebody has seen of it can be told from what another one was, a
/// back-up of it that has gone on in another way included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// A random number, the volume's own.
    pub volume: u64,
    /// Of no file is it known whether its contents have changed before this commit.
    pub floor: Csn,
    /// Starts of a server: a random number of each, and the newest commit then.
    pub starts: Vec<(u64, Csn)>,
}

impl Wire for History {
    fn put(&self, out: &mut Vec<u8>) {
        (self.volume, self.floor).put(out);
        (self.starts.len() as u32).put(out);
        self.starts.iter().for_each(|start| start.put(out));
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        let (volume, floor) = Wire::get(from)?;
        let count = from.len("list of starts", usize::MAX, 16)?;
        let starts = (0..count).map(|_| Wire::get(from)).collect::<Result<_, _>>()?;
        Ok(History { volume, floor, starts })
    }
}

/// A key that begins with these parts.
pub fn key(letter: u8, volume: VolumeId, parts: &[u64]) -> Vec<u8> {
    let mut key = vec![letter];
    key.extend(volume.0.to_be_bytes());
    parts.iter().for_each(|part| key.extend(part.to_be_bytes()));
    key
}

/// A key that ends with a name.
pub fn named(letter: u8, volume: VolumeId, ino: Ino, name: &Name) -> Vec<u8> {
    let mut key = key(letter, volume, &[ino.0]);
    key.extend(name.as_bytes());
    key
}

/// The first key behind all that begin with this one.
pub fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    unreachable!("every key begins with a letter")
}

pub fn volume_name(name: &[u8]) -> Vec<u8> {
    [b"v", name].concat()
}

pub fn inode(volume: VolumeId, ino: Ino) -> Vec<u8> {
    key(b'i', volume, &[ino.0])
}

pub fn block(volume: VolumeId, ino: Ino, index: u64) -> Vec<u8> {
    key(b'b', volume, &[ino.0, index])
}

pub fn history(volume: VolumeId) -> Vec<u8> {
    key(b'h', volume, &[])
}

pub fn version(volume: VolumeId, ino: Ino) -> Vec<u8> {
    key(b'd', volume, &[ino.0])
}

pub fn lent(volume: VolumeId, group: Group) -> Vec<u8> {
    key(b'l', volume, &[group.0])
}

pub fn session(volume: VolumeId, session: SessionId) -> Vec<u8> {
    key(b'p', volume, &[session.0])
}

pub fn outcome(volume: VolumeId, session: SessionId, number: u64) -> Vec<u8> {
    key(b'q', volume, &[session.0, number])
}

/// The last number of a key.
pub fn last_number(key: &[u8]) -> Result<u64, StoreError> {
    let bytes = key.last_chunk::<8>().ok_or_else(|| unreadable(key))?;
    Ok(u64::from_be_bytes(*bytes))
}

/// The number at this place of a key.
pub fn number_at(key: &[u8], at: usize) -> Result<u64, StoreError> {
    let bytes = key.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or_else(|| unreadable(key))?;
    Ok(u64::from_be_bytes(*bytes))
}

/// The name that ends a key of [`named`].
pub fn last_name(key: &[u8]) -> Result<Name, StoreError> {
    key.get(13..).and_then(Name::new).ok_or_else(|| unreadable(key))
}

fn unreadable(key: &[u8]) -> StoreError {
    let text: String = key.iter().flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
    StoreError::Damaged(format!("row {text} cannot be read"))
}

/// A value with its checksum.
pub fn seal(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut sealed = checksum(key, value).to_le_bytes().to_vec();
    sealed.extend(value);
    sealed
}

/// The value of what [`seal`] made.
pub fn unseal<'v>(key: &[u8], sealed: &'v [u8]) -> Result<&'v [u8], StoreError> {
    let (sum, value) = sealed.split_first_chunk::<4>().ok_or_else(|| unreadable(key))?;
    if *sum != checksum(key, value).to_le_bytes() {
        return Err(unreadable(key));
    }
    Ok(value)
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

/// The meaning of a row's value.
pub fn meaning<T: Wire>(key: &[u8], value: &[u8]) -> Result<T, StoreError> {
    decode(value).map_err(|_| unreadable(key))
}

/// The value of a row.
pub fn value<T: Wire>(meaning: &T) -> Vec<u8> {
    encode(meaning)
}
