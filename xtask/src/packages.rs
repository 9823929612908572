//! What tests, demo and benchmarks need beyond Rust: Debian 12's name of it, how to see whether it is there, and why.

/// A package.
pub struct Package {
    /// Debian's name.
    pub name: &'static str,
    /// A command, or a file with a `/` in it, that is there when the package is; others may provide it.
    pub provides: &'static str,
    /// What it is for.
    pub why: &'static str,
}

impl Package {
    /// Whether tests and demo do without it.
    pub fn is_optional(&self) -> bool {
        self.why.starts_with("bench") || self.why.starts_with("suites")
    }
}

const fn package(name: &'static str, provides: &'static str, why: &'static str) -> Package {
    Package { name, provides, why }
}

/// All of them.
pub const PACKAGES: [Package; 48] = [
    package("gcc", "cc", "links Rust programs; compiles tests/programs"),
    package("libc6-dev", "/usr/lib/x86_64-linux-gnu/libc.a", "headers; libc for static test programs"),
    package("make", "make", "transparency: builds of C packages"),
    package("libgcc-12-dev", "/usr/lib/gcc/x86_64-linux-gnu/12/libasan.a", "transparency: gcc's sanitizers"),
    package("clang", "clang", "transparency: its sanitizers"),
    package(
        "libclang-rt-14-dev",
        "/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.asan-x86_64.a",
        "transparency: their libraries",
    ),
    package("llvm", "llvm-symbolizer", "transparency: names in their reports"),
    package("binutils", "ar", "transparency: libraries"),
    package("e2fsprogs", "mkfs.ext4", "volumes"),
    package("btrfs-progs", "mkfs.btrfs", "subvolumes"),
    package("xfsprogs", "mkfs.xfs", "commits on XFS; try: projects"),
    package("mount", "mount", "volumes"),
    package("util-linux", "unshare", "mounts that nobody else sees"),
    package("eatmydata", "eatmydata", "demo, bench: what people use today"),
    package("postmark", "postmark", "bench: 002's figure 4"),
    package("sqlite3", "sqlite3", "demo, bench, transparency: a database"),
    package("git", "git", "transparency"),
    package("tar", "tar", "transparency"),
    package("bzip2", "bzip2", "transparency"),
    package("xz-utils", "xz", "transparency"),
    package("findutils", "xargs", "transparency"),
    package("mawk", "awk", "transparency"),
    package("patch", "patch", "transparency"),
    package("diffutils", "diff", "transparency"),
    package("curl", "curl", "transparency: client of a web server"),
    package("perl", "perl", "transparency"),
    package("python3", "/usr/bin/python3", "transparency: processes, asyncio, SQLite"),
    package("nodejs", "node", "transparency: an event loop with threads, a JIT"),
    package("default-jdk-headless", "javac", "transparency: many threads, a JIT"),
    package("golang-go", "go", "transparency: raw system calls, small stacks"),
    package("vim", "vim", "transparency: a program that owns the terminal"),
    package("less", "less", "transparency: a pager"),
    package("tmux", "tmux", "transparency: drives programs at a terminal"),
    package("bash", "bash", "transparency: job control"),
    package(
        "postgresql-15",
        "/usr/lib/postgresql/15/bin/initdb",
        "transparency: a server of many processes with shared memory",
    ),
    package("redis-server", "redis-server", "crash disk and bench answers: a server that syncs each write"),
    package("nginx-light", "/usr/sbin/nginx", "bench answers: a web server with a log"),
    package("redis-tools", "redis-check-rdb", "transparency: a server that syncs each write"),
    package("mariadb-server-core", "mariadbd", "transparency: a server of many threads"),
    package("mariadb-client-core", "mariadb", "transparency: its client"),
    package("sshfs", "sshfs", "bench bluefs: a peer"),
    package("openssh-server", "/usr/sbin/sshd", "bench bluefs: its server"),
    package("iproute2", "ip", "tests of a slow line: two hosts on one machine"),
    package("strace", "strace", "replay: what real programs do"),
    package("procps", "ps", "transparency"),
    package("zlib1g-dev", "/usr/include/zlib.h", "suites: to build git"),
    package("tcl-dev", "/usr/lib/x86_64-linux-gnu/tcl8.6/tclConfig.sh", "suites: to build SQLite's tests"),
    package("libpython3.11-testsuite", "/usr/lib/python3.11/test/test_os.py", "suites: Python's tests"),
];
