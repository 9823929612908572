//! What goes through sockets and event descriptors while something is speculative: taken back on both sides, or kept.

#[path = "support/perl.rs"]
mod perl;

use perl::{check, SPECULATOR};
use std::process::{Command, Stdio};

/// A child that answers until it is told to stop: the word in capitals, how many there were, how many guesses it depends on.
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

/// A descriptor in a message cannot be given again: its receiver waits, and the guess, which nobody resolves, fails.
#[test]
fn messages_with_descriptors_wait() {
    let python = r#"
import ctypes, os, socket
here, there = socket.socketpair()
reader, writer = os.pipe()
socket.send_fds(here, [b'x'], [writer])
os.close(writer)
number = ctypes.CDLL(None).syscall(0x5bed, 1, 0, 0)
data, fds, _, _ = socket.recv_fds(there, 10, 4)
os.write(fds[0], b'through'); os.close(fds[0])
print('again' if number < 0 else 'WRONG', data, os.read(reader, 10), os.read(reader, 10))
"#;
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["-s", "KILL", "60", SPECULATOR, "run", "--", "python3", "-c", python])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "again b'x' b'through' b''\n", "{errors}");
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
