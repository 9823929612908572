//! Processes inside an open guess go on to their end, or are found to be stuck: nothing hangs.

use crate::support;

use support::guess::{check_failure, check_perl as check, check_success};

/// bash ends before the processes of `<(…)` that it has not waited for (`comm`, `join`): they would have another
/// parent. Its end waited for the guess.
#[test]
fn a_process_with_children_ends() {
    let program = r#"
pipe(my $reader, my $writer); pipe(my $gate, my $hold);
my $id = begin();
if ($id < 0) { print "again\n" }
my $pid = fork;
if (!$pid) {
    my $child = fork;
    if (!$child) {
        close $hold; close $reader;
        sysread($gate, my $byte, 1);
        syswrite($writer, "orphan\n");
        exit 3;
    }
    exit 4;
}
close $writer; close $gate;
waitpid($pid, 0); print $? >> 8, "\n";
close $hold;
print while <$reader>;
print waitpid(-1, 0), "\n";
finish($id) if $id >= 0;
"#;
    check(program, "fail", "again\n4\norphan\n-1\n", &["exit_group"]);
    check(program, "commit", "4\norphan\n-1\n", &["exit_group"]);
}

/// Who has lost its parent on a guess has another one when that is certain, and not before.
#[test]
fn an_orphan_asks_for_its_parent_when_that_is_certain() {
    let program = r#"
r, w = os.pipe()
guess = begin()
if os.fork() == 0:
    me = os.getpid()
    if os.fork() == 0:
        os.close(r)
        while os.getppid() == me: pass
        os.write(w, b'other parent\n')
    os._exit(0)
if guess >= 0: finish(guess)
os.close(w)
show(os.wait()[1], os.read(r, 100))
"#;
    check_failure(program, "0 b'other parent\\n'\n", &[]);
    check_success(program, "0 b'other parent\\n'\n", &[]);
}

/// Subshells take turns at one lock file. Who waits in the kernel for the lock, since somebody had it for whom no guess
/// counted, gets it no more if that one has given it up on the guess: that was not seen, and everything stood still.
#[test]
fn who_waits_for_a_lock_that_is_given_up_on_the_guess_is_stuck() {
    let program = r#"
guess = begin()
open('lock', 'w').close(); open('new', 'w').close()
def turn(n): return os.spawnlp(os.P_NOWAIT, 'sh', 'sh', '-c', f'(flock 8; sleep 0.2; cp new {n}; mv {n} m{n}) 8> lock')
for child in [turn(n) for n in range(3)]: show(status(child))
show(sorted(name for name in os.listdir() if name != 'stats'))
if guess >= 0: finish(guess)
"#;
    let right = "0\n0\n0\n['lock', 'm0', 'm1', 'm2', 'new']\n";
    check_failure(program, right, &[]);
    check_success(program, right, &[]);
}

/// `tar xzf`: gzip waits for room in the pipe, and tar, which reads it, for the guess (`mkdir`). Nobody could resolve
/// the guess any more, and that was not seen, because gzip's write had done a part.
#[test]
fn a_writer_without_room_whose_reader_waits_is_stuck() {
    let program = r#"
r, w = os.pipe()
guess = begin()
if guess < 0: show('again')
child = os.fork()
if child == 0:
    os.close(r)
    os.write(w, b'x' * 200000)
    os._exit(0)
os.close(w)
# A barrier, which is no everyday one: it stays one.
os.setgroups(os.getgroups()) if guess >= 0 else None
size = 0
while block := os.read(r, 65536): size += len(block)
show(size, status(child))
"#;
    check_failure(program, "again\n200000 0\n", &[]);
}
