# Perl: handlers in a receiver that reads, computes, waits or blocks; a signal and then bytes: the signal is heard first.
# @needs perl
# @never WRONG
use strict; use POSIX ':signal_h';
$| = 1;
# One byte after the other, so that nothing is read ahead; a handler interrupts it.
sub line {
    my ($from, $line) = (shift, '');
    while (1) { my $got = sysread $from, my $byte, 1; next if !defined $got; last if !$got; $line .= $byte; last if $byte eq "\n" }
    return $line;
}
pipe(my $answers, my $answer); pipe(my $orders, my $order);
my $pid = fork;
if (!$pid) {
    close $answers; close $order;
    my $heard = 0;
    $SIG{USR1} = sub { $heard++ };
    $SIG{USR2} = sub { syswrite $answer, "two after $heard\n" };
    $SIG{TERM} = sub { syswrite $answer, "bye $heard\n"; exit 5 };
    syswrite $answer, "ready\n";
    while (my $line = line($orders)) {
        sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR1)) if $line eq "block\n";
        sigprocmask(SIG_UNBLOCK, POSIX::SigSet->new(SIGUSR1)) if $line eq "unblock\n";
        if ($line eq "compute\n") { my $before = $heard; syswrite $answer, "computing\n"; 1 while $heard == $before }
        if ($line eq "wait\n") {
            my $child = fork;
            if (!$child) { my $word = line($orders); exit 6 }
            syswrite $answer, "waiting\n";
            waitpid $child, 0;
            syswrite $answer, "child $?\n";
        }
        syswrite $answer, "heard $heard at $line";
    }
    exit 7;
}
close $answer; close $orders;
print line($answers);
for my $round (1 .. 3) { kill 'USR1', $pid; syswrite $order, "round $round\n"; print line($answers) }
syswrite $order, "compute\n"; print line($answers); kill 'USR1', $pid; print line($answers);
kill 'USR2', $pid; print line($answers);
syswrite $order, "block\n"; print line($answers);
kill 'USR1', $pid for 1 .. 3; syswrite $order, "still\n"; print line($answers);
syswrite $order, "unblock\n"; print line($answers);
syswrite $order, "wait\n"; print line($answers); kill 'USR2', $pid; print line($answers); syswrite $order, "go on\n"; print line($answers), line($answers);
kill 'TERM', $pid; print line($answers); waitpid $pid, 0; print 'status ', $? >> 8, "\n";
# A handler lets go the child that its process waits for.
pipe(my $gate, my $hold);
$SIG{USR1} = sub { syswrite $hold, "go\n" };
my $parent = $$;
if (!(my $child = fork)) { kill 'USR1', $parent; print "gone: ", line($gate); exit 8 } else { waitpid $child, 0; print 'status ', $? >> 8, "\n" }
# Its own: blocked and unblocked, an alarm, a group that ignores them.
my $own = 0; $SIG{USR2} = sub { $own++ }; my $set = POSIX::SigSet->new(SIGUSR2);
sigprocmask(SIG_BLOCK, $set); kill 'USR2', $$; kill 'USR2', $$; print "blocked $own\n"; sigprocmask(SIG_UNBLOCK, $set); print "own $own\n";
my $rang = 0; $SIG{ALRM} = sub { $rang++ }; alarm 1; select undef, undef, undef, 0.1 until $rang; print "rang $rang\n";
