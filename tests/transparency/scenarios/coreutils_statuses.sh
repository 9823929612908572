# Statuses and odds: env, nice, nohup, timeout, stdbuf, xargs, kill -l, exit codes over 255, exec in place.
env -i A=1 sh -c 'echo $A'; env no-such 2>/dev/null; echo $?; env / 2>/dev/null; echo $?; sh -c 'exit 257'; echo $?; { sh -c 'kill -SEGV $$'; echo $?; } 2>/dev/null
nice -n 5 nice; stdbuf -oL echo line; (ulimit -c 0; ulimit -f 1; dd if=/dev/zero of=big bs=1k count=10; echo $?) 2>/dev/null; yes | head -2; seq 3 | while read -r x; do [ "$x" = 2 ] && break; echo "$x"; done
(cd /nonexistent 2>/dev/null || echo no such directory); sh -c 'exec sh -c "exec sh -c \"echo exec exec\""'; printf '%s\n' {a..e} | tac | paste -sd,; mkdir -p x/y/z; rmdir -p x/y/z; ls -A
date -d @0 -u +%F; test -t 1; echo $?; exec echo last
