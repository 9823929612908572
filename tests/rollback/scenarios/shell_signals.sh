# Signals between processes: each is answered through a pipe before the next is sent.
# @never WRONG
mkfifo ready; exec 3<> ready
bash -c 'n=0; trap "n=\$((n+1)); echo got \$n > ready" USR1; trap "echo bye > ready; exit 9" TERM; echo up > ready; while :; do sleep 0.02; done' 2>/dev/null & pid=$!
read -r word <&3; echo "$word"
for i in 1 2 3; do kill -USR1 $pid; read -r word <&3; echo "$word"; done
kill -TERM $pid; read -r word <&3; echo "$word"; wait $pid; echo "status $?"
trap 'echo parent heard' USR2; sh -c 'kill -USR2 $PPID'; echo after
trap 'echo child ended' CHLD; (exit 3); /bin/true; trap - CHLD
bash -c 'trap "" TERM; kill -TERM $$; echo ignored'; { bash -c 'kill -KILL $$'; } 2>/dev/null; echo "killed $?"
