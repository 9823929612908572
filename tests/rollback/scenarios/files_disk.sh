# New files on a disk are made, looked at, moved and removed while guesses are open; every wrong one makes it say so.
# @never WRONG
echo old > old
for i in 1 2 3; do
    echo "new $i" > new && [ "$(cat new)" = "new $i" ] || echo "WRONG new $i"
    echo more >> new; [ "$(wc -l < new)" = 2 ] || echo "WRONG more $i"
    (set -C; echo again > new) 2> /dev/null && echo "WRONG exclusive $i"
    cp new copy && cmp new copy || echo "WRONG copy $i"
    mv copy old && [ "$(head -1 old)" = "new $i" ] && [ ! -e copy ] || echo "WRONG moved $i"
    chmod 600 new; [ "$(stat -c '%a %h %s' new)" = "600 1 11" ] || echo "WRONG mode $i"
    exec 5> open; rm open; echo gone >&5; exec 5>&-; [ ! -e open ] || echo "WRONG gone $i"
    rm new; [ ! -e new ] || echo "WRONG removed $i"
done
ls -l old | cut -c1-10; cat old
