//! The table against what it describes: the kernel's own list of numbers, and the page that is generated from it.

use std::{fs, io::ErrorKind};

use syscall_table::{
    error_shows_others, may_lead_to_others, op, option_shows, row, write_markdown, write_text, Class, Op, OptionShows,
    Shows, Whom, CWD, ROWS,
};

const KERNEL_HEADER: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SYSCALLS.md");

#[test]
fn every_call_of_the_kernels_header_has_a_row_of_its_name() {
    let header = match fs::read_to_string(KERNEL_HEADER) {
        Ok(header) => header,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => panic!("cannot read {KERNEL_HEADER}: {error}"),
    };
    let calls: Vec<(&str, u64)> = header.lines().filter_map(definition).collect();
    assert!(calls.len() > 300, "{KERNEL_HEADER} does not look as it used to");
    for (name, nr) in calls {
        assert_eq!(row(nr).map(|row| row.name), Some(name), "system call {nr}");
    }
}

/// `#define __NR_read 0`
fn definition(line: &str) -> Option<(&str, u64)> {
    let (name, nr) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
    Some((name, nr.trim().parse().ok()?))
}

#[test]
fn a_number_finds_its_own_row_and_no_other() {
    for nr in 0..1024 {
        let expected = ROWS.iter().find(|row| u64::from(row.nr) == nr);
        assert_eq!(row(nr).map(|row| row.name), expected.map(|row| row.name));
        assert_eq!(op(nr), expected.map(|row| row.op), "system call {nr}");
    }
    assert_eq!(op(0), Some(Op::Read { fd: 0 }));
    // The x32 ABI, a negative number, and what the kernel keeps free.
    for nr in [0x4000_0000, u64::MAX, 337, 423, 511, 512] {
        assert_eq!(op(nr), None);
        assert!(row(nr).is_none());
    }
}

#[test]
fn names_are_unique_and_every_row_says_why_on_one_line() {
    let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROWS.len());
    for row in ROWS {
        assert!(!row.why.is_empty() && !row.why.contains(['\n', '|']), "{}", row.name);
    }
}

#[test]
fn the_columns_of_the_text_are_aligned() {
    let mut text = String::new();
    write_text(&mut text).unwrap();
    let header = text.lines().next().unwrap();
    let why_at = header.find("why").unwrap();
    assert_eq!(text.lines().count(), ROWS.len() + 1);
    for (line, row) in text.lines().skip(1).zip(ROWS) {
        assert_eq!(&line[why_at..], row.why);
        assert!(line[..why_at].ends_with("  "), "{line}");
    }
}

#[test]
fn the_committed_page_is_up_to_date() {
    let mut page = String::new();
    write_markdown(&mut page).unwrap();
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        committed == page,
        "docs/SYSCALLS.md is out of date; run \
         `cargo run -p syscall-table --example syscalls_md > docs/SYSCALLS.md`"
    );
}

/// What a row says that it shows is observed: by its operation, or afterwards. (That a native row shows nothing of
/// others, and a barrier anything, is proven when the table is compiled.)
#[test]
fn every_row_shows_what_its_operation_observes() {
    for row in ROWS {
        let is_observed = match row.shows {
            Shows::Nothing | Shows::Own => !looks_at_others(row.op),
            Shows::Signal => matches!(row.op, Op::Native | Op::TakeSignal),
            Shows::Memory => matches!(row.op, Op::Native | Op::Mmap | Op::Shmat | Op::Trace),
            Shows::Names => row.op.paths()[0].is_some() || row.op == Op::Fchdir,
            Shows::Object => {
                looks_at_others(row.op) && row.op.paths()[0].is_none() || matches!(row.op, Op::Sync(_) | Op::Shutdown)
            }
            Shows::Ready => matches!(row.op, Op::Poll | Op::Select | Op::EpollWait),
            Shows::Connection => matches!(row.op, Op::SocketName { .. } | Op::Accept),
            Shows::Child => row.op == Op::Wait,
            Shows::Receiver => matches!(row.op, Op::Kill | Op::Tkill | Op::Tgkill),
            // The agent looks at the error, wherever it is.
            Shows::Failure => row.class != Class::Native,
            // The agent looks afterwards, whatever the operation is.
            _ => row.shows.is_observed_afterwards() && row.class != Class::Native,
        };
        assert!(is_observed, "{}: {:?} does not observe {:?}", row.name, row.op, row.shows);
    }
}

/// Whether an operation is about an object or a name that others have as well.
fn looks_at_others(op: Op) -> bool {
    let is_private = matches!(
        op,
        Op::Native
            | Op::Lasting
            | Op::Group
            | Op::Identity
            | Op::OwnPages
            | Op::Action
            | Op::OwnTimer
            | Op::Prctl
            | Op::ArchPrctl
            | Op::Refuse(_)
    );
    let makes_or_ends = matches!(op, Op::Pipe | Op::SocketPair | Op::Close | Op::CloseRange | Op::Dup2);
    !is_private && !makes_or_ends && !matches!(op, Op::Exit | Op::ExitGroup | Op::Sync(_))
}

#[test]
fn a_call_is_about_the_process_that_its_row_names() {
    let whom = |name: &str, args: [u64; 2]| {
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        row.shows.whom(&[args[0], args[1], 0, 0, 0, 0])
    };
    let clock = |pid: i32| (!pid << 3 | 2) as u32 as u64;
    assert_eq!(whom("getpgid", [0, 9]), Whom::Caller);
    assert_eq!(whom("getpgid", [7, 9]), Whom::Process(7));
    assert_eq!(whom("getpriority", [0, 0]), Whom::Caller);
    assert_eq!(whom("getpriority", [0, 7]), Whom::Process(7));
    assert_eq!(whom("getpriority", [1, 0]), Whom::Anybody);
    assert_eq!(whom("ioprio_get", [1, 7]), Whom::Process(7));
    assert_eq!(whom("ioprio_get", [2, 7]), Whom::Anybody);
    assert_eq!(whom("capget", [0x1000, 0]), Whom::At(0x1004));
    assert_eq!(whom("clock_gettime", [1, 0]), Whom::Caller);
    assert_eq!(whom("clock_gettime", [clock(0), 0]), Whom::Caller);
    assert_eq!(whom("clock_gettime", [clock(4242), 0]), Whom::Process(4242));
    assert_eq!(whom("sysinfo", [0, 0]), Whom::Anybody);
    assert_eq!(whom("read", [0, 0]), Whom::Caller);
}

#[test]
fn errors_of_ones_own_show_nothing_of_others() {
    const ENOENT: u16 = 2;
    const ESRCH: u16 = 3;
    const EBADF: u16 = 9;
    const ECHILD: u16 = 10;
    const EAGAIN: u16 = 11;
    const EINVAL: u16 = 22;
    const ETXTBSY: u16 = 26;
    const ENOSPC: u16 = 28;
    const ECONNRESET: u16 = 104;
    for errno in [ENOENT, EBADF, EAGAIN, EINVAL] {
        assert!(!error_shows_others(errno), "{errno}");
    }
    // What is not known does.
    for errno in [ESRCH, ECHILD, ETXTBSY, ENOSPC, ECONNRESET, 133, 4000] {
        assert!(error_shows_others(errno), "{errno}");
    }
}

#[test]
fn names_through_proc_lead_to_other_processes() {
    let leads = |path: &str| may_lead_to_others(path.bytes(), |id| id == 77);
    for path in
        ["/proc/1/cwd", "/proc/1", "//proc///1/exe", "/x/../proc/1/fd/3", "/chroot/proc/12/root/a", "proc/5", "/proc"]
    {
        assert!(leads(path), "{path}");
    }
    for path in
        ["/proc/self/../1", "/proc/self/fd/3/x", "/proc/77/../1/cwd", "/proc/self/task/5/comm", "/proc/self/cwd/proc/1"]
    {
        assert!(leads(path), "{path}");
    }
    for path in ["", "/", "/home/a/procedure", "/process/1", "/proc/self/exe", "/proc/77/exe", "/proc/thread-self/fd/3"]
    {
        assert!(!leads(path), "{path}");
    }
    for path in [
        "/proc/meminfo",
        "/proc/sys/kernel/pid_max",
        "/proc/self/fd",
        "/proc/self/cwd/a/b",
        "/a-very-long-component-of-a-name/1",
    ] {
        assert!(!leads(path), "{path}");
    }
}

#[test]
fn an_operation_on_names_says_where_they_stand() {
    assert_eq!(op(2).unwrap().paths(), [Some((CWD, 0)), None]);
    assert_eq!(op(264).unwrap().paths(), [Some((0, 1)), Some((2, 3))]);
    assert_eq!(op(0).unwrap().paths(), [None, None]);
}

#[test]
fn an_option_of_a_socket_is_seen_by_whom_it_concerns() {
    const SOL_IP: u32 = 0;
    const SOL_SOCKET: u32 = 1;
    const SOL_TCP: u32 = 6;
    const SOL_UDP: u32 = 17;
    const SOL_IPV6: u32 = 41;
    const SOL_NETLINK: u32 = 270;
    let check = |level, options: &[u32], expect| {
        for &option in options {
            assert_eq!(option_shows(level, option), expect, "level {level}, option {option}");
        }
    };
    // SO_SNDBUF, SO_RCVBUF, SO_LINGER, SO_RCVTIMEO
    check(SOL_SOCKET, &[7, 8, 13, 20], OptionShows::Nobody);
    // SO_REUSEADDR, SO_REUSEPORT
    check(SOL_SOCKET, &[2, 15], OptionShows::Name);
    // SO_KEEPALIVE
    check(SOL_SOCKET, &[9], OptionShows::Peer);
    // SO_BINDTODEVICE, SO_ATTACH_FILTER, and one that there is not.
    check(SOL_SOCKET, &[25, 26, 999], OptionShows::Machine);
    // TCP_NODELAY, TCP_CORK
    check(SOL_TCP, &[1, 3], OptionShows::Unsent);
    // TCP_KEEPIDLE, TCP_QUICKACK, TCP_USER_TIMEOUT
    check(SOL_TCP, &[4, 12, 18], OptionShows::Peer);
    // TCP_REPAIR
    check(SOL_TCP, &[19], OptionShows::Machine);
    // UDP_CORK
    check(SOL_UDP, &[1], OptionShows::Peer);
    // IP_TOS, IP_MULTICAST_TTL
    check(SOL_IP, &[1, 33], OptionShows::Nobody);
    // IP_ADD_MEMBERSHIP to IP_MSFILTER, MCAST_JOIN_GROUP to MCAST_MSFILTER, IPT_SO_SET_REPLACE, MRT_INIT
    check(SOL_IP, &[35, 36, 37, 38, 39, 40, 41, 42, 45, 48, 64, 200], OptionShows::Machine);
    // IPV6_V6ONLY, IPV6_TCLASS
    check(SOL_IPV6, &[26, 67], OptionShows::Nobody);
    // IPV6_JOIN_GROUP, IPV6_LEAVE_GROUP, IPV6_JOIN_ANYCAST, IPV6_FLOWLABEL_MGR, MCAST_JOIN_GROUP
    check(SOL_IPV6, &[20, 21, 27, 32, 42], OptionShows::Machine);
    check(SOL_NETLINK, &[1], OptionShows::Machine);
}
