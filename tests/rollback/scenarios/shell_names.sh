# Files on a disk are removed and renamed while guesses are open; every wrong one makes it say so.
# @never WRONG
echo a > a; echo b > b; echo c > c; mkdir d; echo e > d/e
for i in 1 2 3; do
    mv a x && [ ! -e a ] || echo "WRONG a $i"
    mv x a && [ "$(cat a)" = a ] || echo "WRONG x $i"
    mv -f b c && [ "$(cat c)" = b ] || echo "WRONG c $i"
    echo b > b; echo more >> a; echo a > a
    rm d/e && [ -z "$(ls d)" ] || echo "WRONG d $i"
    echo e > d/e
    rm none 2> /dev/null && echo "WRONG none $i"
done
ls -R; cat a b c d/e
