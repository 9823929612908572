# IO::Socket::UNIX: one server that selects among all its clients, which talk at the same time.
# @memory
# @needs perl
# @never WRONG
# @timeout 60
use strict; use IO::Socket::UNIX; use IO::Select;
$| = 1;
my $listener = IO::Socket::UNIX->new(Local => 's', Listen => 5) or die "WRONG listen $!\n";
my $server = fork;
if (!$server) {
    my ($set, $sum, $left) = (IO::Select->new($listener), 0, 4);
    while ($left) {
        for my $ready ($set->can_read) {
            if ($ready == $listener) { $set->add($listener->accept); next }
            my $len = sysread($ready, my $line, 100);
            if (!$len) { $set->remove($ready); close $ready; $left--; next }
            $sum += $_ for split ' ', $line;
            syswrite($ready, "got $line");
        }
    }
    exit($sum == 324 ? 5 : 6);
}
close $listener;
my @clients;
for my $n (1 .. 4) {
    my $pid = fork;
    if (!$pid) {
        my $line = IO::Socket::UNIX->new(Peer => 's') or die "WRONG connect $!\n";
        for my $i (1 .. 3) {
            my $word = $n * 10 + $i;
            syswrite($line, "$word\n"); sysread($line, my $answer, 100);
            $answer eq "got $word\n" or print "WRONG $answer\n";
        }
        close $line; exit $n;
    }
    push @clients, $pid;
}
for (@clients) { waitpid($_, 0); print $? >> 8, "\n" }
waitpid($server, 0); print $? >> 8, "\n"; unlink 's';
