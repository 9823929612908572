"""A server and its clients: each tells what the server has acknowledged to it.

    servers.py prepare KIND DIR      what has to be there before the server starts
    servers.py run KIND DIR [--count N] [--pause-us N] [--to TARGET] -- [PREFIX...]
    servers.py recover KIND DIR      starts the server on what a crash has left; prints what it has, as it was told
    servers.py serve-sqlite DIR PORT the server of the kind sqlite

Only the server runs inside PREFIX; the clients are outside.
"""

import argparse
import glob
import os
import pwd
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time

CLIENTS = 3
PATIENCE = 60
HOST = "127.0.0.1"


def fail(what):
    sys.exit(f"servers.py: {what}")


def receive(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            fail("a server has hung up")
        data += part
    return data


class PostgreSQL:
    def __init__(self, dir):
        self.data = os.path.join(dir, "data")

    def tool(self, name):
        found = shutil.which(name, path=":".join(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]))
        return found or fail("no PostgreSQL: install postgresql")

    def as_user(self, words):
        # It refuses to run as root.
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        return user + words if os.geteuid() == 0 else words

    def single(self, statements):
        words = [self.tool("postgres"), "--single", "-D", self.data, "-c", "fsync=off"]
        words += ["-c", "log_min_messages=panic", "postgres"]
        done = subprocess.run(self.as_user(words), input=statements + "\n", capture_output=True, text=True, cwd="/")
        if done.returncode != 0 or "ERROR" in done.stderr:
            fail(f"postgres --single: {done.returncode} {done.stderr.strip()}")

    def prepare(self):
        os.mkdir(self.data, 0o700)
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.data, user.pw_uid, user.pw_gid)
        options = ["-D", self.data, "-A", "trust", "-U", "postgres", "--no-sync", "--wal-segsize=1", "--no-locale"]
        subprocess.run(self.as_user([self.tool("initdb")] + options), check=True, stdout=subprocess.DEVNULL, cwd="/")
        self.single("CREATE TABLE item (client int, number int, PRIMARY KEY (client, number))")

    def server(self, port):
        options = {"listen_addresses": HOST, "unix_socket_directories": ""}
        options |= {"max_wal_size": "4MB", "min_wal_size": "2MB"}
        words = [self.tool("postgres"), "-D", self.data, "-p", str(port)]
        return self.as_user(words + [word for item in options.items() for word in ("-c", "=".join(item))])

    def ask(self, connection, kind, body):
        connection.sendall(kind + struct.pack("!I", len(body) + 4) + body)
        while True:
            answer, length = struct.unpack("!cI", receive(connection, 5))
            body = receive(connection, length - 4)
            if answer == b"E":
                return body.replace(b"\0", b" ").decode()
            if answer == b"Z":
                return None

    def connect(self, port):
        connection = socket.create_connection((HOST, port))
        refusal = self.ask(connection, b"", struct.pack("!I", 196608) + b"user\0postgres\0database\0postgres\0\0")
        if refusal:
            raise ConnectionError(refusal)
        return connection

    def insert(self, connection, client, number):
        error = self.ask(connection, b"Q", f"INSERT INTO item VALUES ({client}, {number})\0".encode())
        if error:
            fail(error)

    def recover(self):
        # A crash leaves a file that names a process.
        if os.path.exists(os.path.join(self.data, "postmaster.pid")):
            os.remove(os.path.join(self.data, "postmaster.pid"))
        found = os.path.join(self.data, "found")
        self.single(f"COPY (SELECT client, number FROM item ORDER BY 1, 2) TO '{found}' (DELIMITER ' ')")
        return open(found).read()


class Redis:
    def __init__(self, dir):
        self.dir = dir

    def prepare(self):
        if not shutil.which("redis-server"):
            fail("no redis: install redis-server")

    def options(self):
        return ["--dir", self.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always"]

    def server(self, port):
        return ["redis-server", "--bind", HOST, "--port", str(port), "--daemonize", "no"] + self.options()

    def connect(self, port):
        return self.greet(socket.create_connection((HOST, port)))

    def greet(self, connection):
        if self.ask(connection, "PING") != "+PONG":
            raise ConnectionError("it is loading")
        return connection

    def line(self, connection):
        line = b""
        while not line.endswith(b"\r\n"):
            line += receive(connection, 1)
        return line.strip().decode()

    def ask(self, connection, command):
        connection.sendall(command.encode() + b"\r\n")
        return self.line(connection)

    def insert(self, connection, client, number):
        answer = self.ask(connection, f"SET {client}:{number} {'x' * (1 + number * 37 % 500)}")
        if answer != "+OK":
            fail(f"redis says {answer}")

    def recover(self):
        # On a socket with a name: a port could be anybody's.
        path = f"/tmp/crash-redis-{os.getpid()}"
        words = ["redis-server", "--port", "0", "--unixsocket", path, "--daemonize", "no"] + self.options()
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            def connect(_):
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(path)
                return self.greet(connection)

            connection = connect_when_ready(connect, None, server)
            count = int(self.ask(connection, "KEYS *")[1:])
            keys = []
            for _ in range(count):
                self.line(connection)
                keys.append(tuple(map(int, self.line(connection).split(":"))))
            return "".join(f"{client} {number}\n" for client, number in sorted(keys))
        finally:
            server.kill()
            server.wait()
            if os.path.exists(path):
                os.remove(path)


class SQLite:
    def __init__(self, dir):
        self.dir = dir
        self.file = os.path.join(dir, "test.db")

    def prepare(self):
        database = sqlite3.connect(self.file)
        database.execute("CREATE TABLE item (client INTEGER, number INTEGER, PRIMARY KEY (client, number))")
        database.close()

    def server(self, port):
        return [sys.executable, "-S", os.path.abspath(__file__), "serve-sqlite", self.dir, str(port)]

    def serve(self, port):
        database = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA synchronous=EXTRA")
        turn = threading.Lock()

        def answer(connection):
            for line in connection.makefile():
                with turn:
                    database.execute("INSERT INTO item VALUES (?, ?)", tuple(map(int, line.split())))
                connection.sendall(b"done\n")

        listener = socket.create_server((HOST, port))
        while True:
            threading.Thread(target=answer, args=[listener.accept()[0]], daemon=True).start()

    def connect(self, port):
        return socket.create_connection((HOST, port))

    def insert(self, connection, client, number):
        connection.sendall(f"{client} {number}\n".encode())
        receive(connection, len("done\n"))

    def recover(self):
        database = sqlite3.connect(self.file)
        answer = database.execute("PRAGMA integrity_check").fetchone()[0]
        if answer != "ok":
            fail(f"integrity check: {answer}")
        rows = database.execute("SELECT client, number FROM item ORDER BY 1, 2")
        return "".join(f"{client} {number}\n" for client, number in rows)


KINDS = {"postgresql": PostgreSQL, "redis": Redis, "sqlite": SQLite}


def connect_when_ready(connect, port, server):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return connect(port)
        except (OSError, SystemExit) as error:
            if server.poll() is not None:
                fail(f"the server ended: {server.returncode}")
            if time.monotonic() > end:
                fail(f"the server does not answer: {error}")
            time.sleep(0.01)


def teller(target):
    turn = threading.Lock()
    if target == "stdout":
        write = lambda text: os.write(1, text)
    else:
        kind, port = target.split(":")
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        out.connect((HOST, int(port)))
        write = out.sendall

    def tell(client, number):
        with turn:
            write(f"{client} {number}\n".encode())

    return tell


def run(kind, prefix, options):
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    nothing = subprocess.DEVNULL
    server = subprocess.Popen(prefix + kind.server(port), stdin=nothing, stdout=nothing)
    tell = teller(options.to)
    failures = []

    def ask(client):
        try:
            connection = connect_when_ready(kind.connect, port, server)
            for number in range(options.count // CLIENTS):
                kind.insert(connection, client, number)
                tell(client, number)
                time.sleep(options.pause_us / 1e6)
        except BaseException as error:
            failures.append(error)

    clients = [threading.Thread(target=ask, args=[client]) for client in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    server.terminate()
    server.wait(PATIENCE)
    if failures:
        fail(failures[0])


def main():
    if sys.argv[1] == "serve-sqlite":
        return SQLite(sys.argv[2]).serve(int(sys.argv[3]))
    arguments = argparse.ArgumentParser()
    arguments.add_argument("what", choices=["prepare", "run", "recover"])
    arguments.add_argument("kind", choices=KINDS)
    arguments.add_argument("dir")
    arguments.add_argument("--count", type=int, default=200)
    arguments.add_argument("--pause-us", type=int, default=0)
    arguments.add_argument("--to", default="stdout")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = arguments.parse_args(sys.argv[1:end])
    kind = KINDS[options.kind](options.dir)
    if options.what == "prepare":
        kind.prepare()
    elif options.what == "recover":
        sys.stdout.write(kind.recover())
    else:
        run(kind, sys.argv[end + 1 :], options)


main()
