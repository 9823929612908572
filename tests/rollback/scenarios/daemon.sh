# A daemon that forks twice, leaves its session, answers through fifos, and is told to end.
# @never WRONG
mkfifo ask answer
perl -MPOSIX -e 'fork and exit; setsid; fork and exit; open STDOUT, ">/dev/null"; open STDERR, ">/dev/null";
    while (1) { open(my $in, "<", "ask"); my $line = <$in>; close $in; open(my $out, ">", "answer"); print $out "answer to $line"; close $out; last if $line =~ /end/ }'
echo "started $?"
for word in one two end; do echo $word > ask; read -r line < answer; echo "$line"; [ "$line" = "answer to $word" ] || echo WRONG; done
