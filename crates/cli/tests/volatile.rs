//! `run --volatile`: what is written below a path is not waited for, and nothing else is less safe for it.

use crate::support;

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

use support::{can_mount, Scene};

/// Runs a program of Python inside, in the scene's folder. Returns what `--stats` has told.
fn run(scene: &Scene, options: &str, program: &str) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.arg("run").args(options.split_whitespace()).arg("--stats=json:stats");
    command.args(["--", "/usr/bin/python3", "-I", "-c", program]).current_dir(scene.path(""));
    // Its output is a pipe: that can be held.
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    scene.stats()
}

/// How often output, or anything else, waited for a commit; and what was not waited for.
fn waits(stats: &serde_json::Value) -> (u64, u64) {
    let held = stats["output_hold_us"]["count"].as_u64().unwrap();
    let waits = stats["waits"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>();
    (held + waits, stats["volatile_bytes"].as_u64().unwrap())
}

/// The folder `log` with a file in it, on a volume that is mounted at `dir`.
fn scene_with_log() -> Scene {
    let scene = Scene::with_volume();
    scene.run("volume mount image dir").expect(0, "");
    fs::create_dir(scene.path("dir/log")).unwrap();
    fs::write(scene.path("dir/log/access"), "").unwrap();
    fs::write(scene.path("dir/other"), "").unwrap();
    scene.umount();
    scene
}

const ON_THE_VOLUME: &str = "--volume image:dir --volatile dir/log";

fn program(body: &str) -> String {
    format!(
        "import os\n\
         def put(fd):\n    assert os.write(fd, b'0123456789') == 10\n\
         def say(): os.write(1, b'.')\n\
         log = os.open('dir/log/access', os.O_WRONLY | os.O_APPEND)\n\
         {body}\n"
    )
}

/// What waits for nothing: lines in a log, each followed by output.
#[test]
fn a_log_is_not_waited_for() {
    if !can_mount() {
        return;
    }
    let scene = scene_with_log();
    let lines = program("for i in range(20): put(log); os.fsync(log); os.fdatasync(log); say()");
    let stats = run(&scene, ON_THE_VOLUME, &lines);
    assert_eq!(waits(&stats), (0, 200), "{stats}");
    assert_eq!(stats["volatile_files"], 1);
    // The same without the option: the test can fail.
    let stats = run(&scene, "--volume image:dir", &lines);
    assert!(waits(&stats).0 > 0 && waits(&stats).1 == 0, "{stats}");
}

#[test]
fn one_file_can_be_meant_also_where_fsync_is_real() {
    let scene = Scene::new();
    fs::create_dir(scene.path("dir/log")).unwrap();
    fs::write(scene.path("dir/log/access"), "").unwrap();
    let stats = run(
        &scene,
        "--volatile dir/log/access",
        &program(
            "for i in range(20): put(log); os.fsync(log); say()\n\
             child = os.fork()\n\
             if child == 0: put(log); os._exit(0)\n\
             os.waitpid(child, 0); say()",
        ),
    );
    assert_eq!((stats["fsyncs_elided"].as_u64(), waits(&stats)), (Some(20), (0, 210)), "{stats}");
}

/// Exchanges two names.
const EXCHANGE: &str = "\
import ctypes
def exchange(a, b): assert ctypes.CDLL(None).renameat2(-100, a, -100, b, 2) == 0
# A barrier: everything so far is committed.
def settle(): put(os.open('/proc/self/comm', os.O_WRONLY))
";

/// Each of these changes something that is waited for, and only its last step does so uncommitted: what is shown
/// after it is held.
#[test]
fn what_is_elsewhere_is_waited_for() {
    if !can_mount() {
        return;
    }
    for (what, body) in [
        ("another file", "put(os.open('dir/other', os.O_WRONLY))"),
        ("a new name", "os.mkdir('dir/log/new')"),
        ("a file that was moved out", "put(log); os.rename('dir/log/access', 'dir/access'); settle(); put(log)"),
        ("a file that was linked elsewhere", "put(log); os.link('dir/log/access', 'dir/access'); settle(); put(log)"),
        ("the folder that was moved", "put(log); os.rename('dir/log', 'dir/old'); settle(); put(log)"),
        ("a file that was exchanged", "put(log); exchange(b'dir/log/access', b'dir/other'); settle(); put(log)"),
        (
            "a file that was moved while nobody had it open",
            "put(log); os.close(log); os.rename('dir/log/access', 'dir/access'); settle()\n\
             log = os.open('dir/access', os.O_WRONLY); settle(); put(log)",
        ),
        ("a name that was given to what was there", "put(log); settle(); os.link('dir/log/access', 'dir/access')"),
    ] {
        let scene = scene_with_log();
        let stats = run(&scene, ON_THE_VOLUME, &program(&format!("{EXCHANGE}{body}; say()")));
        assert_eq!(stats["output_hold_us"]["count"], 1, "{what}: {stats}");
    }
}

/// So the test above can fail: the same steps within the path hold nothing.
#[test]
fn what_was_not_moved_out_is_not_waited_for() {
    if !can_mount() {
        return;
    }
    for steps in ["settle(); put(log)", "put(log); os.rename('dir/log/access', 'dir/log/old'); settle(); put(log)"] {
        let scene = scene_with_log();
        let stats = run(&scene, ON_THE_VOLUME, &program(&format!("{EXCHANGE}{steps}; say()")));
        assert_eq!(stats["output_hold_us"]["count"], 0, "{steps}: {stats}");
    }
}

/// Whoever reads there depends on what the writer depended on.
#[test]
fn what_is_written_there_still_tells() {
    if !can_mount() {
        return;
    }
    let scene = scene_with_log();
    // The writer does not end before its child has said it: its end is waited for as well, and commits.
    let body = "if os.fork() == 0:\n    \
                    seen = os.open('dir/log/access', os.O_RDONLY)\n    \
                    while os.pread(seen, 10, 0) != b'0123456789': pass\n    \
                    say(); os._exit(0)\n\
                put(os.open('dir/other', os.O_WRONLY)); put(log); os.wait()";
    let stats = run(&scene, ON_THE_VOLUME, &program(body));
    assert!(waits(&stats).0 > 0, "{stats}");
}

/// Moving something there, or about there, needs no look at what was moved out.
#[test]
fn a_log_that_is_rotated_stays_there() {
    if !can_mount() {
        return;
    }
    let scene = scene_with_log();
    let body = "put(log); os.rename('dir/log/access', 'dir/log/access.1'); os.sync()\n\
                for i in range(20): put(log); os.fsync(log); say()";
    let stats = run(&scene, ON_THE_VOLUME, &program(body));
    assert_eq!(waits(&stats).1, 210, "{stats}");
    scene.run("volume mount image dir").expect(0, "");
    assert_eq!(fs::read(scene.path("dir/log/access.1")).unwrap().len(), 210);
    scene.umount();
}

#[test]
fn bad_paths_are_refused() {
    let scene = Scene::new();
    fs::create_dir(scene.path("with")).unwrap();
    fs::create_dir(scene.path("with/volume")).unwrap();
    let _socket = UnixListener::bind(scene.path("socket")).unwrap();
    let refused = |options: &str, why: &str| {
        let outcome = scene.run(&format!("run {options} -- true"));
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (125, 1), "{options}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{options}: {}", outcome.stderr);
    };
    refused(
        "--volatile nowhere",
        "cannot let nowhere be volatile: No such file or directory; name a directory or file",
    );
    refused("--volatile socket", "it is neither a directory nor a file; name one");
    refused("--volatile /dev/null", "it is neither a directory nor a file; name one");
    if can_mount() {
        scene.run("volume create image --size 64M").expect(0, "");
        refused("--volume image:with/volume --volatile dir --volatile with", "volume is mounted there");
        refused("--volume image:with/volume --volatile with/volume", "name a directory that contains no volume");
        scene.nothing_is_attached();
    }
}
