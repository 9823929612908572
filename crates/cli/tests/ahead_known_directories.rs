//! What is said of directories of which something is held needs no question (decisions/0262), nor do the next calls on
//! a new file that was just opened (decisions/0261); and what they say is right.

use crate::support;
use crate::support::guess::questions_of;

use std::fs;
use std::path::Path;
use std::time::Duration;

/// What each program begins with.
const SETUP: &str = "
import ctypes, os, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
guess = libc.syscall(0x5bed, 1, 0) if sys.argv[1] == 'guess' else 0
if guess < 0: print('again'); sys.exit()
count = int(sys.argv[2])
here = os.getcwd()
told = []
def tried(what, *args):
    try: return what(*args)
    except OSError as error: return error.errno
def made(name, text=b'text'):
    fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o640); os.write(fd, text); os.close(fd)
def over():
    if guess: libc.syscall(0x5bed, 2, guess)
";

/// Runs a program in a folder with a directory `old`, and beside it somebody outside; what it printed, and how many
/// questions there were.
fn run(words: &[&str], program: &str, kind: &str, count: u32, outside: &(dyn Fn(&Path) + Sync)) -> (String, u64) {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = place.path().join("here");
    fs::create_dir_all(dir.join("old/below")).unwrap();
    fs::write(dir.join("old/file"), "0123456789").unwrap();
    let program = format!("{SETUP}{program}");
    questions_of(words, &program, (kind, count), &dir, outside)
}

/// The program says the same natively, in a guess in each way, and under wrong ones.
fn is_as_natively(program: &str, wrong: &str) {
    let said = |words: &[&str], kind: &str| run(words, program, kind, 0, &|_| ()).0;
    let expected = said(&[], "plain");
    for words in [&["--ahead=ask"][..], &[]] {
        let said = said(words, "guess");
        for (said, expected) in said.lines().zip(expected.lines()) {
            assert_eq!(said, expected, "{words:?}");
        }
        assert_eq!(said, expected, "{words:?}");
    }
    assert_eq!(said(&["--inject", wrong, "--seed=1"], "plain"), expected);
}

#[test]
fn what_is_said_of_a_directory_needs_no_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
os.mkdir('new'); os.mkdir('new/below')
for name in ('x', 'old/x', 'new/x', 'new/below/x'): made(name)
os.chmod('new/below', 0o711)
fds = [os.open(name, os.O_RDONLY | os.O_DIRECTORY) for name in ('.', 'old', 'new')]
for i in range(count):
    for name in ('.', 'old', './old', here, here + '/old', 'new', 'new/below', here + '/new/below'):
        assert os.stat(name).st_nlink == os.lstat(name).st_nlink
    assert [os.fstat(fd).st_nlink for fd in fds] == [4, 3, 3]
over()";
    let asked = |count| run(&[], program, "guess", count, &|_| ()).1;
    let (some, more) = (asked(10), asked(100));
    assert!(more < some + 20, "{some} questions for 10 times, {more} for 100");
}

/// A name that is made or removed is one question, and what is said of its directory then is none.
#[test]
fn what_is_said_of_a_directory_is_known_again_when_its_names_have_changed() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
os.mkdir('new'); os.chdir('new'); os.stat('.'); os.stat('../old')
for i in range(count):
    made('x'); os.stat('.'); os.stat('.'); os.unlink('x'); os.stat('.'); tried(os.unlink, 'x')
over()";
    let asked = |count| run(&[], program, "guess", count, &|_| ()).1;
    let (some, more) = (asked(10), asked(110));
    assert!(more < some + 250, "{some} questions for 10 times, {more} for 110");
}

#[test]
fn what_is_said_of_a_directory_is_so_at_once() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
buffer = ctypes.create_string_buffer(256)
def extended(name):
    if libc.syscall(332, -100, name.encode(), 0, 0x7ff, buffer): return None
    number = lambda at, length: int.from_bytes(buffer[at:at + length], 'little')
    time = lambda at: number(at, 8) * 10**9 + number(at + 8, 4)
    return number(16, 4), number(20, 4), number(24, 4), number(28, 2), time(112), time(96), time(64)
before = {}
def seen(what):
    # The kernel's clock goes by ticks.
    time.sleep(0.02)
    line = [what]
    for name in ('.', here, 'old', 'old/below', 'new', 'new/below', here + '/new', 'moved', 'moved/below'):
        for i in range(2):
            os.stat('/etc/passwd'); found = tried(os.stat, name)
            if isinstance(found, int): line.append((name, found)); continue
            times = found.st_mtime_ns, found.st_ctime_ns
            more = extended(name)
            assert more[:4] == (found.st_nlink, found.st_uid, found.st_gid, found.st_mode), (more, found)
            assert more[4:] == (*times, found.st_atime_ns), (name, more, found)
            assert times == (os.lstat(name).st_mtime_ns, os.lstat(name).st_ctime_ns)
            last = before.get(name, (0, 0))
            exact = times[0] if times[0] < 10**18 else 0
            line.append((name, found.st_nlink, oct(found.st_mode), found.st_uid, found.st_gid, exact,
                [now > then for now, then in zip(times, last)]))
            before[name] = times
    told.append(line)
seen('at first')
for step in '''made('a')
made('old/a')
os.mkdir('new', 0o750)
os.mkdir('new/below'); os.mkdir('new/other')
made('new/a')
os.unlink('new/a')
os.chmod('new', 0o700)
os.chown('new', 5, 6)
os.utime('new', ns=(5 * 10**9, 7 * 10**9))
made('new/b')
os.rmdir('new/other')
os.utime('new', ns=(10**9 + 3, 2 * 10**9 + 4)); os.stat('new')
os.rename('new/b', 'old/b')
os.chmod('old/below', 0o711)
os.unlink('old/b')
os.symlink('x', 'new/below/link')
os.rename('new', 'moved')
os.link('a', 'moved/a')
os.chdir('moved'); seen('inside'); os.chdir('..')
os.unlink('moved/a'); os.unlink('moved/below/link'); os.rmdir('moved/below')
os.rmdir('moved')
subprocess.run(['sh', '-c', 'mkdir new; > new/c; rm a'], check=True)'''.splitlines():
    exec(step); seen(step)
over()
for line in told: print(line)";
    is_as_natively(program, "rename:50%:2,unlink:50%:2,mkdir:50%:2");
}

/// A name that is given or taken away changes what it is the name of.
#[test]
fn what_is_said_of_whatever_gets_or_loses_a_name_is_so_at_once() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
made('old/other'); os.link('old/other', 'old/more'); made('new'); os.symlink('new', 'link')
opened = {name: os.open(name, os.O_PATH | os.O_NOFOLLOW)
    for name in ('old', 'old/below', 'old/file', 'old/other', 'new', 'link')}
before = {}
def seen(what):
    # The kernel's clock goes by ticks.
    time.sleep(0.02)
    line = [what]
    for name, fd in opened.items():
        found = os.fstat(fd)
        times = found.st_mtime_ns, found.st_ctime_ns
        line.append((name, found.st_nlink, [now > then for now, then in zip(times, before.get(name, times))]))
        before[name] = times
        for at in ['old', *[f'{there}/{name}' for there in ('.', 'old') if there != 'old' or os.path.exists('old')
                for name in os.listdir(there)]]:
            other = tried(os.lstat, at)
            if not isinstance(other, int) and os.path.samestat(other, found):
                assert (other.st_mtime_ns, other.st_ctime_ns) == times, (what, at)
    told.append(line)
seen('at first')
for step in '''os.link('old/file', 'second')
os.link('new', 'third')
os.rename('second', 'fourth')
os.rename('old/file', 'old/more')
os.unlink('fourth')
os.rename('old/below', 'below')
os.rename('below', 'old/below')
os.rename('link', 'old/link')
os.unlink('old/link')
os.chmod('new', 0o600)
os.rename('new', 'old/new')
os.utime('old/new', ns=(5, 5))
os.unlink('third')
os.unlink('old/other')
os.rename('old', 'older')'''.splitlines():
    exec(step); seen(step)
over()
for line in told: print(line)";
    is_as_natively(program, "rename:50%:2,unlink:50%:2,mkdir:50%:2");
}

#[test]
fn what_somebody_outside_does_in_a_directory_is_seen_beside_what_is_held() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
made('old/x'); os.mkdir('old/dir')
links, before = os.stat('old').st_nlink, os.stat('old').st_mtime_ns
end = time.time() + 60
while os.stat('old').st_nlink == links and time.time() < end: pass
after = os.stat('old')
print(after.st_nlink - links, after.st_mtime_ns > before)
over()";
    let outside = |dir: &Path| {
        std::thread::sleep(Duration::from_secs(3));
        fs::create_dir(dir.join("old/outside")).unwrap();
    };
    assert_eq!(run(&[], program, "guess", 0, &outside).0, "1 True\n");
}

#[test]
fn after_a_wrong_guess_a_directory_is_as_it_was() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
made('a'); made('old/a'); os.mkdir('new'); made('new/a'); os.chmod('new', 0o711)
def of(found): return found.st_nlink, found.st_mode, found.st_mtime_ns, found.st_ctime_ns
def seen(): return [of(os.stat(name)) for name in ('.', 'old', 'new', here + '/new') for i in range(3)]
before = seen()
inner = libc.syscall(0x5bed, 1, 0) if guess else -1
if inner >= 0:
    time.sleep(0.02)
    os.mkdir('more'); os.mkdir('old/more'); os.mkdir('new/more'); os.unlink('new/a'); os.chmod('new', 0o700)
    if any(now == then for now, then in zip(seen(), before)): print('not seen')
    libc.syscall(0x5bed, 3, inner)
print(seen() == before)
inner = libc.syscall(0x5bed, 1, 0) if guess else -1
if inner >= 0:
    os.chmod('new', 0o700)
    if [mode & 0o777 for _, mode, *_ in seen()[6:]] != [0o700] * 6: print('mode not seen')
    libc.syscall(0x5bed, 3, inner)
print(seen() == before)
over()";
    is_as_natively(program, "unlink:50%:2,mkdir:50%:2");
}

#[test]
fn a_new_file_is_written_read_and_closed_without_a_question() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
os.stat('/etc/passwd')
for i in range(count):
    fd = os.open(f'n{i}', os.O_CREAT | os.O_RDWR, 0o640)
    os.write(fd, b'some'); os.pwrite(fd, b'more', 4); os.lseek(fd, 2, 0); assert os.read(fd, 9) == b'memore'
    assert os.fstat(fd).st_size == 8
    os.close(fd)
over()";
    let asked = |count| run(&[], program, "guess", count, &|_| ()).1;
    let (some, more) = (asked(10), asked(110));
    assert!(more < some + 130, "{some} questions for 10 files, {more} for 110");
}

/// A descriptor of which nobody was asked since it was opened is like any other.
#[test]
fn what_is_written_without_a_question_goes_with_the_guess() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
def opened(name, flags): return os.open(name, os.O_CREAT | flags, 0o640)
def whole(name):
    with open(name, 'rb') as file: return file.read()
fds = [opened('one', os.O_RDWR), opened('two', os.O_WRONLY | os.O_APPEND), opened('three', os.O_RDONLY)]; made('kept')
for fd in fds: told.append((tried(os.write, fd, b'first'), tried(os.read, fd, 3), os.lseek(fd, 0, 1)))
inner = libc.syscall(0x5bed, 1, 0) if guess else -1
if inner >= 0:
    for fd in fds[:2]: os.write(fd, b'wrong'); os.lseek(fd, 1, 0)
    fd = opened('inner', os.O_RDWR); os.write(fd, b'inner'); os.lseek(fd, 0, 0)
    if os.read(fd, 9) != b'inner' or whole('one') != b'firstwrong': print('not seen')
    os.stat('/etc/passwd'); fd = os.open('kept', os.O_WRONLY); os.write(fd, b'over'); os.write(fd, b'written')
    libc.syscall(0x5bed, 3, inner)
told.append([os.lseek(fd, 0, 1) for fd in fds] + [whole('one'), whole('two'), whole('kept'), tried(os.stat, 'inner')])
if not os.fork():
    for fd in fds[:2]: os.write(fd, b'child')
    os._exit(0)
os.wait(); told.append([os.lseek(fd, 0, 1) for fd in fds] + [whole('one'), whole('two')])
copy = os.dup(fds[0]); os.write(copy, b'copy'); os.close(fds[0]); told.append((opened('four', os.O_RDWR), fds[0]))
os.write(fds[0], b'four'); os.write(copy, b'end'); told.append((whole('one'), whole('four'), os.read(copy, 1)))
big = opened('big', os.O_RDWR)
for i in range(40): os.write(big, bytes([i]) * 300_000)
os.lseek(big, 0, 0); told.append((os.fstat(big).st_size, sum(os.read(big, 20_000_000)) % 1000))
fd = os.open('one', os.O_WRONLY | os.O_TRUNC); os.write(fd, b'x'); told.append((whole('one'), os.lseek(copy, 0, 1)))
subprocess.run(['sh', '-c', 'cat >> two; wc -c two one', 'sh'], input=b'more', check=True)
over()
told.append((whole('two'), whole('one'), sorted(os.listdir('.'))))
for line in told: print(line)";
    is_as_natively(program, "rename:50%:2,unlink:50%:2,open:20%:2");
}

#[test]
fn a_name_that_is_removed_or_not_there_is_told_at_once() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
os.mkdir('new')
os.symlink('nothing', 'dangling'); os.symlink('new', 'link'); made('a')
for round in range(3):
    for name in ('none', 'a', 'dangling', 'link', 'new', 'new/x', '', 'old/none', 'x' * 300):
        told.append((round, name[:9], tried(os.unlink, name), tried(os.lstat, name) == 2))
    made('new/x'); os.chdir('new')
    told.append([tried(os.unlink, name) for name in ('x', 'x', 'a', '../none', '../a')]); os.chdir('..')
    made('a') if round == 0 else os.rename('new', 'a') if round == 1 else None
    if round == 1: os.mkdir('new')
over()
for line in told: print(line)";
    is_as_natively(program, "unlink:50%:2,mkdir:50%:2");
}

/// Who comes back to a place in a directory, or to its beginning, reads from there what is on the disk and what is
/// held (decisions/0298).
#[test]
fn who_comes_back_to_a_place_in_a_directory_reads_on_from_there() {
    if !support::has_root_for("running ahead") {
        return;
    }
    let program = "
class Entry(ctypes.Structure):
    _fields_ = [('ino', ctypes.c_uint64), ('next', ctypes.c_int64), ('length', ctypes.c_uint16), \
                ('kind', ctypes.c_uint8), ('name', ctypes.c_char * 256)]
libc.opendir.restype = ctypes.c_void_p; libc.readdir.restype = ctypes.POINTER(Entry)
libc.telldir.restype = ctypes.c_long; libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
for call in (libc.readdir, libc.telldir, libc.rewinddir, libc.closedir): call.argtypes = [ctypes.c_void_p]
def rest(dir):
    names = []
    while entry := libc.readdir(dir): names.append(entry.contents.name.decode())
    return names
def look(name):
    dir = libc.opendir(name.encode()); places = []; names = []
    while True:
        places.append(libc.telldir(dir))
        entry = libc.readdir(dir)
        if not entry: break
        names.append(entry.contents.name.decode())
    for i in reversed(range(len(places))):
        libc.seekdir(dir, places[i]); left = rest(dir)
        told.append(left == names[i:] or (i, left, names))
        libc.seekdir(dir, places[i]); entry = libc.readdir(dir)
        told.append(not entry or entry.contents.name.decode() == names[i])
    libc.rewinddir(dir); told.append(sorted(rest(dir)))
    made(name + '/late'); libc.rewinddir(dir); told.append(sorted(rest(dir)))
    os.unlink(name + '/late'); os.unlink(name + '/b'); libc.seekdir(dir, places[2])
    told.append(sorted(set(rest(dir)) - set(names)))
    libc.rewinddir(dir); told.append(sorted(rest(dir)))
    libc.closedir(dir)
    fd = os.open(name, os.O_RDONLY); told.append([sorted(os.listdir(fd)) for i in range(3)])
    os.lseek(fd, 0, 0); told.append(sorted(os.listdir(fd))); os.close(fd)
os.mkdir('new')
for name in ('new', 'old', '.'):
    for file in 'abc': made(name + '/' + file)
    os.mkdir(name + '/below'+ 'd'); os.symlink('x', name + '/link')
    look(name)
over()
for line in told: print(line)";
    is_as_natively(program, "rename:50%:2,unlink:50%:2,mkdir:50%:2");
}
