# Every wrong fork, exec or wait makes it say so.
# @never WRONG cannot Resource
for i in $(seq $((15 / ${ROUNDS_DIVIDED_BY:-1}))); do
    /bin/true || echo WRONG true
    /bin/false && echo WRONG false
    sh -c "exit $i"; [ $? = "$i" ] || echo WRONG status
    (exit 3) & wait $!; [ $? = 3 ] || echo WRONG wait
    [ "$(/bin/echo $i)" = "$i" ] || echo WRONG echo
done 2>&1
echo done
