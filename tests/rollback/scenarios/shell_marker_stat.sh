# Every wrong answer of stat, access, open or readdir makes it say so.
# @never WRONG
for i in $(seq $((30 / ${ROUNDS_DIVIDED_BY:-1}))); do
    test -e /etc/passwd && echo yes || echo WRONG stat
    [ -r /etc/hostname ] || echo WRONG access
    read -r line < /etc/passwd || echo WRONG open
    set -- /etc/pass*d; [ "$1" = /etc/passwd ] || echo WRONG readdir
done
cd / && [ "$(pwd -P)" = / ] || echo WRONG chdir
