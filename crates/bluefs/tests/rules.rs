//! The rules of changes: single cases as the manual pages have them, and invariants of trees after random changes.

use bluefs::apply::{apply, free, Context};
use bluefs::memory::MemoryTree;
use bluefs::op::*;
use bluefs::query::{answer, Answer, Query};
use bluefs::tree::{Overlay, Stop, Tree};
use bluefs::{Csn, Ino, Key, Name, Runs, SessionId};
use proptest::prelude::*;

const SESSION: SessionId = SessionId(5);
const NOW: Time = Time(1_000_000_000_000);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: vec![] }
}

fn interval(cred: &Cred, changes: &[Change]) -> Interval {
    let steps = changes.iter().map(|change| Step { cred: 0, time: None, change: change.clone() }).collect();
    Interval { number: 1, base: Csn(0), after: Runs::new(), reads: vec![], creds: vec![cred.clone()], steps }
}

fn create(dir: Ino, of: &str, kind: Kind, mode: u16) -> Change {
    let target = if kind == Kind::Symlink { b"target".to_vec() } else { vec![] };
    Change::Create { dir, name: name(of), ino: None, kind, mode, rdev: 0, target }
}

fn write(ino: Ino, offset: u64, bytes: &[u8]) -> Change {
    Change::Write { ino, offset, content: Content::Inline(bytes.to_vec()) }
}

fn rename(from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Change {
    Change::Rename { from_dir: from.0, from: name(from.1), to_dir: to.0, to: name(to.1), mode }
}

struct Volume(MemoryTree);

impl Volume {
    fn new() -> Volume {
        Volume(MemoryTree::new(Time(0)))
    }

    fn try_all(&mut self, cred: &Cred, changes: &[Change]) -> Result<Vec<Effect>, Failure> {
        let context = Context { session: SESSION, read_only: false, now: NOW };
        let (changes, effects) = apply(&self.0, &interval(cred, changes), context).expect("memory can be read")?;
        self.0.write(SESSION, changes);
        Ok(effects)
    }

    #[track_caller]
    fn done(&mut self, cred: &Cred, change: Change) -> Effect {
        self.try_all(cred, &[change]).expect("allowed").remove(0)
    }

    #[track_caller]
    fn refused(&mut self, cred: &Cred, change: Change, errno: Errno) {
        assert_eq!(self.try_all(cred, &[change]), Err(Failure::Refused { step: 0, errno }));
    }

    #[track_caller]
    fn made(&mut self, cred: &Cred, change: Change) -> Ino {
        match self.done(cred, change) {
            Effect::Created(ino) => ino,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&self, cred: &Cred, query: Query) -> Result<Answer, Stop<std::convert::Infallible>> {
        answer(&self.0, cred, &query)
    }

    #[track_caller]
    fn bytes(&self, ino: Ino, offset: u64, len: u32) -> Vec<u8> {
        match self.ask(&Cred::root(), Query::Read { ino, offset, len }) {
            Ok(Answer::Bytes(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn inode(&self, ino: Ino) -> Inode {
        self.0.inode(ino).expect("memory can be read").expect("it is there")
    }
}

const ROOT: Ino = Ino::ROOT;

#[test]
fn an_interval_is_applied_as_a_whole_or_not_at_all() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let before = volume.0.clone();
    let twice = [create(ROOT, "a", Kind::File, 0o644), create(ROOT, "a", Kind::File, 0o644)];
    assert_eq!(volume.try_all(&root, &twice), Err(Failure::Refused { step: 1, errno: Errno::EXIST }));
    assert_eq!(volume.0, before);
}

#[test]
fn files_with_several_names_and_without_any() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o644));
    volume.done(&root, Change::Link { ino: file, dir: ROOT, name: name("b") });
    assert_eq!(volume.inode(file).nlink, 2);
    volume.done(&root, Change::Unlink { dir: ROOT, name: name("a") });
    volume.done(&root, Change::Unlink { dir: ROOT, name: name("b") });
    volume.done(&root, write(file, 0, b"still there"));
    assert_eq!(volume.bytes(file, 6, 100), b"there");
    assert!(volume.0.orphans.contains(&file));
    volume.refused(&root, Change::Link { ino: file, dir: ROOT, name: name("c") }, Errno::NOENT);
    let (changes, _) = free(&volume.0, &[file], usize::MAX).expect("memory can be read");
    volume.0.write(SESSION, changes);
    volume.refused(&root, write(file, 0, b"x"), Errno::STALE);
    assert_eq!((volume.0.space.used_bytes, volume.0.space.used_inodes), (0, 1));
}

/// A file of any size is freed in parts, and counts for what is left of it.
#[test]
fn a_large_file_is_freed_in_parts() {
    const BLOCKS: u64 = 10;
    let (mut volume, root) = (Volume::new(), Cred::root());
    let files = ["a", "b", "c"].map(|of| volume.made(&root, create(ROOT, of, Kind::File, 0o644)));
    for file in files {
        (0..BLOCKS).for_each(|index| _ = volume.done(&root, write(file, index * BLOCK_BYTES, b"x")));
    }
    ["a", "b", "c"].iter().for_each(|of| _ = volume.done(&root, Change::Unlink { dir: ROOT, name: name(of) }));
    let mut left = files.to_vec();
    for (freed, blocks) in [(1, 15), (0, 0)] {
        let (changes, free) = free(&volume.0, &left, 15).expect("memory can be read");
        volume.0.write(SESSION, changes);
        if blocks > 0 {
            assert_eq!(free, left[..freed]);
            assert_eq!((volume.inode(left[1]).blocks, volume.0.space.used_bytes), (5, blocks * BLOCK_BYTES));
        }
        left.retain(|ino| !free.contains(ino));
    }
    assert_eq!((left, volume.0.space.used_bytes, volume.0.space.used_inodes), (vec![], 0, 1));
}

#[test]
fn nobody_waits_until_a_large_file_is_freed() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let files = [("a", 20), ("b", 3), ("c", 0), ("d", 3)].map(|(of, blocks)| {
        let file = volume.made(&root, create(ROOT, of, Kind::File, 0o644));
        (0..blocks).for_each(|index| _ = volume.done(&root, write(file, index * BLOCK_BYTES, b"x")));
        volume.done(&root, Change::Unlink { dir: ROOT, name: name(of) });
        file
    });
    let (changes, free) = free(&volume.0, &files, 5).expect("memory can be read");
    volume.0.write(SESSION, changes);
    assert_eq!(free, [files[1], files[2]]);
    assert_eq!((volume.inode(files[0]).blocks, volume.inode(files[3]).blocks), (18, 3));
    assert_eq!(volume.0.space.used_bytes, 21 * BLOCK_BYTES);
}

/// Bytes that are sent say little of what is put: one of them behind a hole is a whole block.
#[test]
fn the_blocks_of_an_interval_have_a_bound() {
    const EDGES: u64 = STEPS_MAX as u64;
    let (mut volume, root) = (Volume::new(), Cred::root());
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o644));
    let ends = |first: u64| -> Vec<Change> {
        (first..first + EDGES).map(|index| write(file, (index + 1) * BLOCK_BYTES - 1, b"x")).collect()
    };
    assert!(volume.try_all(&root, &ends(0)).is_ok() && volume.try_all(&root, &ends(EDGES)).is_ok());
    let mut both: Vec<Change> = (0..EDGES).map(|pair| write(file, (2 * pair + 1) * BLOCK_BYTES - 1, b"yy")).collect();
    assert!(volume.try_all(&root, &both).is_ok(), "128 MiB");
    both[0] = write(file, 2 * EDGES * BLOCK_BYTES, &[b'z'; 3 * BLOCK_BYTES as usize]);
    assert_eq!(volume.try_all(&root, &both), Err(Failure::Malformed));
}

#[test]
fn a_rename_replaces_exchanges_or_refuses() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let [a, b] = ["a", "b"].map(|of| volume.made(&root, create(ROOT, of, Kind::File, 0o644)));
    let dir = volume.made(&root, create(ROOT, "d", Kind::Dir, 0o755));
    let sub = volume.made(&root, create(dir, "sub", Kind::Dir, 0o755));
    let plain = RenameMode::Replace;
    volume.refused(&root, rename((ROOT, "a"), (ROOT, "b"), RenameMode::NoReplace), Errno::EXIST);
    volume.refused(&root, rename((ROOT, "a"), (ROOT, "x"), RenameMode::Exchange), Errno::NOENT);
    volume.refused(&root, rename((ROOT, "a"), (ROOT, "d"), plain), Errno::ISDIR);
    volume.refused(&root, rename((ROOT, "d"), (ROOT, "a"), plain), Errno::NOTDIR);
    volume.refused(&root, rename((ROOT, "d"), (sub, "x"), plain), Errno::INVAL);
    volume.refused(&root, rename((dir, "sub"), (ROOT, "d"), plain), Errno::NOTEMPTY);
    volume.done(&root, rename((ROOT, "a"), (dir, "sub"), RenameMode::Exchange));
    assert_eq!((volume.inode(sub).parent, volume.inode(dir).nlink, volume.inode(ROOT).nlink), (ROOT, 2, 4));
    volume.done(&root, rename((dir, "sub"), (ROOT, "b"), plain));
    assert_eq!((volume.inode(b).nlink, volume.inode(a).nlink), (0, 1));
    volume.done(&root, rename((ROOT, "b"), (ROOT, "b"), plain));
}

#[test]
fn a_directory_that_is_moved_is_a_link_of_the_one_that_it_comes_to() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let [full, other] = ["full", "other"].map(|of| volume.made(&root, create(ROOT, of, Kind::Dir, 0o755)));
    for (dir, of) in [(full, "a"), (other, "b")] {
        volume.made(&root, create(dir, of, Kind::Dir, 0o755));
        volume.made(&root, create(dir, "file", Kind::File, 0o644));
    }
    let mut view = Overlay::new(&volume.0);
    view.put_inode(full, Inode { nlink: LINKS_MAX, ..volume.inode(full) });
    let changes = view.into_changes();
    volume.0.write(SESSION, changes);
    volume.refused(&root, rename((other, "b"), (full, "new"), RenameMode::Replace), Errno::MLINK);
    volume.refused(&root, rename((other, "b"), (full, "file"), RenameMode::Exchange), Errno::MLINK);
    volume.done(&root, rename((other, "b"), (full, "a"), RenameMode::Exchange));
    volume.done(&root, rename((full, "a"), (full, "c"), RenameMode::Replace));
    volume.done(&root, rename((other, "b"), (full, "c"), RenameMode::Replace));
    assert_eq!((volume.inode(full).nlink, volume.inode(other).nlink), (LINKS_MAX, 2));
}

/// chown(2) with neither an owner nor a group.
#[test]
fn a_change_of_no_owner_takes_the_rights_of_a_program_away() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let none = |ino| Change::SetAttr { ino, set: SetAttr::default() };
    let file = volume.made(&user(0), create(ROOT, "file", Kind::File, 0o6755));
    volume.refused(&user(7), none(file), Errno::PERM);
    volume.done(&root, none(file));
    assert_eq!(volume.inode(file).mode, 0o755);
    volume.done(&user(7), none(file));
    let dir = volume.made(&root, create(ROOT, "dir", Kind::Dir, 0o6755));
    volume.done(&root, none(dir));
    assert_eq!(volume.inode(dir).mode, 0o6755);
}

#[test]
fn sparse_files_have_holes() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o644));
    let far = 3 * BLOCK_BYTES + 5;
    assert_eq!(volume.done(&root, write(file, far, b"end")), Effect::Wrote { offset: far, size: far + 3 });
    assert_eq!((volume.inode(file).blocks, volume.bytes(file, far - 2, 9)), (1, b"\0\0end".to_vec()));
    volume.done(&root, Change::SetAttr { ino: file, set: SetAttr { size: Some(far + 1), ..SetAttr::default() } });
    volume.done(&root, Change::SetAttr { ino: file, set: SetAttr { size: Some(far + 3), ..SetAttr::default() } });
    assert_eq!(volume.bytes(file, far, 9), b"e\0\0", "what was cut off does not come back");
    volume.done(&root, write(file, 0, &[7; 3 * BLOCK_BYTES as usize]));
    volume.done(&root, Change::Punch { ino: file, offset: 10, len: 2 * BLOCK_BYTES });
    assert_eq!(volume.inode(file).blocks, 3);
    assert_eq!(volume.bytes(file, 2 * BLOCK_BYTES + 9, 2), [0, 7]);
    assert_eq!(volume.bytes(file, 9, 2), [7, 0]);
    let appended = volume.done(&root, Change::Append { ino: file, content: Content::Inline(b"!".to_vec()) });
    assert_eq!(appended, Effect::Wrote { offset: far + 3, size: far + 4 });
}

#[test]
fn a_reserved_range_has_zeros_and_counts() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o644));
    let allocate = |offset, len, keep_size, zero| Change::Allocate { ino: file, offset, len, keep_size, zero };
    volume.done(&root, write(file, 1, b"abc"));
    volume.done(&root, allocate(2, 2 * BLOCK_BYTES, false, false));
    let (inode, end) = (volume.inode(file), 2 + 2 * BLOCK_BYTES);
    assert_eq!((inode.size, inode.blocks), (end, 3));
    assert_eq!(volume.bytes(file, 0, 6), b"\0abc\0\0");
    assert_eq!(volume.bytes(file, end - 2, 9), [0, 0]);
    volume.done(&root, allocate(4 * BLOCK_BYTES, 1, true, false));
    assert_eq!((volume.inode(file).size, volume.inode(file).blocks), (end, 4));
    volume.done(&root, write(file, 4 * BLOCK_BYTES, b"there"));
    assert_eq!((volume.inode(file).blocks, volume.bytes(file, 4 * BLOCK_BYTES, 9)), (4, b"there".to_vec()));
    volume.done(&root, allocate(2, 1, false, true));
    assert_eq!(volume.bytes(file, 0, 5), b"\0a\0c\0");
    volume.done(&root, allocate(0, 5 * BLOCK_BYTES, true, true));
    assert_eq!((volume.inode(file).size, volume.inode(file).blocks), (4 * BLOCK_BYTES + 5, 5));
    assert_eq!(volume.bytes(file, 0, 4), [0; 4]);
    assert_eq!(volume.bytes(file, 4 * BLOCK_BYTES, 9), [0; 5]);
    volume.done(&root, allocate(8 * BLOCK_BYTES, 1, true, false));
    assert_eq!(volume.inode(file).blocks, 6);
    let same_size = SetAttr { size: Some(4 * BLOCK_BYTES + 5), ..SetAttr::default() };
    volume.done(&root, Change::SetAttr { ino: file, set: same_size });
    assert_eq!(volume.inode(file).blocks, 5);
    volume.refused(&root, allocate(0, 0, false, false), Errno::INVAL);
    volume.refused(&root, allocate(FILE_BYTES_MAX, 1, true, false), Errno::FBIG);
    volume.refused(&root, allocate(u64::MAX, 1, true, false), Errno::FBIG);
    volume.refused(&user(10), allocate(0, 1, true, false), Errno::ACCES);
}

#[test]
fn rights_are_checked_here_too() {
    let (mut volume, root, me, other) = (Volume::new(), Cred::root(), user(10), user(11));
    volume.refused(&me, create(ROOT, "a", Kind::File, 0o644), Errno::ACCES);
    let tmp = volume.made(&root, create(ROOT, "tmp", Kind::Dir, 0o1777));
    let file = volume.made(&me, create(tmp, "mine", Kind::File, 0o4755));
    volume.refused(&other, Change::Unlink { dir: tmp, name: name("mine") }, Errno::PERM);
    volume.refused(&other, write(file, 0, b"x"), Errno::ACCES);
    let mode = |mode| Change::SetAttr { ino: file, set: SetAttr { mode: Some(mode), ..SetAttr::default() } };
    volume.refused(&other, mode(0o777), Errno::PERM);
    volume.done(&me, mode(0o4400));
    volume.done(&me, write(file, 0, b"by a descriptor that could write"));
    assert_eq!(volume.inode(file).mode, 0o400, "a write takes the setuid bit");
    let give = Change::SetAttr { ino: file, set: SetAttr { uid: Some(11), ..SetAttr::default() } };
    volume.refused(&me, give, Errno::PERM);
    let device = Change::Create {
        dir: tmp,
        name: name("sda"),
        ino: None,
        kind: Kind::Block,
        mode: 0o600,
        rdev: 2048,
        target: vec![],
    };
    volume.refused(&me, device.clone(), Errno::PERM);
    volume.done(&root, device);
    let read = Query::Read { ino: file, offset: 0, len: 1 };
    assert_eq!(volume.ask(&other, read), Err(Stop::Refused(Errno::ACCES)));
}

#[test]
fn quotas_refuse_what_takes_and_never_what_gives_back() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    volume.0.space.max_bytes = 2 * BLOCK_BYTES;
    volume.0.space.max_inodes = 2;
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o644));
    volume.refused(&root, create(ROOT, "b", Kind::File, 0o644), Errno::DQUOT);
    volume.done(&root, write(file, 0, &[1; 2 * BLOCK_BYTES as usize]));
    volume.refused(&root, write(file, 2 * BLOCK_BYTES, b"1"), Errno::DQUOT);
    volume.0.space.max_bytes = 0;
    volume.done(&root, Change::SetAttr { ino: file, set: SetAttr { size: Some(1), ..SetAttr::default() } });
    volume.done(&root, Change::Unlink { dir: ROOT, name: name("a") });
}

#[test]
fn numbers_are_taken_from_lent_groups_and_never_twice() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let mut view = Overlay::new(&volume.0);
    let group = view.lend(SESSION).expect("lent");
    let changes = view.into_changes();
    volume.0.write(SESSION, changes);
    let with = |of: &str, ino: u64| {
        let (kind, target) = (Kind::File, vec![]);
        Change::Create { dir: ROOT, name: name(of), ino: Some(Ino(ino)), kind, mode: 0o644, rdev: 0, target }
    };
    let first = group.inodes().start;
    assert_eq!(volume.made(&root, with("a", first + 3)), Ino(first + 3));
    volume.done(&root, Change::Unlink { dir: ROOT, name: name("a") });
    let (changes, _) = free(&volume.0, &[Ino(first + 3)], usize::MAX).expect("memory can be read");
    volume.0.write(SESSION, changes);
    volume.refused(&root, with("b", first + 3), Errno::INVAL);
    volume.refused(&root, with("b", 40), Errno::INVAL);
    for i in 0..200 {
        let own = volume.made(&root, create(ROOT, &format!("n{i}"), Kind::File, 0o644));
        assert!(own.group() != group, "the server's own numbers are not lent");
    }
}

#[test]
fn extended_attributes() {
    let (mut volume, root, me) = (Volume::new(), Cred::root(), user(10));
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o666));
    let set = |of: &str, mode| Change::SetXattr { ino: file, name: name(of), value: b"v".to_vec(), mode };
    volume.refused(&me, set("user.k", XattrMode::Replace), Errno::NODATA);
    volume.done(&me, set("user.k", XattrMode::Create));
    volume.refused(&me, set("user.k", XattrMode::Create), Errno::EXIST);
    volume.refused(&me, set("trusted.k", XattrMode::Either), Errno::PERM);
    assert_eq!(volume.ask(&me, Query::Xattrs(file)), Ok(Answer::Xattrs(vec![name("user.k")])));
    volume.done(&me, Change::RemoveXattr { ino: file, name: name("user.k") });
    assert_eq!(volume.ask(&me, Query::Xattr { ino: file, name: name("user.k") }), Err(Stop::Refused(Errno::NODATA)));
}

#[test]
fn a_time_in_the_future_does_not_outlast_a_change() {
    const LATER: Time = Time(NOW.0 + 1_000_000_000_000);
    let (mut volume, root) = (Volume::new(), Cred::root());
    let dir = volume.made(&root, create(ROOT, "d", Kind::Dir, 0o755));
    let file = volume.made(&root, create(dir, "a", Kind::File, 0o644));
    for ino in [dir, file] {
        let set = SetAttr { mtime: Some(SetTime::At(LATER)), ..SetAttr::default() };
        volume.done(&root, Change::SetAttr { ino, set });
        assert_eq!(volume.inode(ino).mtime, LATER);
    }
    volume.done(&root, write(file, 0, b"x"));
    volume.done(&root, create(dir, "b", Kind::File, 0o644));
    assert_eq!((volume.inode(file).mtime, volume.inode(dir).mtime), (NOW, NOW));
}

#[test]
fn programs_with_rights_lose_these_when_a_hole_is_punched_and_get_none_of_a_foreign_group() {
    let (mut volume, root, owner) = (Volume::new(), Cred::root(), user(10));
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o4777));
    volume.done(&root, write(file, 0, b"contents"));
    volume.done(&owner, Change::Punch { ino: file, offset: 0, len: 4 });
    assert_eq!(volume.inode(file).mode, 0o777);
    let shared = volume.made(&root, create(ROOT, "d", Kind::Dir, 0o2777));
    let set = SetAttr { gid: Some(50), ..SetAttr::default() };
    volume.done(&root, Change::SetAttr { ino: shared, set });
    let member = Cred { groups: vec![50], ..user(11) };
    for (cred, of, mode, given) in [
        (&owner, "foreign", 0o2755, 0o755),
        (&owner, "not executed", 0o2745, 0o2745),
        (&member, "member's", 0o2755, 0o2755),
        (&root, "root's", 0o2755, 0o2755),
    ] {
        let made = volume.made(cred, create(shared, of, Kind::File, mode));
        assert_eq!((volume.inode(made).mode, volume.inode(made).gid), (given, 50), "{of}");
    }
}

#[test]
fn a_hole_behind_the_end_of_all_files_is_refused() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o644));
    volume.refused(&root, Change::Punch { ino: file, offset: FILE_BYTES_MAX + 1, len: 1 }, Errno::FBIG);
    volume.done(&root, Change::Punch { ino: file, offset: FILE_BYTES_MAX - 1, len: 1 });
}

#[test]
fn an_attribute_is_replaced_where_there_is_no_room_for_another() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let file = volume.made(&root, create(ROOT, "a", Kind::File, 0o644));
    let set = |number: usize| Change::SetXattr {
        ino: file,
        name: name(&format!("user.{number:0200}")),
        value: b"v".to_vec(),
        mode: XattrMode::Either,
    };
    let fits = (0..).take_while(|&number| volume.try_all(&root, &[set(number)]).is_ok()).count();
    volume.done(&root, set(fits - 1));
    volume.refused(&root, set(fits), Errno::NOSPC);
}

#[test]
fn who_creates_does_not_change_what_another_creator_reads() {
    // Hole 11: two builds that create in one directory.
    let volume = Volume::new();
    let context = Context { session: SESSION, read_only: false, now: NOW };
    let changes = interval(&Cred::root(), &[create(ROOT, "a", Kind::File, 0o644)]);
    let (changes, _) = apply(&volume.0, &changes, context).expect("memory").expect("allowed");
    let lookup = Query::Lookup { dir: ROOT, name: name("b") };
    assert!(lookup.keys(None).iter().all(|key| !changes.keys.contains(key)));
    assert!(changes.keys.contains(&Key::Listing(ROOT)));
}

#[test]
fn lies_are_refused() {
    let (mut volume, root) = (Volume::new(), Cred::root());
    let future =
        Step { cred: 0, time: Some(Time(NOW.0 + 5_000_000_000)), change: create(ROOT, "a", Kind::File, 0o644) };
    let context = Context { session: SESSION, read_only: false, now: NOW };
    let mut lie = interval(&root, &[]);
    lie.steps = vec![future];
    let refused = Err(Failure::Refused { step: 0, errno: Errno::INVAL });
    assert_eq!(apply(&volume.0, &lie, context).expect("memory").map(|_| ()), refused);
    lie.steps = vec![Step { cred: 1, time: None, change: create(ROOT, "a", Kind::File, 0o644) }];
    assert_eq!(apply(&volume.0, &lie, context).expect("memory").map(|_| ()), Err(Failure::Malformed));
    volume.refused(&root, write(Ino(77), 0, b"x"), Errno::STALE);
    volume.refused(&root, Change::Write { ino: ROOT, offset: 0, content: Content::Staged(3) }, Errno::ISDIR);
    let read_only = Context { read_only: true, ..context };
    let one = interval(&root, &[create(ROOT, "a", Kind::File, 0o644)]);
    let refused = Err(Failure::Refused { step: 0, errno: Errno::ROFS });
    assert_eq!(apply(&volume.0, &one, read_only).expect("memory").map(|_| ()), refused);
    let huge = write(Ino(2), u64::MAX, b"x");
    volume.made(&root, create(ROOT, "a", Kind::File, 0o644));
    volume.refused(&root, huge, Errno::FBIG);
}

fn arb_change() -> impl Strategy<Value = Change> {
    let ino = || (1u64..8).prop_map(Ino);
    let any_name = || prop::sample::select(vec!["a", "b", "c"]).prop_map(name);
    let kind = prop::sample::select(vec![Kind::File, Kind::Dir, Kind::Dir, Kind::Symlink, Kind::Fifo]);
    let mode = prop::sample::select(vec![RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
    prop_oneof![
        3 => (ino(), any_name(), kind).prop_map(|(dir, name, kind)| {
            create(dir, std::str::from_utf8(name.as_bytes()).expect("ASCII"), kind, 0o755)
        }),
        1 => (ino(), ino(), any_name()).prop_map(|(ino, dir, name)| Change::Link { ino, dir, name }),
        1 => (ino(), any_name()).prop_map(|(dir, name)| Change::Unlink { dir, name }),
        1 => (ino(), any_name()).prop_map(|(dir, name)| Change::Rmdir { dir, name }),
        3 => (ino(), any_name(), ino(), any_name(), mode).prop_map(|(from_dir, from, to_dir, to, mode)| {
            Change::Rename { from_dir, from, to_dir, to, mode }
        }),
        1 => (ino(), 0u64..100_000, 0usize..40_000).prop_map(|(ino, offset, len)| write(ino, offset, &vec![1; len])),
        1 => (ino(), 0u64..100_000).prop_map(|(ino, size)| {
            Change::SetAttr { ino, set: SetAttr { size: Some(size), ..SetAttr::default() } }
        }),
        1 => (ino(), 0u64..100_000, 1u64..80_000).prop_map(|(ino, offset, len)| Change::Punch { ino, offset, len }),
        1 => (ino(), 0u64..100_000, 1u64..80_000, any::<bool>(), any::<bool>()).prop_map(
            |(ino, offset, len, keep_size, zero)| Change::Allocate { ino, offset, len, keep_size, zero }
        ),
    ]
}

/// Names, counts of links, parents, blocks and room fit together.
fn check_tree(tree: &MemoryTree) {
    let inodes: Vec<(Ino, Inode)> = tree.inodes().map(|(ino, inode)| (ino, inode.clone())).collect();
    let names: Vec<(Ino, Ino, Kind)> = inodes
        .iter()
        .filter(|(_, inode)| inode.kind == Kind::Dir)
        .flat_map(|(dir, _)| {
            tree.entries(*dir, None, 1000).expect("memory").into_iter().map(|(_, e)| (*dir, e.ino, e.kind))
        })
        .collect();
    let mut bytes = 0;
    for (ino, inode) in &inodes {
        let of: Vec<_> = names.iter().filter(|(_, to, _)| to == ino).collect();
        assert!(of.iter().all(|(_, _, kind)| *kind == inode.kind));
        let blocks = tree.blocks(*ino, 0, 1000).expect("memory");
        assert_eq!(inode.blocks, blocks.len() as u64);
        for index in blocks {
            let block = tree.block(*ino, index).expect("memory").expect("listed");
            let within = inode.size.saturating_sub(index * BLOCK_BYTES) as usize;
            let behind = block.get(within..).unwrap_or_default();
            assert!(behind.iter().all(|byte| *byte == 0), "zeros behind the end");
            assert!(within > 0 || block.is_empty(), "what is behind the end is reserved and has no bytes");
        }
        bytes += inode.blocks * BLOCK_BYTES;
        if inode.kind != Kind::Dir {
            assert_eq!(inode.nlink as usize, of.len());
        } else if *ino != ROOT && inode.nlink > 0 {
            assert_eq!(of.iter().map(|(dir, _, _)| *dir).collect::<Vec<_>>(), [inode.parent]);
        }
        if inode.kind == Kind::Dir && inode.nlink > 0 {
            let sub = names.iter().filter(|(dir, _, kind)| dir == ino && *kind == Kind::Dir).count();
            assert_eq!(inode.nlink as usize, 2 + sub);
        }
        assert_eq!(inode.nlink == 0, tree.orphans.contains(ino));
    }
    assert_eq!((tree.space.used_bytes, tree.space.used_inodes), (bytes, inodes.len() as u64));
    let there = |ino: &Ino| inodes.iter().any(|(other, _)| other == ino);
    assert!(names.iter().all(|(_, ino, _)| there(ino)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn trees_stay_trees(changes in prop::collection::vec(prop::collection::vec(arb_change(), 1..4), 0..40)) {
        let mut volume = Volume::new();
        for steps in changes {
            let before = volume.0.clone();
            match volume.try_all(&Cred::root(), &steps) {
                Ok(_) => check_tree(&volume.0),
                Err(_) => prop_assert_eq!(&before, &volume.0),
            }
        }
        let orphans: Vec<Ino> = volume.0.orphans.iter().copied().collect();
        let (changes, _) = free(&volume.0, &orphans, usize::MAX).expect("memory");
        volume.0.write(SESSION, changes);
        check_tree(&volume.0);
    }
}
