# Background jobs whose order is decided by pipes: wait -n, wait -p, wait for pids, kill by job, jobs that talk to each other.
# @never WRONG
exec 5<> <(:) 2>/dev/null
mkfifo gate1 gate2 gate3
(read -r x < gate1; exit 11) & a=$!
(read -r x < gate2; exit 12) & b=$!
(read -r x < gate3; exit 13) & c=$!
# bash 5.2 waits for ever, natively too, if a job ends just before `wait -n` waits: so each ends a while after that. It
# says 127 if a job ends just after another child that is no job: so the child that lets a job end lives on for a while.
later() { (sleep 0.3; echo go > "$1"; sleep 0.15) & disown; }
later gate2; wait -n; echo "first $?"
later gate3; wait -n; echo "second $?"
later gate1; wait -n; echo "third $?"; wait -n; echo "none $?"
(exit 4) & p=$!; wait $p; echo "four $?"; wait $p; echo "again $?"
sleep 100 & kill $!; wait $! 2>/dev/null; echo "killed $?"
for i in 1 2 3 4 5 6 7 8; do (exit "$i") & pids+=($!); done
sum=0; for pid in "${pids[@]}"; do wait "$pid"; sum=$((sum + $?)); done; echo "sum $sum"; [ $sum = 36 ] || echo WRONG
