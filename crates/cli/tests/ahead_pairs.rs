//! Pairs of sockets that a guess has made (decision 0175): their hang-ups are heard by those inside as natively, who
//! wait for no guess, and are gone with the pair if the guess was wrong. Where somebody has guessed since, both ends
//! are put back.

use crate::ahead_new_files::{errors, folder, has_never_been, has_root, is_as_natively, speculator, text};

/// None of these waits for the guess.
const CHANGES: &[&str] = &[
    // The last end closes when its process ends, closes it, or executes something.
    "a, b = pair()\nif os.fork() == 0: b.send(b'x'); os._exit(3)\nb.close(); hear(a); \
     seen.append((os.wait()[1] >> 8, a.recv(9), a.recv(9))); hear(a)",
    "a, b = pair()\nif os.fork() == 0:\n  b.close(); seen.append(poll(a)); os._exit(len(a.recv(9)))\n\
     b.send(b'hello'); a.close(); b.close(); seen.append(os.wait()[1] >> 8)",
    "a, b = pair()\nif os.fork() == 0: os.execlp('sh', 'sh', '-c', 'echo executed')\nb.close(); hear(a); \
     seen.append((os.wait()[1], a.recv(9)))",
    "import subprocess; a, b = pair(); c = subprocess.Popen(['tr', 'a-z', 'A-Z'], stdin=b, stdout=b); \
     b.close(); a.send(b'text'); a.shutdown(socket.SHUT_WR); hear(a); seen.append((a.recv(9), a.recv(9), c.wait()))",
    // What was not read makes it a reset.
    "a, b = pair(); b.send(b'yes'); a.send(b'no'); b.close(); seen.append(poll(a)); seen.append(a.recv(9)); \
     seen.append(errno_of(a.recv, 9)); seen.append(errno_of(a.send, b'x'))",
    "for k in (socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):\n  a, b = pair(k); a.send(b'1'); a.send(b'22'); \
     seen.append(b.recv(9)); b.close(); seen.append(poll(a)); seen.append(errno_of(a.send, b'x'))",
    "a, b = pair(); e = select.epoll(); e.register(a, 1)\nif os.fork() == 0: os._exit(0)\nb.close(); \
     seen.append([n for _, n in e.poll()]); os.wait(); e.close(); a.close()",
    "a, b = pair()\nfor i in range(200): a.send(b'%d' % i); seen.append(b.recv(9))\nb.close(); seen.append(a.recv(9))",
    "a, b = pair(); b.shutdown(socket.SHUT_WR); seen.append(a.recv(9)); a.send(b'x'); seen.append(b.recv(9)); \
     a.close(); seen.append(b.recv(9))",
];

const BEFORE: &str = "import select, signal, socket; signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n\
                      def pair(kind=socket.SOCK_STREAM): return socket.socketpair(socket.AF_UNIX, kind)\n\
                      def poll(s): p = select.poll(); p.register(s, 5); return [n for _, n in p.poll()]\n\
                      def hear(s):\n  p = select.poll(); p.register(s, 0); seen.append([n for _, n in p.poll()])\n";

#[test]
fn hang_ups_on_a_right_guess_are_as_natively() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| is_as_natively(folder, &format!("{BEFORE}{what}")));
}

#[test]
fn hang_ups_of_a_wrong_guess_have_never_been() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| has_never_been(folder, &format!("{BEFORE}{what}")));
}

/// The pair is older than the guess that is wrong: what was sent and received since, and the hang-up, are taken back.
#[test]
fn a_pair_older_than_a_younger_guess_is_put_back() {
    let script = "
import ctypes, os, socket, sys
call = ctypes.CDLL(None).syscall
one = call(0x5bed, 1, 0)
a, b = socket.socketpair()
a.send(b'before')
two = call(0x5bed, 1, 0)
if two >= 0:
    print(b.recv(3), flush=True)
    a.send(b'since'); a.close(); b.close()
    call(0x5bed, 3, two)
a.send(b' after')
print(b.recv(99))
if os.fork() == 0: a.close(); b.close(); os._exit(0)
b.send(b'x'); b.close(); print(a.recv(9), a.recv(9), flush=True)
call(0x5bed, 2, one)
";
    let output = speculator().args([crate::support::python().as_str(), "-c", script]).output().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), ("b'before after'\nb'x' b''\n", ""));
}

/// A call that is itself guessed has its checkpoint before it is made, and that has the pair: what was received on the
/// guess was not put back, and its receiver waited for ever.
#[test]
fn what_a_guessed_call_receives_is_put_back() {
    const PROGRAM: &str = r#"
#include "check.h"
#include <sys/stat.h>
int main(void) {
    int ends[2]; struct stat about; char byte = 7;
    long id = syscall(0x5bed, 1, 0, 0);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    EQUAL(send(ends[0], &byte, 1, 0), 1);
    pid_t child = OK(fork());
    if (child == 0) {
        EQUAL(recv(ends[1], &byte, 1, 0), 1);
        _exit(stat("/", &about) == 0 ? byte : 1);
    }
    EQUAL(wait_for(child), 7);
    // A guess that everybody waits for fails.
    puts(syscall(0x5bed, 2, id, 0) == 0 ? "right" : "failed");
    return 0;
}"#;
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("pair.c"), dir.path().join("pair"));
    std::fs::write(&source, PROGRAM).unwrap();
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O1", "-static", "-I", headers]).arg(&source).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success());
    // What the child receives is a guess that is right, and its look at `/`, from the same checkpoint, one that is not.
    let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_speculator"));
    let output = run.args(["run", "--inject=read:0%:500,stat:100%:20", "--"]).arg(&program).output().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), ("right\n", ""));
}
