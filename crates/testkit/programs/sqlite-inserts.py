"""One insert a transaction; tells each id once its transaction is committed (002, 4.2 with a database in between)."""

import argparse
import socket
import sqlite3
import sys
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("dir")
arguments.add_argument("--count", type=int, default=200)
arguments.add_argument("--pause-us", type=int, default=0)
arguments.add_argument("--synchronous", default="FULL")
arguments.add_argument("--journal-mode", default="DELETE")
arguments.add_argument("--to", default="stdout")
options = arguments.parse_args()

if options.to == "stdout":
    tell = lambda line: (sys.stdout.write(line), sys.stdout.flush())
else:
    kind, port = options.to.split(":")
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    out.connect(("127.0.0.1", int(port)))
    tell = lambda line: out.sendall(line.encode())

database = sqlite3.connect(options.dir + "/test.db", isolation_level=None)
database.execute(f"PRAGMA journal_mode={options.journal_mode}").fetchall()
database.execute(f"PRAGMA synchronous={options.synchronous}")
database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, text TEXT)")
for number in range(options.count):
    database.execute("INSERT INTO item VALUES (?, ?)", (number, f"{number}:" + "x" * (number * 37 % 500)))
    tell(f"{number}\n")
    time.sleep(options.pause_us / 1e6)
database.close()
