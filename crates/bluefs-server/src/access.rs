//! Who may use a server: whoever is invited.
//!
//! The invitations of a store are a file beside it, one a line: number, volume, `rw` or `ro`, the second since 1970 at
//! which it expires or `-`, and the SHA-256 of its secret. It is read again and again while the server runs, so that an
//! invitation can be made and withdrawn meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bluefs::Time;
use bluefs_net::{from_hex, sha256, to_hex, Identity};

use crate::engine::{Access, Grant};

const INVITATIONS: &str = "invitations";
const IDENTITY: &str = "identity";
/// How old what was read may be when it is asked whether an invitation still stands.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Whoever can connect may do everything: for a server that only this machine reaches.
#[derive(Debug)]
pub struct Everybody;

impl Access for Everybody {
    fn check(&self, _: &[u8], _: &[u8], _: Time) -> Option<Grant> {
        Some(Grant { invitation: 0, read_only: false })
    }

    fn stands(&self, _: u64, _: Time) -> bool {
        true
    }

    fn random(&self) -> u64 {
        u64::from_le_bytes(random_bytes())
    }
}

/// Bytes that nobody can guess.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // urandom(4): once the system has started it neither fails nor waits.
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).expect("/dev/urandom can be read");
    bytes
}

/// One invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Its number, not 0.
    pub number: u64,
    /// To which volume.
    pub volume: String,
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// The second since 1970 at which it expires.
    pub expires: Option<u64>,
    /// SHA-256 of its secret.
    pub secret: [u8; 32],
}

impl Invitation {
    fn line(&self) -> String {
        let Invitation { number, volume, read_only, expires, secret } = self;
        let right = if *read_only { "ro" } else { "rw" };
        let expires = expires.map_or_else(|| "-".to_owned(), |at| at.to_string());
        format!("{number} {volume} {right} {expires} {}\n", to_hex(secret))
    }

    fn parse(line: &str) -> Option<Invitation> {
        let words: Vec<&str> = line.split(' ').collect();
        let [number, volume, right, expires, secret] = words.as_slice() else { return None };
        let read_only = match *right {
            "ro" => true,
            "rw" => false,
            _ => return None,
        };
        let expires = if *expires == "-" { None } else { Some(expires.parse().ok()?) };
        let (number, volume) = (number.parse().ok()?, (*volume).to_owned());
        Some(Invitation { number, volume, read_only, expires, secret: from_hex(secret)? })
    }

    fn is_good(&self, wall: Time) -> bool {
        self.expires.is_none_or(|at| (wall.0 / 1_000_000_000) < at as i64)
    }
}

/// The invitations of a store.
#[derive(Debug)]
pub struct Invitations {
    path: PathBuf,
    read: Mutex<Option<(Instant, Vec<Invitation>)>>,
}

impl Invitations {
    /// Of the store in this directory.
    pub fn of(store: &Path) -> Invitations {
        Invitations { path: store.join(INVITATIONS), read: Mutex::new(None) }
    }

    /// All that are there.
    pub fn all(&self) -> io::Result<Vec<Invitation>> {
        let text = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a line is no invitation");
        text.lines().map(|line| Invitation::parse(line).ok_or_else(wrong)).collect()
    }

    /// Makes one. Says its number and its secret, which is kept nowhere.
    pub fn add(&self, volume: &str, read_only: bool, expires: Option<u64>) -> io::Result<(u64, [u8; 32])> {
        let _alone = alone(&self.path)?;
        let mut all = self.all()?;
        let (number, secret) = (u64::from_le_bytes(random_bytes()) >> 32 | 1 << 32, random_bytes::<32>());
        all.push(Invitation { number, volume: volume.to_owned(), read_only, expires, secret: sha256(&secret) });
        self.write(&all)?;
        Ok((number, secret))
    }

    /// Takes one away. `false`: there is none of this number.
    pub fn withdraw(&self, number: u64) -> io::Result<bool> {
        let _alone = alone(&self.path)?;
        let mut all = self.all()?;
        let before = all.len();
        all.retain(|invitation| invitation.number != number);
        self.write(&all)?;
        Ok(all.len() != before)
    }

    fn write(&self, all: &[Invitation]) -> io::Result<()> {
        let text: String = all.iter().map(Invitation::line).collect();
        write_private(&self.path, text.as_bytes())
    }
}

impl Access for Invitations {
    fn check(&self, volume: &[u8], secret: &[u8], wall: Time) -> Option<Grant> {
        let hash = sha256(secret);
        let all = self.all().ok()?;
        let is_it = |one: &&Invitation| one.secret == hash && one.volume.as_bytes() == volume && one.is_good(wall);
        let grant = all.iter().find(is_it).map(|one| Grant { invitation: one.number, read_only: one.read_only });
        // What was read before does not know an invitation that was made since: it would not stand.
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), all));
        grant
    }

    fn stands(&self, number: u64, wall: Time) -> bool {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.as_ref().is_none_or(|(at, _)| at.elapsed() > AGE_MAX) {
            // Where they cannot be read for a moment, for want of a descriptor, those stand that stood.
            let before = read.take().map(|(_, all)| all).unwrap_or_default();
            *read = Some((Instant::now(), self.all().unwrap_or(before)));
        }
        read.iter().flat_map(|(_, all)| all).any(|one| one.number == number && one.is_good(wall))
    }

    fn random(&self) -> u64 {
        Everybody.random()
    }
}

/// The identity of the server of this store; it is made when it is not there.
pub fn identity_of(store: &Path) -> io::Result<Identity> {
    let path = store.join(IDENTITY);
    let _alone = alone(&path)?;
    match std::fs::read(&path) {
        Ok(bytes) => Identity::from_bytes(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the server's key cannot be read")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let identity = Identity::generate()?;
            write_private(&path, &identity.to_bytes())?;
            Ok(identity)
        }
        Err(error) => Err(error),
    }
}

/// Whoever reads and changes such a file does so alone, as long as this is open.
fn alone(path: &Path) -> io::Result<File> {
    let path = path.with_extension("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    Ok(file)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_stands_as_soon_as_it_is_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let all = Invitations::of(dir.path());
        assert!(!all.stands(7, Time(0)));
        let (number, secret) = all.add("work", false, None).expect("made");
        assert!(all.check(b"work", &secret, Time(0)).is_some_and(|grant| grant.invitation == number));
        assert!(all.stands(number, Time(0)), "what was read a moment ago does not know it");
    }

    #[test]
    fn two_that_invite_at_once_lose_nothing() {
        const EACH: usize = 4;
        const AT_ONCE: usize = 5;
        let dir = tempfile::tempdir().expect("a directory");
        let add = || {
            let all = Invitations::of(dir.path());
            (0..EACH).map(|_| all.add("work", false, None).expect("made").0).collect::<Vec<u64>>()
        };
        let made: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(add)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        let all = Invitations::of(dir.path());
        let numbers: Vec<u64> = all.all().expect("read").into_iter().map(|one| one.number).collect();
        assert!(made.len() == AT_ONCE * EACH && made.iter().all(|number| numbers.contains(number)));
        assert!(all.withdraw(made[0]).expect("written") && !all.stands(made[0], Time(0)));
    }

    #[test]
    fn two_that_make_the_identity_at_once_have_one() {
        const AT_ONCE: usize = 5;
        let dir = tempfile::tempdir().expect("a directory");
        let identity = || identity_of(dir.path()).expect("an identity").to_bytes();
        let made: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(identity)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic").to_vec()).collect()
        });
        assert!(made.iter().all(|one| *one == made[0]));
    }

    #[test]
    fn invitations_that_cannot_be_read_for_a_moment_stand() {
        let dir = tempfile::tempdir().expect("a directory");
        let all = Invitations::of(dir.path());
        let (number, secret) = all.add("work", false, None).expect("made");
        assert!(all.check(b"work", &secret, Time(0)).is_some());
        let file = dir.path().join(INVITATIONS);
        std::fs::remove_file(&file).and_then(|()| std::fs::create_dir(&file)).expect("a directory in its place");
        std::thread::sleep(AGE_MAX + Duration::from_millis(100));
        assert!(all.stands(number, Time(0)));
        std::fs::remove_dir(&file).expect("removed");
        std::thread::sleep(AGE_MAX + Duration::from_millis(100));
        assert!(!all.stands(number, Time(0)), "there are none any more");
    }

    #[test]
    fn lines_of_invitations() {
        let secret = sha256(b"secret");
        for (read_only, expires) in [(true, None), (false, Some(12))] {
            let one = Invitation { number: 7, volume: "work".to_owned(), read_only, expires, secret };
            assert_eq!(Invitation::parse(one.line().trim_end()), Some(one));
        }
        for bad in ["", "7 work rw -", "7 work xx - 00", "x work rw - 00"] {
            assert_eq!(Invitation::parse(bad), None, "{bad}");
        }
        let one = Invitation { number: 7, volume: String::new(), read_only: true, expires: Some(12), secret };
        assert!(one.is_good(Time(11_999_999_999)) && !one.is_good(Time(12_000_000_000)));
    }
}
