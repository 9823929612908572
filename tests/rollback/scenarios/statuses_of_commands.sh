# The status of each command: dash starts them by vfork, around which it blocks all signals.
# @needs dash
exec dash -c '
i=0
while [ $i -lt 12 ]; do
    /bin/true || echo "true failed: $i, $?"
    /bin/false && echo "false did not: $i, $?"
    i=$((i + 1))
done
/bin/sh -c "exit 7"; echo $?
/bin/true && /bin/true && echo end'
