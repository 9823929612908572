//! A tree with every kind of object in it, the same each time.

use std::path::Path;
use std::process::Command;

/// Builds it with a script, so that it can be read; all times are old.
#[allow(dead_code)]
pub fn build(root: &Path) {
    let script = r#"
set -e
mkdir -p dir/sub/deep other empty modes times
echo one > dir/one; echo two > dir/two; echo three > dir/sub/three; echo deep > dir/sub/deep/file
echo other > other/file; echo swap > other/swap
seq 100000 > large
echo linked > link-a; ln link-a link-b; ln link-a dir/link-c
echo pair > pair-a; ln pair-a pair-b
truncate -s 40M sparse; printf head | dd of=sparse conv=notrunc status=none; printf middle | dd of=sparse bs=1M seek=17 conv=notrunc status=none
dd if=/dev/zero of=zeros bs=64K count=4 status=none
ln -s dir/one symlink; ln -s nowhere dangling; ln -s dir dirlink
mkfifo fifo; mknod device c 1 3; mknod block b 7 99
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
echo x > modes/setuid; chown 1000:2000 modes/setuid; chmod 6755 modes/setuid
echo x > modes/none; chmod 000 modes/none
mkdir modes/sticky; chmod 1777 modes/sticky; mkdir modes/shared; chgrp 2000 modes/shared; chmod 2775 modes/shared
echo x > times/old; echo x > times/future
echo x > 'a name with spaces'; echo x > "$(printf 'new\nline')"; echo x > "$(printf 'not\377text')"
echo x > "$(printf 'n%.0s' $(seq 250))"
echo x > attributes; mkdir attributed
python3 - <<'P'
import os, struct
os.setxattr("attributes", "user.one", b"1"); os.setxattr("attributes", "user.two", b"\0\1\2")
os.setxattr("attributes", "trusted.mine", b"t"); os.setxattr("attributed", "user.dir", b"d")
def acl(*entries): return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)
N = 0xffffffff
a = acl((1, 6, N), (2, 4, 1000), (4, 4, N), (16, 6, N), (32, 0, N))
os.setxattr("attributes", "system.posix_acl_access", a)
os.setxattr("attributed", "system.posix_acl_default", acl((1, 7, N), (2, 5, 1000), (4, 5, N), (16, 5, N), (32, 0, N)))
os.setxattr("modes/setuid", "security.capability", struct.pack("<IIIII", 0x02000001, 0x400, 0, 0, 0))
P
mkdir many; for i in $(seq 200); do echo $i > many/$i; done
find . -depth -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
touch -d '1970-01-01 00:00:01' times/old; touch -d '2037-01-01' times/future
"#;
    std::fs::create_dir_all(root).unwrap();
    run(root, script);
}

/// Runs a script in a folder; it must not fail.
#[allow(dead_code)]
pub fn run(folder: &Path, script: &str) {
    let status = Command::new("sh").args(["-c", script]).current_dir(folder).status().unwrap();
    assert!(status.success(), "{script}");
}
