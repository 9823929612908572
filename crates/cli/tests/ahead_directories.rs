//! Directories and links that a speculative process makes, moves and removes on a disk
//! (000, 6.4; decision 0120): whoever made one works in it as natively, nobody outside sees any of it before the guess
//! is right, and nothing is left if it was wrong.

use crate::ahead_new_files::heard;
use crate::support;
use crate::support::guess::staged;
use crate::support::places::{await_running, pause, pause_until};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_new_files/make.py");
const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// None of these waits.
const CHANGES: &[&str] = &[
    // Made, and looked at in every way.
    "os.mkdir('d'); see('d'); see('.'); seen.append(os.listdir('d')); seen.append(sorted(os.listdir('.')))",
    "os.mkdir('d', 0o700); os.mkdir('d/e'); os.mkdir('d/e/f'); see('d'); see('d/e'); see('d/e/..'); \
     seen.append(os.listdir('d'))",
    "os.makedirs('d/e/f'); put('d/e/f/x', 'text'); seen.append(open('d/e/f/x').read()); see('d/e/f/x'); \
     see('d/e/f/../f/x')",
    "os.umask(0o027); os.mkdir('shared/d'); see('shared/d'); os.mkdir('shared/d/e', 0o777); see('shared/d/e'); \
     put('shared/d/x', ''); see('shared/d/x')",
    "os.mkdir('d'); seen.extend(errno_of(os.mkdir, n) for n in ('d', 'd/', 'd/e/f', 'a/b', '.')); \
     seen.append(errno_of(os.rmdir, 'none'))",
    "os.mkdir('d'); seen.extend([os.path.isdir('d'), os.path.isdir('d/'), os.access('d', os.X_OK), \
     os.path.exists('d/x'), errno_of(os.stat, 'd/x/y')])",
    "os.mkdir('d'); here = os.getcwd(); os.chdir('d'); seen.append(os.getcwd()[len(here):]); see('.'); see('..'); \
     put('x', '1'); see('x'); see('../a'); seen.append(sorted(os.listdir('..')))",
    "here = os.getcwd(); os.makedirs('d/e'); os.chdir('d/e'); os.mkdir('f'); os.chdir('f'); \
     seen.append(os.getcwd()[len(here):]); put('../../x', '2'); os.chdir('../..'); \
     seen.append((os.getcwd()[len(here):], sorted(os.listdir('.'))))",
    "os.mkdir('d'); put(os.path.abspath('d/x'), 'abs'); seen.append(open(os.getcwd() + '/d/../d/x').read()); \
     seen.append(os.path.realpath('d/x') == os.getcwd() + '/d/x')",
    "os.mkdir('d'); f = os.open('d', os.O_RDONLY | os.O_DIRECTORY); see(f); \
     g = os.open('x', CREATE | os.O_RDWR, dir_fd=f); os.write(g, b'1'); see(f); os.mkdir('e', dir_fd=f); see(f); \
     seen.append(sorted(os.listdir(f))); os.close(g); os.close(f)",
    "os.mkdir('d'); seen.extend(errno_of(os.open, 'd', n) for n in (os.O_WRONLY, os.O_RDWR, os.O_CREAT | \
     os.O_WRONLY, CREATE)); seen.append(errno_of(os.open, 'a', os.O_DIRECTORY)); f = os.open('d', os.O_PATH); \
     see(f); os.close(f)",
    "os.mkdir('d')\nfor i in range(40): put('d/f%d' % i, 'x' * i)\nseen.append(sorted((e.name, e.is_file(), \
     e.inode() == os.stat(e.path).st_ino) for e in os.scandir('d')))",
    "os.mkdir('d'); ino = os.stat('d').st_ino; up = os.stat('.').st_ino; \
     seen.append((os.stat('d').st_ino == ino, os.stat('d/..').st_ino == up, os.stat('d').st_dev == \
     os.stat('.').st_dev))",
    "import shutil; os.mkdir('t'); put('t/x', '1'); os.mkdir('t/u'); put('t/u/y', '2'); shutil.copytree('t', 'v'); \
     seen.append(sorted(os.walk('v')))",
    "os.mkdir('d')\nif os.fork() == 0:\n  os.chdir('d'); put('x', 'child'); os.mkdir('e'); \
     os._exit(len(os.listdir('.')))\nseen.append(os.wait()[1] >> 8); seen.append(open('d/x').read()); see('d')",
    "os.mkdir('d')\nif os.fork() == 0: os.chdir('d'); os.execlp('sh', 'sh', '-c', 'echo hi > x; mkdir -p p/q; \
     cp ../a p/q; cd p/q && ls; cat a; pwd | sed s,.*/d,,')\nos.wait(); seen.append(open('d/x').read())",
    "os.system('mkdir -p x/y/z && cp -r x w && ls -lR w | grep -c ^d && touch w/y/f && find w | sort && mv w v && \
     find v | sort')",
    // Of several reasons for which a call fails the kernel tells the first one.
    "os.makedirs('d/e/f'); put('d/x', '1'); seen.extend(errno_of(os.rename, *n) for n in (('d', 'd/e'), \
     ('d', 'd/e/f'), ('d/x', 'd'), ('d/e', 'd'), ('d/e/f', 'd/x'), ('d/x', 'd/e'), \
     ('d', 'd/x/y'), ('none', 'd/x/y'), ('none', 'd')))",
    "os.mkdir('d'); put('d/x', '1'); seen.extend(errno_of(os.link, *n) for n in (('none', 'd/x/y'), ('none', 'd/x'), \
     ('d/x', 'd/x/y'), ('d/x', 'none/y'), ('d/x', 'd'), ('d/x', 'd/x')))",
    "os.mkdir('d'); put('d/x', '1'); put('/dev/shm/%d' % os.getpid(), '2'); far = ('/dev/shm/none', \
     '/dev/shm/%d' % os.getpid())\nfor n in [('d/x', to) for to in far] + [(name, 'd/x') for name in far] + \
     [('d', far[1]), ('none', far[1])]:\n  seen.append((errno_of(os.rename, *n), errno_of(os.link, *n)))\n\
     os.unlink(far[1])",
    // Attributes.
    "os.mkdir('d'); os.chmod('d', 0o711); see('d'); os.chown('d', 5, 6); see('d'); \
     os.utime('d', ns=(10 ** 18, 10 ** 18)); seen.append(os.stat('d').st_mtime_ns); put('d/x', ''); \
     seen.append(os.stat('d').st_mtime_ns > 10 ** 18)",
    "os.mkdir('d'); f = os.open('d', os.O_RDONLY); os.fchmod(f, 0o755); os.utime(f, ns=(5, 6)); \
     seen.append(os.fstat(f).st_mtime_ns); os.close(f); see('d')",
    "os.mkdir('d'); put('d/x', '1'); os.utime('d', ns=(7, 8)); os.utime('d/x', ns=(7, 8)); \
     seen.append((os.stat('d').st_mtime_ns, os.stat('d/x').st_mtime_ns))",
    // Attributes as cp and tar set them: by the name of a descriptor, by an access list, of a link.
    "os.mkdir('d', 0o700); f = os.open('d', os.O_PATH); os.chmod('/proc/self/fd/%d' % f, 0o751); see(f); \
     os.close(f); see('d'); put('d/x', ''); f = os.open('d/x', os.O_PATH); os.chmod('/proc/self/fd/%d' % f, 0o604); \
     os.close(f); see('d/x')",
    "acl = lambda *bits: bytes([2, 0, 0, 0]) + b''.join(bytes([t, 0, b, 0]) + b'\\xff' * 4 for t, b in zip((1, 4, \
     32), bits)); os.mkdir('d', 0o1700); put('d/x', '')\nfor n in ('d', 'd/x', 'full', 'a', \
     'full/x'):\n  os.chmod(n, 0o4700); os.setxattr(n, 'system.posix_acl_access', acl(7, 5, 1)); \
     see(n)\n  if os.path.isdir(n): os.removexattr(n, 'system.posix_acl_default'); see(n)",
    "os.symlink('a', 'l')\nfor n in ('l', 'link'):\n  os.lchown(n, 5, 6); \
     os.utime(n, ns=(7, 8), follow_symlinks=False); s = os.lstat(n); \
     seen.append((s.st_uid, s.st_gid, s.st_mtime_ns, s.st_atime_ns, s.st_nlink))",
    "os.mkdir('d'); f = os.open('d', os.O_PATH); \
     g = os.open('link', os.O_PATH | os.O_NOFOLLOW)\nfor n in (f, g): libc.fchownat(n, b'', 8, 9, 0x1000); see(n); \
     os.close(n)",
    "os.system('cp -a link empty; cp -a full copy; stat -c \"%n %A %h\" full/x copy/x copy/sub empty/link; mkdir x; \
     tar cf - full link | tar xf - -C x; find x | sort | xargs stat -c \"%n %A %h\"'); \
     seen.extend(os.lstat(n).st_mtime_ns == os.lstat('full' + n[4:]).st_mtime_ns for n in ('copy', 'copy/x', \
     'copy/sub'))",
    // Attributes of what was there, while names in it or others of it are held.
    "put('full/y', '1'); os.chmod('full', 0o711); see('full'); os.chown('full', 5, 6); see('full'); \
     os.utime('full', ns=(10 ** 18, 10 ** 18)); seen.append(os.stat('full').st_mtime_ns); os.unlink('full/x'); \
     seen.append(os.stat('full').st_mtime_ns > 10 ** 18)",
    "put('full/y', '1'); os.utime('full', ns=(10 ** 18, 10 ** 18)); os.chdir('full'); os.unlink('x'); \
     os.chmod('.', 0o700); see('.'); os.utime('.', ns=(7, 8)); seen.append(os.stat('.').st_mtime_ns); os.chdir('..')",
    "os.mkdir('d'); os.chdir('d'); os.chmod('.', 0o711); put('x', ''); os.chown('.', 5, 6); see('.'); \
     os.utime('.', ns=(7, 8)); seen.append(os.stat('.').st_mtime_ns); os.chdir('..'); see('d')",
    "os.link('full/x', 'y'); os.chmod('full/x', 0o600); os.chown('y', 5, 6); see('full/x'); see('y'); \
     os.utime('full/x', ns=(7, 8)); seen.append(os.stat('y').st_mtime_ns)",
    // As `cp -l` and `touch` do it: a link is followed, if it is one; a directory is opened to be written to.
    "seen.extend(libc.linkat(-100, old, -100, new, 0x400) for old, new in ((b'full/x', b'y'), (b'full/x', b'y'), \
     (b'none', b'z'), (b'y', b'z'))); see('y'); see('z'); os.unlink('full/x'); see('z')",
    "os.mkdir('d'); seen.extend(errno_of(os.open, n, f) for n in ('.', 'd', 'd/.', 'full', 'full/', 'full/sub/..') \
     for f in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_TRUNC)); see('full')",
    "os.mkdir('d'); os.system('touch d full d/. full/sub/. && cd full && touch . && cp -al sub ../d && \
     tar cf - . | tar xf - -C ../d; cat ../d/x; cp -l x y; find .. | sort'); see('full'); see('d')",
    // More than the kernel tells in one piece.
    "here, z = os.getcwd(), 'z' * 31\nfor i in range(150): os.mkdir(z); os.chdir(z)\n\
     seen.append(len(os.getcwd()) - len(here))\nfor i in range(150): os.chdir('..'); os.rmdir(z)",
    // What a process asks about itself while a directory is not where the disk says.
    "os.mkdir('d'); seen.append(os.readlink('/proc/self/exe')); seen.append(len(os.listdir('/proc/self/fd'))); \
     seen.append('stack' in open('/proc/self/maps').read())",
    // Removed.
    "os.mkdir('d'); os.rmdir('d'); seen.append(os.path.exists('d')); see('.'); os.mkdir('d'); see('d')",
    "os.makedirs('d/e'); put('d/e/x', ''); seen.extend(errno_of(f, n) for f, n in ((os.rmdir, 'd'), (os.rmdir, \
     'd/e'), (os.unlink, 'd/e'), (os.rmdir, 'd/e/x'))); os.unlink('d/e/x'); os.rmdir('d/e'); os.rmdir('d'); see('.')",
    "os.rmdir('empty'); see('.'); seen.extend([os.path.exists('empty'), errno_of(os.rmdir, 'empty'), \
     errno_of(os.rmdir, 'shared/'), sorted(os.listdir('.'))])",
    "os.rmdir('empty'); put('empty', 'a file now'); see('empty'); seen.append(open('empty').read())",
    "os.unlink('full/x'); os.rmdir('full/sub'); os.rmdir('full'); see('.'); seen.append(sorted(os.listdir('.')))",
    "import shutil; shutil.rmtree('full'); seen.append(os.path.exists('full')); os.makedirs('full/sub'); \
     put('full/sub/x', 'new'); see('full')",
    "put('empty/x', ''); seen.append(errno_of(os.rmdir, 'empty')); os.unlink('empty/x'); os.rmdir('empty')",
    // Moved.
    "os.mkdir('d'); put('d/x', '1'); os.rename('d', 'e'); seen.append(open('e/x').read()); see('e'); \
     seen.append(os.path.exists('d')); os.mkdir('d'); os.rename('e', 'd'); see('d')",
    "os.rename('full', 'moved'); seen.append(open('moved/x').read()); see('moved'); see('moved/sub/..'); \
     see('moved/x'); seen.append(sorted(os.listdir('moved'))); put('moved/y', 'more'); \
     seen.append(errno_of(os.stat, 'full/x'))",
    "here = os.getcwd(); os.chdir('full/sub'); os.rename('../../full', '../../moved'); \
     seen.append(os.getcwd()[len(here):]); see('..'); os.chdir('../..'); seen.append(sorted(os.listdir('.')))",
    "os.rename('full', 'shared/full'); see('shared'); see('.'); see('shared/full'); \
     seen.append(open('shared/full/x').read()); seen.append(os.stat('shared/full/..').st_ino == \
     os.stat('shared').st_ino); seen.append(os.path.samefile('shared/full/../..', '.'))",
    "os.mkdir('d'); seen.extend(errno_of(os.rename, *n) for n in (('full', 'full/sub/f'), ('full', 'a'), ('a', \
     'full'), ('d', 'full'), ('none', 'd'), ('d', 'none/d'))); os.rename('full', 'd'); see('d')",
    "os.mkdir('d'); put('one', '1'); os.rename('one', 'd/one'); seen.append(open('d/one').read()); \
     os.rename('a', 'd/a'); see('d/a'); seen.append(open('d/a').read()); os.rename('d/one', 'a'); \
     seen.append(open('a').read())",
    "os.mkdir('d'); os.link('a', 'd/b'); see('a'); see('d/b'); seen.append(open('d/b').read()); os.unlink('a'); \
     see('d/b')",
    "put('full/x', 'held', 'a'); os.rename('full', 'moved'); put('moved/new', '1'); os.rename('moved', 'again'); \
     see('again'); seen.append(open('again/new').read())",
    // Links.
    "os.symlink('a', 'l'); seen.append(os.readlink('l')); seen.append(open('l').read()); see('l'); \
     s = os.lstat('l'); seen.append((oct(s.st_mode), s.st_size, s.st_nlink, os.path.islink('l')))",
    "os.mkdir('d'); os.symlink('d', 'l'); put('l/x', 'through'); seen.append(open('d/x').read()); see('l'); \
     see('l/x'); seen.append(os.path.realpath('l') == os.getcwd() + '/d'); os.symlink('../a', 'd/up'); \
     seen.append(open('l/up').read())",
    "os.symlink('nowhere', 'l'); seen.extend([os.path.exists('l'), os.path.lexists('l'), errno_of(open, 'l'), \
     errno_of(os.symlink, 'x', 'l'), errno_of(os.open, 'l', os.O_NOFOLLOW), errno_of(os.readlink, 'a')]); \
     os.unlink('l'); seen.append(os.path.lexists('l'))",
    "os.symlink('one', 'two'); os.symlink('two', 'one'); seen.append(errno_of(open, 'one')); \
     os.rename('one', 'three'); seen.append(os.readlink('three')); \
     seen.append(sorted((e.name, e.is_symlink()) for e in os.scandir('.')))",
    "os.unlink('link'); os.symlink('full', 'link'); seen.append(open('link/x').read()); os.rename('link', 'other'); \
     seen.append(sorted(os.listdir('other')))",
    // What is not there.
    "put('new', ''); seen.extend(errno_of(os.open, n, os.O_CREAT | os.O_WRONLY) for n in ('none/x', 'none/../x', \
     'a/x', 'new/x')); os.mkdir('none'); put('none/x', '1')",
];

fn has_root() -> bool {
    support::has_root_for("making directories on a guess")
}

/// Where the tests' files are: a disk, not the machine's `/tmp`, which may be memory.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("full/sub")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("full/x"), "old").unwrap();
    std::os::unix::fs::symlink("a", at("link")).unwrap();
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What hangs must not hang the test.
fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120", program]).stdin(Stdio::null());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("S", SPECULATOR);
    command
}

fn make(command: &mut Command, dir: &Path, end: &str, what: &str) -> Output {
    command.arg(SCRIPT).arg(dir).args([end, what]).output().unwrap()
}

/// What is held, and not waited for.
fn speculator() -> Command {
    let mut command = limited(SPECULATOR);
    command.arg("run");
    command
}

fn chosen() -> impl Iterator<Item = &'static str> {
    let part = std::env::var("DIRECTORIES").unwrap_or_default();
    CHANGES.iter().copied().filter(move |what| what.contains(&part))
}

#[test]
fn what_is_changed_on_a_right_guess_is_as_natively() {
    if !has_root() {
        return;
    }
    for what in chosen() {
        let (native, inside) = (folder(), folder());
        let expected = make(&mut limited(&support::python()), native.path(), "", what);
        assert!(text(&expected.stdout).lines().count() > 2, "{what}: {}", text(&expected.stderr));
        let output = make(speculator().arg(support::python()), inside.path(), "commit", what);
        let all = |output: &Output| (text(&output.stdout), text(&output.stderr));
        assert_eq!(all(&output), all(&expected), "{what}");
    }
    assert!(staged().is_empty(), "{:?}", staged());
}

#[test]
fn what_is_changed_on_a_wrong_guess_has_never_been() {
    if !has_root() {
        return;
    }
    for what in chosen() {
        let dir = folder();
        let output = make(speculator().arg(support::python()), dir.path(), "fail", what);
        let out = text(&output.stdout);
        let (before, after) = out.split_once("==\n").unwrap_or_else(|| panic!("{what}: {output:?}"));
        assert_eq!((before, text(&output.stderr).as_str()), (after, ""), "{what}");
    }
    assert!(staged().is_empty(), "{:?}", staged());
}

/// Somebody outside makes each change that is held impossible, and so what was made in a new directory: each is told,
/// and the program goes on.
#[test]
fn somebody_outside_who_comes_first_ends_no_world() {
    if !has_root() {
        return;
    }
    let (dir, other) = (folder(), folder());
    let (pause, go) = (pause("0.02"), other.path().join("go"));
    let script = format!(
        "id=$($S begin); [ $id = failed ] && exit 7; mkdir new; echo text > new/x; rmdir empty; mv full moved
         {}; $S commit $id; echo alive",
        pause_until(&pause, &go)
    );
    let mut command = speculator();
    command.args(["bash", "-c", &script]).current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    await_running(&pause);
    let at = |name: &str| dir.path().join(name);
    assert!(!at("new").exists() && at("empty").exists() && at("full/x").exists());
    fs::create_dir(at("new")).unwrap();
    fs::write(at("empty/theirs"), "").unwrap();
    fs::rename(at("full"), at("theirs")).unwrap();
    fs::write(&go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), out.as_str()), (Some(0), "alive\n"), "{errors}");
    assert_eq!(errors.matches("somebody outside came first").count(), 4, "{errors}");
    assert!(at("new").is_dir() && at("empty/theirs").exists() && at("theirs/x").exists() && !at("moved").exists());
}

/// A watcher hears that a directory is made, not that it is moved from where it stood.
#[test]
fn watchers_hear_of_a_directory_as_natively() {
    if !has_root() {
        return;
    }
    let about = |run: &dyn Fn(&Path)| {
        let dir = folder();
        let all = heard(dir.path(), || run(dir.path()));
        all.into_iter().filter(|event| event.ends_with(" new")).collect::<Vec<_>>()
    };
    let native = about(&|dir| {
        let status = limited("bash").args(["-c", "mkdir new; ln -s to l"]).current_dir(dir).status();
        assert!(status.unwrap().success());
    });
    assert_eq!(native.iter().filter(|event| event.starts_with("CREATE")).count(), 1, "{native:?}");
    let script = "id=$($S begin); [ $id = failed ] && exit 7; (sleep 0.5; $S commit $id) & mkdir new; ln -s to l; wait";
    let inside = about(&|dir| {
        let output = speculator().args(["bash", "-c", script]).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    });
    assert_eq!(inside, native);
}

/// The supervisor is killed before each step of a commit: what was made so far is there; nothing else is.
#[test]
fn killed_at_every_step_of_a_commit() {
    if !has_root() {
        return;
    }
    let script = "id=$($S begin); [ $id = failed ] && exit 7
                  mkdir new; echo text > new/x; mv new moved; rmdir empty; $S commit $id; exit 3";
    const STATES: [&[&str]; 5] = [
        &["empty"],
        &["empty", "new"],
        &["empty", "new", "new/x"],
        &["empty", "moved", "moved/x"],
        &["moved", "moved/x"],
    ];
    const ALL: [&str; 5] = ["empty", "moved", "moved/x", "new", "new/x"];
    for (steps, state) in STATES.iter().enumerate() {
        let dir = folder();
        let mut command = speculator();
        command.arg(format!("--crash-in-rollback={steps}")).args(["bash", "-c", script]).current_dir(dir.path());
        let output = command.output().unwrap();
        let is_killed = steps + 1 < STATES.len();
        assert_eq!(output.status.code(), Some(if is_killed { 125 } else { 3 }), "after {steps} steps: {output:?}");
        let names: Vec<&str> = ALL.into_iter().filter(|name| dir.path().join(name).exists()).collect();
        assert_eq!(names, *state, "after {steps} steps");
    }
}
