# Every wrong answer that Perl meets makes it say so; pipes by open, backticks, fork and wait.
# @never WRONG
# @needs perl
use strict;
$| = 1;
for my $i (1 .. 8) {
    -e '/etc/passwd' or print "WRONG -e\n";
    open(my $pipe, '-|', 'seq', 100) or print "WRONG open\n";
    my @lines = <$pipe>; close $pipe or print "WRONG close\n";
    @lines == 100 or print "WRONG lines\n";
    my $text = `echo $i; exit 3`; ($text == $i && $? >> 8 == 3) or print "WRONG backticks\n";
    my $pid = fork; defined $pid or print "WRONG fork\n";
    if (!$pid) { exit $i }
    waitpid($pid, 0) == $pid && $? >> 8 == $i or print "WRONG waitpid\n";
    open(my $out, '|-', 'cat') or print "WRONG open to\n";
    print $out "through cat $i\n"; close $out;
}
