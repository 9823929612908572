# Files on a disk that are there are emptied, cut, written over and looked at while guesses are open; every wrong one
# makes it say so.
# @never WRONG
echo first > file; printf 'a\nb\nc\n' > lines; head -c 10000 /dev/zero > zeros
for i in 1 2 3; do
    echo "round $i" > file && [ "$(cat file)" = "round $i" ] || echo "WRONG emptied $i"
    echo more >> file; [ "$(wc -c < file)" = 13 ] && [ "$(tail -n 1 file)" = more ] || echo "WRONG appended $i"
    [ "$(stat -c '%s %h' file)" = "13 1" ] || echo "WRONG size $i"
    truncate -s 7 file; [ "$(cat file)" = "round $i" ] || echo "WRONG cut $i"
    printf R | dd of=file conv=notrunc status=none; [ "$(cat file)" = "Round $i" ] || echo "WRONG over $i"
    sed -i "s/b/b$i/" lines; grep -q "b$i" lines || echo "WRONG edited $i"
    printf x | dd of=zeros bs=1 seek=$((i * 3000)) conv=notrunc status=none
    [ "$(tr -d '\0' < zeros | wc -c)" = $i ] || echo "WRONG holes $i"
    exec 5<> file; read -r line <&5; echo "$line" > other; exec 5>&-
    cmp -s other file && echo "WRONG other $i"; [ "$(sort other file | uniq | wc -l)" = 1 ] || echo "WRONG sorted $i"
    [ lines -ot file ] && echo "WRONG times $i"
done
cat file lines; cksum zeros; ls -l file other lines | cut -c1-10
