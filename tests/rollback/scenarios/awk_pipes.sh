# awk with pipes to and from commands, sort | uniq -c | sort -rn, join, comm, xargs.
# @never WRONG
seq 200 | awk '{ print $1 % 7 }' | sort | uniq -c | sort -k2n | awk '{ s += $1 } END { print s, NR }'
awk 'BEGIN { while (("seq 5" | getline line) > 0) print "got " line; close("seq 5"); print "b\na" | "sort"; close("sort"); r = system("exit 3"); print r }'
join <(seq 10 | sort) <(seq 5 15 | sort) | paste -sd' '; comm -12 <(seq 10 | sort) <(seq 8 12 | sort) | tr '\n' ' '; echo
seq 30 | xargs -n 7 echo | wc -l; seq 6 | xargs -n 1 -I{} sh -c 'exit $(({} == 4))'; echo "xargs $?"
find /etc -maxdepth 1 -name 'pass*d' | xargs -r ls; printf '%s\n' c b a | sort -o sorted; cat sorted | tac | nl
