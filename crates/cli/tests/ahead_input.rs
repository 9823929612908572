//! Input from outside that was read while speculative: after a failure it is read again, by whoever reads there, as if
//! it had never been read.

use crate::support;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// More than any of these takes.
const LONG: Duration = Duration::from_secs(300);

fn has_root() -> bool {
    support::has_root_for("knowing that nobody else reads there, and putting back into a terminal,")
}

/// Start a bash script in a world; nobody else has its standard input. `$S` is the program.
fn start(dir: &Path, script: &str) -> Child {
    Command::new(SPECULATOR)
        .args(["run", "--", "bash", "-c", script])
        .current_dir(dir)
        .env("S", SPECULATOR)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Its output, or a failure if it hangs.
fn finish(mut child: Child) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > LONG {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

#[track_caller]
fn expect(output: &Output, stdout: &str, status: i32) {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((text.as_ref(), output.status.code()), (stdout, Some(status)), "{errors}");
    assert_eq!(errors, "", "it waited, or said something");
}

#[track_caller]
fn check(script: &str, input: &str, stdout: &str, status: i32) {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path(), script);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    expect(&finish(child), stdout, status);
}

/// `guessed` is done until the guess fails, then `instead`.
fn failing(guessed: &str, instead: &str) -> String {
    format!("id=$($S begin); if [ $id = failed ]; then {instead}; exit 7; fi; {guessed}; $S fail $id")
}

#[test]
fn what_was_read_is_read_again() {
    if !has_root() {
        return;
    }
    let script = failing("read b; echo WRONG $b; read c", "read b; read c; echo $a $b $c");
    check(&format!("read a; {script}"), "one\ntwo\nthree\n", "one two three\n", 7);
}

#[test]
fn another_program_reads_it_then() {
    if !has_root() {
        return;
    }
    let script = failing("read x; head -c 5", "cat; echo end");
    check(&script, "one\ntwo\nthree\n", "one\ntwo\nthree\nend\n", 7);
}

#[test]
fn what_a_child_read_is_given_back_too() {
    if !has_root() {
        return;
    }
    let script = failing("(read x; (read y; echo WRONG $y)); cat | tr a-z A-Z", "read x; echo $x; (cat)");
    check(&script, "one\ntwo\nthree\nfour\n", "one\ntwo\nthree\nfour\n", 7);
}

#[test]
fn a_right_guess_has_read_once() {
    if !has_root() {
        return;
    }
    let script = "id=$($S begin); read a; $S commit $id; read b; echo $a $b; cat";
    check(script, "one\ntwo\nthree\n", "one two\nthree\n", 0);
}

#[test]
fn the_inner_of_two_guesses_gives_back_what_it_read() {
    if !has_root() {
        return;
    }
    let script = "o=$($S begin); read a; i=$($S begin); if [ $i = failed ]; then read b; $S commit $o; echo $a $b; cat; exit 3; fi; \
                  read b; read c; $S fail $i";
    check(script, "one\ntwo\nthree\n", "one two\nthree\n", 3);
}

/// It looks as if the pipe had never been read: poll, select, epoll, FIONREAD, readv, a short read, the end.
const LOOKS: &str = "
import fcntl, os, select, termios
poll = select.poll()
poll.register(0, select.POLLIN)
epoll = select.epoll()
epoll.register(0, select.EPOLLIN)
print(poll.poll(0), select.select([0], [], [], 0), epoll.poll(0))
print(int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, b'1234'), 'little'))
buffers = [bytearray(2), bytearray(3)]
print(os.readv(0, buffers), buffers, os.read(0, 4), os.read(0, 0))
pid = os.fork()
if pid == 0:
    print(os.read(0, 2), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(os.read(0, 1000), os.read(0, 1000), poll.poll(0), epoll.poll(0))
";

#[test]
fn it_looks_as_if_it_had_never_been_read() {
    if !has_root() {
        return;
    }
    let input = "0123456789".repeat(4);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("looks.py"), LOOKS).unwrap();
    let native = {
        let mut child = Command::new("python3")
            .arg("looks.py")
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap().stdout
    };
    for guessed in ["cat", "read -N 40 x", "read -N 7 x; (read -N 6 y)", "head -c 40 | wc -c"] {
        let mut child = start(dir.path(), &failing(guessed, "python3 looks.py"));
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        expect(&finish(child), &String::from_utf8_lossy(&native), 7);
    }
}

/// The guess fails while a process waits for input that has not come yet.
#[test]
fn who_waits_for_input_is_taken_back() {
    if !has_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "id=$($S begin); if [ $id = failed ]; then read a; read b; echo $a $b; exit 7; fi; \
                  (sleep 0.5; $S fail $id) & read a; read b; echo WRONG $a $b; wait";
    let mut child = start(dir.path(), script);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"one\n").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    stdin.write_all(b"two\n").unwrap();
    drop(stdin);
    expect(&finish(child), "one two\n", 7);
}

/// What was not read natively is not read by us either: whoever has the pipe, too, finds it there.
#[test]
fn who_reads_after_us_misses_nothing() {
    let script = failing("read b; echo WRONG $b", "read b; echo $b");
    let mut child = Command::new("sh")
        .args(["-c", "\"$S\" run -- bash -c \"$SCRIPT\"; cat"])
        .env("S", SPECULATOR)
        .env("SCRIPT", script.replace("; read b; echo WRONG", "; read b; read c; echo WRONG"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo\nthree\n").unwrap();
    let output = finish(child);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\nthree\n");
}

/// A reader outside that holds the same pipe beside us sees no byte twice and none out of its place.
#[test]
fn two_readers_share_one_stream() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let script = failing("read b; echo WRONG $b", "read b; echo $b");
    let child = Command::new(SPECULATOR)
        .args(["run", "--", "bash", "-c", &script])
        .env("S", SPECULATOR)
        .stdin(reader.try_clone().unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    writer.write_all(b"one\ntwo\nthree\n").unwrap();
    drop(writer);
    assert_eq!(finish(child).stdout, b"one\n");
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "two\nthree\n");
}

/// With wrong guesses all over, each program reads what it would have read.
#[test]
fn wrong_guesses_lose_no_input() {
    if !has_root() {
        return;
    }
    let script = "read a; echo $a; (read b; echo $b); head -c 0; read -N 3 c; echo \"$c\"; cat | wc -c";
    let input: String = (0..200).map(|n| format!("line {n}\n")).collect();
    for seed in 1..=4 {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(SPECULATOR)
            .args(["run", "--inject", "all:0.2:1", "--seed", &seed.to_string(), "--", "bash", "-c", script])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = finish(child);
        let expected = format!("line 0\nline 1\nlin\n{}\n", input.len() - "line 0\nline 1\nlin".len());
        expect(&output, &expected, 0);
    }
}

/// A bash script at a terminal of its own; what is typed there at once, and all that the terminal shows.
fn at_a_terminal(script: &str, typed: &[u8]) -> String {
    use rustix::pty::{grantpt, ioctl_tiocgptpeer, openpt, unlockpt, OpenptFlags};
    let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&user).unwrap();
    unlockpt(&user).unwrap();
    let terminal = ioctl_tiocgptpeer(&user, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let child = Command::new("setsid")
        .args(["--ctty", "--wait", "bash", "-c", script])
        .env("S", SPECULATOR)
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal)
        .spawn()
        .unwrap();
    let mut user = std::fs::File::from(user);
    user.write_all(typed).unwrap();
    let mut screen = user.try_clone().unwrap();
    let shown = std::thread::spawn(move || {
        let mut shown = Vec::new();
        // The last one has closed the terminal: an error.
        let _ = screen.read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    });
    finish(child);
    shown.join().unwrap()
}

/// The echo of what was typed is its first line or comes before it; what the script says follows.
#[track_caller]
fn check_at_a_terminal(script: &str, typed: &[u8], said: &str) {
    let shown = at_a_terminal(script, typed);
    let echoes = shown.matches("three").count() - said.matches("three").count();
    assert_eq!(echoes, 1, "what was typed is seen once: {shown:?}");
    assert!(shown.ends_with(said), "{shown:?}, not {said:?}");
}

#[test]
fn at_a_terminal_lines_are_read_again() {
    if !has_root() {
        return;
    }
    let inside = failing("read a; read b; echo WRONG", "read a; echo got $a; cat");
    let script = format!("$S run -- bash -c '{inside}'; echo status $?");
    check_at_a_terminal(&script, b"one\ntwo\nthree\n\x04", "got one\r\ntwo\r\nthree\r\nstatus 7\r\n");
}

#[test]
fn an_end_of_file_that_was_typed_is_read_again() {
    if !has_root() {
        return;
    }
    let inside = failing("cat; read after", "cat; read after; echo after $after");
    let script = format!("$S run -- bash -c '{inside}'");
    check_at_a_terminal(&script, b"one\ntwo\n\x04three\n", "one\r\ntwo\r\nafter three\r\n");
}

/// The shell that started us finds what was not read after all.
#[test]
fn what_nobody_reads_again_is_still_typed_ahead() {
    if !has_root() {
        return;
    }
    let inside = failing("read a; read b; read c; echo WRONG", "read a; echo got $a");
    let script = format!("$S run -- bash -c '{inside}'; read x; read y; echo after $x $y");
    check_at_a_terminal(&script, b"one\ntwo\nthree\n", "got one\r\nafter two three\r\n");
}

/// Who asks whether there is input, and cannot be told, hears that, and goes on.
#[test]
fn an_answer_that_cannot_be_written_is_refused() {
    if !has_root() {
        return;
    }
    const PROGRAM: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
page = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_size_t(0)))
ctypes.memmove(page, bytes([0, 0, 0, 0, 1, 0, 0, 0]), 8)
libc.mprotect(page, ctypes.c_size_t(4096), 1)
print("poll", libc.poll(page, 1, 0), ctypes.get_errno())
print("ioctl", libc.ioctl(0, 0x541b, ctypes.c_void_p(8)), ctypes.get_errno())
print(os.read(0, 10))
"#;
    let script = failing("read a", &format!("{} -c '{PROGRAM}'", support::python()));
    check(&script, "ab\n", "poll -1 14\nioctl -1 14\nb'ab\\n'\n", 7);
}
