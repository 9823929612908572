# Every wrong write, rename, unlink or mkdir makes it say so; in memory.
# @never WRONG cannot
# @memory
for i in 1 2 3 4 5 6; do
    echo "$i" > a && mv a b || echo WRONG mv
    [ "$(cat b)" = "$i" ] || echo WRONG content
    mkdir d && [ -d d ] && mv b d/ && [ -f d/b ] || echo WRONG mkdir
    rm d/b && [ ! -e d/b ] && rmdir d && [ ! -e d ] || echo WRONG rm
    echo x >> log
done
[ "$(wc -l < log)" = 6 ] || echo WRONG log
cat log | sort | uniq -c
