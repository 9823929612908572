# Two users that both gave up root call exec again and again at the same time, each in one process.
# @root
# @needs setpriv
# @timeout 60
cat > chain <<'INNER'
[ "$1" -gt 0 ] && exec sh ./chain $(($1 - 1)) "$2"
echo "$2 done"
INNER
chmod 755 . chain
for user in 65534 1 2; do setpriv --reuid=$user --regid=$user --clear-groups sh ./chain 60 "user $user" > out-$user & pids="$pids $!"; done
for pid in $pids; do wait "$pid"; echo "status $?"; done
cat out-*; rm chain out-*
