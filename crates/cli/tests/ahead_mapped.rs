//! Files that were there and are mapped to be written on a guess: nobody waits for the guess, outside nothing of it is
//! seen before it is right, and the mapping is the file's from then on.

use crate::ahead_new_files::{errors, folder, has_never_been, has_root, is_as_natively, speculator, text};
use crate::support;

use std::fs;
use std::process::Stdio;
use support::places::{await_running, pause, pause_until};

/// None of these waits. `a` holds six bytes, `m` is a mapping of it.
const MAPS: &[&str] = &[
    "m[0:2] = b'HE'; os.close(f); seen.append(m[:]); m.close()",
    "m[0:2] = b'HE'; seen.append(m[:])",
    // From the end of the guess on it is the file's.
    "m[0:1] = b'H'; done(); m[1:2] = b'E'; seen.append(open('a').read()); os.pwrite(f, b'LL', 2); seen.append(m[:])",
    "m.close()\nif os.fork() == 0: mmap.mmap(f, 6)[0:2] = b'HE'; os._exit(3)\nseen.append(os.wait()[1] >> 8)",
    // Several share it, by heritage and by mappings of their own.
    "m[0:1] = b'H'\nif os.fork() == 0:\n  m[1:2] = b'E'; n = mmap.mmap(os.open('a', os.O_RDWR), 6); n[2:3] = b'L'; \
     os._exit(m[2] + n[0])\nseen.append(os.wait()[1] >> 8); seen.append(m[:])",
    // Who sleeps keeps nobody from reading the file.
    "r, w = os.pipe()\nif os.fork() == 0:\n  m[0:1] = b'H'; os.write(w, b'x'); time.sleep(0.3); m[1:2] = b'E'; \
     os._exit(0)\nos.read(r, 1); done(); seen.append(open('a').read(1)); os.wait(); seen.append(open('a').read(2))",
    // Who reads the file waits, also one who has looked at files without a question.
    "r, w = os.pipe(); m[0:2] = b'HE'\np = subprocess.Popen([sys.executable, '-c', f\"import os; os.write({w}, b'x'); \
     [os.stat('a') for i in range(9)]; g = os.open('a', 0); os._exit(os.pread(g, 2, 0) == b'HE')\"], pass_fds=[w])\n\
     os.read(r, 1); time.sleep(0.3); done(); seen.append(p.wait())",
    "if os.fork() == 0: m[5:6] = b'!'; time.sleep(0.05); done(); os._exit(0)\nos.wait(); seen.append(m[:])",
    "import threading\ndef work(i): m[i:i + 1] = b'x'; time.sleep(0.01)\nt = [threading.Thread(target=work, args=(i,)) \
     for i in range(4)]\nfor each in t: each.start()\nfor each in t: each.join()\nseen.append(m[:]); done(); \
     seen.append(open('a').read())",
];

const BEFORE: &str = "import mmap, subprocess, sys, time; f = os.open('a', os.O_RDWR); m = mmap.mmap(f, 6)\n\
    def done(): end and libc.syscall(SPECULATE, FAIL if end == 'fail' else COMMIT, number)\n";

#[test]
fn mappings_on_a_right_guess_are_as_natively() {
    if !has_root() {
        return;
    }
    MAPS.iter().for_each(|what| is_as_natively(folder, &format!("{BEFORE}{what}")));
}

#[test]
fn mappings_of_a_wrong_guess_have_never_been() {
    if !has_root() {
        return;
    }
    MAPS.iter().for_each(|what| has_never_been(folder, &format!("{BEFORE}{what}")));
}

/// Outside the file is as it was until the guess is right. What is printed then is not there before what was stored.
#[test]
fn outside_what_is_stored_is_there_when_the_guess_is_right() {
    if !has_root() {
        return;
    }
    for (end, status, left) in [("fail", 7, "hello"), ("commit", 0, "HEllo")] {
        let (dir, other) = (folder(), folder());
        fs::write(dir.path().join("a"), "hello").unwrap();
        let (pause, go) = (pause("0.02"), other.path().join("go"));
        let python = support::python();
        let script = format!(
            "cd {}; id=$($S begin); [ $id = failed ] && exit 7
             {python} -c 'import mmap, os; mmap.mmap(os.open(\"a\", os.O_RDWR), 5)[0:2] = b\"HE\"'; echo stored; {}
             $S {end} $id",
            dir.path().display(),
            pause_until(&pause, &go)
        );
        let mut command = speculator();
        command.args(["bash", "-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        await_running(&pause);
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "hello");
        fs::write(&go, "").unwrap();
        let output = child.wait_with_output().unwrap();
        let shown = if status == 0 { "stored\n" } else { "" };
        let told = (output.status.code(), text(&output), errors(&output));
        assert_eq!(told, (Some(status), shown.to_owned(), String::new()));
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), left);
    }
}
