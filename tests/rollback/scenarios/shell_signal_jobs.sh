# Background jobs that signal each other and their shell; traps that interrupt wait; timeout; each step answered before the next.
# @never WRONG
mkfifo a b; exec 3<> a 4<> b
(trap 'echo one > a' USR1; trap 'echo end > a; exit 4' TERM; echo up > a; while :; do sleep 0.05; done) 2>/dev/null & first=$!
read -r word <&3; echo "first $word"
(kill -USR1 $first; read -r word <&3; echo "$word" > b; exit 3) & second=$!
read -r word <&4; echo "second said $word"; wait $second; echo "status $?"
trap 'echo "shell heard"; kill -TERM $first' USR2
(trap '' USR2; kill -USR2 $$; exit 2) & third=$!
wait $first; ended=$?; if [ $ended -gt 128 ]; then wait $first; ended=$?; fi; echo "first ended $ended"
read -r word <&3; echo "$word"; wait $third; trap - USR2
timeout 1 sleep 30; echo "timeout $?"
# Without --foreground the signal comes twice, from two calls: the trap may run once or twice, natively as well.
timeout --foreground -s USR1 4 bash -c 'trap "echo caught; exit 7" USR1; while :; do sleep 0.05; done' 2>/dev/null
echo "timeout $?"
# Each of them hears all that were sent before its order came.
for i in 1 2 3; do
  (n=0; trap 'n=$((n+1))' USR1; echo "up $i" > a; until [ -e "order$i" ]; do sleep 0.05; done; echo "$i heard $n" > b) 2>/dev/null & pids[i]=$!
  read -r word <&3; echo "$word"
done
for i in 1 2 3; do kill -USR1 ${pids[i]}; done
for i in 1 2 3; do : > "order$i"; read -r word <&4; echo "$word"; wait ${pids[i]}; done
