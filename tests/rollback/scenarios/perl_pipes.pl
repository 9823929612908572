# Perl: pipes in both directions, select, sockets, signals, exec failures.
# @needs perl
# @never WRONG
use strict; use IPC::Open2; use Socket; use IO::Select;
my $pid = open2(my $out, my $in, 'tr', 'a-z', 'A-Z'); print $in "hello\n"; close $in; print <$out>; waitpid $pid, 0; print "status $?\n";
socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC); if (!(my $p = fork)) { close $a; syswrite $b, "from child\n"; exit 6 }
close $b; print scalar <$a>; wait; print "status ", $? >> 8, "\n";
pipe(my $r, my $w); my @kids = map { my $k = fork; if (!$k) { syswrite $w, "$_\n"; exit $_ } $k } 1 .. 5; close $w;
print sort <$r>; my $sum = 0; waitpid($_, 0), $sum += $? >> 8 for @kids; print "sum $sum\n";
my $ready = IO::Select->new($out); local $SIG{ALRM} = sub { print "alarm\n" }; alarm 1; select undef, undef, undef, 3; print "after\n";
system('/does/not/exist') == -1 and print "no such\n"; print "exit ", system('exit 7;') >> 8, "\n";
$SIG{CHLD} = sub { }; system('true'); print "end $?\n";
