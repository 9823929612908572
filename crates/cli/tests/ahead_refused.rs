//! What a speculative process asks of files and names on a disk, and the kernel would refuse or answer in a way of its
//! own: whether it is held, answered or waited for, the process is told what it would be natively, and the world goes
//! on (decision 0288).

use crate::support;
use crate::support::can_mount;
use crate::support::places::{await_running, pause, pause_until};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// Does what each text says on a guess of its own, in a directory of its own, and tells what was seen of it and what
/// there is afterwards. Arguments: how the guesses end, what is done before each, and the texts. Where a guess was
/// wrong it is done without one.
const PROGRAM: &str = r#"
import ctypes, fcntl, os, stat, struct, sys
end, before, *bodies = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
FSTAT, GETCWD, GETDENTS, FCHOWNAT, UNLINKAT = 5, 79, 217, 260, 263
REMOVEDIR = 0x200
CREATE = os.O_CREAT | os.O_WRONLY
seen = []
buffer = ctypes.create_string_buffer(1 << 16)

def put(path, text=''):
    with open(path, 'w') as file: file.write(text)

def errno_of(call, *arguments, **named):
    try: call(*arguments, **named)
    except OSError as error: return error.errno
    return 0

def raw(*arguments):
    result = libc.syscall(*arguments)
    return result if result >= 0 else -ctypes.get_errno()

def entries(fd):
    length, at, all = raw(GETDENTS, fd, buffer, len(buffer)), 0, []
    while at < length:
        _, offset, size, kind = struct.unpack_from('=QqHB', buffer, at)
        all.append((buffer.raw[at + 19:at + size].split(b'\0')[0], kind, offset))
        at += size
    return all

def links(fd):
    return raw(FSTAT, fd, buffer), int.from_bytes(buffer.raw[16:24], 'little')

def fixed(path, flags):
    fd = os.open(path, os.O_RDONLY)
    had = struct.unpack("l", fcntl.ioctl(fd, 0x80086601, bytes(8)))[0]
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", had | flags))
    os.close(fd)

def tell(at):
    for name in sorted(os.listdir(at)):
        path = os.path.join(at, name)
        s = os.lstat(path)
        what = os.readlink(path) if stat.S_ISLNK(s.st_mode) else ''
        if stat.S_ISREG(s.st_mode) and os.access(path, os.R_OK): what = open(path).read()
        print(path, oct(s.st_mode), s.st_uid, s.st_nlink, what)
        if stat.S_ISDIR(s.st_mode): tell(path)

for number, body in enumerate(bodies):
    os.mkdir(str(number)); os.chdir(str(number)); top = os.open('.', os.O_RDONLY)
    put('file', 'text'); put('other', 'more'); os.mkdir('dir'); os.makedirs('full/sub'); put('full/x', 'old')
    os.symlink('dir', 'link'); os.symlink('file', 'to_file'); os.symlink('nowhere', 'dangling')
    seen.clear()
    exec(before)
    guess = libc.syscall(0x5bed, 1, 0, 0)
    exec(body)
    if guess >= 0: libc.syscall(0x5bed, 3 if end == 'fail' else 2, guess, 0)
    os.fchdir(top)
    print(body, seen, flush=True)
    tell('.')
    os.chdir('..')
"#;

fn has_root() -> bool {
    support::has_root_for("changing a disk on a guess")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What hangs must not hang the test.
fn limited() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "300"]).stdin(Stdio::null());
    command
}

/// Runs it, in a world or not, by way of these words.
fn run(by: &[&str], is_inside: bool, end: &str, before: &str, bodies: &[String]) -> Output {
    let dir = folder();
    let mut command = limited();
    command.args(by);
    if is_inside {
        command.args([SPECULATOR, "run"]);
    }
    command.args([&support::python(), "-c", PROGRAM, end, before]).args(bodies).current_dir(dir.path());
    let output = command.output().unwrap();
    let _ = Command::new("chattr").args(["-R", "-f", "-i", "-a"]).arg(dir.path()).output();
    output
}

/// Each text is done natively, and on guesses that are right and wrong. One that waits for itself is wrong, after a
/// while: some texts at a time.
#[track_caller]
fn check_by(by: &[&str], before: &str, bodies: &[String]) {
    const TOGETHER: usize = 4;
    std::thread::scope(|scope| {
        let pieces = bodies.chunks(TOGETHER).map(|piece| scope.spawn(|| check_piece(by, before, piece)));
        let pieces: Vec<_> = pieces.collect();
        pieces.into_iter().for_each(|piece| piece.join().expect("as natively"));
    });
}

fn check_piece(by: &[&str], before: &str, bodies: &[String]) {
    const STANDSTILL: &str = ", which nobody can resolve: it has failed";
    if !has_root() {
        return;
    }
    let said = |output: Output| {
        let errors = text(&output.stderr);
        let errors: String = errors.lines().filter(|line| !line.ends_with(STANDSTILL)).collect();
        let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        (lines, output.status.code(), errors)
    };
    let native = said(run(by, false, "", before, bodies));
    assert_eq!((native.1, native.2.as_str()), (Some(0), ""), "natively: {bodies:?}");
    for end in ["commit", "fail"] {
        let inside = said(run(by, true, end, before, bodies));
        let differs = |(inside, native): &(&String, &String)| inside != native;
        let first = inside.0.iter().zip(&native.0).find(differs);
        assert_eq!(
            (first, inside.0.len(), inside.1, inside.2),
            (None, native.0.len(), Some(0), String::new()),
            "{end}"
        );
    }
}

#[track_caller]
fn check(before: &str, bodies: &[String]) {
    check_by(&[], before, bodies);
}

/// One text for each argument of a call that changes something, or opens it: whether it fails, and how.
fn each(call: &str, arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|arguments| format!("seen.append(errno_of({call}, {arguments}))")).collect()
}

#[test]
fn writes_that_no_file_can_take_are_refused() {
    check("f = os.open('file', os.O_RDWR | os.O_DIRECT)", &each("os.write", &["f, b'x'"]));
    for flag in ["os.O_RDWR", "os.O_RDWR | os.O_APPEND"] {
        let before = format!("f = os.open('file', {flag})");
        check(&before, &each("os.pwrite", &["f, b'x', -1", "f, b'x', -1 << 40"]));
    }
    let before = "f = os.open('file', os.O_RDWR)";
    check(before, &each("os.pwrite", &["f, b'x', 1 << 60", "f, b'x', (1 << 63) - 1"]));
    let before = format!("{before}; os.lseek(f, (1 << 44) - 4096, 0)");
    check(&before, &each("os.write", &["f, b'x'"]));
}

#[test]
fn files_that_get_no_further_name_get_none() {
    let links = each("os.link", &["'file', 'new'", "'other', 'new'"]);
    for flag in ["0x10", "0x20"] {
        check(&format!("fixed('file', {flag})"), &links);
    }
    for link in links {
        let before = "os.chown('.', 1000, 1000); os.chown('other', 1000, 1000); os.setresuid(1000, 1000, 1000)";
        check(before, &[link]);
    }
}

/// Of what is mounted: a file is a mount itself, and a mount where no program is run.
#[test]
fn what_mounts_say_is_heeded() {
    if !can_mount() {
        return;
    }
    let by = |script| ["unshare", "-m", "sh", "-c", script, "sh"];
    let mounts_file = by(r#"touch from bound; mount --bind from bound; exec "$@""#);
    check_by(&mounts_file, "", &each("os.link", &["'../bound', 'new'", "'../from', 'new'"]));
    let runs_nothing = by(r#"mount --bind . .; mount -o remount,bind,noexec .; cd "$PWD"; exec "$@""#);
    let moved = |name: &str| format!("os.rename('{name}', 'there'); seen.append(os.access('there', os.X_OK))");
    check_by(&runs_nothing, "os.chmod('file', 0o755)", &[moved("file"), moved("dir"), moved("other")]);
}

/// What is removed, made or given a name by a name with something like a slash behind it.
#[test]
fn a_slash_behind_a_name_is_a_directorys() {
    let held = "put('held'); os.mkdir('made'); os.rename('link', 'moved'); ";
    let mut all = each("os.rmdir", &["'link/'", "'file/'", "'dir/./'", "'none/'", "'dir//'"]);
    all.extend(each("os.unlink", &["'file/'", "'link/'"]));
    all.extend(each("os.mkdir", &["'dangling/'", "'file/'", "'link/'", "'new/./'", "'dir/.'", "'new//'"]));
    all.extend(each("os.link", &["'file/', 'new'", "'file', 'new/'"]));
    all.extend(each("os.rename", &["'file/', 'new'", "'file', 'new/'"]));
    all.extend(each("os.symlink, 'x'", &["'file/'"]));
    for (call, name) in [("os.mkdir", "held/"), ("os.mkdir", "moved/"), ("os.rmdir", "moved/"), ("os.rmdir", "made/")] {
        all.push(format!("{held}seen.append(errno_of({call}, '{name}'))"));
    }
    for (name, flags) in [("file/", "0"), ("link/", "0"), ("moved/", "0"), ("link/", "REMOVEDIR"), ("made/", "0")] {
        all.push(format!("{held}seen.append(raw(UNLINKAT, -100, b'{name}', {flags}))"));
    }
    all.push("os.mkdir('d'); os.rename('d/', 'e/'); os.rename('e', 'f/'); os.mkdir('f/g/'); os.rmdir('f/g/')".into());
    check("", &all);
}

/// What is opened, or has its attributes changed, by such a name.
#[test]
fn a_slash_behind_a_name_leads_to_no_file() {
    let held = "put('held'); os.mkdir('made'); ";
    let mut all = each("os.chmod", &["'file/', 0o600", "'dir/', 0o700", "'to_file/', 0o600"]);
    all.extend(each("os.lchown", &["'file/', 5, 6", "'link/', 5, 6"]));
    all.extend(each("os.utime", &["'file/', (5, 6)", "'file/.', (5, 6)"]));
    all.extend(each("os.open", &["'file/', CREATE", "'none/', CREATE", "'file/.', CREATE", "'file/', os.O_WRONLY"]));
    for (name, flags) in [("held/", "CREATE"), ("made/", "CREATE | os.O_EXCL"), ("held/", "os.O_RDONLY")] {
        all.push(format!("{held}seen.append(errno_of(os.open, '{name}', {flags}))"));
    }
    all.push(format!("{held}seen.append(errno_of(os.chmod, 'held/', 0o600))"));
    for name in [".", "./"] {
        all.push(format!("f = os.open('file', os.O_RDONLY); seen.append(raw(FCHOWNAT, f, b'{name}', 5, 6, 0))"));
    }
    check("", &all);
}

#[test]
fn a_directory_without_a_name_is_nowhere() {
    let mut all = Vec::new();
    for dir in ["dir", "new"] {
        let makes = if dir == "new" { "os.mkdir('new'); " } else { "" };
        let removed = format!("{makes}f = os.open('{dir}', os.O_RDONLY); os.chdir('{dir}'); os.rmdir('../{dir}'); ");
        all.extend(
            ["raw(GETCWD, buffer, 4096)", "links(f)", "raw(GETDENTS, f, buffer, 4096)"]
                .map(|see| format!("{removed}seen.append({see})")),
        );
        all.push(format!("{removed}seen.append(os.path.basename(os.readlink('/proc/self/cwd')))"));
    }
    all.push("os.chdir('dir'); os.rename('../full/sub', '../dir'); seen.append(raw(GETCWD, buffer, 4096))".into());
    check("", &all);
}

#[test]
fn an_entry_tells_what_its_file_is() {
    let changes = [
        "os.unlink('file'); os.mkdir('file'); os.unlink('link'); put('link')",
        "os.rmdir('dir'); os.rename('to_file', 'dir'); os.rename('full', 'to_file')",
    ];
    let see = "seen.append(sorted(entry[:2] for entry in entries(os.open('.', os.O_RDONLY))))";
    check("", &changes.map(|change| format!("{change}; {see}")));
}

#[test]
fn the_link_of_a_descriptor_tells_the_name_of_its_file() {
    let see = "seen.append(os.path.basename(os.readlink('/proc/self/fd/%d' % f)))";
    let changes =
        ["os.rename('file', 'moved')", "os.unlink('file')", "os.rename('other', 'file')", "os.unlink('other')"];
    check("f = os.open('file', os.O_RDONLY)", &changes.map(|change| format!("{change}; {see}")));
    let changes = ["pass", "os.rename('new', 'newer')", "os.unlink('new')"];
    check("", &changes.map(|change| format!("f = os.open('new', CREATE); {change}; {see}")));
}

/// Who goes back to a place in a directory finds behind it what was added to it.
#[test]
fn a_place_in_a_directory_is_gone_back_to() {
    let read = "put('new'); os.unlink('file'); f = os.open('.', os.O_RDONLY); all = entries(f); \
                seen.append(sorted(entry[0] for entry in all)); seen.append(entries(f)); os.lseek(f, ";
    let see = ", 0); seen.append(sorted(entry[0] for entry in entries(f))); seen.append(entries(f))";
    check("", &["0", "all[1][2]", "all[0][2]"].map(|place| format!("{read}{place}{see}")));
}

/// What somebody outside does keeps a change that is held from being made: that is told, and the program goes on.
#[test]
fn somebody_outside_who_fixes_a_file_ends_no_world() {
    if !has_root() {
        return;
    }
    let held = "rm file; mkdir -p there; mv full empty/full";
    let outside = |dir: &Path| {
        assert!(Command::new("chattr").arg("+i").arg(dir.join("file")).status().unwrap().success());
        fs::rename(dir.join("empty"), dir.join("full/empty")).unwrap();
    };
    let (dir, other) = (folder(), folder());
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("full")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "").unwrap();
    let (pause, go) = (pause("0.02"), other.path().join("go"));
    let wait = pause_until(&pause, &go);
    let script = format!("id=$($S begin); [ $id = failed ] && exit 7; {held}\n{wait}; $S commit $id; echo alive");
    let mut command = limited();
    command.args([SPECULATOR, "run", "bash", "-c", &script]).env("S", SPECULATOR).current_dir(dir.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    await_running(&pause);
    outside(dir.path());
    fs::write(&go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(Command::new("chattr").arg("-i").arg(at("file")).status().unwrap().success());
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), out.as_str()), (Some(0), "alive\n"), "{errors}");
    assert_eq!(errors.matches("somebody outside came first").count(), 2, "{errors}");
    assert!(at("file").exists() && at("full/empty").exists() && at("there").is_dir());
}

/// The kernel refuses these for their arguments, or does nothing.
#[test]
fn what_does_nothing_does_not_wait() {
    if !has_root() {
        return;
    }
    let program = r#"
#define RESULT(call) ({ errno = 0; long result = (call); result < 0 ? -errno : result; })
#define SHOW(call) ({ char line[99]; snprintf(line, 99, #call " %ld\n", RESULT(call)); say(line); })
int main(int argc, char **argv) {
    int ends[2]; char byte;
    write_file("file", "text"); OK(link("file", "other")); OK(mkdir("dir", 0700)); OK(symlink("dir", "to"));
    int fd = OK(open("file", O_RDWR)); OK(pipe(ends));
    long id = begin();
    EQUAL(write(fd, "more", 4), 4);
    SHOW(rename("file", "other")); SHOW(unlink("file/")); SHOW(unlink("dir/")); SHOW(unlink("to/"));
    SHOW(unlink("none/"));
    SHOW(ftruncate(fd, -1)); SHOW(ftruncate(ends[1], 0)); SHOW(fsync(ends[1]));
    SHOW(pread(fd, &byte, 1, -1)); SHOW(pwrite(fd, "x", 1, -1)); SHOW(lseek(fd, 0, 99));
    if (id >= 0) finish(id, argv[1]);
    return 0;
}"#;
    let said = "rename(\"file\", \"other\") 0\nunlink(\"file/\") -20\nunlink(\"dir/\") -21\n\
        unlink(\"to/\") -20\nunlink(\"none/\") -2\nftruncate(fd, -1) -22\nftruncate(ends[1], 0) -22\n\
        fsync(ends[1]) -22\npread(fd, &byte, 1, -1) -22\npwrite(fd, \"x\", 1, -1) -22\nlseek(fd, 0, 99) -22\n";
    let never = ["rename", "unlink", "ftruncate", "fsync", "pread64", "pwrite64", "lseek"];
    support::guess::check_both_ends("nothing", program, said, said, &never);
}
