//! Who may use a server: whoever is invited.
//!
//! The invitations of a store are a file beside it, one a line: number, volume, `rw` or `ro`, the second since 1970 at
//! which it expires or `-`, and the SHA-256 of its secret. It is read again and again while the server runs, so that an
//! invitation can be made and withdrawn meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{fchown, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bluefs::Time;
use bluefs_net::{from_hex, random_bytes, sha256, to_hex, Identity};

use crate::engine::{Access, Grant};

const INVITATIONS: &str = "invitations";
const IDENTITY: &str = "identity";
/// How old what was read may be when it is asked whether an invitation still stands.
const AGE_MAX: Duration = Duration::from_secs(1);
/// How long invitations stand that cannot be read again because the machine is short of something.
const SHORTAGE_MAX: Duration = Duration::from_secs(60);

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
    read: Mutex<Known>,
    tell: fn(&str),
}

/// What was read of them.
#[derive(Debug, Default)]
struct Known {
    all: Vec<Invitation>,
    /// When that was.
    read: Option<Instant>,
    /// When it was tried last.
    tried: Option<Instant>,
    /// They could not be read then, which was told.
    is_unreadable: bool,
}

impl Invitations {
    /// Of the store in this directory.
    pub fn of(store: &Path) -> Invitations {
        Invitations { path: store.join(INVITATIONS), read: Mutex::default(), tell: |_| {} }
    }

    /// Tells it once when they cannot be read: then nobody is let in until they can.
    pub fn telling(self, tell: fn(&str)) -> Invitations {
        Invitations { tell, ..self }
    }

    /// Reads them again. Where that fails, it is told, and nobody is invited any more.
    fn read_again(&self, known: &mut Known) {
        let now = Instant::now();
        known.tried = Some(now);
        match self.all() {
            Ok(all) => *known = Known { all, read: Some(now), tried: Some(now), is_unreadable: false },
            Err(error) => {
                // For want of a descriptor those stand that stood, but not for ever: one may be withdrawn meanwhile.
                let is_recent = known.read.is_some_and(|at| at.elapsed() < SHORTAGE_MAX);
                if !(is_shortage(&error) && is_recent) {
                    known.all.clear();
                }
                if !std::mem::replace(&mut known.is_unreadable, true) {
                    (self.tell)(&format!("cannot read {}: {error}", self.path.display()));
                }
            }
        }
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
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // What was read before does not know an invitation that was made since.
        self.read_again(&mut known);
        let is_it = |one: &&Invitation| one.secret == hash && one.volume.as_bytes() == volume && one.is_good(wall);
        known.all.iter().find(is_it).map(|one| Grant { invitation: one.number, read_only: one.read_only })
    }

    fn stands(&self, number: u64, wall: Time) -> bool {
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if known.tried.is_none_or(|at| at.elapsed() > AGE_MAX) {
            self.read_again(&mut known);
        }
        known.all.iter().any(|one| one.number == number && one.is_good(wall))
    }

    fn is_unknown(&self) -> bool {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).is_unreadable
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

/// Whether it may be otherwise in a moment: too little memory, too few descriptors.
fn is_shortage(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE))
}

/// Whoever reads and changes such a file does so alone, as long as this is open.
fn alone(path: &Path) -> io::Result<File> {
    /// `O_NOFOLLOW` (`asm-generic/fcntl.h`).
    const NO_FOLLOW: i32 = 0o400_000;
    let path = path.with_extension("lock");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_FOLLOW).open(&path)?;
    give_to_owner_of_store(&file, &path)?;
    file.lock()?;
    Ok(file)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // Somebody who died has left it.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    give_to_owner_of_store(&file, &new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// A file that is open belongs to whom its directory belongs to: the server need not run as whoever invites, and could
/// not read it. One that was given a second name, or says something already, is not what we have made.
fn give_to_owner_of_store(file: &File, path: &Path) -> io::Result<()> {
    let directory = std::fs::metadata(path.parent().unwrap_or(Path::new(".")))?;
    let (owner, group) = (directory.uid(), directory.gid());
    let meta = file.metadata()?;
    if (meta.uid(), meta.gid()) == (owner, group) || !meta.is_file() || meta.nlink() != 1 || meta.len() != 0 {
        return Ok(());
    }
    match fchown(file, Some(owner), Some(group)) {
        // The owner may be in another group than the directory's.
        Err(_) if meta.uid() == owner => Ok(()),
        done => done,
    }
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
    fn invitations_that_cannot_be_read_do_not_stand_and_that_is_told_once() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static TOLD: AtomicUsize = AtomicUsize::new(0);
        let dir = tempfile::tempdir().expect("a directory");
        let count = |_: &str| {
            TOLD.fetch_add(1, Ordering::Relaxed);
        };
        let all = Invitations::of(dir.path()).telling(count);
        let (number, secret) = all.add("work", false, None).expect("made");
        assert!(all.check(b"work", &secret, Time(0)).is_some());
        let file = dir.path().join(INVITATIONS);
        let aside = dir.path().join("aside");
        std::fs::rename(&file, &aside).and_then(|()| std::fs::create_dir(&file)).expect("a directory in its place");
        std::thread::sleep(AGE_MAX + Duration::from_millis(100));
        assert!(!all.is_unknown());
        assert!(!all.stands(number, Time(0)) && all.check(b"work", &secret, Time(0)).is_none() && all.is_unknown());
        assert_eq!(TOLD.load(Ordering::Relaxed), 1);
        std::fs::remove_dir(&file).and_then(|()| std::fs::rename(&aside, &file)).expect("as before");
        assert!(all.check(b"work", &secret, Time(0)).is_some() && all.stands(number, Time(0)) && !all.is_unknown());
    }

    #[test]
    fn want_of_descriptors_is_for_a_moment_and_no_right_to_read_is_not() {
        let error = io::Error::from_raw_os_error;
        assert!(is_shortage(&error(24)) && is_shortage(&error(23)) && !is_shortage(&error(13)));
        let dir = tempfile::tempdir().expect("a directory");
        let all = Invitations::of(dir.path());
        let (number, secret) = all.add("work", false, None).expect("made");
        assert!(all.check(b"work", &secret, Time(0)).is_some() && all.stands(number, Time(0)));
    }

    #[test]
    fn what_root_makes_belongs_to_whom_the_store_belongs_to() {
        let dir = tempfile::tempdir().expect("a directory");
        const NOBODY: u32 = 65_534;
        // Only root can give it away; for others it is theirs already.
        let owner = match std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)) {
            Ok(()) => (NOBODY, NOBODY),
            Err(_) => dir.path().metadata().map(|meta| (meta.uid(), meta.gid())).expect("there"),
        };
        // As it was left by whoever invited first.
        std::fs::write(dir.path().join("invitations.lock"), "").expect("written");
        let all = Invitations::of(dir.path());
        all.add("work", false, None).expect("made");
        identity_of(dir.path()).expect("an identity");
        for name in [INVITATIONS, IDENTITY, "invitations.lock", "identity.lock"] {
            let meta = dir.path().join(name).metadata().expect("there");
            assert_eq!((meta.uid(), meta.gid()), owner, "{name}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_lock_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, "").expect("written");
        std::os::unix::fs::symlink(&elsewhere, dir.path().join("invitations.lock")).expect("a link");
        assert!(Invitations::of(dir.path()).add("work", false, None).is_err());
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
