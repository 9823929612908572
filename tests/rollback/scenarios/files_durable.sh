# Files on a disk are made durable while guesses are open, and pipes are opened again by their names in /proc; every
# wrong guess makes it say so.
# @never WRONG
for i in 1 2 3; do
    echo "new $i" > new; sync -d new; echo more >> new; sync new; sync .
    [ "$(wc -l < new)" = 2 ] || echo "WRONG more $i"
    mv new old; sync old; sync .
    [ "$(head -1 old)" = "new $i" ] && [ ! -e new ] || echo "WRONG moved $i"
    [ "$(seq $i 4 | cat /dev/stdin | tail -1)" = 4 ] || echo "WRONG pipe $i"
    rm old; sync .; [ ! -e old ] || echo "WRONG removed $i"
done
echo left > left; sync left; cat left
