//! Files that a speculative process makes on a disk (000, 6.4): there with the name once the guess is right, never
//! there if it is wrong, and whoever made one finds it as it would be natively.

use crate::support;

use rustix::fs::inotify;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::places::{await_running, pause, pause_until};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_new_files");
const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// None of these waits: whoever makes a file goes on with it.
const MAKES: &[&str] = &[
    "put('new', 'text')",
    "f = make('new', mode=0o640); os.write(f, b'abc'); see(f); os.lseek(f, 1, 0); seen.append(os.read(f, 5))",
    "f = make('new'); os.ftruncate(f, 9999); see(f); os.pwrite(f, b'x', 5000); seen.append(os.pread(f, 3, 4999))",
    "os.mkdir('d'); put('d/x', '1'); os.symlink('x', 'd/s'); seen.append(os.listxattr('d/s', follow_symlinks=False)); \
     seen.append(errno_of(lambda: os.getxattr('d/s', 'user.k', follow_symlinks=False))); os.mkdir('e'); \
     os.rename('d/', 'e/q/'); seen.extend(errno_of(os.rename, a, b) for a, b in \
     [('e/q/x', 'e/y/'), ('e/q/x/', 'e/y'), ('e/q/x', 'e/q/s/'), ('e/no', 'e/y/')]); os.rename('e/q', 'e/q2')",
    // A file without a name.
    "f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600); os.write(f, b'abc'); os.pwrite(f, b'x', 1); see(f); \
     os.lseek(f, 0, 0); seen.append(os.read(f, 9)); seen.append(os.pread(f, 9, 1)); \
     p = os.fork(); p or (os.write(f, b'child'), os._exit(0)); os.waitpid(p, 0); see(f); os.fsync(f); os.close(f)",
    "f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600); os.write(f, b'abcdef'); os.ftruncate(f, 2); see(f); \
     os.ftruncate(f, 9000); see(f); seen.append((os.pread(f, 4, 0), os.pread(f, 9, 8998), os.lseek(f, 0, 2))); \
     p = os.fork(); p or (os.ftruncate(f, 0), os.pwrite(f, b'child', 3), os._exit(0)); os.waitpid(p, 0); see(f); \
     seen.append(os.pread(f, 9, 0)); os.fsync(f); g = os.open('/proc/self/fd/%d' % f, os.O_RDONLY); see(g); \
     seen.append(os.read(g, 9)); os.close(g); os.close(f)",
    // A directory whose owner and times are held.
    "os.mkdir('d'); put('d/x', '1'); os.symlink('x', 'd/s'); os.utime('d', (1, 1)); os.chown('d', 5, 6); \
     os.chmod('d', 0o750); f = make('d/s', os.O_CREAT | os.O_WRONLY); os.write(f, b'22'); see(f)",
    // What lasts no longer than a process that the guess has begun.
    "import resource; p = os.fork(); p or (os.setpriority(os.PRIO_PROCESS, 0, 5), \
     resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)), os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)), \
     libc.syscall(330, 0, 0), libc.prctl(8, 1, 0, 0, 0), os._exit(os.getpriority(os.PRIO_PROCESS, 0))); \
     seen.append(os.waitpid(p, 0)[1])",
    // It is as old as its last change.
    "s = os.fstat(make('new')); seen.append(s.st_ctime_ns == s.st_mtime_ns == s.st_atime_ns)",
    "f = make('new', os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND); os.write(f, b'1'); flags(f)",
    "f = make('new', os.O_CREAT | os.O_RDONLY, 0); seen.append(os.read(f, 1)); flags(f)",
    "f = make('new', CREATE | os.O_WRONLY, 0o400); os.writev(f, [b'12', b'345']); flags(f); see(f)",
    "os.umask(0o077); put('new', 'x'); put('shared/new', 'y'); f = make('shared/more', mode=0o777); see(f)",
    "f = make('new'); os.fchmod(f, 0o4711); os.fchown(f, 5, 6); os.utime(f, ns=(1, 1)); \
     os.setxattr(f, 'user.k', b'v'); see(f)",
    "f = make('new'); os.posix_fallocate(f, 0, 20000); see(f); \
     seen.append(os.getxattr(f, 'user.k') if os.listxattr(f) else 0)",
    "a = os.open('a', os.O_RDONLY); f = make('new'); os.copy_file_range(a, f, 4); os.sendfile(f, a, None, 9); \
     os.close(a)",
    "d = os.open('shared', os.O_RDONLY); f = os.open('new', CREATE | os.O_WRONLY, dir_fd=d); os.write(f, b'z'); \
     os.close(f); os.close(d)",
    "f = make('new'); g = os.dup(f); os.write(f, b'12'); os.write(g, b'3'); os.lseek(g, 0, 0); \
     seen.append(os.read(f, 9))",
    "f = make('new')\nif os.fork() == 0:\n  os.write(f, b'child'); see(f); os._exit(0)\nos.wait(); \
     os.write(f, b'parent'); see(f)",
    "for i in range(50): put('new%d' % i, 'x' * i * 100)",
    "import shutil; shutil.copyfile('a', 'new')",
    "if os.fork() == 0: os.execlp('cp', 'cp', 'a', 'new')\nos.wait()",
    // By its name, as those inside see it.
    "f = make('new'); os.write(f, b'12'); see('new'); seen.append(open('new').read()); put('new', '34', 'a'); see(f); \
     seen.append(open('new').read())",
    "put('new', 'long text'); put('new', 'x'); see('new'); os.chmod('new', 0o600); see('new'); \
     seen.append(os.access('new', os.X_OK))",
    "f = make('new'); os.unlink('new'); see(f); seen.append(os.path.exists('new')); os.write(f, b'gone')",
    "f = make('new'); os.unlink('new'); put('new', 'other'); see(f); see('new')",
    "put('x.lock', 'new'); seen.append(fails('x.lock')); os.rename('x.lock', 'a'); see('a'); \
     seen.append(open('a').read()); seen.append(os.path.exists('x.lock'))",
    "put('one', '1'); os.rename('one', 'two'); os.rename('two', 'three'); see('three'); \
     seen.append([os.path.exists(n) for n in ('one', 'two', 'three')])",
    "put('one', '1'); put('two', '2'); os.rename('one', 'two'); seen.append(open('two').read()); see('two')",
    "f = make('tmp_obj'); os.write(f, b'o'); os.link('tmp_obj', 'obj'); see(f); os.unlink('tmp_obj'); see(f); \
     see('obj')",
    "os.unlink('a'); put('a', 'again'); see('a'); seen.append(open('a').read())",
    "put('new', 'x')\nif os.fork() == 0:\n  seen.append(open('new').read()); see('new'); put('new', 'y', 'a'); \
     os._exit(0)\nos.wait(); seen.append(open('new').read())",
    "put('shared/new', 'x'); see('shared/../shared/new'); os.chdir('shared'); see('new'); os.unlink('new'); \
     os.chdir('..')",
    "f = make('new'); os.close(0); put('zero', ''); seen.append(os.dup(f)); os.close(os.dup(f)); make('other'); see(0)",
    "put('one', 'text'); a = os.open('one', os.O_RDONLY); f = make('two'); os.copy_file_range(a, f, 9); os.close(a); \
     seen.append(open('two').read())",
    "import mmap; f = make('new'); os.write(f, b'x' * 5000); \
     m = mmap.mmap(f, 5000, mmap.MAP_PRIVATE, mmap.PROT_READ); seen.append(m[4990:]); m.close()",
    "import fcntl; f = make('lock'); fcntl.flock(f, fcntl.LOCK_EX); g = os.open('lock', os.O_RDONLY); \
     fcntl.flock(f, fcntl.LOCK_UN); fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB); os.close(g)\nif os.fork() == 0:\n  \
     h = os.open('lock', os.O_RDWR); fcntl.flock(h, fcntl.LOCK_EX); os._exit(5)\nseen.append(os.wait()[1] >> 8); \
     fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "import mmap; put('new', 'x' * 5000); f = os.open('new', os.O_RDONLY); \
     m = mmap.mmap(f, 5000, mmap.MAP_SHARED, mmap.PROT_READ); put('new', 'y', 'r+'); seen.append(m[:2] + m[4990:]); \
     m.close(); os.close(f)",
    "import mmap; f = make('new'); os.ftruncate(f, 9000); m = mmap.mmap(f, 9000); m[5:8] = b'abc'; \
     seen.append(os.pread(f, 5, 4)); os.pwrite(f, b'zz', 6); seen.append(m[4:10]); put('new', 'w', 'r+'); \
     seen.append((m[:9], open('new').read()[:9])); m.close()",
    "import mmap; f = make('new'); os.ftruncate(f, 4096); m = mmap.mmap(f, 4096)\nif os.fork() == 0: \
     m[0:5] = b'child'; os._exit(0)\nos.wait(); seen.append(m[:5]); m[5:9] = b'more'; \
     seen.append(open('new').read(10))",
    "import mmap; put('new', 'x' * 4096); os.rename('new', 'b'); f = os.open('b', os.O_RDWR); m = mmap.mmap(f, 4096); \
     m[1:3] = b'yz'; os.close(f); seen.append(open('b').read(4)); os.unlink('b'); m[0:1] = b'w'; seen.append(m[:4])",
    "import fcntl; f = make('new'); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); os.write(f, b'x'); \
     fcntl.flock(f, fcntl.LOCK_UN); g = os.open('new', os.O_RDONLY); fcntl.flock(g, fcntl.LOCK_SH); \
     fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB); os.close(g)",
    "f = make('new'); os.write(f, b'1'); see(f)",
    "import fcntl; n = fcntl.LOCK_EX | fcntl.LOCK_NB; f = make('new'); os.write(f, b'12345'); \
     fcntl.lockf(f, n, 2)\nfor i in range(2):\n  if os.fork() == 0:\n    g = os.open('new', os.O_RDWR); \
     e = errno_of(fcntl.lockf, g, n, 1), errno_of(fcntl.lockf, g, n, 1, 3); fcntl.lockf(g, fcntl.LOCK_UN); \
     os._exit(e[0] * 16 + e[1])\n  seen.append(os.wait()[1] >> 8); fcntl.lockf(f, fcntl.LOCK_UN)",
    // Attributes: of files that were there, of a directory, of new files by their names.
    "os.chmod('a', 0o640); see('a'); os.chown('a', 1, 2); see('a'); os.chmod('a', 0o6755); os.chown('a', 3, -1); \
     see('a'); seen.append(os.access('a', os.R_OK))",
    "os.utime('a', ns=(10 ** 18, 10 ** 18 + 5)); seen.append((os.stat('a').st_mtime_ns, os.lstat('a').st_atime_ns)); \
     os.utime('a', ns=(1, 2)); see('a')",
    "f = os.open('a', os.O_RDONLY); os.fchmod(f, 0o604); os.fchown(f, 5, 6); os.utime(f, ns=(3, 4)); see(f); \
     see('a'); seen.append(os.fstat(f).st_mtime_ns); os.close(f)",
    "os.chmod('shared', 0o750); see('shared'); os.chown('shared', 8, 9); see('shared')",
    "os.chmod('a', 0o600)\nif os.fork() == 0:\n  see('a'); os.chmod('a', 0o660); \
     os._exit(seen[-1] != seen[0] and 1)\nseen.append(os.wait()[1]); see('a')",
    "os.chmod('a', 0o600); os.chmod('shared', 0o700); os.unlink('a')",
    "f = os.open('a', os.O_WRONLY | os.O_APPEND); os.write(f, b'more'); os.fchmod(f, 0o444); os.close(f); \
     os.utime('a', ns=(5, 6))",
    "put('new', 'x'); os.chown('new', 5, 6); os.utime('new', ns=(7, 8)); see('new'); \
     seen.append(os.stat('new').st_mtime_ns)",
    "os.utime('a'); os.utime('shared'); put('new', ''); os.utime('new'); see('new')",
    // Contents of files that were there.
    "put('a', 'longer text'); see('a'); seen.append(open('a').read()); put('a', 'x'); see('a'); \
     seen.append(open('a').read()); put('a', ''); see('a')",
    "put('a', 'more', 'a'); see('a'); f = os.open('a', os.O_RDWR); \
     seen.append((os.read(f, 99), os.lseek(f, 0, 2), os.lseek(f, -3, 2), os.read(f, 99), os.pread(f, 2, 4), \
     os.read(f, 1))); os.ftruncate(f, 7); see(f); os.pwrite(f, b'!', 9); see('a'); os.lseek(f, 0, 0); \
     seen.append(os.read(f, 99)); os.close(f)",
    "m = os.stat('a').st_mtime_ns; put('a', '1', 'a'); seen.append(os.stat('a').st_mtime_ns > m); \
     f = make('a', os.O_RDWR); os.ftruncate(f, 3); see(f); os.write(f, b'HE'); see(f)",
    "put('a', 'x'); os.utime('a', ns=(5, 6)); seen.append(os.stat('a').st_mtime_ns); put('a', 'y', 'a'); \
     seen.append(os.stat('a').st_mtime_ns > 10 ** 18); os.chmod('a', 0o600); see('a'); f = os.open('a', os.O_RDWR); \
     os.ftruncate(f, 1); os.utime(f, ns=(7, 8)); os.close(f); see('a'); seen.append(os.stat('a').st_mtime_ns)",
    "f = os.open('a', os.O_RDWR | os.O_APPEND); os.pwrite(f, b'!', 0); seen.append(os.pread(f, 99, 0)); see(f); \
     os.write(f, b'?'); seen.append(os.lseek(f, 0, 1)); os.close(f); seen.append(open('a').read())",
    "put('a', 'parent')\nif os.fork() == 0:\n  seen.append(open('a').read()); put('a', 'child', 'a'); \
     os._exit(len(seen[-1]))\nseen.append(os.wait()[1] >> 8); seen.append(open('a').read()); see('a')",
    "put('a', 'more', 'a'); f = os.open('a', os.O_RDONLY); os.link('a', 'b'); os.unlink('a'); see(f); \
     seen.append(open('b').read()); put('a', 'new'); see('a'); see('b'); os.unlink('b'); see(f); \
     seen.append(os.read(f, 99))",
    "put('a', 'more', 'a'); os.rename('a', 'b'); see('b'); put('b', '!', 'a'); seen.append(open('b').read()); \
     put('a', 'other'); os.rename('a', 'b'); see('b'); seen.append(open('b').read())",
    "os.system('echo one > a; cat a; echo two >> a; cat a; wc -c < a; sort -r a; truncate -s 3 a; cat a; \
     sed -i s/o/0/ a; cat a')",
    // A pipe by its descriptor, as rustc opens that of cargo, while directories are new and moved.
    "os.mkdir('dir'); os.rename('shared', 'dir/moved'); r, w = os.pipe(); x = os.open('/dev/fd/%d' % r, os.O_RDONLY); \
     os.write(w, b'1'); seen.append((os.read(x, 9), os.readlink('/proc/self/fd/%d' % x)[:6]))",
    // The file system, as cargo asks for that of its lock files.
    "put('new', 'x'); os.rename('a', 'b'); os.symlink('b', 'link'); os.makedirs('dir/in'); put('dir/in/new', 'x'); \
     os.rename('shared', 'dir/moved')\n\
     for n in ('new', 'b', 'link', '.', 'dir', 'dir/in', 'dir/in/new', 'dir/moved'):\n  \
     s = os.statvfs(n); seen.append((s.f_bsize, s.f_blocks, s.f_files, \
     s.f_namemax, s.f_flag, s.f_fsid, s.f_bfree > 0))\nos.unlink('new'); seen.append(errno_of(os.statvfs, 'new'))",
    // Entries.
    "put('new', 'x'); seen.append(sorted(os.listdir('.'))); os.unlink('a'); seen.append(sorted(os.listdir('.'))); \
     put('a', ''); seen.append(sorted(os.listdir('.')))",
    "for i in range(60): put('new%d' % i, '')\nfor i in range(0, 60, \
     2): os.unlink('new%d' % i)\nseen.append(sorted((e.name, e.is_file(), \
     e.inode() == os.stat(e.path).st_ino) for e in os.scandir('.') if e.name[0] == 'n'))",
    "put('one', ''); os.rename('one', 'two'); os.rename('a', 'three'); seen.append(sorted(os.listdir('.'))); \
     os.unlink('two'); seen.append(sorted(os.listdir(os.open('.', os.O_RDONLY))))",
    "put('shared/new', ''); seen.append(os.listdir('shared')); os.unlink('shared/new'); \
     seen.append(os.listdir('shared'))",
    "put('new', 'x')\nif os.fork() == 0: os._exit(len(os.listdir('.')))\nseen.append(os.wait()[1] >> 8)",
    // A further name of a file that was there.
    "os.link('a', 'b'); seen.append(sorted(os.listdir('.')))",
    // Names that are not there.
    "put('new', ''); import socket; s = socket.socket(socket.AF_UNIX); \
     seen.extend(s.connect_ex(n) for n in ('none', 'none/at/all', 'a/below')); s.close()",
    // What a process asks of itself, and its limits.
    // With two numbers left for descriptors, and none.
    "import resource; l = resource.getrlimit(resource.RLIMIT_NOFILE); put('one', ''); n = os.dup(0); os.close(n); \
     resource.setrlimit(resource.RLIMIT_NOFILE, (n + 2, l[1])); f = make('new', os.O_WRONLY | os.O_CREAT); \
     seen.append(f == n); seen.append(os.open('a', os.O_RDONLY) - n); \
     seen.append(errno_of(os.open, 'a', os.O_RDONLY)); resource.setrlimit(resource.RLIMIT_NOFILE, l)",
    "import resource; s, h = resource.getrlimit(resource.RLIMIT_NOFILE); \
     resource.setrlimit(resource.RLIMIT_NOFILE, (99, h)); seen.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0]); \
     put('new', '')",
    "seen.extend(libc.prctl(n, 0, 0, 0, 0) for n in (3, 7, 30, 39)); b = ctypes.create_string_buffer(99); \
     h = (ctypes.c_uint32 * 2)(0x20080522, 0); seen.append((libc.capget(h, b), b.raw)); put('new', '')",
    "import mmap; m = mmap.mmap(-1, 8192, mmap.MAP_PRIVATE); \
     a = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))); seen.append(libc.mlock(a, 8192)); \
     seen.extend(line for line in open('/proc/self/status') if 'VmLck' in line); libc.munlock(a, 4096); \
     seen.extend(line for line in open('/proc/self/status') if 'VmLck' in line); put('new', '')",
    "if os.fork() == 0: os._exit(libc.personality(0x40000) + libc.personality(0xffffffff) - 0x40000 + \
     libc.syscall(238, 0, 0, 0) + libc.munlockall())\nseen.append(os.wait()[1]); put('new', '')",
    // The signal of the parent's death, slack of timers, no new rights.
    "if os.fork() == 0:\n  v = ctypes.c_int(); \
     r = [libc.prctl(n, v, 0, 0, 0) for n, v in ((1, 10), (29, 70000), (38, 1))]; \
     libc.prctl(2, ctypes.byref(v), 0, 0, 0); slack, no_new = (libc.prctl(n, 0, 0, 0, 0) for n in (30, 39)); \
     os._exit(v.value + sum(r) + (slack == 70000) + no_new)\n\
     seen.append(os.wait()[1]); put('new', '')",
    // A group and a session of one's own. The session has no terminal.
    "if os.fork() == 0:\n  os.setsid(); mine = os.getsid(0) == os.getpid()\n  if os.fork() == 0: os.setpgid(0, 0); \
     os._exit(mine + 2 * (os.getpgrp() == os.getpid()))\n  os._exit(os.wait()[1] >> 8)\n\
     seen.append(os.wait()[1] >> 8); put('new', '')",
    "if os.fork() == 0: os.setsid(); os._exit(4)\nseen.append(os.waitpid(-1, 0)[1] >> 8); put('new', '')",
    "n = '/proc/self/coredump_filter'; put(n, '0x37', 'r+'); seen.append(open(n).read()); os.mkdir('dir'); \
     put(n, '0x3f', 'r+'); seen.append(open(n).read()); put('new', '')",
    "os.mkdir('dir'); os.rename('shared', 'dir/below'); seen.append(os.path.exists('/proc/sys/kernel/nothing')); \
     seen.extend(len(open('/proc/' + n).read()) > 9 for n in ('self/mountinfo', 'self/maps', 'net/dev', 'net/route', \
     'sys/kernel/pid_max', 'self/limits'))",
    "import socket\nfor k in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n  for h in ('::1', '127.0.0.1'):\n    \
     s = socket.socket(socket.AF_INET6 if ':' in h else socket.AF_INET, k); s.bind((h, 0)); \
     seen.append(s.getsockname()[1] > 0); s.close()\nput('new', '')",
    "import socket, select\nfor b in (True, False):\n  for h in ('::1', '127.0.0.1'):\n    \
     s = socket.socket(socket.AF_INET6 if ':' in h else socket.AF_INET); s.setblocking(b); \
     seen.append(s.connect_ex((h, 1))); seen.append(select.select([], [s], [], 5)[1] == [s]); \
     seen.append(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)); s.close()\nput('new', '')",
    "import socket, struct; s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); s.bind((0, 0)); \
     s.send(struct.pack('IHHIIB', 17, 18, 0x301, 1, 0, 0) + bytes(3)); r = s.recv(65536); \
     seen.append(struct.unpack_from('IH', r)[1]); s.close(); put('new', '')",
    // What is said of a process outside.
    "seen.extend(len(open('/proc/1/' + n).read()) > 0 for n in ('comm', 'stat', 'status', 'cgroup')); \
     seen.append(os.stat('/proc/1').st_uid); seen.append('fd' in os.listdir('/proc/1')); put('new', '')",
    // What is said of a child, while it waits for its parent, and when it has ended.
    "put('new', ''); r, w = os.pipe(); p = os.fork()\nif p == 0: os.read(r, 1); os._exit(3)\n\
     f = '/proc/%d/' % p; s = open(f + 'stat').read(); t = s[s.rindex(')') + 2:].split(); \
     seen.extend((int(s.split()[0]) == p, int(t[1]) == os.getpid(), t[0] in 'RS', len(t))); \
     seen.append(open(f + 'cmdline').read() == open('/proc/self/cmdline').read()); \
     seen.append((open(f + 'comm').read(), os.stat(f).st_uid, os.path.exists(f + 'stat'))); \
     d = os.open(f + 'stat', 0); \
     seen.append((int(os.pread(d, 99, 0).split()[0]) == p, int(os.read(d, 70).split()[0]) == p)); \
     seen.append((os.lseek(d, 0, 1), libc.read(d, ctypes.c_void_p(1), 99), os.lseek(d, 0, 1))); os.lseek(d, 0, 0); \
     seen.append(os.read(d, 99)[:9] == s[:9].encode()); os.write(w, b'.'); \
     seen.append(os.waitpid(p, 0)[1] >> 8); os.close(d)",
    // Capabilities that are there.
    "b = ctypes.create_string_buffer(24); h = (ctypes.c_uint32 * 2)(0x20080522, 0); libc.capget(h, b); \
     seen.append(libc.capset(h, b)); put('new', '')",
    // Signals by a descriptor of a process.
    "import signal; put('new', ''); p = os.fork()\nif p == 0: signal.pause()\nd = os.pidfd_open(p); \
     seen.append(signal.pidfd_send_signal(d, 0)); signal.pidfd_send_signal(d, signal.SIGKILL); \
     seen.append(os.waitpid(p, 0)[1]); os.close(d)",
    "import signal, time; put('new', ''); r, w = os.pipe(); p = os.fork()\nif p == 0:\n  \
     signal.signal(signal.SIGUSR1, lambda *_: os._exit(7)); os.write(w, b'.')\n  while True: time.sleep(0.01)\n\
     os.read(r, 1); d = os.pidfd_open(p); signal.pidfd_send_signal(d, signal.SIGUSR1); \
     seen.append(os.waitpid(p, 0)[1]); os.close(d)",
    "import fcntl; a = os.open('a', os.O_RDONLY)\nfor n in (0x5402, 0x5410, 0x5414):\n  try: fcntl.ioctl(a, n, \
     bytes(64))\n  except OSError as e: seen.append(e.errno)\nos.close(a); put('new', '')",
];

pub(crate) fn has_root() -> bool {
    support::has_root_for("making files on a guess")
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Where the tests' files are: a disk, not the machine's `/tmp`, which may be memory.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What hangs must not hang the test.
pub(crate) fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "600", program]).stdin(Stdio::null());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("S", SPECULATOR);
    command
}

pub(crate) fn make(command: &mut Command, dir: &Path, end: &str, what: &str) -> Output {
    let script = format!("{FOLDER}/make.py");
    command.arg(script).arg(dir).args([end, what]).output().unwrap()
}

pub(crate) fn speculator() -> Command {
    let mut command = limited(SPECULATOR);
    command.arg("run");
    command
}

/// What is seen of a right guess, in a folder of its own, is what is seen natively.
pub(crate) fn is_as_natively(folder: impl Fn() -> tempfile::TempDir, what: &str) {
    let (native, inside) = (folder(), folder());
    let expected = make(&mut limited(&support::python()), native.path(), "", what);
    assert!(text(&expected).lines().count() > 2, "{what}: {}", errors(&expected));
    let output = make(speculator().arg(support::python()), inside.path(), "commit", what);
    assert_eq!((text(&output), errors(&output)), (text(&expected), String::new()), "{what}");
}

/// After a wrong guess all is as before it.
pub(crate) fn has_never_been(folder: impl Fn() -> tempfile::TempDir, what: &str) {
    let dir = folder();
    let output = make(speculator().arg(support::python()), dir.path(), "fail", what);
    let out = text(&output);
    let (before, after) = out.split_once("==\n").unwrap_or_else(|| panic!("{what}: {output:?}"));
    assert_eq!((before, errors(&output).as_str()), (after, ""), "{what}");
}

#[test]
fn what_is_made_on_a_right_guess_is_as_natively() {
    if !has_root() {
        return;
    }
    MAKES.iter().for_each(|what| is_as_natively(folder, what));
}

#[test]
fn what_is_made_on_a_wrong_guess_has_never_been() {
    if !has_root() {
        return;
    }
    MAKES.iter().for_each(|what| has_never_been(folder, what));
}

/// What a watcher hears of each name in a directory, until the program has ended.
pub(crate) fn heard(dir: &Path, run: impl FnOnce()) -> Vec<String> {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, dir, inotify::WatchFlags::ALL_EVENTS).unwrap();
    run();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 65536];
    let mut reader = inotify::Reader::new(&watch, &mut buffer);
    let mut heard = Vec::new();
    while let Ok(event) = reader.next() {
        let name = event.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let events: Vec<&str> = event.events().iter_names().map(|(event, _)| event).collect();
        heard.push(format!("{} {name}", events.join(" ")));
    }
    heard
}

/// A watcher and another process look at the directory while it is a guess, and afterwards.
#[test]
fn outside_a_new_file_is_there_when_the_guess_is_right() {
    if !has_root() {
        return;
    }
    for (end, status) in [("fail", 7), ("commit", 0)] {
        let (dir, other) = (folder(), folder());
        let (pause, go) = (pause("0.02"), other.path().join("go"));
        let script = format!(
            "cd {}; umask 027; id=$($S begin); [ $id = failed ] && exit 7; echo text > new
             exec 4> open; echo more >&4; {}; $S {end} $id; echo after >&4",
            dir.path().display(),
            pause_until(&pause, &go)
        );
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        let events = heard(dir.path(), || {
            let child = speculator().args(["bash", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
            await_running(&pause);
            assert!(names().is_empty(), "seen while it is a guess: {:?}", names());
            fs::write(&go, "").unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!((output.status.code(), errors(&output).as_str()), (Some(status), ""));
        });
        let about_files: Vec<&String> = events.iter().filter(|event| !event.ends_with(' ')).collect();
        if end == "fail" {
            assert!(about_files.is_empty(), "{about_files:?}");
            assert!(names().is_empty());
            continue;
        }
        assert_eq!(names(), ["new", "open"]);
        let count = |event: &str| about_files.iter().filter(|heard| ***heard == event).count();
        assert_eq!((count("CREATE new"), count("CREATE open")), (1, 1), "{about_files:?}");
        assert_eq!(count("CLOSE_WRITE new"), 1, "{about_files:?}");
        let found = fs::metadata(dir.path().join("new")).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid(), found.nlink()), (0o640, 0, 0, 1));
        assert_eq!(fs::read_to_string(dir.path().join("new")).unwrap(), "text\n");
        assert_eq!(fs::read_to_string(dir.path().join("open")).unwrap(), "more\nafter\n");
    }
}

/// Where a watcher would hear of a file without a name, it is not made before it gets its name. On a file system of its
/// own: everybody's worlds would be heard on that of the machine, and wait.
#[test]
fn who_watches_where_new_files_are_hears_nothing() {
    if !support::can_mount() {
        return;
    }
    let scene = support::Scene::with_volume();
    scene.run("volume mount image dir").expect(0, "");
    let script =
        "id=$($S begin); [ $id = failed ] && exit 7; (sleep 0.5; $S commit $id) & echo text > new; cat new; wait";
    let events = heard(&scene.path("dir/lost+found"), || {
        let mut command = speculator();
        let output = command.args(["bash", "-c", script]).current_dir(scene.path("dir")).output().unwrap();
        assert_eq!((text(&output).as_str(), errors(&output).as_str()), ("text\n", ""));
    });
    assert!(events.is_empty(), "{events:?}");
    scene.umount();
    scene.left_behind(&["dir", "image"]);
}

/// What is held takes descriptors of ours: when there are few, who makes more files waits.
#[test]
fn more_new_files_than_descriptors() {
    if !has_root() {
        return;
    }
    let dir = folder();
    let script = "id=$($S begin); [ $id = failed ] && exit 7; (sleep 1; $S commit $id) &
                  for i in $(seq 200); do echo $i > f$i; done; wait; ls | wc -l; cat * | sort -n | tail -1";
    let mut command = limited("prlimit");
    command.args(["--nofile=1024", SPECULATOR, "run", "bash", "-c", script]).current_dir(dir.path());
    let output = command.output().unwrap();
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), ("200\n200\n", ""));
}

/// What was made on a guess is on a volume's image after the run, if the guess was right.
#[test]
fn new_files_on_a_volume_are_kept() {
    if !support::can_mount() {
        return;
    }
    for (end, status, left) in [("fail", 7, ""), ("commit", 0, "new x text")] {
        let scene = support::Scene::with_volume();
        let script = format!(
            "cd dir; id=$($S begin); [ $id = failed ] && exit 7
             echo text > new; echo x > x.lock; mv x.lock x; cat x new; $S {end} $id; sync"
        );
        let run = |script: &str| {
            let mut command = speculator();
            command.args(["--volume", "image:dir", "bash", "-c", script]).current_dir(scene.path("."));
            command.output().unwrap()
        };
        let output = run(&script);
        let shown = if end == "commit" { "x\ntext\n" } else { "" };
        assert_eq!((output.status.code(), text(&output).as_str(), errors(&output).as_str()), (Some(status), shown, ""));
        let found = run("cd dir; echo $(ls | grep -v lost) $(cat new)");
        let expected = if left.is_empty() { "\n".to_owned() } else { format!("{left}\n") };
        assert_eq!(text(&found), expected);
        scene.nothing_is_attached();
    }
}

/// Many small programs, with guesses that turn out wrong: what they print and leave is what they print and leave
/// natively.
#[test]
fn guesses_that_turn_out_wrong_change_nothing() {
    if !has_root() {
        return;
    }
    let script = |dir: &Path| {
        let (dir, python) = (dir.display(), support::python());
        let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_files");
        format!("PYTHON={python} sh {files}/work.sh {dir}; cd /; {python} {files}/manifest.py {dir}")
    };
    let native = folder();
    let expected = limited("sh").args(["-c", &script(native.path())]).output().unwrap();
    assert!(text(&expected).contains("LINE 1"), "{expected:?}");
    let (rate, seed) = support::sample(&[("10%", 2), ("10%", 3), ("100%", 4)]);
    let dir = folder();
    let inject = format!("--inject=all:{rate}:2");
    let mut command = speculator();
    command.args([&inject, "--seed", &format!("{seed}"), "sh", "-c", &script(dir.path())]);
    let output = command.output().unwrap();
    assert_eq!(text(&output), text(&expected), "rate {rate}, seed {seed}: {}", errors(&output));
}

/// The supervisor is killed before each step of a commit: what was made so far is there, and whole; nothing else is.
#[test]
fn killed_at_every_step_of_a_commit() {
    if !has_root() {
        return;
    }
    let script = "id=$($S begin); [ $id = failed ] && exit 7
                  for i in 1 2; do umask 02$i; echo text$i > f$i; mv f$i g$i; done; $S commit $id; exit 3";
    const STATES: [&[&str]; 5] = [&[], &["f1"], &["g1"], &["f2", "g1"], &["g1", "g2"]];
    for (steps, state) in STATES.iter().enumerate() {
        let dir = folder();
        let mut command = speculator();
        command.arg(format!("--crash-in-rollback={steps}")).args(["bash", "-c", script]).current_dir(dir.path());
        let output = command.output().unwrap();
        let is_killed = steps + 1 < STATES.len();
        assert_eq!(output.status.code(), Some(if is_killed { 125 } else { 3 }), "after {steps} steps: {output:?}");
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, *state, "after {steps} steps");
        for name in names {
            let number = name.to_string_lossy()[1..].to_owned();
            let path = dir.path().join(name);
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("text{number}\n"), "after {steps} steps");
            let mode = 0o666 & !if number == "1" { 0o21 } else { 0o22 };
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "after {steps} steps");
        }
    }
}

/// Of these none waits in memory that is the machine's, such as `/dev/shm`.
const MAKES_IN_MEMORY: &[&str] = &[
    "put('new', 'text'); see('new'); seen.append(open('new').read()); put('new', 'x', 'a'); os.chmod('new', 0o4711); \
     see('new')",
    "f = make('new', mode=0o640); os.write(f, b'abc'); os.lseek(f, 1, 0); seen.append(os.read(f, 5)); \
     os.ftruncate(f, 9999); os.pwrite(f, b'x', 5000); seen.append(os.pread(f, 3, 4999)); \
     os.posix_fallocate(f, 0, 20000)",
    "import mmap; f = make('new'); os.write(f, b'x' * 4096); m = mmap.mmap(f, 4096); os.link('new', 'b'); \
     os.unlink('new')\nif os.fork() == 0: m[1:3] = b'yz'; os._exit(0)\nos.wait(); seen.append(open('b').read(4)); \
     os.unlink('b'); m[0:1] = b'w'; seen.append(m[:4])",
    "os.umask(0o077); put('shared/new', 'x'); see('shared/new'); os.rename('shared/new', 'new'); see('new'); \
     os.unlink('a'); put('a', 'again'); seen.append(open('a').read())",
    "if os.fork() == 0: put('new', 'x' * 100000); os._exit(0)\nos.wait(); seen.append(len(open('new').read()))",
];

#[test]
fn new_files_in_memory_are_made_on_a_guess() {
    if !has_root() || !Path::new("/dev/shm").is_dir() {
        return;
    }
    let folder = || tempfile::tempdir_in("/dev/shm").unwrap();
    for what in MAKES_IN_MEMORY {
        is_as_natively(folder, what);
        has_never_been(folder, what);
    }
}

/// Semaphores by name: outside nobody finds them, not even while the guess is open.
#[test]
fn what_is_made_in_memory_is_not_seen_outside() {
    if !has_root() || !Path::new("/dev/shm").is_dir() {
        return;
    }
    for (end, status) in [("fail", 7), ("commit", 0)] {
        let (dir, other) = (tempfile::tempdir_in("/dev/shm").unwrap(), folder());
        let (pause, go) = (pause("0.02"), other.path().join("go"));
        let script = format!(
            "cd {}; id=$($S begin); [ $id = failed ] && exit 7; echo text > new; {}; $S {end} $id",
            dir.path().display(),
            pause_until(&pause, &go)
        );
        let names = || fs::read_dir(dir.path()).unwrap().count();
        let child = speculator().args(["bash", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
        await_running(&pause);
        assert_eq!(names(), 0);
        fs::write(&go, "").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), errors(&output).as_str()), (Some(status), ""));
        assert_eq!(names(), usize::from(end == "commit"));
    }
}
