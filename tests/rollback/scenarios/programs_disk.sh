# Programs and scripts that are made on a disk and executed at once, renamed, and made again, while guesses are open.
# @never WRONG
# @timeout 60
for i in 1 2 3; do
    printf '#!/bin/sh\necho "$0 $1 %s"\n' $i > script; chmod +x script
    [ "$(./script a)" = "./script a $i" ] || echo "WRONG script $i"
    printf '#!./script x\n' > outer; chmod +x outer; [ "$(./outer)" = "./script x $i" ] || echo "WRONG outer $i"
    cp /bin/echo new; [ "$(./new "$i" made)" = "$i made" ] || echo "WRONG new $i"
    mkdir -p below; mv new below/program; [ "$(below/program moved)" = moved ] || echo "WRONG moved $i"
    [ -e new ] && echo "WRONG still there $i"; ./new 2> said; [ $? = 127 ] || echo "WRONG status $i"
    echo 'echo "no interpreter"' > plain; chmod +x plain; ./plain; chmod -x plain; ./plain 2> said; echo "status $?"
    rm -f script below/program plain
done
ls -l . below | cut -c1-10
