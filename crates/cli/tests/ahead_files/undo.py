"""Make a tree, show it, change it speculatively, fail, and show it again: arguments are the directory and what changes it."""
import ctypes
import os
import shutil
import sys
import tempfile

from manifest import tell

libc = ctypes.CDLL(None)
SPECULATE, BEGIN, FAIL = 0x5BED, 1, 3
AT_FDCWD, NOREPLACE, EXCHANGE = -100, 1, 2


def rename2(old, new, flags):
    return libc.renameat2(AT_FDCWD, old, AT_FDCWD, new, flags)


def put(path, text, mode="w"):
    with open(path, mode) as file:
        file.write(text)


def make():
    put("a", "hello\n")
    put("b", "world\n")
    os.makedirs("d/sub")
    os.link("a", "hard")
    os.symlink("a", "sym")
    with open("sparse", "wb") as file:
        file.truncate(1000000)
        file.seek(500000)
        file.write(b"X")
    os.chmod("b", 0o4755)
    os.chown("d", 1, 2)
    os.setxattr("a", "user.k", b"v")
    put("big", "0123456789" * 3000)
    os.mkfifo("fifo")
    put("d/f", "deep")
    os.utime("a", ns=(5, 7777777777))
    os.utime("d", ns=(5, 123456789))


root, change = sys.argv[1:]
os.chdir(root)
make()
opened = os.open("b", os.O_RDWR)
tell(root, True)
print("==", flush=True)
number = libc.syscall(SPECULATE, BEGIN, 0)
if number > 0:
    exec(change)
    libc.syscall(SPECULATE, FAIL, number)
    print("a failed speculation went on")
else:
    tell(root, True)
    print("position", os.lseek(opened, 0, os.SEEK_CUR), flush=True)
