"""Servers that make every request durable before they answer, and a client.

talk.py ask FAMILY FOLDER COUNT    a server and a client; prints how many of COUNT answers were right
talk.py serve FOLDER               a server; prints its port and serves one connection
talk.py relay FOLDER               the same, but another process of the world writes: over a Unix socket

Requests and answers are lines. Run it in an empty folder.
"""

import os
import socket
import sys


def listen(family):
    server = socket.socket(family)
    server.bind("name" if family == socket.AF_UNIX else ("127.0.0.1", 0))
    server.listen()
    return server


def in_child(work, *arguments):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(*arguments)
            status = 0
        finally:
            os._exit(status)
    return child


def await_child(child):
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("the other process failed")


def connect(server):
    client = socket.socket(server.family)
    client.connect(server.getsockname())
    server.close()
    return client


def answer(server, do):
    """Serves one connection."""
    connection = server.accept()[0]
    server.close()
    with connection, connection.makefile("rb") as requests:
        for request in requests:
            connection.sendall(do(request))


def write_to_log(server, folder):
    with open(os.path.join(folder, "log"), "ab", buffering=0) as log:

        def do(request):
            log.write(request)
            os.fsync(log.fileno())
            return b"did " + request

        answer(server, do)


def ask(family, folder, count):
    server = listen(socket.AF_UNIX if family == "unix" else socket.AF_INET)
    child = in_child(write_to_log, server, folder)
    right = 0
    with connect(server) as client, client.makefile("rb") as answers:
        for i in range(int(count)):
            client.sendall(b"%d\n" % i)
            right += answers.readline() == b"did %d\n" % i
        client.shutdown(socket.SHUT_WR)
        right += answers.readline() == b""
    await_child(child)
    print(right - 1, "right", flush=True)


def serve(folder):
    server = listen(socket.AF_INET)
    print(server.getsockname()[1], flush=True)
    write_to_log(server, folder)


def relay(folder):
    behind = listen(socket.AF_UNIX)
    child = in_child(write_to_log, behind, folder)
    server = listen(socket.AF_INET)
    print(server.getsockname()[1], flush=True)
    with connect(behind) as writer, writer.makefile("rb") as answers:

        def do(request):
            writer.sendall(request)
            return answers.readline()

        answer(server, do)
    await_child(child)


{"ask": ask, "serve": serve, "relay": relay}[sys.argv[1]](*sys.argv[2:])
