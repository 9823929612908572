//! Who has ended on a guess and was waited for ends in earnest (decision 0182): nothing bounds how many do, what they
//! wrote is held as before, and where somebody could be put back to before the wait, they are kept.

use crate::ahead_new_files::{errors, folder, has_never_been, has_root, is_as_natively, speculator, text};
use crate::ahead_young::BEFORE;
use crate::support;

const CHANGES: &[&str] = &[
    "for i in range(20):\n  if os.fork() == 0: put('new%d' % i, 'x' * i); os._exit(i)\n  \
     seen.append(os.wait()[1] >> 8)\nfor i in range(0, 20, 2): os.unlink('new%d' % i)",
    "for i in range(5):\n  if os.fork() == 0:\n    if os.fork() == 0: put('deep%d' % i, 'x'); os._exit(3)\n    \
     os._exit(os.wait()[1] >> 8)\n  seen.append(os.wait()[1] >> 8)",
    "import signal; heard = []; signal.signal(signal.SIGCHLD, lambda n, f: heard.append(n))\nfor i in range(10):\n  \
     if os.fork() == 0: os._exit(i)\n  seen.append(os.wait()[1] >> 8)\nseen.append(len(heard))",
    "r, w = os.pipe()\ndef bear(i):\n  p = os.fork()\n  if p == 0: os.write(w, b'x'); os._exit(i)\n  return p\n\
     seen.append([os.waitpid(p, 0)[1] >> 8 for p in [bear(i) for i in range(3)]]); os.close(w); \
     seen.append(len(os.read(r, 9)))",
];

#[test]
fn children_of_a_right_guess_are_as_natively() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| is_as_natively(folder, what));
}

#[test]
fn children_of_a_wrong_guess_have_never_been() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| has_never_been(folder, what));
}

#[track_caller]
fn prints(limit: u32, script: &str, expected: &str) {
    let script = format!("{BEFORE}{script}");
    let limited = format!("ulimit -n {limit}; exec \"$0\" -c \"$1\"");
    let output =
        speculator().args(["bash", "-c", &limited, support::python().as_str(), script.as_str()]).output().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), (expected, ""));
}

/// The parent comes back to where it has the child: it waits for it again, and is told the same.
#[test]
fn a_younger_guess_waits_again() {
    prints(
        1024,
        "
one = begin()
child = os.fork()
if child == 0:
    print('written by the child', flush=True); os._exit(5)
two = begin()
if two >= 0:
    os.wait()
    other = os.fork()
    if other == 0: print('never', flush=True); os._exit(6)
    os.waitpid(other, 0)
    fail(two)
print(os.wait() == (child, 5 << 8), flush=True)
try: os.wait()
except ChildProcessError: print('no more', flush=True)
commit(one)
",
        "written by the child\nTrue\nno more\n",
    );
}

/// What nobody else notices when it is closed, and threads and mappings that only the child uses, keep no child.
#[test]
fn a_child_with_threads_is_not_kept() {
    if !has_root() {
        return;
    }
    let scene = support::Scene::new();
    let dir = scene.path(".");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/children_threaded.c");
    let program = dir.join("program");
    let compiled = std::process::Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.unwrap().success());
    for (end, expected) in [("commit", "done\n"), ("fail", "")] {
        let script = format!(
            "id=$($S begin); [ $id = failed ] && exit 7; ./program; s=$?; [ -e table ] && s=8; $S {end} $id; exit $s"
        );
        let mut inside = speculator();
        inside.args(["--stats=json:stats", "bash", "-c", &script]).current_dir(&dir);
        let output = inside.output().unwrap();
        let status = if end == "fail" { 7 } else { 0 };
        assert_eq!((text(&output).as_str(), errors(&output).as_str()), (expected, ""));
        assert_eq!((output.status.code(), dir.join("table").exists()), (Some(status), false));
        assert!(scene.stats()["ahead"]["buried"].as_u64() >= Some(20), "{}", scene.stats()["ahead"]);
    }
}

/// 1,500 are more than may stand at their end, where a guess has 1,000 descriptors.
#[track_caller]
fn ends_so_many_children(input: std::process::Stdio) {
    let scene = tempfile::tempdir().unwrap();
    let script = "id=$($S begin); [ $id = failed ] && { echo WRONG; exit 7; }
        perl -e 'for (1 .. 1500) { my $p = fork // die; exit 3 if !$p; waitpid $p, 0; die if $? != 768 }'
        echo all; $S commit $id";
    let run = "ulimit -n 1000; exec $FEW $S run -v -- bash -c \"$0\" 2>said";
    let output = std::process::Command::new("bash")
        .args(["-c", run, script])
        .env("S", env!("CARGO_BIN_EXE_speculator"))
        .env("FEW", support::keeping_hard_limits())
        .current_dir(scene.path())
        .stdin(input)
        .output()
        .unwrap();
    let said = std::fs::read_to_string(scene.path().join("said")).unwrap();
    assert_eq!((text(&output).as_str(), said.contains("are held")), ("all\n", false), "{said}");
}

#[test]
fn so_many_children_as_one_likes() {
    ends_so_many_children(std::process::Stdio::null());
}

/// Standard input of who logs in over a network, or is started by a daemon, is a socket that all have in common.
#[test]
fn so_many_children_with_a_socket_of_outside() {
    let (own, inside) = std::os::unix::net::UnixStream::pair().unwrap();
    ends_so_many_children(std::os::fd::OwnedFd::from(inside).into());
    drop(own);
}
