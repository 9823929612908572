# @needs perl
# Perl: files, pipes from and to commands, fork, sort, signals, sockets, in-place hashes.
use strict; use warnings; use IO::Handle; use Socket; use Fcntl ':flock';
$| = 1;
open my $out, '>', 'data' or die; print $out "$_\n" for 1 .. 1000; $out->flush; $out->sync; close $out;
open my $in, '-|', 'sort -rn data | head -3' or die; print while <$in>; close $in;
open my $to, '|-', 'tr a-z A-Z' or die; print $to "shout\n"; close $to;
my @pids = map { my $n = $_; my $pid = fork; if (!$pid) { exit $n } $pid } 1 .. 10;
my $sum = 0; for (@pids) { waitpid $_, 0; $sum += $? >> 8 } print "sum $sum\n";
local $SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; sleep 10; }; print $@;
local $SIG{USR1} = sub { print "usr1\n" }; kill USR1 => $$;
socketpair my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die; if (!fork) { syswrite $b, "from child"; exit } sysread $a, my $text, 100; wait; print "$text\n";
open my $lock, '>', 'lock' or die; flock $lock, LOCK_EX or die; print "locked\n"; rename 'data', 'renamed' or die; print -s 'renamed', "\n"; print `echo backticks`, system('exit 5') >> 8, "\n";
my %h; $h{$_ % 7}++ for 1 .. 1000; print join(',', map { "$_=$h{$_}" } sort keys %h), "\n"; opendir my $d, '.' or die; print join(' ', sort grep { !/^\./ } readdir $d), "\n"; exit 0;
