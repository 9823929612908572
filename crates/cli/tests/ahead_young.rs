//! What a guess has opened or made (decision 0181): nothing is kept of it as long as nobody has it open who is put
//! back. Those inside use it as natively, and it is gone if the guess was wrong; whoever has guessed since finds it as
//! it was at that moment.

use crate::ahead_new_files::{errors, folder, has_never_been, has_root, is_as_natively, speculator, text};
use crate::support;

/// None of these waits for the guess.
const CHANGES: &[&str] = &[
    "f = os.open('a', os.O_RDONLY); seen.append(os.read(f, 2))\nif os.fork() == 0: os.read(f, 1); os._exit(0)\n\
     os.wait(); seen.append((os.read(f, 2), os.lseek(f, 0, 1))); os.close(f)",
    "r, w = os.pipe()\nif os.fork() == 0: os.write(w, b'said'); os._exit(0)\nos.close(w); os.wait(); \
     seen.append((os.read(r, 2), os.read(r, 9), os.read(r, 9))); os.close(r)",
    "r, w = os.pipe(); os.set_blocking(r, False); seen.append(errno_of(os.read, r, 1)); os.set_blocking(r, True); \
     os.write(w, b'x'); os.close(w); seen.append((os.read(r, 9), os.read(r, 9))); os.close(r)",
    "d = os.open('.', os.O_RDONLY); seen.append(sorted(os.listdir(d))); os.lseek(d, 0, 0); os.close(d)",
    "for i in range(30):\n  r, w = os.pipe()\n  if os.fork() == 0: os.dup2(w, 1); \
     os.execlp('echo', 'echo', '%d' % i)\n  os.close(w); seen.append((os.read(r, 99), os.wait()[1])); os.close(r)",
];

#[test]
fn what_a_right_guess_has_opened_is_as_natively() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| is_as_natively(folder, what));
}

#[test]
fn what_a_wrong_guess_has_opened_has_never_been() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| has_never_been(folder, what));
}

/// What each program begins with. `begin` returns twice, as fork does.
pub(crate) const BEFORE: &str = "
import ctypes, os, sys
call = ctypes.CDLL(None).syscall
def begin(): return call(0x5bed, 1, 0)
def commit(guess): call(0x5bed, 2, guess)
def fail(guess): call(0x5bed, 3, guess)
";

#[track_caller]
fn prints(script: &str, expected: &str) {
    let script = format!("{BEFORE}{script}");
    let output = speculator().args([support::python().as_str(), "-c", &script]).output().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), (expected, ""));
}

/// Opened on the first guess, and open at the second one's checkpoint, it is put back to what it was there; what came
/// before stays.
#[test]
fn a_younger_guess_finds_it_as_it_was() {
    prints(
        "
one = begin()
r, w = os.pipe(); f = os.open('/etc/passwd', os.O_RDONLY)
os.write(w, b'before'); os.read(f, 3)
two = begin()
if two >= 0:
    os.read(r, 3); os.write(w, b'since'); os.lseek(f, 100, 0); os.set_blocking(r, False); os.close(w); os.close(f)
    fail(two)
os.write(w, b' after')
print(os.read(r, 99), os.lseek(f, 0, 1), os.get_blocking(r), flush=True)
commit(one)
",
        "b'before after' 3 True\n",
    );
}

/// The checkpoint is another process's: what it shares with who has none is put back for both.
#[test]
fn a_childs_guess_puts_back_what_it_shares() {
    prints(
        "
one = begin()
r, w = os.pipe(); f = os.open('/etc/passwd', os.O_RDONLY)
os.write(w, b'before'); os.read(f, 3)
if os.fork() == 0:
    two = begin()
    if two >= 0:
        os.read(r, 4); os.read(f, 10)
        fail(two)
    os.write(w, b' and'); os._exit(0)
os.wait()
os.write(w, b' after')
print(os.read(r, 99), os.lseek(f, 0, 1), flush=True)
commit(one)
",
        "b'before and after' 3\n",
    );
}

/// Of a pipe that all who have it depend on alike nobody is asked (decision 0231). Who sleeps there is called out when
/// somebody has guessed since, and reads again what a wrong guess has taken back.
#[test]
fn who_sleeps_at_an_unasked_pipe_reads_again() {
    prints(
        "
import time
one = begin()
r, w = os.pipe(); back, answer = os.pipe()
if os.fork() == 0:
    os.close(w)
    said = os.read(r, 9)
    while said: os.write(answer, said + b'!'); said = os.read(r, 9)
    os._exit(0)
os.write(w, b'first'); print(os.read(back, 9)); time.sleep(0.1)
two = begin()
if two >= 0:
    os.write(w, b'wrong'); os.read(back, 9); os.close(w); os.read(back, 0)
    fail(two)
os.write(w, b'right'); print(os.read(back, 9))
os.close(w); os.close(answer)
print(os.read(back, 9), os.wait()[1], flush=True)
commit(one)
",
        "b'first!'\nb'right!'\nb'' 0\n",
    );
}

/// Who makes no calls but such hears signals all the same, and of children.
#[test]
fn who_asks_nothing_hears_signals() {
    prints(
        "
import signal
one = begin()
r, w = os.pipe(); ready, tell = os.pipe()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
    os.write(tell, b'x')
    while True: os.write(w, b'y'); os.read(r, 1)
os.read(ready, 1)
os.kill(child, signal.SIGUSR1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
heard = []
signal.signal(signal.SIGCHLD, lambda *_: heard.append(os.wait()[1]))
if os.fork() == 0: os._exit(0)
while not heard: os.write(w, b'y'); os.read(r, 1)
print(heard, flush=True)
commit(one)
",
        "7\n[0]\n",
    );
}
