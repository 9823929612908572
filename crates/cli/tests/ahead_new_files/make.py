"""Make files while a guess is open, and say what was seen of them: arguments are the directory, how the guess ends, and what makes them."""
import contextlib
import ctypes
import io
import os
import sys

sys.path.append(os.path.dirname(__file__) + "/../ahead_files")
from manifest import tell

libc = ctypes.CDLL(None)
SPECULATE, BEGIN, COMMIT, FAIL = 0x5BED, 1, 2, 3
CREATE = os.O_CREAT | os.O_EXCL
seen = []
open_files = []


def put(path, text, mode="w"):
    with open(path, mode) as file:
        file.write(text)


def make(path, flags=CREATE | os.O_RDWR, mode=0o666):
    open_files.append(os.open(path, flags, mode))
    return open_files[-1]


def see(file):
    """What does not differ from run to run. Inode and times must be the same afterwards."""
    s = os.fstat(file) if isinstance(file, int) else os.stat(file)
    seen.append((oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink, s.st_size, s.st_blksize))
    return s.st_ino, s.st_mtime_ns


def fails(path):
    """Why it cannot be made: another one is there."""
    try:
        make(path)
    except OSError as error:
        return error.errno


def errno_of(call, *arguments):
    """0 if it succeeds."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def flags(fd):
    import fcntl
    seen.append(oct(fcntl.fcntl(fd, fcntl.F_GETFL)))


def tell_self():
    """What a rollback puts back of the process."""
    words = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmLck")]
    print(*words, open("/proc/self/coredump_filter").read().strip(), flush=True)


root, end, change = sys.argv[1:]
os.chdir(root)
os.umask(0o022)
put("a", "hello\n")
os.mkdir("shared")
os.chown("shared", 0, 7)
os.chmod("shared", 0o2775)
if end == "fail":
    # Reading may change a file's time of access once.
    with contextlib.redirect_stdout(io.StringIO()):
        tell(root, True)
    tell(root, True)
    tell_self()
    print("==", flush=True)
number = libc.syscall(SPECULATE, BEGIN, 0) if end else 0
if number >= 0:
    exec(change)
    kept = {fd: see(fd) for fd in open_files}
    if end:
        libc.syscall(SPECULATE, FAIL if end == "fail" else COMMIT, number)
    for fd, before in kept.items():
        if see(fd) != before:
            print("WRONG", before, see(fd))
        os.close(fd)
    print(seen, flush=True)
elif end != "fail":
    print("WRONG, it failed", flush=True)
tell(root, end == "fail")
if end == "fail":
    tell_self()
