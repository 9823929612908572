//! What goes through sockets and event descriptors while something is speculative: taken back on both sides, or kept.

use crate::support;

use support::guess::{check_failure, check_perl as check, check_success};

/// A child that answers until it is told to stop: the word in capitals, how many there were, how many guesses it
/// depends on.
const ECHO: &str = r#"
socketpair(my $here, my $there, AF_UNIX, KIND, 0) or die;
my $pid = fork;
if (!$pid) {
    close $here;
    my $count = 0;
    while (1) {
        defined recv($there, my $word, 100, 0) or die;
        last if $word eq 'stop';
        $count++;
        send($there, uc($word) . " $count " . depth(), 0);
    }
    exit $count;
}
close $there;
sub ask { send($here, $_[0], 0) or die; defined recv($here, my $answer, 100, 0) or die; return "$answer\n" }
print ask('first');
send($here, 'early', 0);
my $id = begin();
defined recv($here, my $answer, 100, 0) or die;
print "$answer\n";
if ($id < 0) {
    print 'again ', ask('more');
} else {
    print ask('guessed'), ask('twice');
    finish($id);
    print 'depth ', depth(), "\n";
}
send($here, 'stop', 0);
waitpid($pid, 0);
print $? >> 8, "\n";
"#;

#[test]
fn messages_are_taken_back_on_both_sides() {
    for kind in ["SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"] {
        let program = ECHO.replace("KIND", kind);
        let calls = ["sendto", "recvfrom"];
        check(&program, "fail", "FIRST 1 0\nEARLY 2 0\nagain MORE 3 0\n3\n", &calls);
        check(&program, "commit", "FIRST 1 0\nEARLY 2 0\nGUESSED 3 1\nTWICE 4 1\ndepth 0\n4\n", &calls);
    }
}

/// Whoever read to the end has read what the guess has written, and that its writer has ended.
#[test]
fn the_end_of_a_stream_is_seen_and_taken_back() {
    let program = r#"
socketpair(my $here, my $there, AF_UNIX, SOCK_STREAM, 0) or die;
my $id = begin();
if ($id < 0) { print "again\n"; exit 0 }
my $pid = fork;
if (!$pid) { close $here; syswrite($there, "from a child\n"); exit 3 }
close $there;
print while <$here>;
waitpid($pid, 0); print $? >> 8, "\n";
finish($id);
"#;
    check(program, "fail", "again\n", &["read", "socketpair"]);
    check(program, "commit", "from a child\n3\n", &["read", "socketpair"]);
}

/// More was sent than fits, so that the guess's writer waited for room that its reader made.
#[test]
fn a_full_queue_comes_back() {
    let program = r#"
socketpair(my $here, my $there, AF_UNIX, SOCK_STREAM, 0) or die;
syswrite($here, 'old ' x 1000) == 4000 or die;
my $id = begin();
if ($id < 0) {
    sysread($there, my $old, 100000) == 4000 or die;
    $old eq 'old ' x 1000 or die;
    print "again\n";
    exit 0;
}
my $pid = fork;
if (!$pid) { syswrite($here, 'x' x 50000) for 1 .. 10; exit 0 }
my $got = 0;
$got += sysread($there, my $bytes, 65536) while $got < 504000;
waitpid($pid, 0);
print "$got\n";
finish($id);
"#;
    check(program, "fail", "again\n", &["read", "write"]);
    check(program, "commit", "504000\n", &["read", "write"]);
}

/// Whoever has sent is gone before anybody receives; datagrams are there all the same, also if the sender has left some
/// unread himself.
#[test]
fn what_was_sent_by_somebody_who_has_ended_is_received() {
    let python = r#"
mine, other = socket.socketpair(socket.AF_UNIX, socket.KIND)
guess = begin()
if guess < 0: show('again')
else:
    child = os.fork()
    if child == 0:
        mine.close()
        other.sendall(b'one'); other.sendall(b'two')
        os._exit(4)
    other.close()
    time.sleep(0.3)
    show(mine.recv(3), mine.recv(3), status(child))
    finish(guess)
"#;
    for kind in ["SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"] {
        let program = python.replace("KIND", kind);
        check_success(&program, "b'one' b'two' 4\n", &["recvfrom"]);
        check_failure(&program, "again\n", &["recvfrom"]);
    }
}

/// A child gets the writing end of a pipe, a file and a socket in messages, uses them, and closes them; the end of the
/// pipe is seen.
#[test]
fn messages_with_descriptors_are_taken_back() {
    let python = r#"
here, there = socket.socketpair(socket.AF_UNIX, socket.KIND)
notes = os.memfd_create('notes')
child = os.fork()
if child == 0:
    here.close(); os.close(notes)
    for n in range(2):
        data, fds, _, _ = socket.recv_fds(there, 100, 9)
        writer, notes, line = fds
        os.write(writer, data + b' through %d' % depth()); os.close(writer)
        line = socket.socket(fileno=line); line.sendall(b'hello'); line.close()
        os.close(notes)
        there.sendall(b'done')
    os._exit(4)
there.close()
def pass_on(word):
    reader, writer = os.pipe()
    mine, other = socket.socketpair()
    socket.send_fds(here, [word], [writer, notes, other.fileno()])
    os.close(writer); other.close()
    here.recv(4)
    show(os.read(reader, 100), os.read(reader, 100), mine.recv(100))
    os.close(reader); mine.close()
pass_on(b'first')
guess = begin()
if guess < 0: pass_on(b'again')
else: pass_on(b'guessed'); finish(guess)
show(status(child))
"#;
    for kind in ["SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"] {
        let program = python.replace("KIND", kind);
        let calls = ["sendmsg", "recvmsg", "write", "close"];
        let first = "b'first through 0' b'' b'hello'\n";
        check_failure(&program, &format!("{first}b'again through 0' b'' b'hello'\n4\n"), &calls);
        check_success(&program, &format!("{first}b'guessed through 1' b'' b'hello'\n4\n"), &calls);
    }
}

/// What a message held alone is there again: the pipe with what is in it, whose reader saw its end.
#[test]
fn an_end_that_only_a_message_has_comes_back() {
    let python = r#"
here, there = socket.socketpair()
reader, writer = os.pipe()
os.write(writer, b'in the pipe')
socket.send_fds(here, [b'x'], [reader, writer])
os.close(writer); os.close(reader)
guess = begin()
data, fds, _, _ = socket.recv_fds(there, 10, 4)
os.close(fds[1])
got = os.read(fds[0], 100), os.read(fds[0], 100)
os.close(fds[0])
if guess < 0: show('again', data, *got)
else: show('guessed', data, *got); finish(guess)
show(fds)
"#;
    let calls = ["recvmsg", "read", "close"];
    check_failure(python, "again b'x' b'in the pipe' b''\n[5, 6]\n", &calls);
    check_success(python, "guessed b'x' b'in the pipe' b''\n[5, 6]\n", &calls);
}

/// A process that a guess has killed lives on, wherever it was; its parent never heard of its end.
#[test]
fn a_killed_process_lives_again() {
    let program = r#"
my ($signal, $waits) = (SIGNAL, WAITS);
pipe(my $reader, my $writer); pipe(my $gate, my $hold);
my $pid = fork;
if (!$pid) {
    close $reader; close $hold;
    syswrite($writer, "ready\n");
    if ($waits) { sysread($gate, my $nothing, 1) } else { my $now = time; 1 while time < $now + 3 }
    syswrite($writer, "alive\n");
    exit 3;
}
close $writer; close $gate;
sysread($reader, my $line, 6); print $line;
my $id = begin();
if ($id < 0) {
    close $hold;
    print <$reader>;
} else {
    kill($signal, $pid) == 1 or die;
    waitpid($pid, 0); print "ended by $?", <$reader>, "\n";
    finish($id);
    exit 0;
}
waitpid($pid, 0); print $? >> 8, "\n";
"#;
    for (signal, number) in [("'KILL'", 9), ("'TERM'", 15)] {
        for waits in ["0", "1"] {
            let program = program.replace("SIGNAL", signal).replace("WAITS", waits);
            check(&program, "fail", "ready\nalive\n3\n", &["kill", "wait4"]);
            check(&program, "commit", &format!("ready\nended by {number}\n"), &["kill", "wait4"]);
        }
    }
}

#[test]
fn counters_are_put_back() {
    let program = r#"
my ($tokens, $sums) = (event(3, 1), event(0, 0));
my $pid = fork;
if (!$pid) {
    my $sum = 0;
    while ($sum < 10) { $sum += take($tokens); give($sums, 1 + 100 * depth()) }
    exit $sum;
}
my $seen = 0;
$seen += take($sums) while $seen < 3;
my $id = begin();
if ($id < 0) {
    print "again\n";
    give($tokens, 7);
    $seen += take($sums) while $seen < 10;
} else {
    give($tokens, 1);
    print take($sums), "\n";
    finish($id);
    give($tokens, 6);
    $seen += take($sums) while $seen < 9;
}
waitpid($pid, 0); print "$seen ", $? >> 8, "\n";
"#;
    check(program, "fail", "again\n10 10\n", &["read", "write"]);
    check(program, "commit", "101\n9 10\n", &["read", "write"]);
}

/// SIGKILL never arrives anywhere where it could be looked at: a process that ends itself by it on a guess is a ghost
/// like one that exits. It used to be dead, and a rollback that was to remove it, or to bring it back, ended the world.
#[test]
fn a_process_that_killed_itself_lives_again() {
    let program = r#"
sub kill_oneself { KILL }
pipe(my $gate, my $hold);
my $older = fork;
if (!$older) {
    close $hold;
    sysread($gate, my $word, 4); kill_oneself() if $word eq 'die!';
    exit 3;
}
close $gate;
my $id = begin();
if ($id < 0) {
    syswrite($hold, 'live');
} else {
    my $younger = fork;
    kill_oneself() if !$younger;
    waitpid($younger, 0); print "ended by $?\n";
    syswrite($hold, 'die!');
}
if ($id >= 0) {
    waitpid($older, 0); print "ended by $?\n";
    finish($id);
    exit 0;
}
waitpid($older, 0); print $? >> 8, "\n";
"#;
    for kill in ["kill 'KILL', $$", "syscall(234, $$ + 0, $$ + 0, 9)"] {
        let program = program.replace("KILL", kill);
        check(&program, "fail", "3\n", &["kill", "tgkill", "wait4"]);
        check(&program, "commit", "ended by 9\nended by 9\n", &["kill", "tgkill", "wait4"]);
    }
}

/// A parent was told of the end of a child that a rollback then removes: it must not be told of that child again.
#[test]
fn a_child_that_never_was_is_not_heard_of() {
    let program = r#"
my $heard = 0; $SIG{CHLD} = sub { $heard++ };
sub child {
    my $pid = fork;
    exit 3 if !$pid;
    1 until waitpid($pid, 0) == $pid;
    1 while !$heard;
}
my $id = begin();
child();
finish($id) if $id >= 0;
print "heard $heard\n";
"#;
    check(program, "fail", "heard 1\n", &["wait4"]);
    check(program, "commit", "heard 1\n", &["wait4"]);
}

/// What a parent was told of a child still waits in the kernel, because it is blocked, when a rollback makes the child
/// live again.
#[test]
fn a_signal_that_waits_is_taken_back() {
    let program = r#"
use POSIX ();
my $heard = 0; $SIG{CHLD} = sub { $heard++ };
my $chld = POSIX::SigSet->new(POSIX::SIGCHLD());
pipe(my $gate, my $hold); pipe(my $reader, my $writer);
my $pid = fork;
if (!$pid) { close $hold; close $reader; sysread($gate, my $word, 4); POSIX::_exit(3) }
close $gate; close $writer;
POSIX::sigprocmask(POSIX::SIG_BLOCK(), $chld);
my $id = begin();
if ($id < 0) { POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $chld); print "at first $heard, " }
syswrite($hold, 'stop');
sysread($reader, my $end, 1);
finish($id) if $id >= 0;
POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $chld);
1 until waitpid($pid, 0) == $pid;
1 while !$heard;
print "heard $heard, ", $? >> 8, "\n";
"#;
    check(program, "fail", "at first 0, heard 1, 3\n", &["read"]);
    check(program, "commit", "heard 1, 3\n", &["read"]);
}

/// `waitid` that only looked at a child is certain; the wait that took it is not, and is taken back.
#[test]
fn a_child_that_was_only_looked_at_can_be_waited_for() {
    let program = r#"
my $first = begin();
my $pid = fork;
exit 5 if !$pid;
my $info = "\0" x 128;
syscall(247, 1, $pid, $info, 0x1000004, 0) == 0 or die;
my $second = begin();
if ($second >= 0) {
    waitpid($pid, 0) == $pid or die;
    syscall(0x5bed, 2, $first, 0);
    select(undef, undef, undef, 0.02) for 1 .. 10;
    finish($second);
    exit 0 if $end eq 'commit' and print 'at once ', $? >> 8, "\n";
}
print waitpid($pid, 0) == $pid ? 'again ' : 'nobody ', $? >> 8, "\n";
"#;
    check(program, "fail", "again 5\n", &["wait4", "waitid"]);
    check(program, "commit", "at once 5\n", &["wait4", "waitid"]);
}

/// A process that is to be removed may be in the middle of a fork: the child, of which nobody has heard yet, goes with
/// it. One that is forgotten sleeps, and the world does not end.
#[test]
fn a_child_that_was_just_being_made_never_was() {
    let program = r#"
for (1 .. 40) {
    my $id = begin();
    next if $id < 0;
    my $pid = fork;
    if (!$pid) {
        while (1) { if (!fork) { sleep 1000; exit } }
    }
    select(undef, undef, undef, 0.01);
    syscall(0x5bed, 3, $id, 0);
}
print "end\n";
"#;
    check(program, "fail", "end\n", &["clone"]);
}

/// Whether a write to a pipe waits is a property of the open file, which is not kept for a rollback: whoever reads
/// until the end hears of it when its writers have closed it, and afterwards it is as it was before the guess.
#[test]
fn flags_of_a_pipe_s_end_hide_no_end_of_file() {
    let program = r#"
r, w = os.pipe()
guess = begin()
child = os.fork()
if child == 0:
    os.close(w)
    received = b''
    while True:
        bytes = os.read(r, 10)
        if not bytes: break
        received += bytes
    os._exit(len(received))
x = os.dup(w)
os.set_blocking(w, False)
os.write(w, b'abc')
os.close(w)
show(os.get_blocking(x))
os.close(x)
show(status(child))
if guess >= 0: finish(guess)
"#;
    check_failure(program, "False\n3\n", &["fcntl", "read", "close"]);
    check_success(program, "False\n3\n", &["fcntl", "read", "close"]);
}

/// A change of flags makes a pipe depend on a guess and keeps nothing of what is in it. So what is put in or taken out
/// next has to be kept, though it adds no dependency.
#[test]
fn what_is_moved_after_a_change_of_flags_is_put_back() {
    let program = r#"
r, w = os.pipe()
os.write(w, b'before')
guess = begin()
os.set_blocking(w, False)
os.write(w, b'abc')
show(os.read(r, 4))
if guess >= 0: finish(guess)
show(os.read(r, 100))
"#;
    check_failure(program, "b'befo'\nb'reabc'\n", &["write", "read"]);
    check_success(program, "b'befo'\nb'reabc'\n", &["write", "read"]);
}

/// The same of a direction that was shut down.
#[test]
fn what_is_received_after_a_shutdown_is_put_back() {
    let program = r#"
here, there = socket.socketpair()
there.send(b'before')
guess = begin()
there.shutdown(socket.SHUT_WR)
show(here.recv(4))
if guess >= 0: finish(guess)
show(here.recv(100), here.recv(100))
"#;
    check_failure(program, "b'befo'\nb're' b''\n", &["recvfrom"]);
    check_success(program, "b'befo'\nb're' b''\n", &["recvfrom"]);
}

/// The same of a socket whose other end was closed.
#[test]
fn what_is_received_after_a_hang_up_is_put_back() {
    let program = r#"
here, there = socket.socketpair()
there.send(b'before')
guess = begin()
r, w = os.pipe()
child = os.fork()
if child == 0:
    there.close()
    os.read(r, 1)
    show(here.recv(4))
    os._exit(3)
there.close()
os.write(w, b'.')
show(status(child))
if guess >= 0: finish(guess)
show(here.recv(100))
"#;
    check_failure(program, "b'befo'\n3\nb're'\n", &["recvfrom", "close"]);
    check_success(program, "b'befo'\n3\nb're'\n", &["recvfrom", "close"]);
}

/// The flags are put back for all that have the end, whoever has changed them, and for whoever has closed it since.
#[test]
fn flags_of_a_pipe_s_end_are_put_back() {
    let program = r#"
r, w = os.pipe()
x = os.dup(w)
guess = begin()
if guess < 0:
    show(os.get_blocking(w), os.get_blocking(x), os.get_blocking(r))
else:
    child = os.fork()
    if child == 0:
        os.set_blocking(w, False)
        os._exit(0)
    os.waitpid(child, 0)
    os.set_blocking(r, False)
    os.close(x)
    finish(guess)
"#;
    check_failure(program, "True True True\n", &["fcntl", "close"]);
}
