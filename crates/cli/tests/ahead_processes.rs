//! What processes do to each other while something is speculative, beside talking: signals, locks, programs that are
//! written and run.

use crate::support;

use std::collections::BTreeSet;
use std::process::Command;

use support::guess::{check_failure, check_perl as check, check_success};
use support::{is_root, Scene};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// What a guess has sent is heard, wherever the receiver is, and never was if the guess is wrong: the receiver has
/// neither run its handler nor will it.
#[test]
fn a_caught_signal_is_heard_or_never_was() {
    let program = r#"
pipe(my $reader, my $writer); pipe(my $gate, my $hold);
my $pid = fork;
if (!$pid) {
    close $reader; close $hold;
    my $heard = 0;
    my $child = fork;
    if (!$child) { select(undef, undef, undef, 20); exit }
    $SIG{USR1} = sub { $heard++; syswrite($writer, "heard $heard\n") };
    $SIG{TERM} = sub { syswrite($writer, "bye $heard\n"); kill('KILL', $child); waitpid($child, 0); exit 4 };
    syswrite($writer, "ready\n");
    while (1) { WAITS }
}
close $writer; close $gate;
sub line { my $line = ''; while (sysread($reader, my $byte, 1)) { $line .= $byte; last if $byte eq "\n" } return $line }
print line();
my $id = begin();
if ($id < 0) {
    print "again\n";
} else {
    kill('USR1', $pid) == 1 or die; print line();
    kill('USR1', $pid) == 1 or die; print line();
    finish($id);
}
kill('TERM', $pid) == 1 or die; print line();
waitpid($pid, 0); print $? >> 8, "\n";
"#;
    for waits in [
        "",
        "sysread($gate, my $nothing, 1);",
        "sleep 100;",
        "select(undef, undef, undef, 100);",
        "waitpid($child, 0);",
        "syscall(34);",
    ] {
        let program = program.replace("WAITS", waits);
        // Whether a `kill` has to wait depends on where its receiver is just then.
        check(&program, "fail", "ready\nagain\nbye 0\n4\n", &[]);
        check(&program, "commit", "ready\nheard 1\nheard 2\nbye 2\n4\n", &[]);
    }
}

/// Who is ended by a signal on a guess, and shares a pipe with another guess, may have to come back though his own
/// guess was right: he ends by it again.
#[test]
fn an_end_by_a_signal_that_is_taken_back_comes_again() {
    let program = r#"
pipe(my $go, my $start); pipe(my $reader, my $writer);
sub pass { my $time = pack('qq', 0, $_[0] * 1e9); syscall(35, $time, 0) }
my $pid = fork;
if (!$pid) { sysread($go, my $byte, 1) == 1 or exit 2; pass(0.4); kill('USR2', $$); exit 1 }
my $other = fork;
if (!$other) {
    my $id = begin();
    if ($id >= 0) { syswrite($writer, "guess"); pass(0.9); pass(0.9); finish($id) }
    exit 0;
}
my $giver = fork;
if (!$giver) {
    pass(0.4);
    my $id = begin();
    if ($id >= 0) { syswrite($start, "x"); pass(0.8); syscall(0x5bed, 2, $id, 0) }
    exit 0;
}
for ($pid, $other, $giver) { waitpid($_, 0); print "$?\n" }
"#;
    check(program, "fail", "12\n0\n0\n", &[]);
    check(program, "commit", "12\n0\n0\n", &[]);
}

/// Two processes write into a file at the position that they share, one of them on guesses that are wrong: nothing of
/// the other one is overwritten.
#[test]
fn what_is_certain_is_not_overwritten_after_a_rollback() {
    let program = r#"
open(my $file, '>', 'numbers') or die;
my $pid = fork;
if (!$pid) { for (1 .. 1500) { syswrite($file, sprintf("%05d\n", $_)) } exit 0 }
for (1 .. 60) {
    my $id = begin();
    if ($id >= 0) { syswrite($file, "guess\n"); finish($id) }
}
waitpid($pid, 0);
open(my $lines, '<', 'numbers') or die;
my @lines = <$lines>;
print scalar(grep { $lines[$_] == $_ + 1 } 0 .. $#lines), "\n";
"#;
    check(program, "fail", "1500\n", &[]);
}

/// Whoever learns of something that was done after a signal was sent has heard the signal; while it blocks it, it
/// learns nothing until it is certain that it was sent.
#[test]
fn a_signal_comes_before_what_was_done_after_it() {
    let program = r#"
use POSIX ':signal_h';
pipe(my $reader, my $writer); pipe(my $orders, my $order);
my $set = POSIX::SigSet->new(SIGUSR1);
my $pid = fork;
if (!$pid) {
    close $reader; close $order;
    my $heard = 0;
    sigprocmask(SIG_BLOCK, $set) if BLOCKS;
    $SIG{USR1} = sub { $heard++ };
    syswrite($writer, "ready\n");
    while (1) {
        my $got = sysread($orders, my $byte, 1);
        next if !defined $got;
        last if !$got;
        if (BLOCKS) { syswrite($writer, "$byte blocked $heard\n"); sigprocmask(SIG_UNBLOCK, $set); sigprocmask(SIG_BLOCK, $set) }
        syswrite($writer, "$byte heard $heard\n");
    }
    exit $heard;
}
close $writer; close $orders;
sub lines { my $left = shift; while (sysread($reader, my $byte, 1)) { print $byte; last if $byte eq "\n" && !--$left } }
lines(1);
my $id = begin();
print "again\n" if $id < 0;
kill('USR1', $pid) == 1 or die;
syswrite($order, 'a');
finish($id) if $id > 0;
lines(1 + BLOCKS);
kill('USR1', $pid) == 1 or die;
syswrite($order, 'b');
lines(1 + BLOCKS);
close $order;
waitpid($pid, 0); print $? >> 8, "\n";
"#;
    let open = program.replace("BLOCKS", "0");
    check(&open, "fail", "ready\nagain\na heard 1\nb heard 2\n2\n", &["kill"]);
    check(&open, "commit", "ready\na heard 1\nb heard 2\n2\n", &["kill"]);
    let blocked = program.replace("BLOCKS", "1");
    let heard = "a blocked 0\na heard 1\nb blocked 1\nb heard 2\n2\n";
    check(&blocked, "fail", &format!("ready\nagain\n{heard}"), &["kill"]);
    check(&blocked, "commit", &format!("ready\n{heard}"), &["kill"]);
}

/// A receiver that blocks a signal is left alone until it can hear it: it unblocks it, or waits for it, and asks
/// nobody.
#[test]
fn a_blocked_signal_is_heard_when_it_is_unblocked() {
    let program = r#"
heard = 0
def hear(*_): global heard; heard += 1
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGUSR1, hear); signal.signal(signal.SIGTERM, lambda *_: os._exit(4))
    mask, none = {signal.SIGUSR1}, ctypes.create_string_buffer(128)
    signal.pthread_sigmask(signal.SIG_BLOCK, mask)
    os.write(writer, b'ready')
    while True:
        before = heard; spin(0.2)
        HEARS
        os.write(writer, b'heard %d' % heard)
show(os.read(reader, 100))
guess = begin()
if guess < 0: show('again')
else: os.kill(child, signal.SIGUSR1); show(os.read(reader, 100)); finish(guess)
os.kill(child, signal.SIGUSR1); show(os.read(reader, 100))
os.kill(child, signal.SIGTERM); show(status(child))
"#;
    for hears in [
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)\n        while heard == before: pass\n        \
         signal.pthread_sigmask(signal.SIG_BLOCK, mask)",
        "while heard == before: libc.sigsuspend(none)",
    ] {
        let program = program.replace("HEARS", hears);
        check_failure(&program, "b'ready'\nagain\nb'heard 1'\n4\n", &[]);
        check_success(&program, "b'ready'\nb'heard 1'\nb'heard 2'\n4\n", &[]);
    }
}

/// A signal of nobody who guesses is heard by a speculative process at once, and again after a rollback; its own
/// timer's comes again by itself.
#[test]
fn a_speculative_process_hears_what_is_certain() {
    let program = r#"
my ($heard, $rang) = (0, 0);
$SIG{USR1} = sub { $heard++ }; $SIG{ALRM} = sub { $rang++ };
my $me = $$; my $helper = fork;
if (!$helper) { pipe(my $gate, my $hold); select(undef, undef, undef, 0.5); kill('USR1', $me); exit }
my $id = begin();
if ($id < 0) {
    print "again\n";
} else {
    alarm 1;
    select(undef, undef, undef, 0.05) until $heard && $rang;
    finish($id);
}
select(undef, undef, undef, 0.05) until $heard;
alarm 0; waitpid($helper, 0);
print "$heard $rang\n";
"#;
    check(program, "fail", "again\n1 0\n", &["kill"]);
    check(program, "commit", "1 1\n", &["kill"]);
}

/// What it has sent itself while it blocked it is gone with what has sent it.
#[test]
fn a_blocked_signal_of_its_own_never_was() {
    let program = r#"
use POSIX ':signal_h';
my $heard = 0; $SIG{USR1} = sub { $heard++ };
my $set = POSIX::SigSet->new(SIGUSR1);
sigprocmask(SIG_BLOCK, $set);
my $id = begin();
if ($id < 0) { print "again\n" } else { kill('USR1', $$); finish($id) }
sigprocmask(SIG_UNBLOCK, $set);
print "$heard\n";
"#;
    check(program, "fail", "again\n0\n", &["kill"]);
    check(program, "commit", "1\n", &["kill"]);
}

/// Closing any descriptor of a file gives up the locks on it, and a rollback could not take them back.
#[test]
fn a_lock_is_not_lost() {
    let program = r#"
use Fcntl;
sub lock_of { my $kind = shift; return pack('s s x![q] q q i x4', $kind, 0, 0, 0, 0) }
pipe(my $reader, my $writer); pipe(my $orders, my $order); pipe(my $gate, my $hold);
open(my $made, '>', 'file') or die; close $made;
my $pid = fork;
if (!$pid) {
    close $reader; close $order; close $hold;
    open(my $first, '+<', 'file') or die; open(my $second, '+<', 'file') or die;
    fcntl($first, F_SETLK, lock_of(F_WRLCK)) or die;
    syswrite($writer, "ready\n");
    sysread($orders, my $byte, 1);
    close $second if $byte eq 'x';
    syswrite($writer, "did $byte\n");
    sysread($gate, my $nothing, 1);
    exit 3;
}
close $writer; close $orders; close $gate;
sub line { my $line = ''; while (sysread($reader, my $byte, 1)) { $line .= $byte; last if $byte eq "\n" } return $line }
print line();
my $id = begin();
if ($id < 0) { print "again\n"; syswrite($order, 'y') } else { syswrite($order, 'x'); select(undef, undef, undef, 0.3); finish($id) }
print line();
open(my $mine, '+<', 'file') or die;
print fcntl($mine, F_SETLK, lock_of(F_WRLCK)) ? "free\n" : "locked\n";
close $hold; waitpid($pid, 0); print $? >> 8, "\n";
"#;
    check(program, "fail", "ready\nagain\ndid y\nlocked\n3\n", &[]);
    check(program, "commit", "ready\ndid x\nfree\n3\n", &[]);
}

/// Who helps a guess: it ends when `resolve_later` said so, whatever its maker does meanwhile. `copy` makes a program.
const HELPER: &str = r#"
sub copy { my $bytes = do { local $/; open(my $from, '<', $_[0]) or die; <$from> }; open(my $to, '>', $_[1]) or die; syswrite($to, $bytes); chmod 0755, $_[1]; return $to }
pipe(my $ids, my $tell);
my $helper = fork;
if (!$helper) {
    close $tell;
    sysread($ids, my $id, 10) or exit;
    select(undef, undef, undef, 0.3);
    finish($id + 0);
    exit;
}
sub resolve_later { syswrite($tell, $_[0]) if $_[0] > 0; print "again\n" if $_[0] < 0; close $tell }
"#;

/// What undoes the close of a program that was written keeps it open for writing.
#[test]
fn a_program_is_run_that_was_closed_on_a_guess() {
    let program = r#"
my $written = copy('/bin/echo', 'program');
my $id = begin();
resolve_later($id);
close $written;
system('./program', 'runs') == 0 or print "not run: $!\n";
waitpid($helper, 0);
"#;
    let program = format!("{HELPER}{program}");
    check(&program, "fail", "again\nruns\n", &[]);
    check(&program, "commit", "runs\n", &[]);
}

/// A checkpoint and a process that has ended on a guess still run their program.
#[test]
fn a_program_is_written_that_ran_on_a_guess() {
    let program = r#"
close copy('/bin/true', 'program');
my $id = begin();
resolve_later($id);
system('./program') == 0 or die;
open(my $file, '+<', 'program') ? print "opened\n" : print "not opened: $!\n";
waitpid($helper, 0);
"#;
    let program = format!("{HELPER}{program}");
    check(&program, "fail", "again\nopened\n", &[]);
    check(&program, "commit", "opened\n", &[]);
}

/// What a shell command shows natively it shows inside one open guess that is right, without waiting for it, and
/// nothing is left of it if the guess is wrong.
fn check_runs_ahead(scene: &Scene, command: &str) {
    let shown = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(scene.path("dir")).env("S", SPECULATOR);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let left = || {
        let names = std::fs::read_dir(scene.path("dir")).unwrap().flatten().map(|entry| entry.file_name());
        names.map(|name| (std::fs::read(scene.path("dir").join(&name)).unwrap(), name)).collect::<BTreeSet<_>>()
    };
    let empty = || {
        std::fs::remove_dir_all(scene.path("dir")).unwrap();
        std::fs::create_dir(scene.path("dir")).unwrap();
    };
    let native = shown(&["bash", "-c", command]);
    let left_natively = left();
    for outcome in ["commit", "fail"] {
        empty();
        let begin = r#"id=$($S begin); [ "$id" = failed ] && { echo again; exit; }"#;
        let script = format!("{begin}; {command}; $S {outcome} $id; echo kept");
        let told = shown(&[SPECULATOR, "run", "--stats=json:../stats", "--", "bash", "-c", &script]);
        let expected = match outcome {
            "commit" => (format!("{native}kept\n"), left_natively.clone()),
            _ => ("again\n".to_owned(), BTreeSet::new()),
        };
        assert_eq!((told, left()), expected, "{command}: {outcome}");
        let stats = std::fs::read_to_string(scene.path("stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["ahead"]["barriers"], serde_json::json!({}), "{command}: {outcome}");
    }
}

/// As `cat -n` asks.
#[test]
fn who_asks_how_much_of_a_file_is_left_does_not_wait() {
    let program = "
def left(fd): return struct.unpack('i', fcntl.ioctl(fd, 0x541b, b'....'))[0]
old = os.open('old', os.O_RDWR | os.O_CREAT)
os.write(old, b'12345'); os.lseek(old, 2, 0)
guess = begin()
if guess > 0:
    new = os.open('new', os.O_RDWR | os.O_CREAT)
    os.write(new, b'123456789'); os.lseek(new, 1, 0); os.read(old, 1); show(left(new), left(old))
    finish(guess)
show(left(old))
";
    check_failure(program, "3\n", &["ioctl"]);
    check_success(program, "8 2\n2\n", &["ioctl"]);
}

/// A child of `vfork`, or of `posix_spawn`, shares its parent's memory until it executes a program: on a guess nobody
/// sees that it does not, and nobody waits for the guess.
#[test]
fn who_spawns_does_not_wait() {
    check_program_runs_ahead("vfork_memory.c");
    check_program_runs_ahead("vfork_layout.c");
}

/// So does the child whose descriptor its parent asks for, by which it waits; and one whose end no signal tells.
#[test]
fn who_makes_a_child_with_a_descriptor_does_not_wait() {
    check_program_runs_ahead("clone_pidfd.c");
}

/// Whether a process is there is asked of the kernel, as shells do in a loop (`kill -0`).
#[test]
fn who_asks_whether_a_process_is_there_does_not_wait() {
    check_program_runs_ahead("process_probes.c");
    check_runs_ahead(&Scene::new(), "sleep 0.3 & while kill -0 $! 2> /dev/null; do sleep 0.05; done; wait $!; echo $?");
}

/// A child has the pipe that another thread of its parent was just making, and closes it before that thread can tell
/// that it is inside (decision 0232): whoever reads from it hears of its end all the same.
#[test]
fn a_pipe_that_is_not_told_of_yet_has_an_end() {
    check_program_runs_ahead("pipes_inherited.c");
}

/// Children end without a question, where their ends concern their parent alone, and with one elsewhere: the parent is
/// told the same of both kinds, in whichever way it asks (decision 0238).
#[test]
fn ends_that_nobody_asks_about_are_told_of_as_others_are() {
    check_program_runs_ahead("ends_unasked.c");
}

/// A parent hears of each child once, before it has waited for it, and of none that ended while it had no handler.
#[test]
fn a_parent_hears_of_each_child_once() {
    check_program_runs_ahead("child_signal_once.c");
}

/// What a process sends itself is heard at once, SIGCHLD as well.
#[test]
fn who_sends_itself_the_signal_of_a_child_hears_it_at_once() {
    check_program_runs_ahead("signal_child_sent.c");
}

/// A child has ended without a question when its parent makes a guess of its own: it is there when that is taken back.
#[test]
fn who_has_ended_already_is_there_again() {
    let program = r#"perl -e '$| = 1; my $p = fork; exit 3 if !$p; select(undef, undef, undef, 0.05);
        my $g = `$ENV{S} begin`; chomp $g; print $g eq "failed" ? "failed\n" : "made\n";
        waitpid($p, 0) == $p or print "none\n"; print "status ", $? >> 8, "\n";
        $g eq "failed" or system("$ENV{S} $ARGV[0] $g");' "#;
    for (outcome, expected) in [("commit", "made\nstatus 3\nout\n"), ("fail", "failed\nstatus 3\nout\n")] {
        let scene = Scene::new();
        let script = format!("id=$($S begin); {program} {outcome}; echo out; $S commit $id");
        let mut inside = Command::new(SPECULATOR);
        inside.args(["run", "--stats=json:stats", "--", "bash", "-c", &script]);
        let output = inside.current_dir(scene.path(".")).env("S", SPECULATOR).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{outcome}");
        let stats = std::fs::read_to_string(scene.path("stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["ahead"]["barriers"], serde_json::json!({}), "{outcome}");
        assert!(stats["ahead"]["unasked_ends"].as_u64().unwrap() > 0, "{outcome}: the child was asked about");
    }
}

#[track_caller]
fn check_program_runs_ahead(program: &str) {
    let scene = Scene::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/").to_owned() + program;
    let compiled = Command::new("cc").args(["-O1", "-o"]).arg(scene.path("program")).arg(source).status();
    assert!(compiled.unwrap().success());
    check_runs_ahead(&scene, "../program");
}

/// A child that has ended on a guess still has its parent's epoll set open, and waits there no more.
#[test]
fn who_changes_a_set_that_only_an_ended_child_has_does_not_wait() {
    let program =
        "import os, select; e = select.epoll(); r, w = os.pipe(); e.register(r, select.EPOLLIN); p = os.fork()
if p == 0: os._exit(3)
print(os.waitpid(p, 0)[1] >> 8); e.unregister(r); e.register(w, select.EPOLLOUT); print(e.poll(1)[0][0] == w)";
    check_runs_ahead(&Scene::new(), &format!("{} -c '{program}'", support::python()));
}

/// What is written and made durable on a guess is durable when the guess was right, before anything of it is shown.
#[test]
fn who_makes_a_file_durable_does_not_wait() {
    check_runs_ahead(&Scene::new(), "echo a > file; sync -d file; echo b >> file; sync file; sync .; cat file");
}

/// An end of a pipe that is opened by way of /proc/self/fd is one more, and closed by a rollback.
#[test]
fn who_opens_a_pipe_of_its_own_again_does_not_wait() {
    check_runs_ahead(&Scene::new(), "seq 3 | cat /dev/stdin; seq 4 | { read first; cat /dev/fd/0; }");
}

/// A file that is made is no link.
#[test]
fn who_makes_a_file_and_follows_no_link_does_not_wait() {
    let program = r#"use Fcntl; sysopen(my $file, "file", O_RDWR | O_CREAT | O_NOFOLLOW, 0600) or die;
        syswrite($file, "abc"); sysopen(my $again, "file", O_RDONLY | O_NOFOLLOW) or die;
        sysread($again, my $text, 10); print "$text\n""#;
    check_runs_ahead(&Scene::new(), &format!("perl -e '{program}'"));
}

/// A name that leads through /proc, or from the root of a process that has another root, is looked up as the process
/// does: the size of a file that is written on a guess is never that from before.
#[test]
fn what_a_name_means_is_the_caller_s_and_not_ours() {
    let program = r#"
f = os.open('file', os.O_RDWR | os.O_CREAT)
os.write(f, b'abc')
g = os.open('file', os.O_RDONLY)
os.dup2(g, 0)
ROOT
guess = begin()
if guess < 0:
    show('again')
else:
    os.write(f, b'defg')
    show(os.stat('NAME').st_size)
    finish(guess)
"#;
    let names = [
        // The call waits for the guess, and so fails it.
        ("/dev/stdin", "", "again\n"),
        ("/proc/self/fd/0", "", "again\n"),
        ("/proc/thread-self/fd/0", "", "again\n"),
        ("/proc/self/cwd/file", "", "again\n"),
        // It is answered.
        ("/link", "os.symlink('/file', 'link'); os.chroot('.')", "7\n"),
    ];
    for (name, root, shown) in names.into_iter().filter(|(_, root, _)| root.is_empty() || is_root()) {
        let program = program.replace("NAME", name).replace("ROOT", root);
        check_failure(&program, "again\n", &[]);
        check_success(&program, shown, &[]);
    }
}
