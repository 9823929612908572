# bash: traps for signals, EXIT, ERR, DEBUG, in functions and subshells; signals while a command runs.
trap 'echo "exit $?"' EXIT
trap 'echo usr1' USR1
trap 'echo err on line $LINENO' ERR
kill -USR1 $$; false
(sleep 0.2; kill -USR1 $$) & sleep 0.6; wait
(trap 'echo sub exit' EXIT; trap 'echo sub term; exit 5' TERM; (sleep 0.2; kill -TERM $BASHPID 2>/dev/null) & kill -TERM $BASHPID; echo not reached); echo "sub $?"
f() { trap 'echo return' RETURN; return 3; }; f; echo "f $?"
bash -c 'trap "" INT; kill -INT $$; echo survived INT'
bash -c 'trap "echo hup; exit 7" HUP; kill -HUP $$; sleep 5'; echo "hup $?"
bash -c 'kill -TERM $$; sleep 5'; echo "term $?"
bash -c 'read -t 0.2 x < <(sleep 1); echo "read timed out: $(($? > 128))"'
timeout 0.3 sleep 10; echo "timeout $?"; { timeout -s KILL 0.3 sleep 10; echo "timeout -s KILL $?"; } 2>/dev/null
trap 'echo pipe' PIPE; yes 2>/dev/null | head -1; echo "${PIPESTATUS[*]}"
wait & wait $!; exit 0
