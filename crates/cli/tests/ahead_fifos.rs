//! FIFOs that a guess has made (decision 0174): those inside open, read and write them as natively and wait for nothing
//! but each other, nobody outside finds one before the guess is right, and nothing is left if it was wrong.

use crate::ahead_new_files::{errors, folder, has_never_been, has_root, is_as_natively, speculator, text};
use crate::support::places::{await_running, pause, pause_until};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;

/// None of these waits for the guess.
const CHANGES: &[&str] = &[
    "os.mkfifo('f'); see('f'); see('.'); seen.append(sorted(os.listdir('.'))); seen.append(errno_of(os.mkfifo, 'f')); \
     seen.append(errno_of(os.mkdir, 'f'))",
    "os.umask(0o027); os.mkfifo('f', 0o666); see('f'); os.chmod('f', 0o600); os.chown('f', 5, 6); see('f'); \
     os.mkfifo('shared/g'); see('shared/g')",
    // Each end waits for the other one.
    "os.mkfifo('f')\nif os.fork() == 0:\n  f = os.open('f', os.O_WRONLY); os.write(f, b'hello'); os.close(f); \
     os._exit(3)\nf = os.open('f', os.O_RDONLY); seen.append(os.read(f, 99)); seen.append(os.wait()[1] >> 8); \
     seen.append(os.read(f, 99)); flags(f); os.close(f)",
    "os.mkfifo('f')\nif os.fork() == 0:\n  f = os.open('f', os.O_RDONLY); n = len(os.read(f, 99)); os.close(f); \
     os._exit(n)\nf = os.open('f', os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.write(f, b'hello'); os.close(f); \
     seen.append(os.wait()[1] >> 8)",
    "os.mkfifo('f'); seen.append(errno_of(os.open, 'f', os.O_WRONLY | os.O_NONBLOCK)); \
     r = os.open('f', os.O_RDONLY | os.O_NONBLOCK); seen.append(os.read(r, 9)); w = os.open('f', os.O_WRONLY); \
     seen.append(errno_of(os.read, r, 9)); os.write(w, b'abc'); seen.append(os.read(r, 2)); see(r); os.close(w); \
     seen.append(os.read(r, 9)); seen.append(os.read(r, 9)); os.close(r)",
    "import select; os.mkfifo('f'); b = os.open('f', os.O_RDWR); p = select.poll(); p.register(b, 5); \
     seen.append(p.poll(0)[0][1]); os.write(b, b'x' * 5000); seen.append(p.poll(0)[0][1]); \
     seen.append(len(os.read(b, 9999))); os.close(b)",
    "import signal; signal.signal(signal.SIGPIPE, signal.SIG_IGN); os.mkfifo('f'); \
     r = os.open('f', os.O_RDONLY | os.O_NONBLOCK); w = os.open('f', os.O_WRONLY); os.close(r); \
     seen.append(errno_of(os.write, w, b'x')); os.close(w)",
    "os.mkfifo('f'); seen.extend(errno_of(os.open, 'f', n) for n in (os.O_DIRECTORY, os.O_CREAT | os.O_EXCL)); \
     f = os.open('f', os.O_PATH); see(f); os.close(f)",
    // Its name is changed like any other.
    "os.mkfifo('f'); os.rename('f', 'g'); see('g'); os.mkfifo('f'); os.unlink('f'); \
     seen.append(sorted(os.listdir('.'))); os.mkdir('d'); os.mkfifo('d/h'); os.rename('d/h', 'd/i'); see('d/i'); \
     seen.append(os.listdir('d'))",
    "os.mkfifo('f'); r = os.open('f', os.O_RDONLY | os.O_NONBLOCK); w = os.open('f', os.O_WRONLY); os.unlink('f'); \
     os.write(w, b'gone'); seen.append(os.read(r, 9)); os.close(w); seen.append(os.read(r, 9)); os.close(r)",
    "os.mkfifo('f'); os.link('f', 'g'); see('f'); see('g'); os.unlink('f'); see('g'); os.link('g', 'f')",
    // As shells and programs use them.
    "os.system('mkfifo f; (echo one > f &); cat f; (cat f > g &); echo two > f; until test -s g; do sleep 0.02; done; \
     cat g; rm f g')",
    "os.system('mkfifo x y; (tr a-z A-Z < x > y &); exec 3> x 4< y; echo text >&3; exec 3>&-; cat <&4; stat -c %A x')",
    "os.system('mkfifo f; exec 3<> f; for i in 1 2 3; do (echo $i >&3) & done; wait; for i in 1 2 3; do read n <&3; \
     echo $n; done | sort; test -p f && echo fifo')",
    "os.mkfifo('f')\nfor i in range(4):\n  if os.fork() == 0:\n    f = os.open('f', os.O_WRONLY)\n    \
     for j in range(50): os.write(f, bytes([i]) * 8)\n    os._exit(0)\nf = os.open('f', os.O_RDONLY); \
     n = [0] * 4\nwhile sum(n) < 200:\n  b = os.read(f, 8)\n  if b: n[b[0]] += 1\nfor i in range(4): os.wait()\n\
     seen.append((n, os.read(f, 1))); os.close(f)",
];

#[test]
fn fifos_on_a_right_guess_are_as_natively() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| is_as_natively(folder, what));
}

#[test]
fn fifos_of_a_wrong_guess_have_never_been() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| has_never_been(folder, what));
}

/// Somebody inside waits at it, has it open, or has something in it when the guess is resolved.
#[test]
fn outside_a_fifo_is_there_when_the_guess_is_right() {
    if !has_root() {
        return;
    }
    const USED: [(&str, &str); 3] =
        [("cat f &", "cat:"), ("exec 3<> f; echo text >&3", "text"), ("exec 3<> f; echo a >&3; read -r x <&3", "none")];
    for (used, left) in USED {
        for (end, status) in [("fail", 7), ("commit", 0)] {
            let (dir, other) = (folder(), folder());
            let (pause, go) = (pause("0.02"), other.path().join("go"));
            let script = format!(
                "cd {}; id=$($S begin); [ $id = failed ] && exit 7; mkfifo f; {used}
                 {}; $S {end} $id; case {left} in cat:) echo cat: > f; wait;; \
                 none) read -r -t 0.1 x <&3 || echo none;; *) read -r x <&3; echo $x;; esac",
                dir.path().display(),
                pause_until(&pause, &go)
            );
            let mut command = speculator();
            let child = command.args(["bash", "-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let child = child.unwrap();
            await_running(&pause);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "seen while it is a guess");
            fs::write(&go, "").unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!((output.status.code(), errors(&output).as_str()), (Some(status), ""), "{used}");
            let is_there = fs::symlink_metadata(dir.path().join("f")).is_ok_and(|found| found.file_type().is_fifo());
            assert_eq!(is_there, end == "commit", "{used}");
            if end == "commit" {
                assert_eq!(text(&output), format!("{left}\n"), "{used}");
            }
        }
    }
}

/// What one who has guessed since wrote into it could be taken back alone: nobody reads it before that is resolved, and
/// nobody outside finds it in a FIFO that has its name by then.
#[test]
fn what_a_younger_guess_writes_waits_for_it() {
    if !has_root() {
        return;
    }
    for (end, said) in [("fail", "again"), ("commit", "guessed")] {
        let dir = folder();
        let script = format!(
            "cd {}; one=$($S begin); mkfifo f; exec 3<> f
             (two=$($S begin); if [ $two = failed ]; then echo again >&3; else (sleep 0.3; $S {end} $two) & \
              echo guessed >&3; fi; wait) &
             (sleep 1; $S commit $one) & read -r x <&3; echo $x; wait",
            dir.path().display()
        );
        let output = speculator().args(["bash", "-c", &script]).output().unwrap();
        assert_eq!(text(&output).trim(), said, "{end}: {}", errors(&output));
    }
}
