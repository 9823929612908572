# Processes that talk through pairs of sockets of every kind, and through event descriptors.
# @never WRONG
# @needs perl
use strict;
use Socket;
$| = 1;
for my $kind (SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM) {
    socketpair(my $here, my $there, AF_UNIX, $kind, 0) or print "WRONG socketpair\n";
    my $pid = fork; defined $pid or print "WRONG fork\n";
    if (!$pid) {
        close $here;
        my $sum = 0;
        while (defined recv($there, my $word, 100, 0)) {
            last if $word eq 'stop';
            $sum += $word;
            defined send($there, "sum $sum", 0) or print "WRONG send\n";
        }
        exit $sum;
    }
    close $there;
    for my $i (1 .. 6) {
        defined send($here, $i, 0) or print "WRONG send\n";
        defined recv($here, my $answer, 100, 0) or print "WRONG recv\n";
        $answer eq 'sum ' . $i * ($i + 1) / 2 or print "WRONG answer $answer\n";
    }
    send($here, 'stop', 0);
    waitpid($pid, 0) == $pid && $? >> 8 == 21 or print "WRONG status $?\n";
    print "kind $kind done\n";
}
sub event {
    my $fd = syscall(290, $_[0], $_[1]);
    $fd >= 0 or print "WRONG eventfd\n";
    open(my $handle, '+<&=', $fd) or print "WRONG open\n";
    return $handle;
}
sub take { my $value; sysread($_[0], $value, 8) == 8 or print "WRONG take\n"; return unpack 'Q', $value }
sub give { syswrite($_[0], pack 'Q', $_[1]) == 8 or print "WRONG give\n" }
my ($tokens, $answers) = (event(2, 1), event(0, 0));
my $pid = fork; defined $pid or print "WRONG fork\n";
if (!$pid) {
    for (1 .. 5) { take($tokens) == 1 or print "WRONG token\n"; give($answers, 7); }
    exit 0;
}
my $sum = 0;
give($tokens, 3);
$sum += take($answers) while $sum < 35;
print "sum $sum\n";
waitpid($pid, 0) == $pid or print "WRONG waitpid\n";
socketpair(my $reader, my $writer, AF_UNIX, SOCK_STREAM, 0) or print "WRONG socketpair\n";
if (!fork) { close $reader; syswrite($writer, "line $_\n") for 1 .. 3; exit 0 }
close $writer;
print while <$reader>;
wait;
