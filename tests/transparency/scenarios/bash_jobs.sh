# bash: background jobs, wait for one, for any, for all; kill by job; disown; set -m groups; statuses of pipelines.
for i in 1 2 3 4 5; do (sleep 0.$i; exit $i) & pids[i]=$!; done
for i in 5 3 1 2 4; do wait "${pids[i]}"; echo "job $i: $?"; done
(sleep 0.1; exit 9) & (sleep 5) & wait -n; echo "first $?"; kill %2; wait %2 2>/dev/null; echo "killed $?"
set -m; sleep 100 & kill -STOP %1; sleep 0.2; jobs | sed 's/ *$//'; kill -CONT %1; kill %1; wait %1 2>/dev/null; echo "$?"; set +m
sleep 100 & disown; kill $!; sleep 0.1; jobs
{ for i in $(seq $((200 / ${ROUNDS_DIVIDED_BY:-1}))); do (exit $((i % 3))) & done; wait; echo all; }
for i in $(seq $((20 / ${ROUNDS_DIVIDED_BY:-1}))); do echo "$i" >> appended & done; wait
sort -n appended | tail -1; sort -n -o appended appended
(echo a; exit 3) | cat | (cat; exit 4); echo "${PIPESTATUS[*]}"
set -o pipefail; false | true; echo "pipefail $?"
coproc_result=$( { sleep 0.1; echo late; } & echo early; wait ); echo "$coproc_result"
nohup sh -c 'echo nohup' < /dev/null 2>/dev/null; setsid -w sh -c 'exit 6'; echo "setsid $?"
