//! Programs of `tests/programs` on a volume, watched from outside: killed, stopped, and printing all at once.

use crate::support;

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use support::places::PATIENCE;
use support::{can_mount, skipped, Scene};

/// Worlds in which a process is killed at a moment of chance.
const KILLS: u64 = 20;

fn compile(scene: &Scene, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs").join(format!("{name}.c"));
    let program = scene.path(name);
    let flags = ["-std=gnu11", "-O1", "-pthread", "-Wno-unused-result"];
    assert!(Command::new("cc").args(flags).arg(source).arg("-o").arg(&program).status().unwrap().success());
    program
}

fn start(scene: &Scene, program: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args("run --volume ../image:. --".split(' ')).arg(program).args(arguments);
    command.current_dir(scene.path("dir")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Its status, if it ends in time; what was started here is killed if not.
#[track_caller]
fn ends(child: &mut Child) -> std::process::ExitStatus {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    panic!("the world did not end within {PATIENCE:?}");
}

fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    lines
}

/// The second process of the world tells its pid, and is killed from outside while all write.
const STORM: &str = r#"
cd "$1"
storm() { while :; do echo $1 >f$1; sync f$1; mv f$1 g$1; done; }
storm a & storm b & victim=$!
echo $victim
( i=0; while [ $i -lt 60 ]; do echo x >>mine; echo line $i; i=$((i+1)); done )
wait $victim
echo victim $?
kill -9 %1
"#;

#[test]
fn a_process_killed_in_a_storm_of_writes_stops_nobody_else() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    for round in 0..KILLS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args("run --volume image:dir -- bash -c".split(' ')).arg(STORM).args(["bash", "dir"]);
        let mut child =
            command.current_dir(scene.path("")).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = lines_of(&mut child);
        let victim = lines.recv_timeout(PATIENCE).expect("the victim's pid").parse::<i32>().unwrap();
        thread::sleep(Duration::from_micros(round * 7919 % 20_000));
        let victim = rustix::process::Pid::from_raw(victim).unwrap();
        rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
        ends(&mut child);
        let rest: Vec<String> = lines.iter().collect();
        let expected = (0..60).map(|i| format!("line {i}")).chain(["victim 137".to_owned()]);
        assert_eq!(rest, expected.collect::<Vec<_>>(), "round {round}");
        // A child of the killed process may outlive COMMAND for a moment, and the world, with its volume, goes with the
        // last process.
        scene.left_behind(&["dir", "image"]);
    }
}

/// The stopped process is in the middle of its writes: what another one prints arrives, although it is never continued.
const STOPPED: &str = r#"
cd "$1"
( while :; do echo abc >>f; mv f g; cat g >h; done ) & writer=$!
sleep 0.0$2
kill -STOP $writer
for i in 1 2 3; do echo $i >mine; echo printed $i; done
cat h >/dev/null; echo seen
read line
kill -9 $writer
echo end
"#;

#[test]
fn what_is_printed_does_not_wait_for_a_stopped_process() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    for round in 1..10 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args("run --volume image:dir -- bash -c".split(' ')).arg(STOPPED).args([
            "bash",
            "dir",
            &round.to_string(),
        ]);
        command.current_dir(scene.path("")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = lines_of(&mut child);
        for expected in ["printed 1", "printed 2", "printed 3", "seen"] {
            assert_eq!(lines.recv_timeout(PATIENCE).as_deref(), Ok(expected), "round {round}");
        }
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert_eq!(lines.recv_timeout(PATIENCE).as_deref(), Ok("end"), "round {round}");
        assert!(ends(&mut child).success());
        scene.nothing_is_attached();
    }
    scene.left_behind(&["dir", "image"]);
}

/// Everybody prints to one pipe: the lines of each process are in its order, and all arrive.
#[test]
fn a_tree_of_processes_prints_in_order() {
    if !can_mount() {
        return;
    }
    let scene = Scene::with_volume();
    let program = compile(&scene, "tree_output_order");
    let mut child = start(&scene, program.to_str().unwrap(), &[]);
    let lines = lines_of(&mut child);
    assert!(ends(&mut child).success());
    let mut next: HashMap<String, usize> = HashMap::new();
    for line in lines.iter() {
        let (path, number) = line.split_once(' ').unwrap();
        let expected = next.entry(path.to_owned()).or_default();
        assert_eq!(number.parse(), Ok(*expected), "{line}");
        *expected += 1;
    }
    // Names of 1 to 6 letters below the root, each followed by `l` or `r`.
    assert_eq!(next.len(), 63);
    assert!(next.values().all(|count| *count == 12), "{next:?}");
    fs::remove_file(program).unwrap();
    scene.left_behind(&["dir", "image"]);
}

/// Each program file has its text in two segments of shared memory, of which a machine has 4,096. They were kept
/// until the world's end.
#[test]
fn many_programs_leave_few_segments() {
    const PROGRAM: &str = "/lib64/ld-linux-x86-64.so.2";
    const PROGRAMS: usize = 260;
    /// What a world keeps of files that nobody uses, and some more for those that are used.
    const SEGMENTS_MOST: usize = 300;
    if !Path::new(PROGRAM).exists() {
        skipped(&format!("{PROGRAM} is not installed"));
        return;
    }
    let scene = Scene::new();
    for i in 0..PROGRAMS {
        support::copy_program(PROGRAM, scene.path(&format!("program{i}")));
    }
    let script = "for i in $(seq 0 $1); do ./program$i --version >said || exit 1; done
        read -r supervisor < <(awk '/^TracerPid/ { print $2 }' /proc/self/status)
        awk -v own=$supervisor '$5 == own' /proc/sysvipc/shm | wc -l";
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--", "bash", "-c", script, "bash", &(PROGRAMS - 1).to_string()]).current_dir(scene.path(""));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let segments: usize = said.trim().parse().unwrap_or_else(|_| panic!("{said}: {:?}", output.stderr));
    assert!((4..=SEGMENTS_MOST).contains(&segments), "{segments} segments");
}
