//! Connections that begin while something is speculative: a client that is taken back was never there, what a server
//! has accepted it accepts again.

use crate::support;

use support::guess::{check_failure, check_success};

/// A server that takes one client after the other and answers each with its word in capitals, how many there were, how
/// many guesses it depends on.
const SERVER: &str = r#"
listener = socket.socket(socket.AF_UNIX, socket.KIND); listener.bind(NAME); listener.listen(5)
server = os.fork()
if server == 0:
    count = 0
    while True:
        READY
        line, _ = listener.accept(); count += 1
        word = line.recv(100)
        line.sendall(b'%s %d %d' % (word.upper(), count, depth())); line.close()
        if word == b'stop': os._exit(count)
listener.close()
def ask(word):
    line = socket.socket(socket.AF_UNIX, socket.KIND); SETTINGS; line.connect(NAME)
    line.sendall(word); answer = line.recv(100); line.close(); return answer
"#;

fn server(kind: &str, name: &str, ready: &str, settings: &str) -> String {
    SERVER.replace("KIND", kind).replace("NAME", name).replace("READY", ready).replace("SETTINGS", settings)
}

const CLIENT: &str = r#"
show(ask(b'first'))
guess = begin()
if guess < 0: show(ask(b'again'))
else: show(ask(b'guessed'), ask(b'twice')); finish(guess)
show(ask(b'stop')); show(status(server))
"#;

#[track_caller]
fn check_client(server: &str) {
    let program = format!("{server}{CLIENT}");
    let calls = ["connect", "accept4", "recvfrom", "close", "fcntl", "ioctl"];
    check_failure(&program, "b'FIRST 1 0'\nb'AGAIN 2 0'\nb'STOP 3 0'\n3\n", &calls);
    check_success(&program, "b'FIRST 1 0'\nb'GUESSED 2 1' b'TWICE 3 1'\nb'STOP 4 0'\n4\n", &calls);
}

#[test]
fn a_client_that_is_taken_back_was_never_there() {
    check_client(&server("SOCK_STREAM", "'s'", "pass", "pass"));
}

#[test]
fn a_client_of_packets_is_taken_back() {
    check_client(&server("SOCK_SEQPACKET", "'s'", "pass", "pass"));
}

#[test]
fn a_server_that_polls_is_taken_back() {
    let ready = "select.select([listener], [], [])";
    check_client(&server("SOCK_STREAM", "'s'", ready, "line.setblocking(False); line.setblocking(True)"));
    let ready = "e = select.epoll(); e.register(listener, select.EPOLLIN); e.poll(); e.close()";
    let program = format!("{}{CLIENT}", server("SOCK_STREAM", "'s'", ready, "pass"));
    check_failure(&program, "b'FIRST 1 0'\nb'AGAIN 2 0'\nb'STOP 3 0'\n3\n", &["connect"]);
}

#[test]
fn a_name_that_is_no_file_is_found() {
    let name = "b'\\0speculator-test-%d' % os.getpgid(0)";
    let program = format!("os.setpgid(0, 0)\n{}{CLIENT}", server("SOCK_STREAM", name, "pass", "pass"));
    check_failure(&program, "b'FIRST 1 0'\nb'AGAIN 2 0'\nb'STOP 3 0'\n3\n", &["connect", "accept4"]);
}

/// Clients that wait before the guess: they are accepted in their order, each once, and whoever asks sees that they
/// wait.
#[test]
fn what_was_accepted_is_accepted_again() {
    let program = r#"
listener = socket.socket(socket.AF_UNIX); listener.bind('s'); listener.listen(5)
lines = [socket.socket(socket.AF_UNIX) for _ in range(3)]
lines[1].bind('client')
for number, line in enumerate(lines): line.connect('s'); line.sendall(b'client %d' % number)
listener.setblocking(False)
def ready(): return len(select.select([listener], [], [], 0)[0])
def accept():
    line, name = listener.accept()
    return line.fileno(), line.getblocking(), name, line.recv(100), line
guess = begin()
if guess < 0:
    for _ in range(3): show(ready(), *accept()[:4])
    show(ready())
else:
    a, b = accept(), accept()
    a[4].sendall(b'WRONG'); show(ready(), *a[:4], *b[:4])
    finish(guess)
    show(ready(), *accept()[:4], ready())
"#;
    let calls = ["accept4", "recvfrom", "sendto"];
    let again = "1 7 True  b'client 0'\n1 7 True client b'client 1'\n1 7 True  b'client 2'\n0\n";
    check_failure(program, again, &calls);
    let guessed = "1 7 True  b'client 0' 8 True client b'client 1'\n1 9 True  b'client 2' 0\n";
    check_success(program, guessed, &calls);
}

/// Rust's standard library learns by it whether a program could be executed. Threads have no permits, whose end would
/// wake who waits.
#[test]
fn an_end_that_exec_closes_is_heard_of() {
    for kind in ["SOCK_SEQPACKET", "SOCK_STREAM"] {
        let program = r#"
import threading
end = threading.Event(); threading.Thread(target=end.wait).start()
mine, its = socket.socketpair(socket.AF_UNIX, socket.KIND)
guess = begin()
if guess < 0: show('again')
else:
    out, into = os.pipe(); child = os.fork()
    if child == 0:
        mine.close(); os.dup2(out, 0); time.sleep(0.2); os.execlp('cat', 'cat')
    its.close(); show(mine.recv(8)); os.close(into); show(status(child)); finish(guess)
end.set()
"#;
        let program = program.replace("KIND", kind);
        check_failure(&program, "again\n", &["recvfrom", "execve"]);
        check_success(&program, "b''\n0\n", &["recvfrom", "execve"]);
    }
}

/// A child, which waits in the kernel or comes later, accepts what its parent was taken back from.
#[test]
fn somebody_else_accepts_it() {
    let program = r#"
listener = socket.socket(socket.AF_UNIX); listener.bind('s'); listener.listen(5)
line = socket.socket(socket.AF_UNIX); line.connect('s'); line.sendall(b'hello')
guess = begin()
if guess < 0:
    child = os.fork()
    if child == 0:
        other, _ = listener.accept(); other.sendall(other.recv(100).upper()); os._exit(3)
    show(line.recv(100), line.recv(100), status(child))
else:
    other, _ = listener.accept(); other.sendall(b'guessed'); show(line.recv(100)); finish(guess)
"#;
    check_failure(program, "b'HELLO' b'' 3\n", &["accept4"]);
    check_success(program, "b'guessed'\n", &["accept4"]);
}

/// What a guess has connected is gone with it, also where nobody has accepted it yet; who has waited longer keeps its
/// place.
#[test]
fn a_connection_that_was_never_made_waits_nowhere() {
    let program = r#"
listener = socket.socket(socket.AF_UNIX); listener.bind('s'); listener.listen(5)
listener.setblocking(False)
def connect(word): line = socket.socket(socket.AF_UNIX); line.connect('s'); return line
first = connect(b'first'); first.sendall(b'first')
guess = begin()
if guess >= 0:
    guessed = connect(b'guessed'), connect(b'more'); finish(guess)
last = connect(b'last'); last.sendall(b'last')
count = 0
while select.select([listener], [], [], 0)[0]:
    line, _ = listener.accept(); line.setblocking(False); count += 1
    try: show(line.recv(100))
    except BlockingIOError: show('nothing')
show(count)
"#;
    check_failure(program, "b'first'\nb'last'\n2\n", &["connect"]);
    check_success(program, "b'first'\nnothing\nnothing\nb'last'\n4\n", &["connect"]);
}

/// A client leaves on a guess before it is accepted: who reads there then is not told of an end that never was.
#[test]
fn a_client_that_was_not_accepted_yet_has_not_left() {
    let program = r#"
listener = socket.socket(socket.AF_UNIX); listener.bind('s'); listener.listen()
out, into = os.pipe()
client = os.fork()
if client == 0:
    s = socket.socket(socket.AF_UNIX); s.connect('s')
    if os.read(out, 1) == b'x': LEAVES
    s.send(b'hello'); os._exit(0)
guesser = os.fork()
if guesser == 0:
    guess = begin()
    if guess >= 0: os.write(into, b'x'); time.sleep(0.8); finish(guess)
    os.write(into, b'y'); os._exit(0)
time.sleep(0.4)
server, _ = listener.accept()
show(server.recv(9)); show(status(client), status(guesser))
"#;
    for leaves in ["os._exit(1)", "s.close(); time.sleep(9)"] {
        check_failure(&program.replace("LEAVES", leaves), "b'hello'\n0 0\n", &[]);
    }
}

/// A client that waits in front of a socket that nobody listens with any more is reset.
#[test]
fn who_is_not_accepted_again_is_reset() {
    let program = r#"
listener = socket.socket(socket.AF_UNIX); listener.bind('s'); listener.listen(5)
line = socket.socket(socket.AF_UNIX); line.connect('s')
guess = begin()
if guess < 0:
    listener.close()
    try: show(line.recv(100))
    except ConnectionResetError: show('reset')
else:
    other, _ = listener.accept(); finish(guess); listener.close(); other.close(); show(line.recv(100))
"#;
    check_failure(program, "reset\n", &["accept4"]);
    check_success(program, "b''\n", &["accept4"]);
}

/// A guess has closed the socket that listens: nobody gets in until it is known.
#[test]
fn nobody_connects_to_what_a_guess_has_closed() {
    let unix = "socket.socket(socket.AF_UNIX)";
    let families = [
        (format!("{unix}; listener.bind('s'); listener.listen(5)"), format!("{unix}.connect('s')")),
        ("socket.create_server(('127.0.0.1', 0))".into(), "socket.create_connection(listener_name)".into()),
    ];
    let program = r#"
listener = LISTENS; listener_name = listener.getsockname()
reader, writer = os.pipe(); back, told = os.pipe()
child = os.fork()
if child == 0:
    listener.close(); os.read(reader, 1)
    try: CONNECTS; os.write(told, b'connected')
    except ConnectionRefusedError: os.write(told, b'refused')
    os._exit(0)
guess = begin()
if guess >= 0: listener.close()
os.write(writer, b'x')
if guess >= 0: time.sleep(0.2); finish(guess)
show(os.read(back, 100)); show(status(child))
"#;
    for (listens, connects) in families {
        let program = program.replace("LISTENS", &listens).replace("CONNECTS", &connects);
        check_failure(&program, "b'connected'\n0\n", &[]);
        check_success(&program, "b'refused'\n0\n", &[]);
    }
}

/// It has answered and ended before anybody reads what it said.
#[test]
fn what_was_sent_before_a_hang_up_is_received() {
    let program = r#"
here, there = socket.socketpair(socket.AF_UNIX, socket.KIND)
child = os.fork()
if child == 0:
    here.close(); there.sendall(there.recv(100).upper()); there.sendall(b'end'); there.close(); os._exit(3)
there.close()
guess = begin()
if guess < 0: show('again')
here.sendall(b'word'); ended = status(child)
show(here.recv(4), here.recv(100), here.recv(100), ended)
if guess >= 0: finish(guess)
"#;
    for kind in ["SOCK_STREAM", "SOCK_SEQPACKET"] {
        let program = program.replace("KIND", kind);
        let calls = ["sendto", "recvfrom", "close", "wait4"];
        check_failure(&program, "again\nb'WORD' b'end' b'' 3\n", &calls);
        check_success(&program, "b'WORD' b'end' b'' 3\n", &calls);
    }
}

/// It waits in the kernel, where the last end of its peer is open still, because a rollback would need it.
#[test]
fn who_waits_to_receive_hears_of_a_hang_up() {
    let program = r#"
here, there = socket.socketpair(socket.AF_UNIX, socket.KIND)
guess = begin()
if guess < 0: show('again')
child = os.fork()
if child == 0:
    here.close(); time.sleep(0.3); LEAVES
there.close()
show(here.recv(100), status(child))
if guess >= 0: finish(guess)
"#;
    let ways = [
        "there.sendall(b'x'); time.sleep(0.3); there.close(); os._exit(3)",
        "there.close(); os._exit(3)",
        "os._exit(3)",
    ];
    for (kind, leaves) in ["SOCK_STREAM", "SOCK_SEQPACKET"].into_iter().flat_map(|kind| ways.map(|way| (kind, way))) {
        let received = if leaves.contains("sendall") { "b'x'" } else { "b''" };
        let program = program.replace("KIND", kind).replace("LEAVES", leaves);
        check_failure(&program, &format!("again\n{received} 3\n"), &[]);
        check_success(&program, &format!("{received} 3\n"), &[]);
    }
}

/// It has ended without reading everything: a reader of packets hears of that before it receives anything, and nobody
/// can take that back.
#[test]
fn who_reads_packets_hears_of_a_reset_first() {
    let program = r#"
here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
gate, hold = os.pipe()
child = os.fork()
if child == 0:
    here.close(); os.read(gate, 1); there.sendall(there.recv(100).upper()); os._exit(3)
there.close()
guess = begin()
if guess < 0: show('again')
here.sendall(b'word'); here.sendall(b'more'); os.write(hold, b'x'); ended = status(child)
try: show(here.recv(100), ended)
except ConnectionResetError: show('reset', here.recv(100), ended)
if guess >= 0: finish(guess)
"#;
    check_failure(program, "again\nreset b'WORD' 3\n", &[]);
    check_success(program, "again\nreset b'WORD' 3\n", &[]);
}

/// An end that a guess has closed for writing: the other reads to the end, and talks on after the guess.
#[test]
fn a_shutdown_is_held_and_taken_back() {
    let program = r#"
here, there = socket.socketpair(socket.AF_UNIX, socket.KIND)
child = os.fork()
if child == 0:
    here.close()
    while True:
        word = there.recv(100)
        there.sendall(b'got ' + word)
        if word in (b'', b'stop'): os._exit(3)
there.close()
def ask(word): here.sendall(word); return here.recv(100)
show(ask(b'first'))
guess = begin()
if guess < 0: show(ask(b'again'), ask(b'stop'))
else:
    show(ask(b'guessed')); here.shutdown(socket.SHUT_WR); show(here.recv(100)); finish(guess)
    try: here.sendall(b'more')
    except BrokenPipeError: show('shut')
show(here.recv(100), status(child))
"#;
    for kind in ["SOCK_STREAM", "SOCK_SEQPACKET"] {
        let program = program.replace("KIND", kind);
        let calls = ["shutdown", "sendto"];
        check_failure(&program, "b'got first'\nb'got again' b'got stop'\nb'' 3\n", &calls);
        check_success(&program, "b'got first'\nb'got guessed'\nb'got '\nshut\nb'' 3\n", &["shutdown"]);
    }
}
