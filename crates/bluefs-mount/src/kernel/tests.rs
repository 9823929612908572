//! What the kernel is told to forget, and when.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::*;

const SURE: Duration = Duration::from_secs(1);
const INO: Ino = Ino(70);
const DIR: Ino = Ino(9);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// A caller of whom nothing is known: who has ended.
const CALLER: u32 = i32::MAX as u32;

/// One that keeps names, and has nobody who forgets them one by one.
fn kernel(version: (u32, u32)) -> (Kernel, UnixStream) {
    kernel_that(true, version)
}

fn kernel_that(keeps_names: bool, version: (u32, u32)) -> (Kernel, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    theirs.set_nonblocking(true).expect("a socket");
    let kernel = Kernel::new(File::from(OwnedFd::from(ours)), keeps_names, None);
    kernel.speaks(version);
    (kernel, theirs)
}

/// Codes of the notifications that have arrived.
fn codes(theirs: &mut UnixStream) -> Vec<i32> {
    let mut bytes = Vec::new();
    let mut one = [0; 4096];
    while let Ok(len @ 1..) = theirs.read(&mut one) {
        bytes.extend(&one[..len]);
    }
    let mut codes = Vec::new();
    while let [a, b, c, d, e, f, g, h, ..] = bytes[..] {
        let len = u32::from_ne_bytes([a, b, c, d]);
        codes.push(i32::from_ne_bytes([e, f, g, h]));
        bytes.drain(..len as usize);
    }
    codes
}

#[test]
fn names_are_sure_only_of_inodes_that_the_kernel_has() {
    let (kernel, mut theirs) = kernel(EPOCHS_SINCE);
    let name = |sure| kernel.telling().name(DIR, &name("a"), (INO, true), sure, CALLER);
    let (never, both) = ((Duration::ZERO, Duration::ZERO), (SURE, SURE));
    assert_eq!(name(SURE), never);
    assert_eq!(kernel.telling().attributes(INO, SURE), Some(SURE));
    assert_eq!(name(SURE), both);
    kernel.changed([INO, Ino(71)].into_iter());
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
    let forget = |group| kernel.forget(group).then(|| kernel.forget_contents(group)).is_some();
    assert!(!forget(Some(Group(9))));
    assert_eq!(codes(&mut theirs), [], "nothing was told of that group");
    assert!(!forget(Some(INO.group())));
    assert_eq!(codes(&mut theirs), [INVAL_INODE], "of the inode, whose name is in a directory of another one");
    // There is nobody here who has the kernel forget: their time has to be over.
    let begun = Instant::now();
    assert!(forget(Some(DIR.group())) && !forget(Some(DIR.group())));
    assert!(begun.elapsed() > SURE && codes(&mut theirs).is_empty());
    assert_eq!((kernel.telling().attributes(INO, SURE), name(SURE)), (Some(SURE), both), "not for the first time");
    assert!(forget(None));
    assert_eq!(codes(&mut theirs), [INVAL_INODE, INC_EPOCH]);
    kernel.forgets(INO);
    assert_eq!(name(SURE), never);
}

#[test]
fn attributes_that_come_with_a_name_are_forgotten_once_more_behind_whoever_asked() {
    let (kernel, mut theirs) = kernel(EPOCHS_SINCE);
    let name = |has_others, to| kernel.telling().name(DIR, &name("a"), (INO, has_others), SURE, to);
    let (never, both) = ((Duration::ZERO, Duration::ZERO), (SURE, SURE));
    assert_eq!(name(true, CALLER), never, "another name may be changed meanwhile");
    assert_eq!(name(false, 0), never, "whether it goes on cannot be seen");
    assert_eq!(name(false, CALLER), both);
    assert_eq!(name(false, 1), never, "somebody else may not have gone on");
    assert!(kernel.forget(Some(INO.group())));
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
    kernel.forget_contents(Some(DIR.group()));
    assert_eq!(codes(&mut theirs), [], "another group");
    kernel.forget_contents(Some(INO.group()));
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
    assert_eq!(name(false, CALLER), both);
    kernel.asks(CALLER);
    assert!(!kernel.forget(Some(INO.group())), "it has gone on");
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
    assert_eq!((name(false, CALLER), kernel.telling().attributes(INO, SURE)), (both, Some(SURE)));
    assert!(kernel.forget(Some(INO.group())), "the kernel may have forgotten it in between");
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
}

#[test]
fn names_that_are_not_kept_need_not_be_forgotten() {
    let (kernel, mut theirs) = kernel_that(false, EPOCHS_SINCE);
    kernel.telling().attributes(INO, SURE);
    for _ in 0..3 {
        assert_eq!(kernel.telling().name(DIR, &name("a"), (INO, false), SURE, CALLER), (Duration::ZERO, SURE));
        assert_eq!(kernel.telling().absent(DIR, &name("b"), SURE, CALLER), Duration::ZERO);
    }
    let keys = [Key::Name(DIR, name("a")), Key::Name(DIR, name("b")), Key::Attr(INO)];
    kernel.before_change(&Touched { keys: keys.into_iter().collect(), anything: false });
    kernel.before_change(&Touched { keys: BTreeSet::new(), anything: true });
    kernel.telling().attributes(INO, SURE);
    kernel.forget(None);
    assert_eq!(codes(&mut theirs), [INVAL_INODE, INVAL_INODE, INVAL_INODE]);
}

#[test]
fn of_what_the_mount_changes_only_what_was_told_is_forgotten() {
    let (kernel, mut theirs) = kernel(EPOCHS_SINCE);
    let change = |kernel: &Kernel, keys: &[Key], anything| {
        kernel.serves(CALLER);
        kernel.before_change(&Touched { keys: keys.iter().cloned().collect(), anything });
    };
    kernel.telling().attributes(INO, SURE);
    let told = || kernel.telling().absent(DIR, &name("a"), SURE, CALLER);
    assert_eq!((told(), told()), (Duration::ZERO, SURE), "not when it asks for the first time");
    change(&kernel, &[Key::Name(DIR, name("b")), Key::Listing(DIR), Key::Attr(Ino(71))], false);
    assert_eq!(codes(&mut theirs), [], "another name, and inodes of which nothing was told");
    assert!(!kernel.is_changing(DIR));
    change(&kernel, &[Key::Name(DIR, name("a")), Key::Listing(DIR)], false);
    assert_eq!(codes(&mut theirs), [INVAL_INODE], "who walks through the directory asks");
    change(&kernel, &[Key::Data(INO), Key::Attr(INO)], false);
    assert_eq!(codes(&mut theirs), [INVAL_INODE], "once for each inode");
    kernel.telling().attributes(INO, SURE);
    change(&kernel, &[], true);
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
    change(&kernel, &[Key::Name(DIR, name("a")), Key::Name(Ino(9 << 40), name("a"))], false);
    assert_eq!(codes(&mut theirs), [INVAL_INODE, INVAL_INODE], "it takes the name along");
}

#[test]
fn who_walks_waits_for_changes_of_names_that_were_told() {
    let (kernel, _theirs) = kernel(EPOCHS_SINCE);
    let (kernel, never) = (Arc::new(kernel), || false);
    let change = || {
        kernel.serves(CALLER);
        kernel.before_change(&Touched { keys: [Key::Name(DIR, name("a"))].into(), anything: false });
    };
    let attributes = || kernel.telling().attributes(DIR, SURE);
    (0..2).for_each(|_| _ = kernel.telling().absent(DIR, &name("a"), SURE, CALLER));
    change();
    // It is sent again.
    change();
    assert!(kernel.is_changing(DIR) && !kernel.is_changing(INO));
    assert_eq!(attributes(), Some(Duration::ZERO));
    std::thread::scope(|scope| {
        let walker = scope.spawn(|| kernel.awaits_changes(DIR, &never));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!walker.is_finished());
        kernel.answered();
        walker.join().expect("no panic");
    });
    assert!(!kernel.is_changing(DIR));
    assert_eq!(attributes(), Some(SURE));
    change();
    kernel.awaits_changes(DIR, &|| true);
    assert!(kernel.is_changing(DIR), "it gives up");
}

#[test]
fn who_walks_waits_until_names_are_forgotten_whose_change_may_be_made_later() {
    let (kernel, _theirs) = kernel(EPOCHS_SINCE);
    let kernel = Arc::new(kernel);
    kernel.may_be_made();
    let short = Duration::from_millis(20);
    (0..2).for_each(|_| _ = kernel.telling().absent(DIR, &name("a"), short, CALLER));
    kernel.serves(CALLER);
    kernel.before_change(&Touched { keys: [Key::Name(DIR, name("a"))].into(), anything: false });
    kernel.may_be_made();
    kernel.answered();
    let begun = Instant::now();
    kernel.awaits_changes(DIR, &|| false);
    // There is nobody here who has the kernel forget: so their time has to be over.
    assert!(!kernel.is_changing(DIR) && begun.elapsed() >= NAMES_LATE_MAX);
}

#[test]
fn what_was_said_of_a_length_before_pages_are_filled_is_worth_nothing() {
    let (kernel, mut theirs) = kernel(EPOCHS_SINCE);
    let fill = |kernel: &Kernel| kernel.telling().fills(kernel.pages.read(INO, 0, 4096), SURE, None);
    kernel.pages.open(INO, 1, false);
    fill(&kernel);
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
    fill(&kernel);
    assert_eq!(codes(&mut theirs), [], "only with the first page");
    assert!(kernel.forget(Some(INO.group())));
    assert_eq!(codes(&mut theirs), []);
    kernel.forget_contents(Some(INO.group()));
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
    fill(&kernel);
    assert_eq!(codes(&mut theirs), [INVAL_INODE]);
}

#[test]
fn a_mount_whose_other_end_is_gone_is_over() {
    let (kernel, theirs) = kernel(EPOCHS_SINCE);
    assert!(!kernel.is_over());
    drop(theirs);
    assert!(kernel.is_over());
}

#[test]
fn a_kernel_without_epochs_is_told_nothing_that_lasts() {
    let (kernel, _theirs) = kernel((7, 43));
    let telling = kernel.telling();
    let told = (telling.attributes(INO, SURE), telling.absent(DIR, &name("a"), SURE, CALLER));
    assert_eq!(told, (Some(Duration::ZERO), Duration::ZERO));
}

#[test]
fn nothing_is_forgotten_before_what_is_being_told_is_told() {
    let (kernel, mut theirs) = kernel(EPOCHS_SINCE);
    std::thread::scope(|scope| {
        let telling = kernel.telling();
        let forgetting = scope.spawn(|| kernel.forget(None));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!forgetting.is_finished() && codes(&mut theirs).is_empty());
        telling.attributes(INO, SURE);
        drop(telling);
        forgetting.join().expect("no panic");
        assert_eq!(codes(&mut theirs), [INVAL_INODE]);
    });
}
