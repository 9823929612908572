//! Looks at names that lead past everything that is held need no question (decisions/0196), and what comes to be held
//! is seen at once by whoever has looked there before.

use crate::support;
use crate::support::guess::questions_of;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What each program begins with: `looks` tells of names in every way, and `told` has what that said.
const SETUP: &str = "
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
guess = libc.syscall(0x5bed, 1, 0) if sys.argv[1] == 'guess' else 0
if guess < 0: print('again'); sys.exit()
count = int(sys.argv[2])
told = []
NAMES = ['a', 'd', 'd/e', 'd/../a', 'link', 'link/e', 'link/new', 'to_a', 'new', 'new/x', 'd/new', 'later',
    'later/x', 'to_new', 'a/x', 'd/sub/../e',
    os.getcwd() + '/a', os.getcwd() + '/link/new', '/lib64', '/etc/passwd']
def tried(what, *args):
    try: return what(*args)
    except OSError as error: return error.errno
def contents(name):
    fd = os.open(name, os.O_RDONLY)
    try: return os.read(fd, 6) if not os.path.isdir(name) else sorted(os.listdir(fd))
    finally: os.close(fd)
def shape(found):
    if isinstance(found, int): return found
    return found.st_mode, found.st_size * (found.st_mode >> 15), found.st_nlink
def permitted(what, *args):
    # What is known not to be held is looked at: the next look may be made without a question.
    os.stat('/etc/passwd')
    return tried(what, *args)
def looks():
    for name in NAMES:
        told.append((name, shape(permitted(os.stat, name)), shape(permitted(os.lstat, name)),
            permitted(os.access, name, os.F_OK), permitted(os.access, name, os.R_OK), permitted(os.readlink, name),
            permitted(contents, name)))
def over():
    if guess: libc.syscall(0x5bed, 2, guess)
";

/// What comes to be held, one after the other.
const CHANGES: &[&str] = &[
    "os.close(os.open('new', os.O_CREAT | os.O_WRONLY, 0o644))",
    "os.write(os.open('new', os.O_WRONLY), b'fresh')",
    "os.write(os.open('a', os.O_WRONLY), b'other')",
    "os.ftruncate(os.open('a', os.O_WRONLY), 3)",
    "os.chmod('d/e', 0o755)",
    "os.close(os.open('d/new', os.O_CREAT | os.O_WRONLY, 0o600))",
    "os.unlink('new')",
    "os.mkdir('new')",
    "os.close(os.open('new/x', os.O_CREAT | os.O_WRONLY, 0o600))",
    "os.rename('d/e', 'new/e')",
    "os.symlink('new', 'later')",
    "os.link('d/new', 'd/other')",
    "os.symlink('d/new', 'to_new')",
    "os.mkdir('d/sub')",
    "os.chdir('d'); told.append((tried(os.stat, 'a') == 2, shape(tried(os.stat, 'new')))); os.chdir('..')",
    "os.unlink('new/x'); os.unlink('new/e'); os.rmdir('new')",
    "os.rmdir('d/sub'); os.unlink('a')",
    "subprocess.run(['sh', '-c', 'ls -l d | wc -l; test -e a || echo none; echo more > a; wc -l < a'], check=True)",
];

fn folder(at: &Path) {
    fs::create_dir(at).unwrap();
    fs::create_dir(at.join("d")).unwrap();
    fs::write(at.join("a"), "0123456789").unwrap();
    fs::write(at.join("d/e"), "entry").unwrap();
    std::os::unix::fs::symlink("d", at.join("link")).unwrap();
    std::os::unix::fs::symlink("a", at.join("to_a")).unwrap();
    // A second way to an entry, and a directory like the one that it is in.
    fs::create_dir(at.join("other")).unwrap();
    fs::hard_link(at.join("d/e"), at.join("other/e")).unwrap();
    fs::write(at.join("other/k"), "entry").unwrap();
    fs::write(at.join("d/k"), "entry").unwrap();
    std::os::unix::fs::symlink("other", at.join("to")).unwrap();
    std::os::unix::fs::symlink("other/e", at.join("to_e")).unwrap();
}

/// Runs a program in a folder of its own; what it printed, and how many questions there were.
fn run(words: &[&str], program: &str, kind: &str, count: u32) -> (String, u64, Vec<String>) {
    run_beside(words, program, kind, count, &|_| ())
}

/// The same, and beside it somebody outside.
fn run_beside(
    words: &[&str],
    program: &str,
    kind: &str,
    count: u32,
    outside: &(dyn Fn(&Path) + Sync),
) -> (String, u64, Vec<String>) {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = place.path().join("here");
    folder(&dir);
    let program = format!("{SETUP}{program}");
    let (said, asked) = questions_of(words, &program, (kind, count), &dir, outside);
    let mut names: Vec<String> = ["", "d"]
        .iter()
        .filter_map(|sub| fs::read_dir(dir.join(sub)).ok())
        .flatten()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    (said, asked, names)
}

#[test]
fn what_is_not_held_is_looked_at_without_a_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
os.close(os.open('new', os.O_CREAT | os.O_WRONLY, 0o644)); os.unlink('d/e'); os.chmod('to_a', 0o600)
os.write(os.open('d/new', os.O_CREAT | os.O_WRONLY, 0o644), b'x'); os.mkdir('d/sub')
for i in range(count):
    os.stat('/etc/passwd'); os.lstat('/lib64'); os.stat('/lib64'); os.access('/bin/sh', os.X_OK); tried(os.stat, 'none')
    tried(os.stat, '/usr/none/x'); os.readlink('/lib64'); tried(os.readlink, '/usr'); os.stat('/usr/lib/../bin')
    os.lstat('link')
    fd = os.open('/etc/passwd', os.O_RDONLY); os.read(fd, 10); os.fstat(fd); os.lseek(fd, 0, 1); os.close(fd)
    tried(os.open, 'nothing', os.O_RDONLY); os.listdir('/etc/init.d')
over()";
    let asked = |count| run(&[], program, "guess", count).1;
    let (some, more) = (asked(100), asked(1000));
    assert!(more <= some + 20, "{some} questions for 100 times, {more} for 1000");
}

/// Of many names in one directory the first is asked about
/// ([0245](../../../docs/decisions/0245-a-directory-is-known.md)).
#[test]
fn a_name_in_a_known_directory_is_looked_at_without_a_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
over(); os.mkdir('many'); here = os.getcwd()
for i in range(count): os.close(os.open(f'many/f{i}', os.O_CREAT | os.O_WRONLY, 0o644))
guess = libc.syscall(0x5bed, 1, 0)
os.close(os.open('many/new', os.O_CREAT | os.O_WRONLY, 0o644)); os.stat('/etc/passwd'); os.stat('many/f0')
for i in range(count):
    os.stat(f'many/f{i}'); tried(os.stat, f'many/none{i}'); os.lstat(here + f'/many/f{i}')
    fd = os.open(f'many/f{i}', os.O_RDONLY); os.read(fd, 1); os.close(fd)
over()";
    let asked = |count| run(&[], program, "guess", count).1;
    let (some, more) = (asked(40), asked(240));
    assert!(more < some + 300, "{some} questions for 40 names, {more} for 240");
}

#[test]
fn what_is_held_in_a_known_directory_is_seen_at_the_first_look() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
over(); os.mkdir('many')
for i in range(100): os.write(os.open(f'many/f{i}', os.O_CREAT | os.O_WRONLY, 0o644), b'before')
os.symlink('f7', 'many/to7'); os.symlink('f67', 'many/to67'); os.symlink('none', 'many/to_none')
guess = libc.syscall(0x5bed, 1, 0) if sys.argv[1] == 'guess' else 0
NAMES[:] = [f'many/f{i}' for i in range(50)] + ['many/to7', 'many/none', 'many', 'many/.', 'many/..', 'many/f1/', '.']
looks()
os.write(os.open('many/f60', os.O_WRONLY), b'other'); os.chmod('many/f61', 0o755); os.unlink('many/f62')
os.rename('many/f63', 'many/g63'); os.link('many/f64', 'many/h64')
os.close(os.open('many/new', os.O_CREAT | os.O_WRONLY, 0o600)); os.mkdir('many/dir'); os.symlink('f66', 'many/link')
os.unlink('many/to67'); os.symlink('f68', 'many/to67'); os.truncate('many/f69', 2)
NAMES[:] = [f'many/f{i}' for i in range(40, 100)] + ['many/to7', 'many/to67', 'many/none', 'many', 'many/.',
    'many/g63', 'many/h64', 'many/new', 'many/dir', 'many/dir/x', 'many/link', 'many/to_none', 'many/none2',
    'many/../a']
looks(); os.chdir('many'); NAMES[:] = [name.removeprefix('many/') for name in NAMES]; looks(); os.chdir('..')
over()
for line in told: print(line)";
    let expected = run(&[], program, "plain", 0).0;
    assert!(expected.contains("before") && expected.contains("other"), "{expected}");
    for words in [&["--ahead=ask"][..], &[]] {
        let said = run(words, program, "guess", 0).0;
        for (said, expected) in said.lines().zip(expected.lines()) {
            assert_eq!(said, expected, "{words:?}");
        }
        assert_eq!(said.lines().count(), expected.lines().count(), "{words:?}");
    }
}

/// What is said of a new file by its descriptor, in each way, while its names change and others have it.
const OF_DESCRIPTORS: &str = "
def of(fd):
    one = os.stat(fd); two = os.fstat(fd)
    assert shape(one) == shape(two), (one, two)
    buffer = ctypes.create_string_buffer(256)
    assert libc.syscall(332, fd, b'', 0x1000, 0x7ff, buffer) == 0
    links = int.from_bytes(buffer[16:20], 'little')
    assert links == one.st_nlink, (links, one)
    return one.st_nlink, one.st_size, oct(one.st_mode), os.stat('/etc/passwd').st_nlink
def say(what): told.append((what, [of(fd) for fd in open_files]))
open_files = [os.open(f'n{i}', os.O_CREAT | os.O_RDWR, 0o640) for i in range(3)]
say('made')
os.write(open_files[0], b'some'); say('written')
os.link('n0', 'd/n0'); say('linked')
open_files.append(os.open('d/n0', os.O_RDONLY)); say('opened by the other name')
os.rename('n0', 'moved'); say('moved')
os.unlink('moved'); say('one name less')
os.rename('n1', 'd/n0'); say('replaced')
os.fchmod(open_files[1], 0o755); say('with another mode')
os.chmod('n2', 0o711); say('with another mode, by its name')
os.unlink('n2'); say('without a name')
os.link(f'd/n0', 'again'); os.link('again', 'once_more'); say('three names')
inner = libc.syscall(0x5bed, 1, 0) if guess else -1
if inner >= 0:
    os.link('again', 'wrong'); say('on a wrong guess'); libc.syscall(0x5bed, 3, inner)
say('after that')
if not os.fork():
    os.unlink('again'); say('of a child'); print(told[-1], flush=True); os._exit(0)
os.wait(); say('after a child')
subprocess.run(['sh', '-c', 'ls -l d/n0 once_more | cut -c1-12; rm once_more; stat -c %h d/n0'], check=True)
say('at last')
open_files.append(os.open('a', os.O_RDWR)); say('an older file')
os.link('a', 'b'); say('and a name of that')
os.unlink('b'); say('and without that')
os.write(open_files[-1], b'other'); say('and what is in it')
";

#[test]
fn what_is_said_of_an_open_new_file_is_so_at_once() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = format!("{OF_DESCRIPTORS}over(); say('in the end')\nfor line in told: print(line)");
    let expected = run(&[], &program, "plain", 0).0;
    let wrong = &["--inject", "rename:50%:2,unlink:50%:2", "--seed=1"];
    for (options, kind) in [(&[][..], "guess"), (&["--ahead=ask"], "guess"), (wrong, "plain")] {
        let (said, ..) = run(options, &program, kind, 0);
        assert_eq!(said, expected, "{options:?}");
    }
}

#[test]
fn what_is_said_of_an_open_new_file_needs_no_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
fds = [os.open(f'n{i}', os.O_CREAT | os.O_RDWR, 0o640) for i in range(4)]
os.stat('/etc/passwd')
for i in range(count):
    assert [os.fstat(fd).st_nlink for fd in fds] == [1] * 4
    os.write(fds[i % 4], b'x')
over()";
    let asked = |count| run(&[], program, "guess", count).1;
    let (some, more) = (asked(10), asked(210));
    assert!(more < some + 100, "{some} questions for 40 looks and 10 writes, {more} for 840 and 210");
}

/// Names of new files and directories, and names that are not there in those, or were removed
/// ([0257](../../../docs/decisions/0257-new-files-are-found-by-their-agent.md)).
#[test]
fn what_is_new_is_found_without_a_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
os.mkdir('new'); os.mkdir('new/sub')
for name in ('one', 'new/two', 'new/sub/three', 'gone'):
    fd = os.open(name, os.O_CREAT | os.O_WRONLY, 0o640); os.write(fd, b'text'); os.close(fd)
os.unlink('gone')
here = os.getcwd()
for i in range(count):
    for name in ('one', 'new/two', 'new/sub/three', './one', here + '/new/two'):
        assert os.stat(name).st_nlink == 1 and os.lstat(name).st_size == 4 and os.access(name, os.R_OK)
        assert tried(os.readlink, name) == 22
        fd = os.open(name, os.O_RDONLY); assert os.read(fd, 9) == b'text' and os.fstat(fd).st_nlink == 1; os.close(fd)
    for name in ('gone', 'new/three', 'new/none/x', here + '/new/sub/x'):
        assert tried(os.stat, name) == tried(os.open, name, os.O_RDONLY) == tried(os.readlink, name) == 2
over()";
    let asked = |count| run(&[], program, "guess", count).1;
    let (some, more) = (asked(10), asked(100));
    assert!(more < some + 20, "{some} questions for 10 times, {more} for 100");
}

/// A new file that was opened without a question is like any other.
#[test]
fn a_new_file_that_its_agent_has_opened_is_like_any_other() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
import fcntl, mmap
def say(*what): told.append(what)
def opened(name, flags=0):
    # Known, and then opened by its agent.
    for i in range(2): permitted(os.stat, name)
    return os.open(name, os.O_RDONLY | flags)
fd = os.open('new', os.O_CREAT | os.O_RDWR, 0o640); os.write(fd, b'0123456789')
one, two, three = opened('new'), opened('new', os.O_NONBLOCK), opened('new', os.O_NOCTTY)
say(one, two, three)
for number in (one, two, three):
    os.set_inheritable(number, number == two)
    say(fcntl.fcntl(number, fcntl.F_GETFL), fcntl.fcntl(number, fcntl.F_GETFD), shape(os.fstat(number)))
    say(os.read(number, 3), os.lseek(number, 0, 1), os.pread(number, 2, 8), tried(os.write, number, b'x'))
os.pwrite(fd, b'ab', 0); say(os.pread(one, 3, 0), os.read(two, 3), os.fstat(one).st_size)
number = opened('new'); seen = mmap.mmap(number, 10, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
os.pwrite(fd, b'cd', 4); say(seen[0:2], os.pread(number, 10, 0))
child = os.fork()
if child == 0: os.read(opened('new'), 4); os._exit(os.read(one, 9) == b'3cd6789' and os.fstat(one).st_nlink)
say(os.waitpid(child, 0)[1], os.lseek(one, 0, 1))
os.link('new', 'second'); number = opened('second'); say(shape(os.fstat(number)), shape(os.stat('new')))
os.rename('second', 'd/moved'); say(tried(os.stat, 'second'), shape(os.stat('d/moved')), os.read(opened('d/moved'), 2))
os.unlink('new'); say(tried(opened, 'new'), shape(os.fstat(number)), shape(os.fstat(one)))
os.unlink('d/moved'); say(tried(os.stat, 'd/moved'), shape(os.fstat(number)), os.pread(number, 4, 0))
for number in range(3, 20): tried(os.close, number)
say(os.open('a', os.O_RDONLY)); os.close(3)
os.mkdir('folder', 0o700); os.close(os.open('folder/x', os.O_CREAT, 0o600)); say(os.open('folder/x', 0)); os.close(3)
say(shape(tried(os.stat, 'folder/x')), tried(os.stat, 'folder/y'), tried(os.open, 'folder/x/', 0))
say(tried(os.open, 'folder/x', os.O_DIRECTORY), tried(os.open, 'folder/x', os.O_NOFOLLOW))
for attempt in range(3): say(tried(os.rmdir, 'folder'), tried(os.unlink, 'folder/x'), tried(os.stat, 'folder/x'))
over()
for line in told: print(line)";
    let expected = run(&[], program, "plain", 0).0;
    for options in [&["--ahead=ask"][..], &[]] {
        let (said, ..) = run(options, program, "guess", 0);
        for (said, expected) in said.lines().zip(expected.lines()) {
            assert_eq!(said, expected, "{options:?}");
        }
        assert_eq!(said, expected, "{options:?}");
    }
    let wrong = &["--inject", "rename:50%:2,unlink:50%:2,write:30%:2", "--seed=1"];
    assert_eq!(run(wrong, program, "plain", 0).0, expected);
}

/// A guess on what another guess has made goes wrong: names mean what they meant, also to who has looked meanwhile.
#[test]
fn what_is_new_is_there_again_after_a_wrong_guess() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
for name in ('kept', 'moved'): os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644))
def seen(): return [shape(permitted(os.stat, name)) for name in ('kept', 'moved', 'made', 'there') for i in range(3)]
before = seen()
inner = libc.syscall(0x5bed, 1, 0) if guess else -1
if inner >= 0:
    os.unlink('kept'); os.rename('moved', 'there'); os.close(os.open('made', os.O_CREAT | os.O_WRONLY, 0o644))
    if seen()[::3][:3] != [2, 2, before[0]]: print('not seen')
    libc.syscall(0x5bed, 3, inner)
print(seen() == before, os.read(os.open('kept', os.O_RDONLY), 1), tried(os.open, 'made', os.O_RDONLY))
over()
print(seen() == before)";
    let (expected, _, names) = run(&[], program, "plain", 0);
    for words in [&["--ahead=ask"][..], &[]] {
        let (said, _, found) = run(words, program, "guess", 0);
        assert_eq!((said, found), (expected.clone(), names.clone()), "{words:?}");
    }
}

#[test]
fn what_comes_to_be_held_is_seen_at_once() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let changes: String = CHANGES.iter().map(|change| format!("{change}\nlooks(); looks()\n")).collect();
    let program = format!("looks(); looks()\n{changes}\nover()\nfor line in told: print(line)");
    let (expected, _, names) = run(&[], &program, "plain", 0);
    for words in [&["--ahead=ask"][..], &[]] {
        let (said, _, found) = run(words, &program, "guess", 0);
        for (said, expected) in said.lines().zip(expected.lines()) {
            assert_eq!(said, expected, "{words:?}");
        }
        assert_eq!((said.lines().count(), &found), (expected.lines().count(), &names), "{words:?}");
    }
}

#[test]
fn what_is_held_of_an_open_file_is_seen_at_once() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
files = [os.open(name, os.O_RDONLY) for name in ('a', 'd/e')]
def seen():
    for i in range(2):
        for name in ('/etc/passwd', 'to_a', 'a'): os.stat(name)
        for fd in files:
            told.append((shape(permitted(os.fstat, fd)), os.lseek(fd, i, os.SEEK_SET), os.lseek(fd, 0, os.SEEK_END)))
seen(); os.write(os.open('a', os.O_WRONLY), b'longer than before'); seen()
os.ftruncate(os.open('a', os.O_WRONLY), 3); seen(); os.chmod('d/e', 0o755); seen()
over()
for line in told: print(line)";
    let expected = run(&[], program, "plain", 0).0;
    assert_eq!(run(&[], program, "guess", 0).0, expected);
}

/// After a wrong guess names mean what they meant, also to who has looked at them on it.
#[test]
fn what_was_held_is_not_seen_any_more_after_a_wrong_guess() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let changes: String = CHANGES.iter().map(|change| format!("{change}\nlooks(); looks()\n")).collect();
    let program = format!(
        "looks()\nouter, told[:] = list(told), []\ninner = libc.syscall(0x5bed, 1, 0) if guess else -1\n\
         if inner >= 0:\n  {}\n  libc.syscall(0x5bed, 3, inner)\nlooks()\nprint(told == outer); over()\n\
         for line in told: print(line)",
        changes.replace('\n', "\n  ")
    );
    let (expected, _, names) = run(&[], &program, "plain", 0);
    for words in [&["--ahead=ask"][..], &[]] {
        let (said, _, found) = run(words, &program, "guess", 0);
        assert_eq!((said, found), (expected.clone(), names.clone()), "{words:?}");
    }
}

/// What somebody outside makes of names while a program looks at them. `prepare`: what it does before; `names`: what it
/// looks at; `outside`: what is done to names then, in the shell. Without a guess and with one it sees the same.
fn check_beside(prepare: &str, names: &str, outside: &str) {
    if !support::has_root_for("running ahead") {
        return;
    }
    // Directories rest for a while, so that their times tell of changes.
    let begin = if prepare.contains("guess") { "over()" } else { "" };
    let program = format!(
        "
import time
{begin}
NAMES[:] = {names:?}.split()
{prepare}
time.sleep(0.2)
for i in range(3): looks(); tried(os.stat, 'flag')
if tried(os.stat, 'flag') != 2: over(); print('late'); sys.exit()
told.clear()
while tried(os.stat, 'flag') == 2: pass
looks(); looks(); over()
for line in told: print(line)"
    );
    let said = |words: &[&str], kind: &str| {
        for wait in [1, 4, 16, 64] {
            let change = |dir: &Path| {
                std::thread::sleep(Duration::from_secs(wait));
                let made = Command::new("sh").args(["-ec", outside]).current_dir(dir).status();
                assert!(made.unwrap().success());
                fs::write(dir.join("flag"), "").unwrap();
            };
            let said = run_beside(words, &program, kind, 0, &change).0;
            assert_ne!(said, "again\n", "{program}: the guess is waited for");
            if said != "late\n" {
                return said;
            }
        }
        panic!("{program}: never in time");
    };
    let expected = said(&[], "plain");
    assert_eq!(said(&[], "guess"), expected, "{program}");
    assert_eq!(said(&["--ahead=ask"], "guess"), expected, "{program}");
}

#[test]
fn a_missing_name_that_somebody_outside_makes_a_link_to_what_is_held_is_seen() {
    check_beside(
        "os.close(os.open('new', os.O_CREAT | os.O_WRONLY, 0o644)); os.mkdir('dir'); os.mkdir('dir/x')",
        "gate to/x to/x/../x d/gate second second/x",
        "ln -s new gate; ln -sfn dir to; ln -s ../dir/x d/gate; ln -s dir second",
    );
}

#[test]
fn a_link_that_somebody_outside_leads_to_a_directory_with_held_names_is_seen() {
    check_beside("os.close(os.open('link/name', os.O_CREAT | os.O_WRONLY, 0o644))", "to/name to/none", "ln -sfn d to");
}

#[test]
fn a_name_that_somebody_outside_leads_to_another_file_is_compared() {
    check_beside(
        "os.write(os.open('d/k', os.O_WRONLY), b'x'); os.ftruncate(os.open('d/k', os.O_WRONLY), 3)",
        "to_a",
        "ln -sf d/k to_a",
    );
}

#[test]
fn a_directory_that_somebody_outside_replaces_is_not_taken_for_the_one_before() {
    check_beside("os.unlink('d/k'); os.symlink('held', 'd/k')", "to/k to/f", "ln -sfn d to");
}

/// What is held leads on to more on the disk: a link that is removed, a directory that is moved.
#[test]
fn what_leads_by_held_names_to_the_same_end_is_seen() {
    check_beside("os.unlink('link')", "to/e to_e", "ln -sfn link to; ln -sf link/e to_e");
    check_beside("os.rename('d', 'moved')", "to/e to_e", "ln -sfn d to; ln -sf d/e to_e");
}

/// Rights by attributes that are held.
#[test]
fn what_leads_through_a_directory_without_rights_is_not_seen() {
    check_beside(
        "
pipe = os.pipe()
child = os.fork()
if child:
    guess = libc.syscall(0x5bed, 1, 0) if sys.argv[1] == 'guess' else 0
    os.chmod('d', 0o700); os.write(pipe[1], b'x'); os.waitpid(child, 0); over(); sys.exit()
os.setuid(65534); os.read(pipe[0], 1)",
        "d/e to/e to/none",
        "ln -sfn d to",
    );
}

/// A signal that comes with the end of a look finds its thread before that is compared.
#[test]
fn a_signal_at_the_end_of_a_look_does_not_show_what_is_on_the_disk() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
import signal, time
heard = [0]
def hear(*_): heard[0] += 1
signal.signal(signal.SIGALRM, hear)
over(); signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
guess = libc.syscall(0x5bed, 1, 0) if sys.argv[1] == 'guess' else 0
os.close(os.open('new', os.O_CREAT | os.O_WRONLY, 0o644)); os.unlink('a')
missed, end = 0, time.monotonic() + 4
while time.monotonic() < end:
    os.stat('/etc/passwd')
    for i in range(15): missed += (tried(os.stat, 'new') == 2) + (tried(os.stat, 'a') != 2)
signal.setitimer(signal.ITIMER_REAL, 0)
print('missed', missed, heard[0] > 50); over()";
    assert_eq!(run(&[], program, "guess", 0).0, "missed 0 True\n");
}
