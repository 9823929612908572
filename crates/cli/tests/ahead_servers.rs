//! TCP servers that a guess starts (decision 0328): clients inside that depend on the same guess meet them as natively,
//! nobody outside sees them before the guess was right, and nothing is left of them if it was wrong.

use crate::ahead_new_files::{errors, folder, has_never_been, has_root, is_as_natively, speculator, text};
use crate::support::guess::{check_failure, check_success};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// None of these waits for the guess.
const CHANGES: &[&str] = &[
    // The client is a child, which is over before it is accepted; then it is asked back.
    "s = serve(); p = child(lambda c: (c.sendall(b'hello'), c.shutdown(1), all_of(c))[2] == b'HELLO', s)\n\
     a, n = s.accept(); seen.append((n == a.getpeername(), a.getsockname() == s.getsockname(), all_of(a)))\n\
     a.sendall(b'HELLO'); a.close(); seen.append(status(p)); s.close()",
    "s = serve(); p = child(lambda c: c.sendall(b'early') or 1, s); seen.append(status(p)); a, _ = s.accept()\n\
     seen.append((all_of(a), poll(a))); a.close(); s.close()",
    // The server is a child that makes one of its own for each client.
    "s = serve()\nif os.fork() == 0:\n  for i in range(3):\n    a, _ = s.accept()\n    \
     if os.fork() == 0: a.setsockopt(6, 1, 1); a.sendall(a.recv(9) * 2); a.shutdown(2); os._exit(i)\n    a.close()\n  \
     os._exit(sum(os.wait()[1] >> 8 for _ in range(3)))\n\
     for i in range(3): c = client(s); c.sendall(b'%d' % i); seen.append((all_of(c), poll(c))); c.close()\n\
     seen.append(os.wait()[1] >> 8); s.close()",
    // Threads; more than there is room for; every way to send and to receive.
    "import hashlib, threading; s = serve(); h = hashlib.md5()\n\
     def take():\n  a, _ = s.accept()\n  while d := a.recv(50000): h.update(d)\n  a.close()\n\
     t = threading.Thread(target=take); t.start(); c = client(s); [c.sendall(bytes([i]) * 100000) for i in range(40)]\n\
     c.close(); t.join(); seen.append(h.hexdigest()); s.close()",
    "s = serve(); c = client(s); a, _ = s.accept(); c.sendmsg([b'one', b'two']); seen.append(a.recvmsg(4)[0])\n\
     os.write(c.fileno(), b'!'); seen.append((a.recv(1, socket.MSG_PEEK), os.read(a.fileno(), 9))); c.setblocking(0)\n\
     seen.append(errno_of(c.recv, 9)); a.sendall(b'abc'); seen.append(a.getsockopt(6, 1)); select.select([c], [], [])\n\
     seen.append(c.recv(3, socket.MSG_WAITALL)); seen.append(struct.unpack('i', fcntl.ioctl(c, 0x541b, b'    ')))\n\
     a.close(); select.select([c], [], []); seen.append((c.recv(9), poll(c))); c.close(); s.close()",
    // Who does not wait; who watches.
    "s = serve(); s.setblocking(0); seen.append(errno_of(s.accept)); e = select.epoll(); e.register(s, 1)\n\
     c = socket.socket(); c.setblocking(0); seen.append(c.connect_ex(s.getsockname()) in (0, 115))\n\
     select.select([], [c], []); seen.append(c.getsockopt(1, 4)); seen.append([n for _, n in e.poll()])\n\
     a, _ = s.accept(); e.register(a, 1); c.send(b'x'); seen.append([n for _, n in e.poll()]); seen.append(a.recv(9))\n\
     c.close(); seen.append([n for _, n in e.poll()]); a.close(); e.close(); s.close()",
    // What was not read, or not accepted, makes a reset.
    "s = serve(); n = s.getsockname(); c = client(s); a, _ = s.accept(); c.send(b'unread')\n\
     select.select([a], [], []); a.close()\n\
     seen.append(errno_of(c.recv, 9)); d = client(s); s.close(); select.select([d], [], [])\n\
     seen.append(errno_of(d.recv, 9))\n\
     seen.append(errno_of(socket.create_connection, n))",
    // A port that was chosen, taken, and given up; addresses.
    "n = free(); s = serve(n); seen.append(errno_of(serve, n)); t = socket.socket(); seen.append(errno_of(t.bind, n))\n\
     c = client(s); a, _ = s.accept(); seen.append(c.getpeername() == n); c.close(); all_of(a); a.close(); s.close()\n\
     s = serve(n); s.close(); t.close(); put('new', '')",
    "for f, h in ((socket.AF_INET6, '::1'), (socket.AF_INET6, '::'), (socket.AF_INET, '')):\n  \
     s = socket.socket(f); s.bind((h, 0)); s.listen(); p = s.getsockname()[1]\n  \
     for to in (('::1',) if f == socket.AF_INET6 else ()) + (() if h == '::1' else ('127.0.0.1',)):\n    \
     c = socket.create_connection((to, p)); a, n = s.accept(); a.send(b'x')\n    \
     seen.append((c.recv(9), n[0])); c.close(); a.close()\n  \
     s.close()",
    // One with several threads is ended by a signal, as tests end their servers.
    "import subprocess\nfor n in (signal.SIGTERM, signal.SIGKILL):\n  p = subprocess.Popen([sys.executable, '-c', \
     'import http.server as h; s = h.ThreadingHTTPServer((\"127.0.0.1\", 0), h.SimpleHTTPRequestHandler); \
     s.RequestHandlerClass.log_message = lambda *a: 0; print(s.server_port, flush=True); s.serve_forever()'], \
     stdout=subprocess.PIPE)\n  \
     c = socket.create_connection(('127.0.0.1', int(p.stdout.readline())))\n  \
     c.sendall(b'HEAD /none HTTP/1.0\\r\\n\\r\\n'); seen.append(all_of(c)[:12]); c.close(); p.send_signal(n)\n  \
     seen.append(p.wait()); p.stdout.close()",
    "import threading, time; r, w = os.pipe(); p = os.fork()\nif p == 0:\n  for _ in range(3): \
     threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n  \
     os.write(w, b'x'); signal.pause()\n\
     os.close(w); seen.append(os.read(r, 1)); os.kill(p, 9); seen.append((os.wait()[1], os.read(r, 1))); os.close(r)\n\
     put('new', '')",
    // Executed programs have what they inherit.
    "s = serve(); os.set_inheritable(s.fileno(), True)\nif os.fork() == 0: os.execlp('python3', 'python3', '-c', \
     'import socket; s = socket.socket(fileno=%d); a, _ = s.accept(); a.sendall(a.recv(9)[::-1])' % s.fileno())\n\
     c = client(s); c.sendall(b'back'); seen.append((all_of(c), os.wait()[1])); c.close(); s.close(); put('new', '')",
];

const BEFORE: &str = "import fcntl, select, signal, socket, struct; signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n\
     def serve(name=('127.0.0.1', 0)):\n  s = socket.socket(); s.setsockopt(1, 2, 1)\n  \
     s.bind(name); s.listen(); return s\n\
     def free(): s = serve(); n = s.getsockname(); s.close(); return n\n\
     def client(s): return socket.create_connection(s.getsockname())\n\
     def all_of(s): return b''.join(iter(lambda: s.recv(99999), b''))\n\
     def poll(s): p = select.poll(); p.register(s, 5); return [n for _, n in p.poll()]\n\
     def status(p): return os.waitpid(p, 0)[1] >> 8\n\
     def child(do, s):\n  p = os.fork()\n  if p == 0: os._exit(do(client(s)))\n  return p\n";

#[test]
fn servers_of_a_right_guess_are_as_natively() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| is_as_natively(folder, &format!("{BEFORE}{what}")));
}

#[test]
fn servers_of_a_wrong_guess_have_never_been() {
    if !has_root() {
        return;
    }
    CHANGES.iter().for_each(|what| has_never_been(folder, &format!("{BEFORE}{what}")));
}

/// They wait at none of these calls, and a port of a wrong guess can be bound again at once, also by who shares none.
#[test]
fn nobody_waits_and_the_port_is_free_again() {
    let program = r#"
probe = socket.socket(); probe.bind(('127.0.0.1', 0)); port = probe.getsockname()[1]; probe.close()
guess = begin()
server = socket.socket(); server.bind(('127.0.0.1', port)); server.listen()
client = socket.create_connection(('127.0.0.1', port)); line, _ = server.accept()
# The server ends the connection, and its port would stay taken for a while.
line.sendall(b'word'); line.close(); show(client.recv(9), client.recv(9)); client.close(); server.close()
if guess >= 0: finish(guess)
"#;
    let calls = ["bind", "listen", "connect", "accept4", "recvfrom", "sendto", "close"];
    check_failure(program, "b'word' b''\n", &calls);
    check_success(program, "b'word' b''\n", &calls);
}

/// A port that nobody uses at this moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server starts on a guess that lasts a second; the time when that is over, and when a client outside got through.
fn meet_from_outside(end: &'static str) -> (String, f64, Option<f64>) {
    let port = free_port();
    let program = format!(
        "
import ctypes, os, select, socket, time
call = ctypes.CDLL(None).syscall
guess = call(0x5bed, 1, 0)
if guess < 0: print('failed', time.time()); raise SystemExit
server = socket.socket(); server.bind(('127.0.0.1', {port})); server.listen()
inside = socket.create_connection(('127.0.0.1', {port})); line, _ = server.accept(); line.send(b'x'); inside.recv(1)
time.sleep(1); over = time.time(); call(0x5bed, {}, guess)
outside, _ = server.accept(); outside.send(b'y'); print('right', over)
",
        if end == "fail" { 3 } else { 2 }
    );
    let inside = std::thread::spawn(move || speculator().args(["python3", "-c", &program]).output().unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut met = None;
    while !inside.is_finished() && met.is_none() {
        let connection = TcpStream::connect_timeout(&address, Duration::from_millis(100));
        met = connection.is_ok().then(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64());
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = inside.join().unwrap();
    assert_eq!(errors(&output), "");
    let (how, over) = text(&output).trim().split_once(' ').map(|(how, at)| (how.to_owned(), at.to_owned())).unwrap();
    (how, over.parse().unwrap(), met)
}

#[test]
fn nobody_outside_meets_a_server_before_its_guess_was_right() {
    let (how, over, met) = meet_from_outside("commit");
    assert!(how == "right" && met.is_some_and(|met| met > over), "{how} {over} {met:?}");
    let (how, over, met) = meet_from_outside("fail");
    assert_eq!((how.as_str(), met), ("failed", None), "{over}");
}

/// A server of a younger guess at the same port stays unseen when the guess of an older server was right.
#[test]
fn a_server_of_a_younger_guess_stays_unseen() {
    let port = free_port();
    let program = format!(
        "
import ctypes, socket, time
call = ctypes.CDLL(None).syscall
def serve():
    server = socket.socket(); server.setsockopt(1, 2, 1); server.bind(('127.0.0.1', {port})); server.listen()
    return server
one = call(0x5bed, 1, 0); first = serve(); client = socket.create_connection(first.getsockname()); first.close()
two = call(0x5bed, 1, 0)
if two >= 0: server = serve(); call(0x5bed, 2, one); time.sleep(1); call(0x5bed, 3, two)
print(two)
"
    );
    let inside = std::thread::spawn(move || speculator().args(["python3", "-c", &program]).output().unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    while !inside.is_finished() {
        assert!(TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err());
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = inside.join().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), ("-1\n", ""));
}

/// Who does not depend on the guess waits for it: to bind the port, and to connect to it.
#[test]
fn who_does_not_guess_waits_for_the_port() {
    let program = r#"
probe = socket.socket(); probe.bind(('127.0.0.1', 0)); port = probe.getsockname()[1]; probe.close()
def tries():
    time.sleep(0.5); other = socket.socket()
    result = other.connect_ex(('127.0.0.1', port)) if kind else 0
    if not kind:
        try: other.bind(('127.0.0.1', port))
        except OSError as error: result = error.errno
    return result
for kind in (0, 1):
    child = os.fork()
    if child == 0: os._exit(tries())
    guess = begin()
    if guess >= 0:
        server = socket.socket(); server.bind(('127.0.0.1', port)); server.listen(); time.sleep(1.5); finish(guess)
    show(status(child))
    if guess >= 0: server.close()
"#;
    check_failure(program, "0\n111\n", &[]);
    check_success(program, "98\n0\n", &[]);
}

/// Run a Python program inside, which says this and is warned of nothing.
#[track_caller]
fn check_says(script: &str, stdout: &str) {
    let output = speculator().args([crate::support::python().as_str(), "-c", script]).output().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), (stdout, ""));
}

/// What is sent while a younger guess is open is held, and not overtaken by what is sent when that was right.
#[test]
fn nothing_overtakes_what_is_held() {
    let script = "
import ctypes, os, socket, sys
call = ctypes.CDLL(None).syscall
one = call(0x5bed, 1, 0)
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
client = socket.create_connection(server.getsockname()); line, _ = server.accept()
client.send(b'a'); two = call(0x5bed, 1, 0); client.send(b'b'); call(0x5bed, 2, two); client.send(b'c')
call(0x5bed, 2, one); print(line.recv(3, socket.MSG_WAITALL), flush=True)
";
    check_says(script, "b'abc'\n");
}

/// A younger guess takes the connection back to what it was when that began.
#[test]
fn a_connection_older_than_a_younger_guess_is_put_back() {
    let script = "
import ctypes, os, socket
call = ctypes.CDLL(None).syscall
one = call(0x5bed, 1, 0)
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
client = socket.create_connection(server.getsockname()); line, _ = server.accept()
client.send(b'before'); late = socket.create_connection(server.getsockname())
two = call(0x5bed, 1, 0)
if two >= 0:
    print(line.recv(3), flush=True); other, _ = server.accept(); line.close(); client.close()
    call(0x5bed, 3, two)
print(line.recv(99)); other, name = server.accept(); print(name == late.getsockname())
call(0x5bed, 2, one)
other.send(b'x'); print(late.recv(9)); line.close(); print(client.recv(9), flush=True)
";
    check_says(script, "b'before'\nTrue\nb'x'\nb''\n");
}
