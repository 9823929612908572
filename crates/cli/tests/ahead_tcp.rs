//! TCP connections inside: what a guess sends is sent when it is known to be right, what it has read is read again.

use crate::support;

use support::guess::{check_failure, check_success};

/// A client that answers each word with itself in capitals, how many there were, how many guesses it depends on.
const LINE: &str = r#"
listener = socket.create_server(('127.0.0.1', 0)); address = listener.getsockname()
child = os.fork()
if child == 0:
    line = socket.create_connection(address); count = 0; listener.close()
    while word := line.recv(100):
        count += 1; line.sendall(word.upper() + b' %d %d' % (count, depth()))
    os._exit(count)
line, _ = listener.accept(); listener.close()
def ready(): return len(select.select([line], [], [], 0)[0])
def left(): return struct.unpack('i', fcntl.ioctl(line, 0x541b, b'    '))[0]
def ask(word): line.sendall(word); return line.recv(100)
show(ask(b'first'))
"#;

#[test]
fn what_was_read_is_read_again() {
    let program = r#"
line.sendall(b'early'); select.select([line], [], [])
guess = begin()
if guess < 0:
    show(ready(), left(), line.recv(3), left(), os.read(line.fileno(), 100), ready()); show(ask(b'again'))
else:
    show(line.recv(2), left(), line.recv(100), ready()); line.sendall(b'guessed'); finish(guess); show(line.recv(100))
line.close(); show(status(child))
"#;
    let program = format!("{LINE}{program}");
    let calls = ["recvfrom", "read", "sendto", "select", "ioctl"];
    let failed = "b'FIRST 1 0'\n1 9 b'EAR' 6 b'LY 2 0' 0\nb'AGAIN 3 0'\n3\n";
    check_failure(&program, failed, &calls);
    check_success(&program, "b'FIRST 1 0'\nb'EA' 7 b'RLY 2 0' 0\nb'GUESSED 3 0'\n3\n", &calls);
}

/// Every way of reading sees what is given again, and what has come since behind it.
#[test]
fn it_is_read_again_in_every_way() {
    let program = r#"
line.sendall(b'early'); select.select([line], [], [])
guess = begin()
if guess < 0:
    show(line.recv(4, socket.MSG_PEEK), *line.recvmsg(2)[:3], line.recv(100, socket.MSG_PEEK))
    line.sendall(b'more'); show(line.recv(15, socket.MSG_WAITALL), ready())
else:
    show(line.recvmsg(4)[0], line.recv(2, socket.MSG_WAITALL), line.recv(100)); finish(guess)
line.close(); show(status(child))
"#;
    let program = format!("{LINE}{program}");
    let calls = ["recvfrom", "recvmsg"];
    let failed = "b'FIRST 1 0'\nb'EARL' b'EA' [] 0 b'RLY 2 0'\nb'RLY 2 0MORE 3 0' 0\n3\n";
    check_failure(&program, failed, &calls);
    check_success(&program, "b'FIRST 1 0'\nb'EARL' b'Y ' b'2 0'\n2\n", &calls);
}

/// What is given again and was not read when its reader closes the connection makes a reset of the end.
#[test]
fn who_does_not_read_again_resets() {
    let program = r#"
listener = socket.create_server(('127.0.0.1', 0)); address = listener.getsockname()
child = os.fork()
if child == 0:
    line = socket.create_connection(address); line.sendall(b'unread')
    try: show('end', line.recv(100))
    except ConnectionResetError: show('reset')
    os._exit(0)
line, _ = listener.accept(); select.select([line], [], [])
guess = begin()
if guess >= 0: show(line.recv(100)); finish(guess)
line.close(); show(status(child))
"#;
    check_failure(program, "reset\n0\n", &["recvfrom"]);
    check_success(program, "b'unread'\nend b''\n0\n", &["recvfrom"]);
}

#[test]
fn what_was_accepted_is_accepted_again() {
    let program = r#"
listener = socket.create_server(('127.0.0.1', 0)); address = listener.getsockname()
lines = [socket.create_connection(address) for _ in range(3)]
for number, line in enumerate(lines): line.sendall(b'client %d' % number)
names = {line.getsockname(): number for number, line in enumerate(lines)}
def accept(): line, name = listener.accept(); return line.fileno(), names[name], line.recv(100), line
guess = begin()
if guess < 0:
    for _ in range(3): show(len(select.select([listener], [], [], 0)[0]), *accept()[:3])
else:
    a, b = accept(), accept(); show(*a[:3], *b[:3]); finish(guess); show(*accept()[:3])
show(len(select.select([listener], [], [], 0)[0]))
"#;
    let calls = ["accept4", "recvfrom"];
    check_failure(program, "1 7 0 b'client 0'\n1 7 1 b'client 1'\n1 7 2 b'client 2'\n0\n", &calls);
    check_success(program, "7 0 b'client 0' 8 1 b'client 1'\n9 2 b'client 2'\n0\n", &calls);
}

/// More than the connection has room for: what is sent later comes later, and the end last.
#[test]
fn what_was_held_is_sent_in_its_order() {
    let program = r#"
import hashlib
listener = socket.create_server(('127.0.0.1', 0)); address = listener.getsockname()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    line = socket.create_connection(address); listener.close(); os.close(writer)
    os.read(reader, 1); whole = hashlib.sha256(); count = 0
    while part := line.recv(30000): whole.update(part); count += len(part)
    show(count, whole.hexdigest()[:8]); os._exit(0)
line, _ = listener.accept(); listener.close(); os.close(reader)
def send(size):
    for n in range(16): line.sendall(bytes([n]) * size)
guess = begin()
if guess >= 0: send(500000); finish(guess)
else: os.close(writer); send(500000)
if guess >= 0: os.close(writer)
line.sendall(b'tail'); line.close(); show(status(child))
"#;
    check_failure(program, "8000004 SUM\n0\n".replace("SUM", SUM).as_str(), &[]);
    check_success(program, "8000004 SUM\n0\n".replace("SUM", SUM).as_str(), &["sendto"]);
}

/// Of sixteen times half a million bytes 0 to 15, and "tail".
const SUM: &str = "d520d2ce";
