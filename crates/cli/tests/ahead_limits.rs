//! Where guesses are many, or hold much: a world with them can be ended, and does not hold more than it may.

use crate::support;

use std::io::{BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use support::places::PATIENCE;
use support::Scene;

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/programs");

/// A command, inside or natively, whose output is read.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(folder: &Path, words: &[&str]) -> Running {
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .current_dir(folder)
            .env("S", SPECULATOR)
            .env("FEW", support::keeping_hard_limits())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    fn inside(folder: &Path, options: &[&str], words: &[&str]) -> Running {
        Running::start(folder, &[&[SPECULATOR, "run"], options, &["--"], words].concat())
    }

    /// Wait until `top --json` says of it that it is so.
    fn until(&self, mut is_so: impl FnMut(&Value) -> bool) {
        let begin = Instant::now();
        loop {
            let said = Scene::new().run(&format!("top --json {}", self.child.id())).stdout;
            let world = said.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok());
            if world.as_ref().is_some_and(&mut is_so) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{world:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A process of it that is not its first and depends on a guess, as soon as there is one.
    fn guessing_child(&self) -> Pid {
        let mut child = None;
        self.until(|world| {
            let processes = world["ahead"]["processes"].as_array().unwrap();
            let other = processes.iter().find(|other| other["pid"] != world["command"] && other["guesses"] == 1);
            child = other.and_then(|child| Pid::from_raw(child["pid"].as_i64()? as i32));
            child.is_some()
        });
        child.unwrap()
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// What it has shown, and the signal that ended it.
    fn end(mut self) -> (String, Option<i32>) {
        let mut shown = String::new();
        self.output.read_to_string(&mut shown).unwrap();
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (shown, status.signal());
            }
            if begin.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                panic!("it does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn compile(source: &str, program: &str) {
    let compiled = Command::new("cc").args(["-O1", "-I", PROGRAMS, "-o", program, source]).status();
    assert!(compiled.unwrap().success());
}

/// Its guesses are its own: nobody but it could say whether they were right, and it will not.
#[test]
fn a_process_with_open_guesses_can_be_ended() {
    let scene = Scene::new();
    let program = scene.path("open").display().to_string();
    compile(&format!("{PROGRAMS}/open.c"), &program);
    let native = Running::start(&scene.path("."), &[&program, "300"]);
    native.terminate();
    let inside = Running::inside(&scene.path("."), &[], &[&program, "300"]);
    inside.until(|world| world["ahead"]["open"] == 300);
    inside.terminate();
    assert_eq!(inside.end(), native.end());
}

/// `speculator begin` has ended when its shell is told to end.
#[test]
fn a_shell_with_an_open_guess_can_be_ended() {
    let scene = Scene::new();
    let script = "echo start; id=$($S begin); [ $id = failed ] && echo WRONG again; echo WRONG; sleep 1000; echo WRONG";
    let inside = Running::inside(&scene.path("."), &[], &["bash", "-c", script]);
    inside.until(|world| {
        let processes = world["ahead"]["processes"].as_array().unwrap();
        world["ahead"]["open"] == 1 && processes.iter().any(|process| process["program"] == "sleep")
    });
    inside.terminate();
    assert_eq!(inside.end(), ("start\n".to_owned(), Some(Signal::TERM.as_raw())));
}

/// Its maker goes on, and will say whether the guess was right: who only depends on it hears the signal after that.
#[test]
fn somebody_elses_guess_does_not_fail_by_a_signal() {
    let scene = Scene::new();
    let program = scene.path("child").display().to_string();
    compile(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_limits/child.c"), &program);
    let inside = Running::inside(&scene.path("."), &[], &[&program]);
    kill_process(inside.guessing_child(), Signal::TERM).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(inside.end(), (format!("{}\n", Signal::TERM.as_raw()), None));
}

/// A checkpoint of it has open what it had, if nothing is done about that: whoever reads from its pipe would wait for
/// ever.
#[test]
fn a_killed_process_leaves_nothing_open() {
    let scene = Scene::new();
    let program = scene.path("killed").display().to_string();
    compile(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_limits/killed.c"), &program);
    let inside = Running::inside(&scene.path("."), &[], &[&program]);
    kill_process(inside.guessing_child(), Signal::KILL).unwrap();
    assert_eq!(inside.end(), (format!("0 {}\n", Signal::KILL.as_raw()), None));
}

/// What a guess shows is kept for as long as it may fail, but not without end: whoever shows more waits.
#[test]
fn who_shows_too_much_waits() {
    const SHOWN: usize = 100_000_000;
    const HELD_MAX: u64 = 65 << 20;
    let scene = Scene::new();
    let script = format!(
        "id=$($S begin); [ $id = failed ] && {{ echo WRONG; exit 7; }}
         (until [ -e go ]; do sleep 0.05; done; $S commit $id) & head -c {SHOWN} /dev/zero; wait; echo end"
    );
    let mut inside = Running::inside(&scene.path("."), &["--stats=json:stats"], &["bash", "-c", &script]);
    inside.until(|world| {
        let processes = world["ahead"]["processes"].as_array().unwrap();
        processes
            .iter()
            .any(|process| process["waits_for"].as_str().is_some_and(|what| what.ends_with("to call write")))
    });
    std::fs::write(scene.path("go"), "").unwrap();
    let mut shown = Vec::new();
    inside.output.read_to_end(&mut shown).unwrap();
    assert_eq!(inside.child.wait().unwrap().code(), Some(0));
    assert_eq!((shown.len(), shown.iter().filter(|&&byte| byte == 0).count()), (SHOWN + 4, SHOWN));
    assert!(shown.ends_with(b"end\n"));
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(scene.path("stats")).unwrap()).unwrap();
    let held = stats["ahead"]["output_held"].as_u64().unwrap();
    assert!((HELD_MAX - (2 << 20)..=HELD_MAX).contains(&held), "{held}");
    assert!(stats["ahead"]["barriers"]["write"].as_u64().is_some_and(|waits| waits > 0), "{stats}");
}

/// Makes so many children, and waits for them when it has all: who is waited for is let go.
/// They have a socket open, so that their ends are held.
fn children(count: u32) -> String {
    format!(
        r#"perl -e '$^F = 99; socketpair(my $one, my $other, 1, 1, 0) or die;
            for (1..{count}) {{ my $pid = fork; if (!$pid) {{ exec "/bin/true" or exit 9 }} push @all, $pid }}
            for (@all) {{ waitpid($_, 0) == $_ && $? == 0 or die "WRONG $_ $?" }} print "all\n"'"#
    )
}

/// Who has ended on a guess stands still for as long as it may fail: whoever makes too many such waits. A fifth of the
/// limit of descriptors bounds them.
#[test]
fn who_makes_too_many_children_waits() {
    let scene = Scene::new();
    let script = format!(
        r#"id=$($S begin); [ $id = failed ] && {{ echo WRONG; exit 7; }}
        perl -e 'select(undef, undef, undef, 0.05) until -e "go"; exec $ENV{{S}}, "commit", $ARGV[0]' $id &
        {}; wait; echo end"#,
        children(250)
    );
    let start = ["bash", "-c", "ulimit -n 1000; exec $FEW $S run -v -- bash -c \"$0\" 2>said", &script];
    let inside = Running::start(&scene.path("."), &start);
    inside.until(|world| {
        let processes = world["ahead"]["processes"].as_array().unwrap();
        processes
            .iter()
            .any(|process| process["waits_for"].as_str().is_some_and(|what| what.ends_with("to call clone")))
    });
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(inside.end(), ("all\nend\n".to_owned(), None));
    let said = std::fs::read_to_string(scene.path("said")).unwrap();
    let bounds = said.lines().filter(|line| line.contains("as many processes that have ended are held"));
    assert_eq!(bounds.count(), 1, "{said}");
}

/// Where we may open few descriptors everything comes to wait: the guess fails, and the world does not end.
#[test]
fn a_guess_with_many_children_fails_where_descriptors_are_few() {
    let scene = Scene::new();
    let children = children(200);
    let script = format!(
        r#"id=$($S begin); [ $id = failed ] && {{ {children}; exit 7; }}
        {children}; echo WRONG; $S commit $id"#
    );
    let start = ["bash", "-c", "ulimit -n 256; exec $FEW $S run --stats=json:stats -- bash -c \"$0\"", &script];
    let mut inside = Running::start(&scene.path("."), &start);
    let mut shown = String::new();
    inside.output.read_to_string(&mut shown).unwrap();
    assert_eq!((shown, inside.child.wait().unwrap().code()), ("all\n".to_owned(), Some(7)));
}
