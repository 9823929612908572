//! Contents of files on disks that were there: what is written to them, and cut off, on a guess is held in the order in
//! which it was asked for, and seen inside before it is made.

use crate::support::guess::{check_failure, check_success};

/// Who does not depend on a write that is held, and empties the file after it, does so when the write has been made.
#[test]
fn who_is_not_speculative_empties_a_file_after_what_is_held() {
    let program = r#"
open('file', 'w').write('old')
child = os.fork()
if child == 0:
    time.sleep(1.5)
    os.open('file', os.O_WRONLY | os.O_TRUNC)
    os._exit(0)
guess = begin()
f = os.open('file', os.O_WRONLY)
os.write(f, b'new')
time.sleep(3)
if guess >= 0: finish(guess)
os.waitpid(child, 0)
show(os.stat('file').st_size)
"#;
    check_success(program, "0\n", &[]);
}

/// No bytes are no change, of a file that was there and is held as well as of one that is not.
#[test]
fn who_writes_nothing_does_not_wait() {
    let program = r#"
open('file', 'w').write('old')
f = os.open('file', os.O_RDWR)
guess = begin()
show(os.write(f, b''), os.pwrite(f, b'', 9), os.fstat(f).st_size, os.lseek(f, 0, 1))
os.write(f, b'newer')
show(os.write(f, b''), os.fstat(f).st_size, os.lseek(f, 0, 1))
if guess >= 0: finish(guess)
"#;
    check_failure(program, "0 0 3 0\n0 5 5\n", &["write", "pwrite64"]);
    check_success(program, "0 0 3 0\n0 5 5\n", &["write", "pwrite64"]);
}

/// A copy into what is no file is refused without a look at the contents, and what is read in its place is answered.
#[test]
fn what_is_held_is_read_where_a_copy_is_refused() {
    let program = r#"
open('file', 'w').write('old')
guess = begin()
f = os.open('file', os.O_RDWR | os.O_TRUNC)
os.write(f, b'new')
os.lseek(f, 0, 0)
reader, writer = os.pipe()
try: os.copy_file_range(f, writer, 3)
except OSError as error: show(error.errno, os.read(f, 9))
if guess >= 0: finish(guess)
"#;
    check_failure(program, "22 b'new'\n", &["copy_file_range", "read", "openat"]);
    check_success(program, "22 b'new'\n", &["copy_file_range", "read", "openat"]);
}
