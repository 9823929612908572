//! The codec against itself, against bytes that were written down once, and against arbitrary bytes.

use bluefs::op::*;
use bluefs::query::{Answer, Query};
use bluefs::tree::Entry;
use bluefs::{Csn, Group, Ino, Key, Name, Runs, SessionId};
use bluefs_wire::{decode, encode, frame, Frames, LockKind, LockRequest, Refusal, Reply, Request, Wire, WireError};
use proptest::prelude::*;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn check<T: Wire + PartialEq + std::fmt::Debug>(value: T, bytes: &str) {
    assert_eq!(hex(&encode(&value)), bytes.replace(' ', ""));
    assert_eq!(decode::<T>(&encode(&value)), Ok(value));
}

/// These stand in `docs/bluefs-protocol.md`.
#[test]
fn test_vectors() {
    check(
        Request::Hello { version: 2, volume: b"default".to_vec(), session: None, acknowledged: 0, secret: vec![] },
        "01 0200 07000000 64656661756c74 00 0000000000000000 00000000",
    );
    let cred = Cred { uid: 1000, gid: 100, groups: vec![4] };
    let query = Query::Lookup { dir: Ino::ROOT, name: name("a") };
    check(
        Request::Ask { tag: 7, cred: cred.clone(), query },
        "02 0700000000000000 e8030000 64000000 01000000 04000000 02 0100000000000000 01000000 61",
    );
    let mut after = Runs::new();
    after.insert(3);
    let change = Change::Append { ino: Ino(2), content: Content::Inline(b"hi".to_vec()) };
    let steps = vec![Step { cred: 0, time: Some(Time(5)), change }];
    let interval =
        Interval { number: 4, base: Csn(9), after, reads: vec![Key::Data(Ino(2))], creds: vec![cred], steps };
    check(
        Request::Submit { interval },
        "03 0400000000000000 0900000000000000 01000000 0300000000000000 0300000000000000 01000000 01 0200000000000000 \
         01000000 e8030000 64000000 01000000 04000000 01000000 0000 01 0500000000000000 08 0200000000000000 00 02000000 6869",
    );
    let outcome = Outcome::Committed { csn: Csn(10), effects: vec![Effect::Wrote { offset: 6, size: 8 }] };
    check(
        Reply::Decided { number: 4, outcome },
        "05 0400000000000000 01 0a00000000000000 01000000 02 0600000000000000 0800000000000000",
    );
    let conflict = vec![(Key::Name(Ino::ROOT, name("b")), Value::Entry(Some(Ino(70))))];
    check(
        Reply::Decided { number: 4, outcome: Outcome::Failed(Failure::Conflict(conflict)) },
        "05 0400000000000000 02 01 01000000 06 0100000000000000 01000000 62 02 01 4600000000000000",
    );
    assert_eq!(hex(&frame(&Request::Ping { tag: 1 })), "09000000a2cf61e20e0100000000000000");
}

#[test]
fn what_is_no_message_is_refused() {
    let bad = |bytes: &[u8]| decode::<Request>(bytes).expect_err("no message");
    assert_eq!(bad(&[]), WireError::Short);
    assert_eq!(bad(&[99]), WireError::Unknown { what: "request", value: 99 });
    assert_eq!(bad(&[13, 0]), WireError::Long(1));
    assert_eq!(
        bad(&[4, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]),
        WireError::TooLong { what: "piece of contents", len: u32::MAX as usize }
    );
    let slash =
        [&[2u8][..], &7u64.to_le_bytes(), &[0; 12], &[2], &1u64.to_le_bytes(), &3u32.to_le_bytes(), b"a/b"].concat();
    assert_eq!(bad(&slash), WireError::Invalid("name"));
    let long = [&8u8.to_le_bytes()[..], &1u64.to_le_bytes(), &99_999u32.to_le_bytes()].concat();
    assert_eq!(bad(&long), WireError::Short, "nothing is allocated for a length that cannot be there");
}

#[test]
fn frames_arrive_in_pieces() {
    let messages = [Request::Ping { tag: 1 }, Request::Goodbye {}, Request::Ping { tag: 2 }];
    let bytes: Vec<u8> = messages.iter().flat_map(frame).collect();
    for piece in 1..bytes.len() {
        let (mut frames, mut got) = (Frames::new(), Vec::new());
        for chunk in bytes.chunks(piece) {
            frames.push(chunk);
            while let Some(message) = frames.next_message::<Request>().expect("right") {
                got.push(message);
            }
        }
        assert_eq!(got, messages);
    }
    let mut flipped = frame(&messages[0]);
    *flipped.last_mut().expect("a byte") ^= 1;
    let mut frames = Frames::new();
    frames.push(&flipped);
    assert_eq!(frames.next_message::<Request>(), Err(WireError::Checksum));
    let mut frames = Frames::new();
    frames.push(&[255; 8]);
    assert!(matches!(frames.next_message::<Request>(), Err(WireError::TooLong { what: "message", .. })));
}

fn arb_name() -> impl Strategy<Value = Name> {
    prop::collection::vec(any::<u8>(), 1..20).prop_filter_map("a name", |bytes| Name::new(&bytes))
}

fn arb_key() -> impl Strategy<Value = Key> {
    (0..7u8, any::<u64>().prop_map(Ino), arb_name()).prop_map(|(which, ino, name)| match which {
        0 => Key::Data(ino),
        1 => Key::Attr(ino),
        2 => Key::Parent(ino),
        3 => Key::Xattr(ino),
        4 => Key::Locks(ino),
        5 => Key::Name(ino, name),
        _ => Key::Listing(ino),
    })
}

fn arb_change() -> impl Strategy<Value = Change> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..50);
    (0..12u8, any::<(u64, u64, u64, u16, bool)>(), arb_name(), arb_name(), bytes()).prop_map(
        |(which, n, name, to, bytes)| {
            let (ino, dir) = (Ino(n.0), Ino(n.1));
            let content = if n.4 { Content::Inline(bytes.clone()) } else { Content::Staged(n.2) };
            match which {
                0 => {
                    let (ino, kind, rdev) = (n.4.then_some(ino), Kind::Symlink, n.2 as u32);
                    Change::Create { dir, name, ino, kind, mode: n.3, rdev, target: bytes }
                }
                1 => Change::Link { ino, dir, name },
                2 => Change::Unlink { dir, name },
                3 => Change::Rmdir { dir, name },
                4 => Change::Rename { from_dir: ino, from: name, to_dir: dir, to, mode: RenameMode::Exchange },
                5 => {
                    let (mode, mtime) = (Some(n.3), Some(SetTime::At(Time(n.2 as i64))));
                    Change::SetAttr {
                        ino,
                        set: SetAttr { mode, mtime, size: n.4.then_some(n.2), ..SetAttr::default() },
                    }
                }
                6 => Change::Write { ino, offset: n.2, content },
                7 => Change::Append { ino, content },
                8 => Change::Punch { ino, offset: n.1, len: n.2 },
                10 => Change::Allocate { ino, offset: n.1, len: n.2, keep_size: n.4, zero: !n.4 },
                9 => Change::SetXattr { ino, name, value: bytes, mode: XattrMode::Create },
                _ => Change::RemoveXattr { ino, name },
            }
        },
    )
}

prop_compose! {
    fn arb_interval()(
        number in any::<u64>(), base in any::<u64>(), runs in prop::collection::vec(any::<u8>(), 0..9),
        reads in prop::collection::vec(arb_key(), 0..9), changes in prop::collection::vec(arb_change(), 0..9),
        uid in any::<u32>(), time in any::<Option<i64>>(),
    ) -> Interval {
        let mut after = Runs::new();
        runs.iter().for_each(|&n| after.insert(u64::from(n)));
        let steps = changes.into_iter().map(|change| Step { cred: 0, time: time.map(Time), change }).collect();
        Interval { number, base: Csn(base), after, reads, creds: vec![Cred { uid, ..Cred::root() }], steps }
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(interval in arb_interval()) {
        let request = Request::Submit { interval };
        prop_assert_eq!(decode::<Request>(&encode(&request)), Ok(request));
    }

    /// Arbitrary bytes never make the decoder panic; what it accepts has exactly one encoding.
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), tag in 0u8..18) {
        let bytes = [&[tag][..], &bytes].concat();
        if let Ok(request) = decode::<Request>(&bytes) {
            prop_assert_eq!(encode(&request), bytes.clone());
        }
        if let Ok(reply) = decode::<Reply>(&bytes) {
            prop_assert_eq!(encode(&reply), bytes);
        }
    }

    /// Messages with a few wrong bytes: more of them get past the first fields.
    #[test]
    fn damaged_messages(interval in arb_interval(), damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4), cut in any::<usize>()) {
        let mut bytes = encode(&Request::Submit { interval });
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(1 + cut % (2 * bytes.len()));
        if let Ok(request) = decode::<Request>(&bytes) {
            prop_assert_eq!(encode(&request), bytes);
        }
    }
}

#[test]
fn every_message_has_an_encoding() {
    let lock = LockRequest { ino: Ino(1), owner: 2, kind: LockKind::Shared, start: 0, end: u64::MAX, wait: true };
    let requests = [
        Request::Hello {
            version: 1,
            volume: vec![],
            session: Some((SessionId(1), 2)),
            acknowledged: 3,
            secret: vec![4],
        },
        Request::Stage { id: 1, data: vec![1, 2] },
        Request::Acknowledge { number: 1 },
        Request::Lease { tag: 1, group: Group(2) },
        Request::LeaseNow { tag: 1, group: Group(2) },
        Request::GiveBack { group: Group(2) },
        Request::Exclusive { tag: 1, keys: vec![Key::Listing(Ino(1))] },
        Request::Lend { tag: 1 },
        Request::Lock { tag: 1, lock },
        Request::CancelLock { tag: 1 },
        Request::Reclaim { tag: 1, lock },
        Request::TestLock { tag: 1, lock },
        Request::Released { ino: Ino(1) },
        Request::Goodbye {},
        Request::GaveUp {},
        Request::History { tag: 1 },
        Request::Versions { tag: 1, inos: vec![Ino(2), Ino(3)] },
        Request::AskLeased {
            tag: 1,
            cred: Cred::root(),
            query: Query::ListPlus { dir: Ino(1), after: Some(name("a")), max: 9 },
        },
    ];
    requests.into_iter().for_each(|request| assert_eq!(decode(&encode(&request)), Ok(request)));
    let (session, epoch, csn, last, now) = (SessionId(1), 2, Csn(3), 4, -5);
    let (space, root) = (bluefs::tree::Space::fresh(), bluefs::memory::new_root(Time(1)));
    let replies = [
        Reply::Welcome { session, epoch, csn, last, now, lease_ms: 10_000, read_only: true },
        Reply::Refused { why: Refusal::Session, text: b"no".to_vec() },
        Reply::Answer { tag: 1, csn, answer: Answer::Inode(Ino(1), bluefs::memory::new_root(Time(1))) },
        Reply::Answer {
            tag: 1,
            csn,
            answer: Answer::Names { names: vec![(name("a"), Ino(1), Kind::Fifo)], end: true },
        },
        Reply::Answer { tag: 1, csn, answer: Answer::Bytes(vec![1]) },
        Reply::Answer { tag: 1, csn, answer: Answer::Xattrs(vec![name("user.a")]) },
        Reply::Answer { tag: 1, csn, answer: Answer::Space(space) },
        Reply::Error { tag: 1, csn, errno: Errno::NOENT },
        Reply::Decided { number: 1, outcome: Outcome::Failed(Failure::Refused { step: 1, errno: Errno::ACCES }) },
        Reply::Invalidate { csn, keys: vec![] },
        Reply::Leased { tag: 1, granted: false },
        Reply::Recall { group: Group(1) },
        Reply::Lent { tag: 1, group: Group(1) },
        Reply::Locked { tag: 1 },
        Reply::Tested { tag: 1, other: Some(lock) },
        Reply::Orphan { ino: Ino(1) },
        Reply::Pong { tag: 1 },
        Reply::Answer {
            tag: 1,
            csn,
            answer: Answer::Entries { entries: vec![(name("a"), Ino(2), root.clone())], end: false },
        },
        Reply::Granted { tag: 1, groups: vec![Group(1)] },
        Reply::History { tag: 1, volume: 2, starts: vec![(3, Csn(4))] },
        Reply::Versions { tag: 1, csn, versions: vec![Some(Csn(2)), None] },
        Reply::Changed {
            number: 1,
            csn,
            keys: vec![Key::Listing(Ino(1))],
            inodes: vec![(Ino(1), Some(root)), (Ino(2), None)],
            names: vec![(Ino(1), name("a"), Some(Entry { ino: Ino(2), kind: Kind::File })), (Ino(1), name("b"), None)],
        },
    ];
    replies.into_iter().for_each(|reply| assert_eq!(decode(&encode(&reply)), Ok(reply)));
}
